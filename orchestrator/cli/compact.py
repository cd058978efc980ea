"""``manyseed compact``."""

from __future__ import annotations

from manyseed.orchestrator.cli.common import Directory
from manyseed.orchestrator.cli.output import counted, say, say_next
from manyseed.orchestrator.cli.progress import shards_done


def compact(directory: Directory) -> None:
    """Publish the runs in journals, remove files no longer needed, consolidate metadata.

    Examples:

        manyseed compact quickstart
    """
    from manyseed.orchestrator.sweep import Sweep

    with shards_done("compacting") as progress:
        result = Sweep(directory).compact(progress)
    say(
        f"Published {counted(result.published, 'run')}, removed "
        f"{counted(result.journals, 'journal')} and {counted(result.partial, 'temporary file')}."
    )
    if result.damaged:
        say(
            f"Kept {counted(len(result.damaged), 'journal')} with unreadable parts that are not "
            f"published: {', '.join(result.damaged)}"
        )
        say_next("Next", "verify", directory, "--repair")
    if result.foreign:
        say(
            f"Ignored {counted(len(result.foreign), 'journal')} of another sweep: "
            f"{', '.join(result.foreign)}"
        )
