"""What SLURM's commands print and take, without a cluster."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyseed.slurm import ClusterError, ClusterUnavailable, arrays, commands, discover, states
from manyseed.slurm.arrays import cut, job_id
from manyseed.slurm.commands import compact_ids
from manyseed.slurm.processes import shielded


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        ("Submitted batch job 17\n", "17"),
        ("Submitted batch job 17 on cluster fast\n", "17"),
        ("*** your last job 99 waited 3 h ***\nSubmitted batch job 17\nbye\n", "17"),
    ],
)
def test_the_job_id_is_found_between_a_sites_own_lines(printed: str, found: str) -> None:
    assert job_id(printed) == found


def test_no_job_id_is_an_error() -> None:
    with pytest.raises(ClusterError, match="your last job 99"):
        job_id("your last job 99 waited 3 h")


@pytest.mark.parametrize(
    ("line", "ids"),
    [
        ("7", ["7"]),
        ("7_3", ["7_3"]),
        ("7_[0-2,5%4]", ["7_0", "7_1", "7_2", "7_5"]),
        ("7_[4]", ["7_4"]),
        ("7_[0-6:2,9]", ["7_0", "7_2", "7_4", "7_6", "7_9"]),
        ("7_[0,2,4,6-7,44-...%47]", ["7_0", "7_2", "7_4", "7_6", "7_7", "7"]),
        ("7_[...]", ["7"]),
        ("7_[]", []),
        ("7_[x-y]", []),
        ("7_[²]", []),
        ("7_0.batch", ["7_0.batch"]),
        ("67108906_0", ["67108906_0"]),
        ("7+1", ["7+1"]),
    ],
)
def test_a_line_stands_for_all_its_jobs(line: str, ids: list[str]) -> None:
    assert states.expand(line) == ids


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        ("CANCELLED by 1000", "cancelled"),
        ("OUT_OF_ME+", "out_of_memory"),
        ("CANCELLED+", "cancelled"),
        ("NODE_FAIL", "node_fail"),
        ("", "running"),
        ("COMPLETININVALID", "running"),
        ("RE+", "running"),
    ],
)
def test_states_are_read_however_they_are_cut(
    monkeypatch: pytest.MonkeyPatch, raw: str, word: str
) -> None:
    line = f"7_0|{raw}|0:0|None|n1|Unknown|Unknown|job.0"
    monkeypatch.setattr(commands, "run", lambda words: line if words[0] == "sacct" else "")
    found = states._sacct([], 0.0)["7_0"]
    assert found.state == word


@pytest.mark.parametrize(
    ("shown", "n"),
    [
        *(("48", 48), ("48+", 48), ("2K", 2048), ("1.5K", 1536), ("16000+", 16000)),
        *((text, None) for text in ("many", "", "²", "٣", "9" * 400, "-1")),
    ],
)
def test_numbers_are_read_as_slurm_shortens_them(shown: str, n: int | None) -> None:
    assert states.number(shown, "a test") == n


@pytest.mark.parametrize(
    ("gres", "n"),
    [
        ("gpu", 1),
        ("gpu:a100", 1),
        ("gpu:4(IDX:0-3)", 4),
        ("gpu:a100:4(S:0-1),gpu:a40:2", 6),
        ("gpu:nvidia_a100_1g.5gb:7(S:0,2),gpu:a100:1", 8),
        ("gpu:a100:4(S:0-1),shard:a100:16(S:0-1)", 4),
        ("gpumem:40G,vgpus:2", 0),
        ("gpu:²", 1),
        ("", 0),
    ],
)
def test_gpus_are_counted_with_and_without_a_number(gres: str, n: int) -> None:
    assert states.n_gpus(gres) == n


@pytest.mark.filterwarnings("error")
def test_what_is_not_understood_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert states.number("3 dozen", "the number of nodes") is None
    told = "SLURM says '3 dozen' for the number of nodes, which is not understood.\n"
    assert capsys.readouterr() == ("", told)


@given(st.text(max_size=30))
def test_no_text_ends_a_command(text: str) -> None:
    states.expand(f"7_[{text}]")
    states._word(text)
    states.number(text, "a test")
    states.n_gpus(text)


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ({"MaxArraySize": "1001"}, 1001),
        ({"MaxArraySize": "1001", "SchedulerParameters": "defer,max_array_tasks=200"}, 200),
        ({"MaxArraySize": "10", "SchedulerParameters": "max_array_tasks=200"}, 10),
        ({}, 1001),
    ],
)
def test_all_limits_of_arrays_are_obeyed(config: dict[str, str], size: int) -> None:
    assert discover.max_array_size(config) == size


@pytest.mark.parametrize(
    ("kind", "params", "is_summed"),
    [
        ("jobacct_gather/linux", "OverMemoryKill", True),
        ("jobacct_gather/linux", "NoOverMemoryKill", False),
        ("jobacct_gather/linux", "OverMemoryKill,UsePss", False),
        ("jobacct_gather/linux", "NoShared,OverMemoryKill", False),
        ("jobacct_gather/linux", "(null)", False),
        ("jobacct_gather/cgroup", "OverMemoryKill", False),
    ],
)
def test_it_is_known_where_shared_memory_counts_for_each_process(
    kind: str, params: str, is_summed: bool
) -> None:
    config = {"JobAcctGatherType": kind, "JobAcctGatherParams": params}
    assert discover._sums_memory(config) is is_summed


@pytest.mark.parametrize(
    "config", [{"MaxArraySize": "0"}, {"SchedulerParameters": "max_array_tasks=0"}]
)
def test_a_cluster_without_arrays_is_told_as_that(config: dict[str, str]) -> None:
    with pytest.raises(ClusterError, match="takes no job arrays"):
        discover.max_array_size(config)


@pytest.mark.parametrize(
    "name",
    [
        *("SQUEUE_PARTITION", "SQUEUE_USERS", "SQUEUE_FORMAT", "SQUEUE_STATES", "SACCT_FORMAT"),
        *("SINFO_PARTITION", "SCONTROL_ALL", "SCANCEL_STATE", "SBATCH_PARTITION", "SLURM_JOB_ID"),
    ],
)
def test_a_users_defaults_do_not_reach_our_commands(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "other")
    monkeypatch.setenv("SLURM_CLUSTERS", "alpha")
    seen = commands.run(["env"])
    assert f"{name}=" not in seen
    assert "SLURM_CLUSTERS=alpha" in seen
    assert "SLURM_BITSTR_LEN=0" in seen


def test_a_profile_that_names_its_cluster_hears_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURM_CLUSTERS", "alpha")
    conf = tmp_path / "slurm.conf"
    conf.touch()
    with commands.speaking_to(conf):
        seen = commands.run(["env"])
    assert "SLURM_CLUSTERS" not in seen
    assert f"SLURM_CONF={conf}" in seen


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 30)), unique=True))
def test_job_ids_are_said_shortly(pairs: list[tuple[int, int]]) -> None:
    ids = [f"{array}_{index}" for array, index in pairs]
    said = compact_ids(ids)
    assert len(said) == len({array for array, _ in pairs})
    assert sorted(job for text in said for job in states.expand(text)) == sorted(ids)


@given(st.integers(0, 50), st.integers(1, 20))
def test_arrays_are_cut_whole(n: int, limit: int) -> None:
    chunks = cut(n, limit)
    assert [index for chunk in chunks for index in chunk] == list(range(n))
    assert all(0 < len(chunk) <= limit for chunk in chunks)


def test_every_state_that_slurm_documents_has_a_word() -> None:
    documented = """BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PENDING
        PREEMPTED RUNNING SUSPENDED TIMEOUT REQUEUED RESIZING REVOKED CONFIGURING COMPLETING
        REQUEUE_FED REQUEUE_HOLD SIGNALING SPECIAL_EXIT STAGE_OUT STOPPED EXPEDITING LAUNCH_FAILED
        POWER_UP_NODE RECONFIG_FAIL RESV_DEL_HOLD UPDATE_DB"""
    assert set(documented.split()) <= states.WORDS.keys()


ALL = ["7_0", "7_1", "7_2"]


def squeue(state: str, reason: str = "None", index: str = "0") -> str:
    return f"7|{index}|{state}|{reason}||N/A|a.0\n"


SCONTROL = "JobId=9 ArrayJobId=7 ArrayTaskId={} JobName=a.0 {} Reason=Priority NodeList=(null)"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        # several clusters, whose names stand between the rows
        ({"squeue": "CLUSTER: alpha\n" + squeue("RUNNING") + "CLUSTER: beta\n"}, ["running"]),
        # elements that wait together, with or without a limit, a step, a cut list
        ({"squeue": squeue("PENDING", "Priority", "0-2%2")}, ["pending"] * 3),
        ({"squeue": squeue("PENDING", "Priority", "0-2:2")}, ["pending", "gone", "pending"]),
        ({"squeue": squeue("PENDING", "Priority", "0,1,2-...")}, ["pending"] * 3),
        ({"scontrol": SCONTROL.format("0-2%2", "JobState=PENDING")}, ["pending"] * 3),
        ({"scontrol": SCONTROL.format("0,1-...", "JobState=PENDING")}, ["pending"] * 3),
        # a federation, where another cluster has started the job
        ({"squeue": squeue("REVOKED") + squeue("RUNNING")}, ["running"]),
        ({"squeue": squeue("RUNNING") + squeue("REVOKED")}, ["running"]),
        ({"squeue": squeue("REVOKED")}, ["running"]),
        # states with flags, and those that nodes of a cloud bring
        ({"squeue": squeue("FAILED,COMPLETING")}, ["running"]),
        ({"squeue": squeue("PENDING,REQUEUED")}, ["pending"]),
        ({"squeue": squeue("FAILED,LAUNCH_FAILED")}, ["failed"]),
        ({"squeue": squeue("POWER_UP_NODE")}, ["running"]),
        # a comment with a blank, which holds what looks like another state
        ({"scontrol": SCONTROL.format("0", "JobState=RUNNING Comment=/my JobState=FAILED")}, None),
        # accounting: cut states, parts of heterogeneous jobs, steps, times that nobody knows
        ({"sacct": "7_0|OUT_OF_ME+|0:125|None|n1|Unknown|Unknown|a.0"}, ["out_of_memory"]),
        ({"sacct": "7+0|COMPLETED|0:0||n1|T|T|a.0\n7_0.batch|FAILED|1:0||n1|T|T|batch"}, ["gone"]),
        ({"sacct": "7_[0-2%1]|CANCELLED by 4294967294|0:0|||None|T|a.0"}, ["cancelled"] * 3),
        ({"sacct": "7_0|REVOKED|0:0||None assigned|Unknown|Unknown|a.0"}, ["gone"]),
    ],
)
def test_what_other_versions_and_sites_print_is_read(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    told: dict[str, str],
    words: list[str] | None,
) -> None:
    monkeypatch.setattr(states, "_named", set())
    monkeypatch.setattr(commands, "run", lambda given: told.get(given[0], ""))
    found = states.ask(ALL, 0, certain="scontrol" in told)
    words = words or ["running"]
    assert [found[job].state for job in ALL[: len(words)]] == words
    assert capsys.readouterr().err == "", "all of it is understood"


@pytest.mark.parametrize(
    ("state", "reason", "is_held"),
    [
        ("PENDING", "JobHeldUser", True),
        ("PENDING", "JobHeldAdmin", True),
        ("PENDING", "JobHoldMaxRequeue", True),
        ("PENDING", "launch_failed_requeued_held", True),
        ("REQUEUE_HOLD", "None", True),
        ("RESV_DEL_HOLD", "ReservationDeleted", True),
        ("SPECIAL_EXIT", "None", True),
        ("PENDING", "QOSUsageThreshold", False),
        ("PENDING", "BurstBufferStageIn", False),
        ("PENDING", "Reservation", False),
        ("PENDING", "ReqNodeNotAvail, UnavailableNodes:c[1-2]", False),
        ("RUNNING", "JobHeldUser", False),
    ],
)
def test_a_job_that_waits_to_be_released_is_told_from_one_that_waits_its_turn(
    monkeypatch: pytest.MonkeyPatch, state: str, reason: str, is_held: bool
) -> None:
    monkeypatch.setattr(commands, "run", lambda given: squeue(state, reason))
    assert states._squeue([])["7_0"].is_held == is_held


def test_a_job_is_still_wanted_where_several_clusters_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrays.processes, "received", lambda: {signal.SIGTERM})
    here = SimpleNamespace(job_id="7_0")
    monkeypatch.setattr(arrays.submitit, "JobEnvironment", lambda: here)
    for shown, is_wanted in {
        "RUNNING\n": True,
        "CLUSTER: alpha\nRUNNING\n": True,
        "CLUSTER: alpha\nCOMPLETING\n": False,
        "": False,
    }.items():
        monkeypatch.setattr(commands, "run", lambda given, shown=shown: shown)
        assert arrays._still_wanted() == is_wanted


def test_a_job_that_has_ended_meanwhile_need_not_be_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = ["Access/permission denied", "Job is no longer pending execution"]
    told += ["Job has already finished"]

    def run(given: list[str]) -> str:
        raise ClusterError(told.pop())

    monkeypatch.setattr(commands, "run", run)
    commands.release(["7_0"])
    commands.release(["7_0"])
    with pytest.raises(ClusterError, match="denied"):
        commands.release(["7_0"])


def test_silence_is_told_from_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for error in (
        "squeue: error: Unable to contact slurm controller (connect failure)",
        "slurm_load_jobs error: Slurm backup controller in standby mode",
        "slurm_load_jobs error: Protocol authentication error",
    ):
        answers(tmp_path, error)
        with pytest.raises(ClusterUnavailable, match="does not answer"):
            states.ask(["1_0"], 0)
    answers(tmp_path, "a banner\nsqueue: error: Access denied for user")
    with pytest.raises(ClusterError, match=r"^Access denied for user$") as refused:
        states.ask(["1_0"], 0)
    assert not isinstance(refused.value, ClusterUnavailable)
    (tmp_path / "squeue").unlink()
    with pytest.raises(ClusterUnavailable, match="not on PATH"):
        states.ask(["1_0"], 0)


@pytest.mark.parametrize("asked", ["squeue", "sacct"])
def test_an_array_cancelled_before_it_starts_has_one_line(
    asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {
        "squeue": "7|N/A|CANCELLED|None||N/A|a.0\n8|0|PENDING|Priority||N/A|a.9\n",
        "sacct": "7|CANCELLED by 9|0:0|None|None assigned|T1|T1|a.0\n",
    }
    monkeypatch.setattr(commands, "run", lambda given: told[asked] if given[0] == asked else "")
    found = states.ask(["7_0", "7_1", "8_1"], 0)
    assert {job: state.state for job, state in found.items()} == {
        "7_0": "cancelled",
        "7_1": "cancelled",
        "8_1": "gone",  # one of an array that goes on
    }
    assert all(state.job_id == job for job, state in found.items())
    named = states.ask([], 0, names={"a"}, users={"me"})
    assert named.keys() == ({"8_0"} if asked == "squeue" else set())


def test_a_list_that_slurm_cut_stands_for_every_job_without_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = [f"7_{n}|CANCELLED by 9|0:0|None|None assigned|T1|T1|a.0" for n in (1, 3, 5)]
    lines += ["7_[0,2,4,6-7,44-...%47]|CANCELLED by 9|0:0|None|None assigned|T1|T1|a.0"]
    told = {"sacct": "\n".join(lines), "squeue": ""}
    monkeypatch.setattr(commands, "run", lambda given: told[given[0]])
    jobs = [f"7_{n}" for n in range(47)]
    found = states.ask([*jobs, "8_0"], 0)
    assert {found[job].state for job in jobs} == {"cancelled"}
    assert found["8_0"].state == "gone", "of an array without any line"


def test_rows_of_other_jobs_are_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["CLUSTER: alpha"]
    for job in ("7_0", "7_0.batch", "7_0.extern", "7_1+0", "7_²", "7+1", "67108906_0"):
        name = "batch" if job == "7_0.batch" else "a.8"
        lines.append(f"{job}|COMPLETED|0:0||n1|T1|T1|{name}")
    told = {"sacct": "\n".join(lines), "squeue": ""}
    monkeypatch.setattr(commands, "run", lambda given: told[given[0]])
    assert states.ask(["7_0"], 0).keys() == {"7_0"}
    named = states.ask([], 0, names={"a"}, users={"me"})
    assert {job: state.index for job, state in named.items()} == {"7_0": 8, "67108906_0": 8}
    assert states.JobState("7_0", "a.x", "ended").index is None


SACCT = [
    "slurmdbd: Unknown error 1021",
    "slurmdbd: Operation not permitted",
    "slurmdbd: Too wide of a date range in query",
    "Sending PersistInit msg: No route to host",
    "slurm_persist_conn_open: Something happened with the receiving/processing of the persistent "
    "connection init message to localhost:6819: Access denied",
    "fatal: Problem connecting to the database: Unspecified error",
]


@pytest.mark.parametrize("error", [*SACCT, "Slurm accounting storage is disabled", ""])
def test_accounting_that_answers_with_an_error_of_its_own_is_silent_accounting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: str
) -> None:
    def run(given: list[str]) -> str:
        if given[0] == "squeue":
            return "7|0|RUNNING|None|n1|N/A|a.0\n"
        raise ClusterError(error) if error else ClusterUnavailable("the cluster does not answer")

    monkeypatch.setattr(commands, "run", run)
    monkeypatch.setattr(states, "_named", set())
    for _ in range(2):
        found = states.ask(["7_0", "7_1"], 0)
        assert [found[job].state for job in ("7_0", "7_1")] == ["running", "gone"]
    told = f"Accounting does not answer ({error}): what follows is by squeue.\n"
    assert capsys.readouterr().err == (told if error in SACCT else "")


@pytest.mark.parametrize("names", [[], ["a"]])
@pytest.mark.parametrize("command", ["squeue", "scontrol"])
def test_only_an_unknown_id_means_that_the_controller_has_forgotten_a_job(
    monkeypatch: pytest.MonkeyPatch, command: str, names: list[str]
) -> None:
    error = ClusterError("slurm_load_jobs error: Invalid job id specified")

    def run(given: list[str]) -> str:
        if given[0] == command:
            raise error
        return ""

    monkeypatch.setattr(commands, "run", run)
    found = states.ask(["7_0"], 0, names=names, users=["me"], certain=True)
    assert {job: state.state for job, state in found.items()} == {"7_0": "gone"}
    error = ClusterError("slurm_load_jobs error: Access/permission denied")
    with pytest.raises(ClusterError, match="permission denied"):
        states.ask(["7_0"], 0, names=names, users=["me"], certain=True)


def test_nothing_of_a_surrounding_job_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_CPU_BIND", "SRUN_DEBUG", "SLURM_CONF", "SBATCH_ACCOUNT"):
        monkeypatch.setenv(name, "1")
    seen = commands.run(["env"])
    assert "SLURM_CONF=1" in seen
    assert "SLURM_JOB_ID" not in seen
    assert "SLURM_CPU_BIND" not in seen
    assert "SRUN_DEBUG" not in seen
    assert "SBATCH_ACCOUNT" not in seen, "the profile alone says what a job asks for"


def test_a_shielded_process_is_deaf_to_what_ends_a_job() -> None:
    code = "import sys; print('ready', flush=True); input()"
    with shielded():
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
        child.send_signal(number)
    child.communicate("\n", timeout=240)
    assert child.returncode == 0


def answers(folder: Path, error: str) -> None:
    shim = folder / "squeue"
    shim.write_text(f"#!/bin/sh\necho '{error}' >&2\nexit 1\n")
    shim.chmod(0o755)


def test_the_most_of_a_jobs_steps_is_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = """7_0|mine.0|
        7_0.batch|batch|11.97M
        7_0.0|python|2637976K
        7_1|mine.0|
        7_1.0|python|1.5G
        7_1.0|python|2G
        8_0|another.0|
        8_0.0|python|9G
        Your last job 99 used | 3 core hours | all"""
    monkeypatch.setattr(commands, "run", lambda words: printed)
    jobs = {"7_0": "mine", "7_1": "mine", "8_0": "mine", "9_0": "mine"}
    assert states.memory(jobs, 0.0) == {"7_0": 2637976 * 2**10, "7_1": 2 * 2**30}
    assert states.memory({}, 0.0) == {}

    def silent(words: list[str]) -> str:
        raise ClusterUnavailable("sacct did not answer")

    monkeypatch.setattr(commands, "run", silent)
    assert states.memory(jobs, 0.0) == {}
