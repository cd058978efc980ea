"""A folder of images, a class in each folder."""

from __future__ import annotations

import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import fetch, imagefolder, images_of, load, names_of, resolve
from manyseed.jobs.run import MachineError
from manyseed.orchestrator.grids.plannotes import data_notes

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MANYSEED_DATA", str(tmp_path / "home"))
    return tmp_path


def pixels(*shape: int) -> Any:
    return RNG.integers(0, 256, size=shape).astype(np.uint8)


def folder(
    place: Path, shape: tuple[int, ...] = (6, 5, 3), under: str = "", ending: str = "png"
) -> dict[str, Any]:
    """Write 4 images of each of two classes; return them by their names."""
    made = {}
    for kind in ("cat", "dog"):
        for i in range(4):
            name = f"{under}{kind}/{i:02}.{ending}"
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            made[name] = pixels(*shape)
            Image.fromarray(made[name]).save(place / name)
    return made


@pytest.mark.parametrize("shape", [(6, 5, 3), (6, 5)])
def test_images_of_each_class_lie_in_its_folder(home: Path, shape: tuple[int, ...]) -> None:
    made = folder(home / "pets", shape)
    (home / "pets" / ".DS_Store").write_text("")
    (home / "pets" / "cat" / ".hidden.txt").write_text("")
    (home / "pets" / "README.txt").write_text("two kinds")
    info = resolve(f"file:{home / 'pets'}", test=0.25)
    assert info.image == (6, 5, 3 if len(shape) == 3 else 1)
    assert (info.class_names, info.class_counts, info.n_test) == (("cat", "dog"), (4, 4), 2)
    fetch(info)
    data = load(info.canonical)
    assert data.X.dtype == np.uint8
    expected = np.stack([made[name].reshape(-1) for name in sorted(made)])
    np.testing.assert_array_equal(data.X, expected)
    assert data.y.tolist() == [0] * 4 + [1] * 4


def test_points_have_their_file_and_image_where_a_class_is_left_out(home: Path) -> None:
    made = folder(home / "pets")
    made |= {f"ant/{name}": pixels(6, 5, 3) for name in ("a.png", "b.png", "c.png", "d.png")}
    for name, image in made.items():
        (home / "pets" / name).parent.mkdir(exist_ok=True)
        Image.fromarray(image).save(home / "pets" / name)
    info = resolve(f"file:{home / 'pets'}", classes={"cat": ["cat"], "dog": ["dog"]})
    with pytest.raises(MachineError):
        images_of(info.canonical, [0])
    fetch(info)
    called = names_of(info.canonical)
    assert called is not None
    assert called.kind == "file"
    names = called.of
    assert names == [f"{kind}/{i:02}.png" for kind in ("cat", "dog") for i in range(4)]
    images = images_of(info.canonical, [6, 1])
    np.testing.assert_array_equal(images, [made[names[6]], made[names[1]]])
    data = load(info.canonical)
    np.testing.assert_array_equal(data.X[[6, 1]], np.reshape(images, (2, -1)))
    with pytest.raises(MachineError, match="has 8 rows"):
        images_of(info.canonical, [8])


def test_folders_train_and_test_are_the_official_split(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = folder(home / "pets", under="train/")
    test = folder(home / "pets", under="test/")
    info = resolve(f"file:{home / 'pets'}")
    assert (info.n_train, info.n_test, info.n_test_sets) == (8, 8, 1)
    fetch(info)
    data = load(info.canonical)
    assert data.official_test is not None
    np.testing.assert_array_equal(
        data.X[data.official_test], np.stack([test[name].reshape(-1) for name in sorted(test)])
    )
    np.testing.assert_array_equal(data.X[0], train["train/cat/00.png"].reshape(-1))
    with pytest.raises(Refused, match="the folders train and test say what the test set is"):
        resolve(f"file:{home / 'pets'}", test=0.5)
    folder(home / "pets", under="train/val/")
    with pytest.raises(Refused, match="holds train/val, whose folders are classes themselves"):
        resolve(f"file:{home / 'pets'}")
    within = imagefolder._require_no_classes_within
    monkeypatch.setattr(imagefolder, "_require_no_classes_within", lambda *_: None)
    planned = resolve(f"file:{home / 'pets'}")
    fetch(planned)
    monkeypatch.setattr(imagefolder, "_require_no_classes_within", within)
    assert resolve(f"file:{home / 'pets'}") == planned, "an earlier sweep can be planned again"
    shutil.rmtree(home / "pets" / "train" / "val")
    folder(home / "pets", under="val/")
    with pytest.raises(Refused, match="holds val beside train and test"):
        resolve(f"file:{home / 'pets'}")


def of_tops(place: Path, tops: tuple[str, ...], kind: str = "") -> str:
    """Write 4 images below each folder; return the source."""
    for top in tops:
        for i in range(4):
            file = place / top / f"{kind}{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels(6, 5, 3)).save(file)
    return f"file:{place}"


@pytest.mark.parametrize(
    "parts",
    [
        ("train", "val"),
        ("Training", "validation"),
        ("test", "dev"),
        ("training_set", "test_set"),
        ("Train Images", "testing-images"),
        ("TrainSet", "validationSet", "testing_set"),
        ("seg_train", "seg_test", "seg_pred"),
        ("train2017", "val2017", "unlabeled2017"),
        ("trainval", "test"),
        ("train", "val", "labels"),
        ("test", "bus", "train"),
    ],
)
@pytest.mark.parametrize("kind", ["", "cat/"])
def test_parts_of_a_split_are_no_classes(home: Path, parts: tuple[str, ...], kind: str) -> None:
    source = of_tops(home / "pets", parts, kind)
    told = "parts of a split, not classes: name them train and test|holds bus beside train and test"
    with pytest.raises(Refused, match=told):
        resolve(source, test=0.25)


@pytest.mark.parametrize(
    "classes",
    [
        ("train", "bus"),
        ("valid", "invalid"),
        ("test 1", "test 2"),
        ("tested", "untested"),
        ("test_negative", "test_positive"),
        ("trainer", "tester"),
        ("images", "masks"),
        ("broken", "test", "valid"),
    ],
)
def test_words_of_splits_may_be_classes(home: Path, classes: tuple[str, ...]) -> None:
    assert resolve(of_tops(home / "pets", classes), test=0.25).class_names == (*sorted(classes),)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not an image"),
        (bytes(900), "is not an image"),
        (b"<!DOCTYPE html><html>404</html>" * 9, "is not an image"),
        (b"\x89PNG\r\n\x1a\n" + bytes(90), "is (not an image|cut off or damaged)"),
    ],
)
@pytest.mark.parametrize("ending", ["png", "jpg"])
def test_what_is_no_image_is_told_in_our_words(
    home: Path, content: bytes, said: str, ending: str
) -> None:
    folder(home / "pets")
    (home / "pets" / "cat" / f"7.{ending}").write_bytes(content)
    with pytest.raises(Refused, match=rf"holds cat/7\.{ending}, which {said}; replace") as error:
        resolve(f"file:{home / 'pets'}", test=0.25)
    assert "identify" not in str(error.value)


def test_an_image_with_too_many_pixels_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(home / "pets")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 9)
    with pytest.raises(Refused, match=r"cat/00\.png, which has too many pixels"):
        resolve(f"file:{home / 'pets'}", test=0.25)


@pytest.mark.parametrize(
    "foreign",
    [
        "cat/@eaDir/00.png/SYNOPHOTO_THUMB_M.jpg",
        "@eaDir/00.png/SYNOPHOTO_THUMB_M.jpg",
        "__MACOSX/cat/._00.png",
        "#recycle/cat/00.png",
        "cat/.ipynb_checkpoints/00-checkpoint.png",
        "cat/._00.png",
        "dog/Thumbs.db",
        "dog/desktop.ini",
        ".nfs0000227.png",
    ],
)
def test_what_storage_boxes_and_systems_put_beside_images_is_no_sample(
    home: Path, foreign: str
) -> None:
    folder(home / "pets")
    before = resolve(f"file:{home / 'pets'}", test=0.25)
    file = home / "pets" / foreign
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels(6, 5, 3)).save(file, "PNG")
    assert resolve(f"file:{home / 'pets'}", test=0.25) == before


def test_colours_of_16_bits_are_refused(home: Path) -> None:
    folder(home / "pets")
    rows = b"".join(b"\0" + row.tobytes() for row in pixels(6, 5, 6))
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", 5, 6, 16, 2, 0, 0, 0),
        b"IDAT": zlib.compress(rows),
        b"IEND": b"",
    }
    content = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks.items()
    )
    (home / "pets" / "cat" / "00.png").write_bytes(content)
    with pytest.raises(Refused, match=r"cat/00\.png of 16 bits per colour; save it with 8 bits"):
        resolve(f"file:{home / 'pets'}", test=0.25)


@pytest.mark.parametrize("mode", ["P", "RGB", "L"])
def test_a_transparent_colour_is_refused(home: Path, mode: str) -> None:
    folder(home / "pets")
    clear: Any = {"P": 0, "RGB": (0, 0, 0), "L": 0}[mode]
    image = Image.fromarray(pixels(6, 5, 3)).convert(mode)
    image.save(home / "pets" / "cat" / "00.png", transparency=clear)
    with pytest.raises(Refused, match=r"cat/00\.png with a transparent colour"):
        resolve(f"file:{home / 'pets'}", test=0.25)


def test_grey_and_coloured_images_become_coloured(home: Path) -> None:
    made = folder(home / "pets")
    grey = pixels(6, 5)
    Image.fromarray(grey).save(home / "pets" / "cat" / "00.png")
    opaque = np.concatenate([pixels(6, 5, 3), np.full((6, 5, 1), 255, np.uint8)], axis=2)
    Image.fromarray(opaque).save(home / "pets" / "cat" / "01.png")
    info = resolve(f"file:{home / 'pets'}")
    fetch(info)
    rows = load(info.canonical).X.reshape(8, 6, 5, 3)
    np.testing.assert_array_equal(rows[0], np.repeat(grey[..., None], 3, axis=2))
    np.testing.assert_array_equal(rows[1], opaque[..., :3])
    np.testing.assert_array_equal(rows[2], made["cat/02.png"])


def test_jpeg_is_decoded(home: Path) -> None:
    folder(home / "pets", (16, 16, 3), ending="JPEG")
    info = resolve(f"file:{home / 'pets'}")
    fetch(info)
    with Image.open(home / "pets" / "cat" / "00.JPEG") as image:
        np.testing.assert_array_equal(load(info.canonical).X[0], np.asarray(image).reshape(-1))


def test_other_sizes_are_refused_unless_asked_for(home: Path) -> None:
    folder(home / "pets")
    Image.fromarray(pixels(8, 4, 3)).save(home / "pets" / "dog" / "02.png")
    source = f"file:{home / 'pets'}"
    with pytest.raises(Refused, match=r"2 sizes.*6 × 5 pixels, dog/02.png 8 × 4") as said:
        resolve(source)
    assert said.value.needs == {"size": [6, 5]}
    info = resolve(source, size=[3, 4])
    assert info.image == (3, 4, 3)
    fetch(info)
    with Image.open(home / "pets" / "dog" / "02.png") as image:
        small = np.asarray(image.resize((4, 3), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(load(info.canonical).X[6], small.reshape(-1))
    assert resolve(source, size=4).image == (4, 4, 3)
    assert resolve(source, size=4).id != info.id
    for wrong in ([3], "3x4", [3, 0], 1.5):
        with pytest.raises(Refused, match="size"):
            resolve(source, size=wrong)


def test_names_and_content_are_the_identity(home: Path) -> None:
    made = folder(home / "pets")
    first = resolve(f"file:{home / 'pets'}")
    (home / "pets").rename(home / "moved")
    assert resolve(f"file:{home / 'moved'}").id == first.id
    (home / "moved").rename(home / "pets")
    Image.fromarray(255 - made["dog/03.png"]).save(home / "pets" / "dog" / "03.png")
    assert resolve(f"file:{home / 'pets'}").id != first.id
    with pytest.raises(MachineError, match="has changed: the SHA-256 of its images"):
        fetch(first)
    (home / "pets" / "dog" / "03.png").write_text("gone")
    with pytest.raises(MachineError, match=r"has changed since it was planned.*dog/03.png"):
        fetch(first)


def test_what_is_no_folder_of_images_is_refused(home: Path) -> None:
    place = home / "pets"
    source = f"file:{place}"
    with pytest.raises(Refused, match="does not exist"):
        resolve(source)
    place.mkdir()
    with pytest.raises(Refused, match="has no folders of images"):
        resolve(source)
    folder(place)
    with pytest.raises(Refused, match=r"target = 'y'.*a folder for each class"):
        resolve(source, target="y")
    for name, write, said in (
        ("cat/notes.txt", lambda file: file.write_text("x"), "holds cat/notes.txt, not an image"),
        ("loose.png", lambda file: Image.fromarray(pixels(6, 5, 3)).save(file), "a folder"),
        ("cat/z.png", lambda file: file.write_text("x"), "cat/z.png, which is not an image"),
        ("empty", lambda file: file.mkdir(), "has no images in empty"),
        (
            "cat/deep.png",
            lambda file: Image.fromarray(pixels(6, 5).astype(np.uint16)).save(file),
            "save it with 8 bits",
        ),
    ):
        write(place / name)
        with pytest.raises(Refused, match=said):
            resolve(source)
        (place / name).rmdir() if name == "empty" else (place / name).unlink()
    resolve(source)


@pytest.mark.parametrize("ending", ["png", "jpg"])
def test_an_image_that_is_cut_off_is_refused(home: Path, ending: str) -> None:
    """A JPEG needs its end, too: Pillow decodes what is cut off there as grey."""
    folder(home / "pets", (40, 40, 3))
    file = home / "pets" / "cat" / f"z.{ending}"
    Image.fromarray(pixels(40, 40, 3)).save(file)
    whole, source = file.read_bytes(), f"file:{home / 'pets'}"
    fetch(resolve(source))
    for data in (whole[:-600], whole[:-600] + bytes(600)):
        file.write_bytes(data)
        with pytest.raises(Refused, match=rf"cat/z\.{ending}, which is cut off or damaged"):
            resolve(source)


def test_an_image_that_is_transparent_is_refused_when_fetched(home: Path) -> None:
    folder(home / "pets", (40, 40, 3))
    file = home / "pets" / "cat" / "00.png"
    Image.fromarray(pixels(40, 40, 4)).save(file)
    with pytest.raises(MachineError, match="is transparent in parts"):
        fetch(resolve(f"file:{home / 'pets'}"))


def test_test_images_that_are_training_images_are_told(home: Path) -> None:
    folder(home / "pets", under="train/")
    folder(home / "pets", under="test/")
    assert not [*data_notes(resolve(f"file:{home / 'pets'}"))]
    shutil.copy(home / "pets/train/cat/00.png", home / "pets/test/cat/00.png")
    shutil.copy(home / "pets/train/cat/01.png", home / "pets/test/dog/01.png")
    (note,) = data_notes(resolve(f"file:{home / 'pets'}"))
    assert note.startswith(
        "2 of 8 test images are training images, too, 1 of them in another class"
    )


def test_an_image_that_is_in_two_classes_is_told(home: Path) -> None:
    folder(home / "pets")
    shutil.copy(home / "pets/cat/00.png", home / "pets/dog/01.png")
    note, _ = data_notes(resolve(f"file:{home / 'pets'}"))
    assert "is a copy of another in another class, such as" in note
    assert '"cat/00.png" and "dog/01.png": not all labels can be right' in note


def test_a_class_that_one_part_lacks_is_told(home: Path) -> None:
    folder(home / "pets", under="train/")
    folder(home / "pets", under="test/")
    (home / "pets/test/cat").rename(home / "pets/test/Cat")
    notes = [*data_notes(resolve(f"file:{home / 'pets'}"))]
    assert notes[0].startswith("classes without a training image: Cat; no classifier")
    assert notes[1].startswith("classes without a test image: cat; no result")
    assert any("blanks or case" in note for note in notes)


def test_how_many_images_are_damaged_is_told(home: Path) -> None:
    made = folder(home / "pets")
    for name in [*made][:3]:
        (home / "pets" / name).write_bytes((home / "pets" / name).read_bytes()[:50])
    told = r"damaged.*3 of 8 images cannot be used; the others: .*\.png, .*\.png\)"
    with pytest.raises(Refused, match=told):
        resolve(f"file:{home / 'pets'}")
