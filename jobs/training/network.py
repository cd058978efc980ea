"""The fit of a network once it is built: the same for all of them."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from jobs.run import Prediction, TrainingSet
from jobs.training.device import torch_device
from jobs.training.handling import Handling
from jobs.training.loop import Plan, owned, train
from jobs.training.prediction import logit_scores, prediction


def fit_network(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    X: NDArray[Any],
    X_test: NDArray[Any],
    data: TrainingSet,
    plan: Plan,
    order: np.random.Generator,
    handling: Handling,
    *,
    started: float,
    masks: torch.Generator | None = None,
) -> Prediction:
    """Train an initialised model on encoded rows and predict the test rows.

    Parameters
    ----------
    X, X_test : arrays (row, ...)
        What the model takes, as float32.
    data : TrainingSet
        Gives the classes.

    Other parameters are those of `jobs.training.loop.train`. The prediction's `fit_seconds` are
    those of training alone.
    """
    place = torch_device(handling.device)
    rows = owned(X, place, torch.float32), owned(data.y, place, torch.int64)
    rows_test = owned(X_test, place, torch.float32)
    y_test = None
    if handling.curves and data.y_test is not None:
        y_test = owned(data.y_test, place, torch.int64)
    built = perf_counter() - started
    trained = train(
        model,
        optimizer,
        *rows,
        rows_test,
        plan,
        order,
        masks=masks,
        y_test=y_test,
        checkpoint=handling.checkpoint,
    )
    scores, seconds = logit_scores(trained.logits), built + trained.seconds
    return prediction(scores, "softmax", seconds, trained.curves)
