"""Training and test rows as models see them."""

from __future__ import annotations

from typing import Any

from manyseed.jobs.run import TrainingSet
from manyseed.jobs.training.encode import Encoder, dense_encoder, pixel_encoder


def dense(data: TrainingSet) -> tuple[Any, Any]:
    """Encode the training and the test rows by `dense_encoder`."""
    return _encoded(dense_encoder(data), data)


def pixels(data: TrainingSet) -> tuple[Any, Any]:
    """Encode the training and the test rows by `pixel_encoder`."""
    return _encoded(pixel_encoder(data), data)


def _encoded(encoder: Encoder, data: TrainingSet) -> tuple[Any, Any]:
    return encoder(data.X), encoder(data.X_test)
