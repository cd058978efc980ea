"""How numbers are rounded: by one function, alike however their terms were added up."""

from __future__ import annotations

import re
from pathlib import Path

from manyseed.analysis.counts import fixed, signed
from manyseed.analysis.report.tables import number
from manyseed.orchestrator.cli.output import shown

_ROOT = Path(__file__).parents[2]
_OWN = re.compile(r"\{[^{}]+:\+?\.[234]f\}")


def test_a_mean_is_written_alike_in_every_order_of_its_terms() -> None:
    exact, off = 0.86375, 0.8637499999999999
    assert f"{exact:.4f}" != f"{off:.4f}"  # as Python writes them
    for write in (fixed, shown, lambda value: number(value, 4)):
        assert write(off) == write(exact) == "0.8638"
    assert signed(off) == signed(exact) == "+0.8638"
    assert (fixed(0.1235, 3), fixed(-0.5, 2), signed(-0.1, 3)) == ("0.123", "-0.50", "-0.100")
    assert fixed(float("nan")) == "nan"


def test_results_are_rounded_by_that_function_alone() -> None:
    files = [*(_ROOT / "analysis").rglob("*.py"), *(_ROOT / "orchestrator/results").rglob("*.py")]
    files.append(_ROOT / "orchestrator/cli/analyze.py")
    found = {
        f"{file.name}: {one}"
        for file in files
        for one in _OWN.findall(file.read_text("utf-8"))
        if file.name != "svg.py"  # coordinates
    }
    assert not found
