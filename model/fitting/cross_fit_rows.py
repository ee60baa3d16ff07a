"""Encoded rows with their cross-fitting folds, and scores of a fit on rows that a member has not seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from murho.model.data.splits import folds_of, partition_of
from murho.model.distributions.ensemble_extrapolation import ensemble_score
from murho.model.distributions.predictive import Predictive

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from murho.model.distributions.transforms import Standardisation
    from murho.model.likelihoods.likelihood import Likelihood
    from murho.model.networks.bayesian_network import BayesianNetwork

__all__ = ["LEAST_LOG_DENSITY", "Rows", "held_out_scores", "mixture_nll"]

LEAST_LOG_DENSITY = -15.0
"""Least log density of a validation row that counts, nats: that of a target 5.3 standard deviations off.

One cell with a slipped decimal point may lie thousands of standard deviations off. It would decide alone when to stop
and which noise to keep."""

DRAWS = 32


@dataclass(frozen=True, slots=True)
class Rows:
    """Encoded rows and standardised targets.

    Attributes:
        features: ``[N, D]``, float32.
        targets: ``[N]``, float32.
        folds: For each row its fold in each of P partitions, ``[P, N]``: of F folds member m is kept from fold
            ``m mod F`` of its partition, see `model.data.splits.partition_of`. None: every member sees all.
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
        kept_from = self._kept_from(members)
        if kept_from is None:
            return torch.arange(len(self), device=self.targets.device).unsqueeze(0)
        lists = [(~some).nonzero().squeeze(1) for some in kept_from]
        shortest = min(len(rows) for rows in lists)
        return torch.stack([rows[:shortest] for rows in lists])

    def judges(self, members: int) -> int:
        """The number of judges of a row: of M members those that have not seen it, or all without folds."""
        return members if self.folds is None else members // folds_of(members)

    def judged_by(self, members: int, size: int) -> Iterator[tuple[Tensor, Judgements]]:
        """Numbers of the rows that each member judges, in chunks of about ``size`` rows in all, and their places.

        Without folds all members judge all rows: ``[B]``. With folds each member judges the rows that it has not seen:
        ``[M, B]``, the shorter lists filled up.
        """
        kept_from, device = self._kept_from(members), self.targets.device
        if kept_from is None:
            for numbers in torch.arange(len(self), device=device).split(size):
                there = torch.ones((members, len(numbers)), dtype=torch.bool, device=device)
                judge = torch.arange(members, device=device).unsqueeze(1).expand_as(there)
                yield numbers, Judgements(there, judge[there], numbers.expand_as(there)[there])
            return
        lists = [some.nonzero().squeeze(1) for some in kept_from]
        rows = torch.nn.utils.rnn.pad_sequence(lists, batch_first=True)
        lengths = torch.tensor([len(rows) for rows in lists], device=device)
        filled = torch.arange(rows.shape[1], device=device) < lengths.unsqueeze(1)
        judges = (torch.arange(members, device=device) // folds_of(members)).unsqueeze(1)
        width = max(1, size // members)
        for numbers, there in zip(rows.split(width, dim=1), filled.split(width, dim=1), strict=True):
            yield numbers, Judgements(there, judges.expand_as(there)[there], numbers[there])

    def _kept_from(self, members: int) -> list[Tensor] | None:
        """For each member which rows it has not seen, ``[N]``; None without folds."""
        if self.folds is None:
            return None
        count, partitions = folds_of(members), len(self.folds)
        return [
            self.folds[partition_of(member, members, partitions)] == member % count
            for member in range(members)
        ]


@dataclass(frozen=True, slots=True)
class Judgements:
    """Where the values of a chunk of `Rows.judged_by` belong among those of all rows.

    Attributes:
        there: Which entries of ``[M, B]`` are rows to judge, and not filled up; n of them.
        judges: The place of the member among the judges of the row, ``[n]``.
        rows: The number of the row, ``[n]``.
    """

    there: Tensor
    judges: Tensor
    rows: Tensor

    def put(self, values: Tensor, into: Tensor) -> None:
        """Writes values ``[M, B, …]`` to their places in ``[J, N, …]``, for J judges."""
        into[self.judges, self.rows] = values[self.there].to(into)


def mixture_nll(
    network: BayesianNetwork,
    likelihood: Likelihood,
    rows: Rows,
    draws: int,
    seed: int,
) -> float:
    """Negative log likelihood of the mixture over ``draws`` draws a row and all members, nats per row.

    No row counts for more than 15 nats, see `LEAST_LOG_DENSITY`. Where several members, but not all, have not seen a
    row, it is extrapolated from them to all, see `model.distributions.ensemble_extrapolation.ensemble_score`.

    The same seed gives the same noise at every call, so that two sets of parameters compare fairly. Local
    reparameterisation is exact here, as the density of a single row needs no draw shared by rows. Only members that
    have not seen a row judge it.
    """
    generator = torch.Generator(rows.features.device).manual_seed(seed)
    members, judges = network.architecture.members, rows.judges(network.architecture.members)
    single = torch.empty((judges, len(rows)), dtype=torch.float64, device=rows.features.device)
    with torch.no_grad():
        for numbers, places in rows.judged_by(members, 8192):
            outputs = network(rows.features[numbers], generator, draws)
            targets = rows.targets[numbers]
            observed = targets.repeat(*[1] * (targets.dim() - 1), draws)
            densities = likelihood.log_density(outputs, observed).double()
            densities = densities.reshape(len(densities), draws, -1)
            places.put(torch.logsumexp(densities, dim=1) - math.log(draws), single)
    mixture = torch.logsumexp(single, dim=0) - math.log(judges)
    alone, together = (-float(part.clamp_min(LEAST_LOG_DENSITY).mean()) for part in (single, mixture))
    return ensemble_score(alone, together, judges, members)


def held_out_scores(
    network: BayesianNetwork,
    likelihood: Likelihood,
    rows: Rows,
    targets: Tensor,
    standardisation: Standardisation,
    *,
    seed: int,
    draws: int = DRAWS,
) -> tuple[float, float]:
    """Negative log likelihood and CRPS of the mixture in the target's unit, so that fits of any transform compare.

    Both are extrapolated to all members where several, but not all, have not seen a row, see
    `model.distributions.ensemble_extrapolation.ensemble_score`.

    Args:
        network: The fit, on the CPU.
        likelihood: Its observation model.
        rows: The rows; only members that have not seen a row judge it.
        targets: Their targets, ``[N]``, float64, the target's unit.
        standardisation: What the network learned of the target.
        seed: Of the draws.
        draws: S of a row, shared among its judges.

    Returns:
        Nats per row, each row counting at most as much as in `mixture_nll`, and the CRPS.
    """
    generator = torch.Generator().manual_seed(seed + 4)
    members, judges = network.architecture.members, rows.judges(network.architecture.members)
    draws = max(1, draws // judges)
    floor = LEAST_LOG_DENSITY - math.log(float(targets.std(correction=0)) or standardisation.scale)
    kept: list[Tensor] | None = None
    with torch.no_grad():
        for numbers, places in rows.judged_by(members, 1024):
            parts = likelihood.components(network(rows.features[numbers], generator, draws))
            found = [
                part.expand(members, draws * numbers.shape[-1], -1).unflatten(1, (draws, -1)).movedim(1, 2)
                for part in parts
                if part is not None
            ]
            if kept is None:
                kept = [torch.empty(judges, len(rows), *part.shape[2:]) for part in found]
            for part, into in zip(found, kept, strict=True):
                places.put(part, into)
        alone, together = torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
        for some in torch.arange(len(rows)).split(1024):
            mixtures = [part[:, some].double().movedim(2, 1) for part in kept or ()]
            observed = targets[some]
            together += _scores(mixtures, observed, standardisation, floor)
            for judge in range(judges if judges > 1 else 0):
                alone += (
                    _scores([part[judge : judge + 1] for part in mixtures], observed, standardisation, floor)
                    / judges
                )
    nll, crps = (
        ensemble_score(single, mixed, judges, members) / len(rows)
        for single, mixed in zip(alone.tolist(), together.tolist(), strict=True)
    )
    return nll, crps


def _scores(
    mixtures: Sequence[Tensor], targets: Tensor, standardisation: Standardisation, floor: float
) -> Tensor:
    """NLL and CRPS, summed over rows, ``[2]``.

    Args:
        mixtures: Means, noise and perhaps weights of the components in standardised units, ``[J, S, B, K]`` each.
        targets: ``[B]``.
        standardisation: How they were learned.
        floor: The least log density that counts.
    """
    means, noise, *weights = (part.flatten(0, 1) for part in mixtures)
    predictive = Predictive.of(
        means * standardisation.scale + standardisation.location,
        noise * standardisation.scale,
        weights[0] if weights else None,
        standardisation.transform,
    )
    nll = -predictive.log_density(targets).clamp_min(floor)
    return torch.stack((nll.sum(), predictive.crps(targets).sum()))
