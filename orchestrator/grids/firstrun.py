"""The first run of a sweep file that ``manyseed init`` writes: as much as two minutes allow.

Classifiers are timed on this machine, and code of one's own is probed, as planning does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from manyseed.jobs import classifiers
from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import DatasetInfo
from manyseed.jobs.own.findings import ALIKE, FIXED
from manyseed.jobs.run import Generators, TrainingSet
from manyseed.orchestrator.errors import refused, toml_value
from manyseed.orchestrator.grids.modelfile import own_name
from manyseed.orchestrator.grids.own import OwnCode

_SECONDS = 120.0
"""What the first run may take with both cores."""
_AROUND, _MOST_AROUND = 30.0, 60.0
"""Seconds of it for starting processes, the analysis and the report, on a machine as fast as the
estimates take it to be, and at most."""
_CORES = 2
_ASKED = ("scores", "encode")  # keys without which code of one's own may be refused
_FEWEST_EPOCHS = 5
_PROBE = 0.5  # seconds that a probe should take
RUNS, _FEWER_RUNS, _FEWEST_ROWS = 10, 5, 1000
REPEATS = 5  # test sets; fewer than four allow no useful intervals over test sets

_TABULAR, _ON_IMAGES = ("lr-sgd", "xgb", "mlp"), ("cnn",)
_ALWAYS = ("lr-sgd",)  # can be trained in every installation


@dataclass(frozen=True, slots=True)
class FirstRun:
    """The first run: what is trained how often, so that it ends within two minutes.

    `absent` are classifiers that lack a package here, `steady` those of `models` that draw no
    random number. `epochs` of each network are as many as there is time for, at most the default.
    `rows` for training, 0 for all. `seconds` that it should take, 0 if no fit was timed. `problem`
    is why none could be. `fixed` are the seeds to which code of one's own gives a value, `needs`
    the keys without which it is refused. `alike` is the note that its seeds changed nothing.
    """

    models: Sequence[str]
    absent: Sequence[str]
    steady: Sequence[str]
    repeats: int
    runs: int = RUNS
    epochs: Mapping[str, int] = field(default_factory=dict)
    usual: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    seconds: float = 0.0
    problem: str = ""
    fixed: Sequence[str] = ()
    needs: Mapping[str, Any] = field(default_factory=dict)
    alike: str = ""

    @property
    def is_few(self) -> bool:
        """Whether there are too few runs to tell how much models differ between seeds."""
        return self.runs < _FEWER_RUNS and len(self.steady) < len(self.models)

    @property
    def told(self) -> str:
        """How long it takes, or why that is not known, in a sentence; empty if no fit was tried."""
        if self.problem:
            return f"No fit could be timed; mend this before planning: {self.problem}"
        if not self.seconds:
            return ""
        minutes = max(1, round(self.seconds / 60))
        return f"The first run takes about {minutes} min on {_CORES} cores, as a fit was timed."


def joined(parts: Sequence[FirstRun]) -> FirstRun:
    """Return the first run of several models, each of which has its share of the time."""
    if len(parts) == 1:
        return parts[0]
    timed = [each.seconds for each in parts if each.seconds]
    rows = min((each.rows for each in parts if each.rows), default=0)
    return FirstRun(
        models=[name for each in parts for name in each.models],
        absent=[name for each in parts for name in each.absent],
        steady=[] if rows else [name for each in parts for name in each.steady],
        repeats=min(each.repeats for each in parts),
        runs=min(each.runs for each in parts),
        epochs={name: n for each in parts for name, n in each.epochs.items()},
        usual={name: n for each in parts for name, n in each.usual.items()},
        rows=rows,
        seconds=sum(timed) - _AROUND * max(0, len(timed) - 1),
        problem="\n".join(each.problem for each in parts if each.problem),
        fixed=[name for each in parts for name in each.fixed],
    )


def first_run(
    info: DatasetInfo, model: str | None, table: Mapping[str, Any], of: int = 1
) -> FirstRun:
    """Choose what the first run trains, and time each classifier to say how much of it can be.

    `of`: how many models share the time.
    """
    is_own, usual = bool(table), min(info.n_test_sets or REPEATS, REPEATS)
    suitable = () if model else _ON_IMAGES if info.image else _TABULAR
    models = [each for each in suitable if not classifiers.lacking(each)] or [*_ALWAYS]
    models = models if model is None else [own_name(table) if is_own else model]
    fixed, unmoved = list[str](), ""
    needs: Mapping[str, Any] = {}
    resolved: dict[str, classifiers.ClassifierInfo] = {}
    absent = [each for each in suitable if each not in models]
    try:
        if is_own:  # probed, as it will be when it is planned
            resolved[models[0]], notes, needs = _probed(table, info)
            fixed = _fixed(notes)
            unmoved = next((n[n.index(ALIKE) :] for n in notes if ALIKE in n), "")
        else:
            resolved = {name: classifiers.resolve(name, {}, info) for name in models}
    except classifiers.Unsuitable as error:
        raise refused(error, key="MODEL", value=model) from None
    except Refused as error:  # such as weights that are not there yet; planning says what to do
        first, *then = str(error).splitlines()  # what is wrong, and the remedy
        is_log = bool(then) and then[0].strip().startswith("It printed")
        remedy = then[-1:] if is_log else then[:1]
        needs_besides = {k: v for k, v in error.needs.items() if v is not None} if is_own else {}
        remedy += [
            f"  add to [classifier.{models[0]}]: {key} = {toml_value(value)}"
            for key, value in needs_besides.items()
        ]
        return FirstRun(models, absent, (), usual, problem="\n".join([first, *remedy]))
    steady = [name for name, each in resolved.items() if not each.consumes]
    usually = {name: each.epochs for name, each in resolved.items() if each.epochs}
    if any(map(classifiers.lacking, models)):
        return FirstRun(models, absent, steady, usual)
    slower = {name: 1.0 if is_own else _slower(info, name) for name in models}
    around = min(max(_AROUND, _AROUND * max(slower.values())), _MOST_AROUND)
    most = around + (_SECONDS - around) / of

    def planned(runs: int, rows: int = 0, repeats: int = usual) -> FirstRun:
        def seconds(name: str, epochs: int = 0) -> float:
            each, share = resolved[name], 1.0
            if epochs and is_own:
                share = epochs / usually[name]
            elif epochs:
                each = classifiers.resolve(name, {"epochs": epochs}, info)
            fits = repeats * (1 if name in steady and not rows else runs)
            once = classifiers.core_seconds(info, each, rows or info.n_train)
            return slower[name] * fits * share * once / _CORES

        others = sum(seconds(name) for name in models if name not in usually)
        left = most - around - others
        once = sum(seconds(name, 1) for name in usually)
        epochs = {name: max(1, min(int(left / once), full)) for name, full in usually.items()}
        whole = around + others + sum(seconds(*each) for each in epochs.items())
        alike = [] if rows else steady  # each run draws its own rows
        return FirstRun(
            *(models, absent, alike, repeats, runs, epochs, usually, rows, whole),
            fixed=fixed,
            needs=needs,
            alike=unmoved,
        )

    def fits(found: FirstRun) -> bool:
        enough = min(found.epochs.values(), default=_FEWEST_EPOCHS) >= _FEWEST_EPOCHS
        return enough and found.seconds <= most

    rows, smaller = info.n_train, [planned(RUNS), planned(_FEWER_RUNS)]
    while not fits(smaller[-1]) and rows > _FEWEST_ROWS:
        rows = max(rows // 2, _FEWEST_ROWS)
        smaller.append(planned(_FEWER_RUNS, int(float(f"{rows:.1e}"))))
    smaller += [planned(runs, smaller[-1].rows, min(2, usual)) for runs in (_FEWER_RUNS, 2)]
    return next(filter(fits, smaller), smaller[-1])


def _probed(
    table: Mapping[str, Any], info: DatasetInfo
) -> tuple[classifiers.ClassifierInfo, list[str], dict[str, Any]]:
    """Return code of one's own as resolved, the notes on it, and the keys that it needs besides.

    They say how its scores are read, or how its rows are encoded.
    """
    needs: dict[str, Any] = {}
    while True:
        own = OwnCode([Path.cwd()], {})
        try:
            found = own.resolve(own_name(table), {**table, **needs}, info)
        except Refused as error:
            new = {key: error.needs[key] for key in _ASKED if key in error.needs}
            if new.keys() <= needs.keys():
                raise
            needs |= new
        else:
            return found, [note for notes in own.notes.values() for note in notes], needs


def _fixed(notes: Iterable[str]) -> list[str]:
    """Return the seeds that code gives a value, with the names of the parts that have them."""
    named = [note.removesuffix(FIXED) for note in notes if note.endswith(FIXED)]
    return [name for names in named for name in names.split(", ")]


def _slower(info: DatasetInfo, name: str) -> float:
    """Return how many times longer than estimated a fit of a classifier takes on this machine.

    It is trained on random numbers of the data's shape, which take as long.
    """
    has_epochs = classifiers.CLASSIFIERS[name].epochs is not None
    model = classifiers.resolve(name, {"epochs": 1} if has_epochs else {}, info)
    rows = info.n_train
    while rows > _FEWEST_ROWS and classifiers.core_seconds(info, model, rows) > _PROBE:
        rows //= 2
    if has_epochs:
        epochs = round(_PROBE / classifiers.core_seconds(info, model, rows))
        model = classifiers.resolve(name, {"epochs": max(1, min(epochs, 20))}, info)
    rng, n_classes = np.random.default_rng(0), len(info.class_names)
    X = rng.integers(0, 255, (rows + 2, info.n_features)).astype(np.float64)
    labels = [column.n_labels for column in info.columns if column.kind != "ignored"]
    cardinality = np.array(labels or [0] * info.n_features, dtype=np.int32)
    X = np.where(cardinality > 0, X % np.maximum(cardinality, 1), X)
    y = (np.arange(rows) % n_classes).astype(np.uint16)
    data = TrainingSet(X[:rows], y, X[rows:], n_classes, cardinality, info.image)
    taken = []
    for _ in range(3):  # the first also imports and warms up
        started = process_time()
        streams = Generators(*(np.random.default_rng(seed) for seed in range(3)))
        classifiers.fit(model.canonical, model.hparams, data, streams)
        taken.append(process_time() - started)
        if sum(taken) > 10 * _PROBE:
            break
    return min(taken) / classifiers.core_seconds(info, model, rows)
