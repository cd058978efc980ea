"""Small data of every kind with planted structure, and cheap fits of every classifier."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from manyseed.jobs import classifiers
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.run import Generators, TrainingSet, stream
from manyseed.jobs.training.handling import Handling

N_TRAIN, N_TEST = 160, 60

WIDE = {"batch": 32, "width": 4}
"""Narrow forms of networks that are wide by default."""

# Large steps and few epochs: enough to learn the structure in some milliseconds.
OPTIONS = defaultdict[str, dict](
    dict,
    {
        "lr-sgd": {"hparams": {"eta0": 0.01}},
        "svm-sgd": {"hparams": {"eta0": 0.01}},
        "mlp": {"epochs": 4, "hparams": {"lr": 0.01, "width1": 32, "width2": 33}},
        "cnn": {"epochs": 4, "hparams": {"lr": 0.01}},
        "convnet": {"epochs": 4, "hparams": {"lr": 0.01, "width": 8, "batch_norm": True}},
        "vgg": {"epochs": 3, "hparams": {**WIDE, "lr": 0.03, "depth": 11, "dropout": 0.1}},
        "resnet": {"epochs": 3, "hparams": {**WIDE, "lr": 0.01}},
        "preresnet": {"epochs": 3, "hparams": {**WIDE, "depth": 20}},
        "wide-resnet": {"epochs": 3, "hparams": {**WIDE, "depth": 10, "width": 1, "dropout": 0.1}},
        "vit": {"epochs": 3, "hparams": {"lr": 0.002, "dropout": 0.1}},
        "vit-transfer": {"epochs": 4, "hparams": {"lr": 0.02}},
    },
)

# Where these are too few epochs to learn the structure.
LEARNING = OPTIONS | {
    "vit": {"epochs": 8, "hparams": {"lr": 0.002, "batch": 16}},
    "vgg": {**OPTIONS["vgg"], "epochs": 16},
    "resnet": {**OPTIONS["resnet"], "epochs": 6},
}

PIXELS = ("cnn", "convnet", "vgg", "resnet", "preresnet", "wide-resnet", "vit")
IMAGES_ONLY = (*PIXELS, "vit-transfer")
NETWORKS = ("mlp", *IMAGES_ONLY)
LARGER = ("vgg",)
"""Networks that cannot take images of 8 × 8 pixels."""


def _set(X, y, n_classes, cardinality=None, image=None):
    if cardinality is None:
        cardinality = np.zeros(X.shape[1])
    X, y = X.astype(np.float64), y.astype(np.uint16)
    for array in (X, y):
        array.flags.writeable = False
    data = TrainingSet(
        X[:N_TRAIN], y[:N_TRAIN], X[N_TRAIN:], n_classes, np.asarray(cardinality, np.int32), image
    )
    return data, y[N_TRAIN:]


def _labels(rng, n_classes):
    return rng.permutation(np.arange(N_TRAIN + N_TEST) % n_classes)


def binary():
    rng = np.random.default_rng(1)
    y = _labels(rng, 2)
    return _set(rng.normal(size=(len(y), 6)) + 1.5 * y[:, None], y, 2)


def multiclass():
    rng = np.random.default_rng(2)
    y = _labels(rng, 4)
    return _set(rng.normal(size=(len(y), 5)) + 4 * rng.normal(size=(4, 5))[y], y, 4)


def mixed():
    """Return continuous and categorical features, missing values and a constant column."""
    rng = np.random.default_rng(3)
    y = _labels(rng, 3)
    X = np.column_stack(
        [
            rng.normal(size=len(y)) + 2 * (y == 0),
            np.where(rng.random(len(y)) < 0.9, y, 3),
            np.full(len(y), 0.1),
            rng.integers(0, 2, len(y)),
            1e6 + rng.normal(size=len(y)),
        ]
    )
    X[rng.random(X.shape) < 0.1] = np.nan
    return _set(X, y, 3, [0, 5, 0, 2, 0])


def absent(n_classes=4, missing=(2,)):
    """Return a small training part in which classes are absent."""
    data, y_test = multiclass()
    kept = np.flatnonzero(~np.isin(data.y, missing))[:40]
    small = TrainingSet(
        data.X[kept], data.y[kept], data.X_test, n_classes, data.cardinality, data.image
    )
    return small, y_test


def absent_two():
    """Return a training part with two of four classes."""
    return absent(missing=(0, 2))


def image(shape=(8, 8, 1), n_classes=3):
    rng = np.random.default_rng(4)
    y = _labels(rng, n_classes)
    pattern = rng.normal(size=(n_classes, *shape))
    X = 100 + 20 * (rng.normal(size=(len(y), *shape)) + pattern[y])
    return _set(X.reshape(len(y), -1), y, n_classes, image=shape)


def colour():
    """Return two classes of small images with odd sides and three channels."""
    return image((5, 7, 3), 2)


def larger():
    """Return images of the least size that every network takes."""
    return image((17, 18, 1))


def larger_colour():
    return image((20, 17, 3), 2)


def of(name):
    """Return what makes data of three classes that a classifier can be fitted to."""
    if name in LARGER:
        return larger
    return image if name in IMAGES_ONLY else mixed


def other_of(name):
    """Return what makes data of two classes."""
    if name in LARGER:
        return larger_colour
    return colour if name in IMAGES_ONLY else binary


TABULAR = (binary, multiclass, mixed, absent, absent_two)
IMAGES = (image, colour)

CASES = [
    *((name, data) for name in ("lr-sgd", "svm-sgd", "xgb", "mlp") for data in (*TABULAR, image)),
    *((name, data) for name in IMAGES_ONLY for data in (of(name), other_of(name))),
]
IDS = [f"{name}-{data.__name__}" for name, data in CASES]


def info(data: TrainingSet, n_train: int | None = None) -> DatasetInfo:
    n = len(data.y) if n_train is None else n_train
    n_categorical = int((data.cardinality > 0).sum())
    return DatasetInfo(
        canonical={},
        n_samples=n + len(data.X_test),
        n_features=data.X.shape[1],
        n_continuous=data.X.shape[1] - n_categorical,
        n_categorical=n_categorical,
        class_names=tuple(str(i) for i in range(data.n_classes)),
        class_counts=(1,) * data.n_classes,
        image=data.image,
        n_train=n,
        n_test=len(data.X_test),
    )


def generators(init=0, batch=0, dropout=0):
    return Generators(
        stream(9, "init", init),
        stream(9, "batch", batch),
        stream(9, "dropout", dropout),
        stream(9, "augment", batch),
    )


def fit(
    name,
    data,
    options=None,
    hparams=None,
    curves=False,
    checkpoint=None,
    device="cpu",
    measures=(),
    precision="float32",
    **runs,
):
    """Fit with the cheap options, some of the hparams changed after resolution."""
    options = OPTIONS[name] if options is None else options
    resolved = classifiers.resolve(name, options, info(data))
    return classifiers.fit(
        resolved.canonical,
        {**resolved.hparams, **(hparams or {})},
        data,
        generators(**runs),
        Handling(resolved.snapshots, device, curves, checkpoint, measures, precision=precision),
    )
