"""Write-behind: the bytes are those that are written at once, and no error is overlooked."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyseed.orchestrator.store import chunkfile, encoding
from manyseed.orchestrator.store.chunkfile import ChunkWriter, parse, write_behind
from manyseed.orchestrator.store.metadata import array_metadata
from tests.orchestrator.store.world import open_files, spec

MADE = spec(2, samples=70, shard=20, chunk=5)
ARRAYS = [MADE.array(name) for name in ("label", "margin")]
METADATA = [array_metadata(MADE, array, 20, 1) for array in ARRAYS]
FORMS = [parse(metadata) for metadata in METADATA]


def rows_of(n: int) -> list[np.ndarray]:
    random = np.random.default_rng(n)
    return [
        random.integers(0, 2, (n, *MADE.part_shape(array))).astype(array.dtype) for array in ARRAYS
    ]


@settings(deadline=None, max_examples=40)
@given(sizes=st.lists(st.integers(1, 7), min_size=1, max_size=2), told=st.sampled_from([1, 2**22]))
def test_the_bytes_are_those_of_all_rows_at_once(tmp_path_factory, sizes, told):
    folder = tmp_path_factory.mktemp("files")
    paths, rows = [folder / array.name for array in ARRAYS], rows_of(sum(sizes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunkfile, "_BEHIND_BYTES", told)
        with write_behind(FORMS, paths, 7) as files:
            first = 0
            for size in sizes:
                parts = files.buffers(size)
                for part, whole in zip(parts, rows, strict=True):
                    part[...] = whole[first : first + size]
                files.write(parts)
                first += size
    for path, metadata, whole in zip(paths, METADATA, rows, strict=True):
        assert path.read_bytes() == encoding.encode(metadata, 0, whole)[1]


@pytest.mark.parametrize("after", [0, 1])
def test_what_the_disk_refuses_is_told(tmp_path, after, monkeypatch):
    """By the next call, or when the block is left."""

    def refuse(writer, values):
        raise OSError(28, "No space left on device")

    before = open_files()
    monkeypatch.setattr(ChunkWriter, "add", refuse)
    paths, written = [tmp_path / "label", tmp_path / "margin"], []

    def write():
        with write_behind(FORMS, paths, 5) as files:
            for part in range(1 + after):
                files.write(files.buffers(5))
                written.append(part)

    with pytest.raises(OSError, match="No space left"):
        write()
    assert written == [0]
    assert open_files() == before


def test_nothing_is_completed_or_left_open_after_an_error(tmp_path):
    before = open_files()
    paths = [tmp_path / "label", tmp_path / "margin"]

    def write():
        with write_behind(FORMS, paths, 5) as files:
            files.write([part * 0 for part in files.buffers(5)])
            raise KeyError

    with pytest.raises(KeyError):
        write()
    whole = encoding.encode(METADATA[1], 0, np.zeros((5, 2, 70), np.float32))[1]
    assert len(paths[1].read_bytes()) < len(whole)
    paths[0].unlink()
    with pytest.raises(FileExistsError), write_behind(FORMS, paths, 5):
        pass
    assert open_files() == before
