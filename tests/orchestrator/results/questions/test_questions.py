"""Questions are records: a new one is a module, and is asked like all others."""

from __future__ import annotations

import html
import io
import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import manyseed.orchestrator.results.questions as folder
from manyseed import Sweep
from manyseed.analysis.questions.question import PAGE, Reply
from manyseed.orchestrator.cli import formats, guide
from manyseed.orchestrator.cli.columns import told_of_pairs
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing import import_predictions
from manyseed.orchestrator.results.questions import registry
from tests.orchestrator.conftest import command, inside

ROOT = Path(__file__).parents[4]


def example() -> str:
    """Return the module of a question that the page on extending shows."""
    page = (ROOT / "docs" / "extending.md").read_text()
    (text,) = re.findall(
        r'```python title="orchestrator/results/questions/best.py"\n(.*?)```', page, re.DOTALL
    )
    return str(text)


@pytest.fixture(scope="module")
def sweep(quick_analysed: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A copy of an analysed sweep: some answers are kept beside the results."""
    folder = tmp_path_factory.mktemp("asked") / "sweep"
    return Sweep(shutil.copytree(quick_analysed.directory, folder))


@pytest.fixture
def best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page's question, as one module more."""
    (tmp_path / "best.py").write_text(example())
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    registry.known.cache_clear()
    yield
    registry.known.cache_clear()
    sys.modules.pop(f"{folder.__name__}.best", None)


@pytest.mark.usefixtures("best")
def test_a_question_is_one_module_for_command_python_json_and_page(sweep: Sweep) -> None:
    runs = sweep.results["runs"]
    highest = runs["accuracy"].max()
    (answer,) = sweep.answers("best")
    assert answer.about == "best"
    assert answer.rows[0]["accuracy"] == highest
    assert answer.headline in sweep.answers()
    assert repr(sweep.answers()) == "\n".join(sweep.answers())
    code, said = inside("answers", sweep.directory, "best")
    assert (code, said.splitlines()[0]) == (0, answer.headline)
    some = ["--where", "classifier = 'lr-sgd'", "--json"]
    code, said = inside("answers", sweep.directory, "best", *some)
    (value,) = json.loads(said)["answers"]
    of_some = runs.filter(classifier="lr-sgd")
    assert value["rows"][0]["accuracy"] == of_some["accuracy"].max()
    assert (value["about"], value["rests_on"]) == ("best", f"From {of_some.height} runs.")
    assert answer.headline in sweep.report().read_text()
    code, said = inside("answers", "DIR", "best", "--help")
    assert "Only runs that meet a condition." in " ".join(said.split())
    code, said = inside("answers", "DIR", "--help")
    assert "Which run is the most accurate?" in said


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        ("compare", ("--metric", "ece")),
        ("compare", ("--alike",)),
        ("variance", ("--where", "metric = 'accuracy'")),
        ("howmany", ("--sizes", "1,2", "--draws", "10", "--by", "dataset,classifier")),
        ("howmany", ("--until", "0.2", "--dry-run")),
    ],
)
def test_verbs_of_before_say_what_their_questions_say(
    sweep: Sweep, verb: str, options: tuple[str, ...]
) -> None:
    directory = sweep.directory
    for more in ((), ("--json",)):
        asked = inside("answers", directory, verb, *options, *more)
        assert asked == inside(verb, directory, *options, *more)
        assert asked[0] == 0


@pytest.mark.parametrize("question", ["accuracy", "howmany", "compare", "alike", "variance"])
def test_every_question_is_a_table_for_a_paper(sweep: Sweep, question: str, tmp_path: Path) -> None:
    few = ("--sizes", "1,2", "--draws", "10") if question == "howmany" else ()
    asked = ("answers", sweep.directory, question, *few)
    code, text = inside(*asked, "--format", "csv")
    assert code == 0
    rows = pl.read_csv(io.StringIO(text))
    expected = sum(len(one.rows) for one in sweep.answers(question, **_few(question)))
    assert rows.height == expected > 0
    assert not any(rows[name].null_count() == rows.height for name in rows.columns)
    code, text = inside(*asked, "--format", "latex")
    assert code == 0
    printed = registry.reply(sweep, question, **_few(question)).table
    assert text.count(" \\\\\n") == (len(printed) or expected) + 1
    assert r"\toprule" in text
    first, second = rows.columns[:2]
    picked = ("--columns", f"{second},{first}", "--caption", "Runs", "--label", "tab:runs")
    code, text = inside(*asked, "--format", "latex", *picked)
    assert (code, text.count(" \\\\\n")) == (0, expected + 1)
    heads = text.split("\\toprule\n")[1].split(" \\\\\n")[0]
    assert heads.count(" & ") >= 1
    assert re.search(r"\\caption\{Runs\}\n\\label\{tab:runs\}\n(\{.*\n)?\\begin\{tabular\}", text)
    code, said = inside(*asked, "--format", "csv", "--columns", "nope")
    assert (code, "unknown column" in said) == (2, True)
    code, said = inside(*asked, "--columns", first)
    assert (code, "sentences have none" in said) == (2, True)
    for ending, start in ((".md", "| "), (".tex", "%"), (".json", "{"), (".txt", "")):
        code, said = inside(*asked, "--output", tmp_path / f"rows{ending}")
        assert code == 0
        assert f"rows{ending}" in "".join(said.split())
        assert (tmp_path / f"rows{ending}").read_text().startswith(start)
    whole = json.loads(inside(*asked, "--json")[1])
    assert json.loads((tmp_path / "rows.json").read_text()) == whole
    code, said = inside(*asked, "--format", "latex", "--json")
    assert (code, "contradicts --json" in said) == (2, True)
    code, said = inside(*asked, "--output", sweep.paths.results / "rows.csv")
    assert (code, "among the sweep's own files" in " ".join(said.split())) == (2, True)


def _few(question: str) -> dict[str, Any]:
    return {"sizes": [1, 2], "draws": 10} if question == "howmany" else {}


def test_every_question_can_be_asked(sweep: Sweep, quick_calibrated: Sweep) -> None:
    needed = {"until": {"half_width": 0.2, "dry_run": True}, "howmany": {"sizes": [1], "draws": 2}}
    for name in registry.known():
        asked = quick_calibrated if name == "dee" else sweep
        answers = asked.answers(name, **needed.get(name, {}))
        assert all(one.about == name and one.headline for one in answers)
        assert answers or name in ("standings", "scores", "effects", "consistency", "sources"), name


def test_where_nothing_changes_consistency_the_command_that_tells_it_works(tmp_path: Path) -> None:
    rng, truth = np.random.default_rng(0), np.arange(80) % 2
    rows = [
        {"classifier": name, "seed": seed, "id": f"row {i}", "truth": t, "prediction": t ^ one}
        for name in "ab"
        for seed in range(4)
        for i, (t, one) in enumerate(zip(truth, rng.random(80) < 0.2, strict=True))
    ]
    pl.DataFrame(rows).write_csv(tmp_path / "long.csv")
    named = ("--columns", "run=seed,classifier=classifier,row_id=id")
    done = command("import", tmp_path / "long.csv", "--out", tmp_path / "a", *named)
    assert done.returncode == 0, done.output
    assert command("analyze", tmp_path / "a").returncode == 0
    done = command("answers", tmp_path / "a", "consistency")
    words = shlex.split(" ".join(done.stdout.split()).partition("how large it is: manyseed ")[2])
    assert "allow no answers" in done.stdout
    done = command(*words)
    assert done.returncode == 0
    assert "ec_local_mean" in done.stdout


def test_every_format_of_every_question_has_rows_or_says_why_not(
    sweep: Sweep, quick_calibrated: Sweep, tmp_path: Path
) -> None:
    needed = {
        "until": ("--half-width", 0.2, "--dry-run"),
        "howmany": ("--sizes", 1, "--draws", 2),
    }
    forms = (
        ("--format", "csv"),
        ("-f", "markdown"),
        ("-f", "latex"),
        ("-o", tmp_path / "a.parquet"),
    )
    silent = set()
    for name in registry.known():
        asked = (quick_calibrated if name == "dee" else sweep).directory
        for form in forms:
            done = command("answers", asked, name, *needed.get(name, ()), *form)
            assert done.returncode == 0, done.output
            if "The answer has no rows: " in done.stderr:
                silent.add(name)
            elif "allow no answers" not in done.stderr:
                assert (
                    "row" in done.stdout
                    or len(done.stdout.splitlines()) > 1
                    or "section" in done.stdout
                ), done.output
            else:
                assert not sweep.answers(name)
    assert "levels" in silent
    done = command("answers", sweep.directory, "levels", "--format", "csv")
    (answer,) = sweep.answers("levels")
    assert done.stderr == f"The answer has no rows: {answer.headline}\n"


def test_one_run_apart_is_told_from_the_majority_that_the_table_knows(tmp_path: Path) -> None:
    """Against all others, the one would move the reference of every run."""
    rng, n = np.random.default_rng(0), 3000
    y_true = rng.integers(0, 2, n)
    scores = (rng.normal(size=n) + 2 * y_true - 1 + rng.normal(0, 0.1, (6, n))).astype(np.float32)
    scores[3] = 9 * rng.normal(size=n)
    np.savez(tmp_path / "a.npz", scores=scores, y_true=y_true)
    import_predictions([tmp_path / "a.npz"], tmp_path / "imported")
    sweep = Sweep(tmp_path / "imported")
    sweep.analyze()
    headline, *_ = sweep.answers("levels")[0].headline.splitlines()
    assert headline.startswith("1 of 6 runs is unlike the others (imported 1); see run 0:0:3.")
    page = html.unescape(re.sub("<[^>]+>", "", sweep.report().read_text()))
    for text in (*sweep.answers(), *sweep.answers(why=True)):
        assert all(" ".join(line.split()) in " ".join(page.split()) for line in text.splitlines())


def test_evidence_of_one_question_is_in_its_answers(sweep: Sweep) -> None:
    with pytest.raises(UserError, match=r"why: applies only without a question"):
        sweep.answers("variance", why=True)
    assert sweep.answers("variance")[0].text


def test_the_side_that_is_told_to_be_better_is_bold(tmp_path: Path) -> None:
    rng, y_true = np.random.default_rng(0), np.arange(300) % 2
    for name, wrong in (("good", 0.1), ("bad", 0.4), ("twin", 0.4)):
        flips = rng.random((6, 300)) < wrong
        np.savez(tmp_path / f"{name}.npz", labels=(y_true ^ flips).astype(int), y_true=y_true)
    files = sorted(tmp_path.glob("*.npz"))
    import_predictions(files, tmp_path / "imported", name="{classifier}.npz")
    sweep = Sweep(tmp_path / "imported")
    sweep.analyze()
    rows = [row for one in sweep.answers("compare") for row in one.rows]
    verdicts = [row["verdict"] for row in rows]
    assert verdicts == ["b better", "not told", "a better"]
    for columns in ((), ("--columns", "mean_a,mean_b")):
        asked = ("compare", sweep.directory, "--bold", "best", *columns)
        code, text = inside(*asked, "--format", "markdown")
        assert code == 0
        bodies = [line.strip("| ").split(" | ") for line in text.splitlines() if line[:1] == "|"]
        heads = bodies[0]
        a, b = (heads.index(f"mean {side}") for side in "AB")
        bold = [("**" in body[a], "**" in body[b]) for body in bodies[2:]]
        assert bold == [(False, True), (False, False), (True, False)]
        assert ("difference" in heads) is not bool(columns)
        assert len(heads) == (4 if columns else 9)  # a and b, without which rows look alike
        assert not columns or "Dataset: imported." in text
        assert "Bold: the better side, where that is told for all pairs together." in text


def test_a_side_that_is_better_alone_is_not_bold() -> None:
    """Six rows were bold beside a verdict that four of them are not told for all pairs together."""
    rows = pl.DataFrame(
        {
            "a": ["x", "x", "y"],
            "b": ["y", "z", "z"],
            "verdict": ["a better", "b better", "not told"],
            "together_verdict": ["a better", "not told", "not told"],
        }
    )
    text = formats.in_format(rows, "markdown", {}, [], formats.Paper(bold="best")).decode()
    assert "| **x** | y | x better | x better |" in text
    assert "| x | z | z better, alone | not told |" in text
    single = rows.drop("together_verdict")
    text = formats.in_format(single, "markdown", {}, [], formats.Paper(bold="best")).decode()
    assert "| x | **z** | z better |" in text
    assert "Bold: the better side, where that is told." in text


def test_a_comparison_for_a_paper_names_dataset_and_sides_in_columns(sweep: Sweep) -> None:
    asked = ("compare", sweep.directory)
    code, text = inside(*asked, "-f", "csv")
    rows = pl.read_csv(io.StringIO(text))
    assert code == 0
    assert rows.columns[0] == "dataset"
    apart = {one.axes["classifier"] for pair in sweep.compare() for one in (pair.a, pair.b)}
    assert {*rows["a"], *rows["b"]} == apart
    assert {"cell_a", "cell_b", "verdict", "difference", "low", "high", "better"} <= {*rows.columns}
    code, text = inside(*asked, "--columns", "?", "-f", "csv")
    listed = pl.read_csv(io.StringIO(text))
    assert (code, listed["column"].to_list()) == (0, rows.columns)
    assert listed["meaning"].null_count() == 0
    low = listed.filter(column="sets_low")["meaning"].item()
    assert low == "Lower end: Interval of the difference over seeds and new test sets."
    assert "mean_a - mean_b" in inside(*asked, "--columns", "?")[1]
    code, text = inside("answers", sweep.directory, "accuracy", "--columns", "?")
    assert (code, "classifier" in text, "meaning" in text) == (0, True, False)
    code, text = inside(*asked, "-f", "csv", "--columns", "x")
    assert (code, "--columns '?' lists all" in " ".join(text.split())) == (2, True)
    code, text = inside("query", sweep.directory, "--columns", "nothing")
    assert (code, "--columns '?' lists all" in " ".join(text.split())) == (2, True)
    code, text = inside(*asked, "-f", "latex")
    head = next(line for line in text.splitlines() if line.startswith("dataset & "))
    assert (code, " & A & B & verdict & difference & " in head) == (0, True)
    assert "(cell 0)" not in text
    code, text = inside(*asked, "-f", "latex", "--bold", "best", "--columns", "difference,verdict")
    assert (code, "accuracy_mean" in text, "mean_a,mean_b" in text) == (2, False, True)


def test_a_table_without_verdicts_has_no_notes_on_them() -> None:
    first = "95 %: over seeds and new test sets, each by itself."
    held = "For all 18 together, 1 of 6 verdicts holds; alone: only by itself."
    family = "For the 3 pairs of lake together: lr-sgd > xgb."
    found = Reply([], below=[f"{first} {held} {family}"])
    assert told_of_pairs(found, ["a", "b", "verdict"])[0] == f"{first} {held} {family}"
    assert told_of_pairs(found, ["a", "b", "mean_a", "low", "high"])[0] == first


def test_a_table_has_notes_on_the_intervals_that_it_shows() -> None:
    """Below intervals at 99.17 % stood that each holds by itself at 95 %."""
    own, held = "95 %: over seeds, each by itself.", "For all 6 together, 2 of 3 verdicts hold."
    family, together = "For the 3 pairs of lake together: lr-sgd > xgb.", "95 % for all 6 together."
    p = "P: that the first of a pair is better."
    below = [f"{own} {held} {family}", "Told alone: x > y.", p]
    found = Reply([], below=below, together=together)
    wide = ["together_low", "together_high"]
    for columns, said in (
        (wide, [together]),
        ([*wide, "together_verdict"], [f"{together} {family}"]),
        ([*wide, "low", "high"], [own, together]),
        ([*wide, "low", "high", "verdict"], [f"{own} {held} {family}", together]),
        (["better"], [p]),
    ):
        told = told_of_pairs(found, ["a", "b", *columns])
        assert [one for one in told if not one.startswith("Low, high")] == said, columns


def test_levels_that_sides_share_are_named(sweep: Sweep) -> None:
    """The column of a table for a paper was headed "with", and nothing said what its levels are."""
    asked, one = ("compare", sweep.directory, "-f"), ("-w", "perturb_continuous = 'none'")
    code, text = inside(*asked, "markdown", "--columns", "a,b,difference", *one)
    assert (code, text.splitlines()[0]) == (0, "| training fraction | A | B | difference |")
    code, text = inside(*asked, "markdown", *one)
    assert (code, "| training fraction | A | B | verdict |" in text) == (0, True)
    code, text = inside(*asked, "csv", "--columns", "train_fraction,a", *one)
    assert (code, text.splitlines()[0]) == (0, "train_fraction,a")
    assert set(pl.read_csv(io.StringIO(text))["train_fraction"]) == {0.5, 1.0}
    code, text = inside(*asked, "csv", "--columns", "with,a", *one)
    assert (code, text.splitlines()[0]) == (0, "with,a")
    note = "with: training fraction, continuous perturbation."
    for columns in ((), ("--columns", "a,b,difference")):
        code, text = inside(*asked, "markdown", *columns)
        assert (code, "| with | A | B |" in text, note in text) == (0, True, True), columns
    code, text = inside(*asked, "csv", "--columns", "vary,a")
    assert (code, "no column of its own" in text) == (2, True)


def test_intervals_for_all_pairs_are_said_to_be_so(sweep: Sweep) -> None:
    asked = ("compare", sweep.directory, "-f", "markdown", "--columns")
    code, wide = inside(*asked, "a,b,together_low,together_high")
    assert (code, " pairs together: over " in wide, "by itself" in wide) == (0, True, False)
    code, text = inside(*asked, "a,b,low,high")
    assert (code, " pairs together: over " in text, "each by itself" in text) == (0, False, True)


def test_effects_for_a_paper_fit_a_page(sweep: Sweep) -> None:
    code, text = inside("answers", sweep.directory, "effects", "-f", "latex")
    assert (code, "% wide" in text) == (0, False), text
    head = next(line for line in text.splitlines() if line.startswith("classifier & metric"))
    assert "difference & low & high" in head


def test_every_form_of_an_answer_has_the_same_intervals(sweep: Sweep) -> None:
    asked = ("answers", sweep.directory, "accuracy")
    rows = pl.read_csv(io.StringIO(inside(*asked, "-f", "csv")[1])).to_dicts()
    code, told = inside(*asked, "--json")
    assert code == 0
    in_json = [row for one in json.loads(told)["answers"] for row in one["rows"]]
    ends = ("classifier", "value", "low", "high")
    assert [[row[name] for name in ends] for row in rows] == [
        [row[name] for name in ends] for row in in_json
    ]
    evidence = inside(*asked, "--why")[1]
    latex = inside(*asked, "-f", "latex")[1]
    for row in rows:
        value, low, high = row["value"], row["low"], row["high"]
        assert 0 <= low < value < high <= 1
        around = abs(low + high - 2 * value) < 1e-9
        words = f"({low:.4f} to {high:.4f})"
        assert f"{row['classifier']} {value:.4f} {f'± {value - low:.4f}' if around else words}" in (
            " ".join(evidence.split())
        )
        column = latex.count(" to ") > 1  # of one form
        assert (words if column else f"{value:.4f} \\pm {value - low:.4f}") in latex


def test_answers_for_a_paper_are_as_wide_as_their_numbers(sweep: Sweep) -> None:
    code, text = inside("answers", sweep.directory, "accuracy", "-f", "latex", "--bold", "best")
    assert (code, "& accuracy" in text, "Bold: only the best number" in text) == (0, True, True)
    found = sweep.answers("points")
    code, text = inside("answers", sweep.directory, "points", "-f", "markdown", "--limit", 2)
    assert code == 0
    for one in found:
        if one.rows:
            assert text.count(one.headline[:30]) <= 1
    heads = [line for line in text.splitlines() if line.startswith("| ") and "index" in line]
    assert heads
    assert not any("cells" in line.split(" | ")[0] for line in heads)
    frame = pl.DataFrame({"index": [12345], "n": [12345]})
    printed = formats.in_format(frame, "markdown", {}, []).decode()
    assert "| 12345 | 12,345 |" in printed


def test_the_methods_of_a_paper_are_those_of_the_sweep(sweep: Sweep, tmp_path: Path) -> None:
    counts = sweep.survey().counts
    told = {one.headline: one.details[0] for one in sweep.answers("methods")}
    assert [*told] == ["Data", "Training", "Runs", "Evaluation", "Software"]
    cited = "cancer (Street et al. 1993) (sklearn:breast_cancer; 569 rows, 30 features"
    assert f"{cited}, 2 classes, 427" in told["Data"]
    assert "its own test set, 25 % of the rows, stratified by class; the rest" in told["Data"]
    spelt = "logistic regression fitted by stochastic gradient descent"
    assert f"lr-sgd (Bottou 2010) ({spelt}; max iter 1000, schedule adaptive" in told["Training"]
    assert "For lr-sgd, numbers are standardised by the training" in told["Training"]
    assert "Runs that share a test set differ in batch" in told["Training"]
    assert " Of these, batch reaches lr-sgd; none reaches xgb. " in told["Training"]
    assert "Continuous perturbation: none and relative:0.5." in told["Training"]
    assert "8 combinations" in told["Runs"]
    assert "2 repeats (test sets) of 4 runs each" in told["Runs"]
    assert f"Of 64 planned runs, 64 finished, {counts['copy']} of them copies (of " in told["Runs"]
    assert re.search(r"copies \(of .*xgb in \d of its \d combinations\), as nothing", told["Runs"])
    assert "Unfinished" not in told["Runs"]
    meaning = "Accuracy: Share of the test points that the run gets right."
    assert meaning in told["Evaluation"]
    assert f"numpy {np.__version__}" in told["Software"]
    assert "the seed 7." in told["Software"]
    for verb in (("answers", sweep.directory, "methods"), ("methods", sweep.directory)):
        code, text = inside(*verb, "--format", "latex")
        assert code == 0
        assert re.findall(r"\\paragraph\{(\w+)\.\}", text) == [*told]
        bare = re.sub(r"\\[&%$#_{}]|\\cite\{\w+\}|\$[^$]*\$", "", text)
        assert not re.search(r"[%#~&_^@$]", bare)
        cited = set(re.findall(r"\\cite\{(\w+)\}", text))
    file = tmp_path / "references.bib"
    code, _ = inside("methods", sweep.directory, "--output", file)
    entries = re.findall(r"^@\w+\{(\w+),$", file.read_text(), re.MULTILINE)
    assert (code, {*entries}, len(entries)) == (0, cited, len(cited))
    tests = {
        "agarwal2021",
        "dunn1961",
        "bottou2010",
        "street1993",
        "holm1979",
        "newcombe2006",
        "satterthwaite1946",
        "welch1947",
    }
    assert {"chen2016", "manyseed", "pedregosa2011"} | tests == cited
    assert "[@chen2016]" in inside("methods", sweep.directory, "-f", "markdown")[1]
    for wrong in (("-f", "latex", "--bold", "best"), ("-f", "xml")):
        assert inside("methods", sweep.directory, *wrong)[0] == 2
    code, said = inside("compare", sweep.directory, "--format", "bibtex")
    assert (code, "unknown format" in said) == (2, True)


def test_methods_say_what_is_missing_and_not_what_is_unknown(quick: Sweep, tmp_path: Path) -> None:
    planned = Sweep.plan(quick.paths.sweep_file, tmp_path / "planned")
    told = {one.headline: one.details[0] for one in planned.answers("methods")}
    assert told["Runs"].startswith("Unfinished: 64 of 64 runs are missing.")
    assert told["Evaluation"] == "Not analysed yet."
    assert "numpy" not in told["Software"]
    alone = tmp_path / "alone.toml"
    alone.write_text(re.sub(r"\bruns *= *\d+", "runs = 1", quick.paths.sweep_file.read_text()))
    told = {
        one.headline: one.details[0]
        for one in Sweep.plan(alone, tmp_path / "alone").answers("methods")
    }
    assert "differ in" not in told["Training"]


def test_a_question_of_the_page_is_answered_as_the_page_does(sweep: Sweep) -> None:
    every = sweep.answers(why=True)
    for name in ("accuracy", "enough"):
        assert {one.text for one in sweep.answers(name)} <= {*every}


def test_wrong_questions_and_options_are_refused(sweep: Sweep) -> None:
    with pytest.raises(UserError, match="no such question"):
        sweep.answers("varience")
    with pytest.raises(UserError, match="has no such argument"):
        sweep.answers("variance", metric="ece")
    code, said = inside("answers", sweep.directory, "varience")
    assert code == 2
    assert "variance" in said
    code, said = inside("answers", sweep.directory, "howmany", "--most", "3")
    assert code == 2
    assert "--most = 3: applies only with --until" in said
    for metric in ("ece", "alpha_hat"):
        code, said = inside("howmany", sweep.directory, "--metric", metric)
        assert code == 2
        assert "valid with --until: accuracy, alpha_hat, alpha_hat_mean" in said
        by = "--by dataset,classifier --columns ece --agg mean,sd"
        assert (by in said) == (metric == "ece")
        assert f"--until 0.002 --metric {metric.replace('ece', 'accuracy')}" in said


def test_the_table_of_questions_is_that_of_the_records() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*\?) \| ([^|]*) \|$", page, re.MULTILINE)
    told = {name for name, _, _ in rows}
    assert rows == [
        (one.name, one.asks, ", ".join(f"`{table}`" for table in one.tables))
        for one in registry.known().values()
        if one.name in told
    ]
    assert {one.name for one in PAGE} < told
    further = guide.completed("commands", page).removeprefix(page)
    for one in registry.known().values():
        assert (f"- `{one.name}`: {one.asks}" in further) is (one.name not in told)
    without = page.replace("| `points` |", "| points |")
    assert "- `points`: Which test points flip" in guide.completed("commands", without)


def test_a_question_by_another_name_is_told_what_asks_it():
    with pytest.raises(UserError, match="points: Which test points flip between runs"):
        registry.named("hard")
    with pytest.raises(UserError, match="manyseed answers DIR points --kind hard"):
        registry.named("Hard")
    for name, meant in registry._MEANT.items():
        assert meant in registry.known()
        assert name not in registry.known()


def test_headlines_say_which_runs_they_are_of(quick_analysed: Sweep) -> None:
    directory = quick_analysed.directory
    code, text = inside("answers", directory)
    assert code == 0
    first = next(line for line in text.splitlines() if line.startswith("Accuracy, spread"))
    runs = quick_analysed.results["runs"].filter(~pl.col("identical"))
    usual = runs.filter(perturb_continuous="none", train_fraction=1.0)
    counts = f"{usual.height:,} of {runs.height:,}"
    assert first == f"Accuracy, spread, points: {counts} runs, without noise, on all rows."
    why = " ".join(inside("answers", directory, "--why")[1].split())
    assert f"runs with perturb continuous none, train fraction 1.0 alone: {counts}" in why
    [more] = [line for line in text.splitlines() if line.startswith("Of other runs: ")]
    asked = shlex.split(more.partition(": manyseed ")[2])
    code, others = inside(*asked)
    assert code == 0, others
    axis = asked[-1].partition(" = ")[0].replace("_", " ")
    assert axis in why
    assert f"are of the runs with {axis}" not in others
    assert quick_analysed.answers(where=asked[-1]) != quick_analysed.answers()
    assert inside(*asked, "points") == inside("answers", directory, "points", *asked[-2:])
    code, text = inside("answers", directory, "--where", "train_fraction = 3")
    assert code == 2
    assert "no analysed cell meets it" in text


def test_figure_1_says_which_runs_it_is_of(quick_analysed: Sweep) -> None:
    said = quick_analysed.plot.all("classifiers")[0].caption
    assert "Only the runs with perturb continuous none, train fraction 1.0." in said
