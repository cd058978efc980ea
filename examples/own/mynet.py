"""A PyTorch module of your own: a factory that receives the shape of a row."""

from torch import nn


def build(shape, n_classes, hparams):
    """Return a small network of convolutions; it initialises itself as PyTorch does."""
    channels, height, width = shape
    filters = hparams["channels"]
    return nn.Sequential(
        nn.Conv2d(channels, filters, 3, padding=1),
        nn.BatchNorm2d(filters),
        nn.ReLU(),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(filters * -(-height // 2) * -(-width // 2), n_classes),
    )
