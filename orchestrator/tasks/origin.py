"""Whose a submission's small files are: those of a like sweep look like its own.

Read by tasks as they start: imports no table library.
"""

from __future__ import annotations

OF_ANOTHER = (
    "was written for another plan than plan/0001.parquet: one of the two is another sweep's"
)


def is_another(written: str, plan: str) -> bool:
    """Whether two identities of plans differ; those that earlier versions left out never do."""
    return bool(written and plan) and written != plan
