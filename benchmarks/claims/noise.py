"""What noise does, drawn anew for each run, and what is said of the sources beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import polars as pl

from benchmarks.claims.record import OPTIONS, Claim, Tally
from manyseed.analysis.axes import AXES
from manyseed.analysis.questions.classifiers import answer_spread
from manyseed.analysis.questions.effects import effects
from manyseed.analysis.questions.hardpoints import answer, by_point
from manyseed.analysis.questions.points import SCHEMA, related
from manyseed.analysis.questions.question import Answer, Evidence
from manyseed.analysis.tables.rows import Tables
from tests.analysis.planted import planted

LEVELS = ("init", "batch", "init+batch")
KEY = ["cell", "repeat_index"]


def noisy(
    seed: int, source: float, noise: float, levels: Sequence[str] = LEVELS, runs: int = 8
) -> Tables:
    """Return tables of cells that differ in `vary`, with noise on labels unless it is 0.

    The standard deviations of batch, which varies where `vary` names it, and of noise, which is the
    same for runs of one number if the same rows train, are in units of 0.01.
    """
    rng = np.random.default_rng([seed, 5])
    tables = planted(1, ("m",), [*levels], repeats=3, runs=runs, sd=0.0, seed=seed)
    drawn, batch = rng.normal(size=(2, 3, runs))
    again = rng.normal(size=(len(levels), 3, runs))

    def value(cell: int, repeat: int, run: int) -> float:
        own = again[cell] if "train" in levels[cell] else drawn
        more = batch[repeat, run if "batch" in levels[cell] else 0]
        return 0.01 * float(noise * own[repeat, run] + source * more)

    moved = [value(*at) for at in tables.runs.select(*KEY, "run_index").rows()]
    scheme = pl.lit("flip:0.3" if noise else "none").alias("perturb_labels")

    def described(frame: pl.DataFrame) -> pl.DataFrame:
        which = frame["cell"].replace_strict(dict(enumerate(levels)), return_dtype=pl.String)
        plain = pl.lit("none").alias("perturb_continuous")
        return frame.with_columns(which.alias("vary"), scheme, plain)

    runs_of = tables.runs.with_columns(accuracy=pl.col("accuracy") + pl.Series(moved))
    frames = (runs_of, tables.pairs.clear(), tables.repeats, tables.cells)
    return Tables(
        *(described(one) if "perturb_continuous" in one.columns else one for one in frames)
    )


def points_of(
    seed: int, source: float, noise: float, levels: Sequence[str] = LEVELS
) -> pl.DataFrame:
    """Return a table of 60 points, each wrong in a share of the runs if batch, or noise, varies."""
    rng = np.random.default_rng([seed, 6])
    axes = dict.fromkeys(AXES, "none") | {"dataset": "d", "classifier": "m", "hparams": "default"}
    axes["perturb_labels"] = "flip:0.3" if noise else "none"
    rows = []
    for cell, vary in enumerate(levels):
        share = noise + (source if "batch" in vary else 0.0)
        for index in range(60):
            wrong = rng.binomial(20, share) / 20
            numbers = {"n_runs": 20, "wrong": wrong, "flips": 2 * wrong * (1 - wrong) * 20 / 19}
            named = {"truth": "a", "majority": "a", "margin": 1.0, "margin_std": 1.0}
            facts = {
                "cell": cell,
                "n_cells": 1,
                "vary": vary,
                "train_fraction": 1.0,
                "index": index,
            }
            rows.append({**axes, **facts, **numbers, **named, "runs_needed": 6})
    whole = pl.DataFrame(rows, schema_overrides=dict(SCHEMA))
    cells = whole.select("cell", *AXES).unique(maintain_order=True)
    return cells.join(related(whole, cells, AXES), on="cell")


def spread(tables: Tables) -> list[Answer]:
    """Return what is said of the spread."""
    found = effects(tables, by=("classifier",))
    return [*answer_spread(Evidence(tables, found, None, OPTIONS))]


def _spread(seed: int, source: float, noise: float) -> Tally:
    """Say whether a spread is given as that of batch, without noise."""
    said = [one.headline for one in spread(noisy(seed, source, noise))]
    return Tally(any(re.search(r"\bbatch 0", one) and "noise" not in one for one in said))


def _flips(seed: int, source: float, noise: float) -> Tally:
    points = points_of(seed, source, noise).lazy()
    found = answer(points, by_point(points))
    return Tally(any("batch alone" in one.headline for one in found))


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "Between seeds, sd of accuracy: batch 0.010 (without what is drawn anew)",
        "answers",
        r"^Between \{\}, sd of accuracy|; each with \{\}\.$|is part of each spread|"
        r"drawn anew for (each run|the rows in use)|resampling; subsample and noise with it",
        0.0,
        "sweeps",
        lambda seed: _spread(seed, 0.0, 1.0),
        lambda seed: _spread(seed, 1.0, 0.0),
        "all spread is of noise on labels, with sd 0.01; init and batch do nothing",
        "no noise; batch has sd 0.01",
    ),
    Claim(
        "Of the flips seen of m on d: batch alone 100%",
        "answers",
        r"What a source flips alone is not told|\{\} alone \{\}",
        0.0,
        "sweeps",
        lambda seed: _flips(seed, 0.0, 0.3),
        lambda seed: _flips(seed, 0.3, 0.0),
        "all flips are of noise on labels; init and batch do nothing",
        "no noise; batch flips 0.3 of the predictions",
    ),
)
