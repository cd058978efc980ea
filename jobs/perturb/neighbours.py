"""Distances of training points to their nearest neighbours, computed once per repeat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manyseed.jobs.run import MachineError


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Nearest-neighbour distances in a repeat's whole training part.

    Attributes
    ----------
    scale : float64 array (n_continuous,)
        Standard deviation of each feature, 0 where it is constant.
    distance : float64 array (n_train,)
        Euclidean distance to the nearest neighbour on standardized values; 0 for duplicates.
    """

    scale: NDArray[np.float64]
    distance: NDArray[np.float64]

    def at(self, points: NDArray[np.int64]) -> Neighbours:
        """Return the distances of some points, given by position in the training part."""
        return Neighbours(self.scale, self.distance[points])

    @property
    def nbytes(self) -> int:
        """Memory of the arrays, in bytes."""
        return self.scale.nbytes + self.distance.nbytes


def find_neighbours(X: NDArray[np.float64]) -> Neighbours:
    """Find the exact nearest neighbours of all points.

    Parameters
    ----------
    X : float64 array (n_train, n_continuous)
        Continuous features of the whole training part, before downsampling; NaN (missing) counts
        as the feature's mean.

    Raises
    ------
    jobs.run.MachineError
        Where scikit-learn is missing.
    """
    try:
        from sklearn.neighbors import NearestNeighbors
    except ImportError as error:
        raise MachineError(f"neighbour perturbations need scikit-learn: {error}") from error
    # NumPy warns about features without any value; here they count as constant.
    known = np.where(np.isnan(X).all(axis=0), 0.0, X)
    scale = np.nanstd(known, axis=0)
    scale[np.nanmin(known, axis=0) == np.nanmax(known, axis=0)] = 0.0
    standardized = (known - np.nanmean(known, axis=0)) / np.where(scale > 0, scale, 1.0)
    standardized = np.nan_to_num(standardized, nan=0.0)
    index = NearestNeighbors(n_neighbors=1).fit(standardized)
    nearest = index.kneighbors(return_distance=False)[:, 0]
    # Recomputed, as scikit-learn's distance between duplicates may not be exactly 0.
    return Neighbours(scale, np.linalg.norm(standardized - standardized[nearest], axis=1))
