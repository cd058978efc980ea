"""Wrong calls from Python: one error that names the argument, the mistake and Python's remedy."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import manyseed
from manyseed import Sweep, UserError
from manyseed.orchestrator import sweepstore
from manyseed.orchestrator.cli import main
from manyseed.orchestrator.errors import nearest
from manyseed.orchestrator.spoken import in_mapping, in_python
from manyseed.orchestrator.submissions import profiles
from tests.here import once

GRID = {"dataset": ["sklearn:wine"], "classifier": ["lr-sgd"]}
OF_MODEL = {"dataset": ["sklearn:wine"], "classifier": ["m"]}
MODEL = {"estimator": "sklearn.linear_model:LogisticRegression"}
SWEEP = {"name": "wine", "seed": 1, "repeats": 1, "runs": 2, "grid": [GRID]}
Y = np.arange(40) % 2
SCORES = np.random.default_rng(0).normal(size=(3, 40, 2))
ARRAYS = {"scores": SCORES, "y_true": Y}
SHARES = np.exp(SCORES) / np.exp(SCORES).sum(-1, keepdims=True)


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refusal(call: Callable[[], object]) -> str:
    """Return the message of a call that is refused, and see that it changed nothing."""
    before = sorted(Path.cwd().rglob("*"))
    with pytest.raises(UserError) as raised:
        call()
    assert sorted(Path.cwd().rglob("*")) == before
    text = str(raised.value)
    shell = re.compile(r"(manyseed|sbatch) [^;\n]*")
    assert "--" not in shell.sub("", text), text
    assert not re.search(r"/tmp\w*/tmp|\.manyseed-", text), text
    assert "--" not in shell.sub("", str(raised.value.facts))
    return text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"repats": 3}, "the mapping: repats: unknown key"),
        ({"grid": [GRID, {**GRID, "clasifier": []}]}, r"the mapping: grid\[1\].clasifier: unknown"),
        ({"grid": "x"}, "the mapping: grid: must be a list of mappings"),
        ({"grid": 3}, "the mapping: grid: must be a list of mappings"),
        ({"grid": ["x"]}, "the mapping: grid: must be a list of mappings"),
        ({"classifier": [3]}, "the mapping: classifier = "),
        ({"runs": None}, "the mapping: runs: is of type NoneType"),
        (
            {"classifier": {"m": {**MODEL, "params": {"max_itr": 3}}}, "grid": [OF_MODEL]},
            "the mapping: .*LogisticRegression has no parameter max_itr; did you mean max_iter",
        ),
        (
            {"classifier": {"m": {**MODEL, "params": {"depth": 3}}}, "grid": [OF_MODEL]},
            "the mapping: .*LogisticRegression has no parameter depth; it has penalty, ",
        ),
        (
            {"classifier": {"m": {"estimator": LogisticRegression}}},
            "the mapping: classifier.m.estimator: LogisticRegression is a class",
        ),
    ],
)
def test_a_wrong_mapping_is_answered_with_its_key(change: dict[str, Any], message: str) -> None:
    assert re.match(message, refusal(lambda: Sweep.plan({**SWEEP, **change}, "none")))


def test_classifiers_of_manyseed_take_data_in_memory() -> None:
    one = Sweep.of("lr-sgd", SCORES[0], Y, runs=2, train=False)
    assert one.directory.name == "sweep-lr-sgd"
    of = {"runs": 2, "directory": "of", "train": False}
    two = Sweep.of(["lr-sgd", "xgb"], SCORES[0], Y, **of)
    assert [f"data × {name}: 0 of 2" in repr(two) for name in ("lr-sgd", "xgb")] == [True, True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"perturb_continous": ["none"]}, 'perturb_continous: .*\n  did you mean "perturb_contin'),
        ({"perturb_continuous": ["foo"]}, 'perturb_continuous = "foo": unknown scheme'),
        ({"run": 3}, 'run: Sweep.of\\(\\) has no such argument\n  did you mean "runs"'),
        ({"runs": "x"}, 'runs: must be a whole number, not "x"'),
        ({"runs": 0}, "runs = 0: must be a whole number from 1"),
        ({"test": 2.5}, "test = 2.5: must be a share"),
        ({"test": "x"}, 'test: must be a number, not "x"'),
        ({"options": {"parms": {}}}, r"options.parms = .*: unknown key"),
        ({"options": 3}, "options: must be a mapping, not 3"),
        ({"y": Y * 0}, "y: has a single class"),
        ({"groups": np.zeros(40)}, "groups: has the same value in all rows"),
        ({"X": SCORES[0, :0], "y": Y[:0]}, "X: is empty"),
        ({"estimator": LogisticRegression}, "estimator: LogisticRegression is a class"),
        ({"estimator": "lr-sgdd"}, 'estimator = "lr-sgdd": is no classifier of .*\n.*"lr-sgd"'),
        ({"estimator": []}, "estimator.*names no classifier"),
        ({"estimator": ["xgb", 3]}, "estimator: holds what is no classifier"),
        (
            {"estimator": ["xgb", "mlp"], "options": {"epochs": 3}},
            "options: belong to one classifier",
        ),
        ({"estimator": "no.mod:X"}, 'estimator = "no.mod:X": there is no module no, neither '),
        ({"directory": "taken"}, "taken: exists .*\n  name another with directory=DIR"),
    ],
)
def test_wrong_arguments_of_an_estimators_sweep(options: dict[str, Any], message: str) -> None:
    Path("taken").touch()
    good = {"estimator": LogisticRegression(), "X": SCORES[0], "y": Y, "train": False}
    assert re.match(message, refusal(lambda: Sweep.of(**{"directory": "of", **good, **options})))


@pytest.mark.parametrize(
    ("predictions", "options", "message"),
    [
        ({"scores": SCORES}, {}, "predictions: y_true is missing\n  give .* as y_true$"),
        ({**ARRAYS, "foo": Y}, {}, "predictions: foo: unknown entry"),
        ({"a": ARRAYS, "b": {**ARRAYS, "foo": Y}}, {}, r'predictions\["b"\]: foo: unknown entry'),
        ({"a": ARRAYS, "b": 3}, {}, "predictions: has arrays beside mappings"),
        (
            {"a": ARRAYS, "b": {**ARRAYS, "y_true": 1 - Y}},
            {},
            r'predictions\["b"\]: y_true: has the classes of predictions\["a"\], in another order',
        ),
        ({**ARRAYS, "scores": SHARES}, {}, "predictions: scores: look .*\n  probabilities=True$"),
        ({**ARRAYS, "scores": SCORES[0, 0]}, {}, "predictions: scores: has shape"),
        ({**ARRAYS, "scores": [[1.0], [1.0, 2.0]]}, {}, "predictions: scores: is not an array"),
        (
            {"labels": [["a", None]] * 3, "y_true": ["a", "b"]},
            {},
            r"predictions: labels: 3 of 6 values are missing\n  leave these out",
        ),
        (
            {"labels": [["a", "b"]] * 3, "y_true": ["a", np.nan]},
            {},
            "predictions: y_true: 1 of 2 values are missing",
        ),
        ({**ARRAYS, "y_true": [{}] * 40}, {}, "predictions: y_true: is not an array"),
        (ARRAYS, {"probability": "soft"}, 'probability = "soft": unknown'),
        (ARRAYS, {"datset": "x"}, 'datset: Sweep.from_predictions.* no .*\n.* mean "dataset"'),
        (ARRAYS, {"truth": "x"}, r"truth: Sweep.from_predictions\(\) has no such argument"),
        (ARRAYS, {"dataset": 3}, "dataset: must be text, not 3"),
        ({"a": ARRAYS}, {"classifier": "b"}, 'classifier = "b": the predictions name'),
        (None, {}, "predictions: must be a mapping, not NoneType"),
        (SCORES, {}, "predictions: must be a mapping, not ndarray"),
    ],
)
def test_wrong_predictions_in_memory(
    predictions: Any, options: dict[str, Any], message: str
) -> None:
    assert re.match(
        message, refusal(lambda: Sweep.from_predictions(predictions, "into", **options))
    )


@pytest.mark.parametrize("kind", ["object", "string", "category"])
def test_labels_are_text_of_any_kind(kind: str) -> None:
    pandas = pytest.importorskip("pandas")
    names = ["no", "yes"] * 20
    for number, (true, labels) in enumerate(
        (
            (pandas.Series(names, dtype=kind), pandas.DataFrame([names] * 3, dtype=kind)),
            (np.array(names, dtype=object), np.array([names] * 3, dtype=object)),
        )
    ):
        given = {"labels": labels, "y_true": true}
        sweep = Sweep.from_predictions(given, f"of-{number}")
        sweep.add_predictions({**given, "run": np.arange(3, 6)})
        assert sweep.survey().counts["done"] == 6
        classes = pandas.Series(["no", "yes"], dtype=kind)
        Sweep.from_predictions({**ARRAYS, "class_names": classes}, f"named-{number}")


def test_wrong_additions_to_predictions() -> None:
    sweep = Sweep.from_predictions(ARRAYS, "into")
    for predictions, options, message in (
        ({**ARRAYS, "foo": Y}, {}, "predictions: foo: unknown entry"),
        (
            {**ARRAYS, "y_true": 1 - Y},
            {},
            "predictions: y_true: .*\n.* with Sweep.from_predictions",
        ),
        (ARRAYS, {"dataset": "foo"}, 'into: dataset = "foo": .*\n.* with Sweep.from_predictions'),
        (ARRAYS, {"directory": "x"}, r"directory: Sweep.add_predictions\(\) has no such argument"),
    ):
        text = refusal(lambda p=predictions, o=options: sweep.add_predictions(p, **o))  # type: ignore[misc]
        assert re.match(message, text)


def test_wrong_files_of_predictions() -> None:
    np.savez("one.npz", **ARRAYS)
    for files, options, message in (
        ("one.npz", {}, r'files: must be a list, not "one.npz"\n  write \["one.npz"\]'),
        ([3], {}, r"files\[0\]: must be a path, not int"),
        ([], {}, r"there is no file to import\n  name one, or classifiers={NAME: \[FILE\]}"),
        (["one.npz"], {"truth": "none.npy"}, "none.npy: cannot be read"),
        ([], {"classifiers": {"a": "one.npz"}}, r'classifiers\["a"\]: must be a list of files'),
        (["one.npz"], {"adding": True}, r"adding: Sweep.import_predictions\(\) has no such"),
    ):
        text = refusal(
            lambda f=files, o=options: Sweep.import_predictions(f, "into", **o)  # type: ignore[misc]
        )
        assert re.match(message, text)
    sweep = Sweep.import_predictions([], "into", classifiers={"a": ["one.npz"]})
    assert sweep.survey().counts["done"] == 3


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    folder = once(
        tmp_path_factory,
        "calls",
        lambda folder: Sweep.from_predictions(ARRAYS, folder / "sweep").analyze(),
    )
    return Sweep(folder / "sweep")


METHODS = {
    name: "Sweep.plot" if name == "plot" else f"Sweep.{name}"
    for name, one in inspect.getmembers(Sweep)
    if name[0] != "_" and (callable(one) or name == "plot")
}


def test_a_question_is_named_as_it_is_asked(analysed: Sweep) -> None:
    text = refusal(lambda: analysed.answers("points", fliter=1))
    assert text.startswith('fliter: Sweep.answers("points") has no such argument\n'), text
    assert "results" not in text


@pytest.mark.parametrize("name", METHODS)
def test_an_unknown_keyword_is_answered_with_the_public_function(
    name: str, analysed: Sweep
) -> None:
    text = refusal(lambda: getattr(analysed, name)(fliter=1))
    assert text.startswith(f"fliter: {METHODS[name]}() has no such argument\n"), text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.query(filter="x"), r"filter: Sweep.query\(\) has .*\n.*where, columns, by"),
        (lambda s: s.query(colums=["x"]), 'colums: .*\n  did you mean "columns"'),
        (lambda s: s.query(table=3), "table: must be text, not 3"),
        (lambda s: s.query(where=3), "where: must be text, not 3"),
        (lambda s: s.query(columns="acuracy"), r'columns = "acuracy": unknown column\n  did you'),
        (lambda s: s.query(columns=3), "columns: must be text or a list, not 3"),
        (lambda s: s.methods(metric="ece"), r'metric: must be a list.*\n  write \["ece"\]'),
        (lambda s: s.query(columns=[3]), r"columns\[0\]: must be text, not int"),
        (lambda s: s.query(by=["clf"]), 'by = "clf": unknown column'),
        (lambda s: s.query(others=3), "others: must be a list, not 3"),
        (lambda s: s.query(others=[3]), "others: must be a Sweep or its directory, not int"),
        (lambda s: s.query("margins", by=["cell"]), r"by = .*\n  ask for rows with where=, or"),
        (lambda s: s.howmany(accuracy=2), "accuracy = 2: .*\n  such as accuracy=0.005: "),
        (lambda s: s.howmany(sizes=[0]), r"sizes = \[0\]: .*sizes=\[1, 2, 5\]"),
        (lambda s: s.howmany_until(2), "half_width = 2: "),
        (lambda s: s.howmany_until(0.1, train=print), r"train: Sweep.howmany_until\(\) has no"),
        (lambda s: s.compare(other=3), "other: must be a Sweep or its directory, not int"),
        (lambda s: s.compare(a="cell = 1"), 'a = "cell = 1": .*\n  give b=, too'),
        (lambda s: manyseed.compare(s, fliter=1), r"fliter: Sweep.compare\(\) has no such"),
        (lambda s: s.analyze({"n": 1}), "options: must be .*Options, not dict"),
        (lambda s: s.analyze(workers=-1), "workers = -1: must be at least 1"),
        (lambda s: s.analyze(dask="foo"), 'dask = "foo": not a way to compute'),
        (lambda s: s.plot("accuracy", fliter=1), r"fliter: Sweep.plot\(\) has no such argument"),
        (lambda s: s.plot.accuracy(fliter=1), r"fliter: Sweep.plot\(\) has no such argument"),
        (lambda s: s.plot.all("cells", fliter=1), r"fliter: Sweep.plot.all\(\) has no such"),
        (lambda s: s.plot("accurcy"), 'kind = "accurcy": unknown kind'),
        (lambda s: s.plot("accuracy", width=[1]), "width: must be text or a number, not list"),
        (lambda s: s.show("x"), 'address = "x": not of the form'),
        (lambda s: s.export(3), "output: must be a path, not 3"),
        (lambda s: s.compare(metric="acc"), '.* metric = "acc": .*\n  did you mean "accuracy"\\?'),
        (lambda s: s.plot("acc"), 'kind = "acc": .*\n  did you mean "accuracy'),
        (lambda s: s.results[3], "table = 3: unknown table"),
        (lambda s: Sweep(3), "directory: must be a path, not 3"),
        (lambda s: Sweep.plan([3]), "sweep_file: must be a path or a mapping, not list"),
        (lambda s: s.plot(), r"Sweep.plot\(\) needs kind\n  call it as Sweep.plot\(kind\)"),
        (lambda s: s.plot.all(), r"Sweep.plot.all\(\) needs kind\n"),
        (
            lambda s: s.runs("digits"),
            r"dataset, classifier: there are no such runs\n  name one: runs\(",
        ),
        (lambda s: Sweep(), r"Sweep\(\) needs directory\n  call it as Sweep\(directory\)"),
        (lambda s: Sweep.of(), r"Sweep.of\(\) needs estimator, X and y\n"),
        (
            lambda s: s.plot("accuracy", "fig.png"),
            r"Sweep.plot\(\) takes 1 argument without a name, not 2\n  .*: by, where, width",
        ),
        (
            lambda s: s.plot.accuracy("fig.png"),
            r"Sweep.plot.accuracy\(\) takes no argument without",
        ),
        (lambda s: s.status(3), r"Sweep.status\(\) takes no argument without a name, not 1$"),
        (lambda s: Sweep("a", "b"), r"Sweep\(\) takes 1 argument without a name, not 2$"),
        (lambda s: s.show("x", address="x"), r"address: Sweep.show\(\) is given it twice"),
        (lambda s: manyseed.classifier(3), "name: must be text, not 3"),
    ],
)
def test_wrong_calls(call: Callable[[Sweep], object], message: str, analysed: Sweep) -> None:
    assert re.match(message, refusal(lambda: call(analysed)), re.DOTALL)


def test_names_may_be_one_text_and_the_only_cell_needs_no_name(analysed: Sweep) -> None:
    asked = {"by": "classifier", "columns": "accuracy_mean", "agg": "max"}
    listed = analysed.query(**{key: [name] for key, name in asked.items()})
    assert analysed.query(**asked).equals(listed)
    assert analysed.query(by=True).equals(analysed.query(by=("dataset", "classifier")))
    dataset, classifier = analysed.query(columns=["dataset", "classifier"]).row(0)
    named = analysed.runs(dataset, classifier).sizes
    for runs in (analysed.runs(), analysed.runs(classifier=classifier), analysed.runs(dataset)):
        assert runs.sizes == named


def test_several_cells_are_named_as_calls(tmp_path: Path) -> None:
    grid = {"dataset": ["sklearn:wine"], "classifier": ["lr-sgd", "xgb"]}
    sweep = Sweep.plan({**SWEEP, "grid": [grid]}, tmp_path / "two")
    told = 'runs("sklearn:wine", "lr-sgd"), runs("sklearn:wine", "xgb")'
    there = "dataset, classifier: there are several: which?"
    assert refusal(sweep.runs) == f"{there}\n  name one: {told}"


def test_who_has_no_profile_on_a_machine_that_submits_is_told_how_to_train_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr(profiles, "own_names", list)
    monkeypatch.setattr(profiles, "available", lambda: True)
    sweep = Sweep.plan(SWEEP, tmp_path / "sweep")
    told = refusal(sweep.submit)
    assert told.startswith("cluster: this machine submits jobs")
    assert '\n  to train on this machine all the same: cluster="local"' in told
    model = LogisticRegression()
    of = tmp_path / "of"
    assert refusal(lambda: Sweep.of(model, SCORES[0], Y, runs=2, directory=of)) == told
    assert not of.exists()


@pytest.mark.parametrize("name", ["name", "id", "filename", "path", "image_name", "file"])
def test_what_points_are_called_elsewhere_is_the_column_that_names_them(name: str) -> None:
    for columns, near in (
        (["dataset", "augment", "index", "file", "row"], "file"),
        (["dataset", "augment", "index", "row_id"], "row_id"),
        (["dataset", "augment", "index"], "index"),
    ):
        assert name in columns or nearest(name, columns).startswith(f'did you mean "{near}"? ')
    assert "index" not in nearest("name", ["dataset", "augment"])


def test_the_command_names_its_options(
    analysed: Sweep, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words, message in (
        (["query", "--by", "clf"], '--by = "clf": unknown column'),
        (["howmany", "--accuracy", "2"], "such as --accuracy 0.005"),
    ):
        verb, *options = words
        monkeypatch.setattr("sys.argv", ["manyseed", verb, str(analysed.directory), *options])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("give --b, too", "give b=, too"),
        ("--by classifier,metric", 'by=["classifier", "metric"]'),
        ("such as: --sizes 1,2,5", "such as: sizes=[1, 2, 5]"),
        ("such as --accuracy 0.005: the mean", "such as accuracy=0.005: the mean"),
        ("plan again with --out onto another disk", "plan again with directory= onto another disk"),
        ("name another with --out DIR", "name another with directory=DIR"),
        ("mix them with --other-recipe: results", "mix them with other_recipe=True: results"),
        (
            "make it with: manyseed plan A.toml --out B",
            "make it with: manyseed plan A.toml --out B",
        ),
        (
            "manyseed a b --c 1; or here: --cluster local",
            'manyseed a b --c 1; or here: cluster="local"',
        ),
        ("-t runs or -t ranking", 'table="runs" or table="ranking"'),
        ("them: -t runs --by run_index", 'them: table="runs" by=["run_index"]'),
        ("on it: --cluster test-1.a", 'on it: cluster="test-1.a"'),
        ("with --cluster NAME", "with cluster=NAME"),
        ("a – b -- c", "a – b -- c"),
        ("16 runs; `manyseed analyze s` for", '16 runs; `Sweep("s").analyze()` for'),
        ("again: manyseed analyze 'a b/c.d'; or", 'again: Sweep("a b/c.d").analyze(); or'),
        ("run manyseed analyze DIR.", "run Sweep(DIR).analyze()."),
        ("first: manyseed verify s --repair", "first: manyseed verify s --repair"),
        ("first: manyseed verify --repair s, then", 'first: Sweep("s").verify(repair=True), then'),
        ("cp -r s t && manyseed analyze t", "cp -r s t && manyseed analyze t"),
        ("manyseed analyze t && manyseed answers t", "manyseed analyze t && manyseed answers t"),
        ("manyseed analyze s --holdout 0.5", "manyseed analyze s --holdout 0.5"),
    ],
)
def test_the_commands_words_in_python(text: str, python: str) -> None:
    assert in_python(text) == python


@pytest.mark.parametrize(
    ("text", "python"),
    [
        (
            "code failed\n  add to [classifier.fl]: probe = false\n  or mend it",
            """code failed\n  add to ["classifier"]["fl"]: 'probe': False\n  or mend it""",
        ),
        (
            'add to [classifier."a.b"]: encode = "frame"',
            """add to ["classifier"]["a.b"]: 'encode': 'frame'""",
        ),
        (
            "add to [classifier.mlp]: hparams = { lr = 0.1 }",
            """add to ["classifier"]["mlp"]: 'hparams': {'lr': 0.1}""",
        ),
        ("add to [classifier.mlp]: grid = { lr = [1, …] }",) * 2,
    ],
)
def test_what_to_add_to_a_sweep_file_is_added_to_a_mapping(text: str, python: str) -> None:
    assert in_mapping(text) == python


def test_a_mapping_is_mended_in_its_own_words() -> None:
    grid = [{"dataset": ["sklearn:wine"], "classifier": ["mlp"], "epochs": [5]}]
    with pytest.raises(UserError) as raised:
        Sweep.plan({"name": "s", "seed": 1, "repeats": 1, "runs": 1, "grid": grid})
    assert """add to ["classifier"]["mlp"]: 'epochs': [5]""" in str(raised.value)


def warned(call: Callable[[], object]) -> list[str]:
    """Return the warnings of a call, all of which name this file."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        call()
    ours = [one for one in told if one.category is UserWarning]
    assert {one.filename for one in ours} <= {__file__}
    return [str(one.message) for one in ours]


def test_seeds_without_effect_are_warned_of_once() -> None:
    def call() -> Sweep:
        return Sweep.of(LogisticRegression(), SCORES[0], Y, runs=2, directory="of", train=False)

    (text,) = warned(call)
    assert text.startswith("LogisticRegression: fits with other seeds were equal on ")
    assert warned(call) == []  # nothing is new


def test_remarks_on_a_plan_are_warnings() -> None:
    grid = {**GRID, "perturb_categorical": ["sample:0.5"], "classifier": ["lr-sgd", "svm-sgd"]}
    grid["exclude"] = [{"classifier": "svm-sgd"}]  # type: ignore[assignment]
    sweep = {**SWEEP, "grid": [grid]}
    first, second = warned(lambda: Sweep.plan(sweep, "one"))
    assert first.startswith("grid[0].exclude[0] = ")
    assert "is the same as none on sklearn:wine: no categorical features" in second
    assert warned(lambda: Sweep.plan(sweep, "one")) == []


def test_remarks_that_only_tell_how_it_is_are_no_warnings() -> None:
    tree = DecisionTreeClassifier(splitter="random", max_depth=2)
    rows = np.random.default_rng(1).normal(size=(200, 5))
    assert (
        warned(lambda: Sweep.of(tree, rows, np.arange(200) % 2, directory="of", train=False)) == []
    )


def test_words_are_classes_of_arrays_in_memory() -> None:
    y = np.arange(20) % 2
    a, b = np.tile(y, (3, 1)), np.tile(y, (2, 1))
    a[:, :3], b[:, 1:4] = 1, 0
    words = np.array(["no", "yes"])
    found = manyseed.error_consistency(words[a], words[b], words[y])
    assert found == manyseed.error_consistency(a, b, y)
    assert str(found) == found.words
    with pytest.raises(manyseed.UserError, match=r"of one run alone, give a\[None\]"):
        manyseed.alpha_hat(np.ones((600, 3)), np.ones((600, 3)), np.zeros(600, dtype=int))


def test_predictions_are_not_taken_for_the_truth() -> None:
    given = {"rf": {"y_pred": np.zeros((2, 4), dtype=int), "y_true": [0, 1, 0, 1]}}
    assert 'did you mean "labels"' in refusal(lambda: Sweep.from_predictions(given, "of"))


def test_a_wrong_name_of_runs_is_told_beside_the_nearest() -> None:
    pairs: Any = dict.fromkeys(
        [("data", "mlp"), ("data", "xgb")], SimpleNamespace(dataset="data", classifier="")
    )
    with pytest.raises(UserError, match='no such runs\n  did you mean "mlp"\\? Name one: runs'):
        sweepstore._the_one(pairs, "data", "mpl")
