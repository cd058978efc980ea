"""Average the members of an ensemble as they are taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.ensembling.methods import sizes

Real = NDArray[np.float64]

SIZE_ARRAYS = ("size_score", "size_margin")
MEMBER_ARRAYS = ("member_score", "member_margin")
ARRAYS = (*SIZE_ARRAYS, *MEMBER_ARRAYS)
"""What may be kept besides the whole ensemble: names in `Prediction.measured`."""


def log_softmax(logits: NDArray[Any]) -> Real:
    """Return ln p (sample, class) of a network's scores, in float64."""
    exact = np.asarray(logits, dtype=np.float64)
    return np.asarray(exact - np.logaddexp.reduce(exact, axis=-1, keepdims=True))


class Members:
    """Averages the probabilities of members, in the order in which they are taken.

    p̄_k = (1/k) Σ_{j≤k} p_j (PIT, eq. 3): probabilities, not logits. ln Σ p_j is kept in float64, so
    that interrupting the training changes no bit.

    Parameters
    ----------
    count : int
        Total number of members.
    keep : iterable of str
        What else to keep: names in `ARRAYS`; others are ignored.
    """

    def __init__(self, count: int, keep: Iterable[str] = ()) -> None:
        self.count, self._keep = count, [name for name in keep if name in ARRAYS]
        self.taken = 0
        self._total: Real | None = None
        self._sizes: list[NDArray[np.float32]] = []
        self._members: list[NDArray[np.float32]] = []

    def add(self, logits: NDArray[Any]) -> None:
        """Add a member, given its scores (sample, class) of the test set."""
        logs = log_softmax(logits)
        self._total = logs if self._total is None else np.logaddexp(self._total, logs)
        self.taken += 1
        if self.taken in sizes(self.count) and not {*SIZE_ARRAYS}.isdisjoint(self._keep):
            self._sizes.append(self.logs().astype(np.float32))
        if not {*MEMBER_ARRAYS}.isdisjoint(self._keep):
            self._members.append(logs.astype(np.float32))

    def logs(self) -> Real:
        """Return ln p̄ (sample, class) of the members taken so far."""
        if self._total is None:
            raise ValueError("no member has been taken")
        return np.asarray(self._total - np.log(self.taken))

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Return what else is kept: ln p̄ by size, ln p by member; as a gap for two classes."""
        if self.taken != self.count:
            raise ValueError(f"{self.taken} of {self.count} members have been taken")
        arrays = {}
        for name in self._keep:
            logs = np.stack(self._sizes if name in SIZE_ARRAYS else self._members)
            arrays[name] = logs[..., 1] - logs[..., 0] if name.endswith("margin") else logs
        return arrays

    def state(self) -> dict[str, object]:
        """Return the state for `restore`, as numbers and arrays."""
        return {
            "taken": self.taken,
            "total": self._total,
            "sizes": list(self._sizes),
            "members": list(self._members),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from what `state` returned."""
        self.taken, self._total = state["taken"], state["total"]
        self._sizes, self._members = list(state["sizes"]), list(state["members"])
