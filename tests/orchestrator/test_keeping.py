"""Keeping what was trained: portable copies, stores of other versions, disks that refuse."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import xarray as xr
from zarr.storage import ZipStore

from orchestrator import Sweep
from orchestrator.cli import main
from orchestrator.errors import UnavailableError
from orchestrator.store.groups import list_groups
from tests.orchestrator.conftest import command, stored, train, write
from tests.readonly import read_only


@pytest.fixture
def copy(quick: Sweep, tmp_path: Path) -> Sweep:
    """A trained sweep that a test may harm."""
    shutil.copytree(quick.directory, tmp_path / "sweep")
    return Sweep(tmp_path / "sweep")


def test_a_zip_opens_in_plain_xarray(quick: Sweep, tmp_path: Path) -> None:
    output = tmp_path / "sweep.zip"
    result = command("export", quick.directory, "--output", output)
    assert result.returncode == 0, result.stderr
    assert "sweep.zip" in result.stdout
    tree = xr.open_datatree(ZipStore(output, mode="r"), engine="zarr")
    for path, arrays in stored(quick).items():
        for name, values in arrays.items():
            np.testing.assert_array_equal(tree[path][name].to_numpy(), values)


def test_a_table_holds_every_run_with_its_labels(quick: Sweep, tmp_path: Path) -> None:
    output = tmp_path / "sweep.parquet"
    assert command("export", quick.directory, "--output", output).returncode == 0
    table = pl.read_parquet(output)
    assert len(table) == 64
    cells = pl.read_parquet(quick.paths.cells)
    for name in ("dataset", "classifier", "train_fraction", "perturb_continuous", "vary"):
        assert table[name].to_list() == cells[name].gather(table["cell"]).to_list()
    for path, arrays in stored(quick).items():
        dataset, classifier = path.split("/")
        rows = table.filter(dataset=dataset, classifier=classifier)
        done = np.isin(arrays["status"], (1, 2))
        np.testing.assert_array_equal(np.stack(rows["label"].to_list()), arrays["label"][done, 0])
        right = np.stack(rows["label"].to_list()) == np.stack(rows["y_true"].to_list())
        assert right.mean() > 0.8


@pytest.mark.parametrize(
    ("name", "remedy"), [("sweep.tar", r".parquet"), ("there.zip", "choose another name")]
)
def test_an_output_that_cannot_be_is_refused(
    quick: Sweep, tmp_path: Path, name: str, remedy: str
) -> None:
    (tmp_path / "there.zip").write_text("mine")
    result = command("export", quick.directory, "--output", tmp_path / name)
    assert result.returncode == 2
    assert name in result.stderr
    assert remedy in result.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["there.zip"]


def test_nothing_finished_is_nothing_to_export(quick: Sweep, tmp_path: Path) -> None:
    fresh = Sweep.plan(quick.paths.sweep_file, tmp_path / "fresh")
    result = command("export", fresh.directory, "--output", tmp_path / "a.zip")
    assert result.returncode == 2
    assert "manyseed submit" in result.stderr


@pytest.mark.parametrize("verb", ["status", "verify", "compact", "analyze", "resume"])
def test_a_newer_layout_is_refused_with_the_remedy(copy: Sweep, verb: str) -> None:
    file = list_groups(copy.paths.store)[0].folder / "zarr.json"
    document = json.loads(file.read_bytes())
    document["attributes"]["manyseed"]["layout"] = 2
    file.write_text(json.dumps(document))
    result = command(verb, copy.directory)
    assert result.returncode == 2
    assert str(file.parent) in result.stderr
    assert "upgrade manyseed" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_shard_whose_status_is_damaged_is_repaired(
    copy: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.store.encoding.ATTEMPTS", 1)
    group = list_groups(copy.paths.store)[0]
    file = group.file(group.spec.array("status"), 0)
    file.write_bytes(bytes(byte ^ 1 for byte in file.read_bytes()))
    told: list[tuple[int, int]] = []
    found = copy.verify(repair=True, progress=lambda *now: told.append(now))
    assert found["runs_checked"] == 64
    assert found["runs_wrong"] == found["runs_set_back"] == 32
    assert told == [(0, 2), (1, 2), (2, 2)]
    assert copy.verify() == {"runs_checked": 32, "runs_wrong": 0, "findings": []}
    assert copy.status()["runs"]["missing"] == 32


@pytest.mark.parametrize(
    ("name", "kind"), [("cell", "flip"), ("vary", "flip"), ("cell", "remove"), ("epoch", "flip")]
)
def test_coordinates_that_are_damaged_are_written_again(
    copy: Sweep, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    monkeypatch.setattr("orchestrator.store.encoding.ATTEMPTS", 1)
    group = list_groups(copy.paths.store)[0]
    file = group.file(group.spec.array(name), 0)
    before = file.read_bytes()
    if kind == "flip":
        file.write_bytes(bytes(byte ^ 1 for byte in before))
    else:
        file.unlink()
    told = {"group": group.spec.path, "problem": f"{name} cannot be read or differ from the plan"}
    found = copy.verify()
    assert found == {"runs_checked": 32, "runs_wrong": 0, "findings": [{**told, "rows": 0}]}
    result = command("verify", copy.directory)
    assert result.returncode == 1
    assert f"manyseed verify {copy.directory} --repair" in result.stderr
    mended = copy.verify(repair=True)
    assert (mended["runs_checked"], mended["runs_wrong"]) == (64, 0)
    assert file.read_bytes() == before
    assert copy.verify() == {"runs_checked": 64, "runs_wrong": 0, "findings": []}


@pytest.mark.parametrize("verb", ["verify", "compact"])
def test_what_is_interrupted_ends_with_130(
    quick: Sweep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Sweep, verb, interrupted)
    monkeypatch.setattr("sys.argv", ["manyseed", verb, str(quick.directory)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_newer_plan_is_refused_with_the_remedy(copy: Sweep) -> None:
    values = json.loads(copy.paths.groups.read_bytes())
    copy.paths.groups.write_text(json.dumps([value | {"layout": 2} for value in values]))
    result = command("status", copy.directory)
    assert result.returncode == 2
    assert "groups.json: layout version 2" in result.stderr


@pytest.mark.parametrize("verb", ["submit", "resume", "compact", "analyze", "cancel"])
def test_a_directory_that_may_only_be_read_is_left_alone(copy: Sweep, verb: str) -> None:
    before = sorted(copy.directory.rglob("*"))
    with read_only(copy.directory):
        for name in ("status", "verify"):
            assert command(name, copy.directory).returncode == 0
        result = command(verb, copy.directory)
    if verb == "cancel":  # has nothing to write
        assert result.returncode == 0
    else:
        assert result.returncode == 4, result.stderr
        assert str(copy.directory) in result.stderr
        assert "give permission" in result.stderr
        assert "Traceback" not in result.stderr
    assert sorted(copy.directory.rglob("*")) == before


def test_a_submission_that_the_disk_cannot_hold_is_refused(
    quick: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep.plan(quick.paths.sweep_file, tmp_path / "fresh")
    disk = os.statvfs(tmp_path)

    class Disk:
        f_bavail, f_frsize = 10, disk.f_frsize

    monkeypatch.setattr("orchestrator.plans.room.os.statvfs", lambda path: Disk)
    with pytest.raises(UnavailableError) as refused:
        sweep.submit(workers=1)
    message = str(refused.value)
    assert "64 runs need" in message
    assert "0.0 MB free" in message
    assert 'keep.scores = "none" needs' in message
    assert "another disk" in message
    assert not sweep.paths.tasks.exists()
    assert not sweep.paths.store.exists()


def test_learning_curves_are_kept_of_networks(tmp_path: Path) -> None:
    text = """
name    = "curves"
seed    = 1
repeats = 1
runs    = 2
keep    = { curves = true }

[[grid]]
dataset    = ["sklearn:iris"]
classifier = ["mlp", "lr-sgd"]

[classifier.mlp]
epochs  = 3
hparams = { width1 = 32, width2 = 32 }
"""
    sweep = train(write(tmp_path / "curves.toml", text), tmp_path / "sweep", workers=1)
    assert sweep.verify()["findings"] == []
    tree = xr.open_datatree(sweep.paths.store, engine="zarr", consolidated=False)
    assert "train_loss" not in tree["sklearn%3Airis/lr-sgd"]
    mlp = tree["sklearn%3Airis/mlp"].isel(run=slice(2))
    assert mlp.train_loss.shape == (2, 3)
    assert np.isfinite(mlp.train_loss).all()
    accuracy = (mlp.label[:, -1] == mlp.y_true[0]).mean("sample")
    np.testing.assert_allclose(mlp.test_accuracy[:, -1], accuracy, rtol=1e-6)
    address = f"{int(mlp.cell[0])}:0:0"
    assert sweep.rerun(address)["equal"]
