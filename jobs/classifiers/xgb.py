"""Gradient-boosted trees (``xgb``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.classifiers.record import Classifier, ClassifierInfo
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.hparams.kinds import Continuous, Ordinal
from manyseed.jobs.run import MachineError, seed31
from manyseed.jobs.training.handling import Alive, FitInput, Fitted, torch_device

if TYPE_CHECKING:
    import xgboost

_COARSE = 0.25
"""Columns are shifted if rounding to float32 moves values by more of their standard deviation."""
_LARGEST = float(np.finfo(np.float32).max)

_SAMPLING = ("colsample_bylevel", "colsample_bynode", "colsample_bytree", "subsample")


def fit(given: FitInput) -> Fitted:
    """Boost trees on raw values (see `jobs.classifiers.fit`).

    XGBoost itself handles missing values and categorical features. A class without training rows is
    boosted on negative examples only. It computes in float32: columns that this would make coarse,
    or cannot hold, are shifted and scaled first, which leaves the order of their values.
    """
    import xgboost

    settings, hparams, data, generators, handling = given
    if handling.device == "gpu":
        if not xgboost.build_info().get("USE_CUDA"):
            raise MachineError(
                "this XGBoost was built without CUDA: pip uninstall xgboost-cpu, then pip install "
                "xgboost"
            )
        torch_device("gpu")  # without a GPU, XGBoost would silently train on the CPU
    started = perf_counter()
    binary = data.n_classes == 2
    parameters = {
        **hparams,
        "objective": "binary:logistic" if binary else "multi:softprob",
        "tree_method": "hist",
        "device": "cuda" if handling.device == "gpu" else "cpu",
        "nthread": 1,
        "verbosity": 0,
        "seed": seed31(generators.batch) if _samples(hparams) else 0,
        **({} if binary else {"num_class": data.n_classes}),
    }
    to_single = _to_single(data.X, data.cardinality)
    train = _matrix(to_single(data.X), data.cardinality, data.y)
    # What xgboost.train does, without looking for callbacks and metrics after each round.
    booster = xgboost.Booster(parameters, [train])
    for round_ in range(settings["rounds"]):
        booster.update(train, round_)
    seconds = perf_counter() - started

    def predict(rows: NDArray[np.float64]) -> NDArray[np.float32]:
        # A new matrix, even for training rows: the training matrix has cached sums.
        matrix = _matrix(to_single(rows), data.cardinality)
        return np.asarray(booster.predict(matrix, output_margin=True))

    alive = Alive(data.X, predict, lambda raw: raw, model=booster)
    return Fitted(predict(data.X_test)[np.newaxis], seconds, alive=alive)


def _to_single(
    X: NDArray[Any], cardinality: NDArray[np.int32]
) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return a function that prepares rows for float32, by what rounding to it would do to `X`."""
    if X.dtype != np.float64 or not len(X):
        return lambda rows: rows
    coarse = []
    for j in np.flatnonzero(cardinality == 0).tolist():
        known = X[:, j][~np.isnan(X[:, j])]
        if not known.size:
            continue
        # halves, so that neither the middle nor the width overflows
        low, high = float(known.min()) / 2, float(known.max()) / 2
        middle, half = low + high, high - low
        if not half:
            continue
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            moved = float(np.abs(known.astype(np.float32) - known).max())
        if moved > 0 and moved / half > _COARSE * float(((known - middle) / half).std()):
            coarse.append((j, middle, half))

    def to_single(rows: NDArray[Any]) -> NDArray[Any]:
        if coarse:
            rows = rows.astype(np.float64)
            for j, middle, half in coarse:
                rows[:, j] = (rows[:, j] - middle) / half
        if np.nanmax(np.abs(rows), initial=0.0) > _LARGEST:
            # XGBoost refuses infinite values, which must not become large ones
            rows = np.where(np.isinf(rows), rows, np.clip(rows, -_LARGEST, _LARGEST))
        return rows

    return to_single


def _matrix(
    X: NDArray[np.float64], cardinality: NDArray[np.int32], y: NDArray[np.uint16] | None = None
) -> xgboost.DMatrix:
    import xgboost

    # XGBoost copies the kinds in each round; without any, all features are continuous.
    kinds = ["c" if labels else "q" for labels in cardinality] if cardinality.any() else None
    return xgboost.DMatrix(X, label=y, feature_types=kinds, enable_categorical=True, nthread=1)


def _samples(hparams: Mapping[str, Any]) -> bool:
    """Return whether rows or columns are sampled; nothing else in XGBoost is random."""
    return any(float(hparams[name]) < 1 for name in _SAMPLING)


def _core_seconds(dataset: DatasetInfo, info: ClassifierInfo, rows: float) -> float:
    # trees have more nodes with more rows, and fewer for a rare class
    trees = float(info.canonical["rounds"]) * math.pow(dataset.binary_problems, 0.7)
    return 2.7e-4 * trees * dataset.n_features * math.pow(rows / 10_000, 0.6)


XGB = Classifier(
    name="xgb",
    space=(
        Continuous("eta", 1e-3, 1.0, 0.3, log=True),
        Continuous("lambda", 1e-10, 1.0, 1.0, log=True),
        Continuous("alpha", 1e-10, 1.0, 1e-10, log=True),
        Continuous("gamma", 0.1, 1.0, 0.1, log=True),
        Continuous("colsample_bylevel", 0.1, 1.0, 1.0),
        Continuous("colsample_bynode", 0.1, 1.0, 1.0),
        Continuous("colsample_bytree", 0.1, 1.0, 1.0),
        Ordinal("max_depth", range(1, 21), 6),
        Ordinal("max_delta_step", range(11), 0),
        Continuous("min_child_weight", 0.1, 20.0, 1.0, log=True),
        Continuous("subsample", 0.01, 1.0, 1.0),
    ),
    probability="softmax",
    streams=frozenset({"batch"}),
    draws=_samples,
    settings=lambda *_: {"rounds": 100},
    library={"alpha": 0.0, "gamma": 0.0},  # outside the study's ranges
    core_seconds=_core_seconds,
    fit=fit,
    packages=("xgboost",),
    imports=("xgboost",),
)
