"""Result tables of a real sweep, questions to them, and the page in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import matplotlib.image
import numpy as np
import polars as pl
import pytest

from analysis.options import Options
from orchestrator import Sweep
from orchestrator.errors import UserError
from orchestrator.query import query
from orchestrator.store.groups import open_group
from orchestrator.store.reader import read_array
from tests.orchestrator.conftest import QUICK, command, write


@pytest.fixture(scope="module")
def analysed(quick: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    directory = tmp_path_factory.mktemp("analysed") / "sweep"
    shutil.copytree(quick.directory, directory)  # a sweep is one directory that can be moved
    sweep = Sweep(directory)
    sweep.analyze(Options(resamples=20))
    return sweep


def test_accuracy_in_the_table_is_that_of_the_stored_labels(analysed: Sweep) -> None:
    runs = analysed.results["runs"]
    assert len(runs) == 64
    cells = pl.read_parquet(analysed.paths.cells)
    rows = pl.read_parquet(analysed.paths.part(1)).join(cells, on="cell")
    for path in rows["path"].unique():
        group = open_group(analysed.paths.store, path)
        label, y_true = read_array(group, "label"), read_array(group, "y_true")
        for row in rows.filter(path=path).iter_rows(named=True):
            expected = np.mean(label[row["row"], -1] == y_true[row["repeat"]])
            found = runs.filter(cell=row["cell"], repeat_index=row["repeat"], run_index=row["run"])[
                "accuracy"
            ].item()
            assert found == pytest.approx(expected, abs=1e-12)


def test_error_consistency_in_the_table_is_that_of_the_error_sets(analysed: Sweep) -> None:
    cells = pl.read_parquet(analysed.paths.cells).filter(classifier="lr-sgd")
    cell, path = cells["cell"][0], cells["path"][0]
    group = open_group(analysed.paths.store, path)
    rows = pl.read_parquet(analysed.paths.part(1)).filter(cell=cell, repeat=1).sort("run")
    label, truth = read_array(group, "label")[rows["row"], -1], read_array(group, "y_true")[1]
    errors = [set(np.flatnonzero(row != truth).tolist()) for row in label]
    pairs = analysed.results["pairs"].filter(cell=cell, repeat_index=1)
    assert len(pairs) == 6
    for pair in pairs.iter_rows(named=True):
        a, b = errors[pair["run_i"]], errors[pair["run_j"]]
        assert pair["ec_local"] == pytest.approx(len(a & b) / len(a | b))
        assert pair["ec_global"] == pytest.approx(len(a & b) / len(truth))


def test_every_table_says_what_a_cell_is(analysed: Sweep) -> None:
    for name, table in analysed.results.items():
        assert {"dataset", "classifier", "train_fraction", "perturb_continuous"} <= set(
            table.columns
        ), name
    runs = analysed.results["runs"]
    assert runs["recipe"].unique().to_list() == [1]
    assert runs.filter(~pl.col("identical"))["fit_seconds"].min() > 0
    assert analysed.results["repeats"]["mixed_recipes"].any() is False


def test_a_second_analysis_gives_the_same_tables(analysed: Sweep) -> None:
    before = analysed.results
    again = analysed.analyze(Options(resamples=20), workers=1)
    for name, table in before.items():
        assert table.equals(again[name]), name


def test_query_filters_groups_and_sorts(analysed: Sweep) -> None:
    tables = analysed.results
    found = query(tables, "runs", where="classifier = 'xgb' AND train_fraction = 1.0")
    assert len(found) == 16
    assert set(found["classifier"]) == {"xgb"}
    means = query(tables, "runs", columns=["accuracy"], by=["classifier"], sort="-accuracy")
    assert means.columns == ["classifier", "n", "accuracy"]
    assert means["n"].to_list() == [32, 32]
    assert means["accuracy"].is_sorted(descending=True)
    expected = tables["runs"].filter(classifier="lr-sgd")["accuracy"].mean()
    assert means.filter(classifier="lr-sgd")["accuracy"].item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"table": "run"}, 'did you mean "runs"'),
        ({"where": "acuracy_mean > 1"}, 'did you mean "accuracy_mean"'),
        ({"where": "accuracy_mean >>> 1"}, "not a condition"),
        ({"columns": ["accuracy"], "table": "cells"}, 'did you mean "accuracy_'),
        ({"by": ["clasifier"]}, 'did you mean "classifier"'),
        ({"sort": "-delt"}, 'did you mean "delta"'),
    ],
)
def test_a_wrong_question_is_one_message(
    analysed: Sweep, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        query(analysed.results, **arguments)  # type: ignore[arg-type]


def test_query_prints_json_and_writes_files(analysed: Sweep, tmp_path: Path) -> None:
    result = command("query", analysed.directory, "--by", "classifier", "--json")
    rows = json.loads(result.stdout)["rows"]
    assert {row["classifier"] for row in rows} == {"lr-sgd", "xgb"}
    for name in ("pairs.csv", "pairs.parquet", "pairs.json"):
        file = tmp_path / name
        assert command("query", analysed.directory, "-t", "pairs", "-o", file).returncode == 0
        assert file.stat().st_size > 1000
    wrong = command("query", analysed.directory, "-o", tmp_path / "pairs.xlsx")
    assert wrong.returncode == 2
    assert ".parquet" in wrong.stderr


def test_results_before_an_analysis_are_refused_with_the_command(quick: Sweep) -> None:
    for verb in ("query", "report"):
        result = command(verb, quick.directory)
        assert result.returncode == 2
        assert f"manyseed analyze {quick.directory}" in result.stderr.replace("\n", "")


def test_analysis_without_a_finished_run_is_refused(tmp_path: Path) -> None:
    sweep = Sweep.plan(write(tmp_path / "quick.toml", QUICK), tmp_path / "sweep")
    for _ in range(2):
        result = command("analyze", sweep.directory)
        assert result.returncode == 2
        assert "no run is finished yet" in result.stderr
    assert not sweep.paths.results.exists()


def test_the_page_opens_in_a_browser(analysed: Sweep, tmp_path: Path) -> None:
    page = analysed.report()
    picture = tmp_path / "page.png"
    browser = shutil.which("chromium")
    assert browser, "the report is tested in a browser: apt-get install chromium"
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-sync"
    result = subprocess.run(
        [
            *(browser, *flags.split()),
            *("--disable-background-networking", "--disable-component-update"),
            *("--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}"),
            *("--window-size=1200,3000", f"--screenshot={picture}", page.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert picture.exists(), result.stderr
    assert "CONSOLE" not in result.stderr, result.stderr
    pixels = matplotlib.image.imread(picture)[..., :3]
    assert pixels.shape[1] == 1200
    # figures are drawn: many rows of the page hold saturated colours
    colourful = (pixels.max(axis=2) - pixels.min(axis=2) > 0.2).any(axis=1)
    assert colourful.sum() > 200
