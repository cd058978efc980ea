"""Every network in two parts: the first block, and what follows, make the network bit for bit."""

from __future__ import annotations

import math

import pytest
import torch

from manyseed.jobs import classifiers
from manyseed.jobs.run import stream
from manyseed.jobs.training import layers
from manyseed.jobs.training.layers import evaluation
from manyseed.jobs.training.network import Network
from tests.jobs.classifiers import examples

NETWORKS = [n for n, r in classifiers.CLASSIFIERS.items() if isinstance(r.fit, Network)]
ENDS = {
    "mlp": "2",
    "cnn": "relu1",
    "convnet": "relu1",
    "vgg": "relu1",
    "resnet": "stem",
    "preresnet": "block1",
    "wide-resnet": "block1",
    "vit": "transformer.encoder.layers.encoder_layer_0",
}
SMALL = [(8, 8, 1), (5, 7, 3)]
SHAPES = {"mlp": [(7,)], "vgg": [(17, 18, 3)], "resnet": [(8, 8, 1), (65, 20, 3)]}
FORMS = {
    "convnet": [{"depth": d, "width": 5, "batch_norm": n} for d in (1, 3) for n in (False, True)],
    "vgg": [{"depth": d, "width": 3, "batch_norm": d == 16} for d in (11, 13, 16, 19)],
    "resnet": [{"depth": d, "width": 3} for d in (18, 34, 50)],
    "preresnet": [{"depth": 20, "width": 3, "bottleneck": b} for b in (False, True)],
    "wide-resnet": [{"depth": 10, "width": 1, "dropout": 0.2}],
}
CASES = [
    (name, shape, values)
    for name in ENDS
    for shape in SHAPES.get(name, SMALL)
    for values in FORMS.get(name, [{}])
]


def built(name, shape, values):
    """Return a network with weights and batch norms off their starting values."""
    make = examples.multiclass if name == "mlp" else lambda: examples.image(shape)
    info = examples.info(make()[0])
    resolved = classifiers.resolve(name, {"hparams": values}, info)
    network, generator = resolved.record.fit, torch.Generator().manual_seed(1)
    model = network.build(shape, 4, resolved.canonical, resolved.hparams, generator)
    (network.initialise or layers.initialise)(model, stream(1, "init"))
    for key, value in model.state_dict().items():
        if value.is_floating_point():
            value.add_(torch.rand(value.shape, generator=generator) * 0.2)
        assert not key.endswith("running_var") or (value > 0).all()
    return network, model.eval(), generator


@pytest.mark.parametrize(("name", "shape", "values"), CASES)
@torch.no_grad()
def test_both_parts_in_turn_are_the_network(name, shape, values):
    network, model, generator = built(name, shape, values)
    head, tail = network.halves(model)
    seen = []
    model.get_submodule(ENDS[name]).register_forward_hook(lambda *of: seen.append(of[-1]))
    for rows in (1, 3, 130) if math.prod(shape) < 300 else (1, 3):
        x = torch.randn(rows, *shape, generator=generator)
        expected = model(x)
        hidden = head(x)
        assert torch.equal(hidden, seen[-2])
        assert torch.equal(tail(hidden), expected)
        assert not torch.equal(tail(hidden + 1), expected)
        for part, given in ((model, x), (tail, hidden)):
            found = evaluation(part)(given)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
            assert torch.equal(evaluation(part)(given), found)


def test_every_network_says_where_its_first_block_ends():
    assert {*NETWORKS} == {*ENDS, "vit-transfer"}
    with pytest.raises(ValueError, match="no hidden layer"):
        classifiers.CLASSIFIERS["vit-transfer"].fit.halves(torch.nn.Linear(2, 2))
