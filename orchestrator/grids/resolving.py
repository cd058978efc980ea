"""Resolve the names and values of a sweep file by asking `jobs`, once for each.

A cell's description is composed of the answers, as each axis resolves independently, given the
dataset and the classifier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from manyseed.jobs import classifiers, datasets, hparams
from manyseed.jobs.cells import ResolvedCell, resolve_cell
from manyseed.jobs.checks import Refused, UnknownOption, similar
from manyseed.jobs.classifiers import ClassifierInfo, Unsuitable
from manyseed.jobs.classifiers.record import NoHparam
from manyseed.jobs.datasets import DatasetInfo
from manyseed.jobs.datasets.function import KEPT
from manyseed.jobs.datasets.function import KIND as FUNCTION
from manyseed.jobs.datasets.function import OPTION as DATA
from manyseed.jobs.datasets.parts import TEST_FILE
from manyseed.jobs.ensembling import methods
from manyseed.jobs.hparams.grid import is_written, read, written
from manyseed.jobs.hparams.perturb import SPACE_VERSION
from manyseed.orchestrator.errors import (
    UserError,
    nearest,
    refused,
    toml_key,
    toml_value,
    unknown_key,
)
from manyseed.orchestrator.grids.grid import GRID
from manyseed.orchestrator.grids.own import OwnCode
from manyseed.orchestrator.grids.remedies import (
    crossed,
    is_source,
    listed_example,
    near_dataset,
    needed,
    rules_without,
)
from manyseed.orchestrator.grids.sweepfile import DatasetTable, SweepFile

SOURCE = "source"
_FORMS = " or ".join(f'{form} = "…"' for form in classifiers.FORMS)


@dataclass(frozen=True, slots=True)
class Pair:
    """A classifier on a dataset, and its search for tuned hparams."""

    seed: int
    dataset: DatasetInfo
    classifier: ClassifierInfo
    search: Mapping[str, Any]

    def resolve(self, hparams_of: str, **axes: Any) -> ResolvedCell:
        """Resolve one combination.

        Parameters
        ----------
        hparams_of : str
            ``default``, a configuration, or ``tuned``. A tuned cell holds the search and the
            hparams that the file fixes; the search's result is not part of the identity.
        **axes
            As in `jobs.cells.resolve_cell`.

        Raises
        ------
        Refused
        """
        scheme = axes.pop("perturb_hparams", "none")
        if hparams_of == GRID:
            raise Refused("hparams", hparams_of, f"{self.classifier.name} has no hparam grid")
        if hparams_of != "tuned":
            model = self.classifier
            model = model.at(hparams_of) if is_written(hparams_of) else model
            return resolve_cell(self.seed, self.dataset, model, perturb_hparams=scheme, **axes)
        if self.classifier.defaults == "library":
            reason = 'has defaults = "library", which a search does not use'
            raise Refused("hparams", hparams_of, f"{self.classifier.name} {reason}")
        resolved = resolve_cell(self.seed, self.dataset, self.classifier, **axes)
        # the anchors are not known yet, so any scheme may move any hparam
        scheme = hparams.canonical(scheme)
        cell = replace(resolved.cell, hparams=self.search, perturb_hparams=scheme)
        return replace(resolved, cell=cell, differing=(*resolved.differing, "hparams"))

    def shown(self, axis: str, value: Any) -> Any:
        """Return a value of dataset, classifier or hparams as results show it."""
        if axis == "hparams" and is_written(value):
            return written(read(self.classifier.record.space, value))
        return value

    def takes(self, hparams_of: str, **axes: Any) -> bool:
        """Return whether a combination can be resolved."""
        if hparams_of == GRID and "grid" in self.classifier.options:
            return True
        try:
            self.resolve(hparams_of, **axes)
        except Refused:
            return False
        return True


def _exists(file: Path) -> bool:
    try:
        file.stat()
    except (OSError, ValueError):  # also for names that no file can have
        return False
    return True


class Resolver:
    """Asks `jobs` about a sweep file, and turns its refusals into user errors."""

    def __init__(self, sweep: SweepFile, path: Path, own: OwnCode) -> None:
        self._sweep, self._path, self._own = sweep, path, own
        self.datasets: dict[str, DatasetInfo] = {}
        self.configurations: dict[str, tuple[str, ...]] = {}
        self._pairs: dict[tuple[str, str], Pair] = {}
        self._methods: dict[str, Mapping[str, Any] | None] = {}
        self._check_tables()

    def _error(self, message: str, key: str, **details: Any) -> UserError:
        return UserError(message, file=self._path, key=key, **details)

    def dataset(self, name: str, where: str) -> DatasetInfo:
        """Return the information on a dataset that the grid at `where` names.

        Raises
        ------
        UserError
        """
        if name not in self.datasets:
            key = f"{where}.dataset"
            if name not in self._sweep.dataset and not is_source(name):
                remedy = near_dataset(name, self._sweep)
                raise self._error("unknown dataset", key, value=name, remedy=remedy)
            self.datasets[name] = self._dataset(name, key)
        return self.datasets[name]

    def _dataset(self, name: str, key: str) -> DatasetInfo:
        table = self._sweep.dataset.get(name)
        if table is None:
            try:
                return datasets.resolve(name)
            except Refused as error:
                raise refused(error, file=self._path, key=key, value=name) from None
        if table.data is not None:
            return self._function(name, table)
        source = table.source or name
        key = f"dataset.{toml_key(name)}"
        if table.source is None and not is_source(name):
            if near := [one for one in table.options() if similar(one, ["source"])]:
                where = f"{key}.{toml_key(near[0])}"
                value = table.options()[near[0]]
                raise self._error(
                    "unknown key", where, value=value, remedy='did you mean "source"?'
                )
            remedy = f'add source = "…"; {near_dataset(name, self._sweep)}'
            raise self._error("this key is missing", f"{key}.source", remedy=remedy)
        try:
            return datasets.resolve(source, **table.options())
        except Refused as error:
            raise self._refused(error, key, {"source": source, **table.options()}) from None

    def _function(self, name: str, table: DatasetTable) -> DatasetInfo:
        """Resolve a dataset that a user's function returns."""
        key = f"dataset.{toml_key(name)}"
        if table.source is not None:
            message, remedy = "the table also has a source", "remove one of the two"
            raise self._error(message, f"{key}.{DATA}", value=table.data, remedy=remedy)
        options = table.options()
        try:
            returned = self._own.data(table.data, options)
            given = {**returned["given"], **options, KEPT: returned[KEPT]}
            return datasets.resolve(f"{FUNCTION}:{table.data}", **given)
        except Refused as error:
            raise self._refused(error, key, {DATA: table.data, **options}) from None

    def resolve_pairs(self, names: Iterable[tuple[str, str]], where: str) -> None:
        """Resolve the datasets and classifiers that a grid combines.

        Raises
        ------
        UserError
            Also if classifiers cannot be trained on datasets; then all such pairs are named.
        """
        impossible: dict[str, list[tuple[str, str]]] = {}
        asked = dict.fromkeys(names)
        for dataset, classifier in asked:
            if (dataset, classifier) not in self._pairs:
                try:
                    self._pairs[dataset, classifier] = self._pair(dataset, classifier, where)
                except Unsuitable as error:
                    impossible.setdefault(error.reason, []).append((dataset, classifier))
        if impossible:
            pairs = [pair for listed in impossible.values() for pair in listed]
            message = "; ".join(f"{crossed(listed)}: {why}" for why, listed in impossible.items())
            remedy = f"or leave them out: exclude = [{rules_without(pairs, asked)}]"
            raise self._error(message, where, remedy=remedy)

    def pair(self, dataset: str, classifier: str) -> Pair:
        """Return a classifier on a dataset, which `resolve_pairs` has resolved."""
        return self._pairs[dataset, classifier]

    def _pair(self, dataset: str, classifier: str, where: str) -> Pair:
        table = self._sweep.classifier.get(classifier)
        options = {} if table is None else table.options()
        kind = classifiers.kind_of(classifier, table.kind if table else None, options)
        if not classifiers.is_known(kind, options):
            key = f"{where}.classifier"
            remedy = nearest(classifier, (*classifiers.names(), *self._sweep.classifier))
            raise self._error("unknown classifier", key, value=classifier, remedy=remedy)
        info = self.datasets[dataset]
        try:
            if kind in classifiers.FORMS:
                resolved = self._own.resolve(classifier, options, info)
            else:
                resolved = classifiers.resolve(kind, options, info)
        except Unsuitable:
            raise
        except Refused as error:
            raise self._refused(error, f"classifier.{toml_key(classifier)}", options) from None
        fixed = {hparam.name for hparam in resolved.record.space if hparam.structural}
        fixed |= {*options.get("hparams", {})}
        search: dict[str, object] = {name: resolved.hparams[name] for name in sorted(fixed)}
        search["tuned"] = {"draws": self._sweep.tune.draws, "space": SPACE_VERSION}
        return Pair(self._sweep.seed, info, replace(resolved, name=classifier), search)

    def axis(self, names: Mapping[str, str], where: str, axis: str, value: Any) -> ResolvedCell:
        """Resolve one value of an axis, with all other axes at their defaults.

        Parameters
        ----------
        names : mapping
            The dataset, the classifier and the hparams.

        Raises
        ------
        UserError
        """
        pair = self.pair(names["dataset"], names["classifier"])
        asked: dict[str, object] = {} if axis == "hparams" else {axis: value}
        if axis == "ensembling":
            asked = {axis: self.method(value, f"{where}.{axis}")}
        try:
            return pair.resolve(names["hparams"], **asked)
        except Refused as error:
            of_images = axis in ("augment", "test_augment")
            of_data = axis == "train_fraction" or (of_images and not pair.dataset.image)
            by = "dataset" if of_data else "classifier"
            rule = toml_value({by: names[by], axis: value})
            elsewhere = any(each.takes(names["hparams"], **asked) for each in self._pairs.values())
            remedies = []
            table = f"[classifier.{toml_key(names['classifier'])}]"
            if value == GRID and axis == "hparams":
                first = pair.classifier.record.space[0]
                remedies.append(f"add to {table}: grid = {{ {listed_example(first)} }}")
            remedies += needed(table, error.needs)
            if elsewhere:
                remedies.append(f"or leave these runs out: exclude = [{rule}]")
            raise refused(
                error,
                file=self._path,
                key=f"{where}.{axis}",
                value=value,
                remedy="\n  ".join(remedies) or None,
            ) from None

    def method(self, name: str, key: str) -> Mapping[str, Any] | None:
        """Return the description of an ensembling method that the file names; None for ``none``.

        Raises
        ------
        UserError
        """
        if name in self._methods:
            return self._methods[name]
        table = self._sweep.ensembling.get(name)
        kind = name if table is None or table.kind is None else table.kind
        if kind not in (*methods.SAME_AS_NONE, *methods.names()):
            known = (*methods.SAME_AS_NONE, *methods.names(), *self._sweep.ensembling)
            where = key if table is None else f"ensembling.{toml_key(name)}.kind"
            remedy = nearest(kind, known)
            raise self._error("unknown ensembling method", where, value=kind, remedy=remedy)
        options = {} if table is None else table.options()
        try:
            method = methods.resolve(kind, options)
        except Refused as error:
            raise self._refused(error, f"ensembling.{toml_key(name)}", options) from None
        for other, known_method in self._methods.items():
            if method is not None and known_method == method:
                message = f"is the same as {other}: two names for one method"
                remedy = "remove one of them, or give it other options"
                raise self._error(message, f"ensembling.{toml_key(name)}", remedy=remedy)
        self._methods[name] = method
        return method

    def is_single(self, name: str) -> bool:
        """Return whether an ensembling is a single network that sees test sets several times."""
        table = self._sweep.ensembling.get(name)
        return (name if table is None or table.kind is None else table.kind) == methods.SINGLE

    def unused(self, grids: Mapping[str, set[str]]) -> list[str]:
        """Return the file's tables that no grid uses."""
        return [
            f"{kind}.{toml_key(name)}"
            for kind, tables in (
                ("dataset", self._sweep.dataset),
                ("classifier", self._sweep.classifier),
                ("ensembling", self._sweep.ensembling),
            )
            for name in tables
            if name not in grids[kind]
        ]

    def _check_tables(self) -> None:
        rename = "give the table another name"
        for name, method in self._sweep.ensembling.items():
            key = f"ensembling.{toml_key(name)}"
            kind = method.kind or name
            if name in (*methods.SAME_AS_NONE, *methods.names()) and kind != name:
                message = f"{name} is the name of a method, which cannot have another kind"
                raise self._error(message, f"{key}.kind", value=kind, remedy=rename)
            self.method(name, key)
        for name, table in self._sweep.classifier.items():
            key, options = f"classifier.{toml_key(name)}", table.options()
            kind = classifiers.kind_of(name, table.kind, options)
            if table.kind in classifiers.FORMS or not classifiers.is_known(kind, options):
                near = nearest(kind, classifiers.names())
                remedy = f'{near}; a name of your own needs kind = "…" or {_FORMS}'
                where = f"{key}.kind" if table.kind else key
                raise self._error("unknown classifier", where, value=kind, remedy=remedy)
            if name in classifiers.names() and kind != name:
                option = kind if kind in classifiers.FORMS else "kind"
                message = f"{name} is the name of a classifier, which cannot have another kind"
                value = options.get(option, kind)
                raise self._error(message, f"{key}.{option}", value=value, remedy=rename)
            try:
                if configurations := classifiers.configurations(kind, options):
                    self.configurations[name] = configurations
            except Refused as error:
                raise self._refused(error, key, options) from None
        for name in self._sweep.dataset:
            self.datasets[name] = self._dataset(name, f"dataset.{toml_key(name)}")

    def _beside(self, key: str, value: Any) -> str | None:
        """Return the path that was meant if a file is beside the sweep file, as TOML."""
        if key not in (SOURCE, TEST_FILE) or not isinstance(value, str):
            return None
        start = "file:" if key == SOURCE else ""
        file = Path(value.removeprefix(start))
        meant = self._path.parent / file
        if not value.startswith(start) or _exists(file) or not _exists(meant):
            return None
        return toml_value(f"{start}{meant}")

    def _refused(self, error: Refused, table: str, given: Mapping[str, Any]) -> UserError:
        """Return the user error for a refused option of a table with these options."""
        parts = error.option.split(".", 1)
        inner = given.get(parts[0])
        if isinstance(inner, Mapping) and parts[-1] not in inner:
            parts = error.option.split(".")  # such as space.lr.low, rather than a quoted name
        key = ".".join([table, *map(toml_key, parts)])
        if isinstance(error, UnknownOption):
            return unknown_key(error, file=self._path, key=key)
        value: Any = given
        for part in parts:
            value = value.get(part) if isinstance(value, Mapping) else None
        remedies = [*needed(f"[{table}]", error.needs)]
        if isinstance(error, NoHparam):
            remedies.append("give each value a classifier of its own")
        if (beside := self._beside(error.option, value)) is not None:
            remedies.append(f"that file is beside the sweep file: {error.option} = {beside}")
        if value is None and error.value is not None:
            remedies.append("this is its default: give another value")
        written = {} if value is None else {"value": value}
        remedy = "\n  ".join(remedies) or None
        return refused(error, file=self._path, key=key, remedy=remedy, **written)
