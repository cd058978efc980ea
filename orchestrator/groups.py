"""The groups of a sweep's store: one for each dataset and classifier, their layout fixed once."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from orchestrator.errors import UserError, toml_value
from orchestrator.files import read_json, write_json
from orchestrator.grid import Expansion, GridCell
from orchestrator.paths import SweepPaths
from orchestrator.store.schema import GroupSpec
from orchestrator.sweepfile import SweepFile


@dataclass(frozen=True)
class Groups:
    """The layouts of all groups, in the order of their numbers."""

    specs: tuple[GroupSpec, ...] = ()

    @classmethod
    def read(cls, paths: SweepPaths) -> Groups:
        """Read a sweep's groups."""
        return cls(tuple(GroupSpec.from_attributes(value) for value in read_json(paths.groups)))

    def write(self, paths: SweepPaths) -> None:
        """Write a sweep's groups."""
        write_json(paths.groups, [spec.to_attributes() for spec in self.specs])

    def find(self, dataset: str, classifier: str) -> GroupSpec | None:
        """Return the group of a dataset and a classifier, if there is one."""
        for spec in self.specs:
            if (spec.dataset, spec.classifier) == (dataset, classifier):
                return spec
        return None

    def extended(
        self, new: list[GridCell], file: SweepFile, asked: Expansion, path: Path
    ) -> Groups:
        """Return these groups and those that new cells need.

        Raises
        ------
        UserError
            When a new cell would go into a group whose layout is another.
        """
        specs = list(self.specs)
        for dataset, classifier in dict.fromkeys((cell.dataset, cell.classifier) for cell in new):
            wanted = _spec(len(specs), dataset, classifier, file, asked)
            held = self.find(dataset, classifier)
            if held is None:
                specs.append(wanted)
            else:
                _check_same(held, wanted, path)
        return Groups(tuple(specs))


def _spec(
    number: int, dataset: str, classifier: str, file: SweepFile, asked: Expansion
) -> GroupSpec:
    info, model = asked.datasets[dataset], asked.classifiers[classifier, dataset]
    repeats = max(
        cell.repeats
        for cell in asked.cells
        if (cell.dataset, cell.classifier) == (dataset, classifier)
    )
    return GroupSpec.create(
        number=number,
        dataset=dataset,
        classifier=classifier,
        samples=info.n_test,
        class_names=info.class_names,
        epochs=model.snapshots or (0,),
        scores=file.keep.resolve(len(info.class_names)),
        dtype=file.keep.dtype,
        probability=model.probability,
        repeats=repeats,
    )


def _check_same(held: GroupSpec, wanted: GroupSpec, path: Path) -> None:
    lengths = ("number", "shard_length", "chunk_length", "split_length")
    for field in fields(held):
        before, now = getattr(held, field.name), getattr(wanted, field.name)
        if field.name not in lengths and before != now:
            raise UserError(
                f"{held.dataset} × {held.classifier} is stored with {field.name} = "
                f"{toml_value(before)}; this file asks for {toml_value(now)}",
                file=path,
                remedy="give the dataset or classifier another name in the file, "
                "or plan into another directory with --out",
            )
