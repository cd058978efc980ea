"""``vit-transfer``: a linear head on features of a frozen, pretrained vision backbone (RKS)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from manyseed.jobs.checks import Option
from manyseed.jobs.classifiers import weights
from manyseed.jobs.classifiers.images import SPACE
from manyseed.jobs.classifiers.optimizers import OPTIONS, with_optimizer
from manyseed.jobs.classifiers.record import (
    TORCH,
    Classifier,
    ClassifierInfo,
    Options,
    Unsuitable,
)
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.run import TrainingSet
from manyseed.jobs.training.network import Encoded, Network

if TYPE_CHECKING:
    import torch

BACKBONE = Option("The network that computes features.", str, "swin_t", words=[*weights.PUBLISHED])
_IMAGE_SECONDS = {"swin_t": 0.18, "vit_b_16": 0.35}
"""Seconds for an image of any size, by backbone."""


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
    _, digest = weights.locate(backbone, options.get("weights"))
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
    options={"backbone": BACKBONE, "weights": weights.OPTION, **OPTIONS},
    epochs=5,
    images_only=True,
    prepare=lambda options: weights.keep(_backbone(options), options.get("weights")),
    image_seconds=lambda settings: _IMAGE_SECONDS[settings["backbone"]],
    core_seconds=_transfer_seconds,
    packages=("torch", "torchvision"),
    imports=TORCH,
    fit=Network(build=_head, features=_features, width=_width),
)
