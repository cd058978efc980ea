"""Turn one row of a sweep's grid into a cell: typed values, equivalent options in one form.

Whether an ensembling method suits a classifier is decided here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from manyseed.jobs import classifiers, hparams, images, perturb
from manyseed.jobs.checks import NOTHING, Refused, integer, number
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.datasets.split import n_points
from manyseed.jobs.ensembling.methods import METHODS, Options
from manyseed.jobs.run import SOURCES_OF_RANDOMNESS, Cell

if TYPE_CHECKING:
    from manyseed.jobs.classifiers import ClassifierInfo


class Unsuited(Refused):
    """An ensembling method that does not suit a classifier.

    `needs`: options of the classifier with which the method would suit it.
    """

    def __init__(self, method: str, reason: str, needs: Mapping[str, Any] = NOTHING) -> None:
        super().__init__("ensembling", method, reason, needs=needs)


def require_suited(method: Options, model: ClassifierInfo) -> None:
    """Raise Unsuited if a method does not suit a classifier."""
    name, by_sgd = method["name"], METHODS[method["name"]].by_sgd
    if model.epochs is None:
        does = "trains a network on" if by_sgd else "makes members of a network"
        alone = "has no epochs: its runs form deep ensembles without a method"
        raise Unsuited(name, f"{name} {does}; {model.name} {alone}")
    optimizer = model.canonical.get("optimizer")
    if optimizer is None or "own" in model.canonical:
        reason = f"{name} needs one of the built-in networks, which {model.name} is not"
        raise Unsuited(name, reason)
    if name == "dropout":
        if "dropout" not in model.hparams:
            reason = f"{model.name} has no dropout layers: take mlp, vgg, wide-resnet or vit"
            raise Unsuited(name, reason)
        if model.hparams["dropout"] == 0:
            reason = f"{model.name} with dropout = 0 makes all members equal"
            raise Unsuited(name, reason, {"hparams": {"dropout": 0.1}})
    if name == "kfac-laplace" and optimizer == "adamw":
        reason = "uses weight_decay as the precision of a prior, which adamw's weight_decay is not"
        raise Unsuited(name, f"{name} {reason}", {"optimizer": "sgd"})
    if by_sgd and optimizer != "sgd":
        reason = f"{name} trains by SGD, {model.name} by {optimizer}"
        raise Unsuited(name, reason, {"optimizer": "sgd"})
    if by_sgd and model.canonical["schedule"] == "plateau":
        reason = f"{name} has rates of its own, but {model.name} has the schedule plateau"
        raise Unsuited(name, reason, {"schedule": None})
    if model.options.get("snapshots"):
        reason = f"{model.name} has snapshots, but only members are kept of a trajectory"
        raise Unsuited(name, reason, {"snapshots": None})


UNPERTURBED = {
    "train_fraction": 1.0,
    "perturb_continuous": "none",
    "perturb_categorical": "none",
    "perturb_hparams": "none",
    "perturb_labels": "none",
}
"""Settings with which the runs of a repeat differ only by `vary`."""


@dataclass(frozen=True, slots=True)
class ResolvedCell:
    """A cell, and what the plan reports about it.

    `differing`: axes by which the runs of a repeat differ: those with a scheme, a fraction that
    leaves points out, and ``vary`` if it names a source that fits draw from. `idle`: axes, such as
    ``perturb_categorical``, whose scheme has nothing to act on and became ``none``. `unmoved`:
    hparams that `perturb_hparams` is asked to move but cannot.
    """

    cell: Cell
    differing: tuple[str, ...]
    idle: tuple[str, ...]
    unmoved: tuple[str, ...]

    @property
    def identical(self) -> bool:
        """Whether all runs of a repeat are the same fit."""
        return not self.differing


def consumed(cell: Cell) -> tuple[str, ...]:
    """Return the sources in `cell.vary` that the cell's fits draw from, sorted.

    Cells that agree in these and in everything else have the same fits, run by run: an unused
    stream changes nothing, and all other streams have the same keys. ``train``, the bootstrap, is
    drawn for every classifier. All of `cell.vary` is returned if the classifier is unknown.
    """
    known = cell.perturb_hparams == "none" and "tuned" not in cell.hparams
    streams = classifiers.consumes(cell.classifier, cell.hparams if known else None)
    if streams is None:
        return cell.vary
    return tuple(source for source in cell.vary if source == "train" or source in streams)


def resolve_cell(
    seed: int, dataset: DatasetInfo, classifier: ClassifierInfo, **axes: Any
) -> ResolvedCell:
    """Resolve one combination of a grid.

    Of the axes, `train_fraction` is a share in (0, 1] or a number of points, at least 2. A scheme
    that has nothing to act on gives the same cell as ``none``. `vary` is some of init, batch and
    train, joined by ``+``, or by ``*`` to cross them. `augment` and `test_augment` are random
    transforms applied each time a training image is presented, or a test image is predicted.
    `ensembling` is the method that gives a run several members (`jobs.ensembling.methods.resolve`),
    or None. By default all points, none, and init+batch.
    """
    [found] = resolve_cells(seed, [(dataset, classifier, axes)])
    if isinstance(found, Refused):
        raise found
    return found


def resolve_cells(
    seed: int, asked: Iterable[tuple[DatasetInfo, ClassifierInfo, Mapping[str, Any]]]
) -> list[ResolvedCell | Refused]:
    """Resolve many combinations, given as `resolve_cell` takes each; a refusal is an answer."""
    seed = integer("seed", seed, least=0, most=2**63 - 1)
    found: list[ResolvedCell | Refused] = []
    for dataset, classifier, axes in asked:
        try:
            found.append(_resolved(seed, dataset, classifier, **axes))
        except Refused as error:
            found.append(error)
    return found


def _resolved(
    seed: int,
    dataset: DatasetInfo,
    classifier: ClassifierInfo,
    *,
    train_fraction: float | int = 1.0,
    perturb_continuous: str = "none",
    perturb_categorical: str = "none",
    perturb_hparams: str = "none",
    vary: str = "init+batch",
    augment: str = "none",
    ensembling: Mapping[str, Any] | None = None,
    test_augment: str = "none",
    perturb_labels: str = "none",
) -> ResolvedCell:
    asked = {
        "perturb_continuous": perturb.canonical("continuous", perturb_continuous),
        "perturb_categorical": perturb.canonical("categorical", perturb_categorical),
        "perturb_hparams": hparams.canonical(perturb_hparams),
        "perturb_labels": perturb.canonical("labels", perturb_labels),
    }
    if classifier.defaults == "library" and asked["perturb_hparams"] != "none":
        raise Refused(
            "perturb_hparams",
            asked["perturb_hparams"],
            f"the library's defaults of {classifier.name} lie outside of the ranges in which it "
            "moves hparams",
        )
    if ensembling is not None:
        require_suited(ensembling, classifier)
    unmoved = _unmoved(classifier, asked["perturb_hparams"])
    acts_on = {
        "perturb_continuous": dataset.n_continuous,
        "perturb_categorical": dataset.n_categorical,
        "perturb_hparams": len(classifier.hparams) - len(unmoved),
        "perturb_labels": len(dataset.class_names),
    }
    schemes = {axis: scheme if acts_on[axis] else "none" for axis, scheme in asked.items()}
    sources, crossed = varied(vary)
    cell = Cell(
        seed=seed,
        dataset=dataset.canonical,
        classifier=classifier.canonical,
        hparams=classifier.hparams,
        train_fraction=_train_fraction(train_fraction, dataset.n_train),
        vary=sources,
        crossed=crossed,
        augment=_augment("augment", augment, dataset, classifier),
        ensembling=ensembling,
        test_augment=_augment("test_augment", test_augment, dataset, classifier),
        **schemes,
    )
    if crossed and (idle := [one for one in sources if one not in consumed(cell)]):
        reason = f"{classifier.name} draws nothing from {' and '.join(idle)}, so that runs of a "
        raise Refused("vary", vary, f"{reason}full cross would be the same")
    return ResolvedCell(
        cell=cell,
        differing=_differing(cell, dataset.n_train),
        idle=tuple(axis for axis in asked if asked[axis] != schemes[axis]),
        unmoved=unmoved,
    )


def _differing(cell: Cell, n_train: int) -> tuple[str, ...]:
    axes = [axis for axis in UNPERTURBED if getattr(cell, axis) != UNPERTURBED[axis]]
    if n_points(cell.train_fraction, n_train) == n_train and "train_fraction" in axes:
        axes.remove("train_fraction")  # a share that rounds to all points
    return (*axes, *(["vary"] if consumed(cell) else []))


def _unmoved(classifier: ClassifierInfo, scheme: str) -> tuple[str, ...]:
    if scheme == "none":
        return ()
    return hparams.unmoved(classifier.record.space, classifier.hparams, scheme)


def _train_fraction(value: float | int, n_train: int) -> float | int:
    """Return 1.0 for all points, else a share as a float or a number of points as an int."""
    if not isinstance(value, bool) and value in (1, n_train):
        return 1.0
    form = f"a share above 0 and at most 1, or a whole number of points from 2 to {n_train}"
    try:
        if isinstance(value, int):
            return integer("train_fraction", value, least=2, most=n_train)
        share = number("train_fraction", value, above=0, most=1)
    except Refused:
        raise Refused("train_fraction", value, allowed=form) from None
    if n_points(share, n_train) < 2:
        points = f"is {n_points(share, n_train)} of {n_train} training points"
        raise Refused("train_fraction", value, f"{points}; a fit needs at least 2")
    return share


def _augment(axis: str, scheme: str, dataset: DatasetInfo, classifier: ClassifierInfo) -> str:
    augmentation = images.augmentation(scheme, axis)
    if augmentation is None:
        return "none"
    if dataset.image is None:
        raise Refused(axis, scheme, f"{augmentation.name} needs images, and the dataset has none")
    if augmentation.name == "colour" and dataset.image[2] not in (1, 3):
        reason = f"colour needs images of 1 or 3 channels, and these have {dataset.image[2]}"
        raise Refused(axis, scheme, reason)
    if not classifier.record.augments:
        name = classifier.record.name
        records = classifiers.CLASSIFIERS.values()
        suited = " and ".join(record.name for record in records if record.augments)
        reason = f"{name} sees each training row once: {suited} are trained on "
        reason += "images that differ from epoch to epoch"
        if axis == "test_augment":
            reason = f"{name} predicts the test set as it is: {suited} can see it transformed"
        raise Refused(axis, scheme, reason)
    return augmentation.text


def varied(value: str) -> tuple[tuple[str, ...], bool]:
    """Return the sources that ``vary`` names, sorted, and whether they are crossed."""
    names = value.split("*" if "*" in value else "+")
    words = re.findall(r"\w+", value)
    joined, crossed = "+".join(words), "*".join(words)
    if {*words} <= {*SOURCES_OF_RANDOMNESS} and value not in (joined, crossed) and words:
        reason = f"sources of randomness are joined by +: {joined!r}"
        raise Refused("vary", value, f"{reason}, or all crossed: {crossed!r}")
    for name in names:
        if name not in SOURCES_OF_RANDOMNESS:
            raise Refused("vary", name, "unknown source of randomness", SOURCES_OF_RANDOMNESS)
    if len(set(names)) < len(names):
        raise Refused("vary", value, "names a source of randomness twice")
    return tuple(sorted(names)), "*" in value
