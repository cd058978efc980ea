"""What a fit takes on one core, before anything has run.

Each classifier's work as a function of rows, features and classes, with constants that were
measured in a warm worker and are held to the runtime table of the tabular study (MV, Runtime
considerations) by a test; ``docs/sweep-file.md`` shows both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from jobs.classifiers import ClassifierInfo
from jobs.datasets import DatasetInfo

_START = 0.005
"""Seconds of any fit: its rows are drawn, encoded and scaled, its test set is predicted."""

_IMAGE_BATCH = 32

_FEATURE_SECONDS = {"swin_t": 0.18, "vit_b_16": 0.35}
"""Of one image of any size, through each frozen backbone."""


def core_seconds(dataset: DatasetInfo, classifier: ClassifierInfo, rows: float) -> float:
    """Return the expected time of a fit on so many training rows, on one core."""
    work = _WORK[str(classifier.canonical["name"])]
    return _START + work(dataset, classifier, rows)


def feature_seconds(classifier: ClassifierInfo) -> float:
    """Return the expected time of one image's features, on one core; 0 where there are none."""
    return _FEATURE_SECONDS.get(str(classifier.canonical.get("backbone")), 0.0)


def _lr(dataset: DatasetInfo, _: ClassifierInfo, rows: float) -> float:
    return 5.5e-7 * _sgd_values(dataset, rows)


def _svm(dataset: DatasetInfo, _: ClassifierInfo, rows: float) -> float:
    return 3.5e-7 * _sgd_values(dataset, rows)


def _sgd_values(dataset: DatasetInfo, rows: float) -> float:
    """Return values visited: a step costs as much as four features besides its own."""
    # one model a class beyond two; models with few positive rows converge sooner
    return rows * (dataset.n_features + 4) * math.pow(_models(dataset), 0.9)


def _xgb(dataset: DatasetInfo, classifier: ClassifierInfo, rows: float) -> float:
    # trees have more nodes with more rows, and fewer where a class is rare
    trees = float(classifier.canonical["rounds"]) * math.pow(_models(dataset), 0.7)
    return 2.7e-4 * trees * dataset.n_features * math.pow(rows / 10_000, 0.6)


def _mlp(dataset: DatasetInfo, classifier: ClassifierInfo, rows: float) -> float:
    first, second = (float(classifier.hparams[name]) for name in ("width1", "width2"))
    weights = first * (dataset.n_features + 2 * first + second)
    weights += second * (2 * second + len(dataset.class_names))
    step = 3e-3 / float(classifier.canonical["batch_size"])
    return _epochs(classifier) * rows * (step + 6e-6 + 1.0e-10 * weights)


def _cnn(dataset: DatasetInfo, classifier: ClassifierInfo, rows: float) -> float:
    return _epochs(classifier) * rows * (2.5e-3 / _IMAGE_BATCH + 2e-7 * dataset.n_features)


def _vit(dataset: DatasetInfo, classifier: ClassifierInfo, rows: float) -> float:
    assert dataset.image is not None
    patch = int(classifier.canonical["patch"])
    patches = math.ceil(dataset.image[0] / patch) * math.ceil(dataset.image[1] / patch)
    return _epochs(classifier) * rows * 6.5e-5 * patches


def _vit_transfer(dataset: DatasetInfo, classifier: ClassifierInfo, rows: float) -> float:
    return _epochs(classifier) * rows * 1.6e-8 * dataset.n_features


def _models(dataset: DatasetInfo) -> int:
    """Return how many times a binary problem is solved: once, or against the rest of each class."""
    n_classes = len(dataset.class_names)
    return 1 if n_classes == 2 else n_classes


def _epochs(classifier: ClassifierInfo) -> int:
    assert classifier.epochs is not None
    return classifier.epochs


_WORK: Mapping[str, Callable[[DatasetInfo, ClassifierInfo, float], float]] = {
    "lr-sgd": _lr,
    "svm-sgd": _svm,
    "xgb": _xgb,
    "mlp": _mlp,
    "cnn": _cnn,
    "vit": _vit,
    "vit-transfer": _vit_transfer,
}
