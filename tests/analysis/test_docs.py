"""docs/results.md names every column, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from analysis.group import analyze_group, compute
from analysis.options import Options
from tests.analysis.samples import noisy, predictions, regular

PAGE = Path(__file__).parents[2] / "docs" / "results.md"


@pytest.fixture(scope="module")
def tables():
    runs = regular(1, 1, 3)
    score, y_true = noisy(np.random.default_rng(0), runs, 10)
    group = analyze_group(predictions(score, y_true, runs), Options(resamples=2))
    return compute([group], scheduler="synchronous")[0]


def documented(table):
    """Names in the section of a table: those of its rows, and names with endings in the prose."""
    section = PAGE.read_text().split(f"## {table}.parquet")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*) \|", section, flags=re.MULTILINE)
    names = {n for row in rows for n in re.findall(r"`([a-z]\w*)`", row)}
    prose = section.split("\nand ")[1].split("\n\n|")[0] if "\nand " in section else ""
    if table == "repeats":
        for group in prose.split(": ", 1)[1].split(";"):
            bases = re.findall(r"`([a-z]\w*)`", group)
            names |= {b + e for b in bases for e in re.findall(r"`(_\w+)`", group)}
    elif table == "cells":
        endings = {
            e
            for row in re.findall(r"^\| (`_.*?) \|", section, flags=re.MULTILINE)
            for e in re.findall(r"`(_\w+)`", row)
        }
        names |= {b + e for b in re.findall(r"`([a-z]\w*)`", prose) for e in {"", *endings}}
    return names


@pytest.mark.parametrize("table", ["runs", "pairs", "repeats", "cells"])
def test_every_column_is_documented(tables, table):
    assert documented(table) == set(getattr(tables, table).columns)
