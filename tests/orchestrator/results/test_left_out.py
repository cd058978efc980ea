"""A collapsed run: named, left out on request, and what holds without it."""

from __future__ import annotations

import csv
import json

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from manyseed import Sweep
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing import import_predictions
from tests.orchestrator.conftest import inside

N_TEST, RUNS, BAD = 600, 8, 5


def with_wrong(
    rng: np.random.Generator, y_true: NDArray[np.int64], wrong: int
) -> NDArray[np.int64]:
    at = rng.permutation(y_true.size)[:wrong]
    label = y_true.copy()
    label[at] = (label[at] + 1) % 3
    return label


@pytest.fixture(scope="module")
def collapsed(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """Two classifiers; run 5 of the second predicts one class for all points."""
    folder, rng = tmp_path_factory.mktemp("collapsed"), np.random.default_rng(1)
    y_true = rng.integers(0, 3, N_TEST)
    rows = []
    for name, wrong in (("a", 60), ("b", 90)):
        for run in range(RUNS):
            label = with_wrong(rng, y_true, wrong + int(rng.integers(-6, 7)))
            if (name, run) == ("b", BAD):
                label = np.zeros_like(y_true)
            rows += [
                (name, run, n, t, p) for n, (t, p) in enumerate(zip(y_true, label, strict=True))
            ]
    with (folder / "runs.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["classifier", "run", "row_id", "truth", "prediction"])
        writer.writerows(rows)
    import_predictions(
        [folder / "runs.csv"], folder / "sweep", columns={"classifier": "classifier"}
    )
    sweep = Sweep(folder / "sweep")
    sweep.analyze(workers=1)
    return sweep


def accuracies(sweep: Sweep, cell: int) -> NDArray[np.float64]:
    runs = sweep.results["runs"].filter(cell=cell)
    return runs.sort("run_index")["accuracy"].cast(pl.Float64).to_numpy()


def test_a_comparison_leaves_runs_out_and_says_so(collapsed: Sweep) -> None:
    (every,), (kept,) = collapsed.compare(), collapsed.compare(without=[f"1:0:{BAD}"])
    others = np.delete(accuracies(collapsed, 1), BAD)
    assert kept.result.difference == pytest.approx(accuracies(collapsed, 0).mean() - others.mean())
    assert (kept.result.runs_a, kept.result.runs_b) == (RUNS, RUNS - 1)
    assert not kept.unlike
    assert every.without_unlike == kept.result
    assert every.result.seeds[0] < 0 < kept.result.seeds[0]
    code, text = inside("compare", collapsed.directory, "--without", f"1:0:{BAD}")
    assert code == 0
    assert text.startswith("accuracy, 1 comparison\n\na > b")
    assert f"Left out: run 1:0:{BAD}; report that, too." in text


def test_the_verdict_without_it_stands_beside_that_with_it(collapsed: Sweep) -> None:
    text = " ".join(inside("compare", collapsed.directory)[1].split())
    assert "a, b: not told" in text
    assert f"counted: run 1:0:{BAD} (" in text
    assert f"; to leave it out: --without 1:0:{BAD} Without it: a better, +0.0" in text
    assert f'without=["1:0:{BAD}"]' in repr(collapsed.compare())


def test_how_many_seeds_names_it_and_answers_without_it(collapsed: Sweep) -> None:
    text = inside("howmany", collapsed.directory)[1]
    assert f"counted: run 1:0:{BAD} (" in text
    every, kept = collapsed.howmany(), collapsed.howmany(without=[f"1:0:{BAD}"])
    assert [len(one.unlike) for one in every] == [0, 1]
    assert not any(one.unlike for one in kept)
    assert every[0].answers[:2] == kept[0].answers[:2]
    assert kept[1].answers[0].runs < every[1].answers[0].runs / 10
    assert kept[1].answers[0].made == RUNS - 1
    assert kept[1].answers[1].made == RUNS - 1  # of pairs
    told = inside("howmany", collapsed.directory, "--without", f"1:0:{BAD}")[1]
    assert f"Left out: run 1:0:{BAD}" in told


def test_answers_propose_the_command_and_have_both_deviations(collapsed: Sweep) -> None:
    text = inside("answers", collapsed.directory)[1]
    proposed = f"Without it: manyseed compare {collapsed.directory} --without 1:0:{BAD}\n"
    assert proposed in text
    values = accuracies(collapsed, 1)
    why = " ".join(inside("answers", collapsed.directory, "--why")[1].split())
    with_it, without = values.std(ddof=1), np.delete(values, BAD).std(ddof=1)
    assert f"in that repeat is {with_it:.4f} with and {without:.4f} without it." in why


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("compare", "--without", "1:0:99"), "the plan has no such run"),
        (("howmany", "--without", "1:5"), "not of the form CELL:REPEAT:RUN"),
        (("compare", "--without", "1:0:5", "--metric", "churn_mean"), "compares each run with"),
        (("compare", "--alike", "--without", "1:0:5"), "does not apply with --alike"),
    ],
)
def test_what_cannot_be_left_out_is_refused(
    collapsed: Sweep, asked: tuple[str, ...], said: str
) -> None:
    verb, *options = asked
    code, text = inside(verb, collapsed.directory, *options)
    assert code == 2
    assert said in text
    assert "Traceback" not in text


def test_an_address_is_named_as_the_argument_in_python(collapsed: Sweep) -> None:
    with pytest.raises(UserError, match="without"):
        collapsed.compare(without=["x"])


def test_json_has_both(collapsed: Sweep) -> None:
    found = json.loads(inside("compare", collapsed.directory, "--json")[1])["comparisons"]
    assert found[0]["without_unlike"]["runs_b"] == RUNS - 1


def test_points_say_that_it_is_counted(collapsed: Sweep) -> None:
    text = " ".join(inside("answers", collapsed.directory, "points")[1].split())
    told = f"Counted, though unlike the others in accuracy: run 1:0:{BAD}. Points where only such"
    assert text.count(told) == 1
    only = collapsed.answers("points", where="classifier = 'a'")
    assert "Counted, though" not in " ".join(one.cannot_tell for one in only)
