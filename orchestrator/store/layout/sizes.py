"""Size of a group on disk once everything is published."""

from __future__ import annotations

import math

from manyseed.orchestrator.store.layout.arrays import itemsize
from manyseed.orchestrator.store.layout.optional import PARAMETERS
from manyseed.orchestrator.store.layout.schema import GroupSpec

_INDEX_BYTES = 16  # per inner chunk in a shard's index


def stored_bytes(
    spec: GroupSpec,
    n_runs: int,
    repeats: int = 1,
    n_models: int | None = None,
    n_chunks: int | None = None,
) -> int:
    """Estimate bytes on disk: labels at their bits, scores uncompressed, the rest at a quarter.

    `n_models` is the number of runs whose parameters are kept, by default all; `n_chunks` that of
    the chunks that hold the runs, by default as few as possible.
    """
    total, bits = 0, (spec.n_classes - 1).bit_length()
    chunks = math.ceil(n_runs / spec.chunk_length) if n_chunks is None else n_chunks
    for array in spec.arrays:
        each = math.prod(spec.shape(array, 1, 1)) * itemsize(array.dtype)
        if array.role == "prediction":
            if array.name == PARAMETERS.name and spec.parameters_where:  # NaN of others compresses
                values = each * (n_runs if n_models is None else n_models)
            elif array.compressed:  # labels, which compress to their bits
                values = each * n_runs * bits // (8 * itemsize(array.dtype))
            else:
                values = each * chunks * spec.chunk_length
            total += values + _INDEX_BYTES * chunks
        elif array.role == "split":
            total += each * repeats
        else:
            total += each * n_runs // 4
    return total + 1024 * (len(spec.arrays) + 1)


def count_files(spec: GroupSpec, n_rows: int, repeats: int = 1) -> int:
    """Count files and folders, including the group's folder, of runs and the padding between."""
    total = 3  # the group's folder and description, and the checksums of test sets
    for array in spec.arrays:
        shape = spec.shape(array, spec.padded(n_rows), repeats)
        pieces = (math.ceil(n / shard) for n, shard in zip(shape, spec.shards(array), strict=True))
        total += 2 + math.prod(pieces)
    return total
