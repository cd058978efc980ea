"""A trained model's answers: how often it is right at each magnitude of each transform."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from manyseed.jobs.images.transforms import transform_of_all, transformed
from manyseed.jobs.response.asked import (
    BATCH,
    DBI,
    DBI_BATCH,
    DBI_BATCHES,
    DBI_LAYERS,
    PAIRED,
    PARTS,
    Asked,
)
from manyseed.jobs.response.pairs import Positions, Streams, batches, pairs, sample
from manyseed.jobs.training.blocked import evaluation
from manyseed.jobs.training.handling import PREDICTED_AT_ONCE, Alive
from manyseed.jobs.training.prediction import gaps, labels

RIGHT, TOTAL = "response_right", "response_total"
SHIFTED_RIGHT, SHIFTED_TOTAL = "shifted_right", "shifted_total"
ARRAYS = (RIGHT, TOTAL, SHIFTED_RIGHT, SHIFTED_TOTAL)
"""Of every model that is asked; `DBI` where it is asked for."""

AT_ONCE = BATCH
"""Rows that are moved at once, by one magnitude, and predicted: more would leave the caches."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The rows that a model is asked about.

    Attributes
    ----------
    streams : Streams
    own : int64 array (n_own,)
        Rows of the repeat's training part that it was trained on, each once.
    n_part : int
        Rows of the training part.
    rows : callable
        ``rows(own)`` returns raw rows of the training part, float64 (n, n_features), unperturbed;
        or, as `X_test`, in their place what the model's `encode` takes.
    y : uint16 array (n_part,)
        Their classes.
    X_test : float64 array (n_test, n_features)
    y_test : uint16 array (n_test,)
    n_classes : int
    image : tuple of int or None
        (height, width, channels).
    largest : float
        The value of full brightness.
    """

    streams: Streams
    own: Positions
    n_part: int
    rows: Callable[[Positions], NDArray[Any]]
    y: NDArray[np.uint16]
    X_test: NDArray[Any]
    y_test: NDArray[np.uint16]
    n_classes: int
    image: tuple[int, int, int] | None
    largest: float


def answers(asked: Asked, of: Subject, alive: Alive) -> Mapping[str, NDArray[Any]]:
    """Ask a trained model, in evaluation mode.

    Nothing is drawn but from the streams of `of`, and nothing changes in the model.

    Returns
    -------
    dict of arrays, uint32
        `RIGHT` and `TOTAL` (response, draw, magnitude): rows or pairs that it labels right, and all
        of them; 0 beyond the end of a short grid. `SHIFTED_RIGHT` and `SHIFTED_TOTAL` (response,
        part), the parts as `jobs.response.asked.PARTS`; 0 of shifted ones where a transform is
        an interpolation. Where asked for `DBI`, float32 (layer,), the layers of `DBI_LAYERS`.
    """
    model = _Model(alive, of)
    right = np.zeros((len(asked.responses), asked.draws, len(asked.grids[0])), dtype=np.uint32)
    total = np.zeros_like(right)
    shifted = np.zeros((len(asked.responses), len(PARTS), 2), dtype=np.uint32)
    plain = {
        "train": (int(model.train.sum()), len(of.own)),
        "test": (int(model.test.sum()), len(of.y_test)),
    }
    for number, (transform, layer) in enumerate(asked.responses):
        grid = asked.grid(transform)
        for draw in range(asked.draws):
            order = of.streams.order(transform, draw, of.n_part)
            sampled = sample(order, of.own, asked.rows)
            if transform in PAIRED:
                chosen = _all_pairs(transform, of.y, sampled, asked.batch)
                counts, n = model.paired(layer, chosen, grid), len(chosen[0])
            else:
                counts, n = model.moved(transform, sampled, grid), len(sampled)
            right[number, draw, : len(grid)] = counts
            total[number, draw, : len(grid)] = n
        for place, part in enumerate(PARTS):
            if part in plain:
                shifted[number, place] = plain[part]
            elif transform not in PAIRED:
                sampled = sample(of.streams.order(transform, 0, of.n_part), of.own, asked.rows)
                shifted[number, place] = model.shifted(part, transform, grid, sampled)
    counted = {
        RIGHT: right,
        TOTAL: total,
        SHIFTED_RIGHT: np.ascontiguousarray(shifted[..., 0]),
        SHIFTED_TOTAL: np.ascontiguousarray(shifted[..., 1]),
    }
    return {**counted, DBI: model.clustering()} if asked.dbi else counted


def _all_pairs(
    kind: str, y: NDArray[np.uint16], sampled: Positions, size: int
) -> tuple[Positions, Positions]:
    """Pair the rows of each batch of a sample; return the first and second of all pairs."""
    found = [(batch, *pairs(kind, y[batch])) for batch in batches(sampled, size)]
    first = np.concatenate([batch[one] for batch, one, _ in found])
    return first, np.concatenate([batch[other] for batch, _, other in found])


class _Model:
    """A model and its rows, `AT_ONCE` of which are in memory moved, by one magnitude, at a time."""

    def __init__(self, alive: Alive, of: Subject) -> None:
        if alive.encode is None:
            raise ValueError("the fit hands over nothing that encodes rows")
        self._of, self._alive, self._encode = of, alive, alive.encode
        self._cut: tuple[Any, Any] | None = None
        self.train = self._plain(of.own, of.rows, of.y)
        """Which rows of the training part are right as they are; of others than its own, none."""
        test = np.arange(len(of.y_test), dtype=np.int64)
        self.test = self._plain(test, of.X_test.__getitem__, of.y_test)
        """Which rows of the test set are."""

    def _plain(
        self,
        places: Positions,
        rows: Callable[[Positions], NDArray[Any]],
        y: NDArray[np.uint16],
    ) -> NDArray[np.bool_]:
        right = np.zeros(len(y), dtype=np.bool_)
        for some in batches(places, PREDICTED_AT_ONCE):
            scores = self._alive.predict(self._encode(rows(some)))  # sets evaluation, too
            right[some] = _is_right(scores, y[some], self._of.n_classes)
        return right

    def moved(
        self, transform: str, sampled: Positions, grid: tuple[float, ...]
    ) -> NDArray[np.int64]:
        """Count a sample at each magnitude of a transform of images; 0 leaves rows as they are."""
        counts = np.where(np.equal(grid, 0), self.train[sampled].sum(), 0)
        name, image = transform.partition(":")[0], _image(self._of)
        moves = [
            (place, transform_of_all(name, image, magnitude, self._of.largest))
            for place, magnitude in enumerate(grid)
            if magnitude != 0
        ]
        for rows in _cut(sampled):
            images = torch.from_numpy(self._of.rows(rows)).reshape(-1, *image)
            y = self._of.y[rows]
            for place, move in moves:
                counts[place] += self._n_right(0, self._encoded(move(images)), y)
        return counts

    def shifted(
        self, part: str, transform: str, grid: tuple[float, ...], sampled: Positions
    ) -> tuple[int, int]:
        """Count rows of a part, each moved by its own random magnitude."""
        of = self._of
        u = of.streams.uniform(transform, of.n_part + len(of.y_test))
        magnitudes = grid[0] + u * (grid[-1] - grid[0])
        name, image = transform.partition(":")[0], _image(of)
        in_training = part == "shifted-train"
        places = sampled if in_training else np.arange(len(of.y_test))
        right = 0
        for rows in _cut(places):
            X = of.rows(rows) if in_training else of.X_test[rows]
            y = (of.y if in_training else of.y_test)[rows]
            own = torch.from_numpy(magnitudes[rows if in_training else of.n_part + rows])
            images = torch.from_numpy(X).reshape(-1, *image)
            # nothing refers to a batch that was moved when the next one is
            right += self._n_right(0, self._encoded(transformed(name, images, own, of.largest)), y)
        return right, len(places)

    def paired(
        self, layer: int, chosen: tuple[Positions, Positions], grid: tuple[float, ...]
    ) -> NDArray[np.int64]:
        """Count pairs at each magnitude of an interpolation of a layer's outputs."""
        first = chosen[0]
        counts = np.where(np.equal(grid, 0), self.train[first].sum(), 0)
        between = np.flatnonzero(grid)
        for some in _cut(np.arange(len(first))):
            y = self._of.y[first[some]]
            one, other = (self._outputs(layer, rows[some]) for rows in chosen)
            for place in between:
                a = grid[place]
                counts[place] += self._n_right(layer, self._between(one, other, a, layer), y)
        return counts

    def _encoded(self, images: torch.Tensor) -> Any:
        return self._encode(images.reshape(len(images), -1).numpy())

    def _outputs(self, layer: int, rows: Positions) -> Any:
        """Return what a layer, 0 the input, makes of rows of the training part."""
        encoded = self._encode(self._of.rows(rows))
        if layer == 0:
            return encoded
        with torch.no_grad():
            return self._halves()[0](encoded)

    def _n_right(self, layer: int, outputs: Any, y: NDArray[np.uint16]) -> int:
        """Count rows that are labelled right by what a layer, 0 the input, makes of them."""
        forward = self._alive.forward if layer == 0 else self._halves()[1]
        if forward is None:
            scores = self._alive.predict(outputs)
        else:
            with torch.no_grad():
                scores = forward(outputs).cpu().numpy()
        return int(np.count_nonzero(_is_right(scores, y, self._of.n_classes)))

    def clustering(self) -> NDArray[np.float32]:
        """Return how little the classes are apart behind the first block, shape (layer,)."""
        of = self._of
        places = sample(of.streams.order(DBI, 0, of.n_part), of.own, DBI_BATCHES * DBI_BATCH)
        head, _ = self._halves()
        found: list[float] = []
        with torch.no_grad():
            for batch in batches(places, DBI_BATCH):
                if len(batch) == DBI_BATCH or not found:
                    outputs = _pooled(head(self._encode(of.rows(batch))))
                    found.append(davies_bouldin(outputs.cpu().numpy(), of.y[batch]))
        known = [index for index in found if np.isfinite(index)]
        mean = np.mean(known) if known else np.nan
        return np.full(len(DBI_LAYERS), mean, dtype=np.float32)

    def _halves(self) -> tuple[Any, Any]:
        if self._cut is None:
            if self._alive.halves is None:
                raise ValueError("the network has no hidden layer")
            head, tail = self._alive.halves()
            self._cut = head, evaluation(tail)
        return self._cut

    def _between(self, one: Any, other: Any, a: float, layer: int) -> Any:
        """Return what lies between rows; categorical columns stay those of the first."""
        mixed = (1 - a) * one + a * other
        n = self._alive.n_continuous
        if layer == 0 and n is not None and mixed.ndim == 2 and n < mixed.shape[1]:
            mixed[:, n:] = one[:, n:]
        return mixed


def _cut(places: Positions) -> list[Positions]:
    """Cut rows into parts of at most `AT_ONCE`, as equal as may be: few rows are no quicker."""
    return np.array_split(places, -(-len(places) // AT_ONCE)) if len(places) else []


def _image(of: Subject) -> tuple[int, int, int]:
    if of.image is None:
        raise ValueError("transforms of images need images")
    return of.image


def _pooled(outputs: torch.Tensor) -> torch.Tensor:
    """Return a layer's outputs as rows; maps larger than 4 × 4 are max-pooled by 4 × 4."""
    if outputs.ndim == 4 and min(outputs.shape[2:]) > _POOL:
        outputs = torch.nn.functional.max_pool2d(outputs, _POOL)
    return outputs.flatten(1).double()


_POOL = 4


def davies_bouldin(outputs: NDArray[np.float64], classes: NDArray[np.integer]) -> float:
    """Return the Davies–Bouldin index of classes, NaN where it has no meaning.

    The mean over classes of the largest ratio, over other classes, of both mean distances from
    their centres to the distance of the centres: 0 where classes are points.

    Parameters
    ----------
    outputs : float64 array (row, feature)
    classes : integer array (row,)
    """
    from sklearn.metrics import davies_bouldin_score

    n = len(np.unique(classes))
    if not 1 < n < len(classes) or not np.isfinite(outputs).all():
        return math.nan
    return float(davies_bouldin_score(outputs, classes))


def _is_right(scores: NDArray[Any], y: NDArray[np.uint16], n_classes: int) -> NDArray[np.bool_]:
    """Say which labels are right, taken in float32 as a prediction's; no number is never right."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.asarray(gaps(scores) if scores.ndim == 2 else scores, dtype=np.float32)
    right: NDArray[np.bool_] = labels(values, n_classes if values.ndim > 1 else 2) == y
    finite = np.isfinite(values)
    if not finite.all():
        right &= finite if values.ndim == 1 else finite.all(axis=1)
    return right
