"""How failed runs are trained again: the command, also for own code that was mended."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from manyseed.jobs.checks import cut
from manyseed.orchestrator.errors import ManyseedError, RunsError, UserError, command
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.submissions.submission import is_training, on_cluster, training, watching
from manyseed.orchestrator.tasks.attempts import COPY_OF_FAILED, kind

if TYPE_CHECKING:
    import polars as pl

    from manyseed.orchestrator.survey import Survey


class Mended(NamedTuple):
    """Words that `resume` needs for own code whose runs failed, and a note on them; mostly none."""

    note: str = ""
    words: Sequence[str] = ()


def as_mended(paths: SweepPaths, state: Survey, *, missing: bool = False) -> Mended:
    """Return how `resume` trains own code again after runs failed, or `missing` ended a process.

    Code that has changed since others of it finished makes another recipe.
    """
    suspect = state.with_state("failed", *["missing"] * missing).select("cell").unique()
    if suspect.is_empty():
        return Mended()
    from manyseed.jobs.classifiers import is_own
    from manyseed.orchestrator.plans.code import CodeHere
    from manyseed.orchestrator.provenance import code_key, read_recipes

    def keys(cells: pl.DataFrame) -> set[str]:
        texts = (text for text in cells["canonical"] if '"own":' in text)
        described = (json.loads(text)["classifier"] for text in texts)
        return {code_key(one) for one in described if is_own(one)}

    cells = state.plan.cells.join(suspect, on="cell", how="semi")
    wrong = keys(cells)
    wrong = wrong and wrong & keys(state.finished_cells)
    recipes = read_recipes(paths.recipes).values() if wrong else ()
    digests = (one.own.get(key, "") for one in recipes if one.own for key in wrong)
    # users mend files; libraries have versions instead
    if not any(digest.startswith("sha256:") for digest in digests):
        return Mended()
    with suppress(ManyseedError, OSError):  # code that is not found here is used from its copy
        if CodeHere(paths, cells).changed(state.finished_cells):
            return Mended(" with the changed code", ["--other-recipe"])
    return Mended(" (add --other-recipe once its code is mended)")


def retrying(paths: SweepPaths, state: Survey | None = None) -> str:
    """Return the command that trains failed runs again, with own code as it is now."""
    from manyseed.orchestrator.survey import survey  # imports polars

    return command(*retry(paths, as_mended(paths, state or survey(paths))))


def retry(paths: SweepPaths, mended: Mended) -> tuple[object, ...]:
    """Return the words of `retrying`'s command."""
    return ("resume", paths.directory, "--failed", *mended.words, *on_cluster(paths))


def nothing_finished(paths: SweepPaths) -> UserError | RunsError:
    """Return the error for a request that needs a finished run; it says why runs failed, if any."""
    from manyseed.orchestrator.survey import survey  # imports polars

    state, trains = survey(paths), is_training(paths)
    if failed := state.counts["failed"]:
        again = f"train them again: {retrying(paths, state)}"
        every = [*state.failures.values()]
        # a copy of a failed run failed for the same reason
        causes = [failure for failure in every if not failure.error.endswith(COPY_OF_FAILED)]
        kinds = Counter(kind(failure) for failure in causes or every)
        its, count = kinds.most_common(1)[0]
        error = next(failure.error for failure in causes or every if kind(failure) == its)
        total = state.counts["runs"]
        what = f"all {total:,} runs failed" if failed == total else f"{failed:,} of {total:,} runs"
        what = what if failed == total else f"no run is finished, and {what} failed"
        most = f", {count:,} of them" if len(kinds) > 1 else ""
        return RunsError(
            f"{paths.directory}: {what}{most}: {cut(error.splitlines()[0])}\n"
            f"  see the tracebacks: {command('logs', paths.directory, '--failed')}\n"
            f"  then {f'watch the tasks that train: {watching(paths)}' if trains else again}"
        )
    remedy = watching(paths) if trains else training(paths, "submit")
    return UserError("no run is finished yet", file=paths.directory, remedy=remedy)
