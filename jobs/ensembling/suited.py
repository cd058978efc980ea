"""Which classifiers an ensembling method is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from manyseed.jobs.checks import NOTHING, Refused
from manyseed.jobs.ensembling.methods import METHODS, Options

if TYPE_CHECKING:
    from manyseed.jobs.classifiers.record import ClassifierInfo


class Unsuited(Refused):
    """A method that a classifier cannot have.

    Parameters
    ----------
    method : str
    reason : str
    needs : mapping
        Options of the classifier with which it could have it.
    """

    def __init__(self, method: str, reason: str, needs: Mapping[str, Any] = NOTHING) -> None:
        super().__init__("ensembling", method, reason, needs=needs)


def require_suited(method: Options, model: ClassifierInfo) -> None:
    """Refuse a method for a classifier that cannot have it.

    Raises
    ------
    Unsuited
    """
    name, known = method["name"], METHODS[method["name"]]
    if model.epochs is None:
        does = "trains a network on" if known.by_sgd else "makes members of a network"
        alone = "has no epochs: its runs form deep ensembles without a method"
        raise Unsuited(name, f"{name} {does}; {model.name} {alone}")
    optimizer = model.canonical.get("optimizer")
    if optimizer is None or "own" in model.canonical:
        raise Unsuited(name, f"{name} needs one of the built-in networks, and {model.name} is none")
    if name == "dropout":
        if "dropout" not in model.hparams:
            reason = f"{model.name} has no dropout layers: take mlp, vgg, wide-resnet or vit"
            raise Unsuited(name, reason)
        if model.hparams["dropout"] == 0:
            reason = f"{model.name} with dropout = 0 makes all members equal"
            raise Unsuited(name, reason, {"hparams": {"dropout": 0.1}})
    if name == "kfac-laplace" and optimizer == "adamw":
        reason = "takes weight_decay for the precision of a prior, which that of adamw is not"
        raise Unsuited(name, f"{name} {reason}", {"optimizer": "sgd"})
    if known.by_sgd and optimizer != "sgd":
        reason = f"{name} trains by SGD, {model.name} by {optimizer}"
        raise Unsuited(name, reason, {"optimizer": "sgd"})
    if known.by_sgd and model.canonical["schedule"] == "plateau":
        reason = f"{name} has rates of its own, and {model.name} the schedule plateau"
        raise Unsuited(name, reason, {"schedule": None})
    if model.options.get("snapshots"):
        reason = f"{model.name} has snapshots; the members are what is kept of a trajectory"
        raise Unsuited(name, reason, {"snapshots": None})
