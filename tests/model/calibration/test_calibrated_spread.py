"""The ratio of the calibrated to the raw standard deviation, where it is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from murho.model.calibration.conformal import CENTRAL, CalibratedSpread, ConformalMap
from tests.model.maps import odd_map

CPU = torch.device("cpu")
HALVING = odd_map((1.0, 3.0), (0.5, 1.5), 60)
DOUBLING = odd_map((1.0, 3.0), (2.0, 6.0), 60)
BENT = odd_map((0.5, 1.0, 2.0, 3.0), (0.4, 1.3, 1.9, 4.0), 100)
ODD_ROW = odd_map((0.5, 1.0, 2.0, 2.9), (0.5, 1.0, 2.0, 8.0), 300)
NEITHER = np.array([False, True])


def gaussians(spread: CalibratedSpread, means: list[float], stds: list[float]) -> np.ndarray:
    rows: np.ndarray = np.add.outer(means, np.zeros(len(spread.nodes))) + np.multiply.outer(stds, spread.nodes.numpy())
    return rows


@pytest.mark.parametrize(("calibration", "inside", "beyond"), [(HALVING, 0.5, 1.0), (DOUBLING, 2.0, 2.0)])
def test_a_gaussian_is_as_much_narrower_or_wider_as_its_bands(
    calibration: ConformalMap, inside: float, beyond: float
) -> None:
    spread = CalibratedSpread.of(calibration, CPU)
    rows = gaussians(spread, [3.0, -1e6], [0.2, 50.0])
    np.testing.assert_allclose(spread.ratio(rows, NEITHER), [inside, beyond], rtol=1e-9)


@pytest.mark.parametrize("calibration", [HALVING, DOUBLING, BENT])
@pytest.mark.parametrize("widening", [False, True])
@pytest.mark.parametrize("shape", [0.1, 0.4, 0.7])
def test_skewed_distributions_agree_with_a_fine_integral(
    calibration: ConformalMap, widening: bool, shape: float
) -> None:
    levels = (np.arange(20_000) + 0.5) / 20_000 * 0.99 + 0.005
    scores = torch.special.ndtri(torch.from_numpy(levels))
    calibrated = torch.exp(shape * calibration.calibrated(scores, widening))
    expected = calibrated.std() / torch.exp(shape * scores).std()
    spread = CalibratedSpread.of(calibration, CPU)
    ratio = spread.ratio(np.exp(shape * spread.nodes.numpy())[None], np.array([widening]))
    np.testing.assert_allclose(ratio, [float(expected)], rtol=0.02)


def test_one_odd_row_beyond_the_central_part_does_not_multiply_every_answer() -> None:
    spread = CalibratedSpread.of(ODD_ROW, CPU)
    rows = gaussians(spread, [0.0, 0.0], [1.0, 1.0])
    assert (spread.ratio(rows, NEITHER) < 1.4).all()
    assert float(spread.nodes[-1]) == pytest.approx(
        float(ODD_ROW.calibrated(torch.tensor([CENTRAL]).double())[0]), rel=0.01
    )


def test_nothing_overflows() -> None:
    spread = CalibratedSpread.of(DOUBLING, CPU)
    with np.errstate(all="ignore"):
        rows = np.multiply.outer([0.0, 1e308, 1e-308, math.inf, 1e300], spread.nodes.numpy())
    ratio = spread.ratio(rows, np.zeros(5, dtype=bool))
    assert np.isfinite(ratio).all()
    np.testing.assert_allclose(ratio[[0, 1, 3]], 1.0)
    np.testing.assert_allclose(ratio[[2, 4]], 2.0, rtol=1e-6)
