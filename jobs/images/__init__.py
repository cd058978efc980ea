"""Transforms of images: random for training, of given magnitude for response curves."""

from __future__ import annotations

from dataclasses import dataclass

from manyseed.jobs.checks import Refused, integer, number, parsed

MOST = {"rotate": 180.0, "shift-x": 1.0, "shift-y": 1.0, "colour": 0.5}
"""The largest number of each transform: degrees; shares of the width, the height, and the circle of
hues."""

CROP_FLIP = "crop-flip"
AUGMENTATIONS = (CROP_FLIP, *MOST)  # names of random transforms

_EXAMPLES = {CROP_FLIP: "4", "rotate": "45", "shift-x": "0.25", "shift-y": "0.25", "colour": "0.25"}
_MOST_PIXELS = 64


@dataclass(frozen=True, slots=True)
class Transform:
    """A transform with its largest magnitude.

    `amount`: degrees for ``rotate``, a share of the width or height for ``shift-x`` and
    ``shift-y``, the change for ``colour``, pixels of padding for ``crop-flip``.
    """

    name: str
    amount: float

    @property
    def text(self) -> str:
        """The normal form, part of identities and of stream keys; whole numbers have no ``.0``."""
        return f"{self.name}:{repr(self.amount).removesuffix('.0')}"


def augmentation(scheme: str, axis: str = "augment") -> Transform | None:
    """Read a scheme of the axis ``augment`` or ``test_augment``; ``none`` becomes None."""
    return None if scheme == "none" else read(axis, scheme, AUGMENTATIONS, ("none",))


def canonical(scheme: str, axis: str = "augment") -> str:
    """Return the normal form of an augmentation: ``rotate:45.0`` is ``rotate:45``."""
    transform = augmentation(scheme, axis)
    return "none" if transform is None else transform.text


def read(
    option: str, scheme: str, known: tuple[str, ...], others: tuple[str, ...] = ()
) -> Transform:
    """Read a transform with its number.

    `option`: the option that gave it. `scheme`: as the user wrote it. `known`: allowed names, which
    take a number. `others`: further allowed values, for the message about an unknown name.
    """
    name, colon, text = str(scheme).partition(":")
    if name not in known:
        plain = [each for each in others if each != "none" or not colon]
        raise Refused(option, name, "unknown scheme", (*plain, *known))
    if not colon:
        raise Refused(option, scheme, f"lacks its number, as in {name}:{_EXAMPLES[name]}")
    try:
        value = parsed(float, text)
    except ValueError:
        raise Refused(option, text, allowed="a number") from None
    if name == CROP_FLIP:
        whole = int(value) if value.is_integer() else value
        return Transform(name, float(integer(option, whole, least=1, most=_MOST_PIXELS)))
    what = "degrees" if name == "rotate" else "a share (0.25 is a quarter)"
    return Transform(name, number(option, value, above=0, most=MOST[name], what=what))
