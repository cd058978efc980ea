"""Draw figures for the page."""

from __future__ import annotations

from typing import Any

from polars import selectors

from manyseed.analysis.figures.drawn import MARKS, NUMBERS, Picture
from manyseed.analysis.figures.given import Given
from manyseed.analysis.figures.kinds import all_figures
from manyseed.analysis.figures.style import Plot, heights, places, values

DIGITS = 6  # significant digits of numbers


def drawn(plot: Plot) -> Picture:
    """Draw a figure."""
    return Picture(
        name=plot.name,
        title=plot.title,
        caption=plot.caption,
        n=plot.n,
        dataset=plot.dataset,
        bands=heights(plot),
        svg=plot.svg(),
        marks=_marks(plot),  # after the SVG, as drawing computes the layout
        **_numbers(plot),
    )


def all_drawn(given: Given) -> list[Picture]:
    """Draw all figures of the page that the tables allow."""
    return [drawn(plot) for plot in all_figures(given)]


def _marks(plot: Plot) -> dict[str, Any] | None:
    found = places(plot)
    if not 0 < len(found) <= MARKS:
        return None
    x, y, runs = zip(*found, strict=True)
    columns = values(plot)
    panels = list(dict.fromkeys(columns["panel"]))
    columns["panel"] = [panels.index(panel) for panel in columns["panel"]]
    return {"x": x, "y": y, "runs": runs, "panels": panels, "values": columns}


def _numbers(plot: Plot) -> dict[str, Any]:
    if plot.data is None or not 0 < plot.data.height <= NUMBERS:
        return {"numbers": "", "rows": 0}
    rounded = plot.data.with_columns(selectors.float().round_sig_figs(DIGITS))
    return {"numbers": rounded.write_csv(), "rows": plot.data.height}
