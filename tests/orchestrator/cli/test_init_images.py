"""``manyseed init`` of folders of images, and of tables that name images."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import polars as pl
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


def flat(folder: str, kinds: dict[str, str], *, names: str = "{}-{}.png", n: int = 4) -> list[str]:
    """Make images of each kind in one folder; return the lines of a table: names and labels."""
    lines = []
    for i in range(n):
        for kind, label in kinds.items():
            file = names.format(kind, i)
            image(f"{folder}/{file}")
            lines.append(f"{file},{label}")
    return lines


def sorted_as_told(said: str) -> None:
    """Run the command that an error proposes, then `init` of the folders that it makes."""
    lines = [line.strip() for line in said.splitlines()]
    copying = next(line for line in lines if "python -c" in line)
    words = shlex.split(copying[copying.index("python -c") :])
    done = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    reading = next(line for line in lines if line.startswith("then: manyseed init"))
    code, said = inside(*shlex.split(reading.removeprefix("then: manyseed")), "lr-sgd")
    assert code == 0, said


PLAIN = {kind: kind for kind in KINDS}


@pytest.mark.parametrize(
    ("place", "file", "head", "kinds", "change"),
    [
        ("flat", "flat/labels.csv", "file,label", PLAIN, None),
        ("flat", "flat/labels.csv", "label,file", PLAIN, "swap"),
        ("my flat", "my flat/l.csv", "file's,kind", PLAIN, None),
        ("flat/images", "flat/labels.csv", "file,label", PLAIN, None),
        ("flat", "flat/labels.csv", "id,label", PLAIN, "no ending"),
        ("flat", "flat/labels.tsv", "file,label", PLAIN, "tab"),
        ("flat", "flat/labels.csv", "file,label", PLAIN, "semicolon"),
        ("flat", "flat/labels.csv", "file,label", PLAIN, "mark"),
        ("flat", "flat/labels.parquet", "file,label", PLAIN, "parquet"),
        ("flat", "flat/labels.csv", "file,label", PLAIN, "missing"),
        (".", "labels.csv", "file,label", PLAIN, None),
        ("flat", "flat/labels.csv", "file,label", {"a": "x/y", "b": "x/z", "c": "w "}, None),
        ("flat", "flat/labels.csv", "file,label", {"p/a": "0", "q/a": "01", "r/b": "2"}, None),
    ],
)
def test_a_table_that_names_images_is_told_how_to_sort_them(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    file: str,
    head: str,
    kinds: dict[str, str],
    change: str | None,
) -> None:
    lines = [head, *flat(place, kinds)]
    if change == "swap":
        lines = [lines[0], *(",".join(reversed(line.split(","))) for line in lines[1:])]
    elif change == "no ending":
        lines = [line.replace(".png", "") for line in lines]
    elif change == "missing":
        lines += ["nowhere.png,circle", f"{lines[1].split(',')[0]},"]
    text = "\n".join(lines)
    if change in ("tab", "semicolon"):
        text = text.replace(",", "\t" if change == "tab" else ";")
    if change == "parquet":
        columns = zip(*(line.split(",") for line in lines), strict=True)
        pl.DataFrame({name: values for name, *values in columns}).write_parquet(file)
    else:
        Path(file).write_text(text, encoding="utf-8-sig" if change == "mark" else "utf-8")
    said = refused(file)
    assert f"column {head.split(',')[change == 'swap']} names images in" in said
    if len(Path(file).parts) > 1 and not any("/" in kind for kind in kinds):
        of_folder = refused(str(Path(file).parent))
        assert f"{file} names classes of images; sort them by" in of_folder
        assert said.split("sort them by")[1] == of_folder.split("sort them by")[1]
    if place == "flat/images":
        monkeypatch.chdir(place)
        assert "../labels.csv names classes of images" in refused(".")
        monkeypatch.chdir(here)
        assert said.split("sort them by")[1] == refused(place).split("sort them by")[1]
    sorted_as_told(inside("init", file)[1])
    made = tomllib.loads(Path("sweep.toml").read_text())
    (source,) = (one["source"] for one in made["dataset"].values())
    found = [*Path(source.removeprefix("file:")).glob("*/*.png")]
    assert len(found) == 4 * len(kinds)
    assert {one.parent.name for one in found} == {
        label.strip().replace("/", "-") for label in kinds.values()
    }
    Path("sweep.toml").unlink()
    assert "they may be sorted already: manyseed init" in refused(file)


def test_a_table_without_classes_or_names_of_columns_is_told_so(here: Path) -> None:
    lines = flat("flat", PLAIN)
    Path("flat/a.csv").write_text("\n".join(lines))
    assert "write a line with the names of the columns above" in refused("flat/a.csv")
    Path("flat/a.csv").write_text("\n".join(["file", *(line.split(",")[0] for line in lines)]))
    assert "and no other their classes" in refused("flat/a.csv")


def test_a_table_with_features_that_names_images_too_is_asked_about(here: Path) -> None:
    rows = [f"{line},{i * 0.37:.2f}" for i, line in enumerate(flat("flat", PLAIN, n=10))]
    Path("flat/a.csv").write_text("\n".join(["file,label,area", *rows]))
    code, said = inside("init", "flat/a.csv", "lr-sgd")
    assert code == 0, said
    assert "file: names images in flat, which are not read" in " ".join(said.split())
    text = Path("sweep.toml").read_text()
    assert all(line.startswith("#") for line in text.splitlines() if "python" in line)


def test_a_single_feature_that_looks_like_none_is_asked_about(here: Path) -> None:
    rows = [f"name {i:03d} x,{'ab'[i % 2]}" for i in range(60)]
    Path("a.csv").write_text("\n".join(["what,label", *rows]))
    code, said = inside("init", "a.csv", "lr-sgd")
    assert code == 0, said
    said = " ".join(said.split())
    told = "what: taken as a feature, but has labels that hardly repeat; there is no other"
    assert f"Please check: {told}" in said
