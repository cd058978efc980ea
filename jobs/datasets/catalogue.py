"""Datasets of scikit-learn, OpenML and torchvision: shapes and classes, known without reading.

Only the standard library is imported: planning needs these tables and nothing else.
``docs/datasets.md`` says where the numbers come from; fetching checks the data against all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Entry:
    """A dataset of the catalogue.

    `digest`: SHA-256 of the bytes of X (little-endian float64, C order) followed by y
    (little-endian int64), hexadecimal.
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


@dataclass(frozen=True, slots=True)
class OpenMLEntry:
    """A version of an OpenML dataset.

    `id`: OpenML's number of this version. `n_features` and `n_categorical`: columns without the
    target and without those that OpenML says to ignore. `class_names`: OpenML's labels if
    `labelled`, in numeric or alphabetic order. Otherwise two classes are called majority and
    minority, and more are numbered in order. `class_counts`: none where only the sizes of the
    largest and the smallest class are known. `n_majority` and `n_minority`: samples in the largest
    and in the smallest class.
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


@dataclass(frozen=True, slots=True)
class VisionEntry:
    """One dataset with an official training and test part.

    `image`: (height, width, channels). `train_counts` and `test_counts`: samples of each class in
    the official parts.
    """

    class_names: tuple[str, ...]
    image: tuple[int, int, int]
    train_counts: tuple[int, ...]
    test_counts: tuple[int, ...]

    @property
    def class_counts(self) -> tuple[int, ...]:
        """Samples of each class in both parts together."""
        return tuple(map(sum, zip(self.train_counts, self.test_counts, strict=True)))


_DIGITS = tuple("0123456789")

_CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck"
_FASHION = "T-shirt/top, Trouser, Pullover, Dress, Coat, Sandal, Shirt, Sneaker, Bag, Ankle boot"
_CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup
dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower
leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid
otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray
road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
wardrobe whale willow_tree wolf woman worm
"""

TORCHVISION: Mapping[str, VisionEntry] = MappingProxyType(
    {
        "CIFAR10": VisionEntry(
            class_names=tuple(_CIFAR10.split()),
            image=(32, 32, 3),
            train_counts=(5000,) * 10,
            test_counts=(1000,) * 10,
        ),
        "CIFAR100": VisionEntry(
            class_names=tuple(_CIFAR100.split()),
            image=(32, 32, 3),
            train_counts=(500,) * 100,
            test_counts=(100,) * 100,
        ),
        "FashionMNIST": VisionEntry(
            class_names=tuple(_FASHION.split(", ")),
            image=(28, 28, 1),
            train_counts=(6000,) * 10,
            test_counts=(1000,) * 10,
        ),
        "MNIST": VisionEntry(
            class_names=_DIGITS,
            image=(28, 28, 1),
            train_counts=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
            test_counts=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
        ),
        "SVHN": VisionEntry(
            class_names=_DIGITS,
            image=(32, 32, 3),
            train_counts=(4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
            test_counts=(1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595),
        ),
    }
)
