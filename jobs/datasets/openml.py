"""Datasets of OpenML, through scikit-learn's fetcher, held to the catalogue."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from manyseed.jobs.checks import Refused
from manyseed.jobs.datasets.openml_catalogue import OPENML, OpenMLEntry
from manyseed.jobs.datasets.source import DatasetSource, DataShape, Samples, listed
from manyseed.jobs.datasets.tabular import DataColumn, to_samples
from manyseed.jobs.run import MachineError


def _describe(name: str, _: Mapping[str, Any]) -> DataShape:
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
            reason = f"has several versions, which are different data; here are known {known}"
            raise Refused("source", f"openml:{name}", reason)
    return OPENML[listed("openml", name, OPENML)]


def _fetch(provenance: Mapping[str, Any], _: Sequence[str], home: Path) -> Samples:
    """Read scikit-learn's cache below `home`, which is filled from OpenML where it is not yet."""
    entry = OPENML[provenance["source"].removeprefix("openml:")]
    try:
        from sklearn.datasets import fetch_openml

        # The faster parser takes labels that are whole numbers for numbers, and fails on them
        # with pandas 3.1 (scikit-learn, pull request 34902).
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of every retry; the last one is raised
            found = fetch_openml(
                data_id=entry.id, data_home=home, as_frame=True, parser="liac-arff"
            )
    except (ImportError, OSError, ValueError) as error:
        raise MachineError(
            f"{entry.source} (id {entry.id}) cannot be fetched into {home} ({error}); fetch it "
            "where the network can be reached"
        ) from error
    details = found.details["name"], int(found.details["version"])
    if details != (entry.name, entry.version):
        raise MachineError(
            f"id {entry.id} of OpenML is {details[0]}@{details[1]}, in the catalogue it is "
            f"{entry.source}"
        )
    features = [DataColumn(name, _values(found.data[name])) for name in found.data]
    target = DataColumn(found.target.name, _text(found.target))
    return _checked(entry, to_samples(entry.source, features, target))


def _values(series: Any) -> Any:
    """Return a pandas column as numbers, or as text where it holds anything else."""
    if series.dtype.kind in "iuf":
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    return _text(series)


def _text(series: Any) -> Any:
    values = series.astype(object).to_numpy(dtype=object).copy()
    values[series.isna().to_numpy()] = None
    return values


def _checked(entry: OpenMLEntry, samples: Samples) -> Samples:
    """Hold data to the catalogue and give its classes the catalogue's names and order."""
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
