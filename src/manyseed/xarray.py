"""Import this to add the accessor ``.manyseed`` to datasets that plain xarray opens."""

from __future__ import annotations

from manyseed.orchestrator.asking.accessor import Runs

__all__ = ["Runs"]
