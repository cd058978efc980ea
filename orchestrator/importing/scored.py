"""Which columns of scores are of which classes: by their numbers, and by predicted classes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from manyseed.jobs.datasets.columns import is_number
from manyseed.orchestrator.importing.classes import CLASS, CONFIDENCE, in_order
from manyseed.orchestrator.importing.predictions import ATTRIBUTES

PREDICTED = re.compile(
    r"arr_0|outputs?|((y|test|val)_?)?(pred(ict(ed|ions?))?s?|hat|scores?|proba?s?|probabilit(y|ies)"
    r"|softmax|logits?)(_?(labels?|class(es)?|proba?s?|probabilities|scores?|test))?",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"(.*?)([0-9]+)([^0-9]*)")


def classes_in_place(found: Mapping[str, str], truth: pl.Series) -> dict[str, str]:
    """Return columns of scores of classes 0 to k - 1 as those of the k true classes, in order.

    These are 1 to k, or words; else the columns are as they were. `found`: each column's class.
    """
    classes = in_order(map(str, truth.drop_nulls().unique()))
    n = len(classes)
    if {*found.values()} != {*map(str, range(n))} or n < 2:
        return dict(found)
    are_from_one = [*classes] == [str(number + 1) for number in range(n)]
    if not are_from_one and any(map(is_number, classes)):
        return dict(found)
    return {name: classes[int(number)] for name, number in found.items()}


def by_place(
    frame: pl.DataFrame, classes: Sequence[str], given: Mapping[str, str]
) -> dict[str, str]:
    """Return what columns of scores are whose numbers are places of classes, by their form.

    Where predicted classes are given, they must be those of the largest score.
    """
    forms: dict[str, dict[str, str]] = {}
    for name in frame.columns:
        match = _NUMBERED.fullmatch(name)
        if match and PREDICTED.fullmatch(match[1].strip("_-. ")) and frame[name].dtype.is_float():
            forms.setdefault(f"{match[1]}{CLASS}{match[3]}", {})[name] = match[2]
    whole: dict[str, str] = {}
    for form, found in forms.items():
        named = classes_in_place(found, frame[given["truth"]])
        if {*named.values()} != {*classes}:
            continue
        best = np.array([*named.values()])[frame[[*named]].to_numpy().argmax(axis=1)]
        predicted = given.get("prediction", "")
        if predicted in frame.columns and [*frame[predicted].cast(pl.String)] != [*best]:
            continue
        whole[form] = kind_of_scores(frame[[*named]])
    return whole


def labels_beside(
    frame: pl.DataFrame, form: str, classes: Sequence[str], names: Sequence[str]
) -> str | None:
    """Return the one column that mostly is the class of the largest score, if there is one."""
    columns = [form.replace(CLASS, one) for one in classes]
    if not {*columns} <= {*frame.columns}:  # numbered from 0, as `by_place` reads them
        classes = in_order(classes)
        columns = [form.replace(CLASS, str(number)) for number in range(len(classes))]
    if not {*columns} <= {*frame.columns}:
        return None
    if not all(dtype.is_numeric() for dtype in frame[columns].dtypes):
        return None
    best = pl.Series(np.array(classes)[frame[columns].to_numpy().argmax(axis=1)])
    labels = [frame[name] for name in names if not frame[name].dtype.is_nested()]
    found = [one.name for one in labels if 2 * (one.cast(pl.String) == best).sum() > len(best)]
    return found[0] if len(found) == 1 else None


def kind_of_scores(values: pl.DataFrame) -> str:
    """Return whether columns of a class each seem to be logits, or else confidences."""
    are_numbers = all(dtype.is_numeric() for dtype in values.dtypes)
    is_some_negative = are_numbers and any((values[name] < 0).any() for name in values.columns)
    return "logits" if is_some_negative else "confidence"


def of_predicted(
    frame: pl.DataFrame, given: Mapping[str, str], classes: Sequence[str]
) -> dict[str, str]:
    """Return the one column that is the probability of one of two classes, as predictions show."""
    if len(classes) != 2 or given.get("prediction") not in frame.columns:
        return {}
    label = frame[given["prediction"]].cast(pl.String)
    found: dict[str, str] = {}
    for name in frame.columns:
        p = frame[name]
        if not p.dtype.is_float() or name in ATTRIBUTES or not p.is_between(0, 1).all():
            continue
        sure = p != 0.5
        high, low = label.filter(sure & (p > 0.5)), label.filter(sure & (p < 0.5))
        if high.n_unique() == low.n_unique() == 1 and high[0] != low[0] and high[0] in classes:
            found[name] = str(high[0])
    if len(found) != 1:
        return {}
    ((name, one),) = found.items()
    return {f"{CONFIDENCE}{one}": name}
