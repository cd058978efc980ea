"""Join files with further runs of the same dataset and classifier, and add runs to a sweep.

Added runs are written to a journal, which has no effect until the plan contains their rows; the
plan's next part commits all of them at once. `settle` does the rest, now or in the next process.
"""

from __future__ import annotations

import json
import re
import tempfile
import tomllib
import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.orchestrator.disk.lease import Lease, LeaseWatch
from manyseed.orchestrator.disk.placing import place, unavailable
from manyseed.orchestrator.disk.records import locked
from manyseed.orchestrator.errors import UserError, require_one_of
from manyseed.orchestrator.importing.directory import (
    ImportedRuns,
    cells_of,
    group_of,
    made_from,
    placed,
)
from manyseed.orchestrator.importing.doubts import Doubts, ImportSeen
from manyseed.orchestrator.importing.lacking import without_settled
from manyseed.orchestrator.importing.predictions import (
    ATTRIBUTES,
    DEFAULTS,
    Positions,
    PredictionFile,
    forms,
    grid_lines,
    merged,
    require_apart,
    require_spelt,
    with_told,
)
from manyseed.orchestrator.importing.scores import Predicted
from manyseed.orchestrator.importing.unlike import (
    not_alike,
    other_tests,
    require_distinct,
    require_no_folds,
    require_no_splits_of_arrays,
)
from manyseed.orchestrator.paths import IMPORTED, JOURNAL, SweepPaths
from manyseed.orchestrator.plans.ids import ids_of
from manyseed.orchestrator.plans.layout import PAIR, Groups, lay_out
from manyseed.orchestrator.plans.plan import IS_IMPORTED, ROWS, Plan, write_plan
from manyseed.orchestrator.provenance import register
from manyseed.orchestrator.store.compact import compact
from manyseed.orchestrator.store.groups import Group, find_group, list_groups
from manyseed.orchestrator.store.journal import JournalWriter, encode_row
from manyseed.orchestrator.store.reader import read_array, read_rows
from manyseed.orchestrator.store.schema import GroupSpec
from manyseed.orchestrator.store.testsets import Integers, truth, write_splits

ADDRESS = (*DEFAULTS, "repeat", "run")
_MOST_COMPARED = 30  # files
_ALIKE = ("class_names", "epochs", "keep", "dtype", "probability")


def joined(
    sources: Sequence[PredictionFile], *, is_dataset_given: bool = False
) -> list[PredictionFile]:
    """Join the files of each dataset and classifier, in their order.

    `is_dataset_given`: whether the user named their dataset, for an error's remedy.
    """
    by_pair: dict[tuple[str, str], list[PredictionFile]] = {}
    datasets: dict[str, PredictionFile] = {}
    for source in sources:
        first = datasets.setdefault(source.dataset, source)
        if len(source.y_true) > len(first.y_true):  # compare others with the one with most repeats
            datasets[source.dataset] = source
        if (key := other_tests(first, source)) is not None:
            own = [one for one in sources if one.dataset == source.dataset]
            if key != "class_names" and all(len(one.y_true) == 1 for one in own):
                sizes = {one.y_true.shape[1] for one in own}
                require_no_folds([one.file for one in own], "", sizes)
            if own[1] is source and own[2:] and other_tests(own[2], source) is None:
                first, source = source, first  # which is the odd one
            error = not_alike(first, source, key, is_dataset_given=is_dataset_given)
            if key != "class_names" and len({one.classifier for one in own}) == 1:
                require_no_splits_of_arrays(own[:_MOST_COMPARED], error)
            raise error
        by_pair.setdefault((source.dataset, source.classifier), []).append(source)
    require_distinct(datasets)
    return [files[0] if len(files) == 1 else _together(files) for files in by_pair.values()]


def _together(sources: Sequence[PredictionFile]) -> PredictionFile:
    one = sources[0]
    runs = one.runs
    for other in sources[1:]:
        for name in _ALIKE:
            if getattr(one, name) != getattr(other, name):
                message = f"has {name} {getattr(other, name)}, but {one.file} {getattr(one, name)}"
                if name == "keep":  # it follows from the classes, which are alike, and from this
                    theirs, ours = (
                        "labels" if s.keep == "none" else "scores" for s in (other, one)
                    )
                    message = f"holds {theirs}, {one.file} {ours}"
                raise UserError(message, file=other.file, remedy="import them separately")
        runs = pl.concat([runs, numbered(runs, other)])
    starts = np.cumsum([0, *(len(source.runs) for source in sources)])
    longest = max(sources, key=lambda source: len(source.y_true))

    def read(positions: Positions) -> Predicted:
        owner = np.searchsorted(starts, positions, side="right") - 1
        parts = [
            (owner == number, sources[number].read(positions[owner == number] - starts[number]))
            for number in np.unique(owner)
        ]
        return Predicted(
            merged([(rows, part.label) for rows, part in parts]),
            merged([(rows, part.scores) for rows, part in parts]),
            sum(part.floored for _, part in parts),
            max(part.off for _, part in parts),
        )

    return replace(
        one,
        y_true=longest.y_true,
        test_index=longest.test_index,
        runs=runs,
        read=read,
        numbered=any(source.numbered for source in sources),
        are_classes_seen=all(source.are_classes_seen for source in sources),
        places=[place for source in sources for place in source.places],
        files=[file for source in sources for file in source.files],
    )


def numbered(
    existing: pl.DataFrame, other: PredictionFile, where: str = "in an earlier file"
) -> pl.DataFrame:
    """Return further runs, numbered after the existing ones unless their file numbers them.

    `existing`: with at least the columns `ADDRESS`. `other`: with the further runs. `where`: where
    the existing runs are, for errors.
    """
    runs = other.runs
    for name, option in ATTRIBUTES.items():
        if option.kind is str:
            require_spelt(runs[name].unique(), name, other.file, {*existing[name].unique()})
    if not other.numbered:
        next_runs = existing.group_by(*DEFAULTS, "repeat").agg(next=pl.col("run").max() + 1)
        runs = runs.join(next_runs, on=[*DEFAULTS, "repeat"], how="left", maintain_order="left")
        runs = runs.with_columns(run=pl.col("run") + pl.col("next").fill_null(0))
    duplicates = runs.join(existing.select(ADDRESS), on=ADDRESS, how="semi")
    if not duplicates.is_empty():
        repeat, run = duplicates.select("repeat", "run").row(0)
        raise UserError(
            f"repeat {repeat}, run {run} of a cell is already {where}",
            file=other.file,
            key="run",
            remedy="number the runs of a repeat across files, or leave run out",
        )
    return runs.select(other.runs.columns)


ELSEWHERE = "import them into a directory of their own with --out"
"""The remedy for runs that do not match."""


def imported_plan(paths: SweepPaths) -> tuple[Plan, Groups]:
    """Return the plan and the groups of a sweep that holds only imported predictions."""
    if not paths.is_sweep:
        raise UserError(
            "is not a sweep directory, so no runs can be added to it",
            file=paths.directory,
            remedy="to make one from these files, name it with --out",
        )
    plan, groups = Plan.read(paths), Groups.read(paths)
    groups.require_of(plan, paths)
    groups.require_planned(plan, paths)
    if not plan.all_cells.select(IS_IMPORTED.all()).item():
        raise UserError(
            "holds runs that were trained here; imported runs cannot be added to them",
            file=paths.directory,
            remedy=f"{ELSEWHERE}; manyseed compare sets two sweeps side by side",
        )
    return plan, Groups(groups.specs[: len(plan.groups)])


def pair_of(
    directory: Path, dataset: str | None, classifier: str | None, *, is_classifier_given: bool
) -> tuple[str, str | None]:
    """Return the dataset and the classifier to which to add runs; by default the sweep's only ones.

    `dataset` and `classifier`: as the user named them. `is_classifier_given`: whether each file
    comes with its classifier's name.
    """
    plan, _ = imported_plan(SweepPaths(directory))
    known = plan.cells.select(*PAIR).unique(maintain_order=True)
    datasets = known["dataset"].unique(maintain_order=True).to_list()
    if dataset is None and len(datasets) > 1:
        raise _several("dataset", datasets, directory)
    dataset = dataset or datasets[0]
    lacking = "the sweep holds no such dataset; runs can only be added to those that it holds"
    more = f"; else {ELSEWHERE}"
    require_one_of(dataset, datasets, lacking, file=directory, key="--dataset", more=more)
    if classifier is None and not is_classifier_given:
        classifiers = known.filter(pl.col("dataset") == dataset)["classifier"].to_list()
        if len(classifiers) > 1:
            raise _several("classifier", classifiers, directory)
        classifier = classifiers[0]
    return dataset, classifier


def classes_of(directory: Path, dataset: str) -> tuple[str, ...]:
    """Return the classes of a sweep's dataset."""
    _, groups = imported_plan(SweepPaths(directory))
    return next(each.class_names for each in groups.specs if each.dataset == dataset)


def _several(key: str, names: Sequence[str], directory: Path) -> UserError:
    return UserError(
        f"holds runs of {len(names)} {key}s: {', '.join(names)}",
        file=directory,
        key=f"--{key}",
        remedy=f"say which one to add to with --{key} NAME",
    )


def _placed_as(source: PredictionFile, groups: Sequence[Group]) -> PredictionFile:
    """Return a source whose points, if numbered by their places, are numbered as the sweep's."""
    y_true, index = truth(source.dataset, groups)
    n, samples = source.y_true.shape
    if not source.is_placed or n > len(y_true) or samples != y_true.shape[1]:
        return source
    places = np.arange(index.size).reshape(index.shape)
    is_placed = np.array_equal(index % samples, places % samples) and index.max() <= places.max()
    return replace(source, test_index=index[:n]) if is_placed else source


def same_tests(source: PredictionFile, groups: Sequence[Group]) -> Integers:
    """Return the dataset's true classes (repeat, sample), which must match the source's."""
    y_true, index = truth(source.dataset, groups)
    n, samples = source.y_true.shape
    known, points = y_true.shape
    names = next(g.spec.class_names for g in groups if g.spec.dataset == source.dataset)

    def refuse(message: str, key: str = "y_true") -> UserError:
        return UserError(message, file=source.file, key=key, remedy=ELSEWHERE)

    if source.class_names != names:
        classes = f"{', '.join(source.class_names[:10])}; the sweep's are {', '.join(names[:10])}"
        raise refuse(f"its classes are {classes}", "class_names")
    if samples != points:
        raise refuse(f"its test sets have {samples:,} points; the sweep's have {points:,}")
    if n > known:
        raise refuse(f"it has {n} test sets; the sweep has {known}")
    for given, held, key in (
        (source.y_true, y_true, "y_true"),
        (source.test_index, index, "test_index"),
    ):
        wrong = np.flatnonzero((given != held[:n]).any(axis=1))
        if wrong.size:
            repeat = int(wrong[0])
            count = int((given[repeat] != held[repeat]).sum())
            where = f"the sweep's repeat {repeat}"
            raise refuse(f"differs from that of {where} in {count:,} of {points:,} points", key)
    return y_true


def require_same_ids(source: PredictionFile, ids: pl.Series | None) -> None:
    """Refuse ids of points that are not those of the sweep, of which there may be none."""
    if source.ids is not None and (ids is None or not ids.equals(source.ids)):
        what = (
            "names other points than the sweep"
            if ids is not None
            else ("names points by text, but the sweep has their numbers")
        )
        raise UserError(what, file=source.file, key="test_index", remedy=ELSEWHERE)


def require_alike(source: PredictionFile, spec: GroupSpec, paths: SweepPaths) -> None:
    """Refuse runs whose predictions differ in form from those of their group."""
    for what, given, held in forms(source, spec):
        if given != held:
            raise UserError(
                f"has {what} {given}; {spec.dataset} × {spec.classifier} of {paths.directory} is "
                f"stored with {held}",
                file=source.file,
                remedy=f"give them in that form, name another classifier, or {ELSEWHERE}",
            )


_LAST_RUN = 2**16 - 1
_MOST_KEPT = 100  # runs that new ones are compared with


def add_runs(sources: Sequence[PredictionFile], directory: Path) -> ImportSeen:
    """Add runs to a sweep of imported predictions: all of them, or none if interrupted.

    `sources`: one for each dataset and classifier, checked.
    """
    paths = SweepPaths(directory)
    with locked(paths.lock, "importing") as lease:
        _settle(paths)
        plan, groups = imported_plan(paths)
        extension = _Extension(paths, plan, groups, sources)
        name = f"{IMPORTED}{len(plan.parts) + 1:04d}-{uuid.uuid4().hex[:8]}{JOURNAL}"
        file = paths.journals / name
        try:
            seen = extension.journal(file)
            extension.commit(lease)
        except BaseException:
            if len(paths.parts()) == len(plan.parts):
                file.unlink(missing_ok=True)
            raise
        _settle(paths, seen.told)
    return seen


def require_addable(sources: Sequence[PredictionFile], directory: Path) -> None:
    """Refuse what `add_runs` would, without writing to the sweep; of very many runs, some of it."""
    paths = SweepPaths(directory)
    plan, groups = imported_plan(paths)
    extension = _Extension(paths, plan, groups, sources)
    n = sum(len(source.runs) * source.y_true.shape[1] for source in sources)
    if n <= _MOST_TRIED and all(groups.find(each.dataset, each.classifier) for each in sources):
        with tempfile.TemporaryDirectory() as folder:
            extension.journal(Path(folder) / f"tried{JOURNAL}")


_MOST_TRIED = 10_000_000  # predictions


def settle(paths: SweepPaths) -> None:
    """Complete an interrupted import or remove its remains, if there is one."""
    if any(paths.journals.glob(f"{IMPORTED}*{JOURNAL}")):
        with locked(paths.lock, "importing"):
            _settle(paths)


def _settle(paths: SweepPaths, told: Sequence[str] = ()) -> None:
    """Update the store and the sweep file to match the plan, and publish the journals' runs.

    `told`: what users were warned of.
    """
    journals = [*paths.journals.glob(f"{IMPORTED}*{JOURNAL}")]
    if not journals:
        return
    plan, groups = Plan.read(paths), Groups.read(paths)
    for file in journals:
        if int(file.name.split("-")[1]) > len(plan.parts):
            with unavailable("clean", paths.journals):
                file.unlink(missing_ok=True)
    lay_out(paths, plan, Groups(groups.specs[: len(plan.groups)]))
    watch = LeaseWatch(paths.leases)
    stored = list_groups(paths.store)
    for group in stored:
        y_true, index = truth(group.spec.dataset, stored)
        n = min(group.repeats, len(y_true))
        write_splits(group, 0, y_true[:n], index[:n], watch)
    content = paths.sweep_file.read_bytes()
    if (updated := _updated_file(content, plan, told)) != content:
        place(paths.sweep_file, updated)
    compact(paths.store, plan.journals(paths), watch)


def _updated_file(content: bytes, plan: Plan, told: Sequence[str]) -> bytes:
    """Return the sweep file's content with the classifiers and number of runs of the plan."""
    try:
        text = content.decode()
        grids = tomllib.loads(text).get("grid", [])
        named = {
            (dataset, classifier)
            for grid in grids
            for dataset in grid["dataset"]
            for classifier in grid["classifier"]
        }
    except (ValueError, LookupError, TypeError, RecursionError):  # edited; leaving it loses nothing
        return content
    runs = min(int(str(plan.extents["runs"].max())), 60_000)
    text = re.sub(r"(?m)^(runs\s*=\s*)\d+", rf"\g<1>{runs}", text, count=1)
    for pair in plan.cells.select(*PAIR).unique(maintain_order=True).iter_rows():
        if pair not in named:
            text = "\n".join([text.rstrip("\n"), *grid_lines(*pair)]) + "\n"
    return with_told(without_settled(text, plan), told).encode()


class _Extension:
    """A plan with further runs, and their predictions."""

    def __init__(
        self, paths: SweepPaths, plan: Plan, groups: Groups, sources: Sequence[PredictionFile]
    ) -> None:
        self._paths, self._groups = paths, groups
        self._parts: list[tuple[PredictionFile, GroupSpec, Integers, pl.DataFrame]] = []
        self._held = plan.all_rows.join(plan.all_cells.drop("group"), on="cell")
        require_apart(sources, {key: plan.all_cells[key].unique() for key in PAIR})
        stored = list_groups(paths.store)
        lengths, cells, rows = plan.lengths, plan.all_cells, []
        for source in sources:
            source = _placed_as(source, stored)
            y_true = same_tests(source, stored)
            require_same_ids(source, ids_of(paths, plan, source.dataset))
            spec = self._groups.find(source.dataset, source.classifier)
            if spec is None:
                spec = group_of(source, len(self._groups.specs))
                self._groups = Groups((*self._groups.specs, spec))
            else:
                require_alike(source, spec, paths)
                source = self._renumbered(source)
            source_cells = self._cells(source, spec, plan)
            numbers = dict(cells.select("cell_id", "cell").iter_rows())
            new = source_cells.filter(~pl.col("cell_id").is_in([*numbers]))
            new = new.with_columns(
                cell=pl.int_range(len(cells), len(cells) + pl.len(), dtype=pl.UInt32),
                part=pl.lit(len(plan.parts) + 1, dtype=pl.UInt32),
            )
            cells = pl.concat([cells, new.select(cells.columns)])
            numbers |= dict(new.select("cell_id", "cell").iter_rows())
            by_place = source_cells["cell_id"].replace_strict(numbers, return_dtype=pl.UInt32)
            if dropped := set(by_place.to_list()) & set(plan.dropped.to_list()):
                raise UserError(
                    f"its runs belong to cell {min(dropped)}, which was dropped for good",
                    file=source.file,
                    remedy=ELSEWHERE,
                )
            start = spec.padded(lengths.get(spec.number, 0))
            order = placed(source)
            part = order.select(
                "position",
                "repeat",
                "run",
                cell=by_place.gather(order["place"]),
                row=pl.int_range(start, start + pl.len()),
            )
            rows.append(part.select(pl.col(name).cast(dtype) for name, dtype in ROWS.items()))
            self._parts.append((source, spec, y_true, part))
        self._plan = Plan(cells, (*plan.parts, pl.concat(rows)), plan.dropped)
        self._identity = plan.identity

    def _renumbered(self, source: PredictionFile) -> PredictionFile:
        """Return a source whose runs are numbered after those in the sweep."""
        pair = (pl.col("dataset") == source.dataset) & (pl.col("classifier") == source.classifier)
        held = self._held.filter(pair).with_columns(pl.col("repeat", "run").cast(pl.Int64))
        runs = numbered(held, source, "in the sweep")
        if (last := int(str(runs["run"].max()))) > _LAST_RUN:
            message = f"would be run {last:,} of its repeat; {_LAST_RUN:,} is the last possible"
            raise UserError(message, file=source.file, remedy=ELSEWHERE)
        return replace(source, runs=runs)

    def _cells(self, source: PredictionFile, spec: GroupSpec, plan: Plan) -> pl.DataFrame:
        """Return the source's cells, with the group's description of the dataset."""
        held = plan.all_cells.filter(pl.col("group") == spec.number)["canonical"]
        dataset = json.loads(held[0])["dataset"] if len(held) else source.canonical
        return cells_of(source, spec, 0, dataset)

    def journal(self, file: Path) -> ImportSeen:
        """Write all runs to a journal; return what is seen of them."""
        seen = ImportSeen()
        with JournalWriter(file, self._identity) as journal:
            for source, spec, y_true, rows in self._parts:
                doubts = Doubts(source, seen, partial(self._kept, spec, rows))
                predictions = ImportedRuns(spec, source, doubts)
                recipe = self._recipe(source, spec)
                seconds = source.runs["fit_seconds"].fill_null(0).to_list()
                repeats, numbers = rows["repeat"].to_list(), rows["row"].to_list()
                positions = rows["position"].to_numpy().astype(np.int64)
                crcs = np.zeros(len(rows), dtype=np.int64)
                for at, position, prediction in predictions.of(positions):
                    values = encode_row(spec, prediction, y_true[repeats[at]])
                    crcs[at] = values.crc
                    journal.append(
                        spec.number,
                        numbers[at],
                        values,
                        recipe=recipe,
                        fit_seconds=seconds[position],
                    )
                self._require_new(source, spec, rows, crcs)
                seen.floored += predictions.floored
                doubts.tell()
        return seen

    def _kept(
        self, spec: GroupSpec, rows: pl.DataFrame, position: int
    ) -> NDArray[np.uint16] | None:
        """Return the labels (run, sample) of runs of a new one's cell and repeat, if there are."""
        group = find_group(self._paths.store, spec)
        new = rows.filter(pl.col("position") == position)
        alike = self._held.join(new, on=["cell", "repeat"], how="semi")["row"]
        if group is None or alike.is_empty():
            return None
        labels = read_rows(group, ["label"], alike.sort().tail(_MOST_KEPT).to_numpy())["label"]
        return np.asarray(labels[:, -1], dtype=np.uint16)

    def _recipe(self, source: PredictionFile, spec: GroupSpec) -> int:
        """Return the recipe's number: that of the group's runs, if it has any."""
        group = find_group(self._paths.store, spec)
        if group is None:
            return register(self._paths.recipes, made_from(source))
        first = int(str(self._held.filter(pl.col("group") == spec.number)["row"].min()))
        return int(read_array(group, "recipe")[first])

    def _require_new(
        self, source: PredictionFile, spec: GroupSpec, rows: pl.DataFrame, crcs: NDArray[np.int64]
    ) -> None:
        """Refuse a file if each of its runs predicts the same as an existing run of its repeat.

        A file that numbers its runs is exempt: numbers that are taken are refused anyway.
        """
        group = find_group(self._paths.store, spec)
        if source.numbered or group is None:
            return
        held = self._held.filter(pl.col("group") == spec.number)
        stored = read_array(group, "crc")[held["row"].to_numpy()]
        known = set(zip(held["cell"], held["repeat"], stored.tolist(), strict=True))
        if all(key in known for key in zip(rows["cell"], rows["repeat"], crcs, strict=True)):
            raise UserError(
                "all these runs are in the sweep already",
                file=source.file,
                remedy="if they are different runs that predict the same, number them with 'run'",
            )

    def commit(self, lease: Lease) -> None:
        """Add the runs to the plan."""
        self._groups.write(self._paths, lease.check)
        write_plan(self._paths, self._plan, new_part=True, before_rename=lease.check)
