"""Commands on a machine that many users share: one core, and a word on what it computes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from manyseed.orchestrator.cli.output import errors, say
from manyseed.orchestrator.errors import ManyseedError
from manyseed.orchestrator.paths import SweepPaths

if TYPE_CHECKING:
    from manyseed.orchestrator.tasks.intent import Intent


@contextmanager
def one_core(paths: SweepPaths, what: str, more: str = "") -> Iterator[None]:
    """On a login node, keep to one core and say so.

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
    say(f"This machine submits jobs, so {what} keeps to one of its cores.", style="dim", to=errors)
    if more:
        say(more, style="dim", to=errors)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[os.getpid() % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
