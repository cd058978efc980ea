"""What a sweep file says of an ensembling method, resolved; and identities, which stay."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyseed.jobs import classifiers, datasets
from manyseed.jobs.cells import Unsuited, require_suited, resolve_cell
from manyseed.jobs.checks import Refused, UnknownOption
from manyseed.jobs.ensembling import methods
from manyseed.jobs.run import Cell, Run
from manyseed.jobs.trainer import stream_keys

WINE = datasets.resolve("sklearn:wine")
SGD = {"optimizer": "sgd", "epochs": 4}


def model(name="mlp", **options):
    return classifiers.resolve(name, {**(SGD if name == "mlp" else {}), **options}, WINE)


def test_defaults_are_the_sources():
    assert methods.resolve("snapshot", {}) == {
        "name": "snapshot",
        "version": 1,
        "members": 100,
        "cycle": 40,
        "lr": 0.2,
        "batch_size": 64,
        "momentum": 0.0,
    }
    assert methods.resolve("csgld", {}) == {
        "name": "csgld",
        "version": 1,
        "members": 100,
        "cycle": 50,
        "lr": 0.5,
        "batch_size": 64,
        "momentum": 0.0,
        "noise_epochs": 3,
        "saves": 3,
        "temperature": 1.0,
    }
    assert methods.resolve("fge", {}) == {
        "name": "fge",
        "version": 1,
        "members": 100,
        "pretrain": 160,
        "cycle": 4,
        "lr_high": 0.05,
        "lr_low": 5e-4,
    }
    assert methods.resolve("swag", {}) == {
        "name": "swag",
        "version": 1,
        "members": 100,
        "pretrain": 160,
        "epochs": 300,
        "lr": 0.01,
        "rank": 20,
    }
    assert methods.resolve("vi", {}) == {
        "name": "vi",
        "version": 1,
        "members": 100,
        "epochs": 100,
        "lr": 0.001,
        "beta": 1e-4,
        "log_sd": -5.0,
    }
    assert methods.resolve("kfac-laplace", {}) == {
        "name": "kfac-laplace",
        "version": 1,
        "members": 100,
        "scale": "tuned",
    }
    assert methods.resolve("kfac-laplace", {"scale": 1})["scale"] == 1.0
    assert methods.resolve("dropout", {}) == {"name": "dropout", "version": 1, "members": 100}
    assert methods.resolve("single", {"members": 9}) == {
        "name": "single",
        "version": 1,
        "members": 9,
    }
    for name in methods.SAME_AS_NONE:
        assert methods.resolve(name, {}) is None


@pytest.mark.parametrize(
    ("kind", "options", "option", "said"),
    [
        ("swagg", {}, "kind", "unknown method"),
        ("snapshot", {"members": 1}, "members", "from 2"),
        ("snapshot", {"members": True}, "members", "from 2"),
        ("snapshot", {"cycle": 0}, "cycle", "from 1"),
        ("snapshot", {"lr": 0}, "lr", "above 0"),
        ("snapshot", {"momentum": 1}, "momentum", "below 1"),
        ("snapshot", {"cycle": 20_000}, "members", "more than 1,000,000 epochs"),
        ("fge", {"cycle": 3}, "cycle", "an even number"),
        ("csgld", {"saves": 4}, "saves", "a cycle has 3"),
        ("csgld", {"cycle": 2}, "noise_epochs", "a cycle has 2"),
        ("csgld", {"temperature": "paper"}, "temperature", "'published'"),
        ("csgld", {"temperature": -1}, "temperature", "at least 0"),
        ("swag", {"rank": 1}, "rank", "from 2"),
        ("swag", {"epochs": 170}, "epochs", "10 are left"),
        ("swag", {"epochs": 100}, "epochs", "0 are left"),
        ("vi", {"log_sd": -40}, "log_sd", "at least -30"),
        ("vi", {"beta": -1}, "beta", "at least 0"),
        ("kfac-laplace", {"scale": 0}, "scale", "above 0"),
        ("kfac-laplace", {"scale": "best"}, "scale", "'tuned'"),
        ("deep", {"members": 5}, "members", "no options"),
    ],
)
def test_what_cannot_be_is_refused(kind, options, option, said):
    with pytest.raises(Refused) as found:
        methods.resolve(kind, options)
    assert found.value.option == option
    assert said in str(found.value)


def test_an_unknown_option_names_those_there_are():
    with pytest.raises(UnknownOption) as found:
        methods.resolve("fge", {"noise_epochs": 3})
    assert found.value.allowed == ("members", "pretrain", "cycle", "lr_high", "lr_low")


def test_weight_decay_that_is_no_prior_is_refused():
    method = methods.resolve("kfac-laplace", {"scale": 1})
    require_suited(method, model())
    with pytest.raises(Unsuited, match="which adamw's weight_decay is not") as found:
        require_suited(method, classifiers.resolve("mlp", {}, WINE))
    assert found.value.needs == {"optimizer": "sgd"}


@pytest.mark.parametrize(
    ("method", "classifier", "said", "needs"),
    [
        ("snapshot", model("xgb"), "form deep ensembles", {}),
        ("dropout", model("lr-sgd"), "form deep ensembles", {}),
        (
            "dropout",
            model(hparams={"dropout": 0}),
            "dropout = 0 makes all members equal",
            {"hparams": {"dropout": 0.1}},
        ),
        ("fge", classifiers.resolve("mlp", {}, WINE), "mlp by adamw", {"optimizer": "sgd"}),
        ("snapshot", model(snapshots=[1]), "mlp has snapshots", {"snapshots": None}),
    ],
)
def test_classifiers_that_cannot_have_a_method_are_refused(method, classifier, said, needs):
    with pytest.raises(Unsuited, match=said) as found:
        require_suited(methods.resolve(method, {}), classifier)
    assert found.value.option == "ensembling"
    assert found.value.needs == needs


def test_dropout_needs_layers_of_it():
    digits = datasets.resolve("sklearn:digits")
    with pytest.raises(
        Refused, match="cnn has no dropout layers: take mlp, vgg, wide-resnet or vit"
    ):
        require_suited(methods.resolve("dropout", {}), classifiers.resolve("cnn", {}, digits))
    vit = classifiers.resolve("vit", {"hparams": {"dropout": 0.1}}, digits)
    require_suited(methods.resolve("dropout", {}), vit)


def test_members_are_taken_where_the_source_takes_them():
    fge = methods.resolve("fge", {"members": 3, "pretrain": 7, "cycle": 4})
    assert methods.member_epochs({**fge, "pretrain": 0}, 5) == (2, 6, 10)
    assert methods.member_epochs(fge, 5) == (9, 13, 17)
    snapshot = methods.resolve("snapshot", {"members": 3, "cycle": 5})
    assert methods.member_epochs(snapshot, 7) == (5, 10, 15)
    csgld = methods.resolve("csgld", {"members": 5, "cycle": 6, "saves": 2})
    assert methods.member_epochs(csgld, 7) == (5, 6, 11, 12, 17)
    swag = methods.resolve("swag", {"members": 2, "pretrain": 3, "epochs": 9, "rank": 2})
    assert methods.member_epochs(swag, 7) == (9, 9)
    vi = methods.resolve("vi", {"members": 2, "epochs": 9})
    assert methods.member_epochs(vi, 7) == (16, 16)
    assert methods.passes(vi, 7) == 7 + 2 * 9
    laplace = methods.resolve("kfac-laplace", {"members": 2})
    assert methods.member_epochs(laplace, 7) == (7, 7)
    assert methods.passes(laplace, 7) == 7 + 1.5
    assert methods.member_epochs(methods.resolve("dropout", {"members": 2}), 7) == (7, 7)


@settings(deadline=None)
@given(st.integers(2, 300))
def test_sizes_end_with_all_members(members):
    found = methods.sizes(members)
    assert found[-1] == members
    assert list(found) == sorted(set(found))
    assert {*found[:-1]} == {size for size in methods.SIZES if size < members}


def test_an_identity_without_a_method_is_as_it_was():
    """Frozen: of a cell that was planned before there were methods."""
    cell = resolve_cell(7, WINE, classifiers.resolve("mlp", {"epochs": 3}, WINE)).cell
    assert "ensembling" not in cell.canonical()
    assert cell.id == "17e0943085e23467e801b36f69d2ad40"
    assert Cell.from_canonical(cell.canonical()) == cell


def test_an_identity_with_a_method_holds_all_its_options():
    method = methods.resolve("fge", {"members": 3})
    cell = resolve_cell(7, WINE, model(), ensembling=method).cell
    description = cell.canonical()
    assert description.pop("ensembling") == method
    assert description == replace(cell, ensembling=None).canonical()
    text = json.dumps({**description, "ensembling": method}, sort_keys=True, separators=(",", ":"))
    assert cell.id == hashlib.sha256(text.encode()).digest()[:16].hex()
    assert cell.id == "647b80f531ceabf83cb68301a319239f"
    assert Cell.from_canonical(cell.canonical()) == cell


def test_runs_of_all_methods_start_as_single_ones():
    cell = resolve_cell(7, WINE, model()).cell
    plain = stream_keys(Run(cell, 1, 2))
    fit = [WINE.id, "mlp@1"]
    for name, own in (
        ("snapshot", {}),
        ("csgld", {"langevin": [*fit, "csgld@1", 1, 2]}),
        ("fge", {}),
        ("swag", {"posterior": [*fit, "swag@1", 1, 2]}),
        ("vi", {"posterior": [*fit, "vi@1", 1, 2]}),
        ("kfac-laplace", {"posterior": [*fit, "kfac-laplace@1", 1, 2]}),
        ("dropout", {"posterior": [*fit, "dropout@1", 1, 2]}),
    ):
        method = methods.resolve(name, {})
        assert stream_keys(Run(replace(cell, ensembling=method), 1, 2)) == {**plain, **own}
    method = methods.resolve("csgld", {})
    of_init = Run(replace(cell, ensembling=method, vary=("init",)), 1, 2)
    assert stream_keys(of_init)["langevin"] == [*fit, "csgld@1", 1]


def test_the_cost_of_a_method_is_its_training_and_its_predictions():
    info = model()
    single = classifiers.core_seconds(WINE, info, 100)
    method = methods.resolve("dropout", {"members": 2})
    dropout = classifiers.core_seconds(WINE, info, 100, ensembling=method)
    assert dropout > single
    costs = {}
    for members in (10, 20):
        method = methods.resolve("snapshot", {"members": members, "batch_size": 64, "cycle": 2})
        costs[members] = classifiers.core_seconds(WINE, info, 100, ensembling=method)
    assert costs[20] == pytest.approx(2 * costs[10], rel=0.1)
    assert costs[10] > 4 * single  # 20 epochs instead of 4
    few = {"pretrain": 2, "epochs": 8, "rank": 2}
    for members in (3, 9):
        method = methods.resolve("swag", {"members": members, **few})
        costs[members] = classifiers.core_seconds(WINE, info, 100, ensembling=method)
    # a pass over the training rows for each member, and its prediction, at once and so for less
    epoch = (single - 0.005) / 4
    more = methods.resolve("dropout", {"members": 8})
    predicted = classifiers.core_seconds(WINE, info, 100, ensembling=more) - dropout
    assert costs[9] - costs[3] == pytest.approx(2 * epoch + predicted, rel=1e-6)
    assert 0 < predicted < 2 * epoch * WINE.n_test / 100
    csgld = methods.resolve("csgld", {"cycle": 4, "members": 3})
    assert methods.passes(csgld, 4) == pytest.approx(1.3 * 4)
