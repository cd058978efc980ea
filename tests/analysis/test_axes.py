"""Levels in words, and as conditions."""

from __future__ import annotations

import polars as pl
import pytest

from manyseed.analysis.axes import condition, told


@pytest.mark.parametrize(
    ("axis", "levels", "said"),
    [
        ("train_fraction", (40.0,), "40 rows"),
        ("train_fraction", (0.5, 1.0), "train fraction 0.5 or 1.0"),
        ("hparams", ("weight_decay=0.1",), "hparams weight_decay=0.1"),
    ],
)
def test_a_level_keeps_its_name_in_words(axis: str, levels: tuple[object, ...], said: str) -> None:
    """Names of hparams lost their underscores."""
    assert told(axis, *levels) == said


@pytest.mark.parametrize(
    ("axis", "level"), [("dataset", "kid's own"), ("train_fraction", 0.5), ("vary", "init+batch")]
)
def test_a_condition_selects_the_cells_with_the_level(axis: str, level: object) -> None:
    cells = pl.DataFrame({axis: [level, level], "other": [1, 2]})
    assert cells.sql(f"SELECT * FROM self WHERE {condition(axis, level)}").height == cells.height
