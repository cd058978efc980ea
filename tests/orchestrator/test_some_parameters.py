"""Parameters that are kept of some runs: those that meet a condition, and no others."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.plans.keptmodels import with_models
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import plan_change
from manyseed.orchestrator.store.groups import list_groups
from manyseed.orchestrator.store.reader import read_array
from manyseed.orchestrator.store.schema import GroupSpec
from tests.orchestrator.conftest import command, inside, shared, stored, train, write

WHERE = "run_index < 2 AND perturb_continuous = 'none'"
TEXT = f"""
name    = "some"
seed    = 5
repeats = 2
runs    = 3
keep    = {{ parameters = "{WHERE}" }}

[[grid]]
dataset            = ["digits"]
classifier         = ["net", "lr-sgd"]
train_fraction     = [100]
perturb_continuous = ["none", "relative:0.1"]

[[grid]]
dataset        = ["wine"]
classifier     = ["lr-sgd"]

[dataset.digits]
source = "sklearn:digits"
test   = 0.1

[dataset.wine]
source = "sklearn:wine"
keep   = {{ parameters = true }}

[classifier.net]
kind    = "convnet"
epochs  = 1
hparams = {{ width = 3, depth = 1 }}
"""
EVERY = TEXT.replace(f'"{WHERE}"', "true")


@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return shared(tmp_path_factory, "some", TEXT)


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return shared(tmp_path_factory, "every", EVERY)


def asked_for(sweep: Sweep, group: int) -> np.ndarray:
    """Return the rows of a group that meet the condition, by hand."""
    plan = Plan.read(sweep.paths)
    rows = plan.rows.filter(group=group).join(plan.cells.drop("group"), on="cell")
    met = (pl.col("run") < 2) & (pl.col("perturb_continuous") == "none")
    return rows.filter(met | (pl.col("dataset") == "wine"))["row"].sort().to_numpy()


def test_they_are_kept_of_runs_that_meet_the_condition_alone(some: Sweep, every: Sweep) -> None:
    counts = {}
    wholes = {group.spec.path: group for group in list_groups(every.paths.store)}
    for group in list_groups(some.paths.store):
        values = read_array(group, "parameters")
        there = np.flatnonzero(~np.isnan(values).all(axis=1))
        np.testing.assert_array_equal(there, asked_for(some, group.spec.number))
        whole = wholes[group.spec.path]
        np.testing.assert_array_equal(values[there], read_array(whole, "parameters")[there])
        label = read_array(group, "label")
        np.testing.assert_array_equal(label, read_array(whole, "label"))
        counts[group.spec.path] = len(there)
    assert counts == {"digits/net": 4, "digits/lr-sgd": 4, "wine/lr-sgd": 6}


def test_what_is_stored_says_so_and_takes_less(some: Sweep, every: Sweep) -> None:
    sizes = []
    for sweep in (some, every):
        files = (sweep.paths.store / "digits" / "net" / "parameters").glob("c.*")
        sizes.append(sum(file.stat().st_size for file in files))
    assert sizes[0] < 0.7 * sizes[1]
    for group in list_groups(some.paths.store):
        spec = group.spec
        layout = 2 if spec.dataset == "wine" else 3
        value = spec.to_attributes()
        assert value["layout"] == layout
        assert value.get("parameters_where", "") == (WHERE if layout == 3 else "")
        assert GroupSpec.from_attributes(value) == spec
    attributes = some.raw_predictions["digits/net"].dataset.parameters.attrs
    assert attributes["condition"] == WHERE
    assert "condition" not in every.raw_predictions["digits/net"].dataset.parameters.attrs
    assert all(
        "parameters_where" not in g.spec.to_attributes() for g in list_groups(every.paths.store)
    )


def test_a_plan_knows_what_they_take(tmp_path: Path, some: Sweep, every: Sweep) -> None:
    found = {}
    for name, text in (("some", TEXT), ("every", EVERY)):
        change = plan_change(write(tmp_path / f"{name}.toml", text), tmp_path / name)
        found[name] = {room.spec.path: room for room in change.stored}
    assert found["some"]["digits/net"].models == 4
    assert found["some"]["wine/lr-sgd"].models is None
    assert found["some"]["digits/net"].bytes < found["every"]["digits/net"].bytes
    assert found["some"]["wine/lr-sgd"].bytes == found["every"]["wine/lr-sgd"].bytes


def test_runs_are_the_same_when_they_are_trained_again(some: Sweep) -> None:
    plan = Plan.read(some.paths)
    (cell,) = plan.cells.filter(classifier="net", perturb_continuous="none")["cell"]
    for address in (f"{cell}:0:0", f"{cell}:1:2"):  # one with its model, one without
        assert some.rerun(address)["equal"]


def test_models_that_are_kept_answer_and_others_are_not_asked(some: Sweep, tmp_path: Path) -> None:
    asked = ("respond", some.directory, "--transforms", "intra", "--workers", 1)
    code, told = inside(*asked, "--where", "classifier = 'net'")
    assert code == 0, told
    (table,) = some.paths.responses.glob("*.parquet")
    answers = pl.read_parquet(table)
    plan = Plan.read(some.paths)
    (cell,) = plan.cells.filter(classifier="net", perturb_continuous="none")["cell"]
    assert answers["cell"].unique().to_list() == [cell]
    runs = answers.select("repeat", "run").unique().sort("repeat", "run")
    assert runs.rows() == [(0, 0), (0, 1), (1, 0), (1, 1)]
    code, told = inside(*asked, "--where", "classifier = 'net' AND perturb_continuous <> 'none'")
    assert code == 2
    assert "none of these runs of digits × net keeps its parameters" in " ".join(told.split())
    assert WHERE in " ".join(told.split())
    table.unlink()


@pytest.mark.slow
def test_damage_is_mended_to_the_same(some: Sweep, tmp_path: Path) -> None:
    sweep = train(write(tmp_path / "some.toml", TEXT), tmp_path / "sweep", workers=2)
    before = stored(sweep)
    assert command("compact", sweep.directory).returncode == 0
    file = sweep.paths.store / "digits" / "net" / "parameters" / "c.0.0"
    with file.open("r+b") as shard:
        shard.seek(file.stat().st_size // 4)
        shard.write(os.urandom(64))
    assert command("verify", sweep.directory).returncode == 1
    assert command("verify", sweep.directory, "--repair").returncode in (0, 1)
    assert command("resume", sweep.directory, "--workers", 2).returncode == 0
    sweep.wait()
    assert sweep.status()["runs"]["done"] == 30
    assert command("verify", sweep.directory).returncode == 0
    after = stored(sweep)
    for path, arrays in before.items():
        for name in ("parameters", "label"):
            np.testing.assert_array_equal(after[path][name], arrays[name])
    archive = tmp_path / "some.zip"
    assert command("export", sweep.directory, "--output", archive).returncode == 0


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("classifier = 'net' AND run_index < 1", ["net"]),
        ("classifier IN ('net', 'lr-sgd') AND train_fraction < 200", ["lr-sgd", "net"]),
        ("NOT (classifier = 'xgb' OR repeat_index > 0)", ["lr-sgd", "net"]),
        ("dataset = 'other'", []),
    ],
)
def test_classifiers_that_a_condition_leaves_out_keep_none(
    tmp_path: Path, where: str, kept: list[str]
) -> None:
    text = TEXT.replace(WHERE, where).replace('["net", "lr-sgd"]', '["net", "lr-sgd", "xgb"]')
    sweep = Sweep.plan(write(tmp_path / "some.toml", text), tmp_path / "sweep")
    specs = [spec for spec in Groups.read(sweep.paths).specs if spec.dataset == "digits"]
    assert sorted(spec.classifier for spec in specs if spec.parameters) == kept
    assert all(spec.parameters_where == (where if spec.parameters else "") for spec in specs)
    more = text.replace("runs    = 3", "runs    = 4")
    more = more.replace('"relative:0.1"', '"relative:0.1", "relative:0.2"')
    assert Sweep.plan(write(tmp_path / "more.toml", more), sweep.directory)


@pytest.mark.parametrize("identical", [False, True])
def test_where_all_runs_of_a_repeat_are_one_fit_the_first_decides(
    some: Sweep, identical: bool
) -> None:
    plan = Plan.read(some.paths)
    cells = plan.cells.with_columns(identical=pl.lit(identical))
    rows = plan.rows.filter(group=0)
    first, later = (
        with_models(cells, rows, {0: where}) for where in ("run_index = 0", "run_index >= 1")
    )
    if identical:
        assert first.all()
        assert not later.any()
    else:
        assert (first == (rows["run"] == 0)).all()
        assert (later == (rows["run"] > 0)).all()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("accuracy > 0.9", "unknown column accuracy"),
        ("run_index <", "not a condition"),
        ("run_index < 'a'", "not a condition"),
        ("best", "unknown column best"),
    ],
)
def test_what_is_no_condition_is_one_message(tmp_path: Path, where: str, message: str) -> None:
    file = write(tmp_path / "bad.toml", TEXT.replace(WHERE, where))
    code, told = inside("plan", file, "--out", tmp_path / "sweep")
    assert code == 2
    assert f"{file.name}: keep.parameters = " in told
    assert message in told
    assert "rerun DIR --where … --save" in told
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize("value", ['""', "3", "[1]"])
def test_what_is_neither_is_one_message(tmp_path: Path, value: str) -> None:
    file = write(tmp_path / "bad.toml", TEXT.replace(f'"{WHERE}"', value))
    code, told = inside("plan", file, "--out", tmp_path / "sweep")
    assert (code, "must be true, false or a condition in quotes" in told) == (2, True)


def test_a_group_keeps_its_condition_and_grows(some: Sweep, tmp_path: Path) -> None:
    sweep = Sweep.plan(write(tmp_path / "some.toml", TEXT), tmp_path / "sweep")
    more = write(tmp_path / "more.toml", TEXT.replace("runs    = 3", "runs    = 4"))
    assert Sweep.plan(more, sweep.directory).status()["runs"]["runs"] == 40
    for text, asked in ((EVERY, "true"), (TEXT.replace("< 2", "< 1"), "run_index < 1")):
        text = text.replace("runs    = 3", "runs    = 4")
        with pytest.raises(UserError, match="is stored with keep") as error:
            Sweep.plan(write(tmp_path / "other.toml", text), sweep.directory)
        assert WHERE in str(error.value)
        assert f"this file asks for {asked}" in str(error.value).replace('"', "")
