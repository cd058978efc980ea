"""Leases without locks: files, counters and each holder's own clock.

The lease `name` is the file ``name.<generation>.lease`` with the highest generation. Its holder
raises a counter in it; whoever watches the counter stand still for the lease time, by their own
clock, may take the lease over: by creating the next generation with O_EXCL, which only one can.
Then it looks again. Where the generation that it superseded is no longer there as it was seen, or a
higher one is, others went on since: the number was used before, and it gives up. Else it removes
all lower generations, lowest first. So while a holder's file exists and the next generation does
not, the lease is the holder's, however long others were suspended between two of these steps.

A holder may be suspended and wake after a takeover. It cannot notice in time by looking first and
acting then, so what it prepares must be removable by the next holder (`placing.remove_partial`).
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from manyseed.jobs import whole
from manyseed.orchestrator.disk import leasefiles
from manyseed.orchestrator.disk.leasefiles import LeaseRecord, State
from manyseed.orchestrator.disk.placing import unavailable
from manyseed.orchestrator.errors import LeaseHeld, LeaseLost, UnavailableError, UserError
from manyseed.slurm.processes import Process

_VARIABLE = "MANYSEED_LEASE_SECONDS"
_SECONDS = 60.0
_LEAST_SECONDS, _MOST_SECONDS = 0.1, 86_400.0
_BEATS = 6
_POLL_SECONDS = 0.1


def clock() -> float:
    """Return seconds of a clock that runs on while the process, or the machine, is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def seconds_of(variable: str, default: float, bounds: tuple[float, float], what: str) -> float:
    """Return a time that the environment may set.

    Parameters
    ----------
    variable : str
    default : float
    bounds : tuple of float
        The least and the most.
    what : str
        What it is, for the message.

    Raises
    ------
    UserError
        Where the environment asks for none that makes sense.
    """
    least, most = bounds
    text = os.environ.get(variable, str(default))
    with contextlib.suppress(ValueError):
        seconds = float(text)
        if math.isfinite(seconds) and least <= seconds <= most:
            return seconds
    raise UserError(
        f"no {what}: seconds from {least:g} to {most:g}",
        key=variable,
        value=text,
        remedy=f"unset it, for {default:g}",
    )


def lease_seconds() -> float:
    """Return the lease time, the same in all processes of a sweep; tests take a shorter one.

    Raises
    ------
    UserError
        Where the environment asks for none that makes sense.
    """
    return seconds_of(_VARIABLE, _SECONDS, (_LEAST_SECONDS, _MOST_SECONDS), "lease time")


class LeaseWatch:
    """Times the counters of a folder's leases on this process's clock.

    Parameters
    ----------
    folder : Path
        Holds the leases.
    seconds : float, optional
        A lease whose counter stands still for so long is dead; by default `lease_seconds`.
    """

    def __init__(self, folder: Path, seconds: float | None = None) -> None:
        self.folder = folder
        self.seconds = lease_seconds() if seconds is None else seconds
        self._seen: dict[str, tuple[State, float]] = {}

    def is_alive(self, name: str) -> bool:
        """Return whether a lease is held by somebody not known to be dead.

        One that is held and seen for the first time counts as alive.
        """
        return self._is_alive(name, leasefiles.look(self.folder, name))

    def alive(self) -> list[str]:
        """Return the names of all leases that are alive."""
        looks = self._looks(leasefiles.listed(self.folder))
        return sorted(name for name, state in looks if self._is_alive(name, state))

    def names(self) -> set[str]:
        """Return the names of all leases, held or not."""
        return set(leasefiles.listed(self.folder))

    def wait_until_dead(
        self,
        names: Collection[str] | None = None,
        *,
        besides: Collection[str] = (),
    ) -> list[str]:
        """Watch until every lease is free, dead, or seen to be alive; return those that are alive.

        Takes as long as a lease lasts where somebody died on another machine.

        Parameters
        ----------
        names : collection of str, optional
            The leases to watch; by default all of the folder.
        besides : collection of str
            Leases that are passed over.
        """
        until = clock() + self.seconds
        first: dict[str, State] = {}
        over: dict[str, int] = {}  # generations that are never alive again
        while True:
            alive, moved = [], 0
            open_ = {
                name: generations
                for name, generations in leasefiles.listed(self.folder).items()
                if name not in besides
                and (names is None or name in names)
                and over.get(name) != max(generations)
            }
            for name, state in self._looks(open_):
                if self._is_alive(name, state):
                    alive.append(name)
                    moved += first.setdefault(name, state) != state
                elif name not in self._seen:
                    over[name] = state.generation
            if len(alive) == moved or clock() > until + _POLL_SECONDS:
                return sorted(alive)
            time.sleep(_POLL_SECONDS)

    def _looks(self, listed: Mapping[str, list[int]]) -> Iterator[tuple[str, State]]:
        """Look at leases without another listing of the folder."""
        for name, generations in listed.items():
            state = leasefiles.read(self.folder, name, max(generations))
            yield name, state if state.generation else leasefiles.look(self.folder, name)

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

    Parameters
    ----------
    watch : LeaseWatch
        Of the folder; share one between all leases of a process.
    name : str
        What is leased.
    doing : str
        What for: shown to those who find it held.
    vanishes : bool
        Let no file stay when it is released: for what has a name of its own, or is rarely wanted.
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
        while True:
            state = leasefiles.look(self.watch.folder, self.name)
            record = state.record()
            ours = record is not None and record.id == self._id  # stale, but nobody took it
            if not ours and self.watch._is_alive(self.name, state):
                return False
            if self._supersede(state):
                return True

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
                    f"{self.name} is held by {self.holder()}: wait for it to finish, or cancel it"
                )
            time.sleep(poll)

    def is_held_here(self) -> bool:
        """Whether its holder can be seen from here to be alive, suspended or not."""
        record = leasefiles.look(self.watch.folder, self.name).record()
        return record is not None and not record.is_free and record.owner.state() == "alive"

    def holder(self) -> str:
        """Say who holds the lease, and what for."""
        record = leasefiles.look(self.watch.folder, self.name).record()
        if record is None:
            return "somebody"
        doing = f", {record.doing}" if record.doing else ""
        return f"process {record.owner.pid} on {record.owner.host}{doing}"

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
        self._record()
        self._beaten = now

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Raise the counter from a thread while the block runs, and release at its end.

        A heartbeat that the file system refuses is tried again while the lease lasts; one that
        comes too late shows in `check`.
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
        """Whether the last heartbeat is older than the lease time, by the own clock."""
        return self._generation is None or clock() - self._beaten > self.seconds

    def check(self) -> None:
        """Raise `LeaseLost` unless the lease is ours: by the clock, and on disk."""
        if self._generation is None:
            raise LeaseLost(f"{self.name} is not held")
        if self.is_stale:
            raise LeaseLost(f"{self.name}: no heartbeat for {self.seconds:g} s; take it again")
        # In this order: the next generation vanishes only after ours has.
        following = leasefiles.exists(self.watch.folder, self.name, self._generation + 1)
        record = leasefiles.read(self.watch.folder, self.name, self._generation).record()
        if following or record is None or record.id != self._id:
            raise LeaseLost(f"{self.name} was taken over")

    def release(self) -> None:
        """Give the lease back, where it is still ours.

        Where the file system refuses, others take it when it has stood still for long enough.
        """
        with contextlib.suppress(LeaseLost, UnavailableError):
            self.check()
            if not self._vanishes:
                self._record(is_free=True)
            elif self._generation is not None:
                leasefiles.remove(self.watch.folder, self.name, self._generation)
        self._generation = None

    def _supersede(self, seen: State) -> bool:
        """Create the generation after one that was seen to be over; return whether it is ours."""
        folder, generation = self.watch.folder, seen.generation + 1
        beaten = clock()  # before it can be seen
        if not leasefiles.create(folder, self.name, generation):
            return False
        generations = leasefiles.listed(folder).get(self.name, [])
        is_highest = max(generations, default=0) == generation
        if not is_highest or leasefiles.read(folder, self.name, seen.generation) != seen:
            leasefiles.remove(
                folder, self.name, generation
            )  # others had that number since the look
            return False
        self._generation, self._counter, self._beaten = generation, 0, beaten
        try:
            self._record()
        except LeaseLost:  # suspended since, and taken over
            self._generation = None
            return False
        except BaseException:
            self._generation = None
            leasefiles.remove(folder, self.name, generation)
            raise
        with unavailable("take the lease", folder):
            whole.sync(folder)
        for older in sorted(generations):
            if older < generation:
                leasefiles.remove(folder, self.name, older)
        return True

    def _record(self, *, is_free: bool = False) -> None:
        assert self._generation is not None
        record = LeaseRecord(self._id, Process.current(), self._counter, is_free, self._doing)
        if not leasefiles.write(self.watch.folder, self.name, self._generation, record.content()):
            raise LeaseLost(f"{self.name} was taken over")


def remove_dead_leases(watch: LeaseWatch) -> None:
    """Remove the files of all leases but those that are alive: somebody may just begin to work."""
    listed = leasefiles.listed(watch.folder)
    for name, state in watch._looks(listed):
        if not watch._is_alive(name, state):
            for generation in sorted(listed[name]):
                leasefiles.remove(watch.folder, name, generation)
