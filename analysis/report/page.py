"""The page: a template filled with a context."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from manyseed.analysis.figures.svg import MARKS, NUMBERS, Picture
from manyseed.analysis.questions.answers import signed
from manyseed.analysis.report.context import Context, few_test_sets
from manyseed.analysis.report.listed import number
from manyseed.analysis.report.summary import Rows
from manyseed.analysis.report.worded import better

MAX_ROWS = 2000  # most rows of a table; the rest is in the result tables


def render(context: Context) -> str:
    """Return the report as one self-contained HTML page."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    data = FigureData()
    environment.filters.update(
        better=better,
        number=number,
        shown=shown,
        known_effects=known_effects,
        difference=difference,
        few_test_sets=few_test_sets,
        picture=picture,
        marks=data.marks,
        numbers=data.numbers,
        bands=partial(bands, context.switches),
    )
    return environment.get_template("page.html").render(page=context, most=MAX_ROWS)


def shown(rows: Rows, names: Iterable[str]) -> list[str]:
    """Return the columns with a value in some row; δ and N are shown only with α̂."""
    found = [name for name in names if any(row.get(name) is not None for row in rows)]
    levels = "alpha_hat_mean" in found
    return [name for name in found if levels or name not in ("delta", "n_side")]


def known_effects(rows: Rows, names: Iterable[str]) -> list[str]:
    """Return the metrics with a difference in some row of `context.effect_rows`."""
    effects = [effect for row in rows for effect in row["of"].values()]
    known = {effect["metric"] for effect in effects if effect["difference"] is not None}
    return [name for name in names if name in known]


class FigureData:
    """Data of the first figures for the page's script, up to `MARKS` dots and `NUMBERS` rows."""

    def __init__(self) -> None:
        self._marks, self._numbers = MARKS, NUMBERS

    def marks(self, plot: Picture) -> Markup:
        """Return the dots that name their run as an element; empty without dots or room."""
        if plot.marks is None or len(plot.marks["runs"]) > self._marks:
            return Markup("")
        self._marks -= len(plot.marks["runs"])
        return _data("marks", plot.marks)

    def numbers(self, plot: Picture) -> Markup:
        """Return the other numbers as an element; empty without numbers or room."""
        if not 0 < plot.rows <= self._numbers:
            return Markup("")
        self._numbers -= plot.rows
        return _data("numbers", plot.numbers)


def _data(name: str, value: object) -> Markup:
    """Return an element with data for the page's script."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    text = text.replace("<", "\\u003c")  # a name must not end the script element
    return Markup(f'<script type="application/json" class="{name}">{text}</script>')


def bands(switches: Sequence[tuple[str, Sequence[str]]], plot: Picture) -> str:
    """Return the rows of a figure as JSON: indices of their levels, top and bottom."""
    indices = [{name: k for k, name in enumerate(levels)} for _, levels in switches]
    rows = [
        [[index[name] for index, name in zip(indices, levels, strict=True)], top, bottom]
        for levels, top, bottom in plot.bands
    ]
    return json.dumps(rows, separators=(",", ":"))


def difference(value: float | None) -> str:
    """Write a difference with its sign; a dash if it is undefined."""
    return "–" if value is None else signed(value)


def picture(plot: Picture) -> Markup:
    """Return the figure as inline SVG, with its title and caption for screen readers."""
    label = escape(f"{plot.title}. {plot.caption}")
    return Markup(plot.svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1))
