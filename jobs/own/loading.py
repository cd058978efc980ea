"""Data that a user's own function returns: call it in a separate process, and keep a file."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from manyseed.jobs.checks import Option, Refused, integer
from manyseed.jobs.datasets.cache import given_copy
from manyseed.jobs.datasets.function import OPTION
from manyseed.jobs.own.findings import NoAnswer, answered
from manyseed.jobs.own.modules import Code
from manyseed.jobs.own.table import ENTRY, TABLE, check_param
from manyseed.jobs.whole import place, sha256


@dataclass(frozen=True, slots=True)
class Returned:
    """The data that a function returned.

    Attributes
    ----------
    kept : str
        The path of a file for `jobs.datasets.tablefile.read`.
    given : mapping
        The parameters for reading it.
    """

    kept: str
    given: Mapping[str, Any] = field(default_factory=dict)


def require_named(entry: object, params: object, version: object) -> None:
    """Refuse anything but an entry point, params to call it with, and a version from 1.

    Raises
    ------
    Refused
    """
    Option(pattern=ENTRY, called='"module:name", such as "mydata:load"').check(OPTION, entry)
    for name, value in TABLE["params"].check("params", params).items():
        check_param(f"params.{name}", value)
    integer("version", version, least=1)


def loaded(entry: str, params: Mapping[str, Any], code: Code) -> Returned:
    """Call a function, and keep the data that it returns in the folder of data.

    Its module is imported from its own place, so that it finds files beside itself.

    Parameters
    ----------
    entry : str
        ``"module:name"``.
    params : mapping
        The arguments, as `jobs.own.calling.built` understands them.
    code : Code
        The function's.

    Raises
    ------
    Refused
        Where it cannot be imported or called, or does not return data.
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
