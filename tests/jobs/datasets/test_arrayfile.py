"""Arrays in NPY and Zarr files: the same samples as of an NPZ, and nothing is executed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import polars as pl
import pytest
import zarr

from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import fetch, load, names_of, resolve, tablefile
from manyseed.jobs.run import MachineError
from tests.jobs.datasets.files import Bomb

N = 24
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(N, 3))
IMAGES = RNG.integers(0, 256, size=(N, 4, 5, 3)).astype(np.uint8)
CLASSES = np.array(["cat", "dog"])[np.arange(N) % 2]
PART = np.array(["train", "test"])[(np.arange(N) % 4 == 1).astype(int)]
OWNER = np.arange(N) // 2 % 6


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "home"))
    return tmp_path


def written(folder: Path, kind: str, X: Any, **others: Any) -> tuple[str, dict[str, str]]:
    """Write arrays; return the source, and the names of the others in it."""
    folder.mkdir(exist_ok=True)
    if kind == "npz":
        np.savez(folder / "data.npz", X=X, **others)
        return f"file:{folder / 'data.npz'}", {name: name for name in others}
    if kind == "npy":
        for name, array in {"X": X, **others}.items():
            np.save(folder / f"{name}.npy", array)
        return f"file:{folder / 'X.npy'}", {name: f"{name}.npy" for name in others}
    place = folder / f"{kind}.zarr"
    group = zarr.open_group(str(place), mode="w", zarr_format=2 if kind == "zarr2" else 3)
    for name, array in {"X": X, **others}.items():
        values = np.asarray(array)
        if values.dtype.kind == "U":
            group.create_array(name, shape=values.shape, dtype=str)[:] = values
        else:
            group.create_array(name, data=values)
    return f"file:{place}", {name: name for name in others}


KINDS = ["npz", "npy", "zarr2", "zarr3"]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_numbers(home: Path, kind: str) -> None:
    source, names = written(home / kind, kind, ROWS, y=CLASSES, owner=OWNER)
    info = resolve(source, target=names["y"], group=names["owner"], ignore=["1"])
    assert (info.n_features, info.class_names, info.group_sizes[0]) == (2, ("cat", "dog"), 6)
    fetch(info)
    data = load(info.canonical)
    np.testing.assert_array_equal(data.X, ROWS[:, [0, 2]])
    np.testing.assert_array_equal(data.y, np.arange(N) % 2)
    np.testing.assert_array_equal(data.groups, OWNER)


@pytest.mark.parametrize("kind", ["npz", "zarr3"])
def test_classes_are_y_unless_said_otherwise(home: Path, kind: str) -> None:
    source, _ = written(home, kind, ROWS, y=CLASSES)
    assert resolve(source).canonical == resolve(source, target="y").canonical
    source, _ = written(home / "other", kind, ROWS, kinds=CLASSES)
    with pytest.raises(Refused, match=r"target = 'y': unknown array.*X.*kinds"):
        resolve(source)


def test_bytes_are_text_in_utf8(home: Path) -> None:
    source, _ = written(home, "npz", ROWS, y=np.char.encode(CLASSES, "utf-8"))
    assert resolve(source, target="y").class_names == ("cat", "dog")
    latin = np.array([b"caf\xe9", b"dog"])[np.arange(N) % 2]
    source, _ = written(home, "npz", ROWS, y=latin)
    with pytest.raises(Refused, match=r"data\.npz.* cannot be read as \.npz: .* byte 0xe9"):
        resolve(source, target="y")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_images(home: Path, kind: str, dtype: type[Any]) -> None:
    X = IMAGES.astype(dtype)
    source, names = written(home / kind, kind, X, label=np.arange(N) % 3, part=PART)
    info = resolve(source, target=names["label"], split=names["part"])
    assert (info.image, info.n_test, info.class_names) == ((4, 5, 3), 6, ("0", "1", "2"))
    fetch(info)
    data = load(info.canonical)
    assert data.X.dtype == (np.uint8 if dtype is np.uint8 else np.float64)
    order = np.concatenate([np.flatnonzero(PART == "train"), np.flatnonzero(PART == "test")])
    np.testing.assert_array_equal(data.X, X.reshape(N, -1)[order])
    np.testing.assert_array_equal(data.y, (np.arange(N) % 3)[order])


@pytest.mark.parametrize("kind", KINDS[1:])
def test_every_file_is_part_of_the_identity(home: Path, kind: str) -> None:
    source, names = written(home / kind, kind, ROWS, y=CLASSES)
    first = resolve(source, target=names["y"])
    again, _ = written(home / "copy", kind, ROWS, y=CLASSES)
    assert resolve(again, target=names["y"]).canonical["digest"] == first.canonical["digest"]
    written(home / kind, kind, ROWS, y=CLASSES[::-1])
    assert resolve(source, target=names["y"]).id != first.id
    with pytest.raises(MachineError, match="has changed"):
        fetch(first)


def test_the_digest_of_several_files_is_that_of_their_sums(home: Path) -> None:
    source, names = written(home / "npy", "npy", ROWS, y=CLASSES)
    lines = [
        f"{hashlib.sha256((home / 'npy' / name).read_bytes()).hexdigest()}  {said}\n"
        for name, said in (("X.npy", "X"), ("y.npy", "y.npy"))
    ]
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()
    assert resolve(source, target=names["y"]).canonical["digest"] == digest


def test_an_array_is_mapped_until_a_copy_is_made(home: Path) -> None:
    from manyseed.jobs.datasets import arrayfile

    source, _ = written(home / "npy", "npy", IMAGES, y=CLASSES)
    path = Path(source.removeprefix("file:"))
    _, (arrays,) = arrayfile.read(path, "y.npy", {})
    samples = arrayfile.images(path, arrays, "y.npy", {})
    assert isinstance(samples.X.base, np.memmap)
    assert arrayfile.converted(samples.X) is samples.X


@pytest.mark.parametrize("kind", ["npz", "npy", "zarr3"])
def test_a_second_file_is_the_test_set(home: Path, kind: str) -> None:
    source, names = written(home / "a", kind, IMAGES[:16], y=CLASSES[:16])
    other, _ = written(home / "b", kind, IMAGES[16:], y=CLASSES[16:])
    info = resolve(source, target=names["y"], test_file=other.removeprefix("file:"))
    assert (info.n_train, info.n_test, info.n_test_sets) == (16, 8, 1)
    fetch(info)
    data = load(info.canonical)
    np.testing.assert_array_equal(data.official_test, np.arange(16, N))
    np.testing.assert_array_equal(data.X, IMAGES.reshape(N, -1))
    written(home / "c", kind, IMAGES[16:, :3], y=CLASSES[16:])
    third = other.replace("/b/", "/c/").removeprefix("file:")
    with pytest.raises(Refused, match=r"test_file = .*holds X \(8, 3, 5, 3\)"):
        resolve(source, target=names["y"], test_file=third)


def test_what_is_no_array_is_refused(home: Path) -> None:
    shapes = {"short": OWNER[:-1], "column": OWNER[:, None], "hot": np.eye(3)[OWNER % 3]}
    source, _ = written(home / "npy", "npy", ROWS, y=CLASSES, **shapes)
    folder = home / "npy"
    for options, said in (
        ({"target": "z.npy"}, "unknown file; there are column.npy, hot.npy, short.npy, y.npy"),
        ({"target": "y"}, "the name of an .npy file beside X.npy"),
        ({"target": "y.npy", "group": "short.npy"}, "not one value for each row"),
        ({"target": "short.npy"}, f"there are {N} rows, but {N - 1} classes"),
        ({"target": "column.npy"}, r"save column.npy with \.ravel\(\)"),
        ({"target": "hot.npy"}, r"save hot.npy with \.argmax\(axis=1\)"),
        ({"target": "y.npy", "ignore": ["7"]}, "unknown column"),
        ({"target": "y.npy", "size": 3}, "is for a folder of images"),
    ):
        with pytest.raises(Refused, match=said):
            resolve(source, **options)
    with pytest.raises(Refused, match="does not exist"):
        resolve(f"file:{folder / 'none.npy'}", target="y.npy")
    (folder / "text.npy").write_text("no array")
    with pytest.raises(Refused, match=r"cannot be read as \.npy"):
        resolve(f"file:{folder / 'text.npy'}", target="y.npy")
    np.save(folder / "moved.npy", np.zeros((N, 3, 8, 9)))
    with pytest.raises(Refused, match=r"looks like \(sample, channel, height, width\)"):
        resolve(f"file:{folder / 'moved.npy'}", target="y.npy")
    np.save(folder / "nan.npy", np.full((N, 8, 9), np.nan))
    with pytest.raises(Refused, match="not finite"):
        resolve(f"file:{folder / 'nan.npy'}", target="y.npy")


def test_nothing_is_unpickled(home: Path) -> None:
    source, _ = written(home / "npy", "npy", ROWS, y=CLASSES)
    bombs = np.array([Bomb(home / "went-off")] * N, dtype=object)
    np.save(home / "npy" / "bomb.npy", bombs, allow_pickle=True)
    with pytest.raises(Refused, match=r"cannot be read as \.npy: .*Python objects"):
        resolve(source, target="bomb.npy")
    place = home / "bomb.zarr"
    group = zarr.open_group(str(place), mode="w", zarr_format=2)
    group.create_array("X", data=ROWS)
    group.create_array("y", data=np.zeros(N), chunks=(N,), compressors=None)
    described = json.loads((place / "y" / ".zarray").read_text())
    described |= {"dtype": "|O", "fill_value": None, "filters": [{"id": "pickle"}]}
    (place / "y" / ".zarray").write_text(json.dumps(described))
    (place / "y" / "0").write_bytes(numcodecs.Pickle().encode(bombs))
    with pytest.raises(Refused, match="needs the codec pickle, which may execute"):
        resolve(f"file:{place}", target="y")
    assert not (home / "went-off").exists()


def test_zarr_that_lacks_something_is_refused(home: Path) -> None:
    source, _ = written(home, "zarr3", ROWS, y=CLASSES)
    with pytest.raises(Refused, match="target = 'z': unknown array; there are X, y"):
        resolve(source, target="z")
    with pytest.raises(Refused, match="does not exist"):
        resolve(f"file:{home / 'none.zarr'}", target="y")
    zarr.open_array(str(home / "alone.zarr"), mode="w", shape=(3,), dtype="f8")
    with pytest.raises(Refused, match="source = 'X': unknown array"):
        resolve(f"file:{home / 'alone.zarr'}", target="y")


@pytest.mark.parametrize("kind", ["packed.npz", "plain.npz", "table.parquet"])
def test_a_damaged_file_is_refused_by_its_name(home: Path, kind: str) -> None:
    path = home / kind
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 3
    if kind.endswith(".npz"):
        (np.savez_compressed if kind.startswith("packed") else np.savez)(path, X=X, y=y)
    else:
        texts = [f"v{i % 7}" for i in range(60)]
        pl.DataFrame({"a": X[:, 0], "s": texts, "y": y}).write_parquet(path)
    whole, refusals = path.read_bytes(), []
    for at in range(0, len(whole), max(1, len(whole) // 150)):
        flipped = whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :]
        for bad in (flipped, whole[:at]):
            path.write_bytes(bad)
            try:
                tablefile.read(str(path), {"target": "y"})
            except Refused as error:
                refusals.append(error)
    assert len(refusals) >= 150  # every one that was cut, at least
    for error in refusals:
        assert "Error" not in str(error)  # the words are not another library's
        assert kind in str(error) or error.option == "target"


def _chunk(place: Path) -> Path:
    return next(f for f in sorted((place / "X").rglob("*")) if f.is_file() and f.suffix != ".json")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_zarr_without_a_whole_chunk_is_refused(home: Path, zarr_format: int) -> None:
    place = home / "data.zarr"
    for name, values in (("X", ROWS + 1), ("y", np.arange(N) % 2 + 1)):
        group = zarr.open_group(str(place), mode="a", zarr_format=zarr_format)
        group.create_array(name, data=values, chunks=(N // 2, *values.shape[1:]))
    assert resolve(f"file:{place}", target="y").n_samples == N
    chunk = _chunk(place)
    if zarr_format == 2:
        chunk = place / "X" / "0.0"
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Refused, match=r"data\.zarr.* is damaged"):
        resolve(f"file:{place}", target="y")
    chunk.unlink()
    with pytest.raises(Refused, match=r"lacks chunks of array X, which would be 0\.0 throughout"):
        resolve(f"file:{place}", target="y")


TEXT = np.array(["u", "v", "w"])[np.arange(N) % 3]


FORMS = ("big-endian", "fixed", "consolidated", "grouped", "junk")


@pytest.mark.parametrize(
    ("zarr_format", "form"),
    [(2, "bytes"), (3, "sharded"), *((number, form) for number in (2, 3) for form in FORMS)],
)
def test_zarr_as_others_write_it(home: Path, zarr_format: Any, form: str) -> None:
    X, y, options = ROWS, np.arange(N) % 3, {"chunks": (6, 3)}
    if form == "big-endian":
        X, y = X.astype(">f8"), y.astype(">i4")
    elif form in ("fixed", "bytes"):
        y = TEXT if form == "fixed" else TEXT.astype("S")
    elif form == "sharded":
        options["shards"] = (12, 3)
    place = home / "data.zarr"
    group = zarr.open_group(str(place), mode="w", zarr_format=zarr_format)
    group.create_array("X", data=X, **options)
    inner = group.create_group("meta") if form == "grouped" else group
    inner.create_array("y", data=y)
    if form == "consolidated":
        zarr.consolidate_metadata(str(place))
    elif form == "junk":
        (place / ".DS_Store").write_bytes(b"\0")
        (place / "X" / ".DS_Store").write_bytes(b"\0")
        (place / "X" / ("zarr.json.bak" if zarr_format == 2 else ".zarray")).write_text("junk")
    info = resolve(f"file:{place}", target="meta/y" if form == "grouped" else "y")
    fetch(info)
    data = load(info.canonical)
    assert info.class_names == (("u", "v", "w") if form in ("fixed", "bytes") else ("0", "1", "2"))
    np.testing.assert_array_equal(data.X, ROWS)
    np.testing.assert_array_equal(data.y, np.arange(N) % 3)


NAMED = [
    ("x_train", "y_train", "x_test", "y_test"),
    ("X_train", "Y_train", "X_test", "Y_test"),
    ("train_images", "train_labels", "test_images", "test_labels"),
    ("xtrain", "ytrain", "xtest", "ytest"),
    ("training.data", "training.target", "testing.data", "testing.target"),
]


@pytest.mark.parametrize("named", NAMED)
@pytest.mark.parametrize("X", [ROWS, IMAGES])
@pytest.mark.parametrize("is_column", [False, True])
def test_an_npz_with_arrays_for_each_part_has_its_own_test_set(
    home: Path, named: tuple[str, ...], X: Any, is_column: bool
) -> None:
    y = np.arange(N) % 3
    y = y[:, np.newaxis] if is_column else y
    parts = dict(zip(named, (X[:18], y[:18], X[18:], y[18:]), strict=True))
    np.savez(home / "d.npz", val_images=X[:2], val_labels=y[:2], **parts)
    source = f"file:{home / 'd.npz'}"
    info = resolve(source)
    fetch(info)
    data = load(info.canonical)
    np.testing.assert_array_equal(data.official_test, np.arange(18, N))
    np.testing.assert_array_equal(data.X, X.reshape(N, -1))
    np.testing.assert_array_equal(data.y, np.arange(N) % 3)
    called = names_of(info.canonical)
    assert called is not None
    assert [called.of[0], called.of[17], called.of[18]] == ["0", "17", "0 (test)"]
    with pytest.raises(Refused, match=r"last = 0\.2: the file has a test set already"):
        resolve(source, last=0.2)
    with pytest.raises(Refused, match=r"test = 0\.2: the file's arrays for training and test say"):
        resolve(source, test=0.2)


@pytest.mark.parametrize("named", [("data", "target"), ("x", "y"), ("images", "labels")])
@pytest.mark.parametrize("X", [ROWS, IMAGES])
def test_two_arrays_are_the_rows_and_the_classes(home: Path, named: Any, X: Any) -> None:
    np.savez(home / "d.npz", **{named[0]: X, named[1]: CLASSES[:, np.newaxis]})
    for given in ({}, {"target": named[1]}):
        info = resolve(f"file:{home / 'd.npz'}", **given)
        fetch(info)
        data = load(info.canonical)
        np.testing.assert_array_equal(data.X, X.reshape(N, -1))
        np.testing.assert_array_equal(data.y, np.arange(N) % 2)


def test_arrays_for_each_part_are_told_apart_or_refused(home: Path) -> None:
    def refusal(**arrays: Any) -> str:
        np.savez(home / "d.npz", **arrays)
        with pytest.raises(Refused) as caught:
            resolve(f"file:{home / 'd.npz'}")
        return str(caught.value)

    y = np.arange(N) % 2
    assert "unknown array" in refusal(x_train=ROWS, y_train=y)
    assert "unknown array" in refusal(x_train=ROWS, y_train=y, x_test=ROWS)
    shifted = {"x_train": ROWS, "y_train": y[:20], "x_test": ROWS[:20], "y_test": y}
    assert "unknown array" in refusal(**shifted), "as many rows as classes only in all"
    two = {"x_train": ROWS, "a_train": y, "b_train": y, "x_test": ROWS, "a_test": y, "b_test": y}
    assert "unknown array" in refusal(**two)
    assert resolve(f"file:{home / 'd.npz'}", target="b").class_names == ("0", "1")
    said = refusal(x_train=ROWS, y_train=y, x_test=ROWS[:, :2], y_test=y)
    assert "holds X (24, 2), the training part (24, 3)" in said
