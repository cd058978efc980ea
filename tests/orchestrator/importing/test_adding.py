"""Further runs for an imported sweep: as if all had been imported together, or nothing happens."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from manyseed import Sweep
from manyseed.analysis.options import Options
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.grids.loading import read_sweep_file
from manyseed.orchestrator.importing import directory as importing
from manyseed.orchestrator.importing import import_predictions
from tests.orchestrator.conftest import command

SAMPLES = 40
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 3, (2, SAMPLES))
REPEAT = np.array([0, 1, 0, 1, 0, 1])
SCORES = (2 * (Y[REPEAT][..., None] == np.arange(3)) + RNG.normal(size=(6, SAMPLES, 3))).astype(
    "f4"
)
CELL = ("classifier", "perturb_continuous", "repeat_index", "run_index")


def save(file: Path, runs: Any, **others: Any) -> Path:
    """Write some of the runs."""
    given = {"scores": SCORES[runs], "y_true": Y, "repeat": REPEAT[runs]} | others
    np.savez(file, **{name: value for name, value in given.items() if value is not None})
    return file


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    """The first four runs, two of each repeat."""
    return Sweep.import_predictions(
        [save(tmp_path / "first.npz", slice(4))], tmp_path / "sweep", dataset="d"
    )


def files(folder: Path) -> dict[str, bytes]:
    """Return what lies in a folder."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and file.suffix != ".given"
    }


def tables(sweep: Sweep) -> dict[str, pl.DataFrame]:
    """Return tables that say nothing of where runs are stored."""
    made = sweep.analyze(Options(resamples=5))
    return {name: made[name].sort(pl.all()) for name in ("pairs", "repeats", "cells")}


@pytest.mark.slow
def test_runs_that_are_added_count_as_if_they_were_imported_together(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "BLOCK_BYTES", 1000)  # a run or two at a time
    other = {"perturb_continuous": np.array(["relative:0.1"] * 4)}
    sweep.analyze(Options(resamples=5))  # what there is of results is brought up to date
    before = files(sweep.paths.store)
    said = command("import", sweep.paths.directory, save(tmp_path / "more.npz", slice(4, 6)))
    assert said.returncode == 0, said.stderr
    assert "Added 2 runs to" in said.stdout
    assert "which holds 6 now" in said.stdout
    noisy = {"scores": SCORES[:4], "y_true": Y, "repeat": REPEAT[:4], **other}
    np.savez(tmp_path / "noisy.npz", **noisy)
    sweep.add_predictions(noisy)
    vit = {"vit": [save(tmp_path / "vit.npz", slice(1, 6, 2))]}
    import_predictions([], sweep.paths.directory, classifiers=vit, adding=True)
    whole = Sweep.import_predictions(
        [tmp_path / f"{name}.npz" for name in ("first", "more", "noisy")],
        tmp_path / "whole",
        dataset="d",
        classifiers={"vit": [tmp_path / "vit.npz"]},
    )
    assert sweep.status()["runs"] == whole.status()["runs"]
    assert sweep.status()["runs"]["done"] == 13
    for added, table in zip(tables(sweep).values(), tables(whole).values(), strict=True):
        assert_frame_equal(added, table, check_column_order=False)
    ours, theirs = (
        one.results["runs"].select(*CELL, "accuracy", "alpha_hat").sort(CELL)
        for one in (sweep, whole)
    )
    assert_frame_equal(ours, theirs)
    now = files(sweep.paths.store)  # descriptions and coordinates grow
    kept = [name for name in before if any(f"/{a}/c." in name for a in ("score", "label", "crc"))]
    assert kept
    assert all(now[name] == before[name] for name in kept)
    assert sweep.verify()["findings"] == whole.verify()["findings"] == []
    read = read_sweep_file(sweep.paths.sweep_file)
    assert (read.runs, [grid.classifier for grid in read.grid]) == (3, [["imported"], ["vit"]])
    assert not list(sweep.paths.journals.glob("*.journal"))
    assert sweep.report().exists()


def test_numbers_of_runs_are_those_given(sweep: Sweep, tmp_path: Path) -> None:
    more = save(tmp_path / "more.npz", slice(4, 6), run=np.array([7, 9]))
    import_predictions([more], sweep.paths.directory, adding=True)
    runs = sweep.analyze(Options(resamples=3))["runs"]
    assert runs.filter(repeat_index=1)["run_index"].sort().to_list() == [0, 1, 9]
    again = save(tmp_path / "again.npz", slice(1), run=np.array([7]), y_true=Y[:1])
    with pytest.raises(UserError, match="repeat 0, run 7 of a cell is already in the sweep"):
        import_predictions([again], sweep.paths.directory, adding=True)


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"y_true": 2 - Y}, "y_true: differs from that of the sweep's repeat 0 in "),
        ({"test_index": np.arange(SAMPLES)[::-1]}, "test_index: differs from that of the sweep's"),
        (
            {"y_true": np.r_[Y, Y[:1]], "repeat": np.array([0, 2])},
            "it has 3 test sets; the sweep has 2",
        ),
        ({"class_names": np.array(["a", "b", "c"])}, "its classes are a, b, c; the sweep's are 0"),
        ({"scores": SCORES[4:].astype(np.float16)}, "has dtype float16; d × imported of"),
        ({"scores": None, "labels": SCORES[4:].argmax(2)}, "has scores labels alone; d × imp"),
        ({"scores": SCORES[4:] * np.nan}, "has scores that are not finite"),
        (
            {"scores": SCORES[4:, 1:], "y_true": Y[:, 1:]},
            "its test sets have 39 points; the sweep's have 40",
        ),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(
    sweep: Sweep, tmp_path: Path, others: Any, said: str
) -> None:
    before = files(sweep.paths.directory)
    result = command(
        "import", sweep.paths.directory, save(tmp_path / "more.npz", slice(4, 6), **others)
    )
    assert result.returncode == 2
    assert said in " ".join(result.stderr.replace("\n", " ").split())
    assert "more.npz" in result.stderr
    assert files(sweep.paths.directory) == before


def test_runs_that_are_there_are_not_added_again(sweep: Sweep, tmp_path: Path) -> None:
    directory = sweep.paths.directory
    before = files(directory)
    with pytest.raises(
        UserError, match=r"all these runs are in the sweep already\n.*number them with 'run'"
    ):
        import_predictions([tmp_path / "first.npz"], directory, adding=True)
    assert files(directory) == before
    numbered = save(tmp_path / "numbered.npz", slice(1), run=np.array([5]), y_true=Y[:1])
    import_predictions([numbered], directory, adding=True)
    assert sweep.status()["runs"]["done"] == 5


def test_which_dataset_and_classifier_is_asked_where_there_are_several(
    sweep: Sweep, tmp_path: Path
) -> None:
    directory, more = sweep.paths.directory, save(tmp_path / "more.npz", slice(4, 6))
    import_predictions([], directory, classifiers={"vit": [more]}, adding=True)
    for options, said in (
        ({}, r"holds runs of 2 classifiers: imported, vit.*--classifier NAME"),
        ({"dataset": "e"}, "the sweep holds no such dataset"),
    ):
        with pytest.raises(UserError, match=f"(?s){said}"):
            import_predictions([more], directory, adding=True, **options)
    import_predictions([more], directory, adding=True, classifier="imported")
    assert sweep.status()["runs"]["done"] == 8


def test_only_an_import_is_added_to(tmp_path: Path) -> None:
    more = save(tmp_path / "more.npz", slice(4, 6))
    (tmp_path / "empty").mkdir()
    (tmp_path / "sweep.toml").write_text(
        'name = "s"\nseed = 0\n[[grid]]\ndataset = ["sklearn:iris"]\nclassifier = ["lr-sgd"]\n'
    )
    assert command("plan", tmp_path / "sweep.toml", "--out", tmp_path / "trained").returncode == 0
    for arguments, said in (
        ((tmp_path / "empty", more), "not a sweep directory"),
        ((tmp_path / "trained", more), "holds runs that were trained here"),
        ((tmp_path / "trained", more, "--out", tmp_path / "out"), "--out"),
        ((more,), "there is no directory to import into"),
    ):
        result = command("import", *arguments)
        assert result.returncode == 2, arguments
        assert said in " ".join(result.stderr.split())
    first = Sweep.import_predictions([save(tmp_path / "first.npz", slice(4))], tmp_path / "sweep")
    first.export(tmp_path / "whole.zip")
    result = command("import", first.paths.directory, tmp_path / "whole.zip")
    assert "holds a whole sweep, which cannot be added to another" in result.stderr
    assert not (tmp_path / "whole").exists()


def predicted(folder: Path, kind: str, seeds: range, *, data: int = 0, n: int = SAMPLES) -> None:
    """Write a file of predictions for each seed."""
    folder.mkdir()
    y = np.random.default_rng(data).integers(0, 3, n)
    for seed in seeds:
        draws = np.random.default_rng(10 + seed)
        label = np.where(draws.random(n) < 0.3, (y + 1) % 3, y)
        if kind == "npz":
            np.savez(folder / f"seed{seed}.npz", labels=label, y_true=y)
        else:
            table = pl.DataFrame({"truth": y, "prediction": label})
            table.write_csv(folder / f"seed{seed}.csv")


def proposed(said: str) -> list[list[str]]:
    """Return the words of each command in a message."""
    text = " ".join(said.split())
    found = re.findall(r"manyseed ((?:import|analyze|compare) .*?)(?=;| or import| these |$)", text)
    return [shlex.split(one) for one in found]


@pytest.mark.parametrize("kind", ["npz", "csv"])
def test_a_directory_that_is_there_is_added_to_or_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """What the refusal proposes works as it is printed."""
    monkeypatch.chdir(tmp_path)
    predicted(tmp_path / "cnn", kind, range(3))
    predicted(tmp_path / "more", kind, range(3, 5))
    predicted(tmp_path / "other", kind, range(3), data=1)
    predicted(tmp_path / "fewer", kind, range(3), n=30)
    assert command("import", "cnn", "--out", "sw").returncode == 0
    before = files(tmp_path)
    said = {name: command("import", name, "--out", "sw") for name in ("cnn", "more", "other")}
    said["fewer"] = command("import", "sw", "fewer")
    assert files(tmp_path) == before
    assert {done.returncode for done in said.values()} == {2}
    words = {name: proposed(done.stderr) for name, done in said.items()}
    assert words["cnn"] == [["analyze", "sw"]]
    assert words["more"] == [
        ["import", "sw", "more"],
        ["import", "more", "--out", "more-sweep", "--dataset", "cnn"],
        ["analyze", "sw"],
        ["analyze", "more-sweep"],
        ["compare", "sw", "more-sweep"],
    ]
    for name in ("other", "fewer"):
        made = ["import", name, "--out", f"{name}-sweep", "--dataset", "cnn"]
        assert words[name][0] == made
        assert words[name][-1] == ["compare", "sw", f"{name}-sweep"]
    for one in (words["more"][0], *words["other"], words["fewer"][0]):
        assert command(*one).returncode == 0, one
    assert Sweep("sw").status()["runs"]["done"] == 5
    y = np.random.default_rng(0).integers(0, 3, SAMPLES)
    expected = []
    for seed in range(5):
        draws = np.random.default_rng(10 + seed)
        expected.append(1 - np.mean(draws.random(SAMPLES) < 0.3))
    assert y.size
    accuracy = Sweep("sw").analyze(Options(resamples=5))["runs"].sort("run_index")["accuracy"]
    assert accuracy.to_list() == pytest.approx(expected)
    assert Sweep("sw").verify()["findings"] == []


def test_without_a_directory_the_whole_command_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    predicted(tmp_path / "cnn", "npz", range(3))
    tmp_path.joinpath("renamed").mkdir()
    with np.load("cnn/seed0.npz") as held:
        np.savez("renamed/a.npz", preds=held["labels"], y_true=held["y_true"])
    for given, meant in (
        (["cnn"], ["cnn", "--out", "cnn-sweep"]),
        (["cnn/seed0.npz"], ["cnn/seed0.npz", "--out", "seed0"]),
        (["renamed"], ["renamed", "--out", "renamed-sweep", "--key", "labels=preds"]),
        (["--classifier", "vit=cnn"], ["--out", "cnn-sweep", "--classifier", "vit=cnn"]),
    ):
        done = command("import", *given)
        assert done.returncode == 2
        ((_, *words),) = proposed(done.stderr)
        assert words == meant
        assert command("import", *words).returncode == 0
        shutil.rmtree(words[words.index("--out") + 1])
