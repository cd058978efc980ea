"""What all tests share: signals as in a terminal, and a real SLURM.

SLURM is started once for each process of the test run that needs it.
"""

from __future__ import annotations

import os
import signal
import sys

# before any library reads them: training processes have one thread, and tests train in their own
os.environ.update({f"{one}_NUM_THREADS": "1" for one in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")})
os.environ.setdefault("POLARS_MAX_THREADS", "1")  # small tables: handing them on costs more

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import tests
from manyseed.slurm import states
from manyseed.slurm.testcluster import Settings, TestCluster
from tests import cluster as clusters
from tests import here
from tests.cluster import CORES, MAX_ARRAY_SIZE, Slurm

_ROOT = Path(__file__).parent.parent

# a machine that is busy is no fault of what is tested
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


@pytest.fixture(scope="session", autouse=True)
def _one_name() -> Iterator[None]:
    """Tests run where the packages lie, and could import one under two names."""
    yield
    folders = {"orchestrator", "jobs", "analysis", "slurm"}
    assert not {name.partition(".")[0] for name in sys.modules} & folders


@pytest.fixture(scope="session", autouse=True)
def _own_data(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep prepared data apart from the user's, and from those of earlier runs of the tests."""
    os.environ["MANYSEED_DATA"] = str(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test hear what a process says once."""
    monkeypatch.setattr(states, "_named", set())


@pytest.fixture(autouse=True)
def _processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Start real processes for tests marked ``process``."""
    if request.node.get_closest_marker("process"):
        with here.real_processes():
            yield
    else:
        yield


def pytest_configure() -> None:
    """Hear signals as in a terminal.

    A shell's background jobs ignore Ctrl-C, those of nohup a hangup, and so would all that tests
    start. The tests themselves go on after a hangup that they were to ignore.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)
    here.install()


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Below the slowest tests (``--durations``), say what each folder's tests take in all."""
    if terminalreporter.config.option.durations is None:
        return
    taken: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):  # of setup, test and teardown
                taken[report.nodeid.partition("::")[0].rpartition("/")[0]] += report.duration
    terminalreporter.write_sep("=", "seconds by folder, summed over processes")
    for folder, seconds in taken.most_common():
        terminalreporter.write_line(f"{seconds:8.2f}s {folder}")


def pytest_collection_finish() -> None:
    """Write bytecode as before."""
    sys.dont_write_bytecode = tests.WRITES_NO_BYTECODE


@pytest.fixture(scope="session")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    """A cluster with accounting, for all tests; use `slurm`."""
    yield from _running(tmp_path_factory, Settings(max_array_size=MAX_ARRAY_SIZE))


@pytest.fixture(scope="session")
def slurm_cluster_without_accounting(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[TestCluster]:
    """A cluster without accounting; use `slurm_without_accounting`."""
    settings = Settings(
        cpu_nodes=2, gpu_nodes=0, cores=CORES, max_array_size=MAX_ARRAY_SIZE, accounting=False
    )
    yield from _running(tmp_path_factory, settings)


@pytest.fixture
def slurm(
    slurm_cluster: TestCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Slurm]:
    """The cluster, with SLURM's commands speaking to it; no job is left when the test ends."""
    yield from _used(slurm_cluster, tmp_path, monkeypatch)


@pytest.fixture
def slurm_without_accounting(
    slurm_cluster_without_accounting: TestCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Slurm]:
    """The same without accounting."""
    yield from _used(slurm_cluster_without_accounting, tmp_path, monkeypatch)


def _running(factory: pytest.TempPathFactory, settings: Settings) -> Iterator[TestCluster]:
    cluster = clusters.start(factory.mktemp("slurm"), settings)
    yield cluster
    cluster.stop()


def _used(cluster: TestCluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    path = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    used = Slurm(cluster, folder / "jobs")
    yield used
    used.cancel_all()
