"""What is asked of each model of a group, and at which magnitudes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from manyseed.jobs.images.schemes import MOST

PAIRED = ("intra", "inter")
"""Interpolations towards a point of the same class, and of another."""

PAIR_END = 0.5
"""The magnitude at which intra ends, and which inter does not reach."""
ROTATE_END = 179.0
"""Where rotations end whose range is the whole circle."""

ROWS, BATCH, DRAWS, MAGNITUDES, PAIR_MAGNITUDES = 23_040, 128, 1, 21, 11

DBI = "dbi"
"""Davies–Bouldin index of hidden outputs, and in the place of a transform: of which rows."""
DBI_BATCHES, DBI_BATCH, DBI_LAYERS = 10, 120, (1,)
"""Batches whose indices are averaged, rows of each, and layers whose outputs they are of."""
PARTS = ("train", "shifted-train", "test", "shifted-test")
"""What is counted besides curves: all training rows; the sample, the test set, the test set again,
the shifted ones each row by a magnitude of its own."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a group's models are asked.

    Attributes
    ----------
    responses : tuple of (str, int)
        Transforms in their normal form, each with the layer whose output it acts on: 0 is the
        input, 1 the output of a network's first block.
    rows : int or float
        Training rows of a sample: a number, or a share of a run's.
    batch : int
        Rows of a batch, within which pairs are formed.
    draws : int
        Samples.
    magnitudes, pair_magnitudes : int
        Points of a curve: of transforms of both signs, and of interpolations (``inter``: one less).
    dbi : bool
        Whether the Davies–Bouldin index of `DBI_LAYERS` is taken.
    """

    responses: tuple[tuple[str, int], ...]
    rows: int | float = ROWS
    batch: int = BATCH
    draws: int = DRAWS
    magnitudes: int = MAGNITUDES
    pair_magnitudes: int = PAIR_MAGNITUDES
    dbi: bool = False

    @property
    def grids(self) -> tuple[tuple[float, ...], ...]:
        """The magnitudes of each response, NaN beyond the end of those that have fewer."""
        found = [self.grid(name) for name, _ in self.responses]
        longest = max(map(len, found))
        return tuple((*grid, *(math.nan,) * (longest - len(grid))) for grid in found)

    def grid(self, transform: str) -> tuple[float, ...]:
        """Return the magnitudes of a transform, rising."""
        if transform in PAIRED:
            n = self.pair_magnitudes
            steps = [PAIR_END * i / (n - 1) for i in range(n)]
            return tuple(steps[:-1] if transform == "inter" else steps)
        name, _, text = transform.partition(":")
        most = float(text)
        n = self.magnitudes
        found = [most * (2 * i / (n - 1) - 1) for i in range(n)]
        if name == "rotate" and most == MOST["rotate"]:
            found[-1] = ROTATE_END
        return tuple(found)

    def to_attributes(self) -> dict[str, object]:
        """Return it as JSON has it; what came later is left out where it was not asked for."""
        value = {**asdict(self), "responses": [list(each) for each in self.responses]}
        return value if self.dbi else {k: v for k, v in value.items() if k != DBI}

    @classmethod
    def from_attributes(cls, value: Mapping[str, Any]) -> Asked:
        """Read what `to_attributes` wrote."""
        responses = tuple((str(name), int(layer)) for name, layer in value["responses"])
        return cls(**{**value, "responses": responses})
