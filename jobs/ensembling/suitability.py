"""Whether an ensembling method suits a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from manyseed.jobs.checks import NOTHING, Refused
from manyseed.jobs.ensembling.methods import METHODS, Options

if TYPE_CHECKING:
    from manyseed.jobs.classifiers.record import ClassifierInfo


class Unsuited(Refused):
    """An ensembling method that does not suit a classifier.

    Parameters
    ----------
    needs : mapping
        Options of the classifier with which the method would suit it.
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
