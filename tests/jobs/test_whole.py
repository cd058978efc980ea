"""Folders that appear whole; files are tested by the store, which is the strictest about them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from manyseed.jobs.whole import Taken, appearing, place


def test_a_folder_takes_its_name_at_the_end_and_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            synced.append((tmp_path / "made" / "data").exists())

    monkeypatch.setattr(os, "fsync", fsync)
    (tmp_path / "made").mkdir()  # an empty one gives way
    with appearing(tmp_path / "made") as building:
        (building / "data").write_text("whole")
        assert not (tmp_path / "made" / "data").exists()
    assert synced == [True]
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_folder_that_is_not_completed_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with appearing(tmp_path / "made") as building:
            place(building / "data", lambda file: file.write(b"half"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_is_there_already_stays(tmp_path: Path, kind: str) -> None:
    there = tmp_path / "made" / "data" if kind == "folder" else tmp_path / "made"
    there.parent.mkdir(exist_ok=True)
    there.write_text("first")
    with pytest.raises(Taken), appearing(tmp_path / "made") as building:
        (building / "data").write_text("second")
    assert there.read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
