"""Parquet files are read at one door: what is not as it was written is one error."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from manyseed.orchestrator.disk.parquet import read_parquet, scan_parquet, write_parquet
from manyseed.orchestrator.errors import DamagedFile, StoreUnavailable

FRAME = pl.DataFrame(
    {"a": [1, 2, 3], "b": ["x", "y", None]}, schema={"a": pl.UInt32, "b": pl.String}
)


@pytest.mark.parametrize("frame", [FRAME, FRAME.lazy()], ids=["whole", "lazy"])
def test_a_table_is_read_as_it_was_written_whatever_characters_are_in_its_path(
    tmp_path: Path, frame: pl.DataFrame | pl.LazyFrame
) -> None:
    for name in ("a*b", "aXb", "[c]", "d?"):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "table.parquet"
        write_parquet(path, frame, {"about": name})
        assert_frame_equal(read_parquet(path, FRAME.schema), FRAME)
        assert_frame_equal(read_parquet(path, columns=["b"]), FRAME.select("b"))
        assert_frame_equal(scan_parquet(path).filter(pl.col("a") > 1).collect(), FRAME[1:])
        assert pl.read_parquet_metadata(path)["about"] == name


def test_a_table_without_a_checksum_as_earlier_versions_wrote_is_read(tmp_path: Path) -> None:
    FRAME.write_parquet(tmp_path / "table.parquet")
    assert_frame_equal(read_parquet(tmp_path / "table.parquet", FRAME.schema), FRAME)


def test_no_byte_of_a_table_changes_unseen(tmp_path: Path) -> None:
    """Those of the checksum's own key and value aside: nothing else changes with them."""
    path = tmp_path / "table.parquet"
    write_parquet(path, FRAME)
    content = path.read_bytes()
    seen = 0
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        try:
            assert_frame_equal(read_parquet(path, FRAME.schema), FRAME)
        except DamagedFile:
            seen += 1
    assert seen > len(content) - 30


def test_what_is_no_such_table_is_damage_and_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    write_parquet(path, FRAME)
    whole = path.read_bytes()
    for content in (b"", b"PAR1", b"garbage" * 10, whole[: len(whole) // 2], whole + b"x"):
        path.write_bytes(content)
        with pytest.raises(DamagedFile, match=str(path)):
            read_parquet(path)
    FRAME.write_parquet(path)  # without a checksum
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + b"?" * (len(content) // 2 - 8) + content[-8:])
    with pytest.raises(DamagedFile) as error:
        read_parquet(path)
    assert error.value.reason == "cannot be read: it is damaged, or is not a Parquet file"
    path.write_bytes(whole)
    for schema in ({"c": pl.Int8()}, {"a": pl.Int8()}):
        with pytest.raises(DamagedFile, match=f"{path}.*column"):
            read_parquet(path, schema)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read_parquet(path)
    os.mkfifo(path)
    with pytest.raises(DamagedFile, match="not a plain file"):
        read_parquet(path)


def test_a_table_that_finds_no_room_is_one_error(tmp_path: Path) -> None:
    values = np.random.default_rng(1).standard_normal(100_000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, before[1]))
    try:
        with pytest.raises(StoreUnavailable, match="make room"):
            write_parquet(tmp_path / "file", pl.LazyFrame({"value": values}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
