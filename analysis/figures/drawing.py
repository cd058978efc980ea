"""Draw the page's figures, a named kind or a column of the tables; figures as files.

Besides the kinds of the page, every numeric column of the tables of runs, pairs and repeats is a
kind: one row per cell, or violins by one or two columns in which cells differ. Identical figures
are identical bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import matplotlib as mpl
import polars as pl
from polars import selectors

from manyseed.analysis import Refused
from manyseed.analysis.figures import labels, levels
from manyseed.analysis.figures.cells import RICH, of_datasets
from manyseed.analysis.figures.epochs import of_several_sources
from manyseed.analysis.figures.kind import OF_METRICS, FigureTables, Kind, all_kinds
from manyseed.analysis.figures.labels import LEVELS, NOTHING, differing, schemas, table_of
from manyseed.analysis.figures.margins import alike_pairs
from manyseed.analysis.figures.style import Plot, heights, numbers, places, values
from manyseed.analysis.figures.svg import MARKS, NUMBERS, Picture
from manyseed.analysis.figures.uncertainty import FEWEST, of_methods
from manyseed.analysis.figures.violins import violins
from manyseed.analysis.tables.rows import IS_CROSSED, REPEAT_KEY, Tables, several

KINDS = all_kinds()  # the named kinds, in the order of the page


def all_figures(given: FigureTables) -> list[Plot]:
    """Draw all figures of the page that the tables allow, without α̂ that says nothing (`told`)."""
    given = replace(
        given,
        tables=told(given.tables, given.close),
        every=given.every and told(given.every, given.close),
    )
    small = given.tables.cells["cell"].n_unique() <= RICH
    shown = (kind for kind in KINDS if small or not kind.small)
    return [plot for kind in shown for plot in kind.plots(given)]


def told(tables: Tables, close: float) -> Tables:
    """Leave out α̂ of test sets too small to tell what is `close`: its resolution δ is larger."""
    if not (tables.repeats["delta"] > close).any():
        return tables
    small = pl.when(pl.col("delta") > close).then(None)
    levels = selectors.starts_with("alpha_hat") & selectors.numeric()
    key = [name for name in REPEAT_KEY if name in tables.repeats.columns]
    runs = tables.runs.drop("delta", strict=False).join(
        tables.repeats.select(*key, "delta"), on=key, how="left", maintain_order="left"
    )
    runs, repeats, cells = (
        one.with_columns(small.otherwise(levels).name.keep())
        for one in (runs, tables.repeats, tables.cells)
    )
    return replace(tables, runs=runs, repeats=repeats, cells=cells)


def names(tables: Tables) -> list[str]:
    """Return the names of all kinds: those of the page, then columns with a value."""
    return [*(kind.name for kind in KINDS), *labels.names(tables)]


def plots(given: FigureTables, name: str, by: Sequence[str] = ()) -> list[Plot]:
    """Draw a kind of figures.

    `name`: name of a kind or column; words may be joined by - or _. `by`: for a column: one or two
    columns in which cells differ (`analysis.figures.violins`); by default each cell has its own
    row. Empty if there is nothing to draw.
    """
    kind = find(name)
    if kind is not None:
        if by:
            reason = f"{kind.name} has a fixed layout; only columns of the tables can be grouped"
            raise Refused("by", ",".join(by), reason)
        return kind.plots(given)
    column = name.replace("-", "_")
    if labels.table_of(labels.schemas(given.tables), column) is None:
        raise Refused("kind", name, allowed=names(given.tables))
    quantity = labels.column(column, given.meanings)
    if by:
        return violins(given.tables, quantity, by)
    about = f": {labels.labelled(column)}"
    return of_datasets(given.tables, quantity, f"{column.replace('_', '-')}-", about)


def find(name: str) -> Kind | None:
    """Return the kind with that name, a metric (`OF_METRICS`) left aside; None for columns."""
    plain = name.replace("_", "-")
    family = plain.partition("-")[0]
    names = (plain, family) if family in OF_METRICS else (plain,)
    return next((kind for kind in KINDS if kind.name in names), None)


def metric_of(name: str) -> str:
    """Return the metric that a kind of `OF_METRICS` shows; empty for other kinds."""
    kind, _, metric = name.replace("-", "_").partition("_")
    return (metric or "accuracy") if kind in OF_METRICS else ""


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


def all_drawn(given: FigureTables) -> list[Picture]:
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


_GRID = ("perturb_continuous", "perturb_hparams")
_WITH_ZEROS = ("sources_", "epochs_")  # kinds that show α̂ also where it is 0 everywhere


def why_not(name: str, given: FigureTables) -> str:
    """Return why nothing is drawn: too little to compare, or values undefined or 0; "" if unknown.

    `name`: a kind, or a column of the tables. `given`: with the further table that the kind needs.
    """
    kind = find(name)
    plain = name.replace("-", "_")
    if kind is not None and (reason := _nothing_to_compare(kind.name, given)):
        return reason
    for table, column in _columns(plain, given, of_page=kind is not None):
        frame = getattr(given.tables, table)
        if reason := _no_values(frame, table, column, zero=not plain.startswith(_WITH_ZEROS)):
            return reason
    return ""


def _nothing_to_compare(kind: str, given: FigureTables) -> str:
    cells = given.tables.cells
    if kind == "differences" and not apart(cells):
        return "it compares cells of a dataset, and each dataset has only one"
    if kind == "levels":
        return levels.why_not(cells)
    by_dataset = kind.startswith("overview-") or kind == "mean-ranks"
    if by_dataset and cells["dataset"].n_unique() < 2:
        return "it compares datasets, and there is only one"
    if kind == "mean-ranks" and cells["classifier"].n_unique() < 2:
        return "it compares classifiers, and there is only one"
    if kind == "grids" and (same := [axis for axis in _GRID if cells[axis].n_unique() < 2]):
        lacking = " and one ".join(same)
        return f"it is a grid of {' and '.join(_GRID)}, and cells have one {lacking}"
    if kind.startswith("sources-") and cells["vary"].n_unique() < 2:
        return "it compares sources of randomness, and all cells have the same vary"
    if kind.startswith("sources-") and of_several_sources(given.every_epoch.cells).is_empty():
        return "it compares sources of randomness, and no cells differ in vary alone"
    if kind == "crossed" and not cells.filter(IS_CROSSED).height:
        return "it shows crossed sources of randomness, and no cell has them"
    margins = given.margins if kind == "candidates-alike" else None
    if margins is not None and alike_pairs(margins, given.tables) is None:
        return (
            "it takes two runs alike in accuracy and churn that differ in α̂, one of them above "
            "its resolution δ, and no cell has them"
        )
    members = given.uncertainty if kind == "member-likelihood" else None
    if members is not None and of_methods(members).is_empty():
        return "it shows ensembling methods, and no cell has one"
    if kind.startswith("likelihood-") and not _several_likelihoods(given.tables.runs):
        return f"it takes {FEWEST} runs of a cell that are no copies, with probabilities"
    if kind.startswith("epochs-") and not several(given.every_epoch.cells):
        return "it compares epochs, and only one was analysed"
    return ""


def apart(cells: pl.DataFrame) -> str:
    """Return the axis whose levels are compared: the classifier, or else the first that differs."""
    several = (name for name in ("classifier", *differing(cells)) if cells[name].n_unique() > 1)
    return next(several, "")


def _several_likelihoods(runs: pl.DataFrame) -> bool:
    known = runs.filter(~pl.col("identical"), pl.col("cll").is_not_null())
    return bool((known["cell"].value_counts()["count"] >= FEWEST).any())


def _columns(name: str, given: FigureTables, *, of_page: bool) -> list[tuple[str, str]]:
    """Return the columns, each with its table, without which a kind shows nothing."""
    if not of_page:
        table = table_of(schemas(given.tables), name)
        return [] if table is None else [(table, name)]
    first, _, rest = name.partition("_")
    if metric := metric_of(name):
        return [("runs", metric)]
    if first in ("overview", "sources"):
        return [("cells", rest)]
    if first == "epochs":
        return [("runs", rest), ("runs", "accuracy")]
    if name == "alpha_hat_pairs":
        return [("pairs", "churn"), ("runs", "alpha_hat")]
    if name.startswith("alpha_hat_"):
        return [("runs", "alpha_hat"), ("runs", name.removeprefix("alpha_hat_"))]
    return []


def _no_values(table: pl.DataFrame, name: str, column: str, *, zero: bool) -> str:
    if table.is_empty():
        return f"there are no {name}"
    known = table[column].drop_nulls() if column in table.columns else pl.Series(dtype=pl.Float64)
    if known.is_empty():
        return f"{column} is undefined for all {name}"
    if zero and column in LEVELS and float(known.max()) < NOTHING:  # type: ignore[arg-type]
        return f"{column} is 0 for all {name}"
    return ""


FORMATS = ("pdf", "svg", "png", "csv")
WIDTHS: Mapping[str, float] = {"single": 89 / 25.4, "double": 183 / 25.4}
"""Width of one and two columns of a journal, in inches."""
DPI = 300

_RC: Any = {
    "pdf.fonttype": 42,  # TrueType: journals refuse Type 3
    "savefig.facecolor": "white",
    "savefig.bbox": None,
    "svg.fonttype": "path",  # looks the same on all systems
    "path.simplify": False,
}
_SUBSET = re.compile(rb"/[A-Z]{6}\+")


def as_files(plots: Sequence[Plot], form: str, dpi: int = DPI) -> list[bytes]:
    """Return figures as files: one PDF with a page per figure, or one file per figure.

    `form`: one of `FORMATS`. PDF embeds fonts as TrueType, SVG draws letters as paths; CSV holds
    the numbers drawn (`analysis.figures.style.numbers`), in UTF-8. `dpi`: pixels per inch of PNG,
    and of parts with too many dots for vectors.
    """
    if form not in FORMATS:
        raise Refused("format", form, allowed=FORMATS)
    if form == "pdf":
        return [_pdf(plots, dpi)]
    if form == "csv":
        return [numbers(plot).write_csv().encode() for plot in plots]
    return [_one(plot, form, dpi) for plot in plots]


def _pdf(plots: Sequence[Plot], dpi: int) -> bytes:
    from matplotlib.backends.backend_pdf import PdfPages  # imports fontTools

    captions = "\n".join(plot.caption for plot in plots)
    metadata = {"Title": plots[0].title, "Subject": captions, "CreationDate": None}
    buffer = io.BytesIO()
    with mpl.rc_context(_RC), PdfPages(buffer, metadata=metadata) as pages:
        for plot in plots:
            pages.savefig(plot.figure, dpi=dpi)
    # the prefix of a subset font, six letters, differs between processes
    return _SUBSET.sub(b"/MANYSD+", buffer.getvalue())


def _one(plot: Plot, form: str, dpi: int) -> bytes:
    buffer = io.BytesIO()
    metadata: dict[str, object] = {"Title": plot.title, "Description": plot.caption}
    metadata |= {"Date": None} if form == "svg" else {}
    with mpl.rc_context({**_RC, "svg.hashsalt": plot.name}):
        plot.figure.savefig(buffer, format=form, dpi=dpi, metadata=metadata)
    return buffer.getvalue()
