"""One look for all figures: size, type, and colours that colour-blind readers can tell apart."""

from __future__ import annotations

import functools
import io
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ParamSpec

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.container import Container
from matplotlib.figure import Figure
from numpy.typing import NDArray

from manyseed.analysis.figures.compact import compact

Handle = Artist | Container
"""What a legend shows beside a name."""

P = ParamSpec("P")

WIDTH = 7.2  # inches, the text width of a page
CHARACTER = 0.072  # inches, about, of a letter in a legend
TITLE_CHARACTER = 0.078  # inches, about, of a letter in a panel's title
BESIDE = 0.5  # inches, about, of a panel's labels to its left
PANEL = 1.7  # inches that a panel is wide, at least
SYMBOL = 0.6  # inches, of a legend's marker and the gaps around it
LINE = 0.17  # inches, of a line of a legend
CELLS = "cells-"  # what figures of the cells of a dataset are named
VECTORS = 400  # dots of a figure that are drawn as shapes; more are pixels
MAX_POINTS = 2000  # dots drawn of a group; the outline is always of all

# Okabe and Ito 2008, without black and yellow.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
# Beyond six groups, colours return with another marker.
MARKERS = ("o", "s", "^", "D", "v", "P")
GREY = "#808080"

_RC: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelsize": 8.5,
    "axes.linewidth": 0.7,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "figure.facecolor": "none",
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "grid.alpha": 0.3,
    "grid.color": "#808080",
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "path.simplify": False,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "text.parse_math": False,  # a name may hold dollar signs
    "xtick.color": GREY,
    "xtick.labelcolor": "black",
    "ytick.color": GREY,
    "ytick.labelcolor": "black",
}


@dataclass(frozen=True, slots=True)
class Mark:
    """Dots of a panel: where they are, (dot,) each, and the run of each, ``CELL:REPEAT:RUN``."""

    axis: Axes
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    runs: Sequence[str]


@dataclass(frozen=True, slots=True)
class Band:
    """Rows of a panel that are of one combination of axes: from where to where, and its levels."""

    axis: Axes
    top: float
    bottom: float
    levels: Sequence[str]


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure with the words that belong to it.

    Attributes
    ----------
    name : str
        For file names and anchors.
    title, caption : str
        The caption says what is drawn, n, and for α̂ the resolution δ.
    n : int
        Number of runs, pairs or repeats that are drawn.
    marks : sequence of Mark
        Dots that have a name.
    dataset : str
        Which one it is of, where it is of the cells of one.
    bands : sequence of Band
        Its rows, where these are combinations of what cells differ in.
    data : polars frame or None
        The numbers that are drawn, where not all of them are dots with a name.
    """

    name: str
    title: str
    caption: str
    n: int
    figure: Figure = field(repr=False)
    marks: Sequence[Mark] = field(default=(), repr=False)
    dataset: str = ""
    bands: Sequence[Band] = field(default=(), repr=False)
    data: pl.DataFrame | None = field(default=None, repr=False)

    @property
    def of_cells(self) -> bool:
        """Whether it shows the cells of a dataset."""
        return self.name.startswith(CELLS)

    def svg(self) -> str:
        """Return the figure as SVG, the same text for the same figure."""
        buffer = io.StringIO()
        with mpl.rc_context({**_RC, "svg.hashsalt": self.name}):
            self.figure.savefig(buffer, format="svg", dpi=200, metadata={"Date": None})
        return compact(buffer.getvalue(), self.name)


_asked: ContextVar[float | None] = ContextVar("width", default=None)


@contextmanager
def drawn_wide(inches: float | None) -> Iterator[None]:
    """Draw figures as wide as this; None: as wide as the page has them."""
    token = _asked.set(inches)
    try:
        yield
    finally:
        _asked.reset(token)


def wide(default: float = WIDTH) -> float:
    """Return how wide a figure is to be, in inches."""
    return _asked.get() or default


def places(plot: Plot) -> list[tuple[float, float, str]]:
    """Return where the dots are that have a name, in the units of the figure's SVG, and the names.

    It is for a figure that has been drawn: layouts are made then.
    """
    found = []
    tall = 72 * plot.figure.get_figheight()
    for mark in plot.marks:
        pixels = mark.axis.transData.transform(np.column_stack([mark.x, mark.y]))
        for (x, y), run in zip(pixels * 72 / plot.figure.dpi, mark.runs, strict=True):
            found.append((round(float(x), 1), round(float(tall - y), 1), run))
    return found


def values(plot: Plot) -> dict[str, list[Any]]:
    """Return what the dots that have a name stand for, in the order of `places`.

    Columns by name: ``panel``, and ``value`` of the rows of cells, of others what their axes say.
    """
    axes = [mark.axis for mark in plot.marks]
    if plot.of_cells:
        names = ["value"]
    else:
        across = {axis.get_xlabel() for axis in axes if axis.get_xlabel()}
        up = next((axis.get_ylabel() for axis in plot.figure.axes if axis.get_ylabel()), "y")
        names = [across.pop() if len(across) == 1 else "x", up]
    columns: dict[str, list[Any]] = {"panel": [], **{name: [] for name in names}}
    for axis, mark in zip(axes, plot.marks, strict=True):
        title = axis.get_title(loc="left") or axis.get_title()
        columns["panel"] += [" ".join(title.split())] * len(mark.runs)
        for name, numbers in zip(names, (mark.x, mark.y), strict=False):
            columns[name] += [float(f"{value:.6g}") for value in numbers]
    return columns


def numbers(plot: Plot) -> pl.DataFrame:
    """Return what a figure draws: `Plot.data`, or of dots alone the runs, panels and `values`."""
    if plot.data is not None:
        return plot.data
    runs = [run for mark in plot.marks for run in mark.runs]
    return pl.DataFrame({"run": runs, **values(plot)})


def heights(plot: Plot) -> list[tuple[Sequence[str], float, float]]:
    """Return the levels of each band and where it begins and ends, in units of the figure's SVG."""
    tall, inch = 72 * plot.figure.get_figheight(), plot.figure.dpi
    found = []
    for band in plot.bands:
        ends = band.axis.transData.transform([(0, band.top), (0, band.bottom)])[:, 1] * 72 / inch
        top, bottom = (round(float(tall - end), 1) for end in ends)
        found.append((band.levels, top, bottom))
    return found


def addresses(rows: pl.DataFrame) -> list[str]:
    """Return the addresses of runs, ``CELL:REPEAT:RUN``."""
    named = pl.format("{}:{}:{}", "cell", "repeat_index", "run_index")
    return rows.select(named.alias("run"))["run"].to_list()


def styled(draw: Callable[P, Plot | None]) -> Callable[P, Plot | None]:
    """Draw in the common style, leaving matplotlib's own settings as they are."""

    @functools.wraps(draw)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Plot | None:
        with mpl.rc_context(_RC):
            return draw(*args, **kwargs)

    return wrapper


def panels(titles: Sequence[str], label: str, least: float = PANEL) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel per title, up to three side by side, and one vertical label.

    Parameters
    ----------
    titles : sequence of str
    label : str
    least : float
        How wide a panel is, at least, in inches, unless the figure is narrower.
    """
    most = max(1, min(3, int(wide() / least)))
    beside = min(2, most) if len(titles) == 4 else min(len(titles), most)
    deep = -(-len(titles) // beside)
    figure = Figure(figsize=(wide(), 0.5 + 2.3 * deep))
    figure.set_layout_engine("constrained", h_pad=0.08)
    axes = list(figure.subplots(deep, beside, squeeze=False).flat)
    for extra in axes[len(titles) :]:
        extra.remove()
    letters = int((wide() / beside - BESIDE) / TITLE_CHARACTER)
    for axis, title in zip(axes, titles, strict=False):
        axis.set_title(textwrap.fill(title, letters))
    for axis in axes[: len(titles) : beside]:
        axis.set_ylabel(label)
    return figure, axes[: len(titles)]


def colour(index: int) -> str:
    """Return the colour of the group with this index."""
    return COLOURS[index % len(COLOURS)]


def marker(index: int) -> str:
    """Return the marker of the group with this index, another one each time colours return."""
    return MARKERS[index // len(COLOURS) % len(MARKERS)]


def dots(
    axis: Axes,
    rows: pl.DataFrame,
    drawn: tuple[str, str],
    by: tuple[str, Sequence[str]],
    total: int,
    shades: Sequence[Any] = (),
) -> tuple[list[Mark], dict[str, Handle]]:
    """Draw a dot per row; return what names them if they are runs, and the handle of each level.

    Parameters
    ----------
    axis : Axes
    rows : polars frame
        A row per dot.
    drawn : tuple of str
        Columns: across and up.
    by : tuple
        The column that they are coloured by, and its levels.
    total : int
        Dots of all panels: many are drawn as pixels.
    shades : sequence of colours
        Of the levels, where they are numbers in order; empty: they have colours and markers.
    """
    marks: list[Mark] = []
    handles: dict[str, Handle] = {}
    for index, level in enumerate(by[1]):
        of = rows.filter(pl.col(by[0]).cast(pl.String) == level).sort(*drawn)
        of = of[thinned(np.arange(of.height, dtype=np.float64)).astype(np.int64)]
        x, y = (of[column].to_numpy() for column in drawn)
        if "run_index" in of.columns:
            marks.append(Mark(axis, x, y, addresses(of)))
        handles[level] = axis.scatter(
            x,
            y,
            s=14,
            color=shades[index] if len(shades) else colour(index),
            marker="o" if len(shades) else marker(index),
            alpha=0.65,
            linewidths=0,
            rasterized=total > VECTORS,
        )
    axis.grid(visible=True, axis="both")
    return marks, handles


def shades(count: int) -> list[Any]:
    """Return colours of levels in order, seen on light and on dark paper, and without colours."""
    return list(colormaps["viridis"](np.linspace(0.3, 0.85, count)))


def legend(figure: Figure, handles: Mapping[str, Handle], title: str) -> None:
    """Explain the colours above the panels, in as many columns as the page is wide."""
    widest = max(map(len, handles)) * CHARACTER + SYMBOL
    columns = int(np.clip(wide() // widest, 1, len(handles)))
    figure.set_figheight(figure.get_figheight() + LINE * -(-len(handles) // columns))
    figure.legend(
        list[Any](handles.values()),  # matplotlib takes containers, its stubs do not
        handles.keys(),
        loc="outside upper left",
        ncols=columns,
        title=title,
        title_fontsize=8,
        alignment="left",
    )


def thinned(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return at most `MAX_POINTS` of the values, evenly spaced in their order of size."""
    if values.size <= MAX_POINTS:
        return values
    return np.sort(values)[np.linspace(0, values.size - 1, MAX_POINTS).astype(np.intp)]
