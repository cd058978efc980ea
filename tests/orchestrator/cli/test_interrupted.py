"""Ctrl-C is told as that; an error in its handling is told as an error."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from types import FunctionType

import pytest

from manyseed.orchestrator import cli


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(10**6):  # the handler runs between two instructions
        pass


def close() -> None:
    raise RuntimeError("planted")


class Cleanup:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        close()


def handles() -> int:
    try:
        press()
    except KeyboardInterrupt:
        close()
    return 0


def handles_at_last() -> int:
    try:
        press()
    finally:
        close()
    return 0


def cleans_up() -> int:
    with Cleanup():
        press()
    return 0


def asks_library() -> int:
    return handles()


def in_manyseed(function: Callable[[], int]) -> Callable[[], int]:
    """Return a function as if it stood in a module of manyseed."""
    given = {**globals(), "__name__": "manyseed.orchestrator.cli.planted"}
    assert isinstance(function, FunctionType)
    return FunctionType(function.__code__, given, function.__name__)


@pytest.fixture(autouse=True)
def _usual_signals() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("run", [handles, handles_at_last])
def test_an_error_of_our_own_handling_is_raised(
    monkeypatch: pytest.MonkeyPatch, run: Callable[[], int]
) -> None:
    monkeypatch.setattr(cli, "_run", in_manyseed(run))
    with pytest.raises(RuntimeError, match="planted"):
        cli._guarded()


@pytest.mark.parametrize("run", [cleans_up, asks_library])
def test_an_interrupted_library_may_raise_anything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], run: Callable[[], int]
) -> None:
    monkeypatch.setattr(cli, "_run", in_manyseed(run))
    assert cli._guarded() == 130
    assert "Interrupted" in capsys.readouterr().err
