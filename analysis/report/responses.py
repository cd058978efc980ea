"""Tables of response curves: what scores predict, alone and combined, and for which models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from manyseed.analysis.figures.labels import coloured_by, levels_of
from manyseed.analysis.questions.scores import RESPONSE, is_single, judged, named
from manyseed.analysis.report.tables import PageTable, Row, number, with_sd
from manyseed.analysis.response.corpora import FEWEST_MODELS, distinct

_HEADS = ("Dataset", "Classifier", "Transform")
_WITHIN = "as by chance"
_BASELINES = {
    "gi": "gi",
    "shifted_train_accuracy": "Accuracy on moved rows",
    "mean_accuracy": "Mean accuracy",
}
"""Measures compared in PRC's table 3, with their heads."""


def of_responses(responses: pl.DataFrame | None, found: pl.DataFrame | None) -> list[PageTable]:
    """Return the tables of PRC that a sweep's models allow.

    `responses` and `found`: the tables of responses and of conditional mutual information.
    """
    if responses is None or found is None or found.is_empty():
        return []
    measures = judged(found)
    tables = [
        _models(distinct(responses)),
        _invariance(measures),
        _measures(measures.filter(is_single()), combined=False),
        _measures(measures.filter(~is_single()), combined=True),
    ]
    return [one for one in tables if one is not None]


def _models(responses: pl.DataFrame) -> PageTable:
    """Return the number of models, and means of gap and gi."""
    by = coloured_by(responses)
    levels = {level: place for place, level in enumerate(levels_of(responses, by))}
    means = (
        responses.with_columns(pl.col(by).cast(pl.String).alias("_level"))
        .group_by(*RESPONSE, "_level")
        .agg(
            models=pl.len(),
            excluded=pl.col("excluded").sum(),
            train=pl.col("train_accuracy").mean(),
            gap=pl.col("gap").mean(),
            spread=pl.col("gap").std(),
            gi=pl.col("gi").mean(),
            gi_spread=pl.col("gi").std(),
        )
    )
    order = means.with_columns(_place=pl.col("_level").replace_strict(levels))
    rows: list[Row] = [
        (
            str(row["dataset"]),
            str(row["classifier"]),
            named(row["transform"], row["layer"]),
            row["_level"],
            f"{row['models']:,}",
            f"{row['excluded']:,}",
            number(row["train"], 3),
            with_sd(row["gap"], row["spread"], 3),
            with_sd(row["gi"], row["gi_spread"], 3),
        )
        for row in order.sort(*RESPONSE, "_place").iter_rows(named=True)
    ]
    return PageTable(
        "response-models",
        "Models and their response curves",
        "Means over models ± standard deviation. Left out: from conditional mutual information, as "
        "training accuracy is too low, or there is no gap. Gap: accuracy on training rows minus "
        "that on test points, which for transforms of images are moved at random. gi: 0 for a "
        "model that is never wrong; – if no pair of a kind was formed.",
        [
            *(*_HEADS, by.replace("_", " ").capitalize(), "Models", "Left out"),
            *("Training accuracy", "Gap ± sd", "gi ± sd"),
        ],
        4,
        rows,
    )


def _invariance(found: pl.DataFrame) -> PageTable | None:
    """Return table 3 of PRC: gi and two baselines, for each transform of both signs."""
    signed = found.filter(measure="shifted_train_accuracy").sort(*RESPONSE)
    rows: list[Row] = []
    for one in signed.iter_rows(named=True):
        same = found.filter(**{name: one[name] for name in RESPONSE})
        by_measure = {row["measure"]: row for row in same.iter_rows(named=True)}
        n, left_out = one["n_models"], one["n_excluded"]
        rows.append(
            (
                str(one["dataset"]),
                str(one["classifier"]),
                named(one["transform"], one["layer"]),
                f"{n:,} of {n + left_out:,}",
                *(_cmi(by_measure[name]) if name in by_measure else "–" for name in _BASELINES),
                number(one["null_q95"], 1),
            )
        )
    if not rows:
        return None
    return PageTable(
        "response-invariance",
        "Invariance: gi and two baselines",
        "Conditional mutual information (%) between the generalisation gap and gi, the accuracy on "
        "training rows each moved by a random magnitude of the whole range, or the mean accuracy "
        "over magnitudes; ± standard deviation over corpora of one model per configuration. "
        "Models: those used, of all; the others' training accuracy is too low. Chance: for the "
        f"accuracy on moved rows; a measure within its own chance reads “{_WITHIN}”.",
        [*_HEADS, "Models", *_BASELINES.values(), "Chance"],
        3,
        rows,
    )


def _cmi(row: Mapping[str, Any]) -> str:
    """Write the cmi of a measure, or why it is unknown."""
    if row["beyond"]:
        return with_sd(row["cmi"], row["cmi_sd"], 1)
    if row["cmi"] is not None:
        return _WITHIN
    if row["n_pairs"] is None:
        return f"fewer than {FEWEST_MODELS} models"
    return "no gaps differ"


def _measures(found: pl.DataFrame, *, combined: bool) -> PageTable | None:
    """Return table 1 of PRC, or tables 4 to 9 for combinations.

    Measures within their null are not ranked: they come last, by name, without numbers that would
    rank them.
    """
    if found.is_empty():
        return None
    ranked = found.sort(
        *RESPONSE,
        pl.col("beyond").fill_null(value=False).not_(),
        pl.when("beyond").then(-pl.col("cmi")),
        "measure",
        maintain_order=True,
    )
    rows = [_row(row) for row in ranked.iter_rows(named=True)]
    what = "combinations of two scores" if combined else "scores of response curves"
    legend = (
        f"Conditional mutual information (cmi, in %) of {what} and the generalisation gap: how "
        "much the measure tells about which of two models has the larger gap, beyond their "
        "hparams; mean over corpora of one model per configuration ± their standard deviation. "
        "Chance: the 95 % quantile if the measure says nothing given those hparams for which that "
        f"is most likely (permuted among models that are equal in them); measures "
        f"within it read “{_WITHIN}” and are not ranked. Competition: by the rules of the "
        "competition, which also pair each model with itself and count ties as smaller. Given, "
        "pairs: of the first corpus; nothing is given if no hparams leave less, or none vary. "
        "r, ρ: correlation and rank correlation with the gap, regardless of hparams, of the "
        "measure oriented to predict a larger gap when larger: below 0 it predicts the opposite."
    )
    if combined:
        legend += (
            " Scores are first oriented to rise with the gap; prod(dbi, end_accuracy) is DBI · "
            "Mixup."
        )
    name = "response-combined" if combined else "response-measures"
    title = (
        "Combinations of scores" if combined else "What scores tell about the generalisation gap"
    )
    heads = [
        *(*_HEADS, "Measure", "cmi ± sd", "Chance", "Competition", "Given", "Models"),
        *("Pairs", "Tied, %", "r", "ρ"),
    ]
    return PageTable(name, title, legend, heads, 4, rows)


def _row(row: Mapping[str, Any]) -> Row:
    beyond = row["beyond"]
    return (
        str(row["dataset"]),
        str(row["classifier"]),
        named(row["transform"], row["layer"]),
        row["measure"],
        _cmi(row),
        number(row["null_q95"], 1),
        number(row["cmi_paper"], 1) if beyond else "–",
        (row["given"] or "–").replace("hparam_", "").replace("+", ", "),
        f"{row['n_models']:,}",
        "–" if row["n_pairs"] is None else f"{row['n_pairs']:,}",
        number(None if row["tied"] is None else 100 * row["tied"], 1),
        number(row["pearson"], 2),
        number(row["spearman"], 2),
    )
