"""Encoded rows, who has not seen them, and how well a fit predicts those."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from model.predictive import Predictive

if TYPE_CHECKING:
    from model.likelihoods import Likelihood
    from model.networks import BayesianNetwork
    from model.preparation import Standardised

__all__ = ["LEAST_LOG_DENSITY", "Rows", "held_out_scores", "mixture_nll"]

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
    likelihood: Likelihood,
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
            densities = likelihood.log_density(outputs, targets.repeat(draws)).double()
            densities = densities.reshape(-1, draws, len(targets))
            if rows.folds is not None:
                own = rows.folds[start : start + 8192]
                densities = densities[own, :, torch.arange(len(own), device=own.device)].T
            components = densities.reshape(-1, len(targets))  # members and draws alike
            mixture = torch.logsumexp(components, dim=0) - math.log(len(components))
            total -= float(mixture.clamp_min(LEAST_LOG_DENSITY).sum())
    return total / len(rows)


def held_out_scores(
    network: BayesianNetwork,
    likelihood: Likelihood,
    rows: Rows,
    targets: Tensor,
    standardised: Standardised,
    *,
    seed: int,
    draws: int = 32,
) -> tuple[float, float]:
    """Negative log likelihood and CRPS of the mixture in the target's unit: fits of transformed targets compare.

    Args:
        network: The fit, on the CPU.
        likelihood: Its observation model.
        rows: The rows; one with a fold is judged by the member kept from it alone.
        targets: Their targets, ``[N]``, float64, the target's unit.
        standardised: How the network learned the target.
        seed: Of the draws.
        draws: S, of each member.

    Returns:
        Nats per row, each row counting at most as much as in `mixture_nll`, and the CRPS.
    """
    generator = torch.Generator().manual_seed(seed + 4)
    nll = crps = 0.0
    floor = LEAST_LOG_DENSITY - math.log(float(targets.std(correction=0)) or standardised.scale)
    with torch.no_grad():
        for start in range(0, len(rows), 1024):
            some = slice(start, start + 1024)
            outputs = network(rows.features[some], generator, draws)
            parts = likelihood.components(outputs)
            observed = targets[some]

            def of_draws(values: Tensor, observed: Tensor = observed, some: slice = some) -> Tensor:
                """``[S, B, K]``, of the member that has not seen the row, or of all."""
                values = values.expand(network.architecture.members, draws * len(observed), -1)
                values = values.reshape(len(values), draws, len(observed), values.shape[-1])
                if rows.folds is None:
                    return values.flatten(0, 1)
                own = rows.folds[some]
                return values[own, :, torch.arange(len(own))].transpose(0, 1)

            means, noise = (of_draws(part).double() * standardised.scale for part in parts[:2])
            weights = None if parts[2] is None else of_draws(parts[2]).double()
            predictive = Predictive.of(means + standardised.location, noise, weights, standardised.transform)
            nll -= float(predictive.log_density(observed).clamp_min(floor).sum())
            crps += float(predictive.crps(observed).sum())
    return nll / len(rows), crps / len(rows)
