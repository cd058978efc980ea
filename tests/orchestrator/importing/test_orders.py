"""Whether predictions would be far better with their classes in another order."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from manyseed import Sweep
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing.classes import in_order, require_one_order
from manyseed.orchestrator.importing.orders import Order, apart, better_order, lone_orders
from tests.orchestrator.conftest import inside

NAMES = np.array(["ant", "bee", "cat"])


def scores(n_runs: int = 4, n: int = 192, strength: float = 1.2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=n)
    return rng.normal(size=(n_runs, n, 3)) + strength * np.eye(3)[y], y


@pytest.mark.parametrize("order", [[2, 1, 0], [1, 2, 0]])
def test_scores_in_another_order_than_the_classes_are_told(
    tmp_path: Path, order: list[int]
) -> None:
    given, y = scores()
    file = tmp_path / "cnn.npz"
    np.savez(file, scores=np.ascontiguousarray(given[:, :, order]), y_true=y, class_names=NAMES)
    code, said = inside("import", file, "--out", tmp_path / "sweep")
    said = " ".join(said.split())
    assert code == 0
    assert f"with its classes in the order {', '.join(NAMES[order])}." in said
    with pytest.warns(UserWarning, match="in the order"):
        Sweep(tmp_path / "sweep").add_predictions(
            {"scores": given[:1, :, order] + 1e-3, "y_true": y, "class_names": NAMES, "run": [9]}
        )
    # the order that is told mends it
    np.savez(
        file, scores=np.ascontiguousarray(given[:, :, order]), y_true=NAMES[y],
        class_names=NAMES[order],
    )  # fmt: skip
    code, said = inside("import", file, "--out", tmp_path / "mended")
    assert (code, "in the order" in said) == (0, False)


def test_one_run_that_speaks_against_it_is_enough(tmp_path: Path) -> None:
    given, y = scores()
    mixed = given[:, :, [2, 1, 0]].copy()
    mixed[1] = given[1]
    file = tmp_path / "cnn.npz"
    np.savez(file, scores=mixed, y_true=y, class_names=NAMES)
    code, said = inside("import", file, "--out", tmp_path / "sweep")
    assert (code, "in the order" in said) == (0, False)


def in_another_order(given: np.ndarray, form: str) -> dict[str, np.ndarray]:
    """Return entries of runs of which the last but one is turned around."""
    p, lone = np.exp(given) / np.exp(given).sum(axis=2, keepdims=True), len(given) - 2
    held = {"labels": given.argmax(axis=2), "probabilities": p}.get(form, given).copy()
    if form == "labels":
        held[lone] = given.shape[2] - 1 - held[lone]
    elif form == "points":
        held[lone] = held[lone, ::-1]
    else:
        held[lone] = held[lone, :, ::-1]
    return {"labels" if form == "labels" else "scores": held}


@pytest.mark.parametrize("n_runs", [3, 6, 30])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("form", ["scores", "probabilities", "labels", "points"])
def test_one_run_in_another_order_is_named(
    tmp_path: Path, form: str, n_classes: int, n_runs: int
) -> None:
    rng = np.random.default_rng(7)
    y = rng.integers(n_classes, size=200)
    given = rng.normal(size=(n_runs, 200, n_classes)) + 2 * np.eye(n_classes)[y]
    option = ["--probabilities"] if form == "probabilities" else []
    file, names = tmp_path / "cnn.npz", NAMES[:n_classes]
    np.savez(file, **in_another_order(given, form), y_true=y, class_names=names)
    code, said = inside("import", file, "--out", tmp_path / "sweep", *option)
    said = " ".join(said.split())
    order = f"its classes in the order {', '.join(names[::-1])}."
    order = "its points from the last to the first." if form == "points" else order
    told = rf"run {n_runs - 2} of cnn.npz has the mean recall 0\.\d+, where other runs have 0\.\d+"
    assert code == 0
    assert re.search(rf"{told}, and would have 0\.\d+ with {re.escape(order)}", said), said
    assert said.count("in another order") == 1
    assert "where other runs have" in (tmp_path / "sweep" / "sweep.toml").read_text()
    np.savez(file, scores=given, y_true=y, class_names=names)
    code, said = inside("import", file, "--out", tmp_path / "right")
    assert (code, "another order" in said) == (0, False)


def test_a_minority_is_in_another_order_and_a_poor_run_is_not() -> None:
    good, other, poor = (0.9, None), (0.1, Order((1, 0), 0.1, 0.9)), (0.1, Order((1, 0), 0.1, 0.7))
    for runs, alone in (
        ([good, other], [1]),
        ([good, other, good, other, good], [1, 3]),
        ([good, other, good, other], []),
        ([other, other, good], []),
        ([good, poor, good, good], []),
        ([other], []),
        ([good, good], []),
        ([], []),
    ):
        assert lone_orders(runs) == alone


def predicted(kind: str, y: np.ndarray, n_classes: int, rng: np.random.Generator) -> np.ndarray:
    n = len(y)
    often = rng.dirichlet(np.full(n_classes, 0.5))
    return {
        "chance": lambda: rng.integers(n_classes, size=n),
        "chance, some classes more often": lambda: rng.choice(n_classes, size=n, p=often),
        "one class": lambda: np.full(n, rng.integers(n_classes)),
        "good": lambda: np.where(rng.random(n) < 0.7, y, rng.integers(n_classes, size=n)),
        "barely better than chance": lambda: np.where(rng.random(n) < 0.1, y, rng.permutation(y)),
    }[kind]()


@pytest.mark.parametrize(
    "kind",
    [
        *("chance", "chance, some classes more often", "one class"),
        *("good", "barely better than chance"),
    ],
)
def test_chance_does_not_speak_for_another_order(kind: str) -> None:
    """Single runs: of 2,000, with few points and many, even and uneven classes."""
    rng, looked_at = np.random.default_rng(1), 0
    for _ in range(2000):
        n_classes = int(rng.integers(2, 8))
        shares = rng.dirichlet(np.full(n_classes, 2.0))
        y = rng.choice(n_classes, size=int(rng.integers(4, 600)), p=shares)
        looked_at += np.bincount(y, minlength=n_classes).min() >= 10
        assert better_order(y, predicted(kind, y, n_classes, rng), n_classes) is None
    assert looked_at > 500


def test_the_order_is_the_one_that_was_planted() -> None:
    rng = np.random.default_rng(2)
    for _ in range(200):
        n_classes = int(rng.integers(2, 8))
        y = rng.integers(n_classes, size=60 * n_classes)
        right = np.where(rng.random(len(y)) < 0.8, y, rng.integers(n_classes, size=len(y)))
        order = rng.permutation(n_classes)  # column j holds the scores of class order[j]
        found = better_order(y, np.argsort(order)[right], n_classes)
        moved = int((order != np.arange(n_classes)).sum())
        if moved == 0:
            assert found is None
        else:
            assert found is not None
            assert found.classes == tuple(order.tolist())
            assert found.better == pytest.approx((right == y).mean(), abs=0.02)


def test_points_in_another_order_are_named_with_what_tells_them_apart(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    y_true, scores = np.arange(40) % 3, generator.normal(size=(40, 3))
    files, tables = [], []
    for seed in range(2):
        rows = generator.permutation(40) if seed else np.arange(40)
        file, table = tmp_path / f"{seed}.npz", tmp_path / f"{seed}.csv"
        given = {"scores": scores[rows], "y_true": y_true[rows]}
        np.savez(file, allow_pickle=False, **given, sample_id=rows)
        lines = [f"im{row:02d},{y_true[row]},{scores[row].argmax()}" for row in rows]
        table.write_text("\n".join(["name,truth,prediction", *lines]) + "\n")
        files.append(file)
        tables.append(table)
    out = ("--dataset", "d", "--out", tmp_path / "sweep")
    code, said = inside("import", *files, *out)
    assert (code, "sample_id: unknown entry" in said) == (2, True)
    assert "--key test_index=sample_id" in said
    code, said = inside("import", *files, *out, "--key", "scores=scores")
    assert code == 2
    assert f"{files[1]}: y_true: has the classes of {files[0]}, in another order" in said
    assert "sort the rows of every file alike, such as by sample_id" in said
    by_id = ("--dataset", "d", "--out", tmp_path / "by-id", "--key", "test_index=sample_id")
    code, said = inside("import", *files, *by_id)
    assert (code, "points of 1 file were put into the order of 0.npz" in said) == (0, True)
    assert "all 2 runs predict the same" in said  # they do, point by point
    code, said = inside("import", *tables, *out)
    assert code == 2
    assert "--columns row_id=name" in said
    assert inside("import", *tables, *out, "--columns", "row_id=name")[0] == 0
    for file in files:
        with np.load(file) as given:
            order = np.argsort(given["sample_id"])
            arrays = {name: given[name][order] for name in ("scores", "y_true")}
        np.savez(file, allow_pickle=False, **arrays)
    assert inside("import", *files, *out[:3], tmp_path / "sorted")[0] == 0


def test_runs_in_other_orders_are_looked_at_in_bounded_memory(tmp_path: Path) -> None:
    """Pairs of classes are counted for a run at a time."""
    rng, n_classes, n_runs = np.random.default_rng(0), 100, 300
    y = np.repeat(np.arange(n_classes), 10)
    label = np.where(rng.random((n_runs, len(y))) < 0.6, y, rng.integers(100, size=len(y)))
    source = {"labels": label.astype(np.uint8), "y_true": y}
    tracemalloc.start()
    Sweep.from_predictions(source, tmp_path / "sweep")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * n_runs * n_classes**2


def test_a_shuffled_run_of_many_points_is_found_in_bounded_memory() -> None:
    rng = np.random.default_rng(0)
    n, runs = 400_000, 12
    y = rng.integers(2, size=n).astype(np.uint16)
    shared = rng.random(n) < 0.1  # points that most runs get wrong
    flips = (shared & (rng.random((runs, n)) < 0.8)) | (rng.random((runs, n)) < 0.02)
    label = np.where(flips, 1 - y, y).astype(np.uint16)
    for each in (0, 1):  # run 5 has its points in another order within true classes
        label[5, y == each] = rng.permutation(label[5, y == each])
    tracemalloc.start()
    found, _ = apart(label, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == [5]
    assert peak < 6 * label.nbytes


def test_digits_of_other_scripts_are_in_one_order_or_refused(tmp_path: Path) -> None:
    assert in_order("٢٠١") == ("٠", "١", "٢")
    require_one_order(in_order("٢٠١"), "y_true", tmp_path)
    with pytest.raises(UserError, match="whose order is not certain"):
        require_one_order(in_order(["٢", "١٠"]), "y_true", tmp_path)
