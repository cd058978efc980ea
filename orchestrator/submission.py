"""Submit what is missing, once, and know what is still alive."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from orchestrator import origin
from orchestrator.data import require_fetched
from orchestrator.errors import UnavailableError, UserError
from orchestrator.files import locked, read_json, write_json
from orchestrator.groups import Groups
from orchestrator.layout import lay_out
from orchestrator.paths import SweepPaths
from orchestrator.room import Stored, require_room
from orchestrator.survey import Survey, survey
from orchestrator.tasks import Task, make_task
from slurm import local

_SILENT_SECONDS = 120.0


@dataclass(frozen=True)
class Submission:
    """One submission: its folder, and what it was asked to do."""

    folder: Path
    intent: dict[str, Any]

    @property
    def number(self) -> int:
        """The submission's number within the sweep."""
        return int(self.folder.name)

    @property
    def n_runs(self) -> int:
        """Runs that it was given."""
        return int(self.intent["runs"])

    def lives(self) -> list[dict[str, Any]]:
        """Return what each life last told of itself."""
        return [
            read_json(file) | {"life": file.parent.name}
            for file in sorted((self.folder / "lives").glob("*/progress.json"))
        ]

    def is_alive(self) -> bool:
        """Whether a process of this submission may still train.

        Of another machine's processes only their files are seen: one that tells of no end counts as
        alive while they change.
        """
        job, lives = self.folder / "job.json", self.lives()
        # without a note of the job it is being submitted, or its submitter died
        first = read_json(job)["process"] if job.exists() else self.intent["submitter"]
        running = [life["process"] for life in lives if life["state"] == "running"]
        if any(local.is_alive(name) for name in (first, *running)):
            return True
        told = running if lives else [first]
        return any(not local.is_here(name) for name in told) and self._changed_lately()

    def _changed_lately(self) -> bool:
        files = (self.folder / "lives").glob("*/progress.json")
        return any(time.time() - file.stat().st_mtime < _SILENT_SECONDS for file in files)

    def ask_to_stop(self) -> None:
        """Let the submission's tasks finish the fits in flight, then end."""
        (self.folder / "stop").touch()


def submissions(paths: SweepPaths) -> list[Submission]:
    """Return a sweep's submissions, oldest first."""
    return [
        Submission(folder, read_json(folder / "intent.json"))
        for folder in paths.submissions()
        if (folder / "intent.json").exists()
    ]


def submit(
    paths: SweepPaths, *, workers: int, failed: bool = False, other_recipe: bool = False
) -> Submission | None:
    """Submit every missing run to this machine; return None where nothing is missing.

    Runs that a living task has are never submitted again, and failed ones only when asked.

    Parameters
    ----------
    paths : SweepPaths
    workers : int
        Training processes; there are never more.
    failed : bool
        Submit exactly the failed runs instead of the missing ones.
    other_recipe : bool
        Allow that this machine's recipe differs from the recorded ones.

    Raises
    ------
    UserError, UnavailableError
    """
    with locked(paths.lock, "submitting"):
        state = survey(paths)
        rows = state.with_state("failed" if failed else "missing")
        alive = [submission for submission in submissions(paths) if submission.is_alive()]
        if alive and not rows.is_empty():
            rows = rows.join(_held(alive), on=["group", "row"], how="anti")
        if rows.is_empty():
            return None
        _check_recipe(paths, other_recipe)
        _check_data(paths, state, rows)
        groups = Groups.read(paths)
        _check_room(paths, state, groups, rows)
        return _submit(paths, state, groups, rows, workers)


def _submit(
    paths: SweepPaths, state: Survey, groups: Groups, rows: pl.DataFrame, workers: int
) -> Submission:
    try:
        lay_out(paths, state.plan, groups)
        number = len(paths.submissions()) + 1
        folder = paths.submission(number)
        shard_lengths = {spec.number: spec.shard_length for spec in groups.specs}
        task = make_task(state.plan, rows, shard_lengths)
        (folder / "lives").mkdir(parents=True)
        task.write(folder / "task-0000.json")
        intent = {
            "cluster": "local",
            "runs": task.n_runs,
            "workers": workers,
            "submitter": local.fingerprint(os.getpid()),
            "submitted": time.time(),
        }
        write_json(folder / "intent.json", intent)
        arguments = [str(paths.directory.resolve()), str(number), "0", str(workers)]
        job = local.submit(folder / "submitit", "orchestrator.worker:run_task", arguments, {})
        write_json(folder / "job.json", {"job_id": job.job_id, "process": job.process})
    except (OSError, RuntimeError) as error:
        raise UnavailableError(f"cannot submit to this machine: {error}") from None
    return Submission(folder, intent)


def _held(alive: list[Submission]) -> pl.DataFrame:
    """Return the rows that living tasks have."""
    pairs = [
        (span.group, row)
        for submission in alive
        for file in sorted(submission.folder.glob("task-*.json"))
        for span in Task.read(file).spans
        for row, _ in span.runs()
    ]
    return pl.DataFrame(pairs, schema={"group": pl.UInt32, "row": pl.UInt32}, orient="row")


def _check_data(paths: SweepPaths, state: Survey, rows: pl.DataFrame) -> None:
    cells = state.plan.cells.join(rows.select("cell").unique(), on="cell", how="semi")
    one_each = cells.unique("dataset", keep="first", maintain_order=True)
    canonicals = {
        row["dataset"]: json.loads(row["canonical"])["dataset"]
        for row in one_each.iter_rows(named=True)
    }
    require_fetched(canonicals, paths.sweep_file)


def _check_room(paths: SweepPaths, state: Survey, groups: Groups, rows: pl.DataFrame) -> None:
    repeats = state.plan.rows.group_by("group").agg(pl.col("repeat").max().cast(pl.Int64) + 1)
    counts = rows.group_by("group").agg(rows=pl.len()).join(repeats, on="group").sort("group")
    missing = [Stored(groups.specs[group], n, last) for group, n, last in counts.iter_rows()]
    require_room(paths.directory, missing)


def _check_recipe(paths: SweepPaths, other_recipe: bool) -> None:
    recipes = origin.read_recipes(paths.recipes)
    recorded = {number: origin.of_machine(value) for number, value in recipes.items()}
    here = origin.recipe()
    if not recorded or other_recipe or here in recorded.values():
        return
    last = recorded[max(recorded)]
    changed = [key for key in here if here[key] != last.get(key)]
    shown = ", ".join(f"{key}: {last.get(key)} → {here[key]}" for key in changed)
    raise UserError(
        f"runs of this sweep were made in another recipe ({shown})",
        file=paths.recipes,
        remedy="restore it, or mix recipes knowingly with --other-recipe: results mark the repeats",
    )
