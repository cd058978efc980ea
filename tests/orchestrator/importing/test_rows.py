"""Which row of one table is which of another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing import tables
from manyseed.orchestrator.importing.predictions import Names
from manyseed.orchestrator.store.groups import list_groups
from manyseed.orchestrator.store.reader import read_array
from tests.orchestrator.conftest import inside
from tests.orchestrator.importing.conftest import runs_of

N = 12
GIVEN = {"truth": "true", "prediction": "pred"}


def shuffled(folder: Path, ids: list[object]) -> list[Path]:
    """Write the same points for two seeds, in two orders; seed 1 is wrong on the first."""
    files = []
    for seed in (0, 1):
        true = ["a", "b"] * (N // 2)
        pred = ["b" if seed else "a", *true[1:]]
        frame = pl.DataFrame({"id": ids, "note": "x", "true": true, "pred": pred})
        files.append(folder / f"seed_{seed}.csv")
        frame.sample(fraction=1, shuffle=True, seed=seed).write_csv(files[-1])
    return files


def test_a_message_on_other_rows_names_the_column_that_tells_them_apart(tmp_path: Path) -> None:
    files = shuffled(tmp_path, list(range(N)))
    with pytest.raises(UserError, match=r"id: is not read.*another order") as error:
        Sweep.import_predictions(files, tmp_path / "sweep", columns=GIVEN)
    assert "'truth': 'true', 'prediction': 'pred', 'row_id': 'id'" in str(error.value)
    for file in files:
        pl.read_csv(file).drop("id").write_csv(file)
    with pytest.raises(UserError, match="bring all runs into one order"):
        Sweep.import_predictions(files, tmp_path / "sweep", columns=GIVEN)


@pytest.mark.parametrize("name", ["{}", "img{:04d}"])
def test_ids_may_be_numbers_or_text(tmp_path: Path, name: str) -> None:
    files = shuffled(tmp_path, [name.format(point) for point in range(N)])
    columns = {**GIVEN, "row_id": "id"}
    sweep = Sweep.import_predictions(files, tmp_path / "sweep", columns=columns)
    assert runs_of(sweep)["accuracy"].to_list() == pytest.approx([1, 1 - 1 / N])
    (group,) = list_groups(sweep.paths.store)
    assert read_array(group, "test_index")[0].tolist() == list(range(N))


def test_text_has_one_number_in_all_repeats(tmp_path: Path) -> None:
    rows = [(repeat, f"p{point}") for repeat in (0, 1) for point in range(repeat, repeat + 4)]
    frame = pl.DataFrame(rows, schema=["repeat", "row_id"], orient="row")
    file = tmp_path / "one.csv"
    frame.with_columns(truth=pl.lit("a"), prediction=pl.lit("b")).write_csv(file)
    sweep = Sweep.import_predictions([file], tmp_path / "sweep")
    (group,) = list_groups(sweep.paths.store)
    assert read_array(group, "test_index").tolist() == [[0, 1, 2, 3], [1, 2, 3, 4]]


CLASSES = np.array(["ant", "bee", "cat"])


def long_table(runs: int = 4) -> pl.DataFrame:
    """Seeds below one another, as scripts append them, with the names of their columns."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=N)
    frames = []
    for seed in range(runs):
        p = rng.dirichlet([1, 1, 1], size=N)
        own = {"seed": [seed] * N, "id": range(N), "true": CLASSES[y]}
        of_class = {f"p_{name}": p[:, k] for k, name in enumerate(CLASSES)}
        frames.append(pl.DataFrame({**own, "pred": CLASSES[p.argmax(axis=1)], **of_class}))
    return pl.concat(frames)


def test_the_option_that_is_suggested_for_a_long_table_reads_its_runs(tmp_path: Path) -> None:
    frame, file = long_table(), tmp_path / "long.csv"
    frame.sample(fraction=1, shuffle=True, seed=0).write_csv(file)
    code, said = inside("import", file, "--out", tmp_path / "sweep")
    assert code == 2
    option = "truth=true,prediction=pred,confidence='p_{class}',run=seed,row_id=id"
    assert f"--columns {option}" in " ".join(said.split())
    given = ("--columns", option.replace("'", ""))
    code, said = inside("import", file, "--out", tmp_path / "sweep", *given)
    assert (code, "not read" in said) == (0, False)
    right = frame.with_columns(right=pl.col("true") == pl.col("pred"))
    expected = right.group_by("seed").agg(pl.col("right").mean()).sort("seed")["right"]
    accuracy = runs_of(Sweep(tmp_path / "sweep")).sort("run_index")["accuracy"]
    assert accuracy.to_list() == pytest.approx(expected.to_list())


@pytest.mark.parametrize(
    ("names", "dropped", "option", "said"),
    [
        ({}, [], {}, "seed: is not read.*'run': 'seed', 'row_id': 'id'"),
        ({}, [], {"row_id": "id"}, "seed: is not read.*'row_id': 'id', 'run': 'seed'"),
        ({"seed": "s", "id": "i"}, [], {}, "s: is not read.*'run': 's'"),
        ({"seed": "epoch"}, ["id"], {}, "epoch: its 4 values are moments of a training"),
        ({}, ["seed"], {}, r"id: is not read.*in 4 rows.*numbers the runs.*over\('id'\)"),
        ({"id": "which"}, ["seed"], {}, r"which: is not read.*numbers the runs.*over\('which'\)"),
    ],
    ids=["both", "seed", "other names", "epochs", "id", "id of another name"],
)
@pytest.mark.parametrize("is_text", [False, True])
def test_columns_left_unread_that_tell_runs_or_rows_apart_are_refused(
    tmp_path: Path,
    names: dict[str, str],
    dropped: list[str],
    option: dict[str, str],
    said: str,
    *,
    is_text: bool,
) -> None:
    frame, file = long_table().drop(dropped).rename(names), tmp_path / "long.parquet"
    if is_text and "id" in frame.columns:
        frame = frame.with_columns(id=pl.format("img{}", "id"))
    frame.write_parquet(file)
    with pytest.raises(UserError, match=f"(?s){said}"):
        Sweep.import_predictions([file], tmp_path / "sweep", columns={**GIVEN, **option})
    assert not (tmp_path / "sweep").exists()


def test_runs_that_are_named_by_text_are_refused_until_each_has_a_file(tmp_path: Path) -> None:
    frame = long_table().with_columns(model=pl.format("m{}", "seed")).drop("seed", "id")
    frame.write_csv(tmp_path / "long.csv")
    with pytest.raises(UserError, match=r"(?s)model: is not read.*a file for each of its values"):
        Sweep.import_predictions([tmp_path / "long.csv"], tmp_path / "sweep", columns=GIVEN)
    (tmp_path / "files").mkdir()
    for (name,), part in frame.group_by("model"):
        part.drop("model").write_csv(tmp_path / "files" / f"{name}.csv")
    sweep = Sweep.import_predictions([tmp_path / "files"], tmp_path / "sweep", columns=GIVEN)
    assert sweep.survey().counts["done"] == 4


def test_rows_of_runs_in_other_orders_are_never_taken_for_one_another(tmp_path: Path) -> None:
    """Their true classes may be the same in each order."""
    frame = long_table()
    parts = [
        part.sample(fraction=1, shuffle=True, seed=seed).sort("true", maintain_order=True)
        for seed, part in enumerate(frame.partition_by("seed"))
    ]
    pl.concat(parts).write_csv(tmp_path / "long.csv")
    with pytest.raises(
        UserError, match=r"(?s)id: is not read.*another order.*'run': 'seed', 'row_id': 'id'"
    ):
        Sweep.import_predictions(
            [tmp_path / "long.csv"], tmp_path / "sweep", columns={**GIVEN, "run": "seed"}
        )
    files = [tmp_path / f"{seed}.csv" for seed in range(len(parts))]
    for part, file in zip(parts, files, strict=True):
        part.write_csv(file)
    with pytest.raises(
        UserError, match=r"(?s)1.csv: id: is not read.*another order.*'row_id': 'id'"
    ):
        Sweep.import_predictions(files, tmp_path / "sweep", columns=GIVEN)
    assert not (tmp_path / "sweep").exists()


def test_columns_that_tell_nothing_of_runs_stay_unread(tmp_path: Path) -> None:
    """Constants, copies of the true class, features, and ids that each row has its own of."""
    frame = long_table(1).with_columns(
        group=pl.int_range(pl.len()) % 2,  # as many rows each, but other classes
        truth_index=pl.col("true").rank("dense"),
        size=pl.int_range(pl.len()) // 3,
        note=pl.lit("x"),
    )
    frame = frame.with_columns(true=pl.Series(CLASSES[[0, 1, 1, 2] * 3]))
    frame.write_csv(tmp_path / "one.csv")
    sweep = Sweep.import_predictions([tmp_path / "one.csv"], tmp_path / "sweep", columns=GIVEN)
    assert sweep.survey().counts["done"] == 1


def test_attributes_that_change_within_a_run_are_refused(tmp_path: Path) -> None:
    """The first row's value stood for the run, which had the rows of all."""
    frame = long_table(2).drop("id").with_columns(hparams=pl.format("lr{}", "seed"), run=pl.lit(0))
    frame.drop("seed").write_csv(tmp_path / "long.csv")
    with pytest.raises(UserError, match="hparams: has several values in repeat 0, run 0"):
        Sweep.import_predictions([tmp_path / "long.csv"], tmp_path / "sweep", columns=GIVEN)


NAMES = (
    *("file", "count", "len", "ids", "value", "values", "index", "row", "source", "_x", "run 0"),
    *("line", "place", "position", "*", "^.*$", "^seed$", "class_names", "literal"),
)
"""Names that a query might give its own columns, or take for a pattern."""


def accuracies(files: list[Path], columns: dict[str, str]) -> list[float]:
    held = tables.openml(files, Names(), tuple(columns.items()))
    predicted = held.read(np.arange(held.n_runs)).label
    assert predicted is not None
    return [float(np.mean(run == held.y_true[0])) for run in predicted[:, 0]]


@pytest.mark.filterwarnings("ignore:.*not read")
@pytest.mark.parametrize("name", NAMES)
def test_a_column_may_have_any_name(tmp_path: Path, name: str) -> None:
    """Unread, or read as what it is, in a file for each seed and in one for all."""
    frame = long_table().select("seed", "true", "pred")
    parts = frame.partition_by("seed", include_key=False)
    expected = [float((part["true"] == part["pred"]).mean()) for part in parts]
    parts = [part.with_columns(pl.Series(name, [f"x{n}" for n in range(N)])) for part in parts]
    files = [tmp_path / f"seed{number}.csv" for number in range(len(parts))]
    for file, part in zip(files, parts, strict=True):
        part.write_csv(file)
    assert accuracies(files, GIVEN) == expected
    long, options = tmp_path / "long.csv", {**GIVEN, "run": "seed"}
    frame.with_columns(pl.Series(name, [f"x{n % 5}" for n in range(len(frame))])).write_csv(long)
    assert accuracies([long], options) == expected
    for own, theirs in (*options.items(), ("row_id", "id")):
        long_table().rename({theirs: name}).write_csv(long)
        assert accuracies([long], {**options, "row_id": "id", own: name}) == expected
    # and where it does tell rows apart, the message says so
    for number, (file, part) in enumerate(zip(files, parts, strict=True)):
        part.sample(fraction=1, shuffle=True, seed=number).sort("true").write_csv(file)
    with pytest.raises(UserError, match=r"is not read.*another order") as error:
        accuracies(files, GIVEN)
    assert error.value.key == name


def test_an_error_of_our_own_is_not_a_damaged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        pl.DataFrame({"a": [1]}).select("a", "a")

    monkeypatch.setattr(tables, "require_told_apart", fails)
    long_table().write_csv(tmp_path / "long.csv")
    with pytest.raises(pl.exceptions.DuplicateError):
        Sweep.import_predictions([tmp_path / "long.csv"], tmp_path / "sweep", columns=GIVEN)
    assert [path.name for path in tmp_path.iterdir()] == ["long.csv"]
