"""Which cells are compared: those that are alike in all else, or as conditions choose them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import combinations, product

import polars as pl

from manyseed.analysis.axes import AXES, condition, told
from manyseed.analysis.figures.labels import labelled
from manyseed.analysis.questions.usual import models
from manyseed.analysis.tables.rows import cells_once, last
from manyseed.jobs.checks import parsed
from manyseed.orchestrator.computing.cellgroups import require_axes
from manyseed.orchestrator.conditions import chosen
from manyseed.orchestrator.errors import UserError, command, nearest
from manyseed.orchestrator.results.answers.comparison import AnalysedCell, AnalysedSweep

Pair = tuple[AnalysedCell, AnalysedCell]

_LEVELS = "--between xgb,mlp"
_NUMBERS = "--between 0,1"
SIDES = 2
"""Levels, as remedies write them."""
_CONFIGURATIONS = 50  # most pairs of cells of two classifiers without common hparams


def require_sides(a: str | None, b: str | None, by: str, between: Sequence[str]) -> None:
    """Refuse conditions for one side alone, or beside levels, and an axis that is none."""
    if between and (a or b):
        reason = "chooses cells that are also chosen by their levels"
        raise UserError(reason, key="--a" if a else "--b", value=a or b, remedy="leave it out")
    if (a is None) != (b is None):
        given, lacking = ("--a", "--b") if b is None else ("--b", "--a")
        problem = "chooses the cells of one side only"
        remedy = f"give {lacking}, too; or levels: {_LEVELS}"
        raise UserError(problem, key=given, value=a or b, remedy=remedy)
    require_axes([by])


def pairs_of(
    first: AnalysedSweep,
    second: AnalysedSweep,
    *,
    by: str = "classifier",
    between: Sequence[str] = (),
    a: str | None = None,
    b: str | None = None,
    where: str | None = None,
) -> list[Pair]:
    """Return the pairs of cells to compare; parameters are those of `compare_cells`."""
    require_sides(a, b, by, between)
    between = [*map(str, between)]  # numbers of cells, too
    conditions = {"--where": where, "--a": a, "--b": b}
    sweeps = [first] if first is second else [first, second]
    every = [last(one.snapshots({})) for one in sweeps]
    for key, text in (("--a", a), ("--b", b)):
        if text and re.fullmatch(r"[\w.:-]+", text) and text not in first.cells.columns:
            remedy = f"name levels: {_LEVELS}; or write \"classifier = '{text}'\""
            raise UserError("is no condition on cells", key=key, value=text, remedy=remedy)
    of_a, of_b = (chosen(one.snapshots(conditions), where, "--where") for one in (first, second))
    if between:
        _require_met(of_a, of_b, every, between, where)
        return _named(of_a, of_b, between, by, one_sweep=first is second)
    if a is None and first is second:
        meets = () if where is None else ("--where", where)
        asked = ("compare", first.paths.directory, *meets)
        return _levels(last(of_a), by, in_models=by == "classifier", asked=asked)
    of_a, of_b = last(chosen(of_a, a, "--a")), last(chosen(of_b, b, "--b"))
    return _matched(of_a, of_b, one_sweep=first is second)


def _named(
    a: pl.DataFrame, b: pl.DataFrame, words: Sequence[str], by: str, *, one_sweep: bool
) -> list[Pair]:
    """Return the pairs of cells with these levels of an axis: of `by`, if it has them."""
    if len(words) < 2 and one_sweep:
        remedy = f"name another {by} to compare it with"
        raise UserError("is one side only", key=by, value=words[0], remedy=remedy)
    if len(words) > 2 and not one_sweep:
        remedy = "give one level of each sweep, or one for both"
        raise UserError("are more than two sides", key="--between", value=words, remedy=remedy)
    both = pl.concat([side.select(*AXES, "cell") for side in (a, b)], how="vertical_relaxed")
    known = {axis: [_has(both[axis], word).any() for word in words] for axis in (by, *AXES, "cell")}
    axis = max(known, key=lambda one: sum(known[one]))  # the first of equal ones
    if not all(known[axis]):
        named = [(_called(a, word), _called(b, word)) for word in words]
        if all(one.any() or other.any() for one, other in named):
            return _of_names(a, b, named, one_sweep=one_sweep)
        wrong = words[known[axis].index(False)]
        remedy = nearest(wrong, both[axis].drop_nulls().unique().sort().cast(pl.String))
        remedy += f"; or numbers of cells, such as {_NUMBERS}"
        raise UserError(f"no such {axis}", key=axis, value=wrong, remedy=remedy)
    if len(words) > 2:
        held = [_has(a[axis], word) for word in words]
        return _levels(last(a.filter(pl.any_horizontal(held))), axis)
    of_a, of_b = (
        last(side.filter(_has(side[axis], word))) for side, word in ((a, words[0]), (b, words[-1]))
    )
    for side, word in ((of_a, words[0]), (of_b, words[-1])):
        if side.is_empty():
            raise UserError("no cell of this sweep has it", key=axis, value=word)
    return _matched(of_a, of_b, one_sweep=one_sweep)


def _of_names(
    a: pl.DataFrame,
    b: pl.DataFrame,
    named: Sequence[tuple[pl.Series, pl.Series]],
    *,
    one_sweep: bool,
) -> list[Pair]:
    """Return the pairs of cells of every two sides, each the cells that a name means."""
    found: dict[frozenset[int], Pair] = {}
    both = combinations(named, 2) if len(named) > 1 else [(named[0], named[0])]
    for (of_a, _), (_, of_b) in both:
        for pair in _matched(last(a.filter(of_a)), last(b.filter(of_b)), one_sweep=one_sweep):
            found.setdefault(frozenset((pair[0].cell, pair[1].cell)), pair)
    return [*found.values()]


def _called(cells: pl.DataFrame, word: str) -> pl.Series:
    """Return which cells a name means: a number, a level, or several as answers name cells.

    Such as ``TinyNet lr=0.002`` or ``TinyNet, lr=0.002``: some of a cell's levels in their order,
    those of some axes with the axis.
    """
    text = _plain(word)

    def is_said(text: str, rest: Sequence[tuple[str, str]]) -> bool:
        if not text or not rest:
            return not text
        (axis, level), *others = rest
        forms = (
            level,
            told(axis, level),
            f"{axis.replace('_', ' ')} {level}",
            f"{axis} = {level}",
            f"{labelled(axis)} {level}",
        )
        return is_said(text, others) or any(
            is_said(text.removeprefix(form).lstrip(), others)
            for form in forms
            if f"{text} ".startswith(f"{form} ")
        )

    levels = cells.select(AXES).iter_rows(named=True)
    said = [
        is_said(text, [(axis, _plain(str(level))) for axis, level in row.items()]) for row in levels
    ]
    return pl.Series(said, dtype=pl.Boolean) | _has(cells["cell"], word)


def _plain(name: str) -> str:
    """Return a name without what stands between its parts."""
    return " ".join(re.sub(r",(?= )|[·×](?= )", " ", name).split())


def _require_met(
    a: pl.DataFrame,
    b: pl.DataFrame,
    every: Sequence[pl.DataFrame],
    words: Sequence[str],
    where: str | None,
) -> None:
    """Refuse a condition that leaves out all cells of a level which the sweeps have."""
    if where is None:
        return
    kept = {*a["cell"], *b["cell"]}
    means = [
        {cell for one in every for cell in one.filter(_called(one, word))["cell"]} for word in words
    ]
    lost = [word for word, cells in zip(words, means, strict=True) if cells and not cells & kept]
    if not lost:
        return
    remedy = "choose a condition that cells of both sides meet"
    if len(every) == 1 and len(means) == SIDES and all(means):
        levels = {row["cell"]: row for row in every[0].select("cell", *AXES).iter_rows(named=True)}
        likest = max(
            product(*(sorted((cells & kept) or cells) for cells in means)),
            key=lambda pair: sum(levels[pair[0]][axis] == levels[pair[1]][axis] for axis in AXES),
        )
        remedy += f", or cells by number: --between {','.join(map(str, likest))}"
    raise UserError(f"leaves out all cells of {lost[0]}", key="--where", value=where, remedy=remedy)


def _has(levels: pl.Series, word: str) -> pl.Series:
    """Return which levels a word means."""
    try:
        meant = parsed(float, word.removesuffix(" rows")) if levels.dtype.is_numeric() else word
        return (levels if levels.dtype.is_numeric() else levels.cast(pl.String)) == meant
    except ValueError:
        return levels.is_null() & levels.is_not_null()


def _levels(
    cells: pl.DataFrame,
    by: str,
    *,
    in_models: bool = False,
    asked: Sequence[object] = ("compare", "DIR"),
) -> list[Pair]:
    """Return the pairs of cells that differ only in one axis; twins count once.

    Of all pairs of two levels, the same one comes first. `in_models`: every two of the models that
    headlines compare are a pair, also two configurations of one classifier. `asked`: the command.
    """
    cells = cells_once(cells).sort("cell")
    free = (by, "hparams") if by == "classifier" else (by,)  # each classifier has its own hparams
    others = [axis for axis in AXES if axis not in free]
    first = {level: n for n, level in enumerate(cells[by].unique(maintain_order=True).to_list())}
    pairs: list[Pair] = []
    for alike in cells.partition_by(others, maintain_order=True):
        own = sorted(AnalysedCell.all_of(alike), key=lambda one: first[one.axes[by]])
        compared = {*models(alike)["cell"]} if in_models and alike[by].n_unique() > 1 else set()
        both = [pair for pair in combinations(own, 2) if pair[0].axes[by] != pair[1].axes[by]]
        of_models = [*combinations([one for one in own if one.cell in compared], 2)]
        rest = [one for one in _alike(both) if not {one[0].cell, one[1].cell} <= compared]
        pairs += [*of_models, *rest]
    if not pairs:
        values = cells[by].unique(maintain_order=True).to_list()
        problem = f"there is only one {by} ({values[0]})"
        further = [axis for axis in AXES if axis != by and differ_in(cells, axis)]
        remedy = f"choose another axis with --by ({', '.join(further)})" if further else ""
        if len(values) > 1:
            problem = "no two cells differ in it alone"
            if sides := next(_unlike(cells, by, values), None):
                first_words = f"its values are {', '.join(map(str, values))}; "
                unlike = f"compare them, unlike as they are: {command(*asked, *sides)}"
                remedy = "\n  ".join(filter(None, [f"{first_words}{unlike}", remedy]))
        else:
            remedy = f"{remedy or 'choose cells'}, or use --a and --b"
            shown = ("query", "DIR", "-t", "runs", "--by", by, "--columns", "METRIC")
            remedy = f"{remedy}; by itself: {command(*shown, '--agg', 'mean,sd')}"
        raise UserError(problem, key="--by", value=by, remedy=remedy)
    return pairs


def differ_in(cells: pl.DataFrame, axis: str) -> bool:
    """Return whether two cells differ in this axis alone; each classifier has its own hparams."""
    free = (axis, "hparams") if axis == "classifier" else (axis,)
    rest = [one for one in AXES if one not in free]
    return bool((cells.group_by(rest).agg(pl.col(axis).n_unique())[axis] > 1).any())


def _unlike(cells: pl.DataFrame, by: str, values: Sequence[object]) -> Iterator[tuple[str, ...]]:
    """Yield the options that compare two levels of an axis whose cells differ in others, too."""
    for both in combinations(values, 2):
        sides = [cells.filter(pl.col(by) == one) for one in both]
        with suppress(UserError):
            _matched(sides[0], sides[1], one_sweep=True)
            a, b = (condition(by, one) for one in both)
            yield ("--a", a, "--b", b)


def model_axes(pairs: Sequence[Pair]) -> dict[tuple[int, int], tuple[str, ...]]:
    """Return the axes by which sides are named, of each pair of cells by classifier.

    Where some are of two configurations of one classifier, all are models of a family, which are
    called after their classifier and hparams.
    """

    def context(one: AnalysedCell) -> tuple[object, ...]:
        return tuple(level for axis, level in one.axes.items() if axis not in _MODEL)

    of = {context(a) for a, b in pairs if a.axes["classifier"] == b.axes["classifier"]}
    return {(a.cell, b.cell): _MODEL if context(a) in of else () for a, b in pairs}


_MODEL = ("classifier", "hparams")


def _alike(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Yield pairs of cells; of two classifiers those with the same hparams, if they share any."""
    by_classifier = dict[tuple[object, object], list[Pair]]()
    for a, b in pairs:
        by_classifier.setdefault((a.axes["classifier"], b.axes["classifier"]), []).append((a, b))
    for (one, other), both in by_classifier.items():
        same = [pair for pair in both if pair[0].axes["hparams"] == pair[1].axes["hparams"]]
        yield from same or (both if one == other or len(both) <= _CONFIGURATIONS else ())


def _matched(a: pl.DataFrame, b: pl.DataFrame, *, one_sweep: bool) -> list[Pair]:
    """Return the pairs of cells that agree in all axes but those that set the two sides apart."""
    by_name = a["data"].has_nulls() or b["data"].has_nulls()
    keys = [axis if axis != "dataset" or by_name else "data" for axis in AXES]
    apart = []
    if a.height > 1 or b.height > 1:
        for axis in keys:
            levels_a, levels_b = a[axis].unique(), b[axis].unique()
            if levels_a.len() == levels_b.len() == 1 and levels_a[0] != levels_b[0]:
                apart.append(axis)
        rest = [axis for axis in keys if axis not in apart]
        shared = a.join(b, on=rest, how="semi").height
        if not shared and "classifier" in apart and a.height * b.height <= _CONFIGURATIONS:
            rest = [axis for axis in rest if axis != "hparams"]  # each classifier has its own
        right = b.rename({name: f"{name}_b" for name in b.columns if name not in rest})
        joined = a.sort("cell").join(right, on=rest, how="inner", maintain_order="left")
        numbers = joined.select("cell", "cell_b").rows()
    else:
        numbers = [(a["cell"][0], b["cell"][0])]
    cells_a, cells_b = ({cell.cell: cell for cell in AnalysedCell.all_of(side)} for side in (a, b))
    matched = bool(numbers)
    if one_sweep:
        distinct: dict[frozenset[int], tuple[int, int]] = {}
        for i, j in numbers:
            if i != j or cells_a[i].epoch != cells_b[j].epoch:
                distinct.setdefault(frozenset((i, j)), (i, j))
        numbers = list(distinct.values())
    if not numbers:
        common = [axis for axis in keys if axis not in apart]
        differing = [axis for axis in common if not {*a[axis].to_list()} & {*b[axis].to_list()}]
        problem = f"no cell of A ({a.height:,}) matches a cell of B ({b.height:,})"
        if matched:
            problem = f"{problem} other than itself"
        elif differing:
            problem = f"{problem}: they differ in {', '.join(differing)}"
        else:
            problem = f"{problem} in all of {', '.join(common)}"
        raise UserError(problem, remedy="choose cells with --a and --b")
    return [(cells_a[i], cells_b[j]) for i, j in numbers]
