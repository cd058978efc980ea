"""Streams are frozen: written out literally, and derived a second time from hashlib and NumPy."""

import hashlib
import json
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyseed.jobs.run import Stream, raw, seed31, stream

DATASET = "a1845fce1b957e0668709525ad28b731"

FIRST_WORDS = {
    "split": [2187729278803709932, 6133977154095484012],
    "subsample": [4398462081591489681, 15135569987779827349],
    "resample": [11746024759566284328, 5823708502562485561],
    "perturb_continuous": [17618198822776837038, 3524257848442737332],
    "perturb_categorical": [501924604948887863, 12706417877392386467],
    "perturb_hparams": [10872495039275578654, 8231905709859451322],
    "init": [12676325339602706889, 7720543399133658083],
    "batch": [14623975271906507083, 14725366734992373342],
    "dropout": [6041038444417597819, 16008536282294738199],
    "tune": [16050291031045024293, 15029990021952086129],
    "augment": [1285074420527097474, 15349665404065534707],
    "response": [1048312697263122843, 10373835424964798834],
    "response_shift": [16041990888834073846, 14051645698611697298],
    "langevin": [10731281342309892201, 18261263627655389483],
    "posterior": [12114069009495633780, 17105314737195885528],
    "test_augment": [4280753255421301792, 16796347113222072657],
    "perturb_labels": [9773660829247010544, 9523888595488870123],
}


@pytest.mark.parametrize("name", get_args(Stream))
def test_streams_keep_their_draws(name):
    assert raw(stream(20210427, name, DATASET, 0), 2).tolist() == FIRST_WORDS[name]


keys = st.lists(st.integers(0, 2**31) | st.text(max_size=20), max_size=5)


@given(seed=st.integers(0, 2**63), name=st.sampled_from(get_args(Stream)), keys=keys)
@settings(deadline=None)
def test_a_stream_follows_from_its_rule(seed, name, keys):
    text = json.dumps([1, seed, name, keys], separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(text.encode()).digest()
    words = [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 32, 4)]
    expected = np.random.PCG64(np.random.SeedSequence(words)).random_raw(5)
    assert raw(stream(seed, name, *keys), 5).tolist() == expected.tolist()


def test_streams_differ_in_seed_name_and_every_key():
    streams = [
        stream(1, "init", "d", "c", 0, 0),
        stream(2, "init", "d", "c", 0, 0),
        stream(1, "batch", "d", "c", 0, 0),
        stream(1, "init", "e", "c", 0, 0),
        stream(1, "init", "d", "c", 1, 0),
        stream(1, "init", "d", "c", 0, 1),
        stream(1, "init", "d", "c", 0),
    ]
    assert len({raw(generator, 1)[0] for generator in streams}) == len(streams)


def test_an_unknown_stream_is_refused_with_the_options():
    with pytest.raises(ValueError, match=r"'shuffle'.*split.*response_shift"):
        stream(1, "shuffle")  # type: ignore[arg-type]


def test_integer_seeds_are_the_low_31_bits_of_a_word():
    words = raw(stream(1, "batch", "d"), 3)
    generator = stream(1, "batch", "d")
    assert [seed31(generator) for _ in words] == [int(word) % 2**31 for word in words]


def test_global_random_state_is_neither_read_nor_changed():
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = raw(stream(1, "init", "d"), 4)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    np.random.seed(2)  # noqa: NPY002
    np.testing.assert_array_equal(raw(stream(1, "init", "d"), 4), first)
