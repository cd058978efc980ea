"""Showing, training again and dropping: single runs and cells of a finished sweep."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from manyseed.analysis.options import Options
from manyseed.jobs.run import Cell, Run
from manyseed.jobs.trainer import Trainer
from manyseed.orchestrator.cli import main
from manyseed.orchestrator.errors import DamagedFile, UserError
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import plan_sweep
from manyseed.orchestrator.provenance import Recipe
from manyseed.orchestrator.runs import find_run
from manyseed.orchestrator.store.groups import list_groups, published_shards
from manyseed.orchestrator.store.reader import read_array, statuses
from manyseed.orchestrator.sweep import Sweep
from tests.orchestrator.conftest import command


@pytest.fixture
def copy(quick, tmp_path):
    """A copy of the trained sweep, to be changed."""
    shutil.copytree(quick.directory, tmp_path / "copy")
    return Sweep(tmp_path / "copy")


def test_a_run_is_found_by_number_and_by_the_identitys_first_digits(quick):
    cells = Plan.read(quick.paths).cells
    for number, cell_id in cells.select("cell", "cell_id").iter_rows():
        by_number = find_run(quick.paths, f"{number}:1:2")
        if not cell_id[:8].isdigit():
            assert find_run(quick.paths, f"{cell_id[:8]}:1:2") == by_number
        assert (by_number.run.repeat, by_number.run.run) == (1, 2)
        assert by_number.run.cell.id == cell_id


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("3", "CELL:REPEAT:RUN"),
        ("3:1", "CELL:REPEAT:RUN"),
        ("x:1:1", "CELL:REPEAT:RUN"),
        ("99:0:0", "no cell 99"),
        ("²:0:0", "CELL:REPEAT:RUN"),
        ("0:²:0", "CELL:REPEAT:RUN"),
        (f"{'9' * 5000}:0:0", "CELL:REPEAT:RUN"),
        (f"{'9' * 64}:0:0", "no cell 9999"),
        (f"0:0:{'9' * 5000}", "CELL:REPEAT:RUN"),
        ("0:999999999:0", "repeats 0 to 1 and runs 0 to 3"),
        ("0:9:0", "repeats 0 to 1 and runs 0 to 3"),
        ("0:0:4", "repeats 0 to 1 and runs 0 to 3"),
    ],
)
def test_what_is_no_run_is_told(quick, address, told):
    with pytest.raises(UserError, match=told) as error:
        quick.show(address)
    assert error.value.exit_code == 2


def test_show_tells_what_defines_a_run_and_how_it_was_made(quick):
    shown = quick.show("1:0:2")
    assert Cell.from_canonical(shown["description"]).id == shown["cell_id"]
    assert shown["stored"]["status"] == "done"
    assert shown["stored"]["recipe"]["threads"] == 1
    assert shown["stored"]["fit_seconds"] > 0
    assert shown["fitted_with"] == dict(shown["description"]["hparams"])
    json.dumps(shown)
    done = command("show", quick.directory, "1:0:2", "--json")
    assert json.loads(done.stdout) == {"schema": 1, **shown}


@pytest.mark.parametrize("how", ["is absent", "is not as it was written"])
def test_how_a_run_was_made_is_unknown_where_its_recipe_is_lost(copy, how):
    (file,) = copy.paths.recipes.glob("*.json")
    copy.analyze(Options(resamples=10))
    if how == "is absent":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes().replace(b'"threads":1', b'"threads":2'))
    stored = copy.show("1:0:2")["stored"]
    assert (stored["status"], stored["recipe"]) == ("done", None)
    assert stored["recipe_unknown"].startswith(f"{file}: {how}")
    again = copy.rerun("1:0:2")
    assert not again["same_recipe"]
    assert again["recipe_unknown"] == stored["recipe_unknown"]
    if how == "is absent":
        said: list[str] = []
        page = copy.report(said.append)
        assert said == [f"{file} is lost: restore it"]
        assert f"{file.relative_to(copy.directory)} is lost" in page.read_text()
    found = copy.verify()
    told = [f"how 32 runs came about is unknown: {stored['recipe_unknown']}"] * 2
    assert [one["problem"] for one in found["findings"]] == told
    assert found["runs_wrong"] == 0
    assert command("verify", copy.directory).returncode == 1
    done = copy.verify(repair=True)
    assert done["runs_set_back"] == 0
    assert [str(file) in one for one in done["not_mended"]] == [True, True]
    repaired = command("verify", copy.directory, "--repair")
    assert (repaired.returncode, "2 findings are not mended" in repaired.stderr) == (1, True)


def test_a_lost_recipes_number_is_not_given_again(copy, tmp_path):
    """Also where nothing is marked, as in sweeps of earlier versions: the store tells."""
    for file in copy.paths.recipes.iterdir():
        file.unlink()
    larger = copy.paths.sweep_file.read_text().replace("repeats = 2", "repeats = 3")
    (tmp_path / "larger.toml").write_text(larger)
    sweep = Sweep.plan(tmp_path / "larger.toml", copy.directory)
    sweep.submit(workers=1)
    sweep.wait()
    sweep.compact()
    names = sorted(file.name for file in sweep.paths.recipes.iterdir())
    assert names == ["0001.given", "0002.given", "0002.json"]
    assert sweep.show("1:2:2")["stored"]["recipe"]["threads"] == 1
    assert sweep.show("1:0:2")["stored"]["recipe"] is None


def test_every_kind_of_run_trained_again_is_equal_bit_for_bit(quick):
    for address in ("0:0:0", "3:1:3", "4:0:1", "6:1:2"):
        again = quick.rerun(address)
        assert again["same_recipe"]
        assert again["equal"], address
        assert (again["labels_differ"], again["largest_difference"]) == (0, 0.0)


def test_the_copy_of_an_identical_run_is_compared_with_its_source(quick):
    [number] = Plan.read(quick.paths).cells.filter("identical")["cell"]
    assert quick.show(f"{number}:0:2")["stored"]["status"] == "copy"
    assert quick.rerun(f"{number}:0:2")["equal"]


def test_another_recipe_is_told_and_what_differs_is_counted(quick, monkeypatch):
    here = Recipe.here()
    monkeypatch.setattr(Recipe, "here", lambda: replace(here, threads=2))
    again = quick.rerun("0:0:0")
    assert again["recipe_changes"] == {"threads": [1, 2]}
    assert not again["same_recipe"]


def test_check_fails_where_what_is_stored_is_another_run(quick, monkeypatch, capsys):
    train = Trainer.train

    def another(self, run, snapshots, **handling):
        return train(self, Run(run.cell, run.repeat, run.run + 1), snapshots, **handling)

    monkeypatch.setattr(Trainer, "train", another)
    again = quick.rerun("0:0:0")
    assert again["same_recipe"]
    assert not again["equal"]
    assert again["largest_difference"] > 0
    monkeypatch.setattr(
        sys, "argv", ["manyseed", "rerun", str(quick.directory), "0:0:0", "--check"]
    )
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 1
    assert "random numbers that do not come from its seeds" in " ".join(
        capsys.readouterr().err.split()
    )


def test_a_run_that_is_not_there_yet_cannot_be_compared(quick, tmp_path):
    plan_sweep(quick.paths.sweep_file, tmp_path / "fresh")
    with pytest.raises(UserError, match="not published yet"):
        Sweep(tmp_path / "fresh").rerun("0:0:0")
    stored = Sweep(tmp_path / "fresh").show("0:0:0")["stored"]
    assert stored["status"] == "missing"
    assert stored["why"].startswith("it was never submitted: manyseed submit ")


def test_dropped_cells_are_out_for_good_and_the_others_untouched(copy):
    before = Plan.read(copy.paths)
    kept = before.rows.filter(pl.col("cell") >= 2)
    found = copy.drop("classifier = 'lr-sgd' AND train_fraction = 0.5")
    assert (len(found.cells), found.runs, found.finished) == (2, 16, 16)
    plan = Plan.read(copy.paths)
    gone = sorted(found.cells["cell"])
    assert plan.rows.equals(before.rows.filter(~pl.col("cell").is_in(gone)))
    assert copy.status()["runs"]["missing"] == 0
    assert copy.status()["runs"]["runs"] == 48
    for group in list_groups(copy.paths.store):
        cell, status = read_array(group, "cell"), statuses(group)
        assert (status[np.isin(cell, gone)] == 0).all()
        assert (status[(cell >= 0) & ~np.isin(cell, gone)] != 0).all()
    assert plan_sweep(copy.paths.sweep_file, copy.directory).is_empty
    assert Plan.read(copy.paths).rows.equals(plan.rows)
    assert copy.verify()["runs_wrong"] == 0
    copy.analyze()
    assert set(copy.results["cells"]["cell"]) == set(range(8)) - set(gone)
    assert len(kept)


def test_a_whole_group_can_be_dropped(copy):
    def held():
        files = [file for file in copy.paths.store.rglob("*") if file.is_file()]
        return sum(file.stat().st_size for file in files if "xgb" in file.parts)

    before = held()
    found = copy.drop("classifier = 'xgb'")
    assert found.freed > 0
    assert before - held() == pytest.approx(found.freed, rel=0.02)  # emptied, files are smaller
    groups = [one for one in list_groups(copy.paths.store) if one.spec.classifier == "xgb"]
    assert [published_shards(one.folder) for one in groups] == [set()]
    assert copy.verify()["runs_wrong"] == 0
    assert copy.drop("classifier = 'xgb'").freed == 0
    assert copy.status()["runs"]["runs"] == 32
    copy.analyze()
    assert set(copy.results["cells"]["classifier"]) == {"lr-sgd"}


def test_an_enlarged_plan_keeps_dropped_rows_places(copy):
    copy.drop("train_fraction = 0.5")
    held = dict(Plan.read(copy.paths).groups.select("group", "length").iter_rows())
    text = copy.paths.sweep_file.read_text().replace("runs    = 4", "runs    = 6")
    (copy.directory.parent / "larger.toml").write_text(text)
    change = plan_sweep(copy.directory.parent / "larger.toml", copy.directory)
    assert len(change.added) == 4 * 2 * 2
    assert change.added["row"].min() >= min(held.values())
    assert change.summary()["cells"] == 4
    assert change.summary()["cells_dropped"] == 4


def test_a_kill_after_the_tombstone_is_completed_by_dropping_again(copy, monkeypatch):
    from manyseed.orchestrator.plans import change as module

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "drop_rows", killed)
        with pytest.raises(KeyboardInterrupt):
            copy.drop("classifier = 'xgb'")
    assert copy.status()["runs"]["runs"] == 32
    again = copy.drop("classifier = 'xgb'")
    assert again.finished == 32
    assert copy.drop("classifier = 'xgb'").finished == 0
    assert len(list((copy.directory / "plan").glob("dropped-*.json"))) == 1


def test_another_cell_than_was_dropped_is_seen(copy):
    copy.drop("cell = 1")
    file = copy.directory / "plan" / "dropped-0001.json"
    file.write_bytes(file.read_bytes().replace(b"[1]", b"[2]"))
    with pytest.raises(DamagedFile, match=f"{file}: is not as it was written"):
        copy.status()


def test_the_last_cells_cannot_be_dropped(copy):
    copy.drop("classifier = 'xgb'")
    with pytest.raises(UserError, match="every remaining cell meets"):
        copy.drop("classifier = 'lr-sgd'")
    assert copy.status()["runs"]["runs"] == 32


def test_a_sweep_whose_cells_were_all_dropped_once_has_a_state(copy):
    cells = Plan.read(copy.paths).all_cells["cell"].to_list()
    (copy.directory / "plan" / "dropped-0007.json").write_text(json.dumps({"cells": cells[:-1]}))
    copy.drop(f"cell < {cells[3]}")  # nothing new: no further file
    (copy.directory / "plan" / "dropped-0009.json").write_text(json.dumps({"cells": cells}))
    assert copy.status()["runs"]["runs"] == 0
    assert copy.submit(workers=1) is None


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("model = 'xgb'", "unknown column"),
        ("classifier =", "not a condition"),
        ("classifier = 'mlp'", "no cell meets"),
        ("runs = 4", "every remaining cell meets"),
    ],
)
def test_conditions_that_are_none_drop_nothing(quick, where, told):
    with pytest.raises(UserError, match=told):
        quick.drop(where)
    assert not list((quick.directory / "plan").glob("dropped-*.json"))
