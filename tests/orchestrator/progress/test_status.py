"""What the status of a sweep tells of its files."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from manyseed.analysis.options import Options
from manyseed.orchestrator.cli import main
from manyseed.orchestrator.cli.status import _failures
from manyseed.orchestrator.errors import DamagedFile, UnavailableError, UserError
from manyseed.orchestrator.progress import status as module
from manyseed.orchestrator.progress.logs import ending, logs
from manyseed.orchestrator.submissions.submission import TaskState
from manyseed.orchestrator.survey import survey
from manyseed.orchestrator.sweep import Sweep
from manyseed.orchestrator.tasks.attempts import COPY_OF_FAILED, Attempt, Failure, add_failures
from manyseed.slurm import local
from tests.orchestrator.conftest import inside
from tests.orchestrator.damage import as_on_a_cluster


@pytest.fixture
def sweep(quick: Sweep, tmp_path: Path) -> Sweep:
    """A copy of a small sweep that was trained undisturbed, to damage."""
    return Sweep(shutil.copytree(quick.directory, tmp_path / "copy"))


@pytest.fixture
def attempt(sweep: Sweep) -> Path:
    """The folder of the attempt that trained it."""
    (folder,) = (sweep.paths.submission(1) / "lives").iterdir()
    return folder


def test_a_damaged_file_of_any_submission_is_named(sweep: Sweep) -> None:
    first = sweep.paths.submission(1)
    shutil.copytree(first, sweep.paths.submission(2))
    assert sweep.status()["problems"] == []
    (file,) = (first / "lives").glob("*/progress.json")
    file.write_bytes(b"")
    (told,) = sweep.status()["problems"]
    assert str(file) in told


def test_runs_in_journals_alone_are_counted_once_nothing_trains(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that broke on a full disk publishes nothing."""
    kept = survey(sweep.paths)
    monkeypatch.setattr(module, "survey", lambda paths: replace(kept, unpublished=16))
    done = kept.counts["done"] + kept.counts["copy"]
    told = f"16 of {done} finished runs are in journals alone, which Zarr readers do not see: "
    (said,) = sweep.status()["problems"]
    assert said.startswith(f"{told}manyseed verify {sweep.directory} --compact")
    monkeypatch.setattr(module, "tasks_of", lambda listed, **_: [[TaskState(0, "running")]])
    assert sweep.status()["problems"] == []


def test_a_restart_after_an_attempt_without_a_report_is_told(sweep: Sweep, attempt: Path) -> None:
    last = Attempt.read(attempt)
    assert "restarted" not in inside("status", sweep.directory)[1]
    for number, times in ((1, "once"), (2, "2 times")):
        earlier = attempt.with_name(f"0000-{number}")
        earlier.mkdir()
        replace(last, state="running", started=last.started - number).write(earlier)
        assert [task["restarts"] for task in sweep.status()["each_task"]] == [number]
        told = f"1 was restarted {times}: an earlier attempt did not report its end."
        assert told in " ".join(inside("status", sweep.directory)[1].split())
    replace(last, state="interrupted", started=last.started - 3).write(earlier)
    assert [task["restarts"] for task in sweep.status()["each_task"]] == [1]


def test_training_processes_that_were_killed_are_told(sweep: Sweep, attempt: Path) -> None:
    last = Attempt.read(attempt)
    assert "killed" not in inside("status", sweep.directory)[1]
    for killed, told in ((1, "1 training process was killed"), (3, "3 training processes were")):
        replace(last, killed=killed).write(attempt)
        assert told in inside("status", sweep.directory)[1]
        assert [task["killed"] for task in sweep.status()["each_task"]] == [killed]


@pytest.mark.parametrize("name", ["intent.json", "jobs.json", "task-0000.json", "progress.json"])
def test_a_lost_file_of_a_submission_is_named(sweep: Sweep, name: str) -> None:
    as_on_a_cluster(sweep.directory)
    assert sweep.status()["problems"] == []
    (file,) = sweep.paths.submission(2).rglob(name)
    file.unlink()
    assert sweep.status()["problems"] == [f"{file} is lost: restore it"]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("intent.json", "lost"),
        ("task-0000.json", "whole"),
        ("progress.json", "lost"),
        ("log.txt", "lost"),
        ("*_log.out", "lost"),
        ("*_log.out", "empty"),
        ("*_log.err", "lost"),
    ],
)
@pytest.mark.parametrize("task", ["1/0", "2/0"])
def test_logs_of_a_task_name_what_is_lost_of_them(
    sweep: Sweep,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    task: str,
    name: str,
    damage: str,
) -> None:
    as_on_a_cluster(sweep.directory)

    def logs() -> tuple[str, str]:
        monkeypatch.setattr("sys.argv", ["manyseed", "logs", str(sweep.directory), task])
        with pytest.raises(SystemExit):
            main()
        told = capsys.readouterr()
        return told.out, " ".join(told.err.split())

    out, err = logs()
    assert out
    assert err == ""
    (file,) = sweep.paths.submission(int(task[0])).rglob(name)
    if damage == "empty":
        file.write_bytes(b"")
    else:
        file.unlink()
    if damage == "whole":  # nothing that was printed is in it
        assert logs() == (out, "")
    else:
        assert f"{file} is lost" in logs()[1].replace(": is lost", " is lost").replace(
            "error: ", ""
        )


def test_logs_of_a_task_say_how_it_ended(sweep: Sweep, attempt: Path) -> None:
    last = Attempt.read(attempt)
    assert (
        ending(sweep.paths, "1/0") == f"The task finished: {last.n_done} of {last.runs} runs done."
    )
    followed_by_another(sweep)
    replace(last, state="stopped", done={"a/b": 2}, pending=last.runs - 2).write(attempt)
    told = f"The task stopped, as was asked: 2 of {last.runs} runs done, {last.runs - 2} left."
    assert ending(sweep.paths, "1/0") == told
    assert inside("logs", sweep.directory, "1/0")[1].endswith(f"{told}\n")
    replace(last, state="running").write(attempt)
    assert ending(sweep.paths, "1/0") == ""
    assert ending(sweep.paths, "0:0:0") == ""
    shutil.rmtree(attempt)
    told = (
        "The task has not begun, and its process has ended. Train its runs with: manyseed resume "
    )
    assert ending(sweep.paths, "1/0").startswith(told)
    (sweep.paths.submission(1) / "stop").touch()
    told = "The task has not begun, and its submission was asked to stop."
    assert ending(sweep.paths, "1/0") == told


def followed_by_another(sweep: Sweep) -> None:
    """Add a submission, so that what is stored by now is not of the first one's doing."""
    shutil.copytree(sweep.paths.submission(1), sweep.paths.submission(2))


def test_logs_of_the_last_task_count_as_status_does(sweep: Sweep, attempt: Path) -> None:
    """Its report is older than what its processes finished when it broke, as on a full disk."""
    last = Attempt.read(attempt)
    replace(last, state="broken", done={"0": 1}, pending=last.runs - 1).write(attempt)
    runs = sweep.status()["runs"]
    done = runs["done"] + runs["copy"]
    assert ending(sweep.paths, "1/0") == f"The task broke: {done} of {last.runs} runs done."
    followed_by_another(sweep)
    assert ending(sweep.paths, "1/0").startswith(f"The task broke: 1 of {last.runs} runs done, ")


def test_logs_of_a_task_count_what_earlier_attempts_did(sweep: Sweep, attempt: Path) -> None:
    followed_by_another(sweep)
    last = Attempt.read(attempt)
    total, earlier = last.runs, attempt.with_name("0000-1")
    earlier.mkdir()
    first = replace(last, started=last.started - 1, done={"0": total - 9}, pending=9)
    replace(first, state="interrupted").write(earlier)
    again = replace(last, state="broken", done={}, pending=9)
    told = f"The task broke: {total - 9} of {total} runs done (0 in its last attempt), 9 left."
    for begun in (first, replace(first, done={"0": 1}, pending=total - 1)):
        replace(begun, state="running").write(earlier)  # killed; its report may be old
        again.write(attempt)
        assert ending(sweep.paths, "1/0") == told
    replace(again, failed={"0": 2}).write(attempt)
    assert f": {total - 11} of {total} runs done (0 in" in ending(sweep.paths, "1/0")


def test_logs_without_a_task_are_those_of_the_last_one(sweep: Sweep, attempt: Path) -> None:
    code, of_task = inside("logs", sweep.directory, "1/0")
    others = f"Also: manyseed logs {sweep.directory} with another task, a run, or --failed\n"
    asked = inside("logs", sweep.directory)
    assert asked == (code, f"Task 1/0, which began last:\n{of_task}{others}")
    of_json = inside("logs", sweep.directory, "--json")
    assert of_json == inside("logs", sweep.directory, "1/0", "--json")
    shutil.copytree(sweep.paths.submission(1), sweep.paths.submission(2))
    assert "Task 2/0, which began last:\n" in inside("logs", sweep.directory)[1]
    for folder in (sweep.paths.submission(2) / "lives").iterdir():
        shutil.rmtree(folder)
    assert "Task 1/0, which began last:\n" in inside("logs", sweep.directory)[1]
    shutil.rmtree(attempt)
    assert (
        "The task has not begun, and its process has ended." in inside("logs", sweep.directory)[1]
    )
    code, told = inside("logs", sweep.directory, "1/0", "--failed")
    assert (code, "cannot be combined with --failed" in told) == (2, True)


def test_logs_of_a_sweep_that_was_never_submitted(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(
        'name = "s"\nseed = 1\nrepeats = 1\nruns = 2\n[[grid]]\ndataset = ["sklearn:wine"]\n'
        'classifier = ["lr-sgd"]\n'
    )
    assert inside("plan", file, "--out", tmp_path / "out")[0] == 0
    code, told = inside("logs", tmp_path / "out")
    assert (code, "no task was submitted yet" in told) == (2, True)
    assert "manyseed submit" in told


@pytest.mark.usefixtures("without_slurm")
def test_logs_of_failed_runs_name_tasks_that_died(sweep: Sweep, attempt: Path) -> None:
    none = "No run failed.\n"
    assert inside("logs", sweep.directory, "--failed") == (0, none)
    replace(Attempt.read(attempt), state="broken", reason="no space left").write(attempt)
    code, printed = inside("logs", sweep.directory, "--failed")
    told = f"1 task died: manyseed logs {sweep.directory} 1/0"
    assert (code, printed) == (0, f"{none}{told}\n")
    as_on_a_cluster(sweep.directory)
    (file,) = sweep.paths.submission(2).glob("lives/*/progress.json")
    replace(Attempt.read(file.parent), state="running").write(file.parent)
    log = sweep.paths.submission(2) / "submitit" / "77_0_0_log.err"
    log.write_text("slurmstepd: error: Detected 1 oom_kill event in StepId=77.0")
    _, printed = inside("logs", sweep.directory, "--failed")
    assert printed == f"{none}2 tasks died: manyseed logs {sweep.directory} 77_0\n"
    assert inside("logs", sweep.directory, "77_0")[0] == 0


@pytest.mark.parametrize("what", ["1/²", "²/0", f"1/{'9' * 5000}", "1/9"])
def test_what_is_no_task_is_told(sweep: Sweep, what: str) -> None:
    with pytest.raises(UserError, match="no such task or run"):
        list(logs(sweep.paths, what))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["log.txt", "*_log.out"])
def test_a_pipe_in_the_place_of_what_was_printed_blocks_nobody(sweep: Sweep, name: str) -> None:
    (file,) = sweep.paths.submission(1).rglob(name)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(DamagedFile, match="is not a plain file"):
        list(logs(sweep.paths, "1/0"))


def test_logs_of_a_run_name_lost_reports(
    sweep: Sweep,
    attempt: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    replace(Attempt.read(attempt), failed={"0": 1}).write(attempt)
    for file in (attempt / "failures.jsonl", sweep.paths.submission(1) / "intent.json"):
        file.unlink(missing_ok=True)
        monkeypatch.setattr("sys.argv", ["manyseed", "logs", str(sweep.directory), "0:0:0"])
        with pytest.raises(SystemExit, match="0"):
            main()
        assert str(file) in " ".join(capsys.readouterr().err.split())


def _refuse(*_: object) -> None:
    raise RuntimeError("this machine is full")


def test_lost_failures_are_named_while_runs_are_missing(
    sweep: Sweep,
    attempt: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    failures = [Failure(0, row, 0, 0, row, "ValueError: x", "T") for row in (1, 2)]
    add_failures(attempt, failures[:1], sweep.survey().plan.identity)
    replace(Attempt.read(attempt), failed={"0": 2}).write(attempt)
    assert sweep.status()["problems"] == []  # all runs are finished: these were trained again
    larger = tmp_path / "larger.toml"
    larger.write_text(sweep.paths.sweep_file.read_text().replace("runs    = 4", "runs    = 5"))
    sweep = Sweep.plan(larger, sweep.directory)
    file = attempt / "failures.jsonl"
    told = f"{file} lacks 1 of the 2 failures that its attempt reported"
    assert [text[: len(told)] for text in sweep.status()["problems"]] == [told]
    sweep.analyze(Options(resamples=10))
    for verb, *option in (["logs", "--failed"], ["report"]):
        monkeypatch.setattr("sys.argv", ["manyseed", verb, str(sweep.directory), *option])
        with pytest.raises(SystemExit, match="0"):
            main()
        assert told in " ".join(capsys.readouterr().err.split())
    assert told.removeprefix(f"{sweep.directory}/") in sweep.paths.report.read_text()
    said: list[str] = []
    monkeypatch.setattr(local, "submit", _refuse)
    with pytest.raises(UnavailableError, match="full"):
        sweep.submit(cluster="local", tell=said.append)
    assert [text[: len(told)] for text in said] == [told]
    add_failures(attempt, failures[1:], "")
    assert sweep.status()["problems"] == []


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        # the error of copies is not among the three most frequent ones, and it is of the second
        ("AAAA BBB CCC bb D", [(5, "B"), (4, "A"), (3, "C")]),
        # their origin is not
        ("AAA BBB CCC dddd D", [(5, "D"), (3, "A"), (3, "B")]),
        ("AAA BB", [(3, "A"), (2, "B")]),
        ("AAAA BBB CC D", [(4, "A"), (3, "B"), (2, "C")]),
        ("A aaaa", [(5, "A")]),
        ("", []),
    ],
)
def test_copies_of_a_failed_run_count_with_its_error_whichever_errors_are_shown(
    runs: str, expected: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[int, Failure] = {}
    cells = {error: cell for cell, error in enumerate(sorted(set(runs.upper()) - {" "}))}
    for letter in sorted(runs.replace(" ", "")):  # what copies are of is run 0 of their repeat
        cell = cells[letter.upper()]
        error = f"RuntimeError: {COPY_OF_FAILED}" if letter.islower() else letter
        run = sum(one.cell == cell for one in found.values())
        found[len(found)] = Failure(cell, run, cell, 0, run, error, "T")
    counts = Counter(one.error for one in found.values()).most_common(3)
    state = {
        "runs": {"failed": len(found)},
        "failures": [
            {"error": error, "count": count, "varies": False, "file": ""} for error, count in counts
        ],
    }
    survey = SimpleNamespace(failures=found)
    monkeypatch.setattr("manyseed.orchestrator.progress.logs.survey", lambda paths: survey)
    given = _failures(SimpleNamespace(paths=None), state)  # type: ignore[arg-type]
    assert given == [(*one, False) for one in expected]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mlp", "mlp"),
        ("lr-sgd~none~perturb_labels", "lr-sgd, with label noise"),
        ("resnet~none", "resnet, with augmented images"),
        ("mlp~snapshot", "mlp, snapshot"),
        (
            "cnn~mc-dropout~test_augment~perturb_labels",
            "cnn, mc-dropout, with transformed test images and label noise",
        ),
    ],
)
def test_groups_are_named_in_words(name: str, words: str) -> None:
    assert module.in_group(name) == words
