"""Recipes are numbered and recorded by any number of processes at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from orchestrator.origin import read_recipes, register


def test_processes_of_equal_number_on_two_nodes_record_each_its_own_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 7)
    link, others = os.link, [{"on": "the other node"}]

    def meanwhile(*arguments: Any, **options: Any) -> None:
        if others:  # between what this one wrote and its getting a name
            assert register(tmp_path, others.pop()) == 1
        link(*arguments, **options)

    monkeypatch.setattr(os, "link", meanwhile)
    assert register(tmp_path, {"on": "this node"}) == 2
    assert read_recipes(tmp_path) == {1: {"on": "the other node"}, 2: {"on": "this node"}}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0001.json", "0002.json"]


def test_a_recipe_is_durable_before_it_has_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, link = [], os.link
    monkeypatch.setattr(os, "fsync", lambda file: calls.append("sync"))

    def linked(*arguments: Any, **options: Any) -> None:
        calls.append("link")
        link(*arguments, **options)

    monkeypatch.setattr(os, "link", linked)
    register(tmp_path, {"form": "sequential"})
    assert calls == ["sync", "link", "sync"]
