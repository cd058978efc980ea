"""Data that a user's function returned: the rows themselves are the dataset's identity.

`jobs.own.findings` calls the function while a sweep is planned, and keeps the result as a file of a
table or arrays, which is read here. Training reads the prepared copy of that file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from manyseed.jobs.checks import Option, Refused
from manyseed.jobs.datasets import arrayfile, csvfile, imagefolder, parts, tablefile
from manyseed.jobs.datasets.columns import CLASSES
from manyseed.jobs.datasets.info import DatasetSource, DataShape, Samples
from manyseed.jobs.run import MachineError

KIND, OPTION, KEPT = "function", "data", "kept"
"""The kind of source; a table's key for the function; the parameter for the path of the file."""

_OF_FILES: Mapping[str, Option] = {
    key: option
    for key, option in tablefile.OPTIONS.items()
    if key not in (parts.TEST_FILE, csvfile.MARKS, *imagefolder.OPTIONS)
}
OPTIONS: Mapping[str, Option] = {
    "version": Option("Your version number of the function.", int, 1, least=1),
    "params": Option("Arguments of the function.", dict),
    **_OF_FILES,
}


def _describe(name: str, given: Mapping[str, Any]) -> DataShape:
    kept = given.get(KEPT)
    if kept is None:
        reason = f"is called while the sweep is planned: give it there as {OPTION}"
        raise Refused("source", f"{KIND}:{name}", reason)
    version = OPTIONS["version"].check("version", given.get("version", 1))
    params = given.get("params", {})
    try:
        shape, samples = tablefile.read(kept, _of_file(given))
    except Refused as error:
        if error.option != "source":
            raise
        raise Refused(OPTION, name, f"what it returned {error.reason}", needs=error.needs) from None
    of_file = {key: value for key, value in shape.provenance.items() if key != "digest"}
    provenance = {
        **of_file,
        "source": f"{KIND}:{name}",
        "version": version,
        **({"params": params} if params else {}),
        "digest": digest(samples),
    }
    return replace(shape, provenance=provenance)


def _fetch(provenance: Mapping[str, Any], locations: Sequence[str], _: Path) -> Samples:
    source = provenance["source"]
    try:
        _shape, samples = tablefile.read(locations[0], _of_file(provenance))
    except (Refused, IndexError) as error:
        raise MachineError(f"what {source} returned is gone: plan again") from error
    if (found := digest(samples)) != provenance["digest"]:
        raise MachineError(
            f"{source} is not what was planned: its digest is {found}, it was "
            f"{provenance['digest']}"
        )
    return arrayfile.prepared(samples)


def _of_file(given: Mapping[str, Any]) -> dict[str, object]:
    return {key: given[key] for key in (*_OF_FILES, CLASSES) if key in given}


def digest(samples: Samples) -> str:
    """Return the SHA-256 of samples: rows, classes, groups of rows and test parts.

    It is taken over a line with the tuple (shape, image, classes, cardinality, rows before the test
    part) as Python prints it; X (float64, one NaN where missing; images as they are), y (int64),
    and where there are any groups (int64) and roles (uint8), all little-endian.
    """
    head = (
        samples.X.shape,
        samples.image,
        samples.class_names,
        samples.cardinality.tolist(),
        samples.n_official_train,
    )
    whole = hashlib.sha256(f"{head}\n".encode())
    step = max(1, 2**22 // max(1, samples.X.shape[1]))
    for start in range(0, len(samples.X), step):
        rows = np.asarray(samples.X[start : start + step])
        if rows.dtype.kind == "f":
            rows = np.where(np.isnan(rows), np.nan, rows).astype("<f8")
        whole.update(np.ascontiguousarray(rows, dtype=rows.dtype.newbyteorder("<")).tobytes())
    whole.update(samples.y.astype("<i8").tobytes())
    for beside, dtype in ((samples.groups, "<i8"), (samples.roles, "u1")):
        if beside is not None:
            whole.update(beside.astype(dtype).tobytes())
    return whole.hexdigest()


SOURCE = DatasetSource(
    names=(), describe=_describe, parameters=OPTIONS, fetch=_fetch, unwritten=(KEPT,)
)
