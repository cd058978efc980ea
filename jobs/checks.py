"""Check users' values by what an option says of itself (`Option`), and find names that were meant.

A refusal holds facts; the caller who knows the file words them.
"""

from __future__ import annotations

import math
import re
import sys
import traceback
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

MOST = 3  # suggestions at most

_Number = TypeVar("_Number")

_CUTOFF = 0.65  # least share of letters in common, as `difflib` counts them
_LONGEST = 200  # characters of what a library raised, in a message

TABLES, ARRAYS = (".csv", ".tsv", ".parquet"), (".npz", ".npy", ".zarr")
"""How files of data end: of tables, of arrays."""


def similar(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that are most like a wrong one: the best kind of likeness that occurs.

    In this order: equal but for case, hyphens and underscores, or the order of words; beginning
    with it; the beginning of it; few letters apart; with a word that begins with it. Of several,
    the first `MOST`.

    Parameters
    ----------
    known : iterable of str
        Preferred names first.
    """
    wanted = _folded(name)
    names = {one: _folded(one) for one in dict.fromkeys(known)}
    if not wanted:
        return []
    n = len(wanted)
    begun = [one for one, text in names.items() if text.startswith(wanted)]
    long = {one: text[: n + 1] for one, text in names.items() if n > 3 and len(text) > n}
    found = (
        [one for one, text in names.items() if text == wanted]
        or [one for one in names if n > 2 and _words(one) == _words(name)]
        or (begun if n > 1 or len(begun) == 1 else [])
        or [one for one, text in names.items() if len(text) > 2 and wanted.startswith(text)]
        or _close(wanted, names)
        or _close(wanted, long)
        or [one for one, text in names.items() if n > 2 and _has_word(text, wanted)]
    )
    return found[:MOST]


def _words(name: str) -> list[str]:
    return sorted(re.split(r"[\W_]+", name.casefold()))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question to append to a message about a wrong name; empty if nothing is near."""
    near = " or ".join(similar(name, known))
    return f"; did you mean {near}?" if near else ""


def paths_near(path: Path) -> list[str]:
    """Return the paths that exist and are most like one that does not: one of its names differs."""
    wrong = path
    while wrong.parent != wrong and not wrong.parent.exists():
        wrong = wrong.parent
    try:
        names = sorted(one.name for one in wrong.parent.iterdir() if one.name[0] != ".")
    except OSError:
        return []
    rest = path.relative_to(wrong)
    near = [wrong.with_name(name) / rest for name in similar(wrong.name, names) if wrong.name]
    return [str(one) for one in near if one.exists() and one != path]


def did_you_mean_path(path: Path) -> str:
    """Return the question of `did_you_mean` for a file or folder that does not exist."""
    near = " or ".join(paths_near(path))
    return f"; did you mean {near}?" if near else ""


def spelling(text: str) -> str:
    """Return a text as it is read: composed (NFC), with single blanks, without invisible marks."""
    if text.isascii():
        return " ".join(text.split())
    composed = unicodedata.normalize("NFC", text)
    return " ".join("".join(c for c in composed if unicodedata.category(c) != "Cf").split())


def same_spelling(texts: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the different texts that are read alike, by what they share, in order."""
    same: dict[str, list[str]] = {}
    for text in sorted({*texts}):
        same.setdefault(spelling(text), []).append(text)
    return [tuple(each) for each in same.values() if len(each) > 1]


def shown(name: str) -> str:
    """Return a name for a list in a message: quoted unless it is plain words."""
    return (
        name if re.fullmatch(r"\S+( \S+)*", name) and name == quoted(name)[1:-1] else quoted(name)
    )


def quoted(text: str) -> str:
    """Return a text between quotation marks, in which what cannot be seen is escaped."""
    escaped = (
        c
        if c == " " or (c.isprintable() and c not in '"\\' and not unicodedata.combining(c))
        else f"\\{c}"
        if c in '"\\'
        else f"\\u{ord(c):04x}"
        for c in text
    )
    return f'"{"".join(escaped)}"'


def _folded(name: str) -> str:
    return spelling(name).casefold().replace("-", "_")


def _close(wanted: str, texts: dict[str, str]) -> list[str]:
    from difflib import get_close_matches  # needed for errors only

    near = get_close_matches(wanted, texts.values(), n=1, cutoff=_CUTOFF)
    return [one for one, text in texts.items() if text in near]


def _has_word(text: str, beginning: str) -> bool:
    return any(word.startswith(beginning) for word in re.split(r"[^a-z0-9]+", text))


_LISTED = 20
NOTHING: Mapping[str, Any] = MappingProxyType({})


def expanded(name: str) -> Path:
    """Return a path that may begin with ~ or ~user; without such a home, that is a name."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        return Path(name)


class Refused(ValueError):
    """A value that is not allowed.

    Parameters
    ----------
    option : str
        The option, named as the caller's parameter; a dot separates a table from its key, as in
        ``hparams.alpha``.
    value : object
        The refused value, or the part of it that is wrong.
    reason : str
        Why, unless `allowed` says it.
    allowed : iterable of object, or str
        All allowed values, or a description of them.
    needs : mapping
        Values of other options with which this value would be allowed, None for an option that must
        not be given; empty if there are none.
    """

    def __init__(
        self,
        option: str,
        value: object,
        reason: str = "",
        allowed: Iterable[object] | str = (),
        needs: Mapping[str, Any] = NOTHING,
    ) -> None:
        self.option, self.value, self.reason, self.needs = option, value, reason, dict(needs)
        self.allowed = allowed if isinstance(allowed, str) else tuple(allowed)
        super().__init__(option, value, reason, self.allowed)

    def __str__(self) -> str:
        message = self.reason or "unknown"
        if isinstance(self.allowed, str):
            message = f"must be {self.allowed}"
        elif self.allowed:
            listed = ", ".join(shown(str(each)) for each in self.allowed[:_LISTED])
            message += f"; there are {listed}" + ", …" * (len(self.allowed) > _LISTED)
        return f"{self.option} = {self.value!r}: {message}"


class UnknownOption(Refused):
    """An unknown option; `allowed` lists the known ones."""


_TABLE: Mapping[type, tuple[str, str]] = {
    bool: ("true or false", "boolean"),
    int: ("a whole number", "integer"),
    float: ("a number", "number"),
    str: ("text in quotes", "string"),
    list: ("a list", "array"),
    dict: ("a table", "object"),
    object: ("text, a finite number, true or false", ""),
}
"""What each kind of value is called in messages, and in a JSON Schema."""


@dataclass(frozen=True, slots=True)
class Option:
    """What an option means and which values it takes: it checks them, and describes itself.

    Planning, the JSON Schema of sweep files and the docs read it.

    Attributes
    ----------
    about : str
        What the option means, in a sentence.
    kind : type
        bool, int (not a truth value), float (any finite number), str, list, dict, or object for any
        single value.
    default : object
        The value where none is given; None if there is none, or if it depends on other things.
    words : tuple
        The only values of kind str; with int or float, values besides numbers.
    least, above, most, below : float
        Bounds of numbers; `above` and `below` are exclusive.
    distinct : bool
        Whether a list must hold one or more different entries.
    pattern : str
        A regular expression that text must match as a whole, from ``^`` to ``$``.
    of : Option, or mapping of str to Option
        What every entry of a list or table must be, or the entries that a table may have.
    called : str
        What to call a value in messages, instead of "a number", "text in quotes" and so on; bounds
        follow.
    """

    about: str = ""
    kind: type = str
    default: Any = None
    _: KW_ONLY
    words: Sequence[Any] = ()
    least: float = -math.inf
    above: float = -math.inf
    most: float = math.inf
    below: float = math.inf
    distinct: bool = False
    pattern: str = ""
    of: Option | Mapping[str, Option] | None = None
    called: str = ""

    def check(self, name: str, value: object) -> Any:
        """Return an allowed value; of kind float as a float, a list or table with its entries.

        Parameters
        ----------
        name : str
            What to call the option in a refusal; entries of tables follow a dot.

        Raises
        ------
        Refused
            For a value of another type, out of bounds, or not among the words.
        """
        for word in self.words:
            if _same_type(value, type(word)) and value == word:
                return word
        is_closed = self.kind is str and bool(self.words)
        if is_closed or not _same_type(value, self.kind) or not self._is_within(value):
            raise Refused(name, value, allowed=self.allowed)
        if isinstance(value, Mapping):
            return {key: self._entry(f"{name}.{key}", key, inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self._entry(name, "", each) for each in value]
        return float(value) if self.kind is float and isinstance(value, int | float) else value

    def _entry(self, name: str, key: str, value: object) -> Any:
        of = self.of
        if isinstance(of, Mapping):
            if key not in of:
                raise UnknownOption(name, value, allowed=of)
            of = of[key]
        return value if of is None else of.check(name, value)

    def _is_within(self, value: Any) -> bool:
        if isinstance(value, int | float) and not isinstance(value, bool):
            is_within = self.least <= value <= self.most and self.above < value < self.below
            return is_within and -sys.float_info.max <= value <= sys.float_info.max
        if self.distinct:
            return 0 < len(value) == len({*map(repr, value)})
        return not self.pattern or re.fullmatch(self.pattern, value) is not None

    @property
    def allowed(self) -> tuple[Any, ...] | str:
        """All allowed values, or a description of them."""
        if self.kind is str and self.words:
            return tuple(self.words)
        ends = {"at least": self.least, "above": self.above, "at most": self.most}
        limits = {word: end for word, end in {**ends, "below": self.below}.items() if _is_end(end)}
        bounds = " and ".join(f"{word} {_plain(end)}" for word, end in limits.items())
        if limits.keys() == {"at least", "at most"} and self.kind is int:
            bounds = f"from {_plain(self.least)} to {_plain(self.most)}"
        described = f"{self.called or _TABLE[self.kind][0]} {bounds}".strip()
        return ", or ".join([described, *map(repr, self.words)])

    def schema(self, about: str | None = None) -> dict[str, Any]:
        """Return the JSON Schema of a value, described by `about`, by default the option's own."""
        about = self.described if about is None else about
        described = {"description": about} if about else {}
        if self.kind is str and self.words:
            return {**described, "enum": [*self.words]}
        if self.kind is object:
            return {**described, "type": ["string", "number", "boolean"]}
        bounds = {
            "minimum": self.least,
            "exclusiveMinimum": self.above,
            "maximum": self.most,
            "exclusiveMaximum": self.below,
        }
        value: dict[str, Any] = {"type": _TABLE[self.kind][1]}
        value |= {word: bound for word, bound in bounds.items() if _is_end(bound)}
        value |= {"pattern": self.pattern} if self.pattern else {}
        value |= {"minItems": 1, "uniqueItems": True} if self.distinct else {}
        if isinstance(self.of, Option):
            value |= {"items" if self.kind is list else "additionalProperties": self.of.schema()}
        elif self.of is not None:
            value |= closed({name: option.schema() for name, option in self.of.items()})
        if not self.words:
            return {**described, **value}
        return {**described, "anyOf": [value, *({"const": word} for word in self.words)]}

    @property
    def described(self) -> str:
        """`about`, with the default."""
        if self.default is None:
            return self.about
        default = str(self.default).lower() if isinstance(self.default, bool) else self.default
        return f"{self.about.removesuffix('.')} (default: {default})."


def values_of(
    options: Mapping[str, Option], given: Mapping[str, Any], prefix: str = ""
) -> dict[str, Any]:
    """Return the value of every option of a table: what is given, checked, and else its default.

    Parameters
    ----------
    options : mapping of str to Option
    given : mapping
        What the user wrote.
    prefix : str
        What comes before an option's name in a refusal.

    Raises
    ------
    UnknownOption
    Refused
    """
    require_known(options, given, prefix)
    return {
        name: option.check(f"{prefix}{name}", given[name]) if name in given else option.default
        for name, option in options.items()
    }


def closed(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a table that has no other keys than these, each with its schema."""
    return {"type": "object", "properties": {**properties}, "additionalProperties": False}


def integer(name: str, value: object, *, least: int, most: int | None = None) -> int:
    """Return a whole number from `least` to `most`; raise Refused for anything else."""
    bound = math.inf if most is None else most
    return int(Option(kind=int, least=least, most=bound).check(name, value))


def number(
    name: str,
    value: object,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    below: float = math.inf,
    what: str = "",
) -> float:
    """Return a finite number within the bounds as a float; raise Refused for anything else."""
    bounds = Option(kind=float, least=least, above=above, most=most, below=below, called=what)
    return float(bounds.check(name, value))


def parsed(kind: Callable[[str], _Number], text: object) -> _Number:
    """Return the int or float that a text writes; raise ValueError for any but ASCII digits.

    Python takes digits of every script, and 0_5 for 5.
    """
    written = str(text)
    if not written.isascii() or "_" in written:
        raise ValueError(f"{written!r} is no number")
    return kind(written)


def require_known(
    options: Mapping[str, Option], given: Mapping[str, Any], prefix: str = ""
) -> None:
    """Raise UnknownOption for the first name that is not an option's."""
    for name, value in given.items():
        if name not in options:
            raise UnknownOption(f"{prefix}{name}", value, allowed=options)


def _same_type(value: object, kind: type) -> bool:
    """Return whether a value is of a kind; whole numbers are numbers, truth values are not."""
    if isinstance(value, bool):
        return kind in (bool, object)
    kinds: dict[type, Any] = {float: int | float, list: list | tuple, dict: Mapping}
    return isinstance(value, str | int | float if kind is object else kinds.get(kind, kind))


def _is_end(bound: float) -> bool:
    return isinstance(bound, int) or math.isfinite(bound)


def _plain(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


def in_words(error: BaseException) -> str:
    """Return what was raised, without notes: its message, after its class unless that is ours."""
    if type(error).__module__.startswith("manyseed."):
        return str(error).strip() or type(error).__name__
    summary = traceback.TracebackException.from_exception(error)
    summary.__notes__ = None
    return "".join(summary.format_exception_only()).strip()


def in_a_line(error: BaseException, line: int = -1) -> str:
    """Return `in_words` in one line: all lines of our messages, of others the last, or another.

    Of others it is cut: some libraries list all values that they do not like.
    """
    lines = [line.strip() for line in in_words(error).splitlines()]
    if type(error).__module__.startswith("manyseed."):
        return "; ".join(lines)
    return cut(lines[line])


def cut(text: str) -> str:
    """Return the beginning of a long text."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1].rstrip()}…"
