"""Printing: sentences, tables, numbers and progress bars for people, JSON for programs."""

from __future__ import annotations

import glob
import json
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from manyseed.analysis.axes import FRACTION, level_told
from manyseed.analysis.counts import counted as counted
from manyseed.analysis.counts import duration as duration
from manyseed.analysis.counts import fixed
from manyseed.orchestrator.errors import (
    INTERRUPTED,
    DamagedFile,
    ManyseedError,
    UserError,
    command,
)
from manyseed.orchestrator.paths import SweepPaths

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console
    from rich.progress import Progress

    from manyseed.orchestrator.progress import watch
    from manyseed.orchestrator.submissions.submission import Submission
    from manyseed.orchestrator.tasks.intent import Intent


SCHEMA = 1  # version of the JSON output: it rises when a key is removed or changes its meaning

answers: list[dict[str, object]] = []
"""What this command has printed as JSON: one object, its answer or its error."""

_UNLIMITED = 10_000  # the width without a terminal, so that tables in files and pipes are complete
# output is data: [/] is a name like any other, and CELL:REPEAT:RUN is not an emoji
_PLAIN: dict[str, Any] = {"highlight": False, "emoji": False, "markup": False}


def _elsewhere() -> dict[str, Any]:
    """Return how to print into a file or pipe: FORCE_COLOR asks for colours, not for a cursor."""
    colours = "standard" if os.environ.get("FORCE_COLOR") else "auto"
    return {"force_terminal": False, "color_system": colours}


console = Console(
    **_PLAIN, **({} if sys.stdout.isatty() else {"width": _UNLIMITED, **_elsewhere()})
)
errors = Console(stderr=True, **_PLAIN, **({} if sys.stderr.isatty() else _elsewhere()))


_PROGRAM = "python -c "  # a break within it is one in the program


def say(text: str | Text, *, style: str = "", indent: int = 0, to: Console | None = None) -> None:
    """Print sentences: wrapped between words on a terminal, unwrapped elsewhere; programs never."""
    to = to or console
    shown = Text(text, style) if isinstance(text, str) else text
    for line in shown.split("\n", allow_blank=True) if _PROGRAM in shown.plain else [shown]:
        padded = Padding(line, (0, 0, 0, indent), expand=False) if indent else line
        to.print(padded, soft_wrap=not to.is_terminal or _PROGRAM in line.plain)


def say_next(
    what: str, *arguments: object, to: Console | None = None, then: Sequence[object] = ()
) -> None:
    """Print the next command, and maybe one after it, on an unwrapped line to be copied."""
    steps = " && ".join(command(*each) for each in (arguments, then) if each)
    (to or console).print(f"{what}: {steps}", soft_wrap=True)


def say_notes(notes: Sequence[str], *arguments: object, style: str = "") -> None:
    """Print a note; of several, their number and the command that prints them.

    That seeds are fixed, or reach no classifier, is always printed: it decides what results mean.
    """
    from manyseed.jobs.own.findings import FIXED
    from manyseed.orchestrator.plans.change import COPIES

    if len(notes) > 1:
        for note in notes:
            if FIXED in note or note.startswith(COPIES):
                say(note, style=style)
        say_next(f"{len(notes):,} notes", *arguments)
    else:
        for note in notes:
            say(note, style=style)


def dry_plan(sweep_file: Path, directory: Path) -> list[object]:
    """Return the command that prints the notes on a sweep that is planned."""
    return ["plan", sweep_file, "--out", directory, "--dry-run"]


def say_training(
    what: str, paths: SweepPaths, verb: str, *words: object, cluster: str | None = None
) -> None:
    """Print the next command, which trains; `cluster` is where the user works, if they said so."""
    from manyseed.orchestrator.submissions.submission import on_cluster

    where = on_cluster(paths) if cluster is None else ["--cluster", cluster]
    say_next(what, verb, paths.directory, *words, *where)


def say_steps(state: Mapping[str, Any]) -> None:
    """Print which results are outdated, and the next steps of a sweep's status."""
    if SweepPaths(Path(state["directory"])).results.exists():
        for text in state["outdated"]:
            say(text, style="dim")
    if any(_submits(step["command"]) for step in state["next"]):
        directory = Path(state["directory"])
        if lacks_profile(SweepPaths(directory)):
            say_without_profile(directory)
    say_commands(state["next"])


def _submits(step: str) -> bool:
    verb = step.split()[1]
    return verb in ("submit", "resume") and "--cluster" not in step


def say_without_profile(directory: Path) -> None:
    """Say to make a profile first, or how to train here."""
    from manyseed.orchestrator.tasks.intent import LOCAL

    here = f"to train on this machine: {command('submit', directory, '--cluster', LOCAL)}"
    first = f"{command('cluster', 'init')} (what it says: {command('docs', 'cluster')})"
    console.print(f"First: {first}; or, {here}", soft_wrap=True)


NO_GPU = 'No GPU responds here: on this machine, device = "gpu" trains on the CPU.'


def lacks_profile(paths: SweepPaths | None = None) -> bool:
    """Return whether this machine submits, and nothing says to what a command would submit."""
    from manyseed.orchestrator.submissions.profiles import AUTO, choose
    from manyseed.orchestrator.submissions.submission import last_intent

    with suppress(DamagedFile):  # reported by whoever submits
        last = None if paths is None else last_intent(paths)
        try:
            choose(AUTO, last=last)
        except UserError:
            return True
    return False


def say_commands(steps: Sequence[Mapping[str, str]]) -> None:
    """Print next steps as `say_next` does."""
    for step in steps:
        console.print(f"{step['what']}: {step['command']}", soft_wrap=True)


def print_json(value: Mapping[str, object]) -> None:
    """Print one JSON object that begins with the schema version."""
    value = {"schema": SCHEMA, **value}
    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False, default=str)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # JSON can escape it
        text = json.dumps(value, indent=2, allow_nan=False, default=str)
    sys.stdout.write(f"{text}\n")
    answers.append(value)


def print_table(
    title: str | None,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    total: Sequence[object] | None = None,
    nested: bool = False,
) -> None:
    """Print a table with numbers aligned right and the total below a line.

    A nested table shows its first two columns as one, with each value of the first above its rows:
    names of datasets are long, and a terminal may be narrow. Columns without values are left out;
    so are columns that do not fit, which are named below the table.
    """
    if nested:
        columns, rows = columns[1:], _nested(rows)
        total = total and [total[0], *total[2:]]
    lines = [*rows, *([] if total is None else [total])]
    kept = _filled(lines, len(columns))
    columns = [columns[n] for n in kept]
    lines = [[line[n] for n in kept] for line in lines]
    table, n = _fitted(columns, lines)
    if total is not None and len(lines) > 1:
        table.rows[-2].end_section = True
        table.rows[-1].style = "bold"
    table.title, table.title_justify, table.title_style = title, "left", "bold"
    console.print(table)
    if left := columns[n:]:
        say(f"No room for {', '.join(' '.join(head.split()) for head in left)}", style="dim")


def _filled(rows: Sequence[Sequence[object]], n_columns: int) -> list[int]:
    """Return the indices of columns that hold a value in some row."""
    if not rows:
        return list(range(n_columns))
    return [n for n in range(n_columns) if any(shown(row[n]) not in ("", "–") for row in rows)]


def _fitted(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> tuple[Table, int]:
    """Return a table of as many of the first columns as fit, and their number.

    Cells are broken between words; numbers, and names of up to two thirds of the width, are whole.
    """
    cells = [[shown(value) for value in row] for row in rows]
    contents = [max((cell_len(row[n]) for row in cells), default=0) for n in range(len(columns))]
    numeric = [bool(rows) and all(_is_number(row[n]) for row in rows) for n in range(len(columns))]
    words = [
        contents[n] if numeric[n] else min(_longest_word(cells, n), console.width * 2 // 3)
        for n in range(len(columns))
    ]
    for n in range(len(columns), 0, -1):
        heads = _heads(columns[:n], contents)
        widths = [max(_longest(head), words[at]) for at, head in enumerate(heads)]
        if n == 1 or sum(widths) + n <= console.width:
            break
    room = max(console.width - sum(widths) - n, 0)
    for at in sorted(range(n), key=lambda at: contents[at]):
        more = min(max(contents[at] - widths[at], 0), room)
        widths[at] += more
        room -= more
    table = Table(box=None, padding=(0, 1, 0, 0))
    for at, head in enumerate(heads):
        table.add_column(
            head,
            justify="right" if numeric[at] else "left",
            width=widths[at],
            header_style="dim",
            overflow="fold",
        )
    for row in cells:
        table.add_row(*(_indented(text) for text in row[:n]))
    return table, n


def _longest_word(cells: Sequence[Sequence[str]], column: int) -> int:
    """Return the width of a column's longest word, with its indent."""
    texts = (row[column] for row in cells)
    indents = ((text, len(text) - len(text.lstrip())) for text in texts)
    return max((indent + cell_len(w) for text, indent in indents for w in text.split()), default=0)


def _indented(text: str) -> str | Padding:
    """Return a cell whose lines all have the indent of the first."""
    plain = text.lstrip()
    indent = len(text) - len(plain)
    return Padding(plain, (0, 0, 0, indent)) if indent else text


def _heads(columns: Sequence[str], contents: Sequence[int]) -> list[str]:
    """Return the heads of columns; if room is short, the longest break at underscores."""
    heads = list(columns)
    broken = [name.replace("_", "_\n") if len(name) > 9 else name for name in columns]

    def width(number: int, head: str) -> int:
        return max(_longest(head), contents[number]) + 1

    gains = [width(n, heads[n]) - width(n, broken[n]) for n in range(len(columns))]
    room = console.width - sum(width(n, head) for n, head in enumerate(heads))
    for number in sorted(range(len(columns)), key=lambda n: -gains[n]):
        if room >= 0:
            break
        heads[number] = broken[number]
        room += gains[number]
    return heads


def _longest(head: str) -> int:
    return max(map(cell_len, head.split("\n")))


def _nested(rows: Iterable[Sequence[object]]) -> Iterator[Sequence[object]]:
    under: dict[object, list[list[object]]] = {}
    for first, second, *others in rows:
        under.setdefault(first, []).append([f"  {second}", *others])
    for first, its_rows in under.items():
        yield [first, *([""] * (len(its_rows[0]) - 1))]
        yield from its_rows


def print_frame(frame: pl.DataFrame, limit: int, more: str = "; see --limit and --out") -> None:
    """Print the first rows of a frame and the columns that fit; say what is left out.

    `more` is printed after the number of further rows: which options show them, if any.
    """
    rows = [
        [
            level_told(name, value) if name == FRACTION and value is not None else value
            for name, value in zip(frame.columns, row, strict=True)
        ]
        for row in frame.head(limit).rows()
    ]
    print_rows(frame.columns, rows, len(frame), more)


def print_rows(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    height: int,
    more: str = "; see --limit and --out",
    *,
    asked: bool = True,
) -> None:
    """Print rows, out of `height` in total, and the columns that fit.

    Unless columns were `asked` for, those without values are left out and named.
    """
    kept = range(len(columns)) if asked else _filled(rows, len(columns))
    empty = [name for n, name in enumerate(columns) if n not in kept]
    filled = [columns[n] for n in kept]
    table, n = _fitted(filled, [[row[at] for at in kept] for row in rows])
    console.print(table)
    if empty:
        say(f"Undefined here: {', '.join(empty)}", style="dim")
    if left := filled[n:]:
        how = "; see --columns and --out" if more else ""
        say(f"No room for {', '.join(left)}{how}", style="dim")
    if height > len(rows):
        say(f"… {height - len(rows):,} more rows{more}", style="dim")


def size(n_bytes: float) -> str:
    """Format a number of bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"


def amount(number: float) -> str:
    """Format a number of hours or minutes, of which there may be few."""
    if not number:
        return "–"
    if number < 0.005:
        return "<0.001" if number < 0.0005 else f"{number:.3f}"
    return f"{number:,.2f}" if number < 100 else f"{number:,.0f}"


def _is_number(value: object) -> bool:
    """Return whether a value is a number, or the text of one: ``<0.01``, ``12 kB``, ``+0.5 ± 0.1``.

    ``–`` alone stands for none.
    """
    return isinstance(value, int | float | None) or str(value).lstrip("+-")[:1] in "–<0123456789"


class Numeral(int):
    """A number that counts nothing, such as a row's."""


class Decimals(float):
    """A number with as many decimals as the others of its column."""

    places: int

    def __new__(cls, value: float, places: int) -> Decimals:
        """Return the number with its decimals."""
        made = super().__new__(cls, value)
        made.places = places
        return made


def shown(value: object) -> str:
    """Format a value as in tables."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:d}" if isinstance(value, Numeral) else f"{value:,}"
    if isinstance(value, float):
        if value != value:
            return "–"
        if isinstance(value, Decimals):
            text = f"{value:.{value.places}f}"
            return text if float(text) else text.lstrip("-")
        is_small = 0 < abs(value) < 0.001  # 0.0000 would not tell it from 0
        if is_small or abs(value) >= 1000:
            return f"{value:.{2 if is_small else 4}g}"
        return fixed(value)
    return str(value)


_LINE_SECONDS = 60.0
_WAITED_SECONDS = 10.0  # after which it is told that a task begins


@contextmanager
def bar(to: Console | None = None, *, quiet: bool = False) -> Iterator[Progress]:
    """Show a bar, which an error removes if nothing was done; a quiet one shows nothing."""
    from rich import progress as of

    to = to or console
    with of.Progress(
        of.SpinnerColumn(finished_text="✓"),
        of.TextColumn("{task.description}", markup=False),
        of.BarColumn(bar_width=None if to.is_terminal else 40),
        of.MofNCompleteColumn(),
        of.TextColumn("{task.fields[note]}", markup=False),
        of.TimeElapsedColumn(),
        of.TimeRemainingColumn(),
        console=to,
        expand=to.is_terminal,
        disable=quiet,
    ) as bars:
        try:
            yield bars
        except BaseException:
            if not any(task.completed for task in bars.tasks):
                bars.live.transient = True
            raise


@contextmanager
def shards_done(
    doing: str, *, what: str = "shards", quiet: bool = False
) -> Iterator[Callable[[int, int], None]]:
    """Show, on a terminal, how many shards are done; yield a function that takes (done, total)."""
    with bar(quiet=quiet or not console.is_terminal) as progress:
        task = progress.add_task(doing, total=None, note=what)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def resumable(
    doing: str, *command: object, note: str = "", quiet: bool = False
) -> Iterator[Callable[[int, int], None]]:
    """Show the progress of a command; yield a function that takes (done, total).

    On Ctrl-C, print the `command` that goes on, and exit.
    """
    with bar() as progress:
        task = progress.add_task(doing, total=None, note=note, visible=not quiet)
        try:
            yield lambda done, total: progress.update(task, completed=done, total=total)
        except KeyboardInterrupt:
            progress.stop()
            say_next("Continue with", *command)
            raise typer.Exit(INTERRUPTED) from None


def show(submission: Submission, to: Console | None = None) -> watch.Progress:
    """Show the progress of a submission until all its tasks have ended; return the last state.

    A bar on a terminal; elsewhere a line each minute and one at the end.
    """
    from manyseed.orchestrator.progress import watch

    to = to or console
    if not to.is_terminal:
        return _lines(submission, to)
    with bar(to) as progress:
        task = progress.add_task("training", total=submission.n_runs, note="starting")
        last = watch.Progress(0)
        for last in watch.watch(submission):
            note = f"{last.failed} failed" if last.failed else ""
            if last.state == "starting":
                note = "starting"
            progress.update(task, completed=last.done + last.failed, note=note)
    return last


def _lines(submission: Submission, to: Console) -> watch.Progress:
    from manyseed.orchestrator.progress import watch

    began, printed, last = time.monotonic(), 0.0, watch.Progress(0)
    waited = ""
    for last in watch.watch(submission):
        spent = time.monotonic() - began
        starts = last.state == "running" and waited == "starting" and spent >= _WAITED_SECONDS
        waited = last.state
        if starts or spent - printed >= _LINE_SECONDS:
            printed = spent
            _line(last, spent, to)
    _line(last, time.monotonic() - began, to)
    return last


def _line(now: watch.Progress, seconds: float, to: Console) -> None:
    failed = f", {now.failed:,} failed" if now.failed else ""
    text = f"training, {now.state}: {now.done:,} of {counted(now.runs, 'run')}{failed}"
    say(f"{text}; {duration(seconds)}", to=to)


_SAID_AFTER = 10.0  # seconds; nobody has to read about what takes less


@contextmanager
def one_core(paths: SweepPaths, what: str, more: str = "") -> Iterator[None]:
    """On a login node, keep to one core, and say so if it takes long.

    A machine on which the sweep was trained is no login node. `what` is computed, as the subject of
    a sentence; `more` says how it would be computed elsewhere, or by more cores.
    """
    from manyseed.orchestrator.submissions.profiles import is_login_node
    from manyseed.orchestrator.submissions.submission import last_intent

    def last() -> Intent | None:
        with suppress(ManyseedError):  # what is damaged is reported by whoever needs it
            return last_intent(paths)
        return None

    if not hasattr(os, "sched_setaffinity") or not is_login_node(last):
        yield
        return
    lines = [f"This machine submits jobs, so {what} keeps to one of its cores.", more]
    text = "\n".join(filter(None, lines))
    said = threading.Timer(_SAID_AFTER, say, (text,), {"style": "dim", "to": errors})
    said.daemon = True
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[os.getpid() % len(cores)]})
    said.start()
    try:
        yield
    finally:
        said.cancel()
        os.sched_setaffinity(0, cores)


_FEW_FILES = 3


def briefly(files: list[Path]) -> list[str]:
    """Return files as words of a shell: many by a pattern that only they match, if there is one."""
    from manyseed.orchestrator.importing.filenames import shared_ends

    if len(files) > _FEW_FILES and len({file.parent for file in files}) == 1:
        start, end = shared_ends(file.name for file in files)
        if {*files[0].parent.glob(f"{glob.escape(start)}*{glob.escape(end)}")} == {*files}:
            ends = (str(files[0].parent / start), end) if start else (f"{files[0].parent}/", end)
            return ["*".join(shlex.quote(part) if part else "" for part in ends)]
    return [shlex.quote(str(file)) for file in files]
