"""Ensembling methods and deep ensembles by size, as in PIT's tables 4 to 9."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.figures.labels import described
from manyseed.analysis.report.listed import Listed, Row, number
from manyseed.analysis.tables.rows import IS_METHOD

SHOWN = (1, 5, 10, 50, 100)
"""Sizes in PIT's tables; each cell's largest is shown as well."""

COLUMNS: Mapping[str, tuple[str, int]] = {
    "log_likelihood": ("Log-likelihood", 3),
    "cll": ("Calibrated", 3),
    "c_brier": ("Brier, calibrated", 3),
    "error": ("Error, %", 2),
    "c_ece": ("ECE, calibrated", 3),
    "c_aurc": ("AURC, calibrated", 4),
}
MOST = 300  # most rows
_DEEP = "none (deep ensemble)"
_CONTEXT = [axis for axis in AXES if axis not in ("ensembling", "test_augment")]


def of_methods(uncertainty: pl.DataFrame | None, dee: pl.DataFrame | None) -> list[Listed]:
    """Return the table of methods and deep ensembles; empty without methods.

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
    by_repeat = own.group_by("cell", "repeat_index", "members").agg(
        pl.col(*COLUMNS, "fit_seconds").mean(), pl.col("cll").std().alias("_sd")
    )
    means = by_repeat.group_by("cell", "members").agg(
        pl.col(*COLUMNS, "fit_seconds").mean(), (pl.col("_sd") ** 2).mean().sqrt()
    )
    cells = own.select("cell", *AXES).unique()
    table = (
        means.join(cells, on="cell")
        .join(described(cells.drop("ensembling", "test_augment")), on="cell")
        .join(_worth(dee), on=["cell", "members"], how="left")
        .sort("dataset", "classifier", "_of", "ensembling", "test_augment", "members")
    )
    rows = table.rows(named=True)
    plain = {
        (*(row[axis] for axis in _CONTEXT), row["ensembling"], row["members"]): row
        for row in rows
        if row["test_augment"] == "none"
    }
    apart, seen = any(row["_of"] for row in rows), table["test_augment"].n_unique() > 1
    heads = [
        *("Dataset", "Classifier", *(["Cell"] if apart else []), "Ensembling"),
        *(["Test images"] if seen else []),
        *("Members", *(head for head, _ in COLUMNS.values()), "Worth, runs", "Fit, s"),
    ]
    shown: list[Row] = []
    for row in rows[:MOST]:
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
                f"> {row['_beyond']}" if row["_beyond"] is not None else number(row["_dee"], 1),
                "–" if row["fit_seconds"] is None else f"{row['fit_seconds']:.3g}",
            )
        )
    more = len(rows) - MOST
    arrows = (
        " With transformed test images, ↑ and ↓ show in which direction the printed number differs "
        "from that of the same ensemble without."
        if seen
        else ""
    )
    return [
        Listed(
            "methods",
            "Ensembling methods and deep ensembles",
            "Probabilities averaged over members of one training, or over independent runs: means "
            "over runs (for deep ensembles over draws), then over repeats; calibrated "
            "log-likelihood ± standard deviation between runs or draws. Calibrated: at the "
            "temperature fitted on the other half of the test set. Worth: deep ensemble equivalent "
            "by calibrated log-likelihood (> M: more than all M runs). Fit: training time, for "
            "members of their whole run, for deep ensembles of all their runs; methods that train "
            f"longer are no better for the same time.{arrows}"
            + (f" {more:,} more rows are not shown." if more > 0 else ""),
            heads,
            3 + apart + seen,
            shown,
        )
    ]


def _worth(dee: pl.DataFrame | None) -> pl.DataFrame:
    """Return equivalents by cll: means over repeats, and the pool if some repeat exceeds it."""
    schema = {"cell": pl.UInt32, "members": pl.UInt32, "_dee": pl.Float64, "_beyond": pl.UInt32}
    if dee is None:
        return pl.DataFrame(schema=schema)
    own = dee.filter((pl.col("axis") == "ensembling") & (pl.col("metric") == "cll"))
    found = own.group_by("cell", "members").agg(
        _dee=pl.col("dee").mean(), _beyond=pl.col("beyond").min()
    )
    return found.cast(schema)  # type: ignore[arg-type]


def _cell(row: Mapping[str, Any], plain: Mapping[str, Any] | None, name: str) -> str:
    """Write a number, with an arrow if it is printed differently from that without augmentation."""
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
