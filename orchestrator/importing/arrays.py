"""Readers of arrays: NPZ, NPY and PyTorch files, memory; scores (run, sample, class) or labels.

Arrays may have other axes, or lack the runs, where the true classes tell which axis is samples.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, NoReturn

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.counts import some
from manyseed.jobs.datasets.frame import is_masked, missing, to_numpy
from manyseed.jobs.run import Probability
from manyseed.orchestrator.errors import Unread, UserError, nearest
from manyseed.orchestrator.importing.archive import opened, read_tensors, reading_zip
from manyseed.orchestrator.importing.classes import codes, is_one_hot, names_of_classes, texts
from manyseed.orchestrator.importing.labels import from_zero
from manyseed.orchestrator.importing.mapping import RUN, meant_entries, numbered_by
from manyseed.orchestrator.importing.orders import by_run, require_axes
from manyseed.orchestrator.importing.predictions import (
    ATTRIBUTES,
    Entries,
    Names,
    Positions,
    unreadable,
)
from manyseed.orchestrator.importing.saving import several_models, without_objects
from manyseed.orchestrator.importing.scores import (
    Predicted,
    gaps_of_sigmoids,
    not_finite,
    ordered,
    predicted,
    remedy_for,
    require_floats,
    require_logits,
    seem_shares,
)
from manyseed.orchestrator.plans.ids import positions_of
from manyseed.orchestrator.store.schema import ScoreType

TENSORS = (".pt", ".pth")

Keys = Mapping[str, str]
"""The names in a file, by those of `ENTRIES`."""
NOTHING: Keys = {}
LARGE = ("scores", "labels")
ALSO = {"logits": "scores"}  # alternative names of entries
ENTRIES = (*LARGE, "y_true", "test_index", "class_names", *ATTRIBUTES)
_PREDICTED = re.compile(r"y_?(pred(ict(ed|ions?)?)?s?|hat)")
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
    fortran: bool = False

    @classmethod
    def at(
        cls, file: IO[bytes], start: int, path: Path, key: str, size: int | None = None
    ) -> OnDisk:
        """Read the header at `start`, which precedes the array.

        `path` and `key`: for errors. `size`: size of header and array in bytes; by default up to
        the end of the file.
        """
        end = os.fstat(file.fileno()).st_size
        end = end if size is None else min(end, start + size)
        file.seek(start)
        shape, fortran, dtype = _header(file, path, key)
        start = file.tell()
        available = end - start
        if available < (needed := math.prod(shape) * dtype.itemsize):
            problem = f"is truncated: it needs {needed:,} bytes and has {available:,}"
            raise UserError(problem, file=path, key=key, remedy="copy it again")
        return cls(file, start, shape, dtype, fortran and len(shape) > 1)

    def __getitem__(self, positions: Positions) -> NDArray[Any]:
        """Read the rows at these positions, in their order."""
        if self.fortran:
            return self._across(positions)
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

    def _across(self, positions: Positions) -> NDArray[Any]:
        """Read rows of an array in Fortran order, of which each column lies together."""
        columns = math.prod(self.shape[1:])
        found = np.empty((columns, len(positions)), dtype=self.dtype)
        if len(positions) and columns:
            first, last = int(np.min(positions)), int(np.max(positions))
            for column in range(columns):
                place = column * self.shape[0] + first
                self.file.seek(self.start + place * self.dtype.itemsize)
                values = np.fromfile(self.file, dtype=self.dtype, count=last - first + 1)
                found[column] = values[np.asarray(positions) - first]
        rows = found.T.reshape(len(positions), *self.shape[1:], order="F")
        return np.ascontiguousarray(rows)


@dataclass(frozen=True, slots=True)
class InMemory:
    """Arrays by the name of their entry: those that are read in parts, and those in memory.

    `theirs`: what a file itself calls the entries, by the same names, unless the user says so;
    `called`: also if the user does.
    `unread`: entries that are none of those that a user names.
    """

    file: Path
    large: dict[str, OnDisk | NDArray[Any]] = field(default_factory=dict)
    small: dict[str, Any] = field(default_factory=dict)
    origin: str | None = None
    theirs: dict[str, str] = field(default_factory=dict)
    called: dict[str, str] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)

    def entries(
        self,
        found: Sequence[str],
        keys: Keys = NOTHING,
        kinds: Callable[[], Mapping[str, str]] = dict,
    ) -> dict[str, str]:
        """Return the standard name of each entry to read, by the name that it has here.

        `found` are all names that the file holds; `keys` its names of entries that have others than
        `ENTRIES`: further ones are then not read. `kinds` returns those of their dtypes, in a file.
        """
        entries: dict[str, str] = {}
        theirs: dict[str, str] = {}
        for own, name in keys.items():
            named = [each for each, _ in numbered_by(name, found)] if own in LARGE else []
            theirs |= dict.fromkeys(named or [name], own)
        for name in theirs:
            if name not in found:
                raise UserError("has no such entry", file=self.file, key=name, remedy=_has(found))
        for name in found:
            own = theirs.get(name, ALSO.get(name, name))
            if own not in ENTRIES or (own in keys and name not in theirs):
                if keys:
                    self.unread.append(name)
                    continue
                remedy = nearest(name, ENTRIES)
                if _PREDICTED.fullmatch(name.lower()):  # it reads most like y_true
                    remedy = f'did you mean "labels"? Valid: {", ".join(ENTRIES)}'
                if self.origin is not None:  # in memory
                    raise UserError("unknown entry", file=self.file, key=name, remedy=remedy)
                as_here = {ALSO.get(one, one): one for one in found}
                predicted = {of: one for of, one in as_here.items() if of in LARGE}
                raise Unread(
                    "unknown entry",
                    file=self.file,
                    key=name,
                    options={"key": meant_entries(kinds()) or predicted},
                    before=f"{remedy}\n  it holds {', '.join(found)}; say which is which: ",
                )
            if own in LARGE and own in entries.values() and RUN not in keys.get(own, ""):
                twice = "holds both scores and logits; give only one of them"
                raise UserError(twice, file=self.file)
            entries[name] = own
            self.called[own] = name
            if own not in keys and self.origin is None:
                self.theirs[own] = name
        return entries

    def of_runs(self, entries: Mapping[str, str], keys: Keys) -> Iterator[tuple[str, list[str]]]:
        """Yield what entries of a run each are, and those, in the order of their numbers.

        Unless there is an entry `run`, the numbers are kept as such.
        """
        for own, form in keys.items():
            if own in LARGE and (runs := numbered_by(form, [*entries])):
                self.small["run"] = np.array([number for _, number in runs])
                yield own, [name for name, _ in runs]


def _stacked(
    path: Path, runs: Iterable[tuple[str, NDArray[Any]]], scratch: Path, stack: ExitStack
) -> OnDisk:
    """Copy entries of one run each, and of one shape, into a temporary file; they are read once."""
    file = stack.enter_context(tempfile.TemporaryFile(dir=scratch))  # noqa: SIM115
    forms: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
    for name, values in runs:
        first, form = next(iter(forms.items()), (name, (values.shape, values.dtype)))
        if form != (values.shape, values.dtype):
            what = f"is {values.shape} of {values.dtype}, but {first} is {form[0]} of {form[1]}"
            raise UserError(what, file=path, key=name, remedy="save each run in one form")
        forms[name] = form
        file.write(np.ascontiguousarray(values).tobytes())
    file.flush()
    shape, dtype = next(iter(forms.values()))
    return OnDisk(file, 0, (len(forms), *shape), dtype)


def _has(names: Iterable[str]) -> str:
    return f"it holds {', '.join(names)}"


def _header(file: IO[bytes], path: Path, key: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read an untrusted NumPy header: shape, whether in Fortran order, and dtype."""
    try:
        version = np.lib.format.read_magic(file)
        shape, fortran, dtype = _HEADERS[version](file)
    except (
        *(ValueError, KeyError, TypeError, RecursionError, MemoryError),
        *(SyntaxError, TokenError),  # of the header, which is an expression
    ) as error:
        raise unreadable(path, "a NumPy array", error, key) from error
    if dtype.hasobject:
        what = "holds Python objects, which are not read"
        raise UserError(what, file=path, key=key, remedy=without_objects(path, key, shape))
    if min(shape, default=0) < 0 or dtype.itemsize == 0:
        raise UserError(f"has the invalid shape {shape} or dtype {dtype}", file=path, key=key)
    return shape, fortran, dtype


def npz(path: Path, scratch: Path, stack: ExitStack, keys: Keys) -> InMemory:
    """Open an NPZ file; compressed scores and labels are unpacked into temporary files."""
    held = InMemory(path)
    archive = stack.enter_context(opened(path, "an NPZ file", _NPZ))
    found = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}

    def kinds() -> Mapping[str, str]:
        return {key: _kind(path, archive, info, key) for key, info in found.items()}

    try:
        entries = held.entries([*found], keys, kinds)
    except Unread as error:
        needed = {*error.options["key"].values(), *LARGE, *ALSO, "y_true"} & {*found}
        for key in (key for key in found if key in needed):  # else what is proposed fails
            with reading_zip(path, key), archive.open(found[key]) as file:
                _header(file, path, key)
        raise
    for own, runs in held.of_runs(entries, keys):
        with reading_zip(path, own):
            each = ((key, _small(path, archive, found[key], key)) for key in runs)
            held.large[own] = _stacked(path, each, scratch, stack)
    for key, name in entries.items():
        info = found[key]
        with reading_zip(path, name):
            if name in held.large:
                continue
            if name in LARGE:
                held.large[name] = _member(path, archive, info, scratch, stack)
            else:
                held.small[name] = _small(path, archive, info, name)
    return held


def _kind(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, key: str) -> str:
    """Return the kind of an entry's dtype; none if it cannot be read."""
    try:
        with archive.open(info) as file:
            return _header(file, path, key)[2].kind
    except (UserError, OSError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error):
        return ""


def npy(path: Path, _: Path, stack: ExitStack, __: Keys) -> InMemory:
    """Open an NPY file: floats are scores, anything else labels."""
    array = OnDisk.at(stack.enter_context(path.open("rb")), 0, path, path.stem)
    return InMemory(path, {"scores" if array.dtype.kind == "f" else "labels": array})


def tensors(path: Path, scratch: Path, stack: ExitStack, keys: Keys) -> InMemory:
    """Open a file of tensors; scores and labels are copied into temporary files."""
    held = InMemory(path)
    found = read_tensors(path)

    def kinds() -> Mapping[str, str]:
        return {key: array.dtype.kind for key, array in found.items()}

    entries = held.entries([*found], keys, kinds)
    for own, runs in held.of_runs(entries, keys):
        each = ((key, found[key]) for key in runs)
        held.large[own] = _stacked(path, each, scratch, stack)
    for key, name in entries.items():
        array = found[key]
        if name in held.large:
            continue
        if name in LARGE:
            file = stack.enter_context(tempfile.TemporaryFile(dir=scratch))  # noqa: SIM115
            np.save(file, np.ascontiguousarray(array), allow_pickle=False)
            file.flush()
            held.large[name] = OnDisk.at(file, 0, path, key)
        else:
            held.small[name] = array
    return held


def in_memory(name: str, arrays: Mapping[str, Any]) -> InMemory:
    """Return entries in memory, by the name of their mapping for messages."""
    held = InMemory(Path(name), origin="imported.npz")
    found = {str(key): given for key, given in arrays.items()}
    for key, entry in held.entries([*found]).items():
        (held.large if entry in LARGE else held.small)[entry] = _plain(name, key, found[key])
    return held


READERS: Mapping[str, Callable[[Path, Path, ExitStack, Keys], InMemory]] = {
    ".npz": npz,
    ".npy": npy,
    **dict.fromkeys(TENSORS, tensors),
}
"""By suffix: each takes a file, a folder for temporary files, what keeps files open, and keys."""


def opened_as_held(given: Path | InMemory, scratch: Path, stack: ExitStack, keys: Keys) -> InMemory:
    """Return the arrays of a file, as `READERS` do, or those given."""
    if isinstance(given, InMemory):
        return given
    return READERS[given.suffix](given, scratch, stack, keys)


def entries_of(
    held: InMemory,
    more: Mapping[str, Any],
    names: Names,
    probability: Probability,
    probabilities: bool,
    classes: Sequence[str] = (),
    *,
    is_from_one: bool = False,
) -> Entries:
    """Return the entries of a file of arrays, or of arrays in memory.

    `more`: entries from other files: y_true and attributes of runs. `probability` and
    `probabilities`: how scores become probabilities; whether they already are. `classes`: the order
    in which to return the file's classes, if these are its names. `is_from_one`: whether labels
    are numbered from 1.
    """
    path, large, given = held.file, held.large, {**held.small, **more}
    if "y_true" in held.small and "y_true" in more:
        own, other = (np.asarray(each["y_true"]) for each in (held.small, more))
        is_alike = own.dtype.kind == other.dtype.kind and own.shape == other.shape
        if is_alike and (n := np.count_nonzero(own != other)):
            what = f"differs in {n:,} points from the true classes of --truth, or of the folder"
            raise UserError(what, file=path, key="y_true", remedy="leave out what is wrong")
    for of in {"class_names", "test_index"} & {*held.small} & {*more}:
        mine, theirs = (
            texts(np.asarray(each[of]), of, path).astype(str).ravel().tolist()
            for each in (held.small, more)
        )
        if mine != theirs:
            what = f"is {some(mine, 5)}, but --classes or --truth has {some(theirs, 5)}"
            raise UserError(what, file=path, key=of, remedy="leave out what is wrong")
    if len(large) != 1:
        remedy = "give scores (run, sample, class), or labels (run, sample), the predicted classes"
        if large and "y_true" not in given:
            remedy = "labels are predicted classes; true classes are y_true"
        found = "both scores and labels; give only one of them" if large else "no predictions"
        if large and "y_true" not in given and held.origin is None:
            options = {"key": {"y_true": "labels"}}
            before = f"{remedy}: "
            raise Unread(f"holds {found}", file=path, key=None, options=options, before=before)
        raise UserError(f"holds {found}", file=path, remedy=remedy)
    ((key, array),) = large.items()
    if "y_true" not in given:
        remedy = "give the true classes, (sample) or (repeat, sample), as y_true or with --truth"
        if held.origin is not None:
            raise UserError("y_true is missing", file=path, remedy=remedy)
        seem = {} if probabilities or not seem_shares(array) else {"probabilities": True}
        raise Unread(
            "y_true is missing",
            file=path,
            key=None,
            options={"truth": "FILE", **seem},
            before=f"{remedy}: ",
        )
    y_true = np.asarray(given["y_true"])
    if y_true.shape[1:] == (1,) and len(y_true) in array.shape and "repeat" not in given:
        given["y_true"] = y_true[:, 0]  # as Keras has them
    elif y_true.ndim == 2 and len(y_true) in array.shape and is_one_hot(y_true):
        raise UserError(
            f"has shape {y_true.shape}, a row of 0 and 1 for each sample",
            file=path,
            key="y_true",
            remedy="give the true class of each sample: y_true.argmax(axis=1)",
        )
    array = by_run(array, given, key, path)
    if len(array.shape) not in ((2, 3) if key == "scores" else (2,)) or 0 in array.shape:
        wanted = (
            "(run, sample, class), or (run, sample) of logit gaps"
            if key == "scores"
            else ("(run, sample)")
        )
        of_models = len(array.shape) == (4 if key == "scores" else 3)
        n = np.shape(given["y_true"])[-1:]
        has = f", but y_true has {n[0]:,} points" if n and n[0] not in array.shape else ""
        what = f"has shape {array.shape}{has}; {wanted} is needed"
        if of_models and 0 not in array.shape:
            raise several_models(what, held.called, key, path, array.shape[0])
        raise UserError(what, file=path, key=key)
    if key == "scores":
        require_floats(array, held.theirs.get(key), path)
    n_runs, n_samples = array.shape[:2]
    one = {"is_one": is_from_one, "is_first": not classes}
    array, given["y_true"], first = from_zero(array, given, key, path, **one)
    if key == "scores" and not probabilities and probability != "none":
        require_logits(array, path)
    class_names = names_of_classes(given, array, key, path, first)
    if not (key == "labels" and array.dtype.kind in "US"):
        require_axes(array, given, key, class_names, path)
    y_true, order = given["y_true"], np.arange(0)
    if class_names != tuple(classes) and {*class_names} == {*classes}:
        order = np.array([class_names.index(name) for name in classes])
        y_true = np.array(class_names)[codes(np.asarray(y_true), class_names, "y_true", path)]

    def read(positions: Positions) -> Predicted:
        values = array[positions]
        if key == "labels":
            label = codes(values, class_names, key, path)
            return Predicted((np.argsort(order)[label] if order.size else label)[:, None], None)
        if order.size:
            values = ordered(values, order, probabilities)
        if probabilities:
            return predicted(values, partial(_no_probabilities, path, positions, values))
        if probability == "ovr" and values.shape[2:] == (2,):
            return gaps_of_sigmoids(values)
        return Predicted(None, values)

    index, ids = given.get("test_index"), None
    if index is not None and (index := np.asarray(index)).dtype.kind in "US":
        named = np.atleast_2d(texts(index, "test_index", path))
        places, ids = positions_of([pl.Series(each) for each in named], path)
        index = places.reshape(index.shape)
    score_type: ScoreType = "float16" if array.dtype == np.float16 else "float32"
    return Entries(
        file=path,
        names=names,
        class_names=tuple(classes) if order.size else class_names,
        n_runs=n_runs,
        n_samples=n_samples,
        y_true=y_true,
        read=read,
        attributes={name: given[name] for name in ATTRIBUTES if name in given},
        test_index=index,
        ids=ids,
        score_type=score_type if key == "scores" else None,
        are_probabilities=probabilities,
        origin=held.origin,
        are_classes_seen=key == "labels" and "class_names" not in given,
    )


def _no_probabilities(
    path: Path, positions: Positions, values: NDArray[Any], run: int, point: int, why: str
) -> NoReturn:
    if not np.isfinite(values[run]).all():
        raise not_finite(values[run], path, int(positions[run]))
    raise UserError(
        f"test point {point}: {why}",
        file=path,
        key=f"scores of run {positions[run]}",
        remedy=remedy_for(values[run]),
    )


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


def _plain(of: str, key: str, given: Any) -> Any:
    """Return a NumPy array, whatever library `given` comes from."""
    array = np.atleast_1d(to_numpy(given))
    of_numbers = array.dtype.kind != "O" and (key == "fit_seconds" or not is_masked(given))
    if not of_numbers and (count := missing(array)):
        raise UserError(
            f"{count:,} of {array.size:,} values are missing",
            file=Path(of),
            key=key,
            remedy="leave these out",
        )
    if array.dtype.kind == "O":
        raise UserError("is not an array of numbers or text", file=Path(of), key=key)
    return array


def allow_open(files: int) -> None:
    """Raise the soft limit on open files, which many systems set far below the hard limit."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = max(soft, 256 + files)
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
