"""Ctrl-C and SIGTERM are told as that; an error in their handling is told as an error."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from types import FunctionType

import pytest

from manyseed.orchestrator import cli
from manyseed.orchestrator.errors import DamagedFile

ENDS = (signal.SIGINT, signal.SIGTERM)
pressed: signal.Signals = signal.SIGINT


def press() -> None:
    os.kill(os.getpid(), pressed)
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
    except (KeyboardInterrupt, SystemExit):
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


def library() -> None:
    try:
        press()
    except BaseException:
        raise RuntimeError("PyErr") from None


def reads() -> int:
    try:
        library()
    except RuntimeError as error:
        raise DamagedFile("a.parquet", "cannot be read") from error
    return 0


def in_manyseed(function: Callable[[], int]) -> Callable[[], int]:
    """Return a function as if it stood in a module of manyseed."""
    given = {**globals(), "__name__": "manyseed.orchestrator.cli.planted"}
    assert isinstance(function, FunctionType)
    return FunctionType(function.__code__, given, function.__name__)


@pytest.fixture(autouse=True, params=ENDS, ids=str)
def number(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[signal.Signals]:
    """Press this one; signals are handled as Python does."""
    monkeypatch.setitem(globals(), "pressed", request.param)
    usual = (signal.default_int_handler, signal.SIG_DFL)
    before = [signal.signal(*each) for each in zip(ENDS, usual, strict=True)]
    yield request.param
    for each in zip(ENDS, before, strict=True):
        signal.signal(*each)


@pytest.mark.parametrize("run", [handles, handles_at_last])
def test_an_error_of_our_own_handling_is_raised(
    monkeypatch: pytest.MonkeyPatch, run: Callable[[], int]
) -> None:
    monkeypatch.setattr(cli, "_run", lambda _: in_manyseed(run)())
    with pytest.raises(RuntimeError, match="planted"):
        cli._guarded()


@pytest.mark.parametrize("run", [cleans_up, asks_library])
def test_an_interrupted_library_may_raise_anything(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
    run: Callable[[], int],
) -> None:
    monkeypatch.setattr(cli, "_run", lambda _: in_manyseed(run)())
    assert cli._guarded() == 128 + number
    assert ("Interrupted" in capsys.readouterr().err) == (number == signal.SIGINT)


def test_what_was_not_read_to_its_end_is_not_damaged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    monkeypatch.setattr("manyseed.orchestrator.cli.commands.app", in_manyseed(reads))
    assert cli._guarded() == 128 + number
    assert "damaged" not in (told := capsys.readouterr().err)
    assert "a.parquet" not in told
