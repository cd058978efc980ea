"""Check that new runs would be made with the same recipe as the existing ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.provenance import Recipe, read_recipes

ANOTHER_MACHINE = frozenset(("device_class", "threads"))
"""Differences that a mixed cluster makes: training goes on, and runs say how they were made."""


def require_same(
    paths: SweepPaths, has_finished: Mapping[str, bool], *, gpu: str | None, is_here: bool
) -> list[str]:
    """Refuse to continue with a recipe that differs from the recorded ones in more than the device.

    Parameters
    ----------
    paths : SweepPaths
    has_finished : mapping
        For each device that the runs request: whether runs that request it are finished.
    gpu : str, optional
        The GPU model for runs that request one.
    is_here : bool
        Whether this machine trains them; if not, its processor is not compared.

    Returns
    -------
    list of str
        A sentence for each device of another class than that of the recorded runs.

    Raises
    ------
    UserError
        With the differences.
    """
    sentences = []
    recorded = list(read_recipes(paths.recipes).values())
    for device, is_known in has_finished.items():
        now = Recipe.here(gpu if device == "gpu" else None)
        before = recorded
        if is_here:
            made_on = _made_on(device, recorded) if is_known else now.device
            before = [recipe for recipe in recorded if (recipe.device or "cpu") == made_on]
        else:
            now = replace(now, device=None, device_class=None)
        changes = [recipe.changes(now) for recipe in before]
        if not all(changes):
            continue
        mild = [change for change in changes if change.keys() <= ANOTHER_MACHINE]
        if changes and not mild:
            raise _refusal(paths, changes[-1])
        sentences += [
            f"Runs so far were made with another device ({_listed(change)}): these get a recipe of "
            "their own, and answers says whether they differ."
            for change in mild[-1:]
        ]
    return sentences


def _made_on(requested: str, recorded: Sequence[Recipe]) -> str:
    """Return where finished runs were trained: requests for a GPU are always or never met."""
    return requested if any(recipe.device == requested for recipe in recorded) else "cpu"


def _refusal(paths: SweepPaths, changes: Mapping[str, tuple[object, object]]) -> UserError:
    return UserError(
        f"runs of this sweep were made with another recipe ({_listed(changes)})",
        file=paths.recipes,
        remedy="restore it, or mix recipes knowingly with --other-recipe: results mark the repeats",
    )


def _listed(changes: Mapping[str, tuple[object, object]]) -> str:
    return ", ".join(f"{key}: {before} → {now}" for key, (before, now) in changes.items())
