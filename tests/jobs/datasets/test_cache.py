import json
import subprocess
import sys

import numpy as np
import pytest

from manyseed.jobs.datasets import (
    cache,
    data_home,
    fetch,
    is_fetched,
    load,
    needs_fetching,
    resolve,
)
from manyseed.jobs.run import MachineError, NotFetched, PreparedElsewhere


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def info(tmp_path, home):
    path = tmp_path / "table.csv"
    rows = "".join(f"{i},{i % 7},{'ab'[i % 2]}\n" for i in range(500))
    path.write_text("x,z,y\n" + rows)
    return resolve(f"file:{path}", target="y")


def copy_of(info, home):
    (only,) = (home / "prepared").iterdir()
    assert only == cache.folder(info.canonical, home)
    return only


def test_a_copy_is_made_once(info, home):
    assert needs_fetching(info.canonical)
    assert not is_fetched(info.canonical)
    assert fetch(info)
    made = (copy_of(info, home) / "X.npy").stat().st_ino
    assert is_fetched(info.canonical)
    assert not fetch(info)
    assert (copy_of(info, home) / "X.npy").stat().st_ino == made


def test_a_copy_is_read_mapped_and_never_written(info, home):
    fetch(info)
    data = load(info.canonical)
    assert isinstance(data.X, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        data.X[0, 0] = 1


def test_what_ships_or_is_generated_needs_no_copy(home):
    for source in ("sklearn:iris", "synthetic:gaussian"):
        info = resolve(source)
        assert not needs_fetching(info.canonical)
        assert is_fetched(info.canonical)
        assert not fetch(info)
    assert not home.exists()


def test_a_missing_copy_is_told_apart(info):
    with pytest.raises(NotFetched, match=r"is not in .*: fetch it"):
        load(info.canonical)


@pytest.mark.parametrize("name", ["X.npy", "y.npy"])
def test_one_changed_byte_is_found_and_repaired(info, home, name):
    fetch(info)
    before = load(info.canonical).X.copy()
    file = copy_of(info, home) / name
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    with pytest.raises(MachineError, match=f"damaged .{name} has another checksum"):
        load(info.canonical)
    assert fetch(info)
    np.testing.assert_array_equal(load(info.canonical).X, before)
    copy_of(info, home)


@pytest.mark.parametrize("name", ["X.npy", "y.npy", "about.json"])
def test_a_shortened_file_is_found_and_repaired(info, home, name):
    fetch(info)
    file = copy_of(info, home) / name
    file.write_bytes(file.read_bytes()[:100])
    assert not is_fetched(info.canonical)
    with pytest.raises(MachineError, match="damaged"):
        load(info.canonical)
    assert fetch(info)
    assert is_fetched(info.canonical)


@pytest.mark.parametrize(
    "changes",
    [
        *({"files": []}, {"files": {"X.npy": 3}}, {"cardinality": [2**70, 0]}, {"cardinality": []}),
        *({"class_names": ["a"]}, {"class_names": [1, 2]}, {"class_names": "ab"}, {"image": []}),
        *({"image": [1]}, {"image": "x"}, {"n_official_train": "x"}, {"n_official_train": 501}),
        *("[1]", "null", "caf\xe9", "[" * 90_000),
    ],
)
def test_descriptions_of_other_data_are_found_and_repaired(info, home, changes):
    fetch(info)
    file = copy_of(info, home) / "about.json"
    if isinstance(changes, dict):
        changes = json.dumps(json.loads(file.read_text()) | changes)
    file.write_bytes(changes.encode("latin-1"))
    is_fetched(info.canonical)
    cache.checksums(info.canonical, home)
    with pytest.raises(NotFetched, match="damaged"):
        load(info.canonical)
    assert fetch(info)
    assert load(info.canonical).X.shape == (500, 2)


def test_a_copy_of_another_format_is_replaced(info, home, monkeypatch):
    monkeypatch.setattr(cache, "FORMAT", 0)
    fetch(info)
    monkeypatch.undo()
    monkeypatch.setenv("MANYSEED_DATA", str(home))
    assert not is_fetched(info.canonical)
    assert fetch(info)


def test_the_copy_of_a_faster_process_stays(info, home, monkeypatch):
    write, faster = cache._write, []

    def overtaken(*arguments):
        monkeypatch.setattr(cache, "_write", write)
        assert fetch(info)
        faster.append((cache.folder(info.canonical, home) / "X.npy").stat().st_ino)
        write(*arguments)

    monkeypatch.setattr(cache, "_write", overtaken)
    fetch(info)
    assert [(copy_of(info, home) / "X.npy").stat().st_ino] == faster


def test_two_processes_make_one_copy(info, home, tmp_path):
    code = (
        "import pathlib, sys; from manyseed.jobs.datasets import fetch, load, resolve;"
        "info = resolve(sys.argv[1], target='y'); print('ready', flush=True); sys.stdin.readline();"
        "fetch(info); print(load(info.canonical).X.sum())"
    )
    fetching = [
        subprocess.Popen(
            [sys.executable, "-c", code, f"file:{info.locations[0]}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in fetching:
        assert process.stdout.readline() == "ready\n"
    for process in fetching:
        process.stdin.write("go\n")
        process.stdin.flush()
    sums = {float(process.communicate()[0]) for process in fetching}
    assert [process.returncode for process in fetching] == [0, 0]
    assert sums == {float(load(info.canonical).X.sum())}
    copy_of(info, home)


def test_a_folder_that_cannot_be_written_is_named(info, tmp_path):
    (tmp_path / "home").write_text("a file")
    with pytest.raises(MachineError, match="cannot be written"):
        fetch(info)


def test_data_lies_in_the_cache_folder_unless_told_otherwise(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("MANYSEED_DATA", raising=False)
    assert data_home() == tmp_path / ".cache" / "manyseed"


def test_a_job_reads_the_data_that_its_submission_used(info, home, monkeypatch, tmp_path):
    fetch(info)
    monkeypatch.setenv("HOME", str(tmp_path / "other"))
    monkeypatch.delenv("MANYSEED_DATA")
    monkeypatch.setenv("MANYSEED_SUBMITTED_DATA", str(home))
    assert data_home() == home
    assert load(info.canonical).X.shape == (500, 2)
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "own"))
    assert data_home() == tmp_path / "own", "what setup exports counts"
    monkeypatch.delenv("MANYSEED_DATA")
    home.rename(tmp_path / "gone")
    here = tmp_path / "other" / ".cache" / "manyseed"
    told = f"^the data was prepared in {home}, but the job looks in {here}$"
    with pytest.raises(PreparedElsewhere, match=told):
        load(info.canonical)
