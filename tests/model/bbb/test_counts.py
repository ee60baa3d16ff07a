"""The predictive distribution of counts, against SciPy's sums over all counts."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from murho.model.bbb.number_likelihoods import CountPredictive

SIZES = [(3.0, 0.2), (0.05, 2.0), (0.5, 1e-5), (200.0, 0.05), (5_000.0, 0.3), (1_000.0, 4.0)]
"""Mean and dispersion."""
LEVELS = np.array([0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999])


def negative_binomial(mean: Any, dispersion: float) -> Any:
    return stats.nbinom(1.0 / dispersion, 1.0 / (1.0 + dispersion * mean))


def predictive_of(mean: float, dispersion: float, draws: int = 7) -> tuple[CountPredictive, list[Any]]:
    """One row under some draws, and the draws' distributions."""
    means = mean * np.exp(np.linspace(-0.4, 0.4, draws))
    dispersions = dispersion * np.exp(np.linspace(0.3, -0.3, draws))
    columns = (torch.from_numpy(column).unsqueeze(1) for column in (means, dispersions))
    return CountPredictive.of_counts(*columns), [
        negative_binomial(*each) for each in zip(means, dispersions, strict=True)
    ]


@pytest.mark.parametrize(("mean", "dispersion"), SIZES)
def test_moments_percentiles_tails_and_scores_are_those_of_the_discrete_mixture(mean: float, dispersion: float) -> None:
    predictive, draws = predictive_of(mean, dispersion)
    means, variances = zip(*((draw.mean(), draw.var()) for draw in draws), strict=True)
    moments = [np.mean(means), np.std(means), np.sqrt(np.mean(variances))]
    assert [float(part) for part in predictive.moments] == pytest.approx(moments)
    counts = np.arange(int(max(draw.ppf(1.0 - 1e-6) for draw in draws)) + 50)
    exact = np.mean([draw.cdf(counts) for draw in draws], axis=0)
    some = counts[:: 1 + len(counts) // 1_000]
    below, above = predictive.tails(torch.from_numpy(some + 0.5))
    assert below[0].numpy() == pytest.approx(exact[some], abs=3e-4)
    assert (below + above).numpy() == pytest.approx(np.ones((1, len(some))))
    scores = torch.special.ndtri(torch.from_numpy(LEVELS))
    found = predictive.report_quantiles(predictive.quantiles(scores))[0].numpy()
    assert (found == np.round(found)).all()
    whole = exact[found.astype(int)]
    before = np.where(found > 0, exact[np.maximum(found.astype(int) - 1, 0)], 0.0)
    assert (whole >= LEVELS - 3e-4).all()
    assert (before < LEVELS + 3e-4).all()
    observed = int(draws[0].ppf(0.9))
    (log_mass,) = predictive.log_density(torch.tensor([float(observed)]).double()).tolist()
    assert log_mass == pytest.approx(np.log(np.mean([draw.pmf(observed) for draw in draws])))
    (crps,) = predictive.crps(torch.tensor([float(observed)]).double()).tolist()
    assert crps == pytest.approx(float(np.sum((exact - (counts >= observed)) ** 2)), rel=1e-3)


def test_counts_far_off_have_finite_scores_and_the_crps_of_their_distance() -> None:
    predictive, _ = predictive_of(3.0, 0.2)
    far = torch.tensor([90_000.0]).double()
    assert float(predictive.normal_score(far.unsqueeze(0))) == 6.0
    assert float(predictive.crps(far)) == pytest.approx(90_000.0, rel=1e-3)
    assert bool(torch.isfinite(predictive.log_density(far)))


@pytest.mark.parametrize(("mean", "dispersion"), [(0.7, 0.5), (12.0, 0.1), (300.0, 0.02)])
def test_the_randomised_pit_is_uniform_where_the_model_is_right(mean: float, dispersion: float) -> None:
    rows = 2_000
    chance = np.random.default_rng(3)
    means = mean * np.exp(chance.normal(0.0, 0.5, rows))
    counts = negative_binomial(means, dispersion).rvs(random_state=chance).astype(float)
    columns = torch.from_numpy(means).unsqueeze(0), torch.full((1, rows), dispersion, dtype=torch.float64)
    scores = CountPredictive.of_counts(*columns).normal_score(torch.from_numpy(counts).unsqueeze(0))[0]
    assert stats.kstest(scores.numpy(), "norm").statistic < 1.63 / np.sqrt(rows)  # exceeded once in a hundred times


def test_nothing_lies_below_zero() -> None:
    predictive, _ = predictive_of(3.0, 0.2)
    below, above = predictive.tails(torch.tensor([-1.0, -0.5]))
    assert below.tolist() == [[0.0, 0.0]]
    assert above.tolist() == [[1.0, 1.0]]


def test_rows_do_not_depend_on_each_other() -> None:
    means = torch.tensor([[0.1, 900.0, 7.0], [0.2, 700.0, 9.0]]).double()
    dispersion = torch.tensor([[1.0, 0.01, 0.2], [1.0, 0.02, 0.3]]).double()
    scores, values = torch.linspace(-3.0, 3.0, 7).double(), torch.tensor([0.0, 800.0, 6.0]).double()
    together = CountPredictive.of_counts(means, dispersion)
    for row in range(3):
        alone = CountPredictive.of_counts(means[:, row : row + 1], dispersion[:, row : row + 1])
        torch.testing.assert_close(alone.quantiles(scores)[0], together.quantiles(scores)[row])
        torch.testing.assert_close(alone.crps(values[row : row + 1])[0], together.crps(values)[row])
        torch.testing.assert_close(alone.tails(values)[0][0], together.tails(values)[0][row])


def test_no_row_has_no_percentile() -> None:
    nothing = CountPredictive.of_counts(*torch.ones(2, 3, 0, dtype=torch.float64))
    assert nothing.quantiles(torch.zeros(2, dtype=torch.float64)).shape == (0, 2)
