"""Steps of α̂: reduce runs to a probe, form references, test candidates against them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.alphahat import worst
from manyseed.analysis.alphahat.references import (
    Reference,
    alpha_stars,
    interpolated_stars,
    on_grid,
    suspects,
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


def without_suspects(
    models: Models, drawn: Resamples, options: Options, seen: Levels | None = None
) -> Models:
    """Leave out the models without which no resample of any other model is infeasible.

    None is left out if leaving out fewer than half of them is not enough. `seen` is that of
    `_majority`.
    """
    if seen is None:
        seen = Levels.unknown(models.position.size, drawn.candidate.shape[0])

    def feasible(tested: Levels) -> NDArray[np.bool_]:
        return np.asarray(~tested.infeasible(options).any(axis=1))

    return _majority(models, seen, drawn, options, feasible)[0]


def _of_models(models: Models, position: Positions, levels: Levels) -> Levels:
    """Return the results of the models among those of some runs, NaN where there are none."""
    seen = Levels.unknown(models.position.size, levels.counted.shape[1])
    _, rows, of_runs = np.intersect1d(models.position, position, return_indices=True)
    seen.put(rows, Levels(*(getattr(levels, name)[of_runs] for name in Levels.__slots__)))
    return seen


def _majority(
    models: Models,
    seen: Levels,
    drawn: Resamples,
    options: Options,
    agrees: Callable[[Levels], NDArray[np.bool_]],
) -> tuple[Models, Levels | None]:
    """Leave out the fewest models without which each of the others agrees with the rest.

    `models`, `drawn` and `options`: as `without_suspects` takes them. `seen`: results of each model
    against all others, NaN where unknown. The one with the largest level is tested first: if it
    doesn't agree, the others need no test. `agrees`: takes the results of some models; returns
    which of them agree, (candidate,).

    Returns `models`: those given if leaving out fewer than half of them is not enough. `tested`:
    results of the models that are left, if any are left out.
    """
    largest = np.nan_to_num(seen.counted.mean(axis=1), nan=np.inf)
    tested = None

    def passes(kept: Positions) -> bool:
        nonlocal tested
        if kept.size == largest.size and np.isfinite(largest).all():
            return bool(agrees(seen).all())
        values = models.probe[kept]
        reference, members = Reference.sort(values), np.arange(kept.size, dtype=np.int32)
        levels = Levels.unknown(kept.size, drawn.candidate.shape[0])
        order = np.argsort(-largest[kept])
        for rows in (order[:1], order[1:]):
            part = test(values[rows], reference, members[rows], drawn, options)
            levels.put(rows, part)
            if not agrees(part).all():
                return False
        tested = levels
        return True

    outliers = suspects(models.probe, passes)
    if outliers is None or outliers.size == 0:
        return models, None
    kept = np.delete(np.arange(models.position.size), outliers)
    trimmed = Models.of(models.position[kept], models.probe[kept])
    left_out = np.union1d(models.left_out, models.position[outliers])
    return replace(trimmed, left_out=left_out), tested


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
        rest = without_suspects(models, drawn, options, _of_models(models, position, levels))
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
    seen = _of_models(models, position, levels)
    rest, again = _majority(
        models, seen, drawn, options, lambda t: t.counted.mean(axis=1) <= options.close
    )
    if again is None:
        return found
    inside = np.isin(position, rest.position)
    rows = np.flatnonzero(far & inside)
    found[rows] = again.counted[np.searchsorted(rest.position, position[rows])].mean(axis=1)
    rows = np.flatnonzero(far & ~inside)
    if rows.size:
        none = np.full(rows.size, -1, dtype=np.int32)
        reference = Reference.sort(rest.probe)
        found[rows] = test(values[rows], reference, none, drawn, options).counted.mean(axis=1)
    return found
