"""What tables, figures and lists say of themselves: which rows, how many runs, copies, pages."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from sklearn.ensemble import RandomForestClassifier

from manyseed import Sweep
from manyseed.analysis.questions.question import incomplete
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.results.answers.compare import compare_cells, reply
from tests.orchestrator.conftest import inside


def test_a_table_for_a_paper_says_which_runs_it_has(quick_analysed: Sweep) -> None:
    name = quick_analysed.results["cells"]["classifier"][0]
    asked = ("query", quick_analysed.directory, "--by", "dataset,classifier", "-f", "latex")
    assert "Only runs with" not in inside(*asked)[1]
    assert f"Only runs with classifier = {name}." in inside(*asked, "-w", f"classifier='{name}'")[1]


def test_a_grouped_table_tells_its_runs_and_test_sets(quick_analysed: Sweep) -> None:
    by = "dataset,classifier,perturb_continuous,train_fraction"
    asked = ("query", quick_analysed.directory, "--by", by, "-f", "markdown")
    cells = quick_analysed.results["cells"]
    text = inside(*asked)[1]
    found = re.search(r"Runs in a row: (\S+)(?: to \S+)?, on (\d+)", text)
    assert found, text
    assert int(found[1]) == cells["n_runs"].min()
    assert int(found[2]) == cells["n_repeats"].min()
    has_none = bool(cells["accuracy_std"].null_count())
    assert ("–: no standard deviation, as all runs" in text) is has_none
    assert "Standard deviations" in text
    text = inside(*asked, "--columns", "accuracy_mean")[1]
    assert "tandard deviation" not in text, "of columns that are not shown"


def test_copies_are_marked_where_they_are_listed(quick_analysed: Sweep) -> None:
    runs = quick_analysed.results["runs"]
    asked = ("query", quick_analysed.directory, "-t", "runs", "-w")
    copies = runs.filter("identical")["cell"].unique().to_list()
    others = runs.filter(~pl.col("cell").is_in(copies))["cell"].unique().to_list()
    for cells, is_marked in ((copies, True), (others, False)):
        if cells:
            text = inside(*asked, f"cell = {cells[0]}", "--sort", "accuracy")[1]
            assert ("identical" in text.splitlines()[0]) is is_marked, text
    assert copies


def test_pages_of_a_figure_are_counted(quick_analysed: Sweep, tmp_path: Path) -> None:
    file = tmp_path / "fig.pdf"
    text = inside("plot", quick_analysed.directory, "accuracy", "-o", file)[1]
    n = len(quick_analysed.plot.all("accuracy"))
    told = f": {n} pages; a file for each: -o {file.with_suffix('.svg')}" if n > 1 else "."
    assert text.replace("\n", "").endswith(f"fig.pdf{told}"), text


def test_lists_name_the_option_that_lists_all(quick_analysed: Sweep) -> None:
    text = inside("answers", quick_analysed.directory, "points", "--limit", "1")[1]
    found = re.search(r"--limit (\d+) lists all", text)
    assert found, text
    assert "limit =" not in text
    more = inside("answers", quick_analysed.directory, "howmany", "--limit", "1")[1]
    assert re.search(r"… \d+ more; see --limit", more), more


def test_a_metric_of_effects_is_proposed_by_its_mean(quick_analysed: Sweep) -> None:
    asked = ("query", quick_analysed.directory, "-t", "effects", "-w", "metric='accuracy'")
    assert "did you mean metric = 'accuracy_mean'? Others: " in inside(*asked)[1]


def test_a_list_of_classifiers_takes_names_alone(tmp_path: Path) -> None:
    both = [RandomForestClassifier(), "lr-sgd"]
    with pytest.raises(UserError, match="takes names of classifiers of manyseed only") as refused:
        Sweep.of(both, [[0.0], [1.0]] * 20, [0, 1] * 20, directory=tmp_path / "s")
    assert 'first.compare(second, "RandomForestClassifier", "lr-sgd")' in str(refused.value)


@pytest.mark.parametrize(
    ("finished", "failed", "told"),
    [
        (21, 3, "3 failed"),
        (20, 3, "3 failed and 1 is missing"),
        (21, 0, "3 are missing"),
    ],
)
def test_failed_runs_are_not_called_missing(finished: int, failed: int, told: str) -> None:
    [one] = incomplete(1, 4, 24, finished, failed)
    assert one.headline == f"Incomplete: of 24 planned runs, {told}."
    assert f"of 24 planned runs, {told}; 1 of 4 repeats lack runs." in one.evidence


def test_a_comparison_names_a_run_that_is_unlike_the_others(
    quick_analysed: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = compare_cells(quick_analysed.paths)
    assert all("Unlike the others" not in line for line in reply(found).below)

    def one_bad(runs: pl.DataFrame) -> pl.DataFrame:
        chosen = runs.sort("cell", "repeat_index", "run_index").head(1)
        return chosen.with_columns(low=pl.lit(0.9), high=pl.lit(0.95))

    monkeypatch.setattr("manyseed.analysis.questions.ranking.outlying", one_bad)
    found = compare_cells(quick_analysed.paths)
    [line] = [line for line in reply(found).below if "Unlike the others in accuracy" in line]
    assert re.search(r"counted: run \d+:0:0 \(0\.\d+; others 0\.900 to 0\.950\);", line)
