"""Whether a score predicts which of a sweep's models generalise worse, beyond their hparams."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
import polars as pl

from manyseed.analysis.axes import AXES
from manyseed.analysis.response.information import (
    COMBINATIONS,
    Cmi,
    GivenHparams,
    cmi,
    combine,
    oriented,
    weakest,
)
from manyseed.analysis.tables.schema import records

CORPUS = ("dataset", "classifier", "transform", "layer")
"""Only models that share these are compared."""

LEAST_TRAIN_ACCURACY = 0.8
"""Default; models below it are left out for transforms with both signs (PRC, 4.2)."""

FEWEST_MODELS = 8
"""With fewer, conditional mutual information is not computed: it would be all bias."""

_SINGLE = ("gi", "gi_folded", "pal", "pal_printed", "mean_accuracy", "end_accuracy", "dbi")
_SHIFTED = "shifted_train_accuracy"

SCHEMA = records()["cmi"].types


def excluded(least_train_accuracy: float = LEAST_TRAIN_ACCURACY) -> pl.Expr:
    """Return which rows of scores are left out; `information` says why."""
    signed = pl.col("gi_folded").is_not_null().any().over(CORPUS)
    unlearned = signed & (pl.col("train_accuracy") < least_train_accuracy)
    return (pl.col("gap").is_null() | unlearned).fill_null(value=True)


def distinct(scores: pl.DataFrame) -> pl.DataFrame:
    """Return each model once: cells that differ only in `test_augment` hold the same models.

    Parameters
    ----------
    scores : frame
        `CORPUS`, repeat_index, run_index, and axes; without `test_augment` all rows are returned.
    """
    if "test_augment" not in scores.columns:
        return scores
    axes = [axis for axis in AXES if axis != "test_augment" and axis in scores.columns]
    hparams = [name for name in scores.columns if name.startswith("hparam_")]
    key = [*dict.fromkeys([*axes, *hparams, *CORPUS, "repeat_index", "run_index"])]
    return scores.unique(key, keep="first", maintain_order=True)


def information(
    scores: pl.DataFrame,
    hparams: Sequence[str],
    permutations: int = 200,
    least_train_accuracy: float = LEAST_TRAIN_ACCURACY,
    *,
    across: bool = False,
) -> pl.DataFrame:
    """Return the conditional mutual information of each score and the generalisation gap.

    As in PRC, a corpus has one model of each configuration: those of one repeat and run index.
    Corpora differ in seeds and, between repeats, in test sets.

    Parameters
    ----------
    scores : frame
        `CORPUS`, repeat_index, run_index, the columns of `curves.scores` and those of `hparams`;
        a model that appears several times (`distinct`) counts once.
    hparams : sequence of str
        Columns that models may differ in; as in PRC, without augmentation.
    permutations : int
    least_train_accuracy : float
        Models below it are left out for transforms with both signs. Models without a gap always
        are.
    across : bool
        Whether to combine scores of several transforms and layers, too (PRC, tables 4 to 9).

    Returns
    -------
    frame
        `SCHEMA`, a row for each value of `CORPUS` and measure or combination of two: means over its
        corpora, cmi_sd their standard deviation (n - 1), p that of the means, n_models and
        n_excluded over all of them; given, n_bins and n_pairs of the first. Cmi is null if corpora
        have fewer models than `FEWEST_MODELS`, and a measure is left out if it is undefined for a
        model.
    """
    rows = []
    models_once = distinct(scores)

    def informed(models: pl.DataFrame, measure: np.ndarray[Any, Any]) -> Cmi | None:
        if models.height < FEWEST_MODELS:
            return None
        given = _given(models, hparams)
        return cmi(measure, models["gap"].to_numpy(), given, permutations=permutations)

    for key, every in models_once.group_by(CORPUS, maintain_order=True):
        signed = every["gi_folded"].null_count() < every.height
        kept = every.filter(~excluded(least_train_accuracy))
        results: dict[str, list[Cmi | None]] = {name: [] for name in _defined(every, signed=signed)}
        for _, models in kept.group_by("repeat_index", "run_index", maintain_order=True):
            for name, measure in _measures(models, signed=signed):
                results.setdefault(name, []).append(informed(models, measure))
        counts = {"n_models": kept.height, "n_excluded": every.height - kept.height}
        rows += [
            dict(zip(CORPUS, key, strict=True)) | {"measure": name} | counts | _summary(corpora)
            for name, corpora in results.items()
        ]
    for first, whole in _whole(models_once) if across else ():
        results = {}
        for _, models in whole.group_by("repeat_index", "run_index", maintain_order=True):
            for name, measure in _across(models):
                results.setdefault(name, []).append(informed(models, measure))
        counts = {"n_models": whole.height, "n_excluded": 0}
        rows += [
            first | {"measure": name} | counts | _summary(corpora)
            for name, corpora in results.items()
        ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


DRAWS_SCHEMA = records()["response_draws"].types


def sensitivity(
    samples: pl.DataFrame, scores: pl.DataFrame, hparams: Sequence[str]
) -> pl.DataFrame:
    """Return how much gi, and what it says, depend on the number of draws (PRC, 4.1.3 and A.7).

    Parameters
    ----------
    samples : frame
        As `curves.samples` returns it, of all groups.
    scores : frame
        The scores of the same models, as `information` takes them, and the column `excluded`.
    hparams : sequence of str

    Returns
    -------
    frame
        `DRAWS_SCHEMA` but for seconds: a row for each value of `CORPUS` and number of draws.
    """
    answer = ["cell", "repeat_index", "run_index", "transform", "layer"]
    models = distinct(scores).filter(~pl.col("excluded"))
    joined = models.drop("gi", "n_pairs").join(
        samples, on=answer, how="inner", maintain_order="left"
    )
    rows = []
    for key, own in joined.group_by(*CORPUS, "draws", maintain_order=True):
        n = int(own["sample"].n_unique())
        told: list[list[float]] = []
        for _, corpus in own.group_by("repeat_index", "run_index", maintain_order=True):
            of_sample = [one for _, one in corpus.group_by("sample", maintain_order=True)]
            if of_sample[0].height < FEWEST_MODELS:
                continue
            found = (_cmi_of(one, hparams) for one in of_sample)
            told.append([one for one in found if one is not None])
        of_models = own.partition_by("cell", "repeat_index", "run_index", maintain_order=True)
        known = [values for values in told if values]
        rows.append(
            dict(zip((*CORPUS, "draws"), key, strict=True))
            | {
                "n_samples": n,
                "n_models": len(of_models),
                "n_corpora": len(known),
                "n_pairs": float(own["n_pairs"].to_numpy().mean()),
                "gi_sd": _pooled_sd([one["gi"].drop_nans().to_list() for one in of_models]),
                "cmi": _mean([float(np.mean(values)) for values in known]),
                "cmi_sd": _pooled_sd(known),
            }
        )
    found_rows = pl.DataFrame(rows, schema=DRAWS_SCHEMA, orient="row")
    return found_rows.sort(*CORPUS, "draws")


def _pooled_sd(groups: Sequence[Sequence[float]]) -> float | None:
    """Return the pooled standard deviation: a mean of those of few values would be too small."""
    variances = [float(np.var(values, ddof=1)) for values in groups if len(values) > 1]
    return math.sqrt(np.mean(variances)) if variances else None


def _cmi_of(models: pl.DataFrame, hparams: Sequence[str]) -> float | None:
    score, gap = models["gi"].to_numpy(), models["gap"].to_numpy()
    if np.isnan(score).any():
        return None
    return cmi(score, gap, _given(models, hparams), permutations=0).cmi


def _given(models: pl.DataFrame, hparams: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
    # as text, because values are only compared for equality
    return {name: models[name].cast(pl.String).fill_null("").to_numpy() for name in hparams}


def _defined(models: pl.DataFrame, *, signed: bool) -> list[str]:
    """Return the scores that all models have."""
    names = [*_SINGLE, *([_SHIFTED] if signed else [])]
    return [name for name in names if not models[name].null_count()]


def _measures(models: pl.DataFrame, *, signed: bool) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield the scores that all models have and their combinations, rising with the gap."""
    singles = {
        name: oriented(name, models[name].to_numpy()) for name in _defined(models, signed=signed)
    }
    yield from singles.items()
    pair = ("gi_folded", "mean_accuracy") if signed else ("gi", "end_accuracy")
    if models.height > 1 and all(name in singles for name in pair):
        both = np.stack([singles[name] for name in pair], axis=1)
        for by in COMBINATIONS:
            yield f"{by}({', '.join(pair)})", combine(both, by)
    if models.height > 1 and not signed and "dbi" in singles and "end_accuracy" in singles:
        yield "prod(dbi, end_accuracy)", singles["dbi"] * singles["end_accuracy"]


def _whole(scores: pl.DataFrame) -> Iterator[tuple[dict[str, Any], pl.DataFrame]]:
    """Yield the models of each dataset and classifier with what they answered to interpolation.

    Their gap is the same for all of these. Yields the first transform and layer, as a mapping of
    `CORPUS`, and columns such as "gi intra 0".
    """
    unsigned = scores.filter(
        pl.col("gi_folded").is_null().all().over(CORPUS), pl.col("gap").is_not_null()
    )
    axes = [axis for axis in AXES if axis != "test_augment" and axis in scores.columns]
    hparams = [name for name in scores.columns if name.startswith("hparam_")]
    key = [*dict.fromkeys([*axes, *hparams, "repeat_index", "run_index"])]
    for (dataset, classifier), own in unsigned.group_by(CORPUS[:2], maintain_order=True):
        asked = own.select("transform", "layer").unique().rows()
        asked.sort(key=lambda one: (one[0] != "intra", *one))
        whole = own.filter(transform=asked[0][0], layer=asked[0][1]).select(*key, "gap")
        for transform, layer in asked:
            named = [pl.col(name).alias(f"{name} {transform} {layer}") for name in ("gi", "pal")]
            if (transform, layer) == ("intra", 0):
                named.append(pl.col("end_accuracy").alias(_MIXUP))
            answered = own.filter(transform=transform, layer=layer).select(*key, *named)
            whole = whole.join(answered, on=key, nulls_equal=True, maintain_order="left")
        yield dict(zip(CORPUS, (dataset, classifier, *asked[0]), strict=True)), whole


_MIXUP = "end_accuracy intra 0"


def _across(models: pl.DataFrame) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield combinations of scores of several transforms and layers, rising with the gap.

    PRC, tables 4 to 9: of every two Gi; of a Gi with Mixup; of the first Gi with every Pal; of the
    first Pal with every other; and by principal components of all Gi, of all Pal, and of both.
    """
    gi, pal, mixup = (
        [name for name in models.columns if name.startswith(start)]
        for start in ("gi ", "pal ", _MIXUP)
    )
    known = {
        name: oriented(name.partition(" ")[0], models[name].to_numpy())
        for name in (*gi, *pal, *mixup)
        if not models[name].null_count()
    }
    pairs = [
        *combinations(gi, 2),
        *product(gi[1:], mixup),  # that of the first is with the scores of its own response
        *product(gi[:1], pal),
        *product(pal[:1], pal[1:]),
    ]
    chosen: dict[str, tuple[Sequence[str], Sequence[str]]]
    chosen = {", ".join(pair): (pair, COMBINATIONS) for pair in pairs}
    for name, every in (("all gi", gi), ("all pal", pal), ("all gi and pal", [*gi, *pal])):
        if len(every) > 2:
            chosen[name] = (every, ("pca", "npca"))
    for names, (parts, ways) in chosen.items():
        if models.height > 1 and known.keys() >= {*parts}:
            stacked = np.stack([known[name] for name in parts], axis=1)
            for by in ways:
                yield f"{by}({names})", combine(stacked, by)


def _summary(corpora: Sequence[Cmi | None]) -> dict[str, float | int | str | None]:
    known = [corpus for corpus in corpora if corpus is not None]
    if not known:
        return {"n_corpora": len(corpora)}
    values = [corpus.cmi for corpus in known if corpus.cmi is not None]
    means = ("cmi", "cmi_paper", "tied", "null_mean", "null_q95", "pearson", "spearman")
    return {
        **{name: _mean([getattr(corpus, name) for corpus in known]) for name in means},
        "cmi_sd": float(np.std(values, ddof=1)) if len(values) > 1 else None,
        "p": _p(known),
        "given": "+".join(known[0].given) or "nothing",
        "n_corpora": len(corpora),
        "n_bins": known[0].n_bins,
        "n_pairs": known[0].n_pairs,
    }


def _p(corpora: Sequence[Cmi]) -> float | None:
    """Return p of the means over corpora, of the set of hparams for which it is the largest."""
    parts: dict[tuple[str, ...], list[GivenHparams]] = {}
    for corpus in corpora:
        for one in corpus.sets:
            parts.setdefault(one.hparams, []).append(one)
    means = [
        GivenHparams(
            names,
            float(np.mean([one.value for one in own])),
            float(np.mean([one.null_mean for one in own])),
            float(np.mean([one.null_q95 for one in own])),
        )
        for names, own in parts.items()
    ]
    least = weakest(means)
    return None if least is None else least.p


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
