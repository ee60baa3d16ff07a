"""The likelihood of rewards between two limits."""

from __future__ import annotations

import pytest
import torch

from murho.model.python.bandits import BoundedReward


def test_the_likelihood_is_highest_where_the_expected_share_is_the_mean_share() -> None:
    logits = torch.linspace(-4.0, 4.0, 801).view(1, -1, 1)
    shares = torch.tensor([0.0, 0.2, 0.9, 1.0])
    total = sum(BoundedReward().log_density(logits, share)[0] for share in shares)
    assert isinstance(total, torch.Tensor)
    best = logits[0, int(total.argmax()), 0]
    assert float(torch.sigmoid(best)) == pytest.approx(float(shares.mean()), abs=3e-3)


def test_for_zero_and_one_it_is_the_bernoulli_probability() -> None:
    logit = torch.tensor([[[0.7], [0.7]]])
    found = BoundedReward().log_density(logit, torch.tensor([1.0, 0.0])).exp()
    probability = float(torch.sigmoid(torch.tensor(0.7)))
    assert found[0].tolist() == pytest.approx([probability, 1.0 - probability])
