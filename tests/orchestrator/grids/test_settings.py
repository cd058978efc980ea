"""``--set``: the text that a sweep keeps, its comments, and what is said of mistakes."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.grids.settings import with_settings
from manyseed.orchestrator.plans.planning import plan_change
from tests.orchestrator.conftest import inside, write

FILE = Path("sweep.toml")
TEXT = """# a sweep
name = "set"          # its name
seed = 1
repeats = 1
runs = 2

[[grid]]
dataset = ["sklearn:wine"]
classifier = [         # two
    "mlp",
    "lr-sgd",
]

[classifier.mlp]       # a network
epochs = 2
hparams = { lr = 0.1 }

[classifier."my own"]
kind = "mlp"
"""


@pytest.mark.parametrize(
    ("setting", "path", "value"),
    [
        ("runs=3", ["runs"], 3),
        ("name=other-name", ["name"], "other-name"),
        ('name="x y"', ["name"], "x y"),
        ("classifier.mlp.epochs=5", ["classifier", "mlp", "epochs"], 5),
        ("classifier.mlp.hparams.lr=0.5", ["classifier", "mlp", "hparams", "lr"], 0.5),
        ("classifier.mlp.hparams={}", ["classifier", "mlp", "hparams"], {}),
        ('classifier."my own".epochs=1', ["classifier", "my own", "epochs"], 1),
        ("classifier.lr-sgd.device=cpu", ["classifier", "lr-sgd", "device"], "cpu"),
        ("grid.vary=['init', 'batch']", ["grid", 0, "vary"], ["init", "batch"]),
        ('grid[0].classifier=["mlp"]', ["grid", 0, "classifier"], ["mlp"]),
        ('grid.0.classifier=["mlp"]', ["grid", 0, "classifier"], ["mlp"]),
        ("keep.curves=true", ["keep", "curves"], True),
        ("tune.draws=7", ["tune", "draws"], 7),
    ],
)
def test_a_value_is_set_and_comments_stay(setting: str, path: list[Any], value: Any) -> None:
    found = with_settings(TEXT, [setting])
    wanted: Any = tomllib.loads(TEXT)
    place = wanted
    for part in path[:-1]:
        place = place[part] if isinstance(part, int) else place.setdefault(part, {})
    place[path[-1]] = value
    assert tomllib.loads(found) == wanted
    if setting != "classifier.mlp.hparams.lr=0.5":  # within an inline table: written out anew
        assert found.startswith("# a sweep\n")
        assert "# a network" in found
    # once more, and of two the last
    assert tomllib.loads(with_settings(found, [setting])) == wanted
    assert with_settings(TEXT, ["runs=9", "runs=3"]) == with_settings(TEXT, ["runs=3"])


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["runs", "keep.dtype", "classifier.mlp.epochs", "grid.vary", "dataset.a.test"]),
    st.recursive(
        st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=4,
    ),
)
def test_any_value_is_read_back(key: str, value: Any) -> None:
    from manyseed.orchestrator.errors import toml_value

    found: Any = tomllib.loads(with_settings(TEXT, [f"{key}={toml_value(value)}"]))
    before = copy.deepcopy(found)
    for part in key.split("."):
        found = found[part]
        found = found[0] if part == "grid" else found
    assert found == value
    assert before["name"] == "set"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("runs", "a setting must be key=value"),
        ("=3", "a setting must be key=value"),
        ("a..b=3", "a setting must be key=value"),
        ("runs=[1", "the value is not valid TOML"),
        ("name=two words", "the value is not valid TOML"),
        ("runs.a=3", "runs has no such entry"),
        ("grid[4].runs=1", r"grid has 1 table\n"),
        ("grid.4.runs=1", r"grid has 1 table\n  name one: grid\[0\]"),
    ],
)
def test_what_is_no_setting_is_said(setting: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        with_settings(TEXT, [setting])


def test_two_grids_need_a_number() -> None:
    text = TEXT + "\n[[grid]]\ndataset = ['sklearn:wine']\nclassifier = ['xgb']\n"
    with pytest.raises(UserError, match=r"name one: grid\[0\] to grid\[1\]"):
        with_settings(text, ["grid.runs=1"])
    for key in ("grid[1].runs", "grid.1.runs"):
        found = tomllib.loads(with_settings(text, [f"{key}=1"]))
        assert "runs" not in found["grid"][0]
        assert found["grid"][1]["runs"] == 1


def test_a_sweep_keeps_what_was_set(tmp_path: Path) -> None:
    text = TEXT.partition('[classifier."my own"]')[0]
    file = write(tmp_path / "set.toml", text)
    given = ["--set", "runs=3", "--set", "classifier.mlp.epochs=1"]
    code, said = inside("plan", file, "--out", tmp_path / "sweep", *given)
    assert code == 0, said
    kept = (tmp_path / "sweep" / "sweep.toml").read_text()
    assert kept == text.replace("runs = 2", "runs = 3").replace("epochs = 2", "epochs = 1")
    assert file.read_text() == text
    assert plan_change(tmp_path / "sweep" / "sweep.toml", tmp_path / "sweep").is_empty
    code, said = inside("plan", file, "--out", tmp_path / "other", "--set", "rnus=3")
    assert code == 2
    assert "did you mean" in said
    assert "runs" in said
    code, said = inside(
        "plan", file, "--out", tmp_path / "other", "--set", "classifier.mlp.epoch=3"
    )
    assert code == 2
    assert "epochs" in said
    assert not (tmp_path / "other").exists()
