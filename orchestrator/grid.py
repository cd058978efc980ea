"""From a sweep file's lists to the distinct cells that they ask for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs import classifiers, datasets
from jobs.cells import resolve_cell
from jobs.classifiers import ClassifierInfo
from jobs.datasets import DatasetInfo
from jobs.run import Cell
from orchestrator.errors import UserError, nearest
from orchestrator.sweepfile import AXES, SweepFile


@dataclass(frozen=True, slots=True)
class GridCell:
    """One distinct combination of a sweep.

    `dataset` and `classifier` are the names in the file; `axes` holds every axis' resolved value as
    results show it; `identical` says that all runs of a repeat are the same fit.
    """

    cell: Cell
    id: str
    dataset: str
    classifier: str
    axes: Mapping[str, str | float]
    identical: bool
    repeats: int
    runs: int


@dataclass(frozen=True, slots=True)
class Expansion:
    """All that a sweep file asks for.

    `asked` counts runs as the lists multiply; `cells` are distinct.
    """

    cells: tuple[GridCell, ...]
    datasets: Mapping[str, DatasetInfo]
    classifiers: Mapping[tuple[str, str], ClassifierInfo]
    asked: int
    notes: tuple[str, ...]

    @property
    def runs(self) -> int:
        """The number of distinct runs."""
        return sum(cell.repeats * cell.runs for cell in self.cells)


def expand(sweep: SweepFile, path: Path) -> Expansion:
    """Resolve every combination of a sweep file's grids.

    Raises
    ------
    UserError
        For an unknown or impossible dataset, classifier or scheme, with file, key and value.
    """
    resolver = _Resolver(sweep, path)
    cells: dict[str, GridCell] = {}
    asked = 0
    for number, grid in enumerate(sweep.grid):
        lists = [getattr(grid, axis) for axis in AXES]
        for values in itertools.product(*lists):
            found = resolver.cell(number, dict(zip(AXES, values, strict=True)))
            asked += found.repeats * found.runs
            cells.setdefault(found.id, found)
    return Expansion(
        tuple(cells.values()), resolver.datasets, resolver.classifiers, asked, resolver.notes()
    )


class _Resolver:
    def __init__(self, sweep: SweepFile, path: Path) -> None:
        self.sweep, self.path = sweep, path
        self.datasets: dict[str, DatasetInfo] = {}
        self.classifiers: dict[tuple[str, str], ClassifierInfo] = {}
        self._check_classifier_tables()

    def cell(self, grid: int, values: dict[str, Any]) -> GridCell:
        where = f"grid[{grid}]"
        dataset = self._dataset(where, values["dataset"])
        classifier = self._classifier(where, values["classifier"], values["dataset"])
        if values["hparams"] != "default":
            raise UserError(
                "unknown hparams",
                file=self.path,
                key=f"{where}.hparams",
                value=values["hparams"],
                remedy=nearest(values["hparams"], ["default"]),
            )
        axes = {axis: values[axis] for axis in AXES[2:] if axis != "hparams"}
        try:
            resolved = resolve_cell(self.sweep.seed, dataset, classifier, **axes)
        except ValueError as error:
            raise self._axis_error(where, dataset, classifier, axes, values, error) from None
        cell = resolved.cell
        return GridCell(
            cell=cell,
            id=cell.id,
            dataset=values["dataset"],
            classifier=values["classifier"],
            axes={
                "train_fraction": float(cell.train_fraction),
                "perturb_continuous": cell.perturb_continuous,
                "perturb_categorical": cell.perturb_categorical,
                "perturb_hparams": cell.perturb_hparams,
                "hparams": values["hparams"],
                "vary": vary_name(cell.vary),
            },
            identical=resolved.identical,
            repeats=1 if dataset.canonical["test"] == "official" else self.sweep.repeats,
            runs=self.sweep.runs,
        )

    def _axis_error(
        self,
        where: str,
        dataset: DatasetInfo,
        classifier: ClassifierInfo,
        axes: dict[str, Any],
        values: dict[str, Any],
        error: ValueError,
    ) -> UserError:
        """Find the axis whose value is refused."""
        for axis, value in axes.items():
            try:
                resolve_cell(self.sweep.seed, dataset, classifier, **{axis: value})
            except ValueError as refused:
                key = f"{where}.{axis}"
                return UserError(str(refused), file=self.path, key=key, value=value)
        pair = f"{values['dataset']} × {values['classifier']}"
        return UserError(f"{pair}: {error}", file=self.path, key=where)

    def notes(self) -> tuple[str, ...]:
        return tuple(
            f"{name}: {info.n_dropped} samples belong to classes that no group names"
            for name, info in self.datasets.items()
            if info.n_dropped
        )

    def _dataset(self, where: str, name: str) -> DatasetInfo:
        if name not in self.datasets:
            table = self.sweep.dataset.get(name)
            if table is None and ":" not in name:
                options = [*self.sweep.dataset, *datasets.names()]
                raise UserError(
                    "unknown dataset",
                    file=self.path,
                    key=f"{where}.dataset",
                    value=name,
                    remedy=f"{nearest(name, options)}, or a table [dataset.{name}]",
                )
            if table is not None and "source" not in table:
                raise UserError(
                    "this key is missing",
                    file=self.path,
                    key=f"dataset.{name}.source",
                    remedy=f'add source = "…"; there are {", ".join(datasets.names())}',
                )
            key = f"{where}.dataset" if table is None else f"dataset.{name}"
            with self._user_error(key):
                self.datasets[name] = datasets.resolve(**(table or {"source": name}))
        return self.datasets[name]

    def _classifier(self, where: str, name: str, dataset: str) -> ClassifierInfo:
        if (name, dataset) not in self.classifiers:
            options = dict(self.sweep.classifier.get(name, {}))
            kind = options.pop("kind", name)
            if kind not in classifiers.names():
                raise UserError(
                    "unknown classifier",
                    file=self.path,
                    key=f"{where}.classifier",
                    value=name,
                    remedy=nearest(name, {*classifiers.names(), *self.sweep.classifier}),
                )
            key = f"classifier.{name}" if options else f"{where}.classifier"
            with self._user_error(key):
                info = classifiers.resolve(kind, options, self.datasets[dataset])
            self.classifiers[name, dataset] = info
        return self.classifiers[name, dataset]

    def _check_classifier_tables(self) -> None:
        for name, table in self.sweep.classifier.items():
            kind = table.get("kind", name)
            if kind not in classifiers.names():
                raise UserError(
                    "unknown classifier",
                    file=self.path,
                    key=f"classifier.{name}" + (".kind" if "kind" in table else ""),
                    value=kind,
                    remedy=f"{nearest(str(kind), classifiers.names())}; "
                    f'a name of your own needs kind = "…"',
                )

    @contextmanager
    def _user_error(self, key: str) -> Iterator[None]:
        # jobs knows what is wrong and what would be right; here the file and the key are known
        try:
            yield
        except (ValueError, TypeError) as error:
            raise UserError(str(error), file=self.path, key=key) from None


def vary_name(vary: tuple[str, ...]) -> str:
    """Return sources of randomness as results show them: ``init+batch+train``, in this order."""
    return "+".join(source for source in ("init", "batch", "train") if source in vary)
