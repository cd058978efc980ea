"""Deep ensemble equivalents: answers from the results of an analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from manyseed.analysis.options import CALIBRATION
from manyseed.analysis.questions.dee import check, compared
from manyseed.analysis.questions.worth import Gain, Worth, gains, worths
from manyseed.analysis.refused import Refused
from manyseed.analysis.tables.rows import last
from manyseed.orchestrator.computing.cellgroups import named, require_axes
from manyseed.orchestrator.computing.tables import UNCERTAINTY, read_analysis, read_results
from manyseed.orchestrator.errors import UserError, command, refused
from manyseed.orchestrator.filtering import chosen
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.results import caveats


@dataclass(frozen=True, slots=True)
class DeepAnswers:
    """What deep ensembles of a cell, or of a group of cells, gain and what they are worth.

    Attributes
    ----------
    name : str
        What distinguishes the cells from the others that were asked for.
    cells : list of int
    gain : Gain
        The gain from averaging the probabilities of their runs.
    worths : tuple of Worth
        How many of their runs are worth as much as runs of cells that differ in one axis.
    """

    name: str
    cells: list[int]
    gain: Gain
    worths: tuple[Worth, ...]


def dee(
    paths: SweepPaths,
    *,
    metric: str = "cll",
    where: str | None = None,
    by: Sequence[str] = (),
    members: int | None = None,
) -> list[DeepAnswers]:
    """Answer for every cell that has deep ensembles.

    Parameters
    ----------
    paths : SweepPaths
        A sweep that was analysed with calibrated metrics.
    metric : str
        One of `analysis.uncertainty.dee.COMPARABLE`.
    where : str
        An SQL condition over the table of cells: those to answer for.
    by : sequence of str
        Axes, from `analysis.axes.AXES`: cells that agree in these get one answer.
    members : int, optional
        How many runs of the compared cells are averaged; by default one, and all.

    Raises
    ------
    UserError
        For a metric that can't be compared, or if there are no ensembles.
    """
    try:
        check(metric)
    except Refused as error:
        raise refused(error, key="--metric") from None
    require_axes(by)
    results, (options, record) = read_results(paths), read_analysis(paths)
    reasons = " ".join(caveats.of_probabilities(record))
    if UNCERTAINTY not in results:
        asked = CALIBRATION in options.metrics
        raise UserError(
            "there are no deep ensembles: they need probabilities of at least 2 runs in the same "
            "repeat that are not copies, and 20 test points"
            if asked
            else "deep ensembles were not measured",
            file=paths.results,
            remedy=reasons or "train runs that vary, such as vary = init+batch"
            if asked
            else f"measure them with: {command('analyze', paths.directory, '--calibration')}",
        )
    cells = last(results["cells"])
    wanted = chosen(cells, where)
    measured = results[UNCERTAINTY]
    rows = compared(measured, cells, [metric], options.dee_std)
    answers, key = [], list(by) or ["cell"]
    wanted = wanted.sort("dataset", "classifier", "cell")
    for group in wanted.partition_by(key, maintain_order=True):
        numbers = group.select("cell")
        gain = gains(measured.join(numbers, on="cell", how="semi"), metric)
        if gain is not None:
            theirs = rows.join(numbers, left_on="deep_cell", right_on="cell", how="semi")
            worth = tuple(worths(theirs, cells, members))
            answers.append(DeepAnswers(named(group, wanted), group["cell"].to_list(), gain, worth))
    if not answers:
        reason, option = f"no cell asked for has deep ensembles with {metric}", "--where"
        raise UserError(reason, key=option if where else None, remedy=reasons or None)
    return answers
