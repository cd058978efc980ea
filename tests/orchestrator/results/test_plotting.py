"""Figures of a real sweep: from the command, as files, and from Python."""

from __future__ import annotations

import html
import json
import re
import shutil
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace

import polars as pl
import pytest
from matplotlib.figure import Figure

from manyseed import Sweep
from manyseed.analysis.figures.drawing import find
from manyseed.analysis.figures.labels import OF, Quantity, colour, labelled, schemas, table_of
from manyseed.analysis.figures.style import shapes_told
from manyseed.jobs.datasets.sources import resolve
from manyseed.jobs.datasets.split import n_points
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.results.answers.compare import compare_cells
from manyseed.orchestrator.results.answers.comparison import is_alone, side_told, told_apart
from manyseed.orchestrator.results.figures import save, usual
from tests.analysis.planted import planted
from tests.here import Done
from tests.orchestrator.conftest import command, inside, train, write

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="module")
def sweep(quick_analysed: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """An analysed sweep; tests only read it."""
    folder = tmp_path_factory.mktemp("plot") / "sweep"
    return Sweep(shutil.copytree(quick_analysed.directory, folder))


CONFIGURED = """
name    = "configured"
seed    = 7
repeats = 2
runs    = 3

[[grid]]
dataset        = ["sklearn:wine"]
classifier     = ["lr-sgd", "svm-sgd"]
train_fraction = [0.5, 1.0]

[[grid]]
dataset        = ["sklearn:wine"]
classifier     = ["mlp"]
hparams        = ["grid"]
train_fraction = [0.5, 1.0]

[classifier.mlp]
epochs = 2
grid   = { width1 = [32, 64] }
"""


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """An analysed sweep in which one classifier of three has a grid of hparams."""
    folder = tmp_path_factory.mktemp("configured")
    sweep = train(write(folder / "sweep.toml", CONFIGURED), folder / "sweep")
    sweep.analyze(workers=1)
    return sweep


def held(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_figure_is_drawn_from_python_of_the_numbers_of_the_tables(sweep: Sweep) -> None:
    figure = sweep.plot.accuracy(by="perturb_continuous", where="classifier = 'xgb'")
    assert isinstance(figure, Figure)
    (axis,) = figure.axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ["none", "relative:0.5"]
    assert axis.get_xlabel() == "continuous perturbation"
    runs = sweep.results["runs"].filter(classifier="xgb", identical=False)
    expected = [
        runs.filter(perturb_continuous=scheme)["accuracy"].median()
        for scheme in ("none", "relative:0.5")
    ]
    black = [line for line in axis.get_lines() if line.get_color() == "black"]
    assert [float(line.get_ydata()[0]) for line in black] == pytest.approx(expected)
    (plot,) = sweep.plot.all("accuracy", by="perturb_continuous", where="classifier = 'xgb'")
    assert plot.n == runs.height
    assert plot.caption.startswith("Share of the test points that the run gets right. n = ")
    wide = sweep.plot("accuracy", by="classifier", width="single")
    assert wide.get_figwidth() == pytest.approx(89 / 25.4)


def test_all_kinds_that_are_listed_are_drawn(sweep: Sweep) -> None:
    kinds = sweep.plot.kinds
    assert kinds.columns == ["kind", "of", "shows"]
    named = dict(kinds.select("kind", "of").iter_rows())
    assert named["accuracy"] == "runs"
    assert named["ec_local"] == "pairs"
    assert named["accuracy_range"] == "repeats"
    assert named["cells"] == "page"
    assert "ensembles-close" not in named  # howmany was not asked
    assert not {"cell", "run_index", "delta", "train_fraction", "n_runs"} & set(named)
    assert {"accuracy", "alpha_hat_accuracy"} <= set(dir(sweep.plot))
    some = [name for name, of in named.items() if of in OF][::12]
    for name in some:
        assert sweep.plot.all(name, by="classifier"), name


def test_the_command_writes_the_same_file_again_and_prints_the_caption(
    sweep: Sweep, tmp_path: Path
) -> None:
    files = [tmp_path / name for name in ("one.pdf", "other.pdf")]
    for file in files:
        code, told = inside("plot", sweep.directory, "accuracy", "--by", "classifier", "-o", file)
        assert code == 0
        assert "n = " in told
        assert told.splitlines()[-1] == f"Wrote {file}."
    assert files[0].read_bytes() == files[1].read_bytes()
    code, told = inside("plot", sweep.directory, "cells", "-o", tmp_path / "c.svg", "--json")
    found = json.loads(told)
    assert (code, found["schema"], found["files"]) == (0, 1, [str(tmp_path / "c.svg")])
    assert "n = " in found["figures"][0]["caption"]
    code, told = inside("plot", sweep.directory)
    assert (code, "accuracy_range" in told) == (0, True)
    every = inside("plot", sweep.directory, "--all")[1]
    assert inside("plot", sweep.directory, "?") == (0, every)
    assert len(every.splitlines()) > sweep.plot.kinds.height > 40 > len(told.splitlines()) > 8
    assert f"All {sweep.plot.kinds.height:,} kinds: " in told
    first = dict(usual(sweep.paths).select("kind", "shows").iter_rows())
    assert first["levels"].startswith("with --where: mean accuracy by the level of an axis")
    for kind, shows in first.items():
        where = "perturb_continuous = 'none'" if shows.startswith("with --where") else None
        assert sweep.plot.all(kind, where=where), kind


def test_means_are_those_of_query_with_its_intervals(sweep: Sweep) -> None:
    for kind, metric in (("means", "accuracy"), ("means-ece", "ece"), ("means_brier", "brier")):
        (plot,) = sweep.plot.all(kind)
        assert plot.data is not None
        asked = sweep.query("runs", by=["cell"], columns=[metric])
        ends = {f"{metric}_ci_low": "low", f"{metric}_ci_high": "high", metric: "mean"}
        expected = {row["cell"]: row for row in asked.rename(ends).iter_rows(named=True)}
        for row in plot.data.iter_rows(named=True):
            for name in ("mean", "low", "high"):
                assert row[name] == pytest.approx(expected[row["cell"]][name]), (kind, name)
        (axis,) = plot.figure.axes
        lines = [line for line in axis.lines if line.get_linestyle() == "-"]
        dots = [line for line in axis.lines if line.get_linestyle() != "-"]
        assert len(dots) == plot.data.height
        assert len(lines) == plot.data["low"].count() > 0
        looks = {(dot.get_color(), dot.get_marker()) for dot in dots}
        assert len(looks) == plot.data["classifier"].n_unique()
        assert "95 % intervals over seeds and new test sets" in plot.caption


def test_rows_of_means_have_their_levels_in_order_and_the_caption_names_the_axes(
    sweep: Sweep,
) -> None:
    """A row of the usual levels had none, and nothing said what the numbers of others were."""
    (plot,) = sweep.plot.all("means", where="perturb_continuous = 'none'")
    (axis,) = plot.figure.axes
    rows = [label.get_text() for label in axis.get_yticklabels()]
    assert rows == ["lr-sgd · 0.5", "xgb · 0.5", "lr-sgd · 1.0", "xgb · 1.0"]
    assert "Rows: classifier · training fraction. " in plot.caption
    (both,) = sweep.plot.all("means")
    assert "Rows: classifier · training fraction · continuous perturbation. " in both.caption
    (alone,) = sweep.plot.all("means", where="perturb_continuous = 'none' AND train_fraction = 1")
    assert "Rows: " not in alone.caption


def test_means_say_how_many_of_their_runs_are_copies(sweep: Sweep) -> None:
    (plot,) = sweep.plot.all("means")
    copies = int(sweep.results["runs"]["identical"].sum())
    assert copies > 0
    assert f"n = {plot.n} runs, {copies} of them identical copies." in plot.caption
    (none,) = sweep.plot.all("means", where="classifier = 'lr-sgd'")
    assert "copies" not in none.caption


def test_levels_are_means_of_query_by_a_number(sweep: Sweep) -> None:
    """A line per classifier by training fraction or noise, which no kind drew."""
    for where, label, values in (
        ("perturb_continuous = 'none'", "training fraction", {0.5, 1.0}),
        ("train_fraction = 1", "continuous perturbation (relative)", {0.0, 0.5}),
    ):
        (plot,) = sweep.plot.all("levels", where=where, width="single")
        assert plot.data is not None
        means = sweep.plot.all("means", where=where)[0].data
        assert means is not None
        same = ["cell", "mean", "low", "high"]
        assert plot.data.select(same).sort("cell").equals(means.select(same).sort("cell"))
        assert {*plot.data["level"]} == values
        (axis,) = plot.figure.axes
        assert axis.get_xlabel() == label
        lines = [line for line in axis.lines if line.get_marker() != "None"]
        assert len(lines) == 2
        assert len({(line.get_color(), line.get_marker()) for line in lines}) == 2
        assert plot.figure.get_figwidth() == pytest.approx(89 / 25.4)
        assert "95 % intervals over seeds and new test sets" in plot.caption
    one = "classifier = 'xgb' AND perturb_continuous = 'none' AND train_fraction = 1"
    with pytest.raises(UserError, match="levels are numbers, and cells differ in none"):
        sweep.plot.all("levels", where=one)
    code, told = inside("plot", sweep.directory, "levels")
    assert code == 2
    said = "levels of training fraction, and cells differ in continuous perturbation too: "
    assert f"{said}--where \"perturb_continuous = 'none'\"" in told


MIXED = """
name    = "mixed"
seed    = 7
repeats = 1
runs    = 3

[[grid]]
dataset        = ["sklearn:wine"]
classifier     = ["lr-sgd"]
train_fraction = [20, 100, 0.5, 1.0]
"""


def test_shares_are_placed_among_numbers_of_rows(tmp_path: Path) -> None:
    sweep = train(write(tmp_path / "mixed.toml", MIXED), tmp_path / "mixed")
    sweep.analyze(workers=1)
    n = resolve("sklearn:wine").n_train
    rows = [20.0, float(n_points(0.5, n)), 100.0, float(n)]
    for words in (("accuracy", "--by", "train_fraction"), ("levels",), ("means",)):
        out = tmp_path / f"{words[0]}.csv"
        assert inside("plot", sweep.directory, *words, "--out", out)[0] == 0
        assert pl.read_csv(out)["train_fraction"].to_list() == rows
    said = inside("query", sweep.directory)[1]
    assert re.findall(r"\d+ rows", said) == ["20 rows", "100 rows"]
    assert "(train fraction 1.0)" in inside("answers", sweep.directory, "--why")[1]


def test_captions_of_cells_say_what_is_drawn(sweep: Sweep) -> None:
    """Densities, bars, dots and medians were explained with --by alone."""
    (plot,) = sweep.plot.all("accuracy")
    said = "dots: single values, up to 30; bars: middle half and range, for more values; lines: "
    assert f"test set are equal; {said}medians. " in plot.caption
    both = [
        shapes_told([Quantity(name, name, pl.DataFrame(), "")]) for name in ("ece", "alpha_hat")
    ]
    assert ["density, for 6 values or more" in one for one in both] == [True, False]
    bars = shapes_told([Quantity("ece", "ECE", pl.DataFrame(), "")], rich=False)
    assert ("density" in bars, "dots: single values, up to 5; " in bars) == (False, True)


def test_rows_of_differences_have_their_levels_in_order(sweep: Sweep) -> None:
    (plot,) = sweep.plot.all("differences", where="perturb_continuous = 'none'")
    (axis,) = plot.figure.axes
    rows = [label.get_text() for label in axis.get_yticklabels()]
    assert rows == ["lr-sgd − xgb · 0.5", "lr-sgd − xgb · 1.0"]
    assert "Rows: classifier · training fraction. " in plot.caption
    where = "classifier = 'xgb' AND perturb_continuous = 'none'"
    (plot,) = sweep.plot.all("differences", where=where)
    assert "Rows: classifier · training fraction. " in plot.caption


def test_differences_have_a_row_for_each_pair_of_cells(configured: Sweep) -> None:
    """Pairs of two widths of a classifier shared a row, and one was called mlp − mlp."""
    where = "train_fraction = 1"
    (plot,) = configured.plot.all("differences", where=where)
    (axis,) = plot.figure.axes
    rows = [label.get_text() for label in axis.get_yticklabels()]
    pairs = [told_apart(one) for one in configured.compare(where=where)]
    assert rows == [f"{a} − {b}" for a, b in pairs]
    assert len({*rows}) == plot.n == 6
    assert "mlp, width1=32 − mlp, width1=64" in rows
    assert "Rows: classifier · hparams. " in plot.caption


def test_levels_have_a_line_for_each_set_of_hparams(configured: Sweep) -> None:
    """The remedy chose the hparams of all but one classifier, which was left out unsaid."""
    (plot,) = configured.plot.all("levels")
    (legend,) = plot.figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["lr-sgd", "mlp · width1=32", "mlp · width1=64", "svm-sgd"]
    assert "those of a classifier and its hparams are joined" in plot.caption
    lines = [line for line in plot.figure.axes[0].lines if line.get_marker() != "None"]
    assert len({line.get_color() for line in lines}) == 3
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 4
    (one,) = configured.plot.all("levels", where="hparams <> 'width1=32'")
    assert [text.get_text() for text in one.figure.legends[0].get_texts()] == [
        *("lr-sgd", "mlp", "svm-sgd")
    ]


def test_a_classifier_has_one_colour_whatever_a_condition_leaves_out(configured: Sweep) -> None:
    where = "classifier = 'svm-sgd'"
    for kind in ("means", "levels", "accuracy", "accuracy_range"):
        by = "train_fraction" if kind == "accuracy" else ()
        seen = [
            {line.get_color() for line in configured.plot(kind, by=by, where=one).axes[0].lines}
            for one in (None, where)
        ]
        assert seen[1] - {"black"} <= seen[0], kind
        assert colour(2) in seen[1], kind


def test_a_grid_has_only_the_combinations_that_there_are(configured: Sweep) -> None:
    (plot,) = configured.plot.all("accuracy", by=["classifier", "hparams"])
    names = [axis.get_title(loc="left") for axis in plot.figure.axes]
    assert names == ["lr-sgd · default", "mlp · width1=32", "mlp · width1=64", "svm-sgd · default"]
    assert all(axis.lines for axis in plot.figure.axes)
    assert len({axis.get_ylim() for axis in plot.figure.axes}) == 1
    assert "Panels: classifier · hparams, those that there are." in plot.caption


def test_differences_are_judged_as_compare_judges_them(sweep: Sweep) -> None:
    for kind, metric in (("differences", "accuracy"), ("differences-ece", "ece")):
        (plot,) = sweep.plot.all(kind)
        assert plot.data is not None
        pairs = [one for one in compare_cells(sweep.paths, metric=metric) if one.result]
        assert plot.n == plot.data.height == len(pairs) > 1
        drawn = {(row["cell_a"], row["cell_b"]): row for row in plot.data.iter_rows(named=True)}
        for one in pairs:
            assert one.result is not None
            row = drawn[one.a.cell, one.b.cell]
            assert row["difference"] == pytest.approx(one.result.difference)
            limits = one.result.sets or one.result.seeds or (None, None)
            assert (row["low"], row["high"]) == pytest.approx(limits)
            assert row["verdict"] == side_told(one)
            assert (row["verdict"] != row["together_verdict"]) == is_alone(one)
        dots = [line for line in plot.figure.axes[0].lines if line.get_marker() == "o"]
        filled = sum(dot.get_markerfacecolor() != "white" for dot in dots)
        told = plot.data.filter((pl.col("low") > 0) | (pl.col("high") < 0))
        assert (len(dots), filled) == (plot.n, told.height)
        alone = told.filter(pl.col("verdict") != pl.col("together_verdict")).height
        assert sum(dot.get_fillstyle() == "left" for dot in dots) == alone
        assert f"{told.height - alone} told{f', {alone} alone' if alone else ''}." in plot.caption
        assert ("half-filled: alone" in plot.caption) == (alone > 0)


def test_differences_of_one_classifier_are_those_of_the_axis_that_differs(sweep: Sweep) -> None:
    (plot,) = sweep.plot.all("differences", where="classifier = 'xgb'")
    assert plot.data is not None
    assert plot.data["by"].unique().to_list() == ["train_fraction"]
    one = "classifier = 'xgb' AND perturb_continuous = 'none' AND train_fraction = 1"
    with pytest.raises(UserError, match="nothing to draw") as error:
        sweep.plot.all("differences", where=one)
    assert "each dataset has only one" in str(error.value)


@pytest.mark.parametrize(
    "kind", ["means-nothing", "differences-ec_local", "differences-fit_seconds"]
)
def test_intervals_are_of_metrics_of_runs(sweep: Sweep, kind: str) -> None:
    with pytest.raises(UserError) as error:
        sweep.plot.all(kind)
    assert error.value.key == "KIND"


def test_only_what_can_be_drawn_is_listed(sweep: Sweep) -> None:
    """A kind that compares data sets was listed, and then refused, as there is only one."""
    listed = sweep.plot.kinds.filter(pl.col("of").is_in(["page", "cells"]))["kind"].to_list()
    assert {"means", "differences", "cells"} <= {*listed}
    assert not {"overview-accuracy-mean", "mean-ranks", "crossed", "epochs-ece"} & {*listed}
    for kind in listed:
        assert sweep.plot.all(kind), kind


def test_the_numbers_of_figures_are_written_as_csv(sweep: Sweep, tmp_path: Path) -> None:
    of_page = sweep.plot.kinds.filter(of="page")["kind"].to_list()
    written = []
    for kind in of_page:
        try:
            drawn = sweep.plot.all(kind)
        except UserError:  # nothing to draw
            continue
        written += save(drawn, tmp_path / f"{kind}.csv")
    assert {"cells", "alpha-hat-accuracy", "alpha-hat-pairs"} <= {file.stem for file in written}
    assert all(pl.read_csv(file).height for file in written)
    file = tmp_path / "by.csv"
    code, told = inside("plot", sweep.directory, "accuracy", "--by", "classifier", "-o", file)
    assert (code, told.splitlines()[-1]) == (0, f"Wrote {file}.")
    runs = sweep.results["runs"].filter(identical=False)
    for row in pl.read_csv(file).iter_rows(named=True):
        of = runs.filter(classifier=row["classifier"], dataset=row["dataset"])["accuracy"]
        assert (row["n"], row["median"]) == (of.len(), pytest.approx(of.median()))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["acuracy"], 'KIND = "acuracy": unknown kind of figure\n  did you mean "accuracy"?'),
        (["accuracy", "--by", "perturb"], '--by = "perturb": cells do not differ in it'),
        (["cells", "--by", "classifier"], "--by"),
        (["accuracy", "--where", "classifier = 'mlp'"], "no cell meets the condition"),
        (["accuracy", "--where", "classifier = xgb"], "write 'xgb' in single quotes"),
        (["accuracy", "--width", "wide"], '--width = "wide": invalid width'),
        (["accuracy", "--width", "5"], "from 40 to 1000 mm"),
        (["cells", "--width", "single"], "cells has no room below 140 mm"),
        (["ensembles-close"], "compute it with: manyseed howmany /"),
        (["mean-ranks"], "nothing to draw\n  it compares datasets, and there is only one"),
        (["grids"], "cells have one perturb_hparams"),
        (["epochs-ece"], "it compares epochs, and only one was analysed"),
        (
            ["accuracy", "-o", "figure.gif"],
            "unsupported format\n  end it with one of .pdf, .svg, .png",
        ),
        (["accuracy", "-o", "nowhere/figure.pdf"], "its folder is not there"),
    ],
)
def test_mistakes_are_told_and_change_nothing(
    sweep: Sweep,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = held(sweep.directory)
    code, told = inside("plot", sweep.directory, *arguments)
    assert (code, said in told) == (2, True), told
    assert not list(tmp_path.iterdir())
    assert held(sweep.directory) == before


def test_no_figure_is_written_among_the_files_of_the_sweep(sweep: Sweep) -> None:
    before = held(sweep.directory)
    file = sweep.paths.results / "accuracy.pdf"
    code, told = inside("plot", sweep.directory, "accuracy", "-o", file)
    assert (code, "is among the sweep's own files" in told) == (2, True)
    assert held(sweep.directory) == before


def test_several_figures_are_numbered_and_python_says_how_to_choose(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyseed.analysis.figures.cells.ROWS", 2)
    code, _ = inside("plot", sweep.directory, "accuracy", "-o", tmp_path / "a.png")
    assert code == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == [f"a-{n}.png" for n in (1, 2, 3, 4)]
    with pytest.raises(UserError, match=r"(?s)it has 4 figures.*plot\.all\('accuracy'\)"):
        sweep.plot.accuracy()
    with pytest.raises(AttributeError):
        sweep.plot._nothing  # noqa: B018


def test_the_gallery_shows_what_its_commands_draw() -> None:
    page = (DOCS / "plots.md").read_text()
    shown = gallery().shown()
    assert list(shown) == re.findall(r"!\[[^]]*\]\(([^)]*)\)", page)
    assert {DOCS / name for name in shown} == set((DOCS / "images" / "gallery").iterdir())
    for kind, options in shown.values():
        assert find(kind) or table_of(schemas(planted()), kind.replace("-", "_")), kind
        assert options.keys() <= {"by", "where", "width"}


def gallery() -> ModuleType:
    """The script that draws the gallery."""
    return script("make_gallery")


def script(name: str) -> ModuleType:
    """A script of the documentation."""
    spec = spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_answers_are_those_of_the_page(sweep: Sweep) -> None:
    page = html.unescape(sweep.report().read_text())
    said = sweep.answers(why=True)
    assert len(said) >= 3
    assert all(text in page for text in said)
    code, told = inside("answers", sweep.directory, "--why")
    assert code == 0
    assert all(text in " ".join(told.split()) for text in said)


def test_the_study_has_its_tables_and_figures() -> None:
    page = (DOCS / "fashion.md").read_text()
    drawn = re.findall(r"manyseed plot fashion (\S+)", page)
    pictures = re.findall(r"!\[[^]]*\]\(([^)]*)\)", page)
    assert pictures == [f"images/fashion/{kind}.png" for kind in drawn]
    assert {DOCS / one for one in pictures} == set((DOCS / "images" / "fashion").iterdir())
    assert all(find(kind) for kind in drawn)
    tables = re.findall(r"manyseed query fashion .*? -c (\S+) .*\n```\n\n\| (.*) \|\n", page)
    assert len(tables) == 4
    for asked, heads in tables:
        assert [labelled(name) for name in asked.split(",")] == heads.split(" | ")


SOURCES = ("init", "batch", "init+batch")
STUDY = """
name    = "study"
seed    = 3
repeats = 1
runs    = 8

[analysis]
alpha_reference = "half"
resamples       = 20

[[grid]]
dataset    = ["points"]
classifier = ["cnn", "mlp"]
vary       = ["init", "batch", "init+batch"]

[[grid]]
dataset    = ["points"]
classifier = ["lr-sgd"]
runs       = 4

[dataset.points]
source   = "sklearn:digits"
classes  = { tops = ["0", "3", "6", "8", "9"], others = ["1", "2", "4", "5", "7"] }
positive = "tops"
test     = 0.8

[classifier.cnn]
epochs = 1

[classifier.mlp]
epochs = 1
"""


def tables_of(page: str) -> list[list[dict[str, str]]]:
    """Return the tables of a page, their rows as texts."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        heads, _, *rows = (line.strip("| ").split(" | ") for line in table.splitlines())
        found.append([dict(zip(heads, row, strict=True)) for row in rows])
    return found


def run_here(words: list[str], **_: object) -> Done:
    """Call the command that a script runs as a process."""
    assert words[:3] == [sys.executable, "-m", "manyseed"]
    done = command(*words[3:])
    assert done.returncode == 0, done.stderr
    return done


def test_the_study_is_filled_from_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = train(write(tmp_path / "study.toml", STUDY), tmp_path / "sweep")
    sweep.analyze()
    sweep.howmany(where="classifier = 'cnn' AND vary = 'init+batch'", draws=20)
    before = (DOCS / "fashion.md").read_text()
    make_fashion = script("make_fashion")
    monkeypatch.setattr(make_fashion, "subprocess", SimpleNamespace(run=run_here))
    page = make_fashion.filled(before, sweep.directory)
    assert page != before
    judged, counted, ensembles, sources, _, similar = tables_of(page)
    runs = sweep.results["runs"].filter(pl.col("alpha_hat").is_not_null())
    cnns = runs.filter(classifier="cnn")
    above = runs.group_by("classifier", "vary").agg((pl.col("alpha_hat") > 0.05).sum())
    assert {(row["classifier"], row["vary"], int(row["above"])) for row in judged} == {
        *above.iter_rows()
    }
    alike = pl.col("accuracy").is_between(0.9685, 0.9715)
    expected = cnns.select(
        judged=pl.len(),
        infeasible=(pl.col("alpha_hat_infeasible") > 0).sum(),
        alike=alike.sum(),
        alike_above=(alike & (pl.col("alpha_hat") > 0.05)).sum(),
    )
    (row,) = counted
    assert {name: int(value) for name, value in row.items()} == expected.row(0, named=True)
    assert [int(one["size"]) for one in ensembles] == sorted({int(o["size"]) for o in ensembles})
    assert {(one["classifier"], one["what varies"]) for one in sources} == {
        (classifier, vary) for classifier in ("cnn", "mlp") for vary in SOURCES
    }
    said = html.unescape(sweep.report().read_text())
    addresses = [one["address"] for one in similar]
    assert len(addresses) == 4
    cell = r"\s*<td[^>]*>"
    listed = rf"{cell}cnn</td>{cell}[^<]*</td>{cell}(\d+:0:\d+)</td>"
    assert re.findall(listed, said) == addresses
