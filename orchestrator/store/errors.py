"""What can be wrong with a store; each message names the remedy."""

from __future__ import annotations

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
    """A published file cannot be decoded and no journal holds what it should hold."""


class LeaseHeld(StoreError):
    """Somebody else who is alive holds the lease."""


class LeaseLost(StoreError):
    """The lease was taken over, or its heartbeat is too old to act on."""
