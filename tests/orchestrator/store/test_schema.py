import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyseed.orchestrator.errors import LayoutTooNew, StoreError
from manyseed.orchestrator.paths import encode_name
from manyseed.orchestrator.store.schema import (
    LAYOUT_VERSION,
    SHARD_BYTES,
    GroupSpec,
    count_files,
    stored_bytes,
)
from manyseed.orchestrator.store.shards import publish
from tests.orchestrator.store.world import NUMBER, REPEATS, World, planned, spec


@settings(deadline=None)
@given(
    samples=st.integers(1, 200_000),
    n_classes=st.sampled_from([2, 3, 10, 300]),
    epochs=st.integers(1, 5),
    scores=st.sampled_from(["all", "margin", "none"]),
    dtype=st.sampled_from(["float32", "float16"]),
)
def test_lengths_keep_their_bounds(samples, n_classes, epochs, scores, dtype):
    made = spec(n_classes, samples=samples, epochs=tuple(range(epochs)), scores=scores, dtype=dtype)
    chosen = planned(
        number=0,
        dataset="d",
        classifier="c",
        samples=samples,
        class_names=made.class_names,
        epochs=made.epochs,
        scores=scores,
        dtype=dtype,
    )
    label, score, *_ = chosen.part_bytes
    largest = max(label, score)
    assert chosen.shard_length % chosen.chunk_length == 0
    assert chosen.shard_length == 1 or chosen.shard_length * largest < 1.5 * SHARD_BYTES
    assert 900 <= chosen.shard_length < 1100 or largest * 1000 > 0.5 * SHARD_BYTES
    if chosen.chunk_length < chosen.shard_length:
        assert chosen.chunk_length * largest >= 2**20
    assert GroupSpec.from_attributes(json.loads(json.dumps(chosen.to_attributes()))) == chosen


@settings(deadline=None, max_examples=60)
@given(
    samples=st.integers(1, 200_000),
    n_classes=st.sampled_from([2, 3, 10, 300]),
    scores=st.sampled_from(["all", "margin", "none"]),
    runs=st.integers(1, 20_000),
)
def test_little_is_stored_beyond_what_is_planned(samples, n_classes, scores, runs):
    keywords = {
        "number": 0,
        "dataset": "d",
        "classifier": "c",
        "samples": samples,
        "class_names": tuple(map(str, range(n_classes))),
        "scores": scores,
    }
    made, unknown = planned(**keywords, runs=runs), planned(**keywords)
    label, score, *_ = made.part_bytes
    largest = max(label, score)
    vain = -runs % made.chunk_length
    assert vain <= 0.1 * runs or vain * largest < 2.1 * 2**20
    assert made.chunk_length <= unknown.chunk_length * 1.1
    assert made.shard_length % made.chunk_length == 0
    assert abs(made.shard_length - unknown.shard_length) <= 0.15 * unknown.shard_length + 1
    assert made.chunk_length == unknown.chunk_length or made.chunk_length * largest > 0.8 * 2**20


def test_a_small_group_of_many_classes_takes_what_its_data_take():
    """As digits: 120 runs of 450 test points and 10 classes were 18 MB once."""
    made = planned(
        number=0,
        dataset="d",
        classifier="c",
        samples=450,
        class_names=tuple("abcdefghij"),
        scores="all",
        runs=120,
    )
    assert stored_bytes(made, 120) < 1.1 * 120 * made.row_bytes


def test_test_sets_are_cut_before_the_compressor_would_refuse_them():
    keywords = {"number": 0, "dataset": "d", "classifier": "c", "class_names": ("a", "b")}
    assert planned(**keywords, samples=450, repeats=10).split_length == 10
    many = planned(**keywords, samples=30_000, repeats=10_000)
    assert 100 < many.split_length < 2**31 / 30_000 / 8
    with pytest.raises(ValueError, match="300,000,000 points in a test set"):
        planned(**keywords, samples=300_000_000)


def test_labels_have_large_chunks_for_ten_classes():
    chosen = planned(
        number=0,
        dataset="d",
        classifier="c",
        samples=10_000,
        class_names=tuple("abcdefghij"),
        scores="all",
    )
    assert chosen.chunk_length * chosen.part_bytes[0] >= 2**20
    assert chosen.shard_length > chosen.chunk_length


def test_files_stay_few():
    one = spec(shard=1000, chunk=1000, repeats=10)
    assert 148 * count_files(one, 3600, 10) < 12_000
    assert count_files(one, 10_000, 10) < 200


def test_arrays_follow_what_is_kept():
    def names(made):
        return {array.name for array in made.arrays if array.role == "prediction"}

    assert names(spec(2, scores="margin")) == {"label", "margin"}
    assert names(spec(3, scores="margin")) == {"label", "margin", "confidence"}
    assert names(spec(3, scores="all")) == {"label", "score"}
    assert names(spec(3, scores="none")) == {"label"}
    assert spec(257).array("label").dtype == "uint16"
    assert spec(256).array("label").dtype == "uint8"
    assert [a.name for a in spec(3, dtype="float16").arrays if a.role == "record"] == [
        "fit_seconds",
        "recipe",
        "clipped",
        "crc",
        "status",
    ]


def test_curves_are_named_only_where_there_are_any():
    assert "curves" not in spec().to_attributes()
    made = spec(curves=True)
    assert GroupSpec.from_attributes(made.to_attributes()) == made
    plain = {array.name for array in spec().arrays}
    added = {array.name: array.dims for array in made.arrays if array.name not in plain}
    curve = ("run", "trained_epoch")
    assert added == {
        "train_loss": curve,
        "train_accuracy": curve,
        "test_loss": curve,
        "test_accuracy": curve,
        "trained_epoch": ("trained_epoch",),
    }
    assert made.part_bytes[3] == made.row_bytes - spec().row_bytes == 4 * 5 * 4
    assert stored_bytes(made, 1000) > stored_bytes(spec(), 1000) + 1000 * 4 * 5 * 4
    with pytest.raises(ValueError, match="mlp has no epochs"):
        spec(epochs=(0,), curves=True)


@pytest.mark.parametrize(
    ("n_classes", "options"),
    [
        (2, {"epochs": (20,)}),
        (2, {"epochs": (2, 20), "dtype": "float16", "curves": True}),
        (10, {"epochs": (5,), "scores": "all"}),
        (10, {"epochs": (5,), "scores": "all", "runs": 200}),
        (30, {"epochs": (50,), "curves": True}),
        (3, {"epochs": (0,), "scores": "none"}),
    ],
)
def test_prices_are_what_is_paid(tmp_path, n_classes, options):
    """Of labels, scores, snapshots and curves alike."""
    n, samples = 200, 400
    names = tuple(map(str, range(n_classes)))
    keywords = {"samples": samples, "repeats": REPEATS, **options}
    made = planned(number=NUMBER, dataset="d", classifier="c", class_names=names, **keywords)
    world = World(tmp_path, made, n=n)
    world.write_splits_for(samples)
    world.finish(*range(n))
    for shard in range(world.group.shards):
        publish(world.group, shard, world.index(), world.watch)
    files = [file for file in world.group.folder.rglob("*") if file.is_file()]
    paid = sum(file.stat().st_size for file in files)
    assert 0.95 * paid < stored_bytes(made, n, REPEATS) < 1.3 * paid
    assert count_files(made, n, REPEATS) == 1 + sum(1 for _ in world.group.folder.rglob("*"))


def test_newer_layout_is_refused():
    attributes = spec().to_attributes()
    with pytest.raises(LayoutTooNew, match="upgrade manyseed"):
        GroupSpec.from_attributes({**attributes, "layout": LAYOUT_VERSION + 1})
    with pytest.raises(StoreError, match="no layout"):
        GroupSpec.from_attributes({})


@pytest.mark.parametrize(
    "change",
    [
        {"scores": "some"},
        {"dtype": "float64"},
        {"class_names": ("one",)},
        {"epochs": (2, 1)},
        {"epochs": ()},
        {"samples": 0},
        {"shard_length": 5},
    ],
)
def test_impossible_layouts_are_refused(change):
    with pytest.raises(ValueError, match=r"\w"):
        dataclasses.replace(spec(), **change)


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_names_become_distinct_folders(a, b):
    try:
        encoded, other = encode_name(a), encode_name(b)
    except UnicodeEncodeError:  # lone surrogates
        return
    assert (encoded == other) == (a == b)
    assert encoded.isascii()
    assert "/" not in encoded
    assert encoded[0] not in "._"
    assert encoded != "zarr.json"
