"""The page of the sweep file lists every key, and what it shows plans."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from manyseed.analysis.options import CONVENTIONS
from manyseed.jobs import classifiers, datasets
from manyseed.jobs.ensembling.methods import METHODS
from manyseed.jobs.response import OPTIONS
from manyseed.orchestrator.grids.sweepfile import (
    AnalysisTable,
    ClassifierTable,
    DatasetTable,
    EnsemblingTable,
    Grid,
    Keep,
    Response,
    SweepFile,
    Tune,
)
from manyseed.orchestrator.plans.cost import GPU_SPEEDUP
from manyseed.orchestrator.plans.planning import plan_change

PAGE = (Path(__file__).parents[3] / "docs" / "sweep-file.md").read_text()
FURTHER = {"hparams", "grid", "defaults", "epochs", "snapshots", "device"}
FURTHER |= set(classifiers.CLASSIFIERS["mlp"].options)


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def keys(text: str) -> set[str]:
    firsts = re.findall(r"^\| (`[^|]*) \|", text, re.M)
    return {key for first in firsts for key in re.findall(r"`\[*(\w+)[^`]*`", first)}


def test_every_key_has_a_row():
    for title, model in (
        ("The file's own keys", SweepFile),
        ("`[[grid]]`", Grid),
        ("`[keep]`", Keep),
        ("`[tune]`", Tune),
        ("`[response]`", Response),
        ("`[analysis]`", AnalysisTable),
        ("`[dataset.NAME]`", DatasetTable),
    ):
        assert keys(section(title)) == set(model.model_fields), title
    options = {"members", *(name for one in METHODS.values() for name in one.defaults)}
    assert keys(section("`[ensembling.NAME]`")) == set(EnsemblingTable.model_fields) | options
    found = keys(section("`[classifier.NAME]`"))
    assert found == set(ClassifierTable.model_fields) | FURTHER


def test_the_conventions_are_told_as_they_are_declared():
    """The rows below that of `metrics` are these: copy them from here after a change."""
    rows = []
    for name, declared in CONVENTIONS.items():
        allowed = declared.allowed
        if not isinstance(allowed, str):
            allowed = ", ".join(f"`{choice}`" for choice in allowed)
        shown = allowed.removeprefix("a ")
        rows.append(f"| `{name}` | {shown} | {declared.default} | {declared.meaning} |")
    table = section("`[analysis]`").split("| `metrics` |")[1].strip()
    assert table.splitlines()[1:] == rows, "\n".join(rows)


def test_defaults_of_response_curves_are_told_as_they_are_declared():
    told = dict(re.findall(r"^\| `(\w+)` \| [^|]* \| ([^|]*) \|", section("`[response]`"), re.M))
    for name, option in OPTIONS.items():
        default = json.dumps(option.default)
        assert told[name].strip("`") == ("required" if option.default is None else default)


def test_the_file_that_the_page_shows_plans(tmp_path):
    text = re.search(r"```toml\n(.*?)```", PAGE, re.S)[1]
    (tmp_path / "sweep.toml").write_text(text)
    change = plan_change(tmp_path / "sweep.toml", tmp_path / "out")
    assert change.expansion.asked == 2 * 4 * (4 * 5 * 2 * 4) * 100 - 2 * (4 * 2 * 4) * 100


def test_fragments_are_valid_parts_of_a_grid(tmp_path):
    head = 'name = "x"\nseed = 1\n[[grid]]\n'
    first, second = re.findall(r"```toml\n(.*?)```", section("`[[grid]]`"), re.S)
    lists = (
        'dataset = ["aloi", "dionis", "vehicle"]\nclassifier = ["lr-sgd", "xgb"]\n'
        'perturb_continuous = ["none", "neighbour:1"]\n'
        'perturb_hparams = ["none", "relative:0.1", "absolute:0.1"]\n'
    )
    for text in (head + lists + first, head + 'classifier = ["xgb"]\n' + second):
        (tmp_path / "sweep.toml").write_text(text)
        assert plan_change(tmp_path / "sweep.toml", tmp_path / "out").expansion.asked


def test_the_hparam_grid_that_the_page_shows_plans(tmp_path):
    text = re.search(r"### Hparam grids\n.*?```toml\n(.*?)```", PAGE, re.S)[1]
    (tmp_path / "sweep.toml").write_text(f'name = "x"\nseed = 1\n{text}')
    change = plan_change(tmp_path / "sweep.toml", tmp_path / "out")
    # xgb's default is one of its configurations
    assert len(change.cells) == 2 * (1 + 6 + 4)


def test_the_table_of_seconds_is_the_models():
    text = section("What `plan` reports")
    names = re.search(r"^\| rows × features, classes \| (.*) \|$", text, re.M)[1].split(" | ")
    rows = re.findall(r"^\| ([\d ]+) × (\d+), (\d+) \| (.*) \|$", text, re.M)
    assert len(rows) == 4
    for n_rows, n_features, n_classes, seconds in rows:
        shape = {"n_features": int(n_features), "n_classes": int(n_classes)}
        n_train = int(n_rows.replace(" ", ""))
        dataset = datasets.resolve("synthetic:gaussian", n_samples=n_train + 200, test=200, **shape)
        for name, value in zip(names, seconds.split(" | "), strict=True):
            expected = classifiers.core_seconds(
                dataset, classifiers.resolve(name, {}, dataset), n_train
            )
            assert float(value) == pytest.approx(expected, rel=0.06)
    assert f"A GPU counts as {GPU_SPEEDUP:g} cores" in text


def test_the_methods_that_the_page_shows_plan(tmp_path):
    text = re.search(r"```toml\n(.*?)```", section("`[ensembling.NAME]`"), re.S)[1]
    (tmp_path / "sweep.toml").write_text(f'name = "x"\nseed = 1\n{text}')
    change = plan_change(tmp_path / "sweep.toml", tmp_path / "out")
    assert change.cells["ensembling"].to_list() == ["none", "snapshot", "short-fge"]
    assert [cells[-1] for cells in change.cells["snapshots"]] == [20, 200, 20 + 20 * 4 - 2]


def test_the_defaults_of_methods_are_told():
    table = section("`[ensembling.NAME]`")
    for key in ("cycle", "lr", "batch_size", "momentum", "pretrain", "temperature"):
        defaults = [one.defaults[key] for one in METHODS.values() if key in one.defaults]
        shown = ", ".join(f"{value:g}" for value in dict.fromkeys(defaults))
        assert re.search(rf"^\| `{key}` \|[^|]*\| {re.escape(shown)} \|", table, re.M), key
