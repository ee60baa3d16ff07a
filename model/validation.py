"""Encoded rows, who has not seen them, and how well a fit predicts those."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from model.likelihoods import log_density

if TYPE_CHECKING:
    from model.likelihoods import FixedNoise, HeteroscedasticNoise, HomoscedasticNoise
    from model.networks import BayesianNetwork

__all__ = ["LEAST_LOG_DENSITY", "Rows", "mixture_nll"]

LEAST_LOG_DENSITY = -15.0
"""What one validation row can count at most against a fit, nats: that of 5.3 standard deviations off.

One cell with a slipped decimal point may lie thousands of noise widths off, and would decide alone when to stop and
which noise to keep."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Encoded rows and standardised targets.

    Attributes:
        features: ``[N, D]``, float32.
        targets: ``[N]``, float32.
        folds: For each row the member that is kept from it, ``[N]``; -1: none. None: every member sees all.
    """

    features: Tensor
    targets: Tensor
    folds: Tensor | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def to(self, device: torch.device) -> Rows:
        """The same rows on another device."""
        folds = None if self.folds is None else self.folds.to(device)
        return Rows(self.features.to(device), self.targets.to(device), folds)

    def seen_by(self, members: int) -> Tensor:
        """Numbers of the rows that each member sees, ``[M, n]``, or ``[1, N]`` if all see all.

        Members see equally many: where folds differ in size, the last rows of the longer lists are passed over.
        """
        if self.folds is None:
            return torch.arange(len(self), device=self.targets.device).unsqueeze(0)
        lists = [(self.folds != member).nonzero().squeeze(1) for member in range(members)]
        shortest = min(len(rows) for rows in lists)
        return torch.stack([rows[:shortest] for rows in lists])


def mixture_nll(
    network: BayesianNetwork,
    likelihood: FixedNoise | HomoscedasticNoise | HeteroscedasticNoise,
    rows: Rows,
    draws: int,
    seed: int,
) -> float:
    """Negative log likelihood of the mixture over ``draws`` draws a row and all members, nats per row.

    No row counts for more than 15 nats, see `LEAST_LOG_DENSITY`.

    The same seed gives the same noise at every call, so that two sets of parameters are compared like with
    like. Local reparameterisation is exact here: a density of single rows needs no draw shared by rows. A row
    with a fold is judged by the member kept from it alone.
    """
    generator = torch.Generator(rows.features.device).manual_seed(seed)
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(rows), 8192):
            features, targets = rows.features[start : start + 8192], rows.targets[start : start + 8192]
            outputs = network(features, generator, draws)
            densities = log_density(likelihood, outputs, targets.repeat(draws)).double()
            densities = densities.reshape(-1, draws, len(targets))
            if rows.folds is not None:
                own = rows.folds[start : start + 8192]
                densities = densities[own, :, torch.arange(len(own), device=own.device)].T
            components = densities.reshape(-1, len(targets))  # members and draws alike
            mixture = torch.logsumexp(components, dim=0) - math.log(len(components))
            total -= float(mixture.clamp_min(LEAST_LOG_DENSITY).sum())
    return total / len(rows)
