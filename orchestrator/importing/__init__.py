"""Predictions made elsewhere → a sweep directory that can be analysed like any other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl

from manyseed.jobs.run import Probability
from manyseed.orchestrator.calls import told_by, warn
from manyseed.orchestrator.errors import (
    ManyseedError,
    Unread,
    UserError,
    nearest,
    require_one_of,
    toml_value,
)
from manyseed.orchestrator.importing.adding import order_of_sweep, truth_of_sweep, with_numbers
from manyseed.orchestrator.importing.archive import exported, is_exported, unpack
from manyseed.orchestrator.importing.arrays import (
    ALSO,
    ENTRIES,
    NOTHING,
    READERS,
    InMemory,
    in_memory,
)
from manyseed.orchestrator.importing.classes import SCORES, require_named
from manyseed.orchestrator.importing.conversion import FORMATS, conversion, is_folder, spread
from manyseed.orchestrator.importing.directory import write_sweep
from manyseed.orchestrator.importing.doubts import ImportSeen
from manyseed.orchestrator.importing.filenames import (
    common_name,
    require_one_kind,
)
from manyseed.orchestrator.importing.frames import TABLES
from manyseed.orchestrator.importing.lacking import lacking_runs, without_names
from manyseed.orchestrator.importing.mapping import NAMES
from manyseed.orchestrator.importing.matching import (
    ELSEWHERE,
    add_runs,
    classes_of,
    joined,
    pair_of,
    require_addable,
)
from manyseed.orchestrator.importing.meaning import all_meant
from manyseed.orchestrator.importing.models import names_models
from manyseed.orchestrator.importing.naming import given_names, without_class_names
from manyseed.orchestrator.importing.opening import arrays_of, each_read, tables_of
from manyseed.orchestrator.importing.patterns import Pattern, of_runs, without_excluded
from manyseed.orchestrator.importing.predictions import (
    ATTRIBUTES,
    TRUTHS,
    Names,
    left_out,
    placed_below,
    prediction_file,
    require_once,
    unreadable,
)
from manyseed.orchestrator.importing.rows import OWN
from manyseed.orchestrator.importing.settings import (
    named_by_settings,
    names_settings,
    require_like_settings,
    with_seeds,
    without_predictions,
)
from manyseed.orchestrator.importing.truths import (
    holds_runs,
    one_truth,
    require_certain,
    require_no_others,
    truth_among,
    truth_with_name,
    truths_of_runs,
    truths_with_name,
)
from manyseed.orchestrator.importing.unlike import (
    require_one_model,
    tell_numbers,
)

PROBABILITIES: tuple[Probability, ...] = ("softmax", "ovr", "none")

_INSTEAD = {
    " or with --truth": "",
    " --classes NAME,NAME,… or": "",
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
    classes: str | None = None,
    runs: str | Path | None = None,
    probability: str = "softmax",
    probabilities: bool = False,
    columns: Mapping[str, str] | None = None,
    key: Mapping[str, str] | None = None,
    name: str | None = None,
    exclude: Sequence[str] | None = None,
    adding: bool = False,
    tried: bool = False,
) -> ImportSeen:
    """Make a sweep directory from files of predictions; ``docs/import.md`` describes them.

    Parameters
    ----------
    files : sequence of Path
        NPZ, NPY or PyTorch files, each for a dataset of its own, or all for `dataset` if given; CSV
        or Parquet tables with OpenML's columns, each with further runs on the same dataset; or one
        file that ``export`` wrote. A folder stands for the files in it: further runs on a dataset
        that is named like the folder. One that is named ``y_true`` or ``truth`` is `truth`.
    directory : Path
        The sweep directory to make.
    dataset : str
        The dataset's name; by default the file's. Of several tables, what their names share but for
        the seed, or else their folder's.
    classifier : str
        The classifier's name; by default "imported". ``{model}`` in it stands for that setting
        beside each file.
    classifiers : mapping of str to sequence of Path
        Files of arrays or tables of further classifiers, by name; then `dataset` defaults to
        "imported".
    truth : Path
        The true classes, where the files lack them.
    classes : str
        The names of classes in the order of scores, or of labels' indices: ``cat,dog``; or a file
        of them (TXT, JSON, NPY).
    runs : Path
        CSV or Parquet that describes each run in a row.
    probability : str
        How scores become probabilities.
    probabilities : bool
        Scores of arrays are already probabilities.
    columns : mapping of str to str
        The names in tables of columns that have others than OpenML's, such as
        ``{"truth": "label", "confidence": "p_{class}"}``; further columns are then not read.
    key : mapping of str to str
        The same of entries in NPZ and PyTorch files: ``{"scores": "preds"}``; of one run each,
        ``{"scores": "seed{run}"}``.
    name : str
        What the paths of files say: ``{classifier}/seed-{run}.csv``, with any of dataset,
        classifier, repeat, run, hparams and others; ``*`` for anything. Folders are then searched
        at any depth for files that match.
    exclude : sequence of str
        Files to leave out, by the ends of their paths: ``vit/seed-6.npy``; or runs of a table:
        ``vit/6``; ``*`` for anything.
    adding : bool
        Whether to add runs to the imported predictions that `directory` already holds; if
        interrupted, none are added. Only for files of arrays. `dataset` and `classifier` default to
        the only ones that the directory holds.
    tried : bool
        Whether only to find out if that can be done; then nothing is written.

    Returns
    -------
    ImportSeen
        What was seen of the predictions while they were written; of an archive, nothing.

    Raises
    ------
    UserError
        For files that can't be read or don't match.
    """
    require_one_of(probability, PROBABILITIES, "unknown", key="--probability")
    options: dict[str, Any] = {
        "dataset": dataset,
        "classifier": classifier,
        "classifiers": classifiers,
        "truth": truth,
        "classes": classes,
        "runs": runs,
        "probability": probability,
        "probabilities": probabilities,
        "columns": columns,
        "key": key,
        "name": name,
        "exclude": exclude,
        "adding": adding,
    }
    try:
        return _imported(files, directory, tried=tried, **options)
    except Unread as error:
        given = {option for option in ("dataset", "classifier") if options[option]}
        given |= {"classifier"} if classifiers else set()
        given |= Pattern(name).parts if name else set()
        folders = [file for file in files if is_folder(file)]
        check = partial(_imported, files, directory, tried=True)
        if error.options.get("truth") not in (None, "FILE"):
            with suppress(Unread):
                check(**{**options, "truth": error.options["truth"]})
        if truth or any(one.stem in TRUTHS for folder in folders for one in folder.iterdir()):
            given |= {"y_true", "truth"}
        with told_by(lambda _: None):  # what is only tried
            error, meant = all_meant(error, given, options, check, files)
        if adding and meant.get("truth") == "FILE":
            with ExitStack() as stack:
                own = order_of_sweep(directory, dataset, stack)
                ours = {**options, **meant, "truth": own}
                if own and _is_read(files, directory, ours):
                    if {*meant} > {"truth"}:
                        others = {of: value for of, value in meant.items() if of != "truth"}
                        raise error.told(others) from None
                    warn(
                        f"No file has true classes, so those of {directory} are taken, in the same "
                        "order of test points. If theirs is another, name theirs with --truth."
                    )
                    return _imported(files, directory, tried=tried, **ours)
        if (in_words := without_names(error, meant)) is not None:
            raise in_words from None
        raise error.told({name: of for name, of in meant.items() if of != {}}) from None


def _imported(
    files: Sequence[Path],
    directory: Path,
    *,
    dataset: str | None,
    classifier: str | None,
    classifiers: Mapping[str, Sequence[str | Path]] | None,
    truth: str | Path | None,
    classes: str | None,
    runs: str | Path | None,
    probability: str,
    probabilities: bool,
    columns: Mapping[str, str] | None,
    key: Mapping[str, str] | None,
    name: str | None,
    exclude: Sequence[str] | None,
    adding: bool,
    tried: bool = False,
) -> ImportSeen:
    """Import the files, or only check that they can be read."""
    asked = cast(Probability, probability)
    is_dataset_given, is_named = dataset is not None, classifier is not None
    if adding:
        dataset, classifier = pair_of(
            directory,
            dataset,
            classifier,
            is_classifier_given=(bool(classifiers) and not files)
            or names_models(columns)
            or names_models(key)
            or "classifier" in {*(columns or {}), *(Pattern(name).parts if name else ())},
        )
    elif classifiers:
        dataset = dataset or "imported"
    require_named(columns, (*OWN, *SCORES, *NAMES), "--columns")
    require_named(key, (*ENTRIES, *ALSO), "--key")
    truths: list[Path] = []
    own = [runs, None if truth is None or holds_runs(Path(truth), key) else truth]
    files = left_out(files, own)
    pattern = None if name is None else Pattern(name)
    class_names, places = None if classes is None else given_names(classes), files
    folder = next((file for file in files if is_folder(file)), None)
    if not dataset and folder and "dataset" not in (columns or {}):
        dataset = folder.resolve().name
    are_set = names_settings(classifier)
    if are_set:
        dataset = dataset or "imported"
    if pattern is not None:
        if "classifier" in pattern.parts:  # one test set for all, as with --classifier NAME=FILE
            dataset = dataset or "imported"
        folders = [file for file in files if is_folder(file)]
        truths += [one for folder in folders for one in truths_with_name(folder, FORMATS)]
        if not (truth or truths):
            truths += truth_with_name(files, pattern.read, key)
        but = [*truths, *(Path(one) for one in own if one)]
        files = [one for one in files if one not in truths]
        files = [one for one in pattern.files(files, FORMATS, but) if one not in truths]
    files = left_out([one for file in files for one in spread(file, truths)], own)
    of_classifiers = _of_classifiers(classifiers or {}, truths, own)
    files = without_class_names(files)
    every = [*files, *(one for several in of_classifiers.values() for one in several)]
    excluded = of_runs(every, exclude or ())
    by_path = [one for one in exclude or () if one not in excluded]
    files, *kept = without_excluded([files, *of_classifiers.values()], by_path)
    still = {id(one) for several in (files, *kept) for one in several}
    of_left = [pattern.read(one) or {} for one in every if pattern and id(one) not in still]
    left_runs = {(of.get("classifier", classifier), of["run"]) for of in of_left if "run" in of}
    gone = [name for name, left in zip(of_classifiers, kept, strict=True) if not left]
    if gone and of_classifiers[gone[0]]:
        remedy = f"leave out --classifier {gone[0]}=…, too"
        reason = f"leaves no file of {gone[0]}"
        raise UserError(reason, key="--exclude", value=",".join(exclude or ()), remedy=remedy)
    of_classifiers = dict(zip(of_classifiers, kept, strict=True))
    if dataset and pattern is None:
        require_one_kind([file for file in files if isinstance(file, Path)])
    named: list[tuple[Path | InMemory, Names]]
    of_paths: dict[Path, dict[str, Any]] = {}
    is_table = len(files) > 1 and all(_is_table(file) for file in files)
    if not dataset and "dataset" not in {*(columns or {}), *(pattern.parts if pattern else ())}:
        if is_table:
            dataset = common_name(files)
        elif files and "classifier" in (columns or {}):
            dataset = files[0].stem
    if pattern is None:
        named = [(file, Names(dataset, classifier)) for file in files]
    else:
        of_paths = {file: pattern.read(file) or {} for file in files}
        named = [(file, _names(of_paths[file], dataset, classifier)) for file in files]
        of_paths = {file: _attributes(found) for file, found in of_paths.items()}
    for of_name, listed in of_classifiers.items():
        named += [(file, Names(dataset, of_name)) for file in listed]
    if not named:
        raise UserError("there is no file to import", remedy="name one, or --classifier NAME=FILE")
    if are_set and classifier:
        unset = [one for one, of in named if of.classifier == classifier and isinstance(one, Path)]
        of_each = dict(zip(unset, named_by_settings(classifier, unset), strict=True))
        named = [
            (one, replace(of, classifier=of_each[one]) if one in of_each else of)
            for one, of in named
        ]
    if name is not None:
        by_file = [(one, of) for one, of in named if isinstance(one, Path) and one in of_paths]
        of_paths = with_seeds(name, by_file, of_paths)
    is_one_named = bool(classifiers) or (pattern is not None and "classifier" in pattern.parts)
    for names in dict.fromkeys(of for _, of in named):
        of_names = [one for one, of in named if of == names and isinstance(one, Path)]
        form = classifier if are_set and classifier else ""
        require_like_settings(of_names, is_named=is_one_named, form=form)
    files = [given.file if isinstance(given, InMemory) else given for given, _ in named]
    beside = [] if truth or pattern else truth_among([file for file in files if file.exists()])
    if beside and not holds_runs(beside[0], key):
        require_certain(beside[0])
        truths += beside
        named = [(given, names) for given, names in named if given != beside[0]]
        files = [file for file in files if file != beside[0]]
    with _one_message(files):
        kinds = {*each_read([one for one, _ in named], _kind)}
        require_once([(file, names) for file, (_, names) in zip(files, named, strict=True)])
    if (
        len(kinds) > 1
        or (kinds <= {".zip", "exported"} and len(files) > 1)
        or (classifiers and not kinds <= {"arrays", "table"})
    ):
        what = "these files cannot be imported together"
        remedy = "import arrays, tables with OpenML's columns, or one exported file at a time"
        raise UserError(what, file=files[-1], remedy=remedy)
    own_truths, for_all = truths_of_runs(files, truths), truth
    if truth or not own_truths or {*truths} - {*own_truths.values()}:
        for_all, own_truths = truth or one_truth(truths), {}
    if for_all:
        require_no_others(files, truths, Path(for_all))
    (kind,) = kinds
    for given, option, of in (
        *((columns, "--columns", "table"), (key, "--key", "arrays")),
        (runs, "--runs", "arrays"),
    ):
        if given and kind != of:
            what = "CSV and Parquet tables" if of == "table" else "NPZ and PyTorch files"
            remedy = f"for these: {'--key' if of == 'table' else '--columns'}"
            remedy = remedy if kind in ("table", "arrays") else "leave it out"
            raise UserError(f"is for {what}", file=files[0], key=option, remedy=remedy)
    if classes and kind != "arrays":
        what, remedy = "is for NPZ, NPY and PyTorch files", "leave it out: others name classes"
        raise UserError(what, file=files[0], key="--classes", remedy=remedy)
    if truth and kind not in ("arrays", "table"):
        what = "is for arrays and tables"
        raise UserError(what, file=files[0], key="--truth", remedy="leave it out")
    if adding and kind not in ("arrays", "table"):
        what = "an exported file holds a whole sweep, which cannot be added to another"
        raise UserError(what, file=files[0], remedy=ELSEWHERE)
    if kind == ".zip":
        if not tried:
            unpack(files[0], directory)
        return ImportSeen()
    # values that overflow become infinite, which is refused later
    with ExitStack() as stack, _one_message(files), np.errstate(all="ignore"):
        known = {dataset: classes_of(directory, dataset)} if adding and dataset else {}
        if kind == "exported":
            entries, asked = exported(files[0]), "none"
        elif kind == "table":
            if adding and dataset and not (for_all or own_truths):
                for_all = truth_of_sweep(directory, dataset, files, {*(columns or {})}, stack)
            entries = tables_of(
                [(file, names) for file, (_, names) in zip(files, named, strict=True)],
                tuple((columns or {}).items()),
                {file: own_truths.get(file, Path(for_all) if for_all else None) for file in files},
                of_paths,
                known,
                excluded,
                left_runs,
            )
        else:
            scratch = next(folder for folder in directory.absolute().parents if folder.is_dir())
            entries = arrays_of(
                named,
                scratch,
                stack,
                key or NOTHING,
                for_all=Path(for_all) if for_all else None,
                own_truths=own_truths,
                runs=None if runs is None else Path(runs),
                of_paths=of_paths,
                classes=known,
                probability=asked,
                probabilities=probabilities,
                class_names=class_names,
                given=[*places, *files],
            )
        sources = [prediction_file(each, asked) for each in entries]
        if kind == "arrays":
            sources = placed_below(sources, files)
        are_joined = kind in ("arrays", "table")
        if are_joined:
            are_models = any(map(names_models, (columns, key))) or "classifier" in (columns or {})
            is_unnamed = not (classifiers or pattern or is_named or are_models)
            of_one = partial(require_one_model, files if is_unnamed else [], sources)
            of_files = sources
            try:
                sources = joined(sources, is_dataset_given=is_dataset_given)
            except UserError:
                of_one()
                raise
            of_one()
            if adding and not (classifiers or pattern):
                sources = with_numbers(sources, files, directory)
            elif not (classifiers or pattern or are_set):
                tell_numbers(files, of_files)
        if tried:
            if adding:
                require_addable(sources, directory)
            return ImportSeen()
        if adding:
            return add_runs(sources, directory)
        told = [*lacking_runs(sources, left_runs)]
        if folder is not None and pattern is not None:
            told += without_predictions(folder, files)
        for one in told:
            warn(one)
        return write_sweep(sources, directory, told)


def _is_read(files: Sequence[Path], directory: Path, options: Mapping[str, Any]) -> bool:
    try:
        with told_by(lambda _: None):
            _imported(files, directory, tried=True, **options)
    except UserError as error:
        if "in the sweep already" in error.message:
            raise
        return False
    return True


def _of_classifiers(
    classifiers: Mapping[str, Sequence[Any]], truths: list[Path], own: Sequence[Any]
) -> dict[str, list[Any]]:
    """Return the files of each classifier that has some of its own; folders stand for theirs.

    `truths`: gets the true classes that are found. `own`: files that have options of their own.
    """
    found: dict[str, list[Any]] = {}
    for name, listed in classifiers.items():
        if isinstance(listed, str | Path):
            raise UserError("must be a list of files", key=f"classifiers[{toml_value(name)}]")
        places = [Path(file) if isinstance(file, str) else file for file in listed]
        held = [one for place in places for one in spread(place, truths)]
        found[name] = left_out(held, own)
        if held and not found[name]:
            problem = "has an option of its own, and holds no predictions"
            raise UserError(problem, file=held[0], key=f"--classifier {name}")
    return found


def _names(found: Mapping[str, Any], dataset: str | None, classifier: str | None) -> Names:
    return Names(found.get("dataset", dataset), found.get("classifier", classifier))


def _attributes(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name in ATTRIBUTES}


def import_arrays(
    predictions: Mapping[str, Any],
    directory: Path,
    *,
    dataset: str | None = None,
    classifier: str | None = None,
    probability: str = "softmax",
    probabilities: bool = False,
    adding: bool = False,
) -> ImportSeen:
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


@contextmanager
def _one_message(files: Sequence[Path]) -> Iterator[None]:
    """Turn any error that an untrusted file causes into one message.

    Errors of polars stay: those that a file can cause are caught where it is read, so that others
    are ours, and so are the further ones that no content causes.
    """
    try:
        yield
    except (ManyseedError, OSError):
        raise
    except (pl.exceptions.PolarsError, AssertionError, AttributeError, ImportError, NameError):
        raise
    except (Exception, pl.exceptions.PanicException) as error:
        raise unreadable(files[0], "a file of predictions", error) from error


def _is_table(file: Path | InMemory) -> bool:
    return isinstance(file, Path) and file.suffix in TABLES


def _kind(file: Path | InMemory) -> str:
    if isinstance(file, InMemory):
        return "arrays"
    if not file.is_file():
        raise UserError("there is no such file", file=file)
    if file.suffix not in FORMATS:
        remedy = conversion(file) or nearest(file.suffix, FORMATS)
        raise UserError("unknown format", file=file, remedy=remedy)
    if not file.stat().st_size:
        raise UserError("is empty", file=file)
    if file.suffix in READERS:
        return "arrays"
    if file.suffix == ".zip":
        return ".zip"
    return "exported" if is_exported(file) else "table"
