"""Compare cells, classifiers or sweeps: how two cells differ, and which runs are paired.

Test sets are shared if they have the same positions and true classes in the same data; streams are
shared if runs draw from the same keys. Names of sweeps, datasets and classifiers prove nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.counts import counted, fixed, signed, some
from manyseed.analysis.figures.labels import labelled
from manyseed.analysis.options import CONFIDENCE
from manyseed.analysis.questions.comparison import compare, compare_apart
from manyseed.analysis.questions.effects import REFERENCES
from manyseed.analysis.questions.howmany import PRECISE
from manyseed.analysis.questions.intervals import too_few
from manyseed.analysis.questions.question import Answer, Reply
from manyseed.analysis.tables.rows import cells_once, compares_runs, is_level, last
from manyseed.analysis.tables.schema import records
from manyseed.jobs.run import Cell, Run, Stream
from manyseed.jobs.trainer import stream_keys
from manyseed.orchestrator.asking.averaging import require_confidence
from manyseed.orchestrator.computing.cellgroups import named_apart, unusual, usual_first
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.paths import SweepPaths, open_sweep
from manyseed.orchestrator.results.answers.comparison import (
    ALIKE,
    IMPORTED,
    A,
    AnalysedCell,
    AnalysedSweep,
    B,
    Compared,
    alike_in,
    all_together,
    alone,
    by_test_set,
    families,
    in_paper,
    in_words,
    is_alone,
    judged,
    of_unlike,
    on_shared,
    other_data,
    row_of,
    side_told,
    told,
    told_apart,
    two_named,
    undirected,
    values_of,
    verdict,
    words,
)
from manyseed.orchestrator.results.answers.leftout import gone
from manyseed.orchestrator.results.answers.leftout import in_words as told_unlike
from manyseed.orchestrator.results.answers.sides import Pair, model_axes, pairs_of, require_sides
from manyseed.orchestrator.results.caveats import tell_newer
from manyseed.orchestrator.results.questions.registry import AskedSweep

_OF_LABELS = ("accuracy", "balanced_accuracy")
_NO_CONVENTION = ("metrics", "block_bytes", "max_pair_runs", "close", "confidence", "snapshots")
"""Options that change no metric of a run."""


def compare_cells(
    paths: SweepPaths,
    other: AskedSweep | SweepPaths | str | Path | None = None,
    *,
    by: str = "classifier",
    between: Sequence[str] = (),
    a: str | None = None,
    b: str | None = None,
    where: str | None = None,
    without: Sequence[str] = (),
    metric: str = "accuracy",
    lower: bool = False,
    confidence: float = CONFIDENCE,
) -> list[Compared]:
    """Compare cells, classifiers or sweeps: the difference, and P(A better than B).

    Cells are compared on the test sets that they share, and run by run if runs share random
    streams; the report says how many runs this saves. Sweeps with different test sets are compared
    unpaired. Each difference has an interval over seeds for these test sets, and one over seeds and
    new test sets.

    Parameters
    ----------
    paths : SweepPaths
        An analysed sweep.
    other : Sweep or path, optional
        Another sweep: A is in the first, B in this.
    by : str
        Compare pairs of cells that differ only in this.
    between : sequence of str
        Compare these levels only, A first: classifiers, or levels of another axis, or cells: by
        number, or as they are called, such as "mlp lr=0.1".
    a : str, optional
        A condition on cells A; with one on B. Cells are compared if they agree in all axes but
        those that set the two sides apart.
    b : str, optional
        A condition on cells B.
    where : str, optional
        A condition on the cells of both.
    without : sequence of str
        Runs of the first sweep to leave out, such as 1:0:7.
    metric : str
        A metric of runs, such as ece.
    lower : bool
        Lower is better; of a metric of your own, its function may say so.
    confidence : float
        Confidence of each single interval.

    Returns
    -------
    list of Compared
        At least one of them with a result.
    """
    require_confidence(confidence)
    require_sides(a, b, by, between)
    first, second = both_sweeps(paths, other, without)
    if without and compares_runs(metric):
        raise UserError(
            "compares each run with the others, those left out included",
            key="--metric",
            value=metric,
            remedy="leave --without out",
        )
    for sweep in (first, *([] if second is first else [second])):
        sweep.require(metric)
    pairs = pairs_of(first, second, by=by, between=between, a=a, b=b, where=where)
    higher = False if lower else first.higher_is_better(metric)
    is_plain = by == "classifier" and a is None and not between and second is first
    named = model_axes(pairs) if is_plain else {}

    def at(sure: float, chosen: Sequence[Pair]) -> list[Compared]:
        return [
            _apart(
                compare_pair(first, second, *pair, metric, higher=higher, confidence=sure),
                named.get((pair[0].cell, pair[1].cell), ()),
            )
            for pair in chosen
        ]

    compared = at(confidence, pairs)
    if second is first and not compares_runs(metric):
        compared = _without_unlike(compared, pairs, first, metric, higher, without)
    if not any(one.result for one in compared):
        reasons = list(dict.fromkeys(one.reason for one in compared))
        raise UserError(f"nothing can be compared: {'; '.join(reasons[:3])}", key=metric)
    if second is first:
        compared = _with_pairs(compared, first)
    number = sum(one.result is not None for one in compared)
    number = compared[0].pairs if len(compared) == 1 else number
    if number < 2:
        return compared
    again = at(1 - (1 - confidence) / number, pairs)
    found = [replace(one, together=judged(o)) for one, o in zip(compared, again, strict=True)]
    for places in families(found):
        if 1 < len(places) < number:
            like = at(1 - (1 - confidence) / len(places), [pairs[place] for place in places])
            for place, one in zip(places, like, strict=True):
                found[place] = replace(found[place], among_like=judged(one))
        if len(found) > 1 and len(places) < (
            of := found[places[0]].pairs
        ):  # others are not asked for
            like = at(1 - (1 - confidence) / of, [pairs[place] for place in places])
            for place, one in zip(places, like, strict=True):
                found[place] = replace(found[place], among_pairs=judged(one))
    return found


def _with_pairs(compared: Sequence[Compared], sweep: AnalysedSweep) -> list[Compared]:
    """Return comparisons with the number of pairs of cells that are alike as theirs are."""
    numbers: dict[tuple[tuple[str, object], ...], int] = {}
    for one in compared:
        key = tuple(one.same.items())
        if key not in numbers:
            numbers[key] = _pairs_like(one, sweep)
    return [replace(one, pairs=numbers[tuple(one.same.items())]) for one in compared]


def _without_unlike(
    compared: Sequence[Compared],
    pairs: Sequence[Pair],
    sweep: AnalysedSweep,
    metric: str,
    higher: bool | None,
    without: Sequence[str],
) -> list[Compared]:
    """Add what comparisons are without the runs that are unlike the others."""
    unlike = [text.partition(" ")[0] for one in compared for text in one.unlike]
    if not unlike:
        return [*compared]
    kept = AnalysedSweep(sweep.paths, [*without, *unlike])
    return [
        replace(
            one,
            without_unlike=compare_pair(
                kept, kept, *pair, metric, higher=higher, confidence=one.confidence
            ).result,
        )
        if one.unlike
        else one
        for one, pair in zip(compared, pairs, strict=True)
    ]


def _apart(one: Compared, axes: Sequence[str]) -> Compared:
    """Return a comparison whose sides are named by these axes, too."""
    return replace(one, same={name: it for name, it in one.same.items() if name not in axes})


def _pairs_like(one: Compared, sweep: AnalysedSweep) -> int:
    """Return how many pairs of cells agree in the axes in which the two compared ones do."""
    same = [pl.col(axis).eq_missing(pl.lit(level)) for axis, level in one.same.items()]
    return max(math.comb(cells_once(last(sweep.cells.filter(same))).height, 2), 1)


# ---- what two cells share


def _shared_streams(cell_a: Cell, cell_b: Cell) -> tuple[str, ...]:
    """Return the streams shared by runs with the same index but not by others."""
    if IMPORTED in (cell_a.dataset.get("source"), cell_b.dataset.get("source")):
        return ()  # how they were made is unknown
    if cell_a.seed != cell_b.seed:
        return ()
    if cell_a.crossed != cell_b.crossed or (cell_a.crossed and cell_a.vary != cell_b.vary):
        return ()  # runs with the same index have other values
    keys_a, keys_b = (
        {name: key for name, key in stream_keys(Run(cell, 0, 0)).items() if _drawn(cell, name, key)}
        for cell in (cell_a, cell_b)
    )
    return tuple(name for name, key in keys_a.items() if keys_b.get(name) == key)


def _drawn(cell: Cell, name: Stream, keys: Sequence[str | int]) -> bool:
    """Return whether a stream is drawn from and differs between runs."""
    if name == "subsample":
        return cell.train_fraction != 1.0
    other = 2 ** len(cell.vary) - 1 if cell.crossed else 1  # shares nothing with run 0
    return stream_keys(Run(cell, 0, other))[name] != keys


def compare_pair(
    first: AnalysedSweep,
    second: AnalysedSweep,
    cell_a: AnalysedCell,
    cell_b: AnalysedCell,
    metric: str,
    *,
    higher: bool | None,
    confidence: float,
) -> Compared:
    """Compare two cells, or say why they cannot be compared."""
    streams = _shared_streams(Cell.from_text(cell_a.canonical), Cell.from_text(cell_b.canonical))
    unknown = Compared(
        a=first.described(cell_a),
        b=second.described(cell_b),
        same={name: level for name, level in cell_a.axes.items() if level == cell_b.axes[name]},
        metric=metric,
        higher_is_better=higher,
        confidence=confidence,
        shared_test_sets=False,
        left_out=(0, 0),
        streams=(),
        result=None,
    )
    frames = [values_of(first, cell_a, metric), values_of(second, cell_b, metric)]
    reason = _incomparable(first, second, cell_a, cell_b, metric, frames)
    if reason:
        return replace(unknown, reason=reason)
    sets_a, sets_b = (
        by_test_set(frame, cell.crossed)
        for frame, cell in zip(frames, (cell_a, cell_b), strict=True)
    )
    chosen, paired = on_shared(sets_a, sets_b, streams)
    if not chosen:
        sides = ([one.side() for one in sets.values()] for sets in (sets_a, sets_b))
        result = compare_apart(*sides, higher=higher is not False, confidence=confidence)
        return replace(unknown, result=result)
    result = compare(
        [x.side() for x, _ in chosen],
        [y.side() for _, y in chosen],
        paired=paired,
        higher=higher is not False,
        independent=not compares_runs(metric),
        confidence=confidence,
    )
    return replace(
        unknown,
        shared_test_sets=True,
        left_out=(len(sets_a) - len(chosen), len(sets_b) - len(chosen)),
        streams=streams if paired else (),
        result=result,
        unlike=(*first.unlike.get(cell_a.cell, ()), *second.unlike.get(cell_b.cell, ())),
    )


def _incomparable(
    first: AnalysedSweep,
    second: AnalysedSweep,
    cell_a: AnalysedCell,
    cell_b: AnalysedCell,
    metric: str,
    frames: Sequence[pl.DataFrame],
) -> str:
    """Say why two cells can't be compared by a metric; return "" if they can."""
    for name, cell, frame in zip("AB", (cell_a, cell_b), frames, strict=True):
        if frame.is_empty():
            return f"no run of {name}, cell {cell.cell}, has {metric}"
    if (cell_a.cell_id, cell_a.epoch) == (cell_b.cell_id, cell_b.epoch) and cell_a.data is not None:
        return _one_cell(first is second, frames, metric)
    if why := other_data(cell_a, cell_b):
        return why
    if is_level(metric):
        together = pl.concat(frames)
        for column, fact in (("probe", "probe"), ("delta", "δ")):
            if together[column].n_unique() > 1:
                return f"{metric} of A has another {fact} than that of B"
    names = set(first.conventions) | set(second.conventions)
    relevant = {"snapshots"} if metric in _OF_LABELS else names - set(_NO_CONVENTION)
    if cell_a.epoch == cell_b.epoch:
        relevant -= {"snapshots"}
    differing = sorted(
        name
        for name in names & relevant
        if first.conventions.get(name) != second.conventions.get(name)
    )
    if differing:
        return f"the analyses of the two sweeps differ in {', '.join(differing)}"
    return ""


def _one_cell(is_one_sweep: bool, frames: Sequence[pl.DataFrame], metric: str) -> str:
    """Say that both sides are one cell; of two sweeps, in how many runs of both it differs."""
    if is_one_sweep:
        return "A and B are one cell, whose runs are the same"
    key = ["repeat_index", "run_index"]
    a, b = (one.select(*key, "value") for one in frames)
    both = a.join(b, on=key, suffix="_b")
    differing = both.filter(~pl.col("value").eq_missing(pl.col("value_b"))).height
    is_where = f"differs in {differing:,}" if differing else "is the same in all"
    return f"A and B are one cell of two sweeps: {metric} {is_where} of the runs of both"


def both_sweeps(
    paths: SweepPaths,
    other: AskedSweep | SweepPaths | str | Path | None,
    without: Sequence[str] = (),
) -> tuple[AnalysedSweep, AnalysedSweep]:
    """Open the sweeps of A, without some of its runs, and B: the same one twice without another."""
    first = AnalysedSweep(paths, without)
    if other is None:
        return first, first
    second = getattr(other, "readable", other)
    if not isinstance(second, SweepPaths | str | Path):
        reason = f"must be a Sweep or its directory, not {type(other).__name__}"
        raise UserError(reason, key="other")
    if not isinstance(second, SweepPaths):
        second = open_sweep(Path(second), to_read=True)
    tell_newer(second)
    return first, AnalysedSweep(second)


def reply(
    comparisons: Sequence[Compared],
    other: AskedSweep | SweepPaths | str | Path | None = None,
    *,
    without: Sequence[str] = (),
    metric: str = "accuracy",
    confidence: float = CONFIDENCE,
    limit: int = 16,
) -> Reply:
    """Word each comparison, and what all of their intervals rest on.

    Parameters
    ----------
    comparisons : sequence of Compared
    other, without, metric, confidence
        As in `compare_cells`.
    limit : int
        Comparisons to print.
    """
    n, of_sweeps, notes = len(comparisons), other is not None, []
    shown = _by_dataset(usual_first(comparisons, lambda one: one.same)[:limit])
    usual, shared = _usual_levels(comparisons), _shared_axes(comparisons)
    names = [
        {
            "a": two_named(one.a, one.b, one.same, of_sweeps=of_sweeps),
            "b": two_named(one.b, one.a, one.same, of_sweeps=of_sweeps),
        }
        for one in shown
    ]
    first = ""
    if n == 1 and shown[0].result:
        first = verdict(shown[0], *told_apart(shown[0]))
        first += f" ({100 * confidence:g} %, over {_over(shown)}).\n{alone(shown[0])}"
    answers = [
        Answer(
            f"{first}A: {sides['a']}\nB: {sides['b']}",
            tuple(words(one)),
            rows=[(row := row_of(one, several=n > 1)) | {"with": row["with"] or usual}],
        )
        for one, sides in zip(shown, names, strict=True)
    ]
    if metric == "alpha_hat":
        also = "is answered by --alike."
        notes += ["", f"α̂ of each side is among its own runs; whether A's runs are like B's {also}"]
    results = [one.result for one in shown if one.result and one.result.sets]
    if few := too_few(min((min(one.sets_a, one.sets_b) for one in results), default=0)):
        notes += ["", few]
    if n > 1:
        known = max(sum(one.result is not None for one in comparisons), 1)
        each = f"{100 * (1 - (1 - confidence) / known):.4g}"
        notes += [
            "",
            f"Each interval by itself holds at {100 * confidence:g} %: of {n:,}, about "
            f"{(1 - confidence) * n:.2g} are expected to miss. For all of them together at "
            f"{100 * confidence:g} %, each takes {each} % (Bonferroni).",
        ]
    values = [
        asdict(one) | {"verdict": side_told(one), "words": [*words(one)]} for one in comparisons
    ]
    columns, table, below = _table(shown, comparisons)
    if unlike := [*dict.fromkeys(text for one in shown for text in one.unlike)]:
        apart = [told_unlike(unlike, can_go=other is None and not compares_runs(metric))]
        apart += [of_unlike(shown[0])] * (n == 1 and shown[0].without_unlike is not None)
        below = [*below, *apart]
        notes += ["", *apart] * (n == 1)
    below = [*below, *gone(without)]
    notes += ["", *gone(without)] if without else []
    if among := _among_all_pairs(comparisons):
        below = [*below[:1], among, *below[1:]]
    ways = {side_told(one)[2:] for one in shown if told(one, judged(one)) in (A, B)}
    return Reply(
        answers,
        {"comparisons": values},
        title=f"{metric}, {counted(n, 'comparison')}",
        notes=notes,
        apart=True,
        columns=columns,
        table=table,
        below=below,
        together=_together(shown, comparisons),
        shared=shared,
        paper=(
            [
                "dataset",
                *(shared if len(shared) == 1 else ["with"]),
                "a",
                "b",
                "verdict",
                "difference",
                f"± ({100 * confidence:g} %)",
            ],
            [in_paper(one, usual, several=n > 1) for one in shown],
            [
                *(f"verdict: the {said} side." for said in ways),
                "Differences: A - B.",
                *[f"with: {some([*map(labelled, shared)], len(shared))}."] * (len(shared) > 1),
                *filter(None, (re.sub(r"^P: [^.]*\. ?", "", line) for line in below)),
            ],
        ),
        left=max(n - limit, 0),
        meanings={name: said for name, (_, said) in records()["compared"].columns.items()},
    )


def _by_dataset(shown: Sequence[Compared]) -> list[Compared]:
    """Return comparisons in their order, but those of one dataset together."""
    datasets = [*dict.fromkeys(one.same.get("dataset") for one in shown)]
    return sorted(shown, key=lambda one: datasets.index(one.same.get("dataset")))


def _usual_levels(comparisons: Sequence[Compared]) -> str:
    """Return the usual levels of the axes along which some comparisons have others."""
    found = {axis: {str(one.same.get(axis)) for one in comparisons} for axis in AXES}
    usual = ((REFERENCES.get(axis, ""), own) for axis, own in found.items())
    return ", ".join(level for level, own in usual if own > {level})


def _shared_axes(every: Sequence[Compared]) -> list[str]:
    """Return the axes whose levels name what the sides of each comparison share."""
    own = [{axis for axis, level in one.same.items() if unusual({axis: level})} for one in every]
    named = {"classifier"}.union(*own)
    return [axis for axis in AXES if axis in named and any(axis in one.same for one in every)]


def _table(
    shown: Sequence[Compared], every: Sequence[Compared]
) -> tuple[Sequence[str], Sequence[Sequence[object]], Sequence[str]]:
    """Return the columns, a row per comparison with its verdict, and what the columns are.

    Every number is of A - B, as rows and JSON have it: a row names its pair in this order.
    """
    table: list[list[object]] = []
    for one in shown:
        a, b = told_apart(one)
        numbers = ["–"] * 3
        limits, found = judged(one), one.result
        if found is not None:
            numbers = [signed(found.difference), "–", fixed(found.better, 2)]
        if limits is not None:
            numbers[1] = f"{signed(limits[0])} to {signed(limits[1])}"
        said = in_words(one)
        if len(every) > 1 and is_alone(one):
            said += ", alone"
        levels = ", ".join(alike_in(one))
        dataset = one.same.get("dataset", "several datasets")
        table.append([dataset, f"{a} - {b}", said, levels, *numbers])
    sure = f"{100 * shown[0].confidence:g} %" if shown else ""
    single = ", each by itself" if len(every) > 1 else ""
    below = [f"{sure}: over {_over(shown)}{single}.{all_together(every)}"]
    way = shown[0].higher_is_better if shown else True
    if way is None:
        below.append(f"P: that the first of a pair is higher. {undirected(shown[0].metric)}")
    else:
        below.append(f"P: that the first of a pair is better{'' if way else '; lower is better'}.")
    if any(told(one, judged(one)) == ALIKE for one in shown):
        below[-1] += f" {ALIKE}: they differ by less than {PRECISE:g}."
    if any(told_apart(one) == (A, B) for one in shown):
        below.append(f"A: {shown[0].a.directory}; B: {shown[0].b.directory}.")
    return ["", "A - B", "", "with", "difference", sure, "P"], table, below


_LISTED = 3  # verdicts


def _among_all_pairs(comparisons: Sequence[Compared]) -> str:
    """Say which verdicts are not told among all pairs of their cells; nothing without such."""

    def named(one: Compared) -> str:
        where = named_apart(one.same, [every.same for every in comparisons])
        return f"{verdict(one, *told_apart(one))} ({where}; {one.pairs:,})"

    lost = [
        named(one)
        for one in comparisons
        if one.among_pairs is not None
        and told(one, judged(one))
        and told(one, one.among_pairs) != told(one, judged(one))
    ]
    return f"Told alone, not among all pairs of their cells: {some(lost, _LISTED)}." if lost else ""


def _together(shown: Sequence[Compared], every: Sequence[Compared]) -> str:
    """Say what the intervals are over that hold for all pairs together; nothing without such."""
    if all(one.together is None for one in shown):
        return ""
    known = every[0].pairs if len(every) == 1 else sum(one.result is not None for one in every)
    sure = shown[0].confidence
    each = f"{100 * (1 - (1 - sure) / known):.4g}"
    return (
        f"{100 * sure:g} % for all {known:,} pairs together: over {_over(shown)}, each at "
        f"{each} % (Bonferroni)."
    )


def _over(shown: Sequence[Compared]) -> str:
    """Say what the intervals are over that tell which is better."""
    is_new = {one.result.sets is not None for one in shown if one.result and judged(one)}
    if is_new == {True, False}:
        return "seeds and new test sets, or seeds on these where that is not told"
    return "seeds, on these test sets" if is_new == {False} else "seeds and new test sets"


def further_ones(number: int) -> str:
    """Say how many comparisons are not shown."""
    return f"… {number:,} more; see --limit, --where and --json"
