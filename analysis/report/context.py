"""What the report says, made from the result tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.figures.described import differing
from manyseed.analysis.figures.given import Given
from manyseed.analysis.figures.kinds import all_figures
from manyseed.analysis.figures.style import Plot, colour
from manyseed.analysis.options import Options
from manyseed.analysis.questions import missing, suspects
from manyseed.analysis.questions.answers import Sentence, answers
from manyseed.analysis.questions.effects import effects
from manyseed.analysis.report.citations import citations
from manyseed.analysis.report.listed import Listed, filled, listed
from manyseed.analysis.report.methods import of_methods
from manyseed.analysis.report.responses import of_responses
from manyseed.analysis.report.worded import conventions, repeats_in_words, snapshots_in_words
from manyseed.analysis.tables import twins
from manyseed.analysis.tables.schema import Tables
from manyseed.analysis.tables.snapshots import at_last, several

Rows = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class RunCounts:
    """Runs of the sweep by state: `copies` are not among the done.

    `analysed` ones are what the tables hold, fewer than the finished where these were not all there
    when the sweep was analysed; None where that is not known.
    """

    planned: int
    done: int
    copies: int
    failed: int
    missing: int
    analysed: int | None = None

    @property
    def finished(self) -> int:
        """Runs that are trained, and copies of such."""
        return self.done + self.copies

    @property
    def shown(self) -> int:
        """Runs that the page's numbers are over."""
        return self.finished if self.analysed is None else self.analysed


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence, and where it is shown: an anchor, and what that is called; empty for nowhere."""

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
    answers : sequence of Said
        What the tables say, in sentences.
    colours : mapping of str to str
        Of each classifier in the figures of datasets; empty where some share one.
    summary : rows
        One for each cell (`summary`).
    axes : sequence of str
        In what cells differ.
    repeats : str
        How many there are, in words.
    effects, effects_by_dataset : rows
        Differences to the reference of an axis (`effect_rows`), by classifier, and by dataset and
        classifier where there are several datasets.
    figures : sequence of Plot
    switches : sequence of (str, sequence of str)
        In what the rows of figures of datasets differ, each with its levels (`switches`).
    notes : sequence of str
        Conventions behind the numbers, a sentence or two each.
    provenance : mapping of str to str
        Versions and the like, given by the caller.
    tables : sequence of Listed
        Further ones, below the effects.
    sweep_file : str
        Its text; empty where there is none.
    citations : sequence of str
    """

    name: str
    counts: RunCounts
    answers: Sequence[Said]
    colours: Mapping[str, str]
    summary: Rows
    axes: Sequence[str]
    repeats: str
    effects: Rows
    effects_by_dataset: Rows
    figures: Sequence[Plot]
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
) -> Context:
    """Make the page's content.

    Parameters
    ----------
    name : str
        The sweep's name.
    counts : RunCounts
    tables : Tables
        With the columns of `analysis.axes.AXES` joined. Of several snapshots the summary shows
        all, everything else each cell's last.
    options : Options
        As the tables were computed with.
    provenance : mapping of str to str
        What the results were made with, shown as it is.
    notes : sequence of str
        Said beside the conventions, e.g. what could not be computed and why.
    curves, ensembles : polars frames or None
        Learning curves (`analysis.figures.curves`), and ensembles by size
        (`analysis.figures.sizes`), where there are any.
    uncertainty, dee, tace : polars frames or None
        Deep ensembles by size, cells compared with them (`analysis.figures.deep`), and calibration
        errors by threshold and bins (`analysis.figures.tace`), likewise.
    ensemble_draws, margins : polars frames or None
        Single ensembles (`analysis.figures.shaded`), and distributions of margins
        (`analysis.figures.margins`), likewise.
    compared : Tables or None
        What effects are taken of, by default `tables`.
    variance : polars frame or None
        The table of variances.
    sources : polars frame or None
        The table of sources of randomness.
    sweep_file : str
        Its text.
    responses, response_curves, cmi : polars frames or None
        Response curves, and what their scores predict, where they were measured.
    further : sequence of Sentence
        Said after the answers.
    """
    cells, every, tables = tables.cells, tables, at_last(tables)
    several = tables.repeats["dataset"].n_unique() > 1
    own, compared = twins.once(tables), compared or twins.paired(tables)
    if curves is not None:
        curves = curves.join(own.cells, on="cell", how="semi", maintain_order="left")
    if responses is not None and response_curves is not None:
        responses, response_curves = (
            one.join(own.cells, on="cell", how="semi", maintain_order="left")
            for one in (responses, response_curves)
        )
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
        every=twins.once(every),
        ensemble_draws=ensemble_draws,
        margins=margins,
    )
    figures = all_figures(given)
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
                *of_responses(responses, cmi),
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


def answered(
    tables: Tables,
    by_classifier: pl.DataFrame,
    variance: pl.DataFrame | None,
    options: Options,
    counts: RunCounts,
    cmi: pl.DataFrame | None = None,
) -> list[Sentence]:
    """Answer what tables of one snapshot answer, the same fits once, over the runs that are shown.

    Parameters
    ----------
    tables : Tables
    by_classifier : polars frame
        Their effects by classifier (`analysis.questions.effects.effects`).
    variance : polars frame or None
        The table of variances.
    options : Options
    counts : RunCounts
    cmi : polars frame or None
        What scores of response curves predict.
    """
    return answers(
        tables,
        by_classifier,
        variance,
        options,
        planned=counts.planned,
        finished=counts.shown,
        failed=counts.failed,
        cmi=cmi,
    )


def colours(cells: pl.DataFrame) -> dict[str, str]:
    """Return the colour of each classifier; none where some would share one."""
    names = cells["classifier"].cast(pl.String).unique().sort().to_list()
    found = {name: colour(index).lower() for index, name in enumerate(names)}
    return found if len(set(found.values())) == len(names) else {}


def switches(cells: pl.DataFrame) -> list[tuple[str, list[str]]]:
    """Return in what cells of a dataset and classifier differ, each with its levels, in order."""
    ordered = cells.sort("cell")
    return [
        (name, ordered[name].cast(pl.String).unique(maintain_order=True).to_list())
        for name in differing(cells)
    ]


def linked(found: Sequence[Sentence], figures: Sequence[Plot]) -> tuple[Said, ...]:
    """Return sentences with the first of their links that is on the page."""
    there = {plot.name: f"Figure {number}" for number, plot in enumerate(figures, start=1)}
    there |= {name: name.capitalize() for name in ("summary", "effects", "conventions")}
    said = []
    for one in found:
        anchor = next((name for name in one.links if name in there), "")
        said.append(Said(one.text, anchor, there.get(anchor, "")))
    return tuple(said)


def effect_rows(found: pl.DataFrame) -> Rows:
    """Return one row for each comparison, its metrics side by side.

    Parameters
    ----------
    found : polars frame
        As `analysis.questions.effects.effects` returns it.

    Returns
    -------
    tuple of mapping
        What is the same for all metrics, as it stands for accuracy, and `of`: a row of `found` by
        the name of its metric.
    """
    by_metric: dict[tuple[object, ...], dict[str, Mapping[str, Any]]] = {}
    named = [name for name in ("dataset", "classifier") if name in found.columns]
    for row in found.iter_rows(named=True):
        key = tuple(row[name] for name in (*named, "axis", "level"))
        by_metric.setdefault(key, {})[row["metric"]] = row
    return tuple({**next(iter(of.values())), "of": of} for of in by_metric.values())


def summary(cells: pl.DataFrame) -> Rows:
    """Return the rows of the summary: those of the table of cells, by dataset and classifier.

    None is averaged with another: cells with and without a scheme, with all and half of the data
    are different trainings. `copies` are the runs that are copies of another, `same_as` is the cell
    that counts where a cell's fits are another's.
    """
    if twins.SAME_AS not in cells.columns:
        cells = cells.with_columns(pl.lit(None, pl.UInt32).alias(twins.SAME_AS))
    copies = (pl.col("n_runs") - pl.col("n_distinct")).alias("copies")
    if "epoch" in cells.columns:
        trained = pl.when(pl.col("epoch") > 0).then(pl.format("epoch {}", "epoch"))
        cells = cells.sort("epoch").with_columns(trained.fill_null("no epochs").alias("epoch"))
    key = ("dataset", "classifier", "cell")
    return _rows(cells.with_columns(copies).sort(key, maintain_order=True))


def varying_axes(cells: pl.DataFrame) -> list[str]:
    """Return in what the rows of a dataset and classifier differ: axes, and epoch at the end."""
    others = [name for name in AXES if name not in ("dataset", "classifier")]
    found = [name for name in others if cells[name].n_unique() > 1]
    return [*found, "epoch"] if several(cells) else found


def _rows(frame: pl.DataFrame) -> Rows:
    return tuple(frame.iter_rows(named=True))
