"""Ensembling methods: their options, resolved, and what of a run follows from them.

Definitions and defaults are those of PIT (Ashukha et al. 2020, arXiv 2002.06470) and of its public
code; ``docs/uncertainty.md`` says where they differ. Imports nothing that trains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from manyseed.jobs.checks import Option, Refused, UnknownOption

NONE = "none"
SAME_AS_NONE = (NONE, "deep")
"""Names of no method: runs are single networks, of which deep ensembles are made afterwards."""

SIZES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100)
"""Members after which an ensemble is kept."""

SINGLE = "single"
"""One network that sees the test set several times: as none where it sees the same each time."""

PUBLISHED = "published"
"""The temperature of csgld that PIT's code has: N / n², N training rows, n batches per epoch."""

SEARCHED = "tuned"
"""The scale of kfac-laplace that a search finds (`jobs.scales`)."""

PREDICTION = 1 / 3
"""What predicting a row takes, of training on it for an epoch."""

NOISE = 1.3
"""What cyclic SGLD takes, of a training without noise."""

MAX_MEMBERS, MAX_EPOCHS = 10_000, 1_000_000

OPTIONS: Mapping[str, Option] = MappingProxyType(
    {
        option.name: option
        for option in (
            Option(
                name="members",
                about="Networks that a run yields (default: 100).",
                numbers="whole",
                least=2,
                most=MAX_MEMBERS,
            ),
            *(
                Option(name=name, numbers="whole", least=1, most=MAX_EPOCHS)
                for name in ("cycle", "noise_epochs", "saves", "pretrain", "epochs")
            ),
            Option(name="rank", numbers="whole", least=2, most=MAX_MEMBERS),
            Option(name="batch_size", numbers="whole", least=2, most=1_000_000),
            Option(name="momentum", least=0, below=1),
            Option(name="temperature", words=(PUBLISHED,), least=0),
            Option(name="scale", words=(SEARCHED,), above=0),
            Option(name="beta", least=0),
            Option(name="log_sd", least=-30, most=3),
            *(Option(name=name, above=0) for name in ("lr", "lr_high", "lr_low")),
        )
    }
)
"""Those of all methods, by name."""

Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """What is known of a method before it is asked for.

    Attributes
    ----------
    name : str
        Its name, as users write it; part of identities and of keys of streams.
    defaults : mapping
        Of every option but `members`; `OPTIONS` has what they may be.
    member_epochs : callable
        ``member_epochs(options, epochs)``: after how many epochs each member is taken, where the
        classifier's own training takes `epochs`.
    streams : tuple of str
        What it draws from besides the classifier's streams.
    by_sgd : bool
        Whether it is defined for networks that are trained by SGD alone.
    own_rate : bool
        Whether all of its training has learning rates of its own.
    passes : callable
        ``passes(options, epochs)``: what it takes beside predictions of members, in epochs of
        training; by default the epochs of its training.
    version : int
        Part of the identity; raised when its meaning changes.
    """

    name: str
    defaults: Options
    member_epochs: Callable[[Options, int], tuple[int, ...]]
    streams: tuple[Literal["langevin", "posterior"], ...] = ()
    by_sgd: bool = False
    own_rate: bool = False
    passes: Callable[[Options, int], float] | None = None
    version: int = 1


def _of_snapshot(options: Options, epochs: int) -> tuple[int, ...]:
    del epochs
    return tuple(options["cycle"] * (k + 1) for k in range(options["members"]))


def _of_csgld(options: Options, epochs: int) -> tuple[int, ...]:
    del epochs
    saves, cycle = options["saves"], options["cycle"]
    return tuple(
        cycle * (k // saves + 1) - saves + 1 + k % saves for k in range(options["members"])
    )


def _of_fge(options: Options, epochs: int) -> tuple[int, ...]:
    del epochs
    first, cycle = options["pretrain"] + options["cycle"] // 2, options["cycle"]
    return tuple(first + cycle * k for k in range(options["members"]))


def _of_swag(options: Options, epochs: int) -> tuple[int, ...]:
    del epochs
    return tuple(options["epochs"] for _ in range(options["members"]))


def _of_vi(options: Options, epochs: int) -> tuple[int, ...]:
    return tuple(epochs + options["epochs"] for _ in range(options["members"]))


def _of_trained(options: Options, epochs: int) -> tuple[int, ...]:
    return tuple(epochs for _ in range(options["members"]))


def _noisy(options: Options, epochs: int) -> float:
    return NOISE * _of_csgld(options, epochs)[-1]


def _of_two(options: Options, epochs: int) -> float:
    return float(epochs + 2 * options["epochs"])  # means and standard deviations


def _with_factors(options: Options, epochs: int) -> float:
    del options
    return epochs + 1.5  # a pass over the training rows, there and back, with factors


def _with_statistics(options: Options, epochs: int) -> float:
    del epochs
    return float(options["epochs"] + PREDICTION * options["members"])


_CYCLIC = {"batch_size": 64, "momentum": 0.0}

METHODS: Mapping[str, Method] = MappingProxyType(
    {
        method.name: method
        for method in (
            Method(
                name="snapshot",
                defaults={"cycle": 40, "lr": 0.2, **_CYCLIC},
                member_epochs=_of_snapshot,
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
                member_epochs=_of_csgld,
                streams=("langevin",),
                by_sgd=True,
                own_rate=True,
                passes=_noisy,
            ),
            Method(
                name="fge",
                defaults={"pretrain": 160, "cycle": 4, "lr_high": 0.05, "lr_low": 5e-4},
                member_epochs=_of_fge,
                by_sgd=True,
            ),
            Method(
                name="swag",
                defaults={"pretrain": 160, "epochs": 300, "lr": 0.01, "rank": 20},
                member_epochs=_of_swag,
                streams=("posterior",),
                by_sgd=True,
                passes=_with_statistics,
            ),
            Method(
                name="vi",
                defaults={"epochs": 100, "lr": 1e-3, "beta": 1e-4, "log_sd": -5.0},
                member_epochs=_of_vi,
                streams=("posterior",),
                by_sgd=True,
                passes=_of_two,
            ),
            Method(
                name="kfac-laplace",
                defaults={"scale": SEARCHED},
                member_epochs=_of_trained,
                streams=("posterior",),
                passes=_with_factors,
            ),
            Method(
                name=SINGLE,
                defaults={},
                member_epochs=_of_trained,
            ),
            Method(
                name="dropout",
                defaults={},
                member_epochs=_of_trained,
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
    """Return the canonical description of a method, all options resolved; None for none.

    Parameters
    ----------
    kind : str
        A method, or one of `SAME_AS_NONE`.
    options : mapping
        What the user wrote of it.

    Raises
    ------
    Refused
        For an unknown method or option, or a value that is not allowed.
    """
    if kind in SAME_AS_NONE:
        for option, value in options.items():
            raise Refused(option, value, f"{kind} has no options: it is a run of its own each")
        return None
    if kind not in METHODS:
        raise Refused("kind", kind, "unknown method", (NONE, *METHODS))
    method = METHODS[kind]
    allowed = ("members", *method.defaults)
    for option, value in options.items():
        if option not in allowed:
            raise UnknownOption(option, value, allowed=allowed)
    found = {
        "name": kind,
        "version": method.version,
        "members": OPTIONS["members"].check(options.get("members", 100)),
    }
    for option, default in method.defaults.items():
        found[option] = OPTIONS[option].check(options.get(option, default))
    _check_together(found)
    if method.member_epochs(found, 1)[-1] > MAX_EPOCHS:
        raise Refused("members", found["members"], f"they take more than {MAX_EPOCHS:,} epochs")
    return found


def _check_together(found: Options) -> None:
    name, cycle = found["name"], found.get("cycle", 0)
    if name == "fge" and cycle % 2:
        raise Refused("cycle", cycle, "members are taken in mid-cycle", "an even number of epochs")
    if name == "swag" and (averaged := found["epochs"] - found["pretrain"]) < found["rank"]:
        reason = (
            f"after {found['pretrain']} epochs of pretraining {max(0, averaged)} are left, each of "
            f"which yields one of the {found['rank']} deviations of rank"
        )
        raise Refused("epochs", found["epochs"], reason)
    if name == "csgld":
        if found["saves"] > found["noise_epochs"]:
            noisy = found["noise_epochs"]
            reason = f"members are taken in epochs with noise, of which a cycle has {noisy}"
            raise Refused("saves", found["saves"], reason)
        if found["noise_epochs"] > cycle:
            raise Refused("noise_epochs", found["noise_epochs"], f"a cycle has {cycle} epochs")


def member_epochs(method: Options, epochs: int) -> tuple[int, ...]:
    """Return after how many epochs each member is taken; a run's training ends with the last.

    Parameters
    ----------
    method : mapping
        As `resolve` returns it.
    epochs : int
        Of the classifier's own training.
    """
    return METHODS[method["name"]].member_epochs(method, epochs)


def passes(method: Options, epochs: int) -> float:
    """Return what a method takes beside its members' predictions, in epochs of training.

    Parameters
    ----------
    method : mapping
        As `resolve` returns it.
    epochs : int
        Of the classifier's own training.
    """
    own = METHODS[method["name"]].passes
    return float(member_epochs(method, epochs)[-1]) if own is None else own(method, epochs)


def sizes(members: int) -> tuple[int, ...]:
    """Return after how many members an ensemble is kept, the last of them all."""
    return tuple(sorted({*(size for size in SIZES if size < members), members}))


def stream_name(method: Options) -> str:
    """Return what a method's streams are keyed by."""
    return f"{method['name']}@{method['version']}"
