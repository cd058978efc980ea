"""OpenML: datasets, tasks (a dataset, the column to predict, official folds) and suites of them.

Datasets come through scikit-learn's fetcher and are checked against the catalogue or the plan.

A dataset that is not in the catalogue is named by its number. Planning fetches it, keeps its
description in ``HOME/openml/described/ID.json``, and pins its content by a digest. The server's
answers on tasks and suites are kept unchanged in ``HOME/openml/tasks`` and ``HOME/openml/suites``,
and read from there ever after.
"""

from __future__ import annotations

import hashlib
import json
import re
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets.cache import data_home
from manyseed.jobs.datasets.catalogue import OPENML, OpenMLEntry
from manyseed.jobs.datasets.columns import DataColumn, to_samples
from manyseed.jobs.datasets.info import DatasetSource, DataShape, Samples, listed
from manyseed.jobs.datasets.parts import fold_counts
from manyseed.jobs.datasets.split import TEST, TRAIN
from manyseed.jobs.run import MachineError
from manyseed.jobs.whole import UNLIKE, place

_PROVENANCE = ("source", "id", "digest")


def _describe(name: str, _: Mapping[str, Any]) -> DataShape:
    if re.fullmatch("[0-9]{1,9}", name):
        known = next((entry for entry in OPENML.values() if entry.id == int(name)), None)
        if known is None:
            return _described(int(name))
        name = f"{known.name}@{known.version}"
    entry = _entry(name)
    return DataShape(
        provenance={"source": entry.source, "id": entry.id},
        n_samples=entry.n_samples,
        n_features=entry.n_features,
        n_categorical=entry.n_categorical,
        class_names=entry.class_names,
        class_counts=entry.class_counts,
        labelled=entry.labelled,
    )


def _entry(name: str) -> OpenMLEntry:
    if name not in OPENML:
        versions = [entry for entry in OPENML.values() if entry.name == name]
        if [entry.version for entry in versions] == [1]:
            return versions[0]
        if versions:
            known = ", ".join(
                f"{entry.source} (id {entry.id}, {entry.n_samples} × {entry.n_features}, "
                f"{len(entry.class_names)} classes)"
                for entry in versions
            )
            reason = f"has several versions, which are different data; known here are {known}"
            raise Refused("source", f"openml:{name}", reason)
    return OPENML[listed("openml", name, OPENML)]


def _fetch(provenance: Mapping[str, Any], _: Sequence[str], home: Path) -> Samples:
    """Read scikit-learn's cache in `home`, filling it from OpenML where it lacks the dataset."""
    entry = OPENML.get(provenance["source"].removeprefix("openml:"))
    number, source = provenance["id"], provenance["source"]
    details, samples = read(number, source, home)
    if entry is not None:
        name = f"{details['name']}@{details['version']}"
        if name != f"{entry.name}@{entry.version}":
            raise MachineError(
                f"id {entry.id} of OpenML is {name}, in the catalogue it is {entry.source}"
            )
        return _checked(entry, samples)
    if (digest := digest_of(samples)) != provenance["digest"]:
        raise MachineError(
            f"{source} (id {number}) is not what was planned: the digest of its data is {digest}, "
            f"it was {provenance['digest']}"
        )
    return samples


def _described(number: int) -> DataShape:
    """Describe a dataset that the catalogue lacks, fetching it the first time."""

    def fetched(home: Path) -> dict[str, object]:
        details, samples = read(number, f"openml:{number}", home)
        return {
            "source": f"openml:{details['name']}@{details['version']}",
            "id": number,
            "digest": digest_of(samples),
            **counted(samples),
        }

    return _kept(f"{number}.json", f"openml:{number}", shape, fetched)


def _kept(
    name: str,
    source: str,
    read_shape: Callable[[Mapping[str, Any]], DataShape],
    fetched: Callable[[Path], dict[str, object]],
) -> DataShape:
    """Read a kept description of a source; fetch and keep it if it is not known, or damaged."""
    home = data_home()
    file = home / "openml" / "described" / name
    try:
        return read_shape(json.loads(file.read_bytes()))
    except (OSError, *UNLIKE):
        pass
    try:
        known = fetched(home)
        keep(file, json.dumps(known, indent=1).encode())
    except MachineError as error:
        raise Refused("source", source, str(error)) from error
    return read_shape(known)


def keep(file: Path, content: bytes) -> None:
    """Write a file whole."""
    try:
        place(file, lambda opened: opened.write(content))
    except OSError as error:
        raise MachineError(f"{file} cannot be written: {error}") from error


def counted(samples: Samples) -> dict[str, object]:
    """Return the counts of samples that a description keeps, for `shape` to read."""
    return {
        "n_samples": len(samples.y),
        "n_features": len(samples.cardinality),
        "n_categorical": int((samples.cardinality > 0).sum()),
        "class_names": samples.class_names,
        "class_counts": np.bincount(samples.y).tolist(),
    }


def shape(known: Mapping[str, Any], provenance: Sequence[str] = _PROVENANCE) -> DataShape:
    """Return the shape that a kept description holds; `provenance` are its keys of provenance.

    A description that does not fit itself raises what `UNLIKE` lists.
    """
    names, counts = known["class_names"], known["class_counts"]
    if (
        not isinstance(names, list | tuple)
        or not all(isinstance(name, str) for name in (known["source"], *names))
        or len(counts) > len(names)
        or sum(counts) != known["n_samples"]
        or not 0 <= known["n_categorical"] <= known["n_features"]
    ):
        raise ValueError("the numbers do not fit each other")
    return DataShape(
        provenance={key: known[key] for key in provenance},
        n_samples=known["n_samples"],
        n_features=known["n_features"],
        n_categorical=known["n_categorical"],
        class_names=tuple(names),
        class_counts=tuple(counts),
    )


def digest_of(samples: Samples) -> str:
    """Return the SHA-256 of X (float64, little-endian, NaN where missing) followed by y (int64)."""
    X = np.where(np.isnan(samples.X), np.nan, samples.X)  # one NaN, whatever its bits
    return hashlib.sha256(X.astype("<f8").tobytes() + samples.y.astype("<i8").tobytes()).hexdigest()


def read(
    number: int, source: str, home: Path, target: str = "default-target"
) -> tuple[Mapping[str, Any], Samples]:
    """Return OpenML's details of a dataset, and its samples.

    `number`: the dataset's. `source`: its name in messages. `target`: the column of classes; by
    default OpenML's.
    """
    try:
        from sklearn.datasets import fetch_openml

        # The faster parser mistakes labels that are whole numbers for numbers, and fails on them
        # with pandas 3.1 (scikit-learn, pull request 34902).
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about retries; the last error is raised
            fetched = fetch_openml(
                data_id=number,
                target_column=target,
                data_home=home,
                as_frame=True,
                parser="liac-arff",
            )
    except Exception as error:  # scikit-learn raises errors of many types if its copy is damaged
        raise MachineError(
            f"{source} (id {number}) cannot be fetched into {home} ({error}); fetch it "
            "where the network can be reached"
        ) from error
    if getattr(fetched.target, "ndim", 0) != 1:
        raise Refused("source", source, "has no single column of classes on OpenML")
    features = [DataColumn(name, _values(fetched.data[name])) for name in fetched.data]
    target_column = DataColumn(fetched.target.name, _text(fetched.target))
    return fetched.details, to_samples(source, features, target_column)


def _values(series: Any) -> Any:
    """Return a pandas column as numbers, or as text if it holds anything else."""
    if series.dtype.kind in "iuf":
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    return _text(series)


def _text(series: Any) -> Any:
    values = series.astype(object).to_numpy(dtype=object).copy()
    values[series.isna().to_numpy()] = None
    return values


def _checked(entry: OpenMLEntry, samples: Samples) -> Samples:
    """Check data against the catalogue; give its classes the catalogue's names and order."""
    counts = np.bincount(samples.y).tolist()
    found: dict[str, object] = {
        "samples": len(samples.y),
        "features": len(samples.cardinality),
        "categorical features": int((samples.cardinality > 0).sum()),
        "classes": len(counts),
        "largest class": max(counts),
        "smallest class": min(counts),
    }
    planned: dict[str, object] = {
        "samples": entry.n_samples,
        "features": entry.n_features,
        "categorical features": entry.n_categorical,
        "classes": len(entry.class_names),
        "largest class": entry.n_majority,
        "smallest class": entry.n_minority,
    }
    if entry.labelled:
        found["labels"] = dict(zip(samples.class_names, counts, strict=True))
        planned["labels"] = dict(zip(entry.class_names, entry.class_counts or (), strict=True))
    if differing := [key for key in planned if found[key] != planned[key]]:
        raise MachineError(
            f"{entry.source} (id {entry.id}) is not what the catalogue says: "
            + "; ".join(f"{key} {found[key]}, in the catalogue {planned[key]}" for key in differing)
        )
    y = samples.y
    if entry.class_names == ("majority", "minority") and counts[0] < counts[1]:
        y = 1 - y
    return replace(samples, y=y, class_names=entry.class_names)


SOURCE = DatasetSource(names=tuple(OPENML), describe=_describe, fetch=_fetch)


API = "https://api.openml.org/api/v1/json"
SUITE = "openml-suite:"

_ATTRIBUTE = re.compile(r"""@attribute\s+(?:'([^']*)'|"([^"]*)"|(\S+))""", re.IGNORECASE)
_CLASSIFICATION = "1"
_SECONDS = 60.0
_OF_TASKS = ("source", "id", "target", "digest", "folds")


def _describe_task(name: str, _: Mapping[str, Any]) -> DataShape:
    source = f"openml-task:{name}"
    if not re.fullmatch("[0-9]{1,9}", name):
        raise Refused("source", source, allowed="the number of a task: openml-task:31")

    def fetched(home: Path) -> dict[str, object]:
        number, target, samples = _read(int(name), home)
        assert samples.roles is not None
        return {
            "source": f"openml-task:{int(name)}",
            "id": number,
            "target": target,
            "digest": digest_of(samples),
            "folds": _digest(samples.roles),
            **counted(samples),
            "set_counts": fold_counts(samples.roles, samples.y, len(samples.class_names)).tolist(),
        }

    return _kept(f"task-{int(name)}.json", source, _shape, fetched)


def _shape(known: Mapping[str, Any]) -> DataShape:
    set_counts = np.array(known["set_counts"], dtype=np.int64)
    if set_counts.shape != (2, set_counts.shape[1], len(known["class_names"])):
        raise ValueError("the folds do not fit the classes")
    return replace(shape(known, _OF_TASKS), set_counts=set_counts)


def _digest(roles: NDArray[np.uint8]) -> str:
    return hashlib.sha256(roles.tobytes()).hexdigest()


def _fetch_task(provenance: Mapping[str, Any], _: Sequence[str], home: Path) -> Samples:
    source = provenance["source"]
    try:
        _number, _target, samples = _read(int(source.partition(":")[2]), home)
    except Refused as error:
        raise MachineError(f"{source} is not what was planned: {error}") from error
    assert samples.roles is not None
    digests = {"digest": digest_of(samples), "folds": _digest(samples.roles)}
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
    _, samples = read(number, source, home, target)
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
    keep(file, content)
    return content


def _message(error: Exception) -> str:
    """Return the server's reason for a refusal, such as an unknown number."""
    if not isinstance(error, urllib.error.HTTPError):
        return ""
    try:
        return f": {json.loads(error.read())['error']['message']}"
    except (OSError, *UNLIKE):
        return ""


TASKS = DatasetSource(names=(), describe=_describe_task, fetch=_fetch_task)
