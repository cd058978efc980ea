"""Data that a user's own function returns: called in a process of its own, and kept as a file."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from manyseed.jobs.checks import Refused, integer
from manyseed.jobs.datasets.cache import given_copy
from manyseed.jobs.datasets.function import OPTION
from manyseed.jobs.own.findings import NoAnswer, answered
from manyseed.jobs.own.modules import Code
from manyseed.jobs.own.table import check_param, is_entry
from manyseed.jobs.whole import place, sha256


@dataclass(frozen=True, slots=True)
class Returned:
    """What a function returned.

    Attributes
    ----------
    kept : str
        A file, as `jobs.datasets.tablefile.read` reads it.
    given : mapping
        What has to be said of it: the parameters of a file.
    """

    kept: str
    given: Mapping[str, Any] = field(default_factory=dict)


def require_named(entry: object, params: object, version: object) -> None:
    """Refuse what names no function, params that none can be called with, and other versions.

    Raises
    ------
    Refused
    """
    if not is_entry(entry):
        raise Refused(OPTION, entry, allowed='"module:name", such as "mydata:load"')
    if not isinstance(params, Mapping):
        raise Refused("params", params, allowed="a table of values")
    for name, value in params.items():
        check_param(f"params.{name}", value)
    integer("version", version, least=1)


def loaded(entry: str, params: Mapping[str, Any], code: Code) -> Returned:
    """Call a function for the data that it returns, and keep that in the folder of data.

    Its module is imported from where it lies, so that it finds files beside itself.

    Parameters
    ----------
    entry : str
        ``"module:name"``.
    params : mapping
        What it is called with, as `jobs.own.calling.built` understands them.
    code : Code
        Where it lies.

    Raises
    ------
    Refused
        Where it cannot be imported or called, or returns something else than data.
    """
    with tempfile.TemporaryDirectory(prefix="manyseed-data-") as made:
        folder = Path(made)
        request = {
            "entry": entry,
            "params": params,
            "root": "" if code.root is None else str(code.root),
        }
        (folder / "request.json").write_text(json.dumps(request))
        try:
            answer = answered("returned", folder)
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
