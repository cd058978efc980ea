"""Draw the pictures of ``docs/perturbations.md`` with the package's own perturbations.

Run from the repository's folder: ``python docs/make_perturbation_figures.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from manyseed.jobs.classifiers import CLASSIFIERS
from manyseed.jobs.datasets import load, resolve
from manyseed.jobs.hparams import Categorical, Continuous, perturb
from manyseed.jobs.perturb import (
    canonical,
    find_neighbours,
    perturb_categorical,
    perturb_continuous,
)
from manyseed.jobs.run import stream

IMAGES = Path(__file__).parent / "images"
BEFORE, AFTER, CHANGED = "#9aa0a6", "#1f6fb2", "#d1495b"


def main() -> None:
    """Draw all pictures."""
    matplotlib.rcParams.update({"font.size": 8, "svg.hashsalt": "manyseed"})
    IMAGES.mkdir(exist_ok=True)
    for name, figure in {
        "continuous": continuous(),
        "spread": spread(),
        "digits": digits(),
        "categorical": categorical(),
        "hparams": hparam_values(),
    }.items():
        figure.savefig(IMAGES / f"{name}.png", dpi=110, metadata={"Software": None})


def continuous() -> Figure:
    """Draw how each scheme moves the points of two features."""
    schemes = ["sig-digit:0", "sig-digit:1", "relative:0.2", "percentile:0.5", "neighbour:1.0"]
    data = load(resolve("sklearn:iris").canonical)
    X = np.unique(data.X[:, 2:], axis=0)
    figure, axes = _panels(1, len(schemes), 2.0, 2.3, sharex=True, sharey=True)
    for ax, scheme in zip(axes[0], schemes, strict=True):
        moved = perturbed(X, scheme)
        ax.plot(*np.stack([X, moved]).transpose(2, 0, 1), color=AFTER, lw=0.4, alpha=0.6)
        ax.scatter(*X.T, s=7, color=BEFORE, label="before")
        ax.scatter(*moved.T, s=4, color=AFTER, label="after")
        ax.set_title(scheme)
        ax.set_xlabel("petal length (cm)")
    axes[0][0].set_ylabel("petal width (cm)")
    axes[0][0].legend(fontsize=7, loc="upper left", handletextpad=0.1)
    return figure


def spread() -> Figure:
    """Draw the range of values after perturbation against the value before."""
    schemes = ["sig-digit:0", "sig-digit:1", "relative:0.2", "percentile:0.5"]
    x = np.linspace(-15, 25, 1601)
    figure, axes = _panels(1, len(schemes), 2.4, 2.3, sharex=True, sharey=True)
    for ax, scheme in zip(axes[0], schemes, strict=True):
        draws = perturbed(np.tile(x, 30)[:, None], scheme)[:, 0].reshape(30, -1)
        ax.fill_between(x, draws.min(axis=0), draws.max(axis=0), color=AFTER, alpha=0.35, lw=0)
        ax.plot(x, x, color=BEFORE, lw=1)
        ax.set_title(scheme)
        ax.set_xlabel("value")
    axes[0][0].set_ylabel("value after perturbation")
    return figure


def digits() -> Figure:
    """Draw images after perturbation of their pixels."""
    schemes = ["none", "sig-digit:0", "relative:0.5", "percentile:0.5", "neighbour:1.0"]
    data = load(resolve("sklearn:digits").canonical)
    shown = [int(np.flatnonzero(data.y == digit)[0]) for digit in (0, 3, 5, 8)]
    figure, axes = _panels(len(shown), len(schemes), 1.1, 1.15)
    for column, scheme in enumerate(schemes):
        X = data.X if scheme == "none" else perturbed(data.X, scheme)
        for row, sample in enumerate(shown):
            ax = axes[row][column]
            ax.imshow(X[sample].reshape(8, 8), cmap="gray_r", vmin=-2, vmax=18)
            ax.set_axis_off()
        axes[0][column].set_title(scheme)
    return figure


def categorical() -> Figure:
    """Draw the labels of a table after perturbation, and mark those that change."""
    schemes = ["none", "sample:0.2", "value:0.1"]
    cardinality = np.array([2, 3, 3, 4, 4, 5, 5, 6], dtype=np.int32)
    X = np.floor(np.random.Generator(np.random.PCG64(1)).random((48, 8)) * cardinality)
    figure, axes = _panels(1, len(schemes), 2.2, 3.8)
    for ax, scheme in zip(axes[0], schemes, strict=True):
        moved = X
        if scheme != "none":
            generator = stream(1, "perturb_categorical", "figure", canonical("categorical", scheme))
            moved = perturb_categorical(X, cardinality, scheme, generator)
        ax.imshow(moved / (cardinality - 1), cmap="Greys", vmin=-0.3, vmax=1.6, aspect="auto")
        for row, column in np.argwhere(moved != X):
            box = (column - 0.5, row - 0.5)
            ax.add_patch(matplotlib.patches.Rectangle(box, 1, 1, fill=False, ec=CHANGED, lw=1.5))
        ax.set_title(f"{scheme} ({np.count_nonzero(moved != X)} changed)")
        ax.set_xlabel("feature")
        ax.set_yticks([])
    axes[0][0].set_ylabel("sample")
    return figure


def hparam_values() -> Figure:
    """Draw the values of 400 runs under each scheme of hparam perturbation."""
    schemes = ["sig-digit:0", "sig-digit:1", "relative:0.1", "absolute:0.2", "absolute:0.2:scaled"]
    names = ["alpha", "eta0", "l1_ratio", "penalty"]
    classifier = CLASSIFIERS["lr-sgd"]
    space = {hparam.name: hparam for hparam in classifier.space}
    anchors = classifier.anchors()
    figure, axes = _panels(1, len(names), 2.5, 2.3, sharey=True)
    across, along = np.random.Generator(np.random.PCG64(2)).random((2, 400)) * 0.6 - 0.3
    for row, scheme in enumerate(schemes):
        generator = stream(1, "perturb_hparams", "figure", scheme)
        runs = [perturb(classifier.space, anchors, scheme, generator) for _ in range(400)]
        for ax, name in zip(axes[0], names, strict=True):
            values: list[Any] = [run[name] for run in runs]
            changed = [AFTER if value != anchors[name] else BEFORE for value in values]
            hparam = space[name]
            if isinstance(hparam, Categorical):
                values = list(along + [hparam.levels.index(value) for value in values])
            ax.scatter(values, row + across, s=3, c=changed, linewidths=0, alpha=0.6)
    for ax, name in zip(axes[0], names, strict=True):
        hparam = space[name]
        ax.set_title(name)
        if isinstance(hparam, Continuous):
            ax.set_xscale("log" if hparam.log else "linear")
            ax.set_xlim(hparam.low * (0.5 if hparam.log else 1), hparam.high * 1.05)
            ax.axvline(float(anchors[name]), color="black", lw=0.6, zorder=0)
        elif isinstance(hparam, Categorical):
            ax.set_xticks(range(len(hparam.levels)), [str(level) for level in hparam.levels])
    axes[0][0].set_yticks(range(len(schemes)), schemes)
    axes[0][0].invert_yaxis()
    return figure


def perturbed(X: NDArray[np.float64], scheme: str) -> NDArray[np.float64]:
    """Return continuous features after perturbation, with the figure's own stream."""
    kinds = np.zeros(X.shape[1], dtype=np.int32)
    near = find_neighbours(X) if scheme.startswith("neighbour") else None
    generator = stream(1, "perturb_continuous", "figure", scheme)
    return perturb_continuous(X, kinds, scheme, generator, near)


def _panels(
    rows: int, columns: int, width: float, height: float, **share: bool
) -> tuple[Figure, NDArray[Any]]:
    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    axes: NDArray[Any] = figure.subplots(rows, columns, squeeze=False, **share)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


if __name__ == "__main__":
    main()
