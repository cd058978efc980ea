"""Gradient-boosted trees by XGBoost's histogram method (``xgb``)."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobs.classifiers.registry import consumes
from jobs.run import Generators, MachineError, Prediction, TrainingSet
from jobs.streams import seed31
from jobs.training.device import torch_device
from jobs.training.handling import Handling
from jobs.training.prediction import prediction

try:
    import xgboost
except ImportError as error:
    raise MachineError(
        "xgb needs XGBoost: install manyseed[cpu], or manyseed[gpu] on machines with GPUs"
    ) from error


def fit(
    canonical: Mapping[str, Any],
    hparams: Mapping[str, Any],
    data: TrainingSet,
    generators: Generators,
    handling: Handling,
) -> Prediction:
    """Boost trees on raw values; see `jobs.classifiers.fit`.

    Missing values and categorical features are XGBoost's own. A class without training
    rows is boosted on negative examples alone.
    """
    if handling.device == "gpu":
        if not xgboost.build_info().get("USE_CUDA"):
            raise MachineError("this XGBoost was built without CUDA: install manyseed[gpu]")
        torch_device("gpu")  # XGBoost itself goes on without a word on a CPU
    started = perf_counter()
    binary = data.n_classes == 2
    parameters = {
        **hparams,
        "objective": "binary:logistic" if binary else "multi:softprob",
        "tree_method": "hist",
        "device": "cuda" if handling.device == "gpu" else "cpu",
        "nthread": 1,
        "verbosity": 0,
        "seed": seed31(generators.batch) if consumes(canonical, hparams) else 0,
        **({} if binary else {"num_class": data.n_classes}),
    }
    train = _matrix(data.X, data.cardinality, data.y)
    booster = xgboost.train(parameters, train, num_boost_round=canonical["rounds"])
    seconds = perf_counter() - started
    scores = booster.predict(_matrix(data.X_test, data.cardinality), output_margin=True)
    return prediction(scores[np.newaxis], "softmax", seconds)


def _matrix(
    X: NDArray[np.float64], cardinality: NDArray[np.int32], y: NDArray[np.uint16] | None = None
) -> xgboost.DMatrix:
    kinds = ["c" if labels else "q" for labels in cardinality]
    return xgboost.DMatrix(X, label=y, feature_types=kinds, enable_categorical=True, nthread=1)
