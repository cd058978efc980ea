"""What the lives of tasks leave in their folders: how far each is, and which runs failed.

Read by tasks as they start: imports no table library.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Interval, Le

from orchestrator.errors import DamagedFile
from orchestrator.files import read_record, read_records

UNREADABLE = "unreadable"
"""The state of a life whose file cannot be read: what became of it, others have to tell."""

_REMEDY = "remove it: the runs that failed there count as missing then"

_Count = Annotated[int, Ge(0), Le(2**40)]
_Number = Annotated[int, Interval(ge=0, lt=2**32)]
_Seconds = Annotated[float, Interval(ge=0, le=2.0**40)]


@dataclass(frozen=True)
class Life:
    """What a life last told of itself; `orchestrator.working.worker` says what each means."""

    state: str
    process: str
    started: _Seconds
    done: dict[str, _Count] = field(default_factory=dict)
    failed: dict[str, _Count] = field(default_factory=dict)
    node: str = ""
    job_id: str = ""
    updated: _Seconds = 0.0
    runs: _Count = 0
    pending: _Count = 0
    set_aside: _Count = 0
    killed: _Count = 0
    workers: _Count = 0
    reason: str = ""
    details: str = ""
    node_at_fault: bool = False
    blocks: _Count = 0
    exit_code: int | None = None


@dataclass(frozen=True)
class Failure:
    """A run whose training raised.

    Attributes
    ----------
    group, row : int
        Where the store would hold it.
    cell, repeat, run : int
        Its address.
    error, traceback : str
        The exception in a line, and all that was printed of it.
    file : Path
        Where it is told.
    """

    group: _Number
    row: _Number
    cell: _Number
    repeat: _Number
    run: _Number
    error: str
    traceback: str
    file: Path = field(default=Path())


def life_lease(life: str) -> str:
    """Return the name of the lease that a life keeps while it, or a process of it, may write.

    Whether a life lives, also where nothing of its process can be seen, tells
    ``LeaseWatch.wait_until_dead([life_lease(life)])``: by its counter, and no clock but one's own.
    """
    return f"life-{life}"


def read_lives(submission: Path, which: str = "*") -> list[dict[str, Any]]:
    """Return what lives last told of themselves, oldest first.

    Parameters
    ----------
    submission : Path
        The folder of their submission.
    which : str
        A pattern of their folders' names.

    Returns
    -------
    list of dict
        The attributes of `Life`, and ``life``, the folder's name. Of one whose file is damaged the
        state is `UNREADABLE`, and the reason says why.
    """
    files = (submission / "lives").glob(f"{which}/progress.json")
    lives = [asdict(_read(file)) | {"life": file.parent.name} for file in files]
    return sorted(lives, key=lambda life: float(life["started"]))


def _read(file: Path) -> Life:
    try:
        return read_record(file, Life)
    except DamagedFile as error:
        began = file.parent.stat().st_mtime
        return Life(UNREADABLE, "", began, reason=f"{file}: {error.reason}")


def read_failures(life: Path) -> list[Failure]:
    """Return the runs that failed in a life, oldest first.

    Raises
    ------
    DamagedFile
    """
    file = life / "failures.jsonl"
    return [replace(failure, file=file) for failure in read_records(file, Failure, _REMEDY)]
