import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from manyseed.jobs.checks import Refused
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


FEW = {"Flowers102": (4, 2), "OxfordIIITPet": (2, 1), "CINIC10": (3, 2)}
"""Images of each class in the training and test part of a small copy."""


@pytest.fixture(params=FEW)
def pictures(request, home, monkeypatch):
    """A small copy of a dataset whose images are files: its name, and the classes of its rows."""
    name, (n_train, n_test) = request.param, FEW[request.param]
    entry = TORCHVISION[name]
    n = len(entry.class_names)
    rng = np.random.default_rng(3)
    train, test = (rng.permutation(np.repeat(np.arange(n), k)) for k in (n_train, n_test))
    small = replace(entry, sizes=(n * n_train, n * n_test))
    if name == "CINIC10":
        small = replace(entry, train_counts=(n_train,) * n, test_counts=(n_test,) * n)
    monkeypatch.setitem(builtin.TORCHVISION, name, small)
    for module in ("flowers102", "oxford_iiit_pet"):
        for function in ("download_url", "download_and_extract_archive"):
            monkeypatch.setattr(
                torchvision(f"torchvision.datasets.{module}"), function, unreachable, raising=False
            )
    root = home / "torchvision"
    if name == "Flowers102":
        files.flowers(root, train, test, monkeypatch)
    elif name == "OxfordIIITPet":
        files.pets(root, train, test, entry.class_names)
    else:
        every = np.arange(n)  # an ImageFolder has the images of a class one after another
        parts = {"train": np.repeat(every, 2), "valid": every, "test": np.repeat(every, 2)}
        files.cinic(root, parts, entry.class_names)
        train, test = np.concatenate([parts["train"], parts["valid"]]), parts["test"]
    return name, train, test


def test_images_in_files_become_rows_of_one_size_in_the_official_order(pictures):
    name, train, test = pictures
    info = resolve(f"torchvision:{name}", test="official")
    assert (info.n_train, info.n_test, info.image) == (len(train), len(test), (32, 32, 3))
    assert info.canonical.get("size") == (None if name == "CINIC10" else [32, 32])
    assert fetch(info)
    data = load(info.canonical)
    y = np.concatenate([train, test])
    np.testing.assert_array_equal(data.y, y)
    seen = data.X.reshape(len(y), 32 * 32, 3).astype(float).mean(axis=1)
    expected = np.array([files.colour(label) for label in y])
    assert abs(seen - expected).max() < 6  # each image has the colour of its class
    np.testing.assert_array_equal(data.official_test, np.arange(len(train), len(y)))


def test_images_of_many_sizes_take_the_size_that_is_asked_for(pictures):
    name, train, _ = pictures
    if name == "CINIC10":
        with pytest.raises(Refused, match="CINIC10 all have 32 × 32 pixels, and stay as they are"):
            resolve("torchvision:CINIC10", size=64)
        return
    info, plain = resolve(f"torchvision:{name}", size=[20, 24]), resolve(f"torchvision:{name}")
    assert info.image == (20, 24, 3)
    assert resolve(f"torchvision:{name}", size=32).id == plain.id != info.id
    fetch(info)
    data = load(info.canonical)
    assert data.X.shape[1] == 20 * 24 * 3
    np.testing.assert_array_equal(data.y[: len(train)], train)
    with pytest.raises(Refused, match="the catalogue knows only how many images there are"):
        resolve(f"torchvision:{name}", classes={"a": [plain.class_names[0]]})


def test_what_is_not_there_or_not_whole_is_told_with_what_to_do(pictures, home):
    name, train, test = pictures
    root = home / "torchvision"
    picture = sorted(file for file in root.rglob("*") if file.suffix in (".jpg", ".png"))[0]
    content = picture.read_bytes()
    picture.write_bytes(content[: len(content) // 2])
    with pytest.raises(MachineError, match=f"an image of torchvision:{name} is damaged: "):
        fetch(resolve(f"torchvision:{name}"))
    picture.write_bytes(content)
    if name == "CINIC10":  # an image less
        picture.unlink()
    else:
        entry = builtin.TORCHVISION[name]
        builtin.TORCHVISION[name] = replace(entry, sizes=(len(train) + 1, len(test)))
    with pytest.raises(MachineError, match=rf"part of torchvision:{name} is not what the catalog"):
        fetch(resolve(f"torchvision:{name}"))
    root.rename(home / "elsewhere")
    remedy = (
        "curl -L https://.*/CINIC-10.tar.gz | tar xz -C "
        if name == "CINIC10"
        else "put its files there"
    )
    with pytest.raises(
        MachineError, match=rf"torchvision:{name} is not in .*cannot be downl"
    ) as told:
        fetch(resolve(f"torchvision:{name}"))
    assert remedy.rpartition(".*")[2] in str(told.value)
    assert sorted(path.name for path in home.iterdir()) == ["elsewhere"]


def test_images_of_another_size_are_not_those_of_cinic(home, monkeypatch):
    entry = TORCHVISION["CINIC10"]
    parts = {part: np.arange(10) for part in ("train", "valid", "test")}
    files.cinic(home / "torchvision", parts, entry.class_names, (33, 32))
    with pytest.raises(MachineError, match="CINIC10 has an image of 32 × 33 pixels"):
        fetch(resolve("torchvision:CINIC10"))


def test_without_torchvision_it_is_told_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)
    with pytest.raises(MachineError, match=r"MNIST needs torchvision: .*install with: pip install"):
        fetch(resolve("torchvision:MNIST"))
