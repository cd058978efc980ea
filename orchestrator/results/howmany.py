"""How many seeds do I need: answers for each cell, from results and ensembles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.options import CONFIDENCE
from manyseed.analysis.questions.howmany import Answer
from manyseed.analysis.questions.howmany import howmany as for_means
from manyseed.analysis.tables.snapshots import of_cells, several
from manyseed.analysis.tables.twins import cells_once
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.filtering import chosen
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.results.analysing import read_analysis
from manyseed.orchestrator.results.averaging import require_confidence
from manyseed.orchestrator.results.cellgroups import (
    GROUP,
    at_epoch,
    named,
    require_axes,
    same,
    split,
)
from manyseed.orchestrator.results.conventions import without_own
from manyseed.orchestrator.results.ensembles import for_alpha, write
from manyseed.orchestrator.results.inputs import KEY, Held
from manyseed.orchestrator.results.tables import read_results
from manyseed.slurm import local


@dataclass(frozen=True, slots=True)
class GroupAnswers:
    """The answers for one cell, or for a group of cells.

    Attributes
    ----------
    name : str
        What sets it apart from the others that were asked for.
    cell : int or None
        Which cell; None for a group of several.
    cell_id : str or None
        Its identity.
    epoch : int or None
        Which snapshot: the last of those analysed, or asked for. None where it differs.
    dataset, classifier : str or None
        None where cells of the group differ in it.
    further : mapping of str to object
        What it is by the others of `analysis.axes.AXES`, likewise.
    cells : int
        Cells that the answers for means are from.
    answers : tuple of Answer
        For accuracy and for error consistency. Of the cells of a dataset and classifier, the one
        with the largest repeat has those for α̂ and for the classical test, too.
    ensembles : DataFrame
        Table I of the repeats that those are from; empty where none could be drawn.
    """

    name: str
    cell: int | None
    cell_id: str | None
    epoch: int | None
    dataset: str | None
    classifier: str | None
    further: Mapping[str, Any]
    cells: int
    answers: tuple[Answer, ...]
    ensembles: pl.DataFrame


def howmany(
    paths: SweepPaths,
    *,
    accuracy: float = 0.005,
    consistency: float = 0.02,
    confidence: float = CONFIDENCE,
    where: str | None = None,
    by: Sequence[str] = (),
    sizes: Sequence[int] | None = None,
    draws: int = 500,
    workers: int | None = None,
) -> list[GroupAnswers]:
    """Answer for every cell, and write the table of ensembles.

    Accuracy and error consistency are answered from the result tables, over all repeats of a cell.
    For α̂, ensembles are drawn for each dataset and classifier from the one repeat that has the most
    runs.

    Parameters
    ----------
    paths : SweepPaths
        Of a sweep that was analysed.
    accuracy, consistency : float
        How precisely the means over runs are to be known: ±.
    confidence : float
        Of the ±, and of the intervals.
    where : str
        An SQL condition over the table of cells: which to answer for.
    by : sequence of str
        Of `analysis.axes.AXES`: cells that agree in these are answered for together, as if runs
        differed as much in all of them; by default each cell by itself.
    sizes : sequence of int, optional
        M_ens; by default those of `analysis.questions.ensembles.SIZES` that are smaller than the
        pool.
    draws : int
        Ensembles of each size.
    workers : int, optional
        Threads; by default the cores that this process may use.

    Raises
    ------
    UserError
        Where there are no results, no cell meets the condition, or an ensemble of one of the sizes
        can't be drawn.
    """
    for name, value in (("accuracy", accuracy), ("consistency", consistency)):
        if not 0 < value < math.inf:
            raise UserError("must be positive", key=f"--{name}", value=value)
    require_confidence(confidence)
    require_axes(by)
    workers = workers or local.available_cores()
    wanted = None if sizes is None else sorted(set(sizes))
    if wanted is not None and (not wanted or wanted[0] < 1):
        remedy = "an ensemble has one member or more; such as: --sizes 1,2,5"
        raise UserError("must be positive numbers", key="--sizes", value=sizes, remedy=remedy)
    tables = read_results(paths).of_analysis((*KEY, "run_i", "run_j", "ec_local"))
    inputs = Held(paths).inputs
    options = without_own(read_analysis(paths)[0])
    cells = cells_once(chosen(tables.cells, where or None, one_snapshot=True), by)
    apart = several(tables.cells)
    tables = of_cells(tables, cells)
    drawn = for_alpha(paths, tables, cells, options, wanted, draws, workers, confidence)
    found = []
    for own, here in split(tables, cells.sort(*GROUP, "cell"), list(by) or ["cell"]):
        means = for_means(here, accuracy=accuracy, consistency=consistency, confidence=confidence)
        of_ensembles = [drawn[cell] for cell in own["cell"] if cell in drawn]
        described = {axis: own[axis][0] if same(own, axis) else None for axis in AXES}
        one = own.row(0, named=True) if own.height == 1 else {}
        found.append(
            GroupAnswers(
                name=f"{named(own, cells)}{at_epoch(own) if apart else ''}",
                cell=one.get("cell"),
                cell_id=one.get("cell_id"),
                epoch=own["epoch"][0] if "epoch" in own.columns and same(own, "epoch") else None,
                dataset=described.pop("dataset"),
                classifier=described.pop("classifier"),
                further=described,
                cells=own.height,
                answers=(*means, *(answer for one in of_ensembles for answer in one.answers)),
                ensembles=pl.concat([one.table for one in of_ensembles], how="diagonal")
                if of_ensembles
                else pl.DataFrame(),
            )
        )
    each = [one.each for one in drawn.values()]
    write(paths, [group.ensembles for group in found], each, cells, inputs, options)
    return found
