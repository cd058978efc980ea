"""What of a task is handed out, in which order, and what happens when a process dies with it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from manyseed.orchestrator.tasks.task import Span, Task
from manyseed.orchestrator.working.queue import Queue

SPANS = (
    Span(group=0, shard=0, row=0, cell=0, repeat=0, run=0, count=10),
    Span(group=1, shard=0, row=0, cell=1, repeat=0, run=0, count=3, source=0),
    Span(group=0, shard=1, row=10, cell=0, repeat=1, run=0, count=10),
)
TASK = Task({0: "a/b", 1: "a/c"}, {}, SPANS)


def test_everything_is_handed_out_once_in_the_order_of_the_task() -> None:
    queue = Queue(TASK, {})
    seen = []
    while (batch := queue.take()) is not None:
        seen += [(batch.group, row) for row, _ in batch.runs]
        queue.learn(batch.group, 0.1)
        queue.settle(batch, [row for row, _ in batch.runs])
    expected = [(span.group, row) for span in SPANS for row, _ in span.runs()]
    assert seen == expected
    assert queue.n_pending == 0


def test_settled_runs_are_not_handed_out() -> None:
    queue = Queue(TASK, {0: set(range(20)), 1: {0, 2}})
    assert queue.n_pending == 1
    batch = queue.take()
    assert batch is not None
    assert batch.runs == ((1, 1),)
    assert batch.source == 0
    assert queue.take() is None


def test_rows_that_others_train_are_left_to_them() -> None:
    queue = Queue(TASK, {})
    queue.leave({0: set(range(2, 20)), 1: {0, 2}, 7: {1}})
    assert queue.n_pending == 3
    seen = []
    while (batch := queue.take()) is not None:
        seen += [(batch.group, *run) for run in batch.runs]
    assert seen == [(0, 0, 0), (0, 1, 1), (1, 1, 1)]


def test_batches_grow_with_the_speed_of_the_fits() -> None:
    queue = Queue(TASK, {})
    first = queue.take()
    assert first is not None
    assert len(first.runs) == 1, "how long a fit takes is not known yet"
    queue.learn(0, 0.05)
    second = queue.take()
    assert second is not None
    assert len(second.runs) == 5, "about a quarter second of work"


def test_copies_stay_with_their_source() -> None:
    queue = Queue(Task(TASK.groups, {}, SPANS[1:2]), {})
    batch = queue.take()
    assert batch is not None
    assert [row for row, _ in batch.runs] == [0, 1, 2]
    queue.put_back(batch, [0, 1, 2])
    assert queue.take() == batch


@settings(deadline=None)
@given(st.data())
def test_put_back_runs_come_first_one_by_one(data: st.DataObject) -> None:
    queue = Queue(Task(TASK.groups, {}, SPANS[:1]), {})
    queue.learn(0, 1e-3)
    batch = queue.take()
    assert batch is not None
    rows = [row for row, _ in batch.runs]
    left = data.draw(st.lists(st.sampled_from(rows), unique=True))
    queue.settle(batch, set(rows) - set(left))
    queue.put_back(batch, left)
    again = []
    while (part := queue.take()) is not None:
        assert len(part.runs) == 1
        again.append(part.runs[0][0])
    assert again == sorted(left)
    assert queue.n_pending == len(left)
