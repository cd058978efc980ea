"""The page: a template filled with a context made from the result tables."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from numpy.typing import NDArray

from manyseed.analysis.axes import level_told
from manyseed.analysis.counts import below
from manyseed.analysis.figures.kind import FigureTables
from manyseed.analysis.figures.labels import colour, differing
from manyseed.analysis.figures.svg import MARKS, NUMBERS, Picture
from manyseed.analysis.metrics.metric import better
from manyseed.analysis.options import Options
from manyseed.analysis.questions import caveats
from manyseed.analysis.questions.effects import effects, signed
from manyseed.analysis.questions.hardpoints import LISTED, by_classifier, often_wrong, wrong_labels
from manyseed.analysis.questions.intervals import TEST_SETS, too_few
from manyseed.analysis.questions.question import Answer, answers, place
from manyseed.analysis.report.citations import STUDIES
from manyseed.analysis.report.tables import (
    PageTable,
    Strip,
    Thumbnail,
    filled,
    listed,
    number,
    of_methods,
)
from manyseed.analysis.report.wording import (
    Rows,
    conventions,
    repeats_in_words,
    snapshots_in_words,
    summary,
    varying_axes,
)
from manyseed.analysis.tables import rows
from manyseed.analysis.tables.rows import Tables, at_last


def citations(tables: Tables, options: Options, *, uncertainty: bool, responses: bool) -> list[str]:
    """Return the studies to cite for the quantities in the tables.

    `options`: those that the tables were computed with. `uncertainty`: whether there are deep
    ensembles. `responses`: whether there are response curves.
    """
    levels = not tables.runs["alpha_hat"].is_null().all()
    loo = levels and options.alpha_reference == "loo_ensemble"
    named = (
        (levels, "banerjee2025"),
        (loo, "banerjee2024"),
        (uncertainty, "ashukha2020"),
        (responses, "schiff2021"),
    )
    return [f"{STUDIES[key].text} ({STUDIES[key].cited_for})." for wanted, key in named if wanted]


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
    """A sentence with the anchor and label of what shows it; both empty if nothing does.

    `headline` says it in short lines; the same as `text` if there is no more to say.
    """

    text: str
    anchor: str
    label: str
    headline: str


Images = Callable[[str, Sequence[int]], NDArray[Any] | str | None]
"""Returns a dataset's images of some points, (image, height, width, channel); why they are not to
be had; or None if its points are no images."""


@dataclass(frozen=True, slots=True)
class Context:
    """Everything the page shows.

    `name`: the sweep's name. `answers`: the answers, in sentences. `colours`: colour of each
    classifier in the figures of datasets; empty if some share one. `summary`: one per cell
    (`summary`). `axes`: the axes in which cells differ. `repeats`: the number of repeats, in words.
    `effects` and `effects_by_dataset`: differences from the reference of an axis (`effect_rows`),
    by classifier, and by dataset and classifier if there are several datasets. `switches`, sequence
    of (str, sequence of str): axes in which rows of figures of datasets differ, each with its
    levels (`switches`). `notes`: conventions behind the numbers, a sentence or two each.
    `provenance`: versions and the like, given by the caller. `tables`: further tables, below the
    effects. `sweep_file`: its text; empty if there is none.
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
    tables: Sequence[PageTable]
    sweep_file: str
    citations: Sequence[str]


def context(
    name: str,
    counts: RunCounts,
    tables: Tables,
    options: Options,
    provenance: Mapping[str, str],
    notes: Sequence[str] = (),
    *,
    compared: Tables | None = None,
    variance: pl.DataFrame | None = None,
    sources: pl.DataFrame | None = None,
    sweep_file: str = "",
    further: Sequence[Answer] = (),
    figures: Sequence[Picture] | None = None,
    points: pl.DataFrame | None = None,
    verdicts: Sequence[Answer] = (),
    images: Images = lambda *_: None,
    most_frequent: Mapping[str, float] | None = None,
    **optional: Any,  # frames, or None
) -> Context:
    """Make the page's content.

    `name`: the sweep's name. `tables`: with the columns of `analysis.axes.AXES` joined. The summary
    shows all snapshots, everything else each cell's last. `options`: those that the tables were
    computed with. `provenance`: what the results were made with, shown verbatim. `notes`: shown
    with the conventions, e.g. what could not be computed and why. `compared`: the tables that
    effects are computed from; by default `tables`. `variance`: the table of variances. `sources`:
    the table of sources of randomness. `sweep_file`: its text. `further`: shown after the answers.
    `figures`: the figures, if they were drawn before from the same tables and options. `points`,
    `verdicts` and `images`: as in `of_points`. `most_frequent`: as in `answers`. `optional`: the
    further tables of `analysis.figures.kind.FigureTables` that are there.
    """
    cells, every, tables = tables.cells, tables, at_last(tables)
    several = tables.repeats["dataset"].n_unique() > 1
    own, compared = rows.once(tables), compared or rows.paired(tables)
    for of_cells in ("curves", "responses", "response_curves", "spectra"):
        if (one := optional.get(of_cells)) is not None:
            kept = one.join(own.cells, on="cell", how="semi", maintain_order="left")
            optional[of_cells] = kept
    ensembles, uncertainty, dee, responses, cmi = (
        optional.get(one) for one in ("ensembles", "uncertainty", "dee", "responses", "cmi")
    )
    if figures is None:
        from manyseed.analysis.figures.drawing import all_drawn  # Matplotlib

        given = FigureTables(own, close=options.close, every=rows.once(every), **optional)
        figures = all_drawn(given)
    by_classifier = effects(compared, by=("classifier",))
    found = answered(own, by_classifier, variance, options, counts, cmi, most_frequent)
    shown_points = of_points(points, verdicts, images)
    return Context(
        name=name,
        counts=counts,
        answers=linked([*found, *further], figures, [one.name for one in shown_points]),
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
            *caveats.missing_notes(own.runs, own.repeats),
            *caveats.suspect_notes(own.repeats.lazy(), own.runs.lazy(), options),
            *snapshots_in_words(cells),
            *conventions(tables, options),
        ),
        provenance=provenance,
        tables=[
            filled(one)
            for one in (
                *listed(own, options.close, ensembles, sources),
                *shown_points,
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


def of_points(
    labels: pl.DataFrame | None, verdicts: Sequence[Answer], images: Images
) -> list[PageTable]:
    """Return the table of points to look at, with their images, if there are any.

    `labels`: as `analysis.questions.hardpoints.by_point` returns it. `verdicts`: on which points
    they hang.
    """
    found: Rows = () if labels is None else _to_look_at(labels, verdicts)
    if not found:
        return []
    rows = [
        (
            *(str(row["dataset"]), place(row).removeprefix("row "), row["why"]),
            *(row.get(name) or "–" for name in ("truth", "majority")),
            *(number(row.get(name), 2) for name in ("wrong", "flips")),
        )
        for row in found
    ]
    legend = (
        f"At most {LISTED} of a kind and dataset. Row: of the source, or its file. Always wrong: "
        "in nearly all runs of all classifiers. Wrong: share of runs, mean over the classifiers, "
        "or of the one named. Flips: share of pairs of runs of a cell on one test set that predict "
        "different classes. All points: the table points."
    )
    heads = ["Dataset", "Row", "Why", "Labelled", "Mostly predicted", "Wrong", "Flips"]
    strips, notes = _strips(found, images)
    if strips:
        legend += (
            " Below, their images as they were trained on: the label → what most runs predict, if "
            "that is another class, and the share of runs that are wrong."
        )
    return [
        PageTable("points", "Points to look at", legend, heads, 5, rows, strips=strips, notes=notes)
    ]


def _to_look_at(labels: pl.DataFrame, verdicts: Sequence[Answer]) -> Rows:
    """Return the points with `why` they are shown; of a verdict, what all classifiers say."""
    key = ["dataset", "index", "truth", "majority"]
    always = (*wrong_labels(labels), *often_wrong(labels))
    wrong = [{**row, "why": "always wrong"} for one in always for row in one.rows]
    flipping = (
        labels.filter(pl.col("flips") > 0)
        .sort(["flips", *key], descending=[True, *[False] * len(key)])
        .group_by("dataset", maintain_order=True)
        .head(LISTED)
        .with_columns(why=pl.format("flips, {} {}", "classifier", "levels").str.strip_chars_end())
    )
    hangs_on = pl.DataFrame(
        [(row["dataset"], row["index"]) for one in verdicts for row in one.rows[:LISTED]],
        schema={"dataset": pl.String, "index": pl.Int64},
        orient="row",
    ).unique()
    majority = pl.col("majority")
    every = (
        by_classifier(labels)
        .cast({"index": pl.Int64})
        .join(hangs_on, on=["dataset", "index"], how="semi")
        .group_by("dataset", "index")
        .agg(
            pl.col("truth").first(),
            pl.when(majority.n_unique() == 1).then(majority.first()),
            pl.col("wrong").mean(),
        )
    )
    known = {(row["dataset"], row["index"]): row for row in every.iter_rows(named=True)}
    hanging = [
        {**row, **known.get((row["dataset"], row["index"]), {})}
        | {
            "why": f"{row['verdict']}{', alone,' if row.get('alone') else ''} hangs on it",
            "flips": None,
        }
        for one in verdicts
        for row in one.rows[:LISTED]
    ]
    return (*wrong, *flipping.iter_rows(named=True), *hanging)


SIDE = 96  # most pixels of a thumbnail's side
MOST_IMAGES = 120  # on the page
_PLAIN = 4096  # bytes of a PNG from which on JPEG is tried


def _strips(found: Rows, images: Images) -> tuple[list[Strip], list[str]]:
    """Return thumbnails of points, a strip for each dataset and why, and which are not there."""
    sources: dict[tuple[str, int], tuple[str, bool]] = {}
    notes = []
    shown = list(dict.fromkeys((str(row["dataset"]), int(row["index"])) for row in found))
    for dataset in dict.fromkeys(name for name, _ in shown):
        index = [point for name, point in shown[:MOST_IMAGES] if name == dataset]
        given = images(dataset, index) if index else None
        if isinstance(given, str):
            notes.append(given)
        elif given is not None:
            made = _encoded(given)
            sources |= {(dataset, n): one for n, one in zip(index, made, strict=True)}
    strips: dict[str, list[Thumbnail]] = {}
    left = MOST_IMAGES
    for row in found:
        source = sources.get((str(row["dataset"]), int(row["index"])))
        if source is None or not left:
            continue
        left -= 1
        title = f"{row['dataset']}: {row['why']}"
        strips.setdefault(title, []).append(Thumbnail(*source, *_in_words(row)))
    more = len(found) - MOST_IMAGES
    if strips and more > 0:
        notes.append(f"The first {MOST_IMAGES} points are shown as images.")
    return [Strip(title, own) for title, own in strips.items()], notes


def _in_words(row: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the words for an image, and those below it."""
    truth, majority, share = (row.get(name) for name in ("truth", "majority", "wrong"))
    wrong = [] if share is None else [f"wrong in {100 * share:.0f} % of runs"]
    classes = [f"labelled {truth}"] if truth else []
    told = [f"mostly predicted {majority}"] if majority else []
    below = [" → ".join(filter(None, (truth, majority if majority != truth else None)))]
    share_below = [] if share is None else [f"{100 * share:.0f} % wrong"]
    alt = ", ".join([place(row), *classes, *told, *wrong])
    return alt, [place(row), *filter(None, below), *share_below]


def _encoded(values: NDArray[Any]) -> list[tuple[str, bool]]:
    """Return images as data: addresses, and whether they are smaller than `SIDE`.

    Numbers that are no bytes are shown from their smallest to their largest; other than three
    channels as their mean.
    """
    from PIL import Image

    if values.dtype != np.uint8:
        low, high = float(values.min()), float(values.max())
        values = (255 * (values - low) / ((high - low) or 1.0)).round().astype(np.uint8)
    if values.shape[-1] != 3:
        values = values.mean(axis=-1).round().astype(np.uint8)
    found = []
    for pixels in values:
        image = Image.fromarray(pixels)
        enlarged = max(image.size) < SIDE
        image.thumbnail((SIDE, SIDE))
        kind, data = "png", _saved(image, "PNG", optimize=True)
        if len(data) > _PLAIN:
            kind, data = min(
                (kind, data),
                ("jpeg", _saved(image, "JPEG", quality=85)),
                key=lambda one: len(one[1]),
            )
        text = base64.b64encode(data).decode()
        found.append((f"data:image/{kind};base64,{text}", enlarged))
    return found


def _saved(image: Any, form: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def _of_responses(responses: pl.DataFrame | None, cmi: pl.DataFrame | None) -> list[PageTable]:
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
    most_frequent: Mapping[str, float] | None = None,
) -> list[Answer]:
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
        most_frequent=most_frequent,
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


def linked(
    found: Sequence[Answer], figures: Sequence[Picture], tables: Sequence[str] = ()
) -> tuple[LinkedSentence, ...]:
    """Return sentences with the first of their links that is on the page; `tables`: names there."""
    labels = {plot.name: f"Figure {number}" for number, plot in enumerate(figures, start=1)}
    labels |= {name: name.capitalize() for name in ("summary", "effects", "conventions", *tables)}
    anchors = [next((name for name in one.figures if name in labels), "") for one in found]
    return tuple(
        LinkedSentence(one.text, anchor, labels.get(anchor, ""), one.headline)
        for one, anchor in zip(found, anchors, strict=True)
    )


def effect_rows(found: pl.DataFrame) -> Rows:
    """Return one row per comparison, with its metrics side by side.

    `found`: as `analysis.questions.effects.effects` returns it. Returns the row of the first
    metric, and `of`, the rows of all metrics by name.
    """
    by_metric: dict[tuple[object, ...], dict[str, Mapping[str, Any]]] = {}
    named = [name for name in ("dataset", "classifier") if name in found.columns]
    for row in found.iter_rows(named=True):
        key = tuple(row[name] for name in (*named, "axis", "level", "reference"))
        by_metric.setdefault(key, {})[row["metric"]] = row
    return tuple({**next(iter(of.values())), "of": of} for of in by_metric.values())


def few_test_sets(rows: Rows) -> str:
    """Say that intervals of some row of `effect_rows` rest on too few test sets; else empty."""
    of = [effect for row in rows for effect in row["of"].values()]
    return too_few(min((one["n_test_sets"] for one in of if one["over"] == TEST_SETS), default=0))


FEW = 40  # rows of a table shown at first, as in page.css and page.js
MAX_ROWS = 2000  # most rows of a table; the rest is in the result tables


def render(context: Context) -> str:
    """Return the report as one self-contained HTML page."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    data = FigureData()
    environment.filters.update(
        better=better,
        number=number,
        shown=shown,
        known_effects=known_effects,
        level=level,
        in_words=level_told,
        difference=difference,
        few_test_sets=few_test_sets,
        picture=picture,
        marks=data.marks,
        numbers=data.numbers,
        bands=partial(bands, context.switches),
    )
    return environment.get_template("page.html").render(page=context, most=MAX_ROWS, first_rows=FEW)


def level(row: Mapping[str, Any]) -> str:
    """Write a cell's α̂, or what it is below."""
    value = row["alpha_hat_mean"]
    return below(value, row["delta"]) or number(value, 4)


def shown(rows: Rows, names: Iterable[str]) -> list[str]:
    """Return the columns with a value in some row; δ and N are shown only with α̂."""
    found = [name for name in names if any(row.get(name) is not None for row in rows)]
    levels = "alpha_hat_mean" in found
    return [name for name in found if levels or name not in ("delta", "n_side")]


def known_effects(rows: Rows, names: Iterable[str]) -> list[str]:
    """Return the metrics with a difference in some row of `context.effect_rows`."""
    effects = [effect for row in rows for effect in row["of"].values()]
    known = {effect["metric"] for effect in effects if effect["difference"] is not None}
    return [name for name in names if name in known]


class FigureData:
    """Data of the first figures for the page's script, up to `MARKS` dots and `NUMBERS` rows."""

    def __init__(self) -> None:
        self._marks, self._numbers = MARKS, NUMBERS

    def marks(self, plot: Picture) -> Markup:
        """Return the dots that name their run as an element; empty without dots or room."""
        if plot.marks is None or len(plot.marks["runs"]) > self._marks:
            return Markup("")
        self._marks -= len(plot.marks["runs"])
        return _data("marks", plot.marks)

    def numbers(self, plot: Picture) -> Markup:
        """Return the other numbers as an element; empty without numbers or room."""
        if not 0 < plot.rows <= self._numbers:
            return Markup("")
        self._numbers -= plot.rows
        return _data("numbers", plot.numbers)


def _data(name: str, value: object) -> Markup:
    """Return an element with data for the page's script."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    text = text.replace("<", "\\u003c")  # a name must not end the script element
    return Markup(f'<script type="application/json" class="{name}">{text}</script>')


def bands(switches: Sequence[tuple[str, Sequence[str]]], plot: Picture) -> str:
    """Return the rows of a figure as JSON: indices of their levels, top and bottom."""
    indices = [{name: k for k, name in enumerate(levels)} for _, levels in switches]
    rows = [
        [[index[name] for index, name in zip(indices, levels, strict=True)], top, bottom]
        for levels, top, bottom in plot.bands
    ]
    return json.dumps(rows, separators=(",", ":"))


def difference(value: float | None) -> str:
    """Write a difference with its sign; a dash if it is undefined."""
    return "–" if value is None else signed(value)


def picture(plot: Picture) -> Markup:
    """Return the figure as inline SVG, with its title and caption for screen readers."""
    label = escape(f"{plot.title}. {plot.caption}")
    return Markup(plot.svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1))
