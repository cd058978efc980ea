"""What the places along optional arrays' own dimensions stand for, each declared here once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Values = tuple[Any, ...]
"""Of a coordinate, a tuple for each dimension: whole numbers, or numbers and None for NaN, which
JSON can hold and which equals itself."""


class UnknownArray(ValueError):
    """An optional array that this version does not declare."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no optional array {name!r}")
        self.name = name


@dataclass(frozen=True, slots=True)
class Coordinate:
    """What the places along optional arrays' own dimensions stand for, the same for all runs.

    Attributes
    ----------
    name : str
    values : tuple
        A tuple for each dimension, None for NaN.
    meanings : tuple of str
        Where the values are codes, their words: value n is the n-th.
    """

    name: str
    values: Values
    meanings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what is not as declared."""
        known = COORDINATES.get(self.name)
        if known is None:
            raise UnknownArray(self.name)
        flat = self.values
        for _ in known.dims[1:]:
            lengths = {len(row) if isinstance(row, tuple) else -1 for row in flat}
            if len(lengths) != 1 or -1 in lengths:
                raise ValueError(f"{self.name} is no table of {' by '.join(known.dims)}")
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
        """Read what a group's attributes hold; raises as `OptionalArray.from_attributes`."""
        return cls(value["name"], _tuples(value["values"]), _tuples(value["meanings"]))

    @property
    def declared(self) -> DeclaredCoordinate:
        """What it is, in whichever group."""
        return COORDINATES[self.name]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its lengths, a number for each dimension."""
        shape, values = [], self.values
        for _ in self.declared.dims:
            shape.append(len(values))
            values = values[0]
        return tuple(shape)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class DeclaredCoordinate:
    """What a coordinate of optional arrays is, in whichever group.

    Attributes
    ----------
    name : str
        No array's.
    dtype : {"int16", "int32", "float64"}
    dims : tuple of str
        Of optional arrays.
    long_name, units, comment : str
        What its attributes say.
    """

    name: str
    dtype: Literal["int16", "int32", "float64"]
    dims: tuple[str, ...]
    long_name: str
    units: str = "1"
    comment: str = ""

    def of(self, values: Iterable[Any], meanings: Iterable[str] = ()) -> Coordinate:
        """Return it as a group has it; NaN becomes None."""
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
