"""Sweep files that were edited since they were planned: what is trained is the plan."""

from __future__ import annotations

import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.errors import UnavailableError, UserError, command
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import planned_again

_SECONDS = 1.0  # between a plan and its sweep file, which planning writes last
_READ_LATER = ("analysis",)  # what no plan holds


def warn_of_edits(paths: SweepPaths) -> None:
    """Warn of a sweep file that asks for other runs than are planned, if there is one."""
    if (file := edited(paths)) is None:
        return
    # by default, a plan is made in the working folder
    is_there = file == paths.sweep_file
    with suppress(OSError):  # a working folder that is gone
        is_there |= paths.directory.resolve().parent == Path.cwd().resolve()
    out = [] if is_there else ["--out", paths.directory]
    warn(
        f"{file} was edited after it was planned, and what is trained is what was planned; "
        f"plan it again with: {command('plan', file, *out)}"
    )


def edited(paths: SweepPaths) -> Path | None:
    """Return a sweep file that is later than the plan and asks for something else.

    It is the sweep's own, or one with the sweep's name in the working folder or beside the sweep.
    """
    own = paths.sweep_file
    names = ("sweep.toml", f"{paths.directory.absolute().name}.toml")
    folders: dict[Path, None] = {}
    for folder in (Path(), paths.directory.parent):
        with suppress(OSError):  # a working folder that is gone
            folders[folder.absolute()] = None
    beside = [folder / name for folder in folders for name in names]
    for file in beside:
        if file.is_file() and _written(file) > _written(own) and _differ(file, own):
            return _shortly(file)
    later = own.is_file() and _written(own) > _written(paths.plan) + _SECONDS
    return own if later and _asks_for_more(paths) else None


def _written(file: Path) -> float:
    return file.stat().st_mtime if file.exists() else 0.0


def _shortly(file: Path) -> Path:
    with suppress(OSError, ValueError):
        return file.relative_to(Path.cwd())
    return file


def _differ(file: Path, own: Path) -> bool:
    """Whether two files that are called the same say different things of what is trained."""
    one, other = _content(file), _content(own)
    if not one or not other or one.get("name") != other.get("name"):
        return False
    return any(one.get(k) != other.get(k) for k in {*one, *other} - {*_READ_LATER})


def _content(file: Path) -> dict[str, Any]:
    """Return what a file says; nothing if it cannot be read, of which planning tells."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}


def _asks_for_more(paths: SweepPaths) -> bool:
    """Whether the sweep's own file asks for runs that are not planned, or cannot be planned."""
    plan = Plan.read(paths)
    try:
        return not planned_again(paths, plan, Groups.read(paths)).is_empty
    except (UserError, UnavailableError):
        return True
