"""Which class equal scores mean: `jobs` and `analysis` both say it and import neither other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from manyseed.analysis.metrics import ensemble, formulas
from manyseed.jobs.run import gaps, labels
from manyseed.orchestrator.importing.scores import predicted


def slow(row: list[float]) -> int:
    """Of two classes a tie is the positive one, of more the first."""
    if len(row) == 2:
        return int(row[1] >= row[0])
    return row.index(max(row))


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@given(data=st.data())
def test_all_who_ask_for_a_class_take_the_same_of_equal_ones(
    n_classes: int, data: st.DataObject
) -> None:
    few = st.integers(-2, 2).map(float)  # so that ties are the rule
    found = data.draw(arrays(np.float64, (7, n_classes), elements=few))
    wanted = [slow(row) for row in found.tolist()]
    kept = gaps(found)
    assert labels(kept, n_classes).astype(int).tolist() == wanted
    assert formulas.labels(kept).tolist() == wanted
    assert ensemble.labels_of_sum(ensemble.digits(kept)).tolist() == wanted


def _refuse(run: int, point: int, reason: str) -> None:
    raise AssertionError((run, point, reason))


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@given(data=st.data())
def test_equal_probabilities_that_are_imported_mean_the_same_class(
    n_classes: int, data: st.DataObject
) -> None:
    parts = data.draw(arrays(np.int64, (1, 7, n_classes), elements=st.integers(1, 3)))
    p = parts / parts.sum(axis=2, keepdims=True)
    (label,) = predicted(p, _refuse).label  # type: ignore[arg-type]
    assert label[0].tolist() == [slow(row) for row in parts[0].tolist()]
