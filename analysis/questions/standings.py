"""Classifiers ranked across datasets, on the cells that all of them have.

On each dataset, classifiers are ranked by mean accuracy over the cells that all of them have; ties
are averaged. Two mean ranks differ beyond chance if they are at least the critical difference of
Nemenyi's test apart: q √(k (k + 1) / 6 N), with q the quantile of the range of k standard normal
values over √2, and N datasets. It takes datasets as independent draws from a population and is
valid for many of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import combinations

import numpy as np
import polars as pl

from manyseed.analysis.counts import counted, fixed
from manyseed.analysis.options import CONFIDENCE
from manyseed.analysis.questions.classifiers import block
from manyseed.analysis.questions.quantiles import average_ranks, range_quantile
from manyseed.analysis.questions.question import LINE, Answer, Evidence, first_ones, shortest
from manyseed.analysis.questions.usual import usual_cells

ENOUGH = 10
"""Datasets below which the distribution behind critical differences is a rough approximation."""

LISTED = 3


@dataclass(frozen=True, slots=True)
class Standing:
    """Mean rank of one classifier, and on how many datasets it is best or tied for best."""

    classifier: str
    rank: float
    wins: int


@dataclass(frozen=True, slots=True)
class Standings:
    """Classifiers by mean rank.

    `rows`: the best first. `critical`: mean ranks that differ by less may do so by chance. `apart`,
    tuple of (str, str): pairs of classifiers that differ by at least that much, the better one
    first.
    """

    rows: tuple[Standing, ...]
    datasets: int
    critical: float
    apart: tuple[tuple[str, str], ...]


def standings(cells: pl.DataFrame) -> Standings | None:
    """Rank classifiers on usual cells; None if no two of them share two datasets.

    `cells`: the table of cells with the columns of `AXES`, of one snapshot.
    """
    known = cells.filter(pl.col("accuracy_mean").is_not_null())
    known = known.join(usual_cells(known)[0], on="cell", how="semi", maintain_order="left")
    shared = block(known) if known.height else None
    if shared is None:
        return None
    means = (
        known.select("cell", "accuracy_mean")
        .join(shared.cells, on="cell")
        .sort("dataset", "classifier", "cell")
        .group_by("dataset", "classifier", maintain_order=True)
        .agg(pl.col("accuracy_mean").implode().list.mean())
    )
    table = means["accuracy_mean"].to_numpy().reshape(-1, len(shared.classifiers))
    if (datasets := table.shape[0]) < 2:
        return None
    ranks = np.apply_along_axis(average_ranks, 1, -table)
    mean = ranks.mean(axis=0)
    wins = (table == table.max(axis=1, keepdims=True)).sum(axis=0)
    order = np.lexsort((np.array(shared.classifiers), mean))
    rows = tuple(Standing(shared.classifiers[k], float(mean[k]), int(wins[k])) for k in order)
    critical = critical_difference(len(rows), datasets)
    apart = tuple(
        (one.classifier, other.classifier)
        for one, other in combinations(rows, 2)
        if other.rank - one.rank >= critical
    )
    return Standings(rows, datasets, critical, apart)


def critical_difference(classifiers: int, datasets: int) -> float:
    """Return how far apart two of several mean ranks must be to differ beyond chance."""
    q = range_quantile(CONFIDENCE, classifiers) / math.sqrt(2)
    return q * math.sqrt(classifiers * (classifiers + 1) / (6 * datasets))


def in_words(found: Standings | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Say how classifiers rank and which differ beyond chance, with names of what shows it."""
    if found is None:
        return
    best = found.rows[0]
    others = ", ".join(f"{row.classifier} {row.rank:.1f}" for row in found.rows[1:])
    wins = f"{best.wins} {'win' if best.wins == 1 else 'wins'}"
    first = [row.classifier for row in found.rows if row.rank == best.rank]
    who = f"{best.classifier} ranks" if len(first) == 1 else f"{' and '.join(first)} both rank"
    if len(first) > 2:
        who = f"{', '.join(first)} all rank"
    text = (
        f"Across {found.datasets} datasets {who} first so far, by mean accuracy (mean rank "
        f"{best.rank:.1f} of {len(found.rows)}, {wins}; {others}). "
    )
    if found.apart:
        named = [f"{better} from {worse}" for better, worse in found.apart[:LISTED]]
        more = len(found.apart) - len(named)
        text += f"Beyond chance, ranks tell {', '.join(named)}{f' and {more} more' if more else ''}"
    else:
        text += "Ranks tell no two classifiers apart beyond chance"
    text += (
        f": those less than {fixed(found.critical, 2)} apart may differ by chance (Nemenyi, "
        f"{1 - CONFIDENCE:.0%}; datasets taken as independent draws"
        + (", and so few that the test is rough)." if found.datasets < ENOUGH else ").")
    )
    yield text, ("mean-ranks", "summary")


def answer_standings(evidence: Evidence) -> Iterator[Answer]:
    """Say how classifiers rank across datasets, and which differ beyond chance."""
    found = standings(evidence.tables.cells)
    for text, figures in in_words(found):
        assert found is not None
        ranks = [f"{row.classifier} {row.rank:.1f}" for row in found.rows]
        told = f"{counted(len(found.apart), 'pair') if found.apart else 'none'} told apart"
        if len(found.apart) == 1:
            told = " > ".join(found.apart[0])
        said = f"anks on {found.datasets:,} datasets: {{}}; {told}."
        headline = shortest(
            (first_ones(ranks, f"{of}{said}".format) for of in ("Mean r", "R")), LINE
        )
        rows = [asdict(row) for row in found.rows]
        yield Answer(headline, evidence=text, rows=rows, figures=figures)
