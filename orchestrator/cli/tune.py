"""``manyseed tune``: search for the hparams of tuned cells."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.common import Directory, Json, Workers
from orchestrator.cli.output import print_json, print_table, say, say_next
from orchestrator.cli.progress import bar
from orchestrator.errors import INTERRUPTED

if TYPE_CHECKING:
    from orchestrator.sweep import Sweep

Here = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="local",
        help="local: on this machine, though sbatch is here; auto: unless it is.",
    ),
]


def tune(
    directory: Directory,
    cluster: Here = "auto",
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Search on this machine for the hparams of cells with hparams = "tuned".

    One random search for each dataset and classifier, before they are submitted. What is found
    stays in the sweep; a search that is interrupted goes on with the same command.

    Examples:

        manyseed tune sweep

        sbatch --cpus-per-task 32 --wrap "manyseed tune sweep"
    """
    from orchestrator.sweep import Sweep

    found = search(Sweep(directory), cluster, workers, quiet=as_json)
    columns = ("dataset", "classifier", "draws", "draw", "accuracy", "hparams")
    if as_json:
        print_json({"searches": [{name: each[name] for name in columns} for each in found]})
    elif found:
        print_table(
            None,
            columns[:-1],
            [tuple(each[name] for name in columns[:-1]) for each in found],
        )
        say_next("Next", "submit", directory)
    else:
        say('Nothing to search for: no cell has hparams = "tuned" that were not found yet.')


def search(
    sweep: Sweep, cluster: str, workers: int | None, *, quiet: bool = False
) -> list[dict[str, Any]]:
    """Do a sweep's open searches under a progress bar; return what each found."""
    from orchestrator.plans.plan import Plan
    from orchestrator.plans.tuned import found, searches

    if not searches(sweep.paths, Plan.read(sweep.paths).cells):
        return []
    with bar() as progress:
        task = progress.add_task("searching", total=None, note="", visible=not quiet)
        try:
            done = sweep.tune(
                cluster=cluster,
                workers=workers,
                progress=lambda draws, of: progress.update(task, completed=draws, total=of),
            )
        except KeyboardInterrupt:
            progress.stop()
            say_next("Go on with", "tune", sweep.directory)
            raise typer.Exit(INTERRUPTED) from None
    results = [found(sweep.paths, each.id) for each in done]
    return [asdict(result) | {"draws": len(result.draws)} for result in results if result]
