"""How classifiers rank across datasets, with the critical difference of ranks."""

from __future__ import annotations

import polars as pl
from matplotlib.figure import Figure

from manyseed.analysis.counts import counted
from manyseed.analysis.figures.colours import colour, marker
from manyseed.analysis.figures.kind import kind
from manyseed.analysis.figures.style import Plot, wide
from manyseed.analysis.questions.standings import standings

WIDTH, ROW = 7.2, 0.24  # inches of the figure, and per classifier
BESIDE = 0.72  # inches for the number of wins


@kind("mean-ranks", "ranks of classifiers across datasets", chapter="overview")
def mean_ranks(cells: pl.DataFrame) -> Plot | None:
    """Draw the mean rank of each classifier, the best on top, and the critical difference."""
    found = standings(cells)
    if found is None:
        return None
    classifiers = cells["classifier"].cast(pl.String).unique().sort().to_list()
    tall = 0.95 + ROW * len(found.rows)
    figure = Figure(figsize=(wide(WIDTH), tall))
    axis = figure.subplots()
    beside = max(len(row.classifier) for row in found.rows) * 0.068 + 0.15
    figure.subplots_adjust(
        left=min(beside / wide(WIDTH), 0.5),
        right=1 - BESIDE / wide(WIDTH),
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
        f"difference from the best rank, {found.critical:.2f} (Nemenyi, 5 %); classifiers within "
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
