"""Response curves: how often a trained model is right as its inputs are transformed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from manyseed.jobs.checks import Option
from manyseed.jobs.images import MOST

PAIRED = ("intra", "inter")
"""Interpolations towards a point of the same class, and of another class."""

PAIR_END = 0.5  # the magnitude at which intra ends and which inter stops short of
ROTATE_END = 179.0  # the last magnitude of rotations through the full circle

_ONCE = "a list of one or more, each once"
DBI, SPECTRA = "dbi", "spectra"
PLACES = "points"
"""Places in the test set of the points at which `SPECTRA` were computed."""
OPTIONS: Mapping[str, Option] = {
    "transforms": Option(
        '"intra", "inter", and for images such as "rotate:90", "shift-x:0.25", "colour:0.25".',
        *(list, None),
        distinct=True,
        of=Option(),
        called=_ONCE,
    ),
    "layers": Option(
        "Layers on whose output intra and inter act: 0 the input, 1 a network's first block.",
        *(list, (0, 1)),
        distinct=True,
        of=Option(kind=int, least=0, most=1),
        called=_ONCE,
    ),
    "rows": Option("Training rows in a sample: a number or a share.", float, 23_040),
    "batch": Option("Rows within which pairs are formed.", int, 128, least=2, most=100_000),
    "draws": Option("Number of samples.", int, 1, least=1, most=1_000),
    "magnitudes": Option(
        "Points on the curve of a transform with both signs.", int, 21, least=3, most=1_001
    ),
    "pair_magnitudes": Option(
        "Points on a curve of intra; inter has one less.", int, 11, least=3, most=1_001
    ),
    DBI: Option(
        "Whether to compute the Davies–Bouldin index of the first block's outputs, too.",
        *(bool, False),
    ),
}
"""What the table ``[response]`` of a sweep file says of the measurement, and `respond` takes."""
"""Davies–Bouldin index of hidden outputs; in place of a transform, keys the draw of its rows."""
DBI_BATCHES, DBI_BATCH, DBI_LAYERS = 10, 120, (1,)
"""Batches whose indices are averaged, rows per batch, and the layers measured."""
PARTS = ("train", "shifted-train", "test", "shifted-test")
"""What is counted besides curves: all training rows, the shifted sample, the test set and the
shifted test set. Each shifted row has its own magnitude."""


@dataclass(frozen=True, slots=True)
class ResponseDesign:
    """What a group's models are asked.

    `responses`, tuple of (str, int): transforms in their normal form, each with the layer whose
    output it acts on: 0 is the input, 1 the output of a network's first block. `rows`: training
    rows per sample, as a number or as a share of a run's rows. `batch`: rows per batch, within
    which pairs are formed. `draws`: number of samples. `magnitudes` and `pair_magnitudes`: points
    of a curve, for transforms in both directions and for interpolations (``inter`` has one less).
    `dbi`: whether to measure the Davies–Bouldin index of `DBI_LAYERS`. `spectra`: if positive, only
    the singular values of a network's Jacobian are asked for, at up to so many test points.
    """

    responses: tuple[tuple[str, int], ...]
    rows: int | float = OPTIONS["rows"].default
    batch: int = OPTIONS["batch"].default
    draws: int = OPTIONS["draws"].default
    magnitudes: int = OPTIONS["magnitudes"].default
    pair_magnitudes: int = OPTIONS["pair_magnitudes"].default
    dbi: bool = False
    spectra: int = 0

    @property
    def grids(self) -> tuple[tuple[float, ...], ...]:
        """The magnitudes of each response, padded with NaN to equal length."""
        grids = [self.grid(name) for name, _ in self.responses]
        longest = max(map(len, grids))
        return tuple((*grid, *(math.nan,) * (longest - len(grid))) for grid in grids)

    def grid(self, transform: str) -> tuple[float, ...]:
        """Return the magnitudes of a transform, ascending."""
        if transform in PAIRED:
            n = self.pair_magnitudes
            steps = [PAIR_END * i / (n - 1) for i in range(n)]
            return tuple(steps[:-1] if transform == "inter" else steps)
        name, _, text = transform.partition(":")
        most, n = float(text), self.magnitudes
        steps = [most * (2 * i / (n - 1) - 1) for i in range(n)]
        if name == "rotate" and most == MOST["rotate"]:
            steps[-1] = ROTATE_END
        return tuple(steps)

    def to_attributes(self) -> dict[str, object]:
        """Return the form that JSON stores; what was added later is left out unless it is set."""
        value = {**asdict(self), "responses": [list(each) for each in self.responses]}
        return {k: v for k, v in value.items() if v or k not in (DBI, SPECTRA)}

    @classmethod
    def from_attributes(cls, value: Mapping[str, Any]) -> ResponseDesign:
        """Read what `to_attributes` wrote."""
        responses = tuple((str(name), int(layer)) for name, layer in value["responses"])
        return cls(**{**value, "responses": responses})
