"""What the records of networks for images share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from manyseed.jobs.classifiers.optimizers import OPTIONS, with_optimizer
from manyseed.jobs.classifiers.record import Classifier, ClassifierInfo, Options, Settings
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.hparams.kinds import Continuous, Hparam, Ordinal
from manyseed.jobs.training.encode import pixel_encoder
from manyseed.jobs.training.network import Build, FirstBlock, Network

if TYPE_CHECKING:
    import torch

SPACE: tuple[Hparam, ...] = (
    Continuous("lr", 1e-5, 0.1, 1e-3, log=True),
    Continuous("weight_decay", 1e-8, 0.1, 1e-8, log=True),
    Ordinal("batch", (16, 32, 64, 128), 32),
)
"""The hparams of all of them: a choice, since their sources give no ranges."""


def initialise(model: torch.nn.Module, stream: np.random.Generator) -> None:
    """Fill all weights of a network of convolutions from a run's stream."""
    import torch
    from torch.nn.utils import convert_conv2d_weight_memory_format

    from manyseed.jobs.training import layers

    layers.initialise(model, stream)
    convert_conv2d_weight_memory_format(model, torch.channels_last)  # faster; the same numbers


def _adam(_: DatasetInfo, options: Options) -> Settings:
    return with_optimizer({"optimizer": "adam", "schedule": "constant"}, options)


def network_on_pixels(
    name: str,
    build: Build,
    *,
    core_seconds: Callable[[DatasetInfo, ClassifierInfo, float], float],
    first_block: FirstBlock,
    hparams: tuple[Hparam, ...] = (),
    settings: Callable[[DatasetInfo, Options], Settings] = _adam,
    epochs: int = 50,
    initialise: Callable[[Any, np.random.Generator], object] = initialise,
    smallest_batch: int = 1,
    packages: tuple[str, ...] = ("torch",),
) -> Classifier:
    """Return the record of a network that is trained, from scratch, on pixels.

    Parameters
    ----------
    name : str
    build, initialise, first_block, smallest_batch
        As `jobs.training.network.Network` has them; by default a network of convolutions is filled.
    core_seconds, settings, epochs, packages
        As a record has them; by default Adam trains at a constant rate.
    hparams : tuple of Hparam
        Besides `SPACE`.
    """
    return Classifier(
        name=name,
        space=(*SPACE, *hparams),
        probability="softmax",
        streams=frozenset({"init", "batch"}),
        settings=settings,
        options=OPTIONS,
        epochs=epochs,
        images_only=True,
        augments=True,
        core_seconds=core_seconds,
        packages=packages,
        fit=Network(
            build=build,
            encoder=pixel_encoder,
            initialise=initialise,
            smallest_batch=smallest_batch,
            first_block=first_block,
        ),
    )
