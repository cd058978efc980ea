"""Measure how often a trained model is right at each magnitude of each transform."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from manyseed.jobs.images.transforms import transform_of_all, transformed
from manyseed.jobs.response import (
    DBI,
    DBI_BATCH,
    DBI_BATCHES,
    DBI_LAYERS,
    OPTIONS,
    PAIRED,
    PARTS,
    PLACES,
    SPECTRA,
    ResponseDesign,
)
from manyseed.jobs.run import gaps, labels, raw, stream
from manyseed.jobs.training.handling import PREDICTED_AT_ONCE, Alive
from manyseed.jobs.training.layers import evaluation

Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Streams:
    """The random draws of a repeat.

    Keyed by neither run, classifier nor layer, so that all its models answer the same questions as
    far as they share rows.
    """

    seed: int  # the sweep's seed
    dataset: str  # the dataset's identity
    repeat: int

    def order(self, transform: str, draw: int, n: int) -> Positions:
        """Return a random order of the `n` rows of the repeat's training part."""
        generator = stream(self.seed, "response", self.dataset, transform, self.repeat, draw)
        return np.argsort(raw(generator, n), kind="stable").astype(np.int64)

    def uniform(self, transform: str, n: int) -> NDArray[np.float64]:
        """Return a number in [0, 1) for each of `n` rows: the training part, then the test set."""
        generator = stream(self.seed, "response_shift", self.dataset, transform, self.repeat)
        words = raw(generator, n) >> np.uint64(11)
        return words.astype(np.float64) * 2.0**-53


def sample(order: Positions, own: Positions, rows: int | float) -> Positions:
    """Return the first of a run's own rows, in the order of the whole training part.

    `order`, int64 array (n_part,): all rows of the training part. `own`, int64 array (n_own,): the
    run's training rows in any order; each counts once. `rows`: how many, at most all; or a share of
    them, at least one row.

    Returns int64 array (n_sample,): rows of the training part.
    """
    is_own = np.zeros(len(order), dtype=np.bool_)
    is_own[own] = True
    ordered = order[is_own[order]]
    n = rows if isinstance(rows, int) else max(1, round(rows * len(ordered)))
    return ordered[:n]


def batches(sampled: Positions, size: int) -> Iterator[Positions]:
    """Cut a sample into batches; the last may be incomplete."""
    for start in range(0, len(sampled), size):
        yield sampled[start : start + size]


def pairs(kind: str, classes: NDArray[np.integer]) -> tuple[Positions, Positions]:
    """Pair the rows of a batch; the question is about the first row of each pair.

    The first and second rows form a pair, then the third and fourth, and so on, in the batch's
    random order, which for ``intra`` is first sorted by class. Pairs of the wrong kind are dropped
    (PRC, algorithm 3).

    `classes`, integer array (n,). Returns tuple of int64 arrays (n_pairs,): positions in the batch.
    """
    n = len(classes) // 2 * 2
    order = np.argsort(classes, kind="stable") if kind == "intra" else np.arange(len(classes))
    first, second = order[:n:2], order[1:n:2]
    same = classes[first] == classes[second]
    kept = same if kind == "intra" else ~same
    return first[kept].astype(np.int64), second[kept].astype(np.int64)


RIGHT, TOTAL = "response_right", "response_total"
SHIFTED_RIGHT, SHIFTED_TOTAL = "shifted_right", "shifted_total"
ARRAYS = (RIGHT, TOTAL, SHIFTED_RIGHT, SHIFTED_TOTAL)
"""Measured for every model that is asked, besides `DBI` if requested."""

_POOL = 4

AT_ONCE = OPTIONS["batch"].default
"""Rows transformed and predicted at a time, by one magnitude; more would not fit the caches."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The rows that a model is asked about.

    `own`, int64 array (n_own,): positions in the repeat's training part of the model's training
    rows, each once. `n_part`: number of rows in the training part. `rows`: ``rows(positions)``
    returns unperturbed raw rows of the training part, float64 (n, n_features), or whatever else the
    model's `encode` takes. `y`, uint16 array (n_part,): classes of the training part. `X_test`,
    float64 array (n_test, n_features): raw test rows, or whatever else the model's `encode` takes.
    `y_test`, uint16 array (n_test,). `image`: (height, width, channels). `largest`: the value of
    full brightness.
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


def answers(asked: ResponseDesign, subject: Subject, alive: Alive) -> Mapping[str, NDArray[Any]]:
    """Ask a trained model, in evaluation mode.

    Draws only from the subject's streams and does not change the model.

    Returns `RIGHT` and `TOTAL` (response, draw, magnitude): rows or pairs labelled correctly, and
    all of them; 0 beyond the end of a short grid. `SHIFTED_RIGHT` and `SHIFTED_TOTAL` (response,
    part), with the parts in `jobs.response.PARTS`; 0 for shifted parts of interpolations. If
    requested, `DBI`, float32 (layer,), with the layers in `DBI_LAYERS`. If spectra are asked for,
    only what `spectra` returns.
    """
    if asked.spectra:
        return spectra(asked.spectra, subject, alive)
    model = _Model(alive, subject)
    right = np.zeros((len(asked.responses), asked.draws, len(asked.grids[0])), dtype=np.uint32)
    total = np.zeros_like(right)
    shifted = np.zeros((len(asked.responses), len(PARTS), 2), dtype=np.uint32)
    plain = {
        "train": (int(model.train.sum()), len(subject.own)),
        "test": (int(model.test.sum()), len(subject.y_test)),
    }
    for number, (transform, layer) in enumerate(asked.responses):
        grid = asked.grid(transform)
        for draw in range(asked.draws):
            order = subject.streams.order(transform, draw, subject.n_part)
            sampled = sample(order, subject.own, asked.rows)
            if transform in PAIRED:
                chosen = _all_pairs(transform, subject.y, sampled, asked.batch)
                counts, n = model.paired(layer, chosen, grid), len(chosen[0])
            else:
                counts, n = model.moved(transform, sampled, grid), len(sampled)
            right[number, draw, : len(grid)] = counts
            total[number, draw, : len(grid)] = n
        for place, part in enumerate(PARTS):
            if part in plain:
                shifted[number, place] = plain[part]
            elif transform not in PAIRED:
                order = subject.streams.order(transform, 0, subject.n_part)
                sampled = sample(order, subject.own, asked.rows)
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
    """Pair the rows of each batch of a sample; return the first and second rows of all pairs."""
    paired = [(batch, *pairs(kind, y[batch])) for batch in batches(sampled, size)]
    first = np.concatenate([batch[one] for batch, one, _ in paired])
    return first, np.concatenate([batch[other] for batch, _, other in paired])


class _Model:
    """A model and its rows; at most `AT_ONCE` transformed rows are in memory at a time."""

    def __init__(self, alive: Alive, subject: Subject) -> None:
        if alive.encode is None:
            raise ValueError("the fit hands over nothing that encodes rows")
        self._subject, self._alive, self._encode = subject, alive, alive.encode
        self._parts: tuple[Any, Any] | None = None
        self.train = self._plain(subject.own, subject.rows, subject.y)
        """Which rows of the training part are right untransformed; False for rows not in `own`."""
        test = np.arange(len(subject.y_test), dtype=np.int64)
        self.test = self._plain(test, subject.X_test.__getitem__, subject.y_test)
        """Which rows of the test set are right untransformed."""

    def _plain(
        self,
        positions: Positions,
        rows: Callable[[Positions], NDArray[Any]],
        y: NDArray[np.uint16],
    ) -> NDArray[np.bool_]:
        right = np.zeros(len(y), dtype=np.bool_)
        for batch in batches(positions, PREDICTED_AT_ONCE):
            scores = self._alive.predict(self._encode(rows(batch)))  # also sets evaluation mode
            right[batch] = _is_right(scores, y[batch], self._subject.n_classes)
        return right

    def moved(
        self, transform: str, sampled: Positions, grid: tuple[float, ...]
    ) -> NDArray[np.int64]:
        """Count right rows of a sample at each magnitude of an image transform; 0 changes none."""
        subject = self._subject
        counts = np.where(np.equal(grid, 0), self.train[sampled].sum(), 0)
        name, image = transform.partition(":")[0], _image(subject)
        moves = [
            (place, transform_of_all(name, image, magnitude, subject.largest))
            for place, magnitude in enumerate(grid)
            if magnitude != 0
        ]
        for rows in _cut(sampled):
            images = torch.from_numpy(subject.rows(rows)).reshape(-1, *image)
            y = subject.y[rows]
            for place, move in moves:
                counts[place] += self._n_right(0, self._encoded(move(images)), y)
        return counts

    def shifted(
        self, part: str, transform: str, grid: tuple[float, ...], sampled: Positions
    ) -> tuple[int, int]:
        """Count right and all rows of a part, each transformed by its own random magnitude."""
        subject = self._subject
        u = subject.streams.uniform(transform, subject.n_part + len(subject.y_test))
        magnitudes = grid[0] + u * (grid[-1] - grid[0])
        name, image, largest = transform.partition(":")[0], _image(subject), subject.largest
        in_training = part == "shifted-train"
        positions = sampled if in_training else np.arange(len(subject.y_test))
        right = 0
        for rows in _cut(positions):
            X = subject.rows(rows) if in_training else subject.X_test[rows]
            y = (subject.y if in_training else subject.y_test)[rows]
            by = torch.from_numpy(magnitudes[rows if in_training else subject.n_part + rows])
            images = torch.from_numpy(X).reshape(-1, *image)
            # no variable keeps a transformed batch alive while the next one is made
            right += self._n_right(0, self._encoded(transformed(name, images, by, largest)), y)
        return right, len(positions)

    def paired(
        self, layer: int, chosen: tuple[Positions, Positions], grid: tuple[float, ...]
    ) -> NDArray[np.int64]:
        """Count right pairs at each magnitude of an interpolation of a layer's outputs."""
        first = chosen[0]
        counts = np.where(np.equal(grid, 0), self.train[first].sum(), 0)
        between = np.flatnonzero(grid)
        for part in _cut(np.arange(len(first))):
            y = self._subject.y[first[part]]
            one, other = (self._outputs(layer, rows[part]) for rows in chosen)
            for place in between:
                a = grid[place]
                counts[place] += self._n_right(layer, self._between(one, other, a, layer), y)
        return counts

    def _encoded(self, images: torch.Tensor) -> Any:
        return self._encode(images.reshape(len(images), -1).numpy())

    def _outputs(self, layer: int, rows: Positions) -> Any:
        """Return a layer's outputs for rows of the training part; layer 0 is the input."""
        encoded = self._encode(self._subject.rows(rows))
        if layer == 0:
            return encoded
        with torch.no_grad():
            return self._halves()[0](encoded)

    def _n_right(self, layer: int, outputs: Any, y: NDArray[np.uint16]) -> int:
        """Count the rows labelled correctly, given a layer's outputs; layer 0 is the input."""
        forward = self._alive.forward if layer == 0 else self._halves()[1]
        if forward is None:
            scores = self._alive.predict(outputs)
        else:
            with torch.no_grad():
                scores = forward(outputs).cpu().numpy()
        return int(np.count_nonzero(_is_right(scores, y, self._subject.n_classes)))

    def clustering(self) -> NDArray[np.float32]:
        """Return the mean Davies–Bouldin index of the first block's outputs, shape (layer,)."""
        subject = self._subject
        order = subject.streams.order(DBI, 0, subject.n_part)
        sampled = sample(order, subject.own, DBI_BATCHES * DBI_BATCH)
        head, _ = self._halves()
        indices: list[float] = []
        with torch.no_grad():
            for batch in batches(sampled, DBI_BATCH):
                if len(batch) == DBI_BATCH or not indices:
                    outputs = _pooled(head(self._encode(subject.rows(batch))))
                    indices.append(davies_bouldin(outputs.cpu().numpy(), subject.y[batch]))
        finite = [index for index in indices if np.isfinite(index)]
        mean = np.mean(finite) if finite else np.nan
        return np.full(len(DBI_LAYERS), mean, dtype=np.float32)

    def _halves(self) -> tuple[Any, Any]:
        if self._parts is None:
            if self._alive.halves is None:
                raise ValueError("the network has no hidden layer")
            head, tail = self._alive.halves()
            self._parts = head, evaluation(tail)
        return self._parts

    def _between(self, one: Any, other: Any, a: float, layer: int) -> Any:
        """Interpolate between rows; categorical columns stay those of the first row."""
        mixed = (1 - a) * one + a * other
        n = self._alive.n_continuous
        if layer == 0 and n is not None and mixed.ndim == 2 and n < mixed.shape[1]:
            mixed[:, n:] = one[:, n:]
        return mixed


def _cut(positions: Positions) -> list[Positions]:
    """Cut rows into parts of at most `AT_ONCE`, as equal as possible: fewer rows are no faster."""
    return np.array_split(positions, -(-len(positions) // AT_ONCE)) if len(positions) else []


def _image(subject: Subject) -> tuple[int, int, int]:
    if subject.image is None:
        raise ValueError("transforms of images need images")
    return subject.image


def _pooled(outputs: torch.Tensor) -> torch.Tensor:
    """Return a layer's outputs as rows; maps larger than 4 × 4 are max-pooled by 4 × 4."""
    if outputs.ndim == 4 and min(outputs.shape[2:]) > _POOL:
        outputs = torch.nn.functional.max_pool2d(outputs, _POOL)
    return outputs.flatten(1).double()


def spectra(most: int, subject: Subject, alive: Alive) -> dict[str, NDArray[Any]]:
    """Return the singular values of a network's Jacobian at up to `most` test points.

    Derivatives are of the scores, less their mean over classes, as what is added to all of them
    changes no prediction; of two classes, of the gap. They are by the continuous columns of the
    input as the network reads it.

    Returns `PLACES`, uint32 (point,), evenly spread over the test set, and `SPECTRA`, float32
    (point, rank), descending; NaN where the Jacobian is not finite.
    """
    model, encode = alive.model, alive.encode
    if model is None or encode is None:
        raise ValueError("only networks have a Jacobian")
    model.eval()
    n = min(most, len(subject.y_test))
    places = np.arange(n, dtype=np.int64) * len(subject.y_test) // n
    found = [
        _singular_values(model, encode(subject.X_test[part]), alive.n_continuous)
        for part in _cut(places)
    ]
    return {PLACES: places.astype(np.uint32), SPECTRA: np.concatenate(found)}


def _singular_values(model: Any, rows: Any, n_continuous: int | None) -> NDArray[np.float32]:
    rows = rows.detach().clone().requires_grad_()
    scores = model(rows)
    n_classes = scores.shape[1]
    outputs = gaps(scores)[:, None] if n_classes == 2 else scores - scores.mean(1, keepdim=True)
    # rows do not depend on each other, so the gradient of a sum holds each row's own
    by_class = [
        torch.autograd.grad(output.sum(), rows, retain_graph=True)[0].flatten(1)
        for output in outputs.unbind(1)
    ]
    jacobian = torch.stack(by_class, dim=1)[..., :n_continuous].double()
    finite = jacobian.isfinite().flatten(1).all(1)
    values = torch.full((len(rows), min(jacobian.shape[1:])), math.nan, dtype=torch.float64)
    values[finite] = torch.linalg.svdvals(jacobian[finite])
    # the means of K > 2 scores were taken away: at most K - 1 directions are left
    return values[:, : max(n_classes - 1, 1)].float().numpy()


def davies_bouldin(outputs: NDArray[np.float64], classes: NDArray[np.integer]) -> float:
    """Return the Davies–Bouldin index of classes, NaN if it is undefined.

    For each class, the largest ratio, over the other classes, of both classes' summed mean
    distances from their centres to the distance between the centres; averaged over classes. It is 0
    if classes are points.

    `outputs`, float64 array (row, feature). `classes`, integer array (row,).
    """
    from sklearn.metrics import davies_bouldin_score

    n = len(np.unique(classes))
    if not 1 < n < len(classes) or not np.isfinite(outputs).all():
        return math.nan
    return float(davies_bouldin_score(outputs, classes))


def _is_right(scores: NDArray[Any], y: NDArray[np.uint16], n_classes: int) -> NDArray[np.bool_]:
    """Return which rows are right by float32 scores, as in predictions; never if not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.asarray(gaps(scores) if scores.ndim == 2 else scores, dtype=np.float32)
    right: NDArray[np.bool_] = labels(values, n_classes if values.ndim > 1 else 2) == y
    finite = np.isfinite(values)
    if not finite.all():
        right &= finite if values.ndim == 1 else finite.all(axis=1)
    return right
