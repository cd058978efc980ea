"""Import this to add the accessor ``.manyseed`` to datasets that plain xarray opens."""

from __future__ import annotations

import xarray as xr

from manyseed.orchestrator.store.lazy import Runs

__all__ = ["Runs"]

xr.register_dataset_accessor("manyseed")(Runs)
