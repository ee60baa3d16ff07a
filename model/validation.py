"""Encoded rows, who has not seen them, and how well a fit predicts those."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from model.predictive import Predictive
from model.splits import folds_of

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        folds: For each row its fold, ``[N]``: of F folds member m is kept from fold ``m mod F``. -1: no member is.
            None: every member sees all.
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
        folds = folds_of(members)
        lists = [(self.folds != member % folds).nonzero().squeeze(1) for member in range(members)]
        shortest = min(len(rows) for rows in lists)
        return torch.stack([rows[:shortest] for rows in lists])

    def judged_by(self, members: int, size: int) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Numbers of the rows that each member judges, in chunks of at most ``size`` rows.

        Without folds all members judge all rows: ``[B]`` and None. With F folds each judges its own, so that no
        member reads rows that it has seen: ``[F, B]``, and which of them count, ``[F, B]``; the shorter lists are
        filled up.
        """
        if self.folds is None:
            for numbers in torch.arange(len(self), device=self.targets.device).split(size):
                yield numbers, None
            return
        lists = [(self.folds == fold).nonzero().squeeze(1) for fold in range(folds_of(members))]
        numbers = torch.nn.utils.rnn.pad_sequence(lists, batch_first=True)
        lengths = torch.tensor([len(rows) for rows in lists], device=numbers.device)
        there = torch.arange(numbers.shape[1], device=numbers.device) < lengths.unsqueeze(1)
        width = max(1, size // members)
        yield from zip(numbers.split(width, dim=1), there.split(width, dim=1), strict=True)


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
    with a fold is judged by the members kept from it alone.
    """
    generator = torch.Generator(rows.features.device).manual_seed(seed)
    members, total = network.architecture.members, 0.0
    with torch.no_grad():
        for numbers, there in rows.judged_by(members, 8192):
            features, targets = _for_members(rows.features[numbers], rows.targets[numbers], members)
            outputs = network(features, generator, draws)
            observed = targets.repeat(*[1] * (targets.dim() - 1), draws)
            densities = likelihood.log_density(outputs, observed).double()
            densities = _draws_of_rows(densities.reshape(len(densities), draws, -1), there)
            mixture = torch.logsumexp(densities, dim=0) - math.log(len(densities))
            mixture = mixture.clamp_min(LEAST_LOG_DENSITY)
            total -= float(mixture.sum())
    return total / len(rows)


def _for_members(features: Tensor, targets: Tensor, members: int) -> tuple[Tensor, Tensor]:
    """Rows of F folds, ``[F, B, …]``, for the members in their order; rows without folds as they are."""
    if targets.dim() == 1:
        return features, targets
    times = members // len(targets)
    return features.repeat(times, 1, 1), targets.repeat(times, 1)


def _draws_of_rows(values: Tensor, there: Tensor | None) -> Tensor:
    """What members and draws say of each row, as one mixture a row.

    Args:
        values: ``[M, S, B, …]``.
        there: None: all members speak of the same rows. With F folds member m speaks of those of fold ``m mod F``,
            and this says which of them count, ``[F, B]``.

    Returns:
        ``[M S, B, …]``, or ``[(M / F) S, n, …]`` for the n rows that count, fold by fold.
    """
    if there is None:
        return values.flatten(0, 1)
    values = values.unflatten(0, (-1, len(there))).movedim(1, 2)
    return values.flatten(0, 1)[:, there]


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
        rows: The rows; one with a fold is judged by the members kept from it alone.
        targets: Their targets, ``[N]``, float64, the target's unit.
        standardised: How the network learned the target.
        seed: Of the draws.
        draws: S, of each member.

    Returns:
        Nats per row, each row counting at most as much as in `mixture_nll`, and the CRPS.
    """
    generator = torch.Generator().manual_seed(seed + 4)
    members, nll, crps = network.architecture.members, 0.0, 0.0
    floor = LEAST_LOG_DENSITY - math.log(float(targets.std(correction=0)) or standardised.scale)
    with torch.no_grad():
        for numbers, there in rows.judged_by(members, 1024):
            observed = targets[numbers] if there is None else targets[numbers][there]
            features, _ = _for_members(rows.features[numbers], rows.targets[numbers], members)
            parts = likelihood.components(network(features, generator, draws))
            count = numbers.shape[-1]

            def of_draws(values: Tensor, count: int = count, there: Tensor | None = there) -> Tensor:
                """``[S, B, K]``, of the members that have not seen the row, or of all."""
                values = values.expand(members, draws * count, -1)
                return _draws_of_rows(values.reshape(members, draws, count, -1), there)

            means, noise = (of_draws(part).double() * standardised.scale for part in parts[:2])
            weights = None if parts[2] is None else of_draws(parts[2]).double()
            predictive = Predictive.of(means + standardised.location, noise, weights, standardised.transform)
            nll -= float(predictive.log_density(observed).clamp_min(floor).sum())
            crps += float(predictive.crps(observed).sum())
    return nll / len(rows), crps / len(rows)
