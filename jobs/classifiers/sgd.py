"""Logistic regression and linear SVM by stochastic gradient descent (``lr-sgd``, ``svm-sgd``)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import SGDClassifier
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from jobs.run import Generators, Prediction, TrainingSet
from jobs.streams import seed31
from jobs.training.encode import dense
from jobs.training.handling import Handling
from jobs.training.prediction import prediction

_BLAS = ThreadpoolController()


def fit(
    canonical: Mapping[str, Any],
    hparams: Mapping[str, Any],
    data: TrainingSet,
    generators: Generators,
    handling: Handling,
) -> Prediction:
    """Fit scikit-learn's SGDClassifier; see `jobs.classifiers.fit`."""
    started = perf_counter()
    X, X_test = dense(data)
    logistic = canonical["name"] == "lr-sgd"
    model = SGDClassifier(
        loss="log_loss" if logistic else hparams["loss"],
        penalty=None if hparams["penalty"] == "none" else hparams["penalty"],
        alpha=hparams["alpha"],
        l1_ratio=hparams["l1_ratio"],
        eta0=hparams["eta0"],
        average=hparams["average"],
        learning_rate=canonical["schedule"],
        max_iter=canonical["max_iter"],
        tol=canonical["tol"],
        random_state=seed31(generators.batch),
    )
    # The last bits of a product depend on BLAS's threads.
    with _BLAS.limit(limits=1, user_api="blas"), warnings.catch_warnings():
        # Training ends after max_iter epochs or before: both are what was asked for.
        warnings.simplefilter("ignore", ConvergenceWarning)
        rows, labels, weight = _with_every_class(X, data.y, data.n_classes)
        model.fit(rows, labels, sample_weight=weight)
        seconds = perf_counter() - started
        scores = model.decision_function(X_test)
    return prediction(scores[np.newaxis], "ovr" if logistic else "none", seconds)


def _with_every_class(
    X: NDArray[np.float64], y: NDArray[np.uint16], n_classes: int
) -> tuple[NDArray[np.float64], NDArray[np.uint16], NDArray[np.float64] | None]:
    """Return X, y and sample weights with a row of weight 0 for each class that `y` lacks.

    So scikit-learn trains such a class against the rest as it does the others: from negative
    examples alone.
    """
    absent = np.setdiff1d(np.arange(n_classes, dtype=y.dtype), y)
    if not len(absent):
        return X, y, None
    weight = np.concatenate([np.ones(len(X)), np.zeros(len(absent))])
    return np.vstack([X, np.zeros((len(absent), X.shape[1]))]), np.append(y, absent), weight
