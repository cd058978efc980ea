"""Numbers of things in words."""

from __future__ import annotations


def counted(n: int, noun: str) -> str:
    """Return a number and its noun: ``1 run``, ``2,000 runs``."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
