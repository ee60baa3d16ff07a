"""The rewards so far, and minibatches of them in which surprising rewards come more often.

Once an agent has learned, nearly all rewards are as expected and say nothing new. A uniform minibatch then hardly ever
has one of the few that do. So half of each minibatch is drawn in proportion to the surprise, the distance between a
reward and what was expected of it. Weights undo this in the mean, ``1 / (N p)`` for a row of probability p: the
gradient has the same expectation as with uniform minibatches, and a smaller variance (importance sampling; Zhao & Zhang
2015, "Stochastic optimization with importance sampling for regularized loss minimization", section 3).
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["Experience"]

UNIFORM_SHARE = 0.5
"""Share of the minibatches that is drawn uniformly, so that no weight is above 2."""
FIRST_CAPACITY = 1024


class Experience:
    """Contexts, chosen arms, rewards and surprises of N decisions.

    Attributes:
        counts: Decisions for each arm, ``[A]``.
    """

    def __init__(self, inputs: int, arms: int) -> None:
        """Begin without a decision.

        Args:
            inputs: D.
            arms: A.
        """
        self._contexts = torch.empty(FIRST_CAPACITY, inputs)
        self._shares = torch.empty(FIRST_CAPACITY)
        self._surprises = torch.empty(FIRST_CAPACITY)
        self._rows_of_arm = torch.empty(arms, FIRST_CAPACITY, dtype=torch.long)
        self._arms = torch.empty(FIRST_CAPACITY, dtype=torch.long)
        self.counts = torch.zeros(arms, dtype=torch.long)

    def __len__(self) -> int:
        return int(self.counts.sum())

    def add(self, contexts: Tensor, arms: Tensor, shares: Tensor) -> Tensor:
        """Add B decisions; they are as surprising as can be until `remember` says better.

        Args:
            contexts: ``[B, D]``.
            arms: Chosen arms, ``[B]``.
            shares: Rewards as shares of their range, ``[B]``.

        Returns:
            Their numbers, ``[B]``.
        """
        first, count = len(self), len(contexts)
        self._reserve(first + count)
        new = slice(first, first + count)
        self._contexts[new], self._shares[new], self._arms[new] = contexts, shares, arms
        self._surprises[new] = 1.0
        numbers = torch.arange(first, first + count)
        for arm in arms.unique().tolist():
            of_arm = numbers[arms == arm]
            begin = int(self.counts[arm])
            self._rows_of_arm[arm, begin : begin + len(of_arm)] = of_arm
            self.counts[arm] += len(of_arm)
        return numbers

    def rows(self, numbers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Contexts, arms and shares of decisions by number."""
        return self._contexts[numbers], self._arms[numbers], self._shares[numbers]

    def remember(self, numbers: Tensor, surprises: Tensor) -> None:
        """Set the surprises, not negative, of decisions by number."""
        self._surprises[numbers] = surprises

    def minibatches(
        self, steps: int, members: int, batch_size: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Rows of each step, drawn with replacement.

        Args:
            steps: T.
            members: Networks of each arm, E; each has minibatches of its own.
            batch_size: B.
            generator: Source of the draws.

        Returns:
            Numbers of the rows and their weights, ``[T, A * E, B]`` each, arm by arm. The weights of an arm without
            decisions are zero.
        """
        arms = len(self.counts)
        numbers = torch.zeros(steps, arms, members * batch_size, dtype=torch.long)
        weights = torch.zeros(steps, arms, members * batch_size)
        for arm, count in enumerate(self.counts.tolist()):
            if count == 0:
                continue
            rows = self._rows_of_arm[arm, :count]
            probabilities = self.probabilities(rows)
            places = torch.rand(steps, members * batch_size, generator=generator, dtype=torch.float64)
            chosen = torch.searchsorted(probabilities.cumsum(0), places).clamp_max_(count - 1)
            numbers[:, arm] = rows[chosen]
            weights[:, arm] = (1.0 / (count * probabilities[chosen])).float()
        shape = (steps, arms * members, batch_size)
        return numbers.view(shape), weights.view(shape)

    def probabilities(self, rows: Tensor) -> Tensor:
        """Probability of each of an arm's rows in a minibatch, ``[rows]``, double precision; they sum to 1."""
        surprises = self._surprises[rows].double()
        total = float(surprises.sum())
        uniform = torch.full_like(surprises, 1.0 / len(rows))
        if total <= 0.0:
            return uniform
        return UNIFORM_SHARE * uniform + (1.0 - UNIFORM_SHARE) / total * surprises

    def _reserve(self, count: int) -> None:
        """Make room for so many decisions, at least twice as many as before."""
        capacity = len(self._shares)
        if count <= capacity:
            return
        more = max(count, 2 * capacity) - capacity
        for name in ("_contexts", "_shares", "_surprises", "_arms"):
            old = getattr(self, name)
            setattr(self, name, torch.cat((old, old.new_empty(more, *old.shape[1:]))))
        old = self._rows_of_arm
        self._rows_of_arm = torch.cat((old, old.new_empty(len(old), more)), dim=1)
