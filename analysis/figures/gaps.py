"""Generalisation gap against each score of response curves, one dot per model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from manyseed.analysis.counts import counted
from manyseed.analysis.figures.described import coloured_by, levels_of
from manyseed.analysis.figures.kind import kind
from manyseed.analysis.figures.style import Handle, Mark, Plot, dots, legend, panels, styled
from manyseed.analysis.questions.telling import RESPONSE, is_single, judged, named, numbered

MOST = 12  # most transforms and layers that are drawn
MINUS = "\N{MINUS SIGN}"


@kind(
    "response-gap",
    "generalisation gap of each model against scores of its response curve",
    chapter="responses",
)
def gaps(cmi: pl.DataFrame, responses: pl.DataFrame) -> list[Plot]:
    """Draw a figure per transform and layer of each dataset and classifier, one panel per score.

    PRC, figures 6 to 9.

    Parameters
    ----------
    cmi : frame
        The table of conditional mutual information.
    responses : frame
        The table of responses.
    """
    single = judged(cmi).filter(is_single(), pl.col("n_models") > 0)
    drawn = []
    for row in numbered(cmi).head(MOST).iter_rows(named=True):
        key = {name: row[name] for name in RESPONSE}
        models = responses.filter(**key).filter(~pl.col("excluded"))
        drawn.append(_gap(models, single.filter(**key), row["number"], cmi.filter(**key)))
    return [plot for plot in drawn if plot is not None]


@styled
def _gap(
    models: pl.DataFrame, measures: pl.DataFrame, number: int, found: pl.DataFrame
) -> Plot | None:
    rows = [row for row in measures.iter_rows(named=True) if _varies(models, row["measure"])]
    if not rows or models["gap"].n_unique() < 2:
        return None
    by = coloured_by(models)
    levels = levels_of(models, by)
    figure, axes = panels([_title(row, models) for row in rows], "generalisation gap")
    handles: dict[str, Handle] = {}
    marks: list[Mark] = []
    for axis, row in zip(axes, rows, strict=True):
        known = models.filter(pl.col(row["measure"]).is_not_null())
        columns = (row["measure"], "gap")
        named_dots, handles = dots(axis, known, columns, (by, levels), models.height)
        marks += named_dots
        axis.locator_params(axis="x", nbins=4)
        axis.set_xlabel(row["measure"].replace("_", " "))
    if len(levels) > 1:
        legend(figure, handles, by.replace("_", " "))
    first, is_signed = rows[0], models["gi_folded"].null_count() < models.height
    corpora, left = int(first["n_corpora"]), int(found["n_excluded"].max() or 0)  # type: ignore[arg-type]
    seeds = (
        f"mean over {corpora} corpora of one model per configuration ± their standard deviation"
        if corpora > 1
        else "with one model per configuration"
    )
    return Plot(
        f"response-gap-{number}",
        f"Generalisation gap and scores of {named(first['transform'], first['layer'])}: "
        f"{first['dataset']} × {first['classifier']}",
        "Each dot is a model: a score of its response curve, and its accuracy on training rows "
        f"minus that on test points{', each moved at random' * is_signed}. "
        f"n = {counted(models.height, 'model')}"
        + (f"; {left:,} left out, as their training accuracy is too low" if left else "")
        + ". cmi: how much the score tells about the order of two models' gaps beyond their "
        f"hparams, in %, {seeds}; as by chance: within the 95 % quantile of the score assigned to "
        "models at random. r: correlation, regardless of hparams.",
        models.height,
        figure,
        marks,
        dataset=str(first["dataset"]),
    )


def _varies(models: pl.DataFrame, measure: str) -> bool:
    known = models[measure].drop_nulls()
    return known.len() > 0 and bool(known.n_unique() > 1)


def _title(row: Mapping[str, Any], models: pl.DataFrame) -> str:
    """Return the title of a panel: how well the score predicts, and its correlation as drawn."""
    cmi = "too few models"
    if row["cmi"] is not None:
        cmi = f"cmi {row['cmi']:.1f}" if row["beyond"] else "cmi as by chance"
        if row["beyond"] and row["cmi_sd"] is not None:
            cmi += f" ± {row['cmi_sd']:.1f}"
    known = models.filter(pl.col(row["measure"]).is_not_null())
    r = np.corrcoef(known[row["measure"]].to_numpy(), known["gap"].to_numpy())[0, 1]
    return f"{cmi}, r\xa0{r:.2f}".replace("-", MINUS)
