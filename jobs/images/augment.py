"""Images as each of their presentations shows them: transformed at random."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from manyseed.jobs.images.schemes import CROP_FLIP, augmentation
from manyseed.jobs.images.transforms import COLOURS, transformed
from manyseed.jobs.streams import raw

if TYPE_CHECKING:
    from manyseed.jobs.run import TrainingSet
    from manyseed.jobs.training.encode import Encoder

_CROP_WORDS = 3


class Augmented:
    """A run's training or test images, transformed anew whenever they are asked for.

    An image takes the same number of words of the stream at each presentation, in the order of
    presentation: 1, of ``colour`` 4 (brightness, contrast, saturation, hue), of ``crop-flip`` 3
    (down, right, flip). A word w is u = ⌊w / 2¹¹⌋ · 2⁻⁵³, uniform in [0, 1): a magnitude is
    m · (2u − 1) for a scheme of the number m, a crop begins ⌊u · (2p + 1)⌋ pixels into an image
    that is padded with p zeros on each side, and is mirrored where u ≥ ½.

    Parameters
    ----------
    data : TrainingSet
        With a scheme, images and the dataset they are of.
    encoder : Encoder
        What the model takes of raw rows.
    draws : numpy.random.Generator
        Stream ``augment``, what decides how a training goes on; or ``test_augment``.
    device : torch.device
    test : bool
        Whether the images are those of the test set.
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
        asked, X = (data.test_augment, data.X_test) if test else (data.augment, data.X)
        scheme = augmentation(asked)
        if scheme is None or data.image is None:
            raise ValueError(f"{asked} needs images")
        self.draws, self._start = draws, draws.bit_generator.state
        self._scheme, self._image = scheme, data.image
        self._largest = brightest(data)
        # bytes and other short numbers need half of the memory
        exact = bool((X.astype(np.float32) == X).all())
        self._raw = torch.tensor(X, dtype=torch.float32 if exact else torch.float64, device=device)
        self._mean, self._scale = (
            torch.tensor(each, dtype=torch.float64, device=device)
            for each in (encoder.mean, encoder.scale)
        )
        self._shape = encoder.shape

    def __call__(self, index: Tensor) -> Tensor:
        """Return rows of these indices (n,) as the model takes them, float32 (n, ...)."""
        images = self._raw[index].double().reshape(-1, *self._image)
        rows = self._presented(images).reshape(len(index), -1)
        encoded: Tensor = ((rows - self._mean) * self._scale).float()
        return encoded.reshape(-1, *self._shape)

    def skip_to(self, presentation: int) -> None:
        """Go on as after so many presentations of single images."""
        bits: Any = self.draws.bit_generator
        bits.state = self._start
        bits.advance(presentation * self._words)

    @property
    def _words(self) -> int:
        """Words of the stream that a presentation takes."""
        return {CROP_FLIP: _CROP_WORDS, "colour": COLOURS}.get(self._scheme.name, 1)

    def _presented(self, images: Tensor) -> Tensor:
        name, most = self._scheme.name, self._scheme.amount
        if name == CROP_FLIP:
            u = self._uniform(len(images))
            first = torch.floor(u[:, :2] * (2 * most + 1)).long()
            return cropped(images, int(most), first, u[:, 2] >= 0.5)
        u = self._uniform(len(images))
        magnitudes = most * (2 * u - 1)
        if name != "colour":
            magnitudes = magnitudes[:, 0]
        return transformed(name, images, magnitudes, self._largest)

    def _uniform(self, n: int) -> Tensor:
        words = raw(self.draws, n * self._words) >> np.uint64(11)
        u = words.astype(np.float64).reshape(n, self._words) * 2.0**-53
        return torch.from_numpy(u).to(self._raw.device)


def cropped(images: Tensor, padding: int, first: Tensor, mirrored: Tensor) -> Tensor:
    """Cut images out of themselves, padded with zeros.

    Parameters
    ----------
    images : tensor (image, height, width, channel)
    padding : int
        Pixels on each side.
    first : int64 tensor (image, 2)
        Row and column of the padded image at which each crop begins.
    mirrored : bool tensor (image,)
        Which crops are mirrored, left to right.
    """
    n, height, width = images.shape[:3]
    padded = pad(images, (0, 0, padding, padding, padding, padding))
    rows = first[:, :1] + torch.arange(height, device=images.device)
    columns = torch.arange(width, device=images.device).expand(n, -1)
    columns = torch.where(mirrored[:, None], width - 1 - columns, columns) + first[:, 1:]
    which = torch.arange(n, device=images.device)[:, None, None]
    return padded[which, rows[:, :, None], columns[:, None, :]]


def brightest(data: TrainingSet) -> float:
    """Return the value of full brightness: 255 of bytes, else the dataset's largest."""
    of = data.in_dataset
    if of is not None and of.X.dtype == np.uint8:
        return 255.0
    return float((data.X if of is None else of.X).max())
