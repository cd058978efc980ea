"""Check that runs match the sweep of imported predictions to which they are added."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from manyseed.orchestrator.errors import UserError, nearest
from manyseed.orchestrator.importing.source import PredictionFile
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.layout import PAIR, Groups
from manyseed.orchestrator.plans.plan import IS_IMPORTED, Plan
from manyseed.orchestrator.store.layout.groups import Group
from manyseed.orchestrator.store.layout.schema import GroupSpec
from manyseed.orchestrator.store.publishing.splits import Integers, read_splits

ELSEWHERE = "import them into a directory of their own with --out"
"""The remedy for runs that do not match."""


def imported_plan(paths: SweepPaths) -> tuple[Plan, Groups]:
    """Return the plan and the groups of a sweep that holds only imported predictions.

    Raises
    ------
    UserError
        For any other directory.
    """
    if not paths.is_sweep:
        raise UserError(
            "is not a sweep directory, so no runs can be added to it",
            file=paths.directory,
            remedy="to make one from these files, name it with --out",
        )
    plan, groups = Plan.read(paths), Groups.read(paths)
    groups.require_of(plan, paths)
    groups.require_planned(plan, paths)
    if not plan.all_cells.select(IS_IMPORTED.all()).item():
        raise UserError(
            "holds runs that were trained here; imported runs cannot be added to them",
            file=paths.directory,
            remedy=f"{ELSEWHERE}; manyseed compare sets two sweeps side by side",
        )
    return plan, Groups(groups.specs[: len(plan.groups)])


def pair_of(
    directory: Path, dataset: str | None, classifier: str | None, *, is_classifier_given: bool
) -> tuple[str, str | None]:
    """Return the dataset and the classifier to which to add runs; by default the sweep's only ones.

    Parameters
    ----------
    directory : Path
    dataset, classifier : str or None
        As the user named them.
    is_classifier_given : bool
        Whether each file comes with its classifier's name.

    Raises
    ------
    UserError
        If the sweep holds several, or not this dataset.
    """
    plan, _ = imported_plan(SweepPaths(directory))
    known = plan.cells.select(*PAIR).unique(maintain_order=True)
    datasets = known["dataset"].unique(maintain_order=True).to_list()
    if dataset is None and len(datasets) > 1:
        raise _several("dataset", datasets, directory)
    dataset = dataset or datasets[0]
    if dataset not in datasets:
        raise UserError(
            "the sweep holds no such dataset; runs can only be added to those that it holds",
            file=directory,
            key="--dataset",
            value=dataset,
            remedy=f"{nearest(dataset, datasets)}; else {ELSEWHERE}",
        )
    if classifier is None and not is_classifier_given:
        classifiers = known.filter(pl.col("dataset") == dataset)["classifier"].to_list()
        if len(classifiers) > 1:
            raise _several("classifier", classifiers, directory)
        classifier = classifiers[0]
    return dataset, classifier


def _several(key: str, names: Sequence[str], directory: Path) -> UserError:
    return UserError(
        f"holds runs of {len(names)} {key}s: {', '.join(names)}",
        file=directory,
        key=f"--{key}",
        remedy=f"say which one to add to with --{key} NAME",
    )


def truth(dataset: str, groups: Sequence[Group]) -> tuple[Integers, Integers]:
    """Return the test sets of a dataset: `y_true` and `test_index` (repeat, sample).

    All groups of a dataset share them, but some groups may have more repeats than others.
    """
    known = []
    for group in groups:
        if group.spec.dataset == dataset:
            y_true, index = read_splits(group)
            n = int((index[:, 0] >= 0).cumprod().sum())
            known.append((y_true[:n], index[:n]))
    return max(known, key=lambda sets: len(sets[0]))


def same_tests(source: PredictionFile, groups: Sequence[Group]) -> Integers:
    """Return the dataset's true classes (repeat, sample), which must match the source's.

    Raises
    ------
    UserError
        If the classes or test sets differ.
    """
    y_true, index = truth(source.dataset, groups)
    n, samples = source.y_true.shape
    known, points = y_true.shape
    names = next(g.spec.class_names for g in groups if g.spec.dataset == source.dataset)

    def refuse(message: str, key: str = "y_true") -> UserError:
        return UserError(message, file=source.file, key=key, remedy=ELSEWHERE)

    if source.class_names != names:
        classes = f"{', '.join(source.class_names[:10])}; the sweep's are {', '.join(names[:10])}"
        raise refuse(f"its classes are {classes}", "class_names")
    if samples != points:
        raise refuse(f"its test sets have {samples:,} points; the sweep's have {points:,}")
    if n > known:
        raise refuse(f"it has {n} test sets; the sweep has {known}")
    for given, held, key in (
        (source.y_true, y_true, "y_true"),
        (source.test_index, index, "test_index"),
    ):
        wrong = np.flatnonzero((given != held[:n]).any(axis=1))
        if wrong.size:
            repeat = int(wrong[0])
            count = int((given[repeat] != held[repeat]).sum())
            where = f"the sweep's repeat {repeat}"
            raise refuse(f"differs from that of {where} in {count:,} of {points:,} points", key)
    return y_true


def require_alike(source: PredictionFile, spec: GroupSpec, paths: SweepPaths) -> None:
    """Refuse runs whose predictions differ in form from those of their group.

    Raises
    ------
    UserError
    """
    for what, given, held in _forms(source, spec):
        if given != held:
            raise UserError(
                f"has {what} {given}; {spec.dataset} × {spec.classifier} of {paths.directory} is "
                f"stored with {held}",
                file=source.file,
                remedy=f"give them in that form, name another classifier, or {ELSEWHERE}",
            )


def _forms(source: PredictionFile, spec: GroupSpec) -> Iterator[tuple[str, str, str]]:
    """Yield each property of form by name, as the source and as the group have it."""
    kept = {"none": "labels alone"}
    yield "scores", kept.get(source.keep, source.keep), kept.get(spec.scores, spec.scores)
    if source.keep != "none":
        yield "dtype", source.dtype, spec.dtype
        yield "probability", source.probability, spec.probability
    yield "epochs", str([*source.epochs]), str([*spec.epochs])
