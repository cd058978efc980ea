import pytest

from manyseed.jobs import perturb


@pytest.mark.parametrize(
    ("axis", "scheme", "normal"),
    [
        ("continuous", "none", "none"),
        ("continuous", "sig-digit:0", "sig-digit:0"),
        ("continuous", "sig-digit:2.0", "sig-digit:2"),
        ("continuous", "relative:.10", "relative:0.1"),
        ("continuous", "relative:0.5", "relative:0.5"),
        ("continuous", "percentile:1e-1", "percentile:0.1"),
        ("continuous", "neighbour:1", "neighbour:1.0"),
        ("continuous", "neighbour:0.25", "neighbour:0.25"),
        ("categorical", "none", "none"),
        ("categorical", "sample:0.20", "sample:0.2"),
        ("categorical", "label:.1", "label:0.1"),
        ("categorical", "value:.1", "label:0.1"),  # its earlier name
        ("labels", "none", "none"),
        ("labels", "flip:.10", "flip:0.1"),
        ("labels", "symmetric:0.2", "symmetric:0.2"),
        ("labels", "pairs:1e-1", "pairs:0.1"),
    ],
)
def test_every_scheme_has_one_normal_form(axis, scheme, normal):
    assert perturb.canonical(axis, scheme) == normal
    assert perturb.canonical(axis, normal) == normal


def test_the_table_above_holds_every_scheme():
    assert perturb.names("continuous") == (
        "none",
        "sig-digit",
        "relative",
        "percentile",
        "neighbour",
    )
    assert perturb.names("categorical") == ("none", "sample", "value")
    assert perturb.names("labels") == ("none", "flip", "symmetric", "pairs")


def test_a_renamed_scheme_is_shown_under_its_new_name():
    assert perturb.shown("categorical", "label:0.1") == "value:0.1"
    assert perturb.shown("categorical", "sample:0.1") == "sample:0.1"
    assert perturb.shown("categorical", "none") == "none"
    assert perturb.is_renamed("categorical", "value:.1")
    assert not perturb.is_renamed("categorical", "label:.1")


@pytest.mark.parametrize(
    ("axis", "scheme", "message"),
    [
        ("continuous", "percentil:0.1", "perturb_continuous = 'percentil': unknown scheme"),
        ("continuous", "label:0.1", "'label': unknown scheme; there are sig"),
        ("categorical", "labels:0.1", "perturb_categorical = 'labels': unknown scheme; .*value"),
        ("labels", "value:0.1", "perturb_labels = 'value': unknown scheme; .*flip"),
        ("labels", "flip", "lacks its number, as in flip:0.1"),
        ("labels", "flip:10", r"10.0: must be a fraction \(0.1 is 10 %\)"),
        ("categorical", "value", "lacks its number, as in value:0.1"),
        ("continuous", "relative", "lacks its number"),
        ("continuous", "relative:", "'': must be a number"),
        ("continuous", "relative:x", "'x': must be a number"),
        ("continuous", "relative:10", r"10.0: must be a fraction \(0.1 is 10 %\) .* below 1"),
        ("continuous", "relative:0", "above 0"),
        ("continuous", "percentile:1", "1.0: must be a fraction .* below 1"),
        ("continuous", "percentile:10", "10.0: must be .* below 1"),
        ("continuous", "neighbour:0", "0.0: must be .* above 0"),
        ("continuous", "neighbour:inf", "inf: must be"),
        ("continuous", "sig-digit:0.5", "0.5: must be a whole number 0, 1, 2, …"),
        ("continuous", "sig-digit:-1", "-1.0: must be"),
        ("continuous", "sig-digit:nan", "nan: must be"),
        ("continuous", "relative:1", "1.0: must be .* below 1"),
        ("continuous", "percentile:1", "1.0: must be .* below 1"),
        ("categorical", "label:1", "1.0: must be .* below 1"),
        ("categorical", "sample:1.5", "1.5: must be .* below 1"),
        ("categorical", "label:nan", "nan: must be"),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(axis, scheme, message):
    with pytest.raises(ValueError, match=message):
        perturb.canonical(axis, scheme)


def test_only_neighbour_needs_neighbours():
    assert perturb.uses_neighbours("neighbour:0.5")
    assert not perturb.uses_neighbours("relative:0.1")
    assert not perturb.uses_neighbours("none")
