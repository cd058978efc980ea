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

FRACTION = "train_fraction"
"""The axis whose levels are shares of the training rows, or numbers of them if above 1."""


def level_told(axis: str, level: object) -> str:
    """Return a level in words: a number of training rows is called so."""
    if axis == FRACTION and level is not None and float(str(level)) > 1:
        return f"{float(str(level)):.0f} rows"
    return str(level)


def told(axis: str, *levels: object) -> str:
    """Return levels with their axis, such as train fraction 0.5, or 40 rows, which need none."""
    said = " or ".join(level_told(axis, level) for level in levels)
    is_plain = axis == FRACTION and said.endswith(" rows")
    return said if is_plain else f"{axis.replace('_', ' ')} {said}"


def condition(axis: str, level: object) -> str:
    """Return the condition that selects the cells with a level, in SQL."""
    quoted = str(level).replace("'", "''")
    return f"{axis} = {level}" if isinstance(level, float) else f"{axis} = '{quoted}'"
