"""Files of predictions, opened: what each holds, by data set and classifier."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from manyseed.analysis.counts import counted, some
from manyseed.jobs.run import Probability
from manyseed.orchestrator.errors import Lacking, Spoilt, Unread, UserError
from manyseed.orchestrator.importing.arrays import (
    ENTRIES,
    InMemory,
    Keys,
    allow_open,
    entries_of,
    opened_as_held,
)
from manyseed.orchestrator.importing.cut import require_ended
from manyseed.orchestrator.importing.frames import read_frame
from manyseed.orchestrator.importing.labels import are_from_one
from manyseed.orchestrator.importing.mapping import Columns, Values
from manyseed.orchestrator.importing.models import entries_by_model, own_keys, tell_unread
from manyseed.orchestrator.importing.naming import require_read
from manyseed.orchestrator.importing.patterns import no_such
from manyseed.orchestrator.importing.predictions import Entries, Names, shown_below
from manyseed.orchestrator.importing.rows import parts_of, without_runs
from manyseed.orchestrator.importing.tables import openml
from manyseed.orchestrator.importing.truths import (
    blamed,
    entries_of_truth,
    further_entries,
    require_lengths,
)
from manyseed.orchestrator.importing.unlike import in_one_order, stacked

_MOST_NAMED = 5
_T = TypeVar("_T")
_R = TypeVar("_R")


def tables_of(
    named: Sequence[tuple[Path, Names]],
    columns: Columns,
    truths: Mapping[Path, Path | None],
    of_paths: Mapping[Path, Mapping[str, Any]],
    classes: dict[str, tuple[str, ...]],
    excluded: Collection[str] = (),
    gone: set[tuple[str | None, int]] | None = None,
) -> list[Entries]:
    """Return what tables hold, by the names of data sets and classifiers in them.

    `truths`: the file of true classes of each; `of_paths`: what its path says. `classes` of each
    data set are added. `excluded`: patterns of runs in them that are left out; classifier and
    number of each are added to `gone`.
    """
    unused = {*excluded}
    files = [*dict.fromkeys(file for file, _ in named)]
    require_ended(files)
    by_names: dict[tuple[Names, Columns], list[tuple[Path, Values]]] = {}
    try:
        for file, names in named:
            at = truths[file]
            said = (*of_paths.get(file, {}).items(), *([("truth", at)] if at else []))
            for of_part, own_columns, where in parts_of(file, names, columns, at):
                kept, used, left = without_runs(file, of_part, own_columns, where, excluded)
                unused -= used
                if gone is not None:
                    gone |= {(of_part.classifier, number) for number in left}
                if kept is None:
                    continue
                by_names.setdefault((of_part, own_columns), []).append((file, (*said, *kept)))
        if unused:
            raise no_such(min(unused))
        entries, lacking = list[Entries](), list[Lacking]()
        for (names, own_columns), found in by_names.items():
            paths, values = [file for file, _ in found], [each for _, each in found]
            of = names.dataset or paths[0].stem
            try:
                with blamed(paths):
                    entries.append(openml(paths, names, own_columns, values, classes.get(of, ())))
            except Lacking as error:  # those of the other classifiers are told with it
                if lacking and (error.file, error.key) != (lacking[0].file, lacking[0].key):
                    continue
                lacking.append(error)
                continue
            classes.setdefault(of, entries[-1].class_names)
        if lacking:
            raise Lacking.together(lacking)
    except UserError as error:
        if len(files) > 1 and error.file in files and not isinstance(error, Unread):
            each_read(files, lambda file: read_frame(file, ()))
        raise
    return entries


def arrays_of(
    named: Sequence[tuple[Path | InMemory, Names]],
    scratch: Path,
    stack: ExitStack,
    key: Keys,
    *,
    for_all: Path | None,
    own_truths: Mapping[Path, Path],
    runs: Path | None,
    of_paths: Mapping[Path, Mapping[str, Any]],
    classes: dict[str, tuple[str, ...]],
    probability: Probability,
    probabilities: bool,
    class_names: Sequence[str] | None = None,
    given: Sequence[Any] = (),
) -> list[Entries]:
    """Return what files of arrays hold, by classifier.

    `scratch`: a folder for temporary files. `for_all` and `own_truths`: true classes of all files,
    or of each. `runs`: the table that describes each run. `of_paths`: what a file's path says.
    `classes` of each data set are added. `class_names`: of all files, in the order of the scores.
    `given`: the files and folders of the import, beside which these may be.
    """
    allow_open(4 * len(named))
    more = further_entries(for_all, runs, key)
    if class_names:
        if [*map(str, more.get("class_names", class_names))] != [*class_names]:
            what = f"has {some([*map(str, more['class_names'])], _MOST_NAMED)}, but --classes "
            what += some(class_names, _MOST_NAMED)
            raise UserError(what, file=for_all, key="class_names", remedy="give one of them")
        more = {**more, "class_names": np.array(class_names)}
    has_truths = for_all is not None or bool(own_truths)
    each_of = [
        of_one
        for one, of in named
        for of_one in entries_by_model(one, of, own_keys(one, key, apart=has_truths), ENTRIES)
    ]
    keys_of = [(one, keys) for one, _, keys in each_of]
    opened = each_read(keys_of, lambda both: opened_as_held(both[0], scratch, stack, both[1]))
    tell_unread(opened)
    for held in opened:
        if held.file in own_truths and "y_true" not in held.small:
            held.small.update(entries_of_truth(own_truths[held.file], key))
    require_lengths(opened, more.get("y_true"), for_all)
    unnamed = [held for held in opened if "class_names" not in {*held.small, *more}]
    y_true = next((each["y_true"] for each in (more, opened[0].small) if "y_true" in each), None)
    if unnamed and y_true is not None:
        known = classes.get(named[0][1].dataset or unnamed[0].file.stem, ())
        require_read(given, unnamed, y_true, known)
    of_dataset: dict[str, list[tuple[Any, Mapping[str, Any]]]] = {}
    for held, (_, names, _) in zip(opened, each_of, strict=True):
        array = held.large.get("labels") if len(held.large) == 1 else None
        label_files = of_dataset.setdefault(names.dataset or held.file.stem, [])
        label_files.append((array, {**held.small, **more}))
    from_one = {of for of, arrays in of_dataset.items() if are_from_one(arrays)}
    entries, repeats = list[Entries](), list[Any]()
    for held, (one, names, _) in zip(opened, each_of, strict=True):
        of = names.dataset or held.file.stem
        known = classes.get(of, ())
        is_one = of in from_one and "0" not in known
        each = entries_of(held, more, names, probability, probabilities, known, is_from_one=is_one)
        classes.setdefault(of, each.class_names)
        found = {} if isinstance(one, InMemory) else of_paths.get(one, {})
        entries.append(_with(each, found))
        repeats.append(found.get("repeat"))
    if "y_true" not in more and not any(each is not None for each in repeats):
        entries = in_one_order(entries)
    return stacked(entries, repeats)


def each_read(given: Iterable[_T], read: Callable[[_T], _R]) -> list[_R]:
    """Return what is read of each file; all that cannot be read are told at once."""
    found, errors = list[_R](), list[UserError]()
    for one in given:
        try:
            found.append(read(one))
        except Unread:
            if not errors:
                raise
        except UserError as error:
            if error.file is None or (not found and isinstance(one, InMemory)):
                raise
            errors.append(error)
    if len(errors) > 1:
        raise _all_of(errors)
    if errors:
        raise errors[0]
    return found


def _all_of(errors: Sequence[UserError]) -> Spoilt:
    first, *others = errors
    shown = shown_below([Path(str(each.file)) for each in errors])
    names = some([shown[Path(str(each.file))] for each in others], _MOST_NAMED - 1)
    return Spoilt(
        f"{first.message}; nor can {counted(len(others), 'other file')} be read: {names}",
        file=first.file,
        key=first.key,
        remedy=first.remedy,
        files=[Path(str(each.file)) for each in errors],
    )


def _with(entries: Entries, found: Mapping[str, Any]) -> Entries:
    """Return entries of arrays with what the file's path says of all its runs."""
    for name in found:
        if name in entries.attributes:
            raise UserError("stands in the file and in its path", file=entries.file, key=name)
    if "run" in found and entries.n_runs > 1:
        what = f"holds {entries.n_runs:,} runs, but its path names one"
        raise UserError(what, file=entries.file, key="--name", remedy="leave out {run}")
    more = {name: [value] * entries.n_runs for name, value in found.items()}
    return replace(entries, attributes={**entries.attributes, **more})
