import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyseed.jobs.datasets.columns import DataColumn, encode, to_samples

integers = st.integers(-20, 200).map(str)
texts = st.lists(st.none() | integers, max_size=30) | st.lists(
    st.none() | integers | st.sampled_from(["nan", "inf", "-", "a"]) | st.text(max_size=3),
    max_size=30,
)


def number(label):
    try:
        return float(label) if math.isfinite(float(label)) else None
    except ValueError:
        return None


@given(values=texts)
@settings(deadline=None)
def test_a_code_is_the_place_of_its_label(values):
    labels, codes = encode(np.array(values, dtype=object))
    assert codes.tolist() == [-1 if v is None else labels.index(v) for v in values]
    assert set(labels) == set(values) - {None}
    if all(number(label) is not None for label in labels):
        assert list(labels) == sorted(labels, key=lambda label: (number(label), label))
    else:
        assert list(labels) == sorted(labels)


def test_a_categorical_column_without_values_stays_categorical():
    empty = DataColumn("c", np.array([None] * 4, dtype=object))
    samples = to_samples("made", [empty], DataColumn("y", np.array(list("abab"), dtype=object)))
    assert samples.cardinality.tolist() == [1]
    assert np.isnan(samples.X).all()


@pytest.mark.parametrize("n", [2, 3])
def test_a_class_a_sample_is_a_number_to_predict(n):
    features = [DataColumn("x", np.arange(float(n)))]
    target = DataColumn("y", np.array([str(i) for i in range(n)], dtype=object))
    with pytest.raises(ValueError, match=f"target = 'y': has {n} classes in {n} samples"):
        to_samples("made", features, target)
