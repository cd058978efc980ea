"""``convnet``: a plain convolutional network of any depth and width, for images of any size.

Its hparams depth, width and batch_norm are structural: a grid of them gives a family of networks on
which complexity measures can be compared.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from manyseed.jobs.classifiers.images import network_on_pixels
from manyseed.jobs.classifiers.record import ClassifierInfo
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.hparams.kinds import Categorical, Ordinal
from manyseed.jobs.training.network import Named, Shape

if TYPE_CHECKING:
    import torch


def network(
    shape: Shape, n_classes: int, _: Named, hparams: Named, *_masks: object
) -> torch.nn.Module:
    """Build `depth` 3×3 convolutions of `width` channels, one 2×2 max-pooling, logits.

    ReLU follows each convolution, after batch norm if requested. Convolutions keep the image's
    size; pooling rounds odd sizes up, so any image will do. The last ReLU follows the pooling: the
    same numbers for a quarter of the work. Parameters are those of
    `jobs.training.network.Network.build`.
    """
    from torch import nn

    from manyseed.jobs.training.layers import ChannelsFirst, Conv2d, Linear

    height, width, channels = shape
    depth, filters, norm = hparams["depth"], hparams["width"], hparams["batch_norm"]
    layers: dict[str, nn.Module] = {"images": ChannelsFirst()}
    for number in range(1, depth + 1):
        # a batch norm has a bias of its own
        layers[f"conv{number}"] = Conv2d(channels, filters, 3, padding=1, bias=not norm)
        if norm:
            layers[f"norm{number}"] = nn.BatchNorm2d(filters)
        if number == depth:
            layers["pool"] = nn.MaxPool2d(2, ceil_mode=True)
        layers[f"relu{number}"] = nn.ReLU()
        channels = filters
    layers["flat"] = nn.Flatten()
    layers["logits"] = Linear(filters * -(-height // 2) * -(-width // 2), n_classes)
    return nn.Sequential(OrderedDict(layers))


def _core_seconds(dataset: DatasetInfo, info: ClassifierInfo, rows: float) -> float:
    assert dataset.image is not None
    height, width, channels = dataset.image
    depth, filters = (int(info.hparams[name]) for name in ("depth", "width"))
    layers = depth * (1.5 if info.hparams["batch_norm"] else 1.0)
    step = (5e-4 + 1.5e-4 * layers) / int(info.hparams["batch"])
    products = 9 * filters * (channels + (depth - 1) * filters)
    pixel = 4.7e-9 * filters * layers + 3e-11 * products
    return float(info.canonical["epochs"]) * rows * (step + 3.6e-6 + height * width * pixel)


CONVNET = network_on_pixels(
    "convnet",
    network,
    hparams=(
        Ordinal("depth", range(1, 17), 2, structural=True),
        Ordinal("width", range(1, 513), 16, structural=True),
        Categorical("batch_norm", (False, True), default=False, structural=True),
    ),
    epochs=40,
    core_seconds=_core_seconds,
    smallest_batch=2,
    first_block="relu1",
)
