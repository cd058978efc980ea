"""Logistic regression and linear SVM by stochastic gradient descent (``lr-sgd``, ``svm-sgd``)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.classifiers.record import Classifier, Options
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.hparams.kinds import Categorical, Continuous, When
from manyseed.jobs.run import TrainingSet, seed31
from manyseed.jobs.training.encode import Encoder, dense_encoder
from manyseed.jobs.training.handling import (
    Alive,
    Device,
    FitInput,
    Fitted,
    State,
    StateArray,
)
from manyseed.jobs.training.network import Named, Shape

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]


class LinearModels:
    """The `fit` of linear models."""

    def __call__(self, given: FitInput) -> Fitted:
        """Fit scikit-learn's SGDClassifier (see `jobs.classifiers.fit`)."""
        from sklearn import config_context
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import SGDClassifier

        settings, hparams, data, generators, _ = given
        started = perf_counter()
        if "dense" not in data.shared:
            encoder = dense_encoder(data)
            data.shared["dense"] = encoder, encoder(data.X), encoder(data.X_test)
        encoder, X, X_test = data.shared["dense"]
        model = SGDClassifier(
            loss=hparams.get("loss", "log_loss"),
            penalty=None if hparams["penalty"] == "none" else hparams["penalty"],
            alpha=hparams["alpha"],
            l1_ratio=hparams["l1_ratio"],
            eta0=hparams["eta0"],
            average=hparams["average"],
            learning_rate=settings["schedule"],
            max_iter=settings["max_iter"],
            tol=settings["tol"],
            random_state=seed31(generators.batch),
        )
        # The last bits of a product depend on the number of BLAS threads.
        with (
            _threads().limit(limits=1, user_api="blas"),
            warnings.catch_warnings(),
            # Hparams are checked when a sweep is planned.
            config_context(skip_parameter_validation=True),
        ):
            # Training may end at max_iter epochs or earlier; both are intended.
            warnings.simplefilter("ignore", ConvergenceWarning)
            rows, labels, weight = _with_every_class(X, data.y, data.n_classes)
            model.fit(rows, labels, sample_weight=weight)
            seconds = perf_counter() - started
        alive = _alive(model, encoder, X)
        return Fitted(alive.predict(X_test)[np.newaxis], seconds, alive=alive)

    def revive(
        self, settings: Named, hparams: Named, data: TrainingSet, state: State, device: Device
    ) -> Alive:
        """Rebuild a fitted model from its arrays (`jobs.parameters.OfArrays`)."""
        del settings, hparams, device
        from sklearn.linear_model import SGDClassifier

        model = SGDClassifier()
        model.coef_, model.intercept_ = state["coef"], state["intercept"]
        model.classes_ = np.arange(data.n_classes)
        model.n_features_in_ = model.coef_.shape[1]
        return _alive(model, dense_encoder(data), None)

    def arrays(
        self, shape: Shape, n_classes: int, settings: Named, hparams: Named
    ) -> tuple[StateArray, ...]:
        """Return the arrays that a model will have (`jobs.parameters.OfArrays`)."""
        del settings, hparams
        rows = 1 if n_classes == 2 else n_classes
        coef = StateArray("coef", "float64", (rows, *shape))
        return coef, StateArray("intercept", "float64", (rows,))


def _alive(model: Any, encoder: Encoder, X: NDArray[np.float64] | None) -> Alive:
    def predict(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        # as decision_function does, whose checks take longer than a small test set
        with _threads().limit(limits=1, user_api="blas"):
            scores: NDArray[np.float64] = rows @ model.coef_.T + model.intercept_
        return scores.ravel() if scores.shape[1] == 1 else scores

    return Alive(
        X,
        predict,
        encoder,
        n_continuous=int(encoder.continuous.sum()),
        state=lambda: {"coef": model.coef_, "intercept": model.intercept_},
    )


@cache
def _threads() -> ThreadpoolController:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()  # scans the loaded libraries; once, after scikit-learn's import


def _with_every_class(
    X: NDArray[np.float64], y: NDArray[np.uint16], n_classes: int
) -> tuple[NDArray[np.float64], NDArray[np.uint16], NDArray[np.float64] | None]:
    """Return X, y and sample weights with an added row of weight 0 for each class that `y` lacks.

    Scikit-learn then trains that class against the rest like any other, on negative examples only.
    """
    absent = np.flatnonzero(np.bincount(y, minlength=n_classes) == 0).astype(y.dtype)
    if not len(absent):
        return X, y, None
    weight = np.concatenate([np.ones(len(X)), np.zeros(len(absent))])
    return np.vstack([X, np.zeros((len(absent), X.shape[1]))]), np.append(y, absent), weight


def _settings(_: DatasetInfo, options: Options) -> Mapping[str, Any]:
    # scikit-learn's default schedule does not use eta0
    schedule = "optimal" if options.get("defaults") == "library" else "adaptive"
    return {"schedule": schedule, "max_iter": 1000, "tol": 1e-3}


def _values(dataset: DatasetInfo, rows: float) -> float:
    """Return how many values a fit visits; a step's overhead counts as four features."""
    # beyond two classes there is a model per class; those with few positive rows converge sooner
    return rows * (dataset.n_features + 4) * math.pow(dataset.binary_problems, 0.9)


LR_SGD = Classifier(
    name="lr-sgd",
    space=(
        Continuous(
            "alpha", 1e-7, 1e-1, 1e-4, log=True, when=When("penalty", ("l1", "l2", "elasticnet"))
        ),
        Continuous("l1_ratio", 0.0, 1.0, 0.15, when=When("penalty", ("elasticnet",))),
        Continuous("eta0", 1e-6, 1.0, 1e-3, log=True),
        Categorical("penalty", ("l1", "l2", "elasticnet", "none"), "l2"),
        Categorical("average", (False, True), False),
    ),
    probability="ovr",
    streams=frozenset({"batch"}),
    settings=_settings,
    devices=("cpu",),
    library={},
    core_seconds=lambda dataset, _, rows: 5.5e-7 * _values(dataset, rows),
    fit=LinearModels(),
    imports=("sklearn.linear_model",),
)

SVM_SGD = replace(
    LR_SGD,
    name="svm-sgd",
    space=(*LR_SGD.space, Categorical("loss", ("hinge", "modified_huber"), "hinge")),
    probability="none",
    core_seconds=lambda dataset, _, rows: 3.5e-7 * _values(dataset, rows),
)
