import dataclasses

import google_crc32c
import numpy as np
import pytest

from orchestrator.store import encoding, reader
from orchestrator.store.errors import LeaseHeld
from orchestrator.store.lease import Lease, LeaseWatch
from orchestrator.store.repair import drop, repair
from orchestrator.store.rows import encode_row
from orchestrator.store.shards import publish
from orchestrator.store.splits import read_splits
from orchestrator.store.verify import verify
from tests.orchestrator.store.world import (
    NUMBER,
    World,
    assert_true_rows,
    finished,
    prediction,
    spec,
    truth,
)

LAYOUTS = [
    spec(2),
    spec(2, scores="all"),
    spec(3),
    spec(3, dtype="float16", scores="all"),
    spec(3, dtype="float16"),
    spec(2, dtype="float16"),
    spec(3, scores="none"),
    spec(2, curves=True),
]


PARTS = [(spec(2), 1), (spec(3), 0), (spec(3), 2), (spec(3, dtype="float16", scores="all"), 1)]
PARTS += [(spec(2, curves=True), 3)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(encoding, "ATTEMPTS", 1)


def full(folder, made=None) -> World:
    world = World(folder, made)
    world.write_splits()
    world.finish(*range(10))
    for shard in range(3):
        publish(world.group, shard, world.index(), world.watch)
    return world


@pytest.fixture
def world(tmp_path):
    return full(tmp_path)


def overwrite(world, name, row, value) -> None:
    """Store something else in a row, in a file that is whole, without touching checksums."""
    array, shard = world.spec.array(name), row // world.spec.shard_length
    start, stop = world.group.span(shard)
    values = encoding.read(world.group.folder / name, start, stop)
    values[row - start] = value
    key, encoded = encoding.encode(world.group.metadata(array), shard, values)
    (world.group.folder / name / key).write_bytes(encoded)


def reseal(world, row) -> None:
    """Make a row's checksum fit what is stored."""
    names = [array.name for array in world.spec.arrays if array.role == "prediction"]
    found = reader.read_rows(world.group, names, [row])
    stored = b"".join(np.ascontiguousarray(found[name][0]).tobytes() for name in names)
    overwrite(world, "crc", row, google_crc32c.value(stored))


def forget(world) -> None:
    for journal in world.journals.iterdir():
        journal.unlink()


@pytest.mark.parametrize("made", LAYOUTS)
def test_a_good_group_has_no_findings(tmp_path, made):
    world = full(tmp_path, made)
    checked = []
    assert list(verify(world.group, checked.append)) == []
    assert checked == [4, 4, 2]


def test_scores_without_probabilities(tmp_path):
    made = spec(3, probability="none")
    world = World(tmp_path, made)
    world.write_splits()
    with world.journal() as journal:
        for row in (0, 1):
            run = prediction(made, row)
            if row == 0:
                run = dataclasses.replace(run, confidence=np.full_like(run.confidence, np.nan))
            encoded = encode_row(made, run, truth(made)[row])
            journal.append(NUMBER, row, encoded, recipe=0, fit_seconds=1)
    publish(world.group, 0, world.index(), world.watch)
    assert [(f.rows, f.problem) for f in verify(world.group)] == [
        ((1,), "a confidence is no probability")
    ]


@pytest.mark.parametrize(("made", "part"), PARTS)
def test_changed_predictions_are_found_and_healed_or_dropped(tmp_path, made, part):
    names = [array.name for array in made.arrays if array.role == "prediction"]
    world = full(tmp_path, made)
    overwrite(world, names[part], 5, 1 if part == 0 else 0.25)
    findings = list(verify(world.group))
    assert [(f.rows, f.damaged) for f in findings] == [((5,), True)]
    done = repair([world.group], findings, world.journals, world.watch)
    assert (done.healed, done.dropped) == (1, 0)
    assert list(verify(world.group)) == []
    assert_true_rows(world.group, set(range(10)), {})
    forget(world)
    overwrite(world, names[part], 5, 1 if part == 0 else 0.25)
    done = repair([world.group], verify(world.group), world.journals, world.watch)
    assert (done.healed, done.dropped) == (0, 1)
    assert list(verify(world.group)) == []
    assert finished(world.group) == set(range(10)) - {5}
    world.finish(5)
    publish(world.group, 1, world.index(), world.watch)
    assert_true_rows(world.group, set(range(10)), {})


@pytest.mark.parametrize(
    ("made", "name", "value", "problem"),
    [
        (spec(2), "label", 3, "a label is no class"),
        (spec(2), "margin", np.nan, "margin is not finite"),
        (spec(2), "margin", np.inf, "margin is not finite"),
        (spec(2), "label", 1, "labels disagree with scores"),
        (spec(3), "label", 1, "labels disagree with scores"),
        (spec(3, scores="all"), "label", 1, "labels disagree with scores"),
        (spec(3), "confidence", 1.5, "a confidence is no probability"),
        (spec(2), "fit_seconds", np.nan, "fit_seconds is no duration"),
        (spec(2), "fit_seconds", -1, "fit_seconds is no duration"),
        (spec(2), "status", 9, "status disagrees with the plan"),
        (spec(2, curves=True), "train_accuracy", 1.5, "train_accuracy is impossible"),
        (spec(2, curves=True), "test_loss", -0.5, "test_loss is impossible"),
    ],
)
def test_wrong_values_are_found_whatever_the_checksum(tmp_path, made, name, value, problem):
    world = full(tmp_path, made)
    overwrite(world, name, 6, value)
    reseal(world, 6)
    findings = list(verify(world.group))
    assert {finding.rows for finding in findings} == {(6,)}
    assert problem in {finding.problem for finding in findings}
    repair([world.group], findings, world.journals, world.watch)
    # a journal that holds the same is no remedy: the row is to be trained again
    assert list(verify(world.group)) == []
    assert finished(world.group) == set(range(10)) - {6}


def test_ties_agree_with_either_label(tmp_path):
    world = full(tmp_path)
    overwrite(world, "margin", 6, 0)
    reseal(world, 6)
    assert list(verify(world.group)) == []


def test_wrong_padding_is_found_and_set_right(world):
    overwrite(world, "status", 11, 1)
    findings = list(verify(world.group))
    assert [finding.rows for finding in findings] == [(11,)]
    repair([world.group], findings, world.journals, world.watch)
    assert list(verify(world.group)) == []


def harm(file, kind) -> None:
    content = bytearray(file.read_bytes())
    if kind == "truncate":
        file.write_bytes(content[: len(content) // 2])
    elif kind == "empty":
        file.write_bytes(b"")
    elif kind == "remove":
        file.unlink()
    else:
        content[len(content) // 3] ^= 16
        file.write_bytes(content)


@pytest.mark.parametrize("kind", ["flip", "truncate", "empty", "remove"])
@pytest.mark.parametrize("name", ["margin", "crc"])
def test_harmed_files_are_found_and_healed_or_dropped(world, name, kind):
    file = world.group.file(world.spec.array(name), 1)
    harm(file, kind)
    findings = list(verify(world.group))
    rows = {row for finding in findings for row in finding.rows}
    assert rows
    assert rows <= {4, 5, 6, 7}
    assert all(finding.damaged for finding in findings)
    assert repair([world.group], findings, world.journals, world.watch).dropped == 0
    assert list(verify(world.group)) == []
    assert_true_rows(world.group, set(range(10)), {})
    forget(world)
    harm(file, kind)
    done = repair([world.group], verify(world.group), world.journals, world.watch)
    assert done.dropped == len(rows)
    assert list(verify(world.group)) == []
    left = set(range(10)) - rows
    assert finished(world.group) == left
    assert_true_rows(world.group, left, {})


def test_an_unreadable_status_costs_no_more_than_its_shard(world):
    forget(world)
    harm(world.group.file(world.spec.array("status"), 1), "truncate")
    repair([world.group], verify(world.group), world.journals, world.watch)
    assert finished(world.group) == {0, 1, 2, 3, 8, 9}
    assert list(verify(world.group)) == []


@pytest.mark.parametrize("name", ["y_true", "test_index"])
@pytest.mark.parametrize("kind", ["flip", "truncate"])
def test_harmed_test_sets_are_found_and_written_again(world, name, kind):
    harm(world.group.file(world.spec.array(name), 0), kind)
    findings = list(verify(world.group))
    assert 0 in {finding.split for finding in findings}
    assert repair([world.group], findings[:1], world.journals, world.watch).splits == 1
    assert (read_splits(world.group)[1] == -1).all()
    world.write_splits()
    assert list(verify(world.group)) == []


def test_runs_without_a_test_set_are_found(tmp_path):
    world = World(tmp_path)
    world.finish(0)
    publish(world.group, 0, world.index(), world.watch)
    assert [f.problem for f in verify(world.group)] == ["the test set of this run is not stored"]


def test_dropped_rows_stay_dropped_until_trained_again(world):
    old = world.index()
    drop({world.group: {2, 3}}, world.journals, world.watch)
    assert finished(world.group) == set(range(10)) - {2, 3}
    for index in (old, world.index()):
        assert publish(world.group, 0, index, world.watch).added == 0
    world.finish(3)
    assert publish(world.group, 0, old, world.watch).added == 1
    assert finished(world.group) == set(range(10)) - {2}


def test_repair_refuses_while_somebody_works(world):
    other = Lease(LeaseWatch(world.watch.folder, 2.0), "task-1")
    other.take()
    with other.kept(), pytest.raises(LeaseHeld, match="task-1"):
        repair([world.group], [], world.journals, LeaseWatch(world.watch.folder, 2.0))
