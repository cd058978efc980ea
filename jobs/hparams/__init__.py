"""Hparam spaces, checks of the user's values, and hparam perturbation (MV)."""

from jobs.hparams.kinds import Categorical, Continuous, Hparam, Ordinal, Value
from jobs.hparams.perturb import canonical, perturb, unmoved
from jobs.hparams.spaces import LIBRARY, SPACES, anchors

__all__ = [
    "LIBRARY",
    "SPACES",
    "Categorical",
    "Continuous",
    "Hparam",
    "Ordinal",
    "Value",
    "anchors",
    "canonical",
    "perturb",
    "unmoved",
]
