"""``manyseed verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from manyseed.orchestrator.cli.common import Directory, Json
from manyseed.orchestrator.cli.output import counted, print_json, say, say_training
from manyseed.orchestrator.cli.progress import shards_done
from manyseed.orchestrator.errors import RunsError, command

if TYPE_CHECKING:
    from manyseed.orchestrator.keeping import Verified

_NAMED = 20
"""How many runs are named; ``--json`` names all."""


def verify(
    directory: Directory,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Restore what is damaged from what is left; runs that cannot be restored are set "
            "back to missing, to be trained again.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check every finished run: checksum, finite scores, shape, labels that match the scores.

    Exit code 1 if something is wrong.

    Examples:

        manyseed verify quickstart

        manyseed verify quickstart --repair
    """
    from manyseed.orchestrator.plans.plan import Plan
    from manyseed.orchestrator.submissions.submission import training
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    with shards_done("verifying", quiet=as_json) as progress:
        result = sweep.verify(repair=repair, progress=progress)
    if as_json:
        print_json(result)
    else:
        for finding in result["findings"]:
            rows = f" ({counted(finding['rows'], 'row')})" if finding["rows"] else ""
            say(f"{finding['group']}: {finding['problem']}{rows}")
        say(f"Checked {counted(result['runs_checked'], 'finished run')}: {_verdict(result)}")
        for sentence in result.get("not_mended", ()):
            say(sentence)
        if result.get("runs_set_back"):
            shown = result["set_back"][:_NAMED]
            more = len(result["set_back"]) - len(shown)
            rest = f" and {more:,} more, which --json names" if more else ""
            say(f"Set back: {', '.join(shown)}{rest}.")
            say_training("Next", sweep.paths, "resume")
    if result["findings"] and not repair:
        n_wrong = result["runs_wrong"]
        retrain = f"; then: {training(sweep.paths, 'resume')}"
        raise RunsError(
            (f"{n_wrong:,} runs are wrong" if n_wrong else "the store is damaged")
            + f"\n  repair it with: {command('verify', directory, '--repair')}"
            + ("" if Plan.read(sweep.paths).is_imported else retrain)
        )


def _verdict(result: Verified) -> str:
    if not result["findings"]:
        return "nothing is wrong."
    if "runs_set_back" not in result:
        wrong = result["runs_wrong"]
        return f"{wrong:,} are wrong." if wrong else "none of them is wrong."
    healed, back = result["runs_healed"], result["runs_set_back"]
    if not healed and not back:
        rest = " as far as possible" if result["not_mended"] else ""
        return f"what was wrong is repaired{rest}, no run is lost."
    return f"{healed:,} restored from journals, {back:,} set back to be trained again."
