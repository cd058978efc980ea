"""An estimator that follows scikit-learn's conventions, fitted: ``estimator = "module:name"``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.own import scores
from manyseed.jobs.own.calling import OwnError, built, encoder, load
from manyseed.jobs.run import Generators, TrainingSet
from manyseed.jobs.streams import seed31
from manyseed.jobs.training.handling import Alive, Fitted, Handling

SEEDS = ("random_state", "random_seed", "seed")
"""Parameters that take a seed, by the last part of their name."""

_ALONE: Mapping[str, Any] = {"allow_writing_files": False, "thread_count": 1}
"""What parameters of these names are given that have no value: CatBoost would write into the
current folder, and start threads that nothing else limits. Neither changes what is fitted."""

_READ: Mapping[str, Callable[..., scores.Floats]] = {
    "predict_proba": scores.of_probabilities,
    "decision_function": scores.of_decisions,
    "predict": scores.of_labels,
}


def fit(
    settings: Mapping[str, Any],
    hparams: Mapping[str, Any],
    data: TrainingSet,
    generators: Generators,
    handling: Handling,
) -> Fitted:
    """Build an estimator, give it its seeds, and fit it; see `jobs.classifiers.fit`."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    encode = encoder(settings["encode"], data)
    X, X_test = encode(data.X), encode(data.X_test)
    started = perf_counter()
    model = build(settings["name"], {**settings.get("params", {}), **hparams})
    given = {f"{prefix}{name}": _ALONE[name] for prefix, name in _free(model, _ALONE)}
    if given := given | seeds_of(settings["seeds"], generators):
        model.set_params(**given)
    # 0 … k-1 whatever is absent, as most estimators ask for
    present, y = np.unique(data.y, return_inverse=True)
    with threadpool_limits(limits=1):  # the last bits depend on threads
        model.fit(X, y.astype(np.int64))
        seconds = perf_counter() - started

    def predict(rows: NDArray[Any]) -> scores.Floats:
        how = settings["scores"]
        with threadpool_limits(limits=1):
            value = getattr(model, how)(rows)
        classes = present if how == "predict" else present[_columns(model, len(present))]
        return _READ[how](value, how, len(rows), classes, data.n_classes)

    # of one-hot columns, which stand last, nothing lies between two labels
    n_continuous = int((data.cardinality == 0).sum()) if settings["encode"] == "dense" else None
    alive = Alive(X, predict, encode, n_continuous=n_continuous, model=model)
    return Fitted(predict(X_test)[np.newaxis], seconds, alive=alive)


def build(entry: str, params: Mapping[str, Any]) -> Any:
    """Return a new estimator: what the entry point returns when it is called with `params`."""
    model = load(entry)(**{name: built(value) for name, value in params.items()})
    if isinstance(model, type) or not callable(getattr(model, "fit", None)):
        raise OwnError(f"{entry} returned {type(model).__name__}, which has no method fit")
    return model


def seeds_of(seeds: Mapping[str, str], generators: Generators) -> dict[str, int]:
    """Return the seed of each parameter that takes one, each a word of its stream.

    Parameters of one stream draw from it in the order of their names.
    """
    return {name: seed31(getattr(generators, seeds[name])) for name in sorted(seeds)}


def takes_seeds(model: Any) -> tuple[list[str], list[str]]:
    """Return the parameters of an estimator, and of those in it, that take a seed.

    Returns
    -------
    tuple of list of str
        Those that have none yet; and those that have one, which stay as they are.
    """
    if not _is_settable(model):
        return [], []
    known = model.get_params(deep=True)
    found = {name for name in known if name.rpartition("__")[2] in SEEDS}
    given = {name for name in found if known[name] is not None}
    listed = {name.removesuffix(name.rpartition("__")[2]) for name in found}
    for prefix, name in _free(model, SEEDS):
        if prefix not in listed:  # of several names for one seed the first
            listed.add(prefix)
            found.add(f"{prefix}{name}")
    return sorted(found - given), sorted(given)


def _is_settable(model: Any) -> bool:
    return hasattr(model, "get_params") and hasattr(model, "set_params")


def _free(model: Any, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield which parameters of these names have no value, each behind its estimator's prefix.

    Some estimators list only what was set; what else they take, their signature says.
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
    except (TypeError, ValueError):  # of what is not written in Python
        return ()


def _columns(model: Any, k: int) -> NDArray[np.int64]:
    """Return which of the `k` labels that it was given each column of an estimator's scores is.

    Raises
    ------
    OwnError
        Where its ``classes_`` are other ones.
    """
    classes = getattr(model, "classes_", None)
    if classes is None:
        return np.arange(k)
    found = np.asarray(classes)
    if found.shape != (k,) or {*found.tolist()} != {*range(k)}:
        shown = ", ".join(map(repr, found.ravel()[:8].tolist()))
        reason = f"classes_ of {type(model).__name__} are {shown or 'none'}"
        raise OwnError(f"{reason}; it was given the labels 0 to {k - 1}")
    return found.astype(np.int64)


def says(model: Any) -> str:
    """Return how a model says what it thinks of test rows, of `table.SCORES` the first it has.

    Raises
    ------
    OwnError
        Where it has none of them.
    """
    for how in _READ:
        if callable(getattr(model, how, None)):
            return how
    raise OwnError(f"{type(model).__name__} has none of the methods {', '.join(_READ)}")
