"""Result tables of a real sweep, questions to them, and the page in a real browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import polars as pl
import pytest
import zarr
from polars.testing import assert_frame_equal

from manyseed import Sweep
from manyseed.analysis.axes import AXES
from manyseed.analysis.graph.chunks import GroupAnalysis
from manyseed.analysis.graph.predictions import Predictions
from manyseed.analysis.metrics.registry import METRICS
from manyseed.analysis.options import CALIBRATION, DEFAULT_METRICS, Options
from manyseed.analysis.tables.schema import records, repeat_columns
from manyseed.orchestrator.asking.query import query
from manyseed.orchestrator.computing import analysis, workers
from manyseed.orchestrator.computing.conventions import conventions
from manyseed.orchestrator.computing.tables import read_analysis
from manyseed.orchestrator.errors import DamagedFile, RunsError, UnavailableError, UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.store.arrays import COPY, DONE, MISSING
from manyseed.orchestrator.store.groups import open_group
from manyseed.orchestrator.store.reader import Shard, read_array
from tests.analysis.documented import documented
from tests.orchestrator.conftest import QUICK, command, inside, write


@pytest.fixture(scope="module")
def analysed(quick: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    directory = tmp_path_factory.mktemp("analysed") / "sweep"
    shutil.copytree(quick.directory, directory)  # a sweep is one directory that can be moved
    sweep = Sweep(directory)
    sweep.analyze(Options(resamples=20))
    return sweep


def test_a_table_s_key_names_its_rows_and_orders_them(analysed: Sweep) -> None:
    keyed = {name: key for name in analysed.results if (key := records()[name].key)}
    assert {"runs", "pairs", "repeats", "cells", "sources", "ranking", "points"} <= keyed.keys()
    for name, key in keyed.items():
        found = analysed.results[name].select(key)
        assert found.equals(found.unique().sort(key)), name


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


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Runs that each analysis computes, group after group."""
    counts: list[int] = []
    real = analysis.analyze_group

    def counting(predictions: Predictions, options: Options) -> GroupAnalysis:
        counts.append(predictions.runs.height)
        return real(predictions, options)

    monkeypatch.setattr(analysis, "analyze_group", counting)
    return counts


def test_only_what_changed_is_computed_again(
    analysed: Sweep, tmp_path: Path, computed: list[int]
) -> None:
    sweep = Sweep(shutil.copytree(analysed.directory, tmp_path / "sweep"))
    options = Options(resamples=20)
    whole = dict(sweep.analyze(options))
    assert computed == [0, 0]
    group = sweep.paths.store / "cancer" / "lr-sgd"
    saved = shutil.copytree(group, tmp_path / "group")
    for name in ("status", "crc"):
        rows = zarr.open_array(group / name, mode="r+")
        rows[[5, 6, 9]] = MISSING  # two repeats as they would be before a resume
    sweep.analyze(options)
    assert computed[2:] == [2 + 3, 0]
    shutil.rmtree(group)
    shutil.copytree(saved, group)
    again = sweep.analyze(options)
    assert computed[4:] == [4 + 4, 0]
    for name, table in whole.items():
        assert_frame_equal(table, again[name], check_exact=True)
        assert_frame_equal(table, sweep.results[name], check_exact=True)
    sweep.analyze(Options(resamples=21))
    assert computed[6:] == [32, 32]


def test_results_of_an_interrupted_analysis_are_computed_again(
    analysed: Sweep, tmp_path: Path, computed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep(shutil.copytree(analysed.directory, tmp_path / "sweep"))
    real = analysis.write_result

    def breaks(paths: SweepPaths, table: str, *rest: Any) -> None:
        if table == "repeats":
            raise KeyboardInterrupt
        real(paths, table, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(analysis, "write_result", breaks)
        with pytest.raises(KeyboardInterrupt):
            sweep.analyze(Options(resamples=3))
    again = sweep.analyze(Options(resamples=20))
    assert computed == [32, 32, 32, 32]
    for name, table in analysed.results.items():
        assert_frame_equal(table, again[name], check_exact=True)


def seal(sweep: Sweep, path: str) -> None:
    """Make the checksums of rows fit what is stored."""
    group = open_group(sweep.paths.store, path)
    crc = zarr.open_array(group.folder / "crc", mode="r+")
    finished = read_array(group, "status") == DONE
    finished |= read_array(group, "status") == COPY
    crc[...] = np.where(finished, Shard(group, 0).checksums(finished)[0], 0)


def test_wrong_repeats_end_with_one_message_and_the_others_stand(
    analysed: Sweep, tmp_path: Path
) -> None:
    sweep = Sweep(shutil.copytree(analysed.directory, tmp_path / "sweep"))
    store = sweep.paths.store / "cancer"
    label = zarr.open_array(store / "xgb" / "label", mode="r+")
    label[2, 0, 3] = 9
    seal(sweep, "cancer/xgb")  # it was published so
    y_true = zarr.open_array(store / "lr-sgd" / "y_true", mode="r+")
    y_true[1, 3] = 8
    (store / "lr-sgd" / "test_index" / "crc32c.json").unlink()  # as groups were before
    result = command("analyze", sweep.directory, "--resamples", 20)
    assert result.returncode == 1
    said = " ".join(result.stderr.split())
    problem = "a true class is 8, and there are 2 classes"
    assert f"repeat 1: {problem} (and 4 more); all other results stand" in said
    assert "Traceback" not in result.stderr
    found = sweep.results["repeats"]
    wrong = found.filter(pl.col("problem").is_not_null())
    assert wrong["problem"].to_list() == 4 * [problem] + ["a label is 9, and there are 2 classes"]
    key = ["cell", "repeat_index"]
    assert_frame_equal(
        found.join(wrong, on=key, how="anti"),
        analysed.results["repeats"].join(wrong, on=key, how="anti"),
        check_exact=True,
    )


def test_metrics_of_ones_own_by_option_and_by_sweep_file(analysed: Sweep, tmp_path: Path) -> None:
    sweep = Sweep(shutil.copytree(analysed.directory, tmp_path / "sweep"))
    (tmp_path / "mine.py").write_text(
        "def positives(part):\n    return (part.label == 1).mean(axis=1)\n"
    )
    text = sweep.paths.sweep_file.read_text()
    sweep.paths.sweep_file.write_text(
        text + '[analysis]\nmetrics = ["mine:positives"]\nresamples = 3\n'
    )
    options = ("--metrics", "accuracy", "--metric", "mine:positives")
    result = command("analyze", sweep.directory, *options, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    runs = sweep.results["runs"]
    assert 0 < runs["positives"].min() < runs["positives"].max() < 1
    assert runs["alpha_hat"].null_count() == len(runs)
    assert read_analysis(sweep.paths)[0].resamples == 3
    sweep.paths.sweep_file.write_text(text + '[analysis]\nmetrics = ["math:sqr"]\n')
    with pytest.raises(
        UserError, match=r'analysis\.metrics = "math:sqr": .*\n  did you mean "math:sqrt"'
    ):
        sweep.analyze(metrics=["math:sqr"])


def test_tables_are_those_that_the_record_names(analysed: Sweep, tmp_path: Path) -> None:
    sweep = Sweep(shutil.copytree(analysed.directory, tmp_path / "sweep"))
    margins, curves = sweep.paths.table("margins"), sweep.paths.table("curves")
    shutil.copy(margins, curves)  # left over from another analysis
    assert "curves" not in sweep.results
    margins.unlink()
    with pytest.raises(DamagedFile, match=r"margins\.parquet: is absent") as caught:
        sweep.report()
    assert f'Sweep("{sweep.directory}").analyze()' in str(caught.value)


def test_a_table_that_there_is_not_is_one_message_and_all_are_shown(analysed: Sweep) -> None:
    results = analysed.results
    with pytest.raises(KeyError) as caught:
        results["cell"]
    told = str(caught.value)
    assert told.startswith('table = "cell": unknown table\n  did you mean "cells"? Valid: runs, ')
    assert isinstance(caught.value, UserError)
    with pytest.raises(KeyError, match=r"is absent\n  compute it with: Sweep\(.*\)\.howmany\(\)"):
        results["ensembles"]
    with pytest.raises(KeyError):
        results.scan("cell")
    assert results.get("cell") is None
    names = ", ".join(results)
    assert repr(results) == f"<results of {analysed.directory}: {names}>"
    assert "cells" in names


def test_what_was_not_kept_is_said(analysed: Sweep, tmp_path: Path) -> None:
    sweep = Sweep(shutil.copytree(analysed.directory, tmp_path / "sweep"))
    value = json.loads(sweep.paths.analysis.read_text())
    assert value["unavailable"] == []
    for name in ("xgb", "lr-sgd"):
        shutil.rmtree(sweep.paths.store / "cancer" / name / "margin", ignore_errors=True)
        metadata = sweep.paths.store / "cancer" / name / "zarr.json"
        metadata.write_text(metadata.read_text().replace('"scores": "margin"', '"scores": "none"'))
        seal(sweep, f"cancer/{name}")
    specs = Groups.read(sweep.paths).specs
    Groups(tuple(replace(spec, scores="none") for spec in specs)).write(sweep.paths)
    tables = dict(sweep.analyze(Options(resamples=20)))
    assert tables["runs"].filter(classifier="xgb")["alpha_hat"].null_count() == 32
    reasons = {item.reason for item in read_analysis(sweep.paths)[1].unavailable}
    assert reasons == {'needs keep.scores = "margin" or "all"'}
    assert (
        "alpha_hat is not computed for cancer × lr-sgd, cancer × xgb" in sweep.report().read_text()
    )


def test_sources_and_ranking_are_tables(analysed: Sweep) -> None:
    tables = analysed.results
    assert tables["sources"].height == tables["cells"].height
    best = query(tables, "ranking", where="rank = 1")
    distinct = tables["runs"].filter(~pl.col("identical"))
    assert best.height == distinct.select("cell", "repeat_index").n_unique()
    one = tables["ranking"].filter(pl.col("alpha_hat") <= 0.05).head(1).row(0, named=True)
    rivals = distinct.filter(cell=one["cell"], repeat_index=one["repeat_index"]).filter(
        pl.col("alpha_hat") <= 0.05
    )
    assert one["accuracy"] == rivals["accuracy"].max()
    assert one["close"] is None  # δ is above the level


def test_every_column_is_documented_with_its_unit_there_and_in_the_file(analysed: Sweep) -> None:
    asked_for = [one for one in METRICS.values() if one.name not in (*DEFAULT_METRICS, CALIBRATION)]
    further = {c.name for one in asked_for for c in (*one.runs, *one.pairs, *repeat_columns([one]))}
    for name, table in analysed.results.items():
        told = documented(name)
        known = told.keys() | {"cell", "cell_id", *AXES}
        assert known == set(table.columns) - (further - known), name
        kept = pl.read_parquet_metadata(analysed.paths.table(name))
        columns = json.loads(kept["columns"])
        assert list(columns) == table.columns
        assert all(column["meaning"] for column in columns.values())
        units = {column: unit for column, unit in told.items() if unit is not None}
        assert {column: columns[column]["unit"] for column in units} == units
        assert json.loads(kept["conventions"])["resamples"] == 20


def test_howmany_answers_in_words(analysed: Sweep, tmp_path: Path) -> None:
    sweep = Sweep(shutil.copytree(analysed.directory, tmp_path / "sweep"))
    result = command("howmany", sweep.directory, "--accuracy", 0.01, "--why")
    assert result.returncode == 0, result.stderr
    assert "For accuracy ± 0.01 at 95 % confidence:" in result.stdout
    assert "too few (δ = " in result.stdout, "more runs would not help"
    assert "besides, ensembles of 3 out of half of the runs of a repeat need 8 runs, and" in (
        " ".join(result.stdout.split())
    )
    assert "test sets are too small; about " in command("howmany", sweep.directory).stdout
    with pytest.raises(UserError, match="compute it with: manyseed howmany"):
        query(sweep.results, "ensembles")
    (group,) = sweep.howmany(where="classifier = 'xgb'", by=["classifier"])
    assert (group.classifier, len(group.answers)) == ("xgb", 4)
    with pytest.raises(UserError, match="no cell meets the condition"):
        sweep.howmany(where="classifier = 'mlp'")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"metrics": ["accuraci"]}, '^metrics = "accuraci": .*\n  did you mean "accuracy"'),
        ({"own": ["no_such_module:f"]}, "can't be imported"),
        ({"alpha_mode": "papper"}, '^--alpha-mode = "papper": .*\n  did you mean "paper"'),
        (
            {"snapshots": [3]},
            "^--snapshots = 3: nothing here is trained in epochs, so leave it out",
        ),
        ({"snapshots": [0, 0]}, r"^--snapshots = \[0, 0\]: must be a list of different whole"),
        ({"reference_snapshot": 0}, "^--reference-snapshot = 0: needs another alpha_reference"),
        ({"resamples": 1}, "^--resamples = 1: must be a whole number from 2 to"),
    ],
)
def test_an_option_without_meaning_is_the_users_mistake(
    analysed: Sweep, asked: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        analysed.analyze(conventions(analysed.paths, **asked))


def test_who_computes_must_exist_and_answer(
    analysed: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match='did you mean "threads"'):
        analysed.analyze(dask="thread")
    monkeypatch.setattr(workers, "ANSWER_SECONDS", 0.2)
    with pytest.raises(UnavailableError, match="no dask scheduler answers at tcp"):
        analysed.analyze(dask="tcp://127.0.0.1:9")


def test_a_client_of_the_callers_computes_the_same(analysed: Sweep, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    sweep = Sweep(shutil.copytree(analysed.directory, tmp_path / "sweep"))
    shutil.rmtree(sweep.paths.results)
    told: list[str] = []
    with distributed.Client(
        processes=False, n_workers=1, dashboard_address=None, set_as_default=False
    ) as client:
        found = sweep.analyze(Options(resamples=20), dask=client, tell=told.append)
        assert client.status == "running", "it is the caller's to close"
    for name, table in analysed.results.items():
        assert_frame_equal(found[name], table, check_exact=True)
    assert told[0].startswith("dask's pages: ")
    with pytest.raises(UserError, match=r"must be text or a distributed\.Client, not int"):
        sweep.analyze(dask=4)  # type: ignore[arg-type]


def test_query_filters_groups_and_sorts(analysed: Sweep) -> None:
    tables = analysed.results
    found = query(tables, "runs", where="classifier = 'xgb' AND train_fraction = 1.0")
    assert len(found) == 16
    assert set(found["classifier"]) == {"xgb"}
    means = query(tables, "runs", columns=["accuracy"], by=["classifier"], sort="-accuracy")
    known = ["n", "n_identical", "coverage"]
    ends = ["accuracy_ci_low", "accuracy_ci_high", "over"]
    assert means.columns == ["classifier", *known, "accuracy", *ends]
    assert means["coverage"].to_list() == [1.0, 1.0]
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


def test_a_sweep_that_is_read_only_here_is_copied_first(
    quick: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode, **_: mode != os.W_OK)
    copy = f"{quick.directory.name}-copy"
    copying = f"cp -r {quick.directory} {copy}"
    for verb in ("query", "answers"):
        told = command(verb, quick.directory).stderr
        assert f"{copying} && manyseed analyze {copy}" in told
    (step,) = quick.status()["next"]
    assert step == {"what": f"After {copying}", "command": f"manyseed analyze {copy}"}


def test_analysis_without_a_finished_run_is_refused(tmp_path: Path) -> None:
    sweep = Sweep.plan(write(tmp_path / "quick.toml", QUICK), tmp_path / "sweep")
    for verb in ("analyze", "analyze", "answers", "query", "report", "howmany", "plot"):
        result = command(verb, sweep.directory)
        assert result.returncode == 2
        assert "no run is finished yet" in result.stderr, verb
        assert f"manyseed submit {sweep.directory}" in result.stderr.replace("\n", ""), verb
    assert not sweep.paths.results.exists()


def test_what_trains_without_a_finished_run_is_to_be_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep.plan(write(tmp_path / "quick.toml", QUICK), tmp_path / "sweep")
    place = "manyseed.orchestrator.submissions.retries.is_training"
    for trains, verb in ((True, "status"), (False, "submit")):
        monkeypatch.setattr(place, lambda paths, trains=trains: trains)
        code, said = inside("analyze", sweep.directory)
        assert code == 2
        assert f"manyseed {verb} " in said
        assert ("--watch" in said) == trains


def test_where_all_runs_failed_the_error_and_the_next_commands_are_shown(
    tmp_path: Path,
) -> None:
    (tmp_path / "broken.py").write_text(
        "from sklearn.linear_model import LogisticRegression\n"
        "class Broken(LogisticRegression):\n"
        "    def fit(self, X, y):\n"
        "        if len(y) > 64: raise ValueError('planted\\nmore')\n"
        "        return super().fit(X, y)\n"
    )
    text = """
name = "broken"
seed = 1
repeats = 1
runs = 3
[[grid]]
dataset = ["sklearn:wine"]
classifier = ["mine"]
[classifier.mine]
estimator = "broken:Broken"
encode = "dense"
"""
    file, folder = write(tmp_path / "broken.toml", text), tmp_path / "sweep"
    for asked in (("run", file, "--out", folder, "--workers", 1), ("analyze", folder)):
        code, said = inside(*asked)
        assert code == 1, said
        assert "all 3 runs failed: ValueError: planted" in " ".join(said.split())
        assert f"manyseed logs {folder} --failed" in said
        assert f"manyseed resume {folder} --failed" in said
        assert "analysing" not in said
    with pytest.raises(RunsError, match="all 3 runs failed: ValueError: planted"):
        Sweep(folder).analyze()


def test_the_seed_of_an_analysis_is_the_plans(quick_analysed: Sweep, tmp_path: Path) -> None:
    copy = Sweep(shutil.copytree(quick_analysed.directory, tmp_path / "copy"))
    shutil.rmtree(copy.paths.results)
    file = copy.paths.sweep_file
    file.write_text(re.sub("seed .*= 7", "seed = 8", text := file.read_text()))
    assert file.read_text() != text
    copy.analyze(Options(resamples=5), workers=1)
    for name in ("runs", "repeats"):
        before = quick_analysed.results[name]
        assert before["alpha_hat" if name == "runs" else "alpha_hat_mean"].max() > 0
        assert_frame_equal(copy.results[name], before, check_exact=True)


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


def test_results_are_read_without_the_sweep_file(quick_analysed: Sweep, tmp_path: Path) -> None:
    directory = tmp_path / "lost"
    shutil.copytree(quick_analysed.directory, directory)
    whole = {verb: inside(*verb.split(), directory) for verb in ("answers", "variance", "howmany")}
    (directory / "sweep.toml").unlink()
    files = {*directory.rglob("*")}
    for verb, (code, said) in whole.items():
        now, told = inside(*verb.split(), directory)
        assert now == code
        assert told.count("sweep.toml is absent") == 1, told
        assert "manyseed plan SWEEP.toml --out" in told
        assert {*said.split()} <= {*told.split()}
    assert inside("compare", directory)[0] == 0
    assert inside("query", directory, "--by", "classifier")[0] == 0
    assert {*directory.rglob("*")} == files
    assert inside("report", directory, "--out", tmp_path / "page.html")[0] == 0
    with pytest.warns(UserWarning, match=r"sweep\.toml is absent"):
        assert not Sweep(directory).results["cells"].is_empty()
    for verb in ("submit", "status", "analyze", "resume"):
        code, said = inside(verb, directory)
        assert code == 4
        assert "restore it from a copy" in said
