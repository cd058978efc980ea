"""Classes that predictions name: in one order, and in one spelling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.importing.classes import in_order, require_apart, require_one_order
from manyseed.orchestrator.importing.predictions import Names, attributes
from manyseed.orchestrator.importing.tables import openml
from manyseed.orchestrator.store.groups import list_groups
from tests.orchestrator.importing.conftest import runs_of

FILE = Path("given.npz")
NUMBERS = [str(number) for number in range(11)]


def scores_of(names: list[str]) -> dict[str, Any]:
    """Two perfect runs of which the scores have the classes' own order."""
    y = np.arange(4 * len(names)) % len(names)
    scores = np.repeat(5 * np.eye(len(names))[y][None], 2, axis=0).astype(np.float32)
    return {"scores": scores, "y_true": np.array(names)[y]}


@pytest.mark.parametrize(
    "names",
    [NUMBERS, ["c1", "c2", "c10"], ["a", "B"], ["fold 9", "fold 10"]],
    ids=["numbers", "numbered", "case", "words"],
)
def test_an_order_that_others_may_not_share_needs_names(tmp_path: Path, names: list[str]) -> None:
    given = scores_of(names)
    with pytest.raises(UserError, match="order is not certain") as error:
        Sweep.from_predictions(given, tmp_path / "refused")
    assert "class_names" in str(error.value)
    assert not (tmp_path / "refused").exists()
    labels = np.argmax(given["scores"], axis=2)
    with pytest.raises(UserError, match="order is not certain"):
        Sweep.from_predictions({"labels": labels, "y_true": given["y_true"]}, tmp_path / "refused")
    sweep = Sweep.from_predictions(given | {"class_names": np.array(names)}, tmp_path / "named")
    assert runs_of(sweep)["accuracy"].to_list() == [1, 1]


def test_labels_that_are_named_need_no_order(tmp_path: Path) -> None:
    y_true = np.array(NUMBERS * 2)
    sweep = Sweep.from_predictions({"labels": y_true[None], "y_true": y_true}, tmp_path / "sweep")
    (group,) = list_groups(sweep.paths.store)
    assert list(group.spec.class_names) == NUMBERS  # the order that datasets have
    assert runs_of(sweep)["accuracy"].to_list() == [1]


@pytest.mark.parametrize("names", [["0", "1", "2"], ["ham", "spam"], ["-1", "1"], ["0.5", "1.5"]])
def test_an_order_that_all_share_needs_no_names(names: list[str]) -> None:
    require_one_order(names, "y_true", FILE)
    assert in_order(reversed(names)) == tuple(names)


@pytest.mark.parametrize(
    ("truth", "predicted"),
    [
        ({"0", "1"}, {"0.0", "1.0"}),
        ({"01", "02"}, {"1", "2"}),
        ({"a", "b"}, {"a ", "b"}),
        ({"a\u00a0b", "c"}, {"a b", "c"}),
        ({"caf\u00e9", "c"}, {"cafe\u0301", "c"}),
        ({"a\u200b", "a"}, {"a"}),
        ({"Yes", "No"}, {"yes", "no"}),
        ({"1,5", "2"}, {"1.5", "2"}),
    ],
)
def test_one_class_in_two_spellings_is_refused(truth: set[str], predicted: set[str]) -> None:
    with pytest.raises(UserError, match="one but for spelling"):
        require_apart(truth, predicted, "prediction", FILE)


@pytest.mark.parametrize(
    ("truth", "predicted"),
    [({"a", "A"}, {"a", "A"}), ({"a", "A"}, {"a"}), ({"a"}, {"a", "A"}), ({"1", "2"}, {"1"})],
)
def test_classes_that_differ_are_not(truth: set[str], predicted: set[str]) -> None:
    require_apart(truth, predicted, "prediction", FILE)


def test_what_cannot_be_seen_is_shown() -> None:
    with pytest.raises(UserError) as error:
        require_apart({"caf\u00e9"}, {"cafe\u0301"}, "prediction", FILE)
    assert '"cafe\\u0301" and "caf\u00e9"' in str(error.value)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_keeps_its_labels_as_they_are_written(tmp_path: Path, suffix: str) -> None:
    labels = ["01", "1", "02", "2"] * 3
    frame = pl.DataFrame({"row_id": range(12), "prediction": labels, "truth": labels})
    path = tmp_path / f"t.{suffix}"
    getattr(frame, f"write_{suffix}")(path)
    source = openml([path], Names())
    assert source.class_names == ("01", "1", "02", "2")


def test_predictions_as_floats_are_not_wrong_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = "".join(f"{i},{float(i % 2)},{i % 2}\n" for i in range(12))
    path.write_text(f"row_id,prediction,truth\n{rows}")
    with pytest.raises(UserError, match=r'"0" and "0\.0"'):
        openml([path], Names())


@pytest.mark.parametrize("other", ["deep\u200b", "de\u00adep"])
def test_words_that_only_look_the_same_are_no_two_cells(other: str) -> None:
    with pytest.raises(UserError, match="only look the same"):
        attributes({"hparams": ["deep", other]}, 2, FILE)


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


LOOKALIKES = [
    ("cnn", "cnn\u200b"),
    ("caf\u00e9", "cafe\u0301"),
    ("tea", "tea "),
    ("a b", "a\u00a0b"),
]


@pytest.mark.parametrize("names", LOOKALIKES)
def test_classifiers_whose_names_only_look_the_same(tmp_path: Path, names: tuple[str, str]) -> None:
    given = scores_of(["a", "b"])
    with pytest.raises(UserError, match=r"classifier: .* only look the same"):
        Sweep.from_predictions(dict.fromkeys(names, given), tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    sweep = Sweep.from_predictions({names[1]: given}, tmp_path / "sweep")  # an odd name is a name
    before = contents(sweep.directory)
    other = given | {"scores": given["scores"] + np.float32(1)}
    with pytest.raises(UserError, match=r"classifier: .* only look the same"):
        sweep.add_predictions(other, classifier=names[0])
    assert contents(sweep.directory) == before
    sweep.add_predictions(other | {"run": [2, 3]}, classifier=names[1])
    assert sweep.status()["runs"]["done"] == 4


def test_datasets_of_files_whose_names_only_look_the_same(tmp_path: Path) -> None:
    given = scores_of(["a", "b"])
    for name, shift in (("digits", 0), ("digits\u200b", 1)):
        index = np.arange(len(given["y_true"])) + shift
        np.savez(tmp_path / f"{name}.npz", **given, test_index=index)
    with pytest.raises(
        UserError, match=r'dataset: "digits" and "digits\\u200b" only look the same'
    ):
        Sweep.import_predictions(sorted(tmp_path.glob("*.npz")), tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_words_of_two_files_that_only_look_the_same(tmp_path: Path) -> None:
    given = scores_of(["a", "b"])
    for name, word in (("0", "deep"), ("1", "deep\u200b")):
        np.savez(tmp_path / f"{name}.npz", **given, hparams=[word] * 2)
    files = [tmp_path / "0.npz", tmp_path / "1.npz"]
    with pytest.raises(UserError, match=r"1\.npz: hparams: .* only look the same"):
        Sweep.import_predictions(files, tmp_path / "refused", dataset="d")
    assert not (tmp_path / "refused").exists()
    sweep = Sweep.import_predictions(files[:1], tmp_path / "sweep", dataset="d")
    with pytest.raises(UserError, match=r"hparams: .* only look the same"):
        sweep.add_predictions(given | {"hparams": ["deep\u200b"] * 2})
    assert sweep.status()["runs"]["done"] == 2
