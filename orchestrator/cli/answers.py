"""``manyseed answers``."""

from __future__ import annotations

from manyseed.orchestrator.cli.common import Directory, Json
from manyseed.orchestrator.cli.output import print_json, say, say_next


def answers(directory: Directory, as_json: Json = False) -> None:
    """Say what the results show, in the sentences that the report begins with.

    What is missing; how accurate the classifiers are, and which is better; which one varies most
    and least; what affects accuracy and error consistency beyond chance; which runs differ from the
    others of their repeat; how many seeds are enough; where the variance comes from; ranks across
    datasets. Each answer has an interval and says what it covers; questions without an answer are
    left out.

    Examples:

        manyseed answers quickstart
    """
    from manyseed.orchestrator.results.answering import answers
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    found = answers(sweep.paths)
    if as_json:
        listed = [{"about": one.about, "text": one.text, "shown": list(one.links)} for one in found]
        print_json({"answers": listed})
        return
    for answer in found:
        say(f"{answer.text}\n")
    if not found:
        say("These results allow no answers: too few runs, or nothing differs.\n")
    say_next("Tables and figures", "report", sweep.directory)
