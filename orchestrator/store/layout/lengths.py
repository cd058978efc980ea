"""How many runs of a group are published and read together, chosen when the group is planned."""

from __future__ import annotations

import math

from manyseed.jobs.run import Probability
from manyseed.orchestrator.store.layout.arrays import itemsize, label_dtype
from manyseed.orchestrator.store.layout.coordinates import Coordinate
from manyseed.orchestrator.store.layout.optional import OptionalArray
from manyseed.orchestrator.store.layout.schema import GroupSpec, Keep, ScoreType

SHARD_RUNS = 1000
SHARD_BYTES = 256 * 10**6  # of one array, which a publisher holds in memory
SPLIT_BYTES = 256 * 10**6  # of one file of test sets, which a worker reads whole to add one
CHUNK_BYTES = 2**20  # smaller inner chunks are several times slower to read
LARGE_CHUNK_BYTES = 2**26
CODEC_BYTES = 2**31 - 2**10  # the compressor's maximum
RECORD_BYTES = 2**32 - 1  # the maximum of one part in a journal record
WASTE = 0.1
"""Maximum number of unused rows in the last inner chunk, as a fraction of the planned runs."""


def planned_group(
    *,
    number: int,
    dataset: str,
    classifier: str,
    samples: int,
    class_names: tuple[str, ...],
    epochs: tuple[int, ...] = (0,),
    scores: Keep = "margin",
    dtype: ScoreType = "float32",
    probability: Probability = "softmax",
    repeats: int = 1,
    curves: bool = False,
    optional: tuple[OptionalArray, ...] = (),
    coordinates: tuple[Coordinate, ...] = (),
    ensembling: str = "",
    response: str = "",
    parameters: str = "",
    parameters_where: str = "",
    runs: int | None = None,
) -> GroupSpec:
    """Describe a group, and choose the lengths of its shards and chunks.

    Shards hold about 1000 runs, or fewer if one array of a shard would exceed 256 MB. Chunks hold
    at least 1 MiB of labels, unless chunks of scores would exceed 64 MiB. If the last chunk would
    be mostly empty with the planned number of runs, chunks are shorter: as long as possible with
    empty rows for at most a tenth of the runs, but at least 1 MiB of the largest array.

    Parameters
    ----------
    number, dataset, classifier, samples, class_names, epochs, scores, dtype, probability
        See `GroupSpec`, likewise `curves` to `parameters_where`.
    repeats : int
        Number of test sets.
    runs : int, optional
        Number of planned runs.

    Raises
    ------
    ValueError
        If a run or its test set is too large to be stored.
    """
    points = samples * len(epochs)
    smallest = points * itemsize(label_dtype(len(class_names)))
    columns = {"all": len(class_names), "margin": 1, "none": 0}[scores]
    largest = max(smallest, points * columns * itemsize(dtype), *map(_row_bytes, optional))
    index = samples * itemsize("int64")
    if index > CODEC_BYTES or largest > RECORD_BYTES or smallest > CODEC_BYTES:
        raise ValueError(
            f"{samples:,} points in a test set, at {len(epochs):,} snapshots and of "
            f"{len(class_names):,} classes, are more than a run can store"
        )
    target = max(1, min(SHARD_RUNS, SHARD_BYTES // largest))
    least = math.ceil(CHUNK_BYTES / largest)
    wanted = min(math.ceil(CHUNK_BYTES / smallest), LARGE_CHUNK_BYTES // largest)
    chunks = max(1, target // max(wanted, least))
    if runs is not None:
        chunks = _fitting(runs, target, chunks, max(1, target // least))
    chunk_length = round(target / chunks)
    return GroupSpec(
        number=number,
        dataset=dataset,
        classifier=classifier,
        samples=samples,
        class_names=tuple(class_names),
        epochs=tuple(epochs),
        scores=scores,
        dtype=dtype,
        probability=probability,
        shard_length=chunks * chunk_length,
        chunk_length=chunk_length,
        split_length=max(1, min(repeats, SPLIT_BYTES // index)),
        curves=curves,
        optional=tuple(optional),
        coordinates=tuple(coordinates),
        ensembling=ensembling,
        response=response,
        parameters=parameters,
        parameters_where=parameters_where,
    )


def _row_bytes(array: OptionalArray) -> int:
    return math.prod(array.shape) * itemsize(array.dtype)


def _fitting(runs: int, shard: int, fewest: int, most: int) -> int:
    """Return the number of chunks in a shard of about `shard` runs, so that few rows stay empty.

    The smallest number within bounds that leaves at most a tenth of `runs` empty; if there is
    none, the one that leaves the fewest.
    """

    def waste(chunks: int) -> int:
        length = round(shard / chunks)
        return math.ceil(runs / length) * length - runs

    # chunk lengths are whole numbers of runs, so many short chunks may miss the shard's length
    numbers = [n for n in range(fewest, most + 1) if abs(round(shard / n) * n - shard) < shard / 20]
    fitting = (n for n in numbers if waste(n) <= WASTE * runs)
    return next(fitting, min(numbers, key=waste, default=fewest))
