"""What is here, and what to read: the command alone, pages, examples, the JSON Schema."""

from __future__ import annotations

import inspect
import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from manyseed.jobs.checks import quoted, similar
from manyseed.orchestrator.cli.arguments import found, switch, written_to
from manyseed.orchestrator.cli.output import console, print_table, say, say_next
from manyseed.orchestrator.errors import UserError, meant, require_one_of

if TYPE_CHECKING:
    from manyseed.jobs.hparams import Hparam

_WIDEST = 100
_PLACES, _SHOWN, _MOST_PARTLY, _MOST_LIKE = 6, 5, 5, 3  # listed


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
    its sections are listed, each with a line; of several words, those that have all.

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
    texts, page = pages(), _SYMBOL.sub(lambda m: _SYMBOLS[m[0]], " ".join(words_ or []))
    if not page:
        titles = [(name, next(iter(sections(text).values()))[0]) for name, text in texts.items()]
        print_table(None, ("page", "what it is about"), titles)
        console.print()
        say_next("Add a metric of your own", "docs", "results#metrics-of-your-own")
        return say_next("Read one", "docs", "start")
    name, _, heading = page.partition("#")
    name = name.removeprefix("docs/").removesuffix(".md")
    if name not in texts and not heading:
        known, absent = _asked(name, texts)
        places = mentions(known, texts)
        if not places:
            remedy = f"{meant(_terms_like(absent or [name], texts))} manyseed docs lists all pages"
            what = "no page has this name, and none has this word"
            raise UserError(what, key="WORD", value=name, remedy=remedy.strip())
        for word in absent:
            near = meant(_terms_like([word], texts)).capitalize()
            say(f"No page has the word {quoted(word)}. {near}".rstrip())
        for one in places[:_PLACES]:
            say(f"{one.where}  {one.title}")
            say(one.line, indent=2)
        return say_next("Read one", "docs", places[0].where)
    require_one_of(name, texts, "there is no such page", key="PAGE")
    text = _REFERENCE.sub(lambda _: _methods(), completed(name, texts[name]))
    by_heading = sections(text) | words(text)
    if heading:
        alike = [one for one in by_heading if spelt(one) == spelt(heading)]
        heading = heading if heading in by_heading or not alike else alike[0]
        missing = f"the page {name} has no such heading"
        require_one_of(heading, by_heading, missing, key="HEADING")
    text = by_heading[heading][1] if heading else text
    if console.is_terminal:
        console.print(Markdown(text, hyperlinks=False), width=min(console.width, _WIDEST))
    else:
        console.print(text, end="", soft_wrap=True)
    return None


_NAMED = "plus-minus greater approximately identical twins asterisk"
_SYMBOLS = dict(zip("±>≈†‡*", (name.replace("-", " ") for name in _NAMED.split()), strict=True))
"""What the glossary calls symbols of tables and answers, which no word holds."""
_SYMBOL = re.compile(rf"(?<!\S)[{''.join(_SYMBOLS)}](?!\S)")


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
    say_next("  Write one for your data", "init", "DATA.csv")
    say_next("  Import existing predictions", "import", "LOGITS.npz", "--out", "DIR")
    say_next("  Check this machine", "cluster", "check")
    console.print()
    say_next("All commands", "--help")
    say_next("All pages of the documentation", "docs")


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


_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r"^\| (\*\*.+?\*\*) \| (.+) \|$", re.MULTILINE)
_HEADING = re.compile(r"^(?P<level>#+) (?P<title>.+)$", re.MULTILINE)


def pages() -> dict[str, str]:
    """Return the text of every page by its name."""
    folder = Path(str(files("manyseed") / "docs"))
    return {file.stem: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.md"))}


def sections(text: str) -> dict[str, tuple[str, str]]:
    """Return title and text of each section of a page, by the anchor that links use.

    A section reaches to the next heading of its level, or of a higher one.
    """
    code = [block.span() for block in _FENCE.finditer(text)]  # comments there are not headings
    headings = [
        heading
        for heading in _HEADING.finditer(text)
        if not any(begin <= heading.start() < end for begin, end in code)
    ]
    found: dict[str, tuple[str, str]] = {}
    for number, heading in enumerate(headings):
        after = (
            one for one in headings[number + 1 :] if len(one["level"]) <= len(heading["level"])
        )
        end = next((one.start() for one in after), len(text))
        name = anchor = _anchor(heading["title"])
        again = 0
        while anchor in found:
            again += 1
            anchor = f"{name}-{again}"
        found[anchor] = (heading["title"].replace("`", ""), text[heading.start() : end])
    return found


def words(text: str) -> dict[str, tuple[str, str]]:
    """Return what a page says of each word of its glossary, as `sections` does."""
    found: dict[str, tuple[str, str]] = {}
    for row, meaning in _WORD.findall(text):
        for word in re.findall(r"\*\*(.+?)\*\*", f"{row} {meaning}"):
            found.setdefault(_anchor(word), (word, f"{row}: {meaning}\n"))
    return found


@dataclass(frozen=True, slots=True)
class Mention:
    """A section that a search finds: PAGE#ANCHOR, its title, and a line of what it says."""

    where: str
    title: str
    line: str


_ALIKE = re.compile(r"^\| ([^|*]+) \| (\[.+\)) \|$", re.MULTILINE)
_LINK = re.compile(r"\[([^]]*)\]\(([\w-]*)(?:\.md)?(?:#([^)]*))?\)")
_GLOSSARY = "glossary"
_LAST = ("claims", "design")  # pages of tables that have many words


def mentions(phrase: str, texts: Mapping[str, str]) -> list[Mention]:
    """Return the sections that have a word: glossary and headings first.

    Those that the glossary names for the word, or for another of the same meaning, come before all.
    Of several words, those that have the phrase, or else all words that are not short, and then
    those that have most of them; after those of one word, those that have another form of it.
    """
    wanted = spelt(phrase)
    if not wanted:
        return []
    long = [word for word in wanted.split("-") if len(word) >= _LONG_WORD]
    several = "-" in wanted and bool(long)
    found = _named_alike(wanted, texts)
    if several:
        found += [*_named_among(wanted, texts), *_of_parts(wanted, texts)]
    for words_, forms in (([wanted], False), (long * several, False), (long or [wanted], True)):
        if places := _having(words_, texts, forms=forms) if words_ else []:
            places += [] if several or forms else _having(long or [wanted], texts, forms=True)
            places += _partly(long, texts) if several else []
            once = {one.where: one for one in found + places}
            return [*once.values()]
    once = {one.where: one for one in found + (_partly(long, texts) if several else [])}
    return [*once.values()]


_DEFINED = re.compile(
    r"^what-(is|are|does|s)-(an?-|the-)?|-(mean|means|definition|meaning|explained|explanation)$"
    r"|^(definition|meaning|explanation|explain|define)-(of-)?(the-)?"
)


def _asked(phrase: str, texts: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return the words of a phrase that some page has, and those that none has."""
    asked = _DEFINED.sub("", _DEFINED.sub("", spelt(phrase))).split("-")
    known = {*_stems(" ".join(texts.values()))}
    lone = max(map(len, asked)) == 1  # one letter stands everywhere
    absent = [
        word
        for word in asked
        if word
        and word not in _SMALL
        and (lone or not any(one.startswith(stem(word)) for one in known))
    ]
    left = [word for word in asked if word not in absent]
    return " ".join(left) if {*left} - _SMALL else "", absent


def _terms_like(asked: Sequence[str], texts: Mapping[str, str]) -> list[str]:
    """Return the terms, of pages, the glossary and headings, that are most like words."""
    glossary = texts.get(_GLOSSARY, "")
    terms = [term for term, _ in words(glossary).values()]
    terms += [term for others, _ in _ALIKE.findall(glossary) for term in others.split(", ")]
    titles = " ".join(title for text in texts.values() for title, _ in sections(text).values())
    terms += [word for word in spelt(titles).split("-") if len(word) > _LONG_WORD]
    near = [one for word in asked for one in similar(word, [*texts, *terms]) if len(word) > 1]
    return list(dict.fromkeys(near))[:_MOST_LIKE]


_SMALL = {
    *("a", "an", "and", "are", "at", "be", "by", "can", "do", "does", "for", "from", "how", "i"),
    *("in", "is", "it", "of", "on", "or", "the", "to", "what", "when", "where", "which", "with"),
}


def _of_parts(wanted: str, texts: Mapping[str, str]) -> list[Mention]:
    """Return the sections that the glossary names for some of several words, the most first."""
    several = wanted.split("-")
    n, found = len(several), list[Mention]()
    terms = {
        spelt(term): Mention(
            f"{_GLOSSARY}#{spelt(anchor, '#')}", term, _line(meaning, [spelt(term)])
        )
        for anchor, (term, meaning) in words(texts.get(_GLOSSARY, "")).items()
    }
    for size in range(n - 1, 0, -1):
        for i in range(n - size + 1):
            part = "-".join(several[i : i + size])
            found += _named_alike(part, texts, exactly=True)
            found += [terms[part]] if part in terms else []
    return found


def _partly(long: Sequence[str], texts: Mapping[str, str]) -> list[Mention]:
    """Return the sections that have the rarest of these words, those with most of them first."""
    asked = [stem(word) for word in long if word not in _COMMON]
    listed = [
        (f"{page}#{anchor}", title, text, {*_stems(f"{title} {text}")}, {*_stems(title)})
        for page, whole in texts.items()
        if page not in _LAST
        for anchor, (title, text) in sections(whole).items()
        if not _ALIKE.search(text) and "\n#" not in text
    ]
    known = {one: sum(one in has for *_, has, _ in listed) for one in asked}
    weight = {one: math.log(len(listed) / n) for one, n in known.items() if n}
    scores = [
        sum(by * ((one in has) + (one in named)) for one, by in weight.items())
        for *_, has, named in listed
    ]
    least = max(_LEAST_SCORE * max(scores, default=0.0), 1e-9)
    order = sorted(range(len(listed)), key=lambda place: -scores[place])
    best = [listed[place] for place in order if scores[place] >= least][:_MOST_PARTLY]
    return [Mention(where, title, _line(text, asked)) for where, title, text, *_ in best]


_COMMON = {
    *("after", "and", "before", "between", "can", "did", "different", "does", "for", "from", "get"),
    *("have", "how", "make", "need", "own", "same", "several", "the", "use", "want", "what"),
    *("when", "where", "which", "who", "why", "with"),
}
_LEAST_SCORE = 0.6  # of the best

_ENDINGS = re.compile(r"(ations?|ings?|ly|ied|ies|ed|es|s|e|y)$")  # that forms of a word differ in
_FORMS = "([ct]?(ations?|ions?|ings?|ly|ied|ies|ed|es|s|e|y))|[ct]|ers?|ments?|able|al|ally"
_LONG_WORD, _STEM = 3, 4  # letters; of a stem, those that are left at least


def stem(word: str) -> str:
    """Return what forms of a word have in common: ``significan`` of significance, significantly."""
    found = _ENDINGS.search(word)
    word = word[: max(found.start(), _STEM)] if found and len(word) > _STEM else word
    return word[:-1] if len(word) > _STEM and word.endswith(("nc", "nt")) else word


def _stems(text: str) -> list[str]:
    return [stem(word) for word in spelt(text).split("-")]


def _named_alike(wanted: str, texts: Mapping[str, str], *, exactly: bool = False) -> list[Mention]:
    """Return the sections that the glossary's table of other words names for a word, in any form.

    `exactly`: in this form.
    """
    found: list[Mention] = []
    for others, links in _ALIKE.findall(texts.get(_GLOSSARY, "")):
        known = others.split(", ")
        if wanted in map(spelt, known) if exactly else _stems(wanted) in map(_stems, known):
            found += _linked(links, wanted, texts)
    return found


def _named_among(wanted: str, texts: Mapping[str, str]) -> list[Mention]:
    """Return those that it names for several words that are all asked for, the most words first."""
    asked, found = {*_roots(wanted)}, list[tuple[int, str]]()
    for others, links in _ALIKE.findall(texts.get(_GLOSSARY, "")):
        each = [{*_roots(spelt(one))} - _SMALL for one in others.split(", ")]
        if most := max((len(one) for one in each if len(one) > 1 and one <= asked), default=0):
            found.append((-most, links))
    found.sort(key=lambda one: one[0])
    return [one for _, links in found for one in _linked(links, wanted, texts)]


def _roots(wanted: str) -> list[str]:
    """Return the stems of words, of short ones too."""
    return [stem(word.removesuffix("s")) for word in wanted.split("-")]


def _linked(links: str, wanted: str, texts: Mapping[str, str]) -> list[Mention]:
    found = []
    for label, page, anchor in _LINK.findall(links):
        title, text = sections(texts[page])[anchor]
        line = _line(text, _stems(wanted), _stems(label))
        found.append(Mention(f"{page}#{anchor}", title, line))
    return found


def _having(wanted: Sequence[str], texts: Mapping[str, str], *, forms: bool) -> list[Mention]:
    """Return the sections that have all of these words, in any of their `forms` or as they are."""
    stems = [word.removesuffix("s") if len(word) > _LONG_WORD else word for word in wanted]
    stems = [stem(word) for word in wanted] if forms else stems
    ending = _FORMS if forms else "s|es|ing"
    has = [re.compile(rf"(?<!\w){re.escape(one)}({ending})?(?!\w)") for one in stems]
    found: list[tuple[bool, int, bool, int, str, str, str]] = []
    for page, text in texts.items():
        listed = sections(text)
        for (anchor, (title, whole)), after in zip(
            listed.items(), [*(one for _, one in listed.values()), ""][1:], strict=True
        ):
            own = whole.partition(after)[0] if after else whole
            in_text, in_title = spelt(own), spelt(title)
            if _ALIKE.search(own):
                continue  # they lead to other sections
            if times := min(len(one.findall(in_text)) for one in has):
                titled = sum(bool(one.search(in_title)) for one in has)
                prose = spelt(_FENCE.sub("", own))
                is_code = not all(one.search(prose) for one in has)
                order = (page in _LAST, -titled, is_code, -times)
                found.append((*order, f"{page}#{anchor}", title, own))
        for anchor, (term, meaning) in words(text).items():
            if [spelt(term)] in (wanted, stems):
                order = (False, -len(has), False, -len(text))
                found.append((*order, f"{page}#{anchor}", term, meaning))
    parts = [part for one in stems for part in one.split("-")]
    return [
        Mention(where if where.isascii() else spelt(where, "#"), title, _line(own, parts))
        for *_, where, title, own in sorted(found)
    ]


_LONGEST = 200  # letters of a sentence that is shown
_WORDS = 4  # of a sentence at least
_ANY_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_SENTENCE_END = re.compile(r"(?:(?<=[.?!])|(?<=[.?!]\*\*)) (?=[*[`]*[A-Z\d`])")
_SEPARATOR = re.compile(r"^\|[-:| ]+\|$")


def _line(text: str, stems: Sequence[str], also: Sequence[str] = ()) -> str:
    """Return the sentence of a section that has the most of these words; else its first.

    `also`: words that count less. Prose comes before rows of tables, and commands only where there
    is neither.
    """
    bare = re.sub(r"^#+ .*$|^<!--.*$", "", _FENCE.sub("\n\n", text), flags=re.MULTILINE)
    bare = re.sub(r"!\[[^]]*\]\([^)]*\)", "", bare)
    prose, rows = list[str](), list[str]()
    for block in re.split(r"\n\s*\n|\n(?=[-|])|\n(?=\d+\.)", bare):
        whole = " ".join(block.split())
        parts = [whole] if whole.startswith("|") else _SENTENCE_END.split(whole.removeprefix("- "))
        told = [re.sub(r"[*`]+", "", _ANY_LINK.sub(r"\1", part)) for part in parts]
        (rows if whole.startswith("|") else prose).extend(told)
    heads = {n - 1 for n, row in enumerate(rows) if _SEPARATOR.match(row)}
    cells = [
        [cell.strip() for cell in row.strip("| ").split(" | ")]
        for n, row in enumerate(rows)
        if n not in heads and not _SEPARATOR.match(row)
    ]
    listed = [f"{first}: {max(more, key=len)}" for first, *more in cells if more]
    sentences = [one for one in prose if len(one.split()) >= _WORDS]
    sentences += [one for one in listed if len(one.split()) >= _WORDS] or prose
    sentences = [*filter(None, sentences)] or re.findall(r"^manyseed .*$", text, re.MULTILINE)
    if not sentences:
        return ""
    stems = [one for one in stems if len(one) >= _LONG_WORD] or stems
    wanted, more = {stem(one) for one in stems} - _SMALL, {stem(one) for one in also} - _SMALL
    held = [
        (
            len(wanted & {*_stems(sentence)}),
            len(more & {*_stems(sentence)}) - sentence.endswith(":") + (not place),
            len(sentence) <= _LONGEST,
        )
        for place, sentence in enumerate(sentences)
    ]
    chosen = sentences[held.index(max(held))]
    if len(chosen) <= _LONGEST:
        return chosen
    ends = [end.start() for end in re.finditer(r"[,;:)] ", chosen[:_LONGEST])]
    return f"{chosen[: ends[-1] if ends else chosen.rfind(' ', 0, _LONGEST)].rstrip(',;:')} …"


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def spelt(text: str, keep: str = "") -> str:
    """Return a text in small letters without accents and hats; Greek letters by their names."""
    plain = unicodedata.normalize("NFKD", text.lower())
    plain = "".join(c for c in plain if not unicodedata.combining(c))
    plain = re.sub("[α-ω]", lambda m: unicodedata.name(m[0]).split()[-1].lower(), plain)
    return re.sub(r"[_ -]hat\b", "", re.sub(rf"[^\w{keep}]+", "-", plain)).strip("-")


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
