"""Distribution of margins: histograms, and runs beside their leave-one-out ensemble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from numpy.typing import NDArray

from manyseed.analysis.counts import counted, fixed
from manyseed.analysis.figures.kind import kind
from manyseed.analysis.figures.labels import colour, not_drawn, titles, with_names
from manyseed.analysis.figures.style import (
    MAX_PANELS,
    Handle,
    Plot,
    from_zero,
    legend,
    panel_per_cell,
)
from manyseed.analysis.questions.margins import EDGES, SCALE, over_repeats
from manyseed.analysis.tables.rows import CELL_KEY, REPEAT_KEY, Tables

TICKS = (0.1, 1, 10, 100, 1000, 10_000)
ENDS = 0.0005  # outer bins whose envelope stays below this share are not drawn
_WHOLE = "average of the runs"


@kind(
    "margins",
    "histograms of margins with the envelope of runs, a panel per cell",
    chapter="margins",
)
def margins(margins: pl.DataFrame, cells: pl.DataFrame) -> Plot | None:
    """Draw mean and envelope of the histograms of runs, one panel per cell (RKS, figure 4).

    `margins`: `analysis.questions.margins`. `cells`: the table of cells, one snapshot each.
    """
    key = [name for name in CELL_KEY if name in cells.columns]  # earlier versions had one snapshot
    own = margins.join(cells, on=key, how="semi", maintain_order="left")
    shown = over_repeats(own, ["cell"])
    finite = shown.filter(values="finite")
    drawn = cells.filter(pl.col("cell").is_in(finite["cell"].unique().implode()))
    if drawn.is_empty():
        return None
    figure, axes, left = panel_per_cell(drawn, MAX_PANELS, "share of test points")
    handles: dict[str, Handle] = {}
    for cell, axis in axes.items():
        handles |= _draw(axis, finite.filter(cell=cell))
    from_zero([*axes.values()])
    legend(figure, {name: handles[name] for name in _ORDER if name in handles}, "")
    repeats = own.select(*REPEAT_KEY, "n_runs").unique()
    n = int(repeats["n_runs"].sum())
    whole = f" Dashed: the {_WHOLE}' logit gaps, as one model." if _WHOLE in handles else ""
    return Plot(
        "margins",
        "Distribution of margins",
        "Histograms of the test points' margins (logit gap with two classes, true-class margin "
        "with more), one panel per cell. Line: share of the points in a bin, mean over runs; band: "
        f"smallest and largest share of any run.{whole} Bins have equal width on the axis, which "
        "is linear near 0 and logarithmic beyond 1; with two classes, points right of 0 are "
        f"predicted as positive. n = {counted(n, 'run')} in {counted(repeats.height, 'repeat')}, "
        f"identical copies left out.{_apart(shown)}{not_drawn(left)}",
        n,
        figure,
        data=with_names(
            finite.filter(pl.col("cell").is_in([*axes]))
            .sort("cell", "bin")
            .select("cell", begin(), "share", "share_min", "share_max", "ensemble"),
            drawn,
        ),
    )


_ORDER = ("mean over runs", "smallest to largest", _WHOLE)


def _apart(shown: pl.DataFrame) -> str:
    """Say how many margins are NaN or infinite."""
    apart = shown.filter(pl.col("values") != "finite", pl.col("share") > 0)
    if apart.is_empty():
        return ""
    cells = apart["cell"].n_unique()
    worst = apart.group_by("cell").agg(pl.col("share").sum())["share"].to_numpy().max()
    have = "1 cell has" if cells == 1 else f"{cells:,} cells have"
    return f" NaN and infinite margins are not drawn: {have} some, up to {worst:.1%} of the points."


def _draw(axis: Axes, own: pl.DataFrame) -> dict[str, Handle]:
    """Draw the histograms of a cell and return the legend's entries."""
    seen = own.filter((pl.col("share_max") >= ENDS) | (pl.col("ensemble") >= ENDS))
    seen = own if seen.is_empty() else seen
    first, last = int(seen["bin"].to_numpy().min()), int(seen["bin"].to_numpy().max())
    places = places_of(first, last)
    mean, least, most, whole = (
        _dense(own, name, first, last) for name in ("share", "share_min", "share_max", "ensemble")
    )
    band = axis.stairs(
        most, places, baseline=least, fill=True, color=colour(0), alpha=0.25, linewidth=0
    )
    line = axis.stairs(mean, places, color=colour(0), linewidth=1.2)
    handles: dict[str, Handle] = {_ORDER[0]: line, _ORDER[1]: band}
    if own["ensemble"].null_count() < own.height:
        handles[_WHOLE] = axis.stairs(whole, places, color=colour(1), linewidth=1, ls=(0, (4, 2)))
    axis.axvline(0, color="black", linewidth=0.6)
    axis_of_margins(axis, places[0], places[-1])
    axis.set_xlabel("margin")
    return handles


def axis_of_margins(axis: Axes, first: float, last: float) -> None:
    """Label an axis with margins, between two places on it."""
    signed = [sign * tick for tick in TICKS for sign in (1, -1)]
    inside = [tick for tick in signed if first <= _at(tick) <= last]
    far = any(abs(tick) >= 1 for tick in inside)
    marks = [tick for tick in inside if abs(tick) >= 1 or not far]
    marks += [0.0] if first <= 0 <= last else []
    names = [f"{tick:g}".replace("-", "\N{MINUS SIGN}") for tick in marks]
    axis.set_xticks([_at(tick) for tick in marks], names)


def begin() -> pl.Expr:
    """Return the lower edge of each `bin` as `begin`, in units of the margin; first -inf."""
    ends = [-np.inf, *EDGES.tolist()]
    return (
        pl.col("bin").replace_strict(range(len(ends)), ends, return_dtype=pl.Float64).alias("begin")
    )


def places_of(first: int, last: int) -> NDArray[np.float64]:
    """Return the edges of bins on the axis; unbounded bins are drawn as wide as the others.

    `first` and `last`: numbers of bins. Returns float64 array (last - first + 2,).
    """
    inner = np.arcsinh(SCALE * EDGES)
    width = inner[-1] - inner[-2]
    every = np.concatenate([[inner[0] - width], inner, [inner[-1] + width]])
    return np.asarray(every[first : last + 2])


def _dense(own: pl.DataFrame, name: str, first: int, last: int) -> NDArray[np.float64]:
    found = np.zeros(last - first + 1)
    kept = own.filter(pl.col("bin").is_between(first, last), pl.col(name).is_not_null())
    found[kept["bin"].to_numpy() - first] = kept[name].to_numpy()
    return found


def _at(margin: float) -> float:
    return float(np.arcsinh(SCALE * margin))


MAX_CANDIDATES = 9  # most panels, one cell each
IN_WORDS = 3  # panels whose runs the caption describes, those that differ most
TAIL = 0.002  # share of the points at each end where eCDFs are not drawn
RUNS = ("nearest", "furthest")
_SHARES = tuple(f"{end}{suffix}" for end in RUNS for suffix in ("", "_loo"))
DESCRIBED = {
    "accuracy": "accuracy",
    "churn_loo_ensemble": "churn against the others",
    "alpha_hat": "α̂",
}


@kind(
    "candidates",
    "eCDFs of two runs of each cell beside those of their leave-one-out ensembles",
    chapter="margins",
)
def candidates(margins: pl.DataFrame, tables: Tables) -> Plot | None:
    """Draw the eCDFs of two runs of each cell and of their leave-one-out ensembles.

    RKS24, figure 2. Runs are taken from the first repeat with margins.

    `margins`: `analysis.questions.margins`. `tables`: one snapshot per cell.
    """
    if "nearest_run" not in margins.columns:  # written by an earlier version
        return None
    key = [name for name in CELL_KEY if name in tables.cells.columns]
    own = margins.filter(pl.col("nearest_run").is_not_null(), pl.col("values") == "finite")
    own = own.join(tables.cells, on=key, how="semi", maintain_order="left")
    own = own.filter(pl.col("repeat_index") == pl.col("repeat_index").min().over(key))
    cells = tables.cells.filter(pl.col("cell").is_in(own["cell"].unique().implode()))
    if cells.is_empty():
        return None
    figure, axes, left = panel_per_cell(cells, MAX_CANDIDATES, "share of test points below")
    named = titles(cells)
    handles: dict[str, Handle] = {}
    descriptions = list[tuple[float, str]]()
    for cell, axis in axes.items():
        rows = own.filter(cell=cell).sort("bin")
        handles = _draw_ecdfs(axis, rows)
        text = f"{named[cell]}: {_described(rows, tables.runs)}"
        descriptions.append((_difference(rows, "furthest"), text))
    most = sorted(descriptions, key=lambda one: -one[0])[:IN_WORDS]
    told = "; ".join(text for _, text in most)
    if len(descriptions) > IN_WORDS:
        told = f"Those seen to differ most are {told}"
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
            .select("cell", "repeat_index", *(f"{end}_run" for end in RUNS), begin(), *_SHARES),
            cells,
        ),
    )


def _draw_ecdfs(axis: Axes, own: pl.DataFrame) -> dict[str, Handle]:
    """Draw four eCDFs and return the legend's entries."""
    first, last = int(own["bin"][0]), int(own["bin"][-1])
    places = places_of(first, last)
    handles: dict[str, Handle] = {}
    seen = np.zeros(places.size, dtype=bool)
    for index, end in enumerate(RUNS):
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


def _difference(own: pl.DataFrame, end: str) -> float:
    """Return the largest difference between the eCDFs of a run and of its ensemble."""
    return float((own[end] - own[f"{end}_loo"]).cum_sum().abs().max())  # type: ignore[arg-type]


def _described(own: pl.DataFrame, runs: pl.DataFrame, ends: Sequence[str] = RUNS) -> str:
    """Say which runs these are, how far they are from the others, and their metrics."""
    key = own.select(name for name in REPEAT_KEY if name in runs.columns).row(0, named=True)
    words = []
    for end in ends:
        run = runs.filter(run_index=own[f"{end}_run"][0], **key)
        values: Mapping[str, Any] = run.row(0, named=True) if run.height else {}
        known = [
            f"{name} {fixed(values[column], 3)}"
            for column, name in DESCRIBED.items()
            if values.get(column) is not None
        ]
        address = f"{key['cell']}:{key['repeat_index']}:{own[f'{end}_run'][0]}"
        words.append(
            ", ".join([f"run {address} differs by {fixed(_difference(own, end), 3)}", *known])
        )
    return " and ".join(words)


ALIKE = ("alike_near", "alike_far")


def alike_pairs(margins: pl.DataFrame, tables: Tables) -> pl.DataFrame | None:
    """Return the rows of `margins` of pairs that `alike` draws, with α̂ as `_` and its end.

    α̂ of the farther run is the larger one, and not below its resolution. None without such a pair,
    or of an earlier version.
    """
    if "alike_far_run" not in margins.columns or "alpha_hat" not in tables.runs.columns:
        return None  # written by an earlier version
    key = [name for name in CELL_KEY if name in tables.cells.columns]
    own = margins.filter(pl.col("alike_far_run").is_not_null(), pl.col("values") == "finite")
    own = own.join(tables.cells, on=key, how="semi", maintain_order="left")
    own = own.filter(pl.col("repeat_index") == pl.col("repeat_index").min().over(key))
    shared = [name for name in REPEAT_KEY if name in tables.runs.columns and name in own.columns]
    for end in ALIKE:
        levels = tables.runs.select(
            *shared, pl.col("run_index").alias(f"{end}_run"), pl.col("alpha_hat").alias(f"_{end}")
        )
        own = own.join(levels, on=[*shared, f"{end}_run"], how="left", maintain_order="left")
    deltas = tables.repeats.select(
        *(name for name in REPEAT_KEY if name in tables.repeats.columns), _delta="delta"
    )
    own = own.join(
        deltas,
        on=[name for name in shared if name in deltas.columns],
        how="left",
        maintain_order="left",
    )
    far = pl.col("_alike_far")
    own = own.filter(far > pl.col("_alike_near"), ~(far < pl.col("_delta")).fill_null(value=False))
    return None if own.is_empty() else own


@kind(
    "candidates-alike",
    "histograms of two runs alike in accuracy and churn, but not in α̂",
    chapter="margins",
)
def alike(margins: pl.DataFrame, tables: Tables) -> Plot | None:
    """Draw two runs of a cell that accuracy and churn do not tell apart, and α̂ does.

    RKS24, figure 2. Runs are taken from the first repeat with margins, of the cells of
    `alike_pairs`.

    `margins`: `analysis.questions.margins`. `tables`: one snapshot per cell.
    """
    own = alike_pairs(margins, tables)
    if own is None:
        return None
    cells = tables.cells.filter(pl.col("cell").is_in(own["cell"].unique().implode()))
    figure, axes, left = panel_per_cell(cells, MAX_CANDIDATES, "share of test points")
    named = titles(cells)
    handles: dict[str, Handle] = {}
    told = list[tuple[float, str]]()
    for cell, axis in axes.items():
        rows = own.filter(cell=cell).sort("bin")
        seen = rows.filter(pl.max_horizontal(*ALIKE, *(f"{end}_loo" for end in ALIKE)) >= ENDS)
        first, last = int(seen["bin"][0]), int(seen["bin"][-1])
        places = places_of(first, last)
        for index, (end, name) in enumerate(zip(ALIKE, ("small α̂", "large α̂"), strict=True)):
            for column, label, look in (
                (end, f"run of {name}", {"linewidth": 1.2}),
                (
                    f"{end}_loo",
                    f"average of all others, {name}",
                    {"linewidth": 0.9, "ls": (0, (4, 2))},
                ),
            ):
                handles[label] = axis.stairs(
                    _dense(rows, column, first, last), places, color=colour(index), **look
                )
        axis.axvline(0, color="black", linewidth=0.6)
        axis_of_margins(axis, places[0], places[-1])
        axis.set_xlabel("logit gap")
        gain = float(rows["_alike_far"][0] - rows["_alike_near"][0])
        told.append((gain, f"{named[cell]}: {_described(rows, tables.runs, ALIKE)}"))
    from_zero([*axes.values()])
    legend(figure, handles, "")
    words = "; ".join(text for _, text in sorted(told, key=lambda one: -one[0])[:IN_WORDS])
    return Plot(
        "candidates-alike",
        "Runs alike in accuracy and churn, but not in α̂",
        "Histograms of the logit gaps of two runs in the first repeat of each cell, one panel per "
        "cell, whose accuracies and whose churn against the average of all other runs are within "
        "0.005 or one test point, and whose distances from these averages (dashed) differ most. "
        "Cells whose farther run has no larger α̂, or one below its resolution, are left out. "
        f"{words}. n = {counted(2 * len(axes), 'run')}."
        f"{not_drawn(left)}",
        2 * len(axes),
        figure,
        data=with_names(
            own.filter(pl.col("cell").is_in([*axes]))
            .sort("cell", "bin")
            .select(
                *("cell", "repeat_index", *(f"{end}_run" for end in ALIKE)),
                begin(),
                *(f"{end}{suffix}" for end in ALIKE for suffix in ("", "_loo")),
            ),
            cells,
        ),
    )
