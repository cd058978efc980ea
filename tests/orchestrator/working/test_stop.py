"""How long a task that must stop waits for its fits in flight."""

from __future__ import annotations

import pytest

from manyseed.orchestrator.tasks.intent import NOW, PAUSED, STOPPED
from manyseed.orchestrator.working import worker as module
from manyseed.orchestrator.working.worker import Stop


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that the test moves."""
    value = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: value[0])
    return value


@pytest.mark.parametrize("is_job", [False, True])
@pytest.mark.parametrize("requested", [STOPPED, PAUSED])
def test_a_users_stop_waits_for_ever_and_can_be_taken_back(
    now: list[float], is_job: bool, requested: str
) -> None:
    stop = Stop(is_job=is_job)
    assert not stop.is_asked
    stop.hear(requested)
    now[0] = 1e6
    assert stop.is_asked
    assert not stop.is_urgent
    stop.hear(NOW)
    assert stop.is_urgent
    stop.hear(None)
    assert not stop.is_asked


def test_a_first_signal_on_this_machine_waits_and_a_second_does_not(now: list[float]) -> None:
    stop = Stop(is_job=False)
    stop.on_signal()
    now[0] = 1e6
    assert stop.is_asked
    assert not stop.is_urgent
    assert not stop.is_schedulers
    stop.on_signal()
    assert stop.is_urgent


def test_a_schedulers_signal_leaves_a_minute(now: list[float]) -> None:
    stop = Stop(is_job=True)
    for moment in (0.0, 1.0, 59.0):
        now[0] = moment
        stop.on_signal()
        assert stop.is_asked
        assert stop.is_schedulers
        assert not stop.is_urgent
    now[0] = 60.0
    assert stop.is_urgent
