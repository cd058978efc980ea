"""Questions in plain words and the sections of the manual that answer them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise

from manyseed.jobs.checks import similar
from manyseed.orchestrator.cli.manual import FENCE, sections, spelt, words

_MOST_LIKE = 3  # terms

_NAMED = "plus-minus below greater approximately identical twins asterisk"
SYMBOLS = dict(zip("±<>≈†‡*", (name.replace("-", " ") for name in _NAMED.split()), strict=True))
"""What the glossary calls symbols of tables and answers, which no word holds."""
SYMBOL = re.compile(rf"(?<!\S)[{''.join(SYMBOLS)}](?!\S)")


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


def words_asked(phrase: str, texts: Mapping[str, str]) -> tuple[str, list[str]]:
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


def terms_like(asked: Sequence[str], texts: Mapping[str, str]) -> list[str]:
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


def section_alone(where: str, texts: Mapping[str, str]) -> str:
    """Return the text of a section up to the next heading, of any level; "" if none is searched."""
    parts = _parts(tuple(texts.items()))
    return next((part.text for part in parts if part.where == where), "")


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
