"""Paths of users without a home, or with names that begin with ~."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from tempfile import gettempdir

import pytest

from manyseed.jobs.checks import expanded
from manyseed.jobs.datasets.cache import data_home
from manyseed.slurm.profile import user_folder
from manyseed.slurm.testcluster import TestCluster


def test_a_tilde_of_no_known_user_is_part_of_a_name() -> None:
    assert expanded("~no-such-user/a.csv") == Path("~no-such-user/a.csv")
    assert expanded("~/a.csv") == Path.home() / "a.csv"


def test_a_user_without_a_home_has_data_and_no_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(number: int) -> None:
        raise KeyError(number)

    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "MANYSEED_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    with pytest.raises(RuntimeError):
        Path.home()
    assert data_home() == Path(gettempdir()) / f"manyseed-{os.getuid()}"
    assert not list(user_folder().glob("*.toml"))
    assert not user_folder().exists()
    assert TestCluster.default_folder()
    assert expanded("~/a.csv") == Path("~/a.csv")
