"""Arrays, states and control on a real SLURM."""

from __future__ import annotations

import dataclasses
import getpass
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from manyseed.slurm import ClusterError, ClusterUnavailable, commands, states
from manyseed.slurm.discover import discover
from manyseed.slurm.profile import Profile, read_profile
from tests.cluster import MAX_ARRAY_SIZE, Slurm, wait_until

N = MAX_ARRAY_SIZE + 2


def test_arrays_beyond_the_limit_are_cut_and_found_again_by_name(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as within a job of somebody's, on a site whose commands talk
    for name, value in {
        "JOB_ID": "1",
        "ARRAY_TASK_ID": "3",
        "CPU_BIND": "quiet",
        "MEM": "1",
    }.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    calls = talkative(tmp_path / "bin", monkeypatch)
    jobs = slurm.submit("environment", *([str(tmp_path / f"{i}.json")] for i in range(N)))
    assert [job.partition("_")[2] for job in jobs] == [*map(str, range(MAX_ARRAY_SIZE)), "0", "1"]
    slurm.wait_for(jobs, "ended")
    seen = [json.loads((tmp_path / f"{i}.json").read_text()) for i in range(N)]
    for job, values in zip(jobs, seen, strict=True):
        assert f"{values['SLURM_ARRAY_JOB_ID']}_{values['SLURM_ARRAY_TASK_ID']}" == job
        assert values["SLURM_CPUS_PER_TASK"] == "2"
        assert values["PYTHONSAFEPATH"] == "1"
        assert "CUDA_VISIBLE_DEVICES" not in values

    codes = lambda: {state.exit_code for state in slurm.ask(jobs).values()}  # noqa: E731
    wait_until(lambda: codes() == {"0:0"}, "accounting to hear of the end")
    calls.write_text("")
    slurm.ask(jobs)
    assert sorted(calls.read_text().split()) == ["sacct", "squeue"], "once each, whatever the size"
    found = find(slurm, slurm.name)
    assert {job: state.index for job, state in found.items()} == {j: i for i, j in enumerate(jobs)}
    assert find(slurm, slurm.name[:-1]) == {}


def test_gpu_tasks_see_the_gpu_that_they_were_given(slurm: Slurm, tmp_path: Path) -> None:
    slurm.folder = tmp_path / "90% of it's [1]"  # whose logs are there all the same
    jobs = slurm.submit("environment", [str(tmp_path / "seen.json")], resource_class="gpu")
    slurm.wait_for(jobs, "ended")
    assert {log.name for log in slurm.folder.glob("*_log.*")} >= {f"{jobs[0]}_0_log.out"}
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["CUDA_VISIBLE_DEVICES"] in ("0", "1")
    assert seen["SLURMD_NODENAME"].startswith("g")


def test_a_whole_node_is_set_up_as_the_profile_says(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASH_FUNC_module%%", '() {  export TEST_MODULES="$*"\n}')
    profile = tmp_path / "whole.toml"
    profile.write_text(
        f'''slurm-conf = "{slurm.cluster.conf}"
        time = "10"
        whole-node = true
        modules = ["gcc/12", "python"]
        setup = ["export TEST_SETUP='two words'"]
        container = "env TEST_CONTAINER=1"
        python = "{sys.executable} -B"
        extra = {{ nodelist = "c2" }}
        '''
    )
    seen = tmp_path / "seen.json"
    slurm.wait_for(slurm.submit("environment", [str(seen)], profile=read_profile(profile)), "ended")
    values = json.loads(seen.read_text())
    assert values["SLURM_CPUS_ON_NODE"] == "8"
    assert (values["TEST_MODULES"], values["TEST_SETUP"]) == ("load gcc/12 python", "two words")
    assert (values["TEST_CONTAINER"], values["SLURMD_NODENAME"]) == ("1", "c2")


def test_a_task_that_is_asked_to_end_does_so_in_order_and_goes_on(
    slurm: Slurm, tmp_path: Path
) -> None:
    logs = [tmp_path / f"{index}.txt" for index in range(3)]
    jobs = slurm.submit("work", *([str(log), "30"] for log in logs))
    wait_until(lambda: all(log.exists() and "step" in log.read_text() for log in logs), slurm.logs)
    send("USR2", jobs[:1])  # what SLURM sends before the walltime
    send("TERM", jobs[1:2])  # what it sends at preemption, where a site enables nothing more
    commands.requeue(jobs[2:])
    slurm.wait_for(jobs, "ended")
    for log in logs:
        lives = [line.split()[0] for line in log.read_text().splitlines() if line != "step"]
        assert lives == ["life", "stopped", "life", "finished"]


def test_a_cancelled_task_ends_in_order_and_never_comes_back(slurm: Slurm, tmp_path: Path) -> None:
    logs = [tmp_path / f"{index}.txt" for index in range(3)]
    jobs = slurm.submit("work", *([str(log), "5000"] for log in logs), parallelism=2)
    slurm.wait_for(jobs[:2], "running")
    assert slurm.ask(jobs)[jobs[2]].state == "pending"
    commands.set_parallelism(jobs, 3)
    wait_until(lambda: all(log.exists() for log in logs), slurm.logs)
    commands.cancel(jobs)
    slurm.wait_for(jobs, "cancelled")
    for log in logs:
        wait_until(lambda log=log: "stopped" in log.read_text(), slurm.logs)
        assert log.read_text().count("life") == 1
    commands.cancel(jobs)  # no error when it is over
    commands.cancel(["999999_0"])


def test_an_array_cancelled_in_pieces_is_known_whatever_the_list_looks_like(
    slurm: Slurm,
) -> None:
    later = with_options(slurm.profile, begin="now+1hour")
    jobs = slurm.submit("fail", *([""] for _ in range(MAX_ARRAY_SIZE)), profile=later)
    for job in jobs[1::2]:
        commands.cancel([job])
    commands.cancel(jobs)
    slurm.wait_for(jobs[::2], "cancelled")
    assert {state.state for state in slurm.ask(jobs).values()} <= {"cancelled", "gone"}


def test_what_users_set_for_their_own_commands_hides_nothing_of_ours(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = discover()
    jobs = slurm.submit("work", [str(tmp_path / "log.txt"), "5000"])
    slurm.wait_for(jobs, "running")
    with monkeypatch.context() as users:
        for name, value in {
            "SQUEUE_PARTITION": "gpu",
            "SQUEUE_USERS": "nobody",
            "SQUEUE_ACCOUNT": "other",
            "SQUEUE_NAMES": "other",
            "SQUEUE_QOS": "other",
            "SQUEUE_STATES": "COMPLETED",
            "SQUEUE_FORMAT": "%i",
            "SACCT_FORMAT": "JobID",
            "SINFO_FORMAT": "%n",
            "SINFO_PARTITION": "gpu",
        }.items():
            users.setenv(name, value)
        assert slurm.ask(jobs)[jobs[0]].state == "running"
        assert find(slurm, slurm.name).keys() == {*jobs}
        assert discover() == before


def test_jobs_that_are_listed_nowhere_are_looked_up_by_their_id(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = [str(tmp_path / "log.txt"), "5000"]
    jobs = slurm.submit("work", log, log, log, parallelism=1)
    slurm.wait_for(jobs[:1], "running")
    run = states.commands.run
    silent = ("squeue", "sacct")  # as on sites that filter what these commands show
    monkeypatch.setattr(
        states.commands, "run", lambda words: "" if words[0] in silent else run(words)
    )
    assert {state.state for state in slurm.ask([*jobs, "999_0"]).values()} == {"gone"}
    found = states.ask([*jobs, "999_0"], slurm.started, certain=True)
    assert [found[job].state for job in jobs] == ["running", "pending", "pending"]
    assert found["999_0"].state == "gone"
    assert {found[job].submission for job in jobs} == {slurm.name}


def test_a_job_that_starts_without_an_environment_gives_its_task_what_setup_exports(
    slurm: Slurm, tmp_path: Path
) -> None:
    """Many sites ask for ``--export=NONE``, which srun would obey as well."""
    (tmp_path / "mine.sh").write_text("export TEST_SETUP=1\n")
    profile = tmp_path / "none.toml"
    profile.write_text(
        f'''slurm-conf = "{slurm.cluster.conf}"
        time = "10"
        setup = ["export PYTHONPATH={os.environ["PYTHONPATH"]}"]
        setup-file = "{tmp_path}/mine.sh"
        extra = {{ export = "NONE" }}
        '''
    )
    seen = tmp_path / "seen.json"
    slurm.wait_for(slurm.submit("environment", [str(seen)], profile=read_profile(profile)), "ended")
    assert json.loads(seen.read_text())["TEST_SETUP"] == "1"


def test_what_is_cancelled_before_it_starts_is_told_as_that(slurm: Slurm) -> None:
    later = with_options(slurm.profile, begin="now+1hour")
    jobs = slurm.submit("fail", [""], [""], profile=later)
    commands.cancel(jobs)
    slurm.wait_for(jobs, "cancelled")  # accounting hears of it a moment later
    assert find(slurm, slurm.name) == {}, "their line names none of them"


def test_held_tasks_wait_until_they_are_released(slurm: Slurm, tmp_path: Path) -> None:
    log = [str(tmp_path / "log.txt"), "1"]
    jobs = slurm.submit("work", log, log, log, parallelism=1)
    commands.hold(jobs[1:])
    commands.exclude_nodes(jobs[1:], ["c1", "c2"])
    slurm.wait_for(jobs[:1], "ended")
    assert {slurm.ask(jobs)[job].state for job in jobs[1:]} == {"pending"}
    commands.release(jobs[1:])
    slurm.wait_for(jobs, "ended")
    lives = [line for line in Path(log[0]).read_text().splitlines() if line.startswith("life")]
    assert lives[1:] == ["life on c3", "life on c3"]


def test_how_tasks_fail_is_known(slurm: Slurm) -> None:
    small = slurm.profile.with_memory("300M")
    eater = slurm.submit("eat", ["1000"], profile=small, name="eater")
    failed = slurm.submit("fail", ["on purpose"], name="failed")
    slurm.wait_for(failed, "failed")
    # accounting hears of it later
    wait_until(lambda: slurm.ask(failed)[failed[0]].exit_code == "1:0", slurm.logs)
    slurm.wait_for(eater, "out_of_memory")


def test_what_slurm_refuses_is_an_error_and_leaves_nothing(slurm: Slurm) -> None:
    profile = with_options(slurm.profile, partition="no-such-partition")
    with pytest.raises(ClusterError, match="invalid partition"):
        slurm.submit("fail", [""], profile=profile)
    assert not list(slurm.folder.glob("*.pkl"))
    assert find(slurm, slurm.name) == {}


def test_what_the_cluster_has_is_known(slurm: Slurm) -> None:
    found = discover()
    assert (found.name, found.max_array_size) == ("testcluster", MAX_ARRAY_SIZE)
    assert found.has_accounting
    partitions = {one.name: one for one in found.partitions}
    assert partitions["cpu"].is_default
    assert partitions["cpu"].max_minutes == 24 * 60
    assert (partitions["gpu"].has_gpus, partitions["cpu"].has_gpus) == (True, False)
    assert (partitions["gpu"].n_nodes, partitions["gpu"].cores) == (2, 8)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_task_that_reaches_its_walltime_goes_on_in_another_attempt(
    slurm: Slurm, tmp_path: Path
) -> None:
    log, deaf = tmp_path / "log.txt", tmp_path / "deaf.txt"
    # a busy machine takes long until a task listens, and until it is requeued
    given: dict[str, Any] = {
        "profile": with_minutes(slurm.profile, 2),
        "timeout_signal_seconds": 60,
    }
    jobs = slurm.submit("twice", [str(log)], **given)
    # one that does not listen is checkpointed all the same, before it is killed
    jobs += slurm.submit("deaf", [str(deaf)], name="deaf", **given)
    slurm.wait_for(jobs, "ended", timeout=900)
    assert log.read_text() == "life\nstopped\nlife\n"
    assert deaf.read_text() == "life\nlife\n"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_task_that_is_preempted_goes_on_later(slurm: Slurm, tmp_path: Path) -> None:
    logs = [tmp_path / f"{index}.txt" for index in range(3)]
    whole = dataclasses.replace(slurm.profile.cpu, whole_node=True)
    profile = dataclasses.replace(slurm.profile, cpu=whole)
    jobs = slurm.submit("work", *([str(log), "300"] for log in logs), profile=profile)
    slurm.wait_for(jobs, "running")
    wait_until(lambda: all(log.exists() for log in logs), slurm.logs)
    urgent = with_options(profile, partition="urgent")
    first = slurm.submit("work", [str(tmp_path / "urgent.txt"), "3"], profile=urgent, name="urgent")
    slurm.wait_for(first, "ended")
    slurm.wait_for(jobs, "ended", timeout=900)
    lives = [log.read_text().count("life") for log in logs]
    assert sorted(lives) == [1, 1, 2], slurm.logs()
    victim = logs[lives.index(2)].read_text()
    assert victim.count("stopped") == 1


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_task_whose_node_dies_waits_for_its_next_attempt(slurm: Slurm, tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    profile = with_options(slurm.profile, nodelist="c3")
    jobs = slurm.submit("work", [str(log), "200"], profile=profile)
    wait_until(lambda: log.exists() and "step" in log.read_text(), slurm.logs)
    slurm.cluster.kill_node("c3")
    slurm.wait_for(jobs, "pending")
    slurm.cluster.start_node("c3")
    slurm.wait_for(jobs, "ended", timeout=900)
    assert log.read_text().count("life") == 2


@pytest.mark.slow
def test_a_controller_that_is_down_is_no_end_of_a_task(slurm: Slurm, tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    jobs = slurm.submit("work", [str(log), "300"])
    wait_until(lambda: log.exists() and "step" in log.read_text(), slurm.logs)
    slurm.cluster.daemons.stop("slurmctld", 20)
    try:
        with pytest.raises(ClusterUnavailable, match="does not answer"):
            slurm.ask(jobs)
        with pytest.raises(ClusterUnavailable, match="does not answer"):
            slurm.submit("work", [str(log), "300"], name="second")
    finally:
        slurm.cluster.start_controller()
    slurm.wait_for(jobs, "ended")
    assert log.read_text().count("life") == 1
    assert find(slurm, f"{slurm.name}second") == {}


@pytest.mark.slow
def test_states_are_known_without_accounting(
    slurm_without_accounting: Slurm, tmp_path: Path
) -> None:
    slurm = slurm_without_accounting
    assert not discover().has_accounting
    ended = slurm.submit("work", [str(tmp_path / "a.txt"), "1"], name="ended")
    failed = slurm.submit("fail", ["on purpose"], name="failed")
    eater = slurm.submit("eat", ["1000"], profile=slurm.profile.with_memory("300M"), name="eater")
    cancelled = slurm.submit("work", [str(tmp_path / "b.txt"), "5000"], name="cancelled")
    slurm.wait_for(cancelled, "running")
    commands.cancel(cancelled)
    slurm.wait_for(cancelled, "cancelled")
    slurm.wait_for(ended, "ended")
    slurm.wait_for(failed, "failed")
    slurm.wait_for(eater, "out_of_memory")
    assert find(slurm, f"{slurm.name}failed")[failed[0]].state == "failed"
    forgotten = slurm.ask(["999999_0"])["999999_0"]
    assert (forgotten.state, forgotten.is_alive) == ("gone", False)


def talkative(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put commands first on PATH that print a site's banner, and note each call."""
    folder.mkdir()
    calls = folder / "calls"
    calls.touch()
    for name in ("sbatch", "squeue", "sacct"):
        real = shutil.which(name)
        shim = folder / name
        shim.write_text(
            f'#!/bin/sh\necho {name} >> {calls}\necho "Your last job 99 used | 3 core hours"\n'
            f'exec {real} "$@"\n'
        )
        shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return calls


def find(slurm: Slurm, name: str) -> dict[str, states.JobState]:
    """Return the jobs of a submission whose job ids are not known."""
    return states.ask([], slurm.started, names={name}, users={getpass.getuser()})


def send(name: str, jobs: list[str]) -> None:
    subprocess.run(["scancel", f"--signal={name}", *jobs], check=True)


def with_options(profile: Profile, **options: str) -> Profile:
    cpu = dataclasses.replace(profile.cpu, options={**profile.cpu.options, **options})
    return dataclasses.replace(profile, cpu=cpu)


def with_minutes(profile: Profile, minutes: int) -> Profile:
    return dataclasses.replace(profile, cpu=dataclasses.replace(profile.cpu, minutes=minutes))


def test_the_profile_of_the_test_cluster_is_read(slurm: Slurm) -> None:
    assert read_profile(slurm.cluster.profile).slurm_conf == slurm.cluster.conf
