"""Which scores of response curves predict which of two models generalises worse, beyond chance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import polars as pl
from scipy import stats

GROUP = ("dataset", "classifier")
RESPONSE = (*GROUP, "transform", "layer")

LEVEL = 0.05
"""Probability of a claim by chance, over all scores of a dataset and classifier together."""

LISTED = 3
"""Transforms that a sentence names, and datasets and classifiers that have one."""

_SHAPES = np.geomspace(0.3, 1e4, 400)


@dataclass(frozen=True, slots=True)
class Telling:
    """What scores of the curves of a dataset's and classifier's models predict.

    Attributes
    ----------
    dataset, classifier : str
    compared : int
        Scores, those of each transform and layer counted.
    leading : sequence of mapping
        Of each transform and layer with a score that predicts it, its row of the table of
        conditional mutual information that has the largest cmi; the largest first. ``near`` is how
        many others that predict it are within its spread over seeds, null where that is not known.
    telling : int
        Scores that predict which model generalises worse.
    silent : sequence of str
        Transforms of which none does, with their layers.
    """

    dataset: str
    classifier: str
    compared: int
    leading: Sequence[Mapping[str, Any]]
    telling: int
    silent: Sequence[str]


def numbered(table: pl.DataFrame) -> pl.DataFrame:
    """Return the transforms and layers of a table, in order, each with its `number` from 1."""
    found = table.select(RESPONSE).unique().sort(RESPONSE)
    return found.with_row_index("number", offset=1)


def named(transform: str, layer: int) -> str:
    """Return a transform and its layer in words."""
    return transform if layer == 0 else f"{transform} at layer {layer}"


def is_single() -> pl.Expr:
    """Return whether a measure is a score, and no combination of two."""
    return ~pl.col("measure").str.contains("(", literal=True)


def judged(found: pl.DataFrame) -> pl.DataFrame:
    """Say of each measure whether its cmi is beyond what chance gives.

    Parameters
    ----------
    found : frame
        As `analysis.response.corpora.information` returns it.

    Returns
    -------
    frame
        Its rows, `beyond` (cmi above its null's 95 % quantile) and `sure` (of single scores: above
        the quantile at which all of a dataset and classifier together err with probability `LEVEL`,
        Bonferroni, of the gamma distribution with its null's mean and 95 % quantile; null of
        combinations). Null where there is no null.
    """
    if found.is_empty():
        return found.with_columns(beyond=pl.lit(None, pl.Boolean), sure=pl.lit(None, pl.Boolean))
    known = pl.col("cmi").is_not_null() & pl.col("null_q95").is_not_null()
    compared = (is_single() & known).sum().over(GROUP)
    rows = found.with_columns(_compared=compared, _known=known)
    least = [
        _quantile(mean, q95, LEVEL / max(1, n)) if is_known else None
        for mean, q95, n, is_known in rows.select(
            "null_mean", "null_q95", "_compared", "_known"
        ).iter_rows()
    ]
    beyond = pl.when(known).then(pl.col("cmi") > pl.col("null_q95"))
    sure = pl.when(known & is_single()).then(beyond & (pl.col("cmi") > pl.col("_least")))
    return (
        rows.with_columns(pl.Series("_least", least, dtype=pl.Float64))
        .with_columns(beyond=beyond, sure=sure)
        .drop("_compared", "_known", "_least")
    )


@cache
def _quantile(mean: float, q95: float, level: float) -> float:
    """Return the value that a gamma distribution with this mean and quantile exceeds so rarely."""
    if mean <= 0:
        return q95
    ratios = stats.gamma.ppf(0.95, _SHAPES) / _SHAPES
    shape = _SHAPES[np.abs(ratios - q95 / mean).argmin()]
    return max(q95, float(mean * stats.gamma.isf(level, shape) / shape))


def telling(found: pl.DataFrame) -> list[Telling]:
    """Return what scores predict, of each dataset and classifier of which any could.

    Parameters
    ----------
    found : frame
        As `analysis.response.corpora.information` returns it.
    """
    single = judged(found).filter(is_single(), pl.col("sure").is_not_null())
    said = []
    for (dataset, classifier), own in single.sort(GROUP).group_by(GROUP, maintain_order=True):
        sure = own.filter("sure")
        leading, silent = [], []
        for (transform, layer), of in own.group_by("transform", "layer", maintain_order=True):
            tells = of.filter("sure").sort("cmi", "measure", descending=[True, False])
            if tells.is_empty():
                silent.append(named(str(transform), int(str(layer))))
                continue
            best = tells.row(0, named=True)
            sd = best["cmi_sd"]
            near = None if sd is None else int((tells["cmi"][1:] > best["cmi"] - sd).sum())
            leading.append({**best, "near": near})
        leading.sort(key=lambda row: -row["cmi"])
        said.append(
            Telling(str(dataset), str(classifier), own.height, leading, sure.height, silent)
        )
    return said


def sentences(found: pl.DataFrame) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Say which scores predict which of two models generalises worse, and how sure that is.

    Where none is seen to there is no sentence.

    Yields
    ------
    (str, tuple of str)
        Text, and names of figures and tables that show it.
    """
    number = {
        tuple(row[:-1]): row[-1] for row in numbered(found).select(*RESPONSE, "number").rows()
    }
    told = [one for one in telling(found) if one.leading]
    for one in told[:LISTED]:
        best = one.leading[0]
        figure = f"response-gap-{number[tuple(best[name] for name in RESPONSE)]}"
        more = len(one.leading) - LISTED
        text = (
            f"Of {one.compared} scores of response curves of {one.dataset} × {one.classifier}, "
            f"{one.telling} tell beyond chance which of two models has the larger generalisation "
            f"gap, once their hparams are known ({LEVEL:.0%} for all together): "
            + "; ".join(map(_best, one.leading[:LISTED]))
            + (f"; and those of {more} more" if more > 0 else "")
            + "."
        )
        if one.silent:
            text += f" No score of {', '.join(one.silent)} is seen to."
        yield text, (figure, "response-measures", "conventions")


def _best(row: Mapping[str, Any]) -> str:
    """Return what the best score of a transform predicts, and how much seeds change that."""
    of = named(row["transform"], row["layer"])
    n = f"n = {row['n_models']:,} models"
    chance = f"by chance up to {row['null_q95']:.1f}"
    turned = ""
    if row["pearson"] is not None and row["pearson"] < 0:
        turned = ", turned round: the gap is smaller where the score promises a larger one"
    score = row["measure"].replace("_", " ")
    if row["cmi_sd"] is None:
        seeds = "from one seed per configuration: how much seeds change it is not known"
        return f"of {of} most {score}, cmi {row['cmi']:.0f} ({chance}; {n}; {seeds}){turned}"
    others = "no other"
    if row["near"]:
        others = f"{row['near']} {'other' if row['near'] == 1 else 'others'}"
    return (
        f"of {of} most {score}, cmi {row['cmi']:.0f} ± {row['cmi_sd']:.0f} between "
        f"{row['n_corpora']} seeds or test sets ({chance}; {n}; {others} within that spread)"
        f"{turned}"
    )
