"""What schemes of noise do, in the words of a methods section; as in docs/perturbations.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_MEANT: Mapping[str, Mapping[str, str]] = {
    "perturb_continuous": {
        "sig-digit": "k moves each value d.ddd·10^N by up to 10^(N − k), uniformly",
        "relative": "p moves each value x by up to p·|x|, uniformly",
        "percentile": "p moves each value by up to half of the p-quantile of its feature's |x|, "
        "uniformly, within the feature's range",
        "neighbour": "c moves each row to a point uniform in the ball around it, of radius c times "
        "the distance to its nearest neighbour",
    },
    "perturb_categorical": {
        "sample": "p draws, in a share p of the rows, each of the c categories of a row anew with "
        "probability 1/c, uniformly over its feature's labels",
        "value": "p draws each category anew with probability p, uniformly over its feature's "
        "labels",
    },
    "perturb_labels": {
        "flip": "p turns each training label, with probability p, into one of the other classes",
        "symmetric": "p turns each training label, with probability p, into one of all classes",
        "pairs": "p turns each training label, with probability p, into the next class",
    },
}


def in_words(axis: str, levels: Iterable[str]) -> str:
    """Return what the schemes of an axis do, in a sentence; empty for another axis."""
    names = dict.fromkeys(level.partition(":")[0].replace("label", "value") for level in levels)
    told = _MEANT.get(axis, {})
    said = "; ".join(f"{name}:{told[name]}" for name in names if name in told)
    return f" There, {said}." if said else ""
