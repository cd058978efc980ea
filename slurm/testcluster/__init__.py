"""A throw-away SLURM cluster of several virtual nodes on one machine, in its own folder."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from manyseed.slurm import Refused
from manyseed.slurm.commands import cleared_environment
from manyseed.slurm.processes import fingerprint, is_alive, user_name
from manyseed.slurm.profile import home, user_folder
from manyseed.slurm.testcluster.settings import NAME, Ports, Settings, write

PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"


class Daemons:
    """The daemons of a folder; each has a file ``run/<name>.process`` with its fingerprint."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._conf = f"{folder}/etc/slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the daemons, and of SLURM commands that must reach them."""
        return {**cleared_environment(), "PATH": PATH, "SLURM_CONF": self._conf}

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
            if not folder.name.isdecimal() or int(folder.name) in daemons:
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


_PACKAGES = {
    "munged": "munge",
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "sbatch": "slurm-wlm",
    "srun": "slurm-wlm",
    "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
}
_ACCOUNTING = ("slurmdbd", "mariadbd", "mariadb-install-db")
_SHUTDOWN_SECONDS = 20.0
_MAX_LENGTH = 90  # a socket's path has at most 107 characters


class MissingPackages(RuntimeError):
    """SLURM is not installed here; the text names the packages and how to install them."""


class TestCluster:
    """A cluster in its own folder: configuration, key, ports, state and logs.

    It does not touch any other SLURM on the machine.
    """

    __test__ = False  # not a test, despite its name

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.daemons = Daemons(self.folder)

    @staticmethod
    def default_folder() -> Path:
        """Return the default folder of a user's test cluster."""
        cache = os.environ.get("XDG_CACHE_HOME") or home() / ".cache"
        return Path(cache) / "manyseed" / NAME

    @staticmethod
    def registered() -> Path | None:
        """Return the folder of the cluster whose profile is registered; None if there is none."""
        link = user_folder() / f"{NAME}.toml"
        return link.readlink().parent if link.is_symlink() else None

    @staticmethod
    def has_ended() -> bool:
        """Whether a cluster is registered of which nothing runs, as after a reboot or a removal."""
        if (folder := TestCluster.registered()) is None:
            return False
        daemons = TestCluster(folder).daemons
        return not any(map(daemons.is_alive, daemons.names()))

    @property
    def conf(self) -> Path:
        """Its slurm.conf, which is all that SLURM's commands need (as SLURM_CONF)."""
        return self.folder / "etc" / "slurm.conf"

    @property
    def profile(self) -> Path:
        """Its cluster profile."""
        return self.folder / f"{NAME}.toml"

    @property
    def is_running(self) -> bool:
        """Whether its controller runs."""
        return self.daemons.is_alive("slurmctld")

    def start(self, settings: Settings | None = None, seconds: float = 60) -> None:
        """Start the cluster, and wait at most `seconds` for each part until its nodes are idle."""
        settings = settings or Settings()
        if len(str(self.folder)) > _MAX_LENGTH or " " in str(self.folder):
            allowed = f"a path without spaces, at most {_MAX_LENGTH} characters long, for sockets"
            raise Refused("folder", str(self.folder), allowed=allowed)
        check_packages(settings.accounting)
        if any(self.daemons.is_alive(name) for name in self.daemons.names()):
            raise RuntimeError(f"a test cluster is running in {self.folder}")
        for name in ("log", "run", "state", "spool", "munge"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        (self.folder / "munge").chmod(0o711)
        ports = Ports.pick(len(settings.nodes))
        write(self.folder, settings, ports)
        try:
            self._start_munge(seconds)
            if settings.accounting:
                self._start_accounting(ports, seconds)
            self.start_controller(seconds)
            for node in settings.nodes:
                self.start_node(node)
            self._wait(lambda: self._all_idle(settings), "slurmctld", seconds)
        except RuntimeError:
            self.stop()
            raise

    def require_name(self) -> None:
        """Refuse to replace a profile of this name: the user's own, or that of a running one."""
        link = user_folder() / f"{NAME}.toml"
        if link.is_symlink():
            other = TestCluster(link.readlink().parent)
            if other.folder == self.folder or not other.is_running:
                return
            reason = f"is the profile of the test cluster that runs in {other.folder}"
        elif link.exists():
            reason = "is a profile that no test cluster made"
        else:
            return
        raise Refused(str(link), NAME, reason)

    def register(self) -> None:
        """Register its profile under the name ``testcluster``."""
        self.require_name()
        link = user_folder() / f"{NAME}.toml"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(self.profile)

    def unregister(self) -> None:
        """Remove its profile's registration."""
        link = user_folder() / f"{NAME}.toml"
        if link.is_symlink() and link.readlink() == self.profile:
            link.unlink()

    def stop(self) -> None:
        """End its jobs and processes, and no others."""
        if self.is_running:
            with suppress(RuntimeError):
                self.command(["scancel", "--full", "--signal=KILL", "-u", user_name()])
            with suppress(RuntimeError):
                self.command(["scancel", "-u", user_name()])
            wait_until(lambda: not any(self.daemons.jobs()), _SHUTDOWN_SECONDS / 2)
        names = self.daemons.names()
        nodes = [name for name in names if name.startswith("slurmd-")]
        for name in (*nodes, "slurmctld", "slurmdbd", "mariadbd", "munged"):
            if name in names:
                self.daemons.stop(name, _SHUTDOWN_SECONDS)
            if name == "slurmctld":
                kill(self.daemons.jobs())

    def command(self, arguments: Sequence[str]) -> str:
        """Run a SLURM command on this cluster; return its output."""
        done = subprocess.run(
            arguments,
            env=self.daemons.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    def start_controller(self, seconds: float = 60) -> None:
        """Start slurmctld, and wait until it answers."""
        self.daemons.start("slurmctld", ["slurmctld", "-D"])
        self._wait(lambda: "is UP" in self.command(["scontrol", "ping"]), "slurmctld", seconds)

    def start_node(self, node: str) -> None:
        """Start a node's slurmd."""
        (self.folder / "spool" / node).mkdir(exist_ok=True)
        self.daemons.start(f"slurmd-{node}", ["slurmd", "-D", "-N", node])

    def kill_node(self, node: str) -> None:
        """Simulate a node's power cut: kill its slurmd and all processes of its jobs at once."""
        name = f"slurmd-{node}"
        kill([self.daemons.pid(name), *self.daemons.jobs(node)])
        self.daemons.stop(name, 0)

    def _start_munge(self, seconds: float) -> None:
        home = self.folder / "munge"
        key = home / "key"
        if not key.exists():
            key.touch(mode=0o600)
            key.write_bytes(secrets.token_bytes(1024))
        for name in ("socket", "socket.lock"):
            (home / name).unlink(missing_ok=True)
        self.daemons.start(
            "munged",
            [
                *("munged", "--foreground", "--force", f"--key-file={key}"),
                *(f"--socket={home}/socket", f"--pid-file={home}/munged.pid"),
                *(f"--log-file={self.folder}/log/munged.log", f"--seed-file={home}/seed"),
            ],
        )
        self._wait(lambda: self._works(["munge", "-n", "-S", f"{home}/socket"]), "munged", seconds)

    def _start_accounting(self, ports: Ports, seconds: float) -> None:
        data, socket = self.folder / "mysql", self.folder / "run" / "mysql.sock"
        temporary = self.folder / "tmp"  # in /tmp, databases starting together would collide
        temporary.mkdir(exist_ok=True)
        shared = ("--innodb-log-file-size=16M", f"--tmpdir={temporary}")
        if not (data / "mysql").is_dir():
            shutil.rmtree(data, ignore_errors=True)
            self.command(
                [
                    *("mariadb-install-db", "--no-defaults", f"--user={user_name()}"),
                    *(f"--datadir={data}", "--skip-test-db", "--skip-name-resolve", *shared),
                    "--auth-root-authentication-method=normal",
                ]
            )
        self.daemons.start(
            "mariadbd",
            [
                *("mariadbd", "--no-defaults", f"--user={user_name()}", f"--datadir={data}"),
                *(f"--socket={socket}", f"--pid-file={self.folder}/run/mariadbd.pid"),
                *("--bind-address=127.0.0.1", f"--port={ports.database}", "--skip-name-resolve"),
                *(*shared, "--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900"),
                *("--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0"),
                *("--performance-schema=0", "--skip-log-bin"),
            ],
        )
        sql = ["mariadb", "--no-defaults", f"--socket={socket}", "--user=root", "--execute"]
        self._wait(lambda: self._works([*sql, "select 1"]), "mariadbd", seconds)
        self.command(
            [
                *sql,
                "create database if not exists slurm; create user if not exists "
                "'slurm'@'127.0.0.1' identified by 'slurm'; "
                "grant all on slurm.* to 'slurm'@'127.0.0.1'",
            ]
        )
        self.daemons.start("slurmdbd", ["slurmdbd", "-D"])
        # accounting must know the cluster before slurmctld registers, or jobs are refused
        show = ["sacctmgr", "-nP", "show", "cluster", "format=cluster"]
        self._wait(lambda: self._works(show), "slurmdbd", seconds)
        if NAME not in self.command(show).split():
            self.command(["sacctmgr", "-i", "add", "cluster", NAME])

    def _all_idle(self, settings: Settings) -> bool:
        states = self.command(["sinfo", "-h", "-N", "-o", "%N %T"]).splitlines()
        return {line.split()[0] for line in states} == set(settings.nodes) and all(
            line.split()[1] == "idle" for line in states
        )

    def _works(self, arguments: Sequence[str]) -> bool:
        try:
            self.command(arguments)
        except RuntimeError:
            return False
        return True

    def _wait(self, condition: Callable[[], bool], daemon: str, seconds: float) -> None:
        def is_ready() -> bool:
            if not self.daemons.is_alive(daemon):
                raise RuntimeError(f"{daemon} ended\n{self._logs()}")
            with suppress(RuntimeError):
                return condition()
            return False

        if not wait_until(is_ready, seconds):
            raise RuntimeError(f"{daemon} was not ready within {seconds:g} s\n{self._logs()}")

    def _logs(self) -> str:
        logs = sorted((self.folder / "log").glob("*"))
        tails = [(log.name, log.read_text(errors="replace").splitlines()[-4:]) for log in logs]
        return "\n".join(f"{name}: {line}" for name, lines in tails for line in lines)


def check_packages(accounting: bool) -> None:
    """Raise `MissingPackages` if a program is missing."""
    programs = [name for name in _PACKAGES if accounting or name not in _ACCOUNTING]
    missing = {_PACKAGES[name] for name in programs if shutil.which(name, path=PATH) is None}
    if missing:
        packages = " ".join(sorted(missing))
        raise MissingPackages(
            f"the test cluster needs {packages}: "
            f"sudo apt-get install -y --no-install-recommends {packages}"
        )


def kill(pids: Iterable[int]) -> None:
    """Kill processes, stopping all of them first so that none can report another's end."""
    pids = list(pids)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
