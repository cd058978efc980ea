"""What a scheme, less data, tuning or another source of randomness changes, with intervals.

A cell is compared with the one that differs only in having the axis at its reference, in pairs of
repeats on the same test set, with the streams that the two share. Pairs on one test set depend on
each other, so they are averaged first and the interval is over test sets; with a single test set it
is over seeds, and marked as such.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from manyseed.analysis.axes import AXES, FRACTION, LATER, VARY, told
from manyseed.analysis.counts import counted, fixed, some
from manyseed.analysis.counts import signed as with_sign
from manyseed.analysis.options import CONFIDENCE
from manyseed.analysis.questions.intervals import (
    FEWEST,
    SEEDS,
    TEST_SETS,
    clustered,
    holm,
    of_pairs,
    t_interval,
    total,
)
from manyseed.analysis.questions.question import LINE, Answer, Evidence, first_ones, shortest
from manyseed.analysis.tables.rows import (
    PAIR,
    RUN,
    SIZE,
    VARIES,
    Tables,
    compares_runs,
    independent,
    is_level,
    mean_of,
    of_one_probe,
)

LEVEL = 0.05  # probability of any claim by chance among all comparisons of a sentence

LISTED = 3

_SIGNS = r"[+*]"  # between sources that vary together, or are crossed

UNPERTURBED = {
    "perturb_continuous": "none",
    "perturb_categorical": "none",
    "perturb_hparams": "none",
    "perturb_labels": "none",
    FRACTION: "1.0",
}
"""The axes of schemes, and the reference level of each."""

REFERENCES = {**UNPERTURBED, "hparams": "default", "vary": VARY, **LATER}
"""All axes along which effects are taken."""

OF_RUNS = {"accuracy_mean": "accuracy"}
_CONSISTENCY = ("local", "global")
OF_PAIRS = {
    f"{name}_mean": name
    for name in (
        *(f"ec_{kind}" for kind in _CONSISTENCY),
        *(f"ec_{kind}_{root}_root" for kind in _CONSISTENCY for root in ("cube", "square")),
        "churn",
    )
}
"""Means over runs, or over pairs, that effects are taken on, and the averaged column."""

EFFECTS = (
    *("accuracy_mean", "accuracy_std", "accuracy_range"),
    *OF_PAIRS,
    "alpha_hat_mean",
)
"""Columns of the table of repeats that effects are taken on."""


def effects(
    tables: Tables,
    by: Sequence[str] = ("dataset", "classifier"),
    among: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Compare each level of an axis with its reference, all else equal.

    The estimate is the mean over test sets of the mean over the pairs of repeats on a test set. Its
    interval and p come from t over test sets (`analysis.questions.intervals`). Datasets are strata:
    the average is over these and no others. Perturbed hparams have the same draws in all datasets,
    so there a cluster is a repeat index. With one test set per dataset, interval and p are over
    seeds: over paired runs for means over runs, by the jackknife over paired runs for means over
    pairs; there is none for crossed cells. A bootstrap of so few clusters covers too little: its
    95 % intervals contained a planted effect in 49, 73, 79 and 89 % with 2, 3, 4 and 10 test sets,
    those of t in 95.

    `tables`: with the columns of `AXES` in the repeats. Runs and pairs are read for cells with one
    repeat only. `by`: columns to average differences within, besides axis, level and metric.
    `among`: columns cell, axis and metric of the comparisons to take; by default all.

    Returns columns of `by`, then `axis` (a key of `REFERENCES`), `level`, `reference`, `metric` (of
    `EFFECTS`), `difference` (level minus reference), `sd` (between test sets, n - 1, pooled within
    datasets), `n_pairs` (of repeats in which both sides are defined), `n_identical` (pairs in which
    the runs of a side are identical), `n_test_sets`, `over` (`TEST_SETS`, `SEEDS` or null: what the
    interval is over), `freedom`, `low`, `high`, `p`, `comparisons` (the number of p values for the
    metric), `p_holm` (p corrected for that number), `probe`, `delta_lo`, `delta_hi` (of α̂).
    Metrics that compare runs are undefined in pairs with a side whose runs don't vary. α̂ of two
    probes is not averaged: it is null, and `probe` names both.
    """
    pairs = comparisons(tables.repeats)
    key = [*by, "axis", "level", "reference", "metric"]
    long = _long(pairs, list(dict.fromkeys([*by, "dataset"])))
    if among is not None:
        long = long.join(among, on=["cell", "axis", "metric"], how="semi", maintain_order="left")
    groups = long.group_by(key, maintain_order=True).agg(
        pl.len().alias("n_pairs"),
        pl.col("identical").sum().alias("n_identical"),
        pl.col("repeat_index").n_unique().alias("_sets"),
        (pl.col("perturb_hparams_none").ne("none") | pl.col("perturb_hparams").ne("none"))
        .any()
        .alias("_shared"),
        pl.col("probe").filter(pl.col("_level")).drop_nulls().unique().sort().str.join("+"),
        pl.col("delta").filter(pl.col("_level")).min().alias("delta_lo"),
        pl.col("delta").filter(pl.col("_level")).max().alias("delta_hi"),
    )
    sets = _of_test_sets(long, key)
    means = sets.group_by(key, maintain_order=True).agg(
        mean_of(pl.col("value")).alias("difference"),
        pl.len().alias("n_test_sets"),
        (pl.len() - pl.col("dataset").n_unique()).alias("_free"),
        total(pl.col("residual") ** 2).alias("_squares"),
    )
    several = sets.join(
        means.filter(pl.col("_free") > 0).select(*key, "n_test_sets"), on=key, nulls_equal=True
    ).join(groups.select(*key, "_shared"), on=key, nulls_equal=True)
    errors = [clustered(_over_test_sets(several), key).with_columns(over=pl.lit(TEST_SETS))]
    alone = means.filter(pl.col("_free") == 0).select(*key, "n_test_sets")
    if not alone.is_empty():
        single = long.join(alone, on=key, nulls_equal=True).join(
            groups.select(*key, "_shared"), on=key, nulls_equal=True
        )
        seeds = clustered(_over_seeds(single, key, independent(tables)), key)
        errors.append(seeds.with_columns(over=pl.lit(SEEDS)))
    found = (
        groups.join(means, on=key, how="left", nulls_equal=True, maintain_order="left")
        .join(pl.concat(errors), on=key, how="left", nulls_equal=True, maintain_order="left")
        .with_columns(
            sd=pl.when(pl.col("_free") > 0).then((pl.col("_squares") / pl.col("_free")).sqrt())
        )
    )
    return _with_intervals(found).select(
        *(*key, "difference", "sd", "n_pairs", "n_identical", "n_test_sets"),
        *("over", "freedom", "low", "high", "p", "comparisons", "p_holm"),
        *("probe", "delta_lo", "delta_hi"),
    )


def comparisons(repeats: pl.DataFrame) -> pl.DataFrame:
    """Return all pairs of repeats that differ in one axis, one side at its reference.

    A level of `vary` is not compared with one that varies the same sources, or these and more: its
    runs are some of those of the other, crossed, or with a part held fixed. What that part adds is
    a matter of variance.

    `repeats`: the table of repeats with the columns of `AXES`. Returns the columns of the side not
    at the reference, `axis`, `level`, `reference`, `reference_cell`, and columns of the other side
    with the suffix ``_none``; sorted.
    """
    known = repeats.with_columns(pl.col(FRACTION).cast(pl.String))
    facts = ("cell", "n_runs", "perturb_hparams", "identical")
    found = []
    for axis, level in references(known).items():
        key = [name for name in (*AXES, "repeat_index") if name != axis]
        # without a cell with all training rows, the largest size is the reference
        at = LARGEST if axis == FRACTION else pl.lit(level)
        both = known.with_columns(reference=at)
        without = both.filter(pl.col(axis) == pl.col("reference")).select(
            *key,
            *(pl.col(name).alias(f"{name}_none") for name in (*facts, *EFFECTS)),
            VARIES.alias("varies_none"),
        )
        own = both.filter(pl.col(axis) != pl.col("reference"))
        if axis == "vary":
            whole = set(re.split(_SIGNS, level))
            part = [set(re.split(_SIGNS, one)) <= whole for one in own[axis]]
            own = own.filter(~pl.Series(part, dtype=pl.Boolean))
        found.append(
            own.join(without, on=key, how="inner", nulls_equal=True).with_columns(
                axis=pl.lit(axis),
                level=pl.col(axis),
                reference_cell=pl.col("cell_none"),
            )
        )
    return pl.concat(found).sort("axis", "level", "cell", "repeat_index")


def with_one_test_set(repeats: pl.DataFrame) -> pl.Series:
    """Return the cells compared on a single test set, whose runs and pairs have to be read."""
    sides = ["cell", "cell_none"]
    found = comparisons(repeats).group_by(*sides, "axis").len().filter(pl.col("len") == 1)
    return pl.concat([found[side].rename("cell") for side in sides]).unique().sort()


LARGEST = pl.col(FRACTION).cast(pl.String).sort_by(SIZE).last().over("dataset", "classifier")
"""The largest training size of each data set and classifier: all rows, if a cell has them."""


def references(repeats: pl.DataFrame) -> Mapping[str, str]:
    """Return `REFERENCES`; if no cell has the default `vary`, its level with most sources.

    Where no cell of a classifier has all training rows, `LARGEST` is the reference instead.
    """
    levels = repeats["vary"].drop_nulls().unique().sort().to_list()
    if not levels or REFERENCES["vary"] in levels:
        return REFERENCES
    return {**REFERENCES, "vary": max(levels, key=lambda level: level.count("+"))}


def _long(pairs: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Return a row for each pair of repeats and each metric defined on both sides."""
    both = VARIES & pl.col("varies_none")
    facts = ["cell", "cell_none", "repeat_index", "n_runs", "n_runs_none", "probe", "delta"]
    facts += ["perturb_hparams", "perturb_hparams_none", "axis", "level", "reference"]
    same = pl.col("identical") | pl.col("identical_none")
    kept = list(dict.fromkeys([*names, *facts]))
    parts = []
    for name in EFFECTS:
        change = pl.col(name) - pl.col(f"{name}_none")
        parts.append(
            pairs.select(
                *kept,
                metric=pl.lit(name),
                value=pl.when(both).then(change) if compares_runs(name) else change,
                identical=same,
                _level=pl.lit(is_level(name)),
            ).filter(pl.col("value").is_not_null())
        )
    order = [*names, "axis", "level", "cell", "repeat_index"]
    of_metric = pl.col("metric").replace_strict({n: i for i, n in enumerate(EFFECTS)})
    first = dict.fromkeys([*names, "axis", "level"])
    return pl.concat(parts).sort(*first, of_metric, *dict.fromkeys(order))


def _of_test_sets(long: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Return the mean of each test set, and its deviation from the mean of its dataset.

    Groups whose α̂ has two probes are left out.
    """
    test_set = list(dict.fromkeys([*key, "dataset", "repeat_index"]))
    one_probe = pl.col("probe").drop_nulls().n_unique().over(key) <= 1
    return (
        long.filter(~pl.col("_level") | one_probe)
        .group_by(test_set, maintain_order=True)
        .agg(mean_of(pl.col("value")), of_one_probe(pl.lit(0)).alias("_"))
        .drop("_")
        .with_columns(
            residual=pl.col("value")
            - pl.col("value").mean().over(list(dict.fromkeys([*key, "dataset"])))
        )
    )


def _over_test_sets(sets: pl.DataFrame) -> pl.DataFrame:
    return sets.with_columns(
        _stratum(), cluster=pl.col("repeat_index"), u=pl.col("residual") / pl.col("n_test_sets")
    )


def _stratum() -> pl.Expr:
    """Return the stratum: the dataset, or one for all datasets if they share draws of hparams."""
    return pl.when("_shared").then(pl.lit("")).otherwise(pl.col("dataset")).alias("stratum")


def _over_seeds(long: pl.DataFrame, key: Sequence[str], tables: Tables) -> pl.DataFrame:
    """Return what each run adds to the error of means over one test set of each dataset."""
    long = long.with_columns(
        _stratum(),
        weight=1.0 / pl.col("n_test_sets") / pl.len().over(list(dict.fromkeys([*key, "dataset"]))),
    )
    cells = pl.concat([long["cell"], long["cell_none"]]).unique().implode()
    parts = []
    for metrics, influence_of, table, row in (
        (OF_RUNS, _of_runs, tables.runs, RUN),
        (OF_PAIRS, _of_pairs, tables.pairs, PAIR),
    ):
        rows = table.filter(pl.col("cell").is_in(cells))
        for metric, column in metrics.items():
            wanted = long.filter(metric=metric)
            if wanted.is_empty() or column not in rows.columns:
                continue
            values = rows.select(*row, pl.col(column).alias("one"))
            other = values.rename({"cell": "cell_none", "one": "other"})
            both = wanted.join(values, on=["cell", "repeat_index"]).join(
                other, on=["cell_none", "repeat_index", *row[2:]]
            )
            influences = influence_of(both, [*key, "stratum", "weight", "cell", "cell_none"])
            parts.append(_complete(influences, wanted, key))
    columns = [*key, "stratum", "cluster", "u"]
    empty = long.clear().with_columns(cluster=pl.col("repeat_index"), u=pl.col("weight"))
    return pl.concat([frame.select(columns) for frame in (empty, *parts)])


def _complete(influences: pl.DataFrame, wanted: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Return the groups for which every comparison could be read."""
    number = pl.struct("cell", "cell_none").n_unique().alias("_number")
    both = (frame.group_by(key).agg(number) for frame in (influences, wanted))
    return influences.join(next(both).join(next(both), on=[*key, "_number"]), on=key, how="semi")


def _of_runs(both: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Return what each run adds, for comparisons with the same runs on both sides."""
    key = list(dict.fromkeys(key))
    change = pl.col("one") - pl.col("other")
    same = (pl.len() == pl.col("n_runs")) & (pl.len() == pl.col("n_runs_none"))
    return (
        both.with_columns(change=change)
        .filter(same.over(key))
        .with_columns(
            cluster=pl.col("run_index"),
            u=pl.col("weight") * (change - change.mean().over(key)) / pl.len().over(key),
        )
    )


def _of_pairs(both: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Return what each run adds, for comparisons with the same, enough runs on both sides."""
    change = both.with_columns(value=pl.col("one") - pl.col("other")).drop_nulls("value")
    n = pl.col("n")
    same = (n == pl.col("n_runs")) & (n == pl.col("n_runs_none")) & (n >= FEWEST)
    return of_pairs(change, [*key, "n_runs", "n_runs_none"]).filter(same)


def _with_intervals(found: pl.DataFrame) -> pl.DataFrame:
    estimate, variance, freedom = (
        found[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()
        for name in ("difference", "variance", "freedom")
    )
    low, high, p = t_interval(estimate, variance, freedom, CONFIDENCE)
    found = found.with_columns(
        pl.Series("low", low).fill_nan(None),
        pl.Series("high", high).fill_nan(None),
        pl.Series("p", p).fill_nan(None),
    )
    corrected = [
        own.select("_row", p_holm=pl.Series(holm(own["p"].fill_null(float("nan")).to_numpy())))
        for own in found.with_row_index("_row").partition_by("metric")
    ]
    all_of = pl.concat(corrected).sort("_row") if corrected else None
    known = pl.col("p").is_not_null()
    return found.with_columns(
        p_holm=all_of["p_holm"].fill_nan(None) if all_of is not None else pl.lit(None, pl.Float64),
        comparisons=known.sum().over("metric").cast(pl.UInt32),
        over=pl.when(known).then("over"),
        freedom=pl.when(known).then("freedom"),
    )


def answer_accuracy(evidence: Evidence) -> Iterator[Answer]:
    """Say what changes accuracy beyond chance, and what does not."""
    return _answer(evidence.effects, _ACCURACY, "accuracy")


def answer_consistency(evidence: Evidence) -> Iterator[Answer]:
    """Say what changes local error consistency beyond chance, and what does not."""
    return _answer(evidence.effects, "ec_local_mean", "local error consistency", after=_ACCURACY)


def wider(effects: pl.DataFrame) -> tuple[str, str]:
    """Say with which noise, or share of the rows, accuracy varies more between seeds, if with any.

    In a headline, and with the numbers.
    """
    known = effects.filter(pl.col("metric") == "accuracy_std", pl.col("axis").is_in([*UNPERTURBED]))
    more = known.filter(pl.col("p_holm") < LEVEL, pl.col("difference") > 0)
    more = more.sort("difference", "axis", "level", "classifier", descending=[True, *[False] * 3])
    if more.is_empty():
        return "", ""
    of: dict[str, list[str]] = {}
    order = [(row, _level(row)) for row in more.iter_rows(named=True)]
    for row, name in sorted(order, key=lambda one: one[1]):
        of.setdefault(name, []).append(str(row["classifier"]))
    listed = [f"{name} ({', '.join(whose)})" for name, whose in of.items()]
    shown = "; ".join(_effect(row) for row in more.head(LISTED).iter_rows(named=True))
    every = f" These, and all others: {'; '.join(listed)}." * (more.height > LISTED)
    whole = first_ones(listed, "That sd is larger with {}.".format)
    if len(whole) > LINE:  # levels rather than whose they are, which the evidence has
        whole = first_ones([*map(_in_short, of)], "That sd is larger with {}.".format, width=LINE)
    return (
        whole,
        f" The sd is larger beyond chance with other training data (Holm, {LEVEL:.0%} for all "
        f"comparisons together): {shown}.{every}",
    )


_ACCURACY = "accuracy_mean"


def _in_short(level: str) -> str:
    """Return the level of an axis without the axis where its scheme tells: ``relative:0.5``."""
    return level.split()[-1] if level.startswith("perturb ") and ":" in level else level


def _tested(effects: pl.DataFrame, metric: str) -> pl.DataFrame:
    return effects.filter(
        pl.col("metric") == metric,
        pl.col("difference").is_not_null(),
        pl.col("p_holm").is_not_null(),
    )


def _answer(effects: pl.DataFrame, metric: str, name: str, after: str = "") -> Iterator[Answer]:
    """Say what changes a metric beyond chance, largest estimates first, and what does not.

    `after`: a metric of which this is said before, so that its headline has named the reference.
    """
    known = effects.filter(pl.col("metric") == metric, pl.col("difference").is_not_null())
    tested = _tested(effects, metric)
    if tested.is_empty():
        return
    without = _without_interval(known.filter(pl.col("p_holm").is_null()))
    moved = tested.filter(pl.col("p_holm") < LEVEL)
    corrected = f"{tested.height:,} comparisons, Holm, {LEVEL:.0%} for all together"
    largest_half = float(((tested["high"] - tested["low"]) / 2).max())  # type: ignore[arg-type]
    against = _against(tested)
    below = against.replace(" ", "\n", 1) * (against != _against(_tested(effects, after)))
    single = tested.height == 1
    by_size = tested.with_columns(_size=pl.col("difference").abs()).sort(
        "_size", "axis", "level", "classifier", descending=[True, False, False, False]
    )
    if moved.is_empty():
        largest = [_effect(row) for row in by_size.head(LISTED).iter_rows(named=True)]
        first = by_size.row(0, named=True)
        most = f"{_level(first)}, {first['classifier']}"
        p = f"P = {first['p_holm']:.2g}" if single else f"Holm, P = {first['p_holm']:.2g}"
        yield Answer(
            f"Nothing is found to change {name}; largest estimate: {most}, "
            f"{signed(first['difference'])} ({p}).{below}",
            evidence=f"No factor is found to change {name} beyond chance "
            f"({'1 comparison' if single else corrected}); {'its' if single else 'each'} effect is "
            f"known to ± {fixed(largest_half)}{'' if single else ' or better'} (95 %, each by "
            f"itself), so effects of about that size could have gone undetected. "
            f"{'It is' if single else 'The largest estimates, each interval by itself:'} "
            f"{'; '.join(largest)}.{without}{against}",
            rows=known.to_dicts(),
            figures=("effects",),
        )
        return
    order = by_size.filter(pl.col("p_holm") < LEVEL)
    largest = [_effect(row) for row in order.head(LISTED).iter_rows(named=True)]
    count = "the one comparison"
    if not single:
        count = f"{moved.height:,} of {tested.height:,} comparisons"
    which = "the largest estimates:" if moved.height > 1 else "it is"
    holm = f"p < {LEVEL:g}" if single else f"Holm, {LEVEL:.0%} for all together"
    levels: dict[str, list[str]] = {}
    for row in order.iter_rows(named=True):
        levels.setdefault(_level(row), []).append(
            f"{row['classifier']} {signed(row['difference'])}"
        )
    yield Answer(
        _matters(f"Matters for {name.removeprefix('local ')}", levels) + below,
        evidence=f"{name[0].upper()}{name[1:]} changes beyond chance in {count} ({holm}); "
        f"{which} {'; '.join(largest)}.{_unmoved(tested, moved)}{without}{against}",
        rows=known.to_dicts(),
        figures=("effects",),
    )


def _level(row: Mapping[str, Any]) -> str:
    return told(row["axis"], row["level"])


def _against(rows: pl.DataFrame) -> str:
    """Name the references that are not the usual ones."""
    found = rows.select("axis", "reference").unique().sort("axis", "reference").rows()
    named = [told(axis, level) for axis, level in found if level != REFERENCES[axis]]
    return f" Compared with {some(named, LISTED)}." if named else ""


def _matters(what: str, levels: Mapping[str, Sequence[str]]) -> str:
    """Return a headline with the classifiers that each level moves, or that the first does."""
    each = [f"{level} ({', '.join(moved)})" for level, moved in levels.items()]
    whole = f"{what}: {', '.join(each)}."
    if shortest([whole, ""]):
        return whole
    level, moved = next(iter(levels.items()))
    more = f" and {counted(len(levels) - 1, 'other level')}" if len(levels) > 1 else ""
    long = first_ones(moved, f"{what}: {level} ({{}}){more}.".format, width=LINE)
    others = counted(len(levels) - 1, "other") if len(levels) > 1 else ""
    rest = f" and {others}" if others else ""
    return shortest([long, f"{what}: {level} ({moved[0]}, …){rest}."], LINE)


def _effect(row: Mapping[str, Any]) -> str:
    on = ", over seeds" if row["over"] == SEEDS else ""
    low, high = (signed(row[end]) for end in ("low", "high"))
    sets = counted(row["n_test_sets"], "test set")
    pairs = f"n = {counted(row['n_pairs'], 'pair')} of repeats on {sets}"
    return (
        f"{_level(row)} in {row['classifier']}: {signed(row['difference'])} "
        f"({low} to {high}, 95 %{on}; {pairs})"
    )


def _without_interval(rows: pl.DataFrame) -> str:
    """Name the differences that are known, but have no interval to judge them by."""
    if rows.is_empty():
        return ""
    named = [
        f"{_level(row)} in {row['classifier']}"
        for row in rows.sort("axis", "level", "classifier").iter_rows(named=True)
    ]
    return f" Without an interval, so not judged: {some(named, LISTED)}."


def _unmoved(tested: pl.DataFrame, moved: pl.DataFrame) -> str:
    """Name the levels without an effect beyond chance in any classifier, the largest with each."""
    key = ["axis", "level"]
    still = (
        tested.join(moved.select(key).unique(), on=key, how="anti")
        .sort(pl.col("difference").abs(), "classifier", descending=[True, False])
        .unique(key, keep="first", maintain_order=True)
        .sort(key)
    )
    if still.is_empty():
        return ""
    named = [
        _level(row)
        + f" (largest {signed(row['difference'])} ± {fixed((row['high'] - row['low']) / 2)}, in "
        f"{row['classifier']})"
        for row in still.iter_rows(named=True)
    ]
    return f" No effect is established of: {some(named, LISTED)}."


def signed(value: float) -> str:
    """Write a number with its sign; one that rounds to zero has none."""
    text = with_sign(value)
    return text[1:] if float(text) == 0 else text.replace("-", "−")
