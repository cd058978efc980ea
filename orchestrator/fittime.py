"""What a fit takes on one core, before anything has run.

A table's entry for its classifier and size, times the share of the training part that it uses.
``docs/sweep-file.md`` says where the table comes from.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jobs.classifiers import ClassifierInfo
from jobs.datasets import DatasetInfo

MANY_CLASSES = 300

ROWS: Mapping[str, int] = {"small": 634, "medium": 10_000, "large": 190_000}
"""Training rows that an entry of `SECONDS` stands for; between them times follow a power law."""

SECONDS: Mapping[str, Mapping[str, float]] = {
    "lr-sgd": {"small": 0.01, "medium": 4.6, "large": 42.3, "many classes": 2712.0},
    "svm-sgd": {"small": 0.006, "medium": 2.8, "large": 25.1, "many classes": 1920.0},
    "xgb": {"small": 0.07, "medium": 4.9, "large": 59.3, "many classes": 312.0},
    "mlp": {"small": 1.5, "medium": 38.0, "large": 216.0, "many classes": 180.0},
}
"""Seconds a fit on one core. Small: measured, in a warm worker, on vehicle's shape. The others are
the tabular study's (MV, Runtime considerations): median and 95th percentile over its datasets, at
the sizes that have these ranks, and the mean of its "VerySlow" ones, aloi and dionis."""

_MLP_EPOCHS = 20
IMAGE_SECONDS: Mapping[str, float] = {"cnn": 2e-7, "vit": 1.2e-6, "vit-transfer": 1.6e-8}
"""Seconds an epoch, a training row and a pixel value, on one core (measured on 32 × 32 × 3)."""


def core_seconds(dataset: DatasetInfo, classifier: ClassifierInfo) -> float:
    """Return the expected time of a fit on the whole training part, on one core."""
    name = str(classifier.canonical["name"])
    if name in SECONDS:
        epochs = classifier.epochs or _MLP_EPOCHS
        return _tabular(SECONDS[name], dataset) * epochs / _MLP_EPOCHS
    values = dataset.n_train * dataset.n_features * (classifier.epochs or 1)
    return IMAGE_SECONDS[name] * values


def _tabular(entries: Mapping[str, float], dataset: DatasetInfo) -> float:
    """Return an entry at a dataset's rows: proportional outside of the table, else between two."""
    rows = dataset.n_train
    if len(dataset.class_names) >= MANY_CLASSES:
        return entries["many classes"]
    if rows <= ROWS["small"]:
        return entries["small"] * rows / ROWS["small"]
    if rows >= ROWS["large"]:
        return entries["large"] * rows / ROWS["large"]
    known = list(ROWS)
    sizes = np.log([ROWS[size] for size in known])
    times = np.log([entries[size] for size in known])
    return float(np.exp(np.interp(np.log(rows), sizes, times)))
