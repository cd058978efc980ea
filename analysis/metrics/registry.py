"""All metrics by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from manyseed.analysis.metrics import custom
from manyseed.analysis.metrics.accuracy import ACCURACY
from manyseed.analysis.metrics.agreement import AGREEMENT
from manyseed.analysis.metrics.alpha_hat import ALPHA_HAT
from manyseed.analysis.metrics.calibration import ECE, PROPER_SCORES
from manyseed.analysis.metrics.confusion import CONFUSION
from manyseed.analysis.metrics.discrimination import DISCRIMINATION
from manyseed.analysis.metrics.ensemble import ENSEMBLE
from manyseed.analysis.metrics.generalization import GENERALIZATION
from manyseed.analysis.metrics.holdout import HOLDOUT
from manyseed.analysis.metrics.metric import Metric
from manyseed.analysis.metrics.tempered import CALIBRATION, REJECTION
from manyseed.analysis.options import Options, is_own
from manyseed.analysis.refused import Refused

METRICS = {
    metric.name: metric
    for metric in (
        *(ACCURACY, CONFUSION, AGREEMENT, ALPHA_HAT, ECE, PROPER_SCORES, DISCRIMINATION),
        *(ENSEMBLE, REJECTION, CALIBRATION, HOLDOUT, GENERALIZATION),
    )
}


def select(names: Sequence[str]) -> tuple[Metric, ...]:
    """Return metrics' records in the order of `METRICS`, followed by users' own.

    Raises
    ------
    Refused
        For an unknown name.
    """
    own = []
    for name in names:
        if ":" in name:
            own.append(custom.load(name))
        elif name not in METRICS:
            raise Refused("metrics", name, "there is no such metric", METRICS)
    result = (*(metric for name, metric in METRICS.items() if name in names), *own)
    _check_columns(own)
    return result


def asked(options: Options) -> tuple[Metric, ...]:
    """Return the records of the metrics in `options`; α̂ needs what a user's own probe needs.

    Raises
    ------
    Refused
        For an unknown metric or probe.
    """
    metrics = select(options.metrics)
    if options.probe is None or not is_own(options.probe):
        return metrics
    needs = custom.probe_needs(options.probe)
    return tuple(replace(m, needs=needs) if m.name == ALPHA_HAT.name else m for m in metrics)


def _check_columns(own: Sequence[Metric]) -> None:
    """Refuse a user's column with another column's name."""
    taken = {column.name for metric in METRICS.values() for column in metric.runs}
    for metric in own:
        for column in metric.runs:
            if column.name in taken:
                reason = f"gives a column {column.name!r}, and there is one already"
                raise Refused("metrics", metric.name, f"{reason}: rename the function")
            taken.add(column.name)


def schema(names: Sequence[str]) -> tuple[Metric, ...]:
    """Return the records whose columns the tables have: all `METRICS` and users' own."""
    return (*METRICS.values(), *(metric for metric in select(names) if metric.name not in METRICS))
