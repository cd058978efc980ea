"""Where the storm takes place: a separate disk, a cluster, commands and the sweep's processes."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from manyseed.slurm.testcluster import Settings, TestCluster, kill

MANYSEED = Path(sys.executable).with_name("manyseed")
LEASE_SECONDS = 5.0
CHECKPOINT_SECONDS = 0.2
DOCUMENTED = frozenset((0, 1, 2, 3, 4, 130))
"""Exit codes that commands may have."""

_DISK_BYTES = 4 * 2**30
_PROFILE = """
slurm-conf    = "{conf}"
time          = "0:03:00"
mem           = "700M"
parallelism   = 3
[cpu]
partition     = "cpu"
cpus-per-task = 1
"""
_HOST = 'hostname "$1"; stay=$2; shift 2; "$@"; code=$?; echo "code=$code"; exec sleep "$stay"'


@dataclass
class Told:
    """The outcome of a command."""

    arguments: tuple[str, ...]
    code: int | None
    output: str
    seconds: float
    signal: int = 0

    def __str__(self) -> str:
        sent = f", after signal {self.signal}" if self.signal else ""
        text = self.output.strip()[-1500:]
        return f"$ manyseed {' '.join(self.arguments)}\n  exit {self.code}{sent}\n{text}"


@dataclass
class Later:
    """Something that ends by itself: a node comes back, a disk is emptied."""

    due: float
    what: str
    action: Callable[[], object]
    tries: int = 5


@dataclass
class Ground:
    """All that the storm owns, and removes at its end."""

    rng: random.Random
    with_slurm: bool
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="storm-")))
    later: list[Later] = field(default_factory=list)
    hosts: list[subprocess.Popen[bytes]] = field(default_factory=list)
    frozen: set[int] = field(default_factory=set)
    seconds: dict[str, float] = field(default_factory=dict)
    has_disk: bool = False
    is_read_only: bool = False
    cluster: TestCluster | None = None

    @property
    def disk(self) -> Path:
        return self.folder / "disk"

    @property
    def sweep(self) -> Path:
        return self.disk / "sweep"

    @property
    def profile(self) -> Path:
        return self.folder / "storm.toml"

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH"))}
        seconds = {"LEASE": LEASE_SECONDS, "CHECKPOINT": CHECKPOINT_SECONDS}
        ours = {f"MANYSEED_{name}_SECONDS": f"{value:g}" for name, value in seconds.items()}
        return {**kept, **ours, "COLUMNS": "100"}

    def start(self) -> None:
        """Mount the disk if allowed, and start the cluster."""
        self.disk.mkdir()
        options = ["-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "storm", str(self.disk)]
        self.has_disk = os.geteuid() == 0 and _mount(options)
        if self.with_slurm:
            cluster = TestCluster(self.folder / "cluster")
            settings = Settings(cpu_nodes=3, gpu_nodes=0, cores=4, grace_seconds=5)
            cluster.start(settings)
            self.cluster = cluster
            self.profile.write_text(_PROFILE.format(conf=cluster.conf))

    def stop(self) -> None:
        """End everything that was started, and leave nothing behind."""
        self.later.clear()
        self._end_hosts()
        kill(self.processes(self.disk))  # stopping a cluster needs its daemons
        if self.cluster is not None:
            with contextlib.suppress(RuntimeError):
                self.cluster.stop()
        kill(self.processes(self.folder))
        for path in (self.sweep, self.disk):
            _unmount(path)
        shutil.rmtree(self.folder, ignore_errors=True)

    # commands

    def run(self, *arguments: object, cut: float | None = None, number: int = 0) -> Told:
        """Run ``manyseed``; send it a signal after `cut` seconds, if it still runs."""
        words = tuple(map(str, arguments))
        process = self.begin(*words)
        return self.end(words, process, cut=cut, number=number)

    def begin(self, *words: str, host: str = "") -> subprocess.Popen[str]:
        """Start ``manyseed``, under another host's name if one is given."""
        command = [str(MANYSEED), *words]
        if host:
            command = ["unshare", "--uts", "sh", "-c", 'hostname "$1"; shift; exec "$@"', "sh"]
            command += [host, str(MANYSEED), *words]
        return subprocess.Popen(
            command,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=self.folder,
        )

    def end(
        self,
        words: tuple[str, ...],
        process: subprocess.Popen[str],
        *,
        cut: float | None = None,
        number: int = 0,
        most: float = 420,
    ) -> Told:
        """Wait for a command while other faults end; a command that hangs has no code."""
        started, sent = time.monotonic(), 0
        try:
            if cut is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    output = process.communicate(timeout=cut)[0]
                    return Told(words, process.returncode, output, time.monotonic() - started)
                sent = number
                process.send_signal(number)
            while True:
                try:
                    output = process.communicate(timeout=1)[0]
                    break
                except subprocess.TimeoutExpired:
                    if time.monotonic() - started > most:
                        raise
                    self.due()  # a resume waits for frozen processes
        except subprocess.TimeoutExpired:
            process.kill()
            return Told(words, None, process.communicate()[0], most, sent)
        took = time.monotonic() - started
        if not sent:
            self.seconds[words[0]] = max(took, 0.7 * self.seconds.get(words[0], 0.0))
        return Told(words, process.returncode, output, took, sent)

    def on_other_host(self, *words: str, stay: float) -> None:
        """Run a command on a host with its own processes, which loses power after `stay` s."""
        command = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        name = f"storm-{len(self.hosts)}"
        command += ["sh", "-c", _HOST, "sh", name, f"{stay:g}", str(MANYSEED), *words]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.hosts.append(
                subprocess.Popen(
                    command,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.folder,
                )
            )

    # processes

    def processes(self, path: Path, word: str = "") -> list[int]:
        """Return the live processes whose command line contains a path and a word."""
        found, me = [], os.getpid()
        needle, word_bytes = os.fsencode(path), word.encode()
        for entry in os.scandir("/proc"):
            if entry.name.isdigit() and int(entry.name) != me:
                with contextlib.suppress(OSError):
                    line = Path(entry.path, "cmdline").read_bytes()
                    if needle in line and word_bytes in line and _state(entry.path) not in "ZX":
                        found.append(int(entry.name))
        return found

    def training(self) -> list[int]:
        """Return the training processes."""
        return self.processes(self.sweep, "manyseed.orchestrator.working.process")

    def tasks(self) -> list[int]:
        """Return the processes of tasks that have training processes."""
        return sorted({p for p in map(parent, self.training()) if p > 1})

    def jobs(self, state: str = "R") -> list[str]:
        """Return SLURM's ids of the sweep's jobs in some states; none if it does not answer."""
        if not self.controller_up:
            return []
        assert self.cluster is not None
        with contextlib.suppress(RuntimeError):
            told = self.cluster.command(
                ["squeue", "-h", "-r", "-p", "cpu", "-t", state, "-o", "%i"]
            )
            return told.split()
        return []

    @property
    def controller_up(self) -> bool:
        return self.cluster is not None and self.cluster.daemons.is_alive("slurmctld")

    # what ends by itself

    def defer(self, seconds: float, what: str, action: Callable[[], object]) -> None:
        self.later.append(Later(time.monotonic() + seconds, what, action))

    def is_pending(self, what: str) -> bool:
        return any(one.what == what for one in self.later)

    def due(self, *, everything: bool = False) -> None:
        """End what is due."""
        now = time.monotonic()
        for one in sorted(self.later, key=lambda one: one.due):
            if everything or one.due <= now:
                self.later.remove(one)
                try:
                    one.action()
                except RuntimeError:  # a daemon that does not start yet
                    if one.tries == 0:
                        raise
                    self.later.append(replace(one, due=now + 2, tries=one.tries - 1))

    def calm(self) -> None:
        """End all pending faults: disks, nodes, the controller, frozen processes."""
        while self.later:
            self.due(everything=True)
        for pid in self.frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.frozen.clear()
        self._end_hosts()
        if self.cluster is not None:
            if not self.controller_up:
                self.cluster.start_controller()
            for node in ("c1", "c2", "c3"):
                if not self.cluster.daemons.is_alive(f"slurmd-{node}"):
                    self.cluster.start_node(node)

    def _end_hosts(self) -> None:
        for host in self.hosts:
            if host.poll() is None:
                host.kill()
            host.wait()
        self.hosts.clear()

    def rest(self, *, gently: bool) -> str:
        """Stop all processes of the sweep; return what does not end, empty if all does."""
        self.calm()
        if gently:
            self.run("cancel", self.sweep)
            _wait(lambda: not self.processes(self.sweep), 30)
        for _ in range(120):  # a killed node keeps its jobs for half a minute or more
            if self.cluster is not None:
                with contextlib.suppress(RuntimeError):
                    self.cluster.command(["scancel", "-u", str(os.geteuid())])
                kill(self.cluster.daemons.jobs())
            kill(self.processes(self.sweep))
            alive, jobs = self.processes(self.sweep), self.jobs("PD,R,CF,S,CG")
            if not alive and not jobs:
                return ""
            time.sleep(0.5)
        return f"processes {alive}, jobs {jobs}"

    # the disk

    def fill(self) -> None:
        """Fill the disk."""
        used = os.statvfs(self.disk)
        size = (used.f_blocks - used.f_bfree) * used.f_frsize
        _mount(["-o", f"remount,size={size}", str(self.disk)])

    def empty(self) -> None:
        _mount(["-o", f"remount,size={_DISK_BYTES}", str(self.disk)])

    def forbid(self) -> None:
        """Prevent files in the sweep directory from being created, opened for writing, or renamed.

        Open files stay open, as on a file server that becomes read-only.
        """
        if _mount(["--bind", str(self.sweep), str(self.sweep)]):
            self.is_read_only = _mount(["-o", "remount,bind,ro", str(self.sweep)])

    def allow(self) -> None:
        self.is_read_only = False
        _unmount(self.sweep)


def parent(pid: int) -> int:
    """Return the parent of a process; 0 if there is none."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _state(folder: str) -> str:
    return Path(folder, "stat").read_text().rpartition(")")[2].split()[0]


def _mount(options: list[str]) -> bool:
    return subprocess.run(["mount", *options], capture_output=True, check=False).returncode == 0


def _unmount(path: Path) -> None:
    """Unmount everything there; a bind within one disk is visible only in this list."""
    mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for _ in range(mounted.count(str(path))):
        subprocess.run(["umount", "-l", path], check=False, capture_output=True)


def _wait(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True
