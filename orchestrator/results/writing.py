"""Result tables → Parquet files that describe their columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.metrics.registry import schema
from manyseed.analysis.options import Options
from manyseed.analysis.tables.columns import Meaning, describe
from manyseed.orchestrator.disk.parquet import write_parquet
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import PREFIX, meaning
from manyseed.orchestrator.results.record import to_json
from manyseed.orchestrator.results.tables import CMI, CURVES, RESPONSE_CURVES, RESPONSES
from manyseed.orchestrator.store.layout.arrays import CURVES as CURVE_MEANINGS

_FURTHER: dict[str, Meaning] = {
    "cell_id": ("", "Identity of the cell, the same in every sweep that has it."),
    **dict.fromkeys(AXES, ("", "What the cell is, in the sweep file's words.")),
    "fit_seconds": ("s", "Time of the fit; null if unknown."),
    "recipe": ("", "How the run was made: number of the file in plan/recipes."),
    "mixed_recipes": ("", "Whether the runs were made in several ways."),
    "digest": ("", "Digest of what the row was computed from."),
}
"""Columns that are joined to the tables that `analysis` computes."""

OF_CURVES: dict[str, Meaning] = {
    "trained_epoch": ("", "Number of the epoch, from 1."),
    "n_runs": ("runs", "Runs, without copies."),
    **{
        name: (
            "nats" if name.endswith("loss") else "share of points",
            f"Mean over runs of the {meaning}.",
        )
        for name, meaning in CURVE_MEANINGS.items()
    },
}
"""Columns of the learning curves."""


_ASKED: dict[str, Meaning] = {
    "transform": ("", "How training rows are transformed."),
    "layer": ("", "The layer whose output is transformed: 0 is the input."),
}
_OF_ROWS = "share of rows"
OF_RESPONSES: dict[str, dict[str, Meaning]] = {
    RESPONSES: _ASKED
    | {
        "n_pairs": ("rows or pairs", "Number behind each point of the curve, all draws together."),
        "gi": ("1", "Gi score: 0 for a model that is never wrong."),
        "gi_folded": ("1", "Gi score of the mean over both signs; null if there is one sign."),
        "pal": ("1", "Pal score as in the text: 84 if never wrong; null if both signs occur."),
        "pal_printed": ("1", "Pal score as in algorithm 4: 6 if never wrong; null likewise."),
        "mean_accuracy": (_OF_ROWS, "Mean of the curve over its magnitudes."),
        "end_accuracy": (_OF_ROWS, "Accuracy at the last magnitude."),
        "gi_draws_sd": ("1", "Standard deviation of gi over draws (n - 1); null for one draw."),
        "train_accuracy": (_OF_ROWS, "Accuracy on all rows that the run was trained on."),
        "shifted_train_accuracy": (
            _OF_ROWS,
            "Accuracy on the sample, each row moved by a random magnitude; null for pairs.",
        ),
        "test_accuracy": (_OF_ROWS, "Accuracy on the test set."),
        "shifted_test_accuracy": (_OF_ROWS, "The same, each row moved by a random magnitude."),
        "gap": (
            _OF_ROWS,
            "train_accuracy minus shifted_test_accuracy if there is one, else minus test_accuracy.",
        ),
        "excluded": (
            "",
            "Left out of cmi: no gap, or (images) train_accuracy below least_train_accuracy.",
        ),
        "dbi": ("1", "Davies–Bouldin index of the first block's outputs; null if not measured."),
    },
    RESPONSE_CURVES: _ASKED
    | {
        "magnitude": ("degrees of rotate, else share", "How far rows are moved."),
        "n_runs": ("runs", "Runs that answered, without copies."),
        "accuracy": (_OF_ROWS, "Mean over runs."),
        "accuracy_std": (_OF_ROWS, "Standard deviation over runs (n - 1)."),
        "accuracy_min": (_OF_ROWS, "Minimum over runs."),
        "accuracy_max": (_OF_ROWS, "Maximum over runs."),
    },
    CMI: _ASKED
    | {
        "measure": ("", "The score, or combination of two, that is compared with the gap."),
        "cmi": ("%", "Conditional mutual information, mean over corpora."),
        "cmi_sd": ("%", "Its standard deviation over corpora (n - 1): how seeds change it."),
        "cmi_paper": ("%", "By the rules of the competition's program."),
        "given": ("", "The hparams that attain the minimum in the first corpus."),
        "n_corpora": ("corpora", "Repeats and run indices: a model of each cell is a corpus."),
        "n_models": ("models", "In all corpora together."),
        "n_excluded": ("models", "Left out: `excluded` in responses."),
        "n_bins": ("bins", "Bins of the hparams `given`, in the first corpus."),
        "n_pairs": ("pairs", "Pairs counted in these bins."),
        "tied": ("share of pairs", "Pairs with equal gaps or measures."),
        "null_mean": (
            "%",
            "What cmi is on average if the measure says nothing given the set of hparams for which "
            "that is most likely: permuted within the levels of these.",
        ),
        "null_q95": ("%", "95 % quantile of the same: a cmi below it says nothing."),
        "p": (
            "probability",
            "Of so much information by chance, the largest over the sets of hparams.",
        ),
        "pearson": ("1", "Correlation of gap and measure, signed so that it should be positive."),
        "spearman": ("1", "Rank correlation of the same."),
    },
}
"""Columns of the tables of response curves."""


def write_result(
    paths: SweepPaths,
    table: str,
    frame: pl.LazyFrame,
    options: Options,
    conditions: Mapping[str, object] | None = None,
) -> None:
    """Write a result table, with units, meanings and conventions in the schema's metadata.

    The metadata are JSON under two keys: ``columns`` (unit and meaning by name) and ``conventions``
    (the options of the analysis). Rows are written as they are computed, to save memory.

    Parameters
    ----------
    paths : SweepPaths
    table : str
    frame : polars.LazyFrame
    options : Options
        Options of the analysis.
    conditions : mapping or None
        Further conventions, stored beside the options.
    """
    further = _FURTHER | (OF_CURVES if table == CURVES else {})
    if table in OF_RESPONSES:
        further = further | OF_RESPONSES[table]
    names = frame.collect_schema().names()
    further = further | {name: meaning(name) for name in names if name.startswith(PREFIX)}
    described = describe(table, names, schema(options.metrics), further)
    columns = {
        name: {"unit": unit, "meaning": meaning} for name, (unit, meaning) in described.items()
    }
    metadata = {
        "columns": _json(columns),
        "conventions": _json({**to_json(options), **(conditions or {})}),
    }
    # stronger compression takes twice the time and saves a twelfth
    write_parquet(paths.table(table), frame, metadata, compression_level=1)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
