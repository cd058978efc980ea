"""Test images at random, anew for each member: what they are, and that nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from manyseed.jobs import classifiers, datasets
from manyseed.jobs.cells import resolve_cell
from manyseed.jobs.ensembling import methods
from manyseed.jobs.ensembling.methods import ARRAYS
from manyseed.jobs.images.transforms import Augmented
from manyseed.jobs.run import Run, raw, stream
from manyseed.jobs.trainer import Trainer, stream_keys
from manyseed.jobs.training import loop
from manyseed.jobs.training.checkpoint import Checkpoint
from manyseed.jobs.training.encode import pixel_encoder
from manyseed.jobs.training.handling import Handling
from manyseed.jobs.training.loop import TestRows
from tests.jobs.classifiers import examples
from tests.jobs.training.test_checkpoint import Interrupted, interrupt

CPU = torch.device("cpu")
DIGITS = datasets.resolve("sklearn:digits", test=60)
KEPT = ("size_score", "member_score")
OPTIONS = {
    "snapshot": {"members": 3, "cycle": 2},
    "fge": {"members": 2, "pretrain": 2, "cycle": 2},
    "dropout": {"members": 3},
    "single": {"members": 3},
}


def rows_of(scheme):
    data = replace(examples.image()[0], test_augment=scheme)
    encoder = pixel_encoder(data)
    X = torch.tensor(encoder(data.X_test), dtype=torch.float32)
    seen = Augmented(data, encoder, stream(1, "test_augment"), CPU, test=True)
    return data, encoder, TestRows(X, seen)


def images(rows, member):
    return torch.cat([*rows.parts(member)]).numpy()


def test_a_member_sees_crops_by_the_words_that_follow_those_of_the_members_before_it():
    data, encoder, rows = rows_of("crop-flip:2")
    n = len(data.X_test)
    words = raw(stream(1, "test_augment"), 3 * n * 3)
    u = np.array([int(word) // 2**11 / 2**53 for word in words.tolist()]).reshape(3, n, 3)
    for member in (2, 0, 1, 2):  # whatever was predicted before
        found = images(rows, member)
        for own, row, result in zip(u[member], data.X_test, found, strict=True):
            image = np.pad(row.reshape(data.image), ((2, 2), (2, 2), (0, 0)))
            down, right = int(own[0] * 5), int(own[1] * 5)
            window = image[down : down + 8, right : right + 8]
            window = window[:, ::-1] if own[2] >= 0.5 else window
            np.testing.assert_array_equal(result, encoder(window.reshape(1, -1))[0])


@settings(deadline=None, max_examples=20)
@given(
    scheme=st.sampled_from(["crop-flip:1", "rotate:45", "colour:0.2", "shift-y:0.3"]),
    order=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    at_once=st.integers(1, 70),
)
def test_what_a_member_sees_depends_on_no_cut_and_no_order(scheme, order, at_once):
    _, _, rows = rows_of(scheme)
    expected = {member: images(rows, member) for member in sorted({*order})}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "IMAGES_AT_ONCE", at_once)
        for member in order:
            np.testing.assert_array_equal(images(rows, member), expected[member])


def run_of(classifier, method, scheme, number=0, **hparams):
    options = {
        "epochs": 3,
        "hparams": {**examples.OPTIONS[classifier]["hparams"], **hparams},
        **({"optimizer": "sgd"} if method in ("snapshot", "fge") else {}),
    }
    resolved = resolve_cell(
        11,
        DIGITS,
        classifiers.resolve(classifier, options, DIGITS),
        train_fraction=100,
        ensembling=None if method is None else methods.resolve(method, OPTIONS[method]),
        test_augment=scheme,
    )
    return Run(resolved.cell, 0, number)


def train(run, checkpoint=None):
    kept = ARRAYS if run.cell.ensembling is not None else ()
    return Trainer().train(run, Handling(measures=(*set(kept) & {*KEPT},), checkpoint=checkpoint))


def members(run):
    return train(run).measured["member_score"]


def test_identity_augmentation_makes_members_equal_and_what_a_single_network_predicts():
    plain = train(run_of("convnet", None, "none")).scores[0].astype(np.float64)
    plain -= np.logaddexp.reduce(plain, axis=1, keepdims=True)
    found = members(run_of("convnet", "single", "shift-x:1e-12"))
    np.testing.assert_allclose(found, np.broadcast_to(plain, found.shape), atol=2e-5)
    found = members(run_of("convnet", "single", "crop-flip:1"))
    assert len(np.unique(found, axis=0)) == 3


def test_the_training_is_the_same_whatever_the_test_set_goes_through(monkeypatch):
    states = []
    logits = TestRows.logits

    def kept(self, model, member=0):
        states.append([value.clone() for value in model.state_dict().values()])
        return logits(self, model, member)

    monkeypatch.setattr(TestRows, "logits", kept)
    for method, scheme in ((None, "none"), (None, "rotate:30"), ("single", "rotate:30")):
        train(run_of("mlp", method, scheme))
    assert len(states) == 1 + 1 + 3
    for other in states[1:]:
        assert all(torch.equal(a, b) for a, b in zip(states[0], other, strict=True))


@pytest.mark.parametrize("method", [*OPTIONS])
def test_the_first_member_sees_what_a_run_without_a_method_sees(method, monkeypatch):
    seen = []
    whole = Augmented.__call__
    monkeypatch.setattr(
        Augmented, "__call__", lambda self, index: seen.append(whole(self, index)) or seen[-1]
    )
    train(run_of("mlp", None, "rotate:30"))
    assert len(seen) == 1
    train(run_of("mlp", method, "rotate:30", dropout=0.2))
    of_members = seen[-OPTIONS[method]["members"] :]
    assert torch.equal(of_members[0], seen[0])
    assert not torch.equal(of_members[1], seen[0])
    keys = stream_keys(run_of("convnet", "single", "rotate:30"))["test_augment"]
    assert keys == [DIGITS.id, "rotate:30", 0, 0]


@pytest.mark.parametrize("method", ["snapshot", "fge"])
def test_an_interrupted_training_ends_with_the_same_members(method, tmp_path, monkeypatch):
    run = run_of("convnet", method, "crop-flip:1")
    checkpoint = Checkpoint(tmp_path / "run", "key", every=0)
    whole = train(run)
    with monkeypatch.context() as patch:
        interrupt(patch, 4)
        with pytest.raises(Interrupted):
            train(run, checkpoint)
    result = train(run, checkpoint)
    np.testing.assert_array_equal(result.scores, whole.scores)
    for name in KEPT:
        np.testing.assert_array_equal(result.measured[name], whole.measured[name])


def test_the_price_of_k_passes_over_transformed_images():
    info = classifiers.resolve("convnet", examples.OPTIONS["convnet"], DIGITS)

    def seconds(count, scheme):
        method = methods.resolve("single", {"members": count})
        return classifiers.core_seconds(DIGITS, info, 100, "none", method, scheme)

    each = 60 * 64 * 1e-8
    for count in (2, 50):
        more = seconds(count, "crop-flip:4") - seconds(count, "none")
        assert more == pytest.approx(count * each)
    once = classifiers.core_seconds(DIGITS, info, 100, test_augment="crop-flip:4")
    assert once - classifiers.core_seconds(DIGITS, info, 100) == pytest.approx(each)
