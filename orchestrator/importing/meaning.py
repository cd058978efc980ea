"""Which options an import seems to mean: those that its errors propose, one after another."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from manyseed.orchestrator.errors import Lacking, OtherTests, Unread, UserError
from manyseed.orchestrator.importing.doubts import ImportSeen
from manyseed.orchestrator.importing.truths import truth_beside

_MOST_TRIED = 8


def all_meant(
    error: Unread,
    given: Collection[str],
    options: Mapping[str, Any],
    check: Callable[..., ImportSeen],
    files: Sequence[Path],
) -> tuple[Unread, Mapping[str, Any]]:
    """Return the options that read the files: those that an error proposes, and what follows.

    With the error to tell: a later one if it reads paths or settings in another way. `given`: what
    is said otherwise. `options`: as the user gave them, which count more. `check`: reads the files
    without importing them.
    """
    meant: dict[str, Any] = {}
    told = error
    for _ in range(_MOST_TRIED):
        before = meant
        read = partial(_with_truth, check, {**options, **meant})
        if "truth" not in given and (beside := truth_beside(files, error, read)):
            given = {*given, "y_true", "truth"}
            error = error.told({**error.options, "truth": str(beside)})
        for option, value in error.options.items():
            if isinstance(value, Mapping):
                pairs = {**meant.get(option, {}), **(options[option] or {}), **value}
                value = {
                    own: theirs
                    for own, theirs in pairs.items()
                    if own not in given or theirs == error.key or own in (options[option] or {})
                }
            meant = {**meant, option: value}
        texts = [value for value in meant.values() if isinstance(value, Mapping)]
        if meant == before:
            break
        if any("NAME" in value.values() for value in texts):
            told = error  # of the file that lacks it
            break
        try:
            _without_lacking(check, {**options, **meant})
        except Unread as further:
            error = further
            if {"classifier", "name"} & {*further.options}:
                told = further
            elif further.after not in told.after:
                told = told.told(told.options)
                told.after += further.after
        except OtherTests:
            raise
        except UserError:
            break
        else:
            break
    return told, meant


def _with_truth(
    check: Callable[..., ImportSeen], options: Mapping[str, Any], truth: Path
) -> ImportSeen:
    return _without_lacking(check, {**options, "truth": truth})


def _without_lacking(check: Callable[..., ImportSeen], options: Mapping[str, Any]) -> ImportSeen:
    """Check files, if values are missing then without those runs: what else is meant shows so."""
    try:
        return check(**options)
    except Lacking as error:
        left = [*(options["exclude"] or ()), *error.excluded]
        return check(**{**options, "exclude": left})
