"""Bandits: problems with known rewards, agents that learn them, and what is printed and kept."""

import numpy as np
import pytest

from benchmarks.mushroom import AGENTS, Problem, linear_thompson, mushrooms


def small(decisions: int) -> Problem:
    """Two kinds of mushroom, which their first input tells apart."""
    return mushrooms(np.eye(2, dtype=np.float32), np.array([False, True]), decisions, seed=3)


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_decides_for_every_context_and_its_seed_decides_for_it(name: str) -> None:
    play, problem = AGENTS[name][1], small(12)
    arms = play(problem, 1)
    assert arms.shape == (12,)
    assert set(arms) <= {0, 1}
    assert np.array_equal(arms, play(problem, 1))


def test_linear_thompson_sampling_learns_what_is_linear_and_leaves_an_arm_that_never_pays() -> None:
    problem = small(400)
    regret = problem.regret(linear_thompson(problem, 0))
    assert regret[:100].mean() > 4.0 * regret[-100:].mean()
    generator = np.random.default_rng(0)
    contexts = generator.normal(size=(500, 1)).astype(np.float32)
    rewards = np.stack((np.full(500, -100.0), 2.0 + contexts[:, 0] + generator.normal(size=500)), axis=1)
    assert (linear_thompson(Problem(contexts, rewards, rewards, 1.0, (-101.0, 10.0)), 0, sigma=1.0)[50:] == 1).all()
