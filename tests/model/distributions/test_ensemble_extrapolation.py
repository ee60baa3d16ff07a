"""The score of all members, extrapolated from the scores of a few."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from murho.model.bbb.rows import ensemble_score
from murho.model.distributions.predictive import Predictive
from murho.model.distributions.transforms import Identity


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


def test_squared_error_and_variance_of_all_members_are_foretold_row_by_row() -> None:
    """Exact where the two judges' scores are the means over all pairs, as here."""
    generator = np.random.default_rng(0)
    means, noise = generator.standard_normal((6, 50)), 0.2 + generator.random((6, 50))
    targets = generator.standard_normal(50)

    def scores(members: list[int]) -> tuple[np.ndarray, np.ndarray]:
        mean = means[members].mean(axis=0)
        return (mean - targets) ** 2, means[members].var(axis=0) + (noise[members] ** 2).mean(axis=0)

    pairs = [[one, two] for one in range(6) for two in range(one)]
    for number in range(2):
        alone = np.mean([scores([member])[number] for member in range(6)], axis=0)
        together = np.mean([scores(pair)[number] for pair in pairs], axis=0)
        np.testing.assert_allclose(ensemble_score(alone, together, 2, 6), scores(list(range(6)))[number])


@pytest.mark.parametrize(("judges", "members"), [(1, 10), (1, 1), (5, 5)])
def test_where_one_judges_or_all_do_nothing_is_foretold(judges: int, members: int) -> None:
    assert ensemble_score(2.0, 1.0, judges, members) == 1.0
