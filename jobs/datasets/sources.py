"""The table of sources, and from a source to the dataset that is split: fetch, group classes, load.

A new kind of source is one more record of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import Refused, UnknownOption
from manyseed.jobs.datasets import (
    builtin,
    cache,
    function,
    huggingface,
    openml,
    openml_task,
    tablefile,
)
from manyseed.jobs.datasets.catalogue import SUITES
from manyseed.jobs.datasets.info import DatasetInfo, DatasetSource, DataShape
from manyseed.jobs.run import MachineError

SOURCES: dict[str, DatasetSource] = {
    "sklearn": builtin.SKLEARN_SOURCE,
    "synthetic": builtin.SYNTHETIC_SOURCE,
    "openml": openml.SOURCE,
    "openml-task": openml_task.SOURCE,
    "torchvision": builtin.TORCHVISION_SOURCE,
    "hf": huggingface.SOURCE,
    "file": tablefile.SOURCE,
    "function": function.SOURCE,
}

COMMON_PARAMETERS = ("source", "classes", "positive", "test")
"""Keys of every dataset's table."""

_BARE = {entry.name: entry.source for suite in SUITES.values() for entry in suite}


def names() -> tuple[str, ...]:
    """Return all named sources, as users write them."""
    return tuple(f"{kind}:{name}" for kind, source in SOURCES.items() for name in source.names)


def bare_names() -> tuple[str, ...]:
    """Return the names that need no kind in front: those of the suites' datasets."""
    return tuple(_BARE)


def suite(name: str) -> tuple[str, ...]:
    """Return the sources of a named suite, or of one of OpenML's.

    Raises
    ------
    Refused
        For an unknown suite.
    """
    if name.startswith(openml_task.SUITE):
        return openml_task.suite(name.removeprefix(openml_task.SUITE))
    if name not in SUITES:
        raise Refused("suite", name, "unknown suite", SUITES)
    return tuple(entry.name for entry in SUITES[name])


def describe(source: str, parameters: Mapping[str, Any]) -> DataShape:
    """Return what is known of a source without loading it."""
    kind_name, colon, name = _BARE.get(source, source).partition(":")
    if not colon and Path(source).suffix in tablefile.FORMATS:
        raise Refused("source", source, f'unknown source; a file is written as "file:{source}"')
    if not colon or kind_name not in SOURCES:
        raise Refused("source", source, "unknown source", (*names(), *_BARE))
    kind = SOURCES[kind_name]
    for key in parameters:
        if key not in (*kind.parameters, *kind.unwritten):
            allowed = (*COMMON_PARAMETERS, *kind.parameters)
            raise UnknownOption(key, parameters[key], allowed=allowed)
    return kind.describe(name, parameters)


def of(canonical: Mapping[str, Any]) -> tuple[DatasetSource, str]:
    """Return the kind of source of a canonical description, and the name after the colon."""
    kind, _, name = canonical["source"].partition(":")
    return SOURCES[kind], name


Groups = Mapping[str, Sequence[str | int]]


@dataclass(frozen=True, slots=True)
class Grouping:
    """How the classes of a source become the classes of a dataset.

    Attributes
    ----------
    names : tuple of str
        The dataset's classes in the order of their indices.
    target : tuple of int
        The index in `names` of each class of the source, -1 where it is left out.
    groups : dict or None
        Canonical form: sorted names and members; None where every class stands for itself.
    positive : str or None
        With two classes, the one with index 1.
    """

    names: tuple[str, ...]
    target: tuple[int, ...]
    groups: dict[str, list[str]] | None
    positive: str | None


def group(source: Sequence[str], classes: Groups | None, positive: str | int | None) -> Grouping:
    """Group the classes of a source.

    The source's order is kept unless classes are merged; merged names are sorted. With two classes
    the positive one comes last, by default the one that already does.
    """
    groups = _canonical(source, classes)
    names = list(source) if groups is None else list(groups)
    if len(names) < 2:
        option = "source" if groups is None else "classes"
        raise Refused(option, names, "are too few: a classifier needs two classes or more")
    chosen = _positive(names, positive)
    if chosen is not None:
        names.sort(key=lambda name: name == chosen)
    members = {name: [name] for name in names} if groups is None else groups
    index = {member: names.index(name) for name in names for member in members[name]}
    return Grouping(tuple(names), tuple(index.get(name, -1) for name in source), groups, chosen)


def _canonical(source: Sequence[str], classes: Groups | None) -> dict[str, list[str]] | None:
    if classes is None:
        return None
    seen: dict[str, str] = {}
    for name, members in classes.items():
        if isinstance(members, str) or not isinstance(members, Sequence) or not members:
            allowed = f"a list of classes of the source for {name!r}"
            raise Refused("classes", members, allowed=allowed)
        for member in map(str, members):
            if member not in source:
                raise Refused("classes", member, "unknown class", source)
            if member in seen:
                twice = f"is named twice, in {seen[member]!r} and {name!r}"
                raise Refused("classes", member, twice)
            seen[member] = name
    if len(seen) == len(source) and all(member == name for member, name in seen.items()):
        return None  # every class stands for itself
    return {name: sorted(map(str, classes[name])) for name in sorted(classes)}


def _positive(names: Sequence[str], positive: str | int | None) -> str | None:
    if len(names) > 2:
        if positive is not None:
            raise Refused(
                "positive",
                positive,
                f"needs two classes, there are {len(names)}, unless they are merged or selected",
                needs={"positive": None},
            )
        return None
    chosen = names[1] if positive is None else str(positive)
    if chosen not in names:
        raise Refused("positive", chosen, "unknown class", names)
    return chosen


@dataclass(frozen=True, slots=True)
class Dataset:
    """A prepared dataset: what `test_index` in the store points into.

    Attributes
    ----------
    X : array (n_samples, n_features)
        Raw values; codes in categorical columns, NaN where missing. float64, or uint8 for images
        of bytes. Read-only and memory-mapped if it is a prepared copy: fits use `rows`.
    y : uint16 array (n_samples,)
        Index into `class_names`.
    cardinality : int32 array (n_features,)
        Number of labels of a categorical feature, 0 for a continuous one.
    image : tuple of int or None
        (height, width, channels) where a row is an image flattened in that order.
    official_test : int64 array or None
        Indices of the source's own test part, ascending, if it has one.
    groups : int64 array (n_samples,) or None
        The group of each row, where rows belong together.
    roles : uint8 array (set, n_samples) or None
        With several official test sets, the role of each row in them (`folds`).
    """

    X: NDArray[Any]
    y: NDArray[np.uint16]
    cardinality: NDArray[np.int32]
    class_names: tuple[str, ...]
    image: tuple[int, int, int] | None = None
    official_test: NDArray[np.int64] | None = None
    groups: NDArray[np.int64] | None = None
    roles: NDArray[np.uint8] | None = None

    def rows(self, index: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """Return a float64 copy of some rows (index, feature)."""
        rows: NDArray[np.float64] = self.X[index].astype(np.float64, copy=False)
        return rows

    @property
    def nbytes(self) -> int:
        """Memory of the arrays, in bytes."""
        arrays = (self.X, self.y, self.cardinality, self.groups, self.roles)
        return sum(array.nbytes for array in arrays if array is not None)


def needs_fetching(canonical: Mapping[str, Any]) -> bool:
    """Return whether workers read a prepared copy of this dataset, rather than load its source."""
    return of(canonical)[0].fetch is not None


def is_fetched(canonical: Mapping[str, Any], home: Path | None = None) -> bool:
    """Return whether workers will find a dataset on this machine.

    Quick: checks only that the files exist and have their length; `fetch` and loading check what
    they hold.
    """
    return not needs_fetching(canonical) or cache.is_complete(canonical, home or cache.data_home())


def fetch(info: DatasetInfo, home: Path | None = None) -> bool:
    """Make the prepared copy of a dataset, unless a sound one is there.

    Safe in several processes at once.

    Parameters
    ----------
    home : Path, optional
        Folder of data; `cache.data_home` by default. OpenML's downloads are kept in its ``openml``,
        as scikit-learn keeps them; torchvision's files are read from its ``torchvision``.

    Returns
    -------
    bool
        Whether a copy was made.

    Raises
    ------
    jobs.run.MachineError
        Where data cannot be reached or written, or is not what the catalogue or the plan says.
    """
    source, _ = of(info.canonical)
    if source.fetch is None:
        return False
    home = home or cache.data_home()
    try:
        cache.read(info.canonical, home)
    except MachineError:
        cache.write(source.fetch(info.canonical, info.locations, home), info.canonical, home)
        return True
    return False


def load(canonical: Mapping[str, Any]) -> Dataset:
    """Load and prepare a dataset from its canonical description alone.

    Samples keep the source's order; those of classes that no group names are left out.

    Raises
    ------
    jobs.run.MachineError
        Where the data is missing or not the described data; `NotFetched` for a prepared copy.
    """
    source, name = of(canonical)
    if source.load is None:
        samples = cache.read(canonical, cache.data_home())
    else:
        samples = source.load(name, canonical)
    grouping = group(samples.class_names, canonical.get("classes"), canonical.get("positive"))
    y = np.array(grouping.target)[samples.y]
    kept = y >= 0
    official = None
    if samples.n_official_train is not None:
        official = np.flatnonzero(np.flatnonzero(kept) >= samples.n_official_train)
    return Dataset(
        X=samples.X if kept.all() else samples.X[kept],
        y=y[kept].astype(np.uint16),
        cardinality=samples.cardinality,
        class_names=grouping.names,
        image=samples.image,
        official_test=official,
        groups=None if samples.groups is None else samples.groups[kept],
        roles=None if samples.roles is None else samples.roles[:, kept],
    )
