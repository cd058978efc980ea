"""Transforms against SciPy, torchvision, Python's colorsys and PIL; what a magnitude means."""

import colorsys

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance
from scipy import ndimage

from manyseed.jobs.images import MOST
from manyseed.jobs.images.transforms import GREY, transform_of_all, transformed
from manyseed.jobs.packages import torchvision


def images(n=3, height=9, width=12, channels=3, seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.random((n, height, width, channels)))


def moved(name, given, magnitude, largest=1.0):
    return transformed(
        name, given, torch.full((len(given),), magnitude, dtype=torch.float64), largest
    )


@pytest.mark.parametrize("name", MOST)
@pytest.mark.parametrize("channels", [1, 3])
def test_magnitude_0_changes_nothing(name, channels):
    given = images(channels=channels) * 255
    assert torch.allclose(moved(name, given, 0.0, 255.0), given, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "channels"),
    [(name, n) for name in MOST for n in (1, 2, 3) if (name, n) != ("colour", 2)],
)
def test_one_magnitude_of_all_images_is_that_of_each_bit_for_bit(name, channels):
    given = images(channels=channels) * 255
    for magnitude in (0.0, -0.31, 0.25, MOST[name]):
        move = transform_of_all(name, given.shape[1:], magnitude, 255.0)
        for _ in range(2):  # it may be called again
            assert torch.equal(move(given), moved(name, given, magnitude, 255.0))


@pytest.mark.parametrize("degrees", [-170.0, -30.0, 17.5, 90.0, 179.0])
def test_rotation_is_scipys_inside(degrees):
    given = images(height=11, width=11)
    found = moved("rotate", given, degrees).numpy()
    for image, rotated in zip(given.numpy(), found, strict=True):
        expected = ndimage.rotate(image, degrees, axes=(1, 0), reshape=False, order=1)
        inside = _inside(11)
        # ndimage turns from its first axis to its second: (1, 0) is counter-clockwise as drawn
        np.testing.assert_allclose(rotated[inside], expected[inside], atol=1e-5)


def _inside(side):
    """Pixels that no rotation takes to the border."""
    place = np.arange(side) - (side - 1) / 2
    return np.hypot(place[:, None], place) <= (side - 1) / 2 - 1


@pytest.mark.parametrize("share", [-0.5, -0.21, 0.08, 1 / 3])
@pytest.mark.parametrize(("name", "axis"), [("shift-y", 0), ("shift-x", 1)])
def test_shifts_are_scipys_inside(name, axis, share):
    given = images()
    found = moved(name, given, share).numpy()
    by = share * given.shape[1 + axis]
    for image, shifted in zip(given.numpy(), found, strict=True):
        expected = ndimage.shift(image, [by if axis == 0 else 0, by if axis else 0, 0], order=1)
        reach = int(np.ceil(abs(by)))
        inside = np.s_[reach:-reach]
        where = inside if axis == 0 else (slice(None), inside)
        np.testing.assert_allclose(shifted[where], expected[where], atol=1e-5)


def test_a_dot_turns_counter_clockwise_and_moves_right_and_down():
    dot = torch.zeros(1, 5, 5, 1, dtype=torch.float64)
    dot[0, 2, 4] = 1.0  # right of the centre
    assert moved("rotate", dot, 90.0)[0, 0, 2].item() == pytest.approx(1)  # above it
    dot = dot.roll(-2, dims=2)
    assert moved("shift-x", dot, 0.4)[0, 2, 4].item() == pytest.approx(1)
    assert moved("shift-y", dot, 0.4)[0, 4, 2].item() == pytest.approx(1)


def test_what_is_uncovered_is_0_and_each_image_has_its_own_magnitude():
    given = torch.ones(2, 4, 4, 1, dtype=torch.float64)
    found = transformed("shift-x", given, torch.tensor([0.5, -0.25], dtype=torch.float64), 1.0)
    assert found[0, :, :, 0].tolist() == [[0, 0, 1, 1]] * 4
    assert found[1, :, :, 0].tolist() == [[1, 1, 1, 0]] * 4


@pytest.mark.parametrize("degrees", [-33.0, 90.0])
def test_rotation_is_torchvisions(degrees):
    functional = torchvision("torchvision.transforms.v2.functional")
    given = images(height=10, width=7)
    expected = functional.rotate(
        given.permute(0, 3, 1, 2), degrees, functional.InterpolationMode.BILINEAR
    )
    found = moved("rotate", given, degrees).permute(0, 3, 1, 2)
    assert torch.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("change", [-0.25, 0.1, 0.25])
@pytest.mark.parametrize("channels", [1, 3])
def test_colour_is_torchvisions_four_in_order(change, channels):
    functional = torchvision("torchvision.transforms.v2.functional")
    given = images(channels=channels)
    expected = given.permute(0, 3, 1, 2)
    for adjust, by in (
        (functional.adjust_brightness, 1 + change),
        (functional.adjust_contrast, 1 + change),
        (functional.adjust_saturation, 1 + change),
        (functional.adjust_hue, change),
    ):
        expected = adjust(expected, by)
    found = moved("colour", given * 16, change, 16.0).permute(0, 3, 1, 2) / 16
    assert torch.allclose(found, expected, atol=1e-6)


def test_hue_is_that_of_colorsys():
    given = images(n=1, height=4, width=4)
    changes = torch.tensor([[0.0, 0.0, 0.0, 0.3]], dtype=torch.float64)
    found = transformed("colour", given, changes, 1.0)
    for pixel, turned in zip(given.reshape(-1, 3).tolist(), found.reshape(-1, 3), strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*pixel)
        expected = colorsys.hsv_to_rgb((hue + 0.3) % 1, saturation, value)
        assert turned.tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("place", "enhance"),
    [(0, ImageEnhance.Brightness), (1, ImageEnhance.Contrast), (2, ImageEnhance.Color)],
)
def test_brightness_contrast_and_saturation_are_pils(place, enhance):
    pixels = np.random.default_rng(1).integers(0, 256, (1, 6, 5, 3), dtype=np.uint8)
    expected = np.asarray(enhance(Image.fromarray(pixels[0])).enhance(1.2))
    changes = torch.zeros(1, 4, dtype=torch.float64)
    changes[0, place] = 0.2
    found = transformed("colour", torch.from_numpy(pixels).double(), changes, 255.0)
    # PIL rounds to bytes, the mean and the greys too
    assert np.abs(found[0].numpy() - expected).max() < 2.0
    assert sum(GREY) == pytest.approx(1, abs=1e-3)
