"""Of cells that were planned apart and are the same fits, every answer counts one."""

from __future__ import annotations

import json
import re
import shutil
from functools import partial
from pathlib import Path
from unittest import mock

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from manyseed import Sweep
from manyseed.analysis.options import Options
from manyseed.analysis.tables import rows
from manyseed.analysis.tables.rows import Tables
from manyseed.orchestrator.asking.query import query
from manyseed.orchestrator.plans import planning
from manyseed.orchestrator.plans.change import drop
from manyseed.orchestrator.results.page import summary_table
from tests.orchestrator.conftest import inside, own_copy, train, write

FILE = """
name    = "twins"
seed    = 3
repeats = 2
runs    = 4

[[grid]]
dataset            = ["sklearn:breast_cancer"]
classifier         = ["lr-sgd", "xgb"]
perturb_continuous = ["none", "relative:0.5"]
vary               = ["init+batch", "batch", "batch+train"]
"""
NAMES = ("cell", "classifier", "perturb_continuous", "vary")
MEASURED = "^.*(seconds|recipe).*$"


def analysed(folder: Path, *, apart: bool) -> Sweep:
    """A trained sweep, planned as earlier versions did or as this one."""
    file = write(folder / "s.toml", FILE)
    if apart:
        with mock.patch.object(planning, "merge_twins", lambda asked, *_: (asked, ())):
            Sweep.plan(file, folder / "sweep")
    made = train(file, folder / "sweep", workers=1)
    made.analyze(Options(resamples=5), workers=1)
    return made


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    folder = own_copy(tmp_path_factory, "twins-apart", partial(analysed, apart=True))
    return Sweep(folder / "sweep")


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    folder = own_copy(tmp_path_factory, "twins-once", partial(analysed, apart=False))
    return Sweep(folder / "sweep")


def twins_of(sweep: Sweep) -> dict[int, int | None]:
    return dict(sweep.results["cells"].select("cell", "same_as").iter_rows())


def test_the_tables_name_the_twin(old: Sweep, new: Sweep) -> None:
    cells = old.results["cells"]
    assert cells.height == 12
    named = {
        (row["classifier"], row["perturb_continuous"], row["vary"]): row
        for row in cells.iter_rows(named=True)
    }
    for (classifier, scheme, vary), row in named.items():
        counts = named[classifier, scheme, "init+batch"]["cell"]
        assert row["same_as"] == (counts if vary == "batch" else None)
        drawn = ["batch"] if classifier == "lr-sgd" else []
        drawn += ["train"] if vary == "batch+train" else []
        assert row["draws_from"] == ("+".join(drawn) or "none")
    sources = old.results["sources"]
    assert_frame_equal(
        sources.select("same_as", "draws_from"), cells.select("same_as", "draws_from")
    )
    assert new.results["cells"].height == 8
    assert new.results["cells"]["same_as"].null_count() == 8
    # twins are the same fits: all numbers are
    number = (
        pl.selectors.numeric() & ~pl.selectors.matches(MEASURED) & ~pl.selectors.by_name("cell")
    )
    for row in cells.filter(pl.col("same_as").is_not_null()).iter_rows(named=True):
        other = cells.filter(cell=row["same_as"]).select(number - pl.selectors.by_name("same_as"))
        own = cells.filter(cell=row["cell"]).select(number - pl.selectors.by_name("same_as"))
        assert_frame_equal(own, other)


@pytest.mark.parametrize("table", ["effects", "variance"])
def test_effects_and_components_of_variance_are_those_of_such_a_sweep(
    old: Sweep, new: Sweep, table: str
) -> None:
    number = pl.selectors.by_name("cell", "cells", "reference_cell", require_all=False)
    found, expected = (
        s.results[table].select(pl.exclude("cell_id", MEASURED)).drop(number) for s in (old, new)
    )
    assert found.height
    keys = [name for name, kind in found.schema.items() if kind == pl.String]
    assert_frame_equal(found.sort(keys), expected.sort(keys))


@pytest.mark.parametrize("table", ["runs", "pairs", "repeats", "cells", "sources", "ranking"])
def test_means_over_cells_are_those_of_a_sweep_that_holds_each_once(
    old: Sweep, new: Sweep, table: str
) -> None:
    for by in (["classifier"], ["dataset"], ["classifier", "perturb_continuous"]):
        found = query(old.results, table, by=by).sort(by)
        expected = query(new.results, table, by=by).sort(by)
        assert "n_twins" not in expected.columns
        if table == "ranking":  # it has no rows of twins
            assert found["n_twins"].sum() == 0
        else:
            rows = query(old.results, table, columns=["cell"]).height
            assert found["n"].sum() + found["n_twins"].sum() == rows
        measured = pl.selectors.matches(MEASURED) | pl.selectors.by_name(
            "n_twins", require_all=False
        )
        assert_frame_equal(found.drop(measured), expected.drop(measured))


def test_in_groups_of_their_own_twins_stand_side_by_side_and_are_counted(old: Sweep) -> None:
    found = query(old.results, "cells", by=["vary"]).sort("vary")
    assert found["vary"].to_list() == ["batch", "batch+train", "init+batch"]
    assert found["n"].to_list() == [4, 4, 4]
    assert found["n_twins"].to_list() == [4, 0, 0]
    code, told = inside("query", old.directory, "--by", "vary")
    assert code == 0
    assert "n_twins: rows of cells whose fits are those of another cell" in " ".join(told.split())
    assert "same_as" in query(old.results, "cells").columns


def test_of_a_part_of_the_twins_the_first_counts(old: Sweep) -> None:
    where = "vary = 'batch'"
    found = query(old.results, "cells", by=["classifier"], where=where)
    assert found["n"].to_list() == [2, 2]
    both = query(old.results, "cells", by=["classifier"], where="vary != 'batch+train'")
    assert_frame_equal(found.drop("n_twins"), both.drop("n_twins"))


def test_the_ranking_lists_no_run_twice(old: Sweep, new: Sweep) -> None:
    kept = [name for name in NAMES if name not in ("cell", "vary")]
    columns = [*kept, "repeat_index", "run_index", "rank", "accuracy", "alpha_hat"]
    found, expected = (s.results["ranking"].select(columns).sort(columns) for s in (old, new))
    assert_frame_equal(found, expected)


def test_howmany_answers_for_each_fit_once(old: Sweep, new: Sweep) -> None:
    def answers(sweep: Sweep, **options: object) -> list[object]:
        found = sweep.howmany(workers=1, **options)
        return [
            (group.cells, [(a.purpose, a.runs, a.low, a.high) for a in group.answers])
            for group in found
        ]

    assert answers(old, by=["classifier"]) == answers(new, by=["classifier"])
    assert len(answers(old)) == 8
    assert len(answers(old, where="vary = 'batch'")) == 4


def test_compare_pairs_each_fit_once(old: Sweep, new: Sweep) -> None:
    for axis in ("perturb_continuous", "vary"):
        assert len(old.compare(by=axis)) == len(new.compare(by=axis)) == 4


def test_summary_and_page_mark_twins_and_count_them_once(old: Sweep, new: Sweep) -> None:
    shown = summary_table(old.results["cells"])
    assert shown["cell"].str.contains("‡", literal=True).sum() == 4
    assert not summary_table(new.results["cells"])["cell"].str.contains("‡", literal=True).any()
    code, told = inside("analyze", old.directory, "--resamples", 5)
    told = " ".join(told.split())
    assert code == 0
    assert "16 repeats: 8 cells on 2 test sets each. 4 more are the same fits again (‡)." in told
    assert (
        "‡ The same fits as another cell, counted once: lr-sgd with vary = batch as with vary = "
        "init+batch (draws from batch): 2 cells." in told
    )
    page, other = (sweep.report().read_text() for sweep in (old, new))
    assert page.count('counted once">‡</abbr>') == 4
    assert "‡" not in other

    def below_the_summary(html: str) -> str:
        """Figures' numbers and effects; a run's address begins with the number of its cell."""
        captions = [part.split("</figcaption>")[0] for part in html.split("<figcaption>")[1:]]
        effects = html.split('<section id="effects">')[1].split("</section>")[0]
        return re.sub(r"run \d+:", "run ", "\n".join([*captions, effects]))

    assert below_the_summary(page) == below_the_summary(other)


def test_effects_pair_what_draws_from_the_same_whatever_its_name() -> None:
    axes = {"dataset": "d", "classifier": "lr-sgd", "hparams": "default"}
    axes |= {"perturb_hparams": "none", "draws_from": "batch", "same_as": None}
    cells = pl.DataFrame(
        [
            {**axes, "cell": 0, "vary": "batch", "perturb_continuous": "none"},
            {**axes, "cell": 1, "vary": "init+batch", "perturb_continuous": "relative:0.5"},
            {**axes, "cell": 2, "vary": "train", "perturb_continuous": "none"}
            | {"draws_from": "train"},
        ],
        schema_overrides={"same_as": pl.UInt32},
    )
    empty = cells.clear()
    tables = Tables(empty, empty, cells.drop("draws_from", "same_as"), cells)
    assert rows.paired(tables).repeats["vary"].to_list() == ["init+batch", "init+batch", "train"]


def test_the_twin_with_more_finished_runs_counts_and_one_that_is_left_counts_itself(
    old: Sweep, tmp_path: Path
) -> None:
    cells = pl.DataFrame({"cell": [0, 1, 2, 3], "n_distinct": [4, 6, 6, 5]})
    fits = pl.DataFrame({"cell": [0, 1, 2, 3], "draws_from": ["batch"] * 4, "fits": [*"aaab"]})
    assert rows.same_as(fits, cells)["same_as"].to_list() == [1, None, 1, None]
    own = Sweep(shutil.copytree(old.directory, tmp_path / "sweep"))
    first = next(cell for cell, same in twins_of(own).items() if same is not None)
    other = twins_of(own)[first]
    drop(own.paths, f"cell = {other}")
    own.analyze(Options(resamples=5), workers=1)
    assert twins_of(own)[first] is None
    _, told = inside("query", own.directory, "--by", "dataset", "--json")
    assert json.loads(told)["rows"][0]["n"] == 8
