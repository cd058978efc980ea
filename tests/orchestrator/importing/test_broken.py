"""Files that a copy left broken: all are named at once, with the command that leaves them out."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.orchestrator.conftest import inside

N = 60
NAMES = np.array(["ant", "bee", "cat", "cater"])
Y = np.random.default_rng(3).permutation(np.arange(N) % 3)


def predicted(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(N) < 0.7, Y, rng.integers(0, 3, N))


def npz(folder: Path, n: int) -> list[Path]:
    folder.mkdir()
    files = [folder / f"seed_{seed}.npz" for seed in range(n)]
    for seed, file in enumerate(files):
        np.savez(file, labels=predicted(seed), y_true=Y)
    return files


def proposed(said: str) -> list[str]:
    (words,) = re.findall(r"to leave .* out: manyseed (import .*)", said)
    return shlex.split(words)


@pytest.mark.parametrize(("n", "broken"), [(9, 2), (12, 7)])
def test_all_broken_files_are_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int, broken: int
) -> None:
    monkeypatch.chdir(tmp_path)
    files = npz(Path("p"), n)
    for file in files[1 : 1 + broken]:
        file.write_bytes(file.read_bytes()[:300])
    code, said = inside("import", "p", "--out", "s")
    more = f"{broken - 1} other file{'s' * (broken > 2)}"
    assert (code, f"nor can {more} be read: seed_2.npz" in said) == (2, True), said
    assert ("seed_6.npz" in said.split("to leave")[0]) is False
    assert not Path("s").exists()
    code, said = inside(*proposed(said))
    assert (code, f"Imported {n - broken} runs" in said) == (0, True), said


def test_all_broken_tables_are_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in range(5):
        frame = pl.DataFrame({"prediction": NAMES[predicted(seed)], "truth": NAMES[Y]})
        frame.write_parquet(f"seed_{seed}.parquet")
    for seed in (0, 3):
        file = Path(f"seed_{seed}.parquet")
        file.write_bytes(file.read_bytes()[:-40])
    code, said = inside("import", *sorted(Path().glob("*.parquet")), "--out", "s")
    assert (code, "nor can 1 other file be read: seed_3.parquet" in said) == (2, True), said
    code, said = inside(*proposed(said))
    assert (code, "Imported 3 runs" in said) == (0, True), said


def texts(last: str, n: int = N) -> list[str]:
    """Return CSVs of three seeds, the last of which ends in `last`."""
    found = []
    for seed in range(3):
        rows = zip(NAMES[Y], NAMES[predicted(seed)], strict=True)
        lines = ["truth,prediction", *(f"{true},{own}" for true, own in rows)]
        lines[-1] = "cat,cater"
        lines[4] = "cater,cat"
        found.append("\n".join(lines) + "\n")
    lines = found[-1].splitlines()[: n + 1]
    lines[-1] = last
    return [*found[:-1], "\n".join(lines)]


@pytest.mark.parametrize(
    ("last", "n", "why"),
    [
        ("cat,ca", N, 'its last field, "ca", is the start of "cat"'),
        ("ca", N, "its last line has 1 of 2 fields"),
        ("cat,cat", N - 7, "it has 53 rows, but others 60"),
    ],
)
def test_a_csv_that_is_cut_off_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str, n: int, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p").mkdir()
    for seed, text in enumerate(texts(last, n)):
        Path(f"p/seed_{seed}.csv").write_text(text)
    code, said = inside("import", "p", "--out", "s")
    assert (code, f"is cut off: it has no last line break, and {why}" in said) == (2, True), said
    assert "echo >> p/seed_2.csv" in said
    assert not Path("s").exists()
    code, said = inside(*proposed(said))
    assert (code, "Imported 2 runs" in said) == (0, True), said


@pytest.mark.parametrize("value", ["0.2", "2e-"])
def test_a_number_that_is_cut_off_is_refused(tmp_path: Path, value: str) -> None:
    p = np.random.default_rng(0).uniform(0.1, 0.9, N)
    lines = [f"{true},{1 - one:.6f},{one:.6f}" for true, one in zip(Y % 2, p, strict=True)]
    lines[-1] = f"{lines[-1].rsplit(',', 1)[0]},{value}"
    file = tmp_path / "a.csv"
    file.write_text("\n".join(["truth,confidence.0,confidence.1", *lines]))
    code, said = inside("import", file, "--out", tmp_path / "s")
    assert (code, "is no value as others of confidence.1 are" in said) == (2, True), said


@pytest.mark.parametrize("last", ["cat,cat", "cat,cater", "cat,dog"])
def test_a_whole_last_line_needs_no_line_break(tmp_path: Path, last: str) -> None:
    files = [tmp_path / f"seed_{seed}.csv" for seed in range(3)]
    for file, text in zip(files, texts(last), strict=True):
        file.write_text(text)
    code, said = inside("import", *files, "--out", tmp_path / "s")
    assert (code, "Imported 3 runs" in said) == (0, True), said


def test_files_of_a_tool_that_ends_no_last_line_are_read(tmp_path: Path) -> None:
    files = [tmp_path / f"seed_{seed}.csv" for seed in range(3)]
    for file, text in zip(files, texts("cat,cater"), strict=True):
        file.write_text(text.rstrip().rsplit("\n", 1)[0] + "\ncate,cate")
    code, said = inside("import", *files, "--out", tmp_path / "s")
    assert (code, "Imported 3 runs" in said) == (0, True), said
