"""Options of a bandit agent."""

from __future__ import annotations

import math
from dataclasses import dataclass

from murho.model.errors import OptionError

__all__ = ["BanditOptions"]


@dataclass(frozen=True, slots=True)
class BanditOptions:
    """Options of `model.bandits.thompson_sampling.ThompsonSampling`.

    The defaults were chosen on the mushroom bandit (docs/experiments.md).

    Attributes:
        lowest_reward: No reward is below it.
        highest_reward: No reward is above it.
        hidden: Width of each hidden layer of an arm's network. The inputs also reach the output directly, so that
            linear effects are learned from few rewards.
        activation: Activation between the layers.
        members: Networks of each arm, E. Each decision draws from one of them.
        context_length: Typical length (square root of the sum of squares) of a context; by default the square root of
            the number of inputs, as for standardised inputs. One-hot columns of F features have the square root of F.
            The prior of the first weights is divided by it.
        linear_sigma: Prior standard deviation of the linear part of a reward's logit.
        hidden_sigma: Prior standard deviation of a hidden unit before its activation, and of the hidden units' part of
            the logit, for units of size 1.
        temperature: Factor of the KL. The factorised posterior counts the doubt about features that occur together
            once for each of them; a factor well below 1 makes up for it. The prior of what was never seen keeps its
            width.
        learning_rate: Learning rate at the start of an update; it falls along a cosine.
        batch_size: Rows of each arm in a step, B.
        steps: Optimiser steps of an update.
        seed: Seed of the initial means, the minibatches and the draws.
    """

    lowest_reward: float
    highest_reward: float
    hidden: tuple[int, ...] = (20,)
    activation: str = "relu"
    members: int = 1
    context_length: float | None = None
    linear_sigma: float = 4.0
    hidden_sigma: float = 1.0
    temperature: float = 0.03
    learning_rate: float = 0.02
    batch_size: int = 64
    steps: int = 60
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.lowest_reward) and math.isfinite(self.highest_reward)):
            raise OptionError("lowest_reward and highest_reward must be finite numbers")
        if not self.lowest_reward < self.highest_reward:
            raise OptionError(
                f"lowest_reward must be below highest_reward, not {self.lowest_reward!r} and {self.highest_reward!r}"
            )
        for name in ("linear_sigma", "hidden_sigma", "temperature", "learning_rate"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise OptionError(f"{name} must be a positive number, not {value!r}")
        if self.context_length is not None and not (math.isfinite(self.context_length) and self.context_length > 0.0):
            raise OptionError(f"context_length must be a positive number, not {self.context_length!r}")
        for name in ("members", "batch_size", "steps"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.seed < 2**63:
            raise OptionError(f"seed must lie between 0 and 2^63 - 1, not {self.seed}")
