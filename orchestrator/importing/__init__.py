"""Predictions made elsewhere → a sweep directory that can be analysed like any other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.jobs.run import Probability
from manyseed.orchestrator.errors import (
    ManyseedError,
    UserError,
    first_line,
    nearest,
    require_one_of,
    toml_value,
)
from manyseed.orchestrator.importing.archive import unpack
from manyseed.orchestrator.importing.arrays import (
    READERS,
    InMemory,
    OnDisk,
    entries_of,
    in_memory,
    opened_as_held,
)
from manyseed.orchestrator.importing.directory import write_sweep
from manyseed.orchestrator.importing.matching import add_runs, joined, pair_of
from manyseed.orchestrator.importing.predictions import (
    ATTRIBUTES,
    Names,
    prediction_file,
)
from manyseed.orchestrator.importing.tables import exported, is_exported, openml, read_frame

FORMATS = (*READERS, ".csv", ".parquet", ".zip")
PROBABILITIES: tuple[Probability, ...] = ("softmax", "ovr", "none")

_INSTEAD = {
    " or with --truth": "",
    ", or leave out --dataset to name each after its file": "",
    "a directory of their own with --out": "a directory of their own with Sweep.from_predictions",
}
"""Remedies for files, and what to say for arrays."""


def import_predictions(
    files: Sequence[Path],
    directory: Path,
    *,
    dataset: str | None = None,
    classifier: str | None = None,
    classifiers: Mapping[str, Sequence[str | Path]] | None = None,
    truth: str | Path | None = None,
    runs: str | Path | None = None,
    probability: str = "softmax",
    probabilities: bool = False,
    adding: bool = False,
) -> int:
    """Make a sweep directory from files of predictions; ``docs/import.md`` describes them.

    Parameters
    ----------
    files : sequence of Path
        NPZ, NPY or PyTorch files, each for a dataset of its own, or all for `dataset` if given; CSV
        or Parquet tables with OpenML's columns, each with further runs on the same dataset; or one
        file that ``export`` wrote.
    directory : Path
        The sweep directory to make.
    dataset : str
        The dataset's name; by default the file's.
    classifier : str
        The classifier's name; by default "imported".
    classifiers : mapping of str to sequence of Path
        Files of arrays of further classifiers, by name; then `dataset` defaults to "imported".
    truth : Path
        The true classes, for an NPY file.
    runs : Path
        CSV or Parquet that describes each run in a row.
    probability : str
        How scores become probabilities.
    probabilities : bool
        Scores of arrays are already probabilities.
    adding : bool
        Whether to add runs to the imported predictions that `directory` already holds; if
        interrupted, none are added. Only for files of arrays. `dataset` and `classifier` default to
        the only ones that the directory holds.

    Returns
    -------
    int
        Number of predictions of a test point with a probability below
        `importing.classes.FLOOR`, which is raised to it.

    Raises
    ------
    UserError
        For files that can't be read or don't match.
    """
    require_one_of(probability, PROBABILITIES, "unknown", key="--probability")
    asked = cast(Probability, probability)
    for key, name in (("--dataset", dataset), ("--classifier", classifier)):
        if not isinstance(name, str | None):
            raise UserError(f"must be text, not {type(name).__name__}", key=key)
    if adding:
        dataset, classifier = pair_of(
            directory, dataset, classifier, is_classifier_given=bool(classifiers) and not files
        )
    elif classifiers:
        dataset = dataset or "imported"
    named: list[tuple[Path | InMemory, Names]]
    named = [(file, Names(dataset, classifier)) for file in files]
    for name, listed in (classifiers or {}).items():
        if isinstance(listed, str | Path):
            raise UserError("must be a list of files", key=f"classifiers[{toml_value(name)}]")
        paths = [Path(file) if isinstance(file, str) else file for file in listed]
        named += [(file, Names(dataset, name)) for file in paths]
    if not named:
        raise UserError("there is no file to import", remedy="name one, or --classifier NAME=FILE")
    files = [given.file if isinstance(given, InMemory) else given for given, _ in named]
    with _one_message(files):
        kinds = {"arrays" if isinstance(each, InMemory) else _kind(each) for each, _ in named}
        _require_once([(file, names) for file, (_, names) in zip(files, named, strict=True)])
    if (
        len(kinds) > 1
        or (kinds <= {".zip", "exported"} and len(files) > 1)
        or (classifiers and kinds != {"arrays"})
    ):
        raise UserError(
            "these files cannot be imported together",
            file=files[-1],
            remedy="import arrays, tables with OpenML's columns, or one exported file at a time",
        )
    (kind,) = kinds
    if adding and kind != "arrays":
        raise UserError(
            "only files of arrays can be added to a sweep: NPZ, NPY and PyTorch files",
            file=files[0],
            remedy="import all tables together, into a new directory with --out",
        )
    if kind == ".zip":
        unpack(files[0], directory)
        return 0
    # values that overflow become infinite, which is refused later
    with ExitStack() as stack, _one_message(files), np.errstate(all="ignore"):
        if kind == "exported":
            entries, asked = exported(files[0]), "none"
        elif kind == "table":
            entries = [openml(files, named[0][1])]
        else:
            _allow_open(4 * len(named))
            more = _further_entries(
                None if truth is None else Path(truth), None if runs is None else Path(runs)
            )
            scratch = next(folder for folder in directory.absolute().parents if folder.is_dir())
            entries = [
                entries_of(opened_as_held(file, scratch, stack), more, names, asked, probabilities)
                for file, names in named
            ]
        sources = [prediction_file(each, asked) for each in entries]
        write = add_runs if adding else write_sweep
        return write(joined(sources) if kind == "arrays" else sources, directory)


def import_arrays(
    predictions: Mapping[str, Any],
    directory: Path,
    *,
    dataset: str | None = None,
    classifier: str | None = None,
    probability: str = "softmax",
    probabilities: bool = False,
    adding: bool = False,
) -> int:
    """Make a sweep directory from arrays; the parameters are those of `Sweep.from_predictions`.

    Raises
    ------
    UserError
        For arrays that are missing, unknown, or don't match.
    """
    tables = [isinstance(value, Mapping) for value in predictions.values()]
    several = any(tables)
    if not predictions or (all(tables) and not all(predictions.values())):
        raise UserError("there are no predictions", remedy="give scores or labels, and y_true")
    if several and not all(tables):
        raise UserError(
            "has arrays beside mappings",
            key="predictions",
            remedy="give arrays by name, or such a mapping for each classifier, by its name",
        )
    if several and classifier is not None:
        reason = "the predictions name their classifiers themselves"
        raise UserError(reason, key="classifier", value=classifier, remedy="leave it out")
    held: dict[str, Any] = {
        name: [in_memory(f"predictions[{toml_value(name)}]" if several else "predictions", arrays)]
        for name, arrays in (predictions if several else {"": predictions}).items()
    }
    try:
        return import_predictions(
            [] if several else held[""],
            directory,
            dataset=dataset if adding else dataset or "imported",
            classifier=classifier,
            classifiers=held if several else None,
            probability=probability,
            probabilities=probabilities,
            adding=adding,
        )
    except UserError as error:
        for option, instead in _INSTEAD.items():
            error.remedy = error.remedy and error.remedy.replace(option, instead)
        raise


def _require_once(named: Sequence[tuple[Path, Names]]) -> None:
    """Refuse a file that is given twice for one classifier: its runs would count twice."""
    seen = set()
    for file, names in named:
        if (place := (file.resolve(), names)) in seen:
            raise UserError("is given twice", file=file, remedy="name each file once")
        seen.add(place)


@contextmanager
def _one_message(files: Sequence[Path]) -> Iterator[None]:
    """Turn any error that an untrusted file causes into one message."""
    try:
        yield
    except (ManyseedError, OSError):
        raise
    except (Exception, pl.exceptions.PanicException) as error:
        reason = "it needs more memory than there is"
        if not isinstance(error, MemoryError):
            reason = f"{type(error).__name__}: {first_line(error)}"
        raise UserError(f"can't be imported: {reason}", file=files[0]) from None


def _allow_open(files: int) -> None:
    """Raise the soft limit on open files, which many systems set far below the hard limit."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = max(soft, 256 + files)
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _kind(file: Path) -> str:
    if not file.is_file():
        raise UserError("there is no such file", file=file)
    if file.suffix not in FORMATS:
        raise UserError("unknown format", file=file, remedy=nearest(file.suffix, FORMATS))
    if file.suffix in READERS:
        return "arrays"
    if file.suffix == ".zip":
        return ".zip"
    return "exported" if is_exported(file) else "table"


def _further_entries(truth: Path | None, runs: Path | None) -> dict[str, NDArray[Any] | list[Any]]:
    """Return the entries in the files of true classes and of runs, if given."""
    entries: dict[str, NDArray[Any] | list[Any]] = {}
    if truth is not None:
        try:
            with truth.open("rb") as file:
                array = OnDisk.at(file, 0, truth, "y_true")
                values = array[np.arange(array.shape[0])] if array.shape else np.empty(0)
        except OSError as error:
            raise UserError(f"cannot be read: {error.strerror}", file=truth) from None
        entries["y_true"] = values
    if runs is not None:
        table = read_frame(runs)
        for name in table.columns:
            require_one_of(name, ATTRIBUTES, "unknown column", file=runs)
            entries[name] = table[name].to_list()
    return entries
