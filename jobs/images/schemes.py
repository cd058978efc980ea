"""Transforms of images as users write them, ``name:number``, and their one normal form."""

from __future__ import annotations

from dataclasses import dataclass

from manyseed.jobs.checks import Refused, integer, number

MOST = {"rotate": 180.0, "shift-x": 1.0, "shift-y": 1.0, "colour": 0.5}
"""The largest number of each transform: degrees; shares of width and height; of the hue's circle,
which ends where it began."""

CROP_FLIP = "crop-flip"
AUGMENTATIONS = (CROP_FLIP, *MOST)
"""Names of what may be done to images at random."""

_EXAMPLES = {CROP_FLIP: "4", "rotate": "45", "shift-x": "0.25", "shift-y": "0.25", "colour": "0.25"}
_MOST_PIXELS = 64


@dataclass(frozen=True, slots=True)
class Transform:
    """A transform with its largest magnitude.

    Attributes
    ----------
    name : str
    amount : float
        Degrees of ``rotate``, a share of the width or height of ``shift-x`` and ``shift-y``, the
        change of ``colour``; pixels of padding of ``crop-flip``.
    """

    name: str
    amount: float

    @property
    def text(self) -> str:
        """The normal form, part of identities and of stream keys: the shortest, without ``.0``."""
        return f"{self.name}:{repr(self.amount).removesuffix('.0')}"


def augmentation(scheme: str, axis: str = "augment") -> Transform | None:
    """Read a scheme of the axes ``augment`` and ``test_augment``; None is the scheme ``none``.

    Raises
    ------
    Refused
        For an unknown scheme and a number that is missing or out of range.
    """
    return None if scheme == "none" else read(axis, scheme, AUGMENTATIONS, ("none",))


def canonical(scheme: str, axis: str = "augment") -> str:
    """Return the normal form of an augmentation: ``rotate:45.0`` is ``rotate:45``.

    Raises
    ------
    Refused
        As `augmentation`.
    """
    found = augmentation(scheme, axis)
    return "none" if found is None else found.text


def read(
    option: str, scheme: str, known: tuple[str, ...], others: tuple[str, ...] = ()
) -> Transform:
    """Read a transform with its number.

    Parameters
    ----------
    option : str
        What it was given for.
    scheme : str
        As it is written.
    known : tuple of str
        Names that may stand there, with a number.
    others : tuple of str
        What else may: said where the name is unknown.

    Raises
    ------
    Refused
    """
    name, colon, text = str(scheme).partition(":")
    if name not in known:
        raise Refused(option, name, "unknown scheme", (*others, *known))
    if not colon:
        raise Refused(option, scheme, f"lacks its number, as in {name}:{_EXAMPLES[name]}")
    try:
        value = float(text)
    except ValueError:
        raise Refused(option, text, allowed="a number") from None
    if name == CROP_FLIP:
        whole = int(value) if value.is_integer() else value
        return Transform(name, float(integer(option, whole, least=1, most=_MOST_PIXELS)))
    what = "degrees" if name == "rotate" else "a share (0.25 is a quarter)"
    return Transform(name, number(option, value, above=0, most=MOST[name], what=what))
