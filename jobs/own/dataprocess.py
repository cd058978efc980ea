"""Calls a user's function for data, in a process: ``python -m manyseed.jobs.own.dataprocess DIR``.

The folder holds the request, ``request.json``; the data that the function returned is written
beside it as a file, and ``answer.json`` names the file, or says why there is none.
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

from manyseed.jobs.checks import in_a_line
from manyseed.jobs.datasets.frame import is_frame, missing, other_rows, to_numpy, to_polars
from manyseed.jobs.own import copies
from manyseed.jobs.own.calling import built, load

TARGET, PART, _TEST = "y", "part", "test"
_FORMS = (
    "it returns (X, y), (X, y, X_test, y_test), a dict of such arrays, or a frame of polars or "
    "pandas"
)


class _NoData(Exception):
    pass


def answer(folder: Path) -> dict[str, object]:
    """Call the function; return the name of the file and the parameters for reading it."""
    request = json.loads((folder / "request.json").read_text())
    entry, root = request["entry"], request["root"]
    try:
        if root:
            copies.use_modules(Path(root), [entry])
        function = load(entry)
    except BaseException as error:
        return {"refused": f"cannot be imported: {_described(error, root)}"}
    if not callable(function):
        return {"refused": f"it is {type(function).__name__}, not a function"}
    try:
        data = function(**{name: built(value) for name, value in request["params"].items()})
    except BaseException as error:
        return {"refused": f"failed: {_described(error, root)}"}
    try:
        return _kept(data, folder)
    except _NoData as error:
        return {"refused": str(error)}
    except Exception as error:
        return {"refused": f"what it returned cannot be kept: {_described(error, root)}"}


def _kept(data: Any, folder: Path) -> dict[str, object]:
    if isinstance(data, tuple | list) and len(data) in (2, 4):
        names = ("X", TARGET, f"X_{_TEST}", f"{TARGET}_{_TEST}")
        data = dict(zip(names, data, strict=False))
    if is_frame(data):
        to_polars(data).write_parquet(folder / "data.parquet")
        return {"file": "data.parquet", "given": {}}
    if not isinstance(data, Mapping) or not {"X", TARGET} <= {*data}:
        what = type(data).__name__
        if isinstance(data, tuple | list):
            what = f"{what} of {len(data)}"
        elif isinstance(data, Mapping):
            what = f"dict of {', '.join(map(str, data)) or 'nothing'}"
        raise _NoData(f"returned a {what}; {_FORMS}")
    data = dict(data)
    tests = [data.pop(name, None) for name in (f"X_{_TEST}", f"{TARGET}_{_TEST}")]
    if sum(test is None for test in tests) == 1:
        raise _NoData("returned one of X_test and y_test; a test part needs both")
    _require_same_rows(data, tests)
    given = {"target": TARGET, **({} if tests[0] is None else {"split": PART})}
    if "split" in given and PART in data:
        raise _NoData(f"returned X_test and an array {PART!r}; return one of them")
    if is_frame(data["X"]):
        _of_frames(data, tests).write_parquet(folder / "data.parquet")
        return {"file": "data.parquet", "given": given}
    np.savez(folder / "data.npz", **_of_arrays(data, tests))
    return {"file": "data.npz", "given": given}


def _require_same_rows(data: Mapping[str, Any], tests: list[Any]) -> None:
    """Refuse what pandas' indexes show to belong to other rows."""
    pairs = [(name, values, "X", data["X"]) for name, values in data.items() if name != "X"]
    pairs.append((f"{TARGET}_{_TEST}", tests[1], f"X_{_TEST}", tests[0]))
    for pair in pairs:
        if (found := other_rows(*pair)) is not None:
            raise _NoData(f"returned {pair[0]}, which {found[0]}; {found[1]}")


def _of_arrays(data: Mapping[str, Any], tests: list[Any]) -> dict[str, Any]:
    arrays = {name: _array(name, values) for name, values in data.items()}
    if tests[0] is None:
        return arrays
    n_train = len(arrays["X"])
    if others := [name for name in arrays if name not in ("X", TARGET)]:
        raise _NoData(f"returned {others[0]!r} beside X_test, without values for its rows")
    for name, values in zip(("X", TARGET), tests, strict=True):
        test = _array(f"{name}_{_TEST}", values)
        if test.shape[1:] != arrays[name].shape[1:]:
            raise _NoData(f"returned {name} {arrays[name].shape} and {name}_{_TEST} {test.shape}")
        arrays[name] = np.concatenate([arrays[name], test])
    arrays[PART] = np.where(np.arange(len(arrays["X"])) < n_train, "train", _TEST)
    return arrays


def _array(name: str, values: Any) -> NDArray[Any]:
    array = to_numpy(values)
    if array.dtype.kind == "O" or name.partition("_")[0] == TARGET:
        _require_all(name, array)
    if array.dtype.kind not in "biufUS":
        raise _NoData(
            f"returned {name} of {array.dtype}, not numbers or text; for values of several kinds "
            "return a frame of polars or pandas"
        )
    return array


def _require_all(name: str, array: NDArray[Any]) -> None:
    if count := missing(array):
        reason = f"returned {name} with {count:,} of {array.size:,} values missing"
        raise _NoData(f"{reason}; leave these rows out")


def _of_frames(data: Mapping[str, Any], tests: list[Any]) -> Any:
    import polars as pl

    if others := [name for name in data if name not in ("X", TARGET)]:
        raise _NoData(f"returned {others[0]!r} beside a frame X: make it a column of X")
    frames = []
    for part, X, y in (("train", data["X"], data[TARGET]), (_TEST, *tests)):
        if X is None:
            continue
        if not is_frame(X):
            raise _NoData("returned a frame X and an X_test that is not a frame")
        frame, classes = to_polars(X), np.asarray(y)
        if {TARGET, PART} & {*frame.columns}:
            raise _NoData(f"returned X with a column {TARGET!r} or {PART!r}: rename it")
        if classes.shape != (len(frame),):
            raise _NoData(f"returned {len(frame)} rows of X and y {classes.shape}")
        _require_all(TARGET if part == "train" else f"{TARGET}_{_TEST}", to_numpy(y))
        added = {TARGET: [str(label) for label in classes.tolist()]}
        if tests[0] is not None:
            added[PART] = [part] * len(frame)
        frames.append(frame.with_columns(pl.Series(name, values) for name, values in added.items()))
    return pl.concat(frames)


def _described(error: BaseException, root: str) -> str:
    """Return what was raised, and the line of the user's code that raised it."""
    text = in_a_line(error)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if root and Path(frame.filename).is_relative_to(root)]
    if own:
        text += f" ({Path(own[-1].filename).name}, line {own[-1].lineno})"
    return text


if __name__ == "__main__":
    _folder = Path(sys.argv[1])
    (_folder / "answer.json").write_text(json.dumps(answer(_folder)))
