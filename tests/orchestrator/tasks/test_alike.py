"""Failures that are alike are one kind, and are shown in few lines."""

from __future__ import annotations

import pytest

from manyseed.orchestrator.tasks.attempts import MOST_LINES, Failure, kind, shortened

TRACEBACK = """Traceback (most recent call last):
  File "/opt/venv/lib/python3.12/site-packages/manyseed/jobs/own/estimator.py", line 54, in fit
    model.fit(X, y.astype(np.int64))
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/scratch/s/tasks/code/8590dc/own.py", line {line}, in fit
    self.model.fit(X)
  File "/opt/venv/lib/python3.12/site-packages/sklearn/base.py", line 10, in fit
    raise {error}
{error}
"""


def failure(error: str, line: int = 7, traceback: str = TRACEBACK) -> Failure:
    return Failure(0, 0, 0, 0, 0, error, traceback.format(line=line, error=error))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ValueError: seed 12 is bad", "ValueError: seed 3 is bad"),
        ("OSError: /tmp/a/log1: gone", "OSError: /scratch/b7/log: gone"),
        ("ValueError: loss is 1.5e-07", "ValueError: loss is 22"),
        ("TypeError: <Model at 0x7f3a> is none", "TypeError: <Model at 0x10> is none"),
    ],
)
def test_digits_and_paths_do_not_tell_failures_apart(one: str, other: str) -> None:
    assert kind(failure(one)) == kind(failure(other))


def test_exceptions_messages_and_lines_of_the_users_code_do() -> None:
    texts = ("ValueError: a", "KeyError: a", "ValueError: b")
    kinds = [kind(failure(text)) for text in texts] + [kind(failure("ValueError: a", line=8))]
    assert len({*kinds}) == 4
    assert kind(failure("ValueError: a"))[1] == "own.py:7", "not the library's line that raised"


def test_frames_of_manyseed_are_left_out() -> None:
    shown = shortened(TRACEBACK)
    assert "manyseed" not in shown
    assert "model.fit(X, y.astype" not in shown
    assert "self.model.fit(X)" in shown
    assert shown.endswith("{error}")


def test_a_long_traceback_is_cut_in_its_middle() -> None:
    frames = "".join(f'  File "own.py", line {n}, in f\n    f({n})\n' for n in range(200))
    text = f"Traceback (most recent call last):\n{frames}RecursionError: deep\nnotes\n"
    lines = shortened(text).splitlines()
    assert len(lines) == MOST_LINES
    assert lines[-2:] == ["RecursionError: deep", "notes"]
    assert sum("…" in line for line in lines) == 1
