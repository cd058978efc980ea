"""All metrics by name: the records that modules of this package hold."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import replace

from manyseed.analysis import Refused, metrics
from manyseed.analysis.metrics import custom
from manyseed.analysis.metrics.alpha_hat import ALPHA_HAT
from manyseed.analysis.metrics.metric import Metric
from manyseed.analysis.options import Options, is_own

_ORDER = (
    *("accuracy", "confusion", "agreement", "alpha_hat", "ece", "proper_scores"),
    *("discrimination", "ensemble", "rejection", "calibration", "holdout", "generalization"),
)
"""The metrics whose columns come first; others follow by name."""


def _found() -> dict[str, Metric]:
    """Return the records that the modules of this package hold."""
    found = dict[str, Metric]()
    for module in pkgutil.iter_modules(metrics.__path__, f"{metrics.__name__}."):
        held = vars(importlib.import_module(module.name)).values()
        found |= {one.name: one for one in held if isinstance(one, Metric)}
    return {name: found[name] for name in (*_ORDER, *sorted(found.keys() - {*_ORDER}))}


METRICS = _found()


def select(names: Sequence[str]) -> tuple[Metric, ...]:
    """Return metrics' records in the order of `METRICS`, followed by users' own.

    Parameters
    ----------
    names : sequence of str
        Of `METRICS`, or users' own as ``"module:function"``, which are imported.

    Raises
    ------
    Refused
        For an unknown name, or an own metric whose column has another column's name.
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
    """Return the records of the metrics in `options`; α̂ needs what a user's own probe needs."""
    chosen = select(options.metrics)
    if options.probe is None or not is_own(options.probe):
        return chosen
    needs = custom.probe_needs(options.probe)
    return tuple(replace(m, needs=needs) if m.name == ALPHA_HAT.name else m for m in chosen)


def _check_columns(own: Sequence[Metric]) -> None:
    """Refuse a user's column with another column's name."""
    held = [one for metric in METRICS.values() for one in (*metric.runs, *metric.pairs)]
    taken = {one.name for metric in METRICS.values() for one in (*held, *metric.repeat)}
    taken |= {f"{one.name}_{summary}" for one in held for summary in one.summaries}
    for metric in own:
        for column in (*metric.runs, *metric.pairs):
            if column.name in taken:
                reason = f"gives a column {column.name!r}, and there is one already"
                raise Refused("metrics", metric.name, f"{reason}: rename the function")
            taken.add(column.name)


def schema(names: Sequence[str]) -> tuple[Metric, ...]:
    """Return the records whose columns the tables have: all `METRICS` and users' own."""
    return (*METRICS.values(), *(metric for metric in select(names) if metric.name not in METRICS))
