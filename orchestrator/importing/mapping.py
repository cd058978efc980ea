"""What others' names mean: of paths, columns and entries; and maps, options in a file."""

from __future__ import annotations

import re
import shlex
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import polars as pl

from manyseed.analysis.counts import some
from manyseed.jobs.checks import parsed, quoted, similar
from manyseed.orchestrator.disk.placing import read_plain
from manyseed.orchestrator.errors import (
    DamagedFile,
    Unread,
    UserError,
    nearest,
    require_one_of,
)
from manyseed.orchestrator.importing.predictions import ATTRIBUTES

Columns = tuple[tuple[str, str], ...]
"""Pairs of a column's name here and in a file; further columns are then not read."""
Values = tuple[tuple[str, Any], ...]
"""Columns that a file lacks, and their one value: what its path says. Of `NAMES`, the rows' one."""

NAMES = ("dataset", "classifier")
_PARTS = (*NAMES, *ATTRIBUTES)
_FIELD = re.compile(r"\{(\w*)\}|(\*+)")
_NUMBER = r"(?<![0-9])[0-9]+(?![0-9])"
_VALUES: Mapping[str, tuple[str, str]] = {  # the shortest and the longest that are possible
    **dict.fromkeys(("repeat", "run"), (_NUMBER, _NUMBER)),
    **dict.fromkeys(("train_fraction", "fit_seconds"), ("[0-9.][^/]*?", "[0-9.][^/]*")),
}


class Pattern:
    """A pattern of paths such as ``{classifier}/seed-{run}/test.csv``; it matches their last parts.

    ``{NAME}`` stands for a value, and ``*`` for anything, within one part of the path. A path that
    can be read in two ways is refused.
    """

    def __init__(self, text: str) -> None:
        self._text, at, seen = text, 0, set[str]()
        taken = ["", ""]

        def add(short: str, long: str) -> None:
            taken[0] += short
            taken[1] += long

        for field in _FIELD.finditer(text):
            add(*[re.escape(text[at : field.start()])] * 2)
            at = field.end()
            if field[2]:
                add("[^/]*?", "[^/]*")
                continue
            name = field[1]
            require_one_of(name, _PARTS, "unknown part", key="--name")
            if name in seen:
                raise UserError(f"{{{name}}} stands in it twice", key="--name", value=text)
            seen.add(name)
            add(*(f"(?P<{name}>{kind})" for kind in _VALUES.get(name, ("[^/]+?", "[^/]+"))))
        if not seen:
            remedy = f"such as {{classifier}}/seed-{{run}}.csv; parts: {', '.join(_PARTS)}"
            raise UserError("names no part of paths", key="--name", value=text, remedy=remedy)
        self.parts = seen
        self._readings = [
            re.compile(f"(?:.*/)?{one}{re.escape(text[at:])}", re.DOTALL) for one in taken
        ]

    def read(self, file: Path) -> dict[str, Any] | None:
        """Return the values in a path, numbers as such; None if it does not match."""
        short, long = (one.fullmatch(file.absolute().as_posix()) for one in self._readings)
        if short is None or long is None:
            return None
        values: dict[str, Any] = short.groupdict()
        for name, value in values.items():
            if long[name] != value:
                reason = f"{name} may be {quoted(value)} or {quoted(long[name])}"
                remedy = "put it between parts of the path, or write a pattern for each classifier"
                raise UserError(
                    f"can be read in two ways by --name {self._text}: {reason}",
                    file=file,
                    remedy=remedy,
                )
        for name in values.keys() & {*ATTRIBUTES}:
            kind = ATTRIBUTES[name].kind
            try:
                values[name] = parsed(kind, values[name]) if kind in (int, float) else values[name]
            except ValueError:
                raise UserError("is no number", file=file, key=name, value=values[name]) from None
        return values

    def files(self, given: Sequence[Path], suffixes: Sequence[str]) -> Iterator[Path]:
        """Yield files that match: those given, which must, and those at any depth of folders.

        Those of a folder come in the order of its parts' numbers.
        """
        for place in given:
            if not place.is_dir():
                if self.read(place) is None:
                    raise UserError(f"does not match --name {self._text}", file=place)
                yield place
                continue
            every = [
                file
                for file in place.rglob("*")
                if file.suffix in suffixes and not _is_hidden(file, place)
            ]
            for file in every:
                if file.is_symlink() and not file.exists() and self.read(file) is not None:
                    raise UserError("is a link to a file that is not there", file=file)
            held = [file for file in every if file.is_file()]
            found = [file for file in held if self.read(file) is not None]
            if not found:
                example = f", such as {min(held)}" if held else ""
                remedy = f"it holds {len(held):,} files of predictions{example}"
                what = f"no file in it matches --name {self._text}"
                raise UserError(what, file=place, remedy=remedy)
            yield from sorted(found, key=_in_order)


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _in_order(file: Path) -> list[Any]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", str(file))]


def with_values(frame: pl.DataFrame, values: Values, file: Path) -> pl.DataFrame:
    """Return a table with what its file's path says, as columns."""
    for name, value in values:
        if name in NAMES:  # says which rows these are
            continue
        if name in frame.columns:
            raise UserError("is a column, and a part of the path", file=file, key=name)
        frame = frame.with_columns(pl.lit(value).alias(name))
    return frame


OPTIONS: Mapping[str, type] = {
    **dict.fromkeys(("name", "dataset", "classifier", "truth", "runs", "probability"), str),
    "probabilities": bool,
    **dict.fromkeys(("columns", "key"), dict),
}
"""Keys of a map, which are options of imports, with their types."""


def read_map(file: Path) -> dict[str, Any]:
    """Read a map; its files are relative to it."""
    try:
        table = tomllib.loads(read_plain(file).decode("utf-8-sig"))
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        raise UserError(reason, file=file, key="--map") from None
    except DamagedFile as error:
        raise UserError(error.reason, file=file, key="--map") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"is not a TOML file: {error}", file=file) from None
    for key, value in table.items():
        if key not in OPTIONS:
            raise UserError("unknown key", file=file, key=key, remedy=nearest(key, [*OPTIONS]))
        is_names = not isinstance(value, dict) or all(isinstance(v, str) for v in value.values())
        if type(value) is not OPTIONS[key] or value == "" or not is_names:
            kinds = {
                str: "text in quotes, and not empty",
                bool: "true or false",
                dict: "a table of texts",
            }
            raise UserError(f"must be {kinds[OPTIONS[key]]}", file=file, key=key, value=value)
        if key in ("truth", "runs"):
            table[key] = str(file.parent / str(value))
    return table


@contextmanager
def options_of(file: Path | None, options: Mapping[str, Any]) -> Iterator[None]:
    """Name a map and its key, where an option is refused or mentioned that stands in the map."""
    try:
        yield
    except UserError as error:
        if file is None or not options:
            raise
        option = re.compile(rf"--({'|'.join(options)})(?![\w-])")
        message, remedy = (
            option.sub(lambda found: f"{found[1]} of {file}", text or "")
            for text in (error.message, error.remedy)
        )
        place, key = error.file, error.key
        if found := option.fullmatch(key or ""):
            message += "" if place is None else f" ({place})"
            place, key = file, found[1]
        for own, value in options.items():
            if isinstance(value, dict) and key in value.values():
                message += f", as {own} of {file} says"
        raise UserError(
            message, file=place, key=key, value=error.value, remedy=remedy or None
        ) from None


CLASS = "{class}"
"""Stands for the class in the names of confidences that a user gives."""

CONFIDENCE = "confidence."

_MEANT = {
    "truth": r"true|gold|gt|actual|expected|y_?(true|test)?|(true_?)?(labels?|class|targets?)",
    "prediction": r"(y_?)?(pred|hat).*|output",
    "run": r"(random_?|model_?)?seeds?|runs?_?(id|idx|index|no|nr|number)?"
    r"|rep(lica(te)?)?s?|trials?",
    "row_id": r"ids?|idx|index|indices|rows?|samples?|points?|examples?|instances?|images?|files?"
    r"|paths?|file_?names?|name|keys?|u?uid"
    r"|(row|sample|point|example|instance|image|test|item|data)_?(id|idx|index|no|nr|number|name)",
    "classifier": r"(model|method|algorithm|algo|clf|classifier|learner|estimator|network|arch"
    r"(itecture)?)(_?name)?",
    "dataset": r"data_?set(_?name)?",
}
"""How others name columns."""


RIGHT = re.compile(
    r"(is_?|was_?)?(in)?correct|(is_?|was_?)?(right|wrong|hit|error|err|miss)", re.IGNORECASE
)
"""How others name columns that say whether a prediction is right."""

_FLAGS = {
    *("0", "1", "0.0", "1.0", "true", "false", "t", "f", "yes", "no", "y", "n"),
    *("right", "wrong", "correct", "incorrect", "hit", "miss"),
}


def is_flag(values: pl.Series) -> bool:
    """Return whether a column holds nothing but what says whether a prediction is right."""
    texts = {str(value).strip().casefold() for value in values.drop_nulls().unique()}
    return 0 < len(texts) <= 2 and texts <= _FLAGS


def require_no_flag(frame: pl.DataFrame, theirs: str, file: Path) -> None:
    """Refuse a column `correct` that may say whether predictions are right, not the true class.

    It is the true class in OpenML's own files, which number repeats and folds, if these share
    classes with it.
    """
    if not is_flag(frame["correct"]):
        return
    values = {str(value) for value in frame["correct"].unique()}
    classes = {name.removeprefix(CONFIDENCE) for name in frame.columns}
    if "prediction" in frame.columns:
        classes = {str(value) for value in frame["prediction"].unique()}
    shared = bool(classes & values)
    if shared and {"repeat", "fold", "row_id"} <= {*frame.columns}:
        return
    also = f"; if it is the true class: --columns truth={shlex.quote(theirs)}" if shared else ""
    raise UserError(
        f"{'may say' if shared else 'says'} whether each prediction is right, but the true class "
        "is needed",
        file=file,
        key=theirs,
        remedy=f"give a column truth, or name it: --columns truth=NAME{also}",
    )


def other_rows(frame: pl.DataFrame, first: pl.DataFrame, whose: str, other: str) -> str:
    """Return how a run's rows differ from those of the repeat's first run: columns row_id, truth.

    `whose` and `other`: the names of the two runs.
    """
    ids = [table["row_id"].cast(pl.String) for table in (frame, first)]
    for own, theirs, lacks in (
        (ids[1], ids[0], f"{whose} lacks the {{}} of {other}"),
        (ids[0], ids[1], f"{whose} has the {{}}, which {other} lacks"),
    ):
        missing = own.filter(~own.is_in(theirs.to_list())).to_list()
        if missing:
            rows = f"row {missing[0]}" if len(missing) == 1 else f"rows {some(missing, _SHOWN)}"
            return lacks.format(rows)
    row = next(
        number
        for number, (one, two) in enumerate(zip(frame["truth"], first["truth"], strict=True))
        if one != two
    )
    classes = quoted(str(frame["truth"][row])), quoted(str(first["truth"][row]))
    return f"{whose} has the true class {classes[0]} in row {ids[0][row]}, {other} {classes[1]}"


_SHOWN = 10  # rows in a message

_PREDICTED = re.compile(
    r"arr_0|outputs?|((y|test|val)_?)?(pred(ict(ed|ions?))?s?|hat|scores?|proba?s?|probabilit(y|ies)"
    r"|softmax|logits?)(_?(labels?|class(es)?|proba?s?|probabilities|scores?|test))?",
    re.IGNORECASE,
)
_ENTRIES_MEANT = {
    "y_true": r"arr_1|y|y_?(test|val|labels?|targets?)|((true|test|val)_?)?(labels?|targets?|truth)"
    r"|ground_?truth|true|gold|gt",
    "class_names": r"class(es)?|(class|label|target)_?(names?|labels?)|names|categories",
    "test_index": _MEANT["row_id"],
}
"""The same of entries of arrays."""


def meant_entries(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return the names in a file of arrays that seem to be meant, by ours.

    `kinds`: of its dtypes, by name. Predictions that are no floats are labels.
    """
    pairs: dict[str, str] = {}
    for own, words in _ENTRIES_MEANT.items():
        names = [name for name in kinds if re.fullmatch(words, name, re.IGNORECASE)]
        if own not in kinds and (names or own == "y_true"):
            pairs[own] = names[0] if names else "NAME"
    left = [name for name in kinds if name not in pairs.values()]
    if not {"scores", "logits", "labels"} & {*left}:
        named = [name for name in left if _PREDICTED.fullmatch(name)]
        named.sort(key=lambda name: kinds[name] != "f")
        is_label = bool(named) and kinds[named[0]] != "f"
        pairs = {"labels" if is_label else "scores": named[0] if named else "NAME"} | pairs
    return pairs


def _is_named(name: str, own: str) -> bool:
    return re.fullmatch(_MEANT[own], name, re.IGNORECASE) is not None


def entries_naming_rows(file: Path) -> list[str]:
    """Return the entries of a file that others call what tells points apart; none if not an NPZ."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
    except (OSError, zipfile.BadZipFile):
        return []
    return [name for name in names if _is_named(name, "row_id")]


def meant_columns(frame: pl.DataFrame) -> dict[str, str]:
    """Return the names in a table that seem to be meant, by ours."""
    is_label = "correct" in frame.columns and not is_flag(frame["correct"])
    given = {"truth": "correct" if is_label else "truth"}
    found: dict[str, str] = {}
    for own in ("truth", "prediction"):
        if given.get(own, own) not in frame.columns:
            names = [name for name in frame.columns if _is_named(name, own)]
            given[own] = found[own] = names[0] if names else "NAME"
    if given["truth"] in frame.columns:
        classes = [str(value) for value in frame[given["truth"]].drop_nulls().unique()]
        forms = dict.fromkeys(
            name.replace(one, CLASS) for name in frame.columns for one in classes if one in name
        )
        for form in forms:
            if all(form.replace(CLASS, one) in frame.columns for one in classes):
                found["confidence"] = form
                found = {own: name for own, name in found.items() if name != "NAME"}
                break
    others = [name for name in frame.columns if name not in given.values()]
    of_run: list[str] = [name for name in ("repeat", "run") if name in frame.columns]
    if "run" not in frame.columns:
        named = [name for name in others if _is_named(name, "run")]
        named = [name for name in named if _numbers_some(frame[name])][:1]
        of_run += named
        if named:
            found["run"] = named[0]
    for own in NAMES:
        named = [name for name in others if _is_named(name, own) and _names_some(frame[name])]
        if named:
            found[own] = named[0]
            of_run.append(named[0])
    if "row_id" not in frame.columns and (row_id := _row_id(frame, others, of_run)):
        found["row_id"] = row_id
    return found


def _is_id(values: pl.Series) -> bool:
    return values.dtype == pl.String or values.dtype.is_integer()


def _numbers_some(values: pl.Series) -> bool:
    """Return whether whole numbers are fewer than rows, and more than one."""
    return values.dtype.is_integer() and 1 < values.n_unique() < len(values)


def _names_some(values: pl.Series) -> bool:
    """Return whether words stand in several rows each."""
    return values.dtype == pl.String and 2 * values.n_unique() <= len(values)


def _row_id(frame: pl.DataFrame, names: Sequence[str], of_run: Sequence[str]) -> str | None:
    """Return the column that is named like ids of rows and has each once in a run, if any."""
    meant = [name for name in names if name not in of_run and _is_named(name, "row_id")]
    return next(
        (
            name
            for name in meant
            if _is_id(frame[name]) and not frame[[*of_run, name]].is_duplicated().any()
        ),
        None,
    )


def require_told_apart(
    frame: pl.DataFrame, used: Mapping[str, str], option: Mapping[str, str], file: Path
) -> None:
    """Refuse a table whose unread columns tell runs or rows apart, which would count as others.

    `used`: our names of the columns that are read; `option`: as the user gave them.
    """
    of = {own: theirs for theirs, own in used.items()}
    truth = of.get("truth", of.get("correct"))
    if truth is None:  # a form of its own, refused elsewhere
        return
    of_run = [of[own] for own in ("repeat", "run") if own in of]
    first = [frame[name] == frame[name][0] for name in of_run]
    one = frame.filter(*first) if first else frame
    unread = [name for name in frame.columns if name not in used]

    def refuse(name: str, why: str, added: Mapping[str, str]) -> NoReturn:
        raise _unread(name, why, file, {**option, **added})

    for name in unread:
        if _tells_runs(one, name, truth):
            n = one[name].n_unique()
            why = f"its {n:,} values tell runs apart, and all their rows would count as one run's"
            added = {}
            if "run" not in of and one[name].dtype.is_integer():
                added = {"run": name}
                if "row_id" not in of and (row_id := _row_id(frame, unread, [*of_run, name])):
                    added |= {"row_id": row_id}
            if not added and "classifier" not in option:
                added = {"classifier": name}
            refuse(name, why, added)
    if "row_id" in of:
        return
    for name in unread:
        if (n := _tells_rows(one, name, truth)) > 1:
            why = f"each of its values stands in {n:,} rows, as ids of test points do in {n:,} runs"
            refuse(name, why, {"run": of.get("run", "NAME"), "row_id": name})
        runs = [frame[each] for each in of_run]
        if runs and "fold" not in of and _are_shuffled(frame[name], runs):
            refuse(name, _SHUFFLED, {"row_id": name})


_SHUFFLED = "its values have another order in each run, and rows are numbered in their order"


def _unread(name: str, why: str, file: Path, option: Mapping[str, str]) -> UserError:
    out = "or take the column out of the file if it says nothing of this kind"
    if name not in option.values():
        remedy = f"import a file for each of its values; {out}"
        return UserError(f"is not read, but {why}", file=file, key=name, remedy=remedy)
    is_model = option.get("classifier") == name
    more = "if it names classifiers, else import a file for each of its values; " * is_model
    return Unread(
        f"is not read, but {why}",
        file=file,
        key=name,
        options={"columns": option},
        before="read it: ",
        after=f"\n  {more}{out}",
    )


def require_same_order(
    frame: pl.DataFrame, other: pl.DataFrame, unread: Sequence[str], option: Columns, file: Path
) -> None:
    """Refuse a file whose rows are those of another's run in another order, by an unread column."""
    for name in unread:
        if name not in other.columns or frame[name].dtype != other[name].dtype:
            continue
        numbers = np.repeat([0, 1], [len(frame), len(other)])
        if _are_shuffled(pl.concat([frame[name], other[name]]), [pl.Series(numbers)]):
            raise _unread(name, _SHUFFLED, file, {**dict(option), "row_id": name})


def _tells_runs(one: pl.DataFrame, name: str, truth: str) -> bool:
    """Return whether the rows with each value have the same true classes, or its name says so."""
    values = one[name].alias("value")  # polars may take a name such as * for a pattern
    if values.dtype.is_nested() or not 1 < values.n_unique() < len(values):
        return False
    if _is_named(name, "run") and values.dtype.is_integer():
        return True
    if values.unique_counts().n_unique() > 1 or one[truth].n_unique() == 1:
        return False
    each = pl.DataFrame([values, one[truth].alias("truth")]).group_by("value")
    return each.agg(pl.col("truth").sort())["truth"].n_unique() == 1


def _tells_rows(one: pl.DataFrame, name: str, truth: str) -> int:
    """Return in how many rows each value stands if these look like one test point; 0 otherwise."""
    values = one[name].alias("value")
    if not _is_id(values) or not one[truth].n_unique() < (n := values.n_unique()) < len(values):
        return 0
    each = pl.DataFrame([values, one[truth].alias("truth")]).group_by("value")
    counts = each.agg(pl.len(), pl.col("truth").n_unique())
    if counts["len"].n_unique() > 1 or counts["truth"].max() != 1:
        return 0
    times = int(counts["len"][0])
    is_in_blocks = values.rle().struct["len"].eq(times).all() or values[n:].equals(
        values[:-n], check_names=False
    )
    return times if is_in_blocks or _is_named(name, "row_id") else 0


def _are_shuffled(values: pl.Series, of_run: Sequence[pl.Series]) -> bool:
    """Return whether each run has the same values once, in an order of its own."""
    if not _is_id(values):
        return False
    names = [f"run {number}" for number in range(len(of_run))]
    table = pl.DataFrame([values.alias("value"), *map(pl.Series.alias, of_run, names)])
    runs = table.group_by(names).agg("value", ids=pl.col("value").sort())
    sets = runs["ids"].list.n_unique() == runs["ids"].list.len()
    return bool(sets.all() and runs["ids"].n_unique() == 1 and runs["value"].n_unique() > 1)


def require_columns(frame: pl.DataFrame, class_names: Sequence[str], form: str, path: Path) -> None:
    """Refuse true classes without a column of confidences, naming one that is nearly so called."""
    seen = {*frame["truth"].unique().to_list()}
    for name in sorted(seen - {*class_names}):
        unseen = [of for of in class_names if of not in seen]
        column, remedy = form.replace(CLASS, name), nearest(name, class_names)
        what = f"the true class {quoted(name)} has no column {column}"
        if near := similar(name, unseen):
            what = f"no true class is called so, and {quoted(name)} has no column"
            column, remedy = form.replace(CLASS, near[0]), f"rename it {column}"
        raise UserError(what, file=path, key=column, remedy=remedy)


def most_probable(frame: pl.DataFrame) -> pl.DataFrame:
    """Add the predictions that confidences imply, if there are any."""
    classes = [name for name in frame.columns if name.startswith(CONFIDENCE)]
    if not classes or not all(frame[name].dtype.is_numeric() for name in classes):
        return frame
    p = frame.select(pl.col(classes).cast(pl.Float64)).to_numpy()
    order = np.array([name.removeprefix(CONFIDENCE) for name in classes])
    return frame.with_columns(prediction=pl.Series(order[p.argmax(axis=1)]))
