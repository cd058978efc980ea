"""Keeping what was trained: portable copies, stores of other versions, disks that refuse."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
from collections.abc import Callable
from functools import wraps
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import xarray as xr
from numpy.typing import NDArray
from zarr.storage import ZipStore

from manyseed import Sweep
from manyseed.jobs.run import MachineError
from manyseed.orchestrator.cli import main
from manyseed.orchestrator.disk.lease import LeaseWatch
from manyseed.orchestrator.errors import DamagedFile, UnavailableError
from manyseed.orchestrator.paths import LEASE
from manyseed.orchestrator.plans.layout import Groups, lay_out
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.store.groups import list_groups, open_group
from manyseed.orchestrator.store.index import JournalFolder, JournalIndex
from manyseed.orchestrator.store.journal import JournalWriter, RowBytes
from manyseed.orchestrator.store.reader import read_array, read_rows
from manyseed.orchestrator.store.schema import LAYOUT_VERSION
from manyseed.orchestrator.store.testsets import read_splits, write_splits
from tests.orchestrator.conftest import assert_equal, command, inside, stored, train, write
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
    ("name", "remedy"), [("sweep.tar", r".csv"), ("there.zip", "choose another name")]
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


def test_a_long_table_has_each_point_by_its_id_and_classes_by_name(
    quick: Sweep, tmp_path: Path
) -> None:
    y_true = np.array([["b", "a", "b", "a"], ["a", "b", "a", "b"]])
    labels = np.array([["b", "b", "b", "a"], ["a", "a", "a", "a"]])
    ids = np.array([["p7", "p2", "p4", "p1"], ["p3", "p4", "p7", "p9"]])
    long = {"repeat": np.repeat([0, 1], 4), "row_id": ids.reshape(-1)}
    long |= {"prediction": labels.reshape(-1), "truth": y_true.reshape(-1)}
    pl.DataFrame(long).write_csv(tmp_path / "given.csv")
    files = [tmp_path / "given.csv"]
    imported = Sweep.import_predictions(files, tmp_path / "one", dataset="one", classifier="c")
    of = {"labels": labels[:1], "y_true": y_true[0]}
    nameless = Sweep.from_predictions(of, tmp_path / "two", dataset="two", classifier="c")
    first, second = (
        pl.read_csv(sweep.export(tmp_path / f"{number}.csv"))
        for number, sweep in enumerate((imported, nameless))
    )
    columns = {
        "repeat_index": "repeat",
        "row_id": "row_id",
        "label": "prediction",
        "truth": "truth",
    }
    found = first.select(pl.col(ours).alias(theirs) for ours, theirs in columns.items())
    key = ["repeat", "row_id"]
    given = pl.DataFrame(long).select(found.columns)
    assert found.sort(key).rows() == given.sort(key).rows()
    assert "row_id" not in second.columns
    assert second["index"].to_list() == [0, 1, 2, 3]
    assert second.columns[-2:] == ["truth", "label"]
    table = pl.read_csv(quick.export(tmp_path / "quick.csv"))
    counts = quick.status()["runs"]
    stored_run = next(one for path, one in stored(quick).items() if path.endswith("lr-sgd"))
    sets = stored_run["test_index"]
    assert table.height == (counts["done"] + counts["copy"]) * sets.shape[1]
    of_run = table.filter(cell=0, repeat_index=1, run_index=2)
    assert of_run["index"].n_unique() == sets.shape[1]
    assert {*of_run["index"]} in [{*row} for row in sets.tolist()]


def test_nothing_finished_is_nothing_to_export(quick: Sweep, tmp_path: Path) -> None:
    fresh = Sweep.plan(quick.paths.sweep_file, tmp_path / "fresh")
    result = command("export", fresh.directory, "--output", tmp_path / "a.zip")
    assert result.returncode == 2
    assert "manyseed submit" in result.stderr


@pytest.mark.parametrize("verb", ["status", "verify", "compact", "analyze", "resume"])
def test_a_newer_layout_is_refused_with_the_remedy(copy: Sweep, verb: str) -> None:
    file = list_groups(copy.paths.store)[0].folder / "zarr.json"
    document = json.loads(file.read_bytes())
    document["attributes"]["manyseed"]["layout"] = LAYOUT_VERSION + 1
    file.write_text(json.dumps(document))
    result = command(verb, copy.directory)
    assert result.returncode == 2
    assert str(file.parent) in result.stderr
    assert "upgrade manyseed" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_shard_whose_status_is_damaged_is_repaired(
    copy: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyseed.orchestrator.store.encoding.ATTEMPTS", 1)
    group = list_groups(copy.paths.store)[0]
    file = group.file(group.spec.array("status"), 0)
    file.write_bytes(bytes(byte ^ 1 for byte in file.read_bytes()))
    told: list[tuple[int, int]] = []
    found = copy.verify(repair=True, progress=lambda *now: told.append(now))
    assert found["runs_checked"] == 64
    assert (found["runs_wrong"], found["runs_set_back"]) == (32, 0)
    assert told == [(0, 2), (1, 2), (2, 2)]
    assert copy.verify() == {"runs_checked": 64, "runs_wrong": 0, "findings": []}
    assert copy.status()["runs"]["missing"] == 0


HARMS: dict[str, Callable[[Path], object]] = {
    "remove": lambda file: file.unlink(),
    "empty": lambda file: file.write_bytes(b""),
    "truncate": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "flip": lambda file: file.write_bytes(bytes(b ^ 1 for b in file.read_bytes())),
}


def assert_every_file_is_mended(
    quick: Sweep, copy: Sweep, group: int, kinds: tuple[str, ...]
) -> None:
    """Harm one file after the other; what follows from something else comes back as it was."""
    before = stored(quick)
    spec = list_groups(quick.paths.store)[group].spec
    folder = Path(spec.path)
    files = [Path("zarr.json"), folder.parent / "zarr.json", folder / "zarr.json"]
    names = [folder / array.name for array in spec.arrays]
    files += [name / "zarr.json" for name in names]
    files += [
        file.relative_to(quick.paths.store)
        for name in names
        for file in sorted((quick.paths.store / name).glob("c.*"))
    ]
    assert len(files) > 2 * len(names)
    for number, file in enumerate(files):
        for kind in kinds if len(kinds) > 2 else (kinds[number % len(kinds)],):
            where = f"{file}, {kind}"
            HARMS[kind](copy.paths.store / file)
            done = copy.verify(repair=True)
            assert done["findings"] != [], where
            # labels follow from margins of two classes
            lost = file.parent.name == "margin" and file.name != "zarr.json"
            assert done["runs_set_back"] == (32 if lost else 0), where
            assert done["not_mended"] == [], where
            after = {"runs_checked": 32 if lost else 64, "runs_wrong": 0, "findings": []}
            assert copy.verify() == after, where
            assert not list(copy.paths.journals.glob("*.tombstone")) or lost, where
            if lost:
                shutil.rmtree(copy.paths.store)
                shutil.copytree(quick.paths.store, copy.paths.store)
                for stone in copy.paths.journals.glob("*.tombstone"):
                    stone.unlink()
            else:
                assert_equal(stored(copy), before)


def test_every_file_of_a_group_is_mended(
    quick: Sweep, copy: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyseed.orchestrator.store.encoding.ATTEMPTS", 1)
    assert_every_file_is_mended(quick, copy, 0, ("remove", "flip"))


@pytest.mark.slow
def test_every_file_of_every_group_is_mended_whatever_harmed_it(
    quick: Sweep, copy: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyseed.orchestrator.store.encoding.ATTEMPTS", 1)
    for group in (0, 1):  # the other holds copies
        assert_every_file_is_mended(quick, copy, group, tuple(HARMS))


def test_test_sets_are_taken_from_another_group_where_the_data_is_not_here(
    quick: Sweep, copy: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*_: object) -> None:
        raise MachineError("not fetched")

    monkeypatch.setattr("manyseed.jobs.trainer.Trainer.test_set", absent)
    groups = list_groups(copy.paths.store)
    files = [group.file(group.spec.array("y_true"), 0) for group in groups]
    files[0].unlink()
    assert copy.verify(repair=True)["not_mended"] == []
    assert_equal(stored(copy), stored(quick))
    for file in files:
        file.unlink()
    result = command("verify", copy.directory)
    assert result.returncode == 1
    done = copy.verify(repair=True)
    assert (done["runs_set_back"], len(done["not_mended"])) == (0, 2)
    monkeypatch.undo()  # fetched since
    assert copy.verify(repair=True)["not_mended"] == []
    assert_equal(stored(copy), stored(quick))


@pytest.mark.parametrize("verb", ["status", "verify", "compact", "export"])
def test_a_spoilt_description_is_one_message(copy: Sweep, tmp_path: Path, verb: str) -> None:
    folder = list_groups(copy.paths.store)[0].folder
    (folder / "zarr.json").write_bytes(b"")  # as after a power cut
    more = ["--output", tmp_path / "a.zip"] if verb == "export" else []
    result = command(verb, copy.directory, *more)
    assert result.returncode == (1 if verb == "verify" else 4), result.stdout + result.stderr
    assert "zarr.json" in result.stdout + result.stderr
    assert "--repair" in result.stderr
    assert "Traceback" not in result.stderr


def test_consolidated_metadata_is_placed_as_all_files_are(
    copy: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    sync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: (synced.append(os.fstat(file).st_ino), sync(file))
    )
    for file in copy.paths.store.rglob("zarr.json"):
        document = json.loads(file.read_bytes())
        document.pop("consolidated_metadata", None)
        file.write_text(json.dumps(document))
    copy.compact()
    for group in list_groups(copy.paths.store):
        for folder in (copy.paths.store, group.folder):
            assert "consolidated_metadata" in json.loads((folder / "zarr.json").read_bytes())
            assert (folder / "zarr.json").stat().st_ino in synced


def in_journals(quick: Sweep, directory: Path) -> tuple[Sweep, Path]:
    """A sweep whose finished runs are all in one journal."""
    sweep = Sweep.plan(quick.paths.sweep_file, directory)
    shutil.copytree(quick.paths.tasks, sweep.paths.tasks)
    shutil.copytree(quick.paths.recipes, sweep.paths.recipes)
    lay_out(sweep.paths, Plan.read(sweep.paths), Groups.read(sweep.paths))
    journal = sweep.paths.journals / "0001-0000-a-0.journal"
    with JournalWriter(journal, Plan.read(sweep.paths).identity) as writer:
        for group in list_groups(quick.paths.store):
            names = [a.name for a in group.spec.arrays if a.role == "prediction"]
            new = open_group(sweep.paths.store, group.spec.path)
            y_true, index = read_splits(group)
            write_splits(new, 0, y_true, index, LeaseWatch(sweep.paths.leases))
            for row in np.flatnonzero(read_array(group, "status") == 1).tolist():
                found = read_rows(group, [*names, "fit_seconds"], [row])
                values = RowBytes(*(found[name].tobytes() for name in names))
                seconds = float(found["fit_seconds"][0])
                writer.append(group.spec.number, row, values, recipe=1, fit_seconds=seconds)
            for row in np.flatnonzero(read_array(group, "status") == 2).tolist():
                source = row - int(read_array(group, "run_index")[row])
                writer.append_copy(group.spec.number, row, source)
    return sweep, journal


def spoil_record(journal: Path, number: int) -> int:
    """Flip a bit of the payload of a trained run's record; return its row."""
    index = JournalIndex(JournalFolder(journal.parent))
    places = [p for some in index.records(0, 0, 10**6).values() for p in some if not p.is_copy]
    place = places[number]
    content = bytearray(journal.read_bytes())
    content[place.offset + 70] ^= 4
    journal.write_bytes(content)
    header = index.header(place)
    assert header is not None
    return header.row


def test_runs_in_journals_are_verified_too(quick: Sweep, tmp_path: Path) -> None:
    sweep, journal = in_journals(quick, tmp_path / "sweep")
    assert sweep.verify() == {"runs_checked": 64, "runs_wrong": 0, "findings": []}
    spoil_record(journal, 3)
    found = sweep.verify()
    assert (found["runs_checked"], found["runs_wrong"]) == (64, 1)
    assert found["findings"][0]["problem"] == "records in journals cannot be read"
    assert command("verify", sweep.directory).returncode == 1
    assert sweep.verify(repair=True)["runs_set_back"] == 1
    assert sweep.verify() == {"runs_checked": 63, "runs_wrong": 0, "findings": []}
    assert sweep.status()["runs"]["missing"] == 1
    sweep.compact()
    assert sweep.verify() == {"runs_checked": 63, "runs_wrong": 0, "findings": []}


def test_runs_that_are_set_back_are_named_one_by_one(quick: Sweep, tmp_path: Path) -> None:
    sweep, journal = in_journals(quick, tmp_path / "sweep")
    spoil_record(journal, 3)
    spoil_record(journal, 5)
    result = command("verify", sweep.directory, "--repair")
    assert result.returncode == 0, result.stderr
    missing = sweep.survey().with_state("missing").select("cell", "repeat", "run")
    addresses = [f"{cell}:{repeat}:{run}" for cell, repeat, run in missing.sort("*").iter_rows()]
    assert len(addresses) == 2
    assert f"Set back: {', '.join(addresses)}." in " ".join(result.stdout.split())


def test_a_journal_that_does_not_read_is_kept_and_named(quick: Sweep, tmp_path: Path) -> None:
    sweep, journal = in_journals(quick, tmp_path / "sweep")
    spoil_record(journal, 3)
    result = command("compact", sweep.directory)
    assert result.returncode == 0, result.stderr
    assert "Published 63 runs" in result.stdout
    assert journal.name in result.stdout
    assert "--repair" in result.stdout
    assert journal.exists()
    assert sweep.verify(repair=True)["runs_set_back"] == 1  # what is lost is trained again
    assert sweep.compact().damaged == ()
    assert not journal.exists()


def test_journals_of_another_sweep_do_not_count(quick: Sweep, tmp_path: Path) -> None:
    sweep, journal = in_journals(quick, tmp_path / "sweep")
    file = tmp_path / "other.toml"
    text = quick.paths.sweep_file.read_text()
    file.write_text(re.sub(r"(?m)^seed *= *(\d+)", r"seed = 9\1", text))
    other = Sweep.plan(file, tmp_path / "other")
    shutil.copytree(sweep.paths.recipes, other.paths.recipes)
    lay_out(other.paths, Plan.read(other.paths), Groups.read(other.paths))
    there = other.paths.journals / journal.name
    there.parent.mkdir(parents=True)
    shutil.copyfile(journal, there)
    assert other.status()["runs"]["missing"] == 64
    result = command("status", other.directory)
    assert f"{there} holds runs of another sweep" in " ".join(result.stdout.split())
    found = other.verify()
    assert [one["problem"] for one in found["findings"]] == [
        "holds runs of another sweep, which do not count here"
    ]
    assert found["runs_checked"] == 0
    assert str(there) in command("verify", other.directory).stdout.replace("\n", "")
    assert other.verify(repair=True)["not_mended"] != []
    done = other.compact()
    assert (done.published, done.journals, done.foreign) == (0, 0, (journal.name,))
    assert there.read_bytes() == journal.read_bytes()
    assert sweep.compact().published == 64  # where it belongs, it counts


def test_a_plan_that_grew_keeps_its_journals(quick: Sweep, tmp_path: Path) -> None:
    sweep, _ = in_journals(quick, tmp_path / "sweep")
    file = tmp_path / "larger.toml"
    text = quick.paths.sweep_file.read_text()
    file.write_text(re.sub(r"(?m)^runs *= *(\d+)", lambda m: f"runs = {int(m[1]) + 1}", text))
    before = Plan.read(sweep.paths).identity
    larger = Sweep.plan(file, sweep.directory)
    assert len(Plan.read(sweep.paths).parts) == 2
    assert Plan.read(sweep.paths).identity == before
    (problem,) = larger.status()["problems"]
    assert problem.startswith("64 of 64 finished runs are in journals alone")
    assert larger.compact().published == 64


def everything(sweep: Sweep) -> dict[Path, bytes]:
    """All files but leases."""
    files = (f for f in sweep.directory.rglob("*") if f.is_file() and f.suffix != LEASE)
    return {file: file.read_bytes() for file in files}


@pytest.mark.parametrize("parts", [1, 2])
def test_a_plan_without_its_newest_part_changes_nothing(
    quick: Sweep, tmp_path: Path, parts: int
) -> None:
    shutil.copytree(quick.directory, tmp_path / "sweep")
    sweep = Sweep(tmp_path / "sweep")
    if parts == 2:
        text = quick.paths.sweep_file.read_text()
        larger = write(tmp_path / "larger.toml", text.replace("repeats = 2", "repeats = 3"))
        sweep = Sweep.plan(larger, sweep.directory)
        sweep.submit(workers=1)
        sweep.wait()
    (*_, newest) = sweep.paths.parts()
    newest.rename(tmp_path / "away")
    before = everything(sweep)
    for verb in (
        ("status",),
        ("verify",),
        ("analyze",),
        ("compact",),
        ("resume",),
    ):
        name, *options = verb
        code, told = inside(name, sweep.directory, *options)
        assert (code, str(newest) in told) == (4, True), (verb, told)
        assert "verify" in told
        assert "--repair" in told
    assert before == everything(sweep)
    assert inside("verify", sweep.directory, "--repair")[0] == 0
    assert newest.read_bytes() == (tmp_path / "away").read_bytes()
    assert sweep.verify()["findings"] == []


def test_a_read_that_went_wrong_once_costs_nothing(
    quick: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, journal = in_journals(quick, tmp_path / "sweep")
    read, reads = os.preadv, itertools.count()

    def flipped(file: int, buffers: list[NDArray[np.uint8]], offset: int) -> int:
        done = read(file, buffers, offset)
        if Path(f"/proc/self/fd/{file}").readlink() == journal and next(reads) == 0:
            buffers[1].reshape(-1)[:1] ^= 1
        return done

    monkeypatch.setattr(os, "preadv", flipped)
    done = sweep.compact()
    assert next(reads) > 2
    assert (done.published, done.damaged) == (64, ())
    assert not journal.exists()


def test_copies_of_a_run_that_was_never_trained_are_missing(quick: Sweep, tmp_path: Path) -> None:
    sweep, journal = in_journals(quick, tmp_path / "sweep")
    group = next(g for g in list_groups(quick.paths.store) if "xgb" in g.spec.path)
    copies = np.flatnonzero(read_array(group, "status") == 2).tolist()
    assert len(copies) == 6
    journal.unlink()
    with JournalWriter(journal) as writer:
        for row in copies:
            source = row - int(read_array(group, "run_index")[row])
            writer.append_copy(group.spec.number, row, source)
    assert sweep.status()["runs"] == {"runs": 64, "done": 0, "copy": 0, "failed": 0, "missing": 64}
    assert sweep.verify() == {"runs_checked": 0, "runs_wrong": 0, "findings": []}


def test_a_run_that_is_set_back_is_missing_also_where_it_failed_before(
    copy: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyseed.orchestrator.store.encoding.ATTEMPTS", 1)
    group = list_groups(copy.paths.store)[0]
    attempt = next((copy.paths.submissions()[0] / "lives").iterdir())
    cell, repeat, run = (
        int(read_array(group, n)[5]) for n in ("cell", "repeat_index", "run_index")
    )
    failure = {"group": 0, "row": 5, "cell": cell, "repeat": repeat, "run": run}
    failure |= {"error": "ValueError: no", "traceback": "no"}
    (attempt / "failures.jsonl").write_text(json.dumps(failure) + "\n")
    assert copy.status()["runs"]["failed"] == 0
    HARMS["flip"](group.file(group.spec.array("margin"), 0))
    assert copy.verify(repair=True)["runs_set_back"] == 32
    counts = copy.status()["runs"]
    assert (counts["failed"], counts["missing"]) == (0, 32)
    later = attempt.with_name("9999-later")
    later.mkdir()
    (later / "failures.jsonl").write_text(json.dumps(failure) + "\n")  # of another attempt
    counts = copy.status()["runs"]
    assert (counts["failed"], counts["missing"]) == (1, 31)


@pytest.mark.parametrize(
    ("name", "kind"), [("cell", "flip"), ("vary", "flip"), ("cell", "remove"), ("epoch", "flip")]
)
def test_coordinates_that_are_damaged_are_written_again(
    copy: Sweep, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    monkeypatch.setattr("manyseed.orchestrator.store.encoding.ATTEMPTS", 1)
    group = list_groups(copy.paths.store)[0]
    file = group.file(group.spec.array(name), 0)
    before = file.read_bytes()
    if kind == "flip":
        file.write_bytes(bytes(byte ^ 1 for byte in before))
    else:
        file.unlink()
    told = {"group": group.spec.path, "problem": f"{name} cannot be read or differ from the plan"}
    found = copy.verify()
    assert found == {
        "runs_checked": 32,
        "runs_wrong": 0,
        "findings": [{**told, "rows": 0, "runs": []}],
        "groups_unchecked": [group.spec.path],
    }
    result = command("verify", copy.directory)
    assert result.returncode == 1
    assert f"Not checked before that is repaired: all runs of {group.spec.path}." in result.stdout
    assert f"manyseed verify {copy.directory} --repair" in result.stderr
    mended = copy.verify(repair=True)
    assert (mended["runs_checked"], mended["runs_wrong"]) == (64, 0)
    assert file.read_bytes() == before
    assert copy.verify() == {"runs_checked": 64, "runs_wrong": 0, "findings": []}


@pytest.mark.parametrize("verb", ["verify", "analyze"])
def test_what_is_interrupted_ends_with_130(
    quick: Sweep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    @wraps(getattr(Sweep, verb))  # whose parameters are the verb's options
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Sweep, verb, interrupted)
    monkeypatch.setattr("sys.argv", ["manyseed", verb, str(quick.directory)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    told = capsys.readouterr()
    assert told.err == "Interrupted. To continue, run the same command again.\n"
    assert "Interrupted" not in told.out


def test_a_newer_plan_is_refused_with_the_remedy(copy: Sweep) -> None:
    values = json.loads(copy.paths.groups.read_bytes())
    copy.paths.groups.write_text(
        json.dumps([value | {"layout": LAYOUT_VERSION + 1} for value in values])
    )
    result = command("status", copy.directory)
    assert result.returncode == 2
    assert f"groups.json: layout version {LAYOUT_VERSION + 1}" in result.stderr


@pytest.mark.parametrize("verb", ["submit", "resume", "compact", "analyze", "cancel"])
def test_a_directory_that_may_only_be_read_is_left_alone(copy: Sweep, verb: str) -> None:
    before = sorted(copy.directory.rglob("*"))
    with read_only(copy.directory):
        for name in ("status", "verify"):
            assert command(name, copy.directory).returncode == 0
        result = command(verb, copy.directory)
    if verb in ("cancel", "compact"):  # have nothing to write
        assert result.returncode == 0
    else:
        assert result.returncode == 4, result.stderr
        assert str(copy.directory) in result.stderr
        assert "give permission" in result.stderr
        way = f"work on a copy: cp -r {copy.directory} COPY, then the same command with COPY"
        assert way in " ".join(result.stderr.split())
        assert "Traceback" not in result.stderr
    assert sorted(copy.directory.rglob("*")) == before


def test_a_submission_that_the_disk_cannot_hold_is_refused(
    quick: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep.plan(quick.paths.sweep_file, tmp_path / "fresh")
    disk = os.statvfs(tmp_path)

    class Disk:
        f_bavail, f_frsize = 10, disk.f_frsize

    monkeypatch.setattr("manyseed.orchestrator.plans.cost.os.statvfs", lambda path: Disk)

    def told() -> str:
        with pytest.raises(UnavailableError) as refused:
            sweep.submit(workers=1)
        return str(refused.value)

    assert "keep less" not in told(), "that would not fit either"
    needed = re.search(r"need (\d\.\d) MB \(", told())
    assert needed
    Disk.f_bavail = int(float(needed[1]) * 1e6 * 0.9 / Disk.f_frsize)
    message = told()
    assert "64 runs need" in message
    assert re.search(r"; the disk has \d+\.\d MB free\n", message)
    _, remedy, half, least = message.splitlines()
    assert remedy.startswith("  make room, or plan again with ")
    assert "; or keep less: instead of 1.2 MB," in remedy
    assert half.startswith('    keep.dtype = "float16" needs ')
    assert least.startswith('    keep.scores = "none" needs ')
    assert not sweep.paths.tasks.exists()
    assert not sweep.paths.store.exists()
    sweep.paths.store.mkdir()  # as of a sweep that has begun
    assert "keep less" not in told()


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


def _as_before(sweep: Sweep) -> dict[str, bytes]:
    names = [sweep.paths.cells, sweep.paths.groups, *sweep.paths.parts()]
    return {file.name: file.read_bytes() for file in names}


LOSSES: dict[str, tuple[str, ...]] = {
    "all of it": ("*",),
    "cells": ("cells.parquet",),
    "the part": ("0001.parquet",),
    "the groups": ("groups.json",),
    "cells and groups": ("cells.parquet", "groups.json"),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("harm", ["remove", "overwrite"])
def test_a_lost_plan_is_rebuilt_from_the_sweep_file(copy: Sweep, loss: str, harm: str) -> None:
    before, states = _as_before(copy), copy.status()["runs"]
    for file in (file for pattern in LOSSES[loss] for file in copy.paths.plan.glob(pattern)):
        if harm == "remove" and file.is_dir():
            shutil.rmtree(file)
        elif harm == "remove":
            file.unlink()
        elif file.name in before:
            file.write_bytes(b"no table")
    for verb in ("status", "resume", "verify", "analyze"):
        told = command(verb, copy.directory)
        assert (told.returncode, told.stdout) == (4, ""), verb
        assert f"manyseed verify {copy.directory} --repair" in told.stderr.replace("\n", ""), verb
    with pytest.raises(DamagedFile, match=r"manyseed verify .* --repair"):
        Sweep.plan(copy.paths.sweep_file, copy.directory)
    done = command("verify", copy.directory, "--repair")
    with_recipes = harm == "remove" and loss == "all of it"  # which cannot be told again
    assert done.returncode == with_recipes, done.stderr
    assert "rebuilt from sweep.toml" in done.stdout
    assert _as_before(copy) == before
    assert copy.status()["runs"] == states
    if with_recipes:
        assert "how 32 runs came about is unknown" in done.stdout
    else:
        assert copy.verify()["findings"] == []


def _seeded(sweep: Sweep) -> None:
    text = sweep.paths.sweep_file.read_text()
    sweep.paths.sweep_file.write_text(text.replace("seed    = 7", "seed    = 8"))


@pytest.mark.parametrize(
    ("differ", "reason"),
    [
        (_seeded, "was written for another plan than plan/0001.parquet"),
        (lambda sweep: sweep.paths.sweep_file.write_text("name ="), "sweep.toml"),
    ],
)
def test_a_plan_that_is_not_certain_is_not_rebuilt(
    copy: Sweep, differ: Callable[[Sweep], object], reason: str
) -> None:
    differ(copy)
    shutil.rmtree(copy.paths.plan)
    told = command("verify", copy.directory, "--repair")
    assert told.returncode == 4
    assert "cannot be rebuilt from sweep.toml" in told.stderr
    assert reason in told.stderr
    assert "restore it from a copy of the sweep" in told.stderr
    assert not copy.paths.plan.exists()


def of_a_file(folder: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """Plan a sweep of a file that it names from its folder, and go elsewhere."""
    folder.mkdir()
    out.parent.mkdir(exist_ok=True)
    rows = "".join(f"{n % 7},{n % 3},{n % 2}\n" for n in range(60))
    write(folder / "rows.csv", f"a,b,y\n{rows}")
    text = """
name = "sweep"
seed = 1
repeats = 1
runs = 2
[[grid]]
dataset = ["rows"]
classifier = ["lr-sgd"]
[dataset.rows]
source = "file:rows.csv"
target = "y"
"""
    monkeypatch.chdir(folder)
    sweep = Sweep.plan(write(folder / "sweep.toml", text), out)
    (elsewhere := folder.parent / "elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    return sweep


def test_a_plan_of_a_file_is_rebuilt_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = of_a_file(tmp_path / "project", tmp_path / "project" / "sweep", monkeypatch)
    before = sweep.paths.cells.read_bytes()
    sweep.paths.part(1).unlink()
    sweep.verify(repair=True)
    assert sweep.paths.part(1).exists()
    assert sweep.paths.cells.read_bytes() == before


def test_where_a_files_place_is_not_known_one_remedy_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = of_a_file(tmp_path / "project", tmp_path / "scratch" / "sweep", monkeypatch)
    before = sweep.paths.cells.read_bytes()
    sweep.paths.part(1).unlink()
    remedy = "call this from the folder that holds rows.csv: the one that it was planned in"
    with pytest.raises(DamagedFile) as told:
        sweep.verify(repair=True)
    assert (told.value.remedy, "restore" in str(told.value)) == (remedy, False)
    monkeypatch.chdir(tmp_path / "project")
    sweep.verify(repair=True)
    assert sweep.paths.part(1).exists()
    assert sweep.paths.cells.read_bytes() == before
    monkeypatch.chdir(tmp_path / "elsewhere")
    file = sweep.paths.sweep_file
    for verb in (("plan", file, "--fetch"), ("plan", file, "--out", sweep.directory)):
        done = command(*verb)
        assert (done.returncode, remedy in done.stderr) == (2, True), done.output


def test_a_planned_sweep_finds_its_file_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = of_a_file(tmp_path / "project", tmp_path / "project" / "sweep", monkeypatch)
    file, data = sweep.paths.sweep_file, tmp_path / "project" / "rows.csv"
    for verb in (("--fetch",), ("--out", sweep.directory, "--dry-run")):
        done = command("plan", file, *verb)
        assert done.returncode == 0, done.output
    data.write_text(data.read_text() + "1,1,1\n")
    os.utime(data, (4e9, 4e9))
    here = ("--cluster", "local", "--workers", 1)
    for verb, *more, code in (("status", 3), ("submit", *here, 2), ("resume", *here, 0)):
        done = command(verb, sweep.directory, *more)
        assert f"{data} has changed since it was planned" in " ".join(done.output.split())
        assert done.returncode == code, done.output
    sweep.wait()
    assert sweep.status()["runs"]["done"] == 2, "its prepared copy is used"


def test_a_plan_without_the_submissions_is_compared_with_the_store(copy: Sweep) -> None:
    shutil.rmtree(copy.paths.tasks)
    shutil.rmtree(copy.paths.plan)
    text = copy.paths.sweep_file.read_text()
    copy.paths.sweep_file.write_text(text.replace("[0.5, 1.0]", "[1.0, 0.5]"))
    with pytest.raises(DamagedFile, match="holds runs of another plan"):
        copy.verify(repair=True)
    copy.paths.sweep_file.write_text(text)
    copy.verify(repair=True)
    assert copy.status()["runs"]["missing"] == 0


@pytest.mark.parametrize("loss", ["cells.parquet", "0002.parquet", "0001.parquet", "groups.json"])
def test_a_plan_that_grew_is_rebuilt_where_its_file_tells_it(
    quick: Sweep, tmp_path: Path, loss: str
) -> None:
    file = tmp_path / "s.toml"
    text = quick.paths.sweep_file.read_text()
    file.write_text(text)
    sweep = Sweep.plan(file, tmp_path / "s")
    file.write_text(text.replace("runs    = 4", "runs    = 6"))
    Sweep.plan(file, tmp_path / "s")
    before = _as_before(sweep)
    (sweep.paths.plan / loss).unlink()
    if loss == "0001.parquet":
        with pytest.raises(DamagedFile, match="planned 2 times"):
            sweep.verify(repair=True)
        return
    found = sweep.verify(repair=True)
    assert [one["group"] for one in found["findings"]] == [f"plan/{loss}"]
    assert _as_before(sweep) == before


def test_code_of_ones_own_is_not_tried_to_rebuild_a_plan(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from sklearn.dummy import DummyClassifier\n"
        "from pathlib import Path\n"
        f"Path({str(tmp_path / 'tried')!r}).touch()\n"
        "class Mine(DummyClassifier):\n    pass\n"
    )
    text = 'name = "s"\nseed = 1\nruns = 2\n[[grid]]\ndataset = ["sklearn:wine"]\n'
    text += 'classifier = ["mine"]\n[classifier.mine]\nestimator = "mine:Mine"\n'
    sweep = Sweep.plan(write(tmp_path / "s.toml", text), tmp_path / "s")
    before = _as_before(sweep)
    (tmp_path / "tried").unlink()
    sweep.paths.cells.unlink()
    sweep.verify(repair=True)
    assert _as_before(sweep) == before
    for file in (sweep.paths.cells, sweep.paths.own):
        file.unlink()
    with pytest.raises(DamagedFile, match="is not the code that was planned"):
        sweep.verify(repair=True)
    assert not (tmp_path / "tried").exists()


def test_resume_says_what_a_repair_left_to_train(
    copy: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyseed.orchestrator.store.encoding.ATTEMPTS", 1)
    shutil.rmtree(copy.paths.journals)
    group = list_groups(copy.paths.store)[0]
    group.file(group.spec.array("margin"), 0).write_bytes(b"lost")
    found = copy.verify(repair=True)
    back = found["runs_set_back"]
    assert back > 0
    code, said = inside("resume", copy.directory, "--cluster", "local")
    assert code == 0, said
    assert (
        f"{64 - back} of 64 runs are finished.\nThe others: {back} set back by a repair.\n" in said
    )
    assert f"Submitted {back} runs to " in said
    copy.wait()
    assert copy.status()["runs"]["missing"] == 0


def test_a_damaged_chunk_is_named_with_its_runs(quick: Sweep, tmp_path: Path) -> None:
    copy = tmp_path / "sweep"
    shutil.copytree(quick.directory, copy)
    file = sorted(copy.glob("predictions.zarr/*/*/label/c.0*"))[0]
    content = bytearray(file.read_bytes())
    content[10] ^= 0xFF
    file.write_bytes(content)
    group = f"{file.parents[2].name}/{file.parents[1].name}"
    code, said = inside("verify", copy)
    assert code == 1
    assert f"{group}: predictions cannot be decoded: label/{file.name}" in said
    (found,) = Sweep(copy).verify()["findings"]
    assert len(found["runs"]) == found["rows"] > 5
    assert f"  runs {', '.join(found['runs'][:5])} and" in said
