"""Datasets of scikit-learn, OpenML and torchvision: shapes and classes, known without reading.

They stand in ``catalogue.toml``. Only the standard library is imported: planning needs these tables
and nothing else. ``docs/datasets.md`` says where the numbers come from; fetching checks the data
against all of them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class Entry:
    """A dataset of the catalogue.

    `digest`: SHA-256 of the bytes of X (little-endian float64, C order) followed by y
    (little-endian int64), hexadecimal.
    """

    n_features: int
    class_names: tuple[str, ...]
    class_counts: tuple[int, ...]
    digest: str
    image: tuple[int, int, int] | None = None

    @property
    def n_samples(self) -> int:
        """Number of samples in all classes."""
        return sum(self.class_counts)


@dataclass(frozen=True, slots=True)
class OpenMLEntry:
    """A version of an OpenML dataset.

    `id`: OpenML's number of this version. `n_features` and `n_categorical`: columns without the
    target and without those that OpenML says to ignore. `class_names`: OpenML's labels if
    `labelled`, in numeric or alphabetic order. Otherwise two classes are called majority and
    minority, and more are numbered in order. `class_counts`: none where only the sizes of the
    largest and the smallest class are known. `n_majority` and `n_minority`: samples in the largest
    and in the smallest class.
    """

    name: str
    version: int
    id: int
    n_samples: int
    n_features: int
    n_categorical: int
    class_names: tuple[str, ...]
    class_counts: tuple[int, ...] | None
    n_majority: int
    n_minority: int
    labelled: bool

    @property
    def source(self) -> str:
        """The entry as users name it."""
        return f"openml:{self.name}@{self.version}"


@dataclass(frozen=True, slots=True)
class VisionEntry:
    """One dataset with an official training and test part.

    `image`: (height, width, channels). `train_counts` and `test_counts`: samples of each class in
    the official parts; None where only their `sizes` are known here. `resized`: whether its images
    are of many sizes, so that they are resized: to `image` unless another size is asked for.
    """

    class_names: tuple[str, ...]
    image: tuple[int, int, int]
    train_counts: tuple[int, ...] | None = None
    test_counts: tuple[int, ...] | None = None
    sizes: tuple[int, ...] = ()
    resized: bool = False

    @property
    def class_counts(self) -> tuple[int, ...] | None:
        """Samples of each class in both parts together; None if not known."""
        if self.train_counts is None or self.test_counts is None:
            return None
        return tuple(map(sum, zip(self.train_counts, self.test_counts, strict=True)))

    @property
    def n_parts(self) -> tuple[int, ...]:
        """Samples in the training and the test part."""
        counts = (self.train_counts, self.test_counts)
        return self.sizes or tuple(sum(each or ()) for each in counts)


def _openml(
    *,
    features: int,
    categorical: int = 0,
    classes: Mapping[str, int] | None = None,
    samples: int = 0,
    n_classes: int = 0,
    sizes: Sequence[int] = (),
    **named: Any,
) -> OpenMLEntry:
    """Return an entry: its classes by label and size, or their number and two sizes."""
    names, counts = tuple(map(str, range(n_classes))), None
    if classes is not None:
        names, counts = tuple(classes), tuple(classes.values())
        samples, sizes = sum(counts), (max(counts), min(counts))
    elif n_classes == 2:
        names, counts = ("majority", "minority"), tuple(sizes)
    elif sizes[0] == sizes[1]:
        counts = (sizes[0],) * n_classes
    return OpenMLEntry(
        **named,
        n_samples=samples,
        n_features=features,
        n_categorical=categorical,
        class_names=names,
        class_counts=counts,
        n_majority=sizes[0],
        n_minority=sizes[1],
        labelled=classes is not None,
    )


def _vision(
    class_names: Sequence[str],
    image: Sequence[int],
    sizes: Sequence[int] = (),
    resized: bool = False,
    **counts: Any,
) -> VisionEntry:
    """Return an entry, whose parts may have equally many samples of each class."""
    parts = {
        part: tuple(held) if isinstance(held, list) else (held,) * len(class_names)
        for part, held in counts.items()
    }
    height, width, channels = image
    image_of = height, width, channels
    return VisionEntry(tuple(class_names), image_of, **parts, sizes=(*sizes,), resized=resized)


def _frozen(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(one) if isinstance(one, list) else one for name, one in values.items()}


_READ = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))

SKLEARN: Mapping[str, Entry] = MappingProxyType(
    {name: Entry(**_frozen(one)) for name, one in _READ["sklearn"].items()}
)
TORCHVISION: Mapping[str, VisionEntry] = MappingProxyType(
    {name: _vision(**one) for name, one in _READ["torchvision"].items()}
)
_LISTS = {name: tuple(_openml(**one) for one in some) for name, some in _READ["openml"].items()}
OPENML: Mapping[str, OpenMLEntry] = MappingProxyType(
    {f"{entry.name}@{entry.version}": entry for some in _LISTS.values() for entry in some}
)
"""All entries by name and version."""

SUITES: Mapping[str, tuple[OpenMLEntry, ...]] = MappingProxyType(
    {name: some for name, some in _LISTS.items() if name != "further"}
)
"""Named lists of datasets."""

MODEL_VARIANCE = SUITES["model-variance-37"]
"""The tabular study's 37 sets, in the order of its table."""
