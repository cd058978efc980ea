"""What separate processes find in users' code: a classifier's probe, a function's data."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from manyseed.jobs.checks import Option, Refused, integer
from manyseed.jobs.datasets.cache import given_copy
from manyseed.jobs.datasets.function import OPTION
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.own.copies import Code
from manyseed.jobs.own.table import ENTRY, TABLE, Own, check_param
from manyseed.jobs.whole import place, sha256

PROBE_ROWS = 64  # training rows of a probe, at least; with many classes there are more

_MOST_SECONDS = 600
FIXED = " is given a value: the runs do not differ by it"
"""How the note on seeds ends that the code itself fixes; their names come before it."""
ALIKE = "fits with other seeds were equal"
"""How the note on seeds begins that changed nothing in a probe."""
LAST_LINES = 12


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of a probe.

    `seeds`: parameters that take a seed, each with the stream that it is drawn from. `scores`: the
    kind of a fit's scores: one of `jobs.own.table.SCORES`. `seconds`: duration of a fit of
    `PROBE_ROWS`, of which `startup` is the same for any number of rows. `notes`: what the user
    might not expect, to follow the classifier's name. `streams`: except for estimators, the varying
    streams (``init``, ``batch``) that the code draws from. `named`: params and hparams that it
    takes by their names.
    """

    seeds: Mapping[str, str] = field(default_factory=dict)
    scores: str = ""
    seconds: float = 1.0
    notes: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    startup: float = 0.0
    named: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Findings:
        """Build it from the dict that `dataclasses.asdict` made."""
        return cls(
            seeds=dict(value["seeds"]),
            scores=str(value["scores"]),
            seconds=float(value["seconds"]),
            notes=tuple(map(str, value["notes"])),
            streams=tuple(map(str, value.get("streams", ()))),
            startup=float(value.get("startup", 0.0)),
            named=tuple(map(str, value.get("named", ()))),
        )


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """The request to the process of a probe.

    `table`: as the user wrote it. `hparams`: the defaults. `has_files` and `is_local`: whether
    there is a copy of files, and whether modules are imported from it. `n_continuous`,
    `n_categorical`: numbers of features. `class_names`: in order. `image`: (height, width,
    channels) of rows that are images. `missing`: the kinds of columns, continuous or categorical,
    in which values are missing. `columns`: the name and number of labels of each column in the
    order of training, 0 for numbers; empty if not known. `labels`: of each, for frames.
    """

    table: Mapping[str, Any]
    hparams: Mapping[str, Any]
    has_files: bool
    is_local: bool
    n_continuous: int
    n_categorical: int
    class_names: Sequence[str]
    image: Sequence[int] | None
    missing: Sequence[str]
    columns: Sequence[tuple[str, int]]
    labels: Sequence[Sequence[str]] = ()

    @classmethod
    def read(cls, folder: Path) -> ProbeRequest:
        """Read the request from the folder of a probe."""
        return cls(**json.loads((folder / _REQUEST).read_text()))

    def write(self, folder: Path) -> None:
        """Write the request to the folder of a probe."""
        (folder / _REQUEST).write_text(json.dumps(asdict(self)))


_REQUEST = "request.json"


class NoAnswer(Exception):
    """A process that ran users' code ended without an answer; holds the last lines it printed."""


def answered(module: str, folder: Path, timeout: float | None = None) -> dict[str, Any]:
    """Run a module of this package in a separate process, to answer the request in a folder."""
    ended = subprocess.run(
        [sys.executable, "-P", "-m", f"manyseed.jobs.own.{module}", str(folder)],
        env={**os.environ, "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout,
        check=False,
    )
    try:
        return dict(json.loads((folder / "answer.json").read_text()))
    except (OSError, ValueError):
        printed = ended.stdout.decode(errors="replace").splitlines()[-LAST_LINES:]
        lines = ["its process ended" + (":" if printed else ""), *printed]
        raise NoAnswer("\n  ".join(lines)) from None


def with_missing(own: Own, dataset: DatasetInfo) -> tuple[str, ...]:
    """Return the kinds of columns in which code gets NaN for missing values."""
    return dataset.missing if own.keeps_values else ()


def columns_of(dataset: DatasetInfo) -> list[tuple[str, int]]:
    """Return the name and number of labels of each feature; empty where the plan has no columns."""
    taken = [
        (column.name, column.n_labels if column.kind == "categorical" else 0)
        for column in dataset.columns
        if column.kind in ("continuous", "categorical")
    ]
    n_categorical = sum(n_labels > 0 for _, n_labels in taken)
    known = (len(taken), n_categorical) == (dataset.n_features, dataset.n_categorical)
    return taken if known else []


def labels_of(own: Own, dataset: DatasetInfo) -> list[tuple[str, ...]]:
    """Return the labels of each feature if code gets them as text."""
    return [feature.labels for feature in dataset.features] if own.encode == "frame" else []


def probe(own: Own, code: Code, dataset: DatasetInfo) -> Findings:
    """Import users' code from a copy, and fit it to a few made-up rows of a dataset's shape.

    `code`: the code of `own.entry`. `dataset`: gives the made-up rows their features, classes and
    image shape.
    """
    request = ProbeRequest(
        table=dict(own.options),
        hparams={hparam.name: hparam.default for hparam in own.space},
        has_files=bool(code.files),
        is_local=code.root is not None,
        n_continuous=dataset.n_continuous,
        n_categorical=dataset.n_categorical,
        class_names=[*dataset.class_names],
        image=dataset.image,
        missing=with_missing(own, dataset),
        columns=columns_of(dataset),
        labels=labels_of(own, dataset),
    )
    with tempfile.TemporaryDirectory(prefix="manyseed-probe-") as temporary:
        folder = Path(temporary)
        code.copy_to(folder / "code")
        request.write(folder)
        try:
            answer = answered("probe", folder, _MOST_SECONDS)
        except subprocess.TimeoutExpired:
            reason = f"a fit to {PROBE_ROWS} rows took more than {_MOST_SECONDS} s"
            raise Refused(own.form, own.entry, reason, needs={"probe": False}) from None
        except NoAnswer as error:
            raise Refused(own.form, own.entry, f"cannot be probed: {error}") from None
    if "refused" in answer:
        option = answer["option"] or own.form
        raise Refused(option, own.entry, answer["refused"], needs=answer["needs"])
    return Findings.from_json(answer)


@dataclass(frozen=True, slots=True)
class Returned:
    """The data that a function returned."""

    kept: str  # the path of a file for `jobs.datasets.tablefile.read`
    given: Mapping[str, Any] = field(default_factory=dict)  # the parameters for reading it


def require_named(entry: object, params: object, version: object) -> None:
    """Refuse anything but an entry point, params to call it with, and a version from 1."""
    Option(pattern=ENTRY, called='"module:name", such as "mydata:load"').check(OPTION, entry)
    for name, value in TABLE["params"].check("params", params).items():
        check_param(f"params.{name}", value)
    integer("version", version, least=1)


def loaded(entry: str, params: Mapping[str, Any], code: Code) -> Returned:
    """Call a function, and keep the data that it returns in the folder of data.

    Its module is imported from its own place, so that it finds files beside itself.

    `entry`: ``"module:name"``. `params`: the arguments, as `jobs.own.calling.built` understands
    them. `code`: the function's.
    """
    with tempfile.TemporaryDirectory(prefix="manyseed-data-") as temporary:
        folder = Path(temporary)
        request = {
            "entry": entry,
            "params": params,
            "root": "" if code.root is None else str(code.root),
        }
        (folder / "request.json").write_text(json.dumps(request))
        try:
            answer = answered("dataprocess", folder)
        except NoAnswer as error:
            raise Refused(OPTION, entry, f"cannot be called: {error}") from None
        if "refused" in answer:
            raise Refused(OPTION, entry, answer["refused"])
        file = folder / answer["file"]
        kept = given_copy(sha256(file), file.suffix)
        if not kept.exists():
            with file.open("rb") as content:
                place(kept, partial(shutil.copyfileobj, content))
    return Returned(str(kept), answer["given"])
