"""The arrays of a cell's models, known before any is trained; models rebuilt and saved from them.

Whatever decides the sizes of a model's arrays must be the same for all runs of a cell. To find it,
a network is built without allocating memory while watching which hparams it reads. A model is saved
in a format that its own library reads and that executes no code: ``.npz`` and ``.pt`` hold arrays
by name, ``.json`` XGBoost's trees and ``.skops`` a scikit-learn estimator.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs import classifiers
from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import DatasetInfo, load
from manyseed.jobs.hparams.kinds import Continuous, Hparam, Value
from manyseed.jobs.response import ResponseDesign
from manyseed.jobs.run import Cell, MachineError, Run, TrainingSet
from manyseed.jobs.trainer import Trainer, run_hparams
from manyseed.jobs.training.encode import dense_encoder, pixel_encoder
from manyseed.jobs.training.handling import (
    Alive,
    Device,
    State,
    StateArray,
    length,
    number_type,
    unpacked,
)
from manyseed.jobs.training.network import Named, Network, Shape
from manyseed.jobs.tuning import SEARCH, is_tuned

LARGEST = 256 * 10**6  # limit on the bytes of a run's arrays

OPTION = "parameters"


@runtime_checkable
class OfArrays(Protocol):
    """The `fit` of a classifier whose models are arrays, as `jobs.training.network.Network` is."""

    def arrays(
        self, shape: Shape, n_classes: int, settings: Named, hparams: Named
    ) -> tuple[StateArray, ...]:
        """Return the arrays that a model will have, before there is one.

        `shape`: the shape of an encoded row. `settings` and `hparams`: as in
        `jobs.classifiers.fit`.
        """

    def revive(
        self, settings: Named, hparams: Named, data: TrainingSet, state: State, device: Device
    ) -> Alive:
        """Rebuild a trained model from its arrays.

        `settings` and `hparams`: as in `jobs.classifiers.fit`. `data`: the model's training set,
        which determines scaling and encoding.
        """


@dataclass(frozen=True, slots=True)
class ModelArrays:
    """The arrays of models with certain hparams."""

    hparams: Mapping[str, Value]  # only the hparams that decide sizes; may be empty
    arrays: tuple[StateArray, ...]

    def to_attributes(self) -> dict[str, object]:
        """Return the layout in the form that JSON stores."""
        arrays = [[array.name, array.dtype, [*array.shape]] for array in self.arrays]
        return {"hparams": dict(self.hparams), "arrays": arrays}

    @classmethod
    def from_attributes(cls, value: Mapping[str, Any]) -> ModelArrays:
        """Read what `to_attributes` wrote."""
        arrays = (StateArray(name, dtype, tuple(shape)) for name, dtype, shape in value["arrays"])
        return cls(dict(value["hparams"]), tuple(arrays))

    def fits(self, hparams: Mapping[str, Value]) -> bool:
        """Whether models with these hparams have these arrays."""
        return all(hparams.get(name) == value for name, value in self.hparams.items())

    @property
    def numbers(self) -> int:
        """Length of a row that holds all arrays."""
        return length(self.arrays)

    @property
    def dtype(self) -> str:
        """Data type of such a row."""
        return number_type(self.arrays)


def layouts(cells: Iterable[Cell], dataset: DatasetInfo, name: str) -> tuple[ModelArrays, ...]:
    """Return the distinct array layouts of the models of cells.

    `cells`: cells of one dataset and classifier. `name`: the classifier's name, for messages.
    """
    layouts_by_hparams: dict[tuple[tuple[str, Value], ...], ModelArrays] = {}
    seen: set[tuple[object, ...]] = set()
    shape: Shape | None = None
    for cell in cells:
        if cell.ensembling is not None:
            raise _refused("a run with an ensembling method has several models")
        fit = classifiers.fit_of(cell.classifier)
        if not isinstance(fit, OfArrays):
            raise _refused(f"models of {name} are not arrays of numbers")
        space = classifiers.space(cell.classifier, cell.hparams)
        hparams = _anchors(cell, space)
        is_fixed = cell.perturb_hparams == "none" and not is_tuned(cell)
        key = (is_fixed, *((h.name, hparams[h.name]) for h in space if _may_shape(h)))
        if key in seen:
            continue
        seen.add(key)
        shape = shape or _shape(fit, dataset, cell.classifier)
        watched = _Watched(hparams)
        arrays = fit.arrays(shape, len(dataset.class_names), cell.classifier, watched)
        sizing = [h for h in space if h.name in watched.asked and _may_shape(h)]
        if moved := [h.name for h in sizing if not h.structural and not is_fixed]:
            raise _refused(
                f"the sizes of {name}'s layers follow {' and '.join(moved)}, which differ between "
                "runs where hparams are perturbed or searched for"
            )
        layout = ModelArrays({h.name: hparams[h.name] for h in sizing}, arrays)
        needed = layout.numbers * (8 if layout.dtype == "float64" else 4)
        if needed > LARGEST:
            raise _refused(
                f"models of {name} are {needed / 1e6:,.0f} MB per run; {LARGEST // 10**6} MB are "
                "the most"
            )
        layouts_by_hparams[tuple(layout.hparams.items())] = layout
    return tuple(layouts_by_hparams.values())


def revive(cell: Cell, hparams: Mapping[str, Value], data: TrainingSet, state: State) -> Alive:
    """Rebuild the model of a run on the CPU.

    `hparams`: the run's hparams. `data`: the run's training set. `state`: the model's arrays.
    """
    fit = classifiers.fit_of(cell.classifier)
    if not isinstance(fit, OfArrays):
        raise ValueError(f"models of {cell.classifier['name']} are not arrays")
    return fit.revive(cell.classifier, hparams, data, state, "cpu")


def answers(
    trainer: Trainer,
    run: Run,
    asked: ResponseDesign,
    kept: tuple[Sequence[ModelArrays], NDArray[np.floating[Any]]],
) -> Mapping[str, NDArray[Any]]:
    """Rebuild a run's kept model and ask it (`jobs.response.measure.answers`).

    `trainer`: supplies the run's rows. `kept`: the layouts of the run's group, and the model's row
    of numbers.
    """
    layouts, row = kept
    hparams = run_hparams(run)
    arrays = next((layout.arrays for layout in layouts if layout.fits(hparams)), None)
    if arrays is None:
        raise ValueError("no layout matches the run's hparams")
    try:
        model = revive(run.cell, hparams, trainer.training_set(run), unpacked(arrays, row))
        return trainer.answering(run, asked)(model)
    except ImportError as error:
        raise MachineError(f"{run.cell.classifier['name']} lacks a package: {error}") from error


def _refused(reason: str) -> Refused:
    return Refused(OPTION, True, reason)


def _anchors(cell: Cell, space: Iterable[Hparam]) -> dict[str, Value]:
    """Return a cell's hparams, with the default for each that is searched for."""
    fixed = {name: value for name, value in cell.hparams.items() if name != SEARCH}
    return {**{h.name: h.default for h in space}, **fixed}


def _may_shape(hparam: Hparam) -> bool:
    return not isinstance(hparam, Continuous)


def _shape(fit: Any, dataset: DatasetInfo, settings: Named) -> Shape:
    """Return the shape of an encoded row."""
    if (width := getattr(fit, "width", None)) is not None:
        return (int(width(settings)),)
    encoder: Callable[..., Any] = getattr(fit, "encoder", dense_encoder)
    if encoder is pixel_encoder:
        assert dataset.image is not None
        return dataset.image
    if not dataset.n_categorical:
        return (dataset.n_features,)
    try:
        labels = load(dataset.canonical).cardinality
    except MachineError as error:
        raise _refused(f"the labels of categorical features are not known yet: {error}") from None
    return (dataset.n_continuous + int((labels[labels > 0] + 1).sum()),)


@dataclass
class _Watched(Mapping[str, Any]):
    """Hparams that record which of them are read."""

    values_of: Mapping[str, Any]
    asked: set[str] = field(default_factory=set)

    def __getitem__(self, name: str) -> Any:
        self.asked.add(name)
        return self.values_of[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_of)

    def __len__(self) -> int:
        return len(self.values_of)


Save = Callable[[BinaryIO], object]

READ: Mapping[str, str] = {
    ".pt": "torch.load(FILE, weights_only=True)",
    ".npz": "numpy.load(FILE)",
    ".json": "xgboost.Booster(model_file=FILE)",
    ".skops": "skops.io.load(FILE, trusted=[…])",
}
"""How to read each format."""

_OWN_FORMATS: Mapping[str, tuple[str, ...]] = {"estimator": (".skops",), "module": (".pt", ".npz")}


def endings(canonical: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the formats that fit a classifier's models, the usual one first.

    `canonical`: the classifier's canonical description.
    """
    if "source" in canonical:  # imported: nothing is trained
        return ()
    if classifiers.is_own(canonical):
        return _OWN_FORMATS.get(canonical["form"], ())
    fit = classifiers.fit_of(canonical)
    if isinstance(fit, Network):
        return (".pt", ".npz")
    return (".json",) if canonical["name"] == "xgb" else (".npz",)


def lacking(ending: str) -> str | None:
    """Return the package that a format needs if it is not installed, else None."""
    return "skops" if ending == ".skops" and importlib.util.find_spec("skops") is None else None


def saving(alive: Alive, ending: str) -> Save:
    """Return a function that writes a model to an open file.

    `ending`: one of `endings`.
    """
    if ending == ".pt":
        return lambda file: _state_dict(alive, file)
    if ending == ".npz":
        return lambda file: np.savez(file, **_arrays(alive))
    model = alive.model
    if model is None:
        raise ValueError("the fit hands over no model")
    if ending == ".json":
        return lambda file: file.write(bytes(model.save_raw("json")))
    return lambda file: _skops(model, file)


def _arrays(alive: Alive) -> dict[str, Any]:
    if alive.state is None:
        raise ValueError("the model is not made of arrays")
    return dict(alive.state())


def _state_dict(alive: Alive, file: BinaryIO) -> None:
    import torch

    torch.save({name: torch.tensor(values) for name, values in _arrays(alive).items()}, file)


def _skops(model: Any, file: BinaryIO) -> None:
    from skops.io import dumps  # type: ignore[import-not-found]

    file.write(dumps(model))
