"""What is frozen of every classifier: identities, streams, and a fit's predictions bit for bit.

``golden.json`` holds what the code said when it was written. A further classifier freezes `digest`
and the scores of `tiny` in a test of its own; what it asserts is printed by

    python -m tests.jobs.classifiers.test_golden NAME
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from manyseed.jobs import classifiers
from manyseed.jobs.cells import resolve_cell
from manyseed.jobs.datasets import resolve
from manyseed.jobs.run import Run, canonical_json, raw
from manyseed.jobs.trainer import generators, run_hparams
from manyseed.jobs.tuning import drawn
from manyseed.orchestrator.provenance import Recipe, package_versions
from tests.jobs.classifiers import examples

FILE = Path(__file__).with_name("golden.json")
GOLDEN = json.loads(FILE.read_text())
DIGITS = resolve("sklearn:digits")
CIFAR = resolve("torchvision:CIFAR10")
STREAMS = ("init", "batch", "dropout")
ROWS = 3


def cell(name, **axes):
    dataset = CIFAR if name in examples.LARGER else DIGITS
    info = classifiers.resolve(name, {}, dataset)
    if "weights" in info.canonical:  # the file's digest depends on what wrote it
        info = replace(info, canonical={**info.canonical, "weights": "0" * 64})
    return resolve_cell(20210427, dataset, info, **axes).cell


def frozen(name):
    """Return what holds on every machine: descriptions, identities and draws."""
    plain = cell(name)
    other = cell(
        name,
        train_fraction=0.5,
        perturb_continuous="relative:.10",
        perturb_hparams="absolute:0.1",
        vary="train+init",
    )
    tuned = replace(plain, hparams={"tuned": {"draws": 5, "space": 1}})
    return {
        "canonical": canonical_json(plain.canonical()).decode(),
        "cells": [each.id for each in (plain, other, tuned)],
        "streams": {
            f"{n}.{part}": raw(getattr(generators(Run(each, 1, 2)), part), 2).tolist()
            for n, each in enumerate((plain, other))
            for part in STREAMS
        },
        "perturbed": run_hparams(Run(other, 1, 2)),
        "drawn": drawn(tuned, 3),
    }


def predicted(name):
    """Return tiny fits for three and for two classes."""
    return [
        examples.fit(name, make()[0], {**examples.OPTIONS[name]})
        for make in (examples.of(name), examples.other_of(name))
    ]


def processor():
    """Return a digest of what this processor can do: libraries choose their kernels by it."""
    try:
        said = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
    features = re.search(r"^(?:flags|Features)\s*:(.*)$", said, re.MULTILINE)
    return hashlib.sha256(features.group(1).encode()).hexdigest()[:16] if features else ""


def told(prediction):
    arrays = (prediction.scores, prediction.label, prediction.confidence)
    return {
        "sha256": hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest(),
        "scores": prediction.scores[0, :ROWS].tolist(),
    }


def xgboost_of(packages):
    """Return the version of XGBoost, whichever of its builds is there."""
    return packages.get("xgboost", packages.get("xgboost-cpu"))


def is_same_machine():
    """Whether the libraries and the processor are those of all digests."""
    recipe = {"own": None, "members": None, **GOLDEN["recipe"]}
    return dataclasses.asdict(Recipe.here()) == recipe and processor() == GOLDEN["processor"]


def digest(name):
    """Return a digest of what is frozen; logarithms may differ in their last bit."""
    rounded = json.loads(json.dumps(frozen(name)), parse_float=lambda text: f"{float(text):.12g}")
    return hashlib.sha256(canonical_json(rounded)).hexdigest()


def tiny(name):
    """Return the scores of the first rows of a tiny fit, which other machines may round apart."""
    return predicted(name)[0].scores[0, :ROWS].astype(float).round(4).tolist()


def test_every_further_classifier_is_frozen_by_its_own_test():
    texts = [file.read_text() for file in Path(__file__).parents[2].rglob("test_*.py")]
    for name in set(classifiers.names()) - set(GOLDEN["classifiers"]):
        calls = f'digest("{name}") == ', f'tiny("{name}")'
        assert any(all(call in text for call in calls) for text in texts), name


@pytest.mark.parametrize("name", GOLDEN["classifiers"])
def test_identities_and_draws_are_frozen(name):
    found, expected = json.loads(json.dumps(frozen(name))), GOLDEN["classifiers"][name]
    for key in ("perturbed", "drawn"):  # logarithms may differ in their last bit
        values = found.pop(key)
        for hparam, value in expected[key].items():
            wanted = pytest.approx(value, rel=1e-12) if isinstance(value, float) else value
            assert values.pop(hparam) == wanted, (key, hparam)
        assert not values
    for key, value in found.items():
        assert value == expected[key], key


@pytest.mark.parametrize("name", GOLDEN["classifiers"])
def test_a_fit_predicts_what_it_always_predicted(name):
    """Bit for bit where the machine and the libraries are the same, elsewhere by and large."""
    same = is_same_machine()
    for prediction, expected in zip(
        predicted(name), GOLDEN["classifiers"][name]["fits"], strict=True
    ):
        found = told(prediction)
        if same and "sha256" in expected:
            assert found == expected
        # other versions of XGBoost begin at other scores, and draw otherwise
        versions = [xgboost_of(each) for each in (package_versions(), GOLDEN["recipe"]["packages"])]
        atol = 0.3 if name == "xgb" and versions[0] != versions[1] else 0.05
        np.testing.assert_allclose(found["scores"], expected["scores"], rtol=0.05, atol=atol)


if __name__ == "__main__":
    print(digest(sys.argv[1]), tiny(sys.argv[1]))
