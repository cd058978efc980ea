"""What is here, and what to read: the command alone, pages, examples, the JSON Schema."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from manyseed.jobs.checks import ARRAYS, TABLES, quoted
from manyseed.orchestrator.cli.arguments import found, switch, written_to
from manyseed.orchestrator.cli.manual import (
    from_paragraph,
    pages,
    sections,
    spelt,
    without_also,
    words,
)
from manyseed.orchestrator.cli.output import console, print_table, say, say_next
from manyseed.orchestrator.cli.search import (
    SYMBOL,
    SYMBOLS,
    Mention,
    mentions,
    section_alone,
    terms_like,
    words_asked,
)
from manyseed.orchestrator.errors import UserError, meant, require_one_of

if TYPE_CHECKING:
    from manyseed.jobs.hparams import Hparam

_WIDEST = 100
_PLACES, _SHOWN = 4, 5  # listed
_LINES, _LETTERS = 20, 2000  # of a section that a search finds; letters in a pipe


def pages_like(incomplete: str) -> list[str]:
    """Complete the name of a page of the documentation, and of its headings after a ``#``."""
    texts = pages()
    page, hash_, _ = incomplete.partition("#")
    headings = sections(texts[page]) | words(texts[page]) if hash_ and page in texts else ()
    names = (*texts, *(f"{page}#{heading}" for heading in headings))
    return [name for name in names if name.startswith(incomplete)]


def docs(
    words_: list[str] | None = typer.Argument(
        None,
        metavar="[PAGE]",
        help="A page, PAGE#HEADING, or words to look for; without it, all pages are listed.",
        autocompletion=pages_like,
    ),
    as_schema: bool = switch("--schema", "Print the JSON Schema of sweep files, for editors."),
) -> None:
    """Show a page of the documentation, or one section of it; as Markdown in a pipe.

    A word that is no page is searched for, also in other forms and by words of the same meaning:
    the best section is printed, and others are listed, each with a line.

    Examples:

        manyseed docs

        manyseed docs start

        manyseed docs faq#it-stopped-in-the-middle

        manyseed docs churn

        manyseed docs add a metric

        manyseed docs sweep-file | less

        manyseed docs --schema > sweep.schema.json
    """
    from rich.markdown import Markdown

    if as_schema:
        return schema()
    texts, page = pages(), SYMBOL.sub(lambda m: SYMBOLS[m[0]], " ".join(words_ or []))
    if not page:
        titles = [(name, next(iter(sections(text).values()))[0]) for name, text in texts.items()]
        print_table(None, ("page", "what it is about"), titles)
        console.print()
        say_next("Add a metric of your own", "docs", "results#metrics-of-your-own")
        return say_next("Read one", "docs", "start")
    name, _, heading = page.partition("#")
    name = name.removeprefix("docs/").removesuffix(".md")
    if name not in texts and not heading:
        known, absent = words_asked(name, texts)
        places = mentions(known, texts)
        if not places:
            remedy = f"{meant(terms_like(absent or [name], texts))} manyseed docs lists all pages"
            what = "no page has this name, and none has this word"
            raise UserError(what, key="WORD", value=name, remedy=remedy.strip())
        for word in absent:
            near = meant(terms_like([word], texts)).capitalize()
            say(f"No page has the word {quoted(word)}. {near}".rstrip())
        best, *others = places[:_PLACES]
        say(f"{best.where}  {best.title}")
        is_whole = _print_section(best, texts)
        console.print()
        for one in others:
            say(f"{one.where}  {one.title}")
            say(one.line, indent=2)
        if is_whole and others:
            return say_next("Read another", "docs", others[0].where)
        return say_next("Read on" if not is_whole else "Read it alone", "docs", best.where)
    require_one_of(name, texts, "there is no such page", key="PAGE")
    text = _REFERENCE.sub(lambda _: _methods(), completed(name, texts[name]))
    by_heading = sections(text) | words(text)
    if heading:
        alike = [one for one in by_heading if spelt(one) == spelt(heading)]
        heading = heading if heading in by_heading or not alike else alike[0]
        missing = f"the page {name} has no such heading"
        require_one_of(heading, by_heading, missing, key="HEADING")
    text = without_also(by_heading[heading][1] if heading else text)
    if console.is_terminal:
        console.print(Markdown(text, hyperlinks=False), width=min(console.width, _WIDEST))
    else:
        console.print(text, end="", soft_wrap=True)
    return None


def _print_section(one: Mention, texts: Mapping[str, str]) -> bool:
    """Print a section that a search finds, up to the next heading; return whether it is whole.

    Of a long one, some lines from the paragraph that has the words.
    """
    from rich.markdown import Markdown
    from rich.padding import Padding

    page, _, heading = one.where.partition("#")
    by_heading = sections(texts[page]) | words(texts[page])
    anchor = next(name for name in by_heading if heading in (name, spelt(name, "#")))
    whole = without_also(by_heading[anchor][1])
    text = section_alone(f"{page}#{anchor}", texts) or whole

    def lines(text: str) -> list[str]:
        if not console.is_terminal:
            return text.strip().splitlines()
        width = min(console.width, _WIDEST)
        with console.capture() as held:
            console.print(Padding(Markdown(text, hyperlinks=False), (0, 0, 0, 2)), width=width)
        return _trimmed(held.get().splitlines())

    shown = lines(text)
    is_whole = len(shown) <= _LINES and (console.is_terminal or len(text) <= _LETTERS)
    if not is_whole:
        shown = lines(from_paragraph(text, one.line))
        ends = accumulate(map(len, shown))
        fitting = sum(end <= _LETTERS for end in ends) if not console.is_terminal else _LINES
        shown = [*shown[: max(1, min(fitting, _LINES))], "…"]
    for line in shown:
        print(line if line.startswith("  ") else f"  {line}", file=console.file)
    return is_whole


def _trimmed(lines: list[str]) -> list[str]:
    """Return rendered lines without empty ones at both ends, and one for several."""
    empty = [not re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in lines]
    kept = [at for at, line in enumerate(empty) if not line or (at and not empty[at - 1])]
    kept = kept[:-1] if kept and empty[kept[-1]] else kept
    return [lines[at] for at in kept]


def begin(folder: Path) -> None:
    """Print the sweeps and sweep files of a folder, and the commands to start with."""
    from importlib.metadata import version

    from manyseed.analysis.counts import some
    from manyseed.orchestrator.submissions.submission import on_cluster

    say(
        f"manyseed {version('manyseed')}: train the same classifier thousands of times and learn "
        "how much the results vary."
    )
    sweeps, files = found(folder)
    if sweeps or files:
        console.print()
    if sweeps:
        say(f"Sweeps here: {some(sweeps, _SHOWN)}")
        say_next("  State", "status", sweeps[0])
    if files:
        say(f"Sweep files here: {some(files, _SHOWN)}")
        say_next("  Grid and cost", "plan", files[0], "--dry-run")
        say_next("  Train and report", "run", files[0], *on_cluster())
    console.print()
    say("Get started:")
    say_next("  Write an example sweep file", "init", "--example", "quickstart")
    say_next("  Write one for your data", "init", _data_in(folder) or "DATA.csv")
    say_next("  Import existing predictions", "import", "LOGITS.npz", "--out", "DIR")
    say_next("  Check this machine", "cluster", "check")
    console.print()
    say_next("All commands", "--help")
    say_next("All pages of the documentation", "docs")


def _data_in(folder: Path) -> str | None:
    """Return the name of the first file of a folder that may hold a dataset."""
    from manyseed.orchestrator.paths import SweepPaths

    with suppress(OSError):
        if SweepPaths(folder).is_sweep:  # its store is no data
            return None
        names = sorted(
            entry.name for entry in folder.iterdir() if entry.suffix in (*TABLES, *ARRAYS)
        )
        return next((name for name in names if not name.startswith(".")), None)
    return None


def example(
    name: str | None = typer.Argument(
        None, metavar="[NAME]", help="An example; without it, all are listed."
    ),
    out: Path | None = written_to("Where to write it.", shown="NAME"),
) -> None:
    """Write an example sweep file or cluster profile; or list all examples.

    Examples:

        manyseed example

        manyseed example quickstart

        manyseed example clusters/gpu --out mine.toml
    """
    from manyseed.orchestrator.disk.placing import place_new

    available = examples()
    if name is None:
        print_table(
            None, ("example", "what it is"), [(n, one.title) for n, one in available.items()]
        )
        console.print()
        if data := _data_in(Path()):
            say_next("For your data", "init", data)
        return say_next("Write one", "init", "--example", "quickstart")
    name = name.removesuffix(".toml")
    require_one_of(name, available, "there is no such example", key="NAME")
    file = out or Path(f"{Path(name).name}.toml")
    texts = {file: available[name].text}
    texts |= {file.with_name(module): text for module, text in available[name].modules.items()}
    for path in texts:
        if path.exists():
            raise UserError("exists already", file=path, remedy="name another file with --out")
    for path, text in texts.items():
        place_new(path, text.encode())
    console.print(f"Wrote {', '.join(map(str, texts))}.")
    if not name.startswith("clusters/"):
        say_next("Next", "plan", file, "--dry-run")
    return None


def schema() -> None:
    """Print the JSON Schema of sweep files, with which editors complete and check them.

    Name it in the sweep file with the line: #:schema ./sweep.schema.json

    Examples:

        manyseed schema > sweep.schema.json
    """
    from manyseed.orchestrator.grids.jsonschema import schema

    typer.echo(json.dumps(schema(), indent=2, ensure_ascii=False))


_REFERENCE = re.compile(r"^```\{eval-rst\}\n.*?^```$", re.MULTILINE | re.DOTALL)
"""What the site replaces by all docstrings of `Sweep`."""


def _methods() -> str:
    """Return the methods of `Sweep` as a list, each with the first line of its docstring."""
    from manyseed.orchestrator.sweep import Sweep

    public = [name for name in vars(Sweep) if name[0] != "_"]
    docs = {name: inspect.getdoc(getattr(Sweep, name)) or "" for name in public}
    return "\n".join(f"- `{name}`: {text.splitlines()[0]}" for name, text in docs.items() if text)


def completed(name: str, text: str) -> str:
    """Return a page's text with the classifiers or questions that it does not describe, if any."""
    further = {"classifiers": _classifiers, "commands": _questions}.get(name, dict)()
    lacking = [line for one, line in further.items() if f"| `{one}` |" not in text]
    return "\n".join([text, "## Further ones\n", *lacking, ""]) if lacking else text


def _classifiers() -> dict[str, str]:
    """Return what the records of classifiers say of them, by name."""
    from manyseed.jobs.classifiers import CLASSIFIERS

    def hparam(one: Hparam) -> str:
        allowed = one.option.allowed
        values = allowed if isinstance(allowed, str) else ", ".join(map(str, allowed))
        return f"`{one.name}`: {values} (default: {one.default})"

    return {
        name: f"- `{name}`: {one.about} Probabilities: {one.probability}; runs vary with "
        f"{', '.join(sorted(one.streams))}. Hparams: {'; '.join(map(hparam, one.space))}."
        for name, one in CLASSIFIERS.items()
    }


def _questions() -> dict[str, str]:
    """Return what the records of questions say of them, by name."""
    from manyseed.orchestrator.results.questions.registry import known

    return {
        name: f"- `{name}`: {one.asks} (from the tables {', '.join(one.tables)})"
        for name, one in known().items()
    }


@dataclass(frozen=True, slots=True)
class Example:
    """One example: its title (a sentence), its text, and the code files beside it, by name."""

    title: str
    text: str
    modules: Mapping[str, str]


def examples() -> dict[str, Example]:
    """Return all examples by name: sweep files, then those in folders as ``FOLDER/NAME``."""
    folder = Path(str(files("manyseed") / "examples"))
    by_name = {}
    for file in (*sorted(folder.glob("*.toml")), *sorted(folder.glob("*/*.toml"))):
        text = file.read_text(encoding="utf-8")
        title = _first_sentence(text)
        others = (module for ending in ("*.py", "*.yaml") for module in file.parent.glob(ending))
        named = (module for module in others if re.search(rf"\b{re.escape(module.name)}\b", text))
        beside = {module.name: module.read_text(encoding="utf-8") for module in named}
        by_name[file.relative_to(folder).with_suffix("").as_posix()] = Example(title, text, beside)
    return by_name


def _first_sentence(text: str) -> str:
    """Return the first sentence of a file's leading comment, which may span several lines."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("# ") or line.startswith("#  "):  # a command is indented
            break
        lines.append(line[2:])
    return re.split(r"(?<=[.?]) (?=[A-Z])", " ".join(lines))[0].rstrip(".")
