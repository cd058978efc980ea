"""An analysis by this process, or by workers that it has: from journals to result tables.

There is one at a time: two would mix their tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from manyseed.analysis.graph.group import ReportProgress
from manyseed.analysis.options import Options
from manyseed.orchestrator.disk.lease import Lease, LeaseWatch
from manyseed.orchestrator.errors import LeaseHeld, UserError
from manyseed.orchestrator.keeping import publish_finished
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.results import analysing
from manyseed.orchestrator.results.conventions import conventions
from manyseed.orchestrator.results.schedulers import scheduler
from manyseed.orchestrator.results.tables import Results
from manyseed.slurm import local


def analyze(
    paths: SweepPaths,
    options: Options | None = None,
    *,
    dask: str = "threads",
    cluster: str | None = None,
    workers: int | None = None,
    progress: ReportProgress | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> Results:
    """Publish what is finished, and analyse it alone; `Sweep.analyze` says more.

    Parameters
    ----------
    paths : SweepPaths
    options : Options, optional
        By default the sweep's own (`results.conventions`).
    dask, cluster, workers, report
        As `results.schedulers.scheduler` takes them; without `workers` all cores compute.
    progress : callable, optional
        As `analysis.graph.group.compute` takes it.
    """
    options = options or conventions(paths)
    computing = scheduler(
        dask, folder=paths.analyses, cluster=cluster, workers=workers, report=report
    )
    with alone(paths) as lease:
        publish_finished(paths)
        with computing as chosen:
            return analysing.analyze(
                paths,
                options,
                scheduler=chosen,
                workers=workers or local.available_cores(),
                progress=progress,
                before_writing=lease.check,
            )


@contextmanager
def alone(paths: SweepPaths) -> Iterator[Lease]:
    """Be the one who analyses, wherever others might try to.

    The lease of one who died on another machine is taken over, after the lease time.

    Raises
    ------
    UserError
        While somebody else does.
    """
    watch = LeaseWatch(paths.analyses)
    lease = Lease(watch, "analysis")
    try:
        if not lease.try_take():
            watch.wait_until_dead()
            lease.take()
    except LeaseHeld as error:
        raise UserError(f"another analysis goes on: {error}", file=paths.directory) from None
    with lease.kept():
        yield lease
