"""One run after the other in a warm process: data is read once, every random number has its stream.

A run's result depends on the run alone, bit for bit: not on what was trained before it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from jobs import classifiers, hparams
from jobs.datasets import Dataset, dataset_id, load
from jobs.datasets.split import Split, resample, split, subsample
from jobs.perturb import (
    Neighbours,
    find_neighbours,
    perturb_categorical,
    perturb_continuous,
    uses_neighbours,
)
from jobs.run import Cell, Generators, MachineError, Origin, Prediction, Run, TrainingSet
from jobs.streams import Stream, stream
from jobs.training.checkpoint import Checkpoint
from jobs.training.handling import Device

CACHE_BYTES = 2 * 2**30


@dataclass(frozen=True, slots=True)
class TestSet:
    """The points that a repeat's runs predict.

    Attributes
    ----------
    index : int64 array (n_test,)
        Ascending, into the prepared dataset.
    y_true : uint16 array (n_test,)
        Class index.
    """

    __test__ = False  # pytest takes it for a test otherwise

    index: NDArray[np.int64]
    y_true: NDArray[np.uint16]


class Trainer:
    """Trains runs and keeps what several of them need.

    Parameters
    ----------
    cache_bytes : int
        Datasets, splits and neighbours are kept up to this size; the latest used stay.
    """

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        self._cache = _Cache(cache_bytes)

    def test_set(self, cell: Cell, repeat: int) -> TestSet:
        """Return the test set of a repeat.

        Raises
        ------
        jobs.run.MachineError
            Where the data is missing or is not what was planned.
        """
        index = self._split(cell, repeat).test
        return TestSet(index, self._dataset(cell).y[index])

    def train(
        self,
        run: Run,
        snapshots: tuple[int, ...] = (),
        *,
        device: Device = "cpu",
        curves: bool = False,
        checkpoint: Checkpoint | None = None,
    ) -> Prediction:
        """Train one run and predict its test set.

        Parameters
        ----------
        snapshots : tuple of int
            Epochs to predict at besides the last, for classifiers that have epochs.
        device : {"cpu", "gpu"}
            Where to fit, for classifiers that can choose.
        curves : bool
            Whether to record loss and accuracy of every epoch.
        checkpoint : Checkpoint, optional
            Where a network saves itself and goes on from. Its key names the run and its recipe;
            the caller removes it when the prediction is safe.

        Raises
        ------
        FloatingPointError
            Where a score is not finite: the training diverged.
        jobs.run.MachineError
            Where data or a package is missing.
        """
        data = self.training_set(run)
        try:
            prediction = classifiers.fit(
                run.cell.classifier,
                run_hparams(run),
                data,
                generators(run),
                snapshots,
                device=device,
                curves=curves,
                checkpoint=checkpoint,
            )
        except ImportError as error:
            name = run.cell.classifier["name"]
            raise MachineError(f"classifier {name} lacks a package: {error}") from error
        wrong = int(np.size(prediction.scores) - np.isfinite(prediction.scores).sum())
        if wrong:
            raise FloatingPointError(
                f"{wrong} of {np.size(prediction.scores)} scores of {run.cell.classifier['name']} "
                "are not finite: the training diverged"
            )
        return prediction

    def training_set(self, run: Run) -> TrainingSet:
        """Return what a run is fitted on: split, subsampled, resampled, perturbed."""
        cell, key = run.cell, dataset_id(run.cell.dataset)
        data, part = self._dataset(cell), self._split(cell, run.repeat)
        points = subsample(
            cell.seed, key, run.repeat, run.run, data.y[part.train], cell.train_fraction
        )
        if "train" in cell.vary:
            points = resample(cell.seed, key, run.repeat, run.run, points)
        X = self._perturbed(run, data.rows(part.train[points]), points)
        perturbed = {cell.perturb_continuous, cell.perturb_categorical} != {"none"}
        return TrainingSet(
            X=X,
            y=data.y[part.train[points]],
            X_test=data.rows(part.test),
            n_classes=len(data.class_names),
            cardinality=data.cardinality,
            image=data.image,
            y_test=data.y[part.test],
            origin=Origin(key, data.X, None if perturbed else part.train[points], part.test),
        )

    def _perturbed(
        self, run: Run, X: NDArray[np.float64], points: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        cell, cardinality = run.cell, self._dataset(run.cell).cardinality
        scheme = cell.perturb_continuous
        if scheme != "none":
            near = self._neighbours(run).at(points) if uses_neighbours(scheme) else None
            generator = _data_stream(run, "perturb_continuous", scheme)
            X = perturb_continuous(X, cardinality, scheme, generator, near)
        scheme = cell.perturb_categorical
        if scheme != "none":
            generator = _data_stream(run, "perturb_categorical", scheme)
            X = perturb_categorical(X, cardinality, scheme, generator)
        return X

    def _dataset(self, cell: Cell) -> Dataset:
        key = dataset_id(cell.dataset)
        return self._cache.get(("dataset", key), lambda: load(cell.dataset))

    def _split(self, cell: Cell, repeat: int) -> Split:
        key, data = dataset_id(cell.dataset), self._dataset(cell)
        return self._cache.get(
            ("split", cell.seed, key, repeat),
            lambda: split(cell.seed, key, repeat, data.y, cell.dataset["test"], data.official_test),
        )

    def _neighbours(self, run: Run) -> Neighbours:
        """Return the neighbours in the repeat's whole training part."""
        cell = run.cell
        data, part = self._dataset(cell), self._split(cell, run.repeat)
        return self._cache.get(
            ("neighbours", cell.seed, dataset_id(cell.dataset), run.repeat),
            lambda: find_neighbours(data.rows(part.train)[:, data.cardinality == 0]),
        )


def generators(run: Run) -> Generators:
    """Return a run's generators for its fit.

    A stream that `vary` does not name is the same for every run of the repeat; dropout goes with
    batch.
    """

    def of(name: Stream, varies: bool) -> np.random.Generator:
        keys = (dataset_id(run.cell.dataset), _classifier_key(run.cell), run.repeat)
        return stream(run.cell.seed, name, *keys, *((run.run,) if varies else ()))

    return Generators(
        init=of("init", "init" in run.cell.vary),
        batch=of("batch", "batch" in run.cell.vary),
        dropout=of("dropout", "batch" in run.cell.vary),
    )


def run_hparams(run: Run) -> dict[str, Any]:
    """Return the hparams that a run is fitted with: the anchors, or perturbed around them."""
    cell = run.cell
    if cell.perturb_hparams == "none":
        return dict(cell.hparams)
    keys = (_classifier_key(cell), cell.perturb_hparams, run.repeat, run.run)
    generator = stream(cell.seed, "perturb_hparams", *keys)
    return hparams.perturb(cell.classifier, cell.hparams, cell.perturb_hparams, generator)


def _data_stream(run: Run, name: Stream, scheme: str) -> np.random.Generator:
    return stream(run.cell.seed, name, dataset_id(run.cell.dataset), scheme, run.repeat, run.run)


def _classifier_key(cell: Cell) -> str:
    return f"{cell.classifier['name']}@{cell.classifier['version']}"


class _Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


T = TypeVar("T", bound=_Sized)


class _Cache:
    """The latest used values, up to a total size; the one just asked for is always kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[tuple[object, ...], _Sized] = OrderedDict()

    def get(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        if key not in self._values:
            self._values[key] = make()
        self._values.move_to_end(key)
        while len(self._values) > 1 and self._size() > self._limit:
            self._values.popitem(last=False)
        return cast(T, self._values[key])

    def _size(self) -> int:
        return sum(value.nbytes for value in self._values.values())
