"""Pretrained weights: planning locates a file and records its digest, training reads it by digest.

Writing a plan stores a copy in the data folder, so that workers find exactly the file that the
identity names, whatever happens to the original. Nothing is ever downloaded.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from pathlib import Path

from manyseed.jobs.checks import Option, Refused, expanded
from manyseed.jobs.datasets.cache import HOME_VARIABLE, data_home
from manyseed.jobs.run import MachineError
from manyseed.jobs.whole import place, sha256

PUBLISHED = {
    "swin_t": "https://download.pytorch.org/models/swin_t-704ceda3.pth",
    "vit_b_16": "https://download.pytorch.org/models/vit_b_16-c867db91.pth",
}
"""ImageNet weights of each backbone, as torchvision names them."""


OPTION = Option(
    "The backbone's state dict; by default the published one.", called="the path of a file"
)
_UNKNOWN = "0" * 64
_absent: ContextVar[list[str] | None] = ContextVar("absent weights", default=None)


@contextmanager
def counting() -> Iterator[list[str]]:
    """Within this block, runs are only counted: published weights may be absent.

    Yields the list of what is absent, with what to do, which grows as classifiers are resolved.
    Identities are then not those of runs.
    """
    noted: list[str] = []
    token = _absent.set(noted)
    try:
        yield noted
    finally:
        _absent.reset(token)


def locate(backbone: str, weights: object = None) -> tuple[Path, str]:
    """Return a weights file and its SHA-256, hexadecimal.

    Parameters
    ----------
    backbone : str
        One of `PUBLISHED`.
    weights : str, optional
        Path of a file with the backbone's state dict; by default the published file in torch hub's
        cache.
    """
    if weights is not None:
        OPTION.check("weights", weights)
    hub = _in_hub(backbone)
    path = hub if weights is None else expanded(str(weights))
    if not path.is_file():
        absent = "there is no such file" if weights else f"those of {backbone} are not in {hub}"
        get = f"download {PUBLISHED[backbone]} to {hub}, or give the path of a state dict"
        if weights is None and (noted := _absent.get()) is not None:
            if (told := f"{absent}: {get}") not in noted:
                noted.append(told)
            return path, _UNKNOWN
        raise Refused("weights", weights, f"{absent}: {get}")
    return path, _digest(path)


def keep(backbone: str, weights: object = None) -> str:
    """Copy a weights file to the data folder and return its digest; parameters as in `locate`."""
    path, digest = locate(backbone, weights)
    copy = _kept(digest)
    if not copy.is_file():
        try:
            with path.open("rb") as file:
                place(copy, partial(shutil.copyfileobj, file))
        except OSError as error:
            raise Refused(
                "weights",
                str(path),
                f"cannot be copied to {copy} ({error}): set {HOME_VARIABLE} to a folder that can "
                "be written",
            ) from error
    return digest


def find(backbone: str, digest: str) -> Path:
    """Return the file with the weights that a run was planned with.

    Raises
    ------
    jobs.run.MachineError
        If the file is not on this machine or has changed.
    """
    copy = _kept(digest)
    for path in (copy, _in_hub(backbone)):
        if path.is_file() and _digest(path) == digest:
            return path
    raise MachineError(
        f"the weights of {backbone} that the sweep was planned with (SHA-256 {digest}) are not in "
        f"{copy}, or have changed: copy them there, or set {HOME_VARIABLE} to where the sweep was "
        "planned"
    )


def _kept(digest: str) -> Path:
    return data_home() / "weights" / f"{digest}.pth"


def _in_hub(backbone: str) -> Path:
    """Return torch hub's path for a published file, without importing torch to ask it."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("TORCH_HOME") or f"{cache}/torch"
    name = PUBLISHED[backbone].rpartition("/")[2]
    return expanded(home) / "hub" / "checkpoints" / name


def _digest(path: Path) -> str:
    now = path.stat()
    return _digest_of(path.resolve(), now.st_size, now.st_mtime_ns)


@lru_cache(maxsize=64)
def _digest_of(path: Path, _size: int, _modified: int) -> str:
    return sha256(path)
