"""Whether the rows of a shard are those that were published, by the checksum that each has.

The checksum of an inner chunk guards its bits. That a whole file is another's, or older or newer
than those beside it, is seen by the checksums of rows alone, which go over all arrays. Comparing
them reads all of a shard, so it is done once for each version of its files: `version`.
"""

from __future__ import annotations

import hashlib
import time

import numpy as np

from manyseed.orchestrator.disk.placing import unavailable
from manyseed.orchestrator.errors import DamagedShard
from manyseed.orchestrator.store.care.verify import row_checksums
from manyseed.orchestrator.store.layout.arrays import COPY, DONE, MISSING, PADDING
from manyseed.orchestrator.store.layout.groups import Group
from manyseed.orchestrator.store.reading.reader import read_rows
from manyseed.orchestrator.store.zarrfiles import encoding
from manyseed.orchestrator.store.zarrfiles.encoding import Bools


def version(group: Group, shard: int) -> str:
    """Return what changes whenever a file of a shard is replaced or written to.

    Raises
    ------
    DamagedShard
        Where a file is missing.
    """
    found = []
    for array in group.spec.arrays:
        if array.role in ("prediction", "record"):
            path = group.file(array, shard)
            with unavailable("look at", path):
                try:
                    info = path.stat()
                except FileNotFoundError:
                    problem = "is missing, and what is published needs it"
                    raise DamagedShard.of(path, problem) from None
            found.append((info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino))
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16]


def compare(group: Group, shard: int, copies: Bools) -> None:
    """Compare the rows of a published shard with their checksums and what their status can be.

    An inner chunk is held in memory. What is replaced meanwhile is looked at again.

    Parameters
    ----------
    group : Group
    shard : int
    copies : bool array (run,)
        Which runs of the shard are, by the plan, identical to the first of their repeat.

    Raises
    ------
    DamagedShard
        Where they differ.
    """
    for attempt in range(encoding.ATTEMPTS):
        problem = _problem(group, shard, copies)
        if problem is None:
            return
        time.sleep(0.01 * attempt)
    names = [a.name for a in group.spec.arrays if a.role == "prediction"] + ["crc", "status"]
    files = ", ".join(
        str(group.file(group.spec.array(n), shard).relative_to(group.folder)) for n in names
    )
    raise DamagedShard.of(group.folder, f"holds in shard {shard} {problem} ({files})")


def _problem(group: Group, shard: int, copies: Bools) -> str | None:
    start, stop = group.span(shard)
    stored = read_rows(group, ("status", "crc", "cell", "fit_seconds"), range(start, stop))
    status, planned = stored["status"], stored["cell"] >= 0
    finished = np.isin(status, (DONE, COPY)) & planned
    timed = ~np.isnan(stored["fit_seconds"])
    impossible = np.where(planned, ~np.isin(status, (MISSING, DONE, COPY)), status != PADDING)
    # a repair may have lost how long a fit took: that is no damage, but a copy had no fit
    unlike = np.where(timed, status == COPY, (status == DONE) & copies)
    impossible |= np.where(finished, unlike, stored["crc"] != 0)
    if impossible.any():
        return f"{int(impossible.sum()):,} rows whose status cannot be theirs"
    wrong, step = 0, group.spec.chunk_length
    for first in range(start, stop, step):
        here = slice(first - start, first - start + step)
        if finished[here].any():
            found, damaged = row_checksums(group, first, first + step)
            wrong += int((finished[here] & (damaged | (found != stored["crc"][here]))).sum())
    return f"{wrong:,} runs that differ from their checksums" if wrong else None
