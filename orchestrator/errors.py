"""All errors that end a command, with their exit codes.

::

    ManyseedError
    ├── UserError         2  the user's mistake: file, key, value, remedy
    ├── UnavailableError  4  the cluster, the environment or the disk cannot be used now
    │   ├── DamagedFile      a file of the sweep is not as it was written: file, reason, remedy
    │   └── StoreError       all errors of the store; 2 if its layout is newer
    ├── StillRunning      3  the request must wait for something that still runs
    └── RunsError         1  runs failed or are wrong

Further exit codes: 0 success, 3 not finished yet, 130 interrupted.
"""

from __future__ import annotations

import errno
import json
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from manyseed.jobs.checks import Option, Refused, quoted, shown, similar, spelling
from manyseed.jobs.whole import named_finally
from manyseed.orchestrator.spoken import in_python, key_in_python

NOT_FINISHED = 3
INTERRUPTED = 130
_UNSET: Any = object()
_LONGEST = 1000  # characters of a value shown in a message
MOST_TOLD = 10  # mistakes at once


class ManyseedError(Exception):
    """An error that is printed as one message, without a traceback.

    `from_python`: whether a call from Python raised it: then it names arguments, not the command's
    options.
    """

    exit_code: ClassVar[int] = 1
    from_python = False

    def __str__(self) -> str:
        return self._worded(super().__str__()) or ""

    def _worded(self, text: str | None) -> str | None:
        return in_python(text) if text and self.from_python else text

    @property
    def facts(self) -> dict[str, object]:
        """The parts of the message, for programs."""
        return {}


class UserError(ManyseedError):
    """The user's mistake.

    `message`: what is wrong. `file`, `key` and `value`: where the mistake is; each is left out of
    the text if not given. `remedy`: what to do about it.
    """

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        file: str | Path | None = None,
        key: str | None = None,
        value: Any = _UNSET,
        remedy: str | None = None,
    ) -> None:
        self.message, self.file, self.key, self.value = message, file, key, value
        self.remedy = remedy
        super().__init__(str(self))

    def __str__(self) -> str:
        text = self.what if self.file is None else f"{self.file}: {self.what}"
        return text if self.remedy is None else f"{text}\n  {self._worded(self.remedy)}"

    def in_file(self, name: str | None) -> UserError:
        """Return the same error with another name for its file, or none."""
        return UserError(
            self.message, file=name, key=self.key, value=self.value, remedy=self.remedy
        )

    @property
    def facts(self) -> dict[str, object]:
        """File, key, value, problem and remedy, as far as known."""
        return {
            "file": None if self.file is None else str(self.file),
            "key": self._key,
            "value": None if self.value is _UNSET else self.value,
            "problem": self._worded(self.message),
            "remedy": self._worded(self.remedy),
        }

    @property
    def what(self) -> str:
        """Key, value and what is wrong."""
        message = self._worded(self.message) or ""
        if self._key is None:
            return message
        shown = "" if self.value is _UNSET else f" = {_short(toml_value(self.value))}"
        return f"{self._key}{shown}: {message}"

    @property
    def _key(self) -> str | None:
        return key_in_python(self.key) if self.key and self.from_python else self.key


def _as_words(options: Mapping[str, Any]) -> str:
    words = []
    for name, value in options.items():
        words.append(f"--{name}")
        if isinstance(value, Mapping):
            words.append(",".join(f"{k}={shell_word(v)}" for k, v in value.items()))
        elif isinstance(value, str):
            words.append(shell_word(value))
    return " ".join(words)


class Spoilt(UserError):
    """A fault of one file of an import alone: the others could be imported without it.

    `files`: all such files, if several are told at once.
    """

    def __init__(self, message: str, *, files: Sequence[Path] = (), **where: Any) -> None:
        super().__init__(message, **where)
        self.files = [*files]


class Lacking(UserError):
    """Values that are missing in some runs of a table, of which there may be several classifiers.

    `n`, `of`: how many of how many values. `where`: the runs in words. `excluded`: what leaves
    these out, as ``--exclude`` takes it.
    """

    def __init__(
        self, n: int, of: int, *, where: str, excluded: Sequence[str], rows: str = "", **place: Any
    ) -> None:
        self.n, self.of, self.where, self.excluded = n, of, where, [*excluded]
        are = "the run" if len(excluded) == 1 else "the runs"
        super().__init__(
            f"has missing values: {n:,} of {of:,}, in {rows}{where}",
            remedy=f"fill them in, or leave {are} out: --exclude {shell_word(','.join(excluded))}",
            **place,
        )

    @classmethod
    def together(cls, errors: Sequence[Lacking]) -> Lacking:
        """Return one error for those of a file's classifiers."""
        first = errors[0]
        if len(errors) == 1:
            return first
        return cls(
            sum(one.n for one in errors),
            sum(one.of for one in errors),
            where="; ".join(one.where for one in errors),
            excluded=[run for one in errors for run in one.excluded],
            file=first.file,
            key=first.key,
        )


class SeveralModels(UserError):
    """An array of several models in a file. `saving`: how to save a file of each, `files` by name.

    `dataset`: what to call their data set.
    """

    def __init__(
        self, message: str, *, saving: str, files: Mapping[str, list[str]], dataset: str, **at: Any
    ) -> None:
        self.saving, self.files, self.dataset = saving, files, dataset
        super().__init__(message, remedy=self.then("name each: --classifier NAME=FILE"), **at)

    def then(self, step: str) -> str:
        """Return the remedy, with what to do once the files are saved."""
        return f"{self.saving}\n  then {step}"


class OtherTests(UserError):
    """Files of an import whose test sets differ; no further option of it reads them together."""


class Unread(UserError):
    """Files that are read with further options of an import, which seem to be meant.

    `options`: some of ``columns``, ``key``, ``probabilities`` and ``dataset``, as
    `import_predictions` takes them.
    `before` and `after`: what the remedy says around them. `instead`: what it says before another
    command, and columns that differ in this one, where only the user knows which is meant.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | Path | None,
        key: str | None,
        options: Mapping[str, Any],
        before: str = "",
        after: str = "",
        command: str = "",
        instead: tuple[str, Mapping[str, str]] = ("", {}),
    ) -> None:
        self.options, self.before, self.after, self.instead = options, before, after, instead
        remedy = f"{before}{command}{self.given}{after}"
        if instead[1]:
            columns = {**options.get("columns", {}), **instead[1]}
            remedy += f"{instead[0]}{command}{_as_words({**options, 'columns': columns})}"
        super().__init__(message, file=file, key=key, remedy=remedy)

    @property
    def given(self) -> str:
        """The options as a shell takes them."""
        return _as_words(self.options)

    def _worded(self, text: str | None) -> str | None:
        if text and self.from_python:
            arguments = (f"{name}={value!r}" for name, value in self.options.items())
            text = text.replace(self.given, ", ".join(arguments))
        return super()._worded(text)

    def told(self, options: Mapping[str, Any], command: str = "") -> Unread:
        """Return the same error with other options, maybe within a command."""
        again = Unread(
            self.message,
            file=self.file,
            key=self.key,
            options=options,
            before=self.before,
            after=self.after,
            command=command,
            instead=self.instead,
        )
        again.from_python = self.from_python
        return again


class SeveralErrors(UserError):
    """Two or more mistakes of the user; each is told as it would be alone.

    `are_all`: whether the file is right without them.
    """

    def __init__(self, errors: Sequence[UserError], *, are_all: bool = True) -> None:
        self.errors, self.are_all = errors, are_all
        first = errors[0]
        super().__init__(
            first.message, file=first.file, key=first.key, value=first.value, remedy=first.remedy
        )

    def __str__(self) -> str:
        for each in self.errors:
            each.from_python = self.from_python
        n = len(self.errors)
        last = f"{n} mistakes" if n <= MOST_TOLD else f"{n} mistakes, of which these are the first"
        last += "" if self.are_all else "; there may be more"
        return "\n".join([*map(str, self.errors[:MOST_TOLD]), last])

    def in_file(self, name: str | None) -> UserError:
        """Return the same errors with another name for their file, or none."""
        return SeveralErrors([each.in_file(name) for each in self.errors], are_all=self.are_all)

    @property
    def facts(self) -> dict[str, object]:
        """The facts of the first, and those of all as ``errors``."""
        return {**super().facts, "errors": [each.facts for each in self.errors]}


def together(errors: Sequence[UserError], *, are_all: bool = True) -> UserError:
    """Return one error for all of these, of which there is at least one."""
    return errors[0] if len(errors) == 1 else SeveralErrors(errors, are_all=are_all)


def each_of(error: UserError) -> Sequence[UserError]:
    """Return the errors that `together` made one."""
    return error.errors if isinstance(error, SeveralErrors) else [error]


class Facts(Protocol):
    """The facts of a refusal by `jobs`, `slurm` or `analysis`, such as `jobs.checks.Refused`."""

    option: str
    value: object
    reason: str
    allowed: tuple[object, ...] | str


def refused(
    facts: Facts,
    *,
    file: str | Path | None = None,
    key: str | None = None,
    value: Any = _UNSET,
    remedy: str | None = None,
) -> UserError:
    """Return a library's refusal as a UserError.

    The value was given in `file` at `key`, by default the option; `value` is what the user wrote
    there, if more than the refused value; `remedy` is a further one.
    """
    value = facts.value if value is _UNSET else value
    part = "" if value is facts.value or value == facts.value else _short(toml_value(facts.value))
    message, near = facts.reason or "not a valid value", None
    if isinstance(facts.allowed, str):
        message = f"must be {facts.allowed}" + (f", not {part}" if part else "")
    elif facts.allowed:
        message += f" {part}" if part else ""
        near = nearest(str(facts.value), map(_plain, facts.allowed))
    elif part:
        message = f"{part} {message}"
    return UserError(
        message,
        file=file,
        key=(facts.option or None) if key is None else key,
        value=_UNSET if value is None else value,
        remedy="\n  ".join(filter(None, (near, remedy))) or None,
    )


def given(key: str, value: Any, option: Option, *, file: Path | None = None) -> Any:
    """Return a value of the command's or of a file, if an option's record allows it."""
    try:
        return option.check(key, value)
    except Refused as error:
        raise refused(error, file=file) from None


def require_one_of(
    name: str,
    known: Collection[str],
    message: str,
    *,
    file: Path | None = None,
    key: str | None = None,
    more: str = "",
) -> None:
    """Refuse a name that is not among those known: a value of `key`, or else a key itself."""
    if name not in known:
        value = _UNSET if key is None else name
        remedy = f"{nearest(name, known)}{more}"
        raise UserError(message, file=file, key=key or name, value=value, remedy=remedy)


def command(*words: object) -> str:
    """Return a command of ``manyseed`` for a shell, quoted where it must be (`shell_word`).

    A path that begins like an option is written from the current folder.
    """
    typed = (
        f"./{one}" if isinstance(one, Path) and str(one).startswith("-") else str(one)
        for one in words
    )
    return f"manyseed {' '.join(map(shell_word, typed))}"


def shell_word(word: str) -> str:
    """Quote a word for a shell as one would type it: 'a b', and "a = 'b'"."""
    plain = "'" in word and not set(word) & set('"$`\\!')
    return f'"{word}"' if plain else shlex.quote(word)


def unknown_key(
    facts: Facts, *, file: str | Path | None, key: str | None = None, remedy: str | None = None
) -> UserError:
    """Return the UserError for an unknown option, with the nearest valid one; see `refused`."""
    near = nearest(facts.option.rpartition(".")[2], map(str, facts.allowed))
    return UserError(
        "unknown key",
        file=file,
        key=facts.option if key is None else key,
        value=facts.value,
        remedy="\n  ".join(filter(None, (near, remedy))),
    )


def _plain(value: object) -> str:
    return value if isinstance(value, str) else toml_value(value)


class UnavailableError(ManyseedError):
    """The cluster, the environment or the disk cannot be used now.

    A message of a disk or a library may name a temporary file; it then names the final one.
    """

    exit_code = 4

    def __init__(self, *words: object) -> None:
        super().__init__(*(named_finally(one) if isinstance(one, str) else one for one in words))


class DamagedFile(UnavailableError):
    """A file of a sweep directory is not as it was written.

    `reason`: what is wrong with it. `remedy`: what to do about it; by default, restore it from a
    copy, or rebuild what the sweep's file tells.
    """

    def __init__(
        self,
        file: str | Path,
        reason: str,
        remedy: str | None = None,
    ) -> None:
        self.file, self.reason = file, reason
        self.remedy = remedy or _restoring(Path(file))
        super().__init__(f"{file}: {reason}\n  {self.remedy}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.file, self.reason, self.remedy)

    @property
    def facts(self) -> dict[str, object]:
        """File, what is wrong with it, and what to do."""
        return {"file": str(self.file), "problem": self.reason, "remedy": self.remedy}


RESTORE = "restore it from a copy of the sweep"
_OF_PLAN = re.compile(r"cells\.parquet|groups\.json|[0-9]{4}\.parquet")


def _restoring(file: Path) -> str:
    """Return what to do about a damaged file."""
    if file.parent.name == "plan" and _OF_PLAN.fullmatch(file.name):
        rebuild = command("verify", file.parent.parent, "--repair")
        return f"rebuild it from sweep.toml: {rebuild}; or {RESTORE}"
    return RESTORE


class StoreError(UnavailableError):
    """Base of all errors of the store."""


class StoreUnavailable(StoreError):
    """The file system refused: disk full, no permission, input/output error. Nothing is lost."""


class LayoutTooNew(StoreError):
    """The store was written by a newer manyseed: retrying cannot help, another version can."""

    exit_code = UserError.exit_code


class DamagedGroup(StoreError, DamagedFile):
    """The description of a group or of one of its arrays is not as it was written."""


class GroupMismatch(StoreError):
    """A group, or requested rows, do not match the store."""


class SplitMismatch(StoreError):
    """A worker's test set differs from the stored one."""


class DamagedShard(StoreError):
    """A published file is missing, cannot be decoded, or holds data never published there."""

    path: Path | None = None
    problem: str = ""

    @classmethod
    def of(cls, path: Path, problem: str) -> DamagedShard:
        """Return the error for a file or folder of a store, with a remedy."""
        store = next((up for up in path.parents if up.suffix == ".zarr"), None)
        sweep = [] if store is None else [store.parent]
        repair = command("verify", "--repair", *sweep)
        error = cls(f"{path} {problem}: run {repair}, which says what is left to do")
        error.path, error.problem = path, problem
        return error


class LeaseHeld(StoreError):
    """Another live process holds the lease."""


class LeaseLost(StoreError):
    """The lease was taken over, or its heartbeat is too old to act on."""


class StillRunning(ManyseedError):
    """The request must wait for something that still runs."""

    exit_code = NOT_FINISHED


class RunsError(ManyseedError):
    """Runs failed or are wrong."""

    exit_code = 1


_PERMIT = "give permission"
_WAYS_OUT = {
    "make room, then try again": (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    f"{_PERMIT}, then try again": (errno.EACCES, errno.EPERM, errno.EROFS),
    "allow more open files, ulimit -n, then try again": (errno.EMFILE, errno.ENFILE),
    "check what is there, then try again": (
        *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG),
        *(errno.EEXIST, errno.ENOTEMPTY, errno.EINVAL),
    ),
}


def way_out(error: OSError, path: Path | None = None) -> str:
    """Return what to do about an error of the file system: only a full disk needs room.

    `path`: where it happened, unless the error tells it. A sweep that may only be read is copied.
    """
    for way, numbers in _WAYS_OUT.items():
        if error.errno in numbers:
            sweep = way.startswith(_PERMIT) and _sweep_around(path or error.filename)
            copy = f"cp -r {shlex.quote(str(sweep))} COPY, then the same command with COPY"
            return f"work on a copy: {copy}; or {way}" if sweep else way
    return "try again; if it recurs, the disk or its connection fails"


def _sweep_around(path: object) -> Path | None:
    """Return the sweep directory that a path is in, if it is in one."""
    if not isinstance(path, str | Path):
        return None
    place = Path(path)
    return next((up for up in (place, *place.parents) if (up / "sweep.toml").is_file()), None)


def first_line(error: BaseException) -> str:
    """Return the first line of another library's message; advice on calling it may follow."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


_OF_POINTS = ("file", "row_id", "row", "index")
_CALLED = re.compile(r"(file|image|img|row|point|sample)?_?-?(names?|paths?|files?|ids?|no|number)")


MOST_NAMED = 20  # of what is valid instead


def nearest(value: str, options: Iterable[str]) -> str:
    """Return a remedy: the names that are most like a wrong one, if any is, and all of them.

    For a quantity, such as accuracy, the column of its means is the nearest; for what points are
    called elsewhere, the column that names them.
    """
    options = list(dict.fromkeys(options))
    if not options:
        return "there are none"
    mean = f"{value}_mean"
    found = [mean] if mean in options else similar(value, options)
    if "index" in options and _CALLED.fullmatch(value.lower()):
        found = [one for one in _OF_POINTS if one in options][:1]
    close = meant(found)
    if twin := next(
        (each for each in options if each != value and spelling(each) == spelling(value)), None
    ):
        close = f"{quoted(value)} only looks like {quoted(twin)}."
    listed = ", ".join(map(shown, options[:MOST_NAMED]))
    listed += ", …" * (len(options) > MOST_NAMED)
    return f"{close} Valid: {listed}" if close else f"valid: {listed}"


def meant(names: Sequence[str]) -> str:
    """Return the question whether one of these names was meant; empty without names."""
    *others, last = [quoted(name) for name in names] or [""]
    listed = f"{', '.join(others)} or {last}" if others else last
    return f"did you mean {listed}?" if listed else ""


def flag(option: str) -> str:
    """Return the command's flag for an attribute of `analysis.options.Options`."""
    return f"--{option.replace('_', '-')}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def toml_key(name: str) -> str:
    """Return a name as a TOML key."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_value(name)


def toml_value(value: Any) -> str:
    """Return a value as it would be written in the sweep file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    if isinstance(value, dict) and value:
        return "{ " + ", ".join(f"{toml_key(k)} = {toml_value(v)}" for k, v in value.items()) + " }"
    return str(value)
