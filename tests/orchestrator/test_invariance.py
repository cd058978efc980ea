"""One seed of the example of response curves: what the paper's invariance study leads to expect."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from manyseed.analysis.options import Options
from tests.orchestrator.conftest import inside, train, write

EXAMPLE = Path(__file__).parents[2] / "examples" / "invariance-digits.toml"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_gap_and_gi_fall_with_augmentation_and_scores_tell_far_beyond_chance(tmp_path):
    text = EXAMPLE.read_text()
    assert "runs    = 3" in text
    file = write(tmp_path / "one.toml", text.replace("runs    = 3", "runs    = 1"))
    sweep = train(file, tmp_path / "sweep", workers=2)
    sweep.analyze(Options(resamples=5))
    turned = sweep.results["responses"].filter(transform="rotate:90")
    assert turned.height == 36
    means = turned.group_by("augment").agg(pl.col("gap", "gi").mean())
    for name in ("gap", "gi"):
        of = dict(means.select("augment", name).iter_rows())
        falling = [of[level] for level in ("none", "rotate:45", "rotate:90")]
        assert all(before >= 1.5 * after for before, after in pairwise(falling)), (name, falling)
    told = sweep.results["cmi"].filter(transform="rotate:90")
    for measure in ("gi", "mean_accuracy"):
        row = told.filter(measure=measure).row(0, named=True)
        assert row["cmi"] >= 3 * row["null_q95"], row
    code, said = inside("answers", sweep.directory, "--why")
    assert code == 0, said
    assert "scores of response curves of digits × convnet" in said
    assert "so its spread over seeds is unknown" in " ".join(said.split())
