"""What there is instead of a verb, or of an option of one, that does not exist."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher
from typing import Any

from manyseed.analysis.counts import some
from manyseed.orchestrator.errors import command

_KEYS = ("runs", "repeats", "seed", "epochs", "vary", "test", "train_fraction")
_WIDTHS = ("within", "precision", "tolerance", "width", "half_width", "ci", "margin")
_ASK = ("answers", "query", "plot", "report", "analyze")
_OF_METRIC = "query DIR -t runs --by dataset,classifier --columns balanced_accuracy --agg mean,sd"
_COLUMNS = ("dataset", "classifier", "vary", "train_fraction", "epoch")


@contextmanager
def instead_told(ctx: Any) -> Iterator[None]:
    """Let the error about an unknown option say what there is instead."""
    try:
        yield
    except Exception as error:  # of click, or of typer's own copy of it
        near = getattr(error, "possibilities", None)
        name = getattr(error, "option_name", "")
        is_meant = any(one.startswith(name) or name.startswith(one) for one in near or ())
        if near is not None and not is_meant and (told := _instead(ctx, name)):
            error.message += told  # type: ignore[attr-defined]
            error.possibilities = []  # type: ignore[attr-defined]
        raise


@contextmanager
def asking_told(words: Sequence[str]) -> Iterator[None]:
    """Let the error about an unknown verb say how a question, or a table, of that name is asked."""
    try:
        yield
    except Exception as error:  # of click, or of typer's own copy of it
        message, _, near = (getattr(error, "message", None) or "").partition(" Did you mean")
        is_slip = any(_is_slip(words[0], verb) for verb in re.findall(r"'(\w+)'", near))
        if message and not is_slip and (how := _asked(*words[:2])):
            error.message = f"{message} Ask: {how}"  # type: ignore[attr-defined]
        raise


def _is_slip(word: str, verb: str) -> bool:
    """Return whether a word is a verb with a slip: nothing is then imported to see what else."""
    return abs(len(word) - len(verb)) < 2 and SequenceMatcher(None, word, verb).ratio() > 0.8


def _asked(verb: str, directory: str = "DIR") -> str:
    """Return the command that answers a question, or shows a table, of this name."""
    from manyseed.analysis.tables.schema import table_names
    from manyseed.orchestrator.results.questions.registry import known

    directory = "DIR" if directory.startswith("-") else directory
    if verb in known():
        return command("answers", directory, verb)
    return command("query", directory, "-t", verb) if verb in table_names() else ""


def _instead(ctx: Any, option: str) -> str:
    """Return what does the same as an option that a verb does not have, or which verbs have it."""
    flags = {flag for one in ctx.command.params for flag in one.opts}
    name = option.lstrip("-").replace("-", "_")
    if name == "local" and "--cluster" in flags:
        return "; use --cluster local"
    if name in _WIDTHS and "--accuracy" in flags:
        return "; use --accuracy 0.01, half of the interval's width; or --consistency"
    if name in _KEYS and "--set" in flags:
        key = "classifier.NAME.epochs" if name == "epochs" else name
        return f"; it is a key of the file: --set {key}=VALUE"
    if (name in _COLUMNS or name.startswith("perturb_")) and {"--where", "--only"} & flags:
        return f"; use {'--where' if '--where' in flags else '--only'} \"{name} = 'VALUE'\""
    root = ctx.find_root().command
    if "--why" not in flags and ctx.info_name not in _ASK:
        return ""  # else what asks would be imported
    having = [
        verb
        for verb, params in _options(ctx, root, _ASK)
        if option in params and _takes(verb, name)
    ]
    having.sort(key=lambda verb: not verb.startswith(f"{ctx.info_name} DIR"))
    told = f"; {some(having, 4)} {'has' if len(having) == 1 else 'have'} it" if having else ""
    return f"{told}; between seeds: manyseed {_OF_METRIC}" if name == "metric" else told


def _takes(verb: str, option: str) -> bool:
    """Return whether a verb takes an option by itself, not only beside another one."""
    from manyseed.orchestrator.results.questions.registry import by_itself, known, options

    first, _, question = verb.rpartition(" ")
    if not first.startswith("answers") or question not in known():
        return True
    own = by_itself(known()[question])
    every = {*options(known()[question])}
    return option in own or option not in every


def _options(ctx: Any, group: Any, verbs: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield verbs of a group, and all of its groups, with the flags of each."""
    for verb in verbs:
        one = group.resolve_command(ctx, [verb])[1]
        yield verb, [name for each in one.params for name in each.opts]
        if hasattr(one, "list_commands"):
            within = _options(ctx, one, one.list_commands(ctx))
            yield from ((f"{verb} DIR {name}", found) for name, found in within)
