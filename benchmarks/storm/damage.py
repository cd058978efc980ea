"""Damage to files while nothing runs; its effect is worked out independently of manyseed."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from benchmarks.storm.ledger import COPY, DONE, Ledger, Row
from manyseed.orchestrator.store.arrays import ArraySpec
from manyseed.orchestrator.store.chunkfile import ChunkReader, parse
from manyseed.orchestrator.store.groups import Group

HOW = ("flip", "flip", "truncate", "empty", "delete", "zero", "garbage")
RECORDS = ("status", "crc")
OTHERS = ("fit_seconds", "recipe", "clipped")


@dataclass
class Damage:
    """Damaged files, and their content before.

    Attributes
    ----------
    before : dict
        Content by file.
    formats : dict
        The ``zarr.json`` of each array of the store before the damage, by folder.
    groups : list of Group
        As they were before.
    cut : set
        Rows of records that left no header in a journal: it looks as if its process was killed
        before them, so that nobody can name them.
    """

    ledger: Ledger
    before: dict[Path, bytes] = field(default_factory=dict)
    how: dict[Path, str] = field(default_factory=dict)
    formats: dict[Path, bytes] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)
    alive: set[Row] = field(default_factory=set)
    unclear: set[Row] = field(default_factory=set)
    cut: set[Row] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.groups = self.ledger.groups()
        self.present = self.ledger.present()
        self.journaled = {*self.ledger.journaled()}
        self.published = {
            (group.spec.number, row) for group in self.groups for row in _published(group)
        }
        for file in self.ledger.paths.store.rglob("zarr.json"):
            self.formats[file.parent] = file.read_bytes()

    def harm(self, file: Path, how: str, rng: random.Random) -> None:
        """Damage a file."""
        content = file.read_bytes()
        self.before.setdefault(file, content)
        self.how[file] = how
        place, data = rng.randrange(len(content) or 1), bytearray(content)
        if how == "delete" or not content:
            file.unlink()
            self.how[file] = "delete"
            return
        if how == "flip":
            data[place] ^= 1 << rng.randrange(8)
        elif how == "truncate":
            del data[place:]
        elif how == "empty":
            data.clear()
        elif how == "zero":
            data[place : place + 4096] = bytes(len(data[place : place + 4096]))
        else:
            data[place : place + 64] = rng.randbytes(len(data[place : place + 64]))
        file.write_bytes(data)

    def restore(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(self.before.pop(file))
        self.assess()

    def __str__(self) -> str:
        root = self.ledger.paths.directory
        return ", ".join(f"{how} {file.relative_to(root)}" for file, how in self.how.items())

    def assess(self) -> None:
        """Record what is still there, before any command publishes, compacts or repairs.

        A row is there if its predictions can be decoded, or a journal has them. Its status or
        its checksum must show that it was finished.
        """
        journaled = self.ledger.journaled()
        self.cut |= self.journaled - {*journaled, *self.ledger.journaled(good=False)}
        held = {
            row for row, here in journaled.items() if any(one.status == DONE for _, one in here)
        }
        intact, unclear = self._published_still()
        self.alive |= intact | held
        self.unclear |= unclear
        for row, here in journaled.items():
            sources = {(row[0], one.source) for _, one in here if one.status == COPY}
            if sources & (self.alive | self.unclear):
                self.alive.add(row)
            elif sources & self.cut:  # copies wait
                self.cut.add(row)

    def destroyed(self) -> tuple[set[Row], set[Row]]:
        """Return the rows that were held nowhere any more, and those for which this is possible."""
        gone = self.ledger.finished.keys() - self.alive
        return gone - self.unclear, gone & self.unclear

    def _published_still(self) -> tuple[set[Row], set[Row]]:
        """Return published rows whose predictions are unchanged, and those without proof."""
        intact, unclear = set(), set()
        for group in self.groups:
            rows = sorted(row for number, row in self.published if number == group.spec.number)
            for shard in sorted({row // group.spec.shard_length for row in rows}):
                start, stop = group.span(shard)
                here = [row for row in rows if start <= row < stop]
                harmed = [a.name for a in group.spec.arrays if group.file(a, shard) in self.before]
                good = self._intact(group, shard, here, harmed)
                found = {(group.spec.number, row) for row in good}
                # labels follow from margins, if checksums confirm it
                if {*RECORDS} <= {*harmed} or {"label", "crc"} <= {*harmed}:
                    unclear |= found
                else:
                    intact |= found
        return intact, unclear

    def _intact(self, group: Group, shard: int, rows: list[int], harmed: list[str]) -> list[int]:
        arrays = [a for a in group.spec.arrays if a.role == "prediction"]
        if not any(a.name in harmed for a in arrays):
            return rows
        known = self.ledger.finished
        held = self._read(group, shard, rows, arrays)
        found = []
        for row in rows:
            label, *rest = (held[array.name].get(row) for array in arrays)
            at = (group.spec.number, row)
            if label is None and known.get(at) is not None:
                label = _derived(group, rest[0] if rest else None)  # if the checksum fits
            if label is not None and all(value is not None for value in rest):
                crc = 0
                for value in (label, *rest):
                    crc = google_crc32c.extend(crc, value.tobytes())
                if known.get(at) in (None, crc):
                    found.append(row)
        return found

    def _read(
        self, group: Group, shard: int, rows: list[int], arrays: Sequence[ArraySpec]
    ) -> dict[str, dict[int, Any]]:
        """Return what can be decoded of each array, by row."""
        start, _ = group.span(shard)
        held: dict[str, dict[int, Any]] = {array.name: {} for array in arrays}
        for array in arrays:
            form = parse(self.formats[group.folder / array.name])
            try:
                with group.file(array, shard).open("rb") as file:
                    reader = ChunkReader(form, file.fileno())
                    for row in rows:
                        value = form.empty(1)
                        with contextlib.suppress(Exception):  # damaged bytes raise many kinds
                            reader.read(row - start, row - start + 1, value)
                            held[array.name][row] = value
            except (OSError, ValueError):
                continue
        return held


def _derived(group: Group, score: Any) -> Any:
    """Return the labels that follow from the stored part of a row's scores; None if none do."""
    if score is None or group.spec.scores == "none":
        return None
    if group.spec.n_classes == 2:
        gap = score if group.spec.scores == "margin" else score[..., 1] - score[..., 0]
        return (gap >= 0).astype(np.uint8)
    return score.argmax(axis=-1).astype(np.uint8) if group.spec.scores == "all" else None


def _published(group: Group) -> list[int]:
    from manyseed.orchestrator.store.reader import read_array

    status = read_array(group, "status")
    found: list[int] = np.flatnonzero((status == DONE) | (status == COPY)).tolist()
    return found


def targets(ledger: Ledger, kind: str) -> list[Path]:
    """Return the files of a kind: store, predictions, metadata, journals, plan, notes."""
    paths = ledger.paths
    if kind == "plan":
        return [*sorted(f for f in paths.plan.rglob("*") if f.is_file()), paths.sweep_file]
    if kind == "journals":
        return sorted(f for f in paths.journals.glob("*.journal") if f.stat().st_size)
    if kind == "notes":
        notes = [f for f in paths.tasks.rglob("*") if f.is_file() and f.suffix != ".journal"]
        return sorted(f for f in notes if "submitit" not in f.parts)
    every = sorted(f for f in paths.store.rglob("*") if f.is_file())
    if kind == "metadata":
        return [f for f in every if f.name == "zarr.json"]
    predictions = [f for f in every if f.parent.name in ("label", "margin", "score", "confidence")]
    if kind == "predictions":
        return [f for f in predictions if f.name != "zarr.json"]
    return [f for f in every if f.name != "zarr.json" and f not in predictions]
