from pathlib import Path

import numpy as np
import pytest

from manyseed.jobs.datasets import builtin, fetch, load, resolve
from manyseed.jobs.datasets.catalogue import TORCHVISION, VisionEntry
from manyseed.jobs.datasets.split import split
from manyseed.jobs.packages import torchvision
from manyseed.jobs.run import MachineError
from tests.jobs.datasets import files

TRAIN = (3, 1, 2, 1, 1, 2, 1, 1, 1, 2)
TEST = (1, 2, 1, 1, 1, 1, 1, 1, 2, 1)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A folder of data, a catalogue of small datasets, and no network."""
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path))
    small = {
        name: VisionEntry(entry.class_names, entry.image, TRAIN, TEST)
        for name, entry in TORCHVISION.items()
        if len(entry.class_names) == 10
    }
    monkeypatch.setattr(builtin, "TORCHVISION", small)
    for module in ("cifar", "svhn"):
        for function in ("download_url", "download_and_extract_archive"):
            monkeypatch.setattr(
                torchvision(f"torchvision.datasets.{module}"), function, unreachable, raising=False
            )
    return tmp_path


def unreachable(*_, **__):
    raise OSError("no network here")


def part(counts, image, seed):
    rng = np.random.default_rng(seed)
    classes = rng.permutation(np.repeat(np.arange(10), counts))
    return rng.integers(0, 256, (len(classes), *image), dtype=np.uint8), classes


def place(name, home, monkeypatch):
    image = builtin.TORCHVISION[name].image
    train, test = part(TRAIN, image, 1), part(TEST, image, 2)
    root = home / "torchvision"
    if name == "CIFAR10":
        files.cifar10(root, train, test, monkeypatch)
    elif name == "SVHN":
        files.svhn(root, train, test, monkeypatch)
    else:
        files.mnist(root, name, train, test)
    return train, test


@pytest.mark.parametrize("name", ["CIFAR10", "SVHN", "MNIST", "FashionMNIST"])
def test_files_as_they_are_kept_become_rows_in_the_official_order(name, home, monkeypatch):
    train, test = place(name, home, monkeypatch)
    info = resolve(f"torchvision:{name}", test="official")
    assert fetch(info)
    data = load(info.canonical)
    images = np.concatenate([train[0], test[0]])
    np.testing.assert_array_equal(data.X.reshape(-1, *info.image), images)
    np.testing.assert_array_equal(data.y, np.concatenate([train[1], test[1]]))
    assert data.image == info.image
    assert data.X.dtype == np.uint8
    assert isinstance(data.X, np.memmap)
    np.testing.assert_array_equal(
        data.official_test, np.arange(len(train[1]), len(train[1]) + len(test[1]))
    )
    rows = data.rows(np.array([2, 0]))
    assert rows.dtype == np.float64
    np.testing.assert_array_equal(rows, images[[2, 0]].reshape(2, -1))


def test_the_official_test_set_is_one_repeat_of_the_classes_that_are_kept(home, monkeypatch):
    _, test = place("CIFAR10", home, monkeypatch)
    groups = {"vehicle": ["airplane", "ship"], "animal": ["bird", "cat"]}
    info = resolve("torchvision:CIFAR10", classes=groups, test="official")
    fetch(info)
    data = load(info.canonical)
    cut = split(1, info.id, 0, data.y, info.canonical["test"], data.official_test)
    assert (len(cut.train), len(cut.test)) == (info.n_train, info.n_test)
    kept = np.isin(test[1], [0, 2, 3, 8])
    np.testing.assert_array_equal(data.X[cut.test], test[0][kept].reshape(kept.sum(), -1))
    assert sorted([*cut.train, *cut.test]) == list(range(info.n_samples))
    with pytest.raises(ValueError, match="makes one repeat; there is no repeat 1"):
        split(1, info.id, 1, data.y, "official", data.official_test)


def test_a_test_set_may_be_drawn_from_both_parts(home, monkeypatch):
    place("MNIST", home, monkeypatch)
    drawn = resolve("torchvision:MNIST", test=12)
    fetch(drawn)
    data = load(drawn.canonical)
    cut = split(1, drawn.id, 3, data.y, 12, data.official_test)
    assert len(cut.test) == 12
    assert not fetch(resolve("torchvision:MNIST", test="official"))  # one copy for both


def test_without_an_official_part_there_is_no_official_split():
    with pytest.raises(ValueError, match="needs a dataset with an official test part"):
        split(1, "d", 0, np.arange(6) % 2, "official")


def test_a_download_is_prepared_and_not_kept(home, monkeypatch):
    image = builtin.TORCHVISION["MNIST"].image
    train, test = part(TRAIN, image, 1), part(TEST, image, 2)

    def download(data):
        if not data._check_exists():
            files.mnist(Path(data.root), "MNIST", train, test)

    monkeypatch.setattr(torchvision("torchvision.datasets").MNIST, "download", download)
    info = resolve("torchvision:MNIST")
    assert fetch(info)
    assert [path.name for path in home.iterdir()] == ["prepared"]
    np.testing.assert_array_equal(load(info.canonical).y, np.concatenate([train[1], test[1]]))


def test_changed_files_are_refused(home, monkeypatch):
    place("CIFAR10", home, monkeypatch)
    batch = home / "torchvision" / "cifar-10-batches-py" / "data_batch_3"
    batch.write_bytes(batch.read_bytes()[:-1] + b"x")
    with pytest.raises(MachineError, match=r"corrupted.*cannot be downloaded .no network here"):
        fetch(resolve("torchvision:CIFAR10"))
    assert list(home.glob(".torchvision-*")) == []


def test_another_number_of_images_is_refused_with_both(home, monkeypatch):
    place("MNIST", home, monkeypatch)
    entry = builtin.TORCHVISION["MNIST"]
    more = VisionEntry(entry.class_names, entry.image, TRAIN, (2, *TEST[1:]))
    monkeypatch.setitem(builtin.TORCHVISION, "MNIST", more)
    with pytest.raises(MachineError, match=r"test part of torchvision:MNIST.*\(1, 2,.*\(2, 2,"):
        fetch(resolve("torchvision:MNIST"))


def test_torchvision_holds_what_its_users_need_beside_a_cpu_build_of_torch():
    assert torchvision("torchvision.models").vit_b_16 is not None
    assert torchvision().__name__ == "torchvision"
