"""A user's own PyTorch module, trained by the loop of all networks: ``module = "module:name"``.

The entry point is a class or factory, called with those of `offered` that are among its parameters,
and with the user's params and hparams. Users' layers draw from torch's global generator, for
initial weights and for dropout masks: it is seeded from the run's streams for the duration of the
run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.classifiers.images import ranges
from manyseed.jobs.hparams.kinds import Hparam
from manyseed.jobs.own.calling import OwnError, arguments, built, load
from manyseed.jobs.run import TrainingSet, raw
from manyseed.jobs.training.encode import Encoder, dense_encoder, pixel_encoder
from manyseed.jobs.training.handling import FitInput, Fitted, torch_device
from manyseed.jobs.training.network import Network

if TYPE_CHECKING:
    import torch

OFFERED = ("shape", "n_classes", "hparams", "cardinality")
IN_CHANNELS, IN_FEATURES, NUM_CLASSES = "in_channels", "in_features", "num_classes"
"""What modules usually call the first of the shape, of images or of columns, and n_classes."""

TRAINED_BY: tuple[Hparam, ...] = ranges(lr=1e-3, weight_decay=1e-8, batch=32)
"""Hparams of the loop; a table's ``space`` may declare others of these names."""


def offered(encode: str, given: Collection[str]) -> tuple[str, ...]:
    """Return the arguments that a factory may take, except those of usual names that are given."""
    usual = (IN_CHANNELS if encode == "pixels" else IN_FEATURES, NUM_CLASSES)
    return (*OFFERED, *(name for name in usual if name not in given))


def of_factory(names: Iterable[str]) -> list[str]:
    """Return which of the params and hparams are the factory's, not the loop's."""
    return [name for name in names if name not in {each.name for each in TRAINED_BY}]


class _Raw(Encoder):
    def __call__(self, X: NDArray[np.float64]) -> NDArray[Any]:
        return X


def raw_encoder(data: TrainingSet) -> Encoder:
    """Return an encoder that leaves rows as they are."""
    n = data.X.shape[1]
    none = np.zeros(0, dtype=np.int32)
    every = np.ones(n, dtype=np.bool_)
    return _Raw(np.zeros(n), np.ones(n), every, none, none.astype(np.bool_), np.float64, (n,))


_ENCODERS = {"raw": raw_encoder, "dense": dense_encoder, "pixels": pixel_encoder}


def fit(given: FitInput) -> Fitted:
    """Train a factory's module; see `jobs.classifiers.fit`."""
    import torch

    place = torch_device(given.handling.device)
    on_gpu = [torch.cuda.current_device()] if place.type == "cuda" else []
    with torch.random.fork_rng(devices=on_gpu):
        network = Network(
            build=partial(_made, given.data.cardinality, given.generators.init),
            encoder=_ENCODERS[given.settings["encode"]],
            initialise=lambda *_: None,
            smallest_batch=2,
            masks=_global,
        )
        return network(given)


def _global(stream: np.random.Generator, place: torch.device) -> torch.Generator:
    """Return the generator that users' layers draw from, seeded by one word of a stream."""
    import torch

    generator: torch.Generator = torch.default_generator
    if place.type == "cuda":
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
    return generator.manual_seed(_word(stream))


def _word(stream: np.random.Generator) -> int:
    return int(raw(stream, 1)[0])


def _made(
    cardinality: NDArray[np.int32],
    init: np.random.Generator,
    shape: tuple[int, ...],
    n_classes: int,
    settings: Mapping[str, Any],
    hparams: Mapping[str, Any],
    *_: object,
) -> torch.nn.Module:
    """Return a new module, initialised by the factory on the CPU."""
    import torch

    entry, is_image = settings["name"], settings["encode"] == "pixels"
    factory = load(entry)
    constant = {name: built(value) for name, value in settings.get("params", {}).items()}
    every = constant | dict(hparams)
    own = {name: every[name] for name in settings.get("named", ())}
    first = (shape[2], *shape[:2]) if is_image else shape
    values = {
        "shape": first,
        IN_CHANNELS: first[0],
        IN_FEATURES: first[0],
        "hparams": every,
        "n_classes": n_classes,
        NUM_CLASSES: n_classes,
        "cardinality": cardinality,
    }
    offer = {name: partial(values.get, name) for name in offered(settings["encode"], own)}
    named = arguments(factory, offer, own)
    masks = torch.default_generator.get_state()
    torch.default_generator.manual_seed(_word(init))
    model = factory(**named)
    torch.default_generator.set_state(masks)
    if not isinstance(model, torch.nn.Module):
        what = model.__name__ if isinstance(model, type) else type(model).__name__
        raise OwnError(f"{entry} returned {what}, which is not a torch.nn.Module")

    def channels_first(_: object, rows: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return (rows[0].permute(0, 3, 1, 2).contiguous(), *rows[1:])

    def check(_: object, rows: tuple[torch.Tensor, ...], logits: object) -> None:
        wanted = (len(rows[0]), n_classes)
        if not isinstance(logits, torch.Tensor):
            raise OwnError(f"the module of {entry} returned {type(logits).__name__}, not a tensor")
        if logits.shape != wanted:
            shown = tuple(logits.shape)
            raise OwnError(f"the module of {entry} returned shape {shown}; {wanted} is needed")

    if is_image:
        model.register_forward_pre_hook(channels_first)
    model.register_forward_hook(check)
    return model
