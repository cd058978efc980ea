"""Checking that a shard holds the rows that were published, by their checksums.

The checksum of an inner chunk protects its bits. Only the checksums of rows, which cover all
arrays, can detect a file that belongs elsewhere, or is older or newer than the others. Comparing
them reads the whole shard, so it is done once for each `version` of its files.
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
    """Return a digest that changes whenever a file of a shard is replaced or written to.

    Raises
    ------
    DamagedShard
        If a file is missing.
    """
    stamps = []
    for array in group.spec.arrays:
        if array.role in ("prediction", "record"):
            path = group.file(array, shard)
            with unavailable("look at", path):
                try:
                    info = path.stat()
                except FileNotFoundError:
                    problem = "is missing, though published data need it"
                    raise DamagedShard.of(path, problem) from None
            stamps.append((info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino))
    return hashlib.sha256(repr(stamps).encode()).hexdigest()[:16]


def compare(group: Group, shard: int, copies: Bools) -> None:
    """Check the rows of a published shard against their checksums and possible statuses.

    Holds one inner chunk in memory. Retries, as files may be replaced meanwhile.

    Parameters
    ----------
    group : Group
    shard : int
    copies : bool array (run,)
        Which runs of the shard are planned as identical to the first of their repeat.

    Raises
    ------
    DamagedShard
        If a row differs.
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
    # copies have no time; trained runs may have lost theirs in a repair, unless planned as copies
    wrong_kind = np.where(timed, status == COPY, (status == DONE) & copies)
    impossible |= np.where(finished, wrong_kind, stored["crc"] != 0)
    if impossible.any():
        return f"{int(impossible.sum()):,} rows with an impossible status"
    wrong, step = 0, group.spec.chunk_length
    for first in range(start, stop, step):
        part = slice(first - start, first - start + step)
        if finished[part].any():
            crcs, damaged = row_checksums(group, first, first + step)
            wrong += int((finished[part] & (damaged | (crcs != stored["crc"][part]))).sum())
    return f"{wrong:,} runs that differ from their checksums" if wrong else None
