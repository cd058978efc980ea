"""Random streams: an independent generator for each source of randomness in a run.

Frozen: a generator is PCG64 on a ``numpy.random.SeedSequence`` of the eight little-endian 32-bit
words of SHA-256 over the canonical JSON of ``[v, sweep seed, stream, keys]``. Keys are identities
and numbers, never positions or aliases, so a run draws the same numbers in every sweep that holds
it. ``docs/identity.md`` explains how to recompute them.
"""

from __future__ import annotations

import hashlib
from typing import Literal, get_args

import numpy as np

from manyseed.jobs.identity import canonical_json

STREAMS_VERSION = 1

Stream = Literal[
    "split",
    "subsample",
    "resample",
    "perturb_continuous",
    "perturb_categorical",
    "perturb_hparams",
    "init",
    "batch",
    "dropout",
    "tune",
    "augment",
    "response",
    "response_shift",
    "langevin",
    "posterior",
    "test_augment",
]


def stream(seed: int, name: Stream, *keys: str | int) -> np.random.Generator:
    """Return the generator of one stream.

    Parameters
    ----------
    seed : int
        The sweep's seed.
    name : Stream
        The source of randomness.
    *keys : str or int
        The stream's keys (table in ``docs/identity.md``).
    """
    if name not in get_args(Stream):
        raise ValueError(f"unknown stream {name!r}; there are {', '.join(get_args(Stream))}")
    digest = hashlib.sha256(canonical_json([STREAMS_VERSION, seed, name, list(keys)])).digest()
    words = np.frombuffer(digest, dtype="<u4")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([int(w) for w in words])))


def raw(generator: np.random.Generator, n: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Draw `n` raw 64-bit words, which no change to NumPy's distributions can alter."""
    return np.asarray(generator.bit_generator.random_raw(n), dtype=np.uint64)


def seed31(generator: np.random.Generator) -> int:
    """Draw a seed in [0, 2**31) for a library that takes an integer seed."""
    return int(generator.bit_generator.random_raw() & 0x7FFFFFFF)
