"""Conformal calibration: its guarantee, its two sides, weights and units, its inverse, its JSON."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from murho.model.calibration.conformal import CROSS, SPLIT, ConformalMap, fit_conformal_map
from murho.model.errors import CheckpointError
from tests.model.conftest import present
from tests.model.maps import odd_map


def _scores(count: int, seed: int = 0, scale: float = 1.7) -> np.ndarray:
    return np.random.default_rng(seed).standard_t(4, count) * scale


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("count", [19, 60])
def test_bands_cover_as_promised_whatever_the_scores_are(count: int, coverage: float) -> None:
    """Averaged over calibration sets, the share of new rows inside is the nominal coverage."""
    nominal = torch.special.ndtri(torch.tensor([0.5 + coverage / 2.0], dtype=torch.float64))
    shares = []
    for seed in range(300):
        conformal = fit_conformal_map(_scores(count, seed))
        assert conformal is not None
        reach = float(conformal.calibrated(nominal))
        shares.append(np.mean(np.abs(_scores(400, seed + 10_000)) <= reach))
    # Interpolation between order statistics costs less than a rank.
    assert abs(np.mean(shares) - coverage) < 0.012 + 0.25 / (count + 1)


def test_right_scores_are_left_nearly_alone() -> None:
    scores = np.random.default_rng(0).standard_normal(20_000)
    conformal = fit_conformal_map(scores)
    assert conformal is not None
    grid = torch.linspace(-2.5, 2.5, 51, dtype=torch.float64)
    assert float((conformal.calibrated(grid) - grid).abs().max()) < 0.07


def test_map_is_odd_increasing_and_undone_by_its_inverse_also_beyond_the_knots() -> None:
    conformal = fit_conformal_map(_scores(50))
    assert conformal is not None
    grid = torch.linspace(-9.0, 9.0, 401, dtype=torch.float64)
    mapped = conformal.calibrated(grid)
    assert bool((mapped.diff() > 0).all())
    torch.testing.assert_close(mapped, -mapped.flip(0))
    torch.testing.assert_close(conformal.nominal_of(mapped), grid, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", [0.3, 0.8, 1.7])
def test_where_it_may_only_widen_it_is_the_wider_of_both_and_is_undone_by_its_inverse(scale: float) -> None:
    """Narrow, narrow in the middle alone, and wide scores."""
    conformal = fit_conformal_map(_scores(50, scale=scale))
    assert conformal is not None
    grid = torch.linspace(-5.0, 5.0, 401, dtype=torch.float64)
    plain, widened = conformal.calibrated(grid), conformal.calibrated(grid, widening=True)
    torch.testing.assert_close(widened.abs(), torch.maximum(plain.abs(), grid.abs()))
    assert bool((widened.diff() > 0).all())
    torch.testing.assert_close(conformal.nominal_of(widened, widening=True), grid, rtol=1e-9, atol=1e-9)
    some = grid > 1.0
    torch.testing.assert_close(conformal.calibrated(grid, some), torch.where(some, widened, plain), rtol=0.0, atol=0.0)


def test_median_stays_where_scores_are_symmetric() -> None:
    scores = _scores(40)
    conformal = fit_conformal_map(np.concatenate([scores, -scores]), method=CROSS)
    assert conformal is not None
    assert float(conformal.calibrated(torch.zeros(1).double())) == 0.0


def _skewed(rows: int, seed: int = 0) -> np.ndarray:
    """Scores of exponential noise under a Gaussian of the same mean and spread."""
    return np.random.default_rng(seed).exponential(size=rows) - 1.0


@pytest.mark.parametrize("method", [SPLIT, CROSS])
@pytest.mark.parametrize("levels", [(0.05, 0.95), (0.1, 0.5)])
def test_each_side_covers_by_itself_where_scores_are_skewed(method: str, levels: tuple[float, float]) -> None:
    nominal = torch.special.ndtri(torch.tensor(levels, dtype=torch.float64))
    below = []
    for seed in range(20):
        conformal = fit_conformal_map(_skewed(2_000, seed), method=method)
        assert conformal is not None
        reach = conformal.calibrated(nominal).numpy()
        below.append((_skewed(4_000, seed + 100)[:, None] <= reach).mean(axis=0))
    np.testing.assert_allclose(np.mean(below, axis=0), levels, atol=0.01)


def test_a_skewed_map_rises_and_is_undone_by_its_inverse() -> None:
    conformal = fit_conformal_map(_skewed(600), method=CROSS)
    assert conformal is not None
    assert conformal.centre != 0.0
    grid = torch.linspace(-9.0, 9.0, 400, dtype=torch.float64).reshape(20, 20)
    for widening in (False, True):
        mapped = conformal.calibrated(grid, widening)
        assert mapped.shape == grid.shape
        assert bool((mapped.flatten().diff() > 0).all())
        torch.testing.assert_close(conformal.nominal_of(mapped, widening), grid, rtol=1e-9, atol=1e-9)
    assert bool((conformal.calibrated(grid, widening=True).abs() >= grid.abs()).all())
    assert ConformalMap.from_json(conformal.to_json()) == conformal


@pytest.mark.parametrize("method", [SPLIT, CROSS])
def test_the_number_of_rows_alone_decides_on_the_kind_of_map(method: str) -> None:
    few, many = (fit_conformal_map(_skewed(rows), method=method) for rows in (99, 100))
    assert few is not None
    assert many is not None
    assert few.centre == 0.0
    assert few.observed == pytest.approx([-score for score in reversed(few.observed)])
    # Every knot but the middle is a score itself.
    knots = np.delete(np.array(many.observed), len(many.observed) // 2)
    assert np.abs(knots[:, None] - _skewed(100)).min(axis=1).max() < 1e-6
    assert many.centre == pytest.approx(float(np.median(_skewed(100))), abs=0.02)
    grouped = fit_conformal_map(_skewed(500), units=20)
    assert grouped is not None
    assert grouped.centre == 0.0


def test_weights_count_like_repeated_rows() -> None:
    scores = _scores(80)
    weights = np.tile([1.0, 3.0], 40)
    weighted = fit_conformal_map(scores, weights=weights, units=90)
    repeated = fit_conformal_map(np.repeat(scores, weights.astype(int)), units=90)
    assert weighted is not None
    assert repeated is not None
    inner = torch.linspace(-1.2, 1.2, 25, dtype=torch.float64)
    torch.testing.assert_close(weighted.calibrated(inner), repeated.calibrated(inner), atol=0.04, rtol=0.0)
    assert fit_conformal_map(scores, weights=np.full(80, 7.0)) == fit_conformal_map(scores)


def test_fewer_units_make_wider_bands() -> None:
    """G groups of rows: the level of the k-th of n scores is ``k / n G / (G + 1)``."""
    scores = _scores(200)
    conformal = fit_conformal_map(scores, units=20)
    assert conformal is not None
    half = float(torch.special.ndtri(torch.tensor(0.5 + 0.5 * 0.5 * 20 / 21).double()))
    reach = float(conformal.calibrated(torch.tensor([half]).double()))
    assert reach == pytest.approx(np.sort(np.abs(scores))[99], abs=1e-6)


def test_narrowing_is_applied_and_kept() -> None:
    plain, narrowed = (fit_conformal_map(_scores(50), method=CROSS, narrowing=factor) for factor in (None, 0.8))
    assert plain is not None
    assert narrowed is not None
    np.testing.assert_allclose(narrowed.observed, 0.8 * np.array(plain.observed), rtol=1e-6)
    assert (narrowed.method, narrowed.narrowing) == (CROSS, 0.8)
    assert ConformalMap.from_json(narrowed.to_json()) == narrowed


def test_many_rows_are_summed_up_in_few_knots() -> None:
    conformal = fit_conformal_map(_scores(50_000))
    assert conformal is not None
    assert len(conformal.nominal) <= 801
    assert conformal.rows == 50_000


def test_ties_and_zeros_do_not_break_the_map() -> None:
    conformal = fit_conformal_map(np.array([0.0] * 30 + [1.0] * 30))
    assert conformal is not None
    assert ConformalMap.from_json(conformal.to_json()) == conformal


def test_too_few_rows_give_no_map() -> None:
    assert fit_conformal_map(np.zeros(9)) is None


def test_equal_weights_change_nothing() -> None:
    scores = _scores(700)
    plain, weighted = (present(fit_conformal_map(scores, weights=given)) for given in (None, np.full(700, 0.3)))
    np.testing.assert_allclose(weighted.nominal, plain.nominal, rtol=1e-9)
    np.testing.assert_allclose(weighted.observed, plain.observed, rtol=1e-9)


def test_weights_give_the_map_of_the_rows_that_they_stand_for() -> None:
    narrow, wide = _scores(2_000), _scores(2_000, scale=3.0)
    scores = np.concatenate([narrow, wide])
    weights = np.repeat([1.0, 1e-6], 2_000)
    nominal = torch.tensor([0.5, 1.0, 1.6, 2.0])
    found = present(fit_conformal_map(scores, weights=weights)).calibrated(nominal)
    torch.testing.assert_close(found, present(fit_conformal_map(narrow)).calibrated(nominal), rtol=0.02, atol=0.0)


def test_json_round_trip() -> None:
    conformal = fit_conformal_map(_scores(50))
    assert conformal is not None
    assert ConformalMap.from_json(conformal.to_json()) == conformal


@pytest.mark.parametrize(
    "change",
    [
        {"method": "magic"},
        {"nominal": [2.0, 1.0]},
        {"observed": [-1.0, 1.0]},
        {"observed": [1.0]},
        {"nominal": "abc"},
        {"nominal": [], "observed": []},
        {"observed": [1.0, float("inf")]},
        {"nominal": [1.0, 2.0, 3.0, 4.0, 5.0]},
        {"centre": 1.2},
        {"narrowing": "0.9"},
    ],
)
def test_malformed_maps_are_refused(change: dict[str, object]) -> None:
    good = odd_map((1.0, 2.0), (1.1, 2.5), 20).to_json()
    with pytest.raises(CheckpointError, match=r"^calibration\."):
        ConformalMap.from_json(good | change, "calibration")


def test_groups_of_one_row_give_the_same_map_as_rows() -> None:
    scores = np.random.default_rng(0).normal(size=80)
    plain, grouped = fit_conformal_map(scores), fit_conformal_map(scores, weights=np.full(80, 0.2), units=80)
    assert plain is not None
    assert grouped is not None
    assert grouped.nominal == pytest.approx(plain.nominal)
    assert grouped.observed == pytest.approx(plain.observed)


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
        for weights, units, into in (
            (np.repeat(1.0 / sizes, sizes), len(sizes), covered),
            (None, None, plainly),
        ):
            conformal = fit_conformal_map(scores, weights=weights, units=units)
            assert conformal is not None
            into.append(float((np.abs(new) <= float(conformal.calibrated(nominal))).mean()))
    assert 0.79 <= np.mean(covered) <= 0.86
    assert np.mean(plainly) < 0.77
