"""The contract of observation models for counts, and what only they have."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
import torch
from scipy import stats

from murho.model.bbb.numbers import LARGEST_COUNT, NegativeBinomial
from murho.model.checkpoint.spec import LikelihoodSpec
from murho.model.distributions.transforms import Limits, Logarithm, Standardisation
from murho.model.errors import TableError
from tests.model.bbb.likelihood_contract import LikelihoodContract

if TYPE_CHECKING:
    from torch import Tensor

    from murho.model.bbb.likelihood import Likelihood


class TestNegativeBinomial(LikelihoodContract):
    """Targets are counts; the network learns their standardised logarithms."""

    def spec(self) -> LikelihoodSpec:
        return LikelihoodSpec("negative-binomial")

    def targets(self, generator: torch.Generator, *shape: int) -> Tensor:
        counts = torch.randint(0, 40, shape, generator=generator).double()
        return NegativeBinomial.standardisation.forward(counts).float()

    def total(self, likelihood: Likelihood, outputs: Tensor) -> Tensor:
        counts = cast("NegativeBinomial", likelihood).standardisation.forward(torch.arange(2000).double())
        densities = (likelihood.log_density(outputs, count.expand(outputs.shape[1])) for count in counts)
        return torch.stack([density.exp() for density in densities]).sum(dim=0)


def test_the_log_density_is_the_log_probability_of_the_count_after_a_fits_standardisation() -> None:
    counts = np.array([0.0, 1.0, 7.0, 250.0, 40_000.0, LARGEST_COUNT])
    likelihood = NegativeBinomial()
    likelihood.learn_target(Standardisation(Logarithm(0.5, float(np.log(LARGEST_COUNT + 0.5))), 3.0, 1.7))
    outputs = torch.tensor([[[0.1, -0.5]]]).expand(1, 6, 2)
    mean = np.exp(0.1 * 1.7 + 3.0)
    size = 1.0 / (1e-5 + np.log1p(np.exp(-0.5)))
    targets = likelihood.standardisation.forward(torch.from_numpy(counts)).float()
    expected = stats.nbinom.logpmf(counts, size, size / (size + mean))
    assert likelihood.log_density(outputs, targets)[0].numpy() == pytest.approx(expected, rel=1e-5)


def test_without_dispersion_it_is_poisson() -> None:
    likelihood = NegativeBinomial()
    outputs = torch.tensor([[[2.0, -60.0]]])
    target = likelihood.standardisation.forward(torch.tensor([5.0]))
    expected = stats.poisson.logpmf(5, np.exp(2.0))
    assert float(likelihood.log_density(outputs, target)) == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("bad", [-1.0, 2.5, LARGEST_COUNT + 1.0])
def test_a_target_that_is_no_count_is_refused_with_its_row(bad: float) -> None:
    with pytest.raises(TableError, match=r"column 'visits', row 3: .* is not a count.*--noise"):
        NegativeBinomial.require_targets(np.array([0.0, np.nan, bad]), "visits")


def test_missing_targets_and_limits_at_zero_or_below_are_allowed() -> None:
    NegativeBinomial.require_targets(np.array([0.0, np.nan, 3.0]), "visits")
    assert NegativeBinomial.allows(Limits(0.0, np.inf))
    assert not NegativeBinomial.allows(Limits(0.0, 10.0))
    assert not NegativeBinomial.allows(Limits(1.0, np.inf))
