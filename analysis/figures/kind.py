"""A kind of figures is a decorated function that draws the tables its parameters name."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import polars as pl

from manyseed.analysis import figures
from manyseed.analysis.options import CLOSE
from manyseed.analysis.tables.rows import Tables

if TYPE_CHECKING:
    from manyseed.analysis.figures.style import Plot

P = ParamSpec("P")
Drawn = TypeVar("Drawn")

PAGE = (
    *("answers", "overview", "cells", "alpha", "sources", "epochs", "correlations", "ensembles"),
    *("margins", "training", "likelihood", "equivalents", "calibration", "responses"),
)
"""The chapters of figures, in the order of the page."""
OF_ANALYSIS = ("runs", "pairs", "repeats", "cells")


@dataclass(frozen=True, slots=True)
class FigureTables:
    """The tables that figures are drawn from.

    Attributes
    ----------
    tables : Tables
        With the columns of `analysis.axes.AXES` joined, and one snapshot per cell.
    curves, ensembles, uncertainty, dee, tace, rejection : frames or None
    responses, response_curves, cmi, response_draws, spectra : frames or None
        Further tables, if present.
    close : float
        The option that they were made with.
    meanings : mapping
        Unit and meaning of columns by name.
    every : Tables or None
        The tables with all snapshots, if there are several.
    ensemble_draws, margins : polars frames or None
        Further tables: single ensembles, and distributions of margins.
    averages, differences : polars frames
        Means of a metric and what comparing cells in it gave, made for figures that are asked for
        by name (`OF_METRICS`); empty for others.
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
    response_draws: pl.DataFrame | None = None
    spectra: pl.DataFrame | None = None
    tace: pl.DataFrame | None = None
    rejection: pl.DataFrame | None = None
    every: Tables | None = None
    ensemble_draws: pl.DataFrame | None = None
    margins: pl.DataFrame | None = None
    averages: pl.DataFrame = field(default_factory=pl.DataFrame)
    differences: pl.DataFrame = field(default_factory=pl.DataFrame)

    @property
    def every_epoch(self) -> Tables:
        """The tables with all snapshots."""
        return self.tables if self.every is None else self.every

    def __getitem__(self, name: str) -> Any:
        """Return what a parameter of a kind's function names (`kind`)."""
        if name in OF_ANALYSIS:
            return getattr(self.tables, name)
        if name in OF_EVERY_EPOCH:
            return getattr(self.every_epoch, OF_EVERY_EPOCH[name])
        return getattr(self, name)


OF_METRICS = ("means", "differences", "levels")
"""Kinds that show accuracy, or the metric of runs that follows the name: means-ece."""
OF_EVERY_EPOCH = {f"every_{name}": name for name in OF_ANALYSIS}
FURTHER = tuple(one.name for one in fields(FigureTables) if str(one.type) == "pl.DataFrame | None")


@dataclass(frozen=True, slots=True)
class Kind:
    """A named kind of figures, as `kind` registers it.

    `fixed` holds arguments of `draw`; `inputs` names what the others are given. `least` is the
    smallest width in inches.
    """

    name: str
    shows: str
    chapter: str
    draw: Callable[..., Any]
    inputs: tuple[str, ...]
    fixed: Mapping[str, str]
    least: float
    small: bool

    @property
    def of(self) -> str:
        """The further table that it is drawn from; empty for none."""
        return next((name for name in self.inputs if name in FURTHER), "")

    def plots(self, given: FigureTables) -> list[Plot]:
        """Draw the figures; empty if the tables do not hold what they show."""
        inputs = {name: given[name] for name in self.inputs}
        if any(inputs[name] is None for name in inputs if name in FURTHER):
            return []
        found: list[Plot] | Plot | None = self.draw(**inputs, **self.fixed)
        return found if isinstance(found, list) else [found] if found is not None else []


_registered: list[Kind] = []


def kind(
    name: str,
    shows: str = "",
    /,
    *,
    chapter: str,
    least: float = 0,
    small: bool = False,
    **each: Mapping[str, str],
) -> Callable[[Callable[P, Drawn]], Callable[P, Drawn]]:
    """Make a function a kind of figures; it draws in the common style.

    The function returns a `Plot`, several, or None if there is nothing to show. It is given what
    its parameters name: `tables`, or one of them (`runs`, `pairs`, `repeats`, `cells`; `every_runs`
    etc. have all snapshots); a further table of `FigureTables`, without which nothing is drawn;
    `close`; `meanings`. Parameters with a default are left alone.

    Parameters
    ----------
    name : str
        As users write it, with - between words; ``{}`` is the value of a parameter in `each`.
    shows : str
        What it shows, in a few words.
    chapter : str
        Where the page shows it, one of `PAGE`.
    least : float
        Smallest width in inches.
    small : bool
        Whether the page shows it for small sweeps only, as it has a figure per dataset.
    **each : mapping
        A further parameter: its values, each a kind of its own, and what they show.
    """
    ((parameter, values),) = each.items() or [("", {"": shows})]
    PAGE.index(chapter)

    def register(draw: Callable[P, Drawn]) -> Callable[P, Drawn]:
        from manyseed.analysis.figures.style import styled  # Matplotlib

        needed = (
            one for one in inspect.signature(draw).parameters.values() if one.default is one.empty
        )
        inputs = tuple(one.name for one in needed if one.name != parameter)
        known = {*OF_ANALYSIS, *OF_EVERY_EPOCH, *(one.name for one in fields(FigureTables))}
        if unknown := {*inputs} - known:
            raise TypeError(f"{draw.__name__}: no table is called {', '.join(unknown)}")
        drawn = styled(draw)
        for value, words in values.items():
            own = name.format(value.replace("_", "-"))
            fixed = {parameter: value} if parameter else {}
            _registered.append(Kind(own, words, chapter, drawn, inputs, fixed, least, small))
        return drawn

    return register


def all_kinds() -> tuple[Kind, ...]:
    """Return the kinds that the modules of this package register, in the order of the page."""
    for module in pkgutil.iter_modules(figures.__path__, f"{figures.__name__}."):
        importlib.import_module(module.name)
    order = {name: place for place, name in enumerate(PAGE)}
    return tuple(sorted(_registered, key=lambda one: (order[one.chapter], one.draw.__module__)))
