"""Vowpal Wabbit: contextual bandits with ``--cb_explore_adf --squarecb`` (Foster & Rakhlin 2020), one line an arm.

The script plays a whole problem by itself, since a message for each decision would take longer than the decision. It
shows the learner the reward of the chosen arm alone, right after each decision.
"""
# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from vowpalwabbit import Workspace

from benchmarks.peers.exchange import drive

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from murho.model.arrays import Doubles, Floats, Ints


OPTIONS = "--cb_explore_adf --squarecb --quiet -q ::"


def example(context: str, arms: int, label: str = "", arm: int = -1) -> list[str]:
    """Return a decision as lines of VW's text format: features that all arms share, then a line an arm.

    With ``-q ::`` the shared features meet those of the arm, which gives each arm weights of its own.

    Args:
        context: Features of the context, ``name:value``, separated by blanks.
        arms: A.
        label: ``arm:cost:probability`` of the chosen arm.
        arm: The chosen arm.
    """
    lines = [f"{label if number == arm else ''} |a arm{number}".strip() for number in range(arms)]
    return [f"shared |c {context}", *lines]


def play(
    contexts: Floats,
    rewards: Doubles,
    reward_range: Sequence[float],
    seed: int,
) -> Ints:
    """Play a problem.

    Args:
        contexts: ``[T, D]``.
        rewards: ``[T, A]``.
        reward_range: Limits of all rewards; squarecb is made for costs between 0 and 1.
        seed: Seed of the decisions.

    Returns:
        The chosen arms, ``[T]``.
    """
    generator = np.random.default_rng([seed, 4])
    learner: Any = Workspace(f"{OPTIONS} --random_seed {seed}")
    decisions, arms = rewards.shape
    lowest, highest = reward_range
    chosen = np.zeros(decisions, dtype=np.int64)
    for number in range(decisions):
        features = " ".join(f"f{place}:{contexts[number, place]:g}" for place in np.flatnonzero(contexts[number]))
        shares = np.array(learner.predict(example(features, arms)), dtype=np.float64)
        shares /= shares.sum()
        arm = int(generator.choice(arms, p=shares))
        chosen[number] = arm
        cost = (highest - float(rewards[number, arm])) / (highest - lowest)
        learner.learn(example(features, arms, f"{arm}:{cost:g}:{shares[arm]:.6g}", arm))
    learner.finish()
    return chosen


def bandit_session(_: object) -> tuple[None, Callable[[Any], Ints]]:
    """Each request has contexts, rewards, their range and a seed, see `play`."""
    return None, lambda request: play(*request)


if __name__ == "__main__":
    drive(bandit=bandit_session)
