"""Cells and sweeps compared: what belongs together, what is paired, and what is refused."""

from __future__ import annotations

import inspect
import json
import pickle
import re
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

import manyseed
from manyseed import Sweep
from manyseed.analysis.axes import AXES
from manyseed.analysis.options import Options
from manyseed.analysis.questions.accuracy import Accuracies
from manyseed.analysis.questions.accuracy import accuracies as of_datasets
from manyseed.analysis.questions.comparison import Side
from manyseed.analysis.questions.comparison import compare as of_sides
from manyseed.analysis.questions.question import imported
from manyseed.analysis.tables.rows import Tables
from manyseed.orchestrator.cli.analyze import print_effects
from manyseed.orchestrator.computing.cellgroups import unusual, usual_first
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing import import_predictions
from manyseed.orchestrator.results.answers import compare, comparison, sides
from manyseed.orchestrator.results.answers.comparison import (
    AnalysedSweep,
    Compared,
    OneCell,
    Units,
    judged,
    on_shared,
    words,
)
from manyseed.orchestrator.results.answers.sides import _called
from manyseed.orchestrator.results.questions import registry
from tests.orchestrator.conftest import inside, own_copy, train, write

SWEEP = """
name    = "{name}"
seed    = {seed}
repeats = {repeats}
runs    = {runs}

[[grid]]
dataset            = ["{dataset}"]
classifier         = ["lr-sgd", "xgb"]
train_fraction     = [0.25, 1.0]
perturb_continuous = ["none", "relative:0.5"]

[dataset.{dataset}]
source = "sklearn:breast_cancer"
"""
OPTIONS = Options(resamples=4)


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sweep]:
    """The same grid three times: under another name with more test sets, and with another seed."""

    def make(folder: Path) -> None:
        for name, seed, repeats, runs, dataset in (
            ("one", 7, 2, 4, "cancer"),
            ("more", 7, 3, 3, "other"),
            ("seeded", 8, 2, 3, "cancer"),
        ):
            text = SWEEP.format(name=name, seed=seed, repeats=repeats, runs=runs, dataset=dataset)
            train(write(folder / f"{name}.toml", text), folder / name).analyze(OPTIONS, workers=1)

    folder = own_copy(tmp_path_factory, "compare", make)
    return {name: Sweep(folder / name) for name in ("one", "more", "seeded")}


def accuracies(sweep: Sweep, cell: int) -> list[np.ndarray]:
    runs = sweep.results["runs"].filter(cell=cell).sort("repeat_index", "run_index")
    return [own["accuracy"].to_numpy() for own in runs.partition_by("repeat_index")]


def test_classifiers_are_compared_all_else_equal(sweeps: dict[str, Sweep]) -> None:
    found = sweeps["one"].compare()
    assert len(found) == 4
    for one in found:
        assert (one.a.axes["classifier"], one.b.axes["classifier"]) == ("lr-sgd", "xgb")
        assert set(one.same) == set(one.a.axes) - {"classifier"}
        assert one.shared_test_sets
        noisy = one.same["perturb_continuous"] != "none"
        small = one.same["train_fraction"] < 1
        expected = ("subsample",) * small + ("perturb_continuous",) * noisy
        assert one.streams == expected  # a classifier's own streams are keyed by it
        a, b = (accuracies(sweeps["one"], cell.cell) for cell in (one.a, one.b))
        assert one.result.difference == pytest.approx(
            np.mean([x.mean() - y.mean() for x, y in zip(a, b, strict=True)])
        )
    noisy = next(one for one in found if len(one.streams) == 2)
    a, b = (accuracies(sweeps["one"], cell.cell) for cell in (noisy.a, noisy.b))
    parts = [np.var(x - y, ddof=1) / 4 for x, y in zip(a, b, strict=True)]
    freedom = sum(parts) ** 2 / sum(part**2 / 3 for part in parts)
    half = stats.t.ppf(0.975, freedom) * np.sqrt(sum(parts)) / 2
    assert noisy.result.seeds == pytest.approx(
        (noisy.result.difference - half, noisy.result.difference + half)
    )
    assert noisy.result.saved_runs is not None


def test_identical_runs_are_one(sweeps: dict[str, Sweep]) -> None:
    (one,) = sweeps["one"].compare(where="train_fraction = 1.0 AND perturb_continuous = 'none'")
    assert (one.result.runs_a, one.result.runs_b) == (8, 2)  # xgb's four of a test set are one
    assert one.result.saved_runs is None


def test_fractions_and_noise_share_the_streams_of_their_fits(sweeps: dict[str, Sweep]) -> None:
    found = sweeps["one"].compare(by="train_fraction", where="classifier = 'lr-sgd'")
    assert [one.streams[-3:] for one in found] == [("init", "batch", "dropout")] * 2
    assert "perturb_continuous" in found[1].streams


def test_conditions_choose_the_sides(sweeps: dict[str, Sweep]) -> None:
    found = sweeps["one"].compare(
        a="classifier = 'xgb' AND train_fraction = 1", b="classifier = 'lr-sgd' AND cell < 2"
    )
    assert [(one.a.axes["perturb_continuous"], one.b.axes["perturb_continuous"]) for one in found]
    assert {(one.a.axes["train_fraction"], one.b.axes["train_fraction"]) for one in found} == {
        (1.0, 0.25)
    }
    assert len(found) == 2


HPARAMS = """
name    = "hparams"
seed    = 7
repeats = 2
runs    = 3

[[grid]]
dataset    = ["sklearn:wine"]
classifier = ["lr-sgd"]
hparams    = ["grid"]

[[grid]]
dataset    = ["sklearn:wine"]
classifier = ["svm-sgd"]

[classifier.lr-sgd]
grid = { alpha = [1e-4, 0.1] }
"""


def accuracies_of(sweep: Sweep) -> list[Accuracies]:
    """Return what the headlines on accuracy are made of."""
    results = sweep.results
    axes = results["cells"].select("cell", *AXES)
    repeats = results["repeats"]
    repeats = repeats.select(
        "cell", *(name for name in repeats.columns if name not in axes.columns)
    ).join(axes, on="cell")
    return of_datasets(Tables(results["runs"], results["pairs"], repeats, results["cells"]))


UNLIKE = (
    HPARAMS.partition("[[grid]]")[0]
    + """
[[grid]]
dataset        = ["sklearn:breast_cancer"]
classifier     = ["lr-sgd"]
vary           = ["batch"]
train_fraction = [20, 60]

[[grid]]
dataset        = ["sklearn:breast_cancer"]
classifier     = ["svm-sgd"]
vary           = ["train"]
train_fraction = [20, 60]
"""
)


def test_classifiers_with_another_vary_are_told_and_compared_by_what_is_proposed(
    tmp_path: Path,
) -> None:
    """`compare` proposed each of two axes in turn, in neither of which alone two cells differ."""
    sweep = train(write(tmp_path / "unlike.toml", UNLIKE), tmp_path / "unlike")
    sweep.analyze(OPTIONS, workers=1)
    (one,) = accuracies_of(sweep)
    said = inside("answers", sweep.directory, "accuracy")[1]
    assert re.match(r"sklearn:breast_cancer \(60 rows, \w+\): (lr|svm)-sgd ", said)
    (apart,) = one.apart
    assert f"{apart.classifier} {apart.value:.3f}{apart.where}" in said
    assert f"Not compared with others, as vary differs: {apart.classifier}." in said
    code, said = inside("compare", sweep.directory)
    assert (code, "choose another axis with --by (train_fraction)" in said) == (2, True)
    for by in ((), ("--by", "vary")):
        code, said = inside("compare", sweep.directory, *by)
        assert code == 2
        proposed = re.search(r"unlike as they are: manyseed (.*?--b \"[^\"]*\")", said, re.DOTALL)
        assert proposed is not None
        code, said = inside(*shlex.split(" ".join(proposed[1].split())))
        assert (code, "accuracy, 2 comparisons" in said) == (0, True), said
    assert inside("compare", sweep.directory, "--by", "train_fraction")[0] == 0
    condition = f"classifier = '{apart.classifier}'"
    code, said = inside("answers", sweep.directory, "accuracy", "--where", condition)
    assert code == 0
    assert re.match(rf".* \(60 rows(, \w+)?\): {apart.classifier} {apart.value:.3f}[;.]", said)
    assert inside("answers", sweep.directory, "--where", condition, "accuracy") == (code, said)
    code, said = inside("answers", sweep.directory, "standings")
    assert code == 0
    assert "standings takes two classifiers on two datasets or more" in said
    assert "1 dataset, 2 classifiers, 4 cells that differ in train fraction, vary" in said


def test_hparams_of_one_classifier_are_compared_with_another(tmp_path: Path) -> None:
    sweep = train(write(tmp_path / "hparams.toml", HPARAMS), tmp_path / "hparams")
    sweep.analyze(OPTIONS, workers=1)
    levels = ("alpha=0.0001", "alpha=0.1")
    of_models = sweep.compare()  # those that answers judges, also two of one classifier
    both = [
        {tuple(one.axes[k] for k in ("classifier", "hparams")) for one in (it.a, it.b)}
        for it in of_models
    ]
    lr, svm = [("lr-sgd", level) for level in levels], ("svm-sgd", "default")
    assert sorted(map(sorted, both)) == sorted(map(sorted, [[lr[0], svm], [lr[1], svm], lr]))
    assert "accuracy, 3 comparisons" in inside("compare", sweep.directory)[1]
    (of_dataset,) = accuracies_of(sweep)
    for one in of_models:
        names = {f"lr-sgd {level}": level for level in levels} | {"svm-sgd": "default"}
        half = next(
            pair.half
            for best, pair in of_dataset.pairs
            if {names[best], names[pair.classifier]}
            == {it.axes["hparams"] for it in (one.a, one.b)}
        )
        assert (one.together is None) == (half is None)
        if one.together is not None:
            assert (one.together[1] - one.together[0]) / 2 == pytest.approx(half)
    assert any(one.together for one in of_models)
    across = [one for one in of_models if one.a.axes["classifier"] != one.b.axes["classifier"]]
    for found in (across, sweep.compare("lr-sgd", "svm-sgd")):
        assert sorted(one.a.axes["hparams"] for one in found) == [*levels]
        for one in found:
            assert one.b.axes["classifier"] == "svm-sgd"
            means = [np.concatenate(accuracies(sweep, side.cell)).mean() for side in (one.a, one.b)]
            assert one.result.difference == pytest.approx(means[0] - means[1])
    named = sweep.compare("lr-sgd, alpha=0.1", "svm-sgd", confidence=0.95)
    for pair in (("lr-sgd alpha=0.1", "svm-sgd"), ("lr-sgd · alpha=0.1", "svm-sgd, default")):
        assert sweep.compare(*pair, confidence=0.95) == named
    numbers = [named[0].a.cell, named[0].b.cell]
    assert sweep.compare(*numbers) == sweep.compare(between=numbers) == named
    assert inside("compare", sweep.directory, "lr-sgd, alpha=0.1", "svm-sgd")[0] == 0
    (both,) = sweep.compare("lr-sgd alpha=0.0001", "lr-sgd, hparams = alpha=0.1")
    assert {both.a.axes["hparams"], both.b.axes["hparams"]} == {*levels}
    condition = ("--where", "hparams = 'alpha=0.1'")
    code, said = inside("compare", sweep.directory, "lr-sgd", "svm-sgd", *condition)
    left = "leaves out all cells of svm-sgd"
    cells_by_number = f"--between {numbers[0]},{numbers[1]}"
    assert (code, left in said, cells_by_number in said) == (2, True, True), said
    code, said = inside("compare", sweep.directory, *cells_by_number.split())
    assert (code, "alpha=0.1" in said) == (0, True)
    code, said = inside("compare", sweep.directory, "lr-sgd alpha=7", "svm-sgd")
    assert (code, "or numbers of cells, such as --between 0,1" in " ".join(said.split())) == (
        *(2, True),
    )
    (alone,) = sweep.compare(by="hparams")
    assert {alone.a.axes["hparams"], alone.b.axes["hparams"]} == {*levels}
    cells = dict(sweep.query("cells").select("hparams", "accuracy_mean").iter_rows())
    said = inside("answers", sweep.directory)[1]
    for level in levels:
        assert f"lr-sgd {level} {cells[level]:.3f}" in said
    assert f"svm-sgd {cells['default']:.3f}" in said
    assert "for all 3 pairs of classifiers" in inside("methods", sweep.directory)[1]
    code, said = inside("compare", sweep.directory, "--by", "train_fraction")
    assert (code, "choose another axis with --by (classifier, hparams)" in said) == (2, True)


def test_sweeps_share_test_sets_by_what_they_hold_not_by_names(sweeps: dict[str, Sweep]) -> None:
    """The data bears another name, and the test sets of the third repeat are its own."""
    with pytest.raises(
        UserError, match="one cell of two sweeps: accuracy is the same in all of the"
    ):
        sweeps["one"].compare(sweeps["more"])
    found = manyseed.compare(
        sweeps["one"].directory, sweeps["more"], a="classifier = 'xgb'", b="classifier = 'lr-sgd'"
    )
    assert len(found) == 4
    for one in found:
        assert one.shared_test_sets
        assert (one.result.sets_a, one.left_out) == (2, (0, 1))
        if one.streams and one.a.axes["train_fraction"] != 1:
            assert one.result.runs_a == one.result.runs_b == 2 * 3  # runs that both have


def test_other_test_sets_are_compared_apart_and_said_so(sweeps: dict[str, Sweep]) -> None:
    found = sweeps["one"].compare(sweeps["seeded"])
    assert len(found) == 8
    for one in found:
        assert not one.shared_test_sets
        assert one.streams == ()
        means = [
            [own.mean() for own in accuracies(sweep, cell.cell)]
            for sweep, cell in ((sweeps["one"], one.a), (sweeps["seeded"], one.b))
        ]
        oracle = stats.ttest_ind(*means, equal_var=False).confidence_interval()
        assert one.result.seeds is None
        assert one.result.sets == pytest.approx(tuple(oracle))
        assert any("Unpaired: the test sets differ (2 of A, 2 of B)" in own for own in words(one))


def test_what_is_not_comparable_is_refused(sweeps: dict[str, Sweep], tmp_path: Path) -> None:
    one = sweeps["one"]
    for options, said in (
        ({"metric": "fit_seconds"}, "how long a fit takes"),
        ({"metric": "delta"}, "resolution"),
        ({"metric": "acuracy"}, "accuracy"),
        ({"by": "klassifier"}, "classifier"),
        ({"by": "dataset"}, r'^by = "dataset": there is only one dataset \('),
        (
            {"by": "dataset"},
            r"by itself: manyseed query DIR -t runs --by dataset --columns METRIC --agg",
        ),
        ({"a": "cell = 0"}, "give b=, too"),
        ({"a": "cell = 0", "b": "cell = 0"}, r"no cell of A \(1\) matches a cell of B \(1\) other"),
        ({"where": "cell = 99"}, "no cell meets"),
        ({"confidence": 1.0}, "below 1"),
    ):
        with pytest.raises(UserError, match=said):
            one.compare(**options)
    other = Sweep.plan(
        write(
            tmp_path / "o.toml", SWEEP.format(name="o", seed=9, repeats=1, runs=2, dataset="cancer")
        ),
        tmp_path / "o",
    )
    with pytest.raises(UserError, match="no run is finished yet"):
        one.compare(other)
    assert inside("compare", one.directory, "--a", "cell = 0")[0] == 2


def test_cells_without_a_match_are_told_by_the_axes_they_differ_in(
    sweeps: dict[str, Sweep],
) -> None:
    whole = "perturb_continuous = 'none' AND classifier ="
    quarter = "train_fraction = 0.25 AND perturb_continuous = 'none'"
    crossed = "train_fraction = 1.0 AND perturb_continuous != 'none'"
    one = sweeps["one"]
    assert one.compare(a=f"{whole} 'xgb'", b=f"{whole} 'lr-sgd'")
    with pytest.raises(UserError, match=r"no cell of A \(2\) matches a cell of B \(2\) in all of"):
        one.compare(
            a=f"({quarter}) OR ({crossed})",
            b="(train_fraction = 1.0) != (perturb_continuous != 'none')",
            where="classifier = 'xgb'",
        )
    cells = AnalysedSweep(one.paths).snapshots({})
    others = cells.with_columns(train_fraction=pl.col("train_fraction") / 10)
    with pytest.raises(
        UserError, match=r"A \(8\) matches a cell of B \(8\): they differ in train_fraction\n"
    ):
        sides._matched(cells, others, one_sweep=False)


def test_levels_of_other_conventions_are_not_mixed(
    tmp_path: Path, sweeps: dict[str, Sweep]
) -> None:
    """α̂ of another probe or δ, and metrics of analyses with other options."""
    rng = np.random.default_rng(0)
    found = {}
    for name, n_test, probe in (("gap", 80, "gap"), ("margin", 80, "true_margin")):
        y_true = np.tile([0, 1], n_test // 2)
        gaps = (2 * y_true - 1) + rng.normal(size=(6, n_test))
        np.savez(tmp_path / f"{name}.npz", scores=gaps.astype(np.float32), y_true=y_true)
        import_predictions([tmp_path / f"{name}.npz"], tmp_path / name, dataset="same")
        found[name] = Sweep(tmp_path / name)
        found[name].analyze(Options(resamples=4, probe=probe))
    with pytest.raises(UserError, match="alpha_hat of A has another probe than that of B"):
        found["gap"].compare(found["margin"], metric="alpha_hat")
    with pytest.raises(UserError, match="the analyses of the two sweeps differ in probe"):
        found["gap"].compare(found["margin"], metric="ece")
    (one,) = found["gap"].compare(found["margin"])  # accuracy depends on neither
    assert one.shared_test_sets
    assert one.streams == ()
    (trained,) = set(sweeps["one"].results["cells"]["dataset"])
    with pytest.raises(UserError, match=f"different data, same and {trained}; .*import the other"):
        found["gap"].compare(sweeps["one"], a="cell = 0", b="cell = 0")
    import_predictions([tmp_path / "gap.npz"], tmp_path / "other", dataset="other")
    (other := Sweep(tmp_path / "other")).analyze(Options(resamples=4, probe="gap"))
    with pytest.raises(UserError, match=r"same and other; .*import both with the same dataset"):
        found["gap"].compare(other)


def test_what_compares_runs_has_an_interval_over_test_sets_alone(sweeps: dict[str, Sweep]) -> None:
    found = sweeps["one"].compare(metric="churn_mean", where="train_fraction < 1")
    for one in found:
        assert not one.higher_is_better
        assert one.result.seeds is None
        assert one.result.no_seeds == "it compares runs with each other"


def test_the_command_is_read_at_80_columns_and_as_json(
    sweeps: dict[str, Sweep], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("compare", sweeps["one"].directory, "--where", "train_fraction < 1")
    short = inside(*asked)[1]
    assert re.search(r"\n  lr-sgd - xgb +(lr-sgd better|xgb better|not told) +0.25 ", short)
    code, told = inside(*asked, "--why")
    assert code == 0
    assert "accuracy, 2 comparisons" in told
    assert "A: cancer × lr-sgd, train_fraction = 0.25 (cell 0)" in told
    assert "Paired on 2 test sets, run by run (subsample shared); 8 runs of A with 8 of B." in told
    assert "Each interval by itself holds at 95 %: of 2, about 0.1 are expected to miss." in told
    code, text = inside("compare", sweeps["one"].directory, "--json")
    assert code == 0
    rows = json.loads(text)["comparisons"]
    assert len(rows) == 4
    assert {"a", "b", "metric", "result", "streams", "shared_test_sets", "words"} <= set(rows[0])
    assert pl.DataFrame(rows[0]["result"]["seeds"]).height == 2


def test_two_levels_are_compared_as_one_would_type_it(
    sweeps: dict[str, Sweep], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sweeps["one"]
    usual = {(one.b.cell, one.a.cell): one.result for one in sweep.compare()}
    found = sweep.compare(between=["xgb", "lr-sgd"])
    assert [(one.a.axes["classifier"], one.b.axes["classifier"]) for one in found] == [
        ("xgb", "lr-sgd")
    ] * 4
    for one in found:
        expected = usual[one.a.cell, one.b.cell]
        assert one.result is not None
        assert expected is not None
        assert one.result.difference == pytest.approx(-expected.difference)
    levels = sweep.compare(between=["relative:0.5", "none"])  # of another axis
    assert {one.a.axes["perturb_continuous"] for one in levels} == {"relative:0.5"}
    assert len(levels) == 4
    assert len(sweep.compare(between=["1", "0.25"], by="train_fraction")) == 4
    (one,) = sweep.compare(between=["3", "0"])  # numbers of cells
    assert (one.a.cell, one.b.cell) == (3, 0)
    code, told = inside("compare", sweep.directory, "3", "0")
    first = told.partition("\n\n")[2].partition("\n")[0]
    assert first.startswith(comparison.verdict(one, *comparison.told_apart(one)))
    assert first.endswith(" (95 %, over seeds and new test sets).")
    (tmp_path / "xgb").mkdir()  # a folder that is called like a classifier
    monkeypatch.chdir(tmp_path)
    code, told = inside("compare", sweep.directory, "xgb", "lr-sgd", "--json")
    assert code == 0
    assert [one["a"]["cell"] for one in json.loads(told)["comparisons"]] == [
        one.a.cell for one in found
    ]
    code, told = inside("compare", sweep.directory, sweeps["seeded"].directory, "xgb", "--json")
    assert code == 0
    assert {one["a"]["axes"]["classifier"] for one in json.loads(told)["comparisons"]} == {"xgb"}
    code, told = inside("compare", sweep.directory, "xgb", "lr-sgd", "--alike")
    assert code == 0, told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("xgb", "lr-sdg"), 'no such classifier.*did you mean "lr-sgd"'),
        (("xgb",), '"xgb": is one side only.*name another classifier'),
        (("xgb", "lr-sgd", "--a", "cell = 0", "--b", "cell = 1"), "--a = .*leave it out"),
        (("no/such", "xgb"), "no such classifier"),
        (("no/such",), "there is no such directory"),
    ],
)
def test_levels_that_are_none_are_refused(
    sweeps: dict[str, Sweep], words: tuple[str, ...], said: str
) -> None:
    code, told = inside("compare", sweeps["one"].directory, *words)
    assert code == 2
    assert re.search(said, " ".join(told.split())), told


@pytest.mark.parametrize(("name", "sets"), [("one", 2), ("more", 3)])
def test_intervals_over_few_test_sets_are_called_of_little_use_once(
    sweeps: dict[str, Sweep], name: str, sets: int, capsys: pytest.CaptureFixture[str]
) -> None:
    note = f"{sets} test sets are too few for useful intervals; more narrow them"
    for verb, *more in (
        ("compare", "--why"),
        ("variance", "--why"),
        ("answers", "--why"),
        ("query", "--by", "classifier"),
        ("query", "--by"),
        ("query", "-t", "runs", "--by", "classifier", "--agg", "mean", "-c", "accuracy"),
    ):
        code, said = inside(verb, sweeps[name].directory, *more)
        assert code == 0
        assert said.count(note) == 1, (verb, more)
    for verb, *more in (
        ("query", "-t", "runs"),
        ("query", "-t", "runs", "--by", "classifier", "--agg", "max", "-c", "accuracy"),
    ):
        assert note not in inside(verb, sweeps[name].directory, *more)[1]
    capsys.readouterr()
    print_effects(sweeps[name])  # below the summary of an analysis
    assert " ".join(capsys.readouterr().out.split()).count(note) == 1


def test_groups_that_span_datasets_have_more_test_sets(tmp_path: Path) -> None:
    text = SWEEP.format(name="s", seed=1, repeats=2, runs=2, dataset="a").replace(
        '["a"]', '["a", "b", "c"]'
    )
    others = (("b", "iris"), ("c", "wine"))
    more = "".join(f'[dataset.{name}]\nsource = "sklearn:{data}"\n' for name, data in others)
    text = text.replace('["lr-sgd", "xgb"]', '["lr-sgd"]').replace(', "relative:0.5"', "")
    sweep = train(write(tmp_path / "s.toml", text + more), tmp_path / "s")
    sweep.analyze(OPTIONS)
    note = "too few for useful intervals"
    assert note not in inside("query", sweep.directory, "--by", "classifier")[1]
    assert note in inside("query", sweep.directory, "--by", "dataset")[1]


def test_python_takes_levels_as_the_command_does(
    sweeps: dict[str, Sweep], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, seeded = sweeps["one"], sweeps["seeded"]
    monkeypatch.chdir(tmp_path)
    found = one.compare(between=["xgb", "lr-sgd"])
    assert one.compare("xgb", "lr-sgd") == found
    assert manyseed.compare(one.directory, "xgb", "lr-sgd") == found
    plain = "train_fraction = 1.0 AND perturb_continuous = 'none'"
    (alike,) = one.alike("xgb", "lr-sgd", where=plain)
    assert [alike] == one.alike(between=["xgb", "lr-sgd"], where=plain)
    both = manyseed.compare(one, seeded, between=["xgb"])
    for other in (seeded, seeded.directory, str(seeded.directory)):
        assert one.compare(other, "xgb") == both
    assert one.compare(other=seeded, between=["xgb"]) == one.compare("xgb", other=seeded) == both
    for call, said in (
        (lambda: one.compare("xgb", between=["xgb"]), "between: is given twice"),
        (lambda: one.compare(seeded, other=seeded), "other: is given twice"),
        (lambda: one.compare([3]), "other: must be a Sweep or its directory, not list"),
        (lambda: one.compare("xgb", seeded), r"between\[1\]: must be text, not Sweep"),
        (lambda: one.compare("xgb"), 'classifier = "xgb": is one side only'),
        (lambda: one.compare("xgb", "mlp"), 'classifier = "mlp": no such classifier'),
        (lambda: one.compare(other="none"), "none: there is no such directory"),
    ):
        with pytest.raises(UserError, match=said):
            call()


@pytest.mark.parametrize(
    "options",
    [{"a": "xgb"}, {"a": "xgb", "b": "lr-sgd"}, {"between": "classifier"}, {"b": "cell = 0"}],
)
def test_levels_in_the_wrong_place_are_answered_with_the_right_one(
    sweeps: dict[str, Sweep], options: dict[str, str]
) -> None:
    with pytest.raises(UserError, match=r'between=\["xgb", "mlp"\]'):
        sweeps["one"].compare(**options)  # type: ignore[arg-type]


def test_the_help_shows_every_option_of_the_question() -> None:
    asked = (Sweep.compare, Sweep.alike, Sweep.howmany, Sweep.dee, Sweep.howmany_until)
    for function in (manyseed.compare, *asked):
        name = function.__name__.replace("howmany_until", "until")
        known = dict(inspect.signature(imported(registry.named(name).find)).parameters)
        del known[next(iter(known))]
        own = inspect.signature(function).parameters
        shown = inspect.getdoc(function) or ""
        for option in known.keys() - {"dry_run", "report"}:
            assert own[option].annotation == known[option].annotation or option == "other"
            assert own[option].default == known[option].default
            assert len(re.findall(rf"^{option} : .*\n    \w", shown, re.MULTILINE)) == 1, option
        assert "**options" not in shown
        assert not re.search(r"\S\n\w+\n---|\n\n\n|--[a-z]", shown)


def test_comparisons_are_printed_as_the_command_prints_them(sweeps: dict[str, Sweep]) -> None:
    sweep = sweeps["one"]
    for levels in (["3", "0"], []):
        found = sweep.compare(*levels)
        told = inside("compare", sweep.directory, *levels)[1]
        shown = str(found)
        assert shown == repr(found)
        lines = [line.split() for line in told.splitlines() if line.split()]
        ours = [line.split() for line in shown.splitlines() if line.split()]
        assert len(ours) >= 5
        assert ours == [line for line in lines if line[-1] != "--why"]
        assert found[0].result is not None
        again = pickle.loads(pickle.dumps(found))
        assert again == found
        assert str(again) == shown


def test_a_verdict_on_one_pair_of_several_says_that_it_holds_for_it_alone(
    sweeps: dict[str, Sweep],
) -> None:
    sweep = sweeps["one"]
    plain = "train_fraction = 1 AND perturb_continuous = 'none'"
    (found,) = sweep.compare("xgb", "lr-sgd", where=plain)
    assert found.pairs == 1
    (crosswise,) = sweep.compare("3", "0")
    assert crosswise.pairs == 6  # they differ in two axes of two levels each
    assert found.result is not None
    told = replace(found, pairs=3, result=replace(found.result, sets=(0.01, 0.02)))
    for limits, said in (
        (None, "this pair alone, not for all 3 such pairs together."),
        ((-0.01, 0.03), "this pair alone, not for all 3 such pairs together."),
        ((0.005, 0.025), "all 3 such pairs together, too."),
    ):
        text = compare.reply([replace(told, together=limits)]).answers[0].headline
        assert re.search(rf"^xgb > lr-sgd \(95 %, .*\)\.\nIt holds for {said}\n", text)
    unclear = replace(told, result=replace(found.result, sets=(-0.1, 0.1)))
    for one in (replace(told, pairs=1), unclear):
        assert "It holds for" not in compare.reply([one]).answers[0].headline


def test_every_row_of_a_table_is_of_its_first_cell_minus_its_second(
    sweeps: dict[str, Sweep], tmp_path: Path
) -> None:
    sweep = sweeps["one"]
    found = sweep.compare()
    better = [replace(one.result, sets=limits) for one, limits in zip(found, _LIMITS, strict=True)]
    table = [replace(one, result=own) for one, own in zip(found, better, strict=True)]
    table[0] = replace(table[0], together=(0.005, 0.025))
    table[1] = replace(table[1], together=(-0.03, 0.01))
    reply = compare.reply(table)
    dataset, pair, verdict, levels, difference, limits, level = zip(*reply.table, strict=True)
    assert set(dataset) == {"cancer"}
    assert set(pair) == {"lr-sgd - xgb"}
    by_levels = dict(zip(levels, zip(verdict, difference, limits, level, strict=True), strict=True))
    names = ("lr-sgd better", "xgb better, alone", "≈, alone", "not told")
    for one, own, name in zip(table, _LIMITS, names, strict=True):
        said = by_levels[", ".join(unusual(one.same))]
        expected = f"{one.result.difference:+.4f}", f"{own[0]:+.4f} to {own[1]:+.4f}"
        assert said == (name, *expected, f"{one.result.better:.2f}")
    assert (
        "For all 4 together, 1 of 3 verdicts holds; "
        "alone: only by itself; not told of all together." in reply.below[0]
    )
    weak = table[1:]
    assert "For all 3 together, none is told (Bonferroni's" in compare.reply(weak).below[0]
    assert "For all of them together at 95 %, each takes 98.75 % (Bonferroni)." in " ".join(
        reply.notes
    )
    in_paper = {row[1]: row[4] for row in reply.paper[1]}
    assert [in_paper[", ".join(unusual(one.same)) or "1.0, none"] for one in table] == [
        *("lr-sgd", "xgb, alone", "≈, alone", "not told")
    ]
    sure = [replace(one, confidence=0.99) for one in table]
    assert "For all 4 together at 99 %, each at 99.75 %, 1 of" in compare.reply(sure).below[0]
    rows = [row for one in reply.answers for row in one.rows]
    assert sorted(f"{row['difference']:+.4f}" for row in rows) == sorted(difference)
    ece = [replace(one, metric="ece", higher_is_better=False) for one in table]
    ece = compare.reply(ece, metric="ece")
    told = {row[2].removesuffix(", alone"): row for row in ece.table}
    assert {*told} == {"xgb better", "lr-sgd better", "not told"}
    assert "+0.0100 to +0.0200" in told["xgb better"]
    assert ece.below[1] == "P: that the first of a pair is better; lower is better."


def test_verdicts_hold_for_the_pairs_of_a_dataset_as_answers_say(sweeps: dict[str, Sweep]) -> None:
    """The text of a paper said that one is better, and the table that none of all is told."""
    (first, *_) = sweeps["one"].compare()
    plain = {**first.same, "perturb_continuous": "none", "train_fraction": 1.0}
    family = {**plain, "dataset": "breast"}, {**plain, "dataset": "wine"}
    better = replace(first.result, sets=(0.01, 0.02))
    found = [
        replace(first, same=same, result=better, together=(-0.01, 0.04), among_like=(low, 0.03))
        for same, low in zip(family, (0.001, -0.01), strict=True)
        for _ in range(2)
    ]
    (told, *_) = compare.reply(found).below
    assert "none is told (Bonferroni's correction); alone: only by itself." in told
    assert told.endswith(" For the 2 pairs of breast together: lr-sgd > xgb, lr-sgd > xgb.")
    assert "together" not in compare.reply(found[:1]).below[0]
    found[1] = replace(found[1], together=(0.001, 0.04))
    (told, *_) = compare.reply(found).below
    assert told.endswith(" For the 2 pairs of breast together also: lr-sgd > xgb."), "not all"
    half = [replace(one, same={**one.same, "train_fraction": 0.5}) for one in found[:2]]
    (told, *_) = compare.reply([*found[:2], *half]).below
    first, second = (f"For the 2 pairs of breast with train fraction {it} " for it in (1.0, 0.5))
    assert (first in told, second in told) == (True, True), "the usual level is named, too"


FAMILIES = """
name = "families"
seed = 1
repeats = 3
runs = 1
[[grid]]
dataset = ["sklearn:iris", "sklearn:wine"]
classifier = ["lr-sgd", "xgb", "mlp"]
[classifier.mlp]
epochs = 1
"""


def test_pairs_of_a_dataset_are_judged_together_too(tmp_path: Path) -> None:
    sweep = train(write(tmp_path / "f.toml", FAMILIES), tmp_path / "f")
    sweep.analyze(OPTIONS, workers=1)
    found = sweep.compare()
    assert len(found) == 6
    surer = sweep.compare(confidence=1 - 0.05 / 3)
    assert [one.among_like for one in found] == [judged(one) for one in surer]
    of_one = sweep.compare(where="dataset = 'sklearn:iris'")
    assert [one.together for one in of_one] == [one.among_like for one in found[:3]]
    assert all(one.among_like is None for one in of_one)
    assert all(one.among_pairs is None for one in (*found, *of_one))
    asked = sweep.compare("xgb", "mlp")  # as the headlines judge them: among three pairs
    ends = {
        frozenset((one.a.cell, one.b.cell)): sorted(map(abs, judged(one) or ())) for one in surer
    }
    for one in asked:
        assert one.pairs == 3
        limits = sorted(map(abs, one.among_pairs or ()))
        assert limits == pytest.approx(ends[frozenset((one.a.cell, one.b.cell))])
        assert any("More runs of A and B allow one (runs = 5)" in text for text in words(one))
    (first, other) = asked
    better = replace(first.result, sets=(0.01, 0.02))
    lost = replace(first, result=better, among_pairs=(-0.01, 0.04))
    text = " ".join(compare.reply([lost, replace(other, among_pairs=None)]).below)
    assert "Told alone, not among all pairs of their cells: xgb > mlp (sklearn:iris; 3)." in text
    assert "Told alone" not in " ".join(compare.reply([replace(lost, among_pairs=None)]).below)


_LIMITS = ((0.01, 0.02), (-0.02, -0.001), (-0.002, 0.003), (-0.01, 0.02))


def test_verdicts_together_are_those_at_the_confidence_of_each(sweeps: dict[str, Sweep]) -> None:
    sweep = sweeps["one"]
    found = sweep.compare()
    sure = sweep.compare(confidence=1 - 0.05 / len(found))
    for one, own in zip(found, sure, strict=True):
        assert one.together == comparison.judged(own)
    reply = compare.reply(found)
    rows = [row for one in reply.answers for row in one.rows]
    for row, one in zip(rows, usual_first(found, lambda one: one.same), strict=True):
        limits = one.together or (None, None)
        assert (row["together_low"], row["together_high"]) == limits
        assert row["together_verdict"] == comparison.side_told(one, together=True)
        assert (row["verdict"] == row["together_verdict"]) or comparison.is_alone(one)
    single = sweep.compare("3", "0")[0]
    if comparison.told(single, comparison.judged(single)):
        own = sweep.compare("3", "0", confidence=1 - 0.05 / 6)[0]
        assert single.together == comparison.judged(own)


def test_two_levels_stand_in_one_order_whatever_the_numbers_of_their_cells(
    sweeps: dict[str, Sweep],
) -> None:
    cells = AnalysedSweep(sweeps["one"].paths).snapshots({})
    number = pl.col("cell")
    turned = pl.when(perturb_continuous="none").then(number).otherwise(100 - number)
    turned = cells.with_columns(cell=turned.cast(cells["cell"].dtype))
    pairs = sides._levels(turned, "classifier")
    assert {(a.cell < b.cell) for a, b in pairs} == {True, False}
    assert {(a.axes["classifier"], b.axes["classifier"]) for a, b in pairs} == {("lr-sgd", "xgb")}


def test_the_variance_of_copies_of_one_model_is_none_by_construction(
    sweeps: dict[str, Sweep],
) -> None:
    """Copies tell nothing of further runs, and equal accuracies of several models do."""
    directory = sweeps["one"].directory
    code, told = inside("variance", directory)
    (row,) = re.findall(r"^  xgb +(\w+ \w+) ", told, re.MULTILINE)
    assert (code, row) == (0, "one model")
    assert "One model: on each test set, whatever the seed." in " ".join(told.split())
    is_below = any(re.search(r" < ?\d", line) for line in told.splitlines())
    assert ("<: not told from 0." in " ".join(told.split())) == is_below
    groups = json.loads(inside("variance", directory, "--json")[1])["groups"]
    whole = (", train_fraction = 1.0", "perturb_continuous = none")
    named = {one["name"]: one for one in groups if all(each in one["name"] for each in whole)}
    of = {name.partition(",")[0]: " ".join(one["words"]["Accuracy"]) for name, one in named.items()}
    assert set(of) == {"cancer × lr-sgd", "cancer × xgb"}
    assert "none, as no seed reaches the fit: one model on each test set" in of["cancer × xgb"]
    assert "may differ" not in of["cancer × xgb"]
    assert "none seen, as nothing differs, while up to" in of["cancer × lr-sgd"]


def test_a_pair_without_an_interval_does_not_change_what_the_others_are_over(
    tmp_path: Path,
) -> None:
    """Two classifiers alike on all test sets have none; that of the third is over test sets."""
    rng, files = np.random.default_rng(0), []
    for repeat in range(4):
        y = np.arange(60) % 2
        for name, wrong in (("a", 6 + repeat), ("b", 6 + repeat), ("c", 15 + 3 * repeat)):
            files.append(tmp_path / f"{name}-{repeat}.npz")
            labels = np.tile(np.where(np.arange(60) < wrong, 1 - y, y), (3, 1))
            labels[:, -1] ^= rng.integers(0, 2) if name == "c" else 0
            np.savez(files[-1], labels=labels, y_true=y, test_index=np.arange(60) + 60 * repeat)
    import_predictions(files, tmp_path / "made", name="{classifier}-{repeat}.npz")
    sweep = Sweep(tmp_path / "made")
    sweep.analyze()
    said = inside("compare", sweep.directory)[1]
    assert "over seeds and new test sets, each by itself." in " ".join(said.split())
    assert " – " in said


@pytest.mark.parametrize(("few", "kept", "paired"), [(1, 10, False), (4, 10, False), (5, 5, True)])
def test_runs_are_paired_unless_most_of_a_side_would_be_left_out(
    few: int, kept: int, paired: bool
) -> None:
    """A single run was compared with the first of ten alone, whose mean is another."""
    sides = [{"s": Units({(0, i): float(i) for i in range(n)}, fixed=False)} for n in (few, 10)]
    [(x, y)], found = on_shared(*sides, ["batch"])
    assert (len(x.values), len(y.values), found) == (few, kept, paired)
    held = [{"s": replace(side["s"], fixed=True)} for side in sides[:1]]
    [(x, y)], found = on_shared(*held, sides[1], ["batch"])
    assert (len(x.values), len(y.values), found) == (few, 10, True)


def test_a_paper_names_the_sides_of_a_comparison(quick_analysed: Sweep) -> None:
    """Heads and verdicts by the names of one pair; of several, columns A and B beside them."""
    asked = ("compare", quick_analysed.directory, "--format", "latex", "--columns")
    columns = "dataset,with,mean_a,mean_b,difference,low,high,verdict"
    code, text = inside(*asked, columns)
    assert code == 0
    head = next(line for line in text.splitlines() if line.startswith("dataset & "))
    names = quick_analysed.results["cells"]["classifier"].unique().to_list()
    data = quick_analysed.results["cells"]["dataset"][0]
    heads = head.replace("\\\\", " ")
    assert all(f"mean {name}" in heads for name in names), heads
    assert "mean a" not in text
    assert "a better" not in text
    assert "b better" not in text
    assert "over seeds and new test sets" in text, "what intervals are over"
    by = ("--by", "train_fraction")
    code, text = inside(*asked, "mean_a,mean_b,verdict", *by)
    assert code == 0
    assert f"Only runs with dataset = {data}." not in text
    where = ("--where", f"dataset = '{data}'")
    assert f"Only runs with dataset = {data}." in inside(*asked, "a,b,verdict", *where)[1]
    code, text = inside(*asked, "train_fraction,verdict", *by)
    assert code == 2
    assert "the column with has the levels" in text


def test_a_table_of_comparisons_is_by_dataset_and_tells_usual_levels(quick_analysed: Sweep) -> None:
    code, text = inside("compare", quick_analysed.directory, "--format", "latex")
    assert code == 0
    body = text.partition("\\midrule\n")[2].partition("\\bottomrule")[0].splitlines()
    cells = [line.removesuffix(" \\\\").split(" & ") for line in body]
    datasets = [row[0] for row in cells]
    changes = sum(a != b for a, b in pairwise(datasets))
    assert changes == len({*datasets}) - 1
    assert "" not in [row[1] for row in cells], "levels that are all usual have a name"
    kinds = re.search(r"\\begin\{tabular\}\{(.*)\}\n", text)
    assert kinds, text
    assert re.sub(r"[^lr]", "", kinds[1])[-2:] == "rr", "the difference and half of its interval"


def test_where_test_sets_limit_a_verdict_it_says_how_many_would_tell_it() -> None:
    """Seeds vary by 0.001; the difference by 0.02 between test sets."""
    noise = np.array([-0.001, 0.0, 0.001])
    differences = np.array([0.03, -0.01, 0.01, 0.02])
    a = [Side(0.9 + one + noise) for one in differences]
    b = [Side(0.9 + noise)] * 4
    cell = OneCell("sweep", 0, "", 0, {})
    found = Compared(
        cell, cell, {}, "accuracy", True, 0.95, True, (0, 0), (), of_sides(a, b, paired=False)
    )
    (line,) = [one for one in words(found) if one.startswith("Test sets limit this, not seeds: ")]
    n = int(re.search(r"about (\d+) repeats would tell it", line)[1])
    mean, sd = differences.mean(), differences.std(ddof=1)
    reach = [stats.t.ppf(0.975, m - 1) * sd / np.sqrt(m) for m in (n - 1, n)]
    assert reach[1] < mean < reach[0]
    surer = replace(found, result=of_sides(a[:2], b[:2], paired=False))
    assert "Test sets limit" not in " ".join(words(surer))  # two test sets estimate nothing


@pytest.mark.parametrize("name", ["mlp, 20 rows", "mlp 20 rows", "mlp, train fraction 20.0"])
def test_cells_are_called_by_numbers_of_rows_as_answers_call_them(name: str) -> None:
    cells = pl.DataFrame(
        {axis: ["none"] * 2 for axis in AXES}
        | {"cell": [0, 1], "classifier": ["mlp"] * 2, "train_fraction": [20.0, 400.0]}
    )
    assert _called(cells, name).to_list() == [True, False]
