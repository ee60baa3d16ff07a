"""Calibration of totals: what held-out totals say of the predicted ones, which the calibration of rows can't.

Bands of single rows may be right though those of a sum are wrong: it depends on how much of the errors of rows is
shared. So totals of held-out rows are compared with what was predicted for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Annotated, Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from murho.model.json_validation import NotNegative, Positive, Stored

Doubles: TypeAlias = NDArray[np.float64]

LEAST = 1e-300


@dataclass(frozen=True)
class TotalsCalibration(Stored):
    """What held-out totals say of predicted ones; all 1 and 0: nothing.

    Attributes:
        shared: Factor of the covariance that rows have because they share a draw.
        independent: Factor of the sum of the rows' own variances, for many rows; a row alone keeps its own.
        within: Correlation of the noise of two rows of one unit, such as one patient.
        neighbours: Correlation of the noise of one row and the next in time, falling geometrically.
        blocks: Held-out totals behind these numbers.
    """

    shared: NotNegative = 1.0
    independent: Positive = 1.0
    within: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    neighbours: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    blocks: Annotated[int, Field(ge=0)] = 0

    def variances(
        self, rows: Doubles, own: Doubles, noise: Doubles, noise_sum: Doubles, same_unit: Doubles, drawn: Doubles
    ) -> tuple[Doubles, Doubles]:
        """Epistemic and aleatoric variance of totals; arrays of one shape.

        Args:
            rows: Number of rows.
            own: ``sum_i w_i^2 epistemic_i^2``.
            noise: ``sum_i w_i^2 aleatoric_i^2``.
            noise_sum: ``sum_i w_i aleatoric_i``.
            same_unit: ``sum_(i != j) w_i w_j aleatoric_i aleatoric_j`` over rows of one unit.
            drawn: ``Var_s[F_s]``.
        """
        alike = noise_sum**2 / np.maximum(noise, LEAST)  # rows of about the same noise
        factor = 1.0 + (self.independent - 1.0) * (1.0 - 1.0 / np.maximum(alike, 1.0))
        lags = neighbour_pairs(rows, self.neighbours)
        epistemic = factor * own + self.shared * (drawn - own)
        aleatoric = factor * noise * (1.0 + lags) + self.within * same_unit
        return np.maximum(epistemic, 0.0), aleatoric


def neighbour_pairs(rows: Doubles, correlation: float) -> Doubles:
    """``2 sum_(k < n) (1 - k / n) r^k``: what neighbours add to the variance of a sum of n rows, in variances."""
    if correlation == 0.0:
        return np.zeros_like(rows)
    power = correlation**rows
    return 2.0 * correlation / (1.0 - correlation) * (1.0 - (1.0 - power) / (np.maximum(rows, 1) * (1.0 - correlation)))


@dataclass(frozen=True, slots=True)
class HeldOutTotals:
    """Totals of n blocks of held-out rows, ``[n]`` each.

    Attributes:
        rows: Number of rows.
        error: Squared error of the predicted total; may be negative, as an unbiased estimate.
        own: See `TotalsCalibration.variances`, as the next four.
        noise: As said there.
        noise_sum: As said there.
        same_unit: As said there.
        drawn: As said there.
        weight: How much each counts.
    """

    rows: Doubles
    error: Doubles
    own: Doubles
    noise: Doubles
    noise_sum: Doubles
    same_unit: Doubles
    drawn: Doubles
    weight: Doubles

    @classmethod
    def of(cls, **parts: NDArray[Any] | float) -> Self:
        """From arrays ``[blocks, C]`` of counts of C classes, or of one number, or what has their shape if repeated."""
        return cls(
            **{name: np.ravel(part) for name, part in zip(parts, np.broadcast_arrays(*parts.values()), strict=True)}
        )

    @classmethod
    def join(cls, parts: Sequence[HeldOutTotals]) -> Self:
        """All blocks of several."""
        return cls(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(cls)))


SHARED = np.exp2(np.linspace(-6.0, 6.0, 25))
"""Factors of the shared covariance that are tried, in units of the expected one."""
INDEPENDENT = np.exp2(np.linspace(-1.0, 1.0, 9))
CORRELATIONS = np.append(np.linspace(0.0, 0.9, 19), 1.0 - np.exp2(-np.arange(3.5, 8.0, 0.5)))
PRIOR_SHARED, PRIOR_OF_DEPENDENT, PRIOR_INDEPENDENT = 0.7, 1.0, 0.3
"""Standard deviations of the logarithms before anything is known: little evidence leaves factors near the expected.
Where noise is correlated, less is known of the shared covariance."""
MOST_ERROR = 25.0
"""Most squared error of a total that counts, in variances: one odd block must not decide."""
ONE_ERROR = 1.0
"""A value is within one standard error of the likeliest if twice the log likelihood falls by no more."""


def fit_totals(totals: HeldOutTotals, expected: float = 1.0, *, units: bool, in_time: bool) -> TotalsCalibration:
    """Fit the calibration by the Gaussian likelihood of the errors of totals, over a grid, with priors about 1.

    A correlation in time leaves few independent blocks, which tell it badly, and one that is too small makes bands too
    narrow. So the largest within one standard error of the likeliest is taken.

    Args:
        totals: Held-out totals.
        expected: The factor of the shared covariance about which its prior lies.
        units: Whether noise may be correlated within units.
        in_time: Whether it may be correlated between neighbours in time.
    """
    predicted = (totals.rows, totals.own, totals.noise, totals.noise_sum, totals.same_unit, totals.drawn)
    largest = totals.noise_sum**2 if in_time else totals.noise + totals.same_unit
    largest = largest + np.maximum(totals.own, totals.drawn)
    error = np.minimum(totals.error, MOST_ERROR * np.maximum(largest, LEAST))
    found: list[tuple[float, TotalsCalibration]] = []
    for correlation in CORRELATIONS if units or in_time else CORRELATIONS[:1]:
        best, least = TotalsCalibration(), np.inf
        for independent, shared in product(INDEPENDENT, SHARED):
            guess = TotalsCalibration(
                shared=float(shared * expected),
                independent=float(independent),
                within=float(correlation) if units else 0.0,
                neighbours=0.0 if units else float(correlation),
                blocks=len(error),
            )
            variance = np.maximum(np.add(*guess.variances(*predicted)), LEAST)
            loss = float(totals.weight @ (np.log(variance) + error / variance))
            loss += (np.log(shared) / (PRIOR_OF_DEPENDENT if units or in_time else PRIOR_SHARED)) ** 2
            loss += (np.log(independent) / PRIOR_INDEPENDENT) ** 2
            if loss < least:
                best, least = guess, loss
        found.append((least, best))
    least = min(loss for loss, _ in found) + (ONE_ERROR if in_time else 0.0)
    return [guess for loss, guess in found if loss <= least][-1]
