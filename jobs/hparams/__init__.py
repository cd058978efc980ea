"""Kinds of hparams, their perturbation, and the draws of a search (MV)."""

from manyseed.jobs.hparams.kinds import Categorical, Continuous, Hparam, Ordinal, Value
from manyseed.jobs.hparams.perturb import canonical, perturb, unmoved

__all__ = [
    "Categorical",
    "Continuous",
    "Hparam",
    "Ordinal",
    "Value",
    "canonical",
    "perturb",
    "unmoved",
]
