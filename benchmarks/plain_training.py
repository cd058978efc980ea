"""The same fits as a research script would write them: scikit-learn, XGBoost, PyTorch unmodified.

One process, one thread, data encoded once before all fits; networks with their usual layers and a
DataLoader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""X, y, X_test, encoded: rows or images (row, height, width, channel)."""


def fitter(
    name: str, canonical: Mapping[str, Any], hparams: Mapping[str, Any], arrays: Arrays
) -> Callable[[int], NDArray[Any]]:
    """Return a function that fits with a seed and returns the test set's scores."""
    if name.endswith("sgd"):
        return _sgd(name, canonical, hparams, arrays)
    if name == "xgb":
        return _xgb(canonical, hparams, arrays)
    return _network(name, canonical, hparams, arrays)


def _sgd(
    name: str, canonical: Mapping[str, Any], hparams: Mapping[str, Any], arrays: Arrays
) -> Callable[[int], NDArray[Any]]:
    from sklearn.linear_model import SGDClassifier

    X, y, X_test = arrays
    settings = {key: hparams[key] for key in ("alpha", "l1_ratio", "eta0", "penalty", "average")}
    settings["loss"] = "log_loss" if name == "lr-sgd" else hparams["loss"]

    def fit(seed: int) -> NDArray[Any]:
        model = SGDClassifier(
            **settings,
            learning_rate=canonical["schedule"],
            max_iter=canonical["max_iter"],
            tol=canonical["tol"],
            random_state=seed,
        )
        scores: NDArray[Any] = model.fit(X, y).decision_function(X_test)
        return scores

    return fit


def _xgb(
    canonical: Mapping[str, Any], hparams: Mapping[str, Any], arrays: Arrays
) -> Callable[[int], NDArray[Any]]:
    import xgboost

    X, y, X_test = arrays
    settings = {"objective": "binary:logistic", "tree_method": "hist", "nthread": 1, **hparams}

    def fit(seed: int) -> NDArray[Any]:
        train = xgboost.DMatrix(X, label=y)
        booster = xgboost.train({**settings, "seed": seed}, train, canonical["rounds"])
        scores: NDArray[Any] = booster.predict(xgboost.DMatrix(X_test), output_margin=True)
        return scores

    return fit


def _network(
    name: str, canonical: Mapping[str, Any], hparams: Mapping[str, Any], arrays: Arrays
) -> Callable[[int], NDArray[Any]]:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    X, y, X_test = (torch.tensor(array) for array in arrays)
    X, X_test = X.float(), X_test.float()
    if X.ndim == 4:
        X, X_test = (images.permute(0, 3, 1, 2).contiguous() for images in (X, X_test))
    rows = TensorDataset(X, y.long())
    build = _BUILDERS[name]
    batch_size = hparams.get("batch", canonical.get("batch_size"))
    epochs = canonical["epochs"]

    def fit(seed: int) -> NDArray[Any]:
        torch.manual_seed(seed)
        model = build(X, hparams, canonical)
        kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
        more = {"momentum": canonical["momentum"]} if canonical["optimizer"] == "sgd" else {}
        kind = kinds[canonical["optimizer"]]
        decay = hparams["weight_decay"]
        optimizer = kind(model.parameters(), hparams["lr"], weight_decay=decay, **more)
        rates = None
        if canonical["schedule"] == "cosine":
            rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
        elif canonical["schedule"] == "piecewise-linear":
            rates = torch.optim.lr_scheduler.LambdaLR(
                optimizer, lambda epoch: min(1, max(0.01, 1 - 0.99 * (epoch / epochs - 0.5) / 0.4))
            )
        criterion = torch.nn.CrossEntropyLoss()
        loader = DataLoader(rows, batch_size, shuffle=True, drop_last=len(rows) % batch_size == 1)
        for _ in range(epochs):
            model.train()
            for images, labels in loader:
                optimizer.zero_grad()
                criterion(model(images), labels).backward()
                optimizer.step()
            if rates is not None:  # a plateau begins after more epochs than are measured
                rates.step()
        model.eval()
        with torch.no_grad():
            parts = [model(part) for (part,) in DataLoader(TensorDataset(X_test), 1024)]
        scores: NDArray[Any] = torch.cat(parts).numpy()
        return scores

    return fit


def _mlp(X: Any, hparams: Mapping[str, Any], _: Mapping[str, Any]) -> Any:
    from torch import nn

    def dense(n_in: int, n_out: int) -> list[nn.Module]:
        return [nn.Linear(n_in, n_out, bias=False), nn.BatchNorm1d(n_out), nn.LeakyReLU()]

    class Residual(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            drop = hparams["dropout"]
            layers = [*dense(width, width), nn.Dropout(drop), *dense(width, width)]
            self.block = nn.Sequential(*layers, nn.Dropout(drop))

        def forward(self, x: Any) -> Any:
            return x + self.block(x)

    w1, w2 = hparams["width1"], hparams["width2"]
    first, second = dense(X.shape[1], w1), dense(w1, w2)
    return nn.Sequential(*first, Residual(w1), *second, Residual(w2), nn.Linear(w2, 2))


def _cnn(X: Any, *_: Any) -> Any:
    from torch import nn

    convolutions = [
        *(nn.Conv2d(X.shape[1], 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    ]
    hidden = nn.Linear(16 * (X.shape[2] // 4) * (X.shape[3] // 4), 64)
    return nn.Sequential(*convolutions, nn.Flatten(), hidden, nn.ReLU(), nn.Linear(64, 2))


def _convnet(X: Any, hparams: Mapping[str, Any], _: Mapping[str, Any]) -> Any:
    from torch import nn

    width, norm = hparams["width"], hparams["batch_norm"]
    layers: list[nn.Module] = []
    for number in range(hparams["depth"]):
        inputs = width if number else X.shape[1]
        layers.append(nn.Conv2d(inputs, width, 3, padding=1, bias=not norm))
        layers += [*([nn.BatchNorm2d(width)] if norm else []), nn.ReLU()]
    logits = nn.Linear(width * (X.shape[2] // 2) * (X.shape[3] // 2), 2)
    return nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), logits)


def _vgg(X: Any, hparams: Mapping[str, Any], _: Mapping[str, Any]) -> Any:
    from torch import nn

    layers: list[nn.Module] = []
    inputs, side = X.shape[1], X.shape[2]
    for outputs, count in zip((1, 2, 4, 8, 8), _VGG[hparams["depth"]], strict=True):
        for _ in range(count):
            width = outputs * hparams["width"]
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
            inputs = width
        layers.append(nn.MaxPool2d(2))
        side //= 2
    layers.append(nn.Flatten())
    units, inputs = 8 * hparams["width"], inputs * side * side
    for _ in range(2):
        layers += [nn.Dropout(hparams["dropout"]), nn.Linear(inputs, units), nn.ReLU()]
        inputs = units
    return nn.Sequential(*layers, nn.Linear(units, 2))


def _residual(X: Any, first: int, channels: int, counts: Sequence[int], activated: str) -> Any:
    """Stages of blocks of two 3×3 convolutions, activated ``after`` the sum or ``before`` each.

    ``shared``: before each, and the shortcut takes the activated input too.
    """
    from torch import nn

    def conv(n_in: int, n_out: int, side: int, stride: int = 1) -> nn.Module:
        return nn.Conv2d(n_in, n_out, side, stride, padding=side // 2, bias=False)

    class Block(nn.Module):
        def __init__(self, n_in: int, n_out: int, stride: int) -> None:
            super().__init__()
            after, short = activated == "after", n_in != n_out or stride > 1
            self.first = nn.Identity() if after else nn.Sequential(nn.BatchNorm2d(n_in), nn.ReLU())
            middle = [conv(n_in, n_out, 3, stride), nn.BatchNorm2d(n_out), nn.ReLU()]
            end = [nn.BatchNorm2d(n_out)] if after else []
            self.block = nn.Sequential(*middle, conv(n_out, n_out, 3), *end)
            beside = [conv(n_in, n_out, 1, stride)] + ([nn.BatchNorm2d(n_out)] if after else [])
            self.short = nn.Sequential(*beside) if short else nn.Identity()
            self.shared = short and activated == "shared"
            self.last = nn.ReLU() if after else nn.Identity()

        def forward(self, x: Any) -> Any:
            begun = self.first(x)
            return self.last(self.block(begun) + self.short(begun if self.shared else x))

    norm = [nn.BatchNorm2d(first), nn.ReLU()]
    layers = [conv(X.shape[1], first, 3), *(norm if activated == "after" else [])]
    inputs = first
    for stage, count in enumerate(counts):
        for place in range(count):
            stride = 2 if stage and not place else 1
            layers.append(Block(inputs, 2**stage * channels, stride))
            inputs = 2**stage * channels
    if activated != "after":
        layers += [nn.BatchNorm2d(inputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 2))


def _resnet(X: Any, hparams: Mapping[str, Any], _: Mapping[str, Any]) -> Any:
    assert hparams["depth"] == 18
    return _residual(X, hparams["width"], hparams["width"], (2, 2, 2, 2), "after")


def _preresnet(X: Any, hparams: Mapping[str, Any], _: Mapping[str, Any]) -> Any:
    assert not hparams["bottleneck"]
    counts = [(hparams["depth"] - 2) // 6] * 3
    return _residual(X, hparams["width"], hparams["width"], counts, "before")


def _wide_resnet(X: Any, hparams: Mapping[str, Any], _: Mapping[str, Any]) -> Any:
    assert hparams["dropout"] == 0
    return _residual(X, 16, 16 * hparams["width"], [(hparams["depth"] - 4) // 6] * 3, "shared")


def _vit(X: Any, hparams: Mapping[str, Any], canonical: Mapping[str, Any]) -> Any:
    from manyseed.jobs.packages import torchvision

    return torchvision("torchvision.models").VisionTransformer(
        X.shape[2],
        canonical["patch"],
        canonical["layers"],
        canonical["heads"],
        canonical["width"],
        canonical["mlp_width"],
        dropout=hparams["dropout"],
        num_classes=2,
    )


def _head(X: Any, *_: Any) -> Any:
    from torch import nn

    return nn.Linear(X.shape[1], 2)


_VGG = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
_BUILDERS = {
    "mlp": _mlp,
    "cnn": _cnn,
    "convnet": _convnet,
    "vgg": _vgg,
    "resnet": _resnet,
    "preresnet": _preresnet,
    "wide-resnet": _wide_resnet,
    "vit": _vit,
    "vit-transfer": _head,
}


def standardised(X: NDArray[Any], X_test: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return columns (or the channels of images) scaled by the training rows."""
    axes = tuple(range(X.ndim - 1))
    mean, std = X.mean(axis=axes), X.std(axis=axes)
    return (X - mean) / np.maximum(std, 1e-12), (X_test - mean) / np.maximum(std, 1e-12)
