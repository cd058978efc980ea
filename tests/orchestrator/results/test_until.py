"""A sweep that grows in blocks: what is added, when it stops, and that nothing else changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.analysis.alphahat.resampling import disjoint_halves, generator
from manyseed.analysis.alphahat.trimming import dkw_threshold, smallest_trimming_level
from manyseed.analysis.questions.sequential import Decision, decide
from manyseed.jobs.datasets.info import dataset_id
from manyseed.orchestrator.errors import StillRunning, UserError
from manyseed.orchestrator.importing import import_predictions
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import MARK, grow
from manyseed.orchestrator.results.answers.until import CellEstimate, means, preview, recorded
from manyseed.orchestrator.submissions.requirements import require_code
from tests.orchestrator.conftest import inside, stored, write

SWEEP = """
name    = "grows"
seed    = 3
repeats = 2
runs    = 4

[[grid]]
dataset            = ["cancer"]
classifier         = ["lr-sgd", "xgb"]
train_fraction     = [0.25]
perturb_continuous = ["none", "relative:0.5"]

[[grid]]                # nothing of it varies
dataset    = ["cancer"]
classifier = ["xgb"]

[dataset.cancer]
source = "sklearn:breast_cancer"
"""


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sweep, list, dict, list[str]]:
    """A sweep that grew to ± 0.003 with at most 20 runs; what it held before."""
    folder = tmp_path_factory.mktemp("until")
    sweep = Sweep.plan(write(folder / "grows.toml", SWEEP), folder / "sweep")
    sweep.submit(workers=2)
    sweep.wait()
    sweep.compact()
    before, told = stored(sweep), []
    found = sweep.howmany_until(
        0.003, most=20, workers=2, tell=told.append, where="classifier = 'lr-sgd' OR cell = 4"
    )
    return sweep, found, before, told


@pytest.mark.parametrize(
    ("skewness", "said"),
    [
        (0.2, "up to 26% of further runs may be unlike all of these (95 %)."),
        (-2.7, "but these are skewed (-2.7): with one bad run in ten, it held in 81 to 89 % of"),
    ],
)
def test_what_the_interval_assumes_is_said(skewness: float, said: str) -> None:
    decision = Decision(10, 0.9, 0.89, 0.91, 10, 10, skewness)
    words = CellEstimate(0, "id", "name", 2, 10, decision, "enough").words
    assert "10 runs are enough. The interval assumes roughly normal accuracies" in words
    assert said in words


def test_cells_stop_by_themselves_and_runs_are_only_added(grown) -> None:
    sweep, found, before, told = grown
    assert [one.state for one in found][-1] == "identical"
    planned = dict(Plan.read(sweep.paths).extents.select("cell", "runs").rows())
    assert {planned[cell] for cell in (2, 3)} == {4}  # no one asked for these
    assert planned[4] == 4
    for one in found[:-1]:
        assert one.state in ("enough", "most")
        assert planned[one.cell] == one.planned == one.decision.runs
        if one.state == "enough":
            assert one.decision.half_width <= 0.003 * (1 + 1e-9)
        else:
            assert planned[one.cell] == 20
    assert "2 cells get more runs: up to 10 on each test set." in told
    sweep.compact()
    after = stored(sweep)
    for path, arrays in before.items():
        rows = arrays["status"].shape[0]
        done = arrays["status"] == 1
        for name in ("label", "margin", "crc"):
            np.testing.assert_array_equal(after[path][name][:rows][done], arrays[name][done])


def test_it_decides_by_the_rule_on_means_over_test_sets(grown) -> None:
    sweep, found, _, _ = grown
    for one in found[:-1]:
        runs = sweep.results["runs"].filter(cell=one.cell)
        values = (
            runs.group_by("run_index").agg(pl.col("accuracy").mean()).sort("run_index")["accuracy"]
        )
        n_test = sweep.results["repeats"].filter(cell=one.cell)["n_test"][0]
        expected = decide(values.to_numpy(), 0.003, step=1 / n_test / np.sqrt(2))
        assert one.decision == expected


def test_what_the_user_wrote_stays_and_the_same_command_goes_on(grown) -> None:
    sweep, found, _, _ = grown
    text = sweep.paths.sweep_file.read_text()
    assert text.startswith(SWEEP.rstrip())
    assert text.count(MARK) == 1
    assert text.count("[[grid]]") == 2 + 2
    parts = len(sweep.paths.parts())
    record = recorded(sweep.paths)
    again = sweep.howmany_until(0.003, most=20, workers=1, where="classifier = 'lr-sgd'")
    assert len(sweep.paths.parts()) == parts
    assert [one.decision for one in again] == [one.decision for one in found[:-1]]
    assert record.asked == recorded(sweep.paths).asked
    told = []
    sweep.howmany_until(0.4, most=20, workers=1, where="cell = 0", tell=told.append)
    assert told[0].startswith("Another question was asked before (± 0.003 at 95 %")


def test_a_dry_run_changes_nothing(grown, tmp_path: Path) -> None:
    shutil.copytree(grown[0].directory, tmp_path / "copy")
    sweep = Sweep(tmp_path / "copy")
    held = {file: file.read_bytes() for file in sweep.directory.rglob("*") if file.is_file()}
    code, told = inside(
        "howmany", sweep.directory, "--until", "0.0001", "--most", "100", "--dry-run",
        "--where", "classifier = 'lr-sgd'",
    )  # fmt: skip
    assert code == 0
    assert "more are needed" in told
    assert "runs would be added." in told
    assert "No run" not in told
    code, text = inside(
        "howmany", sweep.directory, "--until", "0.003", "--most", "20", "-n", "--json",
        "--where", "classifier = 'lr-sgd'",
    )  # fmt: skip
    assert code == 0
    value = json.loads(text)
    assert value["runs_added_next"] == 0
    assert {"cell", "cell_id", "state", "decision", "words"} <= set(value["cells"][0])
    assert held == {f: f.read_bytes() for f in sweep.directory.rglob("*") if f.is_file()}
    _, added = preview(sweep.paths, 0.0001, most=100, where="cell = 2")
    assert added == 2 * 6  # to the first look: ten runs of each test set


def test_an_interrupted_one_goes_on(tmp_path: Path) -> None:
    """Planned and not trained: the same runs are the next, none is planned twice."""
    sweep = Sweep.plan(write(tmp_path / "grows.toml", SWEEP), tmp_path / "sweep")
    grow(sweep.paths, {0: 10, 2: 12}, require_code)
    planned = dict(Plan.read(sweep.paths).extents.select("cell", "runs").rows())
    assert planned == {0: 10, 1: 4, 2: 12, 3: 4, 4: 4}
    grow(sweep.paths, {1: 10}, require_code)
    assert dict(Plan.read(sweep.paths).extents.select("cell", "runs").rows())[2] == 12
    with pytest.raises(KeyboardInterrupt):
        _until(sweep, KeyboardInterrupt)
    with pytest.raises(StillRunning, match="40 runs of these cells are not trained yet"):
        _until(sweep, None)
    assert len(sweep.paths.parts()) == 3


def _until(sweep: Sweep, error: type[BaseException] | None) -> None:
    from manyseed.orchestrator.results.answers.until import until

    def train(only: str | None) -> None:
        assert only == "cell BETWEEN 0 AND 1"
        if error:
            raise error

    until(sweep.paths, 0.01, train=train, analyze=sweep.analyze, where="cell < 2")


def test_what_has_no_meaning_is_refused(tmp_path: Path) -> None:
    sweep = Sweep.plan(write(tmp_path / "grows.toml", SWEEP), tmp_path / "sweep")
    for options, said in (
        ({"half_width": 0.0}, "half_width = 0.0"),
        ({"half_width": 0.5}, "half_width = 0.5: must be above 0 and below 0.5"),
        ({"half_width": 0.01, "most": 5}, "must be a whole number from 10 to 60000"),
        ({"half_width": 0.01, "block": 0}, "must be a whole number from 1 to 60000"),
        ({"half_width": 0.01, "confidence": 1.5}, "confidence = 1.5"),
        ({"half_width": 0.01, "where": "cell = 77"}, "no cell meets"),
    ):
        with pytest.raises(UserError, match=said):
            sweep.howmany_until(**options)
    assert len(sweep.paths.parts()) == 1
    assert inside("howmany", sweep.directory, "--until", "2")[0] == 2
    assert inside("howmany", sweep.directory, "--dry-run")[0] == 2
    sweep.paths.sweep_file.write_text(SWEEP.replace("repeats = 2", "repeats = 3"))
    with pytest.raises(UserError, match="asks for runs that are not planned yet"):
        grow(sweep.paths, {0: 10}, require_code)
    y_true = np.tile([0, 1], 20)
    np.savez(tmp_path / "a.npz", scores=np.full((3, 40), 2.5), y_true=y_true)
    import_predictions([tmp_path / "a.npz"], tmp_path / "imported")
    with pytest.raises(UserError, match="holds imported predictions"):
        Sweep(tmp_path / "imported").howmany_until(0.01)


def test_runs_that_lack_end_the_sequence() -> None:
    """A mean takes every test set, and no run is looked at before those with smaller numbers."""
    runs = pl.DataFrame(
        {
            "repeat_index": [0, 1, 0, 1, 0, 0, 1],
            "run_index": [0, 0, 1, 1, 2, 3, 3],
            "accuracy": [0.5, 0.7, 0.6, 0.8, 0.9, 0.1, 0.1],
        }
    )
    assert means(runs, 2) == pytest.approx([0.6, 0.7])


ALIKE = """
name    = "alike"
seed    = 3
repeats = 1
runs    = 4

[[grid]]
dataset        = ["blobs"]
classifier     = ["lr-sgd"]
train_fraction = [0.5]

[[grid]]                # nothing of it varies
dataset    = ["blobs"]
classifier = ["xgb"]

[dataset.blobs]
source  = "synthetic:gaussian"
n_samples = 800
test    = 0.5

[analysis]
resamples = 4
"""


def test_a_cell_grows_until_all_ensembles_are_close(tmp_path: Path) -> None:
    """RKS, section V-A, as a rule for stopping; the decision equals one from its own draws."""
    sweep = Sweep.plan(write(tmp_path / "alike.toml", ALIKE), tmp_path / "sweep")
    told: list[str] = []
    found = sweep.howmany_until(0.25, metric="alpha_hat", most=40, workers=2, tell=told.append)
    assert [one.state for one in found] == ["enough", "identical"]
    (grown, same) = found
    assert grown.planned == grown.decision.runs
    assert same.planned == 4
    assert f"{grown.decision.runs} runs are enough. At least 9" in grown.words
    (of_cell,) = sweep.howmany(where="cell = 0")
    each = sweep.results["ensemble_draws"]
    assert (each.filter(pl.col("size") >= grown.decision.size)["alpha_hat"] <= 0.25).all()
    smaller = each.filter(pl.col("size") < grown.decision.size).group_by("size")
    assert (smaller.agg(pl.col("alpha_hat").max())["alpha_hat"] > 0.25).tail(1).all()
    (different,) = of_cell.ensembles.filter(size=grown.decision.size)["distinct"]
    look = (grown.decision.runs - 10) // 10 + 1
    assert grown.decision.share == pytest.approx((0.05 / look / (look + 1)) ** (1 / different))
    assert recorded(sweep.paths).asked.metric == "alpha_hat"
    # a level below what the test set resolves cannot be told: nothing is trained
    parts = len(sweep.paths.parts())
    (untold, _) = sweep.howmany_until(0.001, metric="alpha_hat", most=40, workers=2)
    assert untold.state == "untold"
    assert "test points per side; about" in untold.words
    assert len(sweep.paths.parts()) == parts
    code, text = inside(
        "howmany", sweep.directory, "--until", "0.25", "--metric", "alpha_hat", "-n", "--json"
    )
    assert code == 0
    assert json.loads(text)["cells"][0]["decision"]["size"] == grown.decision.size
    for options, said in (
        ({"half_width": 1.5, "metric": "alpha_hat"}, "above 0 and below 1"),
        ({"half_width": 0.1, "metric": "churn"}, "accuracy"),
    ):
        with pytest.raises(UserError, match=said):
            sweep.howmany_until(**options)


def test_a_cell_grows_until_its_mean_alpha_hat_is_known(tmp_path: Path) -> None:
    """RKS, section V-A, of single runs: blocks are compared within, beside a loop over them."""
    text = ALIKE.replace("repeats = 1", "repeats = 2").replace("resamples = 4", "resamples = 3")
    text = text.replace("[0.5]", "[20]")
    sweep = Sweep.plan(write(tmp_path / "mean.toml", text), tmp_path / "sweep")
    told: list[str] = []
    asked = {"metric": "alpha_hat_mean", "block": 3}
    found = sweep.howmany_until(0.0148, most=42, workers=2, tell=told.append, **asked)
    (grown, same) = found
    assert same.state == "identical"
    assert grown.state == "enough"
    assert grown.planned == grown.decision.runs > 24
    assert "up to 24 on each test set" in told[0]
    runs = sweep.runs("blobs", "lr-sgd")
    finished = sweep.results["runs"].filter(cell=0)
    n_side, n_blocks = 200, grown.decision.runs // 3
    means = np.zeros(n_blocks)
    for repeat in range(2):
        bits = generator(3, "alpha_hat", dataset_id(Plan.read(sweep.paths).cell(0).dataset), repeat)
        halves = disjoint_halves(bits, 400, 3)
        key = np.stack([np.asarray(runs[name]) for name in ("cell", "repeat_index", "run_index")])
        for block in range(n_blocks):
            rows = [
                int(np.flatnonzero((key == [[0], [repeat], [run]]).all(axis=0))[0])
                for run in range(3 * block, 3 * block + 3)
            ]
            values = np.stack([np.asarray(runs.margin[row]).reshape(-1) for row in rows])
            levels = [
                smallest_trimming_level(
                    values[one, candidate > 0],
                    np.delete(values, one, axis=0)[:, reference > 0].ravel(),
                    dkw_threshold(n_side, 0.01),
                )
                for one in range(3)
                for candidate, reference in zip(halves.candidate, halves.reference, strict=True)
            ]
            means[block] += np.mean(levels) / 2
    assert means.min() > 0
    decided = decide(means, 0.0148, first=8, block=1)
    assert finished.height == 2 * 3 * n_blocks
    assert grown.decision.mean == pytest.approx(decided.mean)
    assert grown.decision.low == pytest.approx(decided.low)
    assert grown.decision.enough == 3 * decided.enough
    assert f"mean α̂ {decided.mean:.4f} ± {decided.half_width:.2g} over seeds, on 2 t" in grown.words
    assert "Each run is compared with the 2 others of its block." in grown.words
    assert recorded(sweep.paths).asked.words == "mean α̂ ± 0.0148 at 95 %, blocks of 3"
    parts = len(sweep.paths.parts())
    code, text = inside(
        "howmany", sweep.directory, "--until", "0.0148", "--metric", "alpha_hat_mean",
        "--block", 3, "--most", 42, "-n", "--json",
    )  # fmt: skip
    assert code == 0, text
    value = json.loads(text)
    assert value["runs_added_next"] == 0
    assert value["cells"][0]["decision"]["enough"] == grown.decision.enough
    assert len(sweep.paths.parts()) == parts
    for options, said in (
        ({"half_width": 0.1, "block": 2}, "from 3 to"),
        ({"half_width": 0.1, "block": 30}, "from 240 to"),
        ({"half_width": 1.0, "block": 3}, "above 0 and below 1"),
    ):
        with pytest.raises(UserError, match=said):
            sweep.howmany_until(metric="alpha_hat_mean", **options)
