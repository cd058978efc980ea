"""The store of a sweep, checked against its plan: all reading for results begins here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.counts import some
from manyseed.jobs.checks import similar
from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.disk.records import read_record, write_json
from manyseed.orchestrator.errors import (
    DamagedGroup,
    DamagedShard,
    ManyseedError,
    UserError,
    command,
    meant,
    toml_value,
)
from manyseed.orchestrator.paths import IMPORTED, SweepPaths
from manyseed.orchestrator.plans.layout import Groups, copies, wrong_coordinates
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.store import verify
from manyseed.orchestrator.store.encoding import Bools
from manyseed.orchestrator.store.groups import Group, find_group, list_groups, published_shards
from manyseed.orchestrator.store.index import JournalIndex
from manyseed.orchestrator.store.reader import finished_rows, read_array, statuses, test_sets
from manyseed.orchestrator.store.schema import GroupSpec

if TYPE_CHECKING:
    import xarray as xr

    from manyseed.orchestrator.store.lazy import FinishedRuns

_SHOWN = 10  # calls in a message


def stored_groups(paths: SweepPaths, plan: Plan) -> list[Group]:
    """Return the groups that exist in the store, in the plan's order."""
    specs = Groups.read(paths)
    specs.require_planned(plan, paths)
    for spec in lost_groups(paths, plan):
        raise DamagedGroup(paths.store / spec.path, "is lost, with all its runs", ways_back(plan))
    candidates = (find_group(paths.store, spec) for spec in specs.specs)
    groups = [group for group in candidates if group is not None]
    try:
        wrong = wrong_coordinates(plan, groups)
    except (LookupError, TypeError, ValueError, AttributeError) as error:  # a damaged zarr.json
        problem = f"has coordinates that cannot be read ({type(error).__name__}: {error})"
        raise DamagedShard.of(paths.store / "all", problem) from None
    for path, names in wrong.items():
        problem = "cannot be read or differs from the plan"
        raise DamagedShard.of(paths.store / path / names[0], problem)
    return groups


def lost_groups(paths: SweepPaths, plan: Plan) -> list[GroupSpec]:
    """Return the groups that the store held once, and of which it has nothing any more.

    An import lays out all groups, and each submission those of the whole plan before it trains:
    so a planned group was there if the sweep was submitted or later runs are finished.
    """
    absent = [spec for spec in Groups.read(paths).specs if _is_absent(paths, spec)]
    if not absent or not plan.parts:
        return []
    begun = _laid_out(paths, plan)
    first = dict(plan.all_cells.group_by("group").agg(pl.col("part").min()).iter_rows())
    return [spec for spec in absent if first.get(spec.number, begun + 1) <= begun]


def _is_absent(paths: SweepPaths, spec: GroupSpec) -> bool:
    try:
        return find_group(paths.store, spec) is None
    except DamagedGroup:  # reported by whoever reads it
        return False


def _laid_out(paths: SweepPaths, plan: Plan) -> int:
    """Return how many parts of the plan were certainly laid out in the store."""
    if plan.is_imported:  # a part that is being added is laid out last
        return len(plan.parts) - any(paths.journals.glob(f"{IMPORTED}*"))
    begun = 1 if paths.submissions() else 0
    index = JournalIndex(plan.journals(paths))
    finished: dict[int, NDArray[Any]] = {}
    for group in list_groups(paths.store):
        journaled = index.rows(group.spec.number)
        published = finished_rows(statuses(group, journaled))
        finished[group.spec.number] = np.union1d(published, journaled)
    for number, part in enumerate(plan.parts, 1):
        for (group,), rows in plan.with_group(part).partition_by("group", as_dict=True).items():
            held = finished.get(int(str(group)), np.array([], dtype=np.int64))
            if np.isin(rows["row"].to_numpy(), held).any():
                begun = max(begun, number)
    return begun


def ways_back(plan: Plan) -> str:
    """Return what to do about a lost group."""
    if plan.is_imported:
        return "restore it from a copy of the sweep, or import its files again with --out DIR"
    repair = "run manyseed verify --repair, which says what is left to do"
    return f"restore it from a copy of the sweep, or {repair}"


def require_sound(paths: SweepPaths) -> None:
    """Raise DamagedFile or DamagedShard if anything in the store is lost or was not published."""
    plan = Plan.read(paths)
    groups, index = stored_groups(paths, plan), JournalIndex(plan.journals(paths))
    for group in groups:
        rows = finished_rows(statuses(group, index.rows(group.spec.number)))
        test_sets(group, read_array(group, "repeat_index")[rows])
    for one in ComparedShards(paths, plan).unseen((group, None) for group in groups):
        one.compare()


def open_finished_runs(paths: SweepPaths) -> xr.DataTree:
    """Open the finished runs of all groups; see `Sweep.predictions`."""
    from manyseed.orchestrator.store.lazy import open_finished

    return _tree(paths, open_finished)


def open_all_rows(paths: SweepPaths) -> xr.DataTree:
    """Open all rows of all groups; see `Sweep.raw_predictions`."""
    from manyseed.orchestrator.store.lazy import open_runs

    return _tree(paths, open_runs)


def open_named_runs(
    paths: SweepPaths, dataset: str | None, classifier: str | None, *, names: bool = False
) -> FinishedRuns:
    """Open the finished runs of one group, with coordinates in words; see `Sweep.runs`."""
    from manyseed.orchestrator.store.lazy import in_words, open_finished

    plan = Plan.read(paths)
    pairs = {(one.dataset, one.named): one for one in Groups.read(paths).specs}
    chosen = _the_one(pairs, dataset, classifier)
    for group in stored_groups(paths, plan):
        if (group.spec.dataset, group.spec.named) == chosen:
            journaled = JournalIndex(plan.journals(paths)).rows(group.spec.number)
            return in_words(open_finished(group, journaled=journaled), names=names)
    raise UserError(
        "none of these runs is trained yet",
        file=paths.directory,
        key="dataset, classifier",
        value=" × ".join(chosen),
        remedy=f"train them: {command('submit', paths.directory)}",
    )


def _the_one(
    pairs: Mapping[tuple[str, str], GroupSpec], dataset: str | None, classifier: str | None
) -> tuple[str, str]:
    """Return the only pair of a dataset and a classifier that has the given ones.

    Runs with label noise, which are groups of their own, are meant by the classifier's name where
    it has no others; else they are named beside.
    """
    of_dataset = {pair: one for pair, one in pairs.items() if dataset in (None, one.dataset)}
    fitting = [pair for pair in of_dataset if classifier in (None, pair[1])]
    alike = [pair for pair, one in of_dataset.items() if classifier == one.classifier]
    noisy = [pair for pair in alike if pair not in fitting and pairs[pair].method == "none"]
    if len(fitting) == 1:
        if noisy:
            warn(f"runs with label noise are apart: {', '.join(map(_call, noisy))}")
        return fitting[0]
    if not fitting and len(alike) == 1:
        return alike[0]
    among = fitting or alike
    reason = "there are several: which?" if among else "there are no such runs"
    shown = some([*map(_call, among or pairs)], _SHOWN)
    near = [] if among else [*_like(dataset, [d for d, _ in pairs])]
    near += [] if among else [*_like(classifier, [c for _, c in pairs])]
    remedy = f"{meant(near)} Name one: {shown}" if near else f"name one: {shown}"
    raise UserError(reason, key="dataset, classifier", remedy=remedy)


def _like(name: str | None, known: Sequence[str]) -> list[str]:
    """Return the known names that a name is like, if it is none of them."""
    return [] if name is None or name in known else similar(name, [*dict.fromkeys(known)])


def _call(pair: tuple[str, str]) -> str:
    return f"runs({', '.join(map(toml_value, pair))})"


def _tree(paths: SweepPaths, open_one: Callable[..., xr.Dataset]) -> xr.DataTree:
    import xarray as xr

    plan = Plan.read(paths)
    index = JournalIndex(plan.journals(paths))
    return xr.DataTree.from_dict(
        {
            group.spec.path: open_one(group, journaled=index.rows(group.spec.number))
            for group in stored_groups(paths, plan)
        }
    )


@dataclass(frozen=True, slots=True)
class Unseen:
    """A version of a shard whose rows were not yet compared with their checksums."""

    group: Group
    shard: int
    version: str
    copies: Bools

    def compare(self) -> None:
        """Compare the rows; raises like `verify.compare`."""
        verify.compare(self.group, self.shard, self.copies)


class ComparedShards:
    """The file of shard versions whose rows were compared with their checksums."""

    def __init__(self, paths: SweepPaths, plan: Plan) -> None:
        self._file, self._plan = paths.compared, plan
        try:
            self._seen = read_record(self._file, dict[str, dict[str, str]])
        except (FileNotFoundError, ManyseedError):
            self._seen = {}

    def unseen(self, wanted: Iterable[tuple[Group, Iterable[int] | None]]) -> list[Unseen]:
        """Return those of the groups' shards (None: all) that were not yet compared."""
        found = []
        for group, shards in wanted:
            seen, identical = self._seen.get(group.spec.path, {}), copies(self._plan, group)
            for shard in sorted(published_shards(group.folder)) if shards is None else shards:
                if shard < group.shards:
                    version = verify.version(group, shard)
                    if seen.get(str(shard)) != version:
                        of_shard = identical[slice(*group.span(shard))]
                        found.append(Unseen(group, shard, version, of_shard))
        return found

    def remember(self, compared: Iterable[Unseen]) -> None:
        """Record that these shards were compared, and are intact."""
        for one in compared:
            self._seen.setdefault(one.group.spec.path, {})[str(one.shard)] = one.version
        write_json(self._file, self._seen)
