"""Whether a task must stop, and how long it waits for its fits in flight.

If a user stops a task, by its stop file or by a first signal on this machine, the fits in flight
are finished. A scheduler's signal means that the job will be killed soon, so they get one minute.
A user's request to end at once, or a second signal on this machine, ends them at once.
"""

from __future__ import annotations

import math
import time

from manyseed.orchestrator.tasks.requests import NOW

_GRACE_SECONDS = 60.0
"""Less than the time that schedulers leave between their signal and the kill."""


class Stop:
    """The signals and requests to stop that a task has received.

    Parameters
    ----------
    is_job : bool
        Whether its signals come from a scheduler.
    """

    def __init__(self, *, is_job: bool) -> None:
        self._is_job = is_job
        self._signals = 0
        self._until = math.inf
        self._request: str | None = None

    def on_signal(self) -> None:
        """Record a signal."""
        self._signals += 1
        if self._is_job:
            self._until = min(self._until, time.monotonic() + _GRACE_SECONDS)

    def hear(self, request: str | None) -> None:
        """Record the content of the stop file; None if there is none, as a stop can be revoked."""
        self._request = request

    @property
    def is_asked(self) -> bool:
        """Whether no new work may be started."""
        return self._signals > 0 or self._request is not None

    @property
    def is_urgent(self) -> bool:
        """Whether fits in flight are no longer waited for."""
        is_twice = self._signals > 1 and not self._is_job
        return self._request == NOW or is_twice or time.monotonic() >= self._until

    @property
    def is_schedulers(self) -> bool:
        """Whether the scheduler ends the job and may start it again."""
        return self._is_job and self._signals > 0
