"""The page by keyboard, on a phone, in the dark and on paper, in a browser."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from manyseed.analysis.figures.svg import Picture
from manyseed.analysis.options import Options
from manyseed.analysis.report.page import RunCounts, context, render
from tests.analysis.planted import planted
from tests.browser import Browser

SQUARE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="600pt" height="600pt" viewBox="0 0 600 600">'
    '<rect width="600" height="600"/></svg>'
)
PHONE, DESK, PAPER = 390, 1280, 718  # pixels of their widths
ROWS = (
    "[...document.querySelector('#summary table').tBodies[0].rows].filter(one => one.offsetHeight)"
)
SETTLED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
WORDS = {
    "vary": ("init+batch", "init+batch+split"),
    "augment": ("none", "flip+crop:4+rotate:15"),
    "hparams": ("default", "tuned-on-another-split"),
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Yield a browser for all tests."""
    opened = Browser(tmp_path_factory.mktemp("browser") / "profile")
    yield opened
    opened.close()


def written(folder, tables, **changes):
    counts = RunCounts(planned=9, done=9, copies=0, failed=0, missing=0)
    content = context("planted", counts, tables, Options(resamples=4), {"Seed": "1"}, **changes)
    file = folder / "page.html"
    file.write_text(render(replace(content, sweep_file='name = "planted"')))
    return file


@pytest.fixture(scope="module")
def many_words(tmp_path_factory):
    """A page whose cells differ in five axes, of datasets with long names; without figures."""
    tables = planted(2, ("a-forest-of-many-random-trees", "mlp"), ("none", "relative:0.1"), runs=3)

    def named(table):
        place = pl.col("cell")
        return table.with_columns(
            pl.format("openml-house-prices-{}", "dataset").alias("dataset"),
            *(
                pl.when(place // 2 ** (1 + k % 2) % 2 == 0)
                .then(pl.lit(a))
                .otherwise(pl.lit(b))
                .alias(name)
                for k, (name, (a, b)) in enumerate(WORDS.items())
            ),
        )

    parts = {name: named(getattr(tables, name)) for name in ("runs", "pairs", "repeats", "cells")}
    return written(tmp_path_factory.mktemp("words"), replace(tables, **parts), figures=[])


@pytest.fixture(scope="module")
def many_figures(tmp_path_factory):
    """A page with a figure for each of seven datasets, each in a fold."""
    tables = planted(7, runs=3, repeats=1)
    names = tables.cells["dataset"].unique().sort().to_list()
    drawn = [("classifiers", ""), *((f"cells-{k}", name) for k, name in enumerate(names, start=1))]
    figures = [
        Picture(name, name, "A square.", 1, dataset, SQUARE, None, (), "", 0)
        for name, dataset in drawn
    ]
    return written(tmp_path_factory.mktemp("figures"), tables, figures=figures)


def test_tables_are_sorted_by_keys(browser, many_words):
    browser.open(many_words, DESK)
    head = "it.closest('th')"
    browser.tab_to(f"it.className === 'sort' && {head}.textContent.startsWith('Accuracy')")
    assert browser.js("document.activeElement.matches(':focus-visible')")
    assert browser.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    column = browser.js("document.activeElement.closest('th').cellIndex")
    seen = {}
    for key, order in (("Enter", "ascending"), (" ", "descending")):
        browser.press(key)
        assert browser.js("document.activeElement.closest('th').ariaSort") == order
        texts = browser.js(f"{ROWS}.map(row => row.cells[{column}].textContent)")
        seen[order] = [float(text.split("±")[0]) for text in texts]
    assert seen["ascending"] == sorted(seen["ascending"]) == seen["descending"][::-1]
    assert len(set(seen["ascending"])) > 4


def test_rows_and_figures_are_filtered_by_keys(browser, many_figures):
    browser.open(many_figures, PHONE)
    browser.tab_to("it.type === 'search' && it.closest('#summary')")
    browser.write("mlp data-01")
    assert browser.js(f"{ROWS}.map(row => row.cells[0].textContent)") == ["data-01"]
    browser.tab_to("it.matches('#cells + .controls select')")
    browser.press("ArrowDown")
    shown = (
        "[...document.querySelectorAll('figure[data-dataset]')].filter(it => it.checkVisibility())"
    )
    assert browser.js(f"{shown}.map(it => it.dataset.dataset)") == ["data-00"]


def test_folds_open_by_keys_and_by_links(browser, many_figures):
    browser.open(many_figures, DESK)
    browser.tab_to("it.matches('.why > summary')")
    states = []
    for key in ("Enter", " "):
        browser.press(key)
        states.append(browser.js("document.activeElement.parentElement.open"))
    assert states == [True, False]
    assert not browser.js("document.querySelector('#cells-5').checkVisibility()")
    browser.js("location.hash = '#cells-5'")
    assert browser.js("document.querySelector('#cells-5').checkVisibility()")
    browser.tab_to("it.closest('#cells-5')", most=3)  # goes on from there


OVERLAPS = """
[...document.querySelectorAll('.scroll > table')].flatMap(table => [...table.rows].flatMap(row => {
  const cells = [...row.cells].filter(one => one.offsetWidth);
  const boxes = cells.map(one => one.getBoundingClientRect());
  return cells.filter((one, k) =>
    one.scrollWidth > one.clientWidth + 1 || (k && boxes[k].left < boxes[k - 1].right - 0.5)
  ).map(one => one.textContent.trim());
}))
"""


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_no_column_covers_its_neighbour(browser, many_words, width):
    """Nor is the page wider than the window; with the columns that fit, and with all."""
    browser.open(many_words, width)
    browser.js("document.querySelectorAll('details').forEach(one => { one.open = true })")
    browser.js(SETTLED)
    assert browser.js("document.querySelectorAll('.scroll > table').length") >= 3
    for _ in range(2):
        assert browser.js(OVERLAPS) == []
        assert browser.js("document.documentElement.scrollWidth <= innerWidth")
        browser.js("document.querySelectorAll('[aria-pressed=false]').forEach(one => one.click())")
        browser.js(SETTLED)


def test_words_that_have_no_column_on_a_phone_stand_below_those_of_the_first(browser, many_words):
    browser.open(many_words, PHONE)
    browser.js(SETTLED)
    seen = f"{ROWS}.map(row => [...row.cells].filter(one => one.offsetWidth).length)"
    assert set(browser.js(seen)) == {2}
    below = browser.js(
        "getComputedStyle(document.querySelector('#summary tbody th'), '::after').content"
    )
    assert below == '"a-forest-of-many-random-trees · none · default · init+batch · none"'
    right = f"{ROWS}.map(row => row.querySelector('.main').getBoundingClientRect().right)"
    assert max(browser.js(right)) <= PHONE
    fits = "(it => it.scrollWidth <= it.clientWidth)(document.querySelector('#summary .scroll'))"
    assert browser.js(fits)


def test_on_paper_folds_are_open_and_tables_whole(browser, many_figures):
    browser.open(many_figures, DESK, scheme="dark")
    light = "getComputedStyle(document.body)"
    dark = browser.js(f"[{light}.color, {light}.backgroundColor]")
    browser.show(PAPER, media="print", scheme="dark")
    assert browser.js(f"[{light}.color, {light}.backgroundColor]") != dark
    assert browser.js(f"[{light}.color, {light}.backgroundColor]") == [
        "rgb(0, 0, 0)",
        "rgb(255, 255, 255)",
    ]
    hidden = (
        "[...document.querySelectorAll('details > :not(summary, .controls), tbody tr, td, th')]"
    )
    assert browser.js(f"{hidden}.filter(one => !one.checkVisibility()).length") == 0
    drawn = "[...document.querySelectorAll('table, figure svg')]"
    assert max(browser.js(f"{drawn}.map(one => one.getBoundingClientRect().right)")) <= PAPER
    assert browser.js(OVERLAPS) == []
