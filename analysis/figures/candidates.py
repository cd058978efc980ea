"""The runs nearest to and furthest from their leave-one-out ensemble: eCDFs of both sides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from manyseed.analysis.counts import counted
from manyseed.analysis.figures.colours import colour
from manyseed.analysis.figures.described import not_drawn, panel_per_cell, titles, with_names
from manyseed.analysis.figures.margins import axis_of_margins, begin, places_of
from manyseed.analysis.figures.style import Handle, Plot, legend, styled
from manyseed.analysis.tables.rows import CELL_KEY, REPEAT_KEY
from manyseed.analysis.tables.schema import Tables

MAX_PANELS = 9  # one cell each
IN_WORDS = 3  # panels whose runs the caption describes, those that differ most
TAIL = 0.002  # share of the points at each end where eCDFs are not drawn
ENDS = ("nearest", "furthest")
_SHARES = tuple(f"{end}{suffix}" for end in ENDS for suffix in ("", "_loo"))
DESCRIBED = {
    "accuracy": "accuracy",
    "churn_loo_ensemble": "churn against the others",
    "alpha_hat": "α̂",
}


@styled
def candidates(table: pl.DataFrame, tables: Tables) -> Plot | None:
    """Draw the eCDFs of two runs of each cell and of their leave-one-out ensembles.

    RKS24, figure 2. Runs are taken from the first repeat with margins.

    Parameters
    ----------
    table : polars frame
        `analysis.questions.margins`.
    tables : Tables
        One snapshot per cell.
    """
    if "nearest_run" not in table.columns:  # written by an earlier version
        return None
    key = [name for name in CELL_KEY if name in tables.cells.columns]
    own = table.filter(pl.col("nearest_run").is_not_null(), pl.col("values") == "finite")
    own = own.join(tables.cells, on=key, how="semi", maintain_order="left")
    own = own.filter(pl.col("repeat_index") == pl.col("repeat_index").min().over(key))
    cells = tables.cells.filter(pl.col("cell").is_in(own["cell"].unique().implode()))
    if cells.is_empty():
        return None
    figure, axes, left = panel_per_cell(cells, MAX_PANELS, "share of test points below")
    named = titles(cells)
    handles: dict[str, Handle] = {}
    descriptions = list[tuple[float, str]]()
    for cell, axis in axes.items():
        rows = own.filter(cell=cell).sort("bin")
        handles = _draw(axis, rows)
        text = f"{named[cell]}: {_described(rows, tables.runs)}"
        descriptions.append((_apart(rows, "furthest"), text))
    most = sorted(descriptions, key=lambda one: -one[0])[:IN_WORDS]
    told = "; ".join(text for _, text in most)
    if len(descriptions) > IN_WORDS:
        told = f"Those that differ most are {told}"
    legend(figure, handles, "")
    return Plot(
        "candidates",
        "Runs beside their leave-one-out ensemble",
        "eCDFs of logit gaps in the first repeat of each cell, one panel per cell: the runs "
        "nearest to and furthest from the average logit gaps of all other runs, by the largest "
        "difference between eCDFs. Dashed: these averages. "
        f"{told}. n = {counted(2 * len(axes), 'run')}.{not_drawn(left)}",
        2 * len(axes),
        figure,
        data=with_names(
            own.filter(pl.col("cell").is_in([*axes]))
            .sort("cell", "bin")
            .select("cell", "repeat_index", *(f"{end}_run" for end in ENDS), begin(), *_SHARES),
            cells,
        ),
    )


def _draw(axis: Axes, own: pl.DataFrame) -> dict[str, Handle]:
    """Draw four eCDFs and return the legend's entries."""
    first, last = int(own["bin"][0]), int(own["bin"][-1])
    places = places_of(first, last)
    handles: dict[str, Handle] = {}
    seen = np.zeros(places.size, dtype=bool)
    for index, end in enumerate(ENDS):
        for column, name, style in (
            (end, f"{end} run", "-"),
            (f"{end}_loo", f"average of all runs but the {end}", (0, (4, 2))),
        ):
            steps = np.zeros(places.size)
            steps[own["bin"].to_numpy() - first + 1] = own[column].to_numpy()
            below = np.cumsum(steps)
            seen |= (below > TAIL) & (below < 1 - TAIL)
            [handles[name]] = axis.plot(
                places, below, color=colour(index), linewidth=1.2, linestyle=style
            )
    drawn = np.flatnonzero(seen)
    ends = places[[max(drawn[0] - 1, 0), min(drawn[-1] + 1, places.size - 1)]]
    axis.set_xlim(*ends)
    axis.set_ylim(0, 1)
    axis_of_margins(axis, *ends)
    axis.set_xlabel("logit gap")
    return handles


def _apart(own: pl.DataFrame, end: str) -> float:
    """Return the largest difference between the eCDFs of a run and of its ensemble."""
    return float((own[end] - own[f"{end}_loo"]).cum_sum().abs().max())  # type: ignore[arg-type]


def _described(own: pl.DataFrame, runs: pl.DataFrame) -> str:
    """Say which runs these are, how far they are from the others, and their metrics."""
    key = own.select(name for name in REPEAT_KEY if name in runs.columns).row(0, named=True)
    words = []
    for end in ENDS:
        run = runs.filter(run_index=own[f"{end}_run"][0], **key)
        values: Mapping[str, Any] = run.row(0, named=True) if run.height else {}
        known = [
            f"{name} {values[column]:.3f}"
            for column, name in DESCRIBED.items()
            if values.get(column) is not None
        ]
        address = f"{key['cell']}:{key['repeat_index']}:{own[f'{end}_run'][0]}"
        words.append(", ".join([f"run {address} differs by {_apart(own, end):.3f}", *known]))
    return " and ".join(words)
