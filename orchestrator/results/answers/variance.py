"""Where the variance comes from, in words, from an analysis's table of variances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from manyseed.analysis.axes import AXES, UNKNOWN, VARY
from manyseed.analysis.options import CONFIDENCE
from manyseed.analysis.questions.components import has_own
from manyseed.analysis.questions.crossed import untold
from manyseed.analysis.questions.effects import UNPERTURBED
from manyseed.analysis.questions.intervals import (
    ASSUMED,
    SEEDS,
    TEST_SETS,
    differs,
    may_differ,
    too_few,
)
from manyseed.analysis.questions.question import Answer, Reply
from manyseed.analysis.questions.resolution import ROUNDING
from manyseed.analysis.questions.variance import (
    ACCURACY,
    ADDED,
    ALL,
    ALONE,
    ERRORS,
    INTERACTION,
    OWN,
    TEST_SET,
    TOGETHER,
    splits,
    without_alike,
)
from manyseed.analysis.tables.rows import DRAWS_FROM, IS_ONE_MODEL, last
from manyseed.orchestrator.computing.cellgroups import in_short, usual_first
from manyseed.orchestrator.computing.tables import VARIANCE, Results
from manyseed.orchestrator.conditions import matching
from manyseed.orchestrator.errors import UserError, command

Row = Mapping[str, Any]

_METRICS = {
    ACCURACY: "Accuracy",
    ERRORS: "Whether a point is wrong (1 − accuracy − global EC)",
    "ec_local": "Local error consistency of a pair of runs",
    "ec_global": "Global error consistency of a pair of runs",
}
_OF_RUNS = (ACCURACY, ERRORS)  # not of pairs
_SOURCES = {"batch": "batch (dropout with it)", "train": "train (resampling)"}
_PARTS = {
    OWN: "{} by itself",
    ALONE: "{} alone, all else held fixed",
    ADDED: "what {} adds to the same cell without it",
    TOGETHER: "what sources do together",
    INTERACTION: "interaction of {}, beyond what each does by itself",
    ALL: "between runs, {} varying",
    TEST_SET: "between test sets, beyond what runs add",
}


@dataclass(frozen=True, slots=True)
class VarianceSplit:
    """The variance components of cells that differ only in `vary`.

    Attributes
    ----------
    name : str
        What distinguishes the cells from the others that were asked for.
    cell : int
        The cell that varies most; it stands for all of them.
    rows : tuple of mapping
        Rows of ``variance.parquet``.
    one_model : bool
        Whether all runs of the cell on a test set are copies of one, as no seed reaches the fit.
    """

    name: str
    cell: int
    rows: tuple[Mapping[str, Any], ...]
    one_model: bool = False

    @property
    def words(self) -> dict[str, list[str]]:
        """A sentence for each component, by metric."""
        sentences: dict[str, list[str]] = {}
        for row in self.rows:
            told = sentence(row, one_model=self.one_model)
            sentences.setdefault(_METRICS[row["metric"]], []).append(told)
        for row in self.rows:
            if row["metric"] == ACCURACY and row["part"] == ALL:
                sentences[_METRICS[ACCURACY]] += _untold(row["source"].split("+"))
        return sentences


def _untold(sources: Sequence[str]) -> Iterator[str]:
    """Say which noise has no part by itself that could be told, and why."""
    which = " and ".join(name for name in ("train", "subsample") if name in sources)
    for source in sources:
        if not has_own(source, sources):
            yield (
                f"{source} by itself: not told, as it is drawn anew for the rows in use, and these "
                f"differ from run to run by {which}; it may be much of what varies between runs"
            )


def sentence(row: Mapping[str, Any], *, one_model: bool = False) -> str:
    """Report a component: its standard deviation, or that it is not distinguishable from 0.

    `one_model`: as of `VarianceSplit`.
    """
    named = "+".join(_SOURCES.get(source, source) for source in row["source"].split("+"))
    if "*" in (row.get("vary") or "") and any(
        str(row[axis]) != plain for axis, plain in UNPERTURBED.items() if axis in row
    ):  # where crossed, they go with train
        named = named.replace("resampling", "resampling; subsample and noise with it")
    part = _PARTS[row["part"]].format(
        named.replace("*", " × ") if row["part"] == INTERACTION else named
    )
    if row["source"] == UNKNOWN:
        part = "between runs (what varies between imported ones is unknown)"
    runs = "" if row["part"] == TEST_SET else f"{row['n_runs']:,} runs of "
    repeats = "repeat" if row["n_repeats"] == 1 else "repeats"
    basis = f"; from {runs}{row['n_repeats']:,} {repeats}"
    value, low, high = row["variance"], row["low"], row["high"]
    if low is None and one_model:
        return f"{part}: none, as no seed reaches the fit: one model on each test set"
    if low is None:
        freedom, bound = row["n_runs"] - row["n_repeats"], "which a few runs may do by chance"
        if row["part"] in (ALL, ALONE) and row["metric"] in _OF_RUNS and "*" not in row["source"]:
            bound = f"while {may_differ(freedom, CONFIDENCE)}"
        if high is None or value <= ROUNDING:
            return f"{part}: none seen, as nothing differs, {bound}{_at_most(high)}{basis}"
        return f"{part}: sd {value**0.5:.2g}, below one test point{_at_most(high)}{basis}"
    share = "" if row["share"] is None or row["part"] == ALL else f", {row['share']:.0%} of all"
    if share and row["share"] > 1:
        share += ", as other parts are estimated below 0"
    on, assumes = "", ""
    if row["over"] == SEEDS:
        on, assumes = ", on this one test set", f"; the interval assumes {ASSUMED}"
    if low > 0 and value > 0:
        ends = f"{_sds(row)}, 95 %{on}"
        if row["over"] == TEST_SETS and row.get("seeds_low") is not None:
            ends = f"{_sds(row, 'seeds_')}, 95 %, over seeds; {_sds(row)} for new test sets, too"
        return f"{part}: sd {value**0.5:.3g} ({ends}){share}{basis}{assumes}{_unequal(row)}"
    if abs(value) < 1e-9 * high:  # a difference of equal mean squares, rounded
        value = 0.0
    if row["part"] != ADDED and high <= 0:
        below = f"variance estimated at {value:.3g}, below 0, as is its whole 95 % interval"
        unclear = f"not distinguishable from 0: {below}, so how large it may be is not told"
        return f"{part}: {unclear}{basis}"
    sign = "estimated below 0" if value < 0 else "estimated"
    unclear = f"not distinguishable from 0: variance {sign} at {value:.3g} ({low:.3g} to {high:.3g}"
    return f"{part}: {unclear}, 95 %{on}){basis}{assumes}"


def _at_most(high: float | None) -> str:
    """Say how much further runs vary at most, where these are too much alike for an interval."""
    if high is None:
        return ""
    return f"; the sd of further runs is at most {high**0.5:.2g} (95 %, for normal values)"


def _sds(row: Row, of: str = "", digits: int = 3) -> str:
    """Return the interval of a standard deviation: of the row, or its own over seeds alone."""
    return " to ".join(_digits(row[of + end] ** 0.5, digits) for end in ("low", "high"))


def _digits(value: float, digits: int = 2) -> str:
    """Return a number with so many significant digits, also if the last ones are 0."""
    return f"{value:#.{digits}g}".removesuffix(".")


def _unequal(row: Mapping[str, Any]) -> str:
    """Say what unequal variances do to the interval; nothing if they are about equal."""
    equal = row.get("n_equal") or 0
    if not (told := differs(row.get("unequal") or 0.0, equal, row["n_repeats"])):
        return ""
    return (
        f"; {told}, and where {'variances differ so' if equal else 'it does'}, intervals for new "
        "test sets covered the truth in 75 to 92 % of simulations (log sd 1.4)"
    )


def variance(results: Results, where: str | None = None) -> list[VarianceSplit]:
    """Say where the variance comes from, in words, from the results of an analysis.

    The variance of accuracy, and of errors on the same points, is split into what varies between
    runs (init, batch, resampling, subsample, noise on data and hparams) and the test set, with
    95 % intervals. Single sources are reported if the sweep has cells whose vary differs, such as
    init, batch and init+batch; a crossed cell, such as init*batch, has them by itself, and what
    sources add only together. Components that may be zero are reported as such.

    Parameters
    ----------
    results : Results
    where : str, optional
        Only components that meet a condition on the table.
    """
    if VARIANCE not in results:
        remedy = command("analyze", "DIR" if results.plan is None else results.plan.directory)
        raise UserError("there is no table of variances yet", remedy=remedy)
    rows = splits(results[VARIANCE])
    if where is not None:
        rows = matching(rows, where, "--where")
        if rows.is_empty():
            raise UserError("no component meets the condition", key="--where", value=where)
    cells = results["cells"]
    rows = without_alike(rows, results["repeats"], last(cells))
    if DRAWS_FROM in cells.columns:
        blind = cells.filter(pl.col(DRAWS_FROM) == UNKNOWN)["cell"].implode()
        source = pl.when(~pl.col("cell").is_in(blind) | (pl.col("source") != VARY)).then("source")
        rows = rows.with_columns(source.otherwise(pl.lit(UNKNOWN)).alias("source"))
    apart = [
        axis
        for axis in AXES
        if axis not in ("dataset", "classifier", "vary") and rows[axis].n_unique() > 1
    ]
    still = set(last(cells).filter(IS_ONE_MODEL)["cell"])
    return [
        VarianceSplit(_name(own, apart), cell, tuple(own.iter_rows(named=True)), cell in still)
        for (cell,), own in rows.partition_by("cell", maintain_order=True, as_dict=True).items()
    ]


def _name(own: pl.DataFrame, apart: list[str]) -> str:
    parts = [f"{own['dataset'][0]} × {own['classifier'][0]}"]
    parts += [f"{axis} = {own[axis][0]}" for axis in apart]
    return f"{', '.join(parts)} (cell {own['cell'][0]})"


def reply(groups: Sequence[VarianceSplit]) -> Reply:
    """Word the components of each group of cells."""
    values = [
        {"name": group.name, "cell": group.cell, "words": group.words, "components": group.rows}
        for group in groups
    ]
    answers = [
        Answer(
            group.name,
            tuple(
                line
                for metric, sentences in group.words.items()
                for line in (metric, *(f"  {one}" for one in sentences))
            ),
            rows=group.rows,
        )
        for group in groups
    ]
    if not groups:
        models = "runs that are more than one model"
        nothing = f"No cell has a repeat with two or more {models}, so its variance is unknown."
        answers = [Answer(nothing)]
    rows = (row for group in groups for row in group.rows if row["over"] == TEST_SETS)
    few = too_few(min((row["n_repeats"] for row in rows), default=0))
    columns, table, below = _table(groups) if groups else ((), (), ())
    every = [row for group in groups for row in group.rows]
    why = untold(pl.DataFrame(every, infer_schema_length=None)) if every else ""
    notes = [text for text in (few, why) if text]
    return Reply(
        answers, {"groups": values}, notes=notes, columns=columns, table=table, below=below
    )


def _table(
    groups: Sequence[VarianceSplit],
) -> tuple[Sequence[str], Sequence[Sequence[object]], Sequence[str]]:
    """Return the columns, a row per group of cells, and what the columns are."""
    metric = groups[0].rows[0]["metric"]
    of = [
        (
            group,
            {(row["part"], row["source"]): row for row in group.rows if row["metric"] == metric},
        )
        for group in usual_first(groups, lambda group: group.rows[0])
    ]
    parts = [key for _, rows in of for key in rows if key[0] in (OWN, INTERACTION)]
    own = list(dict.fromkeys(parts))
    table: list[list[str]] = []
    for group, rows in of:
        seeds = next((row for (part, _), row in rows.items() if part == ALL), None)
        sets = rows.get((TEST_SET, "test set"))
        limits = ""
        if seeds is not None and seeds["low"] is None and seeds["high"] is not None:
            limits = f"at most {seeds['high'] ** 0.5:.2g}"
        elif seeds is not None and seeds["low"] is not None and seeds["low"] > 0:
            limits = _sds(seeds, "" if seeds.get("seeds_low") is None else "seeds_", 2)
        table.append(
            [
                group.rows[0]["dataset"],
                in_short(group.rows[0]),
                _sd(seeds, one_model=group.one_model),
                limits,
                *(_sd(rows.get(key)) for key in own),
                _sd(sets),
                _more(seeds, sets),
            ]
        )
    heads = [
        "",
        "sd between:",
        "seeds",
        "95 %",
        *(source for _, source in own),
        "test sets",
        "more",
    ]
    what = _METRICS[metric].partition(" (")[0]
    still = any(group.one_model for group, _ in of)
    models = " One model: on each test set, whatever the seed." * still
    more = "More: the intervals for new test sets are apart."
    below = " <: not told from 0." * any(cell.startswith("<") for row in table for cell in row)
    notes = [f"{what}.{models}{below} {more}"]
    if any(row[3].startswith("at most") for row in table):
        notes.append("At most: runs vary by less than one test point.")
    of_sets = [row for _, rows in of for row in rows.values() if row["over"] == TEST_SETS]
    if any(row.get("seeds_low") is not None for row in of_sets):
        notes.append(
            "The 95 % of seeds is for new seeds on these test sets, as in answers and howmany; "
            "--why has that for new test sets, too."
        )
    return heads, table, notes


def _sd(row: Row | None, *, one_model: bool = False) -> str:
    """Return a standard deviation in short, or what it is below."""
    if row is None:
        return "–"
    if row["low"] is None and (row["high"] is None or row["variance"] <= ROUNDING):
        return "one model" if one_model else "none seen"
    if row["low"] is None:
        return _digits(row["variance"] ** 0.5)
    if row["low"] > 0 and row["variance"] > 0:
        return _digits(row["variance"] ** 0.5)
    return f"< {_digits(row['high'] ** 0.5)}" if row["high"] > 0 else "not told"


def _more(seeds: Row | None, sets: Row | None) -> str:
    """Return what varies more."""
    if seeds is None or sets is None or None in (seeds["low"], sets["low"]):
        return "not told"
    return "test sets" if sets["low"] > max(seeds["high"], 0.0) else "not told"
