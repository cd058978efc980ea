"""``manyseed throttle``."""

from __future__ import annotations

from typing import Annotated

import typer

from manyseed.orchestrator.cli.common import Directory
from manyseed.orchestrator.cli.output import counted, say


def throttle(
    directory: Directory,
    parallelism: Annotated[
        int, typer.Argument(metavar="N", min=0, help="0: no limit.", show_default=False)
    ],
) -> None:
    """Let at most N tasks run at once on a cluster from now on. Running tasks are not ended.

    Examples:

        manyseed throttle quickstart 10

        manyseed throttle quickstart 0
    """
    from manyseed.orchestrator.sweep import Sweep

    arrays = Sweep(directory).throttle(parallelism)
    limit = counted(parallelism, "task") if parallelism else "as many tasks as the site allows"
    say(f"From now on {limit} at once (in {counted(arrays, 'array')}).")
