"""``manyseed init``: the file that it writes plans, and says what was seen."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image

from manyseed.jobs.classifiers import registry
from manyseed.jobs.datasets.function import OPTION
from manyseed.jobs.datasets.tablefile import FORMATS
from manyseed.jobs.own import findings
from manyseed.orchestrator.grids import firstrun
from manyseed.orchestrator.plans.planning import plan_change
from manyseed.orchestrator.submissions import profiles
from tests.orchestrator.conftest import inside, train

OWN = Path(__file__).parents[3] / "examples" / "own"


slower = firstrun._slower


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(firstrun, "_slower", lambda *_: 1.0)
    rng = np.random.default_rng(0)
    n = 60
    pl.DataFrame(
        {
            "patient_id": range(n),
            "dose": rng.normal(size=n),
            "site": [f"s{i % 3}" for i in range(n)],
            "Diagnosis": ["ill", "well"] * (n // 2),
            "admitted": [f"2026-01-{i % 28 + 1:02d}" for i in range(n)],
        }
    ).write_csv(tmp_path / "measured.csv")
    for file in OWN.glob("*.py"):
        (tmp_path / file.name).write_text(file.read_text())
    return tmp_path


def written(*words: str) -> tuple[str, dict[str, Any]]:
    code, said = inside("init", *words)
    assert code == 0, said
    text = Path("sweep.toml").read_text()
    return text, tomllib.loads(text)


def own(table: dict[str, Any]) -> dict[str, Any]:
    """Return the table of the only classifier, which is one's own code, without its epochs.

    A module has fewer of them where the machine is busy.
    """
    ((name, found),) = table["classifier"].items()
    assert [name] in [grid["classifier"] for grid in table["grid"]]
    return {key: value for key, value in found.items() if key != "epochs"}


def test_a_table_is_looked_at(here: Path) -> None:
    text, table = written("measured.csv")
    data = table["dataset"]["measured"]
    assert data == {
        "source": "file:measured.csv",
        "target": "Diagnosis",
        "row_id": "patient_id",
        "ignore": ["admitted"],
        "test": 0.25,
    }
    assert "# 60 rows of 2 features, 1 of them categorical" in text
    assert "ill (30), well (30)" in text
    assert '# perturb_categorical = ["none", "value:0.1"]' in text
    summary = plan_change(here / "sweep.toml", here / "out").summary()
    assert table["runs"] == 10
    assert summary["runs"] == sum(
        5 * grid.get("runs", 10) * len(grid["classifier"]) for grid in table["grid"]
    )
    assert not any("look like" in note for note in summary["notes"])
    assert inside("init", "measured.csv")[0] == 2  # it is there


@pytest.mark.parametrize("data", ["sklearn:digits", "measured.csv"])
def test_classifiers_are_those_that_can_be_trained_here(
    data: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks(name: str) -> object:
        return None if name in ("torch", "xgboost") else find_spec(name)

    monkeypatch.setattr(registry, "find_spec", lacks)
    text, table = written(data)
    assert table["grid"][0]["classifier"] == ["lr-sgd"]
    assert "cannot be trained here: " in text
    assert "torch not installed" in text
    assert "\n# pip install " in text
    assert "'torch>=2.6' 'torchvision>=0.21'" in text
    assert plan_change(here / "sweep.toml", here / "out").summary()["runs"] > 0


@pytest.mark.parametrize(
    ("model", "key", "value"),
    [
        ("mytrain:fit", "train", "mytrain:fit"),
        ("mymodel:build", "estimator", "mymodel:build"),
        ("mynet:build", "module", "mynet:build"),
        ("sklearn.svm:SVC", "estimator", "sklearn.svm:SVC"),
        ("mynet.py:build", "module", "mynet:build"),
        ("./mytrain.py:fit", "train", "mytrain:fit"),
        (
            "train.py",
            "command",
            "python train.py --seed {seed} --train {train} --test {test} --out {out}",
        ),
    ],
)
def test_a_model_is_what_its_parameters_say(model: str, key: str, value: str) -> None:
    _, table = written("sklearn:digits", model)
    assert own(table) == {key: value}


def test_what_it_writes_for_a_script_plans(here: Path) -> None:
    Path("quick.py").write_text(
        "import sys, numpy as np\ngiven = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n"
        "n = len(np.load(given['--test'])['X'])\n"
        "np.save(given['--out'], np.random.default_rng(int(given['--seed'])).normal(size=(n, 3)))\n"
    )
    _, table = written("sklearn:wine", "quick.py")
    runs = table["repeats"] * table["runs"]  # fewer where the machine is busy
    assert plan_change(here / "sweep.toml", here / "out").summary()["runs"] == runs


FOREST = """
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

def model{}:
    return make_pipeline(StandardScaler(), RandomForestClassifier(30, random_state={}))
"""


@pytest.mark.parametrize(
    ("taken", "given"), [("()", 42), ("(seed=0)", 3), ("(random_state=0)", "random_state")]
)
def test_a_seed_that_the_model_fixes_is_told(here: Path, taken: str, given: object) -> None:
    (here / "m4.py").write_text(FOREST.format(taken, given))
    code, text = inside("init", "sklearn:wine", "m4.py", "--out", "fixed.toml")
    assert code == 0, text
    told = "so seeds change nothing: leave random_state out of the code: each run is then"
    assert told in " ".join(text.split())
    assert "Please check:" in text
    text = (here / "fixed.toml").read_text()
    assert "draws no random number" not in text
    assert "# random_state is fixed in the model" in text
    code, text = inside("plan", "fixed.toml", "--out", "planned")
    assert "random_state is given a value: the runs do not differ by it" in " ".join(text.split())


@pytest.mark.parametrize(
    ("name", "taken", "told"),
    [
        ("m5.py", "(seed)", 'm5.py": model cannot be called without seed\n  write def model():'),
        ("code/m5.py", "(seed)", "\n  cd code && manyseed init ../measured.csv m5.py"),
        ("code/m-5.py", "()", "\n  mv code/m-5.py code/m_5.py"),
    ],
)
def test_what_is_wrong_with_a_model_is_told_with_what_to_write(
    here: Path, name: str, taken: str, told: str
) -> None:
    (here / "code").mkdir()
    (here / name).write_text(FOREST.format(taken, "seed"))
    code, text = inside("init", "measured.csv", name)
    assert code == 2
    assert told in text
    assert not (here / "sweep.toml").exists()


DATA = """
import numpy as np
import polars as pl

def arrays():
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 3)), np.arange(60) % 2

def parts():
    return *arrays(), *(each[:20] for each in arrays())

def table():
    X, y = arrays()
    return pl.DataFrame({"row_id": range(60), "dose": X[:, 0], "grade": [*map(str, y)]})

def fails():
    raise ValueError("no tape in the drive")
"""


@pytest.mark.parametrize(
    ("name", "options", "splits"),
    [
        ("arrays", {"test": 0.25}, 5),
        ("parts", {}, 1),
        ("table", {"target": "grade", "row_id": "row_id", "test": 0.25}, 5),
    ],
)
def test_a_function_that_returns_data(
    here: Path, name: str, options: dict[str, Any], splits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANYSEED_DATA", str(here / "home"))
    (here / "mydata.py").write_text(DATA)
    text, table = written(f"mydata:{name}", "lr-sgd")
    assert table["dataset"]["mydata"] == {"data": f"mydata:{name}", **options}
    assert table["name"] == "mydata"
    rows = "80 rows (60 to train on, 20 to test) of 3 features"
    if name != "parts":
        rows = f"60 rows of {'1 feature' if name == 'table' else '3 features'}"
    assert f"# {rows}, " in text
    summary = plan_change(here / "sweep.toml", here / "out").summary()
    assert summary["runs"] == splits * 10
    assert not any("look like" in note for note in summary["notes"])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mydata:fails", "failed: ValueError: no tape in the drive (mydata.py, line 17)"),
        ("mydata:lost", "cannot be imported: ImportError: mydata has no lost"),
        ("yourdata:load", "unknown source"),
        ("sklern:wine", "unknown source"),
    ],
)
def test_a_function_that_returns_none_is_one_message(here: Path, name: str, said: str) -> None:
    (here / "mydata.py").write_text(DATA)
    code, printed = inside("init", name)
    assert code == 2
    assert said in " ".join(printed.split())
    assert "Traceback" not in printed
    assert not Path("sweep.toml").exists()


def test_a_function_in_a_file_may_be_named_by_the_file(here: Path) -> None:
    (here / "mydata.py").write_text(
        "import numpy as np\n\ndef load():\n"
        "    return np.sin(np.arange(40.0)).reshape(20, 2), np.arange(20) % 2\n"
    )
    _, table = written("mydata.py:load")
    assert table["dataset"]["mydata"][OPTION] == "mydata:load"


def test_a_sweep_is_named_after_a_file_that_was_asked_for(here: Path) -> None:
    assert written("measured.csv")[1]["name"] == "measured"
    for out, name in {"first.toml": "first", "my second.toml": "my-second"}.items():
        assert inside("init", "measured.csv", "-o", out)[0] == 0
        assert tomllib.loads(Path(out).read_text())["name"] == name


def test_who_has_no_profile_on_a_machine_that_submits_is_told_to_make_one(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the printed command to train would be refused."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr(profiles, "own_names", list)
    for submits in (False, True):
        monkeypatch.setattr(profiles, "available", lambda submits=submits: submits)
        code, said = inside("init", "measured.csv", "--out", f"{submits}.toml")
        assert code == 0, said
        lines = said.splitlines()
        look = f"Look: manyseed plan {submits}.toml --dry-run"
        _, *following = lines[lines.index(look) :]
        here_at_once = f"Train on this machine: manyseed run {submits}.toml --cluster local"
        there = [here_at_once, "Or, on its cluster, first: manyseed cluster init"]
        assert following == (there if submits else [f"Train: manyseed run {submits}.toml"])
        first = Path(f"{submits}.toml").read_text().partition("\nname")[0].splitlines()
        comments = [line.removeprefix("# ").partition("   ")[0] for line in first]
        assert comments == [line.partition(": ")[2] for line in [look, *following]]


@pytest.mark.parametrize(
    ("words", "again"),
    [
        (["measured.csv"], "measured.csv --out measured.toml"),
        (
            ["measured.csv", "lr-sgd", "--target", "site"],
            "measured.csv lr-sgd --target site --out measured.toml",
        ),
        (["measured.csv", "--out", "my file.toml"], "measured.csv --out my-file.toml"),
        (["measured.csv", "--out", "in/a.toml"], "measured.csv --out in/a-2.toml"),
        (["sklearn:wine", "lr-sgd"], "sklearn:wine lr-sgd --out wine.toml"),
    ],
)
def test_a_second_file_is_named_in_the_command(here: Path, words: list[str], again: str) -> None:
    (here / "measured").mkdir()
    (here / "in").mkdir()
    for name in ("sweep.toml", "my file.toml", "in/a.toml"):
        (here / name).touch()
    code, said = inside("init", *words)
    assert code == 2
    assert f"exists already\n  name another file: manyseed init {again}\n" in said
    code, said = inside("init", *shlex.split(again))
    assert code == 0, said


@pytest.mark.parametrize("verb", ["plan", "run"])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "measured.csv",
            "is a table, not a sweep file\n  manyseed init measured.csv --out measured.toml",
        ),
        ("there.tsv", 'is a table, not a sweep file\n  did you mean "there.toml"?'),
        ("X.npz", "holds arrays, not a sweep file\n  manyseed init X.npz --out X.toml"),
        ("a.zarr", "holds arrays, not a sweep file\n  manyseed init a.zarr --out a.toml"),
        ("pets", "is a folder of images, not a sweep file\n  manyseed init pets --out pets.toml"),
        (
            "mytrain.py",
            "is a program, not a sweep file\n  manyseed init DATA mytrain.py --out mytrain.toml",
        ),
        ("other", "cannot read the sweep file: Is a directory"),
    ],
)
def test_data_in_place_of_a_sweep_file_are_told_what_writes_one(
    here: Path, verb: str, name: str, told: str
) -> None:
    for folder in ("a.zarr", "pets/cat", "other/plan"):
        (here / folder).mkdir(parents=True)
    for file in ("there.tsv", "there.toml", "X.npz", "pets/cat/1.png", "other/plan/1.png"):
        (here / file).touch()
    code, said = inside(verb, name)
    assert (code, f"{name}: {told}" in said) == (2, True), said


def test_data_that_are_not_there_are_told_before_a_file_that_is(here: Path) -> None:
    """And that before anything that takes time, such as reading data."""
    written("measured.csv")
    (here / "empty.csv").touch()
    code, said = inside("init", "nowhere.csv")
    assert (code, "nowhere.csv" in said, "exists already" in said) == (2, True, False)
    for data in ("empty.csv", "measured.csv"):
        assert "exists already" in inside("init", data)[1]


def test_a_classifier_and_images(here: Path) -> None:
    X = np.zeros((20, 4, 4), dtype=np.uint8)
    np.savez(here / "images.npz", X=X, y=np.arange(20) % 2)
    text, table = written("images.npz")
    assert table["dataset"]["images"]["target"] == "y"
    assert "20 images of 4 × 4 pixels, 1 channel" in text
    assert "perturb_continuous" not in table["grid"][0]
    Path("sweep.toml").unlink()
    _, table = written("sklearn:digits", "mlp")
    assert [*table["classifier"]] == ["mlp"]
    assert 1 <= table["classifier"]["mlp"]["epochs"] <= 20
    assert plan_change(here / "sweep.toml", here / "out").summary()["runs"] == 5 * 10


def test_arrays_and_folders_of_images(here: Path) -> None:
    for name in ("X", "label"):
        np.save(here / f"{name}.npy", np.arange(20) % 2 if name == "label" else np.zeros((20, 3)))
    _, table = written("X.npy", "lr-sgd")
    assert table["dataset"]["X"]["target"] == "label.npy"
    plan_change(here / "sweep.toml", here / "out")
    (here / "sweep.toml").unlink()
    for kind in ("cat", "dog"):
        (here / "pets" / kind).mkdir(parents=True)
        for i in range(4):
            Image.new("L", (6, 8)).save(here / "pets" / kind / f"{i}.png")
    text, table = written("pets", "cnn")
    assert table["dataset"]["pets"] == {"source": "file:pets", "test": 0.25}
    assert "# 8 images of 8 × 6 pixels, 1 channel" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.csv"], "does not exist"),
        (["measurd.csv"], 'did you mean "measured.csv"?'),
        (["pets/none"], "does not exist"),
        (["mymodel.py", "measured.csv"], "manyseed init measured.csv mymodel.py"),
        (["mymodel.py"], "manyseed init DATA mymodel.py"),
        (["sklearn:whine"], "sklearn:wine"),
        (["measured.csv", "--target", "diagnosis"], "Diagnosis"),
        (["measured.csv", "--target", "dose"], "--target"),
        (["measured.csv", "trian.py"], "there is no such file"),
        (["measured.csv", "xbg"], "unknown model"),
        (["measurd"], 'did you mean "measured.csv"?'),
        (["irs"], 'did you mean "sklearn:iris"'),
        (["nothing-near"], "give a file (.csv"),
        (["packed.zip"], "unpack it first, such as: unzip packed.zip"),
        (["packed.tar.gz"], "unpack it first, such as: tar -xf packed.tar.gz"),
        (["packed.csv.gz"], "unpack it first, such as: gunzip -k packed.csv.gz"),
        (["tables"], "of a file there: manyseed init tables/a.csv"),
        (["measured.csv", "mytrain:fti"], "mytrain.py has no fti"),
        (["measured.csv", "mytrain.py:fti"], "mytrain.py has no fti"),
        (["measured.csv", "mytrian.py:fit"], "there is no mytrian.py"),
        (["mydata.py:load"], "there is no mydata.py"),
    ],
)
def test_what_cannot_be_seen_is_said(here: Path, words: list[str], said: str) -> None:
    for name in ("packed.zip", "packed.tar.gz", "packed.csv.gz", "tables/a.csv"):
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_bytes(b"PK")
    code, text = inside("init", *words)
    assert code == 2, text
    assert said in " ".join(text.split())
    assert not Path("sweep.toml").exists()


@pytest.mark.parametrize("name", ["table.feather", "notes.txt"])
def test_a_file_of_another_kind_is_called_so(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x,y\n1,0\n")
    code, told = inside("init", tmp_path / name, "--out", tmp_path / "sweep.toml")
    assert code == 2
    assert "unknown kind of file" in told
    assert ".csv, .tsv, .parquet" in told
    assert f"if it is a table: cp {tmp_path / name} {tmp_path / name.split('.')[0]}.csv" in (
        told.replace("\n", "")
    )
    assert not (tmp_path / "sweep.toml").exists()


def test_columns_that_may_be_the_target_are_named(tmp_path: Path) -> None:
    names = [*"abcdefgh", "income"]
    rows = [",".join(str(i % 3) for _ in names[:-1]) for i in range(12)]
    for value, reason in (("", "is empty: all 12 values are missing"), ("x", "6 of 12 values")):
        lines = [
            ",".join(names),
            *(f"{row},{value if i % 2 else ''}" for i, row in enumerate(rows)),
        ]
        (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
        words = (tmp_path / "t.csv", "--target", "income", "--out", tmp_path / "sweep.toml")
        code, told = inside("init", *words)
        assert code == 2
        assert reason in " ".join(told.split())
        assert "one of a, b, c, d, e, f" in " ".join(told.split())
        assert "2 more" in told
        assert told.count("income") == 1


def test_columns_with_the_fewest_values_are_named_first_as_targets(tmp_path: Path) -> None:
    rows = [f"{i},{i % 5},{i % 3},1,{i % 2},{i * 1.5},{i * 2.5},{i}.03.2021" for i in range(60)]
    lines = ["id,five,three,one,churn,a,b,signup", *rows]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    code, told = inside("init", tmp_path / "t.csv", "--out", tmp_path / "sweep.toml")
    told = " ".join(told.split())
    assert code == 2
    assert told.endswith("--target, one of churn, three, five")  # none of more values
    assert "Is it a number" not in told
    words = ("--target", "b", "--out", tmp_path / "sweep.toml")
    told = " ".join(inside("init", tmp_path / "t.csv", *words)[1].split())
    assert (
        "There is no regression here: cut the numbers into classes first, such as with pan" in told
    )
    assert "--target, one of churn" in told


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "__index_level_0__"])
@pytest.mark.parametrize("rows", [60, 40])
def test_an_index_of_pandas_is_left_out(tmp_path: Path, name: str, rows: int) -> None:
    index = [i % rows for i in range(60)]  # two frames, one below the other, repeat theirs
    lines = [
        f"{name},a,b,y",
        *(f"{k},{i * 1.5},{i * 7 % 61 / 4},{i % 2}" for i, k in enumerate(index)),
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    out = tmp_path / "sweep.toml"
    code, told = inside("init", tmp_path / "t.csv", "lr-sgd", "--out", out)
    assert code == 0, told
    table = tomllib.loads(out.read_text())["dataset"]["t"]
    is_named = "names rows in answers" in told
    assert is_named == ("row_id" in table) == (name != "" and rows == 60)
    assert is_named or table["ignore"] == [name]
    assert is_named or f"{name or 'the column without a name'}: left out, as it looks" in told


def test_another_target_is_named_where_that_would_help(tmp_path: Path) -> None:
    for content, helps in (
        ("x,y\ninf,0\n1,1\n2,0\n3,1\n", False),
        ("x,y\n1,1\n2,1\n2,1\n1,1\n", True),
    ):
        (tmp_path / "t.csv").write_text(content)
        code, told = inside("init", tmp_path / "t.csv", "--out", tmp_path / "sweep.toml")
        assert (code, "--target, one of" in told) == (2, helps)


def test_values_that_are_not_what_they_seem_are_named(here: Path) -> None:
    rows = [f"{'-' if i == 4 else i / 7},{'ab'[i % 2]}" for i in range(40)]
    (here / "t.csv").write_text("age,y\n" + "\n".join([*rows, "1,c"]) + "\n")
    text, table = written("t.csv", "lr-sgd")
    assert "ignore" not in table["dataset"]["t"]
    assert table["dataset"]["t"]["missing"] == ["-"]
    assert '# missing = ["-"]: besides numbers in age' in re.sub(" +", " ", text)
    assert "# classes with too few rows to be in training part and test set: c (1)" in text


def test_data_in_the_folder_are_named_where_no_file_is_given(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, *others = sorted(path.name for path in here.iterdir() if path.suffix in FORMATS)
    for words in ((), ("init",)):
        code, told = inside(*words)
        assert (code, f"manyseed init {data}" in told) == (0, True)
    for name in (data, *others):
        (here / name).unlink()
    written("sklearn:iris", "lr-sgd")
    assert inside("plan", "sweep.toml", "--out", "planned")[0] == 0
    (here / "planned" / "predictions.zarr").mkdir(exist_ok=True)
    monkeypatch.chdir(here / "planned")
    assert "predictions.zarr" not in inside()[1] + inside("init")[1], "a store is no data"
    monkeypatch.chdir(here)
    assert "manyseed init DATA.csv" in inside()[1]
    assert "data: manyseed" not in inside("init")[1]


def test_rows_without_a_class_are_left_out_and_told(here: Path) -> None:
    rows = [f"{i / 7},{['yes', 'no', ''][i % 3]}" for i in range(42)]
    (here / "t.csv").write_text("x,y\n" + "\n".join(rows) + "\n")
    text, table = written("t.csv", "lr-sgd")
    assert table["dataset"]["t"]["classes"] == {"no": ["no"], "yes": ["yes"]}
    assert "y: missing in 14 rows: left out" in text
    assert "# 28 rows of 1 feature" in text
    plan_change(here / "sweep.toml", here / "out")


def test_classes_that_differ_only_in_blanks_are_merged(here: Path) -> None:
    rows = [f"{i},{i / 7},{['yes', ' Yes', 'no'][i % 3]}" for i in range(42)]
    (here / "t.csv").write_text("id,x,y\n" + "\n".join(rows) + "\n")
    text, table = written("t.csv", "lr-sgd")
    data = table["dataset"]["t"]
    assert data["classes"] == {"no": ["no"], "yes": [" Yes", "yes"]}
    assert data["row_id"] == "id"
    assert "# the same but for blanks or case" in text
    assert "no (14), yes (28)" in text
    plan_change(here / "sweep.toml", here / "out")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("x|y\n1|a\n2|b\n", "unknown column; the only one is 'x|y', as columns must be separated"),
        ("1.5,a\n2.5,b\n1.7,a\n1.2,b\n", "has no names of columns"),
        ("x,y,z\n1,2,3\n", "unknown column did you mean"),
    ],
)
def test_an_unknown_target_is_answered_with_what_was_read(
    here: Path, content: str, said: str
) -> None:
    (here / "t.csv").write_text(content)
    code, told = inside("init", "t.csv", "--target", "yy")
    assert code == 2
    assert said in " ".join(told.split())
    assert ("--target" in told) != ("names" in told)
    assert not Path("sweep.toml").exists()


MODELS = {
    "factory.py": (
        "from sklearn.linear_model import LogisticRegression as LR\n"
        "C = float('1')\n\ndef build():\n    return LR(C=C)\n",
        {"estimator": "factory:build"},
    ),
    "kind.py": (
        "class Mine:\n    def __init__(self, k=3): ...\n    def fit(self, X, y): ...\n"
        "    def predict(self, X): ...\n\ndef _one():\n    return 1\n\ndef load():\n    return 1\n",
        {"estimator": "kind:Mine"},
    ),
    "shown.py": (
        "def fit(X, y, X_test, n_classes): ...\n\nif __name__ == '__main__':\n    print(fit)\n",
        {"train": "shown:fit"},
    ),
    "net.py": (
        "from torch import nn\n\nclass Net(nn.Module):\n    def __init__(self): ...\n",
        {"module": "net:Net"},
    ),
    "forest.py": (
        "from sklearn.ensemble import RandomForestClassifier\n\n"
        "class Forest(RandomForestClassifier):\n    pass\n",
        {"estimator": "forest:Forest"},
    ),
    "both.py": (
        "import argparse\n\ndef fit(X, y, X_test): ...\n\nif __name__ == '__main__':\n"
        "    argparse.ArgumentParser()\n",
        {"command": "python both.py --seed {seed} --train {train} --test {test} --out {out}"},
    ),
    "runs.py": (
        "from common import main\nmain()\n",
        {"command": "python runs.py --seed {seed} --train {train} --test {test} --out {out}"},
    ),
}


@pytest.mark.parametrize("name", ["mytrain.py", "mymodel.py", "mynet.py", *MODELS])
def test_a_file_that_defines_a_model_is_no_command(here: Path, name: str) -> None:
    if name in MODELS:
        content, expected = MODELS[name]
        (here / name).write_text(content)
    else:
        entry = {"mytrain.py": ("train", "fit"), "mymodel.py": ("estimator", "build")}
        form, function = entry.get(name, ("module", "build"))
        expected = {form: f"{Path(name).stem}:{function}"}
    _, table = written("sklearn:digits", name)
    assert own(table) == expected
    Path("sweep.toml").unlink()
    _, table = written("sklearn:digits", str(here / name))
    assert [*own(table)] == [*expected]


def test_what_it_writes_for_a_file_with_a_factory_plans(here: Path) -> None:
    (here / "factory.py").write_text(MODELS["factory.py"][0])
    written("sklearn:wine", "factory.py")
    plan_change(here / "sweep.toml", here / "out")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.py", "X = 1\n\ndef main():\n    print(X)\n", "it needs a class with fit"),
        ("two.py", "class A:\n def fit(): ...\nclass B(A):\n def fit(): ...\n", "train: two:A"),
        (
            "parts.py",
            "class Layer:\n def __init__(self, shape): ...\n"
            "def block(shape):\n return Layer(shape)\n"
            "def build(shape):\n return block(shape)\n",
            "defines Layer, block, build name the one to train: parts:build",
        ),
        (
            "nets.py",
            "class Layer:\n def __init__(self, shape): ...\n"
            "class Net:\n def __init__(self, shape):\n  self.layer = Layer(shape)\n",
            "train: nets:Net",
        ),
        (
            "one.py",
            "def build():\n    model = LogisticRegression()\n    return model\n"
            "class Other(BaseEstimator):\n    def fit(self, X, y): ...\n",
            "defines build, Other name the one to train: one:build",
        ),
        ("my-model.py", "def build():\n    return 1\n", "cannot be imported"),
        ("deep/model.py", "def build():\n    return 1\n", "cd deep && manyseed init sklearn:wine"),
        ("wrong.py", "def build(:\n", "wrong.py is not valid Python"),
    ],
)
def test_a_file_that_nothing_can_train_is_refused(
    here: Path, name: str, content: str, said: str
) -> None:
    (here / "deep").mkdir()
    (here / name).write_text(content)
    code, told = inside("init", "sklearn:wine", name)
    assert code == 2
    assert f'MODEL = "{name}"' in told
    assert said in " ".join(told.split())
    assert not Path("sweep.toml").exists()


@pytest.mark.parametrize("model", ["mine.py", "mine:model"])
@pytest.mark.parametrize(
    "content",
    [
        "model = DecisionTreeClassifier(max_depth=2)",
        "model: object = tree.DecisionTreeClassifier(max_depth=2)",
        "pre = StandardScaler()\nmodel = make_pipeline(pre, DecisionTreeClassifier(max_depth=2))\n"
        "last = StandardScaler()",
    ],
)
def test_an_estimator_that_a_file_makes_is_trained(here: Path, model: str, content: str) -> None:
    lines = ["from sklearn import tree", "from sklearn.tree import DecisionTreeClassifier"]
    lines += ["from sklearn.pipeline import make_pipeline"]
    lines += ["from sklearn.preprocessing import StandardScaler", content]
    (here / "mine.py").write_text("\n".join(lines) + "\n")
    code, told = inside("init", "sklearn:wine", model)
    assert code == 0, told
    table = tomllib.loads(Path("sweep.toml").read_text())["classifier"]
    assert [one["estimator"] for one in table.values()] == ["mine:model"]
    assert plan_change(Path("sweep.toml"), here / "out").summary()["fits"] > 1


OWN_NET = """
import numpy as np
from torch import nn
from sklearn.tree import DecisionTreeClassifier

class Net(nn.Module):
    def __init__(self, in_features, num_classes, width=16, dropout=0.1, act="relu"):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(in_features, width), nn.Dropout(dropout), nn.Linear(width, num_classes)
        )

    def forward(self, x):
        return self.body(x)

class Tree(DecisionTreeClassifier):
    def __init__(self, depth=3, splitter="random", random_state=None):
        super().__init__(splitter=splitter, random_state=random_state)
        self.depth = depth

def make(depth=2, leaf=0.25, random_state=None):
    return DecisionTreeClassifier(
        max_depth=depth, min_weight_fraction_leaf=leaf / 10, random_state=random_state
    )

def fit(X, y, X_test, n_classes, batch, *, scale=1.5, verbose=0):
    return batch.normal(size=(len(X_test), n_classes)) * scale
"""


@pytest.mark.parametrize(
    ("model", "name", "params", "grid"),
    [
        ("own:Net", "Net", {"width": 16, "dropout": 0.1, "act": "relu"}, {"width": [16, 32]}),
        ("own:Tree", "Tree", {"depth": 3, "splitter": "random"}, {"depth": [3, 6]}),
        ("own:make", "own", {"depth": 2, "leaf": 0.25}, {"depth": [2, 4]}),
        ("own:fit", "own", {"scale": 1.5, "verbose": 0}, {"scale": [0.75, 1.5]}),
        ("mlp:fit", "my_mlp", {"scale": 1.5, "verbose": 0}, {"scale": [0.75, 1.5]}),
        (
            "sklearn.tree:ExtraTreeClassifier",
            "ExtraTreeClassifier",
            {"min_samples_split": 2, "min_samples_leaf": 1, "min_weight_fraction_leaf": 0.0},
            {"min_samples_split": [2, 4]},
        ),
    ],
)
def test_arguments_of_a_model_are_lines_that_plan_when_uncommented(
    here: Path, model: str, name: str, params: dict[str, Any], grid: dict[str, Any]
) -> None:
    for file in ("own.py", "mlp.py"):
        (here / file).write_text(OWN_NET)
    text, table = written("sklearn:wine", model)
    assert [*table["classifier"]] == [name]
    text = re.sub(r"^# (params|grid|hparams)( = )", r"\1\2", text, flags=re.MULTILINE)
    found = own(tomllib.loads(text))
    assert {key: found["params"][key] for key in params} == params
    assert found["grid"] == grid
    Path("sweep.toml").write_text(text)
    summary = plan_change(here / "sweep.toml", here / "out").summary()
    assert summary["cells"] == 2


def test_a_file_that_is_there_is_told_in_short_with_a_command_that_works(here: Path) -> None:
    written("measured.csv", "lr-sgd")
    code, said = inside("init", "sklearn:wine", "mymodel.py")
    assert code == 2
    assert "sweep.toml: exists already, with lr-sgd on measured" in said
    again = shlex.split(said.partition("name another file: manyseed ")[2])
    assert again == ["init", "sklearn:wine", "mymodel.py", "--out", "wine.toml"]
    assert inside(*again)[0] == 0
    Path("notes.toml").write_text("grid = 1\n")
    code, said = inside("init", "sklearn:wine", "lr-sgd", "--out", "notes.toml")
    assert code == 2
    assert "notes.toml: exists already\n" in said


@pytest.mark.parametrize(
    ("arrays", "target", "remark"),
    [
        (("data", "labels"), "labels", "the array with a value per row"),
        (("x", "y"), "y", "the array with a value per row"),
        (
            ("train_images", "train_labels", "test_images", "test_labels"),
            "labels",
            "the array with a value per row: train_labels and test_labels",
        ),
    ],
)
def test_the_classes_of_arrays_have_their_own_name(
    here: Path, arrays: tuple[str, ...], target: str, remark: str
) -> None:
    rng = np.random.default_rng(0)
    rows = {name: rng.normal(size=(60, 4)) for name in arrays[::2]}
    np.savez(here / "a.npz", **rows, **{name: np.arange(60) % 3 for name in arrays[1::2]})
    text, table = written("a.npz", "lr-sgd")
    assert table["dataset"]["a"]["target"] == target
    assert re.search(rf'^target = "{target}" +# {remark}$', text, re.MULTILINE)
    assert plan_change(here / "sweep.toml", here / "out").summary()["cells"] == 1


def test_a_number_as_target_is_told_before_what_is_missing_and_can_be_cut(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    price = [None if i % 7 == 0 else round(x, 4) for i, x in enumerate(rng.normal(size=90))]
    table = {"a": rng.normal(size=90), "site": ["u", "v", "w"] * 30, "the price": price}
    pl.DataFrame(table).write_csv(here / "sold.csv")
    code, said = inside("init", "sold.csv", "lr-sgd", "--target", "the price")
    assert code == 2
    assert "classes in 77 samples. Is it a number to predict rather than a class?" in said
    assert "missing" not in said
    assert "--target, one of site\n" in said
    line = said.partition("or cut it into thirds: ")[2].strip()
    python, _, program, *_, target = shlex.split(line)
    assert (python, target) == ("python", "the price")
    exec(program, {})
    again = shlex.split(line.partition("&& manyseed ")[2])
    assert again == ["init", "sold-cut.csv", "--target", "the price"]
    text, _ = written(*again[1:])
    assert re.search(r"3 classes: high \(26\), low \(26\), middle \(25\)", text)


@pytest.mark.parametrize("separator", [",", ";"])
def test_counts_as_target_are_cut_unless_they_are_listed_as_classes(
    here: Path, separator: str
) -> None:
    rng = np.random.default_rng(0)
    counts = np.where(rng.random(400) < 0.4, 0, rng.negative_binomial(2, 0.02, 400))
    table = pl.DataFrame({"a": rng.normal(size=400).round(3), "visits": counts})
    comma = separator == ";"
    table.write_csv(here / "seen.csv", separator=separator, decimal_comma=comma)
    code, said = inside("init", "seen.csv", "lr-sgd")
    assert code == 2
    assert "of them with fewer than 5. Is it a number to predict rather than a class?" in said
    line = said.partition("cut it into thirds: ")[2].strip()
    exec(shlex.split(line)[2], {})
    _, found = written(*shlex.split(line.partition("&& manyseed ")[2])[1:])
    assert pl.read_csv("seen-cut.csv").schema["a"] == pl.Float64
    assert found["dataset"]["seen-cut"]["target"] == "visits"
    classes = "\n".join(f'"{n}" = ["{n}"]' for n in sorted({*counts.tolist()}))
    Path("s.toml").write_text(
        'name = "s"\nseed = 1\nrepeats = 1\nruns = 1\n[[grid]]\ndataset = ["d"]\n'
        'classifier = ["lr-sgd"]\n[dataset.d]\nsource = "file:seen.csv"\ntarget = "visits"\n'
    )
    assert "classes = {…} lists them" in inside("plan", "s.toml", "--dry-run")[1]
    with Path("s.toml").open("a") as file:
        file.write(f"[dataset.d.classes]\n{classes}\n")
    assert inside("plan", "s.toml", "--dry-run")[0] == 0


ODD = {
    "a seed": (
        "def train(X, y, X_test, seed):\n"
        "    return Tree(random_state=seed).fit(X, y).predict_proba(X_test)\n"
    ),
    "all other names": (
        "def fit(test_x, train_x, train_y, random_state=0, *, num_classes, depth=2):\n"
        "    tree = Tree(max_depth=depth, random_state=random_state)\n"
        "    return tree.fit(train_x, train_y).predict_proba(test_x)\n"
    ),
    "a network": (
        "from torch import nn\nbuild = None\nclass Net(nn.Module):\n"
        "    def __init__(self, input_dim, hidden=8, n_out=2):\n        super().__init__()\n"
        "        self.net = nn.Sequential(nn.Linear(input_dim, hidden), nn.Linear(hidden, n_out))\n"
        "    def forward(self, x): return self.net(x)\n"
    ),
}


@pytest.mark.parametrize("kind", ODD)
def test_the_function_that_is_proposed_for_other_arguments_is_trained(
    here: Path, kind: str
) -> None:
    content = "from sklearn.tree import ExtraTreeClassifier as Tree\n" + ODD[kind]
    (here / "odd.py").write_text(content)
    code, said = inside("init", "measured.csv", "odd.py")
    assert code == 0, said
    said = " ".join(said.split())
    (found,) = re.findall(r"write a function beside it: (.*?); and (\w+) = \"odd:(\w+)\"", said)
    line, form, name = found
    (here / "odd.py").write_text(f"{content}\n{line}\n")
    text = Path("sweep.toml").read_text()
    text = re.sub(rf"^{form} = .*", f'{form} = "odd:{name}"', text, flags=re.MULTILINE)
    if form == "train":
        text = text.replace('# scores  = "logits"', 'scores = "probabilities"')
    if kind != "a seed":  # the rest of its arguments can be given all the same
        text = re.sub(r"^# params = ", "params = ", text, flags=re.MULTILINE)
        assert re.search(r"^params = \{ (depth = 2|hidden = 8) \}", text, re.MULTILINE)
    Path("sweep.toml").write_text(text)
    change = plan_change(here / "sweep.toml", here / "out")
    assert change.summary()["fits"] > 1
    assert not any("were equal" in note for note in change.expansion.notes)


@pytest.mark.parametrize("by", ["['dose']", "make_column_selector(dtype_include='number')"])
def test_columns_by_name_are_given_a_data_frame(here: Path, by: str) -> None:
    (here / "by.py").write_text(
        "from sklearn.compose import make_column_selector, make_column_transformer\n"
        "from sklearn.pipeline import make_pipeline\n"
        "from sklearn.preprocessing import StandardScaler\n"
        "from sklearn.tree import ExtraTreeClassifier\n\n"
        "def build():\n    scaled = make_column_transformer((StandardScaler(), SELECTED))\n"
        "    return make_pipeline(scaled, ExtraTreeClassifier())\n".replace("SELECTED", by)
    )
    code, said = inside("init", "measured.csv", "by.py")
    assert code == 0
    assert 'encode = "frame": a data frame, with these names of columns' in said
    assert plan_change(here / "sweep.toml", here / "out").summary()["fits"] > 1


def test_a_seed_that_code_fixes_and_a_seed_that_fails_have_lines_that_work(here: Path) -> None:
    (here / "near.py").write_text(
        "import numpy as np\nclass Near:\n"
        "    def __init__(self, k=3, seed=0): self.rng = np.random.RandomState(seed)\n"
        "    def fit(self, X, y): pass\n"
        "    def predict(self, X): return self.rng.randint(0, 2, len(X))\n"
    )
    code, said = inside("init", "measured.csv", "near.py")
    assert code == 0
    (line,) = re.findall(r"or add to its table: (seeds = \{.*?\})", " ".join(said.split()))
    text = Path("sweep.toml").read_text().replace("\nruns = 1 ", "\nruns = 3 ")
    text = text.replace('estimator = "near:Near"', f'estimator = "near:Near"\n{line}')
    Path("sweep.toml").write_text(text)
    table = tomllib.loads(text)
    assert plan_change(here / "sweep.toml", here / "a").summary()["fits"] == 3 * table["repeats"]
    Path("sweep.toml").unlink()
    (here / "third.py").write_text(
        "from sklearn.tree import ExtraTreeClassifier\n"
        "class Third(ExtraTreeClassifier):\n    def fit(self, X, y):\n"
        "        if self.random_state % 2: raise RuntimeError('diverged')\n"
        "        return super().fit(X, y)\n"
    )
    code, said = inside("init", "measured.csv", "third.py")
    assert code == 0
    assert "add to [classifier.Third]: probe = false" in " ".join(said.split())


def test_what_may_stand_beside_a_model_is_said(here: Path) -> None:
    (here / "own.py").write_text(OWN_NET)
    text, _ = written("sklearn:wine", "own:Net")
    assert 'may stand beside: "lr-sgd", "svm-sgd", "xgb", "mlp"\n' in text
    beside = text.replace('["Net"]', '["Net", "mlp"]')
    Path("sweep.toml").write_text(beside)
    assert plan_change(here / "sweep.toml", here / "out").summary()["cells"] == 2
    Path("sweep.toml").unlink()
    text, _ = written("sklearn:digits", "cnn")
    (said,) = re.findall(r"^classifier = .*", text, re.MULTILINE)
    assert all(f'"{name}"' in said for name in ("mlp", "vit", "resnet"))
    assert '"vgg"' not in said  # which needs larger images
    assert said.endswith("; your own: manyseed docs own")
    Path("sweep.toml").unlink()
    text, _ = written("sklearn:wine", "sklearn.naive_bayes:GaussianNB")
    (said,) = re.findall(r"^# to compare it: another \[\[grid\]\] with (.*)", text, re.MULTILINE)
    lines = said.replace(", classifier", "\nclassifier").replace('"xgb", ', "")
    dataset = text.index("[dataset")
    Path("sweep.toml").write_text(f"{text[:dataset]}\n[[grid]]\n{lines}\n{text[dataset:]}")
    assert plan_change(here / "sweep.toml", here / "out").summary()["cells"] == 4


@pytest.mark.parametrize(
    ("model", "others"),
    [
        ("train.py", '"probabilities", "decisions" or "labels"'),
        ("mytrain:fit", '"probabilities" or "decisions"'),
        ("mymodel:build", None),
        ("mynet:build", None),
    ],
)
def test_what_scores_are_is_said(here: Path, model: str, others: str | None) -> None:
    text, _ = written("sklearn:digits", model)
    line = f'\n# scores  = "logits"          # by default; {others} say otherwise\n'
    assert (line in text) == (others is not None)
    assert ("# scores" in text) == (others is not None)
    uncommented = text.replace("# scores", "scores").replace("logits", "probabilities")
    table = own(tomllib.loads(uncommented))
    assert table.get("scores") == (others and "probabilities")


ROWS = 300


@pytest.fixture
def clinic(here: Path) -> dict[str, list[object]]:
    """A table with an id, dates, a constant, a number that may be a label, and classes as text."""
    rng = np.random.default_rng(1)
    columns: dict[str, list[object]] = {
        "visit": [10_000 + i for i in range(ROWS)],
        "seen_on": [f"2026-{i % 12 + 1:02d}-{i % 28 + 1:02d}" for i in range(ROWS)],
        "country": ["NL"] * ROWS,
        "age": rng.normal(50, 9, ROWS).tolist(),
        "grade": [i % 4 + 1 for i in range(ROWS)],
        "ward": [f"w{i // 3 % 3}" for i in range(ROWS)],
        "outcome": [["ill", "well", "unclear"][i // 9 % 3] for i in range(ROWS)],
    }
    pl.DataFrame(columns, strict=False).write_csv(here / "clinic.csv")
    return columns


def test_every_column_is_shown_and_the_doubtful_are_asked_about(
    here: Path, clinic: dict[str, list[object]]
) -> None:
    code, said = inside("init", "clinic.csv", "lr-sgd")
    assert code == 0, said
    text = Path("sweep.toml").read_text()
    comments = [line for line in text.splitlines() if line.startswith("#")]
    for name in clinic:
        if name != "outcome":
            assert any(name in line for line in comments), name
    asked = {
        "visit": "names rows in answers; no feature, as it looks like names or numbers of rows",
        "seen_on": "left out, as it looks like dates",
        "country": "left out, as it never changes",
        "grade": '1, 2, 3, 4 taken as numbers; if labels: categorical = ["grade"]',
    }
    for name, question in asked.items():
        assert f"{name}: {question}" in said
        assert f"#   {name}: {question}\n" in text
    assert "#   taken as numbers: age\n" in text
    assert "#   taken as labels: ward (3)\n" in text
    assert tomllib.loads(text)["dataset"]["clinic"]["ignore"] == ["country", "seen_on"]
    assert tomllib.loads(text)["dataset"]["clinic"]["row_id"] == "visit"
    assert all(len(line) <= 100 for line in text.splitlines())


def test_names_of_columns_cannot_leave_a_comment(here: Path) -> None:
    pl.DataFrame({"a\nname = 1": range(60), "b": [0.5, 1.5] * 30, "y": [*"xyz"] * 20}).write_csv(
        here / "t.csv"
    )
    written("t.csv", "lr-sgd")


def test_what_draws_no_random_number_gets_one_run(here: Path) -> None:
    pytest.importorskip("xgboost")
    _, table = written("measured.csv")
    runs = {name: grid.get("runs") for grid in table["grid"] for name in grid["classifier"]}
    assert runs["xgb"] == 1
    assert runs["lr-sgd"] is None
    summary = plan_change(here / "sweep.toml", here / "out").summary()
    assert summary["runs"] == summary["fits"]
    Path("sweep.toml").unlink()
    _, table = written("measured.csv", "xgb")
    assert [grid.get("runs") for grid in table["grid"]] == [1]


def test_epochs_are_those_that_there_is_time_for(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    found = {}
    for slower in (1.0, 60.0, 5000.0):
        monkeypatch.setattr(firstrun, "_slower", lambda *_, slower=slower: slower)
        code, said = inside("init", "measured.csv", "mlp")
        assert code == 0
        table = tomllib.loads(Path("sweep.toml").read_text())
        n = table["classifier"]["mlp"]["epochs"]
        fewer = f"mlp for {n} epoch{'s' * (n > 1)}, not the usual 20, so that"
        assert (fewer in said) == (slower > 1), said
        Path("sweep.toml").unlink()
        found[slower] = table
        assert "epochs" in table["classifier"]["mlp"]
    epochs = [table["classifier"]["mlp"]["epochs"] for table in found.values()]
    assert epochs[0] == 20
    assert epochs[0] > epochs[1] >= 5
    assert found[60.0]["runs"] in (5, 10)
    monkeypatch.setattr(firstrun, "_slower", lambda *_: 1.0)
    text, table = written("dionis", "mlp")  # 416,188 rows
    assert table["runs"] == 5
    assert 1000 <= table["grid"][0]["train_fraction"][0] < 100_000
    assert 5 <= table["classifier"]["mlp"]["epochs"] < 20
    assert "fewer than the usual 20" in text


def test_a_fit_is_timed_on_this_machine(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(firstrun, "_slower", slower)
    code, said = inside("init", "measured.csv", "mlp")
    assert code == 0
    assert re.search(r"The first run takes about \d+ min on 2 cores, as a fit was timed", said)
    assert 1 <= tomllib.loads(Path("sweep.toml").read_text())["classifier"]["mlp"]["epochs"] <= 20


def test_a_sweep_is_not_named_as_what_is_there(here: Path) -> None:
    for kind in ("cat", "dog"):
        (here / "pets" / kind).mkdir(parents=True)
        for i in range(4):
            Image.new("L", (6, 8)).save(here / "pets" / kind / f"{i}.png")
    _, table = written("pets", "lr-sgd")
    assert table["name"] == "pets-sweep"
    assert [*table["dataset"]] == ["pets"]
    code, said = inside("plan", "sweep.toml")
    assert code == 0, said
    Path("sweep.toml").unlink()
    assert written("pets/", "lr-sgd")[1]["name"] == "pets-sweep-2"


@pytest.mark.usefixtures("without_slurm")
def test_the_commands_that_are_printed_work(here: Path, clinic: dict[str, list[object]]) -> None:
    said = inside("init", "clinic.csv", "lr-sgd", "--out", "my sweep.toml")[1]
    commands = re.findall(r"manyseed (.*)", said)
    assert commands == ["plan 'my sweep.toml' --dry-run", "run 'my sweep.toml'"]
    text = Path("my sweep.toml").read_text()
    assert all(f"# manyseed {one} " in text for one in commands)
    assert inside(*shlex.split(commands[0]))[0] == 0


def test_images_of_several_sizes_and_large_ones_become_small(here: Path) -> None:
    for i, kind in enumerate(["cat", "dog"]):
        for folder, size in (("mixed", (20 + i, 10)), ("large", (200, 100))):
            (here / folder / kind).mkdir(parents=True)
            for j in range(4):
                Image.new("RGB", size).save(here / folder / kind / f"{j}.png")
    for folder, size in (("mixed", [10, 20]), ("large", [32, 64])):
        _, table = written(folder, "lr-sgd")
        assert table["dataset"][folder]["size"] == size
        assert plan_change(here / "sweep.toml", here / "out").summary()["runs"] == 50
        Path("sweep.toml").unlink()
    said = " ".join(inside("init", "mixed", "lr-sgd")[1].split())
    assert (
        "cat/0.png has 10 × 20 pixels, dog/0.png 10 × 21; all become 10 × 20 (height × width)"
        in said
    )
    assert "Read: 8 images of 10 × 20 pixels, 3 channels" in said


def test_a_validation_part_is_to_be_called_test(here: Path) -> None:
    for part in ("train", "val"):
        for kind in ("cat", "dog"):
            (here / "my pets" / part / kind).mkdir(parents=True)
            for i in range(4):
                Image.new("L", (6, 8)).save(here / "my pets" / part / kind / f"{i}.png")
    code, said = inside("init", "my pets")
    assert code == 2
    assert "such as: mv 'my pets/val' 'my pets/test'" in said
    (here / "my pets" / "val").rename(here / "my pets" / "test")
    _, table = written("my pets", "lr-sgd")
    assert (table["name"], table["repeats"]) == ("my-pets", 1)
    assert plan_change(here / "sweep.toml", here / "out").summary()["runs"] == 10


def test_parts_in_capitals_are_to_be_renamed(here: Path) -> None:
    for part in ("Train", "Test"):
        for kind in ("cat", "dog"):
            (here / "pets" / part / kind).mkdir(parents=True)
            for i in range(4):
                Image.new("L", (6, 8)).save(here / "pets" / part / kind / f"{i}.png")
    code, said = inside("init", "pets")
    assert code == 2
    assert "such as: mv pets/Train pets/train && mv pets/Test pets/test" in said


def test_arrays_without_rows_are_told_what_to_save(here: Path) -> None:
    np.savez(here / "other.npz", x_train=np.zeros((9, 2)), y_train=np.arange(9) % 2)
    code, said = inside("init", "other.npz")
    assert code == 2
    assert 'DATA = "other.npz": has no array X' in said
    assert "save the rows as X and the classes as y; it has x_train, y_train" in " ".join(
        said.split()
    )


def test_arrays_for_each_part_are_its_own_test_set(here: Path) -> None:
    X, y = np.random.default_rng(0).normal(size=(90, 4)), np.arange(90) % 3
    X[:, 0] += y
    np.savez(
        here / "digits.npz",
        x_train=X[:60],
        y_train=y[:60],
        x_test=X[60:],
        y_test=y[60:],
        x_val=X[:9],
        y_val=y[:9],
    )
    code, said = inside("init", "digits.npz", "lr-sgd")
    assert code == 0
    assert "90 rows (60 to train on, 30 to test)" in said
    assert "only its arrays for training and test are read, not x_val, y_val" in said
    text = (here / "sweep.toml").read_text()
    assert re.search('target = "y" +# the array with a value per row: y_train and y_test\n', text)
    table = tomllib.loads(text)
    assert (table["name"], table["repeats"]) == ("digits", 1)
    assert plan_change(here / "sweep.toml", here / "out").summary()["runs"] == 10


@pytest.mark.parametrize("name", ["table.csv", "table.parquet", "arrays.npz"])
def test_a_damaged_file_is_told_in_our_words(here: Path, name: str) -> None:
    content = b"x,y\n\xff\xfe\n" if name.endswith(".csv") else b"PK\x03\x04 and then nothing"
    (here / name).write_bytes(content)
    code, said = inside("init", name)
    assert code == 2
    said = " ".join(said.split())
    if name.endswith(".csv"):
        assert f'{name}": cannot be read: line 2 holds the byte 0xff' in said
    else:
        assert f'{name}": cannot be read: it is damaged, or another kind of file' in said


@pytest.mark.parametrize("model", ["lr-sgd", "xgb"])
def test_what_is_no_network_is_bounded_too(
    here: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    pytest.importorskip("xgboost")
    _, table = written("measured.csv", model)
    grids = table["grid"]
    assert (table["repeats"], table["runs"], "train_fraction" in grids[0]) == (5, 10, False)
    Path("sweep.toml").unlink()
    text, table = written("dionis", model)  # 416,188 rows of 355 classes
    assert table["runs"] == (5 if model == "lr-sgd" else 2)
    assert "fits that share a test set, each with its own seed; 10 are usual" in text
    assert table["grid"][0]["train_fraction"][0] < 416_188
    Path("sweep.toml").unlink()
    monkeypatch.setattr(firstrun, "_slower", lambda *_: 1e4)
    text, table = written("dionis", model)
    assert (table["runs"], table["repeats"]) == (2, 2)
    assert "test sets; 5 are usual" in text


def test_a_model_of_ones_own_is_probed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("plain.py").write_text(
        "from sklearn.naive_bayes import GaussianNB\n\ndef build():\n    return GaussianNB()\n"
    )
    code, said = inside("init", "measured.csv", "plain.py")
    assert code == 0, said
    assert "as a fit was timed" in said
    table = tomllib.loads(Path("sweep.toml").read_text())
    assert [grid["runs"] for grid in table["grid"]] == [1]
    assert plan_change(here / "sweep.toml", here / "out").summary()["runs"] == 5
    Path("sweep.toml").unlink()
    Path("broken.py").write_text("def build():\n    raise ValueError\n    return 1\n")
    _, table = written("measured.csv", "broken.py")
    assert (table["repeats"], table["runs"]) == (5, 10)
    Path("sweep.toml").unlink()
    slow = replace(findings.Findings(), scores="predict_proba", seconds=200.0)
    monkeypatch.setattr(findings, "probe", lambda *_: slow)
    Path("plain.py").write_text(Path("plain.py").read_text() + "# slow\n")
    _, table = written("measured.csv", "plain.py")
    assert table["repeats"] == 2


@pytest.mark.parametrize(
    ("content", "offered"),
    [
        ("def build():\n    return Tree()\n", None),
        (
            "def build(random_state=3, depth=8, *, rate=0.5):\n    return Tree(depth, rate)\n",
            {"depth": {"low": 2, "high": 32, "default": 8}},
        ),
        (
            "class Mine(Tree):\n    def __init__(self, name, soft=True, *, rate=0.5): ...\n"
            "    def fit(self, X, y): ...\n",
            {"rate": {"low": 0.125, "high": 0.75, "default": 0.5}},
        ),
        (
            "def build(l2_penalty=0.0003): return Tree(random_state=l2_penalty)\n",
            {"l2_penalty": {"low": 3e-5, "high": 0.003, "default": 0.0003, "log": True}},
        ),
        (
            "def build(eta=0.3): return Tree(random_state=eta)\n",
            {"eta": {"low": 0.03, "high": 1.0, "default": 0.3, "log": True}},
        ),
        (
            "from torch import nn\nclass Net(nn.Linear):\n"
            "    def __init__(self, shape, n_classes): super().__init__(shape[0], n_classes)\n",
            {"lr": {"low": 1e-5, "high": 0.1, "default": 0.001, "log": True}},
        ),
        ("def fit(X, y, X_test, hparams): return hparams['depth']\n", None),
        (
            "def fit(X, y, X_test, hparams): return hparams['lr']\n",
            {"lr": {"low": 1e-4, "high": 1.0, "default": 0.01, "log": True}},
        ),
    ],
)
def test_parameters_are_offered_that_the_model_has(
    here: Path, content: str, offered: dict[str, Any] | None
) -> None:
    start = "from sklearn.tree import DecisionTreeClassifier as Tree\n"
    (here / "own.py").write_text(start + content)
    code, said = inside("init", "sklearn:wine", "own.py")
    assert code == 0, said
    lines = [line for line in Path("sweep.toml").read_text().splitlines() if "# space" in line]
    found = [tomllib.loads(line.removeprefix("# "))["space"] for line in lines]
    assert found == ([] if offered is None else [offered])


def test_a_fit_that_fails_is_told_with_the_first_line_of_its_error(here: Path) -> None:
    (here / "own.py").write_text(
        "class Mine:\n    def fit(self, X, y): raise ValueError('no good\\nsecond line')\n"
        "    def predict(self, X): ...\n"
    )
    code, said = inside("init", "sklearn:wine", "own.py")
    said = " ".join(said.split())
    assert code == 0
    assert "No fit could be timed; mend this before planning: " in said
    assert "ValueError: no good" in said
    assert "second line" not in said


@pytest.mark.parametrize("name", ["e.csv", "e.tsv", "e.parquet", "e.npz", "blank.csv"])
def test_an_empty_file_is_said_to_be_empty(here: Path, name: str) -> None:
    (here / name).write_text("\n\n" if name == "blank.csv" else "")
    verbs = [["init", name], ["import", name, "--out", "sweep"]]
    for words in verbs[: 1 if name == "e.tsv" else 2]:  # which is no format of imports
        code, said = inside(*words)
        assert (code, "is empty" in said) == (2, True), said
    assert not Path("sweep").exists()


def cohort(rng: np.random.Generator, patients: int = 150, visits: int = 4) -> pl.DataFrame:
    """Return rows of patients, in random order, each with one outcome."""
    patient = rng.permutation(np.repeat(np.arange(patients), visits))
    ill = rng.integers(0, 2, patients)[patient]
    return pl.DataFrame(
        {
            "patient": patient,
            "dose": rng.normal(size=patient.size).round(2),
            "outcome": np.where(ill == 1, "ill", "well"),
        }
    )


@pytest.mark.parametrize("name", ["patient", "patient_id"])
@pytest.mark.parametrize("is_text", [True, False])
def test_rows_of_one_patient_are_asked_about(here: Path, name: str, is_text: bool) -> None:
    table = cohort(np.random.default_rng(0))
    patient = table["patient"].map_elements("P{:03d}".format, pl.String) if is_text else None
    renamed = table.with_columns(table["patient"] if patient is None else patient)
    renamed.rename({"patient": name}).write_csv(here / "visits.csv")
    code, said = inside("init", "visits.csv", "lr-sgd")
    assert code == 0
    asked = said[said.index("Please check:") : said.index("Look:")]
    note = (
        f"{name}: 150 values, each in 4 rows of one class; rows of one {name} may be on both "
        f'sides of the split: group = "{name}" keeps them together'
    )
    assert note in asked
    assert "of rows\n" not in asked
    text = Path("sweep.toml").read_text()
    assert f"# {note}\n" in text
    assert f'\n# group = "{name}"' in text
    assert [*plan_change(here / "sweep.toml", here / "out").summary()["notes"]].count(
        f"visits: {note}"
    ) == (name == "patient")
    taken = re.sub(r"(?m)^ignore = .*\n", "", text).replace("# group = ", "group = ")
    (here / "grouped.toml").write_text(taken)
    notes = plan_change(here / "grouped.toml", here / "grouped").summary()["notes"]
    assert any("150 groups of 4 rows are never split" in each for each in notes)
    assert not any("both sides" in each for each in notes)


def test_labels_of_a_few_rows_each_may_name_groups(here: Path) -> None:
    """Rows of one farm have several classes, so nothing tells that they belong together."""
    rng = np.random.default_rng(0)
    farm, outcome = np.repeat(np.arange(240), 3), np.tile(["ill, lame", "well", "ill, lame"], 240)
    table = pl.DataFrame({"dose": rng.normal(size=720), "outcome": outcome})
    columns = {
        "farm": [f"F{each}" for each in farm],
        "vet": [f"V{each}" for each in farm % 19],
        "town": [f"T{each}" for each in farm % 30],
    }
    table.with_columns(pl.Series(n, v) for n, v in columns.items()).write_csv(here / "farms.csv")
    code, said = inside("init", "farms.csv", "lr-sgd", "--target", "outcome")
    assert code == 0
    text = Path("sweep.toml").read_text()
    (line,) = re.findall(r"(?m)^# group = .*$", text)
    assert re.fullmatch(r'# group = "farm" +# if rows of one farm belong together', line)
    assert '2 classes: "ill, lame" (480), well (240)\n' in said
    asked = said.partition("Please check:")[2].splitlines()
    assert [each for each in asked if "belong together" in each] == [
        '  farm: 240 values, each in 3 rows: if rows of one belong together: group = "farm"'
    ]
    (here / "grouped.toml").write_text(text.replace(line, line.removeprefix("# ")))
    notes = plan_change(here / "grouped.toml", here / "grouped").summary()["notes"]
    assert any("240 groups of 3 rows are never split" in each for each in notes)


def test_columns_that_tell_the_target_are_asked_about(here: Path) -> None:
    rng = np.random.default_rng(0)
    state = rng.integers(0, 3, 60)
    pl.DataFrame(
        {
            "dose": rng.normal(size=60),
            "outcome_code": state,
            "flag": np.where(state == 0, "T", "F"),
            "stage": np.array([["I", "II"], ["III", "IV"], ["V", "VI"]])[
                state, rng.integers(0, 2, 60)
            ],
            "outcome": np.array(["ill", "well", "gone"])[state],
        }
    ).write_csv(here / "told.csv")
    code, said = inside("init", "told.csv", "lr-sgd")
    assert code == 0
    told = "tells outcome by itself: each of its values has one class"
    notes = plan_change(here / "sweep.toml", here / "out").summary()["notes"]
    for name in ("outcome_code", "stage"):
        note = f'{name} {told}; if it is not a feature: ignore = ["{name}"]'
        assert f"\n  {note}\n" in said
        assert f"\n# {note}\n" in Path("sweep.toml").read_text()
        assert f"told: {note}" in notes
    assert f"flag {told}" not in said  # F is of two classes
    assert "taken as numbers; if labels" not in said


def test_numbers_with_units_and_marks_of_missing_values_are_asked_about(here: Path) -> None:
    rng = np.random.default_rng(0)
    n = 300
    ages = rng.integers(18, 90, n)
    pl.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.2, -999, ages),
            "weight": [f"{w:.1f} kg" for w in rng.normal(70, 9, n)],
            "y": [*"ab"] * (n // 2),
        }
    ).write_csv(here / "t.csv")
    code, said = inside("init", "t.csv", "lr-sgd")
    assert code == 0
    asked = said[said.index("Please check:") : said.index("Look:")]
    n_far = re.search(r"age is -999 in (\d+) rows, far from its other values \(18 to 89\)", asked)
    assert n_far
    assert 40 < int(n_far[1]) < 80
    assert "weight holds numbers with units" in asked
    notes = plan_change(here / "sweep.toml", here / "out").summary()["notes"]
    assert any("age is -999" in note for note in notes)


def test_numbers_beside_marks_and_with_thousands_are_no_labels(here: Path) -> None:
    rng = np.random.default_rng(0)
    n = 200
    prices = [f"{v:,.2f}".translate(str.maketrans(",.", ".,")) for v in rng.normal(1500, 300, n)]
    lactate = [f"{v:.2f}".replace(".", ",") for v in rng.gamma(2, 1, n)]
    lactate[::20] = ["k.A."] * 10
    titre = [f"{v:.2f}".replace(".", ",") for v in rng.gamma(2, 1, n)]
    titre[1::20] = ["neg"] * 10
    limit = [f"{v:.2f}".replace(".", ",") for v in rng.gamma(2, 1, n)]
    limit[2::20] = ["<0,1"] * 10
    ward = ["neg", "pos"] * (n // 2)
    lines = zip(prices, lactate, titre, limit, ward, ["Ja", "Nein", "Ja", "Ja"] * 50, strict=True)
    text = "\n".join(["Preis;Laktat;Titer;Grenze;Ward;y", *map(";".join, lines)])
    (here / "excel.csv").write_text(text)
    (here / "alone.csv").write_text(
        re.sub(";[^;\n]*;[^;\n]*(;[^;\n]*;[^;\n]*)$", r"\1", text, flags=re.M)
    )
    code, said = inside("init", "excel.csv", "lr-sgd")
    assert code == 0, said
    data = tomllib.loads((here / "sweep.toml").read_text())["dataset"]["excel"]
    assert data["continuous"] == ["Preis"]
    # "neg" is a label of another column
    assert "missing" not in data
    assert data["ignore"] == ["Grenze", "Laktat", "Titer"]
    assert 'Titer holds numbers besides "neg", so it is left out' in said
    (here / "sweep.toml").unlink()
    code, said = inside("init", "alone.csv", "lr-sgd")
    assert code == 0, said
    data = tomllib.loads((here / "sweep.toml").read_text())["dataset"]["alone"]
    assert (data["continuous"], data["missing"], "ignore" in data) == (["Preis"], ["k.A."], False)
    asked = said[said.index("Please check:") : said.index("Look:")]
    assert 'missing = ["k.A."]: besides numbers in Laktat' in asked
    assert 'continuous = ["Preis"]: numbers such as 1.' in asked
    assert "1 of them categorical" in said
    assert plan_change(here / "sweep.toml", here / "out").summary()["runs"]


SCRIPT = """
import argparse
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--random-state", type=int, default=0)
parser.add_argument("--num-workers", type=int, default=2)
parser.add_argument("--hidden", type=int, default=32)
parser.add_argument("--weight-decay", type=float, default=1e-4)
{files}
given = parser.parse_args()
rng = np.random.default_rng(given.random_state)
p = rng.dirichlet(np.ones(3), len(np.load(given.test)["X"]))
np.save(given.out, p)
"""
FILES = "for name in ('train', 'test', 'out'): parser.add_argument('--' + name)"


def test_what_a_script_returns_and_its_options_are_written_for_it(here: Path) -> None:
    (here / "net.py").write_text(SCRIPT.format(files=FILES))
    text, table = written("sklearn:wine", "net.py")
    start = "python net.py --random-state {seed}"
    files = "--train {train} --test {test} --out {out}"
    assert own(table) == {
        "command": f"{start} {files}",
        "scores": "probabilities",
    }
    runs = table["repeats"] * table["runs"]  # fewer where the machine is busy
    assert plan_change(here / "sweep.toml", here / "out").summary()["runs"] == runs
    offered = [line.removeprefix("# ").removeprefix("then: ") for line in text.splitlines()[-2:]]
    more = tomllib.loads("\n".join(offered))
    assert more["space"]["weight_decay"]["default"] == 1e-4
    assert more["command"] == f"{start} --weight-decay {{hparams.weight_decay}} {files}"
    lines = [line for line in text.splitlines() if not line.startswith("command = ")]
    (here / "sweep.toml").write_text("\n".join([*lines, *offered]))
    assert plan_change(here / "sweep.toml", here / "out").summary()["runs"] == runs


@pytest.mark.parametrize("data", ["measured.csv", "sklearn:wine"])
def test_labels_of_a_script_are_written_as_such(here: Path, data: str) -> None:
    k = 2 if data.endswith("csv") else 3
    line = f"p = rng.integers(0, {k}, len(np.load(given.test)['X']))"
    text = re.sub("p = .*", lambda _: line, SCRIPT.format(files=FILES))
    (here / "net.py").write_text(text)
    _, table = written(data, "net.py")
    assert own(table)["scores"] == "labels"
    runs = table["repeats"] * table["runs"]
    assert plan_change(here / "sweep.toml", here / "out").summary()["runs"] == runs


def test_labels_of_a_function_are_not_written_as_probabilities(here: Path) -> None:
    (here / "own.py").write_text(
        "def fit(X_test, batch): return batch.integers(0, 2, len(X_test))\n"
    )
    code, said = inside("init", "measured.csv", "own.py")
    assert code == 0
    assert "every score of a probe is 0 or 1, as labels are" in " ".join(said.split())
    assert "\nscores = " not in Path("sweep.toml").read_text()


def test_a_script_that_fails_is_told_what_it_gets_and_is_not_to_be_run(here: Path) -> None:
    (here / "net.py").write_text(SCRIPT.format(files=""))
    code, said = inside("init", "sklearn:wine", "net.py")
    said = " ".join(said.split())
    assert code == 0
    assert "unrecognized arguments: --train" in said
    assert "It printed" not in said
    assert "gets rows from {train} and {test} and writes scores to {out}: manyseed docs own" in said
    assert "Once mended: manyseed plan sweep.toml --dry-run" in said
    assert "manyseed run" not in said


def test_missing_values_are_told_and_imputed_for_a_model_that_takes_none(here: Path) -> None:
    frame = pl.read_csv("measured.csv").with_columns(
        dose=pl.when(pl.col("dose") > 1.5).then(None).otherwise("dose")
    )
    frame.write_csv("measured.csv")
    (here / "own.py").write_text(
        "from sklearn.linear_model import LogisticRegression\n"
        "def build(): return LogisticRegression(solver='saga', max_iter=5)\n"
    )
    code, said = inside("init", "measured.csv", "own.py")
    assert code == 0, said
    assert f"values missing: dose {frame['dose'].null_count()}" in said
    table = tomllib.loads(Path("sweep.toml").read_text())
    assert own(table)["encode"] == "dense"
    notes = plan_change(here / "sweep.toml", here / "out").summary()["notes"]
    assert any(f"dose ({frame['dose'].null_count()} missing)" in note for note in notes)
    assert not any("codes 0, 1, 2" in note for note in notes)


def test_that_labels_are_numbers_to_a_linear_model_is_told(here: Path) -> None:
    (here / "own.py").write_text(
        "from sklearn.linear_model import LogisticRegression\n"
        "from sklearn.tree import DecisionTreeClassifier\n"
        "def logistic(): return LogisticRegression(solver='saga', max_iter=5)\n"
        "def tree(): return DecisionTreeClassifier()\n"
        "def stump(): return DecisionTreeClassifier(max_depth=1)\n"
    )
    text, _ = written("measured.csv", "own:logistic")
    named = text.replace('["logistic"]', '["logistic", "tree", "stump"]', 1)
    tables = [f'[classifier.{name}]\nestimator = "own:{name}"\n' for name in ("tree", "stump")]
    (here / "sweep.toml").write_text("\n".join([named, *tables]))
    change = plan_change(here / "sweep.toml", here / "out")
    told = "labels (1 column) are codes 0, 1, 2, …"
    assert [note.partition(" on ")[0] for note in change.expansion.notes if told in note] == [
        "logistic",
        "tree, stump",
    ]
    assert [note.partition(" ")[0] for note in change.expansion.unexpected if told in note] == [
        "logistic"
    ]


def test_text_is_told_and_the_docs_make_numbers_of_it(here: Path) -> None:
    rows = ("good", "fine"), ("bad", "poor")
    texts = [f"a {rows[i % 2][i % 4 // 2]} film about town {i}" for i in range(80)]
    classes = ["pos", "neg"] * 40
    pl.DataFrame({"review": texts, "sentiment": classes}).write_csv(here / "reviews.csv")
    code, said = inside("init", "reviews.csv", "lr-sgd")
    assert code == 0
    told = "is text, whose words no classifier here reads"
    assert f"review: taken as a feature, but {told} (manyseed docs text)" in " ".join(said.split())
    notes = plan_change(here / "sweep.toml", here / "out").summary()["notes"]
    assert any(f"review {told}" in note for note in notes)
    page = (Path(__file__).parents[3] / "docs" / "datasets.md").read_text()
    section = page.partition("### Text\n")[2]
    (here / "reviews.py").write_text(section.partition("```python\n")[2].partition("```")[0])
    (here / "sweep.toml").unlink()
    assert inside("init", "reviews:load", "lr-sgd")[0] == 0
    sweep = train(here / "sweep.toml", here / "words")
    sweep.analyze(progress=False)
    assert sweep.query(by=["classifier"])["accuracy_mean"].min() == 1


def test_a_script_that_reads_its_own_data_is_told_the_loop_and_the_import(here: Path) -> None:
    (here / "train.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--csv', required=True)\np.add_argument('--random-seed', type=int)\n"
        "p.add_argument('-o', '--output')\np.parse_args()\n"
    )
    loop = "python train.py --csv DATA --random-seed $s --output preds/seed-$s.npz"
    code, said = inside("init", "train.py")
    assert code == 2
    for_all = f"for s in $(seq 20); do {loop}; done"
    assert for_all in said
    assert "manyseed import preds --out train-sweep --classifier my_train\n" in said
    code, said = inside("init", "sklearn:wine", "train.py")
    assert code == 0
    assert loop.replace("DATA", "sklearn:wine") in said
    assert "manyseed import preds --out train-sweep --classifier my_train\n" in said
    # the suffix is that of the files which the script writes
    text = (here / "train.py").read_text()
    for before, after in (
        ("p.parse", "def f(t, o): t.to_csv(o)\np.parse"),
        ("'--output'", "'--output', default='p.csv'"),
    ):
        (here / "train.py").write_text(text.replace(before, after))
        assert loop.replace(".npz", ".csv") in inside("init", "train.py")[1]


def test_a_script_that_ignores_its_seed_is_told_at_once(here: Path) -> None:
    (here / "own.py").write_text(
        "import numpy as np\n"
        "def fit(X, y, X_test, n_classes, batch):\n    return X_test[:, :n_classes] * 2.0\n"
    )
    code, said = inside("init", "sklearn:wine", "own.py")
    assert code == 0, said
    assert "own.py: fits with other seeds were equal on" in " ".join(said.split())


def test_names_that_rows_of_several_classes_share_are_told(here: Path) -> None:
    """Visits of one patient with other outcomes: no value tells a class."""
    rng = np.random.default_rng(0)
    patients = np.repeat([f"P{n:03}" for n in range(50)], 4)
    table = {"patient_id": patients, "age": rng.normal(50, 9, 200), "ill": rng.integers(0, 2, 200)}
    pl.DataFrame(table).write_csv(here / "visits.csv")
    code, said = inside("init", "visits.csv", "lr-sgd")
    assert code == 0
    told = "50 values, each in 4 rows: if rows of one belong together:"
    assert f'{told} group = "patient_id", not in ignore' in " ".join(said.split())
    text = (here / "sweep.toml").read_text()
    (line,) = re.findall(r"(?m)^# group = .*$", text)
    assert "then not in ignore" in line
    taken = re.sub(r"(?m)^ignore = .*\n", "", text).replace("# group = ", "group = ")
    (here / "grouped.toml").write_text(taken)
    assert inside("plan", "grouped.toml", "--dry-run")[0] == 0


NET = """import argparse
import numpy as np, torch
from torch import nn


class Block(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.layer = nn.Linear(cin, cout)


class Net(nn.Module):
    def __init__(self, in_features=13, num_classes=3, width=8, lr=1.0):
        super().__init__()
        self.layer = nn.Linear(in_features, num_classes)

    def forward(self, x):
        return self.layer(x)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", default="d.csv")
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--save", action="store_true")
    opts = ap.parse_args()
    optimizer = torch.optim.AdamW(Net().parameters())
    loss = Net()(torch.zeros(2, 13)).sum()
    loss.backward()
    optimizer.step()


if __name__ == "__main__":
    main()
"""


def test_a_script_that_cannot_say_where_to_write_is_told_what_to_add(here: Path) -> None:
    """The lines that it names, and the loop, work when they are taken as they are."""
    pytest.importorskip("torch")
    (here / "net.py").write_text(NET)
    code, said = inside("init", "sklearn:wine", "net.py")
    assert code == 0
    assert "needs no change" not in said
    assert "no argument of net.py says where to write. Add:" in " ".join(said.split())
    adds = '  ap.add_argument("--out")\n', "  np.savez(opts.out, scores=scores, y_true=y_true)\n"
    assert all(line in said for line in adds), said
    assert "  python" not in said
    loop = "for s in $(seq 20); do python net.py --data sklearn:wine --seed $s --out preds/seed-$s"
    assert f"mkdir preds; {loop}.npz; done\n" in said
    assert adds[0] in inside("init", "net.py")[1]
    made = "scores = 3 * np.eye(3)[[0, 1, 2, 0]] - 1; y_true = [0, 1, 2, 1]"
    text = NET.replace("    opts =", f"  {adds[0]}    opts =")
    text = text.replace("    optimizer =", f"    {made}\n  {adds[1]}    optimizer =")
    (here / "net.py").write_text(text)
    code, said = inside("init", "net.py")
    assert "needs no change" in said
    loop = re.search(r"mkdir .*done", said)
    assert loop is not None
    small = loop[0].replace("seq 20", "seq 2").replace("python", sys.executable)
    subprocess.run(small, shell=True, check=True)
    imported = re.search("manyseed (import .*)", said)
    assert imported is not None
    code, said = inside(*shlex.split(imported[1]))
    assert code == 0, said


@pytest.mark.parametrize(
    ("script", "adds", "line"),
    [
        (
            "from argparse import ArgumentParser\np = ArgumentParser()\np.add_argument('data')\n"
            "p.add_argument('out')\nargs = p.parse_args()\n",
            ['p.add_argument("--seed", type=int)'],
            "python own.py D.csv preds/seed-$s.npz --seed $s;",
        ),
        (
            "import numpy as np\nprint(np.zeros(3))\n",
            [
                "import argparse; parser = argparse.ArgumentParser()",
                'parser.add_argument("--seed", type=int)',
                'parser.add_argument("--out")',
                "np.random.seed(args.seed)",
                "np.savez(args.out, scores=scores, y_true=y_true)",
            ],
            "python own.py --seed $s --out preds/seed-$s.npz;",
        ),
        (
            "import click\n@click.command()\n@click.option('--seed')\n"
            "def main(seed): pass\nmain()\n",
            ['@click.option("--out")', "np.savez(out, scores=scores, y_true=y_true)"],
            "python own.py --seed $s --out preds/seed-$s.npz;",
        ),
        (
            "import argparse\np = argparse.ArgumentParser()\np.add_argument('--seed')\n"
            "p.add_argument('-o')\np.parse_args()\n",
            [],
            "python own.py --seed $s -o preds/seed-$s.npz;",
        ),
        (
            "import argparse\np = argparse.ArgumentParser()\np.add_argument('--seed')\n"
            "p.add_argument('--output-dir')\np.parse_args()\n",
            [],
            "python own.py --seed $s --output-dir preds/seed-$s;",
        ),
        ("import sys\nprint(sys.argv)\n", [], "--seed $s --out preds/seed-$s.npz;"),
    ],
)
def test_what_a_script_lacks_is_told_by_its_arguments(
    here: Path, script: str, adds: list[str], line: str
) -> None:
    (here / "own.py").write_text(script)
    code, said = inside("init", "own.py", "D.csv")
    assert code == 2
    assert line in said
    assert all(f"{each}\n" in said for each in adds), said
    assert ("needs no change" in " ".join(said.split())) == (not adds)


def test_a_program_in_another_language_is_told_the_loop(here: Path) -> None:
    (here / "my train.sh").write_text("echo $1; exit\n")
    code, said = inside("init", "my train.sh")
    assert code == 2
    assert "do bash 'my train.sh' --seed $s --out preds/seed-$s.npz; done" in said
    assert "and takes a seed and a file to write, needs no change" in " ".join(said.split())


def test_a_script_with_a_model_is_told_the_command_that_trains_it(here: Path) -> None:
    pytest.importorskip("torch")
    (here / "net.py").write_text(NET)
    code, said = inside("init", "sklearn:wine", "net.py")
    assert code == 0
    found = re.search(r"The Net that it defines can be trained as it is: manyseed (.*)", said)
    assert found is not None, said
    code, said = inside(*shlex.split(found[1]))
    assert code == 0, said
    assert "No fit could be timed" not in said
    assert plan_change(here / "Net.toml", here / "out").summary()["runs"] > 0
    (here / "sweep.toml").unlink()
    (here / "net.py").write_text(NET.partition("if __name__")[0] + "main()\n")
    code, said = inside("init", "sklearn:wine", "net.py")  # to import it would train it
    assert (code, "can be trained as it is" in said) == (0, False)


def test_a_file_that_is_there_is_refused_before_anything_is_read(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert inside("init", "measured.csv", "lr-sgd")[0] == 0
    text = (here / "sweep.toml").read_text()
    monkeypatch.setattr("manyseed.orchestrator.grids.template.first_data", None)
    code, said = inside("init", "measured.csv", "mymodel.py")
    assert code == 2, said
    assert "sweep.toml: exists already, with lr-sgd on measured" in said
    assert "manyseed init measured.csv mymodel.py --out measured.toml" in said
    assert "does not exist" in inside("init", "measured.tsv")[1]  # nor would the command work
    assert "unknown model" in inside("init", "measured.csv", "nowhere")[1]
    code, said = inside("init", "mydata:load", "--target", "y", "--out", "sweep.toml")
    assert (code, "init mydata:load --target y --out sweep-2.toml" in said) == (2, True), said
    assert (here / "sweep.toml").read_text() == text


def test_columns_that_may_be_the_classes_as_well_are_asked_about(here: Path) -> None:
    rng = np.random.default_rng(0)
    numbers = {"mass": rng.normal(size=60), "height": rng.normal(size=60)}
    species = ["Birch", "Oak"] * 30
    words = {"state": ["good", "poor", "dead"] * 20}
    for name, columns, target, asked in (
        ("last.csv", {"species": species, **numbers, "condition": words["state"]}, "condition", 1),
        ("first.csv", {"species": species, **numbers, "leaf": words["state"]}, "species", 1),
        ("alone.csv", {"site": species, **numbers, "species": words["state"]}, "species", 0),
        ("class.csv", {"status": species, **numbers, "class": words["state"]}, "class", 1),
        ("end.csv", {"status": species, **numbers, "my end": words["state"]}, "my end", 1),
        ("y.csv", {"y": species, **numbers}, "y", 0),
    ):
        pl.DataFrame(columns).write_csv(here / name)
        code, said = inside("init", name, "lr-sgd")
        assert code == 0
        text = (here / "sweep.toml").read_text()
        (table,) = tomllib.loads(text)["dataset"].values()
        assert table["target"] == target, name
        other = {"last.csv": "species", "first.csv": "leaf"}.get(name, "status")
        question = f"; or {other}? --target {other}"
        seen = question if asked else "; or "
        assert (seen in " ".join(said.split())) == bool(asked), said
        assert (seen in text.partition("[dataset")[0].rpartition("# 60 rows")[2]) == bool(asked)
        (here / "sweep.toml").unlink()
    code, said = inside("init", "first.csv", "lr-sgd", "--target", "species")
    assert (code, "--target" in said) == (0, False)  # it was said


def test_how_a_module_is_trained_is_told_and_can_be_changed(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    (here / "net.py").write_text(NET)
    code, said = inside("init", "sklearn:wine", "net:Net")
    assert code == 0
    loop = "Trained by manyseed's loop: 20 epochs of Adam, lr 0.001, constant"
    told = f"{loop}; net.py's own loop is not used: manyseed docs own#a-training-function"
    assert told in " ".join(said.split())
    text = (here / "sweep.toml").read_text()
    assert f"# {told}\n[classifier.Net]\n" in text
    keys = "# epochs = 20", '# optimizer = "adam"', '# schedule = "constant"'
    assert all(f"\n{key} " in text for key in keys), text
    taken = re.sub("(?m)^# (epochs|optimizer|schedule) =", r"\1 =", text)
    (here / "taken.toml").write_text(taken)
    assert inside("plan", "taken.toml", "--dry-run")[0] == 0
    (here / "sweep.toml").unlink()
    (here / "net.py").write_text(NET.replace("loss.backward()", ""))
    said = " ".join(inside("init", "sklearn:wine", "net:Net")[1].split())
    assert loop in said
    assert "own loop" not in said
    # a slow one is trained for fewer epochs before there are fewer runs than tell a spread
    found = []
    for seconds in (20.0, 60.0, 2000.0):
        slow = replace(findings.Findings(), scores="logits", seconds=seconds, streams=("init",))
        monkeypatch.setattr(findings, "probe", lambda *_, slow=slow: slow)
        (here / "net.py").write_text(f"{NET}# {seconds}\n")
        (here / "sweep.toml").unlink()
        said = " ".join(inside("init", "sklearn:wine", "net:Net")[1].split())
        table = tomllib.loads((here / "sweep.toml").read_text())
        epochs = table["classifier"]["Net"].get("epochs", 20)
        assert (f"Net for {epochs} epoch" in said) == (epochs < 20)
        assert f"loop: {epochs} epoch" in said
        few = f"runs = {table['runs']}, as a fit takes long: too few to tell how much models differ"
        assert (few in said) == (table["runs"] < 5), said
        found.append((table["runs"], epochs))
    assert found[0][0] >= 5 <= found[0][1] < 20
    assert found[-1] == (2, 1)


def test_several_models_are_one_grid(here: Path) -> None:
    pytest.importorskip("torch")
    (here / "net.py").write_text(NET)
    (here / "bayes.py").write_text(
        "from sklearn.naive_bayes import GaussianNB\n\n\ndef build():\n    return GaussianNB()\n"
    )
    models = ("net:Net", "mymodel.py", "bayes.py", "lr-sgd", "mlp")
    text, table = written("sklearn:wine", *models)
    by_name = {name: {*each} for name, each in table["classifier"].items()}
    assert {name: {*each} & {"module", "estimator"} for name, each in by_name.items()} == {
        "Net": {"module"},
        "mymodel": {"estimator"},
        "bayes": {"estimator"},
        "mlp": set(),
    }
    drawing, steady = table["grid"]
    assert drawing["classifier"] == ["Net", "mymodel", "lr-sgd", "mlp"]
    assert (steady["classifier"], steady["runs"]) == (["bayes"], 1)
    assert "Net, " not in text.partition("may stand beside: ")[2].partition("\n")[0]
    summary = plan_change(here / "sweep.toml", here / "out").summary()
    assert summary["runs"] == table["repeats"] * (4 * table["runs"] + 1)
    code, said = inside("init", "sklearn:wine", *models)
    assert (code, f"init sklearn:wine {' '.join(models)} --out wine.toml" in said) == (2, True)


def test_several_models_need_names_and_each_is_told(here: Path) -> None:
    (here / "bayes.py").write_text("def build():\n    raise ValueError\n    return 1\n")
    code, said = inside("init", "sklearn:wine", "lr-sgd", "mymodel.py", "mymodel:build")
    assert (code, 'MODEL = "mymodel": two models of this name' in said) == (2, True), said
    assert not (here / "sweep.toml").exists()
    code, said = inside("init", "sklearn:wine", "mymodel.py", "bayes.py")
    assert code == 0
    assert "No fit could be timed; mend this before planning: estimator = 'bayes:build'" in said
    assert "Once mended" in said
    assert [*tomllib.loads((here / "sweep.toml").read_text())["classifier"]] == ["mymodel", "bayes"]
