"""The ``zarr.json`` of arrays and groups: made, extended, compared with the plan, consolidated.

This module alone decides how arrays are stored: Zarr format 3, keys ``c.0.0``, shards for
predictions, a CRC-32C after every compressor. Scores hardly compress (1.1×), so they are not
compressed; labels do (2× for ten classes, 5–8× for two), fastest with lz4 after a bit shuffle.

Only planning creates and extends groups. A group's own ``zarr.json`` is placed last and holds the
number of rows, so an interrupted creation or extension has no effect; planning again completes it.
Consolidated metadata, which repeats every ``zarr.json`` below, is written by `compact` and portable
copies alone.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from manyseed.orchestrator.disk.placing import place, read_bytes, unavailable
from manyseed.orchestrator.errors import (
    DamagedFile,
    DamagedGroup,
    GroupMismatch,
    StoreUnavailable,
    UserError,
)
from manyseed.orchestrator.paths import METADATA
from manyseed.orchestrator.store import encoding
from manyseed.orchestrator.store.arrays import FLAGS, LATER_FLAGS, ArraySpec
from manyseed.orchestrator.store.chunkfile import Format, parse
from manyseed.orchestrator.store.groups import (
    REMEDY,
    Group,
    array_description,
    find_group,
    open_group,
)
from manyseed.orchestrator.store.schema import ATTRIBUTE, COORDINATE_ROWS, GroupSpec

if TYPE_CHECKING:  # importing zarr is slow, and most uses need none
    from zarr.abc.buffer import Buffer


def array_metadata(
    spec: GroupSpec,
    array: ArraySpec,
    rows: int,
    repeats: int,
    meanings: Sequence[str] | None = None,
) -> bytes:
    """Return the ``zarr.json`` of an array; `meanings` are the words for a coordinate's codes."""
    import zarr
    from zarr.codecs import BloscCodec, Crc32cCodec
    from zarr.storage import MemoryStore

    chunks, shards = spec.chunks(array), spec.shards(array)
    codecs: list[Any] = [Crc32cCodec()]
    if array.compressed:
        size = np.dtype(array.dtype).itemsize
        codecs.insert(0, BloscCodec(typesize=size, cname="lz4", clevel=5, shuffle="bitshuffle"))
    flags: Mapping[str, Any] = {}
    if meanings is not None:
        flags = {"flag_values": [*range(len(meanings))], "flag_meanings": " ".join(meanings)}
    written: dict[str, Buffer] = {}
    zarr.create_array(
        MemoryStore(written),
        shape=spec.shape(array, rows, repeats),
        dtype=array.dtype,
        chunks=chunks,
        shards=None if chunks == shards else shards,
        compressors=codecs,
        fill_value=array.fill,
        chunk_key_encoding={"name": "default", "separator": "."},
        dimension_names=array.dims,
        attributes={**array.attributes, **flags},
        zarr_format=3,
    )
    return written[METADATA].to_bytes()


def group_metadata(attributes: Mapping[str, Any]) -> bytes:
    """Return the ``zarr.json`` of a group."""
    import zarr
    from zarr.storage import MemoryStore

    written: dict[str, Buffer] = {}
    zarr.create_group(MemoryStore(written), attributes=dict(attributes), zarr_format=3)
    return written[METADATA].to_bytes()


def group_description(group: Group, history: str) -> bytes:
    """Return the ``zarr.json`` of a group of predictions."""
    spec = group.spec
    coordinates = " ".join(array.name for array in spec.arrays if array.role == "coordinate")
    attributes = {
        "title": f"predictions of {spec.named} on {spec.dataset}",
        "source": "manyseed",
        "history": history,
        "comment": "rows whose status is neither 1 nor 2 hold no predictions: mask them first",
        "coordinates": coordinates,
        ATTRIBUTE: {**spec.to_attributes(), "rows": group.rows, "repeats": group.repeats},
    }
    return group_metadata(attributes)


def history_with(verb: str, lines: list[str]) -> str:
    """Return a group's history with a further line: what happened now."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    version = importlib.metadata.version("manyseed")
    return "\n".join([*lines, f"{now} {verb} by manyseed {version}"])


Integers = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Flags:
    """A column of few distinct words, as positions in `meanings`."""

    codes: Integers
    meanings: tuple[str, ...]

    def __post_init__(self) -> None:
        for word in self.meanings:
            if not word or word.split() != [word]:
                raise ValueError(f"{word!r} cannot be a flag's meaning: it is empty or has blanks")
        if len(self.codes) and not 0 <= self.codes.min() <= self.codes.max() < len(self.meanings):
            raise ValueError(f"codes must lie in [0, {len(self.meanings)})")

    @classmethod
    def of(cls, words: Iterable[str]) -> Flags:
        """Encode words, numbered in order of appearance."""
        numbers: dict[str, int] = {}
        codes = [numbers.setdefault(word, len(numbers)) for word in words]
        return cls(np.array(codes, dtype=np.int16), tuple(numbers))

    def renumbered(self, meanings: list[str]) -> Integers:
        """Return codes for the list `meanings`, to which missing words are appended."""
        numbers = {word: number for number, word in enumerate(meanings)}
        for word in self.meanings:
            if numbers.setdefault(word, len(numbers)) == len(meanings):
                meanings.append(word)
        table = np.array([numbers[word] for word in self.meanings], dtype=np.int16)
        return table[self.codes] if len(self.codes) else self.codes


@dataclass(frozen=True, slots=True)
class GroupRows:
    """Coordinates of new rows of a group, in arrays of equal length."""

    cell: Integers  # row of the plan's table of cells
    repeat_index: Integers
    run_index: Integers  # which test set, and which run of the repeat
    train_fraction: NDArray[np.float64]  # share of training samples, or their number if above 1
    flags: Mapping[str, Flags]
    """Schemes, hparams and vary, one for each name in `arrays.FLAGS`, and those in
    `arrays.LATER_FLAGS` that the group has."""

    def __post_init__(self) -> None:
        if missing := set(FLAGS) ^ (set(self.flags) - set(LATER_FLAGS)):
            raise ValueError(f"flags must be exactly {', '.join(FLAGS)}; differs in {missing}")
        columns = [self.repeat_index, self.run_index, self.train_fraction]
        lengths = {len(column) for column in (*columns, *(f.codes for f in self.flags.values()))}
        if lengths != {len(self)}:
            raise ValueError(f"{len(self)} cells, but columns of length {sorted(lengths)}")
        if len(self) and min(self.cell.min(), self.repeat_index.min(), self.run_index.min()) < 0:
            raise ValueError("cells, repeats and runs are counted from 0")

    def __len__(self) -> int:
        return len(self.cell)


def create_group(store: Path, spec: GroupSpec, rows: GroupRows, repeats: int) -> Group:
    """Create a group with its first rows, or return the existing one if it has the same rows.

    `store`: folder of the store; created if necessary. `rows`: its runs, in order; the rest of the
    last shard becomes padding. `repeats`: number of test sets.
    """
    if (group := find_group(store, spec.path)) is not None:
        if group.spec != spec:
            raise GroupMismatch(f"{spec.path} exists with another layout: {group.spec!r}")
        return extend_group(group, rows, repeats, start=0)
    # overwrites what an interrupted creation left
    for parent in (store, (store / spec.path).parent):
        if not (parent / METADATA).exists():
            place(parent / METADATA, group_metadata({}))
    _write(Group(store, spec, 0, repeats), rows, history_with("created", []))
    return open_group(store, spec.path)


def extend_group(group: Group, rows: GroupRows, repeats: int, *, start: int) -> Group:
    """Append rows at a shard boundary, and repeats; do nothing if they were appended before.

    `group`: as opened. `rows`: the new runs. `repeats`: the new number of test sets. `start`:
    position of the first new row: `group.rows` before this extension.
    """
    if start < group.rows:
        _check_same(group, rows, start)
        if repeats <= group.repeats:
            return group
        rows, start = _no_rows(), group.rows
    if start != group.rows:
        raise GroupMismatch(
            f"{group.spec.path} has {group.rows} rows; rows cannot be appended at {start}"
        )
    if repeats < group.repeats:
        raise GroupMismatch(f"{group.spec.path} has {group.repeats} repeats, not {repeats}")
    history = _parsed(group.folder / METADATA)[0]["attributes"].get("history", "")
    drop_consolidated(group.store)
    _write(
        Group(group.store, group.spec, group.rows, repeats),
        rows,
        history_with("extended", str(history).splitlines()),
    )
    return open_group(group.store, group.spec.path)


def drop_consolidated(store: Path) -> None:
    """Remove consolidated metadata, which would hide appended rows."""
    for pattern in (METADATA, f"*/{METADATA}", f"*/*/{METADATA}"):
        for file in store.glob(pattern):
            document, _ = _parsed(file)
            if document.pop("consolidated_metadata", None) is not None:
                place(file, json.dumps(document, indent=2).encode())


def _write(group: Group, rows: GroupRows, history: str) -> None:
    spec, total = group.spec, group.rows + group.spec.padded(len(rows))
    if len(rows) and rows.repeat_index.max() >= group.repeats:
        raise GroupMismatch(f"a row of repeat {rows.repeat_index.max()} of {group.repeats}")
    for array in sorted(spec.arrays, key=lambda array: array.role != "coordinate"):
        values = meanings = None
        if array.role == "coordinate":
            values, meanings = _column(group, array, rows)
        metadata = array_metadata(spec, array, total, group.repeats, meanings)
        if values is not None:
            _place_coordinate(group, array, metadata, values)
        place(group.folder / array.name / METADATA, metadata)
    grown = Group(group.store, spec, total, group.repeats)
    place(group.folder / METADATA, group_description(grown, history))


def _column(
    group: Group, array: ArraySpec, rows: GroupRows
) -> tuple[NDArray[Any], Sequence[str] | None]:
    """Return the new values of a coordinate, padded, and the meanings of codes."""
    meanings: list[str] | None = None
    if array.name == "epoch":
        return np.array(group.spec.epochs, dtype=array.dtype), None
    if array.name == "trained_epoch":
        return np.arange(1, group.spec.epochs[-1] + 1, dtype=array.dtype), None
    for coordinate in group.spec.coordinates:
        if coordinate.name == array.name:
            return np.array(coordinate.values, dtype=array.dtype), None
    if array.name in group.spec.flags:
        meanings = []
        if group.rows:
            meanings = group.meanings(array)
        values = rows.flags[array.name].renumbered(meanings)
    else:
        values = getattr(rows, array.name)
    column = encoding.filled(group.spec, array, group.spec.padded(len(rows)))
    limits = np.iinfo(column.dtype) if column.dtype.kind == "i" else None
    if limits is not None and len(values) and values.max() > limits.max:
        raise ValueError(f"{array.name} {values.max()} exceeds {limits.max}")
    column[: len(rows)] = values
    return column, meanings


def _place_coordinate(
    group: Group, array: ArraySpec, metadata: bytes, values: NDArray[Any]
) -> None:
    start = group.rows if array.dims == ("run",) else 0
    first = start // COORDINATE_ROWS
    if start % COORDINATE_ROWS:
        before = encoding.read(group.folder / array.name, first * COORDINATE_ROWS, start)
        values = np.concatenate([before, values])
    for index in range(-(-len(values) // COORDINATE_ROWS)):
        part = values[index * COORDINATE_ROWS : (index + 1) * COORDINATE_ROWS]
        key, encoded = encoding.encode(metadata, first + index, part)
        place(group.folder / array.name / key, encoded)


def wrong_coordinates(group: Group, parts: Iterable[GroupRows], *, mend: bool) -> list[str]:
    """Compare the coordinates with the plan, and rewrite wrong or unreadable ones if `mend`.

    `parts`: the planned rows, one item per part of the plan. Returns names of the arrays that were
    wrong, sorted.
    """
    spec, planned = group.spec, list(parts)
    wrong = []
    for array in spec.arrays:
        if array.role != "coordinate":
            continue
        columns = planned if array.dims == ("run",) else [_no_rows()]
        values = np.concatenate([_column(group, array, rows)[0] for rows in columns])
        metadata, folder = group.metadata(array), group.folder / array.name
        for index in range(-(-len(values) // COORDINATE_ROWS)):
            start = index * COORDINATE_ROWS
            part = values[start : start + COORDINATE_ROWS]
            stored = np.empty_like(part)
            damaged = encoding.read_undamaged(folder, start, start + len(part), len(part), stored)
            same = np.array_equal(part, stored, equal_nan=part.dtype.kind == "f")
            if damaged.any() or not same or not group.file(array, index).exists():
                wrong.append(array.name)
                if mend:
                    key, encoded = encoding.encode(metadata, index, part)
                    place(folder / key, encoded)
    return sorted(set(wrong))


def _check_same(group: Group, rows: GroupRows, start: int) -> None:
    """Refuse rows that differ from those already stored at `start`."""
    span = group.spec.padded(len(rows))
    for array in group.spec.arrays:
        if array.role != "coordinate" or array.dims != ("run",):
            continue
        expected, _ = _column(Group(group.store, group.spec, group.rows, 0), array, rows)
        stored = encoding.read(group.folder / array.name, start, start + span)
        if not np.array_equal(expected, stored, equal_nan=array.dtype == "float64"):
            raise GroupMismatch(
                f"{group.spec.path} holds other rows from {start} on ({array.name} differs); "
                "existing rows cannot be changed: plan into a new sweep"
            )


def _no_rows() -> GroupRows:
    none = np.zeros(0, dtype=np.int64)
    return GroupRows(
        none, none, none, none.astype(np.float64), {name: Flags(none, ()) for name in FLAGS}
    )


_A_GROUP = {"zarr_format": 3, "node_type": "group"}


def wrong_folders(store: Path, specs: Iterable[GroupSpec], *, mend: bool) -> list[str]:
    """Return the wrong ``zarr.json`` files above the groups; rewrite them if `mend`."""
    wrong = []
    existing = [spec for spec in specs if (store / spec.path).exists()]
    above = {Path(spec.path).parent for spec in existing} | ({Path()} if existing else set())
    for folder in sorted(above):
        if not _describes_folder(store / folder):
            wrong.append((folder / METADATA).as_posix())
            if mend:
                place(store / folder / METADATA, group_metadata({}))
    return wrong


def wrong_descriptions(
    store: Path, spec: GroupSpec, parts: Sequence[GroupRows], repeats: int, *, mend: bool
) -> list[str]:
    """Compare the ``zarr.json`` of a group and its arrays with the plan; rewrite them if `mend`.

    Nothing may use the group meanwhile. Rewriting a file drops its consolidated metadata.

    `parts`: the planned rows, one item per part of the plan. `repeats`: number of planned test
    sets. Returns the files that were wrong, relative to the store; empty if the group does not
    exist yet.
    """
    wrong: list[str] = []
    arrays = [spec.path + "/" + array.name for array in spec.arrays]
    forms = {
        array.name: _form(store / path) for array, path in zip(spec.arrays, arrays, strict=True)
    }
    try:
        group = find_group(store, spec)
        if group is None:
            return []
        if not _describes_folder(group.folder):
            raise DamagedGroup(group.folder / METADATA, "cannot be opened by other readers", "")
    except DamagedGroup:
        wrong.append(f"{spec.path}/{METADATA}")
        planned = sum(spec.padded(len(rows)) for rows in parts)
        known = {
            dim: [form.rows for a in spec.arrays if a.dims[0] == dim and (form := forms[a.name])]
            for dim in ("run", "repeat")
        }
        # arrays grow before the group does
        rows = min([planned, *known["run"]])
        group = Group(store, spec, rows, min([repeats, *known["repeat"]]))
    meanings = {name: parts[0].flags[name].meanings for name in spec.flags} if parts else {}
    for array, path in zip(spec.arrays, arrays, strict=True):
        words = meanings.get(array.name)
        expected = array_metadata(spec, array, group.rows, group.repeats, words)
        if not _describes(store / path, expected):
            wrong.append(f"{path}/{METADATA}")
            if mend:
                place(store / path / METADATA, expected)
    if mend and f"{spec.path}/{METADATA}" in wrong:  # last: it implies that all others exist
        place(group.folder / METADATA, group_description(group, history_with("mended", [])))
    return wrong


def _form(folder: Path) -> Format | None:
    try:
        return parse(array_description(folder))
    except DamagedGroup:
        return None


def _describes(folder: Path, expected: bytes) -> bool:
    """Whether an array's ``zarr.json`` agrees with the expected one; the array may be longer."""
    form, wanted = _form(folder), parse(expected)
    if form is None or form.rows < wanted.rows:
        return False
    names = ("row", "dtype", "length", "chunk", "sharded", "blosc")
    if any(getattr(form, name) != getattr(wanted, name) for name in names):
        return False
    if not np.array_equal(form.fill, wanted.fill, equal_nan=True):
        return False
    content = (folder / METADATA).read_bytes()
    stored, planned = json.loads(content), json.loads(expected)
    if stored.get("zarr_format") != 3:
        return False
    if _without_sizes(stored) != _without_sizes(planned) and not _opens(stored, content):
        return False
    words, wanted_words = (
        str(document["attributes"].get("flag_meanings", "")).split()
        for document in (stored, planned)
    )
    return bool(stored["dimension_names"] == planned["dimension_names"]) and (
        words[: len(wanted_words)] == wanted_words[: len(words)]
    )


def _describes_folder(folder: Path) -> bool:
    try:
        content = read_bytes(folder / METADATA)
        document = json.loads(content)
    except (FileNotFoundError, DamagedFile, ValueError, RecursionError):
        return False
    except OSError as error:
        raise StoreUnavailable(f"cannot read {folder / METADATA}: {error.strerror}") from error
    if not isinstance(document, dict) or not document.items() >= _A_GROUP.items():
        return False
    return _without_sizes(document) == _A_GROUP or _opens(document, content)


def _without_sizes(document: dict[str, object]) -> dict[str, object]:
    """Return a description without the array's shape and attributes."""
    return {key: value for key, value in document.items() if key not in ("shape", "attributes")}


def _opens(document: object, content: bytes) -> bool:
    """Whether other readers, which need more than ours, can open it."""
    return is_node(document, content)


_KEY = "consolidated_metadata"


def consolidate(store: Path, groups: Sequence[Group]) -> None:
    """Write the consolidated metadata of each group and of the store, each file atomically."""
    if not groups:
        return
    for name, content in consolidated(store, groups):
        if _KEY in json.loads(content):
            with unavailable("read", store / name):
                same = (store / name).read_bytes() == content
            if not same:
                place(store / name, content)


def consolidated(store: Path, groups: Sequence[Group]) -> Iterator[tuple[str, bytes]]:
    """Yield the name and consolidated content of every ``zarr.json``."""
    import zarr
    from zarr.buffer import cpu
    from zarr.errors import ZarrUserWarning
    from zarr.storage import MemoryStore

    contents: dict[str, Buffer] = {}
    folders = {"", *(group.spec.path.split("/")[0] for group in groups)}
    for group in groups:
        folders |= {group.spec.path, *(f"{group.spec.path}/{a.name}" for a in group.spec.arrays)}
    names = [f"{folder}/{METADATA}".lstrip("/") for folder in sorted(folders)]
    for name in names:
        document = _document(store / name)
        document.pop(_KEY, None)
        contents[name] = cpu.Buffer.from_bytes(json.dumps(document, indent=2).encode())
    with warnings.catch_warnings():
        # Not part of the specification yet; readers that do not know it ignore it.
        warnings.simplefilter("ignore", ZarrUserWarning)
        for path in (*(group.spec.path for group in groups), None):
            zarr.consolidate_metadata(MemoryStore(contents), path=path)
    for name in names:
        yield name, contents[name].to_bytes()


def _document(file: Path) -> dict[str, Any]:
    document, content = _parsed(file)
    if is_node(document, content):
        return document
    raise DamagedGroup(file, _NO_PART, REMEDY)


_NO_PART = "does not describe a part of a store"


def _parsed(file: Path) -> tuple[dict[str, Any], bytes]:
    """Return the object in a ``zarr.json``, and its text."""
    try:
        with unavailable("read", file):
            content = read_bytes(file)
        document = json.loads(content)
        if isinstance(document, dict):
            return document, content
        reason = _NO_PART
    except DamagedFile as error:
        reason = error.reason
    except (ValueError, RecursionError):
        reason = "is not valid JSON"
    raise DamagedGroup(file, reason, REMEDY)


def is_node(document: Any, content: bytes) -> bool:
    """Whether zarr-python can open a node with this ``zarr.json``."""
    if not __debug__:
        remedy = "start Python without it, and without PYTHONOPTIMIZE"
        raise UserError(
            "zarr opens no store where assertions are left out (python -O)", remedy=remedy
        )
    import zarr
    from zarr.buffer import cpu
    from zarr.storage import MemoryStore

    store = MemoryStore({METADATA: cpu.Buffer.from_bytes(content)})
    try:
        array, group = zarr.open_array, zarr.open_group
        opening: dict[str, Callable[..., object]] = {"array": array, "group": group}
        opening[document["node_type"]](store, mode="r", zarr_format=3)
    except Exception:  # zarr-python raises errors of many types
        return False
    return True
