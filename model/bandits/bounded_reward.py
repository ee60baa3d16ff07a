"""Rewards between two limits, as shares of the distance between them.

A share y in [0, 1] has the likelihood of a Bernoulli trial, ``y log p + (1 - y) log(1 - p)``, with the expected share p
as its only parameter. For 0 and 1 it is exact. For shares in between it is a quasi-likelihood: its mean is right for
any distribution of the share (Papke & Wooldridge 1996, equation 5), and its variance p (1 - p) is the largest that a
share of mean p can have. Agrawal & Goyal (2012, algorithm 2) justify Thompson sampling with it, by tossing a coin of
probability y. So no noise has to be learned, and a reward that is always the same is soon certain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional

from murho.model.likelihoods.bernoulli import Bernoulli

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BoundedReward"]


class BoundedReward(Bernoulli):
    """``E[share] = sigmoid(output)``, for targets in [0, 1]."""

    kind = "bounded-reward"

    def log_density(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The quasi log likelihood, ``[M, B]``; see `model.likelihoods.likelihood.Likelihood.log_density`."""
        logit = outputs[..., 0]
        return targets * logit - functional.softplus(logit)
