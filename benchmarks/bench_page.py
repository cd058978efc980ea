"""The page of a large sweep in a browser: its size, and the seconds until it is drawn.

    python benchmarks/bench_page.py [--quick] [--json] [--page FILE]

The page is made of planted tables of 37 data sets, 4 classifiers and 9 perturbations, with two test
sets and ten runs each, or with ``--quick`` of 5 data sets; ``--page`` takes an existing one.
Chromium opens it several times at 1280 and 390 pixels; the fastest counts: seconds from the start
until two frames are drawn after loading, and CPU seconds of the page's main thread.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from manyseed.analysis.options import Options
from manyseed.analysis.report.page import RunCounts, context, render
from tests.analysis.planted import planted
from tests.browser import Browser

WIDTHS = (1280, 390)
DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"


def page(datasets: int) -> str:
    """Return the page of a planted sweep."""
    schemes = ("none", *(f"relative:0.{index}" for index in range(1, 9)))
    names = tuple(f"classifier-{index}" for index in range(4))
    tables = planted(
        datasets,
        names,
        schemes,
        repeats=2,
        accuracy=lambda dataset, classifier, scheme, _: (
            0.9 - 0.02 * (scheme != "none") - 0.01 * names.index(classifier)
        ),
        alpha=lambda dataset, *_: 0.1 * (dataset > "data-04"),
    )
    runs = tables.runs.height
    counts = RunCounts(planned=runs, done=runs, copies=0, failed=0, missing=0)
    return render(context("planted", counts, tables, Options(resamples=4), {}))


def measure(file: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Return the seconds that a page takes at each width."""
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(Path(profile))
        for width in WIDTHS:
            taken = []
            for _ in range(rounds):
                browser.open(Path("/dev/null"), width)
                browser.ask("Performance.enable", timeDomain="threadTicks")
                start, before = time.perf_counter(), busy(browser)
                browser.open(file, width)
                browser.js(DRAWN)
                taken.append((time.perf_counter() - start, busy(browser) - before))
                browser.ask("Performance.disable")
            seconds, cpu = (min(column) for column in zip(*taken, strict=True))
            elements = browser.js("document.querySelectorAll('*').length")
            found[str(width)] = {"seconds": seconds, "cpu": cpu, "elements": elements}
        browser.close()
    return found


def busy(browser: Browser) -> float:
    """Return the CPU seconds of the page's main thread."""
    told = browser.ask("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in told if one["name"] == "TaskDuration"))


def main() -> None:
    """Make the page, open it, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = arguments.page
        if file is None:
            file = Path(folder) / "page.html"
            file.write_text(page(5 if arguments.quick else 37))
        megabytes = file.stat().st_size / 1e6
        found = measure(file.resolve(), 2 if arguments.quick else 5)
    if arguments.json:
        print(json.dumps({"megabytes": megabytes, "widths": found}))
        return
    print(f"{megabytes:.2f} MB")
    for width, one in found.items():
        print(
            f"{width} pixels: {one['seconds']:.2f} s until drawn, {one['cpu']:.2f} s of CPU, "
            f"{one['elements']:,} elements"
        )


if __name__ == "__main__":
    main()
