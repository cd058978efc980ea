"""Rotation, shifts and changes of colour: of given magnitude for each image, or drawn at random.

Images are raw pixels, before they are standardised. Geometric transforms are bilinear and fill what
they uncover with 0; everything is computed in float64, so magnitude 0 changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import grid_sample, pad

from manyseed.jobs.images import CROP_FLIP, augmentation
from manyseed.jobs.run import raw

if TYPE_CHECKING:
    from manyseed.jobs.run import TrainingSet
    from manyseed.jobs.training.encode import Encoder

GREY = (0.2989, 0.587, 0.114)
"""Weights of red, green and blue (ITU-R BT.601, as torchvision rounds them)."""

COLOURS = 4  # number of magnitudes that colour takes: brightness, contrast, saturation and hue


def transformed(name: str, images: Tensor, magnitudes: Tensor, largest: float) -> Tensor:
    """Transform each image by its own magnitude.

    `name`: a key of `jobs.images.MOST`. `images`, float64 tensor (image, height, width,
    channel): from 0 to `largest`. `magnitudes`, float64 tensor (image,) or (image, 4): degrees
    counter-clockwise about the centre for ``rotate``; shares of the width, to the right, for
    ``shift-x``, of the height, downwards, for ``shift-y``; the change of brightness, contrast,
    saturation and hue for ``colour``, one for all or one for each. `largest`: the value of full
    brightness.

    Returns float64 tensor (image, height, width, channel).
    """
    if name not in _SOURCES:
        return _coloured(images, magnitudes, largest)
    grid = _SOURCES[name](images.shape[1:3], magnitudes)
    return _sampled(images.permute(0, 3, 1, 2), grid).permute(0, 2, 3, 1)


def transform_of_all(
    name: str, image: tuple[int, int, int], magnitude: float, largest: float
) -> Callable[[Tensor], Tensor]:
    """Return a function that transforms all images alike, as `transformed`, but faster if reused.

    `name` and `largest`: as in `transformed`. `image`: (height, width, channels). `magnitude`: the
    same for all images. Returns what maps a float64 tensor on the CPU (image, height, width,
    channel) to one of the same shape.
    """
    magnitudes = torch.tensor([magnitude], dtype=torch.float64)
    if name not in _SOURCES:
        return lambda images: _coloured(images, magnitudes.expand(len(images)), largest)
    height, width, channels = image
    grid = _SOURCES[name](image[:2], magnitudes)

    def moved(images: Tensor) -> Tensor:
        # all images as the channels of one, so that the sources of pixels are computed once
        one = images.permute(0, 3, 1, 2).reshape(1, -1, height, width)
        return _sampled(one, grid).reshape(-1, channels, height, width).permute(0, 2, 3, 1)

    return moved


def _rotated(size: Sequence[int], degrees: Tensor) -> Tensor:
    angle = torch.deg2rad(degrees)[:, None, None]
    cos, sin = torch.cos(angle), torch.sin(angle)
    y, x = _from_centre(size, degrees.device)
    # the opposite rotation takes a pixel of the output to its source; y points down
    return _grid(size, sin * x + cos * y, cos * x - sin * y)


def _shifted(axis: int, size: Sequence[int], shares: Tensor) -> Tensor:
    positions = [*_from_centre(size, shares.device)]
    positions[axis] = positions[axis] - shares[:, None, None] * size[axis]
    y, x = torch.broadcast_tensors(*positions)
    return _grid(size, y, x)


def _from_centre(size: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the positions of pixels (1, height, width), in pixels down and right of the centre."""
    axes = [torch.arange(n, dtype=torch.float64, device=device) - (n - 1) / 2 for n in size]
    y, x = torch.meshgrid(*axes, indexing="ij")
    return y[None], x[None]


def _grid(size: Sequence[int], y: Tensor, x: Tensor) -> Tensor:
    """Return a grid for `_sampled` from positions (image, height, width) relative to the centre."""
    height, width = size
    return torch.stack([x * (2 / width), y * (2 / height)], dim=-1)


def _sampled(images: Tensor, grid: Tensor) -> Tensor:
    """Sample images (image, channel, height, width) at the positions of a grid."""
    return grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _coloured(images: Tensor, changes: Tensor, largest: float) -> Tensor:
    """Change brightness, contrast, saturation and hue, in this order, clamping after each."""
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


_SOURCES: dict[str, Callable[[Sequence[int], Tensor], Tensor]] = {
    "rotate": _rotated,
    "shift-x": partial(_shifted, 1),
    "shift-y": partial(_shifted, 0),
}
"""Functions from the size (height, width) and magnitudes (image,) to a grid for `_sampled`."""


_CROP_WORDS = 3


class Augmented:
    """A run's training or test images, transformed anew at each access.

    Each presentation of an image takes the same number of words from the stream, in the order of
    presentation: 4 for ``colour`` (brightness, contrast, saturation, hue), 3 for ``crop-flip``
    (down, right, flip), else 1. A word w gives u = ⌊w / 2¹¹⌋ · 2⁻⁵³, uniform in [0, 1). With the
    scheme's number m, a magnitude is m · (2u − 1); with p zeros padded on each side, a crop begins
    ⌊u · (2p + 1)⌋ pixels into the image, and is mirrored if u ≥ ½.

    `data`: with a scheme, images and their dataset. `encoder`: from raw rows to the model's inputs.
    `draws`: stream ``augment``, whose state is part of a training's, or ``test_augment``. `test`:
    whether to use the test images.
    """

    def __init__(
        self,
        data: TrainingSet,
        encoder: Encoder,
        draws: np.random.Generator,
        device: torch.device,
        *,
        test: bool = False,
    ) -> None:
        text, X = (data.test_augment, data.X_test) if test else (data.augment, data.X)
        scheme = augmentation(text)
        if scheme is None or data.image is None:
            raise ValueError(f"{text} needs images")
        self.draws, self._start = draws, draws.bit_generator.state
        self._scheme, self._image = scheme, data.image
        self._largest = brightest(data)
        # bytes and other short numbers take half the memory
        exact = bool((X.astype(np.float32) == X).all())
        self._raw = torch.tensor(X, dtype=torch.float32 if exact else torch.float64, device=device)
        self._mean, self._scale = (
            torch.tensor(each, dtype=torch.float64, device=device)
            for each in (encoder.mean, encoder.scale)
        )
        self._shape = encoder.shape

    def __call__(self, index: Tensor) -> Tensor:
        """Return the rows at these indices (n,) as inputs of the model, float32 (n, ...)."""
        images = self._raw[index].double().reshape(-1, *self._image)
        rows = self._presented(images).reshape(len(index), -1)
        encoded: Tensor = ((rows - self._mean) * self._scale).float()
        return encoded.reshape(-1, *self._shape)

    def skip_to(self, presentation: int) -> None:
        """Continue as after this many presentations of single images."""
        bits: Any = self.draws.bit_generator
        bits.state = self._start
        bits.advance(presentation * self._words)

    @property
    def _words(self) -> int:
        """Number of words that a presentation takes from the stream."""
        return {CROP_FLIP: _CROP_WORDS, "colour": COLOURS}.get(self._scheme.name, 1)

    def _presented(self, images: Tensor) -> Tensor:
        name, most = self._scheme.name, self._scheme.amount
        u = self._uniform(len(images))
        if name == CROP_FLIP:
            first = torch.floor(u[:, :2] * (2 * most + 1)).long()
            return cropped(images, int(most), first, u[:, 2] >= 0.5)
        magnitudes = most * (2 * u - 1)
        if name != "colour":
            magnitudes = magnitudes[:, 0]
        return transformed(name, images, magnitudes, self._largest)

    def _uniform(self, n: int) -> Tensor:
        words = raw(self.draws, n * self._words) >> np.uint64(11)
        u = words.astype(np.float64).reshape(n, self._words) * 2.0**-53
        return torch.from_numpy(u).to(self._raw.device)


def cropped(images: Tensor, padding: int, first: Tensor, mirrored: Tensor) -> Tensor:
    """Crop images, padded with zeros, to their own size.

    `images`, tensor (image, height, width, channel). `padding`: pixels on each side. `first`, int64
    tensor (image, 2): row and column of the padded image where each crop begins. `mirrored`, bool
    tensor (image,): which crops to mirror left to right.
    """
    n, height, width = images.shape[:3]
    padded = pad(images, (0, 0, padding, padding, padding, padding))
    rows = first[:, :1] + torch.arange(height, device=images.device)
    columns = torch.arange(width, device=images.device).expand(n, -1)
    columns = torch.where(mirrored[:, None], width - 1 - columns, columns) + first[:, 1:]
    which = torch.arange(n, device=images.device)[:, None, None]
    return padded[which, rows[:, :, None], columns[:, None, :]]


def brightest(data: TrainingSet) -> float:
    """Return the value of full brightness: 255 for bytes, else the dataset's largest."""
    dataset = data.in_dataset
    if dataset is not None and dataset.X.dtype == np.uint8:
        return 255.0
    return float((data.X if dataset is None else dataset.X).max())
