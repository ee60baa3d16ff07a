"""Thompson sampling: what it learns on tiny bandits, what it refuses, and that its seed decides everything."""

import math
import re
from typing import Any

import numpy as np
import pytest
import torch

from murho.model.errors import OptionError
from murho.model.python.bandits import (
    BanditOptions,
    Experience,
    RewardPosterior,
    ThompsonSampling,
    decisions_until_update,
)
from tests.support import ROOT


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
    player = agent()
    assert play(player, 400)[-1] > 0.9
    expected = player.expected_rewards(np.array([[2.0, 0.0], [-2.0, 0.0]]))
    assert (expected[:, 1] > expected[:, 0]).tolist() == [True, False]
    assert (np.abs(expected) <= 1.0).all()


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


@pytest.mark.parametrize(
    ("contexts", "arms", "rewards", "message"),
    [
        (np.zeros((2, 3)), [0, 1], [0.0, 0.0], "have the shape"),
        (np.zeros((2, 2)), [0], [0.0, 0.0], "as many arms and rewards"),
        (np.zeros((1, 2)), [0.5], [0.0], "whole numbers"),
        (np.zeros((2, 2)), [0, 1], [0.0, 7.0], "reward 7 of row 1"),
    ],
)
def test_what_can_not_be_learned_is_refused(
    contexts: np.ndarray, arms: list[Any], rewards: list[Any], message: str
) -> None:
    player = agent()
    before = player.posterior.network.mu.detach().clone()
    with pytest.raises(OptionError, match=message):
        player.learn(contexts, np.array(arms), np.array(rewards))
    player.learn(np.zeros((0, 2)), np.zeros(0, dtype=np.int64), np.zeros(0))
    assert bool((player.posterior.network.mu == before).all())


def test_options_that_make_no_sense_are_refused() -> None:
    wrong: list[dict[str, Any]] = [{"highest_reward": -1.0}, {"lowest_reward": math.nan}, {"steps": 0}, {"seed": -1}]
    for change in wrong:
        with pytest.raises(OptionError):
            agent(**change)
    with pytest.raises(OptionError, match="two arms"):
        ThompsonSampling(2, 1, BanditOptions(lowest_reward=0.0, highest_reward=1.0))


def options(**changes: object) -> BanditOptions:
    """Rewards from 0 to 10."""
    return BanditOptions(**{"lowest_reward": 0.0, "highest_reward": 10.0, **changes})  # type: ignore[arg-type]


def test_before_any_reward_draws_are_wide_and_the_same_for_every_arm() -> None:
    posterior = RewardPosterior(4, 3, options(hidden_sigma=1e-3, linear_sigma=2.0, seed=1))
    contexts = torch.ones(4000, 4)
    drawn = posterior.draw(contexts, torch.Generator().manual_seed(0))
    assert drawn.shape == (4000, 3)
    assert 0.0 < float(drawn.min()) < 0.5
    assert 9.5 < float(drawn.max()) < 10.0
    # 4 inputs of 1 and a bias, each weight with 2 / sqrt(5): the logit has the standard deviation 2 about its mean.
    logits = torch.logit(drawn / 10.0)
    assert logits.std(dim=0).tolist() == pytest.approx([2.0] * 3, rel=0.06)


def test_a_linear_posterior_is_the_exact_one_of_a_bernoulli_trial() -> None:
    # One bias alone matters (the context is zero): the best Gaussian about the exact posterior of its logit, by a grid.
    posterior = RewardPosterior(
        1, 2, options(hidden=(), linear_sigma=2.0, temperature=1.0, steps=1500, batch_size=128, seed=0)
    )
    rewards = np.array([10.0] * 9 + [0.0] * 3)
    arms = np.zeros(12, dtype=np.int64)
    posterior.learn(torch.zeros(12, 1), torch.from_numpy(arms), torch.from_numpy(rewards).float())
    mean, sigma = _best_gaussian(9, 3, prior=2.0 / math.sqrt(2.0))
    bias_mu = posterior.network.named_tensors()["layers.0.bias.mu"][0, 0, 0].detach()
    bias_sigma = posterior.network.parts(posterior.network.sigma().detach())[1][0, 0, 0]
    assert float(bias_mu) == pytest.approx(mean, abs=0.06)
    assert float(bias_sigma) == pytest.approx(sigma, rel=0.06)
    # Nothing was learned of the weight, which met zeros alone, nor of the other arm.
    weight_sigma = posterior.network.parts(posterior.network.sigma().detach())[0][:, 0, 0]
    assert weight_sigma.tolist() == pytest.approx([math.sqrt(2.0)] * 2, rel=0.03)


def _best_gaussian(successes: int, failures: int, prior: float) -> tuple[float, float]:
    """Mean and sigma that minimise KL minus expected log likelihood, by search over a grid with quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    weights = weights / weights.sum()

    def free_energy(mean: float, sigma: float) -> float:
        logits = mean + sigma * nodes
        likelihood = successes * -np.logaddexp(0.0, -logits) + failures * -np.logaddexp(0.0, logits)
        kl = math.log(prior / sigma) + (sigma**2 + mean**2) / (2.0 * prior**2) - 0.5
        return kl - float(weights @ likelihood)

    places = [(mean, sigma) for mean in np.linspace(0.5, 1.5, 101) for sigma in np.linspace(0.3, 1.0, 71)]
    return min(places, key=lambda place: free_energy(*place))


def test_the_example_learns() -> None:
    text = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)  # noqa: S102 - our own page
    contexts = np.random.default_rng(1).normal(size=(200, 2))
    assert np.mean(names["agent"].choose(contexts) == (contexts[:, 0] > 0.0)) > 0.85


def filled(rows: int = 40) -> Experience:
    """Decisions for arms 0, 1, 0, 1, …, with the share of row i at i / rows; none for arm 2."""
    experience = Experience(inputs=2, arms=3)
    numbers = torch.arange(rows)
    contexts = torch.stack((numbers.float(), -numbers.float()), dim=1)
    experience.add(contexts, numbers % 2, numbers / rows)
    return experience


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
    experience.remember(rows, torch.zeros(20))
    assert experience.probabilities(rows).tolist() == pytest.approx([0.05] * 20)


def test_weighted_means_over_minibatches_are_those_over_all_rows() -> None:
    experience = filled()
    experience.remember(torch.arange(40), torch.arange(40.0) / 40.0)
    rows, weights = experience.minibatches(400, 64, torch.Generator().manual_seed(0))
    _, _, shares = experience.rows(rows)
    means = (weights * shares).mean(dim=(0, 2))
    assert float(means[0]) == pytest.approx(sum(range(0, 40, 2)) / 40 / 20, abs=0.01)
    assert float(means[1]) == pytest.approx(sum(range(1, 40, 2)) / 40 / 20, abs=0.01)
    assert float(weights[:, :2].max()) <= 2.0 + 1e-6
