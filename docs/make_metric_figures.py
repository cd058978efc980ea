"""Draw what low and high values of metrics look like, for ``docs/results.md``.

Planted predictions are imported and analysed by the package, whose tables give the numbers in the
titles. Run from the repository's folder: ``python docs/make_metric_figures.py``.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.special import expit

from manyseed import Sweep

IMAGES = Path(__file__).parent / "images"
RUNS, POINTS = 12, 4000
BLUE, RED, GREY = "#1f6fb2", "#d1495b", "#9aa0a6"
Real = NDArray[np.float64]


def main() -> None:
    """Draw the picture."""
    matplotlib.rcParams.update(
        {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}
    )
    figure = Figure(figsize=(7.2, 8.2), layout="constrained")
    rows = [
        ("accuracy_std", "spread of accuracy", (flips(0.002), flips(0.03)), accuracies),
        ("ec_local_mean", "error consistency", (errors(0.0), errors(0.9)), raster),
        ("alpha_hat", "α̂ of the red run", (contaminated(0.0), contaminated(0.35)), curves),
        ("ece", "calibration error of a run", (confident(1.0), confident(3.0)), reliability),
    ]
    axes = figure.subplots(len(rows), 2)
    for row, (column, shown, planted, draw) in zip(axes, rows, strict=True):
        for axis, (gap, y_true) in zip(row, planted, strict=True):
            runs, repeats = analysed(gap, y_true)
            value = (runs if column in runs.columns else repeats)[column][0]
            axis.set_title(f"{shown}: {value:.3f}", loc="left")
            draw(axis, gap, y_true)
    for title, axis in zip(("low", "high"), axes[0], strict=True):
        axis.annotate(
            title, (0.5, 1.2), xycoords="axes fraction", ha="center", size=10, weight="bold"
        )
    figure.savefig(IMAGES / "low-high.png", dpi=110, metadata={"Software": None})


def flips(spread: float) -> tuple[Real, NDArray[np.int64]]:
    """Plant runs whose accuracies differ by a standard deviation of about `spread`."""
    rng = np.random.default_rng(1)
    y_true = rng.integers(0, 2, POINTS)
    right = np.full((RUNS, POINTS), True)
    accuracy = 0.85 + spread * np.linspace(-1.6, 1.6, RUNS)
    hard = rng.permutation(POINTS)
    for run in range(RUNS):
        right[run, hard[: round((1 - accuracy[run]) * POINTS)]] = False
    return signed(right, y_true, rng), y_true


def errors(shared: float) -> tuple[Real, NDArray[np.int64]]:
    """Plant runs of accuracy .8 that share a part of their errors; the rest are independent."""
    rng = np.random.default_rng(2)
    y_true = rng.integers(0, 2, POINTS)
    common = rng.random(POINTS) < 0.2
    own = rng.random((RUNS, POINTS)) < 0.2
    right = ~np.where(rng.random((RUNS, POINTS)) < shared, common, own)
    return signed(right, y_true, rng), y_true


def contaminated(share: float) -> tuple[Real, NDArray[np.int64]]:
    """Plant similar runs, except that a share of the first one's gaps lies elsewhere."""
    rng = np.random.default_rng(3)
    y_true = rng.integers(0, 2, POINTS)
    gap = (2 * y_true - 1) * 2.0 + 2 * rng.standard_normal((RUNS, POINTS))
    gap[0, rng.random(POINTS) < share] = 9.0
    return gap, y_true


def confident(factor: float) -> tuple[Real, NDArray[np.int64]]:
    """Plant true probabilities, with log-odds multiplied by a factor."""
    rng = np.random.default_rng(4)
    gap = 1.5 * rng.standard_normal((RUNS, POINTS))
    y_true = (rng.random(POINTS) < expit(gap[0])).astype(np.int64)
    return gap * factor, y_true


def signed(right: NDArray[np.bool_], y_true: NDArray[np.int64], rng: np.random.Generator) -> Real:
    """Return gaps whose signs are right as specified."""
    size = np.abs(rng.standard_normal(right.shape)) + 0.1
    result: Real = np.where(right, 1, -1) * (2 * y_true - 1) * size
    return result


def analysed(gap: Real, y_true: NDArray[np.int64]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the tables of runs and of repeats, made by the commands."""
    with tempfile.TemporaryDirectory() as folder:
        np.savez(
            Path(folder, "planted.npz"),
            scores=np.stack([-gap / 2, gap / 2], axis=-1),
            y_true=y_true,
        )
        command = Path(sys.executable).with_name("manyseed")
        done = [command, "import", "planted.npz", "--out", "planted"]
        subprocess.run(done, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        sweep = Sweep(Path(folder, "planted"))
        sweep.analyze()
        return sweep.results["runs"], sweep.results["repeats"]


def accuracies(axis: Axes, gap: Real, y_true: NDArray[np.int64]) -> None:
    """Draw the accuracy of each run."""
    right = ((gap > 0) == y_true).mean(axis=1)
    axis.plot(right, np.zeros(RUNS), "o", color=BLUE, alpha=0.6)
    axis.set(xlim=(0.78, 0.92), yticks=[], xlabel="accuracy of the runs")
    axis.spines["left"].set_visible(False)


def raster(axis: Axes, gap: Real, y_true: NDArray[np.int64]) -> None:
    """Draw which of the first sixty test points each run gets wrong."""
    wrong = ((gap > 0) != y_true)[:, :60]
    axis.imshow(wrong, cmap="Reds", aspect="auto", interpolation="nearest", vmax=1.4)
    axis.set(yticks=[], ylabel="runs", xlabel="test points; red: wrong")


def curves(axis: Axes, gap: Real, _: NDArray[np.int64]) -> None:
    """Draw distribution functions of the gaps."""
    share = np.arange(1, POINTS + 1) / POINTS
    for run in range(1, RUNS):
        axis.plot(np.sort(gap[run]), share, color=GREY, lw=0.8)
    axis.plot(np.sort(gap[0]), share, color=RED, lw=1.4)
    axis.set(xlim=(-10, 10), xlabel="logit gap", ylabel="share below")


def reliability(axis: Axes, gap: Real, y_true: NDArray[np.int64]) -> None:
    """Draw the share of right predictions by confidence."""
    p = expit(np.abs(gap[0]))
    right = (gap[0] > 0) == y_true
    edges = np.linspace(0.5, 1, 11)
    place = np.clip(np.digitize(p, edges) - 1, 0, 9)
    means = [(p[place == k].mean(), right[place == k].mean()) for k in range(10)]
    axis.plot([0.5, 1], [0.5, 1], color=GREY, lw=0.8)
    axis.plot(*zip(*means, strict=True), "o-", color=BLUE, ms=4, lw=1)
    axis.set(xlim=(0.5, 1), ylim=(0.4, 1.02), xlabel="confidence", ylabel="share right")


if __name__ == "__main__":
    main()
