"""The page in a browser: tables sort, filter and download, figures download, by keyboard too."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess

import pytest

from manyseed.analysis.options import Options
from manyseed.analysis.report.context import Counts, context
from manyseed.analysis.report.page import render
from tests.analysis.planted import planted

DRIVER = """
<script>
const saved = [], errors = [], found = {};
window.addEventListener("error", (event) => errors.push(event.message));
const blobs = [];
const made = URL.createObjectURL;
URL.createObjectURL = (blob) => { blobs.push(blob); return made(blob); };
HTMLAnchorElement.prototype.click = function () { saved.push(this.download); };
window.addEventListener("load", async () => {
  const table = document.querySelector("#summary table");
  const column = (name) => [...table.tHead.rows[0].cells]
    .findIndex((one) => one.textContent.replace(/\\s+/g, " ").trim().startsWith(name));
  const shown = (name) => [...table.tBodies[0].rows]
    .filter((row) => getComputedStyle(row).display !== "none")
    .map((row) => row.cells[column(name)].textContent.trim());
  const head = (name) => table.tHead.rows[0].cells[column(name)];
  found.first = shown("Dataset").length;
  const button = head("Accuracy").querySelector("button");
  button.focus();
  found.focused = document.activeElement === button;
  button.click();
  found.up = [head("Accuracy").getAttribute("aria-sort"), shown("Accuracy")];
  button.click();
  found.down = [head("Accuracy").getAttribute("aria-sort"), shown("Accuracy")];
  head("Classifier").querySelector("button").click();
  found.text = shown("Classifier");
  const all = document.querySelector("#summary .scroll + .controls button");
  if (all) { all.click(); found.all = shown("Dataset").length; }
  const filter = document.querySelector("#summary input");
  filter.value = "mlp data-01";
  filter.dispatchEvent(new Event("input"));
  found.filtered = [shown("Dataset"), shown("Classifier")];
  found.told = document.querySelector("#summary [role=status]").textContent;
  document.querySelector("#summary .controls button").click();
  document.querySelector("figure button").click();
  found.names = saved;
  found.files = await Promise.all(blobs.map((blob) => blob.text()));
  found.errors = errors;
  found.wide = document.documentElement.scrollWidth <= window.innerWidth;
  const result = document.createElement("script");
  result.type = "application/json";
  result.id = "found";
  result.textContent = JSON.stringify(found).replace(/</g, "\\\\u003c");
  document.body.append(result);
});
</script>
"""


@pytest.fixture(scope="module")
def page():
    tables = planted(
        datasets=11,
        schemes=("none", "noise"),
        runs=3,
        repeats=1,
        accuracy=lambda dataset, classifier, scheme, _: (
            0.5 + int(dataset[-2:]) / 50 + 0.01 * (classifier == "mlp") + 0.005 * (scheme == "none")
        ),
        between=0,
        sd=0.0001,
    )
    counts = Counts(planned=132, done=132, copies=0, failed=0, missing=0)
    return render(context("planted", counts, tables, Options(resamples=4), {"Seed": "1"}))


@pytest.fixture(scope="module", params=[(1280, 900), (390, 800)], ids=["wide", "narrow"])
def found(request, page, tmp_path_factory):
    """What a driver within the page saw and did."""
    folder = tmp_path_factory.mktemp("page")
    file = folder / "page.html"
    file.write_text(page.replace("<head>", f"<head>{DRIVER}", 1))
    browser = shutil.which("chromium")
    assert browser, "the report is tested in a browser: apt-get install chromium"
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-sync"
    width, height = request.param
    done = subprocess.run(
        [
            *(browser, *flags.split(), "--disable-background-networking", "--dump-dom"),
            *("--disable-component-update", f"--user-data-dir={folder / 'profile'}"),
            *("--enable-logging=stderr", "--virtual-time-budget=10000"),
            *(f"--window-size={width},{height}", file.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "CONSOLE" not in done.stderr, done.stderr
    (told,) = re.findall(r'<script type="application/json" id="found">(.*?)</script>', done.stdout)
    return json.loads(told)


def numbers(texts):
    return [float(text.split("±")[0]) for text in texts]


def test_no_error_and_no_sideways_scrolling_of_the_page(found):
    assert found["errors"] == []
    assert found["wide"]


def test_tables_sort_up_and_down_by_buttons_that_take_the_focus(found):
    assert found["focused"]
    order, texts = found["up"]
    assert order == "ascending"
    assert numbers(texts) == sorted(numbers(texts))
    assert numbers(texts)[0] == pytest.approx(0.5, abs=0.001)
    order, texts = found["down"]
    assert order == "descending"
    assert numbers(texts) == sorted(numbers(texts), reverse=True)
    assert numbers(texts)[0] == pytest.approx(0.715, abs=0.001)
    assert found["text"] == sorted(found["text"])


def test_many_rows_are_folded_and_shown_when_asked_for(found):
    assert (found["first"], found["all"]) == (40, 44)


def test_tables_filter_by_words(found):
    datasets, classifiers = found["filtered"]
    assert (datasets, classifiers) == (["data-01"] * 2, ["mlp"] * 2)
    assert found["told"] == "2 of 44 rows"


def test_the_rows_that_are_shown_are_downloaded_as_numbers(found):
    assert found["names"][0] == "summary.csv"
    rows = list(csv.DictReader(io.StringIO(found["files"][0])))
    assert [row["Dataset"] for row in rows] == ["data-01"] * 2
    for row in rows:
        assert 0.5 < float(row["Accuracy"]) < 0.6
        assert float(row["Accuracy ±"]) < 0.001
        assert row["Between test sets"] == ""


def test_figures_are_downloaded_as_files_of_their_own(found):
    from xml.etree import ElementTree

    assert found["names"][1].endswith(".svg")
    root = ElementTree.fromstring(found["files"][1].encode())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.findall(".//{http://www.w3.org/2000/svg}text")


def test_the_script_is_small(page):
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.S)
    assert len(script.encode()) < 30_000
    assert not re.search(r"fetch|XMLHttp|import\(|innerHTML|eval\(", script)
