"""Which classifiers an ensembling method is for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from manyseed.jobs.checks import Refused
from manyseed.jobs.ensembling.methods import METHODS, Options

if TYPE_CHECKING:
    from manyseed.jobs.classifiers.record import ClassifierInfo


def require_suited(method: Options, model: ClassifierInfo) -> None:
    """Refuse a method for a classifier that cannot have it.

    Raises
    ------
    Refused
        Of the option ``ensembling``.
    """
    name, known = method["name"], METHODS[method["name"]]
    if model.epochs is None:
        does = "trains a network on" if known.by_sgd else "makes members of a network"
        reason = (
            f"{name} {does}; {model.name} has no epochs: its runs of "
            'ensembling = "none" form deep ensembles'
        )
        raise Refused("ensembling", name, reason)
    if "optimizer" not in model.canonical:
        reason = f"{name} needs one of the built-in networks, and {model.name} is none"
        raise Refused("ensembling", name, reason)
    if name == "dropout":
        if "dropout" not in model.hparams:
            raise Refused(
                "ensembling",
                name,
                f"{model.name} has no dropout layers: take mlp, vgg, wide-resnet or vit",
            )
        if model.hparams["dropout"] == 0:
            raise Refused(
                "ensembling",
                name,
                f"dropout = 0 makes all members equal: give {model.name} hparams = "
                "{ dropout = 0.1 }",
            )
    if name == "kfac-laplace" and model.canonical["optimizer"] == "adamw":
        reason = (
            "kfac-laplace takes weight_decay for the precision of a prior, which that of adamw is "
            f'not: give {model.name} optimizer = "sgd"'
        )
        raise Refused("ensembling", name, reason)
    if known.by_sgd and model.canonical.get("optimizer") != "sgd":
        trained_by = model.canonical.get("optimizer")
        reason = (
            f"{name} trains by SGD, {model.name} by {trained_by}: give {model.name} "
            'optimizer = "sgd"'
        )
        raise Refused("ensembling", name, reason)
    if known.by_sgd and model.canonical["schedule"] == "plateau":
        reason = (
            f'{name} has rates of its own, and {model.name} schedule = "plateau": take that out of '
            "its table"
        )
        raise Refused("ensembling", name, reason)
    if model.options.get("snapshots"):
        reason = "the members are what is kept of a trajectory: keep.members"
        reason = f"{model.name} has snapshots; {reason}"
        raise Refused("ensembling", name, reason)
