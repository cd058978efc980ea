"""The datasets that ship with scikit-learn: shapes and digests, known without reading them.

Only the standard library is imported: planning needs this table and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Entry:
    """A dataset of the catalogue.

    Attributes
    ----------
    digest : str
        SHA-256 of the bytes of X (little-endian float64, C order) followed by y (little-endian
        int64), hexadecimal.
    """

    n_features: int
    class_names: tuple[str, ...]
    class_counts: tuple[int, ...]
    digest: str
    image: tuple[int, int, int] | None = None

    @property
    def n_samples(self) -> int:
        """Number of samples in all classes."""
        return sum(self.class_counts)


SKLEARN: Mapping[str, Entry] = MappingProxyType(
    {
        "breast_cancer": Entry(
            n_features=30,
            class_names=("malignant", "benign"),
            class_counts=(212, 357),
            digest="25e2eb7b7a8745b1bde5ba18bc4969983d2e2f403291ecd5bde4a29ef30c3859",
        ),
        "digits": Entry(
            n_features=64,
            class_names=tuple("0123456789"),
            class_counts=(178, 182, 177, 183, 181, 182, 181, 179, 174, 180),
            digest="f6d9e39f37dc45d327f6db33428ee58970ccceabb2535a5c179de35886b70443",
            image=(8, 8, 1),
        ),
        "iris": Entry(
            n_features=4,
            class_names=("setosa", "versicolor", "virginica"),
            class_counts=(50, 50, 50),
            digest="aa06b8008ceba42efc654be0f83fdafc786239c9e8f13146044d078f5aab8f23",
        ),
        "wine": Entry(
            n_features=13,
            class_names=("class_0", "class_1", "class_2"),
            class_counts=(59, 71, 48),
            digest="3a28849ef2366c4b9d4e382b3fa5624a66f693c04d7fdcf43c529bbb0bb338d7",
        ),
    }
)
