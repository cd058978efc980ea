"""The lines of docs/response.md run, and give what the page says."""

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "response.md"


def test_the_documented_lines_run() -> None:
    of_a_sweep, block = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    names: dict[str, Any] = {}
    exec(block, names)
    response, found = names["response"], names["found"]
    assert response.gi(names["magnitudes"], [1.0] * 11) == 0
    assert response.pal(names["magnitudes"], [1.0] * 11) == pytest.approx(84)
    assert found.cmi > found.null_q95
    assert names["together"].cmi > 2 * found.null_q95
    assert names["noise"].cmi < found.cmi / 3
    assert names["models"].columns == ["depth", "width", "gap", "gi", "mixup"]
    assert {"response_right", "response_total"} == {*re.findall(r"response_\w+", of_a_sweep)}
