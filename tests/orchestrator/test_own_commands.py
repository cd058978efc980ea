"""Users' modules and commands in sweeps: killed, resumed, edited, failing, searched."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

from manyseed import Sweep
from manyseed.jobs.own.calling import OwnError
from manyseed.jobs.run import MachineError, seed31, stream
from manyseed.jobs.trainer import Trainer, generators
from manyseed.orchestrator.errors import RunsError, UserError
from manyseed.orchestrator.plans.planning import plan_change
from manyseed.orchestrator.progress.logs import failures
from manyseed.orchestrator.runs import find_run
from manyseed.orchestrator.working.process import _failure
from manyseed.orchestrator.working.queue import Batch
from tests.encoded import dense
from tests.orchestrator.conftest import inside, train, wait_until, write
from tests.orchestrator.test_own import resumed

OWN = Path(__file__).parents[2] / "examples" / "own"

SWEEP = """
name    = "both"
seed    = 3
repeats = 1
runs    = 20
[[grid]]
dataset            = ["sklearn:wine"]
classifier         = ["net", "program"]
perturb_continuous = ["none", "relative:0.5"]
[classifier.net]
module = "flat:Flat"
epochs = 3
[classifier.program]
command = '''python train.py --seed {seed} --lr {hparams.lr}
    --train {train} --test {test} --out {out}'''
encode  = "dense"
space   = { lr = { low = 1e-3, high = 1.0, default = 0.1, log = true } }
"""
FLAT = """
from torch import nn

class Flat(nn.Sequential):
    def __init__(self, shape, n_classes):
        super().__init__(nn.Linear(shape[0], 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, n_classes))
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a sweep file and the code that it names; and a temporary folder."""
    (tmp_path / "flat.py").write_text(FLAT)
    shutil.copy(OWN / "train.py", tmp_path)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return write(tmp_path / "both.toml", SWEEP)


def left(tmp_path: Path) -> list[Path]:
    return [*(tmp_path / "scratch").glob("manyseed-*")]


@pytest.mark.slow
@pytest.mark.process
def test_twenty_seeds_killed_and_resumed_are_those_of_the_program_itself(
    project: Path, tmp_path: Path, stopped: list[Sweep]
) -> None:
    def ended() -> None:
        wait_until(lambda: not left(tmp_path), "the end of what commands left")

    sweep = resumed(project, tmp_path, stopped, ended)
    assert not left(tmp_path)
    scores = sweep.runs("sklearn:wine", "program")["score"].isel(epoch=-1).values
    trainer = Trainer()
    cells = sweep.runs("sklearn:wine", "program")["cell"].values
    for cell in {*cells.tolist()}:
        found = find_run(sweep.paths, f"{cell}:0:7")
        data = trainer.training_set(found.run)
        np.testing.assert_allclose(
            scores[found.row], by_hand(data, seed31(generators(found.run).batch)), rtol=1e-4
        )
    for number in range(4):
        assert sweep.rerun(f"{number}:0:3")["equal"]
    saved = tmp_path / "net.pt"
    sweep.rerun("0:0:1", save=saved)
    import torch

    names = [*torch.load(saved, weights_only=True)]
    assert names == ["0.weight", "0.bias", "3.weight", "3.bias"]


def by_hand(data: object, seed: int) -> np.ndarray:
    """What examples/own/train.py does, in a few lines."""
    X, X_test = dense(data)  # type: ignore[arg-type]
    random, wanted = np.random.default_rng(seed), np.eye(3)[data.y]  # type: ignore[attr-defined]
    W = random.normal(size=(X.shape[1], 3)) / np.sqrt(X.shape[1])
    for _ in range(10):
        for rows in np.array_split(random.permutation(len(X)), max(1, len(X) // 16)):
            shares = np.exp(X[rows] @ W)
            shares /= shares.sum(axis=1, keepdims=True)
            W -= 0.1 * X[rows].T @ (shares - wanted[rows]) / len(rows)
    return np.asarray(X_test @ W)


def test_edited_files_change_nothing_that_was_submitted_and_are_refused_afterwards(
    project: Path, tmp_path: Path
) -> None:
    text = SWEEP.replace('"net", "program"', '"program"').replace("20", "4")
    sweep = Sweep.plan(write(project, text), tmp_path / "sweep")
    sweep.submit(workers=1, limit=2)
    sweep.wait()
    (copy,) = (sweep.paths.tasks / "code").iterdir()
    assert [each.name for each in copy.iterdir()] == ["train.py"]
    source = tmp_path / "train.py"
    source.write_text(source.read_text().replace("default=10", "default=11"))
    code, said = inside("resume", sweep.directory, "--workers", 1)
    assert code == 2
    assert '+    parser.add_argument("--epochs", type=int, default=11)' in said
    assert "version" in said
    source.unlink()  # found nowhere any more: with the copy
    sweep.submit(workers=1)
    sweep.wait()
    assert sweep.status()["runs"]["done"] == 8


FAILS = """
import sys
import time
import numpy as np
train, test, out, mode = sys.argv[1:5]
print("mode", mode, flush=True)
if mode == "fail":
    sys.exit("planted")
if mode == "hang":
    time.sleep(600)
np.save(out, np.zeros((len(np.load(test)["X"]), 3)))
"""
FAILING = """
name    = "failing"
seed    = 3
repeats = 1
runs    = 2
[[grid]]
dataset            = ["sklearn:wine"]
classifier         = ["program"]
hparams            = ["grid"]
perturb_continuous = ["relative:0.5"]
[classifier.program]
command = "python train.py {train} {test} {out} {hparams.mode}"
timeout = 10
params  = { mode = "write" }
grid    = { mode = ["write", "fail", "hang"] }
"""


@pytest.mark.slow
def test_runs_fail_with_their_logs_and_others_go_on(project: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FAILS)
    sweep = train(write(project, FAILING), tmp_path / "sweep")
    groups = {group.error.rpartition("CommandError: ")[2]: group for group in failures(sweep.paths)}
    assert {said: group.count for said, group in groups.items()} == {
        "the command ended with code 1: planted": 2,
        "the command was ended after 10 s, its timeout": 2,
    }
    assert sweep.status()["runs"]["done"] == 2
    assert all("It printed last:\nmode " in group.traceback for group in groups.values())
    assert not left(tmp_path)


SOME = """
import sys
import numpy as np
seed, train, test, out = sys.argv[1:]
fails = int(seed) % PART == 0
print("seed", seed)
if fails:
    raise ValueError("planted")
np.save(out, np.random.default_rng(int(seed)).normal(size=(len(np.load(test)["X"]), 3)))
"""
OF_SEED = """
name = "some"
seed = 3
repeats = 1
runs = 2
[[grid]]
dataset = ["sklearn:wine"]
classifier = ["program"]
[classifier.program]
command = "python train.py {seed} {train} {test} {out}"
"""


def test_a_program_that_fails_with_some_seeds_can_be_repeated_and_trained_all_the_same(
    project: Path, tmp_path: Path
) -> None:
    first = seed31(stream(1, "batch", "probe"))
    (tmp_path / "train.py").write_text(SOME.replace("int(seed) % PART == 0", f"seed == '{first}'"))
    file = write(project, OF_SEED)
    code, printed = inside("plan", file, "--out", tmp_path / "sweep")
    said = " ".join(printed.split())
    assert code == 2, printed
    assert f"It ran: python train.py {first} {{train}} {{test}} {{out}}" in said
    assert "with other seeds it does not: unprobed, all runs are trained" in said
    assert "add to [classifier.program]: probe = false" in said
    (tmp_path / "train.py").write_text(SOME.replace("PART", "1"))
    code, printed = inside("plan", file, "--out", tmp_path / "sweep")
    said = " ".join(printed.split())
    assert (code, f"It ran: python train.py {first}" in said) == (2, True)
    assert "other seeds" not in said
    sweep = train(write(file, OF_SEED + "probe = false\n"), tmp_path / "sweep")
    seeds = [seed31(generators(find_run(sweep.paths, f"0:0:{run}").run).batch) for run in (0, 1)]
    _, printed = inside("logs", sweep.directory, "--failed")
    error, _, printed_first, *_ = printed.splitlines()
    assert "2 × the command ended with code 1: ValueError: planted" in error
    assert printed_first.strip() == "It printed last:", printed
    assert f"It ran: python train.py {seeds[0]} {{train}} {{test}} {{out}}" in printed
    assert "contextlib" not in printed
    assert "CommandError" not in printed
    _, printed = inside("logs", sweep.directory, "0:0:1")
    assert f"It ran: python train.py {seeds[1]} {{train}}" in printed


MISTAKES = {
    "import nowhere_at_all": "ModuleNotFoundError: No module named 'nowhere_at_all'",
    "print('nothing')": "the command wrote nothing to {out}",
    "def f(:": "is not Python",
    "import sys, numpy as np\nnp.save(sys.argv[-1], np.random.rand(33, 3))": (
        "two fits with the same seeds differ"
    ),
    "import sys, numpy as np\nnp.save(sys.argv[-1], np.zeros((33, 4)))": (
        "the command returned shape (33, 4); (33, 3) is needed"
    ),
    "import sys, numpy as np\nnp.save(sys.argv[-1], np.full((33, 3), np.nan))": (
        "the command returned scores that are not finite"
    ),
    "import threading\nprint('stuck', flush=True)\nthreading.Event().wait()": (
        "the command was ended after 5 s, its timeout It printed last: stuck"
    ),
}


def test_failures_and_faults_have_no_internal_names() -> None:
    for error, said in (
        (
            MachineError("the command cannot be started: pyton"),
            "the command cannot be started: pyton",
        ),
        (OwnError("returned nothing"), "returned nothing"),
        (ValueError("no"), "ValueError: no"),
    ):
        error.add_note("It printed last:\nno")
        batch = Batch(group=0, shard=0, cell=0, repeat=0, runs=((0, 0),))
        assert _failure(batch, 0, 0, error).error == said


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_in_a_program_are_one_message(project: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "train.py").write_text(text)
    text_of_sweep = SWEEP.replace('"net", "program"', '"program"')
    file = write(project, text_of_sweep.replace("encode  =", "timeout = 5\nencode ="))
    code, printed = inside("plan", file, "--out", tmp_path / "sweep")
    assert code == 2, printed
    assert MISTAKES[text] in " ".join(printed.split())
    assert "classifier.program.command" in printed
    assert not (tmp_path / "sweep").exists()
    assert not left(tmp_path)


def test_a_program_that_is_missing_is_named(project: Path, tmp_path: Path) -> None:
    text = SWEEP.replace('"net", "program"', '"program"').replace(
        "'''python train", "'''pyton train"
    )
    assert "pyton" in text
    code, printed = inside("plan", write(project, text), "--out", tmp_path / "sweep")
    assert code == 2, printed
    assert "the command cannot be started: pyton" in " ".join(printed.split())
    assert "MachineError" not in printed
    assert not (tmp_path / "sweep").exists()


NOT_FINITE = """
from torch import nn
class Flat(nn.Linear):
    def __init__(self, shape):
        super().__init__(shape[0], 3)
    def forward(self, x):
        return super().forward(x) / 0
"""


def test_mistakes_in_a_factory_are_one_message(project: Path, tmp_path: Path) -> None:
    for text, said in {
        "def Flat(shpae): ...": "it asks for shpae; did you mean shape?",
        "from torch import nn\ndef Flat(shape): return nn.Linear(shape[0], 7)": (
            "returned shape (32, 7); (32, 3) is needed"
        ),
        "import nowhere_at_all": "cannot be imported: ModuleNotFoundError: No module named 'now",
        NOT_FINITE: "of 99 scores are not finite",
    }.items():
        (tmp_path / "flat.py").write_text(text)
        code, printed = inside("plan", project, "--out", tmp_path / "sweep")
        assert code == 2, printed
        assert said in " ".join(printed.split())
        assert "classifier.net.module" in printed
        assert not (tmp_path / "sweep").exists()


def test_a_placeholder_that_is_not_there_is_one_message(project: Path, tmp_path: Path) -> None:
    file = write(project, SWEEP.replace("{hparams.lr}", "{hparams.lt}"))
    code, printed = inside("plan", file, "--out", tmp_path / "sweep")
    assert code == 2
    assert "did you mean {hparams.lr}?" in " ".join(printed.split())


def test_another_timeout_is_the_same_cell(project: Path, tmp_path: Path) -> None:
    sweep = Sweep.plan(project, tmp_path / "sweep")
    again = write(project, SWEEP.replace("encode  =", "timeout = 9\nencode ="))
    assert plan_change(again, sweep.directory).is_empty


@pytest.mark.slow
def test_a_timeout_ends_reruns_and_searches_too(project: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FAILS)
    text = (
        FAILING.replace('["grid"]', '["default"]')
        .replace('grid    = { mode = ["write", "fail", "hang"] }', "")
        .replace("{hparams.mode}", "{hparams.mode} {hparams.lr}")
        .replace("runs    = 2", "runs = 1\ntune = { draws = 2 }")
        + "space = { lr = { low = 0.1, high = 1.0, default = 0.5 } }\n"
    )
    sweep = train(write(project, text), tmp_path / "sweep")
    assert sweep.status()["runs"]["done"] == 1
    assert sweep.rerun("0:0:0")["equal"]
    text = text.replace('["default"]', '["default", "tuned"]')
    short = write(project, text.replace("timeout = 10", "timeout = 0.01"))  # no Python is as fast
    Sweep.plan(short, tmp_path / "sweep")
    ended = "the command was ended after 0.01 s, its timeout"
    with pytest.raises(RunsError, match=f"the fit of 0:0:0 fails: .*{ended}"):
        sweep.rerun("0:0:0")
    with pytest.raises(RunsError, match=f"all 2 draws failed, .*{ended}"):
        sweep.tune(workers=1)
    assert not left(tmp_path)


@pytest.mark.slow
def test_searches_and_noise_act_on_modules_and_commands(project: Path, tmp_path: Path) -> None:
    text = SWEEP.replace("runs    = 20", "runs = 2\ntune = { draws = 2 }")
    text = text.replace(
        'perturb_continuous = ["none", "relative:0.5"]',
        'hparams = ["tuned"]\nperturb_hparams = ["none", "relative:0.5"]',
    )
    sweep = Sweep.plan(write(project, text), tmp_path / "sweep")
    for search in sweep.tune(workers=1):
        found = json.loads(sweep.paths.tuned(search.id).read_text())
        assert len({draw["hparams"]["lr"] for draw in found["draws"]}) == 2
        assert all(draw["accuracy"] is not None for draw in found["draws"])
    sweep.submit(workers=2)
    sweep.wait()
    assert sweep.status()["runs"]["done"] == 8
    moved = [
        len({sweep.show(f"{cell}:0:{run}")["fitted_with"]["lr"] for run in (0, 1)})
        for cell in range(4)
    ]
    assert sorted(moved) == [1, 1, 2, 2]
    assert not left(tmp_path)


def test_modules_and_commands_have_no_members(project: Path, tmp_path: Path) -> None:
    for name, said in (("net", "needs one of the built-in networks"), ("program", "has no epochs")):
        text = SWEEP.replace('"net", "program"', f'"{name}"')
        text = text.replace("[[grid]]", '[[grid]]\nensembling = ["snapshot"]')
        with pytest.raises(UserError, match=said):
            plan_change(write(project, text), tmp_path / "sweep")


def test_several_seeds_are_told_with_their_streams(project: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import sys, numpy as np\none, two, test, _, out = sys.argv[1:]\n"
        "drawn = [np.random.default_rng(int(seed)).normal(size=(33, 3)) for seed in (one, two)]\n"
        "np.save(out, sum(drawn))\n"
    )
    text = SWEEP.replace('"net", "program"', '"program"').partition("[classifier.net]")[0]
    text += "[classifier.program]\ncommand = '''python train.py\n"
    text += "    {seeds.init} {seeds.batch} {test} {train} {out}'''\n"
    summary = plan_change(write(project, text), tmp_path / "sweep").summary()
    told = "program: seeds: {seeds.init} from init, {seeds.batch} from batch"
    assert told in summary["notes"]
