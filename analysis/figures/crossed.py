"""Crossed runs by the values of two sources: whether an init is lucky whatever the order."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from manyseed.analysis.counts import counted
from manyseed.analysis.figures.kind import kind
from manyseed.analysis.figures.labels import GREY, NOTHING, first_of_each, not_drawn, titles
from manyseed.analysis.figures.style import MANY, Plot, wide
from manyseed.analysis.questions.crossed import places, sources_of
from manyseed.analysis.tables.rows import IS_CROSSED, PAIR, RUN

WIDTH = 7.2  # inches
MOST = 6  # cells, one row of fields each
QUANTITIES = {"accuracy": "accuracy", "ec_local": "local error consistency", "alpha_hat": "α̂"}
LABELLED = 12  # most values of a source that are all labelled


@kind(
    "crossed",
    "accuracy, error consistency and α̂ of crossed runs, by the values of two sources",
    chapter="sources",
    least=MANY,
)
def crossed(runs: pl.DataFrame, pairs: pl.DataFrame, cells: pl.DataFrame) -> Plot | None:
    """Draw a field per run: its value of the first source down, of the second across.

    Values differ between test sets, so the first one that has runs is shown. A third source is
    averaged over. None without crossed cells.
    """
    own = cells.filter(IS_CROSSED).unique("cell", maintain_order=True)
    held = runs.filter(~pl.col("identical")).join(own.select("cell"), on="cell", how="semi")
    held = held.filter(pl.col("repeat_index") == pl.col("repeat_index").min().over("cell"))
    if held.is_empty():
        return None
    chosen, left = first_of_each(own, MOST)
    known = _placed(_with_consistency(held, pairs), own).filter(pl.col("cell").is_in(chosen))
    fields = known.group_by("cell", "first", "second", maintain_order=True).agg(
        *(pl.col(name).implode().list.mean() for name in QUANTITIES if name in known.columns)
    )
    shown = [name for name in QUANTITIES if name in fields.columns and _differs(fields[name])]
    if not shown:
        return None
    named = titles(own)
    figure = Figure(figsize=(wide(WIDTH), 0.35 + 2.3 * len(chosen)))
    figure.set_layout_engine("constrained")
    axes = figure.subplots(len(chosen), len(shown), squeeze=False)
    for row, cell in zip(axes, chosen, strict=True):
        of_cell = fields.filter(cell=cell)
        sources = str(own.filter(cell=cell)["vary"][0]).split("*")
        first, second = (of_cell[name].to_numpy() for name in ("first", "second"))
        for axis, name in zip(row, shown, strict=True):
            field = np.full((int(first.max()) + 1, int(second.max()) + 1), np.nan)
            field[first, second] = of_cell[name].fill_null(np.nan).to_numpy()
            if np.isnan(field).all():
                axis.remove()
                continue
            image = axis.imshow(field, interpolation="none", cmap="cividis")
            axis.grid(visible=False)
            axis.set_xlabel(sources[1])
            axis.set_ylabel(sources[0])
            for set_ticks, size in zip(
                (axis.set_yticks, axis.set_xticks), field.shape, strict=True
            ):
                set_ticks(range(0, size, 1 if size <= LABELLED else 5))
            axis.tick_params(length=0)
            axis.spines[["left", "bottom"]].set_visible(False)
            bar = figure.colorbar(image, ax=axis, shrink=0.8)
            bar.outline.set_edgecolor(GREY)
            bar.set_label(QUANTITIES[name])
        row[0].set_title(named[cell])
    n = known.height
    crossed_sources = [sources_of(str(vary)) for vary in own["vary"]]
    legends = {
        "ec_local": " Error consistency: the mean over the run's pairs.",
        "alpha_hat": " α̂: against all other runs.",
    }
    said = "".join(legends[name] for name in shown if name in legends)
    third = " A third source is averaged over." if max(crossed_sources) > 2 else ""
    return Plot(
        "crossed",
        "Crossed runs by the values of their sources",
        "Each field is a run, of the first test set: its value of one source down, of another "
        "across. A row that is light throughout is lucky whatever the order; single light fields "
        f"are interactions.{said}{third} n = {counted(n, 'run')}.{not_drawn(left)}",
        n,
        figure,
        data=fields,
    )


def _differs(values: pl.Series) -> bool:
    known = values.drop_nulls()
    return bool(known.len() > 1 and float(known.max() or 0.0) > NOTHING)  # type: ignore[arg-type]


def _with_consistency(runs: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Return runs with their mean local error consistency, if pairs are listed."""
    if "ec_local" not in pairs.columns:
        return runs
    ends = pl.concat(
        pairs.select(*PAIR[:2], pl.col(side).alias("run_index"), "ec_local")
        for side in ("run_i", "run_j")
    )
    means = ends.group_by(RUN).agg(pl.col("ec_local").drop_nulls().mean())
    means = means.with_columns(pl.col(name).cast(runs.schema[name]) for name in RUN)
    return runs.join(means, on=RUN, how="left", maintain_order="left")


def _placed(runs: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Return runs with their values of the first two sources."""
    parts = []
    for cell, vary in cells.select("cell", pl.col("vary").cast(pl.String)).iter_rows():
        own = runs.filter(cell=cell).sort("run_index")
        if own.is_empty():
            continue
        number, sources = own["run_index"].to_numpy(), sources_of(vary)
        values = np.array(places(sources, round((int(number.max()) + 1) ** (1 / sources)) + 1))
        where = values[number]
        parts.append(
            own.with_columns(
                pl.Series("first", where[:, 0].tolist(), pl.UInt16),
                pl.Series("second", where[:, 1].tolist(), pl.UInt16),
            )
        )
    return pl.concat(parts)
