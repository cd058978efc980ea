"""How accurate classifiers are on each dataset, and which one is better, of every two.

Only like cells are compared: on each dataset one cell of each classifier, alike in all other axes,
and on the test sets that all of them have. Nothing is averaged over cells or datasets. Intervals
are t intervals over test sets, as those of effects; differences are paired by test set. With one
test set, differences are told for it alone, by their intervals over seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from manyseed.analysis.axes import level_told, told
from manyseed.analysis.counts import counted, fixed
from manyseed.analysis.options import CONFIDENCE
from manyseed.analysis.questions.comparison import Side, compare
from manyseed.analysis.questions.crossed import sources_of
from manyseed.analysis.questions.effects import REFERENCES
from manyseed.analysis.questions.howmany import PRECISE
from manyseed.analysis.questions.intervals import MORE, Real, t_interval, too_few, within
from manyseed.analysis.questions.question import LINE, Answer, Evidence, first_ones, shortest
from manyseed.analysis.questions.usual import ALONE, CONFIGURATIONS, CONTEXT, models, nearest
from manyseed.analysis.tables.rows import Tables

LISTED = 8  # datasets
SHOWN = 5  # classifiers
_INDENT = 3  # of a verdict on a screen, and its full stop
UNEVEN = 0.6  # share of a class from which on accuracies are told beside it

_TEST_SETS = "test_sets"
_AT_ONE = "One test set allows no interval over test sets"


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over test sets, and half of its interval; None if there is none.

    With one test set only differences have one, over seeds. `levels`, tuple of (str, str): of axes
    in which the classifier has no cell like those of others.
    """

    classifier: str  # whose accuracy it is, or with which the best classifier is compared
    value: float
    half: float | None  # none, too, if all test sets or runs have the same value
    levels: tuple[tuple[str, str], ...] = ()

    @property
    def limits(self) -> tuple[float, float] | None:
        """The ends of the interval of an accuracy, which stay between 0 and 1."""
        if self.half is None:
            return None
        low, high = within(self.value, self.value - self.half, self.value + self.half)
        return float(low), float(high)

    @property
    def numbers(self) -> dict[str, str | float | None]:
        """An accuracy as a row of an answer."""
        low, high = self.limits or (None, None)
        own = dict(self.levels)
        own.pop(_TEST_SETS, None)
        return {**own, "classifier": self.classifier, "value": self.value, "low": low, "high": high}

    @property
    def where(self) -> str:
        """The levels in words and brackets; empty if the cell is like those of others."""
        said = ", ".join(
            "own test sets" if axis == _TEST_SETS else told(axis, level)
            for axis, level in self.levels
        )
        return f" ({said})" if said else ""


@dataclass(frozen=True, slots=True)
class Accuracies:
    """Classifiers on one dataset.

    `context`, tuple of (str, str): the levels of the axes in which cells of the dataset differ.
    `rows`: mean accuracies over runs and test sets, the best first; each interval by itself.
    `differences`: by how much the best is better than each of the others, in their order. The
    intervals hold for all pairs of classifiers together (Bonferroni), as the best is chosen by its
    results. `runs`: fewest and most runs of a classifier on a test set. `more`: classifiers whose
    configurations are too many to be compared. `pairs`, tuple of (str, Mean): by
    how much each classifier is better than each that follows it in `rows`, likewise. `cells`: the
    cells that are compared. `apart`: accuracies of classifiers that have no such cell, or no test
    set with the others; they are compared with none. `others`: in words, accuracies of further
    hparams.
    """

    dataset: str
    context: tuple[tuple[str, str], ...]
    rows: tuple[Mean, ...]
    differences: tuple[Mean, ...]
    test_sets: int
    runs: tuple[int, int]
    more: int
    pairs: tuple[tuple[str, Mean], ...]
    cells: tuple[int, ...]
    apart: tuple[Mean, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def every(self) -> list[Mean]:
        """All accuracies, the best first."""
        return sorted((*self.rows, *self.apart), key=lambda row: -row.value)


def accuracies(tables: Tables, confidence: float = CONFIDENCE) -> list[Accuracies]:
    """Return the accuracies on each dataset, sorted by name.

    `tables`: with the columns of `AXES` joined, of one snapshot.
    """
    known = tables.repeats.filter(pl.col("accuracy_mean").is_not_null())
    known = known.with_columns(pl.col("dataset", "classifier").cast(pl.String))
    parts = known.sort("dataset", "cell", "repeat_index").partition_by(
        "dataset", maintain_order=True
    )
    return [_of_dataset(own, tables.runs, confidence) for own in parts]


def _of_dataset(own: pl.DataFrame, runs: pl.DataFrame, confidence: float) -> Accuracies:
    """Compare the classifiers of a dataset in its chosen context."""
    others = [name for name in CONTEXT if name != "dataset"]
    usual = models(own).sort("cell", "repeat_index")
    cells = usual.unique("classifier", keep="first", maintain_order=True).select("cell")
    usual = usual.join(cells, on="cell", how="semi", maintain_order="left")
    shared = usual.filter(pl.col("cell").n_unique().over("repeat_index") == cells.height)
    if shared.is_empty():  # an unfinished sweep: the cell with most test sets
        most = usual["cell"].mode(maintain_order=True)[0]
        shared = usual.filter(cell=most)
    shared = shared.sort("classifier", "repeat_index")
    lone = usual.join(shared.select("cell"), on="cell", how="anti", maintain_order="left")
    far = nearest(own).sort("classifier", "repeat_index")
    names = shared["classifier"].unique(maintain_order=True).to_list()
    table = shared["accuracy_mean"].to_numpy().reshape(len(names), -1)
    order = np.argsort(-table.mean(axis=1), kind="stable")
    names, table = [names[k] for k in order], table[order]
    first, second = np.triu_indices(len(names), 1)
    sure = 1 - (1 - confidence) / max(first.size, 1)
    if table.shape[1] > 1:
        apart = _means([names[k] for k in second], table[first] - table[second], sure)
    else:
        both = [(names[i], names[k]) for i, k in zip(first, second, strict=True)]
        apart = _over_seeds(shared, runs, both, sure)
    context = usual.row(0, named=True)
    others = [name for name in others if usual[name].n_unique() == 1]
    n_runs = shared["n_runs"].to_list()
    shown = usual.with_columns(classifier=ALONE)
    return Accuracies(
        dataset=str(own["dataset"][0]),
        context=tuple((name, str(context[name])) for name in others if own[name].n_unique() > 1),
        rows=_means(names, table, confidence),
        differences=apart[: len(names) - 1],
        test_sets=table.shape[1],
        runs=(min(n_runs), max(n_runs)),
        more=len({*own["classifier"]} - {*usual[ALONE]} - {*far["classifier"]}),
        pairs=tuple((names[k], one) for k, one in zip(first, apart, strict=True)),
        cells=tuple(shared["cell"].unique(maintain_order=True).to_list()),
        apart=(*_apart(lone, shared, confidence), *_apart(far, shared, confidence)),
        others=_with_other_hparams(own, pl.concat([shown.select(far.columns), far])),
    )


def _apart(own: pl.DataFrame, like: pl.DataFrame, confidence: float) -> Iterator[Mean]:
    """Yield the accuracy of each cell that is unlike those compared, and in what it differs.

    `own`: its repeats, of one cell of each classifier. `like`: those of the cells compared.
    """
    axes = [name for name in CONTEXT if name not in ("dataset", "hparams")]
    context = like.row(0, named=True)
    for (name,), cell in own.group_by("classifier", maintain_order=True):
        there = cell.filter(pl.col("repeat_index").is_in(like["repeat_index"].implode()))
        (mean,) = _means([str(name)], _row(cell if there.is_empty() else there), confidence)
        levels = {axis: str(cell[axis][0]) for axis in axes if cell[axis][0] != context[axis]}
        if not levels or there.is_empty():
            levels[_TEST_SETS] = ""
        yield replace(mean, levels=(*levels.items(),))


def _row(cell: pl.DataFrame) -> Real:
    return cell.sort("repeat_index")["accuracy_mean"].to_numpy().reshape(1, -1)


def _with_other_hparams(own: pl.DataFrame, shown: pl.DataFrame) -> tuple[str, ...]:
    """Return the accuracies of cells that differ in hparams alone from those shown, in words."""
    rest = [name for name in CONTEXT if name != "hparams"]
    on = ["classifier", *rest]
    others = own.join(shown, on="cell", how="anti")
    alike = others.join(shown, on=on, how="semi", nulls_equal=True)
    # those of a classifier with too many of them to be models
    many = others.join(shown, on="classifier", how="anti")
    many = many.join(shown.head(1), on=rest, how="semi", nulls_equal=True)
    others = pl.concat([alike, many])
    means = others.group_by("classifier", "cell", "hparams").agg(pl.col("accuracy_mean").mean())
    said = []
    for (whose,), each in means.sort("classifier", "cell").group_by(
        "classifier", maintain_order=True
    ):
        values = each["accuracy_mean"].to_list()
        if len(values) > CONFIGURATIONS:
            low, high = (fixed(end, 3) for end in (min(values), max(values)))
            said.append(f"{whose} {low} to {high} ({len(values):,} of them)")
        else:
            levels = zip(each["hparams"], values, strict=True)
            said += [f"{whose} {level} {fixed(value, 3)}" for level, value in levels]
    return tuple(said)


def _means(names: Sequence[str], table: Real, confidence: float) -> tuple[Mean, ...]:
    """Return the mean of each row over test sets, with the half-width of its t interval."""
    n = table.shape[1]
    mean = table.mean(axis=1)
    if n < 2:
        return tuple(Mean(*row, None) for row in zip(names, mean.tolist(), strict=True))
    low, high, _ = t_interval(
        mean, table.var(axis=1, ddof=1) / n, np.full(mean.shape, n - 1.0), confidence
    )
    half = [None if np.isnan(one) else float(one) for one in (high - low) / 2]
    return tuple(Mean(*row) for row in zip(names, mean.tolist(), half, strict=True))


def _over_seeds(
    repeats: pl.DataFrame, runs: pl.DataFrame, pairs: Sequence[tuple[str, str]], confidence: float
) -> tuple[Mean, ...]:
    """Return the differences of pairs on one test set, with their intervals over seeds.

    `repeats`: a row for each classifier. Runs that share streams are not paired here: whether they
    do is no matter of the tables, and pairing them mostly narrows intervals.
    """
    sides = {}
    for row in repeats.iter_rows(named=True):
        one = runs.filter(~pl.col("identical"), cell=row["cell"], repeat_index=row["repeat_index"])
        values = one.sort("run_index")["accuracy"].drop_nulls().to_numpy()
        crossed = sources_of(str(row["vary"]))
        sides[row["classifier"]] = Side(values, bool(row["identical"]), crossed)
    found = []
    for better, worse in pairs:
        told = compare([sides[better]], [sides[worse]], paired=False, confidence=confidence)
        half = None if told.seeds is None else (told.seeds[1] - told.seeds[0]) / 2
        found.append(Mean(worse, told.difference, half))
    return tuple(found)


def sentences(found: Sequence[Accuracies]) -> Iterator[str]:
    """Yield a sentence or two for each of the first datasets.

    What holds for all of them is said once.
    """
    is_said = False
    for number, one in enumerate(found[:LISTED]):
        context = ", ".join(told(axis, level) for axis, level in one.context)
        shown = one.every[:SHOWN]
        levels = ", ".join(f"{row.classifier} {_level(row)}{row.where}" for row in shown)
        more = len(one.every) - len(shown) + one.more
        text = (
            f"Accuracy on {one.dataset}{f' ({context})' if context else ''}: {levels}"
            f"{f' and {more:,} more' if more else ''} ({_sample(one, explain=number == 0)})."
            f"{_better(one)}"
        )
        text += "".join(f" {line}" for line in (_not_compared(one), _others(one)) if line)
        few = too_few(one.test_sets)
        if few and not is_said:
            text += f" {few}"
            is_said = True
        if number == LISTED - 1 and len(found) > LISTED:
            text += f" The summary has {counted(len(found) - LISTED, 'more dataset')}."
        yield text


def _sample(one: Accuracies, *, explain: bool) -> str:
    least, most = one.runs
    runs = f"{counted(most, 'run')}" if least == most else f"{least:,} to {most:,} runs"
    means = "means over runs" if explain else ""
    if explain and one.test_sets > 1:
        means += ", ± half of the 95 % interval over test sets"
    sample = f"n = {counted(one.test_sets, 'test set')}, {runs} on each"
    return f"{means}; {sample}" if means else sample


def _better(one: Accuracies) -> str:
    """Say which of the others the best classifier is better than, beyond chance."""
    if not one.differences:
        return f" {_AT_ONE}; more do, by {MORE}." if one.test_sets == 1 else ""
    pairs = len(one.rows) * (len(one.rows) - 1) // 2
    sure = f"95 % for all {pairs:,} pairs of classifiers on it together" if pairs > 1 else "95 %"
    if one.test_sets > 1:
        return f" Paired on the same test sets ({sure}), {_best(one)}."
    others = f" {_AT_ONE}, so which is better on others cannot be told; more allow one, by {MORE}."
    if all(row.half is None for _, row in one.pairs):
        return others
    return f" Over seeds, on this test set alone ({sure}), {_best(one)}.{others}"


def _best(one: Accuracies) -> str:
    best, shown = one.rows[0].classifier, one.differences[: SHOWN - 1]
    above = [row for row in shown if _is_told(row)]
    alike = [row for row in shown if row not in above]
    parts = []
    if above:
        named = " and ".join(f"than {row.classifier} by {_size(row)}" for row in above)
        parts.append(f"is better {named}")
    if alike:
        lead = _lead if one.test_sets > 1 else lambda row: f"{_size(row)} better"
        named = " and ".join(f"{row.classifier} ({lead(row)})" for row in alike)
        parts.append(f"cannot be told apart from {named}")
    return f"{best} {', but '.join(parts)}"


def _is_told(row: Mean) -> bool:
    return row.half is not None and row.value > row.half


def _is_alike(row: Mean) -> bool:
    """Whether one is not told to be better, and it is told that hardly anything can be missed."""
    return row.half is not None and not _is_told(row) and row.value + row.half < PRECISE


def headlines(one: Accuracies, most: float = 0.0) -> str:
    """Return the accuracies in a line, and in another which classifier is better, of every two.

    ``a > b``: better beyond chance; ``a ≈ b``: their means differ by less than `PRECISE`. If no
    run errs, the other line asks for a leak. `most`: the share of the most frequent class, which is
    told from `UNEVEN` on.
    """
    usual = [
        level_told(axis, level) for axis, level in one.context if level != str(REFERENCES.get(axis))
    ]
    where = f"{one.dataset} ({', '.join(usual)})" if usual else one.dataset
    levels = [f"{row.classifier} {fixed(row.value, 3)}{row.where}" for row in one.every]
    beside = f"; most frequent class {fixed(most, 3)}" if most >= UNEVEN else ""
    said = first_ones(levels, lambda text: f"{where}: {text}{beside}.")
    if all(row.value == 1 for row in one.every):
        return (
            f"{said}\nNo run errs on any test point; look for a feature that gives the class away."
        )
    return "\n".join(filter(None, [said, verdict(one), _not_compared(one), _others(one)]))


def _not_compared(one: Accuracies) -> str:
    """Say whose cells are unlike those of others, so that no pair with them is compared."""
    axes = dict.fromkeys(axis for row in one.apart for axis, _ in row.levels)
    names = [row.classifier for row in one.apart]
    differ = "differs" if len(axes) == 1 and not str(*axes).endswith("s") else "differ"
    why = f"Not compared with others, as {' and '.join(axes)} {differ}".replace("_", " ")
    return first_ones(names, lambda text: f"{why}: {text}.", width=LINE) if names else ""


def _others(one: Accuracies) -> str:
    """Tell the accuracies with other hparams than those of the first line."""
    if not one.others:
        return ""
    return first_ones(one.others, lambda text: f"With other hparams: {text}.", width=LINE)


def verdict(one: Accuracies) -> str:
    """Say of every two classifiers which is better; nothing of a single one."""
    if not one.pairs:
        return ""
    is_alone = one.test_sets == 1
    if is_alone and all(row.half is None for _, row in one.pairs):
        return "Which is better: not told, from one test set."
    few = f", on only {one.test_sets:,} test sets" if too_few(one.test_sets) else ""
    found = list(_verdicts(one))
    if not found:
        number = len(one.pairs)
        told_apart = f"none of {number:,} pairs can be told apart" if number > 1 else "not told"
        return f"Which is better: {told_apart}{few}{', even on this test set' * is_alone}."
    if is_alone:
        return shortest(f"On this test set: {text}; on others, not told." for text in found)
    return shortest(f"{text}{few}." for text in found)


def _verdicts(one: Accuracies) -> Iterator[str]:
    """Yield what can be said of the pairs, the longest first; nothing if no two are told apart."""
    names = [row.classifier for row in one.rows]
    beaten: dict[str, list[str]] = {name: [] for name in names}
    for better, row in one.pairs:
        if _is_told(row):
            beaten[better].append(row.classifier)
    number, told = len(one.pairs), sum(map(len, beaten.values()))
    together = f"; {number:,} pairs judged together" if number > 1 else ""
    if told == number and len(names) <= SHOWN:
        yield f"{' > '.join(names)}{together}"
        return
    alike = [f"{better} ≈ {row.classifier}" for better, row in one.pairs if _is_alike(row)]
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, others in beaten.items():
        if others:
            groups.setdefault(tuple(others), []).append(name)
    parts = [f"{', '.join(own)} > {', '.join(others)}" for others, own in groups.items()]
    rest = number - told - len(alike)
    if rest == number:
        return
    untold = [
        (better, row.classifier)
        for better, row in one.pairs
        if not (_is_told(row) or _is_alike(row))
    ]
    named = ", ".join(map(" and ".join, untold))
    left = [f"{named} not told apart"] if 0 < rest <= 2 else []
    left = left or ([f"{rest:,} other pairs not told"] if rest else [])
    counted_only = f"{told:,} of {number:,} pairs are told apart"
    best = f"{names[0]} > {len(beaten[names[0]]):,} of {len(names) - 1:,} others"
    pairs = "; ".join([*parts, *alike, *left])
    whole = f"{pairs}{together}"
    if len(whole) > LINE - _INDENT:
        whole = f"{pairs} ({number:,} pairs)"
    yield from (whole, pairs)
    if 0 < rest <= 2:  # rather fewer words than no names
        for between in (" and ", ", "):
            named = "; ".join(between.join(pair) for pair in untold)
            yield "; ".join([*parts, *alike, f"{named}: not told"])
    yield f"{best}; {counted_only}"


def _lead(row: Mean) -> str:
    """Return a difference in words; one without an interval is the same on all test sets."""
    if row.half is None:
        return f"{_size(row)} better on each" if fixed(row.value) != "0.0000" else "equal"
    return f"{_size(row)} better"


def _level(row: Mean) -> str:
    """Return an accuracy with its interval, which stays between 0 and 1."""
    if row.half is None or 0 <= row.value - row.half <= row.value + row.half <= 1:
        return _size(row)
    low, high = row.limits or (0, 1)
    return f"{fixed(row.value)} ({fixed(low)} to {fixed(high)})"


def _size(row: Mean) -> str:
    return fixed(row.value) + ("" if row.half is None else f" ± {fixed(row.half)}")


def answer(evidence: Evidence) -> Iterator[Answer]:
    """Say how accurate classifiers are, and whether the best one is better than the others."""
    found = accuracies(evidence.tables if evidence.every is None else evidence.every)
    for one, text in zip(found, sentences(found), strict=False):
        whose = {"dataset": one.dataset, **dict(one.context)}
        rows = [{**whose, **row.numbers} for row in one.every]
        most = evidence.most_frequent.get(one.dataset, 0.0)
        if most:
            text += f" The most frequent class has {fixed(most)} of the test points."
        shown = ("classifiers", "summary")
        yield Answer(headlines(one, most), rows=rows, figures=shown, evidence=text)
