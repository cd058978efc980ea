"""Whether a task must stop, and how long it waits for its fits in flight.

Users are waited for: whoever stops a task, by its stop file or by a first signal on this machine,
loses no fit in flight. A scheduler's signal means that the job will be killed soon: then a minute
is left. What users end at once is ended at once.
"""

from __future__ import annotations

import math
import time

from manyseed.orchestrator.tasks.requests import NOW

_GRACE_SECONDS = 60.0
"""Less than schedulers leave between their signal and the end."""


class Stop:
    """What a task knows of its end.

    Parameters
    ----------
    is_job : bool
        Whether its signals are a scheduler's.
    """

    def __init__(self, *, is_job: bool) -> None:
        self._is_job = is_job
        self._signals = 0
        self._until = math.inf
        self._request: str | None = None

    def on_signal(self) -> None:
        """Note a signal."""
        self._signals += 1
        if self._is_job:
            self._until = min(self._until, time.monotonic() + _GRACE_SECONDS)

    def hear(self, request: str | None) -> None:
        """Note what is in the stop file, None where there is none: a stop may be taken back."""
        self._request = request

    @property
    def is_asked(self) -> bool:
        """Whether nothing new may be begun."""
        return self._signals > 0 or self._request is not None

    @property
    def is_urgent(self) -> bool:
        """Whether fits in flight are not waited for any longer."""
        is_twice = self._signals > 1 and not self._is_job
        return self._request == NOW or is_twice or time.monotonic() >= self._until

    @property
    def is_schedulers(self) -> bool:
        """Whether the scheduler ends the job, and may start it again."""
        return self._is_job and self._signals > 0
