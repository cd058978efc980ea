"""From a sweep file to results, as a user does it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import textwrap
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import xarray as xr

from manyseed import Sweep
from manyseed.analysis.options import Options
from manyseed.orchestrator.store.schema import GroupSpec
from manyseed.orchestrator.tasks.intent import STOPPED, stop_request
from tests.here import real_processes
from tests.orchestrator.conftest import (
    MANYSEED,
    QUICK,
    apart,
    assert_equal,
    command,
    stored,
    train,
    wait_until,
    write,
)

SINGLE_CLASS = """
name    = "some-fail"
seed    = 3
repeats = 2
runs    = 2

[[grid]]
dataset        = ["rare"]
classifier     = ["lr-sgd"]
train_fraction = [3, 1.0]

[dataset.rare]
source    = "synthetic:gaussian"
n_samples = 400
weights   = [0.97, 0.03]
"""
"""Three stratified points of such a dataset are of one class: those fits raise."""

SLOWER = """
name    = "slower"
seed    = 11
repeats = 2
runs    = 8

[[grid]]
dataset            = ["points"]
classifier         = ["xgb", "lr-sgd"]
perturb_continuous = ["relative:0.1", "relative:0.5"]

[dataset.points]
source     = "synthetic:gaussian"
n_samples  = 3000
test       = 1000
"""


def test_run_goes_from_the_sweep_file_to_the_report(tmp_path: Path) -> None:
    sweep_file = write(tmp_path / "quick.toml", QUICK)
    result = command("run", sweep_file, "--out", tmp_path / "sweep", "--workers", 2)
    assert result.returncode == 0, result.stderr
    assert "64 runs in 8 cells of 2 groups" in result.stdout
    fits_a_screen(result.stdout)
    sweep = Sweep(tmp_path / "sweep")
    runs = sweep.results["runs"]
    assert len(runs) == 64
    assert runs["accuracy"].min() > 0.7
    assert {"dataset", "classifier", "train_fraction", "perturb_continuous"} <= set(runs.columns)
    assert sweep.paths.report.read_text().startswith("<!")
    # all is done: the same command trains nothing and ends well
    again = command("run", sweep_file, "--out", tmp_path / "sweep")
    assert again.returncode == 0, again.stderr
    assert len(list(sweep.paths.submissions())) == 1
    fits_a_screen(again.stdout)
    # what the screen leaves out is where it says
    shown = re.search(r"^Why, and 1 note: manyseed (.*)$", again.stdout, re.MULTILINE)
    assert shown, again.stdout
    everything = command(*shlex.split(shown[1])).stdout
    assert "95 %" in everything
    assert "With so few test points in cancer" in everything
    assert everything.count("rejects some resamples at every trimming level") == 1


def fits_a_screen(said: str) -> None:
    """Assert that a run's output answers what a first look wants, in 40 lines of 80 columns."""
    lines = [line for text in said.splitlines() for line in textwrap.wrap(text, 80) or [""]]
    assert len(lines) <= 40, said
    assert all(said.count(text) == 1 for text in said.splitlines() if text), said
    wanted = (
        "64 runs in 8 cells of 2 groups",
        "cancer: lr-sgd 0.",
        "Which is better: ",
        "Between seeds, sd of accuracy: ",
        "cells have enough, ",
        "Nothing is found to change accuracy; ",
        "Report: ",
    )
    for text in wanted:
        assert text in said, said
    assert "rejects some resamples" not in said


@pytest.mark.process
def test_runs_are_equal_whatever_the_number_of_workers(quick: Sweep, tmp_path: Path) -> None:
    """That of the tests has trained the others alone."""
    two = train(quick.paths.sweep_file, tmp_path / "two", workers=2)
    assert_equal(stored(two), stored(quick))


def test_identical_runs_are_trained_once_and_stored_as_copies(quick: Sweep) -> None:
    data = quick.predictions["cancer/xgb"].to_dataset()
    cells = pl.read_parquet(quick.paths.cells)
    identical = set(cells.filter("identical")["cell"])
    assert len(identical) == 1
    copies = data["status"].to_numpy() == 2
    is_copy = np.isin(data["cell"].to_numpy(), list(identical)) & (data["run_index"].to_numpy() > 0)
    np.testing.assert_array_equal(copies, is_copy)
    assert int(copies.sum()) == 2 * 3
    first = data.isel(run=(data["cell"].isin(list(identical)) & (data["run_index"] == 0)).values)
    for repeat in range(2):
        rows = data["cell"].isin(list(identical)) & (data["repeat_index"] == repeat)
        margins = data["margin"].isel(run=rows.values).to_numpy()
        expected = first["margin"].isel(run=repeat).to_numpy()
        np.testing.assert_array_equal(margins, np.broadcast_to(expected, margins.shape))


def test_plain_xarray_reads_the_store(quick: Sweep) -> None:
    spec = GroupSpec.from_attributes(json.loads(quick.paths.groups.read_bytes())[0])
    data = xr.open_zarr(quick.paths.store, group=spec.path, consolidated=False)
    assert data["margin"].dims == ("run", "epoch", "sample")
    done = data.isel(run=np.flatnonzero(np.isin(data["status"].to_numpy(), (1, 2))))
    assert done.sizes["run"] == 32
    predicted = done["margin"].to_numpy() >= 0
    np.testing.assert_array_equal(done["label"].to_numpy(), predicted)


@pytest.mark.slow
@pytest.mark.process
def test_plain_xarray_sees_true_rows_while_the_sweep_runs(
    tmp_path: Path, stopped: list[Sweep]
) -> None:
    sweep = Sweep.plan(write(tmp_path / "slower.toml", SLOWER), tmp_path / "sweep")
    stopped.append(sweep)
    sweep.submit(workers=1)
    journals = sweep.paths.journals
    wait_until(
        lambda: any(file.stat().st_size > 5_000 for file in journals.glob("*.journal")),
        "a journal with finished runs",
    )
    sweep.cancel()  # what is finished is published
    sweep.wait()
    sweep.submit(workers=1)
    seen: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def look() -> bool:
        for path in ("points/lr-sgd", "points/xgb"):
            try:
                data = xr.open_zarr(sweep.paths.store, group=path, consolidated=False)
                status = data["status"].to_numpy()
                planned = data["cell"].to_numpy() >= 0
                done, missing = np.flatnonzero(status == 1), (status == 0) & planned
                if len(done) and missing.any():
                    seen[path] = (done, data["margin"].isel(run=done).to_numpy())
            except (OSError, ValueError):
                continue  # a file was replaced between two opens
        return bool(seen)

    wait_until(look, "a store with done and missing rows")
    assert sweep.is_running
    sweep.wait()
    assert sweep.status()["runs"]["missing"] == 0
    for path, (rows, margins) in seen.items():
        final = xr.open_zarr(sweep.paths.store, group=path, consolidated=False)
        np.testing.assert_array_equal(final["margin"].isel(run=rows).to_numpy(), margins)


@pytest.mark.slow
def test_a_run_that_raises_is_failed_and_the_rest_goes_on(tmp_path: Path) -> None:
    sweep_file = write(tmp_path / "fail.toml", SINGLE_CLASS)
    result = command("run", sweep_file, "--out", tmp_path / "sweep", "--workers", 2)
    assert result.returncode == 1, result.stdout + result.stderr
    sweep = Sweep(tmp_path / "sweep")
    assert sweep.status()["runs"] == {"runs": 8, "done": 4, "copy": 0, "failed": 4, "missing": 0}
    for failure in sweep.survey().failures.values():
        assert "Traceback" in failure.traceback
        assert "class" in failure.error
    status = command("status", sweep.directory)
    assert status.returncode == 1
    assert "4 failed" in status.stdout
    # a plain resume leaves failed runs alone; --failed takes exactly them, and they fail again
    assert "no run is missing" in command("resume", sweep.directory).stdout
    again = sweep.submit(failed=True, workers=1)
    assert again is not None
    assert again.n_runs == 4
    sweep.wait()
    assert sweep.status()["runs"]["failed"] == 4


def test_interrupting_a_run_loses_nothing_and_the_same_command_goes_on(tmp_path: Path) -> None:
    sweep_file = write(tmp_path / "slower.toml", SLOWER)
    directory = tmp_path / "sweep"
    arguments = [MANYSEED, "run", sweep_file, "--out", directory, "--workers", "2"]
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    journals = directory / "tasks" / "journals"
    wait_until(
        lambda: sum(file.stat().st_size for file in journals.glob("*.journal")) > 20_000,
        "journals with finished runs",
    )
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 130, output
    assert f"Continue with: manyseed resume {directory} --workers 2" in output
    sweep = Sweep(directory)
    assert not sweep.is_running
    before = sweep.status()["runs"]
    assert before["done"] > 0
    assert before["missing"] > 0, "the interruption came too late to mean anything"
    assert f"{before['done'] + before['copy']} of 64 runs are finished." in output
    result = command(*arguments[1:])
    assert result.returncode == 0, result.stdout + result.stderr
    assert Sweep(directory).status()["runs"]["done"] == 64
    assert_equal(stored(sweep), stored(train(sweep_file, tmp_path / "undisturbed")))


@pytest.mark.parametrize("place", ["submitted", "watching"])
def test_ctrl_c_before_the_watching_stops_what_was_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Nothing trains on in the background after a command that says it was interrupted."""
    sweep_file, directory = write(tmp_path / "slower.toml", SLOWER), tmp_path / "sweep"
    submits = Sweep.submit

    @wraps(submits)  # options of commands are read from it
    def interrupted(*given: Any, **options: Any) -> None:
        if place == "submitted":
            submits(*given, **options)
        raise KeyboardInterrupt

    if place == "submitted":
        monkeypatch.setattr(Sweep, "submit", interrupted)
    else:
        monkeypatch.setattr("manyseed.orchestrator.cli.train.say_kept", interrupted)
    with real_processes():
        done = command("run", sweep_file, "--out", directory, "--workers", "2")
    monkeypatch.undo()
    assert done.returncode == 130, done.output
    assert "Stopping after the fits in flight." in done.output
    assert f"Continue with: manyseed resume {directory} --workers 2" in done.output
    assert not Sweep(directory).is_running


WAITS = """
import time
from pathlib import Path

def fit(X, X_test, init):
    if len(X) > 64:  # no probe's
        Path({begun!r}).touch()
        while not Path({go!r}).exists():
            time.sleep(0.01)
    return init.normal(size=len(X_test))
"""


@pytest.mark.process
def test_a_run_that_ignores_ctrl_c_and_is_terminated_stops_what_trains_here(
    tmp_path: Path, stopped: list[Sweep]
) -> None:
    """As in the background of a script, or under nohup."""
    begun, go = tmp_path / "begun", tmp_path / "go"
    write(tmp_path / "waits.py", WAITS.format(go=str(go), begun=str(begun)))
    text = """
    name = "waits"
    seed = 1
    repeats = 1
    runs = 6
    [[grid]]
    dataset = ["sklearn:breast_cancer"]
    classifier = ["mine"]
    [classifier.mine]
    train = "waits:fit"
    scores = "decisions"
    """
    sweep_file, directory = write(tmp_path / "waits.toml", text), tmp_path / "sweep"
    arguments = [MANYSEED, "run", sweep_file, "--out", directory, "--workers", "1"]
    process = subprocess.Popen(
        ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_until(begun.exists, "a fit in flight")
    stopped.append(sweep := Sweep(directory))
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 143, output
    told = "What trains here ends after the fits in flight.\nContinue with: manyseed resume "
    assert told in output
    (submission,) = sweep.submissions()
    assert stop_request(submission.folder) == STOPPED
    go.touch()
    sweep.wait()
    runs = sweep.status()["runs"]
    assert (runs["failed"], runs["done"] > 0) == (0, True), "what was in flight is kept"


@pytest.mark.slow
@pytest.mark.process
def test_there_are_never_more_processes_than_asked(tmp_path: Path, stopped: list[Sweep]) -> None:
    sweep = Sweep.plan(write(tmp_path / "slower.toml", SLOWER), tmp_path / "sweep")
    stopped.append(sweep)
    sweep.submit(workers=2)
    counts = []
    while sweep.is_running:
        counts.append(len(training_processes(sweep)))
    assert max(counts) == 2
    assert sweep.submit(workers=2) is None


@pytest.mark.slow
@pytest.mark.process
def test_submit_while_it_runs_submits_nothing_twice(tmp_path: Path, stopped: list[Sweep]) -> None:
    sweep = Sweep.plan(write(tmp_path / "slower.toml", SLOWER), tmp_path / "sweep")
    stopped.append(sweep)
    assert sweep.submit(workers=1) is not None
    assert sweep.submit(workers=1) is None
    assert "being trained" in command("submit", sweep.directory).stdout
    assert sweep.cancel() == (1, 0)
    sweep.wait()
    assert sweep.submit(workers=2) is not None
    sweep.wait()
    assert sweep.status()["runs"]["missing"] == 0
    assert sweep.status()["duplicates"] == 0


def test_another_recipe_is_refused_until_it_is_wanted(tmp_path: Path) -> None:
    sweep_file = write(tmp_path / "quick.toml", QUICK.replace('"lr-sgd", "xgb"', '"lr-sgd"'))
    sweep = Sweep.plan(sweep_file, tmp_path / "sweep")
    recipes = sweep.paths.recipes
    recipes.mkdir()
    (recipes / "0001.json").write_text('{"form": "sequential", "device_class": "abacus"}')
    refused = command("submit", sweep.directory, "--cluster", "local")
    assert refused.returncode == 2
    assert "--other-recipe" in refused.stderr
    assert not sweep.paths.submissions()
    assert command("submit", sweep.directory, "--workers", 2, "--other-recipe").returncode == 0
    sweep.wait()
    assert len(list(recipes.glob("*.json"))) == 2


ODD = ("-x", "~x", "run [1]", "lr=0.1", "50% done %j", "ünï#1", "a*b?", "$HOME", "it's")
SMALL = """
name = "small"
seed = 1
repeats = 2
runs = 3
[[grid]]
dataset = ["sklearn:iris"]
classifier = ["lr-sgd"]
"""


def test_a_sweep_lies_in_a_folder_of_any_name(tmp_path: Path) -> None:
    """Like a pattern, a partition, an option, a user, or with signs of a shell, SLURM and URLs."""
    write(tmp_path / "small.toml", SMALL)
    for name in ODD:
        done = command("plan", "small.toml", "--out", f"{name}/sweep", cwd=tmp_path)
        assert done.returncode == 0, done.output
        printed = shlex.split(done.stdout.splitlines()[-1])
        assert printed[:3] == ["Next:", "manyseed", "submit"]
        done = command("status", printed[3], cwd=tmp_path)
        assert done.returncode == 3, done.output
    sweep = train(tmp_path / "small.toml", tmp_path.joinpath(*ODD) / "sweep[2]", workers=1)
    sweep.analyze(Options(metrics=("accuracy",)), workers=1)
    where, table = sweep.directory, sweep.directory.parent / "x[1].parquet"
    back = where.with_name("b[1]")
    for words in (
        *(("query", where), ("verify", where), ("report", where), ("resume", where)),
        *(("answers", where), ("export", where, "-o", table), ("import", table, "--out", back)),
        *(("analyze", back, "--metric", "accuracy"), ("verify", back), ("query", back)),
        ("plot", where, "accuracy", "-o", where.with_name("f[1].svg")),
    ):
        done = command(*words)
        assert done.returncode == 0, f"{words}: {done.output}"
    assert Sweep(back).status()["runs"]["done"] == 6


@pytest.fixture
def users_folder(tmp_path: Path) -> Path:
    """A working folder that holds modules with our names, which must not be imported."""
    for name in ("analysis", "orchestrator", "queue"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the user’s own module')\n")
    for name in ("jobs", "slurm"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the user’s package')\n")
    text = QUICK.replace("runs    = 4", "runs    = 3").replace("repeats = 2", "repeats = 1")
    write(tmp_path / "sweep.toml", text)
    return tmp_path


@pytest.mark.slow
def test_a_folder_with_the_users_own_modules_changes_nothing(users_folder: Path) -> None:
    verbs = ("submit", "status", "resume", "verify", "compact", "analyze", "query", "report")
    for arguments in (
        ("plan", "sweep.toml", "--dry-run"),
        ("run", "sweep.toml", "--out", "sweep", "--cluster", "local"),
        ("plan", "sweep.toml", "--out", "sweep"),
        *((verb, "sweep") for verb in (*verbs, "cancel")),
    ):
        result = apart(*arguments, cwd=users_folder)
        assert result.returncode == 0, f"{arguments}: {result.stdout}{result.stderr}"


def training_processes(sweep: Sweep) -> list[int]:
    """Return the process ids that train for a sweep: not the nurseries that fork them."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            line = (entry / "cmdline").read_bytes()
            state, parent, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ours = (
            b"manyseed.orchestrator.working.process" in line
            and os.fsencode(sweep.directory) in line
        )
        if ours and state not in "ZX":
            found.append((int(entry.name), int(parent), b"\0nursery\0" in line))
    nurseries = {pid for pid, _, is_forked in found if is_forked}
    return [pid for pid, parent, is_forked in found if not is_forked or parent in nurseries]


def test_help_ends_in_examples() -> None:
    result = command("run", "--help")
    assert result.returncode == 0
    assert re.search(r"manyseed run examples/quickstart\.toml", result.stdout)
