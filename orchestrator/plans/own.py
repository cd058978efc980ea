"""What a plan records of users' own code: where it was, and what was found out about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from manyseed.orchestrator.disk.records import read_record, write_json
from manyseed.orchestrator.grids.own import OwnCode, Pin
from manyseed.orchestrator.paths import SweepPaths


@dataclass(frozen=True, slots=True)
class _Pins:
    pins: Mapping[str, Pin] = field(default_factory=dict)


def read_pins(paths: SweepPaths) -> Mapping[str, Pin]:
    """Return a plan's records, by what each depends on.

    Raises
    ------
    DamagedFile
    """
    try:
        return read_record(paths.own, _Pins).pins
    except FileNotFoundError:
        return {}


def own_code(sweep_file: Path, paths: SweepPaths) -> OwnCode:
    """Return what is known about the code that a sweep file names; the sweep need not exist."""
    return OwnCode.beside(sweep_file, read_pins(paths) if paths.is_sweep else {})


def write_pins(
    paths: SweepPaths, used: Mapping[str, Pin], check: Callable[[], None] | None = None
) -> None:
    """Record what was found out; a sweep without users' own code gets no such file."""
    if not used:
        return
    before = read_pins(paths)
    after = {**before, **used}
    if after != before:
        value = {"pins": {key: asdict(pin) for key, pin in after.items()}}
        write_json(paths.own, value, before_rename=check)
