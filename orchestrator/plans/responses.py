"""How a group stores response curves."""

from __future__ import annotations

import json
from typing import Any

from manyseed.jobs.response.asked import DBI, DBI_LAYERS, PARTS, Asked
from manyseed.orchestrator.store.layout.optional import COORDINATES, DECLARED, RESPONSE_ARRAYS


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
