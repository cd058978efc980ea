"""A crossed sweep from file to answers: trained, analysed, asked and drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.analysis.options import Options
from manyseed.jobs.run import crossing
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.results.answers.until import checked, preview
from tests.orchestrator.conftest import inside, train, write

TEXT = """
name    = "crossed"
seed    = 5
repeats = 1
runs    = 16

[[grid]]
dataset    = ["sklearn:wine"]
classifier = ["mlp"]
vary       = ["init*batch", "init+batch"]

[classifier.mlp]
epochs  = 2
hparams = { width1 = 32, width2 = 32 }
"""
K = 4


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """An analysed sweep; tests only read it."""
    folder = tmp_path_factory.mktemp("crossed")
    made = train(write(folder / "crossed.toml", TEXT), folder / "sweep")
    made.analyze(Options(resamples=4), workers=1)
    return made


def accuracy(sweep: Sweep, vary: str) -> dict[int, float]:
    cells = sweep.results["cells"].filter(vary=vary)
    runs = sweep.results["runs"].join(cells.select("cell"), on="cell", how="semi")
    return dict(runs.select("run_index", "accuracy").rows())


def test_the_diagonal_holds_the_runs_of_the_cell_that_is_not_crossed(sweep: Sweep) -> None:
    crossed, plain = accuracy(sweep, "init*batch"), accuracy(sweep, "init+batch")
    assert len(crossed) == len(plain) == K**2
    for run, value in crossed.items():
        init, batch = crossing(2, run)
        if init == batch:
            assert value == plain[init]
    assert len(set(crossed.values())) > K


def test_the_variance_is_split_by_source_and_interaction(sweep: Sweep) -> None:
    code, said = inside("answers", sweep.directory, "variance", "--why")
    assert code == 0
    assert "interaction of init × batch, beyond what each does by itself" in said
    rows = sweep.results["variance"].filter(vary="init*batch", metric="accuracy")
    known = accuracy(sweep, "init*batch")
    field = np.empty((K, K))
    for run, value in known.items():
        field[crossing(2, run)] = value
    rest = field - field.mean(axis=0) - field.mean(axis=1, keepdims=True) + field.mean()
    together = float(np.square(rest).sum()) / (K - 1) ** 2
    assert rows.filter(part="interaction")["variance"].item() == pytest.approx(together)


def test_flips_of_crossed_runs_are_split_by_source(sweep: Sweep) -> None:
    code, said = inside("answers", sweep.directory, "points", "--why")
    assert code == 0
    pairs = sweep.results["pairs"].filter(vary="init*batch")
    churn: dict[tuple[bool, ...], list[float]] = {}
    for i, j, value in pairs.select("run_i", "run_j", "churn").rows():
        places = zip(crossing(2, i), crossing(2, j), strict=True)
        churn.setdefault(tuple(a != b for a, b in places), []).append(value)
    whole = np.mean(churn[True, True])
    for source, of in (("init", (True, False)), ("batch", (False, True))):
        assert f"{source} alone {np.mean(churn[of]) / whole:.0%}" in said
    assert "Of the flips seen of mlp on sklearn:wine, init*batch: " in said


def test_howmany_answers_in_crosses_and_says_what_it_cannot(sweep: Sweep) -> None:
    where = ("--where", "vary = 'init*batch'")
    code, said = inside("howmany", sweep.directory, "--why", "--accuracy", "0.1", *where)
    assert code == 0
    assert "a full cross of" in said
    assert "it cannot be told for crossed cells" in said
    assert "crossed runs share values" in said


def test_blocks_of_runs_are_not_added_to_a_cross(sweep: Sweep) -> None:
    with pytest.raises(UserError, match="cross incomplete"):
        preview(sweep.paths, 0.01)
    assert checked(0.01, 0.95, 10, 200)
    answers, _ = preview(sweep.paths, 0.01, where="vary NOT LIKE '%*%'")
    assert len(answers) == 1


def test_a_crossed_cell_is_compared_by_the_error_of_its_sources(sweep: Sweep) -> None:
    [one] = sweep.compare(by="vary")
    assert one.streams == ()
    assert one.result.better_seeds is None
    assert one.result.seeds is not None


def test_means_of_crossed_runs_on_one_test_set_have_no_interval(sweep: Sweep) -> None:
    found = sweep.query(columns=["vary", "accuracy_mean"], by=["vary"])
    known = dict(found.select("vary", "accuracy_mean_ci_low").rows())
    assert known["init+batch"] is not None
    assert known["init*batch"] is None


def test_runs_are_drawn_by_the_values_of_their_sources(sweep: Sweep, tmp_path: Path) -> None:
    [plot] = sweep.plot.all("crossed")
    fields = plot.figure.axes[0].images[0].get_array()
    known = accuracy(sweep, "init*batch")
    for run, value in known.items():
        assert fields[crossing(2, run)] == pytest.approx(value)
    assert plot.n == K**2
    assert plot.data is not None
    runs = sweep.results["runs"].filter(pl.col("vary") == "init*batch")
    assert plot.data["alpha_hat"].null_count() in (0, plot.data.height)
    assert plot.data["accuracy"].sum() == pytest.approx(runs["accuracy"].sum())
    code, _ = inside("plot", sweep.directory, "crossed", "-o", tmp_path / "crossed.pdf")
    assert code == 0


def test_a_cross_grows_by_its_next_values(sweep: Sweep, tmp_path: Path) -> None:
    file = write(tmp_path / "crossed.toml", TEXT.replace("runs    = 16", "runs    = 4"))
    small = train(file, tmp_path / "sweep")
    small.analyze(Options(resamples=4), workers=1)
    before, whole = accuracy(small, "init*batch"), accuracy(sweep, "init*batch")
    assert before == {run: whole[run] for run in range(4)}


def test_answers_are_of_all_crossed_runs_as_howmany_and_variance_are(sweep: Sweep) -> None:
    where = "vary = 'init*batch'"
    rows = sweep.results["variance"].filter(vary="init*batch", metric="accuracy", part="all")
    sd, low, high = (rows[name].item() ** 0.5 for name in ("variance", "low", "high"))
    found = "\n".join(sweep.answers(where=where))
    assert f"sd of accuracy on this test set: mlp {sd:.4f} ({low:.4f} to {high:.4f})." in found
    (group,) = sweep.howmany(where=where)
    needed = group.answers[0].runs
    k = round(needed**0.5)
    takes = f"Accuracy to ± 0.005 takes {needed:,} runs, crossed {k:,} × {k:,}"
    assert f"{takes}; each test set has 16." in found
    both = "\n".join(map(str, sweep.answers(why=True)))
    assert "16 of init*batch" in both
    assert "16 of init+batch" in both


def test_why_sources_have_no_answer_is_told_in_place_of_every_reason(sweep: Sweep) -> None:
    code, said = inside("answers", sweep.directory, "sources")
    assert code == 0
    assert "These results allow no answers" not in said
    told = ("by itself", "Too few runs: by itself", "Nothing differs", "Test sets vary")
    assert any(text in said for text in told), said
