"""One look for all figures: sizes, type, panels, lines, dots, violins and legends."""

from __future__ import annotations

import functools
import io
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.container import Container
from matplotlib.figure import Figure
from matplotlib.mlab import GaussianKDE
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

from manyseed.analysis.figures.labels import (
    GREY,
    LEVELS,
    Quantity,
    among,
    colour,
    first_of_each,
    marker,
    titles,
)
from manyseed.analysis.figures.svg import CELLS, compact

Handle = Artist | Container  # what a legend shows beside a label

P = ParamSpec("P")
Drawn = TypeVar("Drawn")

WIDTH = 7.2  # inches, the text width of a page
MANY = 5.5  # inches that figures with many columns need
CHARACTER = 0.072  # approximate inches per letter in a legend
TITLE_CHARACTER = 0.078  # approximate inches per letter in a panel's title
BESIDE = 0.5  # approximate inches for the labels left of a panel
PANEL = 1.7  # minimum width of a panel in inches
SYMBOL = 0.6  # inches for a legend's marker and the gaps around it
INDENT = 0.2  # inches left of a legend among panels
LINE = 0.17  # inches per line of a legend
VECTORS = 400  # most dots of a figure drawn as vectors; more are pixels
MAX_PANELS = 24  # one cell each
FLAT = 0.02  # a panel's values fill more than this share of an axis that it shares
ROOM = 5  # this many ticks are always labelled
NEAR = 1.9  # among more ticks, sizes within this ratio share a label
MAX_POINTS = 2000  # most dots drawn of a group; outlines always use all values

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
    """Dots of a panel: their coordinates, (dot,) each, and their runs as ``CELL:REPEAT:RUN``."""

    axis: Axes
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    runs: Sequence[str]


@dataclass(frozen=True, slots=True)
class Band:
    """Rows of a panel that share one combination of levels: their extent and these levels."""

    axis: Axes
    top: float
    bottom: float
    levels: Sequence[str]


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure with its title and caption.

    `name`: for file names and anchors. `title` and `caption`: the caption states what is drawn, n,
    and for α̂ the resolution δ. `n`: number of runs, pairs or repeats drawn. `marks`: dots that
    name their run. `dataset`: the dataset, if the figure shows the cells of one. `bands`: its rows,
    if they are combinations of levels. `data`: the numbers drawn, unless all of them are dots that
    name their run.
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
        """Return the figure as SVG, with identical text for identical figures."""
        buffer = io.StringIO()
        with mpl.rc_context({**_RC, "svg.hashsalt": self.name}):
            self.figure.savefig(buffer, format="svg", dpi=200, metadata={"Date": None})
        return compact(buffer.getvalue(), self.name)


_asked: ContextVar[float | None] = ContextVar("width", default=None)


@contextmanager
def drawn_wide(inches: float | None) -> Iterator[None]:
    """Draw figures with this width within the context; None for the width on the page."""
    token = _asked.set(inches)
    try:
        yield
    finally:
        _asked.reset(token)


def wide(default: float = WIDTH) -> float:
    """Return the width of the figure to draw, in inches."""
    return _asked.get() or default


def places(plot: Plot) -> list[tuple[float, float, str]]:
    """Return x and y of dots that name their run, in units of the figure's SVG, and the runs.

    The figure must have been drawn, as that computes its layout.
    """
    found = []
    tall = 72 * plot.figure.get_figheight()
    for mark in plot.marks:
        pixels = mark.axis.transData.transform(np.column_stack([mark.x, mark.y]))
        for (x, y), run in zip(pixels * 72 / plot.figure.dpi, mark.runs, strict=True):
            found.append((round(float(x), 1), round(float(tall - y), 1), run))
    return found


def values(plot: Plot) -> dict[str, list[Any]]:
    """Return the values of dots that name their run, in the order of `places`.

    Columns are ``panel``, and ``value`` for rows of cells, or else the labels of the axes.
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
    """Return the numbers of a figure: `Plot.data`, or else the runs and `values` of its dots."""
    if plot.data is not None:
        return plot.data
    runs = [run for mark in plot.marks for run in mark.runs]
    return pl.DataFrame({"run": runs, **values(plot)})


def heights(plot: Plot) -> list[tuple[Sequence[str], float, float]]:
    """Return the levels, top and bottom of each band, in units of the figure's SVG."""
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


def styled(draw: Callable[P, Drawn]) -> Callable[P, Drawn]:
    """Draw in the common style without changing matplotlib's global settings."""

    @functools.wraps(draw)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Drawn:
        with mpl.rc_context(_RC):
            return draw(*args, **kwargs)

    return wrapper


def panels(
    titles: Sequence[str], label: str, least: float = PANEL, *, alike: bool = True
) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel per title, up to three side by side.

    `label`: label of the vertical axes. `least`: minimum width of a panel in inches, unless the
    figure is narrower. `alike`: whether all panels show this quantity, so that those side by side
    share their vertical axis: its limits and ticks are set after all of them are drawn.
    """
    most = max(1, min(3, int(wide() / least)))
    beside = min(2, most) if len(titles) == 4 else min(len(titles), most)
    deep = -(-len(titles) // beside)
    figure = Figure(figsize=(wide(), 0.5 + 2.3 * deep))
    figure.set_layout_engine("constrained", h_pad=0.08)
    grid = figure.subplots(deep, beside, squeeze=False, sharey="row" if alike else "none")
    axes = list(grid.flat)
    for extra in axes[len(titles) :]:
        extra.remove()
    letters = int((wide() / beside - BESIDE) / TITLE_CHARACTER)
    for axis, title in zip(axes, titles, strict=False):
        axis.set_title(wrapped(title, letters))
    for axis in axes[: len(titles) : beside]:
        axis.set_ylabel(label)
    return figure, axes[: len(titles)]


def panel_per_cell(
    cells: pl.DataFrame, most: int, label: str
) -> tuple[Figure, dict[int, Axes], int]:
    """Return a figure, its panel for each cell that fits, and how many cells are left out.

    `most`: most panels. `label`: label of the vertical axes.
    """
    chosen, left = first_of_each(cells, most)
    named = titles(cells)
    figure, axes = panels([named[cell] for cell in chosen], label)
    return figure, dict(zip(chosen, axes, strict=True)), left


def wrapped(text: str, letters: int) -> str:
    """Return a title in lines of so many letters; none begins with a separator or in a name."""
    for separator in ("·", "×"):
        text = text.replace(f" {separator} ", f"\N{FIGURE SPACE}{separator} ")
    lines = textwrap.fill(text, letters, break_on_hyphens=False)
    return lines.replace("\N{FIGURE SPACE}", " ")


def dots(
    axis: Axes,
    rows: pl.DataFrame,
    drawn: tuple[str, str],
    by: tuple[str, Sequence[str]],
    total: int,
    shades: Sequence[Any] = (),
) -> tuple[list[Mark], dict[str, Handle]]:
    """Draw a dot per row; return the marks of dots that are runs, and the handle of each level.

    `rows`: one row per dot. `drawn`: columns on the horizontal and the vertical axis. `by`: the
    column that colours dots, and its levels. `total`: number of dots in all panels: many are drawn
    as pixels. `shades`: shades of the levels if these are ordered numbers; empty for colours and
    markers.
    """
    marks: list[Mark] = []
    handles: dict[str, Handle] = {}
    every = among(by[1])
    for index, level in enumerate(by[1]):
        place = every.index(level)
        own = rows.filter(pl.col(by[0]).cast(pl.String) == level).sort(*drawn)
        own = own[thinned(np.arange(own.height, dtype=np.float64)).astype(np.int64)]
        x, y = (own[column].to_numpy() for column in drawn)
        if "run_index" in own.columns:
            marks.append(Mark(axis, x, y, addresses(own)))
        handles[level] = axis.scatter(
            x,
            y,
            s=14,
            color=shades[index] if len(shades) else colour(place),
            marker="o" if len(shades) else marker(place),
            alpha=0.65,
            linewidths=0,
            rasterized=total > VECTORS,
        )
    axis.grid(visible=True, axis="both")
    return marks, handles


def line(
    axis: Axes,
    points: pl.DataFrame,
    drawn: tuple[str, str],
    look: Mapping[str, Any],
    bands: Mapping[tuple[str, str], float] | None = None,
) -> Handle:
    """Draw the rows of a table as a line, and return it.

    `points`: in the order of the line. `drawn`: columns on the horizontal and the vertical axis.
    `look`: properties of the line; `color` is also that of the bands. `bands`: opacity of a band by
    the columns that bound it.
    """
    x, y = (points[name].to_numpy() for name in drawn)
    for ends, alpha in (bands or {}).items():
        low, high = (points[name].to_numpy() for name in ends)
        axis.fill_between(x, low, high, color=look["color"], alpha=alpha, linewidth=0)
    (found,) = axis.plot(x, y, **{"linewidth": 1.4, "markersize": 2.5, **look})
    return found


def axis_of_sizes(axis: Axes, ticks: Sequence[int], label: str = "", *, up: bool = False) -> None:
    """Make the horizontal axis, or the one that goes up, logarithmic with these ticks alone."""
    (axis.set_yscale if up else axis.set_xscale)("log")
    (axis.set_yticks if up else axis.set_xticks)(ticks, labels(ticks))
    (axis.yaxis if up else axis.xaxis).set_minor_locator(NullLocator())
    if label:
        axis.set_xlabel(label)


def labels(sizes: Sequence[int]) -> list[str]:
    """Return labels of ticks, empty where there is no room; the largest has one."""
    if len(sizes) <= ROOM:
        return [str(size) for size in sizes]
    result, last = [], np.inf
    for size in reversed(sizes):
        far = last / size > NEAR
        result.append(str(size) if far else "")
        last = size if far else last
    return result[::-1]


def shades(count: int) -> list[Any]:
    """Return colours for ordered levels, visible in light and dark mode and in greyscale."""
    return list(colormaps["viridis"](np.linspace(0.4, 0.85, count)))


def legend(figure: Figure, handles: Mapping[str, Handle], title: str) -> None:
    """Add a legend where the last row has no panel, or above the panels, in full columns."""
    widest = max(map(len, handles)) * CHARACTER + SYMBOL
    place: dict[str, Any] = {"loc": "outside upper left"}
    longest = max(widest, len(title) * CHARACTER)
    if (free := _free(figure)) and _fits(figure, longest, len(handles) + bool(title), free):
        columns, (left, top) = 1, free
        place = {"loc": "upper left", "bbox_to_anchor": (left + INDENT / wide(), top)}
    else:
        lines = -(-len(handles) // int(np.clip(wide() // widest, 1, len(handles))))
        columns = -(-len(handles) // lines)
        figure.set_figheight(figure.get_figheight() + LINE * lines)
    figure.legend(
        list[Any](handles.values()),  # matplotlib takes containers, its stubs do not
        handles.keys(),
        ncols=columns,
        title=title,
        title_fontsize=8,
        alignment="left",
        **place,
    )


def _free(figure: Figure) -> tuple[float, float] | None:
    """Return left and top of where the last row has no panel, as shares of the figure."""
    spots = [spot for axis in figure.axes if (spot := axis.get_subplotspec())]
    if not spots:
        return None
    grid = spots[0].get_gridspec()
    last = len(spots) % grid.ncols
    return (last / grid.ncols, 1 / grid.nrows) if last and grid.nrows > 1 else None


def _fits(figure: Figure, widest: float, lines: int, free: tuple[float, float]) -> bool:
    left, top = free
    has_room = widest + INDENT < (1 - left) * wide()
    return has_room and lines * LINE < top * figure.get_figheight() - BESIDE


def at_median(look: int) -> dict[str, Any]:
    """Return the look of a median whose colour is another group's, too: its marker differs."""
    edge: dict[str, Any] = {"markeredgecolor": "black", "markeredgewidth": 0.5}
    return {"ls": "", "color": colour(look), "marker": marker(look), "markersize": 4, **edge}


def comparable(values: Iterable[pl.Series]) -> bool:
    """Return whether panels with these values can share an axis: none of them would be flat."""
    ends = [(one.min(), one.max()) for one in values if one.n_unique() > 1]
    if not ends:
        return True
    lows, highs = np.array(ends, dtype=np.float64).T
    return bool((highs - lows).min() > FLAT * (highs.max() - lows.min()))


def from_zero(axes: Sequence[Axes]) -> None:
    """Let the vertical axes of panels, all of them drawn, begin at 0."""
    for axis in axes:
        axis.set_ylim(bottom=0)


def thinned(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return at most `MAX_POINTS` of the values, evenly spaced by rank."""
    if values.size <= MAX_POINTS:
        return values
    return np.sort(values)[np.linspace(0, values.size - 1, MAX_POINTS).astype(np.intp)]


Real = NDArray[np.float64]

FEWEST = 6  # fewest values of a violin
DOTTED = 30  # most values drawn as dots
OUTLINE = 24  # points on each side of a violin


def shapes_told(quantities: Sequence[Quantity], *, rich: bool = True) -> str:
    """Say what the shapes of values are; `rich`: whether densities are drawn, and many dots."""
    of_levels = [one.name in LEVELS for one in quantities]
    density = f"density, for {FEWEST} values or more, unless all runs of a test set are equal"
    density += ", but none of α̂" * any(of_levels)
    kinds = [density] * (rich and not all(of_levels))
    kinds += [
        f"dots: single values, up to {DOTTED if rich else FEWEST - 1}",
        "bars: middle half and range, for more values",
        "lines: medians",
    ]
    return f"Shapes, of all values together: {'; '.join(kinds)}."


def outline(values: Real, y: float, height: float = 0.45) -> Real | None:
    """Return the outline of a violin at y: (point, 2); None if the ascending values are equal."""
    if values[0] == values[-1]:
        return None
    over = np.linspace(values[0], values[-1], OUTLINE)
    density = GaussianKDE(values).evaluate(over)
    up = height * density / density.max()
    return np.column_stack(
        [
            np.concatenate([over, over[::-1], over[:1]]),
            np.concatenate([y - up, (y + up)[::-1], y - up[:1]]),
        ]
    )


def scattered(n: int) -> Real:
    """Return offsets that fill a row evenly and without randomness; 0 for a single value."""
    if n == 1:
        return np.zeros(1)
    golden = (np.sqrt(5) - 1) / 2
    return np.asarray(0.6 * ((np.arange(1, n + 1) * golden) % 1 - 0.5))
