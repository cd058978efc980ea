"""Figures that are kept: drawn once, drawn again if what they show has changed."""

from __future__ import annotations

import json
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manyseed import Sweep
from manyseed.analysis.figures import drawing, svg
from manyseed.analysis.figures.svg import Picture, is_picture
from manyseed.analysis.options import Options
from manyseed.orchestrator.disk import placing
from tests.orchestrator.test_lean import loaded_by
from tests.readonly import read_only

KEPT = "As it was kept"


@pytest.fixture
def sweep(quick_analysed: Sweep, tmp_path: Path) -> Sweep:
    return Sweep(shutil.copytree(quick_analysed.directory, tmp_path / "sweep"))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a page have few figures: drawing takes seconds."""
    monkeypatch.setattr(drawing, "KINDS", [one for one in drawing.KINDS if one.name == "cells"])


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of figures that are drawn, as they are."""
    names: list[str] = []
    really = drawing.drawn

    def noted(plot: Any) -> Picture:
        names.append(plot.name)
        return really(plot)

    monkeypatch.setattr(drawing, "drawn", noted)
    return names


def page(sweep: Sweep) -> str:
    """Make the page; return it without its time, and without whether this checkout is edited."""
    return timeless(sweep.report().read_text())


def timeless(html: str) -> str:
    html = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d[:\d]*", "", html)
    return html.replace("-dirty</dd>", "</dd>")


def written(sweep: Sweep) -> Any:
    return json.loads(zlib.decompress(sweep.paths.figures.read_bytes()))


def rewrite(sweep: Sweep, value: object) -> None:
    sweep.paths.figures.write_bytes(zlib.compress(json.dumps(value).encode()))


def mark(sweep: Sweep) -> Any:
    """Change a title in the file, so that its use is seen on the page; return what is written."""
    value = written(sweep)
    value["figures"][0]["title"] = KEPT
    rewrite(sweep, value)
    return value


def test_a_second_report_draws_nothing_and_is_equal(sweep: Sweep, draws: list[str]) -> None:
    first = page(sweep)
    assert len(draws) == first.count("<figure ") > 3
    draws.clear()
    assert page(sweep) == first
    assert not draws
    mark(sweep)
    assert KEPT in page(sweep), "it is seen that the file is used"


@pytest.mark.process
def test_a_second_report_does_not_import_what_draws(sweep: Sweep) -> None:
    assert "matplotlib" in loaded_by(["report", str(sweep.directory)], {})
    assert "matplotlib" not in loaded_by(["report", str(sweep.directory)], {})


@pytest.mark.usefixtures("few")
def test_figures_of_other_tables_options_or_code_are_drawn_again(
    sweep: Sweep, draws: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = page(sweep)
    value = mark(sweep)
    for other in ({"drawing": "0"}, {"tables": {}}, {"options": {}}):
        rewrite(sweep, {**value, "of": {**value["of"], **other}})
        assert page(sweep) == first
        assert written(sweep)["of"] == value["of"], "kept anew"
    mark(sweep)
    monkeypatch.setattr(svg, "_DRAWING", ("numpy",))
    draws.clear()
    assert page(sweep) == first
    assert draws


@pytest.mark.usefixtures("few")
def test_a_further_analysis_is_drawn(sweep: Sweep, draws: list[str]) -> None:
    page(sweep)
    old = sweep.paths.figures.read_bytes()
    sweep.analyze(Options(resamples=3, close=0.001), workers=1)
    draws.clear()
    second = page(sweep)
    assert draws
    sweep.paths.figures.unlink()
    assert page(sweep) == second
    sweep.paths.figures.write_bytes(old)  # as if the last one were not written
    assert page(sweep) == second


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda _: b"",
    "a byte changed": lambda data: data[:-2] + bytes([data[-2] ^ 1]) + data[-1:],
    "not compressed": zlib.decompress,
    "a list": lambda _: zlib.compress(b"[]"),
    "no figures": lambda data: zlib.compress(
        json.dumps({"of": json.loads(zlib.decompress(data))["of"]}).encode()
    ),
    "figures without names": lambda data: zlib.compress(
        json.dumps({**json.loads(zlib.decompress(data)), "figures": [{}]}).encode()
    ),
}


@pytest.mark.usefixtures("few")
def test_damaged_figures_are_drawn_again(sweep: Sweep) -> None:
    first = page(sweep)
    whole = sweep.paths.figures.read_bytes()
    for name, damage in DAMAGE.items():
        sweep.paths.figures.write_bytes(damage(whole))
        assert page(sweep) == first, name
        assert sweep.paths.figures.read_bytes() == whole, name
    sweep.paths.figures.unlink()
    sweep.paths.figures.mkdir()  # cannot be read
    with pytest.raises(placing.StoreUnavailable):
        page(sweep)
    assert timeless(sweep.paths.report.read_text()) == first


@pytest.mark.usefixtures("few")
def test_a_picture_that_could_do_more_than_be_seen_is_drawn_again(sweep: Sweep) -> None:
    first, value = page(sweep), written(sweep)
    svg = value["figures"][0]["svg"]
    for bad in (
        svg.replace("</svg>", "<script>alert(1)</script></svg>"),
        svg.replace("<svg ", '<svg onload="alert(1)" ', 1),
        svg.replace("</svg>", "<!-- --></svg>"),
        svg + "<script>alert(1)</script>",
    ):
        value["figures"][0]["svg"] = bad
        rewrite(sweep, value)
        assert page(sweep) == first


@pytest.mark.parametrize(
    "inside",
    [
        "<script>alert(1)</script>",
        "<foreignObject><p>text</p></foreignObject>",
        '<g onclick="alert(1)"/>',
        '<use href="https://example.org/#a"/>',
        '<image href="data:image/svg+xml;base64,AAAA"/>',
        '<g style="fill:url(https://example.org)"/>',
        '<a href="#x"/>',
        "<![CDATA[<script>]]>",
        '<p xmlns="http://www.w3.org/1999/xhtml"/>',
        "<g>",
    ],
)
def test_a_picture_is_shapes_alone(inside: str) -> None:
    start = '<svg xmlns="http://www.w3.org/2000/svg">'
    shapes = '<g style="fill:url(#a)"><use href="#b"/><text x="1">&lt;a&gt;</text></g>'
    assert is_picture(f"{start}{shapes}</svg>")
    assert not is_picture(f"{start}{shapes}{inside}</svg>")


@pytest.mark.usefixtures("few")
def test_figures_of_a_sweep_whose_results_are_read_only_are_drawn(sweep: Sweep) -> None:
    first = page(sweep)
    sweep.paths.figures.unlink()
    with read_only(sweep.paths.results):
        assert page(sweep) == first
    assert not sweep.paths.figures.exists()
