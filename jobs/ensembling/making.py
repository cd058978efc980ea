"""Turn a method's description into the ensemble that a training will yield."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from manyseed.jobs.ensembling.dropout import Masked
from manyseed.jobs.ensembling.ensemble import Ensembling, Material, Unchanged
from manyseed.jobs.ensembling.laplace import Laplace
from manyseed.jobs.ensembling.members import Members
from manyseed.jobs.ensembling.methods import SINGLE
from manyseed.jobs.ensembling.swag import Swag
from manyseed.jobs.ensembling.trajectory import Trajectory
from manyseed.jobs.ensembling.vi import Variational
from manyseed.jobs.training.layers import torch_generator


def ensemble(method: Mapping[str, Any], material: Material, keep: Iterable[str]) -> Ensembling:
    """Return the ensemble in the making that a method describes.

    Parameters
    ----------
    method : mapping
        Returned by `jobs.ensembling.methods.resolve`.
    material : Material
    keep : iterable of str
        Names in `jobs.ensembling.members.ARRAYS`; others are ignored.
    """
    name, device, generators = method["name"], material.X.device, material.generators
    rate = material.schedule(material.rate, material.epochs)
    members = Members(method["members"], keep)
    if name in ("snapshot", "csgld", "fge"):
        stream = generators.langevin
        before = material.schedule(material.rate, method.get("pretrain", material.epochs))
        noise = None if stream is None else torch_generator(stream, device)
        return Trajectory(method, material.epochs, before, len(material.X), noise, keep)
    if name == SINGLE:
        return Unchanged(material.epochs, rate, members)
    if generators.posterior is None:
        raise ValueError(f"{name} needs a stream to draw members from")
    draws = torch_generator(generators.posterior, device)
    match name:
        case "dropout":
            return Masked(material.epochs, rate, members, material.model, draws)
        case "vi":
            return Variational(method, members, material, draws)
        case "kfac-laplace":
            return Laplace(method, members, material, draws)
        case "swag":
            return Swag(method, members, material, draws, generators.posterior)
        case _:
            raise ValueError(f"no ensembling method is called {name}")
