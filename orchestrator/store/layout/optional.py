"""Arrays that a group may hold besides predictions and learning curves, each declared here once.

A group that holds any is of layout 2. Its attributes say which and of what shape, so that whoever
reads a journal's record knows how to cut it. A further array is a further entry of `DECLARED`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

NAN: Literal["NaN"] = "NaN"
"""A fill value as Zarr writes it, which JSON can hold and which equals itself."""

Fill = int | Literal["NaN"]


@dataclass(frozen=True, slots=True)
class OptionalArray:
    """One of these arrays as a group holds it, and as its attributes say.

    Attributes
    ----------
    name, dtype : str
    dims : tuple of str
        After the dimension run; empty for a number per run.
    shape : tuple of int
        Their lengths: of one run.
    fill : int or "NaN"
        The value of what was never written.
    """

    name: str
    dtype: str
    dims: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    fill: Fill = NAN

    def __post_init__(self) -> None:
        """Refuse what is not as declared."""
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
        """Read what a group's attributes hold.

        Raises
        ------
        UnknownArray
            For an array that a later version has.
        KeyError, TypeError, ValueError
            For anything else that is none.
        """
        name, dtype, fill = value["name"], value["dtype"], value["fill"]
        dims, shape = value["dims"], value["shape"]
        if not isinstance(name, str) or not {type(dims), type(shape)} <= {list, tuple}:
            raise TypeError(f"{value!r} is no array")
        if any(type(length) is not int for length in shape):
            raise TypeError(f"{shape!r} is no shape")
        return cls(name, dtype, tuple(dims), tuple(shape), fill)


class UnknownArray(ValueError):
    """An optional array that this version does not declare."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no optional array {name!r}")
        self.name = name


@dataclass(frozen=True, slots=True)
class Declared:
    """What an optional array is, in whichever group.

    Attributes
    ----------
    name : str
        No other array's; `jobs.run.Prediction.measured` has its values under the same name.
    keep : str
        The key of the sweep file's table [keep] that asks for it.
    dtypes : tuple of str
        Those that it may have.
    dims : tuple of str
        After the dimension run.
    fill : int or "NaN"
    long_name, units, comment : str
        What its attributes say.
    least, most : float
        Bounds of its values; where the fill is NaN, so may they be.
    """

    name: str
    keep: str
    dtypes: tuple[str, ...]
    dims: tuple[str, ...]
    fill: Fill
    long_name: str
    units: str
    comment: str
    least: float = -math.inf
    most: float = math.inf

    def of(self, shape: Iterable[int] = (), dtype: str | None = None) -> OptionalArray:
        """Return it as a group holds it; by default in the first of its dtypes."""
        return OptionalArray(self.name, dtype or self.dtypes[0], self.dims, tuple(shape), self.fill)


TRAIN_ACCURACY = Declared(
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

DECLARED: dict[str, Declared] = {declared.name: declared for declared in (TRAIN_ACCURACY,)}
"""All of them by name."""
