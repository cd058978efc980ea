"""Import predictions in memory, like files of arrays."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from manyseed.jobs.datasets.frame import is_masked, missing, to_numpy
from manyseed.orchestrator.errors import UserError, toml_value
from manyseed.orchestrator.importing import import_predictions

_INSTEAD = {
    " or with --truth": "",
    ", or leave out --dataset to name each after its file": "",
    "a directory of their own with --out": "a directory of their own with Sweep.from_predictions",
}
"""Remedies for files, and what to say for arrays."""


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

    During the import the arrays lie in files beside the directory, so that memory use and checks
    are those for files; messages name the arrays.

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
    scratch = next(folder for folder in directory.absolute().parents if folder.is_dir())
    with tempfile.TemporaryDirectory(prefix=".manyseed-import-", dir=scratch) as folder:
        files: dict[str, list[Path]] = {}
        named: dict[str, str] = {}
        for number, (name, arrays) in enumerate(
            predictions.items() if several else [("imported", predictions)]
        ):
            file = Path(folder, str(number), "imported.npz")
            file.parent.mkdir()
            files[name] = [file]
            named[str(file)] = f"predictions[{toml_value(name)}]" if several else "predictions"
            np.savez(file, **{key: _plain(named[str(file)], key, a) for key, a in arrays.items()})
        try:
            return import_predictions(
                [] if several else files["imported"],
                directory,
                dataset=dataset,
                classifier=classifier,
                classifiers=files if several else None,
                probability=probability,
                probabilities=probabilities,
                adding=adding,
            )
        except UserError as error:
            raise _without_files(error, named) from None


def _without_files(error: UserError, named: Mapping[str, str]) -> UserError:
    """Return an error that names arrays instead of the files that hold them for the import."""
    texts = [None if text is None else str(text) for text in (error.file, error.message)]
    for file, name in named.items():
        texts = [text and text.replace(file, name) for text in texts]
    error.file, error.message = texts[0], texts[1] or ""
    for option, instead in _INSTEAD.items():
        error.remedy = error.remedy and error.remedy.replace(option, instead)
    return error


def _plain(of: str, key: str, given: Any) -> Any:
    """Return a contiguous NumPy array, whatever library `given` comes from."""
    array = np.ascontiguousarray(to_numpy(given))
    of_numbers = array.dtype.kind != "O" and (key == "fit_seconds" or not is_masked(given))
    if not of_numbers and (count := missing(array)):
        raise UserError(
            f"{count:,} of {array.size:,} values are missing",
            file=of,
            key=key,
            remedy="leave these out",
        )
    if array.dtype.kind == "O":
        raise UserError("is not an array of numbers or text", file=of, key=key)
    return array
