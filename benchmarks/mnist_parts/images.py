"""The images of MNIST: read, split as in Blundell et al. 2015, turned, and pure noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["CLASSES", "PIXELS", "PIXEL_SCALE", "SIDE", "VALIDATION", "Images", "noise_images", "read_images", "rotated"]

SIDE = 28
PIXELS = SIDE * SIDE
CLASSES = 10
PIXEL_SCALE = 126.0
"""A pixel, 0 to 255, is divided by this before the network sees it (Blundell et al. 2015, section 5.1)."""
VALIDATION = 10_000
"""Training images that only choose settings: the last ones, as in the paper's 50,000, 10,000 and 10,000."""


@dataclass(frozen=True, slots=True)
class Images:
    """Images as rows of pixels, and their digits.

    Attributes:
        pixels: 0 to 255, ``[N, 784]``, uint8.
        digits: 0 to 9, ``[N]``, int64.
    """

    pixels: NDArray[np.uint8]
    digits: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.digits)

    def __getitem__(self, rows: slice) -> Images:
        return Images(self.pixels[rows], self.digits[rows])

    def inputs(self) -> NDArray[np.float32]:
        """What a network sees: pixels divided by 126, ``[N, 784]``."""
        return self.pixels.astype(np.float32) / np.float32(PIXEL_SCALE)


def read_images(directory: Path, validation: int = VALIDATION) -> tuple[Images, Images, Images]:
    """Read ``mnist.npz``: training, validation and test images.

    Args:
        directory: Holds ``mnist.npz`` (``x_train``, ``y_train``, ``x_test``, ``y_test``), itself or in ``mnist/``.
        validation: Number of images to set aside for validation: the last ones.

    Raises:
        SystemExit: There is no such file, or it holds something else; the message says what.
    """
    paths = [directory / "mnist.npz", directory / "mnist" / "mnist.npz"]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise SystemExit(f"{paths[0]}: the file is missing; it holds x_train, y_train, x_test and y_test of MNIST")
    with np.load(path, allow_pickle=False) as arrays:
        missing = [name for name in ("x_train", "y_train", "x_test", "y_test") if name not in arrays.files]
        if missing:
            raise SystemExit(f"{path}: holds no {', '.join(missing)}")
        known = _images(path, arrays["x_train"], arrays["y_train"])
        test = _images(path, arrays["x_test"], arrays["y_test"])
    if not 0 < validation < len(known):
        raise SystemExit(f"{path}: {validation} validation images of {len(known)} leave nothing to learn from")
    first = len(known) - validation
    return known[:first], known[first:], test


def _images(path: Path, pixels: NDArray[np.uint8], digits: NDArray[np.uint8]) -> Images:
    if pixels.dtype != np.uint8 or pixels.shape != (len(digits), SIDE, SIDE):
        raise SystemExit(f"{path}: expected uint8 images of {SIDE} x {SIDE}, found {pixels.dtype} {pixels.shape}")
    return Images(pixels.reshape(len(pixels), PIXELS), digits.astype(np.int64))


def rotated(images: Images, degrees: float) -> Images:
    """Turn each image about its centre, counterclockwise, with bilinear interpolation; outside is 0.

    Args:
        images: Upright images.
        degrees: Angle.
    """
    angle = np.deg2rad(degrees)
    middle = (SIDE - 1) / 2.0
    down, right = np.mgrid[0:SIDE, 0:SIDE] - middle
    # Where each pixel of the turned image comes from: turned back. Rows count downwards.
    source_right = np.cos(angle) * right - np.sin(angle) * down + middle
    source_down = np.sin(angle) * right + np.cos(angle) * down + middle
    top, left = np.floor(source_down).astype(int), np.floor(source_right).astype(int)
    below, beside = source_down - top, source_right - left
    padded = np.pad(images.pixels.reshape(-1, SIDE, SIDE).astype(np.float32), ((0, 0), (1, 1), (1, 1)))
    turned = np.zeros((len(images), SIDE, SIDE), np.float32)
    for step_down, weight_down in ((0, 1.0 - below), (1, below)):
        for step_right, weight_right in ((0, 1.0 - beside), (1, beside)):
            rows = np.clip(top + step_down + 1, 0, SIDE + 1)
            columns = np.clip(left + step_right + 1, 0, SIDE + 1)
            turned += (weight_down * weight_right).astype(np.float32) * padded[:, rows, columns]
    return Images(np.rint(turned).astype(np.uint8).reshape(-1, PIXELS), images.digits)


def noise_images(count: int, seed: int) -> Images:
    """Images of independent, evenly distributed pixels, which show no digit; their digits are all 0.

    Args:
        count: N.
        seed: Seed.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    return Images(generator.integers(0, 256, (count, PIXELS), dtype=np.uint8), np.zeros(count, np.int64))
