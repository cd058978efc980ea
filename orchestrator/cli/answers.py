"""``manyseed answers``."""

from __future__ import annotations

from manyseed.orchestrator.cli.common import Directory, Json
from manyseed.orchestrator.cli.output import print_json, say, say_next


def answers(directory: Directory, as_json: Json = False) -> None:
    """Print what the report's page begins with: what the results say, in sentences.

    What is missing; which classifier varies most and least; what moves accuracy and error
    consistency beyond chance; which runs disagree with their kind; how many seeds are enough;
    where the variance comes from; ranks across datasets. Each has what it is over and its
    interval; one that nothing can be said of is left out.

    Examples:

        manyseed answers quickstart
    """
    from manyseed.orchestrator.results.reporting import answers as found_in
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    found = found_in(sweep.paths)
    if as_json:
        listed = [{"about": one.about, "text": one.text, "shown": list(one.links)} for one in found]
        print_json({"answers": listed})
        return
    for number, one in enumerate(found):
        if number:
            say("")
        say(one.text)
    if not found:
        say("Nothing can be said of these results: too few runs, or nothing that differs.")
    say("")
    say_next("Tables and figures", "report", sweep.directory)
