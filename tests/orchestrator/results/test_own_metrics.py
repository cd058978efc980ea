"""A sweep that anybody made names metrics; their code is run only where this user says so."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from manyseed import Sweep
from manyseed.orchestrator.computing.conventions import allowances, choose
from manyseed.orchestrator.disk.parquet import write_parquet
from manyseed.orchestrator.errors import UserError
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
    sys.modules.pop("evil", None)
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
    sys.modules.pop("evil", None)


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


PICKY = """
from pathlib import Path

def rate(part):
    if part.n_runs == 4 and not Path(__file__).with_name("mended").exists():
        raise ValueError("four are too many")
    return part.label.mean(axis=1)
"""


def test_a_metric_that_fails_costs_that_metric_on_that_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, n_runs in (("one", 3), ("two", 4)):
        labels = np.arange(10 * n_runs).reshape(n_runs, 10) % 2
        index = np.arange(10) + n_runs  # datasets of their own
        np.savez(
            tmp_path / f"{name}.npz", labels=labels, y_true=np.arange(10) % 2, test_index=index
        )
    files = [tmp_path / "one.npz", tmp_path / "two.npz"]
    sweep = Sweep.import_predictions(files, tmp_path / "sweep")
    plain = sweep.analyze()["runs"]
    (tmp_path / "picky.py").write_text(PICKY)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    sentence = (
        "picky:rate is not computed for two × imported: it failed with ValueError: four are too "
        "many."
    )
    for _ in range(2):  # said again where nothing has changed
        code, told = inside("analyze", "sweep", "--metric", "picky:rate")
        assert (code, " ".join(told.split()).count(sentence)) == (0, 1), told
        with monkeypatch.context() as patched:
            patched.syspath_prepend(tmp_path)
            with pytest.warns(UserWarning, match="picky:rate is not computed for two"):
                sweep.analyze(metrics=["picky:rate"])
        assert sentence in " ".join(inside("answers", "sweep", "--why")[1].split())
        runs = sweep.results["runs"]
        assert runs.filter(dataset="one")["rate"].to_list() == [0.5] * 3
        assert runs.filter(dataset="two")["rate"].null_count() == 4
        assert sweep.results["repeats"].filter(dataset="two")["rate_mean"].to_list() == [None]
        assert runs.select(plain.columns).equals(plain)
    assert sentence in sweep.report().read_text()
    (tmp_path / "mended").touch()
    code, told = inside("analyze", "sweep", "--metric", "picky:rate")
    assert code == 0, told
    assert "picky:rate is not computed" not in told
    assert sweep.results["runs"]["rate"].to_list() == [0.5] * 7
    sys.modules.pop("picky", None)


def test_a_metric_that_fails_is_not_kept_of_repeats_that_had_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one repeat of a dataset lacks it, a mean over the others would be another number."""
    labels = np.arange(40).reshape(4, 10) % 2
    repeat = np.array([0, 0, 1, 1])
    np.savez(tmp_path / "one.npz", labels=labels, y_true=np.arange(10) % 2, repeat=repeat)
    sweep = Sweep.import_predictions([tmp_path / "one.npz"], tmp_path / "sweep")
    (tmp_path / "erratic.py").write_text(
        "from pathlib import Path\n\n"
        "def rate(part):\n"
        "    if Path(__file__).with_name(f'wrong{part.held_out.repeat_index}').exists():\n"
        "        raise ValueError('wrong')\n"
        "    return part.label.mean(axis=1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert sweep.analyze(metrics=["erratic:rate"])["runs"]["rate"].null_count() == 0
    (tmp_path / "wrong1").touch()
    inputs = sweep.paths.table("inputs")
    held = pl.read_parquet(inputs)
    changed = held.with_columns(
        digest=pl.when(repeat_index=1).then(pl.lit("x")).otherwise("digest")
    )
    write_parquet(inputs, changed)  # as if the second repeat had changed
    results = sweep.analyze(metrics=["erratic:rate"])
    assert results["runs"]["rate"].null_count() == 4
    assert results["repeats"]["rate_max"].null_count() == 2
    sys.modules.pop("erratic", None)


MINE = """
def brier_skill(part):
    return (part.label == part.y_true).mean(axis=1)

def error_free(part):
    return brier_skill(part)

def churn_mean(part):
    return brier_skill(part)

def ece_mean(part):
    return brier_skill(part)

def missed(part):
    "Share of the positive points that are missed."
    return (part.label[:, part.y_true == 1] == 0).mean(axis=1)

missed.higher_is_better = False

def found(part):
    return 1 - missed(part)

found.higher_is_better = True

def odd(part):
    return found(part)

odd.higher_is_better = "no"

def rare(part):
    return (part.label != part.y_true).mean(axis=1)

def rare_share(part):
    return rare(part)

rare_share.is_share = True

def beyond(part):
    return 1 + rare(part)

beyond.is_share = True

def apart(one, other, y_true):
    return 1 + (one != other).mean()

apart.pairs = apart.is_share = True

def unsure(part):
    return rare(part)

unsure.is_share = "yes"
"""


def test_a_users_own_metric_says_which_values_are_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    y_true = np.arange(40) % 2
    wrong = np.arange(40) < np.array([2, 4, 6, 4])[:, None]
    worse = wrong | (np.arange(40) < 20)
    arrays = {
        name: {"labels": np.where(one, 1 - y_true, y_true), "y_true": y_true}
        for name, one in (("a", wrong), ("b", worse))
    }
    sweep = Sweep.from_predictions(arrays, tmp_path / "sweep")
    sweep.analyze(metrics=["mine:missed", "mine:found"])
    sys.modules.pop("mine", None)
    for name, way in (("missed", "lower"), ("found", "higher")):
        told = " ".join(inside("compare", sweep.directory, "--metric", name)[1].split())
        assert "a > b" in told
        assert f"; {way} is better." in told
        rows = inside("compare", sweep.directory, "--metric", name, "--format", "csv")[1]
        assert "a better" in rows
    asked = ("-t", "runs", "--columns", "?", "--limit", "100")
    columns = inside("query", sweep.directory, *asked)[1]
    assert "positive points that are missed. Lower is better." in " ".join(columns.split())
    with pytest.raises(UserError, match="higher_is_better is 'no', not True or False"):
        sweep.analyze(metrics=["mine:odd"])


def test_intervals_of_a_users_own_share_stay_within_what_is_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    y_true, repeat = np.arange(40) % 2, np.repeat(range(3), 2)
    wrong = np.arange(40) < np.array([0, 1, 0, 0, 12, 10])[:, None]
    arrays = {"labels": np.where(wrong, 1 - y_true, y_true), "y_true": y_true, "repeat": repeat}
    arrays["run"] = np.tile(range(2), 3)
    sweep = Sweep.from_predictions(arrays, tmp_path / "sweep", dataset="d", classifier="c")
    sweep.analyze(metrics=["accuracy", "mine:rare", "mine:rare_share"])
    sys.modules.pop("mine", None)
    columns = ["rare", "rare_share", "accuracy"]
    (row,) = sweep.query("runs", by=["classifier"], columns=columns).to_dicts()
    assert row["rare_ci_low"] < 0
    assert row["rare_share_ci_low"] > 0
    assert row["rare_share_ci_low"] == pytest.approx(1 - row["accuracy_ci_high"])
    assert row["rare_share_ci_high"] == pytest.approx(1 - row["accuracy_ci_low"])
    assert row["rare_share"] == row["rare"]
    found = sweep.query("repeats", by=["classifier"], columns=["rare_share_mean"]).to_dicts()[0]
    assert found["rare_share_mean_ci_low"] > 0
    with pytest.raises(UserError, match="is_share is 'yes', not True or False"):
        sweep.analyze(metrics=["mine:unsure"])
    for name in ("beyond", "apart"):
        told = inside("analyze", sweep.directory, "--metric", f"mine:{name}")[1]
        said = "and is_share says that values are from 0 to 1"
        assert said in " ".join(told.split()), told
    sys.modules.pop("mine", None)


def test_which_values_of_a_users_own_metric_are_better_is_not_guessed_from_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    y_true = np.arange(40) % 2
    wrong = np.arange(40) < np.array([1, 2, 3, 2])[:, None]
    arrays = {
        name: {"labels": np.where(wrong | (np.arange(40) < more), 1 - y_true, y_true)}
        for name, more in (("a", 0), ("b", 20))
    }
    arrays["b"]["labels"][0, 0] = y_true[0]
    sweep = Sweep.from_predictions(
        {name: {**one, "y_true": y_true} for name, one in arrays.items()}, tmp_path / "sweep"
    )
    sweep.analyze(metrics=["mine:brier_skill", "mine:error_free"])
    for name in ("brier_skill", "error_free"):
        for lower in (False, True):
            (found,) = sweep.compare("a", "b", metric=name, lower=lower)
            assert found.result is not None
            assert (found.result.better < 0.5) is lower
            assert found.higher_is_better is (False if lower else None)
        told = " ".join(inside("compare", sweep.directory, "--metric", name)[1].split())
        assert "P(A higher than B) = 1.00" in told
        assert f"Whether higher {name} is better is not known" in told
        rows = inside("compare", sweep.directory, "--metric", name, "--format", "csv")[1]
        assert "a higher" in rows
        assert "better" not in rows.splitlines()[1]
    for name in ("churn_mean", "ece_mean"):  # names of ours
        with pytest.raises(UserError, match="there is one already: rename the function"):
            sweep.analyze(metrics=[f"mine:{name}"])
    sys.modules.pop("mine", None)
