"""What users request of tasks reaches them as it was meant, or is named."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from manyseed.orchestrator.errors import DamagedFile
from manyseed.orchestrator.submissions import stopping
from manyseed.orchestrator.submissions.submission import Submission
from manyseed.orchestrator.tasks.intent import skipped_cells


class OfCells:
    """A submission as `cancel_cells` sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def skipped_cells(self) -> list[int]:
        return skipped_cells(self.folder)


@pytest.fixture
def submission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Submission:
    monkeypatch.setattr(
        stopping, "_alive", lambda submissions: ([(one, []) for one in submissions], [])
    )
    return cast(Submission, OfCells(tmp_path))


def test_cells_add_up_also_to_those_that_an_earlier_version_wrote(submission: Submission) -> None:
    assert submission.skipped_cells == []
    (submission.folder / "skip.json").write_text("[5]\n")
    stopping.cancel_cells([submission], [12, 3])
    assert submission.skipped_cells == [3, 5, 12]


def test_another_cell_than_was_cancelled_is_seen(submission: Submission) -> None:
    stopping.cancel_cells([submission], [12, 3])
    file = submission.folder / "skip.json"
    file.write_bytes(file.read_bytes().replace(b"12", b"13"))
    with pytest.raises(DamagedFile, match=r"skip\.json: is not as it(.|\n)*once more"):
        skipped_cells(submission.folder)


@pytest.mark.parametrize("text", ["{}", '{"cells":7}', '{"cells":[-1]}', "[true]", "7"])
def test_what_is_no_list_of_cells_is_named(submission: Submission, text: str) -> None:
    (submission.folder / "skip.json").write_text(text)
    with pytest.raises(
        DamagedFile, match=r"is not a list of cells\n.*cancel these cells once more"
    ):
        skipped_cells(submission.folder)
