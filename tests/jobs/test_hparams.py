from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, kstest

from manyseed.jobs import hparams
from manyseed.jobs.classifiers import CLASSIFIERS as RECORDS
from manyseed.jobs.hparams import Categorical, Continuous, Ordinal, perturb
from manyseed.jobs.run import stream

SPACES = {name: record.space for name, record in RECORDS.items()}
CLASSIFIERS = sorted(SPACES)
SCHEMES = [
    "sig-digit:0",
    "sig-digit:1",
    "sig-digit:0:scaled",
    "relative:0.1",
    "relative:0.9",
    "absolute:0.2",
    "absolute:0.1:scaled",
]


def anchors(classifier, overrides=None):
    return RECORDS[classifier].anchors(overrides)


def draws(classifier, values, scheme, n=2000, space=None):
    generator = stream(1, "perturb_hparams", classifier, scheme)
    space = space or SPACES[classifier]
    return [perturb(space, values, scheme, generator) for _ in range(n)]


def test_spaces_hold_the_published_defaults():
    assert anchors("xgb") == {
        "eta": 0.3,
        "lambda": 1.0,
        "alpha": 1e-10,
        "gamma": 0.1,
        "colsample_bylevel": 1.0,
        "colsample_bynode": 1.0,
        "colsample_bytree": 1.0,
        "max_depth": 6,
        "max_delta_step": 0,
        "min_child_weight": 1.0,
        "subsample": 1.0,
    }
    assert anchors("svm-sgd") == {**anchors("lr-sgd"), "loss": "hinge"}
    assert anchors("lr-sgd")["penalty"] == "l2"
    assert anchors("mlp") == {
        "lr": 3e-4,
        "weight_decay": 1e-4,
        "dropout": 0.1,
        "width1": 512,
        "width2": 256,
    }
    assert anchors("cnn") == {"lr": 1e-3, "weight_decay": 1e-8, "batch": 32}
    shape = {"depth": 2, "width": 16, "batch_norm": False}
    assert anchors("convnet") == {**anchors("cnn"), **shape}
    assert anchors("vit") == {**anchors("cnn"), "dropout": 0.0}
    assert anchors("vit-transfer") == anchors("cnn")


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_every_default_is_in_its_own_range(classifier):
    for hparam in SPACES[classifier]:
        assert hparam.check(hparam.default) == hparam.default
        if hparam.when:
            gate = next(h for h in SPACES[classifier] if h.name == hparam.when.hparam)
            assert set(hparam.when.values) < set(gate.levels)


def test_values_are_typed_so_that_1_and_1_0_are_one_value():
    value = anchors("xgb", {"min_child_weight": 2})["min_child_weight"]
    assert isinstance(value, float)
    assert repr(value) == "2.0"


@pytest.mark.parametrize(
    ("classifier", "overrides", "message"),
    [
        (
            "lr-sgd",
            {"alpha": 5.0},
            r"alpha = 5\.0: must be a number at least 1e-07 and at most 0\.1",
        ),
        ("lr-sgd", {"alpha": "small"}, "alpha = 'small': must be a number"),
        ("lr-sgd", {"alpha": True}, "alpha = True: must be a number"),
        ("lr-sgd", {"alpha": math.nan}, "alpha = nan: must be a number"),
        (
            "lr-sgd",
            {"penalty": "L2"},
            "penalty = 'L2': unknown; there are l1, l2, elasticnet, none",
        ),
        ("lr-sgd", {"average": 1}, "average = 1: unknown; there are False, True"),
        ("xgb", {"max_depth": 21}, "max_depth = 21: .*from 1 to 20"),
        ("xgb", {"max_depth": 2.5}, "max_depth = 2.5: must be a whole number"),
        ("cnn", {"batch": 33}, "batch = 33: unknown; there are 16, 32, 64, 128"),
        ("mlp", {"witdh1": 64}, "hparams.witdh1 = 64: unknown; .*width1"),
    ],
)
def test_a_value_outside_the_space_is_refused_with_the_range(classifier, overrides, message):
    with pytest.raises(ValueError, match=message):
        anchors(classifier, overrides)


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("none", "none"),
        ("sig-digit:0", "sig-digit:0"),
        ("sig-digit:01", "sig-digit:1"),
        ("relative:.10", "relative:0.1"),
        ("relative:9e-1", "relative:0.9"),
        ("absolute:2e-1:scaled", "absolute:0.2:scaled"),
        ("absolute:2e-1:scaled:1", "absolute:0.2:scaled"),
        ("absolute:2e-1:scaled:010", "absolute:0.2:scaled:10"),
    ],
)
def test_a_scheme_has_one_spelling(written, normal):
    assert hparams.canonical(written) == normal
    assert hparams.canonical(normal) == normal


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ("sigdigit:0", "'sigdigit': unknown scheme; there are sig-digit"),
        ("neighbour:0.5", "perturb_hparams = 'neighbour': unknown scheme.*absolute"),
        ("relative", "0 < P < 1"),
        ("relative:0", "0 < P < 1"),
        ("relative:1", "0 < P < 1"),
        ("absolute:1.5", "0 < P < 1"),
        ("relative:nan", "0 < P < 1"),
        ("relative:a", "0 < P < 1"),
        ("relative:0.1:scale", "optionally followed by :scaled"),
        ("relative:0.1:scaled:scaled", "0 < P < 1"),
        ("relative:0.1:scaled:0", "N a whole number from 1 to 1000"),
        ("relative:0.1:scaled:1.5", "N a whole number from 1 to 1000"),
        ("relative:0.1:scaled:10:10", "0 < P < 1"),
        ("relative:0.1:scale:10", "optionally followed by :scaled"),
        ("sig-digit:0.5", "whole number from 0 to 15"),
        ("sig-digit:-1", "whole number from 0 to 15"),
        ("sig-digit:16", "whole number from 0 to 15"),
        ("none:scaled", "must be none$"),
        ("none:1", "must be none$"),
    ],
)
def test_other_schemes_are_refused(scheme, message):
    with pytest.raises(ValueError, match=message):
        hparams.canonical(scheme)


@st.composite
def anchored(draw):
    """Return a classifier and anchors anywhere in its space."""
    classifier = draw(st.sampled_from(CLASSIFIERS))
    values = {}
    for hparam in SPACES[classifier]:
        if isinstance(hparam, Continuous):
            values[hparam.name] = draw(st.floats(hparam.low, hparam.high))
        else:
            values[hparam.name] = draw(st.sampled_from(list(hparam.levels)))
    return classifier, anchors(classifier, values)


@settings(deadline=None, max_examples=60)
@given(case=anchored(), scheme=st.sampled_from(SCHEMES), run=st.integers(0, 10**6))
def test_perturbed_values_are_in_the_space_and_repeat(case, scheme, run):
    classifier, values = case
    first = perturb(SPACES[classifier], values, scheme, stream(1, "perturb_hparams", run))
    again = perturb(SPACES[classifier], values, scheme, stream(1, "perturb_hparams", run))
    assert first == again
    assert anchors(classifier, first) == first
    assert [type(first[name]) for name in values] == [type(value) for value in values.values()]


@settings(deadline=None, max_examples=60)
@given(case=anchored(), scheme=st.sampled_from(SCHEMES))
def test_unmoved_hparams_never_move(case, scheme):
    classifier, values = case
    space = SPACES[classifier]
    fixed = hparams.unmoved(space, values, scheme)
    generator = stream(2, "perturb_hparams", "unmoved")
    inactive = {h.name for h in space if h.when}
    for _ in range(20):
        moved = perturb(space, values, scheme, generator)
        for name in fixed:
            assert moved[name] == values[name] or name in inactive


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_every_other_hparam_moves(classifier, scheme):
    values = anchors(classifier)
    fixed = hparams.unmoved(SPACES[classifier], values, scheme)
    seen = draws(classifier, values, scheme, 600)
    moved = {name for name in values if any(run[name] != values[name] for run in seen)}
    assert moved - {"l1_ratio"} == set(values) - set(fixed) - {"l1_ratio"}


@pytest.mark.parametrize(
    ("classifier", "overrides", "scheme", "fixed"),
    [
        ("xgb", {}, "relative:0.1", ("lambda", "max_delta_step", "min_child_weight")),
        ("xgb", {}, "sig-digit:1", ("lambda", "max_depth", "max_delta_step", "min_child_weight")),
        ("xgb", {}, "absolute:0.1", ("max_delta_step",)),
        ("xgb", {}, "absolute:0.2", ()),
        ("lr-sgd", {}, "sig-digit:0", ("l1_ratio", "penalty", "average")),
        ("lr-sgd", {}, "sig-digit:1", ("l1_ratio", "penalty", "average")),
        ("lr-sgd", {}, "sig-digit:0:scaled", ()),
        ("lr-sgd", {"penalty": "elasticnet"}, "sig-digit:0", ("penalty", "average")),
        (
            "lr-sgd",
            {"penalty": "none"},
            "sig-digit:0",
            ("alpha", "l1_ratio", "penalty", "average"),
        ),
        ("lr-sgd", {}, "relative:0.1", ()),
        ("cnn", {}, "relative:0.1", ("batch",)),
        ("cnn", {}, "relative:0.5", ()),
        ("mlp", {"dropout": 0.0}, "relative:0.1", ("dropout",)),
        ("cnn", {}, "none", ("lr", "weight_decay", "batch")),
        ("convnet", {}, "absolute:0.9", ("depth", "width", "batch_norm")),
        ("convnet", {}, "relative:0.5:scaled", ("depth", "width", "batch_norm")),
    ],
)
def test_unmoved_names_what_a_scheme_cannot_move(classifier, overrides, scheme, fixed):
    values = anchors(classifier, overrides)
    assert hparams.unmoved(SPACES[classifier], values, scheme) == fixed


@pytest.mark.parametrize("scheme", [s for s in SCHEMES if s != "none"])
def test_structural_hparams_stay_and_leave_the_others_where_they_are(scheme):
    shape = {"depth": 3, "width": 5, "batch_norm": True}
    found = draws("convnet", anchors("convnet", shape), scheme, 50)
    assert all(run.items() >= shape.items() for run in found)
    of_cnn = draws("convnet", anchors("cnn"), scheme, 1, SPACES["cnn"])
    assert {name: found[0][name] for name in of_cnn[0]} == of_cnn[0]


def test_none_draws_nothing():
    generator = stream(1, "perturb_hparams")
    before = generator.bit_generator.state
    assert perturb(SPACES["mlp"], anchors("mlp"), "none", generator) == anchors("mlp")
    assert generator.bit_generator.state == before


# Reach of each scheme written out by hand: hparam, its position, half width of the interval.
@pytest.mark.parametrize(
    ("classifier", "name", "scheme", "low", "high"),
    [
        ("lr-sgd", "eta0", "relative:0.1", -3.3, -2.7),
        ("lr-sgd", "eta0", "sig-digit:0", -4.0, -2.0),
        ("lr-sgd", "eta0", "sig-digit:1", -3.1, -2.9),
        ("lr-sgd", "eta0", "absolute:0.2", -3.6, -2.4),
        ("mlp", "dropout", "relative:0.5", 0.05, 0.15),
        ("mlp", "dropout", "sig-digit:0", 0.0, 0.2),
        ("mlp", "dropout", "sig-digit:1", 0.09, 0.11),
        ("mlp", "dropout", "absolute:0.1", 0.06, 0.14),
        ("lr-sgd", "l1_ratio", "sig-digit:1", 0.14, 0.16),
    ],
)
def test_values_are_uniform_on_the_interval_of_the_formula(classifier, name, scheme, low, high):
    values = [run[name] for run in draws(classifier, anchors(classifier), scheme)]
    positions = np.log10(values) if name == "eta0" else np.asarray(values)
    assert kstest(positions, "uniform", args=(low, high - low)).pvalue > 1e-3


def test_values_beyond_the_range_are_clipped_to_its_end():
    eta = [run["eta"] for run in draws("xgb", anchors("xgb", {"eta": 1e-3}), "absolute:0.2")]
    assert min(eta) == 1e-3
    assert binomtest(sum(value == 1e-3 for value in eta), len(eta), 0.5).pvalue > 1e-3


def test_ordinals_are_rounded_to_the_nearest_level():
    depth = Counter(run["max_depth"] for run in draws("xgb", anchors("xgb"), "relative:0.2"))
    assert set(depth) == {5, 6, 7}  # 6 ± 1.2
    assert binomtest(depth[5], 2000, 0.7 / 2.4).pvalue > 1e-3
    assert binomtest(depth[6], 2000, 1.0 / 2.4).pvalue > 1e-3
    batch = Counter(run["batch"] for run in draws("cnn", anchors("cnn"), "sig-digit:0"))
    assert set(batch) == {16, 32}  # 32 ± 10; 16 is nearer below 24
    assert binomtest(batch[16], 2000, 2 / 20).pvalue > 1e-3


def test_categoricals_are_redrawn_with_the_scheme_s_probability():
    seen = draws("lr-sgd", anchors("lr-sgd"), "absolute:0.2", 4000)
    changed = Counter(run["penalty"] for run in seen)
    for level in ("l1", "elasticnet", "none"):
        assert binomtest(changed[level], 4000, 0.2 / 4).pvalue > 1e-3
    assert binomtest(sum(run["average"] for run in seen), 4000, 0.2 / 2).pvalue > 1e-3


@pytest.mark.parametrize("classifier", ["lr-sgd", "svm-sgd"])
@pytest.mark.parametrize("scheme", ["sig-digit:0:scaled", "relative:0.1:scaled"])
def test_scaled_expects_one_categorical_change_a_run(classifier, scheme):
    values = anchors(classifier)
    kinds = [h.name for h in SPACES[classifier] if isinstance(h, Categorical)]
    changes = [
        sum(run[name] != values[name] for name in kinds)
        for run in draws(classifier, values, scheme, 4000)
    ]
    assert abs(np.mean(changes) - 1) < 4 * np.std(changes) / math.sqrt(len(changes))


@pytest.mark.parametrize("runs", [2, 10])
def test_scaled_expects_one_categorical_change_in_so_many_runs(runs):
    """MV's note, per repeat: of its runs, one categorical change is expected in all together."""
    values = anchors("lr-sgd")
    kinds = [h for h in SPACES["lr-sgd"] if isinstance(h, Categorical)]
    seen = draws("lr-sgd", values, f"relative:0.1:scaled:{runs}", 4000)
    changes = [sum(run[h.name] != values[h.name] for h in kinds) for run in seen]
    of_repeats = np.add.reduceat(changes, range(0, 4000, runs))
    assert abs(np.mean(of_repeats) - 1) < 4 * np.std(of_repeats) / math.sqrt(len(of_repeats))
    chance = 1 / runs / sum(1 - 1 / len(h.levels) for h in kinds)  # of one re-draw, by hand
    for hparam in kinds:
        moved = sum(run[hparam.name] != values[hparam.name] for run in seen)
        assert binomtest(moved, 4000, chance * (1 - 1 / len(hparam.levels))).pvalue > 1e-4


def test_hparams_are_perturbed_independently():
    seen = draws("xgb", anchors("xgb"), "absolute:0.1")
    eta, depth = ([run[name] for run in seen] for name in ("eta", "max_depth"))
    assert abs(np.corrcoef(np.log10(eta), depth)[0, 1]) < 0.08


@given(levels=st.sets(st.integers(-9, 99), min_size=1), position=st.floats(-200, 200))
def test_settling_finds_the_nearest_level(levels, position):
    ordinal = Ordinal("n", sorted(levels), 0)
    nearest = min(abs(level - position) for level in levels)
    assert ordinal.settle(position) == min(n for n in levels if abs(n - position) == nearest)


def test_a_new_hparam_leaves_the_draws_of_the_others():
    old = draws("mlp", anchors("mlp"), "relative:0.1", 1)[0]
    grown = (*SPACES["mlp"], Ordinal("depth", range(1, 9), 4))
    new = draws("mlp", {**anchors("mlp"), "depth": 4}, "relative:0.1", 1, grown)[0]
    assert {name: new[name] for name in old} == old


def test_the_draws_are_frozen():
    generator = stream(20210427, "perturb_hparams", "lr-sgd", "relative:0.1", 1, 1)
    values = perturb(SPACES["lr-sgd"], anchors("lr-sgd"), "relative:0.1", generator)
    assert values == {
        "alpha": pytest.approx(0.00011652434362630524, rel=1e-12),
        "l1_ratio": pytest.approx(0.15243160014110496, rel=1e-12),
        "eta0": pytest.approx(0.001175174375431111, rel=1e-12),
        "penalty": "l2",
        "average": False,
    }
