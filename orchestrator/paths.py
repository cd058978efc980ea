"""All file names of a sweep directory; those of submissions are in the room `tasks`."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import quote

from manyseed.jobs.checks import paths_near
from manyseed.orchestrator.errors import RESTORE, DamagedFile, UserError, command, meant

JOURNAL, TOMBSTONE, LEASE = ".journal", ".tombstone", ".lease"
"""Suffixes of names below ``tasks/journals`` and ``tasks/leases``."""

WARNED = "# import warned: "
"""Begins comments of an imported sweep's file, which results repeat."""

IMPORTED = "import-"
"""Prefix of journals that an import writes; the number of its plan part follows."""

LEDGER, LEDGER_MARK = "retrained.json", "retrained.given"
"""In the folder of journals: the fits trained more than once, and the mark of that file."""

RECIPE, GIVEN = ".json", ".given"
"""Suffixes of a recipe's files: its content, and the mark that its number was given."""

WORKER_KEYS = "keys.json"  # TLS keys of dask's workers, in the folder of their jobs while these run

METADATA = "zarr.json"  # the file that Zarr reads first in a store, in each group and in each array

SET_SUMS = "crc32c.json"
"""Checksums of a group's test sets, beside the chunks of its ``test_index``."""

REPLICA = "records"
"""The record arrays of a shard a second time: this and its number, beside its ``label``."""

DRAWN = ("ensembles", "ensemble_draws")  # tables that `howmany` writes
BESIDE = ".manyseed"  # the folder of an exported store that holds plan and sweep file

RECEIPT = "ro-crate-metadata.json"  # the name that RO-Crate prescribes

PACKED = r"sweep\.toml|plan/(?:[a-z]+/)?[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\.(?:json|parquet)"
"""The pattern of their names, relative to the sweep: other programs' files are not exported."""

CHUNK = r"c(?P<place>(?:\.[0-9]{1,9})*)"
"""The pattern of the names of an array's files, beside its metadata."""

REWRITTEN = (
    rf"(?:.*/)?\.[^/]*|{re.escape(RECEIPT)}|(?:plan|results)/(?:.*/)?[^/]*\{GIVEN}"
    r"|results/(?:inputs\.parquet|checked\.json|answers\.json|figures\.json\.z)"
    rf"|predictions\.zarr/(?:.*/)?(?:{REPLICA}\.[0-9]+|{re.escape(SET_SUMS)})"
)
"""The pattern of names, outside ``tasks``, of what commands rewrite: no seal holds them."""

UNFINISHED, MAKER = ".manyseed-", ".maker"
"""Prefix of a directory being created, and the file in it that names the creating process."""

NAME_BYTES = 255  # most bytes that file systems allow in the name of a file or folder

_NUMBERED = "[0-9][0-9][0-9][0-9]"


class Below:
    """A file or folder, by its path below the first field of the dataclass that has it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __get__(self, one: Any, _: object = None) -> Path:
        folder: Path = getattr(one, fields(one)[0].name)
        return folder / self._path


@dataclass(frozen=True, slots=True)
class SweepPaths:
    """The files of one sweep directory; ``docs/design.md`` says what each holds."""

    directory: Path

    sweep_file = Below("sweep.toml")  # the sweep file that the plan was made from
    plan = Below("plan")  # cells, immutable parts and recipes
    cells = Below("plan/cells.parquet")  # one row per cell
    groups = Below("plan/groups.json")  # the layout of each group of the store
    own = Below("plan/own.json")  # where users' own code was, and what was found out about it
    estimate = Below("plan/promise.json")  # the estimated cost of the plan
    recipes = Below("plan/recipes")  # how runs were made, one JSON file per recipe
    store = Below("predictions.zarr")  # the predictions
    tasks = Below("tasks")  # submissions: task lists, journals, failures, scheduler files
    journals = Below("tasks/journals")  # finished runs until compacted, a file per process
    checkpoints = Below("tasks/checkpoints")  # long fits until they are finished
    leases = Below("tasks/leases")  # publishing leases of shards
    responses = Below("responses")  # answers of kept models, one table for each way of asking
    analyses = Below("tasks/analyses")  # jobs, a folder each, and the lease on the analysis
    searching = Below("tasks/searches")  # searches for hparams that are jobs, a folder each
    receipt = Below(RECEIPT)  # the SHA-256 of what was sealed
    lock = Below(".lock")  # held while planning or submitting
    tuning_lock = Below(".tuning.lock")  # held while searching for hparams
    responding_lock = Below(".responding.lock")  # held while asking kept models
    results = Below("results")  # the result tables
    analysis = Below("results/analysis.json")  # its conventions, inputs and versions
    ensembles_mark = Below(f"results/ensembles{GIVEN}")  # that they were drawn, to notice a loss
    compared = Below("results/checked.json")  # shards compared with their checksums
    answers = Below("results/answers.json")  # the sentences on the result tables
    figures = Below("results/figures.json.z")  # the page's, and what they were drawn from
    until = Below("results/until.json")  # which cells have enough runs, and for which question
    report = Below("report/index.html")  # the report's page

    def code(self, digest: str) -> Path:
        """Return the copy of users' own code with this digest, which tasks import."""
        return self.tasks / "code" / digest.removeprefix("sha256:")[:32]

    def part(self, number: int) -> Path:
        """Return one immutable part of the plan: one row per run."""
        return self.plan / f"{number:04d}.parquet"

    def parts(self) -> list[Path]:
        """Return all parts, oldest first."""
        return sorted(self.plan.glob(f"{_NUMBERED}.parquet"))

    def dropped(self, number: int) -> Path:
        """Return one list of cells that were taken out of the plan."""
        return self.plan / f"dropped-{number:04d}.json"

    def all_dropped(self) -> list[Path]:
        """Return all such lists, oldest first."""
        return sorted(self.plan.glob(f"dropped-{_NUMBERED}.json"))

    def marked_files(self) -> list[Path]:
        """Return the parts and lists of dropped cells that have a mark beside them."""
        return sorted(mark.with_suffix("") for mark in self.plan.glob(f"*.*{GIVEN}"))

    def points(self, group: int) -> Path:
        """Return what points of an imported dataset are called; `group`: its first group."""
        return self.plan / "points" / f"{group:04d}.parquet"

    def all_points(self) -> list[Path]:
        """Return all such files."""
        return sorted((self.plan / "points").glob("[0-9]*.parquet"))

    def tuned(self, search: str) -> Path:
        """Return the file of the hparams that a search found."""
        return self.plan / "tuned" / f"{search}.json"

    def scale(self, search: str) -> Path:
        """Return the file of the scale that a search found."""
        return self.plan / "tuned" / f"{search}.scale.json"

    def all_scales(self) -> list[Path]:
        """Return the files of all complete searches for scales."""
        return sorted((self.plan / "tuned").glob("*.scale.json"))

    def all_tuned(self) -> list[Path]:
        """Return the files of all complete searches for hparams."""
        scales = {*self.all_scales()}
        return sorted({*(self.plan / "tuned").glob("*.json")} - scales)

    def stack(self, key: str) -> Path:
        """Return the file of how many runs of a shape are trained at once."""
        return self.plan / "stacks" / f"{key}.json"

    def all_stacks(self) -> list[Path]:
        """Return all such files."""
        return sorted((self.plan / "stacks").glob("*.json"))

    def tuning(self, search: str) -> Path:
        """Return the file of draws of an incomplete search."""
        return self.tasks / "tuning" / f"{search}.jsonl"

    def checkpoint(self, group: int, row: int) -> Path:
        """Return the checkpoint of the fit of one row."""
        return self.checkpoints / f"{group}-{row}"

    def submission(self, number: int) -> Path:
        """Return the folder of one submission."""
        return self.tasks / f"{number:04d}"

    def submissions(self) -> list[Path]:
        """Return all submissions' folders, oldest first."""
        return sorted(self.tasks.glob(_NUMBERED))

    def unfinished_submission(self, name: str) -> Path:
        """Return a folder that will become a submission's, under its own `name`."""
        return self.tasks / f".submission.partial{name}"

    def unfinished_submissions(self) -> list[Path]:
        """Return all such folders."""
        return list(self.tasks.glob(".submission.partial*"))

    def set_back(self, name: str) -> Path:
        """Return one list of runs that a repair set back to missing."""
        return self.tasks / f"set-back-{name}.json"

    def all_set_back(self) -> list[Path]:
        """Return all such lists."""
        return sorted(self.tasks.glob("set-back-*.json"))

    def response(self, name: str) -> Path:
        """Return one table of answers."""
        return self.responses / f"{name}.parquet"

    def all_responses(self) -> list[Path]:
        """Return all tables of answers, by name."""
        return sorted(self.responses.glob("[!.]*.parquet"))

    def responding(self, name: str) -> Path:
        """Return the file of answers that becomes a table once all models have answered."""
        return self.tasks / "responding" / f"{name}.jsonl"

    def analysis_job(self, number: int) -> Path:
        """Return the folder of one analysis that is a job."""
        return self.analyses / f"{number:04d}"

    @property
    def copying(self) -> tuple[str, str]:
        """The command that copies a sweep which is read-only here, and the copy; else empty."""
        if not self.directory.is_dir() or os.access(self.directory, os.W_OK):
            return "", ""
        copy = f"{self.directory.absolute().name}-copy"
        return f"cp -r {shlex.quote(str(self.directory))} {shlex.quote(copy)}", copy

    @property
    def analysing(self) -> str:
        """The command that computes the results: of a copy, if the sweep is read-only here."""
        copying, copy = self.copying
        if not copying:
            return command("analyze", self.directory)
        return f"{copying} && {command('analyze', copy)} (it is read-only here)"

    def analysis_jobs(self) -> list[Path]:
        """Return all analyses' folders, oldest first."""
        return sorted(self.analyses.glob(_NUMBERED))

    def search_job(self, number: int) -> Path:
        """Return the folder of one search that is a job."""
        return self.searching / f"{number:04d}"

    def search_jobs(self) -> list[Path]:
        """Return all searches' folders, oldest first."""
        return sorted(self.searching.glob(_NUMBERED))

    def table(self, name: str) -> Path:
        """Return the file of a result table."""
        return self.results / f"{name}.parquet"

    @property
    def is_sweep(self) -> bool:
        """Whether the directory holds a plan and a sweep file."""
        return self.cells.is_file() and self.sweep_file.is_file()

    @property
    def lost(self) -> Path | None:
        """Which of the two is gone; None if both are there, or if this was no sweep."""
        if self.cells.is_file():
            return None if self.sweep_file.is_file() else self.sweep_file
        was = self.parts() or self.store.is_dir() or self.submissions()
        return self.cells if was and self.sweep_file.is_file() else None


def recipe_file(folder: Path, number: int) -> Path:
    """Return the file of a recipe in its folder."""
    return folder / f"{number:04d}{RECIPE}"


def recipe_mark(folder: Path, number: int) -> Path:
    """Return the file that marks a recipe's number as given, for good."""
    return folder / f"{number:04d}{GIVEN}"


def open_sweep(directory: Path, *, to_read: bool = False) -> SweepPaths:
    """Return the paths of an existing sweep; one `to_read` may have lost its sweep file."""
    paths = SweepPaths(directory)
    if not directory.exists():
        beside = directory.with_name(f"{directory.name}.toml")
        file = beside if beside.is_file() else "SWEEP.toml"
        make = f"make it with: {command('plan', file, '--out', directory)}"
        near = meant([one for one in paths_near(directory) if SweepPaths(Path(one)).is_sweep])
        remedy = f"{near} Else {make}" if near else make
        raise UserError("there is no such directory", file=directory, remedy=remedy)
    if paths.lost == paths.sweep_file:
        if to_read:
            return paths
        raise DamagedFile(paths.sweep_file, "is absent", restoring(paths))
    # whoever reads a plan without cells says that they are absent; a repair rebuilds them
    if not paths.is_sweep and paths.lost != paths.cells:
        if directory.suffix != ".toml":
            hint = f"plan a sweep file with: {command('plan', 'SWEEP.toml')}"
            raise UserError("not a sweep directory", file=directory, remedy=hint)
        planned = _planned_from(directory)
        hint = f"name the sweep that was planned from it: {planned}"
        if planned is None:
            plan, train = command("plan", directory), command("run", directory)
            hint = f"plan it with: {plan}\n  or plan, train and analyse with: {train}"
        raise UserError("is a sweep file, not a sweep directory", file=directory, remedy=hint)
    return paths


def restoring(paths: SweepPaths) -> str:
    """Say how a lost sweep file is restored."""
    again = command("plan", "SWEEP.toml", "--out", paths.directory)
    return f"{RESTORE}, or plan the file that it was a copy of: {again}"


def _planned_from(file: Path) -> Path | None:
    """Return the sweep that bears the name in a sweep file, if it is here or beside the file."""
    try:
        name = str(tomllib.loads(file.read_text("utf-8-sig"))["name"])
    except (OSError, ValueError, KeyError):
        return None
    beside = (Path(name), file.parent / name) if name else ()
    return next((each for each in beside if SweepPaths(each).is_sweep), None)


def encode_name(name: str) -> str:
    """Percent-encode a name so that any file system and Zarr accept it as a folder."""
    if not name:
        raise ValueError("a dataset or classifier needs a name")
    encoded = quote(name, safe="")
    if encoded[0] in "._" or encoded == METADATA:
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    if len(encoded) > NAME_BYTES:
        raise ValueError(
            f"percent-encoded, as a folder of the store, it takes {len(encoded)} bytes; "
            f"at most {NAME_BYTES} are allowed"
        )
    return encoded
