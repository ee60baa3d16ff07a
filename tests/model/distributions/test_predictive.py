"""The predictive distribution: moments, scores and percentiles in the target's unit, clipped to limits too."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from murho.model.distributions import predictive as predictive_module
from murho.model.distributions.mixtures import Mixture, WideRule
from murho.model.distributions.predictive import Predictive, function_quantiles
from murho.model.distributions.target_transforms import Identity, Limits, Logarithm
from murho.model.errors import OptionError


def _components(seed: int, samples: int = 12, rows: int = 3, count: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shape = (samples, rows, count)
    means = torch.randn(shape, generator=generator, dtype=torch.float64)
    noise = 0.3 * torch.exp(0.5 * torch.randn(shape, generator=generator, dtype=torch.float64))
    weights = torch.softmax(torch.randn(shape, generator=generator, dtype=torch.float64), dim=-1)
    return means, noise, weights


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
    grid = torch.linspace(low, 20.0, 500_001, dtype=torch.float64)
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

    for observed in (-0.4, 0.9, 30.0):
        truth = torch.full((2,), observed, dtype=torch.float64)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(predictive_module, "MOST_PAIRED", 0)
            integrated = predictive.crps(truth)
        torch.testing.assert_close(predictive.crps(truth), integrated, rtol=1e-3, atol=1e-4)


def test_far_out_a_wide_component_bounds_the_surprise() -> None:
    means, noise = torch.zeros(8, 1, 1).double(), torch.full((8, 1, 1), 0.1).double()
    plain = Predictive.of(means, noise)
    predictive = plain.with_wide(WideRule.after(700), most=1.0)
    far = torch.tensor([2.0], dtype=torch.float64)  # twenty standard deviations
    assert float(plain.log_density(far)) < -190.0
    assert float(predictive.log_density(far)) > -15.0
    near = torch.tensor([0.1], dtype=torch.float64)
    assert float(predictive.log_density(near)) == pytest.approx(float(plain.log_density(near)), abs=2e-3)


def _parts(mixture: Mixture) -> tuple[Tensor, Tensor, Tensor]:
    assert mixture.weights is not None
    return mixture.means, mixture.noise, mixture.weights


LIMITS = Limits(0.5, 2.0)


KINDS = ["gaussian", "mixture", "wide", "logarithm"]


def _latent(kind: str, limits: Limits | None = None) -> Predictive:
    """Three draws of four rows: inside, at either limit, and far beyond the maximum."""
    generator = torch.Generator().manual_seed(0)
    components = 2 if kind in {"mixture", "logarithm"} else 1
    centres = torch.tensor([1.2, 0.5, 1.9, 30.0])
    transform = Logarithm(0.1, math.log(2.1)) if kind == "logarithm" else Identity()
    means = transform.forward(centres.double()).view(1, 4, 1)
    means = means + 0.2 * torch.randn(3, 4, components, generator=generator).double()
    noise = torch.full((3, 4, components), 0.3).double()
    weights = None
    if components > 1:
        weights = torch.rand(3, 4, components, generator=generator).double()
        weights = weights / weights.sum(dim=2, keepdim=True)
    latent = Predictive.of(means, noise, weights, transform, limits)
    return latent.with_wide(WideRule(0.05, 3.0), 1.0) if kind == "wide" else latent


def _sample(latent: Predictive, count: int = 100_000) -> Tensor:
    """Clipped observations, ``[count, B]``."""
    levels = (torch.arange(count).double() + 0.5) / count
    points = torch.linspace(-12.0, 14.0, 20_001).double()
    rows = []
    for row in range(latent.means.shape[1]):
        below, _ = latent.mixture.of_rows(slice(row, row + 1)).tails(points.unsqueeze(1))
        values = torch.from_numpy(np.interp(levels, below[:, 0], points))
        rows.append(LIMITS.clip(latent.transform.inverse(values)))
    return torch.stack(rows, dim=1)


@pytest.mark.parametrize("kind", KINDS)
def test_moments_are_those_of_clipped_observations(kind: str) -> None:
    latent, limited = _latent(kind), _latent(kind, LIMITS)
    mean, epistemic, aleatoric = limited.moments
    rows = slice(0, 3)  # the points of the sample don't reach the last row
    sample = _sample(latent)[:, rows]
    torch.testing.assert_close(mean[rows], sample.mean(dim=0), rtol=0.0, atol=2e-3)
    torch.testing.assert_close(torch.hypot(epistemic, aleatoric)[rows], sample.std(dim=0), rtol=0.0, atol=3e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_lies_beyond_the_limits(kind: str) -> None:
    limited = _latent(kind, LIMITS)
    quantiles = limited.quantiles(torch.linspace(-4.0, 4.0, 9).double())
    for values in (quantiles, limited.means, limited.moments[0]):
        assert float(values.min()) >= 0.5
        assert float(values.max()) <= 2.0
    assert bool((quantiles.diff(dim=1) >= 0.0).all())
    below, above = limited.tails(torch.tensor([0.4, 0.5, 1.0, 1.9999, 2.0, 3.0]).double())
    assert above[:, 0].tolist() == [1.0] * 4
    assert above[:, 4:].unique().tolist() == [0.0]
    assert above[3, 3] == pytest.approx(1.0, abs=0.06)  # the mass at the maximum
    torch.testing.assert_close(below + above, torch.ones_like(below))


@pytest.mark.parametrize("kind", KINDS)
def test_crps_is_that_of_clipped_observations(kind: str) -> None:
    latent, limited = _latent(kind), _latent(kind, LIMITS)
    sample = _sample(latent, 4_000)[:, :3]
    for value in (0.5, 1.1, 2.0, 2.5):
        targets = torch.full((4,), value).double()
        apart = (sample.unsqueeze(0) - sample[::8].unsqueeze(1)).abs().mean(dim=(0, 1))
        expected = (sample - value).abs().mean(dim=0) - 0.5 * apart
        torch.testing.assert_close(limited.crps(targets)[:3], expected, rtol=0.0, atol=3e-3)


def test_at_a_limit_the_likelihood_is_the_probability_of_the_limit() -> None:
    latent, limited = _latent("gaussian"), _latent("gaussian", LIMITS)
    below, above = latent.tails(torch.tensor([0.5, 2.0]).double())
    for value, mass in ((0.5, below[:, 0]), (2.0, above[:, 1]), (2.7, above[:, 1])):
        found = limited.log_density(torch.full((4,), value).double())
        torch.testing.assert_close(found, mass.clamp_min(1e-300).log())
    inside = torch.full((4,), 1.3).double()
    torch.testing.assert_close(limited.log_density(inside), latent.log_density(inside))


def test_a_band_contains_a_limit_from_its_normal_score_on() -> None:
    limited = _latent("gaussian", LIMITS)
    for limit in (0.5, 2.0):
        scores = limited.normal_score(torch.full((4,), limit).double())
        assert bool((scores >= 0.0).all() if limit == 2.0 else (scores <= 0.0).all())
        for row, reach in enumerate(scores.abs().tolist()):
            for level, contains in ((reach + 1e-3, True), (reach - 1e-3, False)):
                if 0.0 < level < 30.0:
                    low, high = limited.quantiles(torch.tensor([-level, level]).double())[row].tolist()
                    assert (low <= limit <= high) == contains


def test_a_minimum_must_lie_below_the_maximum() -> None:
    with pytest.raises(OptionError, match="minimum 2 must lie below its maximum 1"):
        Limits(2.0, 1.0)


def test_the_crps_is_the_same_however_many_points_are_computed_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    predictive = Predictive.of(*_components(5))
    truth = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64)
    monkeypatch.setattr(predictive_module, "MOST_PAIRED", 0)
    whole = predictive.crps(truth)
    for values in (1, 500, 2_000):
        monkeypatch.setattr(predictive_module, "VALUES_AT_A_TIME", values)
        torch.testing.assert_close(predictive.crps(truth), whole, rtol=1e-6, atol=0.0)


def test_function_quantiles_equal_numpy() -> None:
    means = _components(8)[0][..., 0]
    levels = torch.tensor([0.05, 0.5, 0.925], dtype=torch.float64)
    expected = np.quantile(means.numpy(), levels.numpy(), axis=0).T
    np.testing.assert_allclose(function_quantiles(means, levels).numpy(), expected)
