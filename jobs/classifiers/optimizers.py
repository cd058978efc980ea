"""What a user says of a network's optimizer, resolved; imports nothing that trains.

A network's record names its own optimizer and schedule. Options replace them; what is said in other
words than the record's, but means the same, is the same text, so no identity changes by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manyseed.jobs.checks import Refused, integer, number

OPTIMIZERS = ("adam", "adamw", "sgd")
SCHEDULES = ("constant", "cosine", "piecewise-linear", "plateau")
OPTIONS = ("optimizer", "momentum", "schedule")
"""Options of all networks; those whose hparams have no batch also take ``batch_size``."""

LARGEST_BATCH = 1_000_000


def with_optimizer(own: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a network's settings with what the user says of its optimizer.

    With ``optimizer = "sgd"`` the schedule is piecewise linear and the momentum 0.9 unless options
    say otherwise (PIT, section 5: all of its networks); other optimizers have no momentum to set.

    Parameters
    ----------
    own : mapping
        The record's settings, with ``optimizer`` and ``schedule``, perhaps ``batch_size``.
    options : mapping
        The sweep file's table.

    Raises
    ------
    Refused
        For a value that is not allowed.
    """
    optimizer = _known("optimizer", options.get("optimizer", own["optimizer"]), OPTIMIZERS)
    is_sgd = optimizer == "sgd"
    default = "piecewise-linear" if is_sgd else own["schedule"]
    schedule = _known("schedule", options.get("schedule", default), SCHEDULES)
    settings = {**own, "optimizer": optimizer, "schedule": schedule}
    if is_sgd:
        momentum = options.get("momentum", 0.9)
        settings["momentum"] = number("momentum", momentum, least=0, below=1)
    elif "momentum" in options:
        reason = f"{optimizer} has none to set; it goes with optimizer = 'sgd'"
        raise Refused("momentum", options["momentum"], reason)
    if "batch_size" in options:
        size = options["batch_size"]
        settings["batch_size"] = integer("batch_size", size, least=2, most=LARGEST_BATCH)
    return settings


def _known(option: str, value: object, known: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in known:
        raise Refused(option, value, allowed=known)
    return value
