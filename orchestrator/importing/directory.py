"""Write imported predictions as a sweep directory, with plan and store, as if trained here."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.axes import LATER
from manyseed.analysis.counts import some
from manyseed.jobs.checks import did_you_mean, quoted
from manyseed.jobs.run import Cell, Prediction, canonical_json
from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.disk.lease import LeaseWatch
from manyseed.orchestrator.disk.placing import appearing, place
from manyseed.orchestrator.errors import Spoilt, UserError
from manyseed.orchestrator.importing.classes import require_shared
from manyseed.orchestrator.importing.frames import TABLES
from manyseed.orchestrator.importing.orders import (
    FEWEST_KEPT,
    Order,
    apart,
    far_better,
    lone_orders,
    other_order,
)
from manyseed.orchestrator.importing.predictions import (
    DEFAULTS,
    Positions,
    PredictionFile,
    ids_by_group,
    require_apart,
    sweep_text,
    with_told,
)
from manyseed.orchestrator.importing.scores import not_finite, prediction_of
from manyseed.orchestrator.plans.ids import write_ids
from manyseed.orchestrator.plans.layout import Groups, lay_out
from manyseed.orchestrator.plans.plan import CELLS, ROWS, Plan, write_plan
from manyseed.orchestrator.provenance import Recipe, register
from manyseed.orchestrator.store import encoding
from manyseed.orchestrator.store.arrays import COPY, DONE, PADDING
from manyseed.orchestrator.store.encoding import Array
from manyseed.orchestrator.store.groups import Group, open_group
from manyseed.orchestrator.store.journal import encode_row
from manyseed.orchestrator.store.metadata import consolidate
from manyseed.orchestrator.store.schema import UNSIZED, GroupSpec, planned_group
from manyseed.orchestrator.store.shards import replacing_shard
from manyseed.orchestrator.store.testsets import write_splits

BLOCK_BYTES = 2**26
"""Size of the predictions, as float32, that are read at once; a single run may be larger."""
_MOST_LOOKED_AT = 20  # runs
_MOST_PAIRED = 40  # runs
_SHOWN = 10  # classes in a message


@dataclass(slots=True)
class ImportSeen:
    """What is seen of all sources while they are written.

    `floored`: how many predictions of a test point have a probability below `scores.FLOOR`, which
    is raised to it. `told`: what users are warned of. `right`: the accuracies of all runs, by
    dataset and classifier. `elsewhere`: by a digest of predictions, dataset, classifier and cell of
    the first run with them, and its place, without and with its folder; none by which so few points
    are wrong that different runs may agree.
    """

    floored: int = 0
    told: list[str] = field(default_factory=list)
    right: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    elsewhere: dict[bytes, tuple[tuple[str, str, int], tuple[str, str]]] = field(
        default_factory=dict
    )


def write_rows(
    group: Group, source: PredictionFile, order: Positions, recipe: int, seen: ImportSeen
) -> None:
    """Publish all runs, a shard at a time.

    `group`: laid out for these runs alone and not known to other processes. `order`, int64 array
    (run,): for each row, the position of its run in the source. `recipe`: number of the recipe.
    `seen`: of sources that were written before; receives what is seen of this one.
    """
    length, doubts = group.spec.shard_length, Doubts(source, seen)
    for number in range(group.shards):
        shard = _ImportedShard(group, source, recipe, doubts)
        shard.write(number, order[number * length : (number + 1) * length])
        seen.floored += shard.predictions.floored
    doubts.tell()


class Doubts:
    """What is seen of a source's runs while they are written: refused or told at the end.

    `kept`: labels of runs that are there already (run, sample), by the first position of a new run
    of their cell and repeat.
    """

    def __init__(
        self,
        source: PredictionFile,
        seen: ImportSeen,
        kept: Callable[[int], NDArray[np.uint16] | None] | None = None,
    ) -> None:
        self._kept, self._seen = kept, seen
        self._again: list[tuple[tuple[str, str], tuple[str, str], str]] = []
        self._source, self._repeats = source, source.runs["repeat"].to_numpy()
        self._is_copy = source.runs["copy"].to_numpy()
        alike = pl.struct(*DEFAULTS, "repeat").rank("dense")
        self._group = source.runs.select(alike).to_series().to_list()
        self._true = np.unique(source.y_true)
        self._orders: list[tuple[int, float, Order | None]] = []
        self._of_order: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._signs: list[tuple[float, float] | None] = []
        self._predicted = np.zeros(len(source.class_names), dtype=np.int64)
        self._odd: dict[int, list[int]] = {}
        self._digests: dict[tuple[int, bytes], list[int]] = {}
        self._labels: dict[int, dict[int, NDArray[np.uint16]]] = {}
        self._room, self.off = _MOST_LABELS, 0.0

    def add(self, position: int, prediction: Prediction) -> None:
        """Look at a run."""
        label, n_classes = prediction.label[-1], len(self._source.class_names)
        truth = self._source.y_true[self._repeats[position]]
        of = self._source.dataset, self._source.classifier
        self._seen.right.setdefault(of, []).append(float(np.mean(label == truth)))
        recall, order = other_order(truth, label.astype(np.intp), n_classes)
        if order is not None:  # many runs have few orders
            order = replace(order, classes=self._of_order.setdefault(order.classes, order.classes))
        self._orders.append((position, recall, order))
        is_open = len(self._signs) < _MOST_LOOKED_AT and None not in self._signs
        if n_classes > 2 and self._source.keep != "none" and is_open:
            least = prediction.scores[-1].argmin(axis=-1)
            self._signs.append(far_better(truth, label == truth, least == truth))
        if self._source.are_classes_seen:
            counts = np.bincount(label, minlength=n_classes)
            self._predicted += counts
            for odd in np.setdiff1d(np.flatnonzero(counts), self._true).tolist():
                self._odd.setdefault(odd, []).append(position)
        if self._is_copy[position]:
            return
        group, values = self._group[position], (prediction.label, prediction.scores)
        digest = hashlib.blake2b(digest_size=16)
        for array in values if self._source.keep != "none" else values[:1]:
            digest.update(np.ascontiguousarray(array).tobytes())
        self._digests.setdefault((group, digest.digest()), []).append(position)
        if self._source.keep != "none" or np.count_nonzero(label != truth) >= _UNLIKELY:
            mine = self._source.dataset, self._source.classifier, group
            at, file = self._source.places[position], self._source.files[position]
            own = at, at if "/" in at else at.replace(file.name, f"{file.parent.name}/{file.name}")
            whose, place = self._seen.elsewhere.setdefault(digest.digest(), (mine, own))
            if whose != mine:
                self._again.append((own, place, whose[1]))
        if self._room >= (work := label.size * n_classes):
            self._room -= work
            self._labels.setdefault(group, {})[position] = label.astype(np.uint16)

    def tell(self) -> None:
        """Refuse what cannot be meant, and warn of what is hardly meant."""
        names, file = self._source.class_names, self._source.file
        right = self._seen.right.get((self._source.dataset, self._source.classifier), [1.0])
        seen = np.flatnonzero(self._predicted)
        require_shared(seen, self._true, names, file, float(np.mean(right)))
        self._tell_same()
        self._tell_again()
        if self.off:
            warn(
                f"{self._source.file.name}: the probabilities of a test point sum to 1 only within "
                f"{self.off:.2g}, as if rounded; they were divided by their sum."
            )
        self._tell_odd()
        self._tell_apart(self._tell_order_or_sign())

    def _warn(self, what: str) -> None:
        files = {*self._source.files}
        are_alike = len(files) > 1 and len({file.name for file in files}) == 1
        own = self._source.classifier if are_alike else self._source.file.name
        self._seen.told.append(f"{own}: {what}")
        warn(self._seen.told[-1])

    def _tell_same(self) -> None:
        """Refuse a run that is given twice, unless runs are numbered or it may be by chance."""
        by_group: dict[int, list[list[int]]] = {}
        for (group, _), positions in self._digests.items():
            by_group.setdefault(group, []).append(positions)
        for group, different in by_group.items():
            same = next((each for each in different if len(each) > 1), None)
            if same is None:
                continue
            places = [self._source.places[position] for position in same]
            what = f"{some(places[1:], _SHOWN)} {'hold' if len(places) > 2 else 'holds'}"
            what += f" the same predictions as {places[0]}"
            if len(different) == 1:
                self._warn(
                    f"all {len(same)} runs predict the same, so that nothing varies between "
                    "seeds, or one was given several times."
                )
                continue
            fewest = _UNLIKELY
            if self._source.keep == "none":
                held = self._labels.get(group, {})
                labels = [held[each[0]] for each in different if each[0] in held]
                pairs = combinations(labels[:_MOST_PAIRED], 2)
                fewest = min((int((a != b).sum()) for a, b in pairs), default=0)
            if fewest < _LIKELY:  # runs that differ do so on hardly a point more
                continue
            if fewest < _UNLIKELY or self._source.numbered:
                self._warn(f"{what}. Is one run there twice? It would count as several seeds.")
                continue
            raise Spoilt(
                what,
                file=self._source.files[same[-1]],
                remedy="leave copies out; if they are different runs that predict the same, number "
                "them with 'run'",
            )

    def _tell_again(self) -> None:
        if not self._again:
            return
        own, others, whose = (dict.fromkeys(each) for each in zip(*self._again, strict=True))
        classifier = self._source.classifier
        is_long = bool({at for at, _ in own} & {at for at, _ in others})
        named = [some([at[is_long] for at in each], 3) for each in (own, others)]
        of = "another cell or test set" if [*whose] == [classifier] else some([*whose], _SHOWN)
        self._warn(
            f"{named[0]} of {classifier} {'holds' if len(own) == 1 else 'hold'} the same "
            f"predictions as {named[1]} of {of}. Was a file given twice, or copied?"
        )

    def _tell_odd(self) -> None:
        if not self._odd:
            return
        names = self._source.class_names
        true = [names[each] for each in self._true]
        (first, positions), more = next(iter(self._odd.items())), len(self._odd) - 1
        times = int(self._predicted[first])
        places = some([*dict.fromkeys(self._source.places[each] for each in positions)], 3)
        near = did_you_mean(names[first], true).removeprefix("; ").capitalize()
        others = f" So {'is' if more == 1 else 'are'} {more} more." if more else ""
        often = "once" if times == 1 else f"{times:,} times"
        self._warn(
            f"class {quoted(names[first])} is predicted {often}, in {places}, and is nobody's true "
            f"class.{others} {near}".rstrip()
        )

    def _tell_order_or_sign(self) -> set[int]:
        """Warn if every run speaks for one other order, or for the opposite sign: the better.

        Or if a few runs do so alone; return their positions.
        """
        signs = [each for each in self._signs if each is not None]
        first = [each for _, _, each in self._orders[:_MOST_LOOKED_AT]]
        found = [each for each in first if each is not None]
        orders = {each.classes for each in found}
        sign = order = (0.0, 0.0)
        if len(signs) == len(self._signs) and signs:
            sign = np.mean(signs, axis=0)
        if len(found) == len(first) and len(orders) == 1:
            order = np.mean([(each.given, each.better) for each in found], axis=0)
        given, better = max(sign, order, key=lambda recalls: recalls[1])
        if not better:
            return self._tell_lone_orders()
        names, has = self._source.class_names, f"{self._source.classifier} has the mean recall"
        if sign[1] > order[1]:
            self._warn(
                f"{has} {given:.2f}, and would have {better:.2f} if the least score named the "
                "class. Are scores of the opposite sign, such as distances or negative "
                "log-likelihoods? Give -scores."
            )
            return set()
        self._warn(
            f"{has} {given:.2f}, and would have {better:.2f} with its {found[0].words(names)}. "
            "Are scores, or indices of labels, in the order of the classes? class_names, or "
            f"--classes, gives it.{self._or_sign}"
        )
        return set()

    @property
    def _or_sign(self) -> str:
        two = len(self._source.class_names) == 2
        return " Or are scores of the opposite sign?" if two else ""

    def _tell_lone_orders(self) -> set[int]:
        alone = [self._orders[at] for at in lone_orders([each[1:] for each in self._orders])]
        told = {position for position, _, _ in alone}
        others = [recall for position, recall, _ in self._orders if position not in told]
        by_order: dict[str, list[tuple[int, Order]]] = {}
        for position, _, order in alone:
            assert order is not None
            what = order.words(self._source.class_names)
            by_order.setdefault(what, []).append((position, order))
        for what, runs in by_order.items():
            places = some([self._source.places[position] for position, _ in runs], _SHOWN)
            given, better = np.mean([(each.given, each.better) for _, each in runs], axis=0)
            has, its = ("has", "its") if len(runs) == 1 else ("have", "their")
            self._warn(
                f"{places} {has} the mean recall {given:.2f}, where other runs have "
                f"{np.mean(others):.2f}, and would have {better:.2f} with {its} {what}. Are "
                "scores, or rows, in another order than theirs? Put it right, or leave it out."
                f"{self._or_sign}"
            )
        return told

    def _tell_apart(self, told: set[int]) -> None:
        for held in self._labels.values():
            positions = [*held]
            truth, label = self._source.y_true[self._repeats[positions[0]]], [*held.values()]
            kept = None if self._kept is None else self._kept(positions[0])
            n = 0 if kept is None else len(kept)
            every = np.stack([*([] if kept is None else kept), *label])
            found, times = apart(every, truth, n)
            if found and not {positions[at - n] for at in found} <= told:
                places = some([self._source.places[positions[at - n]] for at in found], _SHOWN)
                disagrees, its = ("disagrees", "its") if len(found) == 1 else ("disagree", "their")
                is_table = self._source.file.suffix in TABLES
                ids = "Ids of rows (row_id)" if is_table else "Names of points (test_index)"
                others = "runs that are there" if n >= FEWEST_KEPT else "others"
                self._warn(
                    f"{places} {disagrees} with the {others} {times:.1f} times as often as these "
                    f"do among themselves, as if {its} points were in another order. {ids} would "
                    "put them right."
                )
            wrong = (every != truth).sum(axis=1)
            same = [self._source.places[positions[at]] for at in np.flatnonzero(wrong[n:] == 0)]
            if 0 < len(same) < len(wrong) / 2 and wrong[wrong > 0].min() >= _PERFECT:
                self._warn(
                    f"right in every point, as no other run nearly is: {some(same, _SHOWN)}. Is it "
                    "the true classes?"
                )


_PERFECT = 10  # errors of every other run
_MOST_LABELS = 2**27  # points × classes of all runs that are compared
_LIKELY, _UNLIKELY = 3, 20  # points on which the most similar runs differ


class ImportedRuns:
    """The predictions of a source, as training would have returned them, read in blocks.

    `spec`: their group. `seen`: looks at each.
    """

    def __init__(self, spec: GroupSpec, source: PredictionFile, seen: Doubts) -> None:
        self._spec, self._source, self._seen = spec, source, seen
        self.floored = 0

    def of(self, positions: Positions) -> Iterator[tuple[int, int, Prediction]]:
        """Yield the index in `positions`, the position and the prediction of each run."""
        spec = self._spec
        n_columns = 2 * len(spec.epochs) if spec.scores == "none" else spec.n_classes
        step = max(1, BLOCK_BYTES // (4 * spec.samples * n_columns))
        for start in range(0, len(positions), step):
            block = positions[start : start + step]
            predicted = self._source.read(block)
            self.floored += predicted.floored
            self._seen.off = max(self._seen.off, predicted.off)
            for offset, position in enumerate(block.tolist()):
                prediction = prediction_of(predicted, offset, spec)
                if spec.scores != "none" and not np.isfinite(prediction.scores).all():
                    file = self._source.files[position]
                    number = position - self._source.files.index(file)
                    raise not_finite(prediction.scores[-1], file, number)
                self._seen.add(position, prediction)
                yield start + offset, position, prediction


class _ImportedShard:
    """One shard while it is being written."""

    def __init__(self, group: Group, source: PredictionFile, recipe: int, seen: Doubts) -> None:
        self.group, self.spec, self.source = group, group.spec, source
        self.recipe, self.predictions = recipe, ImportedRuns(group.spec, source, seen)
        self.numbers = {
            array.name: encoding.filled(self.spec, array, self.spec.shard_length)
            for array in self.spec.arrays
            if array.role == "record"
        }
        self.numbers["status"][:] = PADDING
        self.seconds = source.runs["fit_seconds"].fill_null(0).to_numpy()  # 0 if unknown
        self.repeat = source.runs["repeat"].to_numpy()
        self.copy = source.runs["copy"].to_numpy()

    def write(self, shard: int, positions: Positions) -> None:
        """Write the shard's files, with the runs at these positions in its first rows."""
        rows = self.spec.chunk_length
        with replacing_shard(self.group, shard, self.numbers, rows) as files:
            for first in range(0, len(positions), rows):
                block = positions[first : first + rows]
                buffers = files.buffers(len(block))
                for offset, position, prediction in self.predictions.of(block):
                    values = [buffer[offset, ...] for buffer in buffers]
                    self._set(first + offset, position, prediction, values)
                files.write(buffers)

    def _set(self, row: int, position: int, prediction: Prediction, values: list[Array]) -> None:
        """Set a run's records in its row, and its arrays in `values`, views of the buffers."""
        encoded = encode_row(self.spec, prediction, self.source.y_true[self.repeat[position]])
        for value, part in zip(values, encoded.parts(self.spec).values(), strict=True):
            flat = np.frombuffer(part, dtype=value.dtype.newbyteorder("<"))
            value[...] = flat.reshape(value.shape)
        is_copy = bool(self.copy[position])
        self.numbers["crc"][row] = encoded.crc
        if self.spec.has_clipped:
            self.numbers["clipped"][row] = encoded.clipped
        self.numbers["fit_seconds"][row] = np.nan if is_copy else self.seconds[position]
        self.numbers["recipe"][row] = self.recipe
        self.numbers["status"][row] = COPY if is_copy else DONE


def write_sweep(sources: Sequence[PredictionFile], directory: Path) -> ImportSeen:
    """Write a sweep directory; it appears whole or not at all."""
    names = [(source.dataset, source.classifier) for source in sources]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise UserError(
                f"{' × '.join(name)} also comes from {sources[names.index(name)].file}",
                file=sources[number].file,
                remedy="import them separately, or rename one: a file's name is its dataset's",
            )
    require_apart(sources, {})
    seen = ImportSeen()
    with appearing(directory) as paths:
        groups, plan = _planned(sources)
        groups.write(paths)
        for number, ids in ids_by_group(sources):
            write_ids(paths, number, ids)
        write_plan(paths, plan, new_part=True)
        n = (int(str(plan.extents[column].max())) for column in ("repeats", "runs"))
        place(paths.sweep_file, sweep_text(sources, directory, *n).encode())
        lay_out(paths, plan, groups)
        for source, spec in zip(sources, groups.specs, strict=True):
            group = open_group(paths.store, spec.path)
            write_splits(group, 0, source.y_true, source.test_index, LeaseWatch(paths.leases))
            recipe = register(paths.recipes, made_from(source))
            order = placed(source)["position"].to_numpy().astype(np.int64)
            write_rows(group, source, order, recipe, seen)
        if seen.told:
            text = with_told(paths.sweep_file.read_text("utf-8"), seen.told)
            place(paths.sweep_file, text.encode())
        consolidate(paths.store, [open_group(paths.store, spec.path) for spec in groups.specs])
    return seen


def made_from(source: PredictionFile) -> Recipe:
    """Return the recipe of a source's runs, of which only the file name is known."""
    name = source.origin.encode(errors="replace").decode()  # it may not be valid UTF-8
    return Recipe("imported", device="imported", device_class=name)


def _planned(sources: Sequence[PredictionFile]) -> tuple[Groups, Plan]:
    specs, cells, rows, first = [], [], [], 0
    for number, source in enumerate(sources):
        spec = group_of(source, number)
        specs.append(spec)
        cells.append(cells_of(source, spec, first, source.canonical))
        rows.append(_rows(source, cells[-1]))
        first += cells[-1].height
    dropped = pl.Series("cell", [], dtype=pl.UInt32)
    return Groups(tuple(specs)), Plan(pl.concat(cells), (pl.concat(rows),), dropped)


def group_of(source: PredictionFile, number: int) -> GroupSpec:
    """Return the group for a source's runs, with this number."""
    spec = GroupSpec(
        number=number,
        dataset=source.dataset,
        classifier=source.classifier,
        samples=source.y_true.shape[1],
        class_names=source.class_names,
        epochs=source.epochs,
        scores=source.keep,
        dtype=source.dtype,
        probability=source.probability,
        **UNSIZED,
    )
    return planned_group(spec, repeats=len(source.y_true), runs=len(source.runs))


def cells_of(
    source: PredictionFile, spec: GroupSpec, first: int, dataset: Mapping[str, Any]
) -> pl.DataFrame:
    """Return a source's cells (columns `CELLS`), in the order in which their runs first appear.

    `first`: number of the first cell. `dataset`: canonical description of the dataset.
    """
    distinct = source.runs.group_by(*DEFAULTS, maintain_order=True).agg(
        identical=pl.col("copy").any()
    )
    described = []
    for row in distinct.iter_rows(named=True):
        cell = Cell(
            seed=0,
            dataset=dataset,
            classifier={"name": source.classifier, "version": 1, "source": "imported"},
            hparams={} if row["hparams"] == "default" else {"name": row["hparams"]},
            vary=tuple(sorted(re.split(r"[+*]", row["vary"]))),
            crossed="*" in row["vary"],
            **{k: row[k] for k in DEFAULTS if k not in ("hparams", "vary")},
        )
        described.append((cell.id, canonical_json(cell.canonical()).decode()))
    return distinct.with_columns(
        pl.Series("cell_id", [d[0] for d in described]),
        pl.Series("canonical", [d[1] for d in described]),
        cell=pl.int_range(first, first + pl.len()),
        group=pl.lit(spec.number),
        path=pl.lit(spec.path),
        dataset=pl.lit(source.dataset),
        classifier=pl.lit(source.classifier),
        **{axis: pl.lit(value) for axis, value in LATER.items()},
        snapshots=pl.lit(
            list(source.epochs) if source.epochs != (0,) else [], dtype=pl.List(pl.Int32)
        ),
        device=pl.lit("cpu"),
        core_seconds=pl.lit(0.0),
        part=pl.lit(1),
    ).select(pl.col(name).cast(dtype) for name, dtype in CELLS.items())


def placed(source: PredictionFile) -> pl.DataFrame:
    """Return the runs in the store's order, with `position`, and `place`, their cell's index."""
    cells = source.runs.select(*DEFAULTS).unique(maintain_order=True).with_row_index("place")
    runs = source.runs.with_row_index("position").join(
        cells, on=list(DEFAULTS), maintain_order="left"
    )
    return runs.sort("repeat", "place", "run")


def _rows(source: PredictionFile, cells: pl.DataFrame) -> pl.DataFrame:
    runs = placed(source)
    rows = runs.select(
        "repeat", "run", cell=cells["cell"].gather(runs["place"]), row=pl.int_range(pl.len())
    )
    return rows.select(pl.col(name).cast(dtype) for name, dtype in ROWS.items())
