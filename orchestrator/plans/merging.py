"""Refuse changes to the layout of a stored group: a sweep file may only add cells to it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from manyseed.orchestrator.errors import UserError, toml_value
from manyseed.orchestrator.store.coordinates import COORDINATES, DECLARED, PARAMETERS, RESPONSE
from manyseed.orchestrator.store.schema import GroupSpec

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
"""The fields of a layout that a sweep file decides, and their names for users."""
_ELSE = {"[response]": "; models whose parameters are kept can be asked by manyseed respond"}
_KEPT = {
    array: f"keep.{declared.keep}"
    for array, declared in DECLARED.items()
    if declared.keep != RESPONSE
}
"""The same for optional arrays, by name."""


def merged(held: GroupSpec, wanted: GroupSpec, path: Path, *, exists: bool) -> GroupSpec:
    """Return the layout of a group to which cells are added.

    Parameters
    ----------
    held, wanted : GroupSpec
        The layout planned so far, and the layout for the added cells alone.
    path : Path
        The sweep file, for messages.
    exists : bool
        Whether an earlier planning fixed the layout, so that it never changes.

    Raises
    ------
    UserError
        If the file asks for another layout.
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
    """Give `wanted` the parameter array of `held`, if that has room for the models of `wanted`."""
    known = json.loads(held.parameters)
    lacking = [model for model in json.loads(wanted.parameters) if model not in known]
    if lacking:
        hparams = lacking[0]["hparams"].items()
        described = ", ".join(f"{name} = {toml_value(value)}" for name, value in hparams)
        raise UserError(
            f"{held.dataset} × {held.named} is stored with parameters of models of other "
            f"sizes; this file asks for models{described and ' with '}{described}",
            file=path,
            key="keep.parameters",
            value=True,
            remedy="plan these cells into another directory with --out",
        )
    stored = next(array for array in held.optional if array.name == PARAMETERS.name)
    optional = tuple(stored if a.name == PARAMETERS.name else a for a in wanted.optional)
    return replace(wanted, optional=optional)


def _how(spec: GroupSpec, array: str) -> object:
    """Return whether a group has an optional array, or its shape and dtype if it has dimensions."""
    declared = next((one for one in spec.optional if one.name == array), None)
    if declared is not None and array == PARAMETERS.name:  # `_with_parameters_of` checks its shape
        return spec.parameters_where or True
    if declared is None or not declared.dims:
        return declared is not None
    return [*declared.shape, declared.dtype]


def _along(spec: GroupSpec, coordinate: str) -> object:
    """Return a coordinate of a group's optional arrays; an empty list if there is none."""
    return [[*one.values, *one.meanings] for one in spec.coordinates if one.name == coordinate]
