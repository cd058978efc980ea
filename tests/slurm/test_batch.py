"""Schedulers that are commands of a profile: what is made of what they print, and their jobs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from manyseed.slurm import ClusterError, ClusterUnavailable, Refused
from manyseed.slurm.arrays import Tasks
from manyseed.slurm.batch import BatchSystem, system_of
from manyseed.slurm.profile import COMMAND_KEYS, Profile, read_profile

ROOT = Path(__file__).parents[2]
GIVEN = {
    "scheduler": "command",
    "submit": "echo job 7; echo {script} {last} {minutes} {cores} >> $ASKED",
    "submitted": r"^job (\S+)",
    "states": "cat $ASKED.states && echo asked {jobs} >> $ASKED",
    "line": r"^(?P<job>\S+) (?P<index>\S+)? ?(?P<state>[A-Z])$",
    "waiting": ["Q", "H"],
    "ended": ["F"],
    "cancel": "echo {job}[{index}] >> $ASKED",
    "index": "MY_INDEX",
    "time": "1:00:00",
}


def profile(folder: Path, **changes: object) -> Profile:
    """Return a profile of `GIVEN`, changed; None leaves a key out."""
    values = {**GIVEN, **{key.replace("_", "-"): value for key, value in changes.items()}}
    lines = [f"{key} = {json.dumps(each)}" for key, each in values.items() if each is not None]
    (folder / "here.toml").write_text("\n".join(lines))
    return read_profile(folder / "here.toml")


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file to which the commands add what they are asked; they list its ``.states``."""
    file = tmp_path / "asked"
    monkeypatch.setenv("ASKED", str(file))
    return file


def system(folder: Path, **changes: object) -> BatchSystem:
    return system_of(profile(folder, **changes).reached)


@pytest.mark.parametrize(
    ("changes", "option", "fact"),
    [
        ({"scheduler": "pbs"}, "scheduler", "slurm"),
        ({"submit": None}, "cpu.submit", "is missing"),
        ({"states": None}, "states", "is missing"),
        ({"index": None}, "index", "is missing"),
        ({"index": "a b"}, "index", "environment variable"),
        ({"submit": "qsub {last}"}, "cpu.submit", r"lacks \{script\}"),
        ({"submit": "qsub {script}"}, "cpu.submit", r"\{last\}"),
        ({"submit": "qsub {last} {count} {script}"}, "cpu.submit", r"\{last\}"),
        ({"submit": "qsub {last} {walltime} {script}"}, "cpu.submit", r"\{walltime\} is none"),
        ({"submit": "q {last} {megabytes} {script}"}, "cpu.submit", "mem is not in the profile"),
        ({"mem": "2G"}, "cpu.submit", r"mem needs \{megabytes\}"),
        ({"parallelism": 3}, "cpu.submit", r"parallelism needs \{parallelism\}"),
        ({"states": "qstat {job}"}, "states", r"\{job\} is none"),
        ({"cancel": "qdel {job}"}, "cancel", r"lacks \{index\}"),
        ({"submitted": "(a"}, "submitted", "regular expression"),
        ({"submitted": "a"}, "submitted", "one group"),
        ({"line": "(?P<job>.)"}, "line", r"\(\?P<index>"),
        ({"line": "(?P<job>.)(?P<index>.)(?P<name>.)"}, "line", r"\(\?P<index>"),
        ({"line": "(?P<job>.)(?P<index>.)"}, "waiting", "line finds no state"),
        ({"unknown": "["}, "unknown", "regular expression"),
        ({"max_array": 0}, "max-array", "whole number from 1"),
        ({"partition": "x"}, "partition", "an option of sbatch"),
        ({"whole_node": True}, "whole-node", ""),
        ({"slurm_conf": "x"}, "slurm-conf", ""),
        ({"time": None}, "cpu.time", "is missing"),
    ],
)
def test_a_mistake_is_named_with_its_key(
    tmp_path: Path, changes: dict[str, object], option: str, fact: str
) -> None:
    with pytest.raises(Refused) as refused:
        profile(tmp_path, **changes)
    assert refused.value.option == option
    assert re.search(fact, str(refused.value))


def test_keys_of_commands_are_refused_in_a_profile_of_slurm(tmp_path: Path) -> None:
    for key in ("submit", *COMMAND_KEYS):
        (tmp_path / "here.toml").write_text(f'time = "60"\n{key} = "x"')
        with pytest.raises(Refused, match='needs scheduler = "command"'):
            read_profile(tmp_path / "here.toml")
    text = 'scheduler = "slurm"\ntime = "60"\npartition = "x"'
    (tmp_path / "here.toml").write_text(text)
    assert read_profile(tmp_path / "here.toml").template is None


def test_what_the_shell_writes_in_braces_is_no_placeholder(tmp_path: Path) -> None:
    states = "qstat -u ${user} | awk '{ print $1 }' {jobs}"
    assert profile(tmp_path, states=states).template is not None


def test_every_key_is_documented() -> None:
    page = (ROOT / "docs" / "cluster.md").read_text()
    assert [key for key in ("scheduler", "submit", *COMMAND_KEYS) if f"`{key}`" not in page] == []


PRINTED = {
    "SGE_TASK_ID": (
        "1234.1-10:1\n",
        "1234 0.55500 quick-a1b2 me  r   01/02/2026 10:00:00 all.q@n1.example    8 7\n"
        "1234 0.55500 quick-a1b2 me  qw  01/02/2026 10:00:00                     8 8\n",
    ),
    "PBS_ARRAY_INDEX": (
        "1234[].server\n",
        "1234[].server     STDIN            me                       0 B workq\n"
        "1234[6].server    STDIN            me                00:00:01 R workq\n"
        "1234[7].server    STDIN            me                       0 Q workq\n",
    ),
    "LSB_JOBINDEX": (
        "Job <1234> is submitted to default queue <normal>.\n",
        "1234 7 RUN\n1234 8 PEND\n",
    ),
    "": ("1234\n", "1234 R\n"),
}


@pytest.mark.parametrize("index", PRINTED)
def test_the_profiles_of_the_page_are_read_and_understand_what_is_printed(
    tmp_path: Path, index: str
) -> None:
    page = (ROOT / "docs" / "cluster.md").read_text()
    blocks = re.findall(r'```toml\n((?:#[^\n]*\n)?scheduler = "command"\n.*?)```', page, re.DOTALL)
    (tmp_path / "states").write_text(PRINTED[index][1])
    for number, block in enumerate(blocks):
        (tmp_path / f"{number}.toml").write_text(block)
    given = [read_profile(tmp_path / f"{number}.toml") for number in range(len(blocks))]
    assert len(given) == len(PRINTED)
    (template,) = (one.template for one in given if one.template and one.template.index == index)
    found = re.search(template.submitted, PRINTED[index][0], re.MULTILINE)
    assert found is not None
    assert found[1] == "1234"
    lab = system_of(replace(template, states=f"cat {tmp_path / 'states'}"))
    jobs = ["1234_6", "1234_7"] if index else ["1234_0"]
    states = [one.state for one in lab.states(jobs, 0.0, {}, set(), False).values()]
    assert states == ["running", "pending"][: len(jobs)]


def test_memory_can_be_asked_for_where_the_command_does(tmp_path: Path) -> None:
    submit = "qsub -l mem={megabytes}mb -t {count} {script}"
    more = profile(tmp_path, submit=submit, mem="1G").with_memory("3G")
    assert more.resources("cpu").options["mem"] == "3G"
    with pytest.raises(Refused, match="submit asks for no memory"):
        profile(tmp_path).with_memory("3G")


def test_an_array_is_cut_and_its_jobs_are_numbered_from_0(tmp_path: Path, asked: Path) -> None:
    given = profile(tmp_path, max_array=2, cpus_per_task=4)
    folder = tmp_path / "a folder"
    tasks = Tasks("tests.slurm.in_jobs:fail", [["a"], ["b"], ["c"]], "mine")
    noted: list[list[str]] = []
    ids = system_of(given.reached).submit(given, "cpu", folder, tasks, noted.append)
    assert ids == ["7_0", "7_1", "7_0"]
    assert noted == [["7_0", "7_1"], ["7_0"]]
    told = asked.read_text().splitlines()
    assert told == [f"{folder}/mine.0.sh 1 60 4", f"{folder}/mine.2.sh 0 60 4"]
    scripts = sorted(folder.glob("*.sh"))
    assert [script.stat().st_mode & 0o777 for script in scripts] == [0o600] * 2


def test_a_refused_array_leaves_no_file(tmp_path: Path, asked: Path) -> None:
    for submit, says in (
        ("echo 'no such queue' >&2; false {last} {script}", "no such queue"),
        ("echo hello {last} {script}", "finds no job id"),
        ("echo 'job $(reboot)' {last} {script}", "finds no job id"),
    ):
        given = profile(tmp_path, submit=submit)
        tasks = Tasks("tests.slurm.in_jobs:fail", [["a"]], "mine")
        with pytest.raises(ClusterError, match=says):
            system_of(given.reached).submit(given, "cpu", tmp_path / "jobs", tasks, print)
        assert [*(tmp_path / "jobs").iterdir()] == []


def test_states_are_read_by_element_range_and_array(tmp_path: Path, asked: Path) -> None:
    asked.with_suffix(".states").write_text("id n s\n7 0 R\n7 2-4 Q\n8  H\n8 1 F\n9 0 X\n1 0 R\n")
    jobs = ["7_0", "7_1", "7_2", "7_4", "8_0", "8_1", "9_0", "9_1"]
    found = system(tmp_path).states(jobs, 0.0, {}, set(), False)
    assert {job: (state.state, state.raw) for job, state in found.items()} == {
        "7_0": ("running", "R"),
        "7_1": ("gone", ""),
        "7_2": ("pending", "Q"),
        "7_4": ("pending", "Q"),
        "8_0": ("pending", "H"),  # a line without an element is for all that have none
        "8_1": ("ended", "F"),
        "9_0": ("running", "X"),  # a word that nobody explains may mean that it still writes
        "9_1": ("gone", ""),
    }
    assert asked.read_text() == "asked 7 8 9\n"


def test_what_is_listed_is_alive_where_no_words_are_told(tmp_path: Path, asked: Path) -> None:
    asked.with_suffix(".states").write_text("7 1\n")
    line = r"^(?P<job>\d+) (?P<index>\d+)$"
    given = {"line": line, "waiting": None, "ended": None, "submit": "q {count} {script}"}
    found = system(tmp_path, **given).states(["7_0", "7_1"], 0.0, {}, set(), False)
    assert {job: state.state for job, state in found.items()} == {"7_0": "running", "7_1": "gone"}


def test_each_unlisted_array_is_looked_up_by_its_id(tmp_path: Path, asked: Path) -> None:
    states = "echo asked {jobs} >> $ASKED; [ {jobs} = 8 ] 2>/dev/null && echo 8 0 R; true"
    lab = system(tmp_path, states=states)
    found = lab.states(["7_0", "8_0"], 0.0, {}, set(), True)
    assert {job: state.state for job, state in found.items()} == {"7_0": "gone", "8_0": "running"}
    assert asked.read_text() == "asked 7 8\nasked 7\nasked 8\n"


def test_no_answer_is_no_empty_list(tmp_path: Path, asked: Path) -> None:
    for states in ("no-such-command", "false | cat", "echo 'cannot connect' >&2; exit 1"):
        with pytest.raises(ClusterUnavailable):
            system(tmp_path, states=states).states(["7_0"], 0.0, {}, set(), False)
    lines = "echo 8 0 R; echo 'unknown job 7' >&2; exit 1"
    lab = system(tmp_path, states=lines, unknown="unknown job")
    found = lab.states(["7_0", "8_0"], 0.0, {}, set(), False)
    assert {job: state.state for job, state in found.items()} == {"7_0": "gone", "8_0": "running"}
    both = f"echo 'cannot connect' >&2; {lines}"
    with pytest.raises(ClusterUnavailable, match="cannot connect"):
        system(tmp_path, states=both, unknown="unknown job").states(["7_0"], 0.0, {}, set(), False)


def test_a_lost_array_is_found_by_what_its_command_printed(tmp_path: Path, asked: Path) -> None:
    given = profile(tmp_path, max_array=2)
    lab, folder = system_of(given.reached), tmp_path / "jobs"
    tasks = Tasks("tests.slurm.in_jobs:fail", [["a"], ["b"], ["c"]], "mine")

    def crash(ids: list[str]) -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        lab.submit(given, "cpu", folder, tasks, crash)
    asked.with_suffix(".states").write_text("7 0 R\n")
    found = lab.states([], 0.0, {"mine": folder, "other": folder}, set(), False)
    assert {(job, one.state, one.submission, one.index) for job, one in found.items()} == {
        ("7_0", "running", "mine", 0),
        ("7_1", "gone", "mine", 1),
    }
    (folder / "mine.0.json").write_text("{")
    with pytest.raises(ClusterError, match=r"mine\.0\.json is damaged or lost.* job 7"):
        lab.states([], 0.0, {"mine": folder}, set(), False)
    (folder / "mine.0.printed").write_text("")  # the submitter died before the command printed
    assert lab.states([], 0.0, {"mine": folder}, set(), False) == {}


def test_jobs_are_cancelled_by_array_and_element(tmp_path: Path, asked: Path) -> None:
    system(tmp_path, submit="q {count} {script}").cancel(["7_0", "8_11"])
    assert asked.read_text() == "7[1]\n8[12]\n"
    gone = {"cancel": "echo unknown {job} {index} >&2; false"}
    system(tmp_path, **gone, unknown="unknown").cancel(["7_0"])
    with pytest.raises(ClusterError, match="unknown 7 0"):
        system(tmp_path, **gone).cancel(["7_0"])


def run_script(folder: Path, index: str) -> int:
    (script,) = folder.glob("*.sh")
    env = {"MY_INDEX": index, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    return subprocess.run(["bash", script], env=env, check=False, timeout=240).returncode


def test_a_job_calls_its_function_with_its_own_text(tmp_path: Path, asked: Path) -> None:
    text = 'it\'s "$HOME" and `echo`'
    given = profile(tmp_path, setup=["export TEST_SETUP=done"], python=sys.executable)
    folder = tmp_path / "jobs's folder"
    each = [[str(tmp_path / f"{n} {text}")] for n in range(2)]
    tasks = Tasks("tests.slurm.in_jobs:environment", each, "mine")
    system_of(given.reached).submit(given, "cpu", folder, tasks, lambda ids: None)
    assert run_script(folder, "1") == 0
    assert not Path(each[0][0]).exists()
    seen = json.loads(Path(each[1][0]).read_text())
    assert (seen["TEST_SETUP"], seen["PYTHONSAFEPATH"]) == ("done", "1")
    assert "job mine.1 starts" in (folder / "mine.1_0_log.out").read_text()
    assert run_script(folder, "2") == 0, "an element beyond the last, where none may be alone"
    assert not (folder / "mine.2_0_log.out").exists()
    assert run_script(folder, "") != 0


def test_a_task_is_asked_to_end_before_its_walltime_does(tmp_path: Path, asked: Path) -> None:
    given = profile(tmp_path, time="1", python=sys.executable)
    log = tmp_path / "log"
    tasks = Tasks("tests.slurm.in_jobs:listen", [[str(log)]], "mine", signal_seconds=55)
    system_of(given.reached).submit(given, "cpu", tmp_path / "jobs", tasks, lambda ids: None)
    assert run_script(tmp_path / "jobs", "0") == 0
    assert log.read_text().split() == ["life", "stopped"]
