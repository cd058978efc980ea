"""Files of ``torch.save`` are imported as NPZ files are, and execute nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from manyseed import Sweep
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.store.groups import list_groups
from manyseed.orchestrator.store.reader import read_array

RUNS, SAMPLES = 3, 20
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 3, SAMPLES)
SCORES = RNG.normal(size=(RUNS, SAMPLES, 3)).astype(np.float32)


class Executes:
    """Makes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return open, (self.path, "w")


def scores_of(sweep: Sweep) -> Any:
    (group,) = list_groups(sweep.paths.store)
    return read_array(group, "score")[:RUNS, 0]


@pytest.mark.parametrize("name", ["scores", "logits"])
@pytest.mark.parametrize("is_zip", [True, False])
def test_tensors_are_imported(tmp_path: Path, name: str, is_zip: bool) -> None:
    tensors = {
        name: torch.tensor(SCORES, requires_grad=True),
        "y_true": torch.tensor(Y),
        "class_names": ["a", "b", "c"],
    }
    torch.save(tensors, tmp_path / "given.pt", _use_new_zipfile_serialization=is_zip)
    sweep = Sweep.import_predictions([tmp_path / "given.pt"], tmp_path / "sweep")
    np.testing.assert_array_equal(scores_of(sweep), SCORES)
    assert sweep.status()["runs"]["done"] == RUNS
    assert sweep.verify()["runs_wrong"] == 0
    assert list(tmp_path.glob(".*")) == []


def test_a_tensor_by_itself_beside_its_truth(tmp_path: Path) -> None:
    torch.save(torch.tensor(SCORES).to(torch.bfloat16), tmp_path / "logits.pth")
    np.save(tmp_path / "y.npy", Y)
    sweep = Sweep.import_predictions(
        [tmp_path / "logits.pth"], tmp_path / "sweep", truth=tmp_path / "y.npy"
    )
    np.testing.assert_array_equal(
        scores_of(sweep), torch.tensor(SCORES).to(torch.bfloat16).float().numpy()
    )
    torch.save(torch.tensor(SCORES.argmax(axis=2)), tmp_path / "labels.pt")
    sweep = Sweep.import_predictions(
        [tmp_path / "labels.pt"], tmp_path / "labels", truth=tmp_path / "y.npy"
    )
    (group,) = list_groups(sweep.paths.store)
    np.testing.assert_array_equal(read_array(group, "label")[:RUNS, 0], SCORES.argmax(axis=2))


def test_a_file_per_seed_of_both_kinds(tmp_path: Path) -> None:
    torch.save({"logits": torch.tensor(SCORES[:1]), "y_true": torch.tensor(Y)}, tmp_path / "a.pt")
    np.savez(tmp_path / "b.npz", scores=SCORES[1:], y_true=Y)
    sweep = Sweep.import_predictions(
        [tmp_path / "a.pt", tmp_path / "b.npz"], tmp_path / "sweep", dataset="d", classifier="m"
    )
    np.testing.assert_array_equal(scores_of(sweep), SCORES)


@pytest.mark.parametrize("is_zip", [True, False])
def test_nothing_in_a_file_is_executed(tmp_path: Path, is_zip: bool) -> None:
    went_off = tmp_path / "went-off"
    torch.save(
        {"scores": Executes(went_off)},
        tmp_path / "bad.pt",
        _use_new_zipfile_serialization=is_zip,
    )
    with pytest.raises(UserError, match="does not hold plain tensors, and nothing else is loaded"):
        Sweep.import_predictions([tmp_path / "bad.pt"], tmp_path / "sweep")
    assert not went_off.exists()
    assert not (tmp_path / "sweep").exists()


MISTAKES: list[tuple[Any, str]] = [
    ([torch.zeros(2), "a"], "holds a list, not a dict of tensors by name"),
    ({"scores": torch.tensor(SCORES), "y_ture": torch.tensor(Y)}, "unknown entry.*\n?.*y_true"),
    ({"scores": torch.tensor(SCORES)}, "y_true is missing"),
    ({"scores": torch.zeros(2, 2).to_sparse(), "y_true": torch.tensor(Y)}, "not a plain tensor"),
    ({"scores": torch.tensor(SCORES), "y_true": {"a": 1}}, "is a dict, not a tensor"),
    ({"scores": torch.tensor(SCORES), "logits": torch.tensor(SCORES)}, "scores and logits"),
    ({"scores": torch.tensor(SCORES[0, :5]), "y_true": torch.tensor(Y)}, "y_true|shape"),
    ({"scores": torch.full((1, SAMPLES, 3), np.nan), "y_true": torch.tensor(Y)}, "finite"),
]


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_what_are_no_predictions_is_one_message(tmp_path: Path, number: int) -> None:
    given, said = MISTAKES[number]
    torch.save(given, tmp_path / "bad.pt")
    with pytest.raises(UserError, match=said):
        Sweep.import_predictions([tmp_path / "bad.pt"], tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()
    assert list(tmp_path.glob(".*")) == []


def test_a_file_that_is_cut_off_or_none_is_one_message(tmp_path: Path) -> None:
    torch.save({"scores": torch.tensor(SCORES), "y_true": torch.tensor(Y)}, tmp_path / "a.pt")
    content = (tmp_path / "a.pt").read_bytes()
    for damaged in (content[:-200], content[:50], b"", b"text"):
        (tmp_path / "a.pt").write_bytes(damaged)
        with pytest.raises(
            UserError, match=r"is not a PyTorch file|is empty|does not hold plain tensors"
        ):
            Sweep.import_predictions([tmp_path / "a.pt"], tmp_path / "sweep")


def test_without_pytorch_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"scores": torch.tensor(SCORES)}, tmp_path / "a.pt")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UserError, match=r"PyTorch, which is not installed"):
        Sweep.import_predictions([tmp_path / "a.pt"], tmp_path / "sweep")
