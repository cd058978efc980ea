"""Steps of α̂: reduce runs to a probe, form references, test candidates against them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.alphahat import worst
from manyseed.analysis.alphahat.outlying import suspects
from manyseed.analysis.alphahat.references import (
    Reference,
    alpha_stars,
    interpolated_stars,
    on_grid,
)
from manyseed.analysis.alphahat.resampling import Resamples
from manyseed.analysis.alphahat.trimming import dkw_threshold
from manyseed.analysis.metrics.custom import Failed, probe_values
from manyseed.analysis.metrics.metric import HeldOut, Part
from manyseed.analysis.options import SORTED, Options, is_own

MIN_OTHERS = 2
SEARCHED = 100  # most models among which those apart are searched

Real = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
Positions = NDArray[np.int64]
Places = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Models:
    """The runs in references.

    Attributes
    ----------
    position : int64 array (model,)
        Their positions in the repeat, ascending.
    probe : float array (model, point)
    total : float64 array (point,)
        Sum over the models.
    reference : Reference or None
        Sorted; None if every candidate has its own reference.
    left_out : int64 array (model,)
        Positions of runs that are left out because they make resamples infeasible.
    """

    position: Positions
    probe: Floats
    total: Real
    reference: Reference | None
    left_out: Positions = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @classmethod
    def of(cls, position: Positions, values: Floats) -> Models:
        """Make models of some runs, without a reference."""
        return cls(position, values, values.sum(axis=0, dtype=np.float64), None)

    def ensemble(self, left_out: int | None = None) -> Reference:
        """Return the ensemble of all models, or of all but one (RKS, eq. 9; RKS24)."""
        total, size = self.total, self.position.size
        if left_out is not None:
            total, size = total - self.probe[left_out], size - 1
        return Reference.sort((total / size)[None])


def values_of(part: Part, options: Options) -> Floats | Failed:
    """Return the probe values of some runs, (run, point)."""
    if options.probe is None or not is_own(options.probe):
        return probe(part.margin, part.held_out, options)
    values = probe_values(options.probe, part)
    return values if isinstance(values, Failed) else limited(values, options)


def probe(margin: Floats | None, held_out: HeldOut, options: Options) -> Floats:
    """Return the values for the eCDFs: margins, clipped and standardised as the options say."""
    if margin is None:
        raise ValueError("alpha_hat needs one number per point; no margins or scores are stored")
    if held_out.n_classes == 2 and options.probe == "true_margin":
        margin = np.where(held_out.y_true == 1, margin, -margin)
    return limited(margin, options)


def limited(margin: Floats, options: Options) -> Floats:
    """Clip and standardise values as the options say."""
    limit = options.probe_limit
    if limit is not None:
        margin = np.clip(margin, -limit, limit)
    if options.standardise:
        exact = margin.astype(np.float64)
        spread = exact.std(axis=1, keepdims=True)
        margin = (exact - exact.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1)
    return margin


def defined(margin: Floats) -> NDArray[np.bool_]:
    """Return which runs have an eCDF: those without NaN."""
    return np.asarray(~np.isnan(margin).any(axis=1))


def draws(held_out: HeldOut, options: Options) -> Resamples:
    """Return the resamples for the mode and the reference."""
    if options.alpha_reference == "loo_ensemble":
        return held_out.bootstraps
    return held_out.drawn_halves if options.alpha_mode == "paper" else held_out.halves


def side(n_test: int, options: Options) -> int:
    """Return N, the number of points on each side."""
    return n_test if options.alpha_reference == "loo_ensemble" else n_test // 2


@dataclass(frozen=True, slots=True)
class Levels:
    """Results of the robust test: float64 arrays (candidate, resample).

    Attributes
    ----------
    counted : array
        The smallest levels at which it accepts, as α̂ averages them: in mode `paper` on its grid.
    exact : array
        The same levels before they are rounded to the grid.
    distances : array
        ‖Ĝ - Ḡ‖_∞.
    """

    counted: Real
    exact: Real
    distances: Real

    @classmethod
    def unknown(cls, n_runs: int, n_resamples: int) -> Self:
        """Return NaN for runs that are yet to be tested."""
        return cls(*(np.full((n_runs, n_resamples), np.nan) for _ in range(3)))

    @classmethod
    def joined(cls, parts: Sequence[Levels], axis: int = 0) -> Self:
        """Concatenate the candidates of all parts, or along axis 1 their resamples."""
        columns = ([getattr(part, name) for part in parts] for name in cls.__slots__)
        return cls(*(np.concatenate(column, axis) for column in columns))

    def put(self, rows: Positions, tested: Levels) -> None:
        """Fill in the results of some candidates."""
        self.counted[rows], self.exact[rows] = tested.counted, tested.exact
        self.distances[rows] = tested.distances

    def infeasible(self, options: Options) -> NDArray[np.bool_]:
        """Return which resamples no trimming makes acceptable, (candidate, resample)."""
        return np.asarray(self.counted == worst(options.alpha_mode))


def test(
    candidates: Floats, reference: Reference, left_out: Places, drawn: Resamples, options: Options
) -> Levels:
    """Test candidates against a reference.

    Parameters
    ----------
    candidates : float array (candidate, point)
        Probe values without NaN.
    reference : Reference
    left_out : int32 array (candidate,)
        The model in the reference that each candidate is, or -1 throughout if none is one.
    drawn : Resamples
    options : Options
        ε and the mode.
    """
    delta = dkw_threshold(drawn.n_side, options.epsilon)
    exact, distances = alpha_stars(
        candidates, reference, drawn, member=bool(left_out[0] >= 0), gamma=delta
    )
    if options.alpha_mode != "paper":
        return Levels(exact, exact, distances)
    exact = interpolated_stars(candidates, reference, drawn, left_out=left_out, delta=delta)
    return Levels(on_grid(exact), exact, distances)


def without_suspects(models: Models, drawn: Resamples, options: Options) -> Models:
    """Leave out the models without which no resample of any other model is infeasible.

    None is left out if leaving out fewer than half of them is not enough.
    """
    return _majority(models, drawn, options, lambda tested: not tested.infeasible(options).any())


def close_majority(models: Models, drawn: Resamples, options: Options) -> Models | None:
    """Leave out the models without which all others are close to each other (α̂ ≤ `close`).

    None if leaving out fewer than half of them is not enough.
    """

    def close(tested: Levels) -> bool:
        return bool((tested.counted.mean(axis=1) <= options.close).all())

    rest = _majority(models, drawn, options, close)
    return rest if rest.left_out.size > models.left_out.size else None


def _majority(
    models: Models, drawn: Resamples, options: Options, agree: Callable[[Levels], bool]
) -> Models:
    """Leave out the fewest models without which the others, tested with each other, agree."""

    def passes(kept: Positions) -> bool:
        values = models.probe[kept]
        members = np.arange(kept.size, dtype=np.int32)
        return agree(test(values, Reference.sort(values), members, drawn, options))

    outliers = suspects(models.probe, passes)
    if outliers is None or outliers.size == 0:
        return models
    kept = np.delete(np.arange(models.position.size), outliers)
    trimmed = Models.of(models.position[kept], models.probe[kept])
    return replace(trimmed, left_out=np.union1d(models.left_out, models.position[outliers]))


def suspected(
    values: Floats,
    position: Positions,
    levels: Levels,
    models: Models,
    drawn: Resamples,
    options: Options,
) -> Positions:
    """Return the positions of runs that probably make resamples of some runs infeasible.

    These are models of the reference, and other runs that are infeasible even without those models.

    Parameters
    ----------
    values : float array (run, point)
        Probe values of the runs.
    position : int64 array (run,)
        Their positions in the repeat.
    levels : Levels
        Their results with `models`, `drawn` and `options`.
    models, drawn, options
        As `without_suspects` takes them.
    """
    infeasible = levels.infeasible(options).any(axis=1)
    if options.alpha_reference not in SORTED or not infeasible.any():
        return models.left_out
    rest = models
    if options.alpha_reference != "others-trimmed":
        rest = without_suspects(models, drawn, options)
    rows = np.flatnonzero(infeasible & ~np.isin(position, models.position))
    if rows.size and rest is not models:
        none = np.full(rows.size, -1, dtype=np.int32)
        again = test(values[rows], Reference.sort(rest.probe), none, drawn, options)
        rows = rows[again.infeasible(options).any(axis=1)]
    return np.union1d(rest.left_out, position[rows])


def against_majority(
    values: Floats,
    position: Positions,
    levels: Levels,
    models: Models,
    drawn: Resamples,
    options: Options,
) -> Real:
    """Return α̂ of runs that are not close, against the majority that is close to each other.

    One run apart among ten makes a ninth of the others' reference, so all may seem to be apart.
    Parameters are those of `suspected`. NaN for all other runs, if no such majority is found, and
    with more than `SEARCHED` models, of which a few do not matter.

    Returns
    -------
    float64 array (run,)
    """
    found = np.full(position.size, np.nan)
    far = levels.counted.mean(axis=1) > options.close
    few = models.position.size <= SEARCHED
    if options.alpha_reference not in SORTED or not few or not far.any():
        return found
    rest = close_majority(models, drawn, options)
    if rest is None:
        return found
    reference, inside = Reference.sort(rest.probe), np.isin(position, rest.position)
    for member in (True, False):
        rows = np.flatnonzero(far & (inside == member))
        if rows.size:
            places = np.searchsorted(rest.position, position[rows]).astype(np.int32)
            left_out = places if member else np.full(rows.size, -1, dtype=np.int32)
            found[rows] = test(values[rows], reference, left_out, drawn, options).counted.mean(
                axis=1
            )
    return found
