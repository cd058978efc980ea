"""Members beside a checkpoint: written once, whole, and of no use where one is missing."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

from manyseed.jobs import whole
from manyseed.jobs.ensembling.ensemble import Ensembling
from manyseed.jobs.ensembling.methods import MEMBER_ARRAYS, Members
from manyseed.jobs.training import checkpoint
from manyseed.jobs.training.checkpoint import Checkpoint, TrainingParts, TrainingState

ROWS, CLASSES = 5, 3
BYTES = ROWS * CLASSES * 4


def logits(number: int) -> np.ndarray:
    return np.random.default_rng(number).normal(size=(ROWS, CLASSES))


def course(count: int = 8) -> Ensembling:
    return Ensembling(1, lambda *_: 0.1, Members(count, MEMBER_ARRAYS[:1]))


def parts(members: Ensembling) -> TrainingParts:
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return TrainingParts(model, optimizer, np.random.default_rng(0), trajectory=members)


def advance(saved: Checkpoint, until: int) -> TrainingParts:
    """Go on from a checkpoint, one member and one save an epoch, as a training does."""
    own = parts(course())
    progress = checkpoint.restore(saved, own)
    assert taken(own) == progress.epoch
    while progress.epoch < until:
        own.trajectory.take(logits(progress.epoch))
        progress.epoch += 1
        checkpoint.save(saved, own, progress)
    return own


def taken(own: TrainingParts) -> int:
    return own.trajectory.taken


def files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkpoint:
    """A checkpoint beside which every two members are a file."""
    monkeypatch.setattr(checkpoint, "LEAST", 2 * BYTES)
    (tmp_path / "0-10").touch()  # of another run
    return Checkpoint(tmp_path / "0-1", "key", every=0)


def whole_ensemble() -> dict[str, np.ndarray]:
    members = Members(8, MEMBER_ARRAYS[:1])
    for number in range(8):
        members.add(logits(number))
    return members.arrays()


def assert_whole(own: TrainingParts) -> None:
    for name, values in whole_ensemble().items():
        np.testing.assert_array_equal(own.trajectory.arrays()[name], values)


@pytest.mark.parametrize("stops", [(1, 8), (2, 8), (3, 4, 7, 8), (5, 8), (8, 8)])
def test_what_goes_on_has_all_members_bit_for_bit(
    saved: Checkpoint, stops: tuple[int, ...]
) -> None:
    for stop in stops:
        own = advance(saved, stop)
        held = list(saved.path.parent.glob("0-1.*"))
        assert len(held) == stop // 2
        assert {file.stat().st_size for file in held} <= {2 * BYTES}
    assert_whole(own)
    saved.remove()
    assert files(saved.path.parent) == ["0-10"]


def test_a_file_beside_is_written_once(saved: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    placed: list[str] = []

    def place(path: Path, write: object) -> None:
        if path != saved.path:  # the checkpoint itself
            placed.append(path.name)
        whole.place(path, write)

    monkeypatch.setattr(checkpoint, "place", place)
    advance(saved, 5)
    advance(saved, 8)
    assert len(placed) == len({*placed}) == 4
    # so a checkpoint does not grow with them
    size = saved.path.stat().st_size
    monkeypatch.setattr(checkpoint, "LEAST", 1e9)
    large = Checkpoint(saved.path.with_name("0-2"), "key", every=0)
    advance(large, 8)
    assert large.path.stat().st_size > size + 5 * BYTES
    assert not [*large.path.parent.glob("0-2.*")]


@pytest.mark.parametrize("harm", ["missing", "changed", "cut"])
def test_without_a_file_beside_a_training_begins_again(saved: Checkpoint, harm: str) -> None:
    advance(saved, 5)
    first = min(saved.path.parent.glob("0-1.*"))
    content = first.read_bytes()
    if harm == "missing":
        first.unlink()
    else:
        first.write_bytes(content[:-4] if harm == "cut" else b"!" + content[1:])
    own = parts(course())
    before = own.order.bit_generator.state
    assert checkpoint.restore(saved, own).epoch == 0
    assert (taken(own), own.order.bit_generator.state) == (0, before)
    assert_whole(advance(saved, 8))  # and mends the file on its way
    assert first.read_bytes() == content


def test_a_process_that_dies_between_both_leaves_the_earlier_checkpoint(
    saved: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance(saved, 3)
    own = parts(course())
    progress = checkpoint.restore(saved, own)
    own.trajectory.take(logits(3))
    progress.epoch = 4

    class Killed(Exception):
        pass

    def killed(path: Path, write: object) -> None:
        if path == saved.path:
            raise Killed
        whole.place(path, write)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "place", killed)
        with pytest.raises(Killed):
            checkpoint.save(saved, own, progress)
    assert len([*saved.path.parent.glob("0-1.*")]) == 2
    assert taken(advance(saved, 3)) == 3
    assert_whole(advance(saved, 8))
    saved.remove()
    assert files(saved.path.parent) == ["0-10"]


def test_two_that_train_the_same_run_harm_neither(saved: Checkpoint) -> None:
    """A process that was held for dead goes on: it has saved at other moments."""
    advance(saved, 3)
    first, other = parts(course()), parts(course())
    assert checkpoint.restore(saved, first) == checkpoint.restore(saved, other)
    for own, stops in ((first, (6,)), (other, (4, 5)), (first, (7,)), (other, (8,))):
        for stop in stops:
            while taken(own) < stop:
                own.trajectory.take(logits(taken(own)))
            checkpoint.save(saved, own, TrainingState(epoch=stop))
            again = parts(course())
            assert checkpoint.restore(saved, again).epoch == stop
            assert taken(again) == stop
    assert_whole(again)


def test_a_checkpoint_of_an_earlier_version_holds_all_members(saved: Checkpoint) -> None:
    own = parts(course())
    for number in range(3):
        own.trajectory.take(logits(number))
    with mock.patch.object(checkpoint, "LEAST", 1e9):
        checkpoint.save(saved, own, TrainingState(epoch=3))
    content = torch.load(io.BytesIO(saved.path.read_bytes()[32:]), weights_only=True)
    assert content.pop("beside") == []
    file = io.BytesIO()
    torch.save(content, file)
    saved.path.write_bytes(hashlib.sha256(file.getvalue()).digest() + file.getvalue())
    assert_whole(advance(saved, 8))
