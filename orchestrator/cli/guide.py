"""What is here, and what to read: the command alone, pages, examples, the JSON Schema."""

from __future__ import annotations

import inspect
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from manyseed.jobs.checks import quoted, similar
from manyseed.orchestrator.cli.arguments import found, switch, written_to
from manyseed.orchestrator.cli.manual import FENCE, beginning, pages, sections, spelt, words
from manyseed.orchestrator.cli.output import console, print_table, say, say_next
from manyseed.orchestrator.errors import UserError, meant, require_one_of

if TYPE_CHECKING:
    from manyseed.jobs.hparams import Hparam

_WIDEST = 100
_PLACES, _SHOWN, _MOST_LIKE = 6, 5, 3  # listed


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
    the best section is printed, up to 40 lines, and the next ones are listed, each with a line.

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
        for number, one in enumerate(places[:_PLACES]):
            say(f"{one.where}  {one.title}")
            say(one.line, indent=2)
            for line in () if number else beginning(one.where, texts):
                console.print(f"  {line}".rstrip(), markup=False, highlight=False, soft_wrap=True)
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
    """Return the sections that words lead to, the best first.

    Those that the glossary names for them, or for others of the same meaning, come before all;
    then those that have them, as `_ranked` orders them.
    """
    wanted = spelt(phrase)
    if not wanted:
        return []
    found = _named_alike(wanted, texts)
    for anchor, (term, meaning) in words(texts.get(_GLOSSARY, "")).items():
        if spelt(term) == wanted:
            where = f"{_GLOSSARY}#{spelt(anchor, '#')}"
            found.append(Mention(where, term, _line(meaning, [wanted])))
    if "-" in wanted:
        found += [*_named_among(wanted, texts), *_of_parts(wanted, texts)]
    once = {one.where: one for one in [*found, *_ranked(wanted, texts)]}
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
    *("a", "am", "an", "and", "are", "as", "at", "be", "been", "but", "by", "can", "could", "did"),
    *("do", "does", "for", "from", "get", "has", "have", "how", "i", "if", "in", "into", "is"),
    *("it", "its", "make", "me", "mine", "my", "need", "of", "on", "or", "our", "s", "should"),
    *("so", "that", "the", "their", "them", "then", "there", "they", "this", "to", "use", "want"),
    *("was", "we", "were", "what", "when", "where", "which", "who", "why", "will", "with"),
    *("would", "you", "your"),
}
"""Words of a question that say nothing of what it is about."""


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
            telling = _telling(part)
            if part in terms and (len(telling) > 1 or telling == _telling(wanted)):
                found.append(terms[part])
    return found


@dataclass(frozen=True, slots=True)
class _Searched:
    """What is searched: a section up to the next heading, or a word of the glossary."""

    where: str
    title: str
    text: str
    titled: Mapping[str, int]
    held: Mapping[str, int]
    pairs: frozenset[tuple[str, str]]
    weight: float


@lru_cache(maxsize=1)
def _parts(texts: tuple[tuple[str, str], ...]) -> list[_Searched]:
    parts: list[_Searched] = []

    def add(where: str, title: str, text: str, weight: float = 1.0) -> None:
        titled, held = _telling(spelt(title)), _telling(spelt(_ANY_LINK.sub(r"\1", text)))
        pairs = frozenset([*pairwise(titled), *pairwise(held)])
        parts.append(_Searched(where, title, text, Counter(titled), Counter(held), pairs, weight))

    for page, text in texts:
        listed = [*sections(text).items()]
        for (anchor, (title, whole)), after in zip(listed, [*listed[1:], None], strict=True):
            own = whole.partition(after[1][1])[0] if after else whole
            if not _ALIKE.search(own):  # those lead to other sections
                weight = _LEAST_LIKELY if page in _LAST else 1.0
                add(f"{page}#{anchor}", title, own.partition("\n")[2], weight)
        for anchor, (term, meaning) in words(text).items():
            add(f"{page}#{anchor}", term, meaning)
    return parts


def _ranked(wanted: str, texts: Mapping[str, str]) -> list[Mention]:
    """Return the sections that have the words of a question, the best first.

    BM25F (Robertson, Zaragoza and Taylor 2004): a word counts the more, the fewer sections have it,
    and the shorter the heading or the text where it stands; two words more that stand side by side.
    """
    asked = list(dict.fromkeys(_telling(wanted) or _stems(wanted)))
    parts = _parts(tuple(texts.items()))
    n = len(parts)
    frequency = {
        one: sum(one in part.held or one in part.titled for part in parts) for one in asked
    }
    weight = {one: math.log(1 + (n - df + 0.5) / (df + 0.5)) for one, df in frequency.items() if df}
    lengths = [(part.titled, part.held) for part in parts]
    means = [max(sum(sum(each[k].values()) for each in lengths) / max(n, 1), 1) for k in (0, 1)]
    scores = []
    for part in parts:
        score = 0.0
        for one, idf in weight.items():
            times = sum(
                by * field[one] / (1 - short + short * sum(field.values()) / mean)
                for by, short, field, mean in zip(
                    _FIELDS, _SHORT, (part.titled, part.held), means, strict=True
                )
                if one in field
            )
            score += idf * times / (_SATURATION + times)
        for pair in pairwise(asked):
            if pair in part.pairs:
                score += _SIDE_BY_SIDE * sum(weight[one] for one in pair)
        named = {*asked} == {*part.titled}  # by all that it is called
        scores.append((score + named * _NAMED_WHOLE * sum(weight.values())) * part.weight)
    least = max(_LEAST_SCORE * max(scores, default=0.0), 1e-9)
    order = sorted(range(n), key=lambda place: (-scores[place], parts[place].where))
    return [
        Mention(
            part.where if part.where.isascii() else spelt(part.where, "#"),
            part.title,
            _line(part.text, asked, weight=weight),
        )
        for part in (parts[place] for place in order if scores[place] >= least)
    ]


_FIELDS, _SHORT, _SATURATION = (5.0, 1.0), (0.5, 0.5), 1.2  # of headings and texts
_SIDE_BY_SIDE, _NAMED_WHOLE = 0.25, 0.5
_LEAST_SCORE, _LEAST_LIKELY = 0.35, 0.5  # of the best; of a page that is no answer


def _telling(wanted: str) -> list[str]:
    """Return the stems of the words that say what a text is about."""
    return [stem(word) for word in wanted.split("-") if word not in _SMALL and not word.isdigit()]


_LONG_WORD, _STEM = 3, 4  # letters; of a stem, those that are left at least
_PLURAL = re.compile(r"(?<=[a-z]{2})(?:(?<=s|x|z)es|(?<=[cs]h)es|(?<![sui])s)$")
_VERB = re.compile(r"(?<=[a-z]{3})(?<!e)ed$|(?<=[a-z]{3})ing$")
_ENDINGS = re.compile(r"(ations?|ly|e|y|i)$")  # that forms of a word differ in


@cache
def stem(word: str) -> str:
    """Return what forms of a word have in common: ``significan`` of significance, significantly."""
    word = _PLURAL.sub("", re.sub(r"(?<=[a-z]{2})ie[sd]$", "y", word))
    word = _VERB.sub("", word)
    if len(word) > _LONG_WORD and word[-1] == word[-2] and word[-1] not in "aeiou":
        word = word[:-1]  # planned, plan
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
    asked, found = {*_telling(wanted)}, list[tuple[int, str]]()
    for others, links in _ALIKE.findall(texts.get(_GLOSSARY, "")):
        each = [{*_telling(spelt(one))} for one in others.split(", ")]
        if most := max((len(one) for one in each if len(one) > 1 and one <= asked), default=0):
            found.append((-most, links))
    found.sort(key=lambda one: one[0])
    return [one for _, links in found for one in _linked(links, wanted, texts)]


def _linked(links: str, wanted: str, texts: Mapping[str, str]) -> list[Mention]:
    found = []
    for label, page, anchor in _LINK.findall(links):
        title, text = sections(texts[page])[anchor]
        line = _line(text, _stems(wanted), _stems(label))
        found.append(Mention(f"{page}#{anchor}", title, line))
    return found


_LONGEST = 200  # letters of a sentence that is shown
_WORDS = 4  # of a sentence at least
_ANY_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_SENTENCE_END = re.compile(r"(?:(?<=[.?!])|(?<=[.?!]\*\*)) (?=[*[`]*[A-Z\d`])")
_SEPARATOR = re.compile(r"^\|[-:| ]+\|$")


def _line(
    text: str,
    stems: Sequence[str],
    also: Sequence[str] = (),
    *,
    weight: Mapping[str, float] | None = None,
) -> str:
    """Return the sentence of a section that has the most of these words; else its first.

    `also`: words that count less; `weight`: how much each counts, or one. Prose comes before rows
    of tables, and commands only where there is neither.
    """
    bare = re.sub(r"^#+ .*$|^<!--.*$", "", FENCE.sub("\n\n", text), flags=re.MULTILINE)
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
    wanted = {one if weight else stem(one) for one in stems} - _SMALL
    more, by = {stem(one) for one in also} - _SMALL, weight or {}
    held = [
        (
            sum(by.get(one, 1.0) for one in sorted(wanted & {*_stems(sentence)})),
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
