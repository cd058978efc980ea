"""Analyse in this process, or on its workers: from journals to result tables.

Only one analysis runs at a time: two would mix their tables.
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
from manyseed.orchestrator.results.answers import summary
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
    """Publish finished runs and analyse them under a lease; see `Sweep.analyze`.

    Parameters
    ----------
    paths : SweepPaths
    options : Options, optional
        By default the sweep's own (`results.conventions`).
    dask, cluster, workers, report
        As in `results.schedulers.scheduler`; `workers` defaults to all cores.
    progress : callable, optional
        As in `analysis.graph.group.compute`.
    """
    options = options or conventions(paths)
    computing = scheduler(
        dask, folder=paths.analyses, cluster=cluster, workers=workers, report=report
    )
    with alone(paths) as lease:
        publish_finished(paths)
        with computing as chosen:
            results = analysing.analyze(
                paths,
                options,
                scheduler=chosen,
                workers=workers or local.available_cores(),
                progress=progress,
                before_writing=lease.check,
            )
            summary.keep(paths)
            return results


@contextmanager
def alone(paths: SweepPaths) -> Iterator[Lease]:
    """Hold the lease on this sweep's analysis.

    The lease of a process that died on another machine is taken over after the lease time.

    Raises
    ------
    UserError
        While another analysis runs.
    """
    watch = LeaseWatch(paths.analyses)
    lease = Lease(watch, "analysis")
    try:
        if not lease.try_take():
            watch.wait_until_dead()
            lease.take()
    except LeaseHeld as error:
        raise UserError(f"another analysis is running: {error}", file=paths.directory) from None
    with lease.kept():
        yield lease
