"""The conventions of an analysis: those asked for, else the sweep file's, else defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from manyseed.analysis.metrics.custom import probe_needs
from manyseed.analysis.metrics.registry import select
from manyseed.analysis.options import DEFAULT_METRICS, Options, is_own
from manyseed.analysis.refused import NoModule, NotKept, Refused
from manyseed.jobs.ensembling.methods import NONE, SAME_AS_NONE, SINGLE
from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.errors import flag, refused, toml_value
from manyseed.orchestrator.grids.loading import read_sweep_file
from manyseed.orchestrator.grids.sweepfile import Grid
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.layout import Groups, require_snapshots
from manyseed.orchestrator.results import own_metrics
from manyseed.orchestrator.store.groups import find_group


def conventions(
    paths: SweepPaths, *, report: Callable[[str], None] = warn, **asked: Any
) -> Options:
    """Return the options of an analysis.

    Parameters
    ----------
    paths : SweepPaths
    report : callable
        Called with a message if metrics or the probe of the sweep file are left out; by default it
        warns.
    **asked
        Attributes of `Options`; None for those not asked for. `metrics` replaces all metrics,
        ``own`` (names ``"module:function"``) adds to them. The sweep file's metrics are left out
        unless ``own`` names them, too, or the user's own file allows them.

    Raises
    ------
    UserError
        For an invalid value, and for a metric or a snapshot that doesn't exist.
    """
    sweep = read_sweep_file(paths.sweep_file)
    filed = sweep.analysis
    values = {k: v for k, v in filed.model_dump(exclude={"metrics"}).items() if v is not None}
    values |= {k: v for k, v in asked.items() if v is not None and k not in ("metrics", "own")}
    metrics, own = asked.get("metrics"), tuple(asked.get("own") or ())
    if not metrics and any(map(_has_method, sweep.grid)):
        values.setdefault("calibration", True)
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
    try:
        options = Options(metrics=named, **values)
        specs = [s for s in Groups.read(paths).specs if find_group(paths.store, s) is not None]
        require_snapshots(options, specs)
    except Refused as error:
        if asked.get(error.option) is not None:
            raise refused(error, key=flag(error.option)) from None
        raise refused(error, file=paths.sweep_file, key=f"analysis.{error.option}") from None
    return options


_WHERE = "your own modules are looked for in the current folder and on PYTHONPATH"


def _has_method(grid: Grid) -> bool:
    """Return whether some runs of a grid yield several members."""
    single = {*SAME_AS_NONE} if {*grid.test_augment} != {NONE} else {*SAME_AS_NONE, SINGLE}
    return not single >= {*grid.ensembling}


def _require_probe(paths: SweepPaths, name: str, *, filed: bool) -> None:
    """Raise a UserError if a user's own probe can't be found."""
    try:
        probe_needs(name)
    except Refused as error:
        raise refused(
            error,
            file=paths.sweep_file if filed else None,
            key="analysis.probe" if filed else flag("probe"),
            remedy=_WHERE if isinstance(error, NoModule) else None,
        ) from None


def why_not(refusal: Refused, *, imported: bool = False) -> str:
    """Return why a metric cannot be computed, to follow the word "it"."""
    if isinstance(refusal, NotKept) and imported:
        every = "of all classes " * (refusal.allowed == ("all",))
        return f"needs scores {every}to be imported"
    if isinstance(refusal, NotKept):
        return f"needs keep.scores = {' or '.join(map(toml_value, refusal.allowed))}"
    return refusal.reason
