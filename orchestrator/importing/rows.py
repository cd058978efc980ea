"""Imported predictions → published shards, with at most two inner chunks of rows in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit, log_softmax

from manyseed.jobs.run import Prediction, Probability
from manyseed.jobs.training.prediction import gaps, labels
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing.source import Positions, Predicted, PredictionFile
from manyseed.orchestrator.store import encoding
from manyseed.orchestrator.store.arrays import COPY, DONE, PADDING
from manyseed.orchestrator.store.encoding import Array
from manyseed.orchestrator.store.groups import Group
from manyseed.orchestrator.store.journal import encode_row
from manyseed.orchestrator.store.schema import GroupSpec
from manyseed.orchestrator.store.shards import replacing_shard

BLOCK_BYTES = 2**26
"""Size of the predictions, as float32, that are read at once; a single run may be larger."""
_BLOCK_SCORES = 2**20  # number of scores whose probabilities are computed at once


def write_rows(group: Group, source: PredictionFile, order: Positions, recipe: int) -> int:
    """Publish all runs, a shard at a time; return the number of raised probabilities.

    Parameters
    ----------
    group : Group
        Laid out for these runs alone and not known to other processes.
    source : PredictionFile
    order : int64 array (run,)
        For each row, the position of its run in the source.
    recipe : int
        Number of the recipe.

    Raises
    ------
    UserError
        If scores are not finite.
    """
    floored, length = 0, group.spec.shard_length
    for number in range(group.shards):
        shard = _ImportedShard(group, source, recipe)
        shard.write(number, order[number * length : (number + 1) * length])
        floored += shard.predictions.floored
    return floored


class ImportedRuns:
    """The predictions of a source, as training would have returned them, read in blocks.

    Parameters
    ----------
    spec : GroupSpec
        Their group.
    source : PredictionFile
    """

    def __init__(self, spec: GroupSpec, source: PredictionFile) -> None:
        self._spec, self._source = spec, source
        self.floored = 0

    def of(self, positions: Positions) -> Iterator[tuple[int, int, Prediction]]:
        """Yield the index in `positions`, the position and the prediction of each run.

        Raises
        ------
        UserError
            If scores are not finite.
        """
        spec = self._spec
        n_columns = 2 * len(spec.epochs) if spec.scores == "none" else spec.n_classes
        step = max(1, BLOCK_BYTES // (4 * spec.samples * n_columns))
        for start in range(0, len(positions), step):
            block = positions[start : start + step]
            predicted = self._source.read(block)
            self.floored += predicted.floored
            for offset, position in enumerate(block.tolist()):
                prediction = _prediction(predicted, offset, spec)
                if spec.scores != "none" and not np.isfinite(prediction.scores).all():
                    raise UserError(
                        "has scores that are not finite",
                        file=self._source.file,
                        key=f"run {position}",
                        remedy="leave out such runs, or import labels instead of scores",
                    )
                yield start + offset, position, prediction


class _ImportedShard:
    """One shard while it is being written."""

    def __init__(self, group: Group, source: PredictionFile, recipe: int) -> None:
        self.group, self.spec, self.source = group, group.spec, source
        self.recipe, self.predictions = recipe, ImportedRuns(group.spec, source)
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


def _prediction(predicted: Predicted, number: int, spec: GroupSpec) -> Prediction:
    """Return the prediction of one run as training would have returned it."""
    grid = (len(spec.epochs), spec.samples)
    shape = grid if spec.n_classes == 2 else (*grid, spec.n_classes)
    if predicted.scores is None:
        assert predicted.label is not None
        nans = np.broadcast_to(np.float32(np.nan), shape)
        label = predicted.label[number].astype(np.uint16)
        return Prediction(nans, label, nans[..., 0] if nans.ndim == 3 else nans, np.nan)
    scores = predicted.scores[number].astype(np.float32)
    if scores.ndim == 2:
        scores = gaps(scores)
    label = labels(scores, spec.n_classes)
    if predicted.label is not None:
        label = predicted.label[number, 0]
    confidence = np.full(grid, np.nan, dtype=np.float32)
    if spec.has_confidence and spec.probability != "none":
        confidence[0] = _confidence(scores, label.astype(np.intp), spec.probability)
    return Prediction(scores[None], label.astype(np.uint16)[None], confidence, np.nan)


def _confidence(
    scores: NDArray[np.float32], label: NDArray[np.intp], probability: Probability
) -> NDArray[np.float64]:
    """Return the probabilities of the labels (sample,), computed in blocks."""
    confidence = np.empty(len(label))
    step = max(1, _BLOCK_SCORES // scores.shape[1])
    for first in range(0, len(label), step):
        block = slice(first, first + step)
        logs = scores[block] if probability == "softmax" else log_expit(scores[block])
        p = np.exp(log_softmax(logs.astype(np.float64), axis=1))
        confidence[block] = np.take_along_axis(p, label[block, None], axis=1)[:, 0]
    return confidence
