"""Ensembling methods: options, epochs, costs, streams, what they suit, averages of members.

Definitions and defaults are those of PIT (Ashukha et al. 2020, arXiv 2002.06470) and its public
code; ``docs/uncertainty.md`` says where they differ. Imports no training library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import Option, Refused, values_of

NONE = "none"
SAME_AS_NONE = (NONE, "deep")
"""Names that mean no method: runs are single networks; deep ensembles are formed afterwards."""

SIZES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100)
"""Numbers of members after which the ensemble so far is kept."""

SINGLE = "single"
"""One network that sees the test set several times; like no method if it always sees the same."""

PUBLISHED = "published"
"""The temperature of csgld in PIT's code: N / n² for N training rows and n batches per epoch."""

SEARCHED = "tuned"  # the scale of kfac-laplace if a search determines it (`jobs.scales`)

PREDICTION = 1 / 3  # cost of predicting a row, relative to training on it for one epoch

NOISE = 1.3  # cost of cyclic SGLD relative to training without noise

MAX_MEMBERS, MAX_EPOCHS = 10_000, 1_000_000

_EPOCHS, _RATE = Option(kind=int, least=1, most=MAX_EPOCHS), Option(kind=float, above=0)
OPTIONS: Mapping[str, Option] = {
    "members": Option("Networks that a run yields.", int, 100, least=2, most=MAX_MEMBERS),
    **dict.fromkeys(("cycle", "noise_epochs", "saves", "pretrain", "epochs"), _EPOCHS),
    "rank": Option(kind=int, least=2, most=MAX_MEMBERS),
    "batch_size": Option(kind=int, least=2, most=1_000_000),
    "momentum": Option(kind=float, least=0, below=1),
    "temperature": Option(kind=float, words=(PUBLISHED,), least=0),
    "scale": Option(kind=float, words=(SEARCHED,), above=0),
    "beta": Option(kind=float, least=0),
    "log_sd": Option(kind=float, least=-30, most=3),
    **dict.fromkeys(("lr", "lr_high", "lr_low"), _RATE),
}
"""Options of all methods, by name."""

Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """An ensembling method, independent of users' options.

    Attributes
    ----------
    name : str
        The name that users write; part of identities and of the keys of streams.
    defaults : mapping
        Defaults of all its options except `members`; `OPTIONS` defines their allowed values.
    member_epochs : callable
        ``member_epochs(options, epochs)`` returns after how many epochs each member is taken, given
        the `epochs` of the classifier's own training.
    streams : tuple of str
        Streams that it draws from, besides the classifier's.
    by_sgd : bool
        Whether it is defined only for networks trained by SGD.
    own_rate : bool
        Whether the method sets the learning rates of the whole training.
    passes : callable
        ``passes(options, epochs)`` returns the cost in epochs of training, without predictions of
        members; by default the epochs of its training.
    version : int
        Part of the identity; raised when the meaning of the method changes.
    """

    name: str
    defaults: Options
    member_epochs: Callable[[Options, int], tuple[int, ...]]
    streams: tuple[Literal["langevin", "posterior"], ...] = ()
    by_sgd: bool = False
    own_rate: bool = False
    passes: Callable[[Options, int], float] | None = None
    version: int = 1


def _snapshot_epochs(options: Options, _: int) -> tuple[int, ...]:
    return tuple(options["cycle"] * (k + 1) for k in range(options["members"]))


def _csgld_epochs(options: Options, _: int) -> tuple[int, ...]:
    saves, cycle = options["saves"], options["cycle"]
    return tuple(
        cycle * (k // saves + 1) - saves + 1 + k % saves for k in range(options["members"])
    )


def _fge_epochs(options: Options, _: int) -> tuple[int, ...]:
    first, cycle = options["pretrain"] + options["cycle"] // 2, options["cycle"]
    return tuple(first + cycle * k for k in range(options["members"]))


def _swag_epochs(options: Options, _: int) -> tuple[int, ...]:
    return (options["epochs"],) * int(options["members"])


def _vi_epochs(options: Options, epochs: int) -> tuple[int, ...]:
    return (epochs + options["epochs"],) * int(options["members"])


def _trained_epochs(options: Options, epochs: int) -> tuple[int, ...]:
    return (epochs,) * int(options["members"])


def _csgld_passes(options: Options, epochs: int) -> float:
    return NOISE * _csgld_epochs(options, epochs)[-1]


def _swag_passes(options: Options, _: int) -> float:
    return float(options["epochs"] + PREDICTION * options["members"])  # each renews batch norm


def _vi_passes(options: Options, epochs: int) -> float:
    return float(epochs + 2 * options["epochs"])  # means and standard deviations


def _laplace_passes(_: Options, epochs: int) -> float:
    return epochs + 1.5  # a forward and backward pass over the training rows, with factors


_CYCLIC = {"batch_size": 64, "momentum": 0.0}

METHODS: Mapping[str, Method] = MappingProxyType(
    {
        method.name: method
        for method in (
            Method(
                name="snapshot",
                defaults={"cycle": 40, "lr": 0.2, **_CYCLIC},
                member_epochs=_snapshot_epochs,
                by_sgd=True,
                own_rate=True,
            ),
            Method(
                name="csgld",
                defaults={
                    "cycle": 50,
                    "lr": 0.5,
                    **_CYCLIC,
                    "noise_epochs": 3,
                    "saves": 3,
                    "temperature": 1.0,
                },
                member_epochs=_csgld_epochs,
                streams=("langevin",),
                by_sgd=True,
                own_rate=True,
                passes=_csgld_passes,
            ),
            Method(
                name="fge",
                defaults={"pretrain": 160, "cycle": 4, "lr_high": 0.05, "lr_low": 5e-4},
                member_epochs=_fge_epochs,
                by_sgd=True,
            ),
            Method(
                name="swag",
                defaults={"pretrain": 160, "epochs": 300, "lr": 0.01, "rank": 20},
                member_epochs=_swag_epochs,
                streams=("posterior",),
                by_sgd=True,
                passes=_swag_passes,
            ),
            Method(
                name="vi",
                defaults={"epochs": 100, "lr": 1e-3, "beta": 1e-4, "log_sd": -5.0},
                member_epochs=_vi_epochs,
                streams=("posterior",),
                by_sgd=True,
                passes=_vi_passes,
            ),
            Method(
                name="kfac-laplace",
                defaults={"scale": SEARCHED},
                member_epochs=_trained_epochs,
                streams=("posterior",),
                passes=_laplace_passes,
            ),
            Method(name=SINGLE, defaults={}, member_epochs=_trained_epochs),
            Method(
                name="dropout",
                defaults={},
                member_epochs=_trained_epochs,
                streams=("posterior",),
            ),
        )
    }
)
"""By the names that users write."""


def names() -> tuple[str, ...]:
    """Return the names of all methods."""
    return tuple(METHODS)


def resolve(kind: str, options: Options) -> dict[str, object] | None:
    """Return a method's canonical description with all options resolved; None for no method.

    Parameters
    ----------
    kind : str
        A method, or one of `SAME_AS_NONE`.
    options : mapping
        What the user wrote.
    """
    if kind in SAME_AS_NONE:
        for option, value in options.items():
            raise Refused(
                option, value, f"{kind} has no options: it trains every network in a run of its own"
            )
        return None
    if kind not in METHODS:
        raise Refused("kind", kind, "unknown method", (NONE, *METHODS))
    method = METHODS[kind]
    declared = {
        name: replace(OPTIONS[name], default=default)
        for name, default in {"members": OPTIONS["members"].default, **method.defaults}.items()
    }
    canonical = {"name": kind, "version": method.version, **values_of(declared, options)}
    _check_together(canonical)
    if method.member_epochs(canonical, 1)[-1] > MAX_EPOCHS:
        reason = f"they take more than {MAX_EPOCHS:,} epochs"
        raise Refused("members", canonical["members"], reason)
    return canonical


def _check_together(method: Options) -> None:
    name, cycle = method["name"], method.get("cycle", 0)
    if name == "fge" and cycle % 2:
        raise Refused("cycle", cycle, "members are taken in mid-cycle", "an even number of epochs")
    if name == "swag" and (averaged := method["epochs"] - method["pretrain"]) < method["rank"]:
        reason = (
            f"after {method['pretrain']} epochs of pretraining {max(0, averaged)} are left, each "
            f"of which yields one of the {method['rank']} deviations of rank"
        )
        raise Refused("epochs", method["epochs"], reason)
    if name == "csgld":
        noisy = method["noise_epochs"]
        if method["saves"] > noisy:
            reason = f"members are taken in epochs with noise, of which a cycle has {noisy}"
            raise Refused("saves", method["saves"], reason)
        if noisy > cycle:
            raise Refused("noise_epochs", noisy, f"a cycle has {cycle} epochs")


def member_epochs(method: Options, epochs: int) -> tuple[int, ...]:
    """Return after how many epochs each member is taken; the run's training ends with the last.

    Parameters
    ----------
    method : mapping
        Returned by `resolve`.
    epochs : int
        Epochs of the classifier's own training.
    """
    return METHODS[method["name"]].member_epochs(method, epochs)


def passes(method: Options, epochs: int) -> float:
    """Return a method's cost without its members' predictions, in epochs of training.

    Parameters are those of `member_epochs`.
    """
    cost = METHODS[method["name"]].passes
    return float(member_epochs(method, epochs)[-1]) if cost is None else cost(method, epochs)


def sizes(members: int) -> tuple[int, ...]:
    """Return after how many members the ensemble is kept, ending with all `members`."""
    return tuple(sorted({*(size for size in SIZES if size < members), members}))


def stream_name(method: Options) -> str:
    """Return the key of a method's streams."""
    return f"{method['name']}@{method['version']}"


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
