"""Training images at random: what is drawn, what comes of it, and that nothing else changes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from manyseed.jobs.classifiers import CLASSIFIERS
from manyseed.jobs.images.transforms import Augmented, brightest, cropped, transformed
from manyseed.jobs.run import DatasetRows, raw, stream
from manyseed.jobs.training import loop
from manyseed.jobs.training.checkpoint import Checkpoint
from manyseed.jobs.training.encode import dense_encoder, pixel_encoder
from tests.jobs.classifiers import examples
from tests.jobs.training.test_checkpoint import Interrupted, interrupt

CPU = torch.device("cpu")
NETWORKS = [name for name, record in CLASSIFIERS.items() if record.augments]


def training_set(scheme, data=None):
    found = (data or examples.image)()
    return replace(found[0] if isinstance(found, tuple) else found, augment=scheme)


def presented(data, index, encoder=pixel_encoder, seed=1):
    made = Augmented(data, encoder(data), stream(seed, "augment"), CPU)
    return made(torch.as_tensor(index)).numpy()


def uniform(n, each, seed=1):
    words = raw(stream(seed, "augment"), n * each)
    return np.array([int(word) // 2**11 / 2**53 for word in words.tolist()]).reshape(n, each)


@pytest.mark.parametrize(
    ("scheme", "each"), [("rotate:90", 1), ("shift-y:0.5", 1), ("colour:0.25", 4)]
)
def test_magnitudes_follow_from_the_words_of_the_stream(scheme, each):
    data, index = training_set(scheme, examples.colour), [3, 0, 3]
    name, most = scheme.split(":")
    magnitudes = float(most) * (2 * uniform(3, each) - 1)
    images = torch.from_numpy(data.X[index]).reshape(-1, *data.image)
    moved = transformed(
        name, images, torch.from_numpy(magnitudes if each > 1 else magnitudes[:, 0]), data.X.max()
    )
    expected = pixel_encoder(data)(moved.reshape(3, -1).numpy())
    np.testing.assert_allclose(presented(data, index), expected, rtol=0, atol=1e-6)


def test_crops_are_windows_of_the_padded_image_and_may_be_mirrored():
    data, index = training_set("crop-flip:2"), np.arange(40)
    encoder = pixel_encoder(data)
    found = presented(data, index)
    for u, row, result in zip(uniform(40, 3), data.X[index], found, strict=True):
        image = np.pad(row.reshape(data.image), ((2, 2), (2, 2), (0, 0)))
        down, right = int(u[0] * 5), int(u[1] * 5)
        window = image[down : down + 8, right : right + 8]
        window = window[:, ::-1] if u[2] >= 0.5 else window
        np.testing.assert_array_equal(result, encoder(window.reshape(1, -1))[0])


def test_a_crop_in_the_middle_is_the_image_and_a_mirrored_one_its_mirror_image():
    images = torch.rand(2, 4, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    middle = torch.full((2, 2), 3)
    found = cropped(images, 3, middle, torch.tensor([False, True]))
    assert torch.equal(found[0], images[0])
    assert torch.equal(found[1], images[1].flip(1))


def test_all_magnitudes_are_drawn_evenly():
    u = uniform(20_000, 1)[:, 0]
    assert np.histogram(2 * u - 1, 10, (-1, 1))[0] == pytest.approx(2000, abs=200)


@pytest.mark.parametrize("encoder", [pixel_encoder, dense_encoder])
@pytest.mark.parametrize("scheme", ["rotate:1e-10", "shift-x:1e-12", "colour:1e-10"])
def test_next_to_no_augmentation_is_the_plain_encoding(encoder, scheme):
    data, index = training_set(scheme, examples.colour), np.arange(10)
    expected = encoder(data)(data.X[index]).astype(np.float32)
    np.testing.assert_allclose(presented(data, index, encoder), expected, rtol=0, atol=1e-5)


def test_short_numbers_are_kept_short_and_others_whole():
    data = training_set("rotate:5")
    bytes_ = replace(data, X=data.X.round())
    for given, dtype in ((data, torch.float64), (bytes_, torch.float32)):
        made = Augmented(given, pixel_encoder(given), stream(1, "augment"), CPU)
        assert made._raw.dtype == dtype


def test_full_brightness_is_255_of_bytes_and_else_the_datasets_largest():
    data = training_set("colour:0.1")
    X = np.minimum(data.X, 200.0).round()
    for rows, expected in ((X.astype(np.uint8), 255.0), (X, 200.0)):
        of = DatasetRows("d", rows, None, np.zeros(1, dtype=np.int64))
        assert brightest(replace(data, X=X[:2] / 2, in_dataset=of)) == expected


def fit(name, scheme, **more):
    data = training_set(scheme, examples.of(name) if name in examples.IMAGES_ONLY else None)
    return examples.fit(name, data, {**examples.OPTIONS[name], "epochs": 3}, **more)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_sees_other_images_in_each_epoch_and_learns_otherwise(name, monkeypatch):
    seen = []
    whole = Augmented.__call__
    monkeypatch.setattr(
        Augmented, "__call__", lambda self, index: seen.append(whole(self, index)) or seen[-1]
    )
    augmented = fit(name, "rotate:45")
    assert len(torch.cat(seen)) == 3 * len(training_set("none").y)
    assert len(torch.cat(seen).reshape(len(torch.cat(seen)), -1).unique(dim=0)) == len(
        torch.cat(seen)
    )
    assert not np.array_equal(augmented.scores, fit(name, "none").scores)
    np.testing.assert_array_equal(augmented.scores, fit(name, "rotate:45").scores)


@pytest.mark.parametrize("scheme", ["rotate:45", "crop-flip:2"])
def test_an_interrupted_training_goes_on_with_the_images_that_it_would_have_seen(
    scheme, tmp_path, monkeypatch
):
    checkpoint = Checkpoint(tmp_path / "run", "key", every=0)
    whole = fit("convnet", scheme)
    with monkeypatch.context() as patch:
        interrupt(patch, 3)
        with pytest.raises(Interrupted):
            fit("convnet", scheme, checkpoint=checkpoint)
    result = fit("convnet", scheme, checkpoint=checkpoint)
    np.testing.assert_array_equal(result.scores, whole.scores)


def test_only_the_stream_augment_is_drawn_from_besides(monkeypatch):
    orders = []
    cut = loop.batches
    monkeypatch.setattr(loop, "batches", lambda *a: orders.append([*cut(*a)]) or orders[-1])
    before = torch.get_rng_state()
    fit("convnet", "crop-flip:2")
    fit("convnet", "none")
    assert torch.equal(torch.get_rng_state(), before)
    for one, other in zip(orders[:3], orders[3:], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
