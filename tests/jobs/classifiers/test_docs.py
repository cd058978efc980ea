"""The tables of docs/classifiers.md are the hparam spaces."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from manyseed.jobs import classifiers
from manyseed.jobs.hparams import Categorical, Continuous
from manyseed.orchestrator.cli import guide
from tests.jobs.classifiers.test_golden import GOLDEN

PROBABILITIES = {"softmax": "softmax", "ovr": "sigmoid", "none": "none"}
PAGE = (Path(__file__).parents[3] / "docs" / "classifiers.md").read_text()


def shown(value):
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else f"{value:g}"


def row(hparam):
    if isinstance(hparam, Categorical):
        values = [v if isinstance(v, str) else shown(v) for v in (*hparam.levels, hparam.default)]
        return (hparam.name, ", ".join(values[:-1]), values[-1])
    if isinstance(hparam, Continuous):
        scale = ", log" if hparam.log else ""
        values = f"{shown(hparam.low)} to {shown(hparam.high)}{scale}"
    elif isinstance(hparam.levels, range):
        values = f"whole, {hparam.levels[0]} to {hparam.levels[-1]}"
    else:
        values = ", ".join(map(str, hparam.levels))
    return (hparam.name, values, shown(hparam.default))


def test_hparam_tables_are_the_spaces():
    tables = dict(re.findall(r"<!-- hparams: (\S+) -->\n\|.*\n\|.*\n((?:\|.*\n)+)", PAGE))
    assert set(tables) == set(GOLDEN["classifiers"])
    for name, table in tables.items():
        rows = [tuple(line.strip("|").split("|")) for line in table.splitlines()]
        written = [tuple(cell.strip() for cell in cells) for cells in rows]
        expected = [row(hparam) for hparam in classifiers.CLASSIFIERS[name].space]
        if name == "svm-sgd":  # "has these and"
            expected = expected[len(classifiers.CLASSIFIERS["lr-sgd"].space) :]
        assert written == expected


def test_every_classifier_has_its_row():
    rows = dict(re.findall(r"^\| `(\S+)` \| (.*) \|$", PAGE, re.MULTILINE))
    for name in GOLDEN["classifiers"]:
        record = classifiers.CLASSIFIERS[name]
        _, _, data, _, probability, streams = rows[name].split(" | ")
        assert {one for one in ("init", "batch") if one in streams} == record.streams, name
        assert data.startswith("images") == record.images_only, name
        assert probability.startswith(PROBABILITIES[record.probability]), name


def test_other_classifiers_are_told_by_their_records(monkeypatch):
    assert guide.completed("start", "# Start") == "# Start"
    known = guide.completed("classifiers", PAGE)
    further = set(classifiers.names()) - set(GOLDEN["classifiers"])
    assert set(re.findall(r"^- `(\S+)`: \S", known.removeprefix(PAGE), re.MULTILINE)) == further
    other = replace(classifiers.CLASSIFIERS["xgb"], name="other", about="Trees that are not ours.")
    monkeypatch.setitem(classifiers.CLASSIFIERS, "other", other)
    told = guide.completed("classifiers", PAGE).removeprefix(PAGE)
    assert (
        "- `other`: Trees that are not ours. Probabilities: softmax; runs vary with batch." in told
    )
    for hparam in other.space:
        assert f"`{hparam.name}`: " in told
