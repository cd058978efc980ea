"""A sweep's answers: kept by the analysis in ``answers.json``, or worked out from its tables.

The sentences depend on the tables, the conventions and the code that words them, all of which are
recorded beside them: a file of others is not used. How many runs are missing is counted anew.
And what a paper says of the sweep: its methods.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import polars as pl

from manyseed.analysis.axes import AXES, level_told
from manyseed.analysis.questions.question import Answer, Reply, incomplete
from manyseed.analysis.version import wording_version
from manyseed.jobs.cells import consumed
from manyseed.orchestrator.computing.tables import (
    CMI,
    POINTS,
    TABLES,
    VARIANCE,
    Analysis,
    read_results,
)
from manyseed.orchestrator.disk.parquet import checksum
from manyseed.orchestrator.disk.records import read_json, write_json
from manyseed.orchestrator.errors import (
    DamagedFile,
    UserError,
    require_one_of,
)
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.provenance import read_recipes
from manyseed.orchestrator.results import caveats
from manyseed.orchestrator.results.questions.registry import AskedSweep, evidence, on_page
from manyseed.orchestrator.results.testclasses import most_frequent
from manyseed.orchestrator.survey import survey

if TYPE_CHECKING:
    from manyseed.jobs.datasets.info import DatasetInfo

_READ = (*TABLES, VARIANCE, CMI, POINTS)  # the tables that sentences are made from, if they exist


def answers(paths: SweepPaths, where: str | None = None) -> list[Answer]:
    """Return the answers that the page begins with: headlines, evidence, and figures of it.

    `where`: a condition on cells, of which alone they then are.
    """
    read_results(paths)
    record = Analysis.read(paths)
    if where is not None:
        told = _worked_out(paths, record, where)
        own = on_page(paths, ours=True, where=where)
        return [*_sentences(told["first"]), *_sentences(told["rest"]), *own]
    found = _kept(paths, record) or _worked_out(paths, record)
    counts = survey(paths).counts
    sentences = {name: _sentences(found[name]) for name in ("first", "rest")}
    short: Iterable[Answer] = ()
    finished = counts["done"] + counts["copy"]
    if found["repeats"] is not None and finished < counts["runs"]:
        finished = record.runs.get("analysed", finished)
        lacking, repeats = found["repeats"]
        short = incomplete(lacking, repeats, counts["runs"], finished, counts["failed"])
    further = further_answers(paths, record, found.get("further"))
    return [*sentences["first"], *short, *sentences["rest"], *further]


def further_answers(
    paths: SweepPaths, record: Analysis, kept: Sequence[Mapping[str, Any]] | None = None
) -> list[Answer]:
    """Return the answers to questions that are no sentences of the analysis, and what has none."""
    if kept is None:
        ours = on_page(paths, ours=True)
    else:
        lists = ("details", "figures")
        ours = [Answer(**{**one, **{name: tuple(one[name]) for name in lists}}) for one in kept]
    return [*ours, *on_page(paths, ours=False), *unanswered(record)]


def unanswered(record: Analysis) -> list[Answer]:
    """Return a sentence on what was asked of probabilities and cannot be computed, if anything."""
    caveat = " ".join(caveats.of_probabilities(record))
    headline = "Of probabilities, not all can be computed."
    figures = ("conventions",)
    return [Answer(headline, evidence=caveat, figures=figures, about="probabilities")] * bool(
        caveat
    )


def keep(paths: SweepPaths) -> None:
    """Write the sentences for the tables on disk."""
    record = Analysis.read(paths)
    further = {"further": [asdict(one) for one in on_page(paths, ours=True)]}
    write_json(
        paths.answers, {"of": _identity(paths, record), **_worked_out(paths, record), **further}
    )


def _identity(paths: SweepPaths, record: Analysis) -> dict[str, object]:
    """Return what sentences are made from."""
    warned = [text for _, text in caveats.imported(paths)]
    tables = {name: record.tables[name] for name in _READ if name in record.tables}
    found: dict[str, object] = {"tables": tables, "options": record.options}
    if warned:
        found["warned"] = warned
    return {**found, "wording": wording_version()}


def _kept(paths: SweepPaths, record: Analysis) -> Mapping[str, Any] | None:
    """Return the sentences on disk; None unless they were made from the tables beside them."""
    try:
        kept = read_json(paths.answers)
        if (
            not isinstance(kept, dict)
            or kept.get("of") != _identity(paths, record)
            or not record.tables
        ):
            return None
        tables: Mapping[str, str] = kept["of"]["tables"]
        if any(checksum(paths.table(name)) != written for name, written in tables.items()):
            return None
    except (FileNotFoundError, DamagedFile):  # the tables' own damage is reported on reading them
        return None
    return kept


def _worked_out(paths: SweepPaths, record: Analysis, where: str | None = None) -> Mapping[str, Any]:
    """Make the sentences from the tables; `first` are on recipes, before those on missing runs."""
    from manyseed.analysis.questions.question import answers, short_repeats

    of, tables = evidence(paths, where)
    mixed = [
        Answer(
            f"{text.partition(': ')[0]}: runs were made in several ways{_in_what(text)}"
            f"{'; these differ beyond chance' * ('these differ beyond chance' in text)}.",
            evidence=text,
            figures=("provenance",),
            about="recipes",
        )
        for text in caveats.mixed(tables.runs, caveats.recipes_of(paths))
    ]
    doubtful = [
        Answer(headline, evidence=text, figures=("classifiers", "summary"), about="accuracy")
        for headline, text in doubts(paths, of.tables.repeats)
    ]
    every = of.tables if of.every is None else of.every
    most = of.most_frequent
    found = answers(every, of.effects, of.variance, of.options, cmi=of.cmi, most_frequent=most)
    return {
        "first": [_kept_of(one) for one in (*mixed, *doubtful)],
        "repeats": short_repeats(of.tables),
        "rest": [_kept_of(one) for one in found],
    }


def _in_what(text: str) -> str:
    """Return what recipes differ in as a sentence on them says it, if that is known."""
    told = re.search(r" \([^()]*; [\d,]+ of [\d,]+ runs? unlike the others\)(?=; )", text)
    return told[0] if told else ""


def doubts(paths: SweepPaths, repeats: pl.DataFrame) -> list[tuple[str, str]]:
    """Say what imports warned of, which features tell too much, and which classifiers nothing.

    Files that are not there any more, and lost predictions, are left out. `repeats`: that table at
    one snapshot.
    """
    plan, told = Plan.read(paths), caveats.imported(paths)
    datasets = plan.cells.unique("dataset", maintain_order=True).select("dataset", "canonical")
    for name, text in datasets.iter_rows():
        canonical = json.loads(text).get("dataset", {})
        if canonical.get("source") == "file" and (info := _resolved(paths, name, canonical)):
            told += caveats.leaks(name, info)
    most = most_frequent(paths, plan).cast({"repeat_index": repeats["repeat_index"].dtype})
    return [*told, *caveats.guesses(repeats, most)]


def _kept_of(one: Answer) -> dict[str, Any]:
    kept = {"about": one.about, "headline": one.headline, "text": one.text}
    return {**kept, "links": list(one.figures)}


def _sentences(kept: list[dict[str, Any]]) -> list[Answer]:
    return [
        Answer(
            one["headline"],
            evidence=one["text"],
            figures=tuple(one["links"]),
            about=one["about"],
        )
        for one in kept
    ]


def methods(sweep: AskedSweep, metric: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Write the methods of a paper: what was trained, how results were made, and what to cite.

    Data, classifiers with their settings, sources of randomness, numbers of runs, metrics and
    intervals, versions and seeds, of the plan and the result tables; what they do not know is left
    out. ``[@key]`` in Python's texts is a citation.

    Parameters
    ----------
    sweep : AskedSweep
        A planned sweep.
    metric : sequence of str, optional
        Describe only these metrics, those of the paper's tables, such as accuracy,churn.
    """
    from manyseed.analysis.report.wording import Study
    from manyseed.analysis.report.wording import methods as worded

    paths = sweep.readable
    plan, counts = Plan.read(paths), survey(paths).counts
    cells = plan.cells.join(plan.extents, on="cell").sort("cell")
    recipes = read_recipes(paths.recipes).values()
    codes = sorted({code for one in recipes for code in (one.own or {}).values()})
    versions: dict[str, dict[str, None]] = {}
    for code in codes:
        words = [] if code.startswith(DIGEST) else code.split()
        for name, version in zip(words[::2], words[1::2], strict=False):
            versions.setdefault(name, {})[version] = None
    for one in recipes:
        python = {"Python": one.python} if one.python else {}
        for name, version in ({**(one.packages or {}), **python}).items():
            versions.setdefault(name, {})[version] = None
    descriptions = [json.loads(text) for text in cells["canonical"]]
    reached: dict[str, set[str]] = {}
    kinds = cells.sort("classifier", "cell").unique(["classifier", "vary"], maintain_order=True)
    for name, cell in kinds.select(pl.col("classifier").cast(pl.String), "cell").iter_rows():
        reached.setdefault(name, set()).update(consumed(plan.cell(cell)))
    found = Study(
        cells=cells.select("cell", *AXES, "repeats", "runs"),
        counts=counts,
        datasets=_datasets(paths, dict(zip(cells["dataset"], descriptions, strict=True))),
        descriptions=[
            _acting(one, scheme)
            for one, scheme in zip(descriptions, cells["perturb_hparams"], strict=True)
        ],
        imported=plan.is_imported,
        versions={name: list(of) for name, of in versions.items()},
        libraries=_imported(paths, codes),
        devices=sorted({one.where for one in recipes if one.device}),
        reached=dict(sorted(reached.items())),
        identical=cells.filter("identical", pl.col("runs") > 1)["cell"].to_list(),
        **_analysed(paths, metric),
    )
    return [*worded(found)]


def _acting(description: dict[str, Any], scheme: str) -> dict[str, Any]:
    """Return a cell's description without hparams that have no effect under the others' values."""
    from manyseed.jobs.classifiers import idle

    classifier, hparams = description.get("classifier", {}), description.get("hparams", {})
    if not hparams:
        return description
    unused = idle(classifier, hparams, scheme)
    kept = {name: value for name, value in hparams.items() if name not in unused}
    return {**description, "hparams": kept}


DIGEST = "sha256:"
"""How the digest of local code begins; libraries have their name and version instead."""


def _imported(paths: SweepPaths, codes: Sequence[str]) -> list[str] | None:
    """Return the modules that users' own code imports; None if a copy of it is lost.

    The copies are parsed, never imported.
    """
    from manyseed.jobs.checks import Refused
    from manyseed.jobs.own.copies import imported

    found: set[str] = set()
    for code in codes:
        if not code.startswith(DIGEST):
            continue
        files = sorted(paths.code(code).rglob("*.py"))
        if not files:
            return None
        for file in files:
            with suppress(OSError, Refused, RecursionError, MemoryError):
                found.update(imported("", "", file, file.read_bytes()))
    return sorted(found)


def _datasets(
    paths: SweepPaths, canonical: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return what is known of each dataset, by name."""
    found: dict[str, dict[str, Any]] = {}
    for spec in Groups.read(paths).specs:
        of = canonical.get(spec.dataset, {}).get("dataset", {})
        if spec.dataset in found:
            continue
        info = _resolved(paths, spec.dataset, of)
        train = {name: getattr(info, name) for name in _COUNTED} if info else {}
        if info:
            train["largest_test"] = info.largest_test
            train["n_ignored"] = sum(column.kind == "ignored" for column in info.columns)
        sizes = {"n_classes": len(spec.class_names), "n_test": spec.samples}
        lost = {"not_found": True} if info is None and of.get("source") == "file" else {}
        found[spec.dataset] = {**of, **sizes, **train, **lost}
    return found


def training_rows(paths: SweepPaths, names: Sequence[str]) -> dict[str, int]:
    """Return the number of training rows of these datasets, of those that are there."""
    plan = Plan.read(paths).cells.filter(pl.col("dataset").is_in([*names])).unique("dataset")
    found = _datasets(
        paths, {n: json.loads(one) for n, one in plan.select("dataset", "canonical").rows()}
    )
    return {name: found[name]["n_train"] for name in names if "n_train" in found.get(name, {})}


_COUNTED = ("n_samples", "n_features", "n_categorical", "n_train")
_CATALOGUE = ("file", "sklearn:", "torchvision:", "synthetic:", "openml:")


def _resolved(paths: SweepPaths, name: str, canonical: Mapping[str, Any]) -> DatasetInfo | None:
    """Return a dataset of the catalogue, or of a file that is there, if it is the planned one.

    Files are sought from the working folder, and beside the sweep's directory.
    """
    from manyseed.jobs.checks import Refused
    from manyseed.jobs.datasets.sources import resolve
    from manyseed.orchestrator.grids.loading import read_sweep_file

    if not str(canonical.get("source")).startswith(_CATALOGUE):
        return None
    with suppress(UserError, Refused):
        table = read_sweep_file(paths.sweep_file).dataset.get(name)
        options = {} if table is None else table.options()
        source = (table and table.source) or name
        kind, _, file = source.partition(":")
        beside = paths.directory.resolve().parent / file
        for place in (source, f"file:{beside}") if kind == "file" else (source,):
            with suppress(Refused):
                if (info := resolve(place, **options)).canonical == canonical:
                    return info
    return None


_METRICS = ("accuracy", "ece", "log_likelihood", "brier", "cll", "aurc")


def _analysed(paths: SweepPaths, chosen: Sequence[str]) -> dict[str, Any]:
    """Return what is known of the analysis; nothing if there is none."""
    from manyseed.analysis.figures.labels import labelled
    from manyseed.analysis.report.paired import PAIRED

    if not paths.analysis.exists():
        if chosen:
            raise UserError(
                "nothing is analysed yet",
                key="--metric",
                value=[*chosen],
                remedy=paths.analysing,
            )
        return {}
    results, record = read_results(paths), Analysis.read(paths)
    tables = results.of_analysis((), whole=True)
    columns = json.loads(results.metadata("runs").get("columns", "{}"))
    known = [name for name in _METRICS if name in columns and tables.runs[name].count()]
    for one in chosen:
        require_one_of(one, (*known, *PAIRED), "not a metric of these results", key="--metric")
    known = [name for name in known if name in chosen] if chosen else known
    return {
        "chosen": chosen,
        "tables": tables,
        "options": record.conventions(paths),
        "analysed": record.runs.get("analysed", tables.runs.height),
        "metrics": {labelled(name): columns[name]["meaning"] for name in known},
        "has": [*results],
        "effects": _references(results["effects"]) if "effects" in results else {},
    }


def _references(effects: pl.DataFrame) -> dict[str, str]:
    """Return the reference level of each axis that has effects, in the order of axes."""
    found = effects.select("axis", "reference").cast(pl.String).unique().sort("reference")
    of: dict[str, list[str]] = {}
    for axis, level in found.rows():
        of.setdefault(axis, []).append(level_told(axis, level))
    return {axis: " or ".join(of[axis]) for axis in AXES if axis in of}


def reply(sections: Sequence[tuple[str, str]]) -> Reply:
    """Return the sections as answers, and what they cite."""
    from manyseed.analysis.report.citations import STUDIES

    cited = dict.fromkeys(key for _, text in sections for key in re.findall(r"\[@(\w+)\]", text))
    sources = {key: STUDIES[key] for key in cited}

    def plain(text: str) -> str:
        return re.sub(r"\[@(\w+)\]", lambda of: f"({STUDIES[of[1]].short})", text)

    answers = [
        Answer(name, (plain(text),), [{"section": name, "text": text}]) for name, text in sections
    ]
    values = {
        "sections": [{"name": name, "text": text} for name, text in sections],
        "references": {key: one.text for key, one in sources.items()},
    }
    listed = [f"{one.short}: {one.text}" if one.year else one.text for one in sources.values()]
    return Reply(answers, values, notes=listed, apart=True, sources=sources)
