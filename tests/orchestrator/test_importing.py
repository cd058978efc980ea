"""Predictions that others made, in every form, are analysed like our own."""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from manyseed import Sweep
from manyseed.analysis.options import Options
from manyseed.orchestrator.computing.tables import Analysis
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing import directory as importing
from manyseed.orchestrator.store.groups import list_groups
from manyseed.orchestrator.store.reader import read_array
from tests.orchestrator.conftest import assert_equal, command, inside, stored

RUNS, SAMPLES = 6, 40


@pytest.fixture
def made() -> dict[str, Any]:
    """Scores of six runs in two repeats, in no order, and what they are of."""
    rng = np.random.default_rng(0)
    y_true = rng.integers(0, 3, (2, SAMPLES))
    repeat = np.array([1, 0, 1, 0, 0, 1])
    scores = rng.normal(size=(RUNS, SAMPLES, 3)).astype(np.float32)
    scores += 2 * (y_true[repeat][..., None] == np.arange(3))
    return {"scores": scores, "y_true": y_true, "repeat": repeat}


def accuracies(made: dict[str, Any]) -> list[float]:
    """By repeat, then in the file's order."""
    right = (made["scores"].argmax(axis=2) == made["y_true"][made["repeat"]]).mean(axis=1)
    return [*right[made["repeat"] == 0].tolist(), *right[made["repeat"] == 1].tolist()]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_scores_are_stored_as_if_they_were_trained(
    made: dict[str, Any], tmp_path: Path, save: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "BLOCK_BYTES", 1000)  # a run or two at a time
    save(tmp_path / "given.npz", **made)
    sweep = Sweep.import_predictions([tmp_path / "given.npz"], tmp_path / "sweep")
    runs = sweep.analyze(Options(resamples=5))["runs"]
    assert runs["accuracy"].to_list() == pytest.approx(accuracies(made))
    assert runs["alpha_hat"].null_count() == 0
    assert runs["dataset"].unique().to_list() == ["given"]
    (group,) = list_groups(sweep.paths.store)
    order = np.argsort(made["repeat"], kind="stable")
    np.testing.assert_array_equal(read_array(group, "score")[:RUNS, 0], made["scores"][order])
    assert sweep.verify()["runs_wrong"] == 0
    assert sweep.status()["runs"] == {"runs": 6, "done": 6, "copy": 0, "failed": 0, "missing": 0}
    assert sweep.report().exists()
    assert list(tmp_path.glob(".*")) == []


def test_two_classes_half_precision_and_attributes(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(8, SAMPLES, 2)).astype(np.float16)
    schemes = np.array(["none", "relative:0.1"] * 4)
    np.savez(
        tmp_path / "two.npz",
        scores=scores,
        y_true=np.array(["no", "yes"] * (SAMPLES // 2)),
        perturb_continuous=schemes,
        fit_seconds=np.arange(8.0),
    )
    result = command("import", tmp_path / "two.npz", "--out", tmp_path / "sweep", "--dataset", "d")
    assert result.returncode == 0, result.stderr
    sweep = Sweep(tmp_path / "sweep")
    tables = dict(sweep.analyze(Options(resamples=3)))
    assert tables["cells"]["perturb_continuous"].to_list() == ["none", "relative:0.1"]
    assert tables["runs"]["fit_seconds"].to_list() == [None, 2, 4, 6, 1, 3, 5, 7]
    (group,) = list_groups(sweep.paths.store)
    gap = scores[..., 1].astype(np.float32) - scores[..., 0]
    margin = read_array(group, "margin")
    assert margin.dtype == np.float16
    np.testing.assert_array_equal(margin[:4, 0], gap[::2].astype(np.float16))
    np.testing.assert_array_equal(read_array(group, "label")[:4, 0], gap[::2] >= 0)
    assert group.spec.class_names == ("no", "yes")


def test_a_file_per_seed_is_further_runs_of_the_same(made: dict[str, Any], tmp_path: Path) -> None:
    files = []
    for run in range(RUNS):
        files.append(tmp_path / f"seed-{run}.npz")
        one = {"logits": made["scores"][[run]], "repeat": made["repeat"][[run]]}
        repeats = int(one["repeat"][0]) + 1
        np.savez(files[-1], **one, y_true=made["y_true"][:repeats])
    sweep = Sweep.import_predictions(files, tmp_path / "sweep", dataset="d", classifier="c")
    runs = sweep.analyze()["runs"]
    assert runs["accuracy"].to_list() == pytest.approx(accuracies(made))
    assert runs["run_index"].to_list() == [0, 1, 2] * 2
    whole = Sweep.from_predictions(made, tmp_path / "whole", dataset="d", classifier="c")
    (one,), (other,) = (list_groups(found.paths.store) for found in (sweep, whole))
    for name in ("score", "label", "test_index", "y_true"):
        np.testing.assert_array_equal(read_array(one, name), read_array(other, name))


def test_more_files_than_a_process_may_open(made: dict[str, Any], tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for run in range(60):
        one = {"scores": made["scores"][[1]] + run, "y_true": made["y_true"][:1]}
        np.savez(tmp_path / f"{run}.npz", **one)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    try:
        files = [tmp_path / f"{run}.npz" for run in range(60)]
        sweep = Sweep.import_predictions(files, tmp_path / "s", dataset="d", classifier="c")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert sweep.status()["runs"]["done"] == 60


def test_several_classifiers_of_one_dataset(made: dict[str, Any], tmp_path: Path) -> None:
    better = made | {"scores": made["scores"] * 0 + 9 * np.eye(3)[made["y_true"][made["repeat"]]]}
    both = Sweep.from_predictions({"a": made, "b": better}, tmp_path / "both")
    cells = both.analyze()["cells"]
    assert cells["dataset"].unique().to_list() == ["imported"]
    assert dict(cells.select("classifier", "accuracy_mean").iter_rows())["b"] == 1
    for name, arrays in (("a", made), ("b", better)):
        np.savez(tmp_path / f"{name}.npz", **arrays)
    named = [f"--classifier={name}={tmp_path / name}.npz" for name in "ab"]
    out = tmp_path / "by-command"
    done = command("import", *named, "--out", out, "--dataset", "digits")
    assert (done.returncode, "12 runs" in done.stdout) == (0, True), done.stderr
    assert Sweep(out).analyze()["cells"]["accuracy_mean"].to_list() == pytest.approx(
        cells["accuracy_mean"].to_list()
    )


def test_files_that_do_not_go_together_are_refused(made: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **made)
    files = [tmp_path / "a.npz", tmp_path / "b.npz"]
    same = {"dataset": "d", "classifier": "c"}
    for change, said in (
        ({"y_true": made["y_true"][:, ::-1]}, "has the classes of .*, in another order"),
        ({"scores": made["scores"].astype(np.float16)}, "has dtype float16"),
        ({"class_names": ["x", "y", "z"]}, "class_names: its classes are x, y, z, not 0, 1, 2"),
    ):
        np.savez(files[1], **{**made, **change})
        with pytest.raises(UserError, match=said):
            Sweep.import_predictions(files, tmp_path / "sweep", **same)
    first = {"y_true": made["y_true"][:1], "scores": made["scores"][::2]}  # of one repeat
    np.savez(tmp_path / "c.npz", **first)
    np.savez(files[1], **made | {"y_true": np.stack([made["y_true"][0], made["y_true"][1][::-1]])})
    with pytest.raises(UserError, match=r"has the classes of .*, in another order"):
        Sweep.import_predictions([tmp_path / "c.npz", *files], tmp_path / "sweep", **same)
    (tmp_path / "c.npz").unlink()
    numbers = {"run": np.array([0, 0, 1, 1, 2, 2])}
    for file in files:
        np.savez(file, **made, **numbers)
    with pytest.raises(UserError, match="run 0 of a cell is already in an earlier file"):
        Sweep.import_predictions(files, tmp_path / "sweep", **same)
    with pytest.raises(UserError, match="no file"):
        Sweep.import_predictions([], tmp_path / "sweep")
    with pytest.raises(UserError, match="no predictions"):
        Sweep.from_predictions({}, tmp_path / "sweep")
    np.savez(files[1], logits=made["scores"], **made)
    with pytest.raises(UserError, match="scores and logits"):
        Sweep.import_predictions(files[1:], tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.npz", "b.npz"]


def test_seeds_are_not_taken_for_datasets(made: dict[str, Any], tmp_path: Path) -> None:
    files = [tmp_path / f"seed-{run}.npz" for run in range(3)]
    for run, file in enumerate(files):
        y_true = made["y_true"][0].astype([np.int64, np.uint8, np.int32][run])
        np.savez(file, scores=made["scores"][[run]], y_true=y_true)
    for options in ([], ["--classifier", "cnn"]):
        result = command("import", *files, "--out", tmp_path / "sweep", *options)
        told = " ".join(result.stderr.split())
        assert result.returncode == 2
        assert "seed-1.npz: has the same test points as" in told
        assert "seed-0.npz" in told
        assert re.search(rf"manyseed import .* --dataset {tmp_path.name} if they are", told)
        assert "--classifier NAME=FILE each" in told
    with pytest.raises(UserError, match="has the same test points as"):
        Sweep.import_predictions(files, tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()
    for change in ({"test_index": np.arange(SAMPLES) + 9}, {"class_names": ["x", "y", "z"]}):
        np.savez(files[1], scores=made["scores"][[1]], y_true=made["y_true"][0], **change)
        found = Sweep.import_predictions(files[:2], tmp_path / next(iter(change)))
        assert found.analyze()["cells"]["same_as"].to_list() == [None, None]


def test_datasets_of_an_import_are_no_twins(
    made: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even those of a sweep that an earlier version made."""
    monkeypatch.setattr("manyseed.orchestrator.importing.joined", lambda sources, **_: sources)
    files = [tmp_path / f"seed-{run}.npz" for run in range(3)]
    for run, file in enumerate(files):
        np.savez(file, scores=made["scores"][[run]], y_true=made["y_true"][0])
    cells = Sweep.import_predictions(files, tmp_path / "sweep").analyze()["cells"]
    assert cells["cell_id"].n_unique() == 1
    assert cells["same_as"].to_list() == [None] * 3


def test_a_file_is_given_once(made: dict[str, Any], tmp_path: Path) -> None:
    file, table = tmp_path / "seed-0.npz", tmp_path / "run.csv"
    np.savez(file, **made)
    openml(made, 1, ["x", "y", "z"]).write_csv(table)
    for again in (file, table):
        twice = again.parent / ".." / tmp_path.name / again.name
        for options in ([], ["--dataset", "d"]):
            done = command("import", again, twice, "--out", tmp_path / "sweep", *options)
            told = " ".join(done.stderr.split())
            assert (done.returncode, "is given twice" in told) == (2, True), told
            assert again.name in told
            assert "name each file once" in told
    assert not (tmp_path / "sweep").exists()
    both = {"a": [file], "b": [file]}  # as one may also add it to another classifier
    Sweep.import_predictions([], tmp_path / "sweep", classifiers=both)


def test_files_beside_a_classifier_with_its_file_need_a_name(
    made: dict[str, Any], tmp_path: Path
) -> None:
    a, b, sweep = tmp_path / "a.npz", tmp_path / "b.npz", tmp_path / "sweep"
    np.savez(a, **made)
    np.savez(b, **made)
    given = ("--classifier", f"cnn={a}", b)
    code, told = inside("import", *given, "--out", sweep)
    assert code == 2, told
    told = " ".join(told.split())
    assert f"{b}: has no classifier" in told
    assert f"--classifier cnn={b}" in told
    assert not sweep.exists()
    assert inside("import", *given, "--classifier", "vit", "--out", sweep)[0] == 0
    assert inside("import", sweep, *given)[0] == 2


def test_scores_and_labels_do_not_go_together(made: dict[str, Any], tmp_path: Path) -> None:
    files = [tmp_path / "scores.npz", tmp_path / "labels.npz"]
    np.savez(files[0], **made)
    labels = made["scores"].argmax(axis=2)
    np.savez(files[1], labels=labels, y_true=made["y_true"], repeat=made["repeat"])
    for given, said in (
        (files, "holds labels, .*scores.npz scores"),
        (files[::-1], "holds scores"),
    ):
        with pytest.raises(UserError, match=rf"{said}[^\n]*\n.*import them separately"):
            Sweep.import_predictions(given, tmp_path / "sweep", dataset="d", classifier="c")


def test_a_new_directory_or_one_before_the_files(made: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **made)
    theirs = Sweep.import_predictions([tmp_path / "a.npz"], tmp_path / "theirs").directory
    done = command("import", theirs, tmp_path / "a.npz", "--out", tmp_path / "sweep")
    told = " ".join(done.stderr.split())
    assert done.returncode == 2
    assert "names a new directory, but one to add the files to is given before them" in told
    assert "leave out --out to add them" in told


def test_arrays_beside_tables(made: dict[str, Any], tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", made["scores"].argmax(axis=2))
    np.save(tmp_path / "truth.npy", made["y_true"])
    pl.DataFrame({"repeat": made["repeat"]}).write_csv(tmp_path / "runs.csv")
    sweep = Sweep.import_predictions(
        [tmp_path / "labels.npy"],
        tmp_path / "sweep",
        truth=tmp_path / "truth.npy",
        runs=tmp_path / "runs.csv",
    )
    runs = sweep.analyze()["runs"]
    assert runs["accuracy"].to_list() == pytest.approx(accuracies(made))
    assert runs["alpha_hat"].null_count() == RUNS
    reasons = {one.metric: one.reason for one in Analysis.read(sweep.paths).unavailable}
    assert reasons["alpha_hat"] == "needs scores to be imported"
    assert reasons["discrimination"] == "needs scores of all classes to be imported"


def openml(made: dict[str, Any], run: int, names: list[str]) -> pl.DataFrame:
    p = np.exp(made["scores"][run])
    p /= p.sum(axis=1, keepdims=True)
    frame = pl.DataFrame(
        {
            "repeat": 0,
            "fold": np.arange(SAMPLES) % 4,
            "row_id": np.arange(SAMPLES) + 100,
            "prediction": [names[k] for k in p.argmax(axis=1)],
            "truth": [names[k] for k in made["y_true"][0]],
            **{f"confidence.{name}": p[:, k] for k, name in enumerate(names)},
        }
    )
    return frame.sample(fraction=1, shuffle=True, seed=run)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_tables_in_openmls_columns(made: dict[str, Any], tmp_path: Path, suffix: str) -> None:
    files = [tmp_path / f"run-{run}{suffix}" for run in (1, 3, 4)]
    for run, file in zip((1, 3, 4), files, strict=True):
        frame = openml(made, run, ["x", "y", "z"])
        (frame.write_csv if suffix == ".csv" else frame.write_parquet)(file)
    sweep = Sweep.import_predictions(files, tmp_path / "sweep", dataset="vehicle")
    runs = sweep.analyze(Options(resamples=3))["runs"]
    assert runs["accuracy"].to_list() == pytest.approx(accuracies(made)[:3])
    (group,) = list_groups(sweep.paths.store)
    found = read_array(group, "score")[0, 0]
    np.testing.assert_allclose(
        found - found[:, :1], made["scores"][1] - made["scores"][1][:, :1], atol=1e-4
    )
    np.testing.assert_array_equal(read_array(group, "test_index")[0], np.arange(SAMPLES) + 100)


def test_what_was_exported_comes_back(quick: Sweep, tmp_path: Path) -> None:
    sweep = Sweep(shutil.copytree(quick.directory, tmp_path / "sweep"))
    options = Options(resamples=3, metrics=("accuracy", "agreement"))
    expected = dict(sweep.analyze(options))
    for name in ("all.zip", "labels.parquet"):
        sweep.export(tmp_path / name)
        again = Sweep.import_predictions([tmp_path / name], tmp_path / Path(name).stem)
        found = again.analyze(options)
        for table in ("runs", "pairs", "repeats"):
            same = [c for c in expected[table].columns if c not in ("cell", "cell_id", "recipe")]
            same = [c for c in same if c not in ("probe", "mixed_recipes")]
            key = [c for c in ("classifier", "train_fraction", "perturb_continuous") if c in same]
            key += [c for c in ("repeat_index", "run_index", "run_i", "run_j") if c in same]
            assert_frame_equal(
                found[table].select(same).sort(key),
                expected[table].select(same).sort(key),
                check_exact=True,
            )
    assert_equal(stored(Sweep(tmp_path / "all")), stored(sweep))
    Sweep(tmp_path / "labels").export(tmp_path / "again.parquet")
    before, after = (
        pl.read_parquet(tmp_path / name).drop("cell", "recipe")
        for name in ("labels.parquet", "again.parquet")
    )
    assert_frame_equal(before, after)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_true": None}, "y_true is missing"),
        ({"scores": None}, r"holds no predictions\n.*scores \(run, sample, class\), or labels"),
        ({"labels": np.zeros((6, SAMPLES), int)}, r"both scores and labels; .*\n.*give scores"),
        (
            {"y_true": None, "labels": np.zeros(SAMPLES, int)},
            r"both scores and labels; .*\n.*true classes are y_true",
        ),
        ({"y_true": np.zeros((2, 39), int)}, r"y_true: has shape \(2, 39\)"),
        ({"y_true": np.full((2, SAMPLES), 3)}, "y_true: goes from 3 to 3, but there are 3 classes"),
        ({"repeat": np.zeros(5, int)}, "repeat: has 5 values, but there are 6 runs"),
        ({"repeats": np.zeros(6, int)}, 'repeats: unknown entry\n.*"repeat"'),
        (
            {"scores": np.zeros((6, SAMPLES), int)},
            r"scores: has dtype int64; floats are needed\n.*predicted classes: ",
        ),
        ({"y_true": np.array([None] * SAMPLES)}, r"holds Python objects.*\n.*astype\(str\)"),
        (
            {"scores": np.zeros((200, 5)), "y_true": np.arange(200) % 2, "repeat": None},
            r"scores: has shape .200, 5., .sample, class. by y_true, which has 2 .*\n.*scores.T",
        ),
        ({"scores": np.zeros((6,))}, r"scores: has shape \(6,\)"),
        ({"class_names": np.array(["a", "b"])}, "there are 2 classes, but scores for 3"),
        ({"run": np.zeros(6, int)}, "repeat 1, run 0 occurs twice in one cell"),
        ({"hparams": np.array(["a b"] * 6)}, "must not be empty or have spaces"),
    ],
)
def test_arrays_that_do_not_fit_are_one_message(
    made: dict[str, Any], tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    kept = {name: value for name, value in (made | change).items() if value is not None}
    np.savez(tmp_path / "given.npz", **kept)
    with pytest.raises(UserError, match=message):
        Sweep.import_predictions([tmp_path / "given.npz"], tmp_path / "sweep")
    assert [file.name for file in tmp_path.iterdir()] == ["given.npz"]


def test_tables_that_do_not_fit_are_one_message(made: dict[str, Any], tmp_path: Path) -> None:
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    frame = openml(made, 1, ["x", "y", "z"])
    frame.write_csv(one)

    def refused(wrong: pl.DataFrame, message: str) -> None:
        wrong.write_csv(other)
        with pytest.raises(UserError, match=message):
            Sweep.import_predictions([one, other], tmp_path / "sweep", classifier="c")
        assert not (tmp_path / "sweep").exists()

    refused(frame.drop("truth"), "truth: a column is missing")
    refused(frame.rename({"fold": "folds"}), 'folds: unknown column\n.*"fold"')
    refused(frame.with_columns(row_id=pl.col("row_id") + 1), "repeat 0 has other rows")
    refused(frame.drop("confidence.z"), "has other classes than")
    refused(frame.with_columns(prediction=pl.lit("x")), "disagree with their confidences")
    refused(pl.concat([frame, frame]), r"rows are repeated exactly")
    refused(frame.with_columns(repeat=pl.lit(1)).head(7), "test sets have 7 to 40 points")


def test_files_that_are_none_of_these(tmp_path: Path) -> None:
    for name, message in (
        ("a.npz", r"not an NPZ file\n.*numpy.savez.*a table must be named \.csv or \.parquet"),
        ("a.zip", r"not a zip file\n.*import what manyseed export"),
        ("a.txt", "format"),
    ):
        (tmp_path / name).write_text("x")
        with pytest.raises(UserError, match=message):
            Sweep.import_predictions([tmp_path / name], tmp_path / "sweep")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr(".manyseed/../../out", "x")
    with pytest.raises(UserError, match="outside"):
        Sweep.import_predictions([tmp_path / "b.zip"], tmp_path / "sweep")
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "file").touch()
    np.savez(tmp_path / "c.npz", labels=np.zeros((2, 3), int), y_true=np.zeros(3, int))
    with pytest.raises(UserError, match="exists already"):
        Sweep.import_predictions([tmp_path / "c.npz"], tmp_path / "sweep")


_GROWTH = """
import sys
from pathlib import Path

import manyseed.orchestrator.importing.directory  # what is imported counts as there already
from manyseed import Sweep

def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])

def read(folder, name, **options):
    files = [Path(folder) / name]
    Sweep.import_predictions(files, Path(folder) / ("of-" + name), probability="none", **options)

read(sys.argv[1], "small.npz")
before = peak()
read(sys.argv[1], sys.argv[2], truth=Path(sys.argv[1]) / "truth.npy")
print(peak() - before)
"""


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """400 MB of scores, most of them a hole in a sparse file; each run has 4 MB."""
    shape = (100, 2000, 1000)
    with (tmp_path / "large.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f2", "fortran_order": False, "shape": shape}
        )
        file.truncate(file.tell() + 2 * int(np.prod(shape)))
    np.save(tmp_path / "truth.npy", np.arange(shape[1]) % shape[2])
    small = np.zeros((2, 20, 12), dtype=np.float16)
    np.savez(tmp_path / "small.npz", scores=small, y_true=np.arange(20) % 12)
    grown = subprocess.run(
        [sys.executable, "-c", _GROWTH, tmp_path, "large.npy"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert int(grown.stdout) < 200 * 1024  # kB


def test_damaged_files_are_one_message(made: dict[str, Any], tmp_path: Path) -> None:
    whole = tmp_path / "whole.npy"
    np.save(whole, made["scores"])
    np.save(tmp_path / "truth.npy", made["y_true"])
    (tmp_path / "cut.npy").write_bytes(whole.read_bytes()[:-1])
    with pytest.raises(UserError, match="cut: is truncated: it needs 2,880 bytes and has 2,879"):
        Sweep.import_predictions(
            [tmp_path / "cut.npy"], tmp_path / "sweep", truth=tmp_path / "truth.npy"
        )
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "flipped.npz", **made)
        content = bytearray((tmp_path / "flipped.npz").read_bytes())
        content[len(content) // 4] ^= 1  # in the scores, which come first
        (tmp_path / "flipped.npz").write_bytes(content)
        with pytest.raises(UserError, match="scores: is damaged"):
            Sweep.import_predictions([tmp_path / "flipped.npz"], tmp_path / "sweep")
    made["scores"][4, 3, 2] = np.nan
    np.savez(tmp_path / "nan.npz", **made)
    with pytest.raises(UserError, match="run 4: has scores that are not finite"):
        Sweep.import_predictions([tmp_path / "nan.npz"], tmp_path / "sweep")
    assert {file.suffix for file in tmp_path.iterdir()} == {".npy", ".npz"}


def test_a_csv_that_would_be_read_wrongly_is_refused(made: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "given.csv"
    frame = openml(made, 1, ["é", "NA", "z"])
    for content, problem in (
        (frame.write_csv().encode("latin-1"), r"given\.csv.*line 1 holds the byte 0xe9.*UTF-8"),
        (
            frame.with_columns(twice="truth").write_csv().replace("twice", "truth", 1).encode(),
            "has 2 columns called 'truth'",
        ),
    ):
        file.write_bytes(content)
        with pytest.raises(UserError, match=problem):
            Sweep.import_predictions([file], tmp_path / "sweep")
        assert not (tmp_path / "sweep").exists()
    for separator in (",", ";"):
        file.write_bytes(frame.write_csv(separator=separator).encode("utf-16"))
        sweep = Sweep.import_predictions([file], tmp_path / f"sweep{separator}")
        (group,) = list_groups(sweep.paths.store)
        assert group.spec.class_names == ("é", "NA", "z")
