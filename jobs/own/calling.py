"""Call users' code, and turn its output for test rows into the scores that a sweep keeps.

The scores keep the labels of the code's own numbers: the first of several equal classes, as in
scikit-learn's `predict`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import NOTHING, did_you_mean
from manyseed.jobs.datasets.frame import is_masked
from manyseed.jobs.run import OFF, TrainingSet, are_probabilities
from manyseed.jobs.training.encode import dense_encoder, pixel_encoder


class CodeFailed(Exception):
    """Users' code failed, and its run with it.

    `needs`: what its table should have instead, by key.
    """

    def __init__(self, reason: str, needs: Mapping[str, str] = NOTHING) -> None:
        super().__init__(reason)
        self.needs = needs

    def __str__(self) -> str:
        lacking = ", ".join(f'{key} = "{value}"' for key, value in self.needs.items())
        return f"{self.args[0]}; its table needs {lacking}" if lacking else str(self.args[0])


class OwnError(CodeFailed, RuntimeError):
    """Users' code misbehaved; the run fails, not the machine."""


class LabelsGiven(OwnError):
    """Labels were returned where scores are needed."""


class CommandError(CodeFailed):
    """A user's command failed; the run fails, even if the command ran out of memory."""


def load(entry: str) -> Any:
    """Import the object that an entry point names."""
    module_name, _, names = entry.partition(":")
    named: Any = importlib.import_module(module_name)
    for name in names.split("."):
        try:
            named = getattr(named, name)
        except AttributeError:
            near = did_you_mean(name, (one for one in dir(named) if not one.startswith("_")))
            raise ImportError(f"{module_name} has no {names}{near}") from None
    return named


class NotTaken(OwnError):
    """A function is to get an argument that it does not take; `name` is the argument's."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


def asked(function: Any, offered: Sequence[str], given: Collection[str] = ()) -> list[str]:
    """Return which arguments a user's function takes by name: offered ones, then the user's.

    `given`: names of the user's own, which it takes one by one, all by ``**``, or as the mapping
    hparams.
    """
    if not callable(function):
        raise OwnError(f"it is {type(function).__name__}, not a function")
    names, own, others, is_open = list[str](), list[str](), list[str](), False
    for name, parameter in inspect.signature(function).parameters.items():
        is_named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        is_open |= parameter.kind is parameter.VAR_KEYWORD
        if is_named and name in offered:
            names.append(name)
        elif is_named and name in given:
            own.append(name)
        elif is_named and parameter.default is parameter.empty:
            hint = did_you_mean(name, offered) or f"; there are {', '.join(offered)}"
            raise OwnError(f"it asks for {name}{hint}")
        elif is_named:
            others.append(name)
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            raise OwnError(f"{name} cannot be given by its name")
    if "hparams" in names:
        return [*names, *own]
    left = [name for name in given if name not in own]
    if is_open:
        own += [name for name in left if name not in names]
        left = [name for name in left if name in names]
    if left and left[0] in offered:
        raise NotTaken(left[0], f"{left[0]} comes from the data and the run")
    if left:
        known = [*own, *others]
        has = f"it takes {', '.join(known)}; " if known else ""
        hint = did_you_mean(left[0], known) or f"; {has}an argument named hparams takes all"
        what = getattr(function, "__qualname__", "it")
        raise NotTaken(left[0], f"{what} has no parameter {left[0]}{hint}")
    return [*names, *own]


def arguments(
    function: Any, offer: Mapping[str, Callable[[], Any]], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments for a user's function, of those offered and the user's own."""
    names = asked(function, [*offer], given)
    return {name: offer[name]() if name in offer else given[name] for name in names}


def called(entry: str, params: Mapping[str, Any]) -> Any:
    """Return what an entry point returns for these parameters; an estimator is copied."""
    function = load(entry)
    if hasattr(function, "fit") and hasattr(function, "set_params") and not callable(function):
        return _copied(function, params)
    if not callable(function):
        kind = type(function).__name__
        reason = f"it is an object, {kind}, not a function or class"
        raise OwnError(f"{reason}; write a function that returns it")
    try:
        return function(**params)
    except TypeError:
        try:
            known = dict(inspect.signature(function).parameters)
        except (TypeError, ValueError):  # of some functions in C
            known = {}
        is_open = not known or any(one.kind is one.VAR_KEYWORD for one in known.values())
        for name in () if is_open else params:
            if name not in known:
                hint = did_you_mean(name, known) or f"; it has {', '.join(known)}"
                raise OwnError(f"{function.__qualname__} has no parameter {name}{hint}") from None
        raise


def _copied(estimator: Any, params: Mapping[str, Any]) -> Any:
    """Return an unfitted copy of an estimator, with these parameters set."""
    from sklearn.base import clone

    known = estimator.get_params(deep=True)
    for name in params:
        if name not in known:
            hint = did_you_mean(name, known) or f"; it has {', '.join(known)}"
            raise OwnError(f"{type(estimator).__name__} has no parameter {name}{hint}")
    return clone(estimator).set_params(**params)


def built(value: Any) -> Any:
    """Return the object that a value of ``params`` stands for.

    A table with ``estimator`` stands for what that returns when called with the table's ``params``;
    one with ``import`` for the object it names; ``{ none = true }`` for None; ``{ tuple = […] }``
    for a tuple. Other values stand for themselves.
    """
    if isinstance(value, Mapping):
        if "estimator" in value:
            inner = {name: built(each) for name, each in value.get("params", {}).items()}
            return called(value["estimator"], inner)
        if {*value} == {"import"}:
            return load(value["import"])
        if {*value} == {"none"}:
            return None
        if {*value} == {"tuple"}:
            return tuple(built(each) for each in value["tuple"])
        return {name: built(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [built(each) for each in value]
    return value


def encoder(how: str, data: TrainingSet) -> Callable[[NDArray[np.float64]], NDArray[Any]]:
    """Return a function from raw rows to arrays as the table's ``encode`` asks for."""
    if how == "dense":
        return dense_encoder(data)
    if how == "pixels":
        return pixel_encoder(data)
    return lambda raw: raw


FLOOR = float(np.finfo(np.float32).tiny)
"""Smaller probabilities are raised to this: the logarithm of 0 is not a score."""

Floats = NDArray[np.float64]


def array(value: Any, what: str) -> Floats:
    """Return numbers, also tensors, as float64; `what` names their origin in messages."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if is_masked(value):
        raise OwnError(f"{what} returned masked values")
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise OwnError(f"{what} did not return numbers: {error}") from error


def of_probabilities(value: Any, what: str, n: int, present: NDArray[Any], k: int) -> Floats:
    """Return logarithms of probabilities (sample, class), or with two classes their gap (sample,).

    `value`, array (n, classes): a column for each class of the training rows; or with two classes
    the positive one's, (n,). `what`: its origin, for messages. `n`: number of test rows. `present`:
    the classes of the training rows, in the order of the columns. `k`: number of all classes;
    absent ones get the probability `FLOOR`.
    """
    p = array(value, what)
    if k == 2 and p.shape == (n,):
        p = np.stack([1 - p, p], axis=1)
    require(p, what, (n, len(present)))
    if (p < -1e-6).any() or (p > 1 + 1e-6).any():
        worst = float(p.flat[np.nanargmax(np.abs(p - 0.5))])
        raise OwnError(f"{what} returned {worst:g}, which is not a probability")
    sums = p.sum(axis=1)
    if (abs(sums - 1) > OFF).any():
        worst = float(sums[np.nanargmax(abs(sums - 1))])
        raise OwnError(f"{what} returned probabilities of a row that sum to {worst:g}, not to 1")
    whole = np.zeros((n, k))
    whole[:, present] = p
    logs = np.log(np.maximum(whole, FLOOR))
    logs[:, present] = np.where(np.isnan(p), np.nan, logs[:, present])
    return _as_kept(logs, present[p.argmax(axis=1)])


def of_decisions(value: Any, what: str, n: int, present: NDArray[Any], k: int) -> Floats:
    """Return decision values (sample, class), or with two classes their gap.

    Absent classes get one less than the row's lowest value.

    `value`, array (n, present class), or with two classes (n,) or (n, 1). `what`, `n`, `present`
    and `k`: as in `of_probabilities`.
    """
    values = array(value, what)
    if len(present) == 2 and values.shape in ((n,), (n, 1)):
        values = np.outer(values.ravel(), [-0.5, 0.5])
    require(values, what, (n, len(present)))
    whole = np.repeat(values.min(axis=1, keepdims=True) - 1, k, axis=1)
    whole[:, present] = values
    return _as_kept(whole, present[values.argmax(axis=1)])


def of_labels(value: Any, what: str, n: int, present: NDArray[Any], k: int) -> Floats:
    """Return 1 for the predicted class and 0 for all others, or with two classes their gap.

    `value`, array (n,) or (n, 1): positions in `present`, which ascends. `what`, `n`, `present` and
    `k`: as in `of_probabilities`.
    """
    predicted = array(value, what)
    if predicted.shape == (n, 1):
        predicted = predicted[:, 0]
    require(predicted, what, (n,))
    known = np.isin(predicted, np.arange(len(present)))
    if not known.all():
        odd = predicted[~known][0]
        raise OwnError(
            f"{what} returned the label {odd:g}; it was given the labels 0 to {len(present) - 1}"
        )
    label = present[predicted.astype(np.int64)]
    whole = np.zeros((n, k))
    whole[np.arange(n), label] = 1
    return _as_kept(whole, label)


def require(values: Floats, what: str, shape: tuple[int, ...]) -> None:
    """Refuse any other shape."""
    if values.shape == shape:
        return
    reason = f"{what} returned shape {values.shape}; {shape} is needed"
    is_single = values.shape in (shape[:1], (*shape[:1], 1)) and len(shape) > 1
    if is_single and bool((values == np.round(values)).all()):
        raise LabelsGiven(f"{reason}: a score for each class, not labels")
    raise OwnError(reason)


def require_labels(value: Any, what: str, n: int, k: int) -> None:
    """Refuse scores (sample, class), or with two classes (sample,), where labels are needed."""
    values = array(value, what)
    is_whole = bool((values == np.round(values)).all())
    if values.shape != (n, k) and (k != 2 or values.size != n or is_whole):
        return
    how = "probabilities" if are_probabilities(values) else "logits"
    raise OwnError(f"{what} returned scores of shape {values.shape}, not labels", {"scores": how})


def require_logits(values: Floats, what: str) -> None:
    """Refuse logits (sample, class) if each row could be the probabilities of its classes."""
    if are_probabilities(values):
        raise OwnError(
            f"{what} returned probabilities, not logits: each row lies in 0 to 1 and sums to 1",
            {"scores": "probabilities"},
        )


def _as_kept(scores: Floats, label: NDArray[Any]) -> Floats:
    """Return scores (sample, class) that are largest for `label` (sample,), also in float32.

    With two classes, return their gap (sample,), which is positive for the second.
    """
    if scores.shape[1] == 2:
        gap: Floats = (scores[:, 1] - scores[:, 0]).astype(np.float32).astype(np.float64)
        return np.where((gap >= 0) & (label == 0) & ~np.isnan(gap), -FLOOR, gap)
    kept = scores.astype(np.float32)
    off = np.flatnonzero((kept.argmax(axis=1) != label) & ~np.isnan(kept).any(axis=1))
    kept[off, label[off]] = np.nextafter(kept[off].max(axis=1), np.float32(np.inf))
    return kept.astype(np.float64)
