import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyseed.jobs.checks import Refused
from manyseed.jobs.images import AUGMENTATIONS, CROP_FLIP, MOST, augmentation, canonical


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("none", "none"),
        ("rotate:45.0", "rotate:45"),
        ("rotate:1.8e2", "rotate:180"),
        ("crop-flip:4", "crop-flip:4"),
        ("shift-x:.25", "shift-x:0.25"),
        ("shift-y:1", "shift-y:1"),
        ("colour:0.10", "colour:0.1"),
    ],
)
def test_a_scheme_has_one_form_that_reads_back(written, normal):
    assert canonical(written) == normal
    assert canonical(normal) == normal


@given(st.sampled_from(list(MOST)), st.floats(0.001, 0.5))
def test_every_number_reads_back(name, amount):
    text = canonical(f"{name}:{amount!r}")
    assert augmentation(text).amount == amount


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ("turn:45", "turn.*there are crop-flip, rotate"),
        ("rotate", "lacks its number, as in rotate:45"),
        ("rotate:far", "a number"),
        ("rotate:181", "degrees.*180"),
        ("rotate:0", "above 0"),
        ("rotate:nan", "degrees"),
        ("shift-x:1.5", "at most 1"),
        ("colour:0.6", "at most 0.5"),
        ("crop-flip:2.5", "whole number from 1"),
        ("crop-flip:0", "whole number from 1"),
    ],
)
def test_what_means_nothing_is_refused_with_what_could_stand_there(scheme, message):
    with pytest.raises(Refused, match=message) as refused:
        canonical(scheme)
    assert refused.value.option == "augment"


def test_augmentations_are_the_transforms_and_crops():
    assert {*AUGMENTATIONS} == {*MOST, CROP_FLIP}
