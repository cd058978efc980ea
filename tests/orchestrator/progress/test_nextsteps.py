"""The command that a sweep's status names next: in each state that a sweep passes through."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from manyseed import Sweep
from manyseed.orchestrator.cli.train import say_kept
from manyseed.orchestrator.computing.tables import TABLES
from manyseed.orchestrator.disk.records import write_json
from manyseed.orchestrator.plans.plan import CELLS
from manyseed.orchestrator.progress.status import next_steps, unanalysed, unreported
from manyseed.orchestrator.submissions.retries import Mended
from tests.orchestrator.conftest import QUICK, inside, write

DONE = {"done": 60, "copy": 4, "failed": 0, "missing": 0}
CHANGED = Mended(" with the changed code", ["--other-recipe"])
NO_CELLS = pl.DataFrame(schema=dict(CELLS))


@pytest.fixture
def paths(tmp_path: Path) -> Any:
    (tmp_path / "results").mkdir()
    return SimpleNamespace(
        directory=tmp_path,
        analysis=tmp_path / "results" / "analysis.json",
        results=tmp_path / "results",
        report=tmp_path / "index.html",
        submissions=list,
        copying=("", ""),
    )


APART = "classifier,train_fraction,perturb_continuous"
"""The axes in which the cells of the small sweep differ."""


def verbs(paths: Any, runs: dict[str, int], *tasks: str, **given: Any) -> list[str]:
    """Return what is said, and the verb of each command."""
    steps = next_steps(paths, DONE | runs, tasks, NO_CELLS, **given)
    return [f"{what}: {arguments[0]}" for what, arguments in steps]


def test_training_is_watched_or_goes_on(paths: Any) -> None:
    some = {"done": 10, "missing": 5}
    assert verbs(paths, some, "running", "finished") == ["Watch: status"]
    assert verbs(paths, some, "unknown") == ["Watch: status"]
    assert verbs(paths, {}, "running", "unknown") == ["Next: analyze"]  # nothing is missing
    assert verbs(paths, some, "finished", "killed") == ["Continue with: resume"]
    assert verbs(paths, some, "held") == ["Continue with: resume"]
    assert verbs(paths, some) == ["Continue with: resume"]  # what was submitted is tidied away
    assert verbs(paths, {"done": 0, "copy": 0, "missing": 5}) == ["Next: submit"]
    (step,) = next_steps(paths, DONE | some, ["out_of_memory"], NO_CELLS, memory="2G")
    assert step[1][:4] == ("resume", paths.directory, "--memory", "2G")
    failed = some | {"failed": 2}
    assert verbs(paths, failed, "running") == ["Tracebacks: logs", "Watch: status"]
    assert verbs(paths, failed, "finished") == ["Tracebacks: logs", "Continue with: resume"]


def test_runs_that_failed_are_retried_or_left_out(paths: Any) -> None:
    both = ["Tracebacks: logs", "Retry: resume"]
    assert verbs(paths, {"failed": 2}, "finished") == [*both, "Without them: analyze"]
    assert verbs(paths, {"done": 0, "copy": 0, "failed": 2}, "finished") == both


def test_failed_runs_beside_missing_ones_have_a_command_of_their_own(paths: Any) -> None:
    """Without ``--failed``, only the missing ones would be trained."""
    runs = DONE | {"missing": 12, "failed": 8}
    steps = [*next_steps(paths, runs, ["finished"], NO_CELLS, mended=CHANGED)]
    assert steps[1:] == [
        (
            "Continue with the changed code",
            ("resume", paths.directory, "--failed", "--other-recipe"),
        ),
        ("Then the missing ones", ("resume", paths.directory, "--other-recipe")),
    ]


def test_runs_that_are_being_retried_are_watched(paths: Any) -> None:
    failed = {"failed": 2}
    for alive in ("waiting", "running"):
        assert verbs(paths, failed, "finished", alive) == ["Tracebacks: logs", "Watch: status"]
    retry = ["Tracebacks: logs", "Retry: resume", "Without them: analyze"]
    assert verbs(paths, failed, "running", stopping=True) == retry
    assert verbs(paths, failed, "unknown") == retry


def test_what_is_still_to_be_written_is_no_fault(paths: Any) -> None:
    assert unanalysed(paths, DONE) == f"{paths.analysis} is not written yet"
    write_json(paths.analysis, {"runs": {"analysed": 64}})
    assert unreported(paths) == f"{paths.report} is not written yet"


def test_a_retry_of_failed_runs_says_that_it_leaves_missing_ones_out(
    quick: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = {"runs": 64, "done": 52, "copy": 0, "failed": 8, "missing": 4}
    state: Any = SimpleNamespace(counts=counts, with_state=lambda _: quick.survey().runs.clear())
    for failed, told in (
        (True, "4 not finished, for which resume without --failed is needed, 8 failed."),
        (False, "4 not finished, 8 failed, for which --failed is needed."),
    ):
        say_kept(quick, state, failed=failed)
        assert told in " ".join(capsys.readouterr().out.split())


def test_after_an_analysis_of_all_that_is_finished_comes_the_report(paths: Any) -> None:
    runs = {"done": 60, "copy": 4}
    assert unanalysed(paths, runs)
    assert verbs(paths, runs, analysing=True) == ["Look again: status"]
    write_json(paths.analysis, {"runs": {"analysed": 61}})
    assert unanalysed(paths, runs) == "the results cover 61 of 64 finished runs"
    assert verbs(paths, runs) == ["Next: analyze"]
    write_json(paths.analysis, {"runs": {"analysed": 64}})
    assert not unanalysed(paths, runs)
    assert verbs(paths, runs) == ["Next: report"]
    paths.report.touch()
    assert verbs(paths, runs) == ["Next: query"]
    paths.analysis.write_text("{")
    assert str(paths.analysis) in unanalysed(paths, runs)


def test_a_page_that_is_older_than_a_table_is_written_again(paths: Any) -> None:
    assert unreported(paths)
    write_json(paths.analysis, {})
    table = paths.results / "cells.parquet"
    for age, file in ((30, paths.analysis), (20, paths.report), (10, table)):
        file.touch()
        os.utime(file, (1e9 - age, 1e9 - age))
    assert unreported(paths) == f"{table} is newer than {paths.report}"
    os.utime(table, (1e9 - 20, 1e9 - 20))
    for name in ("ensembles", "ensemble_draws"):  # drawn by howmany, from the same results
        (paths.results / f"{name}.parquet").touch()
    assert not unreported(paths)


@pytest.mark.usefixtures("without_slurm")
def test_a_real_sweep_is_told_what_it_waits_for(quick: Sweep, tmp_path: Path) -> None:
    planned = Sweep.plan(write(tmp_path / "quick.toml", QUICK), tmp_path / "planned")
    code, told = inside("status", planned.directory)
    assert (code, told.splitlines()[-1]) == (3, f"Next: manyseed submit {planned.directory}")
    tuned = QUICK.replace('name    = "quick"', 'name = "tuned"') + "\n[tune]\ndraws = 2\n"
    tuned = tuned.replace("[dataset", 'hparams = ["tuned"]\n\n[dataset', 1)
    other = Sweep.plan(write(tmp_path / "tuned.toml", tuned), tmp_path / "tuned")
    assert other.status()["next"] == [
        {"what": "Next", "command": f"manyseed plan {other.directory} --tune"}
    ]
    sweep = Sweep(shutil.copytree(quick.directory, tmp_path / "done"))
    shutil.rmtree(sweep.paths.results, ignore_errors=True)
    shutil.rmtree(sweep.paths.report.parent, ignore_errors=True)
    for verb in ("analyze", "report"):
        state = sweep.status()
        (step,) = state["next"]
        assert step == {"what": "Next", "command": f"manyseed {verb} {sweep.directory}"}
        assert state["report"] is None
        given = ("--cluster", "local") if verb == "analyze" else ()  # which run takes, too
        assert inside(verb, sweep.directory, *given)[0] == 0
    code, told = inside("status", sweep.directory)
    assert code == 0
    assert told.splitlines()[-2:] == [
        f"Report: {sweep.paths.report}",
        f"Next: manyseed query {sweep.directory} --by {APART}",
    ]
    _, told = inside("submit", sweep.directory, "--cluster", "local")
    assert told.splitlines() == [
        "Nothing to submit: no run is missing.",
        f"Next: manyseed query {sweep.directory} --by {APART}",
    ]
    table = sweep.paths.results / "cells.parquet"
    later = sweep.paths.report.stat().st_mtime + 10
    os.utime(table, (later, later))
    for verb in ("status", "resume"):
        told = inside(verb, sweep.directory)[1]
        assert told.splitlines()[-2:] == [
            f"{table} is newer than {sweep.paths.report}",
            f"Next: manyseed report {sweep.directory}",
        ]


def test_results_that_are_damaged_are_named_with_what_heals_them(
    quick_analysed: Sweep, tmp_path: Path
) -> None:
    sweep = Sweep(shutil.copytree(quick_analysed.directory, tmp_path / "sweep"))
    analyze = {"what": "Next", "command": f"manyseed analyze {sweep.directory}"}
    sweep.paths.report.parent.mkdir(exist_ok=True)
    sweep.paths.report.touch()
    whole = sweep.status()
    assert whole["outdated"] == []
    tables = sorted(sweep.paths.results.glob("*.parquet"))
    assert len(tables) > len(TABLES)
    for file in tables:
        content, at = file.read_bytes(), file.stat().st_mtime_ns
        bit = bytearray(content)
        bit[len(content) // 2] ^= 1
        for damaged, later in ((bit, 1), (content[: len(content) // 2], 1), (content[:-9], 0)):
            file.write_bytes(damaged)
            os.utime(file, ns=(at, at + later * 10**12))
            state = sweep.status()
            (told,) = state["outdated"]
            assert told.startswith(f"The results are damaged: {file}: "), told
            assert told.endswith(f": {analyze['command']}"), told
            assert (state["next"], state["report"]) == ([analyze], None)
        file.write_bytes(content)
        os.utime(file, ns=(at, at))
    for file in {*sweep.paths.results.iterdir()} - {*tables, sweep.paths.analysis}:
        file.write_bytes(file.read_bytes()[:20])  # made again without a word
    assert sweep.status() == whole
    file = sweep.paths.table("runs")
    file.unlink()
    code, told = inside("status", sweep.directory)
    assert (code, f"{file}: is lost" in " ".join(told.split())) == (0, True), told
    assert told.splitlines()[-1] == f"Next: {analyze['command']}"
    assert inside("analyze", sweep.directory)[0] == 0
    assert sweep.status()["outdated"] == [
        f"{sweep.paths.analysis} is newer than {sweep.paths.report}"
    ]
