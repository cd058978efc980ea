"""``import manyseed.xarray`` gives datasets of a store that plain xarray opens ``.manyseed``."""

from __future__ import annotations

from manyseed.orchestrator.results.accessor import Runs

__all__ = ["Runs"]
