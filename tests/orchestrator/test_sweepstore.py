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

from manyseed import Sweep
from manyseed.analysis.options import Options
from manyseed.orchestrator.computing.tables import read_analysis
from manyseed.orchestrator.disk.lease import Lease, LeaseWatch
from manyseed.orchestrator.errors import DamagedFile, DamagedShard, ManyseedError
from manyseed.orchestrator.results.caveats import amounts
from manyseed.orchestrator.store import encoding, verify
from manyseed.orchestrator.store.encoding import Bools
from manyseed.orchestrator.store.groups import Group, list_groups, open_group
from manyseed.orchestrator.store.journal import JournalWriter, RowBytes
from manyseed.orchestrator.store.reader import read_array, read_rows
from manyseed.orchestrator.store.shards import lease_name
from manyseed.orchestrator.store.testsets import checksums_file, read_splits, write_splits
from tests.orchestrator.conftest import assert_equal, command, shared, stored

OPTIONS = Options(resamples=2)
PATH = "cancer/lr-sgd"


@pytest.fixture
def copy(quick: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """A trained sweep that a test may harm."""
    monkeypatch.setattr("manyseed.orchestrator.store.encoding.ATTEMPTS", 1)
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


def says_how_to_repair(sweep: Sweep, error: BaseException) -> bool:
    """Return whether an error does, as Python has it in its calls, or as outside of them."""
    where = sweep.directory
    ways = f'Sweep("{where}").verify(repair=True)', f"manyseed verify --repair {where}"
    return any(f": run {way}, which says" in str(error) for way in ways)


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
        assert says_how_to_repair(copy, caught.value), reader
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
    text = quick.paths.sweep_file.read_text()
    few = text.replace("seed    = 7", "seed    = 8").replace('"xgb"', "")
    return shared(tmp_path_factory, "other", few)


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


def test_a_run_whose_time_a_repair_lost_is_analysed_and_exported(copy: Sweep) -> None:
    copy.analyze(OPTIONS)
    accuracy = copy.results["runs"]["accuracy"]
    copy.compact()  # no journal knows the times any more
    groups = list_groups(copy.paths.store)  # one of them has a trained run with copies
    for group in groups:
        group.file(group.spec.array("fit_seconds"), 0).unlink()
        group.replica(0).unlink()  # as of an earlier version
    assert copy.verify(repair=True)["findings"]
    for group in groups:
        assert np.isnan(read_array(group, "fit_seconds")).all()
    copy.analyze(OPTIONS)
    assert copy.results["runs"]["accuracy"].to_list() == accuracy.to_list()
    copy.export(copy.directory / "a.parquet")


def test_a_copy_that_counts_as_trained_is_seen(copy: Sweep) -> None:
    group = group_of(copy)
    identical = np.zeros(group.rows, dtype=np.bool_)
    identical[3] = True
    fit_seconds = zarr.open_array(group.folder / "fit_seconds", mode="r+")
    fit_seconds[3] = np.nan
    verify.compare(group, 0, np.zeros_like(identical))
    with pytest.raises(DamagedShard, match="1 rows with an impossible status"):
        verify.compare(group, 0, identical)


def test_rows_are_compared_once_for_each_version_of_their_files(
    copy: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []
    real = verify.compare

    def counting(group: Group, shard: int, copies: Bools) -> None:
        compared.append(group.spec.path)
        real(group, shard, copies)

    monkeypatch.setattr(verify, "compare", counting)
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
    last = "one.accuracy_by_cell()  # as in the table of cells"
    readme = snippet("README.md", last).replace(
        '"sklearn:breast_cancer", "mlp"', str(PATH.split("/"))[1:-1]
    )
    by_cell: dict[str, Any] = {"sweep": copy}
    exec(readme.replace("one.accuracy", "found = one.accuracy"), by_cell)
    cells = copy.results["cells"].filter(classifier="lr-sgd").sort("cell")
    found = by_cell["found"].sort("cell")
    assert found["cell"].to_list() == cells["cell"].to_list()
    np.testing.assert_allclose(found["accuracy"], cells["accuracy_mean"], atol=1e-12)
    plain = snippet("docs/store.md", 'accuracy = right.mean("sample")').replace(
        "openml%3Avehicle/mlp", PATH
    )
    plain = plain.replace("predictions.zarr", str(copy.paths.store))
    names: dict[str, Any] = {"xr": xr}
    exec(plain, names)
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
    monkeypatch.setattr("manyseed.orchestrator.upkeep.running", lambda submissions: [object()])
    copy.analyze(OPTIONS)
    told = "Analysed 61 of 64 finished runs, of 64 planned."
    assert told in str(amounts(read_analysis(copy.paths)[1]))
    with pytest.warns(UserWarning, match="61 of 64 finished runs"):
        page = copy.report().read_text()
    assert told in page
    assert "These results are of 61 of 64 finished runs" in page
    publishing.release()
    copy.analyze(OPTIONS)  # also while tasks train, what nobody else publishes is published first
    assert len(copy.results["runs"]) == 64
    assert "Analysed 64 of 64" in str(amounts(read_analysis(copy.paths)[1]))


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """Two datasets of one shape, in an order that is not that of classes, with two test sets."""
    text = """
name    = "alike"
seed    = 1
repeats = 2
runs    = 2
[[grid]]
dataset    = ["a", "b"]
classifier = ["lr-sgd"]
[dataset.a]
source   = "sklearn:breast_cancer"
test     = 60
[dataset.b]
source   = "sklearn:digits"
classes  = { few = ["0", "1", "2"], many = ["7", "8", "9"] }
positive = "many"
test     = 60
"""
    return shared(tmp_path_factory, "alike", text)


def other_repeats(group: Group, name: str, sweep: Sweep) -> None:
    """Swap the test sets of two repeats, in a file that is whole."""
    array = group.spec.array(name)
    values = encoding.read(group.folder / name, 0, group.repeats)[::-1]
    assert (values[0] != values[1]).any()
    key, encoded = encoding.encode(group.metadata(array), 0, values)
    (group.folder / name / key).write_bytes(encoded)


def other_groups(group: Group, name: str, sweep: Sweep) -> None:
    """Swap the files of two groups."""
    theirs = open_group(sweep.paths.store, "b/lr-sgd")
    files = [one.file(one.spec.array(name), 0) for one in (group, theirs)]
    contents = [file.read_bytes() for file in files]
    assert contents[0] != contents[1]
    for file, content in zip(files, reversed(contents), strict=True):
        file.write_bytes(content)


@pytest.mark.parametrize("swap", [other_repeats, other_groups])
@pytest.mark.parametrize("name", ["y_true", "test_index"])
def test_test_sets_of_others_are_seen_and_made_again(
    alike: Sweep, tmp_path: Path, name: str, swap: Callable[[Group, str, Sweep], None]
) -> None:
    shutil.copytree(alike.directory, tmp_path / "sweep")
    sweep = Sweep(tmp_path / "sweep")
    group = open_group(sweep.paths.store, "a/lr-sgd")
    swap(group, name, sweep)
    for reader, read in READERS.items():
        with pytest.raises(DamagedShard, match=f"a/lr-sgd/{name}/c.0.0 holds another") as caught:
            read(sweep)
        assert says_how_to_repair(sweep, caught.value), reader
    assert not list(sweep.directory.glob("*a.*"))
    found = [one for one in sweep.verify()["findings"] if one["group"] == group.spec.path]
    told = f"test set 0 is not what was stored ({name})"
    assert {"group": "a/lr-sgd", "problem": told, "rows": 0, "runs": []} in found
    done = sweep.verify(repair=True)
    assert (done["runs_set_back"], done["runs_wrong"], done["not_mended"]) == (0, 0, [])
    assert sweep.verify()["findings"] == []
    assert_equal(stored(sweep), stored(alike))


def test_checksums_of_test_sets_come_with_the_next_that_makes_them(
    alike: Sweep, tmp_path: Path
) -> None:
    """Earlier versions wrote none; what they stored is read as it was."""
    shutil.copytree(alike.directory, tmp_path / "sweep")
    sweep = Sweep(tmp_path / "sweep")
    group = open_group(sweep.paths.store, "a/lr-sgd")
    file = checksums_file(group)
    before = file.read_bytes()
    y_true, test_index = read_splits(group)
    file.unlink()
    load(sweep)
    assert sweep.verify()["findings"] == []
    write_splits(group, 0, y_true, test_index, LeaseWatch(sweep.paths.leases))
    assert file.read_bytes() == before
    file.write_bytes(before.replace(b'"0":', b'"7":'))
    for read in READERS.values():
        with pytest.raises(DamagedShard, match=f"{file} is not as it was"):
            read(sweep)
    told = "test sets 0 to 1: crc32c.json cannot be read"
    assert [one["problem"] for one in sweep.verify()["findings"]][:1] == [told]
    assert sweep.verify(repair=True)["not_mended"] == []
    assert file.read_bytes() == before


def test_a_plain_reader_does_not_meet_the_checksums(
    alike: Sweep, recwarn: pytest.WarningsRecorder
) -> None:
    tree = xr.open_datatree(alike.paths.store, engine="zarr", consolidated=False)
    assert set(tree["a/lr-sgd"].to_dataset().sizes) == {"run", "epoch", "sample", "repeat"}
    names = {name for name, _ in zarr.open_group(alike.paths.store, mode="r").members(None)}
    assert "a/lr-sgd/test_index" in names
    assert not any("crc32c" in name for name in names)
    assert not [one for one in recwarn if "recognized" in str(one.message)]
