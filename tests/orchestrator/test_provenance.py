"""Recipes are numbered and recorded by any number of processes at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manyseed.orchestrator import provenance
from manyseed.orchestrator.errors import DamagedFile, UserError
from manyseed.orchestrator.provenance import Recipe, read_recipes, register
from manyseed.orchestrator.sweep import Sweep
from manyseed.orchestrator.working import process
from tests.orchestrator.conftest import inside, write


def test_processes_of_equal_number_on_two_nodes_record_each_its_own_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 7)
    link, others = os.link, [Recipe(device_class="the other node")]

    def meanwhile(*arguments: Any, **options: Any) -> None:
        if (
            others and arguments[1].suffix == ".json"
        ):  # between what this one wrote and its getting a name
            assert register(tmp_path, others.pop()) == 1
        link(*arguments, **options)

    monkeypatch.setattr(os, "link", meanwhile)
    assert register(tmp_path, Recipe(device_class="this node")) == 2
    found = {number: recipe.device_class for number, recipe in read_recipes(tmp_path).items()}
    assert found == {1: "the other node", 2: "this node"}
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["0001.json", "0002.json"]
    assert not list(tmp_path.glob(".*"))


def test_a_recipe_is_durable_before_it_has_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, link = [], os.link
    monkeypatch.setattr(os, "fsync", lambda file: calls.append("sync"))

    def linked(*arguments: Any, **options: Any) -> None:
        calls.append("link")
        link(*arguments, **options)

    monkeypatch.setattr(os, "link", linked)
    register(tmp_path, Recipe("sequential"))
    assert calls == 3 * ["sync", "link", "sync"]  # that none was given before, it, that it was


def used(highest: int) -> Callable[[], int]:
    return lambda: highest


def test_a_number_is_never_given_again(tmp_path: Path) -> None:
    for name in ("a", "b"):
        register(tmp_path, Recipe(device_class=name))
    second = (tmp_path / "0002.json").read_bytes()
    (tmp_path / "0002.json").unlink()
    assert register(tmp_path, Recipe(device_class="c")) == 3
    (tmp_path / "0002.json").write_bytes(second)  # restored
    assert register(tmp_path, Recipe(device_class="b")) == 2
    assert register(tmp_path, Recipe(device_class="d"), used(9)) == 4  # the marks tell it


def test_where_nothing_is_marked_the_runs_tell_what_was_given(tmp_path: Path) -> None:
    (tmp_path / "0001.json").write_text('{"device_class": "a"}')
    assert register(tmp_path, Recipe(device_class="a"), used(2)) == 1  # the second is lost
    assert register(tmp_path, Recipe(device_class="c"), used(0)) == 3


class Killed:
    """`provenance._mark`, of which one call is the last that its process makes."""

    def __init__(self, at: int) -> None:
        self.left, self.real = at, provenance._mark

    def __call__(self, folder: Path, number: int) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt
        self.real(folder, number)


def test_who_finds_a_recipe_marks_it_also_where_its_writer_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyseed.orchestrator.provenance._mark", Killed(at=2))
    with pytest.raises(KeyboardInterrupt):
        register(tmp_path, Recipe(device_class="a"))
    assert [file.name for file in tmp_path.glob("*.given")] == ["0000.given"]
    assert register(tmp_path, Recipe(device_class="a")) == 1
    (tmp_path / "0001.json").unlink()
    assert register(tmp_path, Recipe(device_class="b")) == 2


def test_a_value_that_was_changed_is_seen(tmp_path: Path) -> None:
    register(tmp_path, Recipe(device="cpu", threads=1))
    file = tmp_path / "0001.json"
    file.write_bytes(file.read_bytes().replace(b'"threads":1', b'"threads":2'))
    with pytest.raises(DamagedFile, match=f"{file}: is not as it was written(.|\n)*or remove it"):
        read_recipes(tmp_path)


@pytest.mark.parametrize("name", ["0001.json", "0001.given"])
def test_a_recipe_of_another_sweep_is_named(tmp_path: Path, name: str) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder, threads in ((ours, 1), (theirs, 2)):
        folder.mkdir()
        register(folder, Recipe(threads=threads))
    (ours / name).write_bytes((theirs / name).read_bytes())
    with pytest.raises(DamagedFile, match=r"is not the recipe that .*0001\.given was written for"):
        read_recipes(ours)


def test_marks_of_earlier_versions_are_empty(tmp_path: Path) -> None:
    register(tmp_path, Recipe(threads=1))
    (tmp_path / "0001.given").write_bytes(b"")
    assert read_recipes(tmp_path) == {1: Recipe(threads=1)}
    assert register(tmp_path, Recipe(threads=1)) == 1


def test_code_that_can_be_edited_is_part_of_the_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs" / "inner").mkdir(parents=True)
    (tmp_path / "jobs" / "__init__.py").write_text("")
    fit = tmp_path / "jobs" / "inner" / "fit.py"
    fit.write_text("EPOCHS = 1\n")
    monkeypatch.setattr(provenance.jobs, "__file__", str(tmp_path / "jobs" / "__init__.py"))

    def digest(told: str | None) -> str | None:
        class Installed:
            def read_text(self, name: str) -> str | None:
                assert name == "direct_url.json"
                return told

        monkeypatch.setattr(provenance, "distribution", lambda _: Installed())
        provenance.code_digest.cache_clear()
        return provenance.code_digest()

    editable = '{"dir_info": {"editable": true}, "url": "file:///a"}'
    try:
        for released in (None, '{"url": "file:///a.whl"}', '{"dir_info": {}, "url": "file:///a"}'):
            assert digest(released) is None
        before, again = digest(editable), digest(editable)
        fit.write_text("EPOCHS = 2\n")
        edited = digest(editable)
        fit.rename(fit.with_name("loop.py"))
        assert before == again
        assert len({None, before, edited, digest(editable)}) == 4
    finally:
        provenance.code_digest.cache_clear()


SWEEP = """
name = "edited"
seed = 1
repeats = 1
runs = 3
[[grid]]
dataset = ["sklearn:wine"]
classifier = ["lr-sgd"]
"""


def test_a_sweep_is_not_gone_on_with_in_code_that_was_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep.plan(write(tmp_path / "edited.toml", SWEEP), tmp_path / "sweep")
    sweep.submit(workers=1, limit=1)
    sweep.wait()
    for module in (provenance, process):
        monkeypatch.setattr(module, "code_digest", lambda: "sha256:edited")
    with pytest.raises(UserError, match=r"another recipe \(code: sha256:\w+ → sha256:edited\)"):
        sweep.submit(workers=1)
    sweep.submit(workers=1, other_recipe=True)
    sweep.wait()
    assert sweep.status()["runs"]["done"] == 3


def test_code_that_was_not_recorded_yet_is_no_other_recipe() -> None:
    earlier, now = Recipe("sequential"), Recipe("sequential", code="sha256:1")
    assert earlier.changes(now) == {}
    assert now.changes(Recipe("sequential", code="sha256:2")) == {"code": ("sha256:1", "sha256:2")}


def test_a_task_that_begins_in_code_that_was_edited_since_trains_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep.plan(write(tmp_path / "edited.toml", SWEEP), tmp_path / "sweep")
    with monkeypatch.context() as before:
        before.setattr(provenance, "code_digest", lambda: "sha256:submitted")
        sweep.submit(workers=1)
        sweep.wait()
    assert sweep.status()["runs"]["done"] == 0
    code, told = inside("status", sweep.directory)
    assert code == 3
    assert "is broken, tasks avoid it" not in told
    assert "was edited since this was submitted (sha256:submitted → sha256:" in told, told
    assert f"manyseed resume {sweep.directory} --other-recipe" in told
    sweep.submit(workers=1)
    sweep.wait()
    assert sweep.status()["runs"]["done"] == 3
