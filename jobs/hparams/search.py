"""Random draws from an hparam space, for the search that tunes a classifier (MV)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from manyseed.jobs.hparams.kinds import Continuous, Free, Hparam, Value
from manyseed.jobs.run import raw

SPACE_VERSION = 1
"""Version of the spaces and of the draws from them; part of a tuned cell's identity."""


def draw(
    space: tuple[Hparam, ...], fixed: Mapping[str, Value], generator: np.random.Generator
) -> dict[str, Value]:
    """Return one point of a classifier's space.

    A continuous hparam is uniform on its scale (linear or log10), any other over its levels.

    Parameters
    ----------
    space : tuple of Hparam
        The classifier's hparams.
    fixed : mapping
        Hparams that are not searched. Structural ones never are; they keep their defaults.
    generator : numpy.random.Generator
        The draw's stream ``tune``.
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
