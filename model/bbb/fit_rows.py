"""The rows of a fit: encoded inputs and standardised targets, who learns from them, and who judges them.

`Rows` says which rows each member learns from. A row is judged by its judges, the members that have not learned from
it. The score of m members together is ``a + b / m`` in expectation, so the scores of one judge and of all judges tell
that of all members (`ensemble_score`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from murho.model.bbb.likelihood import Likelihood
from murho.model.bbb.network import BayesianNetwork
from murho.model.tables.splits import folds_of, partition_of


@dataclass(frozen=True, slots=True)
class Rows:
    """Encoded rows and standardised targets.

    Attributes:
        features: ``[N, D]``, float32.
        targets: ``[N]``, float32.
        folds: Fold of each row in each of P partitions, ``[P, N]``. Of F folds, member m does not see fold ``m mod F``
            of its partition (`model.tables.splits.partition_of`). None: every member sees all rows.
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
        """Return the same rows on another device."""
        folds, weights = (None if part is None else part.to(device) for part in (self.folds, self.weights))
        return Rows(self.features.to(device), self.targets.to(device), folds, self.forward, weights)

    def mean(self, values: Tensor) -> Tensor:
        """Return the weighted mean of a value per row, ``[N]`` or ``[…, N]``."""
        if self.weights is None:
            return values.mean(dim=-1)
        weights = self.weights.to(values)
        return (values * weights).sum(dim=-1) / weights.sum()

    def seen_by(self, members: int) -> SeenRows:
        """Return the rows that each member sees."""
        if self.folds is None:
            return SeenRows(torch.arange(len(self), device=self.targets.device).unsqueeze(0), (len(self),))
        lists = [
            (folds < fold if self.forward else folds != fold).nonzero().squeeze(1)
            for folds, fold in self._folds_of(self.folds, members)
        ]
        return SeenRows(torch.nn.utils.rnn.pad_sequence(lists, batch_first=True), tuple(map(len, lists)))

    def judges(self, members: int) -> int:
        """Return the number of judges of a row, J: members that have not seen the row; all M without folds."""
        return members if self.folds is None else members // folds_of(members)

    def judged_by(self, members: int, size: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Return the rows that each member judges, about ``size`` in all at a time.

        Without folds all members judge all rows, else each member those that it has not seen.

        Yields:
            Numbers of the rows, ``[M, B]``, with shorter lists padded; the mask of those that are no padding, n in all,
            ``[M, B]``; and the places of the n in an array of J judges and N rows, ``[2, n]``.
        """
        if self.folds is None:
            lists, together = [torch.arange(len(self), device=self.targets.device)] * members, 1
        else:
            lists = [(folds == fold).nonzero().squeeze(1) for folds, fold in self._folds_of(self.folds, members)]
            together = folds_of(members)
        rows = torch.nn.utils.rnn.pad_sequence(lists, batch_first=True)
        lengths = torch.tensor([len(numbers) for numbers in lists], device=rows.device).unsqueeze(1)
        not_padding = torch.arange(rows.shape[1], device=rows.device) < lengths
        judges = (torch.arange(members, device=rows.device) // together).unsqueeze(1)
        width = max(1, size // members)
        for numbers, valid in zip(rows.split(width, dim=1), not_padding.split(width, dim=1), strict=True):
            yield numbers, valid, torch.stack((judges.expand_as(valid)[valid], numbers[valid]))

    @staticmethod
    def _folds_of(partitions: Tensor, members: int) -> Iterator[tuple[Tensor, int]]:
        """For each member the folds of its partition, ``[N]``, and the fold that it judges."""
        for member in range(members):
            yield partitions[partition_of(member, members, len(partitions))], member % folds_of(members)


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

    def shuffle(self, generator: torch.Generator) -> Tensor:
        """Numbers of the rows in a random order, ``[M, n]`` or ``[1, N]``.

        Args:
            generator: Source of the order, on the CPU.
        """
        keys = torch.rand(self.rows.shape, generator=generator)
        counts, places = torch.tensor(self.counts).clamp_min(1).unsqueeze(1), torch.arange(self.longest)
        # NumPy's sort takes a fifth of the time of PyTorch's.
        order = torch.from_numpy(np.argsort(keys.masked_fill_(places >= counts, 2.0).numpy(), axis=1))
        return self.rows.gather(1, order.gather(1, places % counts).to(self.rows.device))


Score = TypeVar("Score", float, "NDArray[np.float64]", "Tensor")


def ensemble_score(single: Score, mixture: Score, count: int, members: int) -> Score:
    """Extrapolate a score along ``a + b / m`` from m = 1 and m = ``count`` to m = ``members``.

    For m exchangeable members the line is exact in expectation for

    - the CRPS: ``E|X - X'|`` of the mixture is ``1 / m`` times its value within a member plus ``1 - 1 / m`` times its
      value between two (Ferro, Richardson and Weigel 2008, "On the effect of ensemble size on the discrete and
      continuous ranked probability scores", doi:10.1002/met.45);
    - the squared error of the mean: with members' means ``f_i = E f + e_i``, where the ``e_i`` have variance v and
      covariance c, ``E(mean_i f_i - y)^2 = E(E f - y)^2 + c + (v - c) / m`` (Ueda and Nakano 1996, "Generalization
      error of ensemble estimators", doi:10.1109/ICNN.1996.548872);
    - the variance of the mixture: the mean of the members' variances plus ``1 - 1 / m`` times the variance between
      their means (the law of total variance).

    For the absolute error of the mean it holds to first order in ``1 / m``. For the negative log likelihood it is
    approximate: measured gains of ten members are 0.7 to 1.4 times the predicted ones. It holds row by row, so the
    extrapolated scores of rows have a mean and a standard error like any others.

    Args:
        single: Score of single members, the mean over those that count; a number, or one for each row, ``[n]``.
        mixture: Score of their mixture, likewise.
        count: Number of members in that mixture.
        members: M, the number of members that will answer.

    Returns:
        The score at ``m = members``; ``mixture`` where ``count`` is 1, because one point gives no line.
    """
    if count <= 1:
        return mixture
    gained = (1.0 / count - 1.0 / members) / (1.0 - 1.0 / count)
    return mixture - gained * (single - mixture)


LEAST_LOG_DENSITY = -15.0
"""Floor of the log density of a validation row, nats: that of a target 5.3 standard deviations from the mean.

A single cell with a misplaced decimal point may lie thousands of standard deviations off. Without the floor, it alone
would decide when to stop and which observation model to keep."""


def judge_rows(
    network: BayesianNetwork,
    rows: Rows,
    of_outputs: Callable[[Tensor, Tensor], Sequence[Tensor]],
    *,
    draws: int,
    seed: int,
    size: int,
    forward: Callable[[Tensor, torch.Generator, int], Tensor] | None = None,
) -> list[Tensor]:
    """Return what is taken of the network's outputs for every row and each of its judges.

    Local reparameterisation is exact here, because the score of a single row does not depend on draws that rows share.

    Args:
        network: The network.
        rows: The rows; only members that have not seen a row judge it.
        of_outputs: Takes outputs, ``[M, draws * B, P]``, draw-major, and targets, ``[M, B]``, and returns what is kept
            of them, ``[M, B, …]`` each.
        draws: Draws per row and judge.
        seed: Seed of the draws. The same seed gives the same noise in every call, so two fits compare fairly.
        size: Rows at a time, of all members.
        forward: The network's outputs of rows, ``[M, B, D]``, under draws of their own (`BayesianNetwork.forward`);
            None: the network's own.

    Returns:
        ``[J, N, …]`` each.
    """
    forward = forward or network
    generator = torch.Generator(rows.features.device).manual_seed(seed)
    members, kept = network.architecture.members, list[Tensor]()
    with torch.no_grad():
        for numbers, valid, places in rows.judged_by(members, size):
            parts = of_outputs(forward(rows.features[numbers], generator, draws), rows.targets[numbers])
            kept = kept or [part.new_empty((rows.judges(members), len(rows), *part.shape[2:])) for part in parts]
            for part, into in zip(parts, kept, strict=True):
                into[*places] = part[valid]
    return kept


def ensemble_of(alone: Score, together: Score, network: BayesianNetwork, rows: Rows) -> Score:
    """`ensemble_score` of all members of a network, from the scores of rows by their judges.

    Where the judges of a row are of two kinds that read different inputs, they differ more than two members of one
    kind. The line through one and both would promise too much, so the score stays that of the judges.
    """
    members = network.architecture.members
    return ensemble_score(alone, together, rows.judges(members), members) if network.alike else together


def mixture_nll(
    network: BayesianNetwork,
    likelihood: Likelihood,
    rows: Rows,
    draws: int,
    seed: int,
    forward: Callable[[Tensor, torch.Generator, int], Tensor] | None = None,
) -> float:
    """Negative log likelihood of the mixture over ``draws`` draws per row and all members, nats per row.

    Only members that have not seen a row judge it. If these are several members, but not all, the score is extrapolated
    to all members by `ensemble_score`. No row adds more than 15 nats (`LEAST_LOG_DENSITY`). With weights, it is the
    weighted mean over rows.
    """

    def log_densities(outputs: Tensor, targets: Tensor) -> list[Tensor]:
        of_draws = likelihood.log_density(outputs, targets.repeat(1, draws)).double().unflatten(1, (draws, -1))
        return [torch.logsumexp(of_draws, dim=1) - math.log(draws)]

    (single,) = judge_rows(network, rows, log_densities, draws=draws, seed=seed, size=2048, forward=forward)
    mixture = torch.logsumexp(single, dim=0) - math.log(len(single))
    alone = -float(rows.mean(single.clamp_min(LEAST_LOG_DENSITY)).mean())
    together = -float(rows.mean(mixture.clamp_min(LEAST_LOG_DENSITY)))
    return ensemble_of(alone, together, network, rows)
