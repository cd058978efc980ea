"""How many runs of a group are published together, and read together: chosen when it is planned."""

from __future__ import annotations

import math

from manyseed.jobs.run import Probability
from manyseed.orchestrator.store.layout.arrays import itemsize, label_dtype
from manyseed.orchestrator.store.layout.coordinates import Coordinate
from manyseed.orchestrator.store.layout.optional import OptionalArray
from manyseed.orchestrator.store.layout.schema import GroupSpec, Keep, ScoreType

SHARD_RUNS = 1000
SHARD_BYTES = 256 * 10**6  # of one array: what a publisher holds in memory
SPLIT_BYTES = 256 * 10**6  # of one file of test sets: a worker that makes one reads all of it
CHUNK_BYTES = 2**20  # smaller inner chunks are read several times slower
LARGE_CHUNK_BYTES = 2**26
CODEC_BYTES = 2**31 - 2**10  # what the compressor takes at once
RECORD_BYTES = 2**32 - 1  # what a journal's record can say of one part
WASTE = 0.1
"""What may be stored in vain in the last inner chunk, of what is planned."""


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
    """Describe a group, with the lengths of its shards and chunks.

    Shards hold about 1000 runs, fewer where an array of one would exceed 256 MB. Chunks hold
    at least 1 MiB of labels, except where those of scores would exceed 64 MiB. Where so many
    runs (`runs`) are planned that the last of these chunks would hold little, they are smaller:
    as large as leaves a tenth empty at most, down to 1 MiB of the largest array.

    Parameters
    ----------
    number : int
        The group's.
    dataset, classifier : str
    samples : int
        Rows of a test set.
    class_names : tuple of str
    epochs : tuple of int
        Of the snapshots.
    scores, dtype : str
        What is kept of scores, and as which type.
    probability : str
        How scores become probabilities.
    repeats : int
        Test sets.
    curves : bool
        Whether there are learning curves.
    optional : tuple of OptionalArray
        What is kept besides.
    coordinates : tuple of Coordinate
        Of their dimensions.
    ensembling, response, parameters, parameters_where : str
    runs : int, optional
        How many are planned.

    Raises
    ------
    ValueError
        Where a run, or its test set, is too large to be stored.
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
    """Return how many chunks a shard of about `shard` runs has, so that few stay empty.

    The fewest within bounds that waste no more than a tenth of so many runs; where there are none,
    those that waste least.
    """

    def waste(chunks: int) -> int:
        length = round(shard / chunks)
        return math.ceil(runs / length) * length - runs

    # a length is a whole number of runs: of many short chunks a shard may miss its own length
    numbers = [n for n in range(fewest, most + 1) if abs(round(shard / n) * n - shard) < shard / 20]
    fitting = (n for n in numbers if waste(n) <= WASTE * runs)
    return next(fitting, min(numbers, key=waste, default=fewest))
