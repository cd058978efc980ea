"""A user's own classifier as a record, from its table or its canonical description."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from manyseed.jobs.classifiers.record import TORCH, Classifier, ClassifierInfo, Unsuitable
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.hparams.kinds import Free, Hparam
from manyseed.jobs.own import table
from manyseed.jobs.own.findings import PROBE_ROWS, Findings
from manyseed.jobs.own.table import Own
from manyseed.jobs.run import Probability
from manyseed.jobs.training.handling import Device, FitInput, Fitted

SEMANTICS = 1  # version of how users' code is called; part of the identity

_PROBABILITY: Mapping[str, Probability] = dict.fromkeys(
    ("predict_proba", "logits", "probabilities"), "softmax"
)


def description(own: Own, findings: Findings) -> dict[str, object]:
    """Return the canonical description of a table, which defines the identity."""
    return {
        "name": own.entry,
        "version": own.version,
        "own": SEMANTICS,
        "form": own.form,
        "encode": own.encode,
        "scores": own.scores or findings.scores,
        **_randomness(own, findings),
        **own.training,
        **own.command,
        **({"params": dict(own.params)} if own.params else {}),
        **({"named": [*findings.named]} if findings.named else {}),
        **({"space": own.declared} if own.declared else {}),
    }


def _randomness(own: Own, findings: Findings) -> dict[str, object]:
    if own.form != "estimator":
        return {"streams": [*findings.streams]}
    return {"seeds": dict(findings.seeds if own.seeds is None else own.seeds)}


def resolve(
    name: str, options: Mapping[str, Any], dataset: DatasetInfo, findings: Findings
) -> ClassifierInfo:
    """Resolve a table for a dataset, as `jobs.classifiers.resolve` resolves built-in classifiers.

    `name`: the classifier's. `options`: its table. `findings`: the probe's.
    """
    own = table.read(options, of_images=dataset.image is not None)
    require_suitable(own, dataset)
    canonical = description(own, findings)
    record = of_description(canonical, own.space, _seconds(findings))
    device = record.table["device"].check("device", options.get("device", "cpu"))
    hparams = record.anchors(options.get("hparams"))
    return ClassifierInfo(
        name=name,
        record=record,
        canonical=canonical,
        hparams=hparams,
        epochs=own.training.get("epochs"),
        snapshots=own.snapshots,
        consumes=record.consumes(hparams),
        device=device,
        options=options,
    )


def require_suitable(own: Own, dataset: DatasetInfo) -> None:
    """Refuse a dataset that a table's code cannot be trained on."""
    if own.encode == "pixels" and dataset.image is None:
        reason = f"{own.entry} is given pixels, and this dataset has no images"
        raise Unsuitable("image", dataset.image, reason)
    if own.encode == "frame" and not dataset.features:
        reason = f"{own.entry} is given frames, and this dataset's columns have no names"
        raise Unsuitable("encode", own.encode, reason)


def of_description(
    canonical: Mapping[str, Any],
    space: tuple[Hparam, ...] | None = None,
    core_seconds: Callable[[DatasetInfo, ClassifierInfo, float], float] = lambda *_: 1.0,
) -> Classifier:
    """Return the record of a canonical description, without importing the user's code.

    `space`: by default the declared hparams, the only ones that can be moved. `core_seconds`: as
    `Classifier.core_seconds`.
    """
    form = canonical["form"]
    devices: tuple[Device, ...] = ("cpu",) if form == "estimator" else ("cpu", "gpu")
    drawn = canonical["seeds"].values() if form == "estimator" else canonical["streams"]
    return Classifier(
        name=canonical["name"],
        version=canonical["version"],
        space=_declared(canonical) if space is None else space,
        probability=_PROBABILITY.get(canonical["scores"], "none"),
        streams=frozenset(drawn),
        fit=fit,
        core_seconds=core_seconds,
        devices=devices,
        epochs=canonical.get("epochs"),
        augments=form == "module" and canonical["encode"] == "pixels",
        packages=("torch",) if form == "module" else (),
        imports=TORCH if form == "module" else (),
    )


def _declared(canonical: Mapping[str, Any]) -> tuple[Hparam, ...]:
    declared = canonical.get("space", ())
    return (*table.of_loop(canonical["form"], declared), *map(table.hparam, declared))


def whole_space(canonical: Mapping[str, Any], hparams: Mapping[str, Any]) -> tuple[Hparam, ...]:
    """Return all hparams of a cell in the order of draws: movable ones, then single values."""
    declared = _declared(canonical)
    others = sorted({*hparams} - {each.name for each in declared} - {"tuned"})
    return (*declared, *(Free(name, hparams[name]) for name in others))


def fit(given: FitInput) -> Fitted:
    """Call the user's code; any exception it raises fails the run."""
    from manyseed.jobs.own import command, estimator, network, training
    from manyseed.jobs.own.calling import OwnError

    forms = {
        "estimator": estimator.fit,
        "train": training.fit,
        "module": network.fit,
        "command": command.fit,
    }
    try:
        return forms[given.settings["form"]](given)
    except (OSError, SystemExit) as error:
        raise OwnError(f"{type(error).__name__}: {error}") from error


def _seconds(findings: Findings) -> Callable[[DatasetInfo, ClassifierInfo, float], float]:
    """Return a function for a fit's time: the probe's, scaled by the rows but for the start-up."""
    startup = findings.startup

    def core_seconds(_: DatasetInfo, __: ClassifierInfo, rows: float) -> float:
        return startup + (findings.seconds - startup) * max(1.0, rows / PROBE_ROWS)

    return core_seconds
