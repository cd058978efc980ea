import errno
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyseed.orchestrator.errors import LeaseLost, StoreUnavailable
from manyseed.orchestrator.store import index as module
from manyseed.orchestrator.store.index import JournalFolder, JournalIndex, write_tombstone
from manyseed.orchestrator.store.journal import (
    HEADER_SIZE,
    MAGIC,
    PREAMBLE_SIZE,
    JournalWriter,
    RowBytes,
    copy,
    done,
    parse_header,
    parse_headers,
)

SIZES = (40, 160, 20, 16)  # of `row`


def row(number: int, size: int = 40) -> RowBytes:
    rng = np.random.default_rng(number)
    return RowBytes(
        rng.bytes(size), rng.bytes(4 * size), rng.bytes(size // 2), number, rng.bytes(16)
    )


def fill(writer: JournalWriter, numbers) -> None:
    for number in numbers:
        writer.append(1, number, row(number), recipe=2, fit_seconds=0.5)


def test_records_read_back(tmp_path):
    with JournalWriter(tmp_path / "a.journal") as writer:
        fill(writer, [5, 3])
        writer.append_copy(1, 4, 3)
        writer.append(2, 9, row(9), recipe=0, fit_seconds=1)
    index = JournalIndex(JournalFolder(tmp_path))
    assert index.groups() == {1: 3, 2: 1}
    assert index.rows(1).tolist() == [3, 4, 5]
    record = index.read(1, 3)
    assert record.values == row(3)
    assert (record.header.recipe, record.header.fit_seconds) == (2, 0.5)
    assert index.read(1, 4).header.source == 3
    assert index.read(1, 77) is None


def test_refresh_reads_only_what_was_appended(tmp_path, monkeypatch):
    writer = JournalWriter(tmp_path / "a.journal")
    fill(writer, range(50))
    index = JournalIndex(JournalFolder(tmp_path))
    parsed = []

    def parse(data, original=module.parse_header):
        parsed.append(data)
        return original(data)

    monkeypatch.setattr(module, "parse_header", parse)
    index.refresh()
    assert parsed == []
    fill(writer, [50])
    index.refresh()
    assert len(parsed) == 1
    assert index.rows(1).tolist() == list(range(51))
    writer.close()


def test_a_name_is_used_once(tmp_path):
    JournalWriter(tmp_path / "a.journal").close()
    with pytest.raises(StoreUnavailable):
        JournalWriter(tmp_path / "a.journal")
    with pytest.raises(ValueError, match="must end in"):
        JournalWriter(tmp_path / "a.log")


def test_several_records_of_a_row_are_ordered_by_name(tmp_path):
    for name in ("b", "a"):
        with JournalWriter(tmp_path / f"{name}.journal") as writer:
            writer.append(1, 0, row(ord(name)), recipe=0, fit_seconds=0)
    index = JournalIndex(JournalFolder(tmp_path))
    assert index.fits(1)[0].tolist() == [0, 0]
    assert index.fits(1, besides=["a.journal"])[0].tolist() == [0]
    assert index.read(1, 0).values == row(ord("a"))


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_damage_costs_only_the_records_it_hits(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("journal")
    path = folder / "a.journal"
    ends = []
    with JournalWriter(path) as writer:
        for number in range(8):
            # A payload that looks like records, to mislead a search for the next header.
            # Its end is its own, else the rest of another could stand in for what was cut.
            label = MAGIC * data.draw(st.integers(0, 4)) + bytes(5)
            values = RowBytes(label, bytes([number + 1]) * 5)
            writer.append(1, number, values, recipe=0, fit_seconds=0)
            ends.append(path.stat().st_size)
    content = bytearray(path.read_bytes())
    records = [bytes(content[first:end]) for first, end in pairwise([0, *ends])]
    start = data.draw(st.integers(0, len(content) - 1))
    stop = data.draw(st.integers(start + 1, min(len(content), start + 150)))
    kind = data.draw(st.sampled_from(["flip", "zero", "cut", "tear"]))
    if kind == "flip":
        content[start] ^= 1 << data.draw(st.integers(0, 7))
        stop = start + 1
    elif kind == "zero":
        content[start:stop] = bytes(stop - start)
    elif kind == "cut":
        del content[start:stop]
    else:
        del content[start:]
        stop = ends[-1]
    path.write_bytes(bytes(content))
    hit = {n for n, end in enumerate(ends) if start < end and stop > (ends[n - 1] if n else 0)}
    index = JournalIndex(JournalFolder(folder))
    good = {n for n in range(8) if index.read(1, n) is not None}
    # what is overwritten or closes up may have been the same
    whole = {n for n, record in enumerate(records) if record in content}
    assert set(range(8)) - hit <= good <= whole
    assert set(index.rows(1).tolist()) == good


@pytest.mark.parametrize("n", [1, 200])
@pytest.mark.parametrize("hit", [0, 1])
def test_a_record_that_lost_bytes_hides_no_other(tmp_path, n, hit):
    """Its length leads into the next one, or to where less than a header is left."""
    path = tmp_path / "a.journal"
    with JournalWriter(path) as writer:
        fill(writer, range(3))
    content = bytearray(path.read_bytes())
    start = hit * (HEADER_SIZE + sum(SIZES)) + HEADER_SIZE + 5
    del content[start : start + n]
    path.write_bytes(content)
    index = JournalIndex(JournalFolder(tmp_path))
    left = [number for number in range(3) if number != hit]
    assert [number for number in range(3) if index.read(1, number)] == left
    assert index.damaged == 2  # a stretch, and the record whose checksum does not fit


def test_a_record_being_written_is_waited_for(tmp_path):
    with JournalWriter(tmp_path / "whole.journal") as writer:
        fill(writer, range(3))
    content = (tmp_path / "whole.journal").read_bytes()
    (tmp_path / "whole.journal").unlink()
    index = JournalIndex(JournalFolder(tmp_path))
    size = len(content) // 3
    for length in [0, 10, HEADER_SIZE, size - 1, size, size + 30, 3 * size]:
        (tmp_path / "part.journal").write_bytes(content[:length])
        index.refresh()
        assert index.rows(1).tolist() == list(range(length // size))
        assert index.damaged == 0


def test_a_failed_write_is_cut_back_and_the_journal_goes_on(tmp_path):
    """A limit on the file size stands for a full disk: both write a part, then fail."""
    script = f"""
import resource, sys
sys.path.insert(0, {str(Path.cwd())!r})
from pathlib import Path
from manyseed.orchestrator.errors import StoreUnavailable
from manyseed.orchestrator.store.journal import JournalWriter
from tests.orchestrator.store.test_journal import row
writer = JournalWriter(Path({str(tmp_path)!r}) / "a.journal")
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
number = 0
try:
    while True:
        writer.append(1, number, row(number), recipe=0, fit_seconds=0)
        number += 1
except StoreUnavailable as error:
    assert "nothing that was finished is lost" in str(error)
print(number, writer.path.stat().st_size)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
writer.append(1, number, row(number), recipe=0, fit_seconds=0)
writer.close()
"""
    output = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    ).stdout
    number, size = map(int, output.split())
    record = HEADER_SIZE + 40 + 160 + 20 + 16
    assert number == 1000 // record
    assert size == number * record
    index = JournalIndex(JournalFolder(tmp_path))
    assert index.rows(1).tolist() == list(range(number + 1))
    assert index.damaged == 0


def test_sync_is_due_by_the_clock(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    writer = JournalWriter(tmp_path / "a.journal")
    fill(writer, [0])
    assert writer.unsynced
    now[0] = 29
    assert not writer.sync_if_due()
    now[0] = 31
    assert writer.sync_if_due()
    assert not writer.unsynced
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        fill(writer, [1])


def test_a_sync_reaches_the_disk(tmp_path, monkeypatch):
    synced = []

    def fsync(file: int) -> None:
        synced.append((os.fstat(file).st_ino, os.fstat(file).st_size))

    monkeypatch.setattr(os, "fsync", fsync)
    path = tmp_path / "a.journal"
    with JournalWriter(path) as writer:
        assert [file for file, _ in synced] == [tmp_path.stat().st_ino]  # its name
        for numbers in ([0], [1, 2]):
            fill(writer, numbers)
            synced.clear()
            writer.sync()
            assert synced == [(path.stat().st_ino, path.stat().st_size)]
        fill(writer, [3])
        synced.clear()
    assert synced == [(path.stat().st_ino, path.stat().st_size)]


def test_a_writer_taken_for_dead_learns_it(tmp_path):
    writer = JournalWriter(tmp_path / "a.journal")
    (tmp_path / "a.journal").unlink()
    fill(writer, [0])
    with pytest.raises(LeaseLost, match="taken for dead"):
        writer.sync()
    with pytest.raises(LeaseLost):
        writer.close()


def test_a_tombstone_voids_old_journals_only(tmp_path):
    with JournalWriter(tmp_path / "a.journal") as writer:
        fill(writer, [0, 1])
    index = JournalIndex(JournalFolder(tmp_path))
    write_tombstone(tmp_path, {1: [1, 5]}, index.journals)
    index.refresh()
    assert index.rows(1).tolist() == [0]
    with JournalWriter(tmp_path / "b.journal") as writer:
        fill(writer, [1])
    index.refresh()
    assert index.rows(1).tolist() == [0, 1]
    assert index.records(1, 0, 9)[1][0][0] == "b.journal"


def test_removed_journals_no_longer_count(tmp_path):
    with JournalWriter(tmp_path / "a.journal") as writer:
        fill(writer, [0])
    index = JournalIndex(JournalFolder(tmp_path))
    (tmp_path / "a.journal").unlink()
    assert index.read(1, 0) is None
    index.refresh()
    assert index.rows(1).tolist() == []
    assert index.journals == []


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_records_are_read_into_rows_of_arrays(tmp_path_factory, data):
    """Of several journals, next to each other or not, in any order, however little a call reads."""
    folder = tmp_path_factory.mktemp("journals")
    names = data.draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=12))
    for name in set(names):
        with JournalWriter(folder / f"{name}.journal") as writer:
            fill(writer, [number for number, at in enumerate(names) if at == name])
    index = JournalIndex(JournalFolder(folder))
    places = {number: found[0] for number, found in index.records(1, 0, len(names)).items()}
    wanted = data.draw(st.lists(st.sampled_from(sorted(places)), unique=True))
    damaged = set(data.draw(st.lists(st.sampled_from(wanted)))) if wanted else set()
    for number in damaged:
        path = folder / places[number].journal
        content = bytearray(path.read_bytes())
        content[places[number].offset + data.draw(st.integers(0, HEADER_SIZE + 235))] ^= 4
        path.write_bytes(content)
    gone = data.draw(st.sets(st.sampled_from(names)))
    for name in gone:
        (folder / f"{name}.journal").unlink()
    at = data.draw(st.permutations(range(len(wanted) + 2)))[: len(wanted)]
    parts = [np.zeros((len(wanted) + 2, size), dtype=np.uint8) for size in SIZES]
    most = data.draw(st.integers(1, 12))
    preadv = os.preadv
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MOST_BUFFERS", data.draw(st.sampled_from([1, 10, 1024])))
        patch.setattr(module, "_CACHED_BYTES", data.draw(st.sampled_from([1, 700, 2**20])))
        short = lambda file, buffers, place: preadv(file, buffers[: max(5, most)], place)  # noqa: E731
        patch.setattr(module.os, "preadv", short)
        fields, good = index.fill([places[number] for number in wanted], at, parts)
    lost = {number for number in wanted if number in damaged or names[number] in gone}
    assert [number for number, fine in zip(wanted, good, strict=True) if not fine] == [
        number for number in wanted if number in lost
    ]
    for number, place, header, fine in zip(wanted, at, fields, good, strict=True):
        if fine:
            expected = row(number)
            payload = b"".join(part[place].tobytes() for part in parts)
            assert payload == b"".join(
                (expected.label, expected.score, expected.confidence, expected.optional)
            )
            assert (header["row"], header["crc"], header["recipe"]) == (number, expected.crc, 2)
            assert (header["clipped"], header["fit_seconds"]) == (number, 0.5)
            assert [header[n] for n in ("label", "score", "confidence", "source")] == [*SIZES]
    assert set(index.rows(1).tolist()) == set(range(len(names))) - lost


@given(
    st.binary(max_size=HEADER_SIZE),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**16 - 1),
)
def test_headers_mean_the_same_one_by_one_and_together(other, group, number, recipe):
    headers = [
        done(group, number, recipe, 2.5, row(number % 1000))[:HEADER_SIZE],
        copy(group, number, number // 2, recipe),
        other.ljust(HEADER_SIZE),
    ]
    data = np.frombuffer(b"".join(headers), dtype=np.uint8).reshape(3, -1)
    fields, good = parse_headers(data)
    assert good.tolist() == [parse_header(header) is not None for header in headers]
    for header, together in zip(headers[:2], fields, strict=False):
        alone = parse_header(header)
        for name in ("status", "recipe", "group", "row", "crc", "clipped", "label", "score"):
            assert together[name] == getattr(alone, name)
        assert together["source"] == (alone.optional or alone.source)
        np.testing.assert_equal(float(together["fit_seconds"]), alone.fit_seconds)


def test_writing_needs_no_slow_import():
    code = (
        "import sys; from manyseed.orchestrator.store import index, journal;"
        "print({'zarr', 'polars', 'torch', 'xarray', 'dask'} & set(sys.modules))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert output.stdout.strip() == "set()"


PLAN, OTHER = "0123456789abcdef" * 2, "f" * 32


def test_a_journal_says_of_which_plan_its_rows_are(tmp_path):
    for name, plan in (("a", PLAN), ("b", OTHER), ("c", "")):  # c: as earlier versions wrote
        with JournalWriter(tmp_path / f"{name}.journal", plan) as writer:
            fill(writer, [ord(name)])
    index = JournalIndex(JournalFolder(tmp_path, PLAN))
    assert index.rows(1).tolist() == [ord("a"), ord("c")]
    assert index.foreign == ["b.journal"]
    assert (index.damaged, index.doubtful()) == (0, {})
    assert index.read(1, ord("a")).values == row(ord("a"))
    assert JournalIndex(JournalFolder(tmp_path)).rows(1).tolist() == [97, 98, 99]
    (tmp_path / "b.journal").unlink()
    index.refresh()
    assert index.foreign == []


def test_a_journal_is_read_while_it_begins(tmp_path):
    with JournalWriter(tmp_path / "whole.journal", PLAN) as writer:
        assert writer.unsynced == 0  # nothing is written before there is a run
        fill(writer, [3])
    content = (tmp_path / "whole.journal").read_bytes()
    assert len(content) == PREAMBLE_SIZE + HEADER_SIZE + sum(row(3).sizes)
    folder = tmp_path / "growing"
    folder.mkdir()
    path = folder / "a.journal"
    path.touch()
    index = JournalIndex(JournalFolder(folder, PLAN))
    for length in [10, PREAMBLE_SIZE, PREAMBLE_SIZE + HEADER_SIZE, len(content) - 1, len(content)]:
        assert index.rows(1).tolist() == []
        path.write_bytes(content[:length])
        index.refresh()
        assert (index.foreign, index.damaged) == ([], 0)
    assert index.rows(1).tolist() == [3]


def test_runs_behind_a_damaged_beginning_count(tmp_path):
    path = tmp_path / "a.journal"
    with JournalWriter(path, PLAN) as writer:
        fill(writer, [3, 4])
    whole = path.read_bytes()
    for bit in range(8 * PREAMBLE_SIZE):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        index = JournalIndex(JournalFolder(tmp_path, PLAN))
        assert index.rows(1).tolist() == [3, 4]
        assert (index.foreign, index.damaged) == ([], 1)


def test_what_a_full_disk_cut_off_begins_again(tmp_path, monkeypatch):
    path = tmp_path / "a.journal"
    writer = JournalWriter(path, PLAN)
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, view, at: _full(write, file, view, at))
    with pytest.raises(StoreUnavailable):
        fill(writer, [3])
    monkeypatch.setattr(os, "pwrite", write)
    fill(writer, [4])
    writer.close()
    index = JournalIndex(JournalFolder(tmp_path, PLAN))
    assert (index.rows(1).tolist(), index.damaged) == ([4], 0)


def _full(write, file, view, at):
    if at:
        raise OSError(errno.ENOSPC, "full")
    return write(file, view[:20], at)
