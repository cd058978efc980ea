"""The robust two-sample KS test: trimming levels, references, resamples."""

PAPER_INFEASIBLE = 0.50
"""The level that the authors' code counts if it accepts at none of those that it tries."""


def worst(mode: str) -> float:
    """Return the level of a resample that no trimming makes acceptable, in a mode of α̂."""
    return PAPER_INFEASIBLE if mode == "paper" else 1.0
