"""Whether the snapshots that an analysis asks for are kept."""

from __future__ import annotations

from collections.abc import Sequence

from manyseed.analysis.options import SNAPSHOTS, Options, snapshot_index
from manyseed.analysis.refused import Refused
from manyseed.orchestrator.store.schema import GroupSpec


def require_snapshots(options: Options, specs: Sequence[GroupSpec]) -> None:
    """Refuse snapshots that some group lacks, or that are meaningless for all groups.

    Raises
    ------
    Refused
    """
    for name in SNAPSHOTS:
        value = getattr(options, name)
        for snapshot in value if isinstance(value, tuple) else (value,):
            if snapshot is not None:
                _require(name, snapshot, specs)


def _require(option: str, snapshot: int, specs: Sequence[GroupSpec]) -> None:
    if snapshot not in (0, -1) and specs and all(spec.epochs == (0,) for spec in specs):
        raise Refused(option, snapshot, "nothing here is trained in epochs, so leave it out")
    for spec in specs:
        if snapshot_index(spec.epochs, snapshot) is None:
            kept = ", ".join(map(str, spec.epochs))
            reason = f"{spec.dataset} × {spec.named} has no such snapshot; there are: {kept}"
            if len(spec.epochs) > 1:
                reason += f", counted from the last as {-len(spec.epochs)} to -1"
            raise Refused(option, snapshot, reason)
