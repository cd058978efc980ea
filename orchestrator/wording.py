"""The command's words in a message → those of Python: ``--by`` is the argument ``by=``."""

from __future__ import annotations

import re

_PHRASES = {
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

_COMMANDS = re.compile(r"(\bmanyseed [a-z]+\b[^;,\n]*|\bsbatch [^;\n]*)")
"""Whole commands, for a shell, stay as they are."""
_OPTION = re.compile(
    "|".join(
        [
            *(re.escape(phrase) for phrase in sorted(_PHRASES, key=len, reverse=True)),
            r"--(?P<listing>[a-z][a-z-]*) (?P<values>\w+(?:,\w+)+)",
            r"--(?P<option>[a-z][a-z-]*)(?: (?=(?:[A-Z]+|[\d.]*\d)(?!\w)))?",
        ]
    )
)


def in_python(text: str) -> str:
    """Return a message in the words of Python."""
    pieces = _COMMANDS.split(text)
    pieces[::2] = [_OPTION.sub(_argument, piece) for piece in pieces[::2]]
    return "".join(pieces)


def key_in_python(key: str) -> str:
    """Return the argument for the key of a message, such as ``--by``."""
    if not key.startswith("--"):
        return _KEYS.get(key, key)
    return name_of(key.removeprefix("--"))


def name_of(option: str) -> str:
    """Return the argument's name for an option without its dashes."""
    return _NAMES.get(option, option.replace("-", "_"))


def _argument(match: re.Match[str]) -> str:
    if match["values"]:
        values = [v if v.isdecimal() else f'"{v}"' for v in match["values"].split(",")]
        return f"{name_of(match['listing'])}=[{', '.join(values)}]"
    return _PHRASES.get(match[0]) or f"{name_of(match['option'])}="
