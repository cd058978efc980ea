"""What models answered, on disk: a line each while they are asked, a table when all are."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from manyseed.jobs.response.asked import DBI, Asked
from manyseed.orchestrator.disk.parquet import read_metadata, read_parquet, write_parquet
from manyseed.orchestrator.disk.placing import unavailable
from manyseed.orchestrator.disk.records import read_records, write_records
from manyseed.orchestrator.errors import DamagedFile, UserError, toml_value
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.store.layout.optional import RESPONSE_ARRAYS
from manyseed.orchestrator.store.layout.schema import GroupSpec

Counts = dict[str, list[Any]]
"""What a model answered: each array as nested lists, None for NaN."""

Key = tuple[str, int, int, int]
"""Which run: group, cell, repeat, run."""

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
"""Columns of a table of answers: a row per run, transform and layer; `crc` is that of the run's row
of the store, `right` and `total` are (draw, magnitude), `shifted_…` are parts."""


@dataclass(frozen=True, slots=True)
class ModelAnswers:
    """A model that answered; the first line of a file, which is what was asked, is of none."""

    group: str = ""
    cell: int = -1
    repeat: int = -1
    run: int = -1
    crc: int = -1
    found: Counts | None = None
    asked: dict[str, dict[str, object]] | None = None

    @property
    def key(self) -> Key:
        """Which run's model it is."""
        return self.group, self.cell, self.repeat, self.run


def answers_of(paths: SweepPaths, spec: GroupSpec) -> Iterator[tuple[Asked, pl.DataFrame]]:
    """Yield what the models of a group answered: of each table what was asked, and its rows.

    Raises
    ------
    DamagedFile
    """
    for file in paths.all_responses():
        asked = _asked_in(file).get(spec.path)
        if asked is not None:
            rows = read_parquet(file, SCHEMA, remedy=_again(paths, file)).filter(group=spec.path)
            yield asked, rows


def _again(paths: SweepPaths, file: Path) -> str:
    return f"remove it, and measure it again with: manyseed respond {paths.directory} --name " + (
        file.stem
    )


def _asked_in(file: Path) -> dict[str, Asked]:
    """Return what a table's models were asked, by group."""
    said = read_metadata(file, "remove it")
    try:
        asked = json.loads(said["asked"])
        return {path: Asked.from_attributes(one) for path, one in asked.items()}
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise DamagedFile(file, f"does not say what was asked: {error}", "remove it") from None


class AnswerTable:
    """What models answered to one way of asking: those of before, and line by line those of now."""

    def __init__(self, paths: SweepPaths, name: str, asked: Mapping[str, Asked]) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
            raise UserError(
                "is no name of a table",
                key="--name",
                value=name,
                remedy="up to 100 of A-Z, a-z, 0-9, point, hyphen and underscore, no point first",
            )
        self._paths, self._file, self._log = paths, paths.response(name), paths.responding(name)
        self._asked, self._before = dict(asked), pl.DataFrame(schema=dict(SCHEMA))
        if self._file.exists():
            self._read(name)
        written = self._before.select(*KEY, "crc").unique()
        self._known = {row[:-1]: row[-1] for row in written.iter_rows()}
        self._lines = self._answered_before()
        # written anew, because a last line may be torn
        first = ModelAnswers(asked=self._to_json())
        write_records(self._log, map(asdict, [first, *self._lines.values()]))

    def _read(self, name: str) -> None:
        remedy_ = _again(self._paths, self._file)
        before = _asked_in(self._file)
        for path, one in before.items():
            now = self._asked.setdefault(path, one)
            if now != one:
                raise UserError(
                    f"{name} exists with other questions: of {path} "
                    f"{toml_value([f'{t} at layer {n}' for t, n in one.responses])}, {one.rows} "
                    f"rows, {one.draws} draws",
                    file=self._file,
                    remedy="give these answers a name of their own with --name NAME",
                )
        self._before = read_parquet(self._file, SCHEMA, remedy=remedy_)

    def _to_json(self) -> dict[str, dict[str, object]]:
        return {path: one.to_attributes() for path, one in sorted(self._asked.items())}

    def _answered_before(self) -> dict[Key, ModelAnswers]:
        """Return the answers that are in the file of lines; none to other questions."""
        try:
            found = read_records(self._log, ModelAnswers)
        except DamagedFile:
            return {}
        if not found or found[0].asked is None:
            return {}
        then = {path: Asked.from_attributes(one) for path, one in found[0].asked.items()}
        return {
            one.key: one
            for one in found[1:]
            if one.found is not None and then.get(one.group) == self._asked.get(one.group)
        }

    @property
    def runs(self) -> int:
        """How many models answered."""
        return len({*self._known, *self._lines})

    def lacks(self, key: Key, crc: int) -> bool:
        """Whether the run's model has not answered, or is another now: its row has another CRC."""
        held = self._lines[key].crc if key in self._lines else self._known.get(key)
        return held != crc

    def add(self, answered: ModelAnswers) -> None:
        """Write one more model's answers down."""
        self._lines[answered.key] = answered
        with unavailable("write", self._log), self._log.open("a") as file:
            file.write(json.dumps(asdict(answered)) + "\n")

    def close(self, before_rename: Callable[[], None]) -> Path:
        """Write the table."""
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

    def _rows(self, one: ModelAnswers) -> Iterator[tuple[Any, ...]]:
        asked, found = self._asked[one.group], one.found or {}
        right, total, shifted_right, shifted_total = (found[name] for name in RESPONSE_ARRAYS)
        for n, (transform, layer) in enumerate(asked.responses):
            grid = asked.grid(transform)
            yield (
                *(*one.key, one.crc, transform, layer, [*grid]),
                [draw[: len(grid)] for draw in right[n]],
                [draw[: len(grid)] for draw in total[n]],
                *(shifted_right[n], shifted_total[n], found.get(DBI) or []),
            )
