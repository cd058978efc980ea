"""How many seeds do I need: answers for each cell, from result tables and drawn ensembles."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.counts import counted
from manyseed.analysis.options import CLOSE, CONFIDENCE
from manyseed.analysis.questions.crossed import howmany as for_crossed
from manyseed.analysis.questions.difference import POWER
from manyseed.analysis.questions.drawn import anew_in
from manyseed.analysis.questions.ensembles import no_ensembles
from manyseed.analysis.questions.howmany import howmany as for_means
from manyseed.analysis.questions.needed import MOST_SETS, RunsNeeded
from manyseed.analysis.questions.question import MOST_ROWS, Answer, Reply
from manyseed.analysis.tables.rows import IS_CROSSED, cells_once, of_cells, several
from manyseed.orchestrator.asking.averaging import require_confidence, require_half_width
from manyseed.orchestrator.computing.cellgroups import (
    GROUP,
    at_epoch,
    in_short,
    named,
    require_axes,
    same,
    split,
    usual_first,
)
from manyseed.orchestrator.computing.ensembles import Drawn, for_alpha, write
from manyseed.orchestrator.computing.inputs import KEY, Held
from manyseed.orchestrator.computing.tables import read_analysis, read_results, without_own
from manyseed.orchestrator.conditions import chosen
from manyseed.orchestrator.disk.placing import if_writable
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.results.answers.compare import compare_cells
from manyseed.orchestrator.results.answers.comparison import are_sets_the_limit, told_apart
from manyseed.orchestrator.results.answers.lacking import repeats_needed
from manyseed.orchestrator.results.answers.leftout import (
    chosen_runs,
    gone,
    tables_without,
    unlike_runs,
)
from manyseed.orchestrator.results.answers.leftout import in_words as told_unlike
from manyseed.slurm import local


@dataclass(frozen=True, slots=True)
class Limited:
    """A pair that seeds tell apart, and new test sets do not, and what would tell it.

    Attributes
    ----------
    one, other : str
        The two sides, by the levels in which they differ.
    repeats : int or None
        About how many repeats tell this pair by itself; None if 1,000 do not.
    together : int or None
        About how many tell it if all `pairs` are told together, as `answers` decides.
    pairs : int
        Pairs of cells that agree in what these two agree in.
    """

    one: str
    other: str
    repeats: int | None
    together: int | None
    pairs: int


@dataclass(frozen=True, slots=True)
class GroupAnswers:
    """The answers for one cell, or for a group of cells.

    Attributes
    ----------
    name : str
        What distinguishes it from the others that were asked for.
    cell : int or None
        The cell; None for a group of several.
    cell_id : str or None
        Its identity.
    epoch : int or None
        The snapshot: the last of those analysed, or the one asked for. None if cells differ in it.
    dataset, classifier : str or None
        None if cells of the group differ in it.
    further : mapping of str to object
        The levels of the other axes in `analysis.axes.AXES`, likewise.
    cells : int
        Number of cells that the answers for means come from.
    answers : tuple of RunsNeeded
        For accuracy and for error consistency. Among the cells of a dataset and classifier, the one
        with the largest repeat also has answers for α̂ and for the classical test.
    ensembles : DataFrame
        Table I of the repeats used for α̂; empty if no ensembles could be drawn.
    of_two : tuple of RunsNeeded
        For a difference between two classifiers that vary like this one, if one was given: runs of
        each so that it is known that precisely, and so that it is told.
    unlike : tuple of str
        Runs that are unlike the others of their repeat in accuracy, and counted.
    limited : tuple of Limited
        Pairs with it that seeds tell apart on these test sets, but new test sets do not.
    """

    name: str
    cell: int | None
    cell_id: str | None
    epoch: int | None
    dataset: str | None
    classifier: str | None
    further: Mapping[str, Any]
    cells: int
    answers: tuple[RunsNeeded, ...]
    ensembles: pl.DataFrame
    of_two: tuple[RunsNeeded, ...] = ()
    unlike: tuple[str, ...] = ()
    limited: tuple[Limited, ...] = ()


def howmany(
    paths: SweepPaths,
    *,
    accuracy: float = 0.005,
    consistency: float = 0.02,
    difference: float | None = None,
    confidence: float = CONFIDENCE,
    where: str | None = None,
    by: Sequence[str] = (),
    without: Sequence[str] = (),
    sizes: Sequence[int] | None = None,
    draws: int = 500,
    workers: int | None = None,
) -> list[GroupAnswers]:
    """Say how many seeds are needed, in words, from the results of an analysis.

    For each cell: how many runs give the mean accuracy and the mean local error consistency of one
    test set with the required precision, with an interval and the cost. And for each dataset and
    classifier: how many runs make an ensemble that represents the training (α̂ at most the
    analysis's level close), from ensembles drawn from the repeat with the most runs; the draws are
    stored in the table ensembles.

    With --until, blocks of runs are planned, trained and analysed until the mean accuracy of each
    cell has that precision, by an interval that holds at every look. Runs are only added, and the
    same command continues after an interruption.

    Parameters
    ----------
    paths : SweepPaths
        An analysed sweep.
    accuracy : float
        Required precision (±) of the mean accuracy.
    consistency : float
        Required precision (±) of the mean local error consistency.
    difference : float, optional
        Also how many runs each of two classifiers takes so that their difference is known to ± this
        and so that a difference of this is told in 80 % of cases, if both vary like the cell.
    confidence : float
        Confidence of these precisions, and of intervals.
    where : str, optional
        Only cells that meet a condition.
    by : sequence of str
        Group cells that agree in these columns, such as dataset,classifier, as if runs varied
        equally in all of them; by default, each cell by itself.
    without : sequence of str
        Runs to leave out, such as 1:0:7. Ensembles are then not drawn.
    sizes : sequence of int, optional
        Sizes of the ensembles to draw (M_ens); by default those of
        3,5,10,20,30,70,100,150,200 that the runs allow.
    draws : int
        Ensembles of each size.
    workers : int, optional
        How many cores to use, by default the available cores.
    """
    for name, value, of in (
        ("accuracy", accuracy, "accuracy"),
        ("consistency", consistency, "error consistency"),
    ):
        require_half_width(f"--{name}", value, of)
    if difference is not None:
        require_half_width("--difference", difference, "a difference")
    require_confidence(confidence)
    require_axes(by)
    workers = workers or local.available_cores()
    distinct_sizes = None if sizes is None else sorted(set(sizes))
    if distinct_sizes is not None and (not distinct_sizes or distinct_sizes[0] < 1):
        remedy = "an ensemble has at least one member, such as: --sizes 1,2,5"
        raise UserError("must be positive numbers", key="--sizes", value=sizes, remedy=remedy)
    results, left_out = read_results(paths), chosen_runs(paths, without)
    tables = tables_without(results.of_analysis((*KEY, "run_i", "run_j", "ec_local")), left_out)
    unlike = unlike_runs(paths, results, left_out)
    inputs = Held(paths).inputs
    options = without_own(read_analysis(paths)[0])
    cells = cells_once(chosen(tables.cells, where, "--where", one_snapshot=True), by)
    has_snapshots = several(tables.cells)
    tables = of_cells(tables, cells)
    without_chance = {*Plan.read(paths).cells.filter("identical")["cell"]}
    alone, drawn = cells.filter(~IS_CROSSED), {}  # ensembles are of independent runs
    if without:
        reason = "ensembles are drawn of all runs, so leave --without out"
        drawn = {cell: Drawn(no_ensembles(reason, options.close)) for cell in alone["cell"]}
    elif not alone.is_empty():
        kept = of_cells(tables, alone)
        drawn = for_alpha(
            paths, kept, alone, options, distinct_sizes, draws, workers, confidence, inputs
        )
    for cell in cells.filter(IS_CROSSED)["cell"]:
        reason = "crossed runs share values, so it is told for other cells only"
        drawn[cell] = Drawn(no_ensembles(reason, options.close))
    groups = []
    for own, part in split(tables, cells.sort(*GROUP, "cell"), list(by) or ["cell"]):
        asked = {"accuracy": accuracy, "consistency": consistency, "confidence": confidence}
        means = for_crossed(part, **asked) or for_means(part, difference=difference, **asked)
        ensembles = [drawn[cell] for cell in own["cell"] if cell in drawn]
        if {*own["cell"]} <= without_chance:
            n = part.repeats.select("cell", "repeat_index").n_unique()
            means = [
                RunsNeeded(one.purpose, 1, 1, 1, n, n, one.confidence, reason=_WITHOUT_CHANCE)
                for one in means
            ]
            ensembles = []
        levels = {axis: own[axis][0] if same(own, axis) else None for axis in AXES}
        single = own.row(0, named=True) if own.height == 1 else {}
        groups.append(
            GroupAnswers(
                name=f"{named(own, cells)}{at_epoch(own) if has_snapshots else ''}",
                cell=single.get("cell"),
                cell_id=single.get("cell_id"),
                epoch=own["epoch"][0] if "epoch" in own.columns and same(own, "epoch") else None,
                dataset=levels.pop("dataset"),
                classifier=levels.pop("classifier"),
                further=levels,
                cells=own.height,
                answers=(*means[:2], *(answer for one in ensembles for answer in one.answers)),
                ensembles=pl.concat([one.table for one in ensembles], how="diagonal")
                if ensembles
                else pl.DataFrame(),
                of_two=tuple(means[2:]),
                unlike=tuple(text for cell in own["cell"] for text in unlike.get(cell, ())),
            )
        )
    if not by:
        limited = _limited(paths, cells, where, without, confidence)
        groups = [replace(one, limited=tuple(limited.get(one.cell, ()))) for one in groups]
    each = [one.each for one in drawn.values()]
    if without:
        return groups
    with if_writable():
        write(paths, [group.ensembles for group in groups], each, cells, inputs, options)
    return groups


def _limited(
    paths: SweepPaths,
    cells: pl.DataFrame,
    where: str | None,
    without: Sequence[str],
    confidence: float,
) -> dict[int | None, list[Limited]]:
    """Return by cell what `GroupAnswers.limited` is, each pair once; nothing of very many cells."""
    if not 1 < cells.height <= _MOST_COMPARED:
        return {}
    try:
        compared = compare_cells(paths, where=where, without=without, confidence=confidence)
    except UserError:  # there are no pairs, or none can be compared
        return {}
    found: dict[int | None, list[Limited]] = {}
    for one in filter(are_sets_the_limit, compared):
        assert one.result is not None
        alone, together = (
            repeats_needed(one.result, confidence, among) for among in (1, one.pairs)
        )
        limited = Limited(*told_apart(one), alone, together, one.pairs)
        found.setdefault(one.a.cell, []).append(limited)
    return found


_MOST_COMPARED = 40  # cells: pairs grow faster


def reply(
    groups: Sequence[GroupAnswers], *, without: Sequence[str] = (), limit: int = MOST_ROWS
) -> Reply:
    """Word the answers for each group of cells.

    Parameters
    ----------
    groups : sequence of GroupAnswers
    without : sequence of str
        As in `howmany`.
    limit : int
        Groups of cells to print.
    """
    values = [
        {
            "name": group.name,
            "cell": group.cell,
            "cell_id": group.cell_id,
            "epoch": group.epoch,
            "dataset": group.dataset,
            "classifier": group.classifier,
            **group.further,
            "cells": group.cells,
            "answers": [asdict(one) | {"words": one.words} for one in group.answers],
            "of_two": [asdict(one) | {"words": one.words} for one in group.of_two],
            "ensembles": group.ensembles.to_dicts(),
            "unlike": [*group.unlike],
            "limited": [asdict(one) for one in group.limited],
        }
        for group in groups
    ]
    answers = [
        Answer(
            group.name,
            (
                *(one.words for one in (*group.answers, *group.of_two)),
                *filter(None, [anew_in(_axes(group), "Here, ")]),
            ),
            rows=[asdict(one) for one in (*group.answers, *group.of_two)],
        )
        for group in groups
    ]
    columns, table = _table(groups)
    unlike = [text for group in groups for text in group.unlike]
    of_runs = [*gone(without), *([told_unlike(unlike)] if unlike else [])]
    return Reply(
        answers,
        {"groups": values},
        title=_headline(groups),
        columns=columns,
        table=table[:limit],
        left=max(len(table) - limit, 0),
        below=[
            *_of_bounds(groups),
            *_of_differences(groups),
            *_of_ensembles(groups),
            *_published(groups),
            *_of_sets(groups),
            *of_runs,
        ],
        notes=of_runs,
    )


_WITHOUT_CHANCE = "nothing that varies reaches the fit, so all runs of a repeat are the same"

_TESTED = "an ensemble with α̂"
_OF_PAIRS = "local error consistency"
"""How the purpose of an answer for α̂ begins."""


def _axes(group: GroupAnswers) -> Mapping[str, Any]:
    return {"dataset": group.dataset, "classifier": group.classifier, **group.further}


def _name(group: GroupAnswers) -> str:
    if group.cell is None:
        return group.name
    return in_short(_axes(group)) + (f", epoch {group.epoch}" if group.epoch else "")


def _tested(group: GroupAnswers) -> RunsNeeded | None:
    """Return the answer for α̂, if the test sets are large enough to tell."""
    found = [one for one in group.answers if one.purpose.startswith(_TESTED)]
    told = [one for one in found if one.runs is not None or "not all ensembles" in one.reason]
    return told[0] if told and bool((group.ensembles["delta"] <= CLOSE).all()) else None


def _headline(groups: Sequence[GroupAnswers]) -> str:
    """Say how many runs accuracy takes, over all groups, and how many have enough."""
    first = [group.answers[0] for group in groups]
    varied = [one for one in first if one.reason != _WITHOUT_CHANCE]
    known = [one.runs for one in varied if one.runs is not None]
    purpose = first[0].purpose.partition(" at ")[0]
    vary = [one for one in groups if one.answers[0] in varied]  # as `answers` counts them
    if not known and varied and all(one.low is None and one.high for one in varied):
        there = _have_enough(vary)
        more = "fewer may be" if there.startswith("not") else there
        return f"For {purpose}: {max(one.high or 0 for one in varied):,} runs are enough; {more}."
    if not known:
        bounded = [one for one in groups if one.answers[0].low and one.answers[0] in varied]
        if not bounded:
            reasons = {one.reason for one in varied}
            more = "; runs = 10, say, show how much they vary" * any("2 runs" in r for r in reasons)
            why = f", as {reasons.pop()}{more}" if len(reasons) == 1 else ""
            return f"For {purpose}: not told{why}."
        worst = max(bounded, key=lambda group: group.answers[0].low or 0)
        least = worst.answers[0].low
        on = f" on {worst.dataset}" if worst.cell is not None and worst.dataset else ""
        where = f" in {_name(worst)}{on}" if len(groups) > 1 else ""
        return f"For {purpose}: cannot be told yet, at least {least:,} runs{where}."
    takes = f"{min(known):,}" + (f" to {max(known):,}" if max(known) > min(known) else "")
    return f"For {purpose}: {takes} runs; {_have_enough(vary)}."


def _have_enough(groups: Sequence[GroupAnswers]) -> str:
    """Say which groups have enough runs; how many, if these are many or their names are long."""
    words = {"yes": "enough", "no": "too few", "–": ""}
    several_sets = len({group.dataset for group in groups}) > 1
    found: dict[str, list[str]] = {"enough": [], "too few": [], "not told": []}
    for group in groups:
        on = f" on {group.dataset}" if several_sets and group.cell is not None else ""
        if told := words.get(_enough(group.answers[0]), "not told"):
            name = group.name if group.cell is None else in_short(_axes(group))
            found[told].append(f"{name}{on}")
    found = {told: names for told, names in found.items() if names}
    if len(groups) == 1:
        return next(iter(found), "not told")
    if len(groups) <= _NAMED and not any("," in name for names in found.values() for name in names):
        return "; ".join(f"{told}: {', '.join(names)}" for told, names in found.items())
    return f"of {len(groups):,} that vary: " + ", ".join(
        f"{len(of):,} {told}" for told, of in found.items()
    )


_NAMED = 6  # groups that a headline names


def _enough(one: RunsNeeded) -> str:
    if one.enough is None:
        return "not told" if one.made else "–"  # all are copies
    return "yes" if one.enough else "no"


def _table(groups: Sequence[GroupAnswers]) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
    """Return the columns, and a row per group of cells."""
    two = next((group.of_two for group in groups if group.of_two), ())
    tested = any(_tested(group) for group in groups) and not two
    table = [
        [
            group.dataset or "several datasets",
            _name(group),
            *(_runs(one) for one in group.answers[: 1 if two else 2]),
            *(_runs(one) for one in group.of_two or [None] * len(two)),
            *([_runs(_tested(group))] if tested else []),
            group.answers[0].made // max(group.answers[0].repeats, 1),
            _enough(group.answers[0]),
        ]
        for group in usual_first(groups, _axes)
    ]
    accuracy, consistency = (one.purpose.partition(" at ")[0] for one in groups[0].answers[:2])
    ec = consistency.replace("local error consistency", "EC local")
    level = ["α̂"] if tested else []
    if two:
        precision = two[0].purpose.partition(" at ")[0].rpartition(" ")[2]
        return [
            "",
            "runs needed for:",
            accuracy,
            f"A - B ± {precision}",
            "told",
            "there",
            "enough",
        ], table
    return ["", "runs needed for:", accuracy, ec, *level, "there", "enough"], table


def _runs(one: RunsNeeded | None) -> str:
    """Return a number of runs with its interval, in short."""
    if one is None:
        return "–"
    if one.runs is None:
        if one.low:
            return f"not told, {one.low:,} or more"
        untold = "not told" if one.made else "–"
        if one.high:  # of pairs, it rests on what has been seen alone
            untold = f"{one.high:,} at most{' *' if one.purpose.startswith(_OF_PAIRS) else ''}"
        return "more" if one.purpose.startswith(_TESTED) else untold
    if one.low is None or (one.low, one.high) == (one.runs, one.runs):
        return f"{one.runs:,}"
    return f"{one.runs:,} ({one.low:,} {'or more' if one.high is None else f'to {one.high:,}'})"


def _of_bounds(groups: Sequence[GroupAnswers]) -> list[str]:
    """Say once what bounds rest on, where runs differ too little to tell."""
    shown = {_runs(one) for group in groups if not group.of_two for one in group.answers[:2]}
    if not any(text.endswith("*") for text in shown):
        return []
    return [
        "* If the EC of further pairs of runs varies as little as so far: by a test point at most."
    ]


def _of_differences(groups: Sequence[GroupAnswers]) -> list[str]:
    """Say what is meant by a difference, or that ± of a mean is not that of one."""
    shown = [one for group in groups for one in group.of_two]
    if not shown:
        varied = any(one.answers[0].reason != _WITHOUT_CHANCE for one in groups)
        return ["± is of one mean; to tell two apart: --difference 0.01."] * varied
    size = shown[0].purpose.partition(" at ")[0].rpartition(" ")[2]
    return [
        f"A - B: of two that vary like it, each with so many runs on one test set; told: a true "
        f"difference of {size} is, in {100 * POWER:g} % of cases (t test)."
    ]


def _published(groups: Sequence[GroupAnswers]) -> list[str]:
    """Return the source's numbers beside one's own: RKS, Table I and its discussion."""
    if not any(_tested(group) for group in groups):
        return []
    return [
        "Published for a CNN on CIFAR-10: 30 seeds by α̂, 100 by the classical KS test (Banerjee et "
        "al. 2025)."
    ]


def _of_sets(groups: Sequence[GroupAnswers]) -> list[str]:
    """Say where more test sets, not seeds, would tell classifiers apart."""
    found = [one for group in groups for one in group.limited]
    if not found:
        return []
    first = min(found, key=lambda one: (one.repeats or math.inf, one.together or math.inf))
    which = f"{first.one} and {first.other}"
    which += f", and of {counted(len(found) - 1, 'more pair')}" if len(found) > 1 else ""
    takes = f"about {_repeats([one.repeats for one in found])} repeats would tell"
    if (most := max(one.pairs for one in found)) > 1:
        together = _repeats([one.together for one in found])
        takes += f" ({together} for all {most:,} pairs together, as in answers; estimates)"
    else:
        takes += " (an estimate)"
    return [f"Test sets, not seeds, limit which is better of {which}: {takes}: compare --why."]


def _repeats(needed: Sequence[int | None]) -> str:
    """Return numbers of repeats as a range; those that are not known are larger."""
    known = sorted(n for n in needed if n is not None)
    if not known:
        return f"{MOST_SETS:,} or more"
    ends = f"{known[0]:,}" + (f" to {known[-1]:,}" if known[-1] > known[0] else "")
    return f"{ends} or more" if None in needed else ends


def _of_ensembles(groups: Sequence[GroupAnswers]) -> list[str]:
    """Say once where α̂ has no answer, and how many points it takes."""
    asked = [group for group in groups if len(group.answers) > 2]  # those for means
    silent = [group for group in asked if _tested(group) is None]
    if not silent:
        return []
    reasons = [one.reason for group in silent for one in group.answers[2:] if one.reason]
    points = re.search(r"about [\d,]+ would be enough", " ".join(reasons))
    why = f": {reasons[0]}" if reasons else ""
    if points:
        why = f": test sets are too small; {points[0].replace(' would', ' points per side would')}"
    where = "" if len(silent) == len(asked) else f" in {len(silent):,} of {len(asked):,} cells"
    return [f"α̂ is not told{where}{why}."]
