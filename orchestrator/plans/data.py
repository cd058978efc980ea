"""Check whether the data of a sweep is on this machine, and fetch it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from manyseed.jobs import datasets
from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import DatasetInfo
from manyseed.jobs.run import DamagedData, MachineError, NotFetched
from manyseed.orchestrator.errors import UnavailableError, UserError, command, refused
from manyseed.orchestrator.paths import SweepPaths

_REPLAN = "plan what it holds now into another directory with --out"


def fetch_datasets(
    infos: Mapping[str, DatasetInfo], report: Callable[[str], None] = lambda name: None
) -> list[str]:
    """Prepare the local copies that are missing; return the names of their datasets."""
    made = []
    for name, info in infos.items():
        report(name)
        try:
            if datasets.fetch(info):
                made.append(name)
        except DamagedData as error:
            raise UserError(f"{name}: {error}", remedy="replace or remove it") from None
        except MachineError as error:
            raise UnavailableError(f"{name}: {error}") from None
    return made


def prepare_read(infos: Mapping[str, DatasetInfo]) -> list[str]:
    """Make the prepared copies of data that planning has read, such as files: as `fetch_datasets`.

    What would be downloaded waits until the user asks for it.
    """
    return fetch_datasets({name: info for name, info in infos.items() if info.locations})


def require_fetched(canonicals: Mapping[str, Mapping[str, Any]], sweep_file: Path) -> None:
    """Refuse datasets that have no prepared copy on this machine, or whose file has changed.

    Parameters
    ----------
    canonicals : mapping
        Canonical descriptions by dataset name in the sweep file.
    sweep_file : Path
        Named in the remedy.
    """
    absent = [name for name, canonical in canonicals.items() if not datasets.is_fetched(canonical)]
    for name in absent:
        _require_unchanged(name, canonicals[name], sweep_file)
    if absent:
        raise UserError(
            f"the data of {', '.join(absent)} is not on this machine",
            file=datasets.data_home(),
            remedy=f"fetch it with: {command('plan', sweep_file, '--fetch')}",
        )


def remedy(error: BaseException, paths: SweepPaths) -> str:
    """Return the last line of a message about a machine's fault: a command, or nothing."""
    if isinstance(error, NotFetched):
        return f"\n  fetch the data with: {command('plan', paths.sweep_file, '--fetch')}"
    return ""


def _require_unchanged(name: str, canonical: Mapping[str, Any], sweep_file: Path) -> None:
    """Refuse a table whose file is gone or has changed: fetching it would give other data."""
    from manyseed.orchestrator.grids.loading import read_sweep_file  # no task needs it

    table = read_sweep_file(sweep_file).dataset.get(name)
    if canonical["source"] != "file" or table is None or table.source is None:
        return
    key, remedy = f"dataset.{name}.source", f"restore the file that was planned, or {_REPLAN}"
    try:
        if datasets.resolve(table.source, **table.options()).canonical == canonical:
            return
    except Refused as error:
        raise refused(error, file=sweep_file, key=key, value=table.source, remedy=remedy) from None
    message = "the file has changed since it was planned"
    raise UserError(message, file=sweep_file, key=key, value=table.source, remedy=remedy)
