from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from manyseed.jobs import classifiers
from tests.jobs.classifiers.examples import binary, image, info

TABLE, IMAGES = info(binary()[0]), info(image((17, 17, 1))[0])


def test_planning_imports_no_training_library():
    code = (
        "import sys, manyseed.jobs.classifiers, manyseed.jobs.hparams;"
        "print(sorted({'torch', 'sklearn', 'xgboost', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        (
            "lr-sgd",
            {
                "name": "lr-sgd",
                "version": 1,
                "schedule": "adaptive",
                "max_iter": 1000,
                "tol": 0.001,
            },
        ),
        (
            "svm-sgd",
            {
                "name": "svm-sgd",
                "version": 1,
                "schedule": "adaptive",
                "max_iter": 1000,
                "tol": 0.001,
            },
        ),
        ("xgb", {"name": "xgb", "version": 1, "rounds": 100}),
        (
            "mlp",
            {
                "name": "mlp",
                "version": 1,
                "epochs": 20,
                "batch_size": 64,
                "optimizer": "adamw",
                "schedule": "cosine",
            },
        ),
        (
            "cnn",
            {
                "name": "cnn",
                "version": 1,
                "epochs": 50,
                "optimizer": "adam",
                "schedule": "constant",
            },
        ),
        (
            "convnet",
            {
                "name": "convnet",
                "version": 1,
                "epochs": 40,
                "optimizer": "adam",
                "schedule": "constant",
            },
        ),
        *(
            (
                name,
                {
                    "name": name,
                    "version": 1,
                    "epochs": epochs,
                    "optimizer": "sgd",
                    "schedule": "piecewise-linear",
                    "momentum": 0.9,
                },
            )
            for name, epochs in (("vgg", 400), ("preresnet", 300), ("wide-resnet", 300))
        ),
        (
            "resnet",
            {
                "name": "resnet",
                "version": 1,
                "epochs": 100,
                "optimizer": "adam",
                "schedule": "plateau",
            },
        ),
        (
            "vit",
            {
                "name": "vit",
                "version": 1,
                "epochs": 50,
                "patch": 3,
                "layers": 4,
                "heads": 4,
                "width": 64,
                "mlp_width": 128,
                "optimizer": "adamw",
                "schedule": "cosine",
            },
        ),
    ],
)
def test_canonical_descriptions_are_frozen(name, canonical):
    assert classifiers.resolve(name, {}, IMAGES).canonical == canonical


LIKE = {  # kind of probability, streams that a fit draws from, epochs
    "lr-sgd": ("ovr", {"batch"}, None),
    "svm-sgd": ("none", {"batch"}, None),
    "xgb": ("softmax", set(), None),
    "mlp": ("softmax", {"init", "batch"}, 20),
    "cnn": ("softmax", {"init", "batch"}, 50),
    "convnet": ("softmax", {"init", "batch"}, 40),
    "vgg": ("softmax", {"init", "batch"}, 400),
    "resnet": ("softmax", {"init", "batch"}, 100),
    "preresnet": ("softmax", {"init", "batch"}, 300),
    "wide-resnet": ("softmax", {"init", "batch"}, 300),
    "vit": ("softmax", {"init", "batch"}, 50),
    "vit-transfer": ("softmax", {"init", "batch"}, 5),
}


def test_what_a_classifier_is_like():
    rows = {name: classifiers.resolve(name, {}, IMAGES) for name in classifiers.names()}
    found = {name: (row.probability, row.consumes, row.epochs) for name, row in rows.items()}
    assert {name: found[name] for name in LIKE} == LIKE


@pytest.mark.parametrize(
    ("n_train", "size", "batch_size"),
    [
        (1_999, "small", 64),
        (2_000, "medium", 1024),
        (49_999, "medium", 1024),
        (50_000, "large", 2048),
    ],
)
def test_the_batch_follows_the_size_class(n_train, size, batch_size):
    assert classifiers.size_class(n_train) == size
    resolved = classifiers.resolve("mlp", {}, info(binary()[0], n_train))
    assert resolved.canonical["batch_size"] == batch_size


@pytest.mark.parametrize(
    ("image", "patch"),
    [((8, 8, 1), 2), ((5, 7, 3), 2), ((28, 28, 1), 4), ((32, 32, 3), 4), ((64, 48, 3), 8)],
)
def test_patches_follow_the_size_of_the_image(image, patch):
    described = replace(IMAGES, image=image)
    assert classifiers.resolve("vit", {}, described).canonical["patch"] == patch


def test_device_and_snapshots_are_no_part_of_the_identity():
    plain = classifiers.resolve("mlp", {}, TABLE)
    requested = classifiers.resolve(
        "mlp-small", {"kind": "mlp", "device": "gpu", "snapshots": [20, 2, 2]}, TABLE
    )
    assert requested.canonical == plain.canonical
    assert (requested.name, requested.device, requested.snapshots) == ("mlp-small", "gpu", (2, 20))
    assert (plain.name, plain.device, plain.snapshots) == ("mlp", "cpu", (20,))


def test_options_are_resolved():
    resolved = classifiers.resolve("mlp", {"epochs": 3, "hparams": {"width1": 64}}, TABLE)
    assert resolved.canonical["epochs"] == resolved.epochs == 3
    assert resolved.snapshots == (3,)
    assert resolved.hparams["width1"] == 64
    assert classifiers.resolve("xgb", {}, TABLE).snapshots == ()


@pytest.mark.parametrize(
    ("name", "optimizer", "schedule"),
    [
        ("mlp", "adamw", "cosine"),
        ("cnn", "adam", "constant"),
        ("convnet", "adam", "constant"),
        ("resnet", "adam", "plateau"),
        ("vit", "adamw", "cosine"),
        ("vit-transfer", "adam", "constant"),
    ],
)
def test_an_optimizer_is_in_the_identity_where_it_is_not_the_records(name, optimizer, schedule):
    def canonical(**options):
        return classifiers.resolve(name, options, IMAGES).canonical

    plain = canonical()
    own = {"optimizer": optimizer, "schedule": schedule}
    assert canonical(**own) == plain
    assert plain.items() >= own.items()
    assert "momentum" not in plain
    sgd = {"optimizer": "sgd", "schedule": "piecewise-linear", "momentum": 0.9}
    assert canonical(optimizer="sgd") == canonical(**sgd) == plain | sgd
    assert canonical(schedule="piecewise-linear") == plain | {"schedule": "piecewise-linear"}
    mine = {"optimizer": "sgd", "schedule": "constant", "momentum": 0}
    found = canonical(**mine)
    assert found == plain | mine
    assert repr(found["momentum"]) == "0.0"  # as 0.0 is written: one identity


@pytest.mark.parametrize("name", ["vgg", "preresnet", "wide-resnet"])
def test_networks_that_train_by_sgd_are_in_one_identity_however_it_is_said(name):
    def canonical(**options):
        return classifiers.resolve(name, options, IMAGES).canonical

    plain = canonical()
    own = {"optimizer": "sgd", "schedule": "piecewise-linear", "momentum": 0.9}
    assert canonical(**own) == canonical(optimizer="sgd") == plain
    assert plain.items() >= own.items()
    others = {key: value for key, value in plain.items() if key != "momentum"}
    adam = {"optimizer": "adam", "schedule": "plateau"}
    assert canonical(**adam) == others | adam


def test_the_batch_of_an_mlp_can_be_said():
    plain = classifiers.resolve("mlp", {}, TABLE).canonical
    said = classifiers.resolve("mlp", {"batch_size": plain["batch_size"]}, TABLE)
    assert said.canonical == plain
    assert classifiers.resolve("mlp", {"batch_size": 32}, TABLE).canonical == (
        plain | {"batch_size": 32}
    )


def test_the_librarys_defaults_are_other_values_and_nothing_else():
    for name, changed in {"lr-sgd": {}, "svm-sgd": {}, "xgb": {"alpha": 0.0, "gamma": 0.0}}.items():
        study, library = (
            classifiers.resolve(name, options, TABLE)
            for options in ({"defaults": "study"}, {"defaults": "library"})
        )
        assert study == classifiers.resolve(name, {}, TABLE)
        assert library.hparams == study.hparams | changed
        schedule = {} if name == "xgb" else {"schedule": "optimal"}
        assert library.canonical == study.canonical | schedule
    own = classifiers.resolve("xgb", {"defaults": "library", "hparams": {"gamma": 0.5}}, TABLE)
    assert (own.hparams["gamma"], own.hparams["alpha"]) == (0.5, 0.0)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("xgb", {"defaults": "xgboost"}, "defaults = 'xgboost': unknown; there are study, library"),
        ("xgb", {"defaults": 1}, "defaults = 1: unknown"),
        ("mlp", {"defaults": "library"}, "defaults = 'library': unknown; there are kind"),
        ("mpl", {}, "kind = 'mpl': unknown classifier; there are lr-sgd.*mlp"),
        ("big", {"kind": "xgbb"}, "kind = 'xgbb': unknown classifier"),
        ("mlp", {"kind": "cnn"}, "kind = 'cnn': mlp is a classifier of its own"),
        ("mlp", {"epoch": 3}, "epoch = 3: unknown; .*epochs, snapshots"),
        ("xgb", {"epochs": 3}, "epochs = 3: unknown; .* kind, hparams, grid, device, defaults$"),
        ("mlp", {"epochs": 0}, "epochs = 0: .*from 1 to 1000000"),
        ("mlp", {"epochs": 2.0}, "epochs .*whole number"),
        ("mlp", {"snapshots": [2, 21]}, "snapshots = 21: .*from 1 to 20"),
        ("mlp", {"snapshots": [0]}, "snapshots = 0: .*from 1 to 20"),
        ("mlp", {"snapshots": 2}, "snapshots = 2: must be a list of epochs"),
        ("mlp", {"hparams": {"lr": 3}}, "lr = 3: .*at most 0.5"),
        ("mlp", {"hparams": "tuned"}, "hparams = 'tuned': must be a table of values"),
        ("mlp", {"device": "cuda"}, "device = 'cuda': unknown; there are cpu, gpu"),
        ("lr-sgd", {"device": "gpu"}, "device = 'gpu': unknown; there are cpu$"),
        ("cnn", {}, "cnn needs images"),
        ("vit", {}, "vit needs images"),
        ("vgg", {}, "vgg needs images"),
        ("vgg", {"hparams": {"depth": 12}}, "vgg needs images"),
        ("mlp", {"optimizer": "SGD"}, "optimizer = 'SGD': unknown; there are adam, adamw, sgd"),
        (
            "mlp",
            {"schedule": "staircase"},
            "schedule = 'staircase': unknown; there are constant, cosine",
        ),
        ("mlp", {"schedule": 1}, "schedule = 1: unknown"),
        ("mlp", {"momentum": 0.9}, "momentum = 0.9: adamw has none to set; .*optimizer = 'sgd'"),
        ("mlp", {"optimizer": "sgd", "momentum": 1}, "momentum = 1: .*below 1"),
        ("mlp", {"optimizer": "sgd", "momentum": True}, "momentum = True: "),
        ("mlp", {"batch_size": 1}, "batch_size = 1: .*from 2"),
        ("xgb", {"optimizer": "sgd"}, "optimizer = 'sgd': unknown; there are kind"),
        ("vit", {"backbone": "swin_t"}, "backbone = 'swin_t': unknown"),
        ("vit-transfer", {}, "vit-transfer needs images"),
    ],
)
def test_what_cannot_be_resolved_is_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        classifiers.resolve(name, options, TABLE)
