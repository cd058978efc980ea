"""The networks against definitions written with plain torch layers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from torch import nn

from manyseed.jobs.classifiers import convnet, mlp, vit
from manyseed.jobs.packages import torchvision
from manyseed.jobs.run import stream
from manyseed.jobs.training.layers import initialise
from tests.encoded import dense, pixels
from tests.jobs.classifiers.examples import colour, fit, generators, image, multiclass


class PlainBlock(nn.Module):
    def __init__(self, width, p):
        super().__init__()
        self.linear1 = nn.Linear(width, width, bias=False)
        self.norm1 = nn.BatchNorm1d(width)
        self.linear2 = nn.Linear(width, width, bias=False)
        self.norm2 = nn.BatchNorm1d(width)
        self.dropout = nn.Dropout(p)

    def forward(self, x):
        h = self.dropout(nn.functional.leaky_relu(self.norm1(self.linear1(x))))
        h = self.dropout(nn.functional.leaky_relu(self.norm2(self.linear2(h))))
        return x + h


class PlainMlp(nn.Module):
    def __init__(self, n_features, n_classes, width1, width2, p):
        super().__init__()
        self.linear1 = nn.Linear(n_features, width1, bias=False)
        self.norm1 = nn.BatchNorm1d(width1)
        self.block1 = PlainBlock(width1, p)
        self.linear2 = nn.Linear(width1, width2, bias=False)
        self.norm2 = nn.BatchNorm1d(width2)
        self.block2 = PlainBlock(width2, p)
        self.logits = nn.Linear(width2, n_classes)

    def forward(self, x):
        x = self.block1(nn.functional.leaky_relu(self.norm1(self.linear1(x))))
        x = self.block2(nn.functional.leaky_relu(self.norm2(self.linear2(x))))
        return self.logits(x)


class PlainCnn(nn.Module):
    """Channels first, ReLU before pooling."""

    def __init__(self, height, width, channels, n_classes):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 16, 3, padding=1)
        self.pool = nn.MaxPool2d(2, ceil_mode=True)
        self.hidden = nn.Linear(16 * math.ceil(height / 4) * math.ceil(width / 4), 64)
        self.logits = nn.Linear(64, n_classes)

    def forward(self, x):
        x = x.permute(0, 3, 1, 2).contiguous()
        x = self.pool(torch.relu(self.conv1(x)))
        x = self.pool(torch.relu(self.conv2(x)))
        return self.logits(torch.relu(self.hidden(x.flatten(1))))


class PlainConvnet(nn.Module):
    """Channels first, ReLU before pooling."""

    def __init__(self, height, width, channels, n_classes, depth, filters, norm):
        super().__init__()
        self.blocks = nn.ModuleList()
        for number in range(depth):
            inputs = filters if number else channels
            convolution = nn.Conv2d(inputs, filters, 3, padding=1, bias=not norm)
            norms = [nn.BatchNorm2d(filters)] if norm else []
            self.blocks.append(nn.Sequential(convolution, *norms))
        self.logits = nn.Linear(filters * math.ceil(height / 2) * math.ceil(width / 2), n_classes)

    def forward(self, x):
        x = x.permute(0, 3, 1, 2).contiguous()
        for block in self.blocks:
            x = torch.relu(block(x))
        return self.logits(nn.functional.max_pool2d(x, 2, ceil_mode=True).flatten(1))


@pytest.fixture(autouse=True)
def _own_random_state():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def assert_same_network(ours, plain, x):
    """Compare parameters one by one, then outputs with equal weights and running statistics."""
    initialise(ours, stream(1, "init"))
    mine, theirs = ours.state_dict(), plain.state_dict()
    assert [v.shape for v in mine.values()] == [v.shape for v in theirs.values()]
    for name, value in mine.items():
        if name.endswith("running_var"):
            value.add_(torch.rand(value.shape))
        elif value.is_floating_point():
            value.add_(torch.randn(value.shape) * 0.1)  # batch norms off their starting values
    plain.load_state_dict(dict(zip(theirs, mine.values(), strict=True)))
    with torch.no_grad():
        torch.testing.assert_close(ours.eval()(x), plain.eval()(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("width1", "width2"), [(512, 256), (32, 33)])
def test_mlp_is_the_published_network(width1, width2):
    values = {"width1": width1, "width2": width2, "dropout": 0.1}
    ours = mlp.network((7,), 3, {}, values, torch.Generator())
    assert_same_network(ours, PlainMlp(7, 3, width1, width2, 0.1), torch.randn(20, 7))


def test_mlp_trains_as_the_published_network_without_dropout():
    values = {"width1": 32, "width2": 33, "dropout": 0.0}
    ours, plain = mlp.network((7,), 3, {}, values, torch.Generator()), PlainMlp(7, 3, 32, 33, 0.0)
    initialise(ours, stream(1, "init"))
    plain.load_state_dict(dict(zip(plain.state_dict(), ours.state_dict().values(), strict=True)))
    x = torch.randn(20, 7)
    torch.testing.assert_close(ours.train()(x), plain.train()(x), rtol=1e-4, atol=1e-5)


def test_mlp_has_a_known_number_of_parameters():
    values = {"width1": 512, "width2": 256, "dropout": 0.1}
    count = sum(
        p.numel() for p in mlp.network((10,), 2, {}, values, torch.Generator()).parameters()
    )
    linear = 10 * 512 + 2 * 512 * 512 + 512 * 256 + 2 * 256 * 256 + 256 * 2 + 2
    assert count == linear + 2 * (3 * 512 + 3 * 256)


def plain_training(model, optimizer, data, epochs, batch_size, schedule=None):
    """Train with torch's own parts, in float32 on standardised rows; return test logits."""
    X, X_test = pixels(data) if data.image else dense(data)
    X, X_test = torch.tensor(X).float(), torch.tensor(X_test).float()
    y, order = torch.tensor(data.y).long(), generators().batch
    for _ in range(epochs):
        rows = np.argsort(order.bit_generator.random_raw(len(X)))
        for start in range(0, len(X), batch_size):
            index = rows[start : start + batch_size]
            optimizer.zero_grad()
            nn.CrossEntropyLoss()(model.train()(X[index]), y[index]).backward()
            optimizer.step()
        if schedule:
            schedule.step()
    with torch.no_grad():
        return model.eval()(X_test).numpy()


def seed_as_init():
    torch.manual_seed(int(generators().init.bit_generator.random_raw()))


def test_an_mlp_fit_is_adamw_with_a_cosine_schedule():
    data, _ = multiclass()
    values = {"width1": 32, "width2": 33, "dropout": 0.0, "lr": 1e-3, "weight_decay": 0.1}
    seed_as_init()
    plain = PlainMlp(5, 4, 32, 33, 0.0)
    adamw = torch.optim.AdamW(plain.parameters(), lr=1e-3, weight_decay=0.1)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(adamw, T_max=3)
    expected = plain_training(plain, adamw, data, 3, 64, cosine)
    result = fit("mlp", data, {"epochs": 3, "hparams": values})
    np.testing.assert_allclose(result.scores[0], expected, rtol=1e-3, atol=1e-4)


def test_a_cnn_fit_is_adam_at_a_constant_rate():
    data, _ = image()
    seed_as_init()
    plain = PlainCnn(8, 8, 1, 3)
    adam = torch.optim.Adam(plain.parameters(), lr=1e-3, weight_decay=0.01)
    expected = plain_training(plain, adam, data, 2, 32)
    values = {"lr": 1e-3, "weight_decay": 0.01}
    result = fit("cnn", data, {"epochs": 2, "hparams": values})
    np.testing.assert_allclose(result.scores[0], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [(32, 32, 3), (8, 8, 1), (5, 7, 2), (1, 1, 1)])
def test_cnn_is_the_published_network_for_any_image(shape):
    plain = PlainCnn(*shape, 4)
    assert_same_network(convnet.cnn_network(shape, 4), plain, torch.randn(6, *shape))


def test_cnn_has_a_known_number_of_parameters():
    count = sum(p.numel() for p in convnet.cnn_network((32, 32, 3), 2).parameters())
    convolutions = 3 * 32 * 9 + 32 + 32 * 16 * 9 + 16
    assert count == convolutions + 16 * 8 * 8 * 64 + 64 + 64 * 2 + 2


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize(("depth", "width"), [(1, 8), (3, 5)])
@pytest.mark.parametrize("shape", [(8, 8, 1), (5, 7, 3), (1, 1, 1)])
def test_convnet_is_convolutions_a_pool_and_logits(shape, depth, width, norm):
    values = {"depth": depth, "width": width, "batch_norm": norm}
    plain = PlainConvnet(*shape, 4, depth, width, norm)
    assert_same_network(convnet.network(shape, 4, {}, values), plain, torch.randn(6, *shape))


@pytest.mark.parametrize("norm", [False, True])
def test_a_convnet_fit_is_adam_at_a_constant_rate(norm):
    data, _ = image()
    seed_as_init()
    plain = PlainConvnet(8, 8, 1, 3, 2, 8, norm)
    adam = torch.optim.Adam(plain.parameters(), lr=1e-3, weight_decay=0.01)
    expected = plain_training(plain, adam, data, 2, 32)
    values = {"lr": 1e-3, "weight_decay": 0.01, "depth": 2, "width": 8, "batch_norm": norm}
    result = fit("convnet", data, {"epochs": 2, "hparams": values})
    np.testing.assert_allclose(result.scores[0], expected, rtol=1e-2, atol=1e-3)


VIT = {"patch": 4, "layers": 2, "heads": 4, "width": 64, "mlp_width": 128}


def plain_vit(side=16, patch=4, layers=2, n_classes=5):
    build = torchvision("torchvision.models").VisionTransformer
    return build(side, patch, layers, 4, 64, 128, num_classes=n_classes)


def small_vit(shape=(16, 16, 3), p=0.0, n_classes=5):
    model = vit.network(shape, n_classes, VIT, {"dropout": p}, torch.Generator())
    vit.initialise(model, stream(1, "init"))
    return model


def test_vit_starts_with_the_distributions_of_torchvision_s_layers():
    ours, plain = dict(small_vit().transformer.named_parameters()), plain_vit()
    for name, theirs in plain.named_parameters():
        mine = ours.pop(name)
        assert mine.shape == theirs.shape
        if theirs.std(correction=0) == 0:
            assert torch.equal(mine, theirs)
            continue
        n = theirs.numel()
        assert mine.std().item() == pytest.approx(theirs.std().item(), rel=6 / math.sqrt(n)), name
        assert abs(mine.mean()) < 6 * theirs.std() / math.sqrt(n)
        assert kstest(mine.detach().flatten(), theirs.detach().flatten()).pvalue > 1e-4, name
    assert not ours


def test_vit_is_torchvision_s_network():
    ours, plain = small_vit(), plain_vit()
    for weights in ours.parameters():  # a head of zeros would hide the rest
        weights.data.add_(torch.randn(weights.shape) * 0.1)
    plain.load_state_dict(ours.transformer.state_dict())
    x = torch.randn(6, 16, 16, 3)
    for mode in ("train", "eval"):
        mine, theirs = getattr(ours, mode)()(x), getattr(plain, mode)()(x.permute(0, 3, 1, 2))
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_vit_pads_images_at_the_bottom_and_on_the_right():
    ours, plain = small_vit((14, 9, 3)), plain_vit()
    ours.transformer.heads.head.weight.data.add_(torch.randn(5, 64))
    plain.load_state_dict(ours.transformer.state_dict())
    x = torch.randn(2, 14, 9, 3)
    padded = torch.zeros(2, 3, 16, 16)
    padded[:, :, :14, :9] = x.permute(0, 3, 1, 2)
    with torch.no_grad():
        torch.testing.assert_close(ours.eval()(x), plain.eval()(padded), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(32, 32, 3), (28, 28, 1), (7, 5, 2)])
def test_vit_takes_any_image(shape):
    assert small_vit(shape)(torch.randn(2, *shape)).shape == (2, 5)


def test_vit_drops_values_where_torchvision_does():
    ours = small_vit(p=0.2)
    places = [type(module).__name__ for module in ours.modules()].count("Dropout")
    assert places == 1 + 2 * 3  # embedding; after attention and twice in the MLP of each layer
    assert not any(type(module) is nn.Dropout for module in ours.modules())


def test_a_vit_fit_is_adamw_with_a_cosine_schedule():
    data, _ = colour()
    values = {"lr": 1e-3, "weight_decay": 0.1}
    wrapped = vit.network(
        (5, 7, 3), 2, {**VIT, "patch": 2, "layers": 4}, {"dropout": 0.0}, torch.Generator()
    )
    vit.initialise(wrapped, generators().init)
    plain = plain_vit(8, 2, 4, 2)
    plain.load_state_dict(wrapped.transformer.state_dict())

    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.plain = plain

        def forward(self, x):
            padded = torch.zeros(len(x), 3, 8, 8)
            padded[:, :, :5, :7] = x.permute(0, 3, 1, 2)
            return self.plain(padded)

    adamw = torch.optim.AdamW(plain.parameters(), lr=1e-3, weight_decay=0.1)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(adamw, T_max=2)
    expected = plain_training(Padded(), adamw, data, 2, 32, cosine)
    result = fit("vit", data, {"epochs": 2, "hparams": values})
    gap = expected[:, 1] - expected[:, 0]
    np.testing.assert_allclose(result.scores[0], gap, rtol=1e-2, atol=1e-3)
