"""The convolutional network of the CIFAR-10 study (RKS), for images of any size: ``cnn``."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu
from torch.nn.utils import convert_conv2d_weight_memory_format

from jobs.classifiers.registry import Device
from jobs.run import Generators, Prediction, TrainingSet
from jobs.training.encode import pixels
from jobs.training.layers import Conv2d, Linear, initialise
from jobs.training.loop import Plan, owned, torch_device, train
from jobs.training.prediction import logit_scores, prediction


def fit(
    canonical: Mapping[str, Any],
    hparams: Mapping[str, Any],
    data: TrainingSet,
    generators: Generators,
    snapshots: tuple[int, ...],
    device: Device,
) -> Prediction:
    """Train with Adam at a constant learning rate; see `jobs.classifiers.fit`."""
    started = perf_counter()
    place = torch_device(device)
    X, X_test = pixels(data)
    height, width, channels = X.shape[1:]
    model = Network(height, width, channels, data.n_classes)
    initialise(model, generators.init)
    convert_conv2d_weight_memory_format(model.to(place), torch.channels_last)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=hparams["lr"], weight_decay=hparams["weight_decay"], fused=True
    )
    plan = Plan(
        epochs=canonical["epochs"],
        batch_size=hparams["batch"],
        learning_rate=lambda _: hparams["lr"],
        snapshots=snapshots,
    )
    logits, predicting = train(
        model,
        optimizer,
        owned(X, place, torch.float32),
        owned(data.y, place, torch.int64),
        owned(X_test, place, torch.float32),
        plan,
        generators.batch,
    )
    seconds = perf_counter() - started - predicting
    return prediction(logit_scores(logits), "softmax", seconds)


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
