"""Kinds of hparams, schemes of their perturbation, and the random draws of a search (MV).

======================  =========================================================================
``none``                the anchors
``sig-digit:K``         x + Unif(-10^(N-K), 10^(N-K)) for x = d.ddd·10^N; zero stays zero
``relative:P``          x + Unif(-P·|x|, P·|x|)
``absolute:P``          x + Unif(-P/2, P/2) · (high - low)
======================  =========================================================================

x is the anchor, or its log10 for hparams on a log scale (the result is then 10^x; the source's text
adds 10^e to the anchor, which would move it one way only). The result is clipped to the range, or
rounded to the nearest level of an ordinal. A categorical hparam is re-drawn uniformly from its
levels with probability P, never under sig-digit. The suffix ``:scaled`` sets that probability so
that one categorical change a run is expected, as the source intended; ``:scaled:N`` one in N runs,
such as the runs of a repeat. Structural hparams stay at their anchors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

import numpy as np

from manyseed.jobs.checks import Refused, integer, number, parsed
from manyseed.jobs.hparams.kinds import Categorical, Continuous, Free, Hparam, Ordinal, Value
from manyseed.jobs.run import raw

_AXIS = "perturb_hparams"

_MOST_RUNS = 1000
_N = f"N a whole number from 1 to {_MOST_RUNS}"
_FORMS = {
    "none": "none",
    "sig-digit": "sig-digit:K with K a whole number from 0 to 15",
    "relative": "relative:P with 0 < P < 1",
    "absolute": "absolute:P with 0 < P < 1",
}


@dataclass(frozen=True, slots=True)
class _HparamNoise:
    method: str
    amount: float = 0.0
    scaled: int = 0  # in how many runs one categorical change is expected; 0: by `amount`

    def reach(self, position: float, ends: tuple[float, float]) -> float:
        """Return the largest move of a position, to either side."""
        match self.method:
            case "sig-digit" if position == 0.0:
                return 0.0
            case "sig-digit":
                # The decimal exponent of the exact binary value, without rounding.
                return math.pow(10, Decimal(abs(position)).adjusted() - self.amount)
            case "relative":
                return self.amount * abs(position)
            case _:
                return self.amount / 2 * (ends[1] - ends[0])

    def redraw_probability(self, space: tuple[Hparam, ...]) -> float:
        """Return the probability that a categorical hparam is re-drawn."""
        if self.scaled:
            # A re-draw of one of L levels changes the value with probability 1 - 1/L.
            redrawn = (h for h in space if isinstance(h, Categorical) and not h.structural)
            changes = sum(1 - 1 / len(h.levels) for h in redrawn)
            return min(1.0, 1 / (self.scaled * changes)) if changes else 0.0
        return 0.0 if self.method == "sig-digit" else self.amount


def _parse(text: str) -> _HparamNoise:
    method, *arguments = text.strip().split(":")
    if method not in _FORMS:
        forms = [form for form in _FORMS if form != "none" or not arguments]
        raise Refused(_AXIS, method, "unknown scheme", forms)
    if method == "none" and not arguments:
        return _HparamNoise("none")
    suffix = "" if method == "none" else f", optionally followed by :scaled or :scaled:N, {_N}"
    wrong = Refused(_AXIS, text, allowed=f"{_FORMS[method]}{suffix}")
    if (
        method == "none"
        or len(arguments) not in (1, 2, 3)
        or arguments[1:2] not in ([], ["scaled"])
    ):
        raise wrong
    amount: float
    try:
        scaled = 0 if len(arguments) == 1 else 1
        if len(arguments) > 2:
            scaled = integer("N", parsed(int, arguments[2]), least=1, most=_MOST_RUNS)
        if method == "sig-digit":
            amount = integer("K", parsed(int, arguments[0]), least=0, most=15)
        else:
            amount = number("P", parsed(float, arguments[0]), above=0, below=1)
    except ValueError:
        raise wrong from None
    return _HparamNoise(method, amount, scaled)


def canonical(scheme: str) -> str:
    """Return the normal form of a scheme: ``relative:.10`` is ``relative:0.1``."""
    parsed = _parse(scheme)
    if parsed.method == "none":
        return "none"
    suffix = ["scaled", str(parsed.scaled)][: min(parsed.scaled, 2)]  # scaled:1 is scaled
    return ":".join([parsed.method, repr(parsed.amount), *suffix])


def perturb(
    space: tuple[Hparam, ...],
    hparams: Mapping[str, Value],
    scheme: str,
    generator: np.random.Generator,
) -> dict[str, Value]:
    """Return the hparams of one run.

    `space`: the classifier's hparams. `hparams`: the anchor of each hparam. `scheme`: as in the
    module's table. `generator`: the run's stream ``perturb_hparams``.
    """
    parsed = _parse(scheme)
    if parsed.method == "none":
        return dict(hparams)
    # Frozen: two raw words per hparam, used or not, in the order of the space. A space grows only
    # at its end, so a new hparam does not change the draws of the others.
    words = raw(generator, 2 * len(space)).reshape(-1, 2)
    uniforms = (words >> np.uint64(11)) * 2.0**-53
    probability = parsed.redraw_probability(space)
    return {
        hparam.name: _move(hparam, hparams[hparam.name], parsed, probability, float(u), float(v))
        for hparam, (u, v) in zip(space, uniforms, strict=True)
    }


def _move(
    hparam: Hparam, anchor: Any, scheme: _HparamNoise, probability: float, u: float, v: float
) -> Value:
    if hparam.structural or isinstance(hparam, Free):
        return cast(Value, anchor)
    if isinstance(hparam, Categorical):
        return hparam.levels[int(v * len(hparam.levels))] if u < probability else anchor
    position = hparam.position(anchor)
    reach = scheme.reach(position, hparam.ends)
    # With no reach, an anchor on a log scale must not be changed by rounding.
    return hparam.settle(position + reach * (2 * u - 1)) if reach else anchor


def unmoved(
    space: tuple[Hparam, ...], hparams: Mapping[str, Value], scheme: str
) -> tuple[str, ...]:
    """Return the hparams that a scheme cannot move from their anchors, or moves without effect.

    These are structural ones; zeros and, on a log scale, ones under the two methods that scale with
    the anchor; ordinals whose neighbours are out of reach; categoricals under sig-digit; and
    hparams that do not act at the anchors, and that the scheme cannot switch on, such as l1_ratio
    unless the penalty is elasticnet.
    """
    parsed = _parse(scheme)
    probability = parsed.redraw_probability(space)
    if parsed.method == "none":
        return tuple(hparam.name for hparam in space)
    fixed = {h.name for h in space if not _can_move(h, hparams[h.name], parsed, probability)}
    inactive = {
        h.name
        for h in space
        if h.when and hparams[h.when.hparam] not in h.when.values and h.when.hparam in fixed
    }
    return tuple(h.name for h in space if h.name in fixed | inactive)


def _can_move(hparam: Hparam, anchor: Any, scheme: _HparamNoise, probability: float) -> bool:
    if hparam.structural or isinstance(hparam, Free):
        return False
    if isinstance(hparam, Categorical):
        return probability > 0
    position = hparam.position(anchor)
    reach = scheme.reach(position, hparam.ends)
    return any(reach and hparam.settle(position + r) != anchor for r in (-reach, reach))


SPACE_VERSION = 1
"""Version of the spaces and of the draws from them; part of a tuned cell's identity."""


def draw(
    space: tuple[Hparam, ...], fixed: Mapping[str, Value], generator: np.random.Generator
) -> dict[str, Value]:
    """Return one point of a classifier's space.

    A continuous hparam is uniform on its scale (linear or log10), any other over its levels.

    `space`: the classifier's hparams. `fixed`: hparams that are not searched. Structural ones never
    are; they keep their defaults. `generator`: the draw's stream ``tune``.
    """
    # Frozen: one raw word per hparam, used or not, in the order of the space.
    uniforms = (raw(generator, len(space)) >> np.uint64(11)) * 2.0**-53
    held = {hparam.name: hparam.default for hparam in space if hparam.structural} | dict(fixed)
    return {
        hparam.name: held[hparam.name] if hparam.name in held else _at(hparam, float(u))
        for hparam, u in zip(space, uniforms, strict=True)
    }


def _at(hparam: Hparam, u: float) -> Value:
    if isinstance(hparam, Continuous):
        low, high = hparam.ends
        return hparam.settle(low + u * (high - low))
    assert not isinstance(hparam, Free)  # structural: never drawn
    return hparam.levels[int(u * len(hparam.levels))]
