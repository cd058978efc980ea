"""Folders that may only be read."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Within this block nobody, not even root, may write to a folder and what is below it."""
    mount = ["mount", "--bind", folder, folder]
    if os.geteuid() != 0:
        folders = [folder, *(d for d in folder.rglob("*") if d.is_dir())]
        for each in folders:
            each.chmod(0o500)
        try:
            yield
        finally:
            for each in folders:
                each.chmod(0o700)
    elif subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("root may write anywhere, and nothing can be mounted here")
    else:
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True)
        try:
            yield
        finally:
            subprocess.run(["umount", folder], check=True)
