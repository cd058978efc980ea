"""All questions by name, and how one is asked.

Those are the questions of the page, those with options below, and every record in another module of
this folder: a new question is a new module. All are imported to list the questions, so they are
light.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from numbers import Real
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, get_args

from manyseed.analysis.questions.question import PAGE, Answer, Evidence, Question, Reply, imported
from manyseed.orchestrator.calls import checked
from manyseed.orchestrator.errors import UserError, command, flag, require_one_of
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.spoken import in_python

if TYPE_CHECKING:
    import polars as pl

    from manyseed.analysis.tables.rows import Tables

_SUBJECTS = ("results", "evidence", "paths", "sweep")
_NO_OPTIONS = ("report",)  # callbacks, which a caller from the command sets
_HARD = ("hard", "labels", "mislabelled")
_MEANT = {
    **dict.fromkeys(("best", "better", "mean", "means"), "accuracy"),
    **dict.fromkeys(("difference", "p", "p-value", "pvalue", "significance", "test"), "compare"),
    **dict.fromkeys(("ensemble", "ensembles"), "dee"),
    **dict.fromkeys(("power", "repeats", "runs", "seeds"), "howmany"),
    **dict.fromkeys(("citations", "cite", "paper"), "methods"),
    **dict.fromkeys((*_HARD, "noise", "samples"), "points"),
    **dict.fromkeys(("rank", "ranking", "ranks"), "standings"),
    **dict.fromkeys(("components", "sd", "std"), "variance"),
}
"""Questions by other words that are typed for them."""


class Found(list[Any]):
    """What a question's `find` found; it is shown in the sentences that the command prints."""

    def __init__(self, found: Iterable[Any], question: str, given: Mapping[str, Any]) -> None:
        super().__init__(found)
        self._question, self._given = question, given

    def __repr__(self) -> str:
        tell = named(self._question).tell if self._question else None
        if tell is None or not self:
            return str(Reply(self)) if self else super().__repr__()
        own = {name: one for name, one in self._given.items() if name in _parameters(tell)}
        return in_python(str(imported(tell)(self, **own)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Found, ([*self], self._question, self._given)


class Sentences(list[str]):
    """Texts that are shown one below the other."""

    @classmethod
    def of(cls, answers: Iterable[Answer], *, why: bool) -> Sentences:
        """Return the headlines of answers, or the evidence."""
        return cls(one.text if why else one.headline for one in answers)

    def __repr__(self) -> str:
        return "\n".join(self) or super().__repr__()


class AskedSweep(Protocol):
    """A sweep that is asked."""

    @property
    def readable(self) -> SweepPaths:
        """Its files, perhaps without the sweep file."""


@cache
def known() -> dict[str, Question]:
    """Return all questions by name: those of the page first, in its order."""
    folders = sys.modules[__package__].__path__
    found = {one.name: one for one in PAGE}
    for name in sorted(one.name for one in iter_modules(folders)):
        found |= records(import_module(f"{__package__}.{name}"))
    return found


def records(module: ModuleType) -> dict[str, Question]:
    """Return the questions that a module defines."""
    return {one.name: one for one in vars(module).values() if isinstance(one, Question)}


def named(name: str) -> Question:
    """Return a question; raises a UserError for an unknown one."""
    if (meant := _MEANT.get(name.lower())) and name not in known():
        asked = f"{meant}: {known()[meant].asks}"
        if name.lower() in _HARD:
            asked += f"\n  those alone: {command('answers', 'DIR', meant, '--kind', 'hard')}"
        raise UserError("no such question", key="QUESTION", value=name, remedy=asked)
    require_one_of(name, known(), "no such question", key="QUESTION")
    return known()[name]


def options(question: Question) -> dict[str, inspect.Parameter]:
    """Return the options of a question: those of its answer, its words, and its variants."""
    of_find, of_tell = _parameters(question.find), _parameters(question.tell)
    found = {**of_find, **{name: one for name, one in of_tell.items() if name not in of_find}}
    for option, (other, same) in question.variants.items():
        more = options(named(other))
        found |= {name: one for name, one in more.items() if name not in (*found, same)}
        found[option] = (
            more[same].replace(
                name=option, annotation=f"{more[same].annotation} | None", default=None
            )
            if same
            else inspect.Parameter(
                option, inspect.Parameter.KEYWORD_ONLY, annotation="bool", default=False
            )
        )
    return {**found, **_of_evidence(question)}


def _of_evidence(question: Question) -> dict[str, inspect.Parameter]:
    """Return the option that questions answered from `Evidence` have: which cells it is of."""
    subject = next(iter(inspect.signature(imported(question.find)).parameters))
    kind = inspect.Parameter.KEYWORD_ONLY
    one = inspect.Parameter("where", kind, annotation="str | None", default=None)
    return {one.name: one} if subject == "evidence" else {}


def by_itself(question: Question) -> set[str]:
    """Return the options that a question takes without another one that asks another question."""
    return {*_parameters(question.find), *_parameters(question.tell), *question.variants}


def _parameters(function: Any) -> dict[str, inspect.Parameter]:
    """Return a function's parameters but the first, which is what it is about."""
    if function is None:
        return {}
    _, *others = inspect.signature(imported(function)).parameters.values()
    return {one.name: one for one in others if one.name not in _NO_OPTIONS}


def ask(sweep: AskedSweep, question: Question, **given: Any) -> Any:
    """Return what a question's `find` finds."""
    function = imported(question.find)
    subject = next(iter(inspect.signature(function).parameters))
    if subject not in _SUBJECTS:
        raise TypeError(f"{question.name} is answered from {subject}, not one of {_SUBJECTS}")
    where = given.pop("where", None) if subject == "evidence" else None
    found = checked(function, f'Sweep.answers("{question.name}")')(
        _subject(sweep, subject, where), **given
    )
    if question.tell is not None:
        return found
    return [replace(one, about=question.name) for one in found]


def _with_variant(question: Question, option: str, paths: SweepPaths, name: str, value: Any) -> str:
    """Return the command that takes an option of a variant, and which values it takes there."""
    find = imported(named(question.variants[option][0]).find)
    annotation = inspect.signature(find).parameters[name].annotation
    allowed = get_args(find.__globals__.get(annotation))  # of a Literal
    example = next((one for one in question.examples if one.startswith(flag(option))), flag(option))
    given = (
        [] if isinstance(value, bool) else [value if value in (allowed or [value]) else allowed[0]]
    )
    first = example.split()[: 2 if question.variants[option][1] else 1]
    told = (
        f"such as: {command(question.name, paths.directory, *first, flag(name), *map(str, given))}"
    )
    told += f"\n  valid with {flag(option)}: {', '.join(allowed)}" if allowed else ""
    if name == "metric" and allowed and value not in allowed:
        shown = ("-t", "runs", "--by", "dataset,classifier", "--columns", value, "--agg", "mean,sd")
        told += f"\n  how it varies between seeds: {command('query', paths.directory, *shown)}"
    return told


def _subject(sweep: AskedSweep, subject: str, where: str | None = None) -> Any:
    from manyseed.orchestrator.computing.tables import read_results
    from manyseed.orchestrator.results.caveats import tell_newer

    if subject == "sweep":
        return sweep
    if not isinstance(sweep, _Read):  # who reads the page was told already
        tell_newer(sweep.readable)
    if subject == "paths":
        return sweep.readable
    return (
        read_results(sweep.readable) if subject == "results" else evidence(sweep.readable, where)[0]
    )


def sides(words: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Return the other sweep, if the first word is one, and the levels to compare, as text."""
    if not words:
        return None, []
    words = [
        str(one) if isinstance(one, Real) and not isinstance(one, bool) else one for one in words
    ]
    if not isinstance(words[0], str):
        return words[0], [*words[1:]]
    first = Path(words[0])
    is_level = first.name == words[0] and not first.exists()
    if not is_level and (len(words) == 1 or SweepPaths(first).cells.is_file()):
        return first, [*words[1:]]
    return None, [*words]


def with_sides(words: Sequence[Any], other: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with the sweep and the levels that are given without their names."""
    second, levels = sides(words)
    for key, is_twice in (
        ("other", second is not None and other is not None),
        ("between", bool(levels) and "between" in options),
    ):
        if is_twice:
            raise UserError("is given twice", key=key, remedy="give it once")
    named = {"between": levels} if levels else {}
    return {**options, "other": other if second is None else second, **named}


def reply(sweep: AskedSweep, name: str, **given: Any) -> Reply:
    """Ask a question; return its answers in words and numbers.

    ``**given``: options, as `options` returns them, and ``report``, which `until` calls with each
    step.
    """
    question = named(name)
    for option, (other, same) in question.variants.items():
        own, theirs = options(question), options(named(other))
        if value := given.pop(option, None):
            kept = {name: one for name, one in given.items() if name in (*theirs, *_NO_OPTIONS)}
            for lost in given.keys() - kept.keys():
                unused, default = given[lost], own[lost].default if lost in own else None
                if unused != default and (unused or default):
                    said = f"does not apply with {flag(option)}"
                    raise UserError(said, key=flag(lost), value=unused, remedy="leave it out")
            return reply(sweep, other, **kept, **({same: value} if same else {}))
        mine = {*_parameters(question.find), *_parameters(question.tell)}
        for name_of in (given.keys() & theirs.keys()) - mine:
            unused, default = given.pop(name_of), own[name_of].default
            if unused != default and (unused or default):  # empty lists are none
                remedy = _with_variant(question, option, sweep.readable, name_of, unused)
                said = f"applies only with {flag(option)}"
                raise UserError(said, key=flag(name_of), value=unused, remedy=remedy)
    of_tell = _parameters(question.tell)
    takes = inspect.signature(imported(question.find)).parameters
    asked = {
        name: one
        for name, one in given.items()
        if name in takes or (name not in of_tell and name not in _NO_OPTIONS)
    }
    found = ask(sweep, question, **asked)
    if question.tell is None:
        why = () if found else _why_none(sweep, question, given.get("where"))
        return Reply(found, {"answers": [one.values() for one in found]}, cannot_tell=why)
    told: Reply = imported(question.tell)(
        found, **{name: one for name, one in given.items() if name in of_tell}
    )
    answers = [
        replace(one, about=question.name, figures=one.figures or question.figures)
        for one in told.answers
    ]
    return replace(told, answers=answers)


def _why_none(sweep: AskedSweep, question: Question, where: str | None) -> Sequence[str]:
    """Say why a question has no answer, where more than one thing may be why."""
    if question.name != "sources":
        return ()
    from manyseed.analysis.questions.crossed import untold

    return [*filter(None, [untold(evidence(sweep.readable, where)[0].variance, together=True)])]


def evidence(paths: SweepPaths, where: str | None = None) -> tuple[Evidence, Tables]:
    """Return what the page's questions are answered from, and the tables with duplicate fits.

    Of runs and pairs, only the columns that these questions read. `where`: a condition on cells,
    if only some count; scores of response curves, which are of all, are then left out.
    """
    from manyseed.analysis.axes import AXES
    from manyseed.analysis.questions.effects import effects
    from manyseed.analysis.questions.oneclass import NEEDED
    from manyseed.analysis.questions.ranking import COMPARED, HELD_OUT, SET_APART
    from manyseed.analysis.tables.rows import (
        CELL_KEY,
        RUN,
        at_last,
        independent,
        last,
        once,
        paired,
    )
    from manyseed.orchestrator.asking.averaging import compared
    from manyseed.orchestrator.computing.tables import (
        CMI,
        DRAWN_PAIRS,
        VARIANCE,
        Analysis,
        read_results,
    )
    from manyseed.orchestrator.results.testclasses import most_frequent_shares

    results, record = read_results(paths), Analysis.read(paths)
    facts = ("identical", "accuracy", "recipe", "fit_seconds", "delta")
    of_runs = (*CELL_KEY, *RUN, *AXES, *facts, *COMPARED, *HELD_OUT, *SET_APART, *NEEDED)
    tables = at_last(results.of_analysis(DRAWN_PAIRS, run_columns=of_runs, whole=True))
    pairs = compared(results) or paired(tables)
    variance = last(results[VARIANCE]) if VARIANCE in results else None
    scores = results.get(CMI)
    if where is not None:
        cells = _meeting(tables.cells, where)
        tables, pairs, scores = _only(tables, cells), _only(pairs, cells), None
        variance = None if variance is None else variance.join(cells, on="cell", how="semi")
    by_classifier = effects(pairs, by=("classifier",))
    every, options = once(tables), record.conventions(paths)
    own = independent(every)
    most = most_frequent_shares(paths)
    found = Evidence(own, by_classifier, variance, options, scores, every, most)
    return found, tables


def _meeting(cells: pl.DataFrame, where: str) -> pl.DataFrame:
    """Return the cells that meet a condition; raises a UserError if none does."""
    from manyseed.orchestrator.conditions import wanted

    found = cells.filter(wanted(where, cells.schema, "--where")).select("cell")
    if found.is_empty():
        raise UserError("no analysed cell meets it", key="--where", value=where)
    return found


def _only(tables: Tables, cells: pl.DataFrame) -> Tables:
    """Return the rows of some cells; tables without rows may have no columns."""
    parts = {
        name: own.join(cells, on="cell", how="semi", maintain_order="left")
        for name in ("runs", "pairs", "repeats", "cells")
        if "cell" in (own := getattr(tables, name)).columns
    }
    return replace(tables, **parts)


@dataclass(frozen=True, slots=True)
class _Read:
    """A sweep that is only read."""

    readable: SweepPaths


def on_page(paths: SweepPaths, *, ours: bool, where: str | None = None) -> list[Answer]:
    """Return the answers to questions of the page that are not in `PAGE`: `ours`, or others'.

    `where`: a condition; questions without that option are left out.
    """
    own = records(sys.modules[__name__])
    more = [one.name for one in known().values() if one.on_page and one not in PAGE]
    asked = [name for name in more if (name in own) == ours]
    given = {} if where is None else {"where": where}
    return [
        answer
        for name in asked
        if given.keys() <= options(known()[name]).keys()
        for answer in reply(_Read(paths), name, **given).answers
    ]


_ANSWERS = "orchestrator.results.answers"
_RUNS = "CELL:REPEAT:RUN,…"

HOWMANY = Question(
    "howmany",
    "How many seeds are needed, for means and for ensembles?",
    f"{_ANSWERS}.howmany:howmany",
    tables=("runs", "pairs", "repeats", "cells"),
    figures=("ensembles-close", "ensembles-accuracy"),
    tell=f"{_ANSWERS}.howmany:reply",
    examples=(
        "",
        "--accuracy 0.001 --where \"classifier = 'mlp'\"",
        "--difference 0.01",
        "--by dataset,classifier",
        "--sizes 1,2,3,4,5",
        "--until 0.002 --most 100 --dry-run",
    ),
    flags={"draws": {"min": 2}, "without": {"metavar": _RUNS}},
    variants={"until": ("until", "half_width")},
    busy="drawing ensembles",
)

UNTIL = Question(
    "until",
    "How many seeds are needed: trained until each cell's accuracy is known well enough?",
    f"{_ANSWERS}.until:ask_until",
    tables=("runs", "repeats"),
    tell=f"{_ANSWERS}.until:reply",
    examples=("--half-width 0.002 --most 100 --dry-run",),
    flags={"dry_run": {"short": "-n"}},
)

COMPARE = Question(
    "compare",
    "How different are two cells, and how likely is one better than the other?",
    f"{_ANSWERS}.compare:compare_cells",
    tables=("runs", "cells"),
    tell=f"{_ANSWERS}.compare:reply",
    examples=(
        "",
        "xgb mlp",
        "--by train_fraction --where \"classifier = 'mlp'\"",
        "--a \"classifier = 'mlp'\" --b \"classifier = 'xgb'\"",
        "other-sweep --metric ece",
        "xgb mlp --alike",
        "xgb mlp --format latex",
    ),
    flags={
        "by": {"metavar": "COLUMN"},
        "between": {"metavar": "LEVEL,LEVEL"},
        "without": {"metavar": _RUNS},
    },
    variants={"alike": ("alike", "")},
)

ALIKE = Question(
    "alike",
    "Are one cell's runs like those of another?",
    f"{_ANSWERS}.likeness:alike",
    tables=("runs", "cells"),
    tell=f"{_ANSWERS}.likeness:reply",
    examples=("", "xgb mlp"),
    flags={"by": {"metavar": "COLUMN"}, "between": {"metavar": "LEVEL,LEVEL"}},
)

DEE = Question(
    "dee",
    "What does averaging runs gain, and how many runs is another cell worth?",
    f"{_ANSWERS}.dee:dee",
    tables=("uncertainty", "cells"),
    figures=("deep-equivalent-cll", "deep-likelihood"),
    tell=f"{_ANSWERS}.dee:reply",
    examples=(
        "",
        "--metric error --where \"classifier = 'mlp'\"",
        "--by dataset,classifier --members 1",
    ),
)

VARIANCE = Question(
    "variance",
    "Where does the variance come from?",
    f"{_ANSWERS}.variance:variance",
    tables=("variance", "cells"),
    figures=("sources-accuracy-std",),
    tell=f"{_ANSWERS}.variance:reply",
    examples=("", "--where \"metric = 'accuracy' AND classifier = 'mlp'\""),
)

POINTS = Question(
    "points",
    "Which test points flip between runs, and which does nearly every run get wrong?",
    f"{_ANSWERS}.points:points",
    tables=("points",),
    figures=("points",),
    examples=(
        "",
        "--limit 30 --where \"classifier = 'mlp'\"",
        "--kind hard",
        "--verdicts --between xgb,mlp",
    ),
    variants={"verdicts": ("verdicts", "")},
    on_page=True,
)

VERDICTS = Question(
    "verdicts",
    "On which test points does each verdict A > B hang?",
    f"{_ANSWERS}.points:verdicts",
    tables=("runs", "cells"),
    figures=("points",),
    examples=("", "--between xgb,mlp"),
    flags={"by": {"metavar": "COLUMN"}, "between": {"metavar": "LEVEL,LEVEL"}},
)

METHODS = Question(
    "methods",
    "What does a paper say of how these results were made?",
    f"{_ANSWERS}.summary:methods",
    tell=f"{_ANSWERS}.summary:reply",
    examples=(
        "",
        "--metric accuracy,churn",
        "--format latex",
        "--format bibtex --out references.bib",
    ),
    flags={"metric": {"metavar": "METRIC,METRIC"}},
    formats=("bibtex",),
)
