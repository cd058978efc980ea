"""Resolve what each trained model is asked, for a dataset and a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manyseed.jobs.checks import Refused, integer, number, values_of
from manyseed.jobs.classifiers.record import ClassifierInfo
from manyseed.jobs.classifiers.registry import TRANSFORM_SECONDS
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.images import MOST, read
from manyseed.jobs.response import (
    DBI,
    DBI_BATCH,
    DBI_BATCHES,
    OPTIONS,
    PAIRED,
    SPECTRA,
    ResponseDesign,
)
from manyseed.jobs.training.network import Network


def canonical(transform: str) -> str:
    """Return the normal form of a transform: ``rotate:90.0`` is ``rotate:90``."""
    if transform in PAIRED:
        return transform
    if (name := transform.partition(":")[0]) in PAIRED:
        end = "below" if name == "inter" else "at"
        reason = f"{name} takes no number: its magnitudes end {end} 0.5"
        raise Refused("transforms", transform, reason)
    return read("transforms", transform, tuple(MOST), PAIRED).text


def resolve(
    options: Mapping[str, Any],
    dataset: DatasetInfo,
    fit: object,
    names: tuple[str, str],
    *,
    is_raw: bool = False,
) -> ResponseDesign:
    """Return what the models of a classifier on a dataset are asked.

    `options`: what the user wrote, of `OPTIONS`; transforms is required. `fit`: the `fit` of the
    classifier's record. `names`: names of the dataset and the classifier, for messages. `is_raw`:
    whether the classifier takes raw rows, as XGBoost does: an interpolated code is not a label.
    """
    asked = [canonical(each) for each in options["transforms"]]
    values = values_of(OPTIONS, {**options, "transforms": asked})
    transforms, layers = values.pop("transforms"), values.pop("layers")
    for transform in transforms:
        _require_suited(transform, dataset, fit, names, is_raw=is_raw or _is_xgb(fit))
    is_cut = isinstance(fit, Network) and fit.first_block is not None
    if 1 in layers and not is_cut:
        if "layers" in options:
            reason = f"layer 1 needs a network; {names[1]} answers at layer 0"
            raise Refused("layers", options["layers"], reason)
        layers = [0]
    responses = [(t, n) for t in transforms for n in layers if t in PAIRED or n == 0]
    if not responses:
        raise Refused("layers", layers, "at layer 1 there are only intra and inter")
    if values[DBI] and not is_cut:
        reason = f"dbi is of a network's first block; {names[1]} has no hidden layer"
        raise Refused(DBI, values[DBI], reason)
    values["rows"] = _rows(options.get("rows", OPTIONS["rows"].default))
    return ResponseDesign(tuple(responses), **values)


def resolve_spectra(
    points: int, dataset: DatasetInfo, fit: object, names: tuple[str, str]
) -> ResponseDesign:
    """Return the same for spectra of Jacobians at up to `points` test points."""
    if not isinstance(fit, Network):
        raise Refused(SPECTRA, points, f"spectra need a network, and {names[1]} is none")
    if not dataset.n_continuous:
        reason = f"derivatives are by continuous features, and {names[0]} has none"
        raise Refused(SPECTRA, points, reason)
    return ResponseDesign((), spectra=points)


def _rows(value: object) -> int | float:
    if isinstance(value, float):
        return number("rows", value, above=0, most=1, what="a share")
    return integer("rows", value, least=2)


def _require_suited(
    transform: str, dataset: DatasetInfo, fit: object, names: tuple[str, str], *, is_raw: bool
) -> None:
    if transform in PAIRED:
        if not dataset.n_continuous or (is_raw and dataset.n_categorical):
            which = "continuous features" + (" only" if dataset.n_continuous else "")
            raise Refused("transforms", transform, f"{transform} on {names[1]} needs {which}")
        return
    name = transform.partition(":")[0]
    if dataset.image is None:
        reason = f"{transform} needs images, and {names[0]} has none"
        raise Refused("transforms", transform, reason)
    if name == "colour" and dataset.image[2] not in (1, 3):
        reason = f"colour needs images of 1 or 3 channels, and these have {dataset.image[2]}"
        raise Refused("transforms", transform, reason)
    if isinstance(fit, Network) and fit.encoder is None:
        reason = f"{names[1]} reads features that are computed once for each image as it is"
        raise Refused("transforms", transform, reason)


def _is_xgb(fit: object) -> bool:
    return getattr(fit, "__module__", "").endswith(".xgb")


_OF_TRAINING = 1 / 3  # cost of predicting a row, relative to training on it for one epoch

_ROW_SECONDS = 1e-5
"""Seconds per row and binary problem of predictions by a classifier without epochs."""


def response_seconds(
    dataset: DatasetInfo, info: ClassifierInfo, asked: ResponseDesign, rows: float
) -> float:
    """Estimate the seconds of measuring a model trained on so many rows, on one core.

    Counts predictions of magnitudes × rows × draws (half as many for pairs), the transforms of
    images, one prediction of all training and test rows, and the rows of the Davies–Bouldin index.

    `rows`: training rows of the model.
    """
    each = _ROW_SECONDS * dataset.binary_problems
    if info.epochs is not None:
        each = info.record.core_seconds(dataset, info, rows) / (info.epochs * rows) * _OF_TRAINING
    sampled = asked.rows * rows if isinstance(asked.rows, float) else min(asked.rows, rows)
    seconds = (rows + dataset.n_test) * each
    if asked.dbi:
        seconds += min(rows, DBI_BATCHES * DBI_BATCH) * each
    for transform, _ in asked.responses:
        predicted = len(asked.grid(transform)) * sampled * asked.draws
        if transform in PAIRED:
            seconds += predicted / 2 * each
        else:
            transforming = dataset.n_features * TRANSFORM_SECONDS[transform.partition(":")[0]]
            shifted = sampled + dataset.n_test
            seconds += (predicted + shifted) * (each + transforming)
    return seconds
