"""What attempts leave is read where it is whole; what is damaged is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from manyseed.orchestrator.disk.records import write_json
from manyseed.orchestrator.errors import DamagedFile
from manyseed.orchestrator.tasks.attempts import (
    UNREADABLE,
    Failure,
    add_failures,
    read_attempts,
    read_failures,
)

FAILURE = (
    b'{"group":0,"row":4,"cell":1,"repeat":0,"run":2,"error":"ValueError: x","traceback":"T"}\n'
)


def _attempt(submission: Path, name: str, **values: object) -> Path:
    folder = submission / "lives" / name
    folder.mkdir(parents=True)
    told = {"state": "running", "process": "a b 1 2", "done": {"0": 3}, "failed": {}}
    write_json(folder / "progress.json", told | {"started": 1.0} | values)
    return folder


def test_attempts_come_by_age_with_what_earlier_versions_did_not_tell(tmp_path: Path) -> None:
    _attempt(tmp_path, "0000-b", started=2.0, later="x")
    _attempt(tmp_path, "0000-a", state="finished")
    _attempt(tmp_path, "0001-a")
    attempts = read_attempts(tmp_path, 0, plan="")
    assert [(attempt.folder.name, attempt.state) for attempt in attempts] == [
        ("0000-a", "finished"),
        ("0000-b", "running"),
    ]
    assert attempts[0].done == {"0": 3}
    assert (attempts[0].node, attempts[0].set_aside) == ("", 0)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"state":"running"}', None])
def test_an_attempt_whose_file_is_damaged_tells_nothing_but_that(
    tmp_path: Path, content: bytes | None
) -> None:
    _attempt(tmp_path, "0000-a")
    file = _attempt(tmp_path, "0000-b") / "progress.json"
    file.unlink()
    if content is None:
        os.mkfifo(file)
    else:
        file.write_bytes(content)
    (lost,) = [
        attempt for attempt in read_attempts(tmp_path, plan="") if attempt.folder.name == "0000-b"
    ]
    assert lost.state == UNREADABLE
    assert str(file) in lost.reason
    assert len(read_attempts(tmp_path, plan="")) == 2


def test_failures_are_read_up_to_a_torn_line_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "failures.jsonl"
    assert read_failures(tmp_path, "") == []
    file.write_bytes(FAILURE * 2 + FAILURE[:20])
    assert [(f.row, f.run, f.file) for f in read_failures(tmp_path, "")] == [(4, 2, file)] * 2
    for line in (b"\n", b"garbage\n", FAILURE.replace(b"4", b"-4"), b'{"group":0}\n'):
        file.write_bytes(FAILURE + line + FAILURE)
        with pytest.raises(DamagedFile, match=f"{file}: line 2(.|\n)*count as missing"):
            read_failures(tmp_path, "")


def test_what_attempts_of_another_plan_report_does_not_count(tmp_path: Path) -> None:
    own = _attempt(tmp_path, "0000-a", plan="5e0f")
    file = _attempt(tmp_path, "0000-b", plan="c1a0", started=2.0) / "progress.json"
    first, second = read_attempts(tmp_path, plan="5e0f")
    assert (first.state, second.state) == ("running", UNREADABLE)
    assert f"{file}: was written for another plan" in second.reason
    assert [one.state for one in read_attempts(tmp_path, plan="")] == ["running"] * 2
    add_failures(own, [Failure(0, 4, 1, 0, 2, "ValueError: x", "T")], "5e0f")
    assert [failure.row for failure in read_failures(own, "5e0f")] == [4]
    with pytest.raises(DamagedFile, match=r"failures\.jsonl: .*another sweep's(.|\n)*remove it"):
        read_failures(own, "c1a0")
