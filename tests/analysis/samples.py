"""Small predictions with known structure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from manyseed.analysis.figures.labels import MARKERS
from manyseed.analysis.figures.style import Plot
from manyseed.analysis.graph.chunks import analyze_group, compute
from manyseed.analysis.graph.predictions import LazyArray, Predictions
from manyseed.analysis.metrics.metric import Part
from manyseed.analysis.options import Options
from manyseed.analysis.tables.rows import Tables

DATASET = "vehicle & others"


class Lazy:
    """An array whose runs are made as they are read, in chunks of `chunk_runs`."""

    def __init__(
        self,
        make: Callable[[int, int], NDArray[Any]],
        shape: tuple[int, ...],
        dtype: Any,
        chunk_runs: int,
    ) -> None:
        self.make, self.shape, self.dtype = make, shape, np.dtype(dtype)
        self.chunks = (chunk_runs, *shape[1:])

    def __getitem__(self, key: tuple[slice, int]) -> NDArray[Any]:
        runs, epoch = key
        return self.make(runs.start, runs.stop)[:, epoch]


class Chunked(Lazy):
    """An array in memory that is read in chunks of `chunk_runs`."""

    def __init__(self, values: NDArray[Any], chunk_runs: int) -> None:
        self.values = values
        super().__init__(self._part, values.shape, values.dtype, chunk_runs)

    def _part(self, start: int, stop: int) -> NDArray[Any]:
        return self.values[start:stop]


def frame(rows: list[tuple[int, int, int, int, bool]]) -> pl.DataFrame:
    return pl.DataFrame(
        rows,
        schema={
            "row": pl.Int64,
            "cell": pl.UInt32,
            "repeat_index": pl.UInt16,
            "run_index": pl.UInt16,
            "identical": pl.Boolean,
        },
        orient="row",
    )


def regular(cells: int, repeats: int, runs: int, copies: bool = False) -> pl.DataFrame:
    """Rows in the order of the store: repeat index, cell, run."""
    keys = [(c, r, k) for r in range(repeats) for c in range(cells) for k in range(runs)]
    return frame([(row, c, r, k, copies and k > 0) for row, (c, r, k) in enumerate(keys)])


def noisy(
    rng: np.random.Generator, runs: pl.DataFrame, n_test: int, n_classes: int = 2, noise: float = 1
) -> tuple[NDArray[np.float32], NDArray[np.uint16]]:
    """Scores (run, 1, sample, class) that mostly favour the true class, and y_true."""
    n_repeats = int(runs["repeat_index"].max()) + 1  # type: ignore[operator, arg-type]
    y_true = rng.integers(0, n_classes, (n_repeats, n_test)).astype(np.uint16)
    score = rng.normal(size=(int(runs["row"].max()) + 1, 1, n_test, n_classes))  # type: ignore[operator, arg-type]
    score *= noise
    for row, repeat in zip(runs["row"], runs["repeat_index"], strict=True):
        score[row, 0, np.arange(n_test), y_true[repeat]] += 1
    return score.astype(np.float32), y_true


def predictions(
    score: NDArray[np.float32],
    y_true: NDArray[np.uint16],
    runs: pl.DataFrame,
    chunks: int | None = None,
    keep: str = "margin",
    **changes: Any,
) -> Predictions:
    """Predictions of one epoch from scores, kept as the store keeps them."""
    n_classes = score.shape[-1]
    label = score.argmax(axis=-1).astype(np.uint8)

    def kept(values: NDArray[Any]) -> LazyArray:
        return values if chunks is None else Chunked(values, chunks)

    fields: dict[str, Any] = {
        "dataset": "vehicle",
        "classifier": "mlp",
        "y_true": y_true,
        "runs": runs,
        "class_names": tuple(f"class {index}" for index in range(n_classes)),
        "label": kept(label),
        "margin": None,
        "score": None,
    }
    if keep == "all":
        fields["score"] = kept(score)
    elif keep == "margin" and n_classes == 2:
        fields["margin"] = kept(score[..., 1] - score[..., 0])
    elif keep == "margin":
        fields["margin"] = kept(margins(score, y_true, runs))
    return Predictions(
        dataset_id="0f" * 16,
        seed=7,
        **{**fields, **changes},
    )


def margins(
    score: NDArray[np.float32], y_true: NDArray[np.uint16], runs: pl.DataFrame
) -> NDArray[np.float32]:
    """True-class margins, point by point."""
    result = np.zeros(score.shape[:3], dtype=np.float32)
    for row, repeat in zip(runs["row"], runs["repeat_index"], strict=True):
        for epoch in range(score.shape[1]):
            for point, true in enumerate(y_true[repeat]):
                values = score[row, epoch, point]
                result[row, epoch, point] = values[true] - np.delete(values, true).max()
    return result


def second_class(part: Part) -> NDArray[np.bool_]:
    """Share of test points that are given class 1."""
    return (part.label == 1).mean(axis=1)


def gap_of_ones(part: Part) -> NDArray[np.floating[Any]]:
    """A probe: the logit gap times five, where class 1 is the truth."""
    assert part.margin is not None
    return np.where(part.y_true == 1, 5 * part.margin, 0)


gap_of_ones.needs = "margin"  # type: ignore[attr-defined]


def sweep(
    datasets: dict[str, int],
    classifiers: dict[str, float],
    schemes: tuple[str, ...] = ("none", "neighbour:0.5"),
    repeats: int = 3,
    runs: int = 5,
) -> Tables:
    """Tables of a sweep with descriptors joined.

    `datasets` maps names to numbers of test points and `classifiers` names to noise; without noise
    the unperturbed runs are identical.
    """
    parts = []
    cell = 0
    for position, (dataset, n_test) in enumerate(datasets.items()):
        for index, (classifier, noise) in enumerate(classifiers.items()):
            cells = list(range(cell, cell + len(schemes)))
            frame = regular(len(schemes), repeats, runs)
            rng = np.random.default_rng([position, index])
            score, y_true = noisy(rng, frame, n_test, noise=0.2 + noise)
            base = rng.normal(size=(repeats, n_test, 2)) * 0.9
            for row, c, repeat, run in frame.select(
                "row", "cell", "repeat_index", "run_index"
            ).iter_rows():
                score[row, 0] += base[repeat]
                if noise == 0 and schemes[c] == "none" and run > 0:
                    score[row] = score[row - run]
            scheme = pl.col("cell").replace_strict(dict(enumerate(schemes)))
            frame = frame.with_columns(
                identical=(scheme == "none") & (pl.col("run_index") > 0) & (noise == 0),
                cell=pl.col("cell") + cell,
            )
            group = analyze_group(
                predictions(score, y_true, frame, dataset=dataset, classifier=classifier),
                Options(resamples=4),
            )
            descriptors = pl.DataFrame(
                {
                    "cell": pl.Series(cells, dtype=pl.UInt32),
                    "dataset": dataset,
                    "classifier": classifier,
                    "train_fraction": 1.0,
                    "perturb_continuous": list(schemes),
                    "perturb_categorical": "none",
                    "augment": "none",
                    "perturb_hparams": "none",
                    "ensembling": "none",
                    "test_augment": "none",
                    "perturb_labels": "none",
                    "vary": "init+batch",
                    "hparams": "default",
                }
            )
            parts.append(joined(compute([group], scheduler="synchronous")[0], descriptors))
            cell += len(schemes)
    return Tables(
        *(
            pl.concat([getattr(part, name) for part in parts])
            for name in ("runs", "pairs", "repeats", "cells")
        )
    )


def joined(tables: Tables, descriptors: pl.DataFrame) -> Tables:
    return Tables(
        *(
            getattr(tables, name).join(descriptors, on="cell", how="left")
            for name in ("runs", "pairs", "repeats", "cells")
        )
    )


def curves_of(values: NDArray[np.float64], runs_of_repeat: list[int]) -> pl.DataFrame:
    """Curves as `analyze` keeps them, from (run, epoch) of each repeat."""
    rows: list[dict[str, Any]] = []
    for repeat, n_runs in enumerate(runs_of_repeat):
        own = values[repeat][:n_runs]
        rows += [
            {
                "dataset": DATASET,
                "classifier": "mlp",
                "cell": 0,
                "repeat_index": repeat,
                "trained_epoch": epoch + 1,
                "n_runs": n_runs,
                **{
                    f"{name}{ending}": float(value)
                    for name in ("test_accuracy", "test_loss", "train_accuracy", "train_loss")
                    for ending, value in {
                        "": own[:, epoch].mean(),
                        "_std": own[:, epoch].std(ddof=1) if n_runs > 1 else float("nan"),
                        "_min": own[:, epoch].min(),
                        "_max": own[:, epoch].max(),
                    }.items()
                },
            }
            for epoch in range(own.shape[1])
        ]
    return pl.DataFrame(rows).fill_nan(None)


ENSEMBLES = pl.DataFrame(
    {
        "dataset": ["vehicle", "vehicle", DATASET],
        "classifier": ["mlp", "mlp", "xgb"],
        "size": [3, 5, 3],
        "cell": [0, 0, 4],
        "draws": 40,
        "models": [12, 12, 8],
        "close": [0.5, 1.0, 0.8],
        "accepted": [0.1, 0.2, 0.0],
        "accuracy": [0.8, 0.85, 0.7],
        "accuracy_std": [0.02, 0.01, 0.03],
        "n_side": [4000, 4000, 71],
        "delta": [0.0364, 0.0364, 0.2809],
    }
)


def looks_of(plot: Plot) -> list[tuple[object, ...]]:
    """Colours and markers in the legend of a figure whose series are levels of an axis."""
    found: list[tuple[object, ...]] = []
    for key in plot.figure.legends:
        if not key.get_title().get_text():
            continue
        for handle in key.legend_handles:
            if isinstance(handle, PathCollection):
                (path,) = handle.get_paths()
                found.append((to_hex(handle.get_facecolor()[0]), path.vertices.tobytes()))
        found += [
            (to_hex(line.get_color()), line.get_marker())
            for line in key.findobj(Line2D)
            if line.get_marker() in MARKERS  # not the caps of bars
        ]
    return found
