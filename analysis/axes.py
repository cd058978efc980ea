"""The axes in which cells differ; each is a column of every result table."""

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
    "perturb_labels",
)

LATER = dict.fromkeys(("augment", "ensembling", "test_augment", "perturb_labels"), "none")
"""Axes added later, and the level that cells of earlier plans have."""

VARY = "init+batch"  # the level of `vary` that other levels are compared with

UNKNOWN = "unknown"
"""What varies between imported runs, unless the import names other sources than those of `VARY`."""
