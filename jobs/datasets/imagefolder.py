"""A folder of images, PNG or JPEG: its subfolders are the classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from manyseed.jobs.checks import Refused, integer
from manyseed.jobs.datasets.arrayfile import digest, in_file, refused
from manyseed.jobs.datasets.parts import PARTS
from manyseed.jobs.datasets.source import DataShape, Samples
from manyseed.jobs.datasets.tabular import DataColumn, classes_of
from manyseed.jobs.run import MachineError

if TYPE_CHECKING:
    from PIL.Image import Image

SIZE = "size"
PARAMETERS = (SIZE,)

ENDINGS = (".png", ".jpg", ".jpeg")

_LARGEST = 4096
_GREY = ("1", "L")
_COLOURED = ("P", "RGB", "RGBA", "CMYK", "YCbCr")


@dataclass(frozen=True, slots=True)
class _Folder:
    """What lies in a folder of images: their names, sorted, and what all of them have."""

    names: tuple[str, ...]
    classes: tuple[str, ...]
    n_train: int | None
    shape: tuple[int, int, int]
    digest: str


def describe(path: Path, given: Mapping[str, Any]) -> DataShape:
    """Read the headers of all images, and their bytes for the digest.

    Raises
    ------
    Refused
    """
    for key in given:
        if key != SIZE:
            reason = f"{path} is a folder of images, a class in each folder"
            raise Refused(key, given[key], reason, needs={key: None})
    size = size_of(given)
    found = _look(path, size)
    names, y = classes_of(DataColumn("source", np.array(found.classes, dtype=object)))
    height, width, channels = found.shape
    n_train = found.n_train
    return DataShape(
        provenance={
            "source": "file",
            "digest": found.digest,
            **({} if size is None else {SIZE: [*size]}),
            **({} if n_train is None else {"split": "folder"}),
        },
        n_samples=len(y),
        n_features=height * width * channels,
        n_categorical=0,
        class_names=names,
        class_counts=tuple(np.bincount(y).tolist()),
        image=found.shape,
        test_counts=None
        if n_train is None
        else tuple(np.bincount(y[n_train:], minlength=len(names)).tolist()),
        locations=(str(path),),
    )


def fetch(path: Path, provenance: Mapping[str, Any]) -> Samples:
    """Decode all images.

    Raises
    ------
    jobs.run.MachineError
        Where they are not those that were planned, or one cannot be decoded.
    """
    size = provenance.get(SIZE)
    try:
        found = _look(path, None if size is None else (size[0], size[1]))
    except Refused as error:
        raise MachineError(f"file:{path} has changed since it was planned: {error}") from error
    if found.digest != provenance["digest"]:
        raise MachineError(
            f"file:{path} has changed: the SHA-256 of its images is {found.digest}, it was planned "
            f"with {provenance['digest']}"
        )
    names, y = classes_of(DataColumn("source", np.array(found.classes, dtype=object)))
    X = in_file((len(y), *found.shape), np.uint8)
    for i, name in enumerate(found.names):
        try:
            X[i] = pixels(path / name, Path(name).name, found.shape)
        except (OSError, ValueError, SyntaxError) as error:
            raise MachineError(f"{path / name} cannot be decoded: {error}") from error
    flat = X.reshape(len(y), -1)
    cardinality = np.zeros(flat.shape[1], dtype=np.int32)
    return Samples(flat, y, cardinality, names, found.shape, found.n_train)


def size_of(given: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the height and width that a table asks for; None where it does not.

    Raises
    ------
    Refused
    """
    if SIZE not in given:
        return None
    size = given[SIZE]
    if isinstance(size, int) and not isinstance(size, bool):
        size = [size, size]
    if isinstance(size, str) or not isinstance(size, Sequence) or len(size) != 2:
        raise Refused(SIZE, size, allowed="[height, width] in pixels, or one number for both")
    height, width = (integer(SIZE, side, least=1, most=_LARGEST) for side in size)
    return height, width


def _look(path: Path, size: tuple[int, int] | None) -> _Folder:
    """Find all images, which must have one form."""
    names = _names(path)
    parts = [PurePosixPath(name).parts for name in names]
    is_split = {*PARTS} <= {part[0] for part in parts} and all(len(part) > 2 for part in parts)
    if is_split:
        if others := sorted({part[0] for part in parts} - {*PARTS}):
            reason = f"holds {others[0]} beside {' and '.join(PARTS)}; move it elsewhere, or into "
            raise refused(path, f"{reason}{PARTS[0]}")
        order = sorted(range(len(names)), key=lambda i: (parts[i][0] != PARTS[0], names[i]))
        names, parts = [names[i] for i in order], [parts[i] for i in order]
    headers = [_header(path, name) for name in names]
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
        digest=digest({name: path / name for name in names}),
    )


def _names(path: Path) -> list[str]:
    """Return all images below the folder's folders, sorted; others in there are refused."""
    if not path.is_dir():
        raise refused(path, "cannot be read: there is no such folder")
    found = []
    for folder in sorted(path.iterdir()):
        if not folder.is_dir() or folder.name.startswith("."):
            if folder.suffix.lower() in ENDINGS and not folder.name.startswith("."):
                raise refused(path, f"holds {folder.name} itself: each class needs a folder")
            continue
        of_class = []
        for file in sorted(folder.rglob("*")):
            name = file.relative_to(path)
            if file.is_dir() or any(part.startswith(".") for part in name.parts):
                continue
            if file.suffix.lower() not in ENDINGS:
                known = ", ".join(ENDINGS)
                raise refused(path, f"holds {name}, no image ({known}); move it elsewhere")
            of_class.append(name.as_posix())
        if not of_class:
            raise refused(path, f"has no images in {folder.name}; remove that folder, or fill it")
        found += of_class
    if not found:
        raise refused(path, f"has no folders of images ({', '.join(ENDINGS)}), one a class")
    return sorted(found)


def _header(path: Path, name: str) -> tuple[int, int, int]:
    try:
        return header(path / name, name)
    except NoImage as error:
        raise refused(path, str(error)) from error


class NoImage(ValueError):
    """What a source holds that is no image, or none that can be taken."""


def header(file: Path | BinaryIO, name: str) -> tuple[int, int, int]:
    """Return height, width and channels of an image, which is not decoded for that.

    Raises
    ------
    NoImage
        To follow the name of what holds it.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as image:
            if image.mode not in (*_GREY, *_COLOURED):
                kind = "transparent grey values" if image.mode == "LA" else image.mode
                reason = f"holds {name} of {kind}; save it with 8 bits, as grey values or RGB"
                raise NoImage(reason)
            return image.height, image.width, 1 if image.mode in _GREY else 3
    except (UnidentifiedImageError, Image.DecompressionBombError, SyntaxError) as error:
        reason = str(error).partition(" '")[0].partition(" <")[0] or type(error).__name__
        raise NoImage(f"holds {name}, which is no image: {reason}") from error
    except OSError as error:
        raise NoImage(f"holds {name}, which cannot be read: {error}") from error


def pixels(file: Path | BinaryIO, name: str, shape: tuple[int, int, int]) -> Any:
    """Return an image (height, width, channel) of bytes, in size and colour as all of them.

    Raises
    ------
    ValueError, OSError, SyntaxError
        Where it cannot be decoded, or is transparent in parts.
    """
    from PIL import Image

    height, width, channels = shape
    with Image.open(file) as opened:
        image: Image.Image = _opaque(opened, name).convert("RGB" if channels == 3 else "L")
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image).reshape(shape)


def _opaque(image: Image, name: str) -> Image:
    """Return an image; refuse one that shows what lies behind it."""
    if image.mode == "RGBA" and image.getchannel("A").getextrema() != (255, 255):
        raise ValueError(f"{name} is transparent in parts; save it as RGB")
    return image
