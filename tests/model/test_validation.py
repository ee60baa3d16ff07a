"""How well a fit predicts rows that it has not seen."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from model.fitting import fit
from model.likelihoods import HomoscedasticNoise
from model.validation import Rows, mixture_nll
from tests.model.conftest import small_options, small_rows


def test_validation_scores_the_mixture_over_draws_not_their_average() -> None:
    rows = small_rows(20)
    outcome = fit(rows, rows, small_options(members=2))
    draws = 3
    value = mixture_nll(outcome.network, outcome.likelihood, rows, draws, seed=9)
    generator = torch.Generator().manual_seed(9)
    outputs = outcome.network(rows.features, generator, draws).detach()[..., 0].reshape(2 * draws, 20)
    assert isinstance(outcome.likelihood, HomoscedasticNoise)
    noise = (1e-3 + functional.softplus(outcome.likelihood.rho.detach())).repeat_interleave(draws, dim=0)
    density = (
        torch.distributions.Normal(outputs.double(), noise.double()).log_prob(rows.targets.double()).exp()
    )
    assert value == pytest.approx(-float(density.mean(dim=0).log().mean()), rel=1e-5)


def test_with_folds_a_row_is_validated_by_the_member_kept_from_it() -> None:
    rows = small_rows(20)
    outcome = fit(rows, rows, small_options(members=2, noise="fixed", noise_sigma=0.5))
    with torch.no_grad():
        outcome.network.mu[1] += 10_000.0  # a member that is badly wrong
        outcome.network.rho.fill_(-30.0)
    by_first = mixture_nll(
        outcome.network,
        outcome.likelihood,
        Rows(rows.features, rows.targets, torch.zeros(20).long()),
        2,
        seed=0,
    )
    by_second = mixture_nll(
        outcome.network,
        outcome.likelihood,
        Rows(rows.features, rows.targets, torch.ones(20).long()),
        2,
        seed=0,
    )
    assert by_second == pytest.approx(15.0)  # at the limit of what a row may count
    assert by_first < 10.0


def test_members_that_share_a_fold_validate_its_rows_together() -> None:
    """Ten members in five folds: rows of fold 2 are judged by the mixture of members 2 and 7."""
    rows = small_rows(20)
    outcome = fit(rows, rows, small_options(members=10))
    with torch.no_grad():
        outcome.network.rho.fill_(-30.0)  # no draw differs from the next
    folds = torch.arange(20) % 5
    value = mixture_nll(
        outcome.network, outcome.likelihood, Rows(rows.features, rows.targets, folds), 2, seed=0
    )
    with torch.no_grad():
        outputs = outcome.network(rows.features, torch.Generator())
        densities = outcome.likelihood.log_density(outputs, rows.targets).double()
        pairs = torch.stack([densities[folds, torch.arange(20)], densities[folds + 5, torch.arange(20)]])
    assert value == pytest.approx(-float(pairs.exp().mean(dim=0).log().clamp_min(-15.0).mean()), rel=1e-4)
