"""``manyseed schema``."""

from __future__ import annotations

import json

import typer


def schema() -> None:
    """Print the JSON Schema of sweep files, with which editors complete and check them.

    Name it in the sweep file with the line: #:schema ./sweep.schema.json

    Examples:

        manyseed schema > sweep.schema.json
    """
    from manyseed.orchestrator.grids.jsonschema import schema

    typer.echo(json.dumps(schema(), indent=2, ensure_ascii=False))
