"""A fit that is interrupted, in the middle of an epoch, ends as one that never was."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from manyseed.jobs import classifiers
from manyseed.jobs.cells import resolve_cell
from manyseed.jobs.datasets import resolve
from manyseed.jobs.run import Run
from manyseed.jobs.trainer import Trainer
from manyseed.jobs.training import loop
from manyseed.jobs.training.checkpoint import Checkpoint
from manyseed.jobs.training.handling import Handling
from tests.jobs.classifiers import examples
from tests.jobs.classifiers.conftest import pretrained  # noqa: F401

NETWORKS = examples.NETWORKS

# Trains with a checkpoint after every epoch; in the middle of epoch `stop` it says so and waits.
PROCESS = """
import json, sys
from pathlib import Path
import numpy as np
from manyseed.jobs.training import loop
from manyseed.jobs.training.checkpoint import Checkpoint
from manyseed.jobs.training.handling import Handling
from tests.jobs.classifiers import examples

path, stop, out = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
epochs = 0
cut = loop.batches

def batches(*arguments):
    global epochs
    epochs += 1
    for number, batch in enumerate(cut(*arguments)):
        if epochs == stop and number == 1:
            print("in the middle", flush=True)
            sys.stdin.read()
        yield batch

loop.batches = batches
options = {"epochs": 6, "snapshots": [1, 4], "hparams": {"width1": 32, "width2": 33}}
result = examples.fit("mlp", examples.multiclass()[0], options, checkpoint=Checkpoint(path, "k", 0))
np.save(out, result.scores)
print(json.dumps(epochs))
"""


def start(path, stop, out):
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(path), str(stop), str(out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_killed_process_continues_and_ends_bit_equal(tmp_path):
    path, out = tmp_path / "run.checkpoint", tmp_path / "scores.npy"
    process = start(path, 3, out)
    assert process.stdout.readline() == "in the middle\n"
    process.kill()  # SIGKILL
    assert process.wait() == -9
    process.communicate()
    assert not out.exists()
    done = start(path, 0, out)
    printed, _ = done.communicate("")
    assert done.returncode == 0
    assert json.loads(printed) == 4  # epochs 3 to 6
    options = {"epochs": 6, "snapshots": [1, 4], "hparams": {"width1": 32, "width2": 33}}
    whole = examples.fit("mlp", examples.multiclass()[0], options)
    np.testing.assert_array_equal(np.load(out), whole.scores)


class Interrupted(Exception):
    pass


def interrupt(patch, epoch):
    """Let a training die in its epoch `epoch`, counted from 1, and count epochs that begin."""
    cut, begun = loop.batches, []

    def batches(*arguments):
        begun.append(1)
        if len(begun) == epoch:
            raise Interrupted
        return cut(*arguments)

    patch.setattr(loop, "batches", batches)
    return begun


def case(name):
    data, y_test = examples.of(name)()
    options = {**examples.OPTIONS[name], "epochs": 3, "snapshots": [1]}
    return replace(data, y_test=y_test), options


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_goes_on_from_its_last_epoch(name, tmp_path, monkeypatch):
    data, options = case(name)
    checkpoint = Checkpoint(tmp_path / "run", "key", every=0)
    whole = examples.fit(name, data, options, curves=True)
    with monkeypatch.context() as patch:
        interrupt(patch, 3)
        with pytest.raises(Interrupted):
            examples.fit(name, data, options, curves=True, checkpoint=checkpoint)
    with monkeypatch.context() as patch:
        begun = interrupt(patch, None)
        result = examples.fit(name, data, options, curves=True, checkpoint=checkpoint)
        assert len(begun) == 1
    np.testing.assert_array_equal(result.scores, whole.scores)
    for curve, values in whole.curves.items():
        np.testing.assert_array_equal(result.curves[curve], values)


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """Return a checkpoint after two of three epochs of an MLP."""
    checkpoint = Checkpoint(tmp_path / "run", "key", every=0)
    data, options = case("mlp")
    with monkeypatch.context() as patch:
        interrupt(patch, 3)
        with pytest.raises(Interrupted):
            examples.fit("mlp", data, options, checkpoint=checkpoint)
    return checkpoint


def epochs_of(monkeypatch, checkpoint, options=None, **changes):
    data, usual = case("mlp")
    with monkeypatch.context() as patch:
        begun = interrupt(patch, None)
        examples.fit("mlp", data, options or usual, checkpoint=checkpoint, **changes)
    return len(begun)


def test_only_the_same_training_is_continued(stopped, monkeypatch):
    other = replace(stopped, key="another run", every=1e9)
    assert epochs_of(monkeypatch, other) == 3
    assert epochs_of(monkeypatch, replace(stopped, every=1e9), curves=True) == 3
    _, options = case("mlp")
    more = {**options, "snapshots": [1, 2]}
    assert epochs_of(monkeypatch, replace(stopped, every=1e9), more) == 3
    assert epochs_of(monkeypatch, stopped) == 1


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-100], lambda b: b"", lambda b: b[:999] + b"!" + b[1000:]]
)
def test_a_damaged_checkpoint_is_no_checkpoint(stopped, monkeypatch, damage):
    stopped.path.write_bytes(damage(stopped.path.read_bytes()))
    assert epochs_of(monkeypatch, stopped) == 3


def test_nothing_is_saved_before_it_is_time(tmp_path):
    data, options = case("mlp")
    checkpoint = Checkpoint(tmp_path / "run", "key", every=1e9)
    examples.fit("mlp", data, options, checkpoint=checkpoint)
    assert list(tmp_path.iterdir()) == []


def test_a_trainer_hands_both_on(tmp_path, monkeypatch):
    dataset = resolve("synthetic:gaussian", n_samples=120)
    model = classifiers.resolve("mlp", {"epochs": 3, "hparams": {"width1": 32}}, dataset)
    run = Run(resolve_cell(1, dataset, model).cell, 0, 0)
    checkpoint = Checkpoint(tmp_path / "run", "key", every=0)
    handling = Handling(curves=True, checkpoint=checkpoint)
    whole = Trainer().train(run, handling)
    with monkeypatch.context() as patch:
        begun = interrupt(patch, None)
        again = Trainer().train(run, handling)
        assert len(begun) == 1
    np.testing.assert_array_equal(again.scores, whole.scores)
    y_true = Trainer().test_set(run.cell, 0).y_true
    assert again.curves["test_accuracy"][-1] == np.float32((again.label[-1] == y_true).mean())


def test_removing_takes_what_killed_writers_left(stopped):
    stray = stopped.path.with_name(f".{stopped.path.name}.1234.partial")
    stray.touch()
    stopped.path.with_name("another").touch()
    stopped.remove()
    assert [path.name for path in stopped.path.parent.iterdir()] == ["another"]
    stopped.remove()
