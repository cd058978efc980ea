"""Whether runs of several recipes differ: planted differences, and none."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from manyseed.analysis.questions import caveats
from manyseed.analysis.questions.caveats import recipes_compared


def planted(seed: int, moved: float, *, sets: int = 4, runs: int = 12) -> pl.DataFrame:
    """Return runs of two recipes, the second with other accuracies; sets differ in both moments."""
    dice = np.random.default_rng(seed)
    place = np.repeat(np.arange(sets), runs)
    recipe = dice.integers(1, 3, len(place))
    noise = dice.normal(0, 0.01 * (1 + place))
    return pl.DataFrame(
        {
            "dataset": "d",
            "classifier": "c",
            "cell": place // 2,
            "repeat_index": place % 2,
            "recipe": recipe,
            "accuracy": 0.6 + 0.05 * place + noise + moved * (recipe == 2),
            "identical": False,
        }
    )


def test_equal_recipes_are_told_apart_as_rarely_as_promised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(caveats, "DRAWS", 199)
    told = [recipes_compared(planted(seed, 0.0))["p"][0] <= 0.05 for seed in range(300)]
    assert np.mean(told) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)


def test_recipes_that_differ_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caveats, "DRAWS", 199)
    found = [recipes_compared(planted(seed, 0.05)).row(0, named=True) for seed in range(50)]
    assert np.mean([row["p"] <= 0.05 for row in found]) > 0.9
    assert np.mean([row["moved"] for row in found]) == pytest.approx(0.05, abs=0.005)


def test_what_cannot_be_told_has_no_probability() -> None:
    assert recipes_compared(planted(1, 0.0).with_columns(recipe=1)).is_empty()
    apart = planted(1, 0.0).with_columns(recipe=pl.col("repeat_index") + 1)
    assert recipes_compared(apart).select("recipes", "sets", "shared", "p").row(0) == (
        2,
        4,
        0,
        None,
    )
    few = planted(1, 0.5, sets=1, runs=4).with_columns(recipe=pl.Series([1, 1, 2, 2]))
    assert recipes_compared(few)["p"].to_list() == [None]  # 6 arrangements
    same = planted(1, 0.0).with_columns(accuracy=0.9)
    assert recipes_compared(same).select("moved", "p").row(0) == pytest.approx((0.0, 1.0))
    copies = planted(1, 0.5).with_columns(identical=True)
    assert recipes_compared(copies).is_empty()
