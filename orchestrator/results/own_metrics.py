"""Whose code an analysis runs: a metric that a sweep file names is run where its user says so."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.slurm.profile import user_folder


class _Allowances(BaseModel):
    model_config = ConfigDict(extra="forbid")

    allowed: list[str] = []


def allowances() -> Path:
    """Return the user's file of metrics that any sweep file may name."""
    return user_folder().parent / "metrics.toml"


def choose(filed: Sequence[str], named: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Distinguish a sweep file's metrics that may be run from those that are left out.

    A sweep may come from anybody, and a metric is code: it is run where this user names it, too, or
    allows it in `allowances`.

    Parameters
    ----------
    filed : sequence of str
        ``"module:function"``, as the sweep file names them.
    named : sequence of str
        Those that the user names.

    Returns
    -------
    tuple of tuple of str
        Metrics that are computed, and metrics that are left out.

    Raises
    ------
    UserError
        For a file of allowances that can't be read.
    """
    allowed = _allowed() if set(filed) - set(named) else []

    def may_run(metric: str) -> bool:
        return metric in named or metric in allowed or metric.partition(":")[0] in allowed

    return tuple(m for m in filed if may_run(m)), tuple(m for m in filed if not may_run(m))


def left_out(metrics: Sequence[str]) -> str:
    """Say which metrics of a sweep file are left out, and how they are allowed."""
    options = " ".join(f"--metric {metric}" for metric in metrics)
    return (
        f"Left out {', '.join(metrics)}, which the sweep file names: a metric is code, and is run "
        f"where you name it, too: {options}. To allow it for good, write "
        f'allowed = ["{metrics[0]}"] into {allowances()}'
    )


def probe_left_out(probe: str) -> str:
    """Say that a sweep file's probe is left out, and how it is allowed."""
    return (
        f"Left out {probe}, which the sweep file names as the probe of α̂: it is code, and is run "
        f"where you name it, too: --probe {probe}. α̂ is of the default probe. To allow it for "
        f'good, write allowed = ["{probe}"] into {allowances()}'
    )


def modules_folder(paths: SweepPaths) -> Path | None:
    """Return where a user's modules are looked for: the working folder, but never in a sweep."""
    here, sweep = Path.cwd().resolve(), paths.directory.resolve()
    return None if here.is_relative_to(sweep) else here


def find_modules_here(paths: SweepPaths, named: Sequence[str]) -> None:
    """Let the metrics that the user names be found in the working folder."""
    folder = modules_folder(paths)
    if folder is not None and any(":" in name for name in named):
        sys.path.append(str(folder))  # last, so that nothing there stands in for a package


def _allowed() -> list[str]:
    file = allowances()
    try:
        table = tomllib.loads(file.read_text())
        return _Allowances.model_validate(table).allowed
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:  # what is no TOML, and no UTF-8, is a ValueError
        said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise UserError(
            f"cannot be read: {said}", file=file, remedy='write allowed = ["module:function"]'
        ) from None
