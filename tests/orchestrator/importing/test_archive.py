"""A zip from anybody: what a sweep needs comes out of it, and nothing else does."""

from __future__ import annotations

import json
import random
import re
import stat
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

from manyseed import Sweep
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing import archive as archives
from tests.orchestrator.conftest import assert_equal, inside, stored


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``export`` wrote of a small sweep."""
    folder = tmp_path_factory.mktemp("exported")
    rng = np.random.default_rng(0)
    np.savez(
        folder / "given.npz",
        scores=rng.normal(size=(4, 30, 3)).astype(np.float32),
        y_true=rng.integers(0, 3, 30),
    )
    sweep = Sweep.import_predictions([folder / "given.npz"], folder / "sweep")
    return sweep.export(folder / "all.zip")


def changed(
    exported: Path, target: Path, change: dict[str, bytes], info: zipfile.ZipInfo | None = None
) -> Path:
    """Write the zip with other members beside its own, or in their place."""
    with zipfile.ZipFile(exported) as source, zipfile.ZipFile(target, "w", 8) as archive:
        for member in source.infolist():
            if member.filename not in change:
                archive.writestr(member, source.read(member))
        for name, content in change.items():
            archive.writestr(name, content)
        if info is not None:
            archive.writestr(info, "/etc/passwd")
    return target


def refused(file: Path, message: str) -> None:
    before = sorted(file.parent.rglob("*"))
    with pytest.raises(UserError, match=message):
        Sweep.import_predictions([file], file.parent / "made" / "sweep")
    assert sorted(file.parent.rglob("*")) == before


def test_a_loss_from_what_was_unpacked_is_noticed(exported: Path, tmp_path: Path) -> None:
    paths = Sweep.import_predictions([exported], tmp_path / "sweep").paths
    assert paths.marked_files() == paths.parts() == [paths.part(1)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (".manyseed/tasks/0001/intent.json", "is not part of a sweep"),
        (".manyseed/tasks/journals/0001-0000-aa-0.journal", "is not part of a sweep"),
        (".manyseed/results/analysis.json", "is not part of a sweep"),
        (".manyseed/report/index.html", "is not part of a sweep"),
        (".manyseed/evil.py", "is not part of a sweep"),
        (".manyseed/plan/evil.py", "is not part of a sweep"),
        (".manyseed/.lock", "is not part of a sweep"),
        ("evil.py", "is not part of a sweep"),
        ("/tmp/zarr.json", "names a file outside of it"),
        (".manyseed//etc/passwd", "is not part of a sweep"),
        (".manyseed/plan/../../out", "names a file outside of it"),
        ("other/imported/zarr.json", "it has no place in the plan"),
        ("given/imported/label/c.0.0.1", "it has no place in the plan"),
        ("given/imported/label/c.7.0.0", "it has no place in the plan"),
        ("given/imported/label/c.0", "it has no place in the plan"),
    ],
)
def test_what_a_sweep_does_not_need_is_refused(
    exported: Path, tmp_path: Path, name: str, message: str
) -> None:
    file = changed(exported, tmp_path / "a.zip", {name: b"{}"})
    refused(file, f"{re.escape(name)}: {message}")


def test_files_of_other_programs_are_not_packed(exported: Path, tmp_path: Path) -> None:
    sweep = Sweep.import_predictions([exported], tmp_path / "sweep")
    folders = [sweep.directory, *(each for each in sweep.directory.rglob("*") if each.is_dir())]
    for folder in folders:
        for name in (".DS_Store", "._zarr.json", ".nfs0001", "Thumbs.db", "zarr.json~", "c.0~"):
            (folder / name).write_bytes(b"junk")
        (folder / "@eaDir").mkdir()
        (folder / "@eaDir" / "x.json").write_bytes(b"{}")
    again = Sweep.import_predictions([sweep.export(tmp_path / "again.zip")], tmp_path / "again")
    assert again.verify()["findings"] == []
    with zipfile.ZipFile(exported) as one, zipfile.ZipFile(tmp_path / "again.zip") as other:
        assert {*other.namelist()} == {*one.namelist()}


def test_links_are_refused_and_folders_are_passed_over(exported: Path, tmp_path: Path) -> None:
    link = zipfile.ZipInfo(".manyseed/plan/0002.parquet")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    refused(changed(exported, tmp_path / "a.zip", {}, link), "is not part of a sweep")
    file = changed(exported, tmp_path / "b.zip", {"given/": b"", ".manyseed/tasks/": b""})
    sweep = Sweep.import_predictions([file], tmp_path / "sweep")
    assert not sweep.paths.tasks.exists()


def test_a_bomb_is_refused_before_it_grows(exported: Path, tmp_path: Path) -> None:
    zeros = bytes(2**24)  # sixteen kilobytes when packed
    for name in ("given/imported/label/c.0.0.0", "given/imported/status/c.0"):
        file = changed(exported, tmp_path / "a.zip", {name: zeros})
        refused(file, f"{name}: is larger than a sweep's can be")
    archives_small, archives._SMALL_BYTES = archives._SMALL_BYTES, 2**20
    try:
        for name in ("zarr.json", ".manyseed/plan/promise.json"):
            refused(changed(exported, tmp_path / "a.zip", {name: zeros}), "larger than a sweep's")
    finally:
        archives._SMALL_BYTES = archives_small


def test_what_holds_no_whole_sweep_is_one_message(exported: Path, tmp_path: Path) -> None:
    for name, content in {
        ".manyseed/plan/cells.parquet": b"PAR1" + b"x" * 100 + b"PAR1",
        ".manyseed/plan/groups.json": b'[{"layout": 1}]',
        ".manyseed/sweep.toml": b"name = ",
        "given/imported/zarr.json": b"[]",
    }.items():
        file = changed(exported, tmp_path / "a.zip", {name: content})
        before = sorted(tmp_path.rglob("*"))
        code, told = inside("import", file, "--out", tmp_path / "sweep")
        assert code == 2, told
        assert f"{file}: does not hold a complete sweep: " in told.replace("\n", " "), told
        assert ".manyseed-import" not in told
        assert sorted(tmp_path.rglob("*")) == before


def test_a_flipped_bit_is_one_message(exported: Path, tmp_path: Path) -> None:
    whole, file = exported.read_bytes(), tmp_path / "a.zip"
    dice = random.Random(0)
    refusals = 0
    for number in range(16):
        content = bytearray(whole)
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        file.write_bytes(content)
        code, told = inside("import", file, "--out", tmp_path / f"sweep-{number}")
        assert code in (0, 2), told  # a date may change, and nothing is lost
        assert "Traceback" not in told
        assert (tmp_path / f"sweep-{number}").exists() is (code == 0)
        refusals += code == 2
    assert refusals > 5
    assert not list(tmp_path.glob(".*"))


def test_of_two_imports_into_one_directory_one_wins_whole(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2, timeout=60)
    check = archives._check_whole
    monkeypatch.setattr(archives, "_check_whole", lambda paths: (check(paths), both.wait()))
    ends: list[str] = []

    def run() -> None:
        try:
            Sweep.import_predictions([exported], tmp_path / "sweep")
            ends.append("made")
        except UserError as error:
            ends.append(error.message)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ends) == ["exists already", "made"]
    assert [file.name for file in tmp_path.iterdir()] == ["sweep"]
    monkeypatch.undo()
    again = Sweep.import_predictions([exported], tmp_path / "again")
    assert_equal(stored(Sweep(tmp_path / "sweep")), stored(again))
    assert json.loads((tmp_path / "sweep" / "plan" / "groups.json").read_text())
