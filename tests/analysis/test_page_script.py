"""The page in a browser: tables sort, filter and download; figures download, switch, name runs."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace

import polars as pl
import pytest

from manyseed.analysis.options import Options
from manyseed.analysis.report.page import RunCounts, context, render
from tests.analysis.planted import planted

DRIVER = """
<script>
const saved = [], errors = [], found = {};
window.addEventListener("error", (event) => errors.push(event.message));
window.addEventListener("unhandledrejection", (event) => console.error(String(event.reason)));
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
  document.querySelectorAll("#summary .controls button")[1].click();
  const one = document.querySelector("figure[data-dataset]");
  const picture = one.querySelector("svg");
  const marks = JSON.parse(one.querySelector("script.marks").textContent);
  const place = new DOMPoint(marks.x[3], marks.y[3]).matrixTransform(picture.getScreenCTM());
  const tip = document.querySelector(".tip");
  const point = (x, y) => picture.dispatchEvent(
    new PointerEvent("pointermove", { clientX: x, clientY: y, bubbles: true }));
  found.dots = marks.runs.length;
  found.silent = tip.hidden;
  point(place.x + 0.5, place.y + 0.5);
  found.pointed = [tip.hidden ? "" : tip.textContent, marks.runs[3]];
  found.inside = tip.getBoundingClientRect().right <= innerWidth;
  point(place.x, place.y - 4000);
  found.left = tip.hidden;
  const tables = [...document.querySelectorAll(".scroll > table")]
    .filter((one) => one.checkVisibility());
  const every = [...table.tHead.rows[0].cells];
  const names = (heads) => heads.map((one) => one.textContent.replace(/\\s+/g, " ").trim());
  const seen_heads = () => names(every.filter((one) => one.offsetWidth));
  const fits = (of) => of.parentElement.scrollWidth <= of.parentElement.clientWidth;
  const whole = table.parentElement.parentElement.querySelector("[aria-pressed]");
  found.columns = [names(every), seen_heads(), tables.every(fits), tables.length,
    whole.parentElement.textContent];
  const counts = [...table.rows].map((row) => [...row.cells]
    .filter((one) => one.offsetWidth));
  found.even = new Set(counts.map((one) => one.length).filter(Boolean)).size;
  whole.click();
  found.all_columns = [seen_heads().length, whole.getAttribute("aria-pressed")];
  whole.click();
  found.again = seen_heads();
  const room = (width) => {
    table.parentElement.style.width = width;
    whole.click();
    whole.click();
  };
  room("120px");
  found.tight = seen_heads();
  const box = table.parentElement.getBoundingClientRect();
  found.in_view = [...table.rows].filter((row) => row.offsetHeight)
    .map((row) => row.cells[column("Accuracy")].getBoundingClientRect())
    .every((one) => one.left >= box.left - 1 && one.right <= box.right + 1);
  room("");
  const arrow = (name) => getComputedStyle(head(name).querySelector("button"), "::before").content;
  found.arrows = ["Accuracy", "Churn", "EC local"].map(arrow);
  const region = one.querySelector(".scroll");
  const step = (key) => {
    region.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    return tip.textContent;
  };
  found.stepped = [step("."), step("."), step(",")];
  const seen = () => [...document.querySelectorAll("figure[data-dataset]")]
    .filter((figure) => figure.getClientRects().length && !figure.closest("[hidden]"))
    .map((figure) => figure.dataset.dataset);
  const [datasets, classifiers, schemes] = document.querySelectorAll("#cells + .controls select");
  const choose = (select, value) => {
    select.value = value;
    select.dispatchEvent(new Event("change"));
  };
  choose(datasets, "data-03");
  found.chosen = seen();
  choose(datasets, "");
  choose(classifiers, "mlp");
  const faint = (colour) => [...picture.querySelectorAll("path")]
    .filter((path) => path.closest(`[style*="${colour}" i]`))
    .map((path) => getComputedStyle(path.closest(`[style*="${colour}" i]`)).opacity);
  found.dimmed = [faint("#0072b2"), faint("#d55e00")];
  choose(classifiers, "");
  found.undimmed = faint("#0072b2");
  const veils = () => [...picture.querySelectorAll(".veil")]
    .map((one) => one.getBoundingClientRect());
  const label = (name) => [...picture.querySelectorAll("text")]
    .find((one) => one.textContent === name).getBoundingClientRect();
  const under = (name) => veils().some((veil) => {
    const said = label(name);
    return said.top >= veil.top && said.bottom <= veil.bottom && said.left >= veil.left;
  });
  found.levels = [schemes.parentElement.textContent.trim().slice(0, 18),
    [...schemes.options].map((one) => one.value)];
  choose(schemes, "noise");
  found.veiled = [under("none"), under("noise"), veils().length];
  const down = [...marks.y.keys()].sort((a, b) => marks.y[a] - marks.y[b]);
  const told = [down[0], down[down.length - 1]].map((index) => {
    const spot = new DOMPoint(marks.x[index], marks.y[index])
      .matrixTransform(picture.getScreenCTM());
    point(spot.x, spot.y);
    return tip.hidden;
  });
  found.covered = told;
  document.querySelector("figure[data-dataset] figcaption button").click();
  choose(schemes, "");
  found.unveiled = veils().length;
  window.print = () => {
    found.printed = [document.title, document.body.className,
      document.querySelectorAll(".printed").length, document.head.lastChild.textContent];
  };
  const title = document.title;
  const [, asPng, asPdf, asCsv] = one.querySelectorAll("figcaption button");
  asCsv.click();
  asPdf.click();
  found.after = [document.title === title, document.body.className];
  const drawn = new Promise((done) => {
    HTMLCanvasElement.prototype.toBlob = function (take, type) {
      const pen = this.getContext("2d");
      const { data } = pen.getImageData(0, 0, this.width, this.height);
      const colours = new Set();
      for (let k = 0; k < data.length; k += 4) colours.add(data.slice(k, k + 3).join());
      take(new Blob(["PNG"], { type }));
      done([saved[saved.length - 1], this.width / picture.viewBox.baseVal.width, colours.size]);
    };
  });
  asPng.click();
  found.png = await drawn;
  document.querySelector("#overview-accuracy-mean figcaption button:last-child").click();
  one.querySelector("figcaption button:last-child").click();
  found.names = saved;
  found.files = await Promise.all(blobs.map((blob) => blob.text()));
  found.width = innerWidth;
  found.errors = errors;
  found.wide = document.documentElement.scrollWidth <= window.innerWidth;
  const visible = () => [...document.querySelectorAll("figure")]
    .filter((one) => one.checkVisibility());
  found.folded = document.querySelectorAll("figure").length - visible().length;
  for (const rule of document.styleSheets[0].cssRules) {
    if (!rule.media) continue;
    if (rule.media.mediaText === "print") rule.media.mediaText = "all";
    else if (rule.media.mediaText === "screen") rule.media.mediaText = "not all";
  }
  picture.setAttribute("viewBox", "0 0 600 3000");
  picture.setAttribute("width", "600pt");
  picture.setAttribute("height", "3000pt");
  found.columns_on_paper = seen_heads().length;
  found.boxes_on_paper = [...document.querySelectorAll("thead button")]
    .filter((one) => getComputedStyle(one).display !== "contents").length;
  const sizes = [...document.querySelectorAll("figure svg")]
    .map((one) => one.getBoundingClientRect());
  found.paper = [visible().length - document.querySelectorAll("figure").length,
    Math.max(...sizes.map((one) => one.height)) * 2.54 / 96,
    Math.max(...sizes.map((one) => one.right)) <= window.innerWidth];
  const result = document.createElement("script");
  result.type = "application/json";
  result.id = "found";
  result.textContent = JSON.stringify(found).replace(/</g, "\\\\u003c");
  document.body.append(result);
});
</script>
"""


@pytest.fixture(scope="module")
def tables():
    return planted(
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


@pytest.fixture(scope="module")
def page(tables):
    one = pl.when(pl.col("dataset") == "data-00").then(0.01)  # of all others there is a dash
    tables = replace(tables, cells=tables.cells.with_columns(accuracy_mean_sd=one))
    counts = RunCounts(planned=132, done=132, copies=0, failed=0, missing=0)
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
            *("--enable-logging=stderr", "--virtual-time-budget=60000"),
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


def test_heads_are_text_on_paper(found):
    """Chromium repeats a head on each page, without the text of boxes within it."""
    assert found["boxes_on_paper"] == 0


def test_on_paper_no_figure_is_folded_or_taller_than_a_page(found):
    assert found["folded"] > 5
    unseen, tallest, inside = found["paper"]
    assert unseen == 0
    assert 19 < tallest < 20.1  # centimetres
    assert inside


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


def test_columns_that_there_is_no_room_for_are_left_out_and_named(found):
    every, heads, fit, tables, told = found["columns"]
    assert (fit, found["even"]) == (True, 1)
    assert tables > 2
    missing = [name for name in every if name not in heads]
    assert told == f"All columnsno room for: {', '.join(missing)}"
    assert found["again"] == heads
    assert found["all_columns"] == [len(every), "true"]
    assert found["columns_on_paper"] == len(every)
    words = ["Dataset", "Classifier", "Perturb continuous"]
    assert found["tight"] == [
        "Dataset",
        "Accuracy ± seeds",
    ]  # the other words stand below Dataset's
    assert heads[:3] == words
    assert "Accuracy ± seeds" in heads
    assert (len(heads) >= 12) == (found["width"] > 1000)


def test_on_a_phone_accuracy_is_in_view_however_many_words_are_beside_it(found):
    assert found["in_view"] or found["width"] > 1000


def test_arrows_say_whether_more_is_better(found):
    assert [one[1:2] for one in found["arrows"]] == ["↑", "↓", "o"]  # of none: "none"


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


def test_tables_are_downloaded_as_latex(found):
    assert found["names"][2] == "summary.tex"
    lines = found["files"][2].splitlines()
    assert lines[0] == r"% needs \usepackage{booktabs}"
    assert lines[2].startswith(r"\begin{tabular}{lll")
    assert [line for line in lines if line.startswith("\\")][1] == r"\toprule"
    rows = [line for line in lines if line.startswith("data-01 & mlp &")]
    assert len(rows) == 2
    assert lines[4].count("&") == rows[0].count("&")
    assert re.search(r"& \$0\.5\d\d\d \\pm 0\.000\d\$ &", rows[0])
    assert r"$\hat\alpha$" in lines[4]
    assert rows[0].endswith(r"\\")
    assert lines[-1] == r"\end{tabular}"


def test_dots_name_their_runs_to_pointers_and_keys(found):
    assert found["silent"]
    said, run = found["pointed"]
    assert re.fullmatch(r"\d+:0:\d", run)
    assert said == f"run {run} (manyseed status DIR {run})"
    assert found["inside"]
    assert found["left"]
    first, second, again = found["stepped"]
    assert first == again != second
    assert first.startswith("run ")


def test_figures_switch_between_datasets_and_classifiers(found):
    assert set(found["chosen"]) == {"data-03"}
    other, chosen = found["dimmed"]
    assert set(other) == {"0.06"}
    assert "0.06" not in chosen
    assert "0.06" not in found["undimmed"]


def test_figures_switch_between_schemes_of_the_axes_that_vary(found):
    assert found["levels"] == ["perturb continuous", ["", "none", "noise"]]
    none, noise, count = found["veiled"]
    assert (none, noise, count) == (True, False, 1)
    assert found["covered"] == [True, False]  # dots of the first rows have no name any more
    assert found["unveiled"] == 0
    assert found["names"][3] == "cells-1.svg"
    assert "veil" not in found["files"][3]  # the file has all rows


def test_the_numbers_of_dots_are_downloaded(found, tables):
    """Each as the table has it, under the name of its panel."""
    assert found["names"][4] == "cells-1.csv"
    rows = list(csv.DictReader(io.StringIO(found["files"][4])))
    named = {(row["run"], row["panel"]): float(row["value"]) for row in rows}
    assert len(named) == len(rows) == found["dots"]
    runs = tables.runs.filter(dataset="data-00").rows(named=True)
    assert len(runs) == 12
    for row in runs:
        address = f"{row['cell']}:{row['repeat_index']}:{row['run_index']}"
        assert named[address, "accuracy"] == pytest.approx(row["accuracy"], rel=1e-5)


def test_numbers_of_figures_that_show_no_runs_are_downloaded(found, tables):
    at = found["names"].index("overview-accuracy-mean.csv")
    rows = list(csv.DictReader(io.StringIO(found["files"][at])))
    assert len(rows) == tables.cells.height
    means = dict(tables.cells.select("cell", "accuracy_mean").iter_rows())
    for row in rows:
        assert float(row["accuracy_mean"]) == pytest.approx(means[int(row["cell"])], rel=1e-5)
        assert row["perturb_continuous"] in ("none", "noise")


def test_quantiles_stand_beside_the_runs_of_cells(found, tables):
    at = found["names"].index("cells-1-quantiles.csv")
    rows = list(csv.DictReader(io.StringIO(found["files"][at])))
    assert {row["dataset"] for row in rows} == {"data-00"}
    runs = tables.runs.filter(dataset="data-00")
    of_accuracy = [row for row in rows if row["quantity"] == "accuracy"]
    assert len(of_accuracy) == runs["cell"].n_unique()
    for row in of_accuracy:
        own = runs.filter(cell=int(row["cell"]))["accuracy"]
        told = [float(row[name]) for name in ("n", "min", "median", "max")]
        wanted = [own.len(), own.min(), own.median(), own.max()]
        assert told == pytest.approx(wanted, rel=1e-5)


def test_figures_are_downloaded_as_pixels_and_printed_alone(found):
    name, scale, colours = found["png"]
    assert (name, scale) == ("cells-1.png", pytest.approx(4, abs=0.01))
    assert colours > 20  # of a picture with text and shapes
    title, alone, count, paper = found["printed"]
    assert (title, alone, count) == ("cells-1", "alone", 1)
    assert re.fullmatch(r"@page \{ size: [\d.]+pt [\d.]+pt; margin: 0 \}", paper)
    assert found["after"] == [True, ""]


def test_the_script_is_small(page):
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.S)
    assert len(script.encode()) < 30_000
    assert not re.search(r"fetch|XMLHttp|import\(|innerHTML|eval\(", script)
