"""Whether runs that are about to be submitted would be made as those that are there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator import origin
from orchestrator.errors import UserError
from orchestrator.paths import SweepPaths

Recipe = Mapping[str, Any]


def require_same(
    paths: SweepPaths, wishes: Mapping[str, bool], *, gpu: str | None, is_here: bool
) -> None:
    """Refuse to go on in another recipe than before.

    Parameters
    ----------
    paths : SweepPaths
    wishes : mapping
        Devices that the runs' classifiers wish for, and whether runs with that wish are finished.
    gpu : str, optional
        The model of the GPU that fulfils such a wish.
    is_here : bool
        Whether they are trained on this machine: its processor says nothing of a cluster's nodes.

    Raises
    ------
    UserError
        With what differs.
    """
    recorded = [origin.of_machine(value) for value in origin.read_recipes(paths.recipes).values()]
    for wish, are_finished in wishes.items():
        now = origin.recipe(gpu if wish == "gpu" else None)
        compared = [key for key in now if is_here or not key.startswith("device")]
        before = recorded
        if is_here:
            made_on = _made_on(wish, recorded) if are_finished else now["device"]
            before = [value for value in recorded if value.get("device", "cpu") == made_on]
        if before and not any(all(now[k] == one.get(k) for k in compared) for one in before):
            raise _refusal(paths, before[-1], now, compared)


def _made_on(wish: str, recorded: list[dict[str, Any]]) -> str:
    """Return where finished runs were trained: wishes for a GPU are met always or never."""
    return wish if any(value.get("device") == wish for value in recorded) else "cpu"


def _refusal(paths: SweepPaths, last: Recipe, now: Recipe, compared: list[str]) -> UserError:
    changed = [key for key in compared if now[key] != last.get(key)]
    text = ", ".join(f"{key}: {last.get(key)} → {now[key]}" for key in changed)
    return UserError(
        f"runs of this sweep were made in another recipe ({text})",
        file=paths.recipes,
        remedy="restore it, or mix recipes knowingly with --other-recipe: results mark the repeats",
    )
