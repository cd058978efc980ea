"""The metrics there are."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from analysis.accuracy import ACCURACY
from analysis.agreement import AGREEMENT
from analysis.alpha_hat import ALPHA_HAT
from analysis.metric import Metric
from analysis.options import Options
from analysis.predictions import Predictions

METRICS = {metric.name: metric for metric in (ACCURACY, AGREEMENT, ALPHA_HAT)}


def select(names: Sequence[str]) -> tuple[Metric, ...]:
    """Return the records of metrics, in the order of `METRICS`.

    Raises
    ------
    ValueError
        For a name that doesn't exist, with the nearest one that does.
    """
    for name in names:
        if name not in METRICS:
            near = difflib.get_close_matches(name, METRICS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"there is no metric {name!r} among {', '.join(METRICS)}{hint}")
    return tuple(metric for name, metric in METRICS.items() if name in names)


def unavailable(predictions: Predictions, options: Options) -> dict[str, str]:
    """Say which of the metrics asked for can't be computed from what was kept, and why.

    Returns
    -------
    dict of metric name to reason
        Their columns are null in the tables.
    """
    if predictions.has_margin:
        return {}
    return {
        metric.name: 'needs keep.scores = "margin" or "all"'
        for metric in select(options.metrics)
        if metric.needs == "margin"
    }


def computed(predictions: Predictions, options: Options) -> tuple[Metric, ...]:
    """Return the metrics asked for that what was kept allows."""
    missing = unavailable(predictions, options)
    return tuple(metric for metric in select(options.metrics) if metric.name not in missing)
