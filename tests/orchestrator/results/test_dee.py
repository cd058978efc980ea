"""Deep ensembles of a real sweep: their tables, what the command answers, and the report."""

from __future__ import annotations

import html
import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.analysis.axes import AXES
from manyseed.analysis.options import Options
from manyseed.orchestrator.computing import optionaltables
from manyseed.orchestrator.errors import UserError
from tests.analysis.documented import documented
from tests.orchestrator.conftest import command, inside, train, write

OPTIONS = Options(calibration=True, deep_draws=3, resamples=4)


@pytest.fixture(scope="module")
def analysed(quick_calibrated: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    directory = tmp_path_factory.mktemp("deep") / "sweep"
    return Sweep(shutil.copytree(quick_calibrated.directory, directory))


def test_tables_say_what_their_columns_are(analysed: Sweep) -> None:
    for name in ("uncertainty", "dee", "tace", "rejection"):
        table, told = analysed.results[name], documented(name)
        assert told.keys() | {"cell", "cell_id", *AXES} == set(table.columns), name
        columns = json.loads(pl.read_parquet_metadata(analysed.paths.table(name))["columns"])
        assert list(columns) == table.columns
        assert all(column["meaning"] for column in columns.values())
        units = {column: unit for column, unit in told.items() if unit is not None}
        assert {column: columns[column]["unit"] for column in units} == units


def test_ensembles_are_of_every_repeat_whose_runs_vary(analysed: Sweep) -> None:
    repeats = analysed.results["repeats"].filter(pl.col("n_distinct") > 1)
    ensembles = analysed.results["uncertainty"]
    key = ["cell", "repeat_index"]
    assert set(ensembles.select(key).rows()) == set(repeats.select(key).rows())
    assert ensembles.height == 3 * repeats["n_distinct"].sum()
    runs = analysed.results["runs"]
    assert runs["cll"].is_not_null().all()
    found = ensembles.filter(members=1).join(runs, on=[*key, "cll", "aurc", "error"], how="semi")
    assert found.height == ensembles.filter(members=1).height  # each is a run


def test_calibration_errors_are_of_every_repeat_that_has_them(analysed: Sweep) -> None:
    table, runs = analysed.results["tace"], analysed.results["runs"].filter(~pl.col("identical"))
    one = table.filter(threshold=OPTIONS.tace_threshold, bins=OPTIONS.tace_bins, members=1)
    mean = runs.group_by("cell", "repeat_index").agg(pl.col("tace", "c_tace").mean())
    both = one.join(mean, on=["cell", "repeat_index"], suffix="_run")
    assert both.height == one.height == mean.height
    for name in ("tace", "c_tace"):
        np.testing.assert_allclose(both[name], both[f"{name}_run"], atol=1e-12)
    of_all = table.filter(pl.col("members") > 1)
    deep_ones = analysed.results["uncertainty"].select("cell", "repeat_index").unique()
    assert set(of_all.select("cell", "repeat_index").rows()) == set(deep_ones.rows())
    found = analysed.query("tace", by=True, columns=["c_tace"])
    assert {"members", "threshold", "bins"} <= set(found.columns)


def test_cells_are_compared_that_differ_in_one_axis(analysed: Sweep) -> None:
    table, cells = analysed.results["dee"], analysed.results["cells"]
    axes = {row["cell"]: row for row in cells.select("cell", *AXES).iter_rows(named=True)}
    for row in table.iter_rows(named=True):
        own, other = axes[row["cell"]], axes[row["deep_cell"]]
        assert [axis for axis in AXES if own[axis] != other[axis]] == [row["axis"]]
        assert row["deep_value"] == str(other[row["axis"]])
    assert set(table["axis"]) == {"classifier", "train_fraction", "perturb_continuous"}
    assert table.filter(pl.col("dee").is_null() != pl.col("beyond").is_not_null()).is_empty()


def test_a_query_of_equivalents_keeps_metrics_apart(analysed: Sweep) -> None:
    with pytest.raises(UserError, match=r'not averaged\n  by=\["classifier", "metric"\]'):
        analysed.query("dee", by=["classifier"])
    found = analysed.query("dee", by=True)
    assert {"axis", "deep_value", "metric", "members"} <= set(found.columns)
    assert found["n"].max() <= 2  # test sets
    sizes = analysed.query("uncertainty", by=True, columns=["cll"])
    assert sizes.group_by("classifier").agg(pl.col("members").n_unique())["members"].min() > 1


def test_a_second_analysis_measures_nothing_again(
    analysed: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep(shutil.copytree(analysed.directory, tmp_path / "sweep"))
    names = ("uncertainty", "dee", "tace", "rejection")
    before = {name: sweep.paths.table(name).read_bytes() for name in names}
    made = []
    members = optionaltables.members
    for name in ("build", "build_tace", "build_rejection"):
        of = getattr(members, name)
        monkeypatch.setattr(members, name, lambda *args, of=of: made.extend(of(*args)) or [])
    sweep.analyze(OPTIONS)
    assert made == []
    assert before == {name: sweep.paths.table(name).read_bytes() for name in before}
    monkeypatch.undo()
    sweep.paths.table("uncertainty").write_bytes(b"damaged")
    sweep.paths.table("tace").unlink()
    sweep.analyze(OPTIONS, workers=2)
    assert before == {name: sweep.paths.table(name).read_bytes() for name in before}
    sweep.analyze(Options(resamples=4))
    assert not {*names} & set(sweep.results)
    with pytest.raises(UserError, match="were not measured"):
        sweep.dee()


def test_the_command_answers_in_words(analysed: Sweep) -> None:
    result = command("dee", analysed.directory, "--where", "classifier = 'lr-sgd'")
    assert result.returncode == 0, result.stderr
    text = " ".join(result.stdout.split())
    assert "cll: one run -" in text
    assert "classifier = xgb: 1 run is worth" in text
    assert "independent runs with classifier = lr-sgd" in text
    result = command("dee", analysed.directory, "--by", "dataset,classifier", "--json")
    groups = json.loads(result.stdout)["groups"]
    assert len(groups) == 2
    sizes = {worth["members"] for group in groups for worth in group["worths"]}
    assert 1 in sizes
    assert all(group["gain"]["metric"] == "cll" for group in groups)
    assert all(worth["words"] for group in groups for worth in group["worths"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--metric", "misclassification_auroc"), "not comparable between models"),
        (("--metric", "accuracy"), "cll, log_likelihood, error"),
        (("--by", "clasifier"), "classifier"),
        (("--where", "accuracy_mean > 2"), "no cell meets the condition"),
    ],
)
def test_a_wrong_question_is_one_message(
    analysed: Sweep, arguments: tuple[str, str], told: str
) -> None:
    result = command("dee", analysed.directory, *arguments)
    assert result.returncode == 2
    assert told in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


TINY = """
name    = "tiny"
seed    = 3
repeats = 1
runs    = 8

[[grid]]
dataset        = ["cancer"]
classifier     = ["lr-sgd"]
train_fraction = [0.1]
vary           = ["init+batch+train"]

[dataset.cancer]
source = "sklearn:breast_cancer"
test   = 16
"""


@pytest.mark.slow
def test_a_test_set_too_small_to_calibrate_on_hinders_nothing_else(tmp_path: Path) -> None:
    sweep = train(write(tmp_path / "tiny.toml", TINY), tmp_path / "sweep", workers=1)
    sweep.analyze(OPTIONS)
    assert sweep.results["runs"]["cll"].is_null().all()
    assert sweep.results["runs"]["aurc"].is_not_null().all()
    report = command("analyze", sweep.directory, "--calibration", "--json")
    (told,) = json.loads(report.stdout)["not_computed"]
    assert "a test set of 16 points is too small to calibrate on (20)" in told
    (group,) = sweep.howmany(sizes=[1, 2], draws=2)
    assert "calibrate" not in " ".join(answer.words for answer in group.answers)
    with pytest.raises(UserError, match="there are no deep ensembles") as refused:
        sweep.dee()
    assert "is too small to calibrate on" in str(refused.value)


LACKING = """
name    = "lacking"
seed    = 3
repeats = 1
runs    = 2

[keep]
scores = "margin"

[[grid]]
dataset    = ["cancer"]
classifier = ["svm-sgd", "lr-sgd"]

[[grid]]
dataset    = ["flowers"]
classifier = ["lr-sgd"]

[[grid]]
dataset    = ["cancer"]
classifier = ["net"]
ensembling = ["snapshot"]

[dataset.cancer]
source = "sklearn:breast_cancer"
[dataset.flowers]
source = "sklearn:iris"

[classifier.net]
kind      = "mlp"
optimizer = "sgd"
epochs    = 1
hparams   = { width1 = 32, width2 = 32 }

[ensembling.snapshot]
members = 2
cycle   = 1
"""

NO_PROBABILITIES = (
    "calibration (cll and the like, with them deep ensembles and dee) is not computed for cancer × "
    "svm-sgd: it needs probabilities, and the classifier gives none."
)
NO_SCORES = "is not computed for flowers × lr-sgd: it needs keep.scores"
NO_DEEP = (
    "dee is not computed for cancer × net~snapshot: it needs ensembling = "
    '"none" with at least 2 runs in the same repeat, all else equal: there is no such cell.'
)
TOLD = (NO_PROBABILITIES, NO_SCORES, NO_DEEP)


@pytest.mark.slow
def test_what_has_no_equivalents_is_told_wherever_they_are_asked_for(tmp_path: Path) -> None:
    sweep = train(write(tmp_path / "lacking.toml", LACKING), tmp_path / "sweep", workers=1)
    code, out = inside("analyze", sweep.directory, "--calibration")
    assert code == 0
    assert "10 notes: manyseed answers" in out
    code, out = inside("answers", sweep.directory, "--why")
    assert all(told in " ".join(out.split()) for told in TOLD), out
    code, out = inside("dee", sweep.directory)
    assert code == 0
    text = " ".join(out.split())
    assert "cll: one run" in text
    assert all(told in text for told in TOLD)
    assert len(json.loads(inside("dee", sweep.directory, "--json")[1])["notes"]) == 3
    for where in ("classifier = 'svm-sgd'", "dataset = 'flowers'", "ensembling = 'snapshot'"):
        code, out = inside("dee", sweep.directory, "--where", where)
        text = " ".join(out.split())
        assert code == 2
        assert "no cell asked for has deep ensembles with cll" in text
        assert all(told in text for told in TOLD)
    for arguments in (("query", "-t", "dee"), ("plot", "method-equivalents")):
        verb, *options = arguments
        code, out = inside(verb, sweep.directory, *options)
        assert code == 2
        assert all(told in " ".join(out.split()) for told in TOLD)
    said = sweep.answers(why=True)
    assert all(told in said[-1] for told in TOLD)
    page = html.unescape(sweep.report().read_text())
    assert all(page.count(told) >= 2 for told in TOLD)  # among the answers, and the conventions
    runs = sweep.results["runs"]
    known = runs.filter(pl.col("cll").is_not_null())["classifier"].unique().sort().to_list()
    assert known == ["lr-sgd", "net"]


def test_one_run_makes_no_ensemble_and_it_is_told(tmp_path: Path) -> None:
    text = TINY.replace("runs    = 8", "runs    = 1").replace("test   = 16", "test   = 40")
    sweep = train(write(tmp_path / "one.toml", text), tmp_path / "sweep", workers=1)
    assert inside("analyze", sweep.directory, "--calibration")[0] == 0
    code, out = inside("answers", sweep.directory, "--why")
    told = "dee is not computed for cancer × lr-sgd: it needs at least 2 runs in the same repeat"
    assert (code, told in " ".join(out.split())) == (0, True)
    code, out = inside("dee", sweep.directory)
    assert (code, told in " ".join(out.split())) == (2, True)
    assert set(sweep.results) & {"uncertainty", "dee", "tace"} == {"tace"}


@pytest.mark.slow
def test_the_page_draws_them(analysed: Sweep) -> None:
    page = analysed.report().read_text()
    for name in ("deep-likelihood", "deep-equivalent-cll", "likelihood-brier", "likelihood-error"):
        assert f'id="{name}"' in page
    for name in ("tace-bins", "accuracy-rejection", "accuracy-confidence"):
        assert f'id="{name}"' in page
    assert np.isfinite(analysed.results["uncertainty"]["cll"].to_numpy()).all()
