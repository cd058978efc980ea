"""Small files are read at one door: what cannot be what was written there is one error."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.errors import DamagedFile
from orchestrator.files import read_json, read_record, write_json


@dataclass(frozen=True)
class Example:
    name: str
    count: int = 1
    parts: tuple[int, ...] = ()


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_json(tmp_path / "file", {"name": "a", "parts": [1, 2], "of_a_later_version": 3})
    assert read_record(tmp_path / "file", Example) == Example("a", 1, (1, 2))


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[]", b"null", b'{"name": 1}', b'{"count": 1}', b"[" * 100_000],
)
def test_what_is_no_such_record_is_damage_and_names_the_file(
    tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(DamagedFile, match=str(file)):
        read_record(file, Example)


def test_a_changed_value_is_seen_by_the_checksum_and_old_files_without_one_are_read(
    tmp_path: Path,
) -> None:
    file = tmp_path / "file"
    for value in ({"a": [1, 2]}, {}, [1, 2], "text"):
        write_json(file, value)
        assert read_json(file) == value
    write_json(file, {"name": "a", "count": 5})
    file.write_bytes(file.read_bytes().replace(b"5}", b"6}"))
    for read in (read_json, lambda file: read_record(file, Example)):
        with pytest.raises(DamagedFile, match=f"{file}.*checksum"):
            read(file)
    file.write_text('{"name":"a","count":6}')
    assert read_record(file, Example).count == read_json(file)["count"] == 6


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_is_damage(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(DamagedFile, match=str(file)):
        read_json(file)


def test_neither_a_pipe_nor_a_folder_nor_a_device_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("pipe", "folder", "device"):
        with pytest.raises(DamagedFile, match="not a plain file"):
            read_json(tmp_path / name)


def test_what_is_not_there_is_not_damage(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_record(tmp_path / "file", Example)
