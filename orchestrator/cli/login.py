"""Commands on a machine that many users share: one core, and a word on what it computes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from manyseed.orchestrator.cli.output import errors, say
from manyseed.orchestrator.errors import ManyseedError
from manyseed.orchestrator.paths import SweepPaths

if TYPE_CHECKING:
    from manyseed.orchestrator.tasks.intent import Intent

_SAID_AFTER = 10.0
"""Seconds; nobody has to read about what takes less."""


@contextmanager
def one_core(paths: SweepPaths, what: str, more: str = "") -> Iterator[None]:
    """On a login node, keep to one core, and say so if it takes long.

    Parameters
    ----------
    paths : SweepPaths
        The sweep, which may have been trained on this machine: then it is no login node.
    what : str
        What is computed, as the subject of a sentence.
    more : str
        How it would be computed elsewhere, or by more cores.
    """
    from manyseed.orchestrator.submissions.profiles import is_login_node
    from manyseed.orchestrator.submissions.submission import last_intent

    def last() -> Intent | None:
        with suppress(ManyseedError):  # what is damaged is reported by whoever needs it
            return last_intent(paths)
        return None

    if not hasattr(os, "sched_setaffinity") or not is_login_node(last):
        yield
        return
    lines = [f"This machine submits jobs, so {what} keeps to one of its cores.", more]
    text = "\n".join(filter(None, lines))
    said = threading.Timer(_SAID_AFTER, say, (text,), {"style": "dim", "to": errors})
    said.daemon = True
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[os.getpid() % len(cores)]})
    said.start()
    try:
        yield
    finally:
        said.cancel()
        os.sched_setaffinity(0, cores)
