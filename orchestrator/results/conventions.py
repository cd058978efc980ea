"""By which conventions a sweep is analysed: what is asked for, the sweep file's, defaults."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from manyseed.analysis.metrics.custom import probe_needs
from manyseed.analysis.metrics.registry import select
from manyseed.analysis.options import DEFAULT_METRICS, POSITIONS, Options, is_own
from manyseed.analysis.refused import NoModule, NotKept, Refused
from manyseed.orchestrator.errors import UserError, refused, toml_value
from manyseed.orchestrator.grids.sweepfile import read_sweep_file
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.groups import Groups
from manyseed.orchestrator.results import own_metrics
from manyseed.orchestrator.results.flags import flag
from manyseed.orchestrator.store.layout.groups import find_group


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=2)


def conventions(
    paths: SweepPaths, *, report: Callable[[str], None] = _warn, **asked: Any
) -> Options:
    """Return the options of an analysis.

    Parameters
    ----------
    paths : SweepPaths
    report : callable
        Called with which metrics of the sweep file, or that its probe, are left out, if any are; by
        default it warns.
    **asked
        Attributes of `Options`; None where nothing is asked for. `metrics` replaces all metrics,
        ``own`` (names ``"module:function"``) adds to them. Metrics of the sweep file are left out
        unless ``own`` names them, too, or the user's own file allows them.

    Raises
    ------
    UserError
        For a value that has no meaning, a metric or a snapshot that doesn't exist.
    """
    filed = read_sweep_file(paths.sweep_file).analysis
    values = {k: v for k, v in filed.model_dump(exclude={"metrics"}).items() if v is not None}
    values |= {k: v for k, v in asked.items() if v is not None and k not in ("metrics", "own")}
    metrics, own = asked.get("metrics"), tuple(asked.get("own") or ())
    is_filed = asked.get("probe") is None
    if is_filed and is_own(probe := values.get("probe")) and own_metrics.choose([probe], ())[1]:
        del values["probe"]
        report(own_metrics.probe_left_out(probe))
    if is_own(probe := values.get("probe")):
        _require_probe(paths, probe, filed=is_filed)
    if not metrics:
        computed, left = own_metrics.choose(filed.metrics, own)
        metrics = (*DEFAULT_METRICS, *computed)
        if left:
            report(own_metrics.left_out(left))
    named = tuple(dict.fromkeys((*metrics, *own)))
    try:
        select(named)
    except Refused as error:
        is_filed = error.value in filed.metrics
        raise refused(
            error,
            file=paths.sweep_file if is_filed else None,
            key="analysis.metrics" if is_filed else "metrics",
            remedy=_WHERE if isinstance(error, NoModule) else None,
        ) from None
    for name in POSITIONS:
        if (position := asked.get(name)) is not None:
            _refuse_snapshot(paths, flag(name), position)
    try:
        return Options(metrics=named, **values)
    except Refused as error:
        if asked.get(error.option) is not None:
            raise refused(error, key=flag(error.option)) from None
        key = f"analysis.{error.option}"
        raise refused(error, file=paths.sweep_file, key=key) from None


_WHERE = "a module of your own is found beside where you are, or on PYTHONPATH"


def _require_probe(paths: SweepPaths, name: str, *, filed: bool) -> None:
    """Refuse a user's own probe that can't be found."""
    try:
        probe_needs(name)
    except Refused as error:
        raise refused(
            error,
            file=paths.sweep_file if filed else None,
            key="analysis.probe" if filed else flag("probe"),
            remedy=_WHERE if isinstance(error, NoModule) else None,
        ) from None


def why_not(refusal: Refused) -> str:
    """Return why a metric cannot be computed, with "it" before it."""
    if isinstance(refusal, NotKept):
        return f"needs keep.scores = {' or '.join(map(toml_value, refusal.allowed))}"
    return refusal.reason


def _refuse_snapshot(paths: SweepPaths, option: str, position: int) -> None:
    """Refuse a snapshot that some of what is stored lacks."""
    for spec in Groups.read(paths).specs:
        n = len(spec.epochs)
        if not -n <= position < n and find_group(paths.store, spec) is not None:
            there = (
                f"{i} (epoch {epoch})" if epoch else str(i) for i, epoch in enumerate(spec.epochs)
            )
            raise UserError(
                f"{spec.dataset} × {spec.classifier} has no such snapshot; there are: "
                f"{', '.join(there)}",
                key=option,
                value=position,
                remedy=f"give 0 to {n - 1} from the first, or -1 to {-n} from the last"
                if n > 1
                else "give 0, or leave the option out",
            )


def without_own(options: Options) -> Options:
    """Return the same conventions without functions of users' own, so that none is run."""
    metrics = tuple(name for name in options.metrics if not is_own(name))
    return replace(options, metrics=metrics, probe=None if is_own(options.probe) else options.probe)


def to_json(options: Options) -> Mapping[str, object]:
    """Return options as JSON values, in which there are neither tuples nor NaN."""
    values = {key: None if value != value else value for key, value in asdict(options).items()}
    return values | {"metrics": list(options.metrics)}


def from_json(values: Mapping[str, Any]) -> Options:
    """Return the options of `to_json`."""
    union = math.nan if values["empty_union"] is None else values["empty_union"]
    return Options(**{**values, "metrics": tuple(values["metrics"]), "empty_union": union})
