"""One analysis of a sweep at a time: two would mix their tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.errors import UserError
from orchestrator.paths import SweepPaths
from orchestrator.store.errors import LeaseHeld
from orchestrator.store.lease import Lease, LeaseWatch


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
