"""What a sweep says, in sentences that are computed from its tables, and link to what shows it.

A sentence says over what it is (n), how sure (an interval), and what cannot be concluded. Where
nothing can be said there is none. The page begins with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
from scipy.stats import t

from manyseed.analysis.alphahat.trimming import points_needed
from manyseed.analysis.counts import counted, some
from manyseed.analysis.options import CONFIDENCE, Options
from manyseed.analysis.questions import telling
from manyseed.analysis.questions.howmany import SKEWED, Answer, for_mean
from manyseed.analysis.questions.intervals import SEEDS, total
from manyseed.analysis.questions.spreads import Spreads, spreads
from manyseed.analysis.questions.standings import Standings, standings
from manyseed.analysis.questions.variance import ACCURACY, ALL, OWN, TEST_SET
from manyseed.analysis.tables.means import VARIES
from manyseed.analysis.tables.schema import Tables

LEVEL = 0.05
"""Probability of a claim by chance, over all comparisons of a sentence together."""

PRECISE = 0.005
"""Half the width of the interval that enough seeds give to a mean accuracy."""

LISTED = 3


@dataclass(frozen=True, slots=True)
class Sentence:
    """One answer.

    Attributes
    ----------
    about : str
        Which question it answers: missing, spread, effects, consistency, levels, enough, sources,
        standings, scores (of response curves) or probabilities.
    text : str
    links : tuple of str
        Names of figures or sections that show it, the best one first.
    """

    about: str
    text: str
    links: tuple[str, ...]


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
        With the columns of `AXES` joined, of one snapshot, the same fits once.
    effects : polars frame
        As `analysis.questions.effects.effects` returns them, by classifier.
    variance : polars frame or None
        The table of variances, with the columns of `AXES`.
    options : Options
        As the tables were computed with.
    planned, finished, failed : int
        Runs of the sweep; None where that is not known.
    cmi : polars frame or None
        What scores of response curves predict of the generalisation gap.
    """
    if tables.runs.is_empty():
        return []
    found = [
        *_incomplete(tables, planned, finished, failed),
        *_spread(spreads(tables)),
        *_effects(effects, "accuracy_mean", "effects", "accuracy"),
        *_effects(effects, "ec_local_mean", "consistency", "local error consistency"),
        *_levels(tables, options),
        *_enough(tables),
        *_sources(variance),
        *_standings(standings(tables.cells)),
        *(Sentence("scores", *said) for said in ([] if cmi is None else telling.sentences(cmi))),
    ]
    return list(found)


def _incomplete(
    tables: Tables, planned: int | None, finished: int | None, failed: int
) -> Iterator[Sentence]:
    """Say what is not there."""
    if planned is None or finished is None or finished >= planned:
        return
    short = tables.repeats.filter(pl.col("coverage") < 1).height
    of_repeats = f"; {short:,} of {tables.repeats.height:,} repeats lack runs" if short else ""
    failures = f", {failed:,} of them failed" if failed else ""
    yield Sentence(
        "missing",
        f"This is incomplete: {planned - finished:,} of {planned:,} planned runs are not there"
        f"{failures}{of_repeats}. What follows is of the others alone.",
        ("conventions",),
    )


def _spread(found: Spreads | None) -> Iterator[Sentence]:
    """Say which classifier varies most, and least."""
    if found is None:
        return
    most, least = found.rows[0], found.rows[-1]
    basis = f"{found.contexts:,} {'cell' if found.contexts == 1 else 'cells'}"
    runs = f"{most.runs:,}" if most.runs == least.runs else f"{most.runs:,} and {least.runs:,}"
    all_of = "both" if len(found.rows) == 2 else f"all {len(found.rows)}"
    over = f"over {runs} runs of each on the {basis} that {all_of} have"
    if max(abs(most.skewness), abs(least.skewness)) > SKEWED:
        over += "; the intervals are for normal values, and these are skewed: they may miss"
    if found.left:
        share = "shares" if len(found.left) == 1 else "share"
        over += f"; {', '.join(found.left)} {share} too few to be compared"
    spread = [f"± {row.sd:.4f} ({row.low:.4f} to {row.high:.4f})" for row in (most, least)]
    ratio = f"{found.ratio:.1f} times ({found.low:.1f} to {found.high:.1f})"
    sure = "95 %"
    if len(found.rows) > 2:
        sure = f"95 %, the ratio for all {found.pairs} pairs of classifiers together"
    if found.low > 1:
        text = (
            f"Between seeds {most.classifier} varies most, its accuracy by {spread[0]}, and "
            f"{least.classifier} least, by {spread[1]}: {ratio} as much ({sure}; {over})."
        )
    else:
        text = (
            f"Which classifier varies most between seeds cannot be told: {most.classifier} by "
            f"{spread[0]}, {least.classifier} by {spread[1]}, {ratio} as much ({sure}; {over})."
        )
    yield Sentence("spread", text, ("overview-accuracy-std", "cells-1", "summary"))


def _effects(effects: pl.DataFrame, metric: str, about: str, said: str) -> Iterator[Sentence]:
    """Say what moves a metric beyond chance, most of all, and what does not."""
    own = effects.filter(pl.col("metric") == metric, pl.col("p_holm").is_not_null())
    if own.is_empty():
        return
    moved = own.filter(pl.col("p_holm") < LEVEL)
    corrected = f"{own.height:,} comparisons, Holm, {LEVEL:.0%} for all together"
    largest_half = float(((own["high"] - own["low"]) / 2).max())  # type: ignore[arg-type]
    if moved.is_empty():
        one = own.height == 1
        yield Sentence(
            about,
            f"Nothing is seen to move {said} beyond chance "
            f"({'1 comparison' if one else corrected}); {'it is' if one else 'they are'} known to "
            f"± {largest_half:.4f}{'' if one else ' or better'}, so smaller effects may be there.",
            ("effects",),
        )
        return
    order = moved.with_columns(_size=pl.col("difference").abs()).sort(
        "_size", "axis", "level", "classifier", descending=[True, False, False, False]
    )
    told = [_effect(row) for row in order.head(LISTED).iter_rows(named=True)]
    count = (
        "the one comparison"
        if own.height == 1
        else f"{moved.height:,} of {own.height:,} comparisons"
    )
    holm = f"Holm, {LEVEL:.0%} for all together" if own.height > 1 else f"p < {LEVEL:g}"
    yield Sentence(
        about,
        f"{said[0].upper()}{said[1:]} is moved beyond chance in {count} ({holm}), most by "
        f"{'; '.join(told)}.{_unmoved(own, moved)}",
        ("effects",),
    )


def _effect(row: Mapping[str, Any]) -> str:
    on = ", on one test set" if row["over"] == SEEDS else ""
    low, high = (_signed(row[end]) for end in ("low", "high"))
    pairs = f"n = {counted(row['n_pairs'], 'pair')} of repeats"
    axis = str(row["axis"]).replace("_", " ")
    return (
        f"{axis} {row['level']} in {row['classifier']}: {_signed(row['difference'])} "
        f"({low} to {high}, 95 %{on}; {pairs})"
    )


def _unmoved(own: pl.DataFrame, moved: pl.DataFrame) -> str:
    """Name the levels that nowhere move it."""
    key = ["axis", "level"]
    levels = own.select(key).unique().sort(key)
    still = levels.join(moved.select(key).unique(), on=key, how="anti").sort(key)
    if still.is_empty():
        return ""
    named = [f"{axis} {level}".replace("_", " ") for axis, level in still.head(LISTED).iter_rows()]
    more = still.height - len(named)
    return f" No classifier shows an effect of: {', '.join(named)}" + (
        f" and {more:,} more." if more else "."
    )


def _levels(tables: Tables, options: Options) -> Iterator[Sentence]:
    """Say which runs disagree with their kind, and where the test cannot see it."""
    key = ["cell", "repeat_index"]
    varying = tables.repeats.filter(VARIES).select(*key, "delta")
    runs = tables.runs.join(varying, on=key).filter(pl.col("alpha_hat").is_not_null())
    if runs.is_empty():
        return
    far = runs.filter(pl.col("alpha_hat") > options.close)
    blind = runs.filter(pl.col("delta") > options.close)
    where = blind["dataset"].cast(pl.String).unique().sort().to_list()
    text = ""
    if far.height:
        worst = far.sort("alpha_hat", *key, "run_index", descending=[True, *[False] * 3])
        row = worst.row(0, named=True)
        text = (
            f"{far.height:,} of {runs.height:,} runs are not like the others of their repeat "
            f"(α̂ > {options.close:g}), {_by_classifier(far, runs)}; farthest is run "
            f"{row['run_index']} of cell {row['cell']} ({row['dataset']} × {row['classifier']}), "
            f"repeat {row['repeat_index']}, α̂ = {row['alpha_hat']:.2f}{_interval(row)}."
        )
    elif blind.height < runs.height:
        seen = runs.height - blind.height
        text = (
            f"No run is seen to differ from the others of its repeat by more than "
            f"{options.close:.0%} of the test points (α̂ ≤ {options.close:g} for all {seen:,} runs "
            "of test sets that can tell)."
        )
    if blind.height:
        deltas = blind["delta"].unique().sort()
        said = f"{deltas[0]:.2f}"
        said += f" to {deltas[-1]:.2f}" if f"{deltas[-1]:.2f}" != said else ""
        points = points_needed(options.close, options.epsilon)
        text += (
            f"{' ' if text else ''}On {some(where, LISTED, ' datasets')} the test cannot see what "
            f"is below δ = {said}, so a small α̂ says nothing there ({blind.height:,} runs); about "
            f"{points:,} test points on each side would do."
        )
    yield Sentence("levels", text, ("alpha-hat-accuracy", "cells-1", "summary"))


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
    """Say how many seeds give each cell's mean accuracy to `PRECISE`."""
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
        .sort("variance", "cell")
    )
    if cells.is_empty():
        return
    # runs that are needed grow with the variance, so two cells tell the ends
    least, answer = (_answer(own.filter(cell=cells["cell"][place])) for place in (0, -1))
    if answer.runs is None:
        return
    row = own.filter(cell=cells["cell"][-1]).row(0, named=True)
    interval = f"{answer.low:,} to {answer.high:,}" if answer.high else f"{answer.low:,} or more"
    half = t.ppf((1 + CONFIDENCE) / 2, cells["n"].to_numpy() - 1)
    enough = int((half * (cells["variance"] / cells["n"]).sqrt().to_numpy() <= PRECISE).sum())
    alone = cells.height == 1
    of = "the cell" if alone else f"each of {cells.height:,} cells"
    most = (
        f"{least.runs:,} to {answer.runs:,} runs are needed, most by {row['dataset']} × "
        f"{row['classifier']}, cell {row['cell']}: {answer.runs:,}"
    )
    text = (
        f"For the mean accuracy of {of} to be known to ± {PRECISE:g} (95 %, over seeds, on one "
        f"test set), {f'{answer.runs:,} runs are needed' if alone else most} ({interval}, 95 %; "
        f"from {answer.made:,} runs). "
    )
    if enough == cells.height:
        text += "The runs of each repeat are enough for that."
    elif alone:
        text += "The runs of a repeat are too few for that."
    else:
        text += f"The runs of a repeat are enough for that in {enough:,} of {cells.height:,} cells."
    yield Sentence("enough", text, ("summary",))


def _answer(runs: pl.DataFrame) -> Answer:
    """Return the answer of `howmany` for a cell."""
    parts = runs.partition_by("repeat_index", maintain_order=True)
    values = [one["accuracy"].to_numpy() for one in parts]
    return for_mean(f"± {PRECISE:g}", values, PRECISE)


def _sources(variance: pl.DataFrame | None) -> Iterator[Sentence]:
    """Say what share of the variance of accuracy a source has, where that is known."""
    if variance is None or variance.is_empty():
        return
    own = variance.filter(pl.col("metric") == ACCURACY, pl.col("low").is_not_null())
    sources = own.filter(pl.col("part") == OWN, pl.col("low") > 0, pl.col("share").is_not_null())
    told = []
    if sources.height:
        row = sources.sort("share", "cell", "source", descending=[True, False, False]).row(
            0, named=True
        )
        ends = f"sd {row['low'] ** 0.5:.4f} to {row['high'] ** 0.5:.4f}, 95 %"
        told.append(
            f"Of the variance between runs, {row['source']} by itself is {row['share']:.0%} in "
            f"{row['dataset']} × {row['classifier']} (cell {row['cell']}; {ends}; n = "
            f"{row['n_runs']:,} runs)"
        )
    sets = own.filter(pl.col("part") == TEST_SET, pl.col("low") > 0)
    key = ["cell"]
    both = sets.join(own.filter(pl.col("part") == ALL, pl.col("low") > 0), on=key, suffix="_all")
    apart = both.filter(pl.col("low") > pl.col("high_all"))
    if apart.height:
        row = apart.sort("variance", "cell", descending=[True, False]).row(0, named=True)
        contexts = own.filter(pl.col("part") == TEST_SET).height
        told.append(
            f"test sets move accuracy more than seeds in {apart.height:,} of {contexts:,} cells "
            f"(where the two 95 % intervals lie apart, each cell by itself), most in "
            f"{row['dataset']} × {row['classifier']} (cell {row['cell']}): sd "
            f"{row['variance'] ** 0.5:.4f} ({row['low'] ** 0.5:.4f} to {row['high'] ** 0.5:.4f}, "
            f"95 %; n = {counted(row['n_repeats'], 'test set')}) against "
            f"{row['variance_all'] ** 0.5:.4f} "
            f"({row['low_all'] ** 0.5:.4f} to {row['high_all'] ** 0.5:.4f}) between runs"
        )
    if told:
        text = "; ".join(told) + "."
        yield Sentence("sources", text[0].upper() + text[1:], ("overview-accuracy-std", "summary"))


def _standings(found: Standings | None) -> Iterator[Sentence]:
    """Say how classifiers rank across datasets, and which differences are beyond chance."""
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
        f"Across {found.datasets} datasets {who} first by mean accuracy (mean rank "
        f"{best.rank:.1f} of {len(found.rows)}, {wins}; {others}). "
    )
    if found.apart:
        named = [f"{one} from {other}" for one, other in found.apart[:LISTED]]
        more = len(found.apart) - len(named)
        text += f"Beyond chance it tells {', '.join(named)}" + (f" and {more} more" if more else "")
    else:
        text += "It tells no two classifiers apart beyond chance"
    text += (
        f": ranks that differ by less than {found.critical:.2f} may by chance (Nemenyi, "
        f"{LEVEL:.0%}; datasets taken as independent draws"
        + (", and so few that the test is rough)." if found.datasets < ENOUGH else ").")
    )
    yield Sentence("standings", text, ("mean-ranks", "summary"))


ENOUGH = 10
"""Datasets below which the distribution behind critical differences is only roughly met."""


def _signed(value: object) -> str:
    text = f"{value:+.4f}"
    return text[1:] if float(text) == 0 else text.replace("-", "−")
