"""Tables that not every sweep has: of deep ensembles, margins, test points and response curves."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import numpy as np
import polars as pl
from dask.delayed import Delayed

from manyseed.analysis.alphahat.resampling import disjoint_halves, generator
from manyseed.analysis.axes import AXES
from manyseed.analysis.graph.chunks import compute_all
from manyseed.analysis.graph.predictions import Predictions, unavailable
from manyseed.analysis.options import CALIBRATION, Options
from manyseed.analysis.questions import margins, members, points
from manyseed.analysis.questions.dee import compared
from manyseed.analysis.response.corpora import (
    CORPUS,
    LEAST_TRAIN_ACCURACY,
    excluded,
    information,
    sensitivity,
)
from manyseed.analysis.response.curves import (
    CURVE_KEY,
    Answers,
    repeat_curves,
    run_curves,
    samples,
    scores,
    spectra,
)
from manyseed.analysis.tables.rows import CELL_KEY, IS_METHOD, REPEAT, RUN
from manyseed.analysis.tables.schema import records, together
from manyseed.jobs.response import DBI, DBI_LAYERS, PARTS, PLACES, ResponseDesign
from manyseed.orchestrator.computing.inputs import KEY, Published, parted, still_held
from manyseed.orchestrator.computing.tables import (
    CMI,
    DEE,
    MARGINS,
    POINTS,
    REJECTION,
    RESPONSE_CURVES,
    RESPONSE_DRAWS,
    RESPONSES,
    SPECTRA,
    TACE,
    UNCERTAINTY,
)
from manyseed.orchestrator.grids.loading import read_sweep_file
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.cost import planned_seconds
from manyseed.orchestrator.plans.plan import PREFIX, Plan, with_anchors
from manyseed.orchestrator.responding import answers_of
from manyseed.orchestrator.store.coordinates import RESPONSE_ARRAYS
from manyseed.orchestrator.store.reader import read_array
from manyseed.orchestrator.store.schema import GroupSpec

_FIRST_BLOCK = DBI_LAYERS.index(1)
_RUN = ["cell", "repeat_index", "run_index"]
_ANSWER = [*_RUN, "transform", "layer"]


@dataclass(frozen=True, slots=True)
class Conditions:
    """How conditional mutual information is computed, as `[response]` of a sweep file says.

    `given`: hparams to condition on; None for all that grids vary. `least_train_accuracy`: models
    below it are left out for transforms of images. `combine`: whether scores are combined over
    transforms and layers.
    """

    given: tuple[str, ...] | None = None
    least_train_accuracy: float = LEAST_TRAIN_ACCURACY
    combine: bool = False

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
            bool(table.combine),
        )


def responses(
    paths: SweepPaths, groups: Sequence[Published], plan: Plan
) -> tuple[dict[str, pl.DataFrame], Conditions]:
    """Return the tables of response curves (none if no group has any), and their conditions.

    Curves are measured in training, or later from kept models. Copies of a run are left out: they
    answer as it does.
    """
    of_runs, of_repeats, drawn = [], [], []
    designs: dict[tuple[str, int], list[GroupSpec]] = {}
    for group in groups:
        runs = group.predictions.runs.filter(~pl.col("identical"))
        scored: list[pl.DataFrame] = []
        curves: list[pl.DataFrame] = []
        for answering, asked, answers in (*_in_training(group, runs), *_later(paths, group, runs)):
            keys = answering.select(_RUN)
            frames = [scores(answers, keys), run_curves(answers, keys)]
            if asked.draws > 1:
                frames.append(samples(answers, keys))
            if scored:  # the first answer of each run counts
                before = pl.concat(frame.select(_ANSWER) for frame in scored)
                frames = [
                    frame.join(before, on=_ANSWER, how="anti", maintain_order="left")
                    for frame in frames
                ]
            scored.append(frames[0])
            curves.append(frames[1])
            if asked.draws > 1:
                drawn.append(frames[2])
                for response in asked.responses:
                    designs.setdefault(response, []).append(_asking(group.spec, asked, response))
        if scored:
            of_runs += scored
            of_repeats.append(repeat_curves(pl.concat(curves)))
    if not of_runs:
        return {}, Conditions()
    conditions = Conditions.read(paths)  # only here is the sweep file needed
    cells = with_anchors(plan.cells).select("cell", "cell_id", *AXES, f"^{PREFIX}.*$")
    known = cells.join(pl.concat(of_runs), on="cell", how="inner", maintain_order="left")
    known = known.sort(records()[RESPONSES].key, maintain_order=True)
    known = known.with_columns(excluded=excluded(conditions.least_train_accuracy))
    given = conditions.given
    hparams = [
        name
        for name in cells.columns
        if name.startswith(PREFIX) and (given is None or name.removeprefix(PREFIX) in given)
    ]
    joined = cells.join(pl.concat(of_repeats), on="cell", how="inner").sort(CURVE_KEY)
    informative = information(
        known,
        hparams,
        least_train_accuracy=conditions.least_train_accuracy,
        across=conditions.combine,
    )
    made = {RESPONSES: known, RESPONSE_CURVES: joined, CMI: informative}
    if drawn:
        found = sensitivity(pl.concat(drawn), known, hparams)
        took = _seconds(paths, plan, designs)
        priced = found.drop("seconds").join(took, on=CORPUS, how="left", maintain_order="left")
        per_draw = pl.col("seconds") * pl.col("draws")
        made[RESPONSE_DRAWS] = priced.with_columns(per_draw).select(found.columns)
    return made, conditions


def _asking(spec: GroupSpec, asked: ResponseDesign, response: tuple[str, int]) -> GroupSpec:
    """Return a group whose models are asked only this, with one draw."""
    alone = replace(asked, responses=(response,), draws=1, dbi=False)
    return replace(spec, response=json.dumps(alone.to_attributes()))


def _seconds(
    paths: SweepPaths, plan: Plan, designs: Mapping[tuple[str, int], Sequence[GroupSpec]]
) -> pl.DataFrame:
    """Return `CORPUS` and the seconds that a further draw takes by the plan's estimate."""
    frames = []
    for (transform, layer), specs in designs.items():
        twice = [
            replace(spec, response=json.dumps({**json.loads(spec.response), "draws": 2}))
            for spec in specs
        ]
        one, two = (planned_seconds(paths, plan, each) for each in (specs, twice))
        taken = one.join(two, on="cell").join(plan.cells, on="cell")
        further = pl.col("measuring_right") - pl.col("measuring")
        frames.append(
            taken.group_by(CORPUS[:2], maintain_order=True).agg(
                pl.lit(transform).alias("transform"),
                pl.lit(layer, dtype=pl.UInt8).alias("layer"),
                seconds=further.mean(),
            )
        )
    return pl.concat(frames).unique(CORPUS, keep="first", maintain_order=True)


def spectra_of(
    paths: SweepPaths, groups: Sequence[Published], plan: Plan, options: Options
) -> dict[str, pl.DataFrame]:
    """Return the table of spectra of Jacobians; none if no kept model was asked for its own.

    Runs of a repeat are compared at the points that the first table by name has of each.
    """
    frames = []
    for group in groups:
        runs = group.predictions.runs.filter(~pl.col("identical"))
        answered = _answered(paths, group, runs, spectra=True)
        tables = [rows.join(which, on=_RUN, how="semi") for _, rows, which in answered]
        if not tables:
            continue
        once = pl.concat(tables).unique(_RUN, keep="first", maintain_order=True)
        by = [*REPEAT, PLACES]
        for (_, repeat, places), own in once.sort(_RUN).group_by(by, maintain_order=True):
            keyed = group.predictions.seed, "spectra", group.predictions.dataset_id, int(repeat)
            halves = disjoint_halves(generator(*keyed), len(places), options.resamples)
            values = np.array(own["spectra"].to_list(), dtype=np.float64)
            frames.append(spectra(values, own.select(_RUN), halves, options.epsilon))
    if not frames:
        return {}
    cells = with_anchors(plan.cells).select("cell", "cell_id", *AXES, f"^{PREFIX}.*$")
    joined = cells.join(pl.concat(frames), on="cell", how="inner")
    return {SPECTRA: joined.sort(records()[SPECTRA].key)}


def _in_training(
    group: Published, runs: pl.DataFrame
) -> Iterator[tuple[pl.DataFrame, ResponseDesign, Answers]]:
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
        asked,
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


def _answered(
    paths: SweepPaths, group: Published, runs: pl.DataFrame, *, spectra: bool = False
) -> Iterator[tuple[ResponseDesign, pl.DataFrame, pl.DataFrame]]:
    """Yield, table by table, the questions, the rows, and the runs whose kept models answered."""
    crc = group.numbers["crc"]
    runs = runs.with_columns(pl.Series("crc", crc[runs["row"].to_numpy()], dtype=pl.UInt32))
    for asked, rows in answers_of(paths, group.spec, spectra=spectra):
        key = {"cell": "cell", "repeat": "repeat_index", "run": "run_index"}
        named = rows.rename(key).with_columns(
            pl.col("repeat_index").cast(runs.schema["repeat_index"]),
            pl.col("run_index").cast(runs.schema["run_index"]),
        )
        # answers of models that were retrained since do not count
        which = runs.join(named.select(*_RUN, "crc").unique(), on=[*_RUN, "crc"], how="semi")
        if not which.is_empty():
            yield asked, named, which


def _later(
    paths: SweepPaths, group: Published, runs: pl.DataFrame
) -> Iterator[tuple[pl.DataFrame, ResponseDesign, Answers]]:
    """Yield, table by table, the runs of a group whose kept models answered, and the answers."""
    for asked, named, which in _answered(paths, group, runs):
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
            asked,
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


def measured(
    paths: SweepPaths,
    groups: Sequence[tuple[Predictions, pl.DataFrame]],
    sets: points.Sets,
    options: Options,
    *,
    scheduler: Any,
    workers: int | None,
) -> dict[str, pl.DataFrame]:
    """Measure ensembles, margins and points of all groups, but for rows on disk that are current.

    `groups`, sequence of (Predictions, frame): the finished runs, and the repeats (columns `KEY`)
    that have not changed since they were analysed. `sets`: by which cell the points of each cell
    go. `scheduler` and `workers`: as in `analysis.graph.chunks.compute`.

    Returns the tables uncertainty, tace, rejection, margins and points, the last without
    `points.COMPARED`. All but points are empty if calibrated metrics, or α̂, were not asked for.
    """
    makers: dict[str, Callable[[Predictions, Options], list[Delayed]]] = {
        UNCERTAINTY: members.build,
        TACE: members.build_tace,
        REJECTION: members.build_rejection,
        MARGINS: margins.build,
    }
    tasks: dict[str, list[Delayed]] = {}
    kept: dict[str, list[pl.DataFrame]] = {}
    for name, build in makers.items():
        newest = name != MARGINS
        kept[name], rest = parted(paths, name, groups, options, newest=newest)
        tasks[name] = [
            task
            for epoch, predictions in rest
            for task in build(predictions, replace(options, snapshots=(epoch,)))
        ]
    kept[POINTS], tasks[POINTS] = [], []
    held = still_held(paths, POINTS, [*points.SCHEMA])
    for predictions, same in groups:
        current = None if held is None else _current(held, predictions, same, sets, options)
        if current is None:
            tasks[POINTS] += points.build(predictions, options, sets)
        else:
            kept[POINTS].append(current)
    computed = iter(compute_all([*chain(*tasks.values())], scheduler=scheduler, workers=workers))
    return {
        name: together(
            name,
            [*kept[name], *islice(computed, len(tasks[name]))],
            but=points.COMPARED if name == POINTS else (),
        )
        for name in tasks
    }


def _current(
    held: pl.DataFrame,
    predictions: Predictions,
    same: pl.DataFrame,
    sets: points.Sets,
    options: Options,
) -> pl.DataFrame | None:
    """Return the points of a group on disk; None if any of its runs is new, lost or changed."""
    runs = predictions.runs
    epoch = predictions.trained[predictions.positions(options)[-1]]
    if not runs.join(same.filter(epoch=epoch), on=REPEAT, how="anti").is_empty():
        return None
    own = {sets[cell] for cell in runs["cell"].unique().to_list()}
    n_cells = Counter(sets.values())
    rows = held.filter(pl.col("cell").is_in(own))
    counts = dict(rows.select("cell", "n_cells").unique().iter_rows())
    if counts != {cell: n_cells[cell] for cell in own}:
        return None
    # what is on disk is of these runs and perhaps of some that were dropped
    n_runs = (~runs["identical"]).sum() * predictions.n_test
    return rows if rows["n_runs"].sum() == n_runs else None


def of_points(table: pl.DataFrame, sets: points.Sets, cells: pl.DataFrame) -> pl.LazyFrame:
    """Return the table of points, with the axes in which the cells of a row agree.

    `table`: as `measured` returns it. `cells`: the plan's.
    """
    known = cells.filter(pl.col("cell").is_in(sets.keys()))
    group = pl.col("cell").replace_strict(sets, return_dtype=pl.UInt32)
    agreed = [pl.when(pl.col(axis).n_unique() == 1).then(pl.col(axis).first()) for axis in AXES]
    first = pl.col("cell_id").filter(pl.col("cell") == pl.col("cell").min()).first()
    described = known.group_by(_of=group).agg(first, *agreed).rename({"_of": "cell"})
    whole = points.related(table, described, AXES)
    described = described.select("cell", "cell_id", *AXES)
    return described.lazy().join(whole.lazy(), on="cell", how="inner", maintain_order="right")


def of_cells(
    measured: Mapping[str, pl.DataFrame],
    repeats: pl.DataFrame,
    cells: pl.DataFrame,
    runs: pl.DataFrame,
    options: Options,
) -> dict[str, pl.LazyFrame]:
    """Return the tables that have rows, joined lazily with the descriptions of their cells.

    `measured`: as `measured` returns them. `repeats`: the table of repeats; those with a problem
    are left out. `cells`: the plan's. `runs`: `fit_seconds` of each run.
    """
    sound = repeats.filter(pl.col("problem").is_null()).select(KEY)
    tables = {
        name: table.lazy().join(sound.lazy(), on=KEY, how="semi", maintain_order="left")
        for name, table in measured.items()
    }
    uncertainty = tables[UNCERTAINTY].collect()
    described = cells.select("cell", "cell_id", *AXES)
    with_ensembles = described.join(uncertainty, on="cell", how="semi")
    epochs = uncertainty.select(CELL_KEY).unique()
    worth = compared(uncertainty, with_ensembles, kind=options.dee_std).join(
        epochs, on="cell", how="left", maintain_order="left"
    )
    uncertainty, worth = timed(uncertainty, worth, runs)
    tables[UNCERTAINTY], tables[DEE] = uncertainty.lazy(), worth.lazy()
    return {
        name: described.lazy().join(table, on="cell", how="inner", maintain_order="right")
        for name, table in tables.items()
        if table.select(pl.len()).collect().item()
    }


def without_deep(
    predictions: Predictions, tables: Mapping[str, pl.LazyFrame], options: Options
) -> Iterator[str]:
    """Yield why a group has no deep ensemble equivalents, if it has none.

    `predictions`: the finished runs of the group. `tables`: the tables of all groups, as `of_cells`
    returns them.
    """
    if CALIBRATION not in options.metrics or CALIBRATION in unavailable(predictions, options):
        return
    cells = set(predictions.runs["cell"].unique().to_list())
    if predictions.ensembled is None:
        if UNCERTAINTY not in tables:
            yield "needs at least 2 runs in the same repeat that are not copies"
        return
    lacking = len(cells)
    if DEE in tables:
        compared_cells = tables[DEE].filter(axis="ensembling").select("cell").collect()
        lacking -= len(cells & {*compared_cells["cell"].to_list()})
    if lacking:
        which = f" for {lacking} of its {len(cells)} cells" if lacking < len(cells) else ""
        yield (
            'needs ensembling = "none" with at least 2 runs in the same repeat, all else equal: '
            f"there is no such cell{which}"
        )


def timed(
    uncertainty: pl.DataFrame, worth: pl.DataFrame, runs: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return both tables with the training time of their ensembles.

    A run with members counts in full, however few of them are averaged; other runs count with the
    mean of their repeat.

    `uncertainty` and `worth`: the tables uncertainty and dee. `runs`: `fit_seconds` of each run,
    null if unknown.
    """
    seconds = runs.select(*RUN, pl.col("fit_seconds").cast(pl.Float64))
    means = seconds.group_by(REPEAT).agg(_mean=pl.col("fit_seconds").mean())
    uncertainty = uncertainty.join(seconds, on=RUN, how="left", maintain_order="left")
    uncertainty = uncertainty.join(means, on=REPEAT, how="left", maintain_order="left")
    whole = pl.when(IS_METHOD).then("fit_seconds").otherwise(pl.col("members") * pl.col("_mean"))
    uncertainty = uncertainty.with_columns(whole.alias("fit_seconds")).drop("_mean")
    key = [*REPEAT, "members"]
    sizes = uncertainty.group_by(key).agg(pl.col("fit_seconds").mean())
    worth = worth.join(sizes, on=key, how="left", maintain_order="left")
    of_deep = means.rename({"cell": "deep_cell", "_mean": "deep_fit_seconds"})
    by = ["deep_cell", "repeat_index"]
    return uncertainty, worth.join(of_deep, on=by, how="left", maintain_order="left")
