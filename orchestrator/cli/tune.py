"""``manyseed tune``: search for the hparams of tuned cells, and for scales of posteriors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from manyseed.orchestrator.cli.common import Directory, Json, Workers
from manyseed.orchestrator.cli.output import print_json, print_table, say, say_training
from manyseed.orchestrator.cli.progress import resumable

if TYPE_CHECKING:
    from manyseed.orchestrator.plans.searches import FoundScale, TunedHparams
    from manyseed.orchestrator.sweep import Sweep

Here = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="local",
        help="local: on this machine, even if sbatch is available; auto: only if it is not.",
    ),
]


def tune(
    directory: Directory,
    cluster: Here = "auto",
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Search on this machine for the hparams of cells with hparams = "tuned".

    Runs one random search per dataset and classifier, needed before submitting; then one for the
    scale of each cell with kfac-laplace that has none. The sweep keeps the results; the same
    command continues an interrupted search.

    Examples:

        manyseed tune sweep

        sbatch --cpus-per-task 32 --wrap "manyseed tune sweep"
    """
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    tuned, scales = search(sweep, cluster, workers, quiet=as_json)
    columns = ("dataset", "classifier", "draws", "draw", "accuracy", "hparams")
    rows = [(t.dataset, t.classifier, len(t.draws), t.draw, t.accuracy, t.hparams) for t in tuned]
    scale_columns = ("dataset", "classifier", "ensembling", "networks", "scale", "log_likelihood")
    scale_rows = [
        (s.dataset, s.classifier, s.ensembling, len(s.trials), s.scale, s.log_likelihood)
        for s in scales
    ]
    if as_json:
        searches = [dict(zip(columns, row, strict=True)) for row in rows]
        of_scales = [dict(zip(scale_columns, row, strict=True)) for row in scale_rows]
        print_json({"searches": searches, "scales": of_scales})
        return
    if rows:
        print_table(None, columns[:-1], [row[:-1] for row in rows])
    if scale_rows:
        print_table(None, scale_columns, scale_rows)
    if rows or scale_rows:
        given = None if cluster == "auto" else cluster
        say_training("Next", sweep.paths, "submit", cluster=given)
    else:
        say('Nothing to search for: no cell has hparams = "tuned" that were not found yet.')


def search(
    sweep: Sweep, cluster: str, workers: int | None, *, quiet: bool = False
) -> tuple[list[TunedHparams], list[FoundScale]]:
    """Do a sweep's open searches with a progress bar; return their results."""
    from manyseed.orchestrator.plans.plan import Plan
    from manyseed.orchestrator.plans.searches import FoundScale, TunedHparams, found, searches

    cells = Plan.read(sweep.paths).cells
    if not searches(sweep.paths, cells):
        return [], []
    with resumable("searching", "tune", sweep.directory, quiet=quiet) as progress:
        done = sweep.tune(cluster=cluster, workers=workers, progress=progress)
    results = [found(sweep.paths, each.cell, each.kind) for each in done]
    hparams = [one for one in results if isinstance(one, TunedHparams)]
    return hparams, [one for one in results if isinstance(one, FoundScale)]
