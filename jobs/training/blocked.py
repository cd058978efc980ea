"""Networks of convolutions in evaluation on CPUs, in the layout that small images are quickest in.

Networks are trained with channels last. Of few channels and few pixels, oneDNN's own layout (blocks
of 16 channels) takes three fifths of the time; of many, whose outputs leave the cache, no less.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

_LAYERS = (nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.MaxPool2d)
_CHANNELS = 16
_BYTES = 2**20
"""Of a convolution's output of all rows that are evaluated at once: what a core's cache holds."""


def evaluation(part: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return what computes the same as a network or a part of one, but for last bits.

    Which layout is taken depends on the shape of the rows alone: the same rows always have the
    same scores.

    Parameters
    ----------
    part : callable
        From rows (row, ...) to scores or outputs (row, ...); in evaluation mode whenever what is
        returned is called. Nothing but a sequence of layers with convolutions is computed
        in another way than its own.
    """
    if not isinstance(part, nn.Sequential) or not torch.backends.mkldnn.is_available():
        return part
    layers = [*part]
    begin = next((n for n, one in enumerate(layers) if isinstance(one, nn.Conv2d)), len(layers))
    end = begin
    while end < len(layers) and isinstance(layers[end], _LAYERS):
        end += 1
    if begin == end:
        return part
    before, body, behind = (
        nn.Sequential(*some) for some in (layers[:begin], layers[begin:end], layers[end:])
    )
    blocks = max(-(-one.out_channels // _CHANNELS) for one in body if isinstance(one, nn.Conv2d))

    def evaluated(rows: Tensor) -> Tensor:
        images = before(rows)
        n_bytes = 4 * images[:, 0].numel() * blocks * _CHANNELS
        is_small = images.dtype == torch.float32 and n_bytes <= _BYTES
        if is_small and images.device.type == "cpu":
            outputs = body(images.to_mkldnn()).to_dense()
        else:
            outputs = body(images)
        scores: Tensor = behind(outputs)
        return scores

    return evaluated
