"""``manyseed schema``."""

from __future__ import annotations

import json

import typer


def schema() -> None:
    """Print the sweep file's JSON Schema, by which editors complete and check it.

    A line in the sweep file names it: #:schema ./sweep.schema.json

    Examples:

        manyseed schema > sweep.schema.json
    """
    from manyseed.orchestrator.grids.jsonschema import schema

    typer.echo(json.dumps(schema(), indent=2, ensure_ascii=False))
