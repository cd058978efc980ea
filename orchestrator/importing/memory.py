"""Predictions in memory, imported as files of arrays are."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing import import_predictions


def import_arrays(predictions: Mapping[str, Any], directory: Path, **options: Any) -> int:
    """Make a sweep directory of arrays; the parameters are `Sweep.from_predictions`'.

    They are written beside the directory for the time of the import, so that memory and checks are
    those of files.

    Raises
    ------
    UserError
        For arrays that are missing, unknown, or don't fit each other.
    """
    several = all(isinstance(value, Mapping) for value in predictions.values())
    if not predictions or (several and not all(predictions.values())):
        raise UserError("there are no predictions", remedy="give scores or labels, and y_true")
    scratch = next(folder for folder in directory.absolute().parents if folder.is_dir())
    with tempfile.TemporaryDirectory(prefix=".manyseed-import-", dir=scratch) as name:
        files = {}
        for number, (classifier, arrays) in enumerate(
            predictions.items() if several else [("imported", predictions)]
        ):
            folder = Path(name, str(number))
            folder.mkdir()
            files[classifier] = [folder / "imported.npz"]
            np.savez(files[classifier][0], **{key: _plain(key, a) for key, a in arrays.items()})
        if several:
            return import_predictions([], directory, classifiers=files, **options)
        return import_predictions(files["imported"], directory, **options)


def _plain(key: str, given: Any) -> Any:
    """Return an array that a file holds by rows, whatever library it is of."""
    array = np.ascontiguousarray(given)
    if array.dtype.kind == "O":
        raise UserError("is no array of numbers or texts", key=key)
    return array
