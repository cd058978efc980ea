"""What scores of response curves say about the generalisation gap."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.claims.record import (
    Claim,
    Tally,
)
from manyseed.analysis.axes import AXES
from manyseed.analysis.figures.responses import response_pairs
from manyseed.analysis.response.corpora import information

Real = NDArray[np.float64]


_NO_SCORES = ("gi_folded", "pal", "pal_printed", "shifted_train_accuracy", "dbi")
_HPARAMS = ["hparam_depth", "hparam_width"]


def corpus(seed: int, depth: float, told: float) -> pl.DataFrame:
    """Return scores of models.

    The gap and scores rise with depth, an hparam, in proportion to `depth`; a part `told` of what
    else gi is made of is the gap's.
    """
    rng = np.random.default_rng([seed, 23])
    of_depth = np.repeat(np.arange(4), 8)
    n = of_depth.size
    own = rng.normal(size=(4, n))
    values = depth * of_depth + 0.5 * own
    values[1] += 0.5 * (told * own[0] - (1 - math.sqrt(1 - told**2)) * own[1])
    return pl.DataFrame(
        {
            "dataset": "d",
            "classifier": "c",
            "transform": "intra",
            "layer": pl.Series([0] * n, dtype=pl.UInt8),
            "repeat_index": 0,
            "run_index": 0,
            "augment": "none",
            "hparam_depth": of_depth,
            "hparam_width": np.tile(np.arange(2), n // 2),
            "gap": 0.3 + 0.05 * values[0],
            "gi": 0.5 + 0.05 * values[1],
            "mean_accuracy": 0.5 - 0.05 * values[2],
            "end_accuracy": 0.5 - 0.05 * values[3],
            "train_accuracy": 1.0,
            **dict.fromkeys(_NO_SCORES, pl.Series([None] * n, dtype=pl.Float64)),
        }
    )


@cache
def told_by(seed: int, depth: float, told: float) -> pl.DataFrame:
    """Return how much scores say about the gap."""
    return information(corpus(seed, depth, told), _HPARAMS, permutations=60)


def _telling(depth: float, told: float) -> Callable[[int], Tally]:
    from manyseed.analysis.questions.scores import sentences

    return lambda seed: Tally(bool(list(sentences(told_by(seed, depth, told)))))


def _beyond(depth: float, told: float, measure: str | None = None) -> Callable[[int], Tally]:
    """Return how many scores the page does not call "as by chance"."""
    from manyseed.analysis.questions.scores import is_single, judged

    def count(seed: int) -> Tally:
        found = judged(told_by(seed, depth, told)).filter(is_single())
        if measure:
            found = found.filter(measure=measure)
        return Tally(int(found["beyond"].sum()), found.height)

    return count


MODELS, MAGNITUDES = 24, 11


def _pair(seed: int, apart: float) -> Tally:
    """Return whether two of many curves are drawn as alike at the end, unlike before.

    All fall alike, each by chance elsewhere (sd 0.01); `apart`: by how much the first stays above.
    """
    rng = np.random.default_rng([seed, 61])
    place = np.linspace(0, 1, MAGNITUDES)
    curves = 0.9 - 0.4 * place + 0.01 * rng.normal(size=(MODELS, MAGNITUDES))
    curves[0] += apart * 4 * place * (1 - place)
    curves[0, -1] = curves[1, -1]
    model, magnitude = np.indices(curves.shape).reshape(2, -1)
    axes = dict.fromkeys(AXES, "none") | {"dataset": "d", "classifier": "c"}
    table = pl.DataFrame(
        {
            **axes,
            "cell": model,
            "hparams": [f"width = {number}" for number in model],
            "transform": "intra",
            "layer": pl.Series([0] * model.size, dtype=pl.UInt8),
            "repeat_index": 0,
            "magnitude": place[magnitude],
            "accuracy": curves.ravel(),
            "n_runs": 3,
        }
    )
    drawn = [plot for plot in response_pairs(table) if "width = 0" in plot.caption or not apart]
    return Tally(bool(drawn))


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "Alike at the end, least alike before: two configurations",
        "captions",
        r"[Aa]like at the end|for the largest difference in gi",
        0.05,
        "corpora",
        lambda seed: _pair(seed, 0.0),
        lambda seed: _pair(seed, 0.1),
        f"{MODELS} models whose curves differ by chance alone, by 0.01 at each magnitude",
        "one of them stays above by up to 0.1: it is drawn",
    ),
    Claim(
        "2 of 3 scores tell beyond chance which model has the larger gap; scores are noise",
        "answers",
        r"tell beyond chance|scores tell which|No score for|"
        r"by chance up to|within that spread",
        0.05,
        "corpora",
        _telling(0.0, 0.0),
        _telling(0.0, 0.95),
        "32 models whose scores are noise",
        "0.95 of one score is the gap",
    ),
    Claim(
        "… scores know depth, an hparam, and nothing else",
        "answers",
        r"tell beyond chance",
        0.05,
        "corpora",
        _telling(1.0, 0.0),
        _telling(1.0, 0.95),
        "gap and scores of 32 models rise with depth",
        "given depth, 0.95 of one score is the gap",
    ),
    Claim(
        "cmi 12 ± 3 (or: as by chance)",
        "captions, page",
        r"as by chance|measures within it read|within its own chance",
        0.05,
        "scores",
        _beyond(0.0, 0.0),
        _beyond(0.0, 0.95, "gi"),
        "32 models whose scores are noise",
        "0.95 of the score is the gap",
    ),
)
