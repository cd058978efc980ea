"""Lease files: their content and all file system operations on them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from manyseed.orchestrator.disk.placing import read_plain, unavailable
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
        folder.mkdir(parents=True, exist_ok=True)
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
