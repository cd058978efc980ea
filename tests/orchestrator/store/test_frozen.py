"""Golden values of layout 1: a change here makes existing stores unreadable."""

import json
import struct

import google_crc32c
import numpy as np
import pytest

from manyseed.orchestrator.paths import SweepPaths
from manyseed.orchestrator.plans.layout import Groups
from manyseed.orchestrator.store import journal
from manyseed.orchestrator.store.journal import RowBytes
from manyseed.orchestrator.store.metadata import array_metadata
from tests.orchestrator.store.world import World, spec, values

LABELS = [
    {"name": "bytes"},
    {
        "name": "blosc",
        "configuration": {
            "typesize": 1,
            "cname": "lz4",
            "clevel": 5,
            "shuffle": "bitshuffle",
            "blocksize": 0,
        },
    },
    {"name": "crc32c"},
]
SCORES = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]


@pytest.mark.parametrize(
    ("name", "dtype", "dims", "fill", "codecs"),
    [
        ("label", "uint8", ["run", "epoch", "sample"], 0, LABELS),
        ("margin", "float32", ["run", "epoch", "sample"], "NaN", SCORES),
        ("confidence", "float32", ["run", "epoch", "sample"], "NaN", SCORES),
        ("status", "uint8", ["run"], 0, LABELS),
        ("crc", "uint32", ["run"], 0, None),
        ("recipe", "uint16", ["run"], 65535, None),
        ("fit_seconds", "float32", ["run"], "NaN", None),
        ("y_true", "uint8", ["repeat", "sample"], 0, LABELS),
        ("test_index", "int64", ["repeat", "sample"], -1, None),
        ("cell", "int32", ["run"], -1, None),
        ("repeat_index", "int16", ["run"], -1, None),
        ("run_index", "int32", ["run"], -1, None),
        ("train_fraction", "float64", ["run"], "NaN", None),
        ("vary", "int16", ["run"], -1, None),
        ("epoch", "int32", ["epoch"], 0, None),
    ],
)
def test_arrays(name, dtype, dims, fill, codecs):
    made = spec(3)
    document = json.loads(array_metadata(made, made.array(name), 8, 2))
    assert document["data_type"] == dtype
    assert document["dimension_names"] == dims
    assert document["fill_value"] == fill
    assert document["chunk_key_encoding"]["configuration"] == {"separator": "."}
    outer = document["codecs"]
    if outer[0]["name"] == "sharding_indexed":
        assert document["chunk_grid"]["configuration"]["chunk_shape"][0] == made.shard_length
        assert outer[0]["configuration"]["chunk_shape"][0] == made.chunk_length
        outer = outer[0]["configuration"]["codecs"]
    assert outer[-1] == {"name": "crc32c"}
    assert codecs is None or outer == codecs


def test_group_attributes(tmp_path):
    world = World(tmp_path)
    document = json.loads((world.group.folder / "zarr.json").read_bytes())
    assert world.spec.path == "openml%3Avehicle/mlp"
    assert document["attributes"]["manyseed"] == {
        "layout": 1,
        "number": 7,
        "dataset": "openml:vehicle",
        "classifier": "mlp",
        "samples": 6,
        "class_names": ["class 0", "class 1"],
        "epochs": [1, 5],
        "scores": "margin",
        "dtype": "float32",
        "probability": "softmax",
        "shard_length": 4,
        "chunk_length": 2,
        "split_length": 2,
        "rows": 12,
        "repeats": 2,
    }


@pytest.mark.parametrize(
    ("made", "text", "crc"),
    [
        (
            spec(2),
            '{"layout": 1, "number": 7, "dataset": "openml:vehicle", "classifier": "mlp", '
            '"samples": 6, "class_names": ["class 0", "class 1"], "epochs": [1, 5], '
            '"scores": "margin", "dtype": "float32", "probability": "softmax", '
            '"shard_length": 4, "chunk_length": 2, "split_length": 2}',
            1973574360,
        ),
        (
            spec(3, curves=True),
            '{"layout": 1, "number": 7, "dataset": "openml:vehicle", "classifier": "mlp", '
            '"samples": 6, "class_names": ["class 0", "class 1", "class 2"], "epochs": [1, 5], '
            '"scores": "margin", "dtype": "float32", "probability": "softmax", '
            '"shard_length": 4, "chunk_length": 2, "split_length": 2, "curves": true}',
            379545463,
        ),
    ],
)
def test_attribute_text(tmp_path, made, text, crc):
    """As plans of earlier versions hold it, byte for byte, with its checksum."""
    assert json.dumps(made.to_attributes()) == text
    paths = SweepPaths(tmp_path)
    paths.groups.parent.mkdir(parents=True)
    Groups((made,)).write(paths)
    (written,) = json.loads(paths.groups.read_bytes())
    assert list(written.items()) == [*json.loads(text).items(), ("crc32c", crc)]


@pytest.mark.parametrize(
    ("made", "head", "crc"),
    [
        (
            spec(2),
            "936d73656564010a010001000700000005000000000000000000000000000000ac961149"
            "000000000000a0400c00000030000000000000001d7f8a10",
            1225889452,
        ),
        (
            spec(3, curves=True),
            "936d73656564010a010001000700000005000000000000005000000000000000873b83e7"
            "000000000000a0400c0000003000000030000000da250194",
            3884137351,
        ),
    ],
)
def test_record_of_a_run(made, head, crc):
    """As journals of earlier versions hold it: the header byte for byte, and the row's checksum."""
    record = journal.done(7, 5, 1, 5.0, values(made, 5))
    assert record[:60] == bytes.fromhex(head)
    assert google_crc32c.value(record[60:]) == values(made, 5).crc == crc


def test_journal_record():
    label, score, confidence = b"\0\1", np.float32([0.5, -1]).tobytes(), b"abc"
    crc = google_crc32c.value(label + score + confidence)
    header = bytes.fromhex("936d73656564010a") + struct.pack(
        "<BBHIQQIIfIII", 1, 0, 3, 7, 2**33, 0, crc, 4, 1.5, 2, 8, 3
    )
    expected = header + struct.pack("<I", google_crc32c.value(header)) + label + score + confidence
    assert journal.done(7, 2**33, 3, 1.5, RowBytes(label, score, confidence, 4)) == expected
    assert len(header) == 56
    curves = np.float32([0.1, 0.2, 0.3, 0.4]).tobytes()
    record = journal.done(7, 5, 3, 1.5, RowBytes(label, score, confidence, 4, curves))
    assert record[60:] == label + score + confidence + curves
    assert struct.unpack("<BBHIQQI", record[8:36])[5:] == (16, google_crc32c.value(record[60:]))
    copy = journal.copy(7, 5, 2)
    assert struct.unpack("<BBHIQQIIfIII", copy[8:56])[:6] == (2, 0, 65535, 7, 5, 2)
    assert len(copy) == 60
