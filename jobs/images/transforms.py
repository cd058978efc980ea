"""What a transform does to images, each with a magnitude of its own: rotation, shifts, colour.

Images are raw pixels, before they are standardised. Geometric transforms are bilinear, and what
they uncover is 0; all is computed in float64, so that magnitude 0 changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

GREY = (0.2989, 0.587, 0.114)
"""Weights of red, green and blue (ITU-R BT.601, as torchvision rounds them)."""

COLOURS = 4
"""Numbers that colour takes: of brightness, contrast, saturation and hue."""


def transformed(name: str, images: Tensor, magnitudes: Tensor, largest: float) -> Tensor:
    """Transform each image by its own magnitude.

    Parameters
    ----------
    name : str
        Of `jobs.images.schemes.MOST`.
    images : float64 tensor (image, height, width, channel)
        From 0 to `largest`.
    magnitudes : float64 tensor (), (image,) or (image, 4)
        One of all images, which is faster, or of each. Degrees of ``rotate``, counter-clockwise
        about the centre; of ``shift-x`` shares of the width, to the right, of ``shift-y`` of the
        height, downwards; of ``colour`` what brightness, contrast, saturation and hue change by:
        all of them, or each by its own.
    largest : float
        The value of full brightness.

    Returns
    -------
    float64 tensor (image, height, width, channel)
    """
    transform = _TRANSFORMS[name]
    if magnitudes.ndim:
        return transform(images, magnitudes, largest)
    if transform is _coloured:
        return transform(images, magnitudes.expand(len(images)), largest)
    # images as channels of one: where pixels come from is worked out once
    n, height, width, channels = images.shape
    one = images.permute(0, 3, 1, 2).reshape(1, n * channels, height, width).permute(0, 2, 3, 1)
    found = transform(one, magnitudes[None], largest).permute(0, 3, 1, 2)
    return found.reshape(n, channels, height, width).permute(0, 2, 3, 1)


def _rotated(images: Tensor, degrees: Tensor, _: float) -> Tensor:
    angle = torch.deg2rad(degrees)[:, None, None]
    cos, sin = torch.cos(angle), torch.sin(angle)
    y, x = _from_centre(images)
    # an output's pixel comes from where the opposite rotation takes it; y points down
    return _sampled(images, sin * x + cos * y, cos * x - sin * y)


def _shifted_x(images: Tensor, shares: Tensor, _: float) -> Tensor:
    y, x = _from_centre(images)
    moved = x - shares[:, None, None] * images.shape[2]
    return _sampled(images, y.expand_as(moved), moved)


def _shifted_y(images: Tensor, shares: Tensor, _: float) -> Tensor:
    y, x = _from_centre(images)
    moved = y - shares[:, None, None] * images.shape[1]
    return _sampled(images, moved, x.expand_as(moved))


def _from_centre(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the places of pixels (1, height, width), in pixels down and right of the centre."""
    height, width = images.shape[1:3]
    axes = [
        torch.arange(n, dtype=torch.float64, device=images.device) - (n - 1) / 2
        for n in (height, width)
    ]
    y, x = torch.meshgrid(*axes, indexing="ij")
    return y[None], x[None]


def _sampled(images: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Return what images hold at places (image, height, width) relative to their centre."""
    height, width = images.shape[1:3]
    grid = torch.stack([x * (2 / width), y * (2 / height)], dim=-1)
    found = grid_sample(
        images.permute(0, 3, 1, 2),
        grid,
        mode="bilinear",
        padding_mode="zeros",
        align_corners=False,
    )
    return found.permute(0, 2, 3, 1)


def _coloured(images: Tensor, changes: Tensor, largest: float) -> Tensor:
    """Change brightness, contrast, saturation and hue, in this order, each clamped."""
    if changes.ndim == 1:
        changes = changes[:, None].expand(-1, COLOURS)
    brightness, contrast, saturation, hue = (
        changes[:, part, None, None, None] for part in range(COLOURS)
    )
    has_colours = images.shape[3] == len(GREY)
    images = images / largest
    images = (images * (1 + brightness)).clamp(0, 1)
    mean = (_grey(images) if has_colours else images).mean(dim=(1, 2, 3), keepdim=True)
    images = ((1 + contrast) * images - contrast * mean).clamp(0, 1)
    if has_colours:
        images = ((1 + saturation) * images - saturation * _grey(images)).clamp(0, 1)
        images = _hue_turned(images, hue)
    return images * largest


def _grey(images: Tensor) -> Tensor:
    weights = torch.tensor(GREY, dtype=images.dtype, device=images.device)
    return (images * weights).sum(dim=3, keepdim=True)


def _hue_turned(images: Tensor, turn: Tensor) -> Tensor:
    """Turn the hue by a share of its circle, in the hexagonal model (HSV)."""
    red, green, blue = images.unbind(dim=3)
    value, least = images.amax(dim=3), images.amin(dim=3)
    chroma = value - least
    safe = torch.where(chroma > 0, chroma, torch.ones_like(chroma))
    sixth = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    sixth = torch.where(chroma > 0, sixth, torch.zeros_like(sixth)) + 6 * turn[..., 0]
    parts = []
    for offset in (5, 3, 1):
        k = torch.remainder(sixth + offset, 6)
        parts.append(value - chroma * torch.minimum(k, 4 - k).clamp(0, 1))
    return torch.stack(parts, dim=3)


_TRANSFORMS: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "rotate": _rotated,
    "shift-x": _shifted_x,
    "shift-y": _shifted_y,
    "colour": _coloured,
}
