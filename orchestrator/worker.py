"""What one task does on its node: keep a pool busy, publish shards, tell how far it is.

This process imports neither polars nor torch: a node may start hundreds of tasks at once.
"""

from __future__ import annotations

import json
import os
import signal
import time
import traceback
import uuid
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from orchestrator.files import write_json
from orchestrator.messages import Batch, Fault, Outcome, Ready
from orchestrator.paths import SweepPaths
from orchestrator.pool import Message, Pool, Worker
from orchestrator.publisher import Publisher
from orchestrator.queue import Queue
from orchestrator.store.errors import StoreError
from orchestrator.store.files import place
from orchestrator.store.lease import Lease
from orchestrator.tasks import Task
from slurm import local

_TICK = 0.2
_PROGRESS_SECONDS = 1.0
_GRACE_SECONDS = 20.0
_DEATHS = 2
_SUSPENDED = "suspended"
_RESERVE_BYTES = 2**13


def run_task(directory: str, submission: str, number: str, workers: str) -> str:
    """Train a task's missing runs; return how it ended: finished, stopped or broken.

    The arguments are strings, because a scheduler carries them.
    """
    paths = SweepPaths(Path(directory))
    return TaskLife(paths, paths.submission(int(submission)), int(number), int(workers)).run()


class TaskLife:
    """One execution of a task."""

    def __init__(self, paths: SweepPaths, submission: Path, number: int, workers: int) -> None:
        self.task_file = submission / f"task-{number:04d}.json"
        self.task = Task.read(self.task_file)
        self.folder = submission / "lives" / f"{number:04d}-{uuid.uuid4().hex[:8]}"
        self.folder.mkdir(parents=True)
        # room to tell how the life ended, on a disk that is full by then
        self.reserve = self.folder / "reserve"
        place(self.reserve, bytes(_RESERVE_BYTES))
        self.submission = submission
        self.stop_file = submission / "stop"
        self.n_workers = workers
        self.publisher = Publisher(paths, self.task)
        self.queue = Queue(self.task, self._settled())
        arguments = [
            str(paths.directory),
            str(self.task_file),
            f"{submission.name}-{self.folder.name}",
        ]
        self.pool = Pool(arguments, self.folder / "log.txt")
        self.deaths: Counter[tuple[int, int]] = Counter()
        self.done: Counter[int] = Counter()
        self.failed: Counter[int] = Counter()
        self.set_aside = 0
        self.fault: Fault | None = None
        self.stopping = False
        self.started = time.time()
        self._told = 0.0

    def run(self) -> str:
        """Train until nothing is left, somebody asks to stop, or the machine is at fault."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        # the lease tells everybody that this life's journals are still written
        lease = Lease(self.publisher.watch, f"life-{self.folder.name}")
        state = _SUSPENDED
        try:
            while state == _SUSPENDED:
                lease.take()
                with lease.kept():
                    state = self._run(lease)
        except (StoreError, OSError) as error:
            self.fault = self.fault or Fault(str(error), "")
        except BaseException:
            self.fault = self.fault or Fault("the task failed", traceback.format_exc())
            raise
        finally:
            self.pool.dismiss(_GRACE_SECONDS)
            self.reserve.unlink(missing_ok=True)
            state = "broken" if self.fault else state
            self._tell(state)
        return state

    def _run(self, lease: Lease) -> str:
        self._tell("running")
        for _ in range(min(self.n_workers, self.queue.n_pending)):
            self.pool.start()
        while self.queue.n_pending and not self.fault and not lease.is_stale:
            self.stopping = self.stopping or self.stop_file.exists()
            if self.stopping:
                break
            for message in self.pool.messages(_TICK):
                self._on_message(message)
            for worker in self.pool.workers:
                if worker.is_idle and (batch := self.queue.take()) is not None:
                    self.pool.send(worker, batch)
            self.publisher.publish_due()
            self._tell_if_due()
        self.pool.dismiss(_GRACE_SECONDS)
        if lease.is_stale:
            # Taken for dead while it was suspended: others may have gone on with its work, and
            # removed its journals, which its processes then took for a fault.
            self.fault = None
            self.queue = Queue(self.task, self._settled())
            return _SUSPENDED
        self.publisher.publish_all()
        return "stopped" if self.queue.n_pending else "finished"

    def _on_message(self, message: Message) -> None:
        worker, value = message.worker, message.value
        if isinstance(value, Outcome):
            batch, worker.batch = worker.batch, None
            self._on_outcome(batch, value)
        elif isinstance(value, Ready):
            worker.ready = True
        elif isinstance(value, Fault):
            self.fault = value
        elif value is None and not self.fault:
            self._on_death(worker)

    def _on_outcome(self, batch: Batch, outcome: Outcome) -> None:
        if outcome.failures:
            with (self.folder / "failures.jsonl").open("a") as file:
                file.writelines(json.dumps(failure) + "\n" for failure in outcome.failures)
        self._settle(batch, outcome.done, len(outcome.failures))
        self.queue.settle(batch, [failure["row"] for failure in outcome.failures])
        self.queue.learn(batch.group, outcome.seconds)
        self._publish_if_complete(batch)

    def _settle(self, batch: Batch, done: tuple[int, ...], failed: int) -> None:
        self.done[batch.group] += len(done)
        self.failed[batch.group] += failed
        self.queue.settle(batch, done)
        self.publisher.touch(batch.group, batch.shard)

    def _publish_if_complete(self, batch: Batch) -> None:
        if self.queue.pending[batch.group, batch.shard] == 0:
            self.publisher.publish(batch.group, batch.shard)

    def _on_death(self, worker: Worker) -> None:
        """Count what the dead process had journaled as done, and train the rest elsewhere.

        A run in whose training two processes died is set aside: it stays missing, and others go on.
        """
        batch = worker.batch
        if batch is None:
            self.fault = Fault(
                f"a training process ended with code {worker.process.returncode} before it trained",
                (self.folder / "log.txt").read_text()[-4000:],
            )
            return
        journaled = self.publisher.journaled(batch.group)
        done = tuple(row for row, _ in batch.runs if row in journaled)
        self._settle(batch, done, 0)
        left = [row for row, _ in batch.runs if row not in journaled]
        if left:
            first = (batch.group, left[0])
            self.deaths[first] += 1
            if self.deaths[first] >= _DEATHS:
                self.set_aside += 1
                self.queue.settle(batch, left[:1])
                left = left[1:]
            self.queue.put_back(batch, left)
        self._publish_if_complete(batch)
        if self.queue.n_pending > len(self.pool.workers):
            self.pool.start()

    def _settled(self) -> dict[int, set[int]]:
        """Rows that are finished, or failed in an earlier life of this submission's tasks."""
        settled = {group: self.publisher.finished(group) for group in self.task.groups}
        for file in (self.submission / "lives").glob("*/failures.jsonl"):
            for line in file.read_bytes().split(b"\n")[:-1]:
                failure = json.loads(line)
                settled.setdefault(failure["group"], set()).add(failure["row"])
        return settled

    def _tell_if_due(self) -> None:
        if time.monotonic() - self._told >= _PROGRESS_SECONDS:
            self._tell("running")

    def _tell(self, state: str) -> None:
        self._told = time.monotonic()
        value: dict[str, Any] = {
            "state": state,
            "process": local.fingerprint(os.getpid()),
            "started": self.started,
            "updated": time.time(),
            "runs": self.task.n_runs,
            "pending": self.queue.n_pending,
            "set_aside": self.set_aside,
            "done": dict(self.done),
            "failed": dict(self.failed),
            "workers": len(self.pool.workers),
        }
        if self.fault:
            value |= {"reason": self.fault.reason, "details": self.fault.details}
        write_json(self.folder / "progress.json", value)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        del signum, frame
        self.stopping = True
