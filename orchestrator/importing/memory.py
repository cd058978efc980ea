"""Import predictions in memory, like files of arrays."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing import import_predictions


def import_arrays(predictions: Mapping[str, Any], directory: Path, **options: Any) -> int:
    """Make a sweep directory from arrays; the parameters are those of `Sweep.from_predictions`.

    During the import the arrays lie in files beside the directory, so that memory use and checks
    are those for files.

    Raises
    ------
    UserError
        For arrays that are missing, unknown, or don't match.
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
    """Return a contiguous NumPy array, whatever library `given` comes from."""
    array = np.ascontiguousarray(given)
    if array.dtype.kind == "O":
        raise UserError("is not an array of numbers or text", key=key)
    return array
