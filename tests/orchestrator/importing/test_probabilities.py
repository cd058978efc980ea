"""Probabilities that others give come back as they were, whatever they were made by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.special import expit

from manyseed import Sweep
from manyseed.analysis.options import Options
from manyseed.orchestrator.errors import UserError
from tests.orchestrator.conftest import command, inside

RUNS, SAMPLES = 3, 60
OPTIONS = Options(resamples=3)


def imported(folder: Path, p: Any, y_true: Any, **options: Any) -> dict[str, pl.DataFrame]:
    np.savez(folder / "given.npz", scores=p, y_true=y_true)
    sweep = Sweep.import_predictions(
        [folder / "given.npz"], folder / "sweep", probabilities=True, **options
    )
    return dict(sweep.analyze(OPTIONS))


def slow_log_likelihood(p: Any, y_true: Any) -> list[float]:
    """Of probabilities (run, sample, class), after a last division by their sums."""
    return [
        float(np.mean([np.log(row[k] / row.sum()) for row, k in zip(run, y_true, strict=True)]))
        for run in p.astype(np.float64)
    ]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_the_positive_class_alone(tmp_path: Path, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    y_true = rng.integers(0, 2, SAMPLES)
    p = rng.uniform(0.6, 0.99, (RUNS, SAMPLES))
    p = np.where(y_true == 1, p, 1 - p).astype(dtype)
    runs = imported(tmp_path, p, y_true)["runs"]
    assert runs["accuracy"].to_list() == [1.0] * RUNS
    both = np.stack([1 - p.astype(np.float64), p], axis=2)
    tolerance = 2e-3 if dtype == np.float16 else 1e-6
    assert runs["log_likelihood"].to_list() == pytest.approx(
        slow_log_likelihood(both, y_true), rel=tolerance
    )


@pytest.mark.parametrize("n_classes", [2, 3, 12])
@pytest.mark.parametrize("probability", ["softmax", "ovr"])
def test_one_for_each_class(tmp_path: Path, n_classes: int, probability: str) -> None:
    rng = np.random.default_rng(n_classes)
    y_true = rng.integers(0, n_classes, SAMPLES)
    p = expit(rng.normal(size=(RUNS, SAMPLES, n_classes)))
    p /= p.sum(axis=2, keepdims=True)
    runs = imported(tmp_path, p, y_true, probability=probability)["runs"]
    assert runs["accuracy"].to_list() == (p.argmax(axis=2) == y_true).mean(axis=1).tolist()
    if n_classes <= 10:  # of more, not all scores are kept
        assert runs["log_likelihood"].to_list() == pytest.approx(slow_log_likelihood(p, y_true))
    top = p.max(axis=2)
    bins = [(np.ceil(run * 15) - 1).astype(int) for run in top]
    right = p.argmax(axis=2) == y_true
    expected = [
        sum(abs((own - ok)[b == k].sum()) for k in range(15)) / SAMPLES
        for own, ok, b in zip(top, right, bins, strict=True)
    ]
    assert runs["ece"].to_list() == pytest.approx(expected, abs=1e-6)


def test_scores_of_two_one_vs_rest_classifiers(tmp_path: Path) -> None:
    """Their normalised sigmoids are no sigmoid of their difference."""
    rng = np.random.default_rng(3)
    y_true = rng.integers(0, 2, SAMPLES)
    scores = rng.normal(size=(RUNS, SAMPLES, 2)).astype(np.float32)
    np.savez(tmp_path / "given.npz", scores=scores, y_true=y_true)
    sweep = Sweep.import_predictions([tmp_path / "given.npz"], tmp_path / "s", probability="ovr")
    found = sweep.analyze(OPTIONS)["runs"]["log_likelihood"].to_list()
    assert found == pytest.approx(slow_log_likelihood(expit(scores), y_true), rel=1e-5)


@pytest.mark.parametrize("shape", ["positive", "each"])
def test_certain_ones_count_as_nearly_certain_and_are_told(tmp_path: Path, shape: str) -> None:
    p = np.full((RUNS, SAMPLES), 0.9)
    p[1, 3], p[2, 7] = 0, 1
    given = p if shape == "positive" else np.stack([1 - p, p], axis=2)
    np.savez(tmp_path / "given.npz", scores=given, y_true=np.ones(SAMPLES, int))
    out = tmp_path / "sweep"
    result = command("import", tmp_path / "given.npz", "--out", out, "--probabilities")
    assert result.returncode == 0, result.stderr
    told = "2 predictions of a test point give a class less than the probability 1.2e-38"
    assert told in result.stdout
    runs = dict(Sweep(out).analyze(OPTIONS))["runs"]
    floor = np.log(1.1754944e-38)
    usual = np.log(0.9)
    expected = [usual, (59 * usual + floor) / 60, 59 * usual / 60]
    assert runs["log_likelihood"].to_list() == pytest.approx(expected, rel=1e-6)
    assert runs["accuracy"].to_list() == [1, 59 / 60, 1]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([-0.1, 0.6, 0.5], "test point 4: -0.1 is not a probability"),
        ([0.4, 0.4, 0.202], "test point 4: the probabilities sum to 1.002, not to 1"),
        ([0.4, 0.4, np.nan], "not finite in 1 of 60 points, such as nan in point 4"),
        ([np.inf, 0.0, 0.0], "not finite in 1 of 60 points, such as inf in point 4"),
        (1.2, "test point 4: 1.2 is not a probability"),
        (-1e-6, "test point 4: -1e-06 is not a probability"),
        (np.nan, "not finite in 1 of 60 points, such as nan in point 4"),
    ],
)
def test_what_is_no_probability_is_one_message(tmp_path: Path, wrong: Any, message: str) -> None:
    shape = (RUNS, SAMPLES, *np.shape(wrong))
    p = np.full(shape, 1 / 3 if np.shape(wrong) else 0.5)
    p[1, 4] = wrong
    np.savez(tmp_path / "given.npz", scores=p, y_true=np.zeros(SAMPLES, int))
    out = tmp_path / "sweep"
    result = command("import", tmp_path / "given.npz", "--out", out, "--probabilities")
    assert result.returncode == 2
    said = result.stderr.replace("\n", " ")
    assert "given.npz: " in said
    assert "run 1: " in said
    assert message in said
    assert [file.name for file in tmp_path.iterdir()] == ["given.npz"]


@pytest.mark.parametrize("form", ["npz", "npy", "pt"])
@pytest.mark.parametrize("n_classes", [None, 2, 3])
def test_probabilities_are_not_taken_for_logits(
    tmp_path: Path, n_classes: int | None, form: str
) -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(n_classes or 2), (RUNS, SAMPLES)).astype(np.float32)
    scores = p if n_classes else p[..., 1]
    y_true = rng.integers(0, n_classes or 2, SAMPLES)
    file, out = tmp_path / f"given.{form}", tmp_path / "sweep"
    options: list[Any] = []
    if form == "npz":
        np.savez(file, scores=scores, y_true=y_true)
    elif form == "npy":
        np.save(file, scores)
        np.save(tmp_path / "y.npy", y_true)
        options = ["--truth", tmp_path / "y.npy"]
    else:
        torch = pytest.importorskip("torch")
        torch.save({"scores": torch.tensor(scores), "y_true": torch.tensor(y_true)}, file)
    before = sorted(path.name for path in tmp_path.iterdir())
    code, told = inside("import", file, "--out", out, *options)
    told = " ".join(told.split())
    assert code == 2, told
    assert f"given.{form}: scores: look like probabilities" in told
    assert " --probabilities" in told
    assert ("as scores (run, sample, class)" in told) is (n_classes is None)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert inside("import", file, "--out", out, *options, "--probabilities")[0] == 0


def test_one_run_of_logits_shows_that_all_are(tmp_path: Path) -> None:
    p = np.full((RUNS, SAMPLES, 3), 1 / 3)
    p[1, 0] = 0.5, 0.25, 0.25
    y_true = np.arange(SAMPLES) % 3
    p[-1, -1] = 1.25, -0.25, 0
    sweep = Sweep.from_predictions({"scores": p, "y_true": y_true}, tmp_path / "negative")
    p[-1, -1] = 1, 0, 0
    for make in (
        lambda: Sweep.from_predictions({"scores": p, "y_true": y_true}, tmp_path / "refused"),
        lambda: sweep.add_predictions({"scores": p, "y_true": y_true}),
    ):
        with pytest.raises(UserError, match="look like probabilities"):
            make()
    assert not (tmp_path / "refused").exists()
    assert sweep.status()["runs"]["done"] == RUNS
    shares = {"scores": p, "y_true": y_true}  # said to be none
    Sweep.from_predictions(shares, tmp_path / "shares", probability="none")


def test_sums_that_are_rounded_are_taken(tmp_path: Path) -> None:
    p = np.tile([0.3334, 0.3334, 0.3334], (RUNS, SAMPLES, 1))
    found = imported(tmp_path, p, np.zeros(SAMPLES, int))["runs"]["log_likelihood"]
    assert found.to_list() == pytest.approx([np.log(1 / 3)] * RUNS)


def table(p: Any, y_true: Any, file: Path) -> None:
    pl.DataFrame(
        {
            "row_id": np.arange(SAMPLES) + 100,
            "prediction": p.argmax(axis=1),
            "truth": y_true,
            **{f"confidence.{k}": p[:, k] for k in range(p.shape[1])},
        }
    ).write_csv(file)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_confidences_of_tables(tmp_path: Path, n_classes: int) -> None:
    rng = np.random.default_rng(n_classes)
    y_true = rng.integers(0, n_classes, SAMPLES)
    p = expit(rng.normal(size=(RUNS, SAMPLES, n_classes)))
    p /= p.sum(axis=2, keepdims=True)
    files = [tmp_path / f"{run}.csv" for run in range(RUNS)]
    for run, file in zip(p, files, strict=True):
        table(run, y_true, file)
    sweep = Sweep.import_predictions(files, tmp_path / "sweep", probability="ovr")
    runs = sweep.analyze(OPTIONS)["runs"]
    assert runs["log_likelihood"].to_list() == pytest.approx(slow_log_likelihood(p, y_true))
    p[1, 5] = np.eye(n_classes)[0]
    table(p[1], y_true, files[1])
    result = command("import", *files, "--out", tmp_path / "told")
    assert "1 prediction of a test point gives a class less than the" in result.stdout
    p[1, 5] = 0.9 / n_classes
    table(p[1], y_true, files[1])
    result = command("import", *files, "--out", tmp_path / "refused")
    assert result.returncode == 2
    problem = "1.csv: confidence: row_id 105: the probabilities sum to 0.9, not to 1"
    assert problem in result.stderr.replace("\n", " ")
    assert not (tmp_path / "refused").exists()
