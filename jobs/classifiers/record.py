"""A classifier is one record: all that planning, training and the stored results need of it.

A record is filled in, not inherited from: data, and functions that are called with data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from manyseed.jobs.checks import Option, Refused, UnknownOption, integer
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.hparams import grid
from manyseed.jobs.hparams.kinds import Hparam, Value
from manyseed.jobs.run import Generators, Probability, TrainingSet
from manyseed.jobs.training.handling import Device, Fitted, Handling

Settings = Mapping[str, Any]
Options = Mapping[str, Any]
Hparams = Mapping[str, Value]
Defaults = Literal["study", "library"]
Form = Literal["estimator", "train", "module", "command"]
FORMS: tuple[Form, ...] = get_args(Form)
"""Options by which users name code of their own (`jobs.own.table`)."""

MODELLESS: tuple[Form, ...] = ("train", "command")
"""Those whose fits yield scores alone."""

EPOCHS_OPTION = Option(name="epochs", numbers="whole", least=1, most=1_000_000)

Fit = Callable[[Settings, Mapping[str, Any], TrainingSet, Generators, Handling], Fitted]


class NoHparam(Refused):
    """An option of a classifier that no grid varies: another value makes another classifier."""


class Unsuitable(Refused):
    """A dataset that a classifier cannot be trained on, whatever its options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier:
    """What is known of a classifier before it is asked for.

    Planning reads every record: functions import training libraries where they need them.

    Attributes
    ----------
    name : str
        Its name, as users write it; part of every identity and key of its streams.
    space : tuple of Hparam
        Its hparams. Draws go through them in this order: a new one goes to the end.
    probability : {"softmax", "ovr", "none"}
        How its scores become probabilities.
    streams : frozenset of str
        The varying streams, of ``init`` and ``batch``, that a fit draws from (``dropout`` goes with
        batch).
    fit : callable
        ``fit(settings, hparams, data, generators, handling)`` trains one run and returns the test
        set's scores, `jobs.training.handling.Fitted`. All randomness comes from `generators`; the
        settings are the canonical description, with the name, `version` and the epochs. Networks
        share one, `jobs.training.network.Network`.
    core_seconds : callable
        ``core_seconds(dataset, info, rows)``: roughly what a fit on so many training rows takes on
        one core, in seconds, as the plan estimates it before anything ran. `info` is the resolved
        `ClassifierInfo`.
    settings : callable
        ``settings(dataset, options)`` returns what else decides a result, such as the optimizer:
        part of the identity, as JSON. `options` are what the user wrote; it may raise Refused.
    options : tuple of str
        Keys of its own that the table may hold.
    epochs : int, optional
        Default number; None for a classifier that is not trained in epochs.
    devices : tuple of {"cpu", "gpu"}
        Where it can be trained.
    images_only : bool
        Whether it needs rows that are images.
    augments : bool
        Whether its training rows may be transformed anew at each presentation.
    draws : callable
        ``draws(hparams)``: whether a fit with these hparams draws at all. Where it does not, all
        runs of a repeat are the same model.
    library : mapping, optional
        The library's defaults where they are not the space's, which ``defaults = "library"`` asks
        for; None where the classifier knows no others.
    prepare : callable, optional
        ``prepare(options)`` keeps what workers will need, such as pretrained weights, when a plan
        is written; it may raise Refused.
    image_seconds : callable, optional
        ``image_seconds(settings)``: seconds on one core of an image's features, which fits on the
        same images share where the settings have the same `weights`.
    packages : tuple of str
        What a fit imports that not every installation has.
    version : int
        Part of the identity; raised when a fit's meaning changes.
    """

    name: str
    space: tuple[Hparam, ...]
    probability: Probability
    streams: frozenset[str]
    fit: Fit
    core_seconds: Callable[[DatasetInfo, ClassifierInfo, float], float]
    settings: Callable[[DatasetInfo, Options], Settings] = lambda *_: {}
    options: tuple[str, ...] = ()
    epochs: int | None = None
    devices: tuple[Device, ...] = ("cpu", "gpu")
    images_only: bool = False
    augments: bool = False
    draws: Callable[[Hparams], bool] = lambda _: True
    library: Hparams | None = None
    prepare: Callable[[Options], object] | None = None
    image_seconds: Callable[[Settings], float] | None = None
    packages: tuple[str, ...] = ()
    version: int = 1

    def consumes(self, hparams: Hparams | None) -> frozenset[str]:
        """Return the varying streams that a fit with these hparams draws from.

        None stands for hparams that are not known, or differ between runs: any stream that a fit
        may draw from is then one.
        """
        return self.streams if hparams is None or self.draws(hparams) else frozenset()

    def anchors(
        self, overrides: Options | None = None, *, library: bool = False
    ) -> dict[str, Value]:
        """Return the defaults of all hparams with the user's values in their place.

        The anchors are what a run without hparam perturbation uses and what every perturbation is
        centred on; with `library` they are the library's own, which nothing can be centred on.

        Raises
        ------
        Refused
            For an unknown hparam, a value of the wrong type or one outside its range.
        """
        space = {hparam.name: hparam for hparam in self.space}
        values: dict[str, Value] = {name: hparam.default for name, hparam in space.items()}
        if library:
            values |= self.library or {}
        for name, value in (overrides or {}).items():
            if name not in space:
                raise UnknownOption(f"hparams.{name}", value, allowed=space)
            values[name] = space[name].check(value)
        return values


def epochs_of(default: int, options: Options) -> tuple[int, tuple[int, ...]]:
    """Return how long a network is trained, and the epochs whose scores are kept, the last too.

    Parameters
    ----------
    default : int
        Epochs where the table says nothing.
    options : mapping
        What the user wrote of it.

    Raises
    ------
    Refused
    """
    epochs = int(EPOCHS_OPTION.check(options.get("epochs", default)))
    snapshots = options.get("snapshots", [])
    if not isinstance(snapshots, list | tuple):
        raise Refused("snapshots", snapshots, allowed="a list of epochs")
    for snapshot in snapshots:
        integer("snapshots", snapshot, least=1, most=epochs)
    return epochs, tuple(sorted({*snapshots, epochs}))


@dataclass(frozen=True, slots=True)
class ClassifierInfo:
    """A classifier of a sweep, resolved for one dataset.

    Attributes
    ----------
    name : str
        Its name, as the user wrote it; an alias is no part of the identity.
    record : Classifier
    canonical : dict
        Name, version and resolved settings: what the identity is taken over.
    hparams : dict
        The anchor of every hparam.
    epochs : int or None
        None for a classifier that is not trained in epochs.
    snapshots : tuple of int
        Epochs whose scores are kept, ascending, the last one included; empty without epochs.
    consumes : frozenset of str
        `Classifier.consumes` at the anchors: where it is empty, all runs of a repeat are the same
        model.
    device : {"cpu", "gpu"}
        The resource class requested; no part of the identity.
    defaults : {"study", "library"}
        Whose defaults the anchors are; the library's can be neither perturbed nor tuned. The
        values are the identity, not this.
    options : mapping
        What the user wrote of it.
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
        """How its scores become probabilities."""
        return self.record.probability

    def at(self, configuration: str) -> ClassifierInfo:
        """Return it with other anchors, those of a configuration (`jobs.hparams.grid`).

        Raises
        ------
        Refused
            For hparams or values that it cannot have, or that its table fixes otherwise, and where
            its anchors are the library's.
        """
        if self.defaults == "library":
            reason = f'{self.name} has defaults = "library": a grid is one of the study\'s'
            raise Refused("hparams", configuration, reason)
        values = grid.read(self.record.space, configuration)
        for name in self.options.get("hparams", {}):
            if name in values and values[name] != self.hparams[name]:
                raise Refused("hparams", configuration, f"the table of {self.name} fixes {name}")
        anchors = {**self.hparams, **values}
        return replace(self, hparams=anchors, consumes=self.record.consumes(anchors))
