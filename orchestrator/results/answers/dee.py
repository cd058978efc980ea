"""Deep ensemble equivalents: answers from the results of an analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from manyseed.analysis import Refused
from manyseed.analysis.options import CALIBRATION
from manyseed.analysis.questions.dee import EquivalentRuns, Gain, check, compared, gains, worths
from manyseed.analysis.questions.question import Answer, Reply
from manyseed.analysis.tables.rows import last
from manyseed.orchestrator.computing.cellgroups import named, require_axes
from manyseed.orchestrator.computing.tables import UNCERTAINTY, read_analysis, read_results
from manyseed.orchestrator.conditions import chosen
from manyseed.orchestrator.errors import UserError, command, refused
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
    lacking : tuple of str
        What has no calibrated metrics in this analysis, and why.
    """

    name: str
    cells: list[int]
    gain: Gain
    worths: tuple[EquivalentRuns, ...]
    lacking: tuple[str, ...] = ()


def dee(
    paths: SweepPaths,
    *,
    metric: str = "cll",
    where: str | None = None,
    by: Sequence[str] = (),
    members: int | None = None,
) -> list[DeepAnswers]:
    """Say how much averaging runs gains, and how many runs another cell is worth, in words.

    For each cell, from an analysis with --calibration: how many averaged runs (a deep ensemble)
    reach half, and nine tenths, of what averaging all of them gains over one. And for each cell
    that differs from it in one axis only: how many independent runs of the first cell make an
    ensemble as good (deep ensemble equivalent), with the range of one standard deviation.

    Parameters
    ----------
    paths : SweepPaths
        A sweep that was analysed with calibrated metrics.
    metric : str
        The metric, such as cll, c_brier, c_aurc or error.
    where : str, optional
        Only cells that meet a condition.
    by : sequence of str
        Group cells that agree in these columns, such as dataset,classifier; by default, each cell
        by itself.
    members : int, optional
        How many runs of other cells to average; by default one, and all of them.
    """
    try:
        check(metric)
    except Refused as error:
        raise refused(error, key="--metric") from None
    require_axes(by)
    results, (options, record) = read_results(paths), read_analysis(paths)
    reasons = tuple(caveats.of_probabilities(record))
    if UNCERTAINTY not in results:
        asked = CALIBRATION in options.metrics
        raise UserError(
            "there are no deep ensembles: they need probabilities of at least 2 runs in the same "
            "repeat that are not copies, and 20 test points"
            if asked
            else "deep ensembles were not measured",
            file=paths.results,
            remedy=" ".join(reasons) or "train runs that vary, such as vary = init+batch"
            if asked
            else f"measure them with: {command('analyze', paths.directory, '--calibration')}",
        )
    cells = last(results["cells"])
    wanted = chosen(cells, where, "--where")
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
            name = named(group, wanted)
            answers.append(DeepAnswers(name, group["cell"].to_list(), gain, worth, reasons))
    if not answers:
        reason, option = f"no cell asked for has deep ensembles with {metric}", "--where"
        raise UserError(reason, key=option if where else None, remedy=" ".join(reasons) or None)
    return answers


def reply(groups: Sequence[DeepAnswers]) -> Reply:
    """Word the answers for each group of cells."""
    notes = list(groups[0].lacking)
    answers = [
        Answer(
            group.name,
            (group.gain.words, *(worth.words for worth in group.worths)),
            rows=[asdict(group.gain), *map(asdict, group.worths)],
        )
        for group in groups
    ]
    values = [
        {
            "name": group.name,
            "cells": group.cells,
            "gain": asdict(group.gain) | {"words": group.gain.words},
            "worths": [asdict(worth) | {"words": worth.words} for worth in group.worths],
        }
        for group in groups
    ]
    return Reply(answers, {"groups": values, "notes": notes}, cannot_tell=notes)
