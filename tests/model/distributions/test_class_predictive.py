"""The predictive of classes: pooled probabilities, parts of the entropy, and draws with a given mean."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from murho.model.distributions.class_predictive import ClassPredictive, draws_with_mean, entropy


def random_draws(seed: int, samples: int, classes: int, rows: int, spread: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(samples, classes, rows, generator=generator, dtype=torch.float64)
    return torch.softmax(logits, dim=1)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000), st.integers(1, 9), st.integers(2, 5), st.sampled_from([0.1, 1.0, 5.0, 40.0]), st.booleans()
)
def test_draws_get_the_mean_that_is_asked_for(
    seed: int, samples: int, classes: int, spread: float, sharp: bool
) -> None:
    draws = random_draws(seed, samples, classes, 4, spread)
    goal = torch.softmax((6.0 if sharp else 1.0) * draws.mean(dim=0).log().clamp_min(-30.0), dim=0)
    goal = torch.lerp(goal, torch.full_like(goal, 1.0 / classes), 1e-4)
    moved = draws_with_mean(draws, goal)
    torch.testing.assert_close(moved.mean(dim=0), goal, atol=1e-12, rtol=0.0)
    torch.testing.assert_close(moved.sum(dim=1), torch.ones(samples, 4, dtype=torch.float64), atol=1e-9, rtol=0.0)
    assert float(moved.min()) >= -1e-12
    assert float((entropy(goal, 0) - entropy(moved.clamp_min(0.0), 1).mean(dim=0)).min()) >= -1e-9


def test_draws_that_have_the_mean_stay_as_they_are() -> None:
    draws = random_draws(3, 6, 3, 5, 2.0)
    torch.testing.assert_close(draws_with_mean(draws, draws.mean(dim=0)), draws, atol=1e-12, rtol=0.0)


def test_parts_of_the_entropy_are_known_where_draws_agree_and_where_they_are_sure_but_differ() -> None:
    agree = torch.tensor([0.2, 0.8], dtype=torch.float64)[None, :, None].expand(4, 2, 1)
    differ = torch.eye(2, dtype=torch.float64)[:, :, None]
    shares = torch.tensor([0.5, 0.5], dtype=torch.float64)
    assert float(ClassPredictive(agree, shares, 0.0).epistemic_share()) == pytest.approx(0.0, abs=1e-12)
    assert float(ClassPredictive(differ, shares, 0.0).epistemic_share()) == pytest.approx(1.0)


def test_the_pooled_probability_is_the_mean_and_never_0_or_1() -> None:
    log_draws = torch.tensor([[[0.0, -400.0]], [[0.0, -400.0]]])
    predictive = ClassPredictive.of(log_draws, torch.tensor([0.25, 0.75], dtype=torch.float64), 0.01)
    assert predictive.pool()[0].tolist() == pytest.approx([0.99 + 0.0025, 0.0075])
