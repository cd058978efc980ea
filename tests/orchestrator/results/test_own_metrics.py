"""A sweep that anybody made names metrics; their code is run only where this user says so."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from orchestrator import Sweep
from orchestrator.errors import UserError
from orchestrator.results.own_metrics import allowances, choose
from tests.orchestrator.conftest import inside

EVIL = """
from pathlib import Path
Path(__file__).with_name("was-run").touch()

def f(part):
    return part.label.mean(axis=1)
"""


@pytest.fixture
def strange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """A sweep of a stranger's: its own folder holds the module that its sweep file names."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    np.savez(tmp_path / "given.npz", labels=np.zeros((3, 10), np.int64), y_true=np.arange(10) % 2)
    sweep = Sweep.import_predictions([tmp_path / "given.npz"], tmp_path / "sweep")
    with sweep.paths.sweep_file.open("a") as file:
        file.write('\n[analysis]\nmetrics = ["evil:f"]\n')
    (sweep.directory / "evil.py").write_text(EVIL)
    return sweep


def test_a_strangers_metric_is_left_out_and_not_imported(
    strange: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(strange.directory)
    for verb in ("analyze", "howmany"):
        code, told = inside(verb, ".")
        assert code == 0, told
        assert ("Left out evil:f, which the sweep file names" in told) is (verb == "analyze")
        assert ("--metric evil:f" in " ".join(told.split())) is (verb == "analyze")
    assert "f" not in strange.results["runs"].columns
    assert str(strange.directory) not in sys.path
    assert not (strange.directory / "was-run").exists()


def test_the_sweeps_own_folder_is_no_place_for_modules(
    strange: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(strange.directory)
    code, told = inside("analyze", ".", "--metric", "evil:f")
    assert code == 2
    assert "No module named 'evil'" in told
    assert not (strange.directory / "was-run").exists()
    (tmp_path / "evil.py").write_text(EVIL)  # the user's own, where the command is given
    monkeypatch.chdir(tmp_path)
    code, told = inside("analyze", "sweep", "--metric", "evil:f")
    assert code == 0, told
    assert "Left out" not in told
    assert strange.results["runs"]["f"].to_list() == [0.0, 0.0, 0.0]
    # what was computed once is no permission either: analysis.json may come from a stranger
    sys.modules.pop("evil")
    (tmp_path / "was-run").unlink()
    assert inside("howmany", "sweep")[0] == 0
    assert not (tmp_path / "was-run").exists()


def test_from_python_it_is_named_too(
    strange: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.warns(UserWarning, match="Left out evil:f"):
        assert "f" not in strange.analyze()["runs"].columns
    (tmp_path / "evil.py").write_text(EVIL)
    monkeypatch.syspath_prepend(tmp_path)
    assert "f" in strange.analyze(metrics=["evil:f"])["runs"].columns
    sys.modules.pop("evil")


def test_a_users_own_file_allows_functions_and_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert choose(["lab:a", "b:b"], []) == ((), ("lab:a", "b:b"))
    assert choose(["lab:a", "b:b"], ["b:b", "c:c"]) == (("b:b",), ("lab:a",))
    allowances().parent.mkdir()
    allowances().write_text('allowed = ["lab", "b:b"]')
    assert choose(["lab:a", "b:b", "b:c"], []) == (("lab:a", "b:b"), ("b:c",))
    for wrong in ("allowed = 3", "allow = []", "allowed ="):
        allowances().write_text(wrong)
        with pytest.raises(UserError, match=r"metrics\.toml: cannot be read"):
            choose(["lab:a"], [])
