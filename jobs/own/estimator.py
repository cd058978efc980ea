"""Fit an estimator that follows scikit-learn's conventions: ``estimator = "module:name"``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.own import calling
from manyseed.jobs.own.calling import OwnError, built, called, encoder, load
from manyseed.jobs.own.frames import framed
from manyseed.jobs.run import Generators, seed31
from manyseed.jobs.training.handling import Alive, FitInput, Fitted

SEEDS = ("random_state", "random_seed", "seed")
"""Parameters that take a seed, by the last part of their name."""

SET_LATER = "each run is then given its own"
"""Why an estimator's seed is to be left out of the code."""

_ALONE: Mapping[str, Any] = {"allow_writing_files": False, "thread_count": 1}
"""Values for parameters of these names that have none: CatBoost would write into the current
folder, and start threads that nothing else limits. Neither changes the fitted model."""

_READ: Mapping[str, Callable[..., calling.Floats]] = {
    "predict_proba": calling.of_probabilities,
    "decision_function": calling.of_decisions,
    "predict": calling.of_labels,
}


def fit(given: FitInput) -> Fitted:
    """Build an estimator, set its seeds, and fit it; see `jobs.classifiers.fit`."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    settings, hparams, data, generators, _ = given
    encode, given_as = encoder(settings["encode"], data), framed(settings["encode"], data)
    X, X_test = encode(data.X), encode(data.X_test)
    started = perf_counter()
    params = {**settings.get("params", {}), **hparams}
    model = build(settings["name"], params)
    seeds = {f"{prefix}{name}": _ALONE[name] for prefix, name in _free(model, _ALONE)}
    if seeds := seeds | seeds_of(settings["seeds"], generators):
        model = given_seeds(model, settings["name"], params, seeds)
    # most estimators need labels 0 … k-1, without gaps for absent classes
    present, y = np.unique(data.y, return_inverse=True)
    with threadpool_limits(limits=1):  # the last bits depend on threads
        model.fit(given_as(X), y.astype(np.int64))
        seconds = perf_counter() - started

    def predict(rows: NDArray[Any]) -> calling.Floats:
        how = settings["scores"]
        with threadpool_limits(limits=1):
            value = getattr(model, how)(given_as(rows))
        classes = present if how == "predict" else present[_columns(model, len(present))]
        return _READ[how](value, how, len(rows), classes, data.n_classes)

    # one-hot columns come last; there is nothing between two labels
    n_continuous = int((data.cardinality == 0).sum()) if settings["encode"] == "dense" else None
    alive = Alive(X, predict, encode, n_continuous=n_continuous, model=model)
    return Fitted(predict(X_test)[np.newaxis], seconds, alive=alive)


def build(entry: str, params: Mapping[str, Any]) -> Any:
    """Return a new estimator, by calling the entry point with `params`."""
    model = called(entry, {name: built(value) for name, value in params.items()})
    if isinstance(model, type) or not callable(getattr(model, "fit", None)):
        raise OwnError(f"{entry} returned {type(model).__name__}, which has no method fit")
    return model


def seeds_of(seeds: Mapping[str, str], generators: Generators) -> dict[str, int]:
    """Return a seed for each parameter that takes one, drawn in the order of their names."""
    return {name: seed31(getattr(generators, seeds[name])) for name in sorted(seeds)}


def given_seeds(model: Any, entry: str, params: Mapping[str, Any], seeds: Mapping[str, Any]) -> Any:
    """Return an estimator with seeds; one without ``set_params`` is built again, with `params`."""
    if not hasattr(model, "set_params"):
        return build(entry, {**params, **seeds})
    model.set_params(**seeds)
    return model


def takes_seeds(model: Any) -> tuple[list[str], list[str]]:
    """Return the parameters of an estimator, and of those within it, that take a seed.

    Returns those without a value, and those with one, which they keep.
    """
    if not _is_settable(model):
        return [], []
    known = model.get_params(deep=True)
    seeds = {name for name in known if name.rpartition("__")[2] in SEEDS}
    given = {name for name in seeds if known[name] is not None}
    listed = {name.removesuffix(name.rpartition("__")[2]) for name in seeds}
    for prefix, name in _free(model, SEEDS):
        if prefix not in listed:  # the first of several names for one seed
            listed.add(prefix)
            seeds.add(f"{prefix}{name}")
    return sorted(seeds - given), sorted(given)


def called_with_seeds(entry: str, params: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the same for an entry point called with `params`, if the result takes none itself."""
    try:
        named = inspect.signature(load(entry)).parameters
    except (TypeError, ValueError):
        return [], []
    known = {
        name: built(params[name]) if name in params else parameter.default
        for name, parameter in named.items()
        if name in SEEDS and parameter.kind is not parameter.POSITIONAL_ONLY
    }
    free = sorted(name for name, value in known.items() if value is None)
    return free, sorted({*known} - {*free})


def _is_settable(model: Any) -> bool:
    return hasattr(model, "get_params") and hasattr(model, "set_params")


def _free(model: Any, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the parameters of these names that have no value, each after its estimator's prefix.

    Some estimators list only parameters that were set; their signature has the others.
    """
    if not _is_settable(model):
        return
    known = model.get_params(deep=True)
    inside = {f"{name}__": part for name, part in known.items() if _is_settable(part)}
    for prefix, part in {"": model, **inside}.items():
        for name in names:
            listed = f"{prefix}{name}" in known
            if known.get(f"{prefix}{name}") is None and (listed or name in _signature(part)):
                yield prefix, name


def _signature(model: Any) -> Container[str]:
    try:
        return inspect.signature(type(model)).parameters
    except (TypeError, ValueError):  # the class is not written in Python
        return ()


def _columns(model: Any, k: int) -> NDArray[np.int64]:
    """Return the label, from 0 to `k` - 1, of each column of an estimator's scores."""
    classes = getattr(model, "classes_", None)
    if classes is None:
        return np.arange(k)
    labels = np.asarray(classes)
    if labels.shape != (k,) or {*labels.tolist()} != {*range(k)}:
        shown = ", ".join(map(repr, labels.ravel()[:8].tolist()))
        reason = f"classes_ of {type(model).__name__} are {shown or 'none'}"
        raise OwnError(f"{reason}; it was given the labels 0 to {k - 1}")
    return labels.astype(np.int64)


def says(model: Any) -> str:
    """Return the method that gives a model's scores: the first of `table.SCORES` that it has."""
    for how in _READ:
        if callable(getattr(model, how, None)):
            return how
    raise OwnError(f"{type(model).__name__} has none of the methods {', '.join(_READ)}")
