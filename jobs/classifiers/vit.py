"""A small vision transformer (Dosovitskiy et al. 2021, arXiv 2010.11929), from scratch: ``vit``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from jobs.run import Generators, Prediction, TrainingSet
from jobs.torchvision_import import torchvision
from jobs.training.device import torch_device
from jobs.training.encode import pixels
from jobs.training.handling import Handling
from jobs.training.layers import Dropout, torch_generator
from jobs.training.loop import Plan, cosine
from jobs.training.network import fit_network


def fit(
    canonical: Mapping[str, Any],
    hparams: Mapping[str, Any],
    data: TrainingSet,
    generators: Generators,
    handling: Handling,
) -> Prediction:
    """Train with AdamW and a cosine schedule; see `jobs.classifiers.fit`."""
    started = perf_counter()
    place = torch_device(handling.device)
    X, X_test = pixels(data)
    masks = torch_generator(generators.dropout, place)
    height, width, channels = X.shape[1:]
    model = Network(canonical, height, width, channels, data.n_classes, hparams["dropout"], masks)
    initialise(model, generators.init)
    model.to(place)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=hparams["lr"], weight_decay=hparams["weight_decay"], fused=True
    )
    plan = Plan(
        epochs=canonical["epochs"],
        batch_size=hparams["batch"],
        learning_rate=cosine(hparams["lr"], canonical["epochs"]),
        snapshots=handling.snapshots,
    )
    order = generators.batch
    return fit_network(
        model, optimizer, X, X_test, data, plan, order, handling, started=started, masks=masks
    )


class Network(nn.Module):
    """torchvision's VisionTransformer on images padded to a square of whole patches.

    Padding is at the bottom and on the right, with zeros: the mean of standardised pixels. The
    dropout of all layers draws from `masks`; the weights are there, but not yet filled.
    """

    def __init__(
        self,
        canonical: Mapping[str, Any],
        height: int,
        width: int,
        channels: int,
        n_classes: int,
        dropout: float,
        masks: torch.Generator,
    ) -> None:
        super().__init__()
        patch, embedding = canonical["patch"], canonical["width"]
        side = patch * -(-max(height, width) // patch)
        self.padding = (0, side - width, 0, side - height)
        # On the meta device nothing is drawn: elsewhere the layers would fill themselves from the
        # global generator.
        with torch.device("meta"):
            self.transformer = torchvision("torchvision.models").VisionTransformer(
                image_size=side,
                patch_size=patch,
                num_layers=canonical["layers"],
                num_heads=canonical["heads"],
                hidden_dim=embedding,
                mlp_dim=canonical["mlp_width"],
                num_classes=n_classes,
            )
            self.transformer.conv_proj = nn.Conv2d(channels, embedding, patch, stride=patch)
        self.to_empty(device="cpu")
        _replace_dropout(self, dropout, masks)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (row, height, width, channel) to logits (row, class)."""
        out: Tensor = self.transformer(pad(x.permute(0, 3, 1, 2), self.padding))
        return out


def _replace_dropout(module: nn.Module, p: float, masks: torch.Generator) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.Dropout):
            setattr(module, name, Dropout(p, masks))
        else:
            _replace_dropout(child, p, masks)


@torch.no_grad()
def initialise(model: Network, stream: np.random.Generator) -> None:
    """Fill the weights from a run's stream, with the distributions of torchvision's own layers."""
    generator = torch_generator(stream, torch.device("cpu"))
    for name, weights in model.named_parameters():
        match name.removeprefix("transformer.").split("."):
            case [*_, "pos_embedding"]:
                nn.init.normal_(weights, std=0.02, generator=generator)
            case ["conv_proj", "weight"]:
                spread = 1 / math.sqrt(weights[0].numel())
                nn.init.trunc_normal_(weights, std=spread, generator=generator)
            case [*_, "in_proj_weight"] | [*_, "mlp", _, "weight"]:
                nn.init.xavier_uniform_(weights, generator=generator)
            case [*_, "mlp", _, "bias"]:
                nn.init.normal_(weights, std=1e-6, generator=generator)
            case [*_, "out_proj", "weight"]:
                nn.init.kaiming_uniform_(weights, a=math.sqrt(5), generator=generator)
            case [*_, "ln" | "ln_1" | "ln_2", "weight"]:
                nn.init.ones_(weights)
            case _:  # class token, biases, and the head: all classes start equal
                nn.init.zeros_(weights)
