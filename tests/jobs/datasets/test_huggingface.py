"""Datasets in the manner of Hugging Face: saved, of files in a folder, and of a hub's cache."""

from __future__ import annotations

import builtins
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import fetch, load, resolve
from manyseed.jobs.run import MachineError

RNG = np.random.default_rng(0)
GRADES, KINDS = ("poor", "fair", "good"), ("tea", "coffee")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def hf(home: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The library, whose cache is the test's, and which reaches no hub."""
    library = pytest.importorskip("datasets")
    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", str(home / "cache"))
    monkeypatch.setattr(library.config, "HF_HUB_OFFLINE", True)
    return library


def table(hf: Any, n: int, start: int = 0, missing: bool = False) -> Any:
    """`n` rows of numbers, text, truth values and declared classes, one of which has no class."""
    rows = np.arange(start, start + n)
    features = {
        "weight": hf.Value("float32"),
        "kind": hf.ClassLabel(names=[*KINDS]),
        "shop": hf.Value("string"),
        "cold": hf.Value("bool"),
        "label": hf.ClassLabel(names=[*GRADES]),
    }
    columns = {
        "weight": [None if row % 7 == 3 else row / 4 for row in rows.tolist()],
        "kind": (rows % 2).tolist(),
        "shop": [("north", "south")[row // 2 % 2] for row in rows.tolist()],
        "cold": (rows % 3 == 0).tolist(),
        "label": [-1 if missing else int(row) % 3 for row in rows],
    }
    return hf.Dataset.from_dict(columns, features=hf.Features(features))


def expected(n: int, start: int = 0) -> tuple[Any, Any]:
    """What `table` holds: numbers, places of labels in natural order; classes likewise."""
    rows = np.arange(start, start + n)
    weight = np.where(rows % 7 == 3, np.nan, rows / 4)
    kind = np.array([1, 0])[rows % 2]  # coffee is before tea
    grade = np.array([2, 0, 1])[rows % 3]  # fair, good, poor
    return np.column_stack([weight, kind, rows // 2 % 2, rows % 3 == 0]).astype(float), grade


def fetched(source: str, **given: Any) -> tuple[Any, Any]:
    info = resolve(source, **given)
    assert fetch(info)
    return info, load(info.canonical)


def saved(hf: Any, folder: Path) -> str:
    hf.DatasetDict(train=table(hf, 30), test=table(hf, 12, 30)).save_to_disk(folder)
    return f"hf:{folder}"


def test_a_saved_dataset_is_a_table_with_an_official_test_part(hf: Any, home: Path) -> None:
    info, data = fetched(saved(hf, home / "tea"), test="official")
    assert (info.class_names, info.class_counts) == (("fair", "good", "poor"), (14, 14, 14))
    assert (info.n_train, info.n_test, info.n_continuous, info.n_categorical) == (30, 12, 1, 3)
    X, y = expected(42)
    np.testing.assert_array_equal(data.X, X)
    np.testing.assert_array_equal(data.y, y)
    assert [column.kind for column in info.columns] == ["continuous"] + ["categorical"] * 3
    pooled = resolve(f"hf:{home / 'tea'}")
    assert (pooled.n_train, pooled.n_test, pooled.canonical["test"]) == (31, 11, 0.25)
    assert not fetch(pooled)  # the same copy


def test_one_split_alone_columns_and_another_target(hf: Any, home: Path) -> None:
    table(hf, 30).save_to_disk(home / "one")
    info, data = fetched(f"hf:{home / 'one'}", target="kind", ignore=["shop", "cold", "weight"])
    assert (info.class_names, info.n_samples, data.X.shape) == (("coffee", "tea"), 30, (30, 1))
    with pytest.raises(Refused, match="split of its own"):
        resolve(f"hf:{home / 'one'}", test="official")
    saved(hf, home / "tea")
    chosen = resolve(f"hf:{home / 'tea'}", splits=["test"])
    assert (chosen.n_samples, chosen.canonical["splits"]) == (12, ["test"])


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_files_in_a_folder(hf: Any, home: Path, ending: str) -> None:
    (home / "files").mkdir()
    for part, n, start in (("train", 30, 0), ("test", 12, 30)):
        write = getattr(table(hf, n, start).remove_columns(["weight"]), f"to_{ending}")
        write(home / "files" / f"{part}.{ending}")
    info, data = fetched(f"hf:{home / 'files'}", test="official", categorical=["kind"])
    assert (info.n_train, info.n_test, info.n_categorical) == (30, 12, 3)
    assert len(info.class_names) == 3
    if ending == "parquet":  # which keeps what classes are called
        np.testing.assert_array_equal(data.X, expected(42)[0][:, 1:])
        np.testing.assert_array_equal(data.y, expected(42)[1])


def test_the_data_is_the_identity_wherever_it_lies(
    hf: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = resolve(saved(hf, home / "here"))
    monkeypatch.chdir(home)
    saved(hf, home / "there")
    assert resolve("hf:./there").canonical == one.canonical
    hf.DatasetDict(train=table(hf, 30), test=table(hf, 12, 31)).save_to_disk(home / "other")
    assert resolve(f"hf:{home / 'other'}").id != one.id


def test_data_that_changes_before_it_is_fetched_is_refused(hf: Any, home: Path) -> None:
    info = resolve(saved(hf, home / "tea"))
    hf.DatasetDict(train=table(hf, 30), test=table(hf, 12, 31)).save_to_disk(home / "tea")
    with pytest.raises(MachineError, match=r"tea has changed: its digest is .* planned with"):
        fetch(info)


def images(hf: Any, made: list[Any]) -> Any:
    features = hf.Features({"image": hf.Image(), "label": hf.ClassLabel(names=["cat", "dog"])})
    columns = {"image": [Image.fromarray(each) for each in made]}
    columns["label"] = [row % 2 for row in range(len(made))]
    return hf.Dataset.from_dict(columns, features=features)


@pytest.mark.parametrize("shape", [(6, 5, 3), (6, 5)])
def test_images_are_images(hf: Any, home: Path, shape: tuple[int, ...]) -> None:
    made = [RNG.integers(0, 256, size=shape).astype(np.uint8) for _ in range(12)]
    parts = {"train": images(hf, made[:8]), "validation": images(hf, made[8:])}
    hf.DatasetDict(parts).save_to_disk(home / "pets")
    info, data = fetched(f"hf:{home / 'pets'}", test="official")
    assert info.image == (6, 5, 3 if len(shape) == 3 else 1)
    assert (info.class_names, info.n_train, info.n_test) == (("cat", "dog"), 8, 4)
    assert data.X.dtype == np.uint8
    np.testing.assert_array_equal(data.X, np.stack(made).reshape(12, -1))
    np.testing.assert_array_equal(data.y, np.arange(12) % 2)


def test_images_in_folders_of_their_classes(hf: Any, home: Path) -> None:
    for part, n in (("train", 4), ("test", 2)):
        for kind in ("cat", "dog"):
            (home / "pets" / part / kind).mkdir(parents=True)
            for i in range(n):
                pixels = RNG.integers(0, 256, size=(6, 5, 3)).astype(np.uint8)
                Image.fromarray(pixels).save(home / "pets" / part / kind / f"{i}.png")
    info, data = fetched(f"hf:{home / 'pets'}", test="official")
    of_folder, same = fetched(f"file:{home / 'pets'}")
    assert (info.image, info.n_train, info.n_test) == ((6, 5, 3), 8, 4)
    assert (of_folder.n_train, of_folder.n_test) == (8, 4)
    assert {*map(bytes, data.X)} == {*map(bytes, same.X)}


def test_images_of_several_sizes_need_one(hf: Any, home: Path) -> None:
    made = [RNG.integers(0, 256, size=(6 + (i == 3), 5)).astype(np.uint8) for i in range(8)]
    images(hf, made).save_to_disk(home / "pets")
    with pytest.raises(Refused, match="images of 2 sizes; most have 6 × 5") as refused:
        resolve(f"hf:{home / 'pets'}")
    assert refused.value.needs == {"size": [6, 5]}
    info, data = fetched(f"hf:{home / 'pets'}", size=[6, 5])
    assert info.image == (6, 5, 1)
    np.testing.assert_array_equal(data.X[0], made[0].reshape(-1))


def test_arrays_and_lists_of_numbers_are_rows(hf: Any, home: Path) -> None:
    y, label = [row % 2 for row in range(12)], hf.ClassLabel(names=["a", "b"])
    for name, kind, shape in (
        ("cube", hf.Array3D((4, 3, 2), "float32"), (4, 3, 2)),
        ("list", hf.List(hf.Value("float32")), (5,)),
    ):
        X = RNG.normal(size=(12, *shape)).astype(np.float32)
        features = hf.Features({"x": kind, "label": label})
        made = hf.Dataset.from_dict({"x": X.tolist(), "label": y}, features=features)
        made.save_to_disk(home / name)
        info, data = fetched(f"hf:{home / name}")
        assert info.image == (shape if len(shape) == 3 else None)
        np.testing.assert_array_equal(data.X, X.reshape(12, -1))
    ragged = hf.Dataset.from_dict({"x": [[1.0]] * 11 + [[1.0, 2.0]], "label": y})
    ragged.save_to_disk(home / "ragged")
    with pytest.raises(Refused, match="arrays of several shapes in column 'x'"):
        resolve(f"hf:{home / 'ragged'}")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target": "grade"}, "target = 'grade': unknown column; there are weight, kind"),
        ({"ignore": ["grade"]}, "ignore = 'grade': unknown column"),
        ({"splits": ["dev"]}, "splits = 'dev': unknown split; there are train, test"),
        ({"splits": "train"}, "must be a list of different splits"),
        ({"splits": ["train", "train"]}, "must be a list of different splits"),
        ({"config": "en"}, "a saved dataset has none"),
        ({"size": 8}, "there are no images"),
        ({"seed": 8}, "unknown"),
        ({"continuous": ["shop"]}, "holds 'north', which is not a number"),
    ],
)
def test_what_is_wrong_is_named(hf: Any, home: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused) as refused:
        resolve(saved(hf, home / "tea"), **given)
    assert said in str(refused.value)


def test_what_cannot_be_read_is_named(hf: Any, home: Path) -> None:
    with pytest.raises(Refused, match=r"nowhere.*there is no such folder"):
        resolve(f"hf:{home / 'nowhere'}")
    with pytest.raises(Refused, match=r"hf:someone/nothing.*cannot be read: .*someone/nothing"):
        resolve("hf:someone/nothing")
    table(hf, 30, missing=True).save_to_disk(home / "unlabelled")
    with pytest.raises(Refused, match="all 30 values are missing"):
        resolve(f"hf:{home / 'unlabelled'}")
    parts = {"en": table(hf, 12), "de": table(hf, 12)}
    hf.DatasetDict(parts).save_to_disk(home / "tongues")
    with pytest.raises(Refused, match="has the splits en, de; name the ones") as refused:
        resolve(f"hf:{home / 'tongues'}")
    assert refused.value.needs == {"splits": ["en", "de"]}
    mixed = images(hf, [RNG.integers(0, 256, size=(6, 5)).astype(np.uint8)] * 8)
    mixed.add_column("age", [*range(8)]).save_to_disk(home / "mixed")
    with pytest.raises(Refused, match="column 'image' holds images or arrays") as refused:
        resolve(f"hf:{home / 'mixed'}")
    assert refused.value.needs == {"ignore": ["age"]}
    assert resolve(f"hf:{home / 'mixed'}", ignore=["age"]).image == (6, 5, 1)


def test_a_hubs_dataset_is_read_from_the_cache_where_no_hub_is(hf: Any, home: Path) -> None:
    """What the library keeps of a folder lies where it would keep that of a hub."""
    (home / "tea").mkdir()
    for part, n, start in (("train", 30, 0), ("test", 12, 30)):
        table(hf, n, start).to_parquet(home / "tea" / f"{part}.parquet")
    hf.load_dataset(str(home / "tea"))
    (kept,) = (home / "cache").rglob("dataset_info.json")
    revision = home / "cache" / "someone___tea" / "default" / "0.0.0" / ("0123" * 10)
    shutil.copytree(kept.parent, revision)
    info, data = fetched("hf:someone/tea", test="official")
    assert info.canonical["source"] == "hf:someone/tea"
    assert (info.n_train, info.n_test) == (30, 12)
    np.testing.assert_array_equal(data.X, expected(42)[0])
    chosen = resolve("hf:someone/tea", config="default", test="official")
    assert chosen.canonical["config"] == "default"
    with pytest.raises(Refused, match=r"cannot be read: .*french"):
        resolve("hf:someone/tea", config="french")


def test_the_library_says_nothing_meanwhile(
    hf: Any, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = saved(hf, home / "tea")
    capfd.readouterr()
    resolve(source)
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")
    assert not hf.are_progress_bars_disabled()


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    found = builtins.__import__

    def without(name: str, *given: Any, **more: Any) -> Any:
        if name == "datasets":
            raise ModuleNotFoundError("No module named 'datasets'", name="datasets")
        return found(name, *given, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(Refused) as refused:
        resolve("hf:someone/tea")
    assert str(refused.value) == (
        "source = 'hf:someone/tea': needs the library datasets, which is not installed: "
        "pip install 'datasets>=4'"
    )
