"""What users' commands make of what SLURM answers, refuses and forgets; without a cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from manyseed import Sweep
from manyseed.slurm import ClusterError, commands, states
from tests.orchestrator.conftest import command, write
from tests.orchestrator.submissions.test_cluster import WINE

RUNS = 4
CONFIG = "ClusterName = lab\nMaxArraySize = 1001\nMaxJobCount = 1000\n"


class Lab:
    """SLURM's commands as one function: it takes arrays, and lists the states that it is given."""

    def __init__(self) -> None:
        self.arrays: list[tuple[str, int]] = []
        self.states: dict[str, str] = {}
        self.refuses: dict[str, str] = {}

    def run(self, words: list[str]) -> str:
        kind = "show job" if "job" in words else words[0]
        if kind in self.refuses:
            raise ClusterError(self.refuses[kind])
        if kind == "sbatch":
            text = Path(words[1]).read_text()
            name, last = re.search(r"--job-name=(\S+)", text), re.search(r"--array=0-(\d+)", text)
            assert name
            assert last
            self.arrays.append((name[1], int(last[1]) + 1))
            return f"Submitted batch job {len(self.arrays)}\n"
        if kind == "squeue":
            rows = ((*job.split("_"), state) for job, state in self.states.items())
            return "".join(f"{a}|{n}|{s}|None|n1|N/A|{self._name(a)}\n" for a, n, s in rows)
        if kind == "show job":
            a = words[-1]
            shown = f"ArrayJobId={a} ArrayTaskId=0-{RUNS - 1} JobName={self._name(a)}"
            return f"JobId=99 {shown} JobState=RUNNING Reason=None NodeList=n1\n"
        if kind == "sinfo":
            return "cpu*|up|infinite|infinite|1|1|4000|(null)\n"
        return CONFIG if kind == "scontrol" else ""

    def _name(self, array: str) -> str:
        return self.arrays[int(array) - 1][0]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A cluster whose commands this process calls, and its profile ``lab.toml``."""
    lab = Lab()
    monkeypatch.setattr(commands, "run", lab.run)
    monkeypatch.setattr(states, "_named", set())
    monkeypatch.setattr("manyseed.orchestrator.submissions.cluster._LEAST_SECONDS", 1e-9)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("sbatch", "srun"):
        write(tmp_path / name, "#!/bin/sh\n").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    write(tmp_path / "lab.toml", 'time = "0:10:00"\nmem = "1G"\n[cpu]\ncpus-per-task = 1\n')
    return lab


@pytest.fixture
def sweep(lab: Lab, tmp_path: Path) -> Sweep:
    """A sweep whose runs are the cluster's, one in each of an array's jobs."""
    sweep = Sweep.plan(write(tmp_path / "wine.toml", WINE), tmp_path / "sweep")
    sweep.submit(cluster=str(tmp_path / "lab.toml"))
    assert [n for _, n in lab.arrays] == [RUNS]
    return sweep


def test_where_accounting_refuses_a_resume_goes_by_squeue(lab: Lab, sweep: Sweep) -> None:
    lab.refuses = {"sacct": "slurmdbd: Unknown error 1021"}
    lab.refuses["show job"] = "slurm_load_jobs error: Invalid job id specified"
    lab.states = {f"1_{n}": "RUNNING" for n in range(1, RUNS)}  # one has ended
    resumed = command("resume", sweep.directory)
    assert resumed.returncode == 0, resumed.stderr
    told = "Accounting does not answer (slurmdbd: Unknown error 1021): what follows is by squeue.\n"
    assert resumed.stderr.startswith(told)
    assert resumed.stderr.count("Accounting") == 1
    assert [n for _, n in lab.arrays] == [RUNS, 1]
    lab.states |= {"2_0": "PENDING"}
    shown = command("status", sweep.directory)
    assert shown.returncode == 3, shown.output
    assert "Accounting" not in shown.stderr, "the same process"


def test_nothing_is_submitted_again_unless_the_controller_has_forgotten_it(
    lab: Lab, sweep: Sweep
) -> None:
    """squeue lists nothing, for whatever reason, and accounting is late."""
    resumed = command("resume", sweep.directory)
    assert "all missing runs are waiting or being trained" in resumed.output
    lab.refuses = {"show job": "slurm_load_jobs error: Access/permission denied"}
    resumed = command("resume", sweep.directory)
    assert resumed.returncode == 4, resumed.output
    assert "permission denied" in resumed.stderr
    assert len(lab.arrays) == 1
    lab.refuses = {"show job": "slurm_load_jobs error: Invalid job id specified"}
    resumed = command("resume", sweep.directory)
    assert resumed.returncode == 0, resumed.output
    assert [n for _, n in lab.arrays] == [RUNS, RUNS]


def test_a_word_that_slurm_invents_is_said_once_and_plainly(lab: Lab, sweep: Sweep) -> None:
    lab.states = {f"1_{n}": "DREAMING" for n in range(RUNS)}
    told = "SLURM says 'DREAMING' for the state of a job, which is not understood.\n"
    for said in (told, ""):  # the same process
        shown = command("status", sweep.directory, "--json")
        assert (shown.returncode, shown.stderr) == (3, said)


def test_a_sweep_whose_folder_slurm_would_take_for_another_is_refused(
    lab: Lab, tmp_path: Path
) -> None:
    (tmp_path / "a%jb").mkdir()
    profile = tmp_path / "lab.toml"
    sweep = Sweep.plan(write(tmp_path / "wine.toml", WINE), tmp_path / "a%jb" / "sweep")
    for verb in ("submit", "resume"):
        done = command(verb, sweep.directory, "--cluster", profile)
        assert done.returncode == 2, done.output
        assert f"{sweep.directory}/" in done.stderr
        assert "SLURM takes %j in it for something else" in done.stderr
        assert "rename the folder" in done.stderr
    assert list(sweep.paths.submissions()) == []
    checked = command("cluster", "check", profile, "--dir", tmp_path / "a%jb")
    assert checked.returncode == 4, checked.output
    assert "SLURM takes %j in it" in checked.stdout
    assert lab.arrays == []
