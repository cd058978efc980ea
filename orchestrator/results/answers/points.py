"""Answers about test points: which flip between runs, and which a verdict "A > B" hangs on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars import selectors as cs

from manyseed.analysis.axes import AXES
from manyseed.analysis.counts import some
from manyseed.analysis.options import CONFIDENCE
from manyseed.analysis.questions.comparison import OnTestSet, Side, Values, compare, hanging, hangs
from manyseed.analysis.questions.flips import flips
from manyseed.analysis.questions.hardpoints import (
    KINDS,
    LISTED,
    SOURCES,
    answer,
    by_point,
    of_kind,
)
from manyseed.analysis.questions.question import NAMES, Answer
from manyseed.analysis.questions.usual import of_usual, only_usual
from manyseed.analysis.tables.rows import IS_CROSSED, PAIR
from manyseed.analysis.tables.schema import records
from manyseed.orchestrator.asking.averaging import require_confidence
from manyseed.orchestrator.asking.query import names_of, rows_of, with_names
from manyseed.orchestrator.computing.cellgroups import unusual
from manyseed.orchestrator.computing.tables import POINTS, Results
from manyseed.orchestrator.errors import require_one_of
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.results.answers.compare import compare_cells
from manyseed.orchestrator.results.answers.comparison import (
    AnalysedCell,
    AnalysedSweep,
    Compared,
    Units,
    by_test_set,
    is_alone,
    judged,
    on_shared,
    values_of,
)
from manyseed.orchestrator.results.answers.leftout import addresses, unlike_runs
from manyseed.orchestrator.results.answers.sides import pairs_of

if TYPE_CHECKING:  # it imports Numba
    from manyseed.analysis.graph.predictions import Predictions


def points(
    results: Results, *, where: str | None = None, kind: str | None = None, limit: int = LISTED
) -> list[Answer]:
    """Say which test points flip between runs, and which nearly every run gets wrong.

    Only usual cells count, or those of them that meet a condition: noise on training data and
    subsamples of it change predictions, too.
    A point flips between two runs of a cell on one test set if they predict different classes.
    A label may be wrong where nearly every run (95 %) of every classifier predicts another class;
    such points are named if there are more than classifiers that err independently have in common.
    Of a single classifier, such points are only counted and named. A condition on points, such as
    wrong >= 0.95, chooses which are listed: whether points are hard is judged by all of them.
    Rows of all points: manyseed query DIR -t points.

    Parameters
    ----------
    results : Results
    where : str, optional
        Only rows of the table of points that meet a condition.
    kind : str, optional
        One kind of points alone: flips, which change class, sources, what of that each source is,
        or hard, which nearly every run gets wrong.
    limit : int
        Points to list of each kind.
    """
    if POINTS not in results:  # of an earlier version
        return []
    from manyseed.orchestrator.conditions import wanted

    if kind is not None:
        require_one_of(kind, KINDS, "no such kind of points", key="--kind")
    with results.damage_named(POINTS):
        rows = rows_of(results, POINTS) if where else results.scan(POINTS)
        every, condition = rows, wanted(where, rows.collect_schema(), "--where")
        met = rows.filter(condition)
        rows, which = of_usual(met), only_usual(met, where)
        labels = with_names(by_point(rows).lazy(), results).collect()
        judged_by = None
        if _OF_POINTS.intersection(condition.meta.root_names()):
            judged_by = with_names(by_point(of_usual(every)).lazy(), results).collect()
        found = [
            _with_untested(one, results, labels if judged_by is None else judged_by)
            for one in answer(rows, labels, limit, judged_by)
        ]
        cells = rows.select("cell").unique().collect()
        pairs = results.scan("pairs").filter(IS_CROSSED).join(cells.lazy(), on="cell", how="semi")
        names = *AXES, *PAIR, "churn"
        crossed = pairs.select(cs.by_name(*names, require_all=False)).collect()
    found[:1] = [_with_unlike(one, results, cells) for one in found[:1]]
    of_sources = flips(crossed) if "churn" in crossed.columns else ()
    found += [of_kind(SOURCES, one) for one in of_sources]
    if kind is not None:
        found = [one for one in found if any(row["kind"] == kind for row in one.rows)]
    return [*(replace(one, rests_on=which) for one in found[:1]), *found[1:]]


_OF_POINTS = frozenset({*records()[POINTS].types, *NAMES}) - {"cell", "n_cells"}
"""Columns that say what a point is, not of which cells."""


def _with_unlike(one: Answer, results: Results, cells: pl.DataFrame) -> Answer:
    """Add which runs are counted whose accuracy is unlike the others', and what that does."""
    if results.plan is None:
        return one
    own = {*cells["cell"]}
    unlike = {
        cell: told for cell, told in unlike_runs(results.plan, results).items() if cell in own
    }
    if not (runs := addresses(unlike)):
        return one
    told = (
        f"Counted, though unlike the others in accuracy: run {some(runs, _LISTED)}. Points where "
        "only such runs differ change class, too, and a wrong label that such a run gets right may "
        "be missing below."
    )
    return replace(one, cannot_tell=" ".join([*filter(None, [one.cannot_tell]), told]))


_LISTED = 3  # runs


def _with_untested(one: Answer, results: Results, labels: pl.DataFrame) -> Answer:
    """Add how many rows of the data are in no test set, where points to look at are named."""
    if results.plan is None or not any("wrong_least" in row for row in one.rows):
        return one
    plan, told = Plan.read(results.plan), []
    for dataset in dict.fromkeys(str(row["dataset"]) for row in one.rows):
        cell = plan.all_cells.filter(pl.col("dataset") == dataset)["cell"][0]
        share = plan.cell(cell).dataset.get("test")
        sizes = results["cells"].filter(pl.col("dataset").cast(pl.String) == dataset)["n_test"]
        if not isinstance(share, float) or not 0 < share < 1 or sizes.is_empty():
            continue  # another rule may test all rows
        n, tested = sizes[0] / share, labels.filter(dataset=dataset)["index"].n_unique()
        if tested < 0.99 * n:
            enough = math.ceil(math.log(0.01) / math.log(1 - share))
            told.append(
                f"About {1 - tested / n:.0%} of the rows of {dataset} are in no test set, so they "
                f"are not judged: repeats = {enough} would test 99 %."
            )
    return replace(one, cannot_tell=" ".join([*filter(None, [one.cannot_tell]), *told]))


def verdicts(
    paths: SweepPaths,
    *,
    by: str = "classifier",
    between: Sequence[str] = (),
    where: str | None = None,
    confidence: float = CONFIDENCE,
    limit: int = 16,
) -> list[Answer]:
    """Say on which test points each verdict "A > B" hangs: the fewest without which it is not told.

    Points are taken out of all test sets, those first on which more of A's runs than of B's are
    right, and the test of `compare` is repeated on the accuracies that are left, until it does not
    tell which is better. At most 5 % of the points are tried. A verdict that does not hold for all
    comparisons together is called alone, as in `compare`.

    Parameters
    ----------
    paths : SweepPaths
        An analysed sweep.
    by, between, where, confidence
        As in `compare_cells`.
    limit : int
        Verdicts to look into.
    """
    require_confidence(confidence)
    sweep = AnalysedSweep(paths)
    found: list[Answer] = []
    predicted: RightPoints | None = None
    pairs = pairs_of(sweep, sweep, by=by, between=between, where=where)
    compared = compare_cells(paths, by=by, between=between, where=where, confidence=confidence)
    for (a, b), one in zip(pairs, compared, strict=True):
        limits = judged(one)
        if limits is None or limits[0] <= 0 <= limits[1] or not one.shared_test_sets:
            continue
        if len(found) == limit:
            break
        predicted = predicted or RightPoints(sweep)
        found.append(predicted.hangs(*((b, a) if limits[1] < 0 else (a, b)), one))
    return found or [Answer("No comparison tells which is better, so nothing hangs on points.")]


class RightPoints:
    """Which runs of a sweep are right on which test points, read from its store."""

    def __init__(self, sweep: AnalysedSweep) -> None:
        from manyseed.orchestrator.computing.inputs import published

        self._sweep = sweep
        self._of_cell = {
            cell: group.predictions
            for group in published(sweep.paths, sweep.plan)
            for cell in group.predictions.runs["cell"].unique().to_list()
        }

    def hangs(self, a: AnalysedCell, b: AnalysedCell, one: Compared) -> Answer:
        """Say on which points it hangs that A is better than B; `one`: the two compared."""
        sets = [
            by_test_set(values_of(self._sweep, cell, "accuracy"), cell.crossed) for cell in (a, b)
        ]
        chosen, paired = on_shared(sets[0], sets[1], one.streams)

        def told(better: Values, worse: Values) -> bool:
            found = compare(
                [Side(own, x.fixed, x.crossed) for own, (x, _) in zip(better, chosen, strict=True)],
                [Side(own, y.fixed, y.crossed) for own, (_, y) in zip(worse, chosen, strict=True)],
                paired=paired,
                confidence=one.confidence,
            )
            limits = found.sets or found.seeds
            return limits is not None and limits[0] > 0

        found = hanging(
            [self._on(a, x) for x, _ in chosen], [self._on(b, y) for _, y in chosen], told
        )
        apart = [axis for axis in AXES if axis not in one.same]
        sides = [", ".join(str(cell.axes[axis]) for axis in apart) for cell in (a, b)]
        levels = "".join(f", {level}" for level in unusual(one.same))
        dataset = str(a.axes["dataset"])
        names = names_of(self._sweep.paths, self._sweep.plan, dataset)
        alone = one.together is not None and is_alone(one)
        return hangs(found, " > ".join(sides), dataset, levels, names, alone=alone)

    def _on(self, cell: AnalysedCell, units: Units) -> OnTestSet:
        predictions = self._of_cell[cell.cell]
        index = predictions.test_index
        assert index is not None
        repeat = units.counted[0][0]
        order = np.argsort(index[repeat], kind="stable")
        return OnTestSet(index[repeat][order], partial(_right, predictions, cell, units, order))


def _right(
    predictions: Predictions, cell: AnalysedCell, units: Units, order: NDArray[np.intp]
) -> Iterator[NDArray[np.bool_]]:
    """Yield which runs are right on which points: bool arrays (run, sample)."""
    from manyseed.analysis.graph.chunks import PART_RUNS
    from manyseed.analysis.graph.predictions import Reader, Source

    trained = predictions.trained
    position = trained.index(cell.epoch) if cell.epoch in trained else len(trained) - 1
    own = predictions.runs.filter(cell=cell.cell).select("repeat_index", "run_index", "row")
    row = {(repeat, run): row for repeat, run, row in own.iter_rows()}
    source, counted = Source.of(predictions.label, position), units.counted
    for start in range(0, len(counted), PART_RUNS):
        some = counted[start : start + PART_RUNS]
        rows = source.rows([np.array([row[unit] for unit in some])])
        y_true = predictions.y_true[some[0][0]]
        yield (Reader(rows).read(0, y_true) == y_true)[:, order]
