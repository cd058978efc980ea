"""Response curves of stored models: their scores, the curves of repeats, and what scores tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.response.corpora import LEAST_TRAIN_ACCURACY, excluded, information
from manyseed.analysis.response.counts import CURVE_KEY, Answers, repeat_curves, scores
from manyseed.jobs.response.asked import DBI, DBI_LAYERS
from manyseed.orchestrator.grids.loading import read_sweep_file
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.anchors import PREFIX, with_anchors
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.results.published import Published
from manyseed.orchestrator.results.tables import CMI, RESPONSE_CURVES, RESPONSES
from manyseed.orchestrator.store.layout.optional import RESPONSE_ARRAYS
from manyseed.orchestrator.store.reading.reader import read_array

_FIRST_BLOCK = DBI_LAYERS.index(1)
_RUN = ["cell", "repeat_index", "run_index"]


@dataclass(frozen=True, slots=True)
class Conditions:
    """What conditional mutual information is taken of, as `[response]` of a sweep file says.

    Attributes
    ----------
    given : tuple of str or None
        Hparams that it conditions on; None for all that grids vary.
    least_train_accuracy : float
        Models below it are left out of transforms of images.
    """

    given: tuple[str, ...] | None = None
    least_train_accuracy: float = LEAST_TRAIN_ACCURACY

    @classmethod
    def read(cls, paths: SweepPaths) -> Conditions:
        """Read those of a sweep."""
        asked = read_sweep_file(paths.sweep_file).response
        if asked is None:
            return cls()
        least = asked.least_train_accuracy
        return cls(
            None if asked.given is None else tuple(asked.given),
            LEAST_TRAIN_ACCURACY if least is None else float(least),
        )


def responses(
    groups: Sequence[Published], plan: Plan, conditions: Conditions | None = None
) -> dict[str, pl.DataFrame]:
    """Return the tables of response curves; none where no group has any.

    Copies of a run are left out: they answer as it does.
    """
    conditions = conditions or Conditions()
    of_runs, of_repeats = [], []
    for group in groups:
        asked = group.spec.asked
        if asked is None:
            continue
        runs = group.predictions.runs.filter(~pl.col("identical"))
        rows = runs["row"].to_numpy()
        right, total, shifted_right, shifted_total = (
            read_array(group.group, name)[rows] for name in RESPONSE_ARRAYS
        )
        answers = Answers(
            right,
            total,
            shifted_right,
            shifted_total,
            transforms=[name for name, _ in asked.responses],
            layers=[layer for _, layer in asked.responses],
            magnitudes=read_array(group.group, "response_magnitude"),
            dbi=read_array(group.group, DBI)[rows, _FIRST_BLOCK] if asked.dbi else None,
        )
        of_runs.append(scores(answers, runs.select(_RUN)))
        of_repeats.append(repeat_curves(answers, runs))
    if not of_runs:
        return {}
    cells = with_anchors(plan.cells).select("cell", "cell_id", *AXES, f"^{PREFIX}.*$")
    known = cells.join(pl.concat(of_runs), on="cell", how="inner", maintain_order="left")
    known = known.sort(*_RUN, "transform", "layer", maintain_order=True)
    known = known.with_columns(excluded=excluded(conditions.least_train_accuracy))
    given = conditions.given
    hparams = [
        name
        for name in cells.columns
        if name.startswith(PREFIX) and (given is None or name.removeprefix(PREFIX) in given)
    ]
    curves = cells.join(pl.concat(of_repeats), on="cell", how="inner").sort(CURVE_KEY)
    told = information(known, hparams, least_train_accuracy=conditions.least_train_accuracy)
    return {RESPONSES: known, RESPONSE_CURVES: curves, CMI: told}
