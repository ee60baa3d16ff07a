"""Cross-fitting folds, scores on rows that a fit has not seen, and the score of all members extrapolated from a few."""

import pytest
import torch
from torch.nn import functional

from murho.model.bbb.fit_rows import Rows, SeenRows, ensemble_score, mixture_nll
from murho.model.bbb.likelihood import Bernoulli
from murho.model.bbb.network import BayesianNetwork
from murho.model.bbb.number_likelihoods import GaussianMixtureLikelihood, HomoscedasticNoise
from murho.model.distributions.predictive import Predictive
from murho.model.distributions.target_transforms import Identity, Standardisation
from murho.model.training.context import unread_bins
from murho.model.training.scoring import ClassScorer, NumberScorer, extrapolate, judge_scores
from tests.model.conftest import small_fit, small_rows


def _scores(
    network: BayesianNetwork, rows: Rows, targets: torch.Tensor, scorer: NumberScorer | ClassScorer
) -> torch.Tensor:
    """Both scores of each row, extrapolated to all members, ``[2, N]``."""
    return extrapolate(judge_scores(network, rows, targets, scorer, seed=0), network, rows)


@pytest.mark.parametrize("partitions", [1, 2])
def test_members_that_have_not_seen_a_row_validate_it_and_tell_what_all_would_score(partitions: int) -> None:
    """Ten members in five folds: a row of folds 2 and 3 is judged by members 2 and 8, or 2 and 7 in one partition."""
    rows = small_rows(20)
    outcome = small_fit(rows, rows, members=10)
    with torch.no_grad():
        outcome.network.rho.fill_(-30.0)  # no draw differs from the next
    folds = torch.stack((torch.arange(20) % 5, torch.arange(20) // 5))[:partitions]
    value = mixture_nll(outcome.network, outcome.likelihood, Rows(rows.features, rows.targets, folds), 2, seed=0)
    with torch.no_grad():
        outputs = outcome.network(rows.features, torch.Generator())
        densities = outcome.likelihood.log_density(outputs, rows.targets).double()
        judges = torch.stack([densities[folds[0], torch.arange(20)], densities[folds[-1] + 5, torch.arange(20)]])
    pair = -float(judges.exp().mean(dim=0).log().clamp_min(-15.0).mean())
    alone = -float(judges.clamp_min(-15.0).mean())
    assert value == pytest.approx(ensemble_score(alone, pair, 2, 10), rel=1e-4)


def test_weighted_scores_are_those_of_repeated_rows() -> None:
    rows = small_rows(20)
    outcome = small_fit(rows, rows, members=2)
    with torch.no_grad():
        outcome.network.rho.fill_(-30.0)  # no draw differs from the next
    counts = torch.arange(20) % 3 + 1
    weighted = Rows(rows.features, rows.targets, weights=counts / counts.float().mean())
    features, targets = (part.repeat_interleave(counts, dim=0) for part in (rows.features, rows.targets))
    repeated = Rows(features, targets)
    assert isinstance(outcome.likelihood, GaussianMixtureLikelihood)
    scorer = NumberScorer(outcome.likelihood, Standardisation(Identity(), 3.0, 2.0), spread=2.0)
    found = [
        [
            mixture_nll(outcome.network, outcome.likelihood, those, 2, seed=0),
            *_scores(outcome.network, those, those.targets.double(), scorer).mean(dim=1).tolist(),
        ]
        for those in (weighted, repeated)
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_judges_that_read_different_inputs_are_scored_one_by_one_and_together_but_not_extrapolated() -> None:
    numbers, rows = small_rows(20), torch.arange(20)
    rows_of = Rows(numbers.features, (numbers.targets > 0.0).float(), torch.stack((rows % 5, rows // 5)))
    unread = tuple(map(tuple, unread_bins(10, [0])))
    outcome = small_fit(rows_of, rows_of, members=10, noise="bernoulli", unread=unread, alike=False)
    with torch.no_grad():
        outcome.network.rho.fill_(-30.0)
        outputs = outcome.network(rows_of.features, torch.Generator())
        right = outcome.likelihood.log_density(outputs, rows_of.targets).double().exp()
    judges = torch.stack([right[rows % 5, rows], right[rows // 5 + 5, rows]])
    expected = [*(-judges.log().mean(dim=1)).tolist(), -float(judges.mean(dim=0).log().mean())]
    assert isinstance(outcome.likelihood, Bernoulli)
    judging = rows_of.targets.double(), ClassScorer(outcome.likelihood)
    found = judge_scores(outcome.network, rows_of, *judging, seed=0)
    assert found[:, 0].mean(dim=1).tolist() == pytest.approx(expected, rel=1e-4)
    together = float(_scores(outcome.network, rows_of, *judging)[0].mean())
    assert together == pytest.approx(expected[2], rel=1e-4)
    assert mixture_nll(outcome.network, outcome.likelihood, rows_of, 2, seed=0) == pytest.approx(expected[2], rel=1e-4)


def test_in_time_a_member_sees_only_blocks_before_its_own() -> None:
    rows = small_rows(12)
    folds = torch.tensor([[-1] * 4 + [0] * 4 + [1] * 4])
    seen = Rows(rows.features, rows.targets, folds, forward=True).seen_by(2)
    assert seen.counts == (4, 8)
    assert seen.rows[0, :4].tolist() == [0, 1, 2, 3]
    assert seen.rows[1].tolist() == list(range(8))


def test_a_member_with_fewer_rows_sees_each_of_them_about_as_often() -> None:
    """No row is dropped for good, and none is always the one that comes twice."""
    seen = SeenRows(torch.tensor([[0, 1, 2, 3, 4, 0, 0], [5, 6, 7, 8, 9, 10, 11]]), (5, 7))
    generator = torch.Generator().manual_seed(0)
    epochs = torch.stack([seen.shuffle(generator) for _ in range(500)])
    counts = torch.bincount(epochs[:, 0].flatten())
    assert counts.tolist() == pytest.approx([700.0] * 5, rel=0.1)
    assert all(sorted(epoch.tolist()) == list(range(5, 12)) for epoch in epochs[:, 1])
    assert all(set(epoch.tolist()) == set(range(5)) for epoch in epochs[:, 0])


def test_the_crps_of_a_mixture_of_all_members_is_foretold() -> None:
    """Exact in expectation: the means over single members and over pairs give the score of all ten."""
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(10, 200, 1, generator=generator).double()
    noise = 0.2 + torch.rand(10, 200, 1, generator=generator).double()
    targets = torch.randn(200, generator=generator).double()
    identity = Identity()

    def crps(members: list[int]) -> float:
        return float(Predictive.of(means[members], noise[members], None, identity).crps(targets).mean())

    alone = sum(crps([member]) for member in range(10)) / 10
    pairs = [(one, two) for one in range(10) for two in range(one)]
    together = sum(crps(list(pair)) for pair in pairs) / len(pairs)
    assert ensemble_score(alone, together, 2, 10) == pytest.approx(crps(list(range(10))), rel=1e-6)


@pytest.mark.parametrize("noise", ["homoscedastic", "heteroscedastic", "mixture"])
def test_scores_in_the_targets_unit_are_those_of_the_judges_and_extrapolated(noise: str) -> None:
    rows = small_rows(20)
    outcome = small_fit(rows, rows, members=10, noise=noise, known={"components": 2})
    with torch.no_grad():
        outcome.network.rho.fill_(-30.0)
    folds = torch.stack((torch.arange(20) % 5, torch.arange(20) // 5))
    standardisation = Standardisation(Identity(), 3.0, 2.0)
    targets = rows.targets.double() * 2.0 + 3.0
    assert isinstance(outcome.likelihood, GaussianMixtureLikelihood)
    found = _scores(
        outcome.network,
        Rows(rows.features, rows.targets, folds),
        targets,
        NumberScorer(outcome.likelihood, standardisation, float(targets.std(correction=0))),
    )
    with torch.no_grad():
        parts = outcome.likelihood.components(outcome.network(rows.features, torch.Generator()))
    means, noises, weights = (None if part is None else part.expand(10, 20, -1).double() for part in parts)
    assert means is not None
    assert noises is not None

    def score(row: int, members: list[int]) -> torch.Tensor:
        """NLL and CRPS of some members' mixture at one row."""
        predictive = Predictive.of(
            means[members, row : row + 1] * 2.0 + 3.0,
            noises[members, row : row + 1] * 2.0,
            None if weights is None else weights[members, row : row + 1],
            standardisation.transform,
        )
        target = targets[row : row + 1]
        return torch.stack((-predictive.log_density(target), predictive.crps(target))).squeeze(1)

    pairs = [(row, [int(folds[0, row]), 5 + int(folds[1, row])]) for row in range(20)]
    together = torch.stack([score(row, judges) for row, judges in pairs]).mean(dim=0)
    alone = torch.stack([score(row, [judge]) for row, judges in pairs for judge in judges]).mean(dim=0)
    expected = [ensemble_score(*both, 2, 10) for both in zip(alone.tolist(), together.tolist(), strict=True)]
    assert found.mean(dim=1).tolist() == pytest.approx(expected, rel=1e-3)


def test_validation_scores_the_mixture_over_draws_not_their_average() -> None:
    rows = small_rows(20)
    outcome = small_fit(rows, rows, members=2)
    draws = 3
    value = mixture_nll(outcome.network, outcome.likelihood, rows, draws, seed=9)
    generator = torch.Generator().manual_seed(9)
    outputs = outcome.network(rows.features, generator, draws).detach()[..., 0].reshape(2 * draws, 20)
    assert isinstance(outcome.likelihood, HomoscedasticNoise)
    noise = (1e-3 + functional.softplus(outcome.likelihood.rho.detach())).repeat_interleave(draws, dim=0)
    density = torch.distributions.Normal(outputs.double(), noise.double()).log_prob(rows.targets.double()).exp()
    assert value == pytest.approx(-float(density.mean(dim=0).log().mean()), rel=1e-5)


def test_members_with_uneven_rows_weigh_the_kl_by_their_own() -> None:
    even = SeenRows(torch.zeros(2, 10).long(), (9, 10))
    uneven = SeenRows(torch.zeros(2, 10).long(), (5, 10))
    assert even.uneven is None
    assert uneven.uneven is not None
    assert uneven.uneven.tolist() == [2.0, 1.0]
