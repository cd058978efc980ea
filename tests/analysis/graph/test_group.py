"""The graph: whatever is cut, ordered or run by whom, the tables are the same bit for bit."""

from __future__ import annotations

import hashlib
import os
import signal
import struct
import tracemalloc
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from manyseed.analysis import NotKept
from manyseed.analysis.alphahat.resampling import generator
from manyseed.analysis.graph import chunks
from manyseed.analysis.graph.chunks import analyze_group, compute
from manyseed.analysis.graph.predictions import Reader, Source, unavailable
from manyseed.analysis.metrics.formulas import labels, probe
from manyseed.analysis.metrics.registry import METRICS
from manyseed.analysis.options import Options
from manyseed.jobs.run import labels as labels_of_run
from tests.analysis.samples import Lazy, frame, margins, noisy, predictions, regular

FEW = Options(resamples=3)


def tables(group_predictions, options=FEW, scheduler="synchronous", **keywords):
    return compute([analyze_group(group_predictions, options)], scheduler=scheduler, **keywords)[0]


def assert_same(one, other):
    for name in ("runs", "pairs", "repeats", "cells"):
        assert_frame_equal(getattr(one, name), getattr(other, name), check_exact=True)


@st.composite
def sweeps(draw):
    """Cells of unequal repeats, rows in any order and some of no use, any chunks."""
    sizes = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), min_size=1, max_size=5))
    keys = [(c, r, k) for c, (r, runs) in enumerate(sizes) for k in range(runs)]
    keys += [(0, 3, k) for k in range(draw(st.integers(0, 4)))]
    size = len(keys) + draw(st.integers(0, 3))
    rows = draw(st.permutations(range(size)))[: len(keys)]
    runs = frame([(row, *key, False) for row, key in zip(rows, keys, strict=True)])
    return runs.sample(fraction=1, shuffle=True, seed=draw(st.integers(0, 9)))


@given(
    runs=sweeps(),
    n_classes=st.sampled_from([2, 3]),
    keep=st.sampled_from(["margin", "all", "none"]),
    n_test=st.integers(2, 9),
    block_bytes=st.sampled_from([1, 50, 200, 1000]),
    row_chunk=st.integers(1, 6),
    workers=st.integers(1, 3),
    max_pair_runs=st.sampled_from([3, 200]),
    reference=st.sampled_from(["others", "others-trimmed", "half", "loo_ensemble", "ensemble"]),
    mode=st.sampled_from(["exact", "paper"]),
    holdout=st.sampled_from([None, 0.4]),
)
@settings(deadline=None, max_examples=40)
def test_chunked_equals_whole(
    runs,
    n_classes,
    keep,
    n_test,
    block_bytes,
    row_chunk,
    workers,
    max_pair_runs,
    reference,
    mode,
    holdout,
):
    score, y_true = noisy(np.random.default_rng(1), runs, n_test, n_classes)
    score = score.round(1)
    runs = runs.with_columns(train_accuracy=1 / (1.0 + pl.col("row")))
    options = Options(
        # every record takes part, but the one that needs larger test sets
        metrics=(*sorted({*METRICS} - {"calibration"}), "tests.analysis.samples:second_class"),
        resamples=3,
        max_pair_runs=max_pair_runs,
        alpha_reference=reference,
        alpha_mode=mode,
        holdout=holdout,
    )
    whole = tables(predictions(score, y_true, runs.sort("row"), keep=keep), options)
    cut = tables(
        predictions(score, y_true, runs, chunks=row_chunk, keep=keep),
        replace(options, block_bytes=block_bytes),
        scheduler="threads",
        workers=workers,
    )
    assert_same(whole, cut)
    assert whole.runs.height == runs.height


def test_other_processes_compute_the_same():
    runs = regular(2, 2, 4)
    score, y_true = noisy(np.random.default_rng(2), runs, 40)
    given_predictions = predictions(score, y_true, runs, chunks=4)
    options = Options(resamples=3, block_bytes=700)
    assert_same(
        tables(given_predictions, options),
        tables(given_predictions, options, scheduler="processes", workers=2),
    )


def test_a_cluster_computes_the_same():
    distributed = pytest.importorskip("distributed")
    runs = regular(1, 2, 4)
    score, y_true = noisy(np.random.default_rng(18), runs, 40)
    given_predictions = predictions(score, y_true, runs)
    options = Options(resamples=3, block_bytes=4 * 40 * 5)
    seen = []
    with distributed.Client(
        processes=False, n_workers=1, dashboard_address=None, set_as_default=False
    ) as client:
        result = tables(given_predictions, options, client, progress=lambda *now: seen.append(now))
    assert_same(result, tables(given_predictions, options))
    assert seen == [(0, 2), (1, 2), (2, 2)]


@pytest.mark.slow
def test_a_killed_worker_costs_what_it_was_computing():
    distributed = pytest.importorskip("distributed")
    runs = regular(6, 4, 4)
    score, y_true = noisy(np.random.default_rng(23), runs, 40)
    given_predictions = predictions(score, y_true, runs)
    options = Options(resamples=3, block_bytes=4 * 40 * 5)
    seen = []
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        victims = list(client.run(os.getpid).values())

        def kill(done, total):
            seen.append((done, total))
            if done == 3:
                os.kill(victims[0], signal.SIGKILL)

        result = tables(given_predictions, options, client, progress=kill)
        left = client.run(os.getpid)
    assert victims[0] not in left.values()
    assert_same(result, tables(given_predictions, options))
    assert seen[-1] == (24, 24)


def test_half_precision_margins_are_the_values_they_hold():
    runs = regular(1, 1, 4)
    score, y_true = noisy(np.random.default_rng(19), runs, 200)
    score = score.astype(np.float16).astype(np.float32)
    gap = (score[..., 1] - score[..., 0]).astype(np.float16)
    half = predictions(score, y_true, runs, margin=gap)
    single = predictions(score, y_true, runs, margin=gap.astype(np.float32))
    assert_same(tables(half), tables(single))


def test_resamples_belong_to_the_test_set_not_to_the_cell():
    runs = regular(2, 2, 4)
    score, y_true = noisy(np.random.default_rng(3), runs, 300)
    rows = runs.sort("cell", "repeat_index", "run_index")["row"].to_numpy().reshape(2, 2, 4)
    score[rows[1]] = score[rows[0]]  # both cells predict the same
    score[rows[:, 0, 0], ..., 1] += 3
    result = tables(predictions(score, y_true, runs)).runs
    one, other = (result.filter(pl.col("cell") == cell)["alpha_hat"].to_list() for cell in (0, 1))
    assert one == other
    assert max(one) > 0


def test_the_generator_can_be_recomputed():
    text = b'[1,7,"alpha_hat","ab",3]'
    words = struct.unpack("<8I", hashlib.sha256(text).digest())
    expected = np.random.PCG64(np.random.SeedSequence(words)).random_raw(3)
    assert np.array_equal(generator(7, "alpha_hat", "ab", 3).random_raw(3), expected)
    assert not np.array_equal(generator(7, "alpha_hat", "ab", 4).random_raw(3), expected)


def test_metrics_of_a_small_repeat_by_hand():
    runs = regular(1, 1, 2)
    score = np.array([[[[0, 1], [1, 0]]], [[[0, 1], [0, 1]]]], dtype=np.float32)
    result = tables(predictions(score, np.array([[1, 1]], dtype=np.uint16), runs, runs_planned=4))
    assert result.runs["accuracy"].to_list() == [0.5, 1.0]
    repeat = result.repeats.row(0, named=True)
    assert repeat["accuracy_mean"] == 0.75
    assert repeat["accuracy_std"] == pytest.approx(np.sqrt(0.125))
    assert repeat["accuracy_range"] == 0.5
    assert repeat["coverage"] == 0.5
    assert repeat["churn_mean"] == 0.5
    assert result.cells["accuracy_range"].to_list() == [0.5]


def test_cells_are_distributions_over_repeats():
    runs = regular(2, 3, 4)
    score, y_true = noisy(np.random.default_rng(4), runs, 50)
    result = tables(predictions(score, y_true, runs))
    of_cell = result.repeats.filter(pl.col("cell") == 1)["accuracy_range"]
    cell = result.cells.row(1, named=True)
    assert cell["n_repeats"] == cell["accuracy_range_n"] == 3
    assert cell["n_runs"] == 12
    assert cell["accuracy_range"] == pytest.approx(of_cell.mean())
    assert cell["accuracy_range_sd"] == pytest.approx(of_cell.std())
    assert (cell["accuracy_range_lo"], cell["accuracy_range_hi"]) == (of_cell.min(), of_cell.max())


def test_copies_of_a_run_are_marked():
    runs = regular(1, 1, 4, copies=True)
    score, y_true = noisy(np.random.default_rng(5), runs, 100)
    score[:] = score[:1]
    result = tables(predictions(score, y_true, runs))
    repeat = result.repeats.row(0, named=True)
    assert (repeat["n_runs"], repeat["n_distinct"], repeat["identical"]) == (4, 1, True)
    assert (repeat["accuracy_range"], repeat["accuracy_std"], repeat["ec_local_mean"]) == (0, 0, 1)
    assert repeat["alpha_hat_max"] < 1e-9
    assert result.runs["identical"].to_list() == [False, True, True, True]
    assert result.cells["n_identical_repeats"].to_list() == [1]


def test_keys_keep_their_types():
    runs = regular(1, 2, 3)
    score, y_true = noisy(np.random.default_rng(6), runs, 10)
    result = tables(predictions(score, y_true, runs))
    for table in (result.runs, result.repeats):
        for name in {"cell", "repeat_index", "run_index"} & set(table.columns):
            assert table.schema[name] == runs.schema[name]
    assert result.pairs.schema["run_i"] == runs.schema["run_index"]


def test_what_was_not_kept_is_null_and_named():
    runs = regular(1, 1, 3)
    score, y_true = noisy(np.random.default_rng(7), runs, 10)
    without = predictions(score, y_true, runs, keep="none")
    lacking = ("alpha_hat", "ece", "proper_scores", "discrimination", "ensemble", "rejection")
    kept_less = dict.fromkeys(lacking, ("margin", "all"))
    reasons = unavailable(without, FEW)
    assert all(isinstance(reason, NotKept) for reason in reasons.values())
    assert {metric: reason.allowed for metric, reason in reasons.items()} == kept_less
    result = tables(without)
    kept = tables(predictions(score, y_true, runs))
    assert result.runs["alpha_hat"].null_count() == 3
    assert result.runs["probe"].null_count() == 3
    assert result.runs["accuracy"].equals(kept.runs["accuracy"])
    for name in ("runs", "pairs", "repeats", "cells"):
        assert getattr(result, name).schema == getattr(kept, name).schema


def test_a_group_without_finished_runs_has_empty_tables_with_all_columns():
    runs = regular(1, 1, 3)
    score, y_true = noisy(np.random.default_rng(8), runs, 10)
    empty = tables(predictions(score, y_true, runs.clear()))
    full = tables(predictions(score, y_true, runs))
    for name in ("runs", "pairs", "repeats", "cells"):
        assert getattr(empty, name).is_empty()
        assert getattr(empty, name).schema == getattr(full, name).schema


def test_epochs():
    runs = regular(1, 1, 3)
    score, y_true = noisy(np.random.default_rng(9), runs, 30)
    early = -score
    both = predictions(np.concatenate([early, score], axis=1), y_true, runs)
    last = tables(predictions(score, y_true, runs, epochs=(1,)))
    assert_same(tables(both), last)
    first = tables(both, Options(resamples=3, snapshots=(0,)))
    assert_same(first, tables(predictions(early, y_true, runs)))
    message = "snapshots = 2: vehicle × mlp does not have it; allowed: 0, 1"
    with pytest.raises(ValueError, match=message):
        analyze_group(both, Options(snapshots=(2,)))


@pytest.mark.parametrize("reference", [None, 7])
@pytest.mark.parametrize("block_bytes", [64_000_000, 5 * 40 * 2])
def test_several_snapshots_are_each_analysed_as_if_alone(reference, block_bytes):
    runs = regular(2, 2, 5)
    rng = np.random.default_rng(11)
    score, y_true = noisy(rng, runs, 40)
    more = [score + rng.normal(size=score.shape).astype(np.float32) for _ in range(2)]
    group = predictions(np.concatenate([*more, score], axis=1), y_true, runs, epochs=(2, 5, 7))
    kind = "others" if reference is None else "half"
    options = replace(FEW, alpha_reference=kind, block_bytes=block_bytes)
    options = replace(options, reference_snapshot=reference)
    joint = tables(group, replace(options, snapshots=(7, 2)))
    assert joint.cells["epoch"].to_list() == [2, 7, 2, 7]
    for epoch in (2, 7):
        alone = tables(group, replace(options, snapshots=(epoch,)))
        for name in ("runs", "pairs", "repeats", "cells"):
            rows = getattr(joint, name).filter(epoch=epoch)
            assert_frame_equal(rows, getattr(alone, name), check_exact=True)
            assert not rows.is_empty()
    late = tables(group, replace(options, snapshots=(-1,)))
    assert_same(late, alone)
    early = joint.runs.filter(epoch=2)["accuracy"]
    assert not early.equals(late.runs["accuracy"])


def test_what_is_not_trained_in_epochs_is_any_snapshot():
    runs = regular(1, 1, 3)
    score, y_true = noisy(np.random.default_rng(12), runs, 30)
    group = predictions(score, y_true, runs, epochs=(0,))
    final = tables(group)
    assert final.cells["epoch"].to_list() == [0]
    options = replace(FEW, snapshots=(2, 50), alpha_reference="half", reference_snapshot=50)
    assert_same(tables(group, options), tables(group, replace(FEW, alpha_reference="half")))
    with pytest.raises(ValueError, match="2 epochs are named; label has 1"):
        predictions(score, y_true, runs, epochs=(1, 2))


def test_progress_counts_blocks():
    runs = regular(2, 2, 4)
    score, y_true = noisy(np.random.default_rng(10), runs, 40)
    seen = []
    options = Options(resamples=3, block_bytes=4 * 40 * 5)
    group, other = (analyze_group(predictions(score, y_true, runs), options) for _ in range(2))
    compute([group, other], scheduler="threads", progress=lambda *now: seen.append(now))
    assert len(group.blocks) == 4
    assert sorted(seen) == [(done, 8) for done in range(9)]


def test_tasks_grow_with_blocks_not_with_runs():
    runs = regular(20, 2, 10)
    score, y_true = noisy(np.random.default_rng(11), runs, 4)
    group = analyze_group(predictions(score, y_true, runs, chunks=100))
    assert len(group.blocks) == 2
    tasks = sum(len(block.__dask_graph__().cull(block.__dask_keys__())) for block in group.blocks)
    assert tasks < 60  # 400 runs


def test_blocks_hold_whole_repeats_within_the_bound():
    runs = regular(3, 2, 4)
    score, y_true = noisy(np.random.default_rng(12), runs, 10)
    for max_runs in (1, 4, 9, 100):
        blocks = list(chunks.blocks(predictions(score, y_true, runs), FEW, max_runs, 0))
        keys = [(m.cell, m.held_out.repeat_index) for block in blocks for m in block]
        assert sorted(keys) == [(c, r) for c in range(3) for r in range(2)]
        for block in blocks:
            assert sum(member.row.size for member in block) <= max_runs or len(block) == 1


def test_only_chunks_that_hold_wanted_rows_are_read():
    seen = []

    def read(start, stop):
        seen.append(start // 4)
        return values[start:stop]

    values = np.arange(120).reshape(20, 2, 3)
    source = Source.of(Lazy(read, values.shape, int, 4), 1)
    for wanted, chunks_read in (([5], {1}), ([13, 12, 14], {3}), ([19, 0, 2], {0, 4})):
        rows = source.rows([np.array(wanted), np.array(wanted[-1:])])
        reader = Reader(rows)
        found = [reader.read(number, np.zeros(3, dtype=int)) for number in range(2)]
        assert np.array_equal(found[0], values[wanted, 1])
        assert np.array_equal(found[1], values[wanted[-1:], 1])
        assert set(seen) == chunks_read
        seen.clear()


def test_nothing_is_read_before_it_is_computed():
    def unreadable(start, stop):
        raise AssertionError("read")

    runs = regular(1, 1, 3)
    score, y_true = noisy(np.random.default_rng(13), runs, 10)
    label = Lazy(unreadable, (3, 1, 10), np.uint8, 3)
    group = analyze_group(predictions(score, y_true, runs, label=label))
    with pytest.raises(AssertionError, match="read"):
        compute([group], scheduler="synchronous")


@pytest.mark.parametrize("block_bytes", [64_000_000, 1])
def test_labels_that_are_no_class_are_their_repeats_problem_alone(block_bytes):
    runs = regular(2, 2, 4)
    score, y_true = noisy(np.random.default_rng(20), runs, 30)
    good = predictions(score, y_true, runs)
    label = good.label.copy()
    label[5, 0, 4] = 7  # cell 1, repeat 0
    options = replace(FEW, block_bytes=block_bytes)
    bad = (pl.col("cell") == 1) & (pl.col("repeat_index") == 0)
    assert_only_bad_repeats_lack(
        tables(replace(good, label=label), options),
        tables(good, options),
        bad,
        "a label is 7, and there are 2 classes",
    )


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(("value", "dtype"), [(9, np.uint16), (-1, np.int64)])
def test_true_classes_that_are_none_are_the_problem_of_their_test_set(n_classes, value, dtype):
    runs = regular(2, 2, 4)
    score, y_true = noisy(np.random.default_rng(22), runs, 30, n_classes)
    good = predictions(score, y_true.astype(dtype), runs, keep="all")
    wrong = good.y_true.copy()
    wrong[1, 3] = value
    assert_only_bad_repeats_lack(
        tables(replace(good, y_true=wrong)),
        tables(good),
        pl.col("repeat_index") == 1,
        f"a true class is {value}, and there are {n_classes} classes",
    )


def assert_only_bad_repeats_lack(found, expected, bad, problem):
    wrong = found.repeats.filter(bad)
    assert wrong["problem"].unique().to_list() == [problem]
    assert wrong["n_runs"].unique().to_list() == [4]
    for name in ("accuracy_mean", "alpha_hat_mean", "delta"):
        assert wrong[name].null_count() == wrong.height > 0
    for name in ("runs", "pairs", "repeats"):
        others = getattr(expected, name).filter(~bad)
        assert_frame_equal(
            getattr(found, name).filter(pl.lit(name != "repeats") | ~bad), others, check_exact=True
        )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_runs_whose_scores_are_not_numbers_are_counted(n_classes):
    runs = regular(1, 2, 4)
    score, y_true = noisy(np.random.default_rng(21), runs, 30, n_classes)
    score[1, 0, 3] = np.nan
    score[2, 0, 5, 0] = np.inf
    score[2, 0, 6, 0] = -np.inf
    found = tables(predictions(score, y_true, runs, keep="all"))
    assert found.repeats["n_undefined"].to_list() == [1, 0]
    assert found.runs["alpha_hat"].is_null().to_list() == [False, True] + 6 * [False]
    assert found.repeats["problem"].null_count() == 2


@pytest.mark.parametrize("n_classes", [3, 5])
def test_true_margin_is_the_true_class_minus_the_best_other(n_classes):
    runs = regular(1, 2, 2)
    score, y_true = noisy(np.random.default_rng(14), runs, 12, n_classes)
    repeat = runs["repeat_index"].to_numpy()
    before = score.copy()
    assert np.array_equal(probe(score[:, 0], repeat, y_true), margins(score, y_true, runs)[:, 0])
    assert np.array_equal(score, before)  # scores are not written to


def test_a_tie_has_the_same_winner_for_an_ensemble_as_for_a_run():
    for ties in (np.array([0.0, -0.0, -1.0, 1.0]), np.array([[1.0, 2, 2], [0, 0, 0], [3, 1, 3]])):
        n_classes = 2 if ties.ndim == 1 else 3
        np.testing.assert_array_equal(labels(ties), labels_of_run(ties, n_classes))


def test_two_class_scores_give_the_gap():
    runs = regular(1, 1, 3)
    score, y_true = noisy(np.random.default_rng(15), runs, 12)
    gap = probe(score[:, 0], np.zeros(3, dtype=int), y_true)
    assert np.array_equal(gap, score[:, 0, :, 1] - score[:, 0, :, 0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"metrics": ("acuracy",)},
            "metrics = 'acuracy': there is no such metric; allowed: accuracy, ",
        ),
        ({"empty_union": 0.5}, "empty_union = 0.5: allowed: 0, 1"),
        ({"epsilon": 0}, "epsilon = 0: allowed: a number above 0 and below 1"),
        ({"resamples": 1}, "resamples = 1: allowed: a whole number from 2 to 1,000,000"),
        ({"block_bytes": 0}, "block_bytes = 0: "),
        ({"max_pair_runs": -1}, "max_pair_runs = -1: "),
    ],
)
def test_options_without_meaning_are_refused(options, message):
    runs = regular(1, 1, 2)
    score, y_true = noisy(np.random.default_rng(16), runs, 10)
    with pytest.raises(ValueError, match=message):
        analyze_group(predictions(score, y_true, runs), Options(**options))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": np.zeros((2, 10))}, "label has shape"),
        ({"margin": np.zeros((2, 1, 9))}, "margin has shape"),
        ({"score": np.zeros((2, 1, 10, 3))}, "score has shape"),
        ({"y_true": np.zeros((1, 9), dtype=int)}, "y_true has shape"),
        ({"class_names": ("one",)}, "two classes or more"),
        ({"probability": "sigmoid"}, "probability is 'sigmoid'"),
        ({"runs": regular(1, 1, 2).drop("identical")}, "lacks identical"),
        ({"runs": regular(1, 1, 3)}, "row goes from 0 to 2; the arrays have 2"),
        ({"runs": regular(1, 2, 1)}, "repeat_index goes from 0 to 1; the arrays have 1"),
        ({"runs": frame([(0, 0, 0, 0, False), (1, 0, 0, 0, False)])}, "more than once"),
        ({"runs": frame([(0, 0, 0, 0, False), (0, 0, 0, 1, False)])}, "row 0 more than once"),
    ],
)
def test_predictions_that_do_not_fit_are_refused(change, message):
    runs = regular(1, 1, 2)
    fitting = predictions(*noisy(np.random.default_rng(17), runs, 10), runs)
    with pytest.raises(ValueError, match=message):
        replace(fitting, **change)


N_LARGE = 8_000


def peak_bytes(cells, n_runs, options):
    """Peak of what is allocated while a sweep is analysed whose scores are made when read."""
    n_test, n_classes = N_LARGE, 4
    runs = regular(cells, 1, n_runs)
    shape = (runs.height, 1, n_test, n_classes)

    def read(start, stop):
        rng = np.random.default_rng(start)
        return rng.normal(size=(stop - start, *shape[1:])).astype(np.float32)

    def labels(start, stop):
        return read(start, stop).argmax(axis=-1).astype(np.uint8)

    score = Lazy(read, shape, np.float32, 10)
    label = Lazy(labels, shape[:3], np.uint8, 10)
    y_true = np.zeros((1, n_test), dtype=np.uint16)
    small = predictions(*noisy(np.random.default_rng(0), runs.head(1), 5, 4), runs.head(1))
    lazy = replace(small, label=label, margin=None, score=score, y_true=y_true, runs=runs)
    group = analyze_group(lazy, options)
    tracemalloc.start()
    try:
        compute([group], scheduler="synchronous")
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("large", ["many repeats", "a large repeat"])
def test_memory_does_not_grow_with_the_sweep(large):
    options = Options(
        metrics=("accuracy", "agreement", "ensemble"),
        block_bytes=14 * 17 * N_LARGE,  # 14 runs
        max_pair_runs=10,
    )
    cut = large == "a large repeat"
    sizes = [(1, 40), (1, 160)] if cut else [(5, 10), (20, 10)]
    tables(predictions(*noisy(np.random.default_rng(0), regular(1, 1, 3), 9, 4), regular(1, 1, 3)))
    one, four = (peak_bytes(*size, options) for size in sizes)
    # Of a repeat that was cut: labels, and for each part the sum of its scores and of its pairs.
    kept = 120 * N_LARGE + 9 * (4 * 8 * N_LARGE + 700_000) if cut else 0
    assert four - kept < 1.2 * one
