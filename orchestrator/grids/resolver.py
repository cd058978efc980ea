"""Resolve the names and values of a sweep file by asking `jobs`, once for each.

A cell's description is composed of the answers, as each axis resolves independently, given the
dataset and the classifier.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from manyseed.analysis.counts import some
from manyseed.jobs import classifiers, datasets, hparams
from manyseed.jobs.cells import ResolvedCell, resolve_cells
from manyseed.jobs.checks import Refused, UnknownOption, did_you_mean_path, similar
from manyseed.jobs.classifiers import ClassifierInfo, Unsuitable
from manyseed.jobs.classifiers.record import NoHparam
from manyseed.jobs.datasets import DatasetInfo
from manyseed.jobs.datasets.function import KEPT
from manyseed.jobs.datasets.function import KIND as FUNCTION
from manyseed.jobs.datasets.function import OPTION as DATA
from manyseed.jobs.datasets.parts import TEST_FILE
from manyseed.jobs.datasets.tablefile import FORMATS
from manyseed.jobs.ensembling import methods
from manyseed.jobs.hparams import Hparam
from manyseed.jobs.hparams.grid import is_written, read, written
from manyseed.jobs.tuning import SEARCH, searched
from manyseed.orchestrator.errors import (
    UserError,
    meant,
    nearest,
    refused,
    toml_key,
    toml_value,
    unknown_key,
)
from manyseed.orchestrator.grids.grid import GRID
from manyseed.orchestrator.grids.misplaced import meant_in_table
from manyseed.orchestrator.grids.own import OwnCode, exists, lying, placed
from manyseed.orchestrator.grids.sweepfile import DatasetTable, SweepFile

_NAMED = 6


def needed(table: str, options: Mapping[str, Any], given: Container[str] = ()) -> Iterator[str]:
    """Yield the steps to give a table these options; None marks one that it must not have.

    `given`: the options that it has.
    """
    for option, value in options.items():
        if value is not None:
            step = "change in" if option in given else "add to"
            step = "write in" if option == "source" else step
            yield f"{step} {table}: {option} = {toml_value(value)}"
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
    if (is_file := Path(name).suffix in FORMATS) or (exists(Path(name)) and Path(name).is_dir()):
        absent = ""
        if not exists(Path(name)):
            near = did_you_mean_path(Path(name)).removeprefix("; ")
            absent = f"there is no file {name} in the working folder; {near}{' ' * bool(near)}"
        stem, target = toml_key(Path(name).stem), " and target" if is_file else ""
        what = "file" if is_file else "folder"
        return f'{absent}for a {what}, add [dataset.{stem}] with source = "file:{name}"{target}'
    known = (*datasets.names(), *datasets.bare_names(), *(set(sweep.dataset) - {name}))
    full_names = {each.partition(":")[2]: each for each in datasets.names()}
    full_names |= {each: each for each in known}
    near = meant([*dict.fromkeys(full_names[one] for one in similar(name, full_names))])
    hint = f"{near} " if near else ""
    return (
        f'{hint}A dataset is a source such as "sklearn:digits" or "openml:vehicle@2", '
        f"a suite's dataset, or a table [dataset.{toml_key(name)}]"
    )


_ESTIMATORS = {
    "randomforest": "sklearn.ensemble:RandomForestClassifier",
    "rf": "sklearn.ensemble:RandomForestClassifier",
    "extratrees": "sklearn.ensemble:ExtraTreesClassifier",
    "gradientboosting": "sklearn.ensemble:GradientBoostingClassifier",
    "decisiontree": "sklearn.tree:DecisionTreeClassifier",
    "logisticregression": "sklearn.linear_model:LogisticRegression",
    "svc": "sklearn.svm:SVC",
    "knn": "sklearn.neighbors:KNeighborsClassifier",
    "kneighbors": "sklearn.neighbors:KNeighborsClassifier",
    "naivebayes": "sklearn.naive_bayes:GaussianNB",
    "gaussiannb": "sklearn.naive_bayes:GaussianNB",
    "lightgbm": "lightgbm:LGBMClassifier",
    "lgbm": "lightgbm:LGBMClassifier",
    "catboost": "catboost:CatBoostClassifier",
}
"""Where other libraries have what people ask for, by its name in small letters alone."""


def _plain(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower()).removesuffix("classifier")


def near_classifier(name: str, known: Iterable[str]) -> str:
    """Return a remedy for an unknown classifier: how an estimator is brought, or what was meant."""
    if entry := _ESTIMATORS.get(_plain(name)):
        table = f"[classifier.{toml_key(name)}]"
        return f'for that estimator, add a table {table} with estimator = "{entry}"'
    own = f'[classifier.{toml_key(name)}] with estimator = "module:name"'
    return f"{nearest(name, known)}\n  for an estimator of your own, add a table {own}"


SOURCE = "source"
_FORMS = " or ".join(f'{form} = "…"' for form in classifiers.FORMS)


@dataclass(frozen=True, slots=True)
class Pair:
    """A classifier on a dataset, and its search for tuned hparams."""

    dataset: DatasetInfo
    classifier: ClassifierInfo
    search: Mapping[str, Any]

    def model(self, hparams_of: str) -> ClassifierInfo:
        """Return the classifier at ``default``, a configuration, or ``tuned``, or raise Refused."""
        if hparams_of == GRID:
            raise Refused("hparams", hparams_of, f"{self.classifier.name} has no hparam grid")
        if hparams_of == "tuned" and self.classifier.defaults == "library":
            reason = 'has defaults = "library", which a search does not use'
            raise Refused("hparams", hparams_of, f"{self.classifier.name} {reason}")
        return self.classifier.at(hparams_of) if is_written(hparams_of) else self.classifier

    def tuned(self, found: ResolvedCell, scheme: str) -> ResolvedCell:
        """Return a tuned cell: it holds the search and the hparams that the file fixes.

        The search's result is not part of the identity. The anchors are not known yet, so any
        scheme may move any hparam.
        """
        cell = replace(found.cell, hparams=self.search, perturb_hparams=hparams.canonical(scheme))
        return replace(found, cell=cell, differing=(*found.differing, "hparams"))

    def shown(self, axis: str, value: Any) -> Any:
        """Return a value of dataset, classifier or hparams as results show it."""
        if axis == "hparams" and is_written(value):
            return written(read(self.classifier.record.space, value))
        return value


@dataclass(frozen=True, slots=True)
class Fit:
    """What a grid asks of a dataset, classifier and hparams, and how it is resolved.

    `names`: the dataset, the classifier and the hparams. `plain`: all axes at their defaults.
    `cells`: for an axis and a value of it, the cell with all other axes at their defaults.
    """

    names: Mapping[str, str]
    pair: Pair
    plain: ResolvedCell
    cells: Mapping[tuple[str, Any], ResolvedCell]


class Resolver:
    """Asks `jobs` about a sweep file, and turns its refusals into user errors."""

    def __init__(self, sweep: SweepFile, path: Path, own: OwnCode) -> None:
        self._sweep, self._path, self._own = sweep, path, own
        self.datasets: dict[str, DatasetInfo] = {}
        self.configurations: dict[str, tuple[str, ...]] = {}
        self.pairs: dict[tuple[str, str], Pair] = {}
        self._methods: dict[str, Mapping[str, Any] | None] = {}
        self._check_tables()

    def _error(self, message: str, key: str, **details: Any) -> UserError:
        return UserError(message, file=self._path, key=key, **details)

    def test_sets(self, names: Iterable[str], where: str) -> list[int | None]:
        """Return how many test sets each dataset of the grid at `where` has; None for any."""
        return [self.dataset(name, where).n_test_sets for name in names]

    def dataset(self, name: str, where: str) -> DatasetInfo:
        """Return the information on a dataset that the grid at `where` names."""
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
                return datasets.resolve(**placed({"source": name}, self._own.sweep))
            except Refused as error:
                remedy = None if self._own.sweep is None else lying(error)
                raise refused(error, file=self._path, key=key, value=name, remedy=remedy) from None
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
        given = {"source": source, **table.options()}
        try:
            return datasets.resolve(**placed(given, self._own.sweep))
        except Refused as error:
            raise self._refused(error, key, given) from None

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

    def _resolve_pairs(self, names: Iterable[tuple[str, str]], where: str) -> None:
        """Resolve the datasets and classifiers that a grid combines."""
        impossible: dict[str, list[tuple[str, str]]] = {}
        asked = dict.fromkeys(names)
        for dataset, classifier in asked:
            if (dataset, classifier) not in self.pairs:
                try:
                    self.pairs[dataset, classifier] = self._pair(dataset, classifier, where)
                except Unsuitable as error:
                    impossible.setdefault(error.reason, []).append((dataset, classifier))
        if impossible:
            pairs = [pair for listed in impossible.values() for pair in listed]
            message = "; ".join(f"{crossed(listed)}: {why}" for why, listed in impossible.items())
            remedy = f"or leave them out: exclude = [{rules_without(pairs, asked)}]"
            raise self._error(message, where, remedy=remedy)

    def _pair(self, dataset: str, classifier: str, where: str) -> Pair:
        table = self._sweep.classifier.get(classifier)
        options = {} if table is None else table.options()
        kind = classifiers.kind_of(classifier, table.kind if table else None, options)
        if not classifiers.is_known(kind, options):
            key = f"{where}.classifier"
            remedy = near_classifier(classifier, (*classifiers.names(), *self._sweep.classifier))
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
        tune = self._sweep.tune
        search[SEARCH] = searched(tune.draws, tune.data, tune.hours)
        return Pair(info, replace(resolved, name=classifier), search)

    def resolve(
        self, asked: Sequence[tuple[Mapping[str, str], Sequence[tuple[str, Any]]]], where: str
    ) -> list[Fit]:
        """Resolve all that a grid asks for, in one pass.

        `asked`: for each dataset, classifier and hparams, the axes' values: pairs of axis and
        value. `where`: the grid's key in the file.
        """
        self._resolve_pairs([(names["dataset"], names["classifier"]) for names, _ in asked], where)
        requests: list[tuple[DatasetInfo, ClassifierInfo, Mapping[str, Any]]] = []
        for names, values in asked:
            pair, hparams_of = self.pairs[names["dataset"], names["classifier"]], names["hparams"]
            try:
                model = pair.model(hparams_of)
            except Refused as error:
                raise self._impossible(error, names, where, "hparams", hparams_of) from None
            requests.append((pair.dataset, model, {}))
            for axis, value in values:
                requests.append((pair.dataset, model, self._axes(hparams_of, axis, value, where)))
        answers = iter(resolve_cells(self._sweep.seed, requests))
        return [self._fit(names, values, answers, where) for names, values in asked]

    def _axes(self, hparams_of: str, axis: str, value: Any, where: str) -> Mapping[str, Any]:
        """Return an axis value as `resolve_cells` takes it; a tuned cell gets its scheme later."""
        if axis == "hparams" or (axis == "perturb_hparams" and hparams_of == "tuned"):
            return {}
        return {axis: self.method(value, f"{where}.{axis}") if axis == "ensembling" else value}

    def _fit(
        self,
        names: Mapping[str, str],
        values: Sequence[tuple[str, Any]],
        answers: Iterator[ResolvedCell | Refused],
        where: str,
    ) -> Fit:
        pair, hparams_of = self.pairs[names["dataset"], names["classifier"]], names["hparams"]
        cells = {}
        for axis, value in (("hparams", hparams_of), *values):
            found = next(answers)
            if isinstance(found, Refused):
                raise self._impossible(found, names, where, axis, value) from None
            if hparams_of == "tuned":
                found = pair.tuned(found, value if axis == "perturb_hparams" else "none")
            cells[axis, value] = found
        return Fit(names, pair, cells.pop(("hparams", hparams_of)), cells)

    def _impossible(
        self, error: Refused, names: Mapping[str, str], where: str, axis: str, value: Any
    ) -> UserError:
        """Return the user error for a refused value of an axis, with what would be possible."""
        pair, hparams_of = self.pairs[names["dataset"], names["classifier"]], names["hparams"]
        of_images = axis in ("augment", "test_augment")
        of_data = axis == "train_fraction" or (of_images and not pair.dataset.image)
        by = "dataset" if of_data else "classifier"
        remedies = []
        table = f"[classifier.{toml_key(names['classifier'])}]"
        if value == GRID and axis == "hparams":
            first = pair.classifier.record.space[0]
            remedies.append(f"add to {table}: grid = {{ {listed_example(first)} }}")
        remedies += needed(table, error.needs)
        axes = self._axes(hparams_of, axis, value, where)
        if any(self._takes(each, hparams_of, axes) for each in self.pairs.values()):
            rule = toml_value({by: names[by], axis: value})
            other = "or " if remedies else ""
            usual = ""
            if value == GRID and axis == "hparams" and self._asks_grids_alone(where):
                usual = f'train its usual hparams: hparams = ["default", "{GRID}"], and '
            remedies.append(f"{other}{usual}leave these runs out: exclude = [{rule}]")
        return refused(
            error,
            file=self._path,
            key=f"{where}.{axis}",
            value=value,
            remedy="\n  ".join(remedies) or None,
        )

    def _asks_grids_alone(self, where: str) -> bool:
        """Whether leaving out a classifier's hparam grid would leave it out of a [[grid]]."""
        number = re.fullmatch(r"grid\[([0-9]+)\]", where)
        return number is not None and [*self._sweep.grid[int(number[1])].hparams] == [GRID]

    def _takes(self, pair: Pair, hparams_of: str, axes: Mapping[str, Any]) -> bool:
        """Return whether a combination can be resolved."""
        if hparams_of == GRID and "grid" in pair.classifier.options:
            return True
        try:
            request = (pair.dataset, pair.model(hparams_of), axes)
        except Refused:
            return False
        return not isinstance(resolve_cells(self._sweep.seed, [request])[0], Refused)

    def method(self, name: str, key: str) -> Mapping[str, Any] | None:
        """Return the description of an ensembling method that the file names; None for ``none``."""
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

    def single(self, names: Iterable[str]) -> list[bool]:
        """Return which ensemblings are a single network that sees test sets several times."""
        tables = self._sweep.ensembling
        kinds = ((name in tables and tables[name].kind) or name for name in names)
        return [kind == methods.SINGLE for kind in kinds]

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
                remedy = nearest(kind, classifiers.names())
                if entry := _ESTIMATORS.get(_plain(kind)):
                    remedy = (
                        f'add estimator = "{entry}"; built in: {", ".join(classifiers.names())}'
                    )
                remedy += f'; a name of your own needs kind = "…" or {_FORMS}'
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

    def _meant(self, error: UnknownOption, table: str, given: Mapping[str, Any]) -> str | None:
        """Return how a classifier's table writes what it gives as a key that it does not have."""
        names = {f"classifier.{toml_key(name)}": name for name in self._sweep.classifier}
        if table not in names:
            return None
        name = names[table]
        kind = classifiers.kind_of(name, self._sweep.classifier[name].kind, given)
        listed = [grid.dataset for grid in self._sweep.grid if name in grid.classifier]

        def refusal(options: Mapping[str, Any]) -> str | None:
            try:
                return self._own.refusal(options, self.dataset(listed[0][0], ""))
            except (LookupError, UserError):  # the dataset's mistakes are told by themselves
                return None

        return meant_in_table(error, kind, given, refusal)

    def _beside(self, key: str, value: Any) -> str | None:
        """Return the path that was meant if a file is beside the sweep file, as TOML."""
        if key not in (SOURCE, TEST_FILE) or not isinstance(value, str):
            return None
        start = "file:" if key == SOURCE else ""
        file = Path(value.removeprefix(start))
        meant = self._path.parent / file
        if not value.startswith(start) or exists(file) or not exists(meant):
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
            if (meant := self._meant(error, table, given)) is not None:
                return self._error("unknown key", key, value=error.value, remedy=meant)
            return unknown_key(error, file=self._path, key=key)
        value: Any = given
        for part in parts:
            value = value.get(part) if isinstance(value, Mapping) else None
        remedies = [*needed(f"[{table}]", error.needs, given)]
        if isinstance(value, list) and parts[0] == "hparams" and len(parts) > 1:
            listed = f"grid = {{ {toml_key(parts[1])} = {toml_value(value)} }}"
            if value and not {*given}.isdisjoint(classifiers.FORMS):  # an argument of one's code
                listed = f"params = {{ {toml_key(parts[1])} = {toml_value(value[0])} }}, {listed}"
            remedies.append(
                f'to try several: {listed} in [{table}], hparams = ["grid"] in [[grid]]'
            )
        if isinstance(error, NoHparam):
            remedies.append("give each value a classifier of its own")
        if (beside := self._beside(error.option, value)) is not None:
            remedies.append(f"that file is beside the sweep file: {error.option} = {beside}")
        elif self._own.sweep is not None and (there := lying(error)) is not None:
            remedies.append(there)
        if value is None and error.value is not None:
            remedies.append("this is its default: give another value")
        written = {} if value is None else {"value": value}
        remedy = "\n  ".join(remedies) or None
        return refused(error, file=self._path, key=key, remedy=remedy, **written)
