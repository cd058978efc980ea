"""What no name in files says, such as which are the true classes: in words, what is needed."""

from __future__ import annotations

import glob
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl

from manyseed.analysis.counts import some
from manyseed.orchestrator.errors import Lacking, Unread, UserError, shell_word
from manyseed.orchestrator.importing.frames import TABLES, read_by, read_frame
from manyseed.orchestrator.importing.mapping import Values
from manyseed.orchestrator.importing.models import entry_names
from manyseed.orchestrator.importing.predictions import PredictionFile, as_comment
from manyseed.orchestrator.importing.rows import excluding
from manyseed.orchestrator.paths import WARNED
from manyseed.orchestrator.plans.layout import PAIR
from manyseed.orchestrator.plans.plan import Plan

_SHOWN = 10  # columns in a message
_OURS = ("scores", "logits", "prediction", "row_id", "run", "repeat", "fold")
"""Names that say what is meant: no true classes."""
_WHAT = {
    "truth": "the true classes",
    "y_true": "the true classes",
    "prediction": "the predicted classes",
    "scores": "the predictions",
    "labels": "the predicted classes",
}


def without_names(error: Unread, meant: Mapping[str, Any]) -> UserError | None:
    """Return an error that says what is lacking where options would have no names; else None.

    `meant`: the options that seem to be meant, with ``NAME`` or ``FILE`` for what is not known.
    """
    pairs = [pair for of in meant.values() if isinstance(of, Mapping) for pair in of.items()]
    lacking = [own for own, of in pairs if of == "NAME"]
    lacking += ["y_true"] * (meant.get("truth") == "FILE")
    if not lacking:
        return None
    file = error.file
    assert file is not None  # it is of a file's names
    if lacking == ["y_true"] and {*meant} > {"truth"}:
        before = (
            "if another file holds the true classes, name it with --truth; if none does, save "
            "them as y_true.npy, one class for each test point, in the order of the predictions: "
        )
        return Unread(error.message, file=file, key=error.key, options=meant, before=before)
    known = {own: of for own, of in pairs if of != "NAME"}
    first, _, lead = error.before.partition("\n")  # the last line leads to a command
    remedy = "\n  ".join([*[first] * bool(lead), *_needed(Path(file), lacking, known)])
    return UserError(error.message, file=file, key=error.key, remedy=remedy)


def _needed(file: Path, lacking: list[str], known: Mapping[str, str]) -> Iterator[str]:
    is_table = file.suffix in TABLES
    option = "--columns" if is_table else "--key"
    names = list[str]()
    with suppress(UserError):
        names = read_frame(file, ()).columns if is_table else entry_names(file)
    forms = [re.sub(r"\\\{\w+\\\}", ".+", re.escape(form)) for form in known.values()]
    free = [name for name in names if not any(re.fullmatch(form, name) for form in forms)]
    free = [name for name in free if name not in _OURS and names != [name]]
    rest = ",".join(f"{own}={shell_word(of)}" for own, of in known.items())
    for own in lacking:
        if own not in _WHAT:
            continue
        what = _WHAT[own]
        if own in ("truth", "y_true"):
            ids = f" and {known['row_id']}" if "row_id" in known else ""
            how = f"y_true.csv, columns y_true{ids}" if is_table else "y_true.npy"
            order = "" if ids else ", in the order of the predictions"
            yield (
                f"if another file holds {what}, name it with --truth; if none does, save them "
                f"beside {file.name} as {how}, one class for each test point{order}, and repeat "
                "this command"
            )
        if free or (names and own not in ("truth", "y_true")):
            yield f"of {some(names, _SHOWN)}, no name says that it holds {what}"
        if free:
            given = ",".join([f"{own}={shell_word(free[0])}", *[rest] * bool(rest)])
            others = ", or so with another's name" * (len(free) > 1)
            yield f"if {free[0]} does, say {option} {given}{others}"
        elif rest:
            yield f"the others seem to be {option} {rest}"
        if own not in ("truth", "y_true") and not free:
            yield f"save them in {file.name}, too, and repeat this command"
    if "run" in lacking:
        id_of = known.get("row_id", "row_id")
        yield (
            "no column numbers the runs; if they follow one another, add one, and repeat this "
            f"command: frame.with_columns(run=pl.int_range(pl.len()).over({id_of!r}))"
        )
    if "row_id" in lacking:
        yield (
            "no column names the test points, and their place does not, as the true classes of a "
            "fold are sorted, or there are several repeats; add one, such as row_id, with the "
            "index of each row's point in the data set, and repeat this command"
        )


def lacking_runs(
    sources: Sequence[PredictionFile], gone: Collection[tuple[str | None, int]]
) -> Iterator[str]:
    """Yield which classifiers lack runs, by number, that others of a data set have.

    `gone`: classifier and number of the runs that the user left out.
    """
    of_each = {
        (one.dataset, one.classifier): {*one.runs.select("repeat", "run").rows()}
        for one in sources
        if one.numbered
    }
    for dataset in dict.fromkeys(dataset for dataset, _ in of_each):
        own = {name: runs for (of, name), runs in of_each.items() if of == dataset}
        every = set().union(*own.values())
        for name, runs in own.items():
            missing = sorted(one for one in every - runs if (name, one[1]) not in gone)
            if not missing or 2 * len(missing) >= len(every):
                continue
            has = [other for other, theirs in own.items() if {*missing} <= theirs]
            numbers = some([str(run) for _, run in missing], _SHOWN)
            yield (
                f"{name} lacks {'run' if len(missing) == 1 else 'runs'} {numbers}, which "
                f"{some(has or [other for other in own if other != name], 3)} "
                f"{'has' if len(has or own) == 1 else 'have'}. Did it fail?"
            )


_LACKS = re.compile(r" lacks runs? (?P<runs>[0-9, ]+)(?P<more> and [0-9,]+ more)?(?=, which )")


def without_settled(text: str, plan: Plan) -> str:
    """Return a sweep file's text with what `lacking_runs` told only of runs that are lacking still.

    Runs that a user left out are not told anew: of those named, some may be there now.
    """
    rows = plan.rows.join(plan.cells.select("cell", *PAIR), on="cell")
    every = rows.select("dataset", "repeat", "run").unique()
    lacking = {
        as_comment(name): {
            run
            for dataset in rows.filter(classifier=name)["dataset"].unique()
            for run in every.filter(dataset=dataset).join(
                rows.filter(classifier=name), on=["dataset", "repeat", "run"], how="anti"
            )["run"]
        }
        for name in rows["classifier"].unique()
    }
    lines = []
    for line in text.split("\n"):
        told = line.removeprefix(WARNED)
        found = None if told == line else _LACKS.search(told)
        if found is None or told[: found.start()] not in lacking:
            lines.append(line)
            continue
        still = lacking[told[: found.start()]]
        named = {int(run) for run in re.findall(r"\d+", found["runs"])}  # users edit this file
        left = sorted(still if found["more"] else still & named)
        if {*left} >= named:
            lines.append(line)
        elif left:
            runs = f"{'run' if len(left) == 1 else 'runs'} {some([*map(str, left)], _SHOWN)}"
            ends = told[: found.start()], told[found.end() :]
            lines.append(f"{WARNED}{ends[0]} lacks {runs}{ends[1]}")
    return "\n".join(lines)


_MEASURE = re.compile(
    r"((y|train|test|val|valid|eval|mean|macro|micro|weighted|balanced|top[\W_]?[0-9]+)[\W_]*)*"
    r"(acc(uracy)?|err(or)?(_?rate)?|f1|auc|auroc|roc_?auc|precision|recall|mcc|kappa|loss|nll|ece"
    r"|brier|log_?loss|metric|score)([\W_]*(macro|micro|weighted|score|mean|test|val))*",
    re.IGNORECASE,
)


def require_predictions(frame: pl.DataFrame, meant: Mapping[str, str], file: Path) -> None:
    """Refuse a table of measures of each run, which has no predictions."""
    own = {"prediction", "confidence", "logits", "truth"}
    if any(meant.get(name, "NAME") != "NAME" for name in own) or own & {*frame.columns}:
        return
    texts = [
        {*one.unique()} for one in frame if one.dtype == pl.String and one.is_duplicated().any()
    ]
    if any(one & other for at, one in enumerate(texts) for other in texts[:at]):
        return  # true and predicted classes
    named = [name for name in frame.columns if _MEASURE.fullmatch(name)]
    if held := [name for name in named if frame[name].dtype.is_numeric()]:
        what = "is a measure of each run, but predictions of each test point are needed"
        remedy = (
            "which points runs get right, how runs agree and how sure a mean is of other test sets "
            "cannot be told from it; save truth and prediction of each test point, in a file for "
            "each run, and import these"
        )
        raise UserError(what, file=file, key=held[0], remedy=remedy)


def lacking_cells(
    frame: pl.DataFrame, name: str, is_missing: pl.Series, values: Values, path: Path
) -> UserError:
    """Return the error for missing values of a column, with the runs that have them.

    `values`: what else is known of the rows, such as their classifier.
    """
    n, first, model = is_missing.sum(), frame.filter(is_missing), dict(values).get("classifier")
    what = f"has missing values: {n:,} of {len(frame):,}"
    remedy = "fill them in, or leave these rows' test points out of all runs"
    places = ""
    if name != "row_id" and "row_id" in frame.columns:
        rows = "row" if n == 1 else "rows"
        places = f"{rows} {some(first['row_id'].cast(pl.String).to_list(), 3)}"
    if name not in ("run", "repeat") and "run" in frame.columns:
        runs = [str(one) for one in first["run"].unique(maintain_order=True)]
        of = f" of {model}" if model else ""
        # a name may have what a pattern, or a list in an option, reads otherwise
        left = None if model is None else glob.escape(model).replace(",", "?")
        return Lacking(
            int(n),
            len(frame),
            where=f"{'run' if len(runs) == 1 else 'runs'} {some(runs, 5)}{of}",
            excluded=[excluding(left, run) for run in runs],
            rows=f"{places} of " if places else "",
            file=path,
            key=name,
        )
    what += f", in {places}" * bool(places)
    if model:
        what += f", of {model}"
    return UserError(what, file=path, key=name, remedy=remedy)


def repeated_rows(frame: pl.DataFrame, n: int, path: Path) -> UserError:
    """Return the error for rows that are there twice, `n` of them in one run."""
    every = max(n, frame.height - frame.unique().height)
    are = "1 row is" if every == 1 else f"{every:,} rows are"
    kept = f"{read_by(path)}.unique(maintain_order=True)"
    remedy = f"keep each once: {kept}, without a column that numbers lines"
    return UserError(f"{are} repeated exactly", file=path, remedy=remedy)
