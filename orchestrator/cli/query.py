"""The verbs that show results: query and plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyseed.orchestrator.cli import arguments, formats
from manyseed.orchestrator.cli.arguments import (
    Bold,
    Caption,
    Command,
    Directory,
    Json,
    Label,
    alone,
    argument,
    optional,
    require_outside,
    switch,
    takes,
    written_to,
)
from manyseed.orchestrator.cli.columns import (
    NAMES,
    explained,
    families,
    is_of_means,
    only,
    spreads,
    telling_apart,
)
from manyseed.orchestrator.cli.output import (
    counted,
    errors,
    print_json,
    print_rows,
    say,
    say_next,
)
from manyseed.orchestrator.errors import UserError

if TYPE_CHECKING:
    import polars as pl

    from manyseed.orchestrator.asking.query import Query
    from manyseed.orchestrator.computing.tables import Results
    from manyseed.orchestrator.sweep import Sweep

_ROWS = 40
_EVERYTHING = "*"


class QueryCommand(Command):
    """A command whose ``--by`` may stand without columns: by everything but the seeds."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the value that stands for all columns after a ``--by`` without a value."""
        if ctx.resilient_parsing and args and args[-1].startswith("-"):
            args = args[:-1]  # the option being completed; the other arguments give the context
        completed: list[str] = []
        for number, arg in enumerate(args):
            completed.append(arg)
            following = args[number + 1 : number + 2]
            if arg == "--by" and (not following or following[0].startswith("-")):
                completed.append(_EVERYTHING)
        return super().parse_args(ctx, completed)


@takes(
    "query",
    *("table", "where", "columns", "by", "agg", "sql", "sort"),
    table={"short": "-t", "default": None, "show_default": "cells", "metavar": "NAME"}
    | {"autocompletion": arguments.tables},
    where={"autocompletion": arguments.condition},
    columns={"short": "-c", "autocompletion": arguments.columns},
    by={"metavar": "[COLUMN,…]", "autocompletion": arguments.columns},
    agg={"metavar": "FUNCTION,…", "autocompletion": arguments.functions},
    sort={"autocompletion": arguments.sort},
)
def query(
    directories: list[Path] = argument(
        "DIR", "The sweep directory; with several, the column sweep names each row's.", ...
    ),
    limit: int | None = optional("", "Rows to show.", shown="40 in a table, or all", min=1),
    form: str | None = optional(
        "",
        "table, csv, json, markdown, latex (booktabs) or parquet.",
        "--format",
        "-f",
        autocompletion=arguments.formats,
    ),
    output: Path | None = written_to(
        "Write all rows to a file (.csv, .json, .md, .tex, .parquet, .txt), or to - for "
        "standard output."
    ),
    caption: Caption = None,
    label: Label = None,
    bold: Bold = None,
    describe: bool = switch("--describe", "List the table's columns, as --columns '?' does."),
    as_json: Json = False,
    **options: Any,
) -> None:
    """Query the result tables.

    Examples:

        manyseed query quickstart --by classifier

        manyseed query quickstart -t runs --by --agg median,q05,q95 -c accuracy

        manyseed query quickstart -t runs -w "classifier = 'mlp'" --sort -accuracy

        manyseed query quickstart --by classifier -f latex --bold best -o table.tex

        manyseed query quickstart -t pairs -o pairs.csv

        manyseed query quickstart -t ranking -w "rank = 1"

        manyseed query quickstart -t effects -w "metric = 'accuracy_mean'" --by classifier

        manyseed query quickstart -t runs --columns '?'

        manyseed query quickstart --sql "SELECT address, accuracy FROM runs LIMIT 5"
    """
    from manyseed.orchestrator.asking.query import Query, every_column, of_file, of_paper
    from manyseed.orchestrator.sweep import Sweep

    form = formats.asked(form, output, as_json=as_json)
    paper = formats.for_paper(form, caption, label, bold)
    _require_no_table(directories)
    sweeps = {str(directory): Sweep(directory) for directory in directories}
    for sweep in sweeps.values():
        require_outside(output, sweep)
    results = {name: sweep.results for name, sweep in sweeps.items()}
    if (sql := options.pop("sql")) is not None:
        from manyseed.orchestrator.asking.sql import ask_sql

        alone("--sql", remedy="write it in the statement", **options)
        of, paper = {"sql": sql}, replace(paper, named=True)
        frame = formats.bounded(ask_sql(results, sql))
        _show(frame, form, output, limit, of, [], "No rows.", paper)
        return
    options["table"] = table = options["table"] or "cells"
    options["by"] = options["by"] == [_EVERYTHING] or options["by"]
    question = Query(**options)
    if describe or question.columns == ["?"]:
        from manyseed.orchestrator.asking.query import described

        frame = described(results, table, grouped=question.is_grouped)
        if form == formats.TABLE and output is None and limit is None and len(frame) > _ROWS:
            for line in families(frame["column"].to_list()):
                say(line)
            listed = ("-t", table, "--columns", "?", "--limit", f"{len(frame)}")
            say_next("What they mean", "query", *directories, *listed)
            return
        if form == formats.TABLE and output is None:  # a narrow terminal leaves out the unit
            frame = frame.select("column", "meaning", "unit")
        all_rows = limit or len(frame)
        _show(frame, form, output, all_rows, {"table": table}, [], "No columns.", paper)
        return
    if question.columns in (["*"], ["all"]):
        question = replace(question, columns=every_column(results, question))
    few = of_paper(results, question) if form in formats.IN_WORDS else []
    apart: list[str] = []
    if few:
        question = replace(question, columns=few)
    elif form in formats.IN_WORDS and question.columns and not question.is_grouped:
        question, apart = _telling_apart(results, question)
    elif form in _NUMBERS:
        question = replace(question, columns=of_file(results, question) or question.columns)
    frame = _bounded(results, question)
    if form == formats.TABLE and table == "runs" and not (question.columns or question.is_grouped):
        known = [one for one in frame.columns if not one.endswith("_below") and one != "sweep"]
        marked = _bounded(results, replace(question, columns=[*known, "identical"]))
        if marked["identical"].head(limit or _ROWS).any():
            frame = marked
    if few and len(frame):
        frame = frame.select(one for one in frame.columns if frame[one].count())
    shown = frame.columns
    if form in formats.IN_WORDS and question.is_grouped and "n" in shown:
        shown = formats.ordered(frame, question.columns).columns
    notes = [*apart, *_notes(list(sweeps.values()), question, frame)]
    if form in formats.IN_WORDS and question.where is not None:
        notes.insert(0, only(question.where, "runs" if table in _OF_TEST_SETS else "rows"))
    if question.is_grouped and "n" in frame.columns and form not in (formats.CSV, formats.PARQUET):
        from manyseed.orchestrator.asking.covering import covered

        over = covered(results, question, frame, shown)
        paper = replace(paper, alike=over.alike)
        notes = [*filter(None, [over.note]), *notes]
    if question.is_grouped and form not in (formats.CSV, formats.PARQUET):
        notes += _few_test_sets(list(sweeps.values()), question, frame)
    of, asked = {"table": table}, bool(question.columns)
    if question.is_grouped and "n" in frame.columns:
        paper = replace(paper, columns=question.columns)
    if _shows_spreads(question, form, shown):
        pooled = ", pooled as root mean squares" if question.is_grouped else ""
        between = {
            "between runs of a test set": any(not is_of_means(one) for one in spreads(shown)),
            "of means, between test sets": any(map(is_of_means, spreads(shown))),
        }
        told = "; ".join(text for text, is_shown in between.items() if is_shown)
        notes.append(f"Standard deviations{pooled}: {told}.")
        if any(frame[name].null_count() for name in shown if name.endswith("_std")):
            notes.append(
                "–: no standard deviation, as all runs of a test set are identical, or it has one."
            )
    if table in _OF_TEST_SETS and form in (formats.TABLE, *formats.IN_WORDS):
        from manyseed.orchestrator.asking.covering import drawn_too

        notes += filter(None, [drawn_too(results, frame, shown)])
    if form in formats.IN_WORDS:
        notes += [text for name, text in _EXPLAINED.items() if name in shown]
        notes += [
            f"{name.removeprefix('hparam_')} –: the classifier has no such hparam, or several."
            for name in shown
            if name.startswith("hparam_") and frame[name].null_count()
        ]
        notes += explained(results.values(), [one for one in shown if one not in _EXPLAINED])
    nothing = _nothing(results, question) if frame.is_empty() else ""
    _show(frame, form, output, limit, of, notes, nothing, paper, asked=asked)
    if few:
        say("Other columns: --columns NAME,…; --columns '?' lists them.", to=errors)


vars(query)["cls"] = QueryCommand


_EXPLAINED = {
    **dict.fromkeys(
        formats.LEVELS,
        "α̂: the share of a run's scores to leave out so that the others are distributed like those "
        "of the other runs; < is below δ, the smallest that can be told.",
    ),
    "delta": "δ: the smallest α̂ that can be told on test sets of this size.",
    "address": "address: cell, test set and run, counted from 0.",
}
"""What a paper must say of columns whose heads do not tell."""


def _bounded(results: Mapping[str, Results], question: Query) -> pl.DataFrame:
    """Return rows without α̂ below δ (`formats.bounded`), also if δ is not asked for."""
    from manyseed.orchestrator.asking.query import SWEEP, ask, named_rows

    frame = ask(results, question)
    known = next(iter(named_rows(results, question.table).values())).collect_schema()
    if not {*formats.LEVELS} & {*frame.columns} or question.agg or "delta" not in known:
        return formats.bounded(frame)
    asked = question.columns or [one for one in frame.columns if one != SWEEP]
    hidden = ["delta"] * ("delta" not in asked)
    if question.is_grouped:
        if question.columns:
            frame = ask(results, replace(question, columns=[*asked, *hidden]))
        frame = formats.bounded(_with_largest(results, question, frame))
        unasked = ["delta", "delta_lo", "delta_hi"] if question.columns and hidden else []
        return frame.drop(*unasked, formats.LARGEST[1], strict=False)
    hidden += [one for one in formats.LARGEST if one in known and one not in asked]
    frame = ask(results, replace(question, columns=[*asked, *hidden]))
    return formats.bounded(frame).drop(hidden)


def _with_largest(
    results: Mapping[str, Results], question: Query, frame: pl.DataFrame
) -> pl.DataFrame:
    """Add the largest α̂ of each group."""
    from manyseed.orchestrator.asking.query import SWEEP, ask, named_rows

    known = next(iter(named_rows(results, question.table).values())).collect_schema()
    first = formats.LARGEST[0]
    name = first if first in known else formats.LEVELS[0]
    key = [] if isinstance(question.by, bool) else [*question.by]
    key += [SWEEP] * (SWEEP in frame.columns)
    if not key or name not in known:
        return frame
    most = ask(results, replace(question, columns=[name], agg=["max"], sort=None))
    most = most.rename({f"{name}_max": formats.LARGEST[1]}).select(*key, formats.LARGEST[1])
    return frame.join(most, on=key, how="left", maintain_order="left", nulls_equal=True)


def _telling_apart(results: Mapping[str, Results], question: Query) -> tuple[Query, list[str]]:
    """Return a question with the columns without which its rows look alike, and remarks."""
    from manyseed.orchestrator.asking.query import ask, named_rows

    known = next(iter(named_rows(results, question.table).values())).collect_schema()
    names = [one for one in NAMES if one in known and one not in question.columns]
    rows = ask(results, replace(question, columns=[*names, *question.columns]))
    columns, remarks = telling_apart(rows, question.columns)
    return replace(question, columns=columns), remarks


_NUMBERS = (formats.CSV, formats.JSON, formats.PARQUET)
"""Formats that hold numbers as they are."""


def _shows_spreads(question: Query, form: str, shown: Sequence[str]) -> bool:
    """Return whether readers see standard deviations whose names do not say between what."""
    is_for_readers = form in formats.IN_WORDS or (form == formats.TABLE and "sd" in question.agg)
    return is_for_readers and any(spreads(shown)) and question.table in _OF_TEST_SETS


_OF_TEST_SETS = ("cells", "repeats", "runs")
"""Tables whose rows are of test sets."""


def _require_no_table(directories: list[Path]) -> None:
    """Refuse the name of a table given as a directory."""
    from manyseed.analysis.tables.schema import table_names

    for directory in directories[1:]:
        if str(directory) in table_names() and not directory.exists():
            raise UserError(
                "there is no such directory",
                file=directory,
                remedy=f"name a table with its option: --table {directory}",
            )


def _show(
    frame: pl.DataFrame,
    form: str,
    output: Path | None,
    limit: int | None,
    of: Mapping[str, object],
    notes: list[str],
    nothing: str,
    paper: formats.Paper,
    *,
    asked: bool = True,
) -> None:
    """Print rows, or write them to the output.

    Unless columns were `asked` for, a printed table leaves out those without values.
    """
    height = len(frame)
    if limit is not None or (form == formats.TABLE and output is None):
        frame = frame.head(limit or _ROWS)
    piped = output is None or formats.is_pipe(output)
    if form == formats.TABLE and output is None:
        if frame.is_empty():
            say(nothing)
            return
        columns, rows, remarks = formats.in_cells(frame)
        print_rows(columns, rows, height, asked=asked)
        for note in [*remarks, *notes]:
            say(note, style="yellow")
        return
    if form == formats.JSON and piped:
        print_json(formats.as_json(frame, of, notes))
        return
    formats.write_out(formats.in_format(frame, form, of, notes, paper), output, form)
    if not piped:
        say(f"Wrote {counted(len(frame), 'row')} to {output}.")
    if frame.is_empty():
        say(nothing, to=errors)
    for note in () if piped and form in formats.IN_WORDS else notes:  # which it has
        say(note, style="yellow", to=errors)


def _nothing(results: Mapping[str, Results], question: Query) -> str:
    from manyseed.orchestrator.asking.query import values_instead

    if question.where is None:
        return f"The table {question.table} has no rows."
    said = f"No row of the table {question.table} meets: {question.where}"
    return "\n  ".join([said, *values_instead(results, question)])


def _notes(sweeps: list[Sweep], question: Query, frame: pl.DataFrame) -> list[str]:
    """Return notes on the rows."""
    from manyseed.orchestrator.asking.grouping import notes
    from manyseed.orchestrator.computing.tables import Analysis
    from manyseed.orchestrator.results.caveats import of_columns, of_ranking, of_sources

    by = frame.columns if isinstance(question.by, bool) else question.by
    remarks = [*notes(frame, list(by) if question.is_grouped else ()), *of_columns(frame.columns)]
    same = "n_identical" in frame.columns and frame["n_identical"].sum()
    if question.table == "runs" and same and {*question.agg} - {"mean"}:
        remarks.append("Copies of identical runs count in means alone.")
    if not question.is_grouped and question.table in ("ranking", "sources"):
        explain = of_ranking if question.table == "ranking" else of_sources
        for sweep in sweeps:
            remarks += explain(frame, Analysis.read(sweep.readable).conventions(sweep.readable))
    remarks += [text for sweep in sweeps for text in _incomplete(sweep, several=len(sweeps) > 1)]
    return [*dict.fromkeys(remarks)]


def _few_test_sets(sweeps: list[Sweep], question: Query, frame: pl.DataFrame) -> list[str]:
    """Say once that intervals rest on too few test sets; for formats that readers see."""
    from manyseed.orchestrator.asking.grouping import few_test_sets
    from manyseed.orchestrator.computing.tables import read_results

    by = frame.columns if isinstance(question.by, bool) else question.by
    found = [few_test_sets(read_results(sweep.readable), frame, by) for sweep in sweeps]
    return [*dict.fromkeys(filter(None, found))]


def _incomplete(sweep: Sweep, *, several: bool) -> list[str]:
    """Say which planned runs the results lack, and whether that is related to accuracy."""
    from manyseed.orchestrator.computing.tables import Analysis, read_results
    from manyseed.orchestrator.results.caveats import amounts, incomplete, newer

    record = Analysis.read(sweep.readable)
    if not record.runs or record.runs["analysed"] >= record.runs["planned"]:
        return []
    told = [] if newer(sweep.readable) else filter(None, [amounts(record)])
    remarks = [*told, *incomplete(read_results(sweep.readable))]
    return [f"{sweep.directory}: {text}" for text in remarks] if several else remarks


@takes(
    "results.figures:plots",
    *("by", "where", "output", "width"),
    by={"metavar": "COLUMN[,COLUMN]"},
    width={"metavar": "MM"},
)
def plot(
    directory: Directory,
    kind: str | None = argument(
        "[KIND]",
        "The figure; without it, the usual kinds are listed.",
        autocompletion=arguments.kinds,
    ),
    output: Path | None = written_to(
        "A .pdf, .svg or .png file; or a .csv file for the numbers that are drawn.",
        shown="KIND.pdf",
    ),
    every: bool = switch("--all", "Without KIND: list all kinds."),
    as_json: Json = False,
    **options: Any,
) -> None:
    """Draw one figure of the results, as a file for a paper.

    KIND is a figure of the report, or a column of the tables runs, pairs or repeats: accuracy, ece,
    ec_local, accuracy_range, fit_seconds and others. Each cell has its own row; with --by, cells
    that agree in these columns share one. Several figures become pages of a PDF, or numbered files
    of other formats. Fonts are embedded, and the same results give the same file. The command
    prints the caption, which says what is shown, over what, and n.

    Examples:

        manyseed plot quickstart

        manyseed plot quickstart --all

        manyseed plot quickstart means

        manyseed plot quickstart accuracy --by perturb_continuous -o accuracy.pdf

        manyseed plot quickstart accuracy -o accuracy.csv

        manyseed plot quickstart ec_local --by perturb_continuous,train_fraction

        manyseed plot quickstart alpha-hat-accuracy --where "classifier = 'mlp'" --width single
    """
    from manyseed.orchestrator.results.figures import save, usual
    from manyseed.orchestrator.sweep import Sweep

    sweep = Sweep(directory)
    if kind is None or kind == "?":
        kinds = sweep.plot.kinds
        if as_json:
            print_json({"kinds": kinds.to_dicts()})
        elif every or kind == "?":
            print_rows(kinds.columns, kinds.rows(), kinds.height, "")
        else:
            first = usual(sweep.readable).drop("of")
            print_rows(first.columns, first.rows(), first.height, "")
            say_next(f"All {kinds.height:,} kinds", "plot", directory, "--all")
        return
    file = output or Path(f"{kind.replace('_', '-')}.pdf")
    require_outside(file, sweep)
    drawn = sweep.plot.all(kind, **options)
    files = save(drawn, file)
    if as_json:
        listed = [{"title": p.title, "caption": p.caption, "n": p.n} for p in drawn]
        print_json({"kind": kind, "files": [str(one) for one in files], "figures": listed})
        return
    for figure in drawn:
        say(figure.title, style="bold")
        say(figure.caption, indent=2)
    written = str(files[0]) if len(files) == 1 else f"{files[0]} to {files[-1].name}"
    if len(files) == 1 < len(drawn) and file.suffix == ".pdf":
        apart = file.with_suffix(".svg")
        written += f": {len(drawn):,} pages; a file for each: -o {apart}"
        say(f"Wrote {written}")
        return
    say(f"Wrote {written}.")
