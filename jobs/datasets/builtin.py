"""Sources with names: scikit-learn's and torchvision's datasets, and synthetic data.

Those of libraries are checked against the catalogue. ``synthetic:gaussian`` is the same on every
machine: every class is a Gaussian of unit variance; the means of any two classes lie `separation`
apart. The best accuracy on two equally frequent classes is Φ(separation / 2), less the cost of
label noise. ``flip`` is that noise: the sample, not the label, is drawn from another class, so the
class counts are known before any draw.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import Option, Refused, number
from manyseed.jobs.datasets import imagefolder
from manyseed.jobs.datasets.arrayfile import in_file
from manyseed.jobs.datasets.catalogue import SKLEARN, TORCHVISION, VisionEntry
from manyseed.jobs.datasets.imagefolder import SIZE, size_of
from manyseed.jobs.datasets.info import DatasetSource, DataShape, Samples, listed
from manyseed.jobs.packages import install, torchvision
from manyseed.jobs.run import DamagedData, MachineError, canonical_json, raw


def _describe_sklearn(name: str, _: Mapping[str, Any]) -> DataShape:
    entry = SKLEARN[listed("sklearn", name, SKLEARN)]
    return DataShape(
        provenance={"digest": entry.digest},
        n_samples=entry.n_samples,
        n_features=entry.n_features,
        n_categorical=0,
        class_names=entry.class_names,
        class_counts=entry.class_counts,
        image=entry.image,
    )


def _load_sklearn(name: str, provenance: Mapping[str, Any]) -> Samples:
    try:
        from sklearn import datasets
    except ImportError as error:
        raise MachineError(f"sklearn:{name} needs scikit-learn: {error}") from error
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    X, y = np.ascontiguousarray(X, dtype="<f8"), np.ascontiguousarray(y, dtype="<i8")
    digest = hashlib.sha256(X.tobytes() + y.tobytes()).hexdigest()
    if digest != provenance["digest"]:
        raise MachineError(
            f"sklearn:{name} of the installed scikit-learn (digest {digest}) differs from the one "
            f"that the sweep was planned with ({provenance['digest']})"
        )
    continuous = np.zeros(X.shape[1], dtype=np.int32)
    entry = SKLEARN[name]
    return Samples(X, y, continuous, entry.class_names, entry.image)


SKLEARN_SOURCE = DatasetSource(names=tuple(SKLEARN), describe=_describe_sklearn, load=_load_sklearn)


_CINIC10 = "https://datashare.is.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz"


def _describe_torchvision(name: str, given: Mapping[str, Any]) -> DataShape:
    entry = TORCHVISION[listed("torchvision", name, TORCHVISION)]
    height, width, channels = entry.image
    if (size := size_of(given)) is not None and not entry.resized:
        reason = f"the images of {name} all have {height} × {width} pixels, and stay as they are"
        raise Refused(SIZE, given[SIZE], reason, needs={SIZE: None})
    height, width = size or (height, width)
    return DataShape(
        provenance={SIZE: [height, width]} if entry.resized else {},
        n_samples=sum(entry.n_parts),
        n_features=height * width * channels,
        n_categorical=0,
        class_names=entry.class_names,
        class_counts=entry.class_counts,
        image=(height, width, channels),
        test_counts=entry.test_counts,
        n_test=entry.n_parts[1],
    )


def _fetch(provenance: Mapping[str, Any], _: Sequence[str], home: Path) -> Samples:
    """Read the files in ``home/torchvision``, or download them into a temporary folder."""
    name = provenance["source"].removeprefix("torchvision:")
    placed = home / "torchvision"
    entry = TORCHVISION[name]
    height, width = provenance.get(SIZE, entry.image[:2])
    entry = replace(entry, image=(height, width, entry.image[2]))
    try:
        return _samples(name, entry, placed, download=False)
    except MachineError:
        raise
    except (RuntimeError, FileNotFoundError) as missing:  # torchvision's words for files that are
        home.mkdir(parents=True, exist_ok=True)  # missing or changed
        try:
            # In a folder of its own: torchvision's downloads are not safe between processes.
            with TemporaryDirectory(prefix=".torchvision-", dir=home) as folder:
                return _samples(name, entry, Path(folder), download=True)
        except (OSError, RuntimeError) as error:
            remedy = (
                "put its files there as torchvision keeps them, or fetch it where the network can "
                "be reached"
            )
            if name == "CINIC10":
                place = shlex.quote(str(placed / "cinic-10"))
                remedy = f"get it with: mkdir -p {place} && curl -L {_CINIC10} | tar xz -C {place}"
            raise MachineError(
                f"torchvision:{name} is not in {placed} ({missing}) and cannot be downloaded "
                f"({error}); {remedy}"
            ) from error


def _samples(name: str, entry: VisionEntry, root: Path, *, download: bool) -> Samples:
    parts = [_part(name, entry, root, train, download) for train in (True, False)]
    for part, (X, y), counts, size in zip(
        ("training", "test"),
        parts,
        (entry.train_counts, entry.test_counts),
        entry.n_parts,
        strict=True,
    ):
        found = tuple(np.bincount(y, minlength=len(entry.class_names)).tolist())
        is_known = len(y) == size and 0 not in found if counts is None else found == counts
        if not is_known or X.shape[1:] != entry.image:
            raise MachineError(
                f"the {part} part of torchvision:{name} is not what the catalogue says: images "
                f"{X.shape[1:]} with {found} in the classes, in the catalogue {entry.image} "
                f"with {counts or f'{size} in total'}"
            )
    return Samples(
        X=np.concatenate([X.reshape(len(X), -1) for X, _ in parts]),
        y=np.concatenate([y for _, y in parts]),
        cardinality=np.zeros(int(np.prod(entry.image)), dtype=np.int32),
        class_names=entry.class_names,
        image=entry.image,
        n_official_train=len(parts[0][1]),
    )


_FILES = {
    "CINIC10": (("train", "valid"), ("test",)),
    "Flowers102": (("train", "val"), ("test",)),
    "OxfordIIITPet": (("trainval",), ("test",)),
}
"""Datasets whose images are files: what its authors call the parts that are trained on, validation
included, and the test part."""


def _part(
    name: str, entry: VisionEntry, root: Path, train: bool, download: bool
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images (sample, height, width, channels) and classes of one official part."""
    try:
        kinds = torchvision("torchvision.datasets")
    except ImportError as error:
        reason = f"torchvision:{name} needs torchvision: {error}"
        raise MachineError(f"{reason}; install with: {install(['torch'])}") from error
    if name == "CINIC10" and download:
        raise RuntimeError("torchvision does not do it")
    if name == "CINIC10":
        folders = [root / "cinic-10" / part for part in _FILES[name][not train]]
        return _pictures(name, entry, [kinds.ImageFolder(str(folder)) for folder in folders])
    kind = getattr(kinds, name)
    if name in _FILES:
        splits = _FILES[name][not train]
        opened = [kind(str(root), split=split, download=download) for split in splits]
        return _pictures(name, entry, opened)
    which = {"split": "train" if train else "test"} if name == "SVHN" else {"train": train}
    data = kind(str(root), download=download, **which)
    X = np.asarray(data.data, dtype=np.uint8)
    if name == "SVHN":
        X = X.transpose(0, 2, 3, 1)
    elif X.ndim == 3:
        X = X[..., None]
    y = np.asarray(data.labels if name == "SVHN" else data.targets, dtype=np.int64)
    return X, y


def _pictures(
    name: str, entry: VisionEntry, parts: Sequence[Any]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Decode the images of torchvision's datasets, to one size; return them and their classes."""
    from PIL import Image

    for part in parts:
        if (classes := tuple(getattr(part, "classes", entry.class_names))) != entry.class_names:
            found = f"are {classes}, in the catalogue {entry.class_names}"
            raise DamagedData(f"the classes of torchvision:{name} {found}")
    height, width, _ = entry.image
    X = in_file((sum(map(len, parts)), *entry.image), np.uint8)
    y = np.empty(len(X), dtype=np.int64)
    pictures = ((part, i) for part in parts for i in range(len(part)))
    for row, (part, i) in enumerate(pictures):
        try:
            picture, y[row] = part[i]
        except FileNotFoundError:
            raise
        except OSError as error:
            raise DamagedData(f"an image of torchvision:{name} is damaged: {error}") from error
        if picture.size != (width, height) and not entry.resized:
            shown = " × ".join(map(str, reversed(picture.size)))
            raise DamagedData(f"torchvision:{name} has an image of {shown} pixels")
        X[row] = picture.resize((width, height), Image.Resampling.BILINEAR)
    return X, y


TORCHVISION_SOURCE = DatasetSource(
    names=tuple(TORCHVISION),
    parameters=imagefolder.OPTIONS,
    describe=_describe_torchvision,
    fetch=_fetch,
)


GENERATOR_VERSION = 1
"""Frozen: a generator of other values needs another version, kept beside this one."""

SYNTHETIC = ("gaussian",)

MOST_SAMPLES, MOST_FEATURES = 100_000_000, 1_000_000

SYNTHETIC_OPTIONS: Mapping[str, Option] = {
    "n_samples": Option("Samples.", int, 1000, least=4, most=MOST_SAMPLES),
    "n_features": Option("Features.", int, 20, least=2, most=MOST_FEATURES),
    "n_informative": Option("The first features tell classes apart (default: all).", int, least=2),
    "n_categorical": Option("The last features are cut into labels.", int, 0, least=0),
    "n_labels": Option("Labels of a categorical feature.", int, 4, least=2, most=1000),
    "n_classes": Option("Classes.", int, 2, least=2, most=1000),
    "separation": Option("Distance of any two classes' means.", float, 2.0, least=0),
    "weights": Option("Frequencies of the classes (default: equal).", list),
    "flip": Option("Share of samples drawn from another class.", float, 0.0, least=0, most=1),
    "seed": Option("Seed of the draws.", int, 0, least=0, most=2**63 - 1),
}


def _describe_synthetic(name: str, given: Mapping[str, Any]) -> DataShape:
    """Check the parameters, some of whose bounds are others' values, and resolve defaults."""
    listed("synthetic", name, SYNTHETIC)

    def value(key: str, **bounds: Any) -> Any:
        option = replace(SYNTHETIC_OPTIONS[key], **bounds)
        return option.check(key, given.get(key, option.default))

    k = value("n_classes")
    n_samples, n_features = value("n_samples", least=2 * k), value("n_features", least=k)
    n_categorical = value("n_categorical", most=n_features)
    counts = _counts(n_samples, _weights(given.get("weights"), k))
    parameters = {
        "class_counts": counts,
        "n_features": n_features,
        # Fewer informative features than classes cannot keep all means equally far apart.
        "n_informative": value("n_informative", default=n_features, least=k, most=n_features),
        "n_categorical": n_categorical,
        **{key: value(key) for key in ("n_labels", "separation", "flip", "seed")},
    }
    if n_categorical == 0:
        del parameters["n_labels"]
    return DataShape(
        provenance={"generator": GENERATOR_VERSION, "parameters": parameters},
        n_samples=n_samples,
        n_features=n_features,
        n_categorical=n_categorical,
        class_names=_class_names(counts),
        class_counts=tuple(counts),
    )


def _weights(weights: object, n_classes: int) -> list[Fraction]:
    if weights is None:
        return [Fraction(1)] * n_classes
    if isinstance(weights, str) or not isinstance(weights, Sequence) or len(weights) != n_classes:
        allowed = f"a list of {n_classes} numbers, one per class"
        raise Refused("weights", weights, allowed=allowed)
    return [Fraction(repr(number("weights", weight, above=0))) for weight in weights]


def _counts(n_samples: int, weights: Sequence[Fraction]) -> list[int]:
    """Divide the samples among classes by largest remainder, ties to the first class."""
    shares = [n_samples * weight / sum(weights) for weight in weights]
    counts = [int(share) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda c: counts[c] - shares[c])
    for c in by_remainder[: n_samples - sum(counts)]:
        counts[c] += 1
    if min(counts) < 2:
        reason = f"leaves a class fewer than 2 of {n_samples} samples: {counts}"
        raise Refused("weights", list(map(float, weights)), reason)
    return counts


def _class_names(counts: Sequence[int]) -> tuple[str, ...]:
    return tuple(str(c) for c in range(len(counts)))


def _load_synthetic(name: str, provenance: Mapping[str, Any]) -> Samples:
    if provenance["generator"] != GENERATOR_VERSION:
        raise ValueError(
            f"synthetic:{name} of generator {provenance['generator']} is not known here"
        )
    given = provenance["parameters"]
    counts, n_features = given["class_counts"], given["n_features"]
    n, n_classes = sum(counts), len(counts)
    y = np.repeat(np.arange(n_classes), counts)
    generator = _generator_of(name, given["seed"])
    noise = _standard_normal(raw(generator, n * n_features)).reshape(n, n_features)
    flipped = _uniform(raw(generator, n)) < given["flip"]
    other = (y + 1 + (raw(generator, n) % np.uint64(n_classes - 1)).astype(np.int64)) % n_classes
    means = _means(n_classes, n_features, given["n_informative"], given["separation"])
    X = noise + means[np.where(flipped, other, y)]
    # Rounded, so that the last bit of a mathematical library does not change the data.
    X = X.astype(np.float32).astype(np.float64)
    cardinality = np.zeros(n_features, dtype=np.int32)
    if given["n_categorical"]:
        categorical = slice(n_features - given["n_categorical"], None)
        X[:, categorical] = _cut(X[:, categorical], given["n_labels"])
        cardinality[categorical] = given["n_labels"]
    return Samples(X, y, cardinality, _class_names(counts))


def _generator_of(name: str, seed: int) -> np.random.Generator:
    """Return a generator made like those of `jobs.run`, but independent of any sweep."""
    digest = hashlib.sha256(canonical_json([GENERATOR_VERSION, seed, f"synthetic:{name}"])).digest()
    words = [int(word) for word in np.frombuffer(digest, dtype="<u4")]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))


def _uniform(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Map raw words into the open interval (0, 1)."""
    return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _standard_normal(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Map raw words through the inverse of Φ: NumPy may change its own normal draws."""
    from scipy.special import ndtri

    return np.asarray(ndtri(_uniform(words)), dtype=np.float64)


def _means(
    n_classes: int, n_features: int, n_informative: int, separation: float
) -> NDArray[np.float64]:
    """Return class means (class, feature), any two of them `separation` apart.

    Informative feature j belongs to class j mod K and is raised for that class alone.
    """
    means = np.zeros((n_classes, n_features))
    for c in range(n_classes):
        raised = np.arange(c, n_informative, n_classes)
        means[c, raised] = separation / np.sqrt(2.0 * raised.size)
    return means


def _cut(X: NDArray[np.float64], n_labels: int) -> NDArray[np.float64]:
    """Cut every column into equally frequent labels, by rank."""
    ranks = X.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
    return np.asarray(ranks * n_labels // len(X), dtype=np.float64)


SYNTHETIC_SOURCE = DatasetSource(
    names=SYNTHETIC,
    parameters=SYNTHETIC_OPTIONS,
    describe=_describe_synthetic,
    load=_load_synthetic,
)
