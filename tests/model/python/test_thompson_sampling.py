"""Thompson sampling: what it learns on tiny bandits, what it refuses, and that its seed decides everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from murho.model.errors import OptionError
from murho.model.python.bandits import BanditOptions, ThompsonSampling, decisions_until_update


def agent(**changes: Any) -> ThompsonSampling:
    """Two inputs, two arms, rewards from -1 to 1."""
    options = {"lowest_reward": -1.0, "highest_reward": 1.0, "steps": 20, **changes}
    return ThompsonSampling(2, 2, BanditOptions(**options))


def play(player: ThompsonSampling, decisions: int, seed: int = 0) -> np.ndarray:
    """Share of right choices by quarter: arm 1 gives 1 where the first input is positive, else -1; arm 0 gives 0."""
    generator = np.random.default_rng(seed)
    right, first = [], 0
    while first < decisions:
        contexts = generator.normal(size=(decisions_until_update(first), 2))
        arms = player.choose(contexts)
        rewards = np.where(arms == 1, np.sign(contexts[:, 0]), 0.0)
        player.learn(contexts, arms, rewards)
        right += list(arms == (contexts[:, 0] > 0.0))
        first += len(contexts)
    return np.array([part.mean() for part in np.array_split(np.array(right[:decisions]), 4)])


def test_it_finds_the_right_arm_for_each_context() -> None:
    shares = play(agent(), 400)
    assert shares[-1] > 0.9


@pytest.mark.slow
def test_it_finds_what_no_linear_agent_can() -> None:
    generator = np.random.default_rng(0)
    player = agent(hidden=(20,), hidden_sigma=3.0, temperature=0.1, steps=60, learning_rate=0.05, seed=1)
    rights: list[bool] = []
    for _ in range(30):
        contexts = generator.choice([-1.0, 1.0], size=(10, 2))
        best = (contexts[:, 0] * contexts[:, 1] > 0.0).astype(np.int64)
        arms = player.choose(contexts)
        player.learn(contexts, arms, np.where(arms == best, 1.0, -1.0))
        rights += list(arms == best)
    assert np.mean(rights[-100:]) > 0.9


def test_an_arm_is_chosen_with_the_probability_that_it_is_the_best() -> None:
    player = agent(hidden=(), seed=5)
    context = np.tile([0.3, -0.8], (4000, 1))
    share = (player.choose(context) == 1).mean()
    drawn = player.posterior.draw(torch.from_numpy(context).float(), torch.Generator().manual_seed(1))
    assert share == pytest.approx(float((drawn[:, 1] > drawn[:, 0]).float().mean()), abs=0.04)


def test_doubt_remains_where_nothing_was_seen() -> None:
    player = ThompsonSampling(2, 2, BanditOptions(lowest_reward=-1.0, highest_reward=1.0, hidden=(), steps=500))
    player.learn(np.tile([1.0, 0.0], (60, 1)), np.arange(60) % 2, np.tile([0.2, -0.2], 30))
    contexts = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat_interleave(2000, dim=0)
    drawn = player.posterior.draw(contexts, torch.Generator().manual_seed(0))
    seen, unseen = drawn[:2000].std(dim=0), drawn[2000:].std(dim=0)
    assert bool((unseen > 2.5 * seen).all())


def test_the_seed_decides_everything() -> None:
    assert np.array_equal(play(agent(seed=1), 60), play(agent(seed=1), 60))
    assert not np.array_equal(agent(seed=1).choose(np.ones((200, 2))), agent(seed=2).choose(np.ones((200, 2))))


def test_expected_rewards_are_in_the_unit_of_the_rewards_and_do_not_vary() -> None:
    player = ThompsonSampling(1, 2, BanditOptions(lowest_reward=-35.0, highest_reward=5.0, steps=200))
    player.learn(np.zeros((60, 1)), np.arange(60) % 2, np.where(np.arange(60) % 2 == 1, 5.0, 0.0))
    expected = player.expected_rewards(np.zeros((1, 1)))
    assert expected[0].tolist() == pytest.approx([0.0, 5.0], abs=1.0)
    assert np.array_equal(expected, player.expected_rewards(np.zeros((1, 1))))


def test_updates_are_frequent_at_first_and_rarer_later() -> None:
    assert [decisions_until_update(count) for count in (0, 79, 100, 1000, 10**6)] == [4, 4, 5, 50, 100]


def test_learning_from_nothing_changes_nothing() -> None:
    player = agent()
    before = player.posterior.network.mu.detach().clone()
    player.learn(np.zeros((0, 2)), np.zeros(0, dtype=np.int64), np.zeros(0))
    assert bool((player.posterior.network.mu == before).all())


@pytest.mark.parametrize(
    ("contexts", "arms", "rewards", "message"),
    [
        (np.zeros((2, 3)), [0, 1], [0.0, 0.0], "have the shape"),
        (np.full((1, 2), np.nan), [0], [0.0], "finite"),
        (np.zeros((2, 2)), [0], [0.0, 0.0], "as many arms and rewards"),
        (np.zeros((1, 2)), [2], [0.0], "from 0 to 1"),
        (np.zeros((1, 2)), [0.5], [0.0], "whole numbers"),
        (np.zeros((2, 2)), [0, 1], [0.0, 7.0], "reward 7 of row 1"),
        (np.zeros((1, 2)), [0], [np.nan], "outside of the range"),
    ],
)
def test_what_can_not_be_learned_is_refused(
    contexts: np.ndarray, arms: list[Any], rewards: list[Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        agent().learn(contexts, np.array(arms), np.array(rewards))


@pytest.mark.parametrize(
    "change",
    [
        {"highest_reward": -1.0},
        {"lowest_reward": float("nan")},
        {"temperature": 0.0},
        {"learning_rate": -1.0},
        {"context_length": 0.0},
        {"steps": 0},
        {"seed": -1},
    ],
)
def test_options_that_make_no_sense_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        agent(**change)


def test_one_arm_is_no_choice() -> None:
    with pytest.raises(OptionError, match="two arms"):
        ThompsonSampling(2, 1, BanditOptions(lowest_reward=0.0, highest_reward=1.0))
