"""What computes an analysis: threads or processes here, SLURM jobs, or a dask cluster elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from manyseed.orchestrator.errors import UnavailableError, UserError, nearest
from manyseed.orchestrator.submissions.profiles import AUTO, choose, the_one
from manyseed.orchestrator.tasks.intent import LOCAL as THIS_MACHINE
from manyseed.slurm import available
from manyseed.slurm.profile import Profile

SLURM = "slurm"
LOCAL = ("threads", "processes")
ADDRESSES = ("tcp://", "tls://", "ws://", "wss://", "ucx://")
ANSWER_SECONDS = 10


@contextmanager
def scheduler(
    dask: str,
    *,
    folder: Path,
    cluster: str | None = None,
    workers: int | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> Iterator[Any]:
    """Yield a scheduler for `analysis.graph.group.compute`.

    Parameters
    ----------
    dask : str
        One of `LOCAL`; `SLURM`; or the address of a dask scheduler, whose workers must see the
        sweep directory under the same path.
    folder : Path
        For the files of SLURM jobs, on the file system that the nodes share.
    cluster : str, optional
        With `SLURM`: the cluster whose jobs are the workers, as in
        `orchestrator.submissions.profiles.choose`; by default ``auto``. Without it, only ``local``.
    workers : int, optional
        Number of jobs, with `SLURM`.
    report : callable
        Called with the state of the jobs.

    Raises
    ------
    UserError
        For another `dask`, a profile that is wrong or refused, and a cluster without SLURM.
    UnavailableError
        If nothing answers at the address, or no worker comes.
    """
    if cluster not in (None, THIS_MACHINE) and dask != SLURM:
        remedy = 'dask = "slurm", or submit the analysis as a job'
        raise UserError("nothing is computed there", key="cluster", value=cluster, remedy=remedy)
    if dask in LOCAL:
        yield dask
    elif dask == SLURM:
        from manyseed.orchestrator.results.slurm_workers import WORKERS, slurm_workers

        profile = of_slurm(cluster or AUTO)
        with slurm_workers(folder, profile, workers or WORKERS, report) as client:
            yield client
    elif dask.startswith(ADDRESSES):
        with _connected(dask) as client:
            yield client
    else:
        remedy = nearest(dask, (*LOCAL, SLURM, "tcp://HOST:PORT"))
        raise UserError("not a way to compute", key="--dask", value=dask, remedy=remedy)


def of_slurm(cluster: str) -> Profile:
    """Return the profile of a cluster that has SLURM.

    Raises
    ------
    UserError
        For an unknown or wrong profile, and for this machine.
    UnavailableError
        If SLURM is not installed.
    """
    # a job may submit jobs, too
    profile = the_one() if cluster == AUTO else choose(cluster)
    if not available():
        raise UnavailableError("sbatch is not on PATH: is this a SLURM login node?")
    if profile is None:
        remedy = "name one; make it with: manyseed cluster init"
        raise UserError("no SLURM cluster", key="--cluster", value=cluster, remedy=remedy)
    return profile


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    from distributed import Client

    try:
        client = Client(address, timeout=ANSWER_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise UnavailableError(
            f"no dask scheduler answers at {address} ({type(error).__name__}): "
            "start it, or leave --dask out"
        ) from None
    with client:
        yield client
