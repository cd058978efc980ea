"""What a sweep file may change of a group that is stored: nothing, but for what a plan may grow."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from manyseed.orchestrator.errors import UserError, toml_value
from manyseed.orchestrator.store.layout.coordinates import COORDINATES
from manyseed.orchestrator.store.layout.optional import DECLARED, PARAMETERS, RESPONSE
from manyseed.orchestrator.store.layout.schema import GroupSpec

_FIXED = {
    "scores": "keep.scores",
    "dtype": "keep.dtype",
    "epochs": "snapshots",
    "samples": "points of a test set",
    "class_names": "classes",
    "probability": "probabilities",
    "curves": "keep.curves",
    "response": "[response]",
}
"""What of a layout a file decides, and what users call it."""
_ELSE = {"[response]": "; models whose parameters are kept can be asked by manyseed respond"}
_KEPT = {
    array: f"keep.{declared.keep}"
    for array, declared in DECLARED.items()
    if declared.keep != RESPONSE
}
"""The same of optional arrays, by name."""


def merged(held: GroupSpec, wanted: GroupSpec, path: Path, *, exists: bool) -> GroupSpec:
    """Return the layout of a group for which more cells are planned.

    Parameters
    ----------
    held, wanted : GroupSpec
        As it is planned so far, and as it would be planned for the further cells alone.
    path : Path
        The sweep file, for messages.
    exists : bool
        Whether it was planned before, and so never changes.

    Raises
    ------
    UserError
        Where the file stores something else.
    """
    if held.parameters and wanted.parameters and held.parameters_where == wanted.parameters_where:
        wanted = _with_parameters_of(held, wanted, path)
    facts = [(name, getattr(held, field), getattr(wanted, field)) for field, name in _FIXED.items()]
    facts += [(name, _how(held, array), _how(wanted, array)) for array, name in _KEPT.items()]
    facts += [(name, _along(held, name), _along(wanted, name)) for name in COORDINATES]
    for name, before, now in facts:
        if before != now:
            raise UserError(
                f"{held.dataset} × {held.named} is stored with {name} = "
                f"{toml_value(before)}; this file asks for {toml_value(now)}",
                file=path,
                remedy="restore it, give the dataset or classifier another name in the file, "
                "or plan into another directory with --out" + _ELSE.get(name, ""),
            )
    if exists:
        return held
    return replace(held, split_length=max(held.split_length, wanted.split_length))


def _with_parameters_of(held: GroupSpec, wanted: GroupSpec, path: Path) -> GroupSpec:
    """Return a layout with the array of parameters of another, which has room for its models."""
    known = json.loads(held.parameters)
    lacking = [one for one in json.loads(wanted.parameters) if one not in known]
    if lacking:
        of = ", ".join(f"{name} = {toml_value(v)}" for name, v in lacking[0]["hparams"].items())
        raise UserError(
            f"{held.dataset} × {held.named} is stored with parameters of models of other "
            f"sizes; this file asks for models{of and ' of '}{of}",
            file=path,
            key="keep.parameters",
            value=True,
            remedy="plan these cells into another directory with --out",
        )
    kept = next(one for one in held.optional if one.name == PARAMETERS.name)
    optional = tuple(kept if one.name == PARAMETERS.name else one for one in wanted.optional)
    return replace(wanted, optional=optional)


def _how(spec: GroupSpec, array: str) -> object:
    """Return whether a group holds an optional array, or its form where that has dimensions."""
    found = next((one for one in spec.optional if one.name == array), None)
    if found is not None and array == PARAMETERS.name:  # their form: `_with_parameters_of`
        return spec.parameters_where or True
    if found is None or not found.dims:
        return found is not None
    return [*found.shape, found.dtype]


def _along(spec: GroupSpec, coordinate: str) -> object:
    """Return a coordinate of a group's optional arrays; an empty list where it has none."""
    found = [one for one in spec.coordinates if one.name == coordinate]
    return [[*one.values, *one.meanings] for one in found]
