"""Answers of models on disk: one line each while models are asked, a table in the end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from manyseed.jobs.response.questions import DBI, Asked
from manyseed.orchestrator.disk.parquet import read_metadata, read_parquet, write_parquet
from manyseed.orchestrator.disk.placing import unavailable
from manyseed.orchestrator.disk.records import read_records, write_records
from manyseed.orchestrator.errors import DamagedFile, UserError, command, toml_value
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.store.coordinates import RESPONSE_ARRAYS
from manyseed.orchestrator.store.schema import GroupSpec

Counts = dict[str, list[Any]]
"""A model's answers: each array as nested lists, None for NaN."""

Key = tuple[str, int, int, int]
"""Key of a run: group, cell, repeat, run."""

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


def answers_of(paths: SweepPaths, spec: GroupSpec) -> Iterator[tuple[Asked, pl.DataFrame]]:
    """Yield, for each table, what a group's models were asked and the rows of their answers."""
    for file in paths.all_responses():
        asked = _asked_in(file).get(spec.path)
        if asked is not None:
            rows = read_parquet(file, SCHEMA, remedy=_again(paths, file)).filter(group=spec.path)
            yield asked, rows


def _again(paths: SweepPaths, file: Path) -> str:
    again = command("respond", paths.directory, "--name", file.stem)
    return f"remove it, and measure it again with: {again}"


def _asked_in(file: Path) -> dict[str, Asked]:
    """Return what a table's models were asked, by group."""
    metadata = read_metadata(file, "remove it")
    try:
        asked = json.loads(metadata["asked"])
        return {path: Asked.from_attributes(one) for path, one in asked.items()}
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise DamagedFile(file, f"does not say what was asked: {error}", "remove it") from None


class AnswerTable:
    """The answers to one set of questions: earlier ones, and new ones line by line."""

    def __init__(self, paths: SweepPaths, name: str, asked: Mapping[str, Asked]) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
            raise UserError(
                "not a name for a table",
                key="--name",
                value=name,
                remedy="up to 100 letters, digits, dots, hyphens and underscores; the first a "
                "letter or digit",
            )
        self._paths, self._file, self._log = paths, paths.response(name), paths.responding(name)
        self._asked, self._before = dict(asked), pl.DataFrame(schema=dict(SCHEMA))
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
            if now != one:
                raise UserError(
                    f"{name} exists with other questions: for {path} "
                    f"{toml_value([f'{t} at layer {n}' for t, n in one.responses])}, {one.rows} "
                    f"rows, {one.draws} draws",
                    file=self._file,
                    remedy="give these answers another name with --name NAME",
                )
        remedy = _again(self._paths, self._file)
        self._before = read_parquet(self._file, SCHEMA, remedy=remedy)

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
        then = {path: Asked.from_attributes(one) for path, one in lines[0].asked.items()}
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
            now = pl.DataFrame(rows, schema=dict(SCHEMA), orient="row")
            kept = self._before.join(now, on=KEY, how="anti")
            order = [*KEY, "transform", "layer"]
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
        right, total, shifted_right, shifted_total = (found[name] for name in RESPONSE_ARRAYS)
        for n, (transform, layer) in enumerate(asked.responses):
            grid = asked.grid(transform)
            yield (
                *(*model.key, model.crc, transform, layer, [*grid]),
                [draw[: len(grid)] for draw in right[n]],
                [draw[: len(grid)] for draw in total[n]],
                *(shifted_right[n], shifted_total[n], found.get(DBI) or []),
            )
