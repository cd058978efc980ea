"""Files as OpenML's cache, torchvision and users keep them, made small."""

import gzip
import hashlib
import json
import pickle

import numpy as np
from PIL import Image
from scipy.io import savemat


def openml_cache(home, entry, features, target, *, name=None, version=None, ignored=()):
    """Write what `fetch_openml` finds below ``home/openml`` after it has downloaded a dataset.

    `features` maps a column to its values: numbers, or labels as text; None is missing.
    """
    columns = {**features, "class": target}
    rows = zip(*columns.values(), strict=True)
    header = ["@relation made"]
    described = []
    for index, (column, values) in enumerate(columns.items()):
        labels = sorted({value for value in values if isinstance(value, str)})
        kind = "{" + ",".join(f"'{label}'" for label in labels) + "}" if labels else "numeric"
        header.append(f"@attribute '{column}' {kind}")
        described.append(
            {
                "index": str(index),
                "name": column,
                "data_type": "nominal" if labels else "numeric",
                "is_target": str(column == "class").lower(),
                "is_ignore": str(column in ignored).lower(),
                "is_row_identifier": "false",
                "number_of_missing_values": str(sum(value is None for value in values)),
            }
        )
    body = [",".join("?" if value is None else str(value) for value in row) for row in rows]
    arff = "\n".join([*header, "@data", *body, ""]).encode()
    root = home / "openml" / "openml.org"
    path = f"data/v1/download/{entry.id}/made.arff"
    _gzip(root / f"{path}.gz", arff)
    api = root / "api" / "v1" / "json" / "data"
    _json(
        api / f"{entry.id}.gz",
        "data_set_description",
        {
            "id": str(entry.id),
            "name": name or entry.name,
            "version": str(version or entry.version),
            "description": "made by a test",
            "format": "ARFF",
            "status": "active",
            "url": f"https://www.openml.org/{path}",
            "md5_checksum": hashlib.md5(arff).hexdigest(),
        },
    )
    _json(api / "features" / f"{entry.id}.gz", "data_features", {"feature": described})
    qualities = {"quality": [{"name": "NumberOfInstances", "value": str(len(target))}]}
    _json(api / "qualities" / f"{entry.id}.gz", "data_qualities", qualities)


def _json(path, key, value):
    _gzip(path, json.dumps({key: value}).encode())


def _gzip(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content))


def cifar10(root, train, test, monkeypatch):
    """Write the pickled batches of CIFAR-10, and have torchvision expect their checksums.

    `train` and `test` are pairs of images (sample, height, width, channels) and classes.
    """
    from manyseed.jobs.datasets.catalogue import TORCHVISION
    from manyseed.jobs.packages import torchvision

    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    kind = torchvision("torchvision.datasets").CIFAR10
    fifths = np.array_split(np.arange(len(train[1])), 5)
    parts = {f"data_batch_{i + 1}": (train, at) for i, at in enumerate(fifths)}
    parts["test_batch"] = (test, np.arange(len(test[1])))
    sums = []
    for name, ((images, classes), at) in parts.items():
        planes = images[at].transpose(0, 3, 1, 2).reshape(len(at), -1)
        batch = {"data": planes, "labels": [int(c) for c in classes[at]]}
        sums.append([name, _pickle(folder / name, batch)])
    labels = {"label_names": list(TORCHVISION["CIFAR10"].class_names)}
    md5 = _pickle(folder / "batches.meta", labels)
    monkeypatch.setattr(kind, "train_list", sums[:5])
    monkeypatch.setattr(kind, "test_list", sums[5:])
    monkeypatch.setattr(kind, "meta", {**kind.meta, "md5": md5})


def _pickle(path, value):
    path.write_bytes(pickle.dumps(value, protocol=2))
    return hashlib.md5(path.read_bytes()).hexdigest()


def mnist(root, name, train, test):
    """Write the IDX files of MNIST or FashionMNIST."""
    raw = root / name / "raw"
    raw.mkdir(parents=True)
    for prefix, (images, classes) in {"train": train, "t10k": test}.items():
        pixels = images[..., 0]
        shape = b"".join(size.to_bytes(4, "big") for size in pixels.shape)
        (raw / f"{prefix}-images-idx3-ubyte").write_bytes(
            b"\x00\x00\x08\x03" + shape + pixels.tobytes()
        )
        (raw / f"{prefix}-labels-idx1-ubyte").write_bytes(
            b"\x00\x00\x08\x01" + len(classes).to_bytes(4, "big") + bytes(classes.tolist())
        )


def svhn(root, train, test, monkeypatch):
    """Write SVHN's MATLAB files, in which the digit 0 is class 10."""
    from manyseed.jobs.packages import torchvision

    root.mkdir(parents=True)
    kind = torchvision("torchvision.datasets").SVHN
    split_list = dict(kind.split_list)
    for split, (images, classes) in {"train": train, "test": test}.items():
        path = root / f"{split}_32x32.mat"
        y = np.where(classes == 0, 10, classes).astype(np.uint8)[:, None]
        savemat(path, {"X": images.transpose(1, 2, 3, 0), "y": y})
        url, filename, _ = split_list[split]
        split_list[split] = [url, filename, hashlib.md5(path.read_bytes()).hexdigest()]
    monkeypatch.setattr(kind, "split_list", split_list)


def colour(label):
    """Return a colour that tells a class from the others, also after JPEG."""
    return (label % 5 * 60, label // 5 % 5 * 60, label // 25 * 50)


def _picture(path, label, size):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour(label)).save(path, quality=95)


def flowers(root, train, test, monkeypatch):
    """Write the JPEGs and MATLAB files of Flowers102; half of `train` is its validation part.

    `train` and `test` hold the class of each image.
    """
    from manyseed.jobs.packages import torchvision

    kind, folder = torchvision("torchvision.datasets").Flowers102, root / "flowers-102"
    labels = [*train, *test]
    order = np.random.default_rng(0).permutation(len(labels)) + 1  # ids do not follow the parts
    for number, label in zip(order, labels, strict=True):
        size = (40 + label % 7, 50 + number % 5)
        _picture(folder / "jpg" / f"image_{number:05d}.jpg", label, size)
    half = len(train) // 2
    parts = {"trnid": order[:half], "valid": order[half : len(train)], "tstid": order[len(train) :]}
    by_id = np.array(labels)[np.argsort(order)] + 1
    savemat(folder / "setid.mat", parts)
    savemat(folder / "imagelabels.mat", {"labels": by_id})
    sums = {
        key: (name, hashlib.md5((folder / name).read_bytes()).hexdigest())
        for key, name in (("label", "imagelabels.mat"), ("setid", "setid.mat"))
    }
    monkeypatch.setattr(kind, "_file_dict", {**kind._file_dict, **sums})


def pets(root, train, test, names):
    """Write the JPEGs and lists of the Oxford-IIIT pets; their files are named like `names`."""
    folder = root / "oxford-iiit-pet"
    (folder / "annotations").mkdir(parents=True)
    for part, labels in (("trainval", train), ("test", test)):
        lines = []
        for number, label in enumerate(labels):
            image = f"{names[label].replace(' ', '_')}_{part}{number}".replace("trainval", "1")
            image = image.replace("test", "2")
            _picture(folder / "images" / f"{image}.jpg", label, (60, 40 + label))
            lines.append(f"{image} {label + 1} {1 + label % 2} 1\n")
        (folder / "annotations" / f"{part}.txt").write_text("".join(lines))


def cinic(root, parts, names, size=(32, 32)):
    """Write the PNGs of CINIC-10 as its archive holds them: part, class, image."""
    for part, labels in parts.items():
        for number, label in enumerate(labels):
            path = root / "cinic-10" / part / names[label] / f"cifar10-{part}-{number}.png"
            _picture(path, label, size)


class Bomb:
    """Makes a file where it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")
