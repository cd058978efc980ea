"""Columns and entries of several classifiers in one file: ``{classifier}`` in their names."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from manyseed.analysis.counts import some
from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.errors import UserError, nearest
from manyseed.orchestrator.importing.archive import read_tensors
from manyseed.orchestrator.importing.arrays import InMemory
from manyseed.orchestrator.importing.classes import CLASS
from manyseed.orchestrator.importing.filenames import MODEL
from manyseed.orchestrator.importing.mapping import RUN
from manyseed.orchestrator.importing.predictions import Names

_SHOWN = 5


def names_models(given: Mapping[str, str] | None) -> bool:
    """Return whether names of columns or entries have a part that names the classifier."""
    return any(MODEL in form for form in (given or {}).values())


def by_model(
    given: Mapping[str, str], names: Sequence[str], classes: Collection[str], file: Path
) -> dict[str, tuple[dict[str, str], list[str]]]:
    """Return what each classifier's columns are called, and those of the others.

    `names`: of all columns, or entries, that may be some. `classes`: those of the data set, if
    known.
    """
    found: dict[str, dict[str, set[str]]] = {}
    for own, form in given.items():
        if MODEL not in form:
            continue
        if form.count(MODEL) > 1:
            raise UserError(f"{MODEL} stands in it twice", file=file, key=form)
        if own not in ("prediction", "confidence", "logits", "scores", "labels"):
            what = f"{MODEL} may stand in names of predictions, not of {own}"
            raise UserError(what, file=file, key=form)
        each: dict[str, dict[str, set[str]]] = {}
        for one in classes if CLASS in form and classes else (CLASS,):
            is_one = re.compile(_pattern(form.replace(CLASS, one)), re.DOTALL)
            for name in names:
                if match := is_one.fullmatch(name):
                    each.setdefault(match["model"], {}).setdefault(one, set()).add(name)
        needed = max(map(len, each.values()), default=0)
        every = {model: set[str]().union(*of.values()) for model, of in each.items()}
        whole = {model: of for model, of in every.items() if len(each[model]) == needed}
        part = set[str]().union(*every.values()) - set[str]().union(*whole.values())
        if not whole:
            of = "entry" if own in ("scores", "labels") else "column"
            raise UserError(
                f"there is no such {of}", file=file, key=form, remedy=nearest(form, names)
            )
        if part:
            what = f"{some(sorted(part), _SHOWN)} are not of all classes"
            raise UserError(what, file=file, key=form, remedy="give each classifier all classes")
        found[form] = whole
    models = [*found.values()]
    if any({*of} != {*models[0]} for of in models):
        shown = "; ".join(f"{form} of {some(sorted(of), _SHOWN)}" for form, of in found.items())
        raise UserError(f"names of columns are of other classifiers: {shown}", file=file)
    columns_of = {model: set[str]().union(*(of[model] for of in models)) for model in models[0]}
    taken = set[str]().union(*columns_of.values())
    return {
        model: (
            {own: form.replace(MODEL, model) for own, form in given.items()},
            sorted(taken - own_columns),
        )
        for model, own_columns in columns_of.items()
    }


def _pattern(form: str) -> str:
    parts = re.split(r"(\{classifier\}|\{run\}|\{class\})", form)
    fields = {MODEL: "(?P<model>.+?)", RUN: "[0-9]+", CLASS: ".+"}
    return "".join(fields.get(part, re.escape(part)) for part in parts)


def entry_names(file: Path) -> list[str]:
    """Return the names of a file's entries; of others than NPZ and PyTorch none."""
    if file.suffix != ".npz":
        return [] if file.suffix == ".npy" else [*read_tensors(file)]
    try:
        with zipfile.ZipFile(file) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except (OSError, zipfile.BadZipFile):
        return []  # its reader tells


def entries_by_model(
    file: Any, names: Names, key: Mapping[str, str], known: Sequence[str]
) -> Iterator[tuple[Any, Names, Mapping[str, str]]]:
    """Yield each classifier of a file whose entries are named after them, and its names of them.

    Of other files, yield them as they are.
    """
    if not names_models(key):
        yield file, names, key
        return
    if names.classifier is not None:
        what = "names classifiers, which are given otherwise, too"
        form = next(form for form in key.values() if MODEL in form)
        raise UserError(what, file=file, key=form, remedy="say it once")
    used = {form for form in key.values() if MODEL not in form}
    free = [name for name in entry_names(file) if name not in used and name not in known]
    for model, (own, _) in by_model(key, free, (), file).items():
        yield file, replace(names, classifier=model), own


def own_keys(file: Any, key: Mapping[str, str], *, apart: bool) -> Mapping[str, str]:
    """Return the names of a file's own entries: true classes may be another's, if `apart`."""
    if not apart or "y_true" not in key or key["y_true"] in entry_names(file):
        return key
    return {own: name for own, name in key.items() if own != "y_true"}


def tell_unread(opened: Sequence[InMemory]) -> None:
    """Warn of the first file's entries that are read for none of its models."""
    first = opened[0].file
    left = set.intersection(*({*held.unread} for held in opened if held.file == first))
    if unread := [name for name in opened[0].unread if name in left]:
        of, were = ("entries", "were") if len(unread) > 1 else ("entry", "was")
        warn(f"{first.name}: {of} {', '.join(unread)} {were} not read.")


def with_runs(frame: pl.DataFrame, forms: Sequence[str], file: Path) -> pl.DataFrame:
    """Return a table whose columns of these forms, of one run each, stand below each other.

    They are called by their form, with the class, and their number is `run`.
    """
    runs: dict[int, dict[str, str]] = {}
    for form in forms:
        before = len(runs), sum(map(len, runs.values()))
        parts = re.split(r"(\{run\}|\{class\})", form)
        fields = {RUN: "(?P<run>[0-9]+)", CLASS: "(?P<one>.+)"}
        number = re.compile("".join(fields.get(part, re.escape(part)) for part in parts), re.DOTALL)
        for name in frame.columns:
            if match := number.fullmatch(name):
                target = form.replace(CLASS, match["one"]) if CLASS in form else form
                runs.setdefault(int(match["run"]), {})[target] = name
        is_found = before != (len(runs), sum(map(len, runs.values())))
        if not is_found or "run" in frame.columns:
            what = "stands beside a column run" if is_found else "there is no such column"
            raise UserError(what, file=file, key=form, remedy=nearest(form, frame.columns))
    targets = [*next(iter(runs.values()))]
    for number_of, columns in runs.items():
        if {*columns} != {*targets}:
            what = f"run {number_of} has other columns than run {next(iter(runs))}"
            raise UserError(what, file=file, key=forms[0])
    rest = frame.drop([name for columns in runs.values() for name in columns.values()])
    parts_of_runs = (
        rest.with_columns(*(frame[of[name]].alias(name) for name in targets), run=pl.lit(n))
        for n, of in sorted(runs.items())
    )
    return pl.concat(parts_of_runs, how="vertical_relaxed")
