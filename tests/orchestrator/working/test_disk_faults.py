"""A full disk that nodes share is said of the disk; another error is the node's."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from manyseed.jobs.run import NotFetched, PreparedElsewhere
from manyseed.orchestrator.disk.placing import unavailable
from manyseed.orchestrator.errors import StoreUnavailable
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.working import queue


def full(file: Path | None = None, code: int = errno.ENOSPC) -> OSError:
    return OSError(code, "No space left on device", *([] if file is None else [str(file)]))


def of(error: BaseException, folder: Path) -> queue.Fault:
    return queue.fault(error, "OSError: no space", "Traceback", SweepPaths(folder))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_shared_disk_is_said_of_the_disk(tmp_path: Path, code: int) -> None:
    found = of(full(tmp_path / "store" / "c", code), tmp_path)
    assert found.is_of_task, "no node is to be avoided"
    assert f"the disk of {tmp_path} is full" in found.reason
    assert found.details == "", "its reason says all"
    another = queue.fault(full(tmp_path / "b", code), "OSError: of b", "", SweepPaths(tmp_path))
    assert another.reason == found.reason, "told once for all tasks"


def test_so_is_one_that_the_store_met(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable) as raised, unavailable("write", tmp_path / "label"):
        raise full()
    assert of(raised.value, tmp_path).is_of_task


def test_without_a_file_the_disk_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not of(full(), tmp_path).is_of_task
    monkeypatch.setattr(queue, "_free_bytes", lambda _: 0.0)
    assert of(full(), tmp_path).is_of_task


def test_a_folder_of_data_that_jobs_do_not_see_is_the_profiles(tmp_path: Path) -> None:
    error = PreparedElsewhere("the data was prepared in /a, but the job looks in /b")
    assert of(error, tmp_path).is_of_task
    assert not of(NotFetched("file is not in /a"), tmp_path).is_of_task


def test_other_errors_and_other_disks_are_the_nodes(tmp_path: Path) -> None:
    for error in (
        full(Path("/elsewhere/x")),
        PermissionError(errno.EACCES, "denied", str(tmp_path / "x")),
        MemoryError(),
    ):
        assert of(error, tmp_path) == queue.Fault("OSError: no space", "Traceback")
