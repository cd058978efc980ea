import hashlib
import json
import shutil
import urllib.error

import numpy as np
import pytest
import sklearn.datasets._openml as sklearn_openml

from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import fetch, is_fetched, load, openml, resolve
from manyseed.jobs.datasets.catalogue import OPENML, OpenMLEntry
from manyseed.jobs.run import MachineError, NotFetched
from tests.jobs.datasets.files import openml_cache

TOY = OpenMLEntry("toy", 1, 7, 9, 4, 2, ("no", "yes"), (5, 4), 5, 4, labelled=True)
FEATURES = {
    "length": [1.5, 2, None, 4, 5, 6, 7, 8, -9],
    "size": ["10", "9", "9", None, "10", "9", "10", "100", "9"],
    "count": [1, 2, 3, 4, 5, 6, 7, 8, 9],
    "colour": ["red", "red", "blue", "green", "red", "red", "blue", "red", "red"],
}
TARGET = ["yes", "no", "no", "yes", "no", "yes", "no", "yes", "no"]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A folder of data without a network behind it, and a catalogue with a small dataset."""
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path))
    monkeypatch.setattr(openml, "OPENML", {**OPENML, "toy@1": TOY})

    def unreachable(request):
        raise urllib.error.HTTPError(request.full_url, 412, "no network here", None, None)

    monkeypatch.setattr(sklearn_openml, "urlopen", unreachable)
    return tmp_path


def test_a_cached_dataset_is_prepared(home):
    openml_cache(home, TOY, FEATURES, TARGET)
    info = resolve("openml:toy@1")
    assert not is_fetched(info.canonical)
    assert fetch(info)
    assert is_fetched(info.canonical)
    data = load(info.canonical)
    np.testing.assert_array_equal(data.X[:, 0], [1.5, 2, np.nan, 4, 5, 6, 7, 8, -9])
    np.testing.assert_array_equal(data.X[:, 1], [1, 0, 0, np.nan, 1, 0, 1, 2, 0])  # 9, 10, 100
    np.testing.assert_array_equal(data.X[:, 2], np.arange(1, 10))
    np.testing.assert_array_equal(data.X[:, 3], [2, 2, 0, 1, 2, 2, 0, 2, 2])
    assert data.cardinality.tolist() == [0, 3, 0, 3]
    assert data.y.tolist() == [1, 0, 0, 1, 0, 1, 0, 1, 0]
    assert data.class_names == info.class_names == ("no", "yes")
    assert data.X.dtype == np.float64


def test_a_dataset_of_the_suite_is_what_was_planned(home):
    entry = OPENML["vehicle@2"]
    rng = np.random.default_rng(0)
    features = {f"f{j}": rng.integers(0, 300, 846).tolist() for j in range(18)}
    target = rng.permutation(["N"] * 628 + ["P"] * 218).tolist()
    openml_cache(home, entry, features, target)
    info = resolve("vehicle")
    fetch(info)
    data = load(info.canonical)
    assert data.X.shape == (info.n_samples, info.n_features) == (846, 18)
    assert tuple(np.bincount(data.y)) == info.class_counts == (628, 218)
    np.testing.assert_array_equal(data.X[:, 17], features["f17"])


def test_columns_that_openml_ignores_are_no_features(home):
    openml_cache(home, TOY, {"row": list(range(9)), **FEATURES}, TARGET, ignored=("row",))
    info = resolve("openml:toy@1")
    fetch(info)
    np.testing.assert_array_equal(load(info.canonical).X[:, 2], np.arange(1, 10))


def test_classes_that_are_known_by_size_are_found_by_size(home, monkeypatch):
    sized = OpenMLEntry("toy", 1, 7, 9, 4, 2, ("majority", "minority"), (5, 4), 5, 4, False)
    monkeypatch.setattr(openml, "OPENML", {"toy@1": sized})
    info = resolve("openml:toy@1")
    assert info.canonical["positive"] == "minority"
    openml_cache(home, sized, FEATURES, ["a" if label == "yes" else "b" for label in TARGET])
    fetch(info)
    data = load(info.canonical)
    assert data.y.tolist() == [1, 0, 0, 1, 0, 1, 0, 1, 0]
    assert data.class_names == ("majority", "minority")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": [*TARGET[:-1], "yes"]}, "labels .*'no': 4.*in the catalogue .*'no': 5"),
        ({"features": {**FEATURES, "more": [1] * 9}}, "features 5, in the catalogue 4"),
        (
            {"features": {**FEATURES, "count": list("ababababa")}},
            "categorical features 3, in the catalogue 2",
        ),
        ({"target": ["maybe" if y == "no" else y for y in TARGET]}, "maybe.*catalogue.*'no'"),
        ({"version": 2}, "id 7 of OpenML is toy@2, in the catalogue it is openml:toy@1"),
        ({"name": "other"}, "is other@1, in the catalogue it is openml:toy@1"),
    ],
)
def test_data_that_is_not_the_catalogues_is_refused_with_both(home, change, message):
    openml_cache(home, TOY, **{"features": FEATURES, "target": TARGET, **change})
    info = resolve("openml:toy@1")
    with pytest.raises(MachineError, match=message):
        fetch(info)
    assert not is_fetched(info.canonical)


def test_a_changed_download_is_refused(home):
    openml_cache(home, TOY, FEATURES, TARGET)
    arff = home / "openml" / "openml.org" / "data" / "v1" / "download" / "7" / "made.arff.gz"
    openml_cache(home / "other", TOY, FEATURES, TARGET[::-1])
    arff.write_bytes((home / "other" / arff.relative_to(home)).read_bytes())
    with (
        pytest.warns(RuntimeWarning, match="Invalid cache"),
        pytest.raises(MachineError, match=r"openml:toy@1 .id 7. cannot be fetched"),
    ):
        fetch(resolve("openml:toy@1"))


def test_without_data_and_network_both_are_told():
    info = resolve("vehicle")
    with pytest.raises(MachineError, match=r"openml:vehicle@2 .id 994. cannot be fetched into"):
        fetch(info)
    with pytest.raises(NotFetched, match="openml:vehicle@2 is not in"):
        load(info.canonical)


# --- what the catalogue does not have ----------------------------------------------------------

OTHER = OpenMLEntry("other", 3, 61, 9, 4, 2, ("no", "yes"), (5, 4), 5, 4, labelled=True)


def test_any_dataset_is_named_by_its_number(home):
    openml_cache(home, OTHER, FEATURES, TARGET)
    info = resolve("openml:61")
    assert info.canonical["source"] == "openml:other@3"
    assert info.canonical["id"] == 61
    assert (info.n_samples, info.n_features, info.n_categorical) == (9, 4, 2)
    assert (info.class_names, info.class_counts) == (("no", "yes"), (5, 4))
    assert fetch(info)
    data = load(info.canonical)
    np.testing.assert_array_equal(data.X[:, 0], [1.5, 2, np.nan, 4, 5, 6, 7, 8, -9])
    X, y = np.asarray(data.X, dtype="<f8"), np.asarray(data.y, dtype="<i8")
    digest = hashlib.sha256(X.tobytes() + y.tobytes()).hexdigest()
    assert info.canonical["digest"] == digest


def test_it_is_described_without_its_data_from_then_on(home):
    openml_cache(home, OTHER, FEATURES, TARGET)
    first = resolve("openml:61", classes={"n": ["no"], "y": ["yes"]}, positive="n")
    shutil.rmtree(home / "openml" / "openml.org")
    assert resolve("openml:61", classes={"n": ["no"], "y": ["yes"]}, positive="n") == first
    with pytest.raises(MachineError, match=r"openml:other@3 .id 61. cannot be fetched into"):
        fetch(first)
    (home / "openml" / "described" / "61.json").write_text("{")
    with pytest.raises(Refused, match=r"openml:61 .*where the network can be reached"):
        resolve("openml:61")


def test_a_damaged_description_is_made_again(home):
    openml_cache(home, OTHER, FEATURES, TARGET)
    first, file = resolve("openml:61"), home / "openml" / "described" / "61.json"
    known = json.loads(file.read_text())
    wrong = ({"source": 3}, {"n_samples": "x"}, {"class_names": [1, 2]}, {"class_counts": [1]})
    texts = [json.dumps(known | one) for one in wrong]
    for text in (*texts, json.dumps(known | {"n_categorical": 99}), "[1]", "[" * 90_000):
        file.write_text(text)
        assert resolve("openml:61") == first
        assert json.loads(file.read_text()) == known
    for kept in (home / "openml" / "openml.org").rglob("*.gz"):
        kept.write_bytes(b"\x1f\x8b" + bytes(20))
    file.unlink()
    with (
        pytest.warns(RuntimeWarning, match="Invalid cache"),
        pytest.raises(Refused, match=r"openml:61 .*cannot be fetched"),
    ):
        resolve("openml:61")


def test_other_data_than_was_planned_is_refused(home):
    openml_cache(home, OTHER, FEATURES, TARGET)
    info = resolve("openml:61")
    openml_cache(home, OTHER, FEATURES, TARGET[::-1])
    with pytest.raises(MachineError, match=r"openml:other@3 .id 61. is not what was planned"):
        fetch(info)


def test_a_number_of_the_catalogue_is_its_entry(home):
    assert resolve("openml:994") == resolve("vehicle")


def test_what_is_no_classification_is_refused(home):
    openml_cache(home, OTHER, FEATURES, [1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5])
    with pytest.raises(Refused, match="Is it a number to predict"):
        resolve("openml:61")
