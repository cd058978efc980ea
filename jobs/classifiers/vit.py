"""Vision transformers.

``vit`` is a small one (Dosovitskiy et al. 2021, arXiv 2010.11929) trained from scratch,
``vit-transfer`` a linear head on features of a frozen, pretrained backbone (RKS).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from manyseed.jobs.checks import Option
from manyseed.jobs.classifiers import features
from manyseed.jobs.classifiers.images import SPACE, network_on_pixels
from manyseed.jobs.classifiers.record import (
    OPTIONS,
    STACK,
    TORCH,
    Classifier,
    ClassifierInfo,
    Options,
    Unsuitable,
    with_optimizer,
)
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.hparams.kinds import Continuous
from manyseed.jobs.packages import torchvision
from manyseed.jobs.run import TrainingSet
from manyseed.jobs.training.network import Encoded, Named, Network, Part, Shape

if TYPE_CHECKING:
    import torch


def network(
    shape: Shape, n_classes: int, settings: Named, hparams: Named, masks: torch.Generator
) -> torch.nn.Module:
    """Build torchvision's VisionTransformer on images padded to a square of whole patches.

    Padding goes to the bottom and the right and is zero, the mean of standardised pixels. Weights
    are allocated but not filled. Parameters are those of `jobs.training.network.Network.build`;
    `settings` fix the size.
    """
    import torch
    from torch import nn

    from manyseed.jobs.training.layers import ChannelsFirst

    height, width, channels = shape
    patch, embedding = settings["patch"], settings["width"]
    side = patch * -(-max(height, width) // patch)
    # On any other device the layers would fill themselves from the global generator.
    with torch.device("meta"):
        transformer = torchvision("torchvision.models").VisionTransformer(
            image_size=side,
            patch_size=patch,
            num_layers=settings["layers"],
            num_heads=settings["heads"],
            hidden_dim=embedding,
            mlp_dim=settings["mlp_width"],
            num_classes=n_classes,
        )
        transformer.conv_proj = nn.Conv2d(channels, embedding, patch, stride=patch)
    transformer.to_empty(device="cpu")
    _replace_dropout(transformer, hparams["dropout"], masks)
    layers: dict[str, nn.Module] = {
        "images": ChannelsFirst(),
        "padding": nn.ZeroPad2d((0, side - width, 0, side - height)),
        "transformer": transformer,
    }
    return nn.Sequential(OrderedDict(layers))


def _replace_dropout(module: torch.nn.Module, p: float, masks: torch.Generator) -> None:
    from torch import nn

    from manyseed.jobs.training.layers import Dropout

    for name, child in module.named_children():
        if isinstance(child, nn.Dropout):
            setattr(module, name, Dropout(p, masks))
        else:
            _replace_dropout(child, p, masks)


def halves(model: Any) -> tuple[Part, Part]:
    """Cut a model after the first layer of its encoder (`Network.halves`)."""
    import torch

    images, padding, transformer = model
    encoder = transformer.encoder

    def head(x: torch.Tensor) -> torch.Tensor:
        patches = transformer._process_input(padding(images(x)))
        start = transformer.class_token.expand(len(patches), -1, -1)
        tokens = torch.cat([start, patches], dim=1) + encoder.pos_embedding
        hidden: torch.Tensor = encoder.layers[0](encoder.dropout(tokens))
        return hidden

    def tail(hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = transformer.heads(encoder.ln(encoder.layers[1:](hidden))[:, 0])
        return logits

    return head, tail


def initialise(model: torch.nn.Module, stream: np.random.Generator) -> None:
    """Fill the weights from a run's stream with the distributions that torchvision uses."""
    import torch
    from torch import nn

    from manyseed.jobs.training.layers import torch_generator

    generator = torch_generator(stream, torch.device("cpu"))
    for name, values in model.named_parameters():
        match name.removeprefix("transformer.").split("."):
            case [*_, "pos_embedding"]:
                nn.init.normal_(values, std=0.02, generator=generator)
            case ["conv_proj", "weight"]:
                spread = 1 / math.sqrt(values[0].numel())
                nn.init.trunc_normal_(values, std=spread, generator=generator)
            case [*_, "in_proj_weight"] | [*_, "mlp", _, "weight"]:
                nn.init.xavier_uniform_(values, generator=generator)
            case [*_, "mlp", _, "bias"]:
                nn.init.normal_(values, std=1e-6, generator=generator)
            case [*_, "out_proj", "weight"]:
                nn.init.kaiming_uniform_(values, a=math.sqrt(5), generator=generator)
            case [*_, "ln" | "ln_1" | "ln_2", "weight"]:
                nn.init.ones_(values)
            case _:  # class token, biases and the head, so that all classes start equal
                nn.init.zeros_(values)


def _settings(dataset: DatasetInfo, options: Options) -> Mapping[str, Any]:
    assert dataset.image is not None
    side = max(dataset.image[:2])
    own = {
        # At most 8 × 8 patches, of at least 2 × 2 pixels: large images cost no more than small ones
        "patch": max(2, -(-side // 8)),
        "layers": 4,
        "heads": 4,
        "width": 64,
        "mlp_width": 128,
        "optimizer": "adamw",
        "schedule": "cosine",
    }
    return with_optimizer(own, options)


def _core_seconds(dataset: DatasetInfo, info: ClassifierInfo, rows: float) -> float:
    assert dataset.image is not None
    patch = int(info.canonical["patch"])
    patches = math.ceil(dataset.image[0] / patch) * math.ceil(dataset.image[1] / patch)
    return float(info.canonical["epochs"]) * rows * 6.5e-5 * patches


VIT = network_on_pixels(
    "vit",
    network,
    hparams=(Continuous("dropout", 0.0, 0.5, 0.0),),
    settings=_settings,
    core_seconds=_core_seconds,
    initialise=initialise,
    first_block=halves,
    packages=("torch", "torchvision"),
)


BACKBONE = Option("The network that computes features.", str, "swin_t", words=[*features.PUBLISHED])
_IMAGE_SECONDS = {"swin_t": 0.18, "vit_b_16": 0.35}  # seconds for an image of any size, by backbone


def _head(shape: tuple[int, ...], n_classes: int, *_: Any) -> torch.nn.Module:
    from manyseed.jobs.training.layers import Linear

    return Linear(shape[0], n_classes)


def _features(data: TrainingSet, settings: Mapping[str, Any], device: torch.device) -> Encoded:
    from manyseed.jobs.classifiers.features import features

    return features(settings["backbone"], settings["weights"], data, device)


def _width(settings: Mapping[str, Any]) -> int:
    from manyseed.jobs.classifiers.features import BACKBONES

    return BACKBONES[settings["backbone"]].width


def _backbone(options: Options) -> str:
    return str(BACKBONE.check("backbone", options.get("backbone", BACKBONE.default)))


def _transfer_settings(dataset: DatasetInfo, options: Options) -> Mapping[str, Any]:
    backbone = _backbone(options)
    _, digest = features.locate(backbone, options.get("weights"))
    assert dataset.image is not None
    channels = dataset.image[2]
    if channels not in (1, 3):
        reason = f"{backbone} takes images of 1 or 3 channels, and these have {channels}"
        raise Unsuitable("image", dataset.image, reason)
    trained = {"optimizer": "adam", "schedule": "constant"}
    return with_optimizer({"backbone": backbone, "weights": digest, **trained}, options)


def _transfer_seconds(dataset: DatasetInfo, info: ClassifierInfo, rows: float) -> float:
    return float(info.canonical["epochs"]) * rows * 1.6e-8 * dataset.n_features


VIT_TRANSFER = Classifier(
    name="vit-transfer",
    space=SPACE,
    probability="softmax",
    streams=frozenset({"init", "batch"}),
    settings=_transfer_settings,
    options={"backbone": BACKBONE, "weights": features.OPTION, **OPTIONS, **STACK},
    epochs=5,
    images_only=True,
    prepare=lambda options: features.keep(_backbone(options), options.get("weights")),
    image_seconds=lambda settings: _IMAGE_SECONDS[settings["backbone"]],
    core_seconds=_transfer_seconds,
    packages=("torch", "torchvision"),
    imports=TORCH,
    fit=Network(build=_head, features=_features, width=_width, stacks=True),
)
