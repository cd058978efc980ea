"""torchvision's image datasets, with their official training and test parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.datasets.source import DatasetSource, DataShape, Samples, listed
from manyseed.jobs.datasets.vision_catalogue import TORCHVISION
from manyseed.jobs.packages import torchvision
from manyseed.jobs.run import MachineError


def _describe(name: str, _: Mapping[str, Any]) -> DataShape:
    entry = TORCHVISION[listed("torchvision", name, TORCHVISION)]
    return DataShape(
        provenance={},
        n_samples=sum(entry.class_counts),
        n_features=int(np.prod(entry.image)),
        n_categorical=0,
        class_names=entry.class_names,
        class_counts=entry.class_counts,
        image=entry.image,
        test_counts=entry.test_counts,
    )


def _fetch(provenance: Mapping[str, Any], _: Sequence[str], home: Path) -> Samples:
    """Read the files in ``home/torchvision``, or download them into a temporary folder."""
    name = provenance["source"].removeprefix("torchvision:")
    placed = home / "torchvision"
    try:
        return _samples(name, placed, download=False)
    except RuntimeError as missing:  # torchvision's word for files that are missing or changed
        home.mkdir(parents=True, exist_ok=True)
        try:
            # In a folder of its own: torchvision's downloads are not safe between processes.
            with TemporaryDirectory(prefix=".torchvision-", dir=home) as folder:
                return _samples(name, Path(folder), download=True)
        except (OSError, RuntimeError) as error:
            raise MachineError(
                f"torchvision:{name} is not in {placed} ({missing}) and cannot be downloaded "
                f"({error}); put its files there as torchvision keeps them, or fetch it where the "
                "network can be reached"
            ) from error


def _samples(name: str, root: Path, *, download: bool) -> Samples:
    parts = [_part(name, root, train, download) for train in (True, False)]
    entry = TORCHVISION[name]
    for part, (X, y), counts in zip(
        ("training", "test"), parts, (entry.train_counts, entry.test_counts), strict=True
    ):
        counts_found = tuple(np.bincount(y, minlength=len(counts)).tolist())
        if counts_found != counts or X.shape[1:] != entry.image:
            raise MachineError(
                f"the {part} part of torchvision:{name} is not what the catalogue says: images "
                f"{X.shape[1:]} with {counts_found} in the classes, in the catalogue {entry.image} "
                f"with {counts}"
            )
    return Samples(
        X=np.concatenate([X.reshape(len(X), -1) for X, _ in parts]),
        y=np.concatenate([y for _, y in parts]),
        cardinality=np.zeros(int(np.prod(entry.image)), dtype=np.int32),
        class_names=entry.class_names,
        image=entry.image,
        n_official_train=len(parts[0][1]),
    )


def _part(
    name: str, root: Path, train: bool, download: bool
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images (sample, height, width, channels) and classes of one official part."""
    try:
        kind = getattr(torchvision("torchvision.datasets"), name)
    except ImportError as error:
        raise MachineError(f"torchvision:{name} needs torchvision: {error}") from error
    which = {"split": "train" if train else "test"} if name == "SVHN" else {"train": train}
    data = kind(str(root), download=download, **which)
    X = np.asarray(data.data, dtype=np.uint8)
    if name == "SVHN":
        X = X.transpose(0, 2, 3, 1)
    elif X.ndim == 3:
        X = X[..., None]
    y = np.asarray(data.labels if name == "SVHN" else data.targets, dtype=np.int64)
    return X, y


SOURCE = DatasetSource(names=tuple(TORCHVISION), describe=_describe, fetch=_fetch)
