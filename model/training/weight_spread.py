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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, cast

import numpy as np
import torch
from torch.nn import functional

from murho.model.bbb.network import inverse_softplus
from murho.model.checkpoint.posterior import Posterior

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from murho.model.arrays import Bools, Doubles
    from murho.model.distributions.predictive import Predictive
    from murho.model.encoding.encoder import Encoded
    from murho.model.tables.splits import HeldOut

DRAWS = 32
"""Draws of each member."""
MOST_ROWS = 2_000
ROWS_PER_PASS = 256
OWN_ERROR, FOUND_ERROR = 0.5, 0.5
"""Standard errors of the logarithm of the function's odds: as the model has it, and by the approximation above."""
LEAST, MOST = 0.5, 2.0
"""Limits of the factor."""
MOST_LOST = 1.02
TINY = 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class MemberRows:
    """N rows under each of M members, in units of the largest target.

    Attributes:
        targets: ``[N]``.
        means: Mean of the function values over the member's draws, ``[M, N]``.
        within: Their variance, ``[M, N]``.
        noise: Mean variance of the noise, ``[M, N]``.
    """

    targets: Doubles
    means: Doubles
    within: Doubles
    noise: Doubles

    @classmethod
    @torch.inference_mode()
    def of(cls, posterior: Posterior, encoded: Encoded, targets: Doubles) -> Self:
        """Send rows with targets ``[N]`` through every member of a posterior."""
        members, unit, parts = posterior.architecture.members, float(np.abs(targets).max()) or 1.0, []
        for start in range(0, len(encoded), ROWS_PER_PASS):
            drawn = posterior.drawn(encoded[start : start + ROWS_PER_PASS], DRAWS * members, posterior.seed)
            predictive = cast("Predictive", drawn.target.predictive(drawn.outputs, drawn.members))
            by_member = drawn.members.argsort(stable=True)
            functions, variances = (
                values.double().expand_as(predictive.means)[by_member].unflatten(0, (members, DRAWS))
                for values in (predictive.means / unit, (predictive.noise / unit).square())
            )
            parts.append(torch.stack((functions.mean(1), functions.var(1), variances.mean(1))).cpu().numpy())
        return cls(targets / unit, *np.concatenate(parts, axis=2))


@dataclass(frozen=True, slots=True)
class FunctionShare:
    """The function's share of the variance of a new row, as a model has it and as rows say.

    Attributes:
        within: Mean variance over the draws of a member.
        between: That between members.
        noise: That of the noise.
        found: The share that rows say.
        error: Its standard error, of chance alone.
        residual: Mean squared residual of the mean of a row's judges.
    """

    within: float
    between: float
    noise: float
    found: float
    error: float
    residual: float

    @classmethod
    def of(cls, rows: MemberRows, judged: Bools, weights: Doubles) -> Self:
        """Compare rows that members have learned from with those that they have not.

        Args:
            rows: N rows.
            judged: Whether each member has not learned from each row, ``[M, N]``; both occur in every column.
            weights: Weight of each row, ``[N]``.
        """
        members, judges = len(judged), judged.sum(axis=0)

        def mean_over(mask: Bools, values: Doubles) -> Doubles:
            return np.asarray((values * mask).sum(axis=0) / mask.sum(axis=0))

        def mean(values: Doubles) -> float:
            return float(np.average(values, weights=weights))

        squares = np.square(rows.targets - rows.means)
        held_out, learned = mean_over(judged, squares), mean_over(~judged, squares)
        # A single judge has no variance: that of all members is a little too small, since most know the row.
        several = judged if judges.min() > 1 else np.ones_like(judged)
        count, within = several.sum(axis=0), mean_over(judged, rows.within)
        spread = mean_over(several, np.square(rows.means - mean_over(several, rows.means)))
        between = spread * count / (count - 1) - mean_over(several, rows.within) / DRAWS
        together = held_out - between * (1.0 - 1.0 / members)
        ratio = math.sqrt(max(mean(learned), TINY) / max(mean(held_out), TINY))
        beyond = together - 0.5 * (held_out * ratio + learned / ratio)  # as each row moves whole - sqrt(t h)
        whole, found = max(mean(together), TINY), mean(beyond)
        error = math.sqrt(float(np.square(weights * (beyond - found)).sum())) / float(weights.sum())
        return cls(
            within=mean(within),
            between=max(mean(between), 0.0),
            noise=mean(mean_over(judged, rows.noise)),
            found=found / whole,
            error=error / whole,
            residual=mean(held_out - between * (1.0 - 1.0 / judges)),
        )

    @property
    def wanted(self) -> float:
        """The variance over the draws of a member with which the function has its share."""
        own = (self.within + self.between) / (self.within + self.between + self.noise)
        found = min(max(self.found, 0.01), 0.99)
        middle = 0.5 * (own + found)
        error = math.hypot(FOUND_ERROR, self.error / (middle * (1.0 - middle)))
        log_odds = [math.log(share / (1.0 - share)) for share in (own, found)]
        odds = math.exp(np.average(log_odds, weights=(OWN_ERROR**-2, error**-2)))
        return max(self.noise * odds - self.between, 0.0)


def scale_weights(tensors: Mapping[str, Tensor], factor: float) -> dict[str, Tensor]:
    """The tensors of a network with all standard deviations of weights multiplied; others are as they were."""
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
    """The factor of the standard deviations of weights with which the function has its share of the variance.

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
        From 0.5 to 2; 1 if no row is both in training and held out.
    """
    judged = np.zeros((posterior.architecture.members, len(targets)), dtype=bool)
    for group in groups:
        for member in group.members or ():
            judged[member, group.rows] = True
    rows = np.flatnonzero(judged.any(axis=0) & ~judged.all(axis=0))
    rows = rows[:: -(-len(rows) // MOST_ROWS) or 1]
    if not len(rows):
        return 1.0
    counted = np.ones(len(rows)) if weights is None else weights[rows]

    def share_with(factor: float) -> FunctionShare:
        scaled = Posterior(posterior.spec, scale_weights(posterior.tensors, factor), engine="torch")
        return FunctionShare.of(MemberRows.of(scaled, encoded[rows], targets[rows]), judged[:, rows], counted)

    def factor_for(power: float, exponent: float) -> float:
        return float(np.clip(max(power, 0.0) ** (1.0 / exponent), LEAST, MOST))

    own = share_with(1.0)
    power = own.wanted / own.within
    factor = factor_for(power, 2.0)
    if factor == 1.0:
        return factor
    grown = math.log(share_with(factor).within / own.within) / math.log(factor)
    factor = factor_for(power, max(2.0, grown))
    for _ in range(2):
        if share_with(factor).residual <= MOST_LOST * own.residual:
            return factor
        factor = math.sqrt(factor)
    return 1.0
