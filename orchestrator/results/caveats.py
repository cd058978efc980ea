"""What readers must know: what is missing, could not be computed, or is to be distrusted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl

from manyseed.analysis.counts import counted, fixed, some
from manyseed.analysis.options import Options
from manyseed.analysis.questions.question import shortest
from manyseed.analysis.tables.rows import last, several
from manyseed.orchestrator.asking.grouping import planned
from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.computing.tables import Analysis, Results
from manyseed.orchestrator.computing.tables import not_computed as not_computed
from manyseed.orchestrator.computing.tables import of_probabilities as of_probabilities
from manyseed.orchestrator.errors import ManyseedError, toml_value
from manyseed.orchestrator.paths import WARNED, SweepPaths, restoring
from manyseed.orchestrator.survey import covered, survey

if TYPE_CHECKING:
    from manyseed.jobs.datasets.info import DatasetInfo
    from manyseed.orchestrator.provenance import Recipe

LEVEL = 0.05  # probability of telling a difference between recipes, where there is none

_LISTED = 3
FEW_POINTS = 10
"""With fewer test points than this in a class, each moves the class's accuracy by over a tenth."""


def recipes_of(paths: SweepPaths) -> Mapping[int, Recipe]:
    """Return what is recorded of recipes; nothing if a file is damaged, which others report."""
    from manyseed.orchestrator.provenance import read_recipes

    try:
        return read_recipes(paths.recipes)
    except (ManyseedError, OSError):
        return {}


def amounts(record: Analysis) -> str | None:
    """Say how many runs were analysed, out of how many; None if the analysis did not record it."""
    if not (runs := record.runs):
        return None
    text = "Analysed {analysed:,} of {finished:,} finished runs, of {planned:,} planned.".format(
        **runs
    )
    if runs["analysed"] == runs["finished"]:
        return text
    return f"{text} The others are published by the tasks that train, or once these have ended."


def incomplete(tables: Results) -> list[str]:
    """Say what is not finished, and whether that depends on accuracy, one sentence each."""
    from manyseed.analysis.questions.caveats import missing_notes

    sentences = []
    repeats = last(tables["repeats"])
    if tables.plan is not None:
        cells = planned(tables.plan).unique("cell", maintain_order=True)
        without = cells.join(repeats, on="cell", how="anti", maintain_order="left")
        groups = [" × ".join(row) for row in without.select("dataset", "classifier").rows()]
        if groups:
            has = "has" if len(groups) == 1 else "have"
            n = f"{len(groups):,} of {cells.height:,} cells {has} no finished run that was analysed"
            sentences = [f"{n}: {some(list(dict.fromkeys(groups)), _LISTED)}."]
    names = ("cell", "repeat_index", "dataset", "classifier", "accuracy", "fit_seconds")
    runs = last(tables.scan("runs"))
    columns = runs.collect_schema()
    with tables.damage_named("runs"):
        read = runs.select(name for name in names if name in columns).collect()
    return [*sentences, *missing_notes(read, repeats)]


def outdated(record: Analysis, ensembles: pl.DataFrame | None) -> list[str]:
    """Say whose ensembles were left out and not drawn again since; `ensembles` is their table."""
    again = set()
    if ensembles is not None:
        rows = ensembles.select("dataset", "classifier").unique().iter_rows()
        again = {f"{dataset} × {classifier}" for dataset, classifier in rows}
    groups = [name for name in record.outdated if name not in again]
    if not groups:
        return []
    return [
        f"Ensembles of {some(groups, _LISTED)} are left out: their predictions have changed since "
        "they were drawn. manyseed howmany draws them again."
    ]


def undefined(repeats: pl.DataFrame) -> list[str]:
    """Say which groups have runs whose scores are not numbers."""
    affected = repeats.filter(pl.col("n_undefined") > 0)
    by_group = affected.group_by(
        "dataset", "classifier", *_epoch(repeats), maintain_order=True
    ).agg(pl.col("n_undefined").sum())
    return [
        f"{dataset} × {classifier}{_at(epoch)}: {runs:,} {'run has' if runs == 1 else 'runs have'} "
        "scores that are not numbers. Such a run has no α̂ and no probabilities, and is in no "
        "reference and no ensemble."
        for dataset, classifier, *epoch, runs in by_group.iter_rows()
    ]


COMPARED = ("recipe", "dataset", "classifier", "cell", "repeat_index", "accuracy", "identical")
"""Columns of runs that `mixed` needs, if the version that analysed them wrote the first."""


_KINDS = {
    "own": "code of your own",
    "code": "manyseed's code",
    "python": "versions of Python",
    "packages": "library versions",
    "device": "kinds of processors",
    "device_class": "kinds of processors",
    "threads": "numbers of threads",
    "precision": "precisions",
    "tuned": "tuned hparams",
    "form": "several at once",
    "members": "several at once",
}


def _ways(runs: pl.DataFrame, recipes: Mapping[int, Recipe]) -> str:
    """Say in what recipes of runs differ, and how many runs are unlike most.

    `runs`: columns recipe and identical, of one dataset and classifier.
    """
    numbers = runs.filter(~pl.col("identical"))["recipe"].drop_nulls()
    counts = numbers.value_counts().sort("count", "recipe", descending=[True, False])
    known = [recipes[number] for number in counts["recipe"] if number in recipes]
    found = dict[str, None]()
    for one in known[1:]:
        for name, (before, after) in known[0].changes(one).items():
            if name == "own" and isinstance(before, Mapping) and isinstance(after, Mapping):
                differ = sorted(key for key in before if before[key] != after.get(key))
                which = ", ".join(dict.fromkeys(key.rpartition("@")[0] for key in differ))
                found[f"{_KINDS[name]}: {which}" if which else _KINDS[name]] = None
            elif name in _KINDS:
                found[_KINDS[name]] = None
    others = f"{counts['count'][1:].sum():,} of {counted(numbers.len(), 'run')} unlike the others"
    if len(known) < counts.height or not found:
        return ""
    return f"{', '.join(found)}; {others}"


def mixed(runs: pl.DataFrame, recipes: Mapping[int, Recipe] | None = None) -> list[str]:
    """Say of which classifiers runs were made in several ways, and whether these differ.

    `runs` is the table of runs at one snapshot, with at least the columns `COMPARED`. `recipes`:
    what is recorded of them, by number.
    """
    if "recipe" not in runs.columns:  # of an earlier version
        return []
    from manyseed.analysis.questions.caveats import recipes_compared

    sentences = []
    for row in recipes_compared(runs).iter_rows(named=True):
        where = f"{row['dataset']} × {row['classifier']}"
        own = runs.filter(*(pl.col(name) == row[name] for name in ("dataset", "classifier")))
        which = _ways(own, recipes or {}) or (
            "code of your own, library versions, kinds of processors, precisions, or several at "
            "once"
        )
        ways = f"in several ways ({which})"
        if row["shared"]:
            n, of = row["shared"], counted(row["sets"], "repeat")
            made = f"{where}: in {n:,} of {of}, runs were made {ways}"
        else:
            made = f"{where}: runs of different repeats were made {ways}"
        if row["p"] is None:
            why = "too few of them share" if row["shared"] else "no two of them share"
            told = f"whether these differ cannot be told, as {why} a cell and test set"
        elif row["p_holm"] < LEVEL:
            told = (
                f"these differ beyond chance: by {fixed(row['moved'])} in accuracy (p = "
                f"{row['p_holm']:.2g}). Results pool them; take one alone with --where "
                '"recipe = 1" on the table runs'
            )
        else:
            told = (
                f"no difference between these is established (by {fixed(row['moved'])} in "
                "accuracy, "
                f"p = {row['p_holm']:.2g}), and results pool them"
            )
        sentences.append(f"{made}; {told}. manyseed status DIR RUN says how a run was made.")
    return sentences


def guesses(repeats: pl.DataFrame, most: pl.DataFrame) -> list[tuple[str, str]]:
    """Say which classifiers are no better than the most frequent class: a headline, the evidence.

    Parameters are those of `analysis.questions.caveats.guessing`.
    """
    from manyseed.analysis.questions.caveats import guessing

    found = guessing(repeats, most)
    alike: dict[tuple[str, str], list[tuple[str, pl.DataFrame, int, str]]] = {}
    for names, own in found.group_by("dataset", "classifier", maintain_order=True):
        dataset, classifier = map(str, names)
        of = repeats.filter(
            pl.col("dataset").cast(pl.String) == dataset,
            pl.col("classifier").cast(pl.String) == classifier,
        )["cell"].n_unique()
        row = own.row(0, named=True)
        where = f" in {own.height:,} of {of:,} cells" if of > 1 else ""
        first = f"Cell {row['cell']}: " if of > 1 else ""
        is_above = bool((own["accuracy"] > own["share"]).any())
        verdict = f"{'not told to be' if is_above else 'no'} better than the most frequent class"
        text = (
            f"{dataset} × {classifier}: {verdict}{where} ({_range(own['accuracy'])}). "
            f"{first}{fixed(row['accuracy'])} of the test points are right, "
            f"and that class has {fixed(row['share'])} of them (n = "
            f"{counted(row['sets'], 'test set')} of {row['points']:,} points). "
            f"{_what_to_do(repeats, row['cell'])}{_few_epochs(repeats, row['cell'])}"
        )
        alike.setdefault((dataset, verdict), []).append((classifier, own, of, text))
    return [_together(dataset, verdict, own) for (dataset, verdict), own in alike.items()]


def _together(
    dataset: str, verdict: str, own: Sequence[tuple[str, pl.DataFrame, int, str]]
) -> tuple[str, str]:
    """Say of classifiers what is true of each: in how many of their cells, if not in all."""
    names, tables, there, texts = zip(*own, strict=True)
    cells, every = pl.concat(tables), sum(there)
    where = f" in {cells.height:,} of {every:,} cells" if cells.height < every else ""
    said = f"{dataset} × {some(names, 3)}{where}: {verdict}"
    values = f"{_range(cells['accuracy'])} against {_range(cells['share'])}"
    return shortest([f"{said}, {values}.", f"{said}."]), " ".join(texts)


def _range(values: pl.Series) -> str:
    """Return the least and the largest value, or the one that they are."""
    ends = (float(end) for end in values.sort()[[0, -1]])
    return " to ".join(dict.fromkeys(fixed(end, 3) for end in ends))


_TELLS = 0.6  # area under the ROC curve from which scores are said to tell classes apart


def _what_to_do(repeats: pl.DataFrame, cell: int) -> str:
    """Say whether to look at the labels, or to ask for a metric that counts classes alike."""
    if "roc_auc_mean" in repeats.columns:
        area = repeats.filter(cell=cell)["roc_auc_mean"].mean()
        if isinstance(area, float) and area > _TELLS:
            return (
                "Scores tell classes apart all the same (area under the ROC curve "
                f"{fixed(area, 2)}): a metric that counts classes alike says more, as in "
                "manyseed query DIR -t runs --by classifier --columns balanced_accuracy --agg "
                "mean,sd."
            )
    return "Check the labels, and the order of classes in what the classifier returns."


_FEW_EPOCHS = 20  # what networks have by default


def _few_epochs(repeats: pl.DataFrame, cell: int) -> str:
    """Say of a network that guesses that it may be trained for too few epochs."""
    if "epoch" not in repeats.columns:  # of an earlier version
        return ""
    epochs = int(repeats.filter(cell=cell)["epoch"].max() or 0)  # type: ignore[arg-type]
    if not 0 < epochs < _FEW_EPOCHS:
        return ""
    return f" Its {counted(epochs, 'epoch')} may also be too few: try epochs = {5 * epochs}."


_MOST_WARNED = 20


def imported(paths: SweepPaths) -> list[tuple[str, str]]:
    """Return what imports warned of, as its first sentence and the whole.

    It stands in comments of the sweep file, until the user takes these out.
    """
    try:
        lines = paths.sweep_file.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []
    told = [line.removeprefix(WARNED) for line in lines if line.startswith(WARNED)][:_MOST_WARNED]
    told = ["".join(filter(str.isprintable, one)) for one in told]
    ends = [re.search(r"[.?](?= [A-Z])|$", one) for one in told]
    return [
        (
            f"{one[: end.end()]}" if end else one,
            f"The import warned: {one} Once it is settled, take this line out of sweep.toml.",
        )
        for one, end in zip(told, ends, strict=True)
    ]


def leaks(dataset: str, info: DatasetInfo) -> list[tuple[str, str]]:
    """Say which features of a file tell more than they should: a headline, and the evidence."""
    from manyseed.orchestrator.grids.plannotes import NAMELESS

    sentences = []
    for column in info.columns:
        name, values = column.name or NAMELESS, column.rows[0]
        ignore = f"ignore = [{toml_value(column.name)}]"
        if column.kind == "ignored" or not column.tells:
            continue
        if column.tells == "target":
            target = info.canonical.get("target", "the class")
            said = f"{dataset}: {name} tells {target} by itself"
            what = "so accuracy says nothing of other features. If it is not a feature"
            why = f"each of its {values:,} values has one class, {what}: {ignore}"
        elif not info.group_sizes and info.n_test_sets is None:
            said = f"{dataset}: rows of one {name} may be in both training part and test set"
            what = f"may be known by its {name}. group = {toml_value(column.name)} tells"
            why = (
                f"each of its {values:,} values has one class, so a test point's class {what} how "
                "accurate classifiers are on new ones"
            )
        else:
            continue
        sentences.append((f"{said}.", f"{said}: {why}."))
    return sentences


def small_classes(repeats: pl.DataFrame) -> list[str]:
    """Say where a class has few test points or none, so that means over classes mean little."""
    if "smallest_class" not in repeats.columns:  # of an earlier version
        return []
    sets = (
        repeats.filter(pl.col("smallest_class").is_not_null())
        .group_by("dataset", "repeat_index", maintain_order=True)
        .agg(pl.col("smallest_class").first())
        .group_by("dataset", maintain_order=True)
        .agg(
            pl.len().alias("all"),
            (pl.col("smallest_class") == 0).sum().alias("without"),
            (pl.col("smallest_class") < FEW_POINTS).sum().alias("few"),
            pl.col("smallest_class").filter(pl.col("smallest_class") > 0).min().alias("fewest"),
        )
    )
    sentences = []
    for dataset, n, without, few, fewest in sets.iter_rows():
        if without:
            sentences.append(
                f"{dataset}: a class has no test point in {without:,} of {_sets(n)}. roc_auc and "
                "average_precision may be undefined there; means over classes are over the others."
            )
        if few > without:
            points = "1 point" if fewest == 1 else f"{fewest:,} points"
            sentences.append(
                f"{dataset}: the smallest class has {points} in a test set (fewer than "
                f"{FEW_POINTS} in {few - without:,} of {_sets(n)}). balanced_accuracy, f1_macro, "
                "roc_auc and average_precision depend on single points of it."
            )
    return sentences


def _sets(n: int) -> str:
    return f"{n:,} test set{'s' if n > 1 else ''}"


def of_columns(names: Sequence[str]) -> list[str]:
    """Return caveats for the columns that are shown."""
    if not any(name == "ece" or name.startswith("ece_") for name in names):
        return []
    return [
        "Do not choose runs by ece: it depends on the size of the test set and on the bins, and "
        "can be small for an uninformative run. Choose by log_likelihood or brier."
    ]


def of_ranking(frame: pl.DataFrame, options: Options) -> list[str]:
    """Return caveats for a ranking that is shown: what it ranks by, and what δ hides."""
    basis = (
        "accuracy is optimistic: runs are ranked by it. manyseed analyze DIR --holdout 0.5 ranks "
        "them by one half of the test points and reports holdout_accuracy, on the other."
        if options.holdout is None
        else f"Runs are ranked by {1 - options.holdout:.0%} of the test points; holdout_accuracy "
        "is measured on the others."
    )
    return [basis, *_undecided(frame, "close", options)]


def of_sources(frame: pl.DataFrame, options: Options) -> list[str]:
    """Return caveats for the sources of randomness that are shown: what δ hides."""
    return _undecided(frame, "n_close", options)


def _undecided(frame: pl.DataFrame, column: str, options: Options) -> list[str]:
    if column not in frame.columns or frame[column].null_count() == 0:
        return []
    from manyseed.analysis.alphahat.trimming import points_needed  # imports numba

    points = points_needed(options.close, options.epsilon)
    return [
        f"{column} is empty where it can't be said whether runs are close: δ is above "
        f"{options.close:g} (or there is no α̂). About {points:,} test points per side would "
        "be enough."
    ]


def problems(repeats: pl.DataFrame) -> list[str]:
    """Say which repeats could not be analysed, and why."""
    affected = repeats.filter(pl.col("problem").is_not_null())
    return [
        f"cell {row['cell']} ({row['dataset']} × {row['classifier']}), repeat "
        f"{row['repeat_index']}{_at([row[name] for name in _epoch(repeats)])}: {row['problem']}"
        for row in affected.iter_rows(named=True)
    ]


def _epoch(repeats: pl.DataFrame) -> list[str]:
    """Return the name of the column that tells snapshots apart, if there are several."""
    return ["epoch"] if several(repeats) else []


def _at(epoch: list[int]) -> str:
    return "".join(f" at epoch {number}" for number in epoch if number > 0)


def newer(paths: SweepPaths) -> str:
    """Say which finished runs the results are not of, or which dropped ones they hold, if any."""
    try:
        n, dropped = covered(paths, state := survey(paths))
    except (ManyseedError, OSError):
        return ""  # whoever needs what is damaged reports it
    finished = state.counts["done"] + state.counts["copy"]
    again = f"`{paths.analysing}`"
    also = f"of {counted(dropped, 'run')} that {'was' if dropped == 1 else 'were'} dropped"
    if n < finished:
        more = f", and {also}" if dropped else ""
        return (
            f"These results are of {n:,} of {finished:,} finished runs{more}; {again} for the rest."
        )
    return f"These results are also {also}; {again} leaves them out." if dropped else ""


def tell_newer(paths: SweepPaths) -> None:
    """Warn if runs have finished or were dropped since the last analysis, or a file is lost."""
    if paths.lost == paths.sweep_file:
        warn(f"{paths.sweep_file} is absent: {restoring(paths)}. Results are read without it.")
    if text := newer(paths):
        warn(text)
