"""``manyseed answers``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from manyseed.orchestrator.cli.arguments import Directory, Json
from manyseed.orchestrator.cli.output import console, counted, print_json, say, say_next

if TYPE_CHECKING:
    from manyseed.orchestrator.sweep import Sweep

_NO_ANSWERS = "These results allow no answers: too few runs, or nothing differs."
_IN_SHORT = (
    ("recipes", "missing"),
    ("accuracy",),
    ("effects",),
    ("spread", "sources"),
    ("enough",),
)
"""What `in_short` says, in paragraphs: what is wrong, how accurate, what differs, what varies, how
many seeds."""


def answers(directory: Directory, as_json: Json = False) -> None:
    """Say what the results show, in the sentences that the report begins with.

    What is missing; how accurate the classifiers are, and which is better; which one varies most
    and least; what affects accuracy and error consistency beyond chance; which runs differ from the
    others of their repeat; how many seeds are enough; where the variance comes from; ranks across
    datasets. Each answer has an interval and says what it covers; questions without an answer are
    left out. Notes follow: what could not be computed, what stands out, and why.

    Examples:

        manyseed answers quickstart
    """
    from manyseed.orchestrator.cli.analyze import say_notes
    from manyseed.orchestrator.results.answering import answers
    from manyseed.orchestrator.results.caveats import tell_newer
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    tell_newer(sweep.paths)
    found = answers(sweep.paths)
    if as_json:
        listed = [{"about": one.about, "text": one.text, "shown": list(one.links)} for one in found]
        print_json({"answers": listed})
        return
    for answer in found:
        say(f"{answer.text}\n")
    if not found:
        say(f"{_NO_ANSWERS}\n")
    if say_notes(sweep):
        console.print()
    say_next("Tables and figures", "report", sweep.directory)


def in_short(sweep: Sweep) -> None:
    """Print the answers that a first look wants, without samples and intervals; say where all are.

    Fits a screen with what `run` prints before and after it.
    """
    from manyseed.orchestrator.cli.analyze import notes
    from manyseed.orchestrator.results.answering import answers

    found = answers(sweep.paths)
    paragraphs = [[one.brief for one in found if one.about in about] for about in _IN_SHORT]
    for paragraph in filter(None, paragraphs):
        console.print()
        for text in paragraph:
            say(text)
    if not any(paragraphs):
        say(f"\n{_NO_ANSWERS}")
    console.print()
    more = "All answers, with their intervals"
    if number := len(notes(sweep)):
        more += f", and {counted(number, 'note')}"
    say_next(more, "answers", sweep.directory)
