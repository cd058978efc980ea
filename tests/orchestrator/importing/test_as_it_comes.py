"""Predictions as others save them: a folder of seeds, other axes, other names."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from manyseed import Sweep
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.store.groups import list_groups
from manyseed.orchestrator.store.reader import read_array
from tests.orchestrator.conftest import command, inside
from tests.orchestrator.importing.conftest import runs_of

RUNS, SAMPLES, CLASSES = 3, 30, 4
RNG = np.random.default_rng(0)
Y = np.arange(SAMPLES) % CLASSES
SCORES = (RNG.normal(size=(RUNS, SAMPLES, CLASSES)) + 2 * np.eye(CLASSES)[Y]).astype(np.float32)
LABELS = SCORES.argmax(axis=2)
EXPECTED = (LABELS == Y).mean(axis=1).tolist()
P = np.exp(SCORES) / np.exp(SCORES).sum(axis=2, keepdims=True)
NAMES = np.array(["ant", "bee", "cat", "dog"])


def accuracies(sweep: Sweep) -> list[float]:
    """Of the runs, in their order."""
    accuracy: list[float] = runs_of(sweep).sort("run_index")["accuracy"].to_list()
    return accuracy


def table(run: int) -> pl.DataFrame:
    """What a script might write: its own names, and a column of its own."""
    of_class = {f"p_{name}": P[run, :, k] for k, name in enumerate(NAMES)}
    own = {"id": [f"x{i}" for i in range(SAMPLES)], "true": NAMES[Y], "pred": NAMES[LABELS[run]]}
    return pl.DataFrame(own | of_class)


OPTION = "truth=true,prediction=pred,confidence='p_{class}'"


@pytest.mark.parametrize("with_truth", [True, False])
@pytest.mark.parametrize("ending", [".npz", ".pt", ".npy"])
def test_a_folder_with_a_file_for_each_seed(tmp_path: Path, ending: str, with_truth: bool) -> None:
    folder = tmp_path / "digits"
    folder.mkdir()
    write: dict[str, Callable[[Path, dict[str, Any]], None]] = {
        ".npz": lambda file, held: np.savez(file, **held),
        ".npy": lambda file, held: np.save(file, held["scores"]),
        ".pt": lambda file, held: torch.save({k: torch.tensor(v) for k, v in held.items()}, file),
    }
    own_truth = with_truth and ending != ".npy"
    for run, seed in enumerate((2, 10, 100)):  # 10 after 2, as people count
        held = {"scores": SCORES[run]} | ({"y_true": Y} if own_truth else {})
        write[ending](folder / f"seed-{seed}{ending}", held)
    (folder / "notes.txt").write_text("not read")
    (folder / ".hidden.npz").write_text("not read")
    if not own_truth:
        np.save(folder / "y_true.npy", Y)
    done = command("import", folder, "--out", tmp_path / "sweep", "--classifier", "cnn")
    assert done.returncode == 0, done.output
    sweep = Sweep(tmp_path / "sweep")
    assert accuracies(sweep) == pytest.approx(EXPECTED)
    cells = sweep.analyze()["cells"]
    assert cells.select("dataset", "classifier").rows() == [("digits", "cnn")]


def test_a_folder_of_tables(tmp_path: Path) -> None:
    (tmp_path / "seeds").mkdir()
    for run in range(RUNS):
        table(run).write_csv(tmp_path / "seeds" / f"{run}.csv")
    done = command(
        "import",
        tmp_path / "seeds",
        "--out",
        tmp_path / "sweep",
        "--columns",
        OPTION.replace("'", ""),
    )
    assert done.returncode == 0, done.output
    assert accuracies(Sweep(tmp_path / "sweep")) == pytest.approx(EXPECTED)


def test_folders_of_classifiers_and_one_to_add(tmp_path: Path) -> None:
    for name, runs in (("a", [0, 1]), ("b", [2]), ("more", [2])):
        (tmp_path / name).mkdir()
        for run in runs:
            np.save(tmp_path / name / f"{run}.npy", SCORES[run])
        np.save(tmp_path / name / "truth.npy", Y)
    both = [f"--classifier={name}={tmp_path / name}" for name in "ab"]
    done = command("import", *both, "--out", tmp_path / "sweep", "--dataset", "d")
    assert done.returncode == 0, done.output
    done = command("import", tmp_path / "sweep", tmp_path / "more", "--classifier", "a")
    assert done.returncode == 0, done.output
    sweep = Sweep(tmp_path / "sweep")
    sweep.analyze()
    counts = sweep.results["runs"].group_by("classifier").len().sort("classifier").rows()
    assert counts == [("a", 3), ("b", 1)]


@pytest.mark.parametrize(
    ("given", "n"),
    [
        ({"scores": SCORES[0]}, 1),
        ({"scores": SCORES.transpose(1, 0, 2)}, RUNS),
        ({"scores": SCORES.transpose(0, 2, 1)}, RUNS),
        ({"labels": LABELS[0]}, 1),
        ({"labels": LABELS.T}, RUNS),
        ({"scores": SCORES}, RUNS),
        ({"labels": LABELS}, RUNS),
    ],
    ids=["sample-class", "sample-run-class", "run-class-sample", "sample", "sample-run", "a", "b"],
)
def test_the_truth_tells_which_axis_is_samples(
    tmp_path: Path, given: dict[str, Any], n: int
) -> None:
    np.savez(tmp_path / "d.npz", y_true=Y, **{k: np.ascontiguousarray(v) for k, v in given.items()})
    of_file = Sweep.import_predictions([tmp_path / "d.npz"], tmp_path / "file")
    of_memory = Sweep.from_predictions({**given, "y_true": Y}, tmp_path / "memory")
    for sweep in (of_file, of_memory):
        assert accuracies(sweep) == pytest.approx(EXPECTED[:n])


def test_gaps_of_one_run_and_of_none_that_can_be_told(tmp_path: Path) -> None:
    y, gap = Y % 2, RNG.normal(size=SAMPLES)
    sweep = Sweep.from_predictions({"scores": gap, "y_true": y}, tmp_path / "sweep")
    assert accuracies(sweep) == pytest.approx([((gap >= 0) == y).mean()])
    several = {"scores": RNG.normal(size=(SAMPLES, 5)), "y_true": y}  # 5 runs, or 5 classes?
    with pytest.raises(UserError, match=r"y_true, which has 2 different classes\n.*scores\.T"):
        Sweep.from_predictions(several, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize("ending", [".npz", ".pt"])
def test_entries_with_other_names(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"d{ending}"
    held = {"preds": SCORES, "targets": Y, "config": np.array([1.5])}
    if ending == ".npz":
        np.savez(file, **held)
    else:
        torch.save({name: torch.tensor(values) for name, values in held.items()}, file)
    code, said = inside("import", file, "--out", tmp_path / "sweep")
    assert code == 2
    option = "scores=preds,y_true=targets"
    assert "it holds preds, targets, config; say which is which: " in said
    assert said.rstrip().endswith(f" --key {option}")
    done = command("import", file, "--out", tmp_path / "sweep", "--key", option)
    assert done.returncode == 0, done.output
    assert accuracies(Sweep(tmp_path / "sweep")) == pytest.approx(EXPECTED)
    assert accuracies(
        Sweep.import_predictions(
            [file], tmp_path / "again", key={"scores": "preds", "y_true": "targets"}
        )
    ) == pytest.approx(EXPECTED)


def test_columns_with_other_names(tmp_path: Path) -> None:
    file = tmp_path / "d.csv"
    table(0).write_csv(file)
    code, said = inside("import", file, "--out", tmp_path / "sweep")
    assert code == 2
    assert f"--columns {OPTION}" in " ".join(said.split())
    for number, without in enumerate(("", "prediction=pred,", ",confidence=p_{class}")):
        option = OPTION.replace("'", "").replace(without, "")
        out = tmp_path / f"sweep-{number}"
        done = command("import", file, "--out", out, "--columns", option)
        assert done.returncode == 0, done.output
        assert accuracies(Sweep(out)) == pytest.approx(EXPECTED[:1])


def test_columns_that_are_not_read_are_named(tmp_path: Path) -> None:
    file = tmp_path / "d.csv"
    table(0).with_columns(conf=pl.lit(0.9), note=pl.lit("x")).write_csv(file)
    option = OPTION.replace("'", "")
    code, said = inside("import", file, "--out", tmp_path / "sweep", "--columns", option)
    assert code == 0
    assert said.count("d.csv: columns id, conf, note were not read.") == 1


def test_seeds_in_one_table(tmp_path: Path) -> None:
    frames = [table(run).with_columns(seed=pl.lit(40 + run)) for run in range(RUNS)]
    pl.concat(frames).write_parquet(tmp_path / "d.parquet")
    columns = {"truth": "true", "confidence": "p_{class}", "run": "seed"}
    sweep = Sweep.import_predictions([tmp_path / "d.parquet"], tmp_path / "sweep", columns=columns)
    assert accuracies(sweep) == pytest.approx(EXPECTED)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("d.csv", ("--columns", "truth=ture"), 'ture: there is no such column.*"true"'),
        ("d.csv", ("--columns", "turth=true"), '--columns = "turth": unknown name.*"truth"'),
        ("d.csv", ("--columns", "truth=true,confidence=p_"), "column for each class.*{class}"),
        ("d.csv", ("--columns", "truth=true,confidence=q_{class}"), "no such column"),
        ("d.csv", ("--columns", "truth"), '--columns = "truth": is not OURS=THEIRS'),
        ("d.csv", ("--key", "scores=pred"), "--key: is for NPZ and PyTorch files.*--columns"),
        ("d.npz", ("--columns", "truth=true"), "--columns: is for CSV and Parquet tables.*--key"),
        ("d.npz", ("--key", "scores=logit"), "logit: has no such entry.*it holds preds"),
        ("d.npz", ("--key", "score=preds"), '--key = "score": unknown name.*"scores"'),
        ("empty", (), "this folder has no files of predictions"),
    ],
)
def test_what_cannot_be_is_one_message(
    tmp_path: Path, name: str, options: tuple[str, ...], said: str
) -> None:
    table(0).write_csv(tmp_path / "d.csv")
    np.savez(tmp_path / "d.npz", preds=SCORES, y_true=Y)
    (tmp_path / "empty").mkdir()
    code, text = inside("import", tmp_path / name, "--out", tmp_path / "sweep", *options)
    assert code == 2
    assert re.search(said, " ".join(text.split())), text
    assert not (tmp_path / "sweep").exists()


KINDS: dict[str, Callable[[list[int]], dict[str, Any]]] = {
    "scores": lambda order: {"scores": np.ascontiguousarray(SCORES[:1, :, order])},
    "probabilities": lambda order: {"scores": np.ascontiguousarray(P[:1, :, order])},
    "labels": lambda order: {"labels": np.argsort(order)[LABELS[:1]]},
    "gaps": lambda order: {"scores": (SCORES[:1, :, order[1]] - SCORES[:1, :, order[0]])},
    "probability": lambda order: {"scores": two_probabilities()[:, :, order[1]]},
}
"""Arrays of one run, with classes in an order."""


def two_probabilities() -> np.ndarray[Any, Any]:
    odds = np.exp(SCORES[:1, :, :2].astype(np.float64))
    return odds / odds.sum(axis=2, keepdims=True)


@pytest.mark.parametrize("truth_is_named", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_classes_in_another_order_are_put_into_the_first_files(
    tmp_path: Path, kind: str, *, truth_is_named: bool
) -> None:
    """One of several files, a further one that is added, and another classifier's."""
    n = 2 if kind in ("gaps", "probability") else CLASSES
    y = Y % n

    def save(name: str, order: list[int], **more: Any) -> Path:
        truth = NAMES[y] if truth_is_named else np.argsort(order)[y]
        file = tmp_path / f"{name}.npz"
        np.savez(file, y_true=truth, class_names=NAMES[order], **KINDS[kind](order), **more)
        return file

    first, other = save("first", [*range(n)]), save("other", [*range(n)][::-1])
    again = save("again", [*range(n)][::-1], run=np.array([5]))
    options: dict[str, Any] = {"probabilities": kind.startswith("prob"), "dataset": "d"}
    sweep = Sweep.import_predictions(
        [first, other], tmp_path / "sweep", classifiers={"b": [other]}, **options
    )
    Sweep.import_predictions([first], tmp_path / "grown", **options)
    del options["dataset"]
    code, said = inside(
        "import", tmp_path / "grown", again, *(["--probabilities"] * options["probabilities"])
    )
    assert code == 0, said
    for each, runs in ((sweep, 3), (Sweep(tmp_path / "grown"), 2)):
        groups = list_groups(each.paths.store)
        assert {group.spec.class_names for group in groups} == {tuple(NAMES[:n].tolist())}
        found = accuracies(each)
        right = (LABELS[0] == Y) if n == CLASSES else (SCORES[0, :, :2].argmax(axis=1) == y)
        assert found == pytest.approx([right.mean()] * runs)
        if kind != "labels":
            likelihood = each.analyze()["runs"]["log_likelihood"].to_list()
            assert likelihood == pytest.approx(likelihood[:1] * runs, rel=1e-5)


def test_what_differs_is_said_and_no_option_that_was_not_given(tmp_path: Path) -> None:
    folder = tmp_path / "seeds"
    folder.mkdir()
    other = np.array(["ant", "bee", "cat", "eel"])
    np.savez(folder / "0.npz", scores=SCORES[:1], y_true=Y, class_names=NAMES)
    np.savez(folder / "1.npz", scores=SCORES[:1], y_true=Y, class_names=other)
    code, said = inside("import", folder, "--out", tmp_path / "sweep")
    said = " ".join(said.split())
    assert code == 2
    assert "class_names: its classes are ant, bee, cat, eel, not ant, bee, cat, dog" in said
    assert "import them separately" in said
    assert "--dataset" not in said
    code, said = inside("import", folder, "--out", tmp_path / "sweep", "--dataset", "d")
    assert "or leave out --dataset" in " ".join(said.split())


def test_names_of_classes_are_suggested_where_a_file_has_some(tmp_path: Path) -> None:
    folder = tmp_path / "seeds"
    folder.mkdir()
    np.savez(folder / "0.npz", probs=P[:1], y=Y, classes=NAMES)
    code, said = inside("import", folder, "--out", tmp_path / "sweep")
    option = "scores=probs,y_true=y,class_names=classes"
    assert code == 2
    assert said.rstrip().endswith(f" --key {option} --probabilities"), said
    done = command(
        "import", folder, "--out", tmp_path / "sweep", "--key", option, "--probabilities"
    )
    assert done.returncode == 0, done.output


@pytest.mark.parametrize("form", ["confidence.{}", "p_{}"])
def test_a_misspelt_column_is_blamed_and_not_the_class(tmp_path: Path, form: str) -> None:
    frame = table(0).drop("id").rename({f"p_{name}": form.format(name) for name in NAMES})
    frame = frame.rename({"true": "truth", "pred": "prediction"})
    file, option = tmp_path / "d.csv", ["--columns", f"confidence={form.format('{class}')}"]
    frame.rename({form.format("bee"): form.format("beee")}).write_csv(file)
    given = option if form == "p_{}" else []
    code, said = inside("import", file, "--out", tmp_path / "sweep", *given)
    assert code == 2
    column = f'{form.format("beee")}: no true class is called so, and "bee" has no column'
    assert column in " ".join(said.split())
    assert f"rename it {form.format('bee')}" in said
    frame.drop(form.format("bee")).write_csv(file)
    code, said = inside("import", file, "--out", tmp_path / "sweep", *given)
    assert code == 2
    assert f'the true class "bee" has no column {form.format("bee")}' in " ".join(said.split())


def test_a_table_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    """In one process, as in a notebook: what was read of it before does not count."""
    file, columns = tmp_path / "d.csv", {"truth": "true", "confidence": "p_{class}"}
    for run in range(2):
        table(run).write_csv(file)
        sweep = Sweep.import_predictions([file], tmp_path / f"sweep-{run}", columns=columns)
        assert accuracies(sweep) == pytest.approx(EXPECTED[run : run + 1])


def test_scores_that_can_be_read_in_two_ways_are_refused(tmp_path: Path) -> None:
    """(sample, class, run) instead of (sample, run, class)."""
    dice = np.random.default_rng(1)
    y_true = np.arange(90) % 3
    scores = dice.normal(size=(90, 3, 6)) + 4 * (y_true[:, None] == range(3))[:, :, None]
    file = tmp_path / "t.npz"
    np.savez(file, scores=scores, y_true=y_true)
    done = command("import", file, "--out", tmp_path / "made")
    assert (done.returncode, (tmp_path / "made").exists()) == (2, False), done.output
    assert "may hold 3 runs of 6 classes, or 6 runs of 3, as y_true has" in done.output
    np.savez(file, scores=scores.transpose(0, 2, 1), y_true=y_true)
    done = command("import", file, "--out", tmp_path / "made")
    assert (done.returncode, "Imported 6 runs" in done.output) == (0, True), done.output


@pytest.mark.parametrize("name", ["scores", "labels"])
def test_an_array_in_fortran_order_is_read_as_it_is_meant(tmp_path: Path, name: str) -> None:
    """As `transpose` leaves it."""
    made = {"scores": SCORES, "labels": LABELS}[name]
    np.savez(tmp_path / "c.npz", **{name: made}, y_true=Y)
    np.savez(tmp_path / "f.npz", **{name: np.asfortranarray(made)}, y_true=Y)
    both = [tmp_path / "c", tmp_path / "f"]
    for folder in both:
        Sweep.import_predictions([folder.with_suffix(".npz")], folder)
    (one,), (other,) = (list_groups(Sweep(folder).paths.store) for folder in both)
    names = [array.name for array in one.spec.arrays if array.role == "prediction"]
    assert names
    for array in names:
        np.testing.assert_array_equal(read_array(one, array), read_array(other, array))
    assert accuracies(Sweep(both[1])) == pytest.approx(EXPECTED)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_outputs_of_keras_have_an_axis_of_one(tmp_path: Path, n_classes: int) -> None:
    """``model.predict`` gives (sample, 1) of two classes, and labels come as (sample, 1)."""
    folder, y = tmp_path / "keras", Y % n_classes
    folder.mkdir()
    for run, p in enumerate(P):
        p = p[:, :2] / p[:, :2].sum(axis=1, keepdims=True) if n_classes == 2 else p
        np.save(folder / f"pred_{run}.npy", p[:, 1:] if n_classes == 2 else p)
    np.save(folder / "y_true.npy", y[:, None])
    code, said = inside("import", folder, "--out", tmp_path / "sweep", "--probabilities")
    assert code == 0, said
    label = SCORES[..., :n_classes].argmax(axis=2)
    expected = (label == y).mean(axis=1).tolist()
    assert accuracies(Sweep(tmp_path / "sweep")) == pytest.approx(expected)


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(NAMES.tolist()), pl.Binary])
def test_tables_of_categories_are_text(tmp_path: Path, kind: Any) -> None:
    for run in range(RUNS):
        own = {"truth": NAMES[Y], "prediction": NAMES[LABELS[run]]}
        pl.DataFrame(own).with_columns(pl.all().cast(kind)).write_parquet(
            tmp_path / f"{run}.parquet"
        )
    code, said = inside("import", *sorted(tmp_path.iterdir()), "--out", tmp_path / "sweep")
    assert code == 0, said
    assert accuracies(Sweep(tmp_path / "sweep")) == pytest.approx(EXPECTED)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a.csv.gz", "unpack it"),
        ("a.pkl", "a pickle may run anything"),
        ("a.XLSX", "pl.read_excel(f)"),
        ("a.h5", "numpy.savez"),
        ("a.CSV", 'did you mean ".csv"'),
    ],
)
def test_files_of_other_formats_are_told_and_never_left_out_in_silence(
    tmp_path: Path, name: str, said: str
) -> None:
    folder = tmp_path / "seeds"
    folder.mkdir()
    (folder / name).write_bytes(b"x")
    (folder / "notes.txt").write_bytes(b"x")
    code, text = inside("import", folder / name, "--out", tmp_path / "sweep")
    assert (code, said in " ".join(text.split())) == (2, True), text
    pl.DataFrame({"truth": Y, "prediction": LABELS[0]}).write_csv(folder / "s0.csv")
    code, text = inside("import", folder, "--out", tmp_path / "sweep")
    assert code == 0, text
    is_told = name not in ("a.pkl", "a.h5")  # which may be models
    assert (f"{name} in {folder} was not read." in " ".join(text.split())) is is_told, text


def test_classes_below_0_are_names(tmp_path: Path) -> None:
    y = np.where(Y > 1, 1, -1)
    held = {"labels": y[None].copy(), "y_true": y}
    with pytest.raises(UserError, match=r"goes from -1 to 1(?s:.*)y_true.astype\(str\)"):
        Sweep.from_predictions(held, tmp_path / "refused")
    named = {name: values.astype(str) for name, values in held.items()}
    assert accuracies(Sweep.from_predictions(named, tmp_path / "sweep")) == [1]
