"""What a plan costs before anything is submitted.

The plan holds how long a fit of each cell is expected to take on one core. Durations of finished
fits correct it: those of the same dataset and classifier or, if there are none, of the classifier.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from manyseed.jobs.hparams.grid import is_written
from manyseed.jobs.response.resolution import response_seconds
from manyseed.jobs.scales import NETWORKS
from manyseed.orchestrator.errors import UnavailableError, UserError
from manyseed.orchestrator.grids.expansion import Expansion, expand, is_search
from manyseed.orchestrator.grids.loading import read_sweep_file
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.code import own_code
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import WITH_METHOD, Plan
from manyseed.orchestrator.store.arrays import DONE
from manyseed.orchestrator.store.groups import find_group
from manyseed.orchestrator.store.journal import HEADER_SIZE
from manyseed.orchestrator.store.reader import read_array
from manyseed.orchestrator.store.schema import GroupSpec, count_files, planned_group, stored_bytes

GPU_SPEEDUP = 20.0  # how many cores train as fast as one GPU with many seeds at once (a choice)

PILOT_SECONDS = 30.0
"""Seconds of each training process for a pilot."""

PILOT_RUNS, PILOT_PAIR_SECONDS = 5, 3.0
"""Runs of a dataset and classifier in a pilot: so many, and of short ones as many as take so many
seconds. They vary more, and the first ones of a process take longer."""

OBSERVED = pl.Schema(
    {"cell": pl.UInt32(), "n": pl.UInt32(), "observed": pl.Float64(), "squares": pl.Float64()}
)
"""Columns of `observed_seconds`: how many fits of a cell finished, the sum of their seconds, and
that of their squares."""

MEASURING = pl.Schema({"cell": pl.UInt32(), "measuring": pl.Float64()})
"""Columns of `planned_seconds`: how many seconds measuring the response curves of a
trained model takes, which the duration of its fit excludes."""

FITS = pl.col("repeats").cast(pl.Int64) * pl.when("identical").then(1).otherwise(
    pl.col("runs").cast(pl.Int64)
)
"""How many fits a cell with repeats and runs needs: identical runs are fitted once per repeat."""

_PAIR = ["dataset", "classifier"]


def seconds(
    plan: Plan, observed: pl.DataFrame | None = None, measuring: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Return how long a run of each cell takes: its fit and the measurements after it.

    `observed`: as returned by `observed_seconds`; corrects the expected durations. `measuring`:
    columns `MEASURING`.

    Returns a row per cell that was not dropped: cell, seconds (of a run, on one core or one GPU),
    device ("cpu" or "gpu", the requested resource class).
    """
    whole = pl.col("seconds") + pl.col("measuring")
    return _priced(plan.cells, observed, measuring).select("cell", whole, "device")


def untrained_copies(plan: Plan) -> pl.Expr:
    """Whether a run (columns cell, run) is stored as a copy of the first of its repeat."""
    identical = plan.cells.filter("identical")["cell"]
    return pl.col("cell").is_in(identical.implode()) & (pl.col("run") > 0)


def pilot(plan: Plan, rows: pl.DataFrame, costs: pl.DataFrame, most: float) -> pl.DataFrame:
    """Choose runs whose durations tell what the rest takes: a few of each dataset and classifier.

    They are spread over the cells. The pairs take turns, the cheapest first, while `most` seconds
    suffice by the estimate; the first run is always among them.

    `rows`: runs to train: columns group, cell, repeat, run, row. `costs`: as `seconds` returns.
    """
    pairs = plan.cells.select("cell", "dataset", WITH_METHOD)
    spread = pl.struct("cell", "repeat", "run").hash(0)
    chosen = (
        rows.filter(~untrained_copies(plan))
        .join(pairs, on="cell")
        .join(costs.select("cell", "seconds"), on="cell")
        .with_columns(spread.alias("place"))
        .sort("place")
        .with_columns(nth=pl.int_range(pl.len()).over("cell"))
        .sort("nth", "place")
        .with_columns(
            turn=pl.int_range(pl.len()).over(_PAIR), spent=pl.col("seconds").cum_sum().over(_PAIR)
        )
        .filter((pl.col("turn") < PILOT_RUNS) | (pl.col("spent") <= PILOT_PAIR_SECONDS))
        .sort("turn", "seconds", "place")
    )
    is_within = (pl.col("seconds").cum_sum() <= most) | (pl.int_range(pl.len()) == 0)
    return chosen.filter(is_within).select(rows.columns)


def beyond(
    plan: Plan,
    hours: float,
    observed: pl.DataFrame | None = None,
    measuring: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Return the classifiers whose fits cannot finish in jobs of `hours`, even by continuing.

    Networks save a checkpoint after each epoch but the last and continue in the next job; fits
    without epochs start over, and so do measurements.

    `observed` and `measuring`: as in `seconds`. Returns columns classifier, dataset, hours (of the
    longest fit, or epoch of a network, with the measurements after it); the longest first.
    """
    found = _stretches(plan, observed, measuring).filter(pl.col("hours") > hours)
    return found.drop("whole").sort("hours", descending=True, maintain_order=True)


def continued(
    plan: Plan,
    hours: float,
    observed: pl.DataFrame | None = None,
    measuring: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Return the classifiers whose fits finish only by continuing from checkpoints.

    Parameters and columns are those of `beyond`, but for hours: of the longest fit as a whole.
    """
    found = _stretches(plan, observed, measuring).filter(
        pl.col("hours") <= hours, pl.col("whole") > hours
    )
    found = found.select("classifier", "dataset", hours="whole")
    return found.sort("hours", descending=True, maintain_order=True)


def _stretches(
    plan: Plan, observed: pl.DataFrame | None, measuring: pl.DataFrame | None
) -> pl.DataFrame:
    """Return the hours of the longest fit, without pause and as a `whole`."""
    last_epoch = pl.col("snapshots").list.last().fill_null(1)
    return (
        _priced(plan.cells, observed, measuring)
        .with_columns(
            stretch=pl.col("seconds") / last_epoch + pl.col("measuring"),
            whole=pl.col("seconds") + pl.col("measuring"),
        )
        .group_by("classifier", "dataset", maintain_order=True)
        .agg(hours=pl.col("stretch").max() / 3600, whole=pl.col("whole").max() / 3600)
    )


def estimate(
    cells: pl.DataFrame, draws: int, observed: pl.DataFrame, limit: float | None = None
) -> pl.DataFrame:
    """Return fits and hours of each dataset and classifier.

    `cells`: a plan's cells with repeats and runs. `draws`: fits of the search of a pair with tuned
    hparams; a search for a scale has its own number. `observed`: as returned by `observed_seconds`.
    `limit`: the hours after which a search for hparams begins no further fit.

    Returns columns dataset, classifier, fits, fit_seconds (mean), longest_seconds, core_hours,
    gpu_hours; in the order of the cells.
    """
    longest = pl.col("seconds").max()
    most: pl.Expr = pl.lit(draws)
    if limit is not None:
        in_hours = (pl.lit(limit * 3600) / longest).ceil()
        most = pl.min_horizontal(pl.lit(draws), in_hours).cast(pl.Int64)
    search = pl.col("search").sum().cast(pl.Int64) * most
    scaled = pl.col("canonical").str.contains('"scale":"tuned"', literal=True)
    search += NETWORKS * pl.col("canonical").filter(scaled).n_unique()
    per_pair = (
        _priced(cells, observed)
        .with_columns(fits=FITS, search=is_search())
        .group_by(_PAIR, maintain_order=True)
        .agg(
            pl.col("device").first(),
            fits=pl.col("fits").sum() + search,
            total=(pl.col("seconds") * pl.col("fits")).sum() + search * longest,
            longest_seconds=longest,
        )
    )
    hours, on_gpu = pl.col("total") / 3600, pl.col("device") == "gpu"
    return per_pair.select(
        *_PAIR,
        "fits",
        (pl.col("total") / pl.col("fits")).alias("fit_seconds"),
        "longest_seconds",
        pl.when(on_gpu).then(0.0).otherwise(hours).alias("core_hours"),
        pl.when(on_gpu).then(hours).otherwise(0.0).alias("gpu_hours"),
    )


def _priced(
    cells: pl.DataFrame, observed: pl.DataFrame | None, measuring: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Add the columns seconds (of a fit, corrected) and measuring, both on the requested device.

    The column classifier becomes `WITH_METHOD`.
    """
    if measuring is None:
        measuring = pl.DataFrame(schema=MEASURING)
    cells = cells.join(measuring, on="cell", how="left", maintain_order="left")
    cells = cells.with_columns(pl.col("measuring").fill_null(0.0))
    on_gpu = pl.col("device") == "gpu"
    expected = cells.with_columns(
        WITH_METHOD,
        seconds=pl.col("core_seconds") / pl.when(on_gpu).then(GPU_SPEEDUP).otherwise(1.0),
    )
    if observed is None or observed.is_empty():
        return expected
    ran = expected.join(observed, on="cell")
    ratio = pl.col("observed").sum() / (pl.col("seconds") * pl.col("n")).sum()
    of_pair = ran.group_by(_PAIR).agg(of_pair=ratio)
    of_classifier = ran.group_by("classifier").agg(of_classifier=ratio)
    return (
        expected.join(of_pair, on=_PAIR, how="left", maintain_order="left")
        .join(of_classifier, on="classifier", how="left", maintain_order="left")
        .with_columns(pl.col("seconds") * pl.coalesce("of_pair", "of_classifier", 1.0))
        .drop("of_pair", "of_classifier")
    )


def observed_seconds(paths: SweepPaths, plan: Plan, groups: Groups) -> pl.DataFrame:
    """Return the durations of published fits: columns `OBSERVED`."""
    frames = [pl.DataFrame(schema={"cell": pl.UInt32, "observed": pl.Float64})]
    for spec in groups.specs:
        if (group := find_group(paths.store, spec)) is None:
            continue
        took = read_array(group, "fit_seconds").astype(np.float64)
        trained = (read_array(group, "status") == DONE) & np.isfinite(took)
        cell = read_array(group, "cell")[trained].astype(np.uint32)
        frames.append(pl.DataFrame({"cell": cell, "observed": took[trained]}))
    known = pl.concat(frames).filter(pl.col("cell") < len(plan.all_cells))
    return known.group_by("cell").agg(
        pl.len().alias("n"), pl.col("observed").sum(), squares=pl.col("observed").pow(2).sum()
    )


def standard_errors(cells: pl.DataFrame, observed: pl.DataFrame) -> dict[str, float]:
    """Return the standard errors of the core_hours and gpu_hours that observed fits predict.

    `cells`: a plan's cells with repeats and runs. `observed`: as returned by `observed_seconds`. A
    ratio of sums corrects each dataset and classifier (`_priced`), as do its residuals here; where
    fewer than two fits were observed, nothing is known of the error.
    """
    at_first = pl.col("seconds")
    ratio = pl.col("observed").sum() / (at_first * pl.col("n")).sum()
    ran = _priced(cells, None).join(observed, on="cell").with_columns(ratio=ratio.over(_PAIR))
    fitted = pl.col("ratio") * at_first
    residuals = pl.col("squares") - 2 * fitted * pl.col("observed") + pl.col("n") * fitted.pow(2)
    n = pl.col("n").sum().cast(pl.Float64)
    error = (residuals.sum().clip(0.0) * n / (n - 1)).sqrt() / pl.col("observed").sum()
    of_pair = ran.group_by(_PAIR).agg(n=n, error=error).filter(pl.col("n") > 1)
    hours = _priced(cells, observed).group_by(*_PAIR, "device").agg(hours=(at_first * FITS).sum())
    known = hours.join(of_pair, on=_PAIR).with_columns(pl.col("hours") * pl.col("error") / 3600)
    by_device = known.group_by("device").agg(pl.col("hours").pow(2).sum().sqrt())
    return {f"{'core' if name == 'cpu' else name}_hours": each for name, each in by_device.rows()}


def response_hours(
    cells: pl.DataFrame, expansion: Expansion, specs: Sequence[GroupSpec]
) -> pl.DataFrame:
    """Return the hours that measuring response curves takes; durations of fits exclude them.

    `cells`: a plan's cells with repeats and runs. `expansion`: describes their datasets and
    classifiers. Returns columns dataset, classifier, response_hours (of the requested device); only
    pairs whose curves are measured.
    """
    return (
        _measured(cells, expansion, specs)
        .group_by("dataset", "classifier", maintain_order=True)
        .agg(response_hours=(FITS * pl.col("measuring")).sum() / 3600)
    )


def feature_hours(cells: pl.DataFrame, expansion: Expansion) -> pl.DataFrame:
    """Return the hours that features of frozen backbones take; durations of fits exclude them.

    Features of a dataset are computed once, those of perturbed rows for each run.

    `cells` and `expansion`: as in `response_hours`. Returns columns dataset, classifier,
    feature_hours (of the requested device); only pairs that use such features.
    """
    rows = []
    known = set()
    pairs = cells.select("dataset", "classifier").unique(maintain_order=True)
    for dataset, classifier in pairs.iter_rows():
        data, model = expansion.datasets[dataset], expansion.classifiers[classifier, dataset]
        if model.record.image_seconds is not None:
            each = model.record.image_seconds(model.canonical)
            kept = (data.id, model.canonical["weights"])
            of_pair = cells.filter(dataset=dataset, classifier=classifier)
            images = _perturbed_rows(of_pair, data.n_train)
            images += 0 if kept in known else data.n_samples
            known.add(kept)
            speed = GPU_SPEEDUP if model.device == "gpu" else 1.0
            rows.append((dataset, classifier, images * each / speed / 3600))
    schema = {"dataset": pl.String, "classifier": pl.String, "feature_hours": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _perturbed_rows(cells: pl.DataFrame, n_train: int) -> float:
    """Return the total number of training rows of all fits on perturbed data."""
    fraction = pl.col("train_fraction")
    rows = pl.when(fraction > 1).then(fraction).otherwise(fraction * n_train)
    perturbed = pl.any_horizontal(pl.col("perturb_continuous", "perturb_categorical") != "none")
    return float(cells.filter(perturbed).select((rows * FITS).sum()).item())


def planned_seconds(paths: SweepPaths, plan: Plan, specs: Sequence[GroupSpec]) -> pl.DataFrame:
    """Return how long measuring a model takes, for `cost.seconds` and `cost.beyond`.

    Empty if the sweep file can no longer be read as it was planned: this is only an estimate, and
    training does not need it.

    Returns columns `cost.MEASURING`; only cells whose models are measured.
    """
    if any(spec.response for spec in specs):
        try:
            file = read_sweep_file(paths.sweep_file)
            own = own_code(paths.sweep_file, paths).as_planned()
            expansion = expand(file, paths.sweep_file, own).with_names_of(plan.cells)
            return measuring_seconds(plan.cells, expansion, specs)
        except (UserError, UnavailableError, KeyError):
            pass
    return pl.DataFrame(schema=MEASURING)


def measuring_seconds(
    cells: pl.DataFrame, expansion: Expansion, specs: Sequence[GroupSpec]
) -> pl.DataFrame:
    """Return the same, given the expansion of the sweep file.

    `cells`, `expansion` and `specs`: as in `response_hours`; `cells` need not have repeats and
    runs.
    """
    return _measured(cells, expansion, specs).select(*MEASURING)


def _measured(
    cells: pl.DataFrame, expansion: Expansion, specs: Sequence[GroupSpec]
) -> pl.DataFrame:
    """Return the cells whose models are measured, and the column measuring: seconds per model."""
    asked = {spec.number: spec.asked for spec in specs if spec.response}
    by = ["group", "dataset", "classifier", "hparams", "train_fraction"]
    measured = cells.filter(pl.col("group").is_in(list(asked)))
    distinct = measured.select(by).unique(maintain_order=True)
    seconds = []
    for group, dataset, classifier, hparams, fraction in distinct.iter_rows():
        data, model = expansion.datasets[dataset], expansion.classifiers[classifier, dataset]
        model = model.at(hparams) if is_written(hparams) else model
        rows = fraction if fraction > 1 else fraction * data.n_train
        questions = asked[group]
        assert questions is not None
        speed = GPU_SPEEDUP if model.device == "gpu" else 1.0
        seconds.append(response_seconds(data, model, questions, rows) / speed)
    each = distinct.with_columns(measuring=pl.Series(seconds, dtype=pl.Float64))
    return measured.join(each, on=by, how="inner", maintain_order="left")


_MARGIN, _HALF = {"scores": "margin"}, {"dtype": "float16"}
_ONE_OF_TWO, _BOTH = ('keep.scores = "margin"', 'keep.dtype = "float16"'), "both of them"
_CHEAPER = (
    *zip(_ONE_OF_TWO, (_MARGIN, _HALF), strict=True),
    (_BOTH, _MARGIN | _HALF),
    ('keep.scores = "none"', {"scores": "none"}),
)


@dataclass(frozen=True)
class GroupRoom:
    """A group of the store with the runs and repeats that a plan gives it."""

    spec: GroupSpec
    runs: int
    repeats: int
    models: int | None = None  # how many runs keep their parameters; None for all
    chunks: int | None = None  # how many chunks hold the runs; None if the runs follow each other
    length: int = 0  # rows with the padding between parts of the plan

    @cached_property
    def bytes(self) -> int:
        """Bytes once everything is published."""
        return stored_bytes(self.spec, self.runs, self.repeats, self.models, self.chunks)

    @cached_property
    def files(self) -> int:
        """Files and folders once everything is published."""
        return count_files(self.spec, self.length, self.repeats)

    def kept(self, **keep: Any) -> GroupRoom:
        """Return the same runs, stored with other values of these fields of `GroupSpec`."""
        changed = replace(self.spec, **keep)
        spec = planned_group(changed, repeats=self.repeats, runs=self.runs)
        return GroupRoom(spec, self.runs, self.repeats, self.models)


def rooms(
    specs: Sequence[GroupSpec], rows: pl.DataFrame, models: Mapping[int, int]
) -> list[GroupRoom]:
    """Return the groups that hold some rows.

    `specs`: all groups, by number. `rows`: columns group, repeat and row. `models`: how many of
    these rows keep their parameters, by group; in groups that are left out, all.
    """
    # a part of the plan begins with a new shard: the padding before it has rows, but no chunks
    chunk_lengths = pl.Series([spec.chunk_length for spec in specs], dtype=pl.UInt32)
    chunk = rows["row"] // chunk_lengths.gather(rows["group"])
    counts = rows.group_by("group").agg(
        runs=pl.len(),
        repeats=pl.col("repeat").max().cast(pl.Int64) + 1,
        length=pl.col("row").max().cast(pl.Int64) + 1,
    )
    chunks = rows.select("group", chunk=chunk).group_by("group").agg(pl.col("chunk").n_unique())
    return [
        GroupRoom(specs[n], runs, repeats, models.get(n), used, length)
        for n, runs, repeats, length, used in counts.join(chunks, on="group").sort("group").rows()
    ]


def store_bytes(groups: Iterable[GroupRoom]) -> int:
    """Return the bytes of a store."""
    return sum(group.bytes for group in groups)


def store_files(groups: Iterable[GroupRoom]) -> int:
    """Count the files and folders of a store, including its own and those of datasets."""
    listed = list(groups)
    datasets = {group.spec.dataset for group in listed}
    return sum(group.files for group in listed) + 2 * (len(datasets) + 1)


def check_room(
    directory: Path, before: list[GroupRoom], after: list[GroupRoom], file: Path
) -> None:
    """Refuse a plan whose predictions do not fit on the disk.

    `directory`: the sweep; it need not exist yet. `before` and `after`: what is planned now, and
    what would be. `file`: the sweep file, named in the error.
    """
    place = directory
    while not place.exists():
        place = place.parent
    disk = os.statvfs(place)
    needed, free = store_bytes(after) - store_bytes(before), _free(disk)
    if needed > free:
        raise UserError(
            f"its predictions need {_gb(needed)} ({_parts(before, after)}); "
            f"{place} has {_gb(free)} free",
            file=file,
            remedy="make room, or plan onto another disk with --out"
            + _keeping_less(directory, after, needed, free),
        )
    more = store_files(after) - store_files(before)
    if disk.f_files and more > disk.f_favail:
        raise UserError(
            f"its predictions need {more:,} files and folders; {place} can take {disk.f_favail:,}",
            file=file,
            remedy="plan onto another disk with --out",
        )


def require_room(
    directory: Path, missing: list[GroupRoom], replaced: int, left: Callable[[], int] | None = None
) -> None:
    """Refuse a submission of runs that do not fit on the disk.

    `directory`: the sweep. `missing`: each group with the runs to train. `replaced`: the bytes of
    the largest file, which is there twice while it is written. `left`: returns the bytes that
    predictions lack of the size that they will have; asked only where room is scarce.
    """
    predictions = store_bytes(missing)
    journals = sum(group.runs * (group.spec.row_bytes + HEADER_SIZE) for group in missing)
    needed, free = predictions + journals + replaced, _free(os.statvfs(directory))
    if needed > free and left is not None:
        predictions = min(predictions, max(0, left()))
        needed = predictions + journals + replaced
    if needed > free:
        raise UnavailableError(
            f"{directory}: {sum(group.runs for group in missing):,} runs need {_gb(needed)} "
            f"(predictions {_gb(predictions)}, journals until compact {_gb(journals)}, the largest "
            f"file a second time while it is written {_gb(replaced)}); the disk has "
            f"{_gb(free)} free\n  make room, or plan again with --out onto another disk"
            + _keeping_less(directory, missing, predictions, free - journals - replaced)
        )


def _free(disk: os.statvfs_result) -> int:
    return disk.f_bavail * disk.f_frsize


def _parts(before: list[GroupRoom], after: list[GroupRoom]) -> str:
    """Return how many bytes of what is new are scores, and what the rest is."""
    new = store_bytes(after) - store_bytes(before)
    rest = store_bytes(each.kept(scores="none") for each in after)
    rest = min(new, max(0, rest - store_bytes(each.kept(scores="none") for each in before)))
    return f"scores {_gb(new - rest)}, labels, times and test sets {_gb(rest)}"


def _keeping_less(directory: Path, groups: list[GroupRoom], needed: int, free: int) -> str:
    """Return what predictions would need if less of them were kept and fitted, a line each.

    Nothing for a sweep with a store, which keeps what its groups were made for.
    """
    if SweepPaths(directory).store.exists():
        return ""
    cheaper: Mapping[str, int] = {
        name: store_bytes(group.kept(**keep) for group in groups) for name, keep in _CHEAPER
    }
    alone = sum(n < needed for name, n in cheaper.items() if name in _ONE_OF_TWO)
    listed = [
        f"\n    {name} need{'s' if name != _BOTH else ''} {_gb(n)}"
        for name, n in cheaper.items()
        if n < min(needed, free) and (name != _BOTH or alone == len(_ONE_OF_TWO))
    ]
    return f"; or keep less: instead of {_gb(needed)},{''.join(listed)}" if listed else ""


def _gb(n_bytes: int) -> str:
    if n_bytes < 1e5:
        return f"{n_bytes / 1e3:,.1f} kB"
    return f"{n_bytes / 1e9:,.1f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:,.1f} MB"
