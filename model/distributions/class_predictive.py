"""The predictive distribution of a class: the average over draws of the class probabilities.

Each draw of the weights gives probabilities of its own. Their mean is the *pooled* probability, the posterior
predictive. Its entropy has two parts (Houlsby et al. 2011, "Bayesian active learning for classification and preference
learning"): ``H(mean_s p_s) = I + mean_s H(p_s)``. I is the mutual information of class and weights, the epistemic part.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def entropy(probabilities: Tensor, dim: int) -> Tensor:
    """Entropy in nats along a dimension of probabilities; a probability of 0 adds nothing."""
    terms: Tensor = torch.special.entr(probabilities)
    return terms.sum(dim=dim)


def share_of_entropy(pooled: Tensor, expected: Tensor) -> Tensor:
    """Mutual information over the entropy, ``[B]``, from 0 to 1.

    Args:
        pooled: Mean probabilities over draws, ``[B, C]``.
        expected: Mean over draws of their entropies, ``[B]``.
    """
    total = entropy(pooled, dim=1)
    return ((total - expected) / total.clamp_min(1e-12)).clamp(0.0, 1.0)


STEPS = 12
"""Steps of the proportional fitting of draws to their mean: what is left after them is made up exactly."""
CLOSE = 1e-9
"""Relative difference of mean and goal from which on no further step is made."""


def draws_with_mean(draws: Tensor, goal: Tensor) -> Tensor:
    """Class probabilities of draws, changed such that their mean is a given one.

    The logits of all draws of a row are shifted by one vector, found by iterative proportional fitting: multiply by
    ``goal / mean``, normalise each draw, and again. So draws keep their differences in logits. Draws near 0 and 1 need
    more steps than `STEPS`; what is left then is made up by drawing all draws towards the goal, in a straight line.

    Args:
        draws: ``[S, C, B]``, sums of 1 over C.
        goal: ``[C, B]``, positive, sums of 1 over C.

    Returns:
        ``[S, C, B]``, with ``goal`` as their mean.
    """
    shifted, mean = draws, draws.mean(dim=0)
    for _ in range(STEPS):
        ratio = goal / mean.clamp_min(torch.finfo(mean.dtype).tiny)
        if float((ratio - 1.0).abs().amax()) < CLOSE:
            break
        shifted = shifted * ratio
        shifted = shifted / shifted.sum(dim=1, keepdim=True)
        mean = shifted.mean(dim=0)
    # goal + c (draw - mean) has the right mean, and no negative entry for c up to the least of goal / mean.
    reach = (goal / mean.clamp_min(torch.finfo(mean.dtype).tiny)).amin(dim=0).clamp_max(1.0)
    return (goal + reach * (shifted - mean)).clamp_min(0.0)  # rounding may leave less than 0


@dataclass(frozen=True, slots=True)
class MatchedDraws:
    """Draws whose mean is the answer's probability.

    Attributes:
        draws: Class probabilities, ``[B, C, S]``.
        epistemic_std: Their standard deviation over draws, ``[B, C]``.
        expected_entropy: The mean over draws of their entropies, ``[B]``.
    """

    draws: Tensor
    epistemic_std: Tensor
    expected_entropy: Tensor


@dataclass(frozen=True, slots=True)
class ClassPredictive:
    """Class probabilities of B rows under S draws; float64.

    Attributes:
        draws: ``[S, C, B]``: rows last, as the forward pass lays them out.
        shares: Share of each class among the training rows, ``[C]``, positive, of sum 1.
        least: Least weight of the shares in an answer: no probability is 0 or 1.
    """

    draws: Tensor
    shares: Tensor
    least: float

    @classmethod
    def of(cls, log_probabilities: Tensor, shares: Tensor, least: float) -> ClassPredictive:
        """From the log probabilities of each draw, ``[S, B, C]``."""
        return cls(log_probabilities.double().exp().transpose(1, 2), shares, least)

    @property
    def means(self) -> Tensor:
        """Mean probabilities over draws, ``[B, C]``."""
        return self.draws.mean(dim=0).T

    @property
    def entropies(self) -> Tensor:
        """Mean over draws of their entropies, nats, ``[B]``."""
        return entropy(self.draws, dim=1).mean(dim=0)

    def pool(self) -> Tensor:
        """Return the mean over draws, with the least weight of the shares, ``[B, C]``."""
        return torch.lerp(self.means, self.shares, self.least)

    def epistemic_share(self) -> Tensor:
        """Mutual information over the entropy, ``[B]``, from 0 to 1."""
        return share_of_entropy(self.means, self.entropies)

    def match_mean(self, goal: Tensor) -> MatchedDraws:
        """Return the draws changed such that their mean is ``goal``, ``[B, C]``; see `draws_with_mean`."""
        draws = draws_with_mean(self.draws, goal.T)
        spread = (draws - goal.T).square().mean(dim=0).sqrt().T
        return MatchedDraws(draws.permute(2, 1, 0), spread, entropy(draws, dim=1).mean(dim=0))
