"""How far draws of the weights spread: as far as training and held-out rows together say that the mean is wrong.

Held-out rows alone can't tell the error of the mean from noise; together with training rows they can. Let ``t`` be the
mean squared residual of rows that a member has learned from, and ``h`` that of rows that it has not. A linear smoother
with ``p`` degrees of freedom in ``n`` rows has ``t = (1 - p / n) noise``, and generalised cross-validation (Golub,
Heath and Wahba 1979, doi:10.1080/00401706.1979.10489751) takes ``h = t / (1 - p / n)^2``. So the variance of the noise
is ``sqrt(t h)``. The squared residual of all members together has beyond it the squared error of their mean. That a
network is such a smoother is an approximation, and ours; docs/statistics.md has what it is worth on known functions.
Every row is in training for some members and held out for others, so most of its noise cancels in the difference.

The function should have the share of the variance that this error has of the squared residual. All standard deviations
of weights are multiplied by one factor, for which it does; what members disagree about stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Self, cast

import numpy as np
from torch import Tensor
from torch.nn import functional

from murho.model.arrays import Bools, Doubles
from murho.model.bbb.network import inverse_softplus
from murho.model.checkpoint.posterior import Posterior
from murho.model.distributions.predictive import Predictive
from murho.model.encoding.encoder import Encoded
from murho.model.evaluation.judged_rows import RowArrays, RowWeights
from murho.model.evaluation.judging import in_passes
from murho.model.predictive.plans import DrawnRows
from murho.model.tables.splits import HeldOut

DRAWS = 32
"""Draws of each member."""
MOST_ROWS = 2_000
ODDS_ERROR = 0.5
"""Standard error of the logarithm of the function's odds: as the model has it, and by the approximation above."""
LEAST, MOST = 0.5, 2.0
"""Limits of the factor."""
MOST_LOST = 1.02


@dataclass(frozen=True, slots=True, eq=False)
class MemberRows(RowArrays):
    """N rows under each of M members, in units of the largest target.

    Attributes:
        targets: ``[N]``.
        judged: Whether each member has not learned from the row, ``[N, M]``; of every row some have, and two have not.
        means: Mean of the function values over the member's draws, ``[N, M]``.
        within: Their variance, ``[N, M]``.
        noise: Mean variance of the noise, ``[N, M]``.
    """

    targets: Doubles
    judged: Bools
    means: Doubles
    within: Doubles
    noise: Doubles

    @classmethod
    def of(cls, posterior: Posterior, encoded: Encoded, targets: Doubles, judged: Bools) -> MemberRows:
        """Send rows with targets ``[N]`` through every member of a posterior."""
        unit = np.abs(targets).max()

        def of_pass(drawn: DrawnRows, places: slice) -> MemberRows:
            predictive = cast("Predictive", drawn.target.predictive(drawn.outputs, drawn.members))
            order = drawn.members.argsort(stable=True)
            functions, variances = (
                values.expand_as(predictive.means)[order].unflatten(0, (-1, DRAWS))
                for values in (predictive.means / unit, (predictive.noise / unit).square())
            )
            parts = (part.T.cpu().numpy() for part in (functions.mean(1), functions.var(1), variances.mean(1)))
            return cls(targets[places] / unit, judged[places], *parts)

        return in_passes(posterior, encoded, of_pass, samples=DRAWS * judged.shape[1])


@dataclass(frozen=True, slots=True)
class FunctionShare:
    """The function's share of the variance of a new row, as a model has it and as rows say.

    Attributes:
        within: Mean variance over the draws of a member.
        between: That between members.
        noise: That of the noise.
        share: The share that rows say.
        error: Its standard error, of chance alone.
        residual: Mean squared residual of the mean of a row's judges.
    """

    within: float
    between: float
    noise: float
    share: float
    error: float
    residual: float

    @classmethod
    def of(cls, rows: MemberRows, weights: RowWeights) -> Self:
        """Compare rows that members have learned from with those that they have not."""
        judges = rows.judged.sum(axis=1)

        def over(chosen: Bools, values: Doubles) -> Doubles:
            return np.average(values, axis=1, weights=chosen)

        def mean(values: Doubles) -> float:
            return float(weights.mean(values))

        squares = np.square(rows.targets[:, None] - rows.means)
        held_out, learned = over(rows.judged, squares), over(~rows.judged, squares)
        within = over(rows.judged, rows.within)
        spread = over(rows.judged, np.square(rows.means - over(rows.judged, rows.means)[:, None]))
        between = spread * judges / (judges - 1) - within / DRAWS
        together = held_out - between * (1.0 - 1.0 / rows.judged.shape[1])
        ratio = math.sqrt(mean(learned) / mean(held_out))
        beyond = together - 0.5 * (held_out * ratio + learned / ratio)  # as each row moves whole - sqrt(t h)
        whole = mean(together)
        return cls(
            within=mean(within),
            between=mean(between),
            noise=mean(over(rows.judged, rows.noise)),
            share=mean(beyond) / whole,
            error=float(weights.standard_error(beyond)) / whole,
            residual=mean(held_out - between * (1.0 - 1.0 / judges)),
        )

    @property
    def within_of_share(self) -> float:
        """The variance over the draws of a member with which the function has its share; below 0 where none has it."""
        own = (self.within + self.between) / (self.within + self.between + self.noise)
        share = min(max(self.share, 0.01), 0.99)
        middle = 0.5 * (own + share)
        chance = self.error / (middle * (1.0 - middle))
        first, second = (math.log(each / (1.0 - each)) for each in (own, share))
        odds = math.exp(first + (second - first) / (2.0 + (chance / ODDS_ERROR) ** 2))  # weighted by precision
        return self.noise * odds - self.between


def scale_weights(tensors: Mapping[str, Tensor], factor: float) -> dict[str, Tensor]:
    """Return the tensors of a network with all standard deviations of weights multiplied; others are as they were."""
    return {
        name: inverse_softplus(factor * functional.softplus(tensor.double())).to(tensor)
        if name.startswith("layers.") and name.endswith(".rho")
        else tensor
        for name, tensor in tensors.items()
    }


def weight_factor(
    posterior: Posterior,
    encoded: Encoded,
    targets: Doubles,
    groups: Sequence[HeldOut],
    weights: Doubles | None = None,
) -> float:
    """Return the factor of the standard deviations of weights with which the function has its share of the variance.

    The variance of the function grows at least with the square of the factor; how much faster is tried. A factor moves
    the mean too. If the mean squared residual of held-out rows rises by more than 2 %, the square root of the factor is
    taken, or none.

    Args:
        posterior: An ensemble for a number, whose members have each learned from a part of the rows.
        encoded: All rows of the table.
        targets: ``[N]``, the target's unit.
        groups: Held-out rows, each with the members that have not seen them.
        weights: Relative weights of all rows, ``[N]``; None: all count alike.

    Returns:
        From 0.5 to 2; 1 if no row is in training for some members, and held out for two.
    """
    judged = np.zeros((len(targets), posterior.architecture.members), dtype=bool)
    for group in groups:
        for member in group.members or ():
            judged[group.rows, member] = True
    rows = np.flatnonzero((judged.sum(axis=1) > 1) & ~judged.all(axis=1))
    rows = rows[:: len(rows) // MOST_ROWS + 1]
    if not len(rows):
        return 1.0
    counted = RowWeights.of(len(rows), None if weights is None else weights[rows])

    @cache
    def share_with(factor: float) -> FunctionShare:
        scaled = Posterior(posterior.spec, scale_weights(posterior.tensors, factor), engine="torch")
        return FunctionShare.of(MemberRows.of(scaled, encoded[rows], targets[rows], judged[rows]), counted)

    own, exponent = share_with(1.0), 2.0
    power = max(own.within_of_share / own.within, 0.0)
    for _ in range(2):
        factor = float(np.clip(power ** (1.0 / exponent), LEAST, MOST))
        if factor != 1.0:
            exponent = max(exponent, math.log(share_with(factor).within / own.within) / math.log(factor))
    tried = factor, math.sqrt(factor)
    return next((each for each in tried if share_with(each).residual <= MOST_LOST * own.residual), 1.0)
