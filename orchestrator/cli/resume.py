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
        bool,
        typer.Option("--failed", help="Train only the failed runs again, with the same seeds."),
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
    """Submit the missing runs of an interrupted sweep, here or on any cluster.

    Finished runs are never trained again, and runs of a waiting or running task are never submitted
    again. Paused tasks are released. Tasks that were asked to stop are waited for; if they take
    longer than some minutes and hold all missing runs, the exit code is 3. Failed runs are left
    alone unless --failed is given.

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
