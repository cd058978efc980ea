"""Daemons that outlive the command that started them, and are stopped by name."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from manyseed.slurm.processes import fingerprint, is_alive

PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"


class Daemons:
    """The daemons of a folder; each has a file ``run/<name>.process`` with its fingerprint."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._conf = f"{folder}/etc/slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the daemons, and of SLURM commands that must reach them."""
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SRUN", "SBATCH"))
        }
        return {**kept, "PATH": PATH, "SLURM_CONF": self._conf}

    def start(self, name: str, command: Sequence[str]) -> None:
        """Start a daemon in its own session."""
        (self._folder / "run").mkdir(exist_ok=True)
        with (self._folder / "log" / f"{name}.out").open("ab") as log:
            process = subprocess.Popen(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
            )
        self._file(name).write_text(fingerprint(process.pid))

    def names(self) -> list[str]:
        """Return the names of daemons that were started and not stopped."""
        return sorted(file.stem for file in (self._folder / "run").glob("*.process"))

    def is_alive(self, name: str) -> bool:
        """Whether a daemon runs."""
        file = self._file(name)
        return file.exists() and is_alive(file.read_text())

    def pid(self, name: str) -> int:
        """Return a daemon's process id."""
        return int(self._file(name).read_text().split()[2])

    def stop(self, name: str, seconds: float, number: int = signal.SIGTERM) -> None:
        """Stop a daemon, by force after `seconds`."""
        if self.is_alive(name):
            os.kill(self.pid(name), number)
            if not wait_until(lambda: not self.is_alive(name), seconds):
                os.kill(self.pid(name), signal.SIGKILL)
        self._file(name).unlink(missing_ok=True)

    def jobs(self, node: str | None = None) -> Iterator[int]:
        """Yield the processes (steps and tasks) of this cluster's jobs, on one node or all."""
        daemons = {self.pid(name) for name in self.names()}
        ours = f"SLURM_CONF={self._conf}".encode()
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit() or int(folder.name) in daemons:
                continue
            with suppress(OSError):
                values = (folder / "environ").read_bytes().split(b"\0")
                job_node = self._node(folder, values) if ours in values else None
                if job_node is not None and node in (None, job_node):
                    yield int(folder.name)

    def _node(self, process: Path, environment: list[bytes]) -> str | None:
        """Return the node of a job's process; None for other processes."""
        if (process / "comm").read_text().strip() != "slurmstepd":
            names = (v for v in environment if v.startswith(b"SLURMD_NODENAME="))
            return next((v.partition(b"=")[2].decode() for v in names), None)
        # a step's environment does not name its node, but its open log file does
        log = f"{self._folder}/log/slurmd-"
        files = (str(link.readlink()) for link in (process / "fd").iterdir())
        logs = (file for file in files if file.startswith(log))
        return next((file.removeprefix(log).removesuffix(".log") for file in logs), "")

    def _file(self, name: str) -> Path:
        return self._folder / "run" / f"{name}.process"


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for a condition; return whether it became true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.03)
    return True
