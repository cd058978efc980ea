"""The table of one's own code in a sweep file that ``manyseed init`` writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from manyseed.analysis.counts import counted
from manyseed.jobs.classifiers.record import OPTIONS
from manyseed.jobs.own.network import TRAINED_BY
from manyseed.jobs.own.table import LOOP, SCORES, TABLE, form_of
from manyseed.orchestrator.errors import command, toml_key, toml_value
from manyseed.orchestrator.grids.firstrun import FirstRun
from manyseed.orchestrator.grids.modelfile import (
    arguments,
    loop_beside,
    space,
    varied,
    with_hparam,
)

_WIDTH = 27


_NEEDED = {
    "scores": "as the code returns",
    "dense": "imputes missing values, which the code does not take; standardises, one-hot encodes",
    "frame": "a data frame, with these names of columns",
}
"""What keys of one's own code, or values of `encode`, are for, where a probe asked for them."""


def needed(key: str, value: Any) -> str:
    """Say what a key that a probe asked for is for."""
    return _NEEDED[str(value) if key == "encode" else key]


def table_lines(first: FirstRun, table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a table, with comments on the keys that it may have besides."""
    if said := by_loop(first, table):
        yield f"# {said}"
    yield f"[classifier.{toml_key(first.models[0])}]"
    params = arguments(table)
    grid = varied(params)
    yield from (line(key, value) for key, value in table.items())
    yield from (line(key, value, needed(key, value)) for key, value in first.needs.items())
    if "module" in table:
        yield from _of_loop(first)
    if "scores" not in first.needs and (form := form_of(table)) in ("train", "command"):
        usual, *others = SCORES[form]
        last = toml_value(others.pop())
        remark = f"by default; {', '.join(map(toml_value, others))} or {last} say otherwise"
        yield f"# scores  = {toml_value(usual)}          # {remark}"
    offered = {"timeout": 600, "encode": "dense"} if "command" in table else {}
    offered |= {} if params or "command" in table else {"params": {}}
    offered = {key: value for key, value in offered.items() if key not in first.needs}
    yield from (f"# {line(key, value, TABLE[key].about)}" for key, value in offered.items())
    if params:
        yield f"# {line('params', params, 'its arguments, with their defaults')}"
    if grid:
        remark = 'with params: values tried one by one, where a grid has hparams = ["grid"]'
        yield f"# {line('grid', grid, remark)}"
    if ranges := space(table):
        instead = "" if params.keys().isdisjoint(ranges) else "  # then not in params"
        yield f"# space   = {toml_value(ranges)}{instead}"
        if "command" in table:  # which must name each hparam
            text = with_hparam(str(table["command"]), next(iter(ranges)))
            yield f"# then: command = {toml_value(text)}"


def by_loop(first: FirstRun, table: Mapping[str, Any]) -> str:
    """Say how a module is trained, and that a loop of its file is not used; else empty."""
    if "module" not in table:
        return ""
    epochs = next(iter(first.epochs.values()), TABLE["epochs"].default)
    rate = next(each.default for each in TRAINED_BY if each.name == "lr")
    how = f"{counted(epochs, 'epoch')} of {LOOP['optimizer'].title()}, lr {rate:g}"
    said = f"Trained by manyseed's loop: {how}, {LOOP['schedule']}"
    if file := loop_beside(table):
        said += f"; {file}'s own loop is not used: {command('docs', 'own')}#a-training-function"
    return said


def _of_loop(first: FirstRun) -> Iterator[str]:
    """Yield lines with the keys of the loop that trains a module."""
    usual = TABLE["epochs"].default
    epochs = next(iter(first.epochs.values()), usual)
    fewer = f"fewer than the usual {usual}, so that all ends within two minutes"
    text = line("epochs", epochs, "by default" if epochs == usual else fewer)
    yield f"# {text}" if epochs == usual else text
    for key, value in LOOP.items():
        others = [toml_value(word) for word in OPTIONS[key].words if word != value]
        instead = f"{', '.join(others[:-1])} or {others[-1]}"
        yield f"# {line(key, value, f'by default; or {instead}')}"


def line(key: str, value: Any, remark: str = "") -> str:
    """Return a key with its value, and a remark as a comment."""
    text = f"{key} = {toml_value(value)}"
    return f"{text:<{_WIDTH - 1}} # {remark}" if remark else text
