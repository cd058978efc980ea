"""What is drawn anew for each run, whatever `vary` says: a subsample, and the noise of schemes.

In cells that have it, runs differ by it too, so no spread or flip is that of `vary` alone. A
crossed cell holds it fixed, or lets it go with train.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import polars as pl

from manyseed.analysis.questions.effects import UNPERTURBED
from manyseed.analysis.tables.rows import IS_CROSSED

ON_ROWS = ("perturb_continuous", "perturb_categorical", "perturb_labels")
"""Axes of noise that is drawn row by row, for the rows in use."""

_WORDS = {
    "subsample": ("train_fraction",),
    "feature noise": ("perturb_continuous", "perturb_categorical"),
    "hparam noise": ("perturb_hparams",),
    "label noise": ("perturb_labels",),
}


def drawn(columns: Collection[str]) -> pl.Expr:
    """Return what is drawn anew in words, such as label noise, joined by +; empty if nothing is.

    `columns`: of the frame; axes that it lacks are taken to be unperturbed.
    """
    parts = [
        pl.when(pl.any_horizontal(pl.col(own).cast(pl.String) != UNPERTURBED[own] for own in known))
        .then(pl.lit(words))
        .otherwise(None)
        for words, axes in _WORDS.items()
        if (known := [axis for axis in axes if axis in columns])
    ]
    if not parts:
        return pl.lit("")
    return pl.concat_str(parts, separator=" + ", ignore_nulls=True)


def varied(columns: Collection[str]) -> pl.Expr:
    """Return `vary` and what is drawn anew, such as batch + label noise."""
    vary, more = pl.col("vary").cast(pl.String), drawn(columns)
    return pl.when(IS_CROSSED | (more == "")).then(vary).otherwise(pl.format("{} + {}", vary, more))


def drawn_in_all(cells: pl.DataFrame) -> str:
    """Return what is drawn anew in any of some cells, as `drawn`."""
    own = cells.filter(~IS_CROSSED).select(drawn(cells.columns)).to_series().unique()
    found = {words for each in own for words in each.split(" + ") if words}
    return " + ".join(words for words in _WORDS if words in found)


def and_seeds(words: str) -> str:
    """Return seeds, and what is drawn anew beside them."""
    first, _, last = " + ".join(filter(None, ("seeds", words))).rpartition(" + ")
    return f"{first.replace(' + ', ', ')} and {last}" if first else last


def anew(words: str) -> str:
    """Say that something is drawn anew, for the end of a sentence."""
    verb = "are" if "+" in words else "is"
    return f"{words.replace(' + ', ' and ')} {verb} drawn anew for each run, whatever vary says"


def anew_in(axes: Mapping[str, Any], start: str) -> str:
    """Return `start` and what is drawn anew in a cell with these levels; empty if nothing is."""
    known = {axis: str(axes.get(axis) or usual) for axis, usual in UNPERTURBED.items()}
    words = drawn_in_all(pl.DataFrame({"vary": str(axes.get("vary")), **known}))
    return f"{start}{anew(words)}." if words else ""
