"""``manyseed submit`` and ``resume``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.common import Cluster, Directory, OtherRecipe, Workers
from orchestrator.cli.output import console

if TYPE_CHECKING:
    from orchestrator.submissions.submission import Submission
    from orchestrator.sweep import Sweep

Only = Annotated[
    str | None,
    typer.Option("--only", metavar="SQL", help="Only these cells: classifier = 'mlp'."),
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", min=1, help="At most so many runs, spread over the cells: a pilot."),
]


def submit(
    directory: Directory,
    cluster: Cluster = "auto",
    workers: Workers = None,
    only: Only = None,
    limit: Limit = None,
    other_recipe: OtherRecipe = False,
) -> None:
    """Submit every missing run, and return at once; the work goes on without this terminal.

    Examples:

        manyseed submit sweep

        manyseed submit sweep --cluster mycluster --limit 100

        manyseed status sweep --watch
    """
    from orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    submission = sweep.submit(
        cluster=cluster, workers=workers, only=only, limit=limit, other_recipe=other_recipe
    )
    _tell(sweep, submission, failed=False)


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
) -> None:
    """Submit what an interrupted sweep still misses, here or on any cluster.

    Finished runs are never trained again, and runs that a task waits or trains for are never
    submitted again. What a pause holds is released. Failed runs are left alone unless --failed
    asks for them.
    """
    from orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    submission = sweep.submit(
        cluster=cluster,
        workers=workers,
        failed=failed,
        memory=memory,
        only=only,
        limit=limit,
        other_recipe=other_recipe,
    )
    _tell(sweep, submission, failed=failed)


def _tell(sweep: Sweep, submission: Submission | None, *, failed: bool) -> None:
    if submission is None:
        console.print(_nothing(sweep, failed))
        return
    intent = submission.intent
    tell_gpu(submission)
    where = f"{intent.get('workers')} local processes"
    if "arrays" in intent:
        where = f"{intent['cluster']}: " + ", ".join(
            f"{a['count']:,} {a['resource']} task{'s'[: a['count'] > 1]} of {a['processes']} "
            f"process{'es' if a['processes'] > 1 else ''}"
            for a in intent["arrays"]
        )
        for node, reason in intent["excluded"].items():
            console.print(f"Kept from {node}: {reason}", markup=False, soft_wrap=True)
    console.print(
        f"Submitted {submission.n_runs:,} runs to {where}. "
        f"Watch: manyseed status {sweep.directory} --watch",
        soft_wrap=True,
    )


def tell_gpu(submission: Submission) -> None:
    """Say where classifiers with device = "gpu" are trained on this machine."""
    gpu = submission.intent.get("gpu")
    if gpu == "none":
        console.print('No GPU answers here: classifiers with device = "gpu" train on the CPU.')
    elif gpu:
        console.print(f'Classifiers with device = "gpu" train on {gpu}.', markup=False)


def _nothing(sweep: Sweep, failed: bool) -> str:
    counts = sweep.survey().counts
    if sweep.is_running:
        return "Nothing to submit: what is missing waits or is being trained."
    if failed:
        return "Nothing to submit: no run is failed."
    text = "Nothing to submit: no run is missing"
    if counts["failed"]:
        return f"{text}; {counts['failed']:,} failed (retry them with: manyseed resume --failed)."
    return f"{text}."
