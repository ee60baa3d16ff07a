"""Monte Carlo standard errors against actual errors, where the exact answer is known."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch

from murho.model.bbb.network import Architecture, BayesianNetwork
from murho.model.distributions.mixtures import Mixture
from murho.model.distributions.predictive import Predictive, function_quantiles
from murho.model.distributions.transforms import Logarithm
from murho.model.predictive.draws import make_draws, mean_network, mirrored
from murho.model.predictive.monte_carlo_error import monte_carlo_error
from murho.model.predictive.normals import coupled_normals

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

LEVELS = torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)
REPEATS = 1500


def _said(
    function: Callable[[Tensor], Tensor], samples: int, members: int, sigma: float
) -> tuple[Predictive, Predictive]:
    """A function of one weight per row, and of the mirror images; each row is a repetition of its own."""
    weights = torch.from_numpy(coupled_normals(1, samples, members, REPEATS)).double()
    noise = torch.full((1, 1), sigma, dtype=torch.float64)
    first, second = (Predictive.of(function(side * weights).unsqueeze(-1), noise.unsqueeze(-1)) for side in (1.0, -1.0))
    return first, second


def _ratio(claimed: Tensor, answers: Tensor, truth: float) -> float:
    """Ratio of the standard error to the actual error; root mean squares over the repetitions."""
    return float((claimed.square().mean() / (answers - truth).square().mean()).sqrt())


@pytest.mark.parametrize(("samples", "members"), [(64, 1), (64, 10), (256, 5), (40, 4), (100, 10)])
def test_errors_of_a_linear_model(samples: int, members: int) -> None:
    slope, sigma = 1.0, 0.7
    drawn, mirror = _said(lambda weights: 3.0 + slope * weights, samples, members, sigma)
    answers = drawn.quantiles(torch.special.ndtri(LEVELS))
    of_mean, of_std, of_percentiles = monte_carlo_error(drawn, mirror, answers, members=members, noise=True)
    mean, epistemic, aleatoric = drawn.moments
    std = math.hypot(slope, sigma)
    if samples % 64 == 0:
        assert float(of_mean.max()) < 1e-6
        assert float((mean - 3.0).abs().max()) < 1e-6
    else:
        assert 0.9 < _ratio(of_mean, mean, 3.0) < 1.1
    assert 0.8 < _ratio(of_std, torch.hypot(epistemic, aleatoric), std) < 1.25
    for index in (0, 2):
        truth = 3.0 + std * float(torch.special.ndtri(LEVELS[index]))
        assert 0.8 < _ratio(of_percentiles[:, index], answers[:, index], truth) < 1.25


@pytest.mark.parametrize(("samples", "members"), [(64, 1), (64, 10), (192, 3)])
def test_errors_of_a_quadratic_function(samples: int, members: int) -> None:
    drawn, mirror = _said(torch.square, samples, members, 1.0)
    answers = drawn.quantiles(torch.special.ndtri(LEVELS))
    of_mean, of_std, _ = monte_carlo_error(drawn, mirror, answers, members=members, noise=True)
    mean, epistemic, aleatoric = drawn.moments
    assert 0.9 < _ratio(of_mean, mean, 1.0) < 1.1
    assert 0.8 < _ratio(of_std, torch.hypot(epistemic, aleatoric), 3.0**0.5) < 1.25


def test_errors_of_a_mixture_of_unlike_members_count_the_lean_to_the_first() -> None:
    # 64 draws of 10 members: the first four come seven times, the others six times.
    drawn, mirror = _said(
        lambda weights: weights + 10.0 * (torch.arange(64) % 10 < 4).double().unsqueeze(-1), 64, 10, 1.0
    )
    of_mean, _, _ = monte_carlo_error(drawn, mirror, drawn.quantiles(torch.zeros(1)), members=10, noise=True)
    assert 0.9 < _ratio(of_mean, drawn.moments[0], 4.0) < 1.1


def test_errors_without_noise_are_those_of_order_statistics() -> None:
    drawn, mirror = _said(lambda weights: weights, 256, 4, 1.0)
    answers = function_quantiles(drawn.means, LEVELS)
    _, of_std, of_percentiles = monte_carlo_error(drawn, mirror, answers, members=4, noise=False)
    assert 0.8 < _ratio(of_std, drawn.moments[1], 1.0) < 1.25
    for index in (0, 1, 2):
        truth = float(torch.special.ndtri(LEVELS[index]))
        assert 0.8 < _ratio(of_percentiles[:, index], answers[:, index], truth) < 1.25


def test_rounding_does_not_decide_the_errors_of_percentiles_that_are_draws() -> None:
    drawn, mirror = _said(lambda weights: weights, 41, 1, 1.0)  # 5, 50 and 95 % are draws number 3, 21 and 39
    exactly = function_quantiles(drawn.means, LEVELS)
    _, _, expected = monte_carlo_error(drawn, mirror, exactly, members=1, noise=False)
    for rounding in (1.0 - 1e-9, 1.0 + 1e-9):
        answers = function_quantiles(rounding * drawn.means, LEVELS)
        _, _, actual = monte_carlo_error(drawn, mirror, answers, members=1, noise=False)
        assert ((actual - expected).abs() <= 1e-5 * drawn.moments[1].unsqueeze(1)).all()


def test_a_percentile_at_an_upper_limit_that_most_draws_reach_is_certain() -> None:
    drawn, mirror = _said(lambda weights: weights.clamp_max(-1.0), 64, 1, 1.0)
    _, _, of_percentiles = monte_carlo_error(
        drawn, mirror, torch.full((REPEATS, 1), -1.0 - 1e-12, dtype=torch.float64), members=1, noise=False
    )
    assert float(of_percentiles.max()) < 1e-9


def test_a_transform_stretches_the_errors_of_percentiles() -> None:
    drawn, mirror = _said(lambda weights: weights, 64, 2, 0.5)
    logarithm = Logarithm(shift=0.0, top=50.0)
    stretched = [
        Predictive.of(said.means.unsqueeze(-1), said.noise.unsqueeze(-1), None, logarithm) for said in (drawn, mirror)
    ]
    plain = drawn.quantiles(torch.special.ndtri(LEVELS))
    _, _, expected = monte_carlo_error(drawn, mirror, plain, members=2, noise=True)
    _, _, actual = monte_carlo_error(stretched[0], stretched[1], plain.exp(), members=2, noise=True)
    torch.testing.assert_close(actual, expected * plain.exp(), rtol=1e-6, atol=0.0)


def test_a_component_in_two_halves_is_one_component() -> None:
    drawn, mirror = _said(torch.sin, 64, 5, 0.5)
    halves = []
    for said in (drawn, mirror):
        doubled = said.mixture.means.repeat_interleave(2, dim=0)
        weights = torch.full_like(doubled, 1.0 / len(doubled))
        halves.append(
            Predictive(said.means, said.noise, said.moments, Mixture(doubled, torch.full_like(doubled, 0.5), weights))
        )
    answers = drawn.quantiles(torch.special.ndtri(LEVELS))
    whole = monte_carlo_error(drawn, mirror, answers, members=5, noise=True)
    for expected, actual in zip(
        whole, monte_carlo_error(halves[0], halves[1], answers, members=5, noise=True), strict=True
    ):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("samples", [1, 2, 7, 19])
def test_few_draws_have_large_but_finite_errors(samples: int) -> None:
    drawn, mirror = _said(lambda weights: weights, samples, 10, 1.0)
    answers = drawn.quantiles(torch.special.ndtri(LEVELS))
    errors = monte_carlo_error(drawn, mirror, answers, members=10, noise=True)
    assert all(bool(torch.isfinite(error).all()) for error in errors)
    assert 0.8 < _ratio(errors[0], drawn.moments[0], 0.0) < 1.4


def test_between_clumps_far_apart_no_error_exceeds_the_std() -> None:
    drawn, mirror = _said(lambda weights: 1e4 * weights.sign(), 64, 1, 1e-3)
    _, _, of_percentiles = monte_carlo_error(
        drawn, mirror, torch.zeros(REPEATS, 1, dtype=torch.float64), members=1, noise=True
    )
    assert bool((of_percentiles <= 1.001e4).all())


def test_the_error_of_a_calibrated_std_is_the_same_part_of_it() -> None:
    drawn, mirror = _said(torch.square, 64, 4, 1.0)
    answers = drawn.quantiles(torch.special.ndtri(LEVELS))
    calibrated_std = 1.7 * torch.hypot(*drawn.moments[1:])
    raw, calibrated = (
        monte_carlo_error(drawn, mirror, answers, members=4, noise=True, calibrated_std=each)
        for each in (None, calibrated_std)
    )
    torch.testing.assert_close(calibrated, (raw[0], 1.7 * raw[1], raw[2]))


def test_no_percentiles_have_no_errors() -> None:
    drawn, mirror = _said(lambda weights: weights, 64, 1, 1.0)
    _, _, of_percentiles = monte_carlo_error(drawn, mirror, drawn.quantiles(torch.zeros(0)), members=1, noise=True)
    assert of_percentiles.shape == (REPEATS, 0)


def test_mirror_images_lie_across_mu() -> None:
    architecture = Architecture(inputs=3, hidden=(4,), outputs=1, members=2)
    network = BayesianNetwork(architecture, torch.Generator().manual_seed(0))
    tensors = {name: tensor.detach() for name, tensor in network.named_tensors().items()}
    drawn = make_draws(tensors, architecture, seed=0, samples=5)
    image = mirrored(drawn, mean_network(tensors, architecture))
    for layer in (0, 1):
        middle = 0.5 * (drawn.weights[layer] + image.weights[layer])
        torch.testing.assert_close(middle, tensors[f"layers.{layer}.weight.mu"][drawn.members])
        middle = 0.5 * (drawn.biases[layer] + image.biases[layer])
        torch.testing.assert_close(middle, tensors[f"layers.{layer}.bias.mu"][drawn.members])
    assert torch.equal(drawn.members, image.members)
