"""The convolutional network of the CIFAR-10 study (RKS), for images of any size: ``cnn``."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu
from torch.nn.utils import convert_conv2d_weight_memory_format

from jobs.run import Generators, Prediction, TrainingSet
from jobs.training.device import torch_device
from jobs.training.encode import pixels
from jobs.training.handling import Handling
from jobs.training.layers import Conv2d, Linear, initialise
from jobs.training.loop import Plan, constant
from jobs.training.network import fit_network


def fit(
    canonical: Mapping[str, Any],
    hparams: Mapping[str, Any],
    data: TrainingSet,
    generators: Generators,
    handling: Handling,
) -> Prediction:
    """Train with Adam at a constant learning rate; see `jobs.classifiers.fit`."""
    started = perf_counter()
    X, X_test = pixels(data)
    height, width, channels = X.shape[1:]
    model = Network(height, width, channels, data.n_classes)
    initialise(model, generators.init)
    convert_conv2d_weight_memory_format(
        model.to(torch_device(handling.device)), torch.channels_last
    )
    optimizer = torch.optim.Adam(
        model.parameters(), lr=hparams["lr"], weight_decay=hparams["weight_decay"], fused=True
    )
    plan = Plan(
        epochs=canonical["epochs"],
        batch_size=hparams["batch"],
        learning_rate=constant(hparams["lr"]),
        snapshots=handling.snapshots,
    )
    return fit_network(
        model, optimizer, X, X_test, data, plan, generators.batch, handling, started=started
    )


class Network(nn.Module):
    """Convolutions 3×3 to 32 and 16 channels, each with 2×2 max-pooling; 64 hidden; logits.

    Convolutions keep the image's size; pooling rounds odd sizes up, so any image will do. ReLU
    follows the pooling: the same numbers for a quarter of the work.
    """

    def __init__(self, height: int, width: int, channels: int, n_classes: int) -> None:
        super().__init__()
        self.conv1 = Conv2d(channels, 32, 3, padding=1)
        self.conv2 = Conv2d(32, 16, 3, padding=1)
        self.hidden = Linear(16 * -(-height // 4) * -(-width // 4), 64)
        self.logits = Linear(64, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (row, height, width, channel) to logits (row, class)."""
        x = x.permute(0, 3, 1, 2)  # a view: the memory stays channels last
        x = relu(max_pool2d(self.conv1(x), 2, ceil_mode=True))
        x = relu(max_pool2d(self.conv2(x), 2, ceil_mode=True))
        x = relu(self.hidden(x.flatten(1)))
        out: Tensor = self.logits(x)
        return out
