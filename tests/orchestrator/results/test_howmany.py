"""Ensembles of a sweep: Table I on disk, in the answers and on the page."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from analysis.options import Options
from orchestrator import Sweep
from orchestrator.cli.analyze import caveats
from orchestrator.cli.commands import app
from orchestrator.errors import DamagedFile, UserError
from orchestrator.importing import import_predictions
from orchestrator.parquet import checksum, write_parquet
from orchestrator.query import query
from orchestrator.results.record import Analysis
from orchestrator.results.tables import DESCRIPTORS, result_file
from orchestrator.store.groups import list_groups
from orchestrator.store.lease import LeaseWatch
from orchestrator.store.repair import drop
from tests.analysis.documented import documented

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


def test_ensembles_are_answered_for_kept_and_drawn(imported: Sweep) -> None:
    found = imported.howmany(draws=20, workers=1)
    assert [group.dataset for group in found] == ["one", "two"]
    close = found[0].answers[2]
    assert (close.runs, close.low, close.seconds) == (3, 1, 360.0)
    assert "about 6 minutes of training" in close.words
    assert "with δ = 0.237 at N = 100 test points a side" in close.words
    table = query(imported.results, "ensembles", sort="size")
    assert imported.results["ensembles"].columns == table_columns(imported)
    assert table.select("dataset", "size", "draws").rows() == [
        (dataset, size, 20) for size in (3, 5) for dataset in ("one", "two")
    ]
    page = imported.report().read_text()
    assert "n = 80 ensembles, 20 of each size, out of 6 runs. δ = 0.237 with N = 100" in page


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
        ("3,some", '--sizes = "3,some": no list of whole numbers'),
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
    kept = json.loads(pl.read_parquet_metadata(result_file(sweep.paths, "ensembles"))["columns"])
    told = documented("ensembles")
    assert kept.keys() == told.keys() | {"cell", "cell_id", *DESCRIPTORS}
    assert {name: kept[name]["unit"] for name in told} == told
    return list(kept)


def test_answers_for_some_leave_the_ensembles_of_others(imported: Sweep) -> None:
    imported.howmany(draws=20, workers=1)
    before = imported.results["ensembles"]
    imported.howmany(draws=4, workers=1, where="dataset = 'two'")
    after = imported.results["ensembles"]
    assert after.filter(dataset="one").equals(before.filter(dataset="one"))
    assert after.filter(dataset="two")["draws"].to_list() == [4, 4]


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
    assert "are left out" not in imported.report().read_text()


def test_ensembles_of_what_did_not_change_stand(imported: Sweep) -> None:
    imported.howmany(draws=2, workers=1)
    before = imported.results["ensembles"]
    file = result_file(imported.paths, "ensembles")
    earlier = pl.col("digest").str.reverse()
    of_two = pl.when(pl.col("dataset") == "two").then(earlier).otherwise("digest")
    write_parquet(file, before.with_columns(digest=of_two))
    imported.analyze(OPTIONS)
    assert imported.results["ensembles"].equals(before.filter(dataset="one"))
    assert caveats(imported)["outdated"][0].startswith("Ensembles of two × imported are left out")


def test_ensembles_of_other_predictions_are_shown_nowhere(imported: Sweep) -> None:
    imported.howmany(draws=2, workers=1)
    file = result_file(imported.paths, "ensembles")
    write_parquet(file, imported.results["ensembles"].with_columns(digest=pl.lit("0" * 32)))
    for show in (imported.report, lambda: query(imported.results, "ensembles")):
        with pytest.raises(DamagedFile, match=r"ensembles.*is of other predictions") as caught:
            show()
        assert f"manyseed analyze {imported.directory}" in str(caught.value)
    imported.analyze(OPTIONS)
    assert "are left out" in imported.report().read_text()


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
        write_parquet(file := result_file(sweep.paths, name), table)
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
    drop({group: rows}, sweep.paths.journals, LeaseWatch(sweep.paths.leases))
    with pytest.raises(DamagedFile, match=f"predictions.zarr: holds {left} runs .*are of {RUNS}"):
        sweep.howmany(draws=2, workers=1)
