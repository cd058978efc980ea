"""Files of arrays: zarr-python's, bit for bit, and what a reader finds who mixes two versions."""

from __future__ import annotations

import json
import struct

import google_crc32c
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.abc.buffer import Buffer
from zarr.buffer import cpu
from zarr.storage import MemoryStore

from manyseed.orchestrator.errors import StoreError
from manyseed.orchestrator.store import encoding
from manyseed.orchestrator.store.metadata import array_metadata
from tests.orchestrator.store.world import open_files, spec

ABSENT = 2**64 - 1


def index_of(encoded: bytes, chunks: int) -> list[tuple[int, int]]:
    """Return (offset, length) of each inner chunk, from the index at the end of a shard."""
    table = encoded[-16 * chunks - 4 : -4]
    return [struct.unpack_from("<QQ", table, 16 * chunk) for chunk in range(chunks)]


def is_whole(chunk: bytes) -> bool:
    """Whether the checksum at a chunk's end fits."""
    return len(chunk) > 4 and google_crc32c.value(chunk[:-4]) == int.from_bytes(
        chunk[-4:], "little"
    )


@pytest.mark.parametrize("name", ["label", "margin"])
@pytest.mark.parametrize("samples", [3, 500])
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_an_old_index_never_finds_the_chunk_of_other_runs(name, samples, data):
    made = spec(2, samples=samples, shard=20, chunk=5)
    array = made.array(name)
    metadata = array_metadata(made, array, 20, 1)
    flags = st.lists(st.booleans(), min_size=20, max_size=20)
    before = np.array(data.draw(flags))
    after = before | np.array(data.draw(flags))
    rows = np.random.default_rng(data.draw(st.integers(0, 9))).integers(0, 2, (20, 1, samples))

    def version(finished):
        values = encoding.filled(made, array, 20)
        values[finished] = rows[finished].astype(array.dtype)
        return values, encoding.encode(metadata, 0, values)[1]

    (old_values, old), (new_values, new) = version(before), version(after)
    new_index = index_of(new, 4)
    for chunk, (offset, length) in enumerate(index_of(old, 4)):
        assert offset != ABSENT, "a chunk with planned runs is always there"
        found = new[offset : offset + length]
        if not is_whole(found):
            continue  # the reader raises, and reads again
        own = slice(5 * chunk, 5 * chunk + 5)
        if (offset, length) == new_index[chunk]:
            continue  # the chunk of these runs, as it is now
        # a whole chunk at a place that was not its own: only ever one that says the same
        other = new_index.index((offset, length))
        theirs = slice(5 * other, 5 * other + 5)
        np.testing.assert_array_equal(new_values[theirs], old_values[own])


def test_padding_at_the_end_takes_no_space():
    made = spec(2, samples=500, shard=20, chunk=5)
    array = made.array("margin")
    metadata = array_metadata(made, array, 20, 1)
    values = encoding.filled(made, array, 10)
    key, short = encoding.encode(metadata, 0, values)
    assert [offset == ABSENT for offset, _ in index_of(short, 4)] == [False, False, True, True]
    assert np.isnan(by_zarr({"zarr.json": metadata, key: short})[0][:]).all()


def by_zarr(files: dict[str, bytes]) -> tuple[zarr.Array, dict[str, Buffer]]:
    """Open an array of which some files are given; return also where it keeps them."""
    held: dict[str, Buffer] = {name: cpu.Buffer.from_bytes(of) for name, of in files.items()}
    with zarr.config.set({"array.write_empty_chunks": True}):
        return zarr.open_array(MemoryStore(held), mode="r+"), held


BINARY = spec(2, samples=70, shard=20, chunk=5)
MARGINS = spec(300, samples=9, shard=6, chunk=6, dtype="float16")
SCORES = spec(3, samples=9, shard=8, chunk=4, scores="all")
ARRAYS = [
    *((BINARY, name) for name in ("label", "margin", "crc", "status", "test_index")),
    *((MARGINS, name) for name in ("label", "margin", "confidence")),
    *((SCORES, name) for name in ("score", "y_true", "epoch", "cell")),
]


@pytest.mark.parametrize(("made", "name"), ARRAYS)
@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_files_are_those_of_zarr(tmp_path_factory, made, name, data):
    """Bit for bit, and read the same: whole and in parts, also where nothing was written."""
    array, rows, repeats = made.array(name), 2 * made.shard_length, 2
    metadata = array_metadata(made, array, rows, repeats)
    length = min(made.shards(array)[0], made.shape(array, rows, repeats)[0])
    n = data.draw(st.integers(1, length))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    values = random.integers(0, 9, (n, *made.part_shape(array))).astype(array.dtype)
    key, encoded = encoding.encode(metadata, 0, values)
    theirs, held = by_zarr({"zarr.json": metadata})
    theirs[:n] = values
    assert encoded == held[key].to_bytes()
    folder = tmp_path_factory.mktemp("array")
    (folder / "zarr.json").write_bytes(metadata)
    (folder / key).write_bytes(encoded)
    expected = by_zarr({"zarr.json": metadata, key: encoded})[0][:]
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(expected))] * 2)))
    found = encoding.read(folder, start, stop)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected[start:stop])
    chosen = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=9))
    np.testing.assert_array_equal(encoding.read_rows(folder, chosen), expected[chosen])
    index = (data.draw(st.slices(len(expected)) | st.integers(-len(expected), -1)),)
    index += (slice(None, None, 2),) * (expected.ndim - 1)
    np.testing.assert_array_equal(encoding.read_part(folder, index), expected[index])


@pytest.mark.parametrize("name", ["label", "margin", "crc"])
def test_no_damaged_byte_is_overlooked(tmp_path, name):
    made = spec(2, samples=6, shard=4, chunk=2)
    array = made.array(name)
    metadata = array_metadata(made, array, 4, 1)
    values = np.arange(4 * 12).reshape(4, 2, 6)[:, : 1 if array.dims == ("run",) else 2]
    values = values[:, 0, 0] if array.dims == ("run",) else values
    key, encoded = encoding.encode(metadata, 0, values.astype(array.dtype))
    (tmp_path / "zarr.json").write_bytes(metadata)
    for place in range(len(encoded)):
        damaged = bytearray(encoded)
        damaged[place] ^= 16
        for content in (bytes(damaged), encoded[:place]):
            (tmp_path / key).write_bytes(content)
            with pytest.raises(ValueError, match=r"checksum|too short"):
                encoding.read(tmp_path, 0, 4)


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_many_files_are_read_as_one(tmp_path_factory, data):
    """Also where some are absent; none stays open, whatever they hold."""
    made, files, length = spec(2, samples=70, shard=4, chunk=2), 9, 4
    array = made.array("margin")
    metadata = array_metadata(made, array, files * length, 1)
    folder = tmp_path_factory.mktemp("array")
    (folder / "zarr.json").write_bytes(metadata)
    expected = encoding.filled(made, array, files * length)
    there = data.draw(st.sets(st.integers(0, files - 1)))
    for number in there:
        part = slice(number * length, (number + 1) * length)
        expected[part] = np.random.default_rng(number).random(expected[part].shape)
        key, encoded = encoding.encode(metadata, number, expected[part])
        (folder / key).write_bytes(encoded)
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(expected))] * 2)))
    before = open_files()
    np.testing.assert_array_equal(encoding.read(folder, start, stop), expected[start:stop])
    read = range(start // length, -(-stop // length)) if start < stop else ()
    if wanted := sorted(there.intersection(read)):
        (folder / f"c.{data.draw(st.sampled_from(wanted))}.0.0").write_bytes(b"no shard")
        with pytest.raises(ValueError, match="too short"):
            encoding.read(folder, start, stop)
    assert open_files() == before


def test_arrays_that_are_stored_in_another_way_are_refused():
    made = spec(2)
    document = json.loads(array_metadata(made, made.array("crc"), 4, 1))
    document["codecs"].insert(1, {"name": "gzip", "configuration": {"level": 5}})
    with pytest.raises(StoreError, match="gzip"):
        encoding.encode(json.dumps(document).encode(), 0, np.zeros(4, np.uint32))
