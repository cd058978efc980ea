"""Which rows and columns of a table are of one data set and classifier."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl

from manyseed.orchestrator.errors import UserError, nearest
from manyseed.orchestrator.importing.classes import SCORES
from manyseed.orchestrator.importing.filenames import MODEL
from manyseed.orchestrator.importing.frames import LABELS, read_frame
from manyseed.orchestrator.importing.mapping import (
    NAMES,
    RUN,
    Columns,
    Values,
    numbered_by,
    numbers_in,
)
from manyseed.orchestrator.importing.models import by_model, names_models, with_runs
from manyseed.orchestrator.importing.predictions import ATTRIBUTES, Names
from manyseed.orchestrator.importing.truths import with_truth

NEEDED = ("row_id", "prediction", "truth")
OWN = (*NEEDED, "correct", "fold", *ATTRIBUTES)
OTHERS = "columns of other classifiers"
EXCLUDED = "runs that are left out"
OF_ROWS = (*NAMES, "truth", OTHERS, EXCLUDED)
"""Values that say which rows and columns are meant, and are no columns."""


def parts_of(
    path: Path, names: Names, named: Columns, truth: Path | None = None
) -> Iterator[tuple[Names, Columns, Values]]:
    """Yield the datasets and classifiers that a file names, which columns and rows are theirs."""
    if not names_models(dict(named)):
        for of_part, where in _rows_of(path, names, named):
            yield of_part, named, where
        return
    if names.classifier is not None or "classifier" in dict(named):
        what = "names classifiers, which are given otherwise, too"
        form = next(form for _, form in named if MODEL in form)
        raise UserError(what, file=path, key=form, remedy="say it once")
    frame, given = read_frame(path), dict(named)
    theirs = given.get("truth", "truth")
    classes = set[str]()
    if theirs in frame.columns and truth is None:
        classes = {*read_frame(path, [theirs])[theirs].cast(pl.String).drop_nulls().unique()}
    used = {of for of in given.values() if MODEL not in of}
    free = [name for name in frame.columns if name not in used and name not in OWN]
    if given.get("prediction") == MODEL:
        text = read_frame(path, [*free, theirs])
        is_label = {n for n in free if {*text[n].cast(pl.String).unique()} <= classes}
        free = [name for name in free if name in is_label or not classes]
    for model, (columns, others) in by_model(given, free, classes, path).items():
        own = tuple(columns.items())
        for of_part, where in _rows_of(path, replace(names, classifier=model), own):
            yield of_part, own, (*where, (OTHERS, tuple(others)))


def _rows_of(path: Path, names: Names, named: Columns) -> Iterator[tuple[Names, Values]]:
    columns = {own: theirs for own, theirs in named if own in NAMES}
    if not columns:
        yield names, ()
        return
    frame = read_frame(path, [*columns.values()])
    for own, theirs in named:
        if own not in NAMES:
            continue
        if theirs not in frame.columns:
            remedy = nearest(theirs, frame.columns)
            raise UserError("there is no such column", file=path, key=theirs, remedy=remedy)
        if getattr(names, own) is not None or [each for _, each in named].count(theirs) > 1:
            what = f"is read as {own}, and as something else, or {own} is given otherwise"
            raise UserError(what, file=path, key=theirs, remedy="say it once")
        if frame[theirs].has_nulls():
            raise UserError("has missing values", file=path, key=theirs)
    table = pl.DataFrame(
        [frame[theirs].cast(pl.String).alias(own) for own, theirs in columns.items()]
    )
    for row in table.unique(maintain_order=True).iter_rows(named=True):
        yield replace(names, **row), tuple(row.items())


def part_of(path: Path, named: Columns, values: Values) -> pl.DataFrame:
    """Read a file, without the rows and the columns of other datasets and classifiers."""
    given = dict(named)
    of = {own: given[own] for own, _ in values if own in NAMES}
    labels = [given.get(name, name) for name in LABELS]
    frame = read_frame(path, [*labels, *of.values()])
    if RUN in (form := given.get("prediction", "")):
        labels += [name for name, _ in numbered_by(form, frame.columns)]
        frame = read_frame(path, [*labels, *of.values()])
    frame = frame.drop(dict(values).get(OTHERS, ()))
    forms = [of for own, of in named if RUN in of and own.startswith((*SCORES, "prediction"))]
    frame = with_runs(frame, forms, path) if forms else frame
    for own, value in values:
        if own in NAMES:
            frame = frame.filter(frame[of[own]].cast(pl.String) == value)
    frame = frame[[name for name in frame.columns if name not in of.values()]]
    if excluded := dict(values).get(EXCLUDED):
        run = given.get("run", "run")
        frame = frame.filter(
            ~frame[run].cast(pl.String).is_in(list(excluded)).fill_null(value=False)
        )
    truth = dict(values).get("truth")
    return frame if truth is None else with_truth(frame, truth, given, path)


def without_runs(
    path: Path, names: Names, named: Columns, values: Values, excluded: Collection[str]
) -> tuple[Values | None, set[str], list[int]]:
    """Return what tells a part's rows, but those of runs left out, which patterns did so, and them.

    None if no run is left. `excluded`: patterns of runs, ``cnn/7``.
    """
    run = dict(named).get("run", "run")
    frame = part_of(path, named, values)
    if not excluded or run not in frame.columns:
        return values, set(), []
    runs = [str(one) for one in frame[run].unique(maintain_order=True)]
    of = {one: Path(excluding(names.classifier, one)) for one in runs}
    matching = {one: {form for form in excluded if path.match(form)} for one, path in of.items()}
    left = tuple(one for one in runs if matching[one])
    used = set[str]().union(*matching.values())
    numbers = numbers_in(pl.Series(left, dtype=pl.String)) if left else None
    rest = None if len(left) == len(runs) else (*values, (EXCLUDED, left))
    return rest, used, [] if numbers is None else numbers.to_list()


def excluding(classifier: str | None, run: object) -> str:
    """Return what leaves out a run of a table."""
    return f"{classifier}/{run}" if classifier else str(run)
