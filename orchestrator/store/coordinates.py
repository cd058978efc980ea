"""Optional arrays of a group, and the coordinates of their dimensions, each declared here once.

A group with any optional array (besides predictions and learning curves) has layout 2. Its
attributes list their names and shapes, so that readers of a journal's record know how to split it,
and the coordinates of their dimensions. New arrays go into `DECLARED`, new coordinates into
`COORDINATES`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Values = tuple[Any, ...]
"""Values of a coordinate: tuples nested by dimension, of whole numbers, or of numbers and None.
None stands for NaN because JSON can hold it and it equals itself."""


class UnknownArray(ValueError):
    """An optional array that this version does not declare."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no optional array {name!r}")
        self.name = name


@dataclass(frozen=True, slots=True)
class Coordinate:
    """A coordinate of dimensions that only optional arrays have, the same for all runs."""

    name: str
    values: Values  # tuples nested by dimension; None for NaN
    meanings: tuple[str, ...] = ()
    """If the values are codes, their words: code n stands for the n-th (from 0)."""

    def __post_init__(self) -> None:
        """Check the values against the declaration."""
        known = COORDINATES.get(self.name)
        if known is None:
            raise UnknownArray(self.name)
        flat = self.values
        for _ in known.dims[1:]:
            lengths = {len(row) if isinstance(row, tuple) else -1 for row in flat}
            if len(lengths) != 1 or -1 in lengths:
                raise ValueError(f"{self.name} is not a table of {' by '.join(known.dims)}")
            flat = tuple(value for row in flat if isinstance(row, tuple) for value in row)
        whole = known.dtype.startswith("int")
        kinds = {int} if whole else {int, float, type(None)}
        if not flat or not {type(value) for value in flat} <= kinds:
            raise ValueError(f"{self.name} cannot be {self.values!r}")
        if self.meanings:
            worded = all(type(word) is str and word.split() == [word] for word in self.meanings)
            if not whole or not worded or not set(flat) <= {*range(len(self.meanings))}:
                raise ValueError(f"{self.name} {self.values!r} cannot mean {self.meanings!r}")

    @classmethod
    def from_attributes(cls, value: Mapping[str, Any]) -> Coordinate:
        """Read it from a group's attributes; raises like `OptionalArray.from_attributes`."""
        return cls(value["name"], _tuples(value["values"]), _tuples(value["meanings"]))

    @property
    def declared(self) -> DeclaredCoordinate:
        """Its declaration, the same for all groups."""
        return COORDINATES[self.name]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its length along each dimension."""
        shape, values = [], self.values
        for _ in self.declared.dims:
            shape.append(len(values))
            values = values[0]
        return tuple(shape)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class DeclaredCoordinate:
    """The declaration of a coordinate of optional arrays, the same for all groups."""

    name: str  # must not be the name of an array
    dtype: Literal["int16", "int32", "float64"]
    dims: tuple[str, ...]  # dimensions of optional arrays
    long_name: str
    units: str = "1"
    comment: str = ""  # its attributes in the store

    def of(self, values: Iterable[Any], meanings: Iterable[str] = ()) -> Coordinate:
        """Return a group's coordinate with these values; NaN becomes None."""
        nested = _tuples(list(values))
        return Coordinate(self.name, _without_nan(nested), tuple(meanings))


def _without_nan(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_without_nan, value))
    return None if isinstance(value, float) and math.isnan(value) else value


ENSEMBLE_SIZE = DeclaredCoordinate(
    "ensemble_size", "int32", ("ensemble_size",), "members that are averaged, the first of them"
)
MEMBER_EPOCH = DeclaredCoordinate(
    "member_epoch", "int32", ("member",), "epochs trained when the member was taken"
)
COORDINATES: dict[str, DeclaredCoordinate] = {
    declared.name: declared
    for declared in (
        DeclaredCoordinate(
            "response_transform", "int16", ("response",), "what is done to the model's inputs"
        ),
        DeclaredCoordinate(
            "response_layer",
            "int32",
            ("response",),
            "layer whose output is moved",
            comment="0 is the input, 1 the output of a network's first block.",
        ),
        DeclaredCoordinate(
            "response_magnitude",
            "float64",
            ("response", "magnitude"),
            "how far inputs are moved",
            comment="Degrees of rotate, else a share; NaN beyond the end of a short grid.",
        ),
        DeclaredCoordinate("part", "int16", ("part",), "which rows"),
        DeclaredCoordinate(
            "layer",
            "int32",
            ("layer",),
            "layer",
            comment="1: the output of a network's first block.",
        ),
        ENSEMBLE_SIZE,
        MEMBER_EPOCH,
    )
}
"""All coordinates by name."""


NAN: Literal["NaN"] = "NaN"
"""A fill value as Zarr writes it; unlike NaN, JSON can hold it and it equals itself."""

Fill = int | Literal["NaN"]


@dataclass(frozen=True, slots=True)
class OptionalArray:
    """An optional array of a group, as in the group's attributes."""

    name: str
    dtype: str
    dims: tuple[str, ...] = ()  # dimensions after run; empty for a number per run
    shape: tuple[int, ...] = ()  # lengths of `dims`
    fill: Fill = NAN  # the value of elements that were never written

    def __post_init__(self) -> None:
        """Check it against the declaration."""
        known = DECLARED.get(self.name)
        if known is None:
            raise UnknownArray(self.name)
        declared = (known.dims, known.fill)
        if self.dtype not in known.dtypes or (self.dims, self.fill) != declared:
            raise ValueError(f"{self.name} is not declared as {self!r}")
        if len(self.shape) != len(self.dims) or not all(length >= 1 for length in self.shape):
            raise ValueError(f"{self.name} of {', '.join(self.dims)} cannot have {self.shape!r}")

    @classmethod
    def from_attributes(cls, value: Mapping[str, Any]) -> OptionalArray:
        """Read it from a group's attributes."""
        name, dtype, fill = value["name"], value["dtype"], value["fill"]
        dims, shape = value["dims"], value["shape"]
        if not isinstance(name, str) or not {type(dims), type(shape)} <= {list, tuple}:
            raise TypeError(f"{value!r} is not an array")
        if any(type(length) is not int for length in shape):
            raise TypeError(f"{shape!r} is not a shape")
        return cls(name, dtype, tuple(dims), tuple(shape), fill)


@dataclass(frozen=True, slots=True)
class Declaration:
    """The declaration of an optional array, the same for all groups."""

    name: str  # unique among arrays; also its key in `jobs.run.Prediction.measured`
    keep: str  # the key in the sweep file's table [keep] that requests it
    dtypes: tuple[str, ...]  # allowed dtypes
    dims: tuple[str, ...]  # dimensions after run
    fill: Fill
    long_name: str
    units: str
    comment: str  # its attributes in the store
    least: float = -math.inf
    most: float = math.inf  # bounds of its values; if the fill is NaN, values may be NaN too
    pads: bool = False  # whether runs may have fewer values than others; the rest is filled

    def of(self, shape: Iterable[int] = (), dtype: str | None = None) -> OptionalArray:
        """Return a group's array of this shape; its dtype is the first allowed one by default."""
        return OptionalArray(self.name, dtype or self.dtypes[0], self.dims, tuple(shape), self.fill)


TRAIN_ACCURACY = Declaration(
    name="final_train_accuracy",
    keep="train_accuracy",
    dtypes=("float32",),
    dims=(),
    fill=NAN,
    long_name="accuracy on the training set",
    units="1",
    comment="Share of the rows that the run was fitted on, as it was fitted on them (subsampled, "
    "resampled, perturbed), that the final model gets right. NaN where a score of them is not "
    "finite.",
    least=0.0,
    most=1.0,
)

RESPONSE = "response"
"""Value of `Declaration.keep` for arrays requested by the sweep file's table of this name."""

_RIGHT = "right predictions of the rows or pairs that the model was asked about"
_RESPONSES = tuple(
    Declaration(
        name=name,
        keep=RESPONSE,
        dtypes=("uint32",),
        dims=dims,
        fill=0,
        long_name=long_name,
        units="1",
        comment=comment,
        least=0,
    )
    for name, dims, long_name, comment in (
        (
            "response_right",
            ("response", "draw", "magnitude"),
            _RIGHT,
            "On training rows, moved by response_magnitude; 0 beyond the end of a short grid.",
        ),
        (
            "response_total",
            ("response", "draw", "magnitude"),
            "rows or pairs that the model was asked about",
            "Of training rows.",
        ),
        (
            "shifted_right",
            ("response", "part"),
            _RIGHT,
            "Rows as they are, and each moved by a random magnitude of its own.",
        ),
        ("shifted_total", ("response", "part"), "rows that the model was asked about", ""),
    )
)

DBI = Declaration(
    name="dbi",
    keep=RESPONSE,
    dtypes=("float32",),
    dims=("layer",),
    fill=NAN,
    long_name="Davies–Bouldin index of a layer's outputs",
    units="1",
    comment="Of training rows by class, the mean over up to 10 batches of 120: the larger, the "
    "less are classes apart. NaN where it has no meaning.",
    least=0.0,
)

_PRECISIONS = ("float32", "float16")


def _of_members(name: str, dims: tuple[str, ...], what: str) -> Declaration:
    per = (
        "gap of two classes, class 1 minus class 0" if name.endswith("margin") else "of each class"
    )
    return Declaration(
        name=name,
        keep="members",
        dtypes=_PRECISIONS,
        dims=dims,
        fill=NAN,
        long_name=f"log-probability {what}: {per}",
        units="nat",
        comment="Natural logarithms of averaged probabilities."
        if dims[0] == "ensemble_size"
        else "Natural logarithms.",
    )


PARAMETERS = Declaration(
    name="parameters",
    keep="parameters",
    dtypes=("float32", "float64"),
    dims=("parameter",),
    fill=NAN,
    long_name="all arrays of the trained model, one after the other",
    units="1",
    comment="Which they are, the attribute layouts says, in JSON: for models with these hparams "
    "the name, dtype and shape of each array, which lies in C order. A whole number is three: the "
    "digits of its 64 bits to the base 2^24, the lowest first. NaN beyond the end of a model that "
    "is smaller than others.",
    pads=True,
)

SIZE_SCORE = _of_members(
    "size_score", ("ensemble_size", "sample", "class"), "of the first members averaged"
)
SIZE_MARGIN = _of_members(
    "size_margin", ("ensemble_size", "sample"), "of the first members averaged"
)
MEMBER_SCORE = _of_members("member_score", ("member", "sample", "class"), "of a member")
MEMBER_MARGIN = _of_members("member_margin", ("member", "sample"), "of a member")

DECLARED: dict[str, Declaration] = {
    declared.name: declared
    for declared in (
        TRAIN_ACCURACY,
        *_RESPONSES,
        DBI,
        PARAMETERS,
        SIZE_SCORE,
        SIZE_MARGIN,
        MEMBER_SCORE,
        MEMBER_MARGIN,
    )
}
"""All optional arrays by name."""

RESPONSE_ARRAYS = tuple(declared.name for declared in _RESPONSES)
"""The arrays of every group with response curves."""

LARGEST_ALL = 256 * 10**6  # maximum bytes of all members of a run


class TooLarge(ValueError):
    """The members of a run exceed `LARGEST_ALL`."""


def of_members(
    keep: str, taken: Sequence[int], sizes: Sequence[int], points: tuple[int, int], dtype: str
) -> tuple[tuple[OptionalArray, ...], tuple[Coordinate, ...]]:
    """Return the arrays and coordinates that keep an ensembling method's members.

    `keep`: ``keep.members`` of a sweep file. `taken`: the epoch after which each member is taken.
    `sizes`: numbers of members whose ensembles are kept. `points`, (int, int): number of test
    points, and of classes.
    """
    n, n_classes = points
    binary = n_classes == 2
    row = (n,) if binary else (n, n_classes)
    if keep == "none":
        return (), ()
    if keep == "sizes":
        declared = SIZE_MARGIN if binary else SIZE_SCORE
        return (declared.of((len(sizes), *row), dtype),), (ENSEMBLE_SIZE.of(sizes),)
    declared = MEMBER_MARGIN if binary else MEMBER_SCORE
    shape = (len(taken), *row)
    needed = math.prod(shape) * (4 if dtype == "float32" else 2)
    if needed > LARGEST_ALL:
        raise TooLarge(
            f"{len(taken):,} members of {n:,} points and {n_classes:,} classes are "
            f"{needed / 1e6:,.0f} MB per run; the maximum is {LARGEST_ALL // 10**6} MB"
        )
    return (declared.of(shape, dtype),), (MEMBER_EPOCH.of(taken),)
