"""What the status of a sweep tells of its files."""

from __future__ import annotations

import shutil
from pathlib import Path

from manyseed.orchestrator.sweep import Sweep


def test_a_damaged_file_of_any_submission_is_named(quick: Sweep, tmp_path: Path) -> None:
    shutil.copytree(quick.directory, tmp_path / "copy")
    sweep = Sweep(tmp_path / "copy")
    first = sweep.paths.submission(1)
    shutil.copytree(first, sweep.paths.submission(2))
    assert sweep.status()["problems"] == []
    (file,) = (first / "lives").glob("*/progress.json")
    file.write_bytes(b"")
    (told,) = sweep.status()["problems"]
    assert str(file) in told
