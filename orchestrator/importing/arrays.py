"""NPY, NPZ and PyTorch files: scores (run, sample, class) or labels (run, sample)."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, NoReturn

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import log_expit

from manyseed.jobs.run import Probability
from manyseed.jobs.training.prediction import are_probabilities
from manyseed.orchestrator.errors import UserError, first_line, nearest
from manyseed.orchestrator.grids.sweepfile import Keep
from manyseed.orchestrator.importing.archive import opened, reading_zip
from manyseed.orchestrator.importing.naming import in_order, require_apart, require_one_order
from manyseed.orchestrator.importing.probabilities import predicted
from manyseed.orchestrator.importing.source import (
    ATTRIBUTES,
    MAX_CLASSES,
    Names,
    Positions,
    Predicted,
    PredictionFile,
    attributes,
    codes,
    texts,
)
from manyseed.orchestrator.importing.tensors import FORMATS as TENSORS
from manyseed.orchestrator.importing.tensors import read_tensors

LARGE = ("scores", "labels")
ALSO = {"logits": "scores"}
"""Alternative names of entries."""
ENTRIES = (*LARGE, "y_true", "test_index", "class_names", *ATTRIBUTES)
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_NPZ = (
    "write it with numpy.savez(FILE, scores=scores, y_true=y_true); a table must be named .csv or "
    ".parquet"
)
_SMALL_BYTES = 2**31  # limit for an entry that is held in memory


@dataclass(frozen=True, slots=True)
class OnDisk:
    """An array in a file, read by rows and not mapped, so that memory use stays bounded."""

    file: IO[bytes]
    start: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def at(
        cls, file: IO[bytes], start: int, path: Path, key: str, size: int | None = None
    ) -> OnDisk:
        """Read the header at `start`, which precedes the array.

        Parameters
        ----------
        file : binary file
        start : int
        path, key
            For errors.
        size : int, optional
            Size of header and array in bytes; by default up to the end of the file.
        """
        end = os.fstat(file.fileno()).st_size
        end = end if size is None else min(end, start + size)
        file.seek(start)
        shape, fortran, dtype = _header(file, path, key)
        if fortran and len(shape) > 1:
            remedy = "save it with numpy.ascontiguousarray"
            raise UserError("is in Fortran order", file=path, key=key, remedy=remedy)
        start = file.tell()
        available = end - start
        if available < (needed := math.prod(shape) * dtype.itemsize):
            problem = f"is truncated: it needs {needed:,} bytes and has {available:,}"
            raise UserError(problem, file=path, key=key, remedy="copy it again")
        return cls(file, start, shape, dtype)

    def rows(self, positions: Positions) -> NDArray[Any]:
        """Read the rows at these positions, in their order."""
        rows = np.empty((len(positions), *self.shape[1:]), dtype=self.dtype)
        size = int(np.prod(self.shape[1:]))
        for part in np.split(
            np.arange(len(positions)), np.flatnonzero(np.diff(positions) != 1) + 1
        ):
            if len(part):
                self.file.seek(self.start + int(positions[part[0]]) * size * self.dtype.itemsize)
                values = np.fromfile(self.file, dtype=self.dtype, count=len(part) * size)
                rows[part] = values.reshape(len(part), *self.shape[1:])
        return rows


_Entries = tuple[dict[str, OnDisk], dict[str, NDArray[Any]]]
"""Entries of a file by name: those that are read in parts, and those held in memory."""


def _header(file: IO[bytes], path: Path, key: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read an untrusted NumPy header: shape, whether in Fortran order, and dtype."""
    try:
        version = np.lib.format.read_magic(file)
        shape, fortran, dtype = _HEADERS[version](file)
    except (
        *(ValueError, KeyError, TypeError, RecursionError, MemoryError),
        *(SyntaxError, TokenError),  # of the header, which is an expression
    ) as error:
        raise UserError(f"not a NumPy array: {first_line(error)}", file=path, key=key) from None
    if dtype.hasobject:
        raise UserError(
            "holds Python objects, which are not read",
            file=path,
            key=key,
            remedy=f"save numbers or text, such as {key}.astype(float) or {key}.astype(str)",
        )
    if min(shape, default=0) < 0 or dtype.itemsize == 0:
        raise UserError(f"has the invalid shape {shape} or dtype {dtype}", file=path, key=key)
    return shape, fortran, dtype


def read_arrays(
    path: Path,
    names: Names,
    more: Mapping[str, Any],
    probability: Probability,
    probabilities: bool,
    scratch: Path,
    stack: ExitStack,
) -> PredictionFile:
    """Open a file of arrays.

    Parameters
    ----------
    path : Path
        Ends in .npy, .npz, .pt or .pth.
    names : Names
    more : mapping
        Entries from other files: y_true and attributes of runs.
    probability, probabilities
        How scores become probabilities; whether they already are.
    scratch : Path
        Folder for temporary files with unpacked entries.
    stack : ExitStack
        Keeps files open.

    Raises
    ------
    UserError
        For entries that are missing, unknown, or don't match.
    """
    if path.suffix in TENSORS:
        large, small = _pt(path, scratch, stack)
    else:
        large, small = _npz(path, scratch, stack) if path.suffix == ".npz" else _npy(path, stack)
    given = {**small, **more}
    if len(large) != 1:
        remedy = "give scores (run, sample, class), or labels (run, sample), the predicted classes"
        if large and "y_true" not in given:
            remedy = "labels are predicted classes; true classes are y_true"
        held = "both scores and labels; give only one of them" if large else "no predictions"
        raise UserError(f"holds {held}", file=path, remedy=remedy)
    ((key, array),) = large.items()
    if "y_true" not in given:
        remedy = "give the true classes, (sample) or (repeat, sample), as y_true or with --truth"
        raise UserError("y_true is missing", file=path, remedy=remedy)
    if len(array.shape) not in ((2, 3) if key == "scores" else (2,)) or 0 in array.shape:
        wanted = (
            "(run, sample, class), or (run, sample) of logit gaps"
            if key == "scores"
            else ("(run, sample)")
        )
        raise UserError(f"has shape {array.shape}; {wanted} is needed", file=path, key=key)
    if key == "scores" and array.dtype.kind != "f":
        raise UserError(
            f"has dtype {array.dtype}; floats are needed",
            file=path,
            key=key,
            remedy="give predicted classes as labels; give scores as floats: scores.astype(float)",
        )
    n_runs, n_samples = array.shape[:2]
    is_by_point = len(array.shape) == 2 and np.shape(given["y_true"]) == (n_runs,) != (n_samples,)
    if key == "scores" and is_by_point:
        raise UserError(
            f"has shape {array.shape}, read as {n_runs:,} runs of {n_samples:,} points; "
            f"y_true has {n_runs:,}",
            file=path,
            key=key,
            remedy="for one run, (sample, class), give scores[None]",
        )
    runs = attributes({k: v for k, v in given.items() if k in ATTRIBUTES}, n_runs, path)
    class_names = _class_names(given, array, key, path)
    y_true = codes(np.asarray(given["y_true"]), class_names, "y_true", path)
    y_true = _test_sets(y_true, "y_true", runs, n_samples, path)
    index = np.asarray(given.get("test_index", np.arange(n_samples)))
    if key == "scores" and not probabilities and probability != "none":
        _require_no_probabilities(array, path)
    keep, _ = Keep().resolve(len(class_names))
    half = array.dtype == np.float16

    def read(positions: Positions) -> Predicted:
        values = array.rows(positions)
        if key == "labels":
            return Predicted(codes(values, class_names, key, path)[:, None], None)
        if probabilities:
            return predicted(values, partial(_no_probabilities, path, positions))
        if probability == "ovr" and values.shape[2:] == (2,):
            return _gaps_of_sigmoids(values)
        return Predicted(None, values)

    return PredictionFile(
        file=path,
        dataset=names.dataset or path.stem,
        classifier=names.classifier or "imported",
        class_names=class_names,
        epochs=(0,),
        keep=keep if key == "scores" else "none",
        dtype="float16" if half else "float32",
        # softmax recovers probabilities from their logarithms
        probability="softmax" if probabilities and probability == "ovr" else probability,
        y_true=y_true,
        test_index=_test_sets(index, "test_index", runs, n_samples, path),
        runs=runs,
        read=read,
        numbered="run" in given,
    )


def _require_no_probabilities(scores: OnDisk, path: Path) -> None:
    """Refuse scores that look like probabilities in every run; most logits do not in the first."""
    if not all(
        are_probabilities(scores.rows(np.array([run]))[0]) for run in range(scores.shape[0])
    ):
        return
    remedy = "--probabilities"
    if len(scores.shape) == 3:
        problem = "look like probabilities: they lie in 0 to 1 and sum to 1 over the classes"
    else:
        problem = "look like probabilities, not logit gaps: all lie in 0 to 1"
        remedy += (
            " if they are probabilities of class 1; logit gaps may also be given as scores "
            "(run, sample, class)"
        )
    raise UserError(problem, file=path, key="scores", remedy=remedy)


def _no_probabilities(path: Path, positions: Positions, run: int, point: int, why: str) -> NoReturn:
    raise UserError(
        f"test point {point}: {why}",
        file=path,
        key=f"scores of run {positions[run]}",
        remedy="without --probabilities, scores are logits or logit gaps",
    )


def _gaps_of_sigmoids(scores: NDArray[Any]) -> Predicted:
    """Return the gaps whose sigmoids are the normalised sigmoids of the two classes' scores."""
    exact = scores.astype(np.float64)
    logs = log_expit(np.where(np.isfinite(exact), exact, np.nan))
    label = exact[..., 1] >= exact[..., 0]
    return Predicted(
        label[:, None].astype(np.int64), (logs[..., 1] - logs[..., 0]).astype(np.float32)
    )


def _npy(path: Path, stack: ExitStack) -> _Entries:
    array = OnDisk.at(stack.enter_context(path.open("rb")), 0, path, path.stem)
    return {"scores" if array.dtype.kind == "f" else "labels": array}, {}


def _pt(path: Path, scratch: Path, stack: ExitStack) -> _Entries:
    large: dict[str, OnDisk] = {}
    small: dict[str, NDArray[Any]] = {}
    for key, array in read_tensors(path).items():
        name = _entry(key, large, path)
        if name in LARGE:
            file = stack.enter_context(tempfile.TemporaryFile(dir=scratch))  # noqa: SIM115
            np.save(file, np.ascontiguousarray(array), allow_pickle=False)
            file.flush()
            large[name] = OnDisk.at(file, 0, path, key)
        else:
            small[name] = array
    return large, small


def _entry(name: str, large: Mapping[str, OnDisk], path: Path) -> str:
    """Return the standard name of an entry."""
    name = ALSO.get(name, name)
    if name in large:
        raise UserError("holds both scores and logits; give only one of them", file=path)
    if name not in ENTRIES:
        raise UserError("unknown entry", file=path, key=name, remedy=nearest(name, ENTRIES))
    return name


def _npz(path: Path, scratch: Path, stack: ExitStack) -> _Entries:
    large: dict[str, OnDisk] = {}
    small: dict[str, NDArray[Any]] = {}
    archive = stack.enter_context(opened(path, "an NPZ file", _NPZ))
    for info in archive.infolist():
        name = _entry(info.filename.removesuffix(".npy"), large, path)
        with reading_zip(path, name):
            if name in LARGE:
                large[name] = _member(path, archive, info, scratch, stack)
            else:
                small[name] = _small(path, archive, info, name)
    return large, small


def _small(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, key: str) -> NDArray[Any]:
    """Read an entire entry; the allocated memory never exceeds its size."""
    with archive.open(info) as file:
        shape, fortran, dtype = _header(file, path, key)
        needed, available = math.prod(shape) * dtype.itemsize, info.file_size - file.tell()
        if needed != available or needed > _SMALL_BYTES:
            raise UserError(
                f"has {available:,} bytes; its shape {shape} needs {needed:,}", file=path, key=key
            )
        values = np.frombuffer(file.read(), dtype=dtype)
    return values.reshape(shape, order="F" if fortran else "C")


def _member(
    path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, scratch: Path, stack: ExitStack
) -> OnDisk:
    """Return an entry in the archive itself or, if it is compressed, in an unpacked copy.

    Either way it is read once to its end, where zipfile checks it.
    """
    if info.compress_type == zipfile.ZIP_STORED:
        file: IO[bytes] = stack.enter_context(path.open("rb"))
        with zipfile.ZipFile(file) as reopened, reopened.open(info.filename) as stored:
            start = file.tell()  # zipfile has read the entry's header, so its data begins here
            while stored.read(2**20):
                pass
    else:
        file, start = stack.enter_context(tempfile.TemporaryFile(dir=scratch)), 0  # noqa: SIM115
        with archive.open(info) as packed:
            shutil.copyfileobj(packed, file, 2**20)
        file.flush()
    return OnDisk.at(file, start, path, info.filename.removesuffix(".npy"), info.file_size)


def _class_names(given: Mapping[str, Any], array: OnDisk, key: str, path: Path) -> tuple[str, ...]:
    y_true = texts(np.asarray(given["y_true"]), "y_true", path)
    n_scores = (array.shape[2] if len(array.shape) == 3 else 2) if key == "scores" else None
    if "class_names" in given:
        given_names = texts(np.asarray(given["class_names"]), "class_names", path)
        if given_names.ndim != 1 or given_names.dtype.kind not in "Uiu":
            raise UserError("is not a list of names", file=path, key="class_names")
        names = tuple(str(name) for name in given_names.tolist())
    elif y_true.dtype.kind == "U":
        names = in_order(np.unique(y_true).tolist())
        if key == "scores" or array.dtype.kind not in "US":
            require_one_order(names, "y_true", path)
    else:
        largest = int(y_true.max(initial=0)) if y_true.dtype.kind in "iub" else 0
        if max(largest + 1, n_scores or 0) > MAX_CLASSES:
            message = f"goes up to {largest:,}, but there can be {MAX_CLASSES:,} classes at most"
            raise UserError(message, file=path, key="y_true")
        names = tuple(map(str, range(n_scores or max(largest + 1, 2))))
    if n_scores is not None and len(names) != n_scores:
        raise UserError(
            f"there are {len(names)} classes, but scores for {n_scores}",
            file=path,
            key="class_names",
        )
    if len(set(names)) != len(names) or len(names) < 2:
        raise UserError("at least two different classes are needed", file=path, key="class_names")
    require_apart(names, names, "class_names" if "class_names" in given else "y_true", path)
    return names


def _test_sets(
    values: NDArray[Any], key: str, runs: pl.DataFrame, n_samples: int, path: Path
) -> NDArray[Any]:
    """Return values of test points as (repeat, sample)."""
    repeats = int(runs["repeat"].to_numpy().max()) + 1
    if values.shape == (n_samples,):
        return np.broadcast_to(values, (repeats, n_samples))
    if values.shape != (repeats, n_samples):
        noun = "repeat" if repeats == 1 else "repeats"
        raise UserError(
            f"has shape {values.shape}; predictions of {n_samples:,} points in {repeats} {noun} "
            f"need ({n_samples},) or ({repeats}, {n_samples})",
            file=path,
            key=key,
        )
    return values
