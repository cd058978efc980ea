"""What is read for results is what was published, or nothing is shown."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

from analysis.options import Options
from orchestrator import Sweep
from orchestrator.errors import DamagedFile, ManyseedError
from orchestrator.results.analysing import read_analysis
from orchestrator.results.caveats import amounts
from orchestrator.store import encoding, intact
from orchestrator.store.errors import DamagedShard
from orchestrator.store.groups import Group, open_group
from orchestrator.store.journal import JournalWriter
from orchestrator.store.lease import Lease, LeaseWatch
from orchestrator.store.reader import read_rows
from orchestrator.store.rows import RowBytes
from orchestrator.store.shards import lease_name
from tests.orchestrator.conftest import command, train, write

OPTIONS = Options(resamples=2)
PATH = "cancer/lr-sgd"


@pytest.fixture
def copy(quick: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """A trained sweep that a test may harm."""
    monkeypatch.setattr("orchestrator.store.encoding.ATTEMPTS", 1)
    shutil.copytree(quick.directory, tmp_path / "sweep")
    return Sweep(tmp_path / "sweep")


def group_of(sweep: Sweep) -> Group:
    return open_group(sweep.paths.store, PATH)


def file_of(sweep: Sweep, name: str) -> Path:
    group = group_of(sweep)
    return group.file(group.spec.array(name), 0)


def load(sweep: Sweep) -> None:
    for one in sweep.predictions.subtree:
        one.to_dataset().load()


READERS: dict[str, Callable[[Sweep], object]] = {
    "analyze": lambda sweep: sweep.analyze(OPTIONS),
    "table": lambda sweep: sweep.export(sweep.directory / "a.parquet"),
    "zip": lambda sweep: sweep.export(sweep.directory / "a.zip"),
    "python": load,
}


@pytest.mark.parametrize(
    "name",
    [
        *("label", "margin", "y_true", "test_index", "status", "crc", "fit_seconds", "recipe"),
        *("cell", "repeat_index", "run_index", "train_fraction", "vary", "epoch"),
    ],
)
def test_a_lost_file_is_an_error_wherever_it_is_read(copy: Sweep, name: str) -> None:
    file_of(copy, name).unlink()
    for reader, read in READERS.items():
        with pytest.raises((DamagedShard, DamagedFile)) as caught:
            read(copy)
        assert f"{PATH}/" in str(caught.value), reader
        assert name in str(caught.value), reader
        assert f"verify --repair {copy.directory}" in str(caught.value), reader
    assert not (copy.directory / "results").exists()
    assert not list(copy.directory.glob("*a.*"))


def test_both_files_of_test_sets_may_be_lost(copy: Sweep) -> None:
    for name in ("y_true", "test_index"):
        file_of(copy, name).unlink()
    for read in READERS.values():
        with pytest.raises(DamagedShard, match=r"test_index.*holds no test set 0"):
            read(copy)


@pytest.fixture(scope="module")
def other(quick: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A sweep that differs in its seed."""
    folder = tmp_path_factory.mktemp("other")
    text = quick.paths.sweep_file.read_text()
    few = text.replace("seed    = 7", "seed    = 8").replace('"xgb"', "")
    return train(write(folder / "other.toml", few), folder / "sweep")


@pytest.mark.parametrize("name", ["label", "margin", "crc"])
def test_a_file_of_another_sweep_is_found_by_the_checksums_of_rows(
    copy: Sweep, other: Sweep, name: str
) -> None:
    copy.analyze(OPTIONS)
    before = copy.results["runs"]
    shutil.copy(file_of(other, name), file_of(copy, name))
    for reader in ("analyze", "table", "zip"):
        with pytest.raises(DamagedShard, match=re.escape(name)) as caught:
            READERS[reader](copy)
        assert "differ from their checksums" in str(caught.value)
        assert PATH in str(caught.value)
    assert copy.results["runs"].equals(before)
    assert not list(copy.directory.glob("*a.*"))


def test_a_command_says_so_in_one_message(copy: Sweep, other: Sweep) -> None:
    shutil.copy(file_of(other, "label"), file_of(copy, "label"))
    result = command("analyze", copy.directory)
    assert result.returncode == 4
    assert "label/c.0.0.0" in result.stderr.replace("\n", "")
    assert "Traceback" not in result.stderr


def test_a_status_that_cannot_be_a_rows_is_found(copy: Sweep) -> None:
    group = group_of(copy)
    status = file_of(copy, "status")
    empty = np.zeros(group.spec.shard_length, np.uint8)
    _, encoded = encoding.encode(group.metadata(group.spec.array("status")), 0, empty)
    status.write_bytes(encoded)
    with pytest.raises(DamagedShard, match="status"):
        copy.export(copy.directory / "a.zip")


def test_rows_are_compared_once_for_each_version_of_their_files(
    copy: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []
    real = intact.compare

    def counting(group: Group, shard: int) -> None:
        compared.append(group.spec.path)
        real(group, shard)

    monkeypatch.setattr(intact, "compare", counting)
    copy.analyze(OPTIONS)
    assert len(compared) == 2
    copy.analyze(OPTIONS)
    copy.export(copy.directory / "a.parquet")
    assert len(compared) == 2
    file_of(copy, "margin").touch()
    copy.analyze(OPTIONS)
    assert compared[2:] == [PATH]
    (copy.paths.results / "checked.json").write_text("{")  # it can be thrown away
    copy.analyze(OPTIONS)
    assert len(compared) == 5


def test_a_pipe_for_a_file_is_an_error_at_once(copy: Sweep) -> None:
    for name in ("label", "y_true"):
        file = file_of(copy, name)
        file.rename(aside := copy.directory / "aside")
        os.mkfifo(file)
        for read in READERS.values():
            with pytest.raises(ManyseedError, match=name):
                read(copy)
        aside.rename(file)


def snippet(page: str, last: str) -> str:
    """Return the documented block of Python that ends in a line, from what opens a group on."""
    (block,) = re.findall(rf"\n(one = .*?\n{re.escape(last)})\n```", Path(page).read_text(), re.S)
    return str(block)


def test_the_documented_lines_tell_the_accuracy_of_the_analysis(copy: Sweep) -> None:
    copy.analyze(OPTIONS)
    runs = (
        copy.results["runs"].filter(classifier="lr-sgd").sort("cell", "repeat_index", "run_index")
    )
    last = 'accuracy = right.mean("sample")'
    readme = snippet("README.md", last).replace("sklearn%3Abreast_cancer/mlp", PATH)
    plain = snippet("docs/store.md", last).replace("openml%3Avehicle/mlp", PATH)
    plain = plain.replace("predictions.zarr", str(copy.paths.store))
    for lines in (readme, plain):
        names: dict[str, Any] = {"sweep": copy, "xr": xr}
        exec(lines, names)
        found = names["accuracy"].isel(epoch=-1)
        order = np.lexsort((found.run_index, found.repeat_index, found.cell))
        np.testing.assert_allclose(found.to_numpy()[order], runs["accuracy"], atol=1e-12)


def test_all_rows_are_asked_for_by_name(copy: Sweep) -> None:
    one = copy.predictions[PATH].to_dataset()
    raw = copy.raw_predictions[PATH].to_dataset()
    assert raw.sizes["run"] > one.sizes["run"] == 32
    np.testing.assert_array_equal(raw.label[one.row.values].values, one.label.values)


def test_what_somebody_else_publishes_is_left_out_and_said(
    copy: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, rows = group_of(copy), [5, 6, 9]
    held = read_rows(group, ("label", "margin"), rows)
    with JournalWriter(copy.paths.journals / "0001-0000-aa-0.journal") as journal:
        for place, row in enumerate(rows):
            values = RowBytes(held["label"][place].tobytes(), held["margin"][place].tobytes())
            journal.append(group.spec.number, row, values, recipe=1, fit_seconds=1.0)
    for name in ("status", "crc"):
        zarr.open_array(group.folder / name, mode="r+")[rows] = 0
    watch, number = LeaseWatch(copy.paths.leases), rows[0] // group.spec.shard_length
    publishing = Lease(watch, lease_name(group, number))
    publishing.take()  # as a task does that trains
    monkeypatch.setattr("orchestrator.keeping.running", lambda submissions: [object()])
    copy.analyze(OPTIONS)
    told = "Analysed 61 of 64 finished runs, of 64 planned."
    assert told in str(amounts(read_analysis(copy.paths)[1]))
    page = copy.report().read_text()
    assert told in page
    assert "over the 61 that were analysed, of 64 that are done" in page
    publishing.release()
    copy.analyze(OPTIONS)  # also while tasks train, what nobody else publishes is published first
    assert len(copy.results["runs"]) == 64
    assert "Analysed 64 of 64" in str(amounts(read_analysis(copy.paths)[1]))
