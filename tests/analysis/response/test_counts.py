"""Counts → scores, curves and corpora, against loops and planted models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from manyseed.analysis.alphahat.resampling import disjoint_halves, generator
from manyseed.analysis.alphahat.trimming import dkw_threshold, smallest_trimming_level
from manyseed.analysis.response import cmi, gi, oriented
from manyseed.analysis.response.corpora import (
    CORPUS,
    FEWEST_MODELS,
    excluded,
    information,
    sensitivity,
)
from manyseed.analysis.response.curves import (
    MOST_SAMPLES,
    Answers,
    repeat_curves,
    run_curves,
    samples,
    scores,
    spectra,
)

PAIR, SIGNED = np.linspace(0, 0.5, 3), np.linspace(-90, 90, 5)


def answers(n_runs=4, draws=2, seed=0):
    rng = np.random.default_rng(seed)
    magnitudes = np.full((2, 5), np.nan)
    magnitudes[0, :3], magnitudes[1] = PAIR, SIGNED
    total = np.zeros((n_runs, 2, draws, 5), dtype=np.uint32)
    total[:, 0, :, :3] = rng.integers(5, 20, (n_runs, draws, 1))
    total[:, 1] = 30
    right = rng.integers(0, total + 1).astype(np.uint32)
    parts = rng.integers(20, 50, (n_runs, 2, 4)).astype(np.uint32)
    parts[:, 0, [1, 3]] = 0
    wrong = rng.integers(0, 20, parts.shape).astype(np.uint32)
    return Answers(
        right, total, parts - np.minimum(wrong, parts), parts, ["intra", "rotate:90"], [1, 0],
        magnitudes,
    )  # fmt: skip


def test_scores_are_those_of_the_mean_curve_of_each_run():
    given = answers()
    runs = pl.DataFrame({"cell": [0, 0, 1, 1], "run_index": [0, 1, 0, 1]})
    found = scores(given, runs)
    assert found.height == 8
    for number, (transform, grid) in enumerate((("intra", PAIR), ("rotate:90", SIGNED))):
        own = found.filter(transform=transform)
        for run in range(4):
            row = own.row(run, named=True)
            each = []
            for draw in range(2):
                right, total = (
                    values[run, number, draw, : len(grid)].astype(float)
                    for values in (given.right, given.total)
                )
                each.append(right / total)
            assert row["gi"] == pytest.approx(gi(grid, np.mean(each, axis=0)))
            assert row["gi"] == pytest.approx(np.mean([gi(grid, curve) for curve in each]))
            assert row["gi_draws_sd"] == pytest.approx(np.std([gi(grid, c) for c in each], ddof=1))
            assert row["end_accuracy"] == pytest.approx(np.mean(each, axis=0)[-1])
            assert row["n_pairs"] == given.total[run, number, :, 0].sum()
            share = given.shifted_right[run, number] / given.shifted_total[run, number].clip(1)
            test = share[3] if transform != "intra" else share[2]
            assert row["gap"] == pytest.approx(share[0] - test)
            assert (row["gi_folded"] is None) == (transform == "intra")
            assert (row["pal"] is None) == (transform != "intra")
            assert (row["shifted_test_accuracy"] is None) == (transform == "intra")


def test_accuracy_is_pooled_over_batches_not_their_mean():
    """10 right of 10 pairs in one batch, 0 of 2 in the other: 10 / 12, not a half."""
    given = answers(1, 1)
    given.right[0, 0, 0, :3], given.total[0, 0, 0, :3] = 10, 12
    found = scores(given, pl.DataFrame({"cell": [0]})).filter(transform="intra")
    assert found["mean_accuracy"][0] == pytest.approx(10 / 12)


def test_nothing_counted_is_null():
    given = answers(2, 1)
    given.total[0, 0], given.right[0, 0] = 0, 0
    found = scores(given, pl.DataFrame({"cell": [0, 1]})).filter(transform="intra")
    assert found["gi"].null_count() == found["mean_accuracy"].null_count() == 1
    assert found["gi_draws_sd"].null_count() == 2  # of one draw
    assert found["n_pairs"].to_list()[0] == 0


def test_curves_of_repeats_are_over_runs():
    given = answers()
    runs = pl.DataFrame({"cell": [0, 0, 1, 1], "repeat_index": [0, 0, 0, 0]})
    found = repeat_curves(run_curves(given, runs))
    assert found.height == 2 * (3 + 5)
    row = found.filter(cell=1, transform="rotate:90", magnitude=-45.0).row(0, named=True)
    share = (given.right[2:, 1, :, 1] / given.total[2:, 1, :, 1]).mean(axis=1)
    assert row["accuracy"] == pytest.approx(share.mean())
    assert row["accuracy_std"] == pytest.approx(np.std(share, ddof=1))
    assert (row["accuracy_min"], row["accuracy_max"], row["n_runs"]) == (
        pytest.approx(share.min()), pytest.approx(share.max()), 2,
    )  # fmt: skip


def planted(runs=3, signed=False, seed=0, dbi=False):
    """Models of a grid depth × width; gi follows the gap, end_accuracy says nothing."""
    rng = np.random.default_rng(seed)
    rows = []
    for depth in (1, 2, 3):
        for width in (8, 16, 32, 64):
            for run in range(runs):
                gap = 0.1 * depth + rng.normal(0, 0.05)
                rows.append(
                    {
                        "dataset": "d", "classifier": "c", "transform": "t", "layer": 0,
                        "repeat_index": 0, "run_index": run,
                        "hparam_depth": depth, "hparam_width": width, "gap": gap,
                        "gi": gap + rng.normal(0, 0.005),
                        "gi_folded": gap if signed else None, "pal": 50 + rng.normal(),
                        "pal_printed": 5 + rng.normal(), "mean_accuracy": 0.5 + rng.normal(0, 0.01),
                        "end_accuracy": 0.5 + rng.normal(0, 0.01), "shifted_train_accuracy": 0.5,
                        "train_accuracy": 0.7 if width == 8 else 0.99,
                        "dbi": 2 * gap if dbi else None,
                    }
                )  # fmt: skip
    schema = {"layer": pl.UInt8, "gi_folded": pl.Float64, "dbi": pl.Float64}
    return pl.DataFrame(rows, schema_overrides=schema)


HPARAMS = ["hparam_depth", "hparam_width"]


def test_each_run_index_is_a_corpus_and_the_verdict_varies_between_them():
    models = planted()
    found = information(models, HPARAMS, permutations=40)
    by = {row["measure"]: row for row in found.iter_rows(named=True)}
    assert {"gi", "end_accuracy", "pal", "npca(gi, end_accuracy)"} <= by.keys()
    assert "gi_folded" not in by
    each = []
    for run in range(3):
        own = models.filter(run_index=run)
        given = {name: own[name].to_numpy() for name in HPARAMS}
        measure = oriented("gi", own["gi"].to_numpy())
        each.append(cmi(measure, own["gap"].to_numpy(), given, permutations=40))
    assert by["gi"]["cmi"] == pytest.approx(np.mean([one.cmi for one in each]))
    assert by["gi"]["cmi_sd"] == pytest.approx(np.std([one.cmi for one in each], ddof=1))
    assert by["gi"]["null_q95"] == pytest.approx(np.mean([one.null_q95 for one in each]))
    assert by["gi"]["cmi"] > by["gi"]["null_q95"]
    assert by["end_accuracy"]["cmi"] < by["gi"]["cmi"] / 2
    assert (by["gi"]["n_corpora"], by["gi"]["n_models"], by["gi"]["n_excluded"]) == (3, 36, 0)


def test_the_index_of_the_first_block_is_a_measure_where_it_was_taken():
    by = {
        row["measure"]: row
        for row in information(planted(dbi=True), HPARAMS, permutations=40).iter_rows(named=True)
    }
    assert by["dbi"]["cmi"] == pytest.approx(100)
    assert "prod(dbi, end_accuracy)" in by
    assert not information(planted(), HPARAMS, permutations=0)["measure"].str.contains("dbi").any()
    given = answers()
    runs = pl.DataFrame({"cell": [0, 0, 1, 1], "run_index": [0, 1, 0, 1]})
    assert scores(given, runs)["dbi"].null_count() == 8
    taken = replace(given, dbi=np.array([1.0, 2.0, np.nan, 4.0]))
    assert scores(taken, runs)["dbi"].to_list() == [1, 2, None, 4] * 2


def test_models_that_did_not_learn_are_left_out_where_a_transform_has_both_signs():
    found = information(planted(signed=True), HPARAMS, permutations=0)
    assert found["n_models"].unique().to_list() == [27]
    assert found["n_excluded"].unique().to_list() == [9]
    assert "rank(gi_folded, mean_accuracy)" in found["measure"].to_list()


def test_how_much_a_model_must_have_learned_can_be_said():
    models = planted(signed=True)
    for least, left in ((0.0, 0), (0.7, 0), (0.71, 9), (1.0, 36)):
        found = information(models, HPARAMS, permutations=0, least_train_accuracy=least)
        assert found["n_excluded"].unique().to_list() == [left]
        assert models.filter(excluded(least)).height == left
    assert not models.filter(excluded()).is_empty()
    assert planted().filter(excluded(1.0)).is_empty()  # of one sign all take part
    assert planted().with_columns(gap=pl.lit(None, pl.Float64)).filter(excluded()).height == 36


def test_hparams_that_are_not_given_are_not_conditioned_on():
    rows = planted().with_columns(gi=pl.col("hparam_depth") / 10)
    both, one = (
        information(rows, names, permutations=0).filter(measure="gi")
        for names in (HPARAMS, HPARAMS[1:])
    )
    assert both["cmi"][0] == pytest.approx(0, abs=1e-9)
    assert one["cmi"][0] > 20


def test_where_no_model_learned_the_table_says_so():
    models = planted(signed=True).with_columns(train_accuracy=pl.lit(0.5))
    found = information(models, HPARAMS, permutations=0)
    assert found.filter(measure="gi")["n_excluded"].to_list() == [36]
    assert found["n_models"].unique().to_list() == [0]
    assert found["cmi"].null_count() == found.height


def test_few_models_have_no_cmi():
    few = planted().filter(hparam_width=8)
    assert few.filter(run_index=0).height < FEWEST_MODELS
    found = information(few, HPARAMS)
    assert found["cmi"].null_count() == found.height > 0
    assert found["n_models"].unique().to_list() == [9]


def test_without_varying_hparams_the_empty_set_alone_is_given():
    models = planted().with_columns(hparam_depth=pl.lit(1), hparam_width=pl.lit(1))
    found = information(models, HPARAMS, permutations=0)
    assert set(found["given"]) == {"nothing"}


def over_responses(layers=(0, 1)):
    """Four responses of the same models, with scores of their own."""
    parts = []
    for number, (transform, layer) in enumerate(
        (t, layer) for t in ("inter", "intra") for layer in layers
    ):
        own, rng = planted(runs=2), np.random.default_rng(number)
        parts.append(
            own.with_columns(
                transform=pl.lit(transform),
                layer=pl.lit(layer, pl.UInt8),
                gi=pl.col("gap") + pl.Series(rng.normal(0, 0.05 + 0.02 * number, own.height)),
                pal=pl.Series(50 + rng.normal(0, 3, own.height)),
            )
        )
    signed = planted(runs=2, signed=True).with_columns(transform=pl.lit("rotate:90"))
    return pl.concat([*parts, signed]).sample(fraction=1, shuffle=True, seed=1)


def test_scores_are_combined_over_transforms_and_layers():
    """PRC, tables 4 to 9: beside measures that are put together by hand, model by model."""
    models = over_responses()
    plain = information(models, HPARAMS, permutations=20)
    found = information(models, HPARAMS, permutations=20, across=True)
    pair = pl.col("measure").str.contains(r" (intra|inter) |\(all ")
    assert found.filter(~pair).sort(*CORPUS, "measure").equals(plain.sort(*CORPUS, "measure"))
    added = found.filter(pair)
    assert set(added.select("transform", "layer").rows()) == {("intra", 0)}
    assert added["n_models"].unique().to_list() == [24]
    by = {row["measure"]: row for row in added.iter_rows(named=True)}
    gis = [f"gi {t} {layer}" for t in ("intra", "inter") for layer in (0, 1)]
    pals = [name.replace("gi", "pal") for name in gis]
    mix = "end_accuracy intra 0"
    named = [(a, b) for i, a in enumerate(gis) for b in gis[i + 1 :]]
    named += [(one, mix) for one in gis[1:]] + [(gis[0], pal) for pal in pals]
    named += [(pals[0], pal) for pal in pals[1:]]
    ways = ("avg", "prod", "prod+avg", "rank", "pca", "npca")
    whole = {f"{by}(all {x})" for by in ("pca", "npca") for x in ("gi", "pal", "gi and pal")}
    assert set(by) == {f"{way}({', '.join(two)})" for two in named for way in ways} | whole
    key = ["run_index", *HPARAMS]
    tables = {
        (t, layer): {
            tuple(row[name] for name in key): row
            for row in models.filter(transform=t, layer=layer).iter_rows(named=True)
        }
        for t in ("intra", "inter")
        for layer in (0, 1)
    }
    each: dict[str, list[float]] = {"avg": [], "prod": []}
    for run in (0, 1):
        order = [one for one in sorted(tables["intra", 0]) if one[0] == run]
        one = [tables["intra", 0][model]["gi"] for model in order]
        other = [1 - tables["inter", 1][model]["pal"] / 84 for model in order]
        gap = [tables["intra", 0][model]["gap"] for model in order]
        given = {name: [m[1 + place] for m in order] for place, name in enumerate(HPARAMS)}
        for way, both in (
            ("avg", [(a + b) / 2 for a, b in zip(one, other, strict=True)]),
            ("prod", [a * b for a, b in zip(one, other, strict=True)]),
        ):
            each[way].append(cmi(both, gap, given, permutations=0).cmi)
    for way, values in each.items():
        row = by[f"{way}(gi intra 0, pal inter 1)"]
        assert row["cmi"] == pytest.approx(np.mean(values))
        assert row["cmi_sd"] == pytest.approx(np.std(values, ddof=1))


def test_what_a_model_lacks_is_in_no_combination():
    models = over_responses(layers=(0,)).with_columns(
        pal=pl.when(transform="inter", run_index=0).then(None).otherwise("pal")
    )
    found = information(models, HPARAMS, permutations=0, across=True)
    both = found.filter(measure="avg(pal intra 0, pal inter 0)")
    assert both["n_corpora"].to_list() == [1]  # the seed that has it
    assert found.filter(measure="avg(gi intra 0, gi inter 0)")["n_corpora"].to_list() == [2]
    every = found.filter(pl.col("measure").str.contains("(all", literal=True))  # of two, the pair
    assert every.select("measure", "n_corpora").rows() == [
        ("pca(all gi and pal)", 1),
        ("npca(all gi and pal)", 1),
    ]


def test_samples_of_several_draws_pool_their_counts_and_share_no_draw():
    given = answers(n_runs=3, draws=11)
    runs = pl.DataFrame({"run_index": [0, 1, 2]})
    found = samples(given, runs)
    sizes = {1: 11, 2: 5, 4: 2, 8: 1, 11: 1}
    assert found.height == 2 * 3 * sum(sizes.values())
    for row in found.iter_rows(named=True):
        number = given.transforms.index(row["transform"])
        grid = given.grid(number)
        first = row["draws"] * row["sample"]
        right, total = (
            sum(
                counts[row["run_index"], number, draw, : len(grid)].astype(int)
                for draw in range(first, first + row["draws"])
            )
            for counts in (given.right, given.total)
        )
        assert row["gi"] == pytest.approx(gi(grid, right / total))
        assert row["n_pairs"] == total[0]
        assert row["sample"] < sizes[row["draws"]]
    many = answers(n_runs=1, draws=50)
    drawn = samples(many, pl.DataFrame({"run_index": [0]}))
    assert drawn.filter(transform="intra", draws=1).height == MOST_SAMPLES


def test_sensitivity_is_that_of_a_loop_over_models_and_corpora():
    rng = np.random.default_rng(3)
    depth = np.tile(np.repeat([1, 2], 8), 2)
    corpus = np.repeat([0, 1], 16)
    n = len(depth)
    known = pl.DataFrame(
        {
            **{name: ["x"] * n for name in ("dataset", "classifier")},
            "transform": ["intra"] * n,
            "layer": pl.Series([0] * n, dtype=pl.UInt8),
            "cell": np.tile(np.arange(16), 2),
            "repeat_index": 0,
            "run_index": corpus,
            "hparam_depth": depth,
            "gi": 0.0,
            "n_pairs": 0,
            "gap": rng.normal(size=n) + depth,
            "excluded": [False] * (n - 1) + [True],
        }
    )
    rows = [
        {
            **{name: one[name] for name in ("cell", "repeat_index", "run_index", "transform")},
            "draws": draws,
            "sample": sample,
            "n_pairs": 10 * draws,
            "gi": one["gap"] / 9 + rng.normal() / draws,
        }
        for one in known.iter_rows(named=True)
        for draws, m in ((1, 3), (2, 1))
        for sample in range(m)
    ]
    drawn = pl.DataFrame(rows).with_columns(layer=pl.lit(0, dtype=pl.UInt8))
    found = sensitivity(drawn, known, ["hparam_depth"])
    assert found["draws"].to_list() == [1, 2]
    kept = known.filter(~pl.col("excluded"))
    for row in found.iter_rows(named=True):
        of_models, told = [], {0: [], 1: []}
        for one in kept.iter_rows(named=True):
            own = drawn.filter(cell=one["cell"], run_index=one["run_index"], draws=row["draws"])
            of_models.append(own["gi"].to_list())
        for run, values in told.items():
            models = kept.filter(run_index=run)
            for sample in range(row["n_samples"]):
                score = [
                    drawn.filter(cell=cell, run_index=run, draws=row["draws"], sample=sample)["gi"][
                        0
                    ]
                    for cell in models["cell"]
                ]
                given = {"depth": models["hparam_depth"].to_numpy()}
                values.append(cmi(np.array(score), models["gap"].to_numpy(), given).cmi)
        assert row["n_models"] == len(of_models) == 31
        assert row["n_corpora"] == 2
        assert row["n_pairs"] == 10 * row["draws"]
        assert row["cmi"] == pytest.approx(np.mean([np.mean(v) for v in told.values()]))
        if row["draws"] == 2:
            assert (row["n_samples"], row["gi_sd"], row["cmi_sd"]) == (1, None, None)
            continue
        assert row["n_samples"] == 3
        assert row["gi_sd"] == pytest.approx(
            np.sqrt(np.mean([np.var(v, ddof=1) for v in of_models]))
        )
        assert row["cmi_sd"] == pytest.approx(
            np.sqrt(np.mean([np.var(v, ddof=1) for v in told.values()]))
        )


def test_spectra_of_runs_are_described_and_compared_by_the_largest_value():
    rng = np.random.default_rng(1)
    values = np.sort(rng.gamma(4, size=(5, 200, 3)), axis=2)[..., ::-1].copy()
    values[3, :100] += 3  # unlike the others
    values[4, :20] = np.nan
    halves = disjoint_halves(generator(0, "spectra", "d", 0), 200, 20)
    runs = pl.DataFrame({"run_index": [*range(5)]})
    found = spectra(values, runs, halves, 0.05)
    assert found.height == 15
    delta = dkw_threshold(100, 0.05)
    for row in found.iter_rows(named=True):
        own = values[row["run_index"], :, row["rank"] - 1]
        known = own[np.isfinite(own)]
        assert row["n_points"] == known.size
        for name, share in (("q05", 0.05), ("median", 0.5), ("q95", 0.95)):
            assert row[name] == pytest.approx(np.quantile(known, share))
        assert row["mean"] == pytest.approx(known.mean())
        if row["rank"] > 1 or row["run_index"] == 4:
            assert (row["alpha_hat"], row["delta"]) == (None, None)
            continue
        others = [run for run in range(4) if run != row["run_index"]]
        levels = [
            smallest_trimming_level(
                values[row["run_index"], candidate > 0, 0],
                values[others][:, reference > 0, 0].ravel(),
                delta,
            )
            for candidate, reference in zip(halves.candidate, halves.reference, strict=True)
        ]
        assert row["alpha_hat"] == pytest.approx(np.mean(levels))
        assert row["delta"] == delta
    by_run = dict(found.filter(rank=1).select("run_index", "alpha_hat").rows())
    assert by_run[3] > 0.2 > max(by_run[0], by_run[1], by_run[2])
    alone = spectra(values[:2], runs[:2], halves, 0.05)
    assert alone["alpha_hat"].null_count() == alone.height
