"""A trained model's answers: how often it is right at each magnitude of each transform."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from manyseed.jobs.images.transforms import transformed
from manyseed.jobs.response.asked import (
    DBI,
    DBI_BATCH,
    DBI_BATCHES,
    DBI_LAYERS,
    PAIRED,
    PARTS,
    Asked,
)
from manyseed.jobs.response.pairs import Positions, Streams, batches, pairs, sample
from manyseed.jobs.training.handling import Alive
from manyseed.jobs.training.prediction import gaps, labels

RIGHT, TOTAL = "response_right", "response_total"
SHIFTED_RIGHT, SHIFTED_TOTAL = "shifted_right", "shifted_total"
ARRAYS = (RIGHT, TOTAL, SHIFTED_RIGHT, SHIFTED_TOTAL)
"""Of every model that is asked; `DBI` where it is asked for."""

Counts = NDArray[np.uint32]


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
    plain = {part: model.plain(part, asked.batch) for part in ("train", "test")}
    for number, (transform, layer) in enumerate(asked.responses):
        grid = asked.grid(transform)
        for draw in range(asked.draws):
            order = of.streams.order(transform, draw, of.n_part)
            sampled = sample(order, of.own, asked.rows)
            ask = model.paired if transform in PAIRED else model.moved
            for batch in batches(sampled, asked.batch):
                counts = ask(transform, layer, batch, grid)
                right[number, draw, : len(grid)] += counts
                total[number, draw, : len(grid)] += np.uint32(
                    _n_pairs(transform, of.y[batch]) if transform in PAIRED else len(batch)
                )
        for place, part in enumerate(PARTS):
            if part in plain:
                shifted[number, place] = plain[part]
            elif transform not in PAIRED:
                sampled = sample(of.streams.order(transform, 0, of.n_part), of.own, asked.rows)
                shifted[number, place] = model.shifted(part, transform, grid, sampled, asked.batch)
    found = {
        RIGHT: right,
        TOTAL: total,
        SHIFTED_RIGHT: np.ascontiguousarray(shifted[..., 0]),
        SHIFTED_TOTAL: np.ascontiguousarray(shifted[..., 1]),
    }
    return {**found, DBI: model.clustering()} if asked.dbi else found


def _n_pairs(kind: str, classes: NDArray[np.uint16]) -> int:
    return len(pairs(kind, classes)[0])


class _Model:
    """A model and its rows, one batch of them in memory at a time."""

    def __init__(self, alive: Alive, of: Subject) -> None:
        if alive.encode is None:
            raise ValueError("the fit hands over nothing that encodes rows")
        self._of, self._alive, self._encode = of, alive, alive.encode
        self._cut: tuple[Any, Any] | None = None

    def _right(self, encoded: Any, y: NDArray[np.uint16]) -> int:
        return _n_right(self._alive.predict(encoded), y, self._of.n_classes)

    def plain(self, part: str, size: int) -> tuple[int, int]:
        """Count all rows of a part, as they are."""
        of = self._of
        n = len(of.own) if part == "train" else len(of.y_test)
        right = 0
        for batch in batches(np.arange(n), size):
            if part == "train":
                X, y = of.rows(of.own[batch]), of.y[of.own[batch]]
            else:
                X, y = of.X_test[batch], of.y_test[batch]
            right += self._right(self._encode(X), y)
        return right, n

    def moved(
        self, transform: str, _: int, batch: Positions, grid: tuple[float, ...]
    ) -> NDArray[np.uint32]:
        """Count a batch of rows at each magnitude of a transform of images."""
        X, y = self._of.rows(batch), self._of.y[batch]
        return np.array(
            [self._right(self._moved(transform, X, np.full(len(X), a)), y) for a in grid],
            dtype=np.uint32,
        )

    def shifted(
        self, part: str, transform: str, grid: tuple[float, ...], sampled: Positions, size: int
    ) -> tuple[int, int]:
        """Count rows of a part, each moved by its own random magnitude."""
        of = self._of
        u = of.streams.uniform(transform, of.n_part + len(of.y_test))
        magnitudes = grid[0] + u * (grid[-1] - grid[0])
        in_training = part == "shifted-train"
        places = sampled if in_training else np.arange(len(of.y_test))
        right = 0
        for batch in batches(places, size):
            X = of.rows(batch) if in_training else of.X_test[batch]
            y = (of.y if in_training else of.y_test)[batch]
            own = magnitudes[batch if in_training else of.n_part + batch]
            right += self._right(self._moved(transform, X, own), y)
        return right, len(places)

    def _moved(
        self, transform: str, X: NDArray[np.float64], magnitudes: NDArray[np.float64]
    ) -> Any:
        assert self._of.image is not None
        images = torch.from_numpy(X).reshape(-1, *self._of.image)
        name = transform.partition(":")[0]
        found = transformed(name, images, torch.from_numpy(magnitudes), self._of.largest)
        return self._encode(found.reshape(len(X), -1).numpy())

    def paired(
        self, transform: str, layer: int, batch: Positions, grid: tuple[float, ...]
    ) -> NDArray[np.uint32]:
        """Count the pairs of a batch at each magnitude of an interpolation."""
        X, y = self._of.rows(batch), self._of.y[batch]
        first, second = pairs(transform, y)
        if not len(first):
            return np.zeros(len(grid), dtype=np.uint32)
        one, other = self._encode(X[first]), self._encode(X[second])
        if layer == 0:
            found = [self._right(self._between(one, other, a), y[first]) for a in grid]
            return np.array(found, dtype=np.uint32)
        head, tail = self._halves()
        with torch.no_grad():
            one, other = head(one), head(other)
            found = [
                _n_right(
                    tail((1 - a) * one + a * other).cpu().numpy(),
                    y[first],
                    self._of.n_classes,
                )
                for a in grid
            ]
        return np.array(found, dtype=np.uint32)

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
            self._alive.predict(self._encode(self._of.rows(self._of.own[:1])))  # sets evaluation
            self._cut = self._alive.halves()
        return self._cut

    def _between(self, one: Any, other: Any, a: float) -> Any:
        """Return what lies between rows; categorical columns stay those of the first."""
        mixed = (1 - a) * one + a * other
        n = self._alive.n_continuous
        if n is not None and mixed.ndim == 2 and n < mixed.shape[1]:
            mixed[:, n:] = one[:, n:]
        return mixed


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


def _n_right(scores: NDArray[Any], y: NDArray[np.uint16], n_classes: int) -> int:
    """Count right labels, taken in float32 as a prediction's are; no number is never right."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.asarray(gaps(scores) if scores.ndim == 2 else scores, dtype=np.float32)
    right = labels(values, n_classes if values.ndim > 1 else 2) == y
    finite = np.isfinite(values) if values.ndim == 1 else np.isfinite(values).all(axis=1)
    return int((right & finite).sum())
