"""A sweep's answers: kept by the analysis in ``answers.json``, or worked out from its tables.

The sentences depend on the tables, the conventions and the code that words them, all of which are
recorded beside them: a file of others is not used. How many runs are missing is counted anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from manyseed.analysis.questions.sentence import Sentence, incomplete
from manyseed.analysis.version import wording_version
from manyseed.orchestrator.computing.tables import (
    CMI,
    DRAWN_PAIRS,
    TABLES,
    VARIANCE,
    Analysis,
    read_results,
)
from manyseed.orchestrator.disk.parquet import checksum
from manyseed.orchestrator.disk.records import read_json, write_json
from manyseed.orchestrator.errors import DamagedFile
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.results import caveats
from manyseed.orchestrator.survey import survey

_READ = (*TABLES, VARIANCE, CMI)
"""The tables that sentences are made from, if they exist."""


def answers(paths: SweepPaths) -> list[Sentence]:
    """Return the sentences that the page begins with.

    Each has its `text`, what it is `about`, and `links` to the parts of the page that show it.
    """
    read_results(paths)
    record = Analysis.read(paths)
    found = _kept(paths, record) or _worked_out(paths, record)
    counts = survey(paths).counts
    sentences = {name: _sentences(found[name]) for name in ("first", "rest")}
    short: Iterable[Sentence] = ()
    finished = counts["done"] + counts["copy"]
    if found["repeats"] is not None and finished < counts["runs"]:
        finished = record.runs.get("analysed", finished)
        lacking, repeats = found["repeats"]
        short = incomplete(lacking, repeats, counts["runs"], finished, counts["failed"])
    return [*sentences["first"], *short, *sentences["rest"], *unanswered(record)]


def unanswered(record: Analysis) -> list[Sentence]:
    """Return a sentence on what was asked of probabilities and cannot be computed, if anything."""
    caveat = " ".join(caveats.of_probabilities(record))
    return [Sentence("probabilities", caveat, ("conventions",))] if caveat else []


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
    from manyseed.analysis.questions.answers import answers, short_repeats
    from manyseed.analysis.questions.effects import effects
    from manyseed.analysis.tables.rows import at_last, last, once, paired
    from manyseed.orchestrator.asking.effects import compared

    results = read_results(paths)
    tables = at_last(results.of_analysis(DRAWN_PAIRS, whole=True))
    pairs = compared(results) or paired(tables)
    variance = last(results[VARIANCE]) if VARIANCE in results else None
    by_classifier = effects(pairs, by=("classifier",))
    own, options = once(tables), record.conventions(paths)
    mixed = [Sentence("recipes", text, ("provenance",)) for text in caveats.mixed(tables.runs)]
    found = answers(own, by_classifier, variance, options, cmi=results.get(CMI))
    return {
        "first": [asdict(one) for one in mixed],
        "repeats": short_repeats(own),
        "rest": [asdict(one) for one in found],
    }


def _sentences(kept: list[dict[str, Any]]) -> list[Sentence]:
    return [Sentence(one["about"], one["text"], tuple(one["links"])) for one in kept]
