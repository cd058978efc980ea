"""How this package refuses: as facts; whoever knows the user's command and file words them."""

from __future__ import annotations

from collections.abc import Iterable


class Refused(ValueError):
    """What cannot be computed as it was asked for.

    Parameters
    ----------
    option : str
        An attribute of `analysis.options.Options`, or another parameter.
    value : object
        What is refused: the option's value, or the part of it that is wrong.
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
        of_what = (
            self.allowed if isinstance(self.allowed, str) else ", ".join(map(str, self.allowed))
        )
        said = [self.reason, f"allowed: {of_what}" if of_what else ""]
        return f"{self.option} = {self.value!r}: {'; '.join(filter(None, said))}"


class NotKept(Refused):
    """What a metric needs was not stored; `allowed` are the kinds of scores that would do."""


class NoModule(Refused):
    """The module of a user's own metric cannot be imported."""
