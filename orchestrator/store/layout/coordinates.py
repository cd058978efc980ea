"""Coordinates of the dimensions that only optional arrays have, each declared here once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
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
    """A coordinate of dimensions that only optional arrays have, the same for all runs.

    Attributes
    ----------
    name : str
    values : tuple
        Tuples nested by dimension; None for NaN.
    meanings : tuple of str
        If the values are codes, their words: code n stands for the n-th (from 0).
    """

    name: str
    values: Values
    meanings: tuple[str, ...] = ()

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
    """The declaration of a coordinate of optional arrays, the same for all groups.

    Attributes
    ----------
    name : str
        Must not be the name of an array.
    dtype : {"int16", "int32", "float64"}
    dims : tuple of str
        Dimensions of optional arrays.
    long_name, units, comment : str
        Its attributes in the store.
    """

    name: str
    dtype: Literal["int16", "int32", "float64"]
    dims: tuple[str, ...]
    long_name: str
    units: str = "1"
    comment: str = ""

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
