"""The conventions of an analysis: those asked for, else the sweep file's, else defaults."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from manyseed.analysis import NoModule, NotKept, Refused
from manyseed.analysis.metrics.custom import probe_needs
from manyseed.analysis.metrics.registry import select
from manyseed.analysis.options import DEFAULT_METRICS, Options, is_own
from manyseed.jobs.ensembling.methods import NONE, SAME_AS_NONE, SINGLE
from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.errors import UserError, flag, refused, toml_value
from manyseed.orchestrator.grids.loading import read_sweep_file
from manyseed.orchestrator.grids.sweepfile import Grid
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.layout import Groups, require_snapshots
from manyseed.orchestrator.store.groups import find_group
from manyseed.slurm.profile import user_folder


class _Allowances(BaseModel):
    model_config = ConfigDict(extra="forbid")

    allowed: list[str] = []


def allowances() -> Path:
    """Return the user's file that lists the metrics any sweep file may run."""
    return user_folder().parent / "metrics.toml"


def choose(filed: Sequence[str], named: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split a sweep file's metrics into those that may run and those that are left out.

    A sweep may come from anybody, and a metric is code: it runs only if this user names it, too, or
    allows it in the file `allowances`.

    `filed`: ``"module:function"``, as the sweep file names them. `named`: metrics that the user
    names. Returns metrics to compute, and metrics to leave out.
    """
    allowed = _allowed() if set(filed) - set(named) else []

    def may_run(metric: str) -> bool:
        return metric in named or metric in allowed or metric.partition(":")[0] in allowed

    return tuple(m for m in filed if may_run(m)), tuple(m for m in filed if not may_run(m))


def left_out(metrics: Sequence[str]) -> str:
    """Say which metrics of a sweep file are left out, and how to allow them."""
    options = " ".join(f"--metric {metric}" for metric in metrics)
    return (
        f"Left out {', '.join(metrics)}, which the sweep file names: a metric is code, and runs "
        f"only if you name it, too: {options}. To allow it for good, write "
        f'allowed = ["{metrics[0]}"] into {allowances()}'
    )


def probe_left_out(probe: str) -> str:
    """Say that a sweep file's probe is left out, and how to allow it."""
    return (
        f"Left out {probe}, which the sweep file names as the probe of α̂: it is code, and runs "
        f"only if you name it, too: --probe {probe}. α̂ uses the default probe. To allow it for "
        f'good, write allowed = ["{probe}"] into {allowances()}'
    )


def modules_folder(paths: SweepPaths) -> Path | None:
    """Return where a user's modules are found: the working folder, None if it is in the sweep."""
    here, sweep = Path.cwd().resolve(), paths.directory.resolve()
    return None if here.is_relative_to(sweep) else here


def find_modules_here(paths: SweepPaths, named: Sequence[str]) -> None:
    """Add the working folder to sys.path if the user names metrics of their own."""
    folder = modules_folder(paths)
    if folder is not None and any(":" in name for name in named):
        sys.path.append(str(folder))  # last, so that nothing there shadows a package


def _allowed() -> list[str]:
    file = allowances()
    try:
        table = tomllib.loads(file.read_text())
        return _Allowances.model_validate(table).allowed
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as error:  # TOML or UTF-8: ValueError
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise UserError(
            f"cannot be read: {reason}", file=file, remedy='write allowed = ["module:function"]'
        ) from None


def conventions(
    paths: SweepPaths, *, report: Callable[[str], None] = warn, **asked: Any
) -> Options:
    """Return the options of an analysis.

    `report`: called with a message if metrics or the probe of the sweep file are left out; by
    default it warns. ``**asked``: attributes of `Options`; None for those not asked for. `metrics`
    replaces all metrics, ``own`` (names ``"module:function"``) adds to them. The sweep file's
    metrics are left out unless ``own`` names them, too, or the user's own file allows them.
    """
    sweep = read_sweep_file(paths.sweep_file)
    filed = sweep.analysis
    values = {k: v for k, v in filed.model_dump(exclude={"metrics"}).items() if v is not None}
    values |= {k: v for k, v in asked.items() if v is not None and k not in ("metrics", "own")}
    metrics, own = asked.get("metrics"), tuple(asked.get("own") or ())
    if not metrics and any(map(_has_method, sweep.grid)):
        values.setdefault("calibration", True)
    is_filed = asked.get("probe") is None
    if is_filed and is_own(probe := values.get("probe")) and choose([probe], ())[1]:
        del values["probe"]
        report(probe_left_out(probe))
    if is_own(probe := values.get("probe")):
        _require_probe(paths, probe, filed=is_filed)
    if not metrics:
        computed, left = choose(filed.metrics, own)
        metrics = (*DEFAULT_METRICS, *computed)
        if left:
            report(left_out(left))
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
