"""What cells differ in: the axes of grids, and columns of every result table."""

from __future__ import annotations

AXES = (
    "dataset",
    "classifier",
    "train_fraction",
    "perturb_continuous",
    "perturb_categorical",
    "perturb_hparams",
    "hparams",
    "vary",
    "augment",
    "ensembling",
    "test_augment",
)

LATER = {"augment": "none", "ensembling": "none", "test_augment": "none"}
"""Axes that came later, and what cells of earlier plans have of them."""

VARY = "init+batch"
"""The sources of randomness that cells with others are compared with."""
