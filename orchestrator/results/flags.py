"""How the command calls the options of an analysis."""

from __future__ import annotations


def flag(option: str) -> str:
    """Return the flag of an attribute of `analysis.options.Options`."""
    return f"--{option.replace('_', '-')}"
