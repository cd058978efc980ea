"""``manyseed init`` of folders of images, and of tables that name images."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import resolve
from manyseed.orchestrator.grids import firstrun
from tests.orchestrator.conftest import inside

KINDS = ("circle", "square", "triangle")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(firstrun, "_slower", lambda *_: 1.0)
    return tmp_path


def image(file: str, size: tuple[int, int] = (6, 8)) -> None:
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size).save(file)


def images(folder: str, *kinds: str, odd: bool = False, n: int = 4) -> None:
    for kind in kinds:
        for i in range(n):
            image(f"{folder}/{kind}/{kind}-{i}.png", (6, 9) if odd and not i else (6, 8))


def refused(*words: str) -> str:
    """Return the one error of ``manyseed init``, which writes nothing."""
    code, said = inside("init", *words)
    assert (code, said.count("rror:")) == (2, 1), said
    assert "Traceback" not in said
    assert not Path("sweep.toml").exists()
    return " ".join(said.split())


@pytest.mark.parametrize("odd", [False, True])
def test_one_folder_too_many_is_named_with_the_command(
    here: Path, monkeypatch: pytest.MonkeyPatch, odd: bool
) -> None:
    images("one/pics", *KINDS, odd=odd)
    told = "holds one folder, pics, with the classes circle, square, triangle"
    said = refused("one")
    assert f'DATA = "one": {told} manyseed init one/pics' in said
    with pytest.raises(Refused, match=told) as error:
        resolve("file:one")
    assert error.value.needs == {"source": f"file:{here / 'one' / 'pics'}"}
    monkeypatch.chdir("one")
    said = refused(".")
    assert f'DATA = ".": {told} manyseed init pics' in said
    assert inside("init", "pics")[0] == 0
    assert tomllib.loads(Path("sweep.toml").read_text())["dataset"]["pics"]["source"] == "file:pics"


def test_a_plan_says_which_folder_to_name(here: Path) -> None:
    images("pics", *KINDS)
    assert inside("init", "pics", "lr-sgd")[0] == 0
    images("one/pics", *KINDS)
    text = Path("sweep.toml").read_text()
    Path("sweep.toml").write_text(text.replace("file:pics", "file:one"))
    code, said = inside("plan", "sweep.toml", "--dry-run")
    assert code == 2
    assert "write in [dataset.pics]: source = " in said
    assert "one/pics" in said


ODD: dict[str, tuple[Callable[[], object], str]] = {
    "empty": (lambda: Path("in").mkdir(), "has no folders of images"),
    "empty class": (
        lambda: (images("in", "a"), Path("in/b").mkdir()),
        "has no images in b; remove that folder, or fill it",
    ),
    "one class": (lambda: images("in", "a"), "has images of one class, a;"),
    "one class, odd": (lambda: images("in", "a", odd=True), "has images of one class, a;"),
    "nested twice": (lambda: images("in/x/y", *KINDS), "one folder, x/y, with the classes"),
    "nested, one class": (lambda: images("in/x/y", "a"), "has images of one class, x;"),
    "train alone": (lambda: images("in/train", *KINDS), "one folder, train, with the classes"),
    "nested split": (
        lambda: (images("in/x/train", "a", "b"), images("in/x/test", "a", "b")),
        "one folder, x, with the folders test, train manyseed init in/x",
    ),
    "split, one class": (
        lambda: (images("in/train", "a"), images("in/test", "a")),
        "has images of one class, a;",
    ),
    "split, test empty": (
        lambda: (images("in/train", "a", "b"), Path("in/test").mkdir()),
        "has no images in test",
    ),
    "split, odd": (
        lambda: (images("in/train", "a", odd=True), images("in/test", "a")),
        "has images of one class, a;",
    ),
    "train and val": (
        lambda: (images("in/train", "a", "b", odd=True), images("in/val", "a", "b")),
        "such as: mv in/val in/test",
    ),
    "flat": (lambda: image("in/a.png"), "each class needs a folder"),
    "flat and folders": (
        lambda: (images("in", "a", "b", odd=True), image("in/c.png")),
        "each class needs a folder",
    ),
    "one image each": (lambda: images("in", *KINDS, n=1), "has 3 classes in 3 samples"),
    "one image each, odd": (lambda: images("in", *KINDS, n=1, odd=True), "3 classes in 3 samples"),
    "blanks": (lambda: images("in/my pics", *KINDS), "manyseed init 'in/my pics'"),
    "unicode": (lambda: images("in/Bilder für ☃", *KINDS), "one folder, Bilder für ☃, with"),
    "a dash": (lambda: images("in/-x", *KINDS), "manyseed init in/-x"),
    "hidden alone": (lambda: images("in", ".a", ".b"), "has no folders of images"),
    "beside hidden": (lambda: images("in", "a", ".b"), "has images of one class, a;"),
    "no image": (
        lambda: (images("in", "a", "b", odd=True), Path("in/a/notes.txt").write_text("x")),
        "holds a/notes.txt, not an image",
    ),
    "damaged": (
        lambda: (images("in", "a", "b", odd=True), Path("in/b/z.png").write_bytes(b"\x89PNG")),
        "holds b/z.png, which is not an image",
    ),
    "empty file": (
        lambda: (images("in", "a", "b", odd=True), Path("in/b/z.png").touch()),
        "holds b/z.png, which is not an image",
    ),
    "folder called so": (
        lambda: (images("in", "a", "b"), Path("in/c.png").mkdir()),
        "has no images in c.png",
    ),
    "broken link": (
        lambda: (images("in", "a", "b"), Path("in/a/z.png").symlink_to("nowhere.png")),
        "holds a/z.png, which cannot be read",
    ),
    "broken link to a class": (
        lambda: (images("in", "a"), Path("in/b").symlink_to("nowhere")),
        "has images of one class, a;",
    ),
    "circle of links": (
        lambda: (images("in", "a"), Path("in/a/b").symlink_to(".")),
        "of one class, a;",
    ),
    "transparent, odd": (
        lambda: (
            images("in", "a", "b", odd=True),
            Image.new("LA", (6, 8)).save("in/a/z.png"),
        ),
        "of transparent grey values",
    ),
    "16 bits": (
        lambda: (images("in", "a", "b"), Image.new("I;16", (6, 8)).save("in/a/z.png")),
        "8 bits",
    ),
    "classes within": (
        lambda: (images("in", "a", "b", odd=True), images("in/c", "a", "b")),
        "holds c, whose folders are classes themselves",
    ),
    "a file": (lambda: Path("in").write_text("x"), "unknown kind of file"),
    "an image": (lambda: image("in.png"), "does not exist"),
    "tables alone": (
        lambda: (Path("in").mkdir(), Path("in/a b.csv").write_text("x,y\n1,2\n")),
        "manyseed init 'in/a b.csv'",
    ),
    "texts": (
        lambda: (Path("in/a").mkdir(parents=True), Path("in/a/x.txt").write_text("x")),
        "holds a/x.txt, not an image",
    ),
    "a link to a file": (
        lambda: (Path("x").write_text(""), Path("in").symlink_to("x")),
        "unknown kind of file",
    ),
    "a broken link": (lambda: Path("in").symlink_to("nowhere"), "does not exist"),
    "split of numbers": (
        lambda: (images("in/train1", "a", odd=True), images("in/test1", "a")),
        "parts of a split, not classes",
    ),
    "other parts": (
        lambda: [images(f"in/{part}", "a", "b", odd=True) for part in ("train", "test", "extra")],
        "holds extra beside train and test",
    ),
    "parts of one": (lambda: [images(f"in/x/{p}", "a") for p in ("t", "u")], "x, with the classes"),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_folder_is_one_error(here: Path, name: str) -> None:
    make, told = ODD[name]
    make()
    assert told in refused("./in")


@pytest.mark.parametrize("name", ["a link to images", "linked classes", "beside other systems'"])
def test_what_holds_classes_all_the_same_is_taken(here: Path, name: str) -> None:
    images("pics", *KINDS)
    Path("pics/.hidden").write_text("x")
    Path("pics/readme.txt").write_text("x")
    if name == "a link to images":
        Path("in").symlink_to("pics")
    elif name == "linked classes":
        Path("in").mkdir()
        for kind in KINDS:
            Path(f"in/{kind}").symlink_to(f"../pics/{kind}")
    else:
        images("in", *KINDS)
        images("in/@eaDir", "a")
        Path("in/circle/Thumbs.db").write_text("x")
    code, said = inside("init", "./in")
    assert code == 0, said
    assert "12 images of 8 × 6 pixels" in said
