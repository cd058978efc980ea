"""A folder of images, PNG or JPEG: its subfolders are the classes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import numpy as np

from manyseed.jobs.checks import Option, Refused, did_you_mean_path, integer
from manyseed.jobs.datasets import cache
from manyseed.jobs.datasets.arrayfile import digest_of, in_file, refused
from manyseed.jobs.datasets.columns import CLASSES, DataColumn, classes_of
from manyseed.jobs.datasets.info import (
    DataShape,
    PointNames,
    Samples,
    test_counts,
    with_preparation,
)
from manyseed.jobs.datasets.parts import PARTS
from manyseed.jobs.datasets.repeated import NO_COPIES, copied, leaked
from manyseed.jobs.run import DamagedData, MachineError
from manyseed.jobs.whole import sha256

SIZE = "size"
OPTIONS: Mapping[str, Option] = {
    SIZE: Option("Height and width of all images, or one number for both, in pixels.", object)
}

_NAMED = 9  # images that cannot be used, besides the first
ENDINGS = (".png", ".jpg", ".jpeg")

_FOREIGN = {"@eadir", "__macosx", "#recycle", "$recycle.bin", "lost+found"}
_FOREIGN_FILES = {"thumbs.db", "ehthumbs.db", "desktop.ini"}
"""What storage boxes and operating systems put beside users' files, in lower case; like names that
begin with a dot, no samples."""

_BESIDE = "(?:data|sets?|images?|imgs?|seg|split|part|fold|samples?|unlabell?ed)*"
_PART = re.compile(
    rf"{_BESIDE}(?:(?P<train>train(?:ing|val|dev)?)|(?P<val>val|valid(?:ation)?|dev(?:elopment)?)"
    rf"|(?P<test>tests?|testing|holdout|pred(?:ict(?:ion)?)?|eval(?:uation)?)){_BESIDE}"
)
"""How people name a part of a split, in letters: what it is for among words that say no more."""

_LARGEST = 4096
_LISTED = 6  # classes in a message
_GREY = ("1", "L")
_COLOURED = ("P", "RGB", "RGBA", "CMYK", "YCbCr")


@dataclass(frozen=True, slots=True)
class _Folder:
    """The images in a folder: their paths, sorted, and what they have in common."""

    names: tuple[str, ...]
    classes: tuple[str, ...]
    n_train: int | None
    shape: tuple[int, int, int]
    digests: tuple[str, ...]

    @property
    def digest(self) -> str:
        """The digest of all images."""
        return digest_of(dict(zip(self.names, self.digests, strict=True)))


def describe(path: Path, given: Mapping[str, Any]) -> DataShape:
    """Read the headers of all images, and their bytes for the digest."""
    for key in given:
        if key not in (SIZE, CLASSES):
            reason = f"{path} is a folder of images, with a folder for each class"
            raise Refused(key, given[key], reason, needs={key: None})
    size = size_of(given)
    folder = _scan(path, size)
    try:
        names, y = classes_of(DataColumn("source", np.array(folder.classes, dtype=object)))
    except Refused as error:  # it may have too few images of each class
        raise refused(path, error.reason.partition(" Is it a number")[0]) from None
    height, width, channels = folder.shape
    n_train = folder.n_train
    provenance = {
        "source": "file",
        "digest": folder.digest,
        **({} if size is None else {SIZE: [*size]}),
        **({} if n_train is None else {"split": "folder"}),
    }
    # an earlier sweep may have taken the folder as it is: its data was prepared then
    if not cache.is_complete(with_preparation(provenance), cache.data_home()):
        parts = [PurePosixPath(name).parts for name in folder.names]
        _require_no_classes_within(path, parts, 0 if n_train is None else 1)
    return DataShape(
        provenance=provenance,
        n_samples=len(y),
        n_features=height * width * channels,
        n_categorical=0,
        class_names=names,
        class_counts=tuple(np.bincount(y).tolist()),
        image=folder.shape,
        test_counts=test_counts(y, n_train, len(names)),
        locations=(str(path),),
        copies=NO_COPIES if n_train else copied(folder.digests, y.tolist(), folder.names),
        leaked=(0, 0) if n_train is None else leaked(folder.digests, y, n_train),
    )


def fetch(path: Path, provenance: Mapping[str, Any]) -> Samples:
    """Decode all images."""
    size = provenance.get(SIZE)
    try:
        folder = _scan(path, None if size is None else (size[0], size[1]))
    except Refused as error:
        raise MachineError(f"file:{path} has changed since it was planned: {error}") from error
    if folder.digest != provenance["digest"]:
        raise MachineError(
            f"file:{path} has changed: the SHA-256 of its images is {folder.digest}, it was "
            f"planned with {provenance['digest']}"
        )
    names, y = classes_of(DataColumn("source", np.array(folder.classes, dtype=object)))
    X = in_file((len(y), *folder.shape), np.uint8)
    for i, name in enumerate(folder.names):
        try:
            X[i] = pixels(path / name, name, folder.shape)
        except NoImage as error:
            raise DamagedData(f"{path} {error}") from error
    flat = X.reshape(len(y), -1)
    cardinality = np.zeros(flat.shape[1], dtype=np.int32)
    files = PointNames("file", folder.names)
    return Samples(flat, y, cardinality, names, folder.shape, folder.n_train, names=files)


def size_of(given: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the height and width that a table asks for, None if it does not."""
    if SIZE not in given:
        return None
    size = given[SIZE]
    if isinstance(size, int) and not isinstance(size, bool):
        size = [size, size]
    if isinstance(size, str) or not isinstance(size, Sequence) or len(size) != 2:
        raise Refused(SIZE, size, allowed="[height, width] in pixels, or one number for both")
    height, width = (integer(SIZE, side, least=1, most=_LARGEST) for side in size)
    return height, width


def _scan(path: Path, size: tuple[int, int] | None) -> _Folder:
    """Find all images, which must have one size unless `size` is given."""
    names = _names(path)
    parts = [PurePosixPath(name).parts for name in names]
    is_split = {*PARTS} <= {part[0] for part in parts} and all(len(part) > 2 for part in parts)
    if is_split:
        if others := sorted({part[0] for part in parts} - {*PARTS}):
            reason = f"holds {others[0]} beside {' and '.join(PARTS)}; move it elsewhere, or the "
            raise refused(path, f"{reason}images of each of its classes into that of {PARTS[0]}")
        order = sorted(range(len(names)), key=lambda i: (parts[i][0] != PARTS[0], names[i]))
        names, parts = [names[i] for i in order], [parts[i] for i in order]
    elif split := _parts_of_a_split({part[0] for part in parts}):
        raise refused(
            path,
            f"has the folders {', '.join(split)}, which are parts of a split, not classes: name "
            f"them {' and '.join(PARTS)}, each with a folder for each class, and move others "
            "elsewhere",
        )
    if len({part[1 if is_split else 0] for part in parts}) == 1:
        raise _single(path, parts)
    headers: list[tuple[int, int, int]] = []
    wrong: dict[str, NoImage] = {}
    for name in names:
        try:
            headers.append(header(path / name, name))
        except NoImage as error:
            wrong[name] = error
    if wrong:
        (_, first), *rest = wrong.items()
        named = ", ".join(name for name, _ in rest[:_NAMED])
        named += f" and {len(rest) - _NAMED:,} more" * (len(rest) > _NAMED)
        more = f" ({len(wrong):,} of {len(names):,} images cannot be used; the others: {named})"
        raise refused(path, str(first) + more * bool(rest)) from first
    sizes = Counter((height, width) for height, width, _ in headers)
    if size is None and len(sizes) > 1:
        (common, _), *_ = sizes.most_common(1)
        i, other = next((i, h[:2]) for i, h in enumerate(headers) if h[:2] != common)
        j = next(j for j, h in enumerate(headers) if h[:2] == common)
        raise refused(
            path,
            f"holds images of {len(sizes)} sizes: {names[j]} has {common[0]} × {common[1]} pixels, "
            f"{names[i]} {other[0]} × {other[1]}",
            {SIZE: [*common]},
        )
    height, width = size or next(iter(sizes))
    return _Folder(
        names=tuple(names),
        classes=tuple(part[1 if is_split else 0] for part in parts),
        n_train=sum(part[0] == PARTS[0] for part in parts) if is_split else None,
        shape=(height, width, max(channels for _, _, channels in headers)),
        digests=tuple(sha256(path / name) for name in names),
    )


def _single(path: Path, parts: Sequence[tuple[str, ...]]) -> Refused:
    """Return the refusal of one class alone; it needs the source of which its folders are classes.

    `parts`: those of each image's path.
    """
    for depth in range(1, max(map(len, parts)) - 1):
        if len({part[:depth] for part in parts}) > 1:
            break
        inner = sorted({part[depth] for part in parts if len(part) > depth + 1})
        if len(inner) > 1:
            folder = "/".join(parts[0][:depth])
            kind = "folders" if {*PARTS} & {*inner} or _parts_of_a_split({*inner}) else "classes"
            listed = ", ".join(inner[:_LISTED]) + ", …" * (len(inner) > _LISTED)
            reason = f"holds one folder, {folder}, with the {kind} {listed}"
            return refused(path, reason, {"source": f"file:{path / folder}"})
    one = parts[0][1 if parts[0][0] in PARTS and len(parts[0]) > 2 else 0]
    return refused(
        path, f"has images of one class, {one}; a classifier needs two, each in a folder"
    )


def _require_no_classes_within(path: Path, parts: Sequence[tuple[str, ...]], at: int) -> None:
    """Refuse a class whose images are all in folders that are named like other classes."""
    classes = {part[at] for part in parts}
    within: dict[tuple[str, ...], set[str]] = {}
    for part in parts:
        inner = part[at + 1] if len(part) > at + 2 else ""
        within.setdefault(part[: at + 1], set()).add(inner)
    for folder, below in within.items():
        if below <= classes - {folder[-1]}:
            reason = f"holds {'/'.join(folder)}, whose folders are classes themselves: move the "
            raise refused(path, f"{reason}images of each into the folder of its class")


def _parts_of_a_split(names: set[str]) -> list[str]:
    """Return the names that mean parts of a split: training and others, or no classes at all.

    One alone may be a class: a train among vehicles.
    """
    kinds = {
        name: found.lastgroup
        for name in sorted(names)
        if (found := _PART.fullmatch(re.sub(r"[\W\d_]+", "", name.casefold())))
    }
    different = {*kinds.values()}
    is_split = len(different) > 1 and ("train" in different or kinds.keys() == names)
    return [*kinds] if is_split else []


def is_foreign(name: str) -> bool:
    """Return whether a file or folder is one that other programs put beside users' files."""
    return name.startswith(".") or name.lower() in _FOREIGN | _FOREIGN_FILES


def _names(path: Path) -> list[str]:
    """Return the images in the folder's folders, sorted; refuse other files there."""
    if not path.is_dir():
        raise refused(path, f"cannot be read: there is no such folder{did_you_mean_path(path)}")
    names = []
    for folder in sorted(path.iterdir()):
        if is_foreign(folder.name):
            continue
        if not folder.is_dir():
            if folder.suffix.lower() in ENDINGS:
                raise refused(path, f"holds {folder.name} itself: each class needs a folder")
            continue
        of_class = []
        for file in sorted(folder.rglob("*")):
            name = file.relative_to(path)
            if file.is_dir() or any(map(is_foreign, name.parts)):
                continue
            if file.suffix.lower() not in ENDINGS:
                known = ", ".join(ENDINGS)
                raise refused(path, f"holds {name}, not an image ({known}); move it elsewhere")
            of_class.append(name.as_posix())
        if not of_class:
            raise refused(path, f"has no images in {folder.name}; remove that folder, or fill it")
        names += of_class
    if not names:
        raise refused(path, f"has no folders of images ({', '.join(ENDINGS)}), one for each class")
    return sorted(names)


class NoImage(ValueError):
    """A source holds a file that is not an image, or one that cannot be used."""


def header(file: Path | BinaryIO, name: str) -> tuple[int, int, int]:
    """Return an image's height, width and channels without decoding it, or raise `NoImage`."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as image:
            if image.mode not in (*_GREY, *_COLOURED):
                kind = "transparent grey values" if image.mode == "LA" else image.mode
                reason = f"holds {name} of {kind}; save it with 8 bits, as grey values or RGB"
                raise NoImage(reason)
            # the mode of these is that of what Pillow makes of them
            if any("16" in str(tile[3]) for tile in image.tile):
                raise NoImage(f"holds {name} of 16 bits per colour; save it with 8 bits")
            if _has_transparent_colour(image.info.get("transparency")):
                raise NoImage(f"holds {name} with a transparent colour; save it as RGB without")
            found = image.height, image.width, 1 if image.mode in _GREY else 3
            if not _is_whole(image):
                raise _damaged(name, ValueError())
            return found
    except NoImage:
        raise
    except Image.DecompressionBombError as error:
        raise NoImage(f"holds {name}, which has too many pixels; make it smaller") from error
    except UnidentifiedImageError as error:
        raise NoImage(f"holds {name}, which is not an image; replace or remove it") from error
    except (OSError, ValueError, SyntaxError) as error:
        raise _damaged(name, error) from error


def _damaged(name: str, error: Exception) -> NoImage:
    if isinstance(error, OSError) and error.strerror:
        return NoImage(f"holds {name}, which cannot be read: {error.strerror}")
    return NoImage(f"holds {name}, which is cut off or damaged; replace or remove it")


def _is_whole(image: Any) -> bool:
    """Whether an image just opened has its end, which Pillow does not need to decode a JPEG."""
    try:
        if image.format == "PNG":
            image.verify()
    except (OSError, SyntaxError):
        return False
    if image.format != "JPEG":
        return True
    image.fp.seek(0)
    data = image.fp.read()
    return bool(data.rfind(b"\xff\xd9") > data.rfind(b"\xff\xda"))  # end, start of the last scan


def _has_transparent_colour(given: object) -> bool:
    """Whether an entry of Pillow's, opacities of a palette or one colour, makes pixels clear."""
    return (
        any(opacity < 255 for opacity in given) if isinstance(given, bytes) else given is not None
    )


def pixels(file: Path | BinaryIO, name: str, shape: tuple[int, int, int]) -> Any:
    """Decode an image to `shape` (height, width, channels), uint8, or raise `NoImage`."""
    from PIL import Image

    height, width, channels = shape
    try:
        with Image.open(file) as opened:
            if opened.mode == "RGBA" and opened.getchannel("A").getextrema() != (255, 255):
                raise NoImage(f"holds {name}, which is transparent in parts; save it as RGB")
            image = opened.convert("RGB" if channels == 3 else "L")
    except NoImage:
        raise
    except (OSError, ValueError, SyntaxError) as error:
        raise _damaged(name, error) from error
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image).reshape(shape)
