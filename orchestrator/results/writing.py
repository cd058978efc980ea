"""Result tables → Parquet files that say what their columns hold."""

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
from manyseed.orchestrator.plans.anchors import PREFIX, meaning
from manyseed.orchestrator.results.conventions import to_json
from manyseed.orchestrator.results.tables import CMI, CURVES, RESPONSE_CURVES, RESPONSES
from manyseed.orchestrator.store.layout.arrays import CURVES as CURVE_MEANINGS

_FURTHER: dict[str, Meaning] = {
    "cell_id": ("", "Identity of the cell, the same in every sweep that has it."),
    **dict.fromkeys(AXES, ("", "What the cell is, in the sweep file's words.")),
    "fit_seconds": ("s", "Time of the fit, null where it is not known."),
    "recipe": ("", "How the run was made: number of the file in plan/recipes."),
    "mixed_recipes": ("", "Whether the runs were made in several ways."),
    "digest": ("", "What the row was computed from."),
}
"""Columns that are joined to what `analysis` computes."""

OF_CURVES: dict[str, Meaning] = {
    "trained_epoch": ("", "Number of the epoch, from 1."),
    "n_runs": ("runs", "Runs, copies left out."),
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
    "transform": ("", "What is done to training rows."),
    "layer": ("", "Whose output it is done to: 0 is the input."),
}
_OF_ROWS = "share of rows"
OF_RESPONSES: dict[str, dict[str, Meaning]] = {
    RESPONSES: _ASKED
    | {
        "n_pairs": ("rows or pairs", "What a point of the curve is over, all draws together."),
        "gi": ("1", "Gi score: 0 for a model that is never wrong."),
        "gi_folded": ("1", "The same of the mean of both signs; null of one sign."),
        "pal": ("1", "Pal score as the text has it: 84 for such a model; null of both signs."),
        "pal_printed": ("1", "Pal score as algorithm 4 has it: 6; null of both signs."),
        "mean_accuracy": (_OF_ROWS, "Mean of the curve over its magnitudes."),
        "end_accuracy": (_OF_ROWS, "Accuracy at the last magnitude."),
        "gi_draws_sd": ("1", "Standard deviation of gi over draws (n - 1); null of one."),
        "train_accuracy": (_OF_ROWS, "Accuracy on all rows that the run was trained on."),
        "shifted_train_accuracy": (
            _OF_ROWS,
            "Accuracy on the sample, each row moved by a random magnitude; null of pairs.",
        ),
        "test_accuracy": (_OF_ROWS, "Accuracy on the test set."),
        "shifted_test_accuracy": (_OF_ROWS, "The same, each row moved by a random magnitude."),
        "gap": (
            _OF_ROWS,
            "train_accuracy less test_accuracy, or less shifted_test_accuracy where there is one.",
        ),
        "excluded": (
            "",
            "Left out of cmi: no gap, or of images a train_accuracy below least_train_accuracy.",
        ),
        "dbi": ("1", "Davies–Bouldin index of the first block's outputs; null where not taken."),
    },
    RESPONSE_CURVES: _ASKED
    | {
        "magnitude": ("degrees of rotate, else share", "How far rows are moved."),
        "n_runs": ("runs", "Runs that answered, copies left out."),
        "accuracy": (_OF_ROWS, "Mean over runs."),
        "accuracy_std": (_OF_ROWS, "Standard deviation over runs (n - 1)."),
        "accuracy_min": (_OF_ROWS, "The least of the runs."),
        "accuracy_max": (_OF_ROWS, "The largest of the runs."),
    },
    CMI: _ASKED
    | {
        "measure": ("", "Which score, or combination of two, is held against the gap."),
        "cmi": ("%", "Conditional mutual information, mean over corpora."),
        "cmi_sd": ("%", "Its standard deviation over corpora (n - 1): how seeds change it."),
        "cmi_paper": ("%", "By the rules of the competition's program."),
        "given": ("", "The hparams that attain the minimum, of the first corpus."),
        "n_corpora": ("corpora", "Repeats and run indices: a model of each cell is a corpus."),
        "n_models": ("models", "In all corpora together."),
        "n_excluded": ("models", "Left out: `excluded` in responses."),
        "n_bins": ("bins", "Of the set given, in the first corpus."),
        "n_pairs": ("pairs", "Counted in them."),
        "tied": ("share of pairs", "Pairs of equal gaps or measures."),
        "null_mean": ("%", "Mean of cmi when the measure is dealt out at random."),
        "null_q95": ("%", "Its 95 % quantile: a cmi below it says nothing."),
        "pearson": (
            "1",
            "Correlation of measure, turned so that it should rise with the gap, and gap.",
        ),
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
    """Write a result table; its schema's metadata give units, meanings and conventions.

    It is written as it is computed, so that the longest need not be in memory once more.

    They are JSON under two keys: ``columns`` (unit and meaning by name) and ``conventions`` (the
    options of the analysis).

    Parameters
    ----------
    paths : SweepPaths
    table : str
    frame : polars.LazyFrame
    options : Options
        What it was computed with.
    conditions : mapping or None
        And besides: they stand beside the options.
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
    # Stronger compression takes twice the time and saves a twelfth.
    write_parquet(paths.table(table), frame, metadata, compression_level=1)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
