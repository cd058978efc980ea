"""Leases without locks: files, counters and each process's own clock.

The lease `name` is the file ``name.<generation>.lease`` with the highest generation. Its holder
increments a counter in it. A process that sees the counter unchanged for the lease time, by its own
clock, may take the lease over by creating the next generation with O_EXCL, which only one process
can. Then it looks again: if the generation that it superseded has changed or gone, or a higher one
exists, others used this number before, and it gives up. Otherwise it removes all lower generations,
lowest first. So a holder has the lease while its file exists and the next generation does not,
however long others were suspended between two of these steps.

A holder may be suspended and wake after a takeover. Checking before it acts is not enough, so
whatever it prepares must be removable by the next holder (`placing.remove_partial`).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from manyseed.jobs import whole
from manyseed.jobs.checks import parsed
from manyseed.orchestrator.disk.placing import make_below, read_plain, unavailable
from manyseed.orchestrator.errors import LeaseHeld, LeaseLost, UnavailableError, UserError
from manyseed.orchestrator.paths import LEASE
from manyseed.slurm.processes import Process

_RECORD_SIZE = 512  # fixed, so that each heartbeat overwrites the previous one


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The content of a lease file."""

    id: str
    owner: Process
    counter: int
    is_free: bool
    doing: str

    @classmethod
    def parse(cls, content: bytes) -> LeaseRecord | None:
        """Return the record; None if it is incomplete or damaged."""
        try:
            value = json.loads(content)
            owner = value["owner"]
            boot, _, namespace = str(owner["machine"]).partition(" ")
            process = Process(
                str(owner["host"]), boot, namespace, int(owner["pid"]), int(owner["started"])
            )
            free, counter = value["state"] == "free", int(value["counter"])
            return cls(str(value["id"]), process, counter, free, str(value.get("doing", "")))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None

    def content(self) -> bytes:
        """Return what `parse` reads."""
        owner = {
            "host": self.owner.host,
            "machine": f"{self.owner.boot} {self.owner.namespace}",
            "pid": self.owner.pid,
            "started": self.owner.started,
        }
        state = "free" if self.is_free else "held"
        value = {"id": self.id, "owner": owner, "counter": self.counter, "state": state}
        return json.dumps(value | ({"doing": self.doing} if self.doing else {})).encode()


@dataclass(frozen=True, slots=True)
class State:
    """One look at a lease."""

    generation: int
    content: bytes

    def record(self) -> LeaseRecord | None:
        """Return the record; None if the content is not one."""
        return LeaseRecord.parse(self.content)

    def is_over(self) -> bool:
        """Whether it is free or its holder dead, so this generation will never be alive again."""
        record = self.record()
        return self.generation == 0 or (
            record is not None and (record.is_free or record.owner.state() == "dead")
        )


def _file(folder: Path, name: str, generation: int) -> Path:
    return folder / f"{name}.{generation:08d}{LEASE}"


def listed(folder: Path) -> dict[str, list[int]]:
    """Return the generations of every lease in a folder."""
    with unavailable("list", folder):
        try:
            with os.scandir(folder) as entries:
                files = [entry.name for entry in entries]
        except FileNotFoundError:
            return {}
    generations: dict[str, list[int]] = {}
    for file in files:
        name, _, number = file.removesuffix(LEASE).rpartition(".")
        digits = number.isascii() and number.isdigit() and len(number) >= 8
        if file.endswith(LEASE) and name and digits:
            generations.setdefault(name, []).append(int(number))
    return generations


def look(folder: Path, name: str) -> State:
    """Return the highest generation; generation 0 if the lease has no file."""
    while True:
        generations = listed(folder).get(name)
        if not generations:
            return State(0, b"")
        state = read(folder, name, max(generations))
        if state.generation:
            return state
        # the holder of a newer one removed it: look again


def read(folder: Path, name: str, generation: int) -> State:
    """Return a generation; generation 0 if its file does not exist, even as a dangling link."""
    path = _file(folder, name, generation)
    try:
        return State(generation, read_plain(path))
    except FileNotFoundError:
        return State(generation if path.is_symlink() else 0, b"")


def exists(folder: Path, name: str, generation: int) -> bool:
    """Return whether the file of a generation exists."""
    path = _file(folder, name, generation)
    with unavailable("look for the lease", path):
        return os.path.lexists(path)


def create(folder: Path, name: str, generation: int) -> bool:
    """Create the empty file of a generation; return False if it exists."""
    path = _file(folder, name, generation)
    with unavailable("take the lease", path):
        make_below(folder)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(os.open(path, flags, 0o666))
        except FileExistsError:
            return False
    return True


def write(folder: Path, name: str, generation: int, content: bytes) -> bool:
    """Overwrite the file of a generation; return False if it does not exist."""
    path = _file(folder, name, generation)
    with unavailable("write the lease", path):
        try:
            file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            os.pwrite(file, content.ljust(_RECORD_SIZE), 0)
            os.fsync(file)
        finally:
            os.close(file)
    return True


def remove(folder: Path, name: str, generation: int) -> None:
    """Remove the file of a generation if it exists."""
    path = _file(folder, name, generation)
    with unavailable("remove the lease", path):
        path.unlink(missing_ok=True)


_VARIABLE = "MANYSEED_LEASE_SECONDS"
_SECONDS = 60.0
_LEAST_SECONDS, _MOST_SECONDS = 0.1, 86_400.0
_BEATS = 6
_POLL_SECONDS = 0.1
_SILENT_SECONDS = 5.0


class Wait:
    """A wait for other processes, which is told after some seconds: once, on standard error.

    `what`: returns what is waited for.
    """

    def __init__(self, what: Callable[[], str]) -> None:
        self._what, self._began, self._is_told = what, clock(), False

    def pause(self, seconds: float = _POLL_SECONDS) -> None:
        """Sleep, and tell for what if the wait has become long."""
        if not self._is_told and clock() - self._began > _SILENT_SECONDS:
            self._is_told = True
            with contextlib.suppress(OSError):  # a terminal that is gone
                print(f"Waiting {self._what()}", file=sys.stderr, flush=True)
        time.sleep(seconds)


def clock() -> float:
    """Return the seconds of a clock that runs on while the process or the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def seconds_of(variable: str, default: float, bounds: tuple[float, float], what: str) -> float:
    """Return the seconds that an environment variable sets; `what` names them in the message."""
    least, most = bounds
    text = os.environ.get(variable, str(default))
    with contextlib.suppress(ValueError):
        seconds = parsed(float, text)
        if math.isfinite(seconds) and least <= seconds <= most:
            return seconds
    raise UserError(
        f"the {what} must be from {least:g} to {most:g} seconds",
        key=variable,
        value=text,
        remedy=f"unset it to get {default:g}",
    )


def lease_seconds() -> float:
    """Return the lease time in seconds, the same in all processes of a sweep; tests shorten it."""
    return seconds_of(_VARIABLE, _SECONDS, (_LEAST_SECONDS, _MOST_SECONDS), "lease time")


class LeaseWatch:
    """Times the counters of a folder's leases on this process's clock.

    `folder`: folder of the leases. `seconds`: a lease whose counter does not change for this long
    is dead. Default: `lease_seconds()`.
    """

    def __init__(self, folder: Path, seconds: float | None = None) -> None:
        self.folder = folder
        self.seconds = lease_seconds() if seconds is None else seconds
        self._seen: dict[str, tuple[State, float]] = {}

    def is_alive(self, name: str) -> bool:
        """Return whether a lease has a holder that is not known to be dead.

        A held lease counts as alive when it is seen for the first time.
        """
        return self._is_alive(name, look(self.folder, name))

    def alive(self) -> list[str]:
        """Return the names of all live leases, sorted."""
        looks = self._looks(listed(self.folder))
        return sorted(name for name, state in looks if self._is_alive(name, state))

    def names(self) -> set[str]:
        """Return the names of all leases, held or not."""
        return set(listed(self.folder))

    def wait_until_dead(
        self,
        names: Collection[str] | None = None,
        *,
        besides: Collection[str] = (),
    ) -> list[str]:
        """Watch until every lease is free, dead, or seen to be alive; return the live ones, sorted.

        Watches the leases `names`, by default all, but ignores those in `besides`. Takes as long as
        the lease time if a holder died on another machine.
        """
        until = clock() + self.seconds
        first: dict[str, State] = {}
        over: dict[str, int] = {}  # generations that will never be alive again
        wait = Wait(lambda: f"{self.seconds:g} s at most, {self._undecided(alive)}")
        while True:
            alive, moved = [], 0
            undecided = {
                name: generations
                for name, generations in listed(self.folder).items()
                if name not in besides
                and (names is None or name in names)
                and over.get(name) != max(generations)
            }
            for name, state in self._looks(undecided):
                if self._is_alive(name, state):
                    alive.append(name)
                    moved += first.setdefault(name, state) != state
                elif name not in self._seen:
                    over[name] = state.generation
            if len(alive) == moved or clock() > until + _POLL_SECONDS:
                return sorted(alive)
            wait.pause()

    def _undecided(self, names: Sequence[str]) -> str:
        """Say whose leases are watched."""
        holders = ", ".join(Lease(self, name).holder() for name in names[:3])
        files = ", ".join(f"{name}.*" for name in names[:3]) + (", …" if len(names) > 3 else "")
        return f"to see whether {holders} is still at work: {self.folder}/{files}"

    def _looks(self, listed: Mapping[str, list[int]]) -> Iterator[tuple[str, State]]:
        """Look at leases without listing the folder again."""
        for name, generations in listed.items():
            state = read(self.folder, name, max(generations))
            yield name, state if state.generation else look(self.folder, name)

    def _is_alive(self, name: str, state: State) -> bool:
        if state.is_over():
            self._seen.pop(name, None)
            return False
        before = self._seen.get(name)
        if before is None or before[0] != state:
            self._seen[name] = (state, clock())
            return True
        return clock() - before[1] <= self.seconds


class Lease:
    """A lease of this process.

    `watch`: the folder's watch, shared by all leases of a process. `name`: what is leased. `doing`:
    the purpose, shown to processes that find the lease held. `vanishes`: leave no file when it is
    released: for leases with a unique name, or rarely taken ones.
    """

    def __init__(
        self, watch: LeaseWatch, name: str, *, doing: str = "", vanishes: bool = False
    ) -> None:
        if not name or "/" in name or name.startswith(".."):
            raise ValueError(f"{name!r} cannot name a lease")
        self.watch = watch
        self.name = name
        self._doing, self._vanishes = doing, vanishes
        self._id = os.urandom(16).hex()
        self._generation: int | None = None
        self._counter = 0
        self._beaten = 0.0

    @property
    def seconds(self) -> float:
        """The lease time: how long a heartbeat counts, in seconds."""
        return self.watch.seconds

    def try_take(self) -> bool:
        """Take the lease if it is free or its holder is dead; return whether it is ours now."""
        if self._generation is not None:
            try:
                self.check()
            except LeaseLost:
                self._generation = None
            else:
                return True
        while True:
            state = look(self.watch.folder, self.name)
            record = state.record()
            ours = record is not None and record.id == self._id  # stale, but nobody took it
            if not ours and self.watch._is_alive(self.name, state):
                return False
            if self._supersede(state):
                return True

    def take(self, wait: float = 0.0, poll: float = 0.1) -> None:
        """Take the lease, waiting at most `wait` seconds for its holder to release it or die."""
        until = clock() + wait
        waiting = Wait(lambda: f"for {self.holder()} to release {self.watch.folder}/{self.name}.*")
        while not self.try_take():
            if clock() >= until:
                raise LeaseHeld(
                    f"{self.name} is held by {self.holder()}: wait for it to finish, or cancel it"
                )
            waiting.pause(poll)

    def is_held_here(self) -> bool:
        """Whether this machine can see that the holder is alive, even if suspended."""
        record = look(self.watch.folder, self.name).record()
        return record is not None and not record.is_free and record.owner.state() == "alive"

    def holder(self) -> str:
        """Return a description of who holds the lease, and for what purpose."""
        record = look(self.watch.folder, self.name).record()
        if record is None:
            return "somebody"
        doing = f", {record.doing}" if record.doing else ""
        return f"process {record.owner.pid} on {record.owner.host}{doing}"

    def heartbeat(self) -> None:
        """Increment the counter."""
        self.check()
        self._counter += 1
        now = clock()  # before others can see it: the holder must not trust it longer than they do
        self._record()
        self._beaten = now

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Send heartbeats from a thread while the block runs, and release the lease at its end.

        A heartbeat that the file system refuses is retried while the lease lasts; `check` reports
        one that comes too late.
        """
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(self.seconds / _BEATS):
                try:
                    self.heartbeat()
                except LeaseLost:
                    return
                except (UnavailableError, OSError):
                    continue

        thread = threading.Thread(target=beat, name=f"lease {self.name}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.release()

    @property
    def is_stale(self) -> bool:
        """Whether the last heartbeat is older than the lease time, by this process's clock."""
        return self._generation is None or clock() - self._beaten > self.seconds

    def check(self) -> None:
        """Raise `LeaseLost` unless the lease is still ours, by the clock and on disk."""
        if self._generation is None:
            raise LeaseLost(f"{self.name} is not held")
        if self.is_stale:
            raise LeaseLost(f"{self.name}: no heartbeat for {self.seconds:g} s; take it again")
        # In this order: the next generation is removed only after ours.
        following = exists(self.watch.folder, self.name, self._generation + 1)
        record = read(self.watch.folder, self.name, self._generation).record()
        if following or record is None or record.id != self._id:
            raise LeaseLost(f"{self.name} was taken over")

    def release(self) -> None:
        """Give the lease back if it is still ours.

        If the file system refuses, others can take the lease once the lease time has passed.
        """
        with contextlib.suppress(LeaseLost, UnavailableError):
            self.check()
            if not self._vanishes:
                self._record(is_free=True)
            elif self._generation is not None:
                remove(self.watch.folder, self.name, self._generation)
        self._generation = None

    def _supersede(self, seen: State) -> bool:
        """Create the generation after `seen`, which is over; return whether the lease is ours."""
        folder, generation = self.watch.folder, seen.generation + 1
        beaten = clock()  # before others can see it
        if not create(folder, self.name, generation):
            return False
        generations = listed(folder).get(self.name, [])
        is_highest = max(generations, default=0) == generation
        if not is_highest or read(folder, self.name, seen.generation) != seen:
            # others have used this number since we looked
            remove(folder, self.name, generation)
            return False
        self._generation, self._counter, self._beaten = generation, 0, beaten
        try:
            self._record()
        except LeaseLost:  # we were suspended, and the lease was taken over
            self._generation = None
            return False
        except BaseException:
            self._generation = None
            remove(folder, self.name, generation)
            raise
        with unavailable("take the lease", folder):
            whole.sync(folder)
        for older in sorted(generations):
            if older < generation:
                remove(folder, self.name, older)
        return True

    def _record(self, *, is_free: bool = False) -> None:
        assert self._generation is not None
        record = LeaseRecord(self._id, Process.current(), self._counter, is_free, self._doing)
        if not write(self.watch.folder, self.name, self._generation, record.content()):
            raise LeaseLost(f"{self.name} was taken over")


def remove_dead_leases(watch: LeaseWatch) -> None:
    """Remove the files of all leases except live ones, whose holders may just be starting."""
    there = listed(watch.folder)
    for name, state in watch._looks(there):
        if not watch._is_alive(name, state):
            for generation in sorted(there[name]):
                remove(watch.folder, name, generation)
