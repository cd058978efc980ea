"""Save a run's model in a format that its own library reads and that executes no code.

``.npz`` holds the model's arrays by name, ``.pt`` the same as a PyTorch state dict, ``.json``
XGBoost's trees and ``.skops`` a scikit-learn estimator.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np

from manyseed.jobs import classifiers
from manyseed.jobs.training.handling import Alive
from manyseed.jobs.training.network import Network

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

    Parameters
    ----------
    canonical : mapping
        The classifier's canonical description.
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

    Parameters
    ----------
    alive : Alive
    ending : str
        One of `endings`.
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
