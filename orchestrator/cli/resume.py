"""``manyseed resume``."""

from __future__ import annotations

from typing import Annotated

import typer

from manyseed.orchestrator.cli.common import Cluster, Directory, Only, OtherRecipe, Workers
from manyseed.orchestrator.cli.submit import Limit, Watch, submit_and_report


def resume(
    directory: Directory,
    cluster: Cluster = "auto",
    workers: Workers = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Train exactly the failed runs again, same seeds.")
    ] = False,
    memory: Annotated[
        str | None,
        typer.Option("--memory", help="Memory for each task, instead of the profile's: 32G."),
    ] = None,
    only: Only = None,
    limit: Limit = None,
    other_recipe: OtherRecipe = False,
    watch: Watch = False,
) -> None:
    """Submit what an interrupted sweep still misses, here or on any cluster.

    Finished runs are never trained again, and runs that a task waits or trains for are never
    submitted again. What a pause holds is released, and tasks that were asked to stop are waited
    for; exit code 3 where they take more than minutes, and have all that is missing. Failed runs
    are left alone unless --failed asks for them.

    Examples:

        manyseed resume quickstart

        manyseed resume quickstart --failed --memory 32G

        manyseed resume quickstart --cluster local --workers 4
    """
    submit_and_report(
        directory,
        watch=watch,
        cluster=cluster,
        workers=workers,
        failed=failed,
        memory=memory,
        only=only,
        limit=limit,
        other_recipe=other_recipe,
    )
