"""Read and check sweep files, and tell their mistakes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from manyseed import analysis
from manyseed.jobs import checks
from manyseed.jobs.checks import NOTHING, paths_near, quoted, same_spelling, similar
from manyseed.orchestrator.errors import (
    MOST_TOLD,
    UserError,
    command,
    each_of,
    meant,
    nearest,
    refused,
    together,
    toml_value,
)
from manyseed.orchestrator.grids.settings import location as location_of
from manyseed.orchestrator.grids.settings import with_settings
from manyseed.orchestrator.grids.sweepfile import LARGEST, NAME, SweepFile

if TYPE_CHECKING:
    from manyseed.jobs.classifiers import Classifier

Made = TypeVar("Made")

_LOOKED_AT = 1000  # files of a folder
_GRID = re.compile(r"^grid\[(\d+)\]")


_TABLES_OF_USERS = ("dataset", "classifier", "ensembling")
"""Tables whose keys are names chosen by the user."""

_WORDS = {
    "dict_type": "must be a table",
    "list_type": "must be a list",
    "model_type": "must be a table",
}
"""Messages for some types of pydantic's errors; other types keep pydantic's own."""


def user_error(details: Sequence[ErrorDetails], model: type[BaseModel], path: Path) -> UserError:
    """Return the user error for those that pydantic found: one for a key that is misspelt."""
    unknown = [detail["loc"] for detail in details if detail["type"] == "extra_forbidden"]
    found: dict[str, UserError] = {}
    for detail in details:
        *table, missing = detail["loc"]
        if detail["type"] == "missing":
            options = _model_at(model, table).model_fields
            others = [str(key) for *of, key in unknown if of == table]
            others = [key for key in others if key not in _COUNTED]  # which mean another key
            if any(missing in similar(other, options) for other in others):
                continue
        error = _error(detail, model, path)
        found.setdefault(str(error.key), error)
    return together([*found.values()])


def _error(detail: ErrorDetails, model: type[BaseModel], path: Path) -> UserError:
    location = tuple(part for part in detail["loc"] if part != "[key]")
    key = key_text(location)
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        options = _model_at(model, location[:-1]).model_fields
        meant = _meant(str(location[-1]), value, options)
        if (topic := _TOPICS.get(re.sub("[_-]", "", str(location[-1]).lower()))) is not None:
            meant = f"{meant}; see: manyseed docs {topic}"
        return UserError("unknown key", file=path, key=key, remedy=meant)
    if kind == "missing":
        return UserError("this key is missing", file=path, key=key, remedy=_example(str(key)))
    if isinstance(fact := context.get("error"), checks.Refused | analysis.Refused):
        return refused(fact, file=path, key=key, value=value)
    remedy = _as_list(key, value) if kind == "list_type" else None
    message = _WORDS.get(kind, detail["msg"])
    return UserError(message, file=path, key=key, value=value, remedy=remedy)


_ELSEWHERE = {
    "runs": ("seeds", "n_seeds", "num_seeds", "n_runs", "replicates"),
    "repeats": ("test sets", "test_sets", "n_test_sets", "splits", "n_splits", "folds"),
}
"""What some keys of the file and of grids count, and are called elsewhere."""
_TOPICS = {
    "earlystopping": "early stopping",
    "patience": "early stopping",
    "classweight": "class weight",
    "classweights": "class weight",
    "batchsize": "batch size",
    "optimizer": "optimizers",
    "optimiser": "optimizers",
    "weightdecay": "weight decay",
    "learningrate": "learning rate",
}
"""What the manual says of some keys that files of other tools have, in any spelling."""
_COUNTED = {name for names in _ELSEWHERE.values() for name in names}


def _meant(name: str, value: Any, options: Mapping[str, Any]) -> str:
    """Return the remedy for a key that is unknown in a table with these options."""
    if "runs" not in options:  # neither the file nor a grid
        return nearest(name, options)
    for key, others in _ELSEWHERE.items():
        if name in others:
            number = len(value) if isinstance(value, list) else value
            return f"the number of {others[0]} is {key} = {toml_value(number)}"
    from manyseed.jobs.classifiers import CLASSIFIERS  # not needed to read a good file

    for record in CLASSIFIERS.values():
        if written := of_classifier(record, name, value):
            return f"it belongs to a classifier: add to [classifier.{record.name}]: {written}"
    return nearest(name, options)


def of_classifier(
    record: Classifier, name: str, value: Any, given: Mapping[str, Any] = NOTHING
) -> str | None:
    """Return how a classifier's table gives an option or hparam a value; None if it has none.

    `given` are the hparams that the table gives already.
    """
    if name in record.options or (name in ("epochs", "snapshots") and name in record.table):
        return f"{name} = {toml_value(value)}"
    if any(name == hparam.name for hparam in record.space):
        return f"hparams = {toml_value({**given, name: value})}"
    return None


def key_text(location: Sequence[int | str]) -> str:
    """Return a location as messages show it: ``grid[0].dataset``."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"[A-Za-z0-9_-]+", part):
            text += f".{part}"
        else:
            text += f".{toml_value(part)}"
    return text.removeprefix(".")


def _example(key: str) -> str:
    if key == "grid":
        return "add a table [[grid]] with the lists dataset and classifier"
    return f"add {key.rpartition('.')[2]} = …"


def _as_list(key: str, value: Any) -> str:
    if isinstance(value, dict):
        return f"write [[{key}]], with two brackets" if key == "grid" else "write a list"
    if key.endswith("]") and ".zip[" in key:
        return f"zip is a list of lists: zip = [[{toml_value(value)}, …]]"
    return f"write a list: {toml_value([value])}"


def _model_at(model: type[BaseModel], location: Sequence[int | str]) -> type[BaseModel]:
    """Return the model of the table at a location of the file."""
    for number, part in enumerate(location):
        if isinstance(part, int) or (number == 1 and location[0] in _TABLES_OF_USERS):
            continue
        (model,) = _models(model.model_fields[part].annotation)
    return model


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return the model in ``list[M]``, ``dict[str, M]`` or ``M | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models(inner)]


_DEEPEST = 50


def _whole_numbers(
    value: Any, location: tuple[int | str, ...] = ()
) -> Iterator[tuple[tuple[int | str, ...], int]]:
    """Yield every integer of a file with its location."""
    if isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in entries:
            yield from _whole_numbers(inner, (*location, key))
    elif isinstance(value, int):
        yield location, value


def _is_deep(value: Any, most: int) -> bool:
    """Return whether tables and lists are nested more than `most` times."""
    inner = value.values() if isinstance(value, dict) else value
    return isinstance(value, dict | list) and (
        not most or any(_is_deep(v, most - 1) for v in inner)
    )


def _given_twice(text: str, message: str) -> str | None:
    """Return the line of a key or table that is given twice; None for other mistakes."""
    found = re.match(r"Cannot (?:overwrite|declare|mutate).*\(at line (\d+),", message)
    if found is None:
        return None
    number = int(found[1])
    line = text.split("\n")[number - 1].strip()
    return f"line {number} gives again what is given before it: {line}"


def read_sweep_file(path: Path, settings: Sequence[str] = ()) -> SweepFile:
    """Read and check a sweep file.

    `settings`: values that override its own (`with_settings`).
    """
    return load_sweep_file(path, settings)[0]


def load_sweep_file(path: Path, settings: Sequence[str] = ()) -> tuple[SweepFile, bytes]:
    """Return a checked sweep file, and its content on disk with settings applied."""
    text, content = _read(path, settings)
    return parse_sweep_file(text, path), content


def parse_sweep_file(text: str, path: Path) -> SweepFile:
    """Parse and check the text of a sweep file; `path` is only for messages."""
    return _checked(_parsed_table(text, path), path)


def name_of(path: Path, settings: Sequence[str] = ()) -> str:
    """Return the name that a sweep file gives; if it gives a wrong one, another."""
    name = _parsed_table(_read(path, settings)[0], path).get("name")
    is_good = isinstance(name, str) and re.fullmatch(NAME.pattern, name)
    return str(name) if is_good else path.stem


def load_and_use(
    path: Path, settings: Sequence[str], use: Callable[[SweepFile], Made]
) -> tuple[SweepFile, bytes, Made]:
    """Return what `load_sweep_file` does, and what `use` makes of the file.

    A file with mistakes is tried again without them, so that all are told at once: one as `use`
    tells it, or several.
    """
    text, content = _read(path, settings)
    rest, found, are_all = _Rest(_parsed_table(text, path)), list[UserError](), False
    for _ in range(_MOST_TRIES):
        try:
            sweep = _checked(rest.table, path)
            _require_apart(sweep, path)
            made = use(sweep)
            are_all = not rest.stand_in
            break
        except UserError as error:
            errors = [rest.numbered(each) for each in each_of(error)]
        except Exception:
            if not found:
                raise
            break  # the file without its mistakes fails in other ways: these are told
        told = {str(each) for each in found}
        known = [each for each in errors if not found or rest.holds(each)]
        found += [each for each in known if str(each) not in told]
        goes_on = bool(rest.stand_in) or len(told) < len(found)
        goes_on = goes_on and len(found) < MOST_TOLD and all(map(rest.leave_out, errors[::-1]))
        if not goes_on or not rest.table.get("grid"):
            break
    if found:
        raise together(found, are_all=are_all) from None
    return sweep, content, made


def _read(path: Path, settings: Sequence[str]) -> tuple[str, bytes]:
    """Return a sweep file's text and content, with settings applied."""
    _require_no_data(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        remedy = meant(paths_near(path)) or None
        if path.is_dir():
            inside = path / "sweep.toml"
            given = command("plan", inside, "--out", path, "--dry-run", "--cluster", "NAME")
            told = f"of a planned sweep, what is left costs on a cluster: {given}"
            told = told if inside.is_file() else "give the file"
            remedy = f"{told}\n  to continue it: {command('resume', path)}"
        raise UserError(
            f"cannot read the sweep file: {error.strerror}", file=path, remedy=remedy
        ) from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError("the sweep file is not UTF-8 text", file=path) from None
    if settings:
        text = with_settings(text, settings)
        content = text.encode()
    return text, content


def _require_no_data(path: Path) -> None:
    """Refuse data or a program in place of a sweep file, and say which command writes one."""
    if path.suffix == ".toml" or not path.exists():
        return
    from manyseed.jobs.datasets.imagefolder import ENDINGS  # not needed to read a good file
    from manyseed.jobs.datasets.tablefile import FORMATS
    from manyseed.orchestrator.grids.scriptfile import PROGRAMS

    images = () if path.is_file() or (path / "plan").exists() else path.glob("*/*")
    if path.suffix.lower() in FORMATS:
        what = "is a table" if path.suffix.lower() in checks.TABLES else "holds arrays"
    elif path.is_file() and path.suffix in PROGRAMS:
        what = "is a program"
    elif any(file.suffix.lower() in ENDINGS for file in islice(images, _LOOKED_AT)):
        what = "is a folder of images"
    else:
        return
    data: list[object] = ["DATA", path] if what == "is a program" else [path]
    out = Path(f"{path.absolute().stem}.toml")
    written = out.exists() and meant([str(out)])
    remedy = written or command("init", *data, "--out", out)
    raise UserError(f"{what}, not a sweep file", file=path, remedy=remedy)


def _parsed_table(text: str, path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also for integers with thousands of digits
        remedy = _given_twice(text, str(error))
        raise UserError(f"not valid TOML: {error}", file=path, remedy=remedy) from None
    if _is_deep(table, _DEEPEST):  # dotted keys can be, without brackets
        raise UserError("is nested too deeply", file=path)
    for location, number in _whole_numbers(table):
        if not -LARGEST <= number <= LARGEST:
            reason = "a whole number must lie between -2^63 and 2^63"
            raise UserError(reason, file=path, key=key_text(location), value=number)
    return table


def _checked(table: Mapping[str, Any], path: Path) -> SweepFile:
    try:
        return SweepFile.model_validate(table)
    except ValidationError as error:
        raise user_error(error.errors(), SweepFile, path) from None


def _require_apart(sweep: SweepFile, path: Path) -> None:
    """Refuse names of which two only look the same, when planning: a sweep that has them stays."""
    for kind in _TABLES_OF_USERS:
        listed = {name for grid in sweep.grid for name in getattr(grid, kind)}
        if same := same_spelling({*getattr(sweep, kind), *listed}):
            shown = " and ".join(map(quoted, same[0]))
            key, remedy = key_text((kind, same[0][-1])), "write one, or give one another name"
            raise UserError(f"{shown} only look the same", file=path, key=key, remedy=remedy)


_NEEDED = {
    *("source", "target", "data", "kind", "grid", "space", "params", "hparams"),
    *("estimator", "train", "module", "command"),
}
"""Keys of tables without which others would be wrong."""


_STAND_INS = {"dataset": "sklearn:iris", "classifier": "lr-sgd"}
"""What takes the place of a grid's only dataset or classifier, if that is wrong."""
_MOST_TRIES = 5 * MOST_TOLD


class _Rest:
    """A sweep file's table without what was found to be wrong in it.

    `stand_in`: numbers of the grids that have another dataset or classifier than in the file, so
    that only names that are unknown anywhere can be told of them.
    """

    def __init__(self, table: dict[str, Any]) -> None:
        self.table = table
        self.stand_in = set[int]()
        self._misspelt = set[tuple[str, ...]]()
        grids = table.get("grid")
        self._numbers = [*range(len(grids))] if isinstance(grids, list) else []

    def numbered(self, error: UserError) -> UserError:
        """Return an error with its grid's number in the whole file."""
        if error.key is not None:
            error.key = _GRID.sub(lambda found: f"grid[{self._numbers[int(found[1])]}]", error.key)
        return error

    def holds(self, error: UserError) -> bool:
        """Return whether an error is of one grid's list or of a table, not of what is left."""
        key = error.key or ""
        grid = _GRID.match(key)
        *table, name = map(str, location_of(key)) if key else ("",)
        if any(similar(left[-1], [name]) for left in self._misspelt if [*left[:-1]] == table):
            return False  # it is lacking, as what was meant by it is left out
        is_stand_in = int(grid[1]) in self.stand_in if grid else bool(self.stand_in)
        if is_stand_in and not key.startswith("dataset."):
            return error.message.startswith("unknown")
        return grid is not None or key.startswith(tuple(f"{kind}." for kind in _TABLES_OF_USERS))

    def leave_out(self, error: UserError) -> bool:
        """Remove what an error is about; return whether that is possible."""
        if error.key is None:
            return False
        key, *inner = location_of(error.key)
        first, number = str(key), inner[0] if inner else None
        if first == "grid" and isinstance(number, int) and number in self._numbers:
            place = self._numbers.index(number)
            is_one = error.message == _WORDS["list_type"] and isinstance(error.value, str)
            if is_one and len(inner) == 2:  # a list was meant
                self.table["grid"][place][inner[1]] = [error.value]
                return True
            return self._leave_out_of_grid(place, inner[1:], error.value)
        if first in _TABLES_OF_USERS and inner:
            is_unknown = error.message == "unknown key"
            if is_unknown:
                self._misspelt.add((first, *map(str, inner)))
            self._leave_out_of_table(first, [*map(str, inner)], is_unknown=is_unknown)
            return True
        if first in ("name", "seed"):
            self.table[first] = {"name": "sweep", "seed": 0}[first]
            return True
        return first != "grid" and _removed(self.table, [first, *inner])

    def _leave_out_of_grid(self, place: int, inner: Sequence[str | int], value: Any) -> bool:
        grids = self.table["grid"]
        grid = grids[place]
        if not isinstance(grid, dict):
            return False
        if not inner and self._numbers[place] in self.stand_in:  # they do not fit each other
            inner = ["classifier"]
        grid.pop("zip", None)  # what they name may be gone
        grid.pop("exclude", None)
        axis = str(inner[0]) if inner else "dataset"
        values, at = grid.pop(axis, None), inner[1] if len(inner) > 1 else None
        values = values if isinstance(values, list) else []
        wrong = [n for n, each in enumerate(values) if n == at or (at is None and each == value)]
        left = [each for n, each in enumerate(values) if wrong and n not in wrong]
        if left:
            grid[axis] = left
        lacking = [kind for kind in _STAND_INS if kind not in grid]
        if any(values == [_STAND_INS[kind]] for kind in lacking):  # it does not fit either
            del grids[place], self._numbers[place]
            return True
        for kind in lacking:
            grid[kind] = [_STAND_INS[kind]]
            self.stand_in.add(self._numbers[place])
        return True

    def _leave_out_of_table(self, kind: str, inner: Sequence[str], *, is_unknown: bool) -> None:
        tables = self.table.get(kind, {})
        is_optional = is_unknown or (len(inner) == 2 and inner[1] not in _NEEDED)
        if len(inner) > 1 and is_optional and _removed(tables, inner):
            left = tables[inner[0]]
            if not isinstance(left, dict) or left.get("grid") != {}:  # one without values is wrong
                return
        tables.pop(inner[0], None)
        for place in reversed(range(len(self._numbers))):
            grid = self.table["grid"][place]
            listed = grid.get(kind) if isinstance(grid, dict) else None
            if isinstance(listed, list) and inner[0] in listed:
                self._leave_out_of_grid(place, [kind], inner[0])


def _removed(table: Any, location: Sequence[str | int]) -> bool:
    """Remove an entry; return whether it was there."""
    *outer, last = location
    try:
        for part in outer:
            table = table[part]
        del table[last]
    except (LookupError, TypeError):
        return False
    return True
