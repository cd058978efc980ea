"""The page: a template filled with a context."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from polars import selectors

from manyseed.analysis.figures.style import Plot, heights, places, values
from manyseed.analysis.report.context import Context, Rows
from manyseed.analysis.report.listed import number
from manyseed.analysis.report.worded import better

MINUS = "\N{MINUS SIGN}"
MARKS = 8000  # dots of a page that name their run
NUMBERS = 8000  # rows of figures' numbers, of a page
DIGITS = 6  # of these
MAX_ROWS = 2000  # of a table; others are in the result tables alone


def render(context: Context) -> str:
    """Return the report as one HTML page that needs nothing from outside."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        better=better,
        number=number,
        shown=shown,
        known_effects=known_effects,
        difference=difference,
        picture=picture,
        marks=Marks().of,
        numbers=Numbers().of,
        bands=Bands(context.switches).of,
    )
    return environment.get_template("page.html").render(page=context, most=MAX_ROWS)


def shown(rows: Rows, names: Iterable[str]) -> list[str]:
    """Return the columns of which some row has a value; δ and N say something of α̂ alone."""
    found = [name for name in names if any(row.get(name) is not None for row in rows)]
    levels = "alpha_hat_mean" in found
    return [name for name in found if levels or name not in ("delta", "n_side")]


def known_effects(rows: Rows, names: Iterable[str]) -> list[str]:
    """Return the metrics of which some row of `context.effect_rows` has a difference."""
    found = [of for row in rows for of in row["of"].values() if of["difference"] is not None]
    there = {of["metric"] for of in found}
    return [name for name in names if name in there]


class Marks:
    """Dots that name their runs, of the first figures, `MARKS` in all."""

    def __init__(self) -> None:
        self._left = MARKS

    def of(self, plot: Plot) -> Markup:
        """Return them as an element beside the figure; empty where there are none, or no room."""
        found = places(plot)
        if not found or len(found) > self._left:
            return Markup("")
        self._left -= len(found)
        x, y, runs = zip(*found, strict=True)
        of = values(plot)
        panels = list(dict.fromkeys(of["panel"]))
        of["panel"] = [panels.index(panel) for panel in of["panel"]]
        return held("marks", {"x": x, "y": y, "runs": runs, "panels": panels, "values": of})


class Numbers:
    """What figures draw beside dots that name their runs, `NUMBERS` rows in all."""

    def __init__(self) -> None:
        self._left = NUMBERS

    def of(self, plot: Plot) -> Markup:
        """Return them as an element beside the figure; empty where there are none, or no room."""
        if plot.data is None or not 0 < plot.data.height <= self._left:
            return Markup("")
        self._left -= plot.data.height
        rounded = plot.data.with_columns(selectors.float().round_sig_figs(DIGITS))
        return held("numbers", rounded.write_csv())


def held(name: str, value: object) -> Markup:
    """Return an element of the page that the page's script reads."""
    said = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    said = said.replace("<", "\\u003c")  # of names, in the script element that holds it
    return Markup(f'<script type="application/json" class="{name}">{said}</script>')


class Bands:
    """Rows of figures that one level of an axis can be chosen of."""

    def __init__(self, switches: Sequence[tuple[str, Sequence[str]]]) -> None:
        self._numbers = [{name: k for k, name in enumerate(levels)} for _, levels in switches]

    def of(self, plot: Plot) -> str:
        """Return the rows of a figure as JSON: numbers of their levels, and where they are."""
        return json.dumps(
            [
                [[of[name] for of, name in zip(self._numbers, levels, strict=True)], top, bottom]
                for levels, top, bottom in heights(plot)
            ],
            separators=(",", ":"),
        )


def difference(value: float | None) -> str:
    """Write a difference with its sign; what rounds to zero has none."""
    if value is None:
        return "–"
    text = f"{value:+.4f}"
    return text[1:] if float(text) == 0 else text.replace("-", MINUS)


def picture(plot: Plot) -> Markup:
    """Return the figure as SVG within the page; screen readers find its title and caption."""
    label = escape(f"{plot.title}. {plot.caption}")
    said = f'<svg role="img" aria-label="{label}" '
    return Markup(plot.svg().replace("<svg ", said, 1))
