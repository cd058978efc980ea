"""Encoding a run's prediction as the bytes that journals and arrays hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from manyseed.analysis.metrics.scores import true_margin
from manyseed.orchestrator.store.journals.records import RowBytes
from manyseed.orchestrator.store.layout.arrays import CURVES
from manyseed.orchestrator.store.layout.optional import DECLARED, PARAMETERS
from manyseed.orchestrator.store.layout.schema import GroupSpec

if TYPE_CHECKING:
    from manyseed.jobs.run import Prediction


def encode_row(
    spec: GroupSpec, prediction: Prediction, y_true: NDArray[np.integer[Any]]
) -> RowBytes:
    """Reduce a prediction to the arrays that its group keeps.

    Parameters
    ----------
    spec : GroupSpec
    prediction : Prediction
    y_true : integer array (sample,)
        True classes of the run's test set; only used for the true-class margin.

    Raises
    ------
    ValueError
        If shapes or classes do not fit the group.
    """
    grid = (len(spec.epochs), spec.samples)
    classes = () if spec.n_classes == 2 else (spec.n_classes,)
    if prediction.label.shape != grid or prediction.scores.shape != (*grid, *classes):
        raise ValueError(
            f"{spec.path} holds labels {grid} and scores {(*grid, *classes)}, got "
            f"{prediction.label.shape} and {prediction.scores.shape}"
        )
    if int(prediction.label.max()) >= spec.n_classes:
        raise ValueError(f"label {prediction.label.max()} of {spec.n_classes} classes")
    label = _bytes(prediction.label, spec.array("label").dtype)
    optional = (_curves(spec, prediction) if spec.curves else b"") + _optional(spec, prediction)
    if spec.scores == "none":
        return RowBytes(label, optional=optional)
    if spec.scores == "all":
        scores = _all_scores(prediction.scores, spec)
    else:
        scores = prediction.scores if classes == () else true_margin(prediction.scores, y_true)
    values, clipped = _rounded(scores, spec.dtype)
    confidence = b""
    if spec.has_confidence:
        if prediction.confidence.shape != grid:
            raise ValueError(f"confidence has shape {prediction.confidence.shape}, not {grid}")
        confidence = _bytes(prediction.confidence, spec.dtype)
    return RowBytes(label, _bytes(values, spec.dtype), confidence, clipped, optional)


def _all_scores(scores: NDArray[np.float32], spec: GroupSpec) -> NDArray[np.float32]:
    if spec.n_classes == 2:
        return np.stack([-scores / 2, scores / 2], axis=-1)
    if spec.dtype == "float16" and spec.probability == "softmax":
        # an offset common to all classes costs digits, but does not change the softmax
        centred: NDArray[np.float32] = scores - scores.mean(axis=-1, keepdims=True)
        return centred
    return scores


def _curves(spec: GroupSpec, prediction: Prediction) -> bytes:
    absent = np.full(spec.epochs[-1], np.nan, dtype=np.float32)
    curves = [(prediction.curves or {}).get(name, absent) for name in CURVES]
    if any(curve.shape != absent.shape for curve in curves):
        shapes = ", ".join(str(curve.shape) for curve in curves)
        raise ValueError(f"{spec.path} holds curves of {len(absent)} epochs, got {shapes}")
    return _bytes(np.stack(curves), "float32")


def _optional(spec: GroupSpec, prediction: Prediction) -> bytes:
    measured, encoded = prediction.measured or {}, []
    for array in spec.optional:
        values = measured.get(array.name)
        if values is None and array.name == PARAMETERS.name and spec.parameters_where:
            values = np.empty(0)  # the run's model is not kept
        if DECLARED[array.name].pads and values is not None and values.ndim == 1:
            n_absent = max(0, array.shape[0] - len(values))
            values = np.pad(values, (0, n_absent), constant_values=np.nan)
        if values is None or values.shape != array.shape:
            got = "nothing" if values is None else f"{values.shape}"
            raise ValueError(f"{spec.path} holds {array.name} {array.shape}, got {got}")
        encoded.append(_bytes(values, array.dtype))
    return b"".join(encoded)


def _rounded(values: NDArray[np.float32], dtype: str) -> tuple[NDArray[np.float32], int]:
    if dtype == "float32":
        return values, 0
    largest = float(np.finfo(np.float16).max)
    return np.clip(values, -largest, largest), int(np.count_nonzero(np.abs(values) > largest))


def _bytes(values: NDArray[Any], dtype: str) -> bytes:
    return np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<")).tobytes()
