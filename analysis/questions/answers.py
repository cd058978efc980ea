"""A sweep's answers: sentences computed from its tables, with links to the figures behind them.

A sentence states its sample (n), its uncertainty (an interval) and what cannot be concluded.
Questions without an answer have no sentence. The page begins with these sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from manyseed.analysis.counts import counted, some
from manyseed.analysis.options import CONFIDENCE, Options
from manyseed.analysis.questions import telling
from manyseed.analysis.questions.accuracies import accuracies, sentences
from manyseed.analysis.questions.howmany import SKEWED, Answer, for_mean, too_alike
from manyseed.analysis.questions.intervals import SEEDS, total
from manyseed.analysis.questions.quantiles import t_quantile
from manyseed.analysis.questions.sentence import Sentence, incomplete
from manyseed.analysis.questions.spreads import Spreads, spreads
from manyseed.analysis.questions.standings import in_words, standings
from manyseed.analysis.questions.variance import ACCURACY, ALL, OWN, TEST_SET
from manyseed.analysis.tables.rows import VARIES, Tables

LEVEL = 0.05
"""Probability of any claim by chance among all comparisons of a sentence."""

PRECISE = 0.005
"""Half-width of the interval that a mean accuracy should have."""

LISTED = 3


def answers(
    tables: Tables,
    effects: pl.DataFrame,
    variance: pl.DataFrame | None,
    options: Options,
    *,
    planned: int | None = None,
    finished: int | None = None,
    failed: int = 0,
    cmi: pl.DataFrame | None = None,
) -> list[Sentence]:
    """Answer what can be answered, most urgent first.

    Parameters
    ----------
    tables : Tables
        With the columns of `AXES` joined, of one snapshot, without duplicate fits.
    effects : polars frame
        As `analysis.questions.effects.effects` returns it, by classifier.
    variance : polars frame or None
        The table of variances, with the columns of `AXES`.
    options : Options
        Those that the tables were computed with.
    planned, finished, failed : int
        Runs of the sweep; None if unknown.
    cmi : polars frame or None
        How well scores of response curves predict the generalisation gap.
    """
    if tables.runs.is_empty():
        return []
    missing: Iterator[Sentence] | tuple[()] = ()
    if planned is not None and finished is not None and (short := short_repeats(tables)):
        missing = incomplete(*short, planned, finished, failed)
    return [
        *missing,
        *(Sentence("accuracy", text, ("summary",)) for text in sentences(accuracies(tables))),
        *_spread(spreads(tables)),
        *_effects(effects, "accuracy_mean", "effects", "accuracy"),
        *_effects(effects, "ec_local_mean", "consistency", "local error consistency"),
        *_levels(tables, options),
        *_enough(tables),
        *_sources(variance),
        *(Sentence("standings", *found) for found in in_words(standings(tables.cells))),
        *(Sentence("scores", *found) for found in ([] if cmi is None else telling.sentences(cmi))),
    ]


def short_repeats(tables: Tables) -> tuple[int, int] | None:
    """Return how many repeats lack runs, and how many there are; None without runs."""
    if tables.runs.is_empty():
        return None
    return tables.repeats.filter(pl.col("coverage") < 1).height, tables.repeats.height


def _spread(found: Spreads | None) -> Iterator[Sentence]:
    """Say which classifier varies most and which least, or which ones cannot be told apart."""
    if found is None:
        return
    most, least = found.rows[0], found.rows[-1]
    runs = f"{most.runs:,} runs of each"
    if most.runs != least.runs:
        runs = f"{most.runs:,} and {least.runs:,} runs"
    all_of = "both" if len(found.rows) == 2 else f"all {len(found.rows)}"
    over = f"over {runs} on the {counted(found.contexts, 'cell')} that {all_of} have"
    if max(abs(row.skewness) for row in found.rows) > SKEWED:
        over += (
            "; the intervals assume normal values, but these are skewed, so they may miss the truth"
        )
    if found.left:
        share = "shares" if len(found.left) == 1 else "share"
        over += f"; {', '.join(found.left)} {share} too few cells to be compared"
    largest, smallest = (f"{row.sd:.4f} ({row.low:.4f} to {row.high:.4f})" for row in (most, least))
    ratio = f"{found.ratio:.1f} times ({found.low:.1f} to {found.high:.1f})"
    sure = "95 %"
    if len(found.rows) > 2:
        sure = f"95 %, for the ratio over all {found.pairs} pairs of classifiers together"
    if found.low > 1:
        varies, against = "most", f"and that of {least.classifier} least, with"
        if found.like_first:
            varies, against = f"more than that of {least.classifier}", "against"
        elif found.like_last:
            against = f"against that of {least.classifier},"
        text = (
            f"Between seeds, the accuracy of {most.classifier} varies {varies}, with a standard "
            f"deviation of {largest}, {against} {smallest}: {ratio} as much ({sure}; {over})."
        )
        if found.like_first:
            text += _alike("most", (most.classifier, *found.like_first))
        if found.like_last:
            text += _alike("least", (*found.like_last, least.classifier))
        elif found.like_first:
            text += f" That of {least.classifier} varies least."
    else:
        text = (
            "Which classifier's accuracy varies most between seeds cannot be told: its standard "
            f"deviation is {largest} for {most.classifier} and {smallest} for {least.classifier}, "
            f"{ratio} as much ({sure}; {over})."
        )
    yield Sentence("spread", text, ("overview-accuracy-std", "cells-1", "summary"))


def _alike(superlative: str, classifiers: Sequence[str]) -> str:
    named = f"{', '.join(classifiers[:-1])} and {classifiers[-1]}"
    return f" Which of {named} varies {superlative} cannot be told."


def _effects(effects: pl.DataFrame, metric: str, about: str, name: str) -> Iterator[Sentence]:
    """Say what changes a metric beyond chance, largest estimates first, and what does not."""
    known = effects.filter(pl.col("metric") == metric, pl.col("difference").is_not_null())
    tested = known.drop_nulls("p_holm")
    if tested.is_empty():
        return
    without = _without_interval(known.filter(pl.col("p_holm").is_null()))
    moved = tested.filter(pl.col("p_holm") < LEVEL)
    corrected = f"{tested.height:,} comparisons, Holm, {LEVEL:.0%} for all together"
    largest_half = float(((tested["high"] - tested["low"]) / 2).max())  # type: ignore[arg-type]
    single = tested.height == 1
    if moved.is_empty():
        yield Sentence(
            about,
            f"No factor is found to change {name} beyond chance "
            f"({'1 comparison' if single else corrected}); {'its' if single else 'each'} effect is "
            f"known to ± {largest_half:.4f}{'' if single else ' or better'}, so smaller effects "
            f"could have gone undetected.{without}",
            ("effects",),
        )
        return
    order = moved.with_columns(_size=pl.col("difference").abs()).sort(
        "_size", "axis", "level", "classifier", descending=[True, False, False, False]
    )
    largest = [_effect(row) for row in order.head(LISTED).iter_rows(named=True)]
    count = "the one comparison"
    if not single:
        count = f"{moved.height:,} of {tested.height:,} comparisons"
    by_size = "the largest estimates:" if moved.height > 1 else "it is"
    holm = f"p < {LEVEL:g}" if single else f"Holm, {LEVEL:.0%} for all together"
    yield Sentence(
        about,
        f"{name[0].upper()}{name[1:]} changes beyond chance in {count} ({holm}); {by_size} "
        f"{'; '.join(largest)}.{_unmoved(tested, moved)}{without}",
        ("effects",),
    )


def _effect(row: Mapping[str, Any]) -> str:
    on = ", over seeds" if row["over"] == SEEDS else ""
    low, high = (signed(row[end]) for end in ("low", "high"))
    sets = counted(row["n_test_sets"], "test set")
    pairs = f"n = {counted(row['n_pairs'], 'pair')} of repeats on {sets}"
    axis = str(row["axis"]).replace("_", " ")
    return (
        f"{axis} {row['level']} in {row['classifier']}: {signed(row['difference'])} "
        f"({low} to {high}, 95 %{on}; {pairs})"
    )


def _without_interval(rows: pl.DataFrame) -> str:
    """Name the differences that are known, but have no interval to judge them by."""
    if rows.is_empty():
        return ""
    named = [
        f"{row['axis']} {row['level']} in {row['classifier']}".replace("_", " ")
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
        f"{row['axis']} {row['level']}".replace("_", " ")
        + f" (largest {signed(row['difference'])} ± {(row['high'] - row['low']) / 2:.4f}, in "
        f"{row['classifier']})"
        for row in still.iter_rows(named=True)
    ]
    return f" No effect is established of: {some(named, LISTED)}."


def _levels(tables: Tables, options: Options) -> Iterator[Sentence]:
    """Say which runs are unlike the others of their repeat, and where the test cannot tell."""
    key = ["cell", "repeat_index"]
    varying = tables.repeats.filter(VARIES).select(*key, "delta")
    runs = tables.runs.join(varying, on=key).filter(pl.col("alpha_hat").is_not_null())
    if runs.is_empty():
        return
    majority = pl.lit(None, pl.Float64)
    if "alpha_hat_majority" in runs.columns:  # one run apart may move the reference of all others
        majority = pl.col("alpha_hat_majority")
    runs = runs.with_columns(apart=pl.coalesce(majority, "alpha_hat"), moved=majority.is_not_null())
    far = runs.filter(pl.col("apart") > options.close)
    blind = runs.filter(pl.col("delta") > options.close)
    where = blind["dataset"].cast(pl.String).unique().sort().to_list()
    text = ""
    if far.height:
        worst = far.sort("apart", *key, "run_index", descending=[True, *[False] * 3])
        row = worst.row(0, named=True)
        ties = far.filter(pl.col("apart") == row["apart"]).height
        closer = " against those that are close to each other" if far["moved"].any() else ""
        text = (
            f"{far.height:,} of {runs.height:,} runs {'is' if far.height == 1 else 'are'} unlike "
            f"the others of {'its' if far.height == 1 else 'their'} repeat (α̂ > {options.close:g}"
            f"{closer}), {_by_classifier(far, runs)}; the largest α̂, {row['apart']:.2f}"
            f"{'' if row['moved'] else _interval(row)}, is that of "
            f"{f'{ties:,} runs, the first ' if ties > 1 else ''}run {row['run_index']} of cell "
            f"{row['cell']} ({row['dataset']} × {row['classifier']}), repeat {row['repeat_index']}."
        )
        if undecided := _without_majority(runs, options.close):
            there = "one repeat" if undecided == 1 else f"{undecided:,} repeats"
            text += (
                f" In {there}, no majority of the runs is close to each other, so which are unlike "
                "the others cannot be told there: each differs from the average of the others."
            )
    elif blind.height < runs.height:
        seen = runs.height - blind.height
        text = (
            f"No run is seen to differ from the others of its repeat by more than "
            f"{options.close:.0%} of the test points (α̂ ≤ {options.close:g} for all {seen:,} runs "
            "on test sets large enough to tell)."
        )
    if blind.height:
        deltas = blind["delta"].unique().sort()
        delta = f"{deltas[0]:.2f}"
        delta += f" to {deltas[-1]:.2f}" if f"{deltas[-1]:.2f}" != delta else ""
        from manyseed.analysis.alphahat.trimming import points_needed  # imports numba

        points = points_needed(options.close, options.epsilon)
        text += (
            f"{' ' if text else ''}With so few test points in {some(where, LISTED, ' datasets')}, "
            f"α̂ cannot detect differences below δ = {delta}; a small α̂ is not informative there "
            f"({blind.height:,} runs). About {points:,} test points on each side would be enough."
        )
    yield Sentence("levels", text, ("alpha-hat-accuracy", "cells-1", "summary"))


def _without_majority(runs: pl.DataFrame, close: float) -> int:
    """Return in how many repeats at least half of the runs are far from the others' average."""
    far = (pl.col("apart") > close).mean().alias("far")
    return runs.group_by("cell", "repeat_index").agg(far).filter(pl.col("far") >= 1 / 2).height


def _by_classifier(far: pl.DataFrame, runs: pl.DataFrame) -> str:
    counts = (
        far.group_by("classifier")
        .len("far")
        .join(runs.group_by("classifier").len("all"), on="classifier")
    )
    rows = counts.sort("far", "classifier", descending=[True, False]).head(LISTED).iter_rows()
    return ", ".join(f"{name} {far:,} of {n:,}" for name, far, n in rows)


def _interval(row: dict[str, object]) -> str:
    low, high = row.get("alpha_hat_low"), row.get("alpha_hat_high")
    if low is None or high is None:
        return ""
    return f" ({low:.2f} to {high:.2f}, 95 % for new test points)"


def _enough(tables: Tables) -> Iterator[Sentence]:
    """Say how many seeds it takes to know each cell's mean accuracy to `PRECISE`."""
    key = ["cell", "repeat_index"]
    own = tables.runs.filter(~pl.col("identical")).drop_nulls("accuracy").sort(*key, "run_index")
    repeats = own.group_by(key, maintain_order=True).agg(
        pl.len().alias("n"), pl.col("accuracy").implode().list.var().alias("variance")
    )
    cells = (
        repeats.filter(pl.col("n") > 1)
        .group_by("cell", maintain_order=True)
        .agg(
            total(pl.col("variance") * (pl.col("n") - 1)).alias("squares"),
            (pl.col("n") - 1).sum().alias("freedom"),
            (pl.col("n").sum() // pl.len()).alias("n"),
        )
        .with_columns(variance=pl.col("squares") / pl.col("freedom"))
        .join(tables.repeats.group_by("cell").agg(pl.col("n_test").min()), on="cell")
        .with_columns(resolution=(1 / pl.col("n_test")).fill_null(0.0))
        .sort("variance", "cell")
    )
    if cells.is_empty():
        return
    alike = [too_alike(*row) for row in cells.select("variance", "resolution").rows()]
    unknown, cells = cells.filter(alike), cells.filter(~pl.Series(alike))
    if cells.is_empty():
        yield Sentence("enough", _no_spread(unknown, own), ("summary",))
        return
    # More variance takes more runs, so the first and last cell give the range.
    least, answer = (
        _answer(own.filter(cell=cells["cell"][place]), among=cells.height) for place in (0, -1)
    )
    if answer.runs is None:
        return
    row = own.filter(cell=cells["cell"][-1]).row(0, named=True)
    interval = f"{answer.low:,} to {answer.high:,}" if answer.high else f"{answer.low:,} or more"
    half = t_quantile(cells["n"].to_numpy() - 1, (1 + CONFIDENCE) / 2)
    enough = int((half * (cells["variance"] / cells["n"]).sqrt().to_numpy() <= PRECISE).sum())
    alone = cells.height == 1
    of_cells = "the cell" if alone else f"each of {cells.height:,} cells"
    most = (
        f"{least.runs:,} to {answer.runs:,} runs, by their standard deviations so far; "
        f"{answer.runs:,} in {row['dataset']} × {row['classifier']}, cell {row['cell']}"
    )
    text = (
        f"Knowing the mean accuracy of {of_cells} to ± {PRECISE:g} (95 %, over seeds, on one "
        f"test set) takes {f'{answer.runs:,} runs' if alone else most} ({interval}, 95 %"
        f"{'' if alone else f' for all {cells.height:,} cells together'}; from {answer.made:,} "
        "runs). "
    )
    if enough == cells.height:
        text += "Each repeat has enough runs for that."
    elif alone:
        text += "Its repeats have too few runs for that."
    elif enough:
        text += f"{enough} of {cells.height:,} cells have enough runs for that in their repeats."
    else:
        text += "No cell has enough runs for that yet."
    if unknown.height:
        text += f" {_no_spread(unknown, own)}"
    yield Sentence("enough", text, ("summary",))


def _no_spread(unknown: pl.DataFrame, runs: pl.DataFrame) -> str:
    """Say in which cells runs seem to vary too little, and what is known of the first."""
    cell, resolution = unknown.select("cell", "resolution").row(0)
    found = _answer(runs.filter(cell=cell), resolution)
    where = "the cell" if unknown.height == 1 else f"{unknown.height:,} cells, such as"
    return (
        f"How many seeds it takes to know the mean accuracy to ± {PRECISE:g} has no answer in "
        f"{where} {cell}: {found.reason}."
    )


def _answer(runs: pl.DataFrame, resolution: float = 0.0, among: int = 1) -> Answer:
    """Return the answer of `for_mean` for the runs of a cell, one of so many."""
    parts = runs.partition_by("repeat_index", maintain_order=True)
    values = [one["accuracy"].to_numpy() for one in parts]
    return for_mean(f"± {PRECISE:g}", values, PRECISE, resolution=resolution, among=among)


def _sources(variance: pl.DataFrame | None) -> Iterator[Sentence]:
    """Say what share of the variance of accuracy a source accounts for, where that is known."""
    if variance is None or variance.is_empty():
        return
    own = variance.filter(pl.col("metric") == ACCURACY, pl.col("low").is_not_null())
    sources = own.filter(pl.col("part") == OWN, pl.col("low") > 0, pl.col("share").is_not_null())
    parts = []
    if sources.height:
        row = sources.sort("share", "cell", "source", descending=[True, False, False]).row(
            0, named=True
        )
        ends = f"sd {row['low'] ** 0.5:.4f} to {row['high'] ** 0.5:.4f}, 95 %"
        parts.append(
            f"Of the variance between runs, {row['source']} by itself accounts for "
            f"{row['share']:.0%} in {row['dataset']} × {row['classifier']} (cell {row['cell']}; "
            f"{ends}; n = {row['n_runs']:,} runs)"
        )
    sets = own.filter(pl.col("part") == TEST_SET, pl.col("low") > 0)
    runs = own.filter(pl.col("part") == ALL, pl.col("low") > 0)
    both = sets.join(runs, on="cell", suffix="_all")
    apart = both.filter(pl.col("low") > pl.col("high_all"))
    if apart.height:
        row = apart.sort("variance", "cell", descending=[True, False]).row(0, named=True)
        contexts = own.filter(pl.col("part") == TEST_SET).height
        parts.append(
            f"accuracy varies more between test sets than between seeds in {apart.height:,} of "
            f"{contexts:,} cells (whose two 95 % intervals do not overlap, each cell by itself), "
            f"such as {row['dataset']} × {row['classifier']} (cell {row['cell']}): sd "
            f"{row['variance'] ** 0.5:.4f} ({row['low'] ** 0.5:.4f} to {row['high'] ** 0.5:.4f}, "
            f"95 %; n = {counted(row['n_repeats'], 'test set')}) against "
            f"{row['variance_all'] ** 0.5:.4f} ({row['low_all'] ** 0.5:.4f} to "
            f"{row['high_all'] ** 0.5:.4f}) between runs"
        )
    if parts:
        text = "; ".join(parts) + "."
        yield Sentence("sources", text[0].upper() + text[1:], ("overview-accuracy-std", "summary"))


def signed(value: object) -> str:
    """Write a number with its sign; one that rounds to zero has none."""
    text = f"{value:+.4f}"
    return text[1:] if float(text) == 0 else text.replace("-", "−")
