"""Intervals, coverage and functions of grouped rows: by hand, and over sweeps that are drawn."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy import stats

from manyseed.analysis.axes import LATER
from manyseed.orchestrator.asking.query import query
from manyseed.orchestrator.cli.formats import bounded, in_cells
from manyseed.orchestrator.computing.tables import Results
from manyseed.orchestrator.errors import UserError

KEY = {"cell": pl.UInt32, "epoch": pl.UInt32, "repeat_index": pl.UInt16, "run_index": pl.UInt16}
KEY |= {"run_i": pl.UInt16, "run_j": pl.UInt16, "n_distinct": pl.UInt32, "n_runs": pl.UInt32}
PLAIN = {"train_fraction": 1.0, "hparams": "default", "vary": "init+batch"}
PLAIN |= dict.fromkeys(
    ("perturb_continuous", "perturb_categorical", "perturb_hparams", *LATER),
    "none",
)

Cells = Sequence[tuple[Mapping[str, Any], NDArray[np.float64]]]


def tables(folder: Path, cells: Cells, deltas: Sequence[float] = (0.1,), unit: str = "") -> Results:
    """Tables of cells: what each is, and accuracies (test set, run), NaN where no run is."""
    rows: dict[str, list[dict[str, Any]]] = {n: [] for n in ("runs", "pairs", "repeats", "cells")}
    for cell, (axes, values) in enumerate(cells):
        delta = deltas[cell % len(deltas)]
        own = {"cell": cell, "epoch": 0, "probe": "gap", "delta": delta, **PLAIN, **axes}
        means = []
        for repeat, accuracies in enumerate(values):
            known = [(r, a) for r, a in enumerate(accuracies) if not np.isnan(a)]
            if not known:
                continue
            here = {**own, "repeat_index": repeat}
            for run, accuracy in known:
                more = {"run_index": run, "accuracy": accuracy, "alpha_hat": accuracy / 2}
                rows["runs"].append({**here, **more, "identical": False})
            for (i, a), (j, b) in combinations(known, 2):
                rows["pairs"].append({**here, "run_i": i, "run_j": j, "churn": abs(a - b)})
            means.append(float(np.mean([a for _, a in known])))
            found = {"accuracy_mean": means[-1], "identical": False}
            found |= {"n_runs": len(known), "n_distinct": len(known)}
            rows["repeats"].append({**here, **found})
        rows["cells"].append({**own, "accuracy_mean": float(np.mean(means)), "same_as": None})
    files = {}
    for name, of_table in rows.items():
        files[name] = folder / f"{name}.parquet"
        frame = pl.DataFrame(of_table, infer_schema_length=None)
        known = {"unit": unit}
        units = {"columns": json.dumps({"accuracy": known, "accuracy_mean": known})}
        frame = frame.cast({n: t for n, t in KEY.items() if n in frame.columns})
        frame.write_parquet(files[name], metadata=units)
    return Results(files, {}, "")


def drawn(seed: int, n: int, sets: int, runs: int, *, classifiers: int = 2) -> Cells:
    """Draw studies of classifiers that share their test sets, whose effect is much."""
    random = np.random.default_rng(seed)
    cells: list[tuple[Mapping[str, Any], NDArray[np.float64]]] = []
    for study in range(n):
        effect = random.normal(0, 0.02, (sets, 1))
        for one in range(classifiers):
            values = 0.8 + 0.05 * one + effect + random.normal(0, 0.01, (sets, runs))
            axes = {"dataset": "a", "classifier": f"c{one}", "perturb_continuous": f"s{study}"}
            cells.append((axes, values))
    return cells


@pytest.mark.parametrize("table", ["runs", "repeats", "cells"])
def test_intervals_over_test_sets_hold_the_truth(tmp_path: Path, table: str) -> None:
    column = "accuracy" if table == "runs" else "accuracy_mean"
    results = tables(tmp_path, drawn(1, 400, 4, 3))
    found = query(results, table, by=["perturb_continuous"], columns=[column])
    low, high = found[f"{column}_ci_low"], found[f"{column}_ci_high"]
    assert set(found["over"]) == {"test sets"}
    held = ((low <= 0.825) & (high >= 0.825)).mean()
    assert 0.92 <= held <= 0.98  # 95 %; as if runs were independent it is below 70 %
    one = tables(tmp_path, drawn(1, 400, 4, 3, classifiers=1))
    alone = query(one, table, by=["perturb_continuous"], columns=[column])
    wide = (alone[f"{column}_ci_high"] - alone[f"{column}_ci_low"]).to_numpy().mean()
    # another classifier on the same test sets is hardly more evidence
    assert 0.85 < (high - low).to_numpy().mean() / wide < 1.05


@pytest.mark.parametrize("truth", [0.5, 0.9])
def test_intervals_of_shares_stay_between_0_and_1_and_hold_the_truth(
    tmp_path: Path, truth: float
) -> None:
    """400 studies of two test sets, most of which ± would leave the possible."""
    random = np.random.default_rng(9)
    values = random.beta(8 * truth, 8 * (1 - truth), (400, 2, 1))
    cells = [
        ({"dataset": "a", "classifier": "c", "perturb_continuous": f"s{k}"}, own)
        for k, own in enumerate(values)
    ]
    results = tables(tmp_path, cells, unit="share of test points")
    found = query(results, "cells", by=["perturb_continuous"], columns=["accuracy_mean"])
    low, high = (found[f"accuracy_mean_ci_{end}"].to_numpy() for end in ("low", "high"))
    assert low.min() >= 0
    assert high.max() <= 1
    assert 0.92 <= ((low <= truth) & (truth <= high)).mean() <= 0.98
    _, rows, _ = in_cells(found[int((high - low).argmax())])
    assert " to " in rows[0][-1]
    assert "±" not in rows[0][-1]


def test_intervals_hold_the_truth_where_runs_are_missing_at_random(tmp_path: Path) -> None:
    random = np.random.default_rng(105)
    cells = [
        (axes, np.where(random.random(v.shape) < 0.4, np.nan, v)) for axes, v in drawn(5, 400, 5, 5)
    ]
    found = query(tables(tmp_path, cells), "runs", by=["perturb_continuous"], columns=["accuracy"])
    held = ((found["accuracy_ci_low"] <= 0.825) & (found["accuracy_ci_high"] >= 0.825)).mean()
    assert 0.92 <= held <= 0.98


@pytest.mark.parametrize(("table", "column"), [("runs", "accuracy"), ("cells", "accuracy_mean")])
def test_with_one_test_set_intervals_are_over_seeds(
    tmp_path: Path, table: str, column: str
) -> None:
    cells = drawn(2, 400, 1, 6)
    found = query(tables(tmp_path, cells), table, by=["perturb_continuous"], columns=[column])
    assert set(found["over"]) == {"seeds"}
    random = np.random.default_rng(2)
    truth = []
    for _ in range(400):
        truth.append(0.825 + random.normal(0, 0.02, (1, 1)).item())
        for _ in range(2):
            random.normal(0, 0.01, (1, 6))
    inside = (found[f"{column}_ci_low"].to_numpy() <= truth) & (
        truth <= found[f"{column}_ci_high"].to_numpy()
    )
    assert 0.92 <= inside.mean() <= 0.98


def by_hand(values: Sequence[tuple[str, int, float]]) -> tuple[float, float]:
    """The interval of a mean of rows (dataset, test set, value): clusters are test sets."""
    variance, parts, n = 0.0, 0.0, len(values)
    for dataset in {d for d, *_ in values}:
        own = [(s, v) for d, s, v in values if d == dataset]
        mean = sum(v for _, v in own) / len(own)
        sets = {s for s, _ in own}
        squares = sum(sum((v - mean) / n for s, v in own if s == one) ** 2 for one in sets)
        stratum = len(sets) / (len(sets) - 1) * squares
        variance += stratum
        parts += stratum**2 / (len(sets) - 1)
    half = stats.t.ppf(0.975, variance**2 / parts) * variance**0.5
    centre = sum(v for *_, v in values) / n
    return centre - half, centre + half


def test_an_interval_over_test_sets_is_that_of_clusters_in_strata(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    cells: list[tuple[Mapping[str, Any], NDArray[np.float64]]] = []
    rows: dict[str, list[tuple[str, int, float]]] = {f"c{n}": [] for n in range(12)}
    for classifier, own in rows.items():
        for dataset in range(random.integers(1, 4)):
            values = np.full((random.integers(2, 5), 4), np.nan)
            for number in range(len(values)):
                runs = random.integers(1, 5)
                values[number, :runs] = random.random(runs)
                own += [(f"d{dataset}", number, value) for value in values[number, :runs]]
            cells.append(({"dataset": f"d{dataset}", "classifier": classifier}, values))
    found = query(tables(tmp_path, cells), "runs", by=["classifier"], columns=["accuracy"])
    for row in found.iter_rows(named=True):
        own = rows[row["classifier"]]
        assert (row["accuracy_ci_low"], row["accuracy_ci_high"]) == pytest.approx(by_hand(own))
        assert row["accuracy"] == pytest.approx(np.mean([value for *_, value in own]))


def test_over_seeds_runs_of_one_number_are_one_and_pairs_are_left_out_in_turn(
    tmp_path: Path,
) -> None:
    random = np.random.default_rng(5)
    values = random.random((2, 1, 7))
    axes = [{"dataset": "a", "classifier": name} for name in ("x", "y")]
    results = tables(tmp_path, list(zip(axes, values, strict=True)))
    found = query(results, "runs", by=["dataset"], columns=["accuracy"]).row(0, named=True)
    both = values[:, 0].mean(axis=0)
    expected = stats.t.interval(0.95, 6, both.mean(), stats.sem(both))
    assert (found["accuracy_ci_low"], found["accuracy_ci_high"]) == pytest.approx(expected)
    own = values[0, 0]
    found = query(results, "pairs", by=["classifier"], columns=["churn"]).row(0, named=True)

    def mean(runs: Sequence[float]) -> float:
        return float(np.mean([abs(a - b) for a, b in combinations(runs, 2)]))

    without = np.array([mean(np.delete(own, k).tolist()) for k in range(7)])
    error = (6 / 7 * ((without - without.mean()) ** 2).sum()) ** 0.5
    half = stats.t.ppf(0.975, 6) * error
    assert found["churn"] == pytest.approx(mean(own.tolist()))
    assert found["churn_ci_high"] - found["churn"] == pytest.approx(half)
    # what compares a run with the others is no independent value
    levels = query(results, "runs", by=["classifier"], columns=["alpha_hat"])
    assert levels["alpha_hat_ci_low"].null_count() == 2


def test_there_is_no_interval_where_clusters_lack_or_all_is_the_same(tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    cells = [
        ({"dataset": "a", "classifier": "mlp"}, random.random((3, 2))),
        ({"dataset": "b", "classifier": "mlp"}, random.random((1, 2))),
        ({"dataset": "a", "classifier": "one"}, random.random((1, 1))),
        ({"dataset": "a", "classifier": "same"}, np.full((3, 2), 0.5)),
    ]
    found = query(tables(tmp_path, cells), "runs", by=["classifier"], columns=["accuracy"])
    assert found["accuracy_ci_low"].to_list() == [None] * 3
    assert found["over"].to_list() == [None] * 3
    assert found["accuracy"].null_count() == 0


def test_perturbed_hparams_make_one_cluster_of_what_has_one_repeat_index(tmp_path: Path) -> None:
    values = np.array([[[0.1], [0.5], [0.6]], [[0.2], [0.4], [0.9]]])
    axes = [{"dataset": name, "classifier": "mlp"} for name in "ab"]
    shared = [{**one, "perturb_hparams": "relative:0.1"} for one in axes]
    for cells, clusters in ((axes, False), (shared, True)):
        results = tables(tmp_path, list(zip(cells, values, strict=True)))
        found = query(results, "cells", by=["classifier"], columns=["accuracy_mean"])
        low = found["accuracy_mean_ci_low"].item()
        if clusters:
            each = values.mean(axis=0)[:, 0]
            assert low == pytest.approx(stats.t.interval(0.95, 2, each.mean(), stats.sem(each))[0])
        else:
            rows = [("ab"[d], s, float(v)) for (d, s, _), v in np.ndenumerate(values)]
            assert low == pytest.approx(by_hand(rows)[0])


def test_levels_of_two_resolutions_are_not_averaged(tmp_path: Path) -> None:
    cells = [
        ({"dataset": d, "classifier": "mlp"}, np.random.default_rng(0).random((2, 3))) for d in "ab"
    ]
    results = tables(tmp_path, cells, deltas=(0.1, 0.2))
    found = query(results, "runs", by=["classifier"], columns=["alpha_hat", "accuracy"])
    row = found.row(0, named=True)
    assert (row["alpha_hat"], row["alpha_hat_ci_low"], row["delta"]) == (None, None, None)
    assert (row["delta_lo"], row["delta_hi"]) == (0.1, 0.2)
    assert row["accuracy_ci_low"] is not None
    asked = {"columns": ["alpha_hat"], "agg": ["max", "count"]}
    named = query(results, "runs", by=["classifier"], **asked).row(0, named=True)
    assert (named["alpha_hat_max"], named["alpha_hat_count"]) == (None, 12)
    apart = query(results, "runs", by=["dataset"], columns=["alpha_hat"])
    assert apart["alpha_hat"].null_count() == 0


def test_functions_are_of_runs_and_spreads_within_repeats(tmp_path: Path) -> None:
    values = np.random.default_rng(8).random((3, 5))
    results = tables(tmp_path, [({"dataset": "a", "classifier": "mlp"}, values)])
    agg = ["mean", "sd", "median", "min", "max", "q05", "q975", "count"]
    asked = {"columns": ["accuracy"], "by": ["dataset"]}
    found = query(results, "runs", agg=agg, **asked).row(0, named=True)  # type: ignore[arg-type]
    expected = {
        "mean": values.mean(),
        "sd": values.var(axis=1, ddof=1).mean() ** 0.5,
        "median": np.median(values),
        "min": values.min(),
        "max": values.max(),
        "q05": np.quantile(values, 0.05),
        "q975": np.quantile(values, 0.975),
        "count": 15,
    }
    assert {name: found[f"accuracy_{name}"] for name in agg} == pytest.approx(expected)
    plain = query(results, "runs", **asked).row(0, named=True)  # type: ignore[arg-type]
    assert found["accuracy_ci_low"] == plain["accuracy_ci_low"]
    between = query(results, "repeats", agg=["sd"], columns=["accuracy_mean"], by=["dataset"])
    assert between["accuracy_mean_sd"].item() == pytest.approx(values.mean(axis=1).std(ddof=1))
    assert "accuracy_mean_ci_low" not in between.columns
    for wrong, message in (
        ("avg", "unknown function"),
        ("q", "unknown function"),
        ("q5", '^--agg = "q5": not a quantile\n  q05 is the 5 % quantile, q50 the median'),
        ("q9", "not a quantile"),
        ("q100", "not a quantile"),
        ("q1234567", "not a quantile"),
    ):
        with pytest.raises(UserError, match=message):
            query(results, "runs", agg=[wrong], **asked)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="not a number"):
        query(results, "runs", agg=["mean"], columns=["vary"], by=["dataset"])


@pytest.mark.parametrize("name", ["alpha_hat", "alpha_hat_mean"])
def test_an_alpha_hat_below_the_resolution_is_told_as_that(name: str) -> None:
    frame = pl.DataFrame(
        {
            name: [0.0, 0.002, 0.12, None, 0.0],
            f"{name}_ci_low": [0.0, 0.0, 0.1, None, 0.0],
            f"{name}_ci_high": [0.0, 0.1, 0.14, None, 0.0],
            "delta": [0.07, 0.394, 0.09, 0.1, None],
        }
    )
    _, rows, _ = in_cells(bounded(frame))
    assert [row[0] for row in rows] == [
        "< 0.07",
        "< 0.39",
        "0.1200 ± 0.0200",
        None,
        "0.0000 ± 0.0000",
    ]
    _, rows, _ = in_cells(frame.drop("delta"))
    assert rows[0][0] == "0.0000 (0.0000 to 0.0000)"
