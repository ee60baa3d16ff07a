"""The two regression systems are those of the literature."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks import quartic, sinusoid
from murho.model.bbb.priors import GaussianPrior, ScaleMixturePrior

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.regression import System


def test_sinusoid_is_observed_at_32_points_with_unit_noise() -> None:
    system = sinusoid.system(seed=0)
    assert system.inputs.shape == (32,)
    assert (system.inputs[0], system.inputs[-1]) == (-0.5, 0.5)
    residuals = np.concatenate([sinusoid.system(seed).targets - sinusoid.function(system.inputs) for seed in range(50)])
    assert residuals.std() == pytest.approx(1.0, abs=0.06)  # 1600 draws: about three standard errors
    assert system.noise == 1.0


def test_sinusoid_function_has_amplitude_10_and_period_1() -> None:
    values = sinusoid.function(np.array([0.0, 0.25, 0.75, 1.25]))
    np.testing.assert_allclose(values, [0.0, 10.0, -10.0, 10.0], atol=1e-12)


def test_sinusoid_network_and_prior() -> None:
    system = sinusoid.system(seed=0)
    assert system.hidden == (20, 20)
    assert system.activation == "relu"
    assert system.prior == ScaleMixturePrior(pi=0.5, sigma1=1.5, sigma2=0.1)
    assert (system.samples, system.grid[0], system.grid[-1]) == (500, -1.5, 1.5)


def test_quartic_is_observed_without_error_at_six_points() -> None:
    system = quartic.system(seed=3)
    np.testing.assert_array_equal(system.inputs, [-2.0, -1.8, -1.0, 1.0, 1.8, 2.0])
    np.testing.assert_allclose(system.targets, [-3.0, 0.2224, 3.0, 3.0, 0.2224, -3.0])
    assert system.noise == 0.1


def test_quartic_network_and_prior() -> None:
    system = quartic.system(seed=0)
    assert system.hidden == (32,)
    assert system.activation == "sigmoid"
    assert system.prior == GaussianPrior(sigma=10.0)
    assert (system.samples, system.grid[0], system.grid[-1]) == (100, -5.0, 5.0)
    assert system.levels == (2.5, 97.5)


@pytest.mark.parametrize("make", [sinusoid.system, quartic.system])
def test_all_rows_are_one_minibatch(make: Callable[[int], System]) -> None:
    system = make(0)
    assert system.options.batch_size >= len(system.inputs)
    # The fit ends where the free energy leads it, not where validation would stop it, with the KL's whole weight.
    assert system.options.patience is None
    assert system.options.warm_up_steps <= system.options.epochs / 2


@pytest.mark.parametrize(("make", "share"), [(sinusoid.system, 101 / 301), (quartic.system, 161 / 401)])
def test_inside_is_the_range_of_the_rows_with_both_ends(make: Callable[[int], System], share: float) -> None:
    assert make(0).inside.mean() == pytest.approx(share)
