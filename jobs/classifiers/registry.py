"""The classifiers and the resolution of a sweep file's ``[classifier.NAME]`` table.

Planning reads this module, so it imports no training library; a classifier's module is imported
when a run is first fitted with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np

from jobs.checks import integer, unknown
from jobs.classifiers import weights
from jobs.datasets.info import DatasetInfo
from jobs.hparams import LIBRARY, Value, anchors
from jobs.run import Generators, Prediction, Probability, TrainingSet
from jobs.training.checkpoint import Checkpoint
from jobs.training.device import faults_of
from jobs.training.handling import Device, Handling

SizeClass = Literal["small", "medium", "large"]
Defaults = Literal["study", "library"]

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
    weights : Path or None
        The file of pretrained weights, of which `keep_weights` makes a copy; its digest is part of
        the identity.
    defaults : {"study", "library"}
        Whose defaults the anchors are; the library's can be neither perturbed nor tuned. The
        values are the identity, not this.
    """

    name: str
    canonical: Mapping[str, Any]
    hparams: Mapping[str, Value]
    probability: Probability
    epochs: int | None
    snapshots: tuple[int, ...]
    consumes: frozenset[str]
    device: Device
    weights: Path | None = None
    defaults: Defaults = "study"


@dataclass(frozen=True, slots=True)
class _Kind:
    """One classifier: its module, its version, options of its own and what they resolve to."""

    module: str
    probability: Probability
    consumes: Callable[[Mapping[str, Value]], frozenset[str]]
    options: Callable[[DatasetInfo, Mapping[str, Any]], Mapping[str, Any]]
    keys: tuple[str, ...] = ()
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


def _sgd(_: DatasetInfo, options: Mapping[str, Any]) -> Mapping[str, Any]:
    # scikit-learn's own schedule does without eta0
    schedule = "optimal" if options.get("defaults") == "library" else "adaptive"
    return {"schedule": schedule, "max_iter": 1000, "tol": 1e-3}


def _xgb(*_: object) -> Mapping[str, Any]:
    return {"rounds": 100}


def _mlp(dataset: DatasetInfo, _: object) -> Mapping[str, Any]:
    batch_size = _MLP_BATCH[size_class(dataset.n_train)]
    return {"batch_size": batch_size, "optimizer": "adamw", "schedule": "cosine"}


def _cnn(*_: object) -> Mapping[str, Any]:
    return {"optimizer": "adam", "schedule": "constant"}


def _vit(dataset: DatasetInfo, _: object) -> Mapping[str, Any]:
    assert dataset.image is not None
    side = max(dataset.image[:2])
    return {
        # At most 8 × 8 patches of at least 2 × 2 pixels, so that no image costs more than others.
        "patch": max(2, -(-side // 8)),
        "layers": 4,
        "heads": 4,
        "width": 64,
        "mlp_width": 128,
        "optimizer": "adamw",
        "schedule": "cosine",
    }


def _vit_transfer(dataset: DatasetInfo, options: Mapping[str, Any]) -> Mapping[str, Any]:
    backbone, (_, digest) = _weights(options)
    assert dataset.image is not None
    channels = dataset.image[2]
    if channels not in (1, 3):
        raise ValueError(f"{backbone} takes images of 1 or 3 channels, and these have {channels}")
    return {
        "backbone": backbone,
        "weights": digest,
        "optimizer": "adam",
        "schedule": "constant",
    }


def _weights(options: Mapping[str, Any]) -> tuple[str, tuple[Path, str]]:
    """Return a backbone, its file of weights and the file's digest."""
    backbone = options.get("backbone", "swin_t")
    if backbone not in weights.PUBLISHED:
        raise unknown("backbone", backbone, weights.PUBLISHED)
    return backbone, weights.locate(backbone, options.get("weights"))


_KINDS: Mapping[str, _Kind] = {
    "lr-sgd": _Kind("sgd", "ovr", _batch, _sgd, devices=("cpu",)),
    "svm-sgd": _Kind("sgd", "none", _batch, _sgd, devices=("cpu",)),
    "xgb": _Kind("xgb", "softmax", _batch_where_sampling, _xgb),
    "mlp": _Kind("mlp", "softmax", _init_and_batch, _mlp, epochs=20),
    "cnn": _Kind("cnn", "softmax", _init_and_batch, _cnn, epochs=50, images_only=True),
    "vit": _Kind("vit", "softmax", _init_and_batch, _vit, epochs=50, images_only=True),
    "vit-transfer": _Kind(
        "vit_transfer",
        "softmax",
        _init_and_batch,
        _vit_transfer,
        keys=("backbone", "weights"),
        epochs=5,
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
        The ``[classifier.NAME]`` table: kind, hparams, device, for networks epochs and snapshots,
        for the others defaults, and for ``vit-transfer`` backbone and weights.
    dataset : DatasetInfo
        Decides what depends on size, and whether there are images.

    Raises
    ------
    ValueError
        For an unknown classifier, option or hparam, a value that is not allowed, a dataset that
        the classifier cannot be trained on, or weights that are not on this machine.
    """
    kind_name = options.get("kind", name)
    if kind_name not in _KINDS:
        hint = "" if "kind" in options else " (an alias names one as kind)"
        raise unknown(f"classifier{hint}", kind_name, _KINDS)
    if name in _KINDS and kind_name != name:
        raise ValueError(f"classifier {name!r} cannot be of kind {kind_name!r}: take another name")
    kind = _KINDS[kind_name]
    common = ["kind", "hparams", "device", *(["epochs", "snapshots"] if kind.epochs else [])]
    allowed = [*common, *(["defaults"] if kind_name in LIBRARY else []), *kind.keys]
    for option in options:
        if option not in allowed:
            raise unknown(f"option of classifier {name}", option, allowed)
    if kind.images_only and dataset.image is None:
        raise ValueError(f"{kind_name} needs images, and this dataset has none")
    overrides = options.get("hparams", {})
    if not isinstance(overrides, Mapping):
        raise ValueError(f"hparams is a table of values, not {overrides!r}")
    defaults = _defaults(options.get("defaults", "study"))
    hparams = anchors(kind_name, overrides, library=defaults == "library")
    epochs, snapshots = _epochs(kind, options)
    canonical = {"name": kind_name, "version": kind.version, **kind.options(dataset, options)}
    return ClassifierInfo(
        name=name,
        canonical=canonical if epochs is None else {**canonical, "epochs": epochs},
        hparams=hparams,
        probability=kind.probability,
        epochs=epochs,
        snapshots=snapshots,
        consumes=kind.consumes(hparams),
        device=_device(kind_name, kind, options.get("device", "cpu")),
        weights=_weights(options)[1][0] if "weights" in canonical else None,
        defaults=defaults,
    )


def keep_weights(info: ClassifierInfo) -> None:
    """Keep a copy of the pretrained weights that a classifier needs, if any, for its workers.

    Raises
    ------
    ValueError
        Where they are gone, or no copy can be made.
    """
    if info.weights is not None:
        weights.keep(info.canonical["backbone"], str(info.weights))


def _defaults(value: Any) -> Defaults:
    for known in get_args(Defaults):
        if value == known:
            return cast(Defaults, known)
    raise unknown("defaults", value, get_args(Defaults))


def _epochs(kind: _Kind, options: Mapping[str, Any]) -> tuple[int | None, tuple[int, ...]]:
    if kind.epochs is None:
        return None, ()
    epochs = integer("epochs", options.get("epochs", kind.epochs), least=1, most=1_000_000)
    snapshots = options.get("snapshots", [])
    if not isinstance(snapshots, list | tuple):
        raise ValueError(f"snapshots is a list of epochs, not {snapshots!r}")
    for snapshot in snapshots:
        integer(f"each of snapshots = {snapshots!r}", snapshot, least=1, most=epochs)
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
    curves: bool = False,
    checkpoint: Checkpoint | None = None,
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
    curves : bool
        Whether to record loss and accuracy of every epoch (`Prediction.curves`); needs
        `TrainingSet.y_test` and changes no score. Classifiers without epochs have none.
    checkpoint : Checkpoint, optional
        Where a network saves itself after epochs and goes on from; changes no score. Classifiers
        without epochs ignore it.

    Raises
    ------
    ValueError
        Where the training rows hold a single class, or curves are asked for without `y_test`.
    FloatingPointError
        Where a score is not finite: the training diverged.
    MachineError
        Where a package, the device or pretrained weights are missing.
    """
    kind = _KINDS[canonical["name"]]
    if canonical["version"] != kind.version:
        raise ValueError(
            f"{canonical['name']} of version {canonical['version']}; this is {kind.version}"
        )
    if len(np.unique(data.y)) < 2:
        raise ValueError(f"all {len(data.y)} training rows are of one class")
    if curves and data.y_test is None:
        raise ValueError("curves need the test set's classes, y_test")
    module = import_module(f"jobs.classifiers.{kind.module}")
    handling = Handling(snapshots, device, curves, checkpoint)
    with faults_of(device):
        result: Prediction = module.fit(canonical, hparams, data, generators, handling)
    return result
