"""Whether a score predicts which of a sweep's models generalise worse, beyond their hparams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.response.combining import COMBINATIONS, combine, oriented
from manyseed.analysis.response.information import Cmi, cmi

CORPUS = ("dataset", "classifier", "transform", "layer")
"""What models are compared within."""

LEAST_TRAIN_ACCURACY = 0.8
"""By default; below it models are left out where transforms have both signs (PRC, 4.2)."""

FEWEST_MODELS = 8
"""Below it conditional mutual information is not computed: it would be all bias."""

_SINGLE = ("gi", "gi_folded", "pal", "pal_printed", "mean_accuracy", "end_accuracy", "dbi")
_SHIFTED = "shifted_train_accuracy"

SCHEMA: Mapping[str, Any] = {
    "dataset": pl.String,
    "classifier": pl.String,
    "transform": pl.String,
    "layer": pl.UInt8,
    "measure": pl.String,
    "cmi": pl.Float64,
    "cmi_sd": pl.Float64,
    "cmi_paper": pl.Float64,
    "given": pl.String,
    "n_corpora": pl.UInt32,
    "n_models": pl.UInt32,
    "n_excluded": pl.UInt32,
    "n_bins": pl.UInt32,
    "n_pairs": pl.UInt32,
    "tied": pl.Float64,
    "null_mean": pl.Float64,
    "null_q95": pl.Float64,
    "pearson": pl.Float64,
    "spearman": pl.Float64,
}


def excluded(least_train_accuracy: float = LEAST_TRAIN_ACCURACY) -> pl.Expr:
    """Return which rows of scores are left out: `information` says why."""
    signed = pl.col("gi_folded").is_not_null().any().over(CORPUS)
    unlearned = signed & (pl.col("train_accuracy") < least_train_accuracy)
    return (pl.col("gap").is_null() | unlearned).fill_null(value=True)


def distinct(scores: pl.DataFrame) -> pl.DataFrame:
    """Return each model once: cells that differ in `test_augment` alone are of the same models.

    Parameters
    ----------
    scores : frame
        `CORPUS`, repeat_index, run_index, and axes; of a frame without `test_augment` all rows.
    """
    if "test_augment" not in scores.columns:
        return scores
    by = [axis for axis in AXES if axis != "test_augment" and axis in scores.columns]
    hparams = [name for name in scores.columns if name.startswith("hparam_")]
    own = [*dict.fromkeys([*by, *hparams, *CORPUS, "repeat_index", "run_index"])]
    return scores.unique(own, keep="first", maintain_order=True)


def information(
    scores: pl.DataFrame,
    hparams: Sequence[str],
    permutations: int = 200,
    least_train_accuracy: float = LEAST_TRAIN_ACCURACY,
) -> pl.DataFrame:
    """Return conditional mutual information of each score and the generalisation gap.

    One model of each configuration at a time, as PRC has it: those of one repeat and run index are
    a corpus. Between corpora seeds differ, and test sets where repeats do.

    Parameters
    ----------
    scores : frame
        `CORPUS`, repeat_index, run_index, the columns of `counts.scores` and those of `hparams`;
        a model that stands there several times (`distinct`) counts once.
    hparams : sequence of str
        Columns that models may differ in. Augmentation is none of them, as in PRC.
    permutations : int
    least_train_accuracy : float
        Below it a model is left out where a transform has both signs, as are those without a gap.

    Returns
    -------
    frame
        `SCHEMA`, a row for each corpus, and measure or combination of two: means over its corpora,
        cmi_sd their standard deviation (n - 1), n_models and n_excluded over all of them, given,
        n_bins and n_pairs of the first. Cmi is null where corpora have fewer than `FEWEST_MODELS`,
        and a measure is left out where it is undefined for a model.
    """
    rows = []
    for key, own in distinct(scores).group_by(CORPUS, maintain_order=True):
        signed = own["gi_folded"].null_count() < own.height
        kept = own.filter(~excluded(least_train_accuracy))
        singles = [*_SINGLE, *([_SHIFTED] if signed else [])]
        found: dict[str, list[Cmi | None]] = {
            name: [] for name in singles if not own[name].null_count()
        }
        for _, models in kept.group_by("repeat_index", "run_index", maintain_order=True):
            given = {name: _values(models[name]) for name in hparams}
            for name, measure in _measures(models, signed=signed):
                one = None
                if models.height >= FEWEST_MODELS:
                    gap = models["gap"].to_numpy()
                    one = cmi(measure, gap, given, permutations=permutations)
                found.setdefault(name, []).append(one)
        counts = {"n_models": kept.height, "n_excluded": own.height - kept.height}
        rows += [
            dict(zip(CORPUS, key, strict=True)) | {"measure": name} | counts | _summary(of)
            for name, of in found.items()
        ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _values(column: pl.Series) -> np.ndarray[Any, Any]:
    """Return values that are compared for equality: as text, null where there is none."""
    return column.cast(pl.String).fill_null("").to_numpy()


def _measures(models: pl.DataFrame, *, signed: bool) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield the measures that all models have, so that each rises with the gap."""
    singles = [*_SINGLE, *([_SHIFTED] if signed else [])]
    there = {
        name: oriented(name, models[name].to_numpy())
        for name in singles
        if not models[name].null_count()
    }
    yield from there.items()
    pair = ("gi_folded", "mean_accuracy") if signed else ("gi", "end_accuracy")
    if models.height > 1 and all(name in there for name in pair):
        both = np.stack([there[name] for name in pair], axis=1)
        for by in COMBINATIONS:
            yield f"{by}({', '.join(pair)})", combine(both, by)
    if models.height > 1 and not signed and "dbi" in there and "end_accuracy" in there:
        yield "prod(dbi, end_accuracy)", there["dbi"] * there["end_accuracy"]


def _summary(corpora: Sequence[Cmi | None]) -> dict[str, float | int | str | None]:
    known = [one for one in corpora if one is not None]
    if not known:
        return {"n_corpora": len(corpora)}
    found = [one.cmi for one in known if one.cmi is not None]
    means = ("cmi", "cmi_paper", "tied", "null_mean", "null_q95", "pearson", "spearman")
    return {
        **{name: _mean([getattr(one, name) for one in known]) for name in means},
        "cmi_sd": float(np.std(found, ddof=1)) if len(found) > 1 else None,
        "given": "+".join(known[0].given) or "nothing",
        "n_corpora": len(corpora),
        "n_bins": known[0].n_bins,
        "n_pairs": known[0].n_pairs,
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
