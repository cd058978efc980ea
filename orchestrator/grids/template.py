"""``manyseed init``: a sweep file for given data and a model, with comments on what was found.

A function that returns data is called, and a model of one's own is probed, as planning does.
"""

from __future__ import annotations

import shlex
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from manyseed.analysis.counts import counted, some, unbroken
from manyseed.jobs import classifiers
from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import ColumnInfo, DatasetInfo
from manyseed.jobs.datasets.columns import CLASSES
from manyseed.jobs.datasets.csvfile import MARKS
from manyseed.jobs.datasets.parts import GROUP, ROW_ID
from manyseed.jobs.own.estimator import SET_LATER
from manyseed.jobs.packages import install
from manyseed.orchestrator.errors import (
    UserError,
    command,
    shell_word,
    toml_key,
    toml_value,
)
from manyseed.orchestrator.grids.firstdata import (
    LAST,
    LEFT_OUT,
    SHOWN,
    TARGET,
    UNREADABLE,
    FirstData,
    first_data,
    is_unread,
    name_of,
    plain,
    require_there,
)
from manyseed.orchestrator.grids.firstrun import REPEATS, RUNS, FirstRun, first_run, joined
from manyseed.orchestrator.grids.modelfile import (
    arguments,
    entry_point,
    model_beside,
    model_table,
    own_name,
    varied,
)
from manyseed.orchestrator.grids.owntable import by_loop, line, needed, table_lines
from manyseed.orchestrator.grids.plannotes import NAMELESS, data_notes
from manyseed.orchestrator.grids.resolver import lacking_packages, not_trainable
from manyseed.orchestrator.grids.scriptfile import PROGRAMS, seed_loop


def to_train(file: Path, *, submits: bool) -> Iterator[tuple[str, tuple[object, ...], str]]:
    """Yield the commands that train a sweep file: what for, their words, and what they do.

    `submits`: whether this machine submits jobs, while no profile says what they request.
    """
    run = ("run", file)
    if not submits:
        yield "Train", run, "trains, analyses and reports"
        return
    yield "Train on this machine", (*run, "--cluster", "local"), "trains on this machine"
    yield "Or, on its cluster, first", ("cluster", "init"), "first, to train on its cluster"


def sweep_file(
    data: str,
    models: Sequence[str] = (),
    target: str | None = None,
    name: str | None = None,
    file: Path = Path("sweep.toml"),
    *,
    submits: bool = False,
) -> tuple[str, list[str], bool]:
    """Return the text of a sweep file, what its reader should check, and whether it can be run.

    It cannot while code of one's own fails.

    `data`: a file, a source such as ``"sklearn:wine"``, or a function such as ``"mydata:load"``.
    `models`: each a classifier, ``"module:name"`` in the working folder or installed, a script, or
    a Python file that defines a model. `target`: the column of classes, if it is not the one that
    looks like it. `name`: what to name the sweep after, by default the data. `file`: what the
    file will be called. `submits`: as in `to_train`.
    """
    if Path(data).suffix in PROGRAMS and Path(data).is_file():
        lines = seed_loop(Path(data), _of_script(Path(data)), *models[:1])
        before = f"data come first: {command('init', *(models or ['DATA']), data)}"
        remedy = "\n  ".join([before, *lines])
        raise UserError("is a program, not data", key="DATA", value=data, remedy=remedy)
    tables: list[tuple[str | None, dict[str, object]]]
    tables = [(model, model_table(model, data)) for model in models]
    tables = tables or [(None, {})]
    _require_different([own_name(table) if table else str(model) for model, table in tables])
    require_there(data)
    if file.exists():  # before anything that takes time
        raise _exists_already(file, name or name_of(data), data, models, target)
    described = first_data(entry_point(data, "DATA"), target)
    each = [first_run(described.info, model, table, len(tables)) for model, table in tables]
    first = joined(each)
    parts = [(part, table) for part, (_, table) in zip(each, tables, strict=True)]
    questions = [*_questions(described), *_noted(described), *_fewer(first)]
    for part, (model, _) in zip(each, tables, strict=True):
        questions += _seeds(part, model)
        questions += [
            f"{toml_key(key)} = {toml_value(value)}: {needed(key, value)}"
            for key, value in part.needs.items()
        ]
    told = [f"Read: {_rows(described.info)}", _classes(described.info)]
    asked = [f"  {question}" for question in questions]
    told += ["Please check:", *asked] if asked else []
    told += [said for said in (*(by_loop(*part) for part in parts), first.told) if said]
    for part, (model, table) in zip(each, tables, strict=True):
        if part.problem and "command" in table:
            told += _of_command(Path(str(model)), file, data, target)
    called = _free(plain(name or described.name) or "sweep")
    yielded = _lines(described, first, parts, called, file, submits=submits)
    lines = [_printable(line) if line.startswith("#") else line for line in yielded]
    return "".join(f"{line}\n" for line in lines), told, not first.problem


def _require_different(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            remedy = "name one class, function or file otherwise"
            raise UserError("two models of this name", key="MODEL", value=name, remedy=remedy)


def _of_command(script: Path, file: Path, data: str, target: str | None) -> Iterator[str]:
    """Yield what to do with a script that fails as a command: what it writes, or its own model."""
    yield (
        f"A command gets rows from {{train}} and {{test}} and writes scores to {{out}}: "
        f"{command('docs', 'own')}#a-command"
    )
    if script.suffix != ".py" or not script.is_file():
        return
    if entry := model_beside(script):
        given = [data, entry, *([] if target is None else ["--target", target])]
        called = entry.partition(":")[2]
        again = command("init", *given, "--out", _unused(file, called))
        yield f"The {called} that it defines can be trained as it is: {again}"
    yield from seed_loop(script, _of_script(script), data)


def _of_script(script: Path) -> str:
    return own_name({"command": shlex.join([script.name])})


def _exists_already(
    out: Path, name: str, data: str, models: Sequence[str], target: str | None
) -> UserError:
    """Return the error for a file that is there; its command names one after the data."""
    free = _unused(out, plain(name) or "sweep")
    given = [*models, *([] if target is None else ["--target", target])]
    remedy = f"name another file: {command('init', data, *given, '--out', free)}"
    return UserError(f"exists already{_held(out)}", file=out, remedy=remedy)


def _unused(beside: Path, name: str) -> Path:
    """Return a sweep file of a name, or of it with a number, that is not there."""
    names = (name, *(f"{name}-{n}" for n in range(2, 1000)))
    files = (beside.with_name(f"{each}.toml") for each in names)
    return next(each for each in files if each != beside and not each.exists())


def _held(file: Path) -> str:
    """Return the data and classifiers of a sweep file in short; empty if it is none."""
    try:
        grids = tomllib.loads(file.read_text())["grid"]
        data, models = (
            some([*dict.fromkeys(name for grid in grids for name in grid[axis])], SHOWN)
            for axis in ("dataset", "classifier")
        )
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    return f", with {models} on {data}"


def _printable(line: str) -> str:
    """Return a comment in one line, whatever names of columns and classes hold."""
    return "".join(letter if letter.isprintable() else " " for letter in line)


def _free(name: str) -> str:
    """Return a name of a sweep whose folder does not exist yet."""
    names = (name, f"{name}-sweep", *(f"{name}-sweep-{n}" for n in range(2, 1000)))
    return next(each for each in names if not Path(each).exists())


def _questions(data: FirstData) -> list[str]:
    """Return what to ask about columns, in the words of the file's comments."""
    asked = []
    target, remark = data.options.get(TARGET, ("", ""))
    others = " or ".join(data.others[:SHOWN])
    first = f"--target {shell_word(data.others[0])}" if others else ""
    if remark == LAST:
        instead = f"or {others}? {first}" if others else "else --target"
        asked.append(f"{target}: taken for the classes, as it is the last column; {instead}")
    elif others:
        asked.append(f"target: {target}; or {others}? {first}")
    if data.info.n_dropped and target:
        asked.append(f"{target}: missing in {counted(data.info.n_dropped, 'row')}: left out")
    same, remark = data.options.get(CLASSES, ({}, ""))
    asked += [
        f"{name}: one class of {' and '.join(map(toml_value, members))}, {remark}"
        for name, members in same.items()
        if len(members) > 1
    ]
    ignored = data.options.get("ignore", ((), ""))[0]
    for key in (MARKS, "continuous"):
        if key in data.options:
            value, remark = data.options[key]
            asked.append(f"{key} = {toml_value(value)}: {remark}")
    for column in data.columns:
        name = column.name or NAMELESS
        if column.name == data.options.get(ROW_ID, (None, ""))[0]:
            asked.append(
                f"{name}: names rows in answers; no feature, as it {LEFT_OUT['id']} of rows"
            )
        elif column.name in ignored and not is_unread(column):
            why = LEFT_OUT.get(column.looks, UNREADABLE)
            of_rows = " of rows" if column.looks == "id" and column.rows[2] <= 1 else ""
            shared = _shared(data, column) if column.looks == "id" else ""
            asked.append(f"{name}: left out, as it {why}{of_rows}{shared and f'; {shared}'}")
        elif column.looks in LEFT_OUT and column.kind != "ignored":
            asked.append(f"{name}: taken as a feature, but {LEFT_OUT[column.looks]}{_alone(data)}")
        elif column.looks == "few" and not column.tells:
            declared = f"categorical = [{toml_value(column.name)}]"
            shown = ", ".join(column.shown)
            asked.append(f"{name}: {shown} taken as numbers; if labels: {declared}")
        elif shared := _shared(data, column):
            asked.append(f"{name}: {shared}")
    return asked


def _shared(data: FirstData, column: ColumnInfo) -> str:
    """Say how many rows share a name or a label, where these rows may belong together."""
    values, least, most = column.rows
    if column.tells or most <= 1 or not column.name:
        return ""
    if data.info.group_sizes or data.info.n_test_sets is not None:
        return ""
    each = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    kept = ", not in ignore" if column.name in _set_aside(data) else ""
    together = f"if rows of one belong together: {GROUP} = {toml_value(column.name)}{kept}"
    return f"{values:,} values, each in {each} rows: {together}"


def _alone(data: FirstData) -> str:
    """Say it if there is one feature."""
    return "; there is no other" if data.info.n_features == 1 else ""


def _noted(data: FirstData) -> list[str]:
    """Return the notes on columns and classes that may not be what they seem, as the plan has them.

    Images have others in the file alone.
    """
    written = replace(data.info, columns=_as_written(data))
    columns = replace(written, class_names=(), class_counts=())
    return [*data.notes, *data_notes(columns if data.info.image else written)]


def _as_written(data: FirstData) -> tuple[ColumnInfo, ...]:
    """Return the columns; those of numbers that are not read are ignored."""
    ignored = _set_aside(data)
    return tuple(
        replace(each, kind="ignored") if is_unread(each) and each.name in ignored else each
        for each in data.columns
    )


def _fewer(first: FirstRun) -> Iterator[str]:
    """Yield what the file trains less than usual."""
    fewer = [
        f"{network} for {counted(epochs, 'epoch')}, not the usual {usual:,}"
        for network, epochs in first.epochs.items()
        if epochs < (usual := first.usual[network])
    ]
    if fewer:
        yield f"{', '.join(fewer)}, so that the first run ends within two minutes"
    if first.is_few:
        yield (
            f"runs = {first.runs}, as a fit takes long: too few to tell how much models differ "
            f"between seeds; {RUNS} are usual"
        )


def _seeds_fixed(first: FirstRun) -> list[str]:
    """Return the seeds that code gives a value, without the names of the parts that have them."""
    return [*dict.fromkeys(name.rpartition("__")[2] for name in first.fixed)]


def _seeds(first: FirstRun, model: str | None) -> Iterator[str]:
    """Yield which seeds the model fixes, as runs are to differ by theirs."""
    if first.fixed:
        seeds = "seeds change nothing" if first.steady else "the runs do not differ by it"
        names = ", ".join(_seeds_fixed(first))
        line = toml_value(dict.fromkeys(first.fixed, "batch"))
        yield (
            f"{model}: {names} is fixed, so {seeds}: leave {names} out of the code: {SET_LATER}; "
            f"or add to its table: seeds = {line}"
        )
    if first.alike:
        yield f"{model}: {first.alike}"


def _set_aside(data: FirstData) -> set[str]:
    """Return the columns that are no features."""
    return {*data.options.get("ignore", ((), ""))[0], data.options.get(ROW_ID, ("", ""))[0]}


def _columns_told(data: FirstData) -> Iterator[str]:
    """Yield lines of comments that name all columns: those to ask about, then the others."""
    if not data.columns:
        return
    asked = _questions(data)
    yield from (f"#   {line}" for line in asked)
    ignored = _set_aside(data)
    for kind, word in (("continuous", "numbers"), ("categorical", "labels")):
        names = [
            (column.name or NAMELESS) + (f" ({column.n_labels:,})" if column.n_labels else "")
            for column in data.columns
            if column.kind == kind
            and column.name not in ignored
            and (column.looks != "few" or column.tells)
        ]
        if names:
            text = f"taken as {word}: {', '.join(names)}"
            yield from textwrap.wrap(text, 76, initial_indent="#   ", subsequent_indent="#     ")


def _lines(
    data: FirstData,
    first: FirstRun,
    parts: Sequence[tuple[FirstRun, Mapping[str, Any]]],
    name: str,
    file: Path,
    *,
    submits: bool,
) -> Iterator[str]:
    info = data.info
    yield f"# {command('plan', file, '--dry-run')}   shows what it asks for and what that costs"
    for _, words, does in to_train(file, submits=submits):
        yield f"# {command(*words)}   {does}"
    yield line("name", name)
    yield line("seed", 1, "of all random streams: another seed makes another sweep")
    remark = "test sets: there is only one" if info.n_test_sets == 1 else "test sets"
    few = min(info.n_test_sets or REPEATS, REPEATS) > first.repeats
    yield line("repeats", first.repeats, remark + f"; {REPEATS} are usual" * few)
    remark = "fits that share a test set, each with its own seed"
    yield line("runs", first.runs, remark + f"; {RUNS} are usual" * (first.runs < RUNS))
    grid = varied(arguments(parts[0][1])) if len(parts) == 1 and parts[0][1] else {}
    named = f"[classifier.{toml_key(first.models[0])}]"
    of_grid = line("hparams", ["grid"], f"each value of grid in {named}")
    by_grid = [f"# {of_grid}"] if grid else []
    others = _others(info, first.models)
    drawing = [each for each in first.models if each not in first.steady]
    if drawing:
        yield from _grid(
            data, drawing, first.rows, others=others, has_own=any(table for _, table in parts)
        )
        what = 'of the runs; or one alone: "init", "batch", or "train" for a bootstrap'
        yield line("vary", ["init+batch"], what)
        yield from _perturbations(info, first.rows)
        yield from by_grid
    if first.absent:
        yield f"# {not_trainable(first.absent)}"
        yield f"# {install(lacking_packages(first.absent))}"
    if first.steady:
        names = ", ".join(_seeds_fixed(first))
        fixed = f"{names} is fixed in the model: leave the value out there, and runs = 1 here"
        remark = fixed if names else "what draws no random number"
        yield from _grid(data, first.steady, first.rows, remark)
        why = f"while {names} is fixed, all would be the same model" if names else ""
        same = "the same model for any seed; more with perturb_labels or train_fraction"
        yield line("runs", 1, why or same)
        yield from _perturbations(info, first.rows)
        yield from by_grid
        if others and not drawing:
            beside = f"dataset = {toml_value([data.name])}, classifier = {toml_value(others)}"
            yield f"# to compare it: another [[grid]] with {beside}"
    yield ""
    yield f"# {_rows(info)}"
    yield f"# {_classes(info)}"
    yield from _columns_told(data)
    yield from (f"# {note}" for note in data_notes(replace(info, columns=_as_written(data))))
    yield f"[dataset.{toml_key(data.name)}]"
    yield line(data.key, data.source)
    for key, (value, remark) in data.options.items():
        yield line(key, value, remark)
    if info.n_test_sets is None and not info.group_sizes:
        ignored = _set_aside(data)
        for column in data.columns:
            if column.tells == "group" and column.name:
                instead = ", then not in ignore" if column.name in ignored else ""
                yield f"# {line(GROUP, column.name, f'keeps its rows together{instead}')}"
            elif _shared(data, column):
                instead = ", then not in ignore" if column.name in ignored else ""
                together = f"if rows of one {column.name} belong together{instead}"
                yield f"# {line(GROUP, column.name, together)}"
    if info.n_test_sets != 1:
        yield line("test", 0.25, "share of the rows, drawn for each repeat, stratified")
    built_in = [part for part, table in parts if not table]
    for network, epochs in (each for part in built_in for each in part.epochs.items()):
        yield f"\n[classifier.{network}]"
        most = first.usual[network]
        fewer = f"fewer than the usual {most}, so that all ends within two minutes"
        yield line("epochs", epochs, "as usual: there is time" if epochs == most else fewer)
    for part, table in parts:
        if table:
            yield ""
            yield from table_lines(part, table)


def _others(info: DatasetInfo, models: Sequence[str]) -> list[str]:
    """Return the other classifiers that can be trained on this data here."""
    found = list[str]()
    for name in classifiers.names():
        if name not in models and not classifiers.lacking(name):
            with suppress(Refused):
                classifiers.resolve(name, {}, info)
                found.append(name)
    return found


def _grid(
    data: FirstData,
    models: Sequence[str],
    rows: int,
    remark: str = "every combination of these lists",
    others: Sequence[str] = (),
    has_own: bool = True,
) -> Iterator[str]:
    yield f"\n[[grid]]                   # {remark}"
    yield line("dataset", [data.name])
    beside = f"may stand beside: {', '.join(map(toml_value, others))}" if others else ""
    beside += "" if has_own else f"; your own: {command('docs', 'own')}"
    yield line("classifier", [*models], beside.removeprefix("; "))
    if rows:
        yield line("train_fraction", [rows], "training rows, so that it is ready soon; 1.0: all")


def _perturbations(info: DatasetInfo, rows: int) -> Iterator[str]:
    """Yield comments that show what else a grid may vary."""
    if info.n_continuous and not info.image:
        what = f"on {counted(info.n_continuous, 'continuous feature')}"
        yield f"# {line('perturb_continuous', ['none', 'relative:0.1'], what)}"
    if info.n_categorical:
        what = f"on {counted(info.n_categorical, 'categorical feature')}"
        yield f"# {line('perturb_categorical', ['none', 'value:0.1'], what)}"
    yield f"# {line('perturb_labels', ['none', 'flip:0.1'], 'of training rows: 10 % are wrong')}"
    if not rows:
        yield f"# {line('train_fraction', [0.5, 1.0], 'shares of the training rows')}"


def _rows(info: DatasetInfo) -> str:
    """Return how many rows or images there are, and of what."""
    height, width, channels = info.image or (0, 0, 0)
    rows = f"{info.n_samples:,} {'images' if info.image else 'rows'}"
    if info.n_test_sets == 1:
        rows += f" ({info.n_train:,} to train on, {info.n_test:,} to test)"
    if info.image:
        return f"{rows} of {height} × {width} pixels, {counted(channels, 'channel')}"
    of = counted(info.n_features, "feature")
    lacking = [f"{one.name} {one.n_missing:,}" for one in info.columns if one.n_missing]
    missing = f"; values missing: {some(lacking, SHOWN)}" if lacking else ""
    return f"{rows} of {of}, {info.n_categorical:,} of them categorical{missing}"


def _classes(info: DatasetInfo) -> str:
    counts = info.class_counts or (None,) * len(info.class_names)
    classes = [
        unbroken(label) if count is None else f"{unbroken(label)} ({count:,})"
        for label, count in zip(info.class_names, counts, strict=True)
    ]
    return f"{len(classes)} classes: {some(classes, SHOWN)}"
