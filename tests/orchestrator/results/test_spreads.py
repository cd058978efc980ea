"""One number under one word: summary, query, tables and page of one sweep side by side."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import zarr
from scipy import stats

from manyseed import Sweep
from manyseed.analysis.axes import AXES
from manyseed.analysis.options import Options
from manyseed.analysis.report.tables import with_sd
from manyseed.orchestrator.asking.query import query
from manyseed.orchestrator.computing.tables import Results
from manyseed.orchestrator.disk.records import read_json, write_json
from manyseed.orchestrator.errors import DamagedFile, UserError
from manyseed.orchestrator.results.answers.variance import VarianceSplit, reply
from manyseed.orchestrator.results.page import summary_table
from manyseed.orchestrator.store.arrays import MISSING
from tests.orchestrator.conftest import inside, own_copy, train, write

FILE = """
name    = "spreads"
seed    = 3
repeats = 3
runs    = 4

[[grid]]
dataset        = ["cancer", "wine"]
classifier     = ["xgb"]
train_fraction = [0.5, 1.0]
vary           = ["batch", "batch+train"]

[dataset.cancer]
source = "sklearn:breast_cancer"

[dataset.wine]
source = "sklearn:wine"
"""
"""xgb consumes no batches: on all data, runs differ only with train. Wine has three classes."""
VARYING = "NOT (vary = 'batch' AND train_fraction = 1.0)"

COMPARED = ("accuracy_std", "accuracy_range", "ec_local_mean", "churn_mean", "alpha_hat_mean")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """Cells of which some runs are missing."""
    return Sweep(own_copy(tmp_path_factory, "spreads", with_missing_runs) / "sweep")


def with_missing_runs(folder: Path) -> None:
    made = train(write(folder / "s.toml", FILE), folder / "sweep", workers=1)
    cells = pl.read_parquet(made.paths.cells)
    half = cells.filter(train_fraction=0.5, vary="batch+train", dataset="cancer")["cell"].item()
    rows = pl.read_parquet(made.paths.part(1)).filter(cell=half)
    lost = rows.filter(
        (pl.col("repeat") == 2) | ((pl.col("repeat") == 1) & pl.col("run").is_in([1, 3]))
    )
    for name in ("status", "crc"):  # as if these runs had never been trained
        rows_of = zarr.open_array(made.paths.store / "cancer" / "xgb" / name, mode="r+")
        rows_of[lost["row"].to_list()] = MISSING
    made.analyze(Options(resamples=10), workers=1)


@pytest.fixture(scope="module")
def page(sweep: Sweep) -> str:
    return sweep.report().read_text()


class Rows(HTMLParser):
    """Collects the rows of all tables of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.inside = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.rows[-1][-1] += data


def by_hand(sweep: Sweep, cell: int) -> dict[str, Any]:
    """What holds of a cell, from its runs and pairs, in loops."""
    runs = sweep.results["runs"].filter(cell=cell)
    pairs = sweep.results["pairs"].filter(cell=cell)
    means, squares, freedom, lists = [], 0.0, 0, dict[str, list[float]]()
    for repeat in sorted(set(runs["repeat_index"])):
        own = runs.filter(repeat_index=repeat)
        accuracy = own["accuracy"].to_numpy()
        means.append(accuracy.mean())
        if own["identical"].any():
            continue
        squares += float(((accuracy - accuracy.mean()) ** 2).sum())
        freedom += accuracy.size - 1
        lists.setdefault("accuracy_range", []).append(float(np.ptp(accuracy)))
        if levels := own["alpha_hat"].drop_nulls().to_list():  # none where two runs are finished
            lists.setdefault("alpha_hat_mean", []).append(float(np.mean(levels)))
        here = pairs.filter(repeat_index=repeat)
        for name in ("ec_local", "churn"):
            defined = here[name].drop_nulls().to_numpy()
            if defined.size:
                lists.setdefault(f"{name}_mean", []).append(float(defined.mean()))
    found = {name: float(np.mean(lists[name])) if name in lists else None for name in COMPARED[1:]}
    return found | {
        "accuracy_mean": float(np.mean(means)),
        "accuracy_mean_sd": float(np.std(means, ddof=1)),
        "accuracy_std": (squares / freedom) ** 0.5 if freedom else None,
        "n_runs": runs.height,
        "n_repeats": len(means),
    }


def approximately(value: float | None) -> Any:
    return None if value is None else pytest.approx(value, abs=1e-12)


def test_tables_and_query_say_the_same_of_each_cell(sweep: Sweep) -> None:
    tables = sweep.results
    assert tables["cells"]["n_identical_repeats"].sum() == 6
    names = ["n_runs", "n_repeats", "accuracy_mean", "accuracy_mean_sd", *COMPARED]
    of_repeats = [name for name in names if name not in ("n_repeats", "accuracy_mean_sd")]
    shown = query(tables, "cells", columns=["cell", *names])
    grouped = query(tables, "cells", columns=names, by=["cell"])
    from_repeats = query(tables, "repeats", columns=of_repeats, by=["cell"])
    for cell in tables["cells"]["cell"]:
        expected = by_hand(sweep, cell)
        one = shown.filter(cell=cell).row(0, named=True)
        for name in names:
            assert one[name] == approximately(expected[name]), name
        sums = grouped.filter(cell=cell).row(0, named=True)
        repeats = from_repeats.filter(cell=cell).row(0, named=True)
        assert (sums["n"], repeats["n"]) == (1, expected["n_repeats"])
        source = tables["sources"].filter(cell=cell).row(0, named=True)
        for name in names:
            assert sums[name] == approximately(expected[name]), name
            assert name not in repeats or repeats[name] == approximately(expected[name]), name
            assert name not in source or source[name] == approximately(expected[name]), name


def test_summary_and_page_show_the_table_of_cells(sweep: Sweep, page: str) -> None:
    cells = query(sweep.results, "cells", columns=list(sweep.results["cells"].columns))
    summary = summary_table(sweep.results["cells"])
    rows = [row for row in Rows(page).rows if row[:1] != ["Dataset"]]
    assert len(summary) == len(cells) == 8
    code, told = inside("analyze", sweep.directory, "--resamples", 10)
    assert code == 0
    assert "23 repeats: 8 cells on 2 to 3 test sets each." in told
    assert "† 6 repeats of identical runs: 18 copies are left out" in told
    for cell in cells.iter_rows(named=True):
        name = f"{cell['train_fraction']} · {cell['vary']}"
        mark = " †" if cell["n_identical_repeats"] else ""
        row = summary.filter(dataset=cell["dataset"], cell=name + mark).row(0, named=True)

        def text(column: str, digits: int, cell: dict[str, Any] = cell) -> str:
            return "–" if cell[column] is None else f"{cell[column]:.{digits}f}"

        is_below = cell["alpha_hat_mean"] is not None and cell["alpha_hat_mean"] < cell["delta"]
        accuracy = f"{text('accuracy_mean', 3)} ± {text('accuracy_std', 3)}"
        assert row["accuracy ± seeds"] == accuracy
        assert row["between test sets"] == text("accuracy_mean_sd", 3)
        assert (row["runs"], row["test sets"]) == (cell["n_runs"], cell["n_repeats"])
        of = {"range": "accuracy_range", "EC": "ec_local_mean", "churn": "churn_mean"}
        for title, column in (of | {"α̂": "alpha_hat_mean"}).items():
            is_small = title == "α̂" and is_below
            assert row[title] == (f"< {cell['delta']:.2f}" if is_small else text(column, 3))
        assert accuracy in told
        (shown,) = [
            row
            for row in rows
            if row[0] == cell["dataset"]
            and row[1].startswith("xgb")
            and row[2:4] == [str(cell["train_fraction"]), cell["vary"]]
            and len(row) == 16
        ]
        assert shown[1].endswith("†") == bool(mark)
        copies = cell["n_runs"] - cell["n_distinct"]
        counts = [str(n) for n in (cell["n_runs"], copies, cell["n_repeats"])]
        accuracy = f"{text('accuracy_mean', 4)} ± {text('accuracy_std', 4)}"
        assert shown[4:] == [
            *counts, accuracy, text("accuracy_mean_sd", 4), text("accuracy_range", 4),
            text("ec_local_mean", 3), text("ec_global_mean", 3), text("churn_mean", 3),
            f"< {cell['delta']:.2f}" if is_below
            else text("alpha_hat_mean", 4),
            text("delta", 3), str(cell["n_side"]),
        ]  # fmt: skip


def test_status_page_and_tables_count_copies_alike(sweep: Sweep, page: str) -> None:
    runs = sweep.status()["runs"]
    told = dict(re.findall(r"<dt>(\w+)</dt><dd>([\d,]+)</dd>", page))
    names = {"planned": "runs", "done": "done", "copies": "copy", "missing": "missing"}
    assert {word: int(told[word]) for word in names} == {w: runs[n] for w, n in names.items()}
    for table in ("cells", "repeats", "sources"):
        found = sweep.results[table]
        assert found["n_runs"].sum() == runs["done"] + runs["copy"]
        assert found["n_distinct"].sum() == runs["done"]


def test_groups_of_cells_pool_spreads_and_leave_identical_runs_out(sweep: Sweep) -> None:
    tables = sweep.results
    here = tables["repeats"].filter(pl.col("dataset") == "cancer", pl.col("n_distinct") > 1)
    assert sorted(here["n_runs"]) == [2, *[4] * 7]
    free = here["n_distinct"].cast(float) - 1
    expected = ((here["accuracy_std"] ** 2 * free).sum() / free.sum()) ** 0.5
    for table in ("cells", "repeats", "sources"):
        columns = ["n_runs", "accuracy_std"]
        found = query(tables, table, where="dataset = 'cancer'", columns=columns, by=["dataset"])
        assert found["accuracy_std"].item() == pytest.approx(expected), table
        assert found["n_runs"].item() == 42
    for table, columns in (("runs", ["alpha_hat", "churn_mean"]), ("pairs", ["ec_local", "churn"])):
        every = query(tables, table, columns=columns, by=["dataset"])
        assert every["n_identical"].to_list() == ([12, 12] if table == "runs" else [18, 18])
        varying = query(tables, table, where=VARYING, columns=columns, by=["dataset"])
        assert every.select("dataset", *columns).equals(varying.select("dataset", *columns))


def test_means_of_runs_give_each_cell_the_weight_of_its_runs(sweep: Sweep) -> None:
    """Without copies, a cell without noise would weigh a fraction of the same with noise."""
    tables, wine = sweep.results, "dataset = 'wine'"
    runs = tables["runs"].filter(dataset="wine")
    assert runs["identical"].any()
    found = query(tables, "runs", where=wine, columns=["accuracy"], by=["dataset"])
    assert found["accuracy"].item() == pytest.approx(runs["accuracy"].mean())
    assert found["n"].item() == runs.height
    repeats = tables["repeats"].filter(dataset="wine")
    weighted = (repeats["accuracy_mean"] * repeats["n_runs"]).sum() / repeats["n_runs"].sum()
    assert found["accuracy"].item() == pytest.approx(weighted)
    middle = query(tables, "runs", where=wine, columns=["accuracy"], by=["dataset"], agg=["median"])
    distinct = runs.filter(~pl.col("identical"))
    assert middle["accuracy_median"].item() == pytest.approx(distinct["accuracy"].median())


def test_notes_on_groups_hold_for_each_column(sweep: Sweep) -> None:
    told = inside("query", sweep.directory, "-t", "runs", "--by", "dataset", "-c", "accuracy")[1]
    assert "whose runs differ" not in " ".join(told.split()), "no column compares runs"
    cells = sweep.results["cells"]
    same = cells.filter(pl.col("n_identical_repeats") == pl.col("n_repeats")).height
    assert same
    said = "Copies of identical runs count in means alone."
    of_runs = ("query", sweep.directory, "-t", "runs", "--by", "dataset", "-c", "accuracy")
    for agg, is_said in (("mean", False), ("mean,median", True)):
        assert (said in inside(*of_runs, "--agg", agg)[1]) == is_said
    over = f"are over {cells.height - same} of the {cells.height} cells: those whose runs differ"
    for more in (("-c", "accuracy_std"), ("-f", "markdown")):
        told = " ".join(inside("query", sweep.directory, "--by", "dataset", *more)[1].split())
        assert over in told
    assert "Standard deviations, pooled as root mean squares: between runs" in told
    told = inside("query", sweep.directory, "-t", "ranking", "--by", "dataset")[1]
    assert "Cells count by their rows in the table:" in " ".join(told.split())


def test_levels_of_two_probes_are_never_averaged(sweep: Sweep) -> None:
    tables = sweep.results
    for table, column in (
        ("cells", "alpha_hat_mean"),
        ("repeats", "alpha_hat_mean"),
        ("runs", "alpha_hat"),
        ("ranking", "alpha_hat"),
    ):
        found = query(tables, table, columns=[column], by=["classifier"]).row(0, named=True)
        assert (found[column], found["probe"]) == (None, "gap+true_margin"), table
        deltas = tables["cells"]["delta"]
        assert (found["delta_lo"], found["delta_hi"]) == (deltas.min(), deltas.max())
        assert found["delta"] is None
        apart = query(tables, table, columns=[column], by=["dataset"])
        assert apart[column].null_count() == 0
        assert apart["delta"].to_list() == sorted(set(deltas))
        assert not {"probe", "delta_lo"} & set(apart.columns)
    code, told = inside("query", sweep.directory, "--by", "classifier")
    assert code == 0
    assert "is not averaged over probes" in " ".join(told.split())
    assert "different δ" not in told


def test_levels_of_different_resolution_are_told(sweep: Sweep, tmp_path: Path) -> None:
    copy = Sweep(shutil.copytree(sweep.directory, tmp_path / "copy"))
    copy.analyze(Options(resamples=10, probe="true_margin"), workers=1)
    found = query(copy.results, by=["classifier"]).row(0, named=True)
    cells = copy.results["cells"]
    assert found["alpha_hat_mean"] is None
    assert (found["delta_lo"], found["delta_hi"]) == (cells["delta"].min(), cells["delta"].max())
    apart = query(copy.results, by=["dataset"])
    assert apart["alpha_hat_mean"].null_count() == 0
    _, told = inside("query", copy.directory, "--by", "classifier")
    assert "α̂ is not averaged over δ" in " ".join(told.split())


def test_effects_are_those_of_repeats_and_grouped_anew(sweep: Sweep) -> None:
    tables = sweep.results
    repeats, found = tables["repeats"], tables["effects"]
    assert set(found["axis"]) == {"train_fraction"}, "each vary of it varies all that another does"
    for row in found.filter(metric="accuracy_mean").iter_rows(named=True):
        sides = [
            dict(repeats.filter(cell=row[cell]).select("repeat_index", "accuracy_mean").rows())
            for cell in ("cell", "reference_cell")
        ]
        shared = sorted(sides[0].keys() & sides[1].keys())
        differences = [sides[0][repeat] - sides[1][repeat] for repeat in shared]
        assert (row["n_test_sets"], row["over"]) == (len(shared), "test sets")
        assert row["difference"] == pytest.approx(np.mean(differences))
        low, high = stats.t.interval(
            0.95, len(shared) - 1, np.mean(differences), stats.sem(differences)
        )
        assert (row["low"], row["high"]) == pytest.approx((low, high))
    own = "metric = 'accuracy_mean' AND axis = 'train_fraction' AND dataset = 'wine'"
    together = query(tables, "effects", where=own, by=["classifier"])
    row = together.row(0, named=True)
    apart = query(tables, "effects", where=own, columns=["difference"])
    assert (row["n_pairs"], row["n_test_sets"], together.height) == (6, 3, 1)
    assert row["difference"] == pytest.approx(apart["difference"].mean())
    chosen = query(tables, "effects", where=own, by=["dataset"], columns=["low"], sort="low")
    assert chosen.columns == ["dataset", "axis", "level", "reference", "metric", "low"]
    assert chosen["low"].item() == row["low"]
    with pytest.raises(UserError, match="no effects are grouped by it"):
        query(tables, "effects", by=["difference"])


def test_command_and_page_show_effects_with_their_intervals(sweep: Sweep, page: str) -> None:
    found = query(tables := sweep.results, "effects", by=["classifier"])
    code, told = inside("analyze", sweep.directory, "--resamples", 10)
    assert code == 0
    page = " ".join(page.split())
    for row in found.filter(metric="accuracy_mean").iter_rows(named=True):
        half = (row["high"] - row["low"]) / 2
        name = re.escape(f"{row['axis']} {row['level']}") + rf" +{row['classifier']}"
        (line,) = [line for line in told.splitlines() if re.search(name, line)]
        assert f"{row['difference']:+.4f} ± {half:.4f}" in line
        assert f"± {half:.4f}" in page
    assert "over test sets" in told
    assert tables["effects"].equals(sweep.results["effects"])


def test_an_interval_below_0_is_no_upper_limit_of_0() -> None:
    """Three test sets that happen to agree do not show that test sets do not vary."""
    axes = {**dict.fromkeys(AXES), "dataset": "d", "classifier": "xgb", "metric": "accuracy"}
    basis = {"n_repeats": 3, "n_runs": 12, "over": "test sets", "share": None, "cell": 0}
    parts = [("init", "all", 4e-4, 2e-4, 9e-4), ("test set", "between test sets", -6.82e-5, 0, 0)]
    rows = tuple(
        {
            **axes,
            **basis,
            **dict(zip(("source", "part", "variance", "low", "high"), own, strict=True)),
        }
        for own in [*parts, ("batch", "own", -1e-6, 0.0, 0.0)]
    )
    told = reply([VarianceSplit("c", 0, rows)])
    (shown,) = told.table
    assert [shown[told.columns.index(name)] for name in ("batch", "test sets")] == ["not told"] * 2
    for line in told.answers[0].details[-2:]:
        assert "how large it may be is not told; from" in line
        assert "0 to 0" not in line


def test_variance_is_told_in_words_and_as_json(sweep: Sweep) -> None:
    rows = sweep.results["variance"]
    assert set(rows["metric"]) == {"accuracy", "errors"}  # four runs are too few for the others
    for row in rows.filter(metric="accuracy", part="all").iter_rows(named=True):
        (cell,) = sweep.results["cells"].filter(cell=row["cell"]).iter_rows(named=True)
        runs = sweep.results["runs"].filter(cell=row["cell"]).partition_by("repeat_index")
        own = [one["accuracy"].to_numpy() for one in runs if one.height > 2]
        squares = sum(np.square(one - one.mean()).sum() for one in own)
        assert row["variance"] == pytest.approx(squares / sum(one.size - 1 for one in own))
        assert cell["vary"] == "batch+train"
    half = rows.filter(metric="accuracy", train_fraction=0.5)
    assert set(half["source"]) >= {"batch+train+subsample", "train", "test set"}
    code, told = inside("variance", sweep.directory, "--why")
    assert code == 0
    assert "wine × xgb, train_fraction = 0.5 (cell " in told
    assert "between runs, batch (dropout with it)+train (resampling) varying: sd 0.0" in told
    assert "not distinguishable from 0: variance estimated below 0 at -" in told
    code, told = inside("variance", sweep.directory, "--where", "metric = 'accuracy'", "--json")
    groups = json.loads(told)["groups"]
    assert code == 0
    assert [len(group["words"]) for group in groups] == [1] * 4
    assert groups[0]["components"][0]["part"] == "all"
    code, told = inside("variance", sweep.directory, "--where", "metric = 'none'")
    assert (code, "no component meets the condition" in told) == (2, True)
    code, told = inside("query", sweep.directory, "-t", "variance", "--by", "classifier")
    assert (code, "intervals are not averaged" in told) == (2, True)


def test_ensembles_and_curves_pool_by_their_own_numbers(tmp_path: Path) -> None:
    types = {"cell": pl.UInt32, "repeat_index": pl.UInt16, "n_runs": pl.UInt32, "draws": pl.UInt32}
    key = {"cell": [0, 1], "repeat_index": [0, 0], "dataset": ["a", "b"], "classifier": ["mlp"] * 2}
    key["perturb_hparams"] = ["none"] * 2
    tables = {
        "cells": {"cell": [0, 1], "vary": ["init+batch"] * 2},
        "repeats": {**key, "n_distinct": [9, 9], "identical": [False] * 2, "probe": ["gap", "gap"]},
        "curves": {**key, "n_runs": [3, 9], "test_loss": [1.0, 2.0], "test_loss_std": [0.1, 0.2]},
        "ensembles": {
            **key, "draws": [11, 31], "size": [3, 3], "accuracy_std": [0.1, 0.2],
            "alpha_hat": [0.1, 0.3], "delta": [0.2, 0.2], "n_side": [50, 50],
        },
    }  # fmt: skip
    files = {name: tmp_path / f"{name}.parquet" for name in tables}
    for name, columns in tables.items():
        frame = pl.DataFrame(columns)
        frame.cast({n: t for n, t in types.items() if n in columns}).write_parquet(files[name])
    results = Results(files, {}, "")
    found = query(results, "curves", columns=["test_loss", "test_loss_std"], by=["classifier"])
    assert found["test_loss"].item() == 1.5
    assert found["test_loss_std"].item() == pytest.approx(((2 * 0.01 + 8 * 0.04) / 10) ** 0.5)
    columns = ["accuracy_std", "alpha_hat", "n_side"]
    found = query(results, "ensembles", columns=columns, by=["size"])
    assert found["accuracy_std"].item() == pytest.approx(((10 * 0.01 + 30 * 0.04) / 40) ** 0.5)
    row = found.row(0, named=True)
    assert (row["alpha_hat"], row["delta"], row["n_side"]) == (pytest.approx(0.2), 0.2, 50)


def test_kept_answers_are_those_of_the_tables(sweep: Sweep, tmp_path: Path) -> None:
    copy = Sweep(shutil.copytree(sweep.directory, tmp_path / "copy"))
    said = copy.answers(why=True)
    assert any("results are incomplete" in text for text in said)
    kept = read_json(copy.paths.answers)
    copy.paths.answers.unlink()
    assert copy.answers(why=True) == said, "worked out"
    marked = {**kept, "rest": [{**one, "text": "As kept."} for one in kept["rest"]]}
    write_json(copy.paths.answers, marked)
    n = 1 + len(kept["rest"])
    assert n > 5
    on_points = said[n:]  # told from their table
    assert copy.answers(why=True) == [said[0], *["As kept."] * (n - 1), *on_points]
    for other in ({"wording": "0"}, {"tables": {}}, {"options": {}}):
        write_json(copy.paths.answers, {**marked, "of": {**kept["of"], **other}})
        assert copy.answers(why=True) == said, "of other code or tables"
    for damaged in ("{", "[]", "", '{"of": 1}'):
        copy.paths.answers.write_text(damaged)
        assert copy.answers(why=True) == said


def test_answers_kept_from_an_earlier_analysis_are_not_told(sweep: Sweep, tmp_path: Path) -> None:
    copy = Sweep(shutil.copytree(sweep.directory, tmp_path / "copy"))
    kept = read_json(copy.paths.answers)
    copy.analyze(Options(resamples=10, close=0.001), workers=1)
    said = copy.answers(why=True)
    assert read_json(copy.paths.answers)["of"] != kept["of"]
    write_json(copy.paths.answers, {**kept, "rest": []})  # as if the last one were not written
    assert copy.answers(why=True) == said
    shutil.copy(sweep.paths.table("pairs"), copy.paths.table("pairs"))
    with pytest.raises(DamagedFile, match="of another analysis"):
        copy.answers(why=True)


def test_no_spread_is_written_as_0_on_the_page() -> None:
    assert with_sd(0.96, 1e-17) == "0.9600 ± 0"
    assert with_sd(0.96, 1e-4) == "0.9600 ± 0.0001"
    assert with_sd(0.96, None) == "0.9600"
