"""Encoded rows with their cross-fitting folds, and scores of a fit on rows that a member has not seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from murho.model.data.splits import folds_of, partition_of
from murho.model.distributions.ensemble_extrapolation import ensemble_score
from murho.model.fitting.row_scorers import LEAST_LOG_DENSITY
from murho.model.networks.read_inputs import are_alike

if TYPE_CHECKING:
    from collections.abc import Iterator

    from murho.model.fitting.row_scorers import RowScorer
    from murho.model.likelihoods.likelihood import Likelihood
    from murho.model.networks.bayesian_network import BayesianNetwork

__all__ = [
    "DRAWS",
    "Rows",
    "SeenRows",
    "held_out_row_scores",
    "mixture_nll",
    "scores_of_judges",
]

DRAWS = 32
"""Draws per row of `held_out_row_scores`, divided among the judges of the row."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Encoded rows and standardised targets.

    Attributes:
        features: ``[N, D]``, float32.
        targets: ``[N]``, float32.
        folds: Fold of each row in each of P partitions, ``[P, N]``. Of F folds, member m does not see fold ``m mod F``
            of its partition (`model.data.splits.partition_of`). None: every member sees all rows.
        forward: Whether folds are blocks in time: member m then does not see later folds either.
        weights: Weight of each row in the loss and in scores, ``[N]``, float32, of mean 1 over the training rows; None:
            all are 1. A weight says how important a row is, not how often it was seen.
    """

    features: Tensor
    targets: Tensor
    folds: Tensor | None = None
    forward: bool = False
    weights: Tensor | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def to(self, device: torch.device) -> Rows:
        """The same rows on another device."""
        folds, weights = (None if part is None else part.to(device) for part in (self.folds, self.weights))
        return Rows(self.features.to(device), self.targets.to(device), folds, self.forward, weights)

    def mean(self, values: Tensor) -> Tensor:
        """The weighted mean of a value per row, ``[N]`` or ``[…, N]``."""
        if self.weights is None:
            return values.mean(dim=-1)
        weights = self.weights.to(values)
        return (values * weights).sum(dim=-1) / weights.sum()

    def seen_by(self, members: int) -> SeenRows:
        """The rows that each member sees."""
        if self.folds is None:
            return SeenRows(torch.arange(len(self), device=self.targets.device).unsqueeze(0), (len(self),))
        lists = []
        for folds, fold in self._folds_of(members):
            seen = folds < fold if self.forward else folds != fold
            lists.append(seen.nonzero().squeeze(1))
        return SeenRows(torch.nn.utils.rnn.pad_sequence(lists, batch_first=True), tuple(len(rows) for rows in lists))

    def judges(self, members: int) -> int:
        """Number of judges of a row, J: of M members those that have not seen the row; all M without folds."""
        return members if self.folds is None else members // folds_of(members)

    def judged_by(self, members: int, size: int) -> Iterator[tuple[Tensor, Judgements]]:
        """Chunks of about ``size`` rows in all: the numbers of the rows that each member judges, and their places.

        Without folds all members judge all rows: ``[B]``. With folds each member judges the rows that it has not seen:
        ``[M, B]``, with shorter lists padded.
        """
        device = self.targets.device
        if self.folds is None:
            for numbers in torch.arange(len(self), device=device).split(size):
                valid = torch.ones((members, len(numbers)), dtype=torch.bool, device=device)
                judge = torch.arange(members, device=device).unsqueeze(1).expand_as(valid)
                yield numbers, Judgements(valid, judge[valid], numbers.expand_as(valid)[valid])
            return
        lists = [(folds == fold).nonzero().squeeze(1) for folds, fold in self._folds_of(members)]
        rows = torch.nn.utils.rnn.pad_sequence(lists, batch_first=True)
        lengths = torch.tensor([len(rows) for rows in lists], device=device)
        not_padding = torch.arange(rows.shape[1], device=device) < lengths.unsqueeze(1)
        judges = (torch.arange(members, device=device) // folds_of(members)).unsqueeze(1)
        width = max(1, size // members)
        for numbers, valid in zip(rows.split(width, dim=1), not_padding.split(width, dim=1), strict=True):
            yield numbers, Judgements(valid, judges.expand_as(valid)[valid], numbers[valid])

    def _folds_of(self, members: int) -> Iterator[tuple[Tensor, int]]:
        """For each member the folds of its partition, ``[N]``, and the fold that it judges; nothing without folds."""
        if self.folds is None:
            return
        count, partitions = folds_of(members), len(self.folds)
        for member in range(members):
            yield self.folds[partition_of(member, members, partitions)], member % count


@dataclass(frozen=True, slots=True)
class SeenRows:
    """The rows that each member learns from, and their order in an epoch.

    Folds may differ in size. Members take their steps together, so in an epoch a member with fewer rows sees some of
    them again, others in each epoch.

    Attributes:
        rows: Numbers of the rows, ``[M, n]``, with shorter lists padded; ``[1, N]`` if all members see all rows.
        counts: Number of rows of each member; n is the largest.
    """

    rows: Tensor
    counts: tuple[int, ...]

    @property
    def longest(self) -> int:
        """Number of rows in an epoch, n."""
        return self.rows.shape[1]

    @property
    def uneven(self) -> Tensor | None:
        """N over the number of rows of each member, ``[M]``; None if the numbers differ by one row at most."""
        if self.longest - min(self.counts) <= 1:
            return None
        return self.longest / torch.tensor(self.counts, dtype=torch.float32, device=self.rows.device).clamp_min(1.0)

    def shuffled(self, generator: torch.Generator) -> Tensor:
        """Numbers of the rows in a random order, ``[M, n]`` or ``[1, N]``.

        Args:
            generator: Source of the order, on the CPU.
        """
        keys = torch.rand(self.rows.shape, generator=generator)
        if min(self.counts) < self.longest:
            counts = torch.tensor(self.counts).clamp_min(1).unsqueeze(1)
            places = torch.arange(self.longest)
            order = keys.masked_fill(places >= counts, 2.0).argsort(dim=1).gather(1, places % counts)
        else:
            order = keys.argsort(dim=1)
        return self.rows.gather(1, order.to(self.rows.device))


@dataclass(frozen=True, slots=True)
class Judgements:
    """Places of the values of a chunk of `Rows.judged_by` in an array of all judges and rows.

    Attributes:
        valid: Mask of the entries of ``[M, B]`` that are rows to judge and not padding; n entries.
        judges: Index of the member among the judges of the row, ``[n]``.
        rows: Number of the row, ``[n]``.
    """

    valid: Tensor
    judges: Tensor
    rows: Tensor

    def put(self, values: Tensor, into: Tensor) -> None:
        """Write values ``[M, B, …]`` to their places in ``[J, N, …]``, for J judges."""
        into[self.judges, self.rows] = values[self.valid].to(into)


def _described(network: BayesianNetwork, judges: int) -> int:
    """Number of members that scores of so many judges are extrapolated to.

    Where the judges of a row are of two kinds that read different inputs, they differ more than two members of one
    kind. The line through one and both would promise too much, so scores stay those of the judges.
    """
    reads = None if network.reads is None else network.reads.squeeze(1).bool()
    return network.architecture.members if are_alike(reads) else judges


def mixture_nll(
    network: BayesianNetwork,
    likelihood: Likelihood,
    rows: Rows,
    draws: int,
    seed: int,
) -> float:
    """Negative log likelihood of the mixture over ``draws`` draws per row and all members, nats per row.

    Only members that have not seen a row judge it. If these are several members, but not all, the score is extrapolated
    to all members by `model.distributions.ensemble_extrapolation.ensemble_score`. No row adds more than 15 nats
    (`LEAST_LOG_DENSITY`).

    With weights, it is the weighted mean over rows.

    The same seed gives the same noise in every call, so two sets of parameters compare fairly. Local reparameterisation
    is exact here, because the density of a single row does not depend on draws that rows share.
    """
    generator = torch.Generator(rows.features.device).manual_seed(seed)
    members, judges = network.architecture.members, rows.judges(network.architecture.members)
    single = torch.empty((judges, len(rows)), dtype=torch.float64, device=rows.features.device)
    with torch.no_grad():
        for numbers, places in rows.judged_by(members, 2048):
            outputs = network(rows.features[numbers], generator, draws)
            targets = rows.targets[numbers]
            observed = targets.repeat(*[1] * (targets.dim() - 1), draws)
            densities = likelihood.log_density(outputs, observed).double()
            densities = densities.reshape(len(densities), draws, -1)
            places.put(torch.logsumexp(densities, dim=1) - math.log(draws), single)
    mixture = torch.logsumexp(single, dim=0) - math.log(judges)
    alone = -float(rows.mean(single.clamp_min(LEAST_LOG_DENSITY)).mean())
    together = -float(rows.mean(mixture.clamp_min(LEAST_LOG_DENSITY)))
    return ensemble_score(alone, together, judges, _described(network, judges))


def held_out_row_scores(
    network: BayesianNetwork,
    rows: Rows,
    targets: Tensor,
    scorer: RowScorer,
    *,
    seed: int,
    draws: int = DRAWS,
) -> Tensor:
    """Scores of the mixture of the judges of every row.

    They are extrapolated to all members if several, but not all, have not seen a row
    (`model.distributions.ensemble_extrapolation.ensemble_score`).

    Args:
        network: The fitted network, on the CPU.
        rows: The rows; only members that have not seen a row judge it.
        targets: Targets of the rows, ``[N]``, float64: the target's unit, or class indices.
        scorer: Scores the rows.
        seed: Seed of the draws.
        draws: Draws per row, S, divided among the judges of the row.

    Returns:
        Both scores of each row, ``[2, N]``, float64. If rows have weights, each row's scores are multiplied by its
        weight over the mean weight of these rows.
    """
    kept = _parts(network, rows, scorer, seed, draws)
    judges = len(kept[0])
    alone, together = torch.zeros((2, len(rows))).double(), torch.zeros((2, len(rows))).double()
    for block in torch.arange(len(rows)).split(1024):
        parts = [part[:, block].double().movedim(2, 1) for part in kept]
        together[:, block] = scorer.scores(parts, targets[block])
        for judge in range(judges if judges > 1 else 0):
            alone[:, block] += scorer.scores([part[judge : judge + 1] for part in parts], targets[block]) / judges
    # The extrapolation is linear, so it may be made row by row.
    scores = ensemble_score(alone, together, judges, _described(network, judges))
    return scores if rows.weights is None else scores * (rows.weights / rows.weights.mean()).to(scores)


def scores_of_judges(
    network: BayesianNetwork, rows: Rows, targets: Tensor, scorer: RowScorer, *, seed: int, draws: int = DRAWS
) -> Tensor:
    """First score of each judge alone, and of the mixture of all judges, weighted means over rows, ``[J + 1]``.

    The arguments are those of `held_out_row_scores`. Judge j is a member of partition j.
    """
    parts = [part.double().movedim(2, 1) for part in _parts(network, rows, scorer, seed, draws)]
    alone = [scorer.scores([part[judge : judge + 1] for part in parts], targets)[0] for judge in range(len(parts[0]))]
    return torch.stack([rows.mean(scores) for scores in (*alone, scorer.scores(parts, targets)[0])])


def _parts(network: BayesianNetwork, rows: Rows, scorer: RowScorer, seed: int, draws: int) -> list[Tensor]:
    """What a scorer takes of the outputs for every judge and row, ``[J, N, draws of a judge, …]`` each."""
    generator = torch.Generator().manual_seed(seed + 4)
    members, judges = network.architecture.members, rows.judges(network.architecture.members)
    draws = max(1, draws // judges)
    kept: list[Tensor] = []
    with torch.no_grad():
        for numbers, places in rows.judged_by(members, 1024):
            chunk = [
                part.expand(members, draws * numbers.shape[-1], -1).unflatten(1, (draws, -1)).movedim(1, 2)
                for part in scorer.parts(network(rows.features[numbers], generator, draws))
            ]
            kept = kept or [torch.empty(judges, len(rows), *part.shape[2:]) for part in chunk]
            for part, into in zip(chunk, kept, strict=True):
                places.put(part, into)
    return kept
