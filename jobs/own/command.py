"""A user's own command, started once per run: ``command = "python train.py …"``; any language.

It runs with a copy of its files in a folder of its own, below the node's temporary folder, which is
removed afterwards. It reads rows from files and writes a file of scores or labels. `guard` cleans
up after it even if this process is killed.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import NOTHING
from manyseed.jobs.hparams.kinds import Value
from manyseed.jobs.own import calling, guard, table
from manyseed.jobs.own.calling import CommandError, LabelsGiven, OwnError
from manyseed.jobs.own.frames import encoded
from manyseed.jobs.own.table import ROWS, entries_of
from manyseed.jobs.own.training import folder, in_form
from manyseed.jobs.run import MachineError, seed31
from manyseed.jobs.training.handling import FitInput, Fitted

PREFIX = "manyseed-run-"
OUT = "out"
_LOG_BYTES = 16_000
_PLAIN = re.compile(r"[\w@%+=:,./{}-]+")  # of a word that needs no quotation marks
_COPIES: dict[tuple[str, ...], Path] = {}
"""The copy of a command's files, by the command's entries and version."""


def use(copy: Path, canonical: Mapping[str, Any]) -> None:
    """Let this process run a command with a copy of its files."""
    _COPIES[_key(canonical)] = copy


def _key(canonical: Mapping[str, Any]) -> tuple[str, ...]:
    return (*entries_of(canonical), str(canonical["version"]))


def forget(copy: Path) -> None:
    """Undo `use`."""
    for key in [key for key, place in _COPIES.items() if place == copy]:
        del _COPIES[key]


def fit(given: FitInput) -> Fitted:
    """Run a command and read its output file; see `jobs.classifiers.fit`."""
    settings, _, data, _, handling = given
    X, X_test = encoded(settings["encode"], data)
    try:
        scratch = Path(tempfile.mkdtemp(prefix=PREFIX))
    except OSError as error:
        raise MachineError(f"a command's temporary folder cannot be made: {error}") from error
    try:
        values = _values(given)
        try:
            for name, rows, y in (("train", X, data.y), ("test", X_test, None)):
                values[name] = _written(scratch / name, settings["rows"], rows, y)
            place = scratch / "work"
            copied(_COPIES.get(_key(settings)), place)
        except OSError as error:
            raise MachineError(f"{scratch} cannot be written: {error}") from error
        values["out"] = str(scratch / OUT)
        started = perf_counter()
        command = table.filled_in(settings["command"], values)
        with _completed(command, place, scratch, handling.timeout):
            seconds = perf_counter() - started
            output = read(scratch, settings["scores"])
            log = _log(scratch)
        try:
            value = in_form(output, settings["scores"], "the command", len(X_test), data.n_classes)
        except OwnError as error:
            needs = {"scores": "labels"} if isinstance(error, LabelsGiven) else error.needs
            raise _with_log(str(error.args[0]), log, needs) from None
        if not np.isfinite(value).all():
            raise _with_log("the command returned scores that are not finite", log)
        return Fitted(value[np.newaxis], seconds)
    except CommandError as error:
        error.add_note(f"It ran: {_shown(settings['command'], values)}")
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _values(given: FitInput) -> dict[str, Value]:
    """Return the values of placeholders, except for files; each stream gives one word."""
    settings, hparams, data, generators, handling = given
    used = table.placeholders(settings["command"])
    drawn = {table.SEEDS[name] for name in used if name in table.SEEDS}
    seeds = {stream: seed31(getattr(generators, stream)) for stream in sorted(drawn)}
    values: dict[str, Value] = {
        name: seeds[stream] for name, stream in table.SEEDS.items() if stream in seeds
    }
    values |= {f"{table.HPARAM}{name}": value for name, value in hparams.items()}
    values |= {
        "device": "cuda" if handling.device == "gpu" else "cpu",
        "n_classes": data.n_classes,
    }
    if table.CHECKPOINT in used:
        checkpoint = handling.checkpoint  # None in a probe
        values[table.CHECKPOINT] = "" if checkpoint is None else str(folder(checkpoint))
    return values


def _shown(words: Sequence[str], values: Mapping[str, Value]) -> str:
    """Return a command as it is typed, except for the places of files that are gone by then."""
    places = {name: f"{{{name}}}" for name in (*table.NEEDED, table.CHECKPOINT)}
    filled = table.filled_in(words, {**values, **places})
    return " ".join(word if _PLAIN.fullmatch(word) else shlex.quote(word) for word in filled)


def copied(files: Path | None, place: Path) -> None:
    """Copy a command's files to its working folder, so that it cannot change the stored copy."""
    if files is None:
        place.mkdir()
        return
    shutil.copytree(files, place, copy_function=shutil.copyfile)
    for each in place.rglob("*"):
        each.chmod(0o755)


def _written(path: Path, form: str, X: NDArray[Any], y: NDArray[Any] | None) -> str:
    """Write rows, and their classes unless they are test rows, to a file; return its name."""
    file = path.with_suffix(f".{form}")
    if form == "npz":
        arrays = {"X": X} if y is None else {"X": X, "y": y.astype(np.int64)}
        np.savez(file, **arrays)  # type: ignore[arg-type]
        return str(file)
    import polars as pl

    flat = np.ascontiguousarray(X.reshape(len(X), -1))
    frame = pl.DataFrame({f"x{i}": flat[:, i] for i in range(flat.shape[1])})
    if y is not None:
        frame = frame.with_columns(pl.Series("y", y.astype(np.int64)))
    if form == "csv":
        frame.fill_nan(None).write_csv(file)
    else:
        frame.write_parquet(file)
    return str(file)


@contextmanager
def _completed(
    command: Sequence[str], place: Path, scratch: Path, timeout: float
) -> Iterator[None]:
    """Run a command until it ends; its scratch folder exists only within the block."""
    ours, theirs = socket.socketpair()
    with ours, (scratch / "log.txt").open("wb") as log:
        with theirs:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", guard.__file__),
                    *(str(theirs.fileno()), str(scratch), str(timeout), *command),
                ],
                pass_fds=[theirs.fileno()],
                cwd=place,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        with process:
            try:
                ending = ours.recv(4096).decode(errors="replace")
                _require_success(ending, timeout, scratch)
                yield
            finally:
                ours.close()  # tells the guard to end the command and to remove the folder


def _require_success(ending: str, timeout: float, scratch: Path) -> None:
    kind, _, detail = ending.partition(" ")
    if kind == "missing":
        raise MachineError(f"the command cannot be started: {detail}")
    if ending == "code 0":
        return
    log = _log(scratch)
    if kind == "timeout":
        raise _with_log(f"the command was ended after {timeout:g} s, its timeout", log)
    if kind != "code" or detail == "-9":
        raise _with_log("the command was killed, as by a system that runs out of memory", log)
    how = f"by signal {detail[1:]}" if detail.startswith("-") else f"with code {detail}"
    last = next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "")
    raise _with_log(f"the command ended {how}" + (f": {last}" if last else ""), log)


def environment() -> dict[str, str]:
    """Return a command's environment: ``python`` is this one, and imports from beside a script."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    path = os.pathsep.join([str(Path(sys.executable).parent), inherited.get("PATH", os.defpath)])
    return {**inherited, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def _log(scratch: Path) -> str:
    with (scratch / "log.txt").open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_BYTES))
        return file.read().decode(errors="replace").strip()


def _with_log(reason: str, log: str, needs: Mapping[str, str] = NOTHING) -> CommandError:
    error = CommandError(reason, needs)
    if log or not needs:
        error.add_note(f"It printed last:\n{log}" if log else "It printed nothing.")
    return error


def read(scratch: Path, how: str) -> NDArray[np.float64]:
    """Read a command's output file, whatever suffix it added to the name.

    `how`: the name of the array, if there are several.
    """
    names = [OUT, *(f"{OUT}.{ending}" for ending in (*ROWS, "npy"))]
    files = [file for name in names if (file := scratch / name).is_file()]
    if len(files) != 1:
        several = ", ".join(file.name for file in files)
        what = f"several files ({several})" if files else "nothing to {out}"
        raise _with_log(f"the command wrote {what}", _log(scratch))
    try:
        return calling.array(_content(files[0], how), "the command")
    except (ImportError, MemoryError):
        raise
    except OwnError as error:
        raise _with_log(str(error), _log(scratch)) from None
    except Exception as error:
        reason = f"the command's output cannot be read: {type(error).__name__}: {error}"
        raise _with_log(reason, _log(scratch)) from None


def _content(file: Path, how: str) -> Any:
    with file.open("rb") as opened:
        start = opened.read(6)
    if start.startswith((b"PK", b"\x93NUMPY")):
        loaded = np.load(file, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            return loaded
        with loaded:
            name = next((name for name in (how, "scores") if name in loaded), None)
            if name is None and len(loaded.files) != 1:
                raise ValueError(f"none of its arrays {', '.join(loaded.files)} is called {how}")
            return loaded[name or loaded.files[0]]
    if start.startswith(b"PAR1"):
        import polars as pl

        value = pl.read_parquet(file).to_numpy()
    else:
        with file.open() as text:
            first = text.readline()
        try:
            [float(cell.strip().strip('"')) for cell in first.split(",")]
            is_headed = False
        except ValueError:
            is_headed = True
        value = np.loadtxt(file, delimiter=",", skiprows=int(is_headed), ndmin=2, quotechar='"')
    return value[:, 0] if value.shape[1] == 1 else value
