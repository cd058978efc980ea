"""The content of the report, made from the result tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from manyseed.analysis.figures.kind import Given
from manyseed.analysis.figures.labels import colour, differing
from manyseed.analysis.figures.svg import Picture
from manyseed.analysis.options import Options
from manyseed.analysis.questions import missing, suspects
from manyseed.analysis.questions.answers import answers
from manyseed.analysis.questions.effects import effects
from manyseed.analysis.questions.intervals import TEST_SETS, too_few
from manyseed.analysis.questions.sentence import Sentence
from manyseed.analysis.report.citations import citations
from manyseed.analysis.report.listed import Listed, filled, listed
from manyseed.analysis.report.methods import of_methods
from manyseed.analysis.report.summary import Rows, summary, varying_axes
from manyseed.analysis.report.worded import conventions, repeats_in_words, snapshots_in_words
from manyseed.analysis.tables import rows
from manyseed.analysis.tables.rows import Tables, at_last


@dataclass(frozen=True, slots=True)
class RunCounts:
    """Runs of the sweep by state; `done` does not include `copies`.

    `analysed` is the number of runs in the tables, less than `finished` if runs finished after the
    analysis; None if unknown. `newer` says so to readers.
    """

    planned: int
    done: int
    copies: int
    failed: int
    missing: int
    analysed: int | None = None
    newer: str = ""

    @property
    def finished(self) -> int:
        """Trained runs and their copies."""
        return self.done + self.copies

    @property
    def shown(self) -> int:
        """Runs that the page's numbers rest on."""
        return self.finished if self.analysed is None else self.analysed


@dataclass(frozen=True, slots=True)
class LinkedSentence:
    """A sentence with the anchor and label of what shows it; both empty if nothing does."""

    text: str
    anchor: str
    label: str


@dataclass(frozen=True, slots=True)
class Context:
    """Everything the page shows.

    Attributes
    ----------
    name : str
        The sweep's name.
    counts : RunCounts
    answers : sequence of LinkedSentence
        The answers, in sentences.
    colours : mapping of str to str
        Colour of each classifier in the figures of datasets; empty if some share one.
    summary : rows
        One per cell (`summary`).
    axes : sequence of str
        The axes in which cells differ.
    repeats : str
        The number of repeats, in words.
    effects, effects_by_dataset : rows
        Differences from the reference of an axis (`effect_rows`), by classifier, and by dataset and
        classifier if there are several datasets.
    figures : sequence of Picture
    switches : sequence of (str, sequence of str)
        Axes in which rows of figures of datasets differ, each with its levels (`switches`).
    notes : sequence of str
        Conventions behind the numbers, a sentence or two each.
    provenance : mapping of str to str
        Versions and the like, given by the caller.
    tables : sequence of Listed
        Further tables, below the effects.
    sweep_file : str
        Its text; empty if there is none.
    citations : sequence of str
    """

    name: str
    counts: RunCounts
    answers: Sequence[LinkedSentence]
    colours: Mapping[str, str]
    summary: Rows
    axes: Sequence[str]
    repeats: str
    effects: Rows
    effects_by_dataset: Rows
    figures: Sequence[Picture]
    switches: Sequence[tuple[str, Sequence[str]]]
    notes: Sequence[str]
    provenance: Mapping[str, str]
    tables: Sequence[Listed]
    sweep_file: str
    citations: Sequence[str]


def context(
    name: str,
    counts: RunCounts,
    tables: Tables,
    options: Options,
    provenance: Mapping[str, str],
    notes: Sequence[str] = (),
    curves: pl.DataFrame | None = None,
    ensembles: pl.DataFrame | None = None,
    uncertainty: pl.DataFrame | None = None,
    dee: pl.DataFrame | None = None,
    tace: pl.DataFrame | None = None,
    ensemble_draws: pl.DataFrame | None = None,
    margins: pl.DataFrame | None = None,
    compared: Tables | None = None,
    variance: pl.DataFrame | None = None,
    sources: pl.DataFrame | None = None,
    sweep_file: str = "",
    responses: pl.DataFrame | None = None,
    response_curves: pl.DataFrame | None = None,
    cmi: pl.DataFrame | None = None,
    further: Sequence[Sentence] = (),
    figures: Sequence[Picture] | None = None,
) -> Context:
    """Make the page's content.

    Parameters
    ----------
    name : str
        The sweep's name.
    counts : RunCounts
    tables : Tables
        With the columns of `analysis.axes.AXES` joined. The summary shows all snapshots, everything
        else each cell's last.
    options : Options
        Those that the tables were computed with.
    provenance : mapping of str to str
        What the results were made with, shown verbatim.
    notes : sequence of str
        Shown with the conventions, e.g. what could not be computed and why.
    curves, ensembles : polars frames or None
        Learning curves (`analysis.figures.curves`), and ensembles by size
        (`analysis.figures.sizes`), if there are any.
    uncertainty, dee, tace : polars frames or None
        Deep ensembles by size, cells compared with them (`analysis.figures.deep`), and calibration
        errors by threshold and bins (`analysis.figures.tace`), likewise.
    ensemble_draws, margins : polars frames or None
        Single ensembles (`analysis.figures.shaded`), and distributions of margins
        (`analysis.figures.margins`), likewise.
    compared : Tables or None
        The tables that effects are computed from; by default `tables`.
    variance : polars frame or None
        The table of variances.
    sources : polars frame or None
        The table of sources of randomness.
    sweep_file : str
        Its text.
    responses, response_curves, cmi : polars frames or None
        Response curves, and what their scores predict, if measured.
    further : sequence of Sentence
        Shown after the answers.
    figures : sequence of Picture or None
        The figures, if they were drawn before from the same tables and options.
    """
    cells, every, tables = tables.cells, tables, at_last(tables)
    several = tables.repeats["dataset"].n_unique() > 1
    own, compared = rows.once(tables), compared or rows.paired(tables)
    if curves is not None:
        curves = curves.join(own.cells, on="cell", how="semi", maintain_order="left")
    if responses is not None and response_curves is not None:
        responses, response_curves = (
            one.join(own.cells, on="cell", how="semi", maintain_order="left")
            for one in (responses, response_curves)
        )
    if figures is None:
        from manyseed.analysis.figures.drawing import all_drawn  # Matplotlib

        given = Given(
            own,
            curves,
            ensembles,
            options.close,
            uncertainty,
            dee,
            responses=responses,
            response_curves=response_curves,
            cmi=cmi,
            tace=tace,
            every=rows.once(every),
            ensemble_draws=ensemble_draws,
            margins=margins,
        )
        figures = all_drawn(given)
    by_classifier = effects(compared, by=("classifier",))
    found = answered(own, by_classifier, variance, options, counts, cmi)
    return Context(
        name=name,
        counts=counts,
        answers=linked([*found, *further], figures),
        colours=colours(own.cells),
        summary=summary(cells),
        axes=varying_axes(cells),
        repeats=repeats_in_words(tables.cells),
        effects=effect_rows(by_classifier),
        effects_by_dataset=effect_rows(effects(compared)) if several else (),
        figures=figures,
        switches=switches(own.cells),
        notes=(
            *notes,
            *missing.notes(own.runs, own.repeats),
            *suspects.notes(own.repeats.lazy(), own.runs.lazy(), options),
            *snapshots_in_words(cells),
            *conventions(tables, options),
        ),
        provenance=provenance,
        tables=[
            filled(one)
            for one in (
                *listed(own, options.close, ensembles, sources),
                *of_methods(uncertainty, dee),
                *_of_responses(responses, cmi),
            )
        ],
        sweep_file=sweep_file,
        citations=citations(
            tables,
            options,
            uncertainty=uncertainty is not None,
            responses=responses is not None,
        ),
    )


def _of_responses(responses: pl.DataFrame | None, cmi: pl.DataFrame | None) -> list[Listed]:
    if responses is None or cmi is None:
        return []
    from manyseed.analysis.report.responses import of_responses  # SciPy

    return [*of_responses(responses, cmi)]


def answered(
    tables: Tables,
    by_classifier: pl.DataFrame,
    variance: pl.DataFrame | None,
    options: Options,
    counts: RunCounts,
    cmi: pl.DataFrame | None = None,
) -> list[Sentence]:
    """Answer for the runs that `counts` says are shown; parameters are those of `answers`."""
    return answers(
        tables,
        by_classifier,
        variance,
        options,
        planned=counts.planned,
        finished=counts.shown if counts.missing or counts.failed else None,
        failed=counts.failed,
        cmi=cmi,
    )


def colours(cells: pl.DataFrame) -> dict[str, str]:
    """Return the colour of each classifier; empty if some would share one."""
    names = cells["classifier"].cast(pl.String).unique().sort().to_list()
    found = {name: colour(index).lower() for index, name in enumerate(names)}
    return found if len(set(found.values())) == len(names) else {}


def switches(cells: pl.DataFrame) -> list[tuple[str, list[str]]]:
    """Return the axes in which cells of a dataset and classifier differ, with their levels."""
    ordered = cells.sort("cell")
    return [
        (name, ordered[name].cast(pl.String).unique(maintain_order=True).to_list())
        for name in differing(cells)
    ]


def linked(found: Sequence[Sentence], figures: Sequence[Picture]) -> tuple[LinkedSentence, ...]:
    """Return sentences with the first of their links that is on the page."""
    labels = {plot.name: f"Figure {number}" for number, plot in enumerate(figures, start=1)}
    labels |= {name: name.capitalize() for name in ("summary", "effects", "conventions")}
    anchors = [next((name for name in one.links if name in labels), "") for one in found]
    return tuple(
        LinkedSentence(one.text, anchor, labels.get(anchor, ""))
        for one, anchor in zip(found, anchors, strict=True)
    )


def effect_rows(found: pl.DataFrame) -> Rows:
    """Return one row per comparison, with its metrics side by side.

    Parameters
    ----------
    found : polars frame
        As `analysis.questions.effects.effects` returns it.

    Returns
    -------
    tuple of mapping
        The row of the first metric, and `of`, the rows of all metrics by name.
    """
    by_metric: dict[tuple[object, ...], dict[str, Mapping[str, Any]]] = {}
    named = [name for name in ("dataset", "classifier") if name in found.columns]
    for row in found.iter_rows(named=True):
        key = tuple(row[name] for name in (*named, "axis", "level"))
        by_metric.setdefault(key, {})[row["metric"]] = row
    return tuple({**next(iter(of.values())), "of": of} for of in by_metric.values())


def few_test_sets(rows: Rows) -> str:
    """Say that intervals of some row of `effect_rows` rest on too few test sets; else empty."""
    of = [effect for row in rows for effect in row["of"].values()]
    return too_few(min((one["n_test_sets"] for one in of if one["over"] == TEST_SETS), default=0))
