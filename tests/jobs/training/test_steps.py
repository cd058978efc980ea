"""Quick steps of an optimizer give the bits that torch's own give."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from manyseed.jobs.training.loop import stepping

ADAM = {"lr": 0.01, "weight_decay": 0.1, "fused": True}
GPU = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here"),
    ],
)


def _trained(
    kind: type[torch.optim.Optimizer], device: str, quick: bool, **options: object
) -> nn.Module:
    """Train a small network with a falling rate, reloading the optimizer's state halfway."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(7, 19), nn.BatchNorm1d(19), nn.ReLU(), nn.Linear(19, 3))
    model.to(device)
    optimizer = kind(model.parameters(), **options)  # type: ignore[arg-type]
    for epoch in range(4):
        update = stepping(optimizer) if quick else optimizer.step
        for step in range(5):
            optimizer.param_groups[0]["lr"] = 0.01 / (1 + epoch)
            optimizer.zero_grad()
            logits = model(torch.randn(33, 7, device=device))
            # the first layer has no gradient in some steps
            logits = logits.detach() + model[3].bias if step == epoch == 2 else logits
            nn.functional.cross_entropy(logits, torch.arange(33, device=device) % 3).backward()
            update()
        if epoch == 1:
            optimizer.load_state_dict(optimizer.state_dict())
    return model


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.Adam, ADAM),
        (torch.optim.AdamW, ADAM),
        (torch.optim.AdamW, ADAM | {"amsgrad": True}),
        (torch.optim.AdamW, ADAM | {"fused": False}),
        (torch.optim.SGD, ADAM | {"momentum": 0.9}),
    ],
)
def test_quick_steps_equal_those_of_torch(
    kind: type[torch.optim.Optimizer], options: dict[str, object], device: str
) -> None:
    quick, slow = (_trained(kind, device, each, **options).state_dict() for each in (True, False))
    for name, values in slow.items():
        assert torch.equal(quick[name], values), name


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_fused_adam_steps_without_the_optimizers_own_step_once_its_state_is_made(
    kind: type[torch.optim.Optimizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = nn.Parameter(torch.ones(3))
    optimizer = kind([weight], **ADAM)  # type: ignore[arg-type]
    update = stepping(optimizer)
    weight.grad = torch.ones(3)
    update()
    monkeypatch.setattr(optimizer, "step", lambda: pytest.fail("torch's own step"))
    before = weight.detach().clone()
    update()
    assert not torch.equal(weight, before)
    assert optimizer.state[weight]["step"].item() == 2
