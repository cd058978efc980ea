"""Results older than the runs: whatever shows them says so, once."""

from __future__ import annotations

import json
import shlex
import shutil
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.analysis.options import Options
from manyseed.orchestrator.results.caveats import newer
from tests.orchestrator.conftest import QUICK, command

OPTIONS = Options(metrics=("accuracy", "agreement"))
SAID = "of 12 of 16 finished runs; `manyseed analyze "
VERBS = (
    "query",
    "query --by classifier",
    "query --sql 'SELECT 1'",
    "compare",
    "howmany",
    "variance",
    "answers",
    "plot",
    "plot accuracy -o {out}/figure.svg",
    "report",
)


def predictions(runs: int, seed: int) -> dict[str, dict[str, object]]:
    random = np.random.default_rng(seed)
    y = np.repeat([0, 1], 20)
    return {
        name: {"labels": np.where(random.random((runs, 40)) < 0.8, y, 1 - y), "y_true": y}
        for name in ("cnn", "vit")
    }


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """Analysed, then given four more runs."""
    folder = tmp_path_factory.mktemp("older")
    sweep = Sweep.from_predictions(predictions(6, 1), folder / "sweep", dataset="digits")
    sweep.analyze(OPTIONS)
    assert newer(sweep.paths) == ""
    sweep.add_predictions({"cnn": predictions(4, 2)["cnn"]}, dataset="digits")
    return sweep


@pytest.mark.parametrize("line", VERBS)
def test_every_verb_says_how_many_runs_its_results_are_of(
    older: Sweep, tmp_path: Path, line: str
) -> None:
    verb, *rest = shlex.split(line.format(out=tmp_path))
    done = command(verb, older.directory, *rest)
    assert done.returncode == 0, done.output
    assert done.stderr.count(SAID) == 1
    assert SAID not in done.stdout, "programs read it"


def test_json_stays_json(older: Sweep) -> None:
    done = command("compare", older.directory, "--json")
    json.loads(done.stdout)
    assert done.stderr.count(SAID) == 1


def test_python_warns_where_it_is_called(older: Sweep) -> None:
    calls = {
        "results": lambda: older.results,
        "query": older.query,
        "compare": older.compare,
        "howmany": older.howmany,
        "variance": older.variance,
        "answers": older.answers,
        "plot": lambda: older.plot,
        "report": older.report,
    }
    for name, call in calls.items():
        with pytest.warns(UserWarning, match="finished runs") as told:
            call()
        said = SAID.replace("manyseed analyze ", 'Sweep("')
        assert [said in str(one.message) for one in told] == [True], name
        assert told[0].filename == __file__, name


def test_nothing_is_missing_where_all_planned_runs_have_finished(older: Sweep) -> None:
    with pytest.warns(UserWarning, match="finished runs"):
        answers = older.answers(why=True)
    with pytest.warns(UserWarning, match="finished runs"):
        page = older.report().read_text()
    assert not [text for text in answers if "planned runs" in text]
    header = page[page.index('<p class="warning">') :].partition("</p>")[0]
    assert SAID in header
    assert "Not every planned run" not in header
    assert "Analysed 12 of 12" not in page


def test_other_runs_in_place_of_dropped_ones_are_not_taken_for_them(
    quick_analysed: Sweep, tmp_path: Path
) -> None:
    """As many runs are finished as were analysed, but not the same ones."""
    sweep = Sweep(shutil.copytree(quick_analysed.directory, tmp_path / "sweep"))
    assert newer(sweep.paths) == ""
    sweep.drop("classifier = 'xgb'")
    assert newer(sweep.paths).startswith("These results are also of 32 runs that were dropped; `")
    assert sweep.status()["outdated"][0] == "the results hold 32 dropped runs"
    (tmp_path / "more.toml").write_text(
        QUICK.replace('"lr-sgd", "xgb"', '"lr-sgd"').replace("runs    = 4", "runs    = 8")
    )
    Sweep.plan(tmp_path / "more.toml", sweep.directory)
    sweep.submit(workers=1)
    sweep.wait()
    runs = sweep.status()["runs"]
    assert runs["done"] + runs["copy"] == len(pl.read_parquet(sweep.paths.table("runs"))) == 64
    told = newer(sweep.paths)
    assert "of 32 of 64 finished runs, and of 32 runs that were dropped; `manyseed analyze" in told
    state = sweep.status()
    assert state["outdated"][0] == "the results cover 32 of 64 finished runs"
    assert "manyseed analyze" in state["next"][-1]["command"]
    assert command("query", sweep.directory).stderr.count(told) == 1
    sweep.paths.report.parent.mkdir(exist_ok=True)
    sweep.paths.report.touch()  # as new as the results
    shown = command("status", sweep.directory).stdout
    assert f"Report, of earlier results: {sweep.paths.report}\n" in shown
    sweep.analyze(Options(resamples=5))
    assert newer(sweep.paths) == ""


def test_a_new_analysis_ends_it(older: Sweep, tmp_path: Path) -> None:
    copy = Sweep(shutil.copytree(older.directory, tmp_path / "copy"))
    copy.analyze(OPTIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(copy.results["runs"]) == 16


def test_results_whose_store_is_gone_are_shown(older: Sweep, tmp_path: Path) -> None:
    copy = Sweep(shutil.copytree(older.directory, tmp_path / "copy"))
    shutil.rmtree(copy.paths.store)
    assert newer(copy.paths) == ""
    assert len(copy.results["runs"]) == 12
