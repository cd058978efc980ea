"""What share of all flips each source of randomness makes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import polars as pl

from manyseed.analysis.questions.crossed import places
from manyseed.analysis.questions.drawn import anew, drawn, varied
from manyseed.analysis.questions.question import Answer, first_ones
from manyseed.analysis.tables.rows import IS_CROSSED


def flips_by_source(points: pl.LazyFrame) -> Iterator[Answer]:
    """Say what share of all flips there are if one source varies alone.

    Where more is drawn anew for each run, that is named instead, and nothing is said of alone.
    """
    key, names = ["dataset", "classifier"], points.collect_schema().names()
    flips = (
        points.filter(pl.col("of_flips").is_not_null().any().over("cell"))
        .with_columns(_drawn=drawn(names), _varied=varied(names))
        .group_by(*(pl.col(name).cast(pl.String) for name in (*key, "vary", "_drawn", "_varied")))
        .agg(pl.col("flips").sum())
        .sort(*key, "_drawn", "vary")
        .collect()
    )
    for own in flips.partition_by(*key, "_drawn", maintain_order=True):
        whole = max(own["vary"], key=lambda vary: len(vary.split("+")))
        full = own.filter(vary=whole)
        total = full["flips"][0]
        others = own.filter(pl.col("vary") != whole).sort("flips", descending=True)
        more = own["_drawn"][0]
        parts = [
            f"{which} {flips / total:.0%}" if more else f"{which} alone {flips / total:.0%}"
            for which, flips in others.select("_varied", "flips").iter_rows()
        ]
        name = f"{own['classifier'][0]} on {own['dataset'][0]}"
        untold = f" What a source flips alone is not told: {anew(more)}." if more else ""
        yield Answer(
            first_ones(parts, partial("Of the flips seen of {}: {}.".format, name)),
            rows=[
                row | {"share": row["flips"] / total}
                for row in own.drop("_drawn", "_varied").iter_rows(named=True)
            ],
            evidence=f"{name}: mean flips of a test point where {full['_varied'][0]} vary are the "
            f"whole; {', '.join(parts)}; estimates without an interval. Sources that act together "
            f"count in several.{untold}",
            figures=("points",),
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
            f"{told[name]} {share:.0%}"
            for name, share in sorted(shares.items(), key=lambda one: -one[1])
        ]
        name = f"{classifier} on {dataset}, {vary}"
        yield Answer(
            first_ones(parts, f"Of the flips seen of {name}: {{}}.".format),
            rows=[
                {"dataset": dataset, "classifier": classifier, "vary": vary, "source": source}
                | {"flips": share * total, "share": share}
                for source, share in shares.items()
            ],
            evidence=f"{name}: mean flips of a test point where two runs share no value are the "
            f"whole, those where they differ in one source alone its part; {', '.join(parts)}; "
            "estimates without an interval. Sources that act together count in several.",
            figures=("points",),
        )
