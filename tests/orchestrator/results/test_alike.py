"""Are A's runs like B's: from arrays, from sweeps, from the shell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

import manyseed
from manyseed import Sweep, UserError
from manyseed.analysis.options import Options
from tests.analysis.planted import two_groups
from tests.orchestrator.conftest import command

SHARES = {"clean": 0.0, "dirty": 0.3}


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sweep]:
    """Two imported sweeps with one test set; A's runs of `dirty` are contaminated."""
    folder = tmp_path_factory.mktemp("alike")
    y = np.arange(3000) % 2
    found = {}
    for place, (name, share) in enumerate(SHARES.items()):
        gaps, _ = two_groups((5, 2), 3000, share, seed=place)
        scores = np.stack([np.zeros_like(gaps), gaps + 2 * y - 1], axis=-1)
        made = Sweep.from_predictions(
            {"scores": scores, "y_true": y}, folder / name, dataset="d", classifier="c"
        )
        made.analyze(Options(resamples=4))
        found[name] = made
    return found


def scores(classes: int, runs: int = 4, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(runs, 900, classes)) + 2 * np.eye(classes)[np.arange(900) % classes]


def test_from_arrays() -> None:
    y = np.arange(900) % 3
    found = manyseed.alpha_hat(scores(3), scores(3, seed=1), y, resamples=10, bootstrap=10)
    assert found.alpha_hat < 0.01
    assert found.words.startswith("Whether A's runs are like B's cannot be told")  # δ is 0.11
    two = scores(2)
    gap = two[..., 1] - two[..., 0]
    options = {"resamples": 10, "bootstrap": 10}
    assert manyseed.alpha_hat(two, two + 60 * np.eye(2)[0], **options) == manyseed.alpha_hat(
        gap, gap - 60, **options
    )
    consistency = manyseed.error_consistency(scores(3), scores(3, seed=1), y)
    assert consistency == manyseed.error_consistency(
        scores(3).argmax(axis=2), scores(3, seed=1).argmax(axis=2), y
    )
    assert 0 < consistency.low < consistency.ec_local < consistency.high < 1


Y = np.arange(900) % 3
LABELS = scores(3).argmax(axis=2)
PROBABILITIES = softmax(scores(3), axis=2)


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        ("alpha_hat", (scores(3), scores(3)), "y: must be the true classes of the 900"),
        ("alpha_hat", (scores(2), scores(2)[:1]), "must have 2 runs or more, as a reference"),
        ("alpha_hat", (scores(2), scores(2)[:, :9]), "must have the test points of a: 900, not 9"),
        ("alpha_hat", (np.zeros(3), scores(2)), "must be margins (run, point) or scores"),
        ("alpha_hat", (np.full((2, 9), np.nan), np.zeros((2, 9))), "leave out runs with NaN"),
        ("alpha_hat", (scores(3)[..., :2], scores(3), Y), "y = 2: a has scores of 2 classes"),
        ("alpha_hat", (scores(4), scores(3), Y), "b = 3: a has scores of 4 classes"),
        ("alpha_hat", (scores(3), scores(3)[..., :2], Y), "y = 2: b has scores of 2 classes"),
        ("alpha_hat", (scores(2), scores(2), Y), "y = 2: a has scores of 2 classes"),
        ("alpha_hat", (scores(3)[..., 0], scores(3), Y), "y = 2: a has scores of 2 classes"),
        ("alpha_hat", (scores(3)[..., 0], scores(3)[..., 0], Y % 2 - 1), "y = -1: true classes"),
        ("alpha_hat", (LABELS, LABELS), "must be logit gaps or scores, not labels"),
        ("alpha_hat", (PROBABILITIES, scores(3), Y), "b: must be probabilities, as a are"),
        ("alpha_hat", (scores(3), PROBABILITIES, Y), "a: must be probabilities, as b are"),
        ("error_consistency", (LABELS, LABELS, Y - 1), "y = -1: true classes are whole numbers"),
        ("error_consistency", (LABELS, LABELS, Y + 1), "a: must count classes as y does: from 1"),
        ("error_consistency", (LABELS, LABELS + 1, Y), "b: must count classes as y does: from 0"),
        ("error_consistency", (scores(3), scores(3), Y + 1), "y = 3: a has scores of 3 classes"),
        ("error_consistency", (scores(3), scores(4), Y), "b = 4: a has scores of 3 classes"),
        ("error_consistency", (scores(2)[..., 0], scores(2), [0]), "must be labels (run, point)"),
        ("error_consistency", (scores(2), scores(2), [0.5]), "the true classes of the 900 points"),
    ],
)
def test_what_cannot_be_compared_is_refused(function, arguments, words) -> None:
    with pytest.raises(UserError) as refused:
        getattr(manyseed, function)(*arguments)
    assert words in str(refused.value)


def test_of_sweeps(sweeps: dict[str, Sweep], tmp_path: Path) -> None:
    (dirty,) = sweeps["dirty"].alike(sweeps["clean"])
    assert dirty.alpha_hat.alike is False
    assert dirty.alpha_hat.alpha_hat == pytest.approx(0.26, abs=0.04)
    assert dirty.alpha_hat.n_side == 1500
    gaps = [np.asarray(one.runs("d", "c").margin.isel(epoch=-1)) for one in sweeps.values()]
    again = manyseed.alpha_hat(gaps[1], gaps[0])
    assert again.alpha_hat == pytest.approx(dirty.alpha_hat.alpha_hat, abs=0.02)
    assert dirty.error_consistency.n_test == 3000
    clean, other = (str(sweeps[name].paths.directory) for name in SHARES)
    shown = command("compare", other, clean, "--alike")
    assert "A's runs are unlike B's: α̂ = 0.2" in shown.stdout
    assert "Local error consistency between A and B is" in shown.stdout
    found = json.loads(command("compare", other, clean, "--alike", "--json").stdout)
    assert found["alike"][0]["alpha_hat"]["delta"] == dirty.alpha_hat.delta
    hint = command("compare", other, clean, "-m", "alpha_hat").stdout
    assert "α̂ of each side is among its own runs" in hint


def test_what_varies_between_imported_runs_is_not_said(sweeps: dict[str, Sweep]) -> None:
    (split,) = sweeps["clean"].variance()
    assert split.words["Accuracy"][0].startswith(
        "between runs (what varies between imported ones is unknown): sd 0.0"
    )
    assert sweeps["clean"].results["cells"]["draws_from"].to_list() == ["unknown"]


def test_compare_without_a_sweep_says_what_it_needs() -> None:
    with pytest.raises(UserError, match="needs an analysed sweep, or its directory"):
        manyseed.compare()


@pytest.mark.parametrize("labelled", ["A and B", "A", "B"])
def test_labels_alone_give_error_consistency_and_say_what_lacks(
    labelled: str, tmp_path: Path
) -> None:
    given = [scores(3), scores(3, seed=1)]
    made = []
    for name, one in zip("AB", given, strict=True):
        held = {"labels": one.argmax(axis=2)} if name in labelled.split() else {"scores": one}
        made.append(
            Sweep.from_predictions(
                {**held, "y_true": Y}, tmp_path / name, dataset="d", classifier="c"
            )
        )
        made[-1].analyze()
    (found,) = made[0].alike(made[1])
    direct = manyseed.error_consistency(*(one.argmax(axis=2) for one in given), Y)
    assert found.error_consistency == direct
    assert found.words == [
        direct.words,
        f"α̂ is not computed: it needs scores, and of {labelled} only labels are kept.",
    ]


@pytest.fixture(scope="module")
def of_three(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """Two classifiers of four runs each on three test sets of 300 points."""
    rng = np.random.default_rng(0)
    y = np.stack([rng.permutation(np.arange(300) % 3) for _ in range(3)])
    repeats = np.repeat([0, 1, 2], 4)
    made = {}
    for name in ("p", "q"):
        found = rng.normal(size=(12, 300, 3)) + 1.5 * np.eye(3)[y[repeats]]
        made[name] = {"scores": found, "y_true": y, "repeat": repeats, "run": np.tile(range(4), 3)}
    return Sweep.from_predictions(made, tmp_path_factory.mktemp("three") / "s", dataset="d")


def test_runs_of_a_sweep_are_compared_on_their_own_test_sets(of_three: Sweep) -> None:
    p, q = (of_three.runs("d", name).isel(epoch=-1) for name in "pq")
    found = manyseed.error_consistency(p.label, q.label, p.y_true)
    alone = [
        manyseed.error_consistency(
            *(one.label.isel(run=one.repeat_index == repeat) for one in (p, q)),
            p.y_true.isel(run=int(4 * repeat)),
        )
        for repeat in range(3)
    ]
    assert found.ec_local == pytest.approx(np.mean([one.ec_local for one in alone]))
    options = {"resamples": 5, "bootstrap": 10}
    alpha = manyseed.alpha_hat(p.score, q.score, p.y_true, **options)
    assert (alpha.runs_a, alpha.runs_b) == (4, 4)


@pytest.mark.parametrize("function", [manyseed.alpha_hat, manyseed.error_consistency])
def test_test_sets_are_never_mixed(of_three: Sweep, function: Any) -> None:
    p, q = (of_three.runs("d", name).isel(epoch=-1) for name in "pq")
    a, b = (p.score, q.score)
    with pytest.raises(UserError, match=r"of 3 test sets: give those of each of A's runs"):
        function(a, b, p.y_true[0])
    with pytest.raises(UserError, match="does not say which test sets its runs are of"):
        function(a, b.to_numpy(), p.y_true)
    with pytest.raises(UserError, match="runs have other true classes"):
        function(a.to_numpy(), b.to_numpy(), p.y_true.to_numpy())
    with pytest.raises(UserError, match=r"must have the runs first: \(run, point\)"):
        function(a.transpose(), b, p.y_true)
    with pytest.raises(UserError, match=r"must have the runs first: \(run, point\)"):
        function(a, b[0], p.y_true)
    with pytest.raises(UserError, match="no runs of a's test sets"):
        function(a[:4], b[4:], p.y_true[:4])
    one = {"resamples": 5, "bootstrap": 10} if function is manyseed.alpha_hat else {}
    assert function(a[:4], b[:4], p.y_true[:4], **one) == function(
        a[:4].to_numpy(), b[:4].to_numpy(), p.y_true[0].to_numpy(), **one
    )
