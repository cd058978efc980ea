import itertools
from pathlib import Path

import pytest

from manyseed.orchestrator.paths import LEDGER
from manyseed.orchestrator.store import compact as module
from manyseed.orchestrator.store.compact import compact
from manyseed.orchestrator.store.ledger import count_retrained, ledger_damage
from manyseed.orchestrator.store.repair import drop
from manyseed.orchestrator.store.shards import publish
from tests.orchestrator.store.world import NUMBER, World, values


class Counted(World):
    """Every fit takes another time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.seconds = itertools.count(1)

    def append(self, journal, *numbers) -> None:
        for row in numbers:
            seconds = next(self.seconds) / 7
            encoded = values(self.spec, row)
            journal.append(NUMBER, row, encoded, recipe=1, fit_seconds=seconds)

    def count(self) -> int:
        return count_retrained([self.group], self.index())

    def compact(self) -> None:
        compact(self.store, self.journal_folder, self.watch)


@pytest.fixture
def world(tmp_path):
    return Counted(tmp_path)


def test_fits_in_vain_are_counted_for_good(world):
    world.finish(0, 1, 2)
    assert world.count() == 0
    world.finish(1, 2)
    assert world.count() == 2
    publish(world.group, 0, world.index(), world.watch)
    assert world.count() == 2
    world.compact()
    assert world.count() == 2
    world.finish(2, 5)  # by one that was taken for dead before the journals were removed
    assert world.count() == 3
    world.compact()
    world.compact()
    assert world.count() == 3


def test_without_any_there_is_no_file(world):
    world.finish(0, 1)
    world.compact()
    assert list(world.journals.iterdir()) == []


def test_copies_are_no_fits(world):
    world.finish(0)
    for _ in range(2):
        with world.journal() as journal:
            journal.append_copy(NUMBER, 1, 0)
    assert world.count() == 0
    world.compact()
    assert world.count() == 0


def test_what_is_trained_again_because_it_was_dropped_is_not_in_vain(world):
    world.finish(0, 1)
    publish(world.group, 0, world.index(), world.watch)
    drop({world.group: [0]}, world.journal_folder, world.watch)
    world.finish(0)
    assert world.count() == 0
    world.compact()
    assert world.count() == 0


def test_journals_that_stay_go_on_counting(world):
    world.finish(0)
    with world.journal() as journal:
        world.append(journal, 0)
        journal.append_copy(NUMBER, 5, 4)  # waits
    world.compact()
    assert len(list(world.journals.glob("*.journal"))) == 1
    assert world.count() == 1
    world.finish(4)
    world.compact()
    assert not list(world.journals.glob("*.journal"))
    assert world.count() == 1


@pytest.mark.parametrize("removed", range(4))
def test_a_kill_while_journals_are_removed_changes_no_count(world, monkeypatch, removed):
    for _ in range(3):
        world.finish(0, 1)
    unlinked = []

    def unlink(path, missing_ok=False, original=Path.unlink):
        if path.suffix == ".journal" and path.parent == world.journals:
            if len(unlinked) == removed:
                raise KeyboardInterrupt
            unlinked.append(path)
        original(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(module.Path, "unlink", unlink)
        if removed < 3:
            with pytest.raises(KeyboardInterrupt):
                world.compact()
        else:
            world.compact()
    assert (world.journals / LEDGER).exists()
    assert ledger_damage(world.journals) == ""
    assert world.count() == 4
    world.finish(1)
    assert world.count() == 5
    world.compact()
    assert world.count() == 5
    (world.journals / LEDGER).unlink()
    assert f"{LEDGER}: is lost" in ledger_damage(world.journals)
    assert world.count() == 0  # and goes on
