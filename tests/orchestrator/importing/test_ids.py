"""Points of imported predictions are called as in the user's files, where that is text."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from tests.orchestrator.conftest import command

IDS = [f"img_{7 * point:04d}.png" for point in range(60)]
HARD = (5, 17, 33, 41)  # wrong in every run
Y = ["cat" if point % 3 else "dog" for point in range(len(IDS))]
OTHER = {"cat": "dog", "dog": "cat"}


def runs(model: int) -> list[list[str]]:
    draws = np.random.default_rng(model)
    found = []
    for _ in range(4):
        wrong = {*HARD, *draws.choice(len(IDS), 6 + 3 * model, replace=False).tolist()}
        found.append([OTHER[y] if point in wrong else y for point, y in enumerate(Y)])
    return found


def tables(folder: Path, ids: list[str] = IDS, name: str = "row_id") -> list[Path]:
    """Write a table for each run, each with its rows in another order."""
    files = []
    for number, model in enumerate(("cnn", "vit")):
        for seed, labels in enumerate(runs(number)):
            table = pl.DataFrame({name: ids, "truth": Y, "prediction": labels})
            file = folder / f"{model}_seed{seed}.csv"
            table.sample(fraction=1, shuffle=True, seed=seed).write_csv(file)
            files.append(file)
    return files


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ids")
    files = tables(folder)
    done = command("import", *files, "--out", folder / "sweep", "--name", FORM)
    assert done.returncode == 0, done.output
    assert "in alphabetical order" not in done.output
    assert command("analyze", folder / "sweep").returncode == 0
    return folder / "sweep"


FORM = "{classifier}_seed{run}.csv"


def test_answers_tables_and_page_name_points_as_the_user_does(imported: Path) -> None:
    sweep = Sweep(imported)
    table = sweep.query("points").filter(classifier="cnn").sort("index")
    assert table["row_id"].to_list() == sorted(IDS)
    always = {IDS[point] for point in HARD}
    said = command("answers", imported, "points", "--where", "row_id < 'img_0200.png'")
    assert "img_0035.png: wrong 1.00" in said.stdout
    assert not re.search("row [0-9]", said.stdout)
    answers = json.loads(command("answers", imported, "points", "--json").stdout)["answers"]
    rows = [row for one in answers for row in one["rows"] if row.get("wrong_least") == 1]
    assert {row["row_id"] for row in rows} == always
    verdict = command("answers", imported, "points", "--verdicts").stdout
    assert re.search("img_[0-9]+[.]png", verdict), verdict
    shown = command("query", imported, "-t", "points", "--where", "wrong = 1", "--limit", "99")
    assert all(name in shown.stdout for name in always)
    page = sweep.report().read_text()
    assert all(name in page for name in always)


def test_copies_keep_ids_and_verify_and_seal_know_them(imported: Path, tmp_path: Path) -> None:
    sweep = Sweep(imported)
    copy = tmp_path / "copy.zip"
    sweep.export(copy)
    again = Sweep.import_predictions([copy], tmp_path / "again")
    file = again.directory / "plan/points/0000.parquet"
    assert file.read_bytes() == (imported / "plan/points/0000.parquet").read_bytes()
    assert again.verify()["findings"] == []
    again.seal()
    file.write_bytes(file.read_bytes()[:-9] + b"123456789")
    assert [one["file"] for one in again.verify_sealed()["findings"]] == [
        "plan/points/0000.parquet"
    ]
    for problem in ("not a Parquet file", "absent"):
        found = again.verify()
        assert found["findings"][0]["group"] == "plan/points/0000.parquet"
        assert problem in found["findings"][0]["problem"]
        assert found["runs_wrong"] == 0
        file.unlink(missing_ok=True)
    assert again.verify(repair=True)["not_mended"]
    with pytest.warns(UserWarning, match="is absent"):
        again.analyze()
    with pytest.warns(UserWarning, match=r"(?s)0000\.parquet: is absent.*points have numbers"):
        assert "row_id" not in again.query("points").columns


def test_the_ids_of_another_sweep_are_not_shown(imported: Path, tmp_path: Path) -> None:
    shutil.copytree(imported, tmp_path / "own")
    files = tables(tmp_path, [f"other_{point:04d}" for point in range(len(IDS))])
    assert command("import", *files, "--out", tmp_path / "other", "--name", FORM).returncode == 0
    (file,) = (tmp_path / "own/plan/points").glob("*.parquet")
    shutil.copy(tmp_path / "other/plan/points" / file.name, file)
    said = command("answers", tmp_path / "own", "points")
    assert "is not this sweep's" in " ".join(said.stderr.split())
    assert "other_" not in said.stdout
    (found,) = Sweep(tmp_path / "own").verify()["findings"]
    assert "is not this sweep's" in str(found)


def test_imports_of_earlier_versions_show_numbers(imported: Path, tmp_path: Path) -> None:
    shutil.copytree(imported, tmp_path / "old")
    shutil.rmtree(tmp_path / "old/plan/points")
    said = command("answers", tmp_path / "old", "points")
    assert said.returncode == 0
    assert "row 5: wrong 1.00" in said.stdout
    assert Sweep(tmp_path / "old").verify()["findings"] == []


def test_ids_that_are_long_texts_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyseed.orchestrator.plans.ids.MOST_BYTES", 700)
    files = tables(tmp_path)
    done = command("import", *files, "--out", tmp_path / "sweep", "--name", FORM)
    assert "ids of rows are long texts, which are not kept" in " ".join(done.output.split())
    assert not (tmp_path / "sweep/plan/points").exists()


def test_ids_that_cannot_be_printed_are_escaped(tmp_path: Path) -> None:
    ids = [f"a\x1b[2J{point:02d}" for point in range(len(IDS))]
    files = tables(tmp_path, ids)
    assert command("import", *files, "--out", tmp_path / "s", "--name", FORM).returncode == 0
    command("analyze", tmp_path / "s")
    assert "\x1b" not in (said := command("answers", tmp_path / "s", "points").stdout)
    assert r"a\x1b[2J05" in said


def test_other_points_of_the_same_classes_are_refused(tmp_path: Path) -> None:
    files = tables(tmp_path)
    for file in files[4:]:
        table = pl.read_csv(file)
        table.with_columns(pl.col("row_id").str.replace("img", "new")).write_csv(file)
    done = command("import", *files, "--out", tmp_path / "sweep", "--name", FORM)
    assert done.returncode == 2
    said = " ".join(done.output.split())
    assert "row_id: its test sets differ from those of" in said
    assert "(row_id img_0000.png, img_0007.png," in said
    assert not (tmp_path / "sweep").exists()


def arrays(folder: Path, name: str, ids: list[str], **more: object) -> Path:
    order = np.random.default_rng(1).permutation(len(IDS))
    labels = np.array(runs(0))[:, order]
    file = folder / name
    np.savez(file, labels=labels, y_true=np.array(Y)[order], ids=np.array(ids)[order], **more)
    return file


def test_arrays_name_their_points_too(tmp_path: Path) -> None:
    file = arrays(tmp_path, "d.npz", IDS)
    refused = command("import", file, "--out", tmp_path / "sweep")
    assert "--key test_index=ids" in refused.output
    key = ("--key", "test_index=ids")
    done = command("import", file, "--out", tmp_path / "sweep", *key)
    assert done.returncode == 0, done.output
    sweep = Sweep(tmp_path / "sweep")
    sweep.analyze()
    table = sweep.query("points").sort("index")
    assert table["row_id"].to_list() == sorted(IDS)
    wrong = table.filter(pl.col("wrong") == 1)["row_id"].to_list()
    assert set(wrong) >= {IDS[point] for point in HARD}
    more = arrays(tmp_path, "more.npz", IDS, run=np.arange(4, 8))
    assert command("import", sweep.directory, more, *key).returncode == 0
    others = arrays(tmp_path, "others.npz", [f"new_{one}" for one in IDS], run=np.arange(8, 12))
    refused = command("import", sweep.directory, others, *key)
    assert refused.returncode == 2
    assert "test_index: names other points than the sweep" in " ".join(refused.output.split())


def test_points_without_ids_are_those_of_their_test_set_if_true_classes_say_so(
    tmp_path: Path,
) -> None:
    draws = np.random.default_rng(0)
    truth = draws.integers(0, 2, (3, 50))
    repeat = np.repeat(range(3), 4)
    flip = draws.random((12, 50)) < 0.2
    labels = np.where(flip, 1 - truth[repeat], truth[repeat])
    np.savez(tmp_path / "net.npz", labels=labels, y_true=truth, repeat=repeat)
    rows = [
        {"prediction": label, "truth": y, "repeat": r, "run": run % 4}
        for run, (r, one) in enumerate(zip(repeat, labels, strict=True))
        for label, y in zip(one, truth[r], strict=True)
    ]
    pl.DataFrame(rows).write_csv(tmp_path / "table.csv")
    for name in ("net.npz", "table.csv"):
        done = command("import", tmp_path / name, "--out", tmp_path / name[:3])
        assert done.returncode == 0, done.output
        sweep = Sweep(tmp_path / name[:3])
        sweep.analyze()
        points = sweep.query("points")
        assert points.height == 150
        assert points["truth"].null_count() == 0
        assert points["n_runs"].unique().to_list() == [4]
        flips = sum(len(np.unique(labels[repeat == r, i])) > 1 for r in range(3) for i in range(50))
        assert (points["flips"] > 0).sum() == flips
        held = truth[:2].copy()
        more = {"labels": held.repeat(2, axis=0), "y_true": held, "repeat": [0, 0, 1, 1]}
        np.savez(tmp_path / "more.npz", **more, class_names=["0", "1"])
        dataset = sweep.query("cells")["dataset"][0]
        to = ("--classifier", "more", "--dataset", dataset)
        done = command("import", sweep.directory, tmp_path / "more.npz", *to)
        assert done.returncode == 0, done.output


def test_a_place_is_one_point_where_test_sets_have_the_same_true_classes(tmp_path: Path) -> None:
    truth = np.tile(np.random.default_rng(0).integers(0, 2, 50), (2, 1))
    np.savez(tmp_path / "net.npz", labels=truth[[0, 0, 1, 1]], y_true=truth, repeat=[0, 0, 1, 1])
    assert command("import", tmp_path / "net.npz", "--out", tmp_path / "s").returncode == 0
    sweep = Sweep(tmp_path / "s")
    sweep.analyze()
    assert sweep.query("points").height == 50
