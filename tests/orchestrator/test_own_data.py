"""Data that a user's own function returns: pinned by its rows, called where it is planned alone."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manyseed import Sweep
from manyseed.jobs import datasets
from manyseed.jobs.datasets import DatasetInfo
from manyseed.jobs.datasets.function import digest
from manyseed.jobs.datasets.info import Samples
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.plans.code import fetch_datasets
from manyseed.orchestrator.plans.plan import Plan
from manyseed.orchestrator.plans.planning import plan_change, plan_sweep
from tests.orchestrator.conftest import command

SWEEP = """
name    = "data"
seed    = 3
repeats = 2
runs    = 2
[[grid]]
dataset    = ["mine"]
classifier = ["lr-sgd"]
[dataset.mine]
data = "mydata:load"
"""
DATA = """
from pathlib import Path
import numpy as np
import helper

def load(rows=60, shift=0.0):
    with open(Path(__file__).parent / "called", "a") as file:
        file.write("x")
    X = np.random.default_rng(helper.SEED).normal(size=(rows, 3)) + shift
    return {returned}
"""
LABELS = 'np.where(X[:, 0] > shift, "yes", "no")'
PLAIN = f"X, {LABELS}"
INDEXED = (
    "(lambda f, y, s: ({}))(*(lambda d: (d[['a']], d['y'], d[['a']].iloc[::-1]))("
    f"__import__('pandas').DataFrame(dict(a=X[:, 0], y={LABELS}))))"
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a sweep file and the modules that it names."""
    (tmp_path / "helper.py").write_text("SEED = 0\n")
    return tmp_path


def given(project: Path, gives: str = PLAIN, keys: str = "") -> Path:
    """Write the module and the sweep file."""
    (project / "mydata.py").write_text(DATA.replace("{returned}", gives))
    (project / "sweep.toml").write_text(SWEEP + keys)
    return project / "sweep.toml"


def called(project: Path) -> int:
    """Return how often the function was called."""
    file = project / "called"
    return len(file.read_text()) if file.exists() else 0


def planned(project: Path, *arguments: Any, **options: Any) -> DatasetInfo:
    """Return the dataset as it is planned."""
    change = plan_change(given(project, *arguments, **options), project / "sweep")
    return change.expansion.datasets["mine"]


def samples(info: DatasetInfo) -> Any:
    """Return what is trained on and tested."""
    datasets.fetch(info)
    return datasets.load(info.canonical)


@pytest.mark.slow
def test_a_function_gives_what_is_trained_on_and_is_called_where_it_is_planned_alone(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = given(project)
    monkeypatch.chdir(project)
    result = command("run", "sweep.toml", "--workers", 1)
    assert result.returncode == 0, result.stderr
    assert called(project) == 1
    sweep = Sweep(project / "data")
    assert sweep.status()["runs"]["done"] == 4
    canonical = json.loads(Plan.read(sweep.paths).all_cells["canonical"][0])["dataset"]
    assert canonical["source"] == "function:mydata:load"
    assert canonical["version"] == 1
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = (X[:, 0] > 0).astype(int)
    head = ((60, 3), None, ("no", "yes"), [0, 0, 0], None)
    content = f"{head}\n".encode() + X.astype("<f8").tobytes() + y.astype("<i8").tobytes()
    assert canonical["digest"] == hashlib.sha256(content).hexdigest()
    # a stranger's sweep names code, and whatever opens it calls none
    (project / "mydata.py").write_text('raise RuntimeError("imported")\n')
    sweep.verify()
    sweep.analyze()
    sweep.report()
    assert sweep.rerun("0:0:0")["equal"]
    assert called(project) == 1
    with pytest.raises(UserError, match=r"(?s)cannot be imported: RuntimeError: imported.*line 1"):
        plan_change(file, project / "other")


def test_what_was_returned_holds_as_long_as_the_code_stays_the_same(project: Path) -> None:
    file, directory = given(project), project / "sweep"
    first = plan_sweep(file, directory).expansion.datasets["mine"]
    (project / "sweep.toml").write_text(SWEEP.replace("runs    = 2", "runs    = 3"))
    plan_sweep(file, directory)
    assert called(project) == 1
    (project / "helper.py").write_text("SEED = 1\n")
    with pytest.raises(UserError, match=r"dataset\.mine: what it returns has changed"):
        plan_sweep(file, directory)
    assert called(project) == 2
    (project / "helper.py").write_text("SEED = 0\nANOTHER = 1\n")
    assert plan_sweep(file, directory).expansion.datasets["mine"].canonical == first.canonical
    (project / "mydata.py").unlink()  # what is known is known
    assert plan_sweep(file, directory).expansion.datasets["mine"].canonical == first.canonical
    given(project, keys="version = 2\n")
    second = plan_change(file, project / "other").expansion.datasets["mine"]
    assert second.id != first.id
    assert second.canonical["digest"] == first.canonical["digest"]


@pytest.mark.slow
def test_data_is_prepared_on_a_machine_that_lacks_it(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_sweep(given(project), project / "sweep")
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(UserError, match="the data of mine is not on this machine"):
        Sweep(project / "sweep").submit(workers=1)
    result = command("datasets", "fetch", project / "sweep" / "sweep.toml")
    assert result.returncode == 0, result.stderr
    assert "Prepared 1 dataset" in result.stdout
    Sweep(project / "sweep").submit(workers=1)
    Sweep(project / "sweep").wait()
    assert Sweep(project / "sweep").status()["runs"]["done"] == 4


FRAME = "pl.DataFrame({'a': X[:, 0], 'b': ['u', 'v'] * (rows // 2)})"
TABLE = f"{FRAME}.with_columns(kind=pl.Series({LABELS}), who=pl.Series(np.arange(rows) // 4))"


@pytest.mark.parametrize(
    ("gives", "keys", "expected"),
    [
        (PLAIN, "params = { rows = 40, shift = 5.0 }", (40, 3, 0, 10)),
        (f"X[:50], {LABELS}[:50], X[50:], {LABELS}[50:]", "", (60, 3, 0, 10)),
        (
            f"dict(X=X, y={LABELS}, who=np.arange(rows) // 4)",
            'group = "who"\ntest = 0.2',
            (60, 3, 0, 12),
        ),
        (f"{FRAME}, {LABELS}", 'categorical = ["b"]', (60, 2, 1, 15)),
        (f"{FRAME}[:40], {LABELS}[:40], {FRAME}[40:], {LABELS}[40:]", "", (60, 2, 1, 20)),
        (TABLE, 'target = "kind"\nignore = ["b"]\ngroup = "who"\ntest = 12', (60, 1, 0, 12)),
        (
            f"pd.DataFrame({TABLE}.to_dict(as_series=False))",
            'target = "kind"\nlast = 10',
            (60, 3, 1, 10),
        ),
        ("X.reshape(rows, 3, 1).astype('u1'), np.arange(rows) % 2", "", (60, 3, 0, 15)),
    ],
)
def test_what_a_function_may_return(
    project: Path, gives: str, keys: str, expected: tuple[int, ...]
) -> None:
    if "pd." in gives:
        pytest.importorskip("pandas")
    for short, name in (("pl", "polars"), ("pd", "pandas")):
        gives = gives.replace(f"{short}.", f'__import__("{name}").')
    info = planned(project, gives, keys)
    counts = (info.n_samples, info.n_features, info.n_categorical, info.n_test)
    assert counts == expected
    assert (info.image is None) == ("reshape" not in gives)
    found = samples(info)
    assert found.X.shape == expected[:2]


def test_masked_values_are_missing(project: Path) -> None:
    info = planned(project, f"np.ma.masked_less(X, -1), {LABELS}")
    X = samples(info).X
    assert info.missing == ("continuous",)
    assert 0 < np.isnan(X).sum() < X.size / 2
    assert np.nanmin(X) >= -1


KINDS = """
from decimal import Decimal
import numpy as np
import pandas as pd

y = np.arange(60) % 3
X = np.random.default_rng(0).normal(size=(60, 3)) + y[:, None]
frame = pd.DataFrame(X, columns=[*"abc"]).assign(y=y)
positive = np.where(X > 0, X, 0)
words = pd.Categorical(np.array([*"uvw"])[y], categories=[*"wvu", "unused"])
levels_ = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1), ("y", "")])

def matrix(): return np.matrix(X), y
def big_endian(): return X.astype(">f8"), y.astype(">i4")
def half(): return X.astype("f2"), y
def no_mask(): return np.ma.array(X, mask=False), np.ma.array(y)
def shuffled(): return frame[[*"abc"]].sample(frac=1, random_state=0), pd.Series(y).to_numpy()
def nullable(): return frame.assign(b=pd.array([None, *range(1, 60)], dtype="Int64"))
def sparse_frame():
    kind = pd.SparseDtype("float", 0.0)
    return pd.DataFrame(positive, columns=[*"abc"]).astype(kind).assign(y=y)
def categories(): return frame.assign(y=words)
def numbered(): return frame.set_axis(range(4), axis=1)

def levels(): return frame.set_axis(levels_, axis=1)
def truth(): return frame.assign(a=[True, False, None] * 20)
def interval(): return frame.assign(a=pd.cut(X[:, 0], 4))
def decimals(): return frame.assign(a=[Decimal(f"{v:.3f}") for v in X[:, 0]])
def mixed(): return frame.assign(a=[1 if i % 2 else "1" for i in range(60)])
def timedelta(): return frame.assign(a=pd.to_timedelta(np.arange(60), unit="h"))

def column(): return X, y[:, None]
def one_hot(): return X, np.eye(3)[y]
def nan_class(): return X, np.where(y == 2, np.nan, y)
def complexes(): return X + 1j, y
def timezone(): return frame.assign(a=pd.date_range("2020", periods=60, tz="Europe/Berlin"))
def sparse():
    import scipy.sparse
    return scipy.sparse.csr_matrix(positive), y
def gradient():
    import torch
    return torch.tensor(X, requires_grad=True), torch.tensor(y)
"""


@pytest.fixture
def kinds(project: Path) -> dict[str, Any]:
    """Write functions that return data of many types; return what they use."""
    pytest.importorskip("pandas")
    (project / "mydata.py").write_text(KINDS)
    made: dict[str, Any] = {}
    exec(KINDS, made)
    return made


def of_kind(project: Path, name: str, target: str = "") -> DatasetInfo:
    keys = f'target = "{target}"' if target else ""
    (project / "sweep.toml").write_text(SWEEP.replace("mydata:load", f"mydata:{name}") + keys)
    return plan_change(project / "sweep.toml", project / "sweep").expansion.datasets["mine"]


@pytest.mark.parametrize(
    ("name", "target"),
    [
        *((name, "") for name in ("matrix", "big_endian", "half", "no_mask", "shuffled")),
        *((name, "y") for name in ("nullable", "sparse_frame", "categories")),
        ("numbered", "3"),
    ],
)
def test_arrays_and_frames_of_any_type_are_their_values(
    project: Path, kinds: dict[str, Any], name: str, target: str
) -> None:
    info = of_kind(project, name, target)
    expected = kinds["positive" if name == "sparse_frame" else "X"].copy()
    if name == "half":
        expected = expected.astype("f2").astype(float)
    elif name == "shuffled":  # without an index, rows belong together by their order
        expected = kinds[name]()[0].to_numpy()
    elif name == "nullable":
        expected[:, 1] = [np.nan, *range(1, 60)]
    data = samples(info)
    np.testing.assert_array_equal(data.X, expected)
    np.testing.assert_array_equal(data.y, kinds["y"])
    assert info.class_names == (("u", "v", "w") if name == "categories" else ("0", "1", "2"))


@pytest.mark.parametrize("name", ["levels", "truth", "interval", "decimals", "mixed", "timedelta"])
def test_frames_of_odd_types_are_taken_or_refused_in_one_message(
    project: Path, kinds: dict[str, Any], name: str
) -> None:
    """Which of both depends on the library that converts them: polars alone, or pyarrow."""
    try:
        info = of_kind(project, name, "('y', '')" if name == "levels" else "y")
    except UserError:
        assert not (project / "sweep").exists()
    else:
        assert (info.n_samples, info.n_features) == (60, 3)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sparse", "returned X of object, not numbers or text"),
        ("column", r"what it returned holds X \(60, 3\) .* y \(60, 1\)"),
        ("one_hot", r"what it returned holds X \(60, 3\) .* y \(60, 3\)"),
        ("nan_class", "returned y with 20 of 60 values missing"),
        ("complexes", "returned X of complex128, not numbers or text"),
        ("timezone", "holds Datetime.* in column 'a'"),
        ("gradient", "cannot be kept: RuntimeError"),
    ],
)
def test_data_that_is_neither_numbers_nor_labels_is_refused(
    project: Path, kinds: dict[str, Any], name: str, said: str
) -> None:
    if name == "gradient":
        pytest.importorskip("torch")
    with pytest.raises(UserError, match=f"(?s){said}"):
        of_kind(project, name, "y" if name == "timezone" else "")
    assert not (project / "sweep").exists()


SAME = "pl.DataFrame({'a': X[:, 0], 'a ': X[:, 1], 'y': np.arange(rows) % 2})"


def test_columns_whose_names_look_the_same_are_refused(project: Path) -> None:
    gives = SAME.replace("pl.", '__import__("polars").')
    with pytest.raises(UserError, match="names look the same") as raised:
        planned(project, gives, 'target = "y"')
    assert raised.value.key == "dataset.mine.data"
    assert 'ignore = ["a", "a "]' in str(raised.value)


@pytest.mark.process
def test_a_process_that_ends_is_told(project: Path) -> None:
    with pytest.raises(UserError, match="cannot be called: its process ended"):
        planned(project, "__import__('os')._exit(3)")


def test_a_test_part_stays_one(project: Path) -> None:
    gives = f"X[:50], {LABELS}[:50], X[50:], {LABELS}[50:]"
    info = planned(project, gives)
    assert info.canonical["test"] == "official"
    X = np.random.default_rng(0).normal(size=(60, 3))
    np.testing.assert_array_equal(samples(info).X[-10:], X[50:])


def test_the_digest_tells_what_rows_are_for(project: Path) -> None:
    X, y, n = np.arange(12.0).reshape(6, 2), np.arange(6) % 2, np.zeros(2, dtype=np.int32)
    plain = Samples(X, y, n, ("a", "b"))
    groups = np.array([0, 0, 1, 1, 2, 2])
    others = [
        Samples(X, y, n, ("a", "c")),
        Samples(X, y, n, ("a", "b"), n_official_train=4),
        Samples(X, y, n, ("a", "b"), groups=groups),
        Samples(X, y, n, ("a", "b"), groups=groups[::-1].copy()),
        Samples(X, y, n, ("a", "b"), roles=np.zeros((1, 6), dtype=np.uint8)),
        Samples(X, y, n, ("a", "b"), image=(1, 2, 1)),
        Samples(X + 1e-12, y, n, ("a", "b")),
        Samples(X, 1 - y, n, ("a", "b")),
        Samples(X, y, n + 9, ("a", "b")),
        Samples(X.reshape(4, 3), y[:4], np.zeros(3, dtype=np.int32), ("a", "b")),
    ]
    assert len({digest(each) for each in (plain, *others)}) == len(others) + 1


@pytest.mark.parametrize(
    ("gives", "keys", "said"),
    [
        ("X", "", r"data = .*returned a ndarray; it returns \(X, y\)"),
        ("X, X, X", "", "returned a tuple of 3"),
        ("dict(a=1)", "", "returned a dict of a"),
        (f"dict(X=X, y={LABELS}, X_test=X)", "", "returned one of X_test and y_test"),
        (INDEXED.format("s, y"), "", "returned y, which has the index of X in another order"),
        (INDEXED.format("f, y, s, y"), "", "returned y_test, which has the index of X_test in"),
        (
            INDEXED.format("{'X': f, 'y': y, 'site': s['a']}"),
            "",
            "returned site, which has the index of X in another order",
        ),
        (f"X, {LABELS}[:10]", "", r"what it returned holds X \(60, 3\)"),
        (f"X[:50], {LABELS}[:50], X[50:, :2], {LABELS}[50:]", "", r"returned X \(50, 3\) and X_te"),
        (f"np.full((rows, 3), {{}}), {LABELS}", "", "returned X of object, not numbers or text"),
        (f"X, [None, *{LABELS}[1:]]", "", "returned y with 1 of 60 values missing; leave these"),
        (
            f"X, np.ma.array({LABELS}, mask=np.arange(rows) % 3 == 2)",
            "",
            "returned y with 20 of 60 values missing",
        ),
        (f"X * np.inf, {LABELS}", "", "what it returned holds infinite numbers"),
        ("X, np.zeros(rows)", "", r"target = .*has a single class, '0'"),
        (
            "__import__('manyseed').Sweep.plan({})",
            "",
            r"failed: the mapping: name: .*; add name = …; .*\(mydata.py, line 10\)",
        ),
        ("1 / 0", "", r"failed: ZeroDivisionError.*\(mydata.py, line 10\)"),
        (PLAIN, "params = { none = 1 }", r"failed: TypeError: .*'none'"),
        (PLAIN, "params = [1]", r"params = .*a table of values"),
        (PLAIN, "version = 0", r"dataset\.mine\.version"),
        (PLAIN, "size = [2, 2]", r"dataset\.mine\.size"),
        (PLAIN, 'group = "who"', r"dataset\.mine\.group"),
        (PLAIN, 'source = "sklearn:iris"', r"dataset\.mine\.data = .*the table also has a source"),
    ],
)
def test_mistakes_are_one_message_and_nothing_is_planned(
    project: Path, gives: str, keys: str, said: str
) -> None:
    with pytest.raises(UserError, match=f"(?s){said}"):
        planned(project, gives, keys)
    assert not (project / "sweep").exists()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("mydata", '"module:name"'),
        ("nowhere:load", "there is no module nowhere"),
        ("mydata:other", "mydata has no other"),
        ("helper:SEED", "it is int, not a function"),
    ],
)
def test_a_function_that_is_not_there(project: Path, entry: str, said: str) -> None:
    file = given(project)
    file.write_text(SWEEP.replace("mydata:load", entry))
    with pytest.raises(UserError, match=re.escape(said)) as raised:
        plan_sweep(file, project / "sweep")
    assert raised.value.key == "dataset.mine.data"
    assert not (project / "sweep").exists()


def test_data_that_is_no_longer_kept_is_said_to_be_gone(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANYSEED_DATA", str(project / "kept"))  # no copy was prepared there before
    info = planned(project)
    Path(info.locations[0]).unlink()
    with pytest.raises(Exception, match=r"what function:mydata:load returned is gone: plan again"):
        fetch_datasets({"mine": info})
