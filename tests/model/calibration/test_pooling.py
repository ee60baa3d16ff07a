"""Pooled maps: between the earlier map and that of the new rows, without a jump."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from murho.model.calibration.conformal import CROSS, POOLED, ConformalMap, fit_conformal_map
from tests.model.conftest import present


def _earlier(rows: int = 200, scale: float = 1.0) -> ConformalMap:
    scores = scale * np.random.default_rng(0).standard_normal(rows)
    conformal = fit_conformal_map(scores, method=CROSS, narrowing=0.9)
    assert conformal is not None
    return conformal


def pooled_map(earlier: ConformalMap, scores: np.ndarray, **options: Any) -> ConformalMap:
    return present(fit_conformal_map(scores, method=POOLED, earlier=earlier, **options))


def _reach(conformal: ConformalMap) -> np.ndarray:
    reach: np.ndarray = conformal.calibrated(torch.tensor([-1.6448536, -0.6745, 0.6745, 1.6448536]).double()).numpy()
    return reach


@pytest.mark.parametrize("rows", [61, 600])
@pytest.mark.parametrize("skewed", [False, True])
def test_without_new_rows_the_earlier_map_stays(rows: int, skewed: bool) -> None:
    generator = np.random.default_rng(0)
    scores = generator.exponential(size=rows) - 1.0 if skewed else generator.standard_normal(rows)
    earlier = fit_conformal_map(scores, method=CROSS)
    assert earlier is not None
    assert (earlier.centre < -0.1) == (skewed and rows >= 100)
    grid = torch.linspace(-1.5, 1.5, 31, dtype=torch.float64)
    again = pooled_map(pooled_map(earlier, np.zeros(0)), np.zeros(0))
    torch.testing.assert_close(again.calibrated(grid), earlier.calibrated(grid), atol=1e-6, rtol=0.0)


@pytest.mark.parametrize("rows", [9, 20, 49, 99])
def test_one_row_more_changes_little(rows: int) -> None:
    scores = 2.0 * np.random.default_rng(1).standard_normal(rows + 1)
    fewer, more = (pooled_map(_earlier(), scores[:count], narrowing=0.8) for count in (rows, rows + 1))
    np.testing.assert_allclose(_reach(more), _reach(fewer), rtol=0.03)
    assert more.method == POOLED
    assert more.rows == fewer.rows + 1 == 200 + rows + 1


def test_many_new_rows_decide() -> None:
    scores = 2.0 * np.random.default_rng(1).standard_normal(4_000)
    alone = fit_conformal_map(scores, method=CROSS)
    assert alone is not None
    np.testing.assert_allclose(_reach(pooled_map(_earlier(50), scores)), _reach(alone), rtol=0.03)


def test_weights_of_new_rows_are_relative_to_each_other() -> None:
    scores = np.random.default_rng(1).standard_normal(60)
    np.testing.assert_allclose(
        _reach(pooled_map(_earlier(), scores, weights=np.full(60, 9.0))), _reach(pooled_map(_earlier(), scores))
    )
