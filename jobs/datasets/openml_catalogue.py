"""OpenML's datasets: ids, shapes and classes, known without reading them.

Only the standard library is imported: planning needs this table and nothing else.
``docs/datasets.md`` says where the numbers come from; fetching checks the data against all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class OpenMLEntry:
    """A version of an OpenML dataset.

    Attributes
    ----------
    id : int
        OpenML's number of this version.
    n_features, n_categorical : int
        Columns without the target and without those that OpenML says to ignore.
    class_names : tuple of str
        OpenML's labels if `labelled`, in numeric or alphabetic order. Otherwise two classes are
        called majority and minority, and more are numbered in order.
    class_counts : tuple of int or None
        None where only the sizes of the largest and the smallest class are known.
    n_majority, n_minority : int
        Samples in the largest and in the smallest class.
    """

    name: str
    version: int
    id: int
    n_samples: int
    n_features: int
    n_categorical: int
    class_names: tuple[str, ...]
    class_counts: tuple[int, ...] | None
    n_majority: int
    n_minority: int
    labelled: bool

    @property
    def source(self) -> str:
        """The entry as users name it."""
        return f"openml:{self.name}@{self.version}"


def _labelled(
    name: str,
    version: int,
    data_id: int,
    n_features: int,
    n_categorical: int,
    classes: Mapping[str, int],
) -> OpenMLEntry:
    """Return an entry whose classes are known by label and size."""
    counts = tuple(classes.values())
    shape = (sum(counts), n_features, n_categorical)
    sizes = (max(counts), min(counts))
    return OpenMLEntry(
        name, version, data_id, *shape, tuple(classes), counts, *sizes, labelled=True
    )


def _sized(
    name: str,
    version: int,
    data_id: int,
    n_samples: int,
    n_features: int,
    n_classes: int,
    n_majority: int,
    n_minority: int,
    n_categorical: int = 0,
) -> OpenMLEntry:
    """Return an entry whose labels are not known here."""
    names = tuple(map(str, range(n_classes)))
    counts: tuple[int, ...] | None = None
    if n_classes == 2:
        names, counts = ("majority", "minority"), (n_majority, n_minority)
    elif n_majority == n_minority:
        counts = (n_majority,) * n_classes
    shape, sizes = (n_samples, n_features, n_categorical), (n_majority, n_minority)
    return OpenMLEntry(name, version, data_id, *shape, names, counts, *sizes, labelled=False)


def _equal(names: str, count: int) -> dict[str, int]:
    return dict.fromkeys(names.split(), count)


MODEL_VARIANCE = (
    _labelled("arrhythmia", 2, 1017, 279, 73, {"N": 207, "P": 245}),
    _labelled("Australian", 4, 40981, 14, 8, {"0": 383, "1": 307}),
    _labelled("blood-transfusion-service-center", 1, 1464, 4, 0, {"1": 570, "2": 178}),
    _labelled("vehicle", 2, 994, 18, 0, {"N": 628, "P": 218}),
    _sized("anneal", 17, 44268, 898, 38, 2, 486, 412, n_categorical=32),
    _labelled("credit-g", 2, 44096, 20, 13, {"bad": 300, "good": 700}),
    _labelled("cnae-9", 1, 1468, 856, 0, _equal("1 2 3 4 5 6 7 8 9", 120)),
    _labelled("car", 3, 40975, 6, 6, {"acc": 384, "good": 69, "unacc": 1210, "vgood": 65}),
    _labelled("mfeat-factors", 2, 978, 216, 0, {"N": 1800, "P": 200}),
    _labelled("kc1", 1, 1067, 21, 0, {"false": 1783, "true": 326}),
    _labelled(
        "segment", 3, 40984, 16, 0, _equal("brickface cement foliage grass path sky window", 330)
    ),
    _labelled("jasmine", 1, 41143, 144, 136, _equal("0 1", 1492)),
    _labelled("kr-vs-kp", 1, 3, 36, 36, {"nowin": 1527, "won": 1669}),
    _labelled("sylvine", 1, 41146, 20, 0, _equal("0 1", 2562)),
    _labelled("phoneme", 1, 1489, 5, 0, {"1": 3818, "2": 1586}),
    _labelled("christine", 1, 41142, 1636, 37, _equal("0 1", 2709)),
    _sized("fabert", 1, 41164, 8237, 800, 7, 1927, 502),
    _sized("dilbert", 1, 41163, 10000, 2000, 5, 2049, 1913),
    _sized("nomao", 1, 1486, 34465, 118, 2, 24621, 9844, n_categorical=29),
    _labelled(
        "jungle_chess_2pcs_raw_endgame_complete",
        1,
        41027,
        6,
        0,
        {"b": 17422, "d": 4335, "w": 23062},
    ),
    _labelled("bank-marketing", 1, 1461, 16, 9, {"1": 39922, "2": 5289}),
    _labelled("adult", 2, 1590, 14, 8, {"<=50K": 37155, ">50K": 11687}),
    _labelled(
        "shuttle",
        1,
        40685,
        9,
        0,
        {"1": 45586, "2": 50, "3": 171, "4": 8903, "5": 3267, "6": 10, "7": 13},
    ),
    _sized("volkert", 1, 41166, 58310, 180, 10, 12806, 1361),
    _sized("helena", 1, 41169, 65196, 27, 100, 4005, 111),
    _sized("connect-4", 2, 40668, 67557, 42, 3, 44473, 6449, n_categorical=42),
    _sized("jannis", 1, 41168, 83733, 54, 4, 38522, 1687),
    _sized("numerai28.6", 2, 23517, 96320, 21, 2, 48658, 47662),
    _labelled("higgs", 2, 23512, 28, 0, {"0": 46223, "1": 51827}),
    _sized("aloi", 3, 42396, 108000, 128, 1000, 108, 108),
    _sized("MiniBooNE", 1, 41150, 130064, 50, 2, 93565, 36499),
    _sized("walking-activity", 1, 1509, 149332, 4, 22, 21991, 911),
    _sized("ldpa", 1, 1483, 164860, 7, 11, 54480, 1381, n_categorical=2),
    _labelled("skin-segmentation", 1, 1502, 3, 0, {"1": 50859, "2": 194198}),
    _sized("CreditCardFraudDetection", 2, 42397, 284807, 30, 2, 284315, 492),
    _labelled("Click_prediction_small", 4, 1219, 11, 0, {"0": 332393, "1": 67089}),
    _sized("dionis", 1, 41167, 416188, 60, 355, 2469, 878),
)
"""The tabular study's 37 sets, in the order of its table."""

FURTHER = (
    _labelled("vehicle", 1, 54, 18, 0, {"bus": 218, "opel": 212, "saab": 217, "van": 199}),
    _labelled("mfeat-factors", 1, 12, 216, 0, _equal("1 2 3 4 5 6 7 8 9 10", 200)),
    _labelled("credit-g", 1, 31, 20, 13, {"bad": 300, "good": 700}),
)
"""Other versions of the same names."""

OPENML: Mapping[str, OpenMLEntry] = MappingProxyType(
    {f"{entry.name}@{entry.version}": entry for entry in (*MODEL_VARIANCE, *FURTHER)}
)
"""All entries by name and version."""

SUITES: Mapping[str, tuple[OpenMLEntry, ...]] = MappingProxyType(
    {"model-variance-37": MODEL_VARIANCE}
)
"""Named lists of datasets."""
