"""Users' own code in sweeps: what is trained, with which code, and what is said where it fails."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from manyseed import Sweep
from manyseed.jobs.run import seed31
from manyseed.jobs.trainer import Trainer, generators
from manyseed.orchestrator.errors import UnavailableError, UserError
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import plan_change
from manyseed.orchestrator.progress.logs import failures
from manyseed.orchestrator.provenance import read_recipes
from manyseed.orchestrator.runs import find_run
from manyseed.orchestrator.submissions import submitting
from manyseed.orchestrator.submissions.submission import TaskState
from manyseed.slurm.local import LocalJob
from tests.encoded import dense
from tests.orchestrator.conftest import assert_equal, inside, stored, train, wait_until, write
from tests.orchestrator.test_kill import freeze_in_flight, journaled

MODEL = """
from sklearn.linear_model import LogisticRegression
import helper

class Noisy(LogisticRegression):
    def fit(self, X, y):
        import numpy as np
        draws = np.random.default_rng(self.random_state)
        super().fit(X + helper.SIZE * draws.normal(size=X.shape), y)
        if helper.FAILS and len(y) > 64 and draws.random() < 0.5:
            raise ValueError("planted")
        return self
"""
HELPER = "SIZE = 2.0\nFAILS = False\n"

SWEEP = """
name    = "own"
seed    = 3
repeats = 1
runs    = 20
[[grid]]
dataset            = ["sklearn:wine"]
classifier         = ["noisy", "tree"]
perturb_continuous = ["none", "relative:0.5"]
[classifier.noisy]
estimator = "mymodel:Noisy"
params    = { max_iter = 30 }
[classifier.tree]
estimator = "sklearn.tree:DecisionTreeClassifier"
params    = { max_features = 2 }
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a sweep file, and the modules that it names."""
    (tmp_path / "mymodel.py").write_text(MODEL)
    (tmp_path / "helper.py").write_text(HELPER)
    return write(tmp_path / "own.toml", SWEEP)


def resumed(
    project: Path, folder: Path, stopped: list[Sweep], killed: Callable[[], object] = lambda: None
) -> Sweep:
    """Train 80 runs whose processes are killed once; they are those of an undisturbed training.

    Parameters
    ----------
    project : Path
        The sweep file.
    folder : Path
        For the sweep, and for that which it is compared with.
    stopped : list
        Ends what still runs when a test fails.
    killed : callable
        Waits until nothing is left of what was killed.
    """
    sweep = Sweep.plan(project, folder / "sweep")
    stopped.append(sweep)
    sweep.submit(workers=2)
    wait_until(lambda: len(journaled(sweep)) >= 3, "three runs")
    for pid in freeze_in_flight(sweep):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not sweep.is_running, "the end of everything that was killed")
    killed()
    sweep.submit(workers=2)
    sweep.wait()
    sweep.compact()
    status = sweep.status()["runs"]
    assert (status["done"], status["missing"], status["failed"]) == (80, 0, 0)
    assert sweep.verify()["runs_wrong"] == 0
    assert_equal(stored(sweep), stored(train(project, folder / "undisturbed")))
    return sweep


@pytest.mark.slow
@pytest.mark.process
def test_twenty_seeds_killed_and_resumed_are_those_of_the_estimator_itself(
    project: Path, tmp_path: Path, stopped: list[Sweep]
) -> None:
    sweep = resumed(project, tmp_path, stopped)
    labels = sweep.runs("sklearn:wine", "noisy")["label"].isel(epoch=-1).values
    rows = Plan.read(sweep.paths)
    trainer = Trainer()
    for cell in rows.cells.filter(classifier="noisy")["cell"]:
        for number in (0, 7):
            found = find_run(sweep.paths, f"{cell}:0:{number}")
            data = trainer.training_set(found.run)
            seed = seed31(generators(found.run).batch)
            noise = np.random.default_rng(seed).normal(size=data.X.shape)
            model = LogisticRegression(max_iter=30, random_state=seed)
            expected = model.fit(data.X + 2 * noise, data.y).predict(data.X_test)
            np.testing.assert_array_equal(labels[found.row], expected)
    assert sweep.rerun("0:0:3")["equal"] or sweep.rerun("0:0:3")["labels_differ"] == 0
    for recipe in sweep.paths.recipes.glob("*.json"):
        recipe.unlink()
    with pytest.raises(UnavailableError, match="which code of yours made 0:0:3 is unknown"):
        sweep.rerun("0:0:3")


def test_analysis_and_page_import_nothing_of_the_users(project: Path, tmp_path: Path) -> None:
    text = SWEEP.replace("runs    = 20", "runs = 3").replace(', "relative:0.5"', "")
    sweep = train(write(project, text), tmp_path / "sweep")
    for name in ("mymodel.py", "helper.py"):
        (tmp_path / name).unlink()
    shutil.rmtree(sweep.paths.tasks / "code")
    program = """
import sys
from manyseed import Sweep
from manyseed.analysis.options import Options
sweep = Sweep(sys.argv[1])
sweep.status(), sweep.verify(), sweep.show("0:0:1"), repr(sweep), sweep.compact()
sweep.analyze(Options(metrics=("accuracy",), resamples=2), workers=1)
assert sweep.results["cells"].height == 2
assert not {"mymodel", "helper", "sklearn.tree"} & {*sys.modules}
"""
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program, sweep.directory],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert sweep.submit(workers=1) is None


@pytest.mark.slow
@pytest.mark.process
def test_tasks_run_the_code_that_was_submitted(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are edited, then removed, between submission and start."""
    sweep = Sweep.plan(project, tmp_path / "sweep")
    started: list[Any] = []
    with monkeypatch.context() as patched:
        ended = LocalJob("1", "")
        patched.setattr(submitting.local, "submit", lambda *given: started.append(given) or ended)
        sweep.submit(workers=2)
    (tmp_path / "helper.py").write_text("raise RuntimeError('edited')\n")
    (tmp_path / "mymodel.py").unlink()
    submitting.local.submit(*started[0])
    wait_until(lambda: sweep.status()["runs"]["missing"] == 0, "the end of the task")
    sweep.wait()
    assert sweep.status()["runs"]["failed"] == 0
    sweep.compact()
    (tmp_path / "other").mkdir()
    for name, text in (("mymodel.py", MODEL), ("helper.py", HELPER), ("own.toml", SWEEP)):
        (tmp_path / "other" / name).write_text(text)
    other = train(tmp_path / "other" / "own.toml", tmp_path / "undisturbed")
    assert_equal(stored(sweep), stored(other))


@pytest.mark.slow
def test_changed_code_of_the_same_version_is_refused_with_the_difference(
    project: Path, tmp_path: Path
) -> None:
    (tmp_path / "helper.py").write_text(HELPER.replace("False", "True"))
    sweep = Sweep.plan(project, tmp_path / "sweep")
    sweep.submit(workers=2, only="classifier = 'noisy'")
    sweep.wait()
    failed = sweep.status()["runs"]["failed"]
    assert 0 < failed < 40
    assert "planted" in next(iter(failures(sweep.paths))).traceback
    (tmp_path / "helper.py").write_text(HELPER)
    with pytest.raises(UserError) as refused:
        sweep.submit(workers=2, failed=True)
    assert "-FAILS = True" in str(refused.value)
    assert "+FAILS = False" in str(refused.value)
    assert "helper.py" in str(refused.value)
    assert "other_recipe=True" in str(refused.value)
    code, said = inside("resume", sweep.directory, "--failed", "--workers", 2)
    assert (code, "--other-recipe" in said) == (2, True), said
    # code that did not change goes on
    sweep.submit(workers=2, only="classifier = 'tree'")
    sweep.wait()
    sweep.submit(workers=2, failed=True, other_recipe=True)
    sweep.wait()
    assert sweep.status()["runs"]["failed"] == 0
    digests = {tuple(recipe.get("own", {}).values()) for recipe in recipes(sweep)}
    assert len(digests) == 3


ENDS = """
import os
import numpy as np

def fit(X, y, X_test, n_classes, hparams, init, batch):
    draw = init.random()
    if len(y) > 80 and draw < {below}:
        {does}
    return np.full((len(X_test), n_classes), draw)
"""


ENDING = """
name    = "own"
seed    = 3
repeats = 1
runs    = 6
[[grid]]
dataset    = ["sklearn:wine"]
classifier = ["mine"]
[classifier.mine]
train = "mine:fit"
"""


@pytest.mark.parametrize(
    ("seconds", "is_said"), [("0.0015 * len(y)", True), ("0.21 + 0 * len(y)", False)]
)
def test_a_time_far_beyond_the_probes_is_said_to_be_extrapolated(
    tmp_path: Path, seconds: str, is_said: bool
) -> None:
    does = f"pass\n    import time; time.sleep({seconds})"
    (tmp_path / "mine.py").write_text(ENDS.format(below=0, does=does))
    file = write(tmp_path / "own.toml", ENDING.replace("sklearn:wine", "sklearn:digits"))
    said = " ".join(inside("plan", file, "--dry-run")[1].split())
    told = "How long mine trains is extrapolated from fits to a few made-up rows, and may be far"
    assert (told in said) == is_said, said


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        ("np.ones(10**17)", "Unable to allocate 711. PiB"),
        ("raise MemoryError", "MemoryError"),
        ("raise RuntimeError('[enforce fail] out of memory')", "memory is full: [enforce fail]"),
        ("def f(): f()\n        f()", "RecursionError"),
        ("sys.exit('planted')", "SystemExit: planted"),
        ("raise KeyboardInterrupt('planted')", "KeyboardInterrupt: planted"),
        ("warnings.simplefilter('error'); warnings.warn('planted')", "UserWarning: planted"),
        ("open('/nowhere/x')", "No such file or directory: '/nowhere/x'"),
    ],
)
def test_what_own_code_raises_is_its_runs_failure_and_all_others_are_trained(
    tmp_path: Path, raised: str, said: str
) -> None:
    modules = "import numpy as np, sys, warnings\n"
    (tmp_path / "mine.py").write_text(modules + ENDS.format(below=0.5, does=raised))
    sweep = Sweep.plan(write(tmp_path / "own.toml", ENDING), tmp_path / "sweep")
    sweep.submit(workers=1)
    sweep.wait()
    runs = sweep.status()["runs"]
    assert (runs["missing"], runs["failed"] > 0, runs["done"] > 0) == (0, True, True)
    told = inside("logs", sweep.directory, "--failed")[1]
    assert said in told
    assert "mine.py" in told, "its traceback"
    assert "(mine on sklearn:wine)" in " ".join(told.split())


@pytest.mark.parametrize(
    "does",
    [
        "raise ValueError('planted')",
        pytest.param("os._exit(7)", marks=[pytest.mark.process, pytest.mark.slow]),
    ],
)
def test_what_is_proposed_after_own_code_failed_trains_the_mended_code(
    tmp_path: Path, does: str
) -> None:
    (tmp_path / "mine.py").write_text(ENDS.format(below=0.5, does=does))
    file = write(tmp_path / "own.toml", ENDING)
    directory = tmp_path / "sweep"
    code, said = inside("run", file, "--out", directory, "--workers", 1)
    state = Sweep(directory).status()
    failed = state["runs"]["failed"]
    assert (code, bool(failed)) == ((1, True) if "raise" in does else (3, False)), said
    if not failed:
        left = state["runs"]["missing"]
        assert f"{left} runs ended their process twice, and were left out" in said
        assert f"manyseed logs {directory} 1/0" in said
    (proposed,) = {one["command"] for one in state["next"] if " resume " in one["command"]}
    assert "--other-recipe" not in proposed, "what failed may lie outside of the code"
    told = f"(add --other-recipe once its code is mended): {proposed}"
    assert told in said
    if failed:
        assert told in inside("logs", directory, "--failed")[1]
    (tmp_path / "mine.py").write_text(ENDS.format(below=0.5, does="pass"))
    steps = Sweep(directory).status()["next"]
    (mended,) = {one["command"] for one in steps if " resume " in one["command"]}
    assert mended == f"{proposed} --other-recipe"
    if failed:
        assert f"with the changed code: {mended}" in inside("logs", directory, "--failed")[1]
    code, said = inside(*shlex.split(mended)[1:], "--watch")
    assert (code, Sweep(directory).status()["runs"]["done"]) == (0, 6), said


def test_a_plan_says_what_was_not_measured(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(ENDS.format(below=0.0, does="pass"))
    text = ENDING.replace('["mine"]', '["mine", "lr-sgd"]') + "probe = false\n"
    file, directory = write(tmp_path / "own.toml", text), tmp_path / "sweep"
    told = "How long mine trains was not measured (probe = false): 2.1 s for a fit is a guess."

    def planned() -> tuple[str, dict[str, bool]]:
        said = " ".join(inside("plan", file, "--out", directory)[1].split())
        shown = json.loads(inside("plan", file, "--out", directory, "--json")[1])
        return said, {one["classifier"]: one["measured"] for one in shown["by_group"]}

    said, measured = planned()
    assert measured == {"mine": False, "lr-sgd": True}
    assert told in said
    assert "mine 133 45 6 6 not measured" in said
    assert re.search(r"lr-sgd 133 45 6 6 0\.\d+ ", said)
    Sweep(directory).submit(workers=1, only="classifier = 'mine'")
    said, measured = planned()
    assert measured == {"mine": True, "lr-sgd": True}
    assert told not in said
    assert "not measured" not in said


TWICE = SWEEP.replace("runs    = 20", "runs    = 2").replace('["noisy", "tree"]', '["noisy"]')


def trained_twice(project: Path) -> Sweep:
    """Train two runs of each cell of the user's own classifier."""
    project.write_text(TWICE)
    sweep = Sweep.plan(project, project.parent / "sweep")
    sweep.submit(workers=2)
    sweep.wait()
    return sweep


def test_changed_code_is_refused_for_new_cells_of_a_version_whose_cells_are_complete(
    project: Path, tmp_path: Path
) -> None:
    sweep = trained_twice(project)
    assert sweep.status()["runs"]["missing"] == 0
    (tmp_path / "helper.py").write_text(HELPER.replace("2.0", "3.0"))
    told = "The code of noisy has changed since its runs were trained"
    for verb, *more in (("plan",), ("run", "--cluster", "local")):  # nothing is missing
        code, said = inside(verb, project, "--out", sweep.directory, *more)
        assert (code, told in " ".join(said.split())) == (0, True), said
    with pytest.warns(UserWarning, match=told):
        Sweep.plan(project, sweep.directory)
    project.write_text(TWICE.replace('["sklearn:wine"]', '["sklearn:wine", "sklearn:iris"]'))
    code, said = inside("run", project, "--out", sweep.directory, "--cluster", "local")
    assert (code, "+SIZE = 3.0" in said) == (2, True), said
    before = {file: file.read_bytes() for file in sweep.directory.rglob("*") if file.is_file()}
    for more in ((), ("--dry-run",), ("--json",)):
        code, said = inside("plan", project, "--out", sweep.directory, *more)
        assert (code, "SIZE = 3.0" in said) == (2, True), said
    with pytest.raises(UserError, match=r"SIZE = 3\.0"):
        Sweep.plan(project, sweep.directory)
    after = {file: file.read_bytes() for file in sweep.directory.rglob("*") if file.is_file()}
    assert after == before, "nothing was planned"
    with pytest.raises(UserError, match=r"SIZE = 3\.0"):
        sweep.howmany_until(0.01, most=20, workers=1)
    code, said = inside("plan", project, "--out", sweep.directory, "--other-recipe")
    assert code == 0, said
    assert f"Next: manyseed submit {sweep.directory} --other-recipe" in said
    Sweep.plan(project, sweep.directory, other_recipe=True)
    with pytest.raises(UserError, match=r"SIZE = 3\.0"):
        sweep.submit(workers=2)


def test_own_code_beside_a_built_in_classifier_is_no_second_way(
    project: Path, tmp_path: Path
) -> None:
    text = SWEEP.replace('["noisy", "tree"]', '["noisy", "lr-sgd"]').replace("= 20", "= 2")
    sweep = train(write(project, text), tmp_path / "sweep")
    assert len(read_recipes(sweep.paths.recipes)) == 2
    assert sweep.status()["recipes"] == 1
    assert "recipes" not in inside("status", sweep.directory)[1]


def test_changed_code_is_refused_by_python_before_the_plan_grows(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    X, y = load_wine(return_X_y=True)
    asked = {"directory": tmp_path / "of", "workers": 1}
    sweep = Sweep.of("mymodel:Noisy", X, y, runs=2, **asked)
    (tmp_path / "helper.py").write_text(HELPER.replace("2.0", "3.0"))
    with pytest.raises(UserError, match=r"SIZE = 3\.0"):
        Sweep.of("mymodel:Noisy", X, y, runs=3, **asked)
    assert sweep.status()["runs"]["missing"] == 0
    assert not any("in several ways" in text for text in sweep.answers(why=True))
    Sweep.of("mymodel:Noisy", X, y, runs=3, other_recipe=True, **asked)
    assert sweep.status()["runs"]["done"] == 3
    told = "data × Noisy: in 1 of 1 repeat, runs were made in several ways (code of your own: "
    told += "mymodel:Noisy; 1 of 3 runs unlike the others)"
    assert sweep.answers(why=True)[0].startswith(told)
    code, said = inside("analyze", sweep.directory)
    assert (code, told in " ".join(said.split())) == (0, True), said
    assert told in sweep.report().read_text()


def test_code_that_was_moved_and_changed_is_refused_where_it_is_planned_from(
    project: Path, tmp_path: Path
) -> None:
    sweep = trained_twice(project)
    (moved := tmp_path / "moved").mkdir()
    for name in ("mymodel.py", "helper.py"):
        (tmp_path / name).rename(moved / name)
    (moved / "helper.py").write_text(HELPER.replace("2.0", "3.0"))
    file = write(moved / "own.toml", TWICE.replace("runs    = 2", "runs    = 3"))
    with pytest.raises(UserError, match=r"SIZE = 3\.0"):
        Sweep.plan(file, sweep.directory)
    assert sweep.status()["runs"]["missing"] == 0
    (moved / "helper.py").write_text(HELPER)
    assert Sweep.plan(file, sweep.directory).status()["runs"]["missing"] == 2


def recipes(sweep: Sweep) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sweep.paths.recipes.glob("*.json")]


def test_a_new_version_is_another_classifier(project: Path, tmp_path: Path) -> None:
    sweep = Sweep.plan(project, tmp_path / "sweep")
    text = SWEEP.replace('"mymodel:Noisy"', '"mymodel:Noisy"\nversion = 2')
    with pytest.raises(UserError, match=r"classifier\.version: 1 → 2"):
        Sweep.plan(write(project, text), tmp_path / "sweep")
    assert plan_change(write(project, SWEEP), sweep.directory).is_empty


def test_changed_code_is_refused_before_the_plan_grows_and_a_second_table_trains_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "plain.py").write_text(PLAIN.replace("NAME", "seed"))
    text = UNSEEDED.replace("sklearn.naive_bayes:GaussianNB", "plain:Mine")
    file, folder = write(tmp_path / "plain.toml", text), tmp_path / "sweep"
    asked = ("run", file, "--out", folder, "--workers", 1)
    assert inside(*asked)[0] == 0
    (tmp_path / "plain.py").write_text(PLAIN.replace("NAME", "seed") + "# edited\n")
    write(file, text.replace("runs = 3", "runs = 4"))
    code, printed = inside(*asked)
    assert code == 2, printed
    assert "add a second table beside classifier.bayes" in " ".join(printed.split())
    assert Sweep(folder).status()["runs"]["runs"] == 3
    second = '[classifier.bayes2]\nestimator = "plain:Mine"\nversion = 2\n'
    write(file, text.replace('["bayes"]', '["bayes", "bayes2"]') + second)
    code, printed = inside(*asked)
    assert code == 0, printed
    assert Sweep(folder).status()["runs"]["done"] == 6


def test_a_plan_says_what_a_probe_found(project: Path, tmp_path: Path) -> None:
    notes = plan_change(project, tmp_path / "sweep").summary()["notes"]
    assert "noisy: seeds: random_state from batch" in notes
    assert "tree: seeds: random_state from batch" in notes
    text = SWEEP.replace('"mymodel:Noisy"', '"mymodel:Noisy"\nseeds = {}')
    with pytest.raises(UserError, match="two fits with the same seeds differ"):
        plan_change(write(project, text), tmp_path / "sweep")


GAPS = """
name = "gaps"
seed = 1
repeats = 1
runs = 1
[[grid]]
dataset = ["gaps"]
classifier = ["mine"]
[dataset.gaps]
source = "file:gaps.csv"
target = "class"
[classifier.mine]
"""
TRAINS = """
import numpy as np
from sklearn.linear_model import LogisticRegression

def train(X, y, X_test, batch):
    return LogisticRegression().fit(X, y).predict_proba(X_test)
"""
COUNTS = """
from sklearn.ensemble import HistGradientBoostingClassifier

class Counts(HistGradientBoostingClassifier):
    def fit(self, X, y):
        import numpy as np
        assert np.isnan(X[:, -1]).any() == MISSING and not np.isnan(X[:, 0]).any()
        return super().fit(X, y)
"""


def gaps(folder: Path, classifier: str, places: str = "0") -> Path:
    """Return a sweep file of a CSV in which values of the columns of a kind are missing."""
    rows = [
        [f"{i / 7}", f"{i % 5}.5" if i % 4 or "0" not in places else "", "ab"[i % 2]]
        + (["x" if i % 4 else ""] if "1" in places else [])
        for i in range(80)
    ]
    header = ["first", "second", "class"] + (["last"] if "1" in places else [])
    (folder / "gaps.csv").write_text("\n".join(",".join(row) for row in [header, *rows]) + "\n")
    text = (GAPS + classifier).replace("gaps.csv", str(folder / "gaps.csv"))
    return write(folder / "gaps.toml", text)


@pytest.mark.parametrize(
    "classifier",
    ['estimator = "sklearn.linear_model:LogisticRegression"', 'train = "mine:train"'],
)
def test_code_that_cannot_take_missing_values_is_refused_with_the_remedies(
    classifier: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(TRAINS)
    scores = 'scores = "probabilities"\n' if "train" in classifier else ""
    file = gaps(tmp_path, f"{classifier}\n{scores}")
    code, said = inside("run", file, "--out", tmp_path / "sweep", "--workers", 1)
    said = " ".join(said.split())
    assert code == 2, said
    assert "contains NaN" in said
    assert "missing values" in said
    assert 'encode = "dense"' in said
    assert "SimpleImputer" in said
    assert not (tmp_path / "sweep").exists()
    file = gaps(tmp_path, f'{classifier}\n{scores}encode = "dense"\n')
    assert inside("run", file, "--out", tmp_path / "sweep", "--workers", 1)[0] == 0


def test_a_probe_gives_missing_values_to_columns_of_the_kinds_that_have_them(
    tmp_path: Path,
) -> None:
    mine = tmp_path / "mine.py"
    file = gaps(tmp_path, 'estimator = "mine:Counts"\n', "1")
    mine.write_text(COUNTS.replace("MISSING", "True"))
    plan_change(file, tmp_path / "sweep")
    mine.write_text(COUNTS.replace("MISSING", "False"))
    with pytest.raises(UserError, match="missing values"):
        plan_change(file, tmp_path / "sweep")
    gaps(tmp_path, 'estimator = "mine:Counts"\n', "")
    plan_change(file, tmp_path / "sweep")


def test_findings_of_a_probe_without_missing_values_stay_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = gaps(tmp_path, 'estimator = "sklearn.linear_model:LogisticRegression"\n')
    with monkeypatch.context() as before:
        before.setattr("manyseed.jobs.own.findings.with_missing", lambda *_: ())
        sweep = Sweep.plan(file, tmp_path / "sweep")
    assert plan_change(file, sweep.directory).is_empty
    kept = sweep.paths.own.read_bytes()
    Sweep.plan(write(file, file.read_text().replace("runs = 1", "runs = 2")), sweep.directory)
    assert sweep.paths.own.read_bytes() == kept


PIPELINE = """
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

def build():
    columns = make_column_transformer((OneHotEncoder(), LABELS), (StandardScaler(), NUMBERS))
    return make_pipeline(columns, RandomForestClassifier(3))
"""


def mixed(folder: Path, labels: str, numbers: str) -> Path:
    """Return a sweep file of a pipeline and a CSV that has its columns of labels first and last."""
    rows = [f"{'abcde'[i % 5]},{i * i / 7},{i % 3},{'xy'[i % 2]},{['no', 'yes'][i % 2]}"
            for i in range(80)]  # fmt: skip
    (folder / "gaps.csv").write_text("\n".join(["hue,size,age,kind,class", *rows]) + "\n")
    (folder / "mine.py").write_text(PIPELINE.replace("LABELS", labels).replace("NUMBERS", numbers))
    text = (GAPS + 'estimator = "mine:build"\n').replace("gaps.csv", str(folder / "gaps.csv"))
    return write(folder / "gaps.toml", text)


def test_a_probe_has_columns_where_training_has_them(tmp_path: Path) -> None:
    plan_change(mixed(tmp_path, "[0, 3]", "[1, 2]"), tmp_path / "sweep")
    with pytest.raises(UserError, match="unknown categories") as raised:
        plan_change(mixed(tmp_path, "[1, 3]", "[0, 2]"), tmp_path / "sweep")
    assert "…" in raised.value.message
    assert len(raised.value.message) < 400


def test_columns_are_selected_by_name_in_data_frames(tmp_path: Path) -> None:
    """To the bit as by number, where labels are encoded alike; also with noise on both kinds."""
    noise = 'perturb_continuous = ["relative:0.5"]\nperturb_categorical = ["value:0.2"]\n'
    scores = []
    for labels, numbers in (("[0, 3]", "[1, 2]"), ('["hue", "kind"]', '["size", "age"]')):
        file = mixed(tmp_path, labels, numbers)
        steady = (
            (tmp_path / "mine.py").read_text().replace("RandomForestClassifier(3)", "GaussianNB()")
        )
        imported = "from sklearn.naive_bayes import GaussianNB\n"
        (tmp_path / "mine.py").write_text(imported + steady)
        write(file, text := file.read_text().replace("[[grid]]\n", f"[[grid]]\n{noise}"))
        if "hue" in labels:
            with pytest.raises(UserError) as raised:
                plan_change(file, tmp_path / "sweep")
            assert str(raised.value).endswith('  add to [classifier.mine]: encode = "frame"')
            write(file, f'{text}encode = "frame"\n')
        scores.append(stored(train(file, tmp_path / f"by-{len(labels)}")))
    assert_equal(*scores)


TYPES = """
import numpy as np
class Mine:
    def fit(self, X, y):
        assert [*X.columns] == ["first", "second", "last"], X
        assert X["first"].dtype == X["second"].dtype == float
        assert {*X["last"].dropna()} == {"x"} and X[["second", "last"]].isna().any().all()
    def predict(self, X):
        return np.zeros(len(X), int)
"""


@pytest.mark.parametrize(
    "how", ["is absent", (b'"x"', b'"y"'), (b"first", b"fifth"), (b'"columns"', b'"rows"')]
)
def test_data_frames_have_names_text_and_gaps(
    how: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other names and labels: where they are damaged, or an earlier version kept none, too."""
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "data"))
    (tmp_path / "mine.py").write_text(TYPES)
    file = gaps(tmp_path, 'estimator = "mine:Mine"\nencode = "frame"\n', "01")
    sweep = Sweep.plan(file, tmp_path / "sweep")
    (kept,) = (tmp_path / "data").glob("prepared/*/columns.json")
    told = kept.read_bytes()
    if how == "is absent":
        kept.unlink()
    else:
        kept.write_bytes(told.replace(*how))
    sweep.submit(workers=1)
    sweep.wait()
    assert "names of columns" in next(iter(failures(sweep.paths))).traceback
    Sweep.plan(file, tmp_path / "sweep")
    assert kept.read_bytes() == told
    sweep.submit(workers=1, failed=True)
    sweep.wait()
    assert sweep.status()["runs"]["done"] == 1


@pytest.mark.parametrize("form", ["module", "command"])
def test_data_frames_are_for_code_that_takes_them(form: str, tmp_path: Path) -> None:
    entry = "mine:build" if form == "module" else "python mine.py {train} {test} {out}"
    (tmp_path / "mine.py").write_text("")
    file = gaps(tmp_path, f'{form} = "{entry}"\nencode = "frame"\n')
    with pytest.raises(UserError, match=f"encode = .frame.*a {form} gets arrays"):
        plan_change(file, tmp_path / "sweep")
    text = UNSEEDED.replace("wine", "digits").partition("estimator")[0]
    file = write(file, f'{text}estimator = "mine:build"\nencode = "frame"\n')
    with pytest.raises(UserError, match="this dataset's columns have no names"):
        plan_change(file, tmp_path / "sweep")


def of_form(folder: Path, code: str, table: str) -> Path:
    """Return a sweep file of some code on the rows of `mixed`."""
    file = mixed(folder, "[0, 3]", "[1, 2]")
    (folder / "mine.py").write_text(code)
    return write(file, file.read_text().partition("estimator")[0] + table)


TAKES = """
import sys
import numpy as np
class Mine:
    def fit(self, X, y):
        {fit}
    def predict(self, X):
        {predict}
        return np.zeros(len(X), int)
if __name__ == "__main__":
    np.save(sys.argv[2], np.array(["no"] * len(np.load(sys.argv[1])["X"])))
"""
AS_FRAME = 'unless its table asks for a data frame add to [classifier.mine]: encode = "frame"'
BOTH = "classes arrive as 0 = no, 1 = yes and must be returned so"
FLAT = """
from torch import nn
def build(shape, n_classes):
    return nn.Linear(4, n_classes)
"""
AS_DENSE = '11 columns (encode = "dense": 2 of numbers, 6 of hue, 3 of kind): take shape[0]'
READS = """
import sys
import polars as pl
pl.read_csv(sys.argv[1])["age"]
"""


@pytest.mark.parametrize(
    ("code", "table", "said"),
    [
        (TAKES.format(fit="X.fillna(0)", predict="pass"), 'estimator = "mine:Mine"', AS_FRAME),
        (TAKES.format(fit="X['age']", predict="pass"), 'estimator = "mine:Mine"', AS_FRAME),
        (
            TAKES.format(fit="y.value_counts()", predict="pass"),
            'estimator = "mine:Mine"',
            AS_FRAME,
        ),
        (
            TAKES.format(fit="X.fillna(0)", predict="pass"),
            'estimator = "mine:Mine"\nencode = "dense"',
            AS_DENSE.partition(":")[0],
        ),
        (
            TAKES.format(fit="pass", predict="return ['no'] * len(X)"),
            'estimator = "mine:Mine"\nscores = "predict"',
            BOTH,
        ),
        (
            TAKES.format(fit="pass", predict="return 1 + np.arange(len(X)) % 2"),
            'estimator = "mine:Mine"',
            BOTH,
        ),
        (
            TAKES.format(fit="pass", predict="pass"),
            'command = "python mine.py {test} {out} {train}"\nscores = "labels"',
            BOTH,
        ),
        (
            READS,
            'command = "python mine.py {test} {out} {train}"\nrows = "csv"',
            "columns are called by number: x0 hue, x1 size, x2 age, x3 kind",
        ),
        (FLAT, 'module = "mine:build"\nepochs = 1', AS_DENSE),
    ],
)
def test_code_that_takes_rows_or_classes_for_others_is_told_what_they_are(
    tmp_path: Path, code: str, table: str, said: str
) -> None:
    with pytest.raises(UserError) as raised:
        plan_change(of_form(tmp_path, code, table), tmp_path / "sweep")
    told = " ".join(str(raised.value).split())
    assert said in told
    assert "OwnError" not in told


IMAGES = """
from torch import nn
def build(n_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, n_classes))
"""


def test_a_network_for_images_of_another_size_is_told_theirs(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(IMAGES)
    text = UNSEEDED.replace("wine", "digits").partition("estimator")[0]
    file = write(tmp_path / "images.toml", f'{text}module = "mine:build"\nepochs = 1\n')
    with pytest.raises(UserError) as raised:
        plan_change(file, tmp_path / "sweep")
    said = "rows arrive as images (channels, height, width) of (1, 8, 8): take shape"
    assert said in " ".join(str(raised.value).split())


USING_SHAPE = """
from torch import nn
def build(shape, n_classes):
    layers = [nn.Conv2d(shape[0], 2, 3), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(2 * shape[1] * shape[2], n_classes))
class Net(nn.Module):
    def __init__(self, shape, n_classes):
        super().__init__()
        self.of = build(shape, n_classes)
    def forward(self, X):
        return self.of(X)
"""


@pytest.mark.parametrize("entry", ["build", "Net"])
def test_a_network_that_takes_its_shape_is_told_which_layer_does_not_fit(
    tmp_path: Path, entry: str
) -> None:
    (tmp_path / "mine.py").write_text(USING_SHAPE)
    text = UNSEEDED.replace("wine", "digits").partition("estimator")[0]
    file = write(tmp_path / "images.toml", f'{text}module = "mine:{entry}"\nepochs = 1\n')
    with pytest.raises(UserError) as raised:
        plan_change(file, tmp_path / "sweep")
    said = " ".join(str(raised.value).split())
    assert (
        "rows arrive as images (channels, height, width) of (1, 8, 8), as shape says; a linear "
        "layer is made for 128 values of each and gets 72"
    ) in said
    assert "take shape" not in said


def test_a_list_that_code_takes_for_one_value_is_told(tmp_path: Path) -> None:
    code = "def build(n_classes, width=16):\n    return nn.LazyLinear(n_classes + width % 2)\n"
    (tmp_path / "mine.py").write_text(f"from torch import nn\n{code}")
    text = UNSEEDED.partition("estimator")[0]
    text += 'module = "mine:build"\nepochs = 1\nparams = { width = [16, 64] }\n'
    with pytest.raises(UserError) as raised:
        plan_change(write(tmp_path / "list.toml", text), tmp_path / "sweep")
    assert (
        "width is the whole list; values to try one by one are an hparam grid of this "
        "classifier: params = { width = 16 } and grid = { width = [16, 64] }"
    ) in " ".join(str(raised.value).split())


def test_seeds_of_another_name_are_told_with_those_that_the_code_has(tmp_path: Path) -> None:
    file = mixed(tmp_path, "[0, 3]", "[1, 2]")
    write(file, file.read_text() + 'seeds = { seed = "batch" }\n')
    with pytest.raises(UserError) as raised:
        plan_change(file, tmp_path / "sweep")
    told = 'seeds = { randomforestclassifier__random_state = "batch" }'
    assert told in str(raised.value)


MISTAKES = {
    "import error": ("import nowhere_at_all", "No module named 'nowhere_at_all'"),
    "syntax": ("def f(:", "is not Python"),
    "raises at import": ("1 / 0", "ZeroDivisionError: division by zero (mymodel.py, line 1)"),
    "no such name": ("x = 1", "mymodel has no Noisy"),
    "refused by manyseed": (
        "import manyseed\nmanyseed.Sweep.plan({})",
        "the program begins a sweep whenever it is imported, even by the sweep's own processes; put"
        " the call below: if",
    ),
    "object": ("Noisy = object()", "it is an object, object, not a function or class; write"),
    "object's parameter": (
        "from sklearn.naive_bayes import GaussianNB\nNoisy = GaussianNB()",
        "GaussianNB has no parameter max_iter; it has priors, var_smoothing",
    ),
    "wrong signature": ("class Noisy:\n    def __init__(self): pass", "max_iter"),
    "no fit": ("class Noisy:\n    def __init__(self, max_iter): pass", "no method fit"),
    "no prediction": (
        "class Noisy:\n    def __init__(self, max_iter): pass\n    def fit(self, X, y): pass",
        "none of the methods predict_proba, decision_function, predict",
    ),
    "fit raises": (
        MODEL.replace("super().fit", "return {}[3]\n        super().fit"),
        "KeyError: 3 (mymodel.py, line 9)",
    ),
    "NaN": (
        MODEL + "    def predict_proba(self, X):\n        return [[float('nan')] * 3] * len(X)",
        "99 of 99 scores are not finite",
    ),
    "shape": (
        MODEL + "    def predict_proba(self, X):\n        return [[0.5, 0.5]] * len(X)",
        "predict_proba returned shape (33, 2); (33, 3) is needed",
    ),
    "ends the process": ("import os\nprint('last words')\nos._exit(3)", "last words"),
}


OF_PROCESSES = ("refused by manyseed", "ends the process")


@pytest.mark.parametrize("mistake", [name for name in MISTAKES if name not in OF_PROCESSES])
def test_mistakes_are_one_message_when_planned(project: Path, tmp_path: Path, mistake: str) -> None:
    text, said = MISTAKES[mistake]
    (tmp_path / "mymodel.py").write_text(text)
    code, printed = inside("plan", project, "--out", tmp_path / "sweep")
    flat = " ".join(printed.split())
    assert code == 2, printed
    assert said in flat
    assert "classifier.noisy.estimator" in flat
    assert "Traceback" not in printed
    assert not (tmp_path / "sweep").exists()


@pytest.mark.process
@pytest.mark.parametrize("mistake", OF_PROCESSES)
def test_mistakes_that_end_a_process_are_one_message(
    project: Path, tmp_path: Path, mistake: str
) -> None:
    test_mistakes_are_one_message_when_planned(project, tmp_path, mistake)


@pytest.mark.process
def test_code_that_hangs_is_one_message(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyseed.jobs.own.findings._MOST_SECONDS", 8)
    (tmp_path / "mymodel.py").write_text(
        MODEL.replace("super().fit", "__import__('threading').Event().wait()\n        super().fit")
    )
    code, printed = inside("plan", project, "--out", tmp_path / "sweep")
    assert code == 2, printed
    assert "a fit to 64 rows took more than 8 s" in " ".join(printed.split())
    assert "probe = false" in printed
    assert not (tmp_path / "sweep").exists()


def test_code_that_is_nowhere_is_named_with_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"there is no module mymodel.*{tmp_path}"):
        plan_change(write(tmp_path / "own.toml", SWEEP), tmp_path / "sweep")


def test_searches_and_noise_act_on_declared_hparams(project: Path, tmp_path: Path) -> None:
    text = """
name = "tuned"
seed = 1
repeats = 1
runs = 2
tune = { draws = 3 }
[[grid]]
dataset = ["sklearn:wine"]
classifier = ["noisy"]
hparams = ["tuned", "max_iter=20"]
perturb_hparams = ["none", "relative:0.5"]
[classifier.noisy]
estimator = "mymodel:Noisy"
params = { max_iter = 30 }
space = { C = { low = 0.01, high = 10.0, default = 0.5, log = true } }
"""
    sweep = Sweep.plan(write(project, text), tmp_path / "sweep")
    (search,) = sweep.tune(workers=1)
    found = json.loads(sweep.paths.tuned(search.id).read_text())
    assert {draw["hparams"]["max_iter"] for draw in found["draws"]} == {30}
    assert len({draw["hparams"]["C"] for draw in found["draws"]}) == 3
    assert found["recipe"]["own"].keys() == {"mymodel:Noisy@1"}
    sweep.submit(workers=2)
    sweep.wait()
    assert sweep.status()["runs"]["missing"] == 0
    shown = [sweep.show(f"{cell}:0:{run}")["fitted_with"] for cell in range(4) for run in (0, 1)]
    assert {each["max_iter"] for each in shown} == {20, 30}
    assert len({each["C"] for each in shown}) == 6


SCRIPT = """
import sys
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from manyseed import Sweep

class Mine(LogisticRegression):
    def fit(self, X, y):
        import numpy as np
        order = np.random.default_rng(self.random_state).permutation(len(y))[:40]
        return super().fit(X[order], y[order])

def begin():
    X, y = load_wine(return_X_y=True)
    noise = ["none", "relative:0.5"]
    runs = int(sys.argv[-1]) if sys.argv[-1].isdigit() else 3
    sweep = Sweep.of(Mine(max_iter=50), X, y, runs=runs, workers=2, perturb_continuous=noise)
    cells = sweep.results["cells"]
    assert (cells["accuracy_std"] > 0).all()
    print(cells.height, sweep.status()["runs"]["done"], sweep.directory)
GUARD
"""


@pytest.mark.slow
def test_one_line_from_an_estimator_to_its_variance(tmp_path: Path) -> None:
    """In a script that defines its estimator itself; a second time there are more runs."""
    script = tmp_path / "variance.py"
    script.write_text(SCRIPT.replace("GUARD", 'if __name__ == "__main__":\n    begin()'))
    for runs in (3, 4):
        ended = subprocess.run(
            [sys.executable, script, str(runs)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.splitlines()[-1] == f"2 {2 * runs} sweep-Mine"


def test_a_script_that_begins_whenever_it_is_imported_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "variance.py").write_text(SCRIPT.replace("GUARD", "begin()"))
    ended = subprocess.run(
        [sys.executable, "variance.py", "3"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode != 0
    assert 'if __name__ == "__main__"' in ended.stderr
    assert not (tmp_path / "sweep-Mine").exists()


FUNCTION = """
name = "function"
seed = 2
repeats = 1
runs = 5
[[grid]]
dataset = ["sklearn:wine"]
classifier = ["net"]
vary = ["init+batch", "init"]
perturb_hparams = ["none", "relative:0.5"]
[classifier.net]
train = "mytrain:fit"
encode = "dense"
params = { hidden = 8, epochs = 3 }
space = { lr = { low = 1e-3, high = 1.0, default = 0.1, log = true } }
"""


MISTAKEN = {
    "def fit(X, y, X_test, lerning_rate): ...": "it asks for lerning_rate; there are X, y",
    "def fit(X_test): ...": "; an argument named hparams takes all",
    "def fit(X_test, epochs=1, lr=0.1, units=3): ...": (
        "no parameter hidden; it takes epochs, lr, units; an argument named hparams takes all"
    ),
    "fit = 3": "it is int, not a function",
    "def fit(X_test, hparams): return X_test": "fit returned shape (33, 13); (33, 3) is needed",
    "def fit(X_test, hparams): return None": "fit returned",
    "import numpy as np\ndef fit(X_test, hparams): return np.random.rand(len(X_test), 3)": (
        "two fits with the same seeds differ: it draws random numbers that do not come from its "
        "streams (none)"
    ),
    "def fit(X_test, hparams): open('/nowhere/at/all')": "FileNotFoundError: [Errno 2]",
    "import nowhere_at_all": "cannot be imported: ModuleNotFoundError: No module named 'nowhere_at",
    "def fit(X_test, hparams): return [[float('nan')] * 3] * len(X_test)": (
        "99 of 99 scores are not finite"
    ),
}


@pytest.mark.parametrize("text", MISTAKEN)
def test_mistakes_in_a_training_function_are_one_message(tmp_path: Path, text: str) -> None:
    (tmp_path / "mytrain.py").write_text(text)
    file = write(tmp_path / "function.toml", FUNCTION)
    code, printed = inside("plan", file, "--out", tmp_path / "sweep")
    assert code == 2, printed
    assert MISTAKEN[text] in " ".join(printed.split())
    assert "classifier.net." in printed
    assert "Traceback" not in printed
    assert "OwnError" not in printed
    assert not (tmp_path / "sweep").exists()


NETS = """
from torch import nn

class Net(nn.Module):
    def __init__(self, in_features, num_classes, width=4, p=0.1):
        super().__init__()
        self.all = nn.Sequential(nn.Linear(in_features, width), nn.Linear(width, num_classes))
    def forward(self, x):
        return self.all(x)

class Other(Net):
    def __init__(self, n_inputs, outputs=10, width=4):
        super().__init__(n_inputs, outputs, width)

class Fixed(Net):
    def __init__(self, outputs=10, width=4):
        super().__init__(13, outputs, width)
"""
OF_NETS = """
name = "nets"
seed = 1
repeats = 1
runs = 2
[[grid]]
dataset = ["sklearn:wine"]
classifier = ["net"]
[classifier.net]
module = "mynets:{name}"
epochs = 1
{more}
"""


def planned_net(tmp_path: Path, name: str, more: str = "") -> tuple[int, str]:
    (tmp_path / "mynets.py").write_text(NETS)
    file = write(tmp_path / "nets.toml", OF_NETS.format(name=name, more=more))
    code, printed = inside("plan", file, "--out", tmp_path / "sweep")
    assert (code == 0) == (tmp_path / "sweep").exists()
    return code, " ".join(printed.split())


@pytest.mark.parametrize("more", ["params = { wide = 3 }", "space = { wide = { low = 1, high = 3"])
def test_what_a_module_does_not_take_is_refused(tmp_path: Path, more: str) -> None:
    given = more if more.startswith("params") else f"{more}, default = 2 }} }}"
    code, printed = planned_net(tmp_path, "Net", given)
    assert code == 2
    assert "Net has no parameter wide; did you mean width?" in printed
    assert f"classifier.net.{more.split()[0]}.wide" in printed


def test_a_usual_module_is_given_its_numbers_of_inputs_and_classes(tmp_path: Path) -> None:
    code, printed = planned_net(tmp_path, "Net", "params = { width = 8, p = 0.5 }")
    assert code == 0, printed


@pytest.mark.parametrize(
    ("name", "said", "call"),
    [
        ("Other", "it asks for n_inputs", ""),
        (
            "Fixed",
            "returned shape (32, 10); (32, 3) is needed",
            "Fixed(outputs=n_classes, **params)",
        ),
    ],
)
def test_a_module_for_other_data_is_told_the_function_that_makes_it(
    tmp_path: Path, name: str, said: str, call: str
) -> None:
    code, printed = planned_net(tmp_path, name)
    assert code == 2
    assert said in printed
    build = f"def build(n_classes, **params): return {call}"
    assert (build in printed and 'module = "mynets:build"' in printed) == bool(call)


def test_a_sweep_that_was_moved_goes_on_with_the_copy_of_the_code(
    project: Path, tmp_path: Path
) -> None:
    sweep = Sweep.plan(project, tmp_path / "sweep")
    sweep.submit(workers=2, limit=4)
    sweep.wait()
    moved = Sweep((tmp_path / "sweep").rename(tmp_path / "moved"))
    for name in ("mymodel.py", "helper.py"):
        (tmp_path / name).unlink()
    moved.submit(workers=2, limit=4)
    moved.wait()
    assert moved.status()["runs"]["done"] == 8
    (copy,) = (moved.paths.tasks / "code").iterdir()
    shutil.rmtree(copy)
    with pytest.raises(UserError, match="there is no module mymodel"):
        moved.submit(workers=2)


def test_a_training_function_in_a_sweep(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "own" / "mytrain.py"
    shutil.copy(example, tmp_path)
    sweep = train(write(tmp_path / "function.toml", FUNCTION), tmp_path / "sweep")
    assert sweep.status()["runs"]["done"] == 20
    scores = sweep.runs("sklearn:wine", "net")["score"].isel(epoch=-1).values
    sys.path.insert(0, str(tmp_path))
    try:
        from mytrain import fit  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(tmp_path))
        del sys.modules["mytrain"]
    trainer = Trainer()
    for address in ("0:0:0", "1:0:3", "3:0:4"):
        found = find_run(sweep.paths, address)
        data, drawn = trainer.training_set(found.run), generators(found.run)
        X, X_test = dense(data)
        values = sweep.show(address)["fitted_with"]
        expected = fit(X, data.y, X_test, 3, values, drawn.init, drawn.batch)
        np.testing.assert_allclose(scores[found.row], expected, rtol=1e-4, atol=1e-5)
    assert sweep.rerun("0:0:1")["labels_differ"] == 0
    assert not [*sweep.paths.checkpoints.glob("*")]


ALIKE = """
name = "alike"
seed = 2
repeats = 1
runs = 3
[[grid]]
dataset = ["sklearn:wine"]
classifier = ["linear", "net", "program"]
[classifier.linear]
estimator = "sklearn.linear_model:LogisticRegression"
params = { max_iter = 5 }
[classifier.net]
train = "mytrain:fit"
[classifier.program]
command = "python mytrain.py {seed} {train} {test} {out}"
"""
EVEN = """
import sys
import numpy as np
def fit(X_test, batch):
    return np.ones((len(X_test), 3))
if __name__ == "__main__":
    np.save(sys.argv[4], fit(np.load(sys.argv[3])["X"], None))
"""


RARE = """
from sklearn.linear_model import LogisticRegression
class Rare(LogisticRegression):
    def fit(self, X, y):
        if self.random_state % 4 == 0:
            X = X[:, ::-1]
        return super().fit(X, y)
"""


def test_a_probe_tries_several_seeds_before_it_calls_fits_equal(tmp_path: Path) -> None:
    (tmp_path / "mymodel.py").write_text(RARE)
    text = SWEEP.partition("[classifier.tree]")[0].replace('["noisy", "tree"]', '["noisy"]')
    change = plan_change(
        write(tmp_path / "rare.toml", text.replace("Noisy", "Rare")), tmp_path / "sweep"
    )
    assert not any("were equal" in note for note in change.summary()["notes"])


def test_a_plan_says_where_seeds_never_matter(tmp_path: Path) -> None:
    (tmp_path / "mytrain.py").write_text(EVEN)
    change = plan_change(write(tmp_path / "alike.toml", ALIKE), tmp_path / "sweep")
    same = "fits with other seeds were equal on 64 made-up rows, which may be too few to differ on;"
    for name, said in {
        "linear": "random_state never matters, say so by seeds = {}",
        "net": "batch never matters, the function should not take it",
        "program": "batch never matters, the command should not name it",
    }.items():
        told = f"{name}: {same} only if {said}: then one run of a repeat is trained"
        assert told in change.summary()["notes"]
    text = ALIKE.replace("params =", "seeds = {}\nparams =").replace("{seed} ", "0 ")
    (tmp_path / "mytrain.py").write_text(EVEN.replace(", batch", "").replace(", None", ""))
    change = plan_change(write(tmp_path / "alike.toml", text), tmp_path / "sweep")
    assert not any(same in note for note in change.summary()["notes"])
    assert change.summary()["runs_identical"] == 3 * 2


UNSEEDED = """
name = "bayes"
seed = 1
repeats = 1
runs = 3
[[grid]]
dataset = ["sklearn:wine"]
classifier = ["bayes"]
[classifier.bayes]
estimator = "sklearn.naive_bayes:GaussianNB"
"""


def test_a_new_run_says_what_its_plan_says(tmp_path: Path) -> None:
    file = write(tmp_path / "bayes.toml", UNSEEDED)
    asked = ("run", file, "--out", tmp_path / "sweep", "--workers", 1)
    for is_new in (True, False):
        code, printed = inside(*asked)
        assert code == 0, printed
        assert ("2 notes: manyseed plan " in printed) == is_new
    said = " ".join(inside("plan", file, "--out", tmp_path / "other", "--dry-run")[1].split())
    assert "bayes: seeds: none." in said
    assert "Identical to the first run of their repeat" in said


PLAIN = """
import numpy as np

class Mine:
    def __init__(self, alpha=1.0, NAME=None):
        self.alpha, self.rng = alpha, np.random.default_rng(NAME)
    def fit(self, X, y):
        self.k = int(y.max()) + 1
    def predict(self, X):
        return self.rng.permutation(np.arange(len(X)) % self.k)

def build(NAME=None):
    return Mine(NAME=NAME)
"""


@pytest.mark.parametrize(
    ("entry", "name", "option"),
    [
        ("Mine", "random_state", ""),
        ("build", "seed", ""),
        ("Mine", "other", '\nseeds = { other = "batch" }\nparams = { alpha = 2.0 }'),
    ],
)
def test_a_class_without_set_params_is_seeded_when_it_is_built(
    tmp_path: Path, entry: str, name: str, option: str
) -> None:
    (tmp_path / "plain.py").write_text(PLAIN.replace("NAME", name))
    estimator = f'"plain:{entry}"{option}'
    file = write(
        tmp_path / "plain.toml", UNSEEDED.replace('"sklearn.naive_bayes:GaussianNB"', estimator)
    )
    sweep = train(file, tmp_path / "sweep")
    findings = next(iter(json.loads(sweep.paths.own.read_text())["pins"].values()))["findings"]
    assert findings["seeds"] == {name: "batch"}
    assert sweep.status()["runs"]["done"] == 3
    labels = sweep.runs("sklearn:wine", "bayes")["label"].to_numpy()
    assert not np.array_equal(labels[0], labels[1])
    assert sweep.rerun("0:0:1")["equal"]


FAILING = """
import numpy as np

class Mine:
    def fit(self, X, y):
        if len(y) > 64:
            raise ValueError("planted")
    def predict(self, X):
        return np.zeros(len(X), int)
"""


TWO = """
from sklearn.linear_model import LogisticRegression

def one(random_state=None):
    return LogisticRegression(solver="saga", max_iter=5, random_state=random_state)

def two(random_state=None):
    return LogisticRegression(solver="sag", max_iter=5, random_state=random_state)
"""


def test_recipes_of_classifiers_of_one_file_name_their_own(tmp_path: Path) -> None:
    (tmp_path / "both.py").write_text(TWO)
    own = "".join(f'[classifier.{name}]\nestimator = "both:{name}"\n' for name in ("one", "two"))
    text = UNSEEDED.partition("[classifier.bayes]")[0].replace('"bayes"]', '"one", "two"]')
    sweep = train(write(tmp_path / "s.toml", f"{text}{own}"), tmp_path / "sweep", workers=1)
    for run, name in (("0:0:0", "one"), ("1:0:0", "two")):
        assert [*sweep.show(run)["stored"]["recipe"]["own"]] == [f"both:{name}@1"]
    assert "made in several ways" not in inside("status", sweep.directory)[1]


def test_copies_of_a_failed_run_are_counted_with_its_error(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(FAILING)
    estimator = UNSEEDED.replace("sklearn.naive_bayes:GaussianNB", "plain:Mine")
    sweep = train(write(tmp_path / "plain.toml", estimator), tmp_path / "sweep")
    _, printed = inside("logs", sweep.directory, "--failed")
    assert "3 × ValueError: planted" in printed
    assert "is a copy of" not in printed
    _, printed = inside("status", sweep.directory)
    assert "3 failed: ValueError: planted" in printed
    assert "is a copy of" not in printed
    counts = {each["error"]: each["count"] for each in sweep.status()["failures"]}
    assert sorted(counts.values()) == [1, 2]


def test_a_retry_is_not_proposed_of_what_is_being_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain.py").write_text(FAILING)
    text = UNSEEDED.replace("sklearn.naive_bayes:GaussianNB", "plain:Mine")
    sweep = train(write(tmp_path / "plain.toml", text), tmp_path / "sweep")
    assert "resume" in sweep.show("0:0:0")["failed"]["retry"]
    for name in ("logs.tasks_known", "logs.tasks_of", "status.tasks_of"):
        monkeypatch.setattr(
            f"manyseed.orchestrator.progress.{name}", lambda *_, **__: [[TaskState(0, "running")]]
        )
    failed = sweep.show("0:0:0")["failed"]
    assert "retry" not in failed
    assert failed["now"].startswith("task 1/0, trains")
    for verb in (("logs", sweep.directory, "--failed"), ("status", sweep.directory)):
        _, printed = inside(*verb)
        assert "resume" not in printed
        assert f"manyseed status {sweep.directory} --watch" in " ".join(printed.split())


def test_a_class_whose_draws_have_no_seed_is_told_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(PLAIN.replace("NAME", "other"))
    text = UNSEEDED.replace("sklearn.naive_bayes:GaussianNB", "plain:Mine")
    with pytest.raises(UserError, match=r'seeds \(none\)\n  .*seeds = \{ seed = "batch" \}'):
        plan_change(write(tmp_path / "plain.toml", text), tmp_path / "sweep")


ALSO = """
import sys
import numpy as np

class Mine:
    def __init__(self, random_state=None):
        self.random_state = random_state
    def fit(self, X, y):
        self.k = int(y.max()) + 1
    def predict(self, X):
        return np.random.permutation(np.arange(len(X)) % self.k)

def fit(X_test, batch):
    return np.random.normal(size=(len(X_test), 3))

if __name__ == "__main__":
    np.save(sys.argv[3], fit(np.load(sys.argv[2])["X"], None))
"""


@pytest.mark.parametrize(
    ("table", "remedy"),
    [
        (
            'estimator = "also:Mine"',
            "it is given random_state, but draws from elsewhere too, such as np.random: use "
            "np.random.RandomState(self.random_state) for all",
        ),
        (
            'train = "also:fit"',
            "it is given batch, but draws from elsewhere too, such as np.random: take all random "
            "numbers from it",
        ),
        (
            'command = "python also.py {seed} {test} {out} {train}"',
            "it gets {seed}, but does not take all random numbers from it",
        ),
    ],
)
def test_code_that_uses_its_seed_in_part_is_told_so(
    tmp_path: Path, table: str, remedy: str
) -> None:
    (tmp_path / "also.py").write_text(ALSO)
    text = UNSEEDED.partition("estimator")[0] + table
    with pytest.raises(UserError, match="two fits with the same seeds differ") as raised:
        plan_change(write(tmp_path / "also.toml", text), tmp_path / "sweep")
    assert remedy in " ".join(str(raised.value).split())
    assert "give it {seed}" not in str(raised.value)


WILD = """
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.svm import SVC
class Mine(BaseEstimator, ClassifierMixin):
    def fit(self, X, y):
        self.model_ = MODEL.fit(X, y)
        self.classes_ = self.model_.classes_
        return self
    def predict(self, X):
        return self.model_.predict(X)
"""


def test_labels_alone_show_that_a_class_draws_from_elsewhere(tmp_path: Path) -> None:
    text = UNSEEDED.replace("sklearn.naive_bayes:GaussianNB", "plain:Mine")
    text = text.replace("wine", "breast_cancer")  # whose shape makes classes easily told apart
    (tmp_path / "plain.py").write_text(WILD.replace("MODEL", "RandomForestClassifier(50)"))
    with pytest.raises(UserError, match="two fits with the same seeds differ"):
        plan_change(write(tmp_path / "plain.toml", text), tmp_path / "sweep")
    (tmp_path / "plain.py").write_text(WILD.replace("MODEL", "SVC()"))  # draws, but uses no draw
    change = plan_change(tmp_path / "plain.toml", tmp_path / "sweep")
    assert "bayes: seeds: none" in change.summary()["notes"]


HIDDEN = """
import torch
from sklearn.svm import SVC
class Mine:
    def fit(self, X, y):
        with torch.random.fork_rng(devices=[]):
            self.model = SVC().fit(X + torch.randn(X.shape).numpy(), y)
    def predict(self, X):
        return self.model.predict(X)
"""


def test_draws_from_a_global_generator_that_is_put_back_are_found(tmp_path: Path) -> None:
    text = UNSEEDED.replace("sklearn.naive_bayes:GaussianNB", "plain:Mine")
    (tmp_path / "plain.py").write_text(HIDDEN)
    with pytest.raises(UserError, match="two fits with the same seeds differ"):
        plan_change(write(tmp_path / "plain.toml", text), tmp_path / "sweep")


def test_an_estimator_whose_runs_cannot_differ_is_named_in_a_warning(tmp_path: Path) -> None:
    X, y = np.eye(30)[:, :3], np.arange(30) % 2
    with pytest.warns(UserWarning, match=r"2 of 3 runs of GaussianNB.*seeds: none") as told:
        Sweep.of(GaussianNB(), X, y, runs=3, directory=tmp_path / "of", train=False)
    assert told[0].filename == __file__


def test_seeds_that_edited_code_has_got_are_named_with_what_keeps_the_cells(tmp_path: Path) -> None:
    code = write(tmp_path / "plain.py", PLAIN.replace(", NAME=None", "").replace("(NAME)", "(1)"))
    text = UNSEEDED.replace("sklearn.naive_bayes:GaussianNB", "plain:Mine")
    file, folder = write(tmp_path / "plain.toml", text), tmp_path / "sweep"
    assert inside("plan", file, "--out", folder)[0] == 0
    write(code, code.read_text().replace("alpha=1.0", "alpha=1.0, seed=None"))
    for verb in ("plan", "run"):
        code_of_exit, said = inside(verb, file, "--out", folder)
        assert code_of_exit == 2, said
        assert "seeds = {} in [classifier.bayes] keeps these cells" in " ".join(said.split())
    write(file, text + "seeds = {}\n")
    code_of_exit, said = inside("plan", file, "--out", folder)
    assert code_of_exit == 0, said
