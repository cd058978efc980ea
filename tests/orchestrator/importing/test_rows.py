"""Which row of one table is which of another."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from manyseed import Sweep
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.store.groups import list_groups
from manyseed.orchestrator.store.reader import read_array

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
    with pytest.raises(UserError, match="has other rows") as error:
        Sweep.import_predictions(files, tmp_path / "sweep", columns=GIVEN)
    assert "truth=true,prediction=pred,row_id=id" in str(error.value)
    for file in files:
        pl.read_csv(file).drop("id").write_csv(file)
    with pytest.raises(UserError, match="row_id=NAME, or bring all files into one order"):
        Sweep.import_predictions(files, tmp_path / "sweep", columns=GIVEN)


@pytest.mark.parametrize("name", ["{}", "img{:04d}"])
def test_ids_may_be_numbers_or_text(tmp_path: Path, name: str) -> None:
    files = shuffled(tmp_path, [name.format(point) for point in range(N)])
    columns = {**GIVEN, "row_id": "id"}
    sweep = Sweep.import_predictions(files, tmp_path / "sweep", columns=columns)
    assert sweep.analyze()["runs"]["accuracy"].to_list() == pytest.approx([1, 1 - 1 / N])
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
