"""The page of users' own code: its keys are those that are taken, and what it shows plans."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from manyseed.jobs.classifiers import FORMS
from manyseed.jobs.own import table
from manyseed.jobs.own.training import OFFERED
from manyseed.orchestrator.plans.planning import plan_change

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "own.md").read_text()
HEAD = 'name = "x"\nseed = 1\nrepeats = 1\nruns = 2\n[[grid]]\ndataset = ["sklearn:wine"]\n'


def test_every_key_has_a_row() -> None:
    rows = re.findall(r"^\| (`[^|]*) \|", PAGE, re.M)
    keys = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
    options = {key for form in FORMS for key in table.OPTIONS[form]}
    assert keys == {*FORMS, *options, *OFFERED}


@pytest.mark.parametrize("key", ["version", "encode", "scores", "rows", "probe", "epochs"])
def test_rows_tell_the_words_and_the_default_of_an_option(key: str) -> None:
    option = table.TABLE[key]
    rows = "".join(re.findall(rf"^\| `{key}`.*\n", PAGE, re.M))
    assert not [word for word in option.words if f'"{word}"' not in rows]
    assert option.default is None or json.dumps(option.default) in rows


@pytest.mark.parametrize("number", range(6))
def test_what_the_page_shows_plans(tmp_path: Path, number: int) -> None:
    for name in ("mymodel.py", "mytrain.py", "mynet.py", "train.py"):
        (tmp_path / name).write_text((ROOT / "examples" / "own" / name).read_text())
    text = re.findall(r"```toml\n(.*?)```", PAGE, re.S)[number]
    head = HEAD.replace("wine", "digits") if "module " in text else HEAD
    names = re.findall(r"^\[classifier\.([\w-]+)\]", text, re.M)
    file = tmp_path / "sweep.toml"
    file.write_text(f"{head}classifier = {names}\n{text}".replace("'", '"'))
    change = plan_change(file, tmp_path / "out")
    assert change.summary()["runs"] == 2 * len(names)


def test_the_example_plans(tmp_path: Path) -> None:
    change = plan_change(ROOT / "examples" / "own" / "estimators.toml", tmp_path / "out")
    assert change.summary()["runs"] == 3 * 2 * 2 * 20
    assert change.summary()["runs_identical"] == 2 * 19  # of xgb, without noise
    change = plan_change(ROOT / "examples" / "own" / "function.toml", tmp_path / "other")
    assert change.summary()["runs"] == 3 * 2 * 20
    assert "net: draws from batch, init" in change.summary()["notes"]


@pytest.mark.parametrize(
    ("name", "runs", "note"),
    [
        ("command", 80, "softmax: seeds: {seed} from batch"),
        ("hydra", 80, "app: seeds: {seed} from batch"),
        pytest.param(
            "lightning",
            120,
            "lit: seeds: {seeds.init} from init, {seeds.batch} from batch",
            marks=pytest.mark.slow,
        ),
        ("module", 240, ""),
    ],
)
def test_other_examples_plan(tmp_path: Path, name: str, runs: int, note: str) -> None:
    if name in ("hydra", "lightning"):
        pytest.importorskip(name)
    file = ROOT / "examples" / "own" / f"{name}.toml"
    summary = plan_change(file, tmp_path / "out").summary()
    assert summary["runs"] == runs
    assert not note or note in summary["notes"]
