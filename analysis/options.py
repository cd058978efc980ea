"""Which metrics are computed, and by which conventions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

DEFAULT_METRICS = ("accuracy", "agreement", "alpha_hat", "ece", "proper_scores", "ensemble")

Mode = Literal["exact", "paper"]
Probe = Literal["gap", "true_margin"]
ReferenceKind = Literal["others", "half", "loo_ensemble", "ensemble"]

PAPER_CLIP = 15.0  # the authors' code limits gaps to ±15


_MOST = 1_000_000  # of numbers that arrays are as long as


@dataclass(frozen=True, slots=True)
class Options:
    """Conventions of one analysis; equal options and predictions give equal tables, bit for bit.

    Attributes
    ----------
    metrics : tuple of str
        Names of the metrics to compute (`analysis.metrics.METRICS`), and users' own as
        ``"module:function"`` (`analysis.custom`).
    epoch : int
        Position on the epoch axis; negative counts from the last.
    empty_union : float
        Local error consistency of two runs that make no error at all: NaN (undefined, null in the
        tables), 0 or 1.
    epsilon : float
        Probability that the threshold δ of α̂ is exceeded by chance.
    resamples : int
        Random splits of a test set for α̂ (B); 100 in the authors' code (RKS).
    alpha_mode : {"exact", "paper"}
        `exact`: disjoint halves and the level in closed form. `paper`: as printed and coded by the
        authors (RKS, algorithm 1 and eq. 57): halves drawn with replacement, the interpolated
        reference, δ + 1/N, 13 levels, .50 where none accepts, gaps clipped to ±15.
    alpha_reference : {"others", "half", "loo_ensemble", "ensemble"}
        What a run is compared with: the average eCDF of the repeat's other runs; the average eCDF
        of the first half of the runs, which are then no candidates (RKS); the ensemble of all other
        runs, with two resamples of all test points each (RKS24); the ensemble of the first half.
    reference_epoch : int or None
        Epoch of the reference where it is another than the candidates' (RKS24); not for `others`.
    max_references : int
        Runs in a reference at most, the first ones; bounds the memory of large repeats.
    probe : {"gap", "true_margin"} or None
        What a point is reduced to for α̂: the logit gap of two classes, or the score of the true
        class minus the largest other; None for the first with two classes, the second with more.
    clip : float or None
        Probe values are limited to ± this; None for no limit (15 in mode `paper`).
    standardise : bool
        Whether each run's probe values are taken in units of their standard deviation, from their
        mean, so that α̂ sees the shape of their distribution only.
    ece_bins : int
        Bins of equal width of the calibration error.
    max_pair_runs : int
        Pairs of a repeat are listed up to this many runs; above it they are only summarised.
    block_bytes : int
        Predictions that one task loads, in bytes; a larger repeat is cut.
    """

    metrics: tuple[str, ...] = DEFAULT_METRICS
    epoch: int = -1
    empty_union: float = math.nan
    epsilon: float = 0.01
    resamples: int = 100
    alpha_mode: Mode = "exact"
    alpha_reference: ReferenceKind = "others"
    reference_epoch: int | None = None
    max_references: int = 1000
    probe: Probe | None = None
    clip: float | None = None
    standardise: bool = False
    ece_bins: int = 15
    max_pair_runs: int = 200
    block_bytes: int = 64_000_000

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        if not (math.isnan(self.empty_union) or self.empty_union in (0.0, 1.0)):
            raise ValueError(f"empty_union is {self.empty_union!r}; it can be nan, 0 or 1")
        if not 0 < self.epsilon < 1:
            raise ValueError(f"epsilon is {self.epsilon!r}; it lies between 0 and 1")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip is {self.clip!r}; it must be positive")
        _one_of("alpha_mode", self.alpha_mode, Mode)
        if self.probe is not None:
            _one_of("probe", self.probe, Probe)
        _one_of("alpha_reference", self.alpha_reference, ReferenceKind)
        if self.reference_epoch is not None and self.alpha_reference == "others":
            raise ValueError(
                "reference_epoch needs another alpha_reference than 'others', of whose average the "
                "candidate is subtracted"
            )
        least = {
            "resamples": 2,
            "max_references": 3,
            "ece_bins": 1,
            "max_pair_runs": 0,
            "block_bytes": 1,
        }
        for name, minimum in least.items():
            if getattr(self, name) < minimum:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it is at least {minimum}")
            if name != "block_bytes" and getattr(self, name) > _MOST:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it is at most {_MOST:,}")

    @property
    def probe_limit(self) -> float | None:
        """Limit of probe values that applies in this mode."""
        return PAPER_CLIP if self.clip is None and self.alpha_mode == "paper" else self.clip


def _one_of(name: str, value: str, options: Any) -> None:
    if value not in get_args(options):
        raise ValueError(f"{name} is {value!r}; there are {', '.join(get_args(options))}")
