"""Measure response curves, or spectra of Jacobians, of kept models, on this machine.

Each model's answers become a line below ``tasks/responding``, so that interrupted work can
continue; when all models have answered, the lines become a table below ``responses``. Asking again
adds the runs that have finished since.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.jobs import parameters
from manyseed.jobs.checks import Option, Refused, UnknownOption, require_known
from manyseed.jobs.parameters import ModelArrays
from manyseed.jobs.response import DBI, OPTIONS, PLACES, SPECTRA, ResponseDesign
from manyseed.jobs.response.resolution import canonical, resolve, resolve_spectra
from manyseed.jobs.run import Cell, MachineError, Run
from manyseed.jobs.tuning import trainer_of_process
from manyseed.jobs.whole import UNLIKE
from manyseed.orchestrator.disk.parquet import read_metadata, read_parquet, write_parquet
from manyseed.orchestrator.disk.placing import unavailable
from manyseed.orchestrator.disk.records import locked, read_records, write_records
from manyseed.orchestrator.errors import (
    DamagedFile,
    UnavailableError,
    UserError,
    command,
    given,
    refused,
    toml_value,
    unknown_key,
)
from manyseed.orchestrator.grids.expansion import expand
from manyseed.orchestrator.grids.loading import read_sweep_file
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.change import choose_cells
from manyseed.orchestrator.plans.code import own_code, remedy, require_fetched
from manyseed.orchestrator.plans.keptmodels import conditions, counted, with_models
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.searches import NotSearched, fitted
from manyseed.orchestrator.store.arrays import DONE
from manyseed.orchestrator.store.coordinates import PARAMETERS, RESPONSE_ARRAYS
from manyseed.orchestrator.store.groups import Group, open_group
from manyseed.orchestrator.store.reader import read_array, read_rows, statuses
from manyseed.orchestrator.store.schema import GroupSpec
from manyseed.orchestrator.submissions.retries import nothing_finished
from manyseed.orchestrator.sweepstore import ComparedShards, stored_groups
from manyseed.orchestrator.upkeep import publish_finished
from manyseed.orchestrator.working.pool import spawned

Counts = dict[str, list[Any]]  # a model's answers: each array as nested lists, None for NaN

Key = tuple[str, int, int, int]  # key of a run: group, cell, repeat, run

KEY = ("group", "cell", "repeat", "run")
SCHEMA: Mapping[str, Any] = {
    "group": pl.String(),
    "cell": pl.UInt32(),
    "repeat": pl.UInt16(),
    "run": pl.UInt32(),
    "crc": pl.UInt32(),
    "transform": pl.String(),
    "layer": pl.UInt8(),
    "magnitudes": pl.List(pl.Float64()),
    "right": pl.List(pl.List(pl.UInt32())),
    "total": pl.List(pl.List(pl.UInt32())),
    "shifted_right": pl.List(pl.UInt32()),
    "shifted_total": pl.List(pl.UInt32()),
    "dbi": pl.List(pl.Float32()),
}
"""Columns of a table of answers: a row per run, transform and layer; `crc` is the CRC of the run's
row of the store, `right` and `total` are (draw, magnitude), `shifted_…` are (part,)."""
SPECTRA_SCHEMA: Mapping[str, Any] = {
    **{name: SCHEMA[name] for name in (*KEY, "crc")},
    PLACES: pl.List(pl.UInt32()),
    SPECTRA: pl.List(pl.List(pl.Float32())),
}
"""Columns of a table of spectra: a row per run; `spectra` are (point, rank)."""


@dataclass(frozen=True, slots=True)
class ModelAnswers:
    """A model's answers as a line; the first line of a file only says what was `asked`."""

    group: str = ""
    cell: int = -1
    repeat: int = -1
    run: int = -1
    crc: int = -1
    found: Counts | None = None
    asked: dict[str, dict[str, object]] | None = None

    @property
    def key(self) -> Key:
        """The key of the model's run."""
        return self.group, self.cell, self.repeat, self.run


def answers_of(
    paths: SweepPaths, spec: GroupSpec, *, spectra: bool = False
) -> Iterator[tuple[ResponseDesign, pl.DataFrame]]:
    """Yield, for each table, what a group's models were asked and the rows of their answers.

    `spectra`: of spectra instead of curves.
    """
    schema = SPECTRA_SCHEMA if spectra else SCHEMA
    for file in paths.all_responses():
        asked = _asked_in(file).get(spec.path)
        if asked is not None and spectra == (asked.spectra > 0):
            rows = read_parquet(file, schema, remedy=_again(paths, file)).filter(group=spec.path)
            yield asked, rows


def _again(paths: SweepPaths, file: Path) -> str:
    again = command("respond", paths.directory, "--name", file.stem)
    return f"remove it, and measure it again with: {again}"


def _asked_in(file: Path) -> dict[str, ResponseDesign]:
    """Return what a table's models were asked, by group."""
    metadata = read_metadata(file, "remove it")
    try:
        asked = json.loads(metadata["asked"])
        return {path: ResponseDesign.from_attributes(one) for path, one in asked.items()}
    except UNLIKE as error:
        raise DamagedFile(file, f"does not say what was asked: {error}", "remove it") from None


class AnswerTable:
    """The answers to one set of questions: earlier ones, and new ones line by line."""

    def __init__(self, paths: SweepPaths, name: str, asked: Mapping[str, ResponseDesign]) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
            raise UserError(
                "not a name for a table",
                key="--name",
                value=name,
                remedy="up to 100 letters, digits, dots, hyphens and underscores; the first a "
                "letter or digit",
            )
        self._paths, self._file, self._log = paths, paths.response(name), paths.responding(name)
        self._asked = dict(asked)
        self._of_spectra = any(one.spectra for one in asked.values())
        self._schema = dict(SPECTRA_SCHEMA if self._of_spectra else SCHEMA)
        self._before = pl.DataFrame(schema=self._schema)
        if self._file.exists():
            self._read(name)
        written = self._before.select(*KEY, "crc").unique()
        self._known = {row[:-1]: row[-1] for row in written.iter_rows()}
        self._lines = self._answered_before()
        # rewritten, because the last line may be torn
        first = ModelAnswers(asked=self._to_json())
        write_records(self._log, map(asdict, [first, *self._lines.values()]))

    def _read(self, name: str) -> None:
        for path, one in _asked_in(self._file).items():
            now = self._asked.setdefault(path, one)
            if now != one or self._of_spectra != (one.spectra > 0):
                raise UserError(
                    f"{name} exists with other questions: for {path} {_in_words(one)}",
                    file=self._file,
                    remedy="give these answers another name with --name NAME",
                )
        remedy = _again(self._paths, self._file)
        self._before = read_parquet(self._file, self._schema, remedy=remedy)

    def _to_json(self) -> dict[str, dict[str, object]]:
        return {path: one.to_attributes() for path, one in sorted(self._asked.items())}

    def _answered_before(self) -> dict[Key, ModelAnswers]:
        """Return the answers in the file of lines, except those to other questions."""
        try:
            lines = read_records(self._log, ModelAnswers)
        except DamagedFile:
            return {}
        if not lines or lines[0].asked is None:
            return {}
        then = {path: ResponseDesign.from_attributes(one) for path, one in lines[0].asked.items()}
        return {
            one.key: one
            for one in lines[1:]
            if one.found is not None and then.get(one.group) == self._asked.get(one.group)
        }

    @property
    def runs(self) -> int:
        """Number of models that have answered."""
        return len({*self._known, *self._lines})

    def lacks(self, key: Key, crc: int) -> bool:
        """Return whether a run's model has not answered yet, or was retrained (another CRC)."""
        held = self._lines[key].crc if key in self._lines else self._known.get(key)
        return held != crc

    def add(self, answered: ModelAnswers) -> None:
        """Append one model's answers to the file of lines."""
        self._lines[answered.key] = answered
        with unavailable("write", self._log), self._log.open("a") as file:
            file.write(json.dumps(asdict(answered)) + "\n")

    def close(self, before_rename: Callable[[], None]) -> Path:
        """Write the table, remove the file of lines; return the table's path."""
        if self._lines:
            rows = [row for one in self._lines.values() for row in self._rows(one)]
            now = pl.DataFrame(rows, schema=self._schema, orient="row")
            kept = self._before.join(now, on=KEY, how="anti")
            order = [*KEY] if self._of_spectra else [*KEY, "transform", "layer"]
            write_parquet(
                self._file,
                pl.concat([kept, now]).sort(order),
                {"asked": json.dumps(self._to_json(), sort_keys=True)},
                before_rename=before_rename,
            )
        with unavailable("remove", self._log):
            self._log.unlink()
        return self._file

    def _rows(self, model: ModelAnswers) -> Iterator[tuple[Any, ...]]:
        asked, found = self._asked[model.group], model.found or {}
        if asked.spectra:
            yield (*model.key, model.crc, found[PLACES], found[SPECTRA])
            return
        right, total, shifted_right, shifted_total = (found[name] for name in RESPONSE_ARRAYS)
        for n, (transform, layer) in enumerate(asked.responses):
            grid = asked.grid(transform)
            yield (
                *(*model.key, model.crc, transform, layer, [*grid]),
                [draw[: len(grid)] for draw in right[n]],
                [draw[: len(grid)] for draw in total[n]],
                *(shifted_right[n], shifted_total[n], found.get(DBI) or []),
            )


def _in_words(asked: ResponseDesign) -> str:
    if asked.spectra:
        return f"spectra at {asked.spectra} test points"
    transforms = toml_value([f"{t} at layer {n}" for t, n in asked.responses])
    return f"{transforms}, {asked.rows} rows, {asked.draws} draws"


Report = Callable[[int, int], None]

DEFAULT = ("intra", "inter")
"""Default transforms, if neither the command nor the sweep file names any."""


@dataclass(frozen=True, slots=True)
class Responded:
    """The outcome of `respond`.

    `file`: the table. `asked`: number of models that answered now. `runs`: number of models whose
    answers the table holds. `from_gpu`: number of the selected models whose cells are trained on a
    GPU: here they answer on a CPU, so that the last bits of their scores may differ.
    """

    file: Path
    asked: int
    runs: int
    transforms: tuple[str, ...]
    from_gpu: int = 0


@dataclass(frozen=True, slots=True)
class _Inquiry:
    """One model to be asked, as sent to a process."""

    store: str
    group: str
    row: int
    crc: int
    cell: int
    trained: Cell
    repeat: int
    run: int
    asked: ResponseDesign

    @property
    def key(self) -> Key:
        """The key of its run."""
        return self.group, self.cell, self.repeat, self.run


def respond(
    paths: SweepPaths,
    options: Mapping[str, Any],
    *,
    name: str | None = None,
    where: str | None = None,
    spectra: int | None = None,
    workers: int,
    report: Report = lambda done, of: None,
) -> Responded:
    """Ask the kept models of finished runs, and write their answers.

    `options`: keys as in the table ``[response]`` of a sweep file, whose values are the defaults.
    `name`: name of the table; by default made of the transforms. `where`: an SQL condition: only
    these cells. `spectra`: ask networks for the singular values of their Jacobian at up to so many
    test points, instead of for curves. `workers`: number of processes, one thread each. `report`:
    called after each model with (models that have answered, all models).
    """
    if spectra is not None:
        given("--spectra", spectra, Option(kind=int, least=2, most=2**31 - 1))
        if options:
            raise UserError(
                "spectra are of test points, and no curves are measured with them",
                key=f"--{next(iter(options)).replace('_', '-')}",
                remedy="leave it out, or give it in a command without --spectra",
            )
    with locked(paths.responding_lock, "responding") as lease:
        plan = Plan.read(paths)
        cells = plan.cells
        if where is not None:
            cells = cells.join(choose_cells(plan, where, "--where"), on="cell", how="semi")
        publish_finished(paths)
        groups = _groups(paths, plan, cells)
        options = _options(paths, options)
        asked = _asked(paths, groups, options, spectra)
        jobs = [job for group in groups for job in _jobs(paths, plan, cells, group, asked)]
        if not jobs:
            raise nothing_finished(paths)
        specs = [group.spec for group in groups]
        data = {spec.dataset: plan.first_cell(spec.number).dataset for spec in specs}
        require_fetched(data, paths.sweep_file)
        if name is None:
            name = _name(options["transforms"]) if spectra is None else SPECTRA
        table = AnswerTable(paths, name, asked)
        open_jobs = [job for job in jobs if table.lacks(job.key, job.crc)]
        answered = len(jobs) - len(open_jobs)
        report(answered, len(jobs))
        calls = [(job, partial(_ask, job)) for job in open_jobs]
        try:
            for job, counts in spawned(calls, workers, "a process that asked models"):
                table.add(ModelAnswers(*job.key, job.crc, counts))
                report(answered := answered + 1, len(jobs))
        except (MachineError, ImportError, MemoryError, OSError) as error:
            message = f"the models cannot be asked: {error}{remedy(error, paths)}"
            raise UnavailableError(message) from None
        transforms = tuple(dict.fromkeys(t for one in asked.values() for t, _ in one.responses))
        on_gpu = set(cells.filter(device="gpu")["cell"])
        from_gpu = sum(job.cell in on_gpu for job in jobs)
        file = table.close(lease.check)
        return Responded(file, len(open_jobs), table.runs, transforms, from_gpu)


def _options(paths: SweepPaths, options: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        require_known(OPTIONS, options)
    except UnknownOption as error:
        raise unknown_key(error, file=None) from None
    file = read_sweep_file(paths.sweep_file)
    known = {} if file.response is None else dict(file.response.options())
    merged = {"transforms": [*DEFAULT], **known, **options}
    return merged | {"transforms": [_transform(each) for each in merged["transforms"]]}


def _transform(text: str) -> str:
    try:
        return canonical(text)
    except Refused as error:
        raise refused(error, key="--transforms", value=text) from None


def _name(transforms: list[str]) -> str:
    return "-".join(re.sub(r"[^a-z0-9.-]", "", each) for each in transforms)[:100]


def _groups(paths: SweepPaths, plan: Plan, cells: pl.DataFrame) -> list[Group]:
    """Return the groups of cells, with checked shards; refuse groups without parameters."""
    numbers = set(cells["group"].to_list())
    groups = [group for group in stored_groups(paths, plan) if group.spec.number in numbers]
    lacking = [group.spec for group in groups if not group.spec.parameters]
    if lacking:
        names = ", ".join(f"{spec.dataset} × {spec.named}" for spec in lacking[:3])
        raise UserError(
            f"runs of {names} keep no parameters",
            file=paths.directory,
            remedy=f"{_to_keep(paths, plan, lacking)}[response] before planning; or leave these "
            "cells out with --where",
        )
    rows = plan.rows.join(cells.select("cell"), on="cell", how="semi")
    kept = counted(plan.cells, rows, [group.spec for group in groups])
    for group in groups:
        if kept.get(group.spec.number) == 0:
            raise UserError(
                f"none of these runs of {group.spec.dataset} × {group.spec.named} keeps its "
                f"parameters: keep.parameters = {toml_value(group.spec.parameters_where)}",
                file=paths.directory,
                remedy="choose others with --where",
            )
    for shard in ComparedShards(paths, plan).unseen((group, None) for group in groups):
        shard.compare()
    return groups


def _to_keep(paths: SweepPaths, plan: Plan, specs: list[GroupSpec]) -> str:
    """Say what keeping the models of groups would have cost, or why they cannot be kept."""
    own = own_code(paths.sweep_file, paths).as_planned()
    expansion = expand(read_sweep_file(paths.sweep_file), paths.sweep_file, own)
    expansion = expansion.with_names_of(plan.cells)
    total, runs = 0, 0
    lengths = plan.all_rows.group_by("group").len()
    for spec in specs:
        cells = plan.cells.filter(group=spec.number)["canonical"].to_list()
        try:
            layouts = parameters.layouts(
                (Cell.from_text(text) for text in cells),
                expansion.datasets[spec.dataset],
                spec.classifier,
            )
        except KeyError:
            return "set keep.parameters = true, or "
        except Refused as error:
            return f"keep.parameters cannot keep them ({error.reason}): set "
        n = int(lengths.filter(group=spec.number)["len"].sum())
        each = max(layout.numbers * np.dtype(layout.dtype).itemsize for layout in layouts)
        total, runs = total + n * each, runs + n
    amount = f"{total / 1e9:,.1f} GB" if total >= 1e8 else f"{total / 1e6:,.1f} MB"
    return f"set keep.parameters = true ({amount} for these {runs:,} runs), or "


def _asked(
    paths: SweepPaths, groups: list[Group], options: Mapping[str, Any], spectra: int | None
) -> dict[str, ResponseDesign]:
    """Return what the models of each group are asked, by the group's path."""
    file = read_sweep_file(paths.sweep_file)
    expansion = expand(file, paths.sweep_file, own_code(paths.sweep_file, paths).as_planned())
    expansion = expansion.with_names_of(Plan.read(paths).cells)
    found = {}
    for group in groups:
        spec = group.spec
        fit = expansion.classifiers[spec.classifier, spec.dataset].record.fit
        pair = spec.dataset, spec.classifier
        try:
            data = expansion.datasets[spec.dataset]
            found[spec.path] = (
                resolve(options, data, fit, pair)
                if spectra is None
                else resolve_spectra(spectra, data, fit, pair)
            )
        except Refused as error:
            raise refused(
                error,
                key=f"--{error.option.replace('_', '-')}",
                value=error.value,
                remedy="leave it out, or these datasets and classifiers with --where",
            ) from None
    return found


def _jobs(
    paths: SweepPaths,
    plan: Plan,
    cells: pl.DataFrame,
    group: Group,
    asked: Mapping[str, ResponseDesign],
) -> Iterator[_Inquiry]:
    """Yield the finished models of a group, without copies."""
    spec = group.spec
    status, crc = statuses(group), read_array(group, "crc")
    wanted = plan.rows.filter(group=spec.number).join(cells.select("cell"), on="cell", how="semi")
    wanted = wanted.filter(with_models(plan.cells, wanted, conditions([spec])))
    known: dict[int, Cell] = {}
    for row in wanted.sort("repeat", "cell", "run").iter_rows(named=True):
        place, number = row["row"], row["cell"]
        if place >= group.rows or status[place] != DONE:
            continue
        if number not in known:
            try:
                known[number] = fitted(paths, plan.cell(number))
            except NotSearched as error:
                raise error.though_trained() from None
        yield _Inquiry(
            str(paths.store),
            spec.path,
            place,
            int(crc[place]),
            number,
            known[number],
            row["repeat"],
            row["run"],
            asked[spec.path],
        )


def _ask(job: _Inquiry) -> Counts:
    """Ask a model, in a process that keeps data between calls."""
    group = open_group(Path(job.store), job.group)
    row = read_rows(group, [PARAMETERS.name], [job.row])[PARAMETERS.name][0]
    layouts = [ModelArrays.from_attributes(one) for one in json.loads(group.spec.parameters)]
    run = Run(job.trained, job.repeat, job.run)
    answers = parameters.answers(trainer_of_process(), run, job.asked, (layouts, row))
    return {name: _as_json(values) for name, values in answers.items()}


def _as_json(values: NDArray[Any]) -> Any:
    if values.dtype.kind != "f":
        return values.tolist()
    if values.ndim > 1:
        return [_as_json(each) for each in values]
    return [None if np.isnan(value) else float(value) for value in values]
