"""What share of all flips each source of randomness makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from manyseed.analysis.questions.crossed import places
from manyseed.analysis.questions.drawn import anew, drawn, varied
from manyseed.analysis.questions.question import Answer, first_ones, shortest
from manyseed.analysis.questions.usual import leveled
from manyseed.analysis.tables.rows import IS_CROSSED


def flips_by_source(points: pl.LazyFrame) -> Iterator[Answer]:
    """Say what share of all flips there are if one source varies alone, of cells alike in all else.

    Where more is drawn anew for each run, that is named instead, and nothing is said of alone.
    """
    key, names = ["dataset", "classifier"], points.collect_schema().names()
    known = points.filter(pl.col("of_flips").is_not_null().any().over("cell"))
    cells = leveled(known, but="vary").select("cell", "levels")
    flips = (
        known.with_columns(_drawn=drawn(names), _varied=varied(names))
        .join(cells.lazy(), on="cell", maintain_order="left")
        .group_by(
            *(pl.col(name).cast(pl.String) for name in (*key, "vary", "_drawn", "_varied")),
            "levels",
        )
        .agg(pl.col("flips").sum(), _first=pl.col("cell").min())
        .sort(*key, "_drawn", "_first")
        .collect()
    )
    for own in flips.partition_by(*key, "_drawn", maintain_order=True):
        more, rows, told = own["_drawn"][0], list[dict[str, Any]](), list[tuple[str, _Parts]]()
        for alike in own.partition_by("levels", maintain_order=True):
            whole = max(alike["vary"], key=lambda vary: len(vary.split("+")))
            total = alike.filter(vary=whole)["flips"][0]
            shares = alike.with_columns(share=pl.col("flips") / total)
            others = shares.filter(pl.col("vary") != whole).sort("flips", descending=True)
            parts = [
                (which if more else f"{which} alone", share)
                for which, share in others.select("_varied", "share").iter_rows()
            ]
            told.append((alike["levels"][0], parts))
            rows += shares.drop("_drawn", "_varied", "_first").to_dicts()
        name = f"{own['classifier'][0]} on {own['dataset'][0]}"
        whole = max(own["_varied"], key=lambda varied: len(varied.split("+")))
        untold = f" What a source flips alone is not told: {anew(more)}." if more else ""
        yield Answer(
            _headline(name, told),
            rows=rows,
            evidence=f"{name}: mean flips of a test point where {whole} vary are the "
            f"whole; {'; '.join(_listed(told))}; estimates without an interval. {_COUNTED}"
            f"{_BY_CHANCE * _is_above(told)}{untold}",
            figures=("points",),
        )


_Parts = Sequence[tuple[str, float]]
"""Sources, and their shares of all flips."""

_COUNTED = "Sources that act together count in several."
_BY_CHANCE = (
    " Averaged over all values of the others, a source flips no more alone than with them: a share "
    "above 100% is that of the few values drawn here."
)


def _listed(told: Sequence[tuple[str, _Parts]]) -> list[str]:
    """Return the shares of each of some cells, by their levels."""
    return [
        f"{f'{levels}: ' if levels else ''}{', '.join(f'{name} {n:.0%}' for name, n in parts)}"
        for levels, parts in told
    ]


def _is_above(told: Sequence[tuple[str, _Parts]]) -> bool:
    return any(round(share, 2) > 1 for _, parts in told for _, share in parts)


def _headline(name: str, told: Sequence[tuple[str, _Parts]]) -> str:
    """Return the shares in few words, with what shares above 100 %, or that add up to more, are."""
    start = f"Of the flips seen of {name}"

    def of(first: Sequence[tuple[str, _Parts]], text: str) -> str:
        if _is_above(first):
            return f"{text}; above 100%: by chance."
        several = any(round(sum(share for _, share in parts), 2) > 1 for _, parts in first)
        return f"{text}; these overlap." if several else f"{text}."

    if len(told) == 1 and not told[0][0]:
        return first_ones(
            [f"{which} {share:.0%}" for which, share in told[0][1]],
            lambda text: of(told, f"{start}: {text}"),
        )
    return shortest(
        of(told[:n], f"{start}, {'; '.join(_listed(told)[:n])}{left}")
        for n in range(len(told), 0, -1)
        for left in [f"; {len(told) - n:,} more" if n < len(told) else ""]
    )


def flips(pairs: pl.DataFrame) -> Iterator[Answer]:
    """Say what share of all flips there is if one source varies alone, of crossed cells.

    That of a source is the mean churn of two runs of a repeat that differ in its value alone, over
    that of two that share no value.

    `pairs`: the table, with the columns of `AXES`.
    """
    key = ["dataset", "classifier", "vary"]
    own = pairs.filter(IS_CROSSED, pl.col("churn").is_not_null())
    own = own.with_columns(pl.col(*key).cast(pl.String), _drawn=drawn(own.columns))
    for (dataset, classifier, vary), rows in own.sort(key).group_by(key, maintain_order=True):
        sources = str(vary).split("*")
        last = int(rows["run_j"].to_numpy().max())
        k = next(k for k in range(2, last + 3) if k ** len(sources) > last)
        place = np.array(places(len(sources), k))
        differ = place[rows["run_i"].to_numpy()] != place[rows["run_j"].to_numpy()]
        which = np.where(differ.sum(axis=1) == 1, differ.argmax(axis=1), -1)
        which[differ.all(axis=1)] = len(sources)
        means = dict(
            rows.with_columns(_which=which)
            .group_by("cell", "repeat_index", "_which")
            .agg(pl.col("churn").mean())
            .group_by("_which")
            .agg(pl.col("churn").mean())
            .rows()
        )
        total = means.get(len(sources), 0.0)
        if not total:
            continue
        shares = {name: means[at] / total for at, name in enumerate(sources) if at in means}
        more = max(rows["_drawn"].to_list()) if "train" in sources else ""  # which it goes with
        told = {name: f"{name} alone" for name in sources}
        told |= {"train": f"train + {more}"} if more else {}
        parts = [
            (told[name], share) for name, share in sorted(shares.items(), key=lambda one: -one[1])
        ]
        name = f"{classifier} on {dataset}, {vary}"
        yield Answer(
            _headline(name, [("", parts)]),
            rows=[
                {"dataset": dataset, "classifier": classifier, "vary": vary, "source": source}
                | {"flips": share * total, "share": share}
                for source, share in shares.items()
            ],
            evidence=f"{name}: mean flips of a test point where two runs share no value are the "
            f"whole, those where they differ in one source alone its part; "
            f"{', '.join(_listed([('', parts)]))}; estimates without an interval. {_COUNTED}"
            f"{_BY_CHANCE * _is_above([('', parts)])}",
            figures=("points",),
        )
