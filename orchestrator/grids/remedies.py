"""Remedies for sweep files, as messages show them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from manyseed.analysis.counts import some
from manyseed.jobs import classifiers, datasets
from manyseed.jobs.checks import similar
from manyseed.jobs.datasets.tablefile import FORMATS
from manyseed.jobs.hparams import Hparam
from manyseed.orchestrator.errors import meant, toml_key, toml_value
from manyseed.orchestrator.grids.sweepfile import SweepFile

_NAMED = 6


def needed(table: str, options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the steps to give a table these options; None marks one that it must not have."""
    for option, value in options.items():
        if value is not None:
            yield f"add to {table}: {option} = {toml_value(value)}"
        elif option == "snapshots":
            yield f"remove {option} from {table}: keep.members says what is kept of members"
        else:
            yield f"remove {option} from {table}"


def listed_example(first: Hparam) -> str:
    """Return an example of a list in an hparam grid."""
    return f"{first.name} = [{toml_value(first.default)}, …]"


def crossed(pairs: list[tuple[str, str]]) -> str:
    """Return pairs of a dataset and a classifier as messages show them."""
    return some([f"{classifier} × {dataset}" for dataset, classifier in pairs], _NAMED)


def rules_without(pairs: list[tuple[str, str]], asked: Iterable[tuple[str, str]]) -> str:
    """Return exclusion rules that remove these pairs from those asked for, one per classifier."""
    possible = {classifier for dataset, classifier in asked if (dataset, classifier) not in pairs}
    rules = []
    for name in dict.fromkeys(classifier for _, classifier in pairs):
        listed = [dataset for dataset, classifier in pairs if classifier == name]
        rules.append({"classifier": name} | ({"dataset": listed} if name in possible else {}))
    return ", ".join(map(toml_value, rules))


def not_trainable(kinds: Iterable[str]) -> str | None:
    """Return which kinds of classifiers need packages that are not installed here; None if none."""
    kinds = [kind for kind in kinds if classifiers.lacking(kind)]
    lacking = ", ".join(lacking_packages(kinds))
    return f"{', '.join(kinds)} cannot be trained here: {lacking} not installed" if kinds else None


def lacking_packages(kinds: Iterable[str]) -> list[str]:
    """Return the packages that kinds of classifiers need and that are not installed here."""
    return list(dict.fromkeys(name for kind in kinds for name in classifiers.lacking(kind)))


def is_source(name: str) -> bool:
    """Return whether a name is a source, which needs no table."""
    return ":" in name or name in datasets.bare_names()


def near_dataset(name: str, sweep: SweepFile) -> str:
    """Return a remedy for an unknown dataset, with the most similar known name."""
    if Path(name).suffix in FORMATS:
        stem = toml_key(Path(name).stem)
        return f'for a file, add a table [dataset.{stem}] with source = "file:{name}" and target'
    known = (*datasets.names(), *datasets.bare_names(), *(set(sweep.dataset) - {name}))
    full_names = {each.partition(":")[2]: each for each in datasets.names()}
    full_names |= {each: each for each in known}
    near = meant([*dict.fromkeys(full_names[one] for one in similar(name, full_names))])
    hint = f"{near} " if near else ""
    return (
        f'{hint}A dataset is a source such as "sklearn:digits" or "openml:vehicle@2", '
        f"a suite's dataset, or a table [dataset.{toml_key(name)}]"
    )
