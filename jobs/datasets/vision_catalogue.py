"""torchvision's image datasets: shapes and classes, known without reading them.

Only the standard library is imported: planning needs this table and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class VisionEntry:
    """One dataset with an official training and test part.

    Attributes
    ----------
    image : tuple of int
        (height, width, channels).
    train_counts, test_counts : tuple of int
        Samples of each class in the official parts.
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
