"""Steps of Adam without what torch does around each: a profile, hooks, lists of tensors made anew.

A small network's step is mostly such overhead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_FUSED: dict[type, Callable[..., object]] = {
    torch.optim.Adam: torch._fused_adam_,
    torch.optim.AdamW: torch._fused_adamw_,
}
_OTHER_FORMULAS = ("amsgrad", "maximize", "capturable", "differentiable")


def stepping(optimizer: torch.optim.Optimizer) -> Callable[[], object]:
    """Return the optimizer's `step`, or for fused Adam a quicker one with the same results.

    Valid as long as no state is loaded and no group changes, apart from learning rates.
    """
    fused, groups = _FUSED.get(type(optimizer)), optimizer.param_groups
    if fused is None or len(groups) != 1 or not _is_plain(groups[0]):
        return optimizer.step
    group, weights = groups[0], groups[0]["params"]
    lists = _moments(optimizer, weights)

    @torch.no_grad()
    def step() -> None:
        gradients = [weight.grad for weight in weights]
        if not lists or any(gradient is None for gradient in gradients):
            optimizer.step()  # it also makes the state of weights that have none
            lists.update(_moments(optimizer, weights))
            return
        torch._foreach_add_(lists["step"], 1)
        fused(
            *(weights, gradients, lists["exp_avg"], lists["exp_avg_sq"], [], lists["step"]),
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )

    return step


def _moments(
    optimizer: torch.optim.Optimizer, weights: list[torch.Tensor]
) -> dict[str, list[torch.Tensor]]:
    """Return the state of all weights by name; {} if some have none."""
    states = [optimizer.state.get(weight) for weight in weights]
    if not all(states):
        return {}
    return {
        name: [state[name] for state in states if state is not None]
        for name in ("exp_avg", "exp_avg_sq", "step")
    }


def _is_plain(group: dict[str, Any]) -> bool:
    """Return whether a group's weights are of one kind and updated by the usual formula."""
    kinds = {(weight.device, weight.dtype) for weight in group["params"]}
    usual = not any(group.get(name) for name in _OTHER_FORMULAS)
    return bool(group.get("fused")) and usual and len(kinds) == 1
