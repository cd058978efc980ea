"""Which scores of response curves predict which of two models generalises worse, beyond chance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from manyseed.analysis.questions.question import Answer, Evidence

GROUP = ("dataset", "classifier")
RESPONSE = (*GROUP, "transform", "layer")

LEVEL = 0.05  # probability of any claim by chance among all scores of a dataset and classifier

LISTED = 3  # most transforms named in a sentence, and most pairs of dataset and classifier with one


@dataclass(frozen=True, slots=True)
class ScoreSummary:
    """What response-curve scores of a dataset's and classifier's models predict.

    `compared`: number of scores, over all transforms and layers. `leading`: for each transform and
    layer with predictive scores, the row of the table of conditional mutual information with the
    largest cmi; largest first. ``near`` is how many other predictive scores are within its spread
    over seeds, null if that is unknown. `near`: the same of the first, over all transforms and
    layers. `telling`: number of scores that predict which model generalises worse. `silent`:
    transforms, with their layers, without such a score.
    """

    dataset: str
    classifier: str
    compared: int
    leading: Sequence[Mapping[str, Any]]
    telling: int
    silent: Sequence[str]
    near: int | None


def numbered(table: pl.DataFrame) -> pl.DataFrame:
    """Return the transforms and layers of a table, sorted, each with its `number` from 1."""
    return table.select(RESPONSE).unique().sort(RESPONSE).with_row_index("number", offset=1)


def named(transform: str, layer: int) -> str:
    """Return a transform and its layer in words."""
    return transform if layer == 0 else f"{transform} at layer {layer}"


def is_single() -> pl.Expr:
    """Return whether a measure is a single score, not a combination of two."""
    return ~pl.col("measure").str.contains("(", literal=True)


def judged(found: pl.DataFrame) -> pl.DataFrame:
    """Add whether the cmi of each measure is beyond chance.

    `found`: as `analysis.response.corpora.information` returns it.

    Returns its rows with `beyond` (cmi above its null's 95 % quantile) and `sure` (for single
    scores: also p, given whatever hparams, Bonferroni-corrected to an error of `LEVEL` for all
    scores of a dataset and classifier; null for combinations). Both are null without a null
    distribution.
    """
    if found.is_empty():
        return found.with_columns(beyond=pl.lit(None, pl.Boolean), sure=pl.lit(None, pl.Boolean))
    known = pl.col("cmi").is_not_null() & pl.col("null_q95").is_not_null()
    compared = (is_single() & known).sum().over(GROUP)
    beyond = pl.when(known).then(pl.col("cmi") > pl.col("null_q95"))
    sure = beyond & (pl.col("p") < LEVEL / compared.clip(1))
    return found.with_columns(beyond=beyond, sure=pl.when(known & is_single()).then(sure))


def telling(found: pl.DataFrame) -> list[ScoreSummary]:
    """Return what scores predict, for each dataset and classifier with scores that have a null.

    `found`: as `analysis.response.corpora.information` returns it.
    """
    single = judged(found).filter(is_single(), pl.col("sure").is_not_null())
    result = []
    for (dataset, classifier), rows in single.sort(GROUP).group_by(GROUP, maintain_order=True):
        leading, silent = [], []
        for (transform, layer), scores in rows.group_by("transform", "layer", maintain_order=True):
            tells = scores.filter("sure").sort("cmi", "measure", descending=[True, False])
            if tells.is_empty():
                silent.append(named(str(transform), int(str(layer))))
                continue
            best = tells.row(0, named=True)
            leading.append({**best, "near": _near(best, tells)})
        leading.sort(key=lambda row: -row["cmi"])
        sure = rows.filter("sure")
        near = _near(leading[0], sure) if leading else None
        counts = rows.height, leading, sure.height, silent, near
        result.append(ScoreSummary(str(dataset), str(classifier), *counts))
    return result


def _near(best: Mapping[str, Any], scores: pl.DataFrame) -> int | None:
    """Return how many scores besides the best are within its spread over seeds."""
    sd = best["cmi_sd"]
    return None if sd is None else int((scores["cmi"] > best["cmi"] - sd).sum()) - 1


def sentences(found: pl.DataFrame) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Say which scores predict which of two models generalises worse, and how sure that is.

    Datasets and classifiers without such a score have no sentence.

    Yields (str, tuple of str): text, and the names of figures and tables that show it.
    """
    number = {tuple(row): k for *row, k in numbered(found).select(*RESPONSE, "number").rows()}
    predicted = [one for one in telling(found) if one.leading]
    for one in predicted[:LISTED]:
        best = one.leading[0]
        figure = f"response-gap-{number[tuple(best[name] for name in RESPONSE)]}"
        more = len(one.leading) - LISTED
        text = (
            f"Of {one.compared} scores of response curves of {one.dataset} × {one.classifier}, "
            f"{one.telling} tell beyond chance which of two models has the larger generalisation "
            f"gap, given their hparams ({LEVEL:.0%} for all together): "
            + "; ".join(map(_best, one.leading[:LISTED]))
            + (f"; and those for {more} more" if more > 0 else "")
            + "."
        )
        if one.silent:
            text += f" No score for {', '.join(one.silent)} does."
        yield text, (figure, "response-measures", "conventions")


def _best(row: Mapping[str, Any]) -> str:
    """Say how well the best score of a transform predicts, and how much that varies over seeds."""
    n = f"n = {row['n_models']:,} models"
    chance = f"by chance up to {row['null_q95']:.1f}"
    reversed_ = ""
    if row["pearson"] is not None and row["pearson"] < 0:
        reversed_ = ", reversed: the gap is smaller where the score predicts a larger one"
    score = row["measure"].replace("_", " ")
    where = named(row["transform"], row["layer"])
    best = f"for {where}, the largest cmi so far is that of {score}, {row['cmi']:.0f}"
    if row["cmi_sd"] is None:
        seeds = "from one seed per configuration, so its spread over seeds is unknown"
        return f"{best} ({chance}; {n}; {seeds}){reversed_}"
    others = "no other"
    if row["near"]:
        others = f"{row['near']} {'other' if row['near'] == 1 else 'others'}"
    return (
        f"{best} ± {row['cmi_sd']:.0f} between {row['n_corpora']} seeds or test sets ({chance}; "
        f"{n}; {others} within that spread){reversed_}"
    )


def answer(evidence: Evidence) -> Iterator[Answer]:
    """Say which scores predict which of two models generalises worse."""
    if evidence.cmi is not None:
        told = [one for one in telling(evidence.cmi) if one.leading]
        for one, (text, figures) in zip(told, sentences(evidence.cmi), strict=False):
            best = one.leading[0]
            where, score = named(best["transform"], best["layer"]), best["measure"]
            others = f", or {one.near} more" if one.near else ""
            yield Answer(
                f"{one.dataset} × {one.classifier}: {one.telling} of {one.compared} scores tell "
                f"which gap is larger; so far first {score.replace('_', ' ')} for {where}{others}.",
                evidence=text,
                figures=figures,
            )
