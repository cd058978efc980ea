"""Columns of tables: which tell rows apart, and those of a table listed by families."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from manyseed.analysis.axes import AXES

if TYPE_CHECKING:
    import polars as pl

    from manyseed.analysis.questions.question import Reply
    from manyseed.orchestrator.computing.tables import Results

NAMES = (
    *("sweep", "cells", "dataset", "classifier", "with", "a", "b", *AXES, "axis", "level"),
    *("metric", "source", "part", "epoch", "repeat_index", "run_index", "run_i", "run_j", "index"),
)
"""Columns that name rows, in the order in which a table for a paper has them."""
_ALSO = ("cell", "cell_id", "address")
"""Columns that name rows where they are asked for."""


SPREADS = ("_std", "_sd")
"""How names of columns of spreads end."""
_PLAIN = {*NAMES, *_ALSO, "identical", "probe", "recipe", "fit_seconds", "accuracy"}
"""Columns of runs and pairs that need no explanation, or have another."""


def telling_apart(rows: pl.DataFrame, asked: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the columns asked for, after those without which rows look alike, and remarks.

    A single dataset that is not a column is told in a remark.
    """
    order = dict.fromkeys((*NAMES, *_ALSO))
    differing = [one for one in order if one in rows.columns and rows[one].n_unique() > 1]
    has, columns = [one for one in asked if one in differing], list(asked)
    for one in differing:
        if one in _ALSO or (has and not rows.select(has).is_duplicated().any()):
            break
        if one not in has:
            has.append(one)
            columns = [name for name in differing if name in has]
            columns += [name for name in asked if name not in has]
    sets = rows["dataset"].unique().to_list() if "dataset" in rows.columns else []
    is_said = len(sets) == 1 and "dataset" not in asked
    return columns, [f"Dataset: {sets[0]}."] if is_said else []


def spreads(shown: Sequence[str]) -> list[str]:
    """Return the columns of standard deviations."""
    return [name for name in shown if name.endswith(SPREADS)]


def is_of_means(spread: str) -> bool:
    """Return whether a column of standard deviations is one of the means of test sets."""
    return spread.endswith("_mean_sd")


def explained(sweeps: Iterable[Results], shown: Sequence[str]) -> list[str]:
    """Say what metrics of these columns are, whose heads in words do not tell it."""
    from manyseed.analysis.figures.labels import labelled

    found: dict[str, str] = {}
    for results in sweeps:
        for table, of in (("pairs", ", of two runs"), ("runs", "")):
            columns = json.loads(results.metadata(table).get("columns", "{}"))
            names = [one for one in columns if one not in _PLAIN and not one.startswith("hparam_")]
            for name in shown:
                known = [one for one in names if f"{name}_".startswith(f"{one}_")]
                base = max(known, key=len, default="")
                if base and (meaning := columns[base]["meaning"]):
                    told = re.split(r"(?<=\w)\. (?=[A-Z])", meaning)[0].rstrip(".")
                    found.setdefault(base, f"{labelled(base)}{of}: {told}.")
    return [*found.values()]


def only(where: str, what: str = "runs") -> str:
    """Say below a table that a condition chose its rows; equal values stand without quotes."""
    plain = re.sub(r"\b(\w+) *==? *'([^']*)'", r"\1 = \2", where)
    return f"Only {what} with {plain}."


def sides_named(
    frame: pl.DataFrame, columns: Sequence[str], heads: list[str], rows: list[list[object]]
) -> tuple[list[str], list[list[object]]]:
    """Return heads and verdicts of comparisons with the names of the sides.

    Heads of several pairs speak of A and B, which are columns then.
    """
    if not {"a", "b", "verdict"} <= {*frame.columns} or frame.is_empty():
        return heads, rows
    both = [frame["a"].to_list(), frame["b"].to_list()]
    named = [one[0] for one in both] if all(len({*one}) == 1 for one in both) else ["A", "B"]
    for at, name in enumerate(columns):
        stem, _, side = name.rpartition("_")
        if stem and side in ("a", "b"):
            heads[at] = f"{stem.replace('_', ' ')} {named['ab'.index(side)]}"
        if name.endswith("verdict"):
            together = frame["together_verdict" if "together_verdict" in frame.columns else name]
            for row, a, b, all_told in zip(rows, *both, together, strict=True):
                said = re.match(r"([ab]) (\w+)$", str(row[at]))
                alone = ", alone" if said and all_told != row[at] else ""
                row[at] = f"{a if said[1] == 'a' else b} {said[2]}{alone}" if said else row[at]
    return heads, rows


_END = re.compile(r"_(mean|std|min|max|range|median|q\d+|n|sd|lo|hi|low|high)$")
_OF = ("_sd", "_lo", "_hi", "_n")
"""Ends of columns that describe another one."""


def families(names: Sequence[str]) -> Iterator[str]:
    """List many columns by their ends: those without, then all of each set of ends in a line."""
    described = [name for name in names if {f"{name}{end}" for end in _OF} <= {*names}]
    beside = {f"{name}{end}" for name in described for end in _OF}
    ends: dict[str, list[str]] = {}
    for name in names:
        if name not in beside:
            stem = _END.sub("", name)
            ends.setdefault(stem, []).append(name[len(stem) :])
    alike: dict[tuple[str, ...], list[str]] = {}
    single: list[str] = []
    for stem, own in ends.items():
        if len(own) == 1 or "" in own:
            single += [f"{stem}{end}" for end in own]
        else:
            alike.setdefault(tuple(own), []).append(stem)
    yield ", ".join(single)
    for ending, stems in alike.items():
        yield f"{', '.join(f'{stem}_…' for stem in stems)}: {', '.join(ending)}"
    if described:
        told = "how NAME varies between repeats, NAME such as"
        yield f"NAME{', NAME'.join(_OF)}: {told} {described[0]}"


OF_PAIRS = (
    *("dataset", "with", "a", "b", "mean_a", "mean_b"),
    *("difference", "low", "high", "verdict"),
)
"""Columns of a comparison that a paper has where the better side is bold."""
OF_EFFECTS = (
    *("classifier", "metric", "axis", "level"),
    *("difference", "low", "high", "p_holm"),
)
"""Columns of effects that a paper has."""
ENDS = ("low", "high")
"""How columns of intervals end; notes on intervals are for tables with such."""
TOGETHER = "together_"
"""How columns of intervals and verdicts begin that hold for all pairs together."""
_TOLD_OF = re.compile(r".*_[ab]|difference|better|(.*_)?(verdict|low|high)")
"""Columns that say nothing without the two sides of a comparison."""


def with_sides(rows: pl.DataFrame, columns: Sequence[str]) -> list[str]:
    """Return the columns of comparisons with those that name the sides, where pairs differ."""
    lacking = [one for one in ("a", "b") if one not in columns]
    if not any(map(_TOLD_OF.fullmatch, columns)) or not lacking:
        return [*columns]
    if not any(rows[one].n_unique() > 1 for one in ("a", "b")):
        return [*columns]
    at = next(n for n, one in enumerate(columns) if _TOLD_OF.fullmatch(one))
    return [*columns[:at], *lacking, *columns[at:]]


def shared_asked(found: Reply, columns: Sequence[str]) -> list[str]:
    """Return columns with the one of shared levels, which an axis may be asked for as."""
    return [*dict.fromkeys("with" if [name] == [*found.shared] else name for name in columns)]


def told_of_pairs(found: Reply, columns: Sequence[str]) -> list[str]:
    """Return what the columns of comparisons are: what intervals are over, and of which side."""
    limited = [name for name in columns if name.endswith((*ENDS, "verdict"))]
    together = [name for name in limited if name.startswith(TOGETHER)]
    own, *verdicts = re.split(r" (?=For (?:all|the) [\d,]+ )", "".join(found.below[:1]))
    if len(together) == len(limited):  # of verdicts that hold alone, none is shown
        verdicts = [one for one in verdicts if one.startswith("For the ")]
    told = [own] * (len(limited) > len(together)) + [found.together] * bool(together)
    if told and any(name.endswith("verdict") for name in limited):
        told[0] = " ".join([told[0], *verdicts])
    if "better" in columns:
        told += [line for line in found.below if line.startswith("P: ")]
    told += [line for line in found.paper[2] if line.startswith("with: ") and "with" in columns]
    if {"difference", *ENDS} & {*columns}:
        of = {(row["a"], row["b"]) for one in found.answers for row in one.rows}
        named = " - ".join(of.pop() if len(of) == 1 else ("A", "B"))
        is_shown = "difference" in columns
        told.append(f"Differences: {named}." if is_shown else f"Low, high: of {named}.")
    return told


_LISTS_ALL = re.compile(r"\blimit = (\d+) lists all")
_IS_WHERE = re.compile(r'\bwhere = (?=")')


def as_typed(line: str) -> str:
    """Return what details and what answers rest on say of options, as one types them."""
    return _IS_WHERE.sub("--where ", _LISTS_ALL.sub(r"--limit \1 lists all", line))
