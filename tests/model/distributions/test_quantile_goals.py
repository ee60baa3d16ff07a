"""Levels to reach, and steps towards them."""

from __future__ import annotations

import pytest
import torch

from murho.model.distributions.quantile_goals import LONGEST_STEP, Goals
from murho.model.distributions.quantile_steps import DOUBLE, SINGLE
from murho.model.distributions.standard_mixtures import StandardMixture

GAUSSIAN = StandardMixture.of(torch.zeros(1, 1).double(), torch.ones(1, 1).double(), None, kind=torch.float64)


def _goals(*scores: float) -> Goals:
    return Goals.of(torch.tensor([scores], dtype=torch.float64))


def test_the_smaller_tail_is_that_of_the_score() -> None:
    goals = _goals(-37.0, -1.0, 0.0, 1.0, 37.0)
    assert goals.signs.tolist() == [[-1.0, -1.0, -1.0, 1.0, 1.0]]
    normal = torch.special.log_ndtr(-goals.scores.abs()).exp()
    torch.testing.assert_close(goals.tails, normal, rtol=1e-10, atol=0.0)
    assert float(goals.tails.min()) > 0.0
    assert goals.take(slice(0, 1), slice(1, 3)).scores.tolist() == [[-1.0, 0.0]]


def test_what_f_is_still_to_rise_is_counted_from_either_side() -> None:
    goals = _goals(-1.0, 1.0)
    found = GAUSSIAN.tails(torch.tensor([[-1.5, 1.5]]).double(), goals.signs, DOUBLE)
    expected = torch.special.ndtr(goals.scores) - torch.special.ndtr(torch.tensor([[-1.5, 1.5]]).double())
    torch.testing.assert_close(goals.missing(found), expected)


def test_a_gaussian_is_solved_in_a_step_that_is_not_too_long() -> None:
    goals = _goals(-1.0, 0.3, 2.0)
    values = torch.tensor([[-1.4, 0.0, 2.0 - 3.0 * LONGEST_STEP]], dtype=torch.float64)
    stepped = goals.approach(values, GAUSSIAN.tails(values, goals.signs, DOUBLE))
    expected = torch.tensor([[-1.0, 0.3, 2.0 - 2.0 * LONGEST_STEP]], dtype=torch.float64)
    torch.testing.assert_close(stepped, expected, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_scores_beyond_a_precision_s_reach_are_not_settled(sign: float) -> None:
    goals = _goals(sign * 5.0, sign * 7.5)
    values = goals.scores.clone()
    found = GAUSSIAN.tails(values, goals.signs, DOUBLE)
    fourth = GAUSSIAN.inverse_fourth()
    assert goals.settle(values, found, fourth, SINGLE)[1].tolist() == [[True, False]]
    assert goals.settle(values, found, fourth, DOUBLE)[1].all()
