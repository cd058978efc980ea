"""What a reader finds who has the index of one version of a shard and the bytes of the next."""

from __future__ import annotations

import struct

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.store import encoding
from tests.orchestrator.store.world import spec

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
    metadata = encoding.array_metadata(made, array, 20, 1, {})
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


def test_padding_at_the_end_takes_no_space(tmp_path):
    made = spec(2, samples=500, shard=20, chunk=5)
    array = made.array("margin")
    metadata = encoding.array_metadata(made, array, 20, 1, {})
    values = encoding.filled(made, array, 10)
    short = encoding.encode(metadata, 0, values)[1]
    assert [offset == ABSENT for offset, _ in index_of(short, 4)] == [False, False, True, True]
    assert np.isnan(encoding.decode(metadata, 0, short)).all()
