"""Runs that predict one class for all test points: named, unless that is usual in their cell.

No predictions are read. Of a run that predicts class c throughout, with k classes in the test set,
the balanced accuracy is 1/k, Matthews' correlation is 0 and the macro F1 is 2a / (1 + a) / k, with
a, its accuracy, the share of c. With two classes no other run has these three: macro F1 is concave
in the share predicted as c among runs that cannot tell the classes apart.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from manyseed.analysis.questions.needed import cell_in_short
from manyseed.analysis.questions.quantiles import normal_above
from manyseed.analysis.questions.question import Answer, first_ones
from manyseed.analysis.tables.rows import REPEAT, Tables

NEEDED = ("accuracy", "balanced_accuracy", "f1_macro", "matthews_corrcoef")
RARE = 0.01  # probability of naming any run where one class is predicted by chance
_EXACT = 1e-6  # numbers that are equal differ by less


def _constant() -> pl.Expr:
    """Return whether a run predicts one class of several throughout, from its columns `NEEDED`.

    A test set of a single class, whose smallest has no point, has none of these: there, the
    balanced accuracy is the accuracy.
    """
    accuracy, balanced = pl.col("accuracy"), pl.col("balanced_accuracy")
    k = (1 / balanced).round()
    return (
        ((balanced * k - 1).abs() < _EXACT)
        & k.is_between(2, 1e6)
        & ((pl.col("smallest_class") > 0) | ((balanced - accuracy).abs() > _EXACT))
        & (pl.col("matthews_corrcoef").abs() < _EXACT)
        & ((pl.col("f1_macro") * k * (1 + accuracy) - 2 * accuracy).abs() < _EXACT * k)
    ).fill_null(value=False)


def marked(tables: Tables) -> pl.DataFrame:
    """Return the runs with `constant`; `usual`, whether most of the cell are; and `told`.

    A run is told if others of its test set, or else of its cell, get more points right, by more
    than independent errors would (Bonferroni over all runs): where one class has nearly all
    points, a sound run may predict it alone by chance.
    """
    if not {*NEEDED} <= {*tables.runs.columns} or "smallest_class" not in tables.repeats:
        return tables.runs.clear()
    sizes = tables.repeats.select(*REPEAT, "n_test", "smallest_class")
    runs = tables.runs.join(sizes, on=REPEAT, maintain_order="left")
    runs = runs.with_columns(constant=_constant())
    runs = runs.with_columns(usual=pl.col("constant").mean().over("cell") > 1 / 2)
    other = pl.col("accuracy").filter(~pl.col("constant"))
    runs = runs.with_columns(
        _others=pl.coalesce(other.mean().over(REPEAT), other.mean().over("cell"))
    )
    n, others, own = (
        runs[name].cast(pl.Float64).to_numpy() for name in ("n_test", "_others", "accuracy")
    )
    share = (others * n + 1) / (n + 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        z = np.nan_to_num((others - own) / np.sqrt(share * (1 - share) / n))
    is_rare = np.array([normal_above(one) < RARE / runs.height for one in z], np.bool_)
    told = pl.col("constant") & ~pl.col("usual") & pl.Series(is_rare, dtype=pl.Boolean)
    return runs.with_columns(told=told).drop("_others")


def answer(tables: Tables) -> Iterator[Answer]:
    """Name the runs that predict one class throughout, and the cells of which most runs do.

    `tables`: with the columns of `AXES` joined, of one snapshot.
    """
    runs = marked(tables)
    if runs.is_empty():
        return
    named = [cell_in_short(row, runs) for row in runs.iter_rows(named=True)]
    runs = runs.with_columns(_name=pl.Series(named, dtype=pl.String)).sort(*REPEAT, "run_index")
    told, usual = runs.filter("told"), runs.filter("usual")
    lines, text = [], []
    if told.height:
        places = [":".join(map(str, one)) for one in told.select(*REPEAT, "run_index").rows()]
        names = told["_name"].unique(maintain_order=True).to_list()
        n = f"{told.height:,} run{'s' if told.height > 1 else ''}"
        verb = "predict" if told.height > 1 else "predicts"
        of = first_ones(names, "{}".format, most=2)
        lines.append(first_ones(places, f"{n} of {of} {verb} one class throughout: {{}}.".format))
        text.append(
            f"{n} of {', '.join(names)} {verb} the same class for all points of a test set that "
            f"has several: {', '.join(places)}. Other runs there get more points right, by more "
            f"than independent errors would (p below {RARE:g} for all runs together)."
        )
    if usual.height:
        of_each = usual.group_by("_name", maintain_order=True).agg(
            pl.col("constant").sum(), n=pl.len()
        )
        names = [f"{name} ({k:,} of {n:,})" for name, k, n in of_each.iter_rows()]
        lines.append(first_ones(names, "Most runs predict one class throughout: {}.".format))
        text.append(
            f"Most runs of a cell predict the same class for all points of a test set: "
            f"{', '.join(names)}. So no run of these is named."
        )
    if lines:
        yield Answer(
            "\n".join(lines),
            evidence=" ".join(text),
            rows=told.select("dataset", "classifier", *REPEAT, "run_index", "accuracy").to_dicts(),
            figures=("summary",),
        )
