"""Tasks and suites of OpenML: a dataset, the column to predict, and official folds.

The server's answers are kept unchanged in ``HOME/openml/tasks`` and ``HOME/openml/suites``, and
read from there ever after.
"""

from __future__ import annotations

import hashlib
import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets import openml
from manyseed.jobs.datasets.cache import data_home
from manyseed.jobs.datasets.info import DatasetSource, DataShape, Samples
from manyseed.jobs.datasets.parts import fold_counts
from manyseed.jobs.datasets.split import TEST, TRAIN
from manyseed.jobs.run import MachineError
from manyseed.jobs.whole import UNLIKE

API = "https://api.openml.org/api/v1/json"
SUITE = "openml-suite:"

_ATTRIBUTE = re.compile(r"""@attribute\s+(?:'([^']*)'|"([^"]*)"|(\S+))""", re.IGNORECASE)
_CLASSIFICATION = "1"
_SECONDS = 60.0
_PROVENANCE = ("source", "id", "target", "digest", "folds")


def _describe(name: str, _: Mapping[str, Any]) -> DataShape:
    source = f"openml-task:{name}"
    if not re.fullmatch("[0-9]{1,9}", name):
        raise Refused("source", source, allowed="the number of a task: openml-task:31")
    home = data_home()
    file = home / "openml" / "described" / f"task-{int(name)}.json"
    try:
        return _shape(json.loads(file.read_bytes()))
    except (OSError, *UNLIKE):
        pass  # not known yet, or damaged
    try:
        number, target, samples = _read(int(name), home)
        assert samples.roles is not None
        known = {
            "source": f"openml-task:{int(name)}",
            "id": number,
            "target": target,
            "digest": openml.digest_of(samples),
            "folds": _digest(samples.roles),
            **openml.counted(samples),
            "set_counts": fold_counts(samples.roles, samples.y, len(samples.class_names)).tolist(),
        }
        openml.keep(file, json.dumps(known).encode())
    except MachineError as error:
        raise Refused("source", source, str(error)) from error
    return _shape(known)


def _shape(known: Mapping[str, Any]) -> DataShape:
    set_counts = np.array(known["set_counts"], dtype=np.int64)
    if set_counts.shape != (2, set_counts.shape[1], len(known["class_names"])):
        raise ValueError("the folds do not fit the classes")
    return replace(openml.shape(known, _PROVENANCE), set_counts=set_counts)


def _digest(roles: NDArray[np.uint8]) -> str:
    return hashlib.sha256(roles.tobytes()).hexdigest()


def _fetch(provenance: Mapping[str, Any], _: Sequence[str], home: Path) -> Samples:
    source = provenance["source"]
    try:
        _number, _target, samples = _read(int(source.partition(":")[2]), home)
    except Refused as error:
        raise MachineError(f"{source} is not what was planned: {error}") from error
    assert samples.roles is not None
    digests = {"digest": openml.digest_of(samples), "folds": _digest(samples.roles)}
    for key, what in (("digest", "data"), ("folds", "folds")):
        if digests[key] != provenance[key]:
            raise MachineError(
                f"{source} is not what was planned: the digest of its {what} is {digests[key]}, it "
                f"was {provenance[key]}"
            )
    return samples


def _read(task: int, home: Path) -> tuple[int, str, Samples]:
    """Return the number of a task's dataset, its column of classes, and samples with roles."""
    source, folder = f"openml-task:{task}", home / "openml" / "tasks"
    try:
        about = json.loads(_got(f"{API}/task/{task}", folder / f"{task}.json", source))["task"]
        inputs = {each["name"]: each for each in about["input"]}
        kind, data = about["task_type_id"], inputs["source_data"]["data_set"]
        number, target = int(data["data_set_id"]), str(data["target_feature"])
        url = inputs["estimation_procedure"]["estimation_procedure"].get("data_splits_url")
    except UNLIKE as error:
        raise MachineError(
            f"{folder / f'{task}.json'} does not describe a task ({error!r}): remove it, and it is "
            "fetched again"
        ) from error
    if str(kind) != _CLASSIFICATION or not url:
        what = about.get("task_type", f"of type {kind}")
        raise Refused("source", source, f"is {what}, not supervised classification with folds")
    _, samples = openml.read(number, source, home, target)
    table = _got(str(url), folder / f"{task}.arff", source)
    roles = _roles(table.decode("utf-8", "replace"), len(samples.y), source)
    return number, target, replace(samples, roles=roles)


def _roles(table: str, n: int, source: str) -> NDArray[np.uint8]:
    """Return the roles of rows (set, sample) in a table of splits, sets by repeat and fold."""
    # ARFF: keywords in any case, comments and blank lines anywhere
    lines = [line for line in map(str.strip, table.splitlines()) if line and line[0] != "%"]
    keywords = [line.split(None, 1)[0].lower() for line in lines]
    data = keywords.index("@data") if "@data" in keywords else len(lines)
    names = [
        "".join(found.groups(default="")).lower()
        for line in lines[:data]
        if (found := _ATTRIBUTE.match(line))
    ]
    try:
        at = [names.index(name) for name in ("type", "rowid", "repeat", "fold")]
        cells = [line.split(",") for line in lines[data + 1 :]]
        is_test = np.array([row[at[0]].strip(" '\"").upper() == "TEST" for row in cells])
        row, repeat, fold = (
            np.array([int(float(row[j].strip(" '\""))) for row in cells]) for j in at[1:]
        )
    except (ValueError, IndexError, OverflowError) as error:
        raise MachineError(f"the folds of {source} are not a table of folds") from error
    if not row.size or row.min() < 0 or row.max() >= n:
        raise MachineError(f"the folds of {source} name rows that its {n} rows do not have")
    if "sample" in names:
        raise Refused("source", source, "has samples of growing size (a learning curve), not folds")
    sets, set_index = np.unique(np.stack([repeat, fold], axis=1), axis=0, return_inverse=True)
    roles = np.zeros((len(sets), n), dtype=np.uint8)
    set_index = set_index.reshape(-1)
    roles[set_index[~is_test], row[~is_test]] = TRAIN
    if (roles[set_index[is_test], row[is_test]] == TRAIN).any():
        raise Refused("source", source, "tests on rows that it trains on")
    roles[set_index[is_test], row[is_test]] = TEST
    if not ((roles == TRAIN).any(axis=1) & (roles == TEST).any(axis=1)).all():
        raise Refused("source", source, "has a fold without training rows or test rows")
    return roles


def suite(name: str) -> tuple[str, ...]:
    """Return the sources of an OpenML suite, which are tasks, by its number or alias."""
    source = f"{SUITE}{name}"
    if not name or not name.replace("-", "").replace("_", "").isalnum():
        raise Refused("suite", source, allowed="the number of a suite: openml-suite:99")
    file = data_home() / "openml" / "suites" / f"{name}.json"
    try:
        tasks = json.loads(_got(f"{API}/study/{name}", file, source))["study"]["tasks"]["task_id"]
        numbers = [int(each) for each in (tasks if isinstance(tasks, list) else [tasks])]
    except MachineError as error:
        raise Refused("suite", source, str(error)) from error
    except UNLIKE as error:
        reason = f"{file} does not list tasks: remove it, and it is fetched again"
        raise Refused("suite", source, reason) from error
    return tuple(f"openml-task:{number}" for number in numbers)


def _got(url: str, file: Path, what: str) -> bytes:
    """Return the content of a URL, from the file that keeps it if there is one."""
    try:
        return file.read_bytes()
    except OSError:
        pass
    if not url.startswith(("https://", "http://")):
        raise MachineError(f"{what} names {url}, which is not a URL")
    request = urllib.request.Request(url, headers={"User-Agent": "manyseed"})
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            content: bytes = answer.read()
    except (OSError, ValueError) as error:
        reason = f"{error}{_message(error)}"
        raise MachineError(
            f"{what} cannot be fetched from {url} ({reason}); fetch it where the network can be "
            f"reached, or put the answer into {file}"
        ) from error
    openml.keep(file, content)
    return content


def _message(error: Exception) -> str:
    """Return the server's reason for a refusal, such as an unknown number."""
    if not isinstance(error, urllib.error.HTTPError):
        return ""
    try:
        return f": {json.loads(error.read())['error']['message']}"
    except (OSError, *UNLIKE):
        return ""


SOURCE = DatasetSource(names=(), describe=_describe, fetch=_fetch)
