"""The runs of a task still to be trained, handed out in batches that suit the speed of the fits."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from manyseed.orchestrator.tasks.task import Span, Task
from manyseed.orchestrator.working.messages import Batch

_BATCH_SECONDS = 0.25
_BATCH_RUNS = 64

Shard = tuple[int, int]
"""(group, shard)"""


class Queue:
    """The unfinished runs of a task, breadth first.

    Parameters
    ----------
    task : Task
    settled : dict
        By group, the rows that are already finished or failed.
    """

    def __init__(self, task: Task, settled: dict[int, set[int]]) -> None:
        self._waiting: deque[Batch] = deque()
        self.pending: Counter[Shard] = Counter()
        self._seconds: dict[int, float] = {}
        for span in task.spans:
            self._add(span, settled.get(span.group, set()))

    @property
    def n_pending(self) -> int:
        """Number of runs not finished, failed or set aside, including those in training."""
        return self.pending.total()

    def take(self) -> Batch | None:
        """Return the next batch: an estimated quarter second of work; None if none is left."""
        if not self._waiting:
            return None
        batch = self._waiting.popleft()
        size = len(batch.runs) if batch.source >= 0 else self._size(batch.group)
        if size < len(batch.runs):
            rest = batch.runs[size:]
            self._waiting.appendleft(replace(batch, runs=rest))
            batch = replace(batch, runs=batch.runs[:size])
        return batch

    def put_back(self, batch: Batch, rows: Iterable[int]) -> None:
        """Requeue the runs of a batch that its process did not finish.

        Each becomes a batch of its own, to identify a run that kills its process; copies stay with
        their source.
        """
        rows = set(rows)
        runs = tuple(run for run in batch.runs if run[0] in rows)
        parts = [runs] if batch.source >= 0 else [(run,) for run in runs]
        self._waiting.extendleft(replace(batch, runs=part) for part in reversed(parts) if part)

    def settle(self, batch: Batch, rows: Iterable[int]) -> None:
        """Mark runs of a batch as finished, failed or set aside."""
        self.pending[batch.group, batch.shard] -= len(set(rows))

    def skip(self, cells: Collection[int]) -> None:
        """Hand out no more runs of some cells."""
        kept = [batch for batch in self._waiting if batch.cell not in cells]
        if len(kept) < len(self._waiting):
            for batch in self._waiting:
                if batch.cell in cells:
                    self.settle(batch, [row for row, _ in batch.runs])
            self._waiting = deque(kept)

    def leave(self, rows: Mapping[int, Collection[int]]) -> None:
        """Hand out no more runs in some rows, given by group, which other tasks train."""
        waiting, self._waiting = self._waiting, deque()
        for batch in waiting:
            others = rows.get(batch.group, ())
            kept = tuple(run for run in batch.runs if run[0] not in others)
            self.settle(batch, [row for row, _ in batch.runs if row in others])
            if kept:
                self._waiting.append(replace(batch, runs=kept))

    def learn(self, group: int, seconds: float) -> None:
        """Update the estimated time of a run in a group by the time of a recent one."""
        before = self._seconds.get(group, seconds)
        self._seconds[group] = 0.7 * before + 0.3 * seconds

    def _add(self, span: Span, settled: set[int]) -> None:
        runs = tuple(run for run in span.runs() if run[0] not in settled)
        if runs:
            place = (span.group, span.shard, span.cell, span.repeat)
            self._waiting.append(Batch(*place, runs, span.source, bool(span.models)))
            self.pending[span.group, span.shard] += len(runs)

    def _size(self, group: int) -> int:
        seconds = self._seconds.get(group)
        if seconds is None:
            return 1
        return max(1, min(_BATCH_RUNS, int(_BATCH_SECONDS / max(seconds, 1e-6))))
