"""A probe of one's own: found and allowed as metrics are, and what α̂ is of with it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.analysis.options import Options
from tests.orchestrator.conftest import inside

OWN = """
from pathlib import Path
Path(__file__).with_name("was-run").touch()

def turned(part):
    if Path(__file__).with_name("broken").exists():
        raise ValueError("no luck")
    return -3 * part.margin

turned.needs = "margin"

def largest(part):
    return part.score.max(axis=2)

largest.needs = "score"

def flat(part):
    return part.label.mean(axis=1)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder where commands are given, with a module of the user's."""
    (tmp_path / "probes.py").write_text(OWN)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("probes", None)


@pytest.fixture
def sweep(here: Path) -> Sweep:
    """Two classes in one dataset, three in the other."""
    rng = np.random.default_rng(0)
    y_true = rng.integers(0, 2, 200)
    gaps = 2.0 * y_true - 1 + rng.normal(size=(4, 200))
    np.savez(here / "two.npz", scores=gaps.astype(np.float32), y_true=y_true)
    scores = rng.normal(size=(4, 200, 3)).astype(np.float32)
    np.savez(here / "three.npz", scores=scores, y_true=rng.integers(0, 3, 200))
    return Sweep.import_predictions([here / "two.npz", here / "three.npz"], here / "sweep")


def alpha(sweep: Sweep, dataset: str) -> pl.DataFrame:
    names = ("alpha_hat", "ks_distance", "wasserstein", "probe")
    return sweep.results["runs"].filter(dataset=dataset).select(names)


def test_it_is_what_is_compared(sweep: Sweep) -> None:
    plain = sweep.analyze(Options(resamples=10))["runs"]
    code, told = inside("analyze", "sweep", "--resamples", 10, "--probe", "probes:turned")
    assert code == 0, told
    own = alpha(sweep, "two")
    gap = plain.filter(dataset="two")
    assert own["probe"].unique().to_list() == ["probes:turned"]
    assert own["ks_distance"].to_list() == pytest.approx(gap["ks_distance"].to_list())
    assert own["wasserstein"].to_list() == pytest.approx((3 * gap["wasserstein"]).to_list())
    assert "the probe probes:turned" in sweep.report().read_text()
    code, told = inside("analyze", "sweep", "--resamples", 10, "--probe", "probes:largest")
    assert code == 0, told  # of three classes there are scores; of two the gap alone
    told = " ".join(told.split())
    assert alpha(sweep, "three")["alpha_hat"].null_count() == 0
    assert "alpha_hat is not computed for two × imported: it needs the probe" in told
    assert alpha(sweep, "two")["alpha_hat"].null_count() == 4


def test_a_strangers_probe_is_left_out_and_not_imported(sweep: Sweep, here: Path) -> None:
    with sweep.paths.sweep_file.open("a") as file:
        file.write('\n[analysis]\nprobe = "probes:turned"\nresamples = 5\n')
    code, told = inside("analyze", "sweep")
    assert code == 0, told
    assert "Left out probes:turned, which the sweep file names as the probe" in told
    assert "--probe probes:turned" in " ".join(told.split())
    assert alpha(sweep, "two")["probe"][0] == "gap"
    assert not (here / "was-run").exists()
    assert inside("analyze", "sweep", "--probe", "probes:turned")[0] == 0
    assert alpha(sweep, "two")["probe"][0] == "probes:turned"
    sys.modules.pop("probes", None)
    (here / "was-run").unlink()
    # what was computed once is no permission: the record may come from a stranger
    for verb in ("howmany", "report"):
        assert inside(verb, "sweep")[0] == 0
    assert not (here / "was-run").exists()
    (here / "config" / "manyseed").mkdir(parents=True)
    (here / "config" / "manyseed" / "metrics.toml").write_text('allowed = ["probes"]')
    sys.path.append(str(here))  # allowed modules are found on PYTHONPATH
    code, told = inside("analyze", "sweep")
    assert code == 0, told
    assert "Left out" not in told
    assert alpha(sweep, "two")["probe"][0] == "probes:turned"


def test_one_that_fails_costs_alpha_hat_alone_until_it_is_mended(sweep: Sweep, here: Path) -> None:
    (here / "broken").touch()
    told = " ".join(inside("analyze", "sweep", "--probe", "probes:turned")[1].split())
    reason = "it needs the probe probes:turned, which failed with ValueError: no luck."
    assert f"alpha_hat is not computed for two × imported, three × imported: {reason}" in told
    runs = sweep.results["runs"]
    assert runs["alpha_hat"].null_count() == runs.height
    assert runs["accuracy"].null_count() == 0
    (here / "broken").unlink()
    assert inside("analyze", "sweep", "--probe", "probes:turned")[0] == 0
    assert sweep.results["runs"]["alpha_hat"].null_count() == 0
    told = " ".join(inside("analyze", "sweep", "--probe", "probes:flat")[1].split())
    assert "which returned shape (4,); one number for each run and test point, (4, 200)" in told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--probe", "nowhere:f"), "No module named"),
        (("--probe", "probes:absent"), "did you mean"),
        (("--probe", "gaps"), 'did you mean "gap"'),
    ],
)
def test_a_probe_that_is_not_there_is_one_message(
    sweep: Sweep, options: tuple[str, ...], message: str
) -> None:
    code, told = inside("analyze", "sweep", *options)
    assert code == 2
    assert message in told
    assert "--probe" in told
    assert "Traceback" not in told


def test_another_epochs_reference_has_no_own_probe() -> None:
    with pytest.raises(ValueError, match="needs the probe gap or true_margin"):
        Options(probe="a:b", reference_snapshot=0, alpha_reference="half")
