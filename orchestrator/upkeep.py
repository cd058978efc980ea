"""Verify what is stored, repair it, tidy up, and write portable copies."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NotRequired, TypedDict

import numpy as np
import polars as pl

from manyseed.analysis.counts import counted
from manyseed.jobs.datasets.tablefile import WORKING_FOLDER
from manyseed.jobs.run import MachineError
from manyseed.jobs.trainer import Trainer
from manyseed.orchestrator.disk.lease import LeaseWatch
from manyseed.orchestrator.disk.parquet import read_parquet
from manyseed.orchestrator.disk.placing import place
from manyseed.orchestrator.disk.records import locked, require_same_plan
from manyseed.orchestrator.errors import (
    RESTORE,
    DamagedFile,
    DamagedShard,
    ManyseedError,
    StoreError,
    UnavailableError,
    UserError,
    command,
)
from manyseed.orchestrator.paths import IMPORTED, JOURNAL, PACKED, RECEIPT, SweepPaths
from manyseed.orchestrator.plans.change import Drop
from manyseed.orchestrator.plans.change import drop as drop_cells
from manyseed.orchestrator.plans.ids import names_of, wrong_ids
from manyseed.orchestrator.plans.layout import (
    Groups,
    copies,
    lay_out,
    wrong_coordinates,
    wrong_descriptions,
)
from manyseed.orchestrator.plans.plan import Plan, mark, marker, write_plan
from manyseed.orchestrator.plans.planning import planned_again
from manyseed.orchestrator.provenance import read_recipe
from manyseed.orchestrator.store.compact import Compaction, publish_free
from manyseed.orchestrator.store.compact import compact as compact_store
from manyseed.orchestrator.store.groups import Group, find_group
from manyseed.orchestrator.store.index import JournalFolder, JournalIndex
from manyseed.orchestrator.store.repair import repair as repair_store
from manyseed.orchestrator.store.repair import require_rest
from manyseed.orchestrator.store.schema import GroupSpec
from manyseed.orchestrator.store.shards import recipes_of
from manyseed.orchestrator.store.testsets import Integers, read_splits
from manyseed.orchestrator.store.verify import Finding, shards_to_verify, verify_journals
from manyseed.orchestrator.store.verify import verify as verify_group
from manyseed.orchestrator.submissions.patience import brief_if_trained
from manyseed.orchestrator.submissions.retries import nothing_finished
from manyseed.orchestrator.submissions.submission import running, submissions
from manyseed.orchestrator.sweepstore import lost_groups, require_sound, ways_back
from manyseed.orchestrator.tasks.attempts import set_back
from manyseed.orchestrator.working.checkpoints import remove_stale


class WrongRows(TypedDict):
    """A finding: the group, what is wrong there, in how many rows, and which runs these are."""

    group: str
    problem: str
    rows: int
    runs: list[str]  # addresses, CELL:REPEAT:RUN


class Verified(TypedDict):
    """The result of checking every finished run, as JSON values; the rest only after a repair."""

    runs_checked: int
    runs_wrong: int
    findings: list[WrongRows]
    groups_unchecked: NotRequired[list[str]]  # whose runs cannot be told apart before a repair
    runs_healed: NotRequired[int]  # restored from journals
    runs_set_back: NotRequired[int]
    set_back: NotRequired[list[str]]  # addresses of these runs, CELL:REPEAT:RUN
    not_mended: NotRequired[list[str]]  # sentences that say what stays damaged, and why


def verify(
    paths: SweepPaths,
    *,
    repair: bool,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Verified:
    """Check every finished run of a sweep, and repair what is wrong.

    `repair`: whether to rebuild damaged files from what is left, restore runs from journals, and
    set back to missing only runs whose predictions are nowhere else. Nobody may train or plan
    meanwhile. `progress`: called before the first shard and after each with (checked shards, all
    shards).
    """
    if not repair:
        return _verified(paths, Plan.read(paths), progress, repair=False)
    with locked(paths.lock, "repairing"):  # nobody plans or creates groups meanwhile
        require_rest(LeaseWatch(paths.leases))
        rebuilt = _rebuilt_plan(paths)
        return _verified(paths, Plan.read(paths), progress, rebuilt, repair=True)


def _rebuilt_plan(paths: SweepPaths) -> list[Finding]:
    """Write again what is lost or damaged of the plan, if its sweep file certainly tells it.

    What is planned again must be what all that is left was made for: the rest of the plan, the
    submissions, the journals and the store. Each file appears whole, so a repetition goes on.
    """
    wrong, last = _wrong_files(paths)
    if not wrong:
        return []
    with tempfile.TemporaryDirectory() as folder:
        made = SweepPaths(Path(folder))
        try:
            _plan_again(paths, made, wrong, last)
            plan, specs = Plan.read(made), Groups.read(made)
            specs.require_of(plan, made)
            _require_same(paths, plan, specs)
        except (ManyseedError, FileNotFoundError) as error:
            told, remedy = str(error), RESTORE
            if isinstance(error, UserError) and WORKING_FOLDER in error.message and error.remedy:
                told, remedy = error.what, error.remedy
            why = told.replace(f"{made.directory}/", "").replace("\n", " ")
            file, reason = next(iter(wrong.items()))
            reason += f", and cannot be rebuilt from {paths.sweep_file.name}: {why}"
            raise DamagedFile(file, reason, remedy) from None
        for file in reversed(wrong):  # cells last: without them there is no sweep to go on with
            file.parent.mkdir(exist_ok=True)
            place(file, (made.directory / file.relative_to(paths.directory)).read_bytes())
    mark(paths)
    return [
        Finding(file.relative_to(paths.directory).as_posix(), f"{reason}; rebuilt from sweep.toml")
        for file, reason in wrong.items()
    ]


def _wrong_files(paths: SweepPaths) -> tuple[dict[Path, str], int]:
    """Return which files of the plan are wrong, and why; and the number of the last part."""
    parts = {file for file in (*paths.parts(), *paths.marked_files()) if file.suffix == ".parquet"}
    last = max([1, *(int(file.stem) for file in parts)])
    files = [paths.cells, *(paths.part(number + 1) for number in range(last)), paths.groups]
    wrong = {}
    for file in files:
        try:
            Groups.read(paths) if file == paths.groups else read_parquet(file)
        except FileNotFoundError:
            wrong[file] = "is absent"
        except DamagedFile as error:
            wrong[file] = error.reason
    if not wrong:  # each is whole, but they may not be of one plan
        try:
            plan = Plan.read(paths)
            (specs := Groups.read(paths)).require_of(plan, paths)
            specs.require_planned(plan, paths)
        except DamagedFile as error:
            file = Path(error.file)
            if file in (*files, paths.part(last + 1)):
                wrong[file] = error.reason
                last += file == paths.part(last + 1)
    return wrong, last


def _plan_again(paths: SweepPaths, made: SweepPaths, wrong: Collection[Path], last: int) -> None:
    """Write the plan into another folder: what is left of it, and what the sweep file tells."""

    def keep(*others: str) -> None:
        gone = {*(file.name for file in wrong), *others}
        if paths.plan.is_dir():
            shutil.copytree(paths.plan, made.plan, ignore=lambda *_: gone, dirs_exist_ok=True)

    lost = [number + 1 for number in range(last) if paths.part(number + 1) in wrong]
    if last > 1 and lost:
        if lost != [last] or len(wrong) > 1:
            raise UserError(f"it was planned {last} times, and the file tells only the last time")
        keep(marker(paths.part(last)).name)
        write_plan(
            made, planned_again(paths, Plan.read(made), Groups.read(made)).after, new_part=True
        )
    else:
        change = planned_again(paths, Plan.empty(), Groups())
        plan = change.after
        if last > 1 and paths.cells in wrong:
            plan = _as_in_parts(plan, [read_parquet(paths.part(n + 1)) for n in range(last)])
        change.groups.write(made)
        write_plan(made, plan, new_part=last == 1)
    keep()


def _as_in_parts(plan: Plan, parts: Sequence[pl.DataFrame]) -> Plan:
    """Return cells planned again as parts that are left added them."""
    used = [part.select("cell", part=pl.lit(n, pl.UInt32)) for n, part in enumerate(parts, 1)]
    first = pl.concat(used).group_by("cell").agg(pl.col("part").min())
    cells = plan.all_cells.drop("part").join(first, on="cell", how="left").sort("cell")
    return Plan(cells, tuple(parts), plan.dropped)


def _require_same(paths: SweepPaths, plan: Plan, specs: Groups) -> None:
    """Refuse a plan for which submissions, journals or rows of the store were not made."""
    for one in submissions(paths):
        require_same_plan(one.files.intent, one.intent.plan, plan.identity)
    for name in JournalIndex(plan.journals(paths)).foreign:
        raise DamagedFile(paths.journals / name, "holds runs of another plan")
    specs.require_planned(plan, paths)
    differing = [*wrong_descriptions(paths, plan, specs)]
    found = [find_group(paths.store, spec) for spec in specs.specs]
    groups = [group for group in found if group is not None]
    differing += [] if differing else [*wrong_coordinates(plan, groups)]
    for path in differing:
        raise DamagedFile(paths.store / path, "holds runs of another plan, or is damaged, too")


def _verified(
    paths: SweepPaths,
    plan: Plan,
    progress: Callable[[int, int], None],
    rebuilt: Sequence[Finding] = (),
    *,
    repair: bool,
) -> Verified:
    """Verify; first mend what follows from the plan, so that everything else can be read."""
    specs = Groups.read(paths)
    specs.require_planned(plan, paths)  # otherwise a repair would truncate groups
    wrong_files = wrong_descriptions(paths, plan, specs, mend=repair) if plan.parts else {}
    others = [
        *rebuilt,
        *(
            Finding(path, f"{', '.join(files)}: cannot be read, or differ from the plan")
            for path, files in wrong_files.items()
        ),
    ]
    lost = lost_groups(paths, plan)
    lost_rows = {spec.number: _rows(paths, plan, spec) for spec in lost}
    others += [
        Finding(spec.path, "is lost, with all its runs", lost_rows[spec.number]) for spec in lost
    ]
    if repair and lost and not plan.is_imported:
        lay_out(paths, plan, specs)
    unreadable = set() if repair else wrong_files.keys()
    groups = [
        group
        for spec in specs.specs
        if spec.path not in unreadable and (group := find_group(paths.store, spec)) is not None
    ]
    wrong_columns = wrong_coordinates(plan, groups, mend=repair) if groups else {}
    for path, names in wrong_columns.items():
        others.append(Finding(path, f"{', '.join(names)} cannot be read or differ from the plan"))
    if not repair:  # nobody can tell which runs their rows are
        groups = [group for group in groups if group.spec.path not in wrong_columns]
    journals = JournalIndex(plan.journals(paths))
    shards = sum(len(shards_to_verify(group)) for group in groups)
    checked: list[int] = []  # finished runs of each shard, then those in journals

    def report(runs: int) -> None:
        checked.append(runs)
        progress(min(len(checked), shards), shards)

    progress(0, shards)
    found: list[Finding] = []
    for group in groups:
        found += verify_group(group, report, journals=journals)
    for group in groups:
        found += verify_journals(group, journals, checked.append)
    unknown = list(_unknown_recipes(paths, groups, journals))
    unknown += [
        Finding(file, f"{reason}: points have numbers until it is restored from a copy")
        for file, reason in wrong_ids(paths)
    ]
    unknown += [
        Finding(f"{paths.journals / name}", "holds runs of another sweep, which do not count here")
        for name in journals.foreign
    ]
    others += unknown
    numbers_of = {spec.path: spec.number for spec in specs.specs}
    wrong = {(finding.group, row) for finding in (*others, *found) for row in finding.rows}
    result: Verified = {
        "runs_checked": sum(checked),
        "runs_wrong": len(wrong),
        "findings": [
            {
                "group": f.group,
                "problem": f.problem,
                "rows": len(f.rows),
                "runs": [*_addresses(plan, {numbers_of[f.group]: f.rows})] if f.rows else [],
            }
            for f in (*others, *found)
        ],
    }
    if unchecked := [] if repair else [*dict.fromkeys([*unreadable, *wrong_columns])]:
        result["groups_unchecked"] = unchecked
    if repair and (others or found):
        named: list[str] = []

        def before_dropping(rows: Mapping[Group, Collection[int]]) -> None:
            numbers = {group.spec.number: some for group, some in rows.items()}
            named.extend(_addresses(plan, numbers))
            set_back(paths, plan.identity, numbers)

        done = repair_store(
            groups,
            found,
            plan.journals(paths),
            LeaseWatch(paths.leases),
            copies={group.spec.path: copies(plan, group) for group in groups},
            test_sets=TestSets(plan, groups),
            before_dropping=before_dropping,
        )
        unmended = [f"{one.group}: {one.problem}" for one in unknown]
        n_lost = 0
        if plan.is_imported:
            unmended += [f"{spec.path} is lost: {ways_back(plan)}" for spec in lost]
        elif lost:
            n_lost = sum(map(len, lost_rows.values()))
            named += _addresses(plan, lost_rows)
        result |= {
            "runs_healed": done.healed,
            "runs_set_back": done.dropped + n_lost,
            "set_back": named,
            "not_mended": [*done.unmade, *unmended],
        }
    return result


def _rows(paths: SweepPaths, plan: Plan, spec: GroupSpec) -> tuple[int, ...]:
    """Return the planned rows of a group that no journal holds."""
    planned = set(plan.rows.filter(group=spec.number)["row"].to_list())
    return tuple(sorted(planned - {*JournalIndex(plan.journals(paths)).rows(spec.number).tolist()}))


def _unknown_recipes(
    paths: SweepPaths, groups: Iterable[Group], journals: JournalIndex
) -> Iterator[Finding]:
    """Yield a finding for each lost or damaged recipe that finished runs have."""
    for group in groups:
        with suppress(DamagedShard):  # `verify_group` reports it
            for number, count in recipes_of(group, journals).items():
                try:
                    read_recipe(paths.recipes, number)
                except DamagedFile as error:
                    problem = f"how {counted(count, 'run')} came about is unknown: {error.file}: "
                    yield Finding(group.spec.path, f"{problem}{error.reason}")


def _addresses(plan: Plan, rows: Mapping[int, Collection[int]]) -> Iterator[str]:
    """Yield the addresses, CELL:REPEAT:RUN, of the runs in these rows of groups (by number)."""
    wanted = pl.any_horizontal(
        (pl.col("group") == group) & pl.col("row").is_in(sorted(some))
        for group, some in rows.items()
    )
    runs = plan.all_rows.filter(wanted).select("cell", "repeat", "run")
    for cell, repeat, run in runs.sort("cell", "repeat", "run").iter_rows():
        yield f"{cell}:{repeat}:{run}"


def compact(
    paths: SweepPaths, progress: Callable[[int, int], None] = lambda done, of: None
) -> Compaction:
    """Publish everything in journals, and tidy up; see `Sweep.compact`."""
    if not paths.store.exists():
        return Compaction(0, 0, (), 0)
    if any(paths.journals.glob(f"{IMPORTED}*")):  # left by an interrupted import
        from manyseed.orchestrator.importing.matching import settle

        settle(paths)
    watch = LeaseWatch(paths.leases)
    done = compact_store(paths.store, _journals(paths), watch, progress=progress)
    remove_stale(paths)
    return done


def publish_finished(paths: SweepPaths) -> None:
    """Publish everything in journals; while tasks may train, only shards that nobody publishes."""
    try:
        with brief_if_trained(paths):
            is_running = bool(running(submissions(paths)))
    except UnavailableError:  # a cluster that does not answer: tasks may train there
        is_running = True
    if not is_running:
        compact(paths)
    elif paths.store.exists():
        publish_free(paths.store, _journals(paths), LeaseWatch(paths.leases))


def _journals(paths: SweepPaths) -> JournalFolder:
    """Return the journals of a sweep; raise if its plan is not whole."""
    plan = Plan.read(paths)
    Groups.read(paths).require_planned(plan, paths)
    return plan.journals(paths)


def drop(paths: SweepPaths, where: str) -> Drop:
    """Take cells out of the plan unless something trains; see `Sweep.drop`."""
    require_untrained(paths)
    return drop_cells(paths, where)


def require_untrained(paths: SweepPaths) -> None:
    """Refuse what must not happen while something trains."""
    if alive := running(submissions(paths)):
        raise UserError(
            f"the sweep is being trained: {alive[-1].folder}",
            file=paths.directory,
            remedy=f"wait for it, or stop it with: {command('cancel', paths.directory)}",
        )


def export(paths: SweepPaths, output: Path) -> Path:
    """Write one portable copy of the finished runs; see `Sweep.export`."""
    from manyseed.orchestrator.store.exchange import export_csv, export_parquet, export_zip

    if output.suffix not in (".zip", ".parquet", ".csv"):
        remedy = "use a name that ends in .zip (Zarr), .parquet or .csv"
        raise UserError("unknown format", file=output, remedy=remedy)
    if output.exists():
        raise UserError("exists already", file=output, remedy="remove it or choose another name")
    # without journals there is nothing to publish: a read-only sweep can be exported, too
    if any(paths.journals.glob(f"*{JOURNAL}")):
        publish_finished(paths)
    if not paths.store.exists():
        raise nothing_finished(paths)
    require_sound(paths)
    if output.suffix == ".zip":
        files = sorted(
            file for file in (paths.sweep_file, *paths.plan.rglob("*")) if file.is_file()
        )
        named = {file.relative_to(paths.directory).as_posix(): file for file in files}
        # marks of given numbers are not exported: in a copy the store shows which numbers are used
        beside = {name: file for name, file in named.items() if re.fullmatch(PACKED, name)}
        beside |= {RECEIPT: paths.receipt} if paths.receipt.is_file() else {}
        export_zip(paths.store, output, beside)
    elif output.suffix == ".csv":
        plan = Plan.read(paths)
        every = plan.all_cells["dataset"].cast(pl.String).unique(maintain_order=True)
        found = {name: names_of(paths, plan, name) for name in every}
        export_csv(
            paths.store,
            output,
            {name: of for name, of in found.items() if of is not None and len(of)},
        )
    else:
        export_parquet(paths.store, output)
    return output


Sets = tuple[Integers, Integers]


class TestSets:
    """Makes test sets of groups.

    `groups`: groups whose test sets may be read if the data is not on this machine: groups of one
    dataset share theirs.
    """

    __test__ = False  # or pytest takes it for a test

    def __init__(self, plan: Plan, groups: Sequence[Group]) -> None:
        self._plan, self._groups, self._trainer = plan, groups, Trainer()

    def __call__(self, group: Group, start: int, stop: int) -> Sets | None:
        """Return `y_true` and `test_index` (repeat, sample) of a range of repeats, or None."""
        try:
            cell = self._plan.first_cell(group.spec.number)
            sets = [self._trainer.test_set(cell, repeat) for repeat in range(start, stop)]
        except (MachineError, ValueError, LookupError, TypeError):
            return self._of_another_group(group, start, stop)
        return np.stack([one.y_true for one in sets]), np.stack([one.index for one in sets])

    def _of_another_group(self, group: Group, start: int, stop: int) -> Sets | None:
        """Read the test sets of another group of the same dataset."""
        wanted = self._dataset(group)
        for other in self._groups if wanted is not None else ():
            if other.spec.number == group.spec.number or self._dataset(other) != wanted:
                continue
            length = other.spec.split_length
            files = [
                other.file(other.spec.array(name), chunk)
                for name in ("y_true", "test_index")
                for chunk in range(start // length, -(-stop // length))
            ]
            if not all(file.exists() for file in files):
                continue
            try:
                y_true, index = (values[start:stop] for values in read_splits(other))
            except StoreError:
                continue
            if len(index) == stop - start and (index >= 0).all():
                return y_true, index
        return None

    def _dataset(self, group: Group) -> object:
        """Return what determines the test sets of a group; None for imported predictions."""
        cell = self._plan.first_cell(group.spec.number)
        is_imported = cell.classifier.get("source") == "imported"
        return None if is_imported else (cell.dataset, group.spec.samples)
