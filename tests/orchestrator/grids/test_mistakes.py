"""All mistakes of a sweep file are told at once, and what newcomers write is answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from manyseed import Sweep
from manyseed.orchestrator.errors import MOST_TOLD, SeveralErrors, UserError
from manyseed.orchestrator.plans.planning import plan_change
from tests.orchestrator.conftest import inside, write

HEAD = 'name = "x"\nseed = 1\n'
GRID = '[[grid]]\ndataset = ["sklearn:wine"]\nclassifier = ["lr-sgd"]\n'
MLP = GRID.replace("lr-sgd", "mlp")

HINTS: dict[str, tuple[str, list[str]]] = {
    "seeds": (HEAD + "seeds = 10\n" + GRID, ["seeds: unknown key", "seeds is runs = 10"]),
    "a list of seeds": (HEAD + GRID + "seeds = [1, 2, 3]\n", ["grid[0].seeds", "runs = 3"]),
    "epochs": (
        HEAD + MLP + "[classifier.mlp]\nhparams = { epochs = 2 }\n",
        ["classifier.mlp.hparams.epochs = 2: unknown key", "a key of the table: epochs = 2"],
    ),
    "test_sets": (
        HEAD + "test_sets = 5\n" + GRID,
        ["test_sets: unknown key", "the number of test sets is repeats = 5"],
    ),
    "an hparam of a classifier": (
        HEAD + MLP + "[classifier.mlp]\nlr = 0.1\n",
        ["classifier.mlp.lr = 0.1: unknown key", "lr is an hparam: hparams = { lr = 0.1 }"],
    ),
    "an hparam beside others": (
        HEAD + MLP + "[classifier.mlp]\nhparams = { width1 = 64 }\nlr = 0.1\n",
        ["hparams = { width1 = 64, lr = 0.1 }"],
    ),
    "an hparam of a grid": (
        HEAD + MLP + "lr = 0.1\n",
        ["grid[0].lr: unknown key", "add to [classifier.mlp]: hparams = { lr = 0.1 }"],
    ),
    "epochs of a grid": (
        HEAD + MLP + "epochs = 5\n",
        ["grid[0].epochs: unknown key", "add to [classifier.mlp]: epochs = 5"],
    ),
    "an argument of an estimator": (
        HEAD
        + GRID.replace("lr-sgd", "forest")
        + '[classifier.forest]\nestimator = "sklearn.ensemble:RandomForestClassifier"\n'
        + "n_estimators = 7\n",
        ["classifier.forest.n_estimators = 7: unknown key", "params = { n_estimators = 7 }"],
    ),
    "levels of an hparam": (
        HEAD + MLP + "[classifier.mlp]\nhparams = { width1 = [16, 64] }\n",
        [
            "classifier.mlp.hparams.width1 = [16, 64]",
            "to try several: grid = { width1 = [16, 64] } in [classifier.mlp], hparams = ",
        ],
    ),
    "sources with a comma": (
        HEAD + GRID + 'vary = ["init,batch"]\n',
        ['grid[0].vary = "init,batch"', "joined by +: 'init+batch'"],
    ),
    "sources in words": (
        HEAD + GRID + 'vary = ["init + train"]\n',
        ['grid[0].vary = "init + train"', "'init+train'"],
    ),
    "a random forest": (
        HEAD + GRID.replace("lr-sgd", "random-forest"),
        [
            'grid[0].classifier = "random-forest": unknown classifier',
            "[classifier.random-forest]",
            'estimator = "sklearn.ensemble:RandomForestClassifier"',
        ],
    ),
    "a table of a random forest": (
        HEAD
        + GRID.replace("lr-sgd", "RandomForestClassifier")
        + "[classifier.RandomForestClassifier]\n",
        ['add estimator = "sklearn.ensemble:RandomForestClassifier"'],
    ),
    "an estimator of one's own": (
        HEAD + GRID.replace("lr-sgd", "zebra"),
        ["unknown classifier", '[classifier.zebra] with estimator = "module:name"'],
    ),
    "a classifier beside one that has a table": (
        HEAD + GRID.replace("lr-sgd", "zebra") + "[classifier.xgb]\nhparams = { eta = 0.1 }\n",
        ["valid: lr-sgd,", "vit, vit-transfer\n"],
    ),
    "a file that is not there, without target": (
        HEAD + GRID + '[dataset.d]\nsource = "file:no.csv"\n',
        ['dataset.d.source = "file:no.csv": does not exist'],
    ),
    "a file that is not there, with a wrong key": (
        HEAD + GRID + '[dataset.d]\nsource = "file:no.csv"\nclass = "y"\n',
        ['dataset.d.source = "file:no.csv": does not exist'],
    ),
    "a folder that is not there": (
        HEAD + GRID + '[dataset.d]\nsource = "file:pets"\ntarget = "y"\n',
        ['dataset.d.source = "file:pets": does not exist'],
    ),
    "a file as a dataset": (
        HEAD + GRID.replace("sklearn:wine", "no.csv"),
        ["there is no file no.csv in the working folder"],
    ),
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(text: str) -> UserError:
    with pytest.raises(UserError) as found:
        plan_change(write(Path("s.toml"), text), Path("out"))
    return found.value


@pytest.mark.parametrize("hint", HINTS)
def test_what_newcomers_write_is_answered(hint: str) -> None:
    text, expected = HINTS[hint]
    error = refused(text)
    assert not isinstance(error, SeveralErrors), error
    for part in expected:
        assert part in str(error), error


SEVERAL = """
name = "x"
seed = "one"
seeds = 10
test_sets = 5
[[grid]]
dataset = ["sklearn:wine", "sklern:wine"]
classifier = ["mlp", "random-forest", "lr-sgd"]
vary = ["init,batch", "init"]
[[grid]]
dataset = ["sklearn:whine"]
classifier = ["lr-sgd"]
[[grid]]
dataset = ["sklearn:wine"]
classifier = ["lr-sgd"]
train_fraction = [0.5, 7.5]
[classifier.mlp]
lr = 0.1
widht = 3
[dataset.d]
source = "file:no.csv"
"""
KEYS = [
    'seed = "one"',
    "seeds",
    "test_sets",
    "classifier.mlp.lr = 0.1",
    "classifier.mlp.widht = 3",
    'dataset.d.source = "file:no.csv"',
    'grid[0].dataset = "sklern:wine"',
    'grid[0].classifier = "random-forest"',
    'grid[0].vary = "init,batch"',
    'grid[1].dataset = "sklearn:whine"',
    "grid[2].train_fraction = 7.5",
]


def test_all_mistakes_are_told_at_once_each_as_it_is_alone(here: Path) -> None:
    text = SEVERAL.replace("test_sets = 5\n", "")
    error = refused(text)
    lines = str(error).splitlines()
    wanted = [key for key in KEYS if key != "test_sets"]
    assert isinstance(error, SeveralErrors)
    assert len(error.errors) == len(wanted) == MOST_TOLD
    told = [line for line in lines if line.startswith("s.toml: ")]
    assert {key for key in wanted if any(f"s.toml: {key}: " in line for line in told)} == {*wanted}
    assert lines[-1] == "10 mistakes; there may be more"
    assert all(each.file == Path("s.toml") and each.key for each in error.errors)
    code, said = inside("plan", "s.toml")
    assert code == 2
    assert said.count("s.toml: ") == MOST_TOLD
    assert [path.name for path in here.iterdir()] == ["s.toml"]


def test_it_is_said_whether_there_may_be_more(here: Path) -> None:
    """Without the misspelt key, the grid has no classifier, on which what else is wrong depends."""
    right = 'name = "s"\nseed = 1\nrepeats = 1\n[[grid]]\ndataset = ["sklearn:iris"]\n'
    hidden = f'{right}classifer = ["xgb"]\nvary = ["inits"]\nrusn = 2\n'
    assert str(refused(hidden)).endswith("3 mistakes; there may be more")
    both = f'runns = 1\n{right}classifier = ["xgb"]\nrusn = 2\n'
    assert str(refused(both)).endswith("2 mistakes")


def test_what_needs_no_data_is_told_also_where_there_are_none() -> None:
    """Of the others, the training fraction and the image that lacks, nothing is known yet."""
    text = (
        'name = "s"\nseeds = 3\n[[grid]]\ndataset = "tumors"\nclassifier = ["mpl", "cnn"]\n'
        'vary = ["inti"]\ntrain_fraction = [2.0]\nperturb_continuous = ["noise:0.1"]\n'
        '[dataset.tumours]\nsource = "sklearn:breast_cancer"\n[classifier.mlp]\nepoch = 3\n'
        '[classifier.xgb]\netta = 3\n[[grid]]\ndataset = ["tumours"]\nclassifier = ["mlp", "xgb"]'
    )
    error = refused(text)
    assert isinstance(error, SeveralErrors)
    assert {each.key: each.remedy.partition("? ")[0] for each in error.errors if each.remedy} == {
        "seed": "add seed = …",
        "seeds": "the number of seeds is runs = 3",
        "grid[0].dataset": 'did you mean "tumours"',
        "grid[0].classifier": 'did you mean "mlp"',
        "grid[0].vary": 'did you mean "init"',
        "grid[0].perturb_continuous": "valid: sig-digit, relative, percentile, neighbour",
        "classifier.mlp.epoch": 'did you mean "epochs"',
        "classifier.xgb.etta": "valid: kind, hparams, grid, device, defaults",
    }
    assert str(error).endswith("; there may be more")


def test_at_most_ten_are_told() -> None:
    error = refused(SEVERAL)
    assert str(error).count("s.toml: ") == MOST_TOLD


def test_one_mistake_is_told_as_before() -> None:
    error = refused(HEAD + GRID.replace("lr-sgd", "lr-sdg"))
    assert type(error) is UserError
    assert str(error).startswith('s.toml: grid[0].classifier = "lr-sdg": unknown classifier\n  did')


def test_a_misspelt_key_is_one_mistake() -> None:
    error = refused(HEAD + GRID.replace("classifier", "clasifier"))
    assert type(error) is UserError
    assert error.key == "grid[0].clasifier"


def test_programs_get_all_of_them() -> None:
    write(Path("s.toml"), HEAD + "seeds = 3\n" + MLP + 'vary = ["init,batch"]\n')
    code, said = inside("plan", "s.toml", "--json")
    assert code == 2
    answer: dict[str, Any] = json.loads(said[said.index("{") :])["error"]
    assert [each["key"] for each in answer["errors"]] == ["seeds", "grid[0].vary"]
    assert answer["key"] == "seeds"
    assert answer["exit_code"] == 2


def test_python_names_them_as_arguments() -> None:
    sweep = {
        "name": "x",
        "seed": 1,
        "grid": [{"dataset": ["sklearn:wine"], "classifier": ["lr-sgd"], "vary": ["init,batch"]}],
        "seeds": 3,
    }
    with pytest.raises(UserError) as found:
        Sweep.plan(sweep)
    assert isinstance(found.value, SeveralErrors)
    assert ".manyseed-" not in str(found.value)
    assert "grid[0].vary" in str(found.value)


@pytest.mark.parametrize(
    "text",
    [
        HEAD
        + GRID
        + 'vary = ["none"]\ntrain_fraction = [1.0]\nzip = [["vary", "train_fraction"]]\n',
        HEAD + MLP + "[classifier.mlp]\ngrid = { lr = [0.1], epochs = [3] }\n",
        HEAD + MLP + 'hparams = ["grid"]\n[classifier.mlp]\ngrid = { lr = [] }\n',
        HEAD + GRID.replace("sklearn:wine", "d") + '[dataset.d]\nsource = "file:no.csv"\n',
    ],
)
def test_nothing_is_told_that_follows_from_another_mistake(text: str) -> None:
    assert not isinstance(refused(text), SeveralErrors), refused(text)


@pytest.mark.parametrize("another", ["", "tset = 0.5\n"])
def test_a_misspelt_key_is_one_mistake_though_the_key_that_was_meant_is_lacking(
    tmp_path: Path, another: str
) -> None:
    (tmp_path / "t.csv").write_text(
        "x,y,z\n" + "".join(f"{i},{'ab'[i % 2]},1\n" for i in range(20))
    )
    text = HEAD + GRID.replace("sklearn:wine", "t") + another
    text += f'[dataset.t]\nsource = "file:{tmp_path / "t.csv"}"\ntargte = "y"\n' + another
    code, said = inside("plan", write(tmp_path / "s.toml", text), "--dry-run")
    assert code == 2
    assert "dataset.t.targte" in said
    assert "dataset.t.target" not in said
    assert ("mistakes" in said) == bool(another)
