"""Check that new runs would be made with the same recipe as the existing ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.provenance import Recipe, read_recipes


def require_same(
    paths: SweepPaths, has_finished: Mapping[str, bool], *, gpu: str | None, is_here: bool
) -> None:
    """Refuse to continue with a recipe other than the recorded ones.

    Parameters
    ----------
    paths : SweepPaths
    has_finished : mapping
        For each device that the runs request: whether runs that request it are finished.
    gpu : str, optional
        The GPU model for runs that request one.
    is_here : bool
        Whether this machine trains them; if not, its processor is not compared.

    Raises
    ------
    UserError
        With the differences.
    """
    recorded = list(read_recipes(paths.recipes).values())
    for device, is_known in has_finished.items():
        now = Recipe.here(gpu if device == "gpu" else None)
        before = recorded
        if is_here:
            made_on = _made_on(device, recorded) if is_known else now.device
            before = [recipe for recipe in recorded if (recipe.device or "cpu") == made_on]
        else:
            now = replace(now, device=None, device_class=None)
        if before and all(recipe.changes(now) for recipe in before):
            raise _refusal(paths, before[-1].changes(now))


def _made_on(requested: str, recorded: Sequence[Recipe]) -> str:
    """Return where finished runs were trained: requests for a GPU are always or never met."""
    return requested if any(recipe.device == requested for recipe in recorded) else "cpu"


def _refusal(paths: SweepPaths, changes: Mapping[str, tuple[object, object]]) -> UserError:
    text = ", ".join(f"{key}: {before} → {now}" for key, (before, now) in changes.items())
    return UserError(
        f"runs of this sweep were made with another recipe ({text})",
        file=paths.recipes,
        remedy="restore it, or mix recipes knowingly with --other-recipe: results mark the repeats",
    )
