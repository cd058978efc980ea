"""The fit that all networks share: encode, build, initialise, train."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.run import Generators, TrainingSet
from manyseed.jobs.training.device import torch_device
from manyseed.jobs.training.encode import Encoder
from manyseed.jobs.training.handling import Alive, Device, Fitted, Handling
from manyseed.jobs.training.state import State, StateArray

if TYPE_CHECKING:  # planning reads networks' records and need not wait for torch
    import torch

    from manyseed.jobs.images.augment import Augmented

Named = Mapping[str, Any]
Encoded = tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]
Build = Callable[[tuple[int, ...], int, Named, Named, "torch.Generator"], "torch.nn.Module"]
Part = Callable[["torch.Tensor"], "torch.Tensor"]
"""A part of a network, with the network's own weights."""
FirstBlock = str | Callable[[Any], tuple[Part, Part]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The `fit` of a network's record.

    The settings name the ``optimizer`` and the ``schedule``, of `jobs.classifiers.optimizers`, with
    ``momentum`` where they name SGD, and the record's space has ``lr``, ``weight_decay`` and,
    unless a setting ``batch_size`` says it, ``batch``: the rows of a step.

    Attributes
    ----------
    build : callable
        ``build(shape, n_classes, settings, hparams, masks)`` returns a module that maps rows of
        this shape to logits (row, class), its weights not yet filled. Nothing but dropout draws
        while it is trained, from the torch.Generator `masks`.
    encoder : callable, optional
        ``encoder(data)`` returns what makes rows as the module takes them of raw ones.
    features : callable, optional
        In its place: ``features(data, settings, device)`` returns training and test rows as the
        module takes them, which a dataset's runs share: their time is no fit's.
    initialise : callable, optional
        ``initialise(model, stream)`` fills the weights on the CPU; without it
        `jobs.training.layers.initialise` does.
    smallest_batch : int
        A last batch with fewer rows joins the one before (batch norm cannot train on one row).
    first_block : str or callable, optional
        The layer that ends the network's first block, by its name in a sequence of layers, or a
        function that cuts the model there as `halves` does; None where nothing is hidden.
    width : callable, optional
        ``width(settings)``: how many `features` there are.
    masks : callable, optional
        ``masks(stream, device)`` returns the generator that dropout draws from; by default one of
        its own.
    """

    build: Build
    encoder: Callable[[TrainingSet], Encoder] | None = None
    features: Callable[[TrainingSet, Named, torch.device], Encoded] | None = None
    initialise: Callable[[Any, np.random.Generator], object] | None = None
    smallest_batch: int = 1
    first_block: FirstBlock | None = None
    width: Callable[[Named], int] | None = None
    masks: Callable[[np.random.Generator, torch.device], torch.Generator] | None = None

    def __call__(
        self,
        settings: Named,
        hparams: Named,
        data: TrainingSet,
        generators: Generators,
        handling: Handling,
    ) -> Fitted:
        """Train one run; see `jobs.classifiers.fit`."""
        import torch

        from manyseed.jobs.training import layers, loop
        from manyseed.jobs.training.testrows import TestRows

        started = perf_counter()
        place = torch_device(handling.device)
        encode = self.encoder(data) if self.encoder is not None else None
        if encode is not None:
            X, X_test = encode(data.X), encode(data.X_test)
        else:
            assert self.features is not None
            X, X_test = self.features(data, settings, place)
            started = perf_counter()
        masks = (self.masks or layers.torch_generator)(generators.dropout, place)
        model = self.build(X.shape[1:], data.n_classes, settings, hparams, masks)
        (self.initialise or layers.initialise)(model, generators.init)
        model.to(place)
        optimizer = _optimizer(model, settings, hparams)
        plan = loop.TrainingPlan(
            epochs=settings["epochs"],
            batch_size=hparams["batch"] if "batch" in hparams else settings["batch_size"],
            rate=loop.schedule(settings["schedule"], hparams["lr"], settings["epochs"]),
            snapshots=handling.snapshots,
            smallest_batch=self.smallest_batch,
        )
        rows = loop.owned(X, place, torch.float32), loop.owned(data.y, place, torch.int64)
        rows_test = loop.owned(X_test, place, torch.float32)
        trajectory = None
        if (method := handling.ensembling) is not None:
            from manyseed.jobs.ensembling.ensemble import Material
            from manyseed.jobs.ensembling.making import ensemble

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
                schedule=partial(loop.schedule, settings["schedule"]),
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
            y_test = loop.owned(data.y_test, place, torch.int64)
        augmented = seen = None
        if data.augment != "none":
            augmented = _augmented(data, encode, generators.augment, place)
        if data.test_augment != "none":
            seen = _augmented(data, encode, generators.test_augment, place, test=True)
        tested = TestRows(rows_test, seen)
        built = perf_counter() - started
        fitted = loop.train(
            model,
            optimizer,
            *rows,
            tested,
            plan,
            generators.batch,
            masks=masks,
            augmented=augmented,
            y_test=y_test,
            checkpoint=handling.checkpoint,
            trajectory=trajectory,
        )
        alive = fitted.alive
        if alive is not None:
            alive = self._alive(alive, model, settings, data, encode, place)
            alive = replace(alive, model=model, test=rows_test)
        return fitted._replace(seconds=built + fitted.seconds, alive=alive)

    def revive(
        self, settings: Named, hparams: Named, data: TrainingSet, state: State, device: Device
    ) -> Alive:
        """Return a trained model that answers as it did when it had been trained, bit for bit.

        Parameters
        ----------
        settings, hparams, data
            Of its fit.
        state : dict of arrays
            Of the model, as `Alive.state` returned them.
        device : {"cpu", "gpu"}
        """
        import torch

        from manyseed.jobs.training import layers, loop

        place, encode = torch_device(device), None
        if self.encoder is not None:
            encode = self.encoder(data)
        model = self.build(
            self.shape(settings, encode),
            data.n_classes,
            settings,
            hparams,
            torch.Generator(place),
        )
        # for the memory format: all values are replaced
        (self.initialise or layers.initialise)(model, np.random.default_rng(0))
        model.load_state_dict({name: torch.tensor(values) for name, values in state.items()})
        model.to(place)
        return self._alive(loop.alive(model, None), model, settings, data, encode, place)

    def shape(self, settings: Named, encode: Encoder | None) -> tuple[int, ...]:
        """Return the shape of a row as the module takes it."""
        if encode is not None:
            return encode.shape
        assert self.width is not None
        return (self.width(settings),)

    def arrays(
        self, shape: tuple[int, ...], n_classes: int, settings: Named, hparams: Named
    ) -> tuple[StateArray, ...]:
        """Return what arrays a model will have, before there is any."""
        import torch

        masks = torch.Generator()
        with torch.device("meta"):
            model = self.build(shape, n_classes, settings, hparams, masks)
        return tuple(
            StateArray(name, str(one.dtype).removeprefix("torch."), tuple(one.shape))
            for name, one in model.state_dict().items()
        )

    def _alive(
        self,
        alive: Alive,
        model: torch.nn.Module,
        settings: Named,
        data: TrainingSet,
        encode: Encoder | None,
        place: torch.device,
    ) -> Alive:
        """Add what is known of a model's rows and layers."""
        import torch

        from manyseed.jobs.training import loop
        from manyseed.jobs.training.blocked import evaluation

        def state() -> State:
            return {name: one.detach().cpu().numpy() for name, one in model.state_dict().items()}

        alive = replace(alive, state=state, forward=evaluation(model))
        if encode is None:
            known, features = data.in_dataset, self.features
            if known is None or features is None:
                return alive

            def look_up(index: NDArray[np.int64]) -> torch.Tensor:
                rows = replace(known, train=index, test=index[:0])
                found, _ = features(replace(data, in_dataset=rows), settings, place)
                return loop.owned(found, place, torch.float32)

            return replace(alive, look_up=look_up)
        return replace(
            alive,
            encode=lambda raw: loop.owned(encode(raw), place, torch.float32),
            halves=None if self.first_block is None else lambda: self.halves(model),
            n_continuous=None if encode.continuous.all() else int(encode.continuous.sum()),
        )

    def halves(self, model: torch.nn.Module) -> tuple[Part, Part]:
        """Cut a model behind its first block, after that block's non-linearity.

        Parameters
        ----------
        model : torch.nn.Module
            As `build` returns it; both parts share its weights and its mode.

        Returns
        -------
        tuple of callable
            From rows to the block's output (row, ...), and from there to logits (row, class): one
            after the other they compute what the model does, bit for bit.

        Raises
        ------
        ValueError
            For a network without a hidden layer.
        """
        from torch import nn

        if self.first_block is None:
            raise ValueError("the network has no hidden layer")
        if callable(self.first_block):
            return self.first_block(model)
        layers = dict(model.named_children())
        end = 1 + [*layers].index(self.first_block)
        parts = [*layers.values()]
        # in the mode that the layers are in: a new sequence sets none
        return nn.Sequential(*parts[:end]), nn.Sequential(*parts[end:])


def _augmented(
    data: TrainingSet,
    encode: Encoder | None,
    draws: np.random.Generator | None,
    place: torch.device,
    *,
    test: bool = False,
) -> Augmented:
    """Return the training or the test images as they are presented."""
    from manyseed.jobs.images.augment import Augmented

    if encode is None or draws is None:
        raise ValueError("augmentation needs pixels that are encoded, and a stream to draw from")
    return Augmented(data, encode, draws, place, test=test)


def _optimizer(model: torch.nn.Module, settings: Named, hparams: Named) -> torch.optim.Optimizer:
    """Return an optimizer of the model's parameters; SGD's weight decay is a gradient's part."""
    import torch

    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    more = {"momentum": settings["momentum"]} if "momentum" in settings else {}
    made: torch.optim.Optimizer = kinds[settings["optimizer"]](
        model.parameters(),
        lr=hparams["lr"],
        weight_decay=hparams["weight_decay"],
        fused=True,
        **more,
    )
    return made
