"""Errors of this package carry facts; callers that know the user's command and file word them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Refused(ValueError):
    """A request that cannot be computed.

    `option`: an attribute of `analysis.options.Options`, or another parameter. `value`: the
    option's value, or the part of it that is wrong. `reason`: why, unless `allowed` says it.
    `allowed`: all allowed values, or a description of them.
    """

    def __init__(
        self, option: str, value: object, reason: str = "", allowed: Iterable[object] | str = ()
    ) -> None:
        self.option, self.value, self.reason = option, value, reason
        self.allowed = allowed if isinstance(allowed, str) else tuple(allowed)
        super().__init__(option, value, reason, self.allowed)

    def __str__(self) -> str:
        is_text = isinstance(self.allowed, str)
        allowed = self.allowed if is_text else ", ".join(map(str, self.allowed))
        reasons = [self.reason, f"allowed: {allowed}" if allowed else ""]
        return f"{self.option} = {self.value!r}: {'; '.join(filter(None, reasons))}"


class NotKept(Refused):
    """The scores that a metric needs were not stored; `allowed` are the kinds that would do."""


class NoModule(Refused):
    """The module of a user's own metric cannot be imported."""


def masked(values: Any) -> int:
    """Return how many values of a NumPy array, or of arrays in a list, are masked."""
    import numpy as np

    if isinstance(values, np.ma.MaskedArray):
        return int(np.count_nonzero(np.ma.getmaskarray(values)))
    return sum(map(masked, values)) if isinstance(values, list | tuple) else 0
