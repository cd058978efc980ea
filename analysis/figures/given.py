"""The input of figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from manyseed.analysis.options import CLOSE
from manyseed.analysis.tables.schema import Tables


@dataclass(frozen=True, slots=True)
class Given:
    """The tables that figures are drawn from.

    Attributes
    ----------
    tables : Tables
        With the columns of `analysis.axes.AXES` joined, and one snapshot per cell.
    curves, ensembles, uncertainty, dee, tace, responses, response_curves, cmi : frames or None
        Further tables, if present.
    close : float
        The option that they were made with.
    meanings : mapping
        Unit and meaning of columns by name.
    every : Tables or None
        The tables with all snapshots, if there are several.
    ensemble_draws, margins : polars frames or None
        Further tables: single ensembles, and distributions of margins.
    """

    tables: Tables
    curves: pl.DataFrame | None = None
    ensembles: pl.DataFrame | None = None
    close: float = CLOSE
    uncertainty: pl.DataFrame | None = None
    dee: pl.DataFrame | None = None
    meanings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    responses: pl.DataFrame | None = None
    response_curves: pl.DataFrame | None = None
    cmi: pl.DataFrame | None = None
    tace: pl.DataFrame | None = None
    every: Tables | None = None
    ensemble_draws: pl.DataFrame | None = None
    margins: pl.DataFrame | None = None

    @property
    def every_epoch(self) -> Tables:
        """The tables with all snapshots."""
        return self.tables if self.every is None else self.every
