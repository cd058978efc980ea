"""Synthetic data with a planted class structure, the same on every machine.

``synthetic:gaussian``: every class is a Gaussian of unit variance; the means of any two classes lie
`separation` apart. The best accuracy on two equally frequent classes is Φ(separation / 2), less the
cost of label noise. ``flip`` is that noise: the sample, not the label, is drawn from another class,
so the class counts are known before any draw.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import Refused, integer, number
from manyseed.jobs.datasets.source import DatasetSource, DataShape, Samples, listed
from manyseed.jobs.run import canonical_json, raw

GENERATOR_VERSION = 1
"""Frozen: a generator of other values needs another version, kept beside this one."""

NAMES = ("gaussian",)

PARAMETERS = (
    *("n_samples", "n_features", "n_informative", "n_categorical", "n_labels"),
    *("n_classes", "separation", "weights", "flip", "seed"),
)

MOST_SAMPLES, MOST_FEATURES = 100_000_000, 1_000_000


def _describe(name: str, given: Mapping[str, Any]) -> DataShape:
    """Check the parameters and resolve their defaults.

    ``n_samples`` = 1000, ``n_features`` = 20, ``n_informative`` (the first ones; all),
    ``n_categorical`` (the last ones are cut into ``n_labels`` = 4 equally frequent labels; 0),
    ``n_classes`` = 2, ``separation`` = 2, ``weights`` of the classes (equal), ``flip`` = 0,
    ``seed`` = 0.
    """
    listed("synthetic", name, NAMES)
    n_classes = integer("n_classes", given.get("n_classes", 2), least=2, most=1000)
    n_samples = integer(
        "n_samples", given.get("n_samples", 1000), least=2 * n_classes, most=MOST_SAMPLES
    )
    n_features = integer(
        "n_features", given.get("n_features", 20), least=n_classes, most=MOST_FEATURES
    )
    n_informative = given.get("n_informative", n_features)
    n_categorical = integer(
        "n_categorical", given.get("n_categorical", 0), least=0, most=n_features
    )
    counts = _counts(n_samples, _weights(given.get("weights"), n_classes))
    parameters = {
        "class_counts": counts,
        "n_features": n_features,
        # Fewer informative features than classes cannot keep all means equally far apart.
        "n_informative": integer("n_informative", n_informative, least=n_classes, most=n_features),
        "n_categorical": n_categorical,
        "n_labels": integer("n_labels", given.get("n_labels", 4), least=2, most=1000),
        "separation": number("separation", given.get("separation", 2.0), least=0),
        "flip": number("flip", given.get("flip", 0.0), least=0, most=1),
        "seed": integer("seed", given.get("seed", 0), least=0, most=2**63 - 1),
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


def _load(name: str, provenance: Mapping[str, Any]) -> Samples:
    if provenance["generator"] != GENERATOR_VERSION:
        raise ValueError(
            f"synthetic:{name} of generator {provenance['generator']} is not known here"
        )
    given = provenance["parameters"]
    counts, n_features = given["class_counts"], given["n_features"]
    n, n_classes = sum(counts), len(counts)
    y = np.repeat(np.arange(n_classes), counts)
    generator = _generator(name, given["seed"])
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
        X[:, categorical] = _labels(X[:, categorical], given["n_labels"])
        cardinality[categorical] = given["n_labels"]
    return Samples(X, y, cardinality, _class_names(counts))


def _generator(name: str, seed: int) -> np.random.Generator:
    """Return a generator made like those of `jobs.streams`, but independent of any sweep."""
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


def _labels(X: NDArray[np.float64], n_labels: int) -> NDArray[np.float64]:
    """Cut every column into equally frequent labels, by rank."""
    ranks = X.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
    return np.asarray(ranks * n_labels // len(X), dtype=np.float64)


SOURCE = DatasetSource(names=NAMES, parameters=PARAMETERS, describe=_describe, load=_load)
