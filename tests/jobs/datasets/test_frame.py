"""Values of other libraries: what is missing or masked stays so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from manyseed.jobs.datasets.frame import is_masked, missing, to_numpy
from manyseed.jobs.own import calling
from manyseed.jobs.own.calling import OwnError

MASK = [False, True, False]


@pytest.mark.parametrize(
    "values",
    [
        np.ma.array([1.5, -999, 2], mask=MASK),
        np.ma.array([1, -999, 2], mask=MASK),
        np.ma.array([True, False, True], mask=MASK),
        np.ma.array(["a", "N/A", "b"], mask=MASK),
        np.ma.array(["a", None, "b"], mask=MASK, dtype=object),
        np.ma.array(["2020-01-01"] * 3, mask=MASK, dtype="datetime64[D]"),
    ],
    ids=lambda values: str(values.dtype),
)
def test_a_masked_value_is_missing(values: Any) -> None:
    assert missing(to_numpy(values)) == 1
    rows = [values[:1], values[1:2], values[2:]]
    assert missing(to_numpy(rows)) == 1
    with pytest.raises(OwnError, match="f returned masked values"):
        calling.array(values, "f")


def test_nothing_masked_is_as_it_is() -> None:
    values = np.ma.array([3, 4], mask=False)
    assert not is_masked(values)
    assert to_numpy(values).dtype == values.dtype
    assert calling.array(values, "f").tolist() == [3, 4]
    np.testing.assert_array_equal(to_numpy(np.ma.array([[1.0, 9]], mask=[[0, 1]])), [[1, np.nan]])
