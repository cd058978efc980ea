"""Files that are no runs, and files of several models, in what is imported together."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from tests.orchestrator.conftest import inside

N = 120
Y = np.random.default_rng(1).integers(0, 4, N)


def labels(seed: int, accuracy: float = 0.7) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(N) < accuracy, Y, rng.integers(0, 4, N))


def proposed(said: str) -> list[str]:
    found = re.search(r"manyseed import (.*)", said)
    assert found is not None, said
    return shlex.split(found[1])


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab").mkdir()
    for seed in range(4):
        np.save(f"lab/p{seed}.npy", labels(seed))
    np.save("lab/y.npy", Y)
    return tmp_path / "lab"


def runs(out: str) -> dict[str, int]:
    held = Sweep(Path(out)).analyze()["runs"].group_by("classifier").len()
    return dict(held.rows())


@pytest.mark.parametrize("truth", ["lab/y.npy", "./lab/../lab/y.npy", "link.npy"])
@pytest.mark.parametrize("files", [["lab"], ["lab/*"]])
def test_a_file_of_an_option_is_no_run(lab: Path, truth: str, files: list[str]) -> None:
    Path("link.npy").symlink_to(lab / "y.npy")
    files = [str(one) for form in files for one in sorted(Path().glob(form))]
    code, said = inside("import", *files, "--truth", truth, "--dataset", "d", "--out", "s")
    assert code == 0, said
    assert runs("s") == {"imported": 4}


def test_a_map_among_the_files_is_no_run(lab: Path) -> None:
    (lab / "a.toml").write_text('truth = "y.npy"\ndataset = "d"\n')
    code, said = inside("import", *sorted(lab.iterdir()), "--map", "lab/a.toml", "--out", "s")
    assert (code, runs("s")) == (0, {"imported": 4}), said


def test_a_file_that_also_holds_runs_stays(lab: Path) -> None:
    np.savez("a.npz", labels=labels(8)[None], y_true=Y)
    np.savez("b.npz", labels=labels(9)[None])
    files = ("a.npz", "b.npz", "--truth", "a.npz", "--dataset", "d", "--out", "s")
    assert inside("import", *files)[0] == 0
    assert runs("s") == {"imported": 2}


@pytest.mark.parametrize("name", ["y", "y_test", "labels", "targets", "gold"])
def test_true_classes_beside_the_files_are_proposed(lab: Path, name: str) -> None:
    (lab / "y.npy").rename(lab / f"{name}.npy")
    code, said = inside("import", "lab", "--out", "s")
    assert code == 2
    assert f"--truth lab/{name}.npy" in said
    assert inside("import", *proposed(said))[0] == 0
    assert runs("s") == {"imported": 4}


def test_true_classes_of_other_points_are_not_proposed(lab: Path) -> None:
    np.save("lab/y.npy", Y[:-1])
    code, said = inside("import", "lab", "--out", "s")
    assert (code, "--truth FILE" in said, "y.npy" in said) == (2, True, False)


def test_a_run_that_is_the_truth_is_told(lab: Path) -> None:
    np.save("lab/p9.npy", Y)
    code, said = inside("import", "lab", "--truth", "lab/y.npy", "--out", "s")
    assert (code, "right in every point, as no other run nearly is: p9.npy" in said) == (0, True)
    assert "right in every point" in Path("s/sweep.toml").read_text()


def test_good_runs_may_be_right_in_every_point(lab: Path) -> None:
    for seed in range(4):
        given = Y.copy()
        given[seed : 2 * seed] = 3 - given[seed : 2 * seed]
        np.save(f"lab/p{seed}.npy", given)
    code, said = inside("import", "lab", "--truth", "lab/y.npy", "--out", "s")
    assert (code, "right in every point" in said) == (0, False)


FORMS = ["{}_seed{}.npz", "{}-{}.csv", "{}/{}.csv", "{}/seed{}/test.npz"]


def of_two(form: str) -> list[str]:
    names = []
    for model, n in (("forest", 3), ("tree3", 2)):
        for seed in range(n):
            file = Path("two") / form.format(model, seed)
            file.parent.mkdir(parents=True, exist_ok=True)
            given = labels(seed + 10 * n)
            if file.suffix == ".npz":
                np.savez(file, labels=given[None], y_true=Y)
            else:
                table = {"row_id": range(N), "truth": Y, "prediction": given}
                pl.DataFrame(table).write_csv(file)
            names.append(str(file))
    return names


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_folder", [True, False])
def test_files_of_two_models_are_not_pooled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, is_folder: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    files = of_two(form)
    code, said = inside("import", *(["two"] if is_folder else files), "--out", "s")
    name = form.format("{classifier}", "{run}")
    assert (code, f"--name '{name}'" in said) == (2, True), said
    code, said = inside("import", *(["two"] if is_folder else files), "--name", name, "--out", "s")
    assert (code, runs("s")) == (0, {"forest": 3, "tree3": 2}), said
    assert "classifiers forest (3), tree3 (2)." in said
    if not is_folder:
        one = ("--classifier", "one", "--dataset", "d", "--out", "t")
        assert inside("import", *files, *one)[0] == 0
        assert runs("t") == {"one": 5}


def test_predictions_that_confidences_imply_are_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    p = np.random.default_rng(0).dirichlet(np.ones(4), N)
    table = {"label": Y, **{f"p_{k}": p[:, k] for k in range(4)}}
    pl.DataFrame(table).write_csv("a.csv")
    code, said = inside("import", "a.csv", "--out", "s")
    assert (code, "prediction=" in said) == (2, False)
    assert inside("import", *proposed(said))[0] == 0
