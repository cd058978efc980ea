"""All classifiers; resolve users' options, and fit one run."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from manyseed.jobs.checks import Refused, require_known
from manyseed.jobs.classifiers.record import (
    FORMS,
    TABLE,
    Classifier,
    ClassifierInfo,
    Defaults,
    NoHparam,
    Unsuitable,
    epochs_of,
)
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.hparams import Hparam, Value, grid, unmoved
from manyseed.jobs.images import augmentation
from manyseed.jobs.run import Cell, Generators, MachineError, Prediction, TrainingSet, prediction
from manyseed.jobs.training.handling import (
    PLAIN,
    PREDICTED_AT_ONCE,
    FitInput,
    Fitted,
    Handling,
    faults_of,
    measure,
)
from manyseed.jobs.training.network import Network

_ORDER = (
    *("lr-sgd", "svm-sgd", "xgb", "mlp", "cnn", "convnet", "vgg", "resnet", "preresnet"),
    *("wide-resnet", "vit", "vit-transfer"),
)
"""The classifiers that are listed first; others follow by name."""


def _found() -> dict[str, Classifier]:
    """Return the records that the modules of this package hold."""
    found = dict[str, Classifier]()
    for module in pkgutil.iter_modules(sys.modules[__package__].__path__, f"{__package__}."):
        held = vars(importlib.import_module(module.name)).values()
        found |= {one.name: one for one in held if isinstance(one, Classifier)}
    return {name: found[name] for name in (*_ORDER, *sorted(found.keys() - {*_ORDER}))}


CLASSIFIERS = _found()
"""By the names that users write."""

_START = 0.005
"""Seconds of any fit for drawing, encoding and scaling rows and predicting the test set."""

TRANSFORM_SECONDS = {
    "crop-flip": 1e-8,
    "rotate": 3e-8,
    "shift-x": 2e-8,
    "shift-y": 2e-8,
    "colour": 6e-8,
}
"""CPU seconds of transforming an image, per pixel value; measured on 32 × 32 × 3."""


def lacking(name: str) -> tuple[str, ...]:
    """Return the packages that a classifier's fit needs and that are not installed."""
    record = CLASSIFIERS.get(name)
    packages = record.packages if record else ()
    return tuple(package for package in packages if find_spec(package) is None)


def kind_of(name: str, kind: str | None, options: Mapping[str, Any]) -> str:
    """Return the kind of classifier that a name and its options mean.

    `name`: the name that the user wrote. `kind`: the option ``kind``, if given. `options`: the
    user's other options. Returns one of `names`, or of `FORMS` if the options name the user's own
    code; an unknown kind is returned as it is.
    """
    return kind or next((form for form in FORMS if form in options), name)


def is_known(kind: str, options: Mapping[str, Any]) -> bool:
    """Return whether there is such a classifier, or the options name the user's own code so."""
    return kind in names() or (kind in FORMS and kind in options)


def names() -> tuple[str, ...]:
    """Return the names of all classifiers."""
    return tuple(CLASSIFIERS)


def resolve(name: str, options: Mapping[str, Any], dataset: DatasetInfo) -> ClassifierInfo:
    """Resolve a named classifier for a dataset.

    `name`: a classifier, or an alias whose options name one as ``kind``. `options`: what the user
    wrote: kind, hparams, grid and device; epochs and snapshots of networks, defaults of other
    classifiers, and further options of the classifier's record. `dataset`: determines defaults that
    depend on size, and whether rows are images.
    """
    kind = options.get("kind", name)
    if kind not in CLASSIFIERS:
        raise Refused("kind", kind, "unknown classifier", CLASSIFIERS)
    if name in CLASSIFIERS and kind != name:
        raise Refused("kind", kind, f"{name} is a classifier of its own; take another name")
    record = CLASSIFIERS[kind]
    table = record.table
    require_known(table, options)
    if record.images_only and dataset.image is None:
        reason = f"{kind} needs images, and this dataset has none"
        raise Unsuitable("image", dataset.image, reason)
    defaults: Defaults = TABLE["defaults"].check("defaults", options.get("defaults", "study"))
    hparams = record.anchors(options.get("hparams"), library=defaults == "library")
    configurations(kind, options)
    epochs, snapshots = None, tuple[int, ...]()
    if record.epochs is not None:
        epochs, snapshots = epochs_of(record.epochs, options)
    canonical = {"name": kind, "version": record.version, **record.settings(dataset, options)}
    return ClassifierInfo(
        name=name,
        record=record,
        canonical=canonical if epochs is None else {**canonical, "epochs": epochs},
        hparams=hparams,
        epochs=epochs,
        snapshots=snapshots,
        consumes=record.consumes(hparams),
        device=table["device"].check("device", options.get("device", "cpu")),
        defaults=defaults,
        options=options,
    )


def configurations(kind: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the configurations of a classifier's hparam grid in written form; () without a grid.

    `kind`: a classifier, or one of `FORMS`. `options`: what the user wrote.
    """
    if "grid" not in options:
        return ()
    lists, others = options["grid"], tuple[str, ...]()
    if kind in FORMS:
        from manyseed.jobs.own.table import read

        space = read(options).space
    else:
        space, others = CLASSIFIERS[kind].space, ("epochs", *CLASSIFIERS[kind].options)
    if options.get("defaults", "study") != "study":
        reason = "values around the library's defaults"
        raise Refused("grid", lists, reason, needs={"defaults": None})
    fixed = options.get("hparams", {})
    for name in lists if isinstance(lists, Mapping) else ():
        if isinstance(fixed, Mapping) and name in fixed:
            reason, needs = f"hparams fixes {name} already", {f"hparams.{name}": None}
            raise Refused(f"grid.{name}", lists[name], reason, needs=needs)
        if name in others:
            raise NoHparam(f"grid.{name}", lists[name], f"{name} is no hparam")
    return tuple(map(grid.written, grid.configurations(space, lists)))


def prepare(info: ClassifierInfo) -> None:
    """Store what a classifier's workers will need, such as a copy of pretrained weights."""
    if info.record.prepare is not None:
        info.record.prepare(info.options)


def core_seconds(
    dataset: DatasetInfo,
    info: ClassifierInfo,
    rows: float,
    augment: str = "none",
    ensembling: Mapping[str, Any] | None = None,
    test_augment: str = "none",
) -> float:
    """Estimate the seconds that a fit takes on one core.

    `rows`: training rows. `augment`: random transform of training images, in its normal form.
    `ensembling`: the method that gives the run several members: all of its training counts, and the
    members' predictions. `test_augment`: random transform of test images, for each member.
    """
    predicting, factor, members = 0.0, 1.0, 1
    if ensembling is not None and info.epochs is not None:
        from manyseed.jobs.ensembling.methods import PREDICTION, member_epochs, passes

        taken_after = member_epochs(ensembling, info.epochs)
        factor = passes(ensembling, info.epochs) / taken_after[-1]
        members = len(taken_after)
        settings = {**info.canonical, "epochs": taken_after[-1]}
        if "batch_size" in settings and "batch_size" in ensembling:
            settings["batch_size"] = ensembling["batch_size"]
        info = replace(info, canonical=settings, epochs=taken_after[-1])
        predicting = members * dataset.n_test * _row_seconds(dataset, info) * PREDICTION
    augmenting = 0.0
    if (scheme := augmentation(augment)) is not None and info.epochs is not None:
        augmenting = info.epochs * rows * dataset.n_features * TRANSFORM_SECONDS[scheme.name]
    if (scheme := augmentation(test_augment)) is not None:
        test_set = dataset.n_test * dataset.n_features * TRANSFORM_SECONDS[scheme.name]
        predicting += members * test_set
    training = factor * info.record.core_seconds(dataset, info, rows)
    return _START + augmenting + training + predicting


def _row_seconds(dataset: DatasetInfo, info: ClassifierInfo) -> float:
    """Return the training seconds per row and epoch in steps of `PREDICTED_AT_ONCE` rows."""
    rows = {"batch": PREDICTED_AT_ONCE, "batch_size": PREDICTED_AT_ONCE}
    large = replace(
        info,
        canonical={**info.canonical, **{k: v for k, v in rows.items() if k in info.canonical}},
        hparams={**info.hparams, **{k: v for k, v in rows.items() if k in info.hparams}},
    )
    epochs = float(info.canonical["epochs"])
    seconds = info.record.core_seconds(dataset, large, PREDICTED_AT_ONCE)
    return seconds / (epochs * PREDICTED_AT_ONCE)


def space(canonical: Mapping[str, Any], anchors: Mapping[str, Any]) -> tuple[Hparam, ...]:
    """Return a classifier's hparams, given its canonical description and a cell's anchors."""
    if is_own(canonical):
        from manyseed.jobs.own.record import whole_space

        return whole_space(canonical, anchors)
    return CLASSIFIERS[canonical["name"]].space


def idle(
    canonical: Mapping[str, Any], anchors: Mapping[str, Any], scheme: str = "none"
) -> frozenset[str]:
    """Return the hparams without effect at these anchors, nor where a scheme moves them.

    None of a classifier that this version does not know.
    """
    if _record(canonical) is None:
        return frozenset()
    known = space(canonical, anchors)
    fixed = unmoved(known, anchors, scheme)
    found = {
        one.name
        for one in known
        if (when := one.when)
        and when.hparam in fixed
        and when.hparam in anchors
        and anchors[when.hparam] not in when.values
    }
    if not is_own(canonical) and canonical.get("schedule") == "optimal":
        # scikit-learn's learning rate 1 / (alpha (t0 + t)), with a penalty or none
        found = found - {"alpha"} | {"eta0"}
    return frozenset(found)


def fit_of(canonical: Mapping[str, Any]) -> object:
    """Return the `fit` of a canonical description's record; None if this version has no record."""
    record = _record(canonical)
    return None if record is None else record.fit


def is_own(canonical: Mapping[str, Any]) -> bool:
    """Return whether a canonical description is of users' own code (`jobs.own`)."""
    return "own" in canonical


def _record(canonical: Mapping[str, Any]) -> Classifier | None:
    if is_own(canonical):
        from manyseed.jobs.own.record import SEMANTICS, of_description

        return of_description(canonical) if canonical["own"] == SEMANTICS else None
    record = CLASSIFIERS.get(canonical["name"])
    return record if record is not None and canonical["version"] == record.version else None


def imports(canonical: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the modules of libraries that fits of a classifier import."""
    record = _record(canonical)
    return () if record is None else record.imports


def consumes(
    canonical: Mapping[str, Any], hparams: Mapping[str, Any] | None
) -> frozenset[str] | None:
    """Return the streams that fits of a classifier draw from (`Classifier.consumes`).

    None if this version cannot tell: for imported predictions, another version of a classifier, or
    an unknown one.
    """
    record = None if "source" in canonical else _record(canonical)
    return None if record is None else record.consumes(hparams)


def fit(
    canonical: Mapping[str, Any],
    hparams: Mapping[str, Value],
    data: TrainingSet,
    generators: Generators,
    handling: Handling = PLAIN,
) -> Prediction:
    """Fit one run and predict its test set.

    `canonical`: the canonical description that `resolve` made. `hparams`: a value for every hparam,
    perturbed or not. `data`: training and test rows, before encoding. A class without training rows
    still gets finite scores. `generators`: all randomness of the fit. `handling`: where to train,
    and what to keep besides the last prediction.
    """
    record = _record(canonical)
    if record is None:
        name, known = canonical["name"], CLASSIFIERS.get(canonical["name"])
        here = "has none of its kind" if known is None else f"is {known.version}"
        raise ValueError(f"{name} of version {canonical['version']}; this {here}")
    require_classes(data)
    if handling.ensembling is not None and record.epochs is None:
        raise ValueError(f"{record.name} has no epochs, so no members")
    if handling.curves and data.y_test is None:
        raise ValueError("curves need the test set's classes, y_test")
    with _faults(record, handling):
        fitted = record.fit(FitInput(canonical, hparams, data, generators, handling))
        return _predicted(record, fitted, data, handling)


def require_classes(data: TrainingSet) -> None:
    """Refuse to train on rows of one class."""
    if len(np.unique(data.y)) < 2:
        raise ValueError(f"all {len(data.y)} training rows are of one class")


@contextmanager
def _faults(record: Classifier, handling: Handling) -> Iterator[None]:
    try:
        with faults_of(handling.device):
            yield
    except ImportError as error:
        raise MachineError(f"classifier {record.name} lacks a package: {error}") from error


def _predicted(
    record: Classifier, fitted: Fitted, data: TrainingSet, handling: Handling
) -> Prediction:
    measured = measure(handling.measures, fitted.alive, data, fitted.members)
    if handling.after_training is not None and fitted.alive is not None:
        measured = {**(measured or {}), **handling.after_training(fitted.alive)}
    return prediction(fitted.scores, record.probability, fitted.seconds, fitted.curves, measured)


def stacks(cell: Cell) -> bool:
    """Return whether several runs of a cell may be trained at once."""
    network = fit_of(cell.classifier)
    return cell.ensembling is None and isinstance(network, Network) and network.stacks


def fit_stack(
    canonical: Mapping[str, Any],
    runs: Sequence[tuple[Mapping[str, Value], TrainingSet, Generators]],
    handlings: Sequence[Handling],
) -> list[Prediction | Exception]:
    """Fit several runs at once; return each one's prediction, or why it has none.

    `canonical`: as in `fit`, of a cell that `stacks`. `runs`: hparams, data and generators.
    `handlings`: how each is measured; where they are trained, and what is kept, is the same.
    """
    record = _record(canonical)
    assert record is not None
    assert isinstance(record.fit, Network)
    predictions: list[Prediction | Exception] = []
    with _faults(record, handlings[0]):
        fits = record.fit.train_stack(canonical, runs, handlings[0])
        for fitted, (_, data, _), handling in zip(fits, runs, handlings, strict=True):
            try:
                predictions.append(_predicted(record, fitted, data, handling))
            except (ArithmeticError, ValueError) as error:
                predictions.append(error)
    return predictions
