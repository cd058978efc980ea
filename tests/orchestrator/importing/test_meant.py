"""What can be read but is hardly meant: flags as classes, rounding, copies, turned axes."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing.orders import apart
from tests.orchestrator.conftest import inside
from tests.orchestrator.importing.conftest import runs_of

NAMES = np.array(["cat", "dog", "emu"])
N = 300


def said_of(*arguments: Any) -> tuple[int, str]:
    code, said = inside("import", *arguments)
    return code, " ".join(said.split())


def labelled(n_runs: int, n: int = N, share: float = 0.85, seed: int = 0) -> tuple[Any, Any]:
    """Return true classes (sample,) and labels (run, sample) that share hard points."""
    rng = np.random.default_rng(seed)
    y, hard = rng.integers(0, 3, n), rng.random(n) > share
    other = (y + rng.integers(1, 3, n)) % 3
    wrong = np.where(hard, rng.random((n_runs, n)) < 0.7, rng.random((n_runs, n)) < 0.03)
    return y, np.where(wrong, other, y)


def write(file: Path, prediction: Any, **columns: Any) -> Path:
    pl.DataFrame({"row_id": range(len(prediction)), "prediction": prediction, **columns}).write_csv(
        file
    )
    return file


def scores(seed: int = 0, n_runs: int = 3, n: int = N, n_classes: int = 3) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    return rng.normal(size=(n_runs, n, n_classes)) + 2 * np.eye(n_classes)[y], y


def p_of(given: Any) -> Any:
    return np.exp(given) / np.exp(given).sum(axis=-1, keepdims=True)


# a column that says whether predictions are right


@pytest.mark.parametrize("words", [("0", "1"), ("False", "True"), ("no", "yes"), ("n", "Y")])
@pytest.mark.parametrize("binary", [False, True])
def test_a_flag_is_not_the_true_class(
    tmp_path: Path, words: tuple[str, str], *, binary: bool
) -> None:
    y, (label,) = labelled(1)
    y, label = (y > 0, label > 0) if binary else (y, label)
    names = np.array(words) if binary else NAMES
    flag = np.array(words)[(label == y).astype(int)]
    file = write(tmp_path / "a.csv", names[label.astype(int)], correct=flag)
    code, said = said_of(file, "--out", tmp_path / "sweep")
    assert code == 2
    assert f"correct: {'may say' if binary else 'says'} whether each prediction is right" in said
    assert ("--columns truth=correct" in said) is binary
    assert not (tmp_path / "sweep").exists()
    code, said = said_of(file, "--out", tmp_path / "s", "--columns", "truth=correct")
    assert code == (0 if binary else 2)
    assert ("no predicted class is a true class" in said) is not binary


def test_the_true_class_beside_a_flag_is_read(tmp_path: Path) -> None:
    y, (label,) = labelled(1)
    right = label == y
    file = write(tmp_path / "a.csv", NAMES[label], correct=right, truth=NAMES[y])
    sweep = Sweep.import_predictions([file], tmp_path / "sweep")
    assert runs_of(sweep)["accuracy"].to_list() == pytest.approx([right.mean()])


@pytest.mark.parametrize("words", [("0", "1"), ("true", "false"), ("cat", "dog")])
def test_in_openml_own_files_it_is_the_true_class(tmp_path: Path, words: tuple[str, str]) -> None:
    y, (label,) = labelled(1)
    names = np.array(words)
    own = {"correct": names[(y > 0).astype(int)], "repeat": 0, "fold": np.arange(N) % 10}
    file = write(tmp_path / "predictions.csv", names[(label > 0).astype(int)], **own)
    sweep = Sweep.import_predictions([file], tmp_path / "sweep")
    right = ((y > 0) == (label > 0)).mean()
    assert runs_of(sweep)["accuracy"].to_list() == pytest.approx([right])


@pytest.mark.parametrize("name", ["is_correct", "hit", "error", "right"])
def test_flags_of_other_names_are_named(tmp_path: Path, name: str) -> None:
    y, (label,) = labelled(1)
    file = write(tmp_path / "a.csv", NAMES[label], **{name: (label == y).astype(int)})
    code, said = said_of(file, "--out", tmp_path / "sweep")
    assert code == 2
    assert f"{name} says whether a prediction is right, not the true class" in said


def test_a_file_of_flags_is_no_truth(tmp_path: Path) -> None:
    y, label = labelled(1)
    np.save(tmp_path / "labels.npy", label > 0)
    truth = tmp_path / "truth.csv"
    for name, code in (("correct", 2), ("hit", 2), ("y_true", 0)):
        pl.DataFrame({name: (y > 0).astype(int)}).write_csv(truth)
        given = (tmp_path / "labels.npy", "--truth", truth, "--out", tmp_path / "sweep")
        assert said_of(*given)[0] == code


@pytest.mark.parametrize("first", [0, 1])
def test_numbers_of_rows_sort_a_table_of_true_classes(tmp_path: Path, first: int) -> None:
    y, label = labelled(1)
    np.save(tmp_path / "labels.npy", label)
    order = np.random.default_rng(1).permutation(N)
    images = [f"{row:x}.png" for row in order]
    table = pl.DataFrame({"id": order + first, "image": images, "y_true": y[order]})
    given = (tmp_path / "labels.npy", "--truth", tmp_path / "truth.csv", "--out", tmp_path / "s")
    for other in ({"image": images}, {"id": 7 * order}, {"id": order, "number": order[::-1]}):
        table.select("y_true").with_columns(
            **{k: pl.Series(v) for k, v in other.items()}
        ).write_csv(tmp_path / "truth.csv")
        code, said = said_of(*given)
        assert code == 2, said
        assert "may say in which order the rows are" in said
        assert not (tmp_path / "s").exists()
    table.write_csv(tmp_path / "truth.csv")
    code, said = said_of(*given)
    assert code == 0, said
    runs = runs_of(Sweep(tmp_path / "s"))
    assert runs["accuracy"].to_list() == pytest.approx([(label[0] == y).mean()])


def test_a_test_set_of_one_class_may_be_missed_altogether(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", ["dog"] * 5, truth=["cat"] * 5)
    assert said_of(file, "--out", tmp_path / "sweep")[0] == 0


# rounded probabilities


@pytest.mark.parametrize("form", ["npz", "csv"])
@pytest.mark.parametrize(("decimals", "n_classes"), [(2, 3), (3, 3), (4, 3), (2, 10), (3, 10)])
def test_rounded_probabilities_are_divided_by_their_sum(
    tmp_path: Path, decimals: int, n_classes: int, form: str
) -> None:
    given, y = scores(1, n_classes=n_classes)
    p = np.clip(p_of(given / 3), 0.006, None).round(decimals)
    if form == "npz":
        np.savez(tmp_path / "a.npz", scores=p, y_true=y)
        files, options = [tmp_path / "a.npz"], ["--probabilities"]
    else:
        options, files = [], []
        for run, own in enumerate(p):
            of_class = {f"confidence.{k}": own[:, k] for k in range(n_classes)}
            label = own.argmax(axis=1)
            files.append(write(tmp_path / f"{run}.csv", label, truth=y, **of_class))
    code, said = said_of(*files, "--out", tmp_path / "sweep", *options)
    assert code == 0, said
    off = abs(p.sum(axis=2) - 1).max()
    told = f"sum to 1 only within {off:.2g}, as if rounded; they were divided by their sum"
    assert said.count(told) == (off > 0.001 + 1e-9)
    runs = Sweep(tmp_path / "sweep").analyze()["runs"].sort("run_index")
    share = np.take_along_axis(p / p.sum(axis=2, keepdims=True), y[None, :, None], axis=2)
    expected = np.log(share[..., 0]).mean(axis=1)
    assert runs["log_likelihood"].to_list() == pytest.approx(expected.tolist(), rel=1e-5)
    assert Sweep(tmp_path / "sweep").verify()["runs_wrong"] == 0


def test_sums_that_rounding_does_not_explain_are_refused(tmp_path: Path) -> None:
    p = np.tile([0.5, 0.3, 0.2], (1, N, 1))
    p[0, 7] = 0.5, 0.3, 0.22
    given = {"scores": p, "y_true": np.arange(N) % 3}
    with pytest.raises(UserError, match=r"7: the probabilities sum to 1.02(?s:.*)divide each row"):
        Sweep.from_predictions(given, tmp_path / "sweep", probabilities=True)


def test_rounded_probabilities_are_not_taken_for_logits(tmp_path: Path) -> None:
    given, y = scores()
    held = {"scores": p_of(given).round(2), "y_true": y}
    with pytest.raises(UserError, match="look like probabilities: they lie in 0 to 1 and sum"):
        Sweep.from_predictions(held, tmp_path / "sweep")


def test_outputs_of_sigmoids_are_not_taken_for_logits(tmp_path: Path) -> None:
    given, y = scores()
    p = 1 / (1 + np.exp(-given))
    with pytest.raises(UserError, match=r"sigmoids(?s:.*)log\(p / \(1 - p\)\), with --prob|ovr"):
        Sweep.from_predictions({"scores": p, "y_true": y}, tmp_path / "sweep")
    with pytest.raises(UserError, match=r"sum to (?s:.*)of sigmoids, give the logits"):
        Sweep.from_predictions({"scores": p, "y_true": y}, tmp_path / "s", probabilities=True)
    odds = {"scores": np.log(p / (1 - p)), "y_true": y}
    sweep = Sweep.from_predictions(odds, tmp_path / "mended", probability="ovr")
    share = np.take_along_axis(p / p.sum(axis=2, keepdims=True), y[None, :, None], axis=2)
    runs = sweep.analyze()["runs"].sort("run_index")
    expected = np.log(share[..., 0]).mean(axis=1).tolist()
    assert runs["log_likelihood"].to_list() == pytest.approx(expected, rel=1e-5)
    shifted = {"scores": p - 1, "y_true": y}  # logits that lie in 0 to 1, as the remedy says
    Sweep.from_predictions(shifted, tmp_path / "shifted")


@pytest.mark.parametrize("total", [100, 500])
@pytest.mark.parametrize("probabilities", [False, True])
def test_percentages_and_votes_are_refused(
    tmp_path: Path, total: int, *, probabilities: bool
) -> None:
    given, y = scores()
    p = (total * p_of(given)).round(1)
    if total != 100:  # votes
        p = np.floor(total * p_of(given - 1.5 * given.min(axis=2, keepdims=True)))
        p[..., 0] += total - p.sum(axis=2)
        p[0, 0] = total, 0, 0
        p[1:, 0] = 0, total, 0
    held = {"scores": p, "y_true": y}
    with pytest.raises(
        UserError, match=rf"{'divide them by' if probabilities else 'sum to'} {total}"
    ):
        Sweep.from_predictions(held, tmp_path / "sweep", probabilities=probabilities)
    of_one = {"scores": held["scores"][..., 1] * 100 / total, "y_true": (y == 1).astype(int)}
    with pytest.raises(UserError, match="percentages"):
        Sweep.from_predictions(of_one, tmp_path / "sweep", probabilities=probabilities)


def test_percentages_in_tables_are_refused(tmp_path: Path) -> None:
    given, y = scores(n_runs=1)
    p = (100 * p_of(given[0])).round(1)
    of_class = {f"confidence.{k}": p[:, k] for k in range(3)}
    file = write(tmp_path / "a.csv", p.argmax(axis=1), truth=y, **of_class)
    code, said = said_of(file, "--out", tmp_path / "sweep")
    assert (code, "divide percentages by 100" in said) == (2, True)
    of_class = {f"confidence.{k}": given[0, :, k] for k in range(3)}
    write(file, given[0].argmax(axis=1), truth=y, **of_class)
    code, said = said_of(file, "--out", tmp_path / "sweep")
    assert (code, "if they are logits: --columns logits=" in said) == (2, True), said
    assert "divide" not in said


# classes that are nobody's true class


def test_a_class_that_is_cut_off_is_told_and_another_spelling_refused(tmp_path: Path) -> None:
    y, label = labelled(5)
    y[-1] = 2
    label[:, -1] = 2
    files = [
        write(tmp_path / f"seed_{run}.csv", NAMES[own], truth=NAMES[y])
        for run, own in enumerate(label)
    ]
    code, said = said_of(*files, "--out", tmp_path / "right")
    assert (code, "nobody" in said) == (0, False)
    prediction = NAMES[label[4]].tolist()
    write(files[4], [*prediction[:-1], "e"], truth=NAMES[y])
    code, said = said_of(*files, "--out", tmp_path / "sweep")
    told = (
        'class "e" is predicted once, in seed_4.csv, and is nobody\'s true class. Did you mean emu?'
    )
    assert code == 0
    assert told in said
    write(files[4], [*prediction[:-1], "Emu"], truth=NAMES[y])
    code, said = said_of(*files, "--out", tmp_path / "refused")
    assert (code, 'one but for spelling: "emu" and "Emu"' in said) == (2, True)


def test_classes_that_case_tells_apart_may_be_predicted_alone(tmp_path: Path) -> None:
    truth = ["a", "A", "b"] * 10
    file = write(tmp_path / "a.csv", [*truth[:-1], "B"], truth=truth)
    code, said = said_of(file, "--out", tmp_path / "sweep")
    assert (code, 'class "B" is predicted once' in said) == (0, True)


def test_indices_from_0_beside_classes_from_1_are_refused(tmp_path: Path) -> None:
    y, label = labelled(2)
    np.savez(tmp_path / "a.npz", labels=label, y_true=y + 1)
    code, said = said_of(tmp_path / "a.npz", "--out", tmp_path / "sweep")
    assert (code, "subtract 1 from the true classes" in said) == (2, True)
    assert not (tmp_path / "sweep").exists()
    np.savez(tmp_path / "b.npz", labels=label, y_true=y)
    said = said_of(tmp_path / "b.npz", "--out", tmp_path / "b")[1]
    assert "is predicted" not in said


# one run twice


@pytest.mark.parametrize("n", [60, 300])
def test_a_copy_of_labels_is_refused_where_chance_does_not_make_it(tmp_path: Path, n: int) -> None:
    y, label = labelled(4, n)
    label[3] = label[0]
    files = [
        write(tmp_path / f"seed_{run}.csv", NAMES[own], truth=NAMES[y])
        for run, own in enumerate(label)
    ]
    code, said = said_of(*files, "--out", tmp_path / "sweep")
    assert "seed_3.csv holds the same predictions as seed_0.csv" in said
    fewest = min((label[i] != label[j]).sum() for i, j in [(0, 1), (0, 2), (1, 2)])
    assert code == (2 if fewest >= 20 else 0)
    assert bool(fewest >= 20) is (n == 300)


def test_a_copy_of_scores_is_refused_unless_runs_are_numbered(tmp_path: Path) -> None:
    given, y = scores(n_runs=4)
    given[3] = given[1]
    held = {"scores": given, "y_true": y}
    with pytest.raises(UserError, match=r"run 3 of .* the same predictions as run 1"):
        Sweep.from_predictions(held, tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()
    with pytest.warns(UserWarning, match="Is one run there twice"):
        Sweep.from_predictions({**held, "run": range(4)}, tmp_path / "numbered")


def test_runs_that_all_agree_are_told_and_good_ones_on_few_points_are_not(tmp_path: Path) -> None:
    given, y = scores(n_runs=1)
    with pytest.warns(UserWarning, match="all 3 runs predict the same"):
        Sweep.from_predictions({"scores": given[[0, 0, 0]], "y_true": y}, tmp_path / "same")
    label = np.tile(np.arange(30) % 3, (6, 1))
    label[1, 0], label[2, 1] = 1, 2
    np.savez(tmp_path / "iris.npz", labels=label, y_true=np.arange(30) % 3)
    code, said = said_of(tmp_path / "iris.npz", "--out", tmp_path / "iris")
    assert (code, "same" in said) == (0, False)


# axes and signs


@pytest.mark.parametrize("order", [(2, 1, 0), (1, 2, 0), (1, 0, 2), (0, 2, 1)])
def test_arrays_with_as_many_runs_as_classes(tmp_path: Path, order: tuple[int, ...]) -> None:
    given, y = scores()
    turned = np.ascontiguousarray(given.transpose(order))
    by_run = np.moveaxis(turned, turned.shape.index(N), 1)
    if not np.array_equal(by_run, given):
        message = r"\(3, 300, 3\): as \(run, sample, class\)(?s:.*)scores.transpose\(2, 1, 0\)"
        with pytest.raises(UserError, match=message):
            Sweep.from_predictions({"scores": turned, "y_true": y}, tmp_path / "sweep")
        turned = by_run.transpose(2, 1, 0)
    sweep = Sweep.from_predictions({"scores": turned, "y_true": y}, tmp_path / "sweep")
    right = (given.argmax(axis=2) == y).mean(axis=1)
    found = runs_of(sweep).sort("run_index")["accuracy"]
    assert found.to_list() == pytest.approx(right.tolist())


def test_as_many_points_as_runs(tmp_path: Path) -> None:
    y, label = labelled(60, 60)
    Sweep.from_predictions({"labels": label, "y_true": y}, tmp_path / "sweep")
    with pytest.raises(UserError, match=r"as \(sample, run\)(?s:.*)labels.transpose\(1, 0\)"):
        Sweep.from_predictions({"labels": label.T.copy(), "y_true": y}, tmp_path / "refused")


def test_more_columns_than_classes_because_they_are_runs(tmp_path: Path) -> None:
    given, y = scores(n_runs=5)
    with pytest.raises(UserError, match=r"as \(class, sample, run\)"):
        Sweep.from_predictions(
            {"scores": given.transpose(2, 1, 0).copy(), "y_true": y}, tmp_path / "refused"
        )


@pytest.mark.parametrize("n_classes", [2, 3, 12])
def test_scores_of_the_opposite_sign_are_told(tmp_path: Path, n_classes: int) -> None:
    given, y = scores(n_classes=n_classes, n=600)
    np.savez(tmp_path / "a.npz", scores=-given, y_true=y)
    said = said_of(tmp_path / "a.npz", "--out", tmp_path / "sweep")[1]
    assert "of the opposite sign" in said
    np.savez(tmp_path / "b.npz", scores=given, y_true=y)
    said = said_of(tmp_path / "b.npz", "--out", tmp_path / "mended")[1]
    assert "opposite sign" not in said


# rows


def test_runs_that_lack_rows_are_named(tmp_path: Path) -> None:
    y, label = labelled(3, 30)
    rows = [
        {"row_id": i, "prediction": NAMES[label[r, i]], "truth": NAMES[y[i]], "run": r}
        for r in range(3)
        for i in range(30)
    ]
    file = tmp_path / "lm.csv"
    for left_out, told in (
        ((2, {7, 9}), "run 2 of lm.csv lacks the rows 7, 9 of run 0 of lm.csv"),
        ((0, {4}), "run 1 of lm.csv has the row 4, which run 0 of lm.csv lacks"),
    ):
        run, ids = left_out
        kept = [row for row in rows if not (row["run"] == run and row["row_id"] in ids)]
        pl.DataFrame(kept).write_csv(file)
        code, said = said_of(file, "--out", tmp_path / "sweep")
        assert (code, told in said) == (2, True), said
    rows[65]["truth"] = "owl"
    pl.DataFrame(rows).write_csv(file)
    said = said_of(file, "--out", tmp_path / "sweep")[1]
    assert (
        f'run 2 of lm.csv has the true class "owl" in row 5, run 0 of lm.csv "{NAMES[y[5]]}"'
        in said
    )


# points in another order


def shuffled(label: Any, y: Any, rng: np.random.Generator) -> Any:
    """Return a run's labels, moved between points of the same true class."""
    result = label.copy()
    for each in np.unique(y):
        at = np.flatnonzero(y == each)
        result[at] = label[rng.permutation(at)]
    return result


@pytest.mark.parametrize("within_classes", [True, False])
def test_a_run_whose_points_are_in_another_order_is_told(
    tmp_path: Path, within_classes: bool
) -> None:
    y, label = labelled(5, 600)
    files = []
    for run, own in enumerate(label):
        rng = np.random.default_rng(1)
        if run == 3:
            own = shuffled(own, y, rng) if within_classes else rng.permutation(own)
        files.append(write(tmp_path / f"seed_{run}.csv", NAMES[own], truth=NAMES[y]))
    code, said = said_of(*files, "--out", tmp_path / "sweep")
    assert code == 0
    assert "seed_3.csv disagrees with the others" in said
    assert "as if its points were in another order" in said
    write(files[3], NAMES[label[3]], truth=NAMES[y])
    said = said_of(*files, "--out", tmp_path / "right")[1]
    assert "in another order" not in said


def test_which_run_is_apart() -> None:
    rng, told = np.random.default_rng(5), 0
    for seed in range(20):
        y, label = labelled(6, 600, seed=seed)
        assert apart(label, y)[0] == []
        moved = label.copy()
        moved[[2, 5]] = [shuffled(label[run], y, rng) for run in (2, 5)]
        found, times = apart(moved, y)
        if found == [2, 5]:
            far = [(moved[i] != moved[j]).mean() for i in (2, 5) for j in (0, 1, 3, 4)]
            near = [(label[i] != label[j]).mean() for i, j in combinations((0, 1, 3, 4), 2)]
            assert times == pytest.approx(np.mean(far) / np.mean(near))
            told += 1
    assert told >= 15


def test_of_many_classes_a_shuffled_run_is_found() -> None:
    """More classes than the root of what 16 bits hold, in which labels are kept."""
    rng = np.random.default_rng(3)
    y = np.repeat(np.arange(300), 10)
    guess = rng.integers(300, size=(6, len(y)))
    label = np.where(rng.random(guess.shape) < 0.6, y, guess).astype(np.uint16)
    assert apart(label, y)[0] == []
    label[4] = rng.permutation(label[4])
    assert apart(label, y)[0] == [4]


def alike(label: Any, y: Any, runs: list[int], seed: int) -> Any:
    """Shuffle the points of these runs within each class, in one order for all of them."""
    rng, moved = np.random.default_rng([seed, 7]), label.copy()
    for each in np.unique(y):
        at = np.flatnonzero(y == each)
        moved[np.ix_(runs, at)] = label[np.ix_(runs, rng.permutation(at))]
    return moved


def test_runs_that_are_shuffled_alike_are_apart_from_a_majority() -> None:
    told = {"few": 0, "most of the new": 0, "all the new": 0}
    for seed in range(20):
        y, label = labelled(9, 600, seed=seed)
        for kept in (0, 1, 3, 8):
            assert apart(label, y, kept)[0] == []
        few = alike(label, y, [1, 5, 6], seed)
        told["few"] += apart(few, y)[0] == [1, 5, 6]
        assert apart(few[[0, 1, 2, 5]], y)[0] in ([], [1], [3])  # two against two tell nothing sure
        added = alike(label, y, [4, 5, 6, 7, 8], seed)
        told["most of the new"] += apart(added, y, 3)[0] == [4, 5, 6, 7, 8]
        every = alike(label, y, [*range(3, 9)], seed)
        told["all the new"] += apart(every, y, 3)[0] == [*range(3, 9)]
        assert apart(alike(label, y, [0, 1, 2], seed), y, 8)[0] == []  # those there are not judged
    assert min(told.values()) >= 15, told


def test_runs_that_are_added_are_compared_with_those_that_are_there(tmp_path: Path) -> None:
    y, label = labelled(7, 600)
    moved = alike(label, y, [4, 5], 0)
    for run in range(7):
        np.savez(tmp_path / f"right_{run}.npz", labels=label[[run]], y_true=y)
        np.savez(tmp_path / f"moved_{run}.npz", labels=moved[[run]], y_true=y)
    first = [tmp_path / f"right_{run}.npz" for run in range(4)]
    added = {
        name: [tmp_path / f"{name}_{run}.npz" for run in (4, 5)] for name in ("right", "moved")
    }
    sweep = tmp_path / "sweep"
    code, said = said_of(*first, "--out", sweep, "--dataset", "d")
    assert (code, "another order" in said) == (0, False)
    for name, files in added.items():
        code, said = said_of(sweep, *files)
        assert (code, "in another order" in said) == (0, name == "moved"), said
    assert "moved_4.npz, moved_5.npz disagree with the runs that are there" in said
    Sweep(sweep).analyze()
    for verb in ("answers", "report"):
        assert inside(verb, sweep)[0] == 0
    (headline,) = [one for one in inside("answers", sweep)[1].splitlines() if "moved_4" in one]
    assert "as if their points were in another order" in headline
    page = Sweep(sweep).paths.report.read_text()
    assert "The import warned: imported: moved_4.npz, moved_5.npz disagree" in page
    file = Sweep(sweep).paths.sweep_file
    lines = file.read_text().splitlines(keepends=True)
    assert sum(line.startswith("# import warned: imported: moved_4.npz") for line in lines) == 1
    file.write_text("".join(line for line in lines if "import warned" not in line))
    assert "moved_4" not in inside("answers", sweep)[1]


def test_the_warning_on_the_order_of_classes_is_repeated_with_the_results(tmp_path: Path) -> None:
    given, y = scores(n_runs=3)
    np.savez(tmp_path / "a.npz", scores=given[..., [1, 2, 0]], y_true=y)
    code, said = said_of(tmp_path / "a.npz", "--out", tmp_path / "sweep")
    assert (code, "with its classes in the order" in said) == (0, True)
    Sweep(tmp_path / "sweep").analyze()
    said = " ".join(inside("answers", tmp_path / "sweep")[1].split())
    assert said.count("with its classes in the order") == 1
    why = " ".join(inside("answers", tmp_path / "sweep", "--why")[1].split())
    assert "--classes, gives it. Once it is settled, take this line out of sweep.toml." in why


def test_a_file_of_any_name_may_be_warned_of(tmp_path: Path) -> None:
    given, y = scores(n_runs=3)
    file = tmp_path / "a\x01\n\udcff.npz"
    np.savez(file, scores=given[..., [1, 2, 0]], y_true=y)
    with pytest.warns(match="recall"):  # caught, as pytest cannot pass on such a name
        sweep = Sweep.import_predictions([file], tmp_path / "sweep", dataset="d")
    assert sweep.survey().counts["done"] == 3
    (line,) = [one for one in sweep.paths.sweep_file.read_text().splitlines() if "warned" in one]
    assert line.startswith("# import warned: a .npz: imported has the mean recall")
    assert runs_of(sweep).height == 3
