"""What a sweep needs on this machine: its data, fetched if asked, and users' own code.

The plan records users' code; its copies for workers are folders below ``tasks/code``, named by the
code's digest, that never change: editing a file while tasks wait or train does not affect their
runs.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from manyseed.jobs import datasets
from manyseed.jobs.checks import Refused
from manyseed.jobs.classifiers import is_own
from manyseed.jobs.classifiers.record import OPTIONS
from manyseed.jobs.datasets import DatasetInfo
from manyseed.jobs.run import Cell, DamagedData, MachineError, NotFetched, PreparedElsewhere
from manyseed.orchestrator.disk.records import read_record, write_json
from manyseed.orchestrator.errors import (
    ManyseedError,
    UnavailableError,
    UserError,
    command,
    refused,
    toml_key,
)
from manyseed.orchestrator.grids.own import OwnCode, Pin, lying, placed
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.provenance import BF16, code_key, read_recipes

if TYPE_CHECKING:
    import polars as pl

    from manyseed.jobs.own.copies import Code

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Pins:
    pins: Mapping[str, Pin] = field(default_factory=dict)


def read_pins(paths: SweepPaths) -> Mapping[str, Pin]:
    """Return a plan's records, by what each depends on."""
    try:
        return read_record(paths.own, _Pins).pins
    except FileNotFoundError:
        return {}


def own_code(sweep_file: Path, paths: SweepPaths) -> OwnCode:
    """Return what is known about the code that a sweep file names; the sweep need not exist."""
    if not paths.is_sweep:
        return OwnCode.beside(sweep_file, {})
    is_its_own = sweep_file.absolute() == paths.sweep_file.absolute()
    return OwnCode.beside(sweep_file, read_pins(paths), paths.directory if is_its_own else None)


def write_pins(
    paths: SweepPaths, used: Mapping[str, Pin], check: Callable[[], None] | None = None
) -> None:
    """Record what was found out; a sweep without users' own code gets no such file."""
    if not used:
        return
    before = read_pins(paths)
    after = {**before, **used}
    if after != before:
        value = {"pins": {key: asdict(pin) for key, pin in after.items()}}
        write_json(paths.own, value, before_rename=check)


_SHOWN_LINES = 20


class CodeHere:
    """The users' code that cells of a plan are fitted with, as it is on disk now.

    `cells`: cells of a plan, with the columns cell, classifier and canonical. `pins`: what a
    planning that is not written yet knows about code, besides what the plan records.
    """

    def __init__(
        self, paths: SweepPaths, cells: pl.DataFrame, pins: Mapping[str, Pin] | None = None
    ) -> None:
        self._paths = paths
        self._pinned = {**read_pins(paths), **(pins or {})}
        self._code: dict[str, Code] = {}
        self._lost: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._keys: dict[int, str] = {}
        self._timeouts: dict[int, float] = {}
        by_text: dict[str, str] = {}
        for cell, name, text in cells.select("cell", "classifier", "canonical").iter_rows():
            if '"own":' not in text:
                continue
            canonical = json.loads(text)["classifier"]
            if is_own(canonical):
                description = json.dumps(canonical)
                if description not in by_text:
                    by_text[description] = self._find(canonical, name)
                self._keys[cell] = by_text[description]
                self._timeouts[cell] = timeout_of(paths, name, canonical)

    @property
    def of_tasks(self) -> dict[int, tuple[str, float]]:
        """For each cell, the digest of its code and the timeout of a command in seconds."""
        return {cell: (self._digest(key), self._timeouts[cell]) for cell, key in self._keys.items()}

    def _digest(self, key: str) -> str:
        return self._lost[key] if key in self._lost else self._code[key].digest

    def of(self, classifier: Mapping[str, Any]) -> str:
        """Return the folder of the copy that a classifier is imported from, or an empty text."""
        digest = self._digest(code_key(classifier)) if is_own(classifier) else ""
        return str(self._paths.code(digest)) if digest.startswith("sha256:") else ""

    def recipe(self, cell: Cell) -> dict[str, str] | None:
        """Return the code entry of a cell's recipe; None if the classifier is built in."""
        if not is_own(cell.classifier):
            return None
        key = code_key(cell.classifier)
        return {key: self._digest(key)}

    def copy(self) -> None:
        """Copy local modules to where tasks import them from."""
        for code in self._code.values():
            if code.root is not None:
                try:
                    code.copy_to(self._paths.code(code.digest))
                except OSError as error:
                    message = f"cannot copy the code of {code.root}: {error}"
                    raise UnavailableError(message) from None

    def require_same(self, finished: pl.DataFrame) -> None:
        """Refuse code that has changed since runs with its version finished.

        `finished`: all cells of the plan that have finished runs, with the column canonical.
        """
        for key, before in self._changed(finished):
            raise self._refusal(key, before)

    def changed(self, finished: pl.DataFrame) -> list[str]:
        """Return the names of the classifiers that `require_same` would refuse."""
        return [self._names[key] for key, _ in self._changed(finished)]

    def _changed(self, finished: pl.DataFrame) -> Iterator[tuple[str, str]]:
        """Yield keys of code that has changed, and the digest with which it was trained last."""
        recorded = [recipe.own or {} for recipe in read_recipes(self._paths.recipes).values()]
        classifiers = [json.loads(text)["classifier"] for text in finished["canonical"]]
        trained = {code_key(canonical) for canonical in classifiers if is_own(canonical)}
        for key in sorted(trained & self._code.keys()):
            known = [each[key] for each in recorded if key in each]
            if known and self._code[key].digest not in known:
                yield key, known[-1]

    def _refusal(self, key: str, before: str) -> UserError:
        code, name = self._code[key], self._names[key]
        if code.root is None:
            what = f"{before} → {code.library}"
        else:
            what = "\n".join(["", *_difference(self._paths.code(before), code)])
        return UserError(
            f"the code of {key} is not that of the finished runs: {what}",
            file=self._paths.directory,
            key=f"classifier.{name}",
            remedy="restore it; or, if it was mended, so that failed or missing runs train, give "
            "--other-recipe: results mark where both are\n"
            "  if it means something else, plan into another directory with --out, or add a second "
            f"table beside classifier.{name}, with another name and version = …, and name it in "
            "the grid",
        )

    def _find(self, canonical: Mapping[str, Any], name: str) -> str:
        from manyseed.jobs.own import copies, table

        key = code_key(canonical)
        self._names.setdefault(key, name)
        entries = table.entries_of(canonical)
        roots = [Path(pin.root) for pin in self._pins(entries[0]) if pin.root]
        try:
            places = [*roots, Path.cwd()]
            self._code[key] = copies.find(canonical["form"], entries, canonical, places)
        except Refused as error:
            recipes = read_recipes(self._paths.recipes).values()
            copied = [digest for r in recipes if (digest := (r.own or {}).get(key))]
            copied += [pin.digest for pin in self._pins(entries[0])]
            existing = [digest for digest in copied if self._paths.code(digest).is_dir()]
            if not existing:
                raise UserError(
                    error.reason,
                    file=self._paths.directory,
                    key=f"classifier.{name}.{canonical['form']}",
                    value=canonical["name"],
                    remedy="restore its file, or plan again from where it is",
                ) from None
            self._lost[key] = existing[0]
        return key

    def _pins(self, entry: str) -> list[Pin]:
        # the latest planning is the most likely to know where it is
        return [pin for pin in reversed([*self._pinned.values()]) if pin.entry == entry]


def timeout_of(paths: SweepPaths, name: str, classifier: Mapping[str, Any]) -> float:
    """Return a command's timeout as the sweep file has it now: it is not part of a cell.

    `name`: the classifier's name in the file. `classifier`: its canonical description. Returns
    seconds after which its fits are ended; 0 without a timeout, or if it is no command.
    """
    if "command" not in classifier:
        return 0.0
    from manyseed.jobs.own.table import timeout

    return of_table(paths, name, timeout, 0.0)


def of_table(paths: SweepPaths, name: str, read: Callable[[Any], T], default: T) -> T:
    """Return what `read` finds in a classifier's table as the sweep file has it now."""
    try:
        tables = tomllib.loads(paths.sweep_file.read_text(encoding="utf-8-sig"))["classifier"]
        return read(tables[name])
    except (OSError, ValueError, LookupError, RecursionError, TypeError):
        return default


def in_bf16(paths: SweepPaths, cells: pl.DataFrame) -> frozenset[int]:
    """Return the cells whose networks are trained in bfloat16, as in the sweep file now."""

    def precision(table: Mapping[str, Any]) -> Any:
        return OPTIONS["precision"].check("precision", table["precision"])

    names = cells["classifier"].unique()
    asked = {name for name in names if of_table(paths, name, precision, None) == BF16}
    return frozenset(
        cell
        for cell, name, text in cells.select("cell", "classifier", "canonical").iter_rows()
        if name in asked and "optimizer" in Cell.from_text(text).classifier
    )


def use_code(paths: SweepPaths, code: str, classifier: Mapping[str, Any]) -> None:
    """Make this process import users' own code from its copy.

    `code` is its digest, or the version of a library, for which nothing is done; `classifier` the
    canonical description. Raises `jobs.run.MachineError` if the copy is gone, or the process has
    imported other code under these names.
    """
    if not code.startswith("sha256:"):
        return
    from manyseed.jobs.own import copies

    try:
        copies.use(paths.code(code), classifier)
    except ImportError as error:
        raise MachineError(str(error)) from error


def forget_code(paths: SweepPaths, code: str) -> None:
    """Undo `use_code` in a process that goes on to other work."""
    if code.startswith("sha256:"):
        from manyseed.jobs.own import copies

        copies.forget(paths.code(code))


def _difference(before: Path, now: Code) -> Iterator[str]:
    from manyseed.jobs.own.copies import differing

    if not before.is_dir():
        yield f"    {before}, the copy that they were trained with, is gone"
        return
    lines = [
        line.rstrip("\n")
        for name, old, new in differing(before, now)
        for line in difflib.unified_diff(
            old.splitlines(), new.splitlines(), name, f"{name}, now", n=1, lineterm=""
        )
    ]
    yield from (f"    {line}" for line in lines[:_SHOWN_LINES])
    if len(lines) > _SHOWN_LINES:
        yield f"    and {len(lines) - _SHOWN_LINES:,} more lines"


DIGESTS = ("digest", "test_digest")
"""Keys of a canonical description that say what the files of a dataset hold."""
_REPLAN = "plan what it holds now into another directory with --out"


def fetch_datasets(
    infos: Mapping[str, DatasetInfo], report: Callable[[str], None] = lambda name: None
) -> list[str]:
    """Prepare the local copies that are missing; return the names of their datasets."""
    made = []
    for name, info in infos.items():
        report(name)
        try:
            if datasets.fetch(info):
                made.append(name)
        except DamagedData as error:
            raise UserError(f"{name}: {error}", remedy="replace or remove it") from None
        except MachineError as error:
            raise UnavailableError(f"{name}: {error}") from None
    return made


def prepare_read(infos: Mapping[str, DatasetInfo]) -> list[str]:
    """Make the prepared copies of data that planning has read, such as files: as `fetch_datasets`.

    What would be downloaded waits until the user asks for it.
    """
    return fetch_datasets({name: info for name, info in infos.items() if info.locations})


def require_fetched(canonicals: Mapping[str, Mapping[str, Any]], sweep_file: Path) -> None:
    """Refuse datasets that have no prepared copy on this machine, or whose file has changed.

    `canonicals`: canonical descriptions by dataset name in the sweep file. `sweep_file`: named in
    the remedy.
    """
    absent = [name for name, canonical in canonicals.items() if not datasets.is_fetched(canonical)]
    for name in absent:
        _require_unchanged(name, canonicals[name], sweep_file)
    if absent:
        raise UserError(
            f"the data of {', '.join(absent)} is not on this machine",
            file=datasets.data_home(),
            remedy=f"fetch it with: {command('plan', sweep_file, '--fetch')}",
        )


def of_changed_files(
    canonicals: Mapping[str, Mapping[str, Any]], paths: SweepPaths
) -> Iterator[str]:
    """Say which files have changed since they were planned: their prepared copies are used."""
    for _, file in _changed_files(canonicals, paths):
        yield (
            f"{file} has changed since it was planned: its copy of then is used. To use it "
            f"as it is now, {_REPLAN}."
        )


def require_files(canonicals: Mapping[str, Mapping[str, Any]], paths: SweepPaths) -> None:
    """Refuse datasets whose files have changed since they were planned."""
    for name, file in _changed_files(canonicals, paths):
        copy = f"{command('resume', paths.directory)} trains on the prepared copy of it"
        raise UserError(
            f"{file} has changed since it was planned",
            file=paths.sweep_file,
            key=f"dataset.{toml_key(name)}",
            remedy=f"restore what was planned, or {_REPLAN}; {copy}",
        )


def _changed_files(
    canonicals: Mapping[str, Mapping[str, Any]], paths: SweepPaths
) -> Iterator[tuple[str, Path]]:
    """Yield the datasets whose files have changed since they were planned.

    Only files that were written, or put in their place, later than the plan are read.
    """
    from manyseed.orchestrator.grids.loading import read_sweep_file  # no task needs it

    with suppress(ManyseedError, OSError):  # what cannot be told keeps nothing from training
        tables = read_sweep_file(paths.sweep_file).dataset
        planned = paths.parts()[0].stat().st_mtime
        for name, canonical in canonicals.items():
            table, kind = tables.get(name), canonical["source"]
            if kind != "file" or table is None or table.source is None:
                continue
            given = placed({"source": table.source, **table.options()}, paths.directory)
            file = Path(given["source"].removeprefix("file:"))
            if not file.is_file():
                continue
            status = file.stat()
            if max(status.st_mtime, status.st_ctime) < planned:
                continue
            if not is_as_planned(given, canonical):
                yield name, file


def is_as_planned(given: Mapping[str, Any], canonical: Mapping[str, Any]) -> bool:
    """Return whether the files of a source and its options are those of a canonical description."""
    try:
        now = datasets.resolve(**given).canonical
    except Refused:
        return False
    return all(now.get(key) == canonical.get(key) for key in DIGESTS)


def remedy(error: BaseException, paths: SweepPaths) -> str:
    """Return the last line of a message about a machine's fault: a command, or nothing."""
    if isinstance(error, PreparedElsewhere):
        given = 'setup = ["export MANYSEED_DATA=…"]'
        return f"\n  name a folder that nodes can read in the cluster profile: {given}"
    if isinstance(error, NotFetched):
        return f"\n  fetch the data with: {command('plan', paths.sweep_file, '--fetch')}"
    return ""


def _require_unchanged(name: str, canonical: Mapping[str, Any], sweep_file: Path) -> None:
    """Refuse a table whose file is gone or has changed: fetching it would give other data."""
    from manyseed.orchestrator.grids.loading import read_sweep_file  # no task needs it

    table = read_sweep_file(sweep_file).dataset.get(name)
    if canonical["source"] != "file" or table is None or table.source is None:
        return
    key, remedy = f"dataset.{name}.source", f"restore the file that was planned, or {_REPLAN}"
    given = placed({"source": table.source, **table.options()}, sweep_file.parent)
    try:
        if datasets.resolve(**given).canonical == canonical:
            return
    except Refused as error:
        remedy = lying(error) or remedy
        raise refused(error, file=sweep_file, key=key, value=table.source, remedy=remedy) from None
    message = "the file has changed since it was planned"
    raise UserError(message, file=sweep_file, key=key, value=table.source, remedy=remedy)
