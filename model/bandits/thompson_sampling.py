"""Thompson sampling: an agent that chooses the arm of the highest expected reward under a draw of the weights.

So an arm is chosen with the probability that it is the best one (Thompson 1933; Blundell et al. 2015, section 4 with
Bayes by Backprop). Rewards are taken in batches, whenever the caller has some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from murho.model.bandits.reward_posterior import RewardPosterior
from murho.model.errors import OptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.bandits.bandit_options import BanditOptions

__all__ = ["ThompsonSampling", "decisions_until_update"]

UPDATES_PER_E_FOLD = 20
MOST_BETWEEN_UPDATES = 100
FEWEST_BETWEEN_UPDATES = 4


def decisions_until_update(decisions: int) -> int:
    """Number of decisions until the next update: a twentieth of those so far, from 4 to 100.

    The first rewards teach most, so they are learned from at once; later, updates are rare enough to be cheap.
    """
    return min(MOST_BETWEEN_UPDATES, max(FEWEST_BETWEEN_UPDATES, decisions // UPDATES_PER_E_FOLD))


class ThompsonSampling:
    """An agent with A arms, whose decisions depend on a context of D numbers.

    Attributes:
        posterior: What it believes of the rewards.
    """

    def __init__(self, inputs: int, arms: int, options: BanditOptions) -> None:
        """Begin without experience.

        Args:
            inputs: D.
            arms: A, at least 2.
            options: Options of the agent.

        Raises:
            OptionError: There are less than two arms, or no input.
        """
        if arms < 2:
            raise OptionError(f"an agent chooses between two arms at least, not {arms}")
        self._inputs, self._options = inputs, options
        self.posterior = RewardPosterior(inputs, arms, options)
        # Draws of decisions are apart from those of the updates.
        self._generator = torch.Generator().manual_seed((options.seed + 2**62) % 2**63)

    def choose(self, contexts: NDArray[np.floating]) -> NDArray[np.int64]:
        """Choose an arm for each context, each by a draw of its own.

        Args:
            contexts: ``[B, D]``.

        Returns:
            Numbers of the arms, ``[B]``.

        Raises:
            OptionError: The contexts have another shape, or are not finite.
        """
        drawn = self.posterior.draw(self._contexts(contexts), self._generator)
        chosen: NDArray[np.int64] = drawn.argmax(dim=1).numpy()
        return chosen

    def learn(self, contexts: NDArray[np.floating], arms: NDArray[np.integer], rewards: NDArray[np.floating]) -> None:
        """Learn from the rewards of decisions, this agent's or any other's.

        Args:
            contexts: ``[B, D]``.
            arms: Chosen arms, ``[B]``.
            rewards: Their rewards, ``[B]``, within the range of the options.

        Raises:
            OptionError: The shapes do not match, an arm does not exist, or a reward is outside of the range.
            FitError: The loss became NaN or infinite.
        """
        rows = self._contexts(contexts)
        arms, rewards = np.asarray(arms), np.asarray(rewards, dtype=np.float64)
        if arms.shape != (len(rows),) or rewards.shape != (len(rows),):
            raise OptionError(
                f"{len(rows)} contexts need as many arms and rewards, not shapes {arms.shape} and {rewards.shape}"
            )
        if len(rows) == 0:
            return
        count, options = self.posterior.arms, self._options
        if not np.issubdtype(arms.dtype, np.integer) or arms.min() < 0 or arms.max() >= count:
            raise OptionError(f"arms are whole numbers from 0 to {count - 1}")
        outside = ~((options.lowest_reward <= rewards) & (rewards <= options.highest_reward))
        if outside.any():
            place = int(outside.argmax())
            raise OptionError(
                f"reward {rewards[place]:g} of row {place} is outside of the range from {options.lowest_reward:g} to "
                f"{options.highest_reward:g}; give the agent the limits of all possible rewards"
            )
        self.posterior.learn(
            rows, torch.from_numpy(arms.astype(np.int64)), torch.from_numpy(rewards.astype(np.float32))
        )

    def expected_rewards(self, contexts: NDArray[np.floating]) -> NDArray[np.float32]:
        """Expected reward of every arm by the mu-only networks, ``[B, A]``.

        Args:
            contexts: ``[B, D]``.

        Raises:
            OptionError: The contexts have another shape, or are not finite.
        """
        expected: NDArray[np.float32] = self.posterior.mean(self._contexts(contexts)).numpy()
        return expected

    def _contexts(self, contexts: NDArray[np.floating]) -> torch.Tensor:
        given = np.asarray(contexts)
        if given.ndim != 2 or given.shape[1] != self._inputs:
            raise OptionError(f"contexts have the shape [rows, {self._inputs}], not {list(given.shape)}")
        rows = np.ascontiguousarray(given, dtype=np.float32)
        if not np.isfinite(rows).all():
            raise OptionError("contexts must be finite numbers")
        return torch.from_numpy(rows)
