"""The comparison of two cells: its result, and the sentences that report it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from manyseed.analysis.axes import AXES, level_told
from manyseed.analysis.counts import EQUAL, counted, fixed, signed, some
from manyseed.analysis.metrics.metric import higher_is_better
from manyseed.analysis.options import CONFIDENCE
from manyseed.analysis.questions.comparison import (
    Comparison,
    Saving,
    Side,
)
from manyseed.analysis.questions.crossed import sources_of
from manyseed.analysis.questions.howmany import PRECISE
from manyseed.analysis.tables.rows import compares_runs, last
from manyseed.jobs.run import identity
from manyseed.orchestrator.computing.cellgroups import named_apart, unusual
from manyseed.orchestrator.computing.tables import Analysis, read_results, to_json
from manyseed.orchestrator.conditions import wanted
from manyseed.orchestrator.errors import UserError, require_one_of
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.results.answers import leftout
from manyseed.orchestrator.results.answers.lacking import (
    FEWEST_ESTIMATED,
    limited_by_sets,
    more_runs,
)
from manyseed.orchestrator.store.reader import test_sets
from manyseed.orchestrator.sweepstore import stored_groups


@dataclass(frozen=True, slots=True)
class OneCell:
    """One of the two cells of a comparison.

    Attributes
    ----------
    directory : str
        Directory of its sweep.
    cell : int
    cell_id : str
    epoch : int
        Which snapshot, in epochs trained; 0 if the training has none, or it is unknown.
    axes : mapping of str to object
        Its level of each axis in `analysis.axes.AXES`.
    """

    directory: str
    cell: int
    cell_id: str
    epoch: int
    axes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Compared:
    """Two cells compared, or why they can't be.

    Attributes
    ----------
    a, b : OneCell
    same : mapping of str to object
        The axes in which they agree.
    metric : str
    higher_is_better : bool or None
        None where it is not known: the higher side is then told, and not called better.
    confidence : float
    shared_test_sets : bool
        Whether they were compared on the same test sets.
    left_out : tuple of int
        Number of test sets of A and of B that the other was not tested on; 0 if none is shared.
    streams : tuple of str
        Streams shared by runs with the same index; runs are paired if there are any.
    result : Comparison or None
    reason : str
        Why there is no result.
    pairs : int
        Pairs of cells of the sweep that agree in `same`, of which this one was chosen.
    together : tuple of float or None
        The interval that verdicts rest on, so wide that the confidence is that of all comparisons,
        or of all `pairs`, together (Bonferroni); None for a single one.
    among_like : tuple of float or None
        Likewise for all comparisons that agree in `same`, such as those on one dataset.
    among_pairs : tuple of float or None
        Likewise for all `pairs`, where more of them are compared than these; None elsewhere.
    unlike : tuple of str
        Runs of the two that are unlike the others of their repeat in accuracy.
    without_unlike : Comparison or None
        The result without these.
    """

    a: OneCell
    b: OneCell
    same: Mapping[str, Any]
    metric: str
    higher_is_better: bool | None
    confidence: float
    shared_test_sets: bool
    left_out: tuple[int, int]
    streams: tuple[str, ...]
    result: Comparison | None
    reason: str = ""
    pairs: int = 1
    together: tuple[float, float] | None = None
    among_like: tuple[float, float] | None = None
    unlike: tuple[str, ...] = ()
    among_pairs: tuple[float, float] | None = None
    without_unlike: Comparison | None = None


def words(found: Compared) -> Iterator[str]:
    """Report a comparison, one or two sentences at a time."""
    result, sure = found.result, f"{100 * found.confidence:g} %"
    if result is None:
        yield f"Not compared: {found.reason}."
        return
    level = f"A {fixed(result.mean_a)}, B {fixed(result.mean_b)}"
    yield f"{level}; A - B = {signed(result.difference)}."
    if result.seeds is not None:
        sets = "this test set" if result.sets_a == 1 else f"these {result.sets_a:,} test sets"
        yield f"Over seeds, at {sets}: {_limits(result.seeds)} ({sure})."
    else:
        yield f"No interval over seeds alone: {result.no_seeds}.{more_runs(result)}"
    if result.sets is not None:
        yield f"Over seeds and new test sets of these data: {_limits(result.sets)} ({sure})."
    else:
        yield f"No interval over new test sets: {result.no_sets}."
    if are_sets_the_limit(found):
        yield limited_by_sets(result, found.confidence)
    yield _better(found, result)
    yield from _pairing(found, result)


def are_sets_the_limit(found: Compared) -> bool:
    """Return whether seeds tell a difference on these test sets, and new test sets do not."""
    result = found.result
    if result is None or result.sets is None or result.sets_a < FEWEST_ESTIMATED:
        return False
    of_seeds, of_sets = told(found, result.seeds), told(found, result.sets)
    return found.shared_test_sets and bool(of_seeds) and not of_sets


def _limits(limits: tuple[float, float]) -> str:
    return " to ".join(map(signed, limits))


def _shares(limits: tuple[float, float]) -> str:
    return " to ".join(fixed(one, 2) for one in limits)


def _better(found: Compared, result: Comparison) -> str:
    intervals = []
    if result.better_seeds is not None:
        intervals.append(f"{_shares(result.better_seeds)} over seeds")
    if result.better_sets is not None:
        intervals.append(f"{_shares(result.better_sets)} over new test sets, too")
    limits = f" ({'; '.join(intervals)})" if intervals else ""
    if found.higher_is_better is None:
        told = f"P(A higher than B) = {fixed(result.better, 2)}{limits}."
        return f"{told} {undirected(found.metric)}"
    way = "higher" if found.higher_is_better else "lower"
    return f"P(A better than B) = {fixed(result.better, 2)}{limits}; {way} is better."


def _pairing(found: Compared, result: Comparison) -> Iterator[str]:
    runs = f"{result.runs_a:,} runs of A with {result.runs_b:,} of B"
    if not found.shared_test_sets:
        yield (
            f"Unpaired: the test sets differ ({result.sets_a:,} of A, {result.sets_b:,} of B), and "
            f"that adds uncertainty; {runs}."
        )
        return
    shared = "1 test set" if result.sets_a == 1 else f"{result.sets_a:,} test sets"
    how = f"run by run ({', '.join(found.streams)} shared)" if found.streams else "not run by run"
    yield f"Paired on {shared}, {how}; {runs}."
    if any(found.left_out):
        more = " and ".join(
            f"{n:,} of {name}" for n, name in zip(found.left_out, "AB", strict=True) if n
        )
        yield f"Left out: test sets that the other lacks, {more}."
    if result.saved_runs is not None:
        n = max(result.runs_a // result.sets_a, 1)
        yield _saved("Pairing runs", result.saved_runs, n, "runs")
    if result.saved_sets is not None:
        yield _saved("Sharing test sets", result.saved_sets, result.sets_a, "test sets")


def _saved(what: str, saving: Saving, n: int, noun: str) -> str:
    # Pitman's interval is exact for normal values
    limits = (
        f", {100 * saving.low:.0f} to {100 * saving.high:.0f} % if values are roughly normal: at "
        "skewness ±1, 92 % of intervals hold"
    )
    if saving.share <= 0:
        return f"{what} saves nothing (correlation {fixed(saving.correlation, 2)}{limits})."
    unpaired = saving.unpaired(n)
    as_much = f"{unpaired:.0f}" if unpaired < 1e6 else "more than a million"
    return (
        f"{what} saves {100 * saving.share:.0f} % of them (correlation "
        f"{fixed(saving.correlation, 2)}"
        f"{limits}): {n:,} are as precise as {as_much} {noun} unpaired."
    )


def of_unlike(one: Compared) -> str:
    """Say what the verdict is without the runs that are unlike the others; "" if it is unknown."""
    if one.without_unlike is None:
        return ""
    kept = replace(one, result=one.without_unlike)
    ends = f" ({_limits(limits)})" if (limits := judged(kept)) else ""
    difference = signed(one.without_unlike.difference)
    return (
        f"Without {'it' if len(one.unlike) == 1 else 'them'}: {in_words(kept)}, {difference}{ends}"
    )


def judged(one: Compared) -> tuple[float, float] | None:
    """Return the interval that tells which is better: over new test sets, if there is one."""
    return None if one.result is None else one.result.sets or one.result.seeds


A, B, ALIKE = "A", "B", "≈"


def told(one: Compared, limits: tuple[float, float] | None) -> str:
    """Return which side an interval tells to be better, `A` or `B`; "" if it does not tell.

    Where it is not known which values are better, the higher side.
    `ALIKE`: the mean accuracies differ by less than `PRECISE`.
    """
    if limits is None:
        return ""
    low, high = limits
    if low > 0 or high < 0:
        return A if (low > 0) == (one.higher_is_better is not False) else B
    return ALIKE if one.metric == "accuracy" and max(-low, high) < PRECISE else ""


def verdict(one: Compared, a: str = A, b: str = B) -> str:
    """Say which of two cells is better beyond chance, or that it is not told."""
    said = {A: f"{a} > {b}", B: f"{b} > {a}", ALIKE: f"{a} ≈ {b}", "": f"{a}, {b}: not told"}
    return said[told(one, judged(one))]


def in_words(one: Compared) -> str:
    """Return the verdict on a pair by itself, in words."""
    a, b = told_apart(one)
    way = _way(one)
    said = {A: f"{a} {way}", B: f"{b} {way}", ALIKE: ALIKE, "": "not told"}
    return said[told(one, judged(one))]


def _way(one: Compared) -> str:
    return "higher" if one.higher_is_better is None else "better"


def undirected(metric: str) -> str:
    """Say that it is not known which values of a metric are better, and how to say it."""
    return (
        f"Whether higher {metric} is better is not known; of a metric of your own, write "
        f"{metric}.higher_is_better = True or False below its function."
    )


def side_told(one: Compared, *, together: bool = False) -> str:
    """Return the verdict on a pair by itself, by the names that its sides have in rows.

    `together`: the verdict that holds for all comparisons together.
    """
    way = _way(one)
    said = {A: f"a {way}", B: f"b {way}", ALIKE: ALIKE, "": "not told"}
    return said[told(one, one.together if together else judged(one))]


def holds_together(one: Compared) -> bool:
    """Return whether a verdict is the same if it is to hold for all comparisons together."""
    return one.together is not None and told(one, one.together) == told(one, judged(one))


def is_alone(one: Compared) -> bool:
    """Return whether a verdict is told of its pair by itself, but not for all together."""
    return bool(told(one, judged(one))) and not holds_together(one)


def alone(one: Compared) -> str:
    """Say whether a verdict is of one pair alone out of several; nothing where none is told."""
    if one.pairs < 2 or not told(one, judged(one)):
        return ""
    if holds_together(one):
        return f"It holds for all {one.pairs:,} such pairs together, too.\n"
    return f"It holds for this pair alone, not for all {one.pairs:,} such pairs together.\n"


def all_together(comparisons: Sequence[Compared]) -> str:
    """Say how many verdicts hold for all comparisons together; nothing where none is told."""
    verdicts = [one for one in comparisons if told(one, judged(one))]
    n, m = sum(one.result is not None for one in comparisons), len(verdicts)
    if n < 2 or not verdicts:
        return ""
    held = sum(map(holds_together, verdicts))
    sure = verdicts[0].confidence
    at = (
        ""
        if sure == CONFIDENCE
        else f" at {100 * sure:g} %, each at {100 - 100 * (1 - sure) / n:.4g} %"
    )
    of_each = "".join(_by_family(comparisons, n))
    if not held:
        alone = "; alone: only by itself"
        return (
            f" For all {n:,} together{at}, none is told (Bonferroni's correction){alone}.{of_each}"
        )
    hold = f"{held:,} of {counted(m, 'verdict')} {'holds' if held == 1 else 'hold'}"
    others = "; alone: only by itself; not told of all together" if 0 < held < m else ""
    return f" For all {n:,} together{at}, {hold}{others}.{of_each}"


def families(comparisons: Sequence[Compared]) -> list[list[int]]:
    """Return the places of comparisons that agree in all that their two sides have in common."""
    found: dict[tuple[tuple[str, Any], ...], list[int]] = {}
    for place, one in enumerate(comparisons):
        if one.result is not None:
            found.setdefault(tuple(one.same.items()), []).append(place)
    return [*found.values()]


def _by_family(comparisons: Sequence[Compared], n: int) -> Iterator[str]:
    """Say of families of some of the n which verdicts hold for all of one, but not for all n."""
    for places in families(comparisons):
        own = [comparisons[place] for place in places]
        held = [
            verdict(one, *told_apart(one))
            for one in own
            if is_alone(one) and told(one, one.among_like) == told(one, judged(one))
        ]
        if held and 1 < len(own) < n:
            name = named_apart(own[0].same, [one.same for one in comparisons])
            also = " also" * any(told(one, judged(one)) and holds_together(one) for one in own)
            yield f" For the {len(own):,} pairs of {name} together{also}: {some(held, _LISTED)}."


_LISTED = 3


def told_apart(one: Compared) -> tuple[str, str]:
    """Name the two sides by the levels in which they differ, else A and B."""
    apart = [axis for axis in AXES if axis not in one.same]
    a, b = (", ".join(level_told(it, side.axes[it]) for it in apart) for side in (one.a, one.b))
    return (a, b) if apart else (A, B)


def two_named(cell: OneCell, rest: OneCell, same: Mapping[str, Any], *, of_sweeps: bool) -> str:
    """Name a cell by the levels in which it differs from the other or from the defaults."""
    plain = ("none", "default", 1.0)
    axes = cell.axes
    more = [
        f"{axis} = {value}"
        for axis, value in axes.items()
        if axis not in ("dataset", "classifier")
        and (axis not in same or (value not in plain and axis != "vary"))
    ]
    if cell.epoch != rest.epoch and cell.epoch:
        more.append(f"epoch {cell.epoch:,}")
    name = ", ".join([f"{axes['dataset']} × {axes['classifier']}", *more])
    return f"{name} (cell {cell.cell}{f' of {cell.directory}' if of_sweeps else ''})"


def row_of(one: Compared, *, several: bool = False) -> dict[str, Any]:
    """Return the numbers of a comparison, below the names of what is compared.

    `low` and `high`: the interval that the verdict rests on; `together_…`: both for all
    comparisons together.
    """
    a, b = told_apart(one)
    if (a, b) == (A, B) and one.a.directory != one.b.directory:
        a, b = one.a.directory, one.b.directory
    names = {
        "dataset": one.same.get("dataset"),
        "with": ", ".join(alike_in(one)),
        "a": a,
        "b": b,
        "cell_a": one.a.cell,
        "cell_b": one.b.cell,
        "verdict": side_told(one),
    }
    if one.result is None:
        return names
    numbers = asdict(one.result)
    if abs(one.result.difference) < EQUAL:  # of means that only rounding sets apart
        numbers["difference"] = 0.0
    first = {name: numbers[name] for name in ("mean_a", "mean_b", "difference")}
    low, high = judged(one) or (None, None)
    first |= {"low": low, "high": high}
    if several or one.together is not None:
        low, high = one.together or (None, None)
        verdict_of_all = side_told(one, together=True)
        first |= {"together_low": low, "together_high": high, "together_verdict": verdict_of_all}
    return names | first | numbers


def alike_in(one: Compared) -> list[str]:
    """Return the levels, besides their dataset, in which two cells agree and others may not."""
    where = [str(one.same[axis]) for axis in ("classifier",) if axis in one.same]
    return [*where, *unusual(one.same)]


def in_paper(one: Compared, usual: str, *, several: bool) -> list[object]:
    """Return the row of a comparison, of `several` or alone, in a table for a paper.

    `usual`: what stands for levels that are all usual.
    """
    (a, b), limits = told_apart(one), judged(one)
    names = [one.same.get("dataset"), ", ".join(alike_in(one)) or usual, a, b]
    said = {A: a, B: b, ALIKE: ALIKE, "": "not told"}[told(one, limits)]
    said += ", alone" if several and is_alone(one) else ""
    difference = "–" if one.result is None else signed(one.result.difference)
    return [*names, said, difference, fixed((limits[1] - limits[0]) / 2) if limits else "–"]


IMPORTED = "imported"  # source of datasets that are known only through imported predictions

NOT_COMPARED: Mapping[str, str] = {
    "fit_seconds": "how long a fit takes depends on the machine",
    "delta": "it is the resolution of alpha_hat, not a property of a run",
    "alpha_hat_mc_se": "it is the Monte-Carlo error of alpha_hat",
    "alpha_hat_spread": "it is the spread of alpha_hat over resamples",
    "train_fraction": "it describes a cell, not what runs achieve",
}
"""Numbers in the table of runs that are not metrics, and why."""


@dataclass(frozen=True, slots=True)
class AnalysedCell:
    """A cell at one snapshot, as a side of a comparison.

    Attributes
    ----------
    cell : int
    cell_id, canonical : str
        Its identity, and the text that the identity is a hash of.
    epoch : int
    axes : mapping of str to object
        Its level of each axis in `analysis.axes.AXES`.
    data : str or None
        Identity of its data; None if unknown.
    """

    cell: int
    cell_id: str
    canonical: str
    epoch: int
    axes: Mapping[str, object]
    data: str | None

    @property
    def crossed(self) -> int:
        """How many sources are crossed in it; 0 if they are not."""
        return sources_of(str(self.axes["vary"]))

    @classmethod
    def all_of(cls, cells: pl.DataFrame) -> list[AnalysedCell]:
        """Return one object per row of a frame with the columns of `AnalysedSweep.cells`."""
        facts = cells.select("cell", "cell_id", "canonical", "epoch", "data").iter_rows(named=True)
        axes = cells.select(*AXES).iter_rows(named=True)
        return [cls(axes=levels, **row) for row, levels in zip(facts, axes, strict=True)]


class AnalysedSweep:
    """What comparisons need from one sweep, read once.

    Raises
    ------
    UserError
        If the sweep was not analysed.
    """

    def __init__(self, paths: SweepPaths, without: Sequence[str] = ()) -> None:
        self.paths, self.results = paths, read_results(paths)
        self.plan = Plan.read(paths)
        self.left_out = leftout.chosen_runs(paths, without)

    @cached_property
    def cells(self) -> pl.DataFrame:
        """The analysed cells, with the identity of their data: `data`, None if unknown."""
        planned = self.plan.all_cells.select("cell", "canonical", planned_identical="identical")
        cells = self.results["cells"].join(planned, on="cell", how="left", maintain_order="left")
        data = [_data(json.loads(text)["dataset"]) for text in cells["canonical"]]
        return _with_epoch(cells).with_columns(pl.Series("data", data, dtype=pl.String))

    def snapshots(self, conditions: Mapping[str, str | None]) -> pl.DataFrame:
        """Return the cells: at their last snapshot, or at all of them if a condition uses epochs.

        Parameters
        ----------
        conditions : mapping of option to str or None
            SQL conditions over the cells.
        """
        for option, text in conditions.items():
            if "epoch" in wanted(text, self.cells.schema, option).meta.root_names():
                return self.cells
        return last(self.cells)

    def higher_is_better(self, metric: str) -> bool | None:
        """Return whether higher values of a metric of runs are better; None if not known."""
        columns = json.loads(self.results.metadata("runs").get("columns", "{}"))
        return higher_is_better(metric, str(columns.get(metric, {}).get("meaning", "")))

    def require(self, metric: str) -> None:
        """Raise a UserError for a name that is not a metric of runs."""
        schema = self.results.scan("runs").collect_schema()
        if metric in NOT_COMPARED:
            reason = f"can't be compared: {NOT_COMPARED[metric]}"
            raise UserError(reason, key="--metric", value=metric)
        numbers = [name for name, kind in schema.items() if kind.is_float()]
        metrics = [name for name in numbers if name not in NOT_COMPARED]
        where = self.paths.directory
        require_one_of(metric, metrics, "not a metric of runs", file=where, key="--metric")

    @cached_property
    def digests(self) -> pl.DataFrame:
        """The digest of each test set: columns path, repeat_index, digest."""
        extents = self.plan.extents.join(self.plan.all_cells.select("cell", "path"), on="cell")
        analysed = self.results.scan("repeats").select("cell", "repeat_index").collect()
        used = analysed.join(extents, on="cell").group_by("path").agg(pl.col("repeat_index"))
        wanted = dict(used.iter_rows())
        rows = []
        for group in stored_groups(self.paths, self.plan):
            repeats = sorted(set(wanted.get(group.spec.path, ())))
            if repeats:
                y_true, index = test_sets(group, np.array(repeats))
                for repeat in repeats:
                    content = hashlib.sha256(index[repeat].astype("<i8").tobytes())
                    content.update(y_true[repeat].astype("<i8").tobytes())
                    rows.append((group.spec.path, repeat, content.hexdigest()))
        schema = {"path": pl.String, "repeat_index": pl.UInt16, "digest": pl.String}
        return pl.DataFrame(rows, schema=schema, orient="row")

    @cached_property
    def runs(self) -> pl.DataFrame:
        """The runs with the digests of their test sets, without copies."""
        paths = self.plan.all_cells.select("cell", "path", planned="identical")
        repeats = last(self.results["repeats"]).select("cell", "repeat_index", same="identical")
        return (
            leftout.without_runs(_with_epoch(self.results["runs"]), self.left_out)
            .filter(~pl.col("identical"))
            .join(paths, on="cell", how="left", maintain_order="left")
            .join(self.digests, on=["path", "repeat_index"], how="left", maintain_order="left")
            .join(repeats, on=["cell", "repeat_index"], how="left", maintain_order="left")
            .with_columns(fixed=pl.col("same") | pl.col("planned"))
        )

    @cached_property
    def by_cell(self) -> Mapping[tuple[object, ...], pl.DataFrame]:
        """The runs of each cell and snapshot."""
        return self.runs.partition_by("cell", "epoch", as_dict=True)

    @cached_property
    def unlike(self) -> Mapping[int, list[str]]:
        """The runs that are unlike the others of their repeat in accuracy, in words, by cell."""
        return leftout.unlike_runs(self.paths, self.results, self.left_out)

    def described(self, cell: AnalysedCell) -> OneCell:
        """Return a cell as comparisons report it."""
        return OneCell(str(self.paths.directory), cell.cell, cell.cell_id, cell.epoch, cell.axes)

    @cached_property
    def conventions(self) -> Mapping[str, object]:
        """The options that the sweep was analysed with."""
        return to_json(Analysis.read(self.paths).conventions(self.paths))


def values_of(sweep: AnalysedSweep, cell: AnalysedCell, metric: str) -> pl.DataFrame:
    """Return the values of a cell's runs, with what they are compared by."""
    frame = sweep.by_cell.get((cell.cell, cell.epoch), sweep.runs.clear())
    kept = frame.filter(pl.col(metric).is_not_null() & pl.col(metric).is_not_nan())
    if compares_runs(metric):
        kept = kept.filter(~pl.col("fixed"))
    columns = ("repeat_index", "run_index", "digest", "fixed", "probe", "delta")
    return kept.select(*columns, value=pl.col(metric).cast(pl.Float64))


Unit = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Units:
    """A cell's runs on one test set: values by (repeat, run) index, and whether nothing varies."""

    values: Mapping[Unit, float]
    fixed: bool
    crossed: int = 0  # number of crossed sources

    @property
    def counted(self) -> list[Unit]:
        """The runs that count: one, if nothing varies."""
        return list(self.values)[: 1 if self.fixed else None]

    def side(self) -> Side:
        """Return the values of the runs that count."""
        values = np.array([self.values[unit] for unit in self.counted])
        return Side(values, self.fixed, self.crossed)


def by_test_set(frame: pl.DataFrame, crossed: int = 0) -> dict[str, Units]:
    """Return the runs of a cell by the digest of their test set; `crossed`: crossed sources."""
    runs = frame.sort("repeat_index", "run_index")
    found = {}
    for of_set in runs.partition_by("digest", maintain_order=True):
        units = of_set.select("repeat_index", "run_index").iter_rows()
        values = dict(zip(units, of_set["value"].to_list(), strict=True))
        found[str(of_set["digest"][0])] = Units(values, bool(of_set["fixed"].all()), crossed)
    return found


def _units(x: Units, y: Units) -> list[Unit]:
    return [unit for unit in x.values if unit in y.values]


def _same_units(x: Units, y: Units) -> tuple[Units, Units] | None:
    """Return the runs that both have, None if there are none; all runs if one side is fixed."""
    if x.fixed or y.fixed:
        return x, y
    units = _units(x, y)
    both = tuple(replace(own, values={u: own.values[u] for u in units}) for own in (x, y))
    return (both[0], both[1]) if units else None


def on_shared(
    a: Mapping[str, Units], b: Mapping[str, Units], streams: Sequence[str]
) -> tuple[list[tuple[Units, Units]], bool]:
    """Return the runs that are compared on each shared test set, and whether they are paired.

    They are not where pairs would leave out more than half of the runs of a side, such as all but
    one of ten: a difference of all runs says more, and is not that of other means than are shown.
    """
    pairs = [(units, b[digest]) for digest, units in a.items() if digest in b]
    shared = [len(_units(x, y)) for x, y in pairs if not x.fixed and not y.fixed]
    most = [max(len(x.values), len(y.values)) for x, y in pairs if not x.fixed and not y.fixed]
    paired = bool(streams) and any(_units(x, y) for x, y in pairs) and 2 * sum(shared) >= sum(most)
    return [both for x, y in pairs if (both := _same_units(x, y) if paired else (x, y))], paired


def _with_epoch(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table with the column epoch, which earlier versions lacked."""
    return frame if "epoch" in frame.columns else frame.with_columns(epoch=pl.lit(0, pl.UInt32))


def other_data(a: AnalysedCell, b: AnalysedCell) -> str:
    """Say that two cells have different data, if so. Those of imports are known by name alone."""
    if None not in (a.data, b.data):
        return "" if a.data == b.data else "the cells have different data"
    names = [cell.axes["dataset"] for cell in (a, b)]
    if names[0] == names[1]:
        return ""
    how = "import both with the same --dataset"
    if trained := [name for name, cell in zip(names, (a, b), strict=True) if cell.data is not None]:
        how = f"import the other with --dataset {trained[0]}"
    return f"the cells have different data, {names[0]} and {names[1]}; if these are one, {how}"


def _data(dataset: Mapping[str, Any]) -> str | None:
    """Return the identity of the data that test sets are taken from; None if unknown."""
    if dataset.get("source") == IMPORTED:
        return None
    return identity({"v": 1, **{key: value for key, value in dataset.items() if key != "test"}})
