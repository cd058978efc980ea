"""What of a task is still to be trained, handed out in batches that fit the speed of the fits."""

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
        What was asked.
    settled : dict
        For each group the rows that are finished or failed already.
    """

    def __init__(self, task: Task, settled: dict[int, set[int]]) -> None:
        self._waiting: deque[Batch] = deque()
        self.pending: Counter[Shard] = Counter()
        self._seconds: dict[int, float] = {}
        for span in task.spans:
            self._add(span, settled.get(span.group, set()))

    @property
    def n_pending(self) -> int:
        """Runs that are neither finished nor failed nor set aside, those in training included."""
        return self.pending.total()

    def take(self) -> Batch | None:
        """Return the next batch: about a quarter second of work, as far as can be known."""
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
        """Queue again those runs of a batch that its process did not finish.

        One by one, so that a run that kills its process is found; copies stay with their source.
        """
        rows = set(rows)
        runs = tuple(run for run in batch.runs if run[0] in rows)
        parts = [runs] if batch.source >= 0 else [(run,) for run in runs]
        self._waiting.extendleft(replace(batch, runs=part) for part in reversed(parts) if part)

    def settle(self, batch: Batch, rows: Iterable[int]) -> None:
        """Note that runs of a batch are finished, failed or set aside."""
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
        """Hand out no more of some rows of groups, which others train."""
        waiting, self._waiting = self._waiting, deque()
        for batch in waiting:
            others = rows.get(batch.group, ())
            kept = tuple(run for run in batch.runs if run[0] not in others)
            self.settle(batch, [row for row, _ in batch.runs if row in others])
            if kept:
                self._waiting.append(replace(batch, runs=kept))

    def learn(self, group: int, seconds: float) -> None:
        """Note how long a run of a group took."""
        before = self._seconds.get(group, seconds)
        self._seconds[group] = 0.7 * before + 0.3 * seconds

    def _add(self, span: Span, settled: set[int]) -> None:
        runs = tuple(run for run in span.runs() if run[0] not in settled)
        if runs:
            self._waiting.append(_batch(span, runs))
            self.pending[span.group, span.shard] += len(runs)

    def _size(self, group: int) -> int:
        seconds = self._seconds.get(group)
        if seconds is None:
            return 1
        return max(1, min(_BATCH_RUNS, int(_BATCH_SECONDS / max(seconds, 1e-6))))


def _batch(span: Span, runs: tuple[tuple[int, int], ...]) -> Batch:
    return Batch(
        span.group, span.shard, span.cell, span.repeat, runs, span.source, bool(span.models)
    )
