"""What the report says, made from the result tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from analysis import missing
from analysis.effects import effects
from analysis.figures.draw import PROBES, all_figures
from analysis.figures.style import Plot
from analysis.means import mean_of, std_of
from analysis.options import Options
from analysis.tables import Tables

Rows = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Counts:
    """Runs of the sweep by state; `identical` ones are among the done.

    `analysed` ones are what the tables hold, fewer than the done where these were not all there
    when the sweep was analysed; None where that is not known.
    """

    planned: int
    done: int
    failed: int
    missing: int
    identical: int
    analysed: int | None = None

    @property
    def shown(self) -> int:
        """Runs that the page's numbers are over."""
        return self.done if self.analysed is None else self.analysed


@dataclass(frozen=True, slots=True)
class Context:
    """Everything the page shows.

    Attributes
    ----------
    name : str
        The sweep's name.
    counts : Counts
    summary : rows
        One for each dataset and classifier (`summary`).
    effects, effects_by_dataset : rows
        Differences to no perturbation (`analysis.effects`), by classifier, and by dataset and
        classifier where there are several datasets.
    figures : sequence of Plot
    notes : sequence of str
        Conventions behind the numbers, a sentence or two each.
    provenance : mapping of str to str
        Versions and the like, given by the caller.
    """

    name: str
    counts: Counts
    summary: Rows
    effects: Rows
    effects_by_dataset: Rows
    figures: Sequence[Plot]
    notes: Sequence[str]
    provenance: Mapping[str, str]


def context(
    name: str,
    counts: Counts,
    tables: Tables,
    options: Options,
    provenance: Mapping[str, str],
    notes: Sequence[str] = (),
    curves: pl.DataFrame | None = None,
    ensembles: pl.DataFrame | None = None,
) -> Context:
    """Make the page's content.

    Parameters
    ----------
    name : str
        The sweep's name.
    counts : Counts
    tables : Tables
        With the columns of `analysis.effects.DESCRIPTORS` joined.
    options : Options
        As the tables were computed with.
    provenance : mapping of str to str
        What the results were made with, shown as it is.
    notes : sequence of str
        Said beside the conventions, e.g. what could not be computed and why.
    curves, ensembles : polars frames or None
        Learning curves (`analysis.figures.curves`), and ensembles by size
        (`analysis.figures.sizes`), where there are any.
    """
    several = tables.repeats["dataset"].n_unique() > 1
    return Context(
        name=name,
        counts=counts,
        summary=summary(tables.runs, tables.repeats),
        effects=_rows(effects(tables.repeats, by=("classifier",))),
        effects_by_dataset=_rows(effects(tables.repeats)) if several else (),
        figures=all_figures(tables, curves, ensembles),
        notes=(
            *notes,
            *missing.notes(tables.runs, tables.repeats),
            *conventions(tables, options),
        ),
        provenance=provenance,
    )


def summary(runs: pl.DataFrame, repeats: pl.DataFrame) -> Rows:
    """Summarise each dataset and classifier over all its cells.

    Accuracy is over runs, copies of identical ones counted once; range, error consistency, churn
    and α̂ are means over repeats.
    """
    key = ("dataset", "classifier")
    of_runs = (
        runs.filter(~pl.col("identical"))
        .sort("cell", "repeat_index", "run_index")
        .group_by(key)
        .agg(
            mean_of(pl.col("accuracy")).alias("accuracy_mean"),
            std_of(pl.col("accuracy")).alias("accuracy_std"),
        )
    )
    of_repeats = (
        repeats.sort("cell", "repeat_index")
        .group_by(key)
        .agg(
            pl.col("n_runs").sum(),
            pl.len().alias("n_repeats"),
            pl.col("identical").sum().alias("n_identical"),
            pl.col("n_test", "n_side", "delta").first(),
            mean_of(pl.col("accuracy_range", "ec_local_mean", "ec_global_mean", "churn_mean")),
            mean_of(pl.col("alpha_hat_mean")),
        )
    )
    return _rows(of_repeats.join(of_runs, on=key, how="left").sort(key))


def conventions(tables: Tables, options: Options) -> list[str]:
    """Say by which conventions the numbers were computed."""
    empty = (
        "is left undefined"
        if math.isnan(options.empty_union)
        else f"counts as {options.empty_union:.0f}"
    )
    notes = [
        "A repeat is the runs of one cell (one combination of dataset, classifier, schemes and "
        "training fraction) that share a test set.",
        "Local error consistency is the number of test points that both runs of a pair get wrong, "
        "divided by the number that at least one gets wrong; global error consistency divides by "
        "all test points, so it is no disagreement. Disagreement is churn: the share of test "
        "points to which the two runs give different labels. A pair without any error "
        f"{empty} locally. The quantity that the vision literature calls error consistency "
        "(Cohen's kappa of correctness) is the column ec_kappa of the tables.",
    ]
    probes = tables.runs["probe"].drop_nulls().unique().sort().to_list()
    if probes:
        names = " and ".join(f"the {PROBES[probe]}" for probe in probes)
        apart = " Values of α̂ for the two are not comparable." if len(probes) > 1 else ""
        notes.append(
            f"α̂ compares the distribution of {names} on the test set with that of the other runs "
            f"of the repeat: the mean over {options.resamples} random splits of the test points in "
            "two halves of the smallest trimming level at which the robust Kolmogorov–Smirnov test "
            f"accepts (ε = {options.epsilon:g}). δ is the resolution: contamination below it isn't "
            f"seen, and on a small test set α̂ is 0 nearly everywhere.{apart}"
        )
    identical = int(tables.repeats["identical"].sum())
    if identical:
        notes.append(
            f"† marks what holds repeats of identical runs ({identical} in all): nothing of their "
            "training varies, so one run was trained and the others are copies. Their error "
            "consistency is 1 or undefined and their range 0; figures leave them out."
        )
    return notes


def _rows(frame: pl.DataFrame) -> Rows:
    return tuple(frame.iter_rows(named=True))
