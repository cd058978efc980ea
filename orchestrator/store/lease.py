"""Leases without locks: files, counters and everybody's own clock.

The lease `name` is the file ``name.<generation>.lease`` with the highest generation. Its holder
raises a counter in it; whoever watches the counter stand still for the lease time, by their own
clock, may take the lease over: by creating the next generation with O_EXCL, which only one can.
Older generations are then removed, lowest first, and the highest never is, so that numbers do not
come back: while a holder's file exists and the next generation does not, the lease is the holder's.

A holder may be suspended and wake after a takeover. It cannot notice in time by looking first and
acting then, so what it prepares must be removable by the next holder (`files.remove_partial`).
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import uuid
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orchestrator.store.errors import LeaseHeld, LeaseLost, StoreError
from orchestrator.store.files import sync_folder, unavailable
from orchestrator.store.owner import Owner

SUFFIX = ".lease"
LEASE_SECONDS = float(os.environ.get("MANYSEED_LEASE_SECONDS", "60"))
"""The same in all processes of a sweep; tests take a shorter one."""

_RECORD_SIZE = 512  # always the same, so that a heartbeat overwrites the one before


def clock() -> float:
    """Return seconds of a clock that runs on while the process, or the machine, is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True)
class _State:
    """One look at a lease."""

    generation: int
    content: bytes

    def record(self) -> dict[str, Any] | None:
        try:
            value = json.loads(self.content)
        except ValueError:  # being written
            return None
        return value if isinstance(value, dict) else None

    def is_free(self) -> bool:
        record = self.record()
        return self.generation == 0 or (record is not None and record["state"] == "free")

    def is_gone(self) -> bool:
        record = self.record()
        return record is not None and Owner(**record["owner"]).is_gone()


class LeaseWatch:
    """Times the counters of a folder's leases on this process's clock.

    Parameters
    ----------
    folder : Path
        Holds the leases.
    seconds : float
        A lease whose counter stands still for so long is dead.
    """

    def __init__(self, folder: Path, seconds: float = LEASE_SECONDS) -> None:
        self.folder = folder
        self.seconds = seconds
        self._seen: dict[str, tuple[_State, float]] = {}

    def is_alive(self, name: str) -> bool:
        """Return whether a lease is held by somebody not known to be dead.

        One that is held and seen for the first time counts as alive.
        """
        return self._is_alive(name, _look(self.folder, name))

    def alive(self) -> list[str]:
        """Return the names of all leases that are alive."""
        return sorted(name for name in self.names() if self.is_alive(name))

    def names(self) -> set[str]:
        """Return the names of all leases, held or not."""
        with unavailable("list", self.folder):
            if not self.folder.exists():
                return set()
            files = [entry.name for entry in os.scandir(self.folder)]
        return {name.rsplit(".", 2)[0] for name in files if name.endswith(SUFFIX)}

    def wait_until_dead(self, besides: Collection[str] = (), poll: float = 0.1) -> list[str]:
        """Watch until every lease is free, dead, or seen to live; return those that live.

        Takes as long as a lease lasts where somebody died on another machine. The leases `besides`
        are passed over.
        """
        until = clock() + self.seconds
        first = {name: _look(self.folder, name) for name in self.names()}
        while True:
            alive = [name for name in self.alive() if name not in besides]
            moved = [n for n in alive if _look(self.folder, n) != first.get(n)]
            if not alive or set(moved) == set(alive) or clock() > until + poll:
                return alive
            time.sleep(poll)

    def _is_alive(self, name: str, state: _State) -> bool:
        if state.is_free() or state.is_gone():
            self._seen.pop(name, None)
            return False
        before = self._seen.get(name)
        if before is None or before[0] != state:
            self._seen[name] = (state, clock())
            return True
        return clock() - before[1] <= self.seconds


class Lease:
    """A lease of this process.

    Parameters
    ----------
    watch : LeaseWatch
        Of the folder; share one between all leases of a process.
    name : str
        What is leased.
    """

    def __init__(self, watch: LeaseWatch, name: str) -> None:
        if not name or "/" in name or name.startswith("."):
            raise ValueError(f"{name!r} cannot name a lease")
        self.watch = watch
        self.name = name
        self._id = uuid.uuid4().hex
        self._generation: int | None = None
        self._counter = 0
        self._beaten = 0.0

    @property
    def seconds(self) -> float:
        """How long a heartbeat counts."""
        return self.watch.seconds

    def try_take(self) -> bool:
        """Take the lease if it is free or its holder dead; return whether it is ours now."""
        if self._generation is not None:
            try:
                self.check()
            except LeaseLost:
                self._generation = None
            else:
                return True
        state = _look(self.watch.folder, self.name)
        record = state.record()
        ours = record is not None and record["id"] == self._id  # stale, but nobody took it
        if not ours and self.watch._is_alive(self.name, state):
            return False
        return self._create(state.generation + 1)

    def take(self, wait: float = 0.0, poll: float = 0.1) -> None:
        """Take the lease, waiting at most `wait` seconds for its holder to release it or die.

        Raises
        ------
        LeaseHeld
            If it is still held by somebody alive then.
        """
        until = clock() + wait
        while not self.try_take():
            if clock() >= until:
                raise LeaseHeld(
                    f"{self.name} is held by {_describe(_look(self.watch.folder, self.name))}: "
                    "wait for it to finish, or cancel it"
                )
            time.sleep(poll)

    def heartbeat(self) -> None:
        """Raise the counter.

        Raises
        ------
        LeaseLost
            If somebody took the lease over, or too much time has passed.
        """
        self.check()
        self._counter += 1
        now = clock()  # before it can be seen: the holder must not believe in it longer than others
        self._record("held")
        self._beaten = now

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Raise the counter from a thread while the block runs, and release at its end.

        A failing heartbeat shows in `check`.
        """
        ended = threading.Event()

        def beat() -> None:
            with contextlib.suppress(StoreError):
                while not ended.wait(self.seconds / 6):
                    self.heartbeat()

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
        """Whether the last heartbeat is older than the lease time, by the own clock."""
        return self._generation is None or clock() - self._beaten > self.seconds

    def check(self) -> None:
        """Raise `LeaseLost` unless the lease is ours: by the clock, and on disk."""
        if self._generation is None:
            raise LeaseLost(f"{self.name} is not held")
        if self.is_stale:
            raise LeaseLost(f"{self.name}: no heartbeat for {self.seconds:g} s; take it again")
        # In this order: the next generation vanishes only after ours has.
        following = _file(self.watch.folder, self.name, self._generation + 1).exists()
        state = _read(self.watch.folder, self.name, self._generation)
        record = state.record()
        if following or record is None or record["id"] != self._id:
            raise LeaseLost(f"{self.name} was taken over")

    def release(self) -> None:
        """Give the lease back, where it is still ours."""
        try:
            self.check()
            self._record("free")
        except LeaseLost:
            pass
        finally:
            self._generation = None

    def _create(self, generation: int) -> bool:
        folder = self.watch.folder
        path = _file(folder, self.name, generation)
        with unavailable("take the lease", path):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                os.close(os.open(path, flags, 0o666))
            except FileExistsError:
                return False
            self._generation, self._counter = generation, 0
            self._beaten = clock()
            try:
                self._record("held")
            except LeaseLost:  # suspended since, and taken over
                self._generation = None
                return False
            except BaseException:
                self._generation = None
                path.unlink(missing_ok=True)
                raise
            sync_folder(folder)
            for older in sorted(_generations(folder, self.name)):
                if older < generation:
                    _file(folder, self.name, older).unlink(missing_ok=True)
        return True

    def _record(self, state: str) -> None:
        record = {
            "id": self._id,
            "owner": asdict(Owner.current()),
            "counter": self._counter,
            "state": state,
        }
        assert self._generation is not None
        path = _file(self.watch.folder, self.name, self._generation)
        with unavailable("write the lease", path):
            try:
                file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                raise LeaseLost(f"{self.name} was taken over") from None
            try:
                os.pwrite(file, json.dumps(record).encode().ljust(_RECORD_SIZE), 0)
                os.fsync(file)
            finally:
                os.close(file)


def remove_dead_leases(watch: LeaseWatch) -> None:
    """Remove the files of all leases; only where none is alive and nobody starts work."""
    for name in watch.names():
        for generation in sorted(_generations(watch.folder, name)):
            _file(watch.folder, name, generation).unlink(missing_ok=True)


def _file(folder: Path, name: str, generation: int) -> Path:
    return folder / f"{name}.{generation:08d}{SUFFIX}"


def _generations(folder: Path, name: str) -> list[int]:
    with unavailable("list", folder):
        if not folder.exists():
            return []
        files = [entry.name for entry in os.scandir(folder)]
    prefix = f"{name}."
    numbers = (
        file[len(prefix) : -len(SUFFIX)]
        for file in files
        if file.startswith(prefix) and file.endswith(SUFFIX)
    )
    return [int(number) for number in numbers if number.isdigit()]


def _look(folder: Path, name: str) -> _State:
    """Return the highest generation; generation 0 where nobody ever held the lease."""
    while True:
        generations = _generations(folder, name)
        if not generations:
            return _State(0, b"")
        state = _read(folder, name, max(generations))
        if state.generation:
            return state
        # Removed by the holder of a newer one: look again.


def _read(folder: Path, name: str, generation: int) -> _State:
    path = _file(folder, name, generation)
    with unavailable("read the lease", path):
        try:
            return _State(generation, path.read_bytes())
        except FileNotFoundError:
            return _State(0, b"")


def _describe(state: _State) -> str:
    record = state.record()
    if record is None:
        return "somebody"
    return f"process {record['owner']['pid']} on {record['owner']['host']}"
