"""The agents of the bandit benchmarks, each a function from a problem and a seed to the chosen arms."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.bandit_parts.linear import linear_thompson
from murho.model.python.bandits import BanditOptions, ThompsonSampling, decisions_until_update

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from numpy.typing import NDArray

    from benchmarks.bandit_parts.problems import Problem

    Agent: TypeAlias = Callable[[Problem, int], NDArray[np.int64]]

__all__ = ["AGENTS", "epsilon_greedy", "options_for", "thompson", "uniform"]


def options_for(problem: Problem, seed: int) -> BanditOptions:
    """The defaults, with what a problem says of its contexts and rewards."""
    lowest, highest = problem.reward_range
    return BanditOptions(lowest_reward=lowest, highest_reward=highest, context_length=problem.context_length, seed=seed)


def uniform(problem: Problem, seed: int) -> NDArray[np.int64]:
    """Chooses at random."""
    decisions: int = len(problem.rewards)
    return np.random.default_rng([seed, 2]).integers(problem.rewards.shape[1], size=decisions)


def thompson(problem: Problem, seed: int) -> NDArray[np.int64]:
    """Chooses by a draw of Murho's posterior."""
    agent = ThompsonSampling(problem.contexts.shape[1], problem.rewards.shape[1], options_for(problem, seed))
    return _play(agent, problem, agent.choose)


def epsilon_greedy(problem: Problem, seed: int, *, epsilon: float) -> NDArray[np.int64]:
    """Chooses by the mu-only networks of the same posterior, or at random with probability epsilon."""
    arms = problem.rewards.shape[1]
    agent = ThompsonSampling(problem.contexts.shape[1], arms, options_for(problem, seed))
    generator = np.random.default_rng([seed, 3])

    def choose(contexts: NDArray[np.float32]) -> NDArray[np.int64]:
        best = agent.expected_rewards(contexts).argmax(axis=1)
        explores = generator.random(len(contexts)) < epsilon
        return np.where(explores, generator.integers(arms, size=len(contexts)), best)

    return _play(agent, problem, choose)


def _play(
    agent: ThompsonSampling, problem: Problem, choose: Callable[[NDArray[np.float32]], NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Decides in batches; an agent sees the rewards of its chosen arms alone, after each batch."""
    decisions = len(problem.contexts)
    chosen = np.zeros(decisions, dtype=np.int64)
    first = 0
    while first < decisions:
        batch = slice(first, min(decisions, first + decisions_until_update(first)))
        contexts = problem.contexts[batch]
        arms = choose(contexts)
        agent.learn(contexts, arms, np.take_along_axis(problem.rewards[batch], arms[:, None], axis=1)[:, 0])
        chosen[batch] = arms
        first = batch.stop
    return chosen


AGENTS: dict[str, tuple[str, Agent]] = {
    "murho": ("Murho, Thompson sampling", thompson),
    "linear": ("linear Thompson sampling", linear_thompson),
    "linear-known-noise": ("linear Thompson sampling, noise 5", partial(linear_thompson, sigma=5.0)),
    "greedy": ("greedy, the same network", partial(epsilon_greedy, epsilon=0.0)),
    "epsilon-1": ("ε-greedy 1 %, the same network", partial(epsilon_greedy, epsilon=0.01)),
    "epsilon-5": ("ε-greedy 5 %, the same network", partial(epsilon_greedy, epsilon=0.05)),
    "uniform": ("uniform", uniform),
}
"""Name on the command line → title and agent."""
