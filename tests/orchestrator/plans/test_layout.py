"""Where runs are stored: unique rows, shards of one part, breadth first."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from manyseed.orchestrator.plans.layout import assign_rows, missing_blocks

GROUP_OF = [0, 0, 1, 2]
SHARDS = {0: 7, 1: 10, 2: 1}

extent = st.tuples(st.integers(1, 4), st.integers(1, 5))
history = st.lists(st.dictionaries(st.integers(0, 3), extent, min_size=1), min_size=1, max_size=4)
"""What each planning asks of some cells; a later one never asks for less."""


def frame(extents):
    return pl.DataFrame(
        [(GROUP_OF[cell], cell, *extent) for cell, extent in sorted(extents.items())],
        schema={"group": pl.UInt32, "cell": pl.UInt32, "repeats": pl.UInt32, "runs": pl.UInt32},
        orient="row",
    )


@settings(deadline=None)
@given(history)
def test_every_enlargement_adds_exactly_what_is_missing_at_shard_boundaries(plannings):
    held: dict[int, tuple[int, int]] = {}
    lengths: dict[int, int] = {}
    placed: dict[tuple[int, int, int], tuple[int, int]] = {}
    for asked in plannings:
        wanted = {
            cell: tuple(map(max, extent, held.get(cell, (0, 0)))) for cell, extent in asked.items()
        }
        added = assign_rows(missing_blocks(frame(wanted), frame(held)), lengths, SHARDS)
        expected = {
            (cell, repeat, run)
            for cell, (repeats, runs) in wanted.items()
            for repeat in range(repeats)
            for run in range(runs)
        }
        keys = [tuple(row) for row in added.select("cell", "repeat", "run").iter_rows()]
        assert len(keys) == len(set(keys))
        assert set(keys) == expected - set(placed)
        for group in added["group"].unique():
            part = added.filter(group=group)
            start = part["row"].min()
            assert start % SHARDS[group] == 0
            assert lengths.get(group, 0) <= start < lengths.get(group, 0) + SHARDS[group]
            assert part["row"].to_list() == list(range(start, start + len(part)))
            order = part.select("repeat", "cell", "run")
            assert order.equals(order.sort("repeat", "cell", "run"))  # breadth first
            lengths[group] = part["row"].max() + 1
        for group, cell, repeat, run, row in added.iter_rows():
            placed[cell, repeat, run] = (group, row)
        held |= wanted
    assert len(set(placed.values())) == len(placed)


def test_nothing_asked_is_nothing_added():
    same = frame({0: (2, 3), 2: (1, 1)})
    added = assign_rows(missing_blocks(same, same), {0: 6, 1: 1}, SHARDS)
    assert added.is_empty()
    assert added.columns == ["group", "cell", "repeat", "run", "row"]
