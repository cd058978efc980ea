"""A directory that is there whole or not at all, whoever else makes one of its name."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orchestrator.errors import UserError
from orchestrator.paths import SweepPaths
from orchestrator.store.files import sync_folder


@contextmanager
def appearing(directory: Path) -> Iterator[SweepPaths]:
    """Give the paths of a directory that takes its name when the block ends well.

    It is made beside `directory` under a name of its own, so that two that are made at a time don't
    meet; the second finds the name taken, and leaves nothing.

    Raises
    ------
    UserError
        Where something is there already.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise _exists(directory)
    parent = directory.absolute().parent
    made = [folder for folder in (parent, *parent.parents) if not folder.exists()]
    building = parent / f".manyseed-import-{uuid.uuid4().hex}"
    try:
        building.mkdir(parents=True)
        yield SweepPaths(building)
        try:
            building.rename(directory.absolute())  # an empty directory gives way, no other does
        except (FileExistsError, NotADirectoryError):
            raise _exists(directory) from None
        except OSError:
            if directory.is_dir() and any(directory.iterdir()):
                raise _exists(directory) from None
            raise
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
        raise
    sync_folder(parent)


def _exists(directory: Path) -> UserError:
    return UserError("exists already", file=directory, remedy="name another with --out DIR")
