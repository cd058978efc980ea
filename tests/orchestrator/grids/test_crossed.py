"""Crossed sources in a sweep file: how many runs, which cells, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from manyseed.jobs.run import Cell
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.grids.expansion import expand
from manyseed.orchestrator.grids.sweepfile import SweepFile

HERE = Path("sweep.toml")


def sweep(whole: int = 9, **grid: object) -> SweepFile:
    lists = {"dataset": ["sklearn:wine"], "classifier": ["mlp"], **grid}
    return SweepFile.model_validate(
        {"name": "x", "seed": 3, "repeats": 2, "runs": whole, "grid": [lists]}
    )


def test_identities_are_those_of_the_cells_and_others_do_not_change():
    both = expand(sweep(vary=["init+batch", "batch*init"]), HERE).cells
    assert both["vary"].to_list() == ["init+batch", "init*batch"]
    for cell_id, text in both.select("cell_id", "canonical").iter_rows():
        assert Cell.from_text(text).id == cell_id
    assert "crossed" not in both["canonical"][0]
    assert both["cell_id"][0] == expand(sweep(vary=["init+batch"]), HERE).cells["cell_id"][0]
    assert both["runs"].to_list() == [9, 9]


@pytest.mark.parametrize(
    ("runs", "vary", "key", "remedy"),
    [
        (10, "init*batch", "runs", "runs = 9 (3 × 3) or 16 (4 × 4)"),
        (1, "init*batch", "runs", "runs = 4 (2 × 2)"),
        (16, "init*batch*train", "runs", "runs = 8 (2 × 2 × 2) or 27 (3 × 3 × 3)"),
    ],
)
def test_a_number_of_runs_that_is_no_full_cross_is_refused(runs, vary, key, remedy):
    with pytest.raises(UserError) as found:
        expand(sweep(runs, vary=[vary]), HERE)
    assert (found.value.key, found.value.value) == (key, runs)
    assert found.value.remedy == remedy


def test_a_grid_has_a_number_of_its_own_and_powers_of_both_suit_both():
    with pytest.raises(UserError) as found:
        expand(sweep(9, vary=["init*batch"], runs=8), HERE)
    assert found.value.key == "grid[0].runs"
    cells = expand(sweep(64, vary=["init*batch", "init*batch*train"]), HERE).cells
    assert cells["runs"].to_list() == [64, 64]


def test_a_rule_that_names_crossed_sources_is_no_pattern():
    vary = ["init+batch", "init*batch", "init*batch*train"]
    lists = {"vary": vary, "exclude": [{"vary": "init*batch"}]}
    cells = expand(sweep(64, **lists), HERE).cells
    assert cells["vary"].to_list() == ["init+batch", "init*batch*train"]
    lists["exclude"] = [{"vary": "*train"}]
    assert expand(sweep(64, **lists), HERE).cells["vary"].to_list() == vary[:2]


def test_a_classifier_without_a_crossed_source_is_named():
    with pytest.raises(UserError, match="draws nothing from init") as found:
        expand(sweep(vary=["init*batch"], classifier=["lr-sgd", "mlp"]), HERE)
    assert "exclude" in str(found.value)
