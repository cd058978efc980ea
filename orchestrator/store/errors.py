"""What can be wrong with a store; each message names the remedy."""

from __future__ import annotations

from pathlib import Path

from orchestrator.errors import DamagedFile, UnavailableError, UserError


class StoreError(UnavailableError):
    """Base of all errors of the store."""


class StoreUnavailable(StoreError):
    """The file system refused: disk full, no permission, input/output error. Nothing is lost."""


class LayoutTooNew(StoreError):
    """The store was written by a newer manyseed: all else may go on later, this needs another."""

    exit_code = UserError.exit_code


class DamagedGroup(StoreError, DamagedFile):
    """The description of a group or of one of its arrays is not what was written there."""


class GroupMismatch(StoreError):
    """A group, or the rows asked for, differ from what is stored."""


class SplitMismatch(StoreError):
    """A worker's test set differs from the stored one."""


class DamagedShard(StoreError):
    """A published file is missing, cannot be decoded, or holds what was never published there."""

    @classmethod
    def of(cls, path: Path, problem: str) -> DamagedShard:
        """Say what is wrong with a file or folder of a store, and what to do about it."""
        store = next((up for up in path.parents if up.suffix == ".zarr"), None)
        sweep = "" if store is None else f" {store.parent}"
        return cls(f"{path} {problem}: run manyseed verify --repair{sweep}, then resume")


class LeaseHeld(StoreError):
    """Somebody else who is alive holds the lease."""


class LeaseLost(StoreError):
    """The lease was taken over, or its heartbeat is too old to act on."""
