"""A question and its answers as records, from which command, Python, JSON, page and docs are made.

A record is light: what answers it is imported when it is asked. An answer is a headline, and the
evidence for it: sentences that state the sample (n), the uncertainty (an interval) and what cannot
be concluded. A question without an answer has neither. The page begins with `answers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from manyseed.analysis.options import Options
    from manyseed.analysis.tables.rows import Tables


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: to a question as a whole, or for one cell, pair or group of cells.

    Attributes
    ----------
    headline : str
        The answer in lines of at most `WORDS` words, or the name of the cells that `details` are
        about.
    details : tuple of str
        Further sentences; two spaces at the beginning indent one.
    rows : sequence of mapping
        Its numbers.
    rests_on : str
        What it rests on, such as the number of runs, unless the sentences say so.
    cannot_tell : str
        What it leaves open, likewise.
    figures : tuple of str
        Names of the figures or sections of the page that show it, the best one first.
    about : str
        Name of the question.
    evidence : str
        The answer in full sentences, unless the headline says all.
    """

    headline: str
    details: tuple[str, ...] = ()
    rows: Sequence[Mapping[str, Any]] = ()
    rests_on: str = ""
    cannot_tell: str = ""
    figures: tuple[str, ...] = ()
    about: str = ""
    evidence: str = ""

    @property
    def text(self) -> str:
        """The evidence, or the headline that says all."""
        return self.evidence or self.headline

    def values(self) -> dict[str, Any]:
        """Return all of it as JSON values; the evidence is `text`."""
        kept = asdict(self)
        del kept["evidence"]
        return {"about": kept["about"], "text": self.text, "shown": kept.pop("figures")} | kept


WORDS = 20
"""Most words of a line of a headline."""


LINE = 80
"""Columns of a line on a screen."""


def shortest(texts: Iterable[str], width: int | None = None) -> str:
    """Return the first of several texts, the longest first, that is short enough, or the last.

    `width`: most columns; None for as many as `WORDS` take.
    """
    text = ""
    for text in texts:
        if len(text.split()) <= WORDS and (width is None or len(text) <= width):
            break
    return text


def first_ones(
    names: Sequence[str],
    text: Callable[[str], str],
    between: str = ", ",
    most: int | None = None,
    what: str = "",
    width: int | None = None,
) -> str:
    """Return the text of as many names as it has room for, with the number of those left out.

    `what`: what one of the names stands for, where they do not tell it. `width`: as in `shortest`.
    """

    def some(number: int) -> str:
        n = len(names) - number
        said = f" {what}{'s' * (n > 1)}" if what else ""
        left = f" and {n:,} more{said}" if n else ""
        return text(between.join(names[:number]) + left)

    numbers = range(min(len(names), most or len(names)), 0, -1)
    return shortest((some(number) for number in numbers), width)


def all_or_first(ways: Sequence[Sequence[str]], text: Callable[[str], str]) -> str:
    """Return the text of all names in the first way that has room for them, or of the first."""
    said = ""
    for names in ways:
        said = first_ones(names, text)
        if said == text(", ".join(names)):
            break
    return said


@dataclass(frozen=True, slots=True)
class Reply:
    """All answers to a question.

    Attributes
    ----------
    answers : sequence of Answer
    values : mapping of str to object
        The JSON object; empty for that of the answers.
    title : str
    notes : sequence of str
        What all answers rest on.
    cannot_tell : sequence of str
        What none of them can tell, and why.
    apart : bool
        Whether an empty line separates the answers.
    columns : sequence of str
        Heads of `table`; empty if there is none.
    table : sequence of sequence
        A row for each of several answers, shown unless the evidence is asked for. The first column
        holds the dataset, which is shown once above its rows.
    below : sequence of str
        What its columns are, in lines below it.
    together : str
        What the intervals are over that hold for all pairs together; empty if there are none.
    shared : sequence of str
        The axes whose levels are in the rows' column `with`.
    paper : tuple of sequences
        Heads and rows of a table for a paper, and what is below it, if they are others.
    left : int
        How many answers are left out.
    meanings : mapping of str to str
        What columns of the answers' rows mean; those of an interval's ends by its name.
    sources : mapping of str to object
        If the answers are sections of a text: what they cite, by key (`report.citations.Citation`).
    """

    answers: Sequence[Answer]
    values: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    notes: Sequence[str] = ()
    cannot_tell: Sequence[str] = ()
    apart: bool = False
    columns: Sequence[str] = ()
    table: Sequence[Sequence[object]] = ()
    below: Sequence[str] = ()
    together: str = ""
    shared: Sequence[str] = ()
    paper: tuple[Sequence[str], Sequence[Sequence[object]], Sequence[str]] = ((), (), ())
    left: int = 0
    meanings: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the answers as text: rows if there are several and a table, else sentences."""
        lines, left = [self.title], self.left
        if self.columns and len(self.answers) > 1:
            lines += _aligned([self.columns, *self.table[:MOST_ROWS]])
            left += max(len(self.table) - MOST_ROWS, 0)
            more = f"… {left:,} more" if left else ""
            return "\n".join(filter(None, [*lines, more, *self.below]))
        for one in self.answers:
            lines += [*([""] if self.apart else []), *one.headline.splitlines()]
            lines += [f"  {line}" for line in one.details]
            indent = "  " if one.details else ""
            lines += [f"{indent}{line}" for line in (one.rests_on, one.cannot_tell) if line]
        lines += [f"… {left:,} more"] if left else []
        lines += [*self.cannot_tell, *self.notes]
        return "\n".join(lines).strip("\n")


MOST_ROWS = 16
"""Of a table, so that a screen has room for it and what is below it."""


def _aligned(rows: Sequence[Sequence[object]]) -> list[str]:
    """Return rows as lines of aligned columns, each value of the first above its rows."""
    head, *others = [[_cell(value) for value in row[1:]] for row in rows]
    body = [head, *([f"  {first}", *rest] for first, *rest in others)]
    kept = [n for n in range(len(head)) if any(row[n].strip() not in ("", "–") for row in body[1:])]
    widths = {n: max(len(row[n]) for row in body) for n in kept}
    lines = ["  ".join(row[n].ljust(widths[n]) for n in kept).rstrip() for row in body]
    under: dict[object, list[str]] = {}
    for row, line in zip(rows[1:], lines[1:], strict=True):
        under.setdefault(row[0], []).append(line)
    return [lines[0], *(line for first, own in under.items() for line in (str(first), *own))]


def _cell(value: object) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the questions of the page are answered from.

    Attributes
    ----------
    tables : Tables
        With the columns of `AXES` joined, of one snapshot, without duplicate fits; of crossed runs,
        those that share no value.
    effects : polars frame
        As `analysis.questions.effects.effects` returns it, by classifier.
    variance : polars frame or None
        The table of variances, with the columns of `AXES`.
    options : Options
        Those that the tables were computed with.
    cmi : polars frame or None
        How well scores of response curves predict the generalisation gap.
    every : Tables or None
        `tables` with all crossed runs; None if it has them.
    most_frequent : mapping of str to float
        By dataset, the mean share of each test set's most frequent class, where it is known.
    """

    tables: Tables
    effects: pl.DataFrame
    variance: pl.DataFrame | None
    options: Options
    cmi: pl.DataFrame | None = None
    every: Tables | None = None
    most_frequent: Mapping[str, float] = field(default_factory=dict)


Function = Callable[..., Any] | str
"""A function, or where it is: ``"module:name"`` below `manyseed`."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question that can be asked of the results.

    Attributes
    ----------
    name : str
        As the command and Python ask it: ``manyseed answers DIR NAME``, ``sweep.answers(NAME)``.
    asks : str
        The question in words.
    find : callable or str
        What answers it. Its first parameter is called by what it answers from: ``results`` (the
        tables), ``evidence`` (`Evidence`), ``paths`` (the sweep's files) or ``sweep``; the others
        are the question's options, and its docstring is their help. Returns a sequence of `Answer`,
        or what `tell` turns into a `Reply`.
    tables : tuple of str
        The result tables that it needs.
    figures : tuple of str
        Names of the figures or sections of the page that show its answers.
    tell : callable or str or None
        Words what `find` returned: is given that and those of the options that it names; others are
        options of the command alone.
    examples : tuple of str
        Options, as the help shows them.
    flags : mapping of str to mapping
        By option, what its flag has besides name, type and help, as typer takes it.
    variants : mapping of str to (str, str)
        Options that ask another question instead: its name, and its option that gets the value.
    busy : str
        What it does that takes long, if anything: login nodes keep to one core.
    formats : tuple of str
        Those that only this question has.
    on_page : bool
        Whether the page and ``manyseed answers DIR`` show its answers; it then needs no options.
    """

    name: str
    asks: str
    find: Function
    tables: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    tell: Function | None = None
    examples: tuple[str, ...] = ("",)
    flags: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    variants: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    busy: str = ""
    formats: tuple[str, ...] = ()
    on_page: bool = False


def imported(function: Function) -> Callable[..., Any]:
    """Return a function of a record."""
    if not isinstance(function, str):
        return function
    module, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"manyseed.{module}"), name)
    return found


PAGE = (
    Question(
        "accuracy",
        "How accurate are the classifiers on each dataset, and which one is better?",
        "analysis.questions.accuracy:answer",
        tables=("repeats",),
        on_page=True,
    ),
    Question(
        "standings",
        "How do classifiers rank across datasets?",
        "analysis.questions.standings:answer_standings",
        tables=("cells",),
        on_page=True,
    ),
    Question(
        "spread",
        "Which classifier's accuracy varies most between seeds, and which one's least?",
        "analysis.questions.classifiers:answer_spread",
        tables=("runs", "repeats", "cells"),
        on_page=True,
    ),
    Question(
        "sources",
        "Which source of randomness does the variance of accuracy come from?",
        "analysis.questions.variance:answer",
        tables=("variance",),
        on_page=True,
    ),
    Question(
        "enough",
        "How many seeds does it take to know each cell's mean accuracy to ± 0.005?",
        "analysis.questions.crossed:answer",
        tables=("runs", "repeats"),
        on_page=True,
    ),
    Question(
        "effects",
        "What changes accuracy beyond chance?",
        "analysis.questions.effects:answer_accuracy",
        tables=("runs", "repeats"),
        on_page=True,
    ),
    Question(
        "consistency",
        "What changes local error consistency beyond chance?",
        "analysis.questions.effects:answer_consistency",
        tables=("pairs", "repeats"),
        on_page=True,
    ),
    Question(
        "scores",
        "Which scores of response curves predict which of two models generalises worse?",
        "analysis.questions.scores:answer",
        tables=("cmi",),
        on_page=True,
    ),
    Question(
        "levels",
        "Which runs are unlike the others of their repeat?",
        "analysis.questions.ranking:answer",
        tables=("runs", "repeats"),
        on_page=True,
    ),
)
"""The questions that the page begins with, in the order in which they are asked."""


def incomplete(
    short: int, repeats: int, planned: int, finished: int, failed: int
) -> Iterator[Answer]:
    """Say how many planned runs the results lack.

    `short` of `repeats` in the tables lack runs; the other numbers are those of the sweep's runs.
    """
    if finished >= planned:
        return
    lacking = f"; {short:,} of {repeats:,} repeats lack runs" if short else ""
    gone = max(planned - finished - failed, 0)
    counts = {"failed": failed, f"{'is' if gone == 1 else 'are'} missing": gone}
    told = " and ".join(f"{n:,} {word}" for word, n in counts.items() if n)
    yield Answer(
        f"Incomplete: of {planned:,} planned runs, {told}.",
        evidence=f"The results are incomplete: of {planned:,} planned runs, {told}{lacking}. "
        "Everything below rests on the other runs alone.",
        figures=("conventions",),
        about="missing",
    )


def answers(
    tables: Tables,
    effects: pl.DataFrame,
    variance: pl.DataFrame | None,
    options: Options,
    *,
    planned: int | None = None,
    finished: int | None = None,
    failed: int = 0,
    cmi: pl.DataFrame | None = None,
    most_frequent: Mapping[str, float] | None = None,
) -> list[Answer]:
    """Answer what can be answered of `PAGE`.

    Parameters
    ----------
    tables
        As in `analysis.questions.question.Evidence`, with all crossed runs.
    effects, variance, options, cmi, most_frequent
        As there.
    planned, finished, failed : int
        Runs of the sweep; None if unknown.
    """
    if tables.runs.is_empty():
        return []
    missing: Iterator[Answer] | tuple[()] = ()
    if planned is not None and finished is not None and (short := short_repeats(tables)):
        missing = incomplete(*short, planned, finished, failed)
    from manyseed.analysis.tables.rows import independent

    most = most_frequent or {}
    evidence = Evidence(independent(tables), effects, variance, options, cmi, tables, most)
    return [
        *missing,
        *imported("analysis.questions.usual:answer")(tables),
        *(
            replace(one, about=question.name)
            for question in PAGE
            for one in imported(question.find)(evidence)
        ),
    ]


def short_repeats(tables: Tables) -> tuple[int, int] | None:
    """Return how many repeats lack runs, and how many there are; None without runs."""
    if tables.runs.is_empty():
        return None
    coverage = tables.repeats["coverage"]
    return int((coverage < 1).sum()), len(coverage)


NAMES = ("file", "row_id", "row")
"""Columns that name a point; without any, its index is its row of the source."""

UNKNOWN = "?"
"""In the column `row`: which row of the source a point is, is not known on this machine."""


def place(row: Mapping[str, Any]) -> str:
    """Return the file or id of a point, or if it has none its row of the source."""
    if row.get("row") == UNKNOWN:
        return f"point {row['index']:,}"
    number = str(row.get("row") or row["index"])
    number = f"{int(number):,}" if number.isdecimal() else number
    called = str(row.get("row_id") or "")
    name = row.get("file") or (f"id {called}" if called.isdecimal() else called) or f"row {number}"
    return name if name.isprintable() else repr(name)
