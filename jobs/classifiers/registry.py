"""The classifiers and the resolution of a sweep file's ``[classifier.NAME]`` table.

Planning reads this module, so it imports no training library; a classifier's module is imported
when a run is first fitted with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import numpy as np

from jobs.checks import integer, unknown
from jobs.datasets.info import DatasetInfo
from jobs.hparams import Value, anchors
from jobs.run import Generators, Prediction, Probability, TrainingSet

Device = Literal["cpu", "gpu"]
SizeClass = Literal["small", "medium", "large"]

_MLP_BATCH: Mapping[SizeClass, int] = {"small": 64, "medium": 1024, "large": 2048}
_SAMPLING = ("colsample_bylevel", "colsample_bynode", "colsample_bytree", "subsample")


@dataclass(frozen=True, slots=True)
class ClassifierInfo:
    """A classifier of a sweep, resolved for one dataset.

    Attributes
    ----------
    name : str
        As the sweep file calls it; an alias is no part of the identity.
    canonical : dict
        Name, semantics version and resolved options: what the identity is taken over.
    hparams : dict
        The anchor of every hparam.
    probability : {"softmax", "ovr", "none"}
        How its scores become probabilities.
    epochs : int or None
        None for a classifier that is not trained in epochs.
    snapshots : tuple of int
        Epochs whose scores are kept, ascending, the last one included; empty without epochs.
    consumes : frozenset of str
        The varying streams, of ``init`` and ``batch``, that a fit at the anchors draws from
        (dropout goes with batch). Empty: all runs of a repeat are the same model.
    device : {"cpu", "gpu"}
        The resource class that is wished for; no part of the identity.
    """

    name: str
    canonical: Mapping[str, Any]
    hparams: Mapping[str, Value]
    probability: Probability
    epochs: int | None
    snapshots: tuple[int, ...]
    consumes: frozenset[str]
    device: Device


@dataclass(frozen=True, slots=True)
class _Kind:
    """One classifier: its module, its version and what its options resolve to."""

    module: str
    probability: Probability
    consumes: Callable[[Mapping[str, Value]], frozenset[str]]
    options: Callable[[DatasetInfo], Mapping[str, Any]]
    devices: tuple[Device, ...] = ("cpu", "gpu")
    epochs: int | None = None
    images_only: bool = False
    version: int = 1


def _batch(_: Mapping[str, Value]) -> frozenset[str]:
    return frozenset({"batch"})


def _init_and_batch(_: Mapping[str, Value]) -> frozenset[str]:
    return frozenset({"init", "batch"})


def _batch_where_sampling(hparams: Mapping[str, Value]) -> frozenset[str]:
    """XGBoost is random only where it samples rows or columns."""
    sampling = any(float(hparams[name]) < 1 for name in _SAMPLING)
    return frozenset({"batch"}) if sampling else frozenset()


def _sgd(_: DatasetInfo) -> Mapping[str, Any]:
    return {"schedule": "adaptive", "max_iter": 1000, "tol": 1e-3}


_KINDS: Mapping[str, _Kind] = {
    "lr-sgd": _Kind("sgd", "ovr", _batch, _sgd, devices=("cpu",)),
    "svm-sgd": _Kind("sgd", "none", _batch, _sgd, devices=("cpu",)),
    "xgb": _Kind("xgb", "softmax", _batch_where_sampling, lambda _: {"rounds": 100}),
    "mlp": _Kind(
        "mlp",
        "softmax",
        _init_and_batch,
        lambda dataset: {
            "batch_size": _MLP_BATCH[size_class(dataset.n_train)],
            "optimizer": "adamw",
            "schedule": "cosine",
        },
        epochs=20,
    ),
    "cnn": _Kind(
        "cnn",
        "softmax",
        _init_and_batch,
        lambda _: {"optimizer": "adam", "schedule": "constant"},
        epochs=50,
        images_only=True,
    ),
}


def names() -> tuple[str, ...]:
    """Return the names of all classifiers."""
    return tuple(_KINDS)


def size_class(n_train: int) -> SizeClass:
    """Return the size class of a dataset by the rows of its training part."""
    if n_train < 2_000:
        return "small"
    return "medium" if n_train < 50_000 else "large"


def resolve(name: str, options: Mapping[str, Any], dataset: DatasetInfo) -> ClassifierInfo:
    """Resolve a classifier of a sweep file for a dataset.

    Parameters
    ----------
    name : str
        A classifier, or an alias whose options name one as ``kind``.
    options : mapping
        The ``[classifier.NAME]`` table: kind, hparams, device and, for networks, epochs and
        snapshots.
    dataset : DatasetInfo
        Decides what depends on size, and whether there are images.

    Raises
    ------
    ValueError
        For an unknown classifier, option or hparam, a value that is not allowed, or a dataset that
        the classifier cannot be trained on.
    """
    kind_name = options.get("kind", name)
    if kind_name not in _KINDS:
        hint = "" if "kind" in options else " (an alias names one as kind)"
        raise unknown(f"classifier{hint}", kind_name, _KINDS)
    if name in _KINDS and kind_name != name:
        raise ValueError(f"classifier {name!r} cannot be of kind {kind_name!r}: take another name")
    kind = _KINDS[kind_name]
    allowed = ["kind", "hparams", "device", *(["epochs", "snapshots"] if kind.epochs else [])]
    for option in options:
        if option not in allowed:
            raise unknown(f"option of classifier {name}", option, allowed)
    if kind.images_only and dataset.image is None:
        raise ValueError(f"{kind_name} needs images, and this dataset has none")
    overrides = options.get("hparams", {})
    if not isinstance(overrides, Mapping):
        raise ValueError(f"hparams is a table of values, not {overrides!r}")
    hparams = anchors(kind_name, overrides)
    epochs, snapshots = _epochs(kind, options)
    canonical = {"name": kind_name, "version": kind.version, **kind.options(dataset)}
    return ClassifierInfo(
        name=name,
        canonical=canonical if epochs is None else {**canonical, "epochs": epochs},
        hparams=hparams,
        probability=kind.probability,
        epochs=epochs,
        snapshots=snapshots,
        consumes=kind.consumes(hparams),
        device=_device(kind_name, kind, options.get("device", "cpu")),
    )


def _epochs(kind: _Kind, options: Mapping[str, Any]) -> tuple[int | None, tuple[int, ...]]:
    if kind.epochs is None:
        return None, ()
    epochs = integer("epochs", options.get("epochs", kind.epochs), least=1)
    snapshots = options.get("snapshots", [])
    if not isinstance(snapshots, list | tuple):
        raise ValueError(f"snapshots is a list of epochs, not {snapshots!r}")
    for snapshot in snapshots:
        integer("a snapshot", snapshot, least=1, most=epochs)
    return epochs, tuple(sorted({*snapshots, epochs}))


def _device(name: str, kind: _Kind, device: Any) -> Device:
    for known in kind.devices:
        if device == known:
            return known
    raise unknown(f"device of {name}", device, kind.devices)


def consumes(canonical: Mapping[str, Any], hparams: Mapping[str, Value]) -> frozenset[str]:
    """Return which of the streams ``init`` and ``batch`` a fit with these hparams draws from."""
    return _KINDS[canonical["name"]].consumes(hparams)


def fit(
    canonical: Mapping[str, Any],
    hparams: Mapping[str, Value],
    data: TrainingSet,
    generators: Generators,
    snapshots: tuple[int, ...] = (),
    *,
    device: Device = "cpu",
) -> Prediction:
    """Fit one run and predict its test set.

    Parameters
    ----------
    canonical : mapping
        The canonical description that `resolve` made.
    hparams : mapping
        A value for every hparam, perturbed or not.
    data : TrainingSet
        Training rows and test rows, before encoding. A class without training rows is learned as
        one without examples: its scores are finite.
    generators : Generators
        All randomness of the fit.
    snapshots : tuple of int
        Epochs, counted from 1, whose predictions are kept beside those of the last; classifiers
        that are not trained in epochs keep one prediction.
    device : {"cpu", "gpu"}
        Where to train; linear models train on the CPU.

    Raises
    ------
    ValueError
        Where the training rows hold a single class.
    FloatingPointError
        Where a score is not finite: the training diverged.
    MachineError
        Where a package or the device is missing.
    """
    kind = _KINDS[canonical["name"]]
    if canonical["version"] != kind.version:
        raise ValueError(
            f"{canonical['name']} of version {canonical['version']}; this is {kind.version}"
        )
    if len(np.unique(data.y)) < 2:
        raise ValueError(f"all {len(data.y)} training rows are of one class")
    module = import_module(f"jobs.classifiers.{kind.module}")
    result: Prediction = module.fit(canonical, hparams, data, generators, snapshots, device)
    return result
