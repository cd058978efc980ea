"""The fit that all networks share: encode, build, initialise, train."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.run import Generators, TrainingSet
from manyseed.jobs.training.encode import Encoder
from manyseed.jobs.training.handling import (
    Alive,
    Device,
    FitInput,
    Fitted,
    Handling,
    State,
    StateArray,
    torch_device,
)

if TYPE_CHECKING:  # planning reads networks' records and should not import torch
    import torch

    from manyseed.jobs.ensembling.ensemble import Ensembling
    from manyseed.jobs.images.transforms import Augmented
    from manyseed.jobs.training.loop import StackedRun

Named = Mapping[str, Any]
Shape = tuple[int, ...]
"""Of an encoded row: (n_features,), or (height, width, channels) of an image."""
Encoded = tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]
Build = Callable[[Shape, int, Named, Named, "torch.Generator"], "torch.nn.Module"]
Part = Callable[["torch.Tensor"], "torch.Tensor"]
"""A part of a network, which shares the network's weights."""
FirstBlock = str | Callable[[Any], tuple[Part, Part]]

RATES = frozenset({"lr", "weight_decay", "dropout"})
"""Hparams in which the runs of a stack may differ; others give networks another structure."""


class _Start(NamedTuple):
    """A run whose training may begin: `test`, its encoded test rows; `seconds` that it took."""

    member: StackedRun
    test: torch.Tensor
    encode: Encoder | None
    masks: torch.Generator
    trajectory: Ensembling | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The `fit` of a network's record.

    The settings name the ``optimizer`` and the ``schedule`` (`jobs.classifiers.record`), with
    ``momentum`` for SGD. The record's space has ``lr``, ``weight_decay`` and, unless the settings
    have a ``batch_size``, ``batch``: the rows per step.

    Attributes
    ----------
    build : callable
        ``build(shape, n_classes, settings, hparams, masks)`` returns a module that maps rows to
        logits (row, class), with its weights not yet filled. While training, only dropout draws,
        from the torch.Generator `masks`.
    encoder : callable, optional
        ``encoder(data)`` returns the encoder of raw rows to the module's input.
    features : callable, optional
        Replaces `encoder`: ``features(data, settings, device)`` returns encoded training and test
        rows. A dataset's runs share them, so their time does not count as fitting.
    initialise : callable, optional
        ``initialise(model, stream)`` fills the weights on the CPU; by default
        `jobs.training.layers.initialise`.
    smallest_batch : int
        A last batch with fewer rows joins the one before (batch norm cannot train on one row).
    first_block : str or callable, optional
        The name of the layer that ends the first block in a sequence of layers, or a function that
        cuts the model there as `halves` does; None if there is no hidden layer.
    width : callable, optional
        ``width(settings)`` returns the number of `features`.
    masks : callable, optional
        ``masks(stream, device)`` returns dropout's generator; by default a new one, seeded from the
        stream.
    stacks : bool
        Whether several runs may be trained at once: `jobs.training.layers.stacked` takes what
        `build` returns.
    """

    build: Build
    encoder: Callable[[TrainingSet], Encoder] | None = None
    features: Callable[[TrainingSet, Named, torch.device], Encoded] | None = None
    initialise: Callable[[Any, np.random.Generator], object] | None = None
    smallest_batch: int = 1
    first_block: FirstBlock | None = None
    width: Callable[[Named], int] | None = None
    masks: Callable[[np.random.Generator, torch.device], torch.Generator] | None = None
    stacks: bool = False

    def __call__(self, given: FitInput) -> Fitted:
        """Train one run (see `jobs.classifiers.fit`)."""
        from manyseed.jobs.training import loop

        start = self._start(given)
        member = start.member
        fitted = loop.train(
            *member[:-2],
            masks=start.masks,
            augmented=member.augmented,
            y_test=member.y_test,
            checkpoint=given.handling.checkpoint,
            trajectory=start.trajectory,
        )
        return self._finished(fitted, start, given.settings, given.data)

    def train_stack(
        self,
        settings: Named,
        runs: Sequence[tuple[Named, TrainingSet, Generators]],
        handling: Handling,
    ) -> list[Fitted]:
        """Train several runs of the same structure at once, if `stacks`.

        Parameters
        ----------
        settings, handling
            Those of all; nothing is saved before the end.
        runs : sequence of (hparams, data, generators)

        Returns
        -------
        list of Fitted
            In the order of the runs.
        """
        import torch

        from manyseed.jobs.training import loop

        starts: list[_Start] = []
        for hparams, data, generators in runs:
            start = self._start(FitInput(settings, hparams, data, generators, handling))
            if starts:  # rows that several runs share are kept once
                member, first = start.member, starts[0]
                if torch.equal(member.X, first.member.X):
                    member = member._replace(X=first.member.X)
                if torch.equal(start.test, first.test):
                    start = start._replace(test=first.test)
                    if data.test_augment == "none":
                        member = member._replace(test_rows=first.member.test_rows)
                start = start._replace(member=member)
            starts.append(start)
        fits = loop.train_stack([start.member for start in starts])
        return [
            self._finished(fitted, start, settings, data)
            for fitted, start, (_, data, _) in zip(fits, starts, runs, strict=True)
        ]

    def _finished(
        self, fitted: Fitted, start: _Start, settings: Named, data: TrainingSet
    ) -> Fitted:
        alive, model = fitted.alive, start.member.model
        if alive is not None:
            alive = self._alive(alive, model, settings, data, start.encode, start.member.X.device)
            alive = replace(alive, model=model, test=start.test)
        return fitted._replace(seconds=start.seconds + fitted.seconds, alive=alive)

    def _start(self, given: FitInput) -> _Start:
        """Encode the data of a run and build its network."""
        import torch

        from manyseed.jobs.training import layers, loop, schedules
        from manyseed.jobs.training.loop import TestRows

        settings, hparams, data, generators, handling = given
        started = perf_counter()
        device = torch_device(handling.device)
        encode = self.encoder(data) if self.encoder is not None else None
        if encode is not None:
            X, X_test = encode(data.X), encode(data.X_test)
        else:
            assert self.features is not None
            X, X_test = self.features(data, settings, device)
            started = perf_counter()
        masks = (self.masks or layers.torch_generator)(generators.dropout, device)
        model = self.build(X.shape[1:], data.n_classes, settings, hparams, masks)
        (self.initialise or layers.initialise)(model, generators.init)
        model.to(device)
        optimizer = _optimizer(model, settings, hparams)
        plan = loop.TrainingPlan(
            epochs=settings["epochs"],
            batch_size=hparams["batch"] if "batch" in hparams else settings["batch_size"],
            rate=schedules.schedule(settings["schedule"], hparams["lr"], settings["epochs"]),
            snapshots=handling.snapshots,
            smallest_batch=self.smallest_batch,
            precision=handling.precision,
        )
        rows = loop.owned(X, device, torch.float32), loop.owned(data.y, device, torch.int64)
        rows_test = loop.owned(X_test, device, torch.float32)
        trajectory = None
        if (method := handling.ensembling) is not None:
            from manyseed.jobs.ensembling.algorithms import ensemble
            from manyseed.jobs.ensembling.ensemble import Material

            size = method.get("batch_size", plan.batch_size)
            material = Material(
                model=model,
                optimizer=optimizer,
                X=rows[0],
                y=rows[1],
                epochs=settings["epochs"],
                batch_size=size,
                smallest_batch=self.smallest_batch,
                rate=hparams["lr"],
                schedule=partial(schedules.schedule, settings["schedule"]),
                weight_decay=hparams["weight_decay"],
                generators=generators,
            )
            trajectory = ensemble(method, material, handling.measures)
            plan = replace(plan, epochs=trajectory.epochs, rate=trajectory.rate, batch_size=size)
            if "momentum" in method:
                for group in optimizer.param_groups:
                    group["momentum"] = method["momentum"]
        y_test = None
        if handling.curves and data.y_test is not None:
            y_test = loop.owned(data.y_test, device, torch.int64)
        augmented = augmented_test = None
        if data.augment != "none":
            augmented = _augmented(data, encode, generators.augment, device)
        if data.test_augment != "none":
            augmented_test = _augmented(data, encode, generators.test_augment, device, test=True)
        test = TestRows(rows_test, augmented_test)
        member = loop.StackedRun(
            *(model, optimizer, *rows, test, plan, generators.batch, y_test, augmented)
        )
        seconds = perf_counter() - started
        return _Start(member, rows_test, encode, masks, trajectory, seconds)

    def revive(
        self, settings: Named, hparams: Named, data: TrainingSet, state: State, device: Device
    ) -> Alive:
        """Rebuild a trained model that predicts as it did after training, bit for bit.

        Parameters
        ----------
        settings, hparams, data
            Those of its fit.
        state : dict of arrays
            The model's arrays, as `Alive.state` returned them.
        device : {"cpu", "gpu"}
        """
        import torch

        from manyseed.jobs.training import layers, loop

        target = torch_device(device)
        encode = self.encoder(data) if self.encoder is not None else None
        shape, masks = self.shape(settings, encode), torch.Generator(target)
        model = self.build(shape, data.n_classes, settings, hparams, masks)
        # sets the memory format; all values are replaced
        (self.initialise or layers.initialise)(model, np.random.default_rng(0))
        model.load_state_dict({name: torch.tensor(values) for name, values in state.items()})
        model.to(target)
        alive = replace(loop.alive(model, None), model=model)
        return self._alive(alive, model, settings, data, encode, target)

    def shape(self, settings: Named, encode: Encoder | None) -> Shape:
        """Return the shape of an encoded row."""
        if encode is not None:
            return encode.shape
        assert self.width is not None
        return (self.width(settings),)

    def arrays(
        self, shape: Shape, n_classes: int, settings: Named, hparams: Named
    ) -> tuple[StateArray, ...]:
        """Return the arrays that a model will have (`jobs.parameters.OfArrays`)."""
        import torch

        masks = torch.Generator()
        with torch.device("meta"):
            model = self.build(shape, n_classes, settings, hparams, masks)
        return tuple(
            StateArray(name, str(values.dtype).removeprefix("torch."), tuple(values.shape))
            for name, values in model.state_dict().items()
        )

    def _alive(
        self,
        alive: Alive,
        model: torch.nn.Module,
        settings: Named,
        data: TrainingSet,
        encode: Encoder | None,
        device: torch.device,
    ) -> Alive:
        """Add what depends on the network's encoder and layers."""
        import torch

        from manyseed.jobs.training import loop
        from manyseed.jobs.training.layers import evaluation

        def state() -> State:
            arrays = model.state_dict().items()
            return {name: values.detach().cpu().numpy() for name, values in arrays}

        alive = replace(alive, state=state, forward=evaluation(model))
        if encode is None:
            in_dataset, features = data.in_dataset, self.features
            if in_dataset is None or features is None:
                return alive

            def look_up(index: NDArray[np.int64]) -> torch.Tensor:
                rows = replace(in_dataset, train=index, test=index[:0])
                encoded, _ = features(replace(data, in_dataset=rows), settings, device)
                return loop.owned(encoded, device, torch.float32)

            return replace(alive, look_up=look_up)
        return replace(
            alive,
            encode=lambda raw: loop.owned(encode(raw), device, torch.float32),
            halves=None if self.first_block is None else lambda: self.halves(model),
            n_continuous=None if encode.continuous.all() else int(encode.continuous.sum()),
        )

    def halves(self, model: torch.nn.Module) -> tuple[Part, Part]:
        """Cut a model after its first block, including that block's non-linearity.

        Parameters
        ----------
        model : torch.nn.Module
            A model that `build` returned; both parts share its weights and its mode.

        Returns
        -------
        tuple of callable
            From rows to the block's output (row, ...), and from there to logits (row, class); the
            composition equals the model bit for bit.
        """
        from torch import nn

        if self.first_block is None:
            raise ValueError("the network has no hidden layer")
        if callable(self.first_block):
            return self.first_block(model)
        names, layers = zip(*model.named_children(), strict=True)
        end = 1 + names.index(self.first_block)
        # the layers keep their mode: a new sequence does not set it
        return nn.Sequential(*layers[:end]), nn.Sequential(*layers[end:])


def _augmented(
    data: TrainingSet,
    encode: Encoder | None,
    draws: np.random.Generator | None,
    device: torch.device,
    *,
    test: bool = False,
) -> Augmented:
    """Return the training or test images, transformed at each presentation."""
    from manyseed.jobs.images.transforms import Augmented

    if encode is None or draws is None:
        raise ValueError("augmentation needs encoded pixels and a stream to draw from")
    return Augmented(data, encode, draws, device, test=test)


def _optimizer(model: torch.nn.Module, settings: Named, hparams: Named) -> torch.optim.Optimizer:
    """Return an optimizer of the model's parameters; SGD adds weight decay to the gradient."""
    import torch

    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    momentum = {"momentum": settings["momentum"]} if "momentum" in settings else {}
    optimizer: torch.optim.Optimizer = kinds[settings["optimizer"]](
        model.parameters(),
        lr=hparams["lr"],
        weight_decay=hparams["weight_decay"],
        fused=True,
        **momentum,
    )
    return optimizer
