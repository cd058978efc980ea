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
from manyseed.orchestrator.cli.manual import FENCE, also, sections, spelt, without_also, words

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


_GLOSSARY = "glossary"


def mentions(phrase: str, texts: Mapping[str, str]) -> list[Mention]:
    """Return the sections that words lead to, the best first: the glossary's for a word of its own.

    Others are ordered by how much of them is about the words, as `_ranked` does.
    """
    wanted = spelt(phrase)
    if not wanted:
        return []
    found = []
    for anchor, (term, meaning) in words(texts.get(_GLOSSARY, "")).items():
        if spelt(term) == wanted:
            where = f"{_GLOSSARY}#{spelt(anchor, '#')}"
            found.append(Mention(where, term, _line(meaning, [wanted])))
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
    # one letter stands everywhere, unless it is another word for a section, as R
    lone = max(map(len, asked)) == 1 and not any(
        "-".join(asked) == spelt(term)
        for text in texts.values()
        for _, one in sections(text).values()
        for term in also(one)
    )
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
    headed = [one for text in texts.values() for one in sections(text).values()]
    terms += [term for _, text in headed for term in also(text)]
    titles = " ".join(title for title, _ in headed)
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


@dataclass(frozen=True, slots=True)
class _Searched:
    """What is searched: a section up to the next heading, or a word of the glossary."""

    where: str
    title: str
    text: str
    names: Sequence[frozenset[str]]  # its title, and other words for what it is about
    phrases: frozenset[tuple[str, ...]]  # these, with all their words
    held: Mapping[str, int]
    pairs: frozenset[tuple[str, str]]
    weight: float


@lru_cache(maxsize=1)
def _parts(texts: tuple[tuple[str, str], ...]) -> list[_Searched]:
    parts: list[_Searched] = []

    def add(where: str, title: str, text: str, others: Sequence[str] = ()) -> None:
        each = [_telling(spelt(name)) for name in (title, *others)]
        held = _telling(spelt(_ANY_LINK.sub(r"\1", text)))
        pairs = frozenset(pair for one in (*each, held) for pair in pairwise(one))
        names = [frozenset(one) for one in each if one]
        weight = _WEIGHTS.get(where.partition("#")[0], 1.0)
        phrases = frozenset(tuple(_stems(name)) for name in (title, *others))
        parts.append(_Searched(where, title, text, names, phrases, Counter(held), pairs, weight))

    for page, text in texts:
        listed = [*sections(text).items()]
        for (anchor, (title, whole)), after in zip(listed, [*listed[1:], None], strict=True):
            own = whole.partition(after[1][1])[0] if after else whole
            said = without_also(own).partition("\n")[2]
            add(f"{page}#{anchor}", title, said, also(own))
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
    and the shorter the heading or the text where it stands; two words more that stand side by side,
    and all words of a heading, or of another name of its section, more than some of them.
    """
    asked = list(dict.fromkeys(_telling(wanted) or _stems(wanted)))
    parts = _parts(tuple(texts.items()))
    n = len(parts)
    frequency = {
        one: sum(one in part.held or any(one in name for name in part.names) for part in parts)
        for one in asked
    }
    weight = {one: math.log(1 + (n - df + 0.5) / (df + 0.5)) for one, df in frequency.items() if df}
    names = [len(name) for part in parts for name in part.names[:1]]
    in_names = max(sum(names) / max(n, 1), 1)
    in_texts = max(sum(sum(part.held.values()) for part in parts) / max(n, 1), 1)
    total, phrase = sum(weight.values()), tuple(_stems(wanted))
    scores = []
    for part in parts:
        score = 0.0
        length = _long(sum(part.held.values()), in_texts)
        for one, idf in weight.items():
            shortest = min((len(name) for name in part.names if one in name), default=0)
            named = _IN_NAME / _long(shortest, in_names) if shortest else 0.0
            times = named + part.held.get(one, 0) / length
            score += idf * times / (_SATURATION + times)
        for pair in pairwise(asked):
            if pair in part.pairs:
                score += _SIDE_BY_SIDE * sum(weight[one] for one in pair)
        whole = [name for name in part.names if name <= {*asked}]  # all of a name is asked for
        most = max((sum(weight[one] for one in sorted(name)) for name in whole), default=0.0)
        score += most * most / (total or 1)
        score += _WHOLE * total * (phrase in part.phrases)
        scores.append(score * part.weight)
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


def _long(length: int, mean: float) -> float:
    return 1 - _SHORT + _SHORT * length / mean


_IN_NAME, _SHORT, _SATURATION, _SIDE_BY_SIDE, _WHOLE = 5.0, 0.5, 1.2, 0.25, 0.5
_LEAST_SCORE = 0.2  # of the best
_WEIGHTS = {
    **dict.fromkeys(("faq", "recipes", "start"), 1.1),  # answers
    **dict.fromkeys(("design", "extending", "fashion", "identity", "store"), 0.7),  # further
    "claims": 0.5,  # tables that have many words
}


def _telling(wanted: str) -> list[str]:
    """Return the stems of the words that say what a text is about."""
    return [stem(word) for word in wanted.split("-") if word not in _SMALL and not word.isdigit()]


_LONG_WORD, _STEM = 3, 4  # letters; of a stem, those that are left at least
_PLURAL = re.compile(r"(?<=[a-z]{2})(?:(?<=s|x|z)es|(?<=[cs]h)es|(?<![sui])s)$")
_VERB = re.compile(r"(?<=[a-z]{3})(?<!e)ed$|(?<=[a-z]{3})ing$")
_ENDINGS = re.compile(r"(ations?|ly|e|y|i)$")  # that forms of a word differ in


_ALONE = {"patience"}  # no form of patient


@cache
def stem(word: str) -> str:
    """Return what forms of a word have in common: ``significan`` of significance, significantly."""
    if word in _ALONE:
        return word
    word = _PLURAL.sub("", re.sub(r"(?<=[a-z]{2})ie[sd]$", "y", word))
    word = _VERB.sub("", word)
    if len(word) > _LONG_WORD and word[-1] == word[-2] and word[-1] not in "aeiou":
        word = word[:-1]  # planned, plan
    found = _ENDINGS.search(word)
    word = word[: max(found.start(), _STEM)] if found and len(word) > _STEM else word
    return word[:-1] if len(word) > _STEM and word.endswith(("nc", "nt")) else word


def _stems(text: str) -> list[str]:
    return [stem(word) for word in spelt(text).split("-")]


_LONGEST = 200  # letters of a sentence that is shown
_WORDS = 4  # of a sentence at least
_ANY_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_SENTENCE_END = re.compile(r"(?:(?<=[.?!])|(?<=[.?!]\*\*)) (?=[*[`]*[A-Z\d`])")
_SEPARATOR = re.compile(r"^\|[-:| ]+\|$")


_MARK = re.compile(r"(`+) ?(?P<code>.+?) ?\1|[*`]+")


def _plain(markdown: str) -> str:
    """Return a sentence without links and emphasis; code as it stands, asterisks included."""
    text = _MARK.sub(lambda mark: mark["code"] or "", _ANY_LINK.sub(r"\1", markdown))
    return text.replace("\\|", "|")


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
        told = [_plain(part) for part in parts]
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
