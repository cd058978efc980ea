"""By which conventions a sweep is analysed: what is asked for, the sweep file's, defaults."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from analysis.metrics import select
from analysis.options import DEFAULT_METRICS, Options
from orchestrator.errors import UserError
from orchestrator.grids.sweepfile import read_sweep_file
from orchestrator.paths import SweepPaths
from orchestrator.plans.groups import Groups
from orchestrator.results import own_metrics
from orchestrator.store.groups import find_group

_SNAPSHOTS = {"epoch": "--snapshot", "reference_epoch": "--reference-snapshot"}
"""What users call positions on the epoch axis."""


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=2)


def conventions(paths: SweepPaths, *, tell: Callable[[str], None] = _warn, **asked: Any) -> Options:
    """Return the options of an analysis.

    Parameters
    ----------
    paths : SweepPaths
    tell : callable
        Told which metrics of the sweep file are left out, if any are; by default it warns.
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
    if not metrics:
        computed, refused = own_metrics.choose(filed.metrics, own)
        metrics = (*DEFAULT_METRICS, *computed)
        if refused:
            tell(own_metrics.left_out(refused))
    named = tuple(dict.fromkeys((*metrics, *own)))
    try:
        select(named)
    except ValueError as error:
        filed_one = any(repr(name) in str(error) for name in filed.metrics)
        remedy = "a module of your own is found beside where you are, or on PYTHONPATH"
        raise UserError(
            str(error),
            file=paths.sweep_file if filed_one else None,
            key="analysis.metrics" if filed_one else "metrics",
            remedy=remedy if "imported" in str(error) else None,
        ) from None
    for name, option in _SNAPSHOTS.items():
        if (position := asked.get(name)) is not None:
            _refuse_snapshot(paths, option, position)
    try:
        return Options(metrics=named, **values)
    except ValueError as error:
        option, said = str(error).split(" ", 1)
        if asked.get(option) is None:
            raise UserError(f"analysis.{option} {said}", file=paths.sweep_file) from None
        flag = _SNAPSHOTS.get(option, f"--{option.replace('_', '-')}")
        raise UserError(f"{flag} {said}") from None


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
    """Return the same conventions without users' own metrics, so that no code of theirs is run."""
    return replace(options, metrics=tuple(name for name in options.metrics if ":" not in name))


def to_json(options: Options) -> dict[str, Any]:
    """Return options as JSON values, in which there is no NaN."""
    return {key: None if value != value else value for key, value in asdict(options).items()}


def from_json(values: dict[str, Any]) -> Options:
    """Return the options of `to_json`."""
    union = math.nan if values["empty_union"] is None else values["empty_union"]
    metrics = tuple(values["metrics"])
    return Options(**values | {"metrics": metrics, "empty_union": union})
