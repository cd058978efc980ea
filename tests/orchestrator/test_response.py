"""Response curves of a sweep: asked for in the file, measured with each run, kept with it."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed.analysis.axes import AXES
from manyseed.analysis.options import Options
from manyseed.analysis.response import gi
from manyseed.jobs.response import ResponseDesign
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans import cost
from manyseed.orchestrator.plans.cost import planned_seconds
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import plan_change, plan_sweep
from manyseed.orchestrator.progress.status import seconds_left
from manyseed.orchestrator.store.groups import list_groups
from manyseed.orchestrator.store.reader import read_array
from manyseed.orchestrator.store.schema import GroupSpec
from manyseed.orchestrator.survey import survey
from manyseed.orchestrator.tasks.attempts import Attempt
from tests.analysis.documented import documented
from tests.orchestrator.conftest import inside, stored, train, write

PLAIN = """
name    = "bent"
seed    = 5
repeats = 1
runs    = 3

[[grid]]
dataset        = ["digits"]
classifier     = ["small", "xgb"]
train_fraction = [60]
vary           = ["init+batch"]

[dataset.digits]
source = "sklearn:digits"
test   = 0.1

[classifier.small]
kind    = "convnet"
epochs  = 2
hparams = { depth = 1, width = 4 }
"""
TABLE = """
[response]
transforms      = ["intra", "rotate:90.0"]
rows            = 30
draws           = 2
magnitudes      = 5
pair_magnitudes = 3
"""


@pytest.mark.slow
def test_curves_are_kept_with_each_run_and_change_no_prediction(tmp_path):
    file = write(tmp_path / "r.toml", PLAIN + TABLE)
    sweep = train(file, tmp_path / "sweep")
    plain = train(write(tmp_path / "p.toml", PLAIN), tmp_path / "plain")
    before, after = stored(plain), stored(sweep)
    for path, arrays in before.items():
        for name, values in arrays.items():
            if name not in ("crc", "fit_seconds", "recipe"):
                np.testing.assert_array_equal(after[path][name], values)
    for group in list_groups(sweep.paths.store):
        total = read_array(group, "response_total")
        right = read_array(group, "response_right")
        n = 3 if group.spec.classifier == "small" else 2
        assert total.shape[1:] == (n, 2, 5)
        assert (right <= total).all()
        assert (total[:3, -1] == 30).all()  # rotate: all rows of the sample
        assert not total[:3, 0, :, 3:].any()  # intra has three magnitudes
        assert (read_array(group, "shifted_total")[:3, -1] == [60, 30, 180, 180]).all()
    runs = sweep.runs("digits", "small")
    assert runs["response_layer"].values.tolist() == [0, 1, 0]
    words = runs["response_transform"].attrs["flag_meanings"].split()
    assert [words[n] for n in runs["response_transform"].values] == ["intra", "intra", "rotate:90"]
    assert runs["response_magnitude"].values[-1].tolist() == [-90, -45, 0, 45, 90]
    assert np.isnan(runs["response_magnitude"].values[0, 3:]).all()
    # xgb draws nothing: two of its runs are copies of the first, not measured again
    assert (runs["response_right"].values[0] != runs["response_right"].values[1]).any()
    assert inside("verify", sweep.directory)[0] == 0
    assert plan_sweep(file, sweep.directory).is_empty
    path = "digits/small/1"
    assert "Traceback" not in inside("rerun", sweep.directory, path, "--check")[1]


@pytest.mark.slow
def test_the_index_of_the_first_block_is_kept_and_changes_nothing_else(tmp_path):
    text = PLAIN.replace('["small", "xgb"]', '["small"]').replace("runs    = 3", "runs    = 2")
    file = write(tmp_path / "r.toml", text + TABLE)
    before = stored(train(file, tmp_path / "without"))
    sweep = train(write(file, text + TABLE + "dbi = true"), tmp_path / "with", workers=2)
    for path, arrays in before.items():
        after = stored(sweep)[path]
        assert after.keys() - arrays.keys() == {"dbi"}
        for name, values in arrays.items():
            if name not in ("crc", "fit_seconds", "recipe"):
                np.testing.assert_array_equal(after[name], values)
        assert after["dbi"].shape[1:] == (1,)
    group = next(iter(list_groups(sweep.paths.store)))
    assert read_array(group, "layer").tolist() == [1]
    sweep.analyze(Options(resamples=5))
    kept = sweep.runs("digits", "small")["dbi"].values[:2, 0]
    assert (kept > 0).all()
    found = sweep.results["responses"].sort("run_index")
    assert found["dbi"].to_list() == np.repeat(kept.astype(float), 3).tolist()
    assert sweep.results["cmi"].filter(measure="dbi").height == 3
    assert plan_sweep(file, sweep.directory).is_empty
    assert inside("verify", sweep.directory)[0] == 0
    assert inside("rerun", sweep.directory, "0:0:1", "--check")[0] == 0
    with pytest.raises(UserError, match=r"is stored with \[response\]"):
        plan_sweep(write(file, text + TABLE), sweep.directory)


def test_a_group_that_exists_keeps_its_responses(tmp_path):
    file = write(tmp_path / "r.toml", PLAIN + TABLE)
    plan_sweep(file, tmp_path / "sweep")
    assert plan_sweep(file, tmp_path / "sweep").is_empty
    for text in (PLAIN, PLAIN + TABLE.replace("rows            = 30", "rows            = 40")):
        with pytest.raises(UserError, match=r"is stored with \[response\]") as refused:
            plan_sweep(write(file, text), tmp_path / "sweep")
        assert "manyseed respond" in str(refused.value)


def test_layouts_say_what_was_asked_and_plain_groups_nothing(tmp_path):
    plan_sweep(write(tmp_path / "r.toml", PLAIN + TABLE), tmp_path / "sweep")
    for spec in Groups.read(SweepPaths(tmp_path / "sweep")).specs:
        value = json.loads(json.dumps(spec.to_attributes()))
        assert value["layout"] == 2
        assert value["response"]["rows"] == 30
        assert GroupSpec.from_attributes(value) == spec
        assert spec.measures == ()
    found = {
        spec.classifier: spec.asked for spec in Groups.read(SweepPaths(tmp_path / "sweep")).specs
    }
    shared = {"rows": 30, "draws": 2, "magnitudes": 5, "pair_magnitudes": 3}
    assert found["small"] == ResponseDesign(
        (("intra", 0), ("intra", 1), ("rotate:90", 0)), **shared
    )
    assert found["xgb"] == ResponseDesign((("intra", 0), ("rotate:90", 0)), **shared)
    plan_sweep(write(tmp_path / "p.toml", PLAIN), tmp_path / "plain")
    for spec in Groups.read(SweepPaths(tmp_path / "plain")).specs:
        assert spec.asked is None
        assert spec.to_attributes().keys().isdisjoint({"response", "optional", "coordinates"})


def test_the_page_s_file_plans(tmp_path):
    page = Path(__file__).parents[2] / "docs" / "response.md"
    text = re.search(r"```toml\n(.*?)```", page.read_text(), re.S)[1]
    change = plan_change(write(tmp_path / "r.toml", text), tmp_path / "sweep")
    assert len(change.after.all_cells) == 3 * 2 * 2 * 3


def test_the_table_is_in_no_identity(tmp_path):
    one, other = (
        plan_change(write(tmp_path / "r.toml", text), tmp_path / "sweep").after.all_cells["cell_id"]
        for text in (PLAIN, PLAIN + TABLE)
    )
    assert one.to_list() == other.to_list()


@pytest.mark.parametrize(
    ("table", "dataset", "key", "words"),
    [
        ('transforms = ["rotate:90"]', "sklearn:wine", "transforms", "rotate:90 needs images, and"),
        ('transforms = ["turn"]', "sklearn:digits", "transforms", "intra, inter, rotate"),
        ('transforms = ["inter:0.6"]', "sklearn:digits", "transforms", "magnitudes end below 0.5"),
        ('transforms = ["intra", "intra"]', "sklearn:digits", "transforms", "each once"),
        ('transforms = ["intra"]\nlayers = [0, 1]', "sklearn:digits", "layers", "needs a network"),
        ('transforms = ["intra"]\nlayers = [2]', "sklearn:digits", "layers", "from 0 to 1"),
        ('transforms = ["rotate:190"]', "sklearn:digits", "transforms", "180"),
        ('transforms = ["shift-x:2"]', "sklearn:digits", "transforms", "at most 1"),
        ('transforms = ["colour:0.6"]', "sklearn:digits", "transforms", "at most 0.5"),
        ('transforms = ["intra"]\nrows = 1.5', "sklearn:digits", "rows", "a share"),
        ('transforms = ["intra"]\nbatch = 1', "sklearn:digits", "batch", "from 2"),
        ('transforms = ["intra"]\ndraws = 0', "sklearn:digits", "draws", "from 1"),
        ('transforms = ["intra"]\nmagnitudes = 2', "sklearn:digits", "magnitudes", "from 3"),
        ("layers = [0]", "sklearn:digits", "transforms", "missing"),
        ('transforms = ["intra"]\ndbi = true', "sklearn:digits", "dbi", "no hidden layer"),
        ('transforms = ["intra"]\ngiven = ["depth"]', "sklearn:digits", "given", "no hparam grid"),
        (
            'transforms = ["intra"]\nleast_train_accuracy = 2',
            "sklearn:digits",
            "least_train_accuracy",
            "1",
        ),
        ('transforms = ["intra"]\ndbi = 1', "sklearn:digits", "dbi", "true or false"),
        (
            'transforms = ["intra"]',
            "synthetic:gaussian",
            "transforms",
            "intra on xgb needs continuous features only",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused(tmp_path, table, dataset, key, words):
    text = f"""
name = "r"
seed = 1
[[grid]]
dataset = ["d"]
classifier = ["xgb"]
[dataset.d]
source = "{dataset}"
{"n_features = 4" if "gaussian" in dataset else ""}
{"n_categorical = 2" if "gaussian" in dataset else ""}
[response]
{table}
"""
    with pytest.raises(UserError, match=words) as refused:
        plan_sweep(write(tmp_path / "r.toml", text), tmp_path / "sweep")
    assert f"response.{key}" in str(refused.value)
    assert not (tmp_path / "sweep").exists()


def test_cells_with_an_ensembling_method_have_no_curves(tmp_path):
    text = PLAIN.replace('["small", "xgb"]', '["small"]\nensembling = ["none", "snapshot"]')
    text = text.replace("epochs  = 2", 'epochs  = 10\noptimizer = "sgd"') + TABLE
    with pytest.raises(UserError, match="measured of single networks") as refused:
        plan_sweep(write(tmp_path / "r.toml", text), tmp_path / "sweep")
    assert "move these cells into a sweep file of their own" in str(refused.value)
    assert not (tmp_path / "sweep").exists()


def test_all_prices_of_a_run_hold_what_measuring_takes(tmp_path):
    """Tasks are cut by them, walltimes compared with them, and what is left is told by them."""
    sweep, file = tmp_path / "sweep", write(tmp_path / "r.toml", PLAIN + TABLE)
    change = plan_sweep(file, sweep)
    paths = SweepPaths(sweep)
    plan, groups = Plan.read(paths), Groups.read(paths)
    before = cost.seconds(plan)
    measuring = planned_seconds(paths, plan, groups.specs)
    after = cost.seconds(plan, None, measuring)
    assert after.columns == before.columns
    added = after["seconds"] - before["seconds"]
    assert (added > 0).all()
    # three runs of the network, of xgb one, which the others are copies of
    runs = pl.Series([1 if one else 3 for one in plan.cells["identical"]])
    hours = change.summary()["response_hours"]
    assert (added * runs).sum() / 3600 == pytest.approx(hours)
    assert change.measuring.equals(measuring)
    # an epoch of the network, which goes on from it, or all of xgb, and then the measuring
    epochs = pl.Series([2 if name == "small" else 1 for name in plan.cells["classifier"]])
    stretch = (before["seconds"] / epochs + added) / 3600
    found = cost.beyond(plan, 0.0, None, measuring).sort("classifier")
    assert found["classifier"].to_list() == ["small", "xgb"]
    for name, longest in found.select("classifier", "hours").iter_rows():
        own = stretch.filter(plan.cells["classifier"] == name)
        assert longest == pytest.approx(own.max())
    trains = [Attempt("running", "", started=time.time(), workers=1)]
    expected = (after["seconds"] * runs).sum()
    assert seconds_left(paths, survey(paths), trains) == pytest.approx(expected, abs=0.1)
    paths.sweep_file.write_text("no sweep file")
    assert planned_seconds(paths, plan, groups.specs).is_empty()
    plan_sweep(write(tmp_path / "p.toml", PLAIN), tmp_path / "plain")
    plain = SweepPaths(tmp_path / "plain")
    assert planned_seconds(plain, Plan.read(plain), Groups.read(plain).specs).is_empty()


def test_a_walltime_that_fits_end_in_is_too_short_for_many_questions(tmp_path):
    def named(text):
        file = write(tmp_path / "r.toml", text)
        options = ("--dry-run", "--out", tmp_path / "none", "--walltime", "1", "--json")
        code, told = inside("plan", file, *options)
        assert code == 0, told
        return {one["classifier"] for one in json.loads(told)["beyond_walltime"]}

    many = TABLE.replace("draws           = 2", "draws           = 1000")
    many = many.replace("magnitudes      = 5", "magnitudes      = 1001")
    assert (named(PLAIN), named(PLAIN + many)) == (set(), {"small", "xgb"})


@pytest.mark.slow
def test_analyze_makes_tables_of_scores_curves_and_what_scores_tell(tmp_path):
    text = PLAIN.replace('classifier     = ["small", "xgb"]', 'classifier     = ["small"]')
    text = text.replace("repeats = 1", "repeats = 2").replace("runs    = 3", "runs    = 2")
    text = text.replace("hparams = { depth = 1, width = 4 }", "grid = { depth = [1, 2] }")
    text = text.replace("[dataset", 'hparams = ["grid"]\n[dataset', 1)
    sweep = train(write(tmp_path / "r.toml", text + TABLE), tmp_path / "sweep", workers=2)
    sweep.analyze(Options(resamples=5))
    tables = sweep.results
    responses = tables["responses"]
    assert responses.height == 2 * 2 * 2 * 3
    group = next(iter(list_groups(sweep.paths.store)))
    right, total = (read_array(group, f"response_{name}") for name in ("right", "total"))
    rows = {key: row for row, key in enumerate(zip(*(
        read_array(group, name).tolist() for name in ("cell", "repeat_index", "run_index")
    ), strict=True))}  # fmt: skip
    for one in responses.filter(transform="rotate:90").iter_rows(named=True):
        row = rows[one["cell"], one["repeat_index"], one["run_index"]]
        share = (right[row, 2] / total[row, 2]).mean(axis=0)
        assert one["gi"] == pytest.approx(gi([-90, -45, 0, 45, 90], share))
        assert one["pal"] is None
    accuracy = tables["runs"].select("cell", "repeat_index", "run_index", "accuracy")
    both = responses.join(accuracy, on=["cell", "repeat_index", "run_index"])
    assert (both["accuracy"] - both["test_accuracy"]).abs().max() < 0.01
    assert tables["response_curves"].height == 4 * (3 + 3 + 5)
    information = tables["cmi"]
    assert set(information["transform"]) == {"intra", "rotate:90"}
    assert information["cmi"].null_count() == information.height  # two models are too few
    drawn = tables["response_draws"].filter(transform="intra", layer=0).sort("draws")
    assert drawn["draws"].to_list() == [1, 2]
    assert drawn["gi_sd"][0] == pytest.approx(
        (responses.filter(transform="intra", layer=0)["gi_draws_sd"] ** 2).mean() ** 0.5
    )
    assert drawn["seconds"][1] == pytest.approx(2 * drawn["seconds"][0])
    assert drawn["seconds"][0] > 0
    for name in ("responses", "response_curves", "cmi", "response_draws"):
        told = documented(name)
        of_all = name in ("cmi", "response_draws")
        others = set() if of_all else {"cell", "cell_id", *AXES}
        columns = {c for c in tables[name].columns if not c.startswith("hparam_")}
        assert told.keys() | others == columns, name
        kept = json.loads(pl.read_parquet_metadata(sweep.paths.table(name))["columns"])
        assert all(column["meaning"] for column in kept.values())
        code, said = inside("query", sweep.directory, "--table", name)
        assert code == 0, said
        code, said = inside("query", sweep.directory, "--table", name, "--by", "transform")
        assert code == (2 if of_all else 0), said
    code, said = inside("query", sweep.directory, "--sql", "SELECT measure, cmi FROM cmi")
    assert code == 0, said
    assert inside("report", sweep.directory)[0] == 0
    page = sweep.paths.report.read_text()
    assert "doi:10.48550/arXiv.2106.04765" in page
    assert {'id="response-curves-1"', 'id="response-cumulative-1"', 'id="response-measures"'} <= {
        *re.findall(r'id="[a-z0-9-]+"', page)
    }
    assert not responses["excluded"].any() or responses["train_accuracy"].min() < 0.8
    for kind in ("response-curves", "response-cumulative", "response-gap"):
        file = sweep.directory.parent / f"{kind}.pdf"
        code, said = inside("plot", sweep.directory, kind, "--output", str(file))
        assert (code, file.exists()) == (0, True), said
    # what is conditioned on, and who is left out, may change once all is trained
    before = responses.filter(pl.col("excluded") & (pl.col("transform") == "rotate:90")).height
    more = text + TABLE + 'given = ["depth"]\nleast_train_accuracy = 0.0\n'
    assert plan_sweep(write(tmp_path / "r.toml", more), sweep.directory).is_empty
    sweep.analyze(Options(resamples=5))
    after = sweep.results["responses"]
    assert not after["excluded"].any()
    assert sweep.results["cmi"]["n_excluded"].max() == 0
    assert after.drop("excluded").equals(responses.drop("excluded"))
    said = json.loads(pl.read_parquet_metadata(sweep.paths.table("cmi"))["conventions"])
    assert (said["given"], said["least_train_accuracy"]) == (["depth"], 0.0)
    assert not sweep.results["cmi"]["measure"].str.contains(" intra ").any()
    strict = more.replace("least_train_accuracy = 0.0", "least_train_accuracy = 1.0")
    strict += "combine = true\n"  # PRC, tables 4 to 9
    plan_sweep(write(tmp_path / "r.toml", strict), sweep.directory)
    sweep.analyze(Options(resamples=5))
    learned = sweep.results["responses"].filter(transform="rotate:90")
    assert learned["excluded"].to_list() == (learned["train_accuracy"] < 1).to_list()
    assert not sweep.results["responses"].filter(transform="intra")["excluded"].any()
    assert learned["excluded"].sum() >= before
    combined = sweep.results["cmi"].filter(pl.col("measure") == "npca(gi intra 0, gi intra 1)")
    assert combined.select("transform", "layer", "n_models").rows() == [("intra", 0, 8)]
    assert inside("report", sweep.directory)[0] == 0
    assert "npca(gi intra 0, gi intra 1)" in sweep.paths.report.read_text()


def test_what_is_given_decides_what_cmi_conditions_on(tmp_path):
    text = PLAIN.replace('["small", "xgb"]', '["small"]') + TABLE
    text = text.replace(
        "hparams = { depth = 1, width = 4 }", "grid = { depth = [1, 2], width = [4, 8] }"
    )
    text = text.replace("[dataset", 'hparams = ["grid"]\n[dataset', 1)
    file = write(tmp_path / "r.toml", text + 'given = ["lr"]')
    with pytest.raises(UserError, match="no hparam grid varies it") as refused:
        plan_change(file, tmp_path / "sweep")
    assert "those that vary: depth, width" in str(refused.value)
    change = plan_change(write(file, text + 'given = ["width"]'), tmp_path / "sweep")
    assert change.sweep.response.given == ["width"]


def test_the_plan_prices_curves_as_a_part_of_its_hours(tmp_path):
    def cost(text):
        change = plan_change(write(tmp_path / "r.toml", text), tmp_path / "sweep")
        summary = change.summary()
        assert summary["response_hours"] == pytest.approx(
            sum(group["response_hours"] for group in summary["by_group"])
        )
        return {row["classifier"]: row for row in change.cost.to_dicts()}, change

    plain, _ = cost(PLAIN)
    priced, change = cost(PLAIN + TABLE)
    more, _ = cost(PLAIN + TABLE.replace("draws           = 2", "draws           = 4"))
    assert {row["response_hours"] for row in plain.values()} == {0.0}
    for name, row in priced.items():
        assert row["response_hours"] > 0
        total = plain[name]["core_hours"] + row["response_hours"]
        assert row["core_hours"] == pytest.approx(total)
        # draws double the curves, not what is counted once
        assert 1.2 < more[name]["response_hours"] / row["response_hours"] < 2
    hours = sum(row["core_hours"] for row in plain.values())
    assert change.estimated().hours == pytest.approx(hours)
