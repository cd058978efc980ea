"""The table of sources, and from a user's table of a dataset to its description and its samples.

A new kind of source is one more record of the table. Only files are read for a description.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import (
    Refused,
    UnknownOption,
    expanded,
    integer,
    number,
    quoted,
    same_spelling,
    spelling,
)
from manyseed.jobs.datasets import (
    builtin,
    cache,
    function,
    huggingface,
    openml,
    tablefile,
)
from manyseed.jobs.datasets.catalogue import SUITES
from manyseed.jobs.datasets.columns import CLASSES, LISTED, alike, merged
from manyseed.jobs.datasets.info import (
    OFFICIAL,
    DatasetInfo,
    DatasetSource,
    DataShape,
    PointNames,
    Samples,
    with_preparation,
)
from manyseed.jobs.datasets.parts import (
    FOLDS,
    GROUP,
    IN_PARTS,
    PARAMETERS,
    names_at,
    renumbers,
    require_several,
)
from manyseed.jobs.datasets.split import n_points, nearest_size, sizes_near
from manyseed.jobs.run import Feature, MachineError

SOURCES: dict[str, DatasetSource] = {
    "sklearn": builtin.SKLEARN_SOURCE,
    "synthetic": builtin.SYNTHETIC_SOURCE,
    "openml": openml.SOURCE,
    "openml-task": openml.TASKS,
    "torchvision": builtin.TORCHVISION_SOURCE,
    "hf": huggingface.SOURCE,
    "file": tablefile.SOURCE,
    "function": function.SOURCE,
}

COMMON_PARAMETERS = ("source", "classes", "positive", "test")  # keys of every dataset's table

_BARE = {entry.name: entry.source for suite in SUITES.values() for entry in suite}


def names() -> tuple[str, ...]:
    """Return all named sources, as users write them."""
    return tuple(f"{kind}:{name}" for kind, source in SOURCES.items() for name in source.names)


def bare_names() -> tuple[str, ...]:
    """Return the names that need no kind in front: those of the suites' datasets."""
    return tuple(_BARE)


def suite(name: str) -> tuple[str, ...]:
    """Return the sources of a named suite, or of one of OpenML's."""
    if name.startswith(openml.SUITE):
        return openml.suite(name.removeprefix(openml.SUITE))
    if name not in SUITES:
        raise Refused("suite", name, "unknown suite", SUITES)
    return tuple(entry.name for entry in SUITES[name])


def describe(
    source: str,
    parameters: Mapping[str, Any],
    classes: Mapping[str, Sequence[str | int]] | None = None,
) -> DataShape:
    """Return what is known of a source without loading it; `classes`: those that count."""
    kind_name, colon, name = _BARE.get(source, source).partition(":")
    if not colon and Path(source).suffix in tablefile.FORMATS:
        raise Refused("source", source, f'unknown source; a file is written as "file:{source}"')
    if not colon or kind_name not in SOURCES:
        raise Refused("source", source, "unknown source", (*names(), *_BARE))
    kind = SOURCES[kind_name]
    if kind is tablefile.SOURCE:
        tablefile.require_there("source", name, expanded(name).absolute())
    for key in parameters:
        if key not in (*kind.parameters, *kind.unwritten):
            allowed = (*COMMON_PARAMETERS, *kind.parameters)
            raise UnknownOption(key, parameters[key], allowed=allowed)
    return kind.describe(name, parameters if classes is None else {**parameters, CLASSES: classes})


def of(canonical: Mapping[str, Any]) -> tuple[DatasetSource, str]:
    """Return the kind of source of a canonical description, and the name after the colon."""
    kind, _, name = canonical["source"].partition(":")
    return SOURCES[kind], name


Groups = Mapping[str, Sequence[str | int]]


@dataclass(frozen=True, slots=True)
class Grouping:
    """How the classes of a source become the classes of a dataset.

    `names`: the dataset's classes in the order of their indices. `target`: the index in `names` of
    each class of the source, -1 where it is left out. `groups`: canonical form: sorted names and
    members; None where every class stands for itself. `positive`: with two classes, the one with
    index 1.
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
    features : tuple of Feature
        Each column's name, and its labels in the order of their codes; empty where not known.
    """

    X: NDArray[Any]
    y: NDArray[np.uint16]
    cardinality: NDArray[np.int32]
    class_names: tuple[str, ...]
    image: tuple[int, int, int] | None = None
    official_test: NDArray[np.int64] | None = None
    groups: NDArray[np.int64] | None = None
    roles: NDArray[np.uint8] | None = None
    features: tuple[Feature, ...] = ()

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


def names_of(canonical: Mapping[str, Any]) -> PointNames | None:
    """Return what points are called, in the order of their numbers.

    None if they are called by these: point i is row i of the source. No names, of kind ``row``,
    mean that it is another row, which is not known on this machine.
    """
    if canonical["source"].partition(":")[0] not in SOURCES:
        return None  # imported
    called = cache.names_of(canonical, cache.data_home()) if "digest" in canonical else None
    if "classes" not in canonical:
        return PointNames("row", ()) if called is None and renumbers(canonical) else called
    if called is None and renumbers(canonical):
        return PointNames("row", ())
    try:
        _, y = _grouped_classes(_samples(canonical), canonical)
    except MachineError:
        return PointNames("row", ())
    kept = np.flatnonzero(y >= 0)
    if called is not None:
        return replace(called, of=[called.of[row] for row in kept.tolist()])
    return names_at(kept.tolist()) if kept.size < y.size else None


def fetch(info: DatasetInfo, home: Path | None = None) -> bool:
    """Make the prepared copy of a dataset, unless a sound one is there.

    Safe in several processes at once.

    `home`: folder of data; `cache.data_home` by default. OpenML's downloads are kept in its
    ``openml``, as scikit-learn keeps them; torchvision's files are read from its ``torchvision``.
    Returns whether a copy was made.
    """
    source, _ = of(info.canonical)
    if source.fetch is None:
        return False
    home = home or cache.data_home()
    try:
        cache.read(info.canonical, home)
        unnamed = renumbers(info.canonical) and cache.names_of(info.canonical, home) is None
        if unnamed or cache.features_of(info.canonical, home) != info.features:
            # an earlier version made it, and whoever reads it is told which rows they are
            with suppress(MachineError):
                cache.name(source.fetch(info.canonical, info.locations, home), info.canonical, home)
    except MachineError:
        cache.write(source.fetch(info.canonical, info.locations, home), info.canonical, home)
        return True
    return False


def load(canonical: Mapping[str, Any]) -> Dataset:
    """Load and prepare a dataset from its canonical description alone.

    Samples keep the source's order; those of classes that no group names are left out.
    """
    samples = _samples(canonical)
    grouping, y = _grouped_classes(samples, canonical)
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
        features=samples.features,
    )


def _samples(canonical: Mapping[str, Any]) -> Samples:
    source, name = of(canonical)
    if source.load is None:
        return cache.read(canonical, cache.data_home())
    return source.load(name, canonical)


def _grouped_classes(
    samples: Samples, canonical: Mapping[str, Any]
) -> tuple[Grouping, NDArray[np.int64]]:
    """Return the grouping of a source's classes, and each sample's class, -1 if left out."""
    grouping = group(samples.class_names, canonical.get("classes"), canonical.get("positive"))
    return grouping, np.array(grouping.target)[samples.y]


def images_of(canonical: Mapping[str, Any], index: Sequence[int]) -> NDArray[Any] | None:
    """Return some rows' pixels (image, height, width, channel); None if rows are no images.

    Raises `MachineError` where the data cannot be read on this machine.
    """
    if canonical["source"].partition(":")[0] not in SOURCES:
        return None  # imported
    samples = _samples(canonical)
    if samples.image is None:
        return None
    rows = np.flatnonzero(_grouped_classes(samples, canonical)[1] >= 0)
    if max(index, default=0) >= rows.size:
        raise MachineError(f"{canonical['source']} has {rows.size:,} rows")
    return samples.X[rows[list(index)]].reshape(len(index), *samples.image)


_SPLIT_BY = {
    "split": "the folders train and test say",
    FOLDS: "the task's folds say",
    IN_PARTS: "the file's arrays for training and test say",
}
"""What defines the test sets if no key of the table does, for messages."""


def resolve(
    source: str,
    *,
    classes: Mapping[str, Sequence[str | int]] | None = None,
    positive: str | int | None = None,
    test: float | int | str | None = None,
    **parameters: Any,
) -> DatasetInfo:
    """Resolve a dataset.

    `source`: kind and name, such as ``"sklearn:digits"``, ``"openml:vehicle@2"`` or
    ``"file:table.csv"`` (from the working folder), or the bare name of a suite's dataset, such as
    ``"vehicle"``. Files are read, other sources are in the catalogue. `classes`: the source's
    classes that each class of the dataset is made of; others are left out. `positive`: of two
    classes, the one with index 1. `test`: share (between 0 and 1) or number of points of the test
    set; shares are rounded half up. ``"official"`` is the source's own test part. By default 0.25,
    or the file's own split if `parameters` define one. ``**parameters``: further keys of the
    source.
    """
    shape = describe(source, parameters, classes)
    testing = next(
        (key for key in (*PARAMETERS, IN_PARTS) if key in parameters or key in shape.provenance),
        None,
    )
    if test is None:
        test = 0.25 if testing is None else OFFICIAL
    elif testing is not None and test != OFFICIAL:
        rule = f"{testing} {'say' if testing == FOLDS else 'says'}"
        rule = rule if testing in parameters else _SPLIT_BY[testing]
        raise Refused("test", test, f"{rule} what the test set is", needs={"test": None})
    if classes is not None and not (shape.labelled and shape.class_counts):
        known = "there are and how large the largest and the smallest; give its table as file:PATH"
        if shape.image:
            known = "images there are; give them as a folder, file:PATH"
        raise Refused(
            "classes",
            classes,
            f"classes of {source} cannot be selected or merged: the catalogue knows only how many "
            f"{known}",
        )
    if classes is None:
        _require_spelling(shape.class_names, source, parameters)
    grouping = group(shape.class_names, classes, positive)
    counts = _grouped(grouping, shape.class_counts)
    n_samples = shape.n_samples if counts is None else sum(counts)
    sets = _sets(grouping, shape.set_counts)
    official = _grouped(grouping, shape.test_counts) if sets is None else sets[1].tolist()[:1]
    official = official or (None if shape.n_test is None else [shape.n_test])
    share, n_test = _test(test, source, n_samples, official)
    sizes, asked = _sizes_of_groups(shape, grouping, parameters), n_test
    if sizes is not None and share != OFFICIAL:
        n_test = _of_whole_groups(test, sizes, n_test)
    n_train, largest, n_sets = n_samples - n_test, 0, None
    if share == OFFICIAL:
        n_sets = 1
        if sets is not None:
            n_sets, largest = sets.shape[1], int(sets[1].max())
            n_train, n_test = map(int, sets.min(axis=1))
            if n_test < 1:
                raise Refused("classes", classes, "leave one of the official test sets empty")
    if n_train < len(grouping.names):
        raise Refused(
            "test",
            test,
            f"leaves {n_train} samples of {source} to train on, fewer than its "
            f"{len(grouping.names)} classes",
        )

    canonical: dict[str, object] = {
        "source": source,
        **shape.provenance,  # may hold the canonical form of the source
        "test": share,
    }
    canonical = with_preparation(canonical)
    if grouping.groups is not None:
        canonical["classes"] = grouping.groups
    if grouping.positive is not None:
        canonical["positive"] = grouping.positive
    _require_columns(shape, source, parameters, canonical)
    return DatasetInfo(
        canonical=canonical,
        n_samples=n_samples,
        n_features=shape.n_features,
        n_continuous=shape.n_features - shape.n_categorical,
        n_categorical=shape.n_categorical,
        class_names=grouping.names,
        class_counts=counts,
        image=shape.image,
        n_train=n_train,
        n_test=n_test,
        n_dropped=shape.n_samples - n_samples,
        locations=shape.locations,
        columns=shape.columns,
        group_sizes=() if sizes is None else _described(sizes),
        n_test_asked=asked if sets is None and asked != n_test else None,
        n_test_sets=n_sets,
        largest_test=largest,
        missing=shape.missing,
        target=shape.target,
        copies=shape.copies,
        features=shape.features,
        leaked=shape.leaked,
        absent=_absent(grouping, shape) if share == OFFICIAL else ((), ()),
    )


def _require_spelling(names: Sequence[str], source: str, given: Mapping[str, Any]) -> None:
    """Refuse classes that differ only in blanks or invisibly, unless `classes` lists them."""
    same = [each for each in alike(names) if any(name != spelling(name) for name in each)]
    if same:
        option = "target" if "target" in given else "source"
        shown = " and ".join(map(quoted, same[0]))
        reason = f"has classes that are the same but for blanks or case: {shown}"
        few = len(names) <= LISTED
        needs = {"classes": merged(names)} if few else {}
        reason += "" if few else "; merge them with classes, which lists all classes"
        raise Refused(option, given.get("target", source), reason, needs=needs)


def _require_columns(
    shape: DataShape, source: str, given: Mapping[str, Any], canonical: Mapping[str, Any]
) -> None:
    """Refuse columns whose names differ only in blanks or invisibly, unless all are ignored."""
    target, ignored = shape.provenance.get("target"), {*given.get("ignore", ())}
    names = [str(target), *(column.name for column in shape.columns)]
    same = [each for each in same_spelling(names) if not {*each} <= ignored]
    # an earlier sweep may have taken the table as it is: its data was prepared then
    if same and not cache.is_complete(canonical, cache.data_home()):
        shown = " and ".join(map(quoted, same[0]))
        needs = {} if target in same[0] else {"ignore": sorted({*ignored, *same[0]})}
        option = function.OPTION if function.KEPT in given else "source"
        reason = f"has columns whose names look the same, {shown}: rename them"
        raise Refused(
            option, source, reason + (", or ignore them all" if needs else ""), needs=needs
        )


def _grouped(grouping: Grouping, counts: Sequence[int] | None) -> tuple[int, ...] | None:
    if counts is None:
        return None
    grouped = [0] * len(grouping.names)
    for target, count in zip(grouping.target, counts, strict=True):
        if target >= 0:
            grouped[target] += count
    return tuple(grouped)


def _absent(grouping: Grouping, shape: DataShape) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the classes without a training sample, and those without a test sample."""
    every, test = (_grouped(grouping, each) for each in (shape.class_counts, shape.test_counts))
    if every is None or test is None:
        return (), ()
    counted = [*zip(grouping.names, every, test, strict=True)]
    return (
        tuple(name for name, n, n_test in counted if n and n == n_test),
        tuple(name for name, n, n_test in counted if n and not n_test),
    )


def _sets(grouping: Grouping, counts: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    """Return the sizes of training parts and test sets (part, set), without dropped classes."""
    if counts is None:
        return None
    sizes: NDArray[np.int64] = counts[:, :, np.array(grouping.target) >= 0].sum(axis=2)
    return sizes


def _sizes_of_groups(
    shape: DataShape, grouping: Grouping, parameters: Mapping[str, Any]
) -> NDArray[np.int64] | None:
    """Return the size of each group without dropped classes, where rows belong together."""
    if shape.groups is None:
        return None
    group, y = shape.groups.T
    counts = np.bincount(group[np.array(grouping.target)[y] >= 0])
    sizes: NDArray[np.int64] = counts[counts > 0].astype(np.int64)
    require_several(str(parameters[GROUP]), sizes.size)
    return sizes


def _of_whole_groups(test: float | int | str, sizes: NDArray[np.int64], n_test: int) -> int:
    """Return a size that whole groups make: the nearest to a share's, or exactly a number."""
    below, above = sizes_near(sizes, n_test)
    if below == n_test:
        return n_test
    possible = [str(size) for size in (below, above) if size is not None]
    if not possible:
        reason = f"{sizes.size} groups, the largest of {sizes.max()} rows, make no two parts of "
        needs = {GROUP: None}
        raise Refused("test", test, f"{reason}2 rows or more", needs=needs)
    if isinstance(test, int):
        reason = (
            f"no whole groups have {test} rows together; the nearest are {' and '.join(possible)}"
        )
        raise Refused("test", test, reason)
    size = nearest_size(sizes, n_test)
    assert size is not None
    return size


def _described(sizes: NDArray[np.int64]) -> tuple[int, ...]:
    ascending = np.sort(sizes).tolist()
    return len(ascending), ascending[0], ascending[(len(ascending) - 1) // 2], ascending[-1]


def _test(
    test: float | int | str, source: str, n_samples: int, official: Sequence[int] | None
) -> tuple[float | int | str, int]:
    """Return the test set for the description, and its size.

    With a share or a number of points, both parts have at least two samples.
    """
    if test == OFFICIAL:
        if official is None:
            raise Refused(
                "test",
                test,
                f"needs a source with a split of its own, {source} has none; give a share such as "
                "0.25 or a number of points",
            )
        return OFFICIAL, sum(official)
    form = f"a share above 0 and below 1, or a whole number of points from 2 to {n_samples - 2}"
    if official is not None:
        form += f', or "{OFFICIAL}"'
    try:
        if isinstance(test, int):
            points = integer("test", test, least=2, most=n_samples - 2)
            return points, points
        share = number("test", test, above=0, below=1)
    except Refused:
        raise Refused("test", test, allowed=form) from None
    n_test = n_points(share, n_samples)
    if not 2 <= n_test <= n_samples - 2:
        raise Refused(
            "test",
            test,
            f"makes {n_test} of {n_samples} samples the test set; training part and test set need "
            "at least 2 each",
        )
    return share, n_test
