"""Runs ranked by α̂ and accuracy, and sources of randomness compared: RKS, Tables II to V."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from manyseed.analysis.counts import fixed, some
from manyseed.analysis.options import CLOSE
from manyseed.analysis.questions.intervals import total
from manyseed.analysis.questions.oneclass import answer as of_one_class
from manyseed.analysis.questions.quantiles import normal_above, t_below
from manyseed.analysis.questions.question import Answer, Evidence
from manyseed.analysis.tables.rows import REPEAT, VARIES, Tables

LISTED = 3
FENCED = 10  # fewest runs of a cell from whose α̂ one is told apart without a close majority

COMPARED = ("accuracy", "alpha_hat", "ece", "churn_ensemble", "churn_mean")
HELD_OUT = ("choosing_accuracy", "choosing_alpha_hat", "choosing_delta", "holdout_accuracy")
SET_APART = ("alpha_hat_majority", "alpha_hat_low", "alpha_hat_high")
"""Columns of runs by which `answer` tells runs that are unlike the others, where there are any."""


def close_or_not(alpha_hat: pl.Expr, delta: pl.Expr, close: float) -> pl.Expr:
    """Return whether runs are close; null if unknown.

    A run is close if its α̂ is at most `close` and the resolution δ is, too: with a larger δ,
    contamination of size `close` isn't seen. An α̂ above `close` shows at any δ that the run is not
    close. Without α̂ it is unknown.
    """
    return (
        pl.when(alpha_hat > close)
        .then(pl.lit(value=False))
        .when(delta <= close)
        .then(alpha_hat <= close)
    )


def ranked(runs: pl.DataFrame, close: float = CLOSE, within: float | None = None) -> pl.DataFrame:
    """Rank the runs of each repeat by the rule of RKS: small α̂ first, then high accuracy.

    Runs whose α̂ is at most `close` come before all others; within both groups runs are ordered by
    descending accuracy, ascending α̂, then run index. Copies of a run are left out. The accuracy of
    the first run is optimistic, as it was chosen by it. If the analysis held out points
    (`HELD_OUT`), runs are chosen by α̂ and accuracy on the other points, and `holdout_accuracy` is
    not optimistic.

    `runs`: the table of runs with `delta`, and with `choosing_delta` if points were held out.
    `close`: largest α̂ of a run that stands for the training. `within`: keep only runs whose
    accuracy is at most this much below the best of their repeat; Table IV compares models of
    similar accuracy.

    Returns the columns of `runs`, `rank` (1 is best) and `close` (`close_or_not`), sorted by
    `cell`, `repeat_index` and `rank`.
    """
    held_out = "choosing_accuracy" in runs.columns and runs["choosing_accuracy"].count() > 0
    accuracy, level, delta = (
        f"choosing_{name}" if held_out else name for name in ("accuracy", "alpha_hat", "delta")
    )
    shown = runs.filter(~pl.col("identical")).with_columns(
        pl.col(level).le(close).fill_null(value=False).alias("_near"),
        close_or_not(pl.col(level), pl.col(delta), close).alias("close"),
    )
    if within is not None:
        best = pl.col(accuracy).max().over(REPEAT)
        shown = shown.filter(pl.col(accuracy) >= best - within)
    ordered = shown.sort(
        *REPEAT,
        *("_near", accuracy, level, "run_index"),
        descending=[False, False, True, True, False, False],
        nulls_last=True,
    )
    rank = pl.int_range(1, pl.len() + 1, dtype=pl.UInt32).over(REPEAT)
    return ordered.drop("_near").with_columns(rank=rank)


OF_CELLS = (
    *("n_runs", "n_distinct", "n_repeats", "n_identical_repeats"),
    *("accuracy_mean", "accuracy_std", "accuracy_mean_sd", "ensemble_accuracy"),
)
"""Columns taken from the table of cells."""

_PAIRS_CLOSE = ("n_pairs_close", "churn_min_close", "churn_max_close")


def sources(tables: Tables, close: float = CLOSE) -> pl.DataFrame:
    """Compare what different sources of randomness do to accuracy and churn, one row per cell.

    Copies of a run count once in extremes; repeats of identical runs have neither close runs nor
    pairs. Columns about close runs are null if some α̂ is at most `close` while δ is above it: such
    runs may or may not be close. Runs with an α̂ are judged: where half of the runs are the
    reference, those of the other half, the candidates, which are all that the tables of RKS have.

    `close`: largest α̂ of a run that is close to the others.

    Returns `cell`; for Table II the columns `OF_CELLS`, `accuracy_min`, `accuracy_max` (over the
    runs of all repeats), `n_judged` and the same of judged runs (`accuracy_mean_judged`, …),
    `n_close`, `accuracy_min_close` and `accuracy_max_close` (over runs with α̂ at most `close`);
    for Table III `n_pairs`, `churn_min`, `churn_max` (shares of test points), `n_pairs_judged` and
    the same of pairs of judged runs, `n_pairs_close`, `churn_min_close` and `churn_max_close` (both
    runs close). Null if undefined.
    """
    varying = tables.repeats.select(*REPEAT, VARIES.alias("varies"), "delta")
    runs = tables.runs.filter(~pl.col("identical")).join(varying, on=REPEAT, how="left")
    small = pl.col("varies") & (pl.col("alpha_hat") <= close)
    near = pl.col("accuracy").filter(small)
    known = pl.col("alpha_hat").is_not_null() & pl.col("varies")
    judged = pl.col("accuracy").filter(known)
    of_runs = runs.group_by("cell").agg(
        pl.col("accuracy").min().alias("accuracy_min"),
        pl.col("accuracy").max().alias("accuracy_max"),
        judged.len().alias("n_judged"),
        judged.min().alias("accuracy_min_judged"),
        judged.max().alias("accuracy_max_judged"),
        near.len().alias("n_close"),
        near.min().alias("accuracy_min_close"),
        near.max().alias("accuracy_max_close"),
        (small & (pl.col("delta") > close)).any().alias("unsaid"),
    )
    return (
        tables.cells.select("cell", *OF_CELLS)
        .join(of_runs, on="cell", how="left")
        .join(_spread(runs.filter(known)), on="cell", how="left")
        .join(_churn(tables, close), on="cell", how="left")
        .with_columns(
            pl.when(~pl.col("unsaid")).then(pl.col(name)).alias(name)
            for name in ("n_close", "accuracy_min_close", "accuracy_max_close", *_PAIRS_CLOSE)
        )
        .drop("unsaid")
        .sort("cell")
    )


def _spread(judged: pl.DataFrame) -> pl.DataFrame:
    """Return mean and pooled standard deviation of the accuracies of judged runs."""
    freedom, variance = pl.col("n") - 1, pl.col("variance")
    pooled = (total((freedom * variance).fill_null(0.0)) / total(freedom)).sqrt().fill_nan(None)
    return (
        judged.sort(*REPEAT, "run_index")
        .group_by(REPEAT, maintain_order=True)
        .agg(
            pl.len().cast(pl.Float64).alias("n"),
            pl.col("accuracy").mean(),
            pl.col("accuracy").var().alias("variance"),
        )
        .group_by("cell", maintain_order=True)
        .agg(
            pl.col("accuracy").mean().alias("accuracy_mean_judged"),
            pooled.alias("accuracy_std_judged"),
        )
    )


def _churn(tables: Tables, close: float) -> pl.DataFrame:
    varying = tables.repeats.filter(VARIES).select(REPEAT)
    # There are many pairs: take one pass over the columns used.
    pairs = tables.pairs.lazy().join(varying.lazy(), on=REPEAT, how="semi")
    for side in ("run_i", "run_j"):
        levels = tables.runs.lazy().select(
            *REPEAT, pl.col("run_index").alias(side), pl.col("alpha_hat").alias(f"alpha_{side}")
        )
        pairs = pairs.join(levels, on=[*REPEAT, side], how="left")
    both = (pl.col("alpha_run_i") <= close) & (pl.col("alpha_run_j") <= close)
    near = pl.col("churn").filter(both)
    known = pl.col("alpha_run_i").is_not_null() & pl.col("alpha_run_j").is_not_null()
    judged = pl.col("churn").filter(known)
    compared = pairs.group_by("cell").agg(
        pl.len().alias("n_pairs"),
        pl.col("churn").min().alias("churn_min"),
        pl.col("churn").max().alias("churn_max"),
        judged.len().alias("n_pairs_judged"),
        judged.min().alias("churn_min_judged"),
        judged.max().alias("churn_max_judged"),
        near.len().alias("n_pairs_close"),
        near.min().alias("churn_min_close"),
        near.max().alias("churn_max_close"),
    )
    return compared.collect(engine="streaming")


RARE = 0.01  # probability of naming any run by its accuracy where all are of one normal kind


def outlying(runs: pl.DataFrame, rare: float = RARE) -> pl.DataFrame:
    """Return the runs whose accuracy is unlike that of the others of their repeat.

    Two tests must tell it: of one more value beside normal ones (Student's t), and of errors on as
    many independent points. Both are corrected for the number of runs (Bonferroni).

    `runs`: with `n_test`. Adds `low` and `high`, the least and largest accuracy of the others, and
    `std_kept`, the standard deviation of the runs of the repeat that are not among these.
    """
    known = runs.filter(~pl.col("identical") & pl.col("accuracy").is_not_null())
    value = pl.col("accuracy")
    known = known.with_columns(
        others=pl.len().over(REPEAT) - 1, away=value - value.mean().over(REPEAT)
    ).filter(pl.col("others") > 1)
    if known.is_empty():
        return known.with_columns(low=value, high=value, std_kept=value)
    n, away, points = (
        known[name].cast(pl.Float64).to_numpy() for name in ("others", "away", "n_test")
    )
    squares = known.select((pl.col("away") ** 2).sum().over(REPEAT)).to_series().to_numpy()
    gap = away * (n + 1) / n  # from the mean of the others, which are -away / n from that of all
    within = np.maximum(squares - away**2 - away**2 / n, 0.0)
    share = (known["accuracy"].to_numpy() - gap) * points
    share = (share + 1) / (points + 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(gap) / np.sqrt(within / (n - 1) * (1 + 1 / n))
        z = np.abs(gap) / np.sqrt(share * (1 - share) / points * (1 + 1 / n))
    first, last = value.min().over(REPEAT), value.max().over(REPEAT)
    second, last_but_one = value.sort().get(1).over(REPEAT), value.sort().get(-2).over(REPEAT)
    found = known.with_columns(
        low=pl.when(value == first).then(second).otherwise(first),
        high=pl.when(value == last).then(last_but_one).otherwise(last),
    )
    rare /= 2 * known.height  # on either side, of each run
    told = np.asarray(t_below(n - 1, -np.nan_to_num(t)) < rare)
    told[told] = [normal_above(one) < rare for one in z[told]]
    kept = value.filter(~pl.col("told")).std().over(REPEAT)
    return found.with_columns(told=told).with_columns(std_kept=kept).filter("told").drop("told")


def outlier(row: Mapping[str, Any]) -> str:
    """Name a run that `outlying` returned: ``5:0:3 (0.100; others 0.900 to 0.950)``."""
    address = f"{row['cell']}:{row['repeat_index']}:{row['run_index']}"
    others = f"{fixed(row['low'], 3)} to {fixed(row['high'], 3)}"
    return f"{address} ({fixed(row['accuracy'], 3)}; others {others})"


def _outlying(found: pl.DataFrame, runs: pl.DataFrame) -> tuple[str, str]:
    """Say which runs are unlike the others in accuracy: a headline, and the evidence."""
    of = runs.height
    far = (pl.col("accuracy") - (pl.col("low") + pl.col("high")) / 2).abs()
    row = found.sort(far, *REPEAT, "run_index", descending=[True, False, False, False])
    one = row.row(0, named=True)
    number = f"{found.height:,} of {of:,} runs {'is' if found.height == 1 else 'are'} unlike"
    headline = f"{number} the others in accuracy; see run {outlier(one)}."
    every = runs.filter(pl.all_horizontal(pl.col(name) == one[name] for name in REPEAT))
    std, kept = every["accuracy"].std(), one["std_kept"]
    spread = ""
    if isinstance(std, float) and kept is not None:
        same = found.join(row.head(1), on=REPEAT, how="semi").height
        without = "it" if same == 1 else f"the {same:,} such runs"
        spread = (
            f" The standard deviation of accuracy in that repeat is {fixed(std)} with and "
            f"{fixed(kept)} without {without}."
        )
    repeat = "its repeat" if found.height == 1 else "their repeats"
    return headline, (
        f"{number} the others of {repeat} in accuracy: by more than these differ and than "
        f"independent errors would (two tests, p below {RARE:g} for all runs together); the "
        f"farthest is run {one['run_index']} of cell {one['cell']} ({one['dataset']} × "
        f"{one['classifier']}), repeat {one['repeat_index']}, with {fixed(one['accuracy'])}, and "
        f"{fixed(one['low'])} to {fixed(one['high'])} for the others.{spread}"
    )


def answer(evidence: Evidence) -> Iterator[Answer]:
    """Say which runs are unlike the others of their repeat, and where the test cannot tell."""
    tables = evidence.tables if evidence.every is None else evidence.every
    key, options = ["cell", "repeat_index"], evidence.options
    yield from of_one_class(tables)
    varying = tables.repeats.filter(VARIES).select(*key, "delta", "n_test")
    every = tables.runs.join(varying, on=key)
    runs = _compared(every.filter(pl.col("alpha_hat").is_not_null()), options.close)
    far = runs.filter("far")
    apart = outlying(every).join(far, on=[*key, "run_index"], how="anti")
    if runs.is_empty() and apart.is_empty():
        return
    blind = runs.filter(pl.col("delta") > options.close)
    where = blind["dataset"].cast(pl.String).unique().sort().to_list()
    text, lines = "", []
    if far.height:
        worst = far.sort("apart", *key, "run_index", descending=[True, *[False] * 3])
        row = worst.row(0, named=True)
        ties = far.filter(pl.col("apart") == row["apart"]).height
        lines = [
            f"{far.height:,} of {runs.height:,} runs {'is' if far.height == 1 else 'are'} unlike "
            f"the others ({_by_classifier(far)}); see run "
            f"{row['cell']}:{row['repeat_index']}:{row['run_index']}."
        ]
        closer = " against those that are close to each other" if far["moved"].any() else ""
        text = (
            f"{far.height:,} of {runs.height:,} runs {'is' if far.height == 1 else 'are'} unlike "
            f"the others of {'its' if far.height == 1 else 'their'} repeat (α̂ > {options.close:g}"
            f"{closer}), {_by_classifier(far, runs)}; the largest α̂, {fixed(row['apart'], 2)}"
            f"{'' if row['moved'] else _interval(row)}, is that of "
            f"{f'{ties:,} runs, the first ' if ties > 1 else ''}run {row['run_index']} of cell "
            f"{row['cell']} ({row['dataset']} × {row['classifier']}), repeat {row['repeat_index']}."
        )
    if apart.height:
        headline, sentence = _outlying(apart, every)
        lines.append(headline)
        text += f"{' ' if text else ''}{sentence}"
    divided = runs.filter("divided").sort(
        "apart", *key, "run_index", descending=[True, *[False] * 3]
    )
    if divided.height:
        whose = divided["classifier"].cast(pl.String).unique().sort().to_list()
        row = divided.row(0, named=True)
        lines.append(
            f"Runs of {some(whose, 2)} differ among themselves (α̂ up to {fixed(row['apart'], 2)})."
        )
        repeats = divided.select(key).n_unique()
        text += (
            f"{' ' if text else ''}In {'one repeat' if repeats == 1 else f'{repeats:,} repeats'} "
            f"of {some(whose, LISTED)}, runs differ among themselves, by α̂ of up to "
            f"{fixed(row['apart'], 2)}{_interval(row)}, that of run {row['run_index']} of cell "
            f"{row['cell']}, repeat {row['repeat_index']}. There, no majority of the runs is close "
            "to each other, or other runs of the cell differ by as much (the outer fence: three "
            "ranges of quartiles above the upper one), so which are unlike the others cannot be "
            "told."
        )
    if not lines and blind.height < runs.height:
        seen = runs.height - blind.height
        lines = [f"No run is seen to differ by more than {options.close:.0%} of the test points."]
        text = (
            f"No run is seen to differ from the others of its repeat by more than "
            f"{options.close:.0%} of the test points (α̂ ≤ {options.close:g} for all {seen:,} runs "
            "on test sets large enough to tell)."
        )
    if blind.height:
        deltas = blind["delta"].unique().sort()
        delta = fixed(deltas[0], 2)
        delta += f" to {fixed(deltas[-1], 2)}" if fixed(deltas[-1], 2) != delta else ""
        from manyseed.analysis.alphahat.trimming import points_needed  # imports numba

        points = 2 * points_needed(options.close, options.epsilon)  # a side is half of a test set
        where_not = "Test sets are too small for α̂, which"
        if blind.height < runs.height:
            where_not = f"{some(where, 1, ' datasets')}: too small for α̂, which"
        if blind.filter(pl.col("far") | pl.col("divided")).is_empty():  # large ones are told
            lines.append(f"{where_not} takes test sets of about {points:,} points.")
        text += (
            f"{' ' if text else ''}With so few test points in {some(where, LISTED, ' datasets')}, "
            f"α̂ cannot detect differences below δ = {delta}; a small α̂ is not informative there "
            f"({blind.height:,} runs). Test sets of about {points:,} points would be enough."
        )
    shown = ("dataset", "classifier", *key, "run_index", "apart", "delta")
    yield Answer(
        "\n".join(lines),
        evidence=text,
        rows=[
            *far.select(shown).to_dicts(),
            *apart.with_columns(apart=pl.col("alpha_hat")).select(shown).to_dicts(),
        ],
        figures=("alpha-hat-accuracy",) * bool(runs.height) + ("cells-1", "summary"),
    )


def _compared(runs: pl.DataFrame, close: float) -> pl.DataFrame:
    """Return the runs with what sets them apart, and whether they are, or differ as all there do.

    `apart` is α̂ against the majority that is close to each other (`moved`), or, where there is
    none, against all others. `far`: a run that differs by more than the runs of its cell do, that
    is beyond the outer fence of their α̂, from a majority; `divided`: another run that is not close.
    """
    from manyseed.analysis.metrics.alpha_tests import SEARCHED  # imports numba

    majority = pl.lit(None, pl.Float64)
    if "alpha_hat_majority" in runs.columns:  # one run apart may move the reference of all others
        majority = pl.col("alpha_hat_majority")
    apart, repeat = pl.col("apart"), ("cell", "repeat_index")
    low, high = (apart.quantile(q, "linear").over("cell") for q in (1 / 4, 3 / 4))
    fence = pl.when(pl.len().over("cell") >= FENCED).then(high + 3 * (high - low))
    found = runs.with_columns(
        apart=pl.coalesce(majority, "alpha_hat"), moved=majority.is_not_null()
    ).with_columns(fence=fence, beyond=(apart > close) & (apart > fence.fill_null(0.0)))
    few = pl.col("fence").is_not_null() & (pl.col("beyond").mean().over(repeat) < 1 / 2)
    agreed = few | pl.col("moved").any().over(repeat) | (pl.len().over(repeat) > SEARCHED)
    return found.with_columns(far=pl.col("beyond") & agreed).with_columns(
        divided=(apart > close) & ~pl.col("far")
    )


def _by_classifier(far: pl.DataFrame, runs: pl.DataFrame | None = None) -> str:
    """Return how many runs are far by classifier, of how many if all `runs` are given."""
    counts = far.group_by("classifier").len("far")
    counts = counts.sort("far", "classifier", descending=[True, False]).head(LISTED)
    if runs is None:
        return ", ".join(f"{name} {far:,}" for name, far in counts.iter_rows())
    counts = counts.join(
        runs.group_by("classifier").len("all"), on="classifier", maintain_order="left"
    )
    return ", ".join(f"{name} {far:,} of {n:,}" for name, far, n in counts.iter_rows())


def _interval(row: dict[str, Any]) -> str:
    low, high = row.get("alpha_hat_low"), row.get("alpha_hat_high")
    if low is None or high is None:
        return ""
    return f" ({fixed(low, 2)} to {fixed(high, 2)}, 95 % for new test points)"
