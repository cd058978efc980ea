"""Ensembling methods and deep ensembles by size, in numbers, as in PIT's tables 4 to 9."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.figures.described import described
from manyseed.analysis.report.listed import Listed, Row, number
from manyseed.analysis.tables.keys import IS_METHOD

SHOWN = (1, 5, 10, 50, 100)
"""Sizes that PIT's tables have; beside them each cell's largest."""

COLUMNS: Mapping[str, tuple[str, int]] = {
    "log_likelihood": ("Log-likelihood", 3),
    "cll": ("Calibrated", 3),
    "c_brier": ("Brier, calibrated", 3),
    "error": ("Error, %", 2),
    "c_ece": ("ECE, calibrated", 3),
    "c_aurc": ("AURC, calibrated", 4),
}
MOST = 300  # rows
_DEEP = "none (deep ensemble)"
_CONTEXT = [axis for axis in AXES if axis not in ("ensembling", "test_augment")]


def of_methods(uncertainty: pl.DataFrame | None, dee: pl.DataFrame | None) -> list[Listed]:
    """Return the table of methods beside deep ensembles; empty without methods.

    Parameters
    ----------
    uncertainty, dee : frames or None
        The tables of these names.
    """
    if uncertainty is None or "fit_seconds" not in uncertainty.columns:
        return []
    known = uncertainty.filter(pl.col("cll").is_not_null())
    methods = known.filter(IS_METHOD | (pl.col("test_augment") != "none"))
    if methods.is_empty():
        return []
    own = known.join(methods.select(_CONTEXT).unique(), on=_CONTEXT, how="semi")
    largest = pl.col("members").max().over("cell")
    own = own.filter(pl.col("members").is_in(SHOWN) | (pl.col("members") == largest))
    of_repeat = own.group_by("cell", "repeat_index", "members").agg(
        pl.col(*COLUMNS, "fit_seconds").mean(), pl.col("cll").std().alias("_sd")
    )
    means = of_repeat.group_by("cell", "members").agg(
        pl.col(*COLUMNS, "fit_seconds").mean(), (pl.col("_sd") ** 2).mean().sqrt()
    )
    cells = own.select("cell", *AXES).unique()
    of = described(cells.drop("ensembling", "test_augment"))
    rows = (
        means.join(cells, on="cell")
        .join(of, on="cell")
        .join(_worth(dee), on=["cell", "members"], how="left")
    )
    rows = rows.sort("dataset", "classifier", "_of", "ensembling", "test_augment", "members")
    there = rows.rows(named=True)
    plain = {
        (*(row[axis] for axis in _CONTEXT), row["ensembling"], row["members"]): row
        for row in there
        if row["test_augment"] == "none"
    }
    apart, seen = any(row["_of"] for row in there), rows["test_augment"].n_unique() > 1
    heads = [
        *("Dataset", "Classifier", *(["Cell"] if apart else []), "Ensembling"),
        *(["Test images"] if seen else []),
        *("Members", *(head for head, _ in COLUMNS.values()), "Worth, runs", "Fit, s"),
    ]
    shown: list[Row] = []
    for row in there[:MOST]:
        key = (*(row[axis] for axis in _CONTEXT), row["ensembling"], row["members"])
        other = plain.get(key) if row["test_augment"] != "none" else None
        shown.append(
            (
                str(row["dataset"]),
                str(row["classifier"]),
                *([row["_of"]] if apart else []),
                _DEEP if row["ensembling"] == "none" else str(row["ensembling"]),
                *([str(row["test_augment"])] if seen else []),
                f"{row['members']:,}",
                *(_cell(row, other, name) for name in COLUMNS),
                _told(row),
                "–" if row["fit_seconds"] is None else f"{row['fit_seconds']:.3g}",
            )
        )
    more = len(there) - MOST
    arrows = (
        " With test images transformed, ↑ and ↓ say in what direction the number that is printed "
        "differs from that of the same ensemble without."
        if seen
        else ""
    )
    return [
        Listed(
            "methods",
            "Ensembling methods and deep ensembles",
            "Averages of the probabilities of so many members of one training, or of so many "
            "independent runs: means over runs, of deep ensembles over draws, and then over "
            "repeats; of the calibrated log-likelihood ± the standard deviation between runs, or "
            "draws. Calibrated: at the temperature of the other half of the test set. Worth: deep "
            "ensemble equivalent by it (> M: more than there are). Fit: what training took, of "
            "members all of their run, of deep ensembles of all of their runs: methods of longer "
            f"training are no better for the same time.{arrows}"
            + (f" {more:,} more rows are not shown." if more > 0 else ""),
            heads,
            3 + apart + seen,
            shown,
        )
    ]


def _worth(dee: pl.DataFrame | None) -> pl.DataFrame:
    """Return the equivalents by cll: means over repeats, pools where one of these is beyond."""
    schema = {"cell": pl.UInt32, "members": pl.UInt32, "_dee": pl.Float64, "_beyond": pl.UInt32}
    if dee is None:
        return pl.DataFrame(schema=schema)
    own = dee.filter((pl.col("axis") == "ensembling") & (pl.col("metric") == "cll"))
    found = own.group_by("cell", "members").agg(
        _dee=pl.col("dee").mean(), _beyond=pl.col("beyond").min()
    )
    return found.cast(schema)  # type: ignore[arg-type]


def _told(row: Mapping[str, Any]) -> str:
    if row["_beyond"] is not None:
        return f"> {row['_beyond']}"
    return number(row["_dee"], 1)


def _cell(row: Mapping[str, Any], plain: Mapping[str, Any] | None, name: str) -> str:
    """Write a number, with an arrow where it is printed otherwise than without augmentation."""
    digits = COLUMNS[name][1]
    text = _printed(row, name)
    if name == "cll" and row["_sd"] is not None:
        text += f" ± {number(row['_sd'], digits)}"
    if plain is None or row[name] is None or plain[name] is None:
        return text
    if _printed(plain, name) == _printed(row, name):
        return text
    return f"{'↑' if row[name] > plain[name] else '↓'} {text}"


def _printed(row: Mapping[str, Any], name: str) -> str:
    value = row[name]
    return number(100 * value if name == "error" and value is not None else value, COLUMNS[name][1])
