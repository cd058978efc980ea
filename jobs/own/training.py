"""A training function: ``train = "module:name"`` is called once per run and returns scores.

It is called with those of `OFFERED` that are among its parameters, and with the user's params and
hparams, all by name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from manyseed.jobs.own import calling
from manyseed.jobs.own.calling import arguments, built, load
from manyseed.jobs.own.frames import encoded
from manyseed.jobs.training.checkpoint import Checkpoint
from manyseed.jobs.training.handling import FitInput, Fitted

STREAMS = ("init", "batch", "dropout")
OFFERED = (
    *("X", "y", "X_test", "n_classes", "cardinality", "image", "hparams"),
    *STREAMS,
    *("device", "checkpoint"),
)
_KEY = ".key"  # the file in a checkpoint's folder that says which run and recipe it belongs to


def fit(given: FitInput) -> Fitted:
    """Call a training function; see `jobs.classifiers.fit`."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    settings, hparams, data, generators, handling = given
    function = load(settings["name"])
    X, X_test = encoded(settings["encode"], data)
    started = perf_counter()
    own = {k: built(v) for k, v in settings.get("params", {}).items()} | dict(hparams)
    offer: dict[str, Callable[[], Any]] = {
        "X": lambda: X,
        "y": lambda: data.y.astype(np.int64),
        "X_test": lambda: X_test,
        "n_classes": lambda: data.n_classes,
        "cardinality": lambda: data.cardinality,
        "image": lambda: data.image,
        "hparams": lambda: own,
        "device": lambda: "cuda" if handling.device == "gpu" else "cpu",
        "checkpoint": lambda: None if handling.checkpoint is None else folder(handling.checkpoint),
    }
    offer |= {name: partial(getattr, generators, name) for name in STREAMS}
    named = arguments(function, offer, {name: own[name] for name in settings.get("named", ())})
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    with threadpool_limits(limits=1):  # the last bits depend on threads
        value = function(**named)
    seconds = perf_counter() - started
    kept = in_form(value, settings["scores"], settings["name"], len(X_test), data.n_classes)
    return Fitted(kept[np.newaxis], seconds)


def draws_from(names: list[str]) -> list[str]:
    """Return the varying streams that a function with these parameters draws from."""
    return sorted({"batch" if name == "dropout" else name for name in names if name in STREAMS})


def folder(checkpoint: Checkpoint) -> Path:
    """Return the folder of a run's checkpoint, emptied of what another run or recipe left."""
    import shutil

    key = checkpoint.path / _KEY
    if not key.is_file() or key.read_text() != checkpoint.key:
        shutil.rmtree(checkpoint.path, ignore_errors=True)
        checkpoint.path.mkdir(parents=True)
        key.write_text(checkpoint.key)
    return checkpoint.path


def in_form(value: Any, how: str, what: str, n: int, k: int) -> calling.Floats:
    """Return scores in the form that a sweep keeps.

    `value`: a score per test row and class, or with two classes one per row; or labels. `how`: one
    of `table.SCORES`. `what`: its origin, for messages. `n` and `k`: numbers of test rows and
    classes.
    """
    present = np.arange(k)
    if how == "labels":
        calling.require_labels(value, what, n, k)
        return calling.of_labels(value, what, n, present, k)
    if how == "probabilities":
        return calling.of_probabilities(value, what, n, present, k)
    if how == "decisions" and k > 2:
        return calling.of_decisions(value, what, n, present, k)
    values = calling.array(value, what)
    if k == 2 and values.shape in ((n,), (n, 1)):
        return values.reshape(n)
    calling.require(values, what, (n, k))
    if how == "logits":
        calling.require_logits(values, what)
    return values
