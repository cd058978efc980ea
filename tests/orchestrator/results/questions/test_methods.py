"""What the methods of a paper say of test sets: how each data set's are made."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.analysis.options import Options
from manyseed.analysis.report import wording
from manyseed.analysis.report.citations import STUDIES, own_in_words
from manyseed.analysis.report.schemes import in_words
from manyseed.analysis.report.wording import _SPELT, Study, _evaluation
from manyseed.jobs.classifiers import CLASSIFIERS
from manyseed.jobs.perturb import TABLES, Axis
from manyseed.orchestrator.results.answers.summary import _references
from tests.analysis.planted import planted
from tests.orchestrator.conftest import inside, train, write

DRAWN = (
    "Each repeat of drawn draws its own test set, 25 % of the rows, stratified by class; the rest "
    "trains."
)
TOLD = {
    "group = 'patient'": "Each repeat of one draws its own test set of whole groups (patient), "
    "about 25 % of the rows, stratified by the most frequent class of each; the rest trains.",
    "folds = 'fold'": "Each repeat of one has another of the data's folds (column fold) as its "
    "test set.",
    "split = 'part'": "The test set of one is what the column part says.",
    "last = 0.2\norder = 'day'": "The test set of one is the last 20 % of the rows, in the order "
    "of day.",
    "last = 8": "The test set of one is the last 8 of the rows.",
    "test_file = 'more.csv'": "The test set of one is a file of its own.",
    "test = 12": "Each repeat of one draws its own test set, 12 rows, stratified by class; the "
    "rest trains.",
    "group = 'patient'\ntest = 12": "Each repeat of one draws its own test set of whole groups "
    "(patient), 12 rows, stratified by the most frequent class of each; the rest trains.",
}


def table(rows: int, *, ordered: bool) -> str:
    columns = "x,y,patient,fold,day,part"
    lines = [
        f"{n % 7}.5,{'ab'[n % 2]},p{n // 4},{n // 4 % 3},{n % rows if ordered else n},"
        f"{'test' if n % 4 == 3 else 'train'}"
        for n in range(rows)
    ]
    return "\n".join([columns, *lines]) + "\n"


@pytest.mark.parametrize("keys", TOLD, ids=lambda keys: re.sub(r"\W+", "-", keys))
def test_each_way_of_making_a_test_set_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one.csv", "more.csv", "drawn.csv"):
        Path(name).write_text(table(48, ordered=True))
    tables = f"""
[dataset.one]
source = "file:one.csv"
target = "y"
{keys}
[dataset.drawn]
source = "file:drawn.csv"
target = "y"
"""
    grid = 'name = "s"\nseed = 1\nrepeats = 1\nruns = 2\n[[grid]]\nclassifier = ["lr-sgd"]\n'
    Path("s.toml").write_text(grid + 'dataset = ["one", "drawn"]\n' + tables)
    sweep = Sweep.plan("s.toml", "s")
    told = {one.headline: one.details[0] for one in sweep.answers("methods")}["Data"]
    _, *sentences = re.split(r"(?<=\.) (?=Each|The)", told)
    assert sentences == [TOLD[keys], DRAWN]


def test_what_was_trained_is_counted_and_cited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{n % 7}.5,{'uvw'[n % 3]},{n},{'ab'[n % 2]}" for n in range(80)]
    Path("one.csv").write_text("\n".join(["x,z,number,y", *rows]) + "\n")
    Path("s.toml").write_text(
        'name = "s"\nseed = 1\nrepeats = 2\nruns = 3\n[dataset.one]\nsource = "file:one.csv"\n'
        'target = "y"\nignore = ["number"]\n[[grid]]\ndataset = ["one"]\n'
        'classifier = ["lr-sgd", "mlp"]\n[[grid]]\ndataset = ["one"]\nclassifier = ["xgb"]\n'
        "runs = 1\n"
    )
    sweep = Sweep.plan("s.toml", "s")
    told = {one.headline: one.details[0] for one in sweep.answers("methods")}
    sizes = "80 rows, 2 features, 1 of them categorical, 1 ignored column, 2 classes, 60 training"
    assert f"(file; {sizes} rows, 20 test points)" in told["Data"]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    sweep = Sweep(tmp_path / "s")
    assert {one.headline: one.details[0] for one in sweep.answers("methods")} == told
    (tmp_path / "one.csv").unlink()
    found = {one.headline: one.details[0] for one in sweep.answers("methods")}
    assert "one (file; 2 classes, 20 test points). Each repeat draws" in found["Data"]
    note = "Rows and features of one are left out, as its file is not found from here."
    assert found["Note"] == note
    for form, shown in (("latex", f"% {note}\n"), ("markdown", f"<!-- {note} -->\n")):
        code, text = inside("answers", sweep.directory, "methods", "--format", form)
        assert (code, shown in text, text.count(note)) == (0, True, 1), "a note is no text"
    for name, spelt in (
        ("lr-sgd", "logistic regression fitted by stochastic gradient descent; "),
        ("xgb", "gradient-boosted trees, XGBoost; "),
    ):
        assert f"({spelt}" in told["Training"].partition(f"{name} ")[2]
    assert "Planned runs by classifier: 6 of lr-sgd, 6 of mlp and 2 of xgb." in told["Runs"]
    assert "cells" not in told["Runs"]
    for package in (
        *("scikit-learn (Pedregosa et al. 2011)", "torch (Paszke et al. 2019)"),
        "xgboost (Chen and Guestrin 2016)",
    ):
        assert package in told["Software"]
    assert "{F. Pedregosa and others}" in STUDIES["pedregosa2011"].bibtex("pedregosa2011")


PIPELINE = """
name = "s"
seed = 1
repeats = 1
runs = 2
[dataset.one]
source = "sklearn:wine"
[classifier.scaled-forest]
estimator = "sklearn.pipeline:Pipeline"
params.steps = [
    ["s", { estimator = "sklearn.preprocessing:StandardScaler", params = { with_mean = false } }],
    ["f", { estimator = "sklearn.ensemble:RandomForestClassifier", params = { n_estimators = 5 } }],
]
[classifier.fixed]
estimator = "mine:build"
params = { depth = 2 }
[[grid]]
dataset = ["one"]
classifier = ["scaled-forest", "fixed"]
"""
MINE = """
import sklearn.tree as of_trees

def build(depth):
    return of_trees.DecisionTreeClassifier(max_depth=depth, random_state=3)
"""


def test_estimators_are_told_in_words_and_only_packages_that_trained_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    sweep = train(write(tmp_path / "s.toml", PIPELINE), tmp_path / "s")
    told = {one.headline: one.details[0] for one in sweep.answers("methods")}
    assert told["Training"].startswith(
        "2 classifiers: fixed (the estimator that mine:build returns; depth 2); scaled-forest (a "
        "pipeline of StandardScaler (with mean no) and RandomForestClassifier (n estimators 5) of "
        "scikit-learn). For fixed and scaled-forest, features are used as they are. For "
        "scaled-forest, random_state is drawn anew for each run. fixed gets no seed: trained on "
        "the same data, it is the same model."
    )
    for word in ("own 1", "form ", "encode", "predict_proba", "initial weights"):
        assert word not in told["Training"]
    assert re.search(r"scikit-learn [\d.]+ \(Pedregosa et al\. 2011\)", told["Software"])
    assert not re.search("torch|xgboost", told["Software"])
    shutil.rmtree(sweep.paths.tasks / "code")  # so what it imports is unknown
    told = {one.headline: one.details[0] for one in sweep.answers("methods")}
    assert "torch" in told["Software"]
    assert "(Paszke" not in told["Software"]


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"form": "module", "params": {"channels": 8}}, "the PyTorch module m:f, trained with "),
        ({"form": "train"}, "the training function m:f"),
        ({"form": "command"}, "the program m:f"),
        (
            {
                "form": "estimator",
                "params": {
                    "a": {"none": True},
                    "b": {"tuple": [1, {"import": "numpy:log1p"}]},
                    "c": {"x": True},
                    "n": 3,
                },
            },
            "the estimator that m:f returns; a none, b [1, numpy.log1p], c [x yes]",
        ),
    ],
)
def test_each_form_of_own_code_is_told(own: dict[str, object], said: str) -> None:
    assert own_in_words({"name": "m:f", "own": 1, **own}, {"n"}).startswith(said)


def test_what_the_results_do_not_tell_is_not_explained(quick_analysed: Sweep) -> None:
    """Test sets of 143 points tell no α̂, and no answer shows a Brier score."""
    told = {one.headline: one.details[0] for one in quick_analysed.answers("methods")}
    assert [name for name, _ in quick_analysed.methods()] == [*told]
    assert str(quick_analysed.methods()).count(told["Runs"]) == 1, (
        "printed as the command prints it"
    )
    assert "Accuracy: Share of the test points" in told["Evaluation"]
    assert "Local error consistency is" in told["Evaluation"]
    for word in ("α̂", "δ", "Brier", "ECE", "AURC"):
        assert word not in told["Evaluation"], word


OF_METRICS = (
    ("accuracy", (), ("error consistency", "Churn")),
    ("accuracy,ec_local", ("Local error consistency is", "any error is left"), ("lobal", "hurn")),
    ("churn", ("Churn is the share of test points",), ("error consistency",)),
    ("ec_global", ("Global error consistency is", "by all test points"), ("Local", "hurn")),
    ("ec_global,churn", ("Global error consistency is", "Churn does: the share"), ("Local",)),
)


@pytest.mark.parametrize(("metrics", "told", "left_out"), OF_METRICS)
def test_only_metrics_that_are_asked_for_are_explained(
    quick_analysed: Sweep, metrics: str, told: Sequence[str], left_out: Sequence[str]
) -> None:
    text = dict(quick_analysed.methods(metric=metrics.split(",")))["Evaluation"]
    for one in told:
        assert one in text
    for one in left_out:
        assert one not in text


def test_effects_are_told_of_axes_that_have_some() -> None:
    """Cells of a grid lack its reference level, so none of them is compared with it."""
    tables = planted(alpha=0.3, delta=0.04)
    cells = pl.concat([tables.cells.head(1)] * 3).with_columns(
        cell=pl.int_range(3, dtype=pl.UInt32),
        train_fraction=pl.Series(["1.0", "0.3", "1.0"]),
        hparams=pl.Series(["default", "default", "width1=64"]),
        classifier=pl.Series(["a", "a", "mlp"]),
    )
    counts = {"runs": 1, "done": 1, "copy": 0, "failed": 0, "missing": 0}
    study = Study(cells, counts, {}, tables=tables, options=Options(), analysed=1)
    assert "Effects of" not in " ".join(_evaluation(study))
    study = replace(study, effects={"train_fraction": "1.0"})
    told = " ".join(_evaluation(study))
    assert "Effects of training fraction are differences from the reference level (1.0)," in told


def test_effects_are_those_of_the_table(quick_analysed: Sweep) -> None:
    of = pl.DataFrame(
        {"axis": ["train_fraction"] * 2, "reference": ["1.0"] * 2, "level": ["0.3", "0.5"]}
    )
    assert _references(of) == {"train_fraction": "1.0"}
    assert "reference level (1.0 and none)" in dict(quick_analysed.methods())["Evaluation"]


def test_alpha_hat_is_explained_where_test_sets_tell_it() -> None:
    for delta, is_told in ((0.04, True), (0.2, False)):
        tables = planted(alpha=0.3, delta=delta)
        counts = {"runs": 1, "done": 1, "copy": 0, "failed": 0, "missing": 0}
        study = Study(tables.cells, counts, {}, tables=tables, options=Options(), analysed=1)
        told = " ".join(_evaluation(study))
        assert ("α̂ compares the distribution" in told) is is_told
        assert ("[@banerjee2025]" in told) is is_told


def test_every_classifier_is_spelt_out() -> None:
    ours = {name for name, one in CLASSIFIERS.items() if not one.about}
    assert ours == {*_SPELT}


def test_nothing_is_said_of_test_sets_that_were_imported(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    of = {"labels": rng.integers(0, 2, (3, 20)), "y_true": rng.integers(0, 2, 20)}
    sweep = Sweep.from_predictions(of, tmp_path / "s", dataset="d", classifier="c")
    told = {one.headline: one.details[0] for one in sweep.answers("methods")}
    assert "test set" not in told["Data"]
    assert "with 1 repeat (test set) of 3 runs each." in told["Runs"]


def test_the_tests_behind_verdicts_are_named_and_cited(quick_analysed: Sweep) -> None:
    told = dict(quick_analysed.methods())["Evaluation"]
    for said in (
        "paired by test set, with Student's t over test sets, at 95 %.",
        "runs with the same index are paired where they share random streams",
        "Satterthwaite's degrees of freedom [@satterthwaite1946]",
        "Welch's [@welch1947]",
        "each test set is one observation of a paired t test, and the interval is widened at "
        "either end to that over seeds, where that reaches further.",
        "P(A better than B) is the probability of improvement [@agarwal2021]",
        "Effects of training fraction and continuous perturbation are differences from the "
        "reference level (1.0 and none), paired by test set, with t tests over test sets; p values "
        "are corrected for the number of comparisons of a metric (Holm's method [@holm1979]).",
    ):
        assert said in told, told
    assert "of a data set together" not in told, "of one pair of classifiers nothing is corrected"
    assert "alone does not hold for all pairs of the table together (Bonferroni's" in told
    code, text = inside("methods", quick_analysed.directory, "--format", "bibtex")
    assert code == 0
    assert "@article{holm1979,\n  author = {S. Holm},\n" in text
    journal = "  journal = {Biometrika},\n  volume = {34},\n"
    journal += "  number = {1--2},\n  pages = {28--35},\n"
    assert f"{journal}  doi = {{10.1093/biomet/34.1-2.28}},\n" in text
    for key, one in STUDIES.items():
        assert not one.journal[-1:].isdigit(), f"{key}: the volume is a field of its own"
    assert "@inproceedings{agarwal2021,\n" in text
    assert "Statistics in Medicine 25(4), 559–573, 2006" in STUDIES["newcombe2006"].text


def test_all_that_is_cited_has_an_entry_that_says_who_what_when_and_where() -> None:
    where = Path(wording.__file__).parent
    code = "".join(file.read_text("utf-8") for file in where.glob("*.py"))
    named = {*re.findall(r"\[@(\w+)\]", code), *re.findall(r'"([a-z]+\d{4}[a-z]*)"', code)}
    cited = named - {"key"}
    assert {"dunn1961", "pedregosa2011", "he2016deep"} <= cited <= {*STUDIES}
    for key, one in STUDIES.items():
        entry = one.bibtex(key)
        fields = dict(re.findall(r"^  (\w+) = \{(.*)\},$", entry, re.MULTILINE))
        assert {"author", "title"} <= {*fields}, entry
        assert "year" in fields or one.doi, entry  # a data set's years differ by who cites it
        if not one.note:  # this software has a version
            assert {*fields} & {"journal", "booktitle", "howpublished"}, entry
        assert ("arXiv" in fields.get("doi", "")) == (bool(one.arxiv) and not one.doi), entry
        assert all(value for value in fields.values()), entry


@pytest.mark.parametrize(
    ("sets", "classifiers", "said", "not_said"),
    [
        (3, 3, "95 % for all 3 pairs of classifiers of a data set together", "single test"),
        (1, 3, "(A > B) on the single test set alone, if Welch's t", "paired by test set, with"),
        (3, 1, "Intervals of means", "called better"),
    ],
)
def test_verdicts_are_explained_as_they_are_made(
    sets: int, classifiers: int, said: str, not_said: str
) -> None:
    tables = planted()
    cells = pl.concat(
        [tables.cells.head(1).with_columns(classifier=pl.lit(f"c{n}")) for n in range(classifiers)],
        how="vertical_relaxed",
    )
    of_sets = replace(tables, cells=tables.cells.with_columns(n_repeats=pl.lit(sets)))
    counts = {"runs": 1, "done": 1, "copy": 0, "failed": 0, "missing": 0}
    study = Study(cells, counts, {}, tables=of_sets, options=Options(), analysed=1)
    told = " ".join(_evaluation(study))
    assert (said in told, not_said in told) == (True, False), told


def test_data_that_are_known_and_linear_models_are_cited(tmp_path: Path) -> None:
    names = ("iris", "wine", "digits", "breast_cancer")
    listed = ", ".join(f'"sklearn:{name}"' for name in names)
    file = tmp_path / "s.toml"
    file.write_text(
        'name = "s"\nseed = 1\nrepeats = 1\nruns = 2\n[[grid]]\n'
        f'classifier = ["lr-sgd", "svm-sgd"]\ndataset = [{listed}]\n'
    )
    sweep = Sweep.plan(file, tmp_path / "s")
    code, text = inside("methods", sweep.directory, "--format", "latex")
    assert code == 0
    for key in ("fisher1936", "aeberhard", "alpaydin1998", "street1993", "bottou2010"):
        assert rf"\cite{{{key}}}" in text
    code, text = inside("methods", sweep.directory, "--format", "bibtex")
    assert (code, text.count("@article{fisher1936")) == (0, 1)
    assert "  howpublished = {UCI Machine Learning Repository},\n" in text
    own = text.partition("@misc{manyseed")[2].partition("\n}")[0]
    assert "  year = {20" in own


LINEAR = (
    ("", "alpha 0.0001, average no, eta0 0.001, penalty l2)"),
    ('hparams.penalty = "none"', "tol 0.001, average no, eta0 0.001, penalty none)"),
    ('hparams.penalty = "elasticnet"', "eta0 0.001, l1 ratio 0.15, penalty elasticnet)"),
    ('grid.penalty = ["l2", "elasticnet"]', "l1 ratio 0.15)"),
    ('defaults = "library"', "alpha 0.0001, average no, penalty l2)"),
    ('defaults = "library"\nhparams.penalty = "none"', "alpha 0.0001, average no, penalty none)"),
)


HPARAMS = 'hparams = ["grid"]\n'


def training_of(tmp_path: Path, classifier: str, of_grid: str = "", further: str = "") -> str:
    """Return what is said of the training of a classifier that is planned on iris."""
    file = tmp_path / "s.toml"
    file.write_text(
        'name = "s"\nseed = 1\nrepeats = 1\nruns = 2\n[[grid]]\n'
        f'classifier = ["{classifier}"]\ndataset = ["sklearn:iris"]\n{of_grid}\n{further}\n'
    )
    return dict(Sweep.plan(file, tmp_path / "s").methods())["Training"]


@pytest.mark.parametrize(("options", "said"), LINEAR)
def test_hparams_without_effect_are_not_told(tmp_path: Path, options: str, said: str) -> None:
    own = f"[classifier.lr-sgd]\n{options}"
    told = training_of(tmp_path, "lr-sgd", HPARAMS * ("grid" in options), own)
    assert said in told, told
    assert ("l1 ratio" in told) is ("elasticnet" in options)


def test_hparams_that_a_scheme_switches_on_are_told(tmp_path: Path) -> None:
    told = training_of(tmp_path, "lr-sgd", 'perturb_hparams = ["relative:0.1"]')
    assert "l1 ratio 0.15" in told, told


def test_the_mlp_is_called_what_its_source_describes(tmp_path: Path) -> None:
    told = training_of(tmp_path, "mlp")
    assert (
        "mlp [@martinez2017] (residual network of dense layers with batch normalisation, leaky "
        "ReLU and dropout; batch size 64,"
    ) in told


def test_help_says_how_references_are_asked_for() -> None:
    code, text = inside("methods", "--help")
    assert code == 0
    flat = " ".join(text.replace("│", " ").split())
    assert "bibtex: the entries of what the text cites" in flat
    assert ".bib" in flat


def test_folds_that_are_cut_to_the_smallest_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fold = ["0"] * 10 + ["1"] * 14 + ["2"] * 24
    lines = [f"{n % 7}.5,{'ab'[n % 2]},{fold[n]}" for n in range(48)]
    Path("one.csv").write_text("\n".join(["x,y,fold", *lines]) + "\n")
    Path("s.toml").write_text(
        'name = "s"\nseed = 1\nrepeats = 3\nruns = 1\n[[grid]]\nclassifier = ["lr-sgd"]\n'
        'dataset = ["one"]\n[dataset.one]\nsource = "file:one.csv"\ntarget = "y"\nfolds = "fold"\n'
    )
    with pytest.warns(UserWarning, match="drawn from those of larger ones"):
        sweep = train(Path("s.toml"), tmp_path / "s")
    sweep.analyze()
    said = " ".join(inside("answers", sweep.directory, "methods")[1].split())
    assert (
        "Each repeat has another of the data's folds (column fold) as its test set, or of larger "
        "ones (up to 24 rows) 10 rows drawn at random."
    ) in said


EACH = [(axis, one) for axis, schemes in TABLES.items() for one in schemes]


@pytest.mark.parametrize(("axis", "scheme"), EACH)
def test_each_scheme_of_noise_is_explained(axis: Axis, scheme: str) -> None:
    said = in_words(f"perturb_{axis}", ["none", f"{scheme}:0.1", f"{scheme}:0.2"])
    name = TABLES[axis][scheme].written or scheme
    assert re.fullmatch(rf" There, {name}:[kpc] (moves|draws|turns).+\.", said)
