"""Response curves of stored models: scores, curves of repeats, and how scores predict gaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.response.corpora import LEAST_TRAIN_ACCURACY, excluded, information
from manyseed.analysis.response.curves import CURVE_KEY, Answers, repeat_curves, run_curves, scores
from manyseed.jobs.response.questions import DBI, DBI_LAYERS, PARTS
from manyseed.orchestrator.computing.inputs import Published
from manyseed.orchestrator.computing.tables import CMI, RESPONSE_CURVES, RESPONSES
from manyseed.orchestrator.grids.loading import read_sweep_file
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.plan import PREFIX, Plan, with_anchors
from manyseed.orchestrator.responding import answers_of
from manyseed.orchestrator.store.coordinates import RESPONSE_ARRAYS
from manyseed.orchestrator.store.reader import read_array

_FIRST_BLOCK = DBI_LAYERS.index(1)
_RUN = ["cell", "repeat_index", "run_index"]
_ANSWER = [*_RUN, "transform", "layer"]


@dataclass(frozen=True, slots=True)
class Conditions:
    """How conditional mutual information is computed, as `[response]` of a sweep file says.

    `given`: hparams to condition on; None for all that grids vary. `least_train_accuracy`: models
    below it are left out for transforms of images.
    """

    given: tuple[str, ...] | None = None
    least_train_accuracy: float = LEAST_TRAIN_ACCURACY

    @classmethod
    def read(cls, paths: SweepPaths) -> Conditions:
        """Read the conditions of a sweep."""
        table = read_sweep_file(paths.sweep_file).response
        if table is None:
            return cls()
        least = table.least_train_accuracy
        return cls(
            None if table.given is None else tuple(table.given),
            LEAST_TRAIN_ACCURACY if least is None else float(least),
        )


def responses(
    paths: SweepPaths, groups: Sequence[Published], plan: Plan
) -> tuple[dict[str, pl.DataFrame], Conditions]:
    """Return the tables of response curves (none if no group has any), and their conditions.

    Curves are measured in training, or later from kept models. Copies of a run are left out: they
    answer as it does.
    """
    of_runs, of_repeats = [], []
    for group in groups:
        runs = group.predictions.runs.filter(~pl.col("identical"))
        scored: list[pl.DataFrame] = []
        points: list[pl.DataFrame] = []
        for answering, answers in (*_in_training(group, runs), *_later(paths, group, runs)):
            keys = answering.select(_RUN)
            frames = [scores(answers, keys), run_curves(answers, keys)]
            if scored:  # the first answer of each run counts
                before = pl.concat(frame.select(_ANSWER) for frame in scored)
                frames = [
                    frame.join(before, on=_ANSWER, how="anti", maintain_order="left")
                    for frame in frames
                ]
            scored.append(frames[0])
            points.append(frames[1])
        if scored:
            of_runs += scored
            of_repeats.append(repeat_curves(pl.concat(points)))
    if not of_runs:
        return {}, Conditions()
    conditions = Conditions.read(paths)  # only here is the sweep file needed
    cells = with_anchors(plan.cells).select("cell", "cell_id", *AXES, f"^{PREFIX}.*$")
    known = cells.join(pl.concat(of_runs), on="cell", how="inner", maintain_order="left")
    known = known.sort(*_RUN, "transform", "layer", maintain_order=True)
    known = known.with_columns(excluded=excluded(conditions.least_train_accuracy))
    given = conditions.given
    hparams = [
        name
        for name in cells.columns
        if name.startswith(PREFIX) and (given is None or name.removeprefix(PREFIX) in given)
    ]
    curves = cells.join(pl.concat(of_repeats), on="cell", how="inner").sort(CURVE_KEY)
    informative = information(known, hparams, least_train_accuracy=conditions.least_train_accuracy)
    return {RESPONSES: known, RESPONSE_CURVES: curves, CMI: informative}, conditions


def _in_training(group: Published, runs: pl.DataFrame) -> Iterator[tuple[pl.DataFrame, Answers]]:
    """Yield the runs of a group and what they answered right after their training."""
    asked = group.spec.asked
    if asked is None:
        return
    rows = runs["row"].to_numpy()
    right, total, shifted_right, shifted_total = (
        read_array(group.group, name)[rows] for name in RESPONSE_ARRAYS
    )
    yield (
        runs,
        Answers(
            right,
            total,
            shifted_right,
            shifted_total,
            transforms=[name for name, _ in asked.responses],
            layers=[layer for _, layer in asked.responses],
            magnitudes=read_array(group.group, "response_magnitude"),
            dbi=read_array(group.group, DBI)[rows, _FIRST_BLOCK] if asked.dbi else None,
        ),
    )


def _later(
    paths: SweepPaths, group: Published, runs: pl.DataFrame
) -> Iterator[tuple[pl.DataFrame, Answers]]:
    """Yield, table by table, the runs of a group whose kept models answered, and the answers."""
    crc = group.numbers["crc"]
    runs = runs.with_columns(pl.Series("crc", crc[runs["row"].to_numpy()], dtype=pl.UInt32))
    for asked, rows in answers_of(paths, group.spec):
        key = {"cell": "cell", "repeat": "repeat_index", "run": "run_index"}
        named = rows.rename(key).with_columns(
            pl.col("repeat_index").cast(runs.schema["repeat_index"]),
            pl.col("run_index").cast(runs.schema["run_index"]),
        )
        # answers of models that were retrained since do not count
        which = runs.join(named.select(*_RUN, "crc").unique(), on=[*_RUN, "crc"], how="semi")
        if which.is_empty():
            continue
        grids = np.array(asked.grids)
        shape = len(which), len(asked.responses), asked.draws, grids.shape[1]
        right, total = np.zeros(shape, np.uint32), np.zeros(shape, np.uint32)
        shifted = np.zeros((2, len(which), len(asked.responses), len(PARTS)), np.uint32)
        dbi = np.full(len(which), np.nan)
        for number, (transform, layer) in enumerate(asked.responses):
            found = which.select(_RUN).join(
                named.filter(transform=transform, layer=layer),
                on=_RUN,
                how="left",
                maintain_order="left",
            )
            n = len(asked.grid(transform))
            right[:, number, :, :n] = found["right"].to_list()
            total[:, number, :, :n] = found["total"].to_list()
            shifted[0, :, number] = found["shifted_right"].to_list()
            shifted[1, :, number] = found["shifted_total"].to_list()
            if asked.dbi:
                dbi[:] = found["dbi"].list.get(_FIRST_BLOCK).to_numpy()
        yield (
            which,
            Answers(
                right,
                total,
                shifted[0],
                shifted[1],
                transforms=[name for name, _ in asked.responses],
                layers=[layer for _, layer in asked.responses],
                magnitudes=grids,
                dbi=dbi if asked.dbi else None,
            ),
        )
