"""Conformal maps: their guarantee, two sides, weights and units, inverse, JSON, pooling, and the standard deviation."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from murho.model.calibration.conformal import CENTRAL, CROSS, POOLED, CalibratedSpread, ConformalMap, fit_conformal_map
from tests.model.conftest import present
from tests.model.maps import odd_map


def _scores(count: int, seed: int = 0, scale: float = 1.7) -> np.ndarray:
    return np.random.default_rng(seed).standard_t(4, count) * scale


@pytest.mark.parametrize("coverage", [0.5, 0.9])
@pytest.mark.parametrize("count", [19, 60])
def test_bands_cover_as_promised_whatever_the_scores_are(count: int, coverage: float) -> None:
    """Averaged over calibration sets, the share of new rows inside is the nominal coverage."""
    nominal = torch.special.ndtri(torch.tensor([0.5 + coverage / 2.0], dtype=torch.float64))
    shares = []
    for seed in range(300):
        conformal = fitted(_scores(count, seed))
        reach = float(conformal.calibrate(nominal))
        shares.append(np.mean(np.abs(_scores(400, seed + 10_000)) <= reach))
    # Interpolation between order statistics costs less than a rank.
    assert abs(np.mean(shares) - coverage) < 0.012 + 0.25 / (count + 1)


def fitted(scores: np.ndarray, **options: Any) -> ConformalMap:
    return present(fit_conformal_map(scores, **options))


def _skewed(rows: int, seed: int = 0) -> np.ndarray:
    """Scores of exponential noise under a Gaussian of the same mean and spread."""
    return np.random.default_rng(seed).exponential(size=rows) - 1.0


@pytest.mark.parametrize("scores", [*(_scores(50, scale=scale) for scale in (0.3, 0.8, 1.7)), _skewed(600)])
def test_a_map_rises_also_where_it_may_only_widen_and_is_undone_by_its_inverse(scores: np.ndarray) -> None:
    """Narrow, narrow in the middle alone, wide, and skewed scores; beyond the knots too."""
    conformal = fitted(scores, method=CROSS)
    grid = torch.linspace(-9.0, 9.0, 400, dtype=torch.float64).reshape(20, 20)
    plain, widened = (conformal.calibrate(grid, only_widen) for only_widen in (False, True))
    for mapped, only_widen in ((plain, False), (widened, True)):
        assert bool((mapped.flatten().diff() > 0).all())
        torch.testing.assert_close(conformal.nominal_of(mapped, only_widen), grid, rtol=1e-9, atol=1e-9)
    assert bool((widened.abs() >= grid.abs()).all())
    if len(scores) < 100:
        torch.testing.assert_close(plain, -plain.flip((0, 1)))
        torch.testing.assert_close(widened.abs(), torch.maximum(plain.abs(), grid.abs()))
    else:
        assert conformal.centre != 0.0
    some = grid > 1.0
    torch.testing.assert_close(conformal.calibrate(grid, some), torch.where(some, widened, plain), rtol=0.0, atol=0.0)
    assert ConformalMap.from_json(conformal.to_json()) == conformal


def test_each_side_covers_by_itself_where_scores_are_skewed() -> None:
    levels = (0.05, 0.1, 0.5, 0.95)
    nominal = torch.special.ndtri(torch.tensor(levels, dtype=torch.float64))
    below = []
    for seed in range(20):
        conformal = fitted(_skewed(2_000, seed))
        reach = conformal.calibrate(nominal).numpy()
        below.append((_skewed(4_000, seed + 100)[:, None] <= reach).mean(axis=0))
    np.testing.assert_allclose(np.mean(below, axis=0), levels, atol=0.01)


def test_the_number_of_rows_alone_decides_on_the_kind_of_map() -> None:
    few, many = (fitted(_skewed(rows)) for rows in (99, 100))
    assert few.centre == 0.0
    assert few.observed == pytest.approx([-score for score in reversed(few.observed)])
    # Every knot but the middle is a score itself.
    knots = np.delete(np.array(many.observed), len(many.observed) // 2)
    assert np.abs(knots[:, None] - _skewed(100)).min(axis=1).max() < 1e-6
    assert many.centre == pytest.approx(float(np.median(_skewed(100))), abs=0.02)
    grouped = fitted(_skewed(500), units=20)
    assert grouped.centre == 0.0


def test_many_rows_have_few_knots_and_few_rows_no_map() -> None:
    conformal = fitted(_scores(50_000), method=CROSS)
    assert (conformal.method, conformal.rows) == (CROSS, 50_000)
    assert len(conformal.nominal) <= 801
    assert fit_conformal_map(np.zeros(9)) is None


def test_a_row_of_a_new_group_is_covered_with_the_nominal_probability() -> None:
    """Scores of a group share an effect; groups differ in size. Averaged over calibration sets and new groups."""
    generator = np.random.default_rng(0)
    sizes = np.array([2] * 12 + [30] * 7)
    covered: list[float] = []
    plainly: list[float] = []
    nominal = torch.special.ndtri(torch.tensor([0.5 + 0.8 / 2.0], dtype=torch.float64))
    for _ in range(600):
        effects = 2.0 * generator.normal(size=len(sizes) + 1)
        scores = np.repeat(effects[:-1], sizes) + 0.3 * generator.normal(size=int(sizes.sum()))
        new = effects[-1] + 0.3 * generator.normal(size=50)
        for weights, units, into in ((np.repeat(1.0 / sizes, sizes), len(sizes), covered), (None, None, plainly)):
            conformal = fitted(scores, weights=weights, units=units)
            into.append(float((np.abs(new) <= float(conformal.calibrate(nominal))).mean()))
    assert 0.79 <= np.mean(covered) <= 0.86
    assert np.mean(plainly) < 0.77


CPU = torch.device("cpu")


DOUBLING = odd_map((1.0, 3.0), (2.0, 6.0), 60)


ODD_ROW = odd_map((0.5, 1.0, 2.0, 2.9), (0.5, 1.0, 2.0, 8.0), 300)


NEITHER = np.array([False, True])


def gaussians(spread: CalibratedSpread, means: list[float], stds: list[float]) -> np.ndarray:
    rows: np.ndarray = np.add.outer(means, np.zeros(len(spread.nodes))) + np.multiply.outer(stds, spread.nodes.numpy())
    return rows


def test_one_odd_row_beyond_the_central_part_does_not_multiply_every_answer() -> None:
    spread = CalibratedSpread.of(ODD_ROW, CPU)
    rows = gaussians(spread, [0.0, 0.0], [1.0, 1.0])
    assert (spread.ratio(rows, NEITHER) < 1.4).all()
    assert float(spread.nodes[-1]) == pytest.approx(
        float(ODD_ROW.calibrate(torch.tensor([CENTRAL]).double())[0]), rel=0.01
    )


def _earlier(rows: int = 200) -> ConformalMap:
    return fitted(np.random.default_rng(0).standard_normal(rows), method=CROSS)


def _pooled(earlier: ConformalMap, scores: np.ndarray, **options: Any) -> ConformalMap:
    return fitted(scores, method=POOLED, earlier=earlier, **options)


def _reach(conformal: ConformalMap) -> np.ndarray:
    reach: np.ndarray = conformal.calibrate(torch.tensor([-1.6448536, -0.6745, 0.6745, 1.6448536]).double()).numpy()
    return reach


@pytest.mark.parametrize("rows", [61, 600])
@pytest.mark.parametrize("skewed", [False, True])
def test_without_new_rows_the_earlier_map_stays(rows: int, skewed: bool) -> None:
    generator = np.random.default_rng(0)
    scores = generator.exponential(size=rows) - 1.0 if skewed else generator.standard_normal(rows)
    earlier = fitted(scores, method=CROSS)
    assert (earlier.centre < -0.1) == (skewed and rows >= 100)
    grid = torch.linspace(-1.5, 1.5, 31, dtype=torch.float64)
    again = _pooled(_pooled(earlier, np.zeros(0)), np.zeros(0))
    torch.testing.assert_close(again.calibrate(grid), earlier.calibrate(grid), atol=1e-6, rtol=0.0)


def test_weights_count_like_repeated_rows() -> None:
    scores = _scores(80)
    weights = np.tile([1.0, 3.0], 40)
    weighted = fitted(scores, weights=weights, units=90)
    repeated = fitted(np.repeat(scores, weights.astype(int)), units=90)
    inner = torch.linspace(-1.2, 1.2, 25, dtype=torch.float64)
    torch.testing.assert_close(weighted.calibrate(inner), repeated.calibrate(inner), atol=0.04, rtol=0.0)
    assert fitted(scores, weights=np.full(80, 7.0)) == fitted(scores)


def test_nothing_overflows() -> None:
    spread = CalibratedSpread.of(DOUBLING, CPU)
    with np.errstate(all="ignore"):
        rows = np.multiply.outer([0.0, 1e308, 1e-308, math.inf, 1e300], spread.nodes.numpy())
    ratio = spread.ratio(rows, np.zeros(5, dtype=bool))
    assert np.isfinite(ratio).all()
    np.testing.assert_allclose(ratio[[0, 1, 3]], 1.0)
    np.testing.assert_allclose(ratio[[2, 4]], 2.0, rtol=1e-6)


@pytest.mark.parametrize("rows", [9, 99])
def test_one_row_more_changes_little(rows: int) -> None:
    scores = 2.0 * np.random.default_rng(1).standard_normal(rows + 1)
    fewer, more = (_pooled(_earlier(), scores[:count]) for count in (rows, rows + 1))
    np.testing.assert_allclose(_reach(more), _reach(fewer), rtol=0.03)
    assert more.method == POOLED
    assert more.rows == fewer.rows + 1 == 200 + rows + 1
