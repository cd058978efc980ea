"""What `jobs` says of the names and values of a sweep file, asked once for each.

A cell's description is put together from these answers: each axis resolves by itself, given the
dataset and the classifier.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from jobs import classifiers, datasets, hparams
from jobs.cells import ResolvedCell, resolve_cell
from jobs.classifiers import ClassifierInfo
from jobs.datasets import DatasetInfo
from jobs.hparams.search import SPACE_VERSION
from orchestrator.errors import UserError, nearest, toml_value
from orchestrator.grids.sweepfile import SweepFile

T = TypeVar("T")

_NAMED = 6


@dataclass(frozen=True, slots=True)
class Pair:
    """A classifier on a dataset, and what its search is where hparams are tuned."""

    seed: int
    dataset: DatasetInfo
    classifier: ClassifierInfo
    search: Mapping[str, Any]

    def resolve(self, hparams_of: str, **axes: Any) -> ResolvedCell:
        """Resolve one combination.

        Parameters
        ----------
        hparams_of : str
            ``default`` or ``tuned``: a tuned cell holds the search, and beside it the hparams that
            the file fixes; what is found is no part of the identity.
        **axes
            As `jobs.cells.resolve_cell` takes them.

        Raises
        ------
        ValueError
        """
        scheme = axes.pop("perturb_hparams", "none")
        if hparams_of == "default":
            return resolve_cell(
                self.seed, self.dataset, self.classifier, perturb_hparams=scheme, **axes
            )
        if self.classifier.defaults == "library":
            raise ValueError(
                f'{self.classifier.name} has defaults = "library": a search has no use for them'
            )
        found = resolve_cell(self.seed, self.dataset, self.classifier, **axes)
        # around anchors that are not known yet, any scheme may move any hparam
        cell = replace(found.cell, hparams=self.search, perturb_hparams=hparams.canonical(scheme))
        return replace(found, cell=cell, identical=False)

    def takes(self, hparams_of: str, **axes: Any) -> bool:
        """Whether a combination can be resolved."""
        try:
            self.resolve(hparams_of, **axes)
        except ValueError:
            return False
        return True


class Resolver:
    """Asks `jobs` about a sweep file, and makes user errors of its refusals."""

    def __init__(self, sweep: SweepFile, path: Path) -> None:
        self._sweep, self._path = sweep, path
        self.datasets: dict[str, DatasetInfo] = {}
        self._pairs: dict[tuple[str, str], Pair] = {}
        self._check_tables()

    def dataset(self, name: str, where: str) -> DatasetInfo:
        """Return what is known of a dataset that the grid at `where` names.

        Raises
        ------
        UserError
        """
        if name not in self.datasets:
            if name not in self._sweep.dataset and not _is_source(name):
                raise UserError(
                    "unknown dataset",
                    file=self._path,
                    key=f"{where}.dataset",
                    value=name,
                    remedy=_near_dataset(name, self._sweep),
                )
            self.datasets[name] = self._dataset(name, f"{where}.dataset")
        return self.datasets[name]

    def _dataset(self, name: str, key: str) -> DatasetInfo:
        table = self._sweep.dataset.get(name)
        if table is None:
            return self._asked(lambda _: datasets.resolve(name), {}, key, name)
        source = table.source or name
        if table.source is None and not _is_source(name):
            raise UserError(
                "this key is missing",
                file=self._path,
                key=f"dataset.{toml_key(name)}.source",
                remedy=f'add source = "…"; {_near_dataset(name, self._sweep)}',
            )
        return self._asked(
            lambda options: datasets.resolve(source, **options),
            table.options(),
            f"dataset.{toml_key(name)}",
            source,
            "source",
        )

    def resolve_pairs(self, names: Iterable[tuple[str, str]], where: str) -> None:
        """Resolve the datasets and classifiers that a grid combines.

        Raises
        ------
        UserError
            Also where classifiers cannot be trained on datasets: all of these are named.
        """
        impossible: dict[str, list[tuple[str, str]]] = {}
        asked = dict.fromkeys(names)
        for dataset, classifier in asked:
            if (dataset, classifier) not in self._pairs:
                try:
                    self._pairs[dataset, classifier] = self._pair(dataset, classifier, where)
                except _ImpossibleError as error:
                    impossible.setdefault(str(error), []).append((dataset, classifier))
        if impossible:
            pairs = [pair for found in impossible.values() for pair in found]
            raise UserError(
                "; ".join(f"{_crossed(found)}: {why}" for why, found in impossible.items()),
                file=self._path,
                key=where,
                remedy=f"or leave them out: exclude = [{_rules(pairs, asked)}]",
            )

    def pair(self, dataset: str, classifier: str) -> Pair:
        """Return a classifier on a dataset, which `resolve_pairs` has resolved."""
        return self._pairs[dataset, classifier]

    def _pair(self, dataset: str, classifier: str, where: str) -> Pair:
        table = self._sweep.classifier.get(classifier)
        options = {} if table is None else table.options()
        kind = classifier if table is None or table.kind is None else table.kind
        if kind not in classifiers.names():
            raise UserError(
                "unknown classifier",
                file=self._path,
                key=f"{where}.classifier",
                value=classifier,
                remedy=nearest(classifier, {*classifiers.names(), *self._sweep.classifier}),
            )
        info = self.datasets[dataset]

        def ask(given: dict[str, Any]) -> ClassifierInfo:
            return classifiers.resolve(kind, given, info)

        impossible = _refusal(ask, options)
        if impossible is not None and _refusal(ask, {}) == impossible:
            raise _ImpossibleError(impossible)
        resolved = self._asked(ask, options, f"classifier.{toml_key(classifier)}")
        fixed = options.get("hparams", {})
        search: dict[str, Any] = {name: resolved.hparams[name] for name in fixed}
        search["tuned"] = {"draws": self._sweep.tune.draws, "space": SPACE_VERSION}
        return Pair(self._sweep.seed, info, replace(resolved, name=classifier), search)

    def axis(self, names: Mapping[str, str], where: str, axis: str, value: Any) -> ResolvedCell:
        """Resolve one axis' value, all other axes at their defaults.

        Parameters
        ----------
        names : mapping
            The dataset, the classifier and the hparams that it is combined with.

        Raises
        ------
        UserError
        """
        pair = self.pair(names["dataset"], names["classifier"])
        asked = {} if axis == "hparams" else {axis: value}
        try:
            return pair.resolve(names["hparams"], **asked)
        except ValueError as error:
            by = "dataset" if axis == "train_fraction" else "classifier"
            rule = toml_value({by: names[by], axis: value})
            elsewhere = any(each.takes(names["hparams"], **asked) for each in self._pairs.values())
            raise UserError(
                str(error),
                file=self._path,
                key=f"{where}.{axis}",
                value=value,
                remedy=f"or leave these runs out: exclude = [{rule}]" if elsewhere else None,
            ) from None

    def unused(self, grids: Mapping[str, set[str]]) -> list[str]:
        """Return the file's tables that no grid uses."""
        return [
            f"{kind}.{toml_key(name)}"
            for kind, tables in (
                ("dataset", self._sweep.dataset),
                ("classifier", self._sweep.classifier),
            )
            for name in tables
            if name not in grids[kind]
        ]

    def _check_tables(self) -> None:
        for name, table in self._sweep.classifier.items():
            kind = table.kind or name
            if kind not in classifiers.names():
                raise UserError(
                    "unknown classifier",
                    file=self._path,
                    key=f"classifier.{toml_key(name)}" + (".kind" if table.kind else ""),
                    value=kind,
                    remedy=f"{nearest(kind, classifiers.names())}; "
                    'a name of your own needs kind = "…"',
                )
            if name in classifiers.names() and kind != name:
                raise UserError(
                    f"{name} is a classifier of its own and cannot be of another kind",
                    file=self._path,
                    key=f"classifier.{toml_key(name)}.kind",
                    value=kind,
                    remedy="give the table another name",
                )
        for name in self._sweep.dataset:
            self.datasets[name] = self._dataset(name, f"dataset.{toml_key(name)}")

    def _asked(
        self,
        ask: Callable[[dict[str, Any]], T],
        options: dict[str, Any],
        key: str,
        source: Any = None,
        source_key: str | None = None,
    ) -> T:
        """Ask `jobs`; a refusal becomes an error at the option that is to blame."""
        try:
            return ask(options)
        except (ValueError, TypeError) as error:
            message = str(error)
        if _refusal(ask, {}) != message and (blamed := _blamed(ask, options, message)):
            part, value, said = blamed
            raise UserError(said, file=self._path, key=f"{key}.{part}", value=value)
        if source_key:
            raise UserError(message, file=self._path, key=f"{key}.{source_key}", value=source)
        if source is not None:
            raise UserError(message, file=self._path, key=key, value=source)
        raise UserError(message, file=self._path, key=key)


def _blamed(
    ask: Callable[[dict[str, Any]], Any], options: dict[str, Any], message: str
) -> tuple[str, Any, str] | None:
    """Return the option that is to blame for a refusal, its value, and what is said of it.

    That is one that is refused by itself, else one whose value the refusal names, else one without
    which nothing is refused.
    """
    if _refusal(ask, {}) is None:
        for name, value in options.items():
            parts = {name: (value, value)}
            if isinstance(value, Mapping) and name == "hparams":
                parts = {f"{name}.{inner}": (each, {inner: each}) for inner, each in value.items()}
            for part, (shown, given) in parts.items():
                if (said := _refusal(ask, {name: given})) is not None:
                    return part, shown, said
    named = [name for name, value in options.items() if repr(value) in message]
    for name in sorted(named, key=lambda name: -len(repr(options[name]))) or options:
        others = {other: options[other] for other in options if other != name}
        if name in named or _refusal(ask, others) is None:
            return name, options[name], message
    return None


class _ImpossibleError(Exception):
    """A classifier cannot be trained on a dataset, whatever its options."""


def _crossed(pairs: list[tuple[str, str]]) -> str:
    shown = [f"{classifier} × {dataset}" for dataset, classifier in pairs[:_NAMED]]
    more = f" and {len(pairs) - _NAMED} more" if len(pairs) > _NAMED else ""
    return ", ".join(shown) + more


def _rules(pairs: list[tuple[str, str]], asked: Iterable[tuple[str, str]]) -> str:
    """Return the rules that leave pairs out of those that are asked for, one a classifier."""
    possible = {classifier for dataset, classifier in asked if (dataset, classifier) not in pairs}
    rules = []
    for name in dict.fromkeys(classifier for _, classifier in pairs):
        found = [dataset for dataset, classifier in pairs if classifier == name]
        rules.append({"classifier": name} | ({"dataset": found} if name in possible else {}))
    return ", ".join(map(toml_value, rules))


def toml_key(name: str) -> str:
    """Return a name as it stands in a table's header."""
    plain = name.replace("-", "").replace("_", "")
    return name if plain.isalnum() and plain.isascii() else toml_value(name)


def _refusal(ask: Callable[[dict[str, Any]], Any], options: dict[str, Any]) -> str | None:
    try:
        ask(options)
    except (ValueError, TypeError) as error:
        return str(error)
    return None


def _is_source(name: str) -> bool:
    return ":" in name or name in datasets.bare_names()


def _near_dataset(name: str, sweep: SweepFile) -> str:
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
