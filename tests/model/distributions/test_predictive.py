"""The predictive distribution: moments, scores and percentiles in the target's unit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from murho.model.distributions import predictive as predictive_module
from murho.model.distributions.mixtures import Mixture, WideRule
from murho.model.distributions.predictive import Predictive, function_exceedance, function_quantiles, split
from murho.model.distributions.transforms import Logarithm


def _components(seed: int, samples: int = 12, rows: int = 3, count: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shape = (samples, rows, count)
    means = torch.randn(shape, generator=generator, dtype=torch.float64)
    noise = 0.3 * torch.exp(0.5 * torch.randn(shape, generator=generator, dtype=torch.float64))
    weights = torch.softmax(torch.randn(shape, generator=generator, dtype=torch.float64), dim=-1)
    return means, noise, weights


def test_split_is_the_law_of_total_variance() -> None:
    means, noise, _ = _components(2, samples=8, rows=2, count=1)
    predictive = Predictive.of(means, noise)
    mean, epistemic, aleatoric = predictive.moments
    generator = torch.Generator().manual_seed(0)
    draw = torch.randint(8, (400_000,), generator=generator)
    noises = torch.randn(400_000, 2, generator=generator, dtype=torch.float64)
    values = means[draw, :, 0] + noise[draw, :, 0] * noises
    torch.testing.assert_close(values.mean(dim=0), mean, rtol=0.0, atol=0.01)
    torch.testing.assert_close(values.var(dim=0), epistemic.square() + aleatoric.square(), rtol=0.02, atol=0.0)


@pytest.mark.parametrize("transform", [None, Logarithm(0.5, 0.8)])
def test_with_components_and_transform_it_describes_what_it_would_draw(transform: Logarithm | None) -> None:
    means, noise, weights = _components(3)
    predictive = Predictive.of(means, noise, weights, transform)
    count, generator = 300_000, torch.Generator().manual_seed(1)
    draw = torch.randint(len(means), (count,), generator=generator)
    chosen = torch.multinomial(weights[:, 0][draw], 1, generator=generator)[:, 0]
    noises = torch.randn(count, generator=generator, dtype=torch.float64)
    drawn = means[draw, 0, chosen] + noise[draw, 0, chosen] * noises
    values = drawn if transform is None else transform.inverse(drawn)

    mean, epistemic, aleatoric = (part[0] for part in predictive.moments)
    std = float((epistemic.square() + aleatoric.square()).sqrt())
    assert float(mean) == pytest.approx(float(values.mean()), abs=0.01 * std)
    assert std == pytest.approx(float(values.std()), rel=0.01)
    of_first = values[draw == 0]
    assert float(predictive.means[0, 0]) == pytest.approx(float(of_first.mean()), abs=0.05 * std)
    assert float(predictive.noise[0, 0]) == pytest.approx(float(of_first.std()), rel=0.05)

    scores = torch.tensor([-1.6, 0.0, 1.6], dtype=torch.float64)
    quantiles = predictive.quantiles(scores)
    levels = torch.distributions.Normal(0.0, 1.0).cdf(scores.float()).double()
    expected = torch.quantile(values[:200_000], levels)
    torch.testing.assert_close(quantiles[0], expected, rtol=0.0, atol=0.02 * std)
    exceeding = predictive.tails(quantiles[0])[1]
    torch.testing.assert_close(exceeding[0], 1.0 - levels, rtol=0.0, atol=1e-5)
    torch.testing.assert_close(
        predictive.normal_score(quantiles.T), scores.unsqueeze(1).expand(-1, 3), rtol=0.0, atol=5e-7
    )


@pytest.mark.parametrize("transform", [None, Logarithm(0.5, 0.8)])
def test_density_integrates_to_one_and_crps_equals_its_integral(transform: Logarithm | None) -> None:
    means, noise, weights = _components(4, samples=5, rows=1)
    predictive = Predictive.of(means, noise, weights, transform)
    low = -0.5 + 1e-9 if transform else -20.0
    grid = torch.linspace(low, 20.0, 2_000_001, dtype=torch.float64)
    means, noise, weights = (part.expand(-1, len(grid)) for part in _parts(predictive.mixture))
    many = Mixture(means, noise, weights)
    wide = Predictive(predictive.means, predictive.noise, predictive.moments, many, predictive.transform)
    density = wide.log_density(grid).exp()
    assert float(torch.trapezoid(density, grid)) == pytest.approx(1.0, abs=1e-6)
    cdf = torch.cumulative_trapezoid(density, grid)
    for value in (-0.4, 0.3, 1.7, 9.0):
        integral = torch.trapezoid((cdf - (grid[1:] >= value).double()).square(), grid[1:])
        assert float(predictive.crps(torch.tensor([value], dtype=torch.float64))[0]) == pytest.approx(
            float(integral), rel=2e-4
        )


@pytest.mark.parametrize("transform", [None, Logarithm(0.5, 0.8)])
@pytest.mark.parametrize("count", [1, 2])
def test_a_wide_component_is_part_of_moments_scores_and_percentiles(count: int, transform: Logarithm | None) -> None:
    means, noise, weights = _components(11, rows=2, count=count)
    plain = Predictive.of(means, noise, weights if count > 1 else None, transform)
    predictive = plain.with_wide(WideRule(0.02, 3.0), most=2.0)
    assert len(predictive.mixture.means) == len(plain.mixture.means) + 1
    assert float(predictive.mixture.shares[-1, 0]) == 0.02

    levels = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    values = predictive.quantiles(torch.special.ndtri(levels))
    mean, epistemic, aleatoric = predictive.moments
    std = (epistemic.square() + aleatoric.square()).sqrt()
    torch.testing.assert_close(mean, values.mean(dim=1), rtol=0.0, atol=1e-3)
    torch.testing.assert_close(std, values.std(dim=1), rtol=2e-3, atol=0.0)
    torch.testing.assert_close(predictive.means, plain.means)  # a draw's value does not depend on the other draws
    torch.testing.assert_close(epistemic, plain.moments[1])
    assert (aleatoric > plain.moments[2]).all()

    scores = torch.tensor([-2.5, 0.0, 1.6], dtype=torch.float64)
    for observed in (-0.4, 0.9, 30.0):
        truth = torch.full((2,), observed, dtype=torch.float64)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(predictive_module, "MOST_PAIRED", 0)
            integrated = predictive.crps(truth)
        torch.testing.assert_close(predictive.crps(truth), integrated, rtol=1e-3, atol=1e-4)
    some = predictive.of_rows(torch.tensor([1]))
    torch.testing.assert_close(some.quantiles(scores), predictive.quantiles(scores)[1:], rtol=0.0, atol=1e-5)
    torch.testing.assert_close(some.moments, tuple(part[1:] for part in predictive.moments))


def test_far_out_a_wide_component_bounds_the_surprise() -> None:
    means, noise = torch.zeros(8, 1, 1).double(), torch.full((8, 1, 1), 0.1).double()
    plain = Predictive.of(means, noise)
    predictive = plain.with_wide(WideRule.after(700), most=1.0)
    far = torch.tensor([2.0], dtype=torch.float64)  # twenty standard deviations
    assert float(plain.log_density(far)) < -190.0
    assert float(predictive.log_density(far)) > -15.0
    near = torch.tensor([0.1], dtype=torch.float64)
    assert float(predictive.log_density(near)) == pytest.approx(float(plain.log_density(near)), abs=2e-3)
    band = torch.tensor([-1.96, 1.96], dtype=torch.float64)
    torch.testing.assert_close(predictive.quantiles(band), plain.quantiles(band), rtol=0.01, atol=0.0)
    with_it, without = (float(some.tails(far)[1]) for some in (predictive, plain))
    assert with_it > 1e-7 > without


def _parts(mixture: Mixture) -> tuple[Tensor, Tensor, Tensor]:
    assert mixture.weights is not None
    return mixture.means, mixture.noise, mixture.weights


def test_exceedance_is_one_minus_the_distribution_function() -> None:
    means, noise, _ = _components(5, count=1)
    thresholds = torch.tensor([-1.0, 0.0, 2.5], dtype=torch.float64)
    expected = 1.0 - torch.distributions.Normal(means, noise).cdf(thresholds).mean(dim=0)
    torch.testing.assert_close(Predictive.of(means, noise).tails(thresholds)[1], expected)


def test_noise_shared_by_all_rows_may_stay_a_single_number() -> None:
    means, _, _ = _components(6, count=1)
    _, _, aleatoric = Predictive.of(means, torch.full((1, 1, 1), 0.25).double()).moments
    torch.testing.assert_close(aleatoric, torch.full((3,), 0.25).double())
    torch.testing.assert_close(split(means[..., 0], torch.tensor(0.25).double())[2], aleatoric)


def test_function_quantiles_equal_numpy() -> None:
    means = _components(8)[0][..., 0]
    levels = torch.tensor([0.05, 0.5, 0.925], dtype=torch.float64)
    expected = np.quantile(means.numpy(), levels.numpy(), axis=0).T
    np.testing.assert_allclose(function_quantiles(means, levels).numpy(), expected)


def test_function_quantiles_and_exceedance_of_one_draw_are_that_draw() -> None:
    means = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    assert function_quantiles(means, torch.tensor([0.1, 0.9])).tolist() == [[1.0, 1.0], [2.0, 2.0]]
    assert function_exceedance(means, torch.tensor([1.5])).tolist() == [[0.0], [1.0]]


def test_no_rows_have_no_answers() -> None:
    means, noise = torch.zeros(4, 0, 3, dtype=torch.float64), torch.ones(4, 0, 3, dtype=torch.float64)
    predictive = Predictive.of(means, noise, torch.full_like(means, 1.0 / 3.0))
    assert [len(part) for part in predictive.moments] == [0, 0, 0]
    assert predictive.quantiles(torch.tensor([-1.0, 1.0], dtype=torch.float64)).shape == (0, 2)


def test_the_crps_is_the_same_however_many_points_are_computed_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    predictive = Predictive.of(*_components(5))
    truth = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64)
    monkeypatch.setattr(predictive_module, "MOST_PAIRED", 0)
    whole = predictive.crps(truth)
    for values in (1, 500, 2_000):
        monkeypatch.setattr(predictive_module, "VALUES_AT_A_TIME", values)
        torch.testing.assert_close(predictive.crps(truth), whole, rtol=1e-6, atol=0.0)
