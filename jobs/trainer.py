"""Train runs one after another in a warm process, reading data once.

A run's result depends on the run alone, bit for bit, never on what was trained before it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs import classifiers, hparams
from manyseed.jobs.datasets import Dataset, dataset_id, load
from manyseed.jobs.datasets.split import Split, resample, split, subsample
from manyseed.jobs.hparams.kinds import Value
from manyseed.jobs.perturb import (
    Neighbours,
    find_neighbours,
    perturb_categorical,
    perturb_continuous,
    perturb_labels,
    uses_neighbours,
)
from manyseed.jobs.run import (
    Cell,
    DatasetRows,
    Generators,
    Prediction,
    Run,
    Stream,
    TrainingSet,
    stream,
)
from manyseed.jobs.training.handling import PLAIN, AfterTraining, Alive, Handling
from manyseed.jobs.training.network import RATES

if TYPE_CHECKING:
    from manyseed.jobs.response import ResponseDesign

CACHE_BYTES = 2 * 2**30


@dataclass(frozen=True, slots=True)
class TestSet:
    """The points that a repeat's runs predict.

    `index`, int64 array (n_test,): ascending row indices into the prepared dataset. `y_true`,
    uint16 array (n_test,): class index.
    """

    __test__ = False  # keeps pytest from collecting it

    index: NDArray[np.int64]
    y_true: NDArray[np.uint16]


class Trainer:
    """Trains runs and caches what several of them need.

    `cache_bytes`: size up to which datasets, splits and neighbours are kept; the least recently
    used go first.
    """

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        self._cache = _Cache(cache_bytes)

    def test_set(self, cell: Cell, repeat: int) -> TestSet:
        """Return the test set of a repeat."""
        index = self._split(cell, repeat).test
        return TestSet(index, self._dataset(cell).y[index])

    def groups(self, cell: Cell, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return the groups of some rows of a cell's dataset; None if its rows have no groups."""
        groups = self._dataset(cell).groups
        return None if groups is None else groups[rows]

    def train(self, run: Run, handling: Handling = PLAIN) -> Prediction:
        """Train one run and predict its test set."""
        handling = self._asking(run, handling)
        if run.cell.ensembling is not None:
            handling = replace(handling, ensembling=run.cell.ensembling)
        return classifiers.fit(
            run.cell.classifier, run_hparams(run), self.training_set(run), generators(run), handling
        )

    def _asking(self, run: Run, handling: Handling) -> Handling:
        if handling.response is None:
            return handling
        return replace(handling, after_training=self.answering(run, handling.response))

    def train_stack(
        self, block: Sequence[Run], handlings: Mapping[int, Handling]
    ) -> dict[int, Prediction | Exception]:
        """Train the runs of a block at once; return each one's prediction, or why it failed.

        A run whose data cannot be made is replaced by another, so that the rest get the same bits
        as ever. `handlings`: by number, how to handle the runs that are wanted.
        """
        outcomes: dict[int, Prediction | Exception] = {}
        given: dict[int, tuple[dict[str, Value], TrainingSet]] = {}
        for run in block:
            try:
                given[run.run] = run_hparams(run), self.training_set(run)
                classifiers.require_classes(given[run.run][1])
            except (ArithmeticError, ValueError) as error:
                given.pop(run.run, None)
                outcomes[run.run] = error
        healthy = next((run for run in block if run.run in given), None)
        if healthy is not None:
            taken = [run if run.run in given else healthy for run in block]
            general = next(iter(handlings.values()))
            general = replace(general, measures=(), response=None, after_training=None)
            asked = [
                self._asking(run, handlings.get(run.run, general) if run.run in given else general)
                for run in block
            ]
            fits = [(*given[run.run], generators(run)) for run in taken]
            made = classifiers.fit_stack(healthy.cell.classifier, fits, asked)
            for run, own in zip(block, made, strict=True):
                outcomes.setdefault(run.run, own)
        return outcomes

    def answering(self, run: Run, asked: ResponseDesign) -> AfterTraining:
        """Return a function that measures a run's response curves on its unperturbed rows."""
        from manyseed.jobs.response.measure import Streams, Subject, answers

        cell = run.cell
        data, part = self._dataset(cell), self._split(cell, run.repeat)
        subject = Subject(
            streams=Streams(cell.seed, dataset_id(cell.dataset), run.repeat),
            own=np.unique(self._points(run)),
            n_part=len(part.train),
            rows=lambda places: data.rows(part.train[places]),
            y=data.y[part.train],
            X_test=data.rows(part.test),
            y_test=data.y[part.test],
            n_classes=len(data.class_names),
            image=data.image,
            largest=255.0 if data.X.dtype == np.uint8 else float(data.X.max()),
        )

        def ask(alive: Alive) -> Mapping[str, NDArray[Any]]:
            if alive.look_up is None:
                return answers(asked, subject, alive)
            # rows are passed as indices into the dataset, whose features are looked up
            known = replace(subject, rows=lambda places: part.train[places], X_test=part.test)
            return answers(asked, known, replace(alive, encode=alive.look_up))

        return ask

    def training_set(self, run: Run) -> TrainingSet:
        """Return a run's training set: split, subsampled, resampled, perturbed.

        Runs that have the same rows share it, except with users' own code, which may change them.
        """
        cell = run.cell
        noise = {cell.perturb_continuous, cell.perturb_categorical, cell.perturb_labels} - {"none"}
        drawn = cell.train_fraction != 1.0 or "train" in cell.vary or noise
        X = self._dataset(cell).X
        if drawn or classifiers.is_own(cell.classifier) or 8 * X.size > self._cache.limit // 8:
            return self._training_set(run)
        key = (cell.seed, dataset_id(cell.dataset), run.repeat, cell.augment, cell.test_augment)
        return self._cache.get(("training set", *key), lambda: self._training_set(run))

    def _training_set(self, run: Run) -> TrainingSet:
        cell, key = run.cell, dataset_id(run.cell.dataset)
        data, part = self._dataset(cell), self._split(cell, run.repeat)
        points = self._points(run)
        X = perturbed(
            cell,
            data.rows(part.train[points]),
            data.cardinality,
            partial(_stream, run),
            lambda: self.neighbours(cell, part.train, run.repeat).at(points),
        )
        is_noisy = {cell.perturb_continuous, cell.perturb_categorical} != {"none"}
        return TrainingSet(
            X=X,
            y=relabelled(
                cell, data.y[part.train[points]], len(data.class_names), partial(_stream, run)
            ),
            X_test=data.rows(part.test),
            n_classes=len(data.class_names),
            cardinality=data.cardinality,
            image=data.image,
            y_test=data.y[part.test],
            in_dataset=DatasetRows(
                key, data.X, None if is_noisy else part.train[points], part.test
            ),
            augment=cell.augment,
            test_augment=cell.test_augment,
            features=data.features,
        )

    def _points(self, run: Run) -> NDArray[np.int64]:
        """Return the positions in the training part of a run's rows, in order."""
        cell, key = run.cell, dataset_id(run.cell.dataset)
        y = self._dataset(cell).y[self._split(cell, run.repeat).train]
        points = subsample(cell.seed, key, run.repeat, run.number(), y, cell.train_fraction)
        if "train" in cell.vary:
            points = resample(cell.seed, key, run.repeat, run.number(), points)
        return points

    def _dataset(self, cell: Cell) -> Dataset:
        key = dataset_id(cell.dataset)
        return self._cache.get(("dataset", key), lambda: load(cell.dataset))

    def _split(self, cell: Cell, repeat: int) -> Split:
        key, data = dataset_id(cell.dataset), self._dataset(cell)
        return self._cache.get(
            ("split", cell.seed, key, repeat),
            lambda: split(
                cell.seed,
                key,
                repeat,
                data.y,
                cell.dataset["test"],
                data.official_test,
                data.groups,
                data.roles,
            ),
        )

    def neighbours(self, cell: Cell, rows: NDArray[np.int64], part: int | str) -> Neighbours:
        """Return the neighbours among some rows of a cell's dataset.

        `rows` are a repeat's whole training part, or what a search fits; `part` tells which, to
        keep them.
        """
        data = self._dataset(cell)
        return self._cache.get(
            ("neighbours", cell.seed, dataset_id(cell.dataset), part),
            lambda: find_neighbours(data.rows(rows)[:, data.cardinality == 0]),
        )


def perturbed(
    cell: Cell,
    X: NDArray[np.float64],
    cardinality: NDArray[np.int32],
    generator: Callable[[Stream], np.random.Generator],
    near: Callable[[], Neighbours],
) -> NDArray[np.float64]:
    """Return rows (n, feature) with a cell's noise on them, each scheme from its own stream.

    `near` gives the neighbours of these rows, for the scheme that needs them.
    """
    scheme = cell.perturb_continuous
    if scheme != "none":
        found = near() if uses_neighbours(scheme) else None
        X = perturb_continuous(X, cardinality, scheme, generator("perturb_continuous"), found)
    scheme = cell.perturb_categorical
    if scheme != "none":
        X = perturb_categorical(X, cardinality, scheme, generator("perturb_categorical"))
    return X


def relabelled(
    cell: Cell,
    y: NDArray[np.uint16],
    n_classes: int,
    generator: Callable[[Stream], np.random.Generator],
) -> NDArray[np.uint16]:
    """Return classes (n,) with a cell's noise on labels, from its own stream."""
    scheme = cell.perturb_labels
    if scheme == "none":
        return y
    return perturb_labels(y, n_classes, scheme, generator("perturb_labels"))


def stream_keys(run: Run) -> dict[Stream, list[str | int]]:
    """Return the keys of every stream that a run draws from, as listed in ``docs/identity.md``.

    A stream that `vary` does not name is the same for every run of the repeat; dropout,
    augmentation and the draws of an ensembling method vary with batch.
    """
    own, init, batch = (run.number(source) for source in ("train", "init", "batch"))
    cell, dataset, classifier = run.cell, dataset_id(run.cell.dataset), run.cell.classifier_key
    keys: dict[Stream, list[str | int]] = {
        "split": [dataset, run.repeat],
        "subsample": [dataset, run.repeat, own],
    }
    if "train" in cell.vary:
        keys["resample"] = [dataset, run.repeat, own]
    if cell.perturb_continuous != "none":
        keys["perturb_continuous"] = [dataset, cell.perturb_continuous, run.repeat, own]
    if cell.perturb_categorical != "none":
        keys["perturb_categorical"] = [dataset, cell.perturb_categorical, run.repeat, own]
    if cell.perturb_hparams != "none":
        keys["perturb_hparams"] = [classifier, cell.perturb_hparams, run.repeat, own]
    if cell.perturb_labels != "none":
        keys["perturb_labels"] = [dataset, cell.perturb_labels, run.repeat, own]
    keys["init"] = [dataset, classifier, run.repeat, *([init] if "init" in cell.vary else [])]
    varied: list[str | int] = [batch] if "batch" in cell.vary else []
    keys["batch"] = keys["dropout"] = [dataset, classifier, run.repeat, *varied]
    if cell.augment != "none":
        keys["augment"] = [dataset, classifier, cell.augment, run.repeat, *varied]
    if cell.test_augment != "none":  # no classifier key: all classifiers see the same images
        keys["test_augment"] = [dataset, cell.test_augment, run.repeat, *varied]
    if (method := cell.ensembling) is not None:
        from manyseed.jobs.ensembling.methods import METHODS, stream_name

        for name in METHODS[method["name"]].streams:
            keys[name] = [dataset, classifier, stream_name(method), run.repeat, *varied]
    return keys


def _stream(run: Run, name: Stream) -> np.random.Generator:
    return stream(run.cell.seed, name, *stream_keys(run)[name])


def generators(run: Run) -> Generators:
    """Return a run's generators for its fit."""
    keys = stream_keys(run)  # once, not once a stream: the dataset is hashed for it

    def of(*names: Stream) -> dict[str, np.random.Generator]:
        return {name: stream(run.cell.seed, name, *keys[name]) for name in names if name in keys}

    return Generators(
        **of("init", "batch", "dropout"), **of("augment", "test_augment", "langevin", "posterior")
    )


def run_hparams(run: Run) -> dict[str, Value]:
    """Return a run's hparams: the anchors, or values perturbed around them."""
    cell = run.cell
    if cell.perturb_hparams == "none":
        return dict(cell.hparams)
    space = classifiers.space(cell.classifier, cell.hparams)
    return hparams.perturb(
        space, cell.hparams, cell.perturb_hparams, _stream(run, "perturb_hparams")
    )


def block_of(run: Run, members: int) -> list[Run]:
    """Return the runs that are trained at once with a run, or the run alone.

    Runs of a repeat are cut into blocks by their numbers, whether all are planned or not: which run
    is beside which, on which last bits depend, thus never changes.

    `members`: the number of runs of a block. Runs whose networks differ in structure, or that are
    augmented or have members of their own, are trained alone.
    """
    if members < 2 or not classifiers.stacks(run.cell):
        return [run]
    first = run.run - run.run % members
    block = [replace(run, run=first + place) for place in range(members)]
    if run.cell.perturb_hparams != "none":
        shapes = [
            [value for name, value in run_hparams(each).items() if name not in RATES]
            for each in block
        ]
        if any(shape != shapes[0] for shape in shapes):
            return [run]
    return block


def made(outcome: Prediction | Exception) -> Prediction:
    """Return the prediction of a run of a stack, or raise why it has none."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


class _Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


T = TypeVar("T", bound=_Sized)


class _Cache:
    """The most recently used values, up to a total size; the latest is always kept.

    Sizes are added up when there is a new value: fits of a few milliseconds look up ten.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._values: OrderedDict[tuple[object, ...], _Sized] = OrderedDict()

    def get(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        if key in self._values:
            self._values.move_to_end(key)
            return cast(T, self._values[key])
        self._values[key] = made = make()
        size = sum(value.nbytes for value in self._values.values())
        while len(self._values) > 1 and size > self.limit:
            size -= self._values.popitem(last=False)[1].nbytes
        return made
