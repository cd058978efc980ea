"""The metrics there are."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from analysis import custom
from analysis.accuracy import ACCURACY
from analysis.agreement import AGREEMENT
from analysis.alpha_hat import ALPHA_HAT
from analysis.calibration import ECE, PROPER_SCORES
from analysis.ensemble import ENSEMBLE
from analysis.metric import Metric
from analysis.options import Options
from analysis.predictions import Predictions

METRICS = {
    metric.name: metric for metric in (ACCURACY, AGREEMENT, ALPHA_HAT, ECE, PROPER_SCORES, ENSEMBLE)
}


def select(names: Sequence[str]) -> tuple[Metric, ...]:
    """Return the records of metrics, in the order of `METRICS`, users' own after them.

    Raises
    ------
    ValueError
        For a name that doesn't exist, with the nearest one that does.
    """
    own = []
    for name in names:
        if ":" in name:
            own.append(custom.load(name))
        elif name not in METRICS:
            near = difflib.get_close_matches(name, METRICS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"there is no metric {name!r} among {', '.join(METRICS)}{hint}")
    result = (*(metric for name, metric in METRICS.items() if name in names), *own)
    _check_columns(own)
    return result


def _check_columns(own: Sequence[Metric]) -> None:
    """Refuse a user's column that bears another's name."""
    taken = {column.name for metric in METRICS.values() for column in metric.runs}
    for metric in own:
        for column in metric.runs:
            if column.name in taken:
                raise ValueError(
                    f"the metric {metric.name!r} gives a column {column.name!r}, and there is one "
                    "already: rename the function"
                )
            taken.add(column.name)


def schema(names: Sequence[str]) -> tuple[Metric, ...]:
    """Return the records whose columns the tables have: all of `METRICS`, and users' own."""
    return (*METRICS.values(), *(metric for metric in select(names) if metric.name not in METRICS))


def unavailable(predictions: Predictions, options: Options) -> dict[str, str]:
    """Say which of the metrics asked for can't be computed from what was kept, and why.

    Returns
    -------
    dict of metric name to reason
        Their columns are null in the tables.
    """
    reasons = {}
    for metric in select(options.metrics):
        try:
            predictions.source(metric.needs)
            metric.allowed(predictions.n_classes, options)
        except ValueError as reason:
            reasons[metric.name] = str(reason)
    return reasons


def computed(predictions: Predictions, options: Options) -> tuple[Metric, ...]:
    """Return the metrics asked for that what was kept allows."""
    missing = unavailable(predictions, options)
    return tuple(metric for metric in select(options.metrics) if metric.name not in missing)
