"""A sweep's answers: kept by the analysis in ``answers.json``, or worked out from its tables.

The sentences depend on the tables, the conventions and the code that words them, all of which are
recorded beside them: a file of others is not used. How many runs are missing is counted anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from manyseed.analysis.questions.points import LISTED, answer, by_point
from manyseed.analysis.questions.question import Answer, incomplete
from manyseed.analysis.version import wording_version
from manyseed.orchestrator.computing.tables import (
    CMI,
    POINTS,
    TABLES,
    VARIANCE,
    Analysis,
    Results,
    read_results,
)
from manyseed.orchestrator.disk.parquet import checksum
from manyseed.orchestrator.disk.records import read_json, write_json
from manyseed.orchestrator.errors import DamagedFile
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.results import caveats
from manyseed.orchestrator.results.questions.registry import evidence, on_page
from manyseed.orchestrator.survey import survey

_READ = (*TABLES, VARIANCE, CMI)  # the tables that sentences are made from, if they exist


def answers(paths: SweepPaths) -> list[Answer]:
    """Return the answers that the page begins with: headlines, evidence, and figures of it."""
    read_results(paths)
    record = Analysis.read(paths)
    found = _kept(paths, record) or _worked_out(paths, record)
    counts = survey(paths).counts
    sentences = {name: _sentences(found[name]) for name in ("first", "rest")}
    short: Iterable[Answer] = ()
    finished = counts["done"] + counts["copy"]
    if found["repeats"] is not None and finished < counts["runs"]:
        finished = record.runs.get("analysed", finished)
        lacking, repeats = found["repeats"]
        short = incomplete(lacking, repeats, counts["runs"], finished, counts["failed"])
    return [*sentences["first"], *short, *sentences["rest"], *further_answers(paths, record)]


def further_answers(paths: SweepPaths, record: Analysis) -> list[Answer]:
    """Return the answers to questions that are no sentences of the analysis, and what has none."""
    return [*on_page(paths), *unanswered(record)]


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
    write_json(paths.answers, {"of": _identity(record), **_worked_out(paths, record)})


def _identity(record: Analysis) -> dict[str, object]:
    """Return what sentences are made from."""
    tables = {name: record.tables[name] for name in _READ if name in record.tables}
    return {"tables": tables, "options": record.options, "wording": wording_version()}


def _kept(paths: SweepPaths, record: Analysis) -> Mapping[str, Any] | None:
    """Return the sentences on disk; None unless they were made from the tables beside them."""
    try:
        kept = read_json(paths.answers)
        if not isinstance(kept, dict) or kept.get("of") != _identity(record) or not record.tables:
            return None
        tables: Mapping[str, str] = kept["of"]["tables"]
        if any(checksum(paths.table(name)) != written for name, written in tables.items()):
            return None
    except (FileNotFoundError, DamagedFile):  # the tables' own damage is reported on reading them
        return None
    return kept


def _worked_out(paths: SweepPaths, record: Analysis) -> Mapping[str, Any]:
    """Make the sentences from the tables; `first` are on recipes, before those on missing runs."""
    from manyseed.analysis.questions.question import answers, short_repeats

    of, tables = evidence(paths)
    mixed = [
        Answer(
            f"{text.partition(': ')[0]}: runs were made in several ways"
            f"{'; these differ beyond chance' * ('these differ beyond chance' in text)}.",
            evidence=text,
            figures=("provenance",),
            about="recipes",
        )
        for text in caveats.mixed(tables.runs)
    ]
    found = answers(of.tables, of.effects, of.variance, of.options, cmi=of.cmi)
    return {
        "first": [_kept_of(one) for one in mixed],
        "repeats": short_repeats(of.tables),
        "rest": [_kept_of(one) for one in found],
    }


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


def points(results: Results, *, where: str | None = None, limit: int = LISTED) -> list[Answer]:
    """Say which test points flip between runs, and which labels are likely wrong.

    A point flips between two runs of a cell on one test set if they predict different classes.
    A label is likely wrong where nearly every run (95 %) of every classifier predicts another
    class, if there are more such points than classifiers have in common that err independently.
    Rows of all points: manyseed query DIR -t points.

    Parameters
    ----------
    results : Results
    where : str, optional
        Only rows of the table of points that meet a condition.
    limit : int
        Points to list of each kind.
    """
    if POINTS not in results:  # of an earlier version
        return []
    from manyseed.orchestrator.conditions import wanted

    with results.damage_named(POINTS):
        rows = results.scan(POINTS)
        rows = rows.filter(wanted(where, rows.collect_schema(), "--where"))
        return answer(rows, by_point(rows), limit)
