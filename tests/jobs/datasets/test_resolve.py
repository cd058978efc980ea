import subprocess
import sys

import numpy as np
import pytest

from manyseed.jobs.datasets import catalogue, load, names, resolve


def test_a_bare_source_is_a_dataset():
    info = resolve("sklearn:digits")
    assert info.image == (8, 8, 1)
    assert (info.n_samples, info.n_features, info.n_continuous) == (1797, 64, 64)
    assert info.class_names == tuple("0123456789")
    assert (info.n_train, info.n_test) == (1348, 449)
    assert "positive" not in info.canonical


def test_the_positive_class_has_index_1_whichever_it_is():
    benign = resolve("sklearn:breast_cancer")
    malignant = resolve("sklearn:breast_cancer", positive="malignant")
    assert benign.class_names == ("malignant", "benign")
    assert benign.class_counts == (212, 357)
    assert malignant.class_names == ("benign", "malignant")
    assert malignant.class_counts == (357, 212)
    assert benign.id != malignant.id


def test_defaults_written_out_are_the_same_dataset():
    assert (
        resolve("sklearn:breast_cancer", positive="benign", test=0.25).id
        == resolve(
            "sklearn:breast_cancer", classes={"benign": ["benign"], "malignant": ["malignant"]}
        ).id
        == resolve("sklearn:breast_cancer").id
    )


def test_classes_are_merged_and_the_rest_is_counted_as_dropped():
    info = resolve("sklearn:digits", classes={"low": [0, "1"], "high": [9, "8"]}, positive="low")
    assert info.class_names == ("high", "low")
    assert info.class_counts == (174 + 180, 178 + 182)
    assert info.n_dropped == 1797 - info.n_samples == 1797 - 714
    assert info.canonical["classes"] == {"high": ["8", "9"], "low": ["0", "1"]}


def test_merged_classes_come_in_sorted_order():
    groups = {"c": [0], "a": [1], "b": [2, 3]}
    assert resolve("sklearn:digits", classes=groups).class_names == ("a", "b", "c")


def test_order_of_names_and_members_is_no_part_of_the_identity():
    one = resolve("sklearn:digits", classes={"a": [1, 2], "b": [3]})
    other = resolve("sklearn:digits", classes={"b": ["3"], "a": ["2", "1"]})
    assert one.id == other.id


def test_the_description_holds_everything_but_the_shapes():
    info = resolve("sklearn:wine", test=40)
    assert info.canonical == {
        "source": "sklearn:wine",
        "digest": catalogue.SKLEARN["wine"].digest,
        "test": 40,
        "preparation": 1,
    }
    assert (info.n_test, info.n_train) == (40, 138)


def test_a_share_and_a_number_of_points_are_typed():
    assert resolve("sklearn:iris", test=0.2).canonical["test"] == 0.2
    assert isinstance(resolve("sklearn:iris", test=30).canonical["test"], int)


def test_a_synthetic_dataset_is_its_resolved_parameters():
    by_weights = resolve("synthetic:gaussian", n_samples=100, weights=[1, 3])
    by_shares = resolve("synthetic:gaussian", n_samples=100, weights=[0.25, 0.75], separation=2)
    assert by_weights.id == by_shares.id
    assert by_weights.class_counts == (25, 75)
    assert resolve("synthetic:gaussian", seed=1).id != resolve("synthetic:gaussian").id


@pytest.mark.parametrize("source", [n for n in names() if n.startswith(("sklearn", "synthetic"))])
def test_what_is_planned_is_what_is_loaded(source):
    info = resolve(source)
    data = load(info.canonical)
    assert data.X.shape == (info.n_samples, info.n_features)
    assert data.X.dtype == np.float64
    assert data.y.dtype == np.uint16
    assert tuple(np.bincount(data.y)) == info.class_counts
    assert data.class_names == info.class_names
    assert data.image == info.image
    assert int((data.cardinality > 0).sum()) == info.n_categorical
    assert info.n_train + info.n_test == info.n_samples


@pytest.mark.parametrize(
    ("source", "parameters", "message"),
    [
        ("sklearn:digit", {}, "source = 'sklearn:digit': unknown source; .*sklearn:digits"),
        ("digits", {}, "source = 'digits': unknown source; .*sklearn:digits"),
        ("sklearn:iris", {"postive": "x"}, "postive = 'x': unknown; .*positive"),
        (
            "sklearn:iris",
            {"seed": 1},
            "seed = 1: unknown; there are source, classes, positive, test$",
        ),
        ("synthetic:gaussian", {"seperation": 1}, "seperation = 1: unknown; .*separation"),
        (
            "sklearn:breast_cancer",
            {"positive": "bening"},
            "positive = 'bening': unknown class; there are .*benign",
        ),
        ("sklearn:iris", {"positive": "setosa"}, "needs two classes, there are 3, unless"),
        ("sklearn:iris", {"classes": {"a": ["setosa"]}}, "two classes or more"),
        ("sklearn:iris", {"classes": {"a": "setosa", "b": ["virginica"]}}, "must be a list"),
        ("sklearn:iris", {"classes": {"a": [], "b": ["virginica"]}}, "must be a list"),
        (
            "sklearn:iris",
            {"classes": {"a": ["setos"], "b": ["virginica"]}},
            "'setos': unknown class; there are setosa",
        ),
        ("sklearn:iris", {"classes": {"a": ["setosa"], "b": ["setosa"]}}, "twice, in 'a' and 'b'"),
        ("sklearn:iris", {"test": 1.0}, "test = 1.0: must be a share above 0 and below 1"),
        ("sklearn:iris", {"test": 0}, "test = 0: .*from 2 to 148"),
        ("sklearn:iris", {"test": 149}, "test = 149: .*from 2 to 148"),
        ("sklearn:iris", {"test": True}, "test = True: must be"),
        ("sklearn:iris", {"test": "half"}, "test = 'half': must be"),
        ("sklearn:iris", {"test": 0.001}, "makes 0 of 150 samples the test set"),
        ("sklearn:iris", {"test": "official"}, "sklearn:iris has none; give a share"),
        ("synthetic:gaussian", {"n_samples": 3}, "n_samples = 3: .*from 4 to 100000000"),
        ("synthetic:gaussian", {"n_samples": 10.5}, "n_samples = 10.5: must be"),
        (
            "synthetic:gaussian",
            {"n_classes": 3, "n_informative": 2},
            "n_informative = 2: .*from 3 to 20",
        ),
        ("synthetic:gaussian", {"n_categorical": 21}, "n_categorical = 21: .*from 0 to 20"),
        ("synthetic:gaussian", {"flip": 1.5}, "flip = 1.5: .*at most 1"),
        ("synthetic:gaussian", {"separation": -1}, "separation = -1: .*at least 0"),
        ("synthetic:gaussian", {"weights": [1, 2, 3]}, "a list of 2 numbers"),
        ("synthetic:gaussian", {"weights": [1, 0]}, "weights = 0: .*above 0"),
        ("synthetic:gaussian", {"weights": [1, 10000]}, "fewer than 2 of 1000 samples"),
        ("synthetic:gaussian", {"seed": -1}, "seed = -1: .*from 0 to 9223372036854775807"),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(source, parameters, message):
    with pytest.raises(ValueError, match=message):
        resolve(source, **parameters)


def test_planning_reads_no_data_and_imports_no_library_that_holds_it():
    code = (
        "import sys; from manyseed.jobs.datasets import resolve; resolve('sklearn:digits');"
        "resolve('synthetic:gaussian'); resolve('vehicle'); resolve('torchvision:CIFAR10');"
        "heavy = {'sklearn', 'scipy', 'torch', 'torchvision', 'pandas', 'polars'};"
        "print(heavy & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "set()"


def test_the_catalogue_needs_the_standard_library_alone():
    code = (
        "import runpy, sys, types; sys.modules['c'] = types.ModuleType('c');"
        "runpy.run_path(sys.argv[1], run_name='c');"
        "print({m.partition('.')[0] for m in sys.modules} & {'numpy', 'sklearn', 'jobs'})"
    )
    result = subprocess.run(
        [sys.executable, "-I", "-c", code, catalogue.__file__],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "set()"
