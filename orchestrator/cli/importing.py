"""Where an import goes, and what one that is refused proposes: a whole command that works."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from manyseed.analysis.counts import counted, some, unbroken
from manyseed.orchestrator.calls import told_by
from manyseed.orchestrator.cli.output import briefly
from manyseed.orchestrator.errors import (
    Lacking,
    ManyseedError,
    SeveralModels,
    Spoilt,
    Unread,
    UserError,
    command,
)
from manyseed.orchestrator.importing import import_predictions
from manyseed.orchestrator.importing.conversion import FORMATS, is_folder, spread
from manyseed.orchestrator.importing.filenames import common_name
from manyseed.orchestrator.importing.matching import ELSEWHERE, imported_plan
from manyseed.orchestrator.importing.patterns import Pattern, without_excluded
from manyseed.orchestrator.importing.predictions import TRUTHS, left_out, shown_below
from manyseed.orchestrator.importing.truths import one_truth
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import Plan


def typed(
    files: Sequence[Path],
    out: Path | None,
    options: Mapping[str, Any],
    meant: Mapping[str, Any],
    into: Path | None = None,
) -> str:
    """Return an import as it was typed, up to what is meant: its last options."""
    own = {name for value in meant.values() if isinstance(value, Mapping) for name in value}
    words: list[object] = [] if out is None else ["--out", out]
    for name in ("dataset", "classifier", "truth", "classes", "runs", "probability", "name"):
        is_usual = name == "probability" and options[name] == "softmax"
        if options[name] and not is_usual and name not in {*own, *meant}:
            words += [f"--{name}", options[name]]
    for name, listed in options["classifiers"].items():
        words += [word for file in listed for word in ("--classifier", f"{name}={file}")]
    for name in ("columns", "key"):
        if options[name] and name not in meant:
            pairs = (f"{ours}={theirs}" for ours, theirs in options[name].items())
            words += [f"--{name}", ",".join(pairs)]
    if options.get("exclude"):
        words += ["--exclude", ",".join(options["exclude"])]
    if options["probabilities"]:
        words.append("--probabilities")
    start = command("import", *([into] if into else []))
    return " ".join([start, *briefly([*files]), shlex.join(map(str, words)), ""])


_MOST_SHOWN = 5


def test_sets_of(directory: Path) -> Iterator[str]:
    """Yield how many points and which classes each dataset has, so that a misreading is seen."""
    specs = {spec.dataset: spec for spec in Groups.read(SweepPaths(directory)).specs}
    for spec in [*specs.values()][:_MOST_SHOWN]:
        names = some([*map(unbroken, spec.class_names)], _MOST_SHOWN)
        of = f"  {spec.dataset}: " if len(specs) > 1 else "  "
        yield f"{of}{spec.samples:,} test points, {len(spec.class_names):,} classes: {names}"


def accuracies(right: Mapping[tuple[str, str], Sequence[float]]) -> Iterator[str]:
    """Yield how many runs each classifier has, and the range of their accuracies.

    `right`: accuracies by dataset and classifier.
    """
    datasets = {dataset for dataset, _ in right}
    for (dataset, classifier), of in [*right.items()][:_MOST_LISTED]:
        name = f"{dataset} × {classifier}" if len(datasets) > 1 else classifier
        low, high = (f"{one:.3f}" for one in (min(of), max(of)))
        span = low if low == high else f"{low} to {high}"
        yield f"  {name}: {counted(len(of), 'run')}, accuracy {span}"
    if (more := len(right) - _MOST_LISTED) > 0:
        yield f"  and {more:,} more"


_MOST_LISTED = 12


def into_of(files: Sequence[Path], out: Path | None) -> Path | None:
    """Return the directory to add to, which stands before the files; others hold predictions."""
    if not files or not files[0].is_dir():
        return None
    is_meant = SweepPaths(files[0]).is_sweep or (out is None and len(files) > 1)
    return files[0] if is_meant else None


def directory_of(
    into: Path | None, out: Path | None, files: Sequence[Path], options: Mapping[str, Any]
) -> Path:
    """Return the directory to make or to add to; exactly one must be given."""
    if into is not None and out is not None:
        raise UserError(
            "names a new directory, but one to add the files to is given before them",
            key="--out",
            value=str(out),
            remedy=f"leave out --out to add them, or {into} to make a new directory",
        )
    if into is None and out is None:
        remedy = "name a new one with --out DIR, or an existing import before the files"
        if files or options["classifiers"]:
            remedy = f"a new one: {_made(files, _free(files, options), options)}"
        raise UserError("there is no directory to import into", remedy=remedy)
    if out is not None and out.exists():
        raise _taken(out, files, options)
    directory = into or out
    assert directory is not None
    return directory


def with_place(
    error: UserError,
    into: Path | None,
    out: Path | None,
    files: Sequence[Path],
    options: Mapping[str, Any],
) -> UserError:
    """Return an error with the commands that import the files elsewhere, or without the odd one."""
    if isinstance(error, Lacking) and (left := _left_out(error, into, out, files, options)):
        error.remedy = f"fill them in, or leave these runs out: {left}"
        return error
    if isinstance(error, SeveralModels):
        dataset = options["dataset"] or (None if into else error.dataset)
        made = {**options, "dataset": dataset, "classifier": None, "classifiers": error.files}
        made |= {"key": {}, "name": None, "exclude": None}
        error.remedy = error.then(f"import them: {typed([], out, made, {}, into).strip()}")
        return error
    without = _without(error, into, out, files, options)
    if into is not None and error.remedy and ELSEWHERE in error.remedy:
        error.remedy = error.remedy.replace(ELSEWHERE, _apart(into, files, options))
    if without:
        error.remedy = "\n  ".join(filter(None, (error.remedy, without)))
    return error


def _left_out(
    error: Lacking,
    into: Path | None,
    out: Path | None,
    files: Sequence[Path],
    options: Mapping[str, Any],
) -> str:
    """Return the command that imports all but the runs in which values are missing, if it can."""
    left = [*(options.get("exclude") or ())]
    found: UserError | None = error
    for _ in range(_MOST_SHOWN):
        if isinstance(found, Lacking):  # values of another column
            left += found.excluded
            found = _tried(files, into or out or Path(), {**options, "exclude": left})
    kept = {**options, "exclude": left}
    return typed(files, out, kept, {}, into).strip() if found is None else ""


def _without(
    error: UserError,
    into: Path | None,
    out: Path | None,
    files: Sequence[Path],
    options: Mapping[str, Any],
) -> str:
    """Return how to import all files but those that an error blames, if the others can be."""
    directory = into or out
    if directory is None or error.file is None or options["classifiers"]:
        return ""
    with told_by(lambda _: None), suppress(ManyseedError, OSError):
        found: UserError | None = error
        each, of_each = _each(files, options)
        (each,) = without_excluded([each], options.get("exclude") or ())
        names, left = shown_below(each), list[Path]()
        kept, given = each, {**of_each, "exclude": None}
        most, is_long = (len(each) - 1) // 2, len(each) > _MOST_NAMED
        if not isinstance(error, Spoilt):
            found = _tried(kept, directory, given)
        while found is not None and not isinstance(found, Unread):
            several = found.files if isinstance(found, Spoilt) else []
            faulty = several or [Path(str(found.file))]
            most += len(several)  # of which nothing can be read
            if not {*faulty} <= {*each} - {*left} or len(left) + len(faulty) > most:
                return ""
            left += faulty
            kept = [one for one in each if one not in left]
            if not kept:
                return ""
            if is_long:
                excluded = [*(options.get("exclude") or ()), *(names[one] for one in left)]
                kept, given = [*files], {**options, "exclude": excluded}
            found = _tried(kept, directory, given)
        options = given
        meant = found.options if found is not None else {}
        if not left or {"NAME", "FILE"} & {str(one) for one in meant.values()}:
            return ""
        it = "it" if len(left) == 1 else some([one.name for one in left], _MOST_SHOWN)
        more = found.given if found is not None else ""
        return f"to leave {it} out: {typed(kept, out, options, meant, into)}{more}".strip()
    return ""


_MOST_NAMED = 8  # files in a command


def _each(
    files: Sequence[Path], options: Mapping[str, Any]
) -> tuple[list[Path], Mapping[str, Any]]:
    """Return the files that folders stand for, and the options with which they are the same."""
    truths: list[Path] = []
    folder = next((file for file in files if is_folder(file)), None)
    form = Pattern(options["name"]) if options["name"] else None
    own = [Path(one) for one in (options["truth"], options["runs"]) if one]
    kept = [*files] if form is None else form.files(files, FORMATS, own)
    kept = left_out([one for file in kept for one in spread(file, truths)], own)
    if folder is None:
        return kept, options
    if form is not None:
        truths = [one for one in kept if one.stem in TRUTHS]
        kept = [one for one in kept if one not in truths]
    if truths and not options["truth"]:
        options = {**options, "truth": one_truth(truths)}
    parts = {*options["columns"], *(() if form is None else form.parts)}
    if not options["dataset"] and "dataset" not in parts:
        options = {**options, "dataset": folder.resolve().name}
    return kept, options


def _taken(out: Path, files: Sequence[Path], options: Mapping[str, Any]) -> UserError:
    """Return the error for a directory that is there, to which the files may be added."""
    error = UserError("exists already", file=out, remedy=None)
    try:
        imported_plan(SweepPaths(out))
    except Exception:  # whatever it is, or is wrong with it
        error.remedy = f"name another: {_made(files, _other(out), options)}"
        return error
    found = _tried(files, out, {**options, "adding": True})
    if found is None:
        added = typed(files, None, options, {}, out).strip()
        error.remedy = f"to add these runs to it: {added}\n  or {_apart(out, files, options)}"
    elif "in the sweep already" in found.message:
        error.remedy = f"it holds these runs: {command('analyze', out)}"
    else:
        error.remedy = f"these cannot be added to it: {found.what}\n  {_apart(out, files, options)}"
    return error


def _apart(into: Path, files: Sequence[Path], options: Mapping[str, Any]) -> str:
    other = _free(files, options)
    with suppress(ManyseedError):  # what is called otherwise is not compared
        datasets = Plan.read(SweepPaths(into)).cells["dataset"].unique().to_list()
        if len(datasets) == 1 and not options["dataset"] and "dataset" not in options["columns"]:
            options = {**options, "dataset": datasets[0]}
    made = _made(files, other, options)
    new = [one for one in (into, other) if not SweepPaths(one).analysis.exists()]
    steps = [made, *(command("analyze", one) for one in new), command("compare", into, other)]
    return f"import them into a directory of their own: {'; '.join(steps)}"


def _made(files: Sequence[Path], out: Path, options: Mapping[str, Any]) -> str:
    """Return the command that imports files into a directory, with what they need for that."""
    found = _tried(files, out, {**options, "adding": False})
    meant = found.options if isinstance(found, Unread) else {}
    given = found.given if isinstance(found, Unread) else ""
    return f"{typed(files, out, options, meant)}{given}".strip()


def _tried(files: Sequence[Path], out: Path, options: Mapping[str, Any]) -> UserError | None:
    """Return the error with which an import would end."""
    try:
        with told_by(lambda _: None):
            import_predictions(files, out, tried=True, **options)
    except UserError as error:
        return error
    return None


def _free(files: Sequence[Path], options: Mapping[str, Any]) -> Path:
    """Return a directory that is not there, named like the data set, the files or their folder."""
    every = [*files, *(file for listed in options["classifiers"].values() for file in listed)]
    name = options["dataset"]
    if not name:
        name = every[0].resolve().stem if len(every) == 1 else common_name(every)
    plain = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in name)
    return _other(Path(plain.lstrip("._-") or "imported"))


def _other(out: Path) -> Path:
    """Return a path itself if it is free, else with a suffix."""
    names = [out, out.with_name(f"{out.name}-sweep")]
    names += [out.with_name(f"{out.name}-{number}") for number in range(2, 1000)]
    return next((one for one in names if not one.exists()), out)
