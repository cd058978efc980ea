"""The storm's own eyes must see what the product sees, or more: else its verdicts mean nothing."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import zarr

from benchmarks.storm.adversary import _is_whole
from benchmarks.storm.comparison import differences
from benchmarks.storm.damage import Damage
from benchmarks.storm.ledger import SIZE, Ledger, read_journal
from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.store.index import JournalFolder, JournalIndex
from manyseed.orchestrator.store.journal import JournalWriter
from manyseed.orchestrator.sweep import Sweep
from tests.orchestrator.conftest import QUICK, write
from tests.orchestrator.store.test_journal import fill

WINE = """
name    = "wine"
seed    = 3
repeats = 1
runs    = 4

[[grid]]
dataset    = ["sklearn:wine"]
classifier = ["lr-sgd"]
"""


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_journal_is_read_as_the_product_reads_it(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with JournalWriter(tmp_path / "a.journal", "0f" * 16 if seed % 2 else "") as writer:
        fill(writer, range(12))
        writer.append_copy(1, 12, 3)
    data = bytearray((tmp_path / "a.journal").read_bytes())
    if place := rng.randrange(len(data)):
        harm = rng.choice(("flip", "cut out", "truncate"))
        if harm == "flip":
            data[place] ^= 1
        elif harm == "cut out":
            del data[place : place + rng.randrange(1, 3 * SIZE)]
        else:
            del data[place:]
    (tmp_path / "a.journal").write_bytes(data)
    index = JournalIndex(JournalFolder(tmp_path))
    good = {number for number in index.rows(1).tolist() if index.read(1, number) is not None}
    assert {record.row[1] for record in read_journal(bytes(data)) if record.good} == good


def test_a_finished_run_that_is_there_no_more_is_lost(quick: Sweep, tmp_path: Path) -> None:
    copy = tmp_path / "sweep"
    subprocess.run(["cp", "-a", quick.directory, copy], check=True)
    ledger = Ledger(SweepPaths(copy))
    assert ledger.look() == []
    assert len(ledger.finished) == 64
    group = ledger.groups()[0]
    (group.folder / "status" / "c.0").unlink()
    assert {lost.what for lost in ledger.look()} == {"lost"}


def test_optional_arrays_are_compared(tmp_path: Path) -> None:
    text = QUICK + "\n[keep]\ntrain_accuracy = true\n"
    sweep = Sweep.plan(write(tmp_path / "kept.toml", text), tmp_path / "kept")
    sweep.submit(workers=2)
    sweep.wait()
    sweep.compact()
    assert list(differences(sweep.directory, sweep.directory)) == []
    subprocess.run(["cp", "-a", sweep.directory, tmp_path / "other"], check=True)
    group = Ledger(SweepPaths(tmp_path / "other")).groups()[0]
    array = zarr.open_array(group.folder / "final_train_accuracy", mode="r+")
    array[0] = 1 - array[0]
    found = list(differences(tmp_path / "other", sweep.directory))
    assert any("final_train_accuracy: 1 runs differ" in text for text in found)
    assert any("differ from their own checksum" in text for text in found)


@pytest.mark.parametrize("scores", ["all", "margin"])
def test_labels_that_follow_from_scores_are_not_destroyed(tmp_path: Path, scores: str) -> None:
    """Of three classes; the margin of one of many does not say which other one was predicted."""
    text = WINE + f'\n[keep]\nscores = "{scores}"\n'
    sweep = Sweep.plan(write(tmp_path / "wine.toml", text), tmp_path / "sweep")
    sweep.submit(workers=1)
    sweep.wait()
    sweep.compact()
    ledger = Ledger(sweep.paths)
    assert ledger.look() == []
    damage = Damage(ledger)
    for file in sweep.paths.store.glob("*/*/label/c.*"):
        damage.harm(file, "empty", random.Random(0))
    damage.assess()
    sure, maybe = damage.destroyed()
    assert (len(sure), len(maybe)) == ((0, 0) if scores == "all" else (4, 0))
    sweep.verify(repair=True)
    assert sweep.status()["runs"]["missing"] == len(sure)


@pytest.mark.parametrize("ending", ["zip", "parquet"])
def test_an_export_that_was_ended_late_is_whole(quick: Sweep, tmp_path: Path, ending: str) -> None:
    file = quick.export(tmp_path / f"e.{ending}")
    assert _is_whole(file)
    file.write_bytes(file.read_bytes()[:-100])
    assert not _is_whole(file)


def test_one_bit_is_a_difference(quick: Sweep, tmp_path: Path) -> None:
    copy = tmp_path / "sweep"
    subprocess.run(["cp", "-a", quick.directory, copy], check=True)
    assert list(differences(copy, quick.directory)) == []
    group = Ledger(SweepPaths(copy)).groups()[0]
    file = group.folder / "crc" / "c.0"
    file.write_bytes((group.folder / "fit_seconds" / "c.0").read_bytes())
    assert any("crc" in text or "checksum" in text for text in differences(copy, quick.directory))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_short_storm_breaks_no_promise() -> None:
    command = [sys.executable, "-m", "benchmarks.storm", "--quick", "--json", "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["faults"] > 0
