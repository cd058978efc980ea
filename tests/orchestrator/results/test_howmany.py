"""Ensembles of a sweep: Table I on disk, in the answers and on the page."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from manyseed import Sweep
from manyseed.analysis.axes import AXES
from manyseed.analysis.options import Options
from manyseed.analysis.questions.howmany import fewest_runs
from manyseed.analysis.questions.needed import RunsNeeded
from manyseed.jobs import whole
from manyseed.orchestrator.asking.query import query
from manyseed.orchestrator.cli.analyze import caveats
from manyseed.orchestrator.cli.commands import app
from manyseed.orchestrator.computing import ensembles
from manyseed.orchestrator.computing.tables import Analysis
from manyseed.orchestrator.disk.lease import LeaseWatch
from manyseed.orchestrator.disk.parquet import checksum, write_parquet
from manyseed.orchestrator.errors import DamagedFile, StoreUnavailable, UserError
from manyseed.orchestrator.importing import import_predictions
from manyseed.orchestrator.results.answers.comparison import are_sets_the_limit
from manyseed.orchestrator.results.answers.howmany import (
    GroupAnswers,
    Limited,
    _enough,
    _headline,
    _of_sets,
    reply,
)
from manyseed.orchestrator.results.answers.lacking import repeats_needed
from manyseed.orchestrator.store.groups import list_groups
from manyseed.orchestrator.store.index import JournalFolder
from manyseed.orchestrator.store.repair import drop
from tests.analysis.documented import documented
from tests.orchestrator.conftest import inside
from tests.readonly import read_only

N_TEST, RUNS = 200, 12
OPTIONS = Options(resamples=10)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """Two datasets of one repeat whose runs are alike."""
    folder = tmp_path_factory.mktemp("howmany")
    rng = np.random.default_rng(0)
    files = []
    for name in ("one", "two"):
        y_true = rng.integers(0, 2, N_TEST)
        scores = 2 * (2 * y_true - 1) + rng.normal(size=N_TEST) * 3
        gaps = (scores + rng.normal(size=(RUNS, N_TEST))).astype(np.float32)
        files.append(folder / f"{name}.npz")
        seconds = np.full(RUNS, 120.0)
        np.savez(files[-1], scores=gaps, y_true=y_true, fit_seconds=seconds)
    import_predictions(files, folder / "sweep")
    sweep = Sweep(folder / "sweep")
    sweep.analyze(Options(resamples=10))
    return sweep


def test_ensembles_on_disk_are_not_drawn_again(
    imported: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep(shutil.copytree(imported.directory, tmp_path / "sweep"))
    names = ("ensembles", "ensemble_draws")
    first = sweep.howmany(draws=20, workers=1)
    tables = [sweep.results[name] for name in names]
    monkeypatch.setattr(ensembles, "ensemble_draws", lambda *_, **__: pytest.fail("drawn again"))
    again = sweep.howmany(draws=20, workers=1)
    for one, other in zip(first, again, strict=True):
        assert one.answers == other.answers
        assert one.ensembles.equals(other.ensembles)
        assert one.ensembles.schema == other.ensembles.schema
    for name, table in zip(names, tables, strict=True):
        assert sweep.results[name].equals(table)
    earlier = tables[0].drop("models")
    write_parquet(sweep.paths.table("ensembles"), earlier)
    with pytest.raises(pytest.fail.Exception, match="drawn again"):
        sweep.howmany(draws=20, workers=1)
    write_parquet(sweep.paths.table("ensembles"), tables[0])
    for others in ({"draws": 21}, {"draws": 20, "sizes": [2, 4]}):
        with pytest.raises(pytest.fail.Exception, match="drawn again"):
            sweep.howmany(**others, workers=1)  # type: ignore[arg-type]


def test_answers_are_printed_as_the_command_prints_them(imported: Sweep) -> None:
    found = imported.howmany(draws=20, workers=1)
    told = inside("howmany", imported.directory, "--draws", 20)[1]
    told = told.replace("--difference 0.01", "difference=0.01")
    lines = [line.split() for line in told.splitlines() if "--why" not in line]
    assert [line.split() for line in str(found).splitlines()] == lines
    assert found[0].dataset == "one"
    sentences = str(imported.howmany(draws=20, workers=1, where="dataset = 'one'"))
    assert found[0].answers[0].words in sentences


def test_ensembles_are_answered_for_kept_and_drawn(imported: Sweep, tmp_path: Path) -> None:
    found = imported.howmany(draws=20, workers=1)
    assert [group.dataset for group in found] == ["one", "two"]
    assert [group.name for group in found] == ["one × imported (cell 0)", "two × imported (cell 1)"]
    close = found[0].answers[2]
    assert (close.runs, close.made) == (None, RUNS)
    assert "100 test points per side are too few" in close.words
    assert (
        "(δ = 0.237); about 2,120 would be enough; from 12 runs of one × imported (cell 0), "
        "repeat 0" in close.words
    )
    table = query(imported.results, "ensembles", sort="size")
    assert imported.results["ensembles"].columns == table_columns(imported)
    assert table.select("dataset", "size", "draws").rows() == [
        (dataset, size, 20) for size in (3, 5) for dataset in ("one", "two")
    ]
    # δ is above the option close: that α̂ is not says nothing
    assert set(imported.results["ensembles"]["close"].to_list()) <= {None, 0.0}
    page = imported.report().read_text()
    assert "No solid line where δ is above 0.05" in page
    different = imported.results["ensembles"].sort("size")["distinct"].to_list()
    assert max(different[2:]) <= 6  # of five out of six runs there are no more
    told = f"20 of each size, of which {min(different)} to {max(different)} differ in their members"
    of = "out of 6 runs, those of one repeat of cells 0, 1. δ = 0.237 with N = 100"
    assert f"n = 80 ensembles, {told}, {of}" in page


def test_what_is_close_is_an_option_of_the_analysis(imported: Sweep, tmp_path: Path) -> None:
    shutil.copytree(imported.directory, tmp_path / "copy")
    sweep = Sweep(tmp_path / "copy")
    analyze = ["analyze", str(sweep.directory), "--resamples", "10", "--close", "0.3"]
    assert CliRunner().invoke(app, analyze).exit_code == 0
    group = sweep.howmany(draws=20, workers=1, confidence=0.9)[0]
    close = group.answers[2]
    assert (close.runs, close.low, close.seconds) == (3, 1, 360.0)
    assert sweep.results["ensembles"]["close"].to_list()[-1] == 1.0
    assert "an ensemble with α̂ ≤ 0.3: 3 runs are needed" in close.words
    assert "about 6 minutes of training" in close.words
    told = replace(group, ensembles=group.ensembles.with_columns(delta=pl.lit(0.04)))
    found = [any("30 seeds by α̂" in line for line in reply([one]).below) for one in (told, group)]
    assert found == [True, False], "beside one's own number, if there is one"
    assert "of all ensembles of these runs do (90 % confidence); with δ = 0.237" in close.words
    assert "at N = 100 test points per side" in close.words
    assert "Share of ensembles of M_ens members with α̂ ≤ 0.3" in sweep.report().read_text()


@pytest.fixture(scope="module")
def three_cells(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """Three sources of randomness of one classifier: the more, the more its runs differ."""
    folder = tmp_path_factory.mktemp("cells")
    rng = np.random.default_rng(1)
    y_true = rng.integers(0, 2, N_TEST)
    spread = {"batch": 0.0, "init": 0.05, "init+batch": 0.15}
    rates = np.concatenate([0.3 + rng.uniform(-s, s, 10) for s in spread.values()])
    wrong = rng.random((30, N_TEST)) < rates[:, None]
    gaps = np.where(wrong == y_true, -1, 1) * rng.exponential(size=wrong.shape)
    gaps[0, : int(0.6 * N_TEST)] += 50  # its α̂ is about (0.6 - δ) / (1 - δ)
    vary = np.repeat([*spread], 10)
    np.savez(folder / "toy.npz", scores=gaps, y_true=y_true, vary=vary)
    import_predictions([folder / "toy.npz"], folder / "sweep")
    sweep = Sweep(folder / "sweep")
    sweep.analyze(OPTIONS)
    return sweep


def test_each_cell_has_its_own_answers(three_cells: Sweep) -> None:
    found = three_cells.howmany(accuracy=0.01, workers=1)
    assert [group.name for group in found] == [
        f"toy × imported, vary = {vary} (cell {cell})"
        for vary, cell in three_cells.results["cells"].select("vary", "cell").sort("cell").rows()
    ]
    of = {group.further["vary"]: group for group in found}
    runs = three_cells.results["runs"]
    for vary, group in of.items():
        spread = runs.filter(vary=vary)["accuracy"].std()
        answer = group.answers[0]
        assert answer.runs == fewest_runs(lambda n, s=spread: s**2 / n, 0.01)
        assert (answer.made, answer.repeats) == (10, 1)
        assert answer.low < answer.runs < answer.high
    pooled = three_cells.howmany(accuracy=0.01, workers=1, by=["dataset", "classifier"])
    ((name, cell, cells, further, answer),) = [
        (g.name, g.cell, g.cells, g.further["vary"], g.answers[0]) for g in pooled
    ]
    assert (name, cell, cells, further) == ("toy × imported (3 cells)", None, 3, None)
    assert (answer.made, answer.repeats) == (30, 3)
    alone = [group.answers[0].runs for group in found]
    assert min(alone) < answer.runs < max(alone)
    # What is read off ensembles is said once, where their runs belong.
    assert sorted(len(group.answers) for group in found) == [2, 2, 4]


@pytest.mark.parametrize(
    ("close", "n_close", "unsaid"),
    [(0.05, 0, 29), (0.3, 29, 0), (0.9, 30, 0)],  # δ is above the first
)
def test_runs_are_close_up_to_the_option(
    three_cells: Sweep, tmp_path: Path, close: float, n_close: int, unsaid: int
) -> None:
    shutil.copytree(three_cells.directory, tmp_path / "copy")
    sweep = Sweep(tmp_path / "copy")
    sweep.analyze(Options(resamples=10, close=close))
    assert sweep.results["sources"]["n_close"].sum() == n_close
    found = sweep.results["ranking"]["close"]
    assert (found.sum(), found.null_count()) == (n_close, unsaid)
    for table, column in (("ranking", "close"), ("sources", "n_close")):
        told = CliRunner().invoke(app, ["query", str(sweep.directory), "-t", table]).stdout
        said = f"{column} is empty where it can't be said" in " ".join(told.split())
        assert said == (unsaid > 0)


def test_the_ranking_says_what_chose(three_cells: Sweep, tmp_path: Path) -> None:
    shutil.copytree(three_cells.directory, tmp_path / "copy")
    ask = ["query", str(tmp_path / "copy"), "-t", "ranking"]
    told = CliRunner().invoke(app, ask).stdout
    assert "accuracy is optimistic: runs are ranked by it" in " ".join(told.split())
    held = ["analyze", ask[1], "--holdout", "0.25", "--resamples", "5", "--close", "0.3"]
    assert CliRunner().invoke(app, held).exit_code == 0
    told = CliRunner().invoke(app, ask).stdout
    assert "Runs are ranked by 75% of the test points" in " ".join(told.split())
    ranking = Sweep(tmp_path / "copy").results["ranking"].filter("close")
    best = ranking.filter(
        pl.col("choosing_accuracy") == pl.col("choosing_accuracy").max().over("cell")
    )
    assert set(best.filter(rank=1)["cell"]) == {0, 1, 2}
    assert ranking["holdout_accuracy"].null_count() == 0
    refused = CliRunner().invoke(app, [*held[:2], "--holdout", "1"])
    assert isinstance(refused.exception, UserError)


def test_answers_are_told_with_their_cells(three_cells: Sweep) -> None:
    directory = str(three_cells.directory)
    told = CliRunner().invoke(app, ["howmany", directory, "--why"]).stdout
    assert "toy × imported, vary = init (cell " in told
    assert (
        "95 %); the mean is over seeds, on one fixed test set; from 10 runs of 1 repeat; " in told
    )
    (first, *_) = json.loads(CliRunner().invoke(app, ["howmany", directory, "--json"]).stdout)[
        "groups"
    ]
    cell = three_cells.results["cells"].filter(cell=first["cell"])
    described = cell.select("cell", "cell_id", *AXES).row(0, named=True)
    assert {name: first[name] for name in described} == described
    by = CliRunner().invoke(app, ["howmany", directory, "--by", "vary", "--why"]).stdout
    assert "toy × imported, vary = init (cell " in by


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"by": ["varry"]}, '^by = "varry": not an axis of cells\n  did you mean "vary"'),
        ({"confidence": 1.0}, "^confidence = 1.0: must be a number above 0 and below 1"),
        ({"accuracy": float("nan")}, "^accuracy = nan: must be above 0 and below 0.5"),
        (
            {"accuracy": 5.0},
            "^accuracy = 5.0: must be above 0 and below 0.5\n  such as accuracy=0.005: the",
        ),
        ({"consistency": 0.5}, "^consistency = 0.5: must be above 0 and below 0.5"),
    ],
)
def test_what_cannot_be_answered_is_refused(
    imported: Sweep, asked: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        imported.howmany(**asked)


def test_sizes_are_drawn_as_asked_for(imported: Sweep) -> None:
    (found,) = imported.howmany(draws=4, workers=1, where="dataset = 'one'", sizes=[6, 1, 2, 1])
    assert found.ensembles["size"].to_list() == [1, 2, 6]
    assert found.ensembles["draws"].to_list() == [4, 4, 4]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ("1,7", "--sizes = [1, 7]: one × imported: the pool is 6 of the 12 runs of its largest"),
        ("0,3", "--sizes = [0, 3]: must be positive numbers"),
        (",", "--sizes = []: must be positive numbers"),
        ("3,some", '--sizes = "3,some": not a list of whole numbers'),
    ],
)
def test_sizes_that_cannot_be_drawn_are_refused(imported: Sweep, sizes: str, message: str) -> None:
    kept = imported.results
    result = CliRunner().invoke(app, ["howmany", str(imported.directory), "--sizes", sizes])
    assert isinstance(result.exception, UserError)
    assert message in str(result.exception)
    assert imported.results.keys() == kept.keys()


def table_columns(sweep: Sweep) -> list[str]:
    """Return the ensembles' columns, after seeing that they are told there and in the file."""
    kept = json.loads(pl.read_parquet_metadata(sweep.paths.table("ensembles"))["columns"])
    told = documented("ensembles")
    assert kept.keys() == told.keys() | {"cell", "cell_id", *AXES}
    assert {name: kept[name]["unit"] for name in told} == told
    return list(kept)


def test_each_ensemble_is_kept(imported: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    imported.analyze(OPTIONS)
    imported.howmany(draws=20, workers=1)
    each, table = imported.results["ensemble_draws"], imported.results["ensembles"]
    assert each.select("dataset", "size", "draw").rows() == [
        (dataset, size, draw) for dataset in ("one", "two") for size in (3, 5) for draw in range(20)
    ]
    columns = ("accuracy", "churn", "ece", "alpha_hat", "ks_distance")
    for row in table.iter_rows(named=True):
        own = each.filter(dataset=row["dataset"], size=row["size"])
        for name in columns:
            assert own[name].mean() == pytest.approx(row[name]), name
            assert own[name].std() == pytest.approx(row[f"{name}_std"]), name
        assert (~own["ks_rejected"]).mean() == row["accepted"]
        assert (own["ks_rejected"] == (own["ks_distance"] > own["delta"])).all()
    kept = json.loads(pl.read_parquet_metadata(imported.paths.table("ensemble_draws"))["columns"])
    told = documented("ensemble_draws")
    assert kept.keys() == told.keys() | {"cell", "cell_id", *AXES}
    assert {name: kept[name]["unit"] for name in told} == told
    by_size = query(
        imported.results, "ensemble_draws", by=["dataset", "size"], columns=["accuracy"]
    )
    assert by_size["n"].to_list() == [20] * 4
    assert "n_identical" not in by_size.columns  # rows are of ensembles
    assert "size" not in query(imported.results, "ensemble_draws", by=["dataset"]).columns
    # no more than a bound, and of others than were asked for they stand
    monkeypatch.setattr("manyseed.orchestrator.computing.ensembles.EACH", 6)
    imported.howmany(draws=9, workers=1, where="dataset = 'two'")
    after = imported.results["ensemble_draws"]
    assert after.filter(dataset="one").equals(each.filter(dataset="one"))
    assert after.filter(dataset="two")["draw"].to_list() == [*range(6), *range(6)]
    assert imported.results["ensembles"].filter(dataset="two")["draws"].to_list() == [9, 9]
    imported.analyze(Options(resamples=11))
    assert "ensemble_draws" not in imported.results
    imported.analyze(OPTIONS)


def test_answers_for_some_leave_the_ensembles_of_others(imported: Sweep) -> None:
    imported.howmany(draws=20, workers=1)
    before = imported.results["ensembles"]
    imported.howmany(draws=4, workers=1, where="dataset = 'two'")
    after = imported.results["ensembles"]
    assert after.filter(dataset="one").equals(before.filter(dataset="one"))
    assert after.filter(dataset="two")["draws"].to_list() == [4, 4]


@pytest.mark.slow
def test_ensembles_of_predictions_that_were_analysed_otherwise_are_forgotten(
    imported: Sweep,
) -> None:
    imported.howmany(draws=2, workers=1)
    imported.analyze(Options(resamples=10))
    assert "ensembles" in imported.results
    imported.analyze(Options(resamples=11))
    assert "ensembles" not in imported.results
    told = "Ensembles of one × imported, two × imported are left out"
    assert told in imported.report().read_text()
    imported.analyze(Options(resamples=10))
    assert told in str(caveats(imported))  # until they are drawn again
    imported.howmany(draws=2, workers=1, where="dataset = 'one'")
    page = imported.report().read_text()
    assert "Ensembles of two × imported are left out" in page
    imported.howmany(draws=2, workers=1)
    assert not re.search(r"Ensembles of [^.]* are left out", imported.report().read_text())


def test_ensembles_of_what_did_not_change_stand(imported: Sweep) -> None:
    imported.howmany(draws=2, workers=1)
    before = imported.results["ensembles"]
    file = imported.paths.table("ensembles")
    earlier = pl.col("digest").str.reverse()
    of_two = pl.when(pl.col("dataset") == "two").then(earlier).otherwise("digest")
    write_parquet(file, before.with_columns(digest=of_two))
    imported.analyze(OPTIONS)
    assert imported.results["ensembles"].equals(before.filter(dataset="one"))
    assert caveats(imported)["outdated"][0].startswith("Ensembles of two × imported are left out")


@pytest.mark.parametrize("name", ["ensembles", "ensemble_draws"])
def test_the_loss_of_ensembles_is_noticed_until_they_are_drawn_again(
    imported: Sweep, name: str
) -> None:
    imported.howmany(draws=2, workers=1)
    imported.paths.table(name).unlink()
    with pytest.raises(DamagedFile, match=f"{name}.parquet: is absent") as caught:
        imported.report()
    assert f'draw them again: Sweep("{imported.directory}' in str(caught.value)
    imported.analyze(OPTIONS)
    imported.howmany(draws=2, workers=1)
    assert name in imported.results
    assert imported.report().exists()


def test_lost_ensembles_are_left_out_of_a_new_analysis(imported: Sweep) -> None:
    imported.howmany(draws=2, workers=1)
    for name in ("ensembles", "ensemble_draws"):
        imported.paths.table(name).unlink()
    imported.analyze(OPTIONS)
    assert "Ensembles of one × imported, two × imported are left out" in str(caveats(imported))
    assert imported.report().exists()


def test_ensembles_of_other_predictions_are_shown_nowhere(imported: Sweep) -> None:
    imported.howmany(draws=2, workers=1)
    file = imported.paths.table("ensembles")
    write_parquet(file, imported.results["ensembles"].with_columns(digest=pl.lit("0" * 32)))
    for show in (imported.report, lambda: query(imported.results, "ensembles")):
        with pytest.raises(DamagedFile, match=r"ensembles.*is of other predictions") as caught:
            show()
        of = imported.directory
        again = f'Sweep("{of}").analyze()' if caught.value.from_python else f"manyseed analyze {of}"
        assert again in str(caught.value)
    imported.analyze(OPTIONS)
    assert re.search(r"Ensembles of [^.]* are left out", imported.report().read_text())


def test_ensembles_are_drawn_from_the_runs_that_were_analysed(
    imported: Sweep, tmp_path: Path
) -> None:
    imported.analyze(OPTIONS)
    shutil.copytree(imported.directory, tmp_path / "copy")
    sweep = Sweep(tmp_path / "copy")
    drawn = sweep.howmany(draws=4, workers=1)[0].ensembles
    fewer_runs = {
        "runs": sweep.results["runs"].filter(pl.col("run_index") < 10),
        "repeats": sweep.results["repeats"].with_columns(n_runs=pl.lit(10, pl.UInt32)),
    }
    record = Analysis.read(sweep.paths)
    tables = dict(record.tables)
    for name, table in fewer_runs.items():
        write_parquet(file := sweep.paths.table(name), table)
        tables[name] = checksum(file)
    replace(record, tables=tables).write(sweep.paths)
    fewer = sweep.howmany(draws=4, workers=1)[0].ensembles
    assert (drawn["models"][0], fewer["models"][0]) == (6, 5)


@pytest.mark.parametrize("left", [0, 7])
def test_what_was_analysed_and_is_published_no_longer_is_told(
    imported: Sweep, tmp_path: Path, left: int
) -> None:
    shutil.copytree(imported.directory, tmp_path / "copy")
    sweep = Sweep(tmp_path / "copy")
    (group, _) = list_groups(sweep.paths.store)
    rows = range(left, RUNS)
    drop({group: rows}, JournalFolder(sweep.paths.journals), LeaseWatch(sweep.paths.leases))
    with pytest.raises(DamagedFile, match=f"predictions.zarr: holds {left} runs .*have {RUNS}"):
        sweep.howmany(draws=2, workers=1)


@pytest.mark.parametrize(
    ("reference", "runs", "told"),
    [
        ("others", 2, "needs at least 3 runs in the same repeat"),
        ("others", 3, ""),
        ("loo_ensemble", 2, "needs at least 3 runs in the same repeat"),
        ("loo_ensemble", 3, ""),
        ("half", 3, "needs at least 4 runs in the same repeat"),
        ("half", 4, ""),
    ],
)
def test_too_few_runs_for_alpha_hat_are_named(
    tmp_path: Path, reference: str, runs: int, told: str
) -> None:
    rng = np.random.default_rng(1)
    y_true = rng.integers(0, 2, N_TEST)
    np.savez(
        tmp_path / "few.npz",
        scores=(2 * y_true - 1 + rng.normal(size=(runs, N_TEST))).astype(np.float32),
        y_true=y_true,
    )
    import_predictions([tmp_path / "few.npz"], tmp_path / "sweep")
    sweep = Sweep(tmp_path / "sweep")
    found = sweep.analyze(replace(OPTIONS, alpha_reference=reference))  # type: ignore[arg-type]
    assert (found["runs"]["alpha_hat"].null_count() == runs) == bool(told)
    lacking = caveats(sweep)["not_computed"]
    alone = [text for text in lacking if text.startswith("alpha_hat")]
    assert len(alone) == bool(told)
    assert told in "".join(alone)


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_ensembles_that_cannot_be_kept_are_only_returned(
    imported: Sweep, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    imported.analyze(OPTIONS)
    expected = imported.howmany(draws=3, workers=1)
    monkeypatch.setattr(whole, "replacing", refuse)
    if code == errno.ENOSPC:
        with pytest.raises(StoreUnavailable, match="No space left"):
            imported.howmany(draws=3, workers=1)
    else:
        found = imported.howmany(draws=3, workers=1)
        assert [one.answers for one in found] == [one.answers for one in expected]


def test_what_only_reads_works_in_a_folder_that_is_read_only(
    imported: Sweep, tmp_path: Path
) -> None:
    imported.analyze(OPTIONS)
    imported.report()
    imported.seal()
    folder = shutil.copytree(imported.directory, tmp_path / "copy")
    imported.paths.receipt.unlink()
    for drawn in (folder / "results").glob("ensemble*"):
        drawn.unlink()
    cell = Sweep(folder).results["cells"]["cell_id"][0]
    other = imported.directory
    asked: list[tuple[object, ...]] = [
        *(("status", folder), ("answers", folder), ("query", folder), ("howmany", folder)),
        *(("variance", folder), ("verify", folder), ("show", folder, f"{cell}:0:0")),
        ("methods", folder),
        *(("compare", folder, other), ("compare", folder, other, "--alike")),
        *(("answers", folder, "points"), ("answers", folder, "--why")),
        ("verify", folder, "--sealed"),
        ("howmany", folder, "--sizes", "1,2", "--draws", "10"),  # draws ensembles
        ("howmany", folder, "--until", "0.2", "--dry-run"),
        ("query", folder, "--sql", "SELECT accuracy FROM runs"),
        ("export", folder, "--output", tmp_path / "copy.zip"),
        ("report", folder, "--output", tmp_path / "page.html"),
        ("plot", folder, "cells", "-o", tmp_path / "figure.pdf"),
        ("logs", folder, "--failed"),
    ]
    with read_only(folder):
        for arguments in asked:
            code, said = inside(*arguments)
            assert "Read-only" not in said, arguments
            assert "ermission" not in said, arguments
            assert code in (0, 1) or "no more of them can be trained" in said, (
                f"{arguments}: {said}"
            )
        code, said = inside("report", folder)
    assert code == 4
    assert f"manyseed report {folder} --out {folder.name}.html" in said
    assert (tmp_path / "page.html").read_text().startswith("<!")


def test_what_draws_no_random_number_needs_one_run(tmp_path: Path) -> None:
    grid = '[[grid]]\ndataset = ["sklearn:iris"]\nclassifier = ["{}"]\nruns = {}\n'
    kinds = [("lr-sgd", 6), ("lr-sgd", 1), ("xgb", 1), ("xgb", 3)]
    for number, (name, runs) in enumerate(kinds):
        text = f'name = "{number}"\nseed = 1\nrepeats = 2\nruns = 1\n{grid.format(name, runs)}'
        (tmp_path / "f.toml").write_text(text)
        sweep = Sweep.plan(tmp_path / "f.toml", tmp_path / str(number))
        sweep.submit(cluster="local", workers=1)
        sweep.wait()
        sweep.analyze(OPTIONS)
        (group,) = sweep.howmany(draws=10, workers=1)
        first = group.answers[0]
        assert first.repeats == 2
        assert first.made == 2 * (runs if name == "lr-sgd" else 1)
        if name == "xgb":
            assert (first.runs, first.low, first.high) == (1, 1, 1)
            assert "nothing that varies reaches the fit" in first.words
            assert len(group.answers) == 2, "no ensemble of equal runs"
            assert "1 run is needed; nothing" in inside("howmany", sweep.directory)[1]
        elif runs == 1:
            assert (first.runs, first.reason) == (None, "no repeat has 2 runs or more")
            said = inside("howmany", sweep.directory)[1]
            assert "not told, as no repeat has 2 runs or more; runs = 10, say, show how" in said


@pytest.mark.parametrize(
    ("runs", "high", "made", "said"),
    [
        (None, 7, 10, "yes"),  # enough at any rate
        (None, 7, 6, "not told"),
        (None, None, 10, "not told"),
        (None, None, 0, "–"),
        (7, 9, 10, "yes"),
        (12, 20, 10, "no"),
    ],
)
def test_whether_there_are_enough_runs_is_said_beside_a_bound(
    runs: int | None, high: int | None, made: int, said: str
) -> None:
    needed = RunsNeeded("accuracy ± 0.005", runs, runs, high, 3 * made, 3, 0.95)
    assert _enough(needed) == said


def test_the_least_that_is_needed_names_its_cell() -> None:
    """It was said as if of all cells."""
    usual = dict.fromkeys(AXES[2:])
    bounds = {"one": 4, "two": 21}
    groups = [
        GroupAnswers(
            f"{name} × mlp",
            place,
            None,
            None,
            name,
            "mlp",
            usual,
            1,
            (RunsNeeded("accuracy ± 0.005", None, low, None, 3, 1, 0.95),),
            pl.DataFrame(),
        )
        for place, (name, low) in enumerate(bounds.items())
    ]
    said = "For accuracy ± 0.005: cannot be told yet, at least 21 runs"
    assert _headline(groups) == f"{said} in mlp on two."
    assert _headline(groups[1:]) == f"{said}."


@pytest.mark.parametrize(
    ("bounds", "made", "said"),
    [
        ((20, 24), 4, "24 runs are enough; fewer may be."),
        ((3, 4), 4, "4 runs are enough; enough: mlp on a, mlp on b."),
        ((4, 24), 4, "24 runs are enough; enough: mlp on a; not told: mlp on b."),
    ],
)
def test_the_headline_has_the_bound_that_the_table_has(
    bounds: Sequence[int], made: int, said: str
) -> None:
    """It said "not told" above "20 at most"."""
    groups = [
        GroupAnswers(
            f"{name} × mlp",
            place,
            None,
            None,
            name,
            "mlp",
            dict.fromkeys(AXES[2:]),
            1,
            (RunsNeeded("accuracy ± 0.005", None, None, high, made, 1, 0.95),),
            pl.DataFrame(),
        )
        for place, (name, high) in enumerate(zip("ab", bounds, strict=True))
    ]
    assert _headline(groups) == f"For accuracy ± 0.005: {said}"


@pytest.mark.parametrize(
    ("runs", "names", "said"),
    [
        ((4, None), ("xgb", "svm"), "enough: xgb; not told: svm."),
        ((4, 9, 2), ("xgb", "mlp", "svm"), "enough: xgb, svm; too few: mlp."),
        ((4,), ("xgb",), "enough."),
        ((9,), ("xgb",), "too few."),
        ((4, 9, 9), ("a,b", "mlp", "svm"), "of 3 that vary: 1 enough, 2 too few."),
        ((4, 9, *[None] * 5), "abcdefg", "of 7 that vary: 1 enough, 1 too few, 5 not told."),
    ],
)
def test_the_headline_names_what_has_enough_runs(
    runs: Sequence[int | None], names: Sequence[str], said: str
) -> None:
    """1 of 2 had enough, others were not told: which ones?"""
    groups = [
        GroupAnswers(
            name,
            place,
            None,
            3,
            "one",
            name,
            dict.fromkeys(AXES[2:]),
            1,
            (RunsNeeded("accuracy ± 0.005", needed, None, None, 5, 1, 0.95),),
            pl.DataFrame(),
        )
        for place, (name, needed) in enumerate(zip(names, runs, strict=True))
    ]
    assert _headline(groups).partition(" runs; ")[2] == said
    if len(groups) == 2:
        groups[1] = replace(groups[1], dataset="two")
        assert _headline(groups).endswith("enough: xgb on one; not told: svm on two.")


def test_what_test_sets_limit_is_told_as_compare_does(tmp_path: Path) -> None:
    """That more seeds do not tell which is better was said by `compare --why` alone."""
    rng, repeats = np.random.default_rng(0), np.repeat(range(4), 6)
    y_true = rng.integers(0, 2, (4, 200))
    rates = {"steady": [0.2] * 4, "moody": [0.15, 0.5, 0.22, 0.35], "bad": [0.6] * 4}
    of = {}
    for name, own in rates.items():
        wrong = rng.random((24, 200)) < np.array(own)[repeats, None]
        labels = np.where(wrong, 1 - y_true[repeats], y_true[repeats])
        runs = np.tile(range(6), 4)
        of[name] = {"labels": labels, "y_true": y_true, "repeat": repeats, "run": runs}
    sweep = Sweep.from_predictions(of, tmp_path / "s")
    sweep.analyze(Options(resamples=4), workers=1)
    (pair,) = [one for one in sweep.compare() if are_sets_the_limit(one)]
    assert pair.result is not None
    n = repeats_needed(pair.result, 0.95)
    limited = {group.cell: group.limited for group in sweep.howmany()}
    of_pair = [str(side.axes["classifier"]) for side in (pair.a, pair.b)]
    together = repeats_needed(pair.result, 0.95, 3)
    assert n is not None
    assert together is not None
    assert together > n
    assert limited.pop(pair.a.cell) == (Limited(*of_pair, n, together, 3),)
    assert {*limited.values()} == {()}
    said = " ".join(inside("howmany", sweep.directory)[1].split())
    takes = (
        f"limit which is better of {' and '.join(of_pair)}: about {n} repeats would tell "
        f"({together} for all 3 pairs together, as in answers; estimates): compare --why."
    )
    assert f"Test sets, not seeds, {takes}" in said
    assert f"about {n} repeats would tell it" in " ".join(
        inside("compare", sweep.directory, "--why")[1].split()
    )
    assert "Test sets, not seeds" not in inside("howmany", sweep.directory, "--by", "dataset")[1]


@pytest.mark.parametrize(
    ("needed", "said"),
    [
        ([(None, None, 1)], "a and b: about 1,000 or more repeats would tell (an estimate)"),
        (
            [(9, 12, 3), (9, 12, 3)],
            "a and b, and of 1 more pair: about 9 repeats would tell (12 for all 3 pairs together, "
            "as in answers; estimates)",
        ),
        (
            [(9, None, 3), (None, None, 3), (7, 8, 3)],
            "a and b, and of 2 more pairs: about 7 to 9 or more repeats would tell (8 or more for "
            "all 3 pairs together, as in answers; estimates)",
        ),
    ],
)
def test_repeats_of_several_pairs_are_one_clause(
    needed: list[tuple[int | None, int | None, int]], said: str
) -> None:
    group = GroupAnswers("a", 0, None, None, "d", "a", {}, 1, (), pl.DataFrame())
    limited = tuple(Limited("a", "b", *one) for one in needed)
    (told,) = _of_sets([replace(group, limited=limited)])
    assert told == f"Test sets, not seeds, limit which is better of {said}: compare --why."
    assert _of_sets([group]) == []


def test_a_difference_is_told_from_the_precision_of_a_mean(imported: Sweep) -> None:
    """14 runs for ± 0.01 of a mean were taken for those that tell a difference of 0.01."""
    code, text = inside("howmany", imported.directory)
    assert code == 0
    assert "± is of one mean; to tell two apart: --difference 0.01." in " ".join(text.split())
    assert not imported.howmany()[0].of_two
    code, text = inside("howmany", imported.directory, "--difference", "2%")
    told = " ".join(text.split())
    assert (code, "A - B ± 0.02" in told, "to tell two apart" in told) == (0, True, False)
    assert "told: a true difference of 0.02 is, in 80 % of cases (t test)." in told
    for group in imported.howmany(difference=0.02):
        (mean, *_), (known, power) = group.answers, group.of_two
        assert known.made == power.made == mean.made
        if known.runs is not None and known.runs > 1:
            assert power.runs is not None
            assert power.runs > known.runs
            assert known.words.startswith("For a difference of two such ± 0.02 at 95 % confid")
    values = json.loads(inside("howmany", imported.directory, "--difference", "0.02", "--json")[1])
    assert [len(one["of_two"]) for one in values["groups"]] == [2] * len(values["groups"])
    code, text = inside("howmany", imported.directory, "--difference", "0")
    assert (code, "--difference = 0" in text) == (2, True)


def test_a_precision_may_be_a_percentage(imported: Sweep) -> None:
    told = inside("howmany", imported.directory, "--accuracy", "1%")
    assert told == inside("howmany", imported.directory, "--accuracy", "0.01")
    assert told[0] == 0
    for wrong, remedy in (("1 percent", "0.01, or 1%"), ("50%", "below 0.5"), ("%", "0.01")):
        code, text = inside("howmany", imported.directory, "--accuracy", wrong)
        assert (code, remedy in " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())) == (2, True)
