"""What a group stores besides predictions: response curves, and parameters of models."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from manyseed.jobs.datasets import DatasetInfo
from manyseed.jobs.response.questions import DBI, DBI_LAYERS, PARTS, Asked
from manyseed.jobs.run import Cell
from manyseed.orchestrator.store.coordinates import (
    COORDINATES,
    DECLARED,
    PARAMETERS,
    RESPONSE_ARRAYS,
    Coordinate,
    OptionalArray,
)


@dataclass(frozen=True, slots=True)
class Further:
    """What a group stores besides predictions, in fields of `GroupSpec`."""

    optional: tuple[OptionalArray, ...] = ()
    coordinates: tuple[Coordinate, ...] = ()
    response: str = ""
    parameters: str = ""
    parameters_where: str = ""


def with_responses(further: Further, asked: Asked) -> Further:
    """Add the arrays that store each model's answers, measured when it is trained."""
    grids = asked.grids
    lengths = {
        "response": len(asked.responses),
        "draw": asked.draws,
        "magnitude": len(grids[0]),
        "part": len(PARTS),
        "layer": len(DBI_LAYERS),
    }
    arrays = (*RESPONSE_ARRAYS, *([DBI] if asked.dbi else []))
    names = list(dict.fromkeys(name for name, _ in asked.responses))
    values: dict[str, tuple[Any, list[str]]] = {
        "response_transform": ([names.index(name) for name, _ in asked.responses], names),
        "response_layer": ([layer for _, layer in asked.responses], []),
        "response_magnitude": (grids, []),
        "part": ([*range(len(PARTS))], [*PARTS]),
    }
    if asked.dbi:
        values["layer"] = (DBI_LAYERS, [])
    declared = [DECLARED[name] for name in arrays]
    return replace(
        further,
        optional=(
            *further.optional,
            *(one.of(lengths[dim] for dim in one.dims) for one in declared),
        ),
        coordinates=tuple(
            COORDINATES[name].of(codes, meanings) for name, (codes, meanings) in values.items()
        ),
        response=json.dumps(asked.to_attributes(), sort_keys=True),
    )


def with_parameters(
    further: Further,
    canonicals: Iterable[str],
    dataset: DatasetInfo,
    classifier: str,
    where: str = "",
) -> Further:
    """Add the array that stores the parameters of trained models.

    Parameters
    ----------
    canonicals : iterable of str
        Canonical descriptions of the group's cells.
    where : str
        The condition on runs whose parameters are kept; empty for all runs.

    Raises
    ------
    jobs.checks.Refused
        If models cannot be kept.
    """
    from manyseed.jobs.parameters import layouts  # builds networks, which workers do not need

    models = layouts((Cell.from_text(text) for text in canonicals), dataset, classifier)
    length, dtype = max(model.numbers for model in models), models[0].dtype
    by_hparams = sorted(models, key=lambda model: sorted(model.hparams.items()))
    described = [model.to_attributes() for model in by_hparams]
    return replace(
        further,
        optional=(*further.optional, PARAMETERS.of((length,), dtype)),
        parameters=json.dumps(described, sort_keys=True),
        parameters_where=where,
    )
