"""Why a run that is not published was not finished."""

from __future__ import annotations

from manyseed.orchestrator.errors import command
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.runs.description import find_run
from manyseed.orchestrator.submissions.hints import training
from manyseed.orchestrator.survey import STATES, survey
from manyseed.orchestrator.tasks.attempts import Attempt
from manyseed.orchestrator.tasks.setback import failures
from manyseed.orchestrator.tasks.submissionpaths import LOG


def unfinished(paths: SweepPaths, address: str) -> tuple[dict[str, object], dict[str, object]]:
    """Return the state of a run that the store does not hold.

    Returns
    -------
    stored : dict
        Its status, and whether only a journal holds it.
    failed : dict
        Why it failed, where, how often, and what to do; empty if it did not.
    """
    planned, state = find_run(paths, address), survey(paths)
    place = (planned.spec.number, planned.row)
    code = int(state.states[planned.spec.number][planned.row])
    status = {code: name for name, code in STATES.items()}[code]
    if place not in state.failures:
        is_there = status in ("done", "copy")
        return {"status": status, **({"journal": "not published yet"} if is_there else {})}, {}
    identity = state.plan.identity
    every = [one for one in failures(paths, identity) if (one.group, one.row) == place]
    last, folder = every[-1], every[-1].file.parent
    attempt = Attempt.read(folder, identity)
    return {"status": status}, {
        "error": last.error,
        "attempts": len(every),
        "node": attempt.node or None,
        "task": f"{int(folder.parent.parent.name)}/{attempt.task}",
        "log": str(folder / LOG),
        "traceback": command("logs", paths.directory, address),
        "retry": training(paths, "resume", "--failed"),
    }
