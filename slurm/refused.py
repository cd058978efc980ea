"""How a value of a profile is refused."""

from __future__ import annotations

from collections.abc import Iterable


class Refused(ValueError):
    """A profile or parameter has an invalid value.

    `option`: the profile's key, such as ``gpu.time``, or the parameter; empty for the whole file.
    `value`: none if it is missing. `reason`: why it is refused, unless `allowed` tells. `allowed`:
    all valid values, or a description of them.
    """

    def __init__(
        self, option: str, value: object, reason: str = "", allowed: Iterable[object] | str = ()
    ) -> None:
        self.option, self.value, self.reason = option, value, reason
        self.allowed = allowed if isinstance(allowed, str) else tuple(allowed)
        super().__init__(option, value, reason, self.allowed)

    def __str__(self) -> str:
        allowed = self.allowed
        if not isinstance(allowed, str):
            allowed = ", ".join(map(str, allowed))
        reasons = [self.reason, f"allowed: {allowed}" if allowed else ""]
        return f"{self.option} = {self.value!r}: {'; '.join(filter(None, reasons))}"
