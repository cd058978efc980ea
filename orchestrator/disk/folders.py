"""A directory that is there whole or not at all, whoever else makes one of its name."""

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
    """Give the paths of a directory that takes its name when the block ends well.

    It is made beside `directory` under a name of its own, so that two that are made at a time don't
    meet; the second finds the name taken, and leaves nothing. What a process left that was killed
    while it made one is removed by the next.

    Raises
    ------
    UserError
        Where something is there already.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise _exists(directory)
    parent = directory.absolute().parent
    _remove_left(parent)
    made = [folder for folder in (parent, *parent.parents) if not folder.exists()]
    building = parent / f"{UNFINISHED}{uuid.uuid4().hex}"
    try:
        with whole.appearing(directory.absolute(), building):
            # a link to nowhere is there at once, with all that it says, as no file is
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
        (directory / MAKER).unlink()  # not before: whole or not, it has a maker until then


def _remove_left(parent: Path) -> None:
    """Remove directories that were not completed, of processes that certainly ended."""
    for left in parent.glob(f"{UNFINISHED}*/"):
        maker = left / MAKER
        with suppress(OSError):
            if maker.is_symlink():
                if state(str(maker.readlink())) == "dead":
                    shutil.rmtree(left)
            elif time.time() - left.stat().st_mtime > _OLD_SECONDS:
                left.rmdir()  # killed before it said who it is: only an empty one goes


def _exists(directory: Path) -> UserError:
    return UserError("exists already", file=directory, remedy="name another with --out DIR")
