"""Figures and tables of response curves, of planted models."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from manyseed.analysis.axes import AXES
from manyseed.analysis.figures.responses import (
    equal_ends,
    gaps,
    response_curves,
    response_pairs,
    sensitivity,
    spectra,
)
from manyseed.analysis.report.responses import of_responses
from manyseed.analysis.response import cumulative, gi
from manyseed.analysis.response.corpora import distinct, excluded, information
from tests.analysis.questions.test_scores import HPARAMS, corpus

GRID = np.linspace(0, 0.5, 11)


def curves():
    """Return mean curves of four configurations; two end alike, at .6."""
    u = GRID / 0.5
    planted = {
        ("none", "depth=1"): 1 - 0.4 * u,
        ("none", "depth=2"): 1 - 0.4 * u**4,
        ("rotate:45", "depth=1"): 1 - 0.1 * u,
        ("rotate:45", "depth=2"): 1 - 0.2 * u,
    }
    return pl.concat(
        pl.DataFrame(
            {
                "dataset": "d",
                "classifier": "c",
                "augment": augment,
                "hparams": hparams,
                "train_fraction": 1.0,
                "vary": "init+batch",
                "perturb_continuous": "none",
                "perturb_categorical": "none",
                "perturb_hparams": "none",
                "ensembling": "none",
                "cell": cell,
                "repeat_index": 0,
                "transform": "intra",
                "layer": 0,
                "magnitude": GRID,
                "n_runs": 3,
                "accuracy": curve,
                "accuracy_min": curve - 0.01,
                "accuracy_max": np.minimum(curve + 0.01, 1),
            }
        )
        for cell, ((augment, hparams), curve) in enumerate(planted.items())
    )


def by_level(plot):
    """The numbers of a figure, line by line."""
    (level,) = (name for name in ("augment", "hparams") if name in plot.data.columns)
    return plot.data.group_by(level, maintain_order=True)


def test_curves_are_means_over_models_in_their_range():
    (plot,) = response_curves(curves(), "curves")
    (axis,) = plot.figure.axes
    none, half = axis.lines
    u = GRID / 0.5
    np.testing.assert_allclose(none.get_ydata(), 1 - 0.2 * u - 0.2 * u**4)
    np.testing.assert_allclose(half.get_ydata(), 1 - 0.15 * u)
    assert len(axis.collections) == 2
    for line, (_, own) in zip(axis.lines, by_level(plot), strict=True):
        assert own.select("magnitude", "mean").to_numpy() == pytest.approx(line.get_xydata())
        assert (own["low"] <= own["mean"]).all()
    assert plot.n == 12
    assert "n = 12 models" in plot.caption
    (plot,) = response_curves(curves(), "cumulative")
    *lines, ideal = plot.figure.axes[0].lines
    for line, (_, own) in zip(lines, by_level(plot), strict=True):
        told = own.select("share_of_magnitudes", "cumulative").to_numpy()
        assert told == pytest.approx(line.get_xydata())
    assert list(ideal.get_ydata()) == [0, 1]
    x, y = lines[1].get_data()
    np.testing.assert_allclose(y, cumulative(GRID, 1 - 0.15 * u))
    area = 2 * np.trapezoid(x - y, x)
    assert area == pytest.approx(gi(GRID, 1 - 0.15 * u))


def test_the_pair_of_equal_ends_is_found():
    (plot,) = response_pairs(curves())
    u = GRID / 0.5
    steep, late = gi(GRID, 1 - 0.4 * u), gi(GRID, 1 - 0.4 * u**4)
    assert f"gi {late:.3f} and 0.600 at the end (depth=2 · none)" in plot.caption
    assert f"gi {steep:.3f} and 0.600 at the end (depth=1 · none)" in plot.caption
    assert plot.n == 6
    ends = plot.data.filter(pl.col("magnitude") == GRID[-1])["accuracy"].to_list()
    assert ends == pytest.approx([0.6, 0.6])
    assert plot.data["cell"].n_unique() == 2
    assert response_pairs(curves().filter(pl.col("cell") != 1)) == []  # no two end alike
    of_one = (pl.col("cell") == 1) & (pl.col("magnitude") == pl.col("magnitude").max())
    assert response_pairs(curves().filter(~of_one)) == []  # a curve without its end


def test_equal_ends_are_those_of_a_search_over_all_pairs():
    rng = np.random.default_rng(2)
    for _ in range(20):
        end, score = rng.uniform(0, 0.2, 15), rng.uniform(size=15)
        pairs = [
            (abs(score[i] - score[j]), i, j)
            for i in range(15)
            for j in range(i)
            if abs(end[i] - end[j]) <= 0.01
        ]
        found = equal_ends(end, score)
        if not pairs:
            assert found is None
            continue
        low, high = found
        assert score[high] - score[low] == pytest.approx(max(pairs)[0])
        assert abs(end[low] - end[high]) <= 0.01
    assert equal_ends(np.array([0.1, 0.5]), np.array([0.0, 1.0])) is None


def models(**options):
    table = corpus(**options)
    shown = table.with_columns(
        excluded=excluded(),
        cell=pl.int_range(pl.len()),
        hparams=pl.format("depth={},width={}", *HPARAMS),
    )
    return shown, information(table, HPARAMS, permutations=100)


def test_gaps_are_drawn_against_each_score_with_what_it_tells():
    table, found = models()
    first, second = gaps(found, table)
    assert [first.name, second.name] == ["response-gap-1", "response-gap-2"]
    titles = {
        axis.get_xlabel(): axis.get_title("left").replace("\n", " ") for axis in first.figure.axes
    }
    assert titles.keys() == {"gi", "mean accuracy", "end accuracy"}
    row = found.filter(measure="gi", transform="inter").row(0, named=True)
    assert titles["gi"].startswith(f"cmi {row['cmi']:.1f} ± {row['cmi_sd']:.1f}, r\xa00.9")
    assert titles["mean accuracy"].startswith("cmi as by chance")
    assert "n = 96 models." in first.caption
    dots = [len(one.get_offsets()) for one in first.figure.axes[0].collections]
    assert dots == [48, 48]  # none, full
    assert len(first.marks[0].runs) == 48


def test_models_left_out_are_not_drawn():
    table, found = models()
    table = table.with_columns(excluded=pl.col("run_index") == 0)
    found = found.with_columns(n_excluded=pl.lit(32, pl.UInt32))
    plot = gaps(found, table)[0]
    assert plot.n == 64
    assert "32 left out" in plot.caption


def test_tables_rank_what_is_beyond_chance_alone():
    table, found = models()
    told = {one.name: one for one in of_responses(table, found)}
    assert told.keys() == {"response-models", "response-measures", "response-combined"}
    for one in told.values():
        assert {len(row) for row in one.rows} == {len(one.heads)}
    rows = [row for row in told["response-measures"].rows if row[2] == "inter"]
    assert [row[3] for row in rows] == ["gi", "end_accuracy", "mean_accuracy"]
    assert [row[4] for row in rows][1:] == ["as by chance"] * 2
    assert rows[0][4].startswith(f"{found.filter(measure='gi', transform='inter')['cmi'][0]:.1f} ±")
    means = told["response-models"].rows
    assert [row[3] for row in means] == ["none", "full"] * 2
    assert [row[4] for row in means] == ["48"] * 4
    assert of_responses(None, None) == []
    assert of_responses(table, found.clear()) == []


def test_too_few_models_are_said_to_be():
    table, _ = models()
    few = table.head(6)
    found = information(few, HPARAMS)
    (plot,) = gaps(found, few)
    titles = {axis.get_title("left").split(",")[0] for axis in plot.figure.axes}
    assert titles == {"too few models"}
    measures = next(one for one in of_responses(few, found) if one.name == "response-measures")
    assert {row[4] for row in measures.rows} == {"fewer than 8 models"}
    alike = table.with_columns(gap=pl.lit(0.25))
    told = {one.name: one for one in of_responses(alike, information(alike, HPARAMS))}
    assert {row[4] for row in told["response-measures"].rows} == {"no gaps differ"}


def test_what_does_not_vary_is_not_given():
    table, _ = models(transforms=("intra",))
    found = information(table, [])
    rows = {row[3]: row for row in of_responses(table, found)[1].rows}
    assert rows["gi"][7] == "nothing"
    assert set(found["given"]) == {"nothing"}


def test_gi_stands_beside_its_baselines_where_magnitudes_have_both_signs():
    table, found = models(transforms=("rotate:90", "shift-x:0.25"), told=("gi", "mean_accuracy"))
    moved = table.with_columns(
        pl.Series("shifted_train_accuracy", np.random.default_rng(0).random(len(table))),
        gi_folded=pl.col("gi"),
        train_accuracy=pl.when(pl.col("run_index") == 0, pl.col("hparam_depth") == 0)
        .then(0.5)
        .otherwise(1.0),
    )
    found = information(moved, HPARAMS, permutations=100)
    table = {one.name: one for one in of_responses(moved, found)}["response-invariance"]
    assert {len(row) for row in table.rows} == {len(table.heads)}
    assert [row[2] for row in table.rows] == ["rotate:90", "shift-x:0.25"]
    for row in table.rows:
        assert row[3] == "88 of 96"
        own = found.filter(transform=row[2])
        for place, measure in ((4, "gi"), (6, "mean_accuracy")):
            one = own.filter(measure=measure).row(0, named=True)
            assert row[place] == f"{one['cmi']:.1f} ± {one['cmi_sd']:.1f}"
        assert row[5] == "as by chance"
    assert "response-invariance" not in {one.name for one in of_responses(*models())}


def test_models_of_cells_that_differ_in_test_augment_alone_count_once():
    """They share their fits: the same weights twice would be tied pairs and twice the models."""
    rest = dict.fromkeys(AXES, "none") | {"dataset": "d", "classifier": "c", "train_fraction": 1.0}
    own = {
        name: pl.lit(value) for name, value in rest.items() if name not in ("augment", "hparams")
    }
    table, _ = models()
    table = table.with_columns(**own)
    twice = pl.concat([table, table.with_columns(test_augment=pl.lit("rotate:45"))])
    assert distinct(twice).equals(table)
    once, again = (information(each, HPARAMS, permutations=20) for each in (table, twice))
    assert again.equals(once)
    means = [of_responses(each, once)[0].rows for each in (table, twice)]
    assert means[0] == means[1]


def drawn_by_size() -> pl.DataFrame:
    shape = {"dataset": "d", "classifier": "c", "layer": 0, "n_models": 24}
    return pl.DataFrame(
        [
            {
                **shape,
                "transform": transform,
                "draws": draws,
                "gi_sd": None if draws == 5 else 0.1 / draws,
                "cmi": 10.0 + draws,
                "cmi_sd": None if draws == 5 else 1.0 / draws,
                "seconds": 0.5 * draws,
            }
            for transform in ("intra", "rotate:90")
            for draws in (1, 2, 4, 5)
        ]
    )


def test_sensitivity_is_drawn_by_the_number_of_draws():
    (plot,) = sensitivity(drawn_by_size())
    time, spread, told = plot.figure.axes
    assert [line.get_ydata().tolist() for line in time.lines] == [[0.5, 1, 2, 2.5]] * 2
    line, by_chance, *_ = spread.lines
    assert line.get_xdata().tolist() == [1, 2, 4]  # all draws are one sample
    assert by_chance.get_ydata() == pytest.approx(0.1 / np.sqrt([1, 2, 4]))
    assert told.lines[0].get_ydata().tolist() == [11, 12, 14, 15]
    (band, _) = told.collections
    ends = band.get_paths()[0].get_extents()
    assert (ends.y0, ends.y1) == pytest.approx((10, 15))
    assert "n = 24 models" in plot.caption
    (plot,) = sensitivity(drawn_by_size().with_columns(gi_sd=pl.when(draws=1).then("gi_sd")))
    assert len({axis.get_xlim() for axis in plot.figure.axes}) == 1  # though one has one dot
    (plot,) = sensitivity(drawn_by_size().with_columns(seconds=pl.lit(None, pl.Float64)))
    assert len(plot.figure.axes) == 2  # the plan's estimate is not known


def test_spectra_are_drawn_by_level_with_a_dot_per_run():
    rows = [
        {
            "dataset": "d",
            "classifier": "c",
            "augment": augment,
            "cell": cell,
            "repeat_index": 0,
            "run_index": run,
            "rank": rank,
            "n_points": 7,
            **{name: (run + 2.0 + cell) / rank * k for name, k in QUANTILES.items()},
        }
        for cell, augment in enumerate(("none", "rotate:45"))
        for run in range(3)
        for rank in (1, 2)
    ]
    runs = pl.DataFrame(
        [
            {"cell": cell, "repeat_index": 0, "run_index": run, "accuracy": 0.9 - run / 100}
            for cell in range(2)
            for run in range(3)
        ]
    )
    (plot,) = spectra(pl.DataFrame(rows), runs)
    by_rank, each = plot.figure.axes
    assert [line.get_ydata().tolist() for line in by_rank.lines] == [[3, 1.5], [4, 2]]
    dots = np.concatenate([dots.get_offsets() for dots in each.collections])
    assert sorted(map(tuple, np.round(dots, 6).tolist())) == sorted(
        (run + 2.0 + cell, round(0.9 - run / 100, 6)) for cell in range(2) for run in range(3)
    )
    assert plot.n == 6
    assert "7 test points" in plot.caption


QUANTILES = {"q05": 0.5, "median": 1.0, "q95": 2.0}
