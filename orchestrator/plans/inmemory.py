"""Plan a sweep of one estimator on data in memory."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.grids import objects
from manyseed.orchestrator.plans.data import fetch_datasets
from manyseed.orchestrator.plans.planning import Check, plan_sweep
from manyseed.orchestrator.plans.remarks import warn_of_estimator

_ARGUMENTS = {
    "dataset.data.source": "X",
    "dataset.data.target": "y",
    "dataset.data.group": "groups",
    "dataset.data.test": "test",
}
"""The arguments of `Sweep.of` behind keys of the sweep file that it writes."""


def plan_objects(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    groups: Any = None,
    directory: str | Path | None,
    options: Mapping[str, Any],
    grid: Mapping[str, Any],
    require: Check | None = None,
    **numbers: Any,
) -> Path:
    """Plan an estimator, described as in a sweep file, and prepare its data.

    Parameters
    ----------
    estimator, X, y, groups
        As in `orchestrator.sweep.Sweep.of`.
    directory : path, optional
        By default ``sweep-NAME``, after the estimator's class.
    options, grid : mapping
        Further keys of the classifier's table and of the grid.
    require : callable, optional
        A further check of the change to the plan.
    **numbers
        seed, repeats, runs and test.

    Returns
    -------
    Path
        The sweep's directory.
    """
    objects.require_guard()
    if isinstance(estimator, str) and ":" not in estimator:
        remedy = 'give an estimator, or "module:name"; classifiers of manyseed: Sweep.plan'
        raise UserError("names no module", key="estimator", value=estimator, remedy=remedy)
    table = {**objects.table_of(estimator, "estimator"), **options}
    name = table["estimator"].rpartition(":")[2].rpartition(".")[2]
    target = Path(f"sweep-{name}" if directory is None else directory)
    data = objects.keep_data(X, y, groups)
    text = objects.sweep_text(
        name, table, data, grid=grid, is_grouped=groups is not None, **numbers
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sweep.toml"
        file.write_text(text)
        try:
            change = plan_sweep(file, target, require=require)
        except UserError as error:
            raise _of_arguments(error, file) from None
        fetch_datasets(change.expansion.datasets)
    warn_of_estimator(change)
    return target


def _of_arguments(error: UserError, file: Path) -> UserError:
    """Return an error about the temporary sweep file as one about the arguments of `Sweep.of`."""
    if error.file is None or Path(error.file) != file:
        return error
    key = error.key or ""
    argument = _ARGUMENTS.get(key)
    if argument is None:
        argument = re.sub(r"^grid\[0\]\.", "", key)
        argument = re.sub(r"^classifier\.(\"[^\"]*\"|[^.]*)\.", "options.", argument)
        argument = "estimator" if argument == "options.estimator" else argument
    changed = error.in_file(None)
    changed.key = argument or None
    changed.message = error.message.replace(f"{file.parent}, ", "").replace(
        "this file", "this call"
    )
    if key in _ARGUMENTS and key != "dataset.data.test":  # the value is a name of the file's own
        changed = UserError(changed.message, key=argument, remedy=changed.remedy)
    return changed
