"""What `Sweep.of` tells: remedies are of a program, and each finding has a warning of its own."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.naive_bayes import GaussianNB

from manyseed import Sweep, UserError
from manyseed.orchestrator.plans.arguments import in_program

N = 120
Y = np.where(np.arange(N) % 2, "yes", "no")
X = pl.DataFrame(np.random.default_rng(0).normal(size=(N, 2)), schema=["a", "b"])


def told(folder: Path, estimator: Any, X: Any = X, y: Any = Y, **options: Any) -> list[str]:
    """Plan, and return the warnings."""
    asked = {"runs": 2, "directory": folder / "of", "train": False}
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        Sweep.of(estimator, X, y, **asked, **options)
    return [str(one.message) for one in found]


def test_copies_are_of_a_classifier_with_a_remedy_that_it_takes(tmp_path: Path) -> None:
    (said,) = told(tmp_path / "both", ["lr-sgd", "xgb"], repeats=2)
    assert said.startswith("2 of 4 runs of xgb are stored as copies")
    assert "seeds" not in said
    assert "lr-sgd" not in said
    (said,) = told(tmp_path / "own", GaussianNB())
    assert said.startswith("1 of 2 runs of GaussianNB")
    assert 'options={"seeds": {"random_state": "batch"}}' in said
    for name, varied in (("xgb", {"vary": ["train"]}), ("own", {"options": {"seeds": {}}})):
        assert 'vary=["train"] or' in said
        estimator = "xgb" if name == "xgb" else GaussianNB()
        assert len(told(tmp_path / f"{name} varied", estimator, **varied)) == (name == "own")


def test_seeds_and_options_of_classifiers_of_manyseed_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"options\.seeds: is for estimators of your own"):
        told(tmp_path, "xgb", options={"seeds": {"random_state": "batch"}})
    with pytest.raises(UserError, match="belong to one classifier, but 2 are named\n  give one"):
        told(tmp_path, ["xgb", "mlp"], options={"device": "cpu"})
    assert not (tmp_path / "of").exists()


def test_a_leak_has_a_warning_of_its_own_beside_copies(tmp_path: Path) -> None:
    rows = X.with_columns(leak=pl.Series(Y == "yes").cast(pl.Int8), id=np.arange(N) + 1000)
    said = told(tmp_path, "xgb", rows)
    assert len(said) == 3
    (leak,) = [text for text in said if text.startswith("data: leak tells y by itself")]
    assert leak.endswith('if it is not a feature: X.drop(columns=["leak"]).')
    assert sum(text.startswith("data: id looks like a row number") for text in said) == 1


NUMBERS = [*map(str, np.arange(N) % 90)]


@pytest.mark.parametrize(
    ("column", "classes", "remedy"),
    [
        ([f"p{2 * (i // 8) + i % 2}" for i in range(N)], Y, 'groups=X["c d"], and X without it'),
        (NUMBERS, Y, 'if they are numbers: pd.to_numeric(X["c d"]).'),
        (["k.A.", *NUMBERS[1:]], Y, 'pd.to_numeric(X["c d"], errors="coerce").'),
        ([1.0] * N, Y, 'X.drop(columns=["c d"])'),
        (NUMBERS, np.where(np.arange(N) % 3, Y, "YES"), "; y.replace({…}) can merge them"),
        (NUMBERS, np.where(np.arange(N) % 3, Y, "?"), '"?"; if so, leave out their rows.'),
        (NUMBERS, ["rare", *Y[1:]], "y.replace({…}) can merge them, or leave their rows out"),
    ],
)
def test_remedies_are_of_a_program(
    column: list[Any], classes: Any, remedy: str, tmp_path: Path
) -> None:
    said = told(tmp_path, "lr-sgd", X.with_columns(pl.Series("c d", column)), classes)
    assert any(remedy in text for text in said), said
    for word in (
        "ignore",
        "categorical = ",
        "continuous = ",
        "missing = ",
        "group = ",
        "classes =",
    ):
        assert not any(word in text for text in said), said


def test_a_column_that_cannot_be_used_is_left_out_of_the_frame(tmp_path: Path) -> None:
    dates = X.with_columns(when=pl.Series(np.arange(N)).cast(pl.Datetime))
    with pytest.raises(UserError, match=r"^X: holds Datetime.*\n  leave it out: X\.drop\(columns="):
        told(tmp_path, "lr-sgd", dates)


def test_words_of_a_sweep_file_in_a_program() -> None:
    for text, python in (
        ('ignore = ["a, b", "c \\" d"]', 'X.drop(columns=["a, b", "c \\" d"])'),
        ("say so by seeds = {}", 'say so by options={"seeds": {}}'),
        ('need encode = "dense"', 'need options={"encode": "dense"}'),
    ):
        assert in_program(text) == python
