"""Classes in predictions: names and their order, labels as indices."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from manyseed.analysis.counts import some
from manyseed.jobs.checks import quoted, same_spelling, similar, spelling
from manyseed.jobs.datasets.columns import is_number, natural_order
from manyseed.orchestrator.errors import UserError, nearest, require_one_of

MAX_CLASSES = 2**16 - 1


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return different names in the order that datasets have: as numbers if all are, else text."""
    known = [*{*names}]
    return tuple(known[place] for place in natural_order(known))


def require_one_order(names: Sequence[str], key: str, file: Path) -> None:
    """Refuse names whose order decides what the predictions mean, if others may sort otherwise."""
    orders = [sorted(names, key=key) for key in (None, _folded, by_numbers, _as_spoken)]
    if other := next((order for order in orders if order != [*names]), None):
        place = next(i for i, name in enumerate(names) if other[i] != name)
        raise UserError(
            f"names classes whose order is not certain: {quoted(names[place])} or "
            f"{quoted(other[place])} may come first",
            file=file,
            key=key,
            remedy="name all classes in the order of the scores, or of the indices of labels, with "
            "--classes NAME,NAME,… or class_names",
        )


def _folded(name: str) -> tuple[str, str]:
    return name.casefold(), name


def _as_spoken(name: str) -> tuple[str, ...]:
    """Return a key that sorts names as languages do: letters with marks beside those without."""
    letters = unicodedata.normalize("NFKD", name.casefold().translate(_LETTERS))
    return "".join(one for one in letters if not unicodedata.combining(one)), *_folded(name)


_LETTERS = str.maketrans({"æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "ı": "i"})
"""Those with marks that Unicode does not take apart."""


def by_numbers(name: str) -> list[Any]:
    """Return a key that sorts names as people number them: c2 before c10, by ASCII digits."""
    if is_number(name):
        return [(0, float(name.replace(",", ".", 1)), name)]
    return [
        (1, float(part), part) if part.isdecimal() and part.isascii() else (2, 0.0, part)
        for part in re.split("([0-9]+)", name)
    ]


def require_apart(truth: Collection[str], predicted: Collection[str], key: str, file: Path) -> None:
    """Refuse labels that mean one class but are written in two ways, which would never be right."""
    same = same_spelling({*truth, *predicted})
    only: dict[object, str] = {}
    are_apart = len({_meaning(name) for name in truth}) == len({*truth})
    for name in sorted(truth):
        # letters may be classes, of which a test set has but one case
        if name not in predicted or (are_apart and len(name) > 1):
            only.setdefault(_meaning(name), name)
    same += [
        (only[meaning], name)
        for name in sorted({*predicted} - {*truth})
        if (meaning := _meaning(name)) in only
    ]
    if same:
        raise UserError(
            f"has classes that are one but for spelling: {' and '.join(map(quoted, same[0]))}",
            file=file,
            key=key,
            remedy="write each class in one way; beware of upper case and blanks at the end",
        )


def _meaning(name: str) -> object:
    plain = spelling(name)
    return float(plain.replace(",", ".", 1)) if is_number(plain) else plain.casefold()


def texts(values: NDArray[Any], key: str, file: Path) -> NDArray[Any]:
    """Return an array with byte strings decoded to str; other arrays are returned as they are."""
    if values.dtype.kind != "S":
        return values
    try:
        return np.asarray(np.char.decode(values, "utf-8"))
    except UnicodeDecodeError:
        raise UserError("has bytes that are not UTF-8 text", file=file, key=key) from None


def codes(values: NDArray[Any], class_names: Sequence[str], key: str, file: Path) -> NDArray[Any]:
    """Return labels, given as names or as indices of classes, as indices.

    `key` and `file`: for errors.
    """
    values = texts(values, key, file)
    if values.dtype.kind == "U":
        names = np.array(class_names)
        order = np.argsort(names)
        place = np.searchsorted(names[order], values)
        index = order[np.minimum(place, len(names) - 1)]
        wrong = names[index] != values
        if wrong.any():
            value = str(values[wrong].flat[0])
            require_apart(class_names, [value], key, file)
            remedy = nearest(value, class_names)
            raise UserError("not a class", file=file, key=key, value=value, remedy=remedy)
        return index
    values = whole(values, key, file)
    n = len(class_names)
    if values.size and not 0 <= int(values.min()) <= int(values.max()) < n:
        if values.min() == 1 and values.max() == n:
            raise UserError(
                f"goes from 1 to {n}, but the {n} classes are numbered from 0 to {n - 1}",
                file=file,
                key=key,
                remedy=f"if they are numbered from 1: {key} - 1; if there are {n + 1} classes, "
                f"name them all, such as with class_names=numpy.arange({n + 1})",
            )
        raise UserError(
            f"goes from {values.min()} to {values.max()}, but there are {len(class_names)} classes",
            file=file,
            key=key,
            remedy="labels are indices of classes from 0; "
            + (
                "name all classes with class_names"
                if values.min() >= 0
                else f"or give {key}.astype(str)"
            ),
        )
    return values


def whole(values: NDArray[Any], key: str, file: Path) -> NDArray[Any]:
    """Return labels that are whole numbers, maybe saved as floats, as integers; refuse others."""
    if values.dtype.kind == "f":
        wrong = ~np.isfinite(values) | (values != np.round(values))
        if not wrong.any():
            return values.astype(np.int64)
        what = f"holds {values[wrong].flat[0]:g}, and so {wrong.sum():,} of {values.size:,}"
        remedy = "predicted classes are labels; give scores as scores"
        remedy = remedy if key == "labels" else "give the class of each point"
        raise UserError(
            f"{what}; labels are whole numbers or names", file=file, key=key, remedy=remedy
        )
    if values.dtype.kind not in "iub":
        raise UserError(
            f"has dtype {values.dtype}; labels are whole numbers or names",
            file=file,
            key=key,
            remedy=f"give indices of classes: {key}.astype(int)",
        )
    return values


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


CLASS = "{class}"
"""Stands for the class in the names of confidences that a user gives."""


CONFIDENCE = "confidence."


SCORES = ("confidence", "logits")
"""Our names of the forms that columns of a class each may have; one of them is given."""


def require_columns(frame: pl.DataFrame, class_names: Sequence[str], form: str, path: Path) -> None:
    """Refuse true classes without a column of confidences, naming one that is nearly so called."""
    seen = {*frame["truth"].unique().to_list()}
    require_apart(seen, class_names, form, path)
    for name in sorted(seen - {*class_names}):
        unseen = [of for of in class_names if of not in seen]
        column, remedy = form.replace(CLASS, name), nearest(name, class_names)
        what = f"the true class {quoted(name)} has no column {column}"
        if near := similar(name, unseen):
            what = f"no true class is called so, and {quoted(name)} has no column"
            column, remedy = form.replace(CLASS, near[0]), f"rename it {column}"
        raise UserError(what, file=path, key=column, remedy=remedy)


def names_of_classes(
    given: Mapping[str, Any], array: Any, key: str, path: Path, first: int = 0
) -> tuple[str, ...]:
    """Return the classes of arrays: those that they name, or those of their true classes.

    `first`: what the first class is called, if they are indices.
    """
    y_true = texts(np.asarray(given["y_true"]), "y_true", path)
    n_scores = (array.shape[2] if len(array.shape) == 3 else 2) if key == "scores" else None
    if "class_names" in given:
        given_names = texts(np.asarray(given["class_names"]), "class_names", path)
        if given_names.ndim != 1 or given_names.dtype.kind not in "Uiu":
            raise UserError("is not a list of names", file=path, key="class_names")
        names = tuple(str(name) for name in given_names.tolist())
    elif y_true.dtype.kind == "U":
        names = in_order(np.unique(y_true).tolist())
        if key == "scores" or array.dtype.kind not in "US":
            require_one_order(names, "y_true", path)
    else:
        largest = int(y_true.max(initial=0)) if y_true.dtype.kind in "iub" else 0
        if max(largest + 1, n_scores or 0) > MAX_CLASSES:
            message = f"goes up to {largest:,}, but there can be {MAX_CLASSES:,} classes at most"
            raise UserError(message, file=path, key="y_true")
        names = tuple(str(first + each) for each in range(n_scores or max(largest + 1, 2)))
    if n_scores is not None and len(names) != n_scores:
        raise UserError(
            f"there are {len(names)} classes, but scores for {n_scores}",
            file=path,
            key="class_names",
        )
    if len(set(names)) != len(names) or len(names) < 2:
        raise UserError("at least two different classes are needed", file=path, key="class_names")
    require_apart(names, names, "class_names" if "class_names" in given else "y_true", path)
    if key == "labels" and array.dtype.kind == "b" and len(names) > 2:
        what = f"is true or false, but there are {len(names)} classes"
        remedy = "give predicted classes, not whether they are right"
        raise UserError(what, file=path, key=key, remedy=remedy)
    return names


def is_one_hot(y_true: NDArray[Any]) -> bool:
    """Return whether each row has a single 1 and otherwise 0."""
    is_number = y_true.ndim == 2 and y_true.dtype.kind in "biuf"
    return is_number and bool(np.isin(y_true, (0, 1)).all() and (y_true.sum(axis=1) == 1).all())


def require_shared(
    seen: NDArray[np.integer[Any]],
    true: NDArray[np.integer[Any]],
    names: Sequence[str],
    file: Path,
    share: float,
) -> None:
    """Refuse predicted classes, if any, none of which is a true class, or of another numbering.

    Both are indices; `share`: of predictions that are right.
    """
    numbers = [[int(names[each]) for each in of if names[each].isdecimal()] for of in (seen, true)]
    if len(numbers[0]) == len(seen) > 1 and len(numbers[1]) == len(true):
        (low, high), (least, most) = ((min(of), max(of)) for of in map(sorted, numbers))
        if {low, least} == {0, 1} and high - most == low - least and share < _HALF:
            raise UserError(
                f"predicted classes go from {low} to {high}, true ones from {least} to {most}, and "
                f"{share:.0%} are right: one may be numbered from 1, the other from 0",
                file=file,
                remedy=f"subtract 1 from the {'predicted' if low else 'true'} classes; if both are "
                "right, write classes as names",
            )
    if seen.size and not np.isin(seen, true).any() and max(seen.size, true.size) > 1:
        shown = [some([names[each] for each in of], _SHOWN) for of in (seen, true)]
        raise UserError(
            f"no predicted class is a true class: predicted are {shown[0]}, true {shown[1]}",
            file=file,
            remedy="write classes in one way in both; a column that says whether a prediction "
            "is right is no true class",
        )


_HALF = 0.5
_SHOWN = 10  # classes in a message


def require_named(given: Mapping[str, str] | None, known: Sequence[str], key: str) -> None:
    """Refuse an unknown name of ours, and a form of scores without its place for the class."""
    if {*SCORES} <= {*(given or {})}:
        raise UserError("has confidences and logits", key=key, remedy="say it once")
    for own, theirs in (given or {}).items():
        if own not in known and theirs in known:
            remedy = f"our name stands first: {theirs}={own}"
            raise UserError("unknown name", key=key, value=own, remedy=remedy)
        if key != "--columns" or not own.startswith(CONFIDENCE):
            require_one_of(own, known, "unknown name", key=key)
        twice = [
            each for each, of in (given or {}).items() if of == theirs != "NAME" and each != own
        ]
        if twice:
            what = f"is read as {own} and as {twice[0]}"
            raise UserError(what, key=key, value=theirs, remedy="say it once")
        if own in SCORES and theirs.count(CLASS) != 1:
            remedy = f"write {CLASS} where the class stands: {own}='p_{CLASS}'"
            raise UserError("needs a column for each class", key=key, value=theirs, remedy=remedy)
