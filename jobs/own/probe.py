"""The process in which planning probes users' code: ``python -m manyseed.jobs.own.probe DIR``.

The folder holds the request, ``request.json``, and a copy of local modules, ``code``; the answer is
written beside them. If there is no answer, the caller shows what the code printed.
"""

from __future__ import annotations

import inspect
import json
import random
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import NOTHING, in_a_line
from manyseed.jobs.own import advice, command, copies, estimator, network, table, training
from manyseed.jobs.own.calling import FLOOR, CodeFailed, NotTaken, OwnError, asked, load
from manyseed.jobs.own.findings import ALIKE, FIXED, LAST_LINES, PROBE_ROWS, Findings, ProbeRequest
from manyseed.jobs.own.record import description, fit
from manyseed.jobs.own.table import Own
from manyseed.jobs.run import (
    Feature,
    Generators,
    Prediction,
    TrainingSet,
    are_probabilities,
    prediction,
    stream,
)
from manyseed.jobs.training.handling import PLAIN, Alive, FitInput

_TEST_ROWS = 33
_LABELLED, _LABELLED_NUMBERS = 512, 2**20  # test rows if only their labels are known, and their X
_EPOCHS = 2
_LONG_SECONDS = 60.0  # after a fit that takes longer there is no other
_SHORT_SECONDS = 0.5  # of a fit, to try several times
_MORE = 16  # times as many rows in the fit that tells a command's start-up
_MORE_IN_PYTHON = 4  # that tells what else does not grow with its rows
_FEWER = 1 / 4  # of the rows, where more would take long
_PART_SECONDS = 0.2, 4.0  # of a fit in Python from which its fixed part is measured, to more rows
_LEAST_GROWING = 0.01  # of a fit's seconds, as far as two fits tell
_TRIES = 4
_TRYING_SECONDS = 3.0  # for fits with other seeds, once one failed

_WITHOUT: Mapping[str, str] = {
    "estimator": "say so by seeds = {}",
    "train": "the function should not take it",
    "module": "it needs no runs of its own",
    "command": "the command should not name it",
}


_SEEDED: Mapping[str, str] = {
    "estimator": 'name the parameter that takes its seed, such as seeds = { seed = "batch" }; '
    "and take all random numbers from that seed",
    "train": "take all random numbers from arguments named init, batch or dropout; for PyTorch, "
    "begin with torch.manual_seed(int(init.integers(2**63)))",
    "module": "take all random numbers from PyTorch's global generator",
    "command": "give it {seed} as an argument, and take all random numbers from that seed",
}
"""What to do about code that draws random numbers without a seed."""


def _to_seed(own: Own, seeds: Sequence[str]) -> str:
    """Return what to do about code that does not draw all random numbers from these seeds."""
    if not seeds or own.form == "module":
        return _SEEDED[own.form]
    given = ", ".join(seeds)
    if own.form == "command":
        named = [each for each in table.placeholders(own.command["command"]) if each in table.SEEDS]
        given = ", ".join(f"{{{each}}}" for each in named)
        return f"it gets {given}, but does not take all random numbers from {_it(named)}"
    also = f"it is given {given}, but draws from elsewhere too, such as np.random"
    if own.form == "train":
        return f"{also}: take all random numbers from {_it(seeds)}"
    name = seeds[0].rpartition("__")[2]
    return f"{also}: use np.random.RandomState(self.{name}) for all"


def _it(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "these"


_IMPUTED = (
    'let encode = "dense" impute them, which also standardises and one-hot encodes, or impute them '
    "yourself, such as by sklearn.impute:SimpleImputer in a pipeline"
)


class _Wrong(Exception):
    def __init__(self, reason: str, option: str = "", needs: Mapping[str, Any] = NOTHING) -> None:
        super().__init__(reason)
        self.option, self.needs = option, needs


def answer(folder: Path) -> dict[str, object]:
    """Return the findings, or why the code cannot be used."""
    request, copy = ProbeRequest.read(folder), folder / "code"
    own = table.read(request.table, of_images=request.image is not None)
    try:
        if own.form != "command":
            _import(own, copy if request.is_local else None)
        return asdict(_probed(own, request, copy))
    except _Wrong as error:
        return {"refused": str(error), "option": error.option, "needs": dict(error.needs)}


def _import(own: Own, copy: Path | None) -> None:
    try:
        if copy is not None:
            copies.use_modules(copy, own.entries)
    except ImportError as error:
        raise _Wrong(str(error)) from error
    try:
        load(own.entry)
    except BaseException as error:
        raise _Wrong(f"cannot be imported: {_described(error)}") from error


def _probed(own: Own, request: ProbeRequest, copy: Path) -> Findings:
    findings = _FORMS[own.form](own, request.hparams)
    notes = [*findings.notes]
    drawn = [*(findings.seeds if own.form == "estimator" else findings.streams)]
    draws = ", ".join(drawn)
    if not own.probe:
        return findings
    settings = description(own, findings)
    if own.command and request.has_files:
        command.use(copy, settings)
    scale = 1.0  # from the probe's epochs to all of them
    if own.training:
        settings["epochs"] = min(own.training["epochs"], _EPOCHS)
        scale = own.training["epochs"] / settings["epochs"]
    has_labels = findings.scores in ("predict", "labels")
    rows = _rows(request, has_labels=has_labels)
    handling = replace(PLAIN, timeout=table.timeout(own.options))
    fits = count()

    def predict(seed: int, data: TrainingSet = rows) -> tuple[Prediction, Alive | None, float]:
        _scramble(next(fits))
        generators = Generators(
            stream(seed, "init", "probe"),
            stream(seed, "batch", "probe"),
            stream(seed, "dropout", "probe"),
        )
        started = perf_counter()
        try:
            fitted = fit(FitInput(settings, request.hparams, data, generators, handling))
            found = prediction(fitted.scores, "none", fitted.seconds)
            return found, fitted.alive, perf_counter() - started
        except Exception as error:
            needs = NOTHING
            if isinstance(error, CodeFailed):  # told apart from what is wrong
                needs, error.needs = error.needs, needs
            elif advice.wants_frames(own, request, error):
                needs = {"encode": "frame"}
            what = f"{len(data.y)} rows of {data.X.shape[1]} features, {data.n_classes} classes"
            shown = _described(error, 0) + advice.of_failure(
                own, request, error
            )  # advice may follow
            raise _Wrong(f"failed in a probe ({what}): {shown}", needs=needs) from error

    def fitted(seed: int) -> tuple[Prediction, Alive | None, float]:
        """Fit with a seed; where that fails, say so if fits with other seeds do not."""
        try:
            return predict(seed)
        except _Wrong as error:
            if error.needs or not draws or (seed == 1 and not _any(predict, range(2, 2 + _TRIES))):
                raise
            reason = f"{error}\n  with other seeds it does not: unprobed, all runs are trained"
            raise _Wrong(
                f"{reason}, and those that fail are told", needs={"probe": False}
            ) from error

    try:
        first, model, seconds = fitted(1)
    except _Wrong as error:
        if not request.missing or "probe" in error.needs:
            raise
        predict(1, _rows(replace(request, missing=())))  # where this fails, too, NaN is not why
        reason = f"cannot take the data's missing values, which are NaN: {error}\n  {_IMPUTED}"
        raise _Wrong(reason, needs={"encode": "dense"}) from error
    notes += _doubts(own, first.scores, model)
    if seconds > _LONG_SECONDS:
        note = f"a probe took {seconds:.0f} s, so no second fit was compared with it"
        return replace(findings, seconds=scale * seconds, notes=(*notes, note))
    is_doubtful = has_labels or not draws  # labels are often equal by chance
    for _ in range(_TRIES):
        again, _, seconds = predict(1)
        if not np.array_equal(first.scores, again.scores):
            kind = "streams" if own.form in ("train", "module") else "seeds"
            raise _Wrong(
                "two fits with the same seeds differ: it draws random numbers that do not come "
                f"from its {kind} ({draws or 'none'})\n  {_to_seed(own, drawn)}"
            )
        if seconds > _SHORT_SECONDS or not is_doubtful:
            break
    startup = 0.0
    if times := _times_as_many(seconds, is_command=own.form == "command"):
        more = _rows(request, has_labels=has_labels, times=times)
        with suppress(_Wrong):  # such as by its timeout
            startup = _startup(seconds, len(rows.y), predict(1, more)[2], len(more.y))
    others = (fitted(seed)[0].scores for seed in range(2, 3 if seconds > _SHORT_SECONDS else 7))
    if draws and all(np.array_equal(first.scores, other) for other in others):
        notes.append(
            f"{ALIKE} on {len(rows.y)} made-up rows, which may be too "
            f"few to differ on; only if {draws} never matters, {_WITHOUT[own.form]}: then one run "
            "of a repeat is trained"
        )
    seconds, startup = scale * seconds, scale * startup
    return replace(findings, seconds=seconds, notes=tuple(notes), startup=startup)


def _times_as_many(seconds: float, *, is_command: bool) -> float:
    """Return how many times as many rows the fit has that tells the fixed part; 0 for none.

    The imports of a command take seconds on a loaded machine, so that fewer rows must do.
    """
    if not is_command:
        least, most = _PART_SECONDS
        return 0 if seconds < least else _MORE_IN_PYTHON if seconds < most else _FEWER
    times = min(_MORE, int(_LONG_SECONDS / max(seconds, 0.1)))
    return times if times >= _MORE_IN_PYTHON else _FEWER


def _startup(seconds: float, rows: int, longer: float, more: int) -> float:
    """Return the part of a fit's seconds that does not grow with its rows, from two fits."""
    growing = rows * (longer - seconds) / (more - rows)
    return seconds - min(max(growing, _LEAST_GROWING * seconds), seconds)


def _any(predict: Callable[[int], object], seeds: Iterable[int]) -> bool:
    """Return whether fits with any of these seeds, as many as there is time for, do not fail."""
    until = perf_counter() + _TRYING_SECONDS
    for seed in seeds:
        with suppress(_Wrong):
            predict(seed)
            return True
        if perf_counter() > until:
            return False
    return False


def _doubts(own: Own, scores: NDArray[Any], model: Alive | None) -> list[str]:
    """Return notes on scores (epoch, sample[, class]) that may not be what the table says."""
    if own.form == "module" and model is not None:
        import torch

        with torch.no_grad():
            outputs = model.model(model.test).double().cpu().numpy()
        if not are_probabilities(outputs):
            return []
        return ["returns probabilities, but is trained as if they were logits: remove the softmax"]
    if own.form == "estimator" or own.scores == "labels":
        return []
    if own.scores == "probabilities":
        gap = abs(scores) if scores.ndim == 2 else np.ptp(np.sort(scores)[..., -2:], axis=-1)
        if not (gap > -0.99 * np.log(FLOOR)).all():
            return []
        otherwise = '"labels"' if own.form == "command" else '"decisions" and a 1 for the class'
        return [
            "every probability of a probe is 0 or 1, so calibration, Brier score and log loss mean "
            f"nothing; if it returns labels, scores = {otherwise}"
        ]
    if scores.ndim > 2 or not are_probabilities(scores[0]):
        return []
    doubt = "every score of a probe lies in 0 to 1, as probabilities of two classes do"
    remedy, needs = 'if these are logits, add scores = "logits"', {"scores": "probabilities"}
    if np.isin(scores, (0, 1)).all():
        doubt = "every score of a probe is 0 or 1, as labels are"
        remedy = 'if these are probabilities, add scores = "probabilities"'
        needs = {"scores": "labels"}
        if own.form == "train":
            doubt, needs = f"{doubt}, which are no scores", {}
            remedy = "return one for each class (sample, class), such as logits, not their argmax"
    if own.scores is None:
        raise _Wrong(f"{doubt}; {remedy}", needs=needs)
    return [f"{doubt}, though they are said to be {own.scores}"]


def _of_function(own: Own, hparams: Mapping[str, Any]) -> Findings:
    given = {**own.params, **hparams}
    names = _asked(own, training.OFFERED, given)
    streams, named = training.draws_from(names), tuple(sorted({*names} & {*given}))
    note = f"draws from {', '.join(streams) or 'no stream that varies'}"
    scores = own.scores or table.SCORES[own.form][0]
    return Findings(scores=scores, notes=(note,), streams=tuple(streams), named=named)


def _of_module(own: Own, hparams: Mapping[str, Any]) -> Findings:
    given = network.of_factory({**own.params, **hparams})
    names = _asked(own, network.offered(own.encode, given), given)
    named = tuple(sorted({*names} & {*given}))
    return Findings(scores=table.SCORES[own.form][0], streams=("batch", "init"), named=named)


def _of_command(own: Own, _: Mapping[str, Any]) -> Findings:
    names = [name for name in table.placeholders(own.command["command"]) if name in table.SEEDS]
    seeds = ", ".join(f"{{{name}}} from {table.SEEDS[name]}" for name in names) or "none"
    streams = tuple(table.draws_from(own.command["command"]))
    scores = own.scores or table.SCORES[own.form][0]
    return Findings(scores=scores, notes=(f"seeds: {seeds}",), streams=streams)


def _asked(own: Own, offered: Sequence[str], given: Collection[str]) -> list[str]:
    factory = load(own.entry)
    try:
        return asked(factory, offered, given)
    except NotTaken as error:
        key = "space" if error.name in (own.options.get("space") or ()) else "params"
        raise _Wrong(str(error), f"{key}.{error.name}") from error
    except OwnError as error:
        of = advice.of_arguments if own.form == "module" else advice.of_training
        remedy = of(own, factory)
        raise _Wrong(f"{error}{remedy}") from error


def _of_estimator(own: Own, hparams: Mapping[str, Any]) -> Findings:
    params = {**own.params, **hparams}
    try:
        model = estimator.build(own.entry, params)
        if hasattr(model, "set_params"):
            free, given = estimator.takes_seeds(model)
        else:
            free, given = estimator.called_with_seeds(own.entry, params)
        scores = own.scores or estimator.says(model)
    except Exception as error:
        raise _Wrong(f"cannot be built: {_described(error)}{_seedless(own, params)}") from error
    if not callable(getattr(model, scores, None)):
        raise _Wrong(f"{type(model).__name__} has no {scores}", "scores")
    seeds = dict(own.seeds) if own.seeds is not None else dict.fromkeys(free, "batch")
    if seeds:
        try:
            estimator.given_seeds(model, own.entry, params, dict.fromkeys(seeds, 1))
        except Exception as error:
            reason = f"cannot be given {', '.join(seeds)}: {_described(error)}"
            if known := [name for name in (*free, *given) if name not in seeds]:
                right = ", ".join(f'{name} = "batch"' for name in known)
                reason += f"\n  the result takes its seed by another name: seeds = {{ {right} }}"
            raise _Wrong(reason, "seeds") from error
    notes = []
    if own.seeds is None:
        notes.append(f"seeds: {_seeds(seeds)}")
    if fixed := [name for name in given if name not in seeds]:
        notes.append(f"{', '.join(fixed)}{FIXED}")
    return Findings(seeds, scores, notes=tuple(notes))


def _seedless(own: Own, params: Mapping[str, Any]) -> str:
    """Return what to write instead of a function that cannot be called without a seed."""
    try:
        named = inspect.signature(load(own.entry)).parameters
    except (TypeError, ValueError):  # no function, or one in C
        return ""
    needed = [
        name
        for name, one in named.items()
        if name in estimator.SEEDS and name not in params and one.default is one.empty
    ]
    if not needed:
        return ""
    return (
        f"\n  leave {needed[0]} out of the function, and random_state out of what it returns: "
        f"{estimator.SET_LATER}"
    )


def _seeds(seeds: Mapping[str, str]) -> str:
    return ", ".join(f"{name} from {stream}" for name, stream in seeds.items()) or "none"


_FORMS: Mapping[str, Callable[[Own, Mapping[str, Any]], Findings]] = {
    "estimator": _of_estimator,
    "train": _of_function,
    "module": _of_module,
    "command": _of_command,
}


def _scramble(number: int) -> None:
    """Seed the global generators differently for each fit: no fit may depend on them."""
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(number)


def _rows(request: ProbeRequest, *, has_labels: bool = False, times: float = 1) -> TrainingSet:
    """Return made-up rows on which fits that are not the same are likely to differ.

    Each class has its own mean, a third of the training rows has another row's label, and test rows
    lie between the classes. There are more of them if only their labels are known. Columns are
    where training has them, if that is known; else those of labels come last.
    """
    k, image = len(request.class_names), request.image
    n_continuous, n_categorical = request.n_continuous, request.n_categorical
    n = int(max(PROBE_ROWS, 8 * k) * times)
    n_test, width = _TEST_ROWS, n_continuous + n_categorical
    if has_labels:
        n_test = max(n_test, min(_LABELLED, _LABELLED_NUMBERS // max(1, width)))
    generator = np.random.default_rng(0)
    y = np.arange(n + n_test) % k
    X = generator.normal(size=(len(y), width))
    X[:n, :n_continuous] += generator.normal(size=(k, n_continuous))[y[:n]]
    y[:n:3] = generator.permutation(y[:n:3])
    if image is not None:
        X = np.clip(np.rint(128 + 40 * X), 0, 255)
    named = [n_labels for _, n_labels in request.columns]
    cardinality = np.array(named or np.repeat([0, 3], [n_continuous, n_categorical]), np.int32)
    order = np.argsort(cardinality > 0, kind="stable")  # numbers, then labels
    labels = cardinality[order[n_continuous:]]
    codes = np.stack([0 * labels, labels // 2, labels - 1])  # few, so that no test row has new ones
    drawn = generator.integers(0, 3, size=(len(y), n_categorical))
    X[:, n_continuous:] = np.take_along_axis(codes, drawn, axis=0)
    for kind, first, n_columns in (
        ("continuous", 0, n_continuous),
        ("categorical", n_continuous, n_categorical),
    ):
        if kind in request.missing:
            row, column = np.ogrid[: len(y), first : first + n_columns]
            X[:, first : first + n_columns][(row + column) % 7 == 0] = np.nan
    X = X[:, np.argsort(order)]
    train, test = slice(0, n), slice(n, None)
    names = [name for name, _ in request.columns]
    return TrainingSet(
        X=X[train],
        y=y[train].astype(np.uint16),
        X_test=X[test],
        n_classes=k,
        cardinality=cardinality,
        image=None if image is None else (image[0], image[1], image[2]),
        features=tuple(map(Feature, names, map(tuple, request.labels))),
    )


def _described(error: BaseException, line: int = -1) -> str:
    """Return a line of what was raised, and the line of the user's code that raised it."""
    text = in_a_line(error, line)
    for note in getattr(error, "__notes__", ()):
        text += "\n  " + "\n  ".join(note.splitlines()[-LAST_LINES:])
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    frames = traceback.extract_tb(cause.__traceback__)
    own = [frame for frame in frames if "/code/" in frame.filename]
    if own:
        name = Path(own[-1].filename).name
        text += f" ({name}, line {own[-1].lineno})"
    return text


if __name__ == "__main__":
    _folder = Path(sys.argv[1])
    (_folder / "answer.json").write_text(json.dumps(answer(_folder)))
