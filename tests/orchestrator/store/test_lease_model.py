"""Random interleavings of processes that take one lease: at most one holds it, at any moment.

Every process is stopped before each operation on a file, for as long as chance wants, listings may
miss what changes while they go on, processes die, and the lease time passes.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from manyseed.orchestrator.disk import lease
from manyseed.orchestrator.disk import lease as leases
from manyseed.orchestrator.disk.lease import Lease, LeaseWatch, State
from manyseed.orchestrator.errors import LeaseLost
from manyseed.slurm.processes import Process

FOLDER = Path("leases")
SECONDS = 60.0
ACTORS = 4


class Killed(BaseException):
    """A process ends here."""


class World:
    """Files, a clock and processes, one of which runs at a time."""

    def __init__(self, seed: int, kind: type[Lease], *, vanishes: bool) -> None:
        self.random = random.Random(seed)
        self.kind, self.vanishes = kind, vanishes
        self.files: dict[int, bytes] = {}
        self.now = 0.0
        self.actors: list[Actor] = []
        self.running: Actor | None = None

    def step(self) -> None:
        """Let others run until it is this process's turn again."""
        assert self.running is not None
        self.running.pause()

    def play(self, steps: int) -> None:
        """Run processes in a random order; those that chance puts last stand still for long."""
        try:
            for _ in range(steps):
                alive = [actor for actor in self.actors if not actor.is_dead]
                if len(alive) < ACTORS:
                    alive.append(Actor(self, len(self.actors) + 1))
                    self.actors.append(alive[-1])
                if self.random.random() < 0.1:
                    for actor in alive:
                        actor.priority = self.random.random()
                first = max(alive, key=lambda actor: actor.priority)
                chance = self.random.random()
                if chance < 0.01:
                    first.kill()
                elif chance < 0.03:
                    self.now += SECONDS + 1
                else:
                    first.go_on()
                holders = [actor for actor in self.actors if actor.holds]
                assert len(holders) <= 1, f"{len(holders)} hold it: {sorted(self.files)}"
        finally:
            for actor in self.actors:
                actor.kill()

    # --- files, as `leasefiles` has them ---

    def listed(self, folder: Path) -> dict[str, list[int]]:
        self.step()
        found = []
        for generation in self.random.sample(sorted(self.files), len(self.files)):
            if generation in self.files:
                found.append(generation)
            self.step()
        return {"x": found} if found else {}

    def read(self, folder: Path, name: str, generation: int) -> State:
        self.step()
        there = generation in self.files
        return State(generation, self.files[generation]) if there else State(0, b"")

    def exists(self, folder: Path, name: str, generation: int) -> bool:
        self.step()
        return generation in self.files

    def create(self, folder: Path, name: str, generation: int) -> bool:
        self.step()
        if generation in self.files:
            return False
        self.files[generation] = b""
        return True

    def write(self, folder: Path, name: str, generation: int, content: bytes) -> bool:
        self.step()
        if generation not in self.files:
            return False
        self.files[generation] = content
        return True

    def remove(self, folder: Path, name: str, generation: int) -> None:
        self.step()
        self.files.pop(generation, None)


class Actor:
    """A process that takes the lease, keeps it for a while and releases it, again and again."""

    def __init__(self, world: World, pid: int) -> None:
        self.world, self.pid = world, pid
        self.priority = world.random.random()
        self.is_dead = False
        self.error: BaseException | None = None
        self.watch = LeaseWatch(FOLDER, SECONDS)
        self.lease: Lease | None = None
        self.mine, self.others = threading.Semaphore(0), threading.Semaphore(0)
        self.thread = threading.Thread(target=self.live, daemon=True)
        self.thread.start()

    def live(self) -> None:
        self.mine.acquire()
        try:
            while not self.is_dead:
                self.hold_once()
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        self.is_dead = True
        self.others.release()

    def hold_once(self) -> None:
        self.world.step()
        held = self.world.kind(self.watch, "x", vanishes=self.world.vanishes)
        if held.try_take():
            self.lease = held
            with suppress(LeaseLost):
                for _ in range(self.world.random.randrange(3)):
                    held.heartbeat()
            if self.world.random.random() < 0.7:
                held.release()
        self.lease = None

    @property
    def holds(self) -> bool:
        """Whether its lease, looked at now, is its own."""
        lease, there = self.lease, self.world.files
        if self.is_dead or lease is None or lease.is_stale or lease._generation is None:
            return False
        record = State(1, there.get(lease._generation, b"")).record()
        is_held = record is not None and record.id == lease._id and not record.is_free
        return is_held and lease._generation + 1 not in there

    def go_on(self) -> None:
        self.world.running = self
        self.mine.release()
        self.others.acquire()
        if self.error is not None:
            raise self.error

    def pause(self) -> None:
        self.others.release()
        self.mine.acquire()
        if self.is_dead:
            raise Killed

    def kill(self) -> None:
        if not self.is_dead:
            self.is_dead = True
            self.go_on()


class LooksOnce(Lease):
    """One that trusts its first look, as the protocol did before."""

    def _supersede(self, seen: State) -> bool:
        generation = seen.generation + 1
        if not lease.create(FOLDER, self.name, generation):
            return False
        self._generation, self._counter, self._beaten = generation, 0, leases.clock()
        try:
            self._record()
        except LeaseLost:
            self._generation = None
            return False
        for older in sorted(lease.listed(FOLDER).get(self.name, [])):
            if older < generation:
                lease.remove(FOLDER, self.name, older)
        return True


@contextmanager
def in_world(world: World) -> Iterator[None]:
    def owner() -> Process:
        assert world.running is not None
        return Process("host", "boot", "namespace", world.running.pid, 1)

    def state(process: Process) -> str:
        return "dead" if world.actors[process.pid - 1].is_dead else "unknown"

    with pytest.MonkeyPatch.context() as patch:
        for name in ("listed", "read", "exists", "create", "write", "remove"):
            patch.setattr(lease, name, getattr(world, name))
        patch.setattr(leases.whole, "sync", lambda folder: None)
        patch.setattr(leases, "clock", lambda: world.now)
        patch.setattr(Process, "current", owner)
        patch.setattr(Process, "state", state)
        yield


def histories(seeds: range, kind: type[Lease], **options: Any) -> None:
    for seed in seeds:
        world = World(seed, kind, **options)
        with in_world(world):
            world.play(500)


@pytest.mark.parametrize("vanishes", [False, True])
def test_at_most_one_process_holds_a_lease(vanishes: bool) -> None:
    histories(range(80), Lease, vanishes=vanishes)


def test_the_model_finds_two_holders_where_nobody_looks_again() -> None:
    with pytest.raises(AssertionError, match="2 hold it"):
        histories(range(1000), LooksOnce, vanishes=False)


@pytest.mark.slow
@pytest.mark.parametrize("vanishes", [False, True])
def test_at_most_one_process_holds_a_lease_in_long(vanishes: bool) -> None:
    histories(range(1000, 1750), Lease, vanishes=vanishes)
