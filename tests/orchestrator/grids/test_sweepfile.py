"""What is wrong in a sweep file is told in one message; nothing is written."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from manyseed import Sweep
from manyseed.orchestrator.cli import main
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.grids.expansion import expand
from manyseed.orchestrator.grids.loading import parse_sweep_file, read_sweep_file
from manyseed.orchestrator.grids.sweepfile import Keep
from manyseed.orchestrator.plans.planning import plan_change
from tests.orchestrator.conftest import command

GOOD = """
name = "good"
seed = 1
repeats = 2
runs = 3

[[grid]]
dataset            = ["cancer", "sklearn:digits"]
classifier         = ["lr-sgd", "mlp"]
train_fraction     = [0.5, 1.0]
perturb_continuous = ["none", "neighbour:0.5"]

[dataset.cancer]
source = "sklearn:breast_cancer"
test   = 0.25

[classifier.mlp]
epochs = 2
"""

HEAD = 'name = "x"\nseed = 1\n'
GRID = '[[grid]]\ndataset = ["sklearn:digits"]\nclassifier = ["lr-sgd"]\n'

TABLE = "width,colour,same,class\n0,,1,a\n" + "".join(
    f"{i},{'red' if i % 3 else 'blue'},1,{'ab'[i % 2]}\n" for i in range(1, 8)
)

TYPED = "v,flag,num,flt,day\n" + "".join(
    f"{i}.5,{'true' if i % 2 else 'false'},{i % 3},{float(i % 2)},2020-0{1 + i % 2}-01\n"
    for i in range(24)
)
OTHERS = {"flag", "num", "flt", "day"}


def typed(target: str, more: str = "") -> str:
    """Return a sweep file whose classes TOML, too, may take for truth values, numbers or dates."""
    ignored = sorted(OTHERS - {target})
    table = f'[dataset.d]\nsource = "file:typed.csv"\ntarget = "{target}"\nignore = {ignored}\n'
    return HEAD + "repeats = 1\nruns = 2\n" + GRID.replace("sklearn:digits", "d") + table + more


# what is written → what the message must hold: key, value, reason or remedy
MISTAKES = {
    "no TOML": ("name = ", ["not valid TOML", "Invalid value"]),
    "no grid": (HEAD, ["grid: this key is missing", "[[grid]]"]),
    "a required key misspelt": (
        HEAD + '[[grid]]\ndataset = ["sklearn:digits"]\nclasifier = ["lr-sgd"]\n',
        ["grid[0].clasifier: unknown key", 'did you mean "classifier"'],
    ),
    "grid misspelt": (
        HEAD + GRID.replace("[[grid]]", "[[grids]]"),
        ["grids: unknown key", 'did you mean "grid"'],
    ),
    "an unknown key beside a missing one": (
        HEAD + '[[grid]]\ndataset = ["sklearn:digits"]\nrepeat = 2\n',
        ["grid[0].classifier: this key is missing"],
    ),
    "source misspelt": (
        HEAD + GRID + '[dataset.d]\nsorce = "sklearn:wine"\n',
        ['dataset.d.sorce = "sklearn:wine": unknown key', 'did you mean "source"'],
    ),
    "a range from high to low": (
        HEAD
        + GRID.replace("lr-sgd", "mine")
        + '[classifier.mine]\nestimator = "sklearn.tree:DecisionTreeClassifier"\n'
        "space = { max_depth = { low = 30, high = 1, default = 5 } }\n",
        ["classifier.mine.space.max_depth.low = 30: must be below high = 1"],
    ),
    "neither a share nor a number of points": (
        HEAD + GRID + "train_fraction = [1.5]\n",
        [
            "grid[0].train_fraction = 1.5: must be a share above 0 and at most 1, or a whole "
            "number of points from 2 to 1348"
        ],
    ),
    "train_fraction of zero": (
        HEAD + GRID + "train_fraction = [0]\n",
        ["grid[0].train_fraction = 0: must be a share above 0 and at most 1, or a whole number"],
    ),
    "test neither a share nor a number of points": (
        HEAD + GRID + '[dataset."sklearn:digits"]\ntest = 2.5\n',
        [
            'dataset."sklearn:digits".test = 2.5: must be a share above 0 and below 1, or a whole '
            "number of points from 2 to 1795"
        ],
    ),
    "test as text": (
        HEAD + GRID + '[dataset."sklearn:digits"]\ntest = "0.2"\n',
        ['dataset."sklearn:digits".test = "0.2": must be a share above 0 and below 1, or a whole'],
    ),
    "a key twice": (
        HEAD + "runs = 2\nruns = 3\n" + GRID,
        ["not valid TOML: Cannot overwrite a value", "line 4 gives again", ": runs = 3"],
    ),
    "a table twice": (
        HEAD + GRID + "[keep]\n[keep]\n",
        ["not valid TOML: Cannot declare", "line 7 gives again", ": [keep]"],
    ),
    "no name": ("seed = 1\n" + GRID, ["name: this key is missing", "add name = …"]),
    "bad name": ('name = "a b"\nseed = 1\n' + GRID, ['name = "a b"', "letters, digits"]),
    "name of another type": ("name = 3\nseed = 1\n" + GRID, ["name = 3: must be text in quotes"]),
    "seed as text": ('name = "x"\nseed = "1"\n' + GRID, ['seed = "1": must be a whole number']),
    "negative seed": (
        'name = "x"\nseed = -1\n' + GRID,
        ["seed = -1: must be a whole number from 0"],
    ),
    "truth for a number": (HEAD + "runs = true\n" + GRID, ["runs = true: must be a whole number"]),
    "no repeats": (
        HEAD + "repeats = 0\n" + GRID,
        ["repeats = 0: must be a whole number from 1 to 10000"],
    ),
    "unknown key": (
        HEAD + "repeat = 2\n" + GRID,
        ["repeat: unknown key", 'did you mean "repeats"'],
    ),
    "unknown key of a grid": (
        HEAD + GRID + 'clasifier = ["xgb"]\n',
        ["grid[0].clasifier: unknown key", 'did you mean "classifier"'],
    ),
    "unknown key of keep": (HEAD + GRID + "[keep]\nscore = 1\n", ["keep.score", '"scores"']),
    "keep of another value": (
        HEAD + GRID + '[keep]\nscores = "margins"\n',
        ['keep.scores = "margins"', 'did you mean "margin"'],
    ),
    "keep of a dataset": (
        HEAD + GRID + '[dataset."sklearn:digits"]\nkeep = { dtype = "float8" }\n',
        ['dataset."sklearn:digits".keep.dtype = "float8"', "float16"],
    ),
    "unknown key of a dataset's keep": (
        HEAD + GRID + '[dataset."sklearn:digits"]\nkeep = { score = 1 }\n',
        ['dataset."sklearn:digits".keep.score: unknown key', 'did you mean "scores"'],
    ),
    "keep that is no table": (HEAD + "keep = 3\n" + GRID, ["keep = 3: must be a table"]),
    "one bracket": (
        HEAD + GRID.replace("[[grid]]", "[grid]"),
        ["grid = ", "must be a list", "[[grid]], with two brackets"],
    ),
    "no list": (
        HEAD + GRID.replace('["lr-sgd"]', '"lr-sgd"'),
        ['grid[0].classifier = "lr-sgd": must be a list', 'write a list: ["lr-sgd"]'],
    ),
    "empty list": (
        HEAD + GRID.replace('["lr-sgd"]', "[]"),
        ["grid[0].classifier = []: an empty list makes an empty grid"],
    ),
    "twice": (
        HEAD + GRID.replace('["lr-sgd"]', '["xgb", "xgb"]'),
        ['grid[0].classifier = "xgb": is listed twice'],
    ),
    "number among names": (
        HEAD + GRID.replace('["lr-sgd"]', '["xgb", 3]'),
        ["grid[0].classifier[1] = 3: must be text in quotes"],
    ),
    "text among numbers": (
        HEAD + GRID + 'train_fraction = [1.0, "half"]\n',
        ['grid[0].train_fraction[1] = "half": must be a number'],
    ),
    "unknown dataset": (
        HEAD + GRID.replace("sklearn:digits", "breast_cancer"),
        ['grid[0].dataset = "breast_cancer"', 'did you mean "sklearn:breast_cancer"'],
    ),
    "unknown source": (
        HEAD + GRID.replace("sklearn:digits", "sklearn:digts"),
        ['grid[0].dataset = "sklearn:digts"', "sklearn:digits"],
    ),
    "unknown suite": (
        HEAD + GRID.replace("sklearn:digits", "suite:model-variance"),
        ['grid[0].dataset = "suite:model-variance"', "model-variance-37"],
    ),
    "an OpenML name of several versions": (
        HEAD + GRID.replace("sklearn:digits", "openml:vehicle"),
        ['grid[0].dataset = "openml:vehicle"', "openml:vehicle@1", "openml:vehicle@2"],
    ),
    "unknown classifier": (
        HEAD + GRID.replace("lr-sgd", "xgboost"),
        ['grid[0].classifier = "xgboost"', 'did you mean "xgb"'],
    ),
    "unknown table of a classifier": (
        HEAD + GRID + "[classifier.mpl]\nepochs = 2\n",
        ['classifier.mpl = "mpl": unknown classifier', 'did you mean "mlp"'],
    ),
    "a classifier of another kind": (
        HEAD + GRID + '[classifier.xgb]\nkind = "mlp"\n',
        ['classifier.xgb.kind = "mlp"', "another name"],
    ),
    "a table of no source": (
        HEAD + GRID + "[dataset.digits]\ntest = 0.5\n",
        ["dataset.digits.source: this key is missing", 'did you mean "sklearn:digits"'],
    ),
    "unknown option of a dataset": (
        HEAD + GRID + '[dataset.d]\nsource = "sklearn:digits"\nteste = 0.5\n',
        ["dataset.d.teste = 0.5: unknown key", 'did you mean "test"'],
    ),
    "a share of the wrong type": (
        HEAD + GRID + '[dataset.d]\nsource = "sklearn:digits"\ntest = [0.5]\n',
        ["dataset.d.test = [0.5]: must be a share"],
    ),
    "a test share out of range": (
        HEAD + GRID + '[dataset.d]\nsource = "sklearn:digits"\ntest = 1.5\n',
        ["dataset.d.test = 1.5", "below 1"],
    ),
    "unknown class": (
        HEAD
        + GRID
        + '[dataset.d]\nsource = "sklearn:digits"\nclasses = { a = ["0"], b = ["x"] }\n',
        ["dataset.d.classes", 'unknown class "x"'],
    ),
    "unknown option of a classifier": (
        HEAD + GRID.replace("lr-sgd", "mlp") + "[classifier.mlp]\nepoch = 2\n",
        ["classifier.mlp.epoch = 2: unknown key", 'did you mean "epochs"'],
    ),
    "unknown hparam": (
        HEAD + GRID + "[classifier.lr-sgd]\nhparams = { alpa = 1e-4 }\n",
        ["classifier.lr-sgd.hparams.alpa = 0.0001: unknown key", 'did you mean "alpha"'],
    ),
    "hparam out of range": (
        HEAD + GRID + "[classifier.lr-sgd]\nhparams = { eta0 = 1e-3, alpha = 3 }\n",
        ["classifier.lr-sgd.hparams.alpha = 3", "at most 0.1"],
    ),
    "unknown scheme": (
        HEAD + GRID + 'perturb_continuous = ["none", "relativ:0.1"]\n',
        ['grid[0].perturb_continuous = "relativ:0.1"', 'did you mean "relative"'],
    ),
    "a percentile as a whole number": (
        HEAD + GRID + 'perturb_continuous = ["percentile:10"]\n',
        ['grid[0].perturb_continuous = "percentile:10"', "below 1"],
    ),
    "a scheme of another axis": (
        HEAD + GRID + 'perturb_hparams = ["neighbour:0.5"]\n',
        ['grid[0].perturb_hparams = "neighbour:0.5"', "absolute"],
    ),
    "a fraction above 1": (
        HEAD + GRID + "train_fraction = [1.5]\n",
        ["grid[0].train_fraction = 1.5", "at most 1"],
    ),
    "more points than there are": (
        HEAD + GRID + "train_fraction = [2000]\n",
        ["grid[0].train_fraction = 2000", "from 2 to 1348"],
    ),
    "a snapshot after the last epoch": (
        HEAD + GRID.replace("lr-sgd", "mlp") + "[classifier.mlp]\nepochs = 3\nsnapshots = [2, 5]\n",
        ["classifier.mlp.snapshots = [2, 5]", "from 1 to 3, not 5"],
    ),
    "a file that is not there": (
        HEAD + GRID + '[dataset.d]\nsource = "file:no.csv"\ntarget = "y"\n',
        ['dataset.d.source = "file:no.csv"', "does not exist"],
    ),
    "a file without a target": (
        HEAD + GRID + '[dataset.d]\nsource = "file:table.csv"\n',
        ["dataset.d.target: must be the name of the column"],
    ),
    "an unknown target": (
        HEAD + GRID + '[dataset.d]\nsource = "file:table.csv"\ntarget = "clas"\n',
        ['dataset.d.target = "clas"', 'did you mean "class"'],
    ),
    "an unknown categorical column": (
        HEAD
        + GRID
        + '[dataset.d]\nsource = "file:table.csv"\ntarget = "class"\ncategorical = ["wid"]\n',
        ['dataset.d.categorical = ["wid"]', 'did you mean "width"'],
    ),
    "a target with missing values": (
        HEAD + GRID + '[dataset.d]\nsource = "file:table.csv"\ntarget = "colour"\n',
        ['dataset.d.target = "colour"', "1 of 8 values", "leave these rows out"],
    ),
    "a target with a single class": (
        HEAD + GRID + '[dataset.d]\nsource = "file:table.csv"\ntarget = "same"\n',
        ['dataset.d.target = "same"', "a single class, '1'"],
    ),
    "more classes than samples": (
        HEAD + GRID + '[dataset.d]\nsource = "file:table.csv"\ntarget = "width"\n',
        ['dataset.d.target = "width"', "8 classes in 8 samples"],
    ),
    "weights that are not there": (
        HEAD
        + GRID.replace("lr-sgd", "vit-transfer").replace("iris", "digits")
        + '[classifier.vit-transfer]\nweights = "no.pth"\n',
        ['classifier.vit-transfer.weights = "no.pth"', "download https://"],
    ),
    "unknown hparams": (
        HEAD + GRID + 'hparams = ["defaults"]\n',
        ['grid[0].hparams = "defaults"', 'did you mean "default"'],
    ),
    "unknown source of randomness": (
        HEAD + GRID + 'vary = ["init+data"]\n',
        ['grid[0].vary = "init+data"', "init, batch, train"],
    ),
    "an impossible pair": (
        HEAD + GRID.replace("sklearn:digits", "sklearn:wine").replace("lr-sgd", "cnn"),
        ["grid[0]: cnn × sklearn:wine: cnn needs images", 'exclude = [{ classifier = "cnn" }]'],
    ),
    "a rule that matches nothing": (
        HEAD + GRID + 'exclude = [{ classifier = "mlp" }]\n',
        ['grid[0].exclude[0].classifier = "mlp": matches nothing', '"lr-sgd"'],
    ),
    "a rule of an unknown axis": (
        HEAD + GRID + 'exclude = [{ model = "mlp" }]\n',
        ["grid[0].exclude[0].model: unknown key", "classifier"],
    ),
    "an empty rule": (
        HEAD + GRID + "exclude = [{}]\n",
        ["grid[0].exclude[0]", "at least one axis"],
    ),
    "rules that remove everything": (
        HEAD + GRID + 'exclude = [{ dataset = "*" }]\n',
        ["grid[0].exclude", "remove every combination"],
    ),
    "zip of unequal lists": (
        HEAD + GRID + 'train_fraction = [0.5, 1.0]\nzip = [["dataset", "train_fraction"]]\n',
        ['grid[0].zip = ["dataset", "train_fraction"]', "dataset has 1, train_fraction has 2"],
    ),
    "zip of an unknown axis": (
        HEAD + GRID + 'zip = [["dataset", "fraction"]]\n',
        ['grid[0].zip = "fraction": unknown axis', "train_fraction"],
    ),
    "zip without inner list": (
        HEAD + GRID + 'zip = ["dataset", "classifier"]\n',
        ['grid[0].zip[0] = "dataset": must be a list', "zip is a list of lists"],
    ),
    "a class that TOML takes for a truth value": (
        typed("flag", "positive = true\n"),
        ["dataset.d.positive = true: must be a name", 'in quotes, as in the data: "true"'],
    ),
    "classes that TOML takes for truth values": (
        typed("flag", "classes = { yes = [true], no = [false] }\n"),
        ["dataset.d.classes.yes[0] = true: must be a name", '"true"'],
    ),
    "a class that TOML takes for a number": (
        typed("flt", "positive = 1.0\n"),
        ["dataset.d.positive = 1.0: must be a name", 'in quotes, as in the data: "1.0"'],
    ),
    "a class that TOML takes for a date": (
        typed("day", "positive = 2020-01-01\n"),
        ["dataset.d.positive = ", "must be a name", 'in quotes, as in the data: "2020-01-01"'],
    ),
    "a class 0 where the file has 0.0": (
        typed("flt", "classes = { a = [0], b = [1] }\n"),
        ["dataset.d.classes", 'unknown class "0"', '"0.0"'],
    ),
    "a name with a dot without quotes": (
        typed("flag").replace("[dataset.d]", "[dataset.d.v1]").replace('["d"]', '["d.v1"]'),
        ['grid[0].dataset = "d.v1": unknown dataset', 'or a table [dataset."d.v1"]'],
    ),
    "runs as a float": (
        HEAD + "runs = 1e1\n" + GRID,
        ["runs = 10.0: must be a whole number from 1 to 60000"],
    ),
    "a date for a name": (
        HEAD.replace('"x"', "2020-01-01") + GRID,
        ["name = ", "must be text in quotes"],
    ),
    "a test set of one point": (
        typed("flag", "test = 1\n"),
        ["dataset.d.test = 1: must be a share above 0 and below 1, or a whole number of points"],
    ),
    "a test set of nan": (
        typed("flag", "test = nan\n"),
        ["dataset.d.test = nan: must be a share above 0 and below 1, or a whole number of points"],
    ),
    "a test set of inf": (
        typed("flag", "test = inf\n"),
        ["dataset.d.test = inf: must be a share above 0 and below 1, or a whole number of points"],
    ),
    "classifiers that only look the same": (
        HEAD
        + GRID.replace('["lr-sgd"]', '["cnn", "cnn\u200b"]')
        + '[classifier.cnn]\nkind = "mlp"\n[classifier."cnn\u200b"]\nkind = "lr-sgd"\n',
        ["classifier.", r'"cnn" and "cnn\u200b" only look the same', "give one another name"],
    ),
    "datasets that only look the same": (
        typed("flag") + '[dataset."d "]\nsource = "sklearn:wine"\n',
        ['dataset."d "', '"d" and "d " only look the same'],
    ),
    "a table that only looks like a classifier": (
        HEAD + GRID + '[classifier."lr\u2060-sgd"]\nkind = "mlp"\n',
        [r'"lr-sgd" and "lr\u2060-sgd" only look the same'],
    ),
    "letters composed or not": (
        HEAD
        + GRID.replace('["lr-sgd"]', '["caf\u00e9", "cafe\u0301"]')
        + '[classifier."caf\u00e9"]\nkind = "mlp"\n[classifier."cafe\u0301"]\nkind = "mlp"\n',
        ["classifier.", "only look the same"],
    ),
    "two extents of one cell": (
        HEAD + GRID + "runs = 20\nrepeats = 1\n" + GRID + "runs = 10\nrepeats = 2\n",
        ["grid: two grids ask for the same cell", "at least as many of both"],
    ),
    "more combinations than a plan holds": (
        HEAD
        + GRID
        + f"train_fraction = {[round(i / 3000, 6) for i in range(1, 3000)]}\n"
        + f"perturb_continuous = {[f'relative:{i / 3000:.6f}' for i in range(1, 3000)]}\n",
        ["2999 train_fraction × 2999 perturb_continuous make 8,994,001 combinations", "5,000,000"],
    ),
    "more runs than a sweep holds": (
        HEAD + "repeats = 10_000\nruns = 60_000\n" + GRID,
        ["600,000,000 runs in 1 cells", "100,000,000"],
    ),
}


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() if p.is_file() else b"" for p in sorted(folder.rglob("*"))}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_one_message_and_nothing_is_written(
    mistake, tmp_path, monkeypatch, capsys
):
    text, expected = MISTAKES[mistake]
    file = tmp_path / "sweep.toml"
    file.write_text(text)
    (tmp_path / "table.csv").write_text(TABLE)
    (tmp_path / "typed.csv").write_text(TYPED)
    monkeypatch.chdir(tmp_path)
    before = tree(tmp_path)
    monkeypatch.setattr(
        sys, "argv", ["manyseed", "plan", str(file), "--out", str(tmp_path / "out")]
    )
    with pytest.raises(SystemExit) as exit_:
        main()
    message = capsys.readouterr().err
    assert exit_.value.code == 2, message
    assert message.startswith(f"error: {file}: "), message
    for part in expected:
        assert part in message, message
    assert "Traceback" not in message
    assert tree(tmp_path) == before


@pytest.mark.parametrize("arguments", [("plan",), ("plan", "-n"), ("run",)])
def test_the_real_command_ends_with_2(arguments, tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text(GOOD.replace("lr-sgd", "lr-sdg"))
    before = tree(tmp_path)
    done = command(*arguments, file, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert 'grid[0].classifier = "lr-sdg": unknown classifier' in done.stderr
    assert 'did you mean "lr-sgd"' in done.stderr
    assert tree(tmp_path) == before


def test_a_missing_file_and_a_folder_in_its_place(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        read_sweep_file(tmp_path / "sweep.toml")
    with pytest.raises(UserError, match="manyseed resume"):
        read_sweep_file(tmp_path)


def test_text_that_is_not_utf8(tmp_path):
    (tmp_path / "s.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(UserError, match="not UTF-8"):
        read_sweep_file(tmp_path / "s.toml")


@pytest.mark.parametrize("end", ["\r", "\0"])
def test_ends_of_lines_that_toml_does_not_have(end, tmp_path):
    file = tmp_path / "s.toml"
    file.write_bytes(GOOD.replace("\n", end).encode() if end == "\r" else f"{GOOD}{end}".encode())
    done = command("plan", file, "--dry-run", cwd=tmp_path)
    assert done.returncode == 2
    assert f"{file}: not valid TOML: " in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["s.toml"]


@pytest.mark.parametrize(
    ("before", "end"), [("\ufeff", "\n"), ("", "\r\n"), ("\ufeff", "\r\n")], ids=str
)
def test_marks_and_ends_of_lines_as_windows_writes_them(before, end, tmp_path):
    """The same sweep; and the file that it keeps plans again without a change."""
    file = tmp_path / "s.toml"
    file.write_bytes((before + HEAD + GRID).replace("\n", end).encode())
    assert read_sweep_file(file) == parse_sweep_file(HEAD + GRID, file)
    assert command("plan", file, "--out", tmp_path / "out").returncode == 0
    kept = tmp_path / "out" / "sweep.toml"
    assert kept.read_bytes() == file.read_bytes()
    change = plan_change(kept, tmp_path / "out")
    assert (change.is_empty, len(change.added)) == (True, 0)


def test_whole_numbers_of_every_form_are_taken(tmp_path):
    sweep = parse_sweep_file('name = "x"\nseed = 4294967296\nruns = 1_0\n' + GRID, tmp_path)
    assert (sweep.seed, sweep.runs) == (2**32, 10)
    assert parse_sweep_file(typed("num", "positive = 2\n"), tmp_path).dataset["d"].positive == 2


def test_the_largest_seed_trains(tmp_path):
    file = tmp_path / "s.toml"
    good = HEAD.replace("seed = 1", f"seed = {2**63 - 1}") + "repeats = 1\nruns = 2\n"
    file.write_text(good + GRID.replace("digits", "iris"))
    done = command("run", file, "--out", tmp_path / "out", "--cluster", "local")
    assert done.returncode == 0, done.output
    assert Sweep(tmp_path / "out").status()["runs"]["done"] == 2


def test_a_sweep_that_has_names_that_only_look_the_same_is_read(tmp_path):
    text = MISTAKES["classifiers that only look the same"][0]
    assert {*parse_sweep_file(text, tmp_path).classifier} == {"cnn", "cnn\u200b"}
    single = HEAD + GRID.replace("lr-sgd", "cnn\u200b") + '[classifier."cnn\u200b"]\nkind = "mlp"\n'
    (tmp_path / "s.toml").write_text(single)
    assert len(plan_change(tmp_path / "s.toml", tmp_path / "out").added) == 100


def test_a_good_file_plans(tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text(GOOD)
    change = plan_change(file, tmp_path / "out")
    assert change.expansion.asked == 2 * 2 * 2 * 2 * 2 * 3 == len(change.added)


def test_every_key_of_the_example_in_the_design_is_read(tmp_path):
    sweep = parse_sweep_file(GOOD + '[keep]\nscores = "margin"\n', tmp_path)
    assert sweep.keep.scores == "margin"
    assert sweep.grid[0].vary == ["init+batch"]
    assert sweep.dataset["cancer"].options() == {"test": 0.25}
    assert sweep.classifier["mlp"].options() == {"epochs": 2}


@pytest.mark.parametrize(
    ("whole", "own", "n_classes", "expected"),
    [
        (Keep(), Keep(), 2, ("margin", "float32")),
        (Keep(), Keep(), 10, ("all", "float32")),
        (Keep(), Keep(), 11, ("margin", "float32")),
        (Keep(scores="none"), Keep(), 10, ("none", "float32")),
        (Keep(scores="none", dtype="float16"), Keep(scores="all"), 11, ("all", "float16")),
    ],
)
def test_a_datasets_own_keep_goes_first(whole, own, n_classes, expected):
    assert own.over(whole).resolve(n_classes) == expected
    assert own.over(Keep(curves=True)).curves
    assert Keep(curves=False).over(Keep(curves=True)).curves is False


def test_runs_are_to_be_left_out_only_where_others_stay(tmp_path):
    """A value that no dataset or classifier takes is wrong itself."""
    both = GRID.replace('"sklearn:digits"', '"sklearn:digits", "sklearn:wine"')
    for values, rule in (
        ("train_fraction = [1000]", 'exclude = [{ dataset = "sklearn:wine", train_fraction = 1000'),
        ("train_fraction = [2000]", None),
        ('vary = ["init+bath"]', None),
        ('perturb_continuous = ["relativ:0.1"]', None),
    ):
        with pytest.raises(UserError) as refused:
            expand(parse_sweep_file(HEAD + both + values, tmp_path), tmp_path)
        remedy = str(refused.value).rpartition("exclude = ")[1:]
        assert "".join(remedy).startswith(rule) if rule else "exclude" not in str(refused.value)
