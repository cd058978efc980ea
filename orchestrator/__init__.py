"""From a sweep file to results: the only package that joins jobs, slurm and analysis."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.sweep import Sweep

__all__ = ["Sweep"]


def __getattr__(name: str) -> Any:
    # on demand: a task imports modules of this package on thousands of nodes, and no table library
    if name == "Sweep":
        from orchestrator.sweep import Sweep

        return Sweep
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
