"""All cells at a glance, means and differences with intervals, ranks, and correlations."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from manyseed.analysis.axes import AXES
from manyseed.analysis.counts import counted, fixed
from manyseed.analysis.figures.kind import kind
from manyseed.analysis.figures.labels import (
    GREY,
    NOTHING,
    SEPARATOR,
    among,
    colour,
    described,
    differing,
    labelled,
    marker,
    varying,
)
from manyseed.analysis.figures.style import MANY, PANEL, Plot, comparable, wide, wrapped
from manyseed.analysis.questions.standings import standings
from manyseed.analysis.tables.rows import Tables

WIDTH = 8.6  # inches
ROW = 0.17  # inches per dataset
LABELLED = 40  # most columns that have labels
DATASETS = 80  # most rows
WIDEST, NARROW = 6, 9  # panels side by side if they have at most this many columns; else 4

QUANTITIES = {
    "accuracy_mean": ("Accuracy", "accuracy, mean over repeats"),
    "accuracy_std": ("Spread between seeds", "± seeds: standard deviation within repeats, pooled"),
    "ec_local_mean": ("Local error consistency", "mean over repeats whose runs vary"),
    "alpha_hat_mean": ("α̂", "mean over repeats whose runs vary, to be read with δ (Summary)"),
}
"""Columns of the table of cells that have an overview: title, and the meaning of colours."""


@kind(
    "overview-{}",
    chapter="overview",
    least=MANY,
    name={
        "accuracy_mean": "mean accuracy of all cells, one field each",
        "accuracy_std": "spread between seeds of all cells",
        "ec_local_mean": "local error consistency of all cells",
        "alpha_hat_mean": "mean α̂ of all cells",
    },
)
def overview(cells: pl.DataFrame, name: str) -> Plot | None:
    """Draw a column of the table of cells: one row per dataset, one panel per classifier.

    None with a single dataset, if no cell has a value, or if α̂ is 0 everywhere.
    """
    shown = cells.filter(pl.col(name).is_not_null())
    datasets = cells["dataset"].cast(pl.String).unique().sort().to_list()[:DATASETS]
    if shown.is_empty() or len(datasets) < 2:
        return None
    if name == "alpha_hat_mean" and float(shown[name].max()) < NOTHING:  # type: ignore[arg-type]
        return None
    named = cells.join(described(cells), on="cell").with_columns(
        pl.col("dataset", "classifier").cast(pl.String)
    )
    columns = named.sort("cell")["_of"].unique(maintain_order=True).to_list()
    classifiers = named["classifier"].unique().sort().to_list()
    apart = bool(differing(cells))
    panels = classifiers if apart else [""]
    across = columns if apart else classifiers
    key = "_of" if apart else "classifier"
    values = {
        (row["classifier"] if apart else "", row["dataset"], row[key]): row[name]
        for row in named.iter_rows(named=True)
    }
    beside = min(len(panels), WIDEST if len(across) <= NARROW else 4)
    deep = -(-len(panels) // beside)
    letters = max(map(len, across)) if len(across) <= LABELLED else 0
    tall = deep * (0.35 + ROW * max(len(datasets), 3)) + 0.5 + min(letters, 40) * 0.065
    figure = Figure(figsize=(wide(WIDTH), tall))
    figure.set_layout_engine("constrained", h_pad=0.05)
    axes = figure.subplots(deep, beside, squeeze=False, sharex=True, sharey=True)
    known = shown[name].drop_nulls().to_numpy()
    ends = {"vmin": float(known.min()), "vmax": float(known.max())}
    for index, (axis, panel) in enumerate(zip(axes.flat, panels, strict=False)):
        field = np.array(
            [[values.get((panel, one, other)) for other in across] for one in datasets], dtype=float
        )
        image = axis.imshow(field, aspect="auto", interpolation="none", cmap="cividis", **ends)
        axis.grid(visible=False)
        axis.set_title(panel)
        axis.set_yticks(range(len(datasets)), [textwrap.shorten(one, 30) for one in datasets])
        last = index + beside >= len(panels)
        labels = [textwrap.shorten(one, 40) for one in across] if letters and last else []
        axis.set_xticks(range(len(labels)), labels, rotation=90)
        axis.tick_params(length=0, labelbottom=last)
        axis.spines[["left", "bottom"]].set_visible(False)
    for extra in axes.flat[len(panels) :]:
        extra.remove()
    bar = figure.colorbar(image, ax=list(axes.flat[: len(panels)]), shrink=0.8, aspect=30, pad=0.01)
    bar.outline.set_edgecolor(GREY)
    if ends["vmin"] == ends["vmax"]:
        bar.set_ticks([ends["vmin"]])  # else made-up values on either side, such as a negative sd
    title, meaning = QUANTITIES[name]
    varied = SEPARATOR.join(differing(cells)).replace("_", " ")
    return Plot(
        f"overview-{name.replace('_', '-')}",
        f"{title} of all cells",
        f"Each field is a cell; colour: {meaning}. Rows: datasets; "
        f"columns: {varied if apart else 'classifiers'}"
        f"{', in the order of the summary' if not letters else ''}. Empty: not planned, not "
        f"finished or undefined. n = {counted(shown.height, 'cell')}.",
        shown.height,
        figure,
        data=shown.filter(pl.col("dataset").cast(pl.String).is_in(datasets)).select(
            "cell", "dataset", "classifier", *differing(cells), name
        ),
    )


PER_ROW, PER_LETTER = 0.17, 0.068  # inches
TALLEST = 11.0  # inches of a figure; further datasets are in figures of their own
OVER = {"test sets": "seeds and new test sets of these data", "seeds": "seeds, on the test set"}
"""What intervals are over, by the column that says it."""


@kind(
    "means",
    "mean accuracy of each cell with its 95 % interval; means-ece: of another metric of runs",
    chapter="overview",
)
def means(averages: pl.DataFrame, runs: pl.DataFrame) -> list[Plot]:
    """Draw the mean of a metric in each cell with its interval, a panel per dataset.

    `averages`: one row per cell, with the columns cell, dataset, classifier, those of axes in which
    cells differ, metric, mean, low, high, over, n_runs and row, its label within the dataset.
    """
    known = averages.filter(pl.col("mean").is_not_null()) if averages.width else averages
    if known.is_empty():
        return []
    metric = labelled(known["metric"][0])
    classifiers = among(averages["classifier"].unique().sort().to_list())
    found: list[Plot] = []
    for part, figure, places in _panels(known, metric):
        for axis, place, row in places:
            index = classifiers.index(row["classifier"])
            _interval(axis, place, (row["low"], row["high"]), colour(index))
            mark = marker(index)
            axis.plot([row["mean"]], [place], ls="", ms=4.5, color=colour(index), marker=mark)
        single, n = part["low"].null_count(), int(part["n_runs"].sum())
        lacking = f"; {counted(single, 'mean')} without one" if 0 < single < part.height else ""
        copies = int(runs.filter(pl.col("cell").is_in(part["cell"].implode()))["identical"].sum())
        found.append(
            Plot(
                *_named("means", known["metric"][0], len(found)),
                f"Dots: mean {metric} of each cell, over runs and test sets. {_rows(part)}"
                f"{lines_in_words(part)}{lacking}. n = {counted(n, 'run')}{copied(copies)}.",
                n,
                figure,
                data=part.drop("row"),
            )
        )
    return found


@kind(
    "differences",
    "differences between classifiers with their 95 % intervals, as compare judges them; "
    "differences-ece: of another metric of runs",
    chapter="overview",
)
def differences(differences: pl.DataFrame) -> list[Plot]:
    """Draw the difference between the cells of each pair, with its intervals, a panel per dataset.

    `differences`: one row per pair, with the columns dataset, metric, a, b, difference, low and
    high, the interval that tells which is better, over, what it is over, verdict and
    together_verdict, which side it tells by itself and for all pairs together, seeds_low and
    seeds_high, the one over seeds alone, and row, its label within the dataset.
    """
    if differences.is_empty():
        return []
    metric = labelled(differences["metric"][0])
    found: list[Plot] = []
    for part, figure, places in _panels(differences, f"difference in {metric}"):
        told = part.filter((pl.col("low") > 0) | (pl.col("high") < 0))
        alone = told.filter(pl.col("verdict") != pl.col("together_verdict")).height
        for axis, place, row in places:
            is_told = row["low"] is not None and (row["low"] > 0 or row["high"] < 0)
            look = colour(0) if is_told else GREY
            _interval(axis, place, (row["low"], row["high"]), look)
            _interval(axis, place, (row["seeds_low"], row["seeds_high"]), look, thick=True)
            inside = look if is_told else "white"
            at = [row["difference"]], [place]
            (dot,) = axis.plot(*at, ls="", ms=5, marker="o", color=look, markerfacecolor=inside)
            if is_told and row["verdict"] != row["together_verdict"]:
                dot.set(fillstyle="left", markerfacecoloralt="white")
        for axis in figure.axes:
            axis.axvline(0, color="black", linewidth=0.8, zorder=1)
        halves = "half-filled: alone, not for all pairs together; "
        both = part["seeds_low"].count() and "test sets" in part["over"].to_list()
        thick = "; thick lines: over seeds alone, on these test sets" if both else ""
        found.append(
            Plot(
                *_named("differences", differences["metric"][0], len(found)),
                f"Dots: mean {metric} of the first minus that of the second, on the test sets that "
                f"both have. {_rows(part)}{lines_in_words(part)}{thick}. Filled: the interval is "
                f"on one side of 0, so the difference is told; {halves * bool(alone)}hollow: it is "
                f"not. n = {counted(part.height, 'pair')} of cells, {told.height - alone:,} told"
                f"{f', {alone:,} alone' if alone else ''}.",
                part.height,
                figure,
                data=part.drop("row"),
            )
        )
    return found


def _named(name: str, metric: str, before: int) -> tuple[str, str]:
    """Return the name and the title of the figure that comes after so many."""
    number = f"-{before + 1}" if before else ""
    words = {"means": "Mean", "differences": "Differences in"}[name]
    title = f"{words} {labelled(metric)}{f', continued ({before + 1})' if before else ''}"
    return f"{name}-{metric.replace('_', '-')}{number}", title


def _rows(part: pl.DataFrame) -> str:
    """Name the axes whose levels are in the labels of rows; empty without any."""
    by = (
        part["by"].unique().sort().str.split(", ").explode().to_list()
        if "by" in part.columns
        else []
    )
    known = [*by, *(axis for axis in AXES if axis in part.columns and axis != "dataset")]
    known = [*dict.fromkeys(["classifier", *known])]
    return f"Rows: {SEPARATOR.join(map(labelled, known))}. " if len(known) > 1 else ""


def copied(copies: int) -> str:
    """Say how many runs that count are identical copies, which a mean over test sets bears."""
    return f", {copies:,} of them identical copies" if copies else ""


def lines_in_words(part: pl.DataFrame) -> str:
    """Say what the intervals of means or differences are over."""
    overs = " or ".join(OVER[over] for over in part["over"].drop_nulls().unique().sort())
    return f"Lines: 95 % intervals over {overs}, each by itself" if overs else "No intervals"


def _panels(
    table: pl.DataFrame, label: str
) -> Iterator[tuple[pl.DataFrame, Figure, list[tuple[Axes, int, dict[str, Any]]]]]:
    """Yield the rows of each figure, the figure, and the panel, place and values of each row.

    There is a panel for each dataset. Panels side by side share their rows, and all panels their
    horizontal axis unless one of them would be flat.
    """
    datasets = table["dataset"].unique().sort().to_list()
    longest = max(map(len, table["row"].to_list()))
    letters = min(longest, int(wide() / 2.2 / PER_LETTER))
    room = wide() - letters * PER_LETTER
    most = max(1, min(3, int(room / PANEL)))
    beside = min(2, most) if len(datasets) == 4 else min(len(datasets), most)
    lines = [datasets[at : at + beside] for at in range(0, len(datasets), beside)]
    labels = [
        table.filter(pl.col("dataset").is_in(line))["row"].unique(maintain_order=True).to_list()
        for line in lines
    ]
    names = [[wrapped(row, letters) for row in rows] for rows in labels]
    tall = [0.65 + PER_ROW * max(sum(n.count("\n") + 1 for n in own), 2) for own in names]
    ends = [end for end in ("low", "high", "mean", "difference") if end in table.columns]
    alike = comparable(
        pl.concat([own[end].drop_nulls() for end in ends]) for own in table.partition_by("dataset")
    )
    first = 0
    while first < len(lines):
        last = first + 1
        while last < len(lines) and sum(tall[first : last + 1]) <= TALLEST:
            last += 1
        figure = Figure(figsize=(wide(), sum(tall[first:last])))
        figure.set_layout_engine("constrained", h_pad=0.06)
        grid = figure.subplots(
            *(last - first, beside),
            squeeze=False,
            sharex=alike,
            sharey="row",
            height_ratios=tall[first:last],
        )
        places: list[tuple[Axes, int, dict[str, Any]]] = []
        for line, rows, own, axes in zip(
            lines[first:last], labels[first:last], names[first:last], grid, strict=True
        ):
            for axis, dataset in zip(axes, line, strict=False):
                axis.set_title(wrapped(dataset, max(12, int(room / beside / 0.085))))
                axis.grid(visible=True, axis="x")
                axis.grid(visible=False, axis="y")
                axis.locator_params(axis="x", nbins=4)
                axis.tick_params(axis="x", labelbottom=True)
                axis.tick_params(axis="y", length=0)
                axis.set_xlabel(label)
                places += [
                    (axis, rows.index(row["row"]), row)
                    for row in table.filter(dataset=dataset).iter_rows(named=True)
                ]
            axes[0].set_yticks(range(len(rows)), own)
            axes[0].set_ylim(len(rows) - 0.5, -0.5)
            for extra in axes[len(line) :]:
                extra.remove()
        shown = [dataset for line in lines[first:last] for dataset in line]
        yield table.filter(pl.col("dataset").is_in(shown)), figure, places
        first = last


def _interval(
    axis: Axes,
    place: int,
    ends: tuple[float | None, float | None],
    look: str,
    *,
    thick: bool = False,
) -> None:
    """Draw an interval, if there is one."""
    low, high = ends
    if low is not None and high is not None:
        axis.plot([low, high], [place, place], color=look, linewidth=2.6 if thick else 1.1)


RANK = 0.24  # inches per classifier
OF_WINS = 0.72  # inches for the number of wins


@kind("mean-ranks", "ranks of classifiers across datasets", chapter="overview")
def mean_ranks(cells: pl.DataFrame) -> Plot | None:
    """Draw the mean rank of each classifier, the best on top, and the critical difference."""
    found = standings(cells)
    if found is None:
        return None
    classifiers = among(cells["classifier"].cast(pl.String).unique().sort().to_list())
    tall = 0.95 + RANK * len(found.rows)
    figure = Figure(figsize=(wide(), tall))
    axis = figure.subplots()
    beside = max(len(row.classifier) for row in found.rows) * 0.068 + 0.15
    figure.subplots_adjust(
        left=min(beside / wide(), 0.5),
        right=1 - OF_WINS / wide(),
        top=1 - 0.3 / tall,
        bottom=0.5 / tall,
    )
    best = found.rows[0].rank
    axis.axvspan(best, best + found.critical, color="#808080", alpha=0.15, linewidth=0)
    for place, row in enumerate(found.rows):
        index = classifiers.index(row.classifier)
        axis.plot([row.rank], [place], ls="", color=colour(index), marker=marker(index))
        wins = f"{row.wins} {'win' if row.wins == 1 else 'wins'}"
        axis.annotate(
            wins, (1, place), xycoords=("axes fraction", "data"), xytext=(6, 0),
            textcoords="offset points", va="center",
        )  # fmt: skip
    axis.set_yticks(range(len(found.rows)), [row.classifier for row in found.rows])
    axis.set_ylim(len(found.rows) - 0.5, -0.5)
    axis.set_xlim(0.8, len(found.rows) + 0.2)
    axis.set_xticks(range(1, len(found.rows) + 1))
    axis.tick_params(axis="y", length=0)
    axis.grid(visible=True, axis="x")
    axis.grid(visible=False, axis="y")
    axis.set_xlabel("mean rank by accuracy, 1 is best")
    return Plot(
        "mean-ranks",
        "Ranks across datasets",
        "Mean rank of each classifier by mean accuracy over the cells that all of them have, and "
        "the number of datasets on which it is best or tied for best. Grey: the critical "
        f"difference from the best rank, {fixed(found.critical, 2)} (Nemenyi, 5 %); classifiers "
        "within "
        "it may be behind by chance. Datasets are taken as independent draws. "
        f"n = {counted(found.datasets, 'dataset')}.",
        found.datasets,
        figure,
        data=pl.DataFrame(
            [(row.classifier, row.rank, row.wins) for row in found.rows],
            schema=["classifier", "mean_rank", "wins"],
            orient="row",
        ).with_columns(critical_difference=pl.lit(found.critical)),
    )


METRICS = (
    *("accuracy", "train_accuracy", "alpha_hat", "ks_distance", "churn_mean", "churn_ensemble"),
    *("ece", "log_likelihood", "brier", "aurc", "fit_seconds"),
)
KEY = ("cell", "repeat_index")
FEWEST = 3  # runs of a repeat needed
LEAST = 3  # metrics needed
WIDE = 2  # panels side by side
TALL, PER_METRIC = 0.95, 0.24  # inches for a panel's labels, and per metric


def within_repeats(runs: pl.DataFrame, names: list[str]) -> tuple[NDArray[np.float64], int]:
    """Return Spearman's correlations of metrics within repeats, pooled, and the number of runs.

    Each metric is ranked within its repeat (ties get their mean rank) and centred, so that
    differences between cells and test sets do not count. The correlation is Pearson's of the
    centred ranks, over the runs that have both metrics.

    `runs`: rows of the table of runs whose repeats have varying runs. `names`: columns. Returns
    `correlations`, float array (metric, metric): NaN if either metric does not vary. `n`: runs in
    repeats of at least three.
    """
    kept = runs.filter(pl.len().over(KEY) >= FEWEST)
    result = np.full((len(names), len(names)), np.nan)
    for i, one in enumerate(names):
        for j, other in enumerate(names[: i + 1]):
            both = kept.filter(pl.col(one).is_finite() & pl.col(other).is_finite())
            left = both.select(
                (pl.col(name).rank("average") - pl.col(name).rank("average").mean())
                .over(KEY)
                .alias(f"_{side}")
                for side, name in enumerate((one, other))
            ).to_numpy()
            squares = np.square(left).sum(axis=0)
            if left.shape[0] >= FEWEST and (squares > 0).all():
                result[i, j] = result[j, i] = left.prod(axis=1).sum() / np.sqrt(squares.prod())
    return result, kept.height


@kind(
    "correlations",
    "rank correlations between metrics of runs, within repeats",
    chapter="correlations",
)
def correlations(tables: Tables) -> Plot | None:
    """Draw rank correlations between the metrics of runs, one panel per classifier.

    None with fewer than `LEAST` metrics: a single number is no figure.
    """
    runs = varying(tables.runs.filter(~pl.col("identical")), tables.repeats)
    names = [
        name
        for name in METRICS
        if name in runs.columns and runs[name].drop_nulls().drop_nans().n_unique() > 1
    ]
    if len(names) < LEAST:
        return None
    found = {}
    for classifier in runs["classifier"].cast(pl.String).unique().sort().to_list():
        values, n = within_repeats(runs.filter(classifier=classifier), names)
        if n and np.isfinite(values[np.tril_indices(len(names), -1)]).any():
            found[classifier] = values, n
    if not found:
        return None
    beside = min(WIDE if wide() > 5 else 1, len(found))
    deep = -(-len(found) // beside)
    figure = Figure(figsize=(wide(), deep * (TALL + PER_METRIC * len(names)) + 0.4))
    figure.set_layout_engine("constrained")
    axes = figure.subplots(deep, beside, squeeze=False)
    labels = [labelled(name) for name in names]
    datasets = runs["dataset"].cast(pl.String).unique().to_list()
    on = f"{datasets[0]} × " if len(datasets) == 1 else ""
    for axis, (classifier, (values, n)) in zip(axes.flat, found.items(), strict=False):
        below = np.where(np.tri(len(names), k=-1, dtype=bool), values, np.nan)
        image = axis.imshow(below[1:, :-1], cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
        axis.grid(visible=False)
        axis.set_title(f"{on}{classifier} (n = {n:,})")
        axis.set_yticks(range(len(labels) - 1), labels[1:])
        axis.set_xticks(range(len(labels) - 1), labels[:-1], rotation=90)
        axis.tick_params(length=0)
        axis.spines[["left", "bottom"]].set_visible(False)
        for row, column in zip(*np.nonzero(np.isfinite(below[1:, :-1])), strict=True):
            value = below[1 + row, column]
            text = "0" if abs(value) < 0.05 else f"{value:.1f}".replace("-", "−").replace("0.", ".")
            look = "white" if abs(value) > 0.6 else "#1a1c1f"
            axis.text(column, row, text, ha="center", va="center", color=look, fontsize=6.5)
    for extra in axes.flat[len(found) :]:
        extra.remove()
    bar = figure.colorbar(image, ax=list(axes.flat[: len(found)]), shrink=0.6, aspect=30, pad=0.01)
    bar.outline.set_edgecolor(GREY)
    total = sum(n for _, n in found.values())
    return Plot(
        "correlations",
        "Correlations between metrics",
        "Spearman’s rank correlation between metrics of runs within repeats: each metric is ranked "
        "among the runs of its repeat and ranks of all repeats are pooled, so that differences "
        "between cells and test sets do not count. Blue: positive; red: negative; empty: "
        f"undefined. n = {counted(total, 'run')} in repeats whose runs vary.",
        total,
        figure,
        data=pl.DataFrame(
            [
                (classifier, names[row], names[column], float(values[row, column]), n)
                for classifier, (values, n) in found.items()
                for row, column in zip(*np.tril_indices(len(names), -1), strict=True)
            ],
            schema=["classifier", "metric", "other", "correlation", "n_runs"],
            orient="row",
        ).with_columns(pl.col("correlation").fill_nan(None)),
    )
