"""Labels are those of scores in the precision in which they are given; what is kept gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import softmax

from manyseed import Sweep
from manyseed.analysis.options import Options
from manyseed.jobs.run import gaps, labels
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing.scores import as_kept
from manyseed.orchestrator.store.groups import list_groups
from manyseed.orchestrator.store.reader import read_array

SAMPLES = 30
OPTIONS = Options(resamples=3)
Y = np.arange(SAMPLES) % 3
Y2 = np.arange(SAMPLES) % 2


def analysed(folder: Path, scores: Any, y_true: Any, **options: Any) -> Sweep:
    np.savez(folder / "given.npz", scores=scores, y_true=y_true)
    sweep = Sweep.import_predictions([folder / "given.npz"], folder / "sweep", **options)
    sweep.analyze(OPTIONS)
    return sweep


@pytest.mark.parametrize("dtype", [np.float64, np.longdouble, ">f8"])
def test_an_offset_that_float32_cannot_hold(tmp_path: Path, dtype: Any) -> None:
    scores = (1e9 + 6 * np.eye(3)[Y])[None].astype(dtype)
    runs = analysed(tmp_path, scores, Y).results["runs"]
    assert runs["accuracy"].to_list() == [1]
    expected = np.log(softmax([6, 0, 0])[0])
    assert runs["log_likelihood"].to_list() == pytest.approx([expected], rel=1e-5)


@pytest.mark.parametrize("probability", ["ovr", "none"])
def test_labels_are_exact_where_an_offset_counts(tmp_path: Path, probability: str) -> None:
    scores = (1e9 + 6 * np.eye(3)[Y])[None]
    sweep = analysed(tmp_path, scores, Y, probability=probability)
    assert sweep.results["runs"]["accuracy"].to_list() == [1]
    (group,) = list_groups(sweep.paths.store)
    kept = read_array(group, "score")[0, 0]
    assert (kept.argmax(axis=1) == Y).all()
    np.testing.assert_allclose(kept, scores[0], rtol=1e-6)


@pytest.mark.parametrize("tiny", [1e-50, 5e-324])
@pytest.mark.parametrize("form", ["gaps", "scores"])
def test_a_gap_below_zero_is_class_0_however_small(tmp_path: Path, form: str, tiny: float) -> None:
    gap = np.where(Y2 == 1, tiny, -tiny)
    scores = gap if form == "gaps" else np.stack([np.zeros(SAMPLES), gap], axis=1)
    sweep = analysed(tmp_path, scores[None], Y2)
    assert sweep.results["runs"]["accuracy"].to_list() == [1]
    (group,) = list_groups(sweep.paths.store)
    np.testing.assert_array_equal(read_array(group, "margin")[0, 0] >= 0, Y2)


def test_two_scores_of_which_only_the_difference_is_small(tmp_path: Path) -> None:
    scores = 1e9 + 6 * np.eye(2)[Y2]
    runs = analysed(tmp_path, scores[None], Y2).results["runs"]
    assert runs["accuracy"].to_list() == [1]
    expected = np.log(softmax([6, 0])[0])
    assert runs["log_likelihood"].to_list() == pytest.approx([expected], rel=1e-5)


def test_two_sigmoids_that_are_both_1(tmp_path: Path) -> None:
    scores = 800 + 50 * np.eye(2)[Y2]
    sweep = analysed(tmp_path, scores[None], Y2, probability="ovr")
    assert sweep.results["runs"]["accuracy"].to_list() == [1]
    (group,) = list_groups(sweep.paths.store)
    np.testing.assert_array_equal(read_array(group, "margin")[0, 0] >= 0, Y2)


@pytest.mark.parametrize("scores", [np.eye(3)[Y] * 1e39, np.eye(2)[Y2] * 1e39])
def test_what_float32_cannot_hold_at_all_is_refused(tmp_path: Path, scores: Any) -> None:
    given = {"scores": scores[None], "y_true": scores.argmax(axis=1)}
    with pytest.raises(UserError, match="not finite"):
        Sweep.from_predictions(given, tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize("n_classes", [1, 2, 3, 12])
@pytest.mark.parametrize("is_softmax", [True, False])
@pytest.mark.parametrize(
    ("dtype", "size"),
    [("f2", 20), ("f4", 20), ("f4", 1e9), (">f4", 1e9), ("f8", 200), ("f4 as f8", 1e9)],
)
def test_scores_that_float32_holds_keep_their_bytes(
    n_classes: int, is_softmax: bool, dtype: str, size: float
) -> None:
    rng = np.random.default_rng(0)
    scores = size * rng.normal(size=(200, n_classes)) + size
    of, _, also = dtype.partition(" as ")
    scores = scores.astype(of).astype(also or of)
    scores = scores[:, 0] if n_classes == 1 else scores
    kept, label = as_kept(scores, max(n_classes, 2), is_softmax=is_softmax)
    narrow = scores.astype(np.float32)
    expected = narrow if n_classes == 1 else gaps(narrow)
    assert kept.dtype == np.float32
    assert kept.tobytes() == expected.tobytes()
    np.testing.assert_array_equal(label, labels(expected, max(n_classes, 2)))


NUMBERS = st.one_of(
    st.floats(-1e30, 1e30),
    st.floats(-1e-30, 1e-30),
    st.sampled_from([0.0, 1e9, 1e9 + 1, 1e9 + 1e-6, 1.0, 1 + 1e-12, -1e-50, 2.0**24, 2.0**24 + 1]),
)


@settings(max_examples=300, deadline=None)
@given(arrays(np.float64, (2, 3), elements=NUMBERS), st.booleans(), st.integers(1, 3))
def test_what_is_kept_gives_the_labels(scores: Any, is_softmax: bool, columns: int) -> None:
    given_scores = scores[:, 0] if columns == 1 else scores[:, :columns]
    n_classes = max(columns, 2)
    kept, label = as_kept(given_scores, n_classes, is_softmax=is_softmax)
    exact = given_scores if columns == 1 else gaps(given_scores)
    np.testing.assert_array_equal(label, labels(exact, n_classes))
    np.testing.assert_array_equal(labels(kept, n_classes), label)
    if columns == 3 and is_softmax:
        found = softmax(kept.astype(np.float64), axis=1)
        assert abs(found - softmax(given_scores, axis=1)).max() < 1e-3


def test_the_most_probable_class_of_a_table_is_that_of_its_own_digits(tmp_path: Path) -> None:
    p = np.where(np.eye(2)[Y2] == 1, 0.5 + 1e-10, 0.5 - 1e-10)
    frame = pl.DataFrame({"true": np.array(["a", "b"])[Y2], "p_a": p[:, 0], "p_b": p[:, 1]})
    frame.write_csv(tmp_path / "t.csv")
    sweep = Sweep.import_predictions(
        [tmp_path / "t.csv"],
        tmp_path / "sweep",
        columns={"truth": "true", "confidence": "p_{class}"},
    )
    assert sweep.analyze(OPTIONS)["runs"]["accuracy"].to_list() == [1]
