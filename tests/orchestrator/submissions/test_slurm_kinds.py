"""Every kind of a user's own code: 20 seeds with noise, killed and resumed, here and on a SLURM.

Results are those of a sweep that nothing disturbed, bit for bit; analysed and shown on a page.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from manyseed.analysis.options import Options
from manyseed.orchestrator.sweep import Sweep
from tests.cluster import Slurm, wait_until
from tests.here import once
from tests.orchestrator.conftest import command, train, write
from tests.orchestrator.submissions.test_slurm import finish, report
from tests.orchestrator.submissions.test_slurm_faults import pid, profile
from tests.orchestrator.test_kill import freeze_in_flight, journaled

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

OWN = Path(__file__).parents[3] / "examples" / "own"
RUNS = 20

HEAD = f"""
name    = "kinds"
seed    = 3
repeats = 1
runs    = {RUNS}
"""
GRID = """
[[grid]]
dataset            = ["{dataset}"]
classifier         = ["{name}"]
train_fraction     = [{fraction}]
perturb_continuous = ["relative:0.5"]
"""
SHELL = """\
# the nearest mean of a bootstrap sample
awk -F , -v seed="$1" '
    BEGIN { srand(seed) }
    FNR == 1 { file++; next }
    file == 1 { n++; d = NF - 1; y[n] = $NF; for (i = 1; i <= d; i++) x[n, i] = $i; next }
    !m[y[1]] { for (j = 1; j <= n; j++) {
        k = 1 + int(rand() * n); m[y[k]]++; for (i = 1; i <= d; i++) sum[y[k], i] += x[k, i]
    } }
    { best = -1; for (c in m) {
        far = 0; for (i = 1; i <= d; i++) far += ($i - sum[c, i] / m[c]) ^ 2
        if (best < 0 || far < least) { best = c; least = far }
    } print best }
' "$2" "$3" > "$4"
"""


@dataclass(frozen=True)
class Kind:
    """A classifier: its table, and which library it needs."""

    table: str
    library: str = ""
    dataset: str = "sklearn:wine"
    fraction: float = 1.0

    @property
    def is_here(self) -> bool:
        return not self.library or importlib.util.find_spec(self.library) is not None


KINDS: Mapping[str, Kind] = {
    "forest": Kind(
        'estimator = "sklearn.ensemble:RandomForestClassifier"\nparams = { n_estimators = 5 }'
    ),
    "lightgbm": Kind(
        'estimator = "lightgbm:LGBMClassifier"\n'
        "params = { n_estimators = 5, bagging_freq = 1, bagging_fraction = 0.5, verbose = -1 }",
        "lightgbm",
    ),
    "catboost": Kind(
        'estimator = "catboost:CatBoostClassifier"\nparams = { iterations = 5, verbose = 0 }',
        "catboost",
    ),
    "small": Kind(
        'module = "mynet:build"\nepochs = 1\nparams = { channels = 4 }',
        dataset="sklearn:digits",
        fraction=0.2,
    ),
    "net": Kind(
        'train = "mytrain:fit"\nencode = "dense"\nparams = { hidden = 8, epochs = 3, lr = 0.1 }'
    ),
    "softmax": Kind(
        'command = """python train.py --seed {seed} --lr 0.1\n'
        '    --train {train} --test {test} --out {out}"""\nencode = "dense"',
    ),
    "shell": Kind(
        'command = "sh nearest.sh {seed} {train} {test} {out}"\n'
        'encode = "dense"\nrows = "csv"\nscores = "labels"',
    ),
    "app": Kind(
        'command = """python hydra_app.py seed={seed}\n'
        '    data.train={train} data.test={test} out={out}"""\n'
        'files = ["hydra_app.yaml"]\nscores = "probabilities"',
        "hydra",
    ),
    "lit": Kind(
        'command = """python lit.py --init-seed {seeds.init} --order-seed {seeds.batch}\n'
        '    --train {train} --test {test} --out {out}"""\nencode = "dense"',
        "lightning",
    ),
}
HERE = {name: kind for name, kind in KINDS.items() if kind.is_here}
TOTAL = RUNS * len(HERE)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the code and a sweep of every kind whose library is here."""
    return once(tmp_path_factory, "kinds", made) / "own" / "kinds.toml"


def made(folder: Path) -> None:
    shutil.copytree(OWN, folder / "own")
    (folder / "own" / "nearest.sh").write_text(SHELL)
    text = HEAD
    for name, kind in HERE.items():
        text += GRID.format(name=name, dataset=kind.dataset, fraction=kind.fraction)
    text += "".join(f"[classifier.{name}]\n{kind.table}\n" for name, kind in HERE.items())
    write(folder / "own" / "kinds.toml", text)


@pytest.fixture(scope="module")
def undisturbed(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    folder = once(
        tmp_path_factory, "kinds-undisturbed", lambda made: analysed(train(file, made / "sweep"))
    )
    return Sweep(folder / "sweep")


def analysed(sweep: Sweep, *metrics: str) -> None:
    """Analyse a sweep whole, and show every kind on a page."""
    sweep.analyze(Options(metrics=metrics or Options().metrics, resamples=2), workers=1)
    page = sweep.report().read_text()
    assert all(name in page for name in HERE)
    cells = sweep.results["cells"]
    assert [*cells["n_runs"]] == [RUNS] * len(HERE)


def of_runs(sweep: Sweep) -> pl.DataFrame:
    return sweep.results["runs"].drop("recipe", "fit_seconds").sort("cell", "run_index")


@pytest.mark.parametrize("name", KINDS)
def test_twenty_seeds_of_a_kind_are_trained_and_differ(
    name: str, request: pytest.FixtureRequest
) -> None:
    kind = KINDS[name]
    if not kind.is_here:
        pytest.skip(f"{kind.library} is not installed")
    runs = of_runs(request.getfixturevalue("undisturbed")).filter(classifier=name)
    assert [*runs["run_index"]] == [*range(RUNS)]
    assert runs["accuracy"].n_unique() > 1


@pytest.mark.process
def test_killed_and_resumed_they_are_the_same(
    file: Path, undisturbed: Sweep, tmp_path: Path, stopped: list[Sweep]
) -> None:
    sweep = Sweep.plan(file, tmp_path / "sweep")
    stopped.append(sweep)
    sweep.submit(workers=2)
    wait_for(sweep, TOTAL // 3)
    for process in freeze_in_flight(sweep):
        os.kill(process, signal.SIGKILL)
    wait_until(lambda: not sweep.is_running, "the end of everything that was killed")
    assert TOTAL // 3 <= sweep.status()["runs"]["done"] < TOTAL
    resumed = command("resume", sweep.directory, "--workers", 2)
    assert resumed.returncode == 0, resumed.stderr
    finish(sweep, undisturbed)
    require_same(sweep, undisturbed)


def test_on_slurm_killed_and_resumed_they_are_the_same(
    slurm: Slurm, file: Path, undisturbed: Sweep, tmp_path: Path
) -> None:
    sweep = Sweep.plan(file, tmp_path / "sweep")
    here = profile(slurm, tmp_path, time='time = "0:20:00"', mem='mem = "4000M"')
    submission = sweep.submit(cluster=here)
    assert submission is not None
    wait_for(sweep, TOTAL // 3)
    for task in submission.tasks():
        if task.last.state == "running":
            os.kill(pid(task), signal.SIGKILL)
    sweep.wait()
    assert TOTAL // 3 <= sweep.status()["runs"]["done"] < TOTAL, report(sweep)
    resumed = command("resume", sweep.directory, "--cluster", here)
    assert resumed.returncode == 0, resumed.stderr
    finish(sweep, undisturbed)
    require_same(sweep, undisturbed)


def wait_for(sweep: Sweep, runs: int) -> None:
    wait_until(
        lambda: len(journaled(sweep)) >= runs,
        lambda: f"{runs} of {TOTAL} runs\n{report(sweep)}",
        timeout=600,
    )


def require_same(sweep: Sweep, undisturbed: Sweep) -> None:
    """A whole sweep, whose predictions are the same already, gives the same results."""
    assert sweep.status()["runs"]["done"] == TOTAL
    analysed(sweep, "accuracy")
    found = of_runs(sweep)
    known = [column.name for column in found if column.null_count() < TOTAL]
    assert {"cell", "run_index", "accuracy"} <= {*known}
    same = of_runs(undisturbed).select(known)
    assert_frame_equal(found.select(known), same, check_exact=True)
