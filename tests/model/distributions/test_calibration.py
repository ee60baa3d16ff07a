"""Split-conformal calibration: its guarantee, its inverse, its JSON."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from murho.model.distributions.calibration import ConformalMap, fit_conformal_map, sharpening
from murho.model.errors import CheckpointError
from tests.model.conftest import present


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
    assert float((conformal.calibrated(grid) - grid).abs().max()) < 0.06


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


def test_median_stays() -> None:
    conformal = fit_conformal_map(_scores(50))
    assert conformal is not None
    assert float(conformal.calibrated(torch.zeros(1).double())) == 0.0


def test_many_rows_are_summed_up_in_few_knots() -> None:
    conformal = fit_conformal_map(_scores(50_000))
    assert conformal is not None
    assert len(conformal.nominal) <= 400
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
    assert weighted.observed == plain.observed


def test_weights_give_the_map_of_the_rows_that_they_stand_for() -> None:
    narrow, wide = _scores(2_000), _scores(2_000, scale=3.0)
    scores = np.concatenate([narrow, wide])
    weights = np.repeat([1.0, 1e-6], 2_000)
    nominal = torch.tensor([0.5, 1.0, 1.6, 2.0])
    found = present(fit_conformal_map(scores, weights=weights)).calibrated(nominal)
    torch.testing.assert_close(found, present(fit_conformal_map(narrow)).calibrated(nominal), rtol=0.02, atol=0.0)


def test_sharpening_weighs_the_rows() -> None:
    alone, together = np.array([[2.0, 1.0]] * 2), np.array([1.0, 1.0])
    first = sharpening(alone, together, judges=2, members=10, weights=np.array([1.0, 0.0]))
    assert first == sharpening(alone[:, :1], together[:1], judges=2, members=10)


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
    ],
)
def test_malformed_maps_are_refused(change: dict[str, object]) -> None:
    good = {"method": "split-conformal", "rows": 20, "nominal": [1.0, 2.0], "observed": [1.1, 2.5]}
    ConformalMap.from_json(good)
    with pytest.raises(CheckpointError, match="calibration"):
        ConformalMap.from_json(good | change)


def _ensemble(members: int, rows: int = 20_000, noise: float = 1.0, own: float = 0.7) -> tuple[np.ndarray, np.ndarray]:
    """Targets around 0, and the members' means of them, which have independent errors."""
    generator = np.random.default_rng(1)
    return generator.normal(0.0, noise, rows), generator.normal(0.0, own, (members, rows))


def _mixture_scores(targets: np.ndarray, means: np.ndarray) -> np.ndarray:
    heights = torch.special.ndtr(torch.from_numpy(targets - means)).mean(dim=0)
    scores: np.ndarray = torch.special.ndtri(heights.clamp(1e-9, 1.0 - 1e-9)).numpy()
    return scores


@pytest.mark.parametrize(("rows", "least", "most"), [(20_000, 0.0, 0.1), (900, -0.1, 0.2)])
def test_sharpened_bands_cover_nearly_as_promised(rows: int, least: float, most: float) -> None:
    """Limits of the share of over-coverage that remains when bands fitted to two members serve ten."""
    targets, means = _ensemble(members=10)
    alone = np.stack([_mixture_scores(targets, means[[number]]) for number in range(2)])
    pair, everybody = _mixture_scores(targets, means[:2]), _mixture_scores(targets, means)
    factor = sharpening(alone[:, :rows], pair[:rows], judges=2, members=10)
    reach = float(np.quantile(np.abs(pair), 0.9))
    covered_by_pairs = np.mean(np.abs(everybody) <= reach)
    covered = np.mean(np.abs(everybody) <= factor * reach)
    assert least <= (covered - 0.9) / (covered_by_pairs - 0.9) < most


def test_members_that_agree_leave_no_room_to_sharpen() -> None:
    scores = _scores(100)
    assert sharpening(np.stack([scores, scores]), scores, judges=2, members=10) == 1.0


def test_where_all_members_judge_nothing_is_left_to_extrapolate() -> None:
    scores = _scores(100)
    assert sharpening(np.stack([2.0 * scores, 2.0 * scores]), scores, judges=2, members=2) == 1.0


def test_groups_of_one_row_give_the_same_map_as_rows() -> None:
    scores = np.random.default_rng(0).normal(size=80)
    plain, grouped = fit_conformal_map(scores), fit_conformal_map(scores, np.full(80, 0.2), 80)
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
            conformal = fit_conformal_map(scores, weights, units)
            assert conformal is not None
            into.append(float((np.abs(new) <= float(conformal.calibrated(nominal))).mean()))
    assert 0.79 <= np.mean(covered) <= 0.86
    assert np.mean(plainly) < 0.77
