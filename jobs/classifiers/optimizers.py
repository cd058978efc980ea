"""Resolve the options of a network's optimizer. Imports no training library.

A network's record names its own optimizer and schedule, and options replace them. Equivalent
options resolve to the same settings, so spelling out a default changes no identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manyseed.jobs.checks import Option, Refused, values_of
from manyseed.jobs.run import Json

OPTIONS: Mapping[str, Option] = {
    "optimizer": Option(
        "What trains it; by default the classifier's own.", words=("adam", "adamw", "sgd")
    ),
    "momentum": Option("Of optimizer = sgd (default: 0.9).", float, least=0, below=1),
    "schedule": Option(
        "Of the learning rate; by default the classifier's own; of sgd linear.",
        words=("constant", "cosine", "piecewise-linear", "plateau"),
    ),
}
"""Options of all networks."""

BATCH_SIZE: Mapping[str, Option] = {
    "batch_size": Option(
        "Rows a step; by default the dataset's size decides.", int, least=2, most=1_000_000
    )
}
"""The option of networks without the hparam ``batch``."""


def with_optimizer(own: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Json]:
    """Return a network's settings, updated by the user's optimizer options.

    With ``optimizer = "sgd"`` the schedule is piecewise linear and the momentum 0.9 unless options
    say otherwise (PIT, section 5, for all its networks); other optimizers take no momentum.

    Parameters
    ----------
    own : mapping
        The record's settings: ``optimizer``, ``schedule`` and possibly ``batch_size``.
    options : mapping
        What the user wrote.

    Raises
    ------
    Refused
        For a value that is not allowed.
    """
    declared = {**OPTIONS, **BATCH_SIZE}
    given = values_of(declared, {name: options[name] for name in declared if name in options})
    optimizer = given["optimizer"] or own["optimizer"]
    is_sgd = optimizer == "sgd"
    schedule = given["schedule"] or ("piecewise-linear" if is_sgd else own["schedule"])
    settings = {**own, "optimizer": optimizer, "schedule": schedule}
    if is_sgd:
        settings["momentum"] = 0.9 if given["momentum"] is None else given["momentum"]
    elif "momentum" in options:
        reason = f"{optimizer} has none to set; it goes with optimizer = 'sgd'"
        raise Refused("momentum", options["momentum"], reason)
    if "batch_size" in options:
        settings["batch_size"] = given["batch_size"]
    return settings
