import os
import pickle
import stat
from pathlib import Path

import pytest

from manyseed.orchestrator.disk.placing import place, place_new, remove_partial, replacing
from manyseed.orchestrator.errors import LeaseLost, StoreUnavailable
from manyseed.orchestrator.store.journal import JournalWriter, RowBytes


@pytest.fixture
def calls(monkeypatch):
    """What was made durable, and renamed, in order."""
    noted = []

    def fsync(descriptor):
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        noted.append("folder" if is_folder else f"file {os.fstat(descriptor).st_size}")

    def rename(self, target, original=Path.rename):
        noted.append("rename")
        return original(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", rename)
    return noted


def test_a_file_is_durable_before_it_is_named_and_its_name_after(tmp_path, calls):
    place(tmp_path / "new" / "file", b"content", lambda: calls.append("check"))
    assert calls == ["file 7", "check", "rename", "folder"]
    assert (tmp_path / "new" / "file").read_bytes() == b"content"


def test_a_journal_is_durable_when_synced(tmp_path, calls):
    writer = JournalWriter(tmp_path / "a.journal")
    assert calls == ["folder"]
    writer.append(0, 0, RowBytes(b"label"), recipe=0, fit_seconds=0)
    assert calls == ["folder"]
    writer.sync()
    writer.sync()
    assert calls == ["folder", "file 65"]
    writer.close()


def test_an_abandoned_file_leaves_nothing(tmp_path):
    place(tmp_path / "file", b"old")

    def refuse():
        raise LeaseLost("too late")

    with pytest.raises(LeaseLost):
        place(tmp_path / "file", b"new", refuse)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"old"}


def test_of_two_writers_of_a_new_file_one_succeeds_and_the_other_leaves_nothing(tmp_path):
    place_new(tmp_path / "folder" / "file", b"first")
    with pytest.raises(FileExistsError):
        place_new(tmp_path / "folder" / "file", b"second")
    found = {path.name: path.read_bytes() for path in (tmp_path / "folder").iterdir()}
    assert found == {"file": b"first"}


def test_a_new_file_is_one_also_where_the_file_system_was_asked_for_its_name_twice(
    tmp_path, monkeypatch
):
    """As NFS, whose answer was lost and whose client asks again."""

    def twice(source, target, *, original=os.link, **options):
        original(source, target, **options)
        original(source, target, **options)

    monkeypatch.setattr(os, "link", twice)
    place_new(tmp_path / "file", b"content")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"content"]


def test_removing_the_temporary_file_stops_its_writer(tmp_path):
    place(tmp_path / "file", b"old")
    with pytest.raises(LeaseLost, match="next holder"):
        place(tmp_path / "file", b"new", lambda: remove_partial(tmp_path, "file"))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"old"}


def test_the_last_of_several_files_waits_until_the_others_stay(tmp_path, calls):
    paths = [tmp_path / name / "c.0" for name in ("label", "crc", "status")]
    with replacing(paths, lambda: calls.append("check")) as partials:
        for number, partial in enumerate(partials):
            partial.write_bytes(bytes(number))
    one = ["check", "rename"]
    assert calls == ["file 0", "file 1", "file 2", *one, *one, "folder", "folder", *one, "folder"]


def test_a_writer_whose_temporary_file_was_removed_while_it_wrote_replaces_nothing(tmp_path):
    paths = [tmp_path / name / "c.0" for name in ("label", "status")]

    def write():
        with replacing(paths) as partials:
            for partial in partials:
                partial.touch()
            remove_partial(tmp_path / "status")

    with pytest.raises(LeaseLost, match="next holder"):
        write()
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_temporary_files_are_told_apart_by_name(tmp_path):
    for name in (".c.1.0.x.partial", ".c.10.0.x.partial", ".c.1.00.x.partial", "c.1.0"):
        (tmp_path / name).touch()
    assert remove_partial(tmp_path, "c.1.0") == 1
    assert not (tmp_path / ".c.1.0.x.partial").exists()
    assert remove_partial(tmp_path) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["c.1.0"]
    assert remove_partial(tmp_path / "absent") == 0


def test_a_refusal_names_no_temporary_file(tmp_path):
    def of_a_library(partial):
        raise OSError(f"failed to write {partial}: disk full")  # without errno, as of polars

    with pytest.raises(StoreUnavailable) as refused, replacing([tmp_path / "a.json"]) as (one,):
        of_a_library(one)
    assert f"failed to write {tmp_path / 'a.json'}: disk full" in str(refused.value)
    assert ".partial" not in str(refused.value)
    again = pickle.loads(pickle.dumps(refused.value))
    assert str(again) == str(refused.value)


def test_what_the_file_system_refuses_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match="cannot write"):
        place(tmp_path / "file" / "below", b"")
