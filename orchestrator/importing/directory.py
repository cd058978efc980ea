"""Write imported predictions as a sweep directory, with plan and store, as if trained here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from manyseed.analysis.axes import LATER
from manyseed.jobs.identity import canonical_json
from manyseed.jobs.run import Cell
from manyseed.orchestrator.disk.folders import appearing
from manyseed.orchestrator.disk.lease import LeaseWatch
from manyseed.orchestrator.disk.placing import place
from manyseed.orchestrator.errors import UserError, toml_value
from manyseed.orchestrator.importing.rows import write_rows
from manyseed.orchestrator.importing.source import DEFAULTS, PredictionFile
from manyseed.orchestrator.plans.layout import Groups, lay_out
from manyseed.orchestrator.plans.plan import CELLS, ROWS, Plan, write_plan
from manyseed.orchestrator.provenance import Recipe, register
from manyseed.orchestrator.store.layout.groups import open_group
from manyseed.orchestrator.store.layout.lengths import planned_group
from manyseed.orchestrator.store.layout.schema import GroupSpec
from manyseed.orchestrator.store.publishing.splits import write_splits
from manyseed.orchestrator.store.zarrfiles.consolidated import consolidate


def write_sweep(sources: Sequence[PredictionFile], directory: Path) -> int:
    """Write a sweep directory; it appears whole or not at all.

    Returns
    -------
    int
        Number of predictions of a test point with a probability that was raised.

    Raises
    ------
    UserError
        If the directory exists, or two sources have the same dataset and classifier.
    """
    names = [(source.dataset, source.classifier) for source in sources]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise UserError(
                f"{' × '.join(name)} also comes from {sources[names.index(name)].file}",
                file=sources[number].file,
                remedy="import them separately, or rename one: a file's name is its dataset's",
            )
    floored = 0
    with appearing(directory) as paths:
        groups, plan = _planned(sources)
        groups.write(paths)
        write_plan(paths, plan, new_part=True)
        place(paths.sweep_file, _sweep_file(sources, directory, plan).encode())
        lay_out(paths, plan, groups)
        for source, spec in zip(sources, groups.specs, strict=True):
            group = open_group(paths.store, spec.path)
            write_splits(group, 0, source.y_true, source.test_index, LeaseWatch(paths.leases))
            recipe = register(paths.recipes, made_from(source))
            order = placed(source)["position"].to_numpy().astype(np.int64)
            floored += write_rows(group, source, order, recipe)
        consolidate(paths.store, [open_group(paths.store, spec.path) for spec in groups.specs])
    return floored


def made_from(source: PredictionFile) -> Recipe:
    """Return the recipe of a source's runs, of which only the file name is known."""
    name = source.file.name.encode(errors="replace").decode()  # it may not be valid UTF-8
    return Recipe("imported", device="imported", device_class=name)


def _planned(sources: Sequence[PredictionFile]) -> tuple[Groups, Plan]:
    specs, cells, rows, first = [], [], [], 0
    for number, source in enumerate(sources):
        spec = group_of(source, number)
        specs.append(spec)
        cells.append(cells_of(source, spec, first, source.canonical))
        rows.append(_rows(source, cells[-1]))
        first += cells[-1].height
    dropped = pl.Series("cell", [], dtype=pl.UInt32)
    return Groups(tuple(specs)), Plan(pl.concat(cells), (pl.concat(rows),), dropped)


def group_of(source: PredictionFile, number: int) -> GroupSpec:
    """Return the group for a source's runs, with this number."""
    return planned_group(
        number=number,
        dataset=source.dataset,
        classifier=source.classifier,
        samples=source.y_true.shape[1],
        class_names=source.class_names,
        epochs=source.epochs,
        scores=source.keep,
        dtype=source.dtype,
        probability=source.probability,
        repeats=len(source.y_true),
        runs=len(source.runs),
    )


def cells_of(
    source: PredictionFile, spec: GroupSpec, first: int, dataset: Mapping[str, Any]
) -> pl.DataFrame:
    """Return a source's cells (columns `CELLS`), in the order in which their runs first appear.

    Parameters
    ----------
    source : PredictionFile
    spec : GroupSpec
    first : int
        Number of the first cell.
    dataset : mapping
        Canonical description of the dataset.
    """
    distinct = source.runs.group_by(*DEFAULTS, maintain_order=True).agg(
        identical=pl.col("copy").any()
    )
    described = []
    for row in distinct.iter_rows(named=True):
        cell = Cell(
            seed=0,
            dataset=dataset,
            classifier={"name": source.classifier, "version": 1, "source": "imported"},
            hparams={} if row["hparams"] == "default" else {"name": row["hparams"]},
            vary=tuple(sorted(row["vary"].split("+"))),
            **{k: row[k] for k in DEFAULTS if k not in ("hparams", "vary")},
        )
        described.append((cell.id, canonical_json(cell.canonical()).decode()))
    return distinct.with_columns(
        pl.Series("cell_id", [d[0] for d in described]),
        pl.Series("canonical", [d[1] for d in described]),
        cell=pl.int_range(first, first + pl.len()),
        group=pl.lit(spec.number),
        path=pl.lit(spec.path),
        dataset=pl.lit(source.dataset),
        classifier=pl.lit(source.classifier),
        **{axis: pl.lit(value) for axis, value in LATER.items()},
        snapshots=pl.lit(
            list(source.epochs) if source.epochs != (0,) else [], dtype=pl.List(pl.Int32)
        ),
        device=pl.lit("cpu"),
        core_seconds=pl.lit(0.0),
        part=pl.lit(1),
    ).select(pl.col(name).cast(dtype) for name, dtype in CELLS.items())


def placed(source: PredictionFile) -> pl.DataFrame:
    """Return the runs in the store's order, with `position`, and `place`, their cell's index."""
    cells = source.runs.select(*DEFAULTS).unique(maintain_order=True).with_row_index("place")
    runs = source.runs.with_row_index("position").join(
        cells, on=list(DEFAULTS), maintain_order="left"
    )
    return runs.sort("repeat", "place", "run")


def _rows(source: PredictionFile, cells: pl.DataFrame) -> pl.DataFrame:
    runs = placed(source)
    rows = runs.select(
        "repeat", "run", cell=cells["cell"].gather(runs["place"]), row=pl.int_range(pl.len())
    )
    return rows.select(pl.col(name).cast(dtype) for name, dtype in ROWS.items())


def _sweep_file(sources: Sequence[PredictionFile], directory: Path, plan: Plan) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]", "-", directory.name).lstrip("._-") or "imported"
    repeats, runs = (int(str(plan.extents[column].max())) for column in ("repeats", "runs"))
    lines = [
        "# Made by manyseed import: these predictions were made elsewhere and can't be planned.",
        f"name    = {toml_value(name[:100])}",
        "seed    = 0",
        f"repeats = {min(repeats, 10_000)}",
        f"runs    = {min(runs, 60_000)}",
    ]
    for source in sources:
        lines += grid_lines(source.dataset, source.classifier)
    return "\n".join(lines) + "\n"


def grid_lines(dataset: str, classifier: str) -> list[str]:
    """Return the grid of a dataset and a classifier, as lines of a sweep file."""
    return [
        "",
        "[[grid]]",
        f"dataset    = {toml_value([dataset])}",
        f"classifier = {toml_value([classifier])}",
    ]
