"""What is planned from a program's objects, in the arguments of `Sweep.of`: errors and warnings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from manyseed.analysis.counts import counted
from manyseed.jobs.classifiers.registry import CLASSIFIERS
from manyseed.jobs.datasets.columns import LEAVE_EMPTY
from manyseed.jobs.datasets.parts import GROUP
from manyseed.orchestrator.calls import warn
from manyseed.orchestrator.errors import SeveralErrors, UserError
from manyseed.orchestrator.plans.change import COPIES, Change, remarks

_ARGUMENTS = {
    "dataset.data": "X",
    "dataset.data.source": "X",
    "dataset.data.target": "y",
    "dataset.data.group": "groups",
    "dataset.data.test": "test",
}
"""The arguments of `Sweep.of` behind keys of the sweep file that it writes."""

_TEXT = r'"(?:[^"\\]|\\.)*"'
_LIST = rf"\[(?P<names>{_TEXT}(?:, {_TEXT})*)\]"
_ONE = rf"\[(?P<name>{_TEXT})\]"
_DECLARED = rf"categorical = {_ONE}(?:, then not in ignore)?"
_IN_PROGRAM = [
    (re.compile(pattern), python)
    for pattern, python in (
        (
            rf"add to \[dataset\.data\]: ignore = {_LIST}",
            r"leave it out: X.drop(columns=[\g<names>])",
        ),
        (rf"ignore = {_LIST}", r"X.drop(columns=[\g<names>])"),
        (
            rf"{re.escape(LEAVE_EMPTY)}(?:, or missing = \[[^\]]*\])?; if .*?: {_DECLARED}",
            r'if these are missing: pd.to_numeric(X[\g<name>], errors="coerce")',
        ),
        (
            rf"numbers: continuous = {_ONE}, if not: categorical = \[{_TEXT}\]",
            r"numbers: pd.to_numeric(X[\g<name>])",
        ),
        (rf"; if (?:it is a category|they are labels): {_DECLARED}", ""),
        (rf"group = (?P<name>{_TEXT})", r"groups=X[\g<name>], and X without it,"),
        (rf"name the column that keeps them together \({GROUP}\)", "keep them together by groups="),
        (r"classes = \{…\} without these leaves their rows out", "if so, leave out their rows"),
        (r"classes = \{…\} can merge them", "y.replace({…}) can merge them"),
        (r"\bseeds = \{\}", 'options={"seeds": {}}'),
        (r'\bencode = ("\w+")', r'options={"encode": \1}'),
        ("this file", "this call"),
        ("the file asks", "this call asks"),
    )
]
"""Remedies in a sweep file, and what one does in a program; a frame is meant to be of pandas."""


def in_program(text: str) -> str:
    """Return a message on a sweep file as one on the arguments of `Sweep.of`."""
    for pattern, python in _IN_PROGRAM:
        text = pattern.sub(python, text)
    return text


def of_arguments(error: UserError, file: Path) -> UserError:
    """Return an error about the temporary sweep file as one about the arguments of `Sweep.of`."""
    if isinstance(error, SeveralErrors):
        each = [of_arguments(each, file) for each in error.errors]
        return SeveralErrors(each, are_all=error.are_all)
    if error.file is None or Path(error.file) != file:
        return error
    key = error.key or ""
    argument = _ARGUMENTS.get(key)
    if argument is None:
        argument = re.sub(r"^grid\[0\]\.", "", key)
        argument = re.sub(r"^classifier\.(\"[^\"]*\"|[^.]*)\.", "options.", argument)
        argument = "estimator" if argument == "options.estimator" else argument
    changed = error.in_file(None)
    changed.key = argument or None
    changed.message = in_program(error.message.replace(f"{file.parent}, ", ""))
    changed.remedy = None if error.remedy is None else in_program(error.remedy)
    if key in _ARGUMENTS and key != "dataset.data.test":  # the value is a name of the file's own
        changed = UserError(changed.message, key=argument, remedy=changed.remedy)
    return changed


def warn_of_objects(change: Change) -> None:
    """Warn of what a user may want to change, if anything is new; of identical runs in any case."""
    for text in () if change.is_empty else remarks(change, all_notes=False):
        if not text.startswith(COPIES):
            warn(in_program(text))
    for text in _copies(change):
        warn(text)


def _copies(change: Change) -> Iterator[str]:
    """Say of each classifier how many of its runs are identical, why, and what would vary them."""
    table = change.by_group()
    for name, runs, identical in table.select("classifier", "runs", "identical").iter_rows():
        if not identical:
            continue
        one = f"{identical:,} of {counted(runs, 'run')} of {name}"
        stored = "are stored as copies: the spread between them is 0"
        noise = 'vary=["train"] or perturb_continuous=["relative:0.5"]'
        if name.partition("~")[0] in CLASSIFIERS:
            yield (
                f"{one} {stored}, as {name} draws nothing at these hparams; one run per test set "
                f"says it all. To vary the data: {noise}"
            )
            continue
        notes = [n for n in change.expansion.notes if n.startswith(f"{name}: seeds: ")]
        found = f" ({in_program('. '.join(notes))})" if notes else ""
        yield (
            f"{one} {stored}, as nothing that varies reaches the estimator{found}. If it takes a "
            'seed, name the parameter: options={"seeds": {"random_state": "batch"}}; or vary the '
            f"data: {noise}"
        )
