"""Train the same classifier thousands of times and learn how much the results vary.

The four packages lie at the top of the repository; here are links to them, so that they are
installed and imported as parts of ``manyseed`` and no project of a user meets a name of theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from manyseed.orchestrator.results.compared import Compared
    from manyseed.orchestrator.sweep import Sweep

    __version__: str

__all__ = ["Sweep", "__version__", "compare"]


def __getattr__(name: str) -> Any:
    # on demand: a task imports this package on thousands of nodes, and no table library
    if name == "Sweep":
        from manyseed.orchestrator.sweep import Sweep

        return Sweep
    if name == "__version__":
        from importlib.metadata import version

        return version("manyseed")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def compare(
    sweep: Sweep | str | Path, other: Sweep | str | Path | None = None, **options: Any
) -> list[Compared]:
    """Compare cells of a sweep, or two sweeps: `Sweep.compare`."""
    from manyseed.orchestrator.sweep import Sweep

    first = sweep if isinstance(sweep, Sweep) else Sweep(sweep)
    return first.compare(other, **options)
