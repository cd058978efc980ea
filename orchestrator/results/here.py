"""An analysis by this process, or by workers that it has: from journals to result tables."""

from __future__ import annotations

from collections.abc import Callable

from analysis.group import Progress
from analysis.options import Options
from orchestrator.keeping import publish_finished
from orchestrator.paths import SweepPaths
from orchestrator.results import analysing
from orchestrator.results.alone import alone
from orchestrator.results.conventions import conventions
from orchestrator.results.schedulers import scheduler
from orchestrator.results.tables import Results
from slurm import local


def analyze(
    paths: SweepPaths,
    options: Options | None = None,
    *,
    dask: str = "threads",
    cluster: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Results:
    """Publish what is finished, and analyse it alone; `Sweep.analyze` says more."""
    options = options or conventions(paths)
    computing = scheduler(dask, folder=paths.analyses, cluster=cluster, workers=workers, tell=tell)
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
