"""A model's arrays as one row of numbers: nothing is lost on the way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from manyseed.jobs.training.handling import described, length, number_type, packed, unpacked

_SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=1, max_side=4)
_ARRAYS = st.one_of(
    hnp.arrays(np.float32, _SHAPES),
    hnp.arrays(np.int64, _SHAPES),
    hnp.arrays(np.uint64, _SHAPES),
    hnp.arrays(np.int32, _SHAPES),
    hnp.arrays(np.uint8, _SHAPES),
    hnp.arrays(np.bool_, _SHAPES),
)


@given(st.lists(_ARRAYS, min_size=1, max_size=4), st.integers(0, 3))
def test_what_is_packed_comes_back_bit_for_bit(arrays, more):
    state = {f"layer.{n}": array for n, array in enumerate(arrays)}
    row = packed(state)
    assert row.dtype == np.float32
    assert len(row) == length(described(state))
    padded = np.append(row, np.full(more, np.nan, np.float32))
    again = unpacked(described(state), padded)
    assert list(again) == list(state)
    for name, values in state.items():
        assert again[name].dtype == values.dtype
        assert again[name].shape == values.shape
        whole = values.astype(values.dtype, order="C")
        assert again[name].tobytes() == whole.tobytes()


def test_the_row_is_the_arrays_in_c_order_and_whole_numbers_are_three_digits():
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    n = 5 + 7 * 2**24 + 9 * 2**48
    row = packed({"weight": weights.T, "seen": np.array(n), "below": np.array([-1])})
    assert row.tolist() == [0, 3, 1, 4, 2, 5, 5, 7, 9, 2**24 - 1, 2**24 - 1, 2**16 - 1]


def test_float64_stays_float64():
    state = {"coef": np.array([1 / 3]), "seen": np.array([2**53 + 1])}
    row = packed(state)
    assert row.dtype == np.float64
    again = unpacked(described(state), row)
    assert again["coef"][0] == 1 / 3
    assert again["seen"][0] == 2**53 + 1


def test_what_no_number_holds_is_refused():
    with pytest.raises(ValueError, match="z is of complex64"):
        number_type(described({"z": np.zeros(2, np.complex64)}))
    with pytest.raises(ValueError, match="3 numbers of 4"):
        unpacked(described({"w": np.zeros(4, np.float32)}), np.zeros(3, np.float32))
