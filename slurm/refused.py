"""How this package refuses a value: as facts; whoever knows the user's command words them."""

from __future__ import annotations

from collections.abc import Iterable


class Refused(ValueError):
    """A value of a profile or a parameter that cannot be taken.

    Parameters
    ----------
    option : str
        The profile's key, as in ``gpu.time``, or the parameter; empty for the whole file.
    value : object
        None where it is missing.
    reason : str
        Why, where `allowed` does not say it.
    allowed : iterable of object, or str
        All values that could be taken, or a description of them.
    """

    def __init__(
        self, option: str, value: object, reason: str = "", allowed: Iterable[object] | str = ()
    ) -> None:
        self.option, self.value, self.reason = option, value, reason
        self.allowed = allowed if isinstance(allowed, str) else tuple(allowed)
        super().__init__(option, value, reason, self.allowed)

    def __str__(self) -> str:
        of_what = self.allowed
        if not isinstance(of_what, str):
            of_what = ", ".join(map(str, of_what))
        said = [self.reason, f"allowed: {of_what}" if of_what else ""]
        return f"{self.option} = {self.value!r}: {'; '.join(filter(None, said))}"


class UnknownOption(Refused):
    """An unknown key of a profile; `allowed` are the known ones."""
