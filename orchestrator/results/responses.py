"""Response curves of stored models: their scores, the curves of repeats, and what scores tell."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.response.corpora import information
from manyseed.analysis.response.counts import CURVE_KEY, Answers, repeat_curves, scores
from manyseed.jobs.response.asked import DBI, DBI_LAYERS
from manyseed.orchestrator.plans.anchors import PREFIX, with_anchors
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.results.published import Published
from manyseed.orchestrator.results.tables import CMI, RESPONSE_CURVES, RESPONSES
from manyseed.orchestrator.store.layout.optional import RESPONSE_ARRAYS
from manyseed.orchestrator.store.reading.reader import read_array

_FIRST_BLOCK = DBI_LAYERS.index(1)
_RUN = ["cell", "repeat_index", "run_index"]


def responses(groups: Sequence[Published], plan: Plan) -> dict[str, pl.DataFrame]:
    """Return the tables of response curves; none where no group has any.

    Copies of a run are left out: they answer as it does.
    """
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
    hparams = [name for name in cells.columns if name.startswith(PREFIX)]
    curves = cells.join(pl.concat(of_repeats), on="cell", how="inner").sort(CURVE_KEY)
    return {RESPONSES: known, RESPONSE_CURVES: curves, CMI: information(known, hparams)}
