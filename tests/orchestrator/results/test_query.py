"""Questions to the result tables of a real sweep: what is shown, and how."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import shutil
import subprocess
import textwrap
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.analysis.axes import AXES
from manyseed.orchestrator.asking.query import _side_by_side
from manyseed.orchestrator.cli import formats
from manyseed.orchestrator.computing.tables import Analysis
from manyseed.orchestrator.errors import UserError
from tests.orchestrator.conftest import inside


@pytest.fixture(scope="module")
def sweep(quick_analysed: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """An analysed sweep; tests only read it."""
    folder = tmp_path_factory.mktemp("query") / "sweep"
    return Sweep(shutil.copytree(quick_analysed.directory, folder))


def test_runs_are_shown_by_the_address_that_show_takes(sweep: Sweep) -> None:
    runs = sweep.query("runs", columns=["address", "cell", "repeat_index", "run_index", "cell_id"])
    for row in runs.sample(3, seed=1).iter_rows(named=True):
        shown = sweep.show(row["address"])
        assert (shown["cell"], shown["repeat"], shown["run"]) == tuple(row.values())[1:4]
        assert shown["cell_id"] == row["cell_id"]
    assert sweep.query("ranking")["address"].is_in(runs["address"].implode()).all()
    pairs = sweep.query("pairs", where="address_i = '0:1:0'")
    assert pairs["address_j"].to_list() == ["0:1:1", "0:1:2", "0:1:3"]
    assert "address" not in sweep.results["runs"].columns


def test_no_match_says_so(sweep: Sweep) -> None:
    code, told = inside("query", sweep.directory, "-w", "classifier = 'mlp'")
    assert (code, told) == (
        0,
        "No row of the table cells meets: classifier = 'mlp'\n  classifier: lr-sgd, xgb\n",
    )


def test_a_table_that_stands_where_a_directory_does_is_named_by_its_option(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, told = inside("query", sweep.directory, "runs")
    assert code == 2
    assert "runs: there is no such directory" in told
    assert "name a table with its option: --table runs" in " ".join(told.split())
    code, told = inside("query", "runs")
    assert (code, "--table" in told) == (2, False)  # no sweep is named beside


@pytest.mark.parametrize(
    "table", ["uncertainty", "dee", "tace", "rejection", "curves", "ensembles"]
)
def test_a_table_that_is_not_there_says_how_it_comes(sweep: Sweep, table: str) -> None:
    code, told = inside("query", sweep.directory, "-t", table)
    assert (code, f'--table = "{table}": there is none yet' in told) == (2, True)


def test_a_value_without_quotes_is_told_with_them(sweep: Sweep) -> None:
    code, told = inside("query", sweep.directory, "-w", "classifier = lr-sgd")
    assert code == 2
    assert told.endswith("write 'lr-sgd' in single quotes: classifier = 'lr-sgd'\n")
    assert "polars" not in told
    assert (
        sweep.query(where="classifier = 'lr-sgd'")
        .filter(pl.col("classifier") != "lr-sgd")
        .is_empty()
    )


def test_without_columns_groups_are_of_everything_but_the_seeds(sweep: Sweep) -> None:
    found = sweep.query("runs", by=True, columns=["accuracy"])
    axes = ["dataset", "classifier", "train_fraction", "perturb_continuous"]
    assert found.columns[:4] == axes
    assert found["n"].to_list() == [8] * 8
    runs = sweep.results["runs"]
    expected = runs.group_by(axes, maintain_order=True).agg(pl.col("accuracy").mean())
    assert found["accuracy"].to_list() == pytest.approx(expected["accuracy"].to_list())
    assert sweep.query("runs", agg=["count"], columns=["accuracy"]).columns[:4] == axes
    shown = asked(sweep, "-t", "runs", "--by", "-c", "accuracy", "-f", "csv")
    assert [row["accuracy"] for row in csv.DictReader(io.StringIO(shown))] == [
        str(value) for value in found["accuracy"]
    ]


def asked(sweep: Sweep, *options: object) -> str:
    code, told = inside("query", sweep.directory, *options)
    assert code == 0, told
    return told


def test_coverage_is_of_what_is_planned(sweep: Sweep, tmp_path: Path) -> None:
    copy = Sweep(shutil.copytree(sweep.directory, tmp_path / "sweep"))
    text = copy.paths.sweep_file.read_text()
    file = tmp_path / "more.toml"
    file.write_text(text.replace("repeats = 2", "repeats = 4").replace('"xgb"]', '"xgb", "mlp"]'))
    Sweep.plan(file, copy.directory)
    found = copy.query(by=["train_fraction"])
    assert found["coverage"].to_list() == [pytest.approx(1 / 3)] * 2
    found = copy.query(by=["classifier"])
    assert found["coverage"].to_list() == [0.5, 0.5]
    by_set = copy.query("repeats", by=["repeat_index"])
    assert by_set["coverage"].to_list() == [pytest.approx(2 / 3)] * 2
    good = copy.query("runs", by=["classifier"], where="accuracy > 0", columns=["accuracy"])
    assert good["coverage"].to_list() == [0.5, 0.5]  # of the cells that have such runs
    assert sweep.query(by=["train_fraction"])["coverage"].to_list() == [1.0, 1.0]
    copy.analyze(workers=1)  # and in the table of cells
    assert set(copy.results["cells"]["coverage"]) == {0.5}
    assert set(copy.results["repeats"]["coverage"]) == {1.0}


def test_several_sweeps_stand_side_by_side(sweep: Sweep, tmp_path: Path) -> None:
    other = Sweep(shutil.copytree(sweep.directory, tmp_path / "other"))
    for name in ("cells", "runs"):  # as an earlier version would write it
        file = other.paths.table(name)
        file.write_bytes(b"")
        sweep.results[name].drop("roc_auc_mean", "roc_auc", strict=False).write_parquet(file)
    replace(Analysis.read(other.paths), tables={}).write(other.paths)
    both = (sweep.directory, other.directory)
    found = sweep.query("cells", others=[other], columns=["cell", "roc_auc_mean"])
    assert found.columns == ["sweep", "cell", "roc_auc_mean"]
    assert found["sweep"].to_list() == [str(one) for one in both for _ in range(8)]
    assert found["roc_auc_mean"].null_count() == 8
    code, told = inside("query", *both, "--by", "classifier", "-c", "accuracy_mean", "-f", "csv")
    rows = list(csv.DictReader(io.StringIO(told)))
    assert code == 0
    assert [(row["sweep"], row["n"]) for row in rows] == [(str(d), "4") for d in both for _ in "ab"]
    alone = sweep.query(by=["classifier"])["accuracy_mean"].to_list()
    assert [float(row["accuracy_mean"]) for row in rows] == alone * 2
    where = f"sweep = '{both[1]}' AND classifier = 'xgb'"
    assert sweep.query("runs", others=[other], where=where)["sweep"].unique().to_list() == [
        str(both[1])
    ]
    with pytest.raises(UserError, match=r'did you mean "sweep"\?'):
        sweep.query("cells", others=[other], where="swep = 'a'")


def test_a_condition_without_rows_is_told_the_values_that_there_are(sweep: Sweep) -> None:
    told = asked(sweep, "-t", "effects", "-w", "axis='perturb_continuous' and metric='accuracy'")
    first, *hints = told.splitlines()
    assert first.startswith("No row of the table effects meets: axis=")
    metrics = sweep.results["effects"]["metric"].unique().sort().cast(pl.String).to_list()
    meant = f"  did you mean metric = 'accuracy_mean'? Others: {', '.join(metrics)}"
    assert hints == [meant], "the axis has this value"
    told = asked(sweep, "-w", "train_fraction = 0.3 AND accuracy_mean > 2 AND classifier = 'xgb'")
    assert told.splitlines()[1:] == ["  train_fraction: 0.5, 1.0"]
    assert len(asked(sweep, "-w", "accuracy_mean > 2").splitlines()) == 1


def test_every_format_holds_the_same_rows(sweep: Sweep, tmp_path: Path) -> None:
    options = ("--by", "classifier", "-c", "accuracy_mean,accuracy_std")
    expected = sweep.query(by=["classifier"], columns=["accuracy_mean", "accuracy_std"])
    for ending in ("csv", "json", "md", "tex", "parquet", "txt"):
        assert "Wrote 2 rows" in asked(sweep, *options, "-o", tmp_path / f"rows.{ending}")
    piped = asked(sweep, *options, "-o", "-")
    assert piped.startswith((tmp_path / "rows.csv").read_text())
    assert pl.read_csv(tmp_path / "rows.csv").equals(expected)
    assert pl.read_parquet(tmp_path / "rows.parquet").equals(expected)
    written = json.loads((tmp_path / "rows.json").read_text())
    assert (written["schema"], written["table"]) == (1, "cells")
    assert written["rows"] == expected.to_dicts()
    assert written["rows"] == json.loads(asked(sweep, *options, "--json"))["rows"]
    row = expected.row(0, named=True)
    low, high = row["accuracy_mean_ci_low"], row["accuracy_mean_ci_high"]
    shown = f"{row['accuracy_mean']:.4f} ({low:.4f} to {high:.4f})"
    assert f"| lr-sgd | {shown} |" in (tmp_path / "rows.md").read_text()
    assert f"& {shown} &" in (tmp_path / "rows.tex").read_text()
    assert shown in (tmp_path / "rows.txt").read_text()
    assert shown in asked(sweep, *options)
    assert asked(sweep, "-t", "runs", "--limit", 3, "-f", "csv").count("\n") == 4


def test_rows_in_a_file_say_in_columns_which_run_they_are(sweep: Sweep, tmp_path: Path) -> None:
    """Spreadsheets and other programs group by columns; an address would have to be taken apart."""
    first = ["dataset", "classifier"]
    for table, key in (
        ("runs", ["repeat_index", "run_index"]),
        ("pairs", ["repeat_index", "run_i", "run_j"]),
        ("ranking", ["repeat_index", "run_index", "rank"]),
        ("repeats", ["repeat_index"]),
    ):
        rows = pl.read_csv(io.StringIO(asked(sweep, "-t", table, "-f", "csv")))
        names = rows.columns
        at = names.index("vary")
        assert (names[:2], names[at + 1 : at + 1 + len(key)]) == (first, key), table
        assert {*sweep.query(table).columns} <= {*names}
        assert rows.unique([*names[: at + 1], *key]).height == rows.height, "these name a row"
        if "address" in names:
            parts = rows["address"].str.split(":").list
            assert parts.get(2).cast(int).to_list() == rows["run_index"].to_list()
    made = asked(sweep, "-t", "runs", "--limit", 1, "--json", "--sort", "fit_seconds")
    assert {"vary", "fit_seconds"} <= {*json.loads(made)["rows"][0]}


def test_a_table_for_a_paper_has_few_columns_unless_more_are_asked_for(sweep: Sweep) -> None:
    axes = [name for name in sweep.query().columns if name in AXES]
    apart = [name for name in axes if sweep.query()[name].n_unique() > 1]
    assert len(apart) < len(axes)
    numbers = ["n_runs", "accuracy_mean", "accuracy_std", "accuracy_mean_sd"]
    for form, cut in (("markdown", " | "), ("latex", " & ")):
        code, text = inside("query", sweep.directory, "--format", form)
        assert code == 0
        heads = next(line for line in text.splitlines() if line.count("accuracy") > 1)
        assert heads.count(cut) == len(apart) + len(numbers) - 1
        assert "Other columns: --columns NAME,…" in text
        code, text = inside("query", sweep.directory, "--format", form, "--by", "classifier")
        heads = next(line for line in text.splitlines() if line.count("accuracy") > 1)
        assert heads.count(cut) == 1 + len(numbers[1:]) - 1
        code, text = inside("query", sweep.directory, "--format", form, "--sort", "-n_repeats")
        assert code == 0, text
    code, text = inside("query", sweep.directory, "-f", "latex", "-w", "accuracy_std IS NULL")
    assert code == 0
    assert r"mean\\accuracy" in text
    assert r"{SD of\\accuracy" not in text, "no row has one"
    for form in ("csv", "json"):
        code, text = inside("query", sweep.directory, "--format", form)
        assert "alpha_hat_mean" in text
        assert "Other columns" not in text


def test_a_spread_of_none_is_0_and_no_bound(tmp_path: Path) -> None:
    """Runs of one accuracy: 1/n is what test sets resolve, no limit of what runs may differ by."""
    y_true = np.arange(40) % 2
    labels = np.repeat(y_true[None, :], 4, axis=0)
    labels[range(4), range(4)] ^= 1
    made = Sweep.from_predictions({"labels": labels, "y_true": y_true}, tmp_path / "equal")
    made.analyze(workers=1)
    columns = ("--columns", "accuracy_mean,accuracy_std")
    (row,) = json.loads(asked(made, *columns, "--json"))["rows"]
    assert row["accuracy_std"] == 0
    told = asked(made, *columns)
    assert "0.9750 0 A standard" in " ".join(told.split())
    assert told.count("A standard deviation of 0: no spread was seen; further runs may d") == 1
    of_runs = ("-t", "runs", "-c", "accuracy,balanced_accuracy", "--agg", "mean,sd")
    for by in ("classifier", "dataset,classifier"):
        told = " ".join(asked(made, *of_runs, "--by", by).split())
        assert "0.9750 0 0.9750 0" in told
        assert "<" not in told
        assert "Standard deviations, pooled as root mean squares: between runs of a t" in told
    assert "0.9750 & 0 " in asked(made, *columns, "--format", "latex")
    grouped = asked(made, *columns, "--by", "classifier", "--format", "markdown")
    assert "| 0 |" in grouped
    assert "0.0000" not in grouped
    assert ",0.0" in asked(made, *columns, "--format", "csv"), "numbers stay numbers"


def test_a_spread_that_would_be_printed_as_none_is_below_what_is_printed() -> None:
    frame = pl.DataFrame({"accuracy_std": [0.0, 2e-5, 0.1, None], "ece_sd": [0.0, 0.2, 0.3, 0.4]})
    _, rows, _ = formats.in_cells(frame)
    assert [row[0] for row in rows] == [0, "< 0.0001", 0.1, None]
    assert [row[1] for row in rows] == [0, 0.2, 0.3, 0.4]
    assert r"\begin{tabular}{rr}" in formats.in_format(frame, "latex", {}, []).decode()


@pytest.mark.parametrize(
    ("ends", "remark"),
    [
        ([(0.8, 1.0), (0.7, 0.9)], "± is half of the 95 % interval over seeds."),
        ([(0.7, 0.95), (0.7, 0.9)], "(… to …) is the 95 % interval over seeds."),
        ([(None, None), (None, None)], ""),
    ],
)
def test_a_remark_says_what_the_cells_hold(ends: list[tuple[float, float]], remark: str) -> None:
    low, high = zip(*ends, strict=True)
    made = {"accuracy": [0.9, 0.8], "accuracy_ci_low": low, "accuracy_ci_high": high}
    frame = pl.DataFrame(made).with_columns(pl.col(pl.Null).cast(float), over=pl.lit("seeds"))
    assert formats.in_cells(frame)[2] == [remark][: bool(remark)]


def test_a_column_that_is_empty_in_all_rows_is_left_out(sweep: Sweep) -> None:
    for form in ("latex", "markdown"):
        code, text = inside("compare", sweep.directory, "--format", form)
        assert code == 0
        rows = [line for line in text.splitlines() if line.startswith("|") or line.endswith("\\\\")]
        cells = [re.split(r"[&|]", line.strip("| \\")) for line in rows if "---" not in line]
        heads, *body = ([cell.strip() for cell in line] for line in cells)
        assert len(heads) > 3
        assert all(any(line[number] for line in body) for number in range(len(heads))), text


AWKWARD = [r"50 % & $x_1$ #{a} ~^\\ [b] <c>|d| *e* `f`", "zwei\nZeilen – α̂ ≤ δ", "-", ""]


def test_latex_is_booktabs_and_escapes_every_letter(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "dataset_name": AWKWARD,
            "accuracy": [-0.5, 0.25, None, 123456.0],
            "accuracy_ci_low": [-0.75, 0.0, None, None],
            "accuracy_ci_high": [-0.25, 0.5, None, None],
            "n": [1, 2, 3, 4000],
            "over": ["seeds"] * 4,
        }
    )
    text = formats.in_format(frame, "latex", {}, ["100 % of\n\\input{x}"]).decode()
    lines = text.splitlines()
    assert lines[1] == r"{\small\setlength{\tabcolsep}{6pt}", "346 pt, of which a page has 345"
    assert [lines.pop(0), *lines[1:4]] == [
        "% needs \\usepackage{booktabs}",
        r"\begin{tabular}{@{}lrr@{}}",
        r"\toprule",
        r"dataset name & accuracy & n \\",
    ]
    assert lines.pop(-6) == r"\par}"
    assert lines[-7:] == [
        r"\bottomrule",
        r"\end{tabular}",
        r"\par\smallskip",
        r"{\footnotesize\raggedright",
        r"$\pm$ is half of the 95 \% interval over seeds.",
        r"100 \% of \textbackslash{}input\{x\}",
        r"\par}",
    ]
    body = lines[5:-7]
    assert len(body) == 4
    assert body[0].startswith(r"50 \% \& \$x\_1\$ \#\{a\} \textasciitilde{}\textasciicircum{}")
    assert r"$-0.5000 \pm 0.2500$" in body[0]
    assert body[1].startswith(
        r"zwei Zeilen -- $\hat{\alpha}$ $\leq$ $\delta$ & $0.2500 \pm 0.2500$"
    )
    assert body[2] == r"- & -- & 3 \\"
    assert body[3] == r" & $1.235 \times 10^{5}$ & 4,000 \\"
    for line in body:  # three cells, and no letter that LaTeX would take for its own
        bare = re.sub(r"\\[&%$#_{}]", "", line)
        assert bare.count("&") == 2
        assert bare.count("$") % 2 == 0
        assert not re.search(r"[%#~]", bare)
    compiled(text, tmp_path)


def compiled(text: str, folder: Path) -> None:
    """Compile a LaTeX table if there is a compiler."""
    if compiler := shutil.which("pdflatex"):
        page = "\\documentclass{article}\\usepackage{booktabs,longtable,array}"
        page += f"\\begin{{document}}{text}\\end{{document}}"
        (folder / "page.tex").write_text(page)
        options = ["-interaction=nonstopmode", "-halt-on-error", "page.tex"]
        done = subprocess.run([compiler, *options], cwd=folder, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout


def test_an_alpha_hat_below_its_resolution_is_no_number_in_any_format(sweep: Sweep) -> None:
    table = sweep.results["runs"]
    hidden = table["alpha_hat"] < table["delta"]
    assert hidden.any()
    for columns in ("alpha_hat,delta", "alpha_hat"):
        rows = json.loads(asked(sweep, "-t", "runs", "-c", columns, "--json"))["rows"]
        assert [row["alpha_hat"] is None for row in rows] == hidden.to_list()
        bounds = [row["alpha_hat_below"] for row in rows]
        assert bounds == pl.select(pl.when(hidden).then(table["delta"])).to_series().to_list()
        assert ("delta" in rows[0]) == ("delta" in columns)
        text = asked(sweep, "-t", "runs", "-c", columns, "--format", "csv")
        assert pl.read_csv(text.encode()).to_dicts() == rows
        told = asked(sweep, "-t", "runs", "-c", columns, "--format", "latex")
        assert told.count("$< ") == hidden.sum()
        assert r"$\hat{\alpha}$: the share of a run's scores" in told
        assert (r"$\delta$: the smallest" in told) == ("delta" in columns)
    by = ("-c", "alpha_hat_mean", "--by", "dataset,classifier", "--json")
    for row in json.loads(asked(sweep, *by))["rows"]:
        assert (row["alpha_hat_mean"] is None) == (row["alpha_hat_mean_below"] is not None)


def test_a_mean_below_the_resolution_hides_no_run_above_it(sweep: Sweep) -> None:
    """A mean of 0.1 at δ = 0.13 may be that of nine runs with 0 and one with 1."""
    frame = pl.DataFrame({"alpha_hat_mean": [0.0, 0.1], "delta": [0.13] * 2})
    most = pl.Series([0.01, 1.0])
    for name in formats.LARGEST:
        shown = formats.bounded(frame.with_columns(most.alias(name)))
        assert shown["alpha_hat_mean"].to_list() == [None, 0.1]
    runs = sweep.results["runs"].with_columns(apart=pl.col("alpha_hat") >= pl.col("delta"))
    above = runs.group_by("cell").agg(pl.col("apart").any()).filter("apart")["cell"].to_list()
    for options in (("-c", "cell,alpha_hat_mean"), ("-c", "alpha_hat_mean", "--by", "cell")):
        rows = json.loads(asked(sweep, *options, "--json"))["rows"]
        assert not [row for row in rows if row["cell"] in above and row["alpha_hat_mean"] is None]
        assert not {"largest", "delta", "alpha_hat_max"} & {*rows[0]}


@pytest.mark.parametrize("table", ["runs", "pairs", "repeats", "ranking"])
def test_a_table_for_a_paper_has_no_column_that_it_does_not_explain(
    sweep: Sweep, table: str
) -> None:
    text = asked(sweep, "-t", table, "--format", "markdown", "--limit", 1)
    heads = text.splitlines()[0]
    assert "test set" in heads
    assert not any(word in heads for word in ("α̂", "δ", "address", "index"))
    if table in ("runs", "ranking"):
        text = asked(sweep, "-t", table, "-c", "address", "--format", "markdown", "--limit", 1)
        assert "address: cell, test set and run, counted from 0." in text


def test_letters_that_latex_lacks_are_written_as_commands_or_named(tmp_path: Path) -> None:
    frame = pl.DataFrame({"classifier": ["αβγδ λμπστω ΓΔΩ", "e\u0301 ü ß œ – “x”", "ε"]})
    text = formats.in_format(frame, "latex", {}, []).decode()
    assert text.count("needs") == 1
    assert r"$\alpha$$\beta$$\gamma$$\delta$ $\lambda$$\mu$$\pi$$\sigma$$\tau$$\omega$" in text
    assert r"$\Gamma$$\Delta$$\Omega$" in text
    compiled(text, tmp_path)
    frame = pl.DataFrame({"classifier": ["中", "x"]})
    lines = formats.in_format(frame, "latex", {}, ["文 中"]).decode().splitlines()
    assert lines[1] == "% needs XeLaTeX or LuaLaTeX, and a font with these letters: 中文"


@pytest.mark.parametrize("caption", ["Runs.", None])
def test_a_latex_table_of_many_rows_goes_on_over_pages(tmp_path: Path, caption: str | None) -> None:
    paper = formats.for_paper("latex", caption, "tab:runs" if caption else None, None)
    for rows, is_long in ((40, False), (41, True)):
        frame = pl.DataFrame({"accuracy": np.linspace(0, 1, rows)})
        text = formats.in_format(frame, "latex", {}, ["A note."], paper).decode()
        assert ("longtable" in text) == is_long
        assert ("tabular" not in text) == is_long
        assert "% wide" not in text
    assert text.startswith("% needs \\usepackage{booktabs,longtable}\n")
    assert text.count("\naccuracy \\\\\n") == 2, "every page has the heads"
    assert (r"\caption{Runs.}\label{tab:runs} \\" in text) == bool(caption)
    assert (r"\addtocounter{table}{-1}" in text) != bool(caption)
    assert text.index(r"\end{longtable}") < text.index("A note.")
    compiled(text, tmp_path)


MODELS = pl.DataFrame(
    {
        "dataset": ["a", "a", "a", "b", "b"],
        "classifier": ["mlp", "xgb", "svm", "mlp", "xgb"],
        "accuracy_mean": [0.90004, 0.90001, 0.8, 0.5, 0.6],
        "ece_mean": [0.2, 0.1, None, 0.3, 0.3],
        "ec_local_mean": [0.4, 0.5, 0.6, 0.7, 0.8],
        "n": [1, 2, 3, 4, 5],
    }
)


def test_a_table_for_a_paper_has_caption_label_and_bold_values(tmp_path: Path) -> None:
    """Best of each dataset, by whether more or less is better; ties as they are shown."""
    paper = formats.for_paper("latex", "50 % & more_", "tab:a", "best")
    text = formats.in_format(MODELS, "latex", {}, [], paper).decode()
    lines = text.splitlines()
    assert lines[-5:] == [
        r"\par\smallskip",
        r"{\footnotesize\raggedright",
        "Bold: only the best number of each dataset, not what is told to be better.",
        r"\par}",
        r"\end{table}",
    ]
    begin = lines.index(r"\begin{table}")
    assert lines[begin + 1 : begin + 6] == [
        r"\centering",
        r"\caption{50 \% \& more\_}",
        r"\label{tab:a}",
        r"\begin{tabular}{llrrrr}",
        r"\toprule",
    ]
    assert (
        lines[begin + 6]
        == r"dataset & classifier & mean accuracy & mean ECE & mean EC local & n \\"
    )
    assert lines[-7:-5] == [r"\bottomrule", r"\end{tabular}"]
    assert lines[begin + 8 : -7] == [
        r"a & mlp & $\mathbf{0.9000}$ & 0.2000 & 0.4000 & 1 \\",
        r"a & xgb & $\mathbf{0.9000}$ & $\mathbf{0.1000}$ & 0.5000 & 2 \\",
        r"a & svm & 0.8000 & -- & 0.6000 & 3 \\",
        r"b & mlp & 0.5000 & $\mathbf{0.3000}$ & 0.7000 & 4 \\",
        r"b & xgb & $\mathbf{0.6000}$ & $\mathbf{0.3000}$ & 0.8000 & 5 \\",
    ]
    compiled(text, tmp_path)
    paper = formats.for_paper("markdown", "Accuracy", "tab:a", "best")
    lines = formats.in_format(MODELS, "markdown", {}, [], paper).decode().splitlines()
    assert lines[0] == "| dataset | classifier | mean accuracy | mean ECE | mean EC local | n |"
    assert lines[3] == "| a | xgb | **0.9000** | **0.1000** | 0.5000 | 2 |"
    assert "Table: Accuracy {#tab:a}" in lines


def test_a_column_has_one_form_of_intervals_and_spreads_are_not_bold() -> None:
    """One share near 1 had (a to b) in a column of ±; a range was bold and an SD was not."""
    frame = pl.DataFrame(
        {
            "classifier": ["mlp", "xgb"],
            "accuracy_mean": [0.99, 0.9],
            "accuracy_mean_ci_low": [0.95, 0.88],
            "accuracy_mean_ci_high": [0.998, 0.92],
            "accuracy_range": [0.1, 0.2],
            "ece_mean": [0.3, 0.2],
            "ece_mean_ci_low": [0.25, 0.1],
            "ece_mean_ci_high": [0.35, 0.3],
            "over": ["test sets"] * 2,
        }
    )
    paper = formats.for_paper("latex", None, None, "best")
    text = formats.in_format(frame, "latex", {}, [], paper).decode()
    assert r"\begin{tabular}{@{}lrrr@{}}" in text
    end = text.splitlines().index(r"\bottomrule")
    assert text.splitlines()[end - 2 : end] == [
        r"mlp & $\mathbf{0.9900}$ (0.9500 to 0.9980) & 0.1000 & $0.3000 \pm 0.0500$ \\",
        r"xgb & 0.9000 (0.8800 to 0.9200) & 0.2000 & $\mathbf{0.2000} \pm 0.1000$ \\",
    ]


def test_means_over_unlike_cells_are_not_bold_and_notes_say_what_they_are_over() -> None:
    """A classifier that was trained without noise only had the best mean."""
    frame = pl.DataFrame(
        {
            "dataset": ["a", "a", "b", "b"],
            "classifier": ["mlp", "xgb"] * 2,
            "accuracy_mean": [0.9, 0.8, 0.7, 0.6],
        }
    )
    paper = formats.Paper(bold="best", alike=["x", "x", "x", "y"])
    text = formats.in_format(frame, "markdown", {}, [], paper).decode()
    assert text.count("**") == 2
    assert "| a | mlp | **0.9000** |" in text
    assert "where rows, dataset by dataset, are means over unlike cells, nothing is bold" in text
    paper = formats.Paper(bold="best", alike=["x", "y", "y", "x"])
    text = formats.in_format(frame, "markdown", {}, [], paper).decode()
    assert "**" not in text
    assert "Bold:" not in text


def test_a_table_for_a_paper_explains_the_columns_it_has(sweep: Sweep) -> None:
    by = ("--by", "classifier,train_fraction", "--format", "markdown")
    told = asked(sweep, *by, "--columns", "accuracy_mean,ec_local_mean")
    assert "Standard deviations" not in told
    assert "Columns that compare runs are over " in told
    ec = "EC local, of two runs: Local error consistency: points both get wrong, among those at"
    assert told.count(ec) == 1
    assert told.count("churn, of two runs: ") == 0
    between = "between runs of a test set"
    for column, said in (
        ("accuracy_std", f": {between}."),
        ("accuracy_mean_sd", ": of means, between test sets."),
        ("accuracy_std,accuracy_mean_sd", f": {between}; of means, between test sets."),
        ("accuracy_std_sd", f": {between}."),
    ):
        told = asked(sweep, *by, "--columns", column)
        assert f"Standard deviations, pooled as root mean squares{said}\n" in told
    told = asked(sweep, *by, "--columns", "ece_mean,churn_mean")
    assert "churn, of two runs: Points to which the two runs give different labels.\n" in told
    assert "ECE: Expected calibration error of the predicted class's probability.\n" in told
    assert "alpha" not in told


def test_copies_in_a_row_are_told_from_runs(sweep: Sweep) -> None:
    by = ("--by", "classifier,train_fraction,perturb_continuous")
    told = " ".join(asked(sweep, *by, "--columns", "accuracy_mean").split())
    cells = sweep.results["cells"]
    copied = cells.filter(pl.col("n_distinct") < pl.col("n_runs"))["n_distinct"].unique().to_list()
    n = cells.filter(pl.col("n_distinct") < pl.col("n_runs")).height
    assert len(copied) == 1
    said = f"in {n} of {cells.height} rows, {copied[0]} models and copies of them"
    assert f"Runs in a row: 8, on 2 test sets; {said}." in told
    for more, is_needed in (("n_runs", True), ("n_runs,n_distinct", False)):
        told = " ".join(asked(sweep, *by, "--columns", f"accuracy_mean,{more}").split())
        assert (said in told) is is_needed, more


def test_python_is_warned_of_means_over_unlike_cells(sweep: Sweep) -> None:
    """The command's remark below the table was lost to whoever asked from Python."""
    given = {"by": ["classifier"], "where": "classifier = 'xgb' OR train_fraction = 1.0"}
    with pytest.warns(UserWarning, match="Rows are means over unlike cells: .* training frac") as w:
        sweep.query(**given)
    assert [one.filename for one in w] == [__file__]
    shown = asked(sweep, "--by", "classifier", "--where", given["where"])
    assert " ".join(shown.split()).count(str(w[0].message)) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sweep.query(by=["classifier"])


def test_a_grouped_table_says_over_which_cells_its_rows_are(tmp_path: Path) -> None:
    from manyseed.orchestrator.asking.covering import covered
    from manyseed.orchestrator.asking.query import Query
    from manyseed.orchestrator.computing.tables import Results

    rows = [(d, c, n) for d in "ab" for c in ("mlp", "xgb") for n in ("none", "x")]
    cells = pl.DataFrame(rows, schema=["dataset", "classifier", "perturb_continuous"], orient="row")
    cells = cells.with_row_index("cell").with_columns(n_runs=pl.lit(5))

    def told(cells: pl.DataFrame, *by: str) -> tuple[int, str]:
        class Planted(dict[str, pl.DataFrame]):
            plan = None

            def scan(self, name: str) -> pl.LazyFrame:
                return self[name].lazy()

        results: dict[str, Results] = {"": Planted(cells=cells)}  # type: ignore[dict-item]
        frame = cells.group_by(by, maintain_order=True).agg(n=pl.len())
        found = covered(results, Query(by=by), frame, frame.columns)
        return len({*found.alike}), found.note

    note = "Each row is a mean over 2 datasets × 2 noise levels. Runs in a row: 20."
    assert told(cells, "classifier") == (1, note)
    lacking = cells.filter((pl.col("classifier") == "mlp") | (pl.col("perturb_continuous") == "x"))
    note = (
        "Rows are means over unlike cells: 2 datasets × 2 noise levels (mlp), 2 datasets (xgb). "
        "Runs in a row: 10 to 20."
    )
    assert told(lacking, "classifier") == (2, note)
    none = pl.col("classifier") + pl.when(pl.col("perturb_continuous") == "x").then(
        pl.lit("x")
    ).otherwise(pl.lit(""))
    other = cells.with_columns(perturb_continuous=none)
    count, note = told(other, "classifier")
    assert (count, "2 noise levels, but not the same for all" in note) == (2, True)
    tuned = pl.when(classifier="mlp").then(pl.col("perturb_continuous")).otherwise(pl.lit("none"))
    wider = cells.with_columns(perturb_continuous=pl.lit("none"), hparams=tuned)
    wider = wider.unique(("dataset", "classifier", "hparams")).sort("cell")
    assert told(wider, "classifier")[0] == 2, "means over unlike cells, so none is the best"
    alone = told(cells, "classifier", "dataset", "perturb_continuous")
    assert alone == (1, "Runs in a row: 5."), "of a single cell"


@pytest.mark.parametrize(
    ("form", "options", "message"),
    [
        ("csv", ("x", None, None), "the format csv has no place for it"),
        ("json", (None, None, "best"), "the format json has no place for it"),
        ("parquet", ("x", None, None), "the format parquet has no place"),
        ("table", (None, "tab:x", None), "the format table has no place for it"),
        ("latex", ("x", None, "worst"), "unknown choice"),
        ("latex", (None, "tab:x", None), "a label refers to a caption"),
        ("latex", ("x", "tab x}", None), "not a label"),
    ],
)
def test_what_a_format_cannot_hold_is_refused(
    form: str, options: tuple[str | None, str | None, str | None], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        formats.for_paper(form, *options)


def test_columns_of_a_paper_stand_as_they_are_asked_for(sweep: Sweep) -> None:
    columns = "accuracy_std,ec_local_mean,accuracy_mean"
    shown = asked(sweep, "--by", "classifier", "-c", columns, "-f", "markdown")
    heads = "| classifier | SD of accuracy | mean EC local | mean accuracy |"
    assert shown.splitlines()[0] == heads
    shown = asked(
        *(sweep, "--by", "perturb_continuous", "--agg", "mean,q05", "-t", "runs"),
        *("-c", "fit_seconds,accuracy", "-f", "markdown"),
    )
    heads = "| continuous perturbation | mean fit seconds | 5 % quantile of fit seconds "
    assert shown.startswith(f"{heads}| mean accuracy | 5 % quantile of accuracy |")
    of = "SELECT cell AS my_cell, accuracy FROM runs LIMIT 1"
    assert asked(sweep, "--sql", of, "-f", "markdown").startswith("| my_cell | accuracy |")
    code, told = inside("query", sweep.directory, "-c", "cell", "-f", "latex", "--bold", "best")
    assert (code, "no column is known to be better high or low" in told) == (2, True)


def test_markdown_shows_awkward_names_as_they_are() -> None:
    frame = pl.DataFrame({"name": [AWKWARD[0], "a|b\nc", "_x_ y_z"], "n": [1, 2, 3]})
    lines = formats.in_format(frame, "markdown", {}, []).decode().splitlines()
    assert lines[:2] == ["| name | n |", "| --- | ---: |"]
    assert r"\[b\] \<c\>\|d\| \*e\* \`f\`" in lines[2]
    assert lines[3] == r"| a\|b c | 2 |"
    assert lines[4] == r"| \_x\_ y_z | 3 |"


def test_json_has_neither_nan_nor_infinity() -> None:
    frame = pl.DataFrame({"x": [1.0, float("nan"), float("inf"), None]})
    content = formats.in_format(frame, "json", {"table": "runs"}, ["a"])
    assert json.loads(content, parse_constant=pytest.fail) == {
        "schema": 1,
        "table": "runs",
        "rows": [{"x": 1.0}, {"x": None}, {"x": None}, {"x": None}],
        "notes": ["a"],
    }


def test_all_columns_are_those_of_the_table(sweep: Sweep) -> None:
    for every in ("*", "all"):
        rows = pl.read_csv(io.StringIO(asked(sweep, "-c", every, "-f", "csv")))
        assert {*sweep.results["cells"].columns} <= {*rows.columns}
        rows = pl.read_csv(
            io.StringIO(asked(sweep, "--by", "classifier", "-c", every, "-f", "csv"))
        )
        assert {"n_runs", "accuracy_mean", "accuracy_std", "ece_mean"} <= {*rows.columns}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-f", "xls"), '--format = "xls": unknown format'),
        (("-f", "lates"), 'did you mean "latex"'),
        (("-o", "rows.xlsx"), "or give --format"),
        (("-f", "latex", "-o", "rows.pdf"), "rows.tex"),
        (("-f", "csv", "-o", "rows.json"), "rows.csv"),
        (("-o", "no/such/rows.csv"), "its folder is not there"),
        (("--json", "-f", "csv"), "contradicts --json"),
        (("--by", "--agg", "means"), 'did you mean "mean"'),
        (("--by", "-c", "vary"), "not a number"),
        (("-t", "effects", "--agg", "mean"), "not for effects"),
        (("-t", "variance", "--by"), "intervals are not averaged"),
        (("-t", "margins", "--by"), "shares of bins are not averaged"),
    ],
)
def test_a_wrong_option_is_one_message(
    sweep: Sweep,
    options: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, told = inside("query", sweep.directory, *options)
    assert code == 2
    assert message in told
    assert not list(tmp_path.iterdir())


def test_sql_from_the_command_and_from_python(sweep: Sweep) -> None:
    text = "SELECT classifier, AVG(accuracy) AS mean FROM runs GROUP BY classifier ORDER BY mean"
    found = json.loads(asked(sweep, "--sql", text, "--json"))
    assert (found["sql"], found["rows"]) == (text, sweep.query(sql=text).to_dicts())
    runs = sweep.results["runs"]
    assert sweep.query(sql=text)["mean"].max() == pytest.approx(
        max(runs.filter(classifier=name)["accuracy"].mean() for name in ("xgb", "lr-sgd"))
    )
    code, told = inside("query", sweep.directory, "--sql", text, "--by", "classifier")
    assert (code, "--by" in told, "cannot be combined with --sql" in told) == (2, True, True)
    assert asked(sweep, "--sql", "SELECT cell FROM runs WHERE cell > 99") == "No rows.\n"


def test_rows_of_a_paper_are_told_apart_by_columns_that_were_not_asked_for(sweep: Sweep) -> None:
    """Asked for an accuracy alone, a table for a paper named no row."""
    asked = ("query", sweep.directory, "-t", "repeats", "--columns", "accuracy_mean")
    _, text = inside(*asked, "--format", "markdown")
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line[:1] == "|"]
    assert lines[0][-1] == "mean accuracy"
    assert len({tuple(line[:-1]) for line in lines[2:]}) == len(lines) - 2 > 1
    code, text = inside(*asked, "--format", "csv")
    assert (code, text.splitlines()[0]) == (0, "accuracy_mean")
    _, text = inside(*asked[:-1], "address,accuracy", "-t", "runs", "--format", "markdown")
    assert text.startswith("| address | accuracy |")


def test_the_spread_of_a_metric_of_runs_is_a_command_that_works(sweep: Sweep) -> None:
    """It was said to be in another table, which has no such column."""
    both = "accuracy_std,balanced_accuracy_mean,balanced_accuracy_std"
    code, told = inside("query", sweep.directory, "--by", "classifier", "-c", both)
    words = shlex.split(" ".join(told.split()).partition("manyseed ")[2])
    assert (code, words[:2]) == (2, ["query", str(sweep.directory)])
    code, told = inside(*words)
    assert code == 0
    assert "balanced_accuracy_sd" in told


def test_the_ends_of_a_metric_of_runs_are_a_command_that_works(sweep: Sweep) -> None:
    """Cells have the range alone; other tables, that were named, have a row per test set."""
    for asked in ("accuracy_min", "dataset,classifier,accuracy_mean,accuracy_std,accuracy_max"):
        code, told = inside("query", sweep.directory, "-c", asked)
        words = shlex.split(" ".join(told.split()).partition("manyseed ")[2])
        assert (code, words[:2]) == (2, ["query", str(sweep.directory)])
        code, told = inside(*words, "--format", "csv")
        rows = pl.read_csv(io.StringIO(told))
        assert code == 0
        least = sweep.results["repeats"]["accuracy_min"].min()
        assert rows["accuracy_min"].min() == pytest.approx(least)
        assert rows["accuracy_min"].count() == sweep.results["cells"].height  # below, a note


def test_many_columns_are_listed_on_a_screen(sweep: Sweep) -> None:
    code, told = inside("query", sweep.directory, "--columns", "?")
    lines = [line for text in told.splitlines() for line in textwrap.wrap(text, 80)]
    assert (code, len(lines) <= 40) == (0, True)
    assert "accuracy_…: _mean, _std, _range, _q05, _median, _q95" in told
    words = shlex.split(told.partition("What they mean: manyseed ")[2])
    code, told = inside(*words)
    assert (code, "Standard deviation" in told) == (0, True)


@pytest.mark.parametrize("how", [("--describe",), ("--columns", "?")])
def test_columns_are_listed_with_what_they_mean(sweep: Sweep, how: tuple[str, ...]) -> None:
    for table in ("runs", "pairs", "cells", "effects"):
        rows = json.loads(asked(sweep, "-t", table, *how, "--json"))["rows"]
        assert {row["column"] for row in rows} >= set(sweep.results[table].columns)
        assert all(row["meaning"] for row in rows)
        kept = json.loads(pl.read_parquet_metadata(sweep.paths.table(table))["columns"])
        for row in rows:
            known = kept.get(row["column"], row)
            assert (row["unit"], row["meaning"]) == (known["unit"], known["meaning"])
    grouped = json.loads(asked(sweep, "--by", "classifier", *how, "--json"))["rows"]
    named = {row["column"] for row in grouped}
    found = sweep.query(by=["classifier"]).columns
    assert {re.sub("^.*(?=_ci_)", "…", name) for name in found} - named == set()


@pytest.mark.parametrize(
    ("begun", "expected"),
    [
        (["-t", "ru"], ["runs"]),
        (["--format", "la"], ["latex"]),
        (["--agg", "mean,med"], ["mean,median"]),
        (["-t", "runs", "--columns", "cell,accu"], ["cell,accuracy"]),
        (["-t", "runs", "--by", "classi"], ["classifier"]),
        (["-t", "runs", "--sort", "addr"], ["address"]),
        (["--where", "n_runs > 3 AND train_f"], ["n_runs > 3 AND train_fraction"]),
        (["--where", "classifier = 'x"], ["classifier = 'xgb'"]),
        (["-w", "classifier IN ('xgb', 'lr"], ["classifier IN ('xgb', 'lr-sgd'"]),
        (["-w", "train_fraction = '"], []),
    ],
)
def test_the_shell_completes(
    sweep: Sweep, begun: list[str], expected: list[str], tmp_path: Path
) -> None:
    from typer.main import get_command

    from manyseed.orchestrator.cli.commands import app

    def completed(directory: Path) -> list[str]:
        command = get_command(app)
        words = ["query", str(directory), *begun[:-1]]
        context = command.make_context("manyseed", words, resilient_parsing=True)
        with context:
            name, own, rest = command.resolve_command(
                context, context._protected_args + context.args
            )
            sub = own.make_context(name, rest, parent=context, resilient_parsing=True)
            (option,) = [one for one in own.params if begun[-2] in one.opts]
            return [item.value for item in option.shell_complete(sub, begun[-1])]

    assert completed(sweep.directory) == expected
    completed(tmp_path)  # no sweep: nothing is said


@pytest.mark.parametrize("how", [("--json",), ("-f", "json"), ("--format=json",)])
def test_an_error_is_an_object_where_json_is_asked_for(sweep: Sweep, how: tuple[str, ...]) -> None:
    code, told = inside("query", sweep.directory, "-w", "classifier = mlp", *how)
    found = json.loads(told[told.index("{") :])
    assert (code, found["schema"], found["error"]["exit_code"]) == (2, 1, 2)
    assert "write 'mlp' in single quotes" in found["error"]["remedy"]


def test_a_sweeps_own_files_are_not_written_over(sweep: Sweep) -> None:
    for file in (sweep.paths.table("runs"), sweep.paths.sweep_file, sweep.paths.plan / "x.csv"):
        before = file.read_bytes() if file.exists() else None
        form = "parquet" if file.suffix == ".parquet" else "csv"
        code, told = inside("query", sweep.directory, "-o", file, "-f", form)
        assert (code, "is among the sweep's own files" in told) == (2, True)
        assert (file.read_bytes() if file.exists() else None) == before


def test_a_mean_that_is_asked_for_by_name_stands_with_its_interval(sweep: Sweep) -> None:
    found = sweep.query("runs", by=["classifier"], columns=["accuracy"], agg=["mean", "q05"])
    assert found["accuracy_ci_high"].null_count() == 0
    heads, rows, remarks = formats.in_cells(found)
    assert len(remarks) == 2
    assert " to " in str(rows[0][heads.index("accuracy_mean")])
    assert " to " not in str(rows[0][heads.index("accuracy_q05")])


def test_numbers_of_things_are_not_averaged_unless_asked_for(sweep: Sweep) -> None:
    found = sweep.query("ranking", by=["classifier"])
    assert "rank" in found.columns
    assert not {"cell", "repeat_index", "run_index"} & set(found.columns)
    asked_for = sweep.query("runs", by=["classifier"], columns=["repeat_index"])
    assert asked_for["repeat_index"].to_list() == [0.5, 0.5]


def test_half_finished_sweeps_say_what_is_missing(sweep: Sweep, tmp_path: Path) -> None:
    assert "Analysed" not in asked(sweep)
    copy = Sweep(shutil.copytree(sweep.directory, tmp_path / "sweep"))
    record = Analysis.read(copy.paths)
    short = copy.results["repeats"].with_columns(coverage=pl.lit(0.5))
    short.write_parquet(copy.paths.table("repeats"))
    replace(record, tables={}, runs={**record.runs, "planned": 128}).write(copy.paths)
    told = asked(copy, "--by", "classifier")
    assert "Analysed 64 of 64 finished runs, of 128 planned." in told
    assert "16 of 16 repeats lack runs" in told
    assert "cells have no finished run" not in told
    file = tmp_path / "more.toml"
    file.write_text(copy.paths.sweep_file.read_text().replace('"xgb"]', '"xgb", "svm-sgd"]'))
    Sweep.plan(file, copy.directory)
    told = asked(copy, "--by", "classifier")
    assert "4 of 12 cells have no finished run that was analysed: cancer × svm-sgd." in told
    notes = json.loads(asked(copy, "--json"))["notes"]
    assert notes[0] == "Analysed 64 of 64 finished runs, of 128 planned."


def test_a_column_of_another_table_is_named(sweep: Sweep) -> None:
    for column in ("fit_seconds", "fit_seconds_mean"):
        code, said = inside("query", sweep.directory, "-t", "pairs", "-c", column)
        assert (code, f'--columns = "{column}": unknown column' in said) == (2, True)
        assert "fit_seconds is in another table: -t runs" in said or column.endswith("mean")
    with pytest.raises(UserError, match=r'identical is in another table: table="\w+"'):
        sweep.query("margins", columns=["identical"])


@pytest.mark.parametrize(
    ("name", "index"), [("seed", "run_index"), ("run", "run_index"), ("repeats", "repeat_index")]
)
def test_seeds_and_test_sets_are_answered_with_their_numbers(
    sweep: Sweep, name: str, index: str
) -> None:
    code, said = inside("query", sweep.directory, "--by", name)
    assert (code, f'--by = "{name}": unknown column' in said) == (2, True)
    assert f"{index} numbers them: -t runs --by {index}" in said
    assert inside("query", sweep.directory, "-t", "runs", "--by", index)[0] == 0
    with pytest.raises(UserError, match=rf'table="runs" by=\["{index}"\]'):
        sweep.query(by=[name])


def test_methods_describe_the_metrics_that_are_asked_for(sweep: Sweep) -> None:
    def evaluation(*metric: str) -> str:
        return dict(sweep.methods(metric=metric))["Evaluation"]

    everything = evaluation()
    assert "Local error consistency is" in everything
    only = evaluation("accuracy")
    assert only.startswith("Accuracy: ")
    cited = ("@banerjee2025", "@banerjee2024")
    assert not any(word in only for word in ("consistency", "Churn", "α̂", *cited))
    assert "Churn is the share" in evaluation("churn")
    assert "Accuracy: " not in evaluation("churn")
    assert ("α̂ compares" in evaluation("alpha_hat")) == ("α̂ compares" in everything)
    code, said = inside("methods", sweep.directory, "--metric", "accuracy,chrun")
    assert code == 2
    assert 'did you mean "churn"?' in said


def test_rows_of_one_dataset_stand_together():
    rows = pl.DataFrame({"dataset": [*"abab", None], "classifier": [*"llmml"], "n": range(5)})
    found = _side_by_side(rows, ["dataset", "classifier"])
    assert found["n"].to_list() == [0, 2, 1, 3, 4]
    assert _side_by_side(rows, ["dataset"])["n"].to_list() == [0, 1, 2, 3, 4]
    sweeps = pl.DataFrame({"sweep": [*"xyx"], "dataset": [*"aab"], "n": range(3)})
    assert _side_by_side(sweeps, ["dataset"])["n"].to_list() == [0, 2, 1]


def test_a_difference_and_its_interval_have_the_same_decimals() -> None:
    """An end near 0 had a decimal more than the other."""
    frame = pl.DataFrame(
        {
            "difference": [0.0251, 0.048],
            "low": [-0.00065, 0.0281],
            "high": [0.0508, 0.0679],
            "x_low": [0.00004, 0.1],
            "x_high": [0.1, 0.2],
        }
    )
    lines = formats.in_format(frame, "markdown", {}, []).decode().splitlines()
    assert lines[2:] == [
        "| 0.0251 | -0.0006 | 0.0508 | 0.00004 | 0.10000 |",
        "| 0.0480 | 0.0281 | 0.0679 | 0.10000 | 0.20000 |",
    ]


@pytest.mark.parametrize("form", ["table", "markdown", "latex"])
def test_levels_are_printed_as_they_were_written(form: str) -> None:
    frame = pl.DataFrame({"train_fraction": [0.25, 1.0], "accuracy_mean": [0.5, 0.25]})
    text = formats.in_format(frame, form, {}, []).decode()
    assert "0.2500" in text, "a mean"
    assert text.count("0.25") == 2
    assert "1.0000" not in text
    assert form != "latex" or r"\begin{tabular}{rr}" in text


def test_the_best_of_each_group_of_columns_is_bold() -> None:
    frame = pl.DataFrame(
        {
            "dataset": ["a"] * 4,
            "train_fraction": [0.5, 0.5, 1.0, 1.0],
            "classifier": ["c", "d"] * 2,
            "accuracy_mean": [0.5, 0.6, 0.8, 0.7],
        }
    )
    paper = formats.for_paper("markdown", None, None, "best:dataset,train_fraction")
    text = formats.in_format(frame, "markdown", {}, [], paper).decode()
    assert re.findall(r"\*\*(.*?)\*\*", text) == ["0.6000", "0.8000"]
    assert "Bold: only the best number of each dataset and training fraction, not what" in text
    usual = formats.for_paper("markdown", None, None, "best")
    text = formats.in_format(frame, "markdown", {}, [], usual).decode()
    assert re.findall(r"\*\*(.*?)\*\*", text) == ["0.8000"]
    for wrong, said in (("best:", "names no columns"), ("worst:a", "unknown choice")):
        with pytest.raises(UserError, match=said):
            formats.for_paper("markdown", None, None, wrong)
    unknown = formats.for_paper("markdown", None, None, "best:epoch")
    with pytest.raises(UserError, match="no column of this table"):
        formats.in_format(frame, "markdown", {}, [], unknown)


def test_a_column_of_a_paper_has_one_number_of_decimals() -> None:
    small = pl.DataFrame({"x": [0.001, 0.00091, 0.0233, None, -0.00015], "y": [0.5, 0.25, 1, 0, 2]})
    for form in ("latex", "markdown"):
        text = formats.in_format(small, form, {}, []).decode()
        for value in ("0.00100", "0.00091", "0.02330", "-0.00015", "0.2500", "0.0000"):
            assert value in text
    assert "0.0010 " in formats.in_format(small, "table", {}, []).decode(), "on a screen, as before"
    frame = pl.DataFrame(
        {"m": [0.5, 0.02], "m_ci_low": [0.4, 0.0195], "m_ci_high": [0.6, 0.0205], "over": "seeds"}
    )
    text = formats.in_format(frame, "markdown", {}, []).decode()
    assert "| 0.50000 ± 0.10000 |" in text
    assert "| 0.02000 ± 0.00050 |" in text
    zero = pl.DataFrame({"x": [-3e-17, 0.0005]})
    assert "| 0.00000 |" in formats.in_format(zero, "markdown", {}, []).decode()
    tiny = pl.DataFrame({"x": [1e-9, 0.5]})
    assert "| 1e-09 |" in formats.in_format(tiny, "markdown", {}, []).decode()
