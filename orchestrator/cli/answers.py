"""``manyseed answers``: all answers in short, or one question, whose record gives its options."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from manyseed.analysis.axes import AXES
from manyseed.analysis.questions.question import MOST_ROWS, Function, Question, Reply, imported
from manyseed.orchestrator.cli import formats
from manyseed.orchestrator.cli.arguments import (
    Bold,
    Caption,
    Command,
    Directory,
    Json,
    Label,
    meanings,
    names,
    option,
    require_order,
    require_outside,
    require_words,
    shown_help,
    spoken_of_options,
    without_conversion,
    written_to,
)
from manyseed.orchestrator.cli.arguments import formats as complete_formats
from manyseed.orchestrator.cli.columns import (
    ENDS,
    OF_EFFECTS,
    OF_PAIRS,
    TOGETHER,
    as_typed,
    only,
    shared_asked,
    telling_apart,
    told_of_pairs,
    with_sides,
)
from manyseed.orchestrator.cli.output import (
    console,
    counted,
    errors,
    print_json,
    print_rows,
    print_table,
    say,
    say_next,
)
from manyseed.orchestrator.cli.unknown import instead_told
from manyseed.orchestrator.errors import MOST_NAMED, UserError, flag, require_one_of
from manyseed.orchestrator.results.questions.registry import known, named, options, reply, sides

if TYPE_CHECKING:
    import polars as pl

    from manyseed.analysis.questions.question import Answer
    from manyseed.orchestrator.sweep import Sweep

_MOST_LINES = 22  # of a table

Why = Annotated[
    bool,
    typer.Option("--why", help="Print the evidence, too: samples, intervals, tests, and notes."),
]


_WHERE = ("--where", "-w")


class _Questions(TyperGroup):
    """The questions as commands below ``answers DIR``; each is imported when it is asked."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {
            one.name: TyperCommand(one.name, help=one.asks) for one in known().values()
        }

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse DIR and the flags before the question, which is the second word."""
        without_conversion(self.get_params(ctx))
        words = [
            place
            for place, word in enumerate(args)
            if not word.startswith("-") and (place == 0 or args[place - 1] not in _WHERE)
        ]
        end = words[1] if len(words) > 1 else len(args)
        if not ctx.resilient_parsing:
            require_words(self.get_params(ctx), args[: end + 1])
            require_order(ctx, args)
        first = [args[place] for place in range(end) if place not in words]
        first += [args[place] for place in words if place < end]
        with instead_told(ctx):
            return super().parse_args(ctx, [*first, *args[end:]])

    def invoke(self, ctx: Any) -> Any:
        """Ask; errors speak of options."""
        with spoken_of_options():
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command of the question that is asked."""
        return args[0], command_of(args[0]), args[1:]


answers_app = typer.Typer(
    cls=_Questions, invoke_without_command=True, subcommand_metavar="[QUESTION] [ARGS]..."
)


@answers_app.callback()
def answers(
    context: typer.Context,
    directory: Directory,
    where: Annotated[
        str | None,
        typer.Option(
            *_WHERE,
            metavar="SQL",
            help="Only cells that meet a condition.",
            show_default=False,
        ),
    ] = None,
    why: Why = False,
    as_json: Json = False,
) -> None:
    """Say what the results show, or ask a question: compare, howmany, variance, and others.

    In headlines, as at the top of the report: what is missing; how accurate the classifiers are,
    and which of every two is better; how much accuracy varies between seeds, and where that comes
    from; how many seeds are enough; what matters for accuracy and error consistency; which runs and
    points to look at. Questions without an answer are left out. a > b: better beyond chance; a ≈ b:
    by less than 0.005.

    With --why, each headline is followed by the evidence: sample, interval, test, and what it
    covers. Notes follow: what could not be computed, what stands out, and why.

    With a QUESTION, its answers alone: manyseed answers DIR QUESTION --help lists its options.

    Examples:

        manyseed answers quickstart

        manyseed answers quickstart --why

        manyseed answers quickstart --where "train_fraction = 0.5"

        manyseed answers quickstart howmany --accuracy 0.001
    """
    if context.invoked_subcommand is not None:
        return
    from manyseed.orchestrator.cli.analyze import notes
    from manyseed.orchestrator.results.answers.summary import answers
    from manyseed.orchestrator.results.caveats import tell_newer
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    tell_newer(sweep.readable)
    found = answers(sweep.readable, where)
    if as_json:
        keys = ("about", "text", "shown", "headline")
        print_json({"answers": [{key: one.values()[key] for key in keys} for one in found]})
        return
    if why:
        _say(Reply(found, apart=True), why=True)
        if not found:
            _say_none(sweep)
        console.print()
        for note in notes(sweep):
            if note not in {one.evidence for one in found}:
                say(note, style="yellow")
    else:
        _say_headlines(sweep, found, where)
        if any("most frequent class" in one.headline for one in found) and _are_balanced(sweep):
            asked = ("--columns", "balanced_accuracy", "--agg", "mean,sd")
            axes = ["dataset", "classifier", *_axes_apart(sweep, found)]
            by = ("-t", "runs", "--by", ",".join(axes))
            meets = () if where is None else ("--where", where)
            say_next("Balanced accuracy", "query", sweep.directory, *by, *asked, *meets)
    say_next("Tables and figures", "report", sweep.directory)


def _axes_apart(sweep: Sweep, found: Sequence[Answer]) -> list[str]:
    """Return the axes in which runs that headlines are about differ from others."""
    from manyseed.analysis.questions.usual import scope
    from manyseed.analysis.tables.rows import last

    if not any(one.about == "usual" for one in found):
        return []
    return [*scope(last(sweep.results["cells"]))]


def _are_balanced(sweep: Sweep) -> bool:
    """Return whether runs have an accuracy that counts all classes alike."""
    return "balanced_accuracy" in sweep.results.scan("runs").collect_schema()


def _say_headlines(sweep: Sweep, found: Sequence[Answer], where: str | None = None) -> None:
    """Print the headlines, where the evidence is, and how many notes there are."""
    from manyseed.analysis.questions.usual import other_level
    from manyseed.orchestrator.cli.analyze import notes
    from manyseed.orchestrator.results.answers.leftout import again_without

    asked = () if where is None else ("--where", where)

    for one in found:
        for number, line in enumerate(one.headline.splitlines()):
            say(line, indent=2 if number and one.about == "accuracy" else 0)
    if not found:
        _say_none(sweep)
    console.print()
    number = len({*notes(sweep)} - {one.evidence for one in found})
    more = f", and {counted(number, 'note')}" if number else ""
    say_next(f"Why{more}", "answers", sweep.directory, *asked, "--why")
    for what, verb, runs in again_without(sweep.readable, sweep.results, found):
        say_next(what, verb, sweep.directory, *asked, "--without", runs)
    is_of_some = any(one.about == "usual" for one in found)
    if is_of_some and (level := other_level(sweep.results["cells"])):
        say_next("Of other runs", "answers", sweep.directory, "--where", level)


if answers_app.registered_callback is not None:
    answers_app.registered_callback.help = shown_help(answers.__doc__ or "")


def __getattr__(verb: str) -> Callable[..., None]:
    """Return the function of a question that is also a verb of its own."""
    if verb not in known():
        raise AttributeError(verb)
    return _function(known()[verb], is_verb=True)


def command_of(question: str) -> Any:
    """Return the command that asks a question below ``answers DIR``."""
    function = _function(named(question))
    parent = typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich"
    )
    parent.command(question, cls=Command, help=shown_help(function.__doc__ or ""))(function)
    return typer.main.get_command(parent)


def _function(question: Question, *, is_verb: bool = False) -> Callable[..., None]:
    """Return what asks a question, with its options; a verb has DIR as its own argument."""

    def run(context: typer.Context, **given: Any) -> None:
        above = {} if is_verb or context.parent is None else context.parent.params
        directory = given.pop("directory", None) or above["directory"]
        why, as_json = (given.pop(one) or above.get(one, False) for one in ("why", "as_json"))
        if (where := above.get("where")) is not None:
            if given.get("where", "") is not None:
                raise UserError(
                    "is given twice" if "where" in given else f"no option of {question.name}",
                    key="--where",
                    value=where,
                    remedy="give it once" if "where" in given else "leave it out",
                )
            given["where"] = where
        output: Path | None = given.pop("output")
        form = formats.asked(given.pop("form"), output, as_json=as_json, more=question.formats)
        columns = names(given.pop("columns"))
        if columns and columns != ["?"] and form in (formats.TABLE, formats.JSON):
            remedy = "add --format csv, markdown, latex or parquet"
            raise UserError("sentences have none", key="--columns", value=columns, remedy=remedy)
        paper = formats.for_paper(form, **{one: given.pop(one) for one in _PAPER})
        paper = replace(paper, columns=tuple(columns))
        if question.formats and paper != formats.Paper():
            raise UserError("options of a table, and these are paragraphs", key=question.name)
        _asked(question, directory, given, form, output, paper, why=why)

    parameters = [_parameter(question, one) for one in options(question).values()]
    parameters.sort(key=lambda one: isinstance(one.annotation.__metadata__[0], _OPTION))
    first = [_fixed("directory", Directory)] if is_verb else []
    every = [_fixed("context", typer.Context), *first, *parameters]
    every += [_fixed("form", _form(question), default=None)]
    every += [_fixed("output", _output(question), default=None)]
    every += [_fixed("columns", _COLUMNS, default=None)]
    every += [_fixed(name, kind, default=None) for name, kind in _PAPER.items()]
    every += [_fixed(name, kind, default=False) for name, kind in (("why", Why), ("as_json", Json))]
    vars(run)["__signature__"] = inspect.Signature(every)
    run.__doc__ = _help(question, _VERB if is_verb else _ASKED)
    return run


_PAPER = {"caption": Caption, "label": Label, "bold": Bold}
_VERB = "manyseed {name} quickstart"
_ASKED = "manyseed answers quickstart {name}"
_OPTION = typer.models.OptionInfo


def _form(question: Question) -> Any:
    what = "csv, markdown, latex (booktabs), json or parquet: the numbers, in rows."
    if question.formats:
        what = "latex or markdown: the text; csv, json or parquet: its sections. "
        what += "bibtex: the entries of what the text cites."

    def completed(incomplete: str) -> list[str]:
        more = [one for one in question.formats if one.startswith(incomplete)]
        return [*complete_formats(incomplete), *more]

    found = typer.Option(
        "--format", "-f", help=what, show_default="sentences", autocompletion=completed
    )
    return Annotated[str | None, found]


def _output(question: Question) -> Any:
    what = "Write the numbers to a file (.csv, .md, .tex, .json, .parquet)."
    if question.formats:
        what = "Write it to a file; its ending tells the format (.tex, .md, .bib, …)."
    return Annotated[Path | None, written_to(what, default=...)]


_COLUMNS = Annotated[
    str | None,
    typer.Option(
        "--columns",
        "-c",
        metavar="NAME,…",
        help="Columns of the rows, in this order.",
        show_default="all",
    ),
]


def _fixed(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )


def _parameter(question: Question, one: inspect.Parameter) -> inspect.Parameter:
    """Return an option of a question as typer takes it."""
    help_ = _meanings(question).get(one.name, "")
    if one.name == "other":
        meaning = f"{help_} Or levels to compare: xgb mlp."
        argument = typer.Argument(metavar="[DIR] [LEVEL…]", help=meaning, show_default=False)
        return _fixed(one.name, Annotated[list[str] | None, argument], default=None)
    return option(one, help_, **question.flags.get(one.name, {}))


def _doc(function: Function | None) -> str:
    return "" if function is None else inspect.getdoc(imported(function)) or ""


def _meanings(question: Question) -> dict[str, str]:
    """Return what each option means, from the docstrings' sections of parameters."""
    found: dict[str, str] = {}
    for text in (_doc(question.find), _doc(question.tell)):
        found = meanings(text) | found
    for name, (other, same) in question.variants.items():
        theirs = _meanings(named(other))
        found[name] = theirs.pop(same, "") if same else named(other).asks
        for more, meaning in theirs.items():
            found.setdefault(more, f"With {flag(name)}: {meaning[0].lower()}{meaning[1:]}")
    if "where" in options(question):  # of questions that name none of their own
        found.setdefault("where", "Only cells that meet a condition.")
    return found


def _help(question: Question, start: str) -> str:
    """Return the help: what the docstring says of the question, and examples."""
    said = _doc(question.find).partition("\n\nParameters\n")[0]
    before = start.format(name=question.name)
    lines = [f"    {before} {options}".rstrip() for options in question.examples]
    return "\n\n".join([said, "Examples:", *lines])


def _asked(
    question: Question,
    directory: Path,
    given: dict[str, Any],
    form: str,
    output: Path | None,
    paper: formats.Paper,
    *,
    why: bool,
) -> None:
    """Ask a question; print its answers, or write their numbers."""
    from manyseed.orchestrator.sweep import Sweep

    if "other" in given:
        given["other"], levels = sides(given["other"] or [])
        given["between"] = levels or given["between"]
    in_rows = (
        [*paper.columns] == ["?"] or form not in (formats.TABLE, formats.JSON) or output is not None
    )
    limit = given.get("limit")
    is_asked = limit is not None and limit != options(question)["limit"].default
    if in_rows and limit is not None and not is_asked:
        given["limit"] = sys.maxsize  # of what is read
    sweep = Sweep(directory)
    require_outside(output, sweep)
    as_json = form == formats.JSON
    report: Callable[[str], None] = partial(say, to=errors) if as_json or in_rows else say
    with _one_core(sweep, question, given):
        found = reply(sweep, question.name, **given, report=report)
    if not in_rows:
        if as_json:
            print_json(found.values)
        else:
            see = "--limit, --where and --json" if "limit" in given else "--where and --json"
            _say(found, why=why, limit=limit if is_asked else None, see=see)
            if not found.answers:
                _say_none(sweep, question.name, told=bool(found.cannot_tell))
        return
    notes = [note for note in (*found.cannot_tell, *found.notes) if note]
    if form in formats.IN_WORDS and (where := given.get("where")) and not question.formats:
        notes.insert(0, only(where))
    rows = formats.of_answers(found, in_words=form in formats.IN_WORDS)
    if [*paper.columns] == ["?"]:
        _describe(rows.columns, found.meanings, form, output)
        return
    if form in formats.IN_WORDS and not paper.columns and question.name == "accuracy":
        rows = _with_limits(rows)
    elif form in formats.IN_WORDS and found.table and not paper.columns:
        # with bold, a verdict names the side in words of its own
        of_side = re.compile(r"verdict: the |Differences: " if paper.bold else "(?!)")
        notes += [one for one in found.paper[2] or found.below if not of_side.match(one)]
        if not paper.bold:
            rows = formats.of_table(found)
        elif {"mean_a", "mean_b"} <= {*rows.columns}:
            paper = replace(paper, columns=[one for one in OF_PAIRS if one in rows.columns])
    elif form in formats.IN_WORDS and not paper.columns and question.name == "effects":
        paper = replace(paper, columns=[one for one in OF_EFFECTS if one in rows.columns])
    named = form in formats.IN_WORDS or {*found.shared} & {*paper.columns}
    paper = replace(paper, columns=shared_asked(found, paper.columns))
    more = "; --columns '?' lists all" if len(rows.columns) > MOST_NAMED else ""
    for column in paper.columns:
        if column in AXES and column not in rows.columns and "with" in rows.columns:
            remedy = "the column with has the levels that both sides share"
            raise UserError("no column of its own", key="--columns", value=column, remedy=remedy)
        require_one_of(column, rows.columns, "unknown column", key="--columns", more=more)
    of_pairs = {"a", "b", "verdict"} <= {*rows.columns}
    if form in formats.IN_WORDS and paper.columns:
        apart, told = telling_apart(rows, paper.columns)
        if of_pairs:
            apart = with_sides(rows, apart)
            told += told_of_pairs(found, apart)
        paper = replace(paper, columns=apart)
        is_limited = any(name == "verdict" or name.endswith(ENDS) for name in apart)
        notes = [*told, *(one for one in notes if is_limited or "interval" not in one)]
        if any(name.startswith(TOGETHER) for name in apart):  # which says so of its own
            notes = [one for one in notes if not one.startswith("Each interval by itself")]
        notes = [*dict.fromkeys(notes)]  # those of a paper's table are told again of its columns
    if not paper.bold and not (of_pairs and form in formats.IN_WORDS):  # else chosen later
        rows = rows.select(paper.columns or rows.columns)
    if named and len(found.shared) == 1:  # the axis says what the levels are
        rows = rows.rename(of := {"with": found.shared[0]}, strict=False)
        paper = replace(paper, columns=[of.get(one, one) for one in paper.columns])
    content = (
        formats.in_json(found.values)
        if as_json
        else formats.of_text(found, form)
        if found.sources and form in (*formats.IN_WORDS, formats.BIBTEX)
        else _tables(found, form, notes)
        if form in formats.IN_WORDS and paper == formats.Paper() and _are_unlike(found)
        else formats.in_format(rows, form, {}, notes, paper)
    )
    formats.write_out(content, output, form)
    if output is not None and not formats.is_pipe(output):
        one = "section" if found.sources else "row"
        what = (
            counted(len(found.sources), "reference")
            if form == formats.BIBTEX
            else counted(len(rows), one)
        )
        say(f"Wrote {what} to {output}.")
    if rows.is_empty():
        if found.answers:
            said = " ".join(line for one in found.answers for line in one.headline.splitlines())
            say(f"The answer has no rows: {said}", to=errors)
        else:
            _say_none(sweep, question.name, told=bool(found.cannot_tell), to=errors)


def _describe(
    columns: Sequence[str], meanings: Mapping[str, str], form: str, output: Path | None
) -> None:
    """List columns and what they mean, where that is known."""
    import polars as pl

    rows = []
    for name in columns:
        of, _, end = name.rpartition("_")
        which = {"low": "Lower end: ", "high": "Upper end: "}.get(end, "") if of in meanings else ""
        rows.append((name, meanings.get(name) or f"{which}{meanings.get(of, '') * bool(which)}"))
    known = ["column", "meaning"] if meanings else ["column"]
    frame = pl.DataFrame(rows, schema=["column", "meaning"], orient="row").select(known)
    if form == formats.TABLE and output is None:
        print_rows(known, frame.rows(), frame.height)
    else:
        formats.write_out(formats.in_format(frame, form, {}, []), output, form)


def _with_limits(rows: pl.DataFrame) -> pl.DataFrame:
    """Return mean accuracies by their name, with their intervals."""
    import polars as pl

    if "low" in rows.columns:
        over = pl.when(pl.col("low").is_not_null()).then(pl.lit("test sets"))
        rows = rows.with_columns(over=over)
    names = {"value": "accuracy", "low": "accuracy_ci_low", "high": "accuracy_ci_high"}
    return rows.rename(names, strict=False)


def _tables(found: Reply, form: str, notes: Sequence[str]) -> bytes:
    """Return a table for a paper of each answer, below which its headline stands."""
    listed = [one for one in found.answers if one.rows]
    told = [[one.headline] for one in listed]
    told[-1] += notes
    return b"\n".join(
        formats.in_format(formats.of_answers(Reply([one]), in_words=True), form, {}, below)
        for one, below in zip(listed, told, strict=True)
    )


def _are_unlike(found: Reply) -> bool:
    """Return whether several answers in sentences have rows of other columns."""
    listed = [one for one in found.answers if one.rows]
    return all(one.headline.endswith(".") for one in listed) and (
        len({tuple(formats.flat(one.rows[0])) for one in listed}) > 1
    )


def _say_none(sweep: Sweep, name: str = "", *, told: bool = False, **to: Any) -> None:
    """Say why there is no answer, unless that is told, and what tells more."""
    from manyseed.orchestrator.results.answers.unanswered import none_told, others

    cells = sweep.results["cells"]
    if not told:
        say(none_told(cells, name), **to)
    for what, verb, *words in others(name, cells):
        say_next(what, verb, sweep.directory, *words, **to)


def _one_core(sweep: Sweep, question: Question, given: dict[str, Any]) -> Any:
    """Keep a question that takes long to one core of a login node, unless it trains."""
    if not question.busy or given.get("workers") or any(given[one] for one in question.variants):
        return nullcontext()
    from manyseed.orchestrator.cli.output import one_core

    return one_core(sweep.readable, question.busy, "With more cores: --workers N.")


def _say(found: Reply, *, why: bool, limit: int | None = None, see: str = "--json") -> None:
    """Print the answers to a question: in a table if there are several, in full if asked why.

    `limit`: the rows that are asked for. `see`: the options that get those that are left out.
    """
    if found.title:
        say(found.title, style="bold")
    if found.columns and len(found.answers) > 1 and not why:
        _say_table(found, limit, see)
        return
    for one in found.answers:
        if found.apart:
            say("")
        for line in one.headline.splitlines():
            say(line, style="bold" if one.details or (why and one.evidence) else "")
        if why and one.evidence:
            say(one.evidence, indent=2)
        for line in one.details:
            told = as_typed(line.lstrip())
            say(told, indent=2 + len(line) - len(line.lstrip()))
        for line in filter(None, (one.rests_on, one.cannot_tell)):
            say(as_typed(line), indent=2 if one.details else 0, style="dim")
    if found.left:
        say(f"… {found.left:,} more; see {see}")
    for note in found.cannot_tell:
        say(note)
    for note in found.notes:
        say(note, style="dim")


def _say_table(found: Reply, limit: int | None, see: str) -> None:
    """Print a row for each answer, as many as a screen holds, and where the evidence is."""
    rows = found.table[:limit] if limit else _first(found.table)
    print_table(None, found.columns, rows, nested=True)
    if left := found.left + len(found.table) - len(rows):
        say(f"… {left:,} more; see {see}", style="dim")
    for line in found.below:
        say(line, style="dim")
    notes = [note for note in (*found.cannot_tell, *found.notes) if note]
    number = f"{counted(len(notes), 'note')}, and the evidence" if notes else "The evidence"
    say(f"{number}: --why", style="dim")


def _first(table: Sequence[Sequence[object]]) -> Sequence[Sequence[object]]:
    """Return as many rows as a screen has room for, with a line above those of each dataset."""
    for n in range(min(len(table), MOST_ROWS), 0, -1):
        if n + len({row[0] for row in table[:n]}) <= _MOST_LINES:
            return table[:n]
    return table[:1]


def in_short(sweep: Sweep) -> None:
    """Print the headlines, and where the evidence is."""
    from manyseed.orchestrator.results.answers.summary import answers

    console.print()
    _say_headlines(sweep, answers(sweep.readable))
