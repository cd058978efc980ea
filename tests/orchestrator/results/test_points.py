"""Test points of a real sweep: the table, what is said of it, and what verdicts hang on."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from benchmarks.claims.points import resting
from manyseed import Sweep
from manyseed.analysis.axes import AXES
from manyseed.analysis.options import Options
from manyseed.analysis.questions import hardpoints, points
from manyseed.analysis.questions.comparison import Hanging, hangs
from manyseed.analysis.questions.hardpoints import by_point
from manyseed.orchestrator.cli.importing import test_sets_of as sets_of
from manyseed.orchestrator.computing.tables import Analysis
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.results.answers.comparison import is_alone
from manyseed.orchestrator.store.groups import list_groups
from manyseed.orchestrator.store.reader import read_array
from tests.analysis.documented import documented
from tests.orchestrator.conftest import inside, stored, train, write

OPTIONS = Options(resamples=4)


@pytest.fixture(scope="module")
def analysed(quick: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    directory = tmp_path_factory.mktemp("points") / "sweep"
    sweep = Sweep(shutil.copytree(quick.directory, directory))
    sweep.analyze(OPTIONS, workers=1)
    return sweep


def of_store(sweep: Sweep) -> dict[tuple[int, int], dict[str, float]]:
    """Share of wrong runs of each cell and point, run by run."""
    arrays, found = stored(sweep), {}
    for group in list_groups(sweep.paths.store):
        held = arrays[group.spec.path]
        cells, repeats = (read_array(group, name) for name in ("cell", "repeat_index"))
        for row in np.flatnonzero(held["status"] == 1):
            repeat = repeats[row]
            wrong = held["label"][row, -1] != held["y_true"][repeat]
            for point, one in zip(held["test_index"][repeat].tolist(), wrong, strict=True):
                found.setdefault((int(cells[row]), point), []).append(bool(one))
    return {key: {"wrong": np.mean(own), "n_runs": len(own)} for key, own in found.items()}


def test_the_table_is_what_the_store_holds(analysed: Sweep) -> None:
    table, runs = analysed.results["points"], analysed.results["runs"]
    expected = of_store(analysed)
    assert set(table.select("cell", "index").rows()) == set(expected)
    for row in table.iter_rows(named=True):
        for name, value in expected[row["cell"], row["index"]].items():
            assert row[name] == pytest.approx(value, abs=1e-6)
    right = table.group_by("cell").agg(
        (pl.col("n_runs") * (1 - pl.col("wrong").cast(float))).sum() / pl.col("n_runs").sum()
    )
    own = runs.filter(~pl.col("identical")).group_by("cell").agg(pl.col("accuracy").mean())
    both = right.join(own, on="cell")
    np.testing.assert_allclose(both["n_runs"], both["accuracy"], atol=1e-6)


def test_mean_flips_are_the_churn(analysed: Sweep) -> None:
    table = analysed.results["points"]
    churn = analysed.results["pairs"].group_by("cell").agg(pl.col("churn").mean())
    pairs = pl.col("n_runs") * 1.0  # all repeats have as many runs, so each point in proportion
    found = (
        table.drop_nulls("flips")
        .group_by("cell")
        .agg(flips=(pl.col("flips") * pairs).sum() / pairs.sum())
    )
    both = found.join(churn, on="cell")
    assert both.height == table["cell"].n_unique() - 1  # one cell has identical runs
    np.testing.assert_allclose(both["flips"], both["churn"], atol=1e-6)


def test_the_table_says_what_its_columns_are(analysed: Sweep) -> None:
    table, told = analysed.results["points"], documented("points")
    assert told.keys() | {"cell", "cell_id", *AXES} == set(table.columns)
    columns = json.loads(pl.read_parquet_metadata(analysed.paths.table("points"))["columns"])
    assert list(columns) == table.columns
    assert {name: columns[name]["unit"] for name in told} == told
    code, said = inside("query", analysed.directory, "-t", "points", "-w", "flips > 0.2")
    assert code == 0
    assert "majority" in said
    code, said = inside("query", analysed.directory, "-t", "points", "--by", "cell")
    assert code == 2
    assert "points are not averaged" in said


def test_answers_name_points(analysed: Sweep, tmp_path: Path) -> None:
    table = analysed.results["points"]
    usual = pl.col("perturb_continuous") == "none"
    of_lr = table.filter(pl.col("classifier") == "lr-sgd", pl.col("train_fraction") == 1)
    assert (of_lr.filter(usual)["flips"] > 0).sum() == 0
    usually, *_ = analysed.answers("points")
    assert not usually.headline.startswith("Points that change class"), "noise is not the seed"
    assert usually.headline in analysed.answers()
    of = "Of the runs with perturb continuous none, train fraction 1.0 alone; of others: "
    code, said = inside("answers", analysed.directory, "points")
    assert " ".join(said.split()).count(of) == 1
    [condition] = re.findall(re.escape(of) + '--where "(.*?)"', " ".join(said.split()))
    assert usually.rests_on == f'{of}where = "{condition}"'
    others, *_ = analysed.answers("points", where=condition)
    assert others.rows != usually.rows
    listed, *_ = analysed.answers("points", where="wrong >= 0")
    assert f'where = "(wrong >= 0) and {condition}"' in listed.rests_on
    first, *_ = analysed.answers("points", where="perturb_continuous != 'none'")
    assert first.headline.startswith("Points that change class, of 253 of cancer: ")
    most = of_lr.filter(~usual).group_by("index").agg(pl.col("flips").max())
    assert most.height == 253
    assert f"lr-sgd {(most['flips'] > 0).sum()}" in first.headline
    assert [row["flips"] for row in first.rows] == sorted(
        (row["flips"] for row in first.rows), reverse=True
    )
    noisy = ("-w", "perturb_continuous != 'none'")
    code, said = inside("answers", analysed.directory, "points", "--why", "--limit", "3", *noisy)
    assert code == 0
    assert "these runs tell (95 %) which class most further runs would predict" in " ".join(
        said.split()
    )
    page = analysed.report(output=tmp_path / "page.html").read_text()
    assert "Points to look at" in page


def test_a_verdict_falls_without_its_points(analysed: Sweep) -> None:
    """The accuracies that are left, from the store, are compared by the same function."""
    found = analysed.answers("verdicts", by="train_fraction")
    found += analysed.answers("verdicts", by="perturb_continuous")
    found += analysed.answers("verdicts")
    told = [one for one in analysed.compare() if one.result is not None]
    limits = [one.result.sets or one.result.seeds for one in told if one.result]
    beyond = sum(pair is not None and not pair[0] <= 0 <= pair[1] for pair in limits)
    assert len(analysed.answers("verdicts")) == max(beyond, 1)
    better = [
        one for one, pair in zip(told, limits, strict=True) if pair and not pair[0] <= 0 <= pair[1]
    ]
    alone = [", alone, hangs on" in one.headline for one in analysed.answers("verdicts")]
    assert sum(alone) == sum(map(is_alone, better))
    for one in found:
        assert " > " in one.headline or one.headline.startswith("No comparison tells")
        assert len(one.headline.split()) <= 20
        assert all(row["ahead"] > 0 for row in one.rows)
    code, said = inside("answers", analysed.directory, "points", "--verdicts")
    assert code == 0
    assert all(one.headline in " ".join(said.split()) for one in analysed.answers("verdicts"))


@pytest.mark.parametrize("index", [(3, 5), ()])
def test_a_verdict_that_is_told_alone_is_called_so(index: tuple[int, ...]) -> None:
    found = Hanging(index, tuple(0.5 for _ in index), 1000, 50)
    together, by_itself = (hangs(found, "a > b", "d", alone=alone) for alone in (False, True))
    assert " on d, alone, hangs on " in by_itself.headline
    assert by_itself.headline.replace(", alone,", "") == together.headline
    assert by_itself.cannot_tell.startswith(
        "Alone: told by itself, not for all comparisons together."
    )
    assert [row["alone"] for row in by_itself.rows] == [True for _ in index]
    assert "lone" not in f"{together.headline}{together.evidence}{together.cannot_tell}"


def test_planted_points_of_an_import_are_found(tmp_path: Path) -> None:
    """14 points that only one classifier gets right, and 20 labels that are wrong, by row."""
    better, worse = (right for ((_, right),) in resting(1, 14))
    rows = np.random.default_rng(0).permutation(1000) + 5000
    truth, wrong = np.arange(1000) % 3, np.arange(900, 920)
    of = {}
    for name, right in (("best", better), ("other", worse)):
        labels = np.where(right, truth, (truth + 1) % 3)
        labels[:, wrong] = (truth[wrong] + 2) % 3
        of[name] = {"labels": labels, "y_true": truth, "test_index": rows}
        of[name]["class_names"] = ["severe, acute", "mild", "none"]
    sweep = Sweep.from_predictions(of, tmp_path / "sweep", dataset="d")
    sweep.analyze(Options(metrics=("accuracy",)), workers=1)
    (verdict,) = sweep.answers("verdicts")
    assert verdict.headline == "best > other on d hangs on 14 of 1,000 points."
    assert {row["index"] for row in verdict.rows} == {*rows[:14].tolist()}
    labels = by_point(sweep.results.scan("points"))
    first = hardpoints.suspects(hardpoints.by_classifier(labels)).head(200)
    assert {*rows[wrong].tolist()} <= {*first.filter(wrong_least=1)["index"].to_list()}
    (hard,) = sweep.answers("points", kind="hard", limit=1000)
    assert {row["kind"] for row in hard.rows} == {"hard"}
    assert 'labelled "severe, acute", mostly predicted ' in "".join(hard.details)
    assert re.search(r"By class: .*\"severe, acute\" \d+ of", hard.evidence)
    assert [*sets_of(sweep.directory)] == [
        '  1,000 test points, 3 classes: "severe, acute", mild, none'
    ]
    assert {row["index"] for row in hard.rows} >= {*rows[wrong].tolist()}
    (chosen,) = sweep.answers("points", where="wrong >= 0.95", kind="hard", limit=1000)
    assert (chosen.headline, chosen.rows) == (hard.headline, hard.rows)
    one = f"index = {rows[wrong[3]]} AND wrong > 0.5"
    (chosen,) = sweep.answers("points", where=one, kind="hard")
    assert (chosen.headline, chosen.evidence) == (hard.headline, hard.evidence)
    assert [row["index"] for row in chosen.rows] == [rows[wrong[3]]]
    assert chosen.cannot_tell.startswith(f"Of these {len(hard.rows)}, 1 meets the condition. ")
    with pytest.raises(UserError, match="no such kind of points"):
        sweep.answers("points", kind="easy")
    assert sweep.answers("points", kind="sources") == []
    page = sweep.report().read_text()
    assert "best &gt; other hangs on it" in page


@pytest.mark.parametrize("large", [False, True])
def test_all_points_of_test_sets_are_known(monkeypatch: pytest.MonkeyPatch, large: bool) -> None:
    if large:
        monkeypatch.setattr(points, "_LARGEST", 3)
    index = np.array([[4, 2], [-1, -1], [9, 4]])
    assert points.tested(index, [0, 2]).tolist() == [2, 4, 9]


def test_only_what_changed_is_added_up_again(
    analysed: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep(shutil.copytree(analysed.directory, tmp_path / "sweep"))
    before = sweep.paths.table("points").read_bytes()
    made: list[object] = []
    build = points.build
    monkeypatch.setattr(points, "build", lambda *args: made.append(args) or build(*args))
    sweep.analyze(OPTIONS, workers=1)
    assert made == []
    assert sweep.paths.table("points").read_bytes() == before
    # of many points, the cells of a classifier are taken together
    monkeypatch.setattr(points, "MOST", 0)
    sweep.analyze(OPTIONS, workers=1)
    assert len(made) == 2
    pooled = sweep.results["points"]
    assert set(pooled["n_cells"]) == {4}
    assert pooled["cell"].n_unique() == 2
    assert pooled["train_fraction"].null_count() == pooled.height
    assert set(pooled["classifier"]) == {"lr-sgd", "xgb"}
    whole = analysed.results["points"]
    for name in ("lr-sgd", "xgb"):
        own, apart = pooled.filter(classifier=name), whole.filter(classifier=name)
        assert own["n_runs"].sum() == apart["n_runs"].sum()
        wrong = [(one["wrong"].cast(float) * one["n_runs"]).sum() for one in (own, apart)]
        assert wrong[0] == pytest.approx(wrong[1], rel=1e-5)


def test_results_without_the_table_still_open(analysed: Sweep, tmp_path: Path) -> None:
    sweep = Sweep(shutil.copytree(analysed.directory, tmp_path / "sweep"))
    record = Analysis.read(sweep.paths)
    del record.tables["points"]  # type: ignore[attr-defined]
    record.write(sweep.paths)
    sweep.paths.table("points").unlink()
    assert "points" not in sweep.results
    assert sweep.answers()
    assert sweep.answers("points") == []
    sweep.report()
    code, said = inside("query", sweep.directory, "-t", "points")
    assert code == 2
    assert f"manyseed analyze {sweep.directory}" in " ".join(said.split())
    sweep.analyze(OPTIONS, workers=1)
    assert sweep.results["points"].equals(analysed.results["points"])


def test_points_of_a_folder_of_images_are_told_by_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In answers, on the page, in queries and from Python; by rows where the files are unknown."""
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "data"))
    rng = np.random.default_rng(0)
    for number in range(120):
        kind = number % 2
        image = rng.integers(0, 120, (3, 3)).astype(np.uint8) + np.uint8(70 * kind)
        wrong = number in (7, 33, 51, 80, 92, 106)
        place = tmp_path / "pics" / ("one", "two")[kind != wrong]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"img{number:04d}.png")
    file = write(
        tmp_path / "s.toml",
        'name = "x"\nseed = 1\nrepeats = 4\nruns = 4\n[[grid]]\ndataset = ["pics"]\n'
        'classifier = ["lr-sgd", "xgb"]\nvary = ["init+batch"]\ntrain_fraction = [0.7]\n'
        f'[dataset.pics]\nsource = "file:{tmp_path / "pics"}"\n',
    )
    sweep = train(file, tmp_path / "sweep")
    sweep.analyze(OPTIONS, workers=1)
    names = sorted(
        each.relative_to(tmp_path / "pics").as_posix() for each in tmp_path.glob("pics/*/*")
    )
    rows = sweep.query("points")
    assert rows["file"].to_list() == [names[index] for index in rows["index"]]
    assert "file" not in sweep.results["points"].columns
    asked = sweep.query("points", columns=["index", "file"], where="file LIKE 'one/%'", sort="file")
    assert asked["file"].to_list() == sorted(name for name in rows["file"] if "one/" in name)
    assert asked.columns == ["index", "file"]
    assert all(file == names[index] for index, file in asked.iter_rows())
    code, said = inside("query", sweep.directory, "-t", "points", "--columns", "?")
    assert code == 0
    assert "File of the test point" in said
    assert rows.columns[: rows.columns.index("file")][-1] == "index"
    code, said = inside("answers", sweep.directory, "points", "--why")
    assert code == 0
    told = [row for one in sweep.answers("points") for row in one.rows if "index" in row]
    assert told
    assert all(row["file"] == names[row["index"]] for row in told)
    of = f", {told[0]['classifier']}" if told[0].get("classifier") else ""
    assert f"pics, {told[0]['file']}{of}: " in " ".join(said.split())
    assert "pics, row" not in said
    page = sweep.report().read_text()
    assert told[0]["file"] in page
    shutil.rmtree(tmp_path / "pics.kept", ignore_errors=True)
    shutil.copytree(tmp_path / "pics", tmp_path / "pics.kept")
    shutil.rmtree(tmp_path / "pics")  # what was trained on is shown, whatever became of its source
    assert sweep.report().read_text() == page
    shown = re.findall(
        r'<img src="data:image/png;base64,([^"]+)" alt="([^,]+), labelled ([^,"]+)', page
    )
    assert {told[0]["file"]} < {file for _, file, _ in shown}
    for data, file, truth in shown:
        assert file.startswith(f"{truth}/")
        with Image.open(io.BytesIO(base64.b64decode(data))) as image:
            assert np.array_equal(image, np.asarray(Image.open(tmp_path / "pics.kept" / file)))
    assert re.search(r'alt="[^"]*, wrong in \d+ % of runs"', page)
    (damaged,) = (tmp_path / "data").rglob("X.npy")
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    page = sweep.report().read_text()
    assert "The data of pics could not be read when this page was made" in page
    assert "<img" not in page
    damaged.write_bytes(whole)
    for kept in (tmp_path / "data").rglob("files.json"):
        kept.unlink()
    assert "file" not in sweep.query("points").columns
    code, said = inside("query", sweep.directory, "-t", "points", "--columns", "index,file")
    assert code == 2
    assert (
        f"pics, row {told[0]['index']}" in inside("answers", sweep.directory, "points", "--why")[1]
    )
