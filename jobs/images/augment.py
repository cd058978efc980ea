"""Random transforms of images, drawn anew for each presentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from manyseed.jobs.images.schemes import CROP_FLIP, augmentation
from manyseed.jobs.images.transforms import COLOURS, transformed
from manyseed.jobs.run import raw

if TYPE_CHECKING:
    from manyseed.jobs.run import TrainingSet
    from manyseed.jobs.training.encode import Encoder

_CROP_WORDS = 3


class Augmented:
    """A run's training or test images, transformed anew at each access.

    Each presentation of an image takes the same number of words from the stream, in the order of
    presentation: 4 for ``colour`` (brightness, contrast, saturation, hue), 3 for ``crop-flip``
    (down, right, flip), else 1. A word w gives u = ⌊w / 2¹¹⌋ · 2⁻⁵³, uniform in [0, 1). With the
    scheme's number m, a magnitude is m · (2u − 1); with p zeros padded on each side, a crop begins
    ⌊u · (2p + 1)⌋ pixels into the image, and is mirrored if u ≥ ½.

    Parameters
    ----------
    data : TrainingSet
        With a scheme, images and their dataset.
    encoder : Encoder
        From raw rows to the model's inputs.
    draws : numpy.random.Generator
        Stream ``augment``, whose state is part of a training's, or ``test_augment``.
    device : torch.device
    test : bool
        Whether to use the test images.
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

    Parameters
    ----------
    images : tensor (image, height, width, channel)
    padding : int
        Pixels on each side.
    first : int64 tensor (image, 2)
        Row and column of the padded image where each crop begins.
    mirrored : bool tensor (image,)
        Which crops to mirror left to right.
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
