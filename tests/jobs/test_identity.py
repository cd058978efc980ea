"""Identities are frozen: written out literally, and derived a second time by docs/identity.md."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyseed.jobs.datasets import load, resolve
from manyseed.jobs.datasets.split import split, subsample
from manyseed.jobs.hparams import SPACE_VERSION
from manyseed.jobs.run import LATER, Cell, canonical_json, identity, raw, seed31, stream

PAGE = Path(__file__).parents[2] / "docs" / "identity.md"

CELL = Cell(
    seed=20210427,
    dataset=resolve("sklearn:breast_cancer").canonical,
    classifier={"name": "xgb", "version": 1, "rounds": 100},
    hparams={"eta": 0.3, "max_depth": 6},
    perturb_continuous="relative:0.1",
    train_fraction=0.25,
)


def test_canonical_json_is_written_out():
    value = {"b": [1, 1.0, 0.1, 1e-10, 1e22], "a": {"ü": None, "A": True}, "s": 'x"\n'}
    expected = '{"a":{"A":true,"ü":null},"b":[1,1.0,0.1,1e-10,1e+22],"s":"x\\"\\n"}'
    assert canonical_json(value) == expected.encode()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_has_no_canonical_form_is_refused(value):
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"x": value})


def test_a_description_needs_its_version():
    with pytest.raises(ValueError, match="v = 1"):
        identity({"source": "sklearn:iris"})


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("sklearn:breast_cancer", "a1845fce1b957e0668709525ad28b731"),
        ("sklearn:digits", "27648e00caf2813a06cf8dee1e947a90"),
        ("sklearn:iris", "124580ee7b3766afd13903033d747b42"),
        ("sklearn:wine", "0768c7839ab9d9d30996194f098a636d"),
        ("synthetic:gaussian", "2b4141a86f5076ea168bf9e3265b03cb"),
    ],
)
def test_datasets_keep_their_identities(source, expected):
    assert resolve(source).id == expected


def test_a_merged_dataset_keeps_its_identity():
    groups = {"odd": [1, 3, 5], "even": ["2", 0]}
    info = resolve("sklearn:digits", classes=groups, positive="odd", test=100)
    assert info.id == "84cab35358e4b0e59f4160f0e98cd65b"


def test_a_cell_keeps_its_identity():
    assert CELL.id == "42e91122e6215eba30c12c6bb7cff99c"


def test_a_field_that_came_later_is_left_out_while_it_is_none():
    assert "augment" not in CELL.canonical()
    augmented = replace(CELL, augment="rotate:45")
    assert augmented.canonical() == {**CELL.canonical(), "augment": "rotate:45"}
    assert augmented.id == "bd71050a031147e5b2cb626f257c3cc6"
    assert Cell.from_canonical(augmented.canonical()) == augmented
    assert "test_augment" not in augmented.canonical()
    tested = replace(CELL, test_augment="crop-flip:4")
    assert tested.canonical() == {**CELL.canonical(), "test_augment": "crop-flip:4"}
    assert tested.id == "9cceb99f0f000ed19ea5f7e323f23297"
    assert Cell.from_canonical(tested.canonical()) == tested
    noisy = replace(CELL, perturb_labels="flip:0.1")
    assert noisy.canonical() == {**CELL.canonical(), "perturb_labels": "flip:0.1"}
    assert Cell.from_canonical(noisy.canonical()) == noisy


def test_a_cell_survives_json_in_any_order_of_keys():
    text = json.dumps(dict(reversed(CELL.canonical().items())))
    again = Cell.from_text(text)
    assert again == CELL
    assert again.id == CELL.id


@given(st.permutations(["init", "batch", "train"]))
@settings(deadline=None)
def test_the_order_of_vary_is_no_part_of_the_identity(vary):
    cell = Cell(1, {}, {}, {}, vary=tuple(vary))
    assert cell.id == Cell(1, {}, {}, {}, vary=("batch", "init", "train")).id


def test_every_field_of_a_cell_is_part_of_the_identity():
    changes = {
        "seed": 1,
        "dataset": {},
        "classifier": {},
        "hparams": {},
        "perturb_continuous": "none",
        "perturb_categorical": "label:0.1",
        "perturb_hparams": "relative:0.1",
        "train_fraction": 25,
        "vary": ["init"],
    }
    assert set(changes) == set(CELL.canonical()) - {"v"}
    changes |= dict.fromkeys(LATER, "another")
    ids = {Cell.from_canonical({**CELL.canonical(), key: changes[key]}).id for key in changes}
    assert len(ids | {CELL.id}) == len(changes) + 1


def test_the_page_recomputes_identities_and_draws_without_this_package(tmp_path):
    code, printed = _example()
    # -I: neither this repository nor the working folder can be imported from.
    result = subprocess.run(
        [sys.executable, "-I", "-c", f"{code}\nimport sys\nassert 'jobs' not in sys.modules"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == printed


def test_the_page_and_the_package_agree():
    key = resolve("sklearn:breast_cancer").id
    y = load(CELL.dataset).y
    part = split(CELL.seed, key, 0, y, 0.25)
    used = part.train[subsample(CELL.seed, key, 0, 3, y[part.train], 0.25)]
    _, printed = _example()
    lines = {line.split()[0]: line.split()[1:] for line in printed.splitlines()}
    assert lines["dataset"] == [key]
    assert lines["cell"] == [CELL.id]
    search = {"eta": 0.3, "tuned": {"draws": 100, "space": SPACE_VERSION}}
    assert lines["tuned"] == [replace(CELL, hparams=search).id]
    assert lines["init"] == _texts(raw(stream(CELL.seed, "init", key, "xgb@1", 0, 3), 2))
    assert lines["seed"] == [str(seed31(stream(CELL.seed, "batch", key, "xgb@1", 0, 3)))]
    assert lines["test"] == [str(part.test.size), *_texts(part.test[:8])]
    assert lines["used"] == [str(used.size), *_texts(used[:8])]


def _example():
    page = PAGE.read_text()
    return re.search(r"```python\n(.*?)```\n\nIt prints\n\n```text\n(.*?)```", page, re.S).groups()


def _texts(values: np.ndarray) -> list[str]:
    return [str(value) for value in values.tolist()]
