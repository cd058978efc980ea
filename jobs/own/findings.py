"""What was found out about users' code by importing and fitting it, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets.info import DatasetInfo
from manyseed.jobs.own.modules import Code
from manyseed.jobs.own.table import Own

PROBE_ROWS = 64
"""Training rows of a probe, at least; there are more where there are many classes."""

_MOST_SECONDS = 600
LAST_LINES = 12


@dataclass(frozen=True, slots=True)
class Findings:
    """What a probe found.

    Attributes
    ----------
    seeds : mapping
        Parameters that take a seed, each with the stream that it is drawn from.
    scores : str
        What a fit's scores are: one of `jobs.own.table.SCORES`.
    seconds : float
        What a fit of `PROBE_ROWS` took.
    notes : tuple of str
        What the user might not expect, to follow the classifier's name.
    streams : tuple of str
        Of what is no estimator: the varying streams that it draws from, of ``init`` and ``batch``.
    """

    seeds: Mapping[str, str] = field(default_factory=dict)
    scores: str = ""
    seconds: float = 1.0
    notes: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Findings:
        """Read what was written of it."""
        return cls(
            seeds=dict(value["seeds"]),
            scores=str(value["scores"]),
            seconds=float(value["seconds"]),
            notes=tuple(map(str, value["notes"])),
            streams=tuple(map(str, value.get("streams", ()))),
        )


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """What the process of a probe is asked.

    Attributes
    ----------
    table : mapping
        What the user wrote of it.
    hparams : mapping
        Their defaults.
    has_files, is_local : bool
        Whether there is a copy of files, and whether modules are imported from it.
    n_continuous, n_categorical, n_classes : int
        Of the rows.
    image : sequence of int, or None
        (height, width, channels) of rows that are images.
    """

    table: Mapping[str, Any]
    hparams: Mapping[str, Any]
    has_files: bool
    is_local: bool
    n_continuous: int
    n_categorical: int
    n_classes: int
    image: Sequence[int] | None

    @classmethod
    def read(cls, folder: Path) -> ProbeRequest:
        """Read what `write` wrote."""
        return cls(**json.loads((folder / _REQUEST).read_text()))

    def write(self, folder: Path) -> None:
        """Write it to the folder of a probe."""
        (folder / _REQUEST).write_text(json.dumps(asdict(self)))


_REQUEST = "request.json"


class NoAnswer(Exception):
    """A process that ran users' code ended without an answer; it wrote these lines last."""


def answered(module: str, folder: Path, timeout: float | None = None) -> dict[str, Any]:
    """Let a module of this package answer, in a process of its own, what a folder asks of code.

    Raises
    ------
    NoAnswer
    subprocess.TimeoutExpired
    """
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
        said = ended.stdout.decode(errors="replace").splitlines()[-LAST_LINES:]
        last = "\n  ".join(["its process ended" + (":" if said else ""), *said])
        raise NoAnswer(last) from None


def probe(own: Own, code: Code, dataset: DatasetInfo) -> Findings:
    """Import users' code from a copy, and fit it to a few made-up rows of a dataset's shape.

    Parameters
    ----------
    own : Own
    code : Code
        What `own.entry` is.
    dataset : DatasetInfo
        Its number of features and classes, and whether its rows are images, are the made-up rows'.

    Raises
    ------
    Refused
        Where the code cannot be imported, called or used, with what it raised.
    """
    request = ProbeRequest(
        table=dict(own.options),
        hparams={hparam.name: hparam.default for hparam in own.space},
        has_files=bool(code.files),
        is_local=code.root is not None,
        n_continuous=dataset.n_continuous,
        n_categorical=dataset.n_categorical,
        n_classes=len(dataset.class_names),
        image=dataset.image,
    )
    with tempfile.TemporaryDirectory(prefix="manyseed-probe-") as made:
        folder = Path(made)
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
        raise Refused(answer["option"] or own.form, own.entry, answer["refused"])
    return Findings.from_json(answer)
