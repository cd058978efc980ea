"""Which users' code an analysis runs: a sweep file's metrics run only if this user agrees."""

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
    """Return the user's file that lists the metrics any sweep file may run."""
    return user_folder().parent / "metrics.toml"


def choose(filed: Sequence[str], named: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split a sweep file's metrics into those that may run and those that are left out.

    A sweep may come from anybody, and a metric is code: it runs only if this user names it, too, or
    allows it in the file `allowances`.

    Parameters
    ----------
    filed : sequence of str
        ``"module:function"``, as the sweep file names them.
    named : sequence of str
        Metrics that the user names.

    Returns
    -------
    tuple of tuple of str
        Metrics to compute, and metrics to leave out.

    Raises
    ------
    UserError
        If the file of allowances can't be read.
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
