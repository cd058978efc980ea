import dataclasses
import itertools
import zlib
from contextlib import ExitStack

import google_crc32c
import numpy as np
import pytest

from manyseed.jobs import whole
from manyseed.orchestrator.disk.lease import Lease, LeaseWatch
from manyseed.orchestrator.errors import DamagedShard, LeaseHeld
from manyseed.orchestrator.store import encoding, reader
from manyseed.orchestrator.store import repair as module
from manyseed.orchestrator.store.compact import compact
from manyseed.orchestrator.store.coordinates import TRAIN_ACCURACY
from manyseed.orchestrator.store.journal import encode_row
from manyseed.orchestrator.store.ledger import count_retrained
from manyseed.orchestrator.store.repair import drop, repair
from manyseed.orchestrator.store.shards import publish
from manyseed.orchestrator.store.verify import Finding, verify, verify_journals
from tests.orchestrator.store.world import (
    NUMBER,
    REPEATS,
    SAMPLES,
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
    spec(3, curves=True, optional=(TRAIN_ACCURACY.of(),)),
]


PARTS = [(spec(2), 1), (spec(3), 0), (spec(3), 2), (spec(3, dtype="float16", scores="all"), 1)]
PARTS += [(spec(2, curves=True), 3), (spec(2, optional=(TRAIN_ACCURACY.of(),)), 2)]


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
    for shard in range(world.group.shards):
        world.group.replica(shard).unlink(missing_ok=True)


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
        ((1,), "a confidence is not a probability")
    ]


@pytest.mark.parametrize(("made", "part"), PARTS)
def test_changed_predictions_are_found_and_healed_or_dropped(tmp_path, made, part):
    names = [array.name for array in made.arrays if array.role == "prediction"]
    world = full(tmp_path, made)
    overwrite(world, names[part], 5, 1 if part == 0 else 0.25)
    findings = list(verify(world.group))
    assert [(f.rows, f.damaged) for f in findings] == [((5,), True)]
    done = repair([world.group], findings, world.journal_folder, world.watch)
    assert (done.healed, done.dropped) == (1, 0)
    assert list(verify(world.group)) == []
    assert_true_rows(world.group, set(range(10)), {})
    forget(world)
    overwrite(world, names[part], 5, 1 if part == 0 else 0.25)
    done = repair([world.group], verify(world.group), world.journal_folder, world.watch)
    assert (done.healed, done.dropped) == (0, 1)
    assert list(verify(world.group)) == []
    assert finished(world.group) == set(range(10)) - {5}
    world.finish(5)
    publish(world.group, 1, world.index(), world.watch)
    assert_true_rows(world.group, set(range(10)), {})


@pytest.mark.parametrize(
    ("made", "name", "value", "problem"),
    [
        (spec(2), "label", 3, "a label is not a class"),
        (spec(2), "margin", np.nan, "margin is not finite"),
        (spec(2), "margin", np.inf, "margin is not finite"),
        (spec(2), "label", 1, "labels disagree with scores"),
        (spec(3), "label", 1, "labels disagree with scores"),
        (spec(3, scores="all"), "label", 1, "labels disagree with scores"),
        (spec(3), "confidence", 1.5, "a confidence is not a probability"),
        (spec(2, curves=True), "train_accuracy", 1.5, "train_accuracy is impossible"),
        (spec(2, curves=True), "test_loss", -0.5, "test_loss is impossible"),
        (
            spec(2, optional=(TRAIN_ACCURACY.of(),)),
            "final_train_accuracy",
            1.01,
            "final_train_accuracy is impossible",
        ),
    ],
)
def test_wrong_values_are_found_whatever_the_checksum(tmp_path, made, name, value, problem):
    world = full(tmp_path, made)
    overwrite(world, name, 6, value)
    reseal(world, 6)
    findings = list(verify(world.group))
    assert {finding.rows for finding in findings} == {(6,)}
    assert problem in {finding.problem for finding in findings}
    repair([world.group], findings, world.journal_folder, world.watch)
    # a journal that holds the same is no remedy: the row is to be trained again
    assert list(verify(world.group)) == []
    assert finished(world.group) == set(range(10)) - {6}


@pytest.mark.parametrize("value", [-1, np.inf])
@pytest.mark.parametrize("copied", [True, False])
def test_a_time_that_cannot_be_is_copied_back_or_unknown(world, value, copied):
    if not copied:
        world.group.replica(1).unlink()
    overwrite(world, "fit_seconds", 6, value)
    findings = list(verify(world.group))
    assert [(f.rows, f.problem) for f in findings] == [((6,), "fit_seconds is not a duration")]
    assert repair([world.group], findings, world.journal_folder, world.watch).dropped == 0
    assert reader.read_array(world.group, "fit_seconds")[6] == pytest.approx(
        6 if copied else np.nan, nan_ok=True
    )
    assert list(verify(world.group)) == []  # unknown is no finding
    assert finished(world.group) == set(range(10))
    assert count_retrained([world.group], world.index()) == 0


def test_a_status_that_cannot_be_is_told_from_the_checksum(world):
    overwrite(world, "status", 6, 9)
    findings = list(verify(world.group))
    assert [(f.rows, f.problem) for f in findings] == [((6,), "status disagrees with the plan")]
    forget(world)
    assert repair([world.group], findings, world.journal_folder, world.watch).dropped == 0
    assert list(verify(world.group)) == []
    assert_true_rows(world.group, set(range(10)), {})


def test_ties_agree_with_either_label(tmp_path):
    world = full(tmp_path)
    overwrite(world, "margin", 6, 0)
    reseal(world, 6)
    assert list(verify(world.group)) == []


def test_wrong_padding_is_found_and_set_right(world):
    overwrite(world, "status", 11, 1)
    findings = list(verify(world.group))
    assert [finding.rows for finding in findings] == [(11,)]
    repair([world.group], findings, world.journal_folder, world.watch)
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
@pytest.mark.parametrize("name", ["margin", "label"])
def test_harmed_files_are_found_and_healed_or_dropped(world, name, kind):
    file = world.group.file(world.spec.array(name), 1)
    harm(file, kind)
    findings = list(verify(world.group))
    rows = {row for finding in findings for row in finding.rows}
    assert rows
    assert rows <= {4, 5, 6, 7}
    assert all(finding.damaged for finding in findings)
    assert repair([world.group], findings, world.journal_folder, world.watch).dropped == 0
    assert list(verify(world.group)) == []
    assert_true_rows(world.group, set(range(10)), {})
    forget(world)
    harm(file, kind)
    done = repair([world.group], verify(world.group), world.journal_folder, world.watch)
    rows = set() if name == "label" else rows  # labels follow from margins
    assert done.dropped == len(rows)
    assert list(verify(world.group)) == []
    left = set(range(10)) - rows
    assert finished(world.group) == left
    assert_true_rows(world.group, left, {})


@pytest.mark.parametrize("kind", ["flip", "truncate", "empty", "remove", "replace"])
@pytest.mark.parametrize(
    ("made", "derived"),
    [
        (spec(2), True),
        (spec(2, dtype="float16"), True),
        (spec(2, scores="all"), True),
        (spec(3, scores="all"), True),
        (spec(2, curves=True), True),
        (spec(3), False),
        (spec(2, scores="none"), False),
    ],
)
def test_lost_labels_follow_from_scores(tmp_path, made, derived, kind):
    world = full(tmp_path, made)
    file = world.group.file(world.spec.array("label"), 1)
    content = file.read_bytes()
    forget(world)
    if kind == "replace":  # whole, of other rows
        file.write_bytes(world.group.file(world.spec.array("label"), 0).read_bytes())
    else:
        harm(file, kind)
    findings = list(verify(world.group))
    done = repair([world.group], findings, world.journal_folder, world.watch)
    assert list(verify(world.group)) == []
    assert (done.dropped == 0) == derived
    if derived:
        assert file.read_bytes() == content
        assert finished(world.group) == set(range(10))


def test_a_label_that_rounding_hides_is_not_guessed(tmp_path):
    world = full(tmp_path, spec(2, dtype="float16"))
    label = encoding.read(world.group.folder / "label", 0, 4)
    label[1, 0, 2] = 0  # of a gap just below zero, which float16 does not tell from zero
    overwrite(world, "margin", 1, np.zeros_like(label[1], dtype=np.float16))
    overwrite(world, "label", 1, label[1])
    reseal(world, 1)
    forget(world)
    harm(world.group.file(world.spec.array("label"), 0), "empty")
    done = repair([world.group], verify(world.group), world.journal_folder, world.watch)
    assert done.dropped == 1
    assert finished(world.group) == set(range(10)) - {1}


KINDS = ["flip", "truncate", "empty", "remove"]
HALF = spec(3, dtype="float16")


def half(folder) -> World:
    """Two shards: a run that was clipped, copies of runs, runs that are missing."""
    world = World(folder, HALF)
    world.write_splits()
    with world.journal() as journal:
        world.append(journal, 0, 4)
        run = prediction(HALF, 1)
        run = dataclasses.replace(run, scores=run.scores * np.float32(1e5))
        encoded = encode_row(HALF, run, truth(HALF)[1])
        assert encoded.clipped
        journal.append(NUMBER, 1, encoded, recipe=1, fit_seconds=1)
        journal.append_copy(NUMBER, 2, 0)
    for shard in range(2):
        publish(world.group, shard, world.index(), world.watch)
    return world


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["fit_seconds", "recipe", "clipped", "crc", "status"])
@pytest.mark.parametrize("journals", ["there", "gone"])
@pytest.mark.parametrize("copied", [True, False])
def test_harmed_numbers_beside_predictions_cost_no_run(tmp_path, name, kind, journals, copied):
    world = half(tmp_path)
    if not copied:  # as of an earlier version
        world.group.replica(0).unlink()
    file = world.group.file(world.spec.array(name), 0)
    before = {
        array.name: reader.read_array(world.group, array.name)
        for array in world.spec.arrays
        if array.role == "record"
    }
    if journals == "gone":
        forget(world)
    harm(file, kind)
    findings = list(verify(world.group, journals=world.index()))
    if journals == "gone" or name != "status" or kind != "remove":
        assert [finding.shard for finding in findings] == [0]
    copies = np.arange(world.group.rows) == 2
    done = repair(
        [world.group], findings, world.journal_folder, world.watch, copies={world.spec.path: copies}
    )
    assert (done.healed, done.dropped, done.unmade) == (0, 0, ())
    assert list(verify(world.group, journals=world.index())) == []
    if findings:
        after = {array: reader.read_array(world.group, array) for array in before}
        if journals == "gone" and name in ("fit_seconds", "recipe") and not copied:
            unknown = {"fit_seconds": np.nan, "recipe": 65535}[name]
            before[name][:4] = unknown
        for array, values in before.items():
            np.testing.assert_array_equal(after[array], values, err_msg=array)
    else:  # as after a publication that was cut off: journals hold all of it
        publish(world.group, 0, world.index(), world.watch)
    assert finished(world.group) == {0, 1, 2, 4}


RECORDS = [array.name for array in HALF.of_role("record")]


def record_files(group, shard) -> dict[str, bytes]:
    """Return the content of a shard's record files, and of their copy."""
    files = [group.file(array, shard) for array in group.spec.of_role("record")]
    return {str(file): file.read_bytes() for file in [*files, group.replica(shard)]}


def mended(world, *, copied: bool = True) -> list[Finding]:
    """Repair; no run may be lost. Return what was found."""
    findings = list(verify(world.group, journals=world.index()))
    done = repair([world.group], findings, world.journal_folder, world.watch)
    assert (done.healed, done.dropped, done.unmade) == (0, 0, ())
    assert list(verify(world.group, journals=world.index())) == []
    assert world.group.replica(0).exists() == copied
    return findings


@pytest.mark.parametrize("names", [*itertools.combinations(RECORDS, 2), tuple(RECORDS)])
def test_records_are_copied_back_byte_by_byte(tmp_path, names):
    """Even if several are gone, and no journal is there to ask."""
    world = half(tmp_path)
    forget(world)
    before = record_files(world.group, 0)
    for name, kind in zip(names, itertools.cycle(KINDS[:3])):
        harm(world.group.file(HALF.array(name), 0), kind)
    (finding,) = mended(world)
    assert all(name in finding.problem for name in names)
    assert record_files(world.group, 0) == before


@pytest.mark.parametrize("name", ["fit_seconds", "recipe", "clipped", "crc"])
def test_records_of_another_shard_are_told_from_the_copy(tmp_path, name):
    world = half(tmp_path)
    forget(world)
    before = record_files(world.group, 0)
    world.group.file(HALF.array(name), 0).write_bytes(
        world.group.file(HALF.array(name), 1).read_bytes()
    )
    findings = mended(world)
    assert findings
    assert all(one.problem.startswith(f"{name} differs from its copy") for one in findings)
    assert record_files(world.group, 0) == before


@pytest.mark.parametrize("kind", [*KINDS, "of another shard", "short", "a bomb"])
def test_a_harmed_copy_is_named_and_made_again(tmp_path, kind):
    world = half(tmp_path)
    forget(world)
    before, file = record_files(world.group, 0), world.group.replica(0)
    if kind == "of another shard":
        file.write_bytes(world.group.replica(1).read_bytes())
    elif kind in ("short", "a bomb"):
        body = zlib.compress(bytes(3 if kind == "short" else 10**6))
        head = file.read_bytes()[:8] + google_crc32c.value(body).to_bytes(4, "little")
        file.write_bytes(head + body)
    else:
        harm(file, kind)
    findings = mended(world, copied=kind != "remove")
    if kind != "remove":  # earlier versions made none
        assert [(one.shard, one.rows) for one in findings] == [(0, ())]
        assert "label/records.0" in findings[0].problem
        assert record_files(world.group, 0) == before
    assert finished(world.group) == {0, 1, 2, 4}


@pytest.mark.parametrize("name", ["status", "crc", "recipe"])
def test_a_copy_of_another_shard_is_not_copied_back(tmp_path, name):
    """Two files are wrong at once: the predictions tell that the copy is not theirs."""
    world = half(tmp_path)
    forget(world)
    world.group.replica(0).write_bytes(world.group.replica(1).read_bytes())
    harm(world.group.file(HALF.array(name), 0), "flip")
    mended(world)
    assert finished(world.group) == {0, 1, 2, 4}
    np.testing.assert_array_equal(reader.read_array(world.group, "status")[:4], [1, 1, 2, 0])


def test_labels_and_checksums_lost_together_follow_from_scores_and_copy(world):
    forget(world)
    for name in ("label", "crc"):
        harm(world.group.file(world.spec.array(name), 0), "empty")
    mended(world)
    assert_true_rows(world.group, set(range(10)), {})


def test_a_status_of_earlier_is_found_and_brought_up_to_date(world):
    file = world.group.file(world.spec.array("status"), 1)
    before = file.read_bytes()
    overwrite(world, "status", 5, 0)
    assert list(verify(world.group, journals=world.index())) == []  # to be published next
    forget(world)
    (finding,) = mended(world)
    assert finding.rows == (5,)
    assert file.read_bytes() == before


@pytest.mark.parametrize("name", ["fit_seconds", "recipe", "crc", "status"])
def test_what_an_earlier_version_published_since_is_no_finding(tmp_path, name):
    """It does not know of the copy, which then lacks rows: these are inferred."""
    world = World(tmp_path)
    world.write_splits()
    world.finish(0)
    publish(world.group, 0, world.index(), world.watch)
    old = world.group.replica(0).read_bytes()
    world.finish(1)
    publish(world.group, 0, world.index(), world.watch)
    before = record_files(world.group, 0)
    world.group.replica(0).write_bytes(old)
    assert list(verify(world.group)) == []
    harm(world.group.file(world.spec.array(name), 0), "flip")
    assert len(mended(world)) == 1
    assert record_files(world.group, 0) == before


@pytest.mark.parametrize("compacted", [True, False])
def test_a_publication_that_is_cut_off_anywhere_is_no_finding(tmp_path, monkeypatch, compacted):
    """Of the first rows of a shard, and of those that follow."""

    class Killed(BaseException):
        pass

    world, real = World(tmp_path), whole.rename
    world.write_splits()
    for row in range(3):
        world.finish(row)
        for at in range(7):
            places = itertools.count()

            def rename(*arguments, places=places, at=at) -> None:
                if next(places) == at:
                    raise Killed
                real(*arguments)

            monkeypatch.setattr(whole, "rename", rename)
            with pytest.raises(Killed):
                publish(world.group, 0, world.index(), world.watch)
            monkeypatch.setattr(whole, "rename", real)
            assert list(verify(world.group, journals=world.index())) == []
            assert finished(world.group) == set(range(row))
            for file in world.watch.folder.iterdir():  # its holder is dead
                file.unlink()
        publish(world.group, 0, world.index(), world.watch)
        if compacted:
            compact(world.store, world.journal_folder, world.watch)
        assert list(verify(world.group, journals=world.index())) == []
        assert_true_rows(world.group, set(range(row + 1)), {})


@pytest.mark.parametrize("harmed", [("status", "recipe"), ("crc",), ("records.0", "status")])
def test_a_repair_that_is_cut_off_anywhere_can_be_repeated(tmp_path, monkeypatch, harmed):
    class Killed(BaseException):
        pass

    world, real = half(tmp_path), whole.rename
    forget(world)
    before = record_files(world.group, 0)
    for at in range(len(harmed)):
        for name in harmed:
            is_copy = name == "records.0"
            file = world.group.replica(0) if is_copy else world.group.file(HALF.array(name), 0)
            file.write_bytes(b"")
        places = itertools.count()

        def rename(*arguments, places=places, at=at) -> None:
            if next(places) == at:
                raise Killed
            real(*arguments)

        monkeypatch.setattr(whole, "rename", rename)
        findings = list(verify(world.group))
        with pytest.raises(Killed):
            repair([world.group], findings, world.journal_folder, world.watch)
        monkeypatch.setattr(whole, "rename", real)
        for file in world.watch.folder.iterdir():  # its holder is dead
            file.unlink()
        mended(world)
        assert record_files(world.group, 0) == before


def test_a_damaged_record_of_a_shard_never_published_leaves_no_shard(tmp_path):
    world = World(tmp_path)
    world.write_splits()
    world.finish(0)
    (journal,) = world.journals.iterdir()
    content = bytearray(journal.read_bytes())
    content[-1] ^= 1
    journal.write_bytes(content)
    findings = list(verify_journals(world.group, world.index()))
    assert [finding.rows for finding in findings] == [(0,)]
    repair([world.group], findings, world.journal_folder, world.watch)
    assert not world.group.file(world.spec.array("status"), 0).exists()
    reader.read_array(world.group, "label")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["y_true", "test_index"])
def test_harmed_test_sets_are_made_again_and_cost_no_run(world, name, kind):
    forget(world)
    file = world.group.file(world.spec.array(name), 0)
    before = file.read_bytes()

    def made(*_: object) -> tuple[np.ndarray, np.ndarray]:
        return truth(world.spec), np.arange(REPEATS * SAMPLES).reshape(REPEATS, SAMPLES)

    for make in (made, lambda *_: None):
        harm(file, kind)
        findings = list(verify(world.group))
        assert 0 in {finding.split for finding in findings}
        assert not any(finding.rows for finding in findings)
        done = repair([world.group], findings, world.journal_folder, world.watch, test_sets=make)
        assert (done.healed, done.dropped, done.splits) == (0, 0, 1)
        assert finished(world.group) == set(range(10))
        if make is made:
            assert done.unmade == ()
        else:  # workers write it, or a repair where the data is
            assert "on a machine that has their data" in done.unmade[0]
            assert not file.exists()
            assert not any(finding.rows for finding in verify(world.group))
            world.write_splits()
        assert list(verify(world.group)) == []
        assert file.read_bytes() == before


def test_test_sets_of_other_data_are_not_stored(world):
    harm(world.group.file(world.spec.array("y_true"), 0), "remove")

    def other(*_: object) -> tuple[np.ndarray, np.ndarray]:
        index = np.arange(REPEATS * SAMPLES).reshape(REPEATS, SAMPLES)
        return truth(world.spec), index + 1

    findings = verify(world.group)
    done = repair([world.group], findings, world.journal_folder, world.watch, test_sets=other)
    assert "differ from those made from this machine's data" in done.unmade[0]
    assert done.dropped == 0
    assert list(verify(world.group)) != []


def test_a_lost_status_is_not_written_over(world):
    """Whoever publishes the shard again without the old journals finds damage, not a new shard."""
    forget(world)
    harm(world.group.file(world.spec.array("status"), 1), "remove")
    world.finish(5)
    with pytest.raises(DamagedShard, match="verify --repair"):
        publish(world.group, 1, world.index(), world.watch)
    with pytest.raises(DamagedShard, match="verify --repair"):
        reader.require_statuses(world.group, world.index().rows(NUMBER))
    repair([world.group], verify(world.group), world.journal_folder, world.watch)
    reader.require_statuses(world.group, world.index().rows(NUMBER))
    assert_true_rows(world.group, set(range(10)), {})


def test_a_publication_that_was_cut_off_before_its_status_is_no_damage(world):
    file = world.group.file(world.spec.array("status"), 1)
    harm(file, "remove")
    reader.require_statuses(world.group, world.index().rows(NUMBER))
    assert list(verify(world.group, journals=world.index())) == []
    publish(world.group, 1, world.index(), world.watch)
    assert_true_rows(world.group, set(range(10)), {})


def test_what_is_replaced_while_it_is_looked_at_is_no_finding(tmp_path, monkeypatch):
    """Between the reads of one shard's files, somebody publishes the runs that were missing."""
    world = World(tmp_path)
    world.write_splits()
    world.finish(0)
    publish(world.group, 0, world.index(), world.watch)
    read = encoding.read_file
    raced = 0
    for turn in range(6):
        drop({world.group: {1}}, world.journal_folder, world.watch)
        world.finish(1)
        turns = itertools.count()

        def racing(*arguments: object, turn: int = turn, turns: object = turns) -> object:
            nonlocal raced
            if next(turns) == turn:
                raced += 1
                with monkeypatch.context() as calm:
                    calm.setattr(encoding, "read_file", read)
                    publish(world.group, 0, world.index(), world.watch)
            return read(*arguments)

        with monkeypatch.context() as busy:
            busy.setattr(encoding, "read_file", racing)
            assert list(verify(world.group)) == []
        assert finished(world.group) == {0, 1}
    assert raced == 6


def test_a_repair_looks_again_before_it_sets_a_run_back(world):
    """Findings of long ago: the rows were damaged, and are published again since."""
    findings = [Finding(world.spec.path, "predictions differ", (1, 2, 5), damaged=False)]
    done = repair([world.group], findings, world.journal_folder, world.watch)
    assert (done.healed, done.dropped) == (0, 0)
    assert_true_rows(world.group, set(range(10)), {})


def test_a_copy_is_restored_from_what_it_equals(tmp_path):
    world = half(tmp_path)
    overwrite(world, "label", 2, 1)
    done = repair([world.group], verify(world.group), world.journal_folder, world.watch)
    assert (done.healed, done.dropped) == (1, 0)
    overwrite(world, "label", 2, 1)
    overwrite(world, "label", 0, 1)
    overwrite(world, "margin", 4, 0.25)
    for journal in world.journals.iterdir():  # its source is lost, too
        content = bytearray(journal.read_bytes())
        content[100] ^= 1
        journal.write_bytes(content)
    done = repair([world.group], verify(world.group), world.journal_folder, world.watch)
    assert (done.healed, done.dropped) == (1, 2)
    assert list(verify(world.group)) == []
    assert finished(world.group) == {1, 4}


def test_runs_without_a_test_set_are_found(tmp_path):
    world = World(tmp_path)
    world.finish(0)
    publish(world.group, 0, world.index(), world.watch)
    assert [f.problem for f in verify(world.group)] == [
        "test set 0, which finished runs need, is not stored"
    ]


def test_dropped_rows_stay_dropped_until_trained_again(world):
    old = world.index()
    drop({world.group: {2, 3}}, world.journal_folder, world.watch)
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
        repair([world.group], [], world.journal_folder, LeaseWatch(world.watch.folder, 2.0))


@pytest.mark.parametrize("verb", ["drop", "repair"])
def test_who_begins_while_rows_are_looked_at_is_not_robbed(world, monkeypatch, verb):
    """A task begins after the first look for rest, and its journal is found."""
    world.watch.seconds = 2.0
    attempt = Lease(LeaseWatch(world.watch.folder, 2.0), "life-a", vanishes=True)
    real, begun = module.JournalIndex, ExitStack()

    def meanwhile(folder):
        attempt.take()
        begun.enter_context(attempt.kept())
        begun.enter_context(world.journal())
        return real(folder)

    monkeypatch.setattr(module, "JournalIndex", meanwhile)
    with begun, pytest.raises(LeaseHeld, match="life-a"):
        set_back(world, verb)
    assert finished(world.group) == set(range(10))
    assert not list(world.journals.glob("*.tombstone"))
    monkeypatch.setattr(module, "JournalIndex", real)
    set_back(world, verb)
    assert finished(world.group) == set(range(10)) - {2}


@pytest.mark.parametrize("verb", ["drop", "repair"])
def test_who_begins_after_the_last_look_for_rest_loses_nothing(world, monkeypatch, verb):
    real, begun = module.require_rest, []

    def meanwhile(*arguments):
        real(*arguments)
        begun.append(world.journal())  # the last of these begins right before the tombstone

    monkeypatch.setattr(module, "require_rest", meanwhile)
    set_back(world, verb)
    assert finished(world.group) == set(range(10)) - {2}
    world.append(begun[-1], 2)
    for journal in begun:
        journal.close()
    assert publish(world.group, 0, world.index(), world.watch).added == 1
    assert_true_rows(world.group, set(range(10)), {})


def set_back(world, verb) -> None:
    """Set row 2 back, by either way."""
    if verb == "drop":
        drop({world.group: {2}}, world.journal_folder, world.watch)
    else:
        overwrite(world, "label", 2, 9)
        reseal(world, 2)
        repair([world.group], verify(world.group), world.journal_folder, world.watch)
