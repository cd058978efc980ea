"""Who computes the analysis: threads or processes here, or a dask cluster at an address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from orchestrator.errors import UnavailableError, UserError, nearest

LOCAL = ("threads", "processes")
ADDRESSES = ("tcp://", "tls://", "ws://", "wss://", "ucx://")
ANSWER_SECONDS = 10


@contextmanager
def scheduler(dask: str) -> Iterator[Any]:
    """Give what `analysis.group.compute` takes as its scheduler.

    Parameters
    ----------
    dask : str
        One of `LOCAL`, or the address of a dask scheduler, whose workers must see the sweep
        directory under the same path.

    Raises
    ------
    UserError
        For what is neither.
    UnavailableError
        Where nothing answers at the address.
    """
    if dask in LOCAL:
        yield dask
        return
    if not dask.startswith(ADDRESSES):
        remedy = nearest(dask, (*LOCAL, "tcp://HOST:PORT"))
        raise UserError("not a way to compute", key="--dask", value=dask, remedy=remedy)
    from distributed import Client

    try:
        client = Client(dask, timeout=ANSWER_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise UnavailableError(
            f"no dask scheduler answers at {dask} ({type(error).__name__}): "
            "start it, or leave --dask out"
        ) from None
    with client:
        yield client
