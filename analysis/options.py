"""Which metrics are computed, and by which conventions.

The only declaration of each option: the sweep file, the shell and the docs take its type, range
and meaning from here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import NoneType
from typing import Annotated, Any, Literal, TypeGuard, get_args, get_origin, get_type_hints

from manyseed.analysis import Refused

DEFAULT_METRICS = (
    *("accuracy", "confusion", "agreement", "alpha_hat", "ece", "proper_scores"),
    *("discrimination", "ensemble", "rejection", "holdout"),
    "generalization",
)
CALIBRATION = "calibration"  # the metric that the option of that name adds

Mode = Literal["exact", "paper"]
Probe = Literal["gap", "true_margin"]
ReferenceKind = Literal["others", "others-trimmed", "half", "loo_ensemble", "ensemble"]

OF_OTHERS = ("others", "others-trimmed")  # references that include the candidates
CLOSE = 0.05  # largest α̂ that RKS calls close to the reference
CONFIDENCE = 0.95  # default level of intervals and of ±
FEWEST_SAMPLES = 40  # enough for the quantiles of a 95 % interval
PAPER_CLIP = 15.0  # the authors' code limits gaps to ±15
SORTED = ("others", "others-trimmed", "half")  # references that pool the values of all models

_MOST = 1_000_000  # limit of options that set the length of an array

OWN = "module:function"
OWN_PATTERN = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"  # how users' own functions are named


def is_own(value: object) -> TypeGuard[str]:
    """Return whether a value names a user's own function."""
    return isinstance(value, str) and re.match(OWN_PATTERN, value) is not None


@dataclass(frozen=True, slots=True)
class Convention:
    """The declaration of one option.

    Attributes
    ----------
    meaning : str
        A phrase; empty for options that users are not offered.
    default : str
        In words, unless the value says it.
    least, most, above, below : float or None
        The range: closed at `least` and `most`, open at `above` and `below`.
    kind : type
        bool, int, float or str; read from the annotation, as are `choices` and `several`.
    choices : tuple of str or int
        All values; empty if the range defines them.
    own : bool
        Whether a user's own function, ``"module:function"``, is also allowed.
    several : bool
        Whether a value is a list of one or more distinct values.
    """

    meaning: str = ""
    default: str = ""
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    kind: type = str
    choices: tuple[str | int, ...] = ()
    own: bool = False
    several: bool = False

    @property
    def allowed(self) -> tuple[str | int, ...] | str:
        """All allowed values, or a description of them."""
        if self.choices or self.kind is bool:
            own = (OWN,) if self.own else ()
            return (*self.choices, *own) or "true or false"
        ends = {"from": self.least, "to": self.most, "above": self.above, "and below": self.below}
        limits = [f"{word} {limit:,}" for word, limit in ends.items() if limit is not None]
        if self.several:
            return " ".join(["a list of different whole numbers", *limits])
        return " ".join(["a whole number" if self.kind is int else "a number", *limits])

    def allows(self, value: Any) -> bool:
        """Whether a value has the right type and lies in the range."""
        if self.own and is_own(value):
            return True
        if self.several:
            single = replace(self, several=False)
            return (
                isinstance(value, tuple | list)
                and 0 < len(value) == len(set(map(repr, value)))
                and all(map(single.allows, value))
            )
        if self.choices:
            return not isinstance(value, bool) and value in self.choices
        if self.kind is bool:
            return isinstance(value, bool)
        types = int if self.kind is int else int | float
        return (
            not isinstance(value, bool)
            and isinstance(value, types)
            and math.isfinite(value)
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )


@dataclass(frozen=True, slots=True)
class Options:
    """Conventions of one analysis; equal options and predictions give equal tables, bit for bit.

    `metrics` names entries of `analysis.metrics.registry.METRICS`, or users' own functions
    (`analysis.metrics.custom`). More about some of the others:

    alpha_mode
        `exact`: disjoint halves and the level in closed form. `paper`: as printed and coded by the
        authors (RKS, algorithm 1 and eq. 57): halves drawn with replacement, the interpolated
        reference, δ + 1/N, 13 levels, .50 where none accepts, gaps clipped to ±15.
    alpha_reference
        `others`: the average eCDF of the repeat's other runs. `others-trimmed`: without the few
        runs that make resamples infeasible (`references.suspects`). `half`: the average eCDF of the
        first half of the runs, which are then no candidates (RKS). `loo_ensemble`: the ensemble of
        all other runs, each side resampled from all test points (RKS24). `ensemble`: the ensemble
        of the first half.
    snapshots
        Epoch numbers; 0 is the first, -1 the last. Each is analysed as if it were the only one. A
        classifier that is not trained in epochs has one snapshot, which any number selects.
    reference_snapshot
        RKS24; not for `others` and `others-trimmed`, whose average includes the candidate.
    block_bytes
        Bytes of predictions that one task loads; a larger repeat is split.
    """

    metrics: tuple[str, ...] = DEFAULT_METRICS
    snapshots: Annotated[
        tuple[int, ...],
        Convention(
            "epochs whose predictions are analysed, side by side; 0 is the first that was kept, "
            "-1 the last",
            "the last",
        ),
    ] = (-1,)
    empty_union: Annotated[
        float | Literal[0, 1],
        Convention("local error consistency of two runs without any error", "undefined"),
    ] = math.nan
    epsilon: Annotated[
        float,
        Convention("probability that the threshold δ is exceeded by chance", above=0, below=1),
    ] = 0.01
    resamples: Annotated[
        int, Convention("B, the random splits of a test set for α̂", least=2, most=_MOST)
    ] = 100
    alpha_mode: Annotated[Mode, Convention("how α̂ is computed")] = "exact"
    alpha_reference: Annotated[ReferenceKind, Convention("what a run is compared with for α̂")] = (
        "others"
    )
    reference_snapshot: Annotated[int | None, Convention("epoch of α̂'s reference", "the same")] = (
        None
    )
    max_references: Annotated[
        int, Convention("most runs in a reference; the first are used", least=3, most=_MOST)
    ] = 1000
    alpha_level: Annotated[
        float, Convention("the level at which the robust test accepts or rejects", least=0, below=1)
    ] = CLOSE
    alpha_bootstrap: Annotated[
        int,
        Convention(
            "bootstrap samples of the test points for an interval of α̂, 100 say; 0 for none",
            least=0,
            most=_MOST,
        ),
    ] = 0
    probe: Annotated[
        Probe | str | None,
        Convention(
            "what a point is reduced to for α̂: the logit gap, the score of the true class minus "
            "the largest other, or what a function of your own returns",
            "gap for two classes, true_margin for more",
            own=True,
        ),
    ] = None
    clip: Annotated[
        float | None, Convention("margins are limited to ± this", "none; 15 with paper", above=0)
    ] = None
    standardise: Annotated[
        bool, Convention("subtract each run's mean margin, divide by its standard deviation")
    ] = False
    close: Annotated[
        float,
        Convention(
            "α̂ up to which a run, or an ensemble, is close to the training", above=0, below=1
        ),
    ] = CLOSE
    ece_bins: Annotated[
        int, Convention("bins of equal width of the calibration error", least=1, most=_MOST)
    ] = 15
    calibration: Annotated[
        bool,
        Convention(
            "also compute probabilities at their best temperature (cll, c_brier and others), and "
            "deep ensembles of each size"
        ),
    ] = False
    calibration_splits: Annotated[
        int,
        Convention(
            "random splits of a test set, on whose halves temperatures are fitted",
            least=2,
            most=1000,
        ),
    ] = 5
    tace_threshold: Annotated[
        float, Convention("tace counts probabilities above this", least=0, below=1)
    ] = 1e-3
    tace_bins: Annotated[int, Convention("bins per class for tace", least=1, most=_MOST)] = 15
    deep_draws: Annotated[
        int,
        Convention(
            "random orders of a repeat's runs; the first k of each are a deep ensemble of size k",
            least=2,
            most=10_000,
        ),
    ] = 20
    deep_runs: Annotated[
        int,
        Convention(
            "most runs of a repeat in deep ensembles; the first are used", least=2, most=10_000
        ),
    ] = 100
    dee_std: Annotated[
        Literal["draws", "independent"],
        Convention(
            "standard deviation for the bounds of deep ensemble equivalents: that of the draws, or "
            "what it would be if they shared no runs"
        ),
    ] = "draws"
    holdout: Annotated[
        float | None,
        Convention(
            "share of the test points on which the ranking reports accuracy; the others choose",
            "none: all points do both",
            above=0,
            below=1,
        ),
    ] = None
    max_pair_runs: Annotated[
        int, Convention("list the pairs of repeats with up to this many runs", least=0, most=_MOST)
    ] = 200
    block_bytes: Annotated[int, Convention(least=1)] = 64_000_000

    def __post_init__(self) -> None:
        """Refuse values that are not allowed, alone or together."""
        for option in fields(self):
            value, default = getattr(self, option.name), option.default
            is_default = value is default or (value != value and default != default)
            if option.name in _DECLARED and not is_default:
                object.__setattr__(self, option.name, check(option.name, value))  # list to tuple
        if 0 < self.alpha_bootstrap < FEWEST_SAMPLES:
            few = f"0, or a whole number from {FEWEST_SAMPLES}"
            raise Refused("alpha_bootstrap", self.alpha_bootstrap, allowed=few)
        if self.calibration and CALIBRATION not in self.metrics:
            object.__setattr__(self, "metrics", (*self.metrics, CALIBRATION))
        if self.reference_snapshot is not None and is_own(self.probe):
            reason = "needs the probe gap or true_margin: other epochs are read for these only"
            raise Refused("reference_snapshot", self.reference_snapshot, reason)
        if self.reference_snapshot is not None and self.alpha_reference in OF_OTHERS:
            reason = f"needs another alpha_reference: {self.alpha_reference} includes the candidate"
            raise Refused("reference_snapshot", self.reference_snapshot, reason)

    @property
    def probe_limit(self) -> float | None:
        """Limit of probe values in this mode."""
        return PAPER_CLIP if self.clip is None and self.alpha_mode == "paper" else self.clip

    @property
    def with_replacement(self) -> bool:
        """Whether both sides of α̂'s test are drawn with replacement from all test points."""
        return self.alpha_mode == "paper" or self.alpha_reference == "loo_ensemble"


def _declared() -> Iterator[tuple[str, Convention]]:
    defaults = {option.name: option.default for option in fields(Options)}
    for name, annotation in get_type_hints(Options, include_extras=True).items():
        for declared in getattr(annotation, "__metadata__", ()):
            hint = annotation.__origin__
            kinds = [kind for kind in get_args(hint) or (hint,) if kind is not NoneType]
            literals = [*filter(get_args, kinds)] if get_origin(hint) is not Literal else [hint]
            default = defaults[name]
            yield (
                name,
                replace(
                    declared,
                    kind=kinds[0] if isinstance(kinds[0], type) else str,
                    choices=get_args(literals[0]) if literals else (),
                    several=get_origin(hint) is tuple,
                    default=declared.default or str(default).lower(),
                ),
            )


_DECLARED: Mapping[str, Convention] = dict(_declared())
CONVENTIONS = {name: declared for name, declared in _DECLARED.items() if declared.meaning}
"""The options that users are offered, besides the metrics."""

SNAPSHOTS = ("snapshots", "reference_snapshot")  # options that name stored epochs


def snapshot_index(epochs: Sequence[int], snapshot: int) -> int | None:
    """Return the position of a snapshot among the stored epochs; None if it is not stored.

    Parameters
    ----------
    epochs : sequence of int
        Ascending; 0 alone for a classifier not trained in epochs, which matches any snapshot.
    snapshot : int
        As in `Options.snapshots`.
    """
    if snapshot in epochs:
        return epochs.index(snapshot)
    if tuple(epochs) == (0,):
        return 0
    if -len(epochs) <= snapshot <= 0:
        return snapshot % len(epochs)
    return None


def check(option: str, value: Any) -> Any:
    """Return an option's value, a list as a tuple."""
    if not _DECLARED[option].allows(value):
        raise Refused(option, value, allowed=_DECLARED[option].allowed)
    return tuple(value) if _DECLARED[option].several else value
