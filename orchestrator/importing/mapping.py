"""What others' names mean: of paths, columns and entries; and maps, options in a file."""

from __future__ import annotations

import re
import shlex
import tomllib
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from manyseed.jobs.checks import quoted
from manyseed.orchestrator.disk.placing import read_plain
from manyseed.orchestrator.errors import (
    DamagedFile,
    Unread,
    UserError,
    nearest,
    toml_value,
)
from manyseed.orchestrator.importing.classes import CLASS, CONFIDENCE, RIGHT, in_order, is_flag
from manyseed.orchestrator.importing.filenames import (
    MODEL,
    RUNS,
    form_of_models,
    hidden,
    shown_again,
    word_ends,
)
from manyseed.orchestrator.importing.frames import read_by
from manyseed.orchestrator.importing.predictions import ATTRIBUTES, TRUTHS
from manyseed.orchestrator.importing.scored import (
    PREDICTED,
    by_place,
    kind_of_scores,
    labels_beside,
    of_predicted,
)

Columns = tuple[tuple[str, str], ...]
"""Pairs of a column's name here and in a file; further columns are then not read."""
Values = tuple[tuple[str, Any], ...]
"""Columns that a file lacks, and their one value: what its path says. Of `NAMES`, the rows' one."""

NAMES = ("dataset", "classifier")
OPTIONS: Mapping[str, type] = {
    **dict.fromkeys(("name", "dataset", "classifier", "truth", "classes"), str),
    **dict.fromkeys(("runs", "probability"), str),
    "probabilities": bool,
    **dict.fromkeys(("columns", "key"), dict),
    "exclude": list,
}
"""Keys of a map, which are options of imports, with their types."""

_OF_COLUMNS = ("prediction", "confidence", "logits", "run", "repeat", "row_id", *ATTRIBUTES)
"""Our names of columns that are no such keys."""


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
            remedy = nearest(key, [*OPTIONS])
            if key in _OF_COLUMNS and isinstance(value, str):
                example = toml_value({key: value})
                remedy = f"names of columns stand in one table: columns = {example}"
            raise UserError("unknown key", file=file, key=key, remedy=remedy)
        held = (
            value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        )
        is_names = all(isinstance(one, str) for one in held)
        if type(value) is not OPTIONS[key] or value == "" or not is_names:
            is_a = {
                str: "text in quotes, and not empty",
                bool: "true or false",
                dict: "a table of texts",
                list: "a list of texts",
            }
            must = f"must be {is_a[OPTIONS[key]]}"
            raise UserError(must, file=file, key=key, value=value)
        is_file = key == "classes" and (file.parent / str(value)).is_file()
        if key in ("truth", "runs") or is_file:
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


_MEANT = {
    "truth": r"true|gold|gt|actual|expected|ground_?truth"
    r"|y_?(true|test)?|(true_?)?(labels?|class|targets?)",
    "prediction": r"(y_?)?(pred|hat).*|output|cross_?val_?predict(ions?)?",
    "run": rf"{RUNS}_?(id|idx|index|no|nr|number)?",
    "row_id": r"ids?|idx|index|indices|rows?|samples?|points?|examples?|instances?|images?|files?"
    r"|paths?|file_?names?|name|keys?|u?uid"
    r"|(row|sample|point|example|instance|image|test|item|data)_?(id|idx|index|no|nr|number|name)",
    "classifier": r"(model|method|algorithm|algo|clf|classifier|learner|estimator|network|arch"
    r"(itecture)?)(_?name)?",
    "dataset": r"data_?set(_?name)?",
}
"""How others name columns."""


def require_no_flag(frame: pl.DataFrame, theirs: str, file: Path, meant: Mapping[str, str]) -> None:
    """Refuse a column `correct` that may say whether predictions are right, not the true class.

    `meant`: the columns that seem to be meant.

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
    says = "may say" if shared else "says"
    what = f"{says} whether each prediction is right, but the true class is needed"
    if meant.get("truth", "NAME") != "NAME":
        before = "another column seems to be that: "
        options, after = {"columns": meant}, also.replace("; if it", "\n  if this one")
        raise Unread(what, file=file, key=theirs, options=options, before=before, after=after)
    remedy = f"give a column truth, or say with --columns which one it is{also}"
    raise UserError(what, file=file, key=theirs, remedy=remedy)


_ENTRIES_MEANT = {
    "y_true": r"arr_1|label_ids|y"
    r"|y_?(test|val|labels?|targets?)|((true|test|val)_?)?(labels?|targets?|truth)"
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
        names.sort(key=lambda name: name == "labels")  # which is what predictions are called here
        if own not in kinds and (names or (own == "y_true" and len(kinds) > 1)):
            pairs[own] = names[0] if names else "NAME"
    own_names = {*_ENTRIES_MEANT, *ATTRIBUTES}
    left = [name for name in kinds if name not in {*pairs.values(), *own_names}]
    if not {"scores", "logits", "labels"} & {*left}:
        named = [name for name in left if PREDICTED.fullmatch(name)]
        of_numbers = [
            name for name in left if kinds[name] in [*"fiu"] and not RIGHT.fullmatch(name)
        ]
        named = named or [name for name in left if len(left) == 1 and kinds[name] in [*"fiuUS"]]
        named.sort(key=lambda name: kinds[name] != "f")
        form = "" if named else _form_of_runs(of_numbers) or form_of_models(of_numbers)
        if len(kinds_of := {kinds[name] for name in named or of_numbers}) == 1 and not form:
            form = form_of_models(named)
        elif MODEL in form and len(kinds_of) > 1:
            form = ""
        first = (named or of_numbers * bool(form) or [""])[0]
        are_labels = bool(of_numbers) and all(kinds[name] in [*"iu"] for name in of_numbers)
        own = "labels" if (kinds[first] != "f" if first else are_labels) else "scores"
        pairs = {own: form or first or "NAME"} | pairs
    return pairs


_CERTAIN = re.compile(r"true|truth|gold|gt|actual|expected", re.IGNORECASE)
"""In names of true classes; ``label`` may be that of a model."""


def is_named(name: str, own: str) -> bool:
    """Return whether others name a column `own` so."""
    return re.fullmatch(_MEANT[own], name, re.IGNORECASE) is not None


def truth_column(frame: pl.DataFrame, file: Path, given: str = "") -> str:
    """Return the name of the column of true classes in a table of them, maybe the one given."""
    names = [name for name in (given, *TRUTHS) if name in frame.columns][:1]
    names = names or [name for name in frame.columns if is_named(name, "truth")]
    names = names or [name for name in frame.columns if not is_named(name, "row_id")]
    remedy = "call the column of true classes y_true"
    if len(names) != 1:
        raise UserError("has several columns", file=file, remedy=remedy)
    if RIGHT.fullmatch(names[0]) and is_flag(frame[names[0]]):
        what = "may say whether predictions are right, but the true class is needed"
        raise UserError(what, file=file, key=names[0], remedy=remedy)
    return names[0]


def entries_naming_rows(file: Path) -> list[str]:
    """Return the entries of a file that others call what tells points apart; none if not an NPZ."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
    except (OSError, zipfile.BadZipFile):
        return []
    return [name for name in names if is_named(name, "row_id")]


def meant_columns(frame: pl.DataFrame, said: Collection[str] = ()) -> dict[str, str]:
    """Return the names in a table that seem to be meant, by ours; `said` are given otherwise."""
    is_label = "correct" in frame.columns and not is_flag(frame["correct"])
    given = {"truth": "correct" if is_label else "truth"}
    found: dict[str, str] = {}
    for own in ("truth", "prediction"):
        if given.get(own, own) not in frame.columns:
            names = [name for name in frame.columns if is_named(name, own)]
            form = "" if own == "truth" else _form_of_runs(names) or form_of_models(names)
            given[own] = found[own] = form or (names[0] if names else "NAME")
    if found.get("truth") == "NAME" and (of_one := _named_by_columns(frame)):
        given["truth"] = found["truth"] = of_one
    predicted = given.get("prediction", "prediction")
    if found.get("truth") == "NAME" and predicted in frame.columns:
        same = [name for name in _labels(frame) if name != predicted]
        same = [name for name in same if _share(frame, name, predicted)]
        if len(same) == 1:
            given["truth"] = found["truth"] = same[0]
    if given["truth"] in frame.columns:
        classes = [str(value) for value in frame[given["truth"]].drop_nulls().unique()]
        forms = dict.fromkeys(
            name.replace(one, CLASS) for name in frame.columns for one in classes if one in name
        )
        whole: dict[str, str] = {}
        for form in forms:
            of_classes = [form.replace(CLASS, one) for one in classes]
            if {*of_classes} <= {*frame.columns} and _are_scores(frame[of_classes], classes):
                whole[form] = kind_of_scores(frame[of_classes])
        if not whole:
            whole = by_place(frame, classes, given)
        if whole:
            form = next(iter(whole))
            several = [one for one, kind in whole.items() if kind == whole[form]]
            shared = _form_of_runs(several) or form_of_models(several)
            found[whole[form]] = shared or form
            if found.get("prediction") == "NAME" and "prediction" not in said and not shared:
                left = [name for name in frame.columns if name not in given.values()]
                found["prediction"] = labels_beside(frame, form, classes, left) or "NAME"
            found = {own: name for own, name in found.items() if name != "NAME"}
        if found.get("prediction") == "NAME" and "prediction" not in said:
            left = [name for name in frame.columns if name not in given.values()]
            meant = _of_classes(frame, given["truth"], left) or "NAME"
            given["prediction"] = found["prediction"] = meant
            if meant == "NAME" and (of_two := _of_second(frame, classes, left)):
                del found["prediction"]
                found |= of_two
        elif not whole and {"confidence", "logits", "prediction"}.isdisjoint(said):
            found |= of_predicted(frame, given, classes)
    elif "logits" not in said and "confidence" not in said and (form := _form_of_classes(frame)):
        columns = [name for name in frame.columns if frame[name].dtype.is_float()]
        found[kind_of_scores(frame[columns])] = form
        if found.get("prediction") == "NAME":
            del found["prediction"]
    others = [name for name in frame.columns if name not in given.values()]
    of_run: list[str] = [name for name in ("repeat", "run") if name in frame.columns]
    if "run" not in frame.columns:
        named = [name for name in others if is_named(name, "run")]
        named = [name for name in named if _numbers_some(frame[name])][:1]
        of_run += named
        if named:
            found["run"] = named[0]
    for own in NAMES:
        named = [name for name in others if is_named(name, own) and _names_some(frame[name])]
        if named:
            found[own] = named[0]
            of_run.append(named[0])
    if "row_id" not in frame.columns and (row_id := row_id_of(frame, others, of_run)):
        found["row_id"] = row_id
    return found


RUN = "{run}"
"""Stands for the number in the names of columns, each with the predictions of one run."""


def numbered_by(form: str, names: Iterable[str]) -> list[tuple[str, int]]:
    """Return the names of that form and their numbers, in this order; none if it has no number."""
    number = re.compile("([0-9]+)".join(map(re.escape, form.split(RUN))))
    found = [(name, int(of[1])) for name in names if RUN in form and (of := number.fullmatch(name))]
    return sorted(found, key=lambda each: each[1])


def _form_of_runs(names: Sequence[str]) -> str:
    """Return the form of columns that differ in one number alone, if these are several."""
    parts = [re.split(r"([0-9]+)", hidden(name)) for name in names]
    differ = [place for place, each in enumerate(zip(*parts, strict=False)) if len({*each}) > 1]
    if len({len(each) for each in parts}) != 1 or len(differ) != 1 or differ[0] % 2 == 0:
        return ""
    (place,) = differ
    return shown_again("".join([*parts[0][:place], RUN, *parts[0][place + 1 :]]))


def _form_of_classes(frame: pl.DataFrame) -> str:
    """Return the form of columns of floats that differ in a word each, if these are all floats."""
    names = [name for name in frame.columns if frame[name].dtype.is_float()]
    if len(names) < 2:
        return ""
    start, end = word_ends(names)
    classes = [name[len(start) : len(name) - len(end)] for name in names]
    return f"{start}{CLASS}{end}" if start + end and all(classes) else ""


def _are_scores(values: pl.DataFrame, classes: Sequence[str]) -> bool:
    """Return whether columns of a class each may be scores, not labels, nor runs' of one class."""
    if _are_labels(values, classes):
        return False
    if len(classes) != 2 or not all(dtype.is_float() for dtype in values.dtypes):
        return True
    are_shares = all(column.is_between(0, 1).all() for column in values.iter_columns())
    return not are_shares or bool(values.sum_horizontal().is_between(0.9, 1.1).all())


def _are_labels(values: pl.DataFrame, classes: Sequence[str]) -> bool:
    """Return whether columns hold nothing but classes, and no row is a 1 among 0."""
    columns = values.iter_columns()
    if not all(is_id(column) and {*column.cast(pl.String)} <= {*classes} for column in columns):
        return False
    return pl.String in values.dtypes or not (values.sum_horizontal() == 1).all()


def _of_classes(frame: pl.DataFrame, truth: str, names: Sequence[str]) -> str:
    """Return the column, or the form of one a run, that alone holds nothing but true classes."""
    if not is_id(frame[truth]):
        return ""
    classes = {*frame[truth].cast(pl.String).drop_nulls().unique()}
    held = [
        name
        for name in names
        if name not in ATTRIBUTES
        and not any(is_named(name, own) for own in ("row_id", "run", *NAMES))
        and is_id(frame[name])
        and {*frame[name].cast(pl.String).unique()} <= classes
    ]
    if len(held) == 1 or (form := _form_of_runs(held)):
        return held[0] if len(held) == 1 else form
    form = form_of_models(held)
    if form != MODEL:
        return form
    right = [(frame[name].cast(pl.String) == frame[truth].cast(pl.String)).sum() for name in held]
    return form if min(right) > int(frame[truth].value_counts()["count"].to_numpy().max()) else ""


def _labels(frame: pl.DataFrame) -> list[str]:
    """Return the columns that may hold classes, by what is in them."""
    others = ("row_id", "run", *NAMES)
    return [
        name
        for name in frame.columns
        if is_id(frame[name])
        and 1 < frame[name].n_unique() <= len(frame) / 2
        and name not in ATTRIBUTES
        and not RIGHT.fullmatch(name)
        and not any(is_named(name, own) for own in others)
    ]


def _share(frame: pl.DataFrame, one: str, other: str) -> bool:
    """Return whether two columns have more than half of their values in common."""
    a, b = ({*frame[name].cast(pl.String).drop_nulls()} for name in (one, other))
    return 2 * len(a & b) > len(a | b)


def require_one_truth(frame: pl.DataFrame, meant: Mapping[str, str], file: Path) -> None:
    """Refuse two columns of the same classes of which no name says which the true ones are."""
    held = _labels(frame) if {meant.get("truth"), meant.get("prediction")} == {"NAME"} else []
    if len(held) != 2 or not _share(frame, *held):
        return
    one, other = held
    raise Unread(
        f"{one} and {other} hold the same classes, and neither name says which are the true ones",
        file=file,
        key=None,
        options={"columns": {**meant, "truth": one, "prediction": other}},
        before=f"if {one} does: ",
        instead=(f"\n  if {other} does: ", {"truth": other, "prediction": one}),
    )


def other_order(frame: pl.DataFrame, meant: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """Return the order of true and predicted classes in which names do not say which are which."""
    one, other = meant.get("truth", ""), meant.get("prediction", "")
    are_there = {one, other} <= {*frame.columns} and _share(frame, one, other)
    if not are_there or is_named(other, "prediction") or _CERTAIN.search(one):
        return "", {}
    return f"\n  or, if {other} holds the true classes: ", {"truth": other, "prediction": one}


def _named_by_columns(frame: pl.DataFrame) -> str:
    """Return the column whose values all are names of columns of numbers, if there is one alone."""
    floats = {name for name in frame.columns if frame[name].dtype.is_float()}
    held = [
        name
        for name in frame.columns
        if is_id(frame[name])
        and frame[name].n_unique() > 1
        and {*frame[name].cast(pl.String)} <= floats
    ]
    return held[0] if len(held) == 1 else ""


def _of_second(frame: pl.DataFrame, classes: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return the column of the probability of one of two classes, by its name here, if any."""
    held = [
        name
        for name in names
        if frame[name].dtype.is_float() and frame[name].is_between(0, 1).all()
    ]
    if len(classes) != 2 or not held:
        return {}
    named = [name for name in held if PREDICTED.fullmatch(name)] or held
    form = named[0] if len(named) == 1 else _form_of_runs(named) or form_of_models(named)
    ordered = in_order(classes)
    ends = [one for one in ordered if re.search(rf"(^|[\W_]|^p){re.escape(one)}$", form, re.I)]
    return {f"{CONFIDENCE}{(ends or ordered[1:])[0]}": form} if form else {}


def is_id(values: pl.Series) -> bool:
    """Return whether these may be ids: names or whole numbers."""
    return values.dtype == pl.String or values.dtype.is_integer()


def _numbers_some(values: pl.Series) -> bool:
    """Return whether whole numbers are fewer than rows, and more than one."""
    return numbers_in(values) is not None and 1 < values.n_unique() < len(values)


def numbers_in(values: pl.Series) -> pl.Series | None:
    """Return whole numbers, or those in words that differ in one alone (seed_01); else None."""
    if values.dtype.is_integer():
        return values
    first = re.split("[0-9]+", values[0] or "") if values.dtype == pl.String and len(values) else []
    if len(first) != 2:
        return None
    start, end = map(re.escape, first)
    numbers = values.str.extract(f"^{start}([0-9]{{1,18}}){end}$").cast(pl.Int64)
    is_unlike = numbers.null_count() or numbers.n_unique() < values.n_unique()
    return None if is_unlike else numbers


def _names_some(values: pl.Series) -> bool:
    """Return whether words stand in several rows each."""
    return values.dtype == pl.String and 2 * values.n_unique() <= len(values)


def row_id_of(frame: pl.DataFrame, names: Sequence[str], of_run: Sequence[str]) -> str | None:
    """Return the column that is named like ids of rows and has each once in a run, if any."""
    meant = [name for name in names if name not in of_run and is_named(name, "row_id")]
    # an index that a library wrote
    meant.sort(key=lambda name: (_counts_rows(frame[name]), name == "index"))
    return next(
        (
            name
            for name in meant
            if is_id(frame[name]) and not frame[[*of_run, name]].is_duplicated().any()
        ),
        None,
    )


def _counts_rows(values: pl.Series) -> bool:
    """Return whether a column counts rows from 0, in each run again or in all of them."""
    if not values.dtype.is_integer() or values.is_empty() or values[0] != 0:
        return False
    steps = values.diff().drop_nulls()
    return bool(((steps == 1) | (values[1:] == 0)).all())


_SPLIT = re.compile(r"(train|test)(ing)?|val(id(ation)?)?|dev|eval|hold-?out", re.I)
_NAMED_RUN = re.compile(r"(?P<model>.*[^\W_])[\W_]+(?:seed|run|trial|s|r)[\W_]*(?P<seed>[0-9]+)")


def require_one_thing(
    frame: pl.DataFrame, used: Mapping[str, str], option: Mapping[str, str], file: Path
) -> None:
    """Refuse unread columns that name splits of the data, or both a classifier and a run."""
    for name in frame.columns:
        if name in used or not is_text(frame[name]):
            continue
        different = [*dict.fromkeys(each for each in frame[name] if each is not None)]
        if len(different) > 1 and all(_SPLIT.fullmatch(str(each).strip()) for each in different):
            shown = " and ".join(map(quoted, sorted(different)))
            kept = f"{read_by(file)}.filter(pl.col({name!r}) == 'test')"
            raise Unread(
                f"is not read, but names splits of the data, {shown}, which would be one test set",
                file=file,
                key=name,
                options={"columns": {**option, "dataset": name}},
                before="read each as a data set: ",
                after=f"\n  or import the rows of one alone: {kept}",
            )
        if remedy := two_in_one(frame[name], name):
            raise UserError("is not read, but names runs", file=file, key=name, remedy=remedy)


def two_in_one(values: pl.Series, name: str) -> str | None:
    """Return a remedy for a column that names both classifiers and runs, if it does."""
    different = [*dict.fromkeys(str(each) for each in values if each is not None)]
    pairs = [found for each in different if (found := _NAMED_RUN.fullmatch(each))]
    if not len(pairs) == len(different) > len({found[1] for found in pairs}) > 1:
        return None
    return (
        f"it names classifiers, too, such as {quoted(different[0])}; give them columns of their "
        f"own: pl.col({name!r}).str.extract_groups({_NAMED_RUN.pattern!r}), and --columns "
        "classifier=model,run=seed"
    )


def is_text(ids: pl.Series) -> bool:
    """Return whether ids are names, such as those of files, rather than numbers."""
    return ids.dtype == pl.String and ids.cast(pl.Int64, strict=False).null_count() > 0
