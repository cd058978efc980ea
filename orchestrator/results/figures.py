"""Figures of a sweep's results: those of the page, or of any column, for a notebook or a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from manyseed.analysis import Refused
from manyseed.analysis.axes import AXES, FRACTION, condition, level_told
from manyseed.analysis.figures import drawing as known
from manyseed.analysis.figures.drawing import FORMATS, WIDTHS, as_files, why_not
from manyseed.analysis.figures.kind import FURTHER, OF_METRICS, FigureTables
from manyseed.analysis.figures.labels import (
    OF,
    SEPARATOR,
    coloured_as,
    described,
    differing,
    table_of,
)
from manyseed.analysis.figures.levels import in_the_way, shown_axis
from manyseed.analysis.figures.style import Plot, drawn_wide
from manyseed.analysis.figures.violins import levels
from manyseed.analysis.tables.rows import Tables, at_last, last, of_cells, once
from manyseed.jobs.checks import parsed
from manyseed.jobs.datasets.split import n_points
from manyseed.orchestrator.asking.query import listed
from manyseed.orchestrator.calls import checked, from_python, further
from manyseed.orchestrator.computing.tables import (
    DRAWN_PAIRS,
    Results,
    read_analysis,
    read_results,
)
from manyseed.orchestrator.conditions import chosen
from manyseed.orchestrator.disk.placing import place
from manyseed.orchestrator.errors import UserError, nearest, refused
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.results.answers.summary import training_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NARROWEST, WIDEST = 40.0, 1000.0  # mm
_INCH = 25.4  # mm


def plots(
    paths: SweepPaths,
    kind: str,
    *,
    by: Sequence[str] = (),
    where: str | None = None,
    width: str | float | None = None,
) -> list[Plot]:
    """Draw all figures of a kind.

    Parameters
    ----------
    paths : SweepPaths
        An analysed sweep.
    kind : str
        One of `kinds`: a figure of the page, or a column of the tables of runs, pairs or repeats.
    by : sequence of str
        For a column of the tables: group by one or two axes; two give the rows and the columns of a
        grid; by default a row per cell.
    where : str
        Only cells that meet a condition.
    width : str or float
        single or double for columns of a journal (89 or 183 mm), or millimetres; by default as in
        the report.

    Returns at least one, each with its `figure`, `title`, `caption` and `n`.
    """
    results = read_results(paths)
    given = _given(paths, results, kind, where)
    inches = _inches(width)
    found = known.find(kind)
    if metric := known.metric_of(kind):
        given = _of_metric(paths, results, given, kind, metric, where)
    if found is not None and inches is not None and inches < found.least:
        reason = f"{found.name} has no room below {found.least * _INCH:.0f} mm"
        raise UserError(reason, key="--width", value=width, remedy="such as: --width double")
    try:
        every = levels(results["cells"], "classifier")  # whose colours a condition does not change
        with drawn_wide(inches), coloured_as(every):
            drawn = known.plots(given, kind, by)
    except Refused as error:
        if error.option == "kind":
            raise _unknown(kind, given.tables) from None
        raise refused(error, key=f"--{error.option}") from None
    if not drawn:
        raise UserError(
            "there is nothing to draw", key="KIND", value=kind, remedy=_why(kind, given, paths)
        )
    return drawn


def kinds(paths: SweepPaths) -> pl.DataFrame:
    """Return the kinds of figures for which a sweep's results have tables and values.

    Returns
    -------
    polars frame
        Columns kind, of (the column's table, or page) and shows.
    """
    results = read_results(paths)
    given = _given(paths, results, "", None)
    available = [
        one
        for one in known.KINDS
        if (not one.of or one.of in results) and not why_not(one.name, given)
    ]
    rows = [(one.name, OF_CELLS.get(one.name, "page"), one.shows) for one in available]
    schemas = {table: results.scan(table).collect_schema() for table in OF}
    seen = set[str]()
    for table in OF:
        meanings = _meanings(results, table)
        null = results.scan(table).null_count().collect().row(0, named=True)
        height = int(results.scan(table).select(pl.len()).collect().item())
        for name in schemas[table]:
            is_new = table_of(schemas, name) == table and name not in seen
            if is_new and null[name] < height:
                rows.append((name, table, meanings.get(name, ("", ""))[1].rstrip(".")))
                seen.add(name)
    return pl.DataFrame(rows, schema=["kind", "of", "shows"], orient="row")


OF_CELLS = dict.fromkeys(OF_METRICS, "cells")
"""Kinds of a metric that is asked for, so they are not on the page."""
_MOST_USUAL = 12


def usual(paths: SweepPaths) -> pl.DataFrame:
    """Return, as `kinds` does, those looked at first, of what a sweep can draw."""
    cells = last(read_results(paths)["cells"])
    several = {name: cells[name].n_unique() > 1 for name in ("dataset", "classifier", "vary")}
    close = read_analysis(paths)[0].close
    is_drawn = {
        "accuracy": True,
        "means": True,
        "differences": True,
        "levels": True,
        "cells": True,
        "overview-accuracy-mean": several["dataset"],
        "mean-ranks": several["dataset"] and several["classifier"],
        "sources-accuracy-std": several["vary"],
        "crossed": cells["vary"].cast(pl.String).str.contains("*", literal=True).any(),
        "accuracy_range": True,
        "ec_local": True,
        "alpha-hat-accuracy": not cells.filter(pl.col("delta") <= close).is_empty(),
        "curves-accuracy": True,
        "ensembles-accuracy": True,
        "method-equivalents": True,
        "margins": True,
        "response-curves": True,
        "ece": True,
        "log_likelihood": True,
        "fit_seconds": True,
    }
    order = pl.DataFrame({"kind": [name for name, drawn in is_drawn.items() if drawn]})
    drawn = kinds(paths)
    if "levels" not in drawn["kind"] and shown_axis(cells):
        (shows,) = (one.shows for one in known.KINDS if one.name == "levels")
        one = pl.DataFrame({"kind": "levels", "of": "page", "shows": f"with --where: {shows}"})
        drawn = pl.concat([drawn, one])
    found = order.join(drawn, on="kind", maintain_order="left").head(_MOST_USUAL)
    return found.with_columns(pl.col("shows").str.split(". ").list.first())


def save(drawn: Sequence[Plot], file: Path, form: str | None = None) -> list[Path]:
    """Write figures: one PDF with a page each, or numbered files; the bytes are reproducible.

    Parameters
    ----------
    drawn : sequence of Plot
    file : Path
        In a folder that exists. Several figures in a form that holds one are numbered: NAME-1.png.
    form : str, optional
        pdf, svg, png or csv, the numbers that are drawn; by default the suffix of the file's name.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    UserError
        For another form, or a missing folder.
    """
    form = form or file.suffix.removeprefix(".").lower()
    if form not in FORMATS:
        remedy = f"end it with one of {', '.join(f'.{one}' for one in FORMATS)}"
        raise UserError("unsupported format", file=file, remedy=remedy)
    if not file.absolute().parent.is_dir():
        raise UserError("its folder is not there", file=file)
    contents = as_files(drawn, form)
    numbered = (file.with_name(f"{file.stem}-{n}{file.suffix}") for n in range(1, 1 + len(drawn)))
    files = [file] if len(contents) == 1 else list(numbered)
    for path, content in zip(files, contents, strict=True):
        place(path, content)
    return files


@from_python("Sweep.plot")
class Plots:
    """The figures of a sweep: ``sweep.plot.accuracy(by="perturb_continuous")``.

    Each kind that ``sweep.plot.kinds`` lists is a method, with _ for -; all take `by`, `where` and
    `width` (`plots`) and return a matplotlib figure. If a kind has several figures, such as one per
    dataset, `all` returns them.
    """

    def __init__(self, paths: SweepPaths) -> None:
        self._paths = paths

    @further("results.figures:plots", but=("paths",))
    def __call__(self, kind: str, *, by: str | Sequence[str] = (), **options: Any) -> Figure:
        """Return the figure of a kind; parameters as in `plots`."""
        drawn = self.all(kind, by=by, **options)
        if len(drawn) > 1:
            titles = "; ".join(one.title for one in drawn)
            remedy = (
                "choose with where, such as: where=\"dataset = 'digits'\"; or take all of them: "
                f"plot.all({kind!r})"
            )
            raise UserError(f"it has {len(drawn)} figures: {titles}", key=kind, remedy=remedy)
        return drawn[0].figure

    @further("results.figures:plots", but=("paths",))
    def all(self, kind: str, *, by: str | Sequence[str] = (), **options: Any) -> list[Plot]:
        """Return all figures of a kind, with titles and captions."""
        columns = [*listed(by)]
        return plots(self._paths, kind, by=[name for name in columns if name], **options)

    @property
    def kinds(self) -> pl.DataFrame:
        """The available kinds, and what each shows."""
        return kinds(self._paths)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name.replace("-", "_") for name in self.kinds["kind"])]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def draw(*, by: str | Sequence[str] = (), **options: Any) -> Figure:
            return self(name, by=by, **options)

        draw.__name__, draw.__doc__ = name, f"Return the figure {name}: `by`, `where`, `width`."
        return checked(draw, f"Sweep.plot.{name}")


def _given(paths: SweepPaths, results: Results, kind: str, where: str | None) -> FigureTables:
    """Read what a kind is drawn from, for the cells that are asked for."""
    column = kind.replace("-", "_")
    tables = results.of_analysis(tuple(dict.fromkeys((*DRAWN_PAIRS, column))), whole=True)
    every = once(tables)
    if where is None:
        tables = at_last(tables)
    else:
        tables = of_cells(tables, chosen(tables.cells, where, "--where", one_snapshot=True))
    tables = once(tables)
    further: dict[str, Any] = {
        name: None if (one := results.of_figures(name)) is None else _of_cells(one, tables.cells)
        for name in FURTHER
    }
    meanings = {k: text for table in OF[::-1] for k, text in _meanings(results, table).items()}
    every = of_cells(every, tables.cells.select("cell").unique())
    close = read_analysis(paths)[0].close
    tables, every = (_by_rows(paths, one) for one in (tables, every))
    return FigureTables(tables, close=close, meanings=meanings, every=every, **further)


def _by_rows(paths: SweepPaths, tables: Tables) -> Tables:
    """Return tables with numbers of rows for shares where a data set has both, if known."""
    number = pl.col(FRACTION)
    mixed = tables.cells.group_by("dataset").agg(both=(number > 1).any() & (number <= 1).any())
    names = mixed.filter("both")["dataset"].cast(pl.String).to_list()
    if not names:
        return tables
    sizes = training_rows(paths, names)
    by_rows = number
    shares = tables.cells.filter(number <= 1).select("dataset", FRACTION).unique()
    for name, share in shares.cast({"dataset": pl.String}).iter_rows():
        if name in sizes:
            is_it = (pl.col("dataset").cast(pl.String) == name) & (number == share)
            rows = float(n_points(share, sizes[name]))
            by_rows = pl.when(is_it).then(rows).otherwise(by_rows)
    parts = ("runs", "pairs", "repeats", "cells")
    frames = {name: getattr(tables, name) for name in parts}
    return replace(
        tables,
        **{
            name: one.with_columns(by_rows.alias(FRACTION))
            for name, one in frames.items()
            if FRACTION in one.columns
        },
    )


def _of_metric(
    paths: SweepPaths,
    results: Results,
    given: FigureTables,
    kind: str,
    metric: str,
    where: str | None,
) -> FigureTables:
    """Add the means of a metric of runs, or its differences, to what figures are drawn from."""
    schema = results.scan("runs").collect_schema()
    if table_of({**dict.fromkeys(OF, pl.Schema()), "runs": schema}, metric) is None:
        raise _unknown(kind, given.tables)
    if kind.startswith(("means", "levels")):
        return replace(given, averages=_averages(results, given.tables.cells, metric))
    try:
        return replace(given, differences=_differences(paths, given.tables.cells, metric, where))
    except UserError as error:
        raise UserError(error.message, key="KIND", value=kind, remedy=error.remedy) from None


def _averages(results: Results, cells: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Return the mean of a metric in each cell with its interval, those of `query`, by dataset."""
    from manyseed.orchestrator.asking.query import query

    found = query(results, "runs", by=["cell"], columns=[metric])
    ends = [f"{metric}_ci_{end}" for end in ("low", "high")]
    lacking = [name for name in (*ends, "over") if name not in found.columns]
    found = found.with_columns(pl.lit(None).alias(name) for name in lacking).select(
        "cell",
        pl.lit(metric).alias("metric"),
        pl.col(metric).alias("mean"),
        *(pl.col(name).cast(pl.Float64).alias(name.rpartition("_")[2]) for name in ends),
        pl.col("over").cast(pl.String),
        pl.col("n").alias("n_runs"),
    )
    apart = differing(cells)
    own = cells.unique("cell").with_columns(pl.col("dataset", "classifier").cast(pl.String))
    named = own.join(described(own), on="cell")
    parts = pl.concat_list("classifier", "_of").list.eval(pl.element().filter(pl.element() != ""))
    named = named.with_columns(row=parts.list.join(SEPARATOR)).sort("classifier", "cell")
    return (
        _in_order(named, own, apart)
        .select("cell", "dataset", "classifier", *apart, "row")
        .join(found, on="cell", how="left", maintain_order="left")
    )


def _in_order(table: pl.DataFrame, cells: pl.DataFrame, axes: Sequence[str]) -> pl.DataFrame:
    """Sort rows by their levels of these axes: by number, or in the order of the cells."""
    places = [
        pl.col(axis)
        if cells.schema[axis].is_numeric()
        else pl.col(axis)
        .cast(pl.String)
        .replace_strict(
            [str(one) for one in of], range(len(of)), default=None, return_dtype=pl.Int64
        )
        for axis in axes
        if axis in table.columns and (of := levels(cells, axis))
    ]
    return table.sort(*places, maintain_order=True) if places else table


def _differences(
    paths: SweepPaths, cells: pl.DataFrame, metric: str, where: str | None
) -> pl.DataFrame:
    """Return what `compare` says of each pair of cells that differ in one axis alone."""
    from manyseed.orchestrator.results.answers.compare import compare_cells
    from manyseed.orchestrator.results.answers.comparison import judged, side_told, told_apart

    by = known.apart(cells)
    if not by:
        return pl.DataFrame()
    rows: list[dict[str, Any]] = []
    others = [axis for axis in differing(cells) if axis != by]
    for one in compare_cells(paths, by=by, where=where, metric=metric):
        if (found := one.result) is None:
            continue
        axes = {axis: level for axis, level in one.same.items() if axis not in ("dataset", by)}
        a, b = told_apart(one)
        low, high = judged(one) or (None, None)
        seeds_low, seeds_high = found.seeds or (None, None)
        first = [str(axes["classifier"])] if "classifier" in axes else []
        apart = {axis: axes[axis] for axis in others if axes.get(axis) is not None}
        rows.append(
            {
                "dataset": str(one.same.get("dataset")),
                "by": ", ".join(axis for axis in AXES if axis not in one.same),
                "a": a,
                "b": b,
                "cell_a": one.a.cell,
                "cell_b": one.b.cell,
                "metric": metric,
                "difference": found.difference,
                "low": low,
                "high": high,
                "verdict": side_told(one),
                "together_verdict": side_told(one, together=one.together is not None),
                "over": None if low is None else "test sets" if found.sets else "seeds",
                "seeds_low": seeds_low,
                "seeds_high": seeds_high,
                "row": SEPARATOR.join(
                    [*first, f"{a} − {b}", *(level_told(*one) for one in apart.items())]
                ),
                **apart,
            }
        )
    floats = ("low", "high", "seeds_low", "seeds_high")
    table = _in_order(pl.DataFrame(rows, infer_schema_length=None), cells, others)
    return table.with_columns(pl.col(*floats).cast(pl.Float64), pl.col("over").cast(pl.String))


def _of_cells(table: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Return a table's rows of these cells or, without a cell column, of their groups."""
    key = ["cell"] if "cell" in table.columns else ["dataset", "classifier"]
    kept = cells.select(key).unique().cast({name: table.schema[name] for name in key})
    return table.join(kept, on=key, how="semi", maintain_order="left")


def _meanings(results: Results, table: str) -> Mapping[str, tuple[str, str]]:
    """Return unit and meaning of a table's columns, as recorded in its file."""
    columns = json.loads(results.metadata(table).get("columns", "{}"))
    return {name: (one.get("unit", ""), one.get("meaning", "")) for name, one in columns.items()}


def _inches(width: str | float | None) -> float | None:
    if width is None:
        return None
    remedy = f"{' or '.join(WIDTHS)} (columns of a journal), or millimetres, such as 120"
    if isinstance(width, str) and width in WIDTHS:
        return WIDTHS[width]
    try:
        millimetres = parsed(float, width)
    except ValueError:
        raise UserError("invalid width", key="--width", value=width, remedy=remedy) from None
    if not NARROWEST <= millimetres <= WIDEST:
        remedy = f"from {NARROWEST:g} to {WIDEST:g} mm; {remedy}"
        raise UserError("invalid width", key="--width", value=width, remedy=remedy)
    return millimetres / _INCH


def _unknown(kind: str, tables: Tables) -> UserError:
    near = nearest(kind, known.names(tables))
    remedy = f"{near}\n  all, with what they show: manyseed plot DIR --all"
    return UserError("unknown kind of figure", key="KIND", value=kind, remedy=remedy)


def _why(kind: str, given: FigureTables, paths: SweepPaths) -> str:
    found = known.find(kind)
    if found is not None and found.of and getattr(given, found.of) is None:
        from manyseed.orchestrator.asking.query import how

        return how(paths, found.of)
    if reason := why_not(kind, given):
        if found is None or found.name != "levels" or not (fixed := _fixed(given.tables.cells)):
            return reason
        one = " AND ".join(condition(axis, level) for axis, level in fixed.items())
        return f'{reason}: --where "{one}"'
    return "its values are undefined or all 0, or it compares more datasets or runs than there are"


def _fixed(cells: pl.DataFrame) -> dict[str, object]:
    """Return a level of each axis in the way of `levels`: that with most classifiers and levels."""
    found: dict[str, object] = {}
    shown = shown_axis(cells)
    for axis in in_the_way(cells) if shown else ():
        of_level = {level: cells.filter(pl.col(axis) == level) for level in levels(cells, axis)}
        sizes = {
            level: (own["classifier"].n_unique(), own[shown].n_unique())
            for level, own in of_level.items()
        }
        found[axis] = most = max(sizes, key=sizes.__getitem__)  # the first of equal ones
        cells = of_level[most]
    return found
