"""How a group stores response curves, and models that may answer later."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from manyseed.jobs.datasets import DatasetInfo
from manyseed.jobs.response.asked import DBI, DBI_LAYERS, PARTS, Asked
from manyseed.jobs.run import Cell
from manyseed.orchestrator.store.layout.coordinates import COORDINATES
from manyseed.orchestrator.store.layout.optional import (
    DECLARED,
    PARAMETERS,
    RESPONSE_ARRAYS,
    OptionalArray,
)


def responses_of(asked: Asked) -> dict[str, Any]:
    """Return the fields of a group's layout: optional, coordinates and response."""
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
    return {
        "optional": tuple(
            DECLARED[name].of(lengths[dim] for dim in DECLARED[name].dims) for name in arrays
        ),
        "coordinates": tuple(
            COORDINATES[name].of(given, meanings) for name, (given, meanings) in values.items()
        ),
        "response": json.dumps(asked.to_attributes(), sort_keys=True),
    }


def parameters_of(
    canonicals: Iterable[str],
    dataset: DatasetInfo,
    classifier: str,
    optional: tuple[OptionalArray, ...],
) -> dict[str, Any]:
    """Return the fields of a layout that keeps models besides other optional arrays.

    Parameters
    ----------
    canonicals : iterable of str
        The group's cells.
    dataset : DatasetInfo
    classifier : str
    optional : tuple of OptionalArray

    Raises
    ------
    jobs.checks.Refused
        Where models cannot be kept.
    """
    from manyseed.jobs.parameters import layouts  # builds networks: workers do without

    cells = (Cell.from_canonical(json.loads(text)) for text in canonicals)
    found = layouts(cells, dataset, classifier)
    length, dtype = max(one.numbers for one in found), found[0].dtype
    described = sorted(
        (one.to_attributes() for one in found), key=lambda one: sorted(one["hparams"].items())
    )
    return {
        "optional": (*optional, PARAMETERS.of((length,), dtype)),
        "parameters": json.dumps(described, sort_keys=True),
    }
