"""The agents of the bandit benchmarks on small problems."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.bandit_parts.agents import AGENTS
from benchmarks.bandit_parts.linear import linear_thompson
from benchmarks.bandit_parts.problems import Problem, mushrooms


def small(decisions: int = 60) -> Problem:
    """Two kinds of mushroom, which their first input tells apart."""
    return mushrooms(np.eye(2, dtype=np.float32), np.array([False, True]), decisions, seed=3)


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_decides_for_every_context_and_its_seed_decides_for_it(name: str) -> None:
    play = AGENTS[name][1]
    problem = small(40)
    arms = play(problem, 1)
    assert arms.shape == (40,)
    assert set(arms) <= {0, 1}
    assert np.array_equal(arms, play(problem, 1))


def test_linear_thompson_sampling_learns_what_is_linear() -> None:
    problem = small(400)
    regret = problem.regret(linear_thompson(problem, 0))
    assert regret[:100].mean() > 4.0 * regret[-100:].mean()


def test_linear_thompson_sampling_leaves_an_arm_that_never_pays() -> None:
    generator = np.random.default_rng(0)
    contexts = generator.normal(size=(500, 1)).astype(np.float32)
    rewards = np.stack((np.full(500, -100.0), 2.0 + contexts[:, 0] + generator.normal(size=500)), axis=1)
    problem = Problem("line", contexts, rewards, rewards, 1.0, (-101.0, 10.0))
    assert (linear_thompson(problem, 0, sigma=1.0)[50:] == 1).all()
