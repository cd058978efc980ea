"""How far a sweep is and what comes next, in a few lines."""

from __future__ import annotations

from manyseed.orchestrator.errors import ManyseedError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.progress.status import status

_GROUPS_SHOWN = 8


def summary(paths: SweepPaths) -> list[str]:
    """Return the lines; where the sweep cannot be read, what is wrong with it."""
    try:
        state = status(paths)
    except (ManyseedError, OSError) as error:
        return str(error).splitlines()
    runs, groups = state["runs"], state["groups"]
    rest = [f"{runs[name]:,} {name}" for name in ("failed", "missing") if runs[name]]
    finished = runs["done"] + runs["copy"]
    run = "run is" if runs["runs"] == 1 else "runs are"
    lines = [", ".join([f"{finished:,} of {runs['runs']:,} {run} finished", *rest])]
    lines += [
        f"  {one['dataset']} × {one['classifier']}: {one['done'] + one['copy']:,} of "
        f"{one['runs']:,}"
        for one in groups[:_GROUPS_SHOWN]
    ]
    if len(groups) > _GROUPS_SHOWN:
        lines.append(f"  and {len(groups) - _GROUPS_SHOWN:,} more")
    return lines + [f"{step['what']}: {step['command']}" for step in state["next"]]
