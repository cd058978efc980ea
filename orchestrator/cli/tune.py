"""``manyseed tune``: search for the hparams of tuned cells, and for scales of posteriors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from manyseed.orchestrator.cli.common import Directory, Json, Workers
from manyseed.orchestrator.cli.output import print_json, print_table, say, say_next
from manyseed.orchestrator.cli.progress import bar
from manyseed.orchestrator.errors import INTERRUPTED

if TYPE_CHECKING:
    from manyseed.orchestrator.plans.scales import FoundScale
    from manyseed.orchestrator.plans.tuned import TunedHparams
    from manyseed.orchestrator.sweep import Sweep

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

    One random search for each dataset and classifier, before they are submitted; then one for the
    scale of each cell with kfac-laplace that has none. What is found stays in the sweep; a search
    that is interrupted goes on with the same command.

    Examples:

        manyseed tune sweep

        sbatch --cpus-per-task 32 --wrap "manyseed tune sweep"
    """
    from manyseed.orchestrator.sweep import Sweep

    found, scales = search(Sweep(directory), cluster, workers, quiet=as_json)
    columns = ("dataset", "classifier", "draws", "draw", "accuracy", "hparams")
    rows = [(f.dataset, f.classifier, len(f.draws), f.draw, f.accuracy, f.hparams) for f in found]
    of_scales = ("dataset", "classifier", "ensembling", "networks", "scale", "log_likelihood")
    judged = [
        (s.dataset, s.classifier, s.ensembling, len(s.trials), s.scale, s.log_likelihood)
        for s in scales
    ]
    if as_json:
        shown = [dict(zip(columns, row, strict=True)) for row in rows]
        of = [dict(zip(of_scales, row, strict=True)) for row in judged]
        print_json({"searches": shown, "scales": of})
        return
    if found:
        print_table(None, columns[:-1], [row[:-1] for row in rows])
    if judged:
        print_table(None, of_scales, judged)
    if found or judged:
        say_next("Next", "submit", directory)
    else:
        say('Nothing to search for: no cell has hparams = "tuned" that were not found yet.')


def search(
    sweep: Sweep, cluster: str, workers: int | None, *, quiet: bool = False
) -> tuple[list[TunedHparams], list[FoundScale]]:
    """Do a sweep's open searches under a progress bar; return what each found."""
    from manyseed.orchestrator.plans.plan import Plan
    from manyseed.orchestrator.plans.scales import found_scale
    from manyseed.orchestrator.plans.tuned import found_hparams, scale_searches, searches

    cells = Plan.read(sweep.paths).cells
    if not (searches(sweep.paths, cells) or scale_searches(sweep.paths, cells)):
        return [], []
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
    hparams = [found_hparams(sweep.paths, each.cell) for each in done if not each.ensembling]
    scales = [found_scale(sweep.paths, each.cell) for each in done if each.ensembling]
    return [one for one in hparams if one], [one for one in scales if one]
