"""Figures with their captions, and the page that holds them."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest
from PIL import Image

from manyseed.analysis.figures import drawing
from manyseed.analysis.figures.drawing import FigureTables, all_figures
from manyseed.analysis.figures.labels import colour
from manyseed.analysis.options import Options
from manyseed.analysis.questions.question import Answer
from manyseed.analysis.report.page import (
    RunCounts,
    citations,
    context,
    difference,
    number,
    of_points,
    render,
    summary,
)
from manyseed.analysis.report.tables import PageTable, filled
from manyseed.analysis.report.wording import conventions, repeats_in_words
from manyseed.analysis.tables.rows import Tables
from tests.analysis.planted import planted
from tests.analysis.samples import ENSEMBLES, curves_of, sweep

NASTY = '<script>alert("1")</script> & $x_1$'
VOID = {"meta", "img", "br", "link"}


@pytest.fixture(scope="module")
def tables():
    return sweep({"vehicle": 60, NASTY: 40}, {"lr-sgd": 0.6, "xgb": 0.0}, repeats=2, runs=4)


@pytest.fixture(scope="module")
def page(tables):
    return render(content(tables))


def content(tables, **changes):
    fields = {
        "name": NASTY,
        "counts": RunCounts(planned=70, done=52, copies=12, failed=4, missing=2),
        "tables": tables,
        "options": Options(resamples=4),
        "provenance": {"manyseed": "0.1.0", NASTY: NASTY},
    }
    return context(**{**fields, **changes})


class Page(HTMLParser):
    """Collects elements and texts, and insists that every element is closed in order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.elements, self.texts = [], [], []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((tuple(self.open), data))

    def of(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, tag):
        return "".join(data for path, data in self.texts if tag in path)


def test_every_figure_is_there_with_caption_and_n(page, tables):
    parsed = Page(page)
    plots = all_figures(FigureTables(tables))
    overviews = [f"overview-{name}" for name in ("accuracy-mean", "accuracy-std", "ec-local-mean")]
    names = [
        "classifiers",
        *overviews,
        "mean-ranks",
        "cells-1",
        "cells-2",
    ]
    names += ["cells-consistency-repeats-1", "cells-consistency-repeats-2"]
    names.append("correlations")  # α̂ has none, as no difference below 0.28 would be seen
    assert [plot.name for plot in plots] == names
    assert [attributes["id"] for attributes in parsed.of("figure")] == names
    captions = parsed.text("figcaption")
    for plot, image in zip(plots, parsed.of("svg"), strict=True):
        assert plot.caption in captions
        assert f"n = {plot.n} " in plot.caption
        assert plot.caption in image["aria-label"]
    (alone,) = drawing.plots(FigureTables(tables), "alpha-hat-accuracy")  # drawn when asked for
    assert re.search(r"δ = 0\.\d+ to 0\.\d+ with N = 30 to 20 test points", alone.caption)


@pytest.mark.parametrize("delta", [0.04, 0.07])
def test_alpha_hat_is_drawn_where_test_sets_are_large_enough_to_tell(delta):
    """Elsewhere an answer says how many points it takes, and tables what is not seen."""
    tables = planted(2, runs=3, delta=delta, alpha=lambda name, *_: 0.1 * (name == "data-00"))
    html = render(content(tables))
    drawn = [one["id"] for one in Page(html).of("figure")]
    assert ("alpha-hat-accuracy" in drawn) == (delta < 0.05)
    assert ("overview-alpha-hat-mean" in drawn) == (delta < 0.05)
    (cells,) = (plot for plot in content(tables).figures if plot.name == "cells-1")
    assert ("α̂" in cells.caption) == (delta < 0.05)
    told = "Test sets are too small for α̂, which takes test sets of about 4,240 points."
    assert (told in html or "Test sets of about 4,240 points" in html) == (delta > 0.05)
    assert f"<td>&lt; {delta:.2f}</td>" in html
    assert "<td>0.0000</td>" not in html


@pytest.mark.parametrize("datasets", [7, pytest.param(37, marks=pytest.mark.slow)])
def test_a_large_study_stays_small_and_readable(datasets):
    """Up to 37 datasets × 4 classifiers × 9 schemes: overviews first, then a figure a dataset."""
    names = tuple(f"classifier-{index}" for index in range(4))
    schemes = ("none", *(f"relative:0.{index}" for index in range(1, 9)))
    large = planted(
        datasets,
        names,
        schemes,
        repeats=2,
        runs=10,
        accuracy=lambda _, classifier, scheme, __: 0.9 - 0.02 * (scheme != "none"),
        alpha=lambda dataset, *_: 0.1 * (dataset > "data-04"),
    )
    html = render(content(large))
    assert len(html.encode()) < 5_000_000 * datasets / 37
    parsed = Page(html)
    shown = [attributes["id"] for attributes in parsed.of("figure")]
    assert shown[0] == "classifiers"
    assert [name.startswith("overview-") for name in shown[1:5]] == [True] * 4
    assert shown[5] == "mean-ranks"
    assert shown[6:-1] == [f"cells-{number}" for number in range(1, datasets + 1)]
    assert "not drawn: their numbers" not in parsed.text("figcaption")
    folds = [one for one in parsed.of("details") if one.get("class") == "fold"]
    assert len(folds) == datasets
    assert len(re.findall(r"<tr>", html)) > datasets * 9 * 4


def test_the_page_shows_curves_and_ensembles_where_there_are_any(tables):
    curves = curves_of(np.random.default_rng(1).random((1, 3, 4)), [3])
    shown = content(tables, curves=curves, ensembles=ENSEMBLES).figures
    further = ["ensembles-close", "ensembles-accuracy", "curves-accuracy", "curves-loss"]
    assert [plot.name for plot in shown][-4:] == further
    html = render(content(tables, curves=curves, ensembles=ENSEMBLES))
    for plot in shown[-4:]:
        assert f"n = {plot.n} " in plot.caption
        assert f'id="{plot.name}"' in html


def test_nothing_comes_from_outside(page):
    parsed = Page(page)
    *data, script = parsed.of("script")
    assert script == {}
    assert {one.pop("class") for one in data} == {"marks", "numbers"}
    assert data == [{"type": "application/json"}] * len(data)
    assert not parsed.of("link")
    for _, attributes in parsed.elements:
        for name in ("src", "href", "xlink:href"):
            assert attributes.get(name, "#").startswith(("#", "data:"))
        for value in attributes.values():
            assert "url(" not in (value or "").replace("url(#", "")
    assert "url(" not in parsed.text("style")
    assert "@import" not in parsed.text("style")


def test_names_are_escaped(page):
    parsed = Page(page)
    assert page.count("<script>") == 1  # the page's own
    assert parsed.text("h1") == NASTY
    assert NASTY in parsed.text("dd")
    assert NASTY in parsed.text("table")


def test_counts_and_warning(page):
    tables = planted(runs=3)
    assert re.findall(r"<dd>([\d,]+)</dd>", page) == ["70", "52", "12", "4", "2"]
    assert "4 failed and 2 are missing" in page
    assert "rests on the 64 that have finished." in page
    fewer = render(content(tables, counts=RunCounts(70, 52, 12, 4, 2, analysed=50)))
    assert "rests on the 50 that were analysed, of 64 that have finished: analyze again." in fewer
    counts = RunCounts(64, 52, 12, 0, 0, analysed=50, newer="Of 50 of 64.")
    since = Page(render(content(tables, counts=counts)))
    assert "Of 50 of 64." in since.text("header")
    assert "Not every planned run" not in since.text("header")
    assert "planned runs" not in since.text("li"), "all of them have finished"
    nothing = Tables(*(getattr(tables, n).clear() for n in ("runs", "pairs", "repeats", "cells")))
    whole = render(content(nothing, counts=RunCounts(2000, 2000, 0, 0, 0)))
    assert "missing." not in Page(whole).text("header")
    assert "<dd>2,000</dd>" in whole


def test_anchors_exist(page):
    parsed = Page(page)
    ids = {attributes["id"] for _, attributes in parsed.elements if "id" in attributes}
    assert {link["href"][1:] for link in parsed.of("a")} <= ids


def test_the_page_is_the_same_each_time(page, tables):
    assert render(content(tables)) == page


def test_cells_of_identical_runs_are_marked(tables, page):
    marked = [row["classifier"] for row in summary(tables.cells) if row["n_identical_repeats"]]
    assert marked == ["xgb", "xgb"]
    assert "†" in Page(page).text("tbody")


def test_every_cell_stands_apart_in_the_summary(tables):
    rows = summary(tables.cells)
    assert len(rows) == tables.cells.height == 8
    for row in rows:
        here = pl.col("cell") == row["cell"]
        runs, repeats = tables.runs.filter(here), tables.repeats.filter(here)
        assert (row["n_runs"], row["n_repeats"]) == (runs.height, 2)
        assert row["copies"] == runs["identical"].sum()
        means = [own["accuracy"].mean() for own in runs.partition_by("repeat_index")]
        assert row["accuracy_mean"] == pytest.approx(np.mean(means))
        assert row["accuracy_mean_sd"] == pytest.approx(np.std(means, ddof=1))
        compared = ("accuracy_std", "accuracy_range", "ec_local_mean", "churn_mean")
        if row["copies"]:
            assert [row[name] for name in (*compared, "alpha_hat_mean")] == [None] * 5
            continue
        variances = [own["accuracy"].var() for own in runs.partition_by("repeat_index")]
        assert row["accuracy_std"] == pytest.approx(np.mean(variances) ** 0.5)
        for name in (*compared[1:], "alpha_hat_mean"):
            assert row[name] == pytest.approx(repeats[name].mean())


def test_repeats_are_told_as_cells_and_test_sets(tables, page):
    assert "16 repeats: 8 cells on 2 test sets each." in Page(page).text("p")
    said = repeats_in_words(tables.cells.head(1))
    assert said == "2 repeats: 1 cell on 2 test sets."
    fewer = tables.cells.with_columns(n_repeats=pl.when(pl.col("cell") == 3).then(1).otherwise(2))
    assert repeats_in_words(fewer) == "15 repeats: 8 cells on 1 to 2 test sets each."


def test_figures_without_values_are_left_out(tables):
    nothing = pl.lit(None, dtype=pl.Float64)
    without = Tables(
        tables.runs.with_columns(alpha_hat=nothing, probe=pl.lit(None, dtype=pl.String)),
        tables.pairs.clear(),
        tables.repeats.with_columns(alpha_hat_mean=nothing, delta=nothing, n_side=nothing),
        tables.cells,
    )
    plots = all_figures(FigureTables(without))
    per_repeat = ["cells-consistency-repeats-1", "cells-consistency-repeats-2"]
    of_cells = [plot.name for plot in plots if plot.of_cells]
    assert of_cells == ["cells-1", "cells-2", *per_repeat]
    assert not any(plot.name.startswith("alpha") for plot in plots)
    [cells] = [plot for plot in plots if plot.name == "cells-2"]
    columns = [axis.get_title(loc="left") for axis in cells.figure.axes]
    assert columns == ["accuracy", "accuracy range"]
    html = render(content(without, notes=["alpha_hat needs keep.scores"]))
    assert "alpha_hat needs keep.scores" in html
    assert "Kolmogorov" not in html


def test_columns_of_dashes_are_left_out(tables):
    """On one test set nothing varies between test sets; hinge scores are no probabilities."""
    null = pl.lit(None, pl.Float64)
    cells = tables.cells.with_columns(accuracy_mean_sd=null, alpha_hat_mean=null, delta=null)
    parts = {"runs": tables.runs, "pairs": tables.pairs, "repeats": tables.repeats}
    parsed = Page(render(content(Tables(**parts, cells=cells))))
    heads = [data for path, data in parsed.texts if path[-3:] == ("thead", "tr", "th")]
    assert heads[heads.index("Accuracy ±\xa0seeds") + 1] == "Accuracy range"
    assert heads[heads.index("Churn") + 1] not in ("α̂", "δ", "N per side")
    assert "Between test sets" in render(content(tables))
    rows = [("a", "–", "0.1"), ("–", "–", "–")]
    table = filled(PageTable("name", "title", "legend", ["word", "no", "some"], 1, rows))
    assert table.heads == ["word", "some"]
    assert table.rows == [("a", "0.1"), ("–", "–")]


def test_one_run_is_no_runs(tables):
    cell = tables.cells["cell"][0]
    one = {"cell": cell, "repeat_index": 0}
    alone = Tables(
        tables.runs.filter(run_index=0, **one),
        tables.pairs.clear(),
        tables.repeats.filter(**one),
        tables.cells.filter(cell=cell),
    )
    captions = [plot.caption for plot in all_figures(FigureTables(alone))]
    assert any("n = 1 run." in caption for caption in captions)
    null = pl.lit(None, pl.Float64)
    unknown = ("accuracy_std", "accuracy_mean_sd", "accuracy_range", "ec_local_mean", "churn_mean")
    unknown += ("ec_global_mean", "alpha_hat_mean")
    cells = alone.cells.with_columns(null.alias(name) for name in unknown)
    told = Page(render(content(Tables(alone.runs, alone.pairs, alone.repeats, cells))))
    page = " ".join(data for path, data in told.texts if not {"svg", "script"} & set(path))
    assert "± " not in page
    lacking = ("error consistency (EC)", "seeds", "range: largest", "α̂ compares", "a side.")
    for word in lacking:
        assert word not in page
    assert not re.search(r"n = 1 \w+s\b", " ".join(captions))


def test_a_sweep_without_results_has_a_page(tables):
    empty = Tables(*(getattr(tables, n).clear() for n in ("runs", "pairs", "repeats", "cells")))
    parsed = Page(render(content(empty)))
    assert not parsed.of("figure")
    assert not any("#figures" in link["href"] for link in parsed.of("a"))


def test_conventions_say_which_probes_and_unions(tables):
    said = " ".join(conventions(tables, Options(resamples=4)))
    assert "logit gap" in said
    assert "left undefined" in said
    assert "4 random splits" in said
    mixed = Tables(
        pl.concat([tables.runs, tables.runs.with_columns(probe=pl.lit("true_margin"))]),
        tables.pairs,
        tables.repeats,
        tables.cells,
    )
    said = " ".join(conventions(mixed, Options(empty_union=1)))
    assert "not comparable" in said
    assert "counts as 1" in said
    for options in (Options(alpha_mode="paper"), Options(alpha_reference="loo_ensemble")):
        said = " ".join(conventions(tables, options))
        assert "100 pairs of samples drawn with replacement" in said
        assert "splits" not in said


def test_the_page_begins_with_the_answers_each_with_a_link():
    tables = planted(datasets=2, schemes=("none", "noise"), runs=5)
    shown = content(tables)
    assert len(shown.answers) >= 4
    parsed = Page(render(shown))
    sections = [one["id"] for one in parsed.of("section")]
    assert sections[:2] == ["answers", "summary"]
    items = " ".join(parsed.text("li").split())
    ids = {attributes["id"] for _, attributes in parsed.elements if "id" in attributes}
    for said in shown.answers:
        assert " ".join(said.text.split()) in items
        assert said.anchor in ids
        assert said.label in items
    first = shown.answers[0].text
    start = "The results are incomplete: of 70 planned runs, 4 failed and 2 are missing"
    assert first.startswith(start)


def test_rows_beyond_the_most_are_told_not_shown(monkeypatch):
    monkeypatch.setattr("manyseed.analysis.report.page.MAX_ROWS", 3)
    html = render(content(planted(datasets=2, schemes=("none", "noise"), runs=3)))
    summary_section = html.split('<section id="summary">')[1].split("</section>")[0]
    assert summary_section.count("<tr>") == 1 + 3
    assert "One row per cell, the first 3 of 8: all are in cells.parquet." in summary_section
    assert "By dataset (4 rows, of which the first 3 are shown)" in html


@pytest.mark.parametrize("what", ["uncertainty", "responses"])
def test_studies_are_cited_where_their_quantities_are_there(what):
    """Authors and DOI, of no other study."""
    tables, of = planted(runs=3), {"uncertainty": "2002.06470", "responses": "2106.04765"}
    there = {name: name == what for name in of}
    told = citations(tables, Options(), **there)
    assert [
        name for name in of if any(f"doi:10.48550/arXiv.{of[name]}" in one for one in told)
    ] == [what]


def test_where_results_come_from_stands_on_the_page():
    tables = planted(runs=3)
    told = {"Seed": "20210427", "Test sets": "25% of the samples: vehicle"}
    text = 'name = "<first>"'
    html = render(content(tables, provenance=told, sweep_file=text))
    parsed = Page(html)
    assert text in parsed.text("pre")
    assert "20210427" in parsed.text("dd")
    assert "S. Banerjee, T. Marrinan" in parsed.text("li")
    assert "doi:10.48550/arXiv.2406.08307" in parsed.text("li")
    assert "Pitfalls" not in html
    assert "Schiff" not in html
    unknown = tables.runs.with_columns(alpha_hat=pl.lit(None, pl.Float64))
    without = Tables(unknown, tables.pairs, tables.repeats, tables.cells)
    assert "Banerjee" not in render(content(without))


def test_a_sweep_of_one_dataset_has_a_page():
    """Its first figure is of classifiers, beside the answers, its second that of its cells."""
    parsed = Page(render(content(planted(runs=3))))
    figures = [one["id"] for one in parsed.of("figure")]
    assert figures == ["classifiers", "cells-1", "cells-consistency-repeats-1"]
    assert [one["id"] for one in parsed.of("p") if "id" in one] == ["cells"]


def test_numbers():
    assert number(None) == "–"
    assert number(-0.12345, 2) == "−0.12"
    assert difference(0.00001) == "0.0000"
    assert difference(-0.00001) == "0.0000"
    assert difference(0.25) == "+0.2500"
    assert difference(-0.25) == "−0.2500"


@pytest.mark.parametrize(("repeats", "few"), [(1, 0), (2, 1), (3, 1), (4, 0)])
def test_effects_from_few_test_sets_are_called_of_little_use_once(repeats, few):
    tables = planted(2, schemes=("none", "noise"), repeats=repeats, runs=5)
    note = f"{repeats} test sets are too few for useful intervals; more narrow them"
    legend = render(content(tables)).partition('<section id="effects">')[2].partition("</p>")[0]
    assert legend.count(note) == few


def test_words_of_effects_by_dataset_are_aligned_as_words():
    page = render(content(planted(2, schemes=("none", "noise"), runs=3)))
    rows = page.partition('aria-label="Effects by dataset"')[2].partition("</tbody>")[0]
    classifiers = re.findall(r'<td class="?t"?>(lr-sgd|mlp)</td>', rows)
    assert len(classifiers) == 4


@pytest.mark.parametrize("index", range(5))
def test_half_transparent_dots_are_seen_on_dark_paper(index):
    """Contrast of at least 3 (WCAG 2.1, 1.4.11) with the opacity that the page sets in the dark."""
    page = render(content(planted(runs=3)))
    dark = page.partition("@media screen and (prefers-color-scheme: dark)")[2]
    (opacity,) = re.findall(r'"fill-opacity:0.6"] { fill-opacity: ([\d.]+) !important', dark)
    (paper,) = re.findall(r"--paper: (#16[0-9a-f]{4})", page)

    def channels(name):
        return np.array([int(name[at : at + 2], 16) / 255 for at in (1, 3, 5)])

    def luminance(rgb):
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    alpha = float(opacity)
    dot = alpha * channels(colour(index)) + (1 - alpha) * channels(paper)
    assert (luminance(dot) + 0.05) / (luminance(channels(paper)) + 0.05) >= 3


def points_of(majority=("a", "b")):
    """Point 3 flips, and two classifiers differ in what they mostly predict on it."""
    return pl.DataFrame(
        {
            "dataset": "d",
            "classifier": ["lr", "mlp"],
            "levels": ["", "lr=0.1"],
            "index": [3, 3],
            "truth": "a",
            "majority": majority,
            "n_runs": 8,
            "wrong": [0.25, 0.5],
            "flips": [0.0, 0.5],
            "margin": [0.5, 0.0],
            "known": True,
        }
    )


HANGING = Answer("", rows=[{"dataset": "d", "verdict": "lr > mlp", "index": 3, "ahead": 0.25}])


@pytest.mark.parametrize(
    ("shape", "kind", "size"),
    [
        ((8, 6, 1), float, (6, 8)),
        ((300, 200, 3), np.uint8, (64, 96)),
        ((150, 300, 4), float, (96, 48)),
    ],
)
def test_points_are_shown_as_small_images(shape, kind, size):
    pixels = np.random.default_rng(0).uniform(0, 200, (1, *shape)).astype(kind)
    asked = []
    (table,) = of_points(points_of(), [HANGING], lambda *which: asked.append(which) or pixels)
    assert asked == [("d", [3])]
    assert [strip.title for strip in table.strips] == [
        "d: flips, mlp lr=0.1",
        "d: lr > mlp hangs on it",
    ]
    flips, hangs = (strip.images[0] for strip in table.strips)
    assert flips.alt == "row 3, labelled a, mostly predicted b, wrong in 50 % of runs"
    assert hangs.alt == "row 3, labelled a, wrong in 38 % of runs"  # over both classifiers
    assert flips.source == hangs.source
    assert flips.enlarged == (max(size) < 96)
    head, text = flips.source.split(",")
    data = base64.b64decode(text)
    assert len(data) < 16_000
    with Image.open(io.BytesIO(data)) as image:
        assert image.size == size
        assert head == f"data:image/{image.format.lower()};base64"
        if max(size) < 96:
            low, high = pixels.min(), pixels.max()
            wanted = 255 * (pixels[0, ..., 0] - low) / (high - low)
            assert np.asarray(image) == pytest.approx(wanted, abs=0.51)


def test_what_classifiers_agree_on_is_said_of_a_verdicts_points():
    (table,) = of_points(points_of(("b", "b")), [HANGING], lambda *_: None)
    assert table.rows[-1] == ("d", "3", "lr > mlp hangs on it", "a", "b", "0.38", "–")
    assert (table.strips, table.notes) == ([], [])
    (table,) = of_points(points_of(), [HANGING], lambda name, _: f"{name} could not be read.")
    assert table.rows[-1][4] == "–"
    assert (table.strips, table.notes) == ([], ["d could not be read."])


def test_a_page_has_a_bounded_number_of_images():
    points = pl.concat(
        points_of().with_columns(dataset=pl.lit(f"d{n:02}"), index=pl.lit(n)) for n in range(130)
    )
    (table,) = of_points(points, [], lambda _, index: np.zeros((len(index), 4, 4, 1), np.uint8))
    assert sum(len(strip.images) for strip in table.strips) == 120
    assert table.notes == ["The first 120 points are shown as images."]
