"""Made images: a block of light at a place of its own for each digit, with noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.mnist_parts.images import PIXELS, SIDE, Images

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["made_images", "write_images"]


def made_images(count: int, seed: int = 0) -> Images:
    """Images that a network learns in a few steps; each digit is as frequent as the others."""
    generator = np.random.Generator(np.random.PCG64(seed))
    digits = np.arange(count) % 10
    light = generator.integers(0, 60, (count, SIDE, SIDE))
    for number, digit in enumerate(digits):
        down, right = divmod(int(digit), 5)
        light[number, 2 + 13 * down : 12 + 13 * down, 2 + 5 * right : 7 + 5 * right] += 180
    return Images(light.astype(np.uint8).reshape(count, PIXELS), digits.astype(np.int64))


def write_images(directory: Path, training: int = 300, test: int = 60) -> None:
    """Write ``mnist.npz`` with made images."""
    known, new = made_images(training), made_images(test, seed=1)
    np.savez_compressed(
        directory / "mnist.npz",
        x_train=known.pixels.reshape(-1, SIDE, SIDE),
        y_train=known.digits.astype(np.uint8),
        x_test=new.pixels.reshape(-1, SIDE, SIDE),
        y_test=new.digits.astype(np.uint8),
    )
