"""A training run: its identity, its random streams, its data, and its prediction from scores.

Frozen: an identity is 128 bits of SHA-256 over a canonical JSON text. A generator is PCG64 on a
``numpy.random.SeedSequence`` of the eight little-endian 32-bit words of SHA-256 over the canonical
JSON of ``[v, sweep seed, stream, keys]``. Keys are identities and numbers, never positions or
aliases, so a run draws the same numbers in every sweep that holds it. ``docs/identity.md`` explains
how to recompute both.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

IDENTITY_VERSION = 1

T = TypeVar("T")

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


def canonical_json(value: Json) -> bytes:
    """Encode as JSON with sorted keys, no spaces, UTF-8 and shortest round-trip floats."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def identity(value: Mapping[str, Json]) -> str:
    """Return the identity of a canonical description as 32 hexadecimal digits.

    The description carries its own version under ``v``.
    """
    if value.get("v") != IDENTITY_VERSION:
        raise ValueError(f"a description needs v = {IDENTITY_VERSION}, got {value.get('v')!r}")
    return text_identity(canonical_json(value))


def text_identity(text: bytes) -> str:
    """Return the identity of a description that is already canonical JSON."""
    return hashlib.sha256(text).digest()[:16].hex()


def canonical_pieces(fields: Mapping[str, T], optional: Collection[str] = ()) -> list[str | T]:
    """Return the pieces that, joined, are a canonical JSON object: its punctuation and `fields`.

    Given each field's canonical JSON, as texts or as columns of texts, joining is cheaper than
    encoding every object. Fields in `optional` come from `optional_piece`; none may sort last.
    """
    names = sorted(fields)
    pieces: list[str | T] = ["{"]
    for key in names:
        if key in optional:
            pieces.append(fields[key])
        else:
            pieces += [f'"{key}":', fields[key], "}" if key == names[-1] else ","]
    return pieces


def optional_piece(key: str, value: Json) -> str:
    """Return the piece for a field that a description omits while it is ``none``: then ``""``."""
    return "" if value == "none" else f'"{key}":{canonical_json(value).decode()},'


Probability = Literal["softmax", "ovr", "none"]
"""How scores become probabilities: softmax of logits (for two classes the sigmoid of the gap),
normalised one-vs-rest sigmoids, or not at all (hinge loss)."""

LATER = ("augment", "ensembling", "test_augment", "perturb_labels")
"""Fields added to `Cell` later: omitted from descriptions while they are ``none``, so that
identities stay the same."""

CROSSED = "crossed"
"""The field of a description that is present, and true, if the sources in `vary` are crossed."""

SOURCES_OF_RANDOMNESS = ("init", "batch", "train")
"""What may vary between the runs of a repeat: initial weights, batches and dropout, bootstrap."""

SEARCHED = "tuned"
"""The key of `Cell.hparams` that holds a search, and the value of a scale still searched for."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What the runs of one combination share; all values are resolved and typed.

    `dataset` and `classifier` are canonical descriptions (`jobs.datasets.resolve`,
    `jobs.classifiers.resolve`); `hparams` maps each hparam to its anchor. `ensembling` is the
    method that gives a run several members (`jobs.ensembling.methods.resolve`), None for single
    models. `crossed`: whether the runs of a repeat combine every value of each source in `vary`
    with every value of the others.
    """

    seed: int
    dataset: Mapping[str, Any]
    classifier: Mapping[str, Any]
    hparams: Mapping[str, Any]
    perturb_continuous: str = "none"
    perturb_categorical: str = "none"
    perturb_hparams: str = "none"
    train_fraction: float | int = 1.0
    vary: tuple[str, ...] = ("batch", "init")
    augment: str = "none"
    ensembling: Mapping[str, Any] | None = None
    test_augment: str = "none"
    perturb_labels: str = "none"
    crossed: bool = False

    def canonical(self) -> dict[str, Json]:
        """Return the description from which the cell's identity is computed."""
        later = {
            name: value for name in LATER if (value := getattr(self, name)) not in ("none", None)
        }
        later |= {CROSSED: True} if self.crossed else {}
        return {
            "v": IDENTITY_VERSION,
            "seed": self.seed,
            "dataset": dict(self.dataset),
            "classifier": dict(self.classifier),
            "hparams": dict(self.hparams),
            "perturb_continuous": self.perturb_continuous,
            "perturb_categorical": self.perturb_categorical,
            "perturb_hparams": self.perturb_hparams,
            "train_fraction": self.train_fraction,
            "vary": sorted(self.vary),
            **later,
        }

    @classmethod
    def from_canonical(cls, value: Mapping[str, Any]) -> Cell:
        """Read a description that `canonical` wrote."""
        if value.get("v") != IDENTITY_VERSION:
            raise ValueError(f"a cell of version {value.get('v')!r}; this is {IDENTITY_VERSION}")
        fields = {key: value[key] for key in value if key != "v"}
        return cls(**{**fields, "vary": tuple(sorted(fields["vary"]))})

    @classmethod
    def from_text(cls, text: str) -> Cell:
        """Read a description in JSON, the form in which plans store it."""
        return cls.from_canonical(json.loads(text))

    @property
    def id(self) -> str:
        """The cell's identity, 32 hexadecimal digits."""
        return identity(self.canonical())

    @property
    def has_search(self) -> bool:
        """Whether a search determines its hparams or the scale of its posterior."""
        return SEARCHED in self.hparams or (self.ensembling or {}).get("scale") == SEARCHED

    @property
    def classifier_key(self) -> str:
        """The key of its classifier's streams."""
        return f"{self.classifier['name']}@{self.classifier['version']}"

    @property
    def varied(self) -> str:
        """The sources in `vary`, joined as in a sweep file: ``init+batch``, or ``init*batch``."""
        named = [source for source in SOURCES_OF_RANDOMNESS if source in self.vary]
        return ("*" if self.crossed else "+").join(named)


@cache
def _shell(sources: int, largest: int) -> list[tuple[int, ...]]:
    """Return the combinations of so many numbers whose largest is this one, in order."""
    every = product(range(largest + 1), repeat=sources)
    return [one for one in every if max(one) == largest]


def crossing(sources: int, run: int) -> tuple[int, ...]:
    """Return which value of each crossed source a run has.

    Runs are numbered by the largest of their values, then by the first, the second, …: (0, 0),
    (0, 1), (1, 0), (1, 1), (0, 2), … So the first kⁿ runs combine the first k values of n sources,
    whatever k is, and more runs extend a cross.
    """
    largest = 0
    while (largest + 1) ** sources <= run:
        largest += 1
    before: int = largest**sources
    return _shell(sources, largest)[run - before]


@dataclass(frozen=True, slots=True)
class Run:
    """One model fit: a cell, the index of its test set, and its number within the repeat."""

    cell: Cell
    repeat: int
    run: int

    def number(self, source: str = "train") -> int:
        """Return which of a repeat's values of a source it has, the key of the source's streams.

        That is `run`, unless the cell's sources are crossed: then the value along the source.
        Subsamples and schemes go with train, and are those of run 0 where train is not crossed.
        """
        if not self.cell.crossed:
            return self.run
        sources = self.cell.varied.split("*")
        return dict(zip(sources, crossing(len(sources), self.run), strict=True)).get(source, 0)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A run's prediction of its test set.

    Attributes
    ----------
    scores : float32 array
        The logit gap (epoch, sample) of two classes; scores (epoch, sample, class) of more.
    label : uint16 array (epoch, sample)
        The predicted class; with two classes, 1 where the gap is at least 0.
    confidence : float32 array (epoch, sample)
        Probability of the predicted class; NaN if the classifier has no probabilities.
    fit_seconds : float
        Wall time of fitting, without prediction, in seconds.
    curves : dict of float32 arrays (epoch,), or None
        If requested, for classifiers that are trained in epochs: ``train_loss`` and
        ``train_accuracy``, means over an epoch's batches at the time of their steps; ``test_loss``
        and ``test_accuracy`` after the epoch. Losses are mean cross-entropies in nats.
    measured : dict of arrays, or None
        Measurements of the trained model, if requested (`jobs.training.handling.measure`).
    """

    scores: NDArray[np.float32]
    label: NDArray[np.uint16]
    confidence: NDArray[np.float32]
    fit_seconds: float
    curves: Mapping[str, NDArray[np.float32]] | None = None
    measured: Mapping[str, NDArray[Any]] | None = None


@dataclass(frozen=True, slots=True)
class DatasetRows:
    """Where a training set's rows lie in the dataset, for what is computed once per dataset.

    Attributes
    ----------
    dataset : str
        The dataset's identity.
    X : array (n_samples, n_features)
        All rows of the prepared dataset, raw; uint8 for images stored as bytes.
    train : int64 array (n_train,) or None
        Indices of the training rows; None if they were perturbed.
    test : int64 array (n_test,)
        Indices of the test rows.
    """

    dataset: str
    X: NDArray[Any]
    train: NDArray[np.int64] | None
    test: NDArray[np.int64]


class Feature(NamedTuple):
    """A column of a table: its name, and its labels in the order of their codes if it has any."""

    name: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """The data of one fit, after subsampling, resampling and perturbation, before encoding.

    Attributes
    ----------
    X : float64 array (n_train, n_features)
        Raw values; a categorical column holds codes 0 … cardinality - 1, NaN where missing.
    y : uint16 array (n_train,)
        Class index, with the noise on labels, if any.
    X_test : float64 array (n_test, n_features)
        Never perturbed.
    n_classes : int
        Classes of the dataset; some may be absent from `y`.
    cardinality : int32 array (n_features,)
        Number of labels of a categorical feature, 0 for a continuous one.
    image : tuple of int or None
        (height, width, channels) if a row is an image flattened in that order.
    y_test : uint16 array (n_test,), optional
        Class index of the test rows. Only learning curves read it.
    in_dataset : DatasetRows, optional
        The same rows in the prepared dataset.
    augment : str
        Random transform applied each time a training image is presented, in its normal form
        (`jobs.images`); or ``none``.
    test_augment : str
        The same for test images, anew for each member.
    features : tuple of Feature
        Each column's name, and its labels in the order of their codes; empty where not known.
    shared : dict
        What fits of runs that have the same rows share, such as these rows encoded, by name.
    """

    X: NDArray[np.float64]
    y: NDArray[np.uint16]
    X_test: NDArray[np.float64]
    n_classes: int
    cardinality: NDArray[np.int32]
    image: tuple[int, int, int] | None = None
    y_test: NDArray[np.uint16] | None = None
    in_dataset: DatasetRows | None = None
    augment: str = "none"
    test_augment: str = "none"
    features: tuple[Feature, ...] = ()
    shared: dict[str, tuple[Any, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def nbytes(self) -> int:
        """Size of the rows, and of what fits share."""
        of = (self.X, self.X_test, *(one for several in self.shared.values() for one in several))
        return sum(one.nbytes for one in of if isinstance(one, np.ndarray))


@dataclass(frozen=True, slots=True)
class Generators:
    """The streams that a fit may draw from; nothing else in it is random.

    Attributes
    ----------
    init, batch, dropout
        Streams of the classifier.
    augment, test_augment : optional
        Present if training images, or test images, are augmented.
    langevin, posterior : optional
        An ensembling method's noise during training, and its draws of members afterwards.
    """

    init: np.random.Generator
    batch: np.random.Generator
    dropout: np.random.Generator
    augment: np.random.Generator | None = None
    test_augment: np.random.Generator | None = None
    langevin: np.random.Generator | None = None
    posterior: np.random.Generator | None = None


class MachineError(RuntimeError):
    """The machine, not the run, is at fault: missing data or packages, a broken device."""


class DamagedData(MachineError):
    """A file of a data set cannot be decoded, on any machine."""


class MemoryFull(MachineError):
    """Memory does not suffice for a fit, or for several at once."""


class GpuFull(MemoryFull):
    """The memory of the GPU is full; other processes may hold most of it."""


class NotFetched(MachineError):
    """The prepared copy of a dataset is missing from this machine, or damaged."""


class PreparedElsewhere(NotFetched):
    """A job cannot read the folder of data that its submission used."""


STREAMS_VERSION = 1

Stream = Literal[
    "split",
    "subsample",
    "resample",
    "perturb_continuous",
    "perturb_categorical",
    "perturb_hparams",
    "init",
    "batch",
    "dropout",
    "tune",
    "augment",
    "response",
    "response_shift",
    "langevin",
    "posterior",
    "test_augment",
    "perturb_labels",
]


def stream(seed: int, name: Stream, *keys: str | int) -> np.random.Generator:
    """Return the generator of one stream.

    Parameters
    ----------
    seed : int
        The sweep's seed.
    name : Stream
        The source of randomness.
    *keys : str or int
        The stream's keys (table in ``docs/identity.md``).
    """
    if name not in get_args(Stream):
        raise ValueError(f"unknown stream {name!r}; there are {', '.join(get_args(Stream))}")
    digest = hashlib.sha256(canonical_json([STREAMS_VERSION, seed, name, list(keys)])).digest()
    words = np.frombuffer(digest, dtype="<u4")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([int(w) for w in words])))


def raw(generator: np.random.Generator, n: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Draw `n` raw 64-bit words, which no change to NumPy's distributions can alter."""
    return np.asarray(generator.bit_generator.random_raw(n), dtype=np.uint64)


def seed31(generator: np.random.Generator) -> int:
    """Draw a seed in [0, 2**31) for a library that takes an integer seed."""
    return int(generator.bit_generator.random_raw() & 0x7FFFFFFF)


OFF = 1e-3  # largest deviation from 1 of the sum of a row's probabilities


def prediction(
    scores: NDArray[np.floating[Any]],
    probability: Probability,
    fit_seconds: float,
    curves: Mapping[str, NDArray[np.float32]] | None = None,
    measured: Mapping[str, NDArray[Any]] | None = None,
) -> Prediction:
    """Derive labels and confidences from scores, which are rounded to float32 first.

    Parameters
    ----------
    scores : array
        Gaps of two classes (epoch, sample), or a score per class (epoch, sample, class).
    probability, fit_seconds, curves, measured
        As in `jobs.run.Probability` and `jobs.run.Prediction`.

    Raises
    ------
    FloatingPointError
        If a score is not finite: the training diverged.
    """
    scores = scores if scores.ndim == 2 else gaps(scores)
    with np.errstate(over="ignore"):
        scores = np.ascontiguousarray(scores, dtype=np.float32)
    if not np.isfinite(scores).all():
        bad = np.count_nonzero(~np.isfinite(scores))
        raise FloatingPointError(
            f"the training diverged: {bad} of {scores.size} scores are not finite"
        )
    return Prediction(
        scores=scores,
        label=labels(scores, 2 if scores.ndim == 2 else scores.shape[2]).astype(np.uint16),
        confidence=_confidence(scores, probability).astype(np.float32),
        fit_seconds=fit_seconds,
        curves=curves,
        measured=measured,
    )


def gaps(scores: Any) -> Any:
    """Return scores (…, class), an array or tensor, in stored form: the gap (…) of two classes."""
    return scores[..., 1] - scores[..., 0] if scores.shape[-1] == 2 else scores


def labels(scores: Any, n_classes: int) -> Any:
    """Return the classes that gaps (…) or scores of more than two classes (…, class) predict.

    A tie goes to the positive one of two classes, and to the first of more.

    Parameters
    ----------
    scores : array or tensor
        In stored form: gaps (…) if `n_classes` is 2, else scores (…, class).
    n_classes : int

    Returns
    -------
    array or tensor (…)
        Whole numbers, or for two classes truth values.
    """
    return scores >= 0 if n_classes == 2 else scores.argmax(-1)


def are_probabilities(values: NDArray[Any]) -> bool:
    """Return whether a run's values (sample,) or (sample, class) can be probabilities."""
    if not 0 <= values.min() <= values.max() <= 1:  # or NaN
        return False
    return values.ndim == 1 or bool((abs(values.sum(axis=1, dtype=np.float64) - 1) <= OFF).all())


def _confidence(scores: NDArray[np.float32], probability: Probability) -> NDArray[np.float64]:
    """Return the probability of the predicted class, (epoch, sample)."""
    exact = scores.astype(np.float64)
    if probability == "none":
        return np.full(scores.shape[:2], np.nan)
    if scores.ndim == 2:
        # Sigmoid of the gap; normalised one-vs-rest sigmoids of g and -g give the same number.
        return 1 / (1 + np.exp(-np.abs(exact)))
    # Both in logarithms, so that a row of small probabilities cannot sum to zero.
    logs = exact if probability == "softmax" else -np.logaddexp(0.0, -exact)
    shares: NDArray[np.float64] = np.exp(logs - logs.max(axis=2, keepdims=True))
    return np.asarray(1 / shares.sum(axis=2))
