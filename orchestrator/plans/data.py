"""Whether the data of a sweep is on this machine, and bringing it here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jobs import datasets
from jobs.datasets import DatasetInfo
from jobs.run import MachineError
from orchestrator.errors import UnavailableError, UserError


def fetch_datasets(
    infos: Mapping[str, DatasetInfo], tell: Callable[[str], None] = lambda name: None
) -> list[str]:
    """Make the prepared copies that are not there; return the names of those made.

    Raises
    ------
    UnavailableError
        Where data cannot be reached or is not what was planned.
    """
    made = []
    for name, info in infos.items():
        tell(name)
        try:
            if datasets.fetch(info):
                made.append(name)
        except MachineError as error:
            raise UnavailableError(f"{name}: {error}") from None
    return made


def require_fetched(canonicals: Mapping[str, Mapping[str, Any]], sweep_file: Path) -> None:
    """Refuse datasets whose prepared copy is not on this machine.

    Parameters
    ----------
    canonicals : mapping
        Canonical descriptions by the names of the sweep file.
    sweep_file : Path
        Named in the remedy.

    Raises
    ------
    UserError
    """
    absent = [name for name, canonical in canonicals.items() if not datasets.is_fetched(canonical)]
    if absent:
        raise UserError(
            f"the data of {', '.join(absent)} is not on this machine",
            file=datasets.data_home(),
            remedy=f"fetch it with: manyseed datasets fetch {sweep_file}",
        )
