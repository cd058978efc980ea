"""The process that calls a user's function for data: ``python -m manyseed.jobs.own.returned DIR``.

The folder holds what is asked, ``request.json``; what the function returned is written beside it as
a file, and ``answer.json`` says which, or why there is none.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.datasets.frame import is_frame, to_polars
from manyseed.jobs.own import modules
from manyseed.jobs.own.calling import built, load

TARGET, PART, _TEST = "y", "part", "test"
_FORMS = (
    "it returns (X, y), (X, y, X_test, y_test), a dict of such arrays, or a frame of polars or "
    "pandas"
)


class _NoData(Exception):
    pass


def answer(folder: Path) -> dict[str, object]:
    """Call the function; return the name of the file and what has to be said of it."""
    request = json.loads((folder / "request.json").read_text())
    entry, root = request["entry"], request["root"]
    try:
        if root:
            modules.use(Path(root), [entry])
        function = load(entry)
    except BaseException as error:
        return {"refused": f"cannot be imported: {_said(error, root)}"}
    if not callable(function):
        return {"refused": f"it is {type(function).__name__}, no function"}
    try:
        found = function(**{name: built(value) for name, value in request["params"].items()})
    except BaseException as error:
        return {"refused": f"failed: {_said(error, root)}"}
    try:
        return _kept(found, folder)
    except _NoData as error:
        return {"refused": str(error)}
    except Exception as error:
        return {"refused": f"what it returned cannot be kept: {_said(error, root)}"}


def _kept(found: Any, folder: Path) -> dict[str, object]:
    if isinstance(found, tuple | list) and len(found) in (2, 4):
        names = ("X", TARGET, f"X_{_TEST}", f"{TARGET}_{_TEST}")
        found = dict(zip(names, found, strict=False))
    if is_frame(found):
        to_polars(found).write_parquet(folder / "data.parquet")
        return {"file": "data.parquet", "given": {}}
    if not isinstance(found, Mapping) or not {"X", TARGET} <= {*found}:
        what = type(found).__name__
        if isinstance(found, tuple | list):
            what = f"{what} of {len(found)}"
        elif isinstance(found, Mapping):
            what = f"dict of {', '.join(map(str, found)) or 'nothing'}"
        raise _NoData(f"returned a {what}; {_FORMS}")
    found = dict(found)
    tests = [found.pop(name, None) for name in (f"X_{_TEST}", f"{TARGET}_{_TEST}")]
    if sum(test is None for test in tests) == 1:
        raise _NoData("returned one of X_test and y_test; both are the test part, or none")
    given = {"target": TARGET, **({} if tests[0] is None else {"split": PART})}
    if given.keys() & {"split"} and PART in found:
        raise _NoData(f"returned X_test, and an array {PART!r}, which is what says so")
    if is_frame(found["X"]):
        _of_frames(found, tests).write_parquet(folder / "data.parquet")
        return {"file": "data.parquet", "given": given}
    np.savez(folder / "data.npz", **_of_arrays(found, tests))
    return {"file": "data.npz", "given": given}


def _of_arrays(found: Mapping[str, Any], tests: list[Any]) -> dict[str, Any]:
    arrays = {name: _array(name, values) for name, values in found.items()}
    if tests[0] is None:
        return arrays
    n_train = len(arrays["X"])
    if others := [name for name in arrays if name not in ("X", TARGET)]:
        raise _NoData(f"returned {others[0]!r} beside X_test, whose rows it does not tell of")
    for name, values in zip(("X", TARGET), tests, strict=True):
        test = _array(f"{name}_{_TEST}", values)
        if test.shape[1:] != arrays[name].shape[1:]:
            raise _NoData(f"returned {name} {arrays[name].shape} and {name}_{_TEST} {test.shape}")
        arrays[name] = np.concatenate([arrays[name], test])
    arrays[PART] = np.where(np.arange(len(arrays["X"])) < n_train, "train", _TEST)
    return arrays


def _array(name: str, values: Any) -> NDArray[Any]:
    array = np.asarray(values)
    if array.dtype.kind == "O" and all(isinstance(value, str) for value in array.ravel()):
        array = array.astype(str)
    if array.dtype.kind not in "biufUS":
        raise _NoData(
            f"returned {name} of {array.dtype}, no numbers or text; of rows with values of several "
            "kinds return a frame of polars or pandas"
        )
    return array


def _of_frames(found: Mapping[str, Any], tests: list[Any]) -> Any:
    import polars as pl

    if others := [name for name in found if name not in ("X", TARGET)]:
        raise _NoData(f"returned {others[0]!r} beside a frame X: let it be a column of that")
    made = []
    for part, X, y in (("train", found["X"], found[TARGET]), (_TEST, *tests)):
        if X is None:
            continue
        if not is_frame(X):
            raise _NoData("returned a frame X, and an X_test that is none")
        frame, classes = to_polars(X), np.asarray(y)
        if {TARGET, PART} & {*frame.columns}:
            raise _NoData(f"returned X with a column {TARGET!r} or {PART!r}: rename it")
        if classes.shape != (len(frame),):
            raise _NoData(f"returned {len(frame)} rows of X and y {classes.shape}")
        own = {TARGET: [str(label) for label in classes.tolist()]}
        if tests[0] is not None:
            own[PART] = [part] * len(frame)
        made.append(frame.with_columns(pl.Series(name, values) for name, values in own.items()))
    return pl.concat(made)


def _said(error: BaseException, root: str) -> str:
    """Return what was raised, and the line of the user's code that did."""
    text = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if root and Path(frame.filename).is_relative_to(root)]
    if own:
        text += f" ({Path(own[-1].filename).name}, line {own[-1].lineno})"
    return text


if __name__ == "__main__":
    _folder = Path(sys.argv[1])
    (_folder / "answer.json").write_text(json.dumps(answer(_folder)))
