"""What a group stores beside predictions: response curves, and models that may answer later."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from manyseed.jobs.datasets import DatasetInfo
from manyseed.jobs.response.asked import DBI, DBI_LAYERS, PARTS, Asked
from manyseed.jobs.run import Cell
from manyseed.orchestrator.store.layout.coordinates import COORDINATES, Coordinate
from manyseed.orchestrator.store.layout.optional import (
    DECLARED,
    PARAMETERS,
    RESPONSE_ARRAYS,
    OptionalArray,
)


@dataclass(frozen=True, slots=True)
class Further:
    """What a group stores beside predictions; the fields are those of `GroupSpec`."""

    optional: tuple[OptionalArray, ...] = ()
    coordinates: tuple[Coordinate, ...] = ()
    response: str = ""
    parameters: str = ""
    parameters_where: str = ""


def with_responses(further: Further, asked: Asked) -> Further:
    """Return it with the answers of every model in training."""
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
    of = tuple(DECLARED[name].of(lengths[dim] for dim in DECLARED[name].dims) for name in arrays)
    return replace(
        further,
        optional=(*further.optional, *of),
        coordinates=tuple(
            COORDINATES[name].of(given, meanings) for name, (given, meanings) in values.items()
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
    """Return it with the arrays of trained models.

    Parameters
    ----------
    further : Further
    canonicals : iterable of str
        The group's cells.
    dataset : DatasetInfo
    classifier : str
    where : str
        Of which runs they are kept; empty for all.

    Raises
    ------
    jobs.checks.Refused
        Where models cannot be kept.
    """
    from manyseed.jobs.parameters import layouts  # builds networks: workers do without

    cells = (Cell.from_text(text) for text in canonicals)
    found = layouts(cells, dataset, classifier)
    length, dtype = max(one.numbers for one in found), found[0].dtype
    by_hparams = sorted(found, key=lambda one: sorted(one.hparams.items()))
    described = [one.to_attributes() for one in by_hparams]
    return replace(
        further,
        optional=(*further.optional, PARAMETERS.of((length,), dtype)),
        parameters=json.dumps(described, sort_keys=True),
        parameters_where=where,
    )
