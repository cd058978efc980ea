"""A directory that appears complete or not at all, even if several processes create it."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from manyseed.jobs import whole
from manyseed.orchestrator.errors import UserError
from manyseed.orchestrator.paths import MAKER, UNFINISHED, SweepPaths
from manyseed.slurm.processes import fingerprint, state

_OLD_SECONDS = 3600.0


@contextmanager
def appearing(directory: Path) -> Iterator[SweepPaths]:
    """Yield the paths of a directory that gets its name when the block succeeds.

    It is built beside `directory` under a unique name, so two processes do not collide; the second
    finds the name taken and leaves nothing. The next call removes what a killed process left.

    Raises
    ------
    UserError
        If `directory` exists and is not an empty folder.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise _exists(directory)
    parent = directory.absolute().parent
    _remove_leftovers(parent)
    made = [folder for folder in (parent, *parent.parents) if not folder.exists()]
    building = parent / f"{UNFINISHED}{uuid.uuid4().hex}"
    try:
        with whole.appearing(directory.absolute(), building):
            # a dangling link appears together with its content, which a file does not
            (building / MAKER).symlink_to(fingerprint(os.getpid()))
            yield SweepPaths(building)
    except BaseException as error:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
        if isinstance(error, whole.Taken):
            raise _exists(directory) from None
        raise
    with suppress(OSError):
        (directory / MAKER).unlink()  # last: until then, complete or not, it names its maker


def _remove_leftovers(parent: Path) -> None:
    """Remove incomplete directories whose processes are certainly dead."""
    for leftover in parent.glob(f"{UNFINISHED}*/"):
        maker = leftover / MAKER
        with suppress(OSError):
            if maker.is_symlink():
                if state(str(maker.readlink())) == "dead":
                    shutil.rmtree(leftover)
            elif time.time() - leftover.stat().st_mtime > _OLD_SECONDS:
                leftover.rmdir()  # killed before it named its maker: removed only if empty


def _exists(directory: Path) -> UserError:
    return UserError("exists already", file=directory, remedy="name another with --out DIR")
