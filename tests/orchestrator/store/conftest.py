import os

import pytest


@pytest.fixture(autouse=True)
def no_power_cuts(monkeypatch):
    """Durability costs these tests most of their time; tests of it count the calls."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
