"""What a fit is told besides what to train, what it returns, and what is measured of its model.

A model is stored as one row of numbers: float32, or float64 if any array is. An integer, such as
batch norm's count of batches, takes three of them: the base 2^24 digits of its 64 bits, lowest
first, which float32 holds exactly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.run import (
    Generators,
    GpuFull,
    MachineError,
    MemoryFull,
    TrainingSet,
    gaps,
    labels,
)
from manyseed.jobs.training.checkpoint import Checkpoint

if TYPE_CHECKING:  # naming a device should not import torch
    import torch

    from manyseed.jobs.response import ResponseDesign


State = Mapping[str, NDArray[Any]]  # a model's arrays by name, in order

_BITS = 24
_DIGITS = 3


@dataclass(frozen=True, slots=True)
class StateArray:
    """An array of a model.

    Attributes
    ----------
    name, dtype : str
    shape : tuple of int
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def numbers(self) -> int:
        """How many numbers of a row the array takes."""
        return prod(self.shape) * (_DIGITS if np.dtype(self.dtype).kind in "biu" else 1)


def described(state: State) -> tuple[StateArray, ...]:
    """Describe the arrays of a model."""
    return tuple(StateArray(name, str(array.dtype), array.shape) for name, array in state.items())


def length(arrays: Iterable[StateArray]) -> int:
    """Return the length of a row."""
    return sum(array.numbers for array in arrays)


def number_type(arrays: Iterable[StateArray]) -> str:
    """Return the dtype of a row's numbers."""
    row_dtype = "float32"
    for array in arrays:
        dtype = np.dtype(array.dtype)
        if dtype.kind not in "biuf" or dtype.itemsize > 8:
            raise ValueError(f"{array.name} is of {array.dtype}")
        row_dtype = "float64" if dtype == np.float64 else row_dtype
    return row_dtype


def packed(state: State) -> NDArray[Any]:
    """Return a model's arrays as one row of numbers, each array in C order.

    Returns
    -------
    float32 or float64 array (number,)
    """
    arrays = described(state)
    row = np.empty(length(arrays), dtype=number_type(arrays))
    start = 0
    for array in arrays:
        values = np.ascontiguousarray(state[array.name]).ravel()
        if values.dtype.kind in "biu":
            values = _digits(values)
        row[start : start + array.numbers] = values
        start += array.numbers
    return row


def unpacked(arrays: Iterable[StateArray], row: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return the arrays that `packed` put into a row; ignore any numbers after them."""
    arrays = tuple(arrays)
    if len(row) < length(arrays):
        raise ValueError(f"{len(row)} numbers of {length(arrays)}")
    state, start = {}, 0
    for array in arrays:
        values, dtype = row[start : start + array.numbers], np.dtype(array.dtype)
        exact = _integers(values) if dtype.kind in "biu" else values
        state[array.name] = exact.astype(dtype).reshape(array.shape)
        start += array.numbers
    return state


def _digits(values: NDArray[Any]) -> NDArray[np.float64]:
    words = values.astype(np.uint64 if values.dtype == np.uint64 else np.int64).view(np.uint64)
    shifts = np.arange(_DIGITS, dtype=np.uint64) * np.uint64(_BITS)
    digits = (words[:, None] >> shifts) & np.uint64(2**_BITS - 1)
    return digits.astype(np.float64).ravel()


def _integers(digits: NDArray[Any]) -> NDArray[np.int64]:
    words = digits.reshape(-1, _DIGITS).astype(np.uint64)
    shifts = np.arange(_DIGITS, dtype=np.uint64) * np.uint64(_BITS)
    integers: NDArray[np.uint64] = np.bitwise_or.reduce(words << shifts, axis=1)
    return integers.view(np.int64)


Device = Literal["cpu", "gpu"]
Precision = Literal["float32", "bf16"]

PREDICTED_AT_ONCE = 1024  # test rows that a network predicts at a time
IMAGES_AT_ONCE = 128  # on a CPU: with more, what lies between layers leaves the caches


@dataclass(frozen=True, slots=True)
class Alive:
    """A trained model that is still in memory.

    Attributes
    ----------
    rows : array or tensor or None
        The encoded training rows, in order, on the model's device. None for a model rebuilt from
        its kept parameters.
    predict : callable
        ``predict(rows)`` returns scores of encoded rows in the form of `Fitted.scores` without the
        epoch dimension. It draws no random number and does not change the model.
    encode : callable, optional
        ``encode(raw)`` encodes raw rows, a float64 array (n, n_features), for `predict`.
    look_up : callable, optional
        ``look_up(index)`` returns encoded rows of the prepared dataset, given an int64 array (n,);
        replaces `encode` if that would take long.
    model : object, optional
        The trained object: a network's module, or the library's model if it is not made of arrays.
    forward : callable, optional
        For networks, ``forward(rows)`` returns logits (row, class) of a few encoded rows, a tensor
        on the model's device, as fast as possible; last bits may differ from `predict`. Call it
        without gradients, and after `predict`, which sets evaluation mode.
    halves : callable, optional
        ``halves()`` cuts a network after its first block (`jobs.training.network.Network.halves`);
        absent if there is no hidden layer.
    n_continuous : int or None
        How many of the first columns of encoded rows are continuous; None means all.
    state : callable, optional
        ``state()`` returns all arrays of the model, from which it can be rebuilt. Absent if the
        model is not made of arrays.
    test : object, optional
        For networks, the encoded test rows.
    """

    rows: Any
    predict: Callable[[Any], NDArray[np.floating[Any]]]
    encode: Callable[[NDArray[Any]], Any] | None = None
    halves: Callable[[], tuple[Any, Any]] | None = None
    n_continuous: int | None = None
    state: Callable[[], State] | None = None
    look_up: Callable[[NDArray[np.int64]], Any] | None = None
    model: Any = None
    test: Any = None
    forward: Callable[[Any], Any] | None = None


AfterTraining = Callable[[Alive], Mapping[str, NDArray[Any]]]
"""Measures a trained model and returns arrays by name."""


@dataclass(frozen=True, slots=True)
class Handling:
    """How to run a fit and what to keep; the last scores are the same whatever is kept.

    Attributes
    ----------
    snapshots : tuple of int
        Epochs, counted from 1, whose predictions are kept besides the last one's; classifiers
        without epochs keep a single prediction.
    device : {"cpu", "gpu"}
        Where to train, for classifiers that can choose.
    curves : bool
        Whether to record the loss and accuracy of every epoch (`jobs.run.Prediction.curves`), which
        needs `TrainingSet.y_test`. Classifiers without epochs have no curves.
    checkpoint : Checkpoint, optional
        Where a network saves itself after epochs and resumes from. Its key identifies the run and
        its recipe; the caller removes it when the prediction is safe.
    measures : tuple of str
        What to measure of the trained model: names in `jobs.training.handling.MEASURES`; with an
        ensembling method also in `jobs.ensembling.methods.ARRAYS`.
    response : ResponseDesign, optional
        Response curves to measure (`jobs.response.measure`).
    after_training : callable, optional
        Further measurements of the model before it is freed; the trainer makes it from `response`.
    ensembling : mapping, optional
        The method that yields several members, as returned by `jobs.ensembling.methods.resolve`.
        It is part of the run; the trainer sets it from the run's cell.
    timeout : float
        Seconds after which a user's command is stopped; 0 for never.
    precision : {"float32", "bf16"}
        Of a network's matrix products while it is trained; all else is in float32.
    """

    snapshots: tuple[int, ...] = ()
    device: Device = "cpu"
    curves: bool = False
    checkpoint: Checkpoint | None = None
    measures: tuple[str, ...] = ()
    response: ResponseDesign | None = None
    after_training: AfterTraining | None = None
    ensembling: Mapping[str, Any] | None = None
    timeout: float = 0.0
    precision: Precision = "float32"


PLAIN = Handling()


class FitInput(NamedTuple):
    """What a fit is given.

    Attributes
    ----------
    settings : mapping
        The canonical description: the name, the version, the epochs, and what the record's
        ``settings`` returns.
    hparams : mapping
        A value for every hparam, perturbed or not.
    data : TrainingSet
        Training and test rows, before encoding.
    generators : Generators
        All randomness of the fit.
    handling : Handling
        Where to train, and what to keep besides the last prediction.
    """

    settings: Mapping[str, Any]
    hparams: Mapping[str, Any]
    data: TrainingSet
    generators: Generators
    handling: Handling


class Fitted(NamedTuple):
    """The result of a fit.

    Attributes
    ----------
    scores : float array (epoch, sample, class)
        Scores of the test set after each kept epoch, or once if there are no epochs. For two
        classes possibly their gap instead, (epoch, sample): the positive class's score minus the
        other's.
    seconds : float
        Wall time of fitting, without prediction; summed over attempts if training was resumed.
    curves : dict of float32 arrays (epoch,), or None
        As `jobs.run.Prediction.curves`.
    alive : Alive, optional
        The model that gave the last scores.
    members : dict of arrays, or None
        What is kept of an ensembling method's members (`jobs.ensembling.methods.ARRAYS`).
    """

    scores: NDArray[np.floating[Any]]
    seconds: float
    curves: Mapping[str, NDArray[np.float32]] | None = None
    alive: Alive | None = None
    members: Mapping[str, NDArray[np.float32]] | None = None


Measure = Callable[[Alive, TrainingSet], NDArray[Any]]


def measure(
    names: Iterable[str],
    alive: Alive | None,
    data: TrainingSet,
    members: Mapping[str, NDArray[Any]] | None = None,
) -> dict[str, NDArray[Any]] | None:
    """Measure a model after its training; return None if nothing is requested.

    No random number is drawn, and the test set is already predicted, so measuring never changes a
    run's prediction.

    Parameters
    ----------
    names : iterable of str
        Keys of `MEASURES` or `members`.
    alive : Alive or None
        The model.
    data : TrainingSet
        The model's training set.
    members : dict of arrays, optional
        What an ensembling method kept.
    """
    measured: dict[str, NDArray[Any]] = {}
    for name in names:
        if members is not None and name in members:
            measured[name] = members[name]
            continue
        if alive is None:
            raise ValueError(f"{name} cannot be measured: the fit hands over no model")
        measured[name] = MEASURES[name](alive, data)
    return measured or None


def train_accuracy(alive: Alive, data: TrainingSet) -> NDArray[np.float32]:
    """Return the share of training rows that the model predicts correctly, shape ().

    Labels come from float32 scores, as for the test set. NaN if a score is not finite.
    """
    scores = alive.predict(alive.rows)
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.asarray(gaps(scores) if scores.ndim == 2 else scores, dtype=np.float32)
    if not np.isfinite(values).all():
        return np.asarray(np.nan, dtype=np.float32)
    right = labels(values, 2 if values.ndim == 1 else values.shape[1]) == data.y
    return np.asarray(right.mean(), dtype=np.float32)


def parameters(alive: Alive, _: TrainingSet) -> NDArray[Any]:
    """Return all arrays of the model as one row of numbers (`jobs.training.handling.packed`)."""
    if alive.state is None:
        raise ValueError("the model is not made of arrays")
    return packed(alive.state())


MEASURES: Mapping[str, Measure] = {
    "final_train_accuracy": train_accuracy,
    "parameters": parameters,
}
"""By their key in `jobs.run.Prediction.measured`."""


_OF_THE_GPU = re.compile(r"CUDA|cuDNN|CUBLAS|CUDNN|cudaError|NCCL")
"""Found in libraries' messages about a failing GPU; few of these errors have their own type."""

_OF_MEMORY = re.compile(
    r"DefaultCPUAllocator|out of memory|can(no|')t allocate memory|not enough memory"
    r"|bad[_ ]alloc|unable to allocate",
    re.IGNORECASE,
)
"""Found in messages about exhausted memory."""


def torch_device(device: Device) -> torch.device:
    """Return torch's device for a resource class.

    Raises
    ------
    MachineError
        If a GPU is requested and torch sees none.
    """
    import torch

    if device == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise MachineError("torch finds no CUDA device: train on the CPU")
    # Every run gets the same numbers, in the precision that the recipe names.
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    # Of float32's attention kernels on GPUs, this one sums gradients in no fixed order.
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    return torch.device("cuda")


@contextmanager
def faults_of(device: Device) -> Iterator[None]:
    """Raise MachineError if the GPU fails; MemoryFull if memory is exhausted, GpuFull the GPU's."""
    try:
        yield
    except MachineError:
        raise
    except (RuntimeError, ValueError) as error:  # XGBoost raises ValueError
        is_memory = type(error).__name__ == "OutOfMemoryError" or _OF_MEMORY.search(str(error))
        if device == "gpu" and (is_memory or _OF_THE_GPU.search(str(error))):
            kind = GpuFull if is_memory else MachineError
            raise kind(f"the GPU failed: {error}") from error
        if is_memory:
            raise MemoryFull(f"memory is full: {error}") from error
        raise


def gpu_model() -> str:
    """Return the model of the GPU that fits run on.

    Raises
    ------
    MachineError
        If torch sees no GPU.
    """
    import torch

    return str(torch.cuda.get_device_name(torch_device("gpu")))


def gpu_has_bf16() -> bool:
    """Return whether the GPU multiplies matrices in bfloat16, without emulating it."""
    import torch

    return bool(torch.cuda.is_bf16_supported(including_emulation=False))
