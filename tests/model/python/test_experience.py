"""Experience: what is kept, and minibatches that are unbiased although surprising rows come more often."""

from __future__ import annotations

import pytest
import torch

from murho.model.python.bandits import Experience


def filled(rows: int = 40) -> Experience:
    """Decisions for arms 0, 1, 0, 1, …, with the share of row i at i / rows; none for arm 2."""
    experience = Experience(inputs=2, arms=3)
    numbers = torch.arange(rows)
    contexts = torch.stack((numbers.float(), -numbers.float()), dim=1)
    experience.add(contexts, numbers % 2, numbers / rows)
    return experience


def test_rows_come_back_as_they_were_added() -> None:
    experience = filled()
    count = 3_000
    contexts = torch.arange(2.0 * count).view(count, 2)
    numbers = experience.add(contexts, torch.full((count,), 2), torch.full((count,), 0.25))
    assert len(experience) == 40 + count
    assert experience.counts.tolist() == [20, 20, count]
    found, arms, shares = experience.rows(numbers)
    assert torch.equal(found, contexts)
    assert set(arms.tolist()) == {2}
    assert set(shares.tolist()) == {0.25}
    assert torch.equal(experience.rows(torch.arange(40))[0][:, 0], torch.arange(40.0))


def test_a_minibatch_has_rows_of_its_arm_alone() -> None:
    experience = filled()
    rows, weights = experience.minibatches(5, 16, torch.Generator().manual_seed(0))
    assert rows.shape == weights.shape == (5, 3, 16)
    assert bool((rows[:, 0] % 2 == 0).all())
    assert bool((rows[:, 1] % 2 == 1).all())
    assert bool((weights[:, :2] > 0.0).all())


def test_an_arm_without_decisions_has_no_weight() -> None:
    _, weights = filled().minibatches(3, 8, torch.Generator().manual_seed(0))
    assert bool((weights[:, 2] == 0.0).all())


def test_half_of_the_probability_goes_by_surprise() -> None:
    experience = filled()
    rows = torch.arange(0, 40, 2)
    surprises = torch.zeros(20)
    surprises[3] = 0.9
    experience.remember(rows, surprises)
    probabilities = experience.probabilities(rows)
    assert float(probabilities.sum()) == pytest.approx(1.0)
    assert float(probabilities[3]) == pytest.approx(0.5 + 0.5 / 20)
    assert float(probabilities[0]) == pytest.approx(0.5 / 20)


def test_without_any_surprise_rows_are_drawn_uniformly() -> None:
    experience = filled()
    rows = torch.arange(0, 40, 2)
    experience.remember(rows, torch.zeros(20))
    assert torch.allclose(experience.probabilities(rows), torch.full((20,), 0.05, dtype=torch.float64))


def test_weighted_means_over_minibatches_are_those_over_all_rows() -> None:
    experience = filled()
    experience.remember(torch.arange(40), torch.arange(40.0) / 40.0)
    rows, weights = experience.minibatches(400, 64, torch.Generator().manual_seed(0))
    _, _, shares = experience.rows(rows)
    means = (weights * shares).mean(dim=(0, 2))
    assert float(means[0]) == pytest.approx(sum(range(0, 40, 2)) / 40 / 20, abs=0.01)
    assert float(means[1]) == pytest.approx(sum(range(1, 40, 2)) / 40 / 20, abs=0.01)
    assert float(weights[:, :2].max()) <= 2.0 + 1e-6
