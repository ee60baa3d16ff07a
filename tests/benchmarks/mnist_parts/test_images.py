"""Images: the split of the paper, and turning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.mnist_parts.images import PIXELS, SIDE, Images, noise_images, read_images, rotated
from tests.benchmarks.mnist_parts.made_images import made_images, write_images

if TYPE_CHECKING:
    from pathlib import Path


def test_validation_images_are_the_last_training_images(tmp_path: Path) -> None:
    write_images(tmp_path, training=50, test=20)
    training, validation, test = read_images(tmp_path, validation=10)
    assert (len(training), len(validation), len(test)) == (40, 10, 20)
    np.testing.assert_array_equal(validation.pixels, made_images(50).pixels[40:])


def test_pixels_are_divided_by_126() -> None:
    assert made_images(10).inputs().max() == pytest.approx(made_images(10).pixels.max() / 126.0)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"mnist\.npz: the file is missing"):
        read_images(tmp_path)


def test_a_quarter_turn_moves_every_pixel_exactly() -> None:
    images = made_images(10)
    turned = rotated(images, 90.0).pixels.reshape(-1, SIDE, SIDE)
    np.testing.assert_array_equal(turned, np.rot90(images.pixels.reshape(-1, SIDE, SIDE), axes=(1, 2)))


def test_a_turn_keeps_the_light_of_the_middle() -> None:
    light = np.zeros((1, SIDE, SIDE), np.uint8)
    light[0, 8:20, 8:20] = 200
    turned = rotated(Images(light.reshape(1, PIXELS), np.zeros(1, np.int64)), 30.0)
    assert turned.pixels.sum() == pytest.approx(light.sum(), rel=0.01)


def test_noise_shows_no_digit() -> None:
    pixels = noise_images(200, seed=0).pixels
    assert pixels.mean() == pytest.approx(127.5, abs=1.0)
    assert not np.array_equal(pixels, noise_images(200, seed=1).pixels)
