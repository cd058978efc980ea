"""Figures with their captions, and the page that holds them."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import polars as pl
import pytest

from manyseed.analysis.figures import draw, sizes
from manyseed.analysis.figures.curves import learning_curves, over_repeats
from manyseed.analysis.figures.style import MAX_POINTS, colour, legend, marker, panels, thinned
from manyseed.analysis.options import Options
from manyseed.analysis.report.context import (
    Counts,
    context,
    conventions,
    repeats_in_words,
    summary,
)
from manyseed.analysis.report.page import difference, number, render
from manyseed.analysis.tables.schema import Tables
from tests.analysis.samples import sweep

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
        "counts": Counts(planned=70, done=52, copies=12, failed=4, missing=2),
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
    plots = draw.all_figures(tables)
    names = ["accuracy", "accuracy-range", "ec-local", "ec-global", "alpha-hat"]
    assert [plot.name for plot in plots] == [*names, "alpha-hat-accuracy"]
    assert [attributes["id"] for attributes in parsed.of("figure")] == [p.name for p in plots]
    captions = parsed.text("figcaption")
    for plot, image in zip(plots, parsed.of("img"), strict=True):
        assert plot.caption in captions
        assert f"n = {plot.n} " in plot.caption
        assert plot.caption in image["alt"]
        if plot.name.startswith("alpha"):
            assert re.search(r"δ = 0\.\d+ to 0\.\d+ with N = 30 to 20 test points", plot.caption)


def curves_of(values, runs_of_repeat):
    """Curves as `analyze` keeps them, from (run, epoch) of each repeat."""
    rows = []
    for repeat, n_runs in enumerate(runs_of_repeat):
        own = values[repeat][:n_runs]
        rows += [
            {
                "dataset": NASTY,
                "classifier": "mlp",
                "cell": 0,
                "repeat_index": repeat,
                "trained_epoch": epoch + 1,
                "n_runs": n_runs,
                **{
                    f"{name}{ending}": float(value)
                    for name in ("test_accuracy", "test_loss", "train_accuracy", "train_loss")
                    for ending, value in {
                        "": own[:, epoch].mean(),
                        "_std": own[:, epoch].std(ddof=1) if n_runs > 1 else float("nan"),
                        "_min": own[:, epoch].min(),
                        "_max": own[:, epoch].max(),
                    }.items()
                },
            }
            for epoch in range(own.shape[1])
        ]
    return pl.DataFrame(rows).fill_nan(None)


ENSEMBLES = pl.DataFrame(
    {
        "dataset": ["vehicle", "vehicle", NASTY],
        "classifier": ["mlp", "mlp", "xgb"],
        "size": [3, 5, 3],
        "cell": [0, 0, 4],
        "draws": 40,
        "models": [12, 12, 8],
        "close": [0.5, 1.0, 0.8],
        "accepted": [0.1, 0.2, 0.0],
        "accuracy": [0.8, 0.85, 0.7],
        "accuracy_std": [0.02, 0.01, 0.03],
        "n_side": [4000, 4000, 71],
        "delta": [0.0364, 0.0364, 0.2809],
    }
)


def test_learning_curves_are_over_all_runs_of_all_repeats():
    values = np.random.default_rng(0).random((3, 4, 5))
    runs_of_repeat = [4, 1, 3]
    curves = curves_of(values, runs_of_repeat)
    every = np.concatenate([values[r][:n] for r, n in enumerate(runs_of_repeat)])
    found = over_repeats(curves, "test_loss")
    assert found["mean"].to_list() == pytest.approx(every.mean(axis=0))
    own = [values[r][:n] for r, n in enumerate(runs_of_repeat)]
    squares = sum(np.square(one - one.mean(axis=0)).sum(axis=0) for one in own)
    assert found["std"].to_list() == pytest.approx(np.sqrt(squares / 5))
    assert found["min"].to_list() == every.min(axis=0).tolist()
    assert found["max"].to_list() == every.max(axis=0).tolist()
    plot = learning_curves(curves, "accuracy")
    test, train = plot.figure.axes[0].get_lines()
    for line in (test, train):
        assert line.get_ydata() == pytest.approx(every.mean(axis=0))
    assert "n = 8 runs" in plot.caption
    assert over_repeats(curves.filter(repeat_index=1), "test_loss")["std"].null_count() == 5
    assert learning_curves(curves.clear(), "loss") is None


def test_ensembles_are_drawn_by_size_with_their_resolution():
    shares = draw.ensembles_close(ENSEMBLES, 0.05)
    axis = {axis.get_title(loc="left"): axis for axis in shares.figure.axes}["vehicle"]
    accepted, close = axis.get_lines()
    assert accepted.get_ydata().tolist() == [0.1, 0.2]
    assert close.get_ydata().tolist() == [0.5, 1.0]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["3", "5"]
    assert "δ = 0.036 to 0.281 with N = 4,000 to 71 test points" in shares.caption
    assert (
        "40 of each size, out of 8 to 12 runs, those of one repeat of cells 0, 4." in shares.caption
    )
    assert draw.ensembles_close(ENSEMBLES.clear(), 0.05) is None
    assert "No solid line" not in shares.caption
    weak = ENSEMBLES.with_columns(close=pl.lit(None, dtype=pl.Float64))
    assert "No solid line where δ is above 0.05" in draw.ensembles_close(weak, 0.05).caption
    few = draw.ensembles_close(ENSEMBLES.with_columns(distinct=pl.Series([40, 38, 4])), 0.05)
    assert "40 of each size, of which 4 to 40 differ in their members, out of" in few.caption


def test_ticks_that_would_overlap_have_one_label():
    labels = sizes.labels([3, 5, 10, 20, 30, 70, 100, 150, 200])
    assert labels == ["", "5", "10", "", "30", "", "100", "", "200"]


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
    assert not parsed.of("script")
    assert not parsed.of("link")
    for _, attributes in parsed.elements:
        for name in ("src", "href"):
            assert attributes.get(name, "#").startswith(("#", "data:"))
    assert "url(" not in parsed.text("style")
    assert "@import" not in parsed.text("style")
    for image in parsed.of("img"):
        svg = base64.b64decode(image["src"].split(",")[1])
        for element in ElementTree.fromstring(svg).iter():
            for name, value in element.attrib.items():
                if name.endswith("href"):
                    assert value.startswith(("#", "data:"))


def test_names_are_escaped(page):
    parsed = Page(page)
    assert "<script>" not in page
    assert parsed.text("h1") == NASTY
    assert NASTY in parsed.text("dd")
    assert NASTY in parsed.text("table")


def test_counts_and_warning(page, tables):
    assert re.findall(r"<dd>([\d,]+)</dd>", page) == ["70", "52", "12", "4", "2"]
    assert "4 failed and 2 are missing" in page
    assert "over the 64 that are finished." in page
    fewer = render(content(tables, counts=Counts(70, 52, 12, 4, 2, analysed=50)))
    assert "over the 50 that were analysed, of 64 that are finished: analyze again." in fewer
    nothing = Tables(*(getattr(tables, n).clear() for n in ("runs", "pairs", "repeats", "cells")))
    whole = render(content(nothing, counts=Counts(2000, 2000, 0, 0, 0)))
    assert "missing." not in Page(whole).text("header")
    assert "<dd>2,000</dd>" in whole


def test_anchors_exist(page):
    parsed = Page(page)
    ids = {attributes["id"] for _, attributes in parsed.elements if "id" in attributes}
    assert {link["href"][1:] for link in parsed.of("a")} <= ids


def test_figures_are_the_same_each_time(page, tables):
    for plot in (draw.alpha_hat(tables.runs, tables.repeats), draw.accuracy(tables.runs)):
        assert base64.b64encode(plot.svg().encode()).decode() in page


def test_copies_are_counted_once_and_marked(tables, page):
    caption = draw.accuracy(tables.runs).caption
    distinct = tables.runs.filter(~pl.col("identical")).height
    assert f"n = {distinct} runs (12 identical copies left out)" in caption
    assert (
        "(4 repeats of identical runs left out)"
        in draw.ec_local(tables.pairs, tables.repeats).caption
    )
    assert draw.accuracy_range(tables.repeats).n == tables.repeats.height - 4
    shown = draw.alpha_hat(tables.runs, tables.repeats)
    assert shown.n == tables.runs.height - 4 * 4
    assert "(4 repeats of identical runs left out)" in shown.caption
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


def test_many_cells_are_folded_away(tables):
    many = pl.concat([tables.cells] * 6)
    whole = Tables(tables.runs, tables.pairs, tables.repeats, many)
    parsed = Page(render(content(whole)))
    assert "The other 8 cells" in parsed.text("summary")


def test_figures_without_values_are_left_out(tables):
    nothing = pl.lit(None, dtype=pl.Float64)
    without = Tables(
        tables.runs.with_columns(alpha_hat=nothing, probe=pl.lit(None, dtype=pl.String)),
        tables.pairs.clear(),
        tables.repeats.with_columns(alpha_hat_mean=nothing, delta=nothing, n_side=nothing),
        tables.cells,
    )
    assert [plot.name for plot in draw.all_figures(without)] == ["accuracy", "accuracy-range"]
    html = render(content(without, notes=["alpha_hat needs keep.scores"]))
    assert "alpha_hat needs keep.scores" in html
    assert "Kolmogorov" not in html


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


def test_drawing_leaves_the_users_settings_alone(tables):
    before = dict(mpl.rcParams)
    draw.accuracy(tables.runs).svg()
    assert dict(mpl.rcParams) == before


def test_a_classifier_keeps_its_colour(tables):
    def first(plot):
        dots = plot.figure.axes[0].collections
        return {tuple(c.get_facecolor()[0][:3].round(3)) for c in dots if c.get_offsets().size > 2}

    alone = tables.repeats.filter(pl.col("classifier") == "lr-sgd")
    assert first(draw.accuracy_range(alone)) <= first(draw.accuracy_range(tables.repeats))


def test_groups_beyond_the_colours_get_other_markers():
    looks = {(colour(index), marker(index)) for index in range(36)}
    assert len(looks) == 36


def test_dots_are_thinned_evenly_and_keep_the_extremes():
    values = pl.Series(range(10 * MAX_POINTS)).cast(float).to_numpy()[::-1]
    shown = thinned(values)
    assert shown.size == MAX_POINTS
    assert (shown.min(), shown.max()) == (values.min(), values.max())


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 37])
def test_panels_fit_a_page(count):
    figure, axes = panels([str(index) for index in range(count)], "accuracy")
    assert [axis.get_title(loc="left") or axis.get_title() for axis in axes] == [
        str(index) for index in range(count)
    ]
    assert len(figure.axes) == count
    assert axes[0].get_ylabel() == "accuracy"


def test_numbers():
    assert number(None) == "–"
    assert number(-0.12345, 2) == "−0.12"
    assert difference(0.00001) == "0.0000"
    assert difference(-0.00001) == "0.0000"
    assert difference(0.25) == "+0.2500"
    assert difference(-0.25) == "−0.2500"


def test_a_panel_shows_the_classifiers_that_it_has_in_their_colours(tables):
    there = pl.col("dataset") == "vehicle"
    runs = tables.runs.filter(there | (pl.col("classifier") == "xgb"))
    axes = {
        axis.get_title(loc="left").replace("\n", " "): axis
        for axis in draw.accuracy(runs).figure.axes
    }
    ticks = {
        name: [label.get_text() for label in axis.get_xticklabels()] for name, axis in axes.items()
    }
    assert ticks == {
        f"{dataset} · {scheme}": names
        for dataset, names in (("vehicle", ["lr-sgd", "xgb"]), (NASTY, ["xgb"]))
        for scheme in ("none", "neighbour:0.5")
    }

    def last_colour(axis):
        return tuple(axis.collections[-2].get_facecolor()[0][:3])

    assert last_colour(axes["vehicle · none"]) == last_colour(axes[f"{NASTY} · none"])


def test_cells_are_never_put_together(tables):
    """A violin for each cell, on one axis a dataset; without schemes, a panel a dataset."""
    plot = draw.accuracy(tables.runs)
    assert "A panel for each perturb continuous of a dataset." in plot.caption
    datasets = sorted(("vehicle", NASTY))
    shown = [(dataset, scheme) for dataset in datasets for scheme in ("none", "neighbour:0.5")]
    for axis, (dataset, scheme) in zip(plot.figure.axes, shown, strict=True):
        here = tables.runs.filter(~pl.col("identical"), dataset=dataset, perturb_continuous=scheme)
        dots = [c.get_offsets().shape[0] for c in axis.collections if len(c.get_offsets()) > 1]
        assert sum(dots) == here.height
    first, second, third, _ = plot.figure.axes
    assert first.get_ylim() == second.get_ylim() != third.get_ylim()
    whole = draw.accuracy(tables.runs.filter(perturb_continuous="none"))
    assert [axis.get_title(loc="left") for axis in whole.figure.axes][-1] == "vehicle"
    assert "A panel" not in whole.caption


def test_panels_beyond_a_few_pages_are_told_not_drawn(tables, monkeypatch):
    monkeypatch.setattr(draw, "MAX_PANELS", 3)
    plot = draw.alpha_hat(tables.runs, tables.repeats)
    assert len(plot.figure.axes) == 3
    assert "1 further panels are not drawn" in plot.caption
    assert plot.n < tables.runs.height - 16


def test_a_legend_of_long_names_stays_on_the_page(tables):
    figure, axes = panels(["vehicle"], "α̂")
    names = [f"absolute:0.{index} of the whole range of the hparam" for index in range(9)]
    legend(figure, {name: axes[0].scatter([0], [0]) for name in names}, "scheme")
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width


@pytest.mark.parametrize("name", ["alpha_hat", "alpha_hat_against_accuracy"])
def test_the_resolution_stands_where_no_dot_can_be(tables, name):
    plot = getattr(draw, name)(tables.runs, tables.repeats)
    plot.figure.draw_without_rendering()
    for axis in plot.figure.axes:
        (label,) = axis.texts
        assert label.get_text().startswith("δ =")
        box = label.get_window_extent()
        assert axis.bbox.x1 < box.x0 < box.x1 <= plot.figure.bbox.width


def test_long_names_take_no_room_from_the_panels():
    dataset, classifier = "openml:a-dataset@2 " * 4, "lr-sgd:elastic-net-with-options"
    found = sweep(
        {f"{dataset}{i}": 60 for i in range(3)}, {classifier: 0.6, "xgb": 0.0}, repeats=1, runs=3
    )
    figure = draw.accuracy(found.runs.filter(perturb_continuous="none")).figure
    figure.draw_without_rendering()
    titles = [axis.title if axis.get_title() else axis._left_title for axis in figure.axes]
    boxes = [title.get_window_extent() for title in titles]
    ends = [*(box.x0 for box in boxes[1:]), figure.bbox.width]
    assert all(box.x1 < end for box, end in zip(boxes, ends, strict=True))
    assert all(axis.bbox.height > figure.bbox.height / 3 for axis in figure.axes)
    assert [text.get_text() for text in figure.legends[0].texts] == [classifier, "xgb"]
