import hashlib
import json
from pathlib import Path

import pytest

from manyseed.jobs.datasets import bare_names, names, resolve, suite
from manyseed.jobs.datasets.catalogue import MODEL_VARIANCE, OPENML, TORCHVISION

# As the tabular study prints it: samples, columns with the target, largest and smallest class,
# number of classes.
STUDY = {
    "arrhythmia": (452, 280, 245, 207, 2),
    "Australian": (690, 15, 383, 307, 2),
    "blood-transfusion-service-center": (748, 5, 570, 178, 2),
    "vehicle": (846, 19, 628, 218, 2),
    "anneal": (898, 39, 486, 412, 2),
    "credit-g": (1000, 21, 700, 300, 2),
    "cnae-9": (1080, 857, 120, 120, 9),
    "car": (1728, 7, 1210, 65, 4),
    "mfeat-factors": (2000, 217, 1800, 200, 2),
    "kc1": (2109, 22, 1783, 326, 2),
    "segment": (2310, 20, 330, 330, 7),
    "jasmine": (2984, 145, 1492, 1492, 2),
    "kr-vs-kp": (3196, 37, 1669, 1527, 2),
    "sylvine": (5124, 21, 2562, 2562, 2),
    "phoneme": (5404, 6, 3818, 1586, 2),
    "christine": (5418, 1637, 2709, 2709, 2),
    "fabert": (8237, 801, 1927, 502, 7),
    "dilbert": (10000, 2001, 2049, 1913, 5),
    "nomao": (34465, 119, 24621, 9844, 2),
    "jungle_chess_2pcs_raw_endgame_complete": (44819, 7, 23062, 4335, 3),
    "bank-marketing": (45211, 17, 39922, 5289, 2),
    "adult": (48842, 15, 37155, 11687, 2),
    "shuttle": (58000, 10, 45586, 10, 7),
    "volkert": (58310, 181, 12806, 1361, 10),
    "helena": (65196, 28, 4005, 111, 100),
    "connect-4": (67557, 43, 44473, 6449, 3),
    "jannis": (83733, 55, 38522, 1687, 4),
    "numerai28.6": (96320, 22, 48658, 47662, 2),
    "higgs": (98050, 29, 51827, 46223, 2),
    "aloi": (108000, 129, 108, 108, 1000),
    "MiniBooNE": (130064, 51, 93565, 36499, 2),
    "walking-activity": (149332, 5, 21991, 911, 22),
    "ldpa": (164860, 8, 54480, 1381, 11),
    "skin-segmentation": (245057, 4, 194198, 50859, 2),
    "CreditCardFraudDetection": (284807, 31, 284315, 492, 2),
    "Click_prediction_small": (399482, 12, 332393, 67089, 2),
    "dionis": (416188, 61, 2469, 878, 355),
}

IGNORED = {"segment": 3}
"""Columns of the study's count that OpenML says are to be ignored; its client leaves them out."""

PINNED = {
    "vehicle": (994, 2),
    "anneal": (44268, 17),
    "arrhythmia": (1017, 2),
    "mfeat-factors": (978, 2),
    "credit-g": (44096, 2),
    "aloi": (42396, 3),
    "car": (40975, 3),
}


def test_the_suite_is_the_studys_table():
    assert len(MODEL_VARIANCE) == 37
    found = {
        entry.name: (
            entry.n_samples,
            entry.n_features + 1 + IGNORED.get(entry.name, 0),
            entry.n_majority,
            entry.n_minority,
            len(entry.class_names),
        )
        for entry in MODEL_VARIANCE
    }
    assert found == STUDY
    assert list(found) == list(suite("model-variance-37")) == list(bare_names())


def test_ids_and_versions_are_pinned():
    pinned = {entry.name: (entry.id, entry.version) for entry in MODEL_VARIANCE}
    assert pinned | PINNED == pinned
    assert len({entry.id for entry in OPENML.values()}) == len(OPENML)


@pytest.mark.parametrize("entry", OPENML.values(), ids=lambda entry: entry.source)
def test_an_entry_agrees_with_itself(entry):
    assert 0 <= entry.n_categorical <= entry.n_features
    if entry.class_counts is not None:
        assert sum(entry.class_counts) == entry.n_samples
        assert (max(entry.class_counts), min(entry.class_counts)) == (
            entry.n_majority,
            entry.n_minority,
        )
        assert len(entry.class_counts) == len(set(entry.class_names))
    if entry.labelled:
        numbers = all(name.isdigit() for name in entry.class_names)
        assert list(entry.class_names) == sorted(entry.class_names, key=int if numbers else None)


def test_sets_with_categories_are_those_that_the_study_names():
    assert {entry.name for entry in MODEL_VARIANCE if entry.n_categorical} == {
        "ldpa",
        "car",
        "Australian",
        "bank-marketing",
        "christine",
        "credit-g",
        "kr-vs-kp",
        "nomao",
        "adult",
        "anneal",
        "connect-4",
        "arrhythmia",
        "jasmine",
    }


@pytest.mark.parametrize("source", [*names(), *bare_names()])
def test_every_source_of_the_catalogue_can_be_planned_without_data(source):
    info = resolve(source)
    assert info.n_train + info.n_test == info.n_samples
    assert info.class_counts is None or sum(info.class_counts) == info.n_samples


def test_a_bare_name_of_a_suite_is_its_pinned_version():
    assert resolve("vehicle").id == resolve("openml:vehicle@2").id
    assert resolve("vehicle").canonical == {
        "source": "openml:vehicle@2",
        "id": 994,
        "positive": "P",
        "test": 0.25,
        "preparation": 1,
    }
    assert resolve("openml:kc1").id == resolve("kc1").id


def test_a_bare_name_of_openml_with_several_versions_is_refused_with_the_list():
    message = (
        r"has several versions.*openml:vehicle@2 \(id 994, 846 × 18, 2 classes\), openml:v.*@1"
    )
    with pytest.raises(ValueError, match=message):
        resolve("openml:vehicle")
    with pytest.raises(ValueError, match=r"several versions.*openml:adult@2"):
        resolve("openml:adult")


@pytest.mark.parametrize(
    ("source", "parameters", "message"),
    [
        ("openml:vehicel@2", {}, "source = 'openml:vehicel@2': unknown source; there are openml:"),
        ("openml:vehicle@3", {}, "source = 'openml:vehicle@3': unknown source; there are openml:"),
        ("openml:" + "9" * 5000, {}, "unknown source; there are openml:"),
        ("openml:²", {}, "source = 'openml:²': unknown source; there are openml:"),
        ("openml-task:" + "9" * 5000, {}, "the number of a task"),
        ("vehicel", {}, "source = 'vehicel': unknown source; there are sklearn:"),
        ("opnml:vehicle@2", {}, "source = 'opnml:vehicle@2': unknown source; there are sklearn:"),
        ("torchvision:CIFAR", {}, "source = 'torchvision:CIFAR': unknown .*torchvision:CIFAR10"),
        ("CIFAR10", {}, "source = 'CIFAR10': unknown source"),
        ("vehicle", {"target": "x"}, "target = 'x': unknown; there are source, classes"),
        ("vehicle", {"test": "official"}, "vehicle has none"),
        ("vehicle", {"positive": "bus"}, "positive = 'bus': unknown class; there are N, P"),
        ("volkert", {"classes": {"a": ["0"], "b": ["1"]}}, "give its table as file:PATH"),
        ("helena", {"test": 65100}, "leaves 96 samples of helena.*100 classes"),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(source, parameters, message):
    with pytest.raises(ValueError, match=message):
        resolve(source, **parameters)


def test_an_unknown_suite_is_named():
    with pytest.raises(
        ValueError, match=r"suite = 'model-variance': unknown suite; .*model-variance-37"
    ):
        suite("model-variance")


def test_classes_without_known_labels_are_told_apart_by_size():
    info = resolve("numerai28.6")
    assert info.class_names == ("majority", "minority")
    assert info.class_counts == (48658, 47662)
    assert resolve("aloi").class_counts == (108,) * 1000
    assert resolve("dionis").class_counts is None


@pytest.mark.parametrize(
    ("name", "n_train", "n_test", "n_classes", "image"),
    [
        ("CIFAR10", 50_000, 10_000, 10, (32, 32, 3)),
        ("CIFAR100", 50_000, 10_000, 100, (32, 32, 3)),
        ("FashionMNIST", 60_000, 10_000, 10, (28, 28, 1)),
        ("CINIC10", 180_000, 90_000, 10, (32, 32, 3)),
        ("Flowers102", 2_040, 6_149, 102, (32, 32, 3)),
        ("MNIST", 60_000, 10_000, 10, (28, 28, 1)),
        ("OxfordIIITPet", 3_680, 3_669, 37, (32, 32, 3)),
        ("SVHN", 73_257, 26_032, 10, (32, 32, 3)),
    ],
)
def test_official_parts_have_their_sizes(name, n_train, n_test, n_classes, image):
    info = resolve(f"torchvision:{name}", test="official")
    assert (info.n_train, info.n_test) == (n_train, n_test)
    assert len(set(info.class_names)) == n_classes
    assert info.image == image
    assert info.canonical["test"] == "official"
    assert info.n_test_sets == 1
    assert resolve(f"torchvision:{name}").n_test_sets is None


def test_cifar100_has_its_names_in_order():
    names = TORCHVISION["CIFAR100"].class_names
    assert list(names) == sorted(names)
    assert (names[0], names[52], names[99]) == ("apple", "oak_tree", "worm")


def test_merged_classes_of_an_official_split_are_counted():
    groups = {"vehicle": ["automobile", "truck"], "animal": ["cat", "dog", "frog"]}
    info = resolve("torchvision:CIFAR10", classes=groups, positive="vehicle", test="official")
    assert (info.n_train, info.n_test, info.n_dropped) == (25_000, 5_000, 30_000)
    assert info.class_counts == (18_000, 12_000)


@pytest.mark.parametrize(
    ("source", "test", "key"),
    [
        ("vehicle", 0.25, "0a05adbad2a3500fc197f95b1c78b95c"),
        ("volkert", 0.25, "6798e3e7a7bfc38fb4fcd790ebce2887"),
        ("torchvision:CIFAR10", "official", "0ea6a22971b8ad5d4069555bc2d460a5"),
    ],
)
def test_identities_are_written_out(source, test, key):
    info = resolve(source, test=test)
    text = json.dumps({"v": 1, **info.canonical}, sort_keys=True, separators=(",", ":"))
    assert info.id == hashlib.sha256(text.encode()).hexdigest()[:32] == key


def test_the_documented_table_is_the_catalogue():
    page = Path(__file__).parents[3] / "docs" / "datasets.md"
    rows = [line.strip("| ").split(" | ") for line in page.read_text().splitlines() if "@" in line]
    listed = [row[:5] for row in rows if len(row) == 6 and row[1].isdigit()]
    assert listed == [
        [f"{entry.name}@{entry.version}"]
        + [str(n) for n in (entry.id, entry.n_samples, entry.n_features, entry.n_categorical)]
        for entry in MODEL_VARIANCE
    ]
