"""From a predictive to an answer, where both are known: one Gaussian a row, or the probabilities of two classes."""

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from murho.model.calibration.class_calibration import ClassMap
from murho.model.calibration.conformal import ConformalMap
from murho.model.distributions.predictive import Predictive
from murho.model.predictive.plans import PredictionPlan, served_probabilities
from murho.model.predictive.prediction import AdaptedBands, PredictOptions
from tests.model.maps import odd_map

CPU = torch.device("cpu")
LEVELS = (2.5, 50.0, 97.5)
Z = NormalDist().inv_cdf(0.975)
HALVING = odd_map((1.0, 3.0), (0.5, 1.5), 60)
MEANS, STDS = np.array([10.0, -20.0, 30.0, 0.0]), np.array([1.0, 2.0, 0.5, 4.0])
MASKS = INSIDE, MIXED, BEYOND = [False] * 4, [False, True, True, False], [True] * 4


def _answer(mask: list[bool], calibration: ConformalMap | None, **options: Any) -> dict[str, np.ndarray]:
    """Of rows of one and the same Gaussian under four draws."""
    means, stds = (torch.from_numpy(values).expand(4, -1).unsqueeze(-1) for values in (MEANS, STDS))
    asked: dict[str, Any] = {"samples": 4, "percentiles": LEVELS} | options
    plan = PredictionPlan.of(PredictOptions(**asked), calibration, CPU)
    return plan.answer(Predictive.of(means, stds), torch.tensor(mask))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("calibration", "inside"), [(None, 1.0), (odd_map((1.0, 9.0), (0.5, 4.5), 60), 0.5)])
def test_outcomes_move_mean_std_percentiles_and_exceedance_together(
    mask: list[bool], calibration: ConformalMap | None, inside: float
) -> None:
    """Of N(m, s^2) they make N(m + 2 s, (3 s / 2)^2), and the checkpoint's calibration halves what they make."""
    knots = np.array([-3.0, 0.0, 3.0])
    moved = ConformalMap(tuple(knots.tolist()), tuple((2.0 + 1.5 * knots).tolist()), 100)
    adapted = AdaptedBands(moved, 100, "1")
    answer = _answer(mask, calibration, adapted=adapted)
    reach = np.where(mask, 1.0, inside) * STDS
    np.testing.assert_allclose(answer["mean"], MEANS + 2.0 * reach, rtol=1e-6)
    np.testing.assert_allclose(answer["std"], 1.5 * reach, rtol=1e-3)
    expected = MEANS[:, None] + reach[:, None] * (2.0 + 1.5 * np.array([-Z, 0.0, Z]))
    np.testing.assert_allclose(answer["percentiles"], expected, rtol=1e-5)
    for row, percentiles in enumerate(answer["percentiles"].tolist()):
        exceedance = _answer(mask, calibration, adapted=adapted, thresholds=tuple(percentiles))["exceedance"][row]
        np.testing.assert_allclose(exceedance, [0.975, 0.5, 0.025], atol=1e-6)
    raw = _answer(mask, calibration, adapted=adapted, calibrated=False)
    np.testing.assert_array_equal(raw["mean"], _answer(mask, None)["mean"])


@pytest.mark.parametrize("options", [{"noise": False}, {"calibrated": False}, {"samples": 0}])
def test_calibration_is_for_observations_and_for_who_wants_it(options: dict[str, Any]) -> None:
    assert PredictionPlan.of(PredictOptions(**options), HALVING, CPU).calibration is None
    assert PredictionPlan.of(PredictOptions(), HALVING, CPU).calibration is HALVING


RAW = torch.tensor([[0.9995, 0.0005], [0.3, 0.7]], dtype=torch.float64)
SHARES = torch.tensor([0.8, 0.2], dtype=torch.float64)
SHARP = ClassMap((3.0, 3.0), (0.0, 0.0), 0.0025)


def _served(mapped: ClassMap | None, outside: Tensor | None = None, doubt: float = 0.0) -> Tensor:
    return served_probabilities(RAW, mapped, SHARES, outside, lambda: torch.full((2,), doubt, dtype=torch.float64))


def test_a_map_of_classes_makes_no_probability_surer_than_its_rows_can_tell() -> None:
    torch.testing.assert_close(_served(ClassMap.none(2)), RAW)
    torch.testing.assert_close(_served(None), RAW)
    served = _served(SHARP)
    assert float(served[0, 1]) >= 0.25 / 100 / 2
    assert float(served[1, 1]) > 0.9


def test_beyond_the_training_rows_a_map_makes_no_answer_surer_and_doubt_draws_it_to_the_shares() -> None:
    outside = torch.tensor([False, True])
    for doubt, weight in ((0.0, 0.0), (0.5, 0.25), (1.0, 1.0)):
        served = _served(SHARP, outside, doubt=doubt)
        torch.testing.assert_close(served[1], torch.lerp(RAW[1], SHARES, weight))
        torch.testing.assert_close(served[0], _served(SHARP)[0])
