"""What test sets resolve: a spread below one test point is not told from none."""

from __future__ import annotations

import math
from dataclasses import dataclass

import polars as pl

from manyseed.analysis.counts import fixed
from manyseed.analysis.options import CONFIDENCE
from manyseed.analysis.questions.intervals import may_differ, total
from manyseed.analysis.questions.quantiles import chi2_quantile

ROUNDING = 1e-24  # equal values below 1 may seem to have this variance


def too_alike(variance: float, resolution: float) -> bool:
    """Return whether values vary too little for their variance to say how much runs vary."""
    return variance <= ROUNDING or variance < resolution**2


def largest_sd(
    variance: float, freedom: float, resolution: float, confidence: float = CONFIDENCE
) -> float:
    """Return an upper limit of the standard deviation of runs that are `too_alike`.

    Of normal values χ²'s limit, as if they varied by `resolution`, which is more than they do.
    `freedom`: number of runs less the number of test sets.
    """
    most = max(variance, resolution**2)
    return math.sqrt(freedom * most / float(chi2_quantile(freedom, 1 - confidence)))


@dataclass(frozen=True, slots=True)
class AlikeRuns:
    """A classifier whose runs differ too little for a spread: `sd` is below one test point, `step`.

    `freedom`: number of runs less the number of repeats.
    """

    classifier: str
    runs: int
    freedom: float
    sd: float
    step: float

    @property
    def limit(self) -> str:
        """The sd that was seen, if any, and the most that it may be, if that is known."""
        if not self.step:
            return f"{self.classifier} not told"
        if self.sd <= math.sqrt(ROUNDING):
            return f"{self.classifier} at most {self._most:.2g}"
        return f"{self.classifier} {fixed(self.sd)} (at most {self._most:.2g})"

    @property
    def _most(self) -> float:
        return largest_sd(self.sd**2, self.freedom, self.step)

    @property
    def words(self) -> str:
        """What can be told of it."""
        sure = f"{100 * CONFIDENCE:g} %, for normal values"
        most = f"; the sd of further runs is at most {self._most:.2g} ({sure})" if self.step else ""
        if self.sd <= math.sqrt(ROUNDING):
            return (
                f"The accuracies of all {self.runs:,} runs of {self.classifier} are equal on their "
                f"test sets, while {may_differ(self.freedom, CONFIDENCE)}{most}."
            )
        return (
            f"The standard deviation of {self.runs:,} runs of {self.classifier}, {self.sd:.2g}, is "
            f"below one test point ({self.step:.2g}), the least that test sets resolve{most}."
        )


def resolved(by_repeat: pl.DataFrame, repeats: pl.DataFrame) -> pl.DataFrame:
    """Return for each classifier whether its runs are `too_alike` in all cells, and `step`.

    That is one test point, the root mean square over cells by degrees of freedom, as standard
    deviations are pooled.
    """
    step = (1 / pl.col("n_test").min()).fill_null(0.0)
    of_cells = (
        by_repeat.group_by("classifier", "cell", maintain_order=True)
        .agg(total(pl.col("squares")).alias("squares"), total(pl.col("free")).alias("free"))
        .join(repeats.group_by("cell").agg(step=step), on="cell", maintain_order="left")
    )
    values = of_cells.select(pl.col("squares") / pl.col("free"), "step").rows()
    mean = (pl.col("step") ** 2 * pl.col("free")).sum() / pl.col("free").sum()
    return (
        of_cells.with_columns(alike=pl.Series([too_alike(*row) for row in values]))
        .group_by("classifier", maintain_order=True)
        .agg(pl.col("alike").all(), step=mean.sqrt())
    )
