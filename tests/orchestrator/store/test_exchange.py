import json
import signal
import subprocess
import sys
import zipfile

import numpy as np
import polars as pl
import pytest
import xarray as xr
import zarr
from zarr.storage import ZipStore

from manyseed.orchestrator.errors import DamagedShard, StoreError, StoreUnavailable
from manyseed.orchestrator.paths import BESIDE
from manyseed.orchestrator.store import exchange
from manyseed.orchestrator.store.coordinates import TRAIN_ACCURACY
from manyseed.orchestrator.store.exchange import SCHEMA, export_parquet, export_zip
from manyseed.orchestrator.store.groups import list_groups
from manyseed.orchestrator.store.journal import RowBytes
from manyseed.orchestrator.store.shards import publish
from manyseed.orchestrator.store.verify import verify
from tests.orchestrator.store.test_verify import harm
from tests.orchestrator.store.world import (
    NUMBER,
    REPEATS,
    World,
    assert_true_rows,
    finished,
    prediction,
    spec,
    truth,
    values,
)

FINISHED = {0, 1, 2, 3, 5, 9}
POINT_BYTES = 8  # of test_index, y_true and label in a table


def make(folder, made) -> World:
    world = World(folder, made)
    world.write_splits()
    world.finish(*sorted(FINISHED - {3}))
    with world.journal() as journal:
        journal.append_copy(NUMBER, 3, 1)
    for shard in range(world.group.shards):
        publish(world.group, shard, world.index(), world.watch)
    return world


@pytest.fixture(
    params=[
        spec(2),
        spec(3, curves=True, optional=(TRAIN_ACCURACY.of(),)),
        spec(300, dtype="float16", scores="all"),
    ]
)
def world(request, tmp_path):
    return make(tmp_path, request.param)


def test_a_zip_is_the_store(world, tmp_path):
    (tmp_path / "sweep.toml").write_text("name")
    export_zip(world.store, tmp_path / "a.zip", {"sweep.toml": tmp_path / "sweep.toml"})
    plain = xr.open_zarr(world.store, group=world.spec.path, consolidated=False)
    with ZipStore(tmp_path / "a.zip", mode="r") as zipped:
        tree = xr.open_datatree(zipped, engine="zarr", consolidated=True)[world.spec.path]
        xr.testing.assert_identical(tree.to_dataset().load(), plain.load())
        one = xr.open_zarr(zipped, group=world.spec.path, consolidated=True)
        xr.testing.assert_identical(one.load(), plain)
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.read(f"{BESIDE}/sweep.toml") == b"name"
        archive.extractall(tmp_path / "unpacked")
    (unpacked,) = list_groups(tmp_path / "unpacked")
    assert unpacked.spec == world.spec
    assert not unpacked.replica(0).exists()  # earlier versions refuse what they do not know
    assert list(verify(unpacked)) == []
    assert finished(unpacked) == FINISHED
    assert_true_rows(unpacked, FINISHED, {3: 1})
    for file in world.group.folder.glob("*/c.*"):
        assert (unpacked.folder / file.relative_to(world.group.folder)).read_bytes() == (
            file.read_bytes()
        )


@pytest.mark.slow
def test_what_compresses_is_smaller_in_a_zip_and_reads_the_same(tmp_path):
    world = make(tmp_path, spec(2, shard=4096, chunk=2))  # a shard that is hardly begun
    files = list(world.group.folder.glob("*/c.*"))
    export_zip(world.store, output := tmp_path / "a.zip", {})
    with zipfile.ZipFile(output) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
    label = entries[f"{world.spec.path}/label/c.0.0.0"]
    assert label.compress_type == zipfile.ZIP_DEFLATED
    assert label.compress_size < label.file_size / 10
    stored = [entry for name, entry in entries.items() if "/c." in name]
    assert sum(entry.file_size for entry in stored) == sum(file.stat().st_size for file in files)
    assert sum(entry.compress_size for entry in stored) < sum(e.file_size for e in stored) / 2
    plain = xr.open_zarr(world.store, group=world.spec.path, consolidated=False).load()
    with ZipStore(output, mode="r") as zipped:
        xr.testing.assert_identical(xr.open_zarr(zipped, group=world.spec.path).load(), plain)
        group = zarr.open_group(zipped, path=world.spec.path, mode="r")
        for name in ("label", "margin", "status", "crc"):
            np.testing.assert_array_equal(group[name][:], plain[name].to_numpy())


KILLED = """
import contextlib, os, signal, sys
from pathlib import Path
from manyseed.orchestrator.store import exchange

placing = exchange.placing

@contextlib.contextmanager
def killed(path):
    with placing(path) as partial:
        yield partial
        os.kill(os.getpid(), signal.SIGKILL)

exchange.placing = killed
store, output = map(Path, sys.argv[1:])
if output.suffix == ".zip":
    exchange.export_zip(store, output, {})
else:
    exchange.export_parquet(store, output)
"""


@pytest.mark.parametrize("name", ["a.zip", "a.parquet"])
def test_what_a_killed_export_left_is_gone_after_the_next(tmp_path, name):
    world = make(tmp_path, spec(2))
    (folder := tmp_path / "out").mkdir()
    others = folder / f".b{name}.0.partial"
    others.touch()
    command = [sys.executable, "-c", KILLED, str(world.store), str(folder / name)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    left = set(folder.iterdir()) - {others}
    assert [file.name.startswith(f".{name}.") for file in left] == [True]
    if name.endswith(".zip"):
        export_zip(world.store, folder / name, {})
        with zipfile.ZipFile(folder / name) as archive:
            assert archive.testzip() is None
    else:
        export_parquet(world.store, folder / name)
        assert len(pl.read_parquet(folder / name)) == 2 * len(FINISHED)
    assert set(folder.iterdir()) == {folder / name, others}


def test_equal_stores_give_equal_zips(world, tmp_path):
    for name in ("a.zip", "b.zip"):
        export_zip(world.store, tmp_path / name, {})
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_a_copy_made_while_somebody_publishes_tells_the_truth(tmp_path, monkeypatch):
    """Statuses come first, so a row that is done in the copy has its predictions."""
    world = make(tmp_path, spec(3))
    original = exchange._add

    def slowly(archive, file, name):
        if name.endswith("status/c.1"):
            world.finish(4, 6, 7)
        if not name.endswith("status/c.1"):
            publish(world.group, 1, world.index(), world.watch)
        original(archive, file, name)

    monkeypatch.setattr(exchange, "_add", slowly)
    export_zip(world.store, tmp_path / "a.zip", {})
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        archive.extractall(tmp_path / "unpacked")
    (unpacked,) = list_groups(tmp_path / "unpacked")
    assert finished(world.group) > finished(unpacked) == FINISHED
    assert_true_rows(unpacked, FINISHED, {3: 1})


def test_a_table_has_one_row_a_run_and_snapshot(world, tmp_path):
    export_parquet(world.store, tmp_path / "a.parquet")
    table = pl.read_parquet(tmp_path / "a.parquet")
    assert table.schema == SCHEMA
    rows = sorted(FINISHED)
    assert len(table) == 2 * len(rows)
    assert table["epoch"].to_list() == [1, 5] * len(rows)
    assert table["run_index"].to_list() == np.repeat(rows, 2).tolist()
    assert table["is_copy"].to_list() == np.repeat([row == 3 for row in rows], 2).tolist()
    assert table["fit_seconds"].to_list()[-1] == 9
    assert table["fit_seconds"].null_count() == 2
    assert table["vary"].to_list()[:6] == ["none"] * 2 + ["sig-digit:0"] * 2 + ["relative:0.1"] * 2
    assert table["dataset"].unique().to_list() == ["openml:vehicle"]
    assert table["class_names"][0].to_list() == list(world.spec.class_names)
    kept = [None] * len(rows)
    if world.spec.optional:
        own = [prediction(world.spec, {3: 1}.get(row, row)).measured for row in rows]
        kept = [float(measured["final_train_accuracy"]) for measured in own]
    assert table["train_accuracy"][::2].null_count() == len(rows)  # of the last snapshot alone
    assert table["train_accuracy"][1::2].to_list() == kept
    y_true = truth(world.spec)
    dtype = np.dtype(world.spec.array("label").dtype)
    for number, row in enumerate(rows):
        part = table[2 * number : 2 * number + 2]
        label = np.frombuffer(values(world.spec, {3: 1}.get(row, row)).label, dtype)
        assert np.array_equal(np.concatenate(part["label"].to_list()), label)
        repeat = row % REPEATS
        for snapshot in range(2):
            assert part["y_true"][snapshot].to_list() == y_true[repeat].tolist()
            assert part["test_index"][snapshot].to_list() == list(range(6 * repeat, 6 * repeat + 6))


def test_a_damaged_store_leaves_no_table(world, tmp_path, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    harm(world.group.file(world.spec.array("label"), 0), "truncate")
    with pytest.raises(DamagedShard, match="verify --repair"):
        export_parquet(world.store, tmp_path / "a.parquet")
    assert not list(tmp_path.glob("*a.parquet*"))


@pytest.mark.parametrize("write", [export_parquet, lambda *paths: export_zip(*paths, {})])
def test_an_impossible_output_is_named(world, tmp_path, write):
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match="file/a"):
        write(world.store, tmp_path / "file" / "a")


def test_an_impossible_store_is_named(tmp_path):
    world = World(tmp_path)
    file = world.group.folder / "zarr.json"
    document = json.loads(file.read_bytes())
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(StoreError, match=r"mlp/zarr\.json: does not describe a group"):
        export_zip(world.store, tmp_path / "a.zip", {})
    del document["attributes"]["manyseed"]["samples"]
    file.write_text(json.dumps(document))
    with pytest.raises(StoreError, match=r"mlp/zarr\.json: samples missing"):
        export_zip(world.store, tmp_path / "a.zip", {})


MEMORY = """
import sys
from pathlib import Path
from manyseed.orchestrator.paths import BESIDE
from manyseed.orchestrator.store.exchange import export_parquet, export_zip

for number, store in enumerate(sys.argv[2:]):
    export_zip(Path(store), Path(sys.argv[1]) / f"{number}.zip", {})
    export_parquet(Path(store), Path(sys.argv[1]) / f"{number}.parquet")
    # not getrusage, which remembers the size of the process that started this one
    status = Path("/proc/self/status").read_text()
    print(int(status.split("VmHWM:")[1].split()[0]) * 1024)
"""


def test_memory_does_not_grow_with_the_store(tmp_path):
    """Of what six times as many runs take more, half is the most that is held."""
    samples, few = 20_000, 448  # fewer do not fill what is written at once
    stores = []
    for n in (few, 6 * few):
        options = {"samples": samples, "epochs": (1,), "scores": "none"}
        world = World(tmp_path / str(n), spec(2, shard=64, chunk=64, **options), n=n)
        world.write_splits_for(samples)
        label = RowBytes(bytes(samples))
        with world.journal() as journal:
            for row in range(n):
                journal.append(NUMBER, row, label, recipe=1, fit_seconds=1)
        for shard in range(world.group.shards):
            publish(world.group, shard, world.index(), world.watch)
        stores.append(world.store)
    result = subprocess.run(
        [sys.executable, "-c", MEMORY, tmp_path, *stores],
        capture_output=True,
        text=True,
        check=True,
    )
    small, large = map(int, result.stdout.split())
    table = 5 * few * samples * POINT_BYTES  # what the larger one has more, uncompressed
    assert large - small < table / 2
    assert len(pl.read_parquet(tmp_path / "1.parquet", columns=["cell"])) == 6 * few
