"""PyTorch modules of users: what they are given, where their randomness comes from, mistakes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from manyseed.jobs import classifiers
from manyseed.jobs.checks import Refused
from manyseed.jobs.own import record, table
from manyseed.jobs.own.calling import OwnError
from manyseed.jobs.own.findings import Findings
from manyseed.jobs.run import Prediction, TrainingSet, raw
from manyseed.jobs.training import loop
from manyseed.jobs.training.checkpoint import Checkpoint
from manyseed.jobs.training.encode import pixel_encoder
from manyseed.jobs.training.handling import Handling
from tests.encoded import dense
from tests.jobs.classifiers.examples import binary, image, mixed, multiclass
from tests.jobs.own.test_estimator import generators

HERE = "tests.jobs.own.test_network"
given: dict[str, Any] = {}


def flat(shape: Any, n_classes: Any, hparams: Any, cardinality: Any, mine: int = 3) -> nn.Module:
    given.update(locals())
    hidden = hparams.get("hidden", 8)
    return nn.Sequential(
        nn.Linear(shape[0], hidden), nn.ReLU(), nn.Dropout(0.3), nn.Linear(hidden, n_classes)
    )


def of_images(shape: Any, n_classes: int) -> nn.Module:
    given.update(locals())
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * height * width, n_classes),
    )


class Viewing(nn.Module):
    """Keeps the rows that it is given, and takes a view of them."""

    def __init__(self, shape: Any, n_classes: int) -> None:
        super().__init__()
        self.out = nn.Linear(int(np.prod(shape)), n_classes)

    def forward(self, x: torch.Tensor) -> Any:
        given["rows"] = x
        return self.out(x.view(len(x), -1))


class Usual(nn.Module):
    """As everybody writes them."""

    def __init__(self, in_channels: int = 1, num_classes: int = 10, width: int = 4) -> None:
        super().__init__()
        given.update(locals())
        self.all = nn.Sequential(
            nn.Conv2d(in_channels, width, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.out = nn.Linear(width, num_classes)

    def forward(self, x: torch.Tensor) -> Any:
        return self.out(self.all(x))


def no_module(shape: Any) -> Any:
    return nn.Linear


def too_wide(shape: Any, n_classes: int) -> nn.Module:
    return nn.Linear(shape[0], n_classes + 1)


def two_values(shape: Any, n_classes: int) -> nn.Module:
    return nn.LSTM(shape[0], n_classes)


def settings(name: str, image: bool = False, **options: Any) -> dict[str, Any]:
    own = table.read({"module": f"{HERE}:{name}", "epochs": 3, **options}, of_images=image)
    return record.description(own, Findings(scores="logits", streams=("batch", "init")))


def fit(
    canonical: dict[str, Any],
    data: TrainingSet,
    run: int = 0,
    handling: Handling | None = None,
    **hparams: Any,
) -> Prediction:
    values = {"lr": 0.01, "weight_decay": 1e-8, "batch": 32, **hparams}
    drawn = generators(run)
    return classifiers.fit(canonical, values, data, drawn, handling or Handling())


def test_the_same_streams_make_the_same_bits_whatever_was_drawn_before() -> None:
    data, _ = multiclass()
    canonical = settings("flat")
    one = fit(canonical, data)
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    again = fit(canonical, data)
    np.testing.assert_array_equal(one.scores, again.scores)
    torch.testing.assert_close(torch.random.get_rng_state(), before)
    assert not np.array_equal(one.scores, fit(canonical, data, 1).scores)
    assert (given["shape"], given["n_classes"], given["mine"]) == ((data.X.shape[1],), 4, 3)
    assert given["hparams"] == {"lr": 0.01, "weight_decay": 1e-8, "batch": 32}


def test_a_module_is_trained_as_by_hand() -> None:
    """Adam, the cross-entropy, batches cut from the stream: written out once more."""
    data, _ = multiclass()
    drawn = generators(5)
    X, X_test = (torch.tensor(each, dtype=torch.float32) for each in dense(data))
    y = torch.tensor(data.y.astype(np.int64))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(raw(drawn.init, 1)[0]))
        model = flat((X.shape[1],), 4, {}, data.cardinality)
        torch.manual_seed(int(raw(drawn.dropout, 1)[0]))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-8)
        for _ in range(3):
            model.train()
            order = np.argsort(raw(drawn.batch, len(y)), kind="stable")
            for start in range(0, len(y), 32):
                rows = torch.from_numpy(order[start : start + 32])
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(X[rows]), y[rows]).backward()
                optimizer.step()
        model.eval()
        with torch.no_grad():
            expected = model(X_test).numpy()
    assert loop.n_batches(len(y), 32, 2) == -(-len(y) // 32)
    found = fit(settings("flat"), data, 5)
    np.testing.assert_allclose(found.scores[0], expected, rtol=1e-4, atol=1e-5)


def test_a_module_gets_params_and_hparams_by_name() -> None:
    data, _ = image()
    assert data.image is not None
    before = settings("Usual", image=True)
    fit(before, data, width=2)
    assert given["width"] not in (2, 6), "planned when they were dropped, they still are"
    usual = {**before, "named": ["width"]}
    two, six = (fit(usual, data, width=width) for width in (2, 6))
    assert not np.array_equal(two.scores, six.scores)
    assert (given["in_channels"], given["num_classes"]) == (data.image[2], data.n_classes)
    assert given["width"] == 6
    data, _ = multiclass()
    fit({**settings("flat"), "named": ["mine"]}, data, mine=5)
    assert (given["mine"], given["hparams"]["mine"]) == (5, 5)


def test_images_come_with_their_channels_first() -> None:
    data, _ = image()
    fit(settings("of_images", image=True), data)
    assert data.image is not None
    height, width, channels = data.image
    assert given["shape"] == (channels, height, width)
    fit(settings("Viewing", image=True), data)
    expected = pixel_encoder(data)(data.X_test).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(given["rows"].numpy(), expected)
    fit(settings("Viewing", image=True, encode="dense"), data)
    assert given["rows"].shape == (len(data.X_test), data.X.shape[1])


def test_raw_rows_are_as_they_are() -> None:
    data, _ = mixed()
    whole = np.nan_to_num(data.X_test)
    data = TrainingSet(np.nan_to_num(data.X), data.y, whole, data.n_classes, data.cardinality)
    fit(settings("Viewing", encode="raw"), data)
    np.testing.assert_array_equal(given["rows"].numpy(), whole.astype(np.float32))


def test_two_classes_have_their_gap() -> None:
    data, _ = binary()
    found = fit(settings("flat"), data, handling=Handling(snapshots=(1,)))
    assert found.scores.shape == (2, len(data.X_test))


MISTAKES: dict[str, tuple[type[Exception], str]] = {
    "no_module": (OwnError, r"returned Linear, which is not a torch\.nn\.Module"),
    "too_wide": (OwnError, r"returned shape \(32, 5\); \(32, 4\) is needed"),
    "two_values": (OwnError, "returned tuple, not a tensor"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_fail_the_run(name: str) -> None:
    data, _ = multiclass()
    kind, said = MISTAKES[name]
    with pytest.raises(kind, match=said):
        fit(settings(name), data)


def test_a_diverged_training_fails_the_run() -> None:
    data, _ = multiclass()
    with pytest.raises(FloatingPointError, match="diverged"):
        fit(settings("flat", optimizer="sgd"), data, lr=1e30)


@pytest.mark.parametrize("epoch", [1, 2])
def test_an_interrupted_training_goes_on_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epoch: int
) -> None:
    """Dropout's masks too, which the global generator draws."""
    data, _ = multiclass()
    undisturbed = fit(settings("flat"), data)
    saved = Checkpoint(tmp_path / "one", "key", every=0.0)
    save: Callable[..., None] = loop.save

    def then_stop(checkpoint: Any, parts: Any, progress: Any) -> None:
        save(checkpoint, parts, progress)
        if progress.epoch == epoch:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(loop, "save", then_stop)
        with pytest.raises(KeyboardInterrupt):
            fit(settings("flat"), data, handling=Handling(checkpoint=saved))
    found = fit(settings("flat"), data, handling=Handling(checkpoint=saved))
    np.testing.assert_array_equal(found.scores, undisturbed.scores)


def test_what_trains_it_is_part_of_what_it_is() -> None:
    canonical = settings("flat", optimizer="sgd", params={"hidden": 4, "sizes": [1, 2]})
    assert canonical == {
        "name": f"{HERE}:flat",
        "version": 1,
        "own": 1,
        "form": "module",
        "encode": "dense",
        "scores": "logits",
        "streams": ["batch", "init"],
        "optimizer": "sgd",
        "schedule": "piecewise-linear",
        "momentum": 0.9,
        "epochs": 3,
        "params": {"sizes": [1, 2]},
    }
    hparams = {"lr": 0.1, "weight_decay": 1e-8, "batch": 32, "hidden": 4}
    space = classifiers.space(canonical, hparams)
    assert [each.name for each in space] == ["lr", "weight_decay", "batch", "hidden"]
    assert [each.name for each in space if each.structural] == ["hidden"]
    own = {"lr": {"low": 0.01, "high": 0.1, "default": 0.05}}
    space = classifiers.space(settings("flat", space=own), {**hparams, "lr": 0.05})
    assert {each.name: each.default for each in space}["lr"] == 0.05


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"params": {"lr": 0.1}}, "is how it is trained"),
        ({"space": {"batch": {"low": 0.5, "high": 2.5, "default": 1.0}}}, "whole numbers from 2"),
        ({"space": {"lr": {"levels": ["a"], "default": "a"}}}, "numbers from 0"),
        ({"scores": "logits"}, "scores"),
        ({"epochs": 0}, "at least 1|from 1"),
        ({"momentum": 0.5}, "goes with optimizer"),
    ],
)
def test_what_a_table_may_not_say(options: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        table.read({"module": "mynet:build", **options})
