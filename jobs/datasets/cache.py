"""Prepared copies: one folder per source, written once and whole, read memory-mapped.

``HOME/prepared/NAME-KEY/`` holds ``X.npy``, ``y.npy``, ``groups.npy`` if rows belong together,
``roles.npy`` if there are several official test sets, and ``about.json`` with everything else and
the files' checksums. The key is the identity of the source's part of the canonical description, so
datasets that differ only in classes or test share use one copy.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.datasets.info import PointNames, Samples
from manyseed.jobs.run import (
    IDENTITY_VERSION,
    Feature,
    Json,
    MachineError,
    NotFetched,
    PreparedElsewhere,
    canonical_json,
    identity,
    text_identity,
)
from manyseed.jobs.whole import UNLIKE, Taken, appearing, partial_of, place, sha256

HOME_VARIABLE = "MANYSEED_DATA"
SUBMITTED_VARIABLE = "MANYSEED_SUBMITTED_DATA"
"""Set in jobs: the folder of data that their submission used (`slurm.arrays.setup`)."""

FORMAT = 1

GROUPS, ROLES = "groups.npy", "roles.npy"
"""Files that exist only where rows belong together, and with several official test sets."""
_NAMES: Mapping[Literal["file", "row_id", "row"], str] = {
    "file": "files.json",
    "row_id": "row_ids.json",
    "row": "rows.json",
}
"""What samples are called: beside what is checked, as earlier versions did not write it."""

_FEATURES = "columns.json"
"""Each column's name and labels, with their own identity, beside what is checked."""

_OF_THE_DATASET = ("classes", "positive", "test")


def data_home() -> Path:
    """Return the folder of data: ``$MANYSEED_DATA``, or ``~/.cache/manyseed``.

    Where a job's environment names none, it is the folder that the submission used, if the node can
    read it. A user without a home has a temporary folder of their own.
    """
    if given := os.environ.get(HOME_VARIABLE):
        return Path(given)
    if (submitted := os.environ.get(SUBMITTED_VARIABLE)) and os.access(
        submitted, os.R_OK | os.X_OK
    ):
        return Path(submitted)
    try:
        return Path.home() / ".cache" / "manyseed"
    except RuntimeError:
        return Path(gettempdir()) / f"manyseed-{os.getuid()}"


def given_copy(digest: str, suffix: str) -> Path:
    """Return the path that keeps data given by a caller, by the SHA-256 of its file."""
    return data_home() / "given" / f"{digest[:32]}{suffix}"


def folder(canonical: Mapping[str, Any], home: Path) -> Path:
    """Return where the prepared copy of a dataset's source belongs."""
    name = re.sub(r"[^A-Za-z0-9.]+", "-", canonical["source"])
    digest = identity({"v": IDENTITY_VERSION, **_provenance(canonical)})
    return home / "prepared" / f"{name}-{digest}"


def is_complete(canonical: Mapping[str, Any], home: Path) -> bool:
    """Return whether a prepared copy exists and its files have the right lengths."""
    where = folder(canonical, home)
    try:
        files = _about(where)["files"].items()
        return all((where / name).stat().st_size == file["bytes"] for name, file in files)
    except (OSError, *UNLIKE):
        return False


def checksums(canonical: Mapping[str, Any], home: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a prepared copy, as recorded; none without a copy."""
    try:
        files = _about(folder(canonical, home))["files"].items()
        return {str(name): str(file["sha256"]) for name, file in files}
    except (OSError, *UNLIKE):
        return {}


def names_of(canonical: Mapping[str, Any], home: Path) -> PointNames | None:
    """Return what the samples of a prepared copy are called; None if that is not known here."""
    where = folder(canonical, home)
    for kind, file in _NAMES.items():
        try:
            found = json.loads((where / file).read_text())
            (n,) = _about(where)["files"]["y.npy"]["shape"]
        except (OSError, *UNLIKE):
            continue
        if isinstance(found, list) and len(found) == n:
            return PointNames(kind, [str(name) for name in found])
    return None


def features_of(canonical: Mapping[str, Any], home: Path) -> tuple[Feature, ...]:
    """Return the names and labels of a prepared copy's columns; none if not known here."""
    try:
        found = json.loads((folder(canonical, home) / _FEATURES).read_text())
        if text_identity(canonical_json(found["columns"])) != found["identity"]:
            return ()  # code would get other names than those of the data
        return tuple(Feature(of, tuple(labels)) for of, labels in found["columns"])
    except (OSError, *UNLIKE):
        return ()


def name(samples: Samples, canonical: Mapping[str, Any], home: Path) -> None:
    """Write what is not checked beside a prepared copy that an earlier version made."""
    with suppress(OSError):  # a folder of others that may not be changed
        _write_names(folder(canonical, home), samples)


def name_rows(names: Sequence[str], canonical: Mapping[str, Any], home: Path) -> None:
    """Write what rows are called beside a prepared copy, of which names are no part.

    Data of equal rows share a copy: where they call these otherwise, rows have no names.
    """
    file, known = folder(canonical, home) / _NAMES["row_id"], None
    with suppress(OSError, *UNLIKE):
        known = json.loads(file.read_text())
    agreed = [*names] if known in (None, [*names]) else []
    with suppress(OSError):  # a folder of others that may not be changed
        place(file, partial(_put, json.dumps(agreed).encode()))


def _write_names(where: Path, samples: Samples) -> None:
    """Write what samples and columns are called, as far as that is known."""
    names = samples.names
    called: dict[str, object] = {}
    if names is not None:
        called[_NAMES[names.kind]] = [*names.of]
    if samples.features:
        columns = [[each.name, [*each.labels]] for each in samples.features]
        called[_FEATURES] = {
            "columns": columns,
            "identity": text_identity(canonical_json(columns)),
        }
    for file, of in called.items():
        text = json.dumps(of).encode()
        place(where / file, partial(_put, text))


def _put(text: bytes, file: IO[bytes]) -> None:
    file.write(text)


def read(canonical: Mapping[str, Any], home: Path) -> Samples:
    """Read a prepared copy after comparing all checksums; raise `NotFetched` if it is not whole."""
    where = folder(canonical, home)
    try:
        about = _about(where)
        for name, file in about["files"].items():
            if sha256(where / name) != file["sha256"]:
                raise ValueError(f"{name} has another checksum")
        image = about["image"]
        if not isinstance(about["class_names"], list):
            raise TypeError("its class_names are no list")
        samples = Samples(
            X=np.load(where / "X.npy", mmap_mode="r"),
            y=np.load(where / "y.npy", mmap_mode="r"),
            cardinality=np.array(about["cardinality"], dtype=np.int32),
            class_names=tuple(about["class_names"]),
            image=None if image is None else (image[0], image[1], image[2]),
            n_official_train=about["n_official_train"],
            groups=np.load(where / GROUPS) if GROUPS in about["files"] else None,
            roles=np.load(where / ROLES) if ROLES in about["files"] else None,
            features=features_of(canonical, home),
        )
        _require_consistent(samples)
    except FileNotFoundError as error:
        submitted = os.environ.get(SUBMITTED_VARIABLE)
        if submitted and Path(submitted) != home.absolute():
            raise PreparedElsewhere(
                f"the data was prepared in {submitted}, but the job looks in {home}"
            ) from error
        raise NotFetched(
            f"{canonical['source']} is not in {home}: fetch it where the network can be reached"
        ) from error
    except (OSError, *UNLIKE) as error:
        raise NotFetched(
            f"the prepared copy of {canonical['source']} in {where} is damaged ({error}): fetch "
            "it again"
        ) from error
    return samples


def _require_consistent(samples: Samples) -> None:
    """Raise what `UNLIKE` lists unless the descriptions fit the arrays."""
    n, width = samples.X.shape
    names, first_test = samples.class_names, samples.n_official_train
    if (
        (samples.y.shape, samples.cardinality.shape) != ((n,), (width,))
        or samples.y.max() >= len(names)
        or not all(isinstance(name, str) for name in names)
        or (samples.image is not None and math.prod(samples.image) != width)
        or (first_test is not None and not 0 <= first_test <= n)
    ):
        raise ValueError("about.json describes other data")


def write(samples: Samples, canonical: Mapping[str, Any], home: Path) -> None:
    """Write a prepared copy; readers and other writers see all of it or nothing.

    A damaged copy is replaced; the copy of a faster process is kept.
    """
    where = folder(canonical, home)
    try:
        with suppress(Taken), appearing(where) as mine:  # another process was faster
            _write(mine, samples, _provenance(canonical))
            _remove_damaged(canonical, home)
    except OSError as error:
        raise MachineError(f"{where} cannot be written: {error}") from error


def _about(where: Path) -> Any:
    about = json.loads((where / "about.json").read_bytes())
    if about["format"] != FORMAT:
        raise ValueError(f"its format is {about['format']}, not {FORMAT}")
    return about


def _write(where: Path, samples: Samples, provenance: Mapping[str, Any]) -> None:
    arrays: dict[str, NDArray[Any]] = {"X.npy": samples.X, "y.npy": samples.y.astype(np.uint16)}
    if samples.groups is not None:
        arrays[GROUPS] = samples.groups
    if samples.roles is not None:
        arrays[ROLES] = samples.roles
    files = {}
    for name, array in arrays.items():
        values = np.ascontiguousarray(array)
        place(where / name, partial(np.save, arr=values, allow_pickle=False))
        files[name] = {
            "sha256": sha256(where / name),
            "bytes": (where / name).stat().st_size,
            "shape": array.shape,
            "dtype": array.dtype.str,
        }
    _write_names(where, samples)
    about = {
        "format": FORMAT,
        "origin": dict(provenance),
        "class_names": samples.class_names,
        "cardinality": samples.cardinality.tolist(),
        "image": samples.image,
        "n_official_train": samples.n_official_train,
        "files": files,
    }
    told = json.dumps(about, indent=1).encode()
    place(where / "about.json", lambda file: file.write(told))


def _remove_damaged(canonical: Mapping[str, Any], home: Path) -> None:
    """Remove a damaged copy in one step: processes that have it mapped keep their pages."""
    where = folder(canonical, home)
    away = partial_of(where)
    with suppress(FileNotFoundError):  # there is no copy, or another process removed it
        try:
            read(canonical, home)
        except MachineError:
            where.rename(away)
    shutil.rmtree(away, ignore_errors=True)


def _provenance(canonical: Mapping[str, Any]) -> dict[str, Json]:
    return {key: canonical[key] for key in canonical if key not in _OF_THE_DATASET}
