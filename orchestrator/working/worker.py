"""One task on its node: keep a pool busy, publish shards, report progress.

This process imports neither polars nor torch: a node may start hundreds of tasks at once.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from manyseed.jobs.datasets.cache import data_home
from manyseed.orchestrator.disk.lease import Lease, LeaseWatch
from manyseed.orchestrator.disk.placing import place, read_end
from manyseed.orchestrator.errors import DamagedFile, LeaseHeld, UnavailableError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.store.arrays import COPY, DONE
from manyseed.orchestrator.store.groups import Group, open_group
from manyseed.orchestrator.store.index import JournalFolder, JournalIndex
from manyseed.orchestrator.store.reader import read_rows
from manyseed.orchestrator.store.shards import publish
from manyseed.orchestrator.tasks.attempts import (
    MORE_TIME,
    Attempt,
    add_failures,
    attempt_lease,
    begin,
    followed,
    read_attempts,
    valid_failures,
)
from manyseed.orchestrator.tasks.intent import (
    LOG,
    NOW,
    RESERVE,
    STOPPED,
    Intent,
    SubmissionPaths,
    skipped_cells,
    stop_request,
)
from manyseed.orchestrator.tasks.task import Task
from manyseed.orchestrator.working import queue
from manyseed.orchestrator.working.node import Node, keep_away, used
from manyseed.orchestrator.working.pool import Message, Pool, Worker
from manyseed.orchestrator.working.queue import (
    Batch,
    Fault,
    Outcome,
    Queue,
    Ready,
    Shard,
    SharedJournals,
    given_since,
    shards_of,
)
from manyseed.slurm import processes
from manyseed.slurm.commands import NO_CLUSTER

_STOP_SECONDS = 60.0  # less than the time that schedulers leave between their signal and the kill


class Stop:
    """The signals and requests to stop that a task has received.

    `is_job`: whether its signals come from a scheduler.
    """

    def __init__(self, *, is_job: bool) -> None:
        self._is_job = is_job
        self._signals = 0
        self._until = math.inf
        self._request: str | None = None

    def on_signal(self) -> None:
        """Record a signal."""
        self._signals += 1
        if self._is_job:
            self._until = min(self._until, time.monotonic() + _STOP_SECONDS)

    def hear(self, *requests: str | None) -> None:
        """Record the first stop file's content; None if there is none, as a stop can be revoked."""
        self._request = next((one for one in requests if one is not None), None)

    @property
    def is_asked(self) -> bool:
        """Whether no new work may be started."""
        return self._signals > 0 or self._request is not None

    @property
    def is_urgent(self) -> bool:
        """Whether fits in flight are no longer waited for."""
        is_twice = self._signals > 1 and not self._is_job
        return self._request == NOW or is_twice or time.monotonic() >= self._until

    @property
    def is_schedulers(self) -> bool:
        """Whether the scheduler ends the job and may start it again."""
        return self._is_job and self._signals > 0


_EVERY_SECONDS = 15.0
_COST_SHARE = 0.05
"""Incomplete shards are published repeatedly so that readers see them grow: at most every 15 s, and
for at most this share of the time."""
_OFTEN_TASKS = 8
_MOST_SECONDS = 600.0
"""If a submission has more tasks than `_OFTEN_TASKS`, each publishes proportionally less often, but
at least every 10 min, so that together they do not load the disk more."""
_LEASE_WAIT = 30.0


class Publisher:
    """Publishes the shards of a task, one of `tasks` tasks that do so at the same time."""

    def __init__(self, paths: SweepPaths, task: Task, tasks: int = 1) -> None:
        self._every = min(_MOST_SECONDS, _EVERY_SECONDS * max(1.0, tasks / _OFTEN_TASKS))
        self.watch = LeaseWatch(paths.leases)
        self._groups: dict[int, Group] = {
            number: open_group(paths.store, path) for number, path in task.groups.items()
        }
        self._shards = shards_of(task)
        neighbours = SharedJournals(paths, self._shards | self._sources(task))
        self._index = JournalIndex(JournalFolder(paths.journals, task.plan), neighbours.may_hold)
        self._dirty: dict[tuple[int, int], None] = {}
        self._next = time.monotonic() + self._every

    def _sources(self, task: Task) -> set[Shard]:
        """Return the shards of the runs that a task's copies are copied from."""
        lengths = {number: group.spec.shard_length for number, group in self._groups.items()}
        copies = (span for span in task.spans if span.source >= 0)
        return {(span.group, span.source // lengths[span.group]) for span in copies}

    def finished(self) -> dict[int, set[int]]:
        """Return, by group, the rows of the task's shards that are published or journaled."""
        self._index.refresh()
        finished = {}
        for number, group in self._groups.items():
            spans = sorted(group.span(shard) for owner, shard in self._shards if owner == number)
            rows = np.concatenate([np.arange(*span) for span in spans])
            stored = rows[np.isin(read_rows(group, ("status",), rows)["status"], (DONE, COPY))]
            finished[number] = {*stored.tolist(), *self._index.rows(number).tolist()}
        return finished

    def journaled(self, group: int) -> set[int]:
        """Return the rows of a group that the journals of these shards now hold."""
        self._index.refresh()
        return set(self._index.rows(group).tolist())

    def touch(self, group: int, shard: int) -> None:
        """Mark a shard as having runs that are not published yet."""
        self._dirty[group, shard] = None

    def publish(self, group: int, shard: int, wait: float = 0.0) -> None:
        """Publish a shard now, or leave it for later if another process is publishing it."""
        try:
            publish(self._groups[group], shard, self._index, self.watch, wait=wait)
        except LeaseHeld:
            return
        self._dirty.pop((group, shard), None)

    def publish_due(self) -> None:
        """Publish the shard that has waited longest, if a publication is due."""
        started = time.monotonic()
        if not self._dirty or started < self._next:
            return
        shard = next(iter(self._dirty))
        del self._dirty[shard]
        self._dirty[shard] = None  # last in line, in case another process holds its lease
        self.publish(*shard)
        ended = time.monotonic()
        pause = (ended - started) / _COST_SHARE
        self._next = ended + max(pause, self._every / (len(self._dirty) + 1))

    def publish_all(self, seconds: float | None = None) -> None:
        """Publish all finished runs; with a limit in seconds, skip shards whose lease is held."""
        until = time.monotonic() + (math.inf if seconds is None else seconds)
        for shard in list(self._dirty):
            if time.monotonic() < until:
                self.publish(*shard, wait=_LEASE_WAIT if seconds is None else 0.0)


_TICK = 0.2
_REPORT_SECONDS = 1.0
_REPORT_ON_CLUSTER = 10.0
"""Time between two progress reports, and between two checks for users' requests. On a shared disk a
young attempt, which users watch, does both more often: after a tenth of its age."""
_MEASURE_SECONDS = 10.0
_GRACE_SECONDS = 20.0
_PUBLISH_SECONDS = 20.0
_DEATHS = 2
_FRUITLESS = 3
_BARREN_STARTS = 3
_SUSPENDED = "suspended"
_INTERRUPTED = "interrupted"
_STOPPED = "stopped"
_FORKED_FROM = 2
"""Fewest training processes for a nursery: with one it saves nothing, and takes memory."""
_LAST_SECONDS = 180.0
"""An attempt that ends in this last part of its walltime was ended by the walltime."""
_RESERVE_BYTES = 2**13


def run_task(directory: str, submission: str, number: str, workers: str) -> str:
    """Train a task's missing runs; return how it ended: finished, or stopped with work left.

    `directory`, `submission` and `number`: the sweep's directory, and the numbers of the submission
    and the task. `workers`: as in `Node.processes`.
    """
    paths = SweepPaths(Path(directory))
    node = Node.here()
    n_workers = node.processes(workers)
    home = data_home()
    with suppress(OSError):  # where data is only read, it need not be writable
        home.mkdir(parents=True, exist_ok=True)
    print(f"manyseed trains on {node.name}, with data in {home}", file=sys.stderr, flush=True)
    attempt = TaskAttempt(paths, paths.submission(int(submission)), int(number), n_workers, node)
    state = attempt.run()
    if state == "broken" and attempt.fault and node.job_id:
        if attempt.is_node_at_fault:
            keep_away(attempt.submission, attempt.intent)
        raise RuntimeError(attempt.fault.reason)
    return _STOPPED if state == _INTERRUPTED else state


def rehearse_task(directory: str, submission: str, number: str, workers: str) -> str:
    """Do what `run_task` does, but train nothing: read the task, and report that it has ended."""
    files = SubmissionPaths(SweepPaths(Path(directory)).submission(int(submission)))
    task, node, now = Task.read(files.task(int(number))), Node.here(), time.time()
    Intent.read(files.folder, task.plan)
    folder = files.attempt(int(number), os.urandom(4).hex())
    folder.mkdir(parents=True)
    place(folder / LOG, b"")
    process, n_workers = processes.fingerprint(os.getpid()), node.processes(workers)
    Attempt(
        *("finished", process, node.name, node.job_id),
        started=now,
        updated=now,
        workers=n_workers,
        plan=task.plan,
    ).write(folder)
    return "finished"


class TaskAttempt:
    """One execution of a task.

    `submission`: the submission's folder. `number`: the task's number. `workers`: number of
    training processes. `node`: where it runs.
    """

    def __init__(
        self, paths: SweepPaths, submission: Path, number: int, workers: int, node: Node
    ) -> None:
        self.paths, self.node = paths, node
        files = SubmissionPaths(submission)
        self.task = Task.read(files.task(number))
        self.intent = Intent.read(submission, self.task.plan)
        self.earlier = read_attempts(submission, number, plan=self.task.plan)
        self.unreported = [one.folder for one in self.earlier if one.state == "running"]
        self.folder = files.attempt(number, os.urandom(4).hex())
        self.opened = begin(self.folder)
        # reserve space for the last report, in case the disk is full by then
        self.reserve = self.folder / RESERVE
        place(self.reserve, bytes(_RESERVE_BYTES))
        self.submission = submission
        self.n_workers = workers
        self.publisher = Publisher(paths, self.task, self.intent.tasks)
        self.queue = Queue(self.task, self._settled())
        arguments = [
            str(paths.directory),
            str(files.task(number)),
            f"{submission.name}-{self.folder.name}",
        ]
        forks = self.task.resource == "cpu" and workers >= _FORKED_FROM
        self.pool = Pool(arguments, self.folder / LOG, forks=forks)
        self.deaths: Counter[tuple[int, int]] = Counter()
        self.done: Counter[int] = Counter()
        self.failed: Counter[int] = Counter()
        self.longest: dict[int, float] = {}
        self.set_aside = self.killed = self.memory = 0
        self.fault: Fault | None = None
        self.is_task_at_fault = False
        self.stop = Stop(is_job=bool(node.job_id))
        self.barren_starts = 0
        self.started = time.time()
        self._began = time.monotonic()
        self._reported = self._requests_read = self._measured = self.cpu_seconds = 0.0

    def run(self) -> str:
        """Train until nothing is left, a stop is requested, or the machine is at fault."""
        processes.on_stop(self.stop.on_signal)
        # the lease shows other processes that this attempt may still write its journals
        lease = Lease(self.publisher.watch, attempt_lease(self.folder.name), vanishes=True)
        state = _SUSPENDED
        try:
            if self._is_startable():
                while state == _SUSPENDED:
                    lease.take()
                    with lease.kept(), self._dismissing():
                        state = self._run(lease)
        except (UnavailableError, OSError) as error:
            found = queue.fault(error, str(error), "", self.paths)
            self.is_task_at_fault |= found.is_of_task
            self.fault = self.fault or found
        except SystemExit:  # the scheduler will not wait any longer
            state = _INTERRUPTED
            raise
        except BaseException:
            self.fault = self.fault or Fault("the task failed", traceback.format_exc())
            raise
        finally:
            self.reserve.unlink(missing_ok=True)
            state = "broken" if self.fault else state
            if state == _INTERRUPTED and self.intent.scheduler == NO_CLUSTER:
                state = _STOPPED  # only SLURM starts it again
            self.folder = followed(self.folder, self.opened)
            self._report(state)
        return state

    @contextmanager
    def _dismissing(self) -> Iterator[None]:
        """End all processes in any case, so that the lease is held as long as they write."""
        patience = _GRACE_SECONDS
        try:
            yield
        except SystemExit:
            patience = 0.0
            raise
        finally:
            self.pool.dismiss(patience)

    @property
    def is_node_at_fault(self) -> bool:
        """Whether the attempt broke before it finished a run, and not because of its task."""
        worked = self.done.total() + self.failed.total() > 0
        return self.fault is not None and not (self.is_task_at_fault or worked)

    def _is_startable(self) -> bool:
        """Return whether it makes sense to start here; if not, set the fault."""
        if self.task.resource == "gpu" and not self.node.n_gpus:
            self.fault = Fault(f"the task needs a GPU, but {self.node.name} gives it none", "")
        elif self.node.job_id and (times := self._fruitless()) >= _FRUITLESS:
            self.fault = Fault(
                f"the walltime ended {times} attempts of this task in a row, and none finished a "
                f"run: {MORE_TIME}",
                "",
            )
            self.is_task_at_fault = True
        return self.fault is None

    def _fruitless(self) -> int:
        """Return how many of the latest attempts in a row hit the walltime without any progress."""
        walltime = self.intent.walltime[self.task.resource]
        saved = _last_checkpoint(self.paths, self.task)
        times = 0
        for attempt in reversed(self.earlier):
            timed_out = attempt.updated - attempt.started > walltime - _LAST_SECONDS
            if not timed_out or attempt.n_done + attempt.n_failed or saved > attempt.started:
                break
            times += 1
        return times

    def _run(self, lease: Lease) -> str:
        self._report("running")
        # after the report: submissions from now on see that this attempt is alive
        self.queue.leave(given_since(self.paths, self.submission, self.task))
        self._read_requests()
        while self.queue.n_pending and not self.fault and not lease.is_stale:
            if self._is_due(self._requests_read):
                self._read_requests()
            if self.stop.is_asked:
                if self.stop.is_urgent:
                    self.pool.end_fits()
                if not self.pool.is_training:
                    break
            else:
                self._give_work()
            for message in self.pool.messages(_TICK):
                self._on_message(message)
            self.publisher.publish_due()
            if self._is_due(self._reported):
                age = time.monotonic() - self._began
                often = min(_MEASURE_SECONDS, max(_REPORT_SECONDS, age / 10))
                if time.monotonic() - self._measured >= often:  # one may be killed soon
                    self._measure()
                self._report("running", durable=False)
        self._measure()
        self.pool.dismiss(_GRACE_SECONDS)
        if lease.is_stale:
            # While it was suspended it was taken for dead: others may have continued its work and
            # removed its journals, which its processes then reported as a fault.
            self.fault = None
            self.queue = Queue(self.task, self._settled())
            return _SUSPENDED
        is_hurried = self.stop.is_schedulers or self.stop.is_urgent
        self.publisher.publish_all(_PUBLISH_SECONDS if is_hurried else None)
        if not self.queue.n_pending:
            return "finished"
        return _INTERRUPTED if self.stop.is_schedulers else _STOPPED

    def _give_work(self) -> None:
        while len(self.pool.workers) < min(self.n_workers, self.queue.n_pending):
            self.pool.start()
        for worker in self.pool.workers:
            if worker.is_idle and (batch := self.queue.take()) is not None:
                worker.is_alone = self.n_workers == 1
                self.pool.send(worker, replace(batch, is_alone=worker.is_alone))

    def _on_message(self, message: Message) -> None:
        worker, value = message.worker, message.value
        if isinstance(value, Outcome):
            batch, worker.batch = worker.batch, None
            self._on_outcome(batch, value)
        elif isinstance(value, Ready):
            worker.ready = True
            self._supersede()
        elif isinstance(value, Fault) and value.is_crowded and not worker.is_alone:
            self._make_room(worker)
        elif isinstance(value, Fault):
            self.fault = value
            self.is_task_at_fault |= value.is_of_task
        elif value is None and not self.fault and not self.stop.is_schedulers:
            self._on_death(worker)

    def _supersede(self) -> None:
        """Ask earlier attempts to end that did not report their end, now that this one can train.

        If a node is lost to the scheduler, what runs there may live on beside its successor.
        """
        while self.unreported:
            with suppress(OSError, UnavailableError):
                place(SubmissionPaths(self.unreported.pop()).stop, STOPPED.encode())

    def _make_room(self, worker: Worker) -> None:
        """Go on with one process less: together they need more memory than the GPU has."""
        worker.left = True
        self.n_workers = max(1, min(self.n_workers, len(self.pool.workers)) - 1)
        with suppress(OSError), (self.folder / LOG).open("a") as log:
            log.write(f"The memory of the GPU is full: at most {self.n_workers} processes now.\n")

    def _on_outcome(self, batch: Batch, outcome: Outcome) -> None:
        self.barren_starts = 0
        if outcome.failures:
            add_failures(self.folder, outcome.failures, self.task.plan)
        self._settle(batch, outcome.done, len(outcome.failures))
        self.queue.settle(batch, [failure.row for failure in outcome.failures])
        self.queue.learn(batch.group, outcome.seconds)
        self.longest[batch.group] = max(self.longest.get(batch.group, 0.0), outcome.seconds)
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
        """Count the runs that the dead process had journaled as done; queue the rest again.

        A run, or a stack, is set aside, and stays missing, after two processes died in it. If a
        process died before it had work, another is started, unless that keeps happening.
        """
        batch = worker.batch
        was_killed = worker.process.returncode == -signal.SIGKILL
        self.killed += was_killed
        if batch is None:
            self.barren_starts += 1
            if self.barren_starts < _BARREN_STARTS:
                return
            how = f"ended with code {worker.process.returncode}"
            if was_killed:
                how = "was killed, perhaps because memory ran out,"
            self.fault = Fault(
                f"a training process {how} before it trained",
                read_end(self.folder / LOG, 4000),
            )
            return
        journaled = self.publisher.journaled(batch.group)
        done = tuple(row for row, _ in batch.runs if row in journaled)
        self._settle(batch, done, 0)
        left = [row for row, _ in batch.runs if row not in journaled]
        if left:
            first = (batch.group, left[0])
            self.deaths[first] += not worker.left
            if self.deaths[first] >= _DEATHS:
                n = 1 if batch.members == 1 else len(left)
                self.set_aside += n
                self.queue.settle(batch, left[:n])
                left = left[n:]
            self.queue.put_back(batch, left)
        self._publish_if_complete(batch)

    def _settled(self) -> dict[int, set[int]]:
        """Return the rows, by group, that are finished, or failed here and were not set back."""
        settled = self.publisher.finished()
        attempts = [attempt.folder for attempt in self.earlier]
        for failure in valid_failures(self.paths, self.task.plan, [*attempts, self.folder]):
            settled.setdefault(failure.group, set()).add(failure.row)
        return settled

    def _is_due(self, since: float) -> bool:
        """Return whether the time to report or check requests again has come."""
        age = time.monotonic() - self._began
        seconds = _REPORT_SECONDS
        if self.node.job_id:
            seconds = min(_REPORT_ON_CLUSTER, max(seconds, age / 10))
        return time.monotonic() - since >= seconds

    def _read_requests(self) -> None:
        """Read users' requests: to stop, or to skip some cells."""
        self._requests_read = time.monotonic()
        with suppress(DamagedFile):  # an unreadable request has no effect
            # a successor asks this attempt alone
            self.stop.hear(*map(stop_request, (self.submission, self.folder)))
        with suppress(DamagedFile):
            self.queue.skip(skipped_cells(self.submission))

    def _measure(self) -> None:
        self._measured = time.monotonic()
        memory, self.cpu_seconds = used((os.getpid(), *self.pool.pids))
        self.memory = max(self.memory, memory)

    def _report(self, state: str, *, durable: bool = True) -> None:
        self._reported = time.monotonic()
        Attempt(
            state,
            processes.fingerprint(os.getpid()),
            self.node.name,
            self.node.job_id,
            started=self.started,
            updated=time.time(),
            runs=self.task.n_runs,
            pending=self.queue.n_pending,
            set_aside=self.set_aside,
            killed=self.killed,
            done={str(group): n for group, n in self.done.items()},
            failed={str(group): n for group, n in self.failed.items()},
            workers=len(self.pool.workers),
            memory=self.memory,
            cpu_seconds=self.cpu_seconds,
            in_flight=self.pool.long_in_flight(self.publisher.journaled, self.longest),
            reason=self.fault.reason if self.fault else "",
            details=self.fault.details if self.fault else "",
            node_at_fault=self.is_node_at_fault,
            plan=self.task.plan,
        ).write(self.folder, durable=durable)


def _last_checkpoint(paths: SweepPaths, task: Task) -> float:
    """Return the time of the latest checkpoint of a task's runs; 0 if there is none."""
    if not paths.checkpoints.exists():
        return 0.0
    names = {
        paths.checkpoint(span.group, row).name for span in task.spans for row, _ in span.runs()
    }
    files = [entry for entry in os.scandir(paths.checkpoints) if entry.name in names]
    return max((entry.stat().st_mtime for entry in files), default=0.0)
