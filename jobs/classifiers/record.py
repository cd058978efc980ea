"""Records that tell planning, training and stored results all they need about a classifier.

A record is filled in, not subclassed: it holds data, and functions that take data. A network's
names its own optimizer and schedule, which options replace; equivalent options resolve to the same
settings, so spelling out a default changes no identity. Imports no training library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from manyseed.jobs.checks import Option, Refused, values_of
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.hparams import grid
from manyseed.jobs.hparams.kinds import Hparam, Value
from manyseed.jobs.run import Json, Probability
from manyseed.jobs.training.handling import Device, FitInput, Fitted, Precision

Settings = Mapping[str, Any]
Options = Mapping[str, Any]
Hparams = Mapping[str, Value]
Defaults = Literal["study", "library"]
Form = Literal["estimator", "train", "module", "command"]
FORMS: tuple[Form, ...] = get_args(Form)  # options that name users' own code (`jobs.own.table`)

MODELLESS: tuple[Form, ...] = ("train", "command")  # forms whose fits yield scores but no model

TORCH = ("torch", "torch._dynamo")
"""What networks import; an optimizer's first step imports the second."""

EPOCHS = Option("How long to train.", int, least=1, most=1_000_000)
SNAPSHOTS = Option(
    "Epochs whose predictions are kept besides those of the last.",
    list,
    of=Option(kind=int, least=1),
    called="a list of epochs",
)

TABLE: Mapping[str, Option] = {
    "kind": Option("The classifier, for a name of your own."),
    "hparams": Option(
        "Anchors: used as they are, and the centre of every perturbation.",
        dict,
        called="a table of values",
    ),
    "grid": grid.OPTION,
    "device": Option(
        "Where to train; not part of the identity.", str, "cpu", words=get_args(Device)
    ),
    "epochs": EPOCHS,
    "snapshots": SNAPSHOTS,
    "defaults": Option("Whose defaults the anchors are.", str, "study", words=get_args(Defaults)),
}
"""Options of classifiers; those that a classifier does not have are refused."""

Fit = Callable[[FitInput], Fitted]


class NoHparam(Refused):
    """A classifier's option that no grid may vary: another value makes another classifier."""


class Unsuitable(Refused):
    """A dataset that a classifier cannot be trained on, whatever its options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier:
    """A kind of classifier, independent of datasets and users' options.

    Planning reads every record, so functions import training libraries only where they need them.

    Attributes
    ----------
    name : str
        The name that users write; part of every identity and of the keys of its streams.
    space : tuple of Hparam
        Its hparams. Draws follow this order, so append new ones at the end.
    probability : {"softmax", "ovr", "none"}
        How scores become probabilities.
    streams : frozenset of str
        Which of the streams ``init`` and ``batch`` a fit draws from (``dropout`` goes with batch).
    fit : callable
        ``fit(given)`` trains one run and returns the test set's scores,
        `jobs.training.handling.Fitted`; `given` is a `jobs.training.handling.FitInput`, which holds
        all randomness. Networks share `jobs.training.network.Network`.
    core_seconds : callable
        ``core_seconds(dataset, info, rows)`` estimates the seconds that a fit on `rows` training
        rows takes on one core. `info` is the resolved `ClassifierInfo`.
    settings : callable
        ``settings(dataset, options)`` returns everything else that affects results, such as the
        optimizer: part of the identity, as JSON. `options` is what the user wrote. May raise
        Refused.
    options : mapping of str to Option
        Additional keys that its table may hold.
    epochs : int, optional
        Default number of epochs; None for a classifier that is not trained in epochs.
    devices : tuple of {"cpu", "gpu"}
        Where it can be trained.
    images_only : bool
        Whether its rows must be images.
    augments : bool
        Whether training rows may be transformed anew at each presentation.
    draws : callable
        ``draws(hparams)`` tells whether a fit with these hparams draws any random number. If not,
        all runs of a repeat are the same model.
    library : mapping, optional
        Defaults of the library that differ from the space's, for ``defaults = "library"``; None if
        the classifier does not offer that.
    prepare : callable, optional
        ``prepare(options)`` stores what workers will need, such as pretrained weights, when a plan
        is written. May raise Refused.
    image_seconds : callable, optional
        ``image_seconds(settings)`` returns the seconds that computing an image's features takes on
        one core. Fits on the same images share features if their settings have the same `weights`.
    packages : tuple of str
        Packages that a fit imports and that may be missing.
    imports : tuple of str
        Modules of libraries that a fit imports. A task imports them once for all its processes.
    version : int
        Part of the identity; raised when the meaning of a fit changes.
    about : str
        What it is, in a sentence; the docs tell it where their page does not describe it.
    """

    name: str
    space: tuple[Hparam, ...]
    probability: Probability
    streams: frozenset[str]
    fit: Fit
    core_seconds: Callable[[DatasetInfo, ClassifierInfo, float], float]
    settings: Callable[[DatasetInfo, Options], Settings] = lambda *_: {}
    options: Mapping[str, Option] = field(default_factory=dict)
    epochs: int | None = None
    devices: tuple[Device, ...] = ("cpu", "gpu")
    images_only: bool = False
    augments: bool = False
    draws: Callable[[Hparams], bool] = lambda _: True
    library: Hparams | None = None
    prepare: Callable[[Options], object] | None = None
    image_seconds: Callable[[Settings], float] | None = None
    packages: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    version: int = 1
    about: str = ""

    @property
    def _hparams(self) -> Option:
        return replace(TABLE["hparams"], of={hparam.name: hparam.option for hparam in self.space})

    @property
    def table(self) -> Mapping[str, Option]:
        """All options that its table may hold."""
        has = {"epochs": self.epochs, "snapshots": self.epochs, "defaults": self.library}
        table = {name: option for name, option in TABLE.items() if has.get(name, ()) is not None}
        table["hparams"] = self._hparams
        table["device"] = replace(TABLE["device"], words=self.devices)
        if self.epochs is not None:
            table["epochs"] = replace(EPOCHS, default=self.epochs)
        return {**table, **self.options}

    def consumes(self, hparams: Hparams | None) -> frozenset[str]:
        """Return which of `streams` a fit with these hparams draws from.

        All of them for None, which stands for hparams that are unknown or differ between runs.
        """
        return self.streams if hparams is None or self.draws(hparams) else frozenset()

    def anchors(
        self, overrides: Options | None = None, *, library: bool = False
    ) -> dict[str, Value]:
        """Return the defaults of all hparams, overridden by the user's values.

        Anchors are the values of runs without hparam perturbation, and every perturbation is
        centred on them. With `library` they are the library's defaults, which cannot be perturbed.
        """
        values: dict[str, Value] = {hparam.name: hparam.default for hparam in self.space}
        if library:
            values |= self.library or {}
        values |= self._hparams.check("hparams", {} if overrides is None else overrides)
        return values


def epochs_of(default: int, options: Options) -> tuple[int, tuple[int, ...]]:
    """Return a network's number of epochs, and the epochs whose scores are kept, with the last.

    Parameters
    ----------
    default : int
        Epochs unless the user's options say otherwise.
    options : mapping
        What the user wrote.
    """
    epochs = EPOCHS.check("epochs", options.get("epochs", default))
    kept = replace(SNAPSHOTS, of=replace(EPOCHS, most=epochs))
    snapshots = kept.check("snapshots", options.get("snapshots", []))
    return epochs, tuple(sorted({*snapshots, epochs}))


@dataclass(frozen=True, slots=True)
class ClassifierInfo:
    """A classifier of a sweep, resolved for one dataset.

    Attributes
    ----------
    name : str
        The name that the user wrote; an alias is not part of the identity.
    record : Classifier
    canonical : dict
        Name, version and resolved settings, from which the identity is computed.
    hparams : dict
        The anchor of every hparam.
    epochs : int or None
        None for a classifier that is not trained in epochs.
    snapshots : tuple of int
        Epochs whose scores are kept, ascending, including the last; empty without epochs.
    consumes : frozenset of str
        `Classifier.consumes` at the anchors; if empty, all runs of a repeat are the same model.
    device : {"cpu", "gpu"}
        The requested resource class; not part of the identity.
    defaults : {"study", "library"}
        Whose defaults the anchors are; the library's can be neither perturbed nor tuned. Only the
        values are part of the identity.
    options : mapping
        What the user wrote.
    """

    name: str
    record: Classifier
    canonical: Settings
    hparams: Hparams
    epochs: int | None
    snapshots: tuple[int, ...]
    consumes: frozenset[str]
    device: Device
    defaults: Defaults = "study"
    options: Options = field(default_factory=dict, compare=False)

    @property
    def probability(self) -> Probability:
        """How scores become probabilities."""
        return self.record.probability

    def at(self, configuration: str) -> ClassifierInfo:
        """Return the classifier with the anchors of a configuration (`jobs.hparams.grid`)."""
        if self.defaults == "library":
            reason = f'{self.name} has defaults = "library": a grid is one of the study\'s'
            raise Refused("hparams", configuration, reason)
        values = grid.read(self.record.space, configuration)
        for name in self.options.get("hparams", {}):
            if name in values and values[name] != self.hparams[name]:
                raise Refused("hparams", configuration, f"the table of {self.name} fixes {name}")
        anchors = {**self.hparams, **values}
        return replace(self, hparams=anchors, consumes=self.record.consumes(anchors))


OPTIONS: Mapping[str, Option] = {
    "optimizer": Option(
        "What trains it; by default the classifier's own.", words=("adam", "adamw", "sgd")
    ),
    "momentum": Option("Of optimizer = sgd (default: 0.9).", float, least=0, below=1),
    "schedule": Option(
        "Of the learning rate; by default the classifier's own; of sgd linear.",
        words=("constant", "cosine", "piecewise-linear", "plateau", "step"),
    ),
    "precision": Option(
        "Of matrix products in training; not part of the identity.",
        str,
        "float32",
        words=get_args(Precision),
    ),
}
"""Options of all networks."""

BATCH_SIZE: Mapping[str, Option] = {
    "batch_size": Option(
        "Rows a step; by default the dataset's size decides.", int, least=2, most=1_000_000
    )
}
"""The option of networks without the hparam ``batch``."""

STACK: Mapping[str, Option] = {
    "stack": Option(
        "Runs of a repeat trained at once; not part of the identity.",
        *(int, 1),
        least=1,
        most=1024,
        words=("auto",),
    )
}
"""The option of networks that can train several runs at once."""


def with_optimizer(own: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Json]:
    """Return a network's settings, updated by the user's optimizer options.

    With ``optimizer = "sgd"`` the schedule is piecewise linear and the momentum 0.9 unless options
    say otherwise (PIT, section 5, for all its networks); other optimizers take no momentum.

    Parameters
    ----------
    own : mapping
        The record's settings: ``optimizer``, ``schedule`` and possibly ``batch_size``.
    options : mapping
        What the user wrote.
    """
    declared = {**OPTIONS, **BATCH_SIZE, **STACK}
    given = values_of(declared, {name: options[name] for name in declared if name in options})
    optimizer = given["optimizer"] or own["optimizer"]
    is_sgd = optimizer == "sgd"
    schedule = given["schedule"] or ("piecewise-linear" if is_sgd else own["schedule"])
    settings = {**own, "optimizer": optimizer, "schedule": schedule}
    if is_sgd:
        settings["momentum"] = 0.9 if given["momentum"] is None else given["momentum"]
    elif "momentum" in options:
        reason = f"{optimizer} has none to set; it goes with optimizer = 'sgd'"
        raise Refused("momentum", options["momentum"], reason)
    if "batch_size" in options:
        settings["batch_size"] = given["batch_size"]
    return settings
