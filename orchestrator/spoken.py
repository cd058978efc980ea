"""Messages of the command in the words of Python: options, commands, and tables of a sweep file."""

from __future__ import annotations

import json
import re
import shlex
import tomllib

_PHRASES = {
    "--alike": "alike()",
    "--classifier NAME=FILE": "classifiers={NAME: [FILE]}",
    "--cluster local": 'cluster="local"',
    "--dask slurm": 'dask="slurm"',
    "--now": "now=True",
    "--other-recipe": "other_recipe=True",
    "--probabilities": "probabilities=True",
    "--width double": 'width="double"',
    "verify --repair": "verify(repair=True)",
}
"""Options with their values, as messages write them; others become the option and ``=``."""

_NAMES = {"until": "half_width", "out": "directory", "lower-is-better": "lower"}
"""Options whose argument has another name."""

_KEYS = {"KIND": "kind", "RUN": "address"}

_METHODS = {one: f"{one}()" for one in ("analyze", "howmany", "report", "status", "verify")}
_METHODS["verify --repair"] = "verify(repair=True)"
"""Commands of a sweep alone that are a method with its defaults."""
_PATH = r"""'[^']+'|"[^"]+"|[^\s"'`;,]*[^\s"'`;,.:)]"""
_VERB = "|".join(sorted(_METHODS, reverse=True))
_OF_SWEEP = re.compile(
    rf"(?<!&& )\bmanyseed (?P<verb>{_VERB}) (?P<path>(?!-){_PATH})(?! -| &&|[^\s`;,.:)])"
)
_COMMANDS = re.compile(r"(\bmanyseed [a-z]+\b[^;,\n]*|\bsbatch [^;\n]*)")
"""Other commands, for a shell, stay as they are."""
_OPTION = re.compile(
    "|".join(
        [
            *(re.escape(phrase) for phrase in sorted(_PHRASES, key=len, reverse=True)),
            r"(?<!\S)-t (?P<table>[a-z_]+)",
            r"--cluster (?P<cluster>[a-z][\w.-]*\w)",
            r"--without (?P<runs>[\d:,]+)",
            r"--(?P<listing>[a-z][a-z-]*) (?P<values>\w+(?:,\w+)+|\w+_index)",
            r"--(?P<option>[a-z][a-z-]*)(?: (?=(?:[A-Z]+|[\d.]*\d)(?!\w)))?",
        ]
    )
)


def in_python(text: str) -> str:
    """Return a message in the words of Python."""
    pieces = _COMMANDS.split(_OF_SWEEP.sub(_called, text))
    pieces[::2] = [_OPTION.sub(_argument, piece) for piece in pieces[::2]]
    return "".join(pieces)


def _called(match: re.Match[str]) -> str:
    """Return the call of a method for the command of a sweep."""
    (path,) = shlex.split(match["path"])
    place = path if path == "DIR" else json.dumps(path, ensure_ascii=False)
    return f"Sweep({place}).{_METHODS[match['verb']]}"


def key_in_python(key: str) -> str:
    """Return the argument for the key of a message, such as ``--by``."""
    if not key.startswith("--"):
        return _KEYS.get(key, key)
    return name_of(key.removeprefix("--"))


def name_of(option: str) -> str:
    """Return the argument's name for an option without its dashes."""
    return _NAMES.get(option, option.replace("-", "_"))


def _argument(match: re.Match[str]) -> str:
    if match["table"]:
        return f'table="{match["table"]}"'
    if match["cluster"]:
        return f'cluster="{match["cluster"]}"'
    if match["runs"]:
        return f"without={match['runs'].split(',')}".replace("'", '"')
    if match["values"]:
        values = [v if v.isdecimal() else f'"{v}"' for v in match["values"].split(",")]
        return f"{name_of(match['listing'])}=[{', '.join(values)}]"
    return _PHRASES.get(match[0]) or f"{name_of(match['option'])}="


_ADDED = re.compile(r"add to \[(?P<table>[^\]\n]+)\]: (?P<lines>\w+ = [^\n;]+)")


def in_mapping(text: str) -> str:
    """Return what to add to a table of a sweep file as what to add to a mapping."""
    return _ADDED.sub(_entries, text)


def _entries(match: re.Match[str]) -> str:
    try:
        table = tomllib.loads(f"[{match['table']}]\n")
        entries = tomllib.loads(match["lines"])
    except tomllib.TOMLDecodeError:  # an example, with …
        return match[0]
    place = ""
    while table:
        ((name, table),) = table.items()
        place += f"[{json.dumps(name, ensure_ascii=False)}]"
    return f"add to {place}: {', '.join(f'{key!r}: {value!r}' for key, value in entries.items())}"
