"""From a predictive to an answer, where both are known in closed form: one Gaussian a row."""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from murho.model.distributions.predictive import Predictive
from murho.model.predictive.plans import PredictionPlan
from murho.model.predictive.prediction import PredictOptions
from tests.model.maps import odd_map

if TYPE_CHECKING:
    from murho.model.calibration.conformal import ConformalMap

CPU = torch.device("cpu")
LEVELS = (2.5, 50.0, 97.5)
Z = NormalDist().inv_cdf(0.975)
HALVING = odd_map((1.0, 3.0), (0.5, 1.5), 60)
DOUBLING = odd_map((1.0, 3.0), (2.0, 6.0), 60)
MEANS, STDS = np.array([10.0, -20.0, 30.0, 0.0]), np.array([1.0, 2.0, 0.5, 4.0])


def _predictive(draws: int = 4) -> Predictive:
    """Rows of one and the same Gaussian under every draw."""
    means = torch.from_numpy(MEANS).expand(draws, -1).unsqueeze(-1)
    return Predictive.of(means, torch.from_numpy(STDS).expand(draws, -1).unsqueeze(-1))


def _answer(mask: list[bool], calibration: ConformalMap | None, **options: Any) -> dict[str, Tensor]:
    asked: dict[str, Any] = {"samples": 4, "percentiles": LEVELS}
    plan = PredictionPlan.of(PredictOptions(**(asked | options)), calibration, CPU)
    return plan.answer(_predictive(), torch.tensor(mask))


def _reached(answer: dict[str, Tensor]) -> np.ndarray:
    """Normal scores of the percentiles, ``[B, K]``."""
    reached: np.ndarray = (answer["percentiles"].numpy() - MEANS[:, None]) / STDS[:, None]
    return reached


INSIDE, MIXED, BEYOND = [False] * 4, [False, True, True, False], [True] * 4


@pytest.mark.parametrize("mask", [INSIDE, MIXED, BEYOND])
@pytest.mark.parametrize(
    ("calibration", "inside", "beyond"),
    [(None, 1.0, 1.0), (HALVING, 0.5, 1.0), (DOUBLING, 2.0, 2.0)],
)
def test_bands_reach_as_far_as_calibration_says_and_beyond_are_only_widened(
    mask: list[bool], calibration: ConformalMap | None, inside: float, beyond: float
) -> None:
    factors = np.where(mask, beyond, inside)
    expected = factors[:, None] * np.array([-Z, 0.0, Z])
    np.testing.assert_allclose(_reached(_answer(mask, calibration)), expected, atol=2e-6)


@pytest.mark.parametrize("mask", [INSIDE, MIXED, BEYOND])
@pytest.mark.parametrize("calibration", [None, HALVING, DOUBLING])
def test_the_percentiles_of_a_row_are_computed_once(mask: list[bool], calibration: ConformalMap | None) -> None:
    with patch.object(Predictive, "quantiles", autospec=True, side_effect=Predictive.quantiles) as quantiles:
        _answer(mask, calibration)
    assert sum(call.args[0].means.shape[1] for call in quantiles.call_args_list) == 4


@pytest.mark.parametrize("mask", [INSIDE, BEYOND])
def test_rows_of_one_kind_are_not_copied(mask: list[bool]) -> None:
    with patch.object(Predictive, "of_rows") as of_rows:
        _answer(mask, HALVING)
    of_rows.assert_not_called()


@pytest.mark.parametrize("calibration", [None, HALVING, DOUBLING])
def test_exceedance_is_what_the_percentiles_say(calibration: ConformalMap | None) -> None:
    for row, percentiles in enumerate(_answer(MIXED, calibration)["percentiles"].tolist()):
        exceedance = _answer(MIXED, calibration, thresholds=tuple(percentiles))["exceedance"][row]
        np.testing.assert_allclose(exceedance.numpy(), [0.975, 0.5, 0.025], atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [{"noise": False}, {"calibrated": False}, {"samples": 0}, {"noise": False, "calibrated": False}],
)
def test_calibration_is_for_observations_and_for_who_wants_it(options: dict[str, Any]) -> None:
    assert PredictionPlan.of(PredictOptions(**options), HALVING, CPU).calibration is None
    assert PredictionPlan.of(PredictOptions(), HALVING, CPU).calibration is HALVING


def test_without_noise_all_percentiles_are_those_of_the_function_values() -> None:
    answer = _answer(MIXED, HALVING, noise=False, thresholds=(5.0,))
    np.testing.assert_allclose(answer["percentiles"], np.repeat(MEANS[:, None], 3, axis=1))
    assert answer["exceedance"][:, 0].tolist() == [1.0, 0.0, 1.0, 0.0]
    assert not answer["std"].any()


def test_the_mu_only_mean_has_no_spread_and_no_draws() -> None:
    answer = _answer(INSIDE, HALVING, samples=0, draws=True, thresholds=(5.0,))
    assert set(answer) == {"mean", "draws"}
    np.testing.assert_array_equal(answer["mean"], MEANS)
    assert answer["draws"].shape == (4, 0)


def test_what_is_not_asked_for_is_absent() -> None:
    always = {"mean", "std", "epistemic_std", "aleatoric_std", "percentiles"}
    assert set(_answer(INSIDE, None)) == always
    assert set(_answer(INSIDE, None, thresholds=(0.0,), draws=True)) == always | {"exceedance", "draws"}
    assert _answer(INSIDE, None, percentiles=())["percentiles"].shape == (4, 0)
