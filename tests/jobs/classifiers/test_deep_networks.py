"""The deep networks for images, against torchvision's, plain definitions and published counts."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from manyseed.jobs import classifiers
from manyseed.jobs.cells import Unsuited, require_suited
from manyseed.jobs.classifiers import convnet, resnet
from manyseed.jobs.classifiers.images import he_normal
from manyseed.jobs.classifiers.record import Unsuitable
from manyseed.jobs.datasets import resolve
from manyseed.jobs.ensembling import methods
from manyseed.jobs.packages import torchvision
from manyseed.jobs.run import stream
from tests.jobs.classifiers import examples

LAYERS = {
    "vgg": convnet._layers,
    "resnet": resnet._layers,
    "preresnet": resnet._preactivated_layers,
    "wide-resnet": resnet._wide_layers,
}
CIFAR = resolve("torchvision:CIFAR10")


def built(name, shape=(32, 32, 3), n_classes=10, **hparams):
    values = {**classifiers.CLASSIFIERS[name].anchors(), **hparams}
    return classifiers.CLASSIFIERS[name].fit.build(shape, n_classes, {}, values, torch.Generator())


def parameters(model):
    return sum(each.numel() for each in model.parameters())


@pytest.fixture(autouse=True)
def _own_random_state():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.mark.parametrize(
    ("name", "hparams", "published"),
    [
        # the convolutions of VGG16 and 19 have 14,714,688 and 20,024,384 (Keras Applications)
        ("vgg", {"batch_norm": False}, 14_714_688 + 2 * 512 * 513 + 5130),
        ("vgg", {}, 14_714_688 + 2 * 512 * 513 + 5130 + 2 * 4224),
        ("vgg", {"depth": 19, "batch_norm": False}, 20_024_384 + 2 * 512 * 513 + 5130),
        ("resnet", {}, 11_173_962),
        ("resnet", {"depth": 34}, 21_282_122),
        ("resnet", {"depth": 50}, 23_520_842),
        ("preresnet", {"depth": 164}, 1_703_258),  # 1.70 M (Liu et al. 2017, Network Slimming)
        ("preresnet", {"bottleneck": False}, 1.7e6),  # He et al. 2016
        ("wide-resnet", {}, 36_479_194),  # 36.5 M
        ("wide-resnet", {"depth": 16, "width": 4}, 2.7e6),
        ("wide-resnet", {"depth": 40, "width": 4}, 8.9e6),
    ],
)
def test_networks_have_the_published_numbers_of_parameters(name, hparams, published):
    found = parameters(built(name, **hparams))
    if isinstance(published, float):  # as papers print it
        assert abs(found - published) < 0.05e6
    else:
        assert found == published


@pytest.mark.parametrize(
    ("depth", "published"), [(18, 11_689_512), (34, 21_797_672), (50, 25_557_032)]
)
def test_resnets_of_large_images_are_those_of_imagenet(depth, published):
    assert parameters(built("resnet", (224, 224, 3), 1000, depth=depth)) == published


def same(ours, theirs, x):
    """Compare two networks with equal weights, off their starting values."""
    he_normal(ours, stream(1, "init"))
    mine, plain = ours.state_dict(), theirs.state_dict()
    assert [v.shape for v in mine.values()] == [v.shape for v in plain.values()]
    for name, value in mine.items():
        if value.is_floating_point():
            value.add_(torch.rand(value.shape) * (0.5 if name.endswith("running_var") else 0.1))
    theirs.load_state_dict(dict(zip(plain, mine.values(), strict=True)))
    for mode in ("train", "eval"):
        with torch.no_grad():
            expected = getattr(theirs, mode)()(x.permute(0, 3, 1, 2).contiguous())
            found = getattr(ours, mode)()(x)
        scale = expected.abs().max()
        torch.testing.assert_close(found / scale, expected / scale, rtol=1e-3, atol=1e-3)


def of_torchvision(depth, width, n_classes, small):
    """Return torchvision's network, narrower; with the stem of small images."""
    module = torchvision("torchvision.models.resnet")
    theirs = module.ResNet.__new__(module.ResNet)
    block = module.Bottleneck if depth == 50 else module.BasicBlock
    _narrow(theirs, block, resnet.BLOCKS[depth], width, n_classes)
    if small:
        theirs.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        theirs.maxpool = nn.Identity()
    return theirs


def _narrow(network, block, counts, width, n_classes):
    """As torchvision builds it, from another number of channels."""
    nn.Module.__init__(network)
    network._norm_layer, network.dilation = nn.BatchNorm2d, 1
    network.groups, network.base_width, network.inplanes = 1, 64, width
    network.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
    network.bn1, network.relu = nn.BatchNorm2d(width), nn.ReLU()
    network.maxpool = nn.MaxPool2d(3, 2, 1)
    for stage, count in enumerate(counts):
        layer = network._make_layer(block, width * 2**stage, count, stride=2 if stage else 1)
        setattr(network, f"layer{stage + 1}", layer)
    network.avgpool = nn.AdaptiveAvgPool2d(1)
    network.fc = nn.Linear(width * 8 * block.expansion, n_classes)


@pytest.mark.parametrize("depth", resnet.BLOCKS)
@pytest.mark.parametrize("shape", [(32, 32, 3), (9, 6, 3), (70, 66, 3)])
def test_resnet_is_torchvision_s(depth, shape):
    ours = built("resnet", shape, 5, depth=depth, width=8)
    theirs = of_torchvision(depth, 8, 5, max(shape) <= 64)
    same(ours, theirs, torch.randn(4, *shape))


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("depth", convnet.STAGES)
def test_vgg_s_convolutions_are_torchvision_s(depth, norm):
    """The hidden layers are the source's, after its dropout."""
    config = torchvision("torchvision.models.vgg").cfgs[{11: "A", 13: "B", 16: "D", 19: "E"}[depth]]
    narrow = [each if each == "M" else each // 16 for each in config]
    theirs = nn.Sequential(
        torchvision("torchvision.models.vgg").make_layers(narrow, batch_norm=norm),
        nn.Flatten(),
        *(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 5)),
    )
    ours = built("vgg", (32, 32, 3), 5, depth=depth, width=4, batch_norm=norm, dropout=0.0)
    same(ours, theirs, torch.randn(4, 32, 32, 3))


def test_vgg_drops_before_both_hidden_layers():
    children = [*dict(built("vgg").named_children())]
    assert children[-7:] == [
        *("dropout1", "hidden1", "relu_hidden1"),
        *("dropout2", "hidden2", "relu_hidden2"),
        "logits",
    ]


@pytest.mark.parametrize("shape", [(17, 17, 1), (28, 28, 1), (33, 64, 3)])
def test_vgg_takes_images_that_are_no_multiple_of_32(shape):
    model = built("vgg", shape, 3, width=1, depth=11)
    assert model(torch.randn(2, *shape)).shape == (2, 3)


class Block(nn.Module):
    """A pre-activated block written out."""

    def __init__(self, inputs, steps, activated):
        super().__init__()
        self.norms, self.convolutions = nn.ModuleList(), nn.ModuleList()
        channels, self.activated, stride = inputs, activated, 1
        for outputs, kernel, step in steps:
            self.norms.append(nn.BatchNorm2d(channels))
            self.convolutions.append(
                nn.Conv2d(channels, outputs, kernel, step, kernel // 2, bias=False)
            )
            channels, stride = outputs, stride * step
        self.joined = None
        if stride > 1 or channels != inputs:
            self.joined = nn.Conv2d(inputs, channels, 1, stride, bias=False)

    def forward(self, x):
        out = kept = x
        for place, (norm, convolution) in enumerate(
            zip(self.norms, self.convolutions, strict=True)
        ):
            out = torch.relu(norm(out))
            if place == 0 and self.activated and self.joined is not None:
                kept = out
            out = convolution(out)
        return out + (kept if self.joined is None else self.joined(kept))


class PlainPreActivated(nn.Module):
    def __init__(self, inputs, stem, stages, activated, n_classes):
        super().__init__()
        self.stem = nn.Conv2d(inputs, stem, 3, padding=1, bias=False)
        self.blocks, channels = nn.ModuleList(), stem
        for stage in stages:
            for steps in stage:
                self.blocks.append(Block(channels, steps, activated))
                channels = steps[-1][0]
        self.norm, self.logits = nn.BatchNorm2d(channels), nn.Linear(channels, n_classes)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.logits(torch.relu(self.norm(x)).flatten(2).mean(2))


@pytest.mark.parametrize(
    ("name", "hparams", "stem", "stages"),
    [
        (
            "preresnet",
            {"depth": 20, "width": 4, "bottleneck": False},
            4,
            [
                [[(c, 3, s if n == 0 else 1), (c, 3, 1)] for n in range(3)]
                for c, s in ((4, 1), (8, 2), (16, 2))
            ],
        ),
        (
            "preresnet",
            {"depth": 20, "width": 4, "bottleneck": True},
            4,
            [
                [[(c, 1, 1), (c, 3, s if n == 0 else 1), (4 * c, 1, 1)] for n in range(2)]
                for c, s in ((4, 1), (8, 2), (16, 2))
            ],
        ),
        (
            "wide-resnet",
            {"depth": 16, "width": 2, "dropout": 0.0},
            16,
            [
                [[(c, 3, s if n == 0 else 1), (c, 3, 1)] for n in range(2)]
                for c, s in ((32, 1), (64, 2), (128, 2))
            ],
        ),
    ],
)
@pytest.mark.parametrize("shape", [(8, 8, 1), (9, 7, 3)])
def test_pre_activated_networks_are_as_published(name, hparams, stem, stages, shape):
    ours = built(name, shape, 5, **hparams)
    plain = PlainPreActivated(shape[2], stem, stages, name == "wide-resnet", 5)
    he_normal(ours, stream(1, "init"))
    norms = [m for m in ours.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.weight.data.add_(torch.rand(norm.weight.shape))
    theirs = [m for m in plain.modules() if isinstance(m, nn.BatchNorm2d)]
    convolutions = {
        "main": [
            m for k, m in ours.named_modules() if isinstance(m, nn.Conv2d) and "shortcut" not in k
        ],
        "joined": [
            m for k, m in ours.named_modules() if isinstance(m, nn.Conv2d) and "shortcut" in k
        ],
    }
    of_plain = {
        "main": [
            m for k, m in plain.named_modules() if isinstance(m, nn.Conv2d) and "joined" not in k
        ],
        "joined": [
            m for k, m in plain.named_modules() if isinstance(m, nn.Conv2d) and "joined" in k
        ],
    }
    pairs = [*zip(norms, theirs, strict=True), (ours.logits, plain.logits)]
    for part, found in convolutions.items():
        pairs += zip(found, of_plain[part], strict=True)
    for mine, other in pairs:
        other.load_state_dict(mine.state_dict())
    assert parameters(ours) == parameters(plain)
    x = torch.randn(6, *shape)
    for mode in ("train", "eval"):
        with torch.no_grad():
            expected = getattr(plain, mode)()(x.permute(0, 3, 1, 2).contiguous())
            torch.testing.assert_close(getattr(ours, mode)()(x), expected, rtol=1e-3, atol=1e-4)


def test_a_wide_resnet_drops_between_the_convolutions_of_each_block():
    model = built("wide-resnet", (8, 8, 1), 3, depth=10, width=1, dropout=0.3)
    for number in (1, 2, 3):
        inside = [type(m).__name__ for m in model.get_submodule(f"block{number}").block]
        assert inside == ["Conv2d", "BatchNorm2d", "ReLU", "Dropout", "Conv2d"]


@pytest.mark.parametrize("name", LAYERS)
def test_signals_neither_swell_nor_starve_in_depth(name):
    """Weights as the sources fill them; torch's own would leave 1e-5 of a signal to VGG19."""
    deepest = {"vgg": {"depth": 19, "batch_norm": False}, "resnet": {"depth": 50}}
    model = built(name, width=1 if name == "wide-resnet" else 8, **deepest.get(name, {}))
    he_normal(model, stream(1, "init"))
    with torch.no_grad():
        out = model.eval()(torch.randn(8, 32, 32, 3))
    assert torch.isfinite(out).all()
    assert out.std(dim=0).mean() > 1e-3
    convolutions = [m.weight for m in model.modules() if isinstance(m, nn.Conv2d)]
    for weights in convolutions:
        spread = (2 / (weights[0, 0].numel() * len(weights))) ** 0.5
        if weights.numel() > 500:
            assert weights.std().item() == pytest.approx(spread, rel=0.15)


@pytest.mark.parametrize("name", LAYERS)
def test_what_is_priced_is_what_is_built(name):
    """Products of every layer, counted while the network runs."""
    shapes = {"depth": {"vgg": 13, "resnet": 50, "preresnet": 20, "wide-resnet": 16}[name]}
    for image in ((32, 32, 3), (33, 21, 1), (70, 80, 3)):
        described = replace(CIFAR, image=image)
        info = classifiers.resolve(name, {"hparams": {**shapes, "width": 2}}, described)
        model = built(name, image, 10, **info.hparams).eval()
        found = []

        def count(layer, _, out, found=found):
            found.append((layer.weight[0].numel() * out[0].numel(), out[0].numel()))

        for layer in model.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                layer.register_forward_hook(count)
        with torch.no_grad():
            model(torch.randn(1, *image))
        told = [(e.products, e.outputs * e.pixels) for e in LAYERS[name](described, info.hparams)]
        assert sorted(found) == sorted(told)


@pytest.mark.parametrize("image", [(8, 8, 1), (16, 40, 3)])
def test_vgg_refuses_images_that_five_poolings_do_not_fit(image):
    sides = re.escape(f"these have {image[0]} × {image[1]}")
    with pytest.raises(Unsuitable, match=f"vgg pools five times.*17 × 17 pixels.*{sides}"):
        classifiers.resolve("vgg", {}, replace(CIFAR, image=image))
    for name in ("resnet", "preresnet", "wide-resnet"):
        described = replace(CIFAR, image=image)
        info = classifiers.resolve(name, {}, described)
        assert classifiers.core_seconds(described, info, 100) > 0


@pytest.mark.parametrize("name", LAYERS)
def test_a_last_batch_of_one_row_joins_the_one_before_and_one_row_is_predicted(name):
    data, _ = examples.of(name)()
    odd = replace(data, X=data.X[:33], y=data.y[:33])  # 32 and one row
    found = examples.fit(name, odd, {**examples.OPTIONS[name], "epochs": 1})
    assert np.isfinite(found.scores).all()
    one = replace(odd, X_test=odd.X_test[:1])
    alone = examples.fit(name, one, {**examples.OPTIONS[name], "epochs": 1})
    np.testing.assert_allclose(alone.scores[0, 0], found.scores[0, 0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", LAYERS)
def test_structural_hparams_stay_where_others_move(name):
    space = classifiers.CLASSIFIERS[name].space
    fixed = {hparam.name for hparam in space if hparam.structural}
    assert (
        fixed
        == {
            "vgg": {"depth", "width", "batch_norm"},
            "resnet": {"depth", "width"},
            "preresnet": {"depth", "width", "bottleneck"},
            "wide-resnet": {"depth", "width"},
        }[name]
    )


def test_the_sources_settings_are_the_defaults():
    """PIT, table 2 and appendix D; of resnet PRC, section 4.2."""
    found = {name: classifiers.resolve(name, {}, CIFAR) for name in LAYERS}
    shown = {
        name: (
            info.hparams["lr"],
            info.hparams["weight_decay"],
            info.hparams["batch"],
            info.epochs,
            info.canonical["optimizer"],
            info.canonical.get("momentum"),
            info.canonical["schedule"],
        )
        for name, info in found.items()
    }
    by_sgd = ("sgd", 0.9, "piecewise-linear")
    assert shown == {
        "vgg": (0.05, 5e-4, 128, 400, *by_sgd),
        "preresnet": (0.1, 3e-4, 128, 300, *by_sgd),
        "wide-resnet": (0.1, 5e-4, 128, 300, *by_sgd),
        "resnet": (1e-4, 1e-8, 1024, 100, "adam", None, "plateau"),
    }
    assert found["vgg"].hparams["dropout"] == 0.5
    assert found["wide-resnet"].hparams["dropout"] == 0.0


@pytest.mark.parametrize("name", LAYERS)
def test_ensembling_methods_suit_those_that_train_by_sgd(name):
    info = classifiers.resolve(name, {}, CIFAR)
    for kind in methods.names():
        method = methods.resolve(kind, {})
        refused, needs = None, {}
        try:
            require_suited(method, info)
        except Unsuited as error:
            refused, needs = str(error), error.needs
        if kind == "dropout":
            expected = {"vgg": None, "wide-resnet": "makes all members equal"}.get(
                name, "no dropout layers: take mlp, vgg, wide-resnet or vit"
            )
            assert refused is expected is None or expected in refused
        elif name == "resnet" and methods.METHODS[kind].by_sgd:
            assert needs == {"optimizer": "sgd"}
        else:
            assert refused is None
