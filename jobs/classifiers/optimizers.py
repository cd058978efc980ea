"""Resolve the options of a network's optimizer. Imports no training library.

A network's record names its own optimizer and schedule, and options replace them. Equivalent
options resolve to the same settings, so spelling out a default changes no identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manyseed.jobs.checks import Option, Refused
from manyseed.jobs.identity import Json

OPTIMIZER = Option(
    name="optimizer",
    about="What trains it; by default the classifier's own.",
    words=("adam", "adamw", "sgd"),
    numbers="none",
)
MOMENTUM = Option(name="momentum", about="Of optimizer = sgd (default: 0.9).", least=0, below=1)
SCHEDULE = Option(
    name="schedule",
    about="Of the learning rate; by default the classifier's own; of sgd linear.",
    words=("constant", "cosine", "piecewise-linear", "plateau"),
    numbers="none",
)
BATCH_SIZE = Option(
    name="batch_size",
    about="Rows a step; by default the dataset's size decides.",
    numbers="whole",
    least=2,
    most=1_000_000,
)
OPTIONS = (OPTIMIZER.name, MOMENTUM.name, SCHEDULE.name)
"""Options of all networks; networks without the hparam ``batch`` also take ``batch_size``."""

DECLARED = {option.name: option for option in (OPTIMIZER, MOMENTUM, SCHEDULE, BATCH_SIZE)}


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
    optimizer = OPTIMIZER.check(options.get("optimizer", own["optimizer"]))
    is_sgd = optimizer == "sgd"
    default = "piecewise-linear" if is_sgd else own["schedule"]
    schedule = SCHEDULE.check(options.get("schedule", default))
    settings = {**own, "optimizer": optimizer, "schedule": schedule}
    if is_sgd:
        settings["momentum"] = MOMENTUM.check(options.get("momentum", 0.9))
    elif "momentum" in options:
        reason = f"{optimizer} has none to set; it goes with optimizer = 'sgd'"
        raise Refused("momentum", options["momentum"], reason)
    if "batch_size" in options:
        settings["batch_size"] = BATCH_SIZE.check(options["batch_size"])
    return settings
