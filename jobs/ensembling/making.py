"""From a method's description to the ensemble that a training makes."""

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
    """Return what takes the members of a method.

    Parameters
    ----------
    method : mapping
        As `jobs.ensembling.methods.resolve` returns it.
    material : Material
    keep : iterable of str
        Of `jobs.ensembling.members.ARRAYS`; others are passed over.
    """
    name, device = method["name"], material.X.device
    own, generators = material.schedule(material.rate, material.epochs), material.generators
    members = Members(method["members"], keep)
    if name in ("snapshot", "csgld", "fge"):
        noise = generators.langevin
        before = material.schedule(material.rate, method.get("pretrain", material.epochs))
        noises = None if noise is None else torch_generator(noise, device)
        return Trajectory(method, material.epochs, before, len(material.X), noises, keep)
    if name == SINGLE:
        return Unchanged(material.epochs, own, members)
    if generators.posterior is None:
        raise ValueError(f"{name} draws members from a stream that is not given")
    draws = torch_generator(generators.posterior, device)
    match name:
        case "dropout":
            return Masked(material.epochs, own, members, material.model, draws)
        case "vi":
            return Variational(method, members, material, draws)
        case "kfac-laplace":
            return Laplace(method, members, material, draws)
        case "swag":
            return Swag(method, members, material, draws, generators.posterior)
        case _:
            raise ValueError(f"no ensembling method is called {name}")
