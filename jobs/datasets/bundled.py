"""The datasets that ship with scikit-learn, checked against the catalogue's digests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from manyseed.jobs.datasets.catalogue import SKLEARN
from manyseed.jobs.datasets.source import DatasetSource, DataShape, Samples, listed
from manyseed.jobs.run import MachineError


def _describe(name: str, _: Mapping[str, Any]) -> DataShape:
    entry = SKLEARN[listed("sklearn", name, SKLEARN)]
    return DataShape(
        provenance={"digest": entry.digest},
        n_samples=entry.n_samples,
        n_features=entry.n_features,
        n_categorical=0,
        class_names=entry.class_names,
        class_counts=entry.class_counts,
        image=entry.image,
    )


def _load(name: str, provenance: Mapping[str, Any]) -> Samples:
    try:
        from sklearn import datasets
    except ImportError as error:
        raise MachineError(f"sklearn:{name} needs scikit-learn: {error}") from error
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    X, y = np.ascontiguousarray(X, dtype="<f8"), np.ascontiguousarray(y, dtype="<i8")
    digest = hashlib.sha256(X.tobytes() + y.tobytes()).hexdigest()
    if digest != provenance["digest"]:
        raise MachineError(
            f"sklearn:{name} of the installed scikit-learn (digest {digest}) differs from the one "
            f"that the sweep was planned with ({provenance['digest']})"
        )
    continuous = np.zeros(X.shape[1], dtype=np.int32)
    entry = SKLEARN[name]
    return Samples(X, y, continuous, entry.class_names, entry.image)


SOURCE = DatasetSource(names=tuple(SKLEARN), describe=_describe, load=_load)
