"""``manyseed testcluster`` and ``manyseed cluster``, as a user gives them."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from manyseed.orchestrator.cli.clusters import _rows_of_nodes
from manyseed.orchestrator.submissions import nodecheck
from manyseed.orchestrator.submissions.nodecheck import CheckResult, Seen, _findings
from manyseed.orchestrator.sweep import Sweep
from manyseed.slurm import testcluster
from manyseed.slurm.discover import Cluster, Limits, Partition, discover
from manyseed.slurm.processes import fingerprint
from manyseed.slurm.profile import read_profile, user_folder
from manyseed.slurm.states import JobState
from manyseed.slurm.testcluster import MissingPackages, Settings, TestCluster
from tests.cluster import Slurm, start
from tests.orchestrator.conftest import QUICK, command, inside, write


def test_a_test_cluster_comes_and_goes_without_a_trace(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del slurm  # it is there to be left alone
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("SLURM_CONF")
    folder = ["--dir", tmp_path / "tc"]
    assert "No test cluster is running" in command("testcluster", "status", *folder).stdout
    small = ["--cpu-nodes", 1, "--gpu-nodes", 1, "--no-accounting"]
    started = command("testcluster", "start", *folder, *small)
    assert started.returncode == 0, started.stderr
    cluster = TestCluster(tmp_path / "tc")
    try:
        shown = json.loads(command("testcluster", "status", *folder, "--json").stdout)
        assert shown["running"]
        assert shown["partitions"] == ["cpu", "gpu", "urgent"]
        states = {node["node"]: (node["state"], node["gpus"]) for node in shown["nodes"]}
        assert states == {"c1": ("idle", 0), "g1": ("idle", 2)}
        assert read_profile(user_folder() / "testcluster.toml").slurm_conf == cluster.conf
        found = json.loads(command("cluster", "test", "status", "--json").stdout)
        assert found == shown, "the one that runs is found without --dir"
        again = command("testcluster", "start", *folder)
        assert again.returncode == 4
        assert "running" in again.stderr
        names = cluster.daemons.names()
        assert {"munged", "slurmctld", "slurmd-c1", "slurmd-g1"} == set(names)
    finally:
        stopped = command("cluster", "test", "stop")
        cluster.stop()
    assert "Stopped" in stopped.stdout
    assert cluster.daemons.names() == []
    assert not list(cluster.daemons.jobs())
    assert not (user_folder() / "testcluster.toml").is_symlink()
    gone = command("cluster", "check", "testcluster", cwd=tmp_path)
    assert gone.returncode == 2
    assert "manyseed cluster test start" in gone.stderr


@pytest.mark.parametrize(
    ("error", "gpus", "remedy"),
    [
        ("AssertionError: Torch not compiled with CUDA enabled", 1, "install one with CUDA"),
        ("RuntimeError: No CUDA GPUs are available", 0, "see gres of"),
        ("RuntimeError: driver too old", 1, "see nvidia-smi"),
    ],
)
def test_a_gpu_that_fails_comes_with_a_remedy(error: str, gpus: int, remedy: str) -> None:
    profile = read_profile(Path(__file__).parents[3] / "examples" / "clusters" / "gpu.toml")
    assert profile.gpu is not None
    seen = Seen("g1", 4, gpus, {}, error, "", requeued=True)
    done = JobState("1", "check", "finished")
    (found,) = (one for one in _findings("gpu job", done, seen, profile.gpu, "") if one.problem)
    assert found.problem.startswith(error)
    assert remedy in found.problem
    # [gpu] may be there because `cluster init` wrote it
    assert found.needed == ("not compiled" not in error)
    assert found.needed == ("only runs on GPUs need it" not in found.problem)


def test_a_pytorch_for_cpus_on_gpu_nodes_fails_no_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "lab.toml", 'time = "10"\n[gpu]\ngres = "gpu:1"\n')
    for needed, code in ((False, 0), (True, 4)):
        found = [CheckResult("GPU", "failed", "a PyTorch for CPUs", needed=needed)]
        monkeypatch.setattr(nodecheck, "check", lambda *_, found=found: found)
        assert inside("cluster", "check", file) == (code, "✗ GPU: failed\n  a PyTorch for CPUs\n")


def test_a_profile_is_written_from_what_slurm_has(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    file = tmp_path / "mine.toml"
    made = command("cluster", "init", "--out", file)
    assert made.returncode == 0, made.stderr
    profile = read_profile(file)
    assert profile.slurm_conf == slurm.cluster.conf, "another shell reaches the same cluster"
    assert profile.cpu.options["partition"] == "cpu"
    assert (profile.cpu.minutes, profile.cpu.cores) == (240, 8)
    assert profile.resources("gpu").options["gres"] == "gpu:1"
    # 16,000 MB and 8 cores a node: 8 × 2G would be refused
    assert profile.cpu.options["mem-per-cpu"] == "2000M"
    slurm.wait_for(slurm.submit("environment", [str(tmp_path / "x")], profile=profile), "ended")
    assert "# Partitions:" in file.read_text()
    file.write_text("# edited\n")
    again = command("cluster", "init", "--out", file)
    assert again.returncode == 2
    assert "manyseed cluster init NAME" in again.stderr
    assert file.read_text() == "# edited\n"
    assert command("cluster", "init").returncode == 0
    named = user_folder() / "my-testcluster.toml"
    assert tomllib.loads(named.read_text())["cpu"]["partition"] == "cpu"
    kept = command("cluster", "init", "testcluster")
    assert kept.returncode == 2
    assert "manyseed cluster init my-testcluster" in kept.stderr


def test_a_profile_of_ones_own_is_written_beside_that_of_the_test_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    cpu = Partition("cpu", True, True, 240, None, 3, 8, 16000, "")
    found = Cluster("testcluster", "22.05.8", 64, 500, Limits(), True, (cpu,))
    monkeypatch.setattr("manyseed.slurm.discover.discover", lambda: found)
    user_folder().mkdir(parents=True)
    profile = write(user_folder() / "testcluster.toml", "# the test cluster's\n")
    code, said = inside("cluster", "init")
    assert (code, "Next: manyseed cluster check my-testcluster" in said) == (0, True), said
    assert read_profile(profile.with_name("my-testcluster.toml")).cpu.cores == 8
    assert profile.read_text() == "# the test cluster's\n"


def test_a_test_cluster_replaces_no_profile_that_another_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    named = user_folder() / "testcluster.toml"
    named.parent.mkdir(parents=True)
    named.write_text('time = "10"\n')
    start = ("cluster", "test", "start", "--dir", tmp_path / "tc")
    done = command(*start)
    assert done.returncode == 2
    assert str(named) in done.stderr
    assert named.read_text() == 'time = "10"\n'
    assert not (tmp_path / "tc").exists()
    assert "cluster test stop" not in done.stderr
    renaming = done.stderr.partition("rename it: ")[2]
    assert subprocess.run(["bash", "-c", renaming], check=False).returncode == 0
    assert named.with_name("my-testcluster.toml").read_text() == 'time = "10"\n'
    named.symlink_to(tmp_path / "other" / "testcluster.toml")
    with monkeypatch.context() as patch:
        patch.setattr(TestCluster, "is_running", True)
        done = command(*start)
    assert done.returncode == 2
    assert f"cluster test stop --dir {tmp_path / 'other'}" in done.stderr
    TestCluster(tmp_path / "tc").register()  # the other does not run
    assert named.readlink() == tmp_path / "tc" / "testcluster.toml"


def test_a_test_cluster_without_its_controller_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "run").mkdir()
    for name, process in (("slurmctld", "1 1 gone"), ("slurmd-c1", fingerprint(os.getpid()))):
        (tmp_path / "run" / f"{name}.process").write_text(process)
    shown = command("cluster", "test", "status", "--dir", tmp_path).stdout
    assert shown.splitlines() == [
        f"The controller of the test cluster in {tmp_path} (slurmctld) has ended.",
        "Still running: slurmd-c1.",
        f"End it: manyseed cluster test stop --dir {tmp_path}",
    ]


def test_nodes_are_read_as_slurm_shortens_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site's own line, cores in thousands, GPUs of several kinds or without a number."""
    lines = """welcome | to this | site
c1|cpu|idle|2K|(null)|16000+|none
c1|urgent|idle|2K|(null)|16000+|none
g1|gpu|drained|8|gpu|16000|bad | fan
g2|gpu|idle|many|gpu:a100:4(S:0-1),gpu:a40:2|16000|none"""
    monkeypatch.setattr(TestCluster, "is_running", True)
    monkeypatch.setattr(TestCluster, "command", lambda *_: lines)
    shown = command("testcluster", "status", "--dir", tmp_path, "--json")
    columns = ("node", "partitions", "cores", "gpus", "memory_mb", "reason")
    assert [tuple(node[c] for c in columns) for node in json.loads(shown.stdout)["nodes"]] == [
        ("c1", "cpu,urgent", 2048, 0, 16000, ""),
        ("g1", "gpu", 8, 1, 16000, "bad | fan"),
        ("g2", "gpu", 0, 6, 16000, ""),
    ]
    assert "'many' for the number of CPUs" in shown.stderr


@pytest.mark.slow
def test_limits_of_accounting_are_written_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's account allows three jobs at once, a QOS two."""
    monkeypatch.setattr("manyseed.orchestrator.submissions.cluster._LEAST_SECONDS", 0.2)
    cluster = start(tmp_path / "tc", Settings(cpu_nodes=1, gpu_nodes=0))
    try:
        monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
        user = getpass.getuser()
        for change in (
            ["add", "qos", "narrow", "MaxSubmitJobsPerUser=2"],
            ["add", "account", "faculty"],
            ["add", "account", "lab", "parent=faculty"],
            ["add", "user", user, "account=lab", "MaxSubmitJobs=3", "qos=normal,narrow"],
            ["modify", "user", user, "set", "DefaultAccount=lab"],
        ):
            cluster.command(["sacctmgr", "-i", *change])
        assert discover().limits == Limits(), "nothing is enforced"
        cluster.daemons.stop("slurmctld", 20)
        with cluster.conf.open("a") as conf:
            conf.write("AccountingStorageEnforce=associations,limits,qos\n")
        cluster.start_controller()

        file = tmp_path / "written.toml"
        made = command("cluster", "init", "--out", file)
        assert made.returncode == 0, made.stderr
        assert read_profile(file).cpu.max_jobs == 3
        assert discover().max_submit_jobs({"qos": "narrow"}) == 2

        sweep = Sweep.plan(write(tmp_path / "quick.toml", QUICK), tmp_path / "sweep")
        text = 'time = "10"\nbegin = "now+1hour"\nparallelism = 9\n'
        for qos, allowed in (("normal", 3), ("narrow", 2)):
            profile = write(tmp_path / f"{qos}.toml", f'{text}qos = "{qos}"\n')
            submission = sweep.submit(cluster=str(profile))
            assert submission is not None
            assert submission.intent.tasks == allowed
            assert sweep.cancel() == (0, allowed)

        for account, most in (("lab", 2), ("faculty", 1)):
            change = ["modify", "account", account, "set", f"GrpSubmitJobs={most}"]
            cluster.command(["sacctmgr", "-i", *change])
            assert discover().max_submit_jobs({}) == most
    finally:
        cluster.stop()


@pytest.mark.slow
def test_a_check_says_what_works_on_a_node(slurm: Slurm, tmp_path: Path) -> None:
    done = command("cluster", "check", slurm.cluster.profile, "--json", cwd=tmp_path)
    findings = {f["what"]: f for f in json.loads(done.stdout)["findings"]}
    assert findings["accounting"]["answer"] == "answers"
    assert findings["imports"]["answer"] == "work"
    assert findings["submits from a job"]["answer"] == "yes"
    assert findings["requeues"]["answer"] == "yes"
    # its GPUs are SLURM's dream: torch sees none
    assert findings["gpu job"]["answer"].endswith("2 cores and a GPU")
    assert findings["GPU"]["problem"] != ""
    is_cpu_build = "+cpu" in version("torch")  # then only runs on GPUs lack it
    assert findings["GPU"]["needed"] is not is_cpu_build
    assert done.returncode == (0 if is_cpu_build else 4)
    assert not list(tmp_path.glob(".manyseed-check-*"))


def test_a_check_names_what_keeps_python_from_starting(slurm: Slurm, tmp_path: Path) -> None:
    text = slurm.cluster.profile.read_text().partition("[gpu]")[0]
    profile = tmp_path / "broken.toml"
    profile.write_text(f'python = "/no/such/python"\n{text}')
    done = command("cluster", "check", profile, cwd=tmp_path)
    assert done.returncode == 4
    assert "never started Python" in done.stdout
    assert "/no/such/python" in done.stdout


def test_a_check_names_lines_of_setup_that_fail_and_let_python_start(
    slurm: Slurm, tmp_path: Path
) -> None:
    """Bash goes on after them; so do lines that fail in a function, a file, or a condition."""
    text = slurm.cluster.profile.read_text().partition("[gpu]")[0]
    sourced = write(tmp_path / "sourced.sh", "false\ntrue\n")
    file = write(tmp_path / "setup.sh", "no_such_command --here\nexport A=1\n")
    lines = [
        "source /nowhere/bin/activate",
        "module() { false; echo no such module >&2; return 1; }",
        "module load nosuch",
        "[ -d /nowhere ] && echo there",
        "if false; then\n  echo never\nfi",
        f"source {sourced}",
        "test -d /nowhere",
    ]
    profile = tmp_path / "odd.toml"
    profile.write_text(f"setup-file = {json.dumps(str(file))}\nsetup = {json.dumps(lines)}\n{text}")
    done = command("cluster", "check", profile, "--json", cwd=tmp_path)
    found = json.loads(done.stdout)["findings"]
    assert [one["problem"] for one in found if one["what"] == "setup"] == [
        f"no_such_command --here\n{file}: line 1: no_such_command: command not found",
        "source /nowhere/bin/activate\n/nowhere/bin/activate: No such file or directory",
        "module load nosuch\nno such module",
        "test -d /nowhere\nexit code 1",
    ]
    assert (done.returncode, {one["what"]: one["answer"] for one in found}["imports"]) == (
        4,
        "work",
    )
    profile.write_text(f"setup = ['exit 1']\n{text}")
    done = command("cluster", "check", profile, cwd=tmp_path)
    assert "it printed nothing" in " ".join(done.stdout.split())
    assert "its log ends" not in done.stdout


def test_what_slurm_refuses_is_said_in_its_words(slurm: Slurm, tmp_path: Path) -> None:
    profile = tmp_path / "refused.toml"
    profile.write_text('time = "10"\npartition = "nowhere"\n')
    done = command("cluster", "check", profile, cwd=tmp_path)
    assert done.returncode == 4
    assert "invalid partition" in done.stdout
    assert not list(tmp_path.glob(".manyseed-check-*"))
    del slurm


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testcluster, "PATH", str(tmp_path))
    with pytest.raises(MissingPackages, match=r"apt-get install .* mariadb-server munge slurm-wlm"):
        TestCluster(tmp_path / "tc").start()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="apt-get install"):
        start(tmp_path / "tc", Settings())
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="apt-get install"):
        start(tmp_path / "tc", Settings())


def test_a_folder_that_sockets_cannot_have_is_refused(tmp_path: Path) -> None:
    done = command("testcluster", "start", "--dir", tmp_path / "a folder")
    assert done.returncode == 2
    assert "without spaces" in done.stderr


def test_a_nodes_partitions_are_shown_in_one_order_whatever_sinfo_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["c1|cpu|idle|8|(null)|16000|none", "c1|urgent|idle|8|(null)|16000|none"]
    for printed in (lines, lines[::-1]):
        text = "\n".join(printed)
        monkeypatch.setattr(TestCluster, "command", lambda _self, _call, text=text: text)
        [row] = _rows_of_nodes(TestCluster(tmp_path))
        assert row[:2] == ("c1", "cpu,urgent")
