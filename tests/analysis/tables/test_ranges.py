"""A range needs two runs, or two pairs."""

from __future__ import annotations

import numpy as np
import pytest

from manyseed.analysis.graph.chunks import analyze_group, compute
from manyseed.analysis.options import Options
from tests.analysis.samples import noisy, predictions, regular


@pytest.mark.parametrize("max_pair_runs", [0, 200])
@pytest.mark.parametrize("n_runs", [1, 2, 3])
def test_one_run_or_one_pair_has_no_range(n_runs, max_pair_runs):
    frame = regular(1, 1, n_runs)
    score, y_true = noisy(np.random.default_rng(0), frame, 60)
    options = Options(resamples=3, max_pair_runs=max_pair_runs)
    group = analyze_group(predictions(score, y_true, frame), options)
    repeats = compute([group], scheduler="synchronous")[0].repeats
    enough = {"accuracy": n_runs > 1, "ece": n_runs > 1, "churn_ensemble": n_runs > 1}
    enough |= dict.fromkeys(("ec_local", "churn", "ec_kappa", "ec_union", "agreement"), n_runs > 2)
    for name, known in enough.items():
        assert (repeats[f"{name}_range"][0] is not None) is known, name
    assert (repeats["churn_mean"][0] is not None) is (n_runs > 1)
