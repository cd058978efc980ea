"""What a sweep file could say instead, as messages show it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from manyseed.analysis.counts import some
from manyseed.jobs import datasets
from manyseed.jobs.hparams import Hparam
from manyseed.orchestrator.errors import toml_key, toml_value
from manyseed.orchestrator.grids.sweepfile import SweepFile

_NAMED = 6


def needed(table: str, options: Mapping[str, Any]) -> Iterator[str]:
    """Yield what to do so that a table has options; None stands for one that it must not have."""
    for option, value in options.items():
        if value is not None:
            yield f"add to {table}: {option} = {toml_value(value)}"
        elif option == "snapshots":
            yield f"take {option} out of {table}: keep.members says what is kept of members"
        else:
            yield f"take {option} out of {table}"


def listed_example(first: Hparam) -> str:
    """Return a list of a grid as a file might have it."""
    return f"{first.name} = [{toml_value(first.default)}, …]"


def crossed(pairs: list[tuple[str, str]]) -> str:
    """Return pairs of a dataset and a classifier as messages name them."""
    return some([f"{classifier} × {dataset}" for dataset, classifier in pairs], _NAMED)


def rules_without(pairs: list[tuple[str, str]], asked: Iterable[tuple[str, str]]) -> str:
    """Return the rules that leave pairs out of those that are asked for, one per classifier."""
    possible = {classifier for dataset, classifier in asked if (dataset, classifier) not in pairs}
    rules = []
    for name in dict.fromkeys(classifier for _, classifier in pairs):
        found = [dataset for dataset, classifier in pairs if classifier == name]
        rules.append({"classifier": name} | ({"dataset": found} if name in possible else {}))
    return ", ".join(map(toml_value, rules))


def is_source(name: str) -> bool:
    """Whether a name is that of a source, and needs no table."""
    return ":" in name or name in datasets.bare_names()


def near_dataset(name: str, sweep: SweepFile) -> str:
    """Say what a name that is no dataset may have meant."""
    whole = {known.partition(":")[2]: known for known in datasets.names()}
    whole |= {
        known: known
        for known in (*datasets.names(), *datasets.bare_names(), *(set(sweep.dataset) - {name}))
    }
    near = difflib.get_close_matches(name, whole, n=1)
    hint = f'did you mean "{whole[near[0]]}"? ' if near else ""
    return (
        f'{hint}A dataset is a source such as "sklearn:digits" or "openml:vehicle@2", '
        f"a suite's dataset, or a table [dataset.{toml_key(name)}]"
    )
