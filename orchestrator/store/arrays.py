"""The arrays of a group: names, dimensions, dtypes and descriptive attributes."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from manyseed.orchestrator.store.coordinates import (
    DECLARED,
    NAN,
    PARAMETERS,
    Coordinate,
    OptionalArray,
)

MISSING, DONE, COPY, PADDING = 0, 1, 2, 255
STATUSES = {"missing": MISSING, "done": DONE, "copy": COPY, "padding": PADDING}
FLAGS = ("perturb_continuous", "perturb_categorical", "perturb_hparams", "hparams", "vary")
SEEN, NOISY = "~test_augment", "~perturb_labels"
"""Suffixes of `schema.GroupSpec.ensembling`, in this order, for cells whose test images are
transformed and for those with noise on training labels."""
LATER_FLAGS = {"augment": "", "test_augment": SEEN, "perturb_labels": NOISY}
"""Flags of groups with `schema.GroupSpec.ensembling`, if it has this suffix."""
NO_RECIPE = 65535
CURVES = {
    "train_loss": "mean cross-entropy of the training batches of an epoch, as they were trained",
    "train_accuracy": "share of right predictions of the training batches, as they were trained",
    "test_loss": "mean cross-entropy of the test set after an epoch",
    "test_accuracy": "share of right predictions of the test set after an epoch",
}
"""Learning curves, in the order in which they are stored."""


def method_of(ensembling: str) -> str:
    """Return the name of the method in `schema.GroupSpec.ensembling`; empty if it is."""
    return ensembling.removesuffix(NOISY).removesuffix(SEEN)


RUN, GRID = ("run",), ("run", "epoch", "sample")


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """One array of a group."""

    name: str
    dtype: str
    dims: tuple[str, ...]
    fill: float
    role: Literal["prediction", "record", "split", "coordinate"]
    """``prediction`` and ``record`` are published by shard, ``split`` is written by workers,
    ``coordinate`` only by the planner."""
    compressed: bool
    attributes: Mapping[str, Any]

    @property
    def fill_value(self) -> float | int:
        """The value of elements that were never written, int or float like the dtype."""
        return self.fill if self.dtype.startswith("float") else int(self.fill)


@dataclass(frozen=True, slots=True)
class ArrayFields:
    """The fields of `schema.GroupSpec` that decide which arrays a group has."""

    n_classes: int
    scores: str
    dtype: str
    probability: str
    has_clipped: bool
    curves: bool
    optional: tuple[OptionalArray, ...]
    coordinates: tuple[Coordinate, ...]
    flags: tuple[str, ...]
    parameters: str
    parameters_where: str


@functools.lru_cache(maxsize=1024)
def arrays_of(kept: ArrayFields) -> tuple[ArraySpec, ...]:
    """Return all arrays, published ones in the order in which their files are replaced."""
    return (*_predictions(kept), *_records(kept), *_splits(kept), *_coordinates(kept))


def itemsize(dtype: str) -> int:
    """Return the bytes of one value of a dtype."""
    return {"uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "int64": 8, "float64": 8}.get(
        dtype, 4
    )


def label_dtype(n_classes: int) -> str:
    """Return the dtype of labels."""
    return "uint8" if n_classes <= 256 else "uint16"


def _predictions(kept: ArrayFields) -> list[ArraySpec]:
    def array(name: str, dtype: str, dims: tuple[str, ...], fill: float, **attributes: str) -> None:
        compressed = name == "label" or (name == PARAMETERS.name and bool(kept.parameters_where))
        arrays.append(ArraySpec(name, dtype, dims, fill, "prediction", compressed, attributes))

    # an offset does not change softmax probabilities, but it changes one-vs-rest sigmoids
    centred = kept.dtype == "float16" and kept.probability == "softmax"
    arrays: list[ArraySpec] = []
    array(
        "label",
        label_dtype(kept.n_classes),
        GRID,
        0,
        long_name="predicted class",
        units="1",
        comment="Index into class_names, taken before any rounding of scores; of two classes, a "
        "tie predicts class 1. Only rows whose status is 1 or 2 hold predictions.",
    )
    if kept.scores == "all":
        array(
            "score",
            kept.dtype,
            (*GRID, "class"),
            math.nan,
            long_name="score of each class",
            units="1",
            comment=(
                "Minus and plus half the logit gap, class 1 minus class 0."
                if kept.n_classes == 2
                else "What the classifier yields for each class before normalisation."
            )
            + (" Centred over classes before rounding." if centred else ""),
        )
    elif kept.scores == "margin" and kept.n_classes == 2:
        array(
            "margin",
            kept.dtype,
            GRID,
            math.nan,
            long_name="logit gap",
            units="1",
            comment="Class 1 minus class 0; at 0 and above class 1 is predicted. "
            + (
                "The classifier has no probabilities."
                if kept.probability == "none"
                else "Confidence of the predicted class is the sigmoid of its absolute value."
            ),
        )
    elif kept.scores == "margin":
        array(
            "margin",
            kept.dtype,
            GRID,
            math.nan,
            long_name="true-class margin",
            units="1",
            comment="Score of the true class minus the largest other.",
        )
        array(
            "confidence",
            kept.dtype,
            GRID,
            math.nan,
            long_name="probability of the predicted class",
            units="1",
            comment="NaN where the classifier has no probabilities.",
        )
    for name, meaning in CURVES.items() if kept.curves else ():
        array(
            name,
            "float32",
            ("run", "trained_epoch"),
            math.nan,
            long_name=meaning,
            units="nat" if name.endswith("loss") else "1",
            comment="NaN where the training recorded none.",
        )
    for optional in kept.optional:
        declared = DECLARED[optional.name]
        array(
            optional.name,
            optional.dtype,
            (*RUN, *optional.dims),
            math.nan if optional.fill == NAN else optional.fill,
            long_name=declared.long_name,
            units=declared.units,
            comment=declared.comment,
            **(_parameter_attributes(kept) if optional.name == PARAMETERS.name else {}),
        )
    return arrays


def _parameter_attributes(kept: ArrayFields) -> dict[str, str]:
    condition = {"condition": kept.parameters_where} if kept.parameters_where else {}
    return {"layouts": kept.parameters, **condition}


def _records(kept: ArrayFields) -> list[ArraySpec]:
    def array(name: str, dtype: str, fill: float, **attributes: Any) -> None:
        arrays.append(ArraySpec(name, dtype, RUN, fill, "record", True, attributes))

    arrays: list[ArraySpec] = []
    array(
        "fit_seconds",
        "float32",
        math.nan,
        long_name="wall time of fitting",
        units="s",
        comment="Without prediction; NaN for copies.",
    )
    array(
        "recipe",
        "uint16",
        NO_RECIPE,
        long_name="how the run was made",
        units="1",
        comment=f"Index into the sweep's recipes; {NO_RECIPE} where there is none.",
    )
    if kept.has_clipped:
        array(
            "clipped",
            "uint32",
            0,
            long_name="scores that exceeded the range of float16",
            units="1",
            comment="Stored as the largest finite value.",
        )
    array(
        "crc",
        "uint32",
        0,
        long_name="checksum of the row",
        units="1",
        comment="CRC-32C over the stored little-endian bytes of label, then score or margin, then "
        + (
            "all other arrays of predictions in the order of the group's description."
            if kept.optional
            else "confidence."
        ),
        references="RFC 3720, appendix B.4",
    )
    array(
        "status",
        "uint8",
        MISSING,
        long_name="state of the run",
        units="1",
        flag_values=list(STATUSES.values()),
        flag_meanings=" ".join(STATUSES),
        comment="copy: identical to another run, not trained again; padding: no run, the row fills "
        "a shard. Read it before predictions: it is written last.",
    )
    return arrays


def _splits(kept: ArrayFields) -> tuple[ArraySpec, ...]:
    dims = ("repeat", "sample")
    return (
        ArraySpec(
            "y_true",
            label_dtype(kept.n_classes),
            dims,
            0,
            "split",
            True,
            {
                "long_name": "true class",
                "units": "1",
                "comment": "Index into class_names; holds nothing where test_index is -1.",
            },
        ),
        ArraySpec(
            "test_index",
            "int64",
            dims,
            -1,
            "split",
            True,
            {
                "long_name": "position of the test point in the prepared dataset",
                "units": "1",
                "comment": "-1 until a worker has made the split.",
            },
        ),
    )


def _coordinates(kept: ArrayFields) -> list[ArraySpec]:
    def array(
        name: str,
        dtype: str,
        fill: float,
        long_name: str,
        comment: str = "",
        dims: tuple[str, ...] = RUN,
    ) -> None:
        attributes = {"long_name": long_name, "units": "1"}
        if comment:
            attributes["comment"] = comment
        arrays.append(ArraySpec(name, dtype, dims, fill, "coordinate", True, attributes))

    arrays: list[ArraySpec] = []
    array("cell", "int32", -1, "row of the plan's table of cells", "-1 for padding.")
    array("repeat_index", "int16", -1, "which test set", "Position along the dimension repeat.")
    array("run_index", "int32", -1, "number of the run within its repeat")
    array(
        "train_fraction",
        "float64",
        math.nan,
        "share of the available training samples",
        "A number of points where it exceeds 1.",
    )
    for name in kept.flags:
        array(name, "int16", -1, name.replace("_", " "), "-1 for padding.")
    array("epoch", "int32", 0, "epochs trained", "0 for a classifier without epochs.", ("epoch",))
    if kept.curves:
        array("trained_epoch", "int32", 0, "number of the epoch", "", ("trained_epoch",))
    for coordinate in kept.coordinates:
        name, known, words = coordinate.name, coordinate.declared, coordinate.meanings
        attributes: dict[str, object] = {"long_name": known.long_name, "units": known.units}
        attributes |= {"comment": known.comment} if known.comment else {}
        if words:
            attributes |= {"flag_values": [*range(len(words))], "flag_meanings": " ".join(words)}
        fill = math.nan if known.dtype.startswith("float") else -1
        arrays.append(
            ArraySpec(name, known.dtype, known.dims, fill, "coordinate", True, attributes)
        )
    return arrays
